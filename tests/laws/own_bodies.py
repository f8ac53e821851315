"""Primitives with bodies from outside fxad: a map over an axis, and a loop that stops early. Nothing in fxad knows
them: this file defines their six rules and their layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias, final

import numpy as np
from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder, rebind_operands
from fxad.core.interpreter import run
from fxad.core.layout import PREDICATE, Body, Carry, Constant, Group, InParallel, Layout, Sliced, UnknownTimes
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, ShapeError
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    HigherOrder,
    Hlo,
    HloValue,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    Lit,
    NDArray,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives import elementwise as ew
from fxad.primitives.check import has_check
from fxad.primitives.control.bodies import instantiate_linear_outs, instantiate_outs
from fxad.primitives.control.call import Call
from fxad.primitives.control.effects import guard_checks
from fxad.primitives.control.scan import Scan, scan_over_examples
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise import ADD, AND, LT, SELECT_N, STOP_GRADIENT
from fxad.primitives.linearity import is_linear
from fxad.primitives.reduce import ReduceOr
from fxad.primitives.shape import ReduceSum, broadcast_to_axis, emit_broadcast, move_axis
from fxad.testing.control_steps import RESULT, draw_fitting_operand, reordered_step
from fxad.testing.growth import INPUT, UNKNOWN, Fact, Growth
from fxad.testing.steps import GROWTH_STEPS, GrowthStep

Dims: TypeAlias = tuple[int | None, ...]
Batched: TypeAlias = tuple[tuple[Atom, ...], Dims]
Pushed: TypeAlias = tuple[tuple[Atom, ...], tuple[Tangent, ...]]

COUNT = Aval((), dtypes.int32)
BOOL = Aval((), dtypes.bool_)


def stacked(aval: Aval, size: int, axis: int) -> Aval:
    """Returns the type of a stack of slices along an axis."""
    return aval.with_shape((*aval.shape[:axis], size, *aval.shape[axis:]))


# ------------------------------------------------------------------------------------------------- a map over an axis


@final
@primitive
class MapOver(HigherOrder, Linear):
    """`body` applied to each of `size` slices independently.

    Type: (constants, arrays sliced along `axis`, arrays sliced along axis 0) -> (results stacked along `axis`, results
          stacked along axis 0). `n_in` and `n_out` count the operands and results along `axis`.
    """

    name: ClassVar[str] = "map_over"
    body: Jaxpr
    size: int
    axis: int
    n_consts: int
    n_in: int
    n_out: int

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    @property
    def layout(self) -> Layout:
        along, first = Sliced(self.axis), Sliced(0)
        rest, more = len(self.body.ins) - self.n_consts - self.n_in, len(self.body.outs) - self.n_out
        return Layout(
            (Group(Constant(), self.n_consts), Group(along, self.n_in), Group(first, rest)),
            (Group(along, self.n_out), Group(first, more)),
            (Body(self.body, (0, 1, 2), (0, 1), InParallel(self.size), stores=True),),
        )

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> MapOver:
        return MapOver(bodies[0], self.size, self.axis, self.n_consts, self.n_in, self.n_out)

    def rebuild(self, bodies: tuple[Jaxpr, ...], operands: tuple[int, ...], results: tuple[int, ...]) -> MapOver:
        return MapOver(bodies[0], self.size, self.axis, operands[0], operands[1], results[0])

    def _axes(self, n_first: int, n_along: int, n: int) -> list[int | None]:
        """The axes along which operands or results are sliced."""
        return [None if k < n_first else self.axis if k < n_first + n_along else 0 for k in range(n)]

    @property
    def in_axes(self) -> list[int | None]:
        return self._axes(self.n_consts, self.n_in, len(self.body.ins))

    @property
    def out_axes(self) -> list[int]:
        return [self.axis if k < self.n_out else 0 for k in range(len(self.body.outs))]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) != len(self.body.ins):
            raise ArgumentError(f"map_over: takes {len(self.body.ins)} operands, got {len(avals)}")
        for have, want, axis in zip(avals, self.body.in_avals, self.in_axes, strict=True):
            if have is not (want if axis is None else stacked(want, self.size, axis)):
                raise ShapeError(f"map_over: an operand is {have}, the body takes {want}")
        return tuple([stacked(a, self.size, axis) for a, axis in zip(self.body.out_avals, self.out_axes, strict=True)])

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        outs = [np.zeros(v.shape, v.dtype) for v in self.abstract_eval(*[Aval(a.shape, a.dtype) for a in args])]
        for k in range(self.size):
            ins = [a if axis is None else np.take(a, k, axis) for a, axis in zip(args, self.in_axes, strict=True)]
            for out, axis, x in zip(outs, self.out_axes, run(self.body, ins), strict=True):
                out[(slice(None),) * axis + (k,)] = x
        return tuple(outs)

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        b = Builder()
        moved = [
            v if axis is None else move_axis(b, v, axis, 0) for v, axis in zip(b.inputs(ins), self.in_axes, strict=True)
        ]
        results = b(Scan(self.body, self.size, False, 1, self.n_consts, 0), *moved)
        return hlo.call(b.build([move_axis(b, v, 0, to) for v, to in zip(results, self.out_axes, strict=True)]), args)

    def batch(self, ctx: BatchCtx, args: tuple[Atom, ...], dims: Dims) -> Batched:
        # a mapped axis is the last one, so that no slice is along it
        last = [a.aval.ndim - 1 for a in args]
        args = tuple([a if d is None else move_axis(ctx, a, d, n) for a, d, n in zip(args, dims, last, strict=True)])
        rows: Dims = tuple([None if d is None else v.aval.ndim for d, v in zip(dims, self.body.ins, strict=True)])
        out_dims = ctx.recur(self.body, rows)[1]
        wants = tuple([None if d is None else a.ndim for d, a in zip(out_dims, self.body.out_avals, strict=True)])
        body, _ = ctx.recur(self.body, rows, wants)
        return ctx(self.with_bodies((body,)), *args), tuple([None if d is None else d + 1 for d in wants])

    def _over(self, body: Jaxpr, takes: Sequence[int], groups: Sequence[Sequence[int]], n_out: int) -> MapOver:
        made = rebind_operands(body, [p for group in groups for p in group], has=takes)
        return MapOver(made, self.size, self.axis, len(groups[0]), len(groups[1]), n_out)

    def jvp(self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]) -> Pushed:
        layout, n, n_out = self.layout, len(primals), len(self.body.outs)
        moves = [p for p, t in enumerate(tangents) if isinstance(t, Lin)]
        nonzero = tuple([isinstance(t, Lin) for t in tangents])
        groups = [list(layout.operands_of(g)) for g in range(3)]
        dots = {n + p: tangents[p] for p in moves}
        of_dots = [[n + p for p in group if p in moves] for group in groups]
        outs: tuple[Atom, ...]
        if ctx.separate:
            split = ctx.recur(self.body, nonzero)
            primal, reached = ctx(self.with_bodies((split.primal,)), *primals), split.out_nonzero
            outs, residuals = primal[:n_out], dict(enumerate(primal[n_out:], 2 * n))
            of_dots[2] += list(residuals)
            linear = self._over(split.linear, (*dots, *residuals), of_dots, sum(reached[: self.n_out]))
            operands: dict[int, Lin | Zero | Atom] = {**dots, **residuals}
            moved = ctx.lin(linear, *[operands[p] for group in of_dots for p in group]) if any(reached) else ()
        else:
            fused, reached = ctx.recur_fused(self.body, nonzero)
            order = [k for along in (True, False) for half in (0, 1) for k in self._results(along, half, reached)]
            fused = fused.with_outs([fused.outs[k] for k in order])
            both = [a + b for a, b in zip(groups, of_dots, strict=True)]
            values = {**dict(enumerate(primals)), **{p: t.var for p, t in dots.items() if isinstance(t, Lin)}}
            prim = self._over(fused, (*range(n), *dots), both, self.n_out + sum(reached[: self.n_out]))
            results = dict(zip(order, ctx(prim, *[values[p] for group in both for p in group]), strict=True))
            outs = tuple([results[k] for k in range(n_out)])
            moved = tuple([Lin(results[k]) for k in range(n_out, n_out + sum(reached))])
        every = iter(moved)
        return outs, tuple([next(every) if r else Zero(v.aval) for r, v in zip(reached, outs, strict=True)])

    def _results(self, along: bool, half: int, reached: tuple[bool, ...]) -> list[int]:
        """Returns the positions of the results along `axis`, or of the others, in a fused body: their values or their
        tangents."""
        n = len(reached)
        places = range(self.n_out) if along else range(self.n_out, n)
        return [k if half == 0 else n + sum(reached[:k]) for k in places if half == 0 or reached[k]]

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return is_linear(self.body, flags)

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        mask = tuple([isinstance(a, Hole) for a in args])
        live = [not isinstance(ct, Zero) for ct in cts]
        n, layout = len(args), self.layout
        adjoint = ctx.recur(self.body.with_outs([a for a, m in zip(self.body.outs, live, strict=True) if m]), mask)
        values: dict[int, Atom] = {p: a for p, a in enumerate(args) if not isinstance(a, Hole)}
        live_cts = {n + q: ct for q, ct in enumerate(cts) if not isinstance(ct, Zero)}
        groups = [[p for p in layout.operands_of(g) if p in values] for g in range(3)]
        for q in live_cts:
            groups[1 if q - n < self.n_out else 2].append(q)
        holes = [p for p, m in enumerate(mask) if m]
        along = [p for p in holes if p in layout.operands_of(1)]
        order = [*along, *[p for p in holes if p not in along]]
        back = adjoint.with_outs([adjoint.outs[holes.index(p)] for p in order])
        prim = self._over(back, (*live_cts, *values), groups, len(along))
        every = {**values, **live_cts}
        bars = dict(zip(order, ctx(prim, *[every[p] for group in groups for p in group]), strict=True))
        # the contributions of the slices to the cotangent of a constant are summed
        return tuple([
            None if p not in bars else ctx.one(ReduceSum((0,)), bars[p]) if p < self.n_consts else bars[p]
            for p in range(n)
        ])  # fmt: skip


# ------------------------------------------------------------------------------------------- a loop that stops early


@final
@primitive
class Until(HigherOrder):
    """`body` applied to the carry until it returns False, at most `most` times.

    Type: (constants, carry) -> (carry, stacked rows); body: (constants, carry) -> (whether to go on, carry, rows).
    """

    name: ClassVar[str] = "until"
    body: Jaxpr
    most: int
    n_consts: int

    @property
    def n_carry(self) -> int:
        return len(self.body.ins) - self.n_consts

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    @property
    def layout(self) -> Layout:
        carry, rows = Group(Carry(), self.n_carry), Group(Sliced(), len(self.body.outs) - 1 - self.n_carry)
        body = Body(self.body, (0, 1), (PREDICATE, 0, 1), UnknownTimes(self.most), stores=True)
        return Layout((Group(Constant(), self.n_consts), carry), (carry, rows), (body,))

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Until:
        return Until(bodies[0], self.most, self.n_consts)

    def rebuild(self, bodies: tuple[Jaxpr, ...], operands: tuple[int, ...], results: tuple[int, ...]) -> Until:
        return Until(bodies[0], self.most, operands[0])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if avals != self.body.in_avals:
            raise ArgumentError(f"until: takes {self.body.in_avals}, got {avals}")
        go, *outs = self.body.out_avals
        if go is not BOOL or tuple(outs[: self.n_carry]) != avals[self.n_consts :]:
            raise ShapeError("until: the body gives a bool, then the carry")
        return (*outs[: self.n_carry], *[stacked(a, self.most, 0) for a in outs[self.n_carry :]])

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        consts, carry, n = args[: self.n_consts], args[self.n_consts :], self.n_carry
        rows = [np.zeros((self.most, *a.shape), a.dtype) for a in self.body.out_avals[1 + n :]]
        for k in range(self.most):
            go, *outs = run(self.body, (*consts, *carry))
            carry = tuple(outs[:n])
            for row, x in zip(rows, outs[n:], strict=True):
                row[k] = x
            if not go:
                break
        return *carry, *rows

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return hlo.call(_as_while(self.body, self.most, self.n_consts), args)

    def batch(self, ctx: BatchCtx, args: tuple[Atom, ...], dims: Dims) -> Batched:
        n, size = self.n_consts, ctx.size
        guard = guard_checks(self.body) if has_check(self.body) else None
        if self.effects or (guard is None and has_check(self.body)):  # an example that has stopped must have no effects
            return scan_over_examples(ctx, self, args, dims)
        consts = [a if d is None else move_axis(ctx, a, d, 0) for a, d in zip(args[:n], dims, strict=False)]
        of_consts: Dims = tuple([None if d is None else 0 for d in dims[:n]])
        carry = [broadcast_to_axis(ctx, a, d, size, 0) for a, d in zip(args[n:], dims[n:], strict=True)]
        every = (*of_consts, *[0] * self.n_carry)
        wants = (0,) * len(self.body.outs)
        stepped = ctx.recur(self.body, every, wants) if guard is None else ctx.recur(guard, (0, *every), wants)
        b = Builder()
        taken = b.inputs([a.aval for a in consts])
        live = b.input(Aval((size,), dtypes.bool_))
        state = b.inputs([a.aval for a in carry])
        # an example that has stopped takes steps whose results are discarded; their derivative is discarded too
        still = [_where(b, live, s, b.one(STOP_GRADIENT, s)) if s.aval.inexact else s for s in state]
        go, *outs = b.inline(stepped[0], (*[live] * (guard is not None), *taken, *still))
        goes = b.one(AND, live, go)
        new = [_where(b, live, a, s) for a, s in zip(outs, state, strict=False)]
        rows = [_where(b, live, a, Zero(a.aval).instantiate()) for a in outs[len(state) :]]
        body = b.build((b.one(ReduceOr((0,)), goes), goes, *new, *rows), self.body.name)
        first = Lit.of(True, Aval((size,), dtypes.bool_))
        results = ctx(Until(body, self.most, n), *consts, first, *carry)[1:]
        return results, (*[0] * self.n_carry, *[1] * len(rows))

    def jvp(self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]) -> Pushed:
        n, m = self.n_consts, self.n_carry
        if self.most == 0:  # the carry passes through, and the rows are empty
            outs: tuple[Atom, ...] = ctx(self, *primals)
            return outs, (*tangents[n:], *[Zero(v.aval) for v in outs[m:]])
        marks = tuple([isinstance(t, Lin) for t in tangents])
        while True:
            out_nonzero = (
                ctx.recur(self.body, marks).out_nonzero if ctx.separate else ctx.recur_fused(self.body, marks)[1]
            )
            wider = (*marks[:n], *[a or b for a, b in zip(marks[n:], out_nonzero[1:], strict=False)])
            if wider == marks:
                break
            marks = wider
        reached = (False, *marks[n:], *out_nonzero[1 + m :])
        if not any(reached):
            outs = ctx(self, *primals)
            return outs, tuple([Zero(v.aval) for v in outs])
        moves = [p for p, mark in enumerate(marks) if mark]
        dots = {len(primals) + p: tangents[p] for p in moves}
        n_out = len(self.body.outs)
        of_dots = [[p for p in dots if p - len(primals) < n], [p for p in dots if p - len(primals) >= n]]
        if ctx.separate:
            split = ctx.recur(self.body, marks)
            b = Builder()
            consts, count, carry = b.inputs(self.body.in_avals[:n]), b.input(COUNT), b.inputs(self.body.in_avals[n:])
            go, *rest = b.inline(split.primal, (*consts, *carry))
            counted = b.build((go, b.one(ADD, count, Lit.of(1, COUNT)), *rest), self.body.name)
            steps, *results = ctx(Until(counted, self.most, n), *primals[:n], Lit.of(0, COUNT), *primals[n:])
            outs, residuals = tuple(results[: n_out - 1]), results[n_out - 1 :]
            linear = split.linear.with_outs(instantiate_linear_outs(split, reached).outs)
            scan = Scan(linear, self.most, False, 1, len(of_dots[0]), len(of_dots[1]), True)
            moved = ctx.lin(scan, steps, *[dots[p] for group in of_dots for p in group], *residuals)
        else:
            fused, avals = ctx.recur_fused(self.body, marks)[0], self.body.out_avals
            more = instantiate_outs(fused.outs[n_out:], out_nonzero, avals, reached)
            at = sum(reached[: 1 + m])
            body = fused.with_outs((*fused.outs[: 1 + m], *more[:at], *fused.outs[1 + m : n_out], *more[at:]))
            groups = [[*range(n), *of_dots[0]], [*range(n, n + m), *of_dots[1]]]
            values: dict[int, Atom] = dict(enumerate(primals))
            values.update({p: t.var if isinstance(t, Lin) else t.instantiate() for p, t in dots.items()})
            body = rebind_operands(body, (*groups[0], *groups[1]), has=(*range(n + m), *dots))
            both = ctx(Until(body, self.most, len(groups[0])), *[values[p] for group in groups for p in group])
            outs = (*both[:m], *both[m + at : at + n_out - 1])
            moved = tuple([Lin(v) for v in (*both[m : m + at], *both[at + n_out - 1 :])])
        every = iter(moved)
        return outs, tuple([next(every) if r else Zero(v.aval) for r, v in zip(reached[1:], outs, strict=True)])


def _where(b: Builder, live: Atom, new: Atom, old: Atom) -> Atom:
    return b.one(SELECT_N, emit_broadcast(b, live, new.aval.shape, (0,)), old, new)


@by_value
def _as_while(body: Jaxpr, most: int, n_consts: int) -> Jaxpr:
    """Returns the loop as a `While`, whose predicate runs before each step."""
    b = Builder()
    consts = b.inputs(body.in_avals[:n_consts])
    b.input(BOOL)
    step = b.build(b.inline(body, (*consts, *b.inputs(body.in_avals[n_consts:]))), body.name)
    b = Builder()
    go = b.input(BOOL)
    b.inputs(body.in_avals[n_consts:])
    more = b.build((go,), "more")
    b = Builder()
    ins = b.inputs(body.in_avals)
    loop = While(more, step, 0, n_consts, most)
    return b.build(b(loop, *ins[:n_consts], Lit.of(True, BOOL), *ins[n_consts:])[1:], body.name)


# ------------------------------------------------------------------------------------------------- programs with them


def map_over(g: Growth, _: Atom) -> None:
    """Adds a map of a body. Its operands are drawn: constants, and slices along two axes."""
    if not g.bodies:
        return
    body = g.bodies[g.draw(st.integers(0, len(g.bodies) - 1))]
    size, axis = g.draw(st.sampled_from([2, 1, 3, 0])), g.draw(st.sampled_from([0, 1]))
    roles = [g.draw(st.sampled_from([0, 1, 2] if v.aval.ndim >= axis else [0, 2])) for v in body.ins]
    order = [k for role in range(3) for k, r in enumerate(roles) if r == role]
    b = Builder()
    args = dict(zip(order, b.inputs([body.ins[k].aval for k in order]), strict=True))
    results = b(Call(body), *[args[k] for k in range(len(args))])
    along = [v for v in results if v.aval.ndim >= axis and g.draw(st.booleans())]
    handed = list(args.values())[:1] if g.draw(st.booleans()) else []
    step = b.build([*along, *[v for v in results if v not in along], *handed], "slice")
    prim = MapOver(step, size, axis, roles.count(0), roles.count(1), len(along))
    operands = [
        draw_fitting_operand(g, v.aval if at is None else stacked(v.aval, size, at))
        for v, at in zip(step.ins, prim.in_axes, strict=True)
    ]
    for v in g.builder(prim, *operands):
        g.add(v, RESULT)


def until(g: Growth, _: Atom) -> None:
    """Adds a loop over a body with some operands as carry, and rows. It counts up to a number that is an operand."""
    if not g.bodies:
        return
    body = g.bodies[g.draw(st.integers(0, len(g.bodies) - 1))]
    roles = [g.draw(st.booleans()) for _ in body.ins]
    order = [k for role in (False, True) for k, r in enumerate(roles) if r is role]
    n_consts, n_carry = roles.count(False), roles.count(True)
    step = reordered_step(g, body, order, n_consts, n_carry)
    b = Builder()
    limit, *consts = b.inputs((COUNT, *step.in_avals[:n_consts]))
    count, *carry = b.inputs((COUNT, *step.in_avals[n_consts:]))
    counted = b.one(ADD, count, Lit.of(1, COUNT))
    made = b.build((b.one(LT, counted, limit), counted, *b.inline(step, (*consts, *carry))), "until")
    operands = [draw_fitting_operand(g, a) for a in step.in_avals]
    limit_now = g.emit(UNKNOWN, ew.CLAMP, Lit.of(0, COUNT), g.like(COUNT), Lit.of(3, COUNT))
    prim = Until(made, g.draw(st.sampled_from([2, 3, 1, 0])), 1 + n_consts)
    outs = g.builder(prim, limit_now, *operands[:n_consts], Lit.of(0, COUNT), *operands[n_consts:])
    for k, v in enumerate(outs):
        g.add(v, Fact(INPUT.low, INPUT.high, not g.smooth) if k <= n_carry else RESULT)


# the two are drawn as often as all other steps together
OWN: tuple[GrowthStep, ...] = (*GROWTH_STEPS, *[map_over, until] * (len(GROWTH_STEPS) // 2))
