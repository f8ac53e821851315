"""Equality without tolerances, as a law."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.diagnosis.equality.decide import Counterexample, Proof, Question, Verdict, decide
from fxad.ir import Jaxpr, NDArray
from fxad.testing.compare import fail


def verdict(a: Jaxpr, b: Jaxpr, args: Sequence[NDArray], *, bits: bool = False) -> Verdict:
    """Return what `fxad.equal` says of two programs, for the integers and bools of `args`."""
    known = [None if aval.inexact else x for aval, x in zip(a.in_avals, args, strict=True)]
    return decide(Question((a, b), ((), ()), known), bits=bits)


def check_equal(a: Jaxpr, b: Jaxpr, args: Sequence[NDArray], *, bits: bool = False) -> bool:
    """Check that two programs are equal, as functions of real numbers or bit for bit, for all floating operands and the
    integers and bools of `args`. Returns False if that is not decided."""
    found = verdict(a, b, args, bits=bits)
    if isinstance(found, Counterexample):
        fail(f"the programs are not equal: {found}", a, args, b)
    return isinstance(found, Proof)
