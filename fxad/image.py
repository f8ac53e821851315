"""Images resized and moved, as in `jax.image`.

Each axis is resampled by a matrix of weights: a kernel around the place that an element of the result has in the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import pi
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from fxad import lax, numpy as fnp
from fxad.errors import ParameterError, ShapeError, described, shown
from fxad.lax import Precision
from fxad.operations.arguments import flag, to_ints
from fxad.operations.axes import normalize_axis_tuple
from fxad.operations.precision import PrecisionLike
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike

ResizeKernel: TypeAlias = Callable[[Array], Array]


class ResizeMethod(Enum):
    """A method of interpolation of `resize`."""

    NEAREST = "nearest"
    LINEAR = "linear"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    CUBIC = "cubic"
    CUBIC_PYTORCH = "cubic-pytorch"
    AREA = "area"

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Return the method of a name. Raises: ParameterError."""
        name = _OTHER_NAMES.get(s, s)
        if name not in [m.value for m in ResizeMethod]:
            names = " ".join([m.value for m in ResizeMethod])
            raise ParameterError(f"ResizeMethod: {shown(s, 40)} is no method", remedy=f"use one of {names}")
        return ResizeMethod(name)


_OTHER_NAMES: Final = MappingProxyType({
    "bilinear": "linear", "trilinear": "linear", "triangle": "linear", "bicubic": "cubic", "tricubic": "cubic",
    "bicubic-pytorch": "cubic-pytorch",
})  # fmt: skip


def _triangle(d: Array) -> Array:
    return fnp.maximum(0, 1 - d)


def _lanczos(radius: float) -> ResizeKernel:
    def kernel(d: Array) -> Array:
        inside = (d > 1e-3) & (d <= radius)
        at = fnp.where(inside, d, 1.0)
        waves = radius * fnp.sin(pi * at) * fnp.sin(pi * at / radius) / (pi * at) ** 2
        return fnp.where(d <= 1e-3, 1.0, fnp.where(inside, waves, 0.0))

    return kernel


def _cubic(a: float) -> ResizeKernel:
    def kernel(d: Array) -> Array:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return fnp.where(d < 1, near, fnp.where(d < 2, far, 0.0))

    return kernel


_KERNELS: Final = MappingProxyType({
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.5),  # with antialias, as in PyTorch
})  # fmt: skip


def _weights(n: int, m: int, scale: Array, translation: Array, method: ResizeMethod, antialias: bool) -> Array:
    """Return the matrix (n, m) that resamples an axis of n elements to m.

    Element j of the result is read at (j + 0.5 - translation) / scale - 0.5 in the image. From 2 elements to 4
    by the method linear, these are -0.25, 0.25, 0.75, 1.25, and the weights are

        1    0.75    0.25    0
        0    0.25    0.75    1
    """
    size = 1 / scale  # of an element of the result, in elements of the image
    i, j = fnp.arange(n).astype(scale.dtype)[:, None], fnp.arange(m).astype(scale.dtype)[None, :]
    place = (j + 0.5 - translation) * size - 0.5
    if method is ResizeMethod.AREA:  # the part of an element of the result that an element of the image covers
        start, end = (j - translation) * size, (j + 1 - translation) * size
        weights = fnp.maximum(0, fnp.minimum(end, i + 1) - fnp.maximum(start, i))
    elif method is ResizeMethod.CUBIC_PYTORCH and not antialias:  # elements at the border are repeated outside
        beyond = fnp.arange(-2, n + 2).astype(scale.dtype)[:, None]
        spread = _cubic(-0.75)(fnp.abs(place - beyond))
        weights = spread[2:-2].at[0].add(spread[:2].sum(0)).at[-1].add(spread[-2:].sum(0))
    else:
        width = fnp.maximum(size, 1) if antialias else fnp.ones_like(size)
        weights = _KERNELS[method](fnp.abs(place - i) / width)
    total = fnp.sum(weights, axis=0, keepdims=True)
    is_large = fnp.abs(total) > 1000 * fnp.finfo(scale.dtype).eps
    weights = fnp.where(is_large, weights / fnp.where(is_large, total, 1), 0)
    return fnp.where((place >= -0.5) & (place <= n - 0.5), weights, 0)


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """Return the image of this shape whose element at x is read at (x - translation) / scale along `spatial_dims`.

    Elements outside of the image are 0. With `antialias`, the kernel is as wide as an element of the result.

    Raises: ShapeError if `shape` differs along another axis; ParameterError for the method "nearest".
    """
    return _resampled(
        "scale_and_translate", image, shape, spatial_dims, scale, translation, method, antialias, precision
    )


def _resampled(
    what: str,
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool,
    precision: PrecisionLike,
) -> Array:
    kind, antialias = _method(what, method), flag(what, "antialias", antialias)
    if kind is ResizeMethod.NEAREST:
        raise ParameterError(f"{what}: the method is nearest", remedy="use resize, or the method linear")
    (array,) = floats(what, image)
    sizes = _target_shape(what, array, shape)
    dims = normalize_axis_tuple(what, to_ints(what, "spatial_dims", spatial_dims), array.ndim)
    fixed = [k for k in range(array.ndim) if k not in dims and sizes[k] != array.shape[k]]
    if fixed:
        k = fixed[0]
        raise ShapeError(
            f"{what}: axis {k} of {array.shape[k]} elements shall have {sizes[k]}, and is not in spatial_dims",
            remedy="give spatial_dims all axes that change",
        )
    exact = fnp.float64 if array.dtype == fnp.float64 else fnp.float32
    scales, moves = fnp.asarray(scale).astype(exact), fnp.asarray(translation).astype(exact)
    if scales.shape != (len(dims),) or moves.shape != (len(dims),):
        raise ShapeError(
            f"{what}: scale has shape {scales.shape}, translation {moves.shape}, with {len(dims)} spatial_dims",
            remedy="give each a number for each of spatial_dims",
        )
    for k, d in enumerate(dims):
        weights = _weights(array.shape[d], sizes[d], scales[k], moves[k], kind, antialias).astype(array.dtype)
        product = lax.dot_general(array, weights, (((d,), (0,)), ((), ())), precision)
        array = fnp.moveaxis(product, -1, d)
    return array


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """Return the image of another shape. Methods: nearest, linear, cubic, lanczos3, lanczos5, cubic-pytorch, area.

    With `antialias`, an axis that becomes shorter is smoothed. Integers become float32, but for "nearest".
    """
    array = fnp.asarray(image)
    sizes = _target_shape("resize", array, shape)
    kind, antialias = _method("resize", method), flag("resize", "antialias", antialias)
    dims = [k for k, (n, m) in enumerate(zip(array.shape, sizes, strict=True)) if n != m]
    empty = [k for k in dims if array.shape[k] == 0]
    if empty:
        raise ShapeError(
            f"resize: axis {empty[0]} of the image is empty, and shall have {sizes[empty[0]]} elements",
            remedy="an element of the result is read from elements of the image",
        )
    if kind is ResizeMethod.NEAREST:
        for d in dims:
            n, m = array.shape[d], sizes[d]
            place = (fnp.arange(m).astype(fnp.float32) + 0.5) * n / max(m, 1)  # in this order, as JAX rounds
            at = fnp.floor(place).astype(fnp.int32)
            array = fnp.take(array, at, axis=d, mode="clip")
        return array
    scale = np.array([sizes[d] / array.shape[d] for d in dims])
    return _resampled("resize", array, sizes, dims, scale, np.zeros(len(dims)), kind, antialias, precision)


def _method(what: str, method: object) -> ResizeMethod:
    if isinstance(method, str):
        return ResizeMethod.from_string(method)
    if not isinstance(method, ResizeMethod):
        raise ParameterError(
            f"{what}: method is {described(method)}: {shown(method, 40)}", remedy="give a ResizeMethod or its name"
        )
    return method


def _target_shape(what: str, image: Array, shape: Sequence[int]) -> tuple[int, ...]:
    sizes = to_ints(what, "shape", shape)
    if min(sizes, default=0) < 0:
        raise ShapeError(f"{what}: shape {sizes} has a negative size", remedy="give sizes >= 0")
    if len(sizes) != image.ndim:
        raise ShapeError(
            f"{what}: shape {sizes} has {len(sizes)} axes, the image has {image.ndim}",
            remedy="give the size of each axis; those of batches and channels stay",
        )
    return sizes


__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
