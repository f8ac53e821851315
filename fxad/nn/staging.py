"""How a function of this package becomes equations: as those of `fxad.numpy` that are a few others put together."""

from __future__ import annotations

from fxad.array import Array, ArrayLike
from fxad.numpy.calls import as_array
from fxad.numpy.staging import Written as Written
from fxad.numpy.staging import written as written
from fxad.operations import promotion


def floating(name: str, x: ArrayLike, k: int = 0) -> Array:
    """An argument as a floating array."""
    array = as_array(name, x, k)
    return array.astype(promotion.inexact(array.dtype))
