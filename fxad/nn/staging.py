"""What the functions of this package do with an argument first."""

from __future__ import annotations

from fxad.numpy.apply import as_array
from fxad.operations import promotion
from fxad.tracing.array import Array, ArrayLike


def floating(name: str, x: ArrayLike, k: int = 0) -> Array:
    """An argument as a floating array."""
    array = as_array(name, x, k)
    return array.astype(promotion.to_inexact_dtype(array.dtype))
