"""The semantics of operators, indexing and array methods, as equations.

An operation is a pure function `(emit, *atoms, *static) -> results` over an `Emit`: operands first, then static values,
all positional. One that takes any number of operands declares `*args: *tuple[*tuple[Atom, ...], Static, ...]`, and
unpacks it: `*operands, axis = args`. It does not depend on arrays and tracers: inside a trace it emits into the traced
program; outside it becomes a small program that is compiled once.
"""
