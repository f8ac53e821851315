"""Stretches that are nearly a body: some of its equations are missing, and others stand in between.

The first layer of a network is often so: what only its input's derivative needs is not there. Calling the body all the
same saves a compilation; the equations that are missing are computed for nothing, from ones where an operand is missing
too. What stands in between goes before the call or, where it needs results of it, after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Eqn, HigherOrder, Lit, Primitive, Var, distinct
from fxad.primitives.checking import Check
from fxad.primitives.host import HostCall
from fxad.transforms.outlining.parametrise import VARIED, Applied
from fxad.transforms.outlining.regions import Flow, Shared

ROUNDS: Final = 8  # after so many there are too many equations that are wrong


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


@final
class Sought:
    """A body that is looked for in the program."""

    __slots__ = ("counts", "flow", "numbers", "shared")

    def __init__(self, flow: Flow, shared: Shared) -> None:
        self.flow = flow
        self.shared = shared
        first = shared.starts[0]
        self.numbers: list[int] = flow.numbers[first : first + shared.length].tolist()
        self.counts = Counter(self.numbers)

    def comparisons(self, start: int, stop: int) -> int:
        """How many pairs of an equation of the body and one from `start` to `stop` may have to be compared."""
        there = self.flow.numbers[start:stop].tolist()
        return len(self.numbers) + len(there) + sum([self.counts[n] for n in there])

    def nearly(self, start: int, stop: int) -> Nearly | None:
        """The body among the equations from `start` to `stop`, as much of it as is there; None: nothing of it, or what
        is missing or in between has effects, may fail or may not end."""
        there = self.flow.numbers[start:stop].tolist()
        blocks = SequenceMatcher(None, self.numbers, there, autojunk=False).get_matching_blocks()
        places = {b.a + k: start + b.b + k for b in blocks for k in range(b.size)}
        match = _Match(self.flow, self.shared, places)
        for _ in range(ROUNDS):
            if not match.places or not match.wrong():
                return match.harmless() if match.places else None
        return None


@final
class _Match:
    """Equations of the program that may stand for equations of a body: slot of the body -> place in the program."""

    def __init__(self, flow: Flow, shared: Shared, places: dict[int, int]) -> None:
        self.flow = flow
        self.shared = shared
        self.places = places
        self.owners = shared.owners
        self.operands: dict[int, Atom] = {}

    def wrong(self) -> bool:
        """Drops the equations that do something else in the program than in the body, and says whether there are any;
        notes the operands of the others."""
        self.operands = {}
        before = len(self.places)
        inside = {v for at in (*self.places.values(), *self.late()) for v in self.flow.eqns[at].outs}
        for slot in sorted(self.places):
            if not self._fits(slot, inside):
                del self.places[slot]  # at once: what uses its results is wrong too
        return len(self.places) < before

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
        if effects or any([harmful(e.prim) for e in missing]):
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


def harmful(prim: Primitive) -> bool:
    """Whether an operation may fail, or run on for ever, on operands that it is not meant for."""
    if not isinstance(prim, HigherOrder):
        return isinstance(prim, Check | HostCall)
    inner = {e.prim for body in prim.bodies for f in distinct(body) for e in f.eqns}
    carriers = [p for p in (prim, *inner) if isinstance(p, HigherOrder)]
    return any([isinstance(p, Check | HostCall) for p in inner]) or any([p.layout.depends for p in carriers])


def ends(start: int, stop: int, length: int) -> list[tuple[int, int]]:
    """Where in a part of a program a stretch of about `length` is looked for."""
    if stop - start <= 4 * length:
        return [(start, stop)]
    return [(start, start + 2 * length), (stop - 2 * length, stop)]
