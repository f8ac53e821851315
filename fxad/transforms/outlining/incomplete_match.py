"""Incomplete matches of a body: some of its equations are missing, and other equations are in between.

The first layer of a network is often such a match: it lacks the equations that only the derivative of its input needs.
A call of the full body saves a compilation. The missing equations are computed without use; their missing operands are
ones. Equations in between move before the call, or after it if they depend on its results.

For example, the body (a, w, g) -> let s = sin a, y = mul s w, c = cos a, z = mul c g in (y, c, z) matches the equations

    10: s = sin x     11: e = exp x     12: y = mul s w     13: d = neg y     14: c = cos x

`places` is {0: 10, 1: 12, 2: 14}. The equation of z is missing, and its operand g is 1. The equation of e moves before
the call, and that of d after it: `late` is (13,).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Atoms, Aval, Eqn, Flags, Lit, Var
from fxad.primitives.control.effects import may_fail
from fxad.transforms.outlining.shared_body import EquationSequence, SharedBody
from fxad.transforms.start_indices import DYNAMIC_FORMS, PrimitiveAndOperands

# the budget of comparisons in a search: for each equation, and in any program
COMPARISONS_PER_EQUATION: Final = 16
MIN_COMPARISONS: Final = 20_000
MAX_LEVELS: Final = 8  # a search may compare each pair of equations so often
MAX_ROUNDS: Final = 8  # the search stops if equations still mismatch after so many rounds


def comparisons_for(equations: int) -> int:
    """Return the budget of comparisons for a program of so many equations."""
    return MIN_COMPARISONS + COMPARISONS_PER_EQUATION * equations


@final
@dataclass(frozen=True, slots=True, eq=False)
class IncompleteMatch:
    """An incomplete use of a body between `start` and `stop`. `places` maps an equation of the body to its equation
    in the program, `operands` are the operands of the call, and `late` are the other equations that come after the
    call."""

    start: int
    stop: int
    places: Mapping[int, int]
    operands: Atoms
    late: tuple[int, ...]


@final
class BodySearch:
    """A body for which the program is searched."""

    __slots__ = ("counts", "flow", "numbers", "shared")

    def __init__(self, flow: EquationSequence, shared: SharedBody) -> None:
        self.flow = flow
        self.shared = shared
        first = shared.starts[0]
        self.numbers: list[int] = flow.numbers[first : first + shared.length].tolist()
        self.counts = Counter(self.numbers)

    def comparisons(self, start: int, stop: int) -> int:
        """Return an upper bound on the pairs of a body equation and an equation from `start` to `stop` to compare."""
        numbers = self.flow.numbers[start:stop].tolist()
        return len(self.numbers) + len(numbers) + sum([self.counts[n] for n in numbers])

    def match(self, start: int, stop: int) -> IncompleteMatch | None:
        """Return the match of the body from `start` to `stop`. Return None if no equation matches, if the match or
        the equations in between have effects, or if a missing equation may fail or may not terminate."""
        match = _Match(self.flow, self.shared, dict(self._equal_numbers(start, stop)))
        for _ in range(MAX_ROUNDS):
            if not match.places or not match.drop_mismatches():
                return match.checked() if match.places else None
        return None

    def _equal_numbers(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield pairs of an equation of the body and an equation from `start` to `stop` with equal numbers, both in
        increasing order: the longest equal sequences first, then those before and after them."""
        numbers = self.flow.numbers[start:stop].tolist()
        matcher, counts = SequenceMatcher(None, self.numbers, numbers, autojunk=False), Counter(numbers)
        pairs = [0, *accumulate([counts[n] for n in self.numbers])]
        comparisons_left = MAX_LEVELS * self.comparisons(start, stop)
        stack = [(0, len(self.numbers), 0, len(numbers))]
        while stack and comparisons_left > 0:
            first, last, at_least, at_most = stack.pop()
            comparisons_left -= pairs[last] - pairs[first]
            a, b, size = matcher.find_longest_match(first, last, at_least, at_most)
            if size != 0:
                yield from zip(range(a, a + size), range(start + b, start + b + size), strict=True)
                stack += [(first, a, at_least, b), (a + size, last, b + size, at_most)]


@final
class _Match:
    """A candidate match: maps equations of the body to equations of the program."""

    def __init__(self, flow: EquationSequence, shared: SharedBody, places: dict[int, int]) -> None:
        self.flow = flow
        self.shared = shared
        self.places = places
        self.owners = shared.owners
        self.operands: dict[int, Atom] = {}

    def drop_mismatches(self) -> bool:
        """Drop equations that do not match the body, and record the operands of the others. Return True if any were
        dropped."""
        self.operands = {}
        before = len(self.places)
        inside = {v for number in (*self.places.values(), *self.late()) for v in self.flow.eqns[number].outs}
        for slot in sorted(self.places):
            if not self._fits(slot, inside):
                del self.places[slot]  # at once, so that equations that use its results are dropped too
        return len(self.places) < before

    def late(self) -> list[int]:
        """Return the equations between those of the match that depend on its results."""
        mine = set(self.places.values())
        depends: set[Atom] = set()
        out: list[int] = []
        for number in range(min(mine), max(mine) + 1):
            eqn = self.flow.eqns[number]
            if number in mine:
                depends.update(eqn.outs)
            elif not depends.isdisjoint(eqn.ins):
                out.append(number)
                depends.update(eqn.outs)
        return out

    def _fits(self, slot: int, inside: set[Var]) -> bool:
        """Return True if an equation matches the body's equation: the same results of the match, the same literals,
        and operands that are available before the match."""
        want = self.shared.body.eqns[slot]
        prim, ins = _operation_in_body(self.flow.eqns[self.places[slot]], self.shared.marked[slot])
        if prim != want.prim or len(ins) != len(want.ins):
            return False
        operands: dict[int, Atom] = {}
        for a, w in zip(ins, want.ins, strict=True):
            if isinstance(w, Lit) or not w.is_operand:
                if a is not (w if isinstance(w, Lit) else self._result(w)):
                    return False
            elif a in inside or operands.setdefault(w.index, a) is not a or self.operands.get(w.index, a) is not a:
                return False
        self.operands.update(operands)
        return True

    def _result(self, v: Var) -> Atom | None:
        """Return the value that corresponds to a result of an equation of the body; None if that equation is
        missing."""
        slot, k = self.owners[v.index]
        return self.flow.eqns[self.places[slot]].outs[k] if slot in self.places else None

    def checked(self) -> IncompleteMatch | None:
        """Return the use of the body; None if it has effects, or a missing equation may fail or may not terminate."""
        body, start, stop = self.shared.body, min(self.places.values()), max(self.places.values()) + 1
        missing = [e for slot, e in enumerate(body.eqns) if slot not in self.places]
        effects = any([e.prim.effects for e in (*body.eqns, *self.flow.eqns[start:stop])])
        if effects or any([may_fail(e.prim) for e in missing]):
            return None
        operands = [
            self.operands.get(v.index) or self._operand_of_missing_equations(k, v.aval, start)
            for k, v in enumerate(body.ins)
        ]
        return IncompleteMatch(start, stop, self.places, tuple(operands), tuple(self.late()))

    def _operand_of_missing_equations(self, k: int, aval: Aval, start: int) -> Atom:
        """Return operand k for a body in which only missing equations read it: the operand of all other uses if it is
        the same and available, otherwise ones."""
        column = {operands[k] for operands in self.shared.operands}
        for a in column if len(column) == 1 else ():
            if isinstance(a, Lit) or a.index < self.flow.firsts[start]:
                return a
        return Lit.of(1, aval)


def _operation_in_body(eqn: Eqn, marked: Flags | None) -> PrimitiveAndOperands:
    """Return an equation in the form that it has in the body."""
    return (eqn.prim, eqn.ins) if marked is None else DYNAMIC_FORMS[type(eqn.prim)].with_dynamic(eqn, marked)


def ends(start: int, stop: int, length: int) -> list[tuple[int, int]]:
    """Return the ranges of a free part in which a sequence of about `length` is searched: the whole part, or its two
    ends."""
    if stop - start <= 4 * length:
        return [(start, stop)]
    return [(start, start + 2 * length), (stop - 2 * length, stop)]
