"""The tap of an equation that rounds: the identity of its results, whose derivative rule has the rounding errors.

A tap is a function (results, operands of the equation, accumulator) -> results. Its pullback gives the accumulator the
sums of the errors over the elements of the results, weighted by the cotangents (`Sum`). So a cotangent of ones at the
end of a program becomes, at each accumulator, what the errors there change in the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, unique
from math import inf
from typing import Final, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Atoms, Aval, Eqn, Jaxpr, Lit
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, Rules
from fxad.primitives.elementwise.arithmetic import ADD, MUL, Add, Sub
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.logic import AND, EQ, NE
from fxad.primitives.elementwise.powers import ABS
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import Bilinear
from fxad.primitives.shape import ReduceSum, Reshape, emit_broadcast
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.precision.local_errors import local_errors
from fxad.transforms.precision.retype import converted


@unique
class Sum(IntEnum):
    """A sum that a pullback takes over the elements of a result y with the adjoint a, the rounding error e in units of
    roundoff and the operands x. The value is the place in an accumulator that has all sums."""

    ERROR = 0  # a e
    ERROR_SQUARES = 1  # (a e)^2
    SIZE_SQUARES = 2  # (a y)^2
    SUMMAND_SQUARES = 3  # (a x)^2 for the first summand that is no literal: large where a sum or difference cancels


_SAMPLE: Final = 4096  # elements, evenly spaced, of which a tap tells cancellation
ACCUMULATOR: Final = Aval((len(Sum),), dtypes.float64)
SCALAR: Final = Aval((), dtypes.float64)
ELEMENT: Final = Aval((1,), dtypes.float64)
ZERO: Final = Lit.zero(SCALAR)


@final
@dataclass(frozen=True, slots=True)
class SumRequest:
    """The sums that are wanted beside `error`, each a reading of the results.

    `squares`: `error_squares`, without which an error is known for one real result only. `sizes`: the exact
    `size_squares` of every equation; else those of a sample of elements of sums, differences and contractions, which
    tell cancellation. `stops`: values that `stop_gradient` holds constant stay constant. Without it their errors reach
    the results as all errors do, so their derivatives must exist. `overflows`: an infinite error is not finite in the
    sums, also where its adjoint is 0. There the results do not depend on it to first order, as `1 / y` does not for an
    infinite y, and may be wrong nevertheless.
    """

    squares: bool
    sizes: bool = False
    stops: bool = False
    overflows: bool = False


def tap_of(
    eqn: Eqn, ins: tuple[Aval, ...], literals: tuple[Lit | None, ...], request: SumRequest
) -> tuple[CallWithRules, tuple[Sum, ...], bool] | None:
    """Return the function (floating results, operands that are no literals, accumulator) -> results, the sums of its
    accumulator, and True if the errors are estimates. None if the error of the equation is unknown.

    The function is the identity of the results. Its derivative rule has the errors as residuals: `push` adds them for
    the tangent of the accumulator, and `pull` gives the accumulator their sums, weighted by the cotangents.
    """
    avals = [v.aval for v in eqn.outs if v.aval.inexact]
    n = len(avals)
    operand_avals = [a for a, lit in zip(ins, literals, strict=True) if lit is None]
    summed = isinstance(eqn.prim, Add | Sub)
    sized = request.sizes or summed or isinstance(eqn.prim, ReduceSum | Bilinear)

    def begun(accumulator: Aval) -> tuple[Builder, Atoms, Atoms]:
        """Return a builder of the function, the operands of the equation, and the results of the function."""
        b = Builder()
        ys = b.inputs(avals)
        inputs = iter(b.inputs(operand_avals))
        operands = tuple([lit or next(inputs) for lit in literals])
        zero = _first(b, b.input(accumulator))
        return b, operands, tuple([b.one(ADD, y, broadcast(b, converted(b, zero, y.aval.dtype), y.aval)) for y in ys])

    probe, operands, results = begun(ACCUMULATOR)  # which sums there are decides the type of the accumulator
    errors = local_errors(probe, eqn, operands, results)
    if errors is None:
        return None
    has_sum = {
        Sum.ERROR: True,
        Sum.ERROR_SQUARES: request.squares or errors.estimated,
        Sum.SIZE_SQUARES: sized,
        Sum.SUMMAND_SQUARES: summed,
    }
    sums = tuple([s for s in Sum if has_sum[s]])
    accumulator = Aval((len(sums),), dtypes.float64)

    b, _, results = begun(accumulator)
    body = b.build(results, f"tap_{eqn.prim.name}")

    b, operands, results = begun(accumulator)
    errors = local_errors(b, eqn, operands, results)
    assert errors is not None, "as before"
    # any operand that is no literal is large where the sum cancels: the result is small beside both
    summand = [a for a in operands if not isinstance(a, Lit)][:1] if summed else []
    residuals = [*errors.errors, *(results if sized else ()), *summand]
    forward = b.build([*results, *residuals], f"forward_tap_{eqn.prim.name}")

    types = [a.aval for a in residuals]
    push = _push_of_tap(avals, accumulator, types, f"push_tap_{eqn.prim.name}")
    pull = _pull_of_tap(avals, types, sums, request, f"pull_tap_{eqn.prim.name}")
    perturbed = (*[True] * n, *[False] * len(operand_avals), True)
    rules = Rules(vjp=(Derivative(perturbed, forward, push, pull),))
    return CallWithRules(Function(body, 0, rules)), sums, errors.estimated


def _push_of_tap(avals: Sequence[Aval], accumulator: Aval, residuals: Sequence[Aval], name: str) -> Jaxpr:
    """Return the program (tangents, tangent of the accumulator, residuals) -> tangents of a tap."""
    b = Builder()
    tangents, accumulator_tangent = b.inputs(avals), b.input(accumulator)
    errors = b.inputs(residuals)[: len(avals)]
    first = _first(b, accumulator_tangent)
    pushed = [
        b.one(ADD, t, b.one(MUL, e, broadcast(b, converted(b, first, t.aval.dtype), t.aval)))
        for t, e in zip(tangents, errors, strict=True)
    ]
    return b.build(pushed, name)


def _pull_of_tap(
    avals: Sequence[Aval],
    residuals: Sequence[Aval],
    sums: tuple[Sum, ...],
    request: SumRequest,
    name: str,
) -> Jaxpr:
    """Return the program (cotangents, residuals) -> (cotangents, sums of the accumulator) of a tap."""
    b, n = Builder(), len(avals)
    cts, residual_ins = b.inputs(avals), b.inputs(residuals)
    errors = residual_ins[:n]
    results: Sequence[Atom | None] = residual_ins[n : 2 * n] if Sum.SIZE_SQUARES in sums else [None] * n
    # the last residual: the first operand that is no literal; or, of a sum of literals, which has none, the result
    summand = residual_ins[-1] if Sum.SUMMAND_SQUARES in sums else None
    rows = [_sums(b, ct, e, y, summand, sums, request) for ct, e, y in zip(cts, errors, results, strict=True)]
    total = rows[0]
    for row in rows[1:]:
        total = b.one(ADD, total, row)
    return b.build([*cts, total], name)


def _first(b: Builder, accumulator: Atom) -> Atom:
    """Return the first element of an accumulator."""
    return b.one(Reshape(()), b.one(Slice((0,), (1,), (1,)), accumulator))


def broadcast(b: Builder, scalar: Atom, aval: Aval) -> Atom:
    """Return an array of equal elements."""
    return emit_broadcast(b, scalar, aval.shape, ()) if aval.shape else scalar


def _sum(b: Builder, x: Atom) -> Atom:
    """Return the sum of all elements, in float64, as an array of one."""
    total = b.one(ReduceSum(tuple(range(len(x.aval.shape)))), x) if x.aval.shape else x
    return b.one(Reshape((1,)), converted(b, total, dtypes.float64))


def _sums(
    b: Builder, ct: Atom, e: Atom, y: Atom | None, summand: Atom | None, kinds: tuple[Sum, ...], request: SumRequest
) -> Atom:
    """Return the wanted sums for one result."""
    weighted = _product_or_zero(b, ct, e, request.overflows)
    sums = [_sum(b, weighted)]
    if Sum.ERROR_SQUARES in kinds:
        sums.append(_sum(b, b.one(MUL, weighted, weighted)))
    for size in [x for x in (y, summand) if x is not None]:
        a, x = (ct, size) if request.sizes else (_sampled(b, ct), _sampled(b, size))
        product = _product_or_zero(b, b.one(ABS, a), b.one(ABS, x))
        sums.append(_sum(b, b.one(MUL, product, product)))
    return sums[0] if len(sums) == 1 else b.one(Concatenate(0), *sums)


def _sampled(b: Builder, x: Atom) -> Atom:
    """Return evenly spaced elements of a large array, the same ones of each array of a shape."""
    if x.aval.symbolic or x.aval.size <= 2 * _SAMPLE:
        return x
    flat = b.one(Reshape((x.aval.size,)), x)
    return b.one(Slice((0,), (x.aval.size,), (x.aval.size // _SAMPLE,)), flat)


def _product_or_zero(b: Builder, ct: Atom, x: Atom, overflows: bool = False) -> Atom:
    """Return the product, the real part of a complex one; 0 where the adjoint is 0, also if x is nan, and, but for
    `overflows`, if it is infinite."""
    if ct.aval.dtype in dtypes.COMPLEX or x.aval.dtype in dtypes.COMPLEX:
        product = b.one(REAL, b.one(MUL, converted(b, ct, dtypes.complex128), converted(b, x, dtypes.complex128)))
    else:
        dtype = dtypes.float64 if ct.aval.dtype == dtypes.float64 else dtypes.float32
        product = b.one(MUL, converted(b, ct, dtype), converted(b, x, dtype))
    none = b.one(EQ, ct, Lit.zero(ct.aval))
    if overflows and x.aval.dtype not in dtypes.COMPLEX:
        none = b.one(AND, none, b.one(NE, b.one(ABS, x), Lit.of(inf, x.aval)))
    return emit_where(b, none, Lit.zero(product.aval), product)
