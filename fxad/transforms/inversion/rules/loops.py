"""A `scan` run backwards: the steps in the other order, each from the carry it left to the carry it found.

What every step hands on unchanged is a constant. What changes from step to step without what is to be reconstructed
(counters, keys) is run backwards too, from its last value, or, where it has no inverse, computed first and stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.liveness import remove_unused
from fxad.ir import Atom, Aval, Eqn, Hole, Jaxpr, Var, Zero
from fxad.primitives.control.bodies import either, select_by_mask
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.scan_parts import Marks, Steps, passing
from fxad.primitives.elementwise import ADD
from fxad.transforms.inversion.rules.contract import Args, BodyCtx, Determined, Refused, atoms, known


@final
@dataclass(frozen=True, slots=True)
class Retreat:
    """How a loop is run backwards: what each step starts from, and which operands of the body it gives (`solved`).

    A step knows the constants, slices and rows of stacked results marked in `consts`, `xs` and `rows`, and of the
    carries it left those in `last`. Of the carries it found it knows those that never change (`still`), and those that
    do so by themselves (`moving`) where they are `stored`; where they are not, they are in `last`.
    """

    prim: Scan
    consts: Marks
    xs: Marks
    rows: Marks
    last: Marks
    still: Marks
    moving: Marks
    stored: bool
    solved: Marks

    @property
    def ins(self) -> Marks:
        """Which operands of the body a step knows from the start."""
        found = [s or (m and self.stored) for s, m in zip(self.still, self.moving, strict=True)]
        return (*self.consts, *found, *self.xs)

    @property
    def carry(self) -> Marks:
        """The carries that the loop hands on, backwards."""
        return self.prim.steps.split(self.solved)[1]

    # ---------------------------------------------------------------------------------------- operands of the loop

    def constants(self, args: Args) -> list[Atom]:
        """What is the same for all steps."""
        consts, first, _ = self.prim.steps.split(self.prim.counted(args)[1])
        return [*atoms(consts), *atoms(select_by_mask(first, self.still))]

    def state(self, ctx: BodyCtx, args: Args, outs: Args) -> list[Atom]:
        """The last values of the carries that the loop hands on; zero for what a step does not read."""
        moved = forward_only(ctx, self.prim, args, self.moving, False) if any(self.moving) and not self.stored else []
        given = iter(moved)
        found: list[Atom] = []
        for a, here, moves, wanted in zip(outs, self.last, self.moving, self.carry, strict=False):
            value = next(given) if moves and not self.stored else a
            if wanted:
                found.append(value if here and not isinstance(value, Hole) else Zero(a.aval).instantiate())
        return found

    def slices(self, ctx: BodyCtx, args: Args, outs: Args) -> list[Atom]:
        """The arrays that the loop runs over."""
        xs = self.prim.steps.split(self.prim.counted(args)[1])[2]
        stacks = forward_only(ctx, self.prim, args, self.moving, True) if any(self.moving) and self.stored else []
        return [*atoms(xs), *stacks, *atoms(outs[self.prim.n_carry :])]

    def inputs(self, b: Builder, more_consts: Sequence[Aval], more_carry: Sequence[Aval]) -> Inputs:
        """Add the operands of a step to a builder, in the order of a loop's body, up to its slices."""
        body, steps = self.prim.body, self.prim.steps
        of_consts, of_carry, of_xs = steps.split(body.in_avals)
        consts = b.inputs(select_by_mask(of_consts, self.consts))
        still = iter(b.inputs(select_by_mask(of_carry, self.still)))
        further = b.inputs(more_consts)
        left = iter(b.inputs(select_by_mask(of_carry, self.carry)))
        extra = b.inputs(more_carry)
        xs = b.inputs(select_by_mask(of_xs, self.xs))
        stored = iter(b.inputs(select_by_mask(of_carry, self.moving)) if self.stored else ())
        rows = b.inputs(select_by_mask(body.out_avals[self.prim.n_carry :], self.rows))
        found = [
            next(still) if s else next(stored)
            for s, m in zip(self.still, self.moving, strict=True)
            if s or (m and self.stored)
        ]
        there = [next(left) if c else None for c in self.carry]
        last = [v for v, m in zip(there, self.last, strict=True) if m and v]
        return Inputs((*last, *rows, *consts, *found, *xs), further, extra, len(consts) + sum(self.still))

    # ----------------------------------------------------------------------------------------------------- the loop

    def emit(self, ctx: BodyCtx, program: Jaxpr, args: Args, outs: Args) -> tuple[Var, ...]:
        """Emit the loop that does `program` in each step; gives first the carries solved, then the log-determinant if
        it is measured, then the slices solved."""
        state = self.state(ctx, args, outs)
        b = Builder()
        step = self.inputs(b, (), (program.out_avals[-1],) if ctx.measured else ())
        results = b.inline(program, step.operands)
        given = iter(results)
        _, new, rest = self.prim.steps.split([next(given) if s else None for s in self.solved])
        total: list[Atom] = []
        if ctx.measured:
            total.append(b.one(ADD, step.extra[0], results[-1]))
            state.append(Zero(results[-1].aval).instantiate())
        made = b.build([*[a for a in new if a], *total, *[a for a in rest if a]], program.name)
        loop = self.prim.over(Steps(made, step.n_consts, len(state)), backward=True)
        count, _ = self.prim.counted(args)
        return ctx(loop, *atoms(count), *self.constants(args), *state, *self.slices(ctx, args, outs))


@final
@dataclass(frozen=True, slots=True)
class Inputs:
    """Operands of a step that runs backwards: those of the program it does (known results, then known operands), and
    what was asked for beside."""

    operands: tuple[Atom, ...]
    further: tuple[Var, ...]
    extra: tuple[Var, ...]
    n_consts: int


def retreat(ctx: BodyCtx, prim: Scan, args: Args, outs: Args) -> tuple[Retreat, Jaxpr] | Refused:
    """How a loop is run backwards, and the program of a step."""
    count, operands = prim.counted(args)
    consts, first, xs = prim.steps.split(operands)
    if not all(known(count)) or (count and not all(known(xs))):
        return Refused("how many of its steps were taken is not known from its results")
    sure = forward_carries(prim, operands)
    still = tuple([s and p for s, p in zip(sure, passing(prim.steps), strict=True)])
    moving = tuple([s and not p for s, p in zip(sure, still, strict=True)])
    last = tuple([k and not s for k, s in zip(known(outs), sure, strict=False)])
    way = Retreat(prim, known(consts), known(xs), known(outs[prim.n_carry :]), last, still, moving, False, ())
    why: Refused | None = None
    while True:
        way, found = _stepping(ctx, way, last)
        why = why or found.refused  # with fewer carries known, what follows from them is refused for want of them
        _, solved, slices = prim.steps.split(found.solved)
        fewer = tuple([k and s for k, s in zip(last, solved, strict=True)])
        if fewer == last:
            break
        last = fewer
    # a counter, whose start is known, is solved with what was asked for
    if not any([s and not k for s, k in zip((*solved, *slices), known((*first, *xs)), strict=True)]):
        return why or Refused("its results are not known")
    return _chosen(way, found)


def _stepping(ctx: BodyCtx, way: Retreat, last: Marks) -> tuple[Retreat, Determined]:
    """One step backwards from the carries in `last`: counters run backwards too where they can, or else are stored."""
    if any(way.moving):
        running = replace(way, last=either(last, way.moving), stored=False)
        found = ctx.recur(way.prim.body, running.ins, (*running.last, *way.rows))
        if all(select_by_mask(way.prim.steps.split(found.solved)[1], way.moving)):
            return running, found
    way = replace(way, last=last, stored=any(way.moving))
    return way, ctx.recur(way.prim.body, way.ins, (*last, *way.rows))


def _chosen(way: Retreat, found: Determined) -> tuple[Retreat, Jaxpr]:
    """Without the constants that a step would give: every step gives them, and it is the loop that wants one."""
    consts, carry, xs = way.prim.steps.split(found.solved)
    n, program = sum(consts), found.program
    slim = Jaxpr(program.ins, program.eqns, program.outs[n:], program.name)
    return replace(way, solved=(*[False] * len(consts), *carry, *xs)), slim


def forward_carries(prim: Scan, operands: Args) -> Marks:
    """Which carries are known in every step without what is to be reconstructed: counters, keys, what is handed on."""
    body = prim.body
    consts, first, xs = prim.steps.split(operands)
    marks = known(first)
    while True:
        given = (*known(consts), *marks, *known(xs))
        reached: set[Atom] = {v for v, k in zip(body.ins, given, strict=True) if not k}
        for eqn in body.eqns:
            if not reached.isdisjoint(eqn.ins):
                reached.update(eqn.outs)
        fewer = tuple([m and a not in reached for m, a in zip(marks, body.outs, strict=False)])
        if fewer == marks:
            return marks
        marks = fewer


def forward_only(ctx: BodyCtx, prim: Scan, args: Args, marks: Marks, stacked: bool) -> list[Atom]:
    """The carries marked, from a loop over nothing else: their last values, or what each step found them to be."""
    steps, n = prim.steps, prim.n_carry
    body = steps.body
    found = select_by_mask(steps.split(body.ins)[1], marks) if stacked else ()
    loop = prim.over(Steps(Jaxpr(body.ins, body.eqns, (*body.outs[:n], *found), body.name), steps.n_consts, n))
    used = (False,) * n + (True,) * len(found) if stacked else marks
    # what is not known is not read, and so is no operand of the smaller loop
    operands = tuple([Zero(a.aval).instantiate() if isinstance(a, Hole) else a for a in args])
    results = tuple([Var(k, a) for k, a in enumerate(loop.abstract_eval(*[a.aval for a in operands]))])
    less = remove_unused(Eqn(loop, operands, results, None), used)
    values = dict(zip(less.outs, ctx(less.prim, *less.ins), strict=True))
    return [values[v] for v, u in zip(results, used, strict=True) if u]
