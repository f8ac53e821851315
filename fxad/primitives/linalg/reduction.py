"""Orders and forms of matrices that LAPACK finds: the column order of a pivoted QR, the tridiagonal form."""

from __future__ import annotations

import importlib
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.size import maximum
from fxad.errors import NotDifferentiableError
from fxad.ir import Atoms, Aval, Avals, Hlo, HloValues, JvpCtx, Lit, NDArray, Tangents, primitive
from fxad.primitives.families import WithoutTangent
from fxad.primitives.linalg.family import (
    Entries,
    Matrixwise,
    apply_to_each,
    as_entries,
    check_lapack_dtype,
    matrix_shape,
    real_dtype,
    square_shape,
)
from fxad.primitives.linalg.hlo_matrices import has_empty, or_nan
from fxad.primitives.linalg.lapack import char_option, lapack_call
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class ColumnPivots(Matrixwise, WithoutTangent):
    """The order in which a QR decomposition with pivoting takes the columns: of those that are left, next is the one
    with the largest norm orthogonal to those already taken.

    Type:   (..., m, n) float32, float64, complex64 or complex128 -> int32 (..., n).
    Source: geqp3 of LAPACK; Golub, Van Loan, Matrix computations, section 5.4.2.
    """

    name: ClassVar[str] = "column_pivots"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("column_pivots", x)
        batch, _, n = matrix_shape("column_pivots", x)
        return (Aval((*batch, n), dtypes.int32),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        (order,) = self.abstract_eval(Aval(x.shape, x.dtype))
        if not x.size:
            return (np.broadcast_to(np.arange(x.shape[-1], dtype=np.int32), order.shape),)
        return apply_to_each(_pivots, (order,), x)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), (order,) = ins, outs
        if has_empty(x):
            return hlo.op("stablehlo.iota", (), outs, {"iota_dimension": f"{order.ndim - 1} : i64"})
        *batch, m, n = x.shape
        # 0 in the second operand: the column may be moved
        operands, types = (*args, zeros_constant(hlo, order)), (x, order)
        results = (x, order, Aval((*batch, min(m, n)), x.dtype))
        _, counted_from_1, _ = lapack_call(hlo, "geqp3", operands, types, results, overwrite=[(0, 0), (1, 1)])
        return hlo.op("stablehlo.subtract", (counted_from_1, hlo.constant(Lit.of(1, order))), outs)


def _pivots(a: Entries) -> tuple[NDArray]:
    # SciPy is imported when the interpreter first runs this: see `fxad.primitives.elementwise.references`
    qr = importlib.import_module("scipy.linalg").qr
    return (qr(a, mode="r", pivoting=True, check_finite=False)[1].astype(np.int32),)


@final
@primitive
class Tridiagonalize(Matrixwise):
    """The tridiagonal T = Q^H A Q of a Hermitian A, in LAPACK's form: T and the reflectors whose product is Q in one
    matrix, the diagonal of T, the diagonal beside it, and the scalar factors of the reflectors.

    The triangle of A that `lower` names is read, and holds T and the reflectors; the other one is unchanged.

    Type:   (..., n, n) float32, float64, complex64 or complex128 -> the same, real (..., n), real (..., n - 1),
            (..., n - 1) of the dtype of A.
    Rule:   refused: the reflectors depend on choices. `eigh` has derivatives.
    Source: sytrd and hetrd of LAPACK.
    """

    name: ClassVar[str] = "tridiagonalize"
    lower_triangle: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("tridiagonalize", x)
        batch, n = square_shape("tridiagonalize", x)
        beside = (*batch, maximum(n - 1, 0))
        return x, Aval((*batch, n), real_dtype(x)), Aval(beside, real_dtype(x)), Aval(beside, x.dtype)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        outs = self.abstract_eval(Aval(x.shape, x.dtype))
        if not x.size:
            return tuple([np.zeros(a.shape, a.dtype) for a in outs])
        return apply_to_each(self._reduced, outs, x)

    def _reduced(self, a: Entries) -> tuple[NDArray, ...]:
        lapack = importlib.import_module("scipy.linalg.lapack")
        name = "hetrd" if np.iscomplexobj(a) else "sytrd"
        routine, work = lapack.get_lapack_funcs((name, f"{name}_lwork"), (a,))
        size, _ = work(len(a), lower=self.lower_triangle)
        # the wrapper copies one triangle only
        packed, diagonal, beside, taus, _ = routine(a, lower=self.lower_triangle, lwork=int(np.real(size)))
        place = np.tri(len(a), dtype=bool)
        return np.where(place if self.lower_triangle else place.T, as_entries(packed), a), diagonal, beside, taus

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,) = ins
        if has_empty(x):
            return [zeros_constant(hlo, a) for a in outs]
        batch = x.shape[:-2]
        options = {"uplo": char_option("L" if self.lower_triangle else "U")}
        results = (*outs, Aval(batch, dtypes.int32))
        *values, info = lapack_call(hlo, "sytrd", args, ins, results, options, overwrite=[(0, 0)])
        return [or_nan(hlo, info, value, a, batch) for value, a in zip(values, outs, strict=True)]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        raise NotDifferentiableError(
            "tridiagonalize: packed reflectors have no derivative rule",
            remedy="differentiate eigh, which gives eigenvalues and eigenvectors",
        )


COLUMN_PIVOTS: Final = ColumnPivots()
