"""Fourier transforms in equations: dtypes, sizes and axes by NumPy's rules (integers become float32)."""

from __future__ import annotations

from math import prod, sqrt

from fxad import dtypes
from fxad.core.sizes.size import Size
from fxad.errors import DTypeError, ParameterError, ShapeError, shown
from fxad.ir import Atom, Atoms, Aval, Emit, Lit, Shape
from fxad.operations.axes import normalize_axis_tuple
from fxad.operations.promotion import broadcast, convert, to_inexact_dtype
from fxad.operations.shapes import moveaxis, slice_axis
from fxad.primitives.elementwise.arithmetic import DIV, MUL
from fxad.primitives.elementwise.complex_parts import CONJ
from fxad.primitives.elementwise.powers import SQRT
from fxad.primitives.fft import Fft
from fxad.primitives.slicing import pad_along_axis

NORMS = ("backward", "ortho", "forward")
_MAX_AXES = 3  # the maximum number of axes of one transform


def fft_transform(
    emit: Emit, x: Atom, name: str, kind: str, sizes: Shape | None, axes: Shape | None, norm: str | None
) -> Atoms:
    """Return one of the four kinds over any axes, resized to `sizes` first by truncation or zero padding."""
    axis_tuple = _normalize_axes(name, x, sizes, axes)
    if not axis_tuple and kind in ("RFFT", "IRFFT"):
        raise ParameterError(f"{name}: no axis of {x.aval} is transformed", remedy="name one: its half is stored")
    current = tuple([x.aval.shape[a] for a in axis_tuple])
    half = kind == "IRFFT"
    lengths = (*current[:-1], 2 * (current[-1] - 1)) if sizes is None and half and axis_tuple else sizes or current
    if any([n < 1 for n in lengths]):
        raise ShapeError(f"{name}: cannot transform {x.aval} to sizes {lengths}: all must be positive")
    y = convert(emit, x, _dtype(name, x, kind))
    for a, n in zip(axis_tuple, lengths, strict=True):
        y = _resize(emit, y, a, n // 2 + 1 if half and a == axis_tuple[-1] else n)
    for partial_kind, places in _partial_transforms(kind, len(axis_tuple)):
        y = _transform(
            emit, y, partial_kind, tuple([axis_tuple[k] for k in places]), tuple([lengths[k] for k in places])
        )
    return (_scaled(emit, y, name, kind, norm, prod(lengths)),)


def hermitian(emit: Emit, x: Atom, name: str, n: int | None, axis: int, norm: str | None) -> Atoms:
    """Return hfft: the FFT of a signal with Hermitian symmetry, given by one half; its result is real."""
    sizes = None if n is None else (n,)
    (z,) = emit(CONJ, convert(emit, x, _dtype(name, x, "IRFFT")))
    return fft_transform(emit, z, name, "IRFFT", sizes, (axis,), _inverse_norm(name, norm))


def antihermitian(emit: Emit, x: Atom, name: str, n: int | None, axis: int, norm: str | None) -> Atoms:
    """Return ihfft, the inverse of hfft."""
    sizes = None if n is None else (n,)
    (z,) = fft_transform(emit, x, name, "RFFT", sizes, (axis,), _inverse_norm(name, norm))
    return emit(CONJ, z)


def _normalize_axes(name: str, x: Atom, sizes: Shape | None, axes: Shape | None) -> Shape:
    ndim = x.aval.ndim
    if axes is None:
        if sizes is not None and len(sizes) > ndim:
            raise ShapeError(f"{name}: sizes {sizes} are more than the {ndim} axes of {x.aval}")
        axes = tuple(range(ndim)) if sizes is None else tuple(range(ndim - len(sizes), ndim))
    elif sizes is not None and len(sizes) != len(axes):
        raise ShapeError(f"{name}: sizes {sizes} and axes {axes} differ in length")
    return normalize_axis_tuple(name, axes, ndim)


def _dtype(name: str, x: Atom, kind: str) -> dtypes.DType:
    dtype = to_inexact_dtype(x.aval.dtype)
    if kind == "RFFT" and dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: takes real numbers, got {x.aval}", remedy="use the transform without r")
    if dtype not in dtypes.COMPLEX and dtype.itemsize < 4:
        dtype = dtypes.float32
    return dtype if kind == "RFFT" or dtype in dtypes.COMPLEX else dtypes.complex_of(dtype)


def _resize(emit: Emit, x: Atom, axis: int, n: int) -> Atom:
    size = x.aval.shape[axis]
    if size >= n:
        return x if size == n else slice_axis(emit, x, axis, 0, n)
    return emit.one(pad_along_axis(x.aval.ndim, axis, high=n - size), x, Lit.zero(x.aval.with_shape(())))


def _partial_transforms(kind: str, count: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return the kinds of the transforms of up to `_MAX_AXES` axes, and the places of these axes, in the order of the
    transforms. The real transform includes the last axis."""
    places = tuple(range(count))
    groups = [places[max(k - _MAX_AXES, 0) : k] for k in range(count, 0, -_MAX_AXES)]
    if not kind.endswith("RFFT") or not groups:
        return [(kind, g) for g in groups]
    others = [("FFT" if kind == "RFFT" else "IFFT", g) for g in groups[1:]]
    return [(kind, groups[0]), *others] if kind == "RFFT" else [*others, (kind, groups[0])]


def _transform(emit: Emit, x: Atom, kind: str, axes: Shape, lengths: Shape) -> Atom:
    last = tuple(range(x.aval.ndim - len(axes), x.aval.ndim))
    (moved,) = moveaxis(emit, x, axes, last)
    return moveaxis(emit, emit.one(Fft(kind, lengths), moved), last, axes)[0]


def _scaled(emit: Emit, y: Atom, name: str, kind: str, norm: str | None, count: int) -> Atom:
    """Return a transform of `count` elements, scaled. The inverse kinds already divide by the number of elements."""
    norm = _norm(name, norm)
    if norm == "backward":
        return y
    inverse = kind.startswith("I")
    factor: Atom
    if inverse and norm == "forward":
        factor = Lit.of(count, y.aval)
    elif type(count) is Size:
        real = Aval((), dtypes.real_part(y.aval.dtype))
        factor = Lit.of(count, real)
        factor = emit.one(SQRT, factor) if norm == "ortho" else factor
        factor = factor if inverse else emit.one(DIV, Lit.of(1, real), factor)
        factor = broadcast(emit, convert(emit, factor, y.aval.dtype), y.aval.shape)
    else:
        scale = sqrt(count) if norm == "ortho" else float(count)
        factor = Lit.of(scale if inverse else 1 / scale, y.aval)
    return y if count == 1 else emit.one(MUL, y, factor)


def _norm(name: str, norm: str | None) -> str:
    if norm is not None and (not isinstance(norm, str) or norm not in NORMS):
        raise ParameterError(f"{name}: norm {shown(norm)} is not one of {' '.join(NORMS)}")
    return norm or "backward"


def _inverse_norm(name: str, norm: str | None) -> str:
    return {"backward": "forward", "forward": "backward", "ortho": "ortho"}[_norm(name, norm)]
