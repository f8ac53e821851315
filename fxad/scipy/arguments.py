"""Arguments of functions of SciPy: promoted to one floating dtype, broadcast to one shape."""

from __future__ import annotations

from fxad import numpy as fnp
from fxad.numpy.composites import promote_arguments
from fxad.operations.promotion import to_inexact_dtype
from fxad.tracing.array import Array, ArrayLike, is_scalar


def floating(name: str, *args: ArrayLike) -> list[Array]:
    """Arguments in their common dtype, at least float32, and in their common shape."""
    dtype = to_inexact_dtype(fnp.result_type(*[a if is_scalar(a) else fnp.asarray(a) for a in args]))
    return list(fnp.broadcast_arrays(*[a.astype(dtype) for a in promote_arguments(name, *args, dtype=dtype)]))
