"""Draws applications of convolution and of reductions over windows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Aval, Primitive, Shape
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.fold import ReduceWindow
from fxad.primitives.reduce_window import ReduceWindowMax, ReduceWindowMin, ReduceWindowProd, ReduceWindowSum
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from fxad.primitives.sliding import Padding, SlidingWindow, dilated_size
from fxad.testing.applications import Spec, Specs, dtype_of, dtypes_of_product
from fxad.testing.draw_reductions import draw_combination, operands_to_combine
from fxad.testing.values import ORDINARY, SPECIAL, any_values, shapes


def _draw_padding(draw: st.DrawFn, sizes: Shape, base: tuple[int, ...]) -> Padding:
    """Draw padding that drops no more elements than there are."""
    pairs = []
    for n, b in zip(sizes, base, strict=True):
        low = draw(st.sampled_from([0, 1, 2, -1 if n else 0]))
        pairs.append((low, draw(st.sampled_from([0, 1, 2, -1 if low + dilated_size(n, b) else 0]))))
    return tuple(pairs)


def _draw_strides(draw: st.DrawFn, n: int) -> tuple[int, ...]:
    return tuple([draw(st.sampled_from([1, 2, 3])) for _ in range(n)])


def _draw_axis_sizes(draw: st.DrawFn, sizes: Shape) -> tuple[Shape, tuple[int, ...]]:
    """Draw sizes at random axes: the shape, and the axis of each."""
    spec = tuple(draw(st.permutations(range(len(sizes)))))
    return tuple([sizes[spec.index(a)] for a in range(len(sizes))]), spec


def _conv_general_dilated(draw: st.DrawFn, smooth: bool) -> Spec:
    few, n = st.sampled_from([1, 2, 3, 0]), draw(st.integers(0, 2))
    groups, by_batch = draw(st.sampled_from([1, 1, 2, 3])), draw(st.booleans())
    features, batches = (1, groups) if by_batch else (groups, 1)
    i, o, b = draw(few), draw(few) * groups, draw(few) * batches
    space, window = [tuple([draw(st.sampled_from(k)) for _ in range(n)]) for k in ([3, 1, 4, 0], [2, 1, 3, 0])]
    lhs, lhs_spec = _draw_axis_sizes(draw, (b, i * features, *space))
    rhs, rhs_spec = _draw_axis_sizes(draw, (o, i, *window))
    out_spec = tuple(draw(st.permutations(range(n + 2))))
    base = _draw_strides(draw, n)
    padding = _draw_padding(draw, space, base)
    dtype, preferred = dtypes_of_product(draw, smooth)
    specs = lhs_spec, rhs_spec, out_spec
    precision = draw(st.sampled_from(["", "high"]))
    prim = ConvGeneralDilated(
        _draw_strides(draw, n), padding, base, _draw_strides(draw, n), *specs, features, batches, preferred, precision
    )
    return prim, [(Aval(lhs, dtype), ORDINARY), (Aval(rhs, dtype), ORDINARY)]


def _draw_windows(draw: st.DrawFn) -> tuple[Shape, SlidingWindow]:
    """Draw a shape and windows over it."""
    shape = draw(shapes(max_rank=2, sizes=(3, 1, 4, 2, 0)))
    n, base = len(shape), _draw_strides(draw, len(shape))
    window = tuple([draw(st.sampled_from([2, 1, 3])) for _ in range(n)])
    return shape, SlidingWindow(
        window, _draw_strides(draw, n), _draw_padding(draw, shape, base), base, _draw_strides(draw, n)
    )


def _window_reduction(
    kind: type[ReduceWindowSum | ReduceWindowMax | ReduceWindowMin | ReduceWindowProd],
) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, sliding = _draw_windows(draw)
        exact = kind in (ReduceWindowMax, ReduceWindowMin) and not smooth
        x = Aval(shape, dtype_of(draw, kind.takes - dtypes.FLOAT8, smooth))
        return kind(*sliding.values), [(x, SPECIAL if exact else ORDINARY)]

    return specs


def _reduce_window(draw: st.DrawFn, smooth: bool) -> Spec:
    body, scalars = draw_combination(draw, smooth)
    shape, sliding = _draw_windows(draw)
    return ReduceWindow(body, *sliding.values), operands_to_combine(scalars, shape)


def _selection(kind: type[SelectAndGatherAdd | SelectAndScatterAdd]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, sliding = _draw_windows(draw)
        x = Aval(shape, dtype_of(draw, dtypes.INTEGER | dtypes.FLOATING - dtypes.FLOAT8, smooth))
        value = x if kind is SelectAndGatherAdd else x.with_shape(sliding.result_shape("", x))
        prim = kind(draw(st.sampled_from(["ge", "le"])), *sliding.values)
        return prim, [(value, ORDINARY), (x, any_values(smooth))]

    return specs


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        ConvGeneralDilated: _conv_general_dilated,
        **{
            kind: _window_reduction(kind)
            for kind in (ReduceWindowSum, ReduceWindowMax, ReduceWindowMin, ReduceWindowProd)
        },
        ReduceWindow: _reduce_window,
        **{kind: _selection(kind) for kind in (SelectAndGatherAdd, SelectAndScatterAdd)},
    }
)
