"""Selection of values at the maximum (or minimum) of each window, linear for a fixed selecting array, and its
adjoint."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from math import prod
from operator import ge
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.constants import UNROLLED_WINDOW
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    Hlo,
    HloValue,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Primitive,
    Shape,
    Tangents,
    primitive,
    primitive_family,
)
from fxad.primitives.argmax import better
from fxad.primitives.elementwise.arithmetic import ADD, MUL, REM, SUB
from fxad.primitives.elementwise.family import as_accumulated
from fxad.primitives.elementwise.logic import AND, EQ, GE, GT, LE, LT, NE, OR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import LinearInOne
from fxad.primitives.operand_checks import check_count
from fxad.primitives.reduce import extreme_value
from fxad.primitives.shape import Iota, align_to_first
from fxad.primitives.slicing import Pad, Slice
from fxad.primitives.sliding import Padding, SlidingWindow, Windowed, dilated_size
from fxad.primitives.stablehlo import zeros_constant

Axes: TypeAlias = tuple[int, ...]

_TAKES: Final = dtypes.INTEGER | dtypes.FLOATING
_SIGNS: Final = MappingProxyType({"ge": 1, "le": -1})


@primitive_family
class Selection(LinearInOne, Windowed):
    """A selection of values: the first operand holds the values; the extreme element of each window of the second gives
    the place.

    `select` is "ge" for the greatest element, "le" for the least: the first one, or the first nan if there is one.
    """

    __slots__ = ()

    select: str
    window: Shape
    strides: Axes
    padding: Padding
    base_dilation: Axes
    window_dilation: Axes

    @abstractmethod
    def adjoint(self) -> Primitive:
        """Return the transpose of this primitive."""

    @property
    def sign(self) -> int:
        """Return 1 for the greatest element, -1 for the least."""
        return _SIGNS[self.select]

    @final
    def _places(self, value: Aval, x: Aval) -> Shape:
        """Return the shape of the window positions in `x`. Raises: ParameterError, DTypeError, ShapeError."""
        if self.select not in _SIGNS:
            raise ParameterError(f"{self.name}: select {self.select!r} is neither 'ge' nor 'le'")
        if x.dtype not in _TAKES:
            raise DTypeError(f"{self.name}: is not defined for {x}")
        if value.dtype is not x.dtype:
            raise DTypeError(f"{self.name}: dtypes differ: value {value}, operand {x}")
        return self.sliding.result_shape(self.name, x)

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args, at = align_to_first(ctx, args, dims)
        return ctx(self.with_sliding(self.sliding.mapped(at)), *args), (at,)

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        # the place of the extreme element is piecewise constant: it has no tangent
        return ctx(self, *primals), ctx.lin(self, tangents[0], primals[1])

    @final
    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(self.adjoint(), ct, *others)

    @final
    def _selected_places(self, x: NDArray) -> npt.NDArray[np.int64]:
        """Return the place of each window's extreme element in the flattened `x`, or -1 for an empty window."""
        wide, worst = as_accumulated(x), as_accumulated(extreme_value(x.dtype, -self.sign).array)
        places = self.sliding.windows(np.arange(x.size).reshape(x.shape), np.asarray(-1))
        flat = (*places.shape[: x.ndim], prod(self.window))
        places, values = places.reshape(flat), self.sliding.windows(wide, worst).reshape(flat)
        extremum = np.maximum if self.sign > 0 else np.minimum
        best = extremum.reduce(values, -1, keepdims=True)
        hits = np.greater_equal(places, 0) & ((values == best) | (values != values))
        first = np.argmax(hits, -1, keepdims=True)
        selected = np.where(hits.any(-1, keepdims=True), np.take_along_axis(places, first, -1), -1)
        return np.asarray(selected[..., 0], np.int64)

    @final
    def _reduce_windows(self, hlo: Hlo, x: Aval, places: Shape, args: HloValues, carried: Avals) -> list[HloValue]:
        """Return the extreme element of each window, its place (see `_place_numbers`) and the values carried along with
        it."""
        index = Aval(x.shape, _index_dtype(self.sliding, x.shape))
        at = hlo.call(_place_numbers(self.sliding, index), ())
        types = [x, index, *carried]
        scalars = [a.with_shape(()) for a in types]
        inits = [
            extreme_value(x.dtype, -self.sign),
            extreme_value(index.dtype, 1),
            *[Lit.zero(a.with_shape(())) for a in carried],
        ]
        body = better(scalars[0], scalars[1], self.sign, *scalars[2:])
        operands = (args[0], *at, *args[1:], *[hlo.constant(i) for i in inits])
        outs = [a.with_shape(places) for a in types]
        return list(hlo.op("stablehlo.reduce_window", operands, outs, self.sliding.attributes(), (body,)))


@final
@primitive
class SelectAndGatherAdd(Selection):
    """From each window, the value at the place of its extreme element; 0 from a window without elements.

    Type: values and operand of one type, integer or float; the result has one element per window.
    Rule: linear in the values; transpose is select_and_scatter_add.
    Source: stablehlo.reduce_window over tuples of an element, its place and its value.
    """

    name: ClassVar[str] = "select_and_gather_add"

    def adjoint(self) -> SelectAndScatterAdd:
        return SelectAndScatterAdd(self.select, *self.sliding.values)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        values, x = check_count(self, avals, 2)
        if values.shape != x.shape:
            raise ShapeError(f"{self.name}: shapes differ: values {values}, operand {x}")
        return (x.with_shape(self._places(values, x)),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        values, x = args
        places = self._selected_places(x)
        if not x.size:
            return (np.zeros(places.shape, values.dtype),)
        return (np.where(places >= 0, values.ravel()[places], np.zeros((), values.dtype)),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (values, x), (out,) = ins, outs
        if not x.size or not out.size:
            return (zeros_constant(hlo, out),)
        if prod(self.window) <= UNROLLED_WINDOW:
            return hlo.call(_select_by_comparison(self.sliding, self.sign, x, out.shape, gather=True), args[::-1])
        return self._reduce_windows(hlo, x, out.shape, args[::-1], (values,))[2:]


@final
@primitive
class SelectAndScatterAdd(Selection):
    """Zeros, with one source value per window added at the place of the window's extreme element.

    Type: source with one element per window into the operand, of the same dtype, integer or float; the result has the
          type of the operand.
    Rule: linear in the source; transpose is select_and_gather_add.
    Source: stablehlo.select_and_scatter; for small and for dilated windows a sum over the places in a window.
    """

    name: ClassVar[str] = "select_and_scatter_add"

    def adjoint(self) -> SelectAndGatherAdd:
        return SelectAndGatherAdd(self.select, *self.sliding.values)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        source, x = check_count(self, avals, 2)
        places = self._places(source, x)
        if source.shape != places:
            raise ShapeError(f"{self.name}: {x} has windows at {places} places, the source is {source}")
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        source, x = args
        places, wide = self._selected_places(x), as_accumulated(source)
        out = np.zeros(x.size, wide.dtype)
        np.add.at(out, places[places >= 0], wide[places >= 0])
        return (out.reshape(x.shape).astype(x.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (source, x), (out,) = ins, outs
        if not x.size or not source.size:
            return (zeros_constant(hlo, out),)
        dilated = max((*self.base_dilation, *self.window_dilation), default=1) > 1
        if prod(self.window) <= UNROLLED_WINDOW:
            apart = all(map(ge, self.strides, map(dilated_size, self.window, self.window_dilation)))
            # if windows overlap, XLA would recompute the place for each window of an element
            walk = hlo.call if apart else hlo.opaque_call
            chosen = walk(_select_by_comparison(self.sliding, self.sign, x, source.shape, gather=False), args[1:])
            return hlo.call(_scatter_by_masks(self.sliding, source, x.shape), (args[0], *chosen))
        if dilated:
            places = self._reduce_windows(hlo, x, source.shape, args[1:], ())[1]
            inside = hlo.call(_offset_in_window(self.sliding, source.shape, x.shape), (places,))
            return hlo.call(_scatter_by_masks(self.sliding, source, x.shape), (args[0], *inside))
        sliding = self.sliding.attributes()
        attrs = {k: sliding[k] for k in ("window_dimensions", "window_strides", "padding")}
        zero = zeros_constant(hlo, x.with_shape(()))
        regions = (_keep_first(x.with_shape(()), self.sign), "stablehlo.add")
        return hlo.op("stablehlo.select_and_scatter", (args[1], args[0], zero), outs, attrs, regions)


# ------------------------------------------------------------------------------- programs that lowerings are made of


def _padded_strides(sliding: SlidingWindow, shape: Shape) -> list[int]:
    """Return the strides of the padded array: the distance between neighbours along each axis when places are numbered
    in order."""
    sizes = [
        low + dilated_size(n, b) + high
        for n, b, (low, high) in zip(shape, sliding.base_dilation, sliding.padding, strict=True)
    ]
    return [prod(sizes[a + 1 :]) for a in range(len(sizes))]


def _index_dtype(sliding: SlidingWindow, shape: Shape) -> DType:
    """Return a dtype that can number all places in the padded array, and a place for dropped values."""
    top = sum(
        [
            p * (abs(low) + dilated_size(n, b))
            for p, n, b, (low, _) in zip(
                _padded_strides(sliding, shape), shape, sliding.base_dilation, sliding.padding, strict=True
            )
        ]
    )
    return dtypes.int32 if top < 2**31 - 1 else dtypes.int64


def _affine_iota(emit: Emit, aval: Aval, steps: Sequence[int], first: int) -> Atom:
    """Return `first` plus, along each axis, `step` per element."""
    total: Atom = Lit.of(first, aval)
    for a, step in enumerate(steps):
        along = emit.one(MUL, emit.one(Iota(aval.shape, aval.dtype, a)), Lit.of(step, aval))
        total = emit.one(ADD, total, along)
    return total


def _place_numbers(sliding: SlidingWindow, index: Aval) -> Jaxpr:
    """Return the program of the places of the elements in the padded array, in row-major order."""
    b, pitches = Builder(), _padded_strides(sliding, index.shape)
    first = sum([low * pitch for (low, _), pitch in zip(sliding.padding, pitches, strict=True)])
    steps = [base * pitch for base, pitch in zip(sliding.base_dilation, pitches, strict=True)]
    return b.build([_affine_iota(b, index, steps, first)], "places")


def _window_offsets(sliding: SlidingWindow, shape: Shape) -> Iterator[tuple[list[int], int]]:
    """Yield, for each place in a window, its distance from the first place along each axis and in the padded array."""
    pitches = _padded_strides(sliding, shape)
    for offset in product(*map(range, sliding.window)):
        steps = [k * r for k, r in zip(offset, sliding.window_dilation, strict=True)]
        yield steps, sum([k * pitch for k, pitch in zip(steps, pitches, strict=True)])


def _offset_in_window(sliding: SlidingWindow, places: Shape, shape: Shape) -> Jaxpr:
    """Return the program from places in the padded array to their distance from the first place of their window."""
    b, index = Builder(), Aval(places, _index_dtype(sliding, shape))
    starts = _affine_iota(
        b, index, [s * p for s, p in zip(sliding.strides, _padded_strides(sliding, shape), strict=True)], 0
    )
    return b.build([b.one(SUB, b.input(index), starts)], "inside")


def _scatter_by_masks(sliding: SlidingWindow, source: Aval, shape: Shape) -> Jaxpr:
    """Return (source, distance of the chosen place from the first) -> the sum over the places in a window of the values
    written there."""
    b, index = Builder(), Aval(source.shape, _index_dtype(sliding, shape))
    values, chosen = b.inputs((source, index))
    zero, total = Lit.zero(source), None
    full = [dilated_size(n, by) for n, by in zip(shape, sliding.base_dilation, strict=True)]
    for steps, here in _window_offsets(sliding, shape):
        masked = emit_where(b, b.one(EQ, chosen, Lit.of(here, index)), values, zero)
        low = [k - p for k, (p, _) in zip(steps, sliding.padding, strict=True)]
        high = [
            n - lo - dilated_size(m, s) for n, lo, m, s in zip(full, low, source.shape, sliding.strides, strict=True)
        ]
        part = b.one(Pad(tuple(low), tuple(high), tuple([s - 1 for s in sliding.strides])), masked, zero.with_shape(()))
        total = part if total is None else b.one(ADD, total, part)
    assert total is not None
    if max(sliding.base_dilation, default=1) > 1:
        total = b.one(Slice((0,) * len(full), tuple(full), sliding.base_dilation), total)
    return b.build([total], "scattered")


def _select_by_comparison(sliding: SlidingWindow, sign: int, x: Aval, places: Shape, *, gather: bool) -> Jaxpr:
    """Return x -> the distance of each window's extreme element from its first place, -1 for an empty window. With
    `gather`, return (x, values) -> the value there, 0 for an empty window.

    All windows step through their places together, with one comparison of whole arrays per place.
    """
    b, index = Builder(), Aval(places, _index_dtype(sliding, x.shape))
    scalar, result = x.with_shape(()), x.with_shape(places)
    worst, zero = extreme_value(x.dtype, -sign), Lit.zero(scalar)
    pad = Pad(
        tuple([low for low, _ in sliding.padding]),
        tuple([high for _, high in sliding.padding]),
        tuple([by - 1 for by in sliding.base_dilation]),
    )
    spread = b.one(pad, b.input(x), worst)
    others = b.one(pad, b.input(x), zero) if gather else None
    best: Atom = worst.with_shape(places)
    chosen: Atom = Lit.of(-1, index)
    value: Atom = zero.with_shape(places)
    for number, (steps, here) in enumerate(_window_offsets(sliding, x.shape)):
        limits = tuple([k + dilated_size(m, s) for k, m, s in zip(steps, places, sliding.strides, strict=True)])
        cut = Slice(tuple(steps), limits, sliding.strides)
        element = b.one(cut, spread)
        there = _has_element(b, sliding, x.shape, result, steps)
        take = b.one(GT if sign > 0 else LT, element, best)
        if x.inexact:
            take = b.one(OR, take, b.one(AND, b.one(NE, element, element), b.one(EQ, best, best)))
        if there is not None:
            take = b.one(AND, there, b.one(OR, take, b.one(LT, chosen, Lit.of(0, index))))
        first = number == 0 and there is None  # without holes the first place has an element in every window
        best = element if first else emit_where(b, take, element, best)
        chosen = Lit.of(here, index) if first else emit_where(b, take, Lit.of(here, index), chosen)
        if others is not None:
            candidate = b.one(cut, others)
            value = candidate if first else emit_where(b, take, candidate, value)
    return b.build([value if gather else chosen], "gathered" if gather else "chosen")


def _has_element(b: Builder, sliding: SlidingWindow, shape: Shape, result: Aval, steps: list[int]) -> Atom | None:
    """Return a mask of the windows that have an element at a place, `steps` from their first one; None for all
    windows."""
    parts: list[Atom] = []
    for a, (n, stride, (low, high), base) in enumerate(
        zip(shape, sliding.strides, sliding.padding, sliding.base_dilation, strict=True)
    ):
        if low <= 0 and high <= 0 and base == 1:
            continue
        index = Aval(result.shape, dtypes.int32)
        at = b.one(MUL, b.one(Iota(index.shape, index.dtype, a)), Lit.of(stride, index))
        at = b.one(ADD, at, Lit.of(steps[a] - low, index))
        parts += [b.one(GE, at, Lit.of(0, index)), b.one(LT, at, Lit.of(dilated_size(n, base), index))]
        if base > 1:
            parts.append(b.one(EQ, b.one(REM, at, Lit.of(base, index)), Lit.of(0, index)))
    return reduce(lambda x, y: b.one(AND, x, y), parts) if parts else None


def _keep_first(scalar: Aval, sign: int) -> Jaxpr:
    """Return the program that is True if the first of two elements stays the extreme one; the first nan does."""
    b = Builder()
    x, y = b.inputs((scalar, scalar))
    stays = b.one(GE if sign > 0 else LE, x, y)
    return b.build([b.one(OR, stays, b.one(NE, x, x)) if scalar.inexact else stays], "stays")


SELECT_AND_SCATTER: Final = (SelectAndGatherAdd, SelectAndScatterAdd)
