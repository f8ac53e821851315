"""The semantics of operators, indexing and array methods, as equations.

An operation is a pure function `(emit, *atoms, *static) -> results` over an `Emit`. It does not depend on arrays and
tracers: inside a trace it emits into the traced program; outside it becomes a small program that is compiled once.
"""
