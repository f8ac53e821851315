"""Newton's method and that of Levenberg and Marquardt, with dense or sparse Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from fxad import dtypes
from fxad.errors import ArgumentError, DTypeError, ShapeError, described
from fxad.lax.binary import max as maximum
from fxad.lax.control.looping import while_loop
from fxad.lax.creation import full
from fxad.lax.elementwise import is_finite
from fxad.lax.implicit.convergence import Breakdown, Convergence
from fxad.lax.implicit.normal_equations import normal_equations, solve_with_jacobian
from fxad.lax.implicit.roots import custom_minimize, custom_root
from fxad.lax.implicit.sparse import SparseLike
from fxad.lax.implicit.vectors import epsilon, norm, select_value
from fxad.operations.arguments import function, number, to_int
from fxad.tracing.array import Array, ArrayLike, asarray

ResidualFunction: TypeAlias = Callable[[Array], Array]
Jacobian: TypeAlias = Callable[[Array], Array | SparseLike]
JacobianTransform: TypeAlias = Callable[[ResidualFunction], Jacobian]
_NewtonStep: TypeAlias = tuple[Array, Array, Array, Array]  # steps, x, f(x), its norm
# steps, x, f(x), damping, the largest element of J^T f where the last step began: at x, or, if it was taken, at the x before
_Fit: TypeAlias = tuple[Array, Array, Array, Array, Array]
_HALVINGS: Final = 12


def newton(
    f: ResidualFunction,
    x0: ArrayLike,
    jac: Jacobian | None = None,
    *,
    jacobian: JacobianTransform | None = None,
    tol: float | None = None,
    maxiter: int = 50,
) -> tuple[Array, Convergence]:
    """Return the x with f(x) = 0 for a vector x, and a report (`Convergence`).

    `jac(x)` is the Jacobian of `f`: a matrix, or a sparse matrix, such as `sparse_jacobian(f)` returns; then each step is a
    `sparse_solve`. In its place, `jacobian` is the transformation that makes it: `jacfwd` or `sparse_jacobian`. A step is
    halved until the norm of f falls, at most 12 times. It ends when |f(x)| <= tol (by default the square root of the
    machine epsilon, times |f(x0)| or 1).

    Rule:   with `jacobian`, derivatives are those of the root, of any order and in both modes, as in `custom_root`: each is
            a solve with `jacobian` of the derivative of f at the root. With `jac`, forward mode goes through the steps, and
            there is no reverse mode.
    Raises: ShapeError for an x0 that is not a vector, or an f or a Jacobian of another shape; DTypeError for integers;
            ArgumentError for both of jac and jacobian, or none of them.
    """
    what = "newton"
    f, x = function(what, "f", f), _checked_start(what, x0)
    maxiter = to_int(what, "maxiter", maxiter)
    if jac is not None and jacobian is None:
        return _newton(f, x, function(what, "jac", jac), tol, maxiter)
    transformation = _transformation(what, jac, jacobian)
    _checked_residuals(what, f(x), x.shape[0])

    def solve(f: ResidualFunction, x: Array) -> tuple[Array, Convergence]:
        return _newton(f, x, transformation(f), tol, maxiter)

    return custom_root(f, x, solve, partial(_tangent_solve, what, transformation), has_aux=True)


def _transformation(what: str, jac: Jacobian | None, jacobian: JacobianTransform | None) -> JacobianTransform:
    if jacobian is None or jac is not None:
        which = "neither jac nor jacobian is" if jacobian is None else "jac and jacobian are both"
        raise ArgumentError(
            f"{what}: {which} given",
            remedy="jac=, a function of x, or jacobian=, a transformation of f: fx.jacfwd, fx.sparse_jacobian",
        )
    return function(what, "jacobian", jacobian)


def _tangent_solve(what: str, jacobian: JacobianTransform, g: ResidualFunction, y: Array) -> Array:
    """Return the x with g(x) = y for a linear function g: its Jacobian is the same everywhere."""
    return solve_with_jacobian(what, jacobian(g)(y), y)


def _newton(f: ResidualFunction, x: Array, jac: Jacobian, tol: float | None, maxiter: int) -> tuple[Array, Convergence]:
    what = "newton"
    value = _checked_residuals(what, f(x), x.shape[0])
    target = _target(what, tol, value)

    def advance(state: _NewtonStep) -> _NewtonStep:
        k, x, value, size = state
        step = solve_with_jacobian(what, jac(x), value)

        def next_trial(trial: _NewtonStep) -> _NewtonStep:
            n, _, _, _ = trial
            trial_x = x - step * _scale(n, x)
            trial_value = f(trial_x)
            return n + 1, trial_x, trial_value, norm(trial_value)

        def is_rejected(trial: _NewtonStep) -> Array:
            n, _, _, trial_size = trial
            rejected: Array = ~(trial_size < size) & (n <= _HALVINGS)
            return rejected

        _, next_x, next_value, next_size = while_loop(is_rejected, next_trial, next_trial((_count(0), x, value, size)))
        return k + 1, next_x, next_value, next_size

    def continues(state: _NewtonStep) -> Array:
        k, _, _, size = state
        unfinished: Array = (size > target) & (k < maxiter)
        return unfinished

    k, x, _, size = while_loop(continues, advance, (_count(0), x, value, norm(value)))
    return x, _report(k, size, size <= target)


def levenberg_marquardt(
    f: ResidualFunction,
    x0: ArrayLike,
    jac: Jacobian | None = None,
    *,
    jacobian: JacobianTransform | None = None,
    tol: float | None = None,
    maxiter: int = 100,
) -> tuple[Array, Convergence]:
    """Return a local minimum of |f(x)|^2 over a vector x, and a report (`Convergence`) whose residual is the gradient.

    `jac(x)` is the Jacobian of `f` (m, n): a matrix, or a sparse matrix; or `jacobian` is the transformation that makes it,
    as in `newton`. A step solves (J^T J + d D) s = -J^T f, where D is the diagonal of J^T J; d falls to a third after a step
    that lowers |f|, and doubles after one that does not, which is not taken. It ends when no element of J^T f is larger than
    tol (by default the square root of the machine epsilon, times the largest one at x0 or 1).

    Rule:   with `jacobian`, derivatives are those of the minimum, of any order and in both modes, as in `custom_minimize`:
            each is a solve with the second derivative of |f(x)|^2 / 2. With `jac`, forward mode goes through the steps, and
            there is no reverse mode.
    Raises: as `newton`.
    Source: J. J. More, The Levenberg-Marquardt algorithm: implementation and theory (1978), for the scaling
    """
    what = "levenberg_marquardt"
    f, x = function(what, "f", f), _checked_start(what, x0)
    maxiter = to_int(what, "maxiter", maxiter)
    if jac is not None and jacobian is None:
        return _levenberg_marquardt(f, x, function(what, "jac", jac), tol, maxiter)
    transformation = _transformation(what, jac, jacobian)
    _checked_residuals(what, f(x), None)

    def half_square(x: Array) -> Array:
        value = f(x)
        half: Array = value @ value / 2
        return half

    def solve(_: object, x: Array) -> tuple[Array, Convergence]:
        return _levenberg_marquardt(f, x, transformation(f), tol, maxiter)

    return custom_minimize(half_square, x, solve, partial(_tangent_solve, what, transformation), has_aux=True)


def _levenberg_marquardt(
    f: ResidualFunction, x: Array, jac: Jacobian, tol: float | None, maxiter: int
) -> tuple[Array, Convergence]:
    what = "levenberg_marquardt"
    value = _checked_residuals(what, f(x), None)

    def slope(x: Array, value: Array) -> Array:
        size: Array = abs(normal_equations(what, jac(x), value).gradient).max()
        return size

    start = slope(x, value)
    target = _target(what, tol, start[None])

    def advance(state: _Fit) -> _Fit:
        k, x, value, damping, _ = state
        system = normal_equations(what, jac(x), value)
        size = abs(system.gradient).max()
        trial_x = x - system.solve(what, damping)
        trial_value = f(trial_x)
        # The loop learns only here, from `size`, that x has converged. Then it stays at x, and ends.
        is_better = (norm(trial_value) < norm(value)) & (size > target)
        damping = select_value(is_better, damping / 3, damping * 2)
        return k + 1, select_value(is_better, trial_x, x), select_value(is_better, trial_value, value), damping, size

    def continues(state: _Fit) -> Array:
        k, _, _, damping, size = state
        unfinished: Array = (size > target) & (k < maxiter) & is_finite(damping)
        return unfinished

    k, x, value, _, _ = while_loop(continues, advance, (_count(0), x, value, full((), 1e-3, x.dtype), start))
    size = slope(x, value)  # after `maxiter` steps, that of the loop may be the one of the x before
    return x, _report(k, size, size <= target)


def _scale(n: Array, like: Array) -> Array:
    """Return 2^-n in the dtype of an array."""
    scale: Array = full((), 0.5, like.dtype) ** n.astype(like.dtype)
    return scale


def _count(k: int) -> Array:
    return full((), k, dtypes.int32)


def _checked_start(what: str, x0: ArrayLike) -> Array:
    x = asarray(x0, what=f"{what}: x0")
    if x.ndim != 1:
        raise ShapeError(f"{what}: x0 is {x.aval}, not a vector", remedy="make a vector of a tree with fxad.tree.ravel")
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{what}: x0 is {x.aval}", remedy="convert it to float32 or float64 with astype")
    return x


def _checked_residuals(what: str, value: object, size: int | None) -> Array:
    if not isinstance(value, Array):
        raise ArgumentError(
            f"{what}: f returned {described(value)}, not an array", remedy="return a vector of residuals"
        )
    if value.ndim != 1 or (size is not None and value.shape[0] != size):
        expected = "a vector" if size is None else f"a vector of {size} elements, as x"
        raise ShapeError(f"{what}: f returned {value.aval}, not {expected}", remedy="return a vector of residuals")
    return value


def _target(what: str, tol: float | None, value: Array) -> Array:
    relative = epsilon(value.dtype) ** 0.5
    if tol is not None:
        return full((), number(what, "tol", tol), value.dtype)
    target: Array = relative * maximum(norm(value), full((), 1, value.dtype))
    return target


def _report(k: Array, size: Array, converged: Array) -> Convergence:
    none, not_finite = int(Breakdown.NONE), int(Breakdown.NOT_FINITE)
    return Convergence(k, size, converged, select_value(is_finite(size), _count(none), not_finite))
