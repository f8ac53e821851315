"""Chains of `invertible`: where the results of one are what the next reconstructs, the two are one.

Written block by block, `for b in blocks: x = invertible(b)(x)`, each call stores its results. But the next one
reconstructs them; so the calls are brought together before a program is split for reverse mode, and only the results
that leave the chain are stored. A loop whose steps are such calls becomes one that is run backwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import field
from typing import Final, final

from fxad.core.builder import Builder, renamed, rewrite
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Var
from fxad.primitives.control.bodies import select_by_mask
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import CustomCall
from fxad.transforms.inversion.chains import merge_invertible, opens, reversible
from fxad.transforms.inversion.invertible import invertible
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.solver import determine

INFINITE: Final = float("inf")


def _tolerance(eqn: Eqn) -> float:
    """What `invertible` was told; a `custom_ivjp` is trusted."""
    assert isinstance(eqn.prim, CustomCall)
    return INFINITE if eqn.prim.tolerance is None else float(eqn.prim.tolerance.array)


def _held(eqn: Eqn) -> set[Atom]:
    assert isinstance(eqn.prim, CustomCall)
    return {a for a, h in zip(eqn.ins, eqn.prim.held, strict=True) if h or not a.aval.inexact}


@by_value
def merge_chains(jaxpr: Jaxpr) -> Jaxpr:
    """See `fxad.transforms.inversion.chains.merge_invertible`, which calls this where there is something to do."""
    flat = _opened(jaxpr)
    groups = _groups(flat)
    return _merged(flat, groups) if any([len(g.members) > 1 for g in groups]) else flat


def _opened(jaxpr: Jaxpr) -> Jaxpr:
    """Bodies done first; calls that are one reversible equation, and loops over one, are that equation."""
    return rewrite(jaxpr, _opened_bodies)


def _opened_bodies(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not opens(prim):
        return None
    prim = prim.with_bodies(tuple(map(merge_invertible, prim.bodies)))
    if isinstance(prim, Call) and len(prim.body.eqns) == 1 and reversible(prim.body.eqns[0]):
        return b.inline(prim.body, ins)
    lean = _loop(eqn, prim) if isinstance(prim, Scan) else None
    return b.inline(lean, ins) if lean else b(prim, *ins)


def _loop(eqn: Eqn, prim: Scan) -> Jaxpr | None:
    """A loop that is run backwards, where one reversible equation is all that a step does to what moves; or None."""
    moves = tuple([a.inexact for a in prim.steps.split(prim.body.in_avals)[1]])
    carries = set(select_by_mask(prim.steps.split(prim.body.ins)[1], moves))
    readers = [e for e in prim.body.eqns if not carries.isdisjoint(e.ins)]
    if len(readers) != 1 or not reversible(readers[0]) or not carries.isdisjoint(_held(readers[0])):
        return None
    if any([a not in readers[0].outs for a in select_by_mask(prim.body.outs[: prim.n_carry], moves)]):
        return None
    b = Builder()
    body = b.build(b(prim, *b.inputs([a.aval for a in eqn.ins])), prim.body.name)
    start = len(prim.counted(eqn.ins)[0]) + prim.n_consts
    free = {start + k for k, m in enumerate(moves) if m}
    kept = tuple([k not in free for k in range(len(body.ins))])
    solved = determine(body, kept, (True,) * len(body.outs), INVERSE_RULES).solved
    if not all([s or k for s, k in zip(solved, kept, strict=True)]):
        return None
    return invertible(body, kept, (), _tolerance(readers[0]))


# -------------------------------------------------------------------------------------------------------------- groups


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Equations that become one; `after` are groups that it depends on."""

    members: list[int]
    tolerance: float
    after: set[int] = field(default_factory=set)


def _groups(jaxpr: Jaxpr) -> list[_Group]:
    """Reversible equations, each with those whose results it reconstructs, where nothing else stands between them."""
    groups: list[_Group] = []
    made: dict[Atom, int] = {}  # by which group
    near: dict[Atom, frozenset[int]] = {}  # groups that a value depends on, through equations that are in none
    nothing: frozenset[int] = frozenset()
    told = nothing  # groups that what has happened so far depends on: effects stay in order
    for k, eqn in enumerate(jaxpr.eqns):
        happens = bool(eqn.prim.effects)
        through = frozenset((told if happens else nothing).union(*[near.get(a, nothing) for a in eqn.ins]))
        direct = {made[a] for a in eqn.ins if a in made}
        if happens:
            told = through | direct
        if not reversible(eqn):
            if through or direct:
                near.update(dict.fromkeys(eqn.outs, through | direct))
            continue
        free = [a for a in eqn.ins if a in made and a not in _held(eqn)]
        for g in dict.fromkeys([made[a] for a in reversed(free)]):
            if groups[g].tolerance == _tolerance(eqn) and not _reached(groups, g, through | (direct - {g})):
                break
        else:
            g = len(groups)
            groups.append(_Group([], _tolerance(eqn)))
        groups[g].members.append(k)
        groups[g].after.update(through, direct - {g})
        made.update(dict.fromkeys(eqn.outs, g))
    return groups


def _reached(groups: list[_Group], g: int, start: set[int] | frozenset[int]) -> bool:
    """Whether one of some groups is `g` or depends on it."""
    stack, seen = list(start), set[int]()
    while stack:
        h = stack.pop()
        if h == g:
            return True
        if h not in seen:
            seen.add(h)
            stack += groups[h].after
    return False


def _merged(jaxpr: Jaxpr, groups: list[_Group]) -> Jaxpr:
    """The program with each group as one equation, in an order in which everything is there when it is read."""
    group_of = {k: tuple(g.members) for g in groups for k in g.members}
    nodes = [group_of.get(k, (k,)) for k in range(len(jaxpr.eqns)) if group_of.get(k, (k,))[-1] == k]
    maker = {v: n for n, node in enumerate(nodes) for k in node for v in jaxpr.eqns[k].outs}
    after: list[set[int]] = [set() for _ in nodes]
    missing = []
    last: int | None = None  # with effects, which stay in order
    for n, node in enumerate(nodes):
        before = {maker[a] for k in node for a in jaxpr.eqns[k].ins if a in maker} - {n}
        if any([jaxpr.eqns[k].prim.effects for k in node]):
            before |= set() if last is None else {last}
            last = n
        missing.append(len(before))
        for m in before:
            after[m].add(n)
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    ready = [n for n, m in enumerate(missing) if not m]
    while ready:
        n = heapq.heappop(ready)
        eqns = [jaxpr.eqns[k] for k in nodes[n]]
        b.source = eqns[-1].source
        if len(eqns) == 1:
            b.extend(eqns, env)
        else:
            operands, results, lean = _one(jaxpr, nodes[n])
            env.update(zip(results, b.inline(lean, renamed(operands, env)), strict=True))
        for m in after[n]:
            missing[m] -= 1
            if not missing[m]:
                heapq.heappush(ready, m)
    return b.build(renamed(jaxpr.outs, env), jaxpr.name)


def _one(jaxpr: Jaxpr, members: Sequence[int]) -> tuple[list[Atom], list[Var], Jaxpr]:
    """Equations of a group as one `invertible`: what it reads, which results are its results, and the program."""
    eqns, inside = [jaxpr.eqns[k] for k in members], set(members)
    made = {v for e in eqns for v in e.outs}
    operands: list[Atom] = list(dict.fromkeys([a for e in eqns for a in e.ins if isinstance(a, Var) and a not in made]))
    held = set[Atom]().union(*map(_held, eqns))
    elsewhere = {a for k, e in enumerate(jaxpr.eqns) if k not in inside for a in e.ins}.union(jaxpr.outs, held)
    rebuilt = {a for e in eqns for a in e.ins} - elsewhere
    results = [v for e in eqns for v in e.outs if v not in rebuilt]
    b = Builder()
    env: dict[Atom, Atom] = dict(zip(operands, b.inputs([a.aval for a in operands]), strict=True))
    b.extend(eqns, env)
    prim = eqns[0].prim
    assert isinstance(prim, CustomCall)
    body = b.build([env[v] for v in results], prim.body.name)
    return operands, results, invertible(body, tuple([a in held for a in operands]), (), _tolerance(eqns[0]))
