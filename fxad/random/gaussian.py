"""The normal distribution and those derived from it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.dtypes import DType
from fxad.ir import Shape
from fxad.numpy.composites import call_composite
from fxad.numpy.creation import ShapeLike
from fxad.random.arguments import (
    broadcast_shape,
    check_key,
    float_dtype,
    inexact_dtype,
    parameter_operand,
    result_shape,
)
from fxad.random.cipher import adjacent_float, literal_of, uniform_01, uniform_between, uniform_between_scalars
from fxad.random.draw import draw
from fxad.random.keys import split_keys
from fxad.random.uniforms import sample_signs
from fxad.tracing.array import Array, ArrayLike


def normal(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw standard normal numbers; for a complex dtype, with independent parts of variance 1/2.

    Type:   u32[2] -> float (float32) or complex, of any shape.
    Rule:   `mean + std * normal(...)` differentiates with respect to mean and std.
    Source: sqrt(2) erf_inv(u) for uniform u in (-1, 1); bit for bit `jax.random.normal`.
    Raises: DTypeError for another dtype; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.normal", sample_normal, key, shape, dtype, dtype_rule=inexact_dtype)


def sample_normal(key: Array, shape: Shape, dtype: DType) -> Array:
    """Return `normal` inside a sampler."""
    if dtype in dtypes.COMPLEX:
        parts = [sample_normal(k, shape, dtypes.real_part(dtype)).astype(dtype) for k in split_keys(key, 2)]
        return (parts[0] + 1j * parts[1]) / fnp.full((), math.sqrt(2), dtype)
    below = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype), dtype=dtype)
    u = uniform_between_scalars(key, below, 1, shape, dtype)
    return lax.mul(literal_of(math.sqrt(2), dtype, u.shape), lax.erf_inv(u))


def truncated_normal(
    key: ArrayLike, lower: ArrayLike, upper: ArrayLike, shape: ShapeLike | None = None, dtype: object = None
) -> Array:
    """Draw standard normal numbers conditioned on (lower, upper).

    Type:   u32[2]; bounds that broadcast to `shape` -> floats.
    Rule:   differentiable with respect to the bounds.
    Source: sqrt(2) erf_inv(u) for u uniform between the images of the bounds; bit for bit
            `jax.random.truncated_normal`, if both calls are jitted or neither is. Where both bounds are above 2.5, or
            below -2.5, JAX has few floats between their images, or none; there the logarithm of the probability is
            inverted instead. The image of an infinite bound, of which JAX makes the greatest float, is not drawn.
    Raises: DTypeError, ShapeError for bounds; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.truncated_normal", _truncated_normal, key, shape, dtype, lower=lower, upper=upper)


_TAIL: Final = 2.5  # bounds beyond it, of one sign, are in a tail


def _truncated_normal(key: Array, lower: Array, upper: Array, shape: Shape, dtype: DType) -> Array:
    lower, upper = lower.astype(dtype), upper.astype(dtype)
    root = fnp.full((), math.sqrt(2), dtype)
    above, below = lower > _TAIL, upper < -_TAIL
    in_tail = (above | below) & (lower < upper)
    # a bound in a tail has no part in the formula for the others
    a, b = fnp.where(in_tail, 0, lower), fnp.where(in_tail, 1, upper)
    u = uniform_between(key, lax.erf(a / root), lax.erf(b / root), shape, dtype)
    # an image of an infinite bound is drawn too: once in 1,000 draws of float16, once in 8 million of float32
    one = fnp.ones((), dtype)
    u = fnp.clip(u, adjacent_float(-one, up=True), adjacent_float(one, up=False))
    wide = dtypes.accumulated(dtype)
    near = fnp.where(in_tail, fnp.where(above, lower, -upper), _TAIL).astype(wide)
    far = fnp.where(in_tail, fnp.where(above, upper, -lower), _TAIL + 1).astype(wide)
    outer = _sample_tail(key, near, far, shape, wide).astype(dtype)
    x = fnp.where(in_tail, fnp.where(above, outer, -outer), root * lax.erf_inv(u))
    inside = adjacent_float(lax.stop_gradient(lower), up=True), adjacent_float(lax.stop_gradient(upper), up=False)
    return fnp.clip(x, *inside)


def _sample_tail(key: Array, near: Array, far: Array, shape: Shape, dtype: DType) -> Array:
    """Return normal numbers between two bounds above 0, by the logarithm of their probability Q(x) to be exceeded:
    Newton's method for log Q(x) = log(Q(near) - u * (Q(near) - Q(far))).

    It starts where the ratio of densities is that of the probabilities. The last step alone is differentiated, with
    the bounds.
    """
    u = uniform_01(key, shape, dtype)
    log_near = lax.log_ndtr(-near)
    share = -fnp.expm1(lax.log_ndtr(-far) - log_near)  # 1 - Q(far) / Q(near)
    log_ratio = lax.log1p(-u * share)
    wanted = log_near + log_ratio

    def step(x: Array, wanted: Array) -> Array:
        log_q = lax.log_ndtr(-x)
        log_density = -x * x / 2 - 0.5 * math.log(2 * math.pi)
        return x + (log_q - wanted) * lax.exp(log_q - log_density)

    x = lax.stop_gradient(fnp.sqrt(near * near - 2 * log_ratio))
    for _ in range(4):
        x = fnp.maximum(step(x, lax.stop_gradient(wanted)), lax.stop_gradient(near))
    return step(lax.stop_gradient(x), wanted)


def lognormal(key: ArrayLike, sigma: ArrayLike = 1.0, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw exp(sigma * z) for standard normal z.

    Type:   u32[2]; sigma that broadcasts to `shape` -> floats.
    Rule:   differentiable with respect to sigma.
    Source: bit for bit `jax.random.lognormal`.
    Raises: DTypeError, ShapeError for sigma; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.lognormal", _lognormal, key, shape, dtype, dtype_rule=inexact_dtype, sigma=sigma)


def _lognormal(key: Array, sigma: Array, shape: Shape, dtype: DType) -> Array:
    return fnp.exp(sample_normal(key, shape, dtype) * sigma.astype(dtype))


def maxwell(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw the length of a standard normal vector in three dimensions.

    Type:   u32[2] -> floats (float32), of any shape.
    Source: up to rounding `jax.random.maxwell`.
    Raises: DTypeError for another dtype; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.maxwell", _maxwell, key, shape, dtype)


def _maxwell(key: Array, shape: Shape, dtype: DType) -> Array:
    z = sample_normal(key, (*shape, 3), dtype)
    return fnp.sqrt((z * z).sum(-1))


def double_sided_maxwell(
    key: ArrayLike, loc: ArrayLike, scale: ArrayLike, shape: ShapeLike = (), dtype: object = None
) -> Array:
    """Draw loc + scale * s * m for a random sign s and `maxwell` m.

    Type:   u32[2]; loc and scale of shape P together -> floats of shape (*shape, *P); for `shape` (), of (*P, *P),
            as in JAX.
    Rule:   differentiable with respect to loc and scale.
    Source: up to rounding `jax.random.double_sided_maxwell`.
    Raises: DTypeError, ShapeError for loc and scale; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    name = "random.double_sided_maxwell"
    chosen = float_dtype(name, dtype, loc=loc, scale=scale)
    own = broadcast_shape(name, None, loc=loc, scale=scale)
    sizes = (*(result_shape(name, shape) or own), *own)
    operands = check_key(name, key), parameter_operand(loc, chosen), parameter_operand(scale, chosen)
    return call_composite(_double_sided_maxwell, operands, sizes, chosen)


def _double_sided_maxwell(key: Array, loc: Array, scale: Array, shape: Shape, dtype: DType) -> Array:
    key_size, key_sign = split_keys(key, 2)
    signed = sample_signs(key_sign, shape, dtype) * _maxwell(key_size, shape, dtype)
    return signed * scale.astype(dtype) + loc.astype(dtype)


def wald(key: ArrayLike, mean: ArrayLike, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw from the inverse Gaussian distribution with a given mean and scale 1.

    Type:   u32[2]; positive mean that broadcasts to `shape` -> floats.
    Rule:   the derivative with respect to the mean is that of the root that was chosen.
    Source: Michael, Schucany and Haas, Generating random variates using transformations with multiple roots, 1976; bit
            for bit `jax.random.wald`.
    Raises: DTypeError, ShapeError for the mean; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    return draw("random.wald", _wald, key, shape, dtype, mean=mean)


def _wald(key: Array, mean: Array, shape: Shape, dtype: DType) -> Array:
    key_root, key_choice = split_keys(key, 2)
    mean = fnp.broadcast_to(mean.astype(dtype), shape)
    y = lax.square(sample_normal(key_root, shape, dtype))
    z = uniform_01(key_choice, shape, dtype)
    # the roots of (x - mean)**2 = mean**2 * y * x, without cancellation and overflow: their product is mean**2
    t = mean * y / 2
    still = t == 0  # where the square root has no derivative
    ratio = 1 + t + fnp.where(still, 0, lax.sqrt(fnp.where(still, 1, t)) * lax.sqrt(t + 2))
    infinite = fnp.isinf(mean)
    low = fnp.where(infinite, 1 / y, mean / fnp.where(infinite, 1, ratio))
    return fnp.where(infinite | (z * (1 + 1 / ratio) <= 1), low, mean * ratio)


__all__ = ["double_sided_maxwell", "lognormal", "maxwell", "normal", "truncated_normal", "wald"]
