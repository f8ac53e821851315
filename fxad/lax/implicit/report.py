"""What an iterative solver says of its result."""

from __future__ import annotations

from enum import IntEnum
from typing import final

from fxad import tree
from fxad.tracing.array import Array


@final
class Breakdown(IntEnum):
    """Why a solver ended before it converged, other than that `maxiter` was reached."""

    NONE = 0
    NOT_FINITE = 1  # nan or infinity in the system, or met on the way: the result is nan
    SINGULAR = 2  # a direction that the matrix maps to nothing, as far as the method can see
    ORTHOGONAL = 3  # the residual lost all that the method works with (bicgstab: rho = 0; cg: r . M r = 0)
    STAGNATED = 4  # another round would not make the residual smaller: rounding, or a restart that is too short


@final
@tree.dataclass
class Convergence:
    """How an iterative solver ended; under vmap, for each example.

    `residual_norm` is that of the residual itself, computed from the result, and `converged` is said of it. Not
    converged with a breakdown of 0: `maxiter` was reached.
    """

    iterations: Array
    residual_norm: Array
    converged: Array
    breakdown: Array
