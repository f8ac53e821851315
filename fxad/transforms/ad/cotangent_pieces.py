"""Joins the cotangents of the parts of an array: `x[0]`, `x[1]` and `x[2]` give one `concatenate`.

The transpose of a slice pads its cotangent with zeros to the size of the operand. A program that reads the components
of a vector one by one then adds as many padded arrays, each a kernel to compile and a pass over memory: 32 in the
gradient of a bundle adjustment. Pieces that lie apart along one axis are joined instead, with zeros in the gaps.

Every element gets the same additions in the same order as with padded arrays, but for the addition of zeros; a zero may
have the other sign.
"""

from __future__ import annotations

from typing import Final, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Aval, Lit, Source
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.index import Index
from fxad.primitives.linearity import is_zero
from fxad.primitives.slicing import Concatenate, Pad, Slice, pad_along_axis

PARTS: Final = (Slice, Index)  # primitives whose transpose may pad


@final
@dataclass(frozen=True, slots=True)
class _Piece:
    """The cotangent of the elements from `start` on along an axis. `source` is that of the slice."""

    axis: int
    start: int
    value: Atom
    source: Source

    @property
    def stop(self) -> int:
        """The end of the elements."""
        return self.start + self.value.aval.shape[self.axis]


@final
class CotangentPieces:
    """The pieces that are not yet part of the cotangent of their operand, by operand."""

    __slots__ = ("_builder", "_cotangents", "waiting")

    def __init__(self, builder: Builder, cotangents: dict[Atom, Atom]) -> None:
        self._builder = builder
        self._cotangents = cotangents
        self.waiting: dict[Atom, list[_Piece]] = {}

    def take(self, operand: Atom, total: Atom | None) -> None:
        """Hold the cotangent of `operand` that the last equation padded, and remove this equation; add any other
        cotangent to `total`, what the operand has already."""
        b = self._builder
        cotangent = self._cotangents.pop(operand, None)
        if total is not None:
            self._cotangents[operand] = total
        if cotangent is None:
            return
        piece = _last_piece(b, cotangent)
        if piece is None:
            self.settle(operand)
            self._add(operand, cotangent)
            return
        b.eqns.pop()
        b.n -= 1
        pieces = self.waiting.get(operand, [])
        same = [k for k, p in enumerate(pieces) if (p.axis, p.start, p.stop) == (piece.axis, piece.start, piece.stop)]
        apart = all([p.axis == piece.axis and (p.stop <= piece.start or piece.stop <= p.start) for p in pieces])
        if same and total is None:  # with a total, (total + first) + second would become total + (first + second)
            (k,) = same
            pieces[k] = _Piece(piece.axis, piece.start, b.one(ADD, pieces[k].value, piece.value), piece.source)
        elif apart:
            self.waiting.setdefault(operand, []).append(piece)
        else:
            self.settle(operand)
            self.waiting[operand] = [piece]

    def settle(self, *operands: Atom) -> None:
        """Add the pieces of the operands to their cotangents."""
        for operand in operands:
            pieces = self.waiting.pop(operand, None)
            if pieces:
                self._builder.source = pieces[-1].source
                self._add(operand, self._joined(sorted(pieces, key=lambda p: p.start), operand.aval))

    def _add(self, operand: Atom, cotangent: Atom) -> None:
        total = self._cotangents.get(operand)
        self._cotangents[operand] = cotangent if total is None else self._builder.one(ADD, total, cotangent)

    def _joined(self, pieces: list[_Piece], whole: Aval) -> Atom:
        """Return the array of the pieces, which are in order, with zeros elsewhere."""
        first, axis = pieces[0], pieces[0].axis
        size = whole.shape[axis]
        if len(pieces) == 1:
            pad = pad_along_axis(whole.ndim, axis, low=first.start, high=size - first.stop)
            return self._builder.one(pad, first.value, Lit.zero(first.value.aval.with_shape(())))
        parts: list[Atom] = []
        stop = 0
        for piece in (*pieces, None):
            start = size if piece is None else piece.start
            if start > stop:
                shape = (*whole.shape[:axis], start - stop, *whole.shape[axis + 1 :])
                parts.append(Lit.zero(first.value.aval.with_shape(shape)))
            if piece is not None:
                parts.append(piece.value)
                stop = piece.stop
        return self._builder.one(Concatenate(axis), *parts)


def _last_piece(b: Builder, cotangent: Atom) -> _Piece | None:
    """Return the piece that the last equation pads with zeros along one axis to `cotangent`, or None."""
    eqn = b.eqns[-1]
    if type(eqn.prim) is not Pad or eqn.outs[0] is not cotangent or not is_zero(eqn.ins[1]) or any(eqn.prim.interior):
        return None
    low, high = eqn.prim.low, eqn.prim.high
    axes = [k for k, ends in enumerate(zip(low, high, strict=True)) if ends != (0, 0)]
    if len(axes) != 1:
        return None
    (k,) = axes
    sizes = (low[k], high[k], cotangent.aval.shape[k], eqn.ins[0].aval.shape[k])
    if not all([type(n) is int and n >= 0 for n in sizes]):
        return None
    return _Piece(k, low[k], eqn.ins[0], eqn.source)
