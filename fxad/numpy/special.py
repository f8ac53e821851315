"""NumPy's special functions."""

from __future__ import annotations

from fxad.numpy.apply import apply_op
from fxad.operations import special
from fxad.tracing.array import Array, ArrayLike


def i0(x: ArrayLike) -> Array:
    """Return the modified Bessel function of the first kind of order 0."""
    return apply_op("i0", special.i0, (x,))


def sinc(x: ArrayLike, /) -> Array:
    """Return sin(pi x) / (pi x), and 1 at 0."""
    return apply_op("sinc", special.sinc, (x,))
