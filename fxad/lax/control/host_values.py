"""Types of arguments that are no Arrays, and become some inside of control flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

HostLeaf: TypeAlias = "complex | np.ndarray[Any, Any] | np.generic"  # int, float and bool are complex, to type checkers
# A container with such a leaf, among the first four of a tuple. A tuple of Arrays is none: of two overloads that take a
# lambda, mypy would take neither.
HostTree: TypeAlias = (
    "Sequence[HostValue] | Mapping[Any, HostValue] | tuple[HostValue, *tuple[object, ...]]"
    " | tuple[object, HostValue, *tuple[object, ...]] | tuple[object, object, HostValue, *tuple[object, ...]]"
    " | tuple[object, object, object, HostValue, *tuple[object, ...]]"
)
HostValue: TypeAlias = "HostLeaf | HostTree"
