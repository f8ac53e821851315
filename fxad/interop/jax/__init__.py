"""JAX beside fxad: programs of JAX become programs of fxad, and back. It needs JAX: `pip install 'fxad[jax]'`."""

from fxad.interop.jax.translation import from_jax as from_jax

__all__ = ["from_jax"]
