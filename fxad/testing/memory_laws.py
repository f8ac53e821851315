"""Laws of stored values: policies, plans and partial evaluation change no result and no gradient, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from typing import Final, final

from hypothesis import strategies as st

from fxad.core.dataclasses import dataclass
from fxad.core.interpreter import run
from fxad.core.layout import InParallel, OneOf, Times, Unknown, UpTo
from fxad.core.typecheck import typecheck
from fxad.ir import Eqn, HigherOrder, Jaxpr
from fxad.primitives.control.remat import Remat
from fxad.testing.compare import differ, fail
from fxad.testing.derivative_laws import check_same_bits, differentiable_flags
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.unit_laws import split_into_calls
from fxad.transforms import inline, linearize, partial_eval, remat, residuals, vjp_fused, with_planned_residuals
from fxad.transforms.memory import policies
from fxad.transforms.memory.policies import Policy
from fxad.transforms.memory.residuals import Residuals


@final
@dataclass(frozen=True, slots=True)
class Sometimes(Policy):
    """A policy that stores an arbitrary part of all equations: those for which the sum of the bytes of their text,
    modulo `of`, is `at`."""

    of: int
    at: int

    def keeps(self, eqn: Eqn) -> bool:
        return sum(str(eqn).encode()) % self.of == self.at

    def __str__(self) -> str:
        return f"sometimes({self.at} of {self.of})"


@st.composite
def some_policies(draw: st.DrawFn) -> Policy:
    """Draw policies and compositions of policies."""
    constant = [policies.nothing, policies.everything, policies.dots, policies.dots_without_batch_dims]
    constant += [policies.names("a"), policies.names_except("a")]
    of = draw(st.integers(1, 4))
    simple = st.sampled_from([*constant, Sometimes(of, draw(st.integers(0, of - 1)))])
    terms = draw(st.lists(simple.flatmap(lambda p: st.sampled_from([p, ~p])), min_size=1, max_size=3))
    return reduce(draw(st.sampled_from([or_, and_])), terms)


@law
def check_policy(case: Case, policy: Policy, inner: Policy | None = None) -> None:
    """Check that under any policy, results and gradients are equal bit for bit, and only chosen values are stored. With
    `inner`, the program is a `remat` with that policy.
    """
    lean = remat(case.program if inner is None else remat(case.program, inner), policy)
    typecheck(lean)
    check_same_bits("a policy", case, lean)
    flags = differentiable_flags(case)
    if any(flags):
        if inner is None:
            _check_work(case, lean, policy)
        split, n = linearize(lean, flags), len(case.program.outs)
        # the law is about `remat`: its primal half is one equation
        (eqn,) = [e for e in split.primal.eqns if isinstance(e.prim, Remat)]
        stored = split.primal.outs[n:]
        if any([a not in split.primal.ins and a not in eqn.outs for a in stored]):
            fail(f"{policy}: a stored value is no operand and no additional result", lean, (), split.primal)
        if policy == policies.nothing and len(eqn.outs) > n:
            fail(f"{policy} selects nothing, and a value is stored", lean, (), split.primal)


@law
def check_segments(case: Case, seed: int) -> None:
    """Check that with any stretches of a program as segments, nested ones too, results and gradients are equal bit for
    bit, also for values that several segments read."""
    check_same_bits("segments", case, split_into_calls(case.program, seed, segments=1.0))


# Operations that no rule adds to a program to move values around.
_COSTLY: Final = frozenset({
    "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh", "sqrt", "rsqrt", "cbrt", "pow",
    "atan2", "erf", "logistic", "dot_general", "sort", "fft",
})  # fmt: skip


def work(jaxpr: Jaxpr, times: int = 1) -> Counter[str]:
    """Return the number of runs of each operation. Of branches the first counts, of a function with rules the function.
    A loop of no steps counts as one step, because its invariants are computed outside. A loop that ends by a predicate
    counts as many steps as its bound, like the scan that it becomes where it is split; without a bound, one."""
    out: Counter[str] = Counter()
    for eqn in jaxpr.eqns:
        out[eqn.prim.name] += times
        layout = eqn.prim.layout if isinstance(eqn.prim, HigherOrder) else None
        branch = False
        for body in [layout.bodies[k] for k in layout.running] if layout else ():
            match body.runs:
                case OneOf() if branch:
                    continue
                case Times(count) | UpTo(count) | InParallel(count) | Unknown(int(count)):
                    out.update(work(body.jaxpr, times * max(count, 1)))
                case _:
                    out.update(work(body.jaxpr, times))
            branch = isinstance(body.runs, OneOf)
    return out


def _check_work(case: Case, lean: Jaxpr, policy: Policy) -> None:
    """Recomputation runs no costly operation more than once more than the program; with the policy `everything`, none
    again."""
    flags = differentiable_flags(case)
    # linearize moves loop-invariant equations out of a loop; with a policy they may stay in the loop
    without = work(vjp_fused(case.program, flags)) | work(case.program)
    counted = work(vjp_fused(lean, flags))
    forward = Counter[str]() if policy == policies.everything else work(linearize(case.program, flags).primal)
    for name in _COSTLY:
        if counted[name] > without[name] + forward[name]:
            n = f"{counted[name]} {name} with {policy}, {without[name]} without and {forward[name]} forward"
            fail(f"computed more than once more: {n}", lean, (), vjp_fused(lean, flags))


@law
def check_plan(case: Case, choose: Sequence[bool]) -> None:
    """Check that, if any residuals of a plan are recomputed, the results are equal, and the gradients equal those of
    the inlined program bit for bit. Only the values of the plan are stored."""
    flags = differentiable_flags(case)
    table = residuals(case.program, flags)
    dropped = [k for k, (row, c) in enumerate(zip(table, [*choose, *[False] * len(table)], strict=False)) if c]
    plan = table.without(*[k for k in dropped if not table[k].is_argument])
    if plan.keep(*range(len(plan))) != table:
        fail("keep does not undo without", case.program, case.args)
    lean = with_planned_residuals(case.program, plan)
    typecheck(lean)
    check_same_bits("a plan", replace(case, program=inline(case.program)), lean)
    if any(flags):
        _check_stored(plan, residuals(lean, flags))


def _check_stored(plan: Residuals, after: Residuals) -> None:
    allowed = len({v for row in plan if row.stored for v in row.values})
    stored = [row for row in after if not row.is_argument]
    if len(stored) > allowed:
        fail(f"a plan of {allowed} values stores {len(stored)}", plan.jaxpr, (), after.jaxpr)


@law
def check_partial_eval(case: Case, known: Sequence[bool]) -> None:
    """Check that both halves together equal the program, bit for bit, and neither contains an equation that belongs to
    the other."""
    program, args = case.program, case.args
    mask = tuple([bool(k) for k, _ in zip([*known, *[False] * len(args)], args, strict=False)])
    halves = partial_eval(program, mask)
    typecheck(halves.known)
    typecheck(halves.unknown)
    known_outs = run(halves.known, [a for a, k in zip(args, mask, strict=True) if k])
    n = sum(halves.out_known)
    unknown_outs = run(halves.unknown, [*known_outs[n:], *[a for a, k in zip(args, mask, strict=True) if not k]])
    known_results, unknown_results = iter(known_outs[:n]), iter(unknown_outs)
    together = [next(known_results) if k else next(unknown_results) for k in halves.out_known]
    if problem := differ(together, run(program, args), exact=True):
        fail(f"two halves are not the whole: {problem}", program, args, halves.unknown)
    if len(halves.residuals) != len(halves.known.outs) - n or len(set(halves.known.outs[n:])) != len(halves.residuals):
        fail("a residual is returned twice, or has no name", program, (), halves.known)
    counted, allowed = work(halves.known) + work(halves.unknown), work(program)
    for name in _COSTLY:
        if counted[name] > allowed[name]:
            fail(f"{name} is in both halves", program, (), halves.unknown)
    if all(mask) and (halves.unknown.outs or halves.unknown.eqns):
        fail("all operands are known, and the unknown half is not empty", program, (), halves.unknown)
