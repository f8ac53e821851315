"""Inverses of products with known matrices.

A triangular matrix is inverted by a triangular solve, any other square matrix by its LU decomposition. A zero on
the diagonal of a triangular matrix gives nan. A general matrix gives nan if its condition number leaves fewer than a
third of the digits.
"""

from __future__ import annotations

from math import prod
from typing import Final, final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Atom, Atoms, Aval, Flags, Hole, Lit
from fxad.primitives.dot import DotGeneral, free_axes
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.formula import Formula
from fxad.primitives.elementwise.logic import LE
from fxad.primitives.elementwise.powers import ABS
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.linalg.matrices import diagonal, identity, transposed
from fxad.primitives.linalg.solve import Solve, lu_factors
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.reduce import ReduceMax
from fxad.primitives.shape import BroadcastInDim, ReduceSum, Transpose, emit_reshape
from fxad.transforms.inversion.rules.assembling import unknown_elements
from fxad.transforms.inversion.rules.contract import Args, InverseCtx, InverseRow, Outs, Refused, Solved, row
from fxad.transforms.inversion.rules.elementwise import finite
from fxad.transforms.inversion.rules.known_matrices import LOWER, triangles_of
from fxad.transforms.inversion.rules.totals import constant, log_sizes, significand_bits, total

_LAPACK: Final = frozenset({dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128})


# -------------------------------------------------------------------------------------------------------- products


@final
@dataclass(frozen=True, slots=True)
class Product:
    """A `dot_general` as a product of matrices, op(A) X = Y, batch by batch, in its one unknown operand X.

    `is_transposed`: op(A) is the transpose of A. The first `n_batch` axes of A and Y are batch axes. `row_axis` is the
    axis of the rows in Y. Its other axes are the free axes of X (neither batch axes nor contracted), in order. `order`
    lists the axes of X: batch axes, the contracted axis, free axes.
    """

    matrix: Atom
    is_transposed: bool
    row_axis: int
    n_batch: int
    order: tuple[int, ...]

    def columns(self, y: Aval) -> int:
        """Return the number of columns of X, over all batches."""
        return y.size // max(y.shape[self.row_axis], 1)


def _as_matrix_product(prim: DotGeneral, args: Args, y: Aval) -> Product | str:
    """Return the matrix product, or the reason why the equation is not one."""
    (lhs, rhs), n_batch = args, len(prim.lhs_batch)
    sides = (lhs, prim.lhs_contract, prim.lhs_batch), (rhs, prim.rhs_contract, prim.rhs_batch)
    (a, contract, batch), (x, x_contract, x_batch) = sides if isinstance(rhs, Hole) else sides[::-1]
    if isinstance(a, Hole):
        return "both operands are unknown"
    if prim.preferred not in (None, a.aval.dtype):
        return "its sums have another dtype"
    shape = a.aval.shape
    rows = free_axes(a.aval.ndim, batch, contract)
    if len(contract) != 1 or len(rows) != 1 or shape[rows[0]] != shape[contract[0]]:
        return "the matrix is not square"
    if batch != tuple(range(n_batch)):
        return "the matrix does not have its batch axes in front"
    row_axis = n_batch if a is lhs else y.ndim - 1
    order = (*x_batch, *x_contract, *free_axes(x.aval.ndim, x_batch, x_contract))
    return Product(a, contract[0] < rows[0], row_axis, n_batch, order)


def _dot_general(ctx: InverseCtx, prim: DotGeneral, args: Args, outs: Outs) -> Solved | Refused:
    (y,), unknown = outs, int(isinstance(args[1], Hole))
    if y.aval.dtype not in dtypes.INEXACT - dtypes.FLOAT8:
        return Refused(f"products of {y.aval.dtype} are not taken apart")
    product = _as_matrix_product(prim, args, y.aval)
    if isinstance(product, str):
        return Refused(product)
    x = _solve_system(ctx, product, _as_matrices(ctx, product, y))
    operand = _as_operand(ctx, product, x, args[unknown].aval)
    return (None, operand) if unknown else (operand, None)


def _as_matrices(ctx: InverseCtx, product: Product, y: Atom) -> Atom:
    """Return Y with its rows on the last axis but one and its columns on the last axis."""
    n, shape = product.n_batch, y.aval.shape
    rest = [a for a in range(n, y.aval.ndim) if a != product.row_axis]
    rows_first = _transposed_axes(ctx, y, (*range(n), product.row_axis, *rest))
    return emit_reshape(ctx, rows_first, (*shape[:n], shape[product.row_axis], prod([shape[a] for a in rest])))


def _as_operand(ctx: InverseCtx, product: Product, x: Atom, like: Aval) -> Atom:
    """Return X in the shape and axis order of the operand."""
    separate_axes = emit_reshape(ctx, x, tuple([like.shape[a] for a in product.order]))
    return _transposed_axes(ctx, separate_axes, tuple(sorted(range(like.ndim), key=product.order.__getitem__)))


def _transposed_axes(ctx: InverseCtx, x: Atom, perm: tuple[int, ...]) -> Atom:
    if isinstance(x, Lit):
        return x.with_shape([x.aval.shape[a] for a in perm])
    return x if perm == tuple(range(len(perm))) else ctx.one(Transpose(perm), x)


def _solve_system(ctx: InverseCtx, product: Product, y: Atom) -> Atom:
    """Return X with op(A) X = Y."""
    a, is_transposed, triangles = product.matrix, product.is_transposed, triangles_of(ctx, product.matrix)
    wide = a.aval.dtype if a.aval.dtype in _LAPACK else dtypes.float32
    if not triangles:
        x = _by_factors(ctx, emit_convert(ctx, a, wide), is_transposed, emit_convert(ctx, y, wide))
        return emit_convert(ctx, x, y.aval.dtype)
    solve = TriangularSolve(
        left_side=True,
        lower_a=LOWER in triangles,
        transpose_a=is_transposed,
        conjugate_a=False,
        unit_diagonal=False,
    )
    x = ctx.one(solve, emit_convert(ctx, a, wide), emit_convert(ctx, y, wide))
    return emit_convert(ctx, finite(Formula(ctx, x)).atom, y.aval.dtype)


def _by_factors(ctx: InverseCtx, a: Atom, is_transposed: bool, y: Atom) -> Atom:
    """Return X with op(A) X = Y, by the LU decomposition of A; nan if A is singular or nearly singular.

    Source: the condition number |A| |A^-1|, in the norm of the largest row; Higham, Accuracy and Stability of Numerical
            Algorithms (2002), section 7.1.
    """
    lu, pivots = lu_factors(ctx, a)
    unit = identity(ctx, a.aval)
    inverse = ctx.one(Solve(is_transposed), a, lu, pivots, unit)
    x = ctx.one(Solve(is_transposed), a, lu, pivots, y)
    condition = ctx.one(MUL, _norm(ctx, transposed(ctx.one, a) if is_transposed else a), _norm(ctx, inverse))
    accurate = ctx.one(LE, condition, Lit.of(largest_condition(a.aval.dtype), condition.aval))
    batch_axes = tuple(range(a.aval.ndim - 2))
    accurate = ctx.one(BroadcastInDim(x.aval.shape, batch_axes), accurate)
    return ctx.one(SELECT_N, accurate, unknown_elements(x.aval), x)


def largest_condition(dtype: DType) -> float:
    """Return the largest condition number that leaves a third of the digits: 4e10 in float64, 7e4 in float32."""
    return float(2.0 ** (2 / 3 * significand_bits(dtype, 24)))


def _norm(ctx: InverseCtx, a: Atom) -> Atom:
    """Return the largest sum of magnitudes in a row, for each matrix."""
    n = a.aval.ndim
    return ctx.one(ReduceMax((n - 2,)), ctx.one(ReduceSum((n - 1,)), ctx.one(ABS, a)))


def _dot_general_log_det(ctx: InverseCtx, prim: DotGeneral, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
    """Return log|det A| once for each column, summed."""
    (y,) = outs
    holes: Args = tuple([Hole(a.aval) if u else a for a, u in zip(args, unknown, strict=True)])
    product = _as_matrix_product(prim, holes, y.aval)
    assert isinstance(product, Product), "it was solved"
    a = product.matrix
    if not triangles_of(ctx, a):
        a, _ = lu_factors(ctx, emit_convert(ctx, a, a.aval.dtype if a.aval.dtype in _LAPACK else dtypes.float32))
    each = total(ctx, log_sizes(ctx, diagonal(ctx, ctx.one, a)))
    batches = prod(a.aval.shape[:-2])
    return ctx.one(MUL, each, constant(product.columns(y.aval) / max(batches, 1), each))


PRODUCTS: Final[tuple[InverseRow, ...]] = (row(DotGeneral, _dot_general, _dot_general_log_det),)
