"""One adjoint pass that weights the rounding error of each equation and sums it.

A *site* is an equation that rounds, in a program or in one of its bodies. `with_accumulators` gives the program one
further operand for each site. Behind each such equation stands a *tap*: a function with a custom derivative that
returns the result unchanged, and whose pullback gives the accumulator of the site the sums of `SUMS` over the elements
of the result. Reverse mode passes cotangents through loops, branches and recomputations, and adds what several steps
give to one accumulator. So no code here knows a control-flow primitive.

An accumulator is -0.0 when the program runs, and a tap adds its first element to the result. The compiler does not know
this value, so it cannot fuse an operation with the next one, and each equation rounds as it does alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder, rebind_operands, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.layout import Constant
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.ir import Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Lit, Primitive, Var, all_prims
from fxad.primitives.control.call import Applied, Call
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, Rules
from fxad.primitives.elementwise.arithmetic import ADD, MUL, Add, Sub
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.powers import ABS
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import Bilinear
from fxad.primitives.host_call import HostCall
from fxad.primitives.implicit import LinearSolve, Root
from fxad.primitives.shape import ReduceSum, Reshape, emit_broadcast
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.ad.vjp import vjp_fused
from fxad.transforms.precision.local_errors import local_errors, rounds
from fxad.transforms.precision.retype import converted

# The position of an equation: the numbers of the equations and bodies around it, from the outside in, then its own.
Path: TypeAlias = tuple[int, ...]

# What a pullback sums over the elements of a result y with the adjoint a, the rounding error e and the operands x.
SUMS: Final = (
    "error",  # a e
    "error_squares",  # (a e)^2
    "size_squares",  # (a y)^2
    "operand_squares",  # (a x)^2 for the first operand of a sum or difference, which is large where it cancels
)
_SUMS_AVAL: Final = Aval((len(SUMS),), dtypes.float64)
_SCALAR: Final = Aval((), dtypes.float64)
_ELEMENT: Final = Aval((1,), dtypes.float64)


@final
@dataclass(frozen=True, slots=True)
class Site:
    """An equation that rounds. `measured`: its error is known, or at least its size if it is `estimated`."""

    path: Path
    measured: bool = True
    estimated: bool = False


@final
@dataclass(frozen=True, slots=True)
class WithAccumulators:
    """`jaxpr` takes the operands of the program, then one accumulator for each of the sites."""

    jaxpr: Jaxpr
    sites: tuple[Site, ...]


@by_value
@with_enough_stack
def with_accumulators(jaxpr: Jaxpr, sizes: bool = False) -> WithAccumulators:
    """Return the program with one further operand for each equation that rounds. `sizes`: an accumulator gets
    `size_squares` of every equation; else of sums, differences and contractions only, of which it tells cancellation.

    Law: the results are those of the program if the accumulators are -0.0.
    """
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    sites: list[Site] = []
    accumulators: list[Var] = []

    def accumulator_for(site: Site) -> Var:
        sites.append(site)
        accumulators.append(b.input(_SUMS_AVAL))
        return accumulators[-1]

    for k, eqn in enumerate(jaxpr.eqns):
        b.source = eqn.source
        ins = substitute(eqn.ins, env)
        prim = eqn.prim
        if isinstance(prim, HigherOrder) and (bodies := _bodies_with_sites(prim, sizes)):
            entered, further = _entered(prim, bodies)
            atoms: dict[int, list[Atom]] = {}
            for group, body, paths in further:
                own = [accumulator_for(replace(site, path=(k, body, *site.path))) for site in paths]
                atoms.setdefault(group, []).extend(own)
            outs: Sequence[Atom] = b(entered, *_with_further(prim, ins, atoms))
        else:
            outs = b.copy(eqn, ins)
            if rounds(eqn):
                outs = _tapped(b, eqn, ins, outs, k, sizes, accumulator_for)
        env.update(zip(eqn.outs, outs, strict=True))
    # the operands of the program come first: accumulators were added behind them, in the order of the sites
    return WithAccumulators(b.build(substitute(jaxpr.outs, env), jaxpr.name), tuple(sites))


# ------------------------------------------------------------------------------------------------------------- bodies


def applied_body(prim: Primitive) -> Jaxpr | None:
    """Return the program that an equation applies, if the errors of its equations are those of the equation. That of
    a solver is not: its result does not depend on the errors of its steps."""
    if not isinstance(prim, Applied) or isinstance(prim, LinearSolve | Root):
        return None
    return None if any([isinstance(p, HostCall) for p in all_prims(prim.applied)]) else prim.applied


def _bodies_with_sites(prim: HigherOrder, sizes: bool) -> dict[int, WithAccumulators]:
    """Return the bodies of an equation that have sites, by number, if they can take further constants."""
    if (applied := applied_body(prim)) is not None:
        inner = with_accumulators(applied, sizes)
        return {0: inner} if inner.sites else {}
    layout = prim.layout
    if not layout.transparent or isinstance(prim, Applied):
        return {}
    found = {}
    for k in layout.running:
        if layout.group_of(k, Constant) is not None and (inner := with_accumulators(layout.bodies[k].jaxpr, sizes)).sites:
            found[k] = inner
    return found


def _entered(
    prim: HigherOrder, inner: dict[int, WithAccumulators]
) -> tuple[Primitive, list[tuple[int, int, tuple[Site, ...]]]]:
    """Return the primitive over bodies with accumulators, which are further constants; and, for each body that has some,
    the group of operands that they extend, the number of the body, and its sites."""
    if applied_body(prim) is not None:
        return Call(inner[0].jaxpr), [(0, 0, inner[0].sites)]
    layout = prim.layout
    further: list[tuple[int, int, tuple[Site, ...]]] = []
    for k, body in inner.items():
        group = layout.group_of(k, Constant)
        assert group is not None, "a body with further constants"
        further.append((group, k, body.sites))
    sizes = [g.size for g in layout.operands]
    for group, _, sites in further:
        sizes[group] += len(sites)
    bodies = []
    for k, body in enumerate(layout.bodies):
        new = inner[k].jaxpr if k in inner else body.jaxpr
        has: list[object] = list(range(len(body.jaxpr.ins)))
        has += [(k, n) for n in range(len(new.ins) - len(has))]
        wants: list[object] = []
        first = 0
        for g in body.operands:
            wants += range(first, first + layout.operands[g].size)
            first += layout.operands[g].size
            wants += [(at, n) for group, at, sites in further if group == g for n in range(len(sites))]
        types = {key: _SUMS_AVAL for key in wants if key not in has}
        bodies.append(rebind_operands(new, wants, has=has, types=types))  # type: ignore[type-var, arg-type]
    return prim.rebuild(tuple(bodies), tuple(sizes), tuple([g.size for g in layout.results])), further


def _with_further(prim: HigherOrder, ins: Atoms, atoms: dict[int, list[Atom]]) -> Atoms:
    """Return the operands of an equation with further ones at the end of their groups."""
    if applied_body(prim) is not None:
        return (*ins, *atoms[0])
    layout = prim.layout
    groups = [[*[ins[k] for k in layout.operands_of(g)], *atoms.get(g, ())] for g in range(len(layout.operands))]
    return tuple([a for group in groups for a in group])


# --------------------------------------------------------------------------------------------------------------- taps


def _tapped(
    b: Builder, eqn: Eqn, ins: Atoms, outs: Atoms, k: int, sizes: bool, accumulator_for: Callable[[Site], Var]
) -> tuple[Atom, ...]:
    """Return the results of equation k, the floating ones behind a tap."""
    ys = tuple([y for y in outs if y.aval.inexact])
    sized = sizes or isinstance(eqn.prim, Add | Sub | ReduceSum | Bilinear)
    tap = _tap(eqn, tuple([a.aval for a in ins]), tuple([a if isinstance(a, Lit) else None for a in ins]), sized)
    if tap is None:
        accumulator_for(Site((k,), measured=False))
        return outs
    prim, estimated = tap
    accumulator = accumulator_for(Site((k,), estimated=estimated))
    operands = [b.one(STOP_GRADIENT, a) if a.aval.inexact else a for a in ins if not isinstance(a, Lit)]
    tapped = iter(b(prim, *ys, *operands, accumulator))
    return tuple([next(tapped) if y.aval.inexact else y for y in outs])


def _tap(
    eqn: Eqn, ins: tuple[Aval, ...], literals: tuple[Lit | None, ...], sized: bool
) -> tuple[CallWithRules, bool] | None:
    """Return the function (floating results, operands that are no literals, accumulator) -> results, and True if the
    errors are estimates. None if the error of the equation is unknown."""
    avals = [v.aval for v in eqn.outs if v.aval.inexact]
    n = len(avals)
    operand_avals = [a for a, lit in zip(ins, literals, strict=True) if lit is None]

    def begun() -> tuple[Builder, tuple[Var, ...], Atoms, tuple[Atom, ...]]:
        b = Builder()
        ys = b.inputs(avals)
        given = iter(b.inputs(operand_avals))
        operands = tuple([lit or next(given) for lit in literals])
        zero = b.one(Reshape(()), b.one(Slice((0,), (1,), (1,)), b.input(_SUMS_AVAL)))
        same = tuple([b.one(ADD, y, _filled(b, converted(b, zero, y.aval.dtype), y.aval)) for y in ys])
        return b, ys, operands, same

    b, _, _, same = begun()
    body = b.build(same, f"tap_{eqn.prim.name}")
    b, _, operands, same = begun()
    found = local_errors(b, eqn, operands, same)
    if found is None:
        return None
    errors = found.errors
    summands = [a for a in operands if not isinstance(a, Lit)][:1] if isinstance(eqn.prim, Add | Sub) else []
    residuals = [*errors, *(same if sized else ()), *summands]
    forward = b.build([*same, *residuals], f"forward_tap_{eqn.prim.name}")
    types = [a.aval for a in residuals]

    b = Builder()
    dots, dot = b.inputs(avals), b.input(_SUMS_AVAL)
    kept = b.inputs(types)
    first = b.one(Reshape(()), b.one(Slice((0,), (1,), (1,)), dot))
    pushed = [
        b.one(ADD, t, b.one(MUL, e, _filled(b, converted(b, first, t.aval.dtype), t.aval)))
        for t, e in zip(dots, kept[:n], strict=True)
    ]
    push = b.build(pushed, f"push_tap_{eqn.prim.name}")

    b = Builder()
    cts, kept = b.inputs(avals), b.inputs(types)
    rows = [
        _sums(b, ct, e, y, kept[2 * n] if summands else None)
        for ct, e, y in zip(cts, kept[:n], kept[n : 2 * n] if sized else [None] * n, strict=True)
    ]
    sums = rows[0]
    for row in rows[1:]:
        sums = b.one(ADD, sums, row)
    pull = b.build([*cts, sums], f"pull_tap_{eqn.prim.name}")
    moving = (*[True] * n, *[False] * len(operand_avals), True)
    rules = Rules(vjp=(Derivative(moving, forward, push, pull),))
    return CallWithRules(Function(body, 0, rules)), found.estimated


def _filled(b: Builder, scalar: Atom, aval: Aval) -> Atom:
    return emit_broadcast(b, scalar, aval.shape, ()) if aval.shape else scalar


def _sum(b: Builder, x: Atom) -> Atom:
    """Return the sum of all elements, in float64, as an array of one."""
    wide = converted(b, x, dtypes.float64)
    total = b.one(ReduceSum(tuple(range(len(x.aval.shape)))), wide) if x.aval.shape else wide
    return b.one(Reshape((1,)), total)


def _sums(b: Builder, ct: Atom, e: Atom, y: Atom | None, operand: Atom | None) -> Atom:
    """Return `SUMS` for one result."""
    weighted = _times(b, ct, e)
    sums = [_sum(b, weighted), _sum(b, b.one(MUL, weighted, weighted))]
    for size in (y, operand):
        if size is None:
            sums.append(Lit.zero(_ELEMENT))
        else:
            product = _times(b, b.one(ABS, ct), b.one(ABS, size) if size.aval.dtype in dtypes.COMPLEX else size)
            sums.append(_sum(b, b.one(MUL, product, product)))
    return b.one(Concatenate(0), *sums)


def _times(b: Builder, ct: Atom, x: Atom) -> Atom:
    """Return the product in float64, the real part of a complex one; 0 where the adjoint is 0, also if x is
    infinite."""
    is_zero = b.one(EQ, ct, Lit.zero(ct.aval))
    if x.aval.dtype in dtypes.COMPLEX:
        wide = b.one(REAL, b.one(MUL, converted(b, ct, dtypes.complex128), converted(b, x, dtypes.complex128)))
    else:
        wide = b.one(MUL, converted(b, ct, dtypes.float64), converted(b, x, dtypes.float64))
    return emit_where(b, is_zero, Lit.zero(wide.aval), wide)


# ------------------------------------------------------------------------------------------------------ the whole pass


@by_value
def weighted_errors(jaxpr: Jaxpr, sizes: bool = False) -> Jaxpr:
    """Return the program (operands, an accumulator, weights of the floating results) -> (results, sums).
    `sizes` is that of `with_accumulators`.

    `sums` is f64[sites, SUMS]. The accumulator is f64[SUMS], filled with -0.0. Weights have the types of the results.

    Law:    to first order, the sum of `error` over the sites is the sum of weight times error over the results.
    Raises: NotDifferentiableError for an equation without a derivative.
    Cost:   one gradient, each equation once more in the wider dtype, and one reading of each result.
    """
    inner = with_accumulators(jaxpr, sizes)
    n_in, n_sites = len(jaxpr.ins), len(inner.sites)
    b = Builder.like(jaxpr)
    accumulator = b.input(_SUMS_AVAL)
    weights = b.inputs([a for a in jaxpr.out_avals if a.inexact])
    if not n_sites:
        return b.build([*jaxpr.outs, Lit.zero(Aval((0, len(SUMS)), dtypes.float64))], jaxpr.name)
    both = vjp_fused(inner.jaxpr, (*[False] * n_in, *[True] * n_sites))
    results = b.inline(both, [*jaxpr.ins, *[accumulator] * n_sites, *weights])
    n_out = len(jaxpr.outs)
    rows = [b.one(Reshape((1, len(SUMS))), row) for row in results[n_out:]]
    sums = rows[0] if len(rows) == 1 else b.one(Concatenate(0), *rows)
    return dce(b.build([*results[:n_out], sums], f"rounding_errors_{jaxpr.name}"))
