"""Draws applications of the primitives that index, reduce and contract."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Aval, Primitive, Shape
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.dimension_numbers import MODES, DimensionNumbers
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.family import ORDERED
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterAdd, ScatterMax, ScatterMin, ScatterMul
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceXor
from fxad.primitives.reduce_prod import ReduceProd
from fxad.testing.applications import ANY, Spec, Specs, dtype_of, index_of, some_axes
from fxad.testing.values import ORDINARY, SPECIAL, Domain, shapes


def _draw_windows(draw: st.DrawFn) -> tuple[Shape, Shape, DimensionNumbers, Shape, str]:
    """Draw the operand shape, the shape of the indices, dimension numbers, window sizes and mode."""
    x = draw(shapes(sizes=(2, 1, 3, 4)))
    roles = [draw(st.sampled_from(["window", "indexed", "collapsed", "batched", "open"])) for _ in x]
    batched = tuple([a for a, r in enumerate(roles) if r == "batched"])
    # `collapsed` is indexed and has no axis in the result; `open` is collapsed and stays at place 0
    index_map = draw(st.permutations([a for a, r in enumerate(roles) if r in ("indexed", "collapsed")]))
    collapsed = tuple([a for a, r in enumerate(roles) if r in ("collapsed", "open")])
    full = [n if r == "window" else 1 for n, r in zip(x, roles, strict=True)]
    sizes = tuple([draw(st.integers(0, n)) if r == "indexed" else m for n, m, r in zip(x, full, roles, strict=True)])
    batch = [x[a] for a in batched] + list(draw(shapes(2)))
    order = draw(st.permutations(range(len(batch))))
    places = tuple([order.index(k) for k in range(len(batched))])
    indices = (*[batch[k] for k in order], len(index_map))
    window = len(x) - len(collapsed) - len(batched)
    offset = sorted(draw(st.permutations(range(len(batch) + window)))[:window])
    mode = draw(st.sampled_from(MODES))
    return x, indices, DimensionNumbers(tuple(offset), collapsed, batched, places, tuple(index_map)), sizes, mode


def _draw_indices(
    draw: st.DrawFn, x: Shape, indices: Shape, windows: DimensionNumbers, sizes: Shape, mode: str
) -> tuple[Aval, Domain]:
    if mode != "promise_in_bounds":
        return index_of(draw, indices, -2, 6)
    last = min([x[a] - sizes[a] for a in windows.index_map], default=0)
    return index_of(draw, indices, 0, last)


def _gather(draw: st.DrawFn, smooth: bool) -> Spec:
    x, indices, windows, sizes, mode = _draw_windows(draw)
    alone = draw(st.booleans())
    if alone:
        indices = _alone(indices, windows)
    prim = Gather(*windows.numbers, sizes, mode, alone and draw(st.booleans()), alone and draw(st.booleans()))
    operand = Aval(x, dtype_of(draw, ANY, smooth)), ORDINARY if smooth else SPECIAL
    return prim, [operand, _draw_indices(draw, x, indices, windows, sizes, mode)]


def _alone(indices: Shape, windows: DimensionNumbers) -> Shape:
    """Return indices with at most one vector beside the batched axes, so that no two windows overlap."""
    batch = [n if k in windows.index_batched else min(n, 1) for k, n in enumerate(indices[:-1])]
    return (*batch, indices[-1])


def _scatter(kind: type[ScatterAdd | Scatter | ScatterMul | ScatterMin | ScatterMax]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        x, indices, windows, sizes, mode = _draw_windows(draw)
        # where updates meet, any one may stay: XLA and NumPy agree where none do
        alone = draw(st.booleans()) or (kind is Scatter and not smooth)
        if alone:
            indices = _alone(indices, windows)
        updates = windows.gathered(indices, tuple([sizes[a] for a in windows.axes(len(x))]))
        dtype = dtype_of(draw, kind.takes, smooth)
        prim = kind(*windows.numbers, mode, alone and draw(st.booleans()), alone and draw(st.booleans()))
        places = _draw_indices(draw, x, indices, windows, sizes, mode)
        return prim, [(Aval(x, dtype), ORDINARY), places, (Aval(updates, dtype), ORDINARY)]

    return specs


def _reduction(kind: type[ReduceMax | ReduceMin | ReduceProd | ReduceAnd | ReduceOr | ReduceXor]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape, dtype = draw(shapes()), dtype_of(draw, kind.takes, smooth)
        exact = kind in (ReduceMax, ReduceMin) and not smooth
        return kind(some_axes(draw, len(shape))), [(Aval(shape, dtype), SPECIAL if exact else ORDINARY)]

    return specs


def _argextremum(kind: type[ArgMax | ArgMin]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape = draw(shapes(min_rank=1))
        axis = draw(st.integers(0, len(shape) - 1))
        shape = (*shape[:axis], max(shape[axis], 1), *shape[axis + 1 :])
        index = draw(st.sampled_from([dtypes.int32, dtypes.int64, dtypes.uint8]))
        x = Aval(shape, dtype_of(draw, ORDERED, smooth))
        return kind(axis, index), [(x, ORDINARY if smooth else SPECIAL)]

    return specs


def _dot_general(draw: st.DrawFn, smooth: bool) -> Spec:
    sizes = st.sampled_from([2, 1, 3, 0])
    batch, contract = draw(st.lists(sizes, max_size=2)), draw(st.lists(sizes, max_size=2))
    sides = []
    for _ in range(2):
        free = draw(st.lists(sizes, max_size=2))
        parts = [*batch, *contract, *free]
        order = draw(st.permutations(range(len(parts))))
        at = [order.index(k) for k in range(len(parts))]
        sides.append((tuple([parts[k] for k in order]), at))
    (left, i), (right, j) = sides
    n, m = len(batch), len(batch) + len(contract)
    dtype = dtype_of(draw, dtypes.NUMERIC - dtypes.FLOAT8, smooth)
    wider = {dtypes.bfloat16: dtypes.float32, dtypes.float32: dtypes.float64, dtypes.int8: dtypes.int32}
    preferred = draw(st.sampled_from([None, wider.get(dtype)]))
    precision = draw(st.sampled_from(["", "highest"]))
    prim = DotGeneral(tuple(i[n:m]), tuple(j[n:m]), tuple(i[:n]), tuple(j[:n]), preferred, precision)
    return prim, [(Aval(left, dtype), ORDINARY), (Aval(right, dtype), ORDINARY)]


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        Gather: _gather,
        ScatterAdd: _scatter(ScatterAdd),
        Scatter: _scatter(Scatter),
        ScatterMul: _scatter(ScatterMul),
        ScatterMin: _scatter(ScatterMin),
        ScatterMax: _scatter(ScatterMax),
        **{kind: _reduction(kind) for kind in (ReduceMax, ReduceMin, ReduceProd, ReduceAnd, ReduceOr, ReduceXor)},
        ArgMax: _argextremum(ArgMax),
        ArgMin: _argextremum(ArgMin),
        DotGeneral: _dot_general,
    }
)
