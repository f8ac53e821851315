"""Loss scaling: gradients in float16 without underflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import fxad.numpy as fnp
from fxad.core.trees import classes as tree_classes, tree
from fxad.errors import ArgumentError, shown
from fxad.tracing.array import Array, ArrayLike

P = TypeVar("P")


@tree_classes.dataclass
class LossScaleState:
    """`scale`: the factor of the loss, float32. `steps`: steps with finite gradients since it last changed, int32."""

    scale: Array
    steps: Array


@dataclass(frozen=True)
class LossScale:
    """A factor of the loss that follows the range of the gradients. Settings: see `loss_scale`."""

    initial: float
    growth_interval: int | None
    factor: float

    def init(self) -> LossScaleState:
        """Return the state before the first step."""
        return LossScaleState(fnp.asarray(self.initial, "float32"), fnp.asarray(0, "int32"))

    def scaled(self, loss: ArrayLike, state: LossScaleState) -> Array:
        """Return the loss times the scale, in the dtype of the loss. Differentiate this."""
        x = fnp.asarray(loss)
        return x * state.scale.astype(x.dtype)

    def update(self, gradients: P, state: LossScaleState) -> tuple[P, Array, LossScaleState]:
        """Return the gradients divided by the scale, True if all of them are finite, and the next state.

        Gradients of 16 bits become float32, because a divided one may underflow. Make the step only if they are finite:
        `keep_if(finite, new, old)`.
        """
        inverse = 1.0 / state.scale

        def divided(g: ArrayLike) -> Array:
            x = fnp.asarray(g)
            wide = x.astype(fnp.promote_types(x.dtype, "float32"))
            return wide * inverse.astype(wide.dtype)

        unscaled = tree.map(divided, gradients)
        finite = fnp.asarray(True)
        for g in tree.leaves(unscaled):
            finite = finite & fnp.all(fnp.isfinite(g))
        if self.growth_interval is None:
            return unscaled, finite, state
        steps = fnp.where(finite, state.steps + 1, 0)
        grows = steps >= self.growth_interval
        grown = fnp.where(grows, state.scale * self.factor, state.scale)
        # the scale stays a finite number that is not 0: beyond it, the loss itself is at fault
        scale = fnp.where(finite, fnp.minimum(grown, 2.0**126), fnp.maximum(state.scale / self.factor, 2.0**-126))
        return unscaled, finite, LossScaleState(scale, fnp.where(grows, 0, steps).astype("int32"))


def loss_scale(initial: float = 2.0**15, *, growth_interval: int | None = 2000, factor: float = 2.0) -> LossScale:
    """Return a loss scale: the loss is multiplied by it, so that gradients in float16 do not underflow.

    The scale is divided by `factor` after a step whose gradients are not finite, and multiplied by it after
    `growth_interval` steps with finite ones. With `growth_interval=None` it is constant.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> from fxad import optim
    >>> scaler = optim.loss_scale(2.0**10)
    >>> state = scaler.init()
    >>> def loss(w):
    ...     return fnp.sum(w * w) * 1e-7
    >>> w = fnp.ones(2, "float16")
    >>> fx.grad(loss)(w).tolist()
    [2.384185791015625e-07, 2.384185791015625e-07]
    >>> gradients = fx.grad(lambda w: scaler.scaled(loss(w), state))(w)
    >>> gradients, finite, state = scaler.update(gradients, state)
    >>> bool(finite)
    True

    Raises: ArgumentError for a scale that is not a positive number, a factor that is not above 1, and an interval below
            1.
    Source: Micikevicius et al., Mixed precision training (2018), section 3.2.
    """
    for name, value, least in (("initial", initial, 0.0), ("factor", factor, 1.0)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < float("inf"):
            raise ArgumentError(
                f"loss_scale: {name} is {shown(value)}, not a finite number above {least:g}",
                remedy="powers of two change no digit of a gradient: loss_scale(2.0**15, factor=2.0)",
            )
    if growth_interval is not None and (
        isinstance(growth_interval, bool) or not isinstance(growth_interval, int) or growth_interval < 1
    ):
        raise ArgumentError(
            f"loss_scale: growth_interval is {shown(growth_interval)}, neither an int >= 1 nor None",
            remedy="give the number of steps with finite gradients after which the scale grows, or None for a constant",
        )
    return LossScale(float(initial), growth_interval, float(factor))


def keep_if(finite: ArrayLike, new: P, old: P) -> P:
    """Return the tree `new` if `finite` is true, else `old`: parameters and states of an optimiser after a step whose
    gradients may not be finite. Both have the same structure and types."""
    return tree.map(lambda n, o: fnp.where(finite, n, o), new, old)
