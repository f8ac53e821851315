from . import in_threads as in_threads, processes as processes
