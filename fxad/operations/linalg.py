"""Decompositions, least squares and powers of matrices, composed of the primitives of linear algebra."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from fxad import dtypes
from fxad.core.sizes.size import maximum
from fxad.errors import ShapeError
from fxad.ir import Atom, Atoms, Aval, Emit, Lit
from fxad.operations.axes import normalize_axis_index
from fxad.operations.linear_systems import (
    ARGUMENT,
    cholesky,
    hermitian_part,
    inv,
    promote_for_lapack,
    promote_pair_for_lapack,
)
from fxad.operations.promotion import broadcast, convert, promote_and_broadcast, promote_dtypes
from fxad.primitives.elementwise.arithmetic import DIV, MUL, SUB
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, ConvertElementType
from fxad.primitives.elementwise.logic import GT
from fxad.primitives.elementwise.powers import ABS, SIGN
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.linalg import matrices as mx
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import EXPM
from fxad.primitives.linalg.family import matrix_shape, square_shape
from fxad.primitives.linalg.lu import LU
from fxad.primitives.linalg.qr import Qr
from fxad.primitives.linalg.reduction import COLUMN_PIVOTS
from fxad.primitives.linalg.solve import Pinv
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.reduce import ReduceMax
from fxad.primitives.shape import BroadcastInDim, ReduceSum
from fxad.primitives.slicing import Concatenate, Pad, emit_slice

PINV: Final = Pinv()
_EPS: Final = MappingProxyType({dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52})


# --------------------------------------------------------------------------------------------------- least squares


def pinv(emit: Emit, a: Atom, hermitian: bool) -> Atoms:
    """Return the pseudo-inverse, with the default `rtol`."""
    a = promote_for_lapack("pinv", emit, a)
    return pinv_above(emit, a, default_rtol("pinv", emit, a), hermitian)


def default_rtol(op: str, emit: Emit, a: Atom) -> Atom:
    """Return the relative size of a zero singular value after rounding."""
    _, m, n = matrix_shape(op, a.aval, ARGUMENT)
    aval = Aval((), dtypes.real_part(a.aval.dtype))
    return emit.one(MUL, Lit.of(maximum(m, n), aval), Lit.of(_EPS.get(aval.dtype, 0.0), aval))


def pinv_above(emit: Emit, a: Atom, rtol: Atom, hermitian: bool) -> Atoms:
    """Return the pseudo-inverse: singular values up to `rtol` times the largest count as zero."""
    a = promote_for_lapack("pinv", emit, a)
    batch, m, n = matrix_shape("pinv", a.aval, ARGUMENT)
    one = emit.one
    if a.aval.size == 0:
        return (Lit.zero(a.aval.with_shape((*batch, n, m))),)
    s, u, vh = _singular(emit, one(STOP_GRADIENT, a), hermitian)
    nonzero = exceeds_tolerance(emit, s, rtol)
    unit = Lit.of(1, s.aval)
    inverse = mx.zero_unless(one, nonzero, one(DIV, unit, emit_where(emit, nonzero, s, unit)))
    v = mx.conjugate_transpose(one, vh)
    weights = mx.as_complex(one, mx.repeat_as_rows(one, inverse, v.aval.shape), v.aval)
    return emit(PINV, a, mx.dot(one, one(MUL, v, weights), mx.conjugate_transpose(one, u)))


def _singular(emit: Emit, a: Atom, hermitian: bool) -> tuple[Atom, Atom, Atom]:
    """Return singular values, in no order, and vectors."""
    if not hermitian:
        s, u, vh = emit(Svd(True, False), a)
        return s, u, vh
    w, v = emit(Eigh(True, True), a)
    sign = mx.as_complex(emit.one, mx.repeat_as_rows(emit.one, emit.one(SIGN, w), v.aval.shape), v.aval)
    return emit.one(ABS, w), v, mx.conjugate_transpose(emit.one, emit.one(MUL, v, sign))


def exceeds_tolerance(emit: Emit, s: Atom, rtol: Atom) -> Atom:
    """Return a mask of the singular values that exceed `rtol` times the largest."""
    last = s.aval.ndim - 1
    largest = emit.one(ReduceMax((last,)), s)
    if rtol.aval.dtype in dtypes.COMPLEX:  # as a Python number beside complex matrices is
        real = rtol.aval.with_dtype(s.aval.dtype)
        if isinstance(rtol, Lit):  # it has the shape of the matrices
            rtol = Lit.of(rtol.value.real if rtol.size is None else rtol.size, real)
        else:
            rtol = emit.one(REAL, rtol)
    relative = broadcast(emit, convert(emit, rtol, s.aval.dtype), largest.aval.shape)
    limit = emit.one(MUL, largest, relative)
    return emit.one(GT, s, emit.one(BroadcastInDim(s.aval.shape, tuple(range(last))), limit))


def matrix_rank(emit: Emit, a: Atom, rtol: Atom, hermitian: bool) -> Atoms:
    """Return the number of singular values that exceed `rtol` times the largest."""
    a = promote_for_lapack("matrix_rank", emit, a)
    batch, m, n = matrix_shape("matrix_rank", a.aval, ARGUMENT)
    if m * n == 0:
        return (Lit.of(0, Aval(batch, dtypes.int32)),)
    s = emit.one(ABS, *promoted_eigh(emit, a, True, True, False)) if hermitian else emit.one(Svd(False, False), a)
    counted = emit.one(ConvertElementType(dtypes.int32), exceeds_tolerance(emit, s, rtol))
    return emit(ReduceSum((s.aval.ndim - 1,)), counted)


def matrix_rank_default(emit: Emit, a: Atom, hermitian: bool) -> Atoms:
    """Return `matrix_rank` with the default `rtol`."""
    a = promote_for_lapack("matrix_rank", emit, a)
    return matrix_rank(emit, a, default_rtol("matrix_rank", emit, a), hermitian)


def lstsq_default(emit: Emit, a: Atom, b: Atom) -> Atoms:
    """Return `lstsq` with the default `rtol`."""
    a, b = promote_pair_for_lapack("lstsq", emit, a, b)
    return lstsq(emit, a, b, default_rtol("lstsq", emit, a))


def lstsq(emit: Emit, a: Atom, b: Atom, rtol: Atom) -> Atoms:
    """Return the x of least norm that minimizes |a x - b|; the sums of squares of the residual; rank; singular
    values."""
    a, b = promote_pair_for_lapack("lstsq", emit, a, b)
    batch, m, n = matrix_shape("lstsq", a.aval, ARGUMENT)
    if batch or b.aval.ndim not in (1, 2) or b.aval.shape[0] != m:
        raise ShapeError(f"lstsq: takes a matrix and a vector or matrix with as many rows, got {a.aval} and {b.aval}")
    one = emit.one
    rhs: Atom = mx.column(one, b) if b.aval.ndim == 1 else b
    (p,) = pinv_above(emit, a, rtol, False)
    x = mx.dot(one, p, rhs)
    residual = one(SUB, rhs, mx.dot(one, a, x))
    squares = one(MUL, residual, mx.conj(one, residual))
    if a.aval.dtype in dtypes.COMPLEX:
        squares = one(REAL, squares)
    (s,) = emit(Svd(False, False), a) if m * n != 0 else (Lit.of(0, Aval((0,), dtypes.real_part(a.aval.dtype))),)
    (rank,) = matrix_rank(emit, a, rtol, False)
    return mx.vector(one, x) if b.aval.ndim == 1 else x, one(ReduceSum((0,)), squares), rank, s


# ------------------------------------------------------------------------------------------------------------ powers


def matrix_power(emit: Emit, a: Atom, n: int) -> Atoms:
    """Return a multiplied by itself, in about log2(n) products; of the inverse for a negative n."""
    square_shape("matrix_power", a.aval, ARGUMENT)
    if n < 0:
        (a,) = inv(emit, a)
        n = -n
    if n == 0:
        return (mx.identity(emit, a.aval),)
    out: Atom | None = None
    while n:
        if n & 1:
            out = a if out is None else _product(emit, out, a)
        n >>= 1
        if n:
            a = _product(emit, a, a)
    assert out is not None
    return (out,)


def _product(emit: Emit, x: Atom, y: Atom) -> Atom:
    """Return a product of matrices; of bools it is True where a term is."""
    if x.aval.dtype is not dtypes.bool_:
        return mx.dot(emit.one, x, y)
    return convert(emit, mx.dot(emit.one, *[convert(emit, a, dtypes.int32) for a in (x, y)]), dtypes.bool_)


def expm(emit: Emit, a: Atom) -> Atoms:
    """Return the exponential."""
    return emit(EXPM, promote_for_lapack("expm", emit, a))


def cross(emit: Emit, x: Atom, y: Atom, axis: int) -> Atoms:
    """Return the cross product along an axis of size 3; the other axes broadcast."""
    x, y = promote_and_broadcast("cross", emit, x, y)
    k = normalize_axis_index("cross", axis, x.aval.ndim)
    if x.aval.shape[k] != 3:
        raise ShapeError(f"cross: vectors must have 3 elements, axis {axis} of {x.aval} has {x.aval.shape[k]}")

    def rotated(v: Atom, by: int) -> Atom:
        return emit.one(Concatenate(k), emit_slice(emit, v, k, by, 3), emit_slice(emit, v, k, 0, by))

    return emit(
        SUB,
        emit.one(MUL, rotated(x, 1), rotated(y, 2)),
        emit.one(MUL, rotated(x, 2), rotated(y, 1)),
    )


def block_diagonal(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return two matrices along a diagonal."""
    dtype = promote_dtypes("block_diag", x.aval.dtype, y.aval.dtype)
    x, y = convert(emit, x, dtype), convert(emit, y, dtype)
    n, p = x.aval.shape[1], y.aval.shape[1]
    zero = Lit.zero(Aval((), dtype))
    above = emit.one(Pad((0, 0), (0, p), (0, 0)), x, zero)
    return emit(Concatenate(0), above, emit.one(Pad((0, n), (0, 0), (0, 0)), y, zero))


# ---------------------------------------------------------------------------------------------------- decompositions


def qr(emit: Emit, x: Atom, full: bool) -> Atoms:
    """Q and R."""
    return emit(Qr(full), promote_for_lapack("qr", emit, x))


def promoted_pivoted_qr(emit: Emit, x: Atom, full: bool) -> Atoms:
    """Return Q, R and the order of the columns."""
    return pivoted_qr(emit, promote_for_lapack("qr", emit, x), full)


def pivoted_qr(emit: Emit, x: Atom, full: bool) -> Atoms:
    """Return `promoted_pivoted_qr` without promotion: the decomposition of the columns in their order."""
    (order,) = emit(COLUMN_PIVOTS, x)
    upright = mx.transposed(emit.one, x)
    permuted = mx.transposed(emit.one, mx.permuted(emit.one, upright, mx.column(emit.one, order)))
    q, r = emit(Qr(full), permuted)
    return q, r, order


def svd(emit: Emit, x: Atom, full: bool) -> Atoms:
    """U, the singular values, and V^H."""
    s, u, vh = emit(Svd(True, full), promote_for_lapack("svd", emit, x))
    return u, s, vh


def svdvals(emit: Emit, x: Atom) -> Atoms:
    """Return the singular values."""
    return emit(Svd(False, False), promote_for_lapack("svdvals", emit, x))


def eigh(emit: Emit, x: Atom, lower: bool, symmetrize: bool, vectors: bool) -> Atoms:
    """Return eigenvalues and, with `vectors`, eigenvectors of Hermitian matrices."""
    if symmetrize:
        x = hermitian_part("eigh", emit, x)
    return emit(Eigh(lower, vectors), x)


def promoted_eigh(emit: Emit, x: Atom, lower: bool, symmetrize: bool, vectors: bool) -> Atoms:
    """Return `eigh`, also of integers."""
    return eigh(emit, promote_for_lapack("eigh", emit, x), lower, symmetrize, vectors)


def promoted_cholesky(emit: Emit, x: Atom, upper: bool, symmetrize: bool) -> Atoms:
    """Return `cholesky`, also of integers."""
    return cholesky(emit, promote_for_lapack("cholesky", emit, x), symmetrize, upper)


def eig(emit: Emit, x: Atom, vectors: bool) -> Atoms:
    """Return eigenvalues and, with `vectors`, right eigenvectors."""
    return emit(Eig(False, vectors), promote_for_lapack("eig", emit, x))


def promoted_lu(emit: Emit, x: Atom) -> Atoms:
    """Return `lu` without the permutation, also of integers."""
    return emit(LU, promote_for_lapack("lu_factor", emit, x))
