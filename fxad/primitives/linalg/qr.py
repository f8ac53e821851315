"""The QR decomposition and its Householder reflections."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import minimum
from fxad.errors import NotDifferentiableError, ShapeError
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
    NDArray,
    Tangent,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import NEG
from fxad.primitives.elementwise.complex_parts import COMPLEX, IMAG
from fxad.primitives.families import LinearInOne
from fxad.primitives.linalg.family import (
    Entries,
    Matrixwise,
    apply_to_each,
    as_entries,
    check_lapack_dtype,
    check_same_batch,
    matrix_shape,
)
from fxad.primitives.linalg.hlo_matrices import corner, has_empty, identity_constant, triangle
from fxad.primitives.linalg.lapack import lapack_call
from fxad.primitives.linalg.matrices import (
    columns,
    conj,
    conjugate_transpose,
    dot,
    identity,
    lower_mask,
    minus,
    on_diagonal,
    plus,
    repeat_as_rows,
    rows,
    times,
    zero_unless,
    zero_where,
)
from fxad.primitives.linalg.triangular import TriangularSolve, batch_right_hand_side
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import align_batch_axes
from fxad.primitives.slicing import Concatenate
from fxad.primitives.stablehlo import bool_attribute, zeros_constant


@final
@primitive
class Geqrf(Matrixwise):
    """The QR decomposition in LAPACK's form: R in the upper triangle, the reflectors below it and in `taus`.

    Type:   (..., m, n) float32, float64, complex64 or complex128 -> the same, and (..., min(m, n)).
    Rule:   none: use `qr` or `householder_product`, which have derivatives.
    Source: geqrf of LAPACK.
    """

    name: ClassVar[str] = "geqrf"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("geqrf", x)
        batch, m, n = matrix_shape("geqrf", x)
        return x, Aval((*batch, minimum(m, n)), x.dtype)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        outs = self.abstract_eval(Aval(x.shape, x.dtype))
        if has_empty(*outs):
            return tuple([np.zeros(a.shape, a.dtype) for a in outs])
        return apply_to_each(_reflected, outs, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if has_empty(*outs):
            return [zeros_constant(hlo, a) for a in outs]
        return lapack_call(hlo, "geqrf", args, ins, outs, overwrite=[(0, 0)])

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        raise NotDifferentiableError(
            "geqrf: packed reflectors have no derivative rule", remedy="differentiate qr, which gives Q and R"
        )


def _reflected(a: Entries) -> tuple[NDArray, ...]:
    packed, taus = np.linalg.qr(a, mode="raw")
    return packed.T, taus


@final
@primitive
class HouseholderProduct(Matrixwise):
    """The first columns of the product of reflections I - taus[i] v_i v_i^H, i = 0, 1, ....

    v_i is 0 above row i, 1 there, and column i of A below; other elements of A are ignored.

    Type:   A (..., m, n) with m >= n, taus (..., k) with k <= n, of one dtype and the same batch axes -> the type of A.
    Rule:   that of Q = E - V T V_1^H with T = D (I + striu(V^H V) D)^-1, D = diag(taus).
    Source: orgqr of LAPACK; Schreiber, Van Loan, A storage-efficient WY representation (1989).
    """

    name: ClassVar[str] = "householder_product"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, taus = check_count(self, avals, 2)
        check_lapack_dtype("householder_product", a, taus)
        batch, m, n = matrix_shape("householder_product", a)
        if not taus.shape:
            raise ShapeError(f"householder_product: operand 1 must be vectors, got {taus}")
        check_same_batch("householder_product", a, taus, batch, taus.shape[:-1])
        if at_least(n - m, 1) or at_least(taus.shape[-1] - n, 1):
            raise ShapeError(
                f"householder_product: {m} by {n} matrices in {a} and {taus.shape[-1]} reflections in {taus}: "
                f"needs rows >= columns >= reflections"
            )
        return (a,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        a, taus = as_entries(args[0]), as_entries(args[1])
        m, n = a.shape[-2:]
        out = np.broadcast_to(np.eye(m, n, dtype=a.dtype), a.shape).copy()
        for i in range(taus.shape[-1] - 1, -1, -1):
            v = _reflector(a, i)
            out -= taus[..., i, None, None] * v @ (np.swapaxes(v, -1, -2).conj() @ out)
        return (out,)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if has_empty(*outs):
            return (zeros_constant(hlo, outs[0]),)
        if not ins[1].size:
            return (identity_constant(hlo, outs[0]),)
        return lapack_call(hlo, "orgqr", args, ins, outs, overwrite=[(0, 0)])

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (a, taus), (a_dot, taus_dot) = primals, tangents
        outs = ctx(self, a, taus)
        if taus.aval.size == 0:
            return outs, (Zero(a.aval),)
        return outs, (_wy_tangent(ctx, a, taus, a_dot, taus_dot),)


def _reflector(a: Entries, i: int) -> Entries:
    """Return the vector v_i of reflection i, as a column."""
    v = a[..., :, i : i + 1].copy()
    v[..., :i, :] = 0
    v[..., i, :] = 1
    return v


def _wy_tangent(ctx: JvpCtx, a: Atom, taus: Atom, a_dot: Tangent, taus_dot: Tangent) -> Tangent:
    """Return the tangent of E - V T V_1^H."""
    one, lin, n = ctx.one, ctx.lin_one, a.aval.shape[-1]
    v, v_dot, t, t_dot = _wy_form(ctx, a, taus, a_dot, taus_dot)
    first, first_dot = conjugate_transpose(one, rows(one, v, 0, n)), conjugate_transpose(lin, rows(lin, v_dot, 0, n))
    left_part = dot(lin, ctx.add(dot(lin, v_dot, t), dot(lin, v, t_dot)), first)
    total = ctx.add(left_part, dot(lin, dot(one, v, t), first_dot))
    return lin(NEG, total)


def _wy_form(
    ctx: JvpCtx, a: Atom, taus: Atom, a_dot: Tangent, taus_dot: Tangent
) -> tuple[Atom, Tangent, Atom, Tangent]:
    """V, its tangent, T and its tangent, with I - V T V^H the product of the reflections."""
    one, lin, k = ctx.one, ctx.lin_one, taus.aval.shape[-1]
    reflectors = columns(one, a, 0, k)
    strict = lower_mask(ctx, reflectors.aval.shape, -1)
    v = plus(one, zero_unless(one, strict, reflectors), identity(ctx, reflectors.aval))
    v_dot = zero_unless(lin, strict, columns(lin, a_dot, 0, k))
    gram = dot(one, conjugate_transpose(one, v), v)
    upper = lower_mask(ctx, gram.aval.shape)
    shape = gram.aval.shape
    d, d_dot = repeat_as_rows(one, taus, shape), repeat_as_rows(lin, taus_dot, shape)
    # W = I + striu(V^H V) D is unit upper triangular, T = D W^-1
    u = zero_where(one, upper, gram)
    w = times(one, u, d)
    u_dot = zero_where(
        lin, upper, ctx.add(dot(lin, conjugate_transpose(lin, v_dot), v), dot(lin, conjugate_transpose(one, v), v_dot))
    )
    w_dot = ctx.add(times(lin, u_dot, d), times(lin, u, d_dot))
    solve = TriangularSolve(False, False, False, False, True)
    diagonal_mask = on_diagonal(ctx, shape)
    t = one(solve, w, zero_unless(one, diagonal_mask, d))
    t_dot = lin(solve, w, minus(lin, zero_unless(lin, diagonal_mask, d_dot), dot(lin, t, w_dot)))
    return v, v_dot, t, t_dot


@final
@primitive
class Ormqr(LinearInOne):
    """op(Q) C, or C op(Q) if not `left_side`: Q is the product of the reflections of `HouseholderProduct`, all its
    columns. op(Q) is Q, or Q^H for `conjugate_transpose`. Q is not formed.

    Type:   A (..., m, n), taus (..., k), C (..., m, p) or (..., p, m), of one dtype and with the same batch axes,
            k <= m, n -> the type of C.
    Rule:   linear in C, the transpose multiplies by op(Q)^T; in A and taus that of Q = I - V T V^H.
    Source: ormqr and unmqr of LAPACK; Schreiber, Van Loan, A storage-efficient WY representation (1989).
    """

    name: ClassVar[str] = "ormqr"
    linear_operand: ClassVar[int] = 2
    left_side: bool
    conjugate_transpose: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        a, taus, c = check_count(self, avals, 3)
        check_lapack_dtype("ormqr", a, taus, c)
        batch, m, n = matrix_shape("ormqr", a)
        if not taus.shape:
            raise ShapeError(f"ormqr: operand 1 must be vectors, got {taus}")
        check_same_batch("ormqr", a, taus, batch, taus.shape[:-1])
        if at_least(taus.shape[-1] - minimum(m, n), 1):
            raise ShapeError(
                f"ormqr: {m} by {n} matrices in {a} and {taus.shape[-1]} reflections in {taus}: "
                f"needs rows >= reflections and columns >= reflections"
            )
        batch_c, n_rows, n_columns = matrix_shape("ormqr", c, "operand 2")
        if batch != batch_c:
            raise ShapeError(
                f"ormqr: batch axes differ: operand 0 {a}, operand 2 {c}", remedy="broadcast the operands first"
            )
        if m != (n_rows if self.left_side else n_columns):
            side = "rows" if self.left_side else "columns"
            raise ShapeError(f"ormqr: sizes differ: reflections of {m} elements in {a}, {side} of {c}")
        return (c,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        a, taus, c = as_entries(args[0]), as_entries(args[1]), as_entries(args[2])
        # C op(Q) = (op(Q)^H C^H)^H
        out = c.copy() if self.left_side else np.swapaxes(c, -1, -2).conj()
        backwards = self.conjugate_transpose != self.left_side
        order = range(taus.shape[-1])
        for i in order[::-1] if backwards else order:
            v = _reflector(a, i)
            tau = taus[..., i, None, None]
            out = out - (tau if backwards else tau.conj()) * v @ (np.swapaxes(v, -1, -2).conj() @ out)
        return (out if self.left_side else np.swapaxes(out, -1, -2).conj(),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if has_empty(*outs):
            return (zeros_constant(hlo, outs[0]),)
        if not ins[1].size:
            return (args[2],)
        options = {"left": bool_attribute(self.left_side), "transpose": bool_attribute(self.conjugate_transpose)}
        return lapack_call(hlo, "ormqr", args, ins, outs, options, overwrite=[(2, 0)])

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (a, taus, c), (a_dim, taus_dim, c_dim) = args, dims
        if a_dim is None and taus_dim is None and c_dim is not None:
            return (batch_right_hand_side(ctx, self, (a, taus), c, c_dim, left_side=self.left_side),), (0,)
        return ctx(self, *align_batch_axes(ctx, args, dims)), (0,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (a, taus, c), (a_dot, taus_dot, c_dot) = primals, tangents
        outs = ctx(self, *primals)
        c_tangent = ctx.lin_one(self, a, taus, c_dot)
        if taus.aval.size == 0 or (isinstance(a_dot, Zero) and isinstance(taus_dot, Zero)):
            return outs, (c_tangent,)
        one, lin = ctx.one, ctx.lin_one
        v, v_dot, t, t_dot = _wy_form(ctx, a, taus, a_dot, taus_dot)
        if self.conjugate_transpose:
            t, t_dot = conjugate_transpose(one, t), conjugate_transpose(lin, t_dot)
        vh, vh_dot = conjugate_transpose(one, v), conjugate_transpose(lin, v_dot)
        # V T V^H C and C V T V^H, one factor after the other: nothing of the size of Q is formed
        if self.left_side:
            inner = dot(one, vh, c)
            product = dot(lin, v_dot, dot(one, t, inner))
            product = ctx.add(product, dot(lin, v, dot(lin, t_dot, inner)))
            product = ctx.add(product, dot(lin, dot(one, v, t), dot(lin, vh_dot, c)))
        else:
            inner = dot(one, c, v)
            product = dot(lin, dot(one, inner, t), vh_dot)
            product = ctx.add(product, dot(lin, dot(lin, inner, t_dot), vh))
            product = ctx.add(product, dot(lin, dot(lin, c, v_dot), dot(one, t, vh)))
        return outs, (minus(lin, c_tangent, product),)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        # op(Q)^T is the conjugate of op(Q)^H
        other = Ormqr(self.left_side, not self.conjugate_transpose)
        return conj(emit.one, emit.one(other, *others, conj(emit.one, ct)))


# -------------------------------------------------------------------------------------------------------------- QR


@final
@primitive
class Qr(Matrixwise):
    """A = Q R: Q has orthonormal columns, R is upper triangular, with a real diagonal of either sign.

    Type:   (..., m, n) -> Q (..., m, k), R (..., k, n); k = m for `full_matrices`, else min(m, n).
    Rule:   with X = Q^H A_dot R^-1: Q_dot = Q (Omega - X) + A_dot R^-1, R_dot = (X - Omega) R; Omega is skew-Hermitian
            with the strictly lower triangle of X. For more columns than rows, R_2 = Q^H A_2 is differentiated too.
            There is no derivative for full matrices with more rows than columns: their last columns are an arbitrary
            basis. The first min(m, n) columns of A must be independent, else the tangents are not finite.
    Source: geqrf and orgqr of LAPACK; Walter, Lehmann, Algorithmic differentiation of linear algebra functions (2010);
            Roberts, Roberts, QR and LQ decomposition matrix backpropagation algorithms (2020).
    """

    name: ClassVar[str] = "qr"
    full_matrices: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("qr", x)
        batch, m, n = matrix_shape("qr", x)
        k = m if self.full_matrices else minimum(m, n)
        return Aval((*batch, m, k), x.dtype), Aval((*batch, k, n), x.dtype)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        q, r = self.abstract_eval(Aval(x.shape, x.dtype))
        if not x.size:
            eye = np.eye(*q.shape[-2:], dtype=x.dtype)
            return np.broadcast_to(eye, q.shape), np.zeros(r.shape, r.dtype)
        return apply_to_each(_complete_qr if self.full_matrices else _reduced, (q, r), x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), (q, r) = ins, outs
        if has_empty(x):
            return identity_constant(hlo, q), zeros_constant(hlo, r)
        *batch, m, n = x.shape
        k = min(m, n)
        taus = Aval((*batch, k), x.dtype)
        packed, scales = lapack_call(hlo, "geqrf", args, ins, (x, taus), overwrite=[(0, 0)])
        upper = corner(hlo, packed, x, r)
        reflectors = corner(hlo, packed, x, q)
        (factor,) = lapack_call(hlo, "orgqr", (reflectors, scales), (q, taus), (q,), overwrite=[(0, 0)])
        return factor, triangle(hlo, upper, r, lower=False)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        ((x,), (t,)), (m, n) = (primals, tangents), primals[0].aval.shape[-2:]
        if self.full_matrices and m > n:
            raise NotDifferentiableError(
                f"qr: the last {m - n} columns of a full Q are any basis and have no derivative",
                remedy="ask for the reduced form: full_matrices=False in lax.linalg, mode='reduced' in numpy.linalg",
            )
        q, r = ctx(self, x)
        one, lin = ctx.one, ctx.lin_one
        k = minimum(m, n)
        q_dot, r_dot = _square_r_tangent(ctx, q, columns(one, r, 0, k), columns(lin, t, 0, k))
        if not at_least(m - n, 0):
            further_columns = plus(
                lin,
                dot(lin, conjugate_transpose(lin, q_dot), columns(one, x, k, n)),
                dot(lin, conjugate_transpose(one, q), columns(lin, t, k, n)),
            )
            r_dot = lin(Concatenate(x.aval.ndim - 1), r_dot, further_columns)
        return (q, r), (q_dot, r_dot)


def _complete_qr(a: Entries) -> tuple[NDArray, NDArray]:
    return np.linalg.qr(a, mode="complete")


def _reduced(a: Entries) -> tuple[NDArray, NDArray]:
    return np.linalg.qr(a)


def _square_r_tangent(ctx: JvpCtx, q: Atom, r: Atom, t: Tangent) -> tuple[Tangent, Tangent]:
    """Return the tangents of Q and of a square R."""
    lin = ctx.lin_one
    solved = lin(TriangularSolve(False, False, False, False, False), r, t)
    x = dot(lin, conjugate_transpose(ctx.one, q), solved)
    shape = x.aval.shape
    strict = zero_unless(lin, lower_mask(ctx, shape, -1), x)
    omega = minus(lin, strict, conjugate_transpose(lin, strict))
    if x.aval.dtype in dtypes.COMPLEX:
        # the diagonal of R stays real, so that of Omega is imaginary and that of X
        x_diagonal = zero_unless(lin, on_diagonal(ctx, shape), x)
        zero = Zero(x.aval.with_dtype(dtypes.real_part(x.aval.dtype)))
        omega = plus(lin, omega, lin(COMPLEX, zero, lin(IMAG, x_diagonal)))
    return plus(lin, dot(lin, q, minus(lin, omega, x)), solved), dot(lin, minus(lin, x, omega), r)


GEQRF: Final = Geqrf()
HOUSEHOLDER_PRODUCT: Final = HouseholderProduct()
