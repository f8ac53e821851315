"""Functions of neural networks: safe where their textbook form overflows, and differentiable there."""

from __future__ import annotations

import math
from typing import Final

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.array import Array, ArrayLike
from fxad.errors import DTypeError
from fxad.numpy.calls import as_array
from fxad.operations import promotion
from fxad.operations.axes import Axes, axis_of

_SQRT_2_OVER_PI: Final = math.sqrt(2 / math.pi)


def _floating(name: str, x: ArrayLike) -> Array:
    array = as_array(name, x)
    return array.astype(promotion.inexact(array.dtype))


# ------------------------------------------------------------------------------------------------------ activations


def relu(x: ArrayLike) -> Array:
    """x where it is positive, else 0; the derivative at 0 is 0."""
    array = as_array("relu", x)
    return fnp.where(array <= 0, 0, array)


def relu6(x: ArrayLike) -> Array:
    """x held between 0 and 6; the derivative at both ends is 0."""
    array = relu(x)
    return fnp.where(array >= 6, 6, array)


def leaky_relu(x: ArrayLike, negative_slope: float = 0.01) -> Array:
    """x where it is not negative, else negative_slope * x."""
    array = _floating("leaky_relu", x)
    return fnp.where(array >= 0, array, array * negative_slope)


def elu(x: ArrayLike, alpha: float = 1.0) -> Array:
    """x where it is positive, else alpha * (exp(x) - 1)."""
    array = _floating("elu", x)
    # exp only sees what it is used for, so no overflow reaches the derivative
    return fnp.where(array > 0, array, alpha * fnp.expm1(fnp.where(array > 0, 0, array)))


def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x))."""
    return lax.logistic(_floating("sigmoid", x))


def log_sigmoid(x: ArrayLike) -> Array:
    """log(sigmoid(x)), without underflow."""
    return -softplus(-_floating("log_sigmoid", x))


def tanh(x: ArrayLike) -> Array:
    """The hyperbolic tangent."""
    return fnp.tanh(x)


def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x)), without overflow."""
    return fnp.logaddexp(_floating("softplus", x), 0.0)


def silu(x: ArrayLike) -> Array:
    """x * sigmoid(x)."""
    array = _floating("silu", x)
    return array * lax.logistic(array)


swish = silu


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """x times the normal distribution function at x; by default in its approximation by tanh.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, https://arxiv.org/abs/1606.08415
    """
    array = _floating("gelu", x)
    if approximate:
        return array * 0.5 * (1.0 + fnp.tanh(_SQRT_2_OVER_PI * (array + 0.044715 * array**3)))
    return array * 0.5 * lax.erfc(-array * math.sqrt(0.5))


# --------------------------------------------------------------------------------------------------- normalisations


def logsumexp(x: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over axes, without overflow; -inf where all elements are."""
    array = _floating("logsumexp", x)
    top = lax.stop_gradient(array).max(axis, keepdims=True)
    top = fnp.where(fnp.isfinite(top), top, 0)
    total = fnp.log(fnp.exp(array - top).sum(axis, keepdims=True)) + top
    return total if keepdims else total.squeeze(tuple(range(array.ndim)) if axis is None else axis)


def softmax(x: ArrayLike, axis: Axes = -1) -> Array:
    """exp(x) / sum(exp(x)) over axes, without overflow."""
    array = _floating("softmax", x)
    weights = fnp.exp(array - lax.stop_gradient(array).max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def log_softmax(x: ArrayLike, axis: Axes = -1) -> Array:
    """log(softmax(x)), without underflow."""
    array = _floating("log_softmax", x)
    shifted = array - lax.stop_gradient(array).max(axis, keepdims=True)
    return shifted - fnp.log(fnp.exp(shifted).sum(axis, keepdims=True))


def one_hot(x: ArrayLike, num_classes: int, *, dtype: object = float, axis: int = -1) -> Array:
    """1 at the position that x names along a new axis of size `num_classes`, 0 elsewhere; all 0 for one outside."""
    array = as_array("one_hot", x)
    if array.dtype not in dtypes.INTEGER:
        raise DTypeError(f"one_hot: takes integers, got {array.aval}")
    k = axis_of("one_hot", axis, array.ndim + 1)
    shape = [1] * (array.ndim + 1)
    shape[k] = num_classes
    places = fnp.arange(num_classes, dtype=array.dtype).reshape(shape)
    return (fnp.expand_dims(array, k) == places).astype(dtype)
