"""Derivatives against differences, under the names of `jax.test_util`. `fxad.testing` has the laws of fxad."""

from fxad.testing.gradient_checks import check_grads, check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]
