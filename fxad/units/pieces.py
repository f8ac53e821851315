"""Partitions a program into a sequence of pieces: the calls that are units, and the other equations between them.

The other equations, the remainder, form pieces too. Fewer and more similar pieces of the remainder take less time to
compile. So an equation of the remainder moves to the place where its result is first needed.

- If a unit needs an equation, a piece just before the unit computes it, together with all other ready equations that
  some unit needs (`x[0]`, `x[1]`, ... of an unrolled loop are one piece).
- An equation moves before earlier units only while the moved values together take no more bytes than the operands of
  the program: moving must not increase memory.
- An equation that only the results need runs at the end. It runs earlier if the waiting equations would free
  `WAITING_BYTES` or more.
- A literal operand of a unit is a constant of the plan. If it takes more than `MAX_CONSTANT_BYTES`, a piece computes it
  once, where it is first needed.
- An equation with effects stays between the same units.

For example, with `layer` as a unit, `w[0]` and `w[1]`, which units need, are one piece. The sum and its double, which
only the results need, are another one at the end:

>>> import fxad as fx, fxad.numpy as fnp
>>> layer = fx.jit(lambda x, w: fnp.tanh(x @ w))
>>> def network(x, w):
...     y = layer(x, w[0])
...     total = y.sum()
...     return layer(y, w[1]), 2 * total
>>> program = fx.trace(network, fx.Spec((4, 4)), fx.Spec((2, 4, 4))).jaxpr
>>> unit = next(body for body in map(body_of_call_or_remat, program.eqns) if body)
>>> for piece in partition(program, (unit,)).pieces:
...     print("remainder" if piece.remainder else "unit", *[eqn.prim.name for eqn in piece.body.eqns])
remainder index index
unit dot_general tanh
unit dot_general tanh
remainder reduce_sum mul
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Final, final

from fxad.core.builder import Builder, live_ins, subprogram
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, Jaxpr, Lit, Source, Var, distinct_jaxprs
from fxad.primitives.control.remat import Remat, body_of_call_or_remat
from fxad.support.constants import MAX_CONSTANT_BYTES, WAITING_BYTES

_NONE: Final[frozenset[int]] = frozenset()
_NO_COPIES: Final[Mapping[Var, Atom]] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class Piece:
    """One step of a program: `body` applied to `ins`, operands of the program or results of earlier pieces."""

    body: Jaxpr
    ins: Atoms
    outs: Atoms  # a literal is materialized here for a later call that takes it as an operand
    remainder: bool  # True for equations between the calls that are units, False for such a call
    source: Source = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True, slots=True)
class Pieces:
    """A program as pieces. The results `outs` are distinct, and each is a result of a piece: none is an operand.

    `constants` are small literals that calls take as operands. Pieces compute the larger ones.
    """

    ins: tuple[Var, ...]
    constants: tuple[Lit, ...]
    pieces: tuple[Piece, ...]
    outs: Atoms


@by_value
def partition(jaxpr: Jaxpr, chosen: tuple[Jaxpr, ...], donate: tuple[int, ...] = ()) -> Pieces:
    """Partition a program such that each call of the bodies `chosen`, a unit, is a piece. Operands in `donate` may be
    freed.

    Law:  running the pieces in order gives the results of the program.
    Cost: linear in the equations, with calls that contain units inlined.
    """
    return _Partition(*inline_callers(jaxpr, frozenset(chosen)), frozenset(chosen), frozenset(donate)).pieces()


def inline_callers(jaxpr: Jaxpr, chosen: frozenset[Jaxpr]) -> tuple[Jaxpr, frozenset[int]]:
    """Inline every call that contains a call of a chosen body and is not one itself; see `inline_bodies`."""
    callers: set[Jaxpr] = set()
    for body in distinct_jaxprs(jaxpr):  # innermost first
        if body not in chosen and any([b in chosen or b in callers for b in map(body_of_call_or_remat, body.eqns)]):
            callers.add(body)
    return inline_bodies(jaxpr, callers)


def inline_bodies(jaxpr: Jaxpr, bodies: Container[Jaxpr]) -> tuple[Jaxpr, frozenset[int]]:
    """Inline calls of `bodies`, at any depth. Also returns the places of the equations that come from
    recomputations: they must not move to the place of the first computation."""
    if not any([body_of_call_or_remat(eqn) in bodies for eqn in jaxpr.eqns]):
        return jaxpr, _NONE
    b = Builder.like(jaxpr)
    pinned: list[int] = []

    def body_to_inline(eqn: Eqn, _ins: Atoms) -> Jaxpr | None:
        body = body_of_call_or_remat(eqn)
        return body if body is not None and body in bodies else None

    def body_of_plain_call(eqn: Eqn, ins: Atoms) -> Jaxpr | None:
        return None if is_recomputation(eqn) else body_to_inline(eqn, ins)

    def inline_recomputation(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        body = body_to_inline(eqn, ins)
        if body is None:
            return None
        start = len(b.eqns)
        outs = b.inline_calls(body, ins, body_to_inline)
        pinned.extend(range(start, len(b.eqns)))
        return outs

    outs = b.inline_calls(jaxpr, jaxpr.ins, body_of_plain_call, inline_recomputation)
    return b.build(outs, jaxpr.name), frozenset(pinned)


def is_recomputation(eqn: Eqn) -> bool:
    """Return True if an equation is a recomputation, which must not be merged with the first computation."""
    # only an opaque `remat` is computed again: another one is a plain call after differentiation
    return isinstance(eqn.prim, Remat) and eqn.prim.opaque


def has_recomputation(jaxpr: Jaxpr) -> bool:
    """Return True if a program contains a recomputation, which saves memory."""
    return any(
        [is_recomputation(eqn) for body in distinct_jaxprs(jaxpr) for eqn in body.eqns if type(eqn.prim) is Remat]
    )


@final
class _Partition:
    """Walks the equations in their new order, and emits a piece for each unit and for the equations it waits for.

    An equation of the remainder is `pending` from the walk until a piece contains it; those that cannot wait are
    `required` too. `readers` are the equations that read a value and are in no piece yet; `available` are the values
    that the next piece can read; `out` are the pieces. `freed` are the bytes that running all pending equations now
    would free: the sum of `freed_by`, which has a part for each value that they read or compute.
    """

    __slots__ = (
        "available",
        "cannot_wait",
        "chosen",
        "constants",
        "freed",
        "freed_by",
        "live",
        "never_freed",
        "out",
        "pending",
        "pending_readers",
        "pinned",
        "program",
        "readers",
        "required",
        "results",
    )

    def __init__(
        self, program: Jaxpr, pinned: frozenset[int], chosen: frozenset[Jaxpr], donate: frozenset[int]
    ) -> None:
        self.program = program
        self.pinned = pinned
        self.chosen = chosen
        self.never_freed = {v for k, v in enumerate(program.ins) if k not in donate}
        self.results = set(program.outs)
        self.live, self.cannot_wait = self._needed()
        self.readers: defaultdict[Atom, set[int]] = defaultdict(set)
        for k in self.live:
            for a in program.eqns[k].ins:
                self.readers[a].add(k)
        self.out: list[Piece] = []
        self.constants = self._constants()
        self.available: set[Atom] = {*program.ins, *self.constants}
        self.pending: dict[int, Eqn] = {}
        self.required: dict[int, None] = {}
        self.pending_readers: defaultdict[Atom, int] = defaultdict(int)  # the number of pending equations that read it
        self.freed = 0
        self.freed_by: dict[Atom, int] = {}

    def _is_unit(self, eqn: Eqn) -> bool:
        return body_of_call_or_remat(eqn) in self.chosen

    def _constants(self) -> tuple[Lit, ...]:
        operands = [a for k in self.live if self._is_unit(self.program.eqns[k]) for a in self.program.eqns[k].ins]
        return tuple([a for a in dict.fromkeys(operands) if isinstance(a, Lit) and a.aval.nbytes <= MAX_CONSTANT_BYTES])

    def _needed(self) -> tuple[list[int], set[int]]:
        """Return the live equations, in order; and those of the remainder that cannot wait until the last unit has run:
        they have effects, or a unit or an equation with effects needs them."""
        values_read: set[Atom] = set(self.program.outs)
        read_by_units: set[Atom] = set()  # or by equations with effects, directly or through other equations
        live_eqns, cannot_wait = [], set()
        for k in range(len(self.program.eqns) - 1, -1, -1):
            eqn = self.program.eqns[k]
            is_required = bool(eqn.prim.effects) or not read_by_units.isdisjoint(eqn.outs)
            if not is_required and values_read.isdisjoint(eqn.outs):
                continue
            live_eqns.append(k)
            is_unit = self._is_unit(eqn)
            if is_required and not is_unit:
                cannot_wait.add(k)
            if is_required or is_unit:
                read_by_units.update(eqn.ins)
            values_read.update(eqn.ins)
        return live_eqns[::-1], cannot_wait

    def _order(self) -> list[int]:
        """Return the live equations in the order in which they become pending. `_emit_before` and `_finish` decide when
        they run; see the module.

        The place of an equation is the number of units before it. A unit counts itself, and is the first of its place.

            equation                                    its place
            a unit, an effect, a recomputation          where it is in the program
            one that can wait for the last unit         the earliest one at which its operands are computed
            any other                                   the earliest one, while the moved values together take no more
                                                        bytes than the operands of the program
        """
        bytes_to_move = sum([v.aval.nbytes for v in self.program.ins])
        moved_values: set[Atom] = set()  # values that are computed before a unit that preceded them in the program
        place_of: dict[Atom, int] = {}  # of the equation that computes a value
        keys: list[tuple[int, bool, int]] = []
        units_before = 0
        for k in self.live:
            eqn = self.program.eqns[k]
            is_unit = self._is_unit(eqn)
            units_before += is_unit  # a unit counts itself
            place = units_before
            earliest = max([place_of.get(a, 0) for a in eqn.ins], default=0)
            can_move = not is_unit and earliest < units_before and k not in self.pinned and not eqn.prim.effects
            if can_move and k not in self.cannot_wait:
                place = earliest
            elif can_move and (added := self._bytes_added(k, moved_values)) <= bytes_to_move:
                place = earliest
                moved_values.update(eqn.outs)
                bytes_to_move -= added
            keys.append((place, not is_unit, k))
            place_of.update(dict.fromkeys(eqn.outs, place))
        return [k for _, _, k in sorted(keys)]

    def _bytes_added(self, k: int, moved_values: set[Atom]) -> int:
        """Return the bytes that the moved values take more if equation k moves too: its results, in place of the
        operands that only it reads."""
        eqn = self.program.eqns[k]
        replaced_values = [a for a in {*eqn.ins} & moved_values if self.readers[a] == {k}]
        return sum([v.aval.nbytes for v in eqn.outs]) - sum([a.aval.nbytes for a in replaced_values])

    def pieces(self) -> Pieces:
        """Return all pieces of the program."""
        for k in self._order():
            eqn = self.program.eqns[k]
            if not self._is_unit(eqn):
                self._wait(k, eqn)
                continue
            self._emit_before(eqn)
            self._emit(Piece(_body_of_unit(eqn), eqn.ins, eqn.outs, False, eqn.source), (k,))
        return self._finish()

    def _emit_before(self, unit: Eqn) -> None:
        """Emit pending equations before a unit: all if that frees enough bytes; otherwise those that cannot wait, if
        the unit needs one or one has effects; otherwise none."""
        literals = [a for a in dict.fromkeys(unit.ins) if isinstance(a, Lit) and a not in self.available]
        if self.freed >= WAITING_BYTES:
            self._emit_remainder(list(self.pending), literals)
            return
        needs_equation = literals or any([a not in self.available for a in unit.ins])
        has_effects = any([self.pending[k].prim.effects for k in self.required])  # these cannot wait
        if needs_equation or has_effects:
            self._emit_remainder(list(self.required), literals)

    def _wait(self, k: int, eqn: Eqn) -> None:
        """Make an equation pending."""
        self.pending[k] = eqn
        if k in self.cannot_wait:
            self.required[k] = None
        for a in set(eqn.ins):
            self.pending_readers[a] += 1
        self._count_freed((*eqn.ins, *eqn.outs))

    def _count_freed(self, changed: Iterable[Atom]) -> None:
        """Bring `freed` up to date for values whose readers or place changed."""
        for a in dict.fromkeys(changed):
            bytes_freed = 0 if isinstance(a, Lit) else self._bytes_freed(a)
            self.freed += bytes_freed - self.freed_by.get(a, 0)
            self.freed_by[a] = bytes_freed

    def _bytes_freed(self, a: Atom) -> int:
        """Return bytes of a value that running all pending equations would free: those of a value that only they read,
        and with a minus sign those of one that they compute and others read."""
        pending = self.pending_readers[a]
        is_read_later = a in self.results or len(self.readers[a]) > pending
        if a not in self.available:
            return -a.aval.nbytes if is_read_later else 0
        return a.aval.nbytes if pending and not is_read_later and a not in self.never_freed else 0

    def _emit_remainder(
        self, places: Sequence[int], literals: Iterable[Atom] = (), copies: Mapping[Var, Atom] = _NO_COPIES
    ) -> None:
        """Emit a piece of the pending equations at `places`, of literals, and of copies of values."""
        emitted = set(places)
        eqns = [self.pending.pop(k) for k in places]
        for k, e in zip(places, eqns, strict=True):
            self.required.pop(k, None)
            for a in set(e.ins):
                self.pending_readers[a] -= 1
        ins = tuple(live_ins(eqns, copies.values()))
        outs = [v for e in eqns for v in e.outs if v in self.results or not self.readers[v] <= emitted]
        body = subprogram(eqns, ins, (*outs, *literals, *copies.values()), "remainder")
        source = next((e.source for e in eqns if e.source is not None), None)
        self._emit(Piece(body, ins, (*outs, *literals, *copies), True, source), places)

    def _emit(self, piece: Piece, places: Iterable[int]) -> None:
        self.out.append(piece)
        self.available.update(piece.outs)
        for k in places:
            for a in self.program.eqns[k].ins:
                self.readers[a].discard(k)
        eqns = [self.program.eqns[k] for k in places]
        self._count_freed([a for e in eqns for a in (*e.ins, *e.outs)])

    def _finish(self) -> Pieces:
        """Emit the last piece: pending equations, and copies for results that are operands, literals or repeated."""
        count = sum([len(e.outs) for e in self.program.eqns])
        used: set[Atom] = set(self.program.ins)
        outs: list[Atom] = []
        copies: dict[Var, Atom] = {}
        for a in self.program.outs:
            if a in used or isinstance(a, Lit):
                copy = Var(count + len(copies), a.aval)  # operands have negative numbers, so these are free
                copies[copy] = a
                a = copy
            used.add(a)
            outs.append(a)
        if self.pending or copies:
            self._emit_remainder(list(self.pending), (), copies)
        return Pieces(self.program.ins, self.constants, tuple(self.out), tuple(outs))


def _body_of_unit(eqn: Eqn) -> Jaxpr:
    body = body_of_call_or_remat(eqn)
    assert body is not None
    return body
