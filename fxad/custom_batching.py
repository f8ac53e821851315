"""Functions with batching rules of their own, under the names of `jax.custom_batching`."""

from fxad.api.custom.derived_decorators import sequential_vmap
from fxad.api.custom_function import custom_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
