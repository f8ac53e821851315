"""Integrals of samples, as in `scipy.integrate`."""

from fxad.numpy import trapezoid

__all__ = ["trapezoid"]
