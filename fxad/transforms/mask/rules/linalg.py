"""Linear algebra: padding is a block of its own, which no operation mixes with the valid one.

- The identity pads triangular matrices, and those that are factored or solved with.
- Zeros pad where the operation keeps zero rows and columns apart: packed reflections, exponentials, pseudo-inverses.
- A decomposition whose derivative divides by diagonal elements, or by differences of eigenvalues, gets a diagonal
  block: ones for R and U, else numbers that are all different, and larger than the eigenvalues of the valid block.
- Where rows beyond the columns would stand between the blocks, the diagonal block comes first, and the valid one is
  moved behind it. Results are moved back.

Decision: docs/adr/0069.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Final

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import maximum, minimum
from fxad.ir import Atom, Atoms, Aval, Avals, Lit, Primitive
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, SUB
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, ConvertElementType
from fxad.primitives.elementwise.logic import AND, GE, GT, LT, NOT, OR
from fxad.primitives.elementwise.powers import ABS
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import Expm, ExpmFrechet
from fxad.primitives.linalg.family import LinearSystem
from fxad.primitives.linalg.lu import Lu, LuPivotsToPermutation
from fxad.primitives.linalg.matrices import (
    as_complex,
    conjugate_transpose,
    lower_mask,
    on_diagonal,
    repeat_as_rows,
    zero_unless,
)
from fxad.primitives.linalg.qr import Geqrf, HouseholderProduct, Ormqr, Qr
from fxad.primitives.linalg.reduction import ColumnPivots, Tridiagonalize
from fxad.primitives.linalg.schur import Schur
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.tridiagonal import TridiagonalSolve
from fxad.primitives.reduce import ReduceMax
from fxad.primitives.shape import emit_broadcast
from fxad.primitives.slicing import emit_slice, pad_along_axis
from fxad.primitives.sort import Sort
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, Write, row
from fxad.transforms.mask.padded_builder import int_literal
from fxad.transforms.mask.rules.structure import padded_to, taken_from


def with_identity(ctx: MaskCtx, x: Atom, aval: Aval) -> Atom:
    """Square matrices with ones on the diagonal of the padding, and zeros beside it."""
    return _with_block(ctx, x, aval, Lit.of(1, x.aval))


def _with_block(ctx: MaskCtx, x: Atom, aval: Aval, values: Atom) -> Atom:
    """Square matrices with `values`, of the padded type, on the diagonal of the padding, and zeros beside it."""
    inside = ctx.inside(aval.shape)
    if inside is None:
        return x
    outside = ctx.one(AND, on_diagonal(ctx, x.aval.shape), ctx.one(NOT, inside))
    return ctx.one(SELECT_N, outside, ctx.zero_filled(x, aval.shape), values)


def _zero(ctx: MaskCtx, x: Atom, aval: Aval) -> Atom:
    """Return arrays with zeros in the padding."""
    return ctx.zero_filled(x, aval.shape)


def _pivots(ctx: MaskCtx, x: Atom, aval: Aval) -> Atom:
    """Row exchanges that leave the padding in place."""
    inside = ctx.inside(aval.shape)
    return x if inside is None else ctx.one(SELECT_N, inside, ctx.iota(x.aval.shape, aval.ndim - 1), x)


def _cleared(ctx: MaskCtx, results: Sequence[Atom], outs: Avals) -> list[Atom]:
    """Return the results, cleared."""
    return [ctx.cleared(y, aval.shape) for y, aval in zip(results, outs, strict=True)]


def _filled_by(*fills: Callable[[MaskCtx, Atom, Aval], Atom]) -> Write[Primitive]:
    """Return the rule of an operation that does not mix padding with valid elements, if `fills` fill its operands. The
    last of the fills is that of all further operands."""

    def write(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
        of_operands = chain(fills, repeat(fills[-1]))
        filled = [fill(ctx, x, aval) for x, aval, fill in zip(args, ins, of_operands, strict=False)]
        return _cleared(ctx, ctx(prim, *filled), outs)

    return write


_zeros: Final = _filled_by(_zero)


# --------------------------------------------------------------------------------------------------------- solutions


def _system(ctx: MaskCtx, prim: LinearSystem, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Square matrices get the identity, and row exchanges stay in place. The padding of the right-hand side is 0."""
    *matrix, b = zip(args, ins, strict=True)
    filled = [with_identity(ctx, x, aval) if aval.inexact else _pivots(ctx, x, aval) for x, aval in matrix]
    return _cleared(ctx, ctx(prim, *filled, _zero(ctx, *b)), outs)


def _tridiagonal(ctx: MaskCtx, prim: TridiagonalSolve, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    dl, d, du, b = args
    line = ins[1].shape
    # the element of du in the last row is ignored, but the padding has further rows
    above = ctx.zero_filled(du, (*line[:-1], line[-1] - 1))
    x = ctx.one(prim, ctx.zero_filled(dl, line), ctx.filled(d, line, 1), above, ctx.zero_filled(b, ins[3].shape))
    return (ctx.cleared(x, outs[0].shape),)


def _permutation(ctx: MaskCtx, prim: LuPivotsToPermutation, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    padded = ctx.padded_size(prim.size)
    pivots = _pivots(ctx, args[0], ins[0])
    pivots = _window(ctx, pivots, ins[0].ndim - 1, None, minimum(pivots.aval.shape[-1], padded))
    return ctx(LuPivotsToPermutation(padded, prim.inverse), pivots)


# ------------------------------------------------------------------------------------------------------- eigenvalues


def _singular_value_bound(ctx: MaskCtx, size: Atom, order: int) -> Atom:
    """Return a number that no eigenvalue or singular value exceeds, for each matrix: `order` times the greatest of the
    magnitudes `size`, or 1 for a matrix of zeros. It is a constant of the derivative."""
    greatest = ctx.one(ReduceMax((size.aval.ndim - 2, size.aval.ndim - 1)), ctx.one(STOP_GRADIENT, size))
    greatest = ctx.one(MUL, greatest, Lit.of(order, greatest.aval))
    return ctx.one(SELECT_N, ctx.one(GT, greatest, Lit.of(0, greatest.aval)), Lit.of(1, greatest.aval), greatest)


def _distinct_numbers_above(ctx: MaskCtx, bound: Atom, order: int, *, descending: bool = False) -> Atom:
    """Return numbers between two and three times the bound, all different: (..., order)."""
    shape = (*bound.aval.shape, order)
    steps = ctx.one(ConvertElementType(bound.aval.dtype), ctx.iota(shape, len(shape) - 1))
    steps = ctx.one(DIV, steps, Lit.of(order, steps.aval))  # the order may depend on sizes that are masked later
    factor = ctx.one(SUB if descending else ADD, Lit.of(3 if descending else 2, steps.aval), steps)
    return ctx.one(MUL, factor, emit_broadcast(ctx, bound, shape, tuple(range(bound.aval.ndim))))


def _eigh(ctx: MaskCtx, prim: Eigh, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask an eigendecomposition: the padding becomes a diagonal block of distinct numbers above a bound of all
    eigenvalues. So the eigenvalues of the block come last, and its eigenvectors do not mix with the others. Example: a
    true order 2 in a padded order 3, eigenvalues 1 and 4, bound 5: the diagonal of the block is more than 5.
    """
    (x,), (aval,) = args, ins
    shape, order = x.aval.shape, x.aval.shape[-1]
    if ctx.ragged(aval.shape[-2:]) and order:
        clear = ctx.zero_filled(x, aval.shape)
        size = ctx.one(ABS, clear)
        if clear.aval.dtype in dtypes.COMPLEX:  # imaginary parts on the diagonal are ignored
            size = ctx.one(SELECT_N, on_diagonal(ctx, shape), size, ctx.one(ABS, ctx.one(REAL, clear)))
        triangle = lower_mask(ctx, shape) if prim.lower_a else ctx.one(NOT, lower_mask(ctx, shape, -1))
        bound = _singular_value_bound(ctx, zero_unless(ctx.one, triangle, size), order)
        values = _distinct_numbers_above(ctx, bound, order)
        x = _with_block(ctx, x, aval, as_complex(ctx.one, repeat_as_rows(ctx.one, values, shape), x.aval))
    else:
        x = ctx.zero_filled(x, aval.shape)
    return _cleared(ctx, ctx(prim, x), outs)


def _eig(ctx: MaskCtx, prim: Eig, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask an eigendecomposition without an order: as `_eigh`, but the eigenvalues of the block, which are known by
    their magnitude, are sorted to the end, with their eigenvectors."""
    (x,), (aval,) = args, ins
    shape, order = x.aval.shape, x.aval.shape[-1]
    if not ctx.ragged(aval.shape[-2:]) or not order:
        return _zeros(ctx, prim, args, ins, outs)
    bound = _singular_value_bound(ctx, ctx.one(ABS, ctx.zero_filled(x, aval.shape)), order)
    values = repeat_as_rows(ctx.one, _distinct_numbers_above(ctx, bound, order), shape)
    w, *vectors = ctx(prim, _with_block(ctx, x, aval, as_complex(ctx.one, values, x.aval)))
    # no order of eigenvalues is promised: those of the padding, which exceed the bound, are sorted to the end
    magnitude = ctx.one(ABS, w)
    wide = emit_broadcast(ctx, bound, magnitude.aval.shape, tuple(range(bound.aval.ndim)))
    is_padding = ctx.one(GT, magnitude, ctx.one(MUL, wide, Lit.of(1.5, wide.aval)))
    key = ctx.one(ConvertElementType(dtypes.int32), is_padding)
    last = len(shape) - 1
    ordered = [ctx(Sort(last - 1, 1), key, w)[1]]
    ordered += [ctx(Sort(last, 1), repeat_as_rows(ctx.one, key, shape), v)[1] for v in vectors]
    return _cleared(ctx, ordered, outs)


# --------------------------------------------------------------------------------------------------- blocks in a frame


def _shifted(ctx: MaskCtx, x: Atom, axis: int, start: Atom | None, most: int, padded: int) -> Atom:
    """Return `x` behind `start` zeros, at most `most`, in an axis of size `padded`."""
    if start is None:
        return _window(ctx, x, axis, None, padded)
    pad = pad_along_axis(x.aval.ndim, axis, low=most, high=maximum(padded - x.aval.shape[axis], 0))
    wide = ctx.one(pad, x, Lit.zero(x.aval.with_shape(())))
    return taken_from(ctx, wide, axis, ctx.one(SUB, int_literal(most), start), padded)


def _window(ctx: MaskCtx, x: Atom, axis: int, start: Atom | None, padded: int) -> Atom:
    """Return `padded` elements along an axis, from `start` on (default: 0); zeros beyond the end."""
    if start is not None:
        return taken_from(ctx, padded_to(ctx, x, axis, x.aval.shape[axis] + padded), axis, start, padded)
    x = padded_to(ctx, x, axis, padded)
    return x if x.aval.shape[axis] == padded else emit_slice(ctx, x, axis, 0, padded)


def _with_unit_diagonal(ctx: MaskCtx, x: Atom, aval: Aval) -> tuple[Atom, Atom | None]:
    """Return matrices with the valid block on the diagonal and ones on the rest of it, so that they have the rank of
    the valid block and more; and the place of that block, if it is not the first. No column exceeds the rows.

    Example: (m, k) = (2, 1), padded to (3, 2). The rest of the diagonal is 2 - 1 = 1 element, so the block starts at 1.
    The frame has 3 + 2 rows, because the block may start as late as 2 and has up to 3 rows:

        x = a .        frame = 1 0
            b .                0 a
            . .                0 b
                               0 0
                               0 0
    """
    n = aval.ndim
    m, k = aval.shape[-2:]
    rows, columns = x.aval.shape[-2:]
    x = ctx.zero_filled(x, aval.shape)
    if not ctx.ragged((m, k)):
        return x, None
    start: Atom | None = None
    if at_least(k - m, 0):
        columns = maximum(rows, columns)
    else:  # rows may follow the square part: the valid block comes last
        if ctx.masked(k):
            start = ctx.one(SUB, int_literal(columns), ctx.count(k))
            rows = rows + columns
        rows = maximum(rows, columns)
    most = x.aval.shape[-1]
    x = _shifted(ctx, _shifted(ctx, x, n - 2, start, most, rows), n - 1, start, most, columns)
    shape = x.aval.shape
    end = ctx.count(m) if start is None else ctx.one(ADD, start, ctx.count(m))
    line = ctx.iota(shape, n - 2)
    outside = ctx.one(GE, line, emit_broadcast(ctx, end, shape, ()))
    if start is not None:
        outside = ctx.one(OR, outside, ctx.one(LT, line, emit_broadcast(ctx, start, shape, ())))
    ones = ctx.one(AND, on_diagonal(ctx, shape), outside)
    return ctx.one(SELECT_N, ones, x, Lit.of(1, x.aval)), start


def _block(ctx: MaskCtx, x: Atom, aval: Aval, start: Atom | None) -> Atom:
    """Return the valid block of matrices, as padded matrices of the symbolic type `aval`."""
    n = aval.ndim
    for axis in (n - 2, n - 1):
        x = _window(ctx, x, axis, start, ctx.padded_size(aval.shape[axis]))
    return ctx.cleared(x, aval.shape)


def _lu(ctx: MaskCtx, prim: Lu, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    framed, start = _with_unit_diagonal(ctx, args[0], ins[0])
    factors, pivots = ctx(prim, framed)
    exchanged = _window(ctx, pivots, pivots.aval.ndim - 1, start, ctx.padded_size(outs[1].shape[-1]))
    if start is not None:
        exchanged = ctx.one(SUB, exchanged, emit_broadcast(ctx, start, exchanged.aval.shape, ()))
    return _block(ctx, factors, outs[0], start), exchanged


def _qr(ctx: MaskCtx, prim: Qr, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    framed, start = _with_unit_diagonal(ctx, args[0], ins[0])
    return [_block(ctx, y, aval, start) for y, aval in zip(ctx(prim, framed), outs, strict=True)]


def _reflections(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Return packed reflections; those of the padding are the identity, because their scales are zero."""
    a, *others = [_zero(ctx, x, aval) for x, aval in zip(args, ins, strict=True)]
    n = a.aval.ndim
    rows, columns = a.aval.shape[-2:]
    if others:
        if isinstance(prim, HouseholderProduct):
            rows = maximum(rows, columns)
            a = padded_to(ctx, a, n - 2, rows)
        others[0] = _window(ctx, others[0], n - 2, None, minimum(others[0].aval.shape[-1], minimum(rows, columns)))
    results: list[Atom] = [*ctx(prim, a, *others)]
    for k, aval in enumerate(outs):
        for axis in range(n - 2, aval.ndim):
            results[k] = _window(ctx, results[k], axis, None, ctx.padded_size(aval.shape[axis]))
    return _cleared(ctx, results, outs)


# --------------------------------------------------------------------------------------------------- singular values


def _svd(ctx: MaskCtx, prim: Svd, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,), (aval,) = args, ins
    *batch, m, n = aval.shape
    if not ctx.ragged((m, n)):
        return _zeros(ctx, prim, args, ins, outs)
    if not prim.full_matrices or m == n:
        return _reduced_svd(ctx, prim.vectors, x, aval)
    # the further vectors are any basis of the complement: the last columns of a full Q
    s, u, vh = _reduced_svd(ctx, True, x, aval)
    k = outs[0].shape[-1]
    of_v = aval.with_shape((*batch, n, k))
    full_u = _completed_basis(ctx, u, aval.with_shape((*batch, m, k)), outs[1])
    full_v = _completed_basis(ctx, conjugate_transpose(ctx.one, vh), of_v, outs[2])
    return s, full_u, conjugate_transpose(ctx.one, full_v)


def _completed_basis(ctx: MaskCtx, u: Atom, aval: Aval, out: Aval) -> Atom:
    """Return the orthonormal columns `u`, and further columns that complete them to a basis."""
    (full, _) = _qr(
        ctx, Qr(True), (u,), (aval,), (out, aval.with_shape((*out.shape[:-2], out.shape[-1], aval.shape[-1])))
    )
    axis, padded = out.ndim - 1, out.shape[-1]
    widened = _window(ctx, u, axis, None, ctx.padded_size(padded))
    is_of_u = ctx.below(full.aval.shape, axis, ctx.count(aval.shape[-1]))
    return ctx.one(SELECT_N, is_of_u, full, widened)


def _reduced_svd(ctx: MaskCtx, vectors: bool, x: Atom, aval: Aval) -> Sequence[Atom]:
    """Mask a reduced decomposition. The singular values of the padding are the first ones: large, and different from
    each other. Those of the valid block may be zero, and their vectors must not mix with the padding."""
    *batch, m, n = aval.shape
    tall, wide = at_least(m - n, 0), at_least(n - m, 0)
    k = minimum(m, n)
    s_aval = Aval((*batch, k), dtypes.real_part(aval.dtype))
    u_aval, vh_aval = aval.with_shape((*batch, m, k)), aval.with_shape((*batch, k, n))
    if wide and not tall:
        turned = aval.with_shape((*batch, n, m))
        filled = ctx.zero_filled(x, aval.shape)
        s, *turned_vectors = _reduced_svd(ctx, vectors, conjugate_transpose(ctx.one, filled), turned)
        return s, *[conjugate_transpose(ctx.one, y) for y in reversed(turned_vectors)]
    x = ctx.zero_filled(x, aval.shape)
    rank = x.aval.ndim
    upright: Atom | None = None
    if tall:
        columns = ctx.padded_size(n)
        rows = columns + ctx.padded_size(m - n)
    else:  # not decided: each is made upright when the sizes are known
        columns = maximum(*x.aval.shape[-2:])
        x = _window(ctx, _window(ctx, x, rank - 2, None, columns), rank - 1, None, columns)
        upright = ctx.one(GE, ctx.count(m), ctx.count(n))
        x = ctx.one(SELECT_N, emit_broadcast(ctx, upright, x.aval.shape, ()), conjugate_transpose(ctx.one, x), x)
        rows = 2 * columns
    start = ctx.one(SUB, int_literal(columns), ctx.count(k)) if ctx.masked(k) else None
    if start is not None and columns:
        bound = _singular_value_bound(ctx, ctx.one(ABS, x), columns)
        x = _shifted(ctx, _shifted(ctx, x, rank - 2, start, columns, rows), rank - 1, start, columns, columns)
        shape = x.aval.shape
        values = repeat_as_rows(ctx.one, _distinct_numbers_above(ctx, bound, columns, descending=True), shape)
        first = ctx.one(LT, ctx.iota(shape, rank - 1), emit_broadcast(ctx, start, shape, ()))
        first = ctx.one(AND, on_diagonal(ctx, shape), first)
        x = ctx.one(SELECT_N, first, x, as_complex(ctx.one, values, x.aval))
    s, *both = ctx(Svd(vectors, False), x)
    s = ctx.cleared(_window(ctx, s, rank - 2, start, ctx.padded_size(k)), s_aval.shape)
    if not vectors:
        return (s,)
    u, vh = both
    if upright is None:
        return s, _block(ctx, u, u_aval, start), _block(ctx, vh, vh_aval, start)
    lying = conjugate_transpose(ctx.one, vh), conjugate_transpose(ctx.one, u)
    chosen: list[Atom] = []
    for if_upright, if_not, out in zip((u, vh), lying, (u_aval, vh_aval), strict=True):
        y, z = _block(ctx, if_upright, out, start), _block(ctx, if_not, out, start)
        chosen.append(ctx.one(SELECT_N, emit_broadcast(ctx, upright, y.aval.shape, ()), z, y))
    return s, *chosen


_REFLECTIONS: Final[tuple[type[Primitive], ...]] = (Geqrf, HouseholderProduct, Ormqr)

_IDENTITY: Final = "padding is the identity"
_ZERO: Final = "padding is 0"
_LARGE: Final = "padding has larger values, all different, on its diagonal"
_FIRST: Final = "padding is the identity, before the matrix where rows may be more than columns"

# a matrix, its factors and its row exchanges
_FACTORED: Final = _filled_by(with_identity, with_identity, _pivots)

LINALG: Final[tuple[MaskRow, ...]] = (
    row(Cholesky, _filled_by(with_identity), _IDENTITY),
    row(LinearSystem, _system, _IDENTITY),
    row(TridiagonalSolve, _tridiagonal, _IDENTITY),
    row(LuPivotsToPermutation, _permutation, "padding stays in place"),
    *[row(kind, _FACTORED, _IDENTITY) for kind in (Slogdet, Det)],
    row(Lu, _lu, _FIRST),
    row(Qr, _qr, _FIRST),
    *[row(kind, _reflections, _ZERO) for kind in _REFLECTIONS],
    *[row(kind, _zeros, _ZERO) for kind in (Pinv, Expm, ExpmFrechet, ColumnPivots, Tridiagonalize)],
    row(Eigh, _eigh, _LARGE),
    row(Eig, _eig, f"{_LARGE}; its eigenvalues are sorted to the end"),
    row(Schur, _zeros, "padding is zero, and stays in place: LAPACK finds its eigenvalues first"),
    row(Svd, _svd, f"{_LARGE}; its singular values come first and are dropped"),
)

__all__ = ["LINALG", "with_identity"]
