"""`equal`: whether two programs are equal, decided without tolerances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from fxad import dtypes
from fxad.api.lift import check_function, trace_for_transform
from fxad.core.trees import tree
from fxad.diagnosis.equality.decide import decide
from fxad.diagnosis.equality.verdict import Counterexample, Proof, Question, Unknown
from fxad.errors import ArgumentError, DTypeError, ShapeError, SizeError, TreeError, described, shown
from fxad.ir import Jaxpr, NDArray
from fxad.tracing.program import Program

_EXACT: Final = ("real", "bits")

Comparable: TypeAlias = "Program[..., Any] | Jaxpr | Callable[..., Any]"


def equal(
    a: Comparable,
    b: Comparable,
    /,
    *,
    exact: Literal["real", "bits"] = "real",
    at: Sequence[object] | None = None,
    seed: int = 0,
) -> Proof | Counterexample | Unknown:
    """Decide whether two programs are equal: a proof, a counterexample, or the equation that was not decided.

    No tolerance is involved. Programs with one normal form are equal. Otherwise both are evaluated at random points of
    finite fields: sums, products, quotients and linear operations exactly, bodies by their layouts, `exp`, `sin`,
    comparisons and other functions as random functions of their operands. So `(x + y) * (x - y)` is `x * x - y * y`. A
    difference is confirmed in float64, by more than its rounding, and its operands are simplified.

    `exact="real"` asks for equal functions of real and complex numbers, which floating programs may round differently.
    A proof lists its assumptions: that no float is nan or infinite, that no denominator is zero, and others.
    `exact="bits"` asks for the same operations on the same values, in which only data movement and calls may differ.

    Integer and bool operands may have any value; integers are numbers without wrap-around where a proof says so. With
    `at`, a tuple of all arguments (for `Jaxpr`s: of all operands), they have its values. Its floats are not used. A
    function that is no program needs `at`, for the types of its arguments.

    The result is true in a condition only if it is a proof.

    >>> import fxad as fx
    >>> x = fx.Spec((3,), "float32")
    >>> f = fx.trace(lambda x: (x + 1) * (x - 1), x)
    >>> print(fx.equal(f, fx.trace(lambda x: x * x - 1, x)))
    equal as real functions, by evaluation
      wrong with probability at most 2^-192
      assuming that no operand or computed value is nan or infinite, and -0 is 0
    >>> print(fx.equal(f, fx.trace(lambda x: x * x + 1, x)))
    different: result 0[0] is -1.0 and 1.0 at
      operand 0: [0.0, 0.0, 0.0]

    Law:    a proof is wrong with probability at most 2^-60, which it states; nothing is proved by sampling.
    Cost:   about that of interpreting both programs; a loop takes as many steps as it has.
    Raises: TreeError, ShapeError, DTypeError for programs of different types; SizeError for symbolic shapes;
            ArgumentError.
    """
    if exact not in _EXACT:
        raise ArgumentError(f"equal: exact is {shown(exact)}", remedy='give "real" or "bits"')
    if at is not None and not isinstance(at, tuple | list):
        raise ArgumentError(f"equal: at is {described(at)}, not a tuple", remedy="give all arguments: at=(x, y)")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 64:
        raise ArgumentError(f"equal: seed is {shown(seed)}", remedy="give an int from 0 to 2^64 - 1")
    programs = [_program(p, at) for p in (a, b)]
    _check_types(programs)
    known: list[NDArray | None] = [None] * len(programs[0].in_avals) if at is None else _known(programs[0], at)
    bound = [() if isinstance(p, Jaxpr) else tuple([np.asarray(x) for x in p.bound]) for p in programs]
    jaxprs = [p if isinstance(p, Jaxpr) else p.jaxpr for p in programs]
    return decide(Question((jaxprs[0], jaxprs[1]), (bound[0], bound[1]), known, seed), bits=exact == "bits")


def _program(program: Comparable, at: Sequence[object] | None) -> Program[..., Any] | Jaxpr:
    if isinstance(program, Program | Jaxpr):
        return program
    check_function("equal", program)
    if at is None:
        raise ArgumentError(
            "equal: a function has no types of arguments", remedy="equal(trace(f, *specs), ...), or give at=(x, ...)"
        )
    return trace_for_transform(program, tuple(at), {})


def _check_types(programs: Sequence[Program[..., Any] | Jaxpr]) -> None:
    a, b = programs
    remedy = "equal compares programs with the same arguments and results; adapt one of them"
    if isinstance(a, Program) and isinstance(b, Program):
        for what, one, other in (("arguments", a.in_tree, b.in_tree), ("results", a.out_tree, b.out_tree)):
            if one != other:
                raise TreeError(f"equal: the trees of the {what} differ: {one} and {other}", remedy=remedy)
    for what, ours, theirs in (
        ("argument", a.in_avals, b.in_avals),
        ("result", a.out_avals, b.out_avals),
    ):
        if len(ours) != len(theirs):
            raise TreeError(f"equal: the programs have {len(ours)} and {len(theirs)} {what}s", remedy=remedy)
        for k, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            if x.symbolic or y.symbolic:
                raise SizeError(f"equal: {what} {k} has a symbolic shape: {x}", remedy="specialize both programs")
            if x != y:
                error = DTypeError if x.dtype != y.dtype else ShapeError
                raise error(f"equal: {what} {k} is {x} and {y}", remedy=remedy)


def _known(program: Program[..., Any] | Jaxpr, at: Sequence[object]) -> list[NDArray | None]:
    """Return the values of integer and bool operands."""
    avals = program.in_avals
    leaves = list(at) if isinstance(program, Jaxpr) else tree.leaves((tuple(at), {}))
    if len(leaves) != len(avals):
        raise ArgumentError(
            f"equal: at has {len(leaves)} leaves, the programs take {len(avals)}",
            remedy="give all arguments of the programs",
        )
    known: list[NDArray | None] = []
    for k, (value, aval) in enumerate(zip(leaves, avals, strict=True)):
        if aval.dtype in dtypes.INEXACT:
            known.append(None)
            continue
        x = np.asarray(value)
        fits = x.shape == aval.shape and x.dtype.kind in "iub"
        outside = "" if not fits or np.array_equal(x, x.astype(aval.dtype)) else ", with values outside of its range"
        if not fits or outside:
            raise ArgumentError(
                f"equal: argument {k} is {aval}, at has {described(value)} of shape {x.shape}{outside}",
                remedy="give values of the types of the arguments",
            )
        known.append(x.astype(aval.dtype))
    return known


__all__ = ["Counterexample", "Proof", "Unknown", "equal"]
