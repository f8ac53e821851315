"""The LU decomposition with partial pivoting, and its permutation."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import minimum
from fxad.errors import DTypeError, ParameterError, ShapeError
from fxad.ir import (
    INT32_SCALAR,
    Atom,
    Atoms,
    Aval,
    Avals,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.logic import EQ, GE, LT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import WithoutTangent
from fxad.primitives.linalg.family import Entries, Matrixwise, apply_to_each, check_lapack_dtype, matrix_shape
from fxad.primitives.linalg.hlo_matrices import has_empty
from fxad.primitives.linalg.lapack import lapack_call
from fxad.primitives.linalg.matrices import (
    column,
    columns,
    dot,
    lower_mask,
    on_diagonal,
    padded,
    permuted,
    plus,
    rows,
    zero_unless,
    zero_where,
)
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import BroadcastInDim, Iota, ReduceSum
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class Lu(Matrixwise):
    """P A = L U: L (unit lower triangular, without its unit diagonal) and U in one matrix, and the row exchanges.

    Step i exchanges rows i and pivots[i], counted from 0. A singular matrix also has this decomposition, with a zero on
    the diagonal of U; nan results only from nan.

    Type:   (..., m, n) float32, float64, complex64 or complex128 -> the same, int32 (..., min(m, n)).
    Rule:   L_dot = L tril(F, -1), U_dot = triu(F) U with F = L^-1 P A_dot U^-1; pivots have no tangent.
    Source: getrf of LAPACK; de Hoog, Anderssen, Lukas, Differentiation of matrix functionals using triangular
            factorization (2011), section 3.
    """

    name: ClassVar[str] = "lu"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("lu", x)
        batch, m, n = matrix_shape("lu", x)
        return x, Aval((*batch, minimum(m, n)), dtypes.int32)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        return apply_to_each(_factored, self.abstract_eval(Aval(x.shape, x.dtype)), x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), pivots = ins, outs[1]
        if has_empty(x):
            return zeros_constant(hlo, x), zeros_constant(hlo, pivots)
        batch = x.shape[:-2]
        results = (x, pivots, Aval(batch, dtypes.int32))
        # info > 0 reports a zero on the diagonal of U, which is not a failure
        factors, exchanged, _ = lapack_call(hlo, "getrf", args, ins, results, overwrite=[(0, 0)])
        counted_from_0 = hlo.op("stablehlo.subtract", (exchanged, hlo.constant(Lit.of(1, pivots))), (pivots,))
        return factors, *counted_from_0

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        lu, pivots = ctx(self, *primals)
        m = lu.aval.shape[-2]
        lin = ctx.lin_one
        lower, upper = _square_factors(ctx, lu)
        t = permuted(lin, tangents[0], column(ctx.one, ctx.one(LuPivotsToPermutation(m, False), pivots)))
        t = lin(TriangularSolve(True, True, False, False, True), lower, t)
        t = lin(TriangularSolve(False, False, False, False, False), upper, t)
        strict = lower_mask(ctx, t.aval.shape, -1)
        unit = _unit_lower(ctx, lower)
        t = plus(
            lin, dot(lin, unit, zero_unless(lin, strict, t)), dot(lin, zero_where(lin, strict, t), _upper(ctx, upper))
        )
        return (lu, pivots), (t, Zero(pivots.aval))


def _factored(a: Entries) -> tuple[NDArray, NDArray]:
    """Gaussian elimination of one matrix, column by column."""
    lu = np.array(a)
    m, n = lu.shape
    pivots = np.arange(min(m, n), dtype=np.int32)
    with np.errstate(all="ignore"):
        for i in range(min(m, n)):
            # LAPACK compares |re| + |im|
            size = np.abs(np.real(lu[i:, i])) + np.abs(np.imag(lu[i:, i]))
            pivots[i] = j = i + int(np.argmax(np.where(np.isnan(size), -1, size)))
            lu[[i, j]] = lu[[j, i]]
            if lu[i, i] != 0:
                lu[i + 1 :, i] /= lu[i, i]
            lu[i + 1 :, i + 1 :] -= np.outer(lu[i + 1 :, i], lu[i, i + 1 :])
    return lu, pivots


def _square_factors(ctx: JvpCtx, lu: Atom) -> tuple[Atom, Atom]:
    """Return L as (m, m) and U as (n, n) for triangular solves; the other triangle of each is arbitrary.

    A matrix that is not square is extended by the identity.
    """
    m, n = lu.aval.shape[-2:]
    k = minimum(m, n)
    lower: Atom = padded(ctx.one, columns(ctx.one, lu, 0, k), 0, m - k)  # its unit diagonal is ignored: zeros suffice
    upper: Atom = padded(ctx.one, rows(ctx.one, lu, 0, k), n - k, 0)
    if n != k:
        row_type = upper.aval.with_dtype(dtypes.int32)
        added = ctx.one(LT, Lit.of(k - 1, row_type), ctx.one(Iota(row_type.shape, dtypes.int32, row_type.ndim - 2)))
        ones = zero_unless(ctx.one, on_diagonal(ctx, upper.aval.shape), Lit.of(1, upper.aval))
        upper = emit_where(ctx, added, ones, upper)
    return lower, upper


def _unit_lower(ctx: JvpCtx, lower: Atom) -> Atom:
    shape = lower.aval.shape
    strict = zero_unless(ctx.one, lower_mask(ctx, shape, -1), lower)
    return emit_where(ctx, on_diagonal(ctx, shape), Lit.of(1, lower.aval), strict)


def _upper(ctx: JvpCtx, upper: Atom) -> Atom:
    return zero_where(ctx.one, lower_mask(ctx, upper.aval.shape, -1), upper)


# ------------------------------------------------------------------------------------------------- the permutation


@final
@primitive
class LuPivotsToPermutation(Matrixwise, WithoutTangent):
    """The permutation that row exchanges give: row i of P A is row permutation[i] of A; or its inverse.

    The pivots [2, 2] of 3 rows exchange rows 0 and 2, then 1 and 2: [0, 1, 2] -> [2, 1, 0] -> [2, 0, 1].

    Type:   int32 (..., k) with values 0 <= p < size -> int32 (..., size), k <= size.
    Source: stablehlo.while over the exchanges.
    """

    name: ClassVar[str] = "lu_pivots_to_permutation"
    size: int
    inverse: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (pivots,) = check_count(self, avals, 1)
        if pivots.dtype != dtypes.int32:
            raise DTypeError(f"lu_pivots_to_permutation: pivots must be int32, got {pivots}")
        if not pivots.shape:
            raise ShapeError(f"lu_pivots_to_permutation: pivots need an axis, got {pivots}")
        if at_least(pivots.shape[-1] - self.size, 1):
            raise ParameterError(
                f"lu_pivots_to_permutation: {pivots.shape[-1]} exchanges of {self.size} rows in {pivots}"
            )
        return (Aval((*pivots.shape[:-1], self.size), dtypes.int32),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (pivots,) = args
        order = np.broadcast_to(np.arange(self.size, dtype=np.int32), (*pivots.shape[:-1], self.size)).copy()
        for at in np.ndindex(pivots.shape[:-1]):
            exchanges = list(enumerate(np.clip(pivots[at], 0, self.size - 1)))
            for i, j in exchanges[::-1] if self.inverse else exchanges:
                order[at][[i, j]] = order[at][[j, i]]
        return (order,)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (pivots,), (order,) = ins, outs
        (start,) = hlo.op("stablehlo.iota", (), outs, {"iota_dimension": f"{order.ndim - 1} : i64"})
        if has_empty(pivots, order):
            return (start,)
        carry = (INT32_SCALAR, order, pivots)
        first = hlo.constant(Lit.of(pivots.shape[-1] - 1 if self.inverse else 0, carry[0]))
        bodies = _has_next(carry, self.inverse), _exchange(carry, self.inverse)
        _, out, _ = hlo.op("stablehlo.while", (first, start, *args), carry, regions=bodies)
        return (out,)


def _has_next(carry: tuple[Aval, ...], backward: bool) -> Jaxpr:
    b = Builder()
    i, _, pivots = b.inputs(carry)
    within = b.one(GE, i, Lit.of(0, i.aval)) if backward else b.one(LT, i, Lit.of(pivots.aval.shape[-1], i.aval))
    return b.build([within], "more")


def _exchange(carry: tuple[Aval, ...], backward: bool) -> Jaxpr:
    """Step i: exchange elements i and pivots[i] of the order."""
    b = Builder()
    i, order, pivots = b.inputs(carry)
    batch, zero = order.aval.shape[:-1], Lit.of(0, i.aval)
    first_of_batch = [zero] * len(batch)
    pick = DynamicSlice((*batch, 1))
    j, at_i = b.one(pick, pivots, *first_of_batch, i), b.one(pick, order, *first_of_batch, i)
    if not batch:
        j_scalar = b.one(ReduceSum((0,)), j)
        at_j = b.one(pick, order, j_scalar)
        put = DynamicUpdateSlice()
        order = b.one(put, b.one(put, order, at_j, i), at_i, j_scalar)
    else:  # j differs from matrix to matrix, and a slice has one start: select by masks
        shape, last = order.aval.shape, len(batch)
        axes = tuple(range(last + 1))

        def repeat(x: Atom) -> Atom:
            return b.one(BroadcastInDim(shape, axes), x)

        positions = b.one(Iota(shape, dtypes.int32, last))
        is_j = b.one(EQ, positions, repeat(j))
        is_i = b.one(EQ, positions, b.one(BroadcastInDim(shape, ()), i))
        at_j = b.one(ReduceSum((last,)), zero_unless(b.one, is_j, order))
        at_j = b.one(BroadcastInDim(shape, axes[:-1]), at_j)
        order = emit_where(b, is_i, at_j, emit_where(b, is_j, repeat(at_i), order))
    return b.build([b.one(ADD, i, Lit.of(-1 if backward else 1, i.aval)), order, pivots], "exchange")


LU: Final = Lu()
