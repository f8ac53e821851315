"""Functions of a matrix with a derivative formula, computed from a given factorisation.

Each primitive here takes a matrix and a factor of it (its LU decomposition, its pseudo-inverse). The value is computed
from the factor. The derivative is with respect to the matrix alone and reuses the factor. So a solve and all its
derivatives factor once, and no derivative differentiates pivoting or singular vectors. The factor must therefore be
computed from `stop_gradient` of the matrix, as in `lu_factors`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import DTypeError, NotDifferentiableError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Tangent,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import MUL, NEG, SUB
from fxad.primitives.elementwise.complex_parts import COMPLEX, IMAG, REAL
from fxad.primitives.elementwise.convert import STOP_GRADIENT, emit_convert
from fxad.primitives.elementwise.exponential import LOG
from fxad.primitives.elementwise.logic import EQ, GT, NE
from fxad.primitives.elementwise.powers import ABS, SIGN, SQRT, SQUARE
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.linalg.family import (
    LinearSystem,
    Matrixwise,
    check_lapack_dtype,
    check_same_batch,
    matrix_shape,
    real_dtype,
    square_shape,
)
from fxad.primitives.linalg.hlo_matrices import has_empty
from fxad.primitives.linalg.lu import LU, LuPivotsToPermutation
from fxad.primitives.linalg.matrices import (
    as_complex,
    column,
    conjugate_transpose,
    diagonal,
    dot,
    identity,
    lower_mask,
    minus,
    on_diagonal,
    permuted,
    plus,
    repeat_as_rows,
    transposed,
    zero_unless,
    zero_where,
)
from fxad.primitives.linalg.triangular import TriangularSolve, batch_right_hand_side
from fxad.primitives.operand_checks import check_count
from fxad.primitives.reduce import ReduceMax, ReduceXor
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import BroadcastInDim, Iota, ReduceSum, align_batch_axes
from fxad.primitives.stablehlo import zeros_constant


def lu_factors(emit: Emit, a: Atom) -> tuple[Atom, Atom]:
    """Return the LU decomposition of a and its pivots, as constants of the derivative."""
    lu, pivots = emit(LU, emit.one(STOP_GRADIENT, a))
    return lu, pivots


def solve_factored(
    emit: Emit, lu: Atom, pivots: Atom, b: Atom, *, transpose_a: bool, conjugate_a: bool = False
) -> Atom:
    """Return the X with op(A) X = B for the LU decomposition of A. op(A) is A, or its transpose, or conjugate.

    With P A = L U: permute, then L, then U; for the transpose U^T, then L^T, then permute back.
    """
    one = emit.one
    order = column(one, one(LuPivotsToPermutation(lu.aval.shape[-1], transpose_a), pivots))
    lower = TriangularSolve(True, True, transpose_a, conjugate_a, True)
    upper = TriangularSolve(True, False, transpose_a, conjugate_a, False)
    if transpose_a:
        return permuted(one, one(lower, lu, one(upper, lu, b)), order)
    return one(upper, lu, one(lower, lu, permuted(one, b, order)))


def _check_constant_factor(name: str, tangents: Sequence[Tangent]) -> None:
    """Check that the factor is a constant. Raises: NotDifferentiableError."""
    if not all([isinstance(t, Zero) for t in tangents]):
        raise NotDifferentiableError(
            f"{name}: the derivative is taken by the matrix; its factor must not depend on a tangent",
            remedy="compute the factor from stop_gradient of the matrix",
        )


# ----------------------------------------------------------------------------------------------------------- solve


@final
@primitive
class Solve(LinearSystem):
    """The X with op(A) X = B, by the LU decomposition of A; op(A) is A, or its transpose for `transpose_a`.

    Type:   A (..., n, n), its factors LU (..., n, n) and pivots int32 (..., n), B (..., n, m) -> the type of B.
    Rule:   linear in B, the transpose solves with op(A)^T; X_dot = op(A)^-1 (B_dot - op(A_dot) X), by the same factors.
    Cost:   two triangular solves.
    Source: getrs of LAPACK; Giles, An extended collection of matrix derivative results (2008), 2.3.1.
    """

    name: ClassVar[str] = "solve"
    linear_operand: ClassVar[int] = 3
    transpose_a: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, lu, pivots, b = check_count(self, avals, 4)
        check_lapack_dtype("solve", a, lu)
        check_lapack_dtype("solve", a, b)
        batch, n = _check_factors("solve", a, lu, pivots)
        batch_b, rows, _ = matrix_shape("solve", b, "operand 3")
        check_same_batch("solve", a, b, batch, batch_b)
        if n != rows:
            raise ShapeError(f"solve: sizes differ: {n} by {n} matrices in {a}, {rows} rows of {b}")
        return (b,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self._body([Aval(x.shape, x.dtype) for x in args]), args)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return (zeros_constant(hlo, outs[0]),) if has_empty(*outs) else hlo.call(self._body(ins), args)

    def _body(self, ins: Sequence[Aval]) -> Jaxpr:
        builder = Builder()
        _, lu, pivots, b = builder.inputs(ins)
        return builder.build([solve_factored(builder, lu, pivots, b, transpose_a=self.transpose_a)], "solve")

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        if dims[-1] is not None and all([d is None for d in dims[:-1]]):
            return (batch_right_hand_side(ctx, self, args[:-1], args[-1], dims[-1], left_side=True),), (0,)
        return ctx(self, *align_batch_axes(ctx, args, dims)), (0,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        a_dot, *factors_dot, t = tangents
        _check_constant_factor("solve", factors_dot)
        (x,) = ctx(self, *primals)
        lin = ctx.lin_one
        if not isinstance(a_dot, Zero):
            op_dot = transposed(lin, a_dot) if self.transpose_a else a_dot
            t = ctx.add(t, lin(NEG, dot(lin, op_dot, x)))
        return (x,), (lin(self, *primals[:-1], t),)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(Solve(not self.transpose_a), *others, ct)

    def right_hand_side(self, emit: Emit, matrix: Atoms, x: Atom) -> Atom:
        """Compute it with the factors of A that gave X."""
        (_, lu, pivots), one = matrix, emit.one
        lower, upper = _triangles(emit, lu)
        order = column(one, one(LuPivotsToPermutation(x.aval.shape[-2], not self.transpose_a), pivots))
        if self.transpose_a:
            return dot(one, transposed(one, upper), dot(one, transposed(one, lower), permuted(one, x, order)))
        return permuted(one, dot(one, lower, dot(one, upper, x)), order)


def _triangles(emit: Emit, lu: Atom) -> tuple[Atom, Atom]:
    """Return L and U of square matrices from the matrix that stores both."""
    one, shape = emit.one, lu.aval.shape
    unit = plus(one, zero_unless(one, lower_mask(emit, shape, -1), lu), identity(emit, lu.aval))
    return unit, zero_where(one, lower_mask(emit, shape, -1), lu)


def _check_factors(name: str, a: Aval, lu: Aval, pivots: Aval) -> tuple[tuple[int, ...], int]:
    """Check that the factors have the type of their matrix; return its batch axes and size. Raises: ShapeError,
    DTypeError."""
    batch, n = square_shape(name, a)
    if lu != a:
        raise ShapeError(f"{name}: operand 1 must have the type of operand 0, {a}, got {lu}")
    if pivots.dtype != dtypes.int32 or pivots.shape != (*batch, n):
        error = DTypeError if pivots.dtype != dtypes.int32 else ShapeError
        raise error(f"{name}: operand 2 must be {Aval((*batch, n), dtypes.int32)}, got {pivots}")
    return batch, n


# ---------------------------------------------------------------------------------------------------- determinants


class _Determinant(Matrixwise):
    """A function of the determinant, by the LU decomposition of the matrix."""

    __slots__ = ()

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self.body([Aval(x.shape, x.dtype) for x in args]), args)

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.call(self.body(ins), args)

    @abstractmethod
    def body(self, ins: Sequence[Aval]) -> Jaxpr:
        """Return the results, from the LU decomposition."""


@final
@primitive
class Slogdet(_Determinant):
    """The determinant as sign (of absolute value 1, or 0) and logarithm of its absolute value.

    Type:   A (..., n, n), its factors LU (..., n, n) and pivots int32 (..., n) -> sign (...), of the dtype of A, and
            logarithm (...), real; for a matrix without an inverse 0 and -inf.
    Rule:   with t = trace(A^-1 A_dot): the logarithm has Re t, the sign i Im t times itself. Not finite where A has no
            inverse.
    Source: Giles, An extended collection of matrix derivative results (2008), 2.2.3.
    """

    name: ClassVar[str] = "slogdet"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, lu, pivots = check_count(self, avals, 3)
        check_lapack_dtype("slogdet", a, lu)
        batch, _ = _check_factors("slogdet", a, lu, pivots)
        return Aval(batch, a.dtype), Aval(batch, real_dtype(a))

    def body(self, ins: Sequence[Aval]) -> Jaxpr:
        b = Builder()
        _, lu, pivots = b.inputs(ins)
        entries = diagonal(b, b.one, lu)
        last = (entries.aval.ndim - 1,)
        signs = b.one(ReduceProd(last), b.one(SIGN, entries))
        logs = b.one(ReduceSum(last), b.one(LOG, b.one(ABS, entries)))
        return b.build([b.one(MUL, signs, _parity(b, pivots, signs.aval)), logs], "slogdet")

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        _check_constant_factor("slogdet", tangents[1:])
        sign, log = ctx(self, *primals)
        t = _log_det_tangent(ctx, primals, tangents[0])
        if t.aval.dtype not in dtypes.COMPLEX:
            return (sign, log), (Zero(sign.aval), t)
        lin = ctx.lin_one
        turn = lin(COMPLEX, Zero(log.aval), lin(IMAG, t))
        return (sign, log), (lin(MUL, turn, sign), lin(REAL, t))


@final
@primitive
class Det(_Determinant):
    """The determinant.

    Type:   A (..., n, n), its factors LU (..., n, n) and pivots int32 (..., n) -> (...), of the dtype of A.
    Rule:   d_dot = d trace(A^-1 A_dot). With a pivot 0, d is det(B) (1 - trace(X)) for B = A + W, where W
            replaces the pivot, and X = B^-1 W. So d_dot = det(B) trace(B^-1 A_dot (X + (1 - trace(X)) I)), which is
            the cofactor matrix times A_dot. With several pivots 0 it is 0, and the second derivative is nan. The public
            functions compute matrices of up to 3 by 3 as polynomials.
    Source: Giles, An extended collection of matrix derivative results (2008), 2.2.4; the matrix determinant lemma.
    """

    name: ClassVar[str] = "det"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, lu, pivots = check_count(self, avals, 3)
        check_lapack_dtype("det", a, lu)
        batch, _ = _check_factors("det", a, lu, pivots)
        return (Aval(batch, a.dtype),)

    def body(self, ins: Sequence[Aval]) -> Jaxpr:
        b = Builder()
        _, lu, pivots = b.inputs(ins)
        entries = diagonal(b, b.one, lu)
        product = b.one(ReduceProd((entries.aval.ndim - 1,)), entries)
        return b.build([b.one(MUL, product, _parity(b, pivots, product.aval))], "det")

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        _check_constant_factor("det", tangents[1:])
        (d,), one, lin = ctx(self, *primals), ctx.one, ctx.lin_one
        moved, factors, replaced, several = _replace_zero_pivots(ctx, *primals)
        x = one(Solve(False), moved, factors, primals[2], replaced)
        trace = one(ReduceSum((d.aval.ndim,)), diagonal(ctx, one, x))
        unit = Lit.of(1, trace.aval)
        rest = one(BroadcastInDim(x.aval.shape, tuple(range(d.aval.ndim))), one(SUB, unit, trace))
        weights = plus(one, x, zero_unless(one, on_diagonal(ctx, x.aval.shape), rest))
        known = _one_or_zero_without_derivative(ctx, several, trace)
        scale = one(MUL, one(self, moved, factors, primals[2]), known)
        solved = lin(Solve(False), moved, factors, primals[2], tangents[0])
        matrix_axes = (d.aval.ndim, d.aval.ndim + 1)
        t = lin(ReduceSum(matrix_axes), lin(MUL, solved, transposed(one, weights)))
        return (d,), (lin(MUL, t, scale),)


def _one_or_zero_without_derivative(emit: Emit, several: Atom, x: Atom) -> Atom:
    """Return 1, or with several pivots 0, whose derivative in x is nan: sqrt(gap^2) of a gap x - stop_gradient(x).

    With several pivots 0 the first derivative of a determinant is 0. The second is not known here, so it is made nan.
    The gap is chosen before the root: in reverse mode, a cotangent 0 times the infinite slope of a root at 0 is nan.
    """
    gap = emit.one(SUB, x, emit.one(STOP_GRADIENT, x))
    return emit.one(SQRT, emit.one(SQUARE, emit_where(emit, several, gap, Lit.of(1, gap.aval))))


def _replace_zero_pivots(emit: Emit, a: Atom, lu: Atom, pivots: Atom) -> tuple[Atom, Atom, Atom, Atom]:
    """Return B = A + W, its LU decomposition by the same exchanges, W, and the mask of several pivots 0.

    W is P^T L D, for the diagonal matrix D that is 0 but where U is 0 on the diagonal: there it is the largest number
    of the factors, or 1. So P B = L (U + D).
    """
    one, shape, n = emit.one, lu.aval.shape, lu.aval.ndim
    entries = diagonal(emit, one, lu)
    zero = one(EQ, entries, Lit.zero(entries.aval))
    count = one(ReduceSum((n - 2,)), emit_convert(emit, zero, dtypes.int32))
    several = one(GT, count, Lit.of(1, count.aval))
    size = one(ReduceMax((n - 2, n - 1)), one(ABS, lu))
    size = emit_where(emit, one(GT, size, Lit.zero(size.aval)), size, Lit.of(1, size.aval))
    wide = as_complex(one, one(BroadcastInDim(entries.aval.shape, tuple(range(n - 2))), size), entries.aval)
    replaced = repeat_as_rows(one, emit_where(emit, zero, wide, Lit.zero(entries.aval)), shape)
    lower = emit_where(emit, lower_mask(emit, shape, -1), lu, identity(emit, lu.aval))
    order = column(one, one(LuPivotsToPermutation(shape[-1], True), pivots))
    w = permuted(one, one(MUL, lower, replaced), order)
    factors = plus(one, lu, zero_unless(one, on_diagonal(emit, shape), replaced))
    return plus(one, a, w), factors, w, several


def _log_det_tangent(ctx: JvpCtx, primals: Atoms, a_dot: Tangent) -> Tangent:
    """Return trace(A^-1 A_dot)."""
    solved = ctx.lin_one(Solve(False), *primals, a_dot)
    entries = diagonal(ctx, ctx.lin_one, solved)
    return ctx.lin_one(ReduceSum((entries.aval.ndim - 1,)), entries)


def _parity(emit: Emit, pivots: Atom, like: Aval) -> Atom:
    """Return 1 for an even number of exchanges, -1 for an odd one."""
    last = pivots.aval.ndim - 1
    is_swapped = emit.one(NE, pivots, emit.one(Iota(pivots.aval.shape, dtypes.int32, last)))
    odd = emit.one(ReduceXor((last,)), is_swapped)
    return emit_where(emit, odd, Lit.of(-1, like), Lit.of(1, like))


# -------------------------------------------------------------------------------------------------- pseudo-inverse


@final
@primitive
class Pinv(Matrixwise):
    """The second operand P, with the derivative of the pseudo-inverse in the first, A. It computes nothing: P must be
    the pseudo-inverse of A.

    Type:   A (..., m, n), P (..., n, m), of one dtype and with the same batch axes -> P.
    Rule:   P_dot = -P A_dot P + P P^H A_dot^H (I - A P) + (I - P A) A_dot^H P^H P, for tangents that keep the rank.
    Source: Golub, Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
            separate (1973), theorem 4.3.
    """

    name: ClassVar[str] = "pinv"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, p = check_count(self, avals, 2)
        check_lapack_dtype("pinv", a, p)
        batch, m, n = matrix_shape("pinv", a)
        if p.shape != (*batch, n, m):
            raise ShapeError(f"pinv: operand 1 must have the shape {(*batch, n, m)} of the transpose of {a}, got {p}")
        return (p,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return args[1:]

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return args[1:]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        _check_constant_factor("pinv", tangents[1:])
        (a, _), (p,), t = primals, ctx(self, *primals), tangents[0]
        one, lin = ctx.one, ctx.lin_one
        ph, th = conjugate_transpose(one, p), conjugate_transpose(lin, t)
        out = lin(NEG, dot(lin, dot(lin, p, t), p))
        left = dot(lin, dot(one, p, ph), th)
        out = plus(lin, out, minus(lin, left, dot(lin, dot(lin, left, a), p)))
        right = dot(lin, th, dot(one, ph, p))
        return (p,), (plus(lin, out, minus(lin, right, dot(lin, p, dot(lin, a, right)))),)
