"""`optimization_barrier`, which limits what XLA merges."""

from __future__ import annotations

from typing import TypeVar, cast

from fxad.core.trees import tree
from fxad.primitives.barrier import OPTIMIZATION_BARRIER
from fxad.tracing.array import binder

T = TypeVar("T")


def optimization_barrier(operand: T) -> T:
    """Return a pytree of arrays unchanged. XLA computes all of them before it uses one, and merges no operations
    across."""
    leaves, structure = tree.flatten(operand)
    return cast(T, structure.unflatten(binder().bind(OPTIMIZATION_BARRIER, tuple(leaves))))
