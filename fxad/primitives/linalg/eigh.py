"""Eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, final

import numpy as np

from fxad import dtypes
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    Hlo,
    HloValues,
    JvpCtx,
    NDArray,
    Tangents,
    primitive,
)
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.linalg.family import (
    Entries,
    Matrixwise,
    apply_to_each,
    check_finite,
    check_lapack_dtype,
    real_dtype,
    square_shape,
)
from fxad.primitives.linalg.hlo_matrices import finite_matrices, has_empty, or_nan, triangle, zeros_unless
from fxad.primitives.linalg.lapack import char_option, lapack_call
from fxad.primitives.linalg.matrices import (
    as_complex,
    conjugate_transpose,
    diagonal,
    dot,
    hermitian,
    inverse_off_diagonal,
    minus,
    on_diagonal,
    repeat_as_columns,
    repeat_as_rows,
    times,
)
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class Eigh(Matrixwise):
    """The w (ascending) and, with `vectors`, the unitary V with A V = V diag(w), where A is given by one triangle.

    The other triangle, and imaginary parts on the diagonal, are ignored. Both results are nan if the iteration fails,
    or the triangle is not finite.

    Type:   (..., n, n) float32, float64, complex64 or complex128 -> w (..., n), real; V of the type of A.
    Rule:   with M = V^H A_dot V: w_dot = diag(M), V_dot = V (F * M), F[i, j] = 1 / (w[j] - w[i]) off the diagonal. A
            complex eigenvector is determined up to its phase, which the rule keeps fixed (v^H v_dot = 0). So the
            derivative of a function that depends on the phase is a convention; that of any other function is exact. If
            eigenvalues are equal V_dot is not finite; w_dot is.
    Source: syevd, heevd of LAPACK; Giles, An extended collection of matrix derivative results (2008), 3.1.
    """

    name: ClassVar[str] = "eigh"
    lower_a: bool
    vectors: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("eigh", x)
        batch, n = square_shape("eigh", x)
        w = Aval((*batch, n), real_dtype(x))
        return (w, x) if self.vectors else (w,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        outs = self.abstract_eval(Aval(x.shape, x.dtype))
        half: Literal["L", "U"] = "L" if self.lower_a else "U"

        def decomposed(a: Entries) -> Sequence[NDArray]:
            check_finite(np.tril(a) if self.lower_a else np.triu(a))
            return np.linalg.eigh(a, half) if self.vectors else [np.linalg.eigvalsh(a, half)]

        return apply_to_each(decomposed, outs, x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), w = ins, outs[0]
        if has_empty(x):
            return [zeros_constant(hlo, a) for a in outs]
        batch = x.shape[:-2]
        options = {"mode": char_option("V" if self.vectors else "N"), "uplo": char_option("L" if self.lower_a else "U")}
        results = (x, w, Aval(batch, dtypes.int32))
        finite = finite_matrices(hlo, triangle(hlo, args[0], x, lower=self.lower_a), x)
        a = zeros_unless(hlo, finite, args[0], x)  # of 2 by 2 matrices with a nan, LAPACK's eigenvalues are finite
        v, values, info = lapack_call(hlo, "syevd", (a,), ins, results, options, overwrite=[(0, 0)])
        return [or_nan(hlo, info, value, out, batch, finite) for value, out in zip((values, v), outs, strict=False)]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        w, v = ctx(Eigh(self.lower_a, True), *primals)
        one, lin = ctx.one, ctx.lin_one
        t = hermitian(ctx, lin, tangents[0], lower=self.lower_a)
        m = dot(lin, dot(lin, conjugate_transpose(one, v), t), v)
        w_dot = diagonal(ctx, lin, m)
        if m.aval.dtype in dtypes.COMPLEX:
            w_dot = lin(REAL, w_dot)
        if not self.vectors:
            return (w,), (w_dot,)
        v_dot = dot(lin, v, times(lin, as_complex(one, inverse_gaps(ctx, w), v.aval), m))
        return (w, v), (w_dot, v_dot)


def inverse_gaps(ctx: JvpCtx, w: Atom) -> Atom:
    """Return 1 / (w[j] - w[i]), and 0 on the diagonal."""
    one, shape = ctx.one, (*w.aval.shape, w.aval.shape[-1])
    gaps = minus(one, repeat_as_rows(one, w, shape), repeat_as_columns(one, w, shape))
    return inverse_off_diagonal(ctx, gaps, on_diagonal(ctx, shape))
