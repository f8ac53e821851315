"""Programs on symbolic values: equation by equation, bodies by their layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, final

import numpy as np

from fxad.core.interpreter import array_of, run_with, steps
from fxad.core.layout import BranchIndex, Count, Layout, OneOf, Sliced, UpTo
from fxad.diagnosis.equality.assumptions import READS_BITS
from fxad.diagnosis.equality.bits import case_of, less
from fxad.diagnosis.equality.domain import ExactValue, ProofDomain, Symbolic, kind_of
from fxad.diagnosis.equality.rules import HasDefinition, apply
from fxad.dtypes import DType
from fxad.errors import FxadError, first_line
from fxad.ir import Aval, Eqn, HigherOrder, Jaxpr, Lit, SourceLocation, source_location
from fxad.primitives.check import Check

_MAX_STEPS: Final = 100_000  # greatest number of steps of a loop whose predicate no operand decides
_MAX_CHOSEN_STEPS: Final = 256  # greatest number of steps of a loop where operands decide the number

# Called after each equation of the program itself, with its results.
ObserveResults: TypeAlias = Callable[[Eqn, Sequence[ExactValue]], None]


@final
class UndecidedError(Exception):
    """The domain has no values for the results of an equation."""

    def __init__(self, reason: str, equation: str = "", source: SourceLocation | None = None) -> None:
        super().__init__(reason)
        self.reason, self.equation, self.source = reason, equation, source


def evaluate(
    domain: ProofDomain, jaxpr: Jaxpr, args: Sequence[ExactValue], observe: ObserveResults | None = None
) -> list[ExactValue]:
    """Return the results of a program.

    Raises: UndecidedError for an equation without values.
    """

    def results_of(k: int, eqn: Eqn, operands: list[ExactValue]) -> Sequence[ExactValue]:
        try:
            outs = _remembered(domain, eqn, operands)
        except UndecidedError as e:
            if not e.equation:
                e.equation = f"equation {k} ({eqn.prim.name}) of {jaxpr.name}"
                e.source = source_location(eqn.source)
            raise
        if observe is not None:
            observe(eqn, outs)
        return outs

    return run_with(jaxpr, args, results_of, array_of)


def values_and_effects(
    domain: ProofDomain, jaxpr: Jaxpr, args: Sequence[ExactValue], observe: ObserveResults | None = None
) -> tuple[list[ExactValue], list[object]]:
    """Return the results of a program, and its effects in order. Raises: as `evaluate`."""
    domain.effects = []
    return evaluate(domain, jaxpr, args, observe), domain.effects


def _remembered(domain: ProofDomain, eqn: Eqn, args: list[ExactValue]) -> Sequence[ExactValue]:
    """Return the results of an equation, which are computed once for the same primitive and the same operands of the
    same types: programs that are compared have most equations in common, and a recomputation has all of them."""
    if eqn.prim.effects:
        return _results(domain, eqn, args)
    key = eqn.prim, tuple([a if isinstance(a, Lit) else (id(x), a.aval) for a, x in zip(eqn.ins, args, strict=True)])
    found = domain.remembered.get(key)
    if found is None:
        before = domain.noted
        outs = _results(domain, eqn, args)
        if domain.noted > before:
            return outs  # the other program has to note them too
        size = sum([x.residues.nbytes if isinstance(x, Symbolic) else x.nbytes for x in outs])
        if size > domain.memory:
            return outs
        domain.memory -= size
        found = domain.remembered[key] = args, outs  # the operands live as long as their identities are compared
    return found[1]


def _results(domain: ProofDomain, eqn: Eqn, args: list[ExactValue]) -> Sequence[ExactValue]:
    prim, ins, outs = eqn.prim, [a.aval for a in eqn.ins], [v.aval for v in eqn.outs]
    if isinstance(prim, HigherOrder):
        layout = prim.layout
        if layout.states_results:
            return _by_layout(domain, layout, args, ins, outs)
    if isinstance(prim, Check):
        if isinstance(args[0], Symbolic) or args[0].any():  # another one never fails
            _note_effect(domain, eqn, args)
        return args[1 + prim.n_fields :]  # after the predicate and the values of its message
    if isinstance(prim, HasDefinition) and domain.interpreted:
        return evaluate(domain, prim.definition(*ins), args)
    if prim.effects:
        _note_effect(domain, eqn, args)
        return [
            domain.function_of_rows(
                f"effect {len(domain.effects)} {k}", np.zeros(1, np.int64), a.shape, *kind_of(a.dtype)
            )
            for k, a in enumerate(outs)
        ]
    try:
        return apply(domain, prim, args, tuple(ins), tuple(outs))
    except FxadError as e:  # such as a primitive of a mesh that runs outside of it
        raise UndecidedError(f"its meaning is not known: {first_line(e)}") from e


def _note_effect(domain: ProofDomain, eqn: Eqn, args: Sequence[ExactValue]) -> None:
    """Record an effect: programs are equal only if they have the same effects, in the same order, of operands of the
    same types, which the host sees. A check that is repeated has none."""
    keys = [domain.digest("effect", domain.lift(x).residues.reshape(-1)).tobytes() for x in args]
    effect = domain.named(eqn.prim), tuple([a.aval for a in eqn.ins]), tuple(keys)
    domain.noted += 1
    if domain.interpreted and not isinstance(eqn.prim, Check) and any([a.aval.inexact for a in eqn.ins]):
        domain.assumptions.add(READS_BITS)
    if not isinstance(eqn.prim, Check) or effect not in domain.effects:
        domain.effects.append(effect)


# ---------------------------------------------------------------------------------------------------- bodies by layout


def _by_layout(
    domain: ProofDomain, layout: Layout, args: list[ExactValue], ins: Sequence[Aval], outs: Sequence[Aval]
) -> list[ExactValue]:
    branches = [k for k in layout.running if type(layout.bodies[k].runs) is OneOf]
    if not branches and layout.once is None:
        return _loop(domain, layout, args, ins, outs)
    at = layout.once
    if branches:
        p = next(p for p, role in enumerate(layout.operand_roles) if isinstance(role, BranchIndex))
        which = args[p]
        if isinstance(which, Symbolic):
            return _all_branches(domain, layout, branches, which, args, ins[p].dtype)
        at = branches[int(np.clip(which, 0, len(branches) - 1))]
    assert at is not None, "without branches, one body runs once"
    return _run(domain, layout, at, args)


def _run(domain: ProofDomain, layout: Layout, k: int, args: Sequence[ExactValue]) -> list[ExactValue]:
    values = evaluate(domain, layout.bodies[k].jaxpr, [args[p] for p in layout.operand_indices(k)])
    results = dict(zip(layout.result_indices(k), values, strict=True))
    return [results[q] for q in range(len(results))]


def _all_branches(
    domain: ProofDomain,
    layout: Layout,
    branches: Sequence[int],
    which: Symbolic,
    args: Sequence[ExactValue],
    dtype: DType,
) -> list[ExactValue]:
    """Return the results of branches of which operands select one: all run, and the index selects results."""
    before = len(domain.effects)
    results = [[domain.lift(x) for x in _run(domain, layout, k, args)] for k in branches]
    if len(domain.effects) > before:
        raise UndecidedError("operands decide which effects happen")
    return [_joined(domain, which, cases, dtype) for cases in zip(*results, strict=True)]


def _joined(domain: ProofDomain, which: Symbolic, cases: Sequence[Symbolic], dtype: DType) -> Symbolic:
    if domain.interpreted:
        shaped = which.like(which.residues.reshape(*[1] * len(cases[0].shape), -1), which.bit)
        return case_of(domain, shaped, cases, dtype)
    spread = np.broadcast_to(which.residues, (*cases[0].shape, which.residues.shape[-1]))
    return domain.function(f"branch {dtype}", [which.like(spread), *cases], cases[0].is_complex)


def _loop(
    domain: ProofDomain, layout: Layout, args: Sequence[ExactValue], ins: Sequence[Aval], outs: Sequence[Aval]
) -> list[ExactValue]:
    """Return the results of a loop. While operands decide whether a step is made, its results are chosen by that.

    `active` is the condition for the body that runs next, and None if it runs for all operands. A `while` of a body for
    its predicate and a body for its step, whose predicates are p0 and p1:

        step  body       active, and so `present`    after it, `going_on`
        0     predicate  None                        p0
        0     step       p0                          p0
        1     predicate  p0                          p0 and p1
        1     step       p0 and p1                   p0 and p1

    A loop of a count n that operands decide has 0 < n, 1 < n, ... in place of None, p0, ...
    """
    carries, roles, state = layout.carries, layout.operand_roles, list(args)
    rows: dict[int, dict[int, ExactValue]] = {q: {} for q, r in enumerate(layout.result_roles) if isinstance(r, Sliced)}
    going_on: Symbolic | None = None  # the product of the predicates so far; None: all hold for all operands
    chosen = 0
    limit = next(((x, a.dtype) for x, a, role in zip(args, ins, roles, strict=True) if isinstance(role, Count)), None)
    count = None if limit is None else limit[0]
    ended = False  # by the predicate
    for made, step in enumerate(_steps(layout, count)):
        if made >= _MAX_STEPS:
            raise UndecidedError(f"the loop made {_MAX_STEPS} steps and did not end")
        active = going_on  # None: the step is made for all operands
        if limit is not None and isinstance(count, Symbolic):
            counted = less(domain, domain.constant(made), count, limit[1])
            active = counted if active is None else _both(domain, active, counted)
        if active is not None:
            chosen += 1
            if chosen > _MAX_CHOSEN_STEPS:
                raise UndecidedError(f"operands decide the number of steps, which may be more than {_MAX_CHOSEN_STEPS}")
            if not domain.interpreted:
                raise UndecidedError("operands decide the number of steps")
        for k in layout.running:
            before = len(domain.effects)
            values = evaluate(
                domain,
                layout.bodies[k].jaxpr,
                [_slice(state[p], roles[p], step) for p in layout.operand_indices(k)],
            )
            if active is not None and len(domain.effects) > before:
                raise UndecidedError("operands decide which effects happen")
            indices = layout.result_indices(k)
            present = active  # for what this body computes; the bodies behind a predicate run where it holds
            for q, x in zip(indices, values, strict=True):
                if q is None:
                    if isinstance(x, Symbolic):
                        active = going_on = x if active is None else _both(domain, active, x)
                    else:
                        ended = not np.all(x)
                elif q in rows:
                    zero = np.zeros(x.shape, outs[q].dtype)
                    rows[q][step] = x if present is None else _chosen(domain, present, zero, x)
            for p, q in carries.items():
                if q in indices:
                    x = values[indices.index(q)]
                    state[p] = x if present is None else _chosen(domain, present, state[p], x)
            if ended:
                break
        if ended:
            break
    results: list[ExactValue] = []
    sources = {q: p for p, q in carries.items()}
    for q, aval in enumerate(outs):
        results.append(state[sources[q]] if q in sources else _stacked(domain, rows[q], aval, layout.result_roles[q]))
    return results


def _both(domain: ProofDomain, x: Symbolic, y: Symbolic) -> Symbolic:
    both = domain.mul(x, y)
    both.bit = True
    return both


def _chosen(domain: ProofDomain, active: Symbolic, old: ExactValue, new: ExactValue) -> ExactValue:
    a, b = domain.lift(old), domain.lift(new)
    return domain.choose(active.like(active.residues.reshape(*[1] * len(b.shape), -1)), a, b)


def _steps(layout: Layout, count: ExactValue | None) -> Iterable[int]:
    if not isinstance(count, Symbolic):
        return steps(layout, None if count is None else int(count))
    runs = layout.bodies[layout.running[-1]].runs
    if isinstance(runs, UpTo) and runs.reverse:
        raise UndecidedError("operands decide the number of steps of a reversed loop")
    return steps(layout, None)


def _slice(x: ExactValue, role: object, step: int) -> ExactValue:
    if not isinstance(role, Sliced):
        return x
    at = (slice(None),) * role.axis + (step,)
    return x.like(x.residues[at], x.bit) if isinstance(x, Symbolic) else x[at]


def _stacked(domain: ProofDomain, rows: dict[int, ExactValue], aval: Aval, role: object) -> ExactValue:
    """Return the slices of the steps as one array; those of steps that were not made are zero."""
    assert isinstance(role, Sliced)
    n = aval.shape[role.axis]
    known = {k: x for k, x in rows.items() if not isinstance(x, Symbolic)}
    if len(known) == len(rows):
        out = np.zeros(aval.shape, aval.dtype)
        for k, row in known.items():
            out[(slice(None),) * role.axis + (k,)] = row
        return out
    parts = [domain.lift(x) for x in rows.values()]
    is_complex = any([x.is_complex for x in parts])
    shape = (*aval.shape[: role.axis], *aval.shape[role.axis + 1 :])
    lifted = dict(zip(rows, parts, strict=True))
    zero = np.zeros((*shape, domain.points * (1 + is_complex)), np.int64)
    filled = [
        (domain.complex(*domain.parts(lifted[k])) if is_complex else lifted[k]).residues if k in lifted else zero
        for k in range(n)
    ]
    degree, level = max([x.degree for x in parts]), max([x.level for x in parts])
    return Symbolic(np.stack(filled, role.axis), is_complex, degree, level, all([x.bit for x in parts]))
