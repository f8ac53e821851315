"""Cosine transforms, as in `scipy.fft`. Fourier transforms are in `fxad.numpy.fft`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from fxad import dtypes, lax, numpy as fnp
from fxad.errors import ParameterError, ShapeError, shown
from fxad.numpy.composites import jit_composite
from fxad.operations.arguments import to_int, to_ints, word
from fxad.operations.axes import normalize_axes, normalize_axis_index, normalize_axis_tuple
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike

_NORMS: Final = ("backward", "ortho", "forward", None)


def dct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:  # noqa: A002 -- SciPy's name
    """Return the discrete cosine transform of type 2 or 3; of complex numbers, that of both parts.

    Type:   `n` cuts the axis, or extends it with zeros. `norm` is "backward" (None), "ortho" or "forward".
    Raises: ParameterError for another type or norm.
    Source: Makhoul, A fast cosine transform in one and two dimensions (1980)
    """
    return _transform("dct", x, type, n, axis, norm, inverse=False)


def idct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:  # noqa: A002
    """Return the inverse of `dct` with the same arguments."""
    return _transform("idct", x, type, n, axis, norm, inverse=True)


def dctn(
    x: ArrayLike,
    type: int = 2,  # noqa: A002
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """Return `dct` along several axes, by default all; `s` are their sizes."""
    return _along_axes("dctn", dct, x, type, s, axes, norm)


def idctn(
    x: ArrayLike,
    type: int = 2,  # noqa: A002
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """Return the inverse of `dctn` with the same arguments."""
    return _along_axes("idctn", idct, x, type, s, axes, norm)


def _along_axes(
    name: str,
    transform: Callable[..., Array],
    x: ArrayLike,
    kind: int,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
) -> Array:
    (array,) = floats(name, x)
    sizes = None if s is None else to_ints(name, "s", s)
    if axes is None:
        last = array.ndim if sizes is None else len(sizes)
        chosen = normalize_axes(name, None, array.ndim)[array.ndim - last :]
    else:
        chosen = normalize_axis_tuple(name, axes, array.ndim)
    if sizes is not None and len(sizes) != len(chosen):
        raise ShapeError(
            f"{name}: s has {len(sizes)} sizes for {len(chosen)} axes", remedy="give one size for each axis"
        )
    for k, axis in enumerate(chosen):
        array = transform(array, kind, None if sizes is None else sizes[k], axis, norm)
    return array


def _transform(name: str, x: ArrayLike, kind: int, n: int | None, axis: int, norm: str | None, inverse: bool) -> Array:
    (array,) = floats(name, x)
    k = normalize_axis_index(name, axis, array.ndim)
    number = to_int(name, "type", kind)
    if number not in (2, 3):
        raise ParameterError(f"{name}: type {shown(kind, 40)}", remedy="types 2 and 3 are there")
    word(name, "norm", norm, _NORMS)
    size = array.shape[k] if n is None else to_int(name, "n", n)
    if size < 1:
        raise ParameterError(f"{name}: n is {size}", remedy="give a size of 1 or more")
    if array.dtype in dtypes.COMPLEX:
        parts = [_transform(name, part, kind, n, axis, norm, inverse) for part in (array.real, array.imag)]
        return lax.complex(*parts)
    return jit_composite(_cosine, array, size, k, norm or "backward", (number == 2) != inverse, inverse)


def _cosine(x: Array, n: int, axis: int, norm: str, second: bool, inverse: bool) -> Array:
    """Type 2 if `second`, else type 3: along the last axis, in a dtype that has a Fourier transform."""
    dtype = x.dtype
    x = fnp.moveaxis(x.astype(dtypes.float32) if dtype.itemsize < 4 else x, axis, -1)
    x = x[..., :n] if n <= x.shape[-1] else fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - x.shape[-1])])
    # unnormalised, each type is the inverse of the other, times 2n
    scaled = (norm == "backward") if inverse else (norm == "forward")
    first = fnp.where(fnp.arange(n) == 0, math.sqrt(0.5), fnp.ones(n, x.dtype))
    if second:
        y = _second(x, n)
        y = y * first * math.sqrt(0.5 / n) if norm == "ortho" else y * (0.5 / n) if scaled else y
    elif norm == "ortho":
        y = _third(x / first, n) * math.sqrt(0.5 / n)
    else:
        y = _third(x, n) * (0.5 / n) if scaled else _third(x, n)
    return fnp.moveaxis(y, -1, axis).astype(dtype)


def _second(x: Array, n: int) -> Array:
    """Return 2 sum_j x_j cos(pi k (2j + 1) / 2n): from the Fourier transform of the elements at even places, followed
    by those at odd places in reverse."""
    folded = fnp.concatenate([x[..., ::2], fnp.flip(x[..., 1::2], -1)], axis=-1)
    return 2 * (fnp.fft.fft(folded) * _quarter_turns(x, n)).real


def _third(x: Array, n: int) -> Array:
    """Return x_0 + 2 sum_(j>0) x_j cos(pi (2k + 1) j / 2n): the inverse of the steps of `_second`, in reverse."""
    reverse = fnp.concatenate([fnp.zeros_like(x[..., :1]), fnp.flip(x[..., 1:], -1)], axis=-1)
    spectrum = (x - 1j * reverse) * fnp.conj(_quarter_turns(x, n))
    folded = n * fnp.fft.ifft(spectrum).real
    half = (n + 1) // 2
    y = fnp.zeros_like(folded).at[..., ::2].set(folded[..., :half])
    return y.at[..., 1::2].set(fnp.flip(folded[..., half:], -1))


def _quarter_turns(x: Array, n: int) -> Array:
    """Return exp(-i pi k / 2n) for each k."""
    angle = fnp.arange(n).astype(x.dtype) * (math.pi / (2 * n))
    return fnp.cos(angle) - 1j * fnp.sin(angle)


__all__ = ["dct", "dctn", "idct", "idctn"]
