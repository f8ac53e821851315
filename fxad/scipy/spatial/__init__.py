"""Geometry, as in `scipy.spatial`."""

from fxad.scipy.spatial import transform

__all__ = ["transform"]
