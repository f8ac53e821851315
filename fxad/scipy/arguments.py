"""Arguments of functions of SciPy, as arrays of one floating dtype, and sums of Chebyshev polynomials of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad import dtypes, numpy as fnp
from fxad.errors import DTypeError
from fxad.numpy.composites import promote_arguments
from fxad.operations.promotion import to_inexact_dtype
from fxad.tracing.array import Array, ArrayLike
from fxad.tracing.traced_numbers import is_number


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


def chebyshev(t: Array, coefficients: Sequence[float]) -> Array:
    """Return the sum of Chebyshev polynomials of -1 <= t <= 1, the lowest order first, by Clenshaw's recurrence."""
    least = float(fnp.finfo(t.dtype).eps) * 1e-2 * abs(coefficients[0])
    kept = [c for c in coefficients if abs(c) > least]
    last, before = fnp.full_like(t, kept[-1]), fnp.zeros_like(t)
    for c in kept[-2:0:-1]:
        last, before = 2 * t * last - before + c, last
    return t * last - before + kept[0]
