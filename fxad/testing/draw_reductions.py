"""Draws applications of reductions, sorts and cumulative operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Aval, Jaxpr, Primitive, Shape
from fxad.primitives import elementwise as ew
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum, LinearRecurrence
from fxad.primitives.elementwise.family import ORDERED
from fxad.primitives.fold import Reduce
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceXor
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.softmax import LogSoftmax, Softmax
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK
from fxad.testing.applications import ANY, Spec, Specs, dtype_of, shape_and_axis, some_axes
from fxad.testing.values import ORDINARY, SPECIAL, Domain, any_values, shapes, with_long_axis


def _reduction(kind: type[ReduceMax | ReduceMin | ReduceProd | ReduceAnd | ReduceOr | ReduceXor]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, dtype = draw(shapes()), dtype_of(draw, kind.takes, smooth)
        exact = kind in (ReduceMax, ReduceMin) and not smooth
        return kind(some_axes(draw, len(shape))), [(Aval(shape, dtype), SPECIAL if exact else ORDINARY)]

    return specs


def _argextremum(kind: type[ArgMax | ArgMin]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, axis = shape_and_axis(draw)
        shape = (*shape[:axis], max(shape[axis], 1), *shape[axis + 1 :])
        index = draw(st.sampled_from([dtypes.int32, dtypes.int64, dtypes.uint8]))
        x = Aval(shape, dtype_of(draw, ORDERED, smooth))
        return kind(axis, index), [(x, any_values(smooth))]

    return specs


def _softmax(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes())
    dtype = dtype_of(draw, dtypes.FLOATING - dtypes.FLOAT8, smooth)
    return Softmax(some_axes(draw, len(shape))), [(Aval(shape, dtype), any_values(smooth))]


def _log_softmax(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes())
    return LogSoftmax(some_axes(draw, len(shape))), [(Aval(shape, dtype_of(draw, dtypes.FLOATING, smooth)), ORDINARY)]


# ------------------------------------------------------------------------------------------------ reductions by a body


def draw_combination(draw: st.DrawFn, smooth: bool) -> tuple[Jaxpr, list[Aval]]:
    """Draw a body that combines scalars of these types, and is associative on integers: a sum and a maximum, or one
    maximum."""
    b = Builder()
    if not smooth and draw(st.booleans()):
        avals = [Aval((), dtypes.int32), Aval((), dtypes.uint8)]
        x, i, y, j = b.inputs((*avals, *avals))
        return b.build([b.one(ew.ADD, x, y), b.one(ew.MAX, i, j)], "add_max"), avals
    aval = Aval((), dtypes.float64 if smooth else draw(st.sampled_from([dtypes.int32, dtypes.float32])))
    left, right = b.inputs((aval, aval))
    return b.build([b.one(ew.MAX, left, right)], "greater"), [aval]


def _reduce(draw: st.DrawFn, smooth: bool) -> Spec:
    body, scalars = draw_combination(draw, smooth)
    shape = draw(shapes(2))
    return Reduce(body, some_axes(draw, len(shape))), operands_to_combine(scalars, shape)


def operands_to_combine(scalars: Sequence[Aval], shape: Shape) -> list[tuple[Aval, Domain]]:
    """Return arrays of elements to combine, and initial values: 0 for sums, less than every element for maxima."""
    starts = Domain(-9.0, -8.0, whole=(0, 0))
    return [*[(a.with_shape(shape), Domain(whole=(0, 9))) for a in scalars], *[(a, starts) for a in scalars]]


# ----------------------------------------------------------------------------------------------- sorted and cumulative


def _sort(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes(min_rank=1))
    count = draw(st.integers(1, 3))
    prim = Sort(draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, count)))
    return prim, [(Aval(shape, dtype_of(draw, ANY, smooth)), any_values(smooth)) for _ in range(count)]


def _top_k(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes(min_rank=1))
    shape = draw(with_long_axis(shape, len(shape) - 1, 40))
    prim = TopK(draw(st.integers(0, min(shape[-1], 4))))
    return prim, [(Aval(shape, dtype_of(draw, ORDERED, smooth)), any_values(smooth))]


def _cumulative(kind: type[CumSum | CumProd | CumMax | CumMin | CumLogSumExp | LinearRecurrence]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, axis = shape_and_axis(draw)
        shape = draw(with_long_axis(shape, axis, 20))
        aval = Aval(shape, dtype_of(draw, kind.takes, smooth))
        reverse = draw(st.booleans())
        skips = kind is LinearRecurrence and draw(st.booleans())
        prim = LinearRecurrence(axis, reverse, skip_zeros=True) if skips else kind(axis, reverse)
        exact = kind in (CumMax, CumMin) and not smooth
        return prim, [(aval, SPECIAL if exact else ORDINARY)] * (2 if kind is LinearRecurrence else 1)

    return specs


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        **{kind: _reduction(kind) for kind in (ReduceMax, ReduceMin, ReduceProd, ReduceAnd, ReduceOr, ReduceXor)},
        **{kind: _argextremum(kind) for kind in (ArgMax, ArgMin)},
        LogSoftmax: _log_softmax,
        Softmax: _softmax,
        Reduce: _reduce,
        Sort: _sort,
        TopK: _top_k,
        **{kind: _cumulative(kind) for kind in (CumSum, CumProd, CumMax, CumMin, CumLogSumExp, LinearRecurrence)},
    }
)
