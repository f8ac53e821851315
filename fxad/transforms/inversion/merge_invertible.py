"""`merge_invertible` merges chains of `invertible` calls.

If the second call reconstructs the results of the first, the two become one.

With `for b in blocks: x = invertible(b)(x)`, each call stores its results, although the next call reconstructs them. So
the calls are merged before the program is linearized, and only the results that leave the chain are stored. A loop
whose steps are such calls becomes one `invertible` loop.

Example, where f, g and h are `invertible` calls:

    a = f x                   one group {f, g}: g reconstructs a from b
    b = g a
    s = sum b                 an equation that is not reversible
    c = h b s                 h keeps s; it reconstructs b

`h` reconstructs b, a result of the group {f, g}. But it also reads s, which is computed from the group by an equation
outside of it. One equation for all three would depend on its own result, so h has a group of its own.
`_MergedGroup.after` lists the groups on which a group depends, and `_depends_on` finds such cycles.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import final

from fxad.core.builder import Builder, live_ins, rewrite, single_equation, subprogram, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Var
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import CallWithRules, has_reversible, has_reversible_in_bodies, reversible
from fxad.transforms.inversion.call_rules import (
    inverse_of_call,
    tolerance_of,
)
from fxad.transforms.inversion.invertible import invertible
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.solver import partial_inverse


def _tolerance(eqn: Eqn) -> float:
    """Return the tolerance of an `invertible` call; infinity for a `custom_ivjp`, which is not checked."""
    tolerance = tolerance_of(eqn.prim)
    return math.inf if tolerance is None else tolerance


def _kept_operands(eqn: Eqn) -> set[Atom]:
    inverse = inverse_of_call(eqn.prim)
    assert inverse is not None
    return {a for a, k in zip(eqn.ins, inverse.kept, strict=True) if k or not a.aval.inexact}


@by_value
def merge_invertible(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with each chain of `invertible` calls as one, also in bodies; the same program if it has
    none.

    Law:  same value; the same derivatives, within the error of the reconstruction; no more is stored.
    Cost: one pass.
    """
    if not has_reversible(jaxpr):
        return jaxpr
    flat = _merged_in_bodies(jaxpr)
    groups = _groups(flat)
    return _with_groups_merged(flat, groups) if any([len(g.members) > 1 for g in groups]) else flat


def _merged_in_bodies(jaxpr: Jaxpr) -> Jaxpr:
    """Merge chains in bodies, then inline calls of one reversible equation, and rewrite loops over one."""
    return rewrite(jaxpr, _merge_in_eqn)


def _merge_in_eqn(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not has_reversible_in_bodies(prim):
        return None
    prim = prim.with_bodies(tuple(map(merge_invertible, prim.bodies)))
    # only a plain call can be inlined
    if isinstance(prim, Call) and len(prim.body.eqns) == 1 and reversible(prim.body.eqns[0].prim):
        return b.inline(prim.body, ins)
    # a chain of equal steps is a `scan`: other loops do not tell how often they ran
    loop = _as_invertible_loop(eqn, prim) if isinstance(prim, Scan) else None
    return b.inline(loop, ins) if loop else b(prim, *ins)


def _as_invertible_loop(eqn: Eqn, prim: Scan) -> Jaxpr | None:
    """Return an `invertible` loop if one reversible equation per step computes all inexact carries; None otherwise."""
    moves = tuple([a.inexact for a in prim.steps.split(prim.body.in_avals)[1]])
    carries = set(select_by_flags(prim.steps.split(prim.body.ins)[1], moves))
    readers = [e for e in prim.body.eqns if not carries.isdisjoint(e.ins)]
    if len(readers) != 1 or not reversible(readers[0].prim) or not carries.isdisjoint(_kept_operands(readers[0])):
        return None
    if any([a not in readers[0].outs for a in select_by_flags(prim.body.outs[: prim.n_carry], moves)]):
        return None
    body = single_equation(prim, [a.aval for a in eqn.ins], prim.body.name)
    start = len(prim.split_count(eqn.ins)[0]) + prim.n_consts
    reconstructed = {start + k for k, m in enumerate(moves) if m}
    kept = tuple([k not in reconstructed for k in range(len(body.ins))])
    solved = partial_inverse(body, kept, (True,) * len(body.outs), INVERSE_RULES).solved
    if not all([s or k for s, k in zip(solved, kept, strict=True)]):
        return None
    return invertible(body, kept, (), _tolerance(readers[0]))


# -------------------------------------------------------------------------------------------------------------- groups


@final
@dataclass(frozen=True, slots=True, eq=False)
class _MergedGroup:
    """Equations that become one. `after` are the groups that it depends on."""

    members: list[int]
    tolerance: float
    after: set[int] = field(default_factory=set)


def _groups(jaxpr: Jaxpr) -> list[_MergedGroup]:
    """Group reversible equations with those whose results they reconstruct, if no other equation lies between them."""
    groups: list[_MergedGroup] = []
    group_of: dict[Atom, int] = {}  # the group that computes a value
    depends_on: dict[Atom, frozenset[int]] = {}  # the groups on which a value depends, through ungrouped equations
    none: frozenset[int] = frozenset()
    before_effects = none  # the groups on which earlier effects depend: effects stay in order
    for k, eqn in enumerate(jaxpr.eqns):
        has_effects = bool(eqn.prim.effects)
        indirect = frozenset(
            (before_effects if has_effects else none).union(*[depends_on.get(a, none) for a in eqn.ins])
        )
        direct = {group_of[a] for a in eqn.ins if a in group_of}
        if has_effects:
            before_effects = indirect | direct
        if not reversible(eqn.prim):
            if indirect or direct:
                depends_on.update(dict.fromkeys(eqn.outs, indirect | direct))
            continue
        reconstructed = [a for a in eqn.ins if a in group_of and a not in _kept_operands(eqn)]
        for g in dict.fromkeys([group_of[a] for a in reversed(reconstructed)]):
            if groups[g].tolerance == _tolerance(eqn) and not _depends_on(groups, g, indirect | (direct - {g})):
                break
        else:
            g = len(groups)
            groups.append(_MergedGroup([], _tolerance(eqn)))
        groups[g].members.append(k)
        groups[g].after.update(indirect, direct - {g})
        group_of.update(dict.fromkeys(eqn.outs, g))
    return groups


def _depends_on(groups: list[_MergedGroup], g: int, start: set[int] | frozenset[int]) -> bool:
    """Return True if one of the groups in `start` is `g` or depends on it."""
    stack, seen = list(start), set[int]()
    while stack:
        h = stack.pop()
        if h == g:
            return True
        if h not in seen:
            seen.add(h)
            stack += groups[h].after
    return False


def _with_groups_merged(jaxpr: Jaxpr, groups: list[_MergedGroup]) -> Jaxpr:
    """Return the program with each group as one equation, in topological order."""
    group_of = {k: tuple(g.members) for g in groups for k in g.members}
    # an equation alone, or a group in the place of its last equation
    nodes = [group_of.get(k, (k,)) for k in range(len(jaxpr.eqns)) if group_of.get(k, (k,))[-1] == k]
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for node in _in_topological_order(jaxpr, nodes):
        eqns = [jaxpr.eqns[k] for k in node]
        b.source = eqns[-1].source
        if len(eqns) == 1:
            b.extend(eqns, env)
        else:
            operands, results, merged = _group_as_one(jaxpr, node)
            env.update(zip(results, b.inline(merged, substitute(operands, env)), strict=True))
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)


def _in_topological_order(jaxpr: Jaxpr, nodes: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Yield nodes, which are sets of equations, after those whose results they read. Nodes with effects stay in
    order, and so do nodes that do not depend on each other, as far as possible."""
    producer = {v: n for n, node in enumerate(nodes) for k in node for v in jaxpr.eqns[k].outs}
    readers: list[set[int]] = [set() for _ in nodes]
    n_waits_for: list[int] = []  # for each node, how many of those that it depends on have not been yielded
    last_with_effects: set[int] = set()
    for n, node in enumerate(nodes):
        waits_for = {producer[a] for k in node for a in jaxpr.eqns[k].ins if a in producer} - {n}
        if any([jaxpr.eqns[k].prim.effects for k in node]):
            waits_for |= last_with_effects
            last_with_effects = {n}
        n_waits_for.append(len(waits_for))
        for m in waits_for:
            readers[m].add(n)
    ready = [n for n, count in enumerate(n_waits_for) if not count]  # a heap: the first in program order comes first
    while ready:
        n = heapq.heappop(ready)
        yield nodes[n]
        for m in readers[n]:
            n_waits_for[m] -= 1
            if not n_waits_for[m]:
                heapq.heappush(ready, m)


def _group_as_one(jaxpr: Jaxpr, members: Sequence[int]) -> tuple[list[Atom], list[Var], Jaxpr]:
    """Return the equations of a group as one `invertible`: its operands, its results and the program."""
    eqns, inside = [jaxpr.eqns[k] for k in members], set(members)
    operands: list[Atom] = [*live_ins(eqns)]
    kept = set[Atom]().union(*map(_kept_operands, eqns))
    read_elsewhere = {a for k, e in enumerate(jaxpr.eqns) if k not in inside for a in e.ins}.union(jaxpr.outs, kept)
    reconstructed = {a for e in eqns for a in e.ins} - read_elsewhere
    results = [v for e in eqns for v in e.outs if v not in reconstructed]
    prim = eqns[0].prim
    assert isinstance(prim, CallWithRules)  # `reversible`: only a function with rules is
    body = subprogram(eqns, operands, results, prim.body.name)
    return operands, results, invertible(body, tuple([a in kept for a in operands]), (), _tolerance(eqns[0]))
