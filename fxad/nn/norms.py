"""Layers that bring mean and variance to 0 and 1: layer, RMS, group and batch normalization.

Statistics are computed at least in float32: squares of float16 overflow from 256 on. The variance is the mean of
squared distances from the mean, not the difference of two large numbers. The dtype of the result is the common one of
the input, the scale and the bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.core.trees import classes as tree_classes
from fxad.dtypes import DType
from fxad.errors import ParameterError, ShapeError
from fxad.ir import Shape
from fxad.lax.parallel import AxisName, named_axes
from fxad.nn.normalizations import apply_around
from fxad.numpy.apply import as_array
from fxad.numpy.composites import jit_composite, jit_composite_all
from fxad.operations.arguments import flag, number, to_int
from fxad.operations.axes import normalize_axes, normalize_axis_index
from fxad.operations.promotion import to_inexact_dtype
from fxad.primitives.axes import other_axes
from fxad.primitives.collectives import AxisNames, Sizes
from fxad.tracing.array import Array, ArrayLike, is_scalar


def layer_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + bias, with mean and variance over `axis`.

    Type:   scale and bias have the shape of the axes that are normalized, or (). Elements outside `where` are ignored
            in mean and variance.
    Raises: ShapeError, AxisError.
    Source: Ba, Kiros and Hinton, Layer Normalization, https://arxiv.org/abs/1607.06450
    """
    array, dtype = _input("layer_norm", x, scale, bias)
    axes = normalize_axes("layer_norm", axis, array.ndim)
    s, b = _parameters("layer_norm", array, axes, scale, bias)
    kept = _where("layer_norm", array, where)
    return jit_composite(_layer_norm, array, s, b, axes, epsilon, kept, dtype)


def _layer_norm(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    axes: tuple[int, ...],
    epsilon: ArrayLike,
    where: Array | None,
    dtype: DType,
) -> Array:
    wide = x.astype(dtypes.accumulated(dtype))
    mean, variance = _moments(wide, axes, where)
    inverse = lax.rsqrt(variance + epsilon)
    return apply_around(lambda x: _affine((x - mean) * inverse, scale, bias), wide, where).astype(dtype)


def rms_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: ArrayLike = 1e-6,
    where: ArrayLike | None = None,
) -> Array:
    """Return x / sqrt(mean(x**2) + epsilon) * scale, with the mean over `axis`.

    Type:   the scale has the shape of the axes that are normalized, or (). Elements outside `where` are ignored in the
            mean.
    Raises: ShapeError, AxisError.
    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, https://arxiv.org/abs/1910.07467
    """
    array, dtype = _input("rms_norm", x, scale)
    axes = normalize_axes("rms_norm", axis, array.ndim)
    (s,) = _parameters("rms_norm", array, axes, scale)
    return jit_composite(_rms_norm, array, s, axes, epsilon, _where("rms_norm", array, where), dtype)


def _rms_norm(
    x: Array, scale: Array | None, axes: tuple[int, ...], epsilon: ArrayLike, where: Array | None, dtype: DType
) -> Array:
    wide = x.astype(dtypes.accumulated(dtype))
    square = _mean(_abs_square(_zero_outside(wide, where)), axes, where)
    inverse = lax.rsqrt(square + epsilon)
    return apply_around(lambda x: _affine(x * inverse, scale, None), wide, where).astype(dtype)


def group_norm(
    x: ArrayLike,
    num_groups: int,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    channel_axis: int = -1,
    batch_axes: int | Sequence[int] = 0,
    epsilon: ArrayLike = 1e-5,
) -> Array:
    """Return x with mean 0 and variance 1 in each group of neighbouring channels, times scale, plus bias.

    Type:   statistics are over the channels of a group and over all axes but `batch_axes`; `batch_axes=()` is for one
            example. `num_groups` divides the number of channels. scale and bias have one element for each channel, or
            the shape (). One group is a layer norm of all features, a group for each channel an instance norm.
    Raises: ShapeError, ParameterError, AxisError.
    Source: Wu and He, Group Normalization, https://arxiv.org/abs/1803.08494
    """
    array, dtype = _input("group_norm", x, scale, bias)
    channel = normalize_axis_index("group_norm", channel_axis, array.ndim)
    batch = normalize_axes("group_norm", batch_axes, array.ndim)
    num_groups = to_int("group_norm", "num_groups", num_groups)
    if channel in batch:
        raise ParameterError(
            f"group_norm: axis {channel} is the channel axis and a batch axis",
            remedy="pass batch_axes=() for one example without a batch axis",
        )
    if num_groups < 1 or array.shape[channel] % num_groups != 0:
        raise ParameterError(
            f"group_norm: num_groups {num_groups} does not divide the {array.shape[channel]} channels of {array.aval}",
            remedy="give a divisor of the number of channels",
        )
    s, b = _parameters("group_norm", array, (channel,), scale, bias)
    return jit_composite(_group_norm, array, s, b, num_groups, channel, batch, epsilon, dtype)


def _group_norm(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    groups: int,
    channel: int,
    batch: tuple[int, ...],
    epsilon: ArrayLike,
    dtype: DType,
) -> Array:
    shape = x.shape
    grouped = x.astype(dtypes.accumulated(dtype)).reshape(
        *shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]
    )
    kept = (channel, *[k + (k > channel) for k in batch])
    mean, variance = _moments(grouped, other_axes(kept, grouped.ndim), None)
    y = ((grouped - mean) * lax.rsqrt(variance + epsilon)).reshape(*shape)
    return _affine(y, scale, bias).astype(dtype)


@tree_classes.dataclass
class BatchStats:
    """The running mean and variance of the channels that `batch_norm` sees: a pytree of two arrays."""

    mean: Array
    var: Array

    @classmethod
    def init(cls, channels: int, dtype: object = dtypes.float32) -> BatchStats:
        """Return the statistics before the first step: mean 0 and variance 1."""
        count = to_int("BatchStats.init", "channels", channels)
        return cls(fnp.zeros(count, dtypes.as_dtype(dtype)), fnp.ones(count, dtypes.as_dtype(dtype)))


def batch_norm(
    x: ArrayLike,
    stats: BatchStats,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    training: bool,
    axis: int = -1,
    momentum: ArrayLike = 0.9,
    epsilon: ArrayLike = 1e-5,
    axis_name: AxisName | None = None,
    where: ArrayLike | None = None,
) -> tuple[Array, BatchStats]:
    """Return x with mean 0 and variance 1 in each channel, times scale, plus bias; and the running statistics.

    Type:   `axis` is the channel axis; statistics are over all others, and over the mapped axes `axis_name`. stats,
            scale and bias have one element for each channel; scale and bias may have the shape (). Elements outside
            `where` are ignored in the statistics.
    Rule:   with `training` the statistics are those of x, and the running ones become `momentum * old + (1 - momentum)
            * new`; the variance is the biased one. Without it the running statistics are used, and returned as they
            are.
    Raises: ShapeError, AxisError, ParameterError.
    Source: Ioffe and Szegedy, Batch Normalization, https://arxiv.org/abs/1502.03167
    """
    if not isinstance(stats, BatchStats):
        raise ParameterError(
            f"batch_norm: stats is a {type(stats).__qualname__}, not the running statistics",
            remedy="make them with nn.BatchStats.init(channels), and pass what the last step returned",
        )
    array, dtype = _input("batch_norm", x, scale, bias)
    channel = normalize_axis_index("batch_norm", axis, array.ndim)
    s, b = _parameters("batch_norm", array, (channel,), scale, bias)
    old = [_parameter("batch_norm", f"stats.{n}", array, (channel,), getattr(stats, n)) for n in ("mean", "var")]
    axes = other_axes((channel,), array.ndim)
    kept = _where("batch_norm", array, where)
    if not flag("batch_norm", "training", training):
        return jit_composite(_batch_norm_with, array, s, b, *old, epsilon, kept, dtype), stats
    mapped = ((), ()) if axis_name is None else named_axes("batch_norm", axis_name)
    mean, variance = jit_composite_all(_batch_moments, array.astype(dtypes.accumulated(dtype)), axes, kept, *mapped)
    y = jit_composite(_batch_norm_with, array, s, b, mean, variance, epsilon, kept, dtype)
    decay = number("batch_norm", "momentum", momentum) if is_scalar(momentum) else as_array("batch_norm", momentum)
    running = [jit_composite(_running, o, n, decay).ravel() for o, n in zip(old, (mean, variance), strict=True)]
    return y, BatchStats(*running)


def _batch_moments(
    x: Array, axes: tuple[int, ...], where: Array | None, names: AxisNames, sizes: Sizes
) -> tuple[Array, Array]:
    del sizes  # the program depends on them, so they are part of its cache key
    return _moments(x, axes, where, names)


def _batch_norm_with(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    epsilon: ArrayLike,
    where: Array | None,
    dtype: DType,
) -> Array:
    wide = dtypes.accumulated(dtype)
    center, inverse = mean.astype(wide), lax.rsqrt(variance.astype(wide) + epsilon)
    return apply_around(lambda x: _affine((x - center) * inverse, scale, bias), x.astype(wide), where).astype(dtype)


def _running(old: Array, new: Array, momentum: float | Array) -> Array:
    wide = fnp.promote_types(old.dtype, new.dtype)
    return (momentum * old.astype(wide) + (1 - momentum) * new.astype(wide)).astype(old.dtype)


# -------------------------------------------------------------------------------------------------------------- shared


def _input(name: str, x: ArrayLike, *parameters: ArrayLike | None) -> tuple[Array, DType]:
    """Return the input as an array, and the dtype of the result. A Python number takes the dtype of the input."""
    array = as_array(name, x)
    arrays = [as_array(name, p, k + 1) for k, p in enumerate(parameters) if p is not None and not is_scalar(p)]
    return array, to_inexact_dtype(fnp.result_type(array, *arrays))


def _where(name: str, x: Array, where: ArrayLike | None) -> Array | None:
    if where is None:
        return None
    mask = as_array(name, where)
    if mask.dtype != dtypes.bool_:
        raise ParameterError(
            f"{name}: where is {mask.aval}, not an array of bools", remedy="compare: where=weights > 0"
        )
    return fnp.broadcast_to(mask, x.shape)


def _parameters(name: str, x: Array, axes: tuple[int, ...], *given: ArrayLike | None) -> tuple[Array | None, ...]:
    return tuple(
        [
            None if p is None else _parameter(name, what, x, axes, p)
            for what, p in zip(("scale", "bias"), given, strict=False)
        ]
    )


def _parameter(op: str, what: str, x: Array, axes: tuple[int, ...], given: ArrayLike) -> Array:
    """Return a parameter of `axes` of x, with an axis of size 1 for each of the others. Raises: ShapeError."""
    p = as_array(op, given)
    wanted: Shape = tuple([x.shape[k] for k in axes])
    if p.shape == ():
        return p
    if p.shape != wanted:
        raise ShapeError(
            f"{op}: {what} has the shape {p.shape}; axes {axes} of {x.aval} have the shape {wanted}",
            remedy=f"give {what} one element for each element of these axes",
        )
    return fnp.expand_dims(p, other_axes(axes, x.ndim))


def _affine(y: Array, scale: Array | None, bias: Array | None) -> Array:
    y = y if scale is None else y * scale.astype(fnp.promote_types(scale.dtype, y.dtype))
    return y if bias is None else y + bias.astype(fnp.promote_types(bias.dtype, y.dtype))


def _moments(x: Array, axes: tuple[int, ...], where: Array | None, names: AxisNames = ()) -> tuple[Array, Array]:
    """Return mean and variance over axes, which are kept with size 1."""
    x = _zero_outside(x, where)
    mean = _mean(x, axes, where, names)
    return mean, _mean(_abs_square(x - mean), axes, where, names)


def _zero_outside(x: Array, where: Array | None) -> Array:
    """Return x with 0 outside `where`: a square of what is there has a derivative that nan would go through."""
    return x if where is None else fnp.where(where, x, 0)


def _mean(x: Array, axes: tuple[int, ...], where: Array | None, names: AxisNames = ()) -> Array:
    """Return the mean of the elements inside `where`, over axes and mapped axes; 0 if there are none, where that of
    `fxad.nn.normalizations` is nan."""
    if where is None:
        mean = x.mean(axes, keepdims=True)
        return lax.pmean(mean, names) if names else mean
    total = _zero_outside(x, where).sum(axes, keepdims=True)
    count = where.astype(x.real.dtype).sum(axes, keepdims=True)
    if names:
        total, count = lax.psum((total, count), names)
    return total / fnp.maximum(count, 1)


def _abs_square(x: Array) -> Array:
    return fnp.square(x.real) + fnp.square(x.imag) if x.dtype in dtypes.COMPLEX else fnp.square(x)
