"""Inverse of a `scan`: the steps run in reverse order, each from its final carry to its initial carry.

A carry that no step changes is a constant. Carries that do not depend on reconstructed values (counters, keys) are also
run backwards, from their last value. If they have no inverse, they are first computed forward and stacked.

Example: a `scan` of 3 steps over the slices w, with the carries (i, a, b) and the rows b.

    step(i, a, b, w) = (i + 1, b, a + sin(b) * w), b

i and w are known, a and b are not, and all results are known. The step is inverted from its final carries, its row and
its slice. `BackwardLoop` says:

    xs = (True,)                          the slices w are known
    rows = (True,)                        the rows of the result are known
    invariant = (False, False, False)     no carry is the same in all steps
    independent = (True, False, False)    i changes, and does not depend on reconstructed values
    stacked = False                       i + 1 has an inverse, so i runs backwards, from its last value
    last = (True, True, True)             a step starts from the final values of i, a and b
    solved = (True, True, True, False)    it gives the initial values of i, a and b; w was known

The inverse computes the last i by a loop over i alone (`run_carries_forward`), and then runs, from the last step,

    inverse_step(i', a', b', w, row) = (i' - 1, b' - sin(a') * w, a')

A carry whose initial value a step cannot give is not known in the step before. So `backward_loop` inverts the step
again with fewer known final carries, until those that it takes are those that it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dependent_values, remove_unused
from fxad.core.masks import mask_or, select_by_mask, split_by_mask
from fxad.ir import Atom, Atoms, Aval, Eqn, Hole, Jaxpr, Mask, Var, Zero
from fxad.primitives.control.loop_steps import Steps, unchanged_carries
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.transforms.inversion.rules.contract import (
    RESULTS_UNKNOWN,
    Args,
    BodyCtx,
    PartialInverse,
    Refused,
    known_atoms,
    known_mask,
)


@final
@dataclass(frozen=True, slots=True)
class BackwardLoop:
    """How a loop runs backwards: the known values of each step, and the operands of the body that it gives
    (`solved`).

    A step knows the constants, slices and rows of stacked results marked in `consts`, `xs` and `rows`. Of its final
    carries it knows those in `last`. Of its initial carries it knows those that never change (`invariant`).
    `independent` marks the carries that change independently of reconstructed values. If they are `stacked`, their
    initial values are known; otherwise they are in `last`.
    """

    prim: Scan
    consts: Mask
    xs: Mask
    rows: Mask
    last: Mask
    invariant: Mask
    independent: Mask
    stacked: bool
    solved: Mask

    @property
    def ins(self) -> Mask:
        """Marks the operands of the body that a step knows from the start."""
        carries = [s or (m and self.stacked) for s, m in zip(self.invariant, self.independent, strict=True)]
        return (*self.consts, *carries, *self.xs)

    @property
    def carry(self) -> Mask:
        """Marks the carries of the backward loop."""
        return self.prim.steps.split(self.solved)[1]

    # ---------------------------------------------------------------------------------------- operands of the loop

    def constants(self, args: Args) -> list[Atom]:
        """Returns the constants of the backward loop."""
        consts, first, _ = self.prim.steps.split(self.prim.split_count(args)[1])
        return [*known_atoms(consts), *known_atoms(select_by_mask(first, self.invariant))]

    def state(self, ctx: BodyCtx, args: Args, outs: Args) -> list[Atom]:
        """Returns the initial carries of the backward loop, which are final carries of the loop; zeros for carries that
        a step does not read."""
        last_values: list[Atom] = []
        if any(self.independent) and not self.stacked:
            last_values = run_carries_forward(ctx, self.prim, args, self.independent, stacked=False)
        remaining = iter(last_values)
        carries: list[Atom] = []
        for a, here, independent, wanted in zip(outs, self.last, self.independent, self.carry, strict=False):
            value = next(remaining) if independent and not self.stacked else a
            if wanted:
                carries.append(value if here and not isinstance(value, Hole) else Zero(a.aval).instantiate())
        return carries

    def slices(self, ctx: BodyCtx, args: Args, outs: Args) -> list[Atom]:
        """Returns the arrays over which the backward loop runs."""
        xs = self.prim.steps.split(self.prim.split_count(args)[1])[2]
        stacks: list[Atom] = []
        if any(self.independent) and self.stacked:
            stacks = run_carries_forward(ctx, self.prim, args, self.independent, stacked=True)
        return [*known_atoms(xs), *stacks, *known_atoms(outs[self.prim.n_carry :])]

    def inputs(self, b: Builder, more_carry: Sequence[Aval]) -> StepInputs:
        """Adds the operands of a backward step to a builder, in the order of a loop's body, with more carries."""
        body, steps = self.prim.body, self.prim.steps
        of_consts, of_carry, of_xs = steps.split(body.in_avals)
        consts = b.inputs(select_by_mask(of_consts, self.consts))
        invariant = iter(b.inputs(select_by_mask(of_carry, self.invariant)))
        left = iter(b.inputs(select_by_mask(of_carry, self.carry)))
        extra = b.inputs(more_carry)
        xs = b.inputs(select_by_mask(of_xs, self.xs))
        stacks = iter(b.inputs(select_by_mask(of_carry, self.independent)) if self.stacked else ())
        rows = b.inputs(select_by_mask(body.out_avals[self.prim.n_carry :], self.rows))
        known_carries = [
            next(invariant) if s else next(stacks)
            for s, m in zip(self.invariant, self.independent, strict=True)
            if s or (m and self.stacked)
        ]
        final_carries = [next(left) if c else None for c in self.carry]
        last = [v for v, m in zip(final_carries, self.last, strict=True) if m and v]
        return StepInputs((*last, *rows, *consts, *known_carries, *xs), extra, len(consts) + sum(self.invariant))

    # ----------------------------------------------------------------------------------------------------- the loop

    def emit(self, ctx: BodyCtx, program: Jaxpr, args: Args, outs: Args) -> tuple[Var, ...]:
        """Emits the loop with the body `program`. Returns first the solved carries, then the log-determinant if it is
        measured, then the solved slices."""
        state = self.state(ctx, args, outs)
        b = Builder()
        step = self.inputs(b, (program.out_avals[-1],) if ctx.measured else ())
        results = b.inline(program, step.operands)
        remaining = iter(results)
        _, new, rest = self.prim.steps.split([next(remaining) if s else None for s in self.solved])
        total: list[Atom] = []
        if ctx.measured:
            total.append(b.one(ADD, step.extra[0], results[-1]))
            state.append(Zero(results[-1].aval).instantiate())
        step_program = b.build([*[a for a in new if a], *total, *[a for a in rest if a]], program.name)
        loop = self.prim.with_steps(Steps(step_program, step.n_consts, len(state)), backward=True)
        count, _ = self.prim.split_count(args)
        return ctx(loop, *known_atoms(count), *self.constants(args), *state, *self.slices(ctx, args, outs))


@final
@dataclass(frozen=True, slots=True)
class StepInputs:
    """Operands of a backward step: those of its program (known results, then known operands), and the additional
    carries `extra`. `n_consts` is the number of its constants."""

    operands: Atoms
    extra: tuple[Var, ...]
    n_consts: int


def backward_loop(ctx: BodyCtx, prim: Scan, args: Args, outs: Args) -> tuple[BackwardLoop, Jaxpr] | Refused:
    """Returns how a loop runs backwards, and the program of a step."""
    count, operands = prim.split_count(args)
    consts, first, xs = prim.steps.split(operands)
    if not all(known_mask(count)) or (count and not all(known_mask(xs))):
        return Refused("how many of its steps were taken is not known from its results")
    forward = forward_carries(prim, operands)
    invariant = tuple([f and u for f, u in zip(forward, unchanged_carries(prim.steps), strict=True)])
    independent = tuple([f and not i for f, i in zip(forward, invariant, strict=True)])
    last = tuple([k and not f for k, f in zip(known_mask(outs), forward, strict=False)])
    rows = known_mask(outs[prim.n_carry :])
    loop = BackwardLoop(prim, known_mask(consts), known_mask(xs), rows, last, invariant, independent, False, ())
    why: Refused | None = None
    while True:
        loop, body = _stepping(ctx, loop, last)
        why = why or body.refused  # keep the first reason: later ones result from the removed carries
        _, solved, slices = prim.steps.split(body.solved)
        fewer = tuple([k and s for k, s in zip(last, solved, strict=True)])
        if fewer == last:
            break
        last = fewer
    # counters have a known start: solving only them gives no unknown operand
    if not any([s and not k for s, k in zip((*solved, *slices), known_mask((*first, *xs)), strict=True)]):
        return why or Refused(RESULTS_UNKNOWN)
    return _without_constants(loop, body)


def _stepping(ctx: BodyCtx, loop: BackwardLoop, last: Mask) -> tuple[BackwardLoop, PartialInverse]:
    """Inverts one step from the carries in `last`. Counters are run backwards if possible, and stacked otherwise."""
    if any(loop.independent):
        running = replace(loop, last=mask_or(last, loop.independent), stacked=False)
        body = ctx.recur(loop.prim.body, running.ins, (*running.last, *loop.rows))
        if all(select_by_mask(loop.prim.steps.split(body.solved)[1], loop.independent)):
            return running, body
    loop = replace(loop, last=last, stacked=any(loop.independent))
    return loop, ctx.recur(loop.prim.body, loop.ins, (*last, *loop.rows))


def _without_constants(loop: BackwardLoop, body: PartialInverse) -> tuple[BackwardLoop, Jaxpr]:
    """Removes the constants from the solved operands: every step gives a value for them, but the loop needs one
    value."""
    consts, carry, xs = loop.prim.steps.split(body.solved)
    n, program = sum(consts), body.program
    reduced = Jaxpr(program.ins, program.eqns, program.outs[n:], program.name)
    return replace(loop, solved=(*[False] * len(consts), *carry, *xs)), reduced


def forward_carries(prim: Scan, operands: Args) -> Mask:
    """Marks the carries whose values in every step do not depend on reconstructed values: counters, keys, unchanged
    values."""
    body = prim.body
    consts, first, xs = prim.steps.split(operands)
    marks = known_mask(first)
    while True:
        known = (*known_mask(consts), *marks, *known_mask(xs))
        reached = dependent_values(body.eqns, split_by_mask(body.ins, known)[1])
        fewer = tuple([m and a not in reached for m, a in zip(marks, body.outs, strict=False)])
        if fewer == marks:
            return marks
        marks = fewer


def run_carries_forward(ctx: BodyCtx, prim: Scan, args: Args, marks: Mask, *, stacked: bool) -> list[Atom]:
    """Runs a loop over the marked carries alone. Returns their last values, or, if `stacked`, their initial values in
    each step."""
    steps, n = prim.steps, prim.n_carry
    body = steps.body
    initial = select_by_mask(steps.split(body.ins)[1], marks) if stacked else ()
    loop = prim.with_steps(Steps(Jaxpr(body.ins, body.eqns, (*body.outs[:n], *initial), body.name), steps.n_consts, n))
    used = (False,) * n + (True,) * len(initial) if stacked else marks
    # the smaller loop does not read unknown values, so they are not its operands
    operands = tuple([Zero(a.aval).instantiate() if isinstance(a, Hole) else a for a in args])
    results = tuple([Var(k, a) for k, a in enumerate(loop.abstract_eval(*[a.aval for a in operands]))])
    less = remove_unused(Eqn(loop, operands, results, None), used)
    values = dict(zip(less.outs, ctx(less.prim, *less.ins), strict=True))
    return [values[v] for v, u in zip(results, used, strict=True) if u]
