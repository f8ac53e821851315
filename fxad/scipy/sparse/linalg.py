"""Iterative solvers of linear systems. Each returns the solution and a report, `fxad.lax.Convergence`."""

from fxad.lax.implicit import bicgstab, cg, gmres

__all__ = ["bicgstab", "cg", "gmres"]
