"""Linear systems with triangular matrices."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from fxad import dtypes
from fxad.errors import ShapeError
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
    JvpCtx,
    Linear,
    NDArray,
    Tangent,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.complex_parts import CONJ
from fxad.primitives.linalg.family import (
    Entries,
    LinearSystem,
    as_entries,
    check_lapack_dtype,
    check_same_batch,
    matrix_shape,
    square_shape,
)
from fxad.primitives.linalg.hlo_matrices import has_empty
from fxad.primitives.linalg.lapack import char_option, lapack_call
from fxad.primitives.linalg.matrices import (
    conj,
    dot,
    identity,
    lower_mask,
    minus,
    on_diagonal,
    plus,
    transposed,
    zero_unless,
    zero_where,
)
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import align_batch_axes, emit_reshape, merge_axes, move_axis
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class TriangularSolve(LinearSystem):
    """The X with op(A) X = B, or X op(A) = B if not `left_side`; A is triangular.

    op(A) is A, transposed if `transpose_a`, conjugated if `conjugate_a`. Only the triangle selected by `lower` is read.
    With `unit_diagonal` the diagonal is not read and taken as ones. A zero on the diagonal gives infinities and nan, as
    a division by it does.

    Type:   A (..., n, n), B (..., n, m) or (..., m, n), of one dtype and with the same batch axes -> the type of B.
    Rule:   linear in B, the transpose solves with op(A)^T; X_dot = op(A)^-1 (B_dot - op(A_dot) X).
    Source: trsm of BLAS.
    """

    name: ClassVar[str] = "triangular_solve"
    linear_operand: ClassVar[int] = 1
    left_side: bool
    lower_a: bool
    transpose_a: bool
    conjugate_a: bool
    unit_diagonal: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, b = check_count(self, avals, 2)
        check_lapack_dtype("triangular_solve", a, b)
        batch_a, n = square_shape("triangular_solve", a)
        batch_b, rows, columns = matrix_shape("triangular_solve", b, "operand 1")
        check_same_batch("triangular_solve", a, b, batch_a, batch_b)
        if n != (rows if self.left_side else columns):
            side = "rows" if self.left_side else "columns"
            raise ShapeError(f"triangular_solve: sizes differ: {n} by {n} matrices in {a}, {side} of {b}")
        return (b,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        a, b = args
        m = np.tril(a) if self.lower_a else np.triu(a)
        if self.unit_diagonal:
            m = np.where(np.eye(a.shape[-1], dtype=np.bool_), np.ones((), a.dtype), m)
        m = m.conj() if self.conjugate_a else m
        # op(A) X = B, or the transposed equation
        flip = self.transpose_a if self.left_side else not self.transpose_a
        m = np.swapaxes(m, -1, -2) if flip else m
        rhs = b if self.left_side else np.swapaxes(b, -1, -2)
        x = _substitute(as_entries(m), as_entries(rhs), forward=self.lower_a != flip)
        return (x if self.left_side else np.swapaxes(x, -1, -2),)

    def right_hand_side(self, emit: Emit, matrix: Atoms, x: Atom) -> Atom:
        (a,), one = matrix, emit.one
        lower = lower_mask(emit, a.aval.shape, 0 if self.lower_a else -1)
        m = zero_unless(one, lower, a) if self.lower_a else zero_where(one, lower, a)
        if self.unit_diagonal:
            m = plus(one, zero_where(one, on_diagonal(emit, a.aval.shape), m), identity(emit, a.aval))
        m = transposed(one, m) if self.transpose_a else m
        m = conj(one, m) if self.conjugate_a else m
        return dot(one, m, x) if self.left_side else dot(one, x, m)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        a, b = args
        if has_empty(*ins):
            return (zeros_constant(hlo, outs[0]),)
        kind = "T" if self.transpose_a else "N"
        if self.conjugate_a and ins[0].dtype in dtypes.COMPLEX:
            if self.transpose_a:
                kind = "C"
            else:  # BLAS has no name for it
                (a,) = CONJ.lower(hlo, (a,), ins[:1], ins[:1])
        options = {
            "diag": char_option("U" if self.unit_diagonal else "N"),
            "side": char_option("L" if self.left_side else "R"),
            "trans_x": char_option(kind),
            "uplo": char_option("L" if self.lower_a else "U"),
        }
        return lapack_call(hlo, "trsm", (a, b), ins, outs, options, overwrite=[(1, 0)])

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (a, b), (a_dim, b_dim) = args, dims
        if a_dim is None and b_dim is not None:
            return (batch_right_hand_side(ctx, self, (a,), b, b_dim, left_side=self.left_side),), (0,)
        return ctx(self, *align_batch_axes(ctx, args, dims)), (0,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (a, _), (a_dot, t) = primals, tangents
        (x,) = ctx(self, *primals)
        if not isinstance(a_dot, Zero):
            op_dot = self._op(ctx, a_dot)
            product = dot(ctx.lin_one, op_dot, x) if self.left_side else dot(ctx.lin_one, x, op_dot)
            t = minus(ctx.lin_one, t, product)
        return (x,), (ctx.lin_one(self, a, t),)

    def _op(self, ctx: JvpCtx, a_dot: Tangent) -> Tangent:
        """Return op of the part of a tangent that the solve reads."""
        lin, shape = ctx.lin_one, a_dot.aval.shape
        if self.lower_a:
            t = zero_unless(lin, lower_mask(ctx, shape, -1 if self.unit_diagonal else 0), a_dot)
        else:
            t = zero_where(lin, lower_mask(ctx, shape, 0 if self.unit_diagonal else -1), a_dot)
        t = conj(lin, t) if self.conjugate_a else t
        return transposed(lin, t) if self.transpose_a else t

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        other = TriangularSolve(
            self.left_side, self.lower_a, not self.transpose_a, self.conjugate_a, self.unit_diagonal
        )
        return emit.one(other, *others, ct)


def batch_right_hand_side(ctx: BatchCtx, prim: Linear, matrices: Atoms, b: Atom, dim: int, *, left_side: bool) -> Atom:
    """Batch a solve with one matrix and mapped right-hand sides: they become columns (or rows) of one right-hand
    side."""
    # (..., n, size, m) and (..., size, m, n): the mapped axis next to the columns, or rows, that it joins
    at = b.aval.ndim - (2 if left_side else 3)
    b = move_axis(ctx, b, dim, at)
    x = ctx.one(prim, *matrices, merge_axes(ctx, b, at))
    return move_axis(ctx, emit_reshape(ctx, x, b.aval.shape), at, 0)


def _substitute(m: Entries, b: Entries, *, forward: bool) -> NDArray:
    """Forward or backward substitution, row by row, for a whole batch at once."""
    x = np.zeros(b.shape, b.dtype)
    n = m.shape[-1]
    with np.errstate(all="ignore"):
        for i in range(n) if forward else range(n - 1, -1, -1):
            solved = slice(0, i) if forward else slice(i + 1, n)
            product = m[..., i : i + 1, solved] @ x[..., solved, :]
            x[..., i : i + 1, :] = (b[..., i : i + 1, :] - product) / m[..., i : i + 1, i : i + 1]
    return x
