"""Linear algebra. Decompositions use LAPACK on the CPU; other functions are composed of them (see
`fxad.lax.linalg`)."""

from typing import Final

from fxad.primitives.linalg.cholesky import CHOLESKY, Cholesky
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import EXPM, EXPM_FRECHET, Expm, ExpmFrechet
from fxad.primitives.linalg.lu import LU, Lu, LuPivotsToPermutation
from fxad.primitives.linalg.qr import GEQRF, HOUSEHOLDER_PRODUCT, Geqrf, HouseholderProduct, Ormqr, Qr
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet, Solve, lu_factors
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linalg.tridiagonal import TRIDIAGONAL_SOLVE, TridiagonalSolve

LINALG: Final = (
    Cholesky,
    TriangularSolve,
    TridiagonalSolve,
    Lu,
    LuPivotsToPermutation,
    Solve,
    Slogdet,
    Det,
    Pinv,
    Geqrf,
    HouseholderProduct,
    Ormqr,
    Qr,
    Eigh,
    Eig,
    Svd,
    Expm,
    ExpmFrechet,
)

__all__ = [
    "CHOLESKY",
    "EXPM",
    "EXPM_FRECHET",
    "GEQRF",
    "HOUSEHOLDER_PRODUCT",
    "LINALG",
    "LU",
    "TRIDIAGONAL_SOLVE",
    "Cholesky",
    "Det",
    "Eig",
    "Eigh",
    "Expm",
    "ExpmFrechet",
    "Geqrf",
    "HouseholderProduct",
    "Ormqr",
    "Lu",
    "LuPivotsToPermutation",
    "Pinv",
    "Qr",
    "Slogdet",
    "Solve",
    "Svd",
    "TriangularSolve",
    "TridiagonalSolve",
    "lu_factors",
]
