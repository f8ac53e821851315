"""First-order optimisers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Generic, TypeVar

import fxad.numpy as fnp
from fxad.core.trees import classes as tree_classes, tree
from fxad.dtypes import DType
from fxad.operations.arguments import flag
from fxad.optim.transformations import (
    HyperParameter,
    Rate,
    as_factor,
    check_decay,
    check_not_negative,
    check_rate,
    check_state,
    descent,
    needs_params,
    no_steps,
    rate_at,
    zeros,
)
from fxad.tracing.array import Array, ArrayLike

P = TypeVar("P")


@tree_classes.dataclass
class SgdState:
    """`count`: the number of steps made, int32."""

    count: Array


@dataclass(frozen=True)
class Sgd:
    """Gradient descent: `-learning_rate * g`."""

    learning_rate: Rate

    def init(self, params: object) -> SgdState:
        """Return the state before the first step."""
        return SgdState(no_steps())

    def update(self, updates: P, state: SgdState, params: P | None = None) -> tuple[P, SgdState]:
        """Return the update of a step, and the next state."""
        check_state("sgd", state, SgdState)
        return descent(updates, rate_at(self.learning_rate, state.count)), SgdState(state.count + 1)


def sgd(learning_rate: Rate) -> Sgd:
    """Return gradient descent: `-learning_rate * g`. See `momentum` for its heavy-ball and Nesterov forms."""
    check_rate("sgd", learning_rate)
    return Sgd(learning_rate)


@tree_classes.dataclass
class MomentumState(Generic[P]):
    """`count`: steps made. `trace`: the decaying sum of the gradients, a tree like the parameters."""

    count: Array
    trace: P


@dataclass(frozen=True)
class Momentum:
    """Gradient descent with momentum. Settings: see `momentum`."""

    learning_rate: Rate
    decay: HyperParameter
    nesterov: bool

    def init(self, params: P) -> MomentumState[P]:
        """Return the state before the first step."""
        return MomentumState(no_steps(), zeros(params))

    def update(self, updates: P, state: MomentumState[P], params: P | None = None) -> tuple[P, MomentumState[P]]:
        """Return the update of a step, and the next state."""
        check_state("momentum", state, MomentumState)

        def accumulated(g: ArrayLike, t: Array) -> Array:
            return (fnp.asarray(g) + _multiply_keeping_dtype(self.decay, t)).astype(t.dtype)

        trace = tree.map(accumulated, updates, state.trace)
        direction = tree.map(accumulated, updates, trace) if self.nesterov else trace
        return (
            descent(direction, rate_at(self.learning_rate, state.count)),
            MomentumState(state.count + 1, trace),
        )


def momentum(learning_rate: Rate, decay: HyperParameter = 0.9, nesterov: bool = False) -> Momentum:
    """Return gradient descent with momentum: `t <- g + decay * t`, update `-learning_rate * t`; Nesterov: `g + decay *
    t`.

    Source: Sutskever et al., On the importance of initialization and momentum in deep learning (2013), section 2.
    """
    check_rate("momentum", learning_rate)
    check_decay("momentum", decay=decay)
    return Momentum(learning_rate, decay, flag("momentum", "nesterov", nesterov))


@tree_classes.dataclass
class AdamState(Generic[P]):
    """`count`: steps made. `mean`, `variance`: decaying means of g and of |g|**2, trees like the parameters. The
    variance is float32 at least."""

    count: Array
    mean: P
    variance: P


@dataclass(frozen=True)
class Adam:
    """Adam, with decoupled decay of the weights. Settings: see `adam` and `adamw`."""

    learning_rate: Rate
    b1: HyperParameter
    b2: HyperParameter
    eps: HyperParameter
    eps_root: HyperParameter
    nesterov: bool
    weight_decay: HyperParameter | None
    mask: object

    def init(self, params: P) -> AdamState[P]:
        """Return the state before the first step."""
        return AdamState(no_steps(), zeros(params), tree.map(_real_zeros, params))

    def update(self, updates: P, state: AdamState[P], params: P | None = None) -> tuple[P, AdamState[P]]:
        """Return the update of a step, and the next state. Raises: ArgumentError for `adamw` without `params`."""
        check_state("adam" if self.weight_decay is None else "adamw", state, AdamState)
        count = state.count + 1
        mean = tree.map(lambda g, m: _mean(g, m, self.b1), updates, state.mean)
        variance = tree.map(lambda g, v: _mean(_square(g), v, self.b2), updates, state.variance)
        if self.nesterov:  # Dozat, Incorporating Nesterov Momentum into Adam (2016), without its factor b2
            first = tree.map(
                lambda m, g: _multiply_keeping_dtype(self.b1, m) + _multiply_keeping_dtype(1 - self.b1, g),
                _unbiased(mean, self.b1, count + 1),
                _unbiased(updates, self.b1, count),
            )
        else:
            first = _unbiased(mean, self.b1, count)
        second = _unbiased(variance, self.b2, count)
        direction = tree.map(self._quotient, first, second)
        if self.weight_decay is not None:
            direction = _decayed("adamw", direction, params, self.weight_decay, self.mask)
        return (
            descent(direction, rate_at(self.learning_rate, state.count)),
            AdamState(count, mean, variance),
        )

    def _quotient(self, m: Array, v: Array) -> Array:
        return (m / (fnp.sqrt(v + self.eps_root) + self.eps)).astype(m.dtype)


def adam(
    learning_rate: Rate,
    b1: HyperParameter = 0.9,
    b2: HyperParameter = 0.999,
    eps: HyperParameter = 1e-8,
    eps_root: HyperParameter = 0.0,
    *,
    nesterov: bool = False,
) -> Adam:
    """Return Adam: the mean of the gradients, divided by the root of the mean of their squares, both without bias.

    Source: Kingma and Ba, Adam: A Method for Stochastic Optimization (2015), algorithm 1. `eps_root` is added under the
    root, so that a derivative through the update is finite where a gradient is 0.
    """
    _check_adam("adam", learning_rate, b1, b2, eps, eps_root)
    return Adam(learning_rate, b1, b2, eps, eps_root, flag("adam", "nesterov", nesterov), None, None)


def adamw(
    learning_rate: Rate,
    b1: HyperParameter = 0.9,
    b2: HyperParameter = 0.999,
    eps: HyperParameter = 1e-8,
    eps_root: HyperParameter = 0.0,
    weight_decay: HyperParameter = 1e-4,
    mask: object = None,
    *,
    nesterov: bool = False,
) -> Adam:
    """Return Adam with decoupled weight decay: the update has `-learning_rate * weight_decay * p` in addition.

    `mask`: a tree of bools like the parameters, or a function from them to one; False keeps a leaf from decay.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization (2019), algorithm 2.
    """
    _check_adam("adamw", learning_rate, b1, b2, eps, eps_root)
    check_not_negative("adamw", weight_decay=weight_decay)
    return Adam(learning_rate, b1, b2, eps, eps_root, flag("adamw", "nesterov", nesterov), weight_decay, mask)


@tree_classes.dataclass
class LionState(Generic[P]):
    """`count`: steps made. `mean`: the decaying mean of the gradients, a tree like the parameters."""

    count: Array
    mean: P


@dataclass(frozen=True)
class Lion:
    """Lion. Settings: see `lion`."""

    learning_rate: Rate
    b1: HyperParameter
    b2: HyperParameter
    weight_decay: HyperParameter
    mask: object

    def init(self, params: P) -> LionState[P]:
        """Return the state before the first step."""
        return LionState(no_steps(), zeros(params))

    def update(self, updates: P, state: LionState[P], params: P | None = None) -> tuple[P, LionState[P]]:
        """Return the update of a step, and the next state. Raises: ArgumentError without `params`."""
        check_state("lion", state, LionState)
        direction = tree.map(lambda g, m: fnp.sign(_mean(g, m, self.b1)), updates, state.mean)
        mean = tree.map(lambda g, m: _mean(g, m, self.b2), updates, state.mean)
        direction = _decayed("lion", direction, params, self.weight_decay, self.mask)
        return (
            descent(direction, rate_at(self.learning_rate, state.count)),
            LionState(state.count + 1, mean),
        )


def lion(
    learning_rate: Rate,
    b1: HyperParameter = 0.9,
    b2: HyperParameter = 0.99,
    weight_decay: HyperParameter = 1e-3,
    mask: object = None,
) -> Lion:
    """Return Lion: the sign of a mean of the gradients, with decoupled weight decay. `mask`: as for `adamw`.

    Source: Chen et al., Symbolic Discovery of Optimization Algorithms (2023), program 1.
    """
    check_rate("lion", learning_rate)
    check_decay("lion", b1=b1, b2=b2)
    check_not_negative("lion", weight_decay=weight_decay)
    return Lion(learning_rate, b1, b2, weight_decay, mask)


def _check_adam(operation: str, rate: object, b1: object, b2: object, eps: object, eps_root: object) -> None:
    check_rate(operation, rate)
    check_decay(operation, b1=b1, b2=b2)
    check_not_negative(operation, eps=eps, eps_root=eps_root)


def _multiply_keeping_dtype(factor: HyperParameter, x: ArrayLike) -> Array:
    """Return `factor * x` in the dtype of x."""
    array = fnp.asarray(x)
    return as_factor(factor, array) * array


def _mean(x: ArrayLike, mean: Array, decay: HyperParameter) -> Array:
    """Return the decaying mean with one more element, in the dtype of the mean."""
    return (_multiply_keeping_dtype(1 - decay, x) + _multiply_keeping_dtype(decay, mean)).astype(mean.dtype)


def _square(g: ArrayLike) -> Array:
    """Return |g|**2, real, in float32 at least: in float16 the squares of elements below 1e-4 are 0, and in bfloat16
    0.999 times a mean is that mean."""
    array = fnp.asarray(g)
    if array.dtype in (fnp.float16, fnp.bfloat16):
        array = array.astype(fnp.float32)
    if fnp.iscomplexobj(array):
        return fnp.real(array) ** 2 + fnp.imag(array) ** 2
    return array**2


def _real_zeros(p: ArrayLike) -> Array:
    return fnp.zeros_like(_square(p))


def _unbiased(moments: P, decay: HyperParameter, count: Array) -> P:
    """Return the moments divided by `1 - decay**count`, computed in the dtype of each, float32 at least."""

    @functools.cache
    def correction(dtype: DType) -> Array:
        return 1 - fnp.asarray(decay, dtype=dtype) ** count.astype(dtype)

    def corrected(m: ArrayLike) -> Array:
        array = fnp.asarray(m)
        return array / correction(fnp.promote_types(array.real.dtype, fnp.float32)).astype(array.dtype)

    return tree.map(corrected, moments)


def _decayed(operation: str, direction: P, params: P | None, weight_decay: HyperParameter, mask: object) -> P:
    """Return the direction with `weight_decay * p` added where the mask says so."""
    params = needs_params(operation, params)
    if mask is None:
        return tree.map(lambda d, p: d + _multiply_keeping_dtype(weight_decay, p), direction, params)
    decays = mask(params) if callable(mask) else mask
    return tree.map(lambda d, p, m: d + _multiply_keeping_dtype(weight_decay, p) if m else d, direction, params, decays)
