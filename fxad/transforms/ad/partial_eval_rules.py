"""Partial evaluation rules of equations with bodies: an equation is split into a known and an unknown one.

For example, w and x are known and y is unknown, in

    c, d, zs = scan[(w, c, d, x) -> let e = exp(c), c' = e * w, d' = d * x + e in (c', d', e)] w c0 y xs

The carry c is known, because each step computes it from known values; the carry d is not. The unknown step reads the
residual e, which is stacked, and x, which is a slice of an operand:

    c, zs, es = scan[(w, c, x) -> let e = exp(c), c' = e * w in (c', e, e)] w c0 xs
    d         = scan[(d, x, e) -> d * x + e] y xs es

The operands w, c0, y, xs have the numbers 0 to 3. So the `SplitEqn` has `known_operands` (0, 1, 3), `unknown_operands`
(2, 3, ~2), because es is result 2 of the known scan, `out_known` (True, False, True) and `known_results` (0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from fxad.core.builder import Builder, rebind_operands
from fxad.core.dataclasses import dataclass
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.core.layout import PREDICATE, BranchIndex, Carry, Constant, Count, Layout, OneOf, Slice, Unknown
from fxad.core.masks import select_by_mask, split_by_mask
from fxad.ir import INT32_SCALAR, Atoms, Aval, HigherOrder, Jaxpr, Lit, Mask, Primitive, SourceLocation, Var
from fxad.primitives.control.bodies import (
    assign_slots,
    rotate_operands,
    shared_slots,
    with_outs,
    with_slot_operands,
    with_slot_results,
)
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import ADD


@final
@dataclass(frozen=True, slots=True)
class PassedValue:
    """A residual, which the first program returns and the second reads: its name (the `checkpoint_name`, or the name of
    the operation that computes it with a number), its type and the user's line."""

    name: str
    aval: Aval
    where: SourceLocation | None


@final
@dataclass(frozen=True, slots=True)
class Halves:
    """A program in two parts. `known`: known operands -> the results marked in `out_known`, then residuals. `unknown`:
    residuals, then the other operands -> the other results. `residuals` describes the residuals."""

    known: Jaxpr
    unknown: Jaxpr
    residuals: tuple[PassedValue, ...]
    out_known: Mask

    @property
    def residual_atoms(self) -> Atoms:
        """The residuals, as atoms of `known`."""
        return self.known.outs[sum(self.out_known) :]

    def keeping(self, out_known: Mask) -> Halves:
        """Returns the two parts with the marked ones of the known results. `unknown` returns the removed ones: literals
        as they are, the others as further residuals."""
        if out_known == self.out_known:
            return self
        known_results = dict(zip(select_by_mask(range(len(out_known)), self.out_known), self.known.outs, strict=False))
        removed = {k: a for k, a in known_results.items() if not out_known[k]}
        later = {k: a for k, a in removed.items() if isinstance(a, Var)}
        outs = [a for k, a in known_results.items() if out_known[k]]
        first = with_outs(self.known, (*outs, *self.residual_atoms, *later.values()))
        n, b = len(self.residuals), Builder()
        residuals = b.inputs(self.unknown.in_avals[:n])
        late = {**removed, **dict(zip(later, b.inputs([a.aval for a in later.values()]), strict=True))}
        rest = iter(b.inline(self.unknown, (*residuals, *b.inputs(self.unknown.in_avals[n:]))))
        results = [late[k] if k in late else next(rest) for k, known in enumerate(out_known) if not known]
        more = [PassedValue(f"result {k}", a.aval, None) for k, a in later.items()]
        return Halves(first, b.build(results, self.unknown.name), (*self.residuals, *more), out_known)

    @property
    def nothing_known(self) -> bool:
        """Is True if the known part has no equations and no results."""
        return not self.known.eqns and not any(self.out_known)


# Partial evaluation of a body, given the mask of its known operands.
Split: TypeAlias = Callable[[Jaxpr, Mask], Halves]


@final
@dataclass(frozen=True, slots=True)
class SplitEqn:
    """An equation in two parts, `known` and `unknown`.

    known_operands:   for each operand of `known`, the number of an operand of the equation, or a literal.
    unknown_operands: for each operand of `unknown`, the number k >= 0 of an operand of the equation, or ~k for result k
                      of `known`.
    out_known:        marks the results of the equation that `known` computes. `unknown` returns the others.
    known_results:    for each of the marked results, the number of a result of `known`.
    """

    known: Primitive
    unknown: Primitive
    known_operands: tuple[int | Lit, ...]
    unknown_operands: tuple[int, ...]
    out_known: Mask
    known_results: tuple[int, ...]


def split_eqn(prim: Primitive, in_known: Mask, split_body: Split) -> SplitEqn | None:
    """Splits an equation whose marked operands are known. Returns None if it is known or unknown as a whole.

    Not split are a loop without a bound or with an unknown predicate, a branch on an unknown index, a function with
    custom rules, and an equation with an effect.
    """
    if prim.effects or all(in_known) or not isinstance(prim, HigherOrder):
        return None
    layout = prim.layout
    roles = zip(in_known, layout.operand_roles, strict=True)
    control_known = all([known for known, role in roles if isinstance(role, BranchIndex | Count)])
    if not layout.transparent or not control_known:
        return None
    runs = [layout.bodies[k].runs for k in layout.running]
    if layout.has_predicate:
        parts = _bounded_loop(prim, layout, in_known, split_body)
    elif layout.once is not None:
        parts = _once(prim, layout, in_known, split_body)
    elif all([isinstance(r, OneOf) for r in runs]):
        parts = _branches(prim, layout, in_known, split_body)
    else:
        parts = _loop(prim, layout, in_known, split_body) if len(runs) == 1 else None
    # without a known operand, only known results are worth an equation of their own
    return parts if parts is None or any(in_known) or any(parts.out_known) else None


def _once(prim: HigherOrder, layout: Layout, in_known: Mask, split_body: Split) -> SplitEqn | None:
    """Splits an equation whose body runs once. Its residuals are the first operands of the unknown part."""
    if len(layout.operands) != 1 or len(layout.results) != 1:
        return None
    body = split_body(layout.bodies[0].jaxpr, in_known)
    if body.nothing_known:
        return None
    n_known = sum(body.out_known)
    residuals = [~k for k in range(n_known, len(body.known.outs))]
    known_ins, unknown_ins = split_by_mask(range(len(in_known)), in_known)
    return SplitEqn(
        prim.rebuild((body.known,), (len(body.known.ins),), (len(body.known.outs),)),
        prim.rebuild((body.unknown,), (len(body.unknown.ins),), (len(body.unknown.outs),)),
        known_ins,
        (*residuals, *unknown_ins),
        body.out_known,
        tuple(range(n_known)),
    )


def _branches(prim: HigherOrder, layout: Layout, in_known: Mask, split_body: Split) -> SplitEqn | None:
    """Splits each branch. Branches share the slots of their residuals, as in derivatives."""
    if [type(g.role) for g in layout.operands] != [BranchIndex, Constant] or len(layout.results) != 1:
        return None
    if any([(body.operands, body.results) != ((1,), (0,)) for body in layout.bodies]):
        return None
    bodies = [split_body(branch.jaxpr, in_known[1:]) for branch in layout.bodies]
    out_known = tuple([all(marks) for marks in zip(*[body.out_known for body in bodies], strict=True)])
    bodies = [body.keeping(out_known) for body in bodies]
    if all([body.nothing_known for body in bodies]):
        return None
    n_known = sum(out_known)
    slots = shared_slots([[r.aval for r in body.residuals] for body in bodies])
    known_branches = [
        with_slot_results(body.known, n_known, assign_slots(body.residual_atoms, slots), slots) for body in bodies
    ]
    known_ins, unknown_ins = split_by_mask(range(len(in_known)), in_known)
    unknown_branches = [
        with_slot_operands(rotate_operands(body.unknown, len(body.residuals)), len(unknown_ins), slots)
        for body in bodies
    ]
    residuals = [~(n_known + k) for k in range(len(slots))]
    return SplitEqn(
        prim.rebuild(tuple(known_branches), (1, len(known_ins) - 1), (n_known + len(slots),)),
        prim.rebuild(tuple(unknown_branches), (1, len(unknown_ins) + len(slots)), (len(out_known) - n_known,)),
        known_ins,
        (0, *unknown_ins, *residuals),
        out_known,
        tuple(range(n_known)),
    )


def _loop(prim: HigherOrder, layout: Layout, in_known: Mask, split_body: Split) -> SplitEqn | None:
    """Splits a loop. A carry is known if every run computes a known value for it. A residual that is a constant or a
    slice is read from the operand. The other residuals are stacked along the first axis, in the last groups of operands
    and results."""
    (at,) = layout.running
    last, last_result = len(layout.operands) - 1, len(layout.results) - 1
    if layout.bodies[at].operands[-1:] != (last,) or layout.bodies[at].results[-1:] != (last_result,):
        return None
    if layout.operands[-1].role != Slice(0) or layout.results[-1].role != Slice(0):
        return None
    operand_known, step = _split_step(layout, at, in_known, split_body)
    if step.nothing_known:
        return None
    body, takes = layout.bodies[at], layout.operand_indices(at)
    known_ins, unknown_ins = split_by_mask(takes, [operand_known[p] for p in takes])
    known_groups = [[p for p in layout.operands_of(g) if operand_known[p]] for g in range(last + 1)]
    residuals, stacked = _places_of_residuals(layout, step, known_ins)
    unknown_groups: list[list[int]] = [[] for _ in layout.operands]
    group_of = {p: g for g in body.operands for p in layout.operands_of(g)}
    for p in residuals:
        unknown_groups[last if p < 0 else group_of[p]].append(p)
    for g, group in enumerate(layout.operands):
        in_both = isinstance(group.role, Count)
        unknown_groups[g] += [p for p in layout.operands_of(g) if not operand_known[p] or in_both]
    n_known_outs = sum(step.out_known)
    known_outs = (*step.known.outs[:n_known_outs], *[step.residual_atoms[k] for k in stacked])
    known_body = rebind_operands(step.known, body.operands_in(known_groups), has=known_ins, outs=known_outs)
    unknown_body = rebind_operands(step.unknown, body.operands_in(unknown_groups), has=(*residuals, *unknown_ins))
    result_known = dict(zip(layout.result_indices(at), step.out_known, strict=True))
    known_by_group = [[result_known[q] for q in layout.results_of(g)] for g in range(last_result + 1)]
    n_known, n_unknown = [m.count(True) for m in known_by_group], [m.count(False) for m in known_by_group]
    n_known[-1] += len(stacked)
    return SplitEqn(
        prim.rebuild((known_body,), tuple(map(len, known_groups)), tuple(n_known)),
        prim.rebuild((unknown_body,), tuple(map(len, unknown_groups)), tuple(n_unknown)),
        tuple([p for group in known_groups for p in group]),
        # the stacked residuals are the last results of the known part
        tuple([p if p >= 0 else p - n_known_outs for group in unknown_groups for p in group]),
        tuple([result_known[q] for q in range(len(result_known))]),
        tuple(range(n_known_outs)),
    )


def _split_step(layout: Layout, at: int, in_known: Mask, split_body: Split) -> tuple[list[bool], Halves]:
    """Splits the step of a loop. Returns a mask of the operands of the loop whose value is known in every run, and the
    two parts of the step, of which the known one returns exactly the known carries and rows."""
    takes, gives = layout.operand_indices(at), layout.result_indices(at)
    operand_known = list(in_known)
    while True:
        step = split_body(layout.bodies[at].jaxpr, tuple([operand_known[p] for p in takes]))
        result_known = dict(zip(gives, step.out_known, strict=True))
        no_longer_known = [p for p, q in layout.carries.items() if operand_known[p] and not result_known[q]]
        if not no_longer_known:
            break
        for p in no_longer_known:
            operand_known[p] = False
    result_known.update({q: operand_known[p] for p, q in layout.carries.items()})
    return operand_known, step.keeping(tuple([result_known[q] for q in gives]))


def _places_of_residuals(layout: Layout, step: Halves, known_ins: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns the place of each residual of a step: the operand of the loop that it is, or ~k for stack k; and the
    residuals that are stacked. A carry is stacked, because each run has another value of it."""
    operand = dict(zip(step.known.ins, known_ins, strict=True))
    roles = layout.operand_roles
    places: list[int] = []
    stacked: list[int] = []
    for k, a in enumerate(step.residual_atoms):
        place = operand.get(a) if isinstance(a, Var) else None
        if place is None or isinstance(roles[place], Carry):
            place = ~len(stacked)
            stacked.append(k)
        places.append(place)
    return places, stacked


def _bounded_loop(prim: HigherOrder, layout: Layout, in_known: Mask, split_body: Split) -> SplitEqn | None:
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
    parts = _loop(scan, scan.layout, (True, *[in_known[p] for p in takes]), split_body)
    if parts is None or not isinstance(parts.known, Scan) or (in_step and not parts.out_known[-1]):
        return None
    out_known = parts.out_known[: len(parts.out_known) - in_step]
    if not parts.known.body.eqns and not any(out_known):
        return None
    # the predicate must be known: it may read known operands, and the carries that the known part has
    step_reads = [takes[k - 1] for k in parts.known_operands if isinstance(k, int) and k]
    test_body, is_read = drop_unread_operands(remove_dead_eqns(with_outs(test.jaxpr, [predicate])))
    operands = zip(layout.operand_indices(test_at), is_read, strict=True)
    test_reads = [p for p, r in operands if r and not in_step]
    if not all([p in step_reads if p in carries else in_known[p] for p in test_reads]):
        return None
    # the known part: the loop over known operands, with the count as one more carry, the last one
    count, n_carry = len(in_known), parts.known.n_carry
    wanted = [{*(step_reads if g in step.operands else ()), *test_reads} for g in range(len(layout.operands))]
    groups = [[p for p in layout.operands_of(g) if p in wanted[g]] for g in range(len(layout.operands))]
    groups[step.operands[1]].append(count)
    types = {count: INT32_SCALAR}
    for k in layout.running:
        types.update(zip(layout.operand_indices(k), prim.bodies[k].in_avals, strict=True))
    step_body = rebind_operands(parts.known.body, step.operands_in(groups), has=step_reads, types=types)
    n_rows = len(step_body.outs) - n_carry - in_step
    bodies = {step_at: _counting(step_body, n_carry, sum(out_known) if in_step else None)}
    if not in_step:
        bodies[test_at] = rebind_operands(test_body, test.operands_in(groups), has=test_reads, types=types)
    return SplitEqn(
        prim.rebuild(tuple([bodies[k] for k in layout.running]), tuple(map(len, groups)), (n_carry + 1, n_rows)),
        parts.unknown,
        tuple([Lit.zero(INT32_SCALAR) if p == count else p for group in groups for p in group]),
        # the count comes before the rows, and the predicate was the last known row
        tuple([takes[p - 1] if p > 0 else ~n_carry if p == 0 else p - 1 + in_step for p in parts.unknown_operands]),
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
