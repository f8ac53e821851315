"""Convolutions and correlations of `scipy.signal`."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from fxad import dtypes, lax, numpy as fnp
from fxad.errors import ShapeError
from fxad.numpy.apply import as_array
from fxad.numpy.composites import jit_composite, promote_arguments
from fxad.operations.arguments import word
from fxad.operations.axes import normalize_axes
from fxad.operations.precision import PrecisionLike
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike

_OVERLAPS: Final = ("full", "same", "valid")
_PAD_MODES: Final = MappingProxyType({"fill": "constant", "wrap": "wrap", "symm": "symmetric"})  # those of numpy.pad


def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Return the convolution of two arrays of the same number of axes.

    Type:   the result is that of every overlap ("full"), its middle part of the shape of in1 ("same"), or that of
            complete overlaps ("valid"). `method` is "direct" ("auto") or "fft"; integers are computed directly, and
            wrap. The dtype is that of a product of the two.
    Raises: ParameterError, ShapeError.
    """
    return _convolve("convolve", in1, in2, mode, method, precision, correlated=False)


def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """Return the cross-correlation of two arrays: `convolve` of in1 and the reversed conjugate of in2."""
    return _convolve("correlate", in1, in2, mode, method, precision, correlated=True)


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
    return _convolve_matrices("convolve2d", in1, in2, mode, boundary, fillvalue, precision, correlated=False)


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """Return the cross-correlation of two matrices; `boundary` is that of `convolve2d`."""
    return _convolve_matrices("correlate2d", in1, in2, mode, boundary, fillvalue, precision, correlated=True)


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
    """Return the product of the Fourier transforms, transformed back, and of that the part that `mode` asks for."""
    if not axes:
        return x * y
    dtype = x.dtype
    x, y = [a.astype(dtypes.float32) if dtype.itemsize < 4 else a for a in (x, y)]
    sizes = [x.shape[k] + y.shape[k] - 1 for k in axes]
    if dtype in dtypes.COMPLEX:
        full = fnp.fft.ifftn(fnp.fft.fftn(x, sizes, axes) * fnp.fft.fftn(y, sizes, axes), sizes, axes)
    else:
        full = fnp.fft.irfftn(fnp.fft.rfftn(x, sizes, axes) * fnp.fft.rfftn(y, sizes, axes), sizes, axes)
    middle = [slice(None)] * x.ndim
    for k, n in zip(axes, sizes, strict=True):
        size = {"full": n, "same": x.shape[k], "valid": x.shape[k] - y.shape[k] + 1}[mode]
        start = (n - size) // 2
        middle[k] = slice(start, start + size)
    return full[tuple(middle)].astype(dtype)


def _convolve(
    name: str, in1: ArrayLike, in2: ArrayLike, mode: str, method: str, precision: PrecisionLike, correlated: bool
) -> Array:
    word(name, "method", method, ("auto", "direct", "fft"))
    x, y = _in_common_dtype(name, in1, in2)
    _check_signals(name, x, y, mode)
    if method == "fft" and x.dtype in dtypes.INEXACT:
        return fftconvolve(x, fnp.conj(fnp.flip(y)) if correlated else y, mode)
    return _direct(name, x, y, mode, precision, correlated)


def _in_common_dtype(name: str, in1: ArrayLike, in2: ArrayLike) -> list[Array]:
    """Return two signals in the dtype of the result: that of their product."""
    x, y = promote_arguments(name, in1, in2)
    dtype = fnp.result_type(x, y)
    return [x.astype(dtype), y.astype(dtype)]


def _check_signals(name: str, x: Array, y: Array, mode: str) -> None:
    word(name, "mode", mode, _OVERLAPS)
    if x.ndim != y.ndim or x.size == 0 or y.size == 0:
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


def _starts_of_middle(kernel: Array, later: bool) -> list[int]:
    """Return the start of the middle part along each axis. For a kernel of even size there are two, and SciPy's
    `correlate2d` takes the later one."""
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
    same = [(n - 1 - start, start) for n, start in zip(kernel.shape, _starts_of_middle(kernel, later), strict=True)]
    padding = {"full": [(n - 1, n - 1) for n in kernel.shape], "same": same, "valid": [(0, 0)] * x.ndim}[mode]
    return _overlaps(x, kernel, padding, precision)


def _overlaps(x: Array, kernel: Array, padding: Sequence[tuple[int, int]], precision: PrecisionLike) -> Array:
    """Return the sum of x times the kernel at each place of it within x and its padding."""
    inner = dtypes.int32 if x.dtype is dtypes.bool_ else x.dtype
    operand, filters = x.astype(inner)[None, None], kernel.astype(inner)[None, None]
    out = lax.conv_general_dilated(operand, filters, (1,) * x.ndim, padding, precision=precision)[0, 0]
    return out.astype(x.dtype)


def _convolve_matrices(
    name: str,
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str,
    boundary: str,
    fillvalue: ArrayLike,
    precision: PrecisionLike,
    correlated: bool,
) -> Array:
    pad_mode = _PAD_MODES[word(name, "boundary", boundary, _PAD_MODES)]
    x, y = _in_common_dtype(name, in1, in2)
    _check_signals(name, x, y, mode)
    if x.ndim != 2:
        raise ShapeError(f"{name}: takes matrices, got {x.aval} and {y.aval}", remedy="use convolve or correlate")
    zero_fill = boundary == "fill" and isinstance(fillvalue, int | float | complex) and fillvalue == 0
    if mode == "valid" or zero_fill:
        return _direct(name, x, y, mode, precision, correlated, later=correlated)
    # The full result of x with its boundary. "same" is the middle of it, "valid" reads no boundary.
    n, m = y.shape
    pad_width = ((n - 1, n - 1), (m - 1, m - 1))
    if pad_mode == "constant":
        padded = fnp.pad(x, pad_width, constant_values=as_array(name, fillvalue).astype(x.dtype))
    else:
        padded = fnp.pad(x, pad_width, pad_mode)
    kernel = fnp.conj(y) if correlated else fnp.flip(y)
    full = _overlaps(padded, kernel, [(0, 0)] * 2, precision)
    if mode == "full":
        return full
    starts = _starts_of_middle(y, later=correlated)
    return full[starts[0] : starts[0] + x.shape[0], starts[1] : starts[1] + x.shape[1]]
