"""Draws applications of convolution, of window reductions, and of general reductions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr, Primitive, Shape
from fxad.primitives import elementwise as ew
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.fold import Reduce, ReduceWindow
from fxad.primitives.reduce_window import ReduceWindowMax, ReduceWindowMin, ReduceWindowProd, ReduceWindowSum
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from fxad.primitives.sliding import Padding, SlidingWindow, dilated_size
from fxad.primitives.softmax import Softmax
from fxad.testing.applications import ANY, Spec, Specs, dtype_of, some_axes
from fxad.testing.values import ORDINARY, SPECIAL, Domain, shapes


def _padding(draw: st.DrawFn, sizes: Shape, base: tuple[int, ...]) -> Padding:
    """Draw padding that drops no more elements than there are."""
    pairs = []
    for n, b in zip(sizes, base, strict=True):
        low = draw(st.sampled_from([0, 1, 2, -1 if n else 0]))
        pairs.append((low, draw(st.sampled_from([0, 1, 2, -1 if low + dilated_size(n, b) else 0]))))
    return tuple(pairs)


def _steps(draw: st.DrawFn, n: int) -> tuple[int, ...]:
    return tuple([draw(st.sampled_from([1, 2, 3])) for _ in range(n)])


def _draw_axis_sizes(draw: st.DrawFn, sizes: Shape) -> tuple[Shape, tuple[int, ...]]:
    """Draw sizes at random axes: the shape, and the axis of each."""
    spec = tuple(draw(st.permutations(range(len(sizes)))))
    return tuple([sizes[spec.index(a)] for a in range(len(sizes))]), spec


def _conv(draw: st.DrawFn, smooth: bool) -> Spec:
    few, n = st.sampled_from([1, 2, 3, 0]), draw(st.integers(0, 2))
    groups, by_batch = draw(st.sampled_from([1, 1, 2, 3])), draw(st.booleans())
    features, batches = (1, groups) if by_batch else (groups, 1)
    i, o, b = draw(few), draw(few) * groups, draw(few) * batches
    space, window = [tuple([draw(st.sampled_from(k)) for _ in range(n)]) for k in ([3, 1, 4, 0], [2, 1, 3, 0])]
    lhs, lhs_spec = _draw_axis_sizes(draw, (b, i * features, *space))
    rhs, rhs_spec = _draw_axis_sizes(draw, (o, i, *window))
    out_spec = tuple(draw(st.permutations(range(n + 2))))
    base = _steps(draw, n)
    padding = _padding(draw, space, base)
    dtype = dtype_of(draw, dtypes.NUMERIC - dtypes.FLOAT8, smooth)
    wider = {dtypes.bfloat16: dtypes.float32, dtypes.float32: dtypes.float64, dtypes.int8: dtypes.int32}
    preferred = draw(st.sampled_from([None, wider.get(dtype)]))
    specs = lhs_spec, rhs_spec, out_spec
    precision = draw(st.sampled_from(["", "high"]))
    prim = ConvGeneralDilated(
        _steps(draw, n), padding, base, _steps(draw, n), *specs, features, batches, preferred, precision
    )
    return prim, [(Aval(lhs, dtype), ORDINARY), (Aval(rhs, dtype), ORDINARY)]


def _sliding(draw: st.DrawFn) -> tuple[Shape, SlidingWindow]:
    """Draw a shape and windows over it."""
    shape = draw(shapes(max_rank=2, sizes=(3, 1, 4, 2, 0)))
    n, base = len(shape), _steps(draw, len(shape))
    window = tuple([draw(st.sampled_from([2, 1, 3])) for _ in range(n)])
    return shape, SlidingWindow(window, _steps(draw, n), _padding(draw, shape, base), base, _steps(draw, n))


def _reduce_window(kind: type[ReduceWindowSum | ReduceWindowMax | ReduceWindowMin | ReduceWindowProd]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, sliding = _sliding(draw)
        exact = kind in (ReduceWindowMax, ReduceWindowMin) and not smooth
        x = Aval(shape, dtype_of(draw, kind.takes - dtypes.FLOAT8, smooth))
        return kind(*sliding.values), [(x, SPECIAL if exact else ORDINARY)]

    return specs


def _folded(draw: st.DrawFn, smooth: bool) -> tuple[Jaxpr, list[Aval]]:
    """Draw a body that is associative on integers, and its initial values: the greater pair, or two sums."""
    b = Builder()
    if not smooth and draw(st.booleans()):
        avals = [Aval((), dtypes.int32), Aval((), dtypes.uint8)]
        x, i, y, j = b.inputs((*avals, *avals))
        return b.build([b.one(ew.ADD, x, y), b.one(ew.MAX, i, j)], "add_max"), avals
    aval = Aval((), dtypes.float64 if smooth else draw(st.sampled_from([dtypes.int32, dtypes.float32])))
    left, right = b.inputs((aval, aval))
    return b.build([b.one(ew.MAX, left, right)], "greater"), [aval]


def _reduce(draw: st.DrawFn, smooth: bool) -> Spec:
    body, scalars = _folded(draw, smooth)
    shape = draw(shapes(2))
    starts = Domain(-9.0, -8.0, whole=(0, 0))  # the least there is, and of sums nothing
    xs = [(a.with_shape(shape), Domain(whole=(0, 9))) for a in scalars]
    return Reduce(body, some_axes(draw, len(shape))), [*xs, *[(a, starts) for a in scalars]]


def _reduce_windows(draw: st.DrawFn, smooth: bool) -> Spec:
    body, scalars = _folded(draw, smooth)
    shape, sliding = _sliding(draw)
    starts = Domain(-9.0, -8.0, whole=(0, 0))
    xs = [(a.with_shape(shape), Domain(whole=(0, 9))) for a in scalars]
    return ReduceWindow(body, *sliding.values), [*xs, *[(a, starts) for a in scalars]]


def _barrier(draw: st.DrawFn, smooth: bool) -> Spec:
    dtypes_of = [dtype_of(draw, ANY, smooth) for _ in range(draw(st.integers(0, 3)))]
    return OptimizationBarrier(), [(Aval(draw(shapes(2)), d), ORDINARY if smooth else SPECIAL) for d in dtypes_of]


def _softmax(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes())
    dtype = dtype_of(draw, dtypes.FLOATING - dtypes.FLOAT8, smooth)
    return Softmax(some_axes(draw, len(shape))), [(Aval(shape, dtype), ORDINARY if smooth else SPECIAL)]


def _selection(kind: type[SelectAndGatherAdd | SelectAndScatterAdd]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, sliding = _sliding(draw)
        x = Aval(shape, dtype_of(draw, dtypes.INTEGER | dtypes.FLOATING - dtypes.FLOAT8, smooth))
        value = x if kind is SelectAndGatherAdd else x.with_shape(sliding.result_shape("", x))
        prim = kind(draw(st.sampled_from(["ge", "le"])), *sliding.values)
        return prim, [(value, ORDINARY), (x, ORDINARY if smooth else SPECIAL)]

    return specs


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        ConvGeneralDilated: _conv,
        ReduceWindowSum: _reduce_window(ReduceWindowSum),
        ReduceWindowMax: _reduce_window(ReduceWindowMax),
        ReduceWindowMin: _reduce_window(ReduceWindowMin),
        ReduceWindowProd: _reduce_window(ReduceWindowProd),
        Reduce: _reduce,
        ReduceWindow: _reduce_windows,
        OptimizationBarrier: _barrier,
        Softmax: _softmax,
        SelectAndGatherAdd: _selection(SelectAndGatherAdd),
        SelectAndScatterAdd: _selection(SelectAndScatterAdd),
    }
)
