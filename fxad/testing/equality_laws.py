"""Equality without tolerances, as a law."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.diagnosis.equality.decide import decide
from fxad.diagnosis.equality.verdict import Counterexample, Proof, Question, Verdict
from fxad.ir import Avals, Jaxpr, NDArray
from fxad.testing.compare import fail


def known_operands(program: Jaxpr, args: Sequence[NDArray]) -> list[NDArray | None]:
    """Return the integers and bools among operands, and None for floats."""
    return [None if aval.inexact else x for aval, x in zip(program.in_avals, args, strict=True)]


def check_equal(a: Jaxpr, b: Jaxpr, args: Sequence[NDArray], *, bits: bool = False) -> bool:
    """Check that two programs are equal, as functions of real numbers or bit for bit, for all floating operands and the
    integers and bools of `args`. Return False if that is not decided."""
    return isinstance(verdict(a, b, known_operands(a, args), bits=bits), Proof)


def _text(avals: Avals) -> str:
    return f"({', '.join(map(str, avals))})"


def verdict(a: Jaxpr, b: Jaxpr, known: Sequence[NDArray | None], *, bits: bool = False) -> Verdict:
    """Return what `fxad.equal` says of two programs. Raises AssertionError for a counterexample, and for programs of
    different types."""
    for what, ours, theirs in (("operands", a.in_avals, b.in_avals), ("results", a.out_avals, b.out_avals)):
        if ours != theirs:
            fail(f"the types of the {what} differ: {_text(ours)} and {_text(theirs)}", a, (), b)
    found = decide(Question((a, b), ((), ()), known), bits=bits)
    if isinstance(found, Counterexample):
        fail(f"the programs are not equal: {found}", a, (), b)
    return found
