"""The singular value decomposition."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import minimum
from fxad.errors import NotDifferentiableError
from fxad.ir import Atom, Atoms, Aval, Avals, Hlo, HloValues, JvpCtx, Lit, NDArray, Tangent, Tangents, primitive
from fxad.primitives.elementwise.arithmetic import ADD, DIV, SUB
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.linalg.family import (
    Entries,
    Matrixwise,
    apply_to_each,
    check_finite,
    check_lapack_dtype,
    matrix_shape,
    real_dtype,
)
from fxad.primitives.linalg.hlo_matrices import finite_matrices, has_empty, identity_constant, or_nan, zeros_unless
from fxad.primitives.linalg.lapack import char_option, lapack_call
from fxad.primitives.linalg.matrices import (
    as_complex,
    conjugate_transpose,
    diagonal,
    dot,
    inverse_off_diagonal,
    minus,
    on_diagonal,
    plus,
    repeat_as_columns,
    repeat_as_rows,
    scaled,
    times,
)
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class Svd(Matrixwise):
    """The singular values s (descending) of A and, with `vectors`, U and V^H with A = U diag(s) V^H.

    All are nan where the iteration fails, or A is not finite.

    Type:   (..., m, n) -> s (..., k), real; U (..., m, k) and V^H (..., k, n) with k = min(m, n); with `full_matrices`
            U (..., m, m) and V^H (..., n, n).
    Rule:   with M = U^H A_dot V: s_dot = Re diag(M), U_dot = U (F * (M S + S M^H) + the skew part of diag(M) / s) and
            V_dot = V (F * (S M + M^H S)), F[i, j] = 1 / (s[j]^2 - s[i]^2) off the diagonal, and the part of A_dot
            outside the smaller of the two spaces. The phase of a complex pair of vectors is a convention, as in `eigh`.
            U_dot and V_dot are not finite where singular values are equal, or one is zero; s_dot is.
            Not for full matrices of A that is not square: their last vectors are any basis.
    Source: gesdd of LAPACK; Giles, An extended collection of matrix derivative results (2008), 3.2; Seeger, Hetzel,
            Dai, Meissner, Lawrence, Auto-differentiating linear algebra (2017).
    """

    name: ClassVar[str] = "svd"
    vectors: bool
    full_matrices: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("svd", x)
        batch, m, n = matrix_shape("svd", x)
        k = minimum(m, n)
        s = Aval((*batch, k), real_dtype(x))
        if not self.vectors:
            return (s,)
        rows, columns = (m, n) if self.full_matrices else (k, k)
        return s, Aval((*batch, m, rows), x.dtype), Aval((*batch, columns, n), x.dtype)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        outs = self.abstract_eval(Aval(x.shape, x.dtype))
        if not self.vectors:
            return apply_to_each(_singular_values, outs, x)

        def decomposed(a: Entries) -> tuple[NDArray, ...]:
            check_finite(a)
            u, s, vh = np.linalg.svd(a, self.full_matrices)
            return s, u, vh

        return apply_to_each(decomposed, outs, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), s = ins, outs[0]
        *batch, m, n = x.shape
        if has_empty(x):
            return [zeros_constant(hlo, s), *[identity_constant(hlo, a) for a in outs[1:]]]
        mode = "N" if not self.vectors else "A" if self.full_matrices else "S"
        u, vh = (outs[1], outs[2]) if self.vectors else (x.with_shape((*batch, m, m)), x.with_shape((*batch, n, n)))
        results = (x, s, u, vh, Aval(tuple(batch), dtypes.int32))
        finite = finite_matrices(hlo, args[0], x)
        a = zeros_unless(hlo, finite, args[0], x)  # for an infinity the routine might not end
        _, *values, info = lapack_call(
            hlo, "gesdd", (a,), ins, results, {"mode": char_option(mode)}, overwrite=[(0, 0)]
        )
        return [or_nan(hlo, info, v, out, tuple(batch), finite) for v, out in zip(values, outs, strict=False)]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        m, n = x.aval.shape[-2:]
        if self.vectors and self.full_matrices and m != n:
            raise NotDifferentiableError(
                f"svd: the last {abs(m - n)} vectors of full matrices are any basis and have no derivative",
                remedy="ask for the reduced form: full_matrices=False",
            )
        s, u, vh = ctx(Svd(True, False), x)
        one, lin = ctx.one, ctx.lin_one
        uh, v = conjugate_transpose(one, u), conjugate_transpose(one, vh)
        inner = dot(lin, dot(lin, uh, t), v)
        s_dot = diagonal(ctx, lin, inner)
        if inner.aval.dtype in dtypes.COMPLEX:
            s_dot = lin(REAL, s_dot)
        if not self.vectors:
            return (s,), (s_dot,)
        u_dot, v_dot = _vectors_tangent(ctx, s, u, v, inner)
        if not at_least(n - m, 0):
            beyond = dot(lin, t, v)
            beyond = minus(lin, beyond, dot(lin, u, inner))
            u_dot = plus(lin, u_dot, _divide_columns(ctx, beyond, s))
        if not at_least(m - n, 0):
            beyond = dot(lin, conjugate_transpose(lin, t), u)
            beyond = minus(lin, beyond, dot(lin, v, conjugate_transpose(lin, inner)))
            v_dot = plus(lin, v_dot, _divide_columns(ctx, beyond, s))
        return (s, u, vh), (s_dot, u_dot, conjugate_transpose(lin, v_dot))


def _singular_values(a: Entries) -> tuple[NDArray]:
    check_finite(a)
    return (np.linalg.svd(a, compute_uv=False),)


def _divide_columns(ctx: JvpCtx, t: Tangent, s: Atom) -> Tangent:
    """Column j over s[j]."""
    wide = as_complex(ctx.one, repeat_as_rows(ctx.one, s, t.aval.shape), t.aval)
    return ctx.lin_one(DIV, t, wide)


def _vectors_tangent(ctx: JvpCtx, s: Atom, u: Atom, v: Atom, inner: Tangent) -> tuple[Tangent, Tangent]:
    """Return the tangents of U and V inside the spaces they span.

    Those are U (F * (M S + S M^H)) and V (F * (S M + M^H S)) with F[i, j] = 1 / (s[j]^2 - s[i]^2). With the Hermitian
    and the skew part of M they are sums of H / (s[j] - s[i]) and K / (s[j] + s[i]), where no square underflows.
    """
    one, lin, like = ctx.one, ctx.lin_one, inner.aval
    right, left = repeat_as_rows(one, s, like.shape), repeat_as_columns(one, s, like.shape)
    diagonal_mask = on_diagonal(ctx, like.shape)
    by_gap, by_sum = [
        as_complex(one, inverse_off_diagonal(ctx, one(op, right, left), diagonal_mask), like) for op in (SUB, ADD)
    ]
    half, turned = scaled(lin, inner, 0.5), scaled(lin, conjugate_transpose(lin, inner), 0.5)
    skew = minus(lin, half, turned)
    along, across = times(lin, by_gap, plus(lin, half, turned)), times(lin, by_sum, skew)
    inside = plus(lin, along, across)
    if like.dtype in dtypes.COMPLEX:
        skew = lin(SELECT_N, diagonal_mask, Lit.zero(like), skew)
        inside = plus(lin, inside, lin(DIV, skew, as_complex(one, right, like)))
    return dot(lin, u, inside), dot(lin, v, minus(lin, along, across))
