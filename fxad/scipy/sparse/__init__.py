"""Iterative solvers, as in `scipy.sparse.linalg`."""

from fxad.scipy.sparse import linalg

__all__ = ["linalg"]
