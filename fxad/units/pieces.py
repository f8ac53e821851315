"""A program as a sequence of pieces: the calls that are units, and the glue between them.

What is left between two calls is not compiled as it stands: the fewer and the more alike the pieces of glue, the less
there is to compile. So an equation of glue goes where it is first needed.

- What a later unit needs is computed just before the first unit that needs a part of it, together with everything else
  that is ready and that some unit needs (`x[0]`, `x[1]`, ... of an unrolled loop are one piece of glue).
- An equation is moved ahead of units that stand before it only while the values so moved take no more bytes than the
  operands of the program: moving must not cost memory.
- What only the results need waits for the end, but for at most `HOLDS` bytes that it could have freed.
- A literal that a unit takes as an operand is a constant of the plan, or made once where it is first needed if it takes
  more than `SMALL` bytes.
- An equation with effects stays between the units it stands between.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Final, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, Jaxpr, Lit, Source, Var, distinct
from fxad.primitives.control.remat import Remat
from fxad.units.blocks import called, uses

HOLDS: Final = 1 << 16
SMALL: Final = 1 << 12

_NOBODY: Final[set[int]] = set()
_NONE: Final[frozenset[int]] = frozenset()
_NO_COPIES: Final[Mapping[Var, Atom]] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """One step of a program: `body` applied to `ins`, operands of the program or results of earlier pieces."""

    body: Jaxpr
    ins: tuple[Atom, ...]
    outs: tuple[Atom, ...]  # a literal among them is one that a later call takes as an operand
    glue: bool
    source: Source = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True, slots=True)
class Pieces:
    """A program as pieces. The results `outs` are distinct, and each is made by a piece: none is an operand.

    `constants` are small literals that calls take as operands; larger ones are made by a piece of glue.
    """

    ins: tuple[Var, ...]
    constants: tuple[Lit, ...]
    pieces: tuple[Piece, ...]
    outs: tuple[Atom, ...]


@by_value
def cut_up(jaxpr: Jaxpr, units: tuple[Jaxpr, ...], donate: tuple[int, ...] = ()) -> Pieces:
    """The pieces of a program whose calls of `units` are pieces of their own; operands in `donate` may die.

    Law:  running the pieces in order gives what the program gives.
    Cost: linear in the equations, calls that hold units inlined.
    """
    return _Cutter(*followed(jaxpr, frozenset(units)), frozenset(units), frozenset(donate)).pieces()


def followed(jaxpr: Jaxpr, units: frozenset[Jaxpr]) -> tuple[Jaxpr, frozenset[int]]:
    """The program with every call that is no unit, but holds one, replaced by the body of it; see `opened`."""
    holding: set[Jaxpr] = set()
    for body in distinct(jaxpr):
        if body not in units and any([b in units or b in holding for b in map(called, body.eqns)]):
            holding.add(body)
    return opened(jaxpr, holding)


@by_value
def flat(jaxpr: Jaxpr) -> Jaxpr:
    """The program with the bodies of calls that are reached once in place of the calls, recomputations excepted."""
    while (only := _only(jaxpr)) is not None:
        jaxpr = only
    return opened(jaxpr, {body for body, n in uses(jaxpr).items() if n == 1}, again=False)[0]


def _only(jaxpr: Jaxpr) -> Jaxpr | None:
    """The program that another is no more than a call of, as a jitted gradient is: thousands of equations are not
    copied to find the same."""
    if len(jaxpr.eqns) != 1 or is_again(eqn := jaxpr.eqns[0]):
        return None
    return called(eqn) if (eqn.ins, eqn.outs) == (jaxpr.ins, jaxpr.outs) else None


def opened(jaxpr: Jaxpr, which: Container[Jaxpr], *, again: bool = True) -> tuple[Jaxpr, frozenset[int]]:
    """The program with bodies in place of the calls of them, at any depth; and which of its equations are a
    recomputation so opened, and so must not be moved to where the first computation is. Not `again`: these stay."""
    if not any([_opens(eqn, which, again) for eqn in jaxpr.eqns]):
        return jaxpr, _NONE
    b = Builder.like(jaxpr)
    stay: list[int] = []

    def opens(eqn: Eqn, _ins: tuple[Atom, ...], mark: bool) -> tuple[Jaxpr, bool] | None:
        body = _opens(eqn, which, again)
        return None if body is None else (body, mark or is_again(eqn))

    def add(eqn: Eqn, ins: tuple[Atom, ...], mark: bool) -> tuple[Var, ...]:
        if mark:
            stay.append(len(b.eqns))
        return b.copy(eqn, ins)

    return b.build(b.opened(jaxpr, jaxpr.ins, opens, add), jaxpr.name), frozenset(stay)


def _opens(eqn: Eqn, which: Container[Jaxpr], again: bool) -> Jaxpr | None:
    body = called(eqn)
    return body if body is not None and body in which and (again or not is_again(eqn)) else None


def is_again(eqn: Eqn) -> bool:
    """Whether an equation is a recomputation, to be kept apart from what was computed first."""
    return isinstance(eqn.prim, Remat) and eqn.prim.opaque


def recomputes(jaxpr: Jaxpr) -> bool:
    """Whether anything in a program is computed again, to save memory."""
    return any([is_again(eqn) for body in distinct(jaxpr) for eqn in body.eqns if type(eqn.prim) is Remat])


@final
class _Cutter:
    """Walks the equations in the order in which they are to be computed, and closes a piece of glue where it must."""

    __slots__ = (
        "constants",
        "consumers",
        "flat",
        "kept",
        "live",
        "made",
        "out",
        "pending",
        "results",
        "stay",
        "units",
        "wanted",
    )

    def __init__(self, flat: Jaxpr, stay: frozenset[int], units: frozenset[Jaxpr], donate: frozenset[int]) -> None:
        self.flat = flat
        self.stay = stay
        self.units = units
        self.kept = {v for k, v in enumerate(flat.ins) if k not in donate}
        self.results = set(flat.outs)
        self.live, self.wanted = self._needed()
        self.consumers: dict[Atom, set[int]] = {}  # equations that read a value and are not computed yet
        for k in self.live:
            for a in flat.eqns[k].ins:
                self.consumers.setdefault(a, set()).add(k)
        self.out: list[Piece] = []
        self.constants = self._constants()
        self.made: set[Atom] = {*flat.ins, *self.constants}  # there when the next piece begins
        self.pending: dict[int, Eqn] = {}

    def _is_unit(self, eqn: Eqn) -> bool:
        return called(eqn) in self.units

    def _constants(self) -> tuple[Lit, ...]:
        operands = [a for k in self.live if self._is_unit(self.flat.eqns[k]) for a in self.flat.eqns[k].ins]
        return tuple([a for a in dict.fromkeys(operands) if isinstance(a, Lit) and a.aval.nbytes <= SMALL])

    def _needed(self) -> tuple[list[int], set[int]]:
        """The equations that a result or an effect needs, in order; and those of the glue that a unit needs, or that
        have effects."""
        for_results: set[Atom] = set(self.flat.outs)
        for_units: set[Atom] = set()
        live, wanted = [], set()
        for k in range(len(self.flat.eqns) - 1, -1, -1):
            eqn = self.flat.eqns[k]
            by_unit = bool(eqn.prim.effects) or not for_units.isdisjoint(eqn.outs)
            if not by_unit and for_results.isdisjoint(eqn.outs):
                continue
            live.append(k)
            if self._is_unit(eqn):
                for_units.update(eqn.ins)
            elif by_unit:
                wanted.add(k)
                for_units.update(eqn.ins)
            for_results.update(eqn.ins)
        return live[::-1], wanted

    def _order(self) -> list[int]:
        """The equations by the unit after which they are taken up; see the module."""
        allowed = sum([v.aval.nbytes for v in self.flat.ins])
        after: dict[Atom, int] = {}
        ahead: set[Atom] = set()
        keys: list[tuple[int, int, int]] = []
        unit = 0
        for k in self.live:
            eqn = self.flat.eqns[k]
            ready = max([after.get(a, 0) for a in eqn.ins], default=0)
            if self._is_unit(eqn):
                unit += 1
                at = unit
                keys.append((at, 0, k))
            else:
                at = unit
                if ready < unit and k not in self.stay and not eqn.prim.effects:
                    size = sum([v.aval.nbytes for v in eqn.outs])
                    size -= sum([a.aval.nbytes for a in {*eqn.ins} & ahead if self.consumers[a] == {k}])
                    if k not in self.wanted:
                        at = ready  # it waits for a piece that it makes smaller
                    elif size <= allowed:
                        ahead.update(eqn.outs)
                        allowed -= size
                        at = ready
                keys.append((at, 1, k))
            after.update(dict.fromkeys(eqn.outs, at))
        return [k for _, _, k in sorted(keys)]

    def pieces(self) -> Pieces:
        """All of it."""
        for k in self._order():
            eqn = self.flat.eqns[k]
            if not self._is_unit(eqn):
                self.pending[k] = eqn
                continue
            self._before(eqn)
            self._emit(Piece(_body(eqn), eqn.ins, eqn.outs, False, eqn.source), (k,))
        return self._finish()

    def _before(self, unit: Eqn) -> None:
        """Close the glue that a unit waits for."""
        literals = [a for a in dict.fromkeys(unit.ins) if isinstance(a, Lit) and a not in self.made]
        if self._freed() >= HOLDS:
            self._glue(list(self.pending), literals)
        elif literals or any([a not in self.made for a in unit.ins]) or self._effects():
            self._glue([k for k in self.pending if k in self.wanted], literals)

    def _effects(self) -> bool:
        return any([e.prim.effects for e in self.pending.values()])

    def _freed(self) -> int:
        """Bytes that would be free if all the glue that waits were computed now."""
        here = self.pending.keys()
        ins = {a for e in self.pending.values() for a in e.ins if a in self.made and a not in self.kept}
        dead = [a for a in ins if not isinstance(a, Lit) and a not in self.results and self.consumers[a] <= here]
        outs = [v for e in self.pending.values() for v in e.outs if v in self.results or not self._read(v) <= here]
        return sum([a.aval.nbytes for a in dead]) - sum([v.aval.nbytes for v in outs])

    def _read(self, a: Atom) -> set[int]:
        return self.consumers.get(a, _NOBODY)

    def _glue(
        self, which: Sequence[int], literals: Iterable[Atom] = (), copies: Mapping[Var, Atom] = _NO_COPIES
    ) -> None:
        """Close a piece of glue: the equations `which` of those that wait, literals, and copies of values."""
        here = set(which)
        eqns = [self.pending.pop(k) for k in which]
        inside = {v for e in eqns for v in e.outs}
        read = [a for e in eqns for a in e.ins] + list(copies.values())
        ins = tuple([a for a in dict.fromkeys(read) if isinstance(a, Var) and a not in inside])
        outs = [v for e in eqns for v in e.outs if v in self.results or not self._read(v) <= here]
        b = Builder()
        env: dict[Atom, Atom] = dict(zip(ins, b.inputs([a.aval for a in ins]), strict=True))
        for eqn in eqns:
            env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
        values = [*outs, *literals, *copies.values()]
        body = b.build([env.get(a, a) for a in values], "glue")
        source = next((e.source for e in eqns if e.source is not None), None)
        self._emit(Piece(body, ins, (*outs, *literals, *copies), True, source), which)

    def _emit(self, piece: Piece, which: Iterable[int]) -> None:
        self.out.append(piece)
        self.made.update(piece.outs)
        for k in which:
            for a in self.flat.eqns[k].ins:
                self.consumers[a].discard(k)

    def _finish(self) -> Pieces:
        """The last glue: what waits, and results that no piece makes, or that are given twice."""
        count = sum([len(e.outs) for e in self.flat.eqns])
        seen: set[Atom] = set(self.flat.ins)
        outs: list[Atom] = []
        copies: dict[Var, Atom] = {}
        for a in self.flat.outs:
            if a in seen or isinstance(a, Lit):
                copy = Var(count + len(copies), a.aval)
                copies[copy] = a
                a = copy
            seen.add(a)
            outs.append(a)
        if self.pending or copies:
            self._glue(list(self.pending), (), copies)
        return Pieces(self.flat.ins, self.constants, tuple(self.out), tuple(outs))


def _body(eqn: Eqn) -> Jaxpr:
    body = called(eqn)
    assert body is not None
    return body
