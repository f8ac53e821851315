"""The report of an iterative solver."""

from __future__ import annotations

from enum import IntEnum
from typing import final

from fxad.core.trees import classes as tree_classes
from fxad.tracing.array import Array


@final
class Breakdown(IntEnum):
    """The reason why a solver ended before convergence, other than `maxiter`."""

    NONE = 0
    NOT_FINITE = 1  # nan or infinity in the system or in an iterate: the result is nan
    SINGULAR = 2  # the matrix maps a search direction to zero, within the method's precision
    ORTHOGONAL = 3  # the residual is orthogonal to the method's vectors (bicgstab: rho = 0; cg: r . M r = 0)
    STAGNATED = 4  # another round would not reduce the residual: rounding, or `restart` is too small


@final
@tree_classes.dataclass
class Convergence:
    """The report of an iterative solver; under vmap, one per example.

    `residual_norm` is the norm of the true residual, computed from the result; `converged` refers to it. If `converged`
    is False and the breakdown is 0, `maxiter` was reached.
    """

    iterations: Array
    residual_norm: Array
    converged: Array
    breakdown: Array
