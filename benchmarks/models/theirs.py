"""JAX as a `Library`. It stands apart, so that tests use the models where JAX is not installed."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.models.library import Library

THEIRS = Library(jnp, jax.nn, jax.lax, jax.random, jax.vmap)
