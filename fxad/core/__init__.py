"""Programs as values, and the tools that read and build them: types, printing, interpreter, type checker, memoisation."""
