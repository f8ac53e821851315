"""Functions with derivatives of their own, under the names of `jax.custom_derivatives`."""

from fxad.api.custom import custom_jvp, custom_vjp
from fxad.api.staging import closure_convert
from fxad.api.symbolic import CustomVJPPrimal, SymbolicZero

__all__ = ["CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_jvp", "custom_vjp"]
