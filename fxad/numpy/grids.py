"""Grids, index expressions, and concatenation by indexing: `mgrid[0:2, 0:3]`, `r_[a, 0, b]`."""

from __future__ import annotations

import math
from typing import Final, TypeAlias, cast, final

from fxad import dtypes, lax
from fxad.core.sizes.size import maximum
from fxad.errors import ArgumentError, ParameterError, described
from fxad.numpy.binary import power, where
from fxad.numpy.composites import jit_composite, promote_arguments
from fxad.numpy.creation import Nested, arange, asarray, linspace, zeros
from fxad.numpy.shapes import broadcast_arrays, concat, moveaxis, stack
from fxad.numpy.types import result_type
from fxad.numpy.unary import abs, exp, log, sign
from fxad.operations import promotion
from fxad.operations.arguments import flag, to_int
from fxad.operations.promotion import optional_dtype
from fxad.tracing.array import Array, ArrayLike

GridSlices: TypeAlias = "slice | tuple[slice, ...]"


def _points(name: str, span: object) -> Array:
    """Return the points of a slice. An imaginary step is a number of points, stop included."""
    if not isinstance(span, slice):
        raise ArgumentError(f"{name}: takes slices, got {described(span)}", remedy=f"write {name}[start:stop:step]")
    start = 0 if span.start is None else span.start
    step = 1 if span.step is None else span.step
    if span == slice(None):
        return arange(0)  # as in NumPy
    if span.stop is None:
        raise ParameterError(f"{name}: {span} has no end", remedy=f"write {name}[start:stop]")
    if isinstance(step, complex):
        return linspace(start, span.stop, int(math.fabs(step.imag)))
    return arange(start, span.stop, step)


def _lines(name: str, spans: GridSlices) -> list[Array]:
    """Return the points along each axis, in shapes that broadcast together."""
    slices = spans if isinstance(spans, tuple) else (spans,)
    lines = [_points(name, s) for s in slices]
    dtype = result_type(*lines) if lines else dtypes.int32
    n = len(lines)
    return [x.astype(dtype).reshape([-1 if a == k else 1 for a in range(n)]) for k, x in enumerate(lines)]


@final
class _GridMaker:
    """`mgrid[0:2, 0:3]`: the stacked coordinates of all points of a grid."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "fxad.numpy.mgrid"

    def __getitem__(self, spans: GridSlices) -> Array:
        axes = _lines("mgrid", spans)
        if not isinstance(spans, tuple):
            return axes[0]
        return stack(broadcast_arrays(*axes)) if axes else zeros((0,), dtypes.int32)


@final
class _Open:
    """`ogrid[0:2, 0:3]`: the coordinates along each axis of a grid, in shapes that broadcast together."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "fxad.numpy.ogrid"

    def __getitem__(self, spans: GridSlices) -> Array | tuple[Array, ...]:
        axes = _lines("ogrid", spans)
        return tuple(axes) if isinstance(spans, tuple) else axes[0]


@final
class _IndexMaker:
    """`s_[1:, None]`: the index as a value; `index_exp` returns it as a tuple."""

    __slots__ = ("_always_tuple",)

    def __init__(self, always_tuple: bool) -> None:
        self._always_tuple = always_tuple

    def __repr__(self) -> str:
        return f"fxad.numpy.{'index_exp' if self._always_tuple else 's_'}"

    def __getitem__(self, index: object) -> object:
        return (index,) if self._always_tuple and not isinstance(index, tuple) else index


@final
class _Together:
    """`r_[a, 0, 1:5]`: arrays, scalars and ranges concatenated along the first axis; `c_` along the last, as columns.
    The first item may be "axis,ndim,where": the axis, the least number of axes, and the position of the original axes
    among them; "r" or "c": the pieces make one row or one column of a matrix."""

    __slots__ = ("_axis", "_name", "_ndim", "_where")

    def __init__(self, name: str, axis: int, ndim: int, where: int) -> None:
        self._name, self._axis, self._ndim, self._where = name, axis, ndim, where

    def __repr__(self) -> str:
        return f"fxad.numpy.{self._name}"

    def __getitem__(self, items: object) -> Array:
        pieces = list(items) if isinstance(items, tuple) else [items]
        axis, ndim, where_ = self._axis, self._ndim, self._where
        as_matrix = ""
        if pieces and isinstance(pieces[0], str):
            directive = pieces.pop(0)
            if directive in ("r", "c"):
                as_matrix = directive
            else:
                axis, ndim, where_ = self._directive(directive)
        # scalars take the dtype of arrays beside them
        parts = [x if isinstance(x, bool | int | float | complex) else self._part(x, ndim, where_) for x in pieces]
        dtype = result_type(*parts) if parts else dtypes.float32
        shaped = [x if isinstance(x, Array) else asarray(x, dtype).reshape((1,) * max(ndim, 1)) for x in parts]
        out = concat([x.astype(dtype) for x in shaped], axis)
        return out if not as_matrix or out.ndim > 1 else out.reshape((1, -1) if as_matrix == "r" else (-1, 1))

    def _directive(self, text: object) -> tuple[int, int, int]:
        try:
            numbers = [int(n) for n in str(text).split(",")]
        except ValueError:
            raise ParameterError(
                f"{self._name}: {text!r} does not say an axis",
                remedy="write 'axis', 'axis,ndim', 'axis,ndim,where', 'r' or 'c'",
            ) from None
        axis, ndim, where_ = [*numbers, *(self._axis, self._ndim, self._where)[len(numbers) :]]
        return axis, ndim, where_

    def _part(self, x: object, ndim: int, where_: int) -> Array:
        array = _points(self._name, x) if isinstance(x, slice) else asarray(cast("Nested", x))
        more = ndim - array.ndim
        if more <= 0:
            return array
        own = array.ndim
        array = array.reshape(*[1] * more, *array.shape)
        front = where_ if where_ >= 0 else more + where_ + 1
        order = list(range(more))
        order[front:front] = range(more, more + own)
        return array.transpose(order)


mgrid: Final = _GridMaker()
ogrid: Final = _Open()
s_: Final = _IndexMaker(False)
index_exp: Final = _IndexMaker(True)
r_: Final = _Together("r_", 0, 1, -1)
c_: Final = _Together("c_", -1, 2, 0)


# ------------------------------------------------------------------------------------------------- in equal factors


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: object = None,
    axis: int = 0,
) -> Array:
    """Return `num` values from base**start to base**stop with equal ratios."""
    endpoint = flag("logspace", "endpoint", endpoint)
    axis = to_int("logspace", "axis", axis)
    num = to_int("logspace", "num", num)
    want = optional_dtype(dtype)
    a, b, c = promote_arguments("logspace", start, stop, base, dtype=want if want in dtypes.INEXACT else None)
    return jit_composite(_powers, a, b, c, num, endpoint, want, axis)


def _powers(
    start: Array, stop: Array, base: Array, num: int, endpoint: bool, want: dtypes.DType | None, axis: int
) -> Array:
    places = linspace(start, stop, num, endpoint=endpoint, axis=axis)
    out = power(base.astype(promotion.to_inexact_dtype(base.dtype)), places)
    return out.astype(want or places.dtype)


def geomspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, dtype: object = None, axis: int = 0
) -> Array:
    """Return `num` values from start to stop with equal ratios. Both have the same sign and are not 0; else nan."""
    endpoint = flag("geomspace", "endpoint", endpoint)
    axis = to_int("geomspace", "axis", axis)
    num = to_int("geomspace", "num", num)
    want = optional_dtype(dtype)
    for k, v in enumerate((start, stop)):
        if isinstance(v, bool | int | float | complex) and v == 0:
            raise ParameterError(f"geomspace: argument {k} is 0, which no factor leads away from")
    a, b = promote_arguments("geomspace", start, stop, dtype=want if want in dtypes.INEXACT else None)
    return jit_composite(_factors, a, b, num, endpoint, want, axis)


def _factors(start: Array, stop: Array, num: int, endpoint: bool, want: dtypes.DType | None, axis: int) -> Array:
    dtype = result_type(start, stop)
    dtype = dtype if dtype in dtypes.INEXACT else dtypes.float32
    a, b = broadcast_arrays(start.astype(dtype), stop.astype(dtype))
    if dtype in dtypes.COMPLEX:
        unit = a / abs(a).astype(dtype)
    else:
        unit = where(sign(a) == sign(b), sign(a), float("nan"))
    out = exp(linspace(log(a / unit), log(b / unit), num, endpoint=endpoint)) * unit
    # the first value is `start` exactly, and the last one `stop`, if there are two
    places = lax.broadcasted_iota(dtypes.int32, (num, *[1] * a.ndim), 0)
    out = where(places == 0, a, out)
    if endpoint:
        out = where(places == maximum(num - 1, 1), b, out)
    return moveaxis(out, 0, axis).astype(want or dtype)


__all__ = ["c_", "geomspace", "index_exp", "logspace", "mgrid", "ogrid", "r_", "s_"]
