"""One adjoint pass that weights the rounding error of each equation and sums it.

A *site* is an equation that rounds, in a program or in one of its bodies. `with_accumulators` gives the program one
further operand for each site. Behind each such equation stands a *tap*: a function with a custom derivative that
returns the result unchanged, and whose pullback gives the accumulator of the site its sums over the elements of the
result (`Sum`). Reverse mode passes cotangents through loops, branches and recomputations, and adds what several steps
give to one accumulator. So no code here knows a control-flow primitive.

An accumulator is -0.0 when the program runs, and a tap adds its first element to the result. The compiler does not know
this value, so it cannot fuse an operation with the next one, and each equation rounds as it does alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum, unique
from itertools import islice
from math import inf
from typing import Final, NamedTuple, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder, rebind_operands, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.layout import Constant
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.ir import Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Lit, NDArray, Primitive, Var, all_prims
from fxad.primitives.control.call import Applied, Call
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, Rules
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, Add, Sub
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, StopGradient
from fxad.primitives.elementwise.logic import AND, EQ, GT, IS_FINITE, LT, NE
from fxad.primitives.elementwise.powers import ABS, SQRT, Abs
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import Bilinear
from fxad.primitives.host_call import HostCall
from fxad.primitives.implicit import LinearSolve, Root
from fxad.primitives.shape import ReduceSum, Reshape, emit_broadcast
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.ad.vjp import vjp
from fxad.transforms.precision.local_errors import BY_FACTORS, factors_of, local_errors, rounds
from fxad.transforms.precision.retype import converted

# The position of an equation: the numbers of the equations and bodies around it, from the outside in, then its own.
Path: TypeAlias = tuple[int, ...]


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
_SCALAR: Final = Aval((), dtypes.float64)
_ELEMENT: Final = Aval((1,), dtypes.float64)


@final
@dataclass(frozen=True, slots=True)
class Site:
    """An equation that rounds. `sums` are those of its accumulator, in order. `measured`: its error is known, or at
    least its size if it is `estimated`."""

    path: Path
    sums: tuple[Sum, ...] = (Sum.ERROR,)
    measured: bool = True
    estimated: bool = False

    @property
    def accumulator(self) -> Aval:
        """The type of its accumulator."""
        return Aval((len(self.sums),), dtypes.float64)


@final
@dataclass(frozen=True, slots=True)
class WithAccumulators:
    """`jaxpr` takes the operands of the program, then one accumulator for each of the sites."""

    jaxpr: Jaxpr
    sites: tuple[Site, ...]


@final
@dataclass(frozen=True, slots=True)
class Wants:
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


@by_value
@with_enough_stack
def with_accumulators(jaxpr: Jaxpr, wants: Wants) -> WithAccumulators:
    """Return the program with an accumulator for each equation that rounds.

    Law: the results are those of the program if the accumulators are -0.0.
    """
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    sites: list[Site] = []
    accumulators: list[Var] = []

    def accumulator_for(site: Site) -> Var:
        sites.append(site)
        accumulators.append(b.input(site.accumulator))
        return accumulators[-1]

    for k, eqn in enumerate(jaxpr.eqns):
        b.source = eqn.source
        ins = substitute(eqn.ins, env)
        prim = eqn.prim
        if isinstance(prim, StopGradient) and not wants.stops:
            env.update(zip(eqn.outs, ins, strict=True))
            continue
        if isinstance(prim, Abs) and ins[0].aval.inexact and ins[0].aval.dtype not in dtypes.COMPLEX:
            prim = _absolute_value(ins[0].aval)
            env.update(zip(eqn.outs, b(prim, *ins), strict=True))
            continue
        if isinstance(prim, BY_FACTORS):  # the derivative is taken by the matrix alone
            ins = tuple([b.one(STOP_GRADIENT, a) if n in factors_of(prim) else a for n, a in enumerate(ins)])
        form = _enterable(prim)
        if form is not None and (bodies := _bodies_with_sites(form, wants)):
            entered, extensions = _with_extended_bodies(form, bodies)
            accumulators_of: dict[int, list[Atom]] = {}
            for e in extensions:
                own = [accumulator_for(replace(site, path=(k, e.body, *site.path))) for site in e.sites]
                accumulators_of.setdefault(e.group, []).extend(own)
            outs: Sequence[Atom] = b(entered, *_extended_operands(form, ins, accumulators_of))
        else:
            outs = b.copy(eqn, ins)
            if rounds(eqn):
                outs = _tapped(b, eqn, ins, outs, k, wants, accumulator_for)
        env.update(zip(eqn.outs, outs, strict=True))
    # the operands of the program come first: accumulators were added behind them, in the order of the sites
    return WithAccumulators(b.build(substitute(jaxpr.outs, env), jaxpr.name), tuple(sites))


def _absolute_value(aval: Aval) -> CallWithRules:
    """Return the function |x| of a real x, with the derivative 1 at 0. That of `abs` is 0 there: an x that is 0 by
    cancellation would pass no error on, and |x + e| is |e|."""

    def with_slope() -> tuple[Builder, Atom, Atom]:
        b = Builder()
        x = b.input(aval)
        return b, b.one(ABS, x), emit_where(b, b.one(LT, x, Lit.zero(aval)), Lit.of(-1.0, aval), Lit.of(1.0, aval))

    b, size, slope = with_slope()
    body = dce(b.build([size], "abs"))
    b, size, slope = with_slope()
    forward = b.build([size, slope], "forward_abs")
    b = Builder()
    product = b.build([b.one(MUL, *b.inputs([aval, aval]))], "slope_of_abs")
    return CallWithRules(Function(body, 0, Rules(vjp=(Derivative((True,), forward, product, product),))))


# ------------------------------------------------------------------------------------------------------------- bodies


def applied_body(prim: Primitive) -> Jaxpr | None:
    """Return the program that an equation applies, if the errors of its equations are those of the equation. That of
    a solver is not: its result does not depend on the errors of its steps."""
    if not isinstance(prim, Applied) or isinstance(prim, LinearSolve | Root):
        return None
    return None if any([isinstance(p, HostCall) for p in all_prims(prim.applied)]) else prim.applied


def _enterable(prim: Primitive) -> HigherOrder | None:
    """Return the primitive, or a call of the program that it applies, if the errors of the equation are those of the
    equations in its bodies."""
    if (applied := applied_body(prim)) is not None:
        return Call(applied)
    if not isinstance(prim, HigherOrder) or isinstance(prim, Applied) or not prim.layout.transparent:
        return None
    return prim


def _bodies_with_sites(prim: HigherOrder, wants: Wants) -> dict[int, WithAccumulators]:
    """Return the bodies of an equation that have sites, by number, if they can take accumulators as constants."""
    layout, bodies = prim.layout, {}
    for k in layout.running:
        if layout.growable_group(k, Constant) is not None:
            inner = with_accumulators(layout.bodies[k].jaxpr, wants)
            if inner.jaxpr is not layout.bodies[k].jaxpr:
                bodies[k] = inner
    return bodies


# An operand of a body: its number, or, of an accumulator, the number of the body of its site, and that of the site. The
# bodies that share a group of constants take the accumulators of all of them.
_OperandKey: TypeAlias = int | tuple[int, int]


class _AddedAccumulators(NamedTuple):
    """The accumulators of the sites of a body: they extend a group of operands of the equation."""

    group: int
    body: int
    sites: tuple[Site, ...]


def _with_extended_bodies(
    prim: HigherOrder, inner: dict[int, WithAccumulators]
) -> tuple[Primitive, list[_AddedAccumulators]]:
    """Return the primitive over bodies with accumulators, which are constants; and the extensions of its operands, one
    for each body that has accumulators."""
    layout = prim.layout
    extensions: list[_AddedAccumulators] = []
    for k, inside in inner.items():
        group = layout.growable_group(k, Constant)
        assert group is not None, "a body with constants"
        extensions.append(_AddedAccumulators(group, k, inside.sites))
    sizes = [g.size for g in layout.operands]
    for e in extensions:
        sizes[e.group] += len(e.sites)
    bodies = []
    for k, body in enumerate(layout.bodies):
        new = inner[k].jaxpr if k in inner else body.jaxpr
        has: list[_OperandKey] = [*range(len(body.jaxpr.ins))]
        has += [(k, n) for n in range(len(new.ins) - len(has))]
        own = iter(range(len(body.jaxpr.ins)))
        wants: list[_OperandKey] = []
        for g in body.operands:
            wants += islice(own, layout.operands[g].size)
            wants += [(e.body, n) for e in extensions if e.group == g for n in range(len(e.sites))]
        types: dict[_OperandKey, Aval] = {
            (at, n): site.accumulator for at, inside in inner.items() for n, site in enumerate(inside.sites)
        }
        bodies.append(rebind_operands(new, wants, has=has, types=types))
    return prim.rebuild(tuple(bodies), tuple(sizes), tuple([g.size for g in layout.results])), extensions


def _extended_operands(prim: HigherOrder, ins: Atoms, accumulators_of: dict[int, list[Atom]]) -> Atoms:
    """Return the operands of an equation, with the accumulators of each group at its end."""
    layout = prim.layout
    groups = [
        [*[ins[k] for k in layout.operands_of(g)], *accumulators_of.get(g, ())] for g in range(len(layout.operands))
    ]
    return tuple([a for group in groups for a in group])


# --------------------------------------------------------------------------------------------------------------- taps


def _tapped(
    b: Builder, eqn: Eqn, ins: Atoms, outs: Atoms, k: int, wants: Wants, accumulator_for: Callable[[Site], Var]
) -> tuple[Atom, ...]:
    """Return the results of equation k, the floating ones behind a tap."""
    ys = tuple([y for y in outs if y.aval.inexact])
    tap = _tap(eqn, tuple([a.aval for a in ins]), tuple([a if isinstance(a, Lit) else None for a in ins]), wants)
    if tap is None:
        accumulator_for(Site((k,), measured=False))
        return outs
    prim, sums, estimated = tap
    accumulator = accumulator_for(Site((k,), sums, estimated=estimated))
    operands = [b.one(STOP_GRADIENT, a) if a.aval.inexact else a for a in ins if not isinstance(a, Lit)]
    tapped = iter(b(prim, *ys, *operands, accumulator))
    return tuple([next(tapped) if y.aval.inexact else y for y in outs])


def _tap(
    eqn: Eqn, ins: tuple[Aval, ...], literals: tuple[Lit | None, ...], wants: Wants
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
    sized = wants.sizes or summed or isinstance(eqn.prim, ReduceSum | Bilinear)

    def begun(accumulator: Aval) -> tuple[Builder, Atoms, Atoms]:
        """Return a builder of the function, the operands of the equation, and the results of the function."""
        b = Builder()
        ys = b.inputs(avals)
        given = iter(b.inputs(operand_avals))
        operands = tuple([lit or next(given) for lit in literals])
        zero = _first(b, b.input(accumulator))
        return b, operands, tuple([b.one(ADD, y, _broadcast(b, converted(b, zero, y.aval.dtype), y.aval)) for y in ys])

    probe, operands, same = begun(ACCUMULATOR)  # which sums there are decides the type of the accumulator
    found = local_errors(probe, eqn, operands, same)
    if found is None:
        return None
    wanted = {
        Sum.ERROR: True,
        Sum.ERROR_SQUARES: wants.squares or found.estimated,
        Sum.SIZE_SQUARES: sized,
        Sum.SUMMAND_SQUARES: summed,
    }
    sums = tuple([s for s in Sum if wanted[s]])
    accumulator = Aval((len(sums),), dtypes.float64)

    b, _, same = begun(accumulator)
    body = b.build(same, f"tap_{eqn.prim.name}")

    b, operands, same = begun(accumulator)
    found = local_errors(b, eqn, operands, same)
    assert found is not None, "as before"
    # any operand that is no literal is large where the sum cancels: the result is small beside both
    summand = [a for a in operands if not isinstance(a, Lit)][:1] if summed else []
    residuals = [*found.errors, *(same if sized else ()), *summand]
    forward = b.build([*same, *residuals], f"forward_tap_{eqn.prim.name}")

    types = [a.aval for a in residuals]
    push = _push_of_tap(avals, accumulator, types, f"push_tap_{eqn.prim.name}")
    pull = _pull_of_tap(avals, types, sums, wants, sized, summed, f"pull_tap_{eqn.prim.name}")
    moving = (*[True] * n, *[False] * len(operand_avals), True)
    rules = Rules(vjp=(Derivative(moving, forward, push, pull),))
    return CallWithRules(Function(body, 0, rules)), sums, found.estimated


def _push_of_tap(avals: Sequence[Aval], accumulator: Aval, residuals: Sequence[Aval], name: str) -> Jaxpr:
    """Return the program (tangents, tangent of the accumulator, residuals) -> tangents of a tap."""
    b = Builder()
    dots, dot = b.inputs(avals), b.input(accumulator)
    errors = b.inputs(residuals)[: len(avals)]
    first = _first(b, dot)
    pushed = [
        b.one(ADD, t, b.one(MUL, e, _broadcast(b, converted(b, first, t.aval.dtype), t.aval)))
        for t, e in zip(dots, errors, strict=True)
    ]
    return b.build(pushed, name)


def _pull_of_tap(
    avals: Sequence[Aval],
    residuals: Sequence[Aval],
    sums: tuple[Sum, ...],
    wants: Wants,
    sized: bool,
    summed: bool,
    name: str,
) -> Jaxpr:
    """Return the program (cotangents, residuals) -> (cotangents, sums of the accumulator) of a tap."""
    b, n = Builder(), len(avals)
    cts, kept = b.inputs(avals), b.inputs(residuals)
    # the last residual: the first operand that is no literal; or, of a sum of literals, which has none, the result
    summand = kept[-1] if summed else None
    rows = [
        _sums(b, ct, e, y, summand, sums, wants)
        for ct, e, y in zip(cts, kept[:n], kept[n : 2 * n] if sized else [None] * n, strict=True)
    ]
    total = rows[0]
    for row in rows[1:]:
        total = b.one(ADD, total, row)
    return b.build([*cts, total], name)


def _first(b: Builder, accumulator: Atom) -> Atom:
    """Return the first element of an accumulator."""
    return b.one(Reshape(()), b.one(Slice((0,), (1,), (1,)), accumulator))


def _broadcast(b: Builder, scalar: Atom, aval: Aval) -> Atom:
    return emit_broadcast(b, scalar, aval.shape, ()) if aval.shape else scalar


def _sum(b: Builder, x: Atom) -> Atom:
    """Return the sum of all elements, in float64, as an array of one."""
    total = b.one(ReduceSum(tuple(range(len(x.aval.shape)))), x) if x.aval.shape else x
    return b.one(Reshape((1,)), converted(b, total, dtypes.float64))


def _sums(
    b: Builder, ct: Atom, e: Atom, y: Atom | None, summand: Atom | None, wanted: tuple[Sum, ...], wants: Wants
) -> Atom:
    """Return the wanted sums for one result."""
    weighted = _product_or_zero(b, ct, e, wants.overflows)
    sums = [_sum(b, weighted)]
    if Sum.ERROR_SQUARES in wanted:
        sums.append(_sum(b, b.one(MUL, weighted, weighted)))
    for size in [x for x in (y, summand) if x is not None]:
        a, x = (ct, size) if wants.sizes else (_sampled(b, ct), _sampled(b, size))
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


# ------------------------------------------------------------------------------------------------------ the whole pass


@by_value
def weighted_errors(jaxpr: Jaxpr, wants: Wants) -> Jaxpr:
    """Return the program (operands, an accumulator, weights of the floating results) -> (results, their size, sums).

    The size is the Euclidean norm of the floating results, in float64. `sums` is f64[sites, 4], with a column for each
    `Sum`, relative to the size and in units of roundoff. The accumulator is f64[4], filled with -0.0. Weights have the
    types of the results.

    Law:    to first order, the sum of `error` over the sites, each times its roundoff, is the sum of weight times error
            over the results, divided by their size.
    Raises: NotDifferentiableError for an equation without a derivative.
    Cost:   one gradient, each equation once more in the wider dtype, and one reading of each result for each sum.
    """
    inner = with_accumulators(jaxpr, wants)
    n_in, n_out, n_sites = len(jaxpr.ins), len(jaxpr.outs), len(inner.sites)
    vjp_of_program = vjp(inner.jaxpr, (*[False] * n_in, *[True] * n_sites))
    b = Builder.like(jaxpr)
    accumulator = b.input(ACCUMULATOR)
    weights = b.inputs([a for a in jaxpr.out_avals if a.inexact])
    parts = {n: b.one(Slice((0,), (n,), (1,)), accumulator) for n in sorted({len(site.sums) for site in inner.sites})}
    forward = b.inline(vjp_of_program.forward, [*jaxpr.ins, *[parts[len(site.sums)] for site in inner.sites]])
    results = forward[:n_out]
    size = _norm(b, [y for y in results if y.aval.inexact])
    # weights relative to the size of the results: then no sum overflows or underflows in float32
    scale = emit_where(b, b.one(AND, b.one(IS_FINITE, size), b.one(GT, size, _zero())), size, Lit.of(1.0, _SCALAR))
    cts = [_divided(b, w, scale) for w in weights]
    found = b.inline(vjp_of_program.backward, [*cts, *forward[n_out:]]) if n_sites else ()
    rows = [_row_of_all(b, row, site) for row, site in zip(found, inner.sites, strict=True)]
    empty: Atom = Lit.zero(Aval((0, len(Sum)), dtypes.float64))
    sums = empty if not rows else rows[0] if len(rows) == 1 else b.one(Concatenate(0), *rows)
    return dce(b.build([*results, size, sums], f"rounding_errors_{jaxpr.name}"))


def _row_of_all(b: Builder, sums: Atom, site: Site) -> Atom:
    """Return the sums of a site in a row of all sums, with 0 for those that it does not have."""
    zero: Atom = Lit.zero(_ELEMENT)
    at = {s: n for n, s in enumerate(site.sums)}
    row = [b.one(Slice((at[s],), (at[s] + 1,), (1,)), sums) if s in at else zero for s in Sum]
    return b.one(Reshape((1, len(Sum))), b.one(Concatenate(0), *row))


def _zero() -> Lit:
    return Lit.zero(_SCALAR)


def _norm(b: Builder, values: Sequence[Atom]) -> Atom:
    """Return the Euclidean norm of floating values, in float64."""
    total: Atom = _zero()
    for x in values:
        wide = converted(b, b.one(ABS, x), dtypes.float64)
        square = b.one(MUL, wide, wide)
        axes = tuple(range(len(x.aval.shape)))
        total = b.one(ADD, total, b.one(ReduceSum(axes), square) if axes else square)
    return b.one(SQRT, total)


def _divided(b: Builder, weight: Atom, size: Atom) -> Atom:
    """Return a weight divided by the size of the results, in its dtype."""
    wide = dtypes.complex128 if weight.aval.dtype in dtypes.COMPLEX else dtypes.float64
    divisor = converted(b, size, wide)
    return converted(b, b.one(DIV, converted(b, weight, wide), _broadcast(b, divisor, weight.aval)), weight.aval.dtype)


def is_single(results: Sequence[Aval]) -> bool:
    """Return True for one real result."""
    return len(results) == 1 and results[0].size == 1 and results[0].dtype not in dtypes.COMPLEX


def weights_of(results: Sequence[Aval]) -> list[NDArray]:
    """Return the weights of floating results: 1 for one real number, random ones for more.

    The weights are independent, with mean 0 and variance 1, so the root mean square of the weighted sum of errors is
    their Euclidean norm. They are between 0.48 and 1.44 in size: none is small, and errors of a value that is returned
    twice do not cancel each other. A complex error has a complex weight, and the real part of the product counts.
    """
    if is_single(results):
        return [np.ones(results[0].shape, results[0].dtype)]
    generator = np.random.default_rng(0)

    def weight(a: Aval) -> NDArray:
        shape = (2, *a.shape)
        signs = generator.integers(0, 2, shape) * 2.0 - 1.0
        real, imag = signs * generator.uniform(0.5, 1.5, shape) * (12 / 13) ** 0.5
        return np.asarray(real + 1j * imag if a.dtype in dtypes.COMPLEX else real).astype(a.dtype)

    return [weight(a) for a in results]
