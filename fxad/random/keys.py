"""Keys: the source of randomness, and functions that derive keys from keys.

A key is a value, an array u32[2]. It can be passed, returned, mapped, carried and stored like any array. Equal keys
give equal numbers, so use each key once: `split` it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError, shown
from fxad.ir import Shape
from fxad.numpy.apply import as_array
from fxad.numpy.composites import call_composite
from fxad.primitives.random import THREEFRY2X32, THREEFRY2X32_LOOP, Threefry2x32
from fxad.random.arguments import check_key, result_shape
from fxad.random.cipher import threefry, threefry_counters
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar
from fxad.tracing.traced_numbers import number_array

THREEFRY: Final = "threefry2x32"


def key(seed: ArrayLike, *, impl: str | None = None) -> Array:
    """Return the key of an integer seed. `impl` is "threefry2x32", or None, which means it.

    Type:   an integer without axes -> u32[2]: the upper and the lower half of the seed as 64 bits. An array of 32 bits
            or fewer has no upper half (0); a lower half of fewer bits is filled up with its sign.
    Rule:   a Python int is an int32 where it fits into 32 bits, signed or not, and else an int64 or uint64: no bit of a
            seed is lost. `jax.random.key` gives the same data for seeds of 32 bits, and for wider ones under
            `jax_enable_x64`; without it JAX drops the upper half.
    Raises: ArgumentError, DTypeError, ShapeError, ParameterError (a seed of more than 64 bits, another generator).
    """
    _check_impl("random.key", impl)
    if isinstance(seed, bool | float | complex) and not isinstance(seed, np.generic):
        raise ArgumentError(f"random.key: a seed is an integer, got {shown(seed)}", remedy="convert it with int()")
    if isinstance(seed, int) and not isinstance(seed, np.generic):
        seed = _seed_array(seed)
    aval = aval_of(seed, "random.key: seed")
    if aval.dtype not in dtypes.INTEGER:
        raise DTypeError(f"random.key: a seed is an integer, got {aval}", remedy="convert it with astype")
    if aval.shape:
        remedy = "this is a key already" if aval.shape == (2,) else "map over seeds with fxad.vmap"
        raise ShapeError(f"random.key: a seed is one integer, got {aval}", remedy=remedy)
    return call_composite(_key, (seed,))


PRNGKey = key  # JAX's older name


def _check_impl(name: str, impl: object) -> None:
    """Raise ParameterError for an unknown generator."""
    if impl is not None and not (isinstance(impl, str) and impl == THREEFRY):
        raise ParameterError(
            f"{name}: the generator {shown(impl)} does not exist", remedy=f"use {THREEFRY!r}, the only one"
        )


def key_impl(keys: ArrayLike) -> str:
    """Return the name of the generator of keys: "threefry2x32"."""
    _check_keys("random.key_impl", keys)
    return THREEFRY


def _seed_array(seed: int) -> np.generic:
    if -(1 << 31) <= seed < 1 << 32:
        return np.uint32(seed % (1 << 32))
    if -(1 << 63) <= seed < 1 << 64:
        return np.uint64(seed % (1 << 64))
    raise ParameterError(f"random.key: the seed {seed} has more than 64 bits", remedy="take it modulo 2**64")


def _key(seed: Array) -> Array:
    if seed.dtype.itemsize == 8:
        bits = lax.bitcast_convert_type(seed, dtypes.uint64)
        high = lax.convert_element_type(lax.shift_right_logical(bits, 32), dtypes.uint32)
        low = lax.convert_element_type(lax.bitwise_and(bits, 0xFFFFFFFF), dtypes.uint32)
    else:
        # a number of a traced function becomes an int32 here, as outside: a uint32 has no -1
        high, low = lax.full((), 0, dtypes.uint32), seed
        if seed.dtype is dtypes.int32:
            low = lax.bitcast_convert_type(seed, dtypes.uint32)
        low = lax.convert_element_type(low, dtypes.uint32)
    return fnp.stack([high, low])


def split(key: ArrayLike, num: int | Sequence[int] = 2) -> Array:
    """Derive new keys from a key. They are independent of each other and of it.

    Type:   u32[2] -> u32[num,2]; for a shape `num`, u32[*num,2].
    Source: the key encrypts the counters 0, 1, 2, ...; bit for bit `jax.random.split`.
    Raises: ArgumentError, DTypeError, ShapeError for what is not a key; ShapeError for a shape that is none.
    """
    sizes = result_shape("random.split", num)
    return call_composite(split_to_shape, (check_key("random.split", key),), sizes)


def split_to_shape(key: Array, shape: Shape) -> Array:
    """Return `split` inside a sampler."""
    return _split(key, shape, THREEFRY2X32_LOOP)


def split_keys(key: Array, num: int) -> list[Array]:
    """Return `split` inside a sampler: a list of the new keys. For keys u32[...,2], each new key has that shape."""
    # a loop of rounds keeps XLA from copying the cipher into each kernel that reads a new key; for keys of all elements
    # it would take longer than the copies do: the straight-line form runs 3 times as fast.
    pairs = _split(key, (num,), THREEFRY2X32_LOOP if key.ndim == 1 else THREEFRY2X32)
    return [pairs[..., k, :] for k in range(num)]


def _split(key: Array, shape: Shape, prim: Threefry2x32) -> Array:
    return fnp.stack(threefry_counters(key, shape, prim), -1)


def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """Derive a key from a key and a number, such as a step count.

    Type:   u32[2], an integer without axes -> u32[2]; of the integer the lower 32 bits count.
    Law:    fold_in(key, k) == split(key, n)[k] for k < n: of one key, take keys by one of the two only.
    Source: the key encrypts the number; bit for bit `jax.random.fold_in`.
    Raises: ArgumentError, DTypeError, ShapeError; ParameterError for a Python int below 0 or of more than 32 bits.
    """
    checked = check_key("random.fold_in", key)
    if is_scalar(data):
        if not isinstance(data, int):
            raise ArgumentError(
                f"random.fold_in: data is an integer, got {shown(data)}", remedy="convert it with int()"
            )
        if data < 0:
            remedy = "fold in a number from 0 to 2**32 - 1: below 0 it would give the key of another number"
            raise ParameterError(f"random.fold_in: data {data} is below 0", remedy=remedy)
        if not data < 1 << 32:
            remedy = "fold in the halves of the number one after the other"
            raise ParameterError(f"random.fold_in: data {data} has more than 32 bits", remedy=remedy)
        data = number_array(data, dtypes.uint32)
    aval = aval_of(data, "random.fold_in: data")
    if aval.dtype not in dtypes.INTEGER:
        raise DTypeError(f"random.fold_in: data is an integer, got {aval}", remedy="convert it with astype")
    if aval.shape:
        raise ShapeError(f"random.fold_in: data is one integer, got {aval}", remedy="map over it with fxad.vmap")
    return call_composite(_fold_in, (checked, data))


def _fold_in(key: Array, data: Array) -> Array:
    low = lax.convert_element_type(data, dtypes.uint32)
    return fnp.stack(threefry(key, lax.full((), 0, dtypes.uint32), low, THREEFRY2X32_LOOP))


def key_data(keys: ArrayLike) -> Array:
    """Return the words of keys. In fxad a key is its words, so the keys themselves, checked.

    Type:   u32[...,2] -> u32[...,2].
    Raises: DTypeError, ShapeError for what are not keys.
    """
    return _check_keys("random.key_data", keys)


def wrap_key_data(key_bits_array: ArrayLike, *, impl: str | None = None) -> Array:
    """Return the keys with given words: the inverse of `key_data`.

    Type:   u32[...,2] -> u32[...,2].
    Raises: DTypeError, ShapeError for what are not keys.
    """
    _check_impl("random.wrap_key_data", impl)
    return _check_keys("random.wrap_key_data", key_bits_array)


def clone(key: ArrayLike) -> Array:
    """Return the same keys. It exists for programs that tell JAX's key-reuse checker that a reuse is intended."""
    return _check_keys("random.clone", key)


def _check_keys(name: str, keys: ArrayLike) -> Array:
    aval = aval_of(keys, f"{name}: keys")
    if aval.dtype != dtypes.uint32:
        raise DTypeError(f"{name}: keys are u32[...,2], got {aval}", remedy="make keys with fxad.random.key and split")
    if aval.shape[-1:] != (2,):
        raise ShapeError(f"{name}: keys are u32[...,2], got {aval}", remedy="make keys with fxad.random.key and split")
    return as_array(name, keys)


__all__ = ["PRNGKey", "clone", "fold_in", "key", "key_data", "key_impl", "split", "wrap_key_data"]
