"""Scheduling of the pieces of a program: a piece that frees memory runs as early as possible.

A training step that donates its state computes all gradients first, then all updates. In that order the gradients of
all layers are live at the same time. If each update runs as soon as its gradient is computed, only one is live.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from fxad.ir import Atom
from fxad.units.pieces import Pieces


def schedule(pieces: Pieces, donate: Iterable[int]) -> Pieces:
    """Move each piece that frees more bytes than it allocates to the point where its operands are computed.

    Operands of the program in `donate` may be freed. Returns `pieces` itself if no piece moves.

    Law:  the same pieces; each after those whose results it reads; those with effects in their order.
    Cost: linear in the operands of all pieces.
    """
    order = _Order(pieces, donate).order()
    return pieces if order == sorted(order) else replace(pieces, pieces=tuple([pieces.pieces[k] for k in order]))


@final
class _Order:
    """Schedules the pieces one by one. A value is live while an unscheduled piece reads it."""

    __slots__ = ("_done", "_kept", "_pieces", "_readers", "_waits")

    def __init__(self, pieces: Pieces, donate: Iterable[int]) -> None:
        self._pieces = pieces.pieces
        given = {*donate}
        self._kept: set[Atom] = {*pieces.outs, *pieces.constants}
        self._kept.update([v for k, v in enumerate(pieces.ins) if k not in given])
        self._readers: dict[Atom, set[int]] = {}
        made = {a for p in self._pieces for a in p.outs}
        self._waits: list[int] = []  # for each piece, the number of operands that are not computed yet
        for k, p in enumerate(self._pieces):
            ins = {*p.ins}
            self._waits.append(len(ins & made))
            for a in ins:
                self._readers.setdefault(a, set()).add(k)
        self._done: set[int] = set()

    def order(self) -> list[int]:
        """The indices of the pieces in the new order."""
        out: list[int] = []
        for k in range(len(self._pieces)):
            todo = [k]
            while todo:
                n = todo.pop()
                if n not in self._done and (n == k or self._frees(n)):
                    out.append(n)
                    todo += sorted(self._take(n), reverse=True)
        return out

    def _take(self, k: int) -> set[int]:
        """Schedule a piece. Returns the pieces that may now be ready or free memory."""
        self._done.add(k)
        piece = self._pieces[k]
        touched: set[int] = set()
        for a in {*piece.ins}:
            readers = self._readers[a]
            readers.discard(k)
            if len(readers) == 1:
                touched |= readers
        for a in piece.outs:
            for reader in self._readers.get(a, ()):
                self._waits[reader] -= 1
                touched.add(reader)
        return touched

    def _frees(self, k: int) -> bool:
        """Returns True if a piece is ready, and frees more bytes than it allocates."""
        piece = self._pieces[k]
        if self._waits[k] or piece.body.effects:
            return False
        dead = [a for a in {*piece.ins} if a not in self._kept and self._readers[a] == {k}]
        return _bytes(dead) > _bytes([a for a in piece.outs if a in self._kept or self._readers.get(a)])


def _bytes(values: Iterable[Atom]) -> int:
    return sum([a.aval.nbytes for a in values])
