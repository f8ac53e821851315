"""Continuous distributions with an inverse in closed form: the inverse is applied to a uniform number."""

from __future__ import annotations

import math
from typing import Final

from fxad import dtypes, lax, numpy as fnp
from fxad.dtypes import DType
from fxad.ir import Shape
from fxad.numpy.composites import call_composite
from fxad.numpy.creation import ShapeLike
from fxad.operations.arguments import text
from fxad.random.arguments import (
    argument_error,
    check_key,
    float_dtype,
    result_shape,
)
from fxad.random.cipher import mantissa_bits, uniform_01, uniform_between_scalars
from fxad.random.draw import draw
from fxad.tracing.array import Array, ArrayLike

_MODES: Final = ("low", "high")


def exponential(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw from the exponential distribution with rate 1.

    Type:   u32[2] -> floats (float32), of any shape.
    Source: -log1p(-u); bit for bit `jax.random.exponential`.
    Raises: DTypeError for another dtype; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.exponential", sample_exponential, key, shape, dtype)


def sample_exponential(key: Array, shape: Shape, dtype: DType) -> Array:
    """Return `exponential` inside a sampler."""
    return lax.neg(lax.log1p(lax.neg(uniform_01(key, shape, dtype))))


def gumbel(key: ArrayLike, shape: ShapeLike = (), dtype: object = None, mode: str | None = None) -> Array:
    """Draw from the Gumbel distribution, the limit of the maximum of many exponential numbers.

    Type:   u32[2] -> floats (float32), of any shape.
    Rule:   `mode="high"` draws twice the bits, so that great values, of probability below 2^-24, come out right.
    Source: -log(-log(u)); bit for bit `jax.random.gumbel`, but for `mode="high"` of dtypes of 16 bits, which is drawn
            in float32 and rounded; with "low" those have as few as 8 random bits.
    Raises: ArgumentError for another mode; DTypeError for another dtype; both and ShapeError for a key or a shape.
    """
    mode = None if mode is None else text("random.gumbel", "mode", mode)
    name = "random.gumbel"
    chosen = gumbel_mode(name, mode)
    return call_composite(
        sample_gumbel, (check_key(name, key),), result_shape(name, shape), float_dtype(name, dtype), chosen
    )


def gumbel_mode(name: str, mode: str | None) -> str:
    """Return the mode, by default "low". Raises: ArgumentError."""
    if mode is not None and mode not in _MODES:
        raise argument_error(name, "mode", mode, "'low' or 'high'")
    return mode or "low"


def sample_gumbel(key: Array, shape: Shape, dtype: DType, mode: str) -> Array:
    """Return `gumbel` inside a sampler."""
    if mode == "high" and dtype.itemsize < 4:
        return sample_gumbel(key, shape, dtypes.float32, mode).astype(dtype)
    tiny = fnp.finfo(dtype).smallest_normal
    if mode == "low":
        return -fnp.log(-fnp.log(uniform_between_scalars(key, tiny, 1, shape, dtype)))
    both = uniform_01(key, (2, *shape), dtype)
    high, low = both[0], both[1]
    x = fnp.where(high >= 0.5, high, high + 2.0 ** -mantissa_bits(dtype) * low + tiny)
    return -fnp.log(-fnp.log1p(-x))


def laplace(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw from the Laplace distribution with scale 1: an exponential number with a random sign.

    Type:   u32[2] -> floats (float32), of any shape.
    Source: sign(u) log1p(-|u|), which is bit for bit `jax.random.laplace`.
    Raises: DTypeError for another dtype; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.laplace", _laplace, key, shape, dtype)


def _laplace(key: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform_between_scalars(key, -1.0 + fnp.finfo(dtype).eps / 2, 1, shape, dtype)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def logistic(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw from the logistic distribution with scale 1.

    Type:   u32[2] -> floats (float32), of any shape.
    Source: log(u / (1 - u)); bit for bit `jax.random.logistic`, but in bfloat16, which is drawn in float32 and rounded:
            with 8 random bits one value in 256 would be -87, and the variance 63.
    Raises: DTypeError for another dtype; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.logistic", _logistic, key, shape, dtype)


def _logistic(key: Array, shape: Shape, dtype: DType) -> Array:
    if dtype == dtypes.bfloat16:
        return _logistic(key, shape, dtypes.float32).astype(dtype)
    u = uniform_between_scalars(key, fnp.finfo(dtype).smallest_normal, 1, shape, dtype)
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


def cauchy(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw from the Cauchy distribution with scale 1.

    Type:   u32[2] -> floats (float32), of any shape.
    Source: tan(pi (u - 1/2)); bit for bit `jax.random.cauchy`.
    Raises: DTypeError for another dtype; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.cauchy", _cauchy, key, shape, dtype)


def _cauchy(key: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform_between_scalars(key, fnp.finfo(dtype).eps, 1, shape, dtype)
    return lax.tan(lax.mul(fnp.full(shape, math.pi, dtype), lax.sub(u, 0.5)))


def pareto(key: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw from the Pareto distribution of shape b on [1, inf).

    Type:   u32[2]; b that broadcasts to `shape` -> floats.
    Rule:   differentiable with respect to b.
    Source: exp(e / b) for `exponential` e; bit for bit `jax.random.pareto`.
    Raises: DTypeError, ShapeError for b; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.pareto", _pareto, key, shape, dtype, b=b)


def _pareto(key: Array, b: Array, shape: Shape, dtype: DType) -> Array:
    return fnp.exp(sample_exponential(key, shape, dtype) / b.astype(dtype))


def rayleigh(key: ArrayLike, scale: ArrayLike, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw from the Rayleigh distribution: the length of a normal vector in the plane with standard deviation `scale`.

    Type:   u32[2]; scale that broadcasts to `shape` -> floats.
    Rule:   differentiable with respect to the scale.
    Source: scale sqrt(-2 log u); bit for bit `jax.random.rayleigh`, which is infinite for u = 0.
    Raises: DTypeError, ShapeError for the scale; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.rayleigh", _rayleigh, key, shape, dtype, scale=scale)


def _rayleigh(key: Array, scale: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform_01(key, shape, dtype)
    root = lax.sqrt(lax.mul(lax.log(fnp.where(u == 0, 1, u)), -2))  # log(0) would be infinite
    return fnp.broadcast_to(scale.astype(dtype), shape) * root


def weibull_min(
    key: ArrayLike, scale: ArrayLike, concentration: ArrayLike, shape: ShapeLike | None = (), dtype: object = None
) -> Array:
    """Draw from the Weibull distribution on [0, inf).

    Type:   u32[2]; scale and concentration that broadcast to `shape`, or with each other and it -> floats.
    Rule:   differentiable with respect to both.
    Source: scale (-log1p(-u))^(1 / concentration); bit for bit `jax.random.weibull_min`.
    Raises: DTypeError, ShapeError for the parameters; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.weibull_min", _weibull_min, key, shape, dtype, scale=scale, concentration=concentration)


def _weibull_min(key: Array, scale: Array, concentration: Array, shape: Shape, dtype: DType) -> Array:
    return sample_exponential(key, shape, dtype) ** (1 / concentration.astype(dtype)) * scale.astype(dtype)


def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: object = None,
) -> Array:
    """Draw from the triangular distribution on [left, right] with the given mode.

    Type:   u32[2]; left <= mode <= right that broadcast to `shape` -> floats.
    Rule:   differentiable with respect to the three.
    Source: bit for bit `jax.random.triangular`.
    Raises: DTypeError, ShapeError for the parameters; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.triangular", _triangular, key, shape, dtype, left=left, mode=mode, right=right)


def _triangular(key: Array, left: Array, mode: Array, right: Array, shape: Shape, dtype: DType) -> Array:
    left, mode, right = [fnp.broadcast_to(p.astype(dtype), shape) for p in (left, mode, right)]
    u = uniform_01(key, shape, dtype)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return fnp.where(u < (mode - left) / (right - left), rising, falling)


__all__ = [
    "cauchy", "exponential", "gumbel", "laplace", "logistic", "pareto", "rayleigh", "triangular", "weibull_min",
]  # fmt: skip
