"""Functions with derivatives of their own, under the names of `jax.custom_derivatives`."""

from fxad.api.custom.derived_decorators import custom_gradient
from fxad.api.custom_function import custom_jvp, custom_vjp
from fxad.api.staging import closure_convert
from fxad.api.symbolic_zeros import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    zero_from_primal,
)
from fxad.lax import linear_call

__all__ = [
    "CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp", "custom_vjp",
    "custom_vjp_primal_tree_values", "linear_call", "zero_from_primal",
]  # fmt: skip
