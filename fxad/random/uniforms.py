"""Uniform bits, floats and integers, and draws that compare them with a threshold."""

from __future__ import annotations

from typing import cast

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.core.numbers import NUMBER_TYPES
from fxad.core.sizes.size import Size
from fxad.dtypes import DType
from fxad.errors import DTypeError
from fxad.ir import Shape
from fxad.numpy.composites import call_composite
from fxad.numpy.creation import ShapeLike
from fxad.operations.arguments import text
from fxad.random.arguments import (
    FLOATS,
    argument_error,
    broadcast_shape,
    check_fits,
    check_key,
    float_dtype,
    integer_dtype,
    parameter_operand,
    result_shape,
)
from fxad.random.cipher import (
    UNSIGNED,
    adjacent_float,
    literal_of,
    mantissa_bits,
    random_bits,
    uniform_01,
    uniform_between,
)
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
    return call_composite(random_bits, (check_key("random.bits", key),), result_shape("random.bits", shape), chosen)


def uniform(
    key: ArrayLike, shape: ShapeLike = (), dtype: object = None, minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0
) -> Array:
    """Draw uniform floats in [minval, maxval).

    Type:   u32[2]; bounds that broadcast to `shape` -> floats. dtype: that of bounds that are arrays, else float32.
    Rule:   linear in the bounds: the gradient is that of minval + u * (maxval - minval).
    Source: bit for bit `jax.random.uniform`, which may round up to maxval; here the float below it is drawn instead.
    Raises: DTypeError for a dtype that is not floating, or bounds that are complex; ShapeError for bounds that do not
            broadcast; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    name = "random.uniform"
    checked, sizes = check_key(name, key), result_shape(name, shape)
    chosen = float_dtype(name, dtype, minval=minval, maxval=maxval)
    if type(minval) in NUMBER_TYPES and type(maxval) in NUMBER_TYPES and (minval, maxval) == (0, 1):
        return call_composite(uniform_01, (checked,), sizes, chosen)
    for which, bound in (("minval", minval), ("maxval", maxval)):
        check_fits(name, sizes, which, aval_of(bound, f"{name}: {which}").shape)
    return call_composite(
        _uniform, (checked, parameter_operand(minval, chosen), parameter_operand(maxval, chosen)), sizes, chosen
    )


def _uniform(key: Array, minval: Array, maxval: Array, shape: Shape, dtype: DType) -> Array:
    low, high = minval.astype(dtype), maxval.astype(dtype)
    x = uniform_between(key, low, high, shape, dtype)
    # rounding may give the upper bound; the derivative stays that of the formula
    low, high = lax.stop_gradient(low), lax.stop_gradient(high)
    last = fnp.where(high > low, fnp.maximum(low, adjacent_float(high, up=False)), high)
    return x + lax.stop_gradient(fnp.minimum(x, last) - x)


# --------------------------------------------------------------------------------------------------------- integers


def randint(key: ArrayLike, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike, dtype: object = None) -> Array:
    """Draw uniform integers in [minval, maxval); minval if the range is empty.

    Type:   u32[2]; integer bounds that broadcast to `shape` -> integers (int32). A maxval just above the greatest value
            of the dtype asks for all values from minval. Bounds that are arrays are held to the dtype.
    Cost:   twice the bits, so that the bias stays below 2^-(bits of the dtype).
    Source: bit for bit `jax.random.randint` where maxval - minval is at most 2^16 (2^32 for 64 bits). JAX's product
            overflows for larger ones, which makes some numbers more likely than others.
    Raises: DTypeError for a dtype or bounds that are not integers, and for Python ints outside the dtype; ShapeError
            for bounds that do not broadcast; ArgumentError, DTypeError, ShapeError for a key or a shape.
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
    return call_composite(
        sample_randint,
        (checked, _bound_operand(name, "minval", minval, chosen), _bound_operand(name, "maxval", maxval, chosen)),
        sizes,
        chosen,
        is_scalar(maxval) and type(maxval) is not Size and maxval == 1 << 64,
    )


def _bound_operand(name: str, which: str, value: ArrayLike, dtype: DType) -> ArrayLike:
    """Return a bound as an operand. A Python int takes a dtype that holds the maximum of `dtype` plus one; only 2**64
    has none. Raises: DTypeError for a Python int that is no bound of `dtype`."""
    if not is_scalar(value):
        return value
    if type(value) is Size:
        return fnp.asarray(value, dtypes.int64)
    info, bound = fnp.iinfo(dtype), int(cast(int, value))
    if not info.min <= bound <= info.max + 1:
        raise DTypeError(
            f"{name}: {which} is {bound}, {dtype.name} holds {info.min} to {info.max}",
            remedy="give a wider dtype, or a bound that fits",
        )
    return np.int64(bound) if bound < 1 << 63 else np.uint64(min(bound, (1 << 64) - 1))


def sample_randint(
    key: Array, minval: Array, maxval: Array, shape: Shape, dtype: DType, beyond_words: bool = False
) -> Array:
    """Return `randint` inside a sampler. `beyond_words`: maxval is 2**64, which no integer holds."""
    info = fnp.iinfo(dtype)
    # narrow integers are drawn as int32, which holds their bounds and one more
    drawn = dtypes.int32 if info.bits < 32 else dtype
    low, _ = _clamp_bound(minval, drawn, info.min, info.max)
    high, beyond = _clamp_bound(maxval, drawn, info.min, info.max + (info.bits < 32))
    key_high, key_low = split_keys(key, 2)
    word = UNSIGNED[drawn.itemsize]
    upper, lower = random_bits(key_high, shape, word), random_bits(key_low, shape, word)
    span = fnp.where(high <= low, fnp.ones((), word), (high - low).astype(word))
    # 0 stands for all values of the word
    span = fnp.where((beyond | beyond_words) & (high > low), span + 1, span)
    offset = (_remainder_32 if word is dtypes.uint32 else _below_64)(upper, lower, fnp.broadcast_to(span, shape))
    return lax.add(fnp.broadcast_to(low, shape), offset.astype(drawn)).astype(dtype)


def _remainder_32(upper: Array, lower: Array, span: Array) -> Array:
    """Return (upper * 2^32 + lower) modulo the span, in 64 bits; `lower` for a span of 0."""
    whole = lax.bitwise_or(lax.shift_left(upper.astype(dtypes.uint64), 32), lower.astype(dtypes.uint64))
    wide = fnp.where(span == 0, 1 << 32, span.astype(dtypes.uint64))
    return lax.rem(whole, wide).astype(dtypes.uint32)


def _below_64(upper: Array, lower: Array, span: Array) -> Array:
    """Return uniform numbers below the span; `lower` for a span of 0.

    Up to 2^32, upper * 2^64 + lower modulo the span, whose products fit in a word. Above, that number times the span,
    over 2^128: long multiplication in digits of 32 bits.
    """
    small = fnp.where((span == 0) | (span > 1 << 32), 1, span)
    root = lax.rem(literal_of(1 << 32, dtypes.uint64, span.shape), small)
    factor = lax.rem(lax.mul(root, root), small)
    remainder = lax.rem(lax.add(lax.mul(lax.rem(upper, small), factor), lax.rem(lower, small)), small)

    mask = literal_of((1 << 32) - 1, dtypes.uint64, span.shape)
    digits = [lax.bitwise_and(lower, mask), lax.shift_right_logical(lower, 32)]
    digits += [lax.bitwise_and(upper, mask), lax.shift_right_logical(upper, 32)]
    factors = lax.bitwise_and(span, mask), lax.shift_right_logical(span, 32)
    product: list[Array] = [literal_of(0, dtypes.uint64, span.shape)] * 6
    for j, f in enumerate(factors):
        carry = literal_of(0, dtypes.uint64, span.shape)
        for i, digit in enumerate(digits):
            total = lax.add(lax.add(lax.mul(digit, f), product[i + j]), carry)
            product[i + j], carry = lax.bitwise_and(total, mask), lax.shift_right_logical(total, 32)
        product[j + 4] = carry
    top = lax.bitwise_or(lax.shift_left(product[5], 32), product[4])
    return fnp.where(span == 0, lower, fnp.where(span > 1 << 32, top, remainder))


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
    Source: bit for bit `jax.random.bernoulli`, but for p of 16 bits, for which JAX draws as few as 8 bits: here it
            is compared in float32.
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
    return call_composite(
        _bernoulli, (checked, parameter_operand(p, aval.dtype)), broadcast_shape(name, shape, p=p), mode
    )


def _bernoulli(key: Array, p: Array, shape: Shape, mode: str) -> Array:
    dtype = dtypes.accumulated(p.dtype)
    wanted = fnp.broadcast_to(p, shape).astype(dtype)
    if mode == "low":
        return lax.lt(uniform_01(key, shape, dtype), wanted)
    both = uniform_01(key, (2, *shape), dtype)
    return lax.lt(both[1] * 2.0 ** -mantissa_bits(dtype), wanted - both[0])


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
    return call_composite(sample_signs, (check_key(name, key),), result_shape(name, shape), chosen)


def sample_signs(key: Array, shape: Shape, dtype: DType) -> Array:
    """Return `rademacher` inside a sampler."""
    heads = lax.lt(uniform_01(key, shape, dtypes.float32), 0.5).astype(dtype)
    return 2 * heads - 1


__all__ = ["bernoulli", "bits", "rademacher", "randint", "uniform"]
