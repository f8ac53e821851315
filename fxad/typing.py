"""Types for annotations, under the names of `jax.typing`."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np

from fxad.dtypes import DType, ScalarType
from fxad.tracing.array import ArrayLike


class SupportsDType(Protocol):
    """Anything with a dtype."""

    @property
    def dtype(self) -> DType:
        """Its dtype."""


# The type of `dtype=` arguments.
DTypeLike: TypeAlias = "str | type[bool | int | float | complex | np.generic] | DType | ScalarType | SupportsDType"

__all__ = ["ArrayLike", "DTypeLike", "SupportsDType"]


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
