"""Stretches that are nearly a body: some of its equations are missing, and others stand in between.

The first layer of a network is often so: what only its input's derivative needs is not there. Calling the body all the
same saves a compilation; the equations that are missing are computed for nothing, from ones where an operand is missing
too. What stands in between goes before the call or, where it needs results of it, after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Final, final

from fxad.ir import Atom, Eqn, HigherOrder, Lit, Var, distinct
from fxad.primitives.control.while_ import While
from fxad.records import dataclass
from fxad.transforms.stretches import Flow, Shared
from fxad.transforms.varied import VARIED, Applied

LARGEST: Final = 1000  # equations of a body that stretches are compared with one by one


@final
@dataclass(frozen=True, slots=True, eq=False)
class Nearly:
    """A use of a body in the program's equations from `start` to `stop`: `places` says which of them stands for which
    of the body's, `operands` what it is called with, and `late` which of the others come after the call."""

    start: int
    stop: int
    places: Mapping[int, int]
    operands: tuple[Atom, ...]
    late: tuple[int, ...]


def nearly(flow: Flow, shared: Shared, start: int, stop: int) -> Nearly | None:
    """The body among the equations from `start` to `stop`, as much of it as is there; None: nothing of it, or what is
    missing or in between has effects or may not end."""
    first = shared.starts[0]
    body = flow.numbers[first : first + shared.length].tolist()
    if len(body) > LARGEST:
        return None
    there = flow.numbers[start:stop].tolist()
    blocks = SequenceMatcher(None, body, there, autojunk=False).get_matching_blocks()
    match = _Match(flow, shared, {b.a + k: start + b.b + k for b in blocks for k in range(b.size)})
    while match.places and (wrong := match.wrong()):
        for slot in wrong:
            del match.places[slot]
    return match.harmless() if match.places else None


@final
class _Match:
    """Equations of the program that may stand for equations of a body: slot of the body -> place in the program."""

    def __init__(self, flow: Flow, shared: Shared, places: dict[int, int]) -> None:
        self.flow = flow
        self.shared = shared
        self.places = places
        self.owners = shared.owners
        self.operands: dict[int, Atom] = {}

    def wrong(self) -> list[int]:
        """The slots that do something else in the program than in the body. Notes the operands of the others."""
        self.operands = {}
        inside = {v for at in (*self.places.values(), *self.late()) for v in self.flow.eqns[at].outs}
        return [slot for slot in sorted(self.places) if not self._fits(slot, inside)]

    def late(self) -> list[int]:
        """The equations between those of the match that need results of them."""
        mine = set(self.places.values())
        depends: set[Atom] = set()
        out: list[int] = []
        for at in range(min(mine), max(mine) + 1):
            eqn = self.flow.eqns[at]
            if at in mine:
                depends.update(eqn.outs)
            elif not depends.isdisjoint(eqn.ins):
                out.append(at)
                depends.update(eqn.outs)
        return out

    def _fits(self, slot: int, inside: set[Var]) -> bool:
        """Whether an equation does what the body's does: over the same results of the match, the same literals, and
        operands that are there before it."""
        want = self.shared.body.eqns[slot]
        prim, ins = _applied(self.flow.eqns[self.places[slot]], self.shared.marked[slot])
        if prim != want.prim or len(ins) != len(want.ins):
            return False
        given: dict[int, Atom] = {}
        for a, w in zip(ins, want.ins, strict=True):
            if isinstance(w, Lit) or w.index >= 0:
                if a is not (w if isinstance(w, Lit) else self._result(w)):
                    return False
            elif a in inside or given.setdefault(w.index, a) is not a or self.operands.get(w.index, a) is not a:
                return False
        self.operands.update(given)
        return True

    def _result(self, v: Var) -> Atom | None:
        """What stands for a result of an equation of the body; None when that equation is missing."""
        slot, k = self.owners[v.index]
        return self.flow.eqns[self.places[slot]].outs[k] if slot in self.places else None

    def harmless(self) -> Nearly | None:
        """The use of the body, unless it computes or moves what it must not."""
        body, start, stop = self.shared.body, min(self.places.values()), max(self.places.values()) + 1
        missing = [e for slot, e in enumerate(body.eqns) if slot not in self.places]
        effects = any([e.prim.effects for e in (*body.eqns, *self.flow.eqns[start:stop])])
        if effects or any([_endless(e) for e in missing]):
            return None
        filled = [self.operands.get(v.index) or self._filling(v, start) for v in body.ins]
        return Nearly(start, stop, self.places, tuple(filled), tuple(self.late()))

    def _filling(self, v: Var, start: int) -> Atom:
        """What an operand is that only missing equations read: the one of all other uses, or else one."""
        column = {row[~v.index] for row in self.shared.operands}
        for a in column if len(column) == 1 else ():
            if isinstance(a, Lit) or a.index < self.flow.firsts[start]:
                return a
        return Lit.of(1, v.aval)


def _applied(eqn: Eqn, marked: tuple[bool, ...] | None) -> Applied:
    """An equation in the form that it has in the body."""
    return (eqn.prim, eqn.ins) if marked is None else VARIED[type(eqn.prim)].general(eqn, marked)


def _endless(eqn: Eqn) -> bool:
    """Whether an equation may run on for ever, on operands that it is not meant for."""
    prim = eqn.prim
    if not isinstance(prim, HigherOrder):
        return False
    inner = (e.prim for body in prim.bodies for f in distinct(body) for e in f.eqns)
    return isinstance(prim, While) or any([isinstance(p, While) for p in inner])


def gaps(taken: list[bool], length: int) -> Iterator[tuple[int, int]]:
    """Where a stretch of about `length` may be: the ends of the parts of a program that are free."""
    at = 0
    while at < len(taken):
        if taken[at]:
            at += 1
            continue
        start = at
        while at < len(taken) and not taken[at]:
            at += 1
        if at - start <= 4 * length:
            yield start, at
        else:
            yield start, start + 2 * length
            yield at - 2 * length, at
