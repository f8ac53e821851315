"""Draws applications of the primitives that read or write elements at places."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad.ir import Aval, Primitive, Shape
from fxad.primitives.dimension_numbers import MODES, DimensionNumbers, GatherScatterMode
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterAdd, ScatterMax, ScatterMin, ScatterMul
from fxad.primitives.index import Index, IndexVectors
from fxad.testing.applications import ANY, Spec, Specs, dtype_of, index_of
from fxad.testing.values import ORDINARY, Domain, any_values, shapes


def _index(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes(sizes=(2, 1, 3, 4)))
    starts: list[int] = []
    sizes: list[int] = []
    strides: list[int] = []
    dropped: list[int] = []
    dynamic: list[int] = []
    for a, n in enumerate(shape):
        role = draw(st.sampled_from(["whole", "window", "point", "place", "place"] if n else ["whole"]))
        start, m, stride = 0, n, 1
        if role == "window":
            start = draw(st.integers(0, n))
            stride = draw(st.integers(1, 3))
            m = draw(st.integers(0, -((start - n) // stride)))
        elif role == "point":
            start, m = draw(st.integers(0, n - 1)), 1
        elif role == "place":
            m = draw(st.sampled_from([1, 1, n]))
            dynamic.append(a)
        if m == 1 and draw(st.booleans()):
            dropped.append(a)
        starts.append(start)
        sizes.append(m)
        strides.append(stride)
    prim = Index(tuple(starts), tuple(sizes), tuple(strides), tuple(dropped), tuple(dynamic))
    x = Aval(shape, dtype_of(draw, ANY, smooth)), any_values(smooth)
    return prim, [x, *[index_of(draw, (), -5, 5) for _ in dynamic]]


def _index_vectors(draw: st.DrawFn, smooth: bool) -> Spec:  # noqa: ARG001  there is nothing to be smooth in
    batch = draw(shapes(3))
    columns = []
    for _ in range(draw(st.integers(1, 3))):
        own = tuple([n if draw(st.booleans()) else 1 for n in batch])
        columns.append(index_of(draw, own[draw(st.integers(0, len(own))) :], -5, 5))
    return IndexVectors(tuple([draw(st.integers(0, 4)) for _ in columns])), columns


def _dynamic_slice(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes())
    sizes = tuple([draw(st.integers(0, n)) for n in shape])
    start = index_of(draw, (), -2, 5)
    x = (Aval(shape, dtype_of(draw, ANY, smooth)), any_values(smooth))
    return DynamicSlice(sizes), [x, *[start] * len(shape)]


def _dynamic_update_slice(draw: st.DrawFn, smooth: bool) -> Spec:
    prim, (x, *starts) = _dynamic_slice(draw, smooth)
    assert isinstance(prim, DynamicSlice)
    return DynamicUpdateSlice(), [x, (x[0].with_shape(prim.sizes), x[1]), *starts]


# -------------------------------------------------------------------------------------------------- gather and scatter


def _draw_windows(draw: st.DrawFn) -> tuple[Shape, Shape, DimensionNumbers, Shape, GatherScatterMode]:
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
    draw: st.DrawFn, x: Shape, indices: Shape, windows: DimensionNumbers, sizes: Shape, mode: GatherScatterMode
) -> tuple[Aval, Domain]:
    if mode != "promise_in_bounds":
        return index_of(draw, indices, -2, 6)
    last = min([x[a] - sizes[a] for a in windows.index_map], default=0)
    return index_of(draw, indices, 0, last)


def _gather(draw: st.DrawFn, smooth: bool) -> Spec:
    x, indices, windows, sizes, mode = _draw_windows(draw)
    alone = draw(st.booleans())
    if alone:
        indices = _with_one_vector(indices, windows)
    prim = Gather(*windows.numbers, sizes, mode, alone and draw(st.booleans()), alone and draw(st.booleans()))
    operand = Aval(x, dtype_of(draw, ANY, smooth)), any_values(smooth)
    return prim, [operand, _draw_indices(draw, x, indices, windows, sizes, mode)]


def _with_one_vector(indices: Shape, windows: DimensionNumbers) -> Shape:
    """Return indices with at most one vector beside the batched axes, so that no two windows overlap."""
    batch = [n if k in windows.index_batched else min(n, 1) for k, n in enumerate(indices[:-1])]
    return (*batch, indices[-1])


def _scatter(kind: type[ScatterAdd | Scatter | ScatterMul | ScatterMin | ScatterMax]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        x, indices, windows, sizes, mode = _draw_windows(draw)
        # where updates meet, any one may stay: XLA and NumPy agree where none do
        alone = draw(st.booleans()) or (kind is Scatter and not smooth)
        if alone:
            indices = _with_one_vector(indices, windows)
        updates = windows.gathered(indices, tuple([sizes[a] for a in windows.axes(len(x))]))
        dtype = dtype_of(draw, kind.takes, smooth)
        prim = kind(*windows.numbers, mode, alone and draw(st.booleans()), alone and draw(st.booleans()))
        places = _draw_indices(draw, x, indices, windows, sizes, mode)
        return prim, [(Aval(x, dtype), ORDINARY), places, (Aval(updates, dtype), ORDINARY)]

    return specs


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        Index: _index,
        IndexVectors: _index_vectors,
        DynamicSlice: _dynamic_slice,
        DynamicUpdateSlice: _dynamic_update_slice,
        Gather: _gather,
        **{kind: _scatter(kind) for kind in (ScatterAdd, Scatter, ScatterMul, ScatterMin, ScatterMax)},
    }
)
