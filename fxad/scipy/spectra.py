"""Spectra of segments of a signal, of `scipy.signal`: `stft`, `istft`, `csd`, `welch`."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np

from fxad import dtypes, numpy as fnp
from fxad.errors import ParameterError, ShapeError, shown
from fxad.numpy.apply import as_array
from fxad.numpy.composites import jit_composite
from fxad.operations.arguments import flag, is_word, to_int, word
from fxad.operations.axes import normalize_axis_index, normalize_axis_tuple
from fxad.scipy.arguments import floats
from fxad.scipy.trends import detrend_pieces
from fxad.scipy.windows import Window, is_named, window_values
from fxad.tracing.array import Array, ArrayLike

Detrend = Literal[False, "constant", "linear"]


def stft(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Detrend = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
    scaling: str = "spectrum",
) -> tuple[Array, Array, Array]:
    """Return frequencies, times and the short-time Fourier transform.

    Type:   `window` is the name of a window of `scipy.signal.get_window`, as in "hann" or ("kaiser", 8.0), or its
            values. `boundary` extends the signal by half a segment: "zeros", "even", "odd", "constant" or None.
            `scaling` is "spectrum", where squares are powers, or "psd", where they are densities.
    Raises: ParameterError, ShapeError.
    """
    freqs, times, spectrum = _spectra(
        "stft", x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
        _transform_scaling("stft", scaling), axis, boundary, padded,
    )  # fmt: skip
    return freqs, times, spectrum


def csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Detrend = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Return frequencies and the cross power spectral density of two signals, by Welch's method.

    Type:   `window` is that of `stft`; `scaling` is "density" or "spectrum"; `average` is "mean" or "median".
    Raises: ParameterError, ShapeError.
    Source: Welch, The use of the fast Fourier transform for the estimation of power spectra (1967)
    """
    return _averaged_spectra(
        "csd", x, x if y is None else y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis,
        average,
    )  # fmt: skip


def welch(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Detrend = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Return frequencies and the power spectral density of a signal, by Welch's method; the arguments are those of
    `csd`."""
    freqs, power = _averaged_spectra(
        "welch", x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )
    return freqs, power.real


def istft(
    Zxx: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
    scaling: str = "spectrum",
) -> tuple[Array, Array]:
    """Return times and the signal of a short-time Fourier transform: the inverse of `stft` with the same arguments.

    Raises: ParameterError, ShapeError.
    """
    spectrum = as_array("istft", Zxx)
    if spectrum.ndim < 2:
        raise ShapeError(
            f"istft: takes an array [..., frequencies, times], got {spectrum.aval}", remedy="add an axis: x[:, None]"
        )
    at = normalize_axis_tuple("istft", (freq_axis, time_axis), spectrum.ndim)
    spectrum = fnp.moveaxis(spectrum, at, (-2, -1))
    rows = spectrum.shape[-2]
    input_onesided = flag("istft", "input_onesided", input_onesided)
    boundary = flag("istft", "boundary", boundary)
    default = 2 * (rows - 1) if input_onesided else rows
    size = default if nperseg is None else to_int("istft", "nperseg", nperseg)
    length = (
        (size if input_onesided and size == default + 1 else default) if nfft is None else to_int("istft", "nfft", nfft)
    )
    overlap = size // 2 if noverlap is None else to_int("istft", "noverlap", noverlap)
    _check_segments("istft", size, overlap, length)
    real = spectrum.real.dtype if spectrum.dtype in dtypes.COMPLEX else dtypes.float32
    values = window_values("istft", window, size).astype(real)
    rate = as_array("istft", fs).astype(values.dtype)
    density = _transform_scaling("istft", scaling) == "density"
    signal = jit_composite(
        _overlap_add, spectrum, values, rate, size, overlap, length, input_onesided, boundary, density
    )
    time = fnp.arange(signal.shape[-1]).astype(values.dtype) / rate
    return time, fnp.moveaxis(signal, -1, at[1] - (at[0] < at[1]))


def _overlap_add(
    spectrum: Array,
    window: Array,
    rate: Array,
    size: int,
    overlap: int,
    length: int,
    onesided: bool,
    boundary: bool,
    density: bool,
) -> Array:
    spectrum = fnp.swapaxes(spectrum, -1, -2)  # [..., times, frequencies]
    segments = (fnp.fft.irfft(spectrum, length) if onesided else fnp.fft.ifft(spectrum, length))[..., :size]
    step, count = size - overlap, spectrum.shape[-2]
    places = _segments(count, step, size)
    total = size + (count - 1) * step
    empty = fnp.zeros((*segments.shape[:-2], total), segments.dtype)
    scale = _scale_of_transform(window, rate, density)
    signal = empty.at[..., places].add(segments * window * scale)
    norm = fnp.zeros(total, window.dtype).at[places].add(fnp.broadcast_to(window**2, places.shape))
    if boundary:
        signal, norm = signal[..., size // 2 : total - size // 2], norm[size // 2 : total - size // 2]
    return signal / fnp.where(norm > 1e-10, norm, 1)


def _scale_of_transform(window: Array, rate: Array, density: bool) -> Array:
    """Return the number that `stft` divides by, and `istft` multiplies with."""
    return fnp.sqrt(rate * (window**2).sum()) if density else window.sum()


def _transform_scaling(name: str, scaling: str) -> str:
    """Return the scaling of `_spectra` for that of a transform. Raises: ParameterError."""
    word(name, "scaling", scaling, ("psd", "spectrum"))
    return "density" if scaling == "psd" else "spectrum"


def _averaged_spectra(
    name: str,
    x: ArrayLike,
    y: ArrayLike,
    fs: ArrayLike,
    window: Window,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend: Detrend,
    onesided: bool,
    scaling: str,
    axis: int,
    average: str,
) -> tuple[Array, Array]:
    axis = to_int(name, "axis", axis)
    word(name, "average", average, ("mean", "median"))
    freqs, _, spectra = _spectra(
        name, x, y, fs, window, nperseg, noverlap, nfft, detrend, onesided, scaling, axis, None, False
    )
    count = spectra.shape[-1]
    if average == "mean" or count == 1:
        out = spectra.mean(-1)
    else:  # the median of a sum of squares is below its mean
        places = np.arange(1, (count - 1) // 2 + 1) * 2.0
        bias = float(1 + np.sum(1 / (places + 1) - 1 / places))
        out = fnp.median(spectra.real, -1) / bias
        if spectra.dtype in dtypes.COMPLEX:
            out = out + 1j * (fnp.median(spectra.imag, -1) / bias)
    place = axis % (out.ndim)
    return freqs, fnp.moveaxis(out, -1, place)


def _spectra(
    name: str,
    x: ArrayLike,
    y: ArrayLike | None,
    fs: ArrayLike,
    window: Window,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend_by: Detrend,
    onesided: bool,
    scaling: str,
    axis: int,
    boundary: str | None,
    padded: bool,
) -> tuple[Array, Array, Array]:
    """Return frequencies, times, and the spectra of segments: times at the last axis, frequencies at `axis` for a
    transform (y is None), else at the axis before."""
    axis, onesided = to_int(name, "axis", axis), flag(name, "return_onesided", onesided)
    padded = flag(name, "padded", padded)
    word(name, "scaling", scaling, ("density", "spectrum"))
    word(name, "boundary", boundary, ("zeros", "even", "odd", "constant", None))
    if detrend_by is not False and not is_word(detrend_by, ("constant", "linear")):
        raise ParameterError(f"{name}: detrend {shown(detrend_by, 40)}", remedy='use "constant", "linear" or False')
    arrays = floats(name, x) if y is None or y is x else floats(name, x, y)
    arrays = [fnp.moveaxis(a, normalize_axis_index(name, axis, a.ndim), -1) for a in arrays]
    n = max([a.shape[-1] for a in arrays])
    arrays = [a if a.shape[-1] == n else _padded_with_zeros(a, n - a.shape[-1]) for a in arrays]
    size = _segment_size(name, window, nperseg, n)
    values = window_values(name, window, size).astype(arrays[0].real.dtype)
    length = size if nfft is None else to_int(name, "nfft", nfft)
    overlap = size // 2 if noverlap is None else to_int(name, "noverlap", noverlap)
    _check_segments(name, size, overlap, length)
    real = arrays[0].dtype not in dtypes.COMPLEX
    onesided = onesided and real
    step = size - overlap
    if boundary is not None:
        arrays = [_with_boundary(a, boundary, size // 2) for a in arrays]
    if padded:
        rest = -(arrays[0].shape[-1] - size) % step % size
        arrays = [_padded_with_zeros(a, rest) for a in arrays]
    second = arrays[1] if len(arrays) > 1 else None
    rate = as_array(name, fs).astype(values.dtype)
    static = (size, step, length, detrend_by, onesided, scaling, y is not None)
    spectra = jit_composite(_segment_spectra, arrays[0], second, values, rate, *static)
    frequencies = fnp.fft.rfftfreq if onesided else fnp.fft.fftfreq
    freqs = frequencies(length, dtype=values.dtype) * rate
    count = spectra.shape[-1]
    times = (fnp.arange(count) * step + size / 2).astype(values.dtype) / rate
    if boundary is not None:
        times = times - (size / 2) / rate
    if y is None:
        place = axis - 1 if axis < 0 else axis
        spectra = fnp.moveaxis(spectra, -2, place % spectra.ndim)
    return freqs, times, spectra


def _segment_size(name: str, window: Window, nperseg: int | None, n: int) -> int:
    """Return the number of elements of a segment of a signal of n: that of the window, if it is given by values, else
    nperseg, or 256, but not more than n."""
    if is_named(window):
        return min(256 if nperseg is None else to_int(name, "nperseg", nperseg), n)
    values = as_array(name, cast("ArrayLike", window))
    if values.ndim != 1:
        raise ShapeError(f"{name}: window is {values.aval}, not a vector", remedy="give one value for each place")
    size: int = values.shape[0] if nperseg is None else to_int(name, "nperseg", nperseg)
    if values.shape[0] > n:
        raise ShapeError(
            f"{name}: window is {values.aval}, longer than the {n} elements of the signal",
            remedy="give a shorter window, or pad the signal",
        )
    return size


def _segment_spectra(
    x: Array,
    y: Array | None,
    window: Array,
    rate: Array,
    size: int,
    step: int,
    length: int,
    detrend_by: Detrend,
    onesided: bool,
    scaling: str,
    power: bool,
) -> Array:
    """Return the cross spectra of x and y (None: of x with itself), or the transform of x if not `power`."""

    def transformed(a: Array) -> Array:
        count = (a.shape[-1] - (size - step)) // step
        segments = a[..., _segments(count, step, size)]
        if detrend_by:
            segments = detrend_pieces(segments, segments.ndim - 1, detrend_by, (0, size))
        segments = segments * window
        return fnp.fft.rfft(segments, length) if onesided else fnp.fft.fft(segments, length)

    first = transformed(x)
    if not power:
        scale = _scale_of_transform(window, rate, scaling == "density")
        return fnp.swapaxes(first / scale, -1, -2)
    powers = fnp.conj(first) * (first if y is None else transformed(y))
    scale = 1 / (rate * (window**2).sum()) if scaling == "density" else 1 / window.sum() ** 2
    powers = powers * scale
    if onesided:  # the negative frequencies, which are left out, have the same power
        twice = fnp.full(powers.shape[-1], 2.0, window.dtype).at[0].set(1)
        powers = powers * (twice if length % 2 else twice.at[-1].set(1))
    return fnp.swapaxes(powers, -1, -2)


def _segments(count: int, step: int, size: int) -> Array:
    """Return the places of each segment, a row for each."""
    return fnp.arange(count)[:, None] * step + fnp.arange(size)


def _check_segments(name: str, size: int, overlap: int, length: int) -> None:
    if size < 1 or not 0 <= overlap < size or length < size:
        raise ParameterError(
            f"{name}: nperseg is {size}, noverlap {overlap}, nfft {length}",
            remedy="they satisfy 0 <= noverlap < nperseg <= nfft",
        )


def _padded_with_zeros(x: Array, count: int) -> Array:
    return fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count)])


def _with_boundary(x: Array, boundary: str, n: int) -> Array:
    """Return x with n elements more at both ends."""
    pad_width = [(0, 0)] * (x.ndim - 1) + [(n, n)]
    if boundary == "zeros":
        return fnp.pad(x, pad_width)
    if boundary == "constant":
        return fnp.pad(x, pad_width, "edge")
    return fnp.pad(x, pad_width, "reflect", reflect_type=boundary)
