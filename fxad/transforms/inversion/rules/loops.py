"""Inverse of a `scan`: the steps run in reverse order, each from its final carry to its initial carry.

A carry that no step changes is a constant. Carries that do not depend on reconstructed values (counters, keys) are also
run backwards, from their last value. If they have no inverse, they are first computed forward and stacked.

Example: a `scan` of 3 steps over the slices w, with the carries (i, a, b) and the rows b.

    step(i, a, b, w) = (i + 1, b, a + sin(b) * w), b

i and w are known, a and b are not, and all results are known. The step is inverted from its final carries, its row and
its slice. `BackwardLoop` says:

    known_xs = (True,)                          the slices w are known
    known_rows = (True,)                        the rows of the result are known
    carries = (FORWARD_LAST, RESULT, RESULT)    a step starts from the final values of i, a and b. Those of a and b are
                                                results of the loop. That of i is computed by a loop forward, because i
                                                does not depend on reconstructed values.
    solved = (True, True, True, False)          a step determines the initial values of i, a and b; w was known

The inverse computes the last i by a loop over i alone (`run_carries_forward`), and then runs, from the last step,

    inverse_step(i', a', b', w, row) = (i' - 1, b' - sin(a') * w, a')

If `i + 1` had no inverse, i would be FORWARD_STACK: the loop over i alone would stack the values of i before each step,
and the steps of the inverse would run over them.

A carry whose initial value a step does not determine is not known in the step before. So `backward_loop` inverts the
step again with this carry UNKNOWN, until a step determines the initial values of all carries it starts from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dependent_values, remove_unused
from fxad.core.flags import select_by_flags, split_by_flags
from fxad.ir import Atom, Atoms, Aval, Eqn, Flags, Hole, Jaxpr, Var, Zero
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
    known_flags,
)


@final
class CarrySource(Enum):
    """From where a step of the backward loop knows a carry."""

    INVARIANT = "no step changes it: its initial value is a constant of the backward loop"
    FORWARD_STACK = "a loop forward stacks its initial values, and the backward loop runs over them"
    FORWARD_LAST = "a loop forward computes its last value, and the backward loop carries it from there"
    RESULT = "its last value is a result of the loop, and the backward loop carries it from there"
    UNKNOWN = "a step does not know it"


@final
@dataclass(frozen=True, slots=True)
class BackwardLoop:
    """How a loop runs backwards: the values that each step knows, and the operands of the body that it
    determines.

    `known_consts`, `known_xs` and `known_rows` mark the known constants, slices and rows of stacked results. `carries`
    has the source of each carry. `solved` marks the operands that a step determines; it is empty until the step is
    inverted. The backward loop has for a carry:

        source           if a step determines it                             else
        FORWARD_LAST     a carry, from the last value that it has forward    the same: it is always determined
        RESULT           a carry, from the result of the loop                the same: it is always determined
        UNKNOWN          a carry, from zero: no step reads it                nothing
        INVARIANT        a constant                                          the same
        FORWARD_STACK    a slice                                             the same

    A carry of the source UNKNOWN is determined by each step, which does not read the value of the step before.
    """

    prim: Scan
    known_consts: Flags
    carries: tuple[CarrySource, ...]
    known_xs: Flags
    known_rows: Flags
    solved: Flags = ()

    @property
    def known_ins(self) -> Flags:
        """Marks the operands of the body that a step knows from the start."""
        return (
            *self.known_consts,
            *self.carries_from(CarrySource.INVARIANT, CarrySource.FORWARD_STACK),
            *self.known_xs,
        )

    @property
    def known_outs(self) -> Flags:
        """Marks the results of the body that a step knows from the start: final carries and rows."""
        return (*self.carries_from(CarrySource.FORWARD_LAST, CarrySource.RESULT), *self.known_rows)

    @property
    def solved_carries(self) -> Flags:
        """Marks the carries of the backward loop: those whose initial values a step determines."""
        return self.prim.steps.split(self.solved)[1]

    def carries_from(self, *sources: CarrySource) -> Flags:
        """Mark the carries of these sources."""
        return tuple([s in sources for s in self.carries])

    def with_sources(self, marked: Sequence[bool], source: CarrySource) -> BackwardLoop:
        """Return the loop with another source for the marked carries."""
        return replace(self, carries=tuple([source if m else s for s, m in zip(self.carries, marked, strict=True)]))

    # ---------------------------------------------------------------------------------------- operands of the loop

    def constants(self, args: Args) -> list[Atom]:
        """Return the constants of the backward loop."""
        consts, initial, _ = self.prim.steps.split(self.prim.split_count(args)[1])
        return [*known_atoms(consts), *known_atoms(select_by_flags(initial, self.carries_from(CarrySource.INVARIANT)))]

    def state(self, ctx: BodyCtx, args: Args, outs: Args) -> list[Atom]:
        """Return the initial carries of the backward loop."""
        run_forward = self.carries_from(CarrySource.FORWARD_LAST)
        last_values = iter(run_carries_forward(ctx, self.prim, args, run_forward, stacked=False))
        state: list[Atom] = []
        for a, source, is_solved in zip(outs, self.carries, self.solved_carries, strict=False):
            if source is CarrySource.FORWARD_LAST:
                state.append(next(last_values))
            elif source is CarrySource.RESULT and not isinstance(a, Hole):
                state.append(a)
            elif is_solved:
                state.append(Zero(a.aval).instantiate())
        return state

    def slices(self, ctx: BodyCtx, args: Args, outs: Args) -> list[Atom]:
        """Return the arrays over which the backward loop runs."""
        xs = self.prim.steps.split(self.prim.split_count(args)[1])[2]
        run_forward = self.carries_from(CarrySource.FORWARD_STACK)
        stacks = run_carries_forward(ctx, self.prim, args, run_forward, stacked=True)
        return [*known_atoms(xs), *stacks, *known_atoms(outs[self.prim.n_carry :])]

    def inputs(self, b: Builder, more_carry: Sequence[Aval]) -> StepInputs:
        """Add the operands of a backward step to a builder, in the order of a loop's body, with more carries.

        The body of the backward loop takes constants, carries and slices. The program of a step takes what it knows:
        results, then operands. It does not take a carry of the source UNKNOWN.
        """
        body, steps = self.prim.body, self.prim.steps
        const_types, carry_types, slice_types = steps.split(body.in_avals)
        consts = b.inputs(select_by_flags(const_types, self.known_consts))
        invariants = b.inputs(select_by_flags(carry_types, self.carries_from(CarrySource.INVARIANT)))
        final_values = iter(b.inputs(select_by_flags(carry_types, self.solved_carries)))
        extra = b.inputs(more_carry)
        xs = b.inputs(select_by_flags(slice_types, self.known_xs))
        stacked = b.inputs(select_by_flags(carry_types, self.carries_from(CarrySource.FORWARD_STACK)))
        rows = b.inputs(select_by_flags(body.out_avals[self.prim.n_carry :], self.known_rows))
        of_source = {CarrySource.INVARIANT: iter(invariants), CarrySource.FORWARD_STACK: iter(stacked)}
        initial = [next(of_source[source]) for source in self.carries if source in of_source]
        by_carry = [next(final_values) if is_solved else None for is_solved in self.solved_carries]
        known = self.carries_from(CarrySource.FORWARD_LAST, CarrySource.RESULT)
        final = [v for v, k in zip(by_carry, known, strict=True) if k and v]
        return StepInputs((*final, *rows, *consts, *initial, *xs), extra, len(consts) + len(invariants))

    # ----------------------------------------------------------------------------------------------------- the loop

    def emit(self, ctx: BodyCtx, program: Jaxpr, args: Args, outs: Args) -> tuple[Var, ...]:
        """Emit the loop with the body `program`. Return first the solved carries, then the log-determinant if it is
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
    """Return how a loop runs backwards, and the program of a step."""
    count, operands = prim.split_count(args)
    consts, initial, xs = prim.steps.split(operands)
    if not all(known_flags(count)) or (count and not all(known_flags(xs))):
        return Refused("how many of its steps were taken is not known from its results")
    sources = _carry_sources(prim, operands, outs)
    candidate = BackwardLoop(prim, known_flags(consts), sources, known_flags(xs), known_flags(outs[prim.n_carry :]))
    first_refusal: Refused | None = None
    while True:
        loop, body = _invert_step(ctx, candidate)
        first_refusal = first_refusal or body.refused  # later ones result from the removed carries
        _, solved, slices = prim.steps.split(body.solved)
        undetermined = [
            s is CarrySource.RESULT and not is_solved for s, is_solved in zip(candidate.carries, solved, strict=True)
        ]
        if not any(undetermined):
            break
        candidate = candidate.with_sources(undetermined, CarrySource.UNKNOWN)
    # counters have a known start: solving only them determines no unknown operand
    if not any([s and not k for s, k in zip((*solved, *slices), known_flags((*initial, *xs)), strict=True)]):
        return first_refusal or Refused(RESULTS_UNKNOWN)
    return _without_constants(loop, body)


def _carry_sources(prim: Scan, operands: Args, outs: Args) -> tuple[CarrySource, ...]:
    """Return the source of each carry, if a step can be inverted from all of them."""

    def source(is_forward: bool, is_unchanged: bool, is_known: bool) -> CarrySource:
        if is_forward:
            return CarrySource.INVARIANT if is_unchanged else CarrySource.FORWARD_LAST
        return CarrySource.RESULT if is_known else CarrySource.UNKNOWN

    forward, unchanged = forward_carries(prim, operands), unchanged_carries(prim.steps)
    return tuple(map(source, forward, unchanged, known_flags(outs[: prim.n_carry])))


def _invert_step(ctx: BodyCtx, loop: BackwardLoop) -> tuple[BackwardLoop, PartialInverse]:
    """Invert one step. Return the loop with the sources that it uses: if the step does not determine a carry
    that is computed forward, these carries are stacked."""
    body = ctx.recur(loop.prim.body, loop.known_ins, loop.known_outs)
    run_forward = loop.carries_from(CarrySource.FORWARD_LAST)
    if all(select_by_flags(loop.prim.steps.split(body.solved)[1], run_forward)):
        return loop, body
    loop = loop.with_sources(run_forward, CarrySource.FORWARD_STACK)
    return loop, ctx.recur(loop.prim.body, loop.known_ins, loop.known_outs)


def _without_constants(loop: BackwardLoop, body: PartialInverse) -> tuple[BackwardLoop, Jaxpr]:
    """Remove the constants from the solved operands: every step has a value for them, but the loop needs one value."""
    consts, carry, xs = loop.prim.steps.split(body.solved)
    n, program = sum(consts), body.program
    reduced = program.with_outs(program.outs[n:])
    return replace(loop, solved=(*[False] * len(consts), *carry, *xs)), reduced


def forward_carries(prim: Scan, operands: Args) -> Flags:
    """Mark the carries whose values in every step do not depend on reconstructed values: counters, keys, unchanged
    values."""
    body = prim.body
    consts, first, xs = prim.steps.split(operands)
    marks = known_flags(first)
    while True:
        independent = (*known_flags(consts), *marks, *known_flags(xs))
        dependent = dependent_values(body.eqns, split_by_flags(body.ins, independent)[1])
        fewer = tuple([m and a not in dependent for m, a in zip(marks, body.outs, strict=False)])
        if fewer == marks:
            return marks
        marks = fewer


def run_carries_forward(ctx: BodyCtx, prim: Scan, args: Args, marks: Flags, *, stacked: bool) -> list[Atom]:
    """Run a loop over the marked carries alone. Return their last values, or, if `stacked`, their initial values in
    each step."""
    if not any(marks):
        return []
    steps, n = prim.steps, prim.n_carry
    body = steps.body
    initial = select_by_flags(steps.split(body.ins)[1], marks) if stacked else ()
    loop = prim.with_steps(Steps(body.with_outs((*body.outs[:n], *initial)), steps.n_consts, n))
    used = (False,) * n + (True,) * len(initial) if stacked else marks
    # the smaller loop does not read unknown values, so they are not its operands
    operands = tuple([Zero(a.aval).instantiate() if isinstance(a, Hole) else a for a in args])
    results = tuple([Var(k, a) for k, a in enumerate(loop.abstract_eval(*[a.aval for a in operands]))])
    smaller = remove_unused(Eqn(loop, operands, results, None), used)
    values = dict(zip(smaller.outs, ctx(smaller.prim, *smaller.ins), strict=True))
    return [values[v] for v, u in zip(results, used, strict=True) if u]
