"""Arguments of functions of SciPy: as arrays of one floating dtype."""

from __future__ import annotations

from collections.abc import Callable

from fxad import dtypes, numpy as fnp
from fxad.errors import DTypeError
from fxad.numpy.composites import promote_arguments
from fxad.operations.promotion import to_inexact_dtype
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.tracer import is_number


def floats(name: str, *args: ArrayLike) -> list[Array]:
    """Return arguments in their common dtype, at least float32."""
    dtype = to_inexact_dtype(fnp.result_type(*[a if is_number(a) else fnp.asarray(a) for a in args]))
    return [a.astype(dtype) for a in promote_arguments(name, *args, dtype=dtype)]


def broadcast_floats(name: str, *args: ArrayLike) -> list[Array]:
    """Return arguments in their common dtype, at least float32, and in their common shape."""
    return list(fnp.broadcast_arrays(*floats(name, *args)))


def at_least_single(f: Callable[[Array], Array], x: Array) -> Array:
    """Return f(x), computed in float32 and rounded once for the half types."""
    if x.dtype.itemsize >= 4:
        return f(x)
    return f(x.astype(dtypes.float32)).astype(x.dtype)


def reals(name: str, *args: ArrayLike) -> list[Array]:
    """Return `floats` of real arguments. Raises: DTypeError for complex ones."""
    arrays = floats(name, *args)
    if arrays[0].dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: takes real numbers, got {arrays[0].dtype}", remedy="pass the real part")
    return arrays
