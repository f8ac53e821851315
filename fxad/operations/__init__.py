"""What operators, indexing and array methods mean, as equations.

An operation is a pure function `(emit, *atoms, *static) -> results` over an `Emit`. So it stands below arrays and
tracers: inside a trace it emits into the program being traced, outside it is a small program that is compiled once.
"""
