"""Selection of values at the maximum (or minimum) of each window, linear for a fixed selecting array, and its
adjoint.

A window has a *position*: its index in the result. An element in a window has *steps*, its distances from the first
place of the window along each axis, and an *offset*, the same distance in the padded array as a flat index. In a padded
array of 5 columns, the element in row 1 and column 2 of a window has the steps (1, 2) and the offset 7.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from math import prod
from operator import ge
from types import MappingProxyType
from typing import ClassVar, Final, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.builder import Builder
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
    Lit,
    NDArray,
    Primitive,
    Shape,
    primitive,
    primitive_family,
)
from fxad.primitives.argmax import select_extreme
from fxad.primitives.axes import Axes
from fxad.primitives.elementwise.arithmetic import ADD, MUL, REM, SUB
from fxad.primitives.elementwise.family import INTEGER_OR_FLOAT, as_accumulated
from fxad.primitives.elementwise.logic import AND, EQ, GE, GT, LE, LT, NE, OR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import LinearInFirst
from fxad.primitives.index import index_dtype
from fxad.primitives.operand_checks import check_count, check_dtype
from fxad.primitives.reduce import extreme_value
from fxad.primitives.shape import Iota, align_to_first
from fxad.primitives.slicing import Pad, Slice
from fxad.primitives.sliding import Padding, SlidingWindow, Windowed, dilated_size
from fxad.primitives.stablehlo import zeros_constant
from fxad.support.constants import UNROLLED_WINDOW

_SIGNS: Final = MappingProxyType({"ge": 1, "le": -1})


@primitive_family
class Selection(LinearInFirst, Windowed):
    """A selection of values by windows. The first operand holds the values. The second selects: the place of the
    extreme element of each window. That place is piecewise constant, so the second operand has no tangent.

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
    def _positions(self, value: Aval, x: Aval) -> Shape:
        """Return the shape of the window positions in `x`, which is that of a selection.

        Raises: ParameterError, DTypeError, ShapeError.
        """
        if self.select not in _SIGNS:
            raise ParameterError(f"{self.name}: select {self.select!r} is neither 'ge' nor 'le'")
        check_dtype(self.name, x, INTEGER_OR_FLOAT)
        if value.dtype is not x.dtype:
            raise DTypeError(f"{self.name}: dtypes differ: value {value}, operand {x}")
        return self.sliding.result_shape(self.name, x)

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args, at = align_to_first(ctx, args, dims)
        return ctx(self.with_sliding(self.sliding.mapped(at)), *args), (at,)

    @final
    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(self.adjoint(), ct, *others)

    @final
    def _selected_elements(self, x: NDArray) -> npt.NDArray[np.int64]:
        """Return the index of each window's extreme element in the flattened `x`, or -1 for an empty window."""
        wide, worst = as_accumulated(x), as_accumulated(extreme_value(x.dtype, -self.sign).array)
        indices = self.sliding.windows(np.arange(x.size).reshape(x.shape), np.asarray(-1))
        flat = (*indices.shape[: x.ndim], prod(self.window))
        indices, values = indices.reshape(flat), self.sliding.windows(wide, worst).reshape(flat)
        extremum = np.maximum if self.sign > 0 else np.minimum
        best = extremum.reduce(values, -1, keepdims=True)
        hits = np.greater_equal(indices, 0) & ((values == best) | (values != values))
        first = np.argmax(hits, -1, keepdims=True)
        selected = np.where(hits.any(-1, keepdims=True), np.take_along_axis(indices, first, -1), -1)
        return np.asarray(selected[..., 0], np.int64)

    @final
    def _reduce_windows(self, hlo: Hlo, x: Aval, positions: Shape, args: HloValues, carried: Avals) -> list[HloValue]:
        """Return the extreme element of each window, its index in the padded array and the values carried along with
        it."""
        index = Aval(x.shape, _flat_index_dtype(self.sliding, x.shape))
        indices = hlo.call(_padded_indices(self.sliding, index), ())
        types = [x, index, *carried]
        scalars = [a.with_shape(()) for a in types]
        inits = [
            extreme_value(x.dtype, -self.sign),
            extreme_value(index.dtype, 1),
            *[Lit.zero(a.with_shape(())) for a in carried],
        ]
        body = select_extreme(scalars[0], scalars[1], self.sign, *scalars[2:])
        holes = [hlo.constant(i) for i in inits]
        operands, _, windows = self.sliding.lower_single(hlo, (args[0], *indices, *args[1:]), types, holes)
        outs = [a.with_shape(positions) for a in types]
        return list(hlo.op("stablehlo.reduce_window", (*operands, *holes), outs, windows.attributes(), (body,)))


@final
@primitive
class SelectAndGatherAdd(Selection):
    """From each window, the value at the index of its extreme element; 0 from a window without elements.

    Type: values and operand of one type, integer or float; the result has one element per window.
    Rule: linear in the values; transpose is select_and_scatter_add.
    Source: stablehlo.reduce_window over tuples of an element, its index and its value.
    """

    name: ClassVar[str] = "select_and_gather_add"

    def adjoint(self) -> SelectAndScatterAdd:
        return SelectAndScatterAdd(self.select, *self.sliding.values)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        values, x = check_count(self, avals, 2)
        if values.shape != x.shape:
            raise ShapeError(f"{self.name}: shapes differ: values {values}, operand {x}")
        return (x.with_shape(self._positions(values, x)),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        values, x = args
        indices = self._selected_elements(x)
        if x.size == 0:
            return (np.zeros(indices.shape, values.dtype),)
        return (np.where(indices >= 0, values.ravel()[indices], np.zeros((), values.dtype)),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (values, x), (out,) = ins, outs
        if x.size == 0 or out.size == 0:
            return (zeros_constant(hlo, out),)
        if prod(self.window) <= UNROLLED_WINDOW:
            return hlo.call(_select_by_comparison(self.sliding, self.sign, x, out.shape, gather=True), args[::-1])
        return self._reduce_windows(hlo, x, out.shape, args[::-1], (values,))[2:]


@final
@primitive
class SelectAndScatterAdd(Selection):
    """Zeros, with one source value per window added at the index of the window's extreme element.

    Type: source with one element per window into the operand, of the same dtype, integer or float; the result has the
          type of the operand.
    Rule: linear in the source; transpose is select_and_gather_add.
    Source: stablehlo.select_and_scatter; for small and for dilated windows a sum over the places in a window. Floats
            below 32 bits are summed in float32 and rounded once.
    """

    name: ClassVar[str] = "select_and_scatter_add"

    def adjoint(self) -> SelectAndGatherAdd:
        return SelectAndGatherAdd(self.select, *self.sliding.values)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        source, x = check_count(self, avals, 2)
        positions = self._positions(source, x)
        if source.shape != positions:
            raise ShapeError(f"{self.name}: {x} has windows at {positions} places, the source is {source}")
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        source, x = args
        indices, wide = self._selected_elements(x), as_accumulated(source)
        out = np.zeros(x.size, wide.dtype)
        np.add.at(out, indices[indices >= 0], wide[indices >= 0])
        return (out.reshape(x.shape).astype(x.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (source, x), (out,) = ins, outs
        if x.size == 0 or source.size == 0:
            return (zeros_constant(hlo, out),)
        disjoint = all(map(ge, self.strides, map(dilated_size, self.window, self.window_dilation)))
        wide = dtypes.accumulated(x.dtype)
        if wide != x.dtype and not disjoint:  # values may meet in an element: add them in float32
            wide_ins = [a.with_dtype(wide) for a in ins]
            wide_args = [hlo.op("stablehlo.convert", (a,), (t,))[0] for a, t in zip(args, wide_ins, strict=True)]
            scattered = self.lower(hlo, wide_args, wide_ins, (out.with_dtype(wide),))
            return hlo.op("stablehlo.convert", scattered, outs)
        dilated = max((*self.base_dilation, *self.window_dilation), default=1) > 1
        if prod(self.window) <= UNROLLED_WINDOW:
            # if windows overlap, XLA would select again for each window of an element
            call = hlo.call if disjoint else hlo.opaque_call
            selected = call(_select_by_comparison(self.sliding, self.sign, x, source.shape, gather=False), args[1:])
            return hlo.call(_scatter_by_masks(self.sliding, source, x.shape), (args[0], *selected))
        if dilated:
            index = self._reduce_windows(hlo, x, source.shape, args[1:], ())[1]
            offset = hlo.call(_offset_in_window(self.sliding, source.shape, x.shape), (index,))
            return hlo.call(_scatter_by_masks(self.sliding, source, x.shape), (args[0], *offset))
        sliding = self.sliding.attributes()
        attrs = {k: sliding[k] for k in ("window_dimensions", "window_strides", "padding")}
        zero = zeros_constant(hlo, x.with_shape(()))
        regions = (_keep_first(x.with_shape(()), self.sign), "stablehlo.add")
        return hlo.op("stablehlo.select_and_scatter", (args[1], args[0], zero), outs, attrs, regions)


# ------------------------------------------------------------------------------- programs that lowerings are made of


def _padded_strides(sliding: SlidingWindow, shape: Shape) -> list[int]:
    """Return the strides of the padded array: the distance of neighbours along each axis, as flat indices."""
    sizes = [
        low + dilated_size(n, b) + high
        for n, b, (low, high) in zip(shape, sliding.base_dilation, sliding.padding, strict=True)
    ]
    return [prod(sizes[a + 1 :]) for a in range(len(sizes))]


def _flat_index_dtype(sliding: SlidingWindow, shape: Shape) -> DType:
    """Return a dtype for the flat indices of the padded array, and one more."""
    top = sum(
        [
            p * (abs(low) + dilated_size(n, b))
            for p, n, b, (low, _) in zip(
                _padded_strides(sliding, shape), shape, sliding.base_dilation, sliding.padding, strict=True
            )
        ]
    )
    return index_dtype((top + 1,))


def _affine_iota(emit: Emit, aval: Aval, steps: Sequence[int], first: int) -> Atom:
    """Return `first` plus, along each axis, `step` per element."""
    total: Atom = Lit.of(first, aval)
    for a, step in enumerate(steps):
        along = emit.one(MUL, emit.one(Iota(aval.shape, aval.dtype, a)), Lit.of(step, aval))
        total = emit.one(ADD, total, along)
    return total


def _padded_indices(sliding: SlidingWindow, index: Aval) -> Jaxpr:
    """Return the program of the flat index of each element in the padded array."""
    b, padded_strides = Builder(), _padded_strides(sliding, index.shape)
    first = sum([low * stride for (low, _), stride in zip(sliding.padding, padded_strides, strict=True)])
    steps = [base * stride for base, stride in zip(sliding.base_dilation, padded_strides, strict=True)]
    return b.build([_affine_iota(b, index, steps, first)], "padded_indices")


def _window_offsets(sliding: SlidingWindow, shape: Shape) -> Iterator[tuple[list[int], int]]:
    """Yield the steps and the offset of each place in a window."""
    padded_strides = _padded_strides(sliding, shape)
    for place in product(*map(range, sliding.window)):
        steps = [k * r for k, r in zip(place, sliding.window_dilation, strict=True)]
        yield steps, sum([k * stride for k, stride in zip(steps, padded_strides, strict=True)])


def _offset_in_window(sliding: SlidingWindow, positions: Shape, shape: Shape) -> Jaxpr:
    """Return the program from an index in the padded array for each window to the offset in the window."""
    b, index = Builder(), Aval(positions, _flat_index_dtype(sliding, shape))
    starts = _affine_iota(
        b, index, [s * p for s, p in zip(sliding.strides, _padded_strides(sliding, shape), strict=True)], 0
    )
    return b.build([b.one(SUB, b.input(index), starts)], "offset_in_window")


def _scatter_by_masks(sliding: SlidingWindow, source: Aval, shape: Shape) -> Jaxpr:
    """Return (source, offset of the selected element) -> the sum over the offsets in a window of the values that are
    written at this offset."""
    b, index = Builder(), Aval(source.shape, _flat_index_dtype(sliding, shape))
    values, selected = b.inputs((source, index))
    zero, total = Lit.zero(source), None
    full = [dilated_size(n, by) for n, by in zip(shape, sliding.base_dilation, strict=True)]
    for steps, offset in _window_offsets(sliding, shape):
        masked = emit_where(b, b.one(EQ, selected, Lit.of(offset, index)), values, zero)
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


def _select_by_comparison(sliding: SlidingWindow, sign: int, x: Aval, positions: Shape, *, gather: bool) -> Jaxpr:
    """Return x -> the offset of each window's extreme element, -1 for an empty window. With `gather`, return
    (x, values) -> its value, 0 for an empty window.

    For each offset, one comparison of whole arrays compares the elements of all windows with the best ones so far.
    """
    b, index = Builder(), Aval(positions, _flat_index_dtype(sliding, x.shape))
    scalar, result = x.with_shape(()), x.with_shape(positions)
    worst, zero = extreme_value(x.dtype, -sign), Lit.zero(scalar)
    pad = sliding.pad()
    padded = b.one(pad, b.input(x), worst)
    padded_values = b.one(pad, b.input(x), zero) if gather else None

    def improves(element: Atom, present: Atom | None) -> Atom:
        """Return a mask of the windows whose element at this offset takes the place of the best one so far."""
        better = b.one(GT if sign > 0 else LT, element, best)
        if x.inexact:
            first_nan = b.one(AND, b.one(NE, element, element), b.one(EQ, best, best))
            better = b.one(OR, better, first_nan)
        if present is None:
            return better
        nothing_yet = b.one(LT, selected, Lit.of(0, index))
        return b.one(AND, present, b.one(OR, better, nothing_yet))

    best: Atom = worst.with_shape(positions)
    selected: Atom = Lit.of(-1, index)
    value: Atom = zero.with_shape(positions)
    for number, (steps, offset) in enumerate(_window_offsets(sliding, x.shape)):
        limits = tuple([k + dilated_size(m, s) for k, m, s in zip(steps, positions, sliding.strides, strict=True)])
        cut = Slice(tuple(steps), limits, sliding.strides)
        element = b.one(cut, padded)
        present = _has_element(b, sliding, x.shape, result, steps)
        candidate = None if padded_values is None else b.one(cut, padded_values)
        if number == 0 and present is None:  # without holes every window has an element at its first place
            best, selected = element, Lit.of(offset, index)
            value = value if candidate is None else candidate
            continue
        mask = improves(element, present)
        best = emit_where(b, mask, element, best)
        selected = emit_where(b, mask, Lit.of(offset, index), selected)
        value = value if candidate is None else emit_where(b, mask, candidate, value)
    return b.build([value if gather else selected], "gathered" if gather else "selected")


def _has_element(b: Builder, sliding: SlidingWindow, shape: Shape, result: Aval, steps: list[int]) -> Atom | None:
    """Return a mask of the windows that have an element, and no hole, at `steps`; None for all windows."""
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
