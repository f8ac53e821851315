"""Functions with batching rules of their own, under the names of `jax.custom_batching`."""

from fxad.api.custom import custom_vmap
from fxad.api.custom_functions import sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
