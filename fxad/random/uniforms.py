"""Uniform bits, floats and integers, and draws that compare them with a threshold."""

from __future__ import annotations

from typing import cast

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.core.numbers import NUMBER_TYPES
from fxad.core.sizes import Size
from fxad.dtypes import DType
from fxad.errors import DTypeError
from fxad.ir import Shape
from fxad.operations.arguments import text
from fxad.random.arguments import (
    FLOATS,
    ShapeLike,
    argument_error,
    broadcast_shape,
    check_fits,
    check_key,
    float_dtype,
    integer_dtype,
    parameter_operand,
    result_shape,
)
from fxad.random.cipher import UNSIGNED, literal_of, mantissa_bits, random_bits, uniform_01, uniform_between
from fxad.random.jit_sampler import jit_sampler
from fxad.random.keys import split_keys
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar


def bits(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw uniform random bits, as unsigned integers.

    Type:   u32[2] -> an unsigned dtype (uint32), of any shape.
    Source: bit for bit `jax.random.bits`.
    Raises: DTypeError for a dtype that is not unsigned; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    chosen = dtypes.uint32 if dtype is None else dtypes.as_dtype(dtype)
    if chosen not in dtypes.UNSIGNED:
        raise DTypeError(f"random.bits: dtype must be an unsigned integer, got {chosen.name}")
    return jit_sampler(random_bits, (check_key("random.bits", key),), result_shape("random.bits", shape), chosen)


def uniform(
    key: ArrayLike, shape: ShapeLike = (), dtype: object = None, minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0
) -> Array:
    """Draw uniform floats in [minval, maxval).

    Type:   u32[2]; bounds that broadcast to `shape` -> floats. dtype: that of bounds that are arrays, else float32.
    Rule:   linear in the bounds: the gradient is that of minval + u * (maxval - minval).
    Source: bit for bit `jax.random.uniform`.
    Raises: DTypeError for a dtype that is not floating, or bounds that are complex; ShapeError for bounds that do not
            broadcast; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    name = "random.uniform"
    checked, sizes = check_key(name, key), result_shape(name, shape)
    chosen = float_dtype(name, dtype, minval=minval, maxval=maxval)
    if type(minval) in NUMBER_TYPES and type(maxval) in NUMBER_TYPES and (minval, maxval) == (0, 1):
        return jit_sampler(uniform_01, (checked,), sizes, chosen)
    for which, bound in (("minval", minval), ("maxval", maxval)):
        check_fits(name, sizes, which, aval_of(bound, f"{name}: {which}").shape)
    return jit_sampler(
        _uniform, (checked, parameter_operand(minval, chosen), parameter_operand(maxval, chosen)), sizes, chosen
    )


def _uniform(key: Array, minval: Array, maxval: Array, shape: Shape, dtype: DType) -> Array:
    return uniform_between(key, minval.astype(dtype), maxval.astype(dtype), shape, dtype)


# --------------------------------------------------------------------------------------------------------- integers


def randint(key: ArrayLike, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike, dtype: object = None) -> Array:
    """Draw uniform integers in [minval, maxval); minval if the range is empty.

    Type:   u32[2]; integer bounds that broadcast to `shape` -> integers (int32). Bounds outside the dtype are held to
            it; a maxval just above its greatest value asks for all values from minval.
    Cost:   twice the bits, so that the bias of the remainder stays below 2^-(bits of the dtype).
    Source: bit for bit `jax.random.randint`.
    Raises: DTypeError for a dtype or bounds that are not integers; ShapeError for bounds that do not broadcast;
            ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    name = "random.randint"
    checked, sizes = check_key(name, key), result_shape(name, shape)
    chosen = integer_dtype(name, dtype)
    for which, bound in (("minval", minval), ("maxval", maxval)):
        if is_scalar(bound) and isinstance(bound, int):
            continue
        aval = aval_of(bound, f"{name}: {which}")
        if aval.dtype not in dtypes.INTEGER:
            raise DTypeError(
                f"{name}: {which} must be an integer, got {aval}", remedy="round it and convert it with astype"
            )
        check_fits(name, sizes, which, aval.shape)
    return jit_sampler(
        sample_randint, (checked, _bound_operand(minval, chosen), _bound_operand(maxval, chosen)), sizes, chosen
    )


def _bound_operand(value: ArrayLike, dtype: DType) -> ArrayLike:
    """Return a bound as an operand. A Python int takes a dtype that holds the maximum of `dtype` plus one."""
    if not is_scalar(value):
        return value
    if type(value) is Size:
        return fnp.asarray(value, dtypes.int64)
    info = fnp.iinfo(dtype)
    clamped = min(max(int(cast(int, value)), info.min), info.max + 1)
    return np.int64(clamped) if clamped < 1 << 63 else np.uint64(clamped)


def sample_randint(key: Array, minval: Array, maxval: Array, shape: Shape, dtype: DType) -> Array:
    """`randint` inside a sampler."""
    info = fnp.iinfo(dtype)
    # narrow integers are drawn as int32, which holds their bounds and one more
    drawn = dtypes.int32 if info.bits < 32 else dtype
    low, _ = _clamp_bound(minval, drawn, info.min, info.max)
    high, beyond = _clamp_bound(maxval, drawn, info.min, info.max + (info.bits < 32))
    key_high, key_low = split_keys(key, 2)
    word = UNSIGNED[drawn.itemsize]
    upper, lower = random_bits(key_high, shape, word), random_bits(key_low, shape, word)
    span = fnp.where(high <= low, fnp.ones((), word), (high - low).astype(word))
    span = fnp.where(beyond & (high > low), span + 1, span)
    span = fnp.broadcast_to(span, shape)
    # 2^bits modulo the span, from its square root, which fits
    root = lax.rem(literal_of(1 << (drawn.itemsize * 4), word, shape), span)
    factor = lax.rem(lax.mul(root, root), span)
    offset = lax.rem(lax.add(lax.mul(lax.rem(upper, span), factor), lax.rem(lower, span)), span)
    return lax.add(fnp.broadcast_to(low, shape), offset.astype(drawn)).astype(dtype)


def _clamp_bound(value: Array, dtype: DType, low: int, high: int) -> tuple[Array, Array]:
    """Return a bound clamped to [low, high], in a dtype, and whether it was above."""
    own = fnp.iinfo(value.dtype)
    # a limit that the bound's own dtype does not have, the bound cannot pass
    top = literal_of(min(high, own.max), value.dtype)
    clamped = fnp.clip(value, literal_of(max(low, own.min), value.dtype), top)
    return clamped.astype(dtype), value > top


# ------------------------------------------------------------------------------------------------------- thresholds


def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: ShapeLike | None = None, mode: str = "low") -> Array:
    """Draw True with probability p.

    Type:   u32[2]; float p -> bool, of the shape of p or one it broadcasts to.
    Rule:   `mode="high"` draws twice the bits, so that probabilities far below 2^-24 come out right.
    Source: bit for bit `jax.random.bernoulli`.
    Raises: DTypeError for a p that is not floating; ShapeError; ArgumentError for another mode.
    """
    mode = text("random.bernoulli", "mode", mode)
    name = "random.bernoulli"
    if mode not in ("low", "high"):
        raise argument_error(name, "mode", mode, "'low' or 'high'")
    checked = check_key(name, key)
    aval = aval_of(p, f"{name}: p")
    if aval.dtype not in FLOATS:
        raise DTypeError(f"{name}: p must be floating, got {aval}", remedy="a probability lies between 0.0 and 1.0")
    return jit_sampler(_bernoulli, (checked, parameter_operand(p, aval.dtype)), broadcast_shape(name, shape, p=p), mode)


def _bernoulli(key: Array, p: Array, shape: Shape, mode: str) -> Array:
    wanted = fnp.broadcast_to(p, shape)
    if mode == "low":
        return lax.lt(uniform_01(key, shape, p.dtype), wanted)
    both = uniform_01(key, (2, *shape), p.dtype)
    return lax.lt(both[1] * 2.0 ** -mantissa_bits(p.dtype), wanted - both[0])


def rademacher(key: ArrayLike, shape: ShapeLike = (), dtype: object = None) -> Array:
    """Draw -1 or 1 with equal probability.

    Type:   u32[2] -> a numeric dtype (int32), of any shape.
    Source: bit for bit `jax.random.rademacher`.
    Raises: DTypeError for a dtype without -1; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    name = "random.rademacher"
    chosen = dtypes.int32 if dtype is None else dtypes.as_dtype(dtype)
    if chosen not in dtypes.SIGNED | FLOATS | dtypes.COMPLEX:
        raise DTypeError(f"{name}: dtype must have a -1, got {chosen.name}")
    return jit_sampler(sample_signs, (check_key(name, key),), result_shape(name, shape), chosen)


def sample_signs(key: Array, shape: Shape, dtype: DType) -> Array:
    """`rademacher` inside a sampler."""
    heads = lax.lt(uniform_01(key, shape, dtypes.float32), 0.5).astype(dtype)
    return 2 * heads - 1


__all__ = ["bernoulli", "bits", "rademacher", "randint", "uniform"]
