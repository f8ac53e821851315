"""`fxad.tree.ravel` under the name of `jax.flatten_util`."""

from fxad.api.trees import ravel as ravel_pytree

__all__ = ["ravel_pytree"]
