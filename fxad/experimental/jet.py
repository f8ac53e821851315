"""`jax.experimental.jet`: Taylor mode, with derivatives in place of coefficients."""

from fxad.api.jet import jet_of_derivatives as jet

__all__ = ["jet"]
