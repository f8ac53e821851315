"""Dtypes: names, properties and promotion."""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Final, final

import ml_dtypes
import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType, issubdtype as issubdtype
from fxad.errors import ArgumentError, DTypeError, ParameterError, shown
from fxad.operations import promotion
from fxad.operations.arguments import contained_array
from fxad.operations.axes import AxisLike, hashable_axis, normalize_axes
from fxad.tracing.array import ArrayLike, aval_of
from fxad.tracing.traced_numbers import dtype_of_number, is_number


@final
@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Properties of a floating dtype; for a complex dtype, of its parts."""

    dtype: DType
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    epsneg: float
    resolution: float
    precision: int
    nmant: int
    nexp: int
    minexp: int
    maxexp: int

    @property
    def tiny(self) -> float:
        """NumPy's name of `smallest_normal`."""
        return self.smallest_normal


@final
@dataclass(frozen=True, slots=True)
class IntInfo:
    """Properties of an integer dtype."""

    dtype: DType
    bits: int
    max: int
    min: int


def finfo(type: object, /) -> FloatInfo:
    """Return the properties of a floating or complex dtype, or of an array's dtype. Raises: DTypeError."""
    dtype = _dtype_of(type)
    if dtype not in dtypes.INEXACT:
        raise DTypeError(f"finfo: {dtype.name} is not floating", remedy="use iinfo")
    real = dtypes.real_part(dtype)
    info = ml_dtypes.finfo(real)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    return FloatInfo(
        dtype=real,
        bits=8 * real.itemsize,
        eps=float(info.eps),
        max=float(info.max),
        min=float(info.min),
        smallest_normal=float(info.smallest_normal),
        smallest_subnormal=float(info.smallest_subnormal),
        epsneg=float(info.epsneg),
        resolution=10.0**-info.precision,
        precision=info.precision,
        nmant=info.nmant,
        nexp=info.nexp,
        minexp=info.minexp,
        maxexp=info.maxexp,
    )


def iinfo(type: object, /) -> IntInfo:
    """Return the properties of an integer dtype, or of an array's dtype. Raises: DTypeError."""
    dtype = _dtype_of(type)
    if dtype not in dtypes.INTEGER:
        raise DTypeError(f"iinfo: {dtype.name} is not an integer dtype", remedy="use finfo")
    bits = 8 * dtype.itemsize
    signed = dtype in dtypes.SIGNED
    return IntInfo(dtype, bits, (1 << (bits - signed)) - 1, -(1 << (bits - 1)) if signed else 0)


def _dtype_of(value: object) -> DType:
    value = contained_array(value)
    own = getattr(value, "dtype", None)
    return dtypes.as_dtype(own if isinstance(own, np.dtype) else value)


def result_type(*arrays_and_dtypes: object) -> DType:
    """Return the common dtype of arrays, dtypes and Python scalars, by the promotion of the operators."""
    strong = [_dtype_of(v) for v in arrays_and_dtypes if not is_number(v)]
    scalars = [v for v in arrays_and_dtypes if is_number(v)]
    if not arrays_and_dtypes:
        raise ArgumentError("result_type: takes at least one array or dtype")
    out = strong[0] if strong else None
    for d in strong[1:]:
        out = promotion.promote_dtypes("result_type", out or d, d)
    for v in scalars:
        own = dtype_of_number(v, out, "result_type: a scalar")
        out = own if out is None else promotion.promote_dtypes("result_type", out, own)
    return out or dtypes.float32


def promote_types(a: object, b: object) -> DType:
    """Return the common dtype of two dtypes."""
    return promotion.promote_dtypes("promote_types", dtypes.as_dtype(a), dtypes.as_dtype(b))


def can_cast(from_: object, to: object, casting: str = "safe") -> bool:
    """Return True if `casting` allows the conversion: "no" and "equiv" none, "safe" if promotion with `to` gives `to`,
    "same_kind" also to a narrower dtype of a kind that holds it, "unsafe" any.

    Raises: ParameterError for another casting.
    """
    a, b = _dtype_of(from_), dtypes.as_dtype(to)
    if not isinstance(casting, str) or casting not in _CASTINGS:
        raise ParameterError(f"can_cast: casting is {shown(casting)}", remedy=f"use one of {', '.join(_CASTINGS)}")
    if casting in ("no", "equiv"):
        return a is b
    if casting != "safe":
        return casting == "unsafe" or _rank(a) <= _rank(b)
    try:
        return promotion.promote_dtypes("can_cast", a, b) is b
    except DTypeError:
        return False


_CASTINGS: Final = ("no", "equiv", "safe", "same_kind", "unsafe")
_BY_RANK: Final = (frozenset({dtypes.bool_}), dtypes.UNSIGNED, dtypes.SIGNED, dtypes.FLOATING, dtypes.COMPLEX)


def _rank(dtype: dtypes.DType) -> int:
    """Return the place of the kind of a dtype in the order in which kinds hold each other."""
    return next((k for k, kind in enumerate(_BY_RANK) if dtype in kind), len(_BY_RANK))


_KINDS: Final = MappingProxyType(
    {
        "bool": frozenset({dtypes.bool_}),
        "signed integer": dtypes.SIGNED,
        "unsigned integer": dtypes.UNSIGNED,
        "integral": dtypes.INTEGER,
        "real floating": dtypes.FLOATING,
        "complex floating": dtypes.COMPLEX,
        "numeric": dtypes.NUMERIC,
    }
)


def isdtype(dtype: object, kind: object) -> bool:
    """Return True if a dtype is of a kind ("integral", "real floating", ...), equals a dtype, or matches one of a
    tuple."""
    wanted = dtypes.as_dtype(dtype)
    if isinstance(kind, tuple):
        return any([isdtype(wanted, k) for k in kind])
    if isinstance(kind, str) and kind in _KINDS:
        return wanted in _KINDS[kind]
    return wanted is dtypes.as_dtype(kind)


def shape(a: ArrayLike) -> tuple[int, ...]:
    """Return the sizes of the axes."""
    return aval_of(contained_array(a), "shape: argument 0").shape


def ndim(a: ArrayLike) -> int:
    """Return the number of axes."""
    return aval_of(contained_array(a), "ndim: argument 0").ndim


def size(a: ArrayLike, axis: AxisLike = None) -> int:
    """Return the number of elements, or the product of the sizes of some axes."""
    aval = aval_of(contained_array(a), "size: argument 0")
    return prod([aval.shape[k] for k in normalize_axes("size", hashable_axis(axis), aval.ndim)])
