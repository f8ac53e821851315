"""L-BFGS: the gradient times an estimate of the inverse Hessian, from the last steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import fxad.numpy as fnp
from fxad import lax
from fxad.api.directional import jvp
from fxad.api.trees import global_norm
from fxad.core.trees import classes as tree_classes, tree
from fxad.errors import ArgumentError
from fxad.operations.arguments import to_count
from fxad.optim.transformations import Rate, check_rate, check_state, descent, needs_params, no_steps, rate_at, zeros
from fxad.tracing.array import Array, ArrayLike

P = TypeVar("P")


@tree_classes.dataclass
class LbfgsState(Generic[P]):
    """The state of L-BFGS between steps.

    `count`: steps made. `params`, `gradient`: those of the last step. `moves`, `changes`: the last `memory_size`
    differences of parameters and of gradients, stacked along axis 0. `weights`: 1 / <change, move> of each.

    The stacks are ring buffers. The difference between the steps k - 1 and k, which step k stores, is in the slot
    (k - 1) % memory_size.
    """

    count: Array
    params: P
    gradient: P
    moves: P
    changes: P
    weights: Array


@dataclass(frozen=True)
class Lbfgs:
    """L-BFGS. Settings: see `lbfgs`."""

    learning_rate: Rate | None
    memory_size: int
    line_search_steps: int

    def init(self, params: P) -> LbfgsState[P]:
        """Return the state before the first step."""

        def stacked(p: ArrayLike) -> Array:
            x = fnp.asarray(p)
            return fnp.zeros((self.memory_size, *x.shape), x.dtype)

        memory = tree.map(stacked, params)
        weights = fnp.zeros(self.memory_size, global_norm(params).dtype)
        return LbfgsState(no_steps(), zeros(params), zeros(params), memory, memory, weights)

    def update(
        self,
        updates: P,
        state: LbfgsState[P],
        params: P | None = None,
        *,
        value_fn: Callable[[P], ArrayLike] | None = None,
    ) -> tuple[P, LbfgsState[P]]:
        """Return the update of a step, and the next state.

        `value_fn` is the function that is minimised, of the parameters alone. The line search needs it.

        Raises: ArgumentError without `params`, and without `value_fn` unless there is a learning rate.
        """
        check_state("lbfgs", state, LbfgsState)
        params = needs_params("lbfgs", params)
        if self.learning_rate is None and value_fn is None:
            raise ArgumentError(
                "lbfgs: the line search needs the function that is minimised",
                remedy="write `update(gradients, state, params, value_fn=loss)`, or give a learning_rate",
            )
        state = self.remember(state, params, updates)
        direction = self.direction(state)
        if self.learning_rate is not None:
            step = descent(direction, rate_at(self.learning_rate, state.count))
        else:
            assert value_fn is not None
            down = tree.map(fnp.negative, direction)
            length = line_search(value_fn, params, down, max_steps=self.line_search_steps)
            step = tree.map(lambda d: length.astype(d.dtype) * d, down)
        return step, replace(state, count=state.count + 1)

    def remember(self, state: LbfgsState[P], params: P, gradient: P) -> LbfgsState[P]:
        """Return the state with the differences since the last step, if there was one, in the place of the oldest.

        `state.count` is the number of the step that is being made, from 0. It is so in the result too: `update` counts
        the step at its end.
        """
        place = (state.count - 1) % self.memory_size
        some = state.count > 0
        move = tree.map(lambda a, b: fnp.where(some, a - b, 0), params, state.params)
        change = tree.map(lambda a, b: fnp.where(some, a - b, 0), gradient, state.gradient)
        curvature = _inner(change, move)
        weight = fnp.where(curvature == 0, 0, 1 / fnp.where(curvature == 0, 1, curvature))

        def stored(memory: Array, x: Array) -> Array:
            return memory.at[place].set(x.astype(memory.dtype))

        return LbfgsState(
            state.count,
            tree.map(fnp.asarray, params),
            tree.map(fnp.asarray, gradient),
            tree.map(stored, state.moves, move),
            tree.map(stored, state.changes, change),
            stored(state.weights, weight),
        )

    def direction(self, state: LbfgsState[P]) -> P:
        """Return the two-loop recursion. The first Hessian is a multiple of the identity that fits the last step.

        `state` is the result of `remember`: its `count` is the number of the step that is being made.
        """
        newest = (state.count - 1) % self.memory_size
        order = (state.count + fnp.arange(self.memory_size)) % self.memory_size  # from the oldest to the newest

        def at(memory: P, k: Array) -> P:
            return tree.map(lambda m: m[k], memory)

        def later_to_earlier(q: P, k: Array) -> tuple[P, Array]:
            alpha = state.weights[k] * _inner(at(state.moves, k), q)
            return _add_multiple(q, -alpha, at(state.changes, k)), alpha

        def earlier_to_later(r: P, k_alpha: tuple[Array, Array]) -> tuple[P, None]:
            k, alpha = k_alpha
            beta = state.weights[k] * _inner(at(state.changes, k), r)
            return _add_multiple(r, alpha - beta, at(state.moves, k)), None

        q, alphas = lax.scan(later_to_earlier, state.gradient, order, reverse=True)
        last = at(state.changes, newest)
        length = _inner(last, last)
        fitted = fnp.where(length > 0, _inner(last, at(state.moves, newest)) / fnp.where(length > 0, length, 1), 1)
        norm = global_norm(state.gradient)
        scale = fnp.where(state.count > 0, fitted, 1 / fnp.maximum(norm, 1))
        r = tree.map(lambda x: scale.astype(x.dtype) * x, q)
        direction: P = lax.scan(earlier_to_later, r, (order, alphas))[0]
        return direction


def lbfgs(learning_rate: Rate | None = None, memory_size: int = 10, *, line_search_steps: int = 20) -> Lbfgs:
    """Return L-BFGS with a line search, or with a fixed learning rate.

    The parameters must be real. With a line search, `update` needs `value_fn=`.

    Source: Nocedal and Wright, Numerical Optimization (1999), algorithm 9.1 and equation 9.6; `line_search`.
    """
    if learning_rate is not None:
        check_rate("lbfgs", learning_rate)
    memory_size = to_count("lbfgs", "memory_size", memory_size, 1)
    return Lbfgs(learning_rate, memory_size, to_count("lbfgs", "line_search_steps", line_search_steps, 1))


def line_search(
    value_fn: Callable[[P], ArrayLike],
    params: P,
    direction: P,
    *,
    max_steps: int = 20,
    decrease: float = 1e-4,
    curvature: float = 0.9,
) -> Array:
    """Return a step length t for which `params + t * direction` satisfies the weak Wolfe conditions, a scalar.

    The value falls by `decrease * t * slope` at least. The slope there is at least `curvature` times the slope at 0.
    When `max_steps` trials find none, the longest length tried at which the value fell enough, or 0.

    Source: Lewis and Overton, Nonsmooth optimization via quasi-Newton methods (2013), algorithm 2.6.
    """
    return counted_line_search(value_fn, params, direction, max_steps, decrease, curvature)[0]


def counted_line_search(
    value_fn: Callable[[P], ArrayLike],
    params: P,
    direction: P,
    max_steps: int,
    decrease: float = 1e-4,
    curvature: float = 0.9,
) -> tuple[Array, Array]:
    """Return the step length of `line_search`, and how often it evaluated the function."""

    def along(t: Array) -> ArrayLike:
        return value_fn(_add_multiple(params, t, direction))

    def value_and_slope(t: Array) -> tuple[Array, Array]:
        value, slope = jvp(lambda s: fnp.asarray(along(s)), (t,), (fnp.ones_like(t),))
        return value, slope

    zero = fnp.zeros((), global_norm(params).dtype)
    value, slope = value_and_slope(zero)

    def unfinished(carry: tuple[Array, Array, Array, Array, Array]) -> Array:
        return ~carry[3]

    def trial(carry: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        low, high, t, _, count = carry
        value_at_t, slope_at_t = value_and_slope(t)
        enough = value_at_t <= value + decrease * t * slope  # False for nan: the step is shortened
        steep = slope_at_t < curvature * slope
        low = fnp.where(enough, t, low)
        high = fnp.where(enough, high, t)
        done = enough & ~steep
        longer = fnp.where(fnp.isinf(high), 2 * low, (low + high) / 2)
        return low, high, fnp.where(done, t, longer), done, count + 1

    start = (zero, fnp.full_like(zero, fnp.inf), fnp.ones_like(zero), ~(slope < 0), fnp.ones((), "int32"))
    low, _, t, done, count = lax.while_loop(unfinished, trial, start, max_steps=max_steps)
    return fnp.where(slope < 0, fnp.where(done, t, low), 0), count


def _add_multiple(x: P, factor: Array, y: P) -> P:
    """Return `x + factor * y` in the dtypes of x."""

    def leaf(a: ArrayLike, b: ArrayLike) -> Array:
        array = fnp.asarray(a)
        return array + (factor.astype(array.dtype) * b).astype(array.dtype)

    return tree.map(leaf, x, y)


def _inner(x: object, y: object) -> Array:
    """Return the inner product of two trees of real arrays, a scalar."""
    total: Array | None = None
    for a, b in zip(tree.leaves(x), tree.leaves(y), strict=True):
        product = fnp.vdot(a, b)
        total = product if total is None else total + product
    return fnp.zeros(()) if total is None else total
