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
from itertools import islice
from typing import NamedTuple, TypeAlias, final

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
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, StopGradient
from fxad.primitives.elementwise.logic import AND, GT, IS_FINITE, LT
from fxad.primitives.elementwise.powers import ABS, SQRT, Abs
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.host_call import HostCall
from fxad.primitives.implicit import LinearSolve, Root
from fxad.primitives.shape import ReduceSum, Reshape
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.ad.vjp import vjp
from fxad.transforms.precision.local_errors import BY_FACTORS, factors_of, rounds
from fxad.transforms.precision.retype import converted
from fxad.transforms.precision.taps import (
    ACCUMULATOR,
    ELEMENT,
    SCALAR,
    ZERO,
    Sum,
    SumRequest,
    broadcast,
    tap_of,
)

# The position of an equation: the numbers of the equations and bodies around it, from the outside in, then its own.
Path: TypeAlias = tuple[int, ...]


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


@by_value
@with_enough_stack
def with_accumulators(jaxpr: Jaxpr, request: SumRequest) -> WithAccumulators:
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
        if isinstance(prim, StopGradient) and not request.stops:
            env.update(zip(eqn.outs, ins, strict=True))
            continue
        if isinstance(prim, Abs) and ins[0].aval.inexact and ins[0].aval.dtype not in dtypes.COMPLEX:
            prim = _absolute_value(ins[0].aval)
            env.update(zip(eqn.outs, b(prim, *ins), strict=True))
            continue
        if isinstance(prim, BY_FACTORS):  # the derivative is taken by the matrix alone
            ins = tuple([b.one(STOP_GRADIENT, a) if n in factors_of(prim) else a for n, a in enumerate(ins)])
        form = _enterable(prim)
        if form is not None and (bodies := _bodies_with_sites(form, request)):
            entered, extensions = _with_extended_bodies(form, bodies)
            accumulators_of: dict[int, list[Atom]] = {}
            for e in extensions:
                accumulators_of_body = [
                    accumulator_for(replace(site, path=(k, e.body, *site.path))) for site in e.sites
                ]
                accumulators_of.setdefault(e.group, []).extend(accumulators_of_body)
            outs: Sequence[Atom] = b(entered, *_extended_operands(form, ins, accumulators_of))
        else:
            outs = b.copy(eqn, ins)
            if rounds(eqn):
                outs = _tapped(b, eqn, ins, outs, k, request, accumulator_for)
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


def _bodies_with_sites(prim: HigherOrder, request: SumRequest) -> dict[int, WithAccumulators]:
    """Return the bodies of an equation that have sites, by number, if they can take accumulators as constants."""
    layout, bodies = prim.layout, {}
    for k in layout.running:
        if layout.growable_group(k, Constant) is not None:
            inner = with_accumulators(layout.bodies[k].jaxpr, request)
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
    for k, accumulated in inner.items():
        group = layout.growable_group(k, Constant)
        assert group is not None, "a body with constants"
        extensions.append(_AddedAccumulators(group, k, accumulated.sites))
    sizes = [g.size for g in layout.operands]
    for e in extensions:
        sizes[e.group] += len(e.sites)
    bodies = []
    for k, body in enumerate(layout.bodies):
        extended = inner[k].jaxpr if k in inner else body.jaxpr
        keys_of_body: list[_OperandKey] = [*range(len(body.jaxpr.ins))]
        keys_of_body += [(k, n) for n in range(len(extended.ins) - len(keys_of_body))]
        operand_numbers = iter(range(len(body.jaxpr.ins)))
        operand_keys: list[_OperandKey] = []
        for g in body.operands:
            operand_keys += islice(operand_numbers, layout.operands[g].size)
            operand_keys += [(e.body, n) for e in extensions if e.group == g for n in range(len(e.sites))]
        types: dict[_OperandKey, Aval] = {
            (body_number, n): site.accumulator
            for body_number, accumulated in inner.items()
            for n, site in enumerate(accumulated.sites)
        }
        bodies.append(rebind_operands(extended, operand_keys, has=keys_of_body, types=types))
    return prim.rebuild(tuple(bodies), tuple(sizes), tuple([g.size for g in layout.results])), extensions


def _extended_operands(prim: HigherOrder, ins: Atoms, accumulators_of: dict[int, list[Atom]]) -> Atoms:
    """Return the operands of an equation, with the accumulators of each group at its end."""
    layout = prim.layout
    groups = [
        [*[ins[k] for k in layout.operands_of(g)], *accumulators_of.get(g, ())] for g in range(len(layout.operands))
    ]
    return tuple([a for group in groups for a in group])


def _tapped(
    b: Builder, eqn: Eqn, ins: Atoms, outs: Atoms, k: int, request: SumRequest, accumulator_for: Callable[[Site], Var]
) -> tuple[Atom, ...]:
    """Return the results of equation k, the floating ones behind a tap."""
    ys = tuple([y for y in outs if y.aval.inexact])
    tap = tap_of(eqn, tuple([a.aval for a in ins]), tuple([a if isinstance(a, Lit) else None for a in ins]), request)
    if tap is None:
        accumulator_for(Site((k,), measured=False))
        return outs
    prim, sums, estimated = tap
    accumulator = accumulator_for(Site((k,), sums, estimated=estimated))
    operands = [b.one(STOP_GRADIENT, a) if a.aval.inexact else a for a in ins if not isinstance(a, Lit)]
    tapped = iter(b(prim, *ys, *operands, accumulator))
    return tuple([next(tapped) if y.aval.inexact else y for y in outs])


@by_value
def weighted_errors(jaxpr: Jaxpr, request: SumRequest) -> Jaxpr:
    """Return the program (operands, an accumulator, weights of the floating results) -> (results, their size, sums).

    The size is the Euclidean norm of the floating results, in float64. `sums` is f64[sites, 4], with a column for each
    `Sum`, relative to the size and in units of roundoff. The accumulator is f64[4], filled with -0.0. Weights have the
    types of the results.

    Law:    to first order, the sum of `error` over the sites, each times its roundoff, is the sum of weight times error
            over the results, divided by their size.
    Raises: NotDifferentiableError for an equation without a derivative.
    Cost:   one gradient, each equation once more in the wider dtype, and one reading of each result for each sum.
    """
    inner = with_accumulators(jaxpr, request)
    n_in, n_out, n_sites = len(jaxpr.ins), len(jaxpr.outs), len(inner.sites)
    vjp_of_program = vjp(inner.jaxpr, (*[False] * n_in, *[True] * n_sites))
    b = Builder.like(jaxpr)
    accumulator = b.input(ACCUMULATOR)
    weights = b.inputs([a for a in jaxpr.out_avals if a.inexact])
    accumulator_of = {
        n: b.one(Slice((0,), (n,), (1,)), accumulator) for n in sorted({len(site.sums) for site in inner.sites})
    }
    forward = b.inline(vjp_of_program.forward, [*jaxpr.ins, *[accumulator_of[len(site.sums)] for site in inner.sites]])
    results = forward[:n_out]
    size = _norm(b, [y for y in results if y.aval.inexact])
    # weights relative to the size of the results: then no sum overflows or underflows in float32
    scale = emit_where(b, b.one(AND, b.one(IS_FINITE, size), b.one(GT, size, ZERO)), size, Lit.of(1.0, SCALAR))
    cts = [_divided(b, w, scale) for w in weights]
    gradients = b.inline(vjp_of_program.backward, [*cts, *forward[n_out:]]) if n_sites else ()
    rows = [_row_of_all(b, row, site) for row, site in zip(gradients, inner.sites, strict=True)]
    empty: Atom = Lit.zero(Aval((0, len(Sum)), dtypes.float64))
    sums = empty if not rows else rows[0] if len(rows) == 1 else b.one(Concatenate(0), *rows)
    return dce(b.build([*results, size, sums], f"rounding_errors_{jaxpr.name}"))


def _row_of_all(b: Builder, sums: Atom, site: Site) -> Atom:
    """Return the sums of a site in a row of all sums, with 0 for those that it does not have."""
    zero: Atom = Lit.zero(ELEMENT)
    position = {s: n for n, s in enumerate(site.sums)}
    row = [b.one(Slice((position[s],), (position[s] + 1,), (1,)), sums) if s in position else zero for s in Sum]
    return b.one(Reshape((1, len(Sum))), b.one(Concatenate(0), *row))


def _norm(b: Builder, values: Sequence[Atom]) -> Atom:
    """Return the Euclidean norm of floating values, in float64."""
    total: Atom = ZERO
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
    return converted(b, b.one(DIV, converted(b, weight, wide), broadcast(b, divisor, weight.aval)), weight.aval.dtype)


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
