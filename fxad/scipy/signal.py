"""Signals, as in `scipy.signal`: convolutions, trends and spectra."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, cast

import numpy as np

from fxad import dtypes, lax, numpy as fnp
from fxad.errors import ParameterError, ShapeError, shown
from fxad.ir import NDArray
from fxad.numpy.apply import as_array, as_inexact_array
from fxad.numpy.composites import jit_composite, promote_arguments
from fxad.operations.arguments import check_flags, flag, is_word, one_or_more, to_int
from fxad.operations.axes import normalize_axes, normalize_axis_index, normalize_axis_tuple
from fxad.operations.precision import PrecisionLike
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike

_OVERLAPS: Final = ("full", "same", "valid")
_BOUNDARIES: Final = MappingProxyType({"fill": "constant", "wrap": "wrap", "symm": "symmetric"})

# ------------------------------------------------------------------------------------------------------- convolutions


def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Return the convolution of two arrays of the same number of axes.

    Type:   the result is that of every overlap ("full"), its middle part of the shape of in1 ("same"), or that of
            complete overlaps ("valid"). `method` is "direct" ("auto") or "fft"; integers are computed directly, and
            wrap. The dtype is that of a product of the two.
    Raises: ParameterError, ShapeError.
    """
    return _convolved("convolve", in1, in2, mode, method, precision, correlated=False)


def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Return the cross-correlation of two arrays: `convolve` of in1 and the reversed conjugate of in2."""
    return _convolved("correlate", in1, in2, mode, method, precision, correlated=True)


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Return the convolution of two matrices.

    Type:   `boundary` continues in1 beyond its edges: with `fillvalue` ("fill"), periodically ("wrap") or mirrored
            ("symm").
    Raises: ParameterError, ShapeError.
    """
    return _planar("convolve2d", in1, in2, mode, boundary, fillvalue, precision, correlated=False)


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Return the cross-correlation of two matrices; `boundary` is that of `convolve2d`."""
    return _planar("correlate2d", in1, in2, mode, boundary, fillvalue, precision, correlated=True)


def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: int | Sequence[int] | None = None) -> Array:
    """Return the convolution of two arrays along axes, by default all, computed with Fourier transforms.

    Type:   the other axes broadcast. `mode` is that of `convolve`. The result is floating or complex.
    Raises: ParameterError, ShapeError.
    """
    x, y = floats("fftconvolve", in1, in2)
    _check_signals("fftconvolve", x, y, mode)
    chosen = normalize_axes("fftconvolve", axes, x.ndim)
    if mode == "valid" and all([x.shape[k] <= y.shape[k] for k in chosen]):
        x, y = y, x
    elif mode == "valid":
        _check_contained("fftconvolve", x, y, chosen)
    return jit_composite(_by_fft, x, y, mode, chosen)


def _by_fft(x: Array, y: Array, mode: str, axes: tuple[int, ...]) -> Array:
    if not axes:
        return x * y
    dtype = x.dtype
    x, y = [a.astype(dtypes.float32) if dtype.itemsize < 4 else a for a in (x, y)]
    sizes = [x.shape[k] + y.shape[k] - 1 for k in axes]
    if dtype in dtypes.COMPLEX:
        full = fnp.fft.ifftn(fnp.fft.fftn(x, sizes, axes) * fnp.fft.fftn(y, sizes, axes), sizes, axes)
    else:
        full = fnp.fft.irfftn(fnp.fft.rfftn(x, sizes, axes) * fnp.fft.rfftn(y, sizes, axes), sizes, axes)
    cut = [slice(None)] * x.ndim
    for k, n in zip(axes, sizes, strict=True):
        wanted = {"full": n, "same": x.shape[k], "valid": x.shape[k] - y.shape[k] + 1}[mode]
        start = (n - wanted) // 2
        cut[k] = slice(start, start + wanted)
    return full[tuple(cut)].astype(dtype)


def _convolved(
    name: str, in1: ArrayLike, in2: ArrayLike, mode: str, method: str, precision: PrecisionLike, correlated: bool
) -> Array:
    if not is_word(method, ("auto", "direct", "fft")):
        raise ParameterError(f"{name}: method {shown(method, 40)}", remedy='use "auto", "direct" or "fft"')
    x, y = _of_one_dtype(name, in1, in2)
    _check_signals(name, x, y, mode)
    if method == "fft" and x.dtype in dtypes.INEXACT:
        return fftconvolve(x, fnp.conj(fnp.flip(y)) if correlated else y, mode)
    return _direct(name, x, y, mode, precision, correlated)


def _of_one_dtype(name: str, in1: ArrayLike, in2: ArrayLike) -> list[Array]:
    """Return two signals in the dtype of the result: that of their product."""
    x, y = promote_arguments(name, in1, in2)
    dtype = fnp.result_type(x, y)
    return [x.astype(dtype), y.astype(dtype)]


def _check_signals(name: str, x: Array, y: Array, mode: str) -> None:
    if not is_word(mode, _OVERLAPS):
        raise ParameterError(f"{name}: mode {shown(mode, 40)}", remedy='use "full", "same" or "valid"')
    if x.ndim != y.ndim or not x.size or not y.size:
        raise ShapeError(
            f"{name}: takes two arrays of the same number of axes, not empty, got {x.aval} and {y.aval}",
            remedy="add axes of size 1: x[None]",
        )


def _check_contained(name: str, x: Array, y: Array, axes: Sequence[int]) -> None:
    if any([x.shape[k] < y.shape[k] for k in axes]):
        raise ShapeError(
            f"{name}: for the mode 'valid' one array fits into the other along every axis, got {x.aval} and {y.aval}",
            remedy='use mode="full"',
        )


def _middle(kernel: Array, later: bool) -> list[int]:
    """Return the start of the middle part along each axis. For an even size there are two, and SciPy's `correlate2d`
    takes the later one."""
    return [n // 2 if later else (n - 1) // 2 for n in kernel.shape]


def _direct(
    name: str, x: Array, y: Array, mode: str, precision: PrecisionLike, correlated: bool, later: bool = False
) -> Array:
    kernel = fnp.conj(y) if correlated else fnp.flip(y)
    swapped = mode == "valid" and all([n <= m for n, m in zip(x.shape, y.shape, strict=True)])
    if swapped:  # the larger one stays; the order of overlaps is then reversed, which flips both
        x, kernel = fnp.flip(kernel), fnp.flip(x)
    elif mode == "valid":
        _check_contained(name, x, y, range(x.ndim))
    same = [(n - 1 - start, start) for n, start in zip(kernel.shape, _middle(kernel, later), strict=True)]
    padding = {"full": [(n - 1, n - 1) for n in kernel.shape], "same": same, "valid": [(0, 0)] * x.ndim}[mode]
    return _overlaps(x, kernel, padding, precision)


def _overlaps(x: Array, kernel: Array, padding: Sequence[tuple[int, int]], precision: PrecisionLike) -> Array:
    """Return the sum of x times the kernel at each place of it within x and its padding."""
    inner = dtypes.int32 if x.dtype is dtypes.bool_ else x.dtype
    operand, filters = x.astype(inner)[None, None], kernel.astype(inner)[None, None]
    out = lax.conv_general_dilated(operand, filters, (1,) * x.ndim, padding, precision=precision)[0, 0]
    return out.astype(x.dtype)


def _planar(
    name: str,
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str,
    boundary: str,
    fillvalue: ArrayLike,
    precision: PrecisionLike,
    correlated: bool,
) -> Array:
    continued = _BOUNDARIES[boundary] if is_word(boundary, _BOUNDARIES) else None
    if continued is None:
        raise ParameterError(f"{name}: boundary {shown(boundary, 40)}", remedy='use "fill", "wrap" or "symm"')
    x, y = _of_one_dtype(name, in1, in2)
    _check_signals(name, x, y, mode)
    if x.ndim != 2:
        raise ShapeError(f"{name}: takes matrices, got {x.aval} and {y.aval}", remedy="use convolve or correlate")
    zero = boundary == "fill" and isinstance(fillvalue, int | float | complex) and fillvalue == 0
    if mode == "valid" or zero:
        return _direct(name, x, y, mode, precision, correlated, later=correlated)
    n, m = y.shape
    around = ((n - 1, n - 1), (m - 1, m - 1))
    if continued == "constant":
        wide = fnp.pad(x, around, constant_values=as_array(name, fillvalue).astype(x.dtype))
    else:
        wide = fnp.pad(x, around, continued)
    kernel = fnp.conj(y) if correlated else fnp.flip(y)
    full = _overlaps(wide, kernel, [(0, 0)] * 2, precision)
    if mode == "full":
        return full
    starts = _middle(y, later=correlated)
    return full[starts[0] : starts[0] + x.shape[0], starts[1] : starts[1] + x.shape[1]]


# ------------------------------------------------------------------------------------------------------------- trends


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: Literal["linear", "constant"] = "linear",  # noqa: A002 -- SciPy's name
    bp: int | Sequence[int] = 0,
    overwrite_data: bool = False,
) -> Array:
    """Return the data without its mean ("constant"), or without the line that fits best ("linear").

    Type:   `bp` are places where a new line begins. `overwrite_data` changes nothing.
    Raises: ParameterError, AxisError.
    """
    check_flags("detrend", overwrite_data=overwrite_data)
    array = as_inexact_array("detrend", data)
    k = normalize_axis_index("detrend", axis, array.ndim)
    if not is_word(type, ("linear", "constant")):
        raise ParameterError(f"detrend: type {shown(type, 40)}", remedy='use "linear" or "constant"')
    places = one_or_more("detrend", "bp", bp)
    breaks = (places,) if isinstance(places, int) else places
    n = array.shape[k]
    if any([not 0 <= b <= n for b in breaks]):
        raise ParameterError(f"detrend: bp {breaks} is not within axis {k} of {array.aval}", remedy="give places in it")
    return jit_composite(_detrended, array, k, type, tuple(sorted({0, *breaks, n})))


def _detrended(x: Array, axis: int, kind: str, bounds: tuple[int, ...]) -> Array:
    if kind == "constant":
        return x - x.mean(axis, keepdims=True)
    x = fnp.moveaxis(x, axis, -1)
    parts = []
    for start, end in pairwise(bounds):
        part = x[..., start:end]
        part = part - part.mean(-1, keepdims=True)
        n = end - start
        t = fnp.arange(n).astype(x.real.dtype) - (n - 1) / 2
        slope = (part * t).sum(-1, keepdims=True) / (n * (n**2 - 1) / 12 or 1)
        parts.append(part - slope * t)
    return fnp.moveaxis(fnp.concatenate(parts, axis=-1) if parts else x, -1, axis)


# ------------------------------------------------------------------------------------------------------------ spectra

_COSINES: Final = MappingProxyType({
    "boxcar": (1.0,), "hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168), "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
})  # fmt: skip


def _parzen(n: int, k: NDArray) -> NDArray:
    r = 2 * np.abs(k) / n
    return np.where(np.abs(k) <= (n - 1) / 4, 1 - 6 * r**2 * (1 - r), 2 * (1 - r) ** 3)


def _bohman(n: int, k: NDArray) -> NDArray:
    r = 2 * np.abs(k) / (n - 1)
    return np.where(r < 1, (1 - r) * np.cos(np.pi * r) + np.sin(np.pi * r) / np.pi, 0)


def _tukey(n: int, k: NDArray, alpha: float = 0.5) -> NDArray:
    if alpha <= 0:
        return np.ones(k.shape)
    alpha = min(alpha, 1)
    r = 2 * np.abs(k) / (n - 1)
    return np.where(r <= 1 - alpha, 1, 0.5 + 0.5 * np.cos(np.pi * (r - 1 + alpha) / alpha))


def _exponential(_: int, k: NDArray, center: None = None, tau: float = 1.0) -> NDArray:
    if center is not None:  # SciPy takes none for windows of spectra
        raise TypeError
    return np.exp(-np.abs(k) / tau)


# The others, as functions of the number of values and of the distances from the middle.
_SHAPES: Final[Mapping[str, Callable[..., NDArray]]] = MappingProxyType({
    "triang": lambda n, k: 1 - 2 * np.abs(k) / (n + n % 2),
    "bartlett": lambda n, k: 1 - 2 * np.abs(k) / (n - 1),
    "parzen": _parzen, "bohman": _bohman, "tukey": _tukey,
    "barthann": lambda n, k: 0.62 - 0.48 * np.abs(k) / (n - 1) + 0.38 * np.cos(2 * np.pi * k / (n - 1)),
    "cosine": lambda n, k: np.cos(np.pi * k / n),
    "lanczos": lambda n, k: np.sinc(2 * k / (n - 1)),
    "exponential": _exponential,
    "kaiser": lambda n, _, beta: np.kaiser(n, beta)[:-1],
    "gaussian": lambda _, k, std: np.exp(-((k / std) ** 2) / 2),
    "general_hamming": lambda n, k, alpha: alpha + (1 - alpha) * np.cos(2 * np.pi * k / (n - 1)),
})  # fmt: skip

Window: TypeAlias = "str | tuple[str, *tuple[float, ...]] | ArrayLike"
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
    return _averaged(
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
    freqs, power = _averaged(
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
    values = _window_values("istft", window, size).astype(real)
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
    # stft divides by this
    scale = fnp.sqrt(rate * (window**2).sum()) if density else window.sum()
    signal = empty.at[..., places].add(segments * window * scale)
    norm = fnp.zeros(total, window.dtype).at[places].add(fnp.broadcast_to(window**2, places.shape))
    if boundary:
        signal, norm = signal[..., size // 2 : total - size // 2], norm[size // 2 : total - size // 2]
    return signal / fnp.where(norm > 1e-10, norm, 1)


def _transform_scaling(name: str, scaling: str) -> str:
    """Return the scaling of `_spectra` for that of a transform. Raises: ParameterError."""
    if not is_word(scaling, ("psd", "spectrum")):
        raise ParameterError(f"{name}: scaling {shown(scaling, 40)}", remedy='use "psd" or "spectrum"')
    return "density" if scaling == "psd" else "spectrum"


def _averaged(
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
    if not is_word(average, ("mean", "median")):
        raise ParameterError(f"{name}: average {shown(average, 40)}", remedy='use "mean" or "median"')
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
    if not is_word(scaling, ("density", "spectrum")):
        raise ParameterError(f"{name}: scaling {shown(scaling, 40)}", remedy='use "density" or "spectrum"')
    if not is_word(boundary, (None, "zeros", "even", "odd", "constant")):
        raise ParameterError(
            f"{name}: boundary {shown(boundary, 40)}", remedy='use "zeros", "even", "odd", "constant" or None'
        )
    if detrend_by is not False and not is_word(detrend_by, ("constant", "linear")):
        raise ParameterError(f"{name}: detrend {shown(detrend_by, 40)}", remedy='use "constant", "linear" or False')
    arrays = floats(name, x) if y is None or y is x else floats(name, x, y)
    arrays = [fnp.moveaxis(a, normalize_axis_index(name, axis, a.ndim), -1) for a in arrays]
    n = max([a.shape[-1] for a in arrays])
    arrays = [a if a.shape[-1] == n else _extended(a, 0, n - a.shape[-1]) for a in arrays]
    window_array = None if _is_named(window) else as_array(name, cast("ArrayLike", window))
    if window_array is not None and window_array.ndim != 1:
        raise ShapeError(f"{name}: window is {window_array.aval}, not a vector", remedy="give one value for each place")
    if nperseg is None:
        size = min(256, n) if window_array is None else window_array.shape[0]
    else:
        size = to_int(name, "nperseg", nperseg)
        size = min(size, n) if window_array is None else size
    if window_array is not None and window_array.shape[0] > n:
        raise ShapeError(
            f"{name}: window is {window_array.aval}, longer than the {n} elements of the signal",
            remedy="give a shorter window, or pad the signal",
        )
    values = _window_values(name, window, size).astype(arrays[0].real.dtype)
    length = size if nfft is None else to_int(name, "nfft", nfft)
    overlap = size // 2 if noverlap is None else to_int(name, "noverlap", noverlap)
    _check_segments(name, size, overlap, length)
    real = arrays[0].dtype not in dtypes.COMPLEX
    onesided = onesided and real
    step = size - overlap
    if boundary is not None:
        arrays = [_beyond(a, boundary, size // 2) for a in arrays]
    if padded:
        rest = -(arrays[0].shape[-1] - size) % step % size
        arrays = [_extended(a, 0, rest) for a in arrays]
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
            segments = _detrended(segments, segments.ndim - 1, detrend_by, (0, size))
        segments = segments * window
        return fnp.fft.rfft(segments, length) if onesided else fnp.fft.fft(segments, length)

    first = transformed(x)
    if not power:
        scale = fnp.sqrt(rate * (window**2).sum()) if scaling == "density" else window.sum()
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


def _is_named(window: Window) -> bool:
    return isinstance(window, str) or (isinstance(window, tuple) and bool(window) and isinstance(window[0], str))


def _window_values(name: str, window: Window, size: int) -> Array:
    """Return a window of `size` values, given by its name or by its values. Raises: ParameterError, ShapeError."""
    if not _is_named(window):
        values = as_array(name, cast("ArrayLike", window))
        if values.shape != (size,):
            raise ShapeError(
                f"{name}: window is {values.aval} for segments of {size}", remedy="give them the same length"
            )
        return values
    named = cast("tuple[object, ...]", (window,) if isinstance(window, str) else window)
    kind, parameters = str(named[0]), named[1:]
    cosines, form = _COSINES.get(kind), _SHAPES.get(kind)
    try:
        if cosines is not None and not parameters:
            turns = 2 * np.pi * np.arange(size) / size
            values64 = sum([(-1) ** k * a * np.cos(k * turns) for k, a in enumerate(cosines)])
        elif form is not None:
            # periodic: the symmetric window of one value more, without the last
            values64 = form(size + 1, np.arange(size) - size / 2, *parameters)
        else:
            raise TypeError
    except TypeError:  # another number of parameters, or no numbers
        raise ParameterError(
            f"{name}: window {shown(window, 40)}",
            remedy=f"give its values, or one of {', '.join([*_COSINES, *_SHAPES])}; with a parameter: ('kaiser', 8.0)",
        ) from None
    return fnp.asarray(np.ones(1) if size == 1 else values64)


def _extended(x: Array, before: int, after: int) -> Array:
    return fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, after)])


def _beyond(x: Array, boundary: str, n: int) -> Array:
    """Return x with n elements more at both ends."""
    around = [(0, 0)] * (x.ndim - 1) + [(n, n)]
    if boundary == "zeros":
        return fnp.pad(x, around)
    if boundary == "constant":
        return fnp.pad(x, around, "edge")
    return fnp.pad(x, around, "reflect", reflect_type=boundary)


__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft", "welch",
]  # fmt: skip
