"""Linear algebra: the extension of the array API standard, NumPy's further functions, and some of scipy.linalg.

Matrices are on the last two axes; the other axes are batch axes. Integers and bools are computed in float32.
float16 and bfloat16 are errors: compute in float32. If a decomposition fails its results are nan.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.numpy.linalg.decompositions import (
        EighResult,
        EigResult,
        QRResult,
        SVDResult,
        cholesky,
        cond,
        eig,
        eigh,
        eigvals,
        eigvalsh,
        lu,
        matrix_rank,
        qr,
        svd,
        svdvals,
    )
    from fxad.numpy.linalg.norms import (
        cross,
        diagonal,
        matrix_norm,
        norm,
        trace,
        vector_norm,
    )
    from fxad.numpy.linalg.systems import (
        LstsqResult,
        SlogdetResult,
        block_diag,
        cho_factor,
        cho_solve,
        det,
        expm,
        inv,
        lstsq,
        lu_factor,
        lu_solve,
        matrix_power,
        multi_dot,
        pinv,
        slogdet,
        solve,
        solve_triangular,
        tensorinv,
        tensorsolve,
    )
    from fxad.numpy.products import matmul, outer, tensordot, vecdot
    from fxad.numpy.shapes import matrix_transpose
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.numpy.linalg.decompositions": (
                "EigResult EighResult QRResult SVDResult cholesky cond eig eigh eigvals eigvalsh lu matrix_rank "
                "qr svd svdvals"
            ),
            "fxad.numpy.linalg.norms": "cross diagonal matrix_norm norm trace vector_norm",
            "fxad.numpy.linalg.systems": (
                "LstsqResult SlogdetResult block_diag cho_factor cho_solve det expm inv lstsq lu_factor lu_solve "
                "matrix_power multi_dot pinv slogdet solve solve_triangular tensorinv tensorsolve"
            ),
            "fxad.numpy.products": "matmul outer tensordot vecdot",
            "fxad.numpy.shapes": "matrix_transpose",
        },
    )

__all__ = [
    "EigResult",
    "EighResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]
