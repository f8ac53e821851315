"""Inverse of a `scan`: the steps run in reverse order, each from its final carry to its initial carry.

A carry that no step changes is a constant. Carries that do not depend on reconstructed values (counters, keys) are also
run backwards, from their last value. If they have no inverse, they are first computed forward and stacked.

Example: a `scan` of 3 steps over the slices w, with the carries (i, a, b) and the rows b.

    step(i, a, b, w) = (i + 1, b, a + sin(b) * w), b

i and w are known, a and b are not, and all results are known. The step is inverted from its final carries, its row and
its slice. `BackwardLoop` says:

    known_xs = (True,)                    the slices w are known
    known_rows = (True,)                  the rows of the result are known
    invariant = (False, False, False)     no carry is the same in all steps
    independent = (True, False, False)    i changes, and does not depend on reconstructed values
    stacked = False                       i + 1 has an inverse, so i runs backwards, from its last value
    known_final = (True, True, True)      a step starts from the final values of i, a and b
    solved = (True, True, True, False)    it determines the initial values of i, a and b; w was known

The inverse computes the last i by a loop over i alone (`run_carries_forward`), and then runs, from the last step,

    inverse_step(i', a', b', w, row) = (i' - 1, b' - sin(a') * w, a')

A carry whose initial value a step does not determine is not known in the step before. So `backward_loop` inverts the
step again with fewer known final carries, until a step determines the initial values of all carries it starts from.
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
    at_positions,
    known_atoms,
    known_mask,
)


@final
@dataclass(frozen=True, slots=True)
class BackwardLoop:
    """How a loop runs backwards: the values that each step knows, and the operands of the body that it determines. All
    but `prim` and `stacked` are masks.

    A step knows the constants, slices and rows of stacked results marked in `known_consts`, `known_xs` and
    `known_rows`. Of its final carries it knows those in `known_final`. Of its initial carries it knows those that never
    change (`invariant`). `independent` marks the carries that change independently of reconstructed values. If they are
    `stacked`, their initial values are known; otherwise they are in `known_final`. `solved` marks the operands of the
    body that a step determines.
    """

    prim: Scan
    known_consts: Mask
    known_xs: Mask
    known_rows: Mask
    known_final: Mask
    invariant: Mask
    independent: Mask
    stacked: bool
    solved: Mask

    @property
    def known_ins(self) -> Mask:
        """Marks the operands of the body that a step knows from the start."""
        carries = [s or (m and self.stacked) for s, m in zip(self.invariant, self.independent, strict=True)]
        return (*self.known_consts, *carries, *self.known_xs)

    @property
    def known_outs(self) -> Mask:
        """Marks the results of the body that a step knows from the start."""
        return (*self.known_final, *self.known_rows)

    @property
    def solved_carries(self) -> Mask:
        """Marks the carries of the backward loop: those whose initial values a step determines."""
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
        marks = zip(self.known_final, self.independent, self.solved_carries, strict=True)
        for a, (is_known, independent, solved) in zip(outs, marks, strict=False):
            value = next(remaining) if independent and not self.stacked else a
            if solved:
                carries.append(value if is_known and not isinstance(value, Hole) else Zero(a.aval).instantiate())
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
        consts = b.inputs(select_by_mask(of_consts, self.known_consts))
        invariant = b.inputs(select_by_mask(of_carry, self.invariant))
        state = b.inputs(select_by_mask(of_carry, self.solved_carries))
        extra = b.inputs(more_carry)
        xs = b.inputs(select_by_mask(of_xs, self.known_xs))
        stacks = b.inputs(select_by_mask(of_carry, self.independent)) if self.stacked else ()
        rows = b.inputs(select_by_mask(body.out_avals[self.prim.n_carry :], self.known_rows))
        final_carries = at_positions(state, self.solved_carries)
        final = [v for v, is_known in zip(final_carries, self.known_final, strict=True) if is_known and v]
        of_invariant, of_independent = at_positions(invariant, self.invariant), iter(stacks)
        initial = [
            v or next(of_independent)
            for v, independent in zip(of_invariant, self.independent, strict=True)
            if v or (independent and self.stacked)
        ]
        return StepInputs((*final, *rows, *consts, *initial, *xs), extra, len(consts) + len(invariant))

    # ----------------------------------------------------------------------------------------------------- the loop

    def emit(self, ctx: BodyCtx, program: Jaxpr, args: Args, outs: Args) -> tuple[Var, ...]:
        """Emits the loop with the body `program`. Returns first the solved carries, then the log-determinant if it is
        measured, then the solved slices."""
        state = self.state(ctx, args, outs)
        b = Builder()
        step = self.inputs(b, (program.out_avals[-1],) if ctx.measured else ())
        results = b.inline(program, step.operands)
        remaining = iter(results)
        _, carries, xs = self.prim.steps.split([next(remaining) if s else None for s in self.solved])
        total: list[Atom] = []
        if ctx.measured:
            total.append(b.one(ADD, step.extra[0], results[-1]))
            state.append(Zero(results[-1].aval).instantiate())
        step_program = b.build([*[a for a in carries if a], *total, *[a for a in xs if a]], program.name)
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
    known_final = tuple([k and not f for k, f in zip(known_mask(outs), forward, strict=False)])
    known_rows = known_mask(outs[prim.n_carry :])
    masks = known_mask(consts), known_mask(xs), known_rows, known_final, invariant, independent
    loop = BackwardLoop(prim, *masks, stacked=False, solved=())
    first_refusal: Refused | None = None
    while True:
        loop, body = _invert_step(ctx, loop, known_final)
        first_refusal = first_refusal or body.refused  # later ones result from the removed carries
        _, solved, slices = prim.steps.split(body.solved)
        fewer = tuple([k and s for k, s in zip(known_final, solved, strict=True)])
        if fewer == known_final:
            break
        known_final = fewer
    # counters have a known start: solving only them determines no unknown operand
    if not any([s and not k for s, k in zip((*solved, *slices), known_mask((*first, *xs)), strict=True)]):
        return first_refusal or Refused(RESULTS_UNKNOWN)
    return _without_constants(loop, body)


def _invert_step(ctx: BodyCtx, loop: BackwardLoop, known_final: Mask) -> tuple[BackwardLoop, PartialInverse]:
    """Inverts one step from these final carries. Independent carries are run backwards if possible, and stacked
    otherwise."""
    body = loop.prim.body
    if any(loop.independent):
        running = replace(loop, known_final=mask_or(known_final, loop.independent), stacked=False)
        inverted = ctx.recur(body, running.known_ins, running.known_outs)
        if all(select_by_mask(loop.prim.steps.split(inverted.solved)[1], loop.independent)):
            return running, inverted
    loop = replace(loop, known_final=known_final, stacked=any(loop.independent))
    return loop, ctx.recur(body, loop.known_ins, loop.known_outs)


def _without_constants(loop: BackwardLoop, body: PartialInverse) -> tuple[BackwardLoop, Jaxpr]:
    """Removes the constants from the solved operands: every step has a value for them, but the loop needs one value."""
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
        independent = (*known_mask(consts), *marks, *known_mask(xs))
        dependent = dependent_values(body.eqns, split_by_mask(body.ins, independent)[1])
        fewer = tuple([m and a not in dependent for m, a in zip(marks, body.outs, strict=False)])
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
