"""Partial evaluation rules of equations with bodies: an equation is split into a known and an unknown one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import drop_unread_operands, rebind_operands, remove_dead_eqns
from fxad.core.layout import PREDICATE, BranchIndex, Carry, Constant, Count, Layout, OneOf, Slice, Unknown
from fxad.ir import INT32_SCALAR, Atoms, HigherOrder, Jaxpr, Lit, Mask, Primitive, Var
from fxad.primitives.control.bodies import (
    assign_slots,
    rearrange_operands,
    shared_slots,
    with_outs,
    with_slot_operands,
    with_slot_results,
)
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import ADD


@final
@dataclass(frozen=True, slots=True)
class SplitBody:
    """A body in two parts. `known`: known operands -> the results marked in `out_known`, then residuals. `unknown`:
    residuals, then the other operands -> the other results."""

    known: Jaxpr
    unknown: Jaxpr
    out_known: Mask

    @property
    def residuals(self) -> Atoms:
        """The residuals, as values of `known`."""
        return self.known.outs[sum(self.out_known) :]

    def without(self, out_known: Mask) -> SplitBody:
        """Returns the two parts with fewer known results. `unknown` returns the removed ones: literals as they are, the
        others as further residuals."""
        if out_known == self.out_known:
            return self
        known_results = dict(zip([k for k, known in enumerate(self.out_known) if known], self.known.outs, strict=False))
        removed = {k: a for k, a in known_results.items() if not out_known[k]}
        later = [k for k, a in removed.items() if isinstance(a, Var)]
        outs = [known_results[k] for k, known in enumerate(out_known) if known]
        first = with_outs(self.known, (*outs, *self.residuals, *[known_results[k] for k in later]))
        n, b = len(self.residuals), Builder()
        residuals = b.inputs(self.unknown.in_avals[:n])
        late = {**removed, **dict(zip(later, b.inputs([known_results[k].aval for k in later]), strict=True))}
        rest = iter(b.inline(self.unknown, (*residuals, *b.inputs(self.unknown.in_avals[n:]))))
        results = [late[k] if k in late else next(rest) for k, known in enumerate(out_known) if not known]
        return SplitBody(first, b.build(results, self.unknown.name), out_known)

    @property
    def idle(self) -> bool:
        """Is True if the known part has no equations and no results."""
        return not self.known.eqns and not any(self.out_known)


Halve: TypeAlias = Callable[[Jaxpr, Mask], SplitBody]


@final
@dataclass(frozen=True, slots=True)
class SplitEqn:
    """An equation in two parts. `known` takes the operands with the numbers `takes`, or literals. Its results `gives`
    are the results of the equation that `out_known` marks. `unknown` takes the values in `reads` and returns the other
    results. A number k >= 0 in `reads` is an operand of the equation; ~k is result k of `known`."""

    known: Primitive
    unknown: Primitive
    takes: tuple[int | Lit, ...]
    reads: tuple[int, ...]
    out_known: Mask
    gives: tuple[int, ...]


def split_eqn(prim: Primitive, have: Mask, halve: Halve) -> SplitEqn | None:
    """Splits an equation whose marked operands are known. Returns None if it is known or unknown as a whole.

    Not split are a loop without a bound or with an unknown predicate, a branch on an unknown index, a function with
    custom rules, and an equation with an effect.
    """
    if prim.effects or all(have) or not isinstance(prim, HigherOrder):
        return None
    layout = prim.layout
    decides = [h for h, role in zip(have, layout.operand_roles, strict=True) if isinstance(role, BranchIndex | Count)]
    if not layout.transparent or not all(decides):
        return None
    runs = [layout.bodies[k].runs for k in layout.running]
    if layout.has_predicate:
        parts = _bounded_loop(prim, layout, have, halve)
    elif layout.once is not None:
        parts = _once(prim, layout, have, halve)
    elif all([isinstance(r, OneOf) for r in runs]):
        parts = _branches(prim, layout, have, halve)
    else:
        parts = _loop(prim, layout, have, halve) if len(runs) == 1 else None
    # without a known operand, only known results are worth an equation of their own
    return parts if parts is None or any(have) or any(parts.out_known) else None


def _places(marks: Sequence[bool], wanted: bool) -> list[int]:
    return [k for k, m in enumerate(marks) if m is wanted]


def _once(prim: HigherOrder, layout: Layout, have: Mask, halve: Halve) -> SplitEqn | None:
    """Splits an equation whose body runs once. Its residuals are the first operands of the unknown part."""
    if len(layout.operands) != 1 or len(layout.results) != 1:
        return None
    body = halve(layout.bodies[0].jaxpr, have)
    if body.idle:
        return None
    n = sum(body.out_known)
    further = [~k for k in range(n, len(body.known.outs))]
    return SplitEqn(
        prim.rebuild((body.known,), (len(body.known.ins),), (len(body.known.outs),)),
        prim.rebuild((body.unknown,), (len(body.unknown.ins),), (len(body.unknown.outs),)),
        tuple(_places(have, True)),
        (*further, *_places(have, False)),
        body.out_known,
        tuple(range(n)),
    )


def _branches(prim: HigherOrder, layout: Layout, have: Mask, halve: Halve) -> SplitEqn | None:
    """Splits each branch. Branches share the places of their residuals, as in derivatives."""
    if [type(g.role) for g in layout.operands] != [BranchIndex, Constant] or len(layout.results) != 1:
        return None
    bodies = [halve(branch.jaxpr, have[1:]) for branch in layout.bodies]
    out_known = tuple([all(marks) for marks in zip(*[body.out_known for body in bodies], strict=True)])
    bodies = [body.without(out_known) for body in bodies]
    if all([body.idle for body in bodies]):
        return None
    n = sum(out_known)
    places = shared_slots([[a.aval for a in body.residuals] for body in bodies])
    known = [with_slot_results(body.known, n, assign_slots(body.residuals, places), places) for body in bodies]
    takes, others = _places(have, True), _places(have, False)
    unknown = [with_slot_operands(_residuals_last(body), len(others), places) for body in bodies]
    further = [~(n + k) for k in range(len(places))]
    return SplitEqn(
        prim.rebuild(tuple(known), (1, len(takes) - 1), (n + len(places),)),
        prim.rebuild(tuple(unknown), (1, len(others) + len(places)), (len(out_known) - n,)),
        tuple(takes),
        (0, *others, *further),
        out_known,
        tuple(range(n)),
    )


def _residuals_last(body: SplitBody) -> Jaxpr:
    n = len(body.residuals)
    return rearrange_operands(body.unknown, (*range(n, len(body.unknown.ins)), *range(n)), body.unknown.outs)


def _loop(prim: HigherOrder, layout: Layout, have: Mask, halve: Halve) -> SplitEqn | None:
    """Splits a loop. A carry is known if every run computes a known value for it. A residual that is a constant or a
    slice is read from the operand. The other residuals are stacked along the first axis, in the last groups of operands
    and results."""
    (at,) = layout.running
    last, last_result = len(layout.operands) - 1, len(layout.results) - 1
    if layout.bodies[at].operands[-1:] != (last,) or layout.bodies[at].results[-1:] != (last_result,):
        return None
    if layout.operands[-1].role != Slice(0) or layout.results[-1].role != Slice(0):
        return None
    marks, halves = _split_step(layout, at, have, halve)
    if halves.idle:
        return None
    takes, groups = layout.operand_indices(at), layout.bodies[at].operands
    known_ins, unknown_ins = [p for p in takes if marks[p]], [p for p in takes if not marks[p]]
    known_groups = [[p for p in layout.operands_of(g) if marks[p]] for g in range(last + 1)]
    residuals, stacked = _places_of_residuals(layout, halves, known_ins)
    unknown_groups: list[list[int]] = [[] for _ in layout.operands]
    group_of = {p: g for g in groups for p in layout.operands_of(g)}
    for p in residuals:
        unknown_groups[last if p < 0 else group_of[p]].append(p)
    for g, group in enumerate(layout.operands):
        in_both = isinstance(group.role, Count)
        unknown_groups[g] += [p for p in layout.operands_of(g) if not marks[p] or in_both]
    known_body = rebind_operands(halves.known, known_ins, groups, known_groups)
    n_results = sum(halves.out_known)
    stacks = [known_body.outs[n_results + k] for k in stacked]
    known_body = with_outs(known_body, (*known_body.outs[:n_results], *stacks))
    unknown_body = rebind_operands(halves.unknown, (*residuals, *unknown_ins), groups, unknown_groups)
    known_result = dict(zip(layout.result_indices(at), halves.out_known, strict=True))
    sizes = [[known_result[q] for q in layout.results_of(g)] for g in range(last_result + 1)]
    n_known, n_unknown = [m.count(True) for m in sizes], [m.count(False) for m in sizes]
    n_known[-1] += len(stacked)
    return SplitEqn(
        prim.rebuild((known_body,), tuple(map(len, known_groups)), tuple(n_known)),
        prim.rebuild((unknown_body,), tuple(map(len, unknown_groups)), tuple(n_unknown)),
        tuple([p for group in known_groups for p in group]),
        # the stacks are the last results of the known part
        tuple([p if p >= 0 else p - n_results for group in unknown_groups for p in group]),
        tuple([known_result[q] for q in range(len(known_result))]),
        tuple(range(n_results)),
    )


def _split_step(layout: Layout, at: int, have: Mask, halve: Halve) -> tuple[list[bool], SplitBody]:
    """Splits the step of a loop. Returns a mask of the operands of the loop whose value is known in every run, and the
    two parts of the step, of which the known one returns exactly the known carries and rows."""
    takes, gives = layout.operand_indices(at), layout.result_indices(at)
    marks = list(have)
    while True:
        step = halve(layout.bodies[at].jaxpr, tuple([marks[p] for p in takes]))
        known = dict(zip(gives, step.out_known, strict=True))
        fewer = [p for p, q in layout.carries.items() if marks[p] and not known[q]]
        if not fewer:
            break
        for p in fewer:
            marks[p] = False
    known.update({q: marks[p] for p, q in layout.carries.items()})
    return marks, step.without(tuple([known[q] for q in gives]))


def _places_of_residuals(layout: Layout, step: SplitBody, known_ins: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns the place of each residual of a step: the operand of the loop that it is, or ~k for stack k; and the
    residuals that are stacked. A carry is stacked, because each run has another value of it."""
    operand = dict(zip(step.known.ins, known_ins, strict=True))
    roles = layout.operand_roles
    places: list[int] = []
    stacked: list[int] = []
    for k, a in enumerate(step.residuals):
        place = operand.get(a) if isinstance(a, Var) else None
        if place is None or isinstance(roles[place], Carry):
            place = ~len(stacked)
            stacked.append(k)
        places.append(place)
    return places, stacked


def _bounded_loop(prim: HigherOrder, layout: Layout, have: Mask, halve: Halve) -> SplitEqn | None:
    """Splits a loop with a bound that ends by a known predicate. The known part is a loop that also counts its runs;
    the unknown part is a scan of so many steps. A predicate that the step returns is its last row while the step is
    split, so that equations which it shares with the step are computed once."""
    test_at = next(k for k in layout.running if PREDICATE in layout.bodies[k].results)
    step_at = next((k for k in layout.running if k != test_at), test_at)
    in_step = test_at == step_at
    test, step = layout.bodies[test_at], layout.bodies[step_at]
    results = [g for g in step.results if g != PREDICATE]
    roles = [layout.operands[g].role for g in step.operands] + [layout.results[g].role for g in results]
    if len(layout.running) > 2 or roles != [Constant(), Carry(), Carry(), Slice()]:
        return None
    if not isinstance(step.runs, Unknown) or not step.runs.most or step.results[-2:] != tuple(results):
        return None
    # the step as a scan: (count, constants, carries) -> (carries, rows)
    takes, carries = layout.operand_indices(step_at), layout.operands_of(step.operands[1])
    predicate = test.jaxpr.outs[layout.result_indices(test_at).index(None)]
    outs = zip(step.jaxpr.outs, layout.result_indices(step_at), strict=True)
    body = with_outs(step.jaxpr, [*[a for a, q in outs if q is not None], *[predicate] * in_step])
    scan = Scan(body, step.runs.most, False, 1, len(takes) - len(carries), len(carries), upto=True)
    parts = _loop(scan, scan.layout, (True, *[have[p] for p in takes]), halve)
    if parts is None or not isinstance(parts.known, Scan) or (in_step and not parts.out_known[-1]):
        return None
    out_known = parts.out_known[: len(parts.out_known) - in_step]
    if not parts.known.body.eqns and not any(out_known):
        return None
    # the predicate must be known: it may read known operands, and the carries that the known part has
    step_reads = [takes[k - 1] for k in parts.takes if isinstance(k, int) and k]
    test_body, is_read = drop_unread_operands(remove_dead_eqns(with_outs(test.jaxpr, [predicate])))
    operands = zip(layout.operand_indices(test_at), is_read, strict=True)
    test_reads = [p for p, r in operands if r and not in_step]
    if not all([p in step_reads if p in carries else have[p] for p in test_reads]):
        return None
    # the known part: the loop over known operands, with the count as one more carry, the last one
    count, n_carry = len(have), parts.known.n_carry
    wanted = [{*(step_reads if g in step.operands else ()), *test_reads} for g in range(len(layout.operands))]
    groups = [[p for p in layout.operands_of(g) if p in wanted[g]] for g in range(len(layout.operands))]
    groups[step.operands[1]].append(count)
    types = {count: INT32_SCALAR}
    for k in layout.running:
        types.update(zip(layout.operand_indices(k), prim.bodies[k].in_avals, strict=True))
    step_body = rebind_operands(parts.known.body, step_reads, step.operands, groups, types=types)
    n_rows = len(step_body.outs) - n_carry - in_step
    bodies = {step_at: _counting(step_body, n_carry, sum(out_known) if in_step else None)}
    if not in_step:
        bodies[test_at] = rebind_operands(test_body, test_reads, test.operands, groups, types=types)
    return SplitEqn(
        prim.rebuild(tuple([bodies[k] for k in layout.running]), tuple(map(len, groups)), (n_carry + 1, n_rows)),
        parts.unknown,
        tuple([Lit.zero(INT32_SCALAR) if p == count else p for group in groups for p in group]),
        # the count comes before the rows, and the predicate was the last known row
        tuple([takes[p - 1] if p > 0 else ~n_carry if p == 0 else p - 1 + in_step for p in parts.reads]),
        out_known,
        tuple([k + (k >= n_carry) for k in range(sum(out_known))]),
    )


def _counting(body: Jaxpr, n_carry: int, predicate: int | None = None) -> Jaxpr:
    """Returns a body that returns its last operand, plus 1, after its `n_carry` carries; and the result number
    `predicate`, if there is one, first."""
    b = Builder.like(body)
    outs = list(b.inline(body, b.ins))
    go = [] if predicate is None else [outs.pop(predicate)]
    return b.build((*go, *outs[:n_carry], b.one(ADD, b.ins[-1], Lit.of(1, INT32_SCALAR)), *outs[n_carry:]), body.name)
