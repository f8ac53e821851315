"""The relation of each equation: which elements of a result may depend on which elements of an operand.

A rule stands for a family where it can. A primitive without a rule has the sound default: every element of every result
may depend on every element of the operand. Only primitives that occur in linear programs need a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np

from fxad.ir import Aval, Avals, Eqn, HigherOrder, NDArray, Primitive, source_text
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.check import Check
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.cumulative import CumSum, Cumulative, LinearRecurrence
from fxad.primitives.dimension_numbers import DimensionNumbers
from fxad.primitives.dot import Contraction
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise import ELEMENTWISE
from fxad.primitives.elementwise.arithmetic import Mul
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.families import Bilinear, of_family
from fxad.primitives.fft import Fft
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterAdd, ScatterFamily
from fxad.primitives.index import Index
from fxad.primitives.linalg.family import LinearSystem, Matrixwise
from fxad.primitives.linalg.qr import Ormqr
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linearity import vanishes
from fxad.primitives.marks import Mark
from fxad.primitives.reduce_window import ReduceWindowSum
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from fxad.primitives.shape import BroadcastInDim, ExpandDims, ReduceSum, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.primitives.sliding import Windowed
from fxad.transforms.sparse.composition import compose
from fxad.transforms.sparse.relation import (
    EMPTY,
    Box,
    Ints,
    Relation,
    StridedDim,
    as_numbers,
    box,
    dense,
    identity,
    relation,
    strided,
    table,
    transposed,
    triangle,
)  # fmt: skip
from fxad.transforms.sparse.values import ConcreteValues

_MAX_WINDOW: Final = 1024  # a larger window is dense along its axes
_ELEMENTWISE: Final = frozenset(ELEMENTWISE)


@final
class SparsityCtx(NamedTuple):
    """What a rule relates: result number `result` of an equation to operand number `operand`.

    values: the concrete values of the program.
    notes:  a rule adds to them what it does not know, see `note_unknown_index`.
    """

    eqn: Eqn
    operand: int
    result: int
    values: ConcreteValues
    notes: list[str]

    @property
    def x(self) -> Aval:
        """The type of the operand."""
        return self.eqn.ins[self.operand].aval

    @property
    def y(self) -> Aval:
        """The type of the result."""
        return self.eqn.outs[self.result].aval

    @property
    def ins(self) -> Avals:
        """The types of all operands."""
        return tuple([a.aval for a in self.eqn.ins])

    def value(self, k: int) -> NDArray | None:
        """Return the value of operand number `k`; None if it is not concrete."""
        return self.values.get(self.eqn.ins[k])

    def values_from(self, k: int) -> list[NDArray | None]:
        """Return the values of the operands from number `k` on."""
        return [self.values.get(a) for a in self.eqn.ins[k:]]

    def note_unknown_index(self, axes: Sequence[int]) -> None:
        """Add a warning: the relation is dense along these axes."""
        self.notes.append(
            f"warning: {self.eqn.prim.name}: an index depends on data: dense along axes {tuple(axes)}"
            f" ({source_text(self.eqn.source)})"
        )


SparsityRule: TypeAlias = Callable[[SparsityCtx, Any], Relation]  # of an equation of this primitive


def relation_of(ctx: SparsityCtx) -> Relation:
    """Return the relation of the result of an equation to the operand."""
    x, y, prim = ctx.x, ctx.y, ctx.eqn.prim
    if not x.size or not y.size or (isinstance(prim, Bilinear | Mul) and vanishes(ctx.eqn.ins[1 - ctx.operand])):
        return EMPTY
    rule = of_family(RULES, type(prim))
    if rule is None:
        if isinstance(prim, HigherOrder) or type(prim) not in _ELEMENTWISE or x.shape != y.shape:
            return dense(y.size, x.size)
        return identity(x.size)
    return rule(ctx, prim)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array in row-major order, in elements."""
    return tuple([prod(shape[a + 1 :]) for a in range(len(shape))])


def along_axes(y: Aval, x: Aval, paired: Mapping[int, int]) -> Relation:
    """Return the relation that is equality along paired axes (of the result: of the operand), and dense along all
    others."""
    so, si = strides_of(y.shape), strides_of(x.shape)
    dims: list[StridedDim] = [(y.shape[a], so[a], si[b]) for a, b in paired.items()]
    dims += [(n, so[a], 0) for a, n in enumerate(y.shape) if a not in paired]
    dims += [(n, 0, si[b]) for b, n in enumerate(x.shape) if b not in paired.values()]
    return relation(box(0, 0, dims))


def leading_axes(y: Aval, x: Aval, dense_axes: Sequence[int]) -> Relation:
    """Return equality along the axes of equal rank, but dense along `dense_axes`."""
    if x.ndim != y.ndim:
        return dense(y.size, x.size)
    axes = {a % x.ndim for a in dense_axes} | {a for a in range(x.ndim) if x.shape[a] != y.shape[a]}
    return along_axes(y, x, {a: a for a in range(x.ndim) if a not in axes})


def _identity(ctx: SparsityCtx, prim: Primitive) -> Relation:
    return identity(ctx.x.size)


def _one_to_one(ctx: SparsityCtx, prim: Primitive) -> Relation:
    first = len(ctx.eqn.ins) - len(ctx.eqn.outs)  # a check has further operands first
    return identity(ctx.x.size) if ctx.operand - first == ctx.result else EMPTY


def _select(ctx: SparsityCtx, prim: SelectN) -> Relation:
    selector = ctx.value(0)
    if selector is None:
        return identity(ctx.y.size)
    is_chosen = np.clip(selector.astype(np.int64), 0, len(ctx.ins) - 2).ravel() == ctx.operand - 1
    places = np.flatnonzero(is_chosen)
    return table(places, places)


# -------------------------------------------------------------------------------------------------------- structure


def _broadcast(ctx: SparsityCtx, prim: BroadcastInDim) -> Relation:
    x, shape = ctx.x, prim.shape
    si = strides_of(x.shape)
    ins = [0] * len(shape)
    for a, d in enumerate(prim.dims):
        ins[d] = si[a] if x.shape[a] != 1 else 0
    return strided(shape, strides_of(shape), ins)


def _reduce(ctx: SparsityCtx, prim: ReduceSum) -> Relation:
    x, so = ctx.x, iter(strides_of(ctx.y.shape))
    return strided(x.shape, [0 if a in prim.axes else next(so) for a in range(x.ndim)], strides_of(x.shape))


def _transpose(ctx: SparsityCtx, prim: Transpose) -> Relation:
    x, y = ctx.x, ctx.y
    si = strides_of(x.shape)
    return strided(y.shape, strides_of(y.shape), [si[a] for a in prim.perm])


def _rev(ctx: SparsityCtx, prim: Rev) -> Relation:
    shape = ctx.x.shape
    s = strides_of(shape)
    last = sum([s[a] * (shape[a] - 1) for a in prim.axes])
    return strided(shape, s, [-n if a in prim.axes else n for a, n in enumerate(s)], 0, last)


def _slice(ctx: SparsityCtx, prim: Slice) -> Relation:
    x, y = ctx.x, ctx.y
    si = strides_of(x.shape)
    ins = [n * t for n, t in zip(si, prim.strides, strict=True)]
    return strided(y.shape, strides_of(y.shape), ins, 0, sum([n * s for n, s in zip(si, prim.starts, strict=True)]))


def _pad(ctx: SparsityCtx, prim: Pad) -> Relation:
    x, y = ctx.ins[0], ctx.y
    if ctx.operand == 1:
        padded = np.flatnonzero(prim.impl(np.zeros(x.shape, np.bool_), np.ones((), np.bool_))[0])
        return table(padded, np.zeros_like(padded))
    so, si = strides_of(y.shape), strides_of(x.shape)
    out0 = in0 = 0
    dims: list[StridedDim] = []
    for a, kept in enumerate(prim.kept_elements(x.shape, y.shape)):
        step = prim.interior[a] + 1
        dims.append((len(kept), so[a] * step, si[a]))
        out0, in0 = out0 + so[a] * (prim.low[a] + kept.start * step), in0 + si[a] * kept.start
    return relation(box(out0, in0, dims))


def _concatenate(ctx: SparsityCtx, prim: Concatenate) -> Relation:
    x, so = ctx.x, strides_of(ctx.y.shape)
    start = sum([a.shape[prim.axis] for a in ctx.ins[: ctx.operand]])
    return strided(x.shape, so, strides_of(x.shape), start * so[prim.axis])


# ---------------------------------------------------------------------------------------------------------- indices


def _element_numbers(x: Aval) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return an array of a shape with the numbers 1, 2, ... of its elements. A rule runs the operation itself on these:
    where a result is k > 0 it is element k - 1, and where it is 0, it is no element (a place out of range, or one that
    was overwritten by zeros)."""
    return np.arange(1, x.size + 1).reshape(x.shape)


def _relation_of_read(ctx: SparsityCtx, prim: Primitive) -> Relation | None:
    """Return the relation of a read at concrete indices: what it reads from the numbers of the elements."""
    x, indices = ctx.ins[0], ctx.values_from(1)
    if any([i is None for i in indices]):
        return None
    if isinstance(prim, Gather) and ctx.y.size == ctx.ins[1].size and (places := _elements(x, indices[0])) is not None:
        return table(ctx.values.numbers(len(places)), places)
    read = prim.impl(_element_numbers(x), *[i for i in indices if i is not None])[0].ravel()
    places = np.flatnonzero(read)
    return table(places, read[places] - 1)


def _elements(x: Aval, indices: NDArray | None) -> Ints | None:
    """Return the elements of a vector that windows of one element read, one for each index, or None. It is what the
    general rule finds, without arrays of the positions of all windows."""
    if indices is None or x.ndim != 1 or indices.shape[-1:] != (1,) or not indices.size:
        return None
    places = as_numbers(indices.reshape(-1))
    return places if places.min() >= 0 and places.max() < x.size else None


def _gather(ctx: SparsityCtx, prim: Gather) -> Relation:
    of_read = _relation_of_read(ctx, prim)
    if of_read is not None:
        return of_read
    ctx.note_unknown_index(prim.start_index_map)
    return _windows(prim.windows, ctx.y, ctx.ins[0])


def _windows(windows: DimensionNumbers, y: Aval, x: Aval) -> Relation:
    """Return the relation of an array of windows at places that depend on data to the operand."""
    batch = [a for a in range(y.ndim) if a not in windows.offset]
    paired = {batch[i]: a for i, a in zip(windows.index_batched, windows.batched, strict=True)}
    along = zip(windows.offset, windows.axes(x.ndim), strict=True)
    paired |= {offset: a for offset, a in along if x.shape[a] == y.shape[offset]}
    return along_axes(y, x, paired)


def _dynamic_slice(ctx: SparsityCtx, prim: DynamicSlice) -> Relation:
    return _window_at(ctx, ctx.ins[0], ctx.y, ctx.values_from(1))


def _window_at(ctx: SparsityCtx, x: Aval, y: Aval, starts: Sequence[NDArray | None]) -> Relation:
    """Return the relation of a window `y` of `x` to `x`, at starts that may be concrete."""
    so, si = strides_of(y.shape), strides_of(x.shape)
    dims: list[StridedDim] = []
    in0, open_axes = 0, []
    for a, (n, m, start) in enumerate(zip(x.shape, y.shape, starts, strict=True)):
        if n == m or start is not None:
            dims.append((m, so[a], si[a]))
            in0 += si[a] * (0 if start is None else min(max(int(start), 0), n - m))
        else:
            open_axes.append(a)
            dims += [(m, so[a], 0), (n, 0, si[a])]
    if open_axes:
        ctx.note_unknown_index(open_axes)
    return relation(box(0, in0, dims))


def _index(ctx: SparsityCtx, prim: Index) -> Relation:
    """Return one box: along each axis, the elements that the result reads. A place that is not concrete may be any, so
    each result element depends on the whole axis. Example: x[i, 1:3] of shape (4, 5), i not concrete: the result
    element p depends on 5 k + 1 + p for 0 <= k < 4, which is Box(0, 1, ((2, 1, 1), (4, 0, 5)))."""
    x = ctx.ins[0]
    so, si = iter(strides_of(ctx.y.shape)), strides_of(x.shape)
    dims: list[StridedDim] = []
    in0, open_axes = 0, []
    for a, (n, m, start, stride) in enumerate(zip(x.shape, prim.sizes, prim.starts, prim.strides, strict=True)):
        step = 0 if a in prim.dropped else next(so)
        if a in prim.dynamic:
            if n == m:
                start = 0
            else:
                value = ctx.value(1 + prim.dynamic.index(a))
                if value is None:
                    open_axes.append(a)
                    dims += [(m, step, 0), (n, 0, si[a])]
                    continue
                start = int(value) + (n if int(value) < 0 else 0)
                start = min(max(start, 0), n - m)
        dims.append((m, step, si[a] * stride))
        in0 += si[a] * start
    if open_axes:
        ctx.note_unknown_index(open_axes)
    return relation(box(0, in0, dims))


def _update(ctx: SparsityCtx, prim: DynamicUpdateSlice) -> Relation:
    x, update = ctx.ins[0], ctx.ins[1]
    starts = ctx.values_from(2)
    all_concrete = all([s is not None for s in starts])
    if all_concrete and ctx.operand == 0:
        concrete_starts = [s for s in starts if s is not None]
        remaining = prim.impl(_element_numbers(x), np.zeros(update.shape, np.int64), *concrete_starts)[0].ravel()
        places = np.flatnonzero(remaining)
        return table(places, places)
    if ctx.operand == 0:
        return identity(x.size) if update.shape != x.shape else EMPTY
    return transposed(_window_at(ctx, x, update, starts))


def _scatter(ctx: SparsityCtx, prim: ScatterFamily) -> Relation:
    """Return the relation of a scatter to the array (operand 0) or to the updates (operand 2).

    At concrete indices both are read from numbers. An array that holds the numbers of its elements is scattered to: the
    numbers that remain are elements that no update replaces. And a gather at the same indices reads the number of the
    element that each update goes to. Example: three updates at 2, 0 and 7 of an array of 4 elements: 1 and 3 remain of
    a `scatter`, and the updates 0 and 1 go to the elements 2 and 0; the last one is dropped.

    Otherwise an update may go to any place along the indexed axes. A product, a minimum or a maximum is taken as dense.
    """
    x, updates = ctx.ins[0], ctx.ins[2]
    indices = ctx.value(1)
    if ctx.operand == 0:
        if type(prim) is Scatter and indices is not None:
            remaining = prim.impl(_element_numbers(x), indices, np.zeros(updates.shape, np.int64))[0].ravel()
            places = np.flatnonzero(remaining)
            return table(places, places)
        return identity(x.size)
    if ctx.operand != 2 or not isinstance(prim, Scatter | ScatterAdd):
        return dense(x.size, ctx.x.size)
    if indices is not None:
        sizes = prim.sizes(x.shape, updates.shape)
        if updates.size == indices.size and (elements := _elements(x, indices)) is not None:
            return table(elements, ctx.values.numbers(len(elements)))
        gather = Gather(*prim.windows.numbers, sizes, prim.mode, indices_sorted=False, unique_indices=False)
        read = gather.impl(_element_numbers(x), indices)[0].ravel()
        places = np.flatnonzero(read)
        return table(read[places] - 1, places)
    ctx.note_unknown_index(prim.scatter_dims_to_operand_dims)
    return transposed(_windows(prim.windows, updates, x))


# ----------------------------------------------------------------------------- products, windows, sums along axes


def _dot(ctx: SparsityCtx, prim: Contraction) -> Relation:
    x, y = ctx.x, ctx.y
    # the axes of the result: the batch, then the others of the left operand, then those of the right one
    batch, contract = ((prim.lhs_batch, prim.lhs_contract), (prim.rhs_batch, prim.rhs_contract))[ctx.operand]
    uncontracted = [a for a in range(x.ndim) if a not in batch and a not in contract]
    first = len(batch) if ctx.operand == 0 else y.ndim - len(uncontracted)
    return along_axes(y, x, {**dict(enumerate(batch)), **{first + j: a for j, a in enumerate(uncontracted)}})


class _WindowAxis(NamedTuple):
    """An axis along which windows slide over the operand. `size` and `results` are its sizes in the operand and in the
    result, `operand_stride` and `result_stride` the strides of the arrays along it, in elements; `low` is the padding
    before the operand."""

    size: int
    operand_stride: int
    results: int
    result_stride: int
    window: int
    step: int
    low: int
    base_dilation: int
    window_dilation: int

    def element(self, w: int) -> Box | None:
        """Return the pairs of each result with element `w` of its window; None if all of these are padding.

        Results and operand meet at the places of the padded operand. Example: size 3, base dilation 2, low 1, 4
        results, step 1 and w = 0:

            places of the operand   _  x0 _  x1 _  x2      element j at low + j * base
            read by result          y0 y1 y2 y3            result i reads first + i * step

        So the pairs are (1, 0) and (3, 1): one box, as the solutions of an equation with one index on each side are one
        progression (`box_composition`).
        """
        first, base = w * self.window_dilation, self.base_dilation
        to_places = relation(box(0, first, ((self.results, 1, self.step),)))
        from_places = transposed(relation(box(0, self.low, ((self.size, 1, base),))))
        # no place is as large as this; it only has to be large enough
        n_places = (self.results + self.size) * max(self.step, base) + abs(self.low) + first + 1
        read = compose(to_places, from_places, n_places)
        if read.empty:
            return None
        (b,) = read.boxes
        so, si = self.result_stride, self.operand_stride
        return Box(b.out0 * so, b.in0 * si, tuple([(n, s * so, t * si) for n, s, t in b.dims]))


def _boxes_of_windows(axes: Sequence[_WindowAxis]) -> list[Box] | None:
    """Return a box for each element of the window; None if it has too many."""
    if prod([a.window for a in axes]) > _MAX_WINDOW:
        return None
    boxes: list[Box] = []
    for place in product(*[range(a.window) for a in axes]):
        along = [b for a, w in zip(axes, place, strict=True) if (b := a.element(w)) is not None]
        if len(along) == len(axes):
            dims = tuple([d for b in along for d in b.dims])
            boxes.append(Box(sum([b.out0 for b in along]), sum([b.in0 for b in along]), dims))
    return boxes


def _conv(ctx: SparsityCtx, prim: ConvGeneralDilated) -> Relation:
    """Return a box for each element of the window, times the relation of batch and features.

    An output feature reads all input features. With g groups of features, it reads those of its group: for g = 2, of 6
    input and 4 output features, the outputs 0 and 1 read the inputs 0 to 2, and the outputs 2 and 3 the inputs 3 to 5.
    With h groups of examples, the output features of group q read the examples of group q.
    """
    lhs, rhs, y = ctx.ins[0], ctx.ins[1], ctx.y
    if ctx.operand == 1:
        return along_axes(y, rhs, {prim.out_spec[1]: prim.rhs_spec[0]})
    so, si = strides_of(y.shape), strides_of(lhs.shape)
    spatial = [
        _WindowAxis(lhs.shape[a], si[a], y.shape[b], so[b], rhs.shape[c], prim.strides[j], prim.padding[j][0],
                    prim.lhs_dilation[j], prim.rhs_dilation[j])
        for j, (a, c, b) in enumerate(zip(prim.lhs_spec[2:], prim.rhs_spec[2:], prim.out_spec[2:], strict=True))
    ]  # fmt: skip
    boxes = _boxes_of_windows(spatial)
    if boxes is None:
        dense_dims = [d for a in spatial for d in ((a.results, a.result_stride, 0), (a.size, 0, a.operand_stride))]
        boxes = [Box(0, 0, tuple(dense_dims))]
    (b, f), (ob, of) = prim.lhs_spec[:2], prim.out_spec[:2]  # the axes of examples and of features
    g, h = prim.feature_groups, prim.batch_groups
    outs, ins, examples = y.shape[of], lhs.shape[f], y.shape[ob]
    other_dims: list[StridedDim] = [
        (examples, so[ob], si[b]),
        (g, so[of] * (outs // g), si[f] * (ins // g)),
        (ins // g, 0, si[f]),
    ]
    if h > 1:  # the examples of group q (q * examples + e) give the output features of group q
        other_dims += [(h, so[of] * (outs // h), si[b] * examples), (outs // h, so[of], 0)]
    else:
        other_dims += [(outs // g, so[of], 0)]
    return relation(*[box(b.out0, b.in0, [*b.dims, *other_dims]) for b in boxes])


def _window(ctx: SparsityCtx, prim: Windowed) -> Relation:
    return _of_windows(prim, ctx.y, ctx.x)


def _add_to_windows(ctx: SparsityCtx, prim: SelectAndScatterAdd) -> Relation:
    return transposed(_of_windows(prim, ctx.ins[0], ctx.y))


def _of_windows(prim: Windowed, y: Aval, x: Aval) -> Relation:
    """Return the relation of an array `y`, with an element for each window of `x`, to `x`."""
    so, si = strides_of(y.shape), strides_of(x.shape)
    axes = [
        _WindowAxis(x.shape[a], si[a], y.shape[a], so[a], prim.window[a], prim.strides[a], prim.padding[a][0],
                    prim.base_dilation[a], prim.window_dilation[a])
        for a in range(x.ndim)
    ]  # fmt: skip
    boxes = _boxes_of_windows(axes)
    return dense(y.size, x.size) if boxes is None else relation(*[box(*b) for b in boxes])


def _cumulative(ctx: SparsityCtx, prim: Cumulative) -> Relation:
    return leading_axes(ctx.y, ctx.x, (prim.axis,))


def _prefix_sum(ctx: SparsityCtx, prim: CumSum | LinearRecurrence) -> Relation:
    if ctx.operand < len(ctx.ins) - 1:  # the factors of a recurrence
        return leading_axes(ctx.y, ctx.x, (prim.axis,))
    return _along_axis_triangle(ctx.x, prim.axis, reverse=prim.reverse)


def _along_axis_triangle(x: Aval, axis: int, *, reverse: bool) -> Relation:
    """Return equality along all axes but one, along which a result depends on the operand up to its own index
    (`reverse`: from its index on)."""
    s = strides_of(x.shape)
    others: list[StridedDim] = [(n, s[a], s[a]) for a, n in enumerate(x.shape) if a != axis]
    parts = triangle(x.shape[axis], s[axis], s[axis], reverse=reverse)
    return relation(*[box(o, i, [*dims, *others]) for o, i, dims in parts])


def _fft(ctx: SparsityCtx, prim: Fft) -> Relation:
    return leading_axes(ctx.y, ctx.x, range(-len(prim.lengths), 0))


def _triangular(ctx: SparsityCtx, prim: TriangularSolve) -> Relation:
    x, y = ctx.x, ctx.y
    if ctx.operand != 1:
        return leading_axes(y, x, (-2, -1))
    flip = prim.transpose_a if prim.left_side else not prim.transpose_a
    return _along_axis_triangle(y, y.ndim - (2 if prim.left_side else 1), reverse=prim.lower_a == flip)


def _solve(ctx: SparsityCtx, prim: Primitive) -> Relation:
    # the columns of B, the last operand, are systems of their own
    return leading_axes(ctx.y, ctx.x, (-2,) if ctx.operand == len(ctx.ins) - 1 else (-2, -1))


def _matrixwise(ctx: SparsityCtx, prim: Matrixwise) -> Relation:
    return leading_axes(ctx.y, ctx.x, (-2, -1))


def _ormqr(ctx: SparsityCtx, prim: Ormqr) -> Relation:
    # Q acts on each column of C, or on each row
    along = (-2 if prim.left_side else -1,) if ctx.operand == prim.linear_operand else (-2, -1)
    return leading_axes(ctx.y, ctx.x, along)


RULES: Final[Mapping[type[Primitive], SparsityRule]] = MappingProxyType(
    {
        SelectN: _select, Mark: _one_to_one, OptimizationBarrier: _one_to_one, Check: _one_to_one,
        ShardingConstraint: _identity, Reshape: _identity, Squeeze: _identity, ExpandDims: _identity,
        BroadcastInDim: _broadcast, ReduceSum: _reduce, Transpose: _transpose, Rev: _rev, Slice: _slice, Pad: _pad,
        Concatenate: _concatenate,
        Gather: _gather, DynamicSlice: _dynamic_slice, Index: _index, DynamicUpdateSlice: _update,
        ScatterFamily: _scatter, Contraction: _dot, ConvGeneralDilated: _conv, ReduceWindowSum: _window,
        SelectAndGatherAdd: _window, SelectAndScatterAdd: _add_to_windows, Cumulative: _cumulative,
        CumSum: _prefix_sum, LinearRecurrence: _prefix_sum, Fft: _fft, TriangularSolve: _triangular,
        LinearSystem: _solve, Matrixwise: _matrixwise, Ormqr: _ormqr,
    }
)  # fmt: skip
