"""Matrix algebra for the rules of this package: matrices on the last two axes.

The first argument `one` emits one equation: `ctx.one` for values, `ctx.lin_one` for tangents. So a rule reads like its
formula, and the builder of tangents refuses an equation that is not linear in them. For X = A B:

    x = dot(ctx.one, a, b)
    x_dot = plus(ctx.lin_one, dot(ctx.lin_one, a_dot, b), dot(ctx.lin_one, a, b_dot))

A function that makes a mask or a constant takes an `emit` for it: these are values also in a formula of tangents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from fxad import dtypes
from fxad.core.sizes.size import minimum
from fxad.ir import Atom, Aval, Emit, Lin, Lit, Shape, Var, Zero
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL, SUB
from fxad.primitives.elementwise.complex_parts import CONJ, REAL
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import EQ, GE
from fxad.primitives.elementwise.select import SELECT_N, emit_where
from fxad.primitives.gather_scatter import Gather
from fxad.primitives.shape import BroadcastInDim, Iota, ReduceSum, Reshape, Transpose
from fxad.primitives.slicing import Pad, slice_along_axis

X = TypeVar("X", bound=Var | Lit | Lin | Zero)
MatrixOperand: TypeAlias = Var | Lit | Lin | Zero
One: TypeAlias = Callable[..., X]  # (primitive, *operands) -> its single result


# -------------------------------------------------------------------------------------------------------- products


def dot(one: One[X], a: MatrixOperand, b: MatrixOperand) -> X:
    """Return the matrix product a b, batch by batch."""
    n = len(a.aval.shape)
    batch = tuple(range(n - 2))
    return one(DotGeneral((n - 1,), (n - 2,), batch, batch, None), a, b)


def transposed(one: One[X], a: MatrixOperand) -> X:
    """Return the transpose."""
    n = len(a.aval.shape)
    return one(Transpose((*range(n - 2), n - 1, n - 2)), a)


def conj(one: One[X], a: X) -> X:
    """Return the complex conjugate; a real matrix is returned unchanged."""
    return one(CONJ, a) if a.aval.dtype in dtypes.COMPLEX else a


def conjugate_transpose(one: One[X], a: X) -> X:
    """Return the conjugate transpose."""
    return conj(one, transposed(one, a))


def scaled(one: One[X], a: MatrixOperand, factor: float) -> X:
    """Return a number times a."""
    return one(MUL, a, Lit.of(factor, a.aval))


def times(one: One[X], a: MatrixOperand, b: MatrixOperand) -> X:
    """Element by element."""
    return one(MUL, a, b)


def plus(one: One[X], a: MatrixOperand, b: MatrixOperand) -> X:
    """Return a + b."""
    return one(ADD, a, b)


def minus(one: One[X], a: MatrixOperand, b: MatrixOperand) -> X:
    """Return a - b."""
    return one(SUB, a, b)


# ----------------------------------------------------------------------------------------------------------- parts


def _count(emit: Emit, shape: Shape, axis: int) -> Var:
    return emit.one(Iota(shape, dtypes.int32, axis))


def lower_mask(emit: Emit, shape: Shape, offset: int = 0) -> Atom:
    """Return the mask of column <= row + offset: the lower triangle, without the diagonal for offset -1."""
    n = len(shape)
    row, column = _count(emit, shape, n - 2), _count(emit, shape, n - 1)
    if offset:
        row = emit.one(ADD, row, Lit.of(offset, row.aval))
    return emit.one(GE, row, column)


def on_diagonal(emit: Emit, shape: Shape) -> Atom:
    """Return the mask of row = column."""
    n = len(shape)
    return emit.one(EQ, _count(emit, shape, n - 2), _count(emit, shape, n - 1))


def zero_unless(one: One[X], mask: Atom, a: MatrixOperand) -> X:
    """Return a where the mask holds, else zero."""
    return one(SELECT_N, mask, Lit.zero(a.aval), a)


def zero_where(one: One[X], mask: Atom, a: MatrixOperand) -> X:
    """Zero where the mask holds, else a."""
    return one(SELECT_N, mask, a, Lit.zero(a.aval))


def inverse_off_diagonal(emit: Emit, a: Atom, diagonal_mask: Atom) -> Atom:
    """Return 1 / a, and 0 on the diagonal, whatever a is there."""
    unit = Lit.of(1, a.aval)
    return zero_where(emit.one, diagonal_mask, emit.one(DIV, unit, emit_where(emit, diagonal_mask, unit, a)))


def identity(emit: Emit, aval: Aval) -> Atom:
    """Return the identity, or its first rows or columns."""
    return emit_where(emit, on_diagonal(emit, aval.shape), Lit.of(1, aval), Lit.zero(aval))


def hermitian(emit: Emit, one: One[X], a: X, *, lower: bool = True) -> X:
    """Return the Hermitian matrix given by one triangle and the real part of the diagonal."""
    shape = a.aval.shape
    mask = lower_mask(emit, shape, -1)
    strict = zero_unless(one, mask, a if lower else conjugate_transpose(one, a))
    real_diagonal = zero_unless(one, on_diagonal(emit, shape), a)
    if a.aval.dtype in dtypes.COMPLEX:
        real_diagonal = as_complex(one, one(REAL, real_diagonal), a.aval)
    return plus(one, plus(one, strict, conjugate_transpose(one, strict)), real_diagonal)


def diagonal(emit: Emit, one: One[X], a: X) -> X:
    """Return the diagonal of matrices, (..., m, n) -> (..., min(m, n))."""
    n = len(a.aval.shape)
    k = minimum(*a.aval.shape[-2:])
    kept = zero_unless(one, on_diagonal(emit, a.aval.shape), a)
    sums = one(ReduceSum((n - 2,)), kept)
    return columns(one, sums, 0, k) if k != a.aval.shape[-1] else sums


def repeat_as_columns(one: One[X], v: MatrixOperand, shape: Shape) -> X:
    """Return a matrix whose columns are the vector: element [i, j] is v[i]."""
    n = len(shape)
    return one(BroadcastInDim(shape, tuple(range(n - 1))), v)


def repeat_as_rows(one: One[X], v: MatrixOperand, shape: Shape) -> X:
    """Return a matrix whose rows are the vector: element [i, j] is v[j]."""
    n = len(shape)
    return one(BroadcastInDim(shape, (*range(n - 2), n - 1)), v)


def _slice_axis(one: One[X], a: X, axis: int, start: int, limit: int) -> X:
    shape = a.aval.shape
    if (start, limit) == (0, shape[axis]):
        return a
    return one(slice_along_axis(shape, axis, start, limit), a)


def columns(one: One[X], a: X, start: int, limit: int) -> X:
    """Return columns (of a vector: elements) from start to limit."""
    return _slice_axis(one, a, len(a.aval.shape) - 1, start, limit)


def rows(one: One[X], a: X, start: int, limit: int) -> X:
    """Return rows from start to limit."""
    return _slice_axis(one, a, len(a.aval.shape) - 2, start, limit)


def padded(one: One[X], a: X, more_rows: int, more_columns: int) -> X:
    """Return a with zeros below and to the right."""
    if more_rows == 0 and more_columns == 0:
        return a
    n = len(a.aval.shape)
    zeros = (0,) * n
    zero = Lit.zero(Aval((), a.aval.dtype))
    return one(Pad(zeros, (*zeros[:-2], more_rows, more_columns), zeros), a, zero)


def as_complex(one: One[X], a: X, like: Aval) -> X:
    """Return a real array in the dtype of `like`."""
    return a if a.aval.dtype == like.dtype else one(ConvertElementType(like.dtype), a)


def column(one: One[X], v: MatrixOperand) -> X:
    """Return vectors as matrices of one column."""
    return one(Reshape((*v.aval.shape, 1)), v)


def vector(one: One[X], a: MatrixOperand) -> X:
    """Return matrices of one column as vectors."""
    return one(Reshape(a.aval.shape[:-1]), a)


def permuted(one: One[X], a: MatrixOperand, order: Atom) -> X:
    """Return the rows of a in another order: row i is row order[i] of a."""
    *batch, m, n = a.aval.shape
    lead = tuple(range(len(batch)))
    gather = Gather(
        offset_dims=(len(lead) + 1,),
        collapsed_slice_dims=(len(lead),),
        operand_batching_dims=lead,
        start_indices_batching_dims=lead,
        start_index_map=(len(lead),),
        slice_sizes=(*[minimum(k, 1) for k in (*batch, m)], n),
        mode="promise_in_bounds",
        indices_sorted=False,
        unique_indices=True,
    )
    return one(gather, a, order)
