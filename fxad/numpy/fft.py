"""Discrete Fourier transforms: the fft extension of the array API standard, and NumPy's other names.

float32 gives complex64, float64 complex128, narrower floats complex64; integers and bools go by the floats NumPy gives
them. Axes are resized to `n` or `s` first: cut off, or filled with zeros. `norm` says where to divide by the number of
elements: "backward" in the inverse, "forward" in the transform, "ortho" by its root in both.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.errors import ParameterError
from fxad.numpy.apply import apply_op, as_array, to_device
from fxad.numpy.binary import where
from fxad.numpy.creation import arange
from fxad.numpy.shapes import roll
from fxad.operations import fft as transforms
from fxad.operations.axes import normalize_axis_tuple, to_int
from fxad.operations.methods import sizes_argument
from fxad.runtime import Device
from fxad.tracing.array import Array, ArrayLike

Sizes = Sequence[int] | None


def _one(name: str, kind: str, x: ArrayLike, n: int | None, axis: int, norm: str | None) -> Array:
    size = None if n is None else sizes_argument((n,))
    return apply_op(name, transforms.fft_transform, (x,), name, kind, size, sizes_argument((axis,)), norm)


def _many(name: str, kind: str, x: ArrayLike, s: Sizes, axes: Sizes, norm: str | None) -> Array:
    given = [None if v is None else sizes_argument((tuple(v),)) for v in (s, axes)]
    return apply_op(name, transforms.fft_transform, (x,), name, kind, given[0], given[1], norm)


def fft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The Fourier transform along an axis."""
    return _one("fft", "FFT", x, n, axis, norm)


def ifft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `fft`."""
    return _one("ifft", "IFFT", x, n, axis, norm)


def rfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The half of the Fourier transform of real elements that says it all: n // 2 + 1 elements."""
    return _one("rfft", "RFFT", x, n, axis, norm)


def irfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `rfft`, of n real elements; 2 (m - 1) of m where n is not given."""
    return _one("irfft", "IRFFT", x, n, axis, norm)


def hfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The Fourier transform, real, of elements whose other half are their conjugates."""
    return apply_op("hfft", transforms.hermitian, (x,), "hfft", n, axis, norm)


def ihfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """The inverse of `hfft`."""
    return apply_op("ihfft", transforms.antihermitian, (x,), "ihfft", n, axis, norm)


def fftn(x: ArrayLike, /, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Array:
    """The Fourier transform over axes; all, or the last ones that `s` has sizes for."""
    return _many("fftn", "FFT", x, s, axes, norm)


def ifftn(x: ArrayLike, /, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Array:
    """The inverse of `fftn`."""
    return _many("ifftn", "IFFT", x, s, axes, norm)


def rfftn(x: ArrayLike, /, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Array:
    """The Fourier transform of real elements over axes; the last of them is halved."""
    return _many("rfftn", "RFFT", x, s, axes, norm)


def irfftn(x: ArrayLike, /, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Array:
    """The inverse of `rfftn`."""
    return _many("irfftn", "IRFFT", x, s, axes, norm)


def fft2(x: ArrayLike, /, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Array:
    """The Fourier transform over two axes."""
    return _many("fft2", "FFT", x, s, axes, norm)


def ifft2(x: ArrayLike, /, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Array:
    """The inverse of `fft2`."""
    return _many("ifft2", "IFFT", x, s, axes, norm)


def rfft2(x: ArrayLike, /, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Array:
    """The Fourier transform of real elements over two axes."""
    return _many("rfft2", "RFFT", x, s, axes, norm)


def irfft2(x: ArrayLike, /, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Array:
    """The inverse of `rfft2`."""
    return _many("irfft2", "IRFFT", x, s, axes, norm)


def _frequencies(name: str, n: int, d: float, k: Array, dtype: object, device: Device | None) -> Array:
    if n < 1:
        raise ParameterError(f"{name}: the number of samples must be positive, got {n}")
    values = k.astype(dtypes.float32 if dtype is None else dtype) / (n * d)
    return to_device(name, values, device)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: object = None, device: Device | None = None) -> Array:
    """The frequencies that `fft` of n samples at distance d stands for: 0, 1, ..., then the negative ones, over n d."""
    n = to_int("fftfreq", "n", n)
    k = arange(max(n, 0))
    return _frequencies("fftfreq", n, d, where(k < (n + 1) // 2, k, k - n), dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: object = None, device: Device | None = None) -> Array:
    """The frequencies that `rfft` of n samples at distance d stands for: 0, 1, ..., n // 2, over n d."""
    n = to_int("rfftfreq", "n", n)
    return _frequencies("rfftfreq", n, d, arange(max(n, 0) // 2 + 1), dtype, device)


def _shifted(name: str, x: ArrayLike, axes: int | Sequence[int] | None, back: bool) -> Array:
    array = as_array(name, x)
    at = tuple(range(array.ndim)) if axes is None else normalize_axis_tuple(name, sizes_argument((axes,)), array.ndim)
    by = [-(array.shape[a] // 2) if back else array.shape[a] // 2 for a in at]
    return roll(array, by, at) if at else array


def fftshift(x: ArrayLike, /, axes: int | Sequence[int] | None = None) -> Array:
    """The frequency 0 moved to the middle of axes."""
    return _shifted("fftshift", x, axes, False)


def ifftshift(x: ArrayLike, /, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, True)


__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
