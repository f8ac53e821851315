"""Linear algebra. Decompositions use LAPACK on the CPU; other functions are composed of them, in
`fxad.operations.linalg` and `fxad.operations.linear_systems`."""

from typing import Final

from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import Expm, ExpmFrechet
from fxad.primitives.linalg.lu import Lu, LuPivotsToPermutation
from fxad.primitives.linalg.qr import Geqrf, HouseholderProduct, Ormqr, Qr
from fxad.primitives.linalg.reduction import ColumnPivots, Tridiagonalize
from fxad.primitives.linalg.schur import Schur
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet, Solve
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linalg.tridiagonal import TridiagonalSolve

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
    ColumnPivots,
    Tridiagonalize,
    Eigh,
    Eig,
    Schur,
    Svd,
    Expm,
    ExpmFrechet,
)
