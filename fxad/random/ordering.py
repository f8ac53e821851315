"""Random permutations and choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fxad import dtypes, lax, numpy as fnp
from fxad.core.sizes.size import Size, dimension, minimum
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError, shown
from fxad.ir import Shape
from fxad.lax.cumulative import cumsum
from fxad.lax.sorting import sort_key_val, top_k
from fxad.numpy.composites import call_composite
from fxad.operations.arguments import flag
from fxad.operations.axes import normalize_axis_index
from fxad.random.arguments import check_key, float_dtype, result_shape
from fxad.random.cipher import random_bits, uniform_01
from fxad.random.continuous import gumbel_mode, sample_gumbel
from fxad.random.keys import split_keys
from fxad.random.uniforms import sample_randint
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar


def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0, independent: bool = False) -> Array:
    """Return the slices of x along an axis in random order; for an int x, the numbers 0, ..., x - 1 (int32).

    Type:   u32[2]; an array or an int -> the same type.
    Rule:   `independent` draws an order of its own for each vector along the axis. Differentiable in x.
    Cost:   sorts by random keys of 32 bits, as often as makes equal keys unlikely: once up to 1,625 elements.
    Source: bit for bit `jax.random.permutation`.
    Raises: AxisError; ArgumentError for a number that is not an int; ArgumentError, DTypeError, ShapeError for a key.
    """
    independent = flag("random.permutation", "independent", independent)
    name = "random.permutation"
    checked = check_key(name, key)
    count = _int_argument(name, "x", x)
    if count is not None:
        normalize_axis_index(name, axis, 1)
        return call_composite(_permute_range, (checked,), count)
    at = normalize_axis_index(name, axis, aval_of(x).ndim)
    return call_composite(_permuted, (checked, x), at, bool(independent))


def _int_argument(op: str, what: str, x: ArrayLike) -> int | None:
    """Return the number that an argument of shape () stands for; None for an array with axes."""
    if is_scalar(x) and (isinstance(x, bool) or not isinstance(x, int)):
        raise ArgumentError(f"{op}: {what} must be an int or an array with axes, got {shown(x)}")
    aval = aval_of(x, f"{op}: {what}")
    if aval.shape:
        return None
    if aval.dtype not in dtypes.INTEGER:
        raise DTypeError(f"{op}: {what} must be an int or an array with axes, got {aval}")
    count = dimension(x)
    if count < 0:
        raise ParameterError(f"{op}: {what} must not be negative, got {count}")
    return count


def _permute_range(key: Array, count: int) -> Array:
    return _shuffled(key, fnp.arange(count), 0)


def _permuted(key: Array, x: Array, axis: int, independent: bool) -> Array:
    if independent or x.ndim == 1:
        return _shuffled(key, x, axis)
    return fnp.take(x, _permute_range(key, x.shape[axis]), axis=axis, mode="promise_in_bounds")


# the numbers of elements up to which 0, 1 and 2 rounds are enough
_SORTED_BY: Final = tuple([int((2**32 - 1) ** (rounds / 3)) for rounds in range(3)])


def _shuffled(key: Array, x: Array, axis: int) -> Array:
    """Return x sorted by random keys. With r rounds two permutations collide with a probability of about size^(2 - 3r)
    or less. For a symbolic size the rounds are the steps of a loop."""

    def sort_once(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        key, x = state
        key, drawn = split_keys(key, 2)
        return (key, sort_key_val(random_bits(drawn, x.shape, dtypes.uint32), x, axis)[1]), None

    state = key, x
    if type(x.size) is Size:
        rounds = sum([minimum(x.size // (most + 1), 1) for most in _SORTED_BY])
        return lax.scan(sort_once, state, None, length=rounds)[0][1]
    for _ in range(math.ceil(3 * math.log(max(1, x.size)) / math.log(2**32 - 1))):
        state, _ = sort_once(state, None)
    return state[1]


def choice(
    key: ArrayLike,
    a: ArrayLike,
    shape: Sequence[int] = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Return random slices of an array along an axis; for an int a, numbers from 0, ..., a - 1 (int32).

    Type:   u32[2]; an array or an int; p, one weight for each slice, of sum 1 -> the array with `shape` in place of the
            axis.
    Rule:   without `replace` all differ. `mode` is that of `gumbel`, which is drawn for weights without `replace`.
    Source: up to rounding of running sums of p, `jax.random.choice`, but for p of 16 bits, which is summed and drawn in
            float32.
    Raises: ParameterError where there is nothing to choose from, or not enough; ShapeError, DTypeError for p;
            AxisError; ArgumentError, DTypeError, ShapeError for a key or a shape.
    """
    replace = flag("random.choice", "replace", replace)
    name = "random.choice"
    checked, sizes = check_key(name, key), result_shape(name, shape)
    count = _int_argument(name, "a", a)
    at = normalize_axis_index(name, axis, 1 if count is not None else aval_of(a).ndim)
    among, draws = aval_of(a).shape[at] if count is None else count, math.prod(sizes)
    if draws != 0 and among == 0:
        raise ParameterError(f"{name}: there is nothing to choose {draws} elements from")
    if not replace and draws > among:
        raise ParameterError(
            f"{name}: {draws} draws without replacement of {among} elements", remedy="draw fewer, or with replace=True"
        )
    if p is None:
        drawn = call_composite(_choose_indices, (checked,), among, sizes, bool(replace))
    else:
        float_dtype(name, None, p=p)
        if aval_of(p, f"{name}: p").shape != (among,):
            raise ShapeError(f"{name}: p must have one weight for each of {among} elements, got {aval_of(p)}")
        drawn = call_composite(_choose_weighted, (checked, p), sizes, bool(replace), gumbel_mode(name, mode))
    return drawn if count is not None else call_composite(_take_along, (a, drawn), at)


def _take_along(a: Array, places: Array, axis: int) -> Array:
    return fnp.take(a, places, axis=axis, mode="promise_in_bounds")


def _choose_indices(key: Array, among: int, shape: Shape, replace: bool) -> Array:
    if among == 0:
        return fnp.zeros(shape, dtypes.int32)
    if replace:
        return sample_randint(key, fnp.zeros((), dtypes.int32), fnp.full((), among, dtypes.int32), shape, dtypes.int32)
    return _permute_range(key, among)[: math.prod(shape)].reshape(shape)


def _choose_weighted(key: Array, p: Array, shape: Shape, replace: bool, mode: str) -> Array:
    p = lax.stop_gradient(p).astype(dtypes.accumulated(fnp.result_type(p, 1.0)))  # 16 bits have too few random ones
    if not replace:
        noisy = sample_gumbel(key, p.shape, p.dtype, mode) + lax.log(p)
        return top_k(noisy, math.prod(shape))[1].reshape(shape)
    if p.size == 0:
        return fnp.zeros(shape, dtypes.int32)
    totals = cumsum(p)
    return _count_below(totals, totals[-1] * (1 - uniform_01(key, shape, p.dtype)))


def _count_below(totals: Array, x: Array) -> Array:
    """Return the number of ascending totals below each x, by bisection."""
    (count,) = totals.shape
    if type(count) is Size:  # the number of rounds is not known
        return fnp.minimum(fnp.searchsorted(totals, x), fnp.asarray(count) - 1)
    position = fnp.zeros(x.shape, dtypes.int32)
    for bit in reversed(range(count.bit_length())):
        further = position + (1 << bit)
        below = fnp.take(totals, fnp.clip(further - 1, 0, count - 1), axis=0, mode="promise_in_bounds") < x
        position = fnp.where((further <= count) & below, further, position)
    return fnp.clip(position, 0, max(count - 1, 0))


__all__ = ["choice", "permutation"]
