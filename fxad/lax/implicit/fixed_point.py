"""`fixed_point_iteration`: applies a function repeatedly until it converges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, overload

from fxad import dtypes
from fxad.core.trees import tree
from fxad.lax.binary import max as maximum
from fxad.lax.control import while_loop
from fxad.lax.control.host_values import HostLeaf, HostTree
from fxad.lax.creation import full
from fxad.lax.elementwise import is_finite
from fxad.lax.implicit.convergence import Breakdown, Convergence
from fxad.lax.implicit.krylov import attainable_tolerance, tolerance
from fxad.lax.implicit.maps import TracedMap, TreeType, trace_function, type_and_leaves
from fxad.lax.implicit.vectors import norm, select_value, vector_space_of
from fxad.operations.arguments import to_count
from fxad.tracing.array import Array, ArrayLike

T = TypeVar("T")
# The number of steps, the last two points, the residual and its target.
_State: TypeAlias = tuple[Array, object, object, Array, Array]


# A number or an array of NumPy is an Array inside of `f`, also in a container.
# fmt: off
@overload
def fixed_point_iteration(f: Callable[[Array], object], x0: HostLeaf, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, maxiter: int = 10_000) -> tuple[Array, Convergence]: ...
@overload
def fixed_point_iteration(f: Callable[[T], T], x0: T, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, maxiter: int = 10_000) -> tuple[T, Convergence]: ...
@overload
def fixed_point_iteration(f: Callable[[T], T], x0: HostTree, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, maxiter: int = 10_000) -> tuple[T, Convergence]: ...
# fmt: on
def fixed_point_iteration(
    f: Callable[[Any], object],
    x0: object,
    *,
    tol: ArrayLike = 1e-5,
    atol: ArrayLike = 0.0,
    maxiter: int = 10_000,
) -> tuple[Any, Convergence]:
    """Apply `f` until x converges: |f(x) - x| <= max(tol |f(x)|, atol), at most `maxiter` times.

    Return (x, `Convergence`), whose residual is f(x) - x. Integers in x are updated too, but do not count in the norm.
    This is an ordinary loop: for derivatives of the fixed point see `custom_fixed_point`.

    Raises: TreeError, ShapeError, DTypeError when `f` returns another type.
    """
    what = "fixed_point_iteration"
    x_type, leaves = type_and_leaves(what, "x0", x0)
    limit = to_count(what, "maxiter", maxiter, 0)
    body = trace_function(what, "f", f, x_type, "x0")
    space = vector_space_of(what, x_type.direction)
    real = dtypes.real_part(space.dtype) if space.dtype.kind == "c" else space.dtype
    relative, absolute = tolerance(what, "tol", tol, real), tolerance(what, "atol", atol, real)
    step = TracedMap.of("", f, body, x_type)

    def inexact_vector(x: object) -> Array:
        return space.vector([leaf for leaf, m in zip(tree.leaves(x), x_type.inexact, strict=True) if m])

    def residual_and_target(x: object, fx: object) -> tuple[Array, Array]:
        after = inexact_vector(fx)
        return norm(after - inexact_vector(x)), maximum(relative * norm(after), absolute)

    def going(state: _State) -> Array:
        k, _, _, residual, target = state
        more: Array = (residual > target) & (k < limit)
        return more

    def advance(state: _State) -> _State:
        k, _, x, _, _ = state
        fx = step(x)
        return (k + 1, x, fx, *residual_and_target(x, fx))

    first = tree.unflatten(x_type.structure, leaves)
    fx = step(first)
    start = (full((), 0, dtypes.int32), first, fx, *residual_and_target(first, fx))
    k, x, _, residual, target = while_loop(going, advance, start)
    finite = is_finite(residual)
    breakdown = select_value(finite, full((), int(Breakdown.NONE), dtypes.int32), int(Breakdown.NOT_FINITE))
    return _nan_unless(x_type, x, finite), Convergence(k, residual, residual <= target, breakdown)


def solve_by_iteration(f: Callable[[Any], object], x0: object, has_aux: bool) -> Any:
    """Return the x with f(x) = x by iteration, at the precision of the dtype. If it does not converge, x is nan; with
    `has_aux` x is the last iterate, and the result is (x, `Convergence`)."""
    x_type, _ = type_and_leaves("fixed_point_iteration", "x0", x0)
    x, report = fixed_point_iteration(f, x0, tol=attainable_tolerance(x_type.avals))
    return (x, report) if has_aux else _nan_unless(x_type, x, report.converged)


def _nan_unless(x_type: TreeType, x: object, good: Array) -> object:
    leaves = [
        select_value(good, leaf, float("nan")) if has_tangent else leaf
        for leaf, has_tangent in zip(tree.leaves(x), x_type.inexact, strict=True)
    ]
    return tree.unflatten(x_type.structure, leaves)
