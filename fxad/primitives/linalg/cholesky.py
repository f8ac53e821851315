"""The Cholesky factor of positive definite matrices."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.ir import Atoms, Aval, Avals, Hlo, HloValues, JvpCtx, NDArray, Tangents, primitive
from fxad.primitives.linalg.family import Entries, Matrixwise, apply_to_each, check_lapack_dtype, square_shape
from fxad.primitives.linalg.hlo_matrices import has_empty, or_nan, triangle
from fxad.primitives.linalg.lapack import char_option, lapack_call
from fxad.primitives.linalg.matrices import (
    dot,
    hermitian,
    lower_mask,
    on_diagonal,
    plus,
    scaled,
    zero_unless,
)
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class Cholesky(Matrixwise):
    """The lower triangular L with positive diagonal and L L^H = A, where A is given by its lower triangle.

    The upper triangle, and imaginary parts on the diagonal, are ignored. If A is not positive definite, all of L is
    nan.

    Type:   (..., n, n) float32, float64, complex64 or complex128 -> the same.
    Rule:   L_dot = L phi(L^-1 A_dot L^-H), phi: the lower triangle with half the diagonal; A_dot as A is read.
    Source: potrf of LAPACK; Murray, Differentiation of the Cholesky decomposition (2016), equation 8.
    """

    name: ClassVar[str] = "cholesky"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("cholesky", x)
        square_shape("cholesky", x)
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        return apply_to_each(_numpy_cholesky, (Aval(x.shape, x.dtype),), x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,) = ins
        if has_empty(x):
            return (zeros_constant(hlo, x),)
        batch = x.shape[:-2]
        results = (x, Aval(batch, dtypes.int32))
        factor, info = lapack_call(hlo, "potrf", args, ins, results, {"uplo": char_option("L")}, overwrite=[(0, 0)])
        return (or_nan(hlo, info, triangle(hlo, factor, x, lower=True), x, batch),)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (factor,) = ctx(self, *primals)
        t = hermitian(ctx, ctx.lin_one, tangents[0])
        t = ctx.lin_one(TriangularSolve(True, True, False, False, False), factor, t)
        t = ctx.lin_one(TriangularSolve(False, True, True, True, False), factor, t)
        half = scaled(ctx.lin_one, zero_unless(ctx.lin_one, on_diagonal(ctx, t.aval.shape), t), 0.5)
        phi = plus(ctx.lin_one, zero_unless(ctx.lin_one, lower_mask(ctx, t.aval.shape, -1), t), half)
        return (factor,), (dot(ctx.lin_one, factor, phi),)


def _numpy_cholesky(a: Entries) -> tuple[NDArray]:
    return (np.linalg.cholesky(a),)


CHOLESKY: Final = Cholesky()
