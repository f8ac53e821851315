"""Clustering, as in `scipy.cluster`."""

from fxad.scipy.cluster import vq

__all__ = ["vq"]
