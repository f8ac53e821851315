"""From Python functions to programs: tracers, arrays, `Program`, and the context of a trace."""
