"""The Schur decomposition of square matrices."""

from __future__ import annotations

import importlib
from typing import ClassVar, final

from fxad import dtypes
from fxad.errors import NotDifferentiableError
from fxad.ir import Atoms, Aval, Avals, Hlo, HloValues, JvpCtx, NDArray, Tangents, primitive
from fxad.primitives.linalg.family import (
    Entries,
    Matrixwise,
    apply_to_each,
    check_finite,
    check_lapack_dtype,
    square_shape,
)
from fxad.primitives.linalg.hlo_matrices import has_empty, or_nan
from fxad.primitives.linalg.lapack import char_option, lapack_call
from fxad.primitives.operand_checks import check_count
from fxad.primitives.stablehlo import zeros_constant


@final
@primitive
class Schur(Matrixwise):
    """The T and, optionally, the unitary Z with A = Z T Z^H; T is upper triangular and has the eigenvalues of A.

    For a real A, T is real: a pair of complex eigenvalues is a 2 x 2 block on the diagonal, whose diagonal
    elements are equal and whose others have opposite signs. All are nan if the iteration fails.

    Type:   (..., n, n) -> T (..., n, n), and Z (..., n, n), of the dtype of A.
    Rule:   refused: the order of the eigenvalues and the phases of Z are free. `sqrtm`, `expm`, `funm` and
            `solve_sylvester` have derivatives.
    Source: gees of LAPACK.
    """

    name: ClassVar[str] = "schur"
    vectors: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_lapack_dtype("schur", x)
        square_shape("schur", x)
        return (x, x) if self.vectors else (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        return apply_to_each(self._decomposed, self.abstract_eval(Aval(x.shape, x.dtype)), x)

    def _decomposed(self, a: Entries) -> tuple[NDArray, ...]:
        check_finite(a)
        if not a.size:
            return (a, a) if self.vectors else (a,)
        # SciPy is imported when the interpreter first runs this: see `fxad.primitives.elementwise.references`
        t, z = importlib.import_module("scipy.linalg").schur(a)
        return (t, z) if self.vectors else (t,)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,) = ins
        if has_empty(x):
            return [zeros_constant(hlo, a) for a in outs]
        batch, line = x.shape[:-2], x.with_shape(x.shape[:-1])
        status = Aval(batch, dtypes.int32)
        values = [line] if x.dtype in dtypes.COMPLEX else [line, line]
        options = {"mode": char_option("V" if self.vectors else "N"), "sort": char_option("N")}
        results = (x, x, *values, status, status)
        t, z, *_, info = lapack_call(hlo, "gees", args, ins, results, options, overwrite=[(0, 0)])
        return [or_nan(hlo, info, value, a, batch) for value, a in zip((t, z), outs, strict=False)]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        raise NotDifferentiableError(
            "schur: the factors have no derivative: the order of eigenvalues and the phases of vectors are free",
            remedy="differentiate a function of the matrix: sqrtm, expm, funm, solve_sylvester, eig",
        )
