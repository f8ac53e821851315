"""Discrete distributions. A draw is constant almost everywhere in its parameters, so gradients through it are zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from fxad import dtypes, lax, numpy as fnp
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError
from fxad.ir import Shape
from fxad.lax.sorting import top_k
from fxad.numpy.composites import call_composite
from fxad.numpy.creation import ShapeLike
from fxad.operations.arguments import flag, text
from fxad.operations.axes import normalize_axis_index
from fxad.random.arguments import (
    FLOATS,
    broadcast_shape,
    check_exact,
    check_fits,
    check_key,
    float_dtype,
    integer_dtype,
    parameter_operand,
    result_shape,
)
from fxad.random.cipher import literal_of, uniform_01
from fxad.random.continuous import gumbel_mode, sample_gumbel
from fxad.random.keys import split_keys
from fxad.random.rejection import FEW, deviance, repeat_until_accepted
from fxad.tracing.array import Array, ArrayLike, aval_of


def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: Sequence[int] | None = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Draw categories with probabilities proportional to exp(logits) along an axis.

    Type:   u32[2]; float logits of shape P but for the axis -> int32 of shape P, or one that ends in it. Without
            `replace`, what stands before P counts draws that differ from each other.
    Rule:   `mode` is that of `gumbel`.
    Source: the place of the greatest of logits plus `gumbel` noise, or of the greatest ones; bit for bit
            `jax.random.categorical`, but for logits of 16 bits, for which JAX draws noise of as few as 8 bits: here it
            is drawn and added in float32.
    Raises: DTypeError for logits that are not floating; AxisError; ShapeError for a shape that does not end in P;
            ParameterError for more draws than categories, without `replace`; ArgumentError for another mode.
    """
    mode = None if mode is None else text("random.categorical", "mode", mode)
    replace = flag("random.categorical", "replace", replace)
    name = "random.categorical"
    aval = aval_of(logits, f"{name}: logits")
    if aval.dtype not in FLOATS:
        raise DTypeError(f"{name}: logits must be floating, got {aval}", remedy="convert them with astype")
    at = normalize_axis_index(name, axis, aval.ndim)
    own = (*aval.shape[:at], *aval.shape[at + 1 :])
    sizes = own if shape is None else result_shape(name, shape)
    check_fits(name, sizes, "logits, but for the axis,", own)
    if aval.shape[at] == 0 and 0 not in sizes:
        raise ShapeError(f"{name}: logits {aval} have no category along axis {at}")
    operands = check_key(name, key), logits
    if replace:
        return call_composite(_categorical, operands, at, sizes, gumbel_mode(name, mode))
    lead = sizes[: len(sizes) - len(own)]
    if sizes[len(lead) :] != own:
        raise ShapeError(f"{name}: without replacement the shape {sizes} must end in the logits' own, {own}")
    if math.prod(lead) > aval.shape[at]:
        raise ParameterError(
            f"{name}: {math.prod(lead)} draws without replacement of {aval.shape[at]} categories",
            remedy="draw fewer, or with replace=True",
        )
    return call_composite(_categorical_distinct, operands, at, sizes, gumbel_mode(name, mode))


def _categorical(key: Array, logits: Array, axis: int, shape: Shape, mode: str) -> Array:
    lead = len(shape) - logits.ndim + 1
    own = list(shape[lead:])
    own.insert(axis, logits.shape[axis])
    logits = logits.astype(dtypes.accumulated(logits.dtype))
    noise = sample_gumbel(key, (*shape[:lead], *own), logits.dtype, mode)
    return fnp.argmax(noise + logits, axis=axis + lead)


def _categorical_distinct(key: Array, logits: Array, axis: int, shape: Shape, mode: str) -> Array:
    lead = shape[: len(shape) - logits.ndim + 1]
    logits = logits.astype(dtypes.accumulated(logits.dtype))
    noisy = logits + sample_gumbel(key, logits.shape, logits.dtype, mode)
    _, places = top_k(fnp.moveaxis(noisy, axis, -1), math.prod(lead))
    return fnp.moveaxis(places, -1, 0).reshape(shape)


# ---------------------------------------------------------------------------------------------------------- waiting


def geometric(key: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None, dtype: object = None) -> Array:
    """Draw the number of trials up to the first success of probability p: 1, 2, ...

    Type:   u32[2]; p in (0, 1] that broadcasts to `shape` -> integers (int32).
    Source: floor(log(u) / log(1 - p)) + 1; bit for bit `jax.random.geometric`, but for p of 16 bits: u is float32.
    Raises: DTypeError, ShapeError for p; DTypeError for a dtype that is not an integer; all for a key or a shape.
    """
    name = "random.geometric"
    chosen, drawn = integer_dtype(name, dtype), dtypes.accumulated(float_dtype(name, None, p=p))
    operands = check_key(name, key), parameter_operand(p, drawn)
    return call_composite(_geometric, operands, broadcast_shape(name, shape, p=p), chosen, drawn)


def _geometric(key: Array, p: Array, shape: Shape, dtype: DType, drawn: DType) -> Array:
    u = uniform_01(key, shape, drawn)
    u = fnp.where(u == 0, 1, u)
    scale = fnp.broadcast_to(lax.log1p(-lax.stop_gradient(p).astype(drawn)), shape)
    return (lax.floor(lax.log(u) / scale) + 1).astype(dtype)


def poisson(
    key: ArrayLike, lam: ArrayLike, shape: ShapeLike | None = None, dtype: object = None, *, method: str = "exact"
) -> Array:
    """Draw from the Poisson distribution with mean lam.

    Type:   u32[2]; lam >= 0 that broadcasts to `shape`, taken as float32 -> integers (int32).
    Cost:   a loop until the last element is done: about lam + 5 sqrt(lam) rounds below 10, some 10 above.
    Source: Knuth's method (The Art of Computer Programming 2, 3.4.1) below 10, above Hormann's transformed rejection
            with squeeze (The transformed rejection method for generating Poisson random variables, 1993); the draws of
            `jax.random.poisson` for lam < 4096, unless the rounding of lgamma decides a round: next to elements below
            10, which take part as 1e5, that is not rare. Above, JAX's log-probabilities cancel (the variance for 1e8
            is 1.46 times too large), and Loader's form is computed (Fast and Accurate Computation of Binomial
            Probabilities, 2000). An infinite lam gives the greatest integer.
    Raises: DTypeError, ShapeError for lam; DTypeError for a dtype that is not an integer; all for a key or a shape.
            ParameterError for a `method` but "exact".
    """
    check_exact("random.poisson", method)
    name = "random.poisson"
    chosen = integer_dtype(name, dtype)
    float_dtype(name, None, lam=lam)
    operands = check_key(name, key), parameter_operand(lam, dtypes.float32)
    return call_composite(_poisson, operands, broadcast_shape(name, shape, lam=lam), chosen)


def _poisson(key: Array, lam: Array, shape: Shape, dtype: DType) -> Array:
    lam = fnp.broadcast_to(lax.stop_gradient(lam).astype(dtypes.float32), shape)
    few = (lam != lam) | (lam < 10)
    small = _poisson_small(key, fnp.where(few, lam, 0), dtype)
    infinite = fnp.isinf(lam) & ~few
    # JAX's placeholder takes part in its rounds by the plain formula
    large = _poisson_large(key, fnp.where(few | infinite, 100000, lam), few | (lam < FEW), dtype)
    drawn = fnp.where(infinite, dtypes.RANGES[dtype][1], fnp.where(few, small, large))
    return fnp.where(lam == 0, 0, drawn)


_Counting: TypeAlias = tuple[Array, Array, Array]


def _poisson_small(key: Array, lam: Array, dtype: DType) -> Array:
    """Return the number of uniform numbers until their product is below exp(-lam), minus one."""

    def going(state: _Counting) -> Array:
        return (state[2] > -lam).any()

    def step(state: _Counting) -> _Counting:
        count, key, log = state
        following, drawn = split_keys(key, 2)
        count = fnp.where(log > -lam, count + 1, count)
        return count, following, log + lax.log(uniform_01(drawn, lam.shape, dtypes.float32))

    zero = literal_of(0, dtype, lam.shape)
    count, _, _ = lax.while_loop(going, step, (zero, key, literal_of(0, dtypes.float32, lam.shape)))
    return count - 1


def _poisson_large(key: Array, lam: Array, plain: Array, dtype: DType) -> Array:
    """Draw by transformed rejection for lam >= 10, with the constants and steps of algorithm PTRS. `plain` marks the
    elements whose log-probability is computed as there."""
    log_lam = lax.log(lam)
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def propose(u: Array, v: Array) -> tuple[Array, Array]:
        inside = 0.5 - abs(u)
        k = lax.floor((2 * a / inside + b) * u + lam + 0.43)
        s = lax.log(v * inverse_alpha / (a / (inside * inside) + b))
        # the terms of the plain formula cancel: they are larger than the sum by a factor of about lam
        exact = -deviance(k, lam) - 0.5 * lax.log(2 * math.pi * lax.max(k, literal_of(1, k.dtype, k.shape)))
        t = fnp.where(plain, -lam + k * log_lam - lax.lgamma(k + 1), exact - 1 / (12 * k + 12))
        squeezed = (inside >= 0.07) & (v <= v_r)
        refused = (k < 0) | ((inside < 0.013) & (v > inside))
        return k, squeezed | (~refused & (s <= t))

    return repeat_until_accepted(key, lam, propose).astype(dtype)


__all__ = ["categorical", "geometric", "poisson"]
