"""Initializers of parameters: functions of (key, shape, dtype).

>>> from fxad import random
>>> from fxad.nn import initializers
>>> initializers.he_normal()(random.key(0), (3, 3, 16, 32)).shape
(3, 3, 16, 32)

Variance scaling wants the number of inputs or outputs of a unit: `in_axis` and `out_axis` say which axes of the shape
they are, `batch_axis` which are neither; all others are a receptive field, which multiplies both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import fxad.numpy as fnp
from fxad import dtypes, lax, random
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import Shape, as_shape
from fxad.operations.arguments import word
from fxad.operations.axes import normalize_axis_index, normalize_axis_tuple
from fxad.tracing.array import Array, ArrayLike

# (key, shape, dtype) -> parameters
Initializer: TypeAlias = Callable[..., Array]
Axis: TypeAlias = int | Sequence[int]

# The standard deviation of a standard normal variable that is cut off at -2 and 2.
_CUT_OFF_DEVIATION: Final = 0.87962566103423978


def zeros(key: ArrayLike | None, shape: Sequence[int], dtype: object = dtypes.float32) -> Array:  # noqa: ARG001
    """Return zeros; the key is not used."""
    return fnp.zeros(as_shape(shape), dtype=dtypes.as_dtype(dtype))


def ones(key: ArrayLike | None, shape: Sequence[int], dtype: object = dtypes.float32) -> Array:  # noqa: ARG001
    """Return ones; the key is not used."""
    return fnp.ones(as_shape(shape), dtype=dtypes.as_dtype(dtype))


def _initializer(draw: Callable[[ArrayLike, Shape, DType], Array], dtype: object) -> Initializer:
    """Return the initializer that draws by `draw(key, shape, dtype)`, by default in `dtype`."""
    default = dtypes.as_dtype(dtype)

    def init(key: ArrayLike, shape: Sequence[int], dtype: object = default) -> Array:
        chosen = dtypes.as_dtype(dtype)
        return draw(key, as_shape(shape), chosen).astype(chosen)  # a scale that is an array promotes

    return init


def constant(value: ArrayLike, dtype: object = dtypes.float32) -> Initializer:
    """Return the same value for all parameters."""
    return _initializer(lambda _, shape, dtype: fnp.full(shape, value, dtype=dtype), dtype)


def uniform(scale: float = 1e-2, dtype: object = dtypes.float32) -> Initializer:
    """Return uniform numbers in [0, scale)."""
    return _initializer(lambda key, shape, dtype: random.uniform(key, shape, dtype) * scale, dtype)


def normal(stddev: float = 1e-2, dtype: object = dtypes.float32) -> Initializer:
    """Return normal numbers with mean 0."""
    return _initializer(lambda key, shape, dtype: random.normal(key, shape, dtype) * stddev, dtype)


def truncated_normal(
    stddev: float = 1e-2, dtype: object = dtypes.float32, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """Return normal numbers with mean 0, truncated at `lower` and `upper` standard deviations. `stddev` is the standard
    deviation before truncation."""
    return _initializer(
        lambda key, shape, dtype: random.truncated_normal(key, lower, upper, shape, dtype) * stddev, dtype
    )


# ----------------------------------------------------------------------------------------------------- variance scaling


def _fans(name: str, shape: Shape, in_axis: Axis, out_axis: Axis, batch_axis: Axis) -> tuple[float, float]:
    """Return the numbers of inputs and outputs of a unit. Without axes there is one, times the receptive field."""
    ins, outs, batch = [normalize_axis_tuple(name, a, len(shape)) for a in (in_axis, out_axis, batch_axis)]
    inputs, outputs, batches = [math.prod([shape[a] for a in axes]) for axes in (ins, outs, batch)]
    field = math.prod(shape) / max(inputs * outputs * batches, 1)
    return inputs * field, outputs * field


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Axis = -2,
    out_axis: Axis = -1,
    batch_axis: Axis = (),
    dtype: object = dtypes.float32,
) -> Initializer:
    """Return numbers of variance `scale / n`, where n is the number of inputs (`mode` "fan_in"), outputs ("fan_out"),
    their mean ("fan_avg") or their geometric mean ("fan_geo_avg").

    Type: `distribution` is "uniform", "normal" or "truncated_normal" (cut off at two standard deviations, and widened
          to have the variance all the same). Complex numbers are uniform in a disk, or normal in the plane, with their
          modulus cut off. `in_axis`, `out_axis` and `batch_axis` are one axis, several, or none, ().
    """
    word("variance_scaling", "mode", mode, ("fan_in", "fan_out", "fan_avg", "fan_geo_avg"))
    word("variance_scaling", "distribution", distribution, ("uniform", "normal", "truncated_normal"))

    def draw(key: ArrayLike, sizes: Shape, dtype: DType) -> Array:
        if len(sizes) < 2 and in_axis == -2:
            raise ShapeError(
                f"variance_scaling: shape {sizes} has no axis of inputs and one of outputs",
                remedy="it is meant for kernels; use zeros or normal for biases, or give in_axis and out_axis",
            )
        fan_in, fan_out = _fans("variance_scaling", sizes, in_axis, out_axis, batch_axis)
        mean, geometric_mean = (fan_in + fan_out) / 2, math.sqrt(fan_in * fan_out)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": mean, "fan_geo_avg": geometric_mean}[mode]
        return _draw_with_variance(key, sizes, dtype, scale / max(fan, 1e-300), distribution)

    return _initializer(draw, dtype)


def _draw_with_variance(key: ArrayLike, shape: Shape, dtype: DType, variance: float, distribution: str) -> Array:
    if distribution == "normal":
        return random.normal(key, shape, dtype) * math.sqrt(variance)
    if dtype in dtypes.COMPLEX:
        return _draw_in_disk(key, shape, dtype, distribution) * math.sqrt(variance)
    if distribution == "uniform":
        return random.uniform(key, shape, dtype, -1) * math.sqrt(3 * variance)
    return random.truncated_normal(key, -2, 2, shape, dtype) * (math.sqrt(variance) / _CUT_OFF_DEVIATION)


def _draw_in_disk(key: ArrayLike, shape: Shape, dtype: DType, distribution: str) -> Array:
    """Return complex numbers of variance 1: uniform in a disk, or normal with a modulus of at most two standard
    deviations.

    Source: the square of the modulus is uniform in [0, 2), or exponential; that of the truncated one is at most 4, with
            mean 1 - 4 exp(-4) / (1 - exp(-4)) before it is widened.
    """
    real = dtypes.real_part(dtype)
    of_modulus, of_angle = random.split(key)
    share = random.uniform(of_modulus, shape, real)
    if distribution == "uniform":
        modulus = fnp.sqrt(2 * share)
    else:
        inside = -math.expm1(-4.0)
        modulus = fnp.sqrt(-fnp.log1p(-inside * share) / (1 - 4 * math.exp(-4.0) / inside))
    angle = 2 * math.pi * random.uniform(of_angle, shape, real)
    return lax.complex(modulus * fnp.cos(angle), modulus * fnp.sin(angle))


def glorot_uniform(
    in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: object = dtypes.float32
) -> Initializer:
    """Return uniform numbers of variance 2 / (inputs + outputs).

    Source: Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(
    in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: object = dtypes.float32
) -> Initializer:
    """Return truncated normal numbers with variance 2 / (inputs + outputs)."""
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(
    in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: object = dtypes.float32
) -> Initializer:
    """Return uniform numbers of variance 1 / inputs.

    Source: Klambauer et al., Self-Normalizing Neural Networks, https://arxiv.org/abs/1706.02515
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(
    in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: object = dtypes.float32
) -> Initializer:
    """Return truncated normal numbers with variance 1 / inputs."""
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(
    in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: object = dtypes.float32
) -> Initializer:
    """Return uniform numbers of variance 2 / inputs.

    Source: He et al., Delving Deep into Rectifiers, https://arxiv.org/abs/1502.01852
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(
    in_axis: Axis = -2, out_axis: Axis = -1, batch_axis: Axis = (), dtype: object = dtypes.float32
) -> Initializer:
    """Return truncated normal numbers with variance 2 / inputs."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform = glorot_uniform
xavier_normal = glorot_normal
kaiming_uniform = he_uniform
kaiming_normal = he_normal


# ---------------------------------------------------------------------------------------------------------- orthogonal


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: object = dtypes.float32) -> Initializer:
    """Return a uniformly random matrix with orthonormal columns (or rows, if these are fewer), times `scale`.

    Type:   the columns are along `column_axis`, all other axes together are the rows.
    Source: Saxe et al., Exact solutions to the nonlinear dynamics of learning, https://arxiv.org/abs/1312.6120; evenly:
            Mezzadri, https://arxiv.org/abs/math-ph/0609050
    """

    def draw(key: ArrayLike, sizes: Shape, dtype: DType) -> Array:
        _check_inexact("orthogonal", dtype)
        if len(sizes) < 2:
            raise ShapeError(f"orthogonal: shape {sizes} has no rows and columns")
        k = normalize_axis_index("orthogonal", column_axis, len(sizes))
        columns, others = sizes[k], (*sizes[:k], *sizes[k + 1 :])
        rows = math.prod(others)
        q = _orthonormal_columns(key, max(rows, columns), min(rows, columns), dtype)
        matrix = q.T if rows < columns else q
        return fnp.moveaxis(matrix.reshape((*others, columns)), -1, k) * scale

    return _initializer(draw, dtype)


def _check_inexact(name: str, dtype: DType) -> None:
    if dtype not in dtypes.INEXACT:
        raise DTypeError(f"{name}: {dtype.name} holds no fractions", remedy="use a floating dtype")


def _orthonormal_columns(key: ArrayLike, rows: int, columns: int, dtype: DType) -> Array:
    """Return uniformly random orthonormal columns: the Q of the QR decomposition whose R has a positive diagonal."""
    wide = dtypes.float32 if dtype.itemsize < 4 else dtype
    q, r = lax.linalg.qr(random.normal(key, (rows, columns), wide), full_matrices=False)
    return (q * fnp.sign(fnp.linalg.diagonal(r))).astype(dtype)


def delta_orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: object = dtypes.float32) -> Initializer:
    """Return a kernel (*spatial, inputs, outputs) that is orthogonal at the middle of its spatial axes and 0 elsewhere.

    Type:   1 to 3 spatial axes, and no fewer outputs than inputs.
    Source: Xiao et al., Dynamical Isometry and a Mean Field Theory of CNNs, https://arxiv.org/abs/1806.05393
    """

    def draw(key: ArrayLike, sizes: Shape, dtype: DType) -> Array:
        _check_inexact("delta_orthogonal", dtype)
        if not 3 <= len(sizes) <= 5 or sizes[-1] < sizes[-2]:
            raise ShapeError(
                f"delta_orthogonal: shape {sizes} is not (*spatial, inputs, outputs) of 1 to 3 spatial axes and no "
                "fewer outputs than inputs"
            )
        *space, inputs, outputs = sizes
        middle = orthogonal(scale, column_axis)(key, (outputs, outputs), dtype)[:inputs]
        config = [((n - 1) // 2, n - 1 - (n - 1) // 2, 0) for n in space] + [(0, 0, 0)] * 2
        return lax.pad(middle.reshape((*[1] * len(space), inputs, outputs)), fnp.zeros((), dtype=dtype), config)

    return _initializer(draw, dtype)
