"""Minimization, as in `scipy.optimize`. For training, `fxad.optim` has the steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from fxad import dtypes, lax, numpy as fnp
from fxad.api.gradients import value_and_grad
from fxad.core.trees import classes as tree_classes
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.numpy.apply import as_inexact_array
from fxad.operations.arguments import function, is_word, number, plain_ints
from fxad.optim.lbfgs import Lbfgs, LbfgsState, counted_line_search, lbfgs
from fxad.tracing.array import Array, ArrayLike

_LBFGS: Final = ("L-BFGS-B", "L-BFGS", "l-bfgs-experimental-do-not-rely-on-this")
_OPTIONS: Final = MappingProxyType(
    {
        "BFGS": ("gtol", "norm", "maxiter", "line_search_maxiter"),
        "L-BFGS-B": ("gtol", "norm", "ftol", "maxiter", "maxcor", "maxls"),
    }
)


@tree_classes.dataclass
class OptimizeResults:
    """The result of `minimize`: a pytree of arrays.

    `x`: the place. `success`: whether the gradient is small there. `status`: 0 for success, 1 for too many iterations,
    3 if a line search found no lower value. `fun`, `jac`: value and gradient at x. `hess_inv`: the estimate of the
    inverse Hessian, None for L-BFGS. `nit`: iterations. `nfev`, `njev`: evaluations of the value and of the gradient.
    """

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


def minimize(
    fun: Callable[..., ArrayLike],
    x0: ArrayLike,
    args: tuple[object, ...] = (),
    *,
    method: str = "BFGS",
    tol: float | None = None,
    options: Mapping[str, object] | None = None,
) -> OptimizeResults:
    """Return a local minimum of `fun(x, *args)` over a vector x, found from x0 by BFGS or L-BFGS.

    Type:   `method` is "BFGS", or "L-BFGS-B" without bounds, also under JAX's name. `tol` is the greatest element of
            the gradient to accept. Options of BFGS: gtol (1e-5), norm (inf), maxiter (200 times the size),
            line_search_maxiter (20); of L-BFGS: gtol (1e-5), norm (inf), ftol (2.2e-9), maxiter (15000), maxcor (10),
            maxls (20).
    Rule:   each step satisfies the weak Wolfe conditions. The result has no derivative in reverse mode;
            `lax.custom_root` of the gradient gives one.
    Raises: ParameterError for another method or option; ShapeError for an x0 that is not a vector.
    Source: Nocedal and Wright, Numerical Optimization (2006), algorithms 6.1 and 7.5
    """
    fun = function("minimize", "fun", fun)
    if not is_word(method, ("BFGS", *_LBFGS)):
        raise ParameterError(f"minimize: method {shown(method)}", remedy='use "BFGS" or "L-BFGS-B"')
    name = "BFGS" if method == "BFGS" else "L-BFGS-B"
    if not isinstance(args, tuple):
        raise ArgumentError(f"minimize: args is a {type(args).__qualname__}, not a tuple", remedy="args=(a,)")
    x = as_inexact_array("minimize", x0, 1)
    if x.ndim != 1 or x.dtype in dtypes.COMPLEX:
        raise ShapeError(
            f"minimize: x0 is {x.aval}, not a vector of real numbers",
            remedy="make a vector of a tree with fxad.tree.ravel",
        )
    defaults = _OPTIONS[name]
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentError(f"minimize: options is {described(options)}, not a mapping", remedy="use a dict")
    chosen = {k: v for k, v in (options or {}).items() if v is not None}  # None is the default
    if unknown := [o for o in chosen if o not in defaults]:
        raise ParameterError(
            f"minimize: {name} has no option {shown(unknown[0], 40)}", remedy=f"its options are {', '.join(defaults)}"
        )

    def setting(option: str, default: float) -> float:
        return number("minimize", option, chosen.get(option, default))

    def count(option: str, default: int) -> int:
        value = plain_ints(chosen.get(option, default))
        if not isinstance(value, int):
            raise ParameterError(
                f"minimize: {option} is {shown(value, 40)}, not an int", remedy="give a number of steps"
            )
        return value

    def value(x: Array) -> Array:
        return fnp.asarray(fun(x, *args))

    gtol, norm = setting("gtol", 1e-5 if tol is None else tol), setting("norm", float("inf"))
    if name == "BFGS":
        most = count("maxiter", 200 * x.shape[0])
        return _searched(value, x, _Dense(), gtol, norm, None, most, count("line_search_maxiter", 20))
    ftol = setting("ftol", 2.220446049250313e-09 if tol is None else tol)
    estimate = _Limited(lbfgs(memory_size=count("maxcor", 10)))
    return _searched(value, x, estimate, gtol, norm, ftol, count("maxiter", 15000), count("maxls", 20))


M = TypeVar("M")


class _InverseHessian(Protocol[M]):
    """An estimate of the inverse Hessian."""

    def init(self, x: Array, gradient: Array) -> M:
        """Return the estimate at the start."""

    def times(self, memory: M, gradient: Array) -> Array:
        """Return the estimate times the gradient."""

    def after(self, memory: M, step: Array, x: Array, gradient: Array, change: Array, first: Array) -> M:
        """Return the estimate after a step to x, perhaps the first one, along which the gradient changed."""


class _Dense:
    """BFGS: a matrix."""

    def init(self, x: Array, gradient: Array) -> Array:
        return fnp.eye(x.shape[0], dtype=x.dtype)

    def times(self, memory: Array, gradient: Array) -> Array:
        return memory @ gradient

    def after(self, memory: Array, step: Array, x: Array, gradient: Array, change: Array, first: Array) -> Array:
        curvature = fnp.vdot(change, step)
        bent = curvature > 0
        rho = fnp.where(bent, 1 / fnp.where(bent, curvature, 1), 0)
        one = fnp.eye(x.shape[0], dtype=x.dtype)
        # the scale of the function: Nocedal and Wright, (6.20)
        scale = curvature / fnp.where(bent, fnp.vdot(change, change), 1)
        memory = fnp.where(first & bent, scale * one, memory)
        left = one - rho * fnp.outer(step, change)
        return fnp.where(bent, left @ memory @ left.T + rho * fnp.outer(step, step), memory)


@dataclass(frozen=True)
class _Limited:
    """L-BFGS: the last steps. `remember` and `direction` take the number of a step, from 0. Between two calls,
    the `count` of the memory is the number of steps made."""

    optimizer: Lbfgs

    def init(self, x: Array, gradient: Array) -> LbfgsState[Array]:
        state = self.optimizer.remember(self.optimizer.init(x), x, gradient)
        return replace(state, count=state.count + 1)

    def times(self, memory: LbfgsState[Array], gradient: Array) -> Array:
        # the number of the step that stored the newest difference: `count` has counted that step already
        return self.optimizer.direction(replace(memory, count=memory.count - 1))

    def after(
        self, memory: LbfgsState[Array], step: Array, x: Array, gradient: Array, change: Array, first: Array
    ) -> LbfgsState[Array]:
        state = self.optimizer.remember(memory, x, gradient)
        return replace(state, count=state.count + 1)


class _Iterate(NamedTuple, Generic[M]):
    x: Array
    value: Array
    gradient: Array
    memory: M
    status: Array
    evaluations: Array
    iterations: Array


def _searched(
    fun: Callable[[Array], Array],
    x0: Array,
    estimate: _InverseHessian[M],
    gtol: float,
    order: float,
    ftol: float | None,
    most: int,
    trials: int,
) -> OptimizeResults:
    """Step along `-estimate @ gradient` until the gradient is small."""

    def small(gradient: Array) -> Array:
        return fnp.linalg.norm(gradient, order) <= gtol

    def unfinished(s: _Iterate[M]) -> Array:
        return s.status < 0

    def step(s: _Iterate[M]) -> _Iterate[M]:
        direction = -estimate.times(s.memory, s.gradient)
        # nothing is known of the scale of the function yet: a step of 1 at most, as in SciPy
        direction = direction / fnp.where(s.iterations == 0, fnp.maximum(1, fnp.max(fnp.abs(direction))), 1)
        length, evaluations = counted_line_search(fun, s.x, direction, trials)
        move = length.astype(s.x.dtype) * direction
        x = s.x + move
        value, gradient = value_and_grad(fun)(x)
        done = small(gradient)
        if ftol is not None:
            scale = fnp.maximum(fnp.maximum(fnp.abs(s.value), fnp.abs(value)), 1)
            done = done | ((length > 0) & (s.value - value <= ftol * scale))
        iterations = s.iterations + 1
        status = fnp.where(done, 0, fnp.where(length > 0, fnp.where(iterations < most, -1, 1), 3))
        memory = estimate.after(s.memory, move, x, gradient, gradient - s.gradient, s.iterations == 0)
        return _Iterate(
            x, value, gradient, memory, status.astype(dtypes.int32), s.evaluations + evaluations + 1, iterations
        )

    value, gradient = value_and_grad(fun)(x0)
    status = fnp.where(small(gradient), 0, -1 if most > 0 else 1).astype(dtypes.int32)
    one = fnp.ones((), dtypes.int32)
    start = _Iterate(x0, value, gradient, estimate.init(x0, gradient), status, one, 0 * one)
    last = lax.while_loop(unfinished, step, start)
    inverse = last.memory if isinstance(last.memory, Array) else None
    return OptimizeResults(
        last.x, last.status == 0, last.status, last.value, last.gradient, inverse, last.evaluations,
        last.iterations + 1, last.iterations,
    )  # fmt: skip


__all__ = ["OptimizeResults", "minimize"]
