"""Discrete Fourier transforms: the fft extension of the array API standard, and NumPy's further functions.

float64 gives complex128; narrower floats give complex64. Integers and bools are first converted to float32.
Axes are first resized to `n` or `s` by truncation or zero padding. `norm` is where the result is divided by the
number of elements: "backward" in the inverse, "forward" in the transform, "ortho" by its square root in both.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.errors import ParameterError
from fxad.numpy.apply import apply_op, as_array, number_or_array, to_device
from fxad.numpy.binary import where
from fxad.numpy.creation import arange
from fxad.numpy.shapes import roll
from fxad.operations import fft as transforms
from fxad.operations.arguments import to_int, to_ints
from fxad.operations.axes import normalize_axis_tuple
from fxad.operations.methods import static_ints
from fxad.runtime import Device
from fxad.tracing.array import Array, ArrayLike

Lengths = Sequence[int] | None


def _transform_axis(name: str, kind: str, x: ArrayLike, n: int | None, axis: int, norm: str | None) -> Array:
    size = None if n is None else static_ints(name, "n", (n,))
    return apply_op(name, transforms.fft_transform, (x,), name, kind, size, static_ints(name, "axis", (axis,)), norm)


def _transform_axes(name: str, kind: str, x: ArrayLike, s: Lengths, axes: Lengths, norm: str | None) -> Array:
    sizes_and_axes = [None if v is None else to_ints(name, what, v) for what, v in (("s", s), ("axes", axes))]
    return apply_op(name, transforms.fft_transform, (x,), name, kind, sizes_and_axes[0], sizes_and_axes[1], norm)


def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """Return the Fourier transform along an axis."""
    return _transform_axis("fft", "FFT", a, n, axis, norm)


def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """Return the inverse of `fft`."""
    return _transform_axis("ifft", "IFFT", a, n, axis, norm)


def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """Return the nonredundant half of the Fourier transform of real elements: n // 2 + 1 elements."""
    return _transform_axis("rfft", "RFFT", a, n, axis, norm)


def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """Return the inverse of `rfft`: n real elements, by default 2 (m - 1) for m input elements."""
    return _transform_axis("irfft", "IRFFT", a, n, axis, norm)


def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """Return the Fourier transform, which is real, of a signal with Hermitian symmetry, given by one half."""
    n = None if n is None else to_int("hfft", "n", n)
    return apply_op("hfft", transforms.hermitian, (a,), "hfft", n, axis, norm)


def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Array:
    """Return the inverse of `hfft`."""
    n = None if n is None else to_int("ihfft", "n", n)
    return apply_op("ihfft", transforms.antihermitian, (a,), "ihfft", n, axis, norm)


def fftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = "backward") -> Array:
    """Return the Fourier transform over several axes: all, or the last `len(s)`."""
    return _transform_axes("fftn", "FFT", a, s, axes, norm)


def ifftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = "backward") -> Array:
    """Return the inverse of `fftn`."""
    return _transform_axes("ifftn", "IFFT", a, s, axes, norm)


def rfftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = "backward") -> Array:
    """Return the Fourier transform of real elements over several axes; the last of them has only the nonredundant
    half."""
    return _transform_axes("rfftn", "RFFT", a, s, axes, norm)


def irfftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = "backward") -> Array:
    """Return the inverse of `rfftn`."""
    return _transform_axes("irfftn", "IRFFT", a, s, axes, norm)


def fft2(a: ArrayLike, s: Lengths = None, axes: Lengths = (-2, -1), norm: str | None = "backward") -> Array:
    """Return the Fourier transform over two axes."""
    return _transform_axes("fft2", "FFT", a, s, axes, norm)


def ifft2(a: ArrayLike, s: Lengths = None, axes: Lengths = (-2, -1), norm: str | None = "backward") -> Array:
    """Return the inverse of `fft2`."""
    return _transform_axes("ifft2", "IFFT", a, s, axes, norm)


def rfft2(a: ArrayLike, s: Lengths = None, axes: Lengths = (-2, -1), norm: str | None = "backward") -> Array:
    """Return the Fourier transform of real elements over two axes."""
    return _transform_axes("rfft2", "RFFT", a, s, axes, norm)


def irfft2(a: ArrayLike, s: Lengths = None, axes: Lengths = (-2, -1), norm: str | None = "backward") -> Array:
    """Return the inverse of `rfft2`."""
    return _transform_axes("irfft2", "IRFFT", a, s, axes, norm)


def _frequencies(name: str, n: int, d: float | Array, k: Array, dtype: object, device: Device | None) -> Array:
    d = number_or_array(name, "d", d)
    if n < 1:
        raise ParameterError(f"{name}: the number of samples must be positive, got {n}")
    values = k.astype(dtypes.float32 if dtype is None else dtype)
    if isinstance(d, Array):
        values = values / (d * n)
    else:
        values = values / n if d == 1 else values / (n * d) if type(n) is int else values / n / d
    return to_device(name, values, device)


def fftfreq(n: int, d: float | Array = 1.0, *, dtype: object = None, device: Device | None = None) -> Array:
    """Return the frequencies of the elements of `fft`, for n samples at spacing d: 0, 1, ..., then the negative ones,
    over n d."""
    n = to_int("fftfreq", "n", n)
    k = arange(max(n, 0))
    return _frequencies("fftfreq", n, d, where(k < (n + 1) // 2, k, k - n), dtype, device)


def rfftfreq(n: int, d: float | Array = 1.0, *, dtype: object = None, device: Device | None = None) -> Array:
    """Return the frequencies of the elements of `rfft`, for n samples at spacing d: 0, 1, ..., n // 2, over n d."""
    n = to_int("rfftfreq", "n", n)
    return _frequencies("rfftfreq", n, d, arange(max(n, 0) // 2 + 1), dtype, device)


def _roll_axes(name: str, x: ArrayLike, axes: int | Sequence[int] | None, back: bool) -> Array:
    array = as_array(name, x)
    at = (
        tuple(range(array.ndim))
        if axes is None
        else normalize_axis_tuple(name, static_ints(name, "axes", (axes,)), array.ndim)
    )
    by = [-(array.shape[a] // 2) if back else array.shape[a] // 2 for a in at]
    return roll(array, by, at) if at else array


def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Move frequency 0 to the middle of axes."""
    return _roll_axes("fftshift", x, axes, False)


def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Return the inverse of `fftshift`."""
    return _roll_axes("ifftshift", x, axes, True)


__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
