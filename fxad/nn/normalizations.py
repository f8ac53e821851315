"""Normalizations: softmax, logsumexp, standardization, one-hot encoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.errors import DTypeError
from fxad.numpy.apply import as_array, as_inexact_array
from fxad.numpy.composites import jit_composite
from fxad.numpy.creation import Nested, nested_array
from fxad.operations.arguments import flag, to_int, word
from fxad.operations.axes import AxisLike, normalize_axes, normalize_axis_index
from fxad.primitives.reduce import extreme_value
from fxad.primitives.softmax import LogSoftmax, Softmax
from fxad.tracing.array import Array, ArrayLike, binder


def softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Return exp(x) / sum(exp(x)) over axes, without overflow; nan if the greatest element is infinite.

    Rule:   elements outside `where` are ignored and have weight 0. If all are outside, all weights are 0. The slope of
            a component y is y (1 - y), with the digits that 1 - y has where y is close to 1; `log_softmax` keeps all.
    """
    array = as_inexact_array("softmax", x)
    axes = normalize_axes("softmax", axis, array.ndim)
    if where is None:
        return binder().bind(Softmax(axes), (array,))[0]
    return jit_composite(_softmax_where, array, as_array("softmax", where, 2), axes)


def _softmax_where(x: Array, where: Array, axes: tuple[int, ...]) -> Array:
    where = fnp.broadcast_to(where, x.shape)
    y = binder().bind(Softmax(axes), (_mask_out(x, where, axes),))[0]
    return fnp.where(where, y, 0)


def _mask_out(x: Array, where: Array, axes: tuple[int, ...]) -> Array:
    """Return x with `_log_of_zero` outside `where`; zeros if all are outside, so that neither values nor derivatives
    are nan."""
    some = fnp.any(where, axis=axes, keepdims=True)
    return fnp.where(some, fnp.where(where, x, _log_of_zero(x)), 0)


def log_softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Return log(softmax(x)), without underflow; -inf outside `where`."""
    array = as_inexact_array("log_softmax", x)
    axes = normalize_axes("log_softmax", axis, array.ndim)
    if where is None:
        return binder().bind(LogSoftmax(axes), (array,))[0]
    return jit_composite(_log_softmax_where, array, as_array("log_softmax", where, 2), axes)


def _log_softmax_where(x: Array, where: Array, axes: tuple[int, ...]) -> Array:
    where = fnp.broadcast_to(where, x.shape)
    y = binder().bind(LogSoftmax(axes), (_mask_out(x, where, axes),))[0]
    return fnp.where(where, y, _log_of_zero(x))


def _stop_gradient_max(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the greatest element over axes as a constant of differentiation; -inf over no elements."""
    top = lax.reduce_max(lax.stop_gradient(x), axes)
    return fnp.expand_dims(top, axes) if axes else top


@overload
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: ArrayLike | None = None,
) -> Array: ...
@overload
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...
def logsumexp(
    a: ArrayLike,
    axis: AxisLike = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Array | tuple[Array, Array]:
    """Return log(sum(b * exp(a))) over axes, without overflow; -inf if all elements are -inf.

    Type:   `b` are factors, by default 1; elements outside `where` are ignored. `return_sign` returns the logarithm of
            the absolute value of the sum, and its sign; without it the result is nan for a negative sum. Of complex
            numbers it is the principal logarithm, and the sign is the sum over its absolute value.
    Rule:   the derivative is 0 if no element is summed, and nan at an infinite element (`logaddexp` has a slope there).
    """
    return_sign = flag("logsumexp", "return_sign", return_sign)
    keepdims = flag("logsumexp", "keepdims", keepdims)
    array = as_inexact_array("logsumexp", a)
    factors: Array | None = None
    if b is not None:  # the exponentials are computed in the dtype of the result
        wide = fnp.promote_types(array.dtype, as_inexact_array("logsumexp", b, 2).dtype)
        array, factors = as_array("logsumexp", a).astype(wide), as_array("logsumexp", b, 2).astype(wide)
    if where is not None:
        array = jit_composite(_where_argument, array, as_array("logsumexp", where, 5))
    if factors is not None:
        shape = fnp.broadcast_shapes(array.shape, factors.shape)
        array, factors = fnp.broadcast_to(array, shape), fnp.broadcast_to(factors, shape)
        axes = normalize_axes("logsumexp", axis, array.ndim)
        if array.dtype in dtypes.COMPLEX:
            return _complex_results(array, factors, axes, keepdims, return_sign)
        sign = jit_composite(_sign_of_weighted, array, factors, axes, keepdims)
        magnitude = jit_composite(_weighted_logsumexp, array, factors, axes, keepdims)
        return (magnitude, sign) if return_sign else fnp.where(sign < 0, fnp.nan, magnitude)
    axes = normalize_axes("logsumexp", axis, array.ndim)
    if array.dtype in dtypes.COMPLEX:
        return _complex_results(array, None, axes, keepdims, return_sign)
    out = jit_composite(_logsumexp, array, axes, keepdims)
    return (out, jit_composite(_sign_of_positive, out)) if return_sign else out


def logmeanexp(x: ArrayLike, axis: AxisLike = None, where: ArrayLike | None = None, keepdims: bool = False) -> Array:
    """Return log(mean(exp(x))) over axes, without overflow, of the elements where `where` is true."""
    array = as_inexact_array("logmeanexp", x)
    chosen = fnp.broadcast_to(True if where is None else as_array("logmeanexp", where, 2), array.shape)
    count = fnp.sum(chosen, axis=axis, keepdims=keepdims).astype(dtypes.accumulated(array.dtype))
    return logsumexp(array, axis, keepdims=keepdims, where=where) - fnp.log(count).astype(array.dtype)


def _where_argument(x: Array, where: Array) -> Array:
    return fnp.where(where, x, _log_of_zero(x))


def _log_of_zero(x: Array) -> float:
    """Return the logarithm of 0 in the dtype of x: -inf, or the least number of an 8-bit dtype without infinities."""
    return float(extreme_value(x.dtype, -1).value) if x.dtype in dtypes.FLOATING else -fnp.inf


def _complex_results(
    x: Array, b: Array | None, axes: tuple[int, ...], keepdims: bool, return_sign: bool
) -> Array | tuple[Array, Array]:
    if not return_sign:
        return jit_composite(_complex_logsumexp, x, b, axes, keepdims)
    size, sign = [jit_composite(f, x, b, axes, keepdims) for f in (_log_of_size, _complex_sign)]
    return size, sign


def _complex_sum(x: Array, b: Array | None, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, Array]:
    """Return the sum of b * exp(x - top), and top, which is real."""
    if b is not None:
        x = fnp.where(b == 0, -fnp.inf, x)
    top = _finite_shift(_stop_gradient_max(x.real, axes))
    terms = fnp.exp(x - top)
    total = (terms if b is None else b * terms).sum(axes, keepdims=True)
    return (total, top) if keepdims else (total.squeeze(axes), top.squeeze(axes))


def _complex_logsumexp(x: Array, b: Array | None, axes: tuple[int, ...], keepdims: bool) -> Array:
    total, top = _complex_sum(x, b, axes, keepdims)
    return fnp.where(total == 0, -fnp.inf, fnp.log(fnp.where(total == 0, 1, total)) + top).astype(x.dtype)


def _log_of_size(x: Array, b: Array | None, axes: tuple[int, ...], keepdims: bool) -> Array:
    total, top = _complex_sum(x, b, axes, keepdims)
    return fnp.where(total == 0, -fnp.inf, fnp.log(fnp.abs(fnp.where(total == 0, 1, total))) + top)


def _complex_sign(x: Array, b: Array | None, axes: tuple[int, ...], keepdims: bool) -> Array:
    return fnp.sign(_complex_sum(x, b, axes, keepdims)[0])


def _logsumexp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    top = _stop_gradient_max(x, axes)
    total = _wide(fnp.exp(x - _finite_shift(top))).sum(axes, keepdims=True)
    # the greatest element adds exp(0) = 1, so a total below 1 is that of no elements, or of -inf alone. The result is
    # then log(1) + top = -inf, and its derivative that of the constant 1
    out = fnp.log(fnp.where(total < 1, 1, total)) + fnp.where(top == fnp.inf, 0, top)
    return (out if keepdims else out.squeeze(axes)).astype(x.dtype)


def _wide(x: Array) -> Array:
    """Return terms of a sum in the dtype in which they are added: float16 cannot hold the sum of 70,000 ones."""
    return x.astype(dtypes.accumulated(x.dtype))


def _finite_shift(top: Array) -> Array:
    """Return the number to subtract from exponents: `top`, or 0 for an infinity, which would give nan."""
    return fnp.where(fnp.isfinite(top), top, 0)


def _sign_of_positive(out: Array) -> Array:
    return fnp.where(out == -fnp.inf, 0, fnp.where(fnp.isnan(out), out, 1)).astype(out.dtype)


def _weighted_sum_exp(x: Array, b: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the sum of b * exp(x - top), and top."""
    x = fnp.where(b == 0, _log_of_zero(x), x)  # 0 times infinity has no part either
    top = _finite_shift(_stop_gradient_max(x, axes))
    return (_wide(b) * _wide(fnp.exp(x - top))).sum(axes, keepdims=True), top


def _weighted_logsumexp(x: Array, b: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    total, top = _weighted_sum_exp(x, b, axes)
    size = fnp.abs(fnp.where(total == 0, 1, total))
    out = fnp.where(total == 0, -fnp.inf, fnp.log(size) + top).astype(fnp.promote_types(x.dtype, b.dtype))
    return out if keepdims else out.squeeze(axes)


def _sign_of_weighted(x: Array, b: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    sign = fnp.sign(_weighted_sum_exp(x, b, axes)[0]).astype(fnp.promote_types(x.dtype, b.dtype))
    return sign if keepdims else sign.squeeze(axes)


def standardize(
    x: ArrayLike,
    axis: AxisLike = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
    algorithm: str = "fast",
) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon). Mean and variance over axes are computed unless given.

    Type:   a given mean or variance broadcasts to x. Elements outside `where` are ignored in both. `algorithm` is
            "fast" or "stable": both are stable here.
    Raises: ParameterError for another algorithm.
    """
    word("standardize", "algorithm", algorithm, ("fast", "stable"))
    array = as_inexact_array("standardize", x)
    axes = normalize_axes("standardize", axis, array.ndim)
    kept = None if where is None else as_array("standardize", where, 5)
    center = None if mean is None else as_array("standardize", mean, 2)
    spread = None if variance is None else as_array("standardize", variance, 3)
    return jit_composite(_standardize, array, axes, center, spread, epsilon, kept)


def _standardize(
    x: Array, axes: tuple[int, ...], mean: Array | None, variance: Array | None, epsilon: ArrayLike, where: Array | None
) -> Array:
    wide = x.astype(dtypes.accumulated(x.dtype))
    kept = wide if where is None else fnp.where(where, wide, 0)
    center = _mean(kept, axes, where) if mean is None else mean
    if variance is None:
        off = kept - center
        variance = _mean(fnp.real(off * fnp.conj(off)) if off.dtype in dtypes.COMPLEX else fnp.square(off), axes, where)
    inverse = lax.rsqrt(variance + epsilon)
    out = apply_around(lambda x: (x - center) * inverse, wide, where)
    return out if wide.dtype == x.dtype else out.astype(x.dtype)


def apply_around(f: Callable[[Array], Array], x: Array, where: Array | None) -> Array:
    """Return f(x), for an elementwise f whose parameters do not depend on the elements outside `where`.

    An infinity or nan outside has a value of f, and no derivative: a cotangent of 0 times the element would be nan in
    the parameters, and so in all derivatives.
    """
    if where is None:
        return f(x)
    infinite = fnp.where(where, False, ~fnp.isfinite(x))
    return fnp.where(infinite, lax.stop_gradient(f(x)), f(fnp.where(infinite, 0, x)))


def _mean(x: Array, axes: tuple[int, ...], where: Array | None) -> Array:
    """Return the mean of the elements inside `where`; nan if there are none. That of `fxad.nn.norms` is 0 then."""
    if where is None:
        return x.mean(axes, keepdims=True)
    where = fnp.broadcast_to(where, x.shape)
    return fnp.where(where, x, 0).sum(axes, keepdims=True) / where.astype(x.dtype).sum(axes, keepdims=True)


def one_hot(x: Nested, num_classes: int, *, dtype: object = float, axis: int = -1) -> Array:
    """Return 1 at the position x along a new axis of size `num_classes`, 0 elsewhere; all 0 if x is out of range."""
    num_classes = to_int("one_hot", "num_classes", num_classes)
    array = nested_array("one_hot", x)
    if array.dtype not in dtypes.INTEGER:
        raise DTypeError(f"one_hot: takes integers, got {array.aval}")
    k = normalize_axis_index("one_hot", axis, array.ndim + 1)
    return jit_composite(_one_hot, array, num_classes, k, dtypes.as_dtype(dtype))


def _one_hot(x: Array, num_classes: int, axis: int, dtype: dtypes.DType) -> Array:
    shape = (*x.shape[:axis], num_classes, *x.shape[axis:])
    # counted in a dtype that holds every class: 300 classes of uint8 are not 44
    wide = x.dtype if x.dtype.itemsize >= 4 else dtypes.int32
    places = lax.broadcasted_iota(wide, shape, axis)
    return (fnp.expand_dims(x.astype(wide), axis) == places).astype(dtype)
