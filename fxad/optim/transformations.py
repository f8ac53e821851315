"""Optimisers: pairs of pure functions on trees, and the functions that combine them.

    optimizer = optim.adam(1e-3)
    state = optimizer.init(params)
    updates, state = optimizer.update(gradients, state, params)
    params = optim.apply_updates(params, updates)

Every optimiser is a frozen dataclass of its settings. Its state is a dataclass and a pytree, so it can be traced,
donated, saved and restored like the parameters. The names and the order of the arguments are those of optax.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import fxad.numpy as fnp
from fxad.core.trees import tree
from fxad.errors import ArgumentError, described, shown
from fxad.tracing.array import Array, ArrayLike

P = TypeVar("P")

HyperParameter: TypeAlias = "float | Array"
Schedule: TypeAlias = Callable[[Array], HyperParameter]  # from the number of steps made (int32, 0 at first) to a rate
Rate: TypeAlias = "HyperParameter | Schedule"


class Transformation(Protocol):
    """From gradients to updates. Each implementation says what its state is; to `chain` it may be anything."""

    def init(self, params: P, /) -> Any:
        """Return the state before the first step."""
        ...

    def update(self, updates: P, state: Any, params: P | None = None, /) -> tuple[P, Any]:
        """Return the transformed updates and the next state. `params` are the parameters before the step."""
        ...


@dataclass(frozen=True)
class Chain:
    """Transformations, one after the other. The state is the tuple of their states."""

    parts: tuple[Transformation, ...]

    def init(self, params: P) -> tuple[object, ...]:
        """Return the states before the first step."""
        return tuple([part.init(params) for part in self.parts])

    def update(self, updates: P, state: tuple[object, ...], params: P | None = None) -> tuple[P, tuple[object, ...]]:
        """Return the updates after the last part, and the next states. Raises: ArgumentError for a state of another
        chain."""
        if not isinstance(state, tuple) or len(state) != len(self.parts):
            raise ArgumentError(
                f"chain: the state is {described(state)}, not a tuple of {len(self.parts)} states",
                remedy="give the state that `init` or the last `update` of this chain returned",
            )
        states = []
        for part, s in zip(self.parts, state, strict=True):
            updates, following = part.update(updates, s, params)
            states.append(following)
        return updates, tuple(states)


def chain(*parts: Transformation) -> Chain:
    """Return the transformation that applies `parts` from left to right: `chain(clip_by_global_norm(1.0),
    adam(1e-3))`."""
    for k, part in enumerate(parts):
        if not hasattr(part, "init") or not hasattr(part, "update"):
            raise ArgumentError(
                f"chain: argument {k} is {described(part)}, not a transformation",
                remedy="give optimisers and clippings of fxad.optim, or objects with `init` and `update`",
            )
    return Chain(parts)


def apply_updates(params: P, updates: P) -> P:
    """Return `params + updates`, leaf by leaf; each leaf keeps its dtype. Raises: TreeError for trees of two
    structures."""
    return tree.map(_apply_update, params, updates)


def _apply_update(p: ArrayLike, u: ArrayLike) -> Array:
    array = fnp.asarray(p)
    return (array + fnp.asarray(u)).astype(array.dtype)


def rate_at(rate: Rate, count: Array) -> HyperParameter:
    """Return the learning rate of the step after `count` others."""
    return rate(count) if callable(rate) else rate


def descent(direction: P, rate: HyperParameter) -> P:
    """Return the update `-rate * direction`, in the dtypes of `direction`: arrays of fxad, also for those of NumPy."""

    def step(d: ArrayLike) -> Array:
        x = fnp.asarray(d)
        return -as_factor(rate, x) * x

    return tree.map(step, direction)


def as_factor(number: HyperParameter, x: Array) -> HyperParameter:
    """Return the number in a form whose product with x has the dtype of x."""
    return number if isinstance(number, (int, float)) else fnp.asarray(number).astype(x.dtype)


def zeros(params: P) -> P:
    """Return a tree of zeros like `params`."""
    return tree.map(lambda p: fnp.zeros_like(fnp.asarray(p)), params)


def no_steps() -> Array:
    """Return the number of steps before the first one."""
    return fnp.zeros((), fnp.int32)


def check_rate(operation: str, rate: object) -> None:
    """Raise ArgumentError for a rate that is no number, no scalar array and no function, or is nan."""
    if callable(rate):
        return
    number = isinstance(rate, (int, float)) and not math.isnan(rate)
    if not number and getattr(rate, "shape", None) != ():
        raise ArgumentError(
            f"{operation}: learning_rate is {shown(rate)}",
            remedy="give a number, an array of shape (), or a function from the number of steps to one of these",
        )


def check_decay(operation: str, **decays: object) -> None:
    """Raise ArgumentError for a decay that is a Python number outside of [0, 1). Arrays are not checked."""
    for name, decay in decays.items():
        if isinstance(decay, (int, float)) and not 0 <= decay < 1:
            raise ArgumentError(f"{operation}: {name} is {decay}", remedy="give a number x with 0 <= x < 1")


def check_not_negative(operation: str, **numbers: object) -> None:
    """Raise ArgumentError for a Python number that is negative or nan. Arrays are not checked."""
    for name, number in numbers.items():
        if isinstance(number, (int, float)) and not number >= 0:
            raise ArgumentError(f"{operation}: {name} is {number}", remedy="give a number x with 0 <= x")


def check_state(operation: str, state: object, kind: type) -> None:
    """Raise ArgumentError for what is not the state of an optimiser: arguments of `update` in another order."""
    if not isinstance(state, kind):
        raise ArgumentError(
            f"{operation}: update takes {described(state)} for the state, not a {kind.__name__}",
            remedy="write `update(gradients, state, params)`: `init` returns the first state, `update` the next ones",
        )


def needs_params(operation: str, params: P | None) -> P:
    """Return `params`. Raises: ArgumentError when there are none."""
    if params is None:
        raise ArgumentError(
            f"{operation}: update needs the parameters", remedy="write `update(gradients, state, params)`"
        )
    return params
