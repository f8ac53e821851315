"""Activation functions. Values and derivatives are finite where the textbook form overflows.

At an infinity, a function that is a product, such as `silu`, may be nan, as in JAX: -inf * 0.
"""

from __future__ import annotations

import math
from typing import Final

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.errors import ShapeError
from fxad.numpy.apply import as_array, as_inexact_array, to_inexact
from fxad.numpy.composites import jit_composite
from fxad.operations.arguments import check_real, flag
from fxad.operations.axes import normalize_axis_index
from fxad.tracing.array import Array, ArrayLike

_SQRT_2_OVER_PI: Final = math.sqrt(2 / math.pi)
# Klambauer et al., Self-Normalizing Neural Networks, https://arxiv.org/abs/1706.02515
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def _real(name: str, x: ArrayLike) -> Array:
    """Return x as an array. Raises: DTypeError for a complex one, which has no sign."""
    array = as_array(name, x)
    check_real(name, array.aval)
    return array


def identity(x: ArrayLike) -> Array:
    """Return x."""
    return as_array("identity", x)


def relu(x: ArrayLike) -> Array:
    """Return max(x, 0). The derivative at 0 is 0."""
    return jit_composite(_relu, _real("relu", x))


def _relu(x: Array) -> Array:
    return fnp.where(x <= 0, 0, x)


def relu6(x: ArrayLike) -> Array:
    """Return x limited to [0, 6]. The derivative at both ends is 0."""
    return jit_composite(_relu6, _real("relu6", x))


def _relu6(x: Array) -> Array:
    return fnp.where(x >= 6, 6, _relu(x))


def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """Return x where x >= 0, else negative_slope * x."""
    return jit_composite(_leaky_relu, to_inexact(_real("leaky_relu", x)), negative_slope)


def _leaky_relu(x: Array, negative_slope: ArrayLike) -> Array:
    return fnp.where(x >= 0, x, x * negative_slope)


def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Return x where x > 0, else alpha * (exp(x) - 1)."""
    return jit_composite(_elu, to_inexact(_real("elu", x)), alpha)


def _elu(x: Array, alpha: ArrayLike) -> Array:
    # exp takes only operands for which its result is used, so no overflow reaches the derivative
    return fnp.where(x > 0, x, alpha * fnp.expm1(fnp.where(x > 0, 0, x)))


def selu(x: ArrayLike) -> Array:
    """Return a scaled elu that keeps mean 0 and variance 1 from layer to layer.

    Source: Klambauer et al., Self-Normalizing Neural Networks, https://arxiv.org/abs/1706.02515
    """
    return jit_composite(_selu, to_inexact(_real("selu", x)))


def _selu(x: Array) -> Array:
    return _SELU_SCALE * _elu(x, _SELU_ALPHA)


def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Return x where x > 0, else alpha * (exp(x / alpha) - 1), whose slope is continuous for every alpha.

    Source: Barron, Continuously Differentiable Exponential Linear Units, https://arxiv.org/abs/1704.07483
    """
    return jit_composite(_celu, to_inexact(_real("celu", x)), alpha)


def _celu(x: Array, alpha: ArrayLike) -> Array:
    return fnp.where(x > 0, x, alpha * fnp.expm1(fnp.where(x > 0, 0, x) / alpha))


def sigmoid(x: ArrayLike) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return lax.logistic(as_inexact_array("sigmoid", x))


def log_sigmoid(x: ArrayLike) -> Array:
    """Return log(sigmoid(x)), without underflow."""
    return jit_composite(_log_sigmoid, to_inexact(_real("log_sigmoid", x)))


def _log_sigmoid(x: Array) -> Array:
    return -_softplus(-x)


def tanh(x: ArrayLike) -> Array:
    """Return the hyperbolic tangent."""
    return fnp.tanh(x)


def softplus(x: ArrayLike) -> Array:
    """Return log(1 + exp(x)), without overflow."""
    return jit_composite(_softplus, to_inexact(_real("softplus", x)))


def _softplus(x: Array) -> Array:
    # `where`, not maximum and abs: at 0 each choice has all derivatives of the function, and these have averages
    positive = x > 0
    return fnp.where(positive, x, 0.0) + fnp.log1p(fnp.exp(fnp.where(positive, -x, x)))


def sparse_plus(x: ArrayLike) -> Array:
    """Return 0 below -1, x above 1, and (x + 1)^2 / 4 between."""
    return jit_composite(_sparse_plus, to_inexact(_real("sparse_plus", x)))


def _sparse_plus(x: Array) -> Array:
    inner = fnp.where(fnp.abs(x) >= 1, 0, x)  # nan stays nan
    return fnp.where(x <= -1, 0, fnp.where(x >= 1, x, fnp.square(inner + 1) / 4))


def sparse_sigmoid(x: ArrayLike) -> Array:
    """Return 0 below -1, 1 above 1, and (x + 1) / 2 between: the derivative of `sparse_plus`."""
    return jit_composite(_sparse_sigmoid, to_inexact(_real("sparse_sigmoid", x)))


def _sparse_sigmoid(x: Array) -> Array:
    return fnp.where(x <= -1, 0, fnp.where(x >= 1, 1, (x + 1) / 2))


def silu(x: ArrayLike) -> Array:
    """Return x * sigmoid(x)."""
    return jit_composite(_silu, as_inexact_array("silu", x))


def _silu(x: Array) -> Array:
    return x * lax.logistic(x)


swish = silu


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """Return x times the standard normal distribution function at x, by default in an approximation by tanh.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, https://arxiv.org/abs/1606.08415
    """
    approximate = flag("gelu", "approximate", approximate)
    return jit_composite(_gelu_by_tanh if approximate else _gelu, as_inexact_array("gelu", x))


def _gelu(x: Array) -> Array:
    return x * 0.5 * lax.erfc(-x * math.sqrt(0.5))


def _gelu_by_tanh(x: Array) -> Array:
    # the cube of 41 overflows in float16; from 24 on, the factor is 0 or 1 without it. (1 + tanh(u)) / 2 is
    # logistic(2u), which has all digits where tanh(u) is close to -1
    z = x if x.dtype in dtypes.COMPLEX else lax.clamp(-24.0, x, 24.0)
    return x * lax.logistic(2 * _SQRT_2_OVER_PI * (z + 0.044715 * z**3))


def glu(x: ArrayLike, axis: int = -1) -> Array:
    """Return the first half of x along an axis times the sigmoid of the second half."""
    array = as_inexact_array("glu", x)
    k = normalize_axis_index("glu", axis, array.ndim)
    if array.shape[k] % 2 != 0:
        raise ShapeError(f"glu: axis {k} of {array.aval} has an odd size", remedy="it is cut in two halves")
    return jit_composite(_glu, array, k)


def _glu(x: Array, axis: int) -> Array:
    half = x.shape[axis] // 2
    first = lax.slice_in_dim(x, 0, half, axis=axis)
    return first * lax.logistic(lax.slice_in_dim(x, half, 2 * half, axis=axis))


def hard_tanh(x: ArrayLike) -> Array:
    """Return x limited to [-1, 1]."""
    return jit_composite(_hard_tanh, _real("hard_tanh", x))


def _hard_tanh(x: Array) -> Array:
    return fnp.where(x > 1, 1, fnp.where(x < -1, -1, x))


def hard_sigmoid(x: ArrayLike) -> Array:
    """Return relu6(x + 3) / 6."""
    return jit_composite(_hard_sigmoid, to_inexact(_real("hard_sigmoid", x)))


def _hard_sigmoid(x: Array) -> Array:
    return _relu6(x + 3) / 6


def hard_silu(x: ArrayLike) -> Array:
    """Return x * hard_sigmoid(x).

    Source: Howard et al., Searching for MobileNetV3, https://arxiv.org/abs/1905.02244
    """
    return jit_composite(_hard_silu, to_inexact(_real("hard_silu", x)))


def _hard_silu(x: Array) -> Array:
    return x * _hard_sigmoid(x)


hard_swish = hard_silu


def soft_sign(x: ArrayLike) -> Array:
    """Return x / (|x| + 1); 1 and -1 at infinities."""
    return jit_composite(_soft_sign, as_inexact_array("soft_sign", x))


def _soft_sign(x: Array) -> Array:
    size = fnp.abs(x)
    # far out as 1 - 1 / (|x| + 1), whose derivative is no difference of nearly equal numbers
    return fnp.where(size < 1, x / (fnp.where(size < 1, size, 0) + 1), fnp.sign(x) * (1 - 1 / (size + 1)))


def mish(x: ArrayLike) -> Array:
    """Return x * tanh(softplus(x)).

    Source: Misra, Mish, https://arxiv.org/abs/1908.08681
    """
    return jit_composite(_mish, to_inexact(_real("mish", x)))


def _mish(x: Array) -> Array:
    return x * fnp.tanh(_softplus(x))


def squareplus(x: ArrayLike, b: ArrayLike = 4.0) -> Array:
    """Return (x + sqrt(x^2 + b)) / 2.

    Source: Barron, Squareplus, https://arxiv.org/abs/2112.11687
    """
    return jit_composite(_squareplus, as_inexact_array("squareplus", x), b)


def _squareplus(x: Array, b: ArrayLike) -> Array:
    dtype = fnp.result_type(x, b)
    if dtype in dtypes.COMPLEX:
        return (x + fnp.sqrt(fnp.square(x) + b)) / 2
    x = x.astype(dtypes.accumulated(dtype))
    width = fnp.sqrt(b)
    root = fnp.hypot(x, width)
    # below 0 the sum is a difference of nearly equal numbers: it is b over the other difference
    below = x < 0
    return fnp.where(
        below, fnp.multiply(b, 0.5) / (root - fnp.where(below, x, 0)), fnp.where(below, 0, x) / 2 + root / 2
    ).astype(dtype)


def log1mexp(x: ArrayLike) -> Array:
    """Return log(1 - exp(-x)) for positive x, without cancellation.

    Source: Maechler, https://cran.r-project.org/web/packages/Rmpfr/vignettes/log1mexp-note.pdf
    """
    return jit_composite(_log1mexp, to_inexact(_real("log1mexp", x)))


def _log1mexp(x: Array) -> Array:
    small = x < math.log(2)
    # each branch takes only operands for which it is used, so no infinity reaches the derivative of the other
    near, far = fnp.where(small, x, 1), fnp.where(small, 1, x)
    return fnp.where(small, fnp.log(-fnp.expm1(-near)), fnp.log1p(-fnp.exp(-far)))
