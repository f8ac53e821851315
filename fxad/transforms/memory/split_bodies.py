"""Partial evaluation of equations with bodies: splits an equation into a known and an unknown one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import rebind_operands
from fxad.core.layout import BranchIndex, Carry, Constant, Count, Layout, OneOf, Slice
from fxad.ir import Atom, HigherOrder, Jaxpr, Primitive, Var
from fxad.primitives.control.bodies import assign_slots, shared_slots, with_outs, with_slot_operands, with_slot_results
from fxad.primitives.control.loop_steps import rearrange_operands

Marks: TypeAlias = tuple[bool, ...]


@final
@dataclass(frozen=True, slots=True)
class Body:
    """A body in two parts. `known`: known operands -> the results marked in `out_known`, then residuals. `unknown`:
    residuals, then the other operands -> the other results."""

    known: Jaxpr
    unknown: Jaxpr
    out_known: Marks

    @property
    def residuals(self) -> tuple[Atom, ...]:
        """The residuals, as values of `known`."""
        return self.known.outs[sum(self.out_known) :]

    def without(self, out_known: Marks) -> Body:
        """Returns the two parts with fewer known results. `unknown` returns the removed ones: literals as they are, the
        others as further residuals."""
        if out_known == self.out_known:
            return self
        given = dict(zip([k for k, known in enumerate(self.out_known) if known], self.known.outs, strict=False))
        removed = {k: a for k, a in given.items() if not out_known[k]}
        later = [k for k, a in removed.items() if isinstance(a, Var)]
        outs = [given[k] for k, known in enumerate(out_known) if known]
        first = with_outs(self.known, (*outs, *self.residuals, *[given[k] for k in later]))
        n, b = len(self.residuals), Builder()
        held = b.inputs(self.unknown.in_avals[:n])
        late = {**removed, **dict(zip(later, b.inputs([given[k].aval for k in later]), strict=True))}
        rest = iter(b.inline(self.unknown, (*held, *b.inputs(self.unknown.in_avals[n:]))))
        results = [late[k] if k in late else next(rest) for k, known in enumerate(out_known) if not known]
        return Body(first, b.build(results, self.unknown.name), out_known)

    @property
    def idle(self) -> bool:
        """Is True if the known part has no equations and no results."""
        return not self.known.eqns and not any(self.out_known)


Halve: TypeAlias = Callable[[Jaxpr, Marks], Body]


@final
@dataclass(frozen=True, slots=True)
class Apart:
    """An equation in two parts. `known` takes the operands with the numbers `takes`, and returns the results marked in
    `out_known`, then residuals. `unknown` takes the values in `reads` and returns the other results. A number k >= 0 in
    `reads` is an operand of the equation; ~k is residual k of `known`."""

    known: Primitive
    unknown: Primitive
    takes: tuple[int, ...]
    reads: tuple[int, ...]
    out_known: Marks


def apart(prim: Primitive, have: Marks, halve: Halve) -> Apart | None:
    """Splits an equation whose marked operands are known. Returns None if it is known or unknown as a whole.

    Not split are a loop that ends by a predicate, a branch on an unknown index, a function with custom rules, and an
    equation with an effect.
    """
    if prim.effects or all(have) or not isinstance(prim, HigherOrder):
        return None
    layout = prim.layout
    decides = [h for h, role in zip(have, layout.operand_roles, strict=True) if isinstance(role, BranchIndex | Count)]
    if not layout.transparent or not all(decides) or layout.has_predicate:
        return None
    runs = [layout.bodies[k].runs for k in layout.running]
    if layout.once is not None:
        found = _once(prim, layout, have, halve)
    elif all([isinstance(r, OneOf) for r in runs]):
        found = _branches(prim, layout, have, halve)
    else:
        found = _loop(prim, layout, have, halve) if len(runs) == 1 else None
    # without a known operand, only known results are worth an equation of their own
    return found if found is None or any(have) or any(found.out_known) else None


def _places(marks: Sequence[bool], wanted: bool) -> list[int]:
    return [k for k, m in enumerate(marks) if m is wanted]


def _once(prim: HigherOrder, layout: Layout, have: Marks, halve: Halve) -> Apart | None:
    """Splits an equation whose body runs once. Its residuals are the first operands of the unknown part."""
    if len(layout.operands) != 1 or len(layout.results) != 1:
        return None
    body = halve(layout.bodies[0].jaxpr, have)
    if body.idle:
        return None
    further = [~k for k in range(len(body.residuals))]
    return Apart(
        prim.rebuild((body.known,), (len(body.known.ins),), (len(body.known.outs),)),
        prim.rebuild((body.unknown,), (len(body.unknown.ins),), (len(body.unknown.outs),)),
        tuple(_places(have, True)),
        (*further, *_places(have, False)),
        body.out_known,
    )


def _branches(prim: HigherOrder, layout: Layout, have: Marks, halve: Halve) -> Apart | None:
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
    further = [~k for k in range(len(places))]
    return Apart(
        prim.rebuild(tuple(known), (1, len(takes) - 1), (n + len(places),)),
        prim.rebuild(tuple(unknown), (1, len(others) + len(places)), (len(out_known) - n,)),
        tuple(takes),
        (0, *others, *further),
        out_known,
    )


def _residuals_last(body: Body) -> Jaxpr:
    n = len(body.residuals)
    return rearrange_operands(body.unknown, (*range(n, len(body.unknown.ins)), *range(n)), body.unknown.outs)


def _loop(prim: HigherOrder, layout: Layout, have: Marks, halve: Halve) -> Apart | None:
    """Splits a loop. A carry is known if every run computes a known value for it. A residual that is a constant or a
    slice is read from the operand. The other residuals are stacked along the first axis, in the last groups of operands
    and results."""
    (at,) = layout.running
    parts, takes, gives = layout.bodies[at], layout.operand_indices(at), layout.result_indices(at)
    last, last_result = len(layout.operands) - 1, len(layout.results) - 1
    if parts.operands[-1:] != (last,) or parts.results[-1:] != (last_result,):
        return None
    if layout.operands[-1].role != Slice(0) or layout.results[-1].role != Slice(0):
        return None
    carries, marks = layout.carries, list(have)
    while True:
        body = halve(parts.jaxpr, tuple([marks[p] for p in takes]))
        known = dict(zip(gives, body.out_known, strict=True))
        fewer = [p for p, q in carries.items() if marks[p] and not known[q]]
        if not fewer:
            break
        for p in fewer:
            marks[p] = False
    known.update({q: marks[p] for p, q in carries.items()})
    body = body.without(tuple([known[q] for q in gives]))
    if body.idle:
        return None
    mine, others = [p for p in takes if marks[p]], [p for p in takes if not marks[p]]
    operand = dict(zip(body.known.ins, mine, strict=True))
    of_known = [[p for p in layout.operands_of(g) if marks[p]] for g in range(last + 1)]
    of_unknown: list[list[int]] = [[] for _ in layout.operands]
    roles, stacked = layout.operand_roles, list[Atom]()
    handed: list[int] = []  # for each residual: its operand of the equation, or ~k for stacked residual k
    for a in body.residuals:
        place = operand.get(a) if isinstance(a, Var) else None
        if place is None or isinstance(roles[place], Carry):
            place = ~len(stacked)
            stacked.append(a)
        handed.append(place)
        of_unknown[last if place < 0 else next(g for g in parts.operands if place in layout.operands_of(g))].append(
            place
        )
    for g, group in enumerate(layout.operands):
        decides = isinstance(group.role, Count)
        of_unknown[g] += [p for p in layout.operands_of(g) if not marks[p] or decides]
    first = rebind_operands(body.known, mine, parts.operands, of_known)
    first = with_outs(first, (*first.outs[: sum(body.out_known)], *_outs_of(first, body, stacked)))
    second = rebind_operands(body.unknown, (*handed, *others), parts.operands, of_unknown)
    sizes = [[known[q] for q in layout.results_of(g)] for g in range(last_result + 1)]
    n_known, n_unknown = [m.count(True) for m in sizes], [m.count(False) for m in sizes]
    n_known[-1] += len(stacked)
    return Apart(
        prim.rebuild((first,), tuple(map(len, of_known)), tuple(n_known)),
        prim.rebuild((second,), tuple(map(len, of_unknown)), tuple(n_unknown)),
        tuple([p for group in of_known for p in group]),
        tuple([p for group in of_unknown for p in group]),
        tuple([known[q] for q in range(len(known))]),
    )


def _outs_of(first: Jaxpr, body: Body, values: Sequence[Atom]) -> list[Atom]:
    """Returns the residuals of a body as results of the program `first`."""
    n = sum(body.out_known)
    return [first.outs[n + body.residuals.index(a)] for a in values]
