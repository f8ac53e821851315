from . import diff as diff
