"""Vector quantization, as in `scipy.cluster.vq`."""

from __future__ import annotations

from fxad import dtypes, numpy as fnp
from fxad.errors import ShapeError
from fxad.operations.arguments import check_flags
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike


def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Return the index of the nearest code for each observation, int32, and the distance to it.

    Type:   obs [m,n] and code_book [k,n], or vectors of numbers, -> [m], [m]. `check_finite` changes nothing.
    Raises: ShapeError.
    """
    check_flags("vq", check_finite=check_finite)
    x, codes = floats("vq", obs, code_book)
    if x.ndim != codes.ndim or x.ndim not in (1, 2) or x.shape[1:] != codes.shape[1:]:
        raise ShapeError(
            f"vq: observations {x.aval} and codes {codes.aval} are not [m,n] and [k,n]",
            remedy="give a row for each observation and for each code",
        )
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    distances = fnp.linalg.norm(x[:, None] - codes[None], axis=-1)
    return fnp.argmin(distances, axis=-1).astype(dtypes.int32), fnp.min(distances, axis=-1)
