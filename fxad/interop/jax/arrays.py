"""Arrays of both libraries in functions of the other.

JAX reads an array of fxad by `__jax_array__` in operators and in `asarray`. Its compiled functions take pytrees only,
so there an array of fxad is a pytree of one array of JAX. fxad reads arrays of JAX by DLPack. On one device nothing is
copied.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from fxad.errors import TranslationError
from fxad.tracing.array import Array
from fxad.tracing.tracer import Tracer


def as_jax(x: object) -> Any:
    """Return an array of fxad as one of JAX: the same memory, on one device."""
    if isinstance(x, Tracer):
        raise TranslationError(
            f"to_jax: {x!r} has no value while fxad traces the function",
            remedy="give the function of JAX to from_jax, and call the program",
        )
    return x.__jax_array__() if isinstance(x, Array) else jnp.asarray(x)


def _flattened(x: Array) -> tuple[tuple[object], None]:
    return (as_jax(x),), None


def _itself(_: None, children: tuple[object]) -> object:
    return children[0]


jax.tree_util.register_pytree_node(Array, _flattened, _itself)
