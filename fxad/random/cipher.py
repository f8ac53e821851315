"""Bits from keys by a cipher in counter mode (Threefry).

Element k of a draw is the counter k, 64 bits of it, encrypted under the key. So an element depends on the key and its
own place only, which makes draws independent of how they are batched, split over devices or fused.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Final

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.dtypes import DType
from fxad.ir import Aval, Lit, Shape
from fxad.lax.creation import splat
from fxad.primitives.random import THREEFRY2X32, Threefry2x32
from fxad.tracing.array import Array
from fxad.tracing.tracer import bind


def threefry(keys: Array, high: Array, low: Array, prim: Threefry2x32 = THREEFRY2X32) -> tuple[Array, Array]:
    """Encrypt counters of two words under keys u32[...,2], one key for all or one for each. Return two words for
    each."""
    words = [fnp.broadcast_to(keys[..., k], high.shape) for k in range(2)]
    first, second = bind(prim, *words, high, low)
    return first, second


def threefry_counters(keys: Array, shape: Shape, prim: Threefry2x32 = THREEFRY2X32) -> tuple[Array, Array]:
    """Encrypt the counters 0, 1, 2, ... in row-major order under each key. Return shape (*keys, *shape)."""
    size, every = Aval(shape, dtypes.uint32).size, (*keys.shape[:-1], *shape)
    keys = lax.expand_dims(keys, range(keys.ndim - 1, keys.ndim - 1 + len(shape))) if keys.ndim > 1 else keys
    zero = literal_of(0, dtypes.uint32, every)
    if size == 1:
        return threefry(keys, zero, zero, prim)
    if size <= 1 << 32:
        low = _shaped(lax.iota(dtypes.uint32, size), shape)
        return threefry(keys, zero, fnp.broadcast_to(low, every), prim)
    count = _shaped(lax.iota(dtypes.uint64, size), shape)
    high = lax.convert_element_type(lax.shift_right_logical(count, 32), dtypes.uint32)
    low = lax.convert_element_type(count, dtypes.uint32)
    return threefry(keys, fnp.broadcast_to(high, every), fnp.broadcast_to(low, every), prim)


def _shaped(x: Array, shape: Shape) -> Array:
    return x if x.shape == shape else lax.reshape(x, shape)


def random_bits(key: Array, shape: Shape, dtype: DType) -> Array:
    """Return uniform bits of an unsigned dtype. For keys u32[...,2] this function and those below draw `shape` for each
    key."""
    high, low = threefry_counters(key, shape)
    if dtype.itemsize == 8:
        upper = lax.shift_left(lax.convert_element_type(high, dtype), 32)
        return lax.bitwise_or(upper, lax.convert_element_type(low, dtype))
    mixed = lax.bitwise_xor(high, low)
    return mixed if dtype == dtypes.uint32 else lax.convert_element_type(mixed, dtype)


UNSIGNED: Final = MappingProxyType({1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64})


def mantissa_bits(dtype: DType) -> int:
    """Return the number of mantissa bits that a float stores."""
    return int(-np.log2(float(fnp.finfo(dtype).eps)))


def uniform_01(key: Array, shape: Shape, dtype: DType) -> Array:
    """Return uniform floats in [0, 1): random bits as the mantissa of a float in [1, 2), minus 1."""
    fraction, width = mantissa_bits(dtype), 8 * dtype.itemsize
    drawn = width if fraction >= 8 else 8  # bfloat16 needs no more than 8 bits, and jax draws no more
    word = UNSIGNED[dtype.itemsize]
    bits = random_bits(key, shape, UNSIGNED[drawn // 8])
    if drawn != width:
        bits = lax.convert_element_type(bits, word)
    one = int(np.ones((), dtype).view(word))
    exponent = lax.bitwise_or(lax.shift_right_logical(bits, drawn - fraction), one)
    return lax.sub(lax.bitcast_convert_type(exponent, dtype), 1)


def uniform_between(key: Array, low: Array, high: Array, shape: Shape, dtype: DType) -> Array:
    """Return uniform floats in [low, high), for bounds that broadcast to the shape."""
    u = uniform_01(key, shape, dtype)
    span, low = fnp.broadcast_to(high - low, u.shape), fnp.broadcast_to(low, u.shape)
    return lax.max(low, lax.add(lax.mul(u, span), low))


def uniform_between_scalars(key: Array, low: object, high: object, shape: Shape, dtype: DType) -> Array:
    """Return `uniform_between` for bounds that are Python numbers."""
    return uniform_between(key, literal_of(low, dtype), literal_of(high, dtype), shape, dtype)


def adjacent_float(x: Array, up: bool) -> Array:
    """Return the next float above or below x."""
    end = literal_of(math.inf if up else -math.inf, x.dtype)
    if x.dtype.itemsize > 2:
        return fnp.nextafter(x, end)
    # floats of one sign are ordered as their bits are
    word = UNSIGNED[x.dtype.itemsize]
    bits = lax.bitcast_convert_type(x, word)
    grown = (x > 0) if up else (x < 0)
    least = 1 if up else 1 + (1 << (8 * x.dtype.itemsize - 1))
    stepped = fnp.where(x == 0, least, fnp.where(grown, bits + 1, bits - 1))
    return fnp.where((x == end) | (x != x), x, lax.bitcast_convert_type(stepped, x.dtype))


def literal_of(value: object, dtype: DType, shape: Shape = ()) -> Array:
    """Return a Python number of any dtype as a literal."""
    return splat(Lit.of(value, Aval(shape, dtype)))
