"""Cumulative operations as programs.

A loop runs along the axis and combines one row of all other elements per step. If rows are short, the axis is split
into blocks that are scanned in parallel; then the totals of the blocks are scanned, and the prefix of each block is
combined with all its elements. XLA's window reduction takes three times as long to run and to compile (a million
floats: 12 ms and 220 ms).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod
from typing import TypeAlias

from fxad.core.builder import Builder
from fxad.core.constants import ROW_SIZE, UNSPLIT_STEPS
from fxad.ir import Atom, Aval, Emit, Jaxpr, Lit
from fxad.primitives.control.scan import Scan
from fxad.primitives.shape import Transpose, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Pad, emit_slice

Parts: TypeAlias = tuple[Atom, ...]
# (left, right) -> combined: element by element, associative
Join: TypeAlias = Callable[[Emit, Parts, Parts], Parts]


def cumulative_program(
    name: str, avals: tuple[Aval, ...], join: Join, units: tuple[object, ...], axis: int, reverse: bool
) -> Jaxpr:
    """Return the program of a cumulative operation: each result combines all elements up to its own; from the end for
    `reverse`.

    Type: operands of one shape -> results of the same types. `units` are the identity elements.
    """
    b = Builder()
    return b.build(_cumulate_along(b, name, b.inputs(avals), join, units, axis, reverse), name)


def _cumulate_along(
    emit: Emit, name: str, xs: Parts, join: Join, units: Sequence[object], axis: int, reverse: bool
) -> Parts:
    shape = xs[0].aval.shape
    before, n, after = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    cuts = min(-(-ROW_SIZE // max(before * after, 1)), isqrt(n)) if n > UNSPLIT_STEPS else 1
    steps = -(-n // cuts)
    pieces = [
        emit_reshape(emit, _pad_end(emit, x, axis, cuts * steps - n, u), (before, cuts, steps, after))
        for x, u in zip(xs, units, strict=True)
    ]
    rows = [_permute(emit, p, (2, 0, 1, 3)) for p in pieces]
    totals, rows = _scan_rows(emit, name, rows, join, units, reverse)
    if cuts > 1:
        ahead = _exclusive(emit, _cumulate_along(emit, name, totals, join, units, 1, reverse), units, reverse)
        ahead = tuple([emit_broadcast(emit, t, rows[0].aval.shape, (1, 2, 3)) for t in ahead])
        rows = list(join(emit, ahead, tuple(rows)))
    done = [emit_reshape(emit, _permute(emit, r, (1, 2, 0, 3)), (before, cuts * steps, after)) for r in rows]
    return tuple([emit_reshape(emit, emit_slice(emit, y, 1, 0, n) if cuts * steps > n else y, shape) for y in done])


def _pad_end(emit: Emit, x: Atom, axis: int, more: int, unit: object) -> Atom:
    if not more:
        return x
    none = (0,) * x.aval.ndim
    high = (*none[:axis], more, *none[axis + 1 :])
    return emit.one(Pad(none, high, none), x, Lit.of(unit, x.aval.with_shape(())))


def _permute(emit: Emit, x: Atom, axes: tuple[int, ...]) -> Atom:
    """Return `x` with its axes permuted; a reshape if only axes of size 1 change their order."""
    shape = x.aval.shape
    if [a for a in axes if shape[a] > 1] == [a for a in range(len(shape)) if shape[a] > 1]:
        return emit_reshape(emit, x, tuple([shape[a] for a in axes]))
    return emit.one(Transpose(axes), x)


def _scan_rows(
    emit: Emit, name: str, rows: Sequence[Atom], join: Join, units: Sequence[object], reverse: bool
) -> tuple[Parts, list[Atom]]:
    """Return the totals of all rows, and the cumulative values."""
    b, k = Builder(), len(rows)
    row = [r.aval.with_shape(r.aval.shape[1:]) for r in rows]
    total, x = b.inputs(row), b.inputs(row)
    new = join(b, total, x)
    body = b.build((*new, *new), f"{name}_step")
    start = [Lit.of(u, a) for u, a in zip(units, row, strict=True)]
    outs = emit(Scan(body, rows[0].aval.shape[0], reverse, 1, 0, k), *start, *rows)
    return outs[:k], list(outs[k:])


def _exclusive(emit: Emit, totals: Parts, units: Sequence[object], reverse: bool) -> Parts:
    """Return the combined totals of all blocks before each block, along axis 1."""
    low, high = ((0, -1, 0), (0, 1, 0)) if reverse else ((0, 1, 0), (0, -1, 0))
    pad = Pad(low, high, (0, 0, 0))
    firsts = [Lit.of(u, t.aval.with_shape(())) for t, u in zip(totals, units, strict=True)]
    return tuple([emit.one(pad, t, first) for t, first in zip(totals, firsts, strict=True)])
