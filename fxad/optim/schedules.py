"""Learning rates as functions of the number of steps made.

A schedule takes a count (an int, or an int32 array of shape ()) and returns a float32 array of shape (). The names and
arguments are those of optax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import fxad.numpy as fnp
from fxad.errors import ArgumentError, described, shown
from fxad.operations.arguments import flag, number as to_number, to_int, to_ints, to_tuple
from fxad.tracing.array import Array, ArrayLike


def constant_schedule(value: ArrayLike) -> Callable[[ArrayLike], Array]:
    """Return the same value at every step."""
    return lambda _count: fnp.asarray(value, dtype=fnp.float32)


def polynomial_schedule(
    init_value: float, end_value: float, power: float, transition_steps: int, transition_begin: int = 0
) -> Callable[[ArrayLike], Array]:
    """Return the schedule from `init_value` to `end_value` in `transition_steps` steps, as `(1 - t)**power`; constant
    before and after."""
    _check_steps("polynomial_schedule", transition_steps=transition_steps)

    def schedule(count: ArrayLike) -> Array:
        passed = fnp.clip(_steps(count) - transition_begin, 0, transition_steps)
        return (init_value - end_value) * (1 - passed / transition_steps) ** power + end_value

    return schedule


def linear_schedule(
    init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0
) -> Callable[[ArrayLike], Array]:
    """Return the schedule from `init_value` to `end_value` along a line."""
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Callable[[ArrayLike], Array]:
    """Return `init_value * decay_rate ** (count / transition_steps)`, in whole powers with `staircase`.

    `end_value`: where the decay stops, a lower bound for rates below 1 and an upper bound above.
    """
    _check_steps("exponential_decay", transition_steps=transition_steps)
    staircase = flag("exponential_decay", "staircase", staircase)
    if not to_number("exponential_decay", "decay_rate", decay_rate) > 0:
        raise ArgumentError(f"exponential_decay: decay_rate is {decay_rate}", remedy="give a positive number")

    def schedule(count: ArrayLike) -> Array:
        passed = _steps(count) - transition_begin
        exponent = passed / transition_steps
        if staircase:
            exponent = fnp.floor(exponent)
        rate = fnp.where(passed <= 0, init_value, init_value * decay_rate**exponent)
        if end_value is None:
            return rate
        return fnp.maximum(rate, end_value) if decay_rate < 1 else fnp.minimum(rate, end_value)

    return schedule


def cosine_decay_schedule(
    init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0
) -> Callable[[ArrayLike], Array]:
    """Return the schedule from `init_value` to `alpha * init_value` along half a cosine, raised to `exponent`.

    Source: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts (2017), equation 5.
    """
    _check_steps("cosine_decay_schedule", decay_steps=decay_steps)

    def schedule(count: ArrayLike) -> Array:
        passed = fnp.minimum(_steps(count), decay_steps)
        cosine = 0.5 * (1 + fnp.cos(math.pi * passed / decay_steps))
        return init_value * ((1 - alpha) * cosine**exponent + alpha)

    return schedule


def piecewise_constant_schedule(
    init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Callable[[ArrayLike], Array]:
    """Return `init_value`, multiplied by a scale from each boundary on: `{100: 0.1}` is a tenth after step 100."""
    if boundaries_and_scales is not None and not isinstance(boundaries_and_scales, Mapping):
        raise ArgumentError(
            "piecewise_constant_schedule: boundaries_and_scales is"
            f" {described(boundaries_and_scales)}: {shown(boundaries_and_scales)}",
            remedy="give a dict: {100: 0.1}",
        )
    scales = dict(sorted((boundaries_and_scales or {}).items()))

    def schedule(count: ArrayLike) -> Array:
        value = fnp.asarray(init_value, dtype=fnp.float32)
        for boundary, scale in scales.items():
            value = fnp.where(_steps(count) < boundary, value, value * scale)
        return value

    return schedule


def join_schedules(
    schedules: Sequence[Callable[[ArrayLike], ArrayLike]], boundaries: Sequence[int]
) -> Callable[[ArrayLike], Array]:
    """Return one schedule after the other. The one after a boundary counts from that boundary.

    Raises: ArgumentError unless there is one boundary fewer than there are schedules, in increasing order.
    """
    schedules = to_tuple("join_schedules", "schedules", schedules)
    boundaries = to_ints("join_schedules", "boundaries", boundaries)
    if len(boundaries) != len(schedules) - 1 or list(boundaries) != sorted(boundaries):
        raise ArgumentError(
            f"join_schedules: {len(schedules)} schedules and boundaries {list(boundaries)}",
            remedy="give one boundary between two schedules each, in increasing order",
        )

    def joined(count: ArrayLike) -> Array:
        value = fnp.asarray(schedules[0](count), dtype=fnp.float32)
        for boundary, schedule in zip(boundaries, schedules[1:], strict=True):
            later = schedule(fnp.asarray(count) - boundary)
            value = fnp.where(_steps(count) < boundary, value, later)
        return value

    return joined


def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Callable[[ArrayLike], Array]:
    """Return a linear rise from `init_value` to `peak_value`, which then stays."""
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Callable[[ArrayLike], Array]:
    """Return a linear rise to `peak_value` in `warmup_steps`, then a cosine to `end_value` at step `decay_steps`."""
    what = "warmup_cosine_decay_schedule"
    warmup_steps, decay_steps = to_int(what, "warmup_steps", warmup_steps), to_int(what, "decay_steps", decay_steps)
    if not 0 < warmup_steps < decay_steps:
        raise ArgumentError(
            f"warmup_cosine_decay_schedule: warmup_steps is {warmup_steps}, decay_steps is {decay_steps}",
            remedy="give 0 < warmup_steps < decay_steps: the decay ends at step decay_steps, warmup included",
        )
    peak_value = to_number(what, "peak_value", peak_value)
    alpha = 0.0 if peak_value == 0 else to_number(what, "end_value", end_value) / peak_value
    return join_schedules(
        [
            linear_schedule(init_value, peak_value, warmup_steps),
            cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent),
        ],
        [warmup_steps],
    )


def _steps(count: ArrayLike) -> Array:
    """Return the count as float32: exact up to 2**24 steps."""
    return fnp.asarray(count).astype(fnp.float32)


def _check_steps(operation: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if not to_number(operation, name, number) > 0:
            raise ArgumentError(f"{operation}: {name} is {number}", remedy="give a positive number of steps")
