"""Draws applications of `index` and `index_vectors`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad.ir import Aval, Primitive
from fxad.primitives.index import Index, IndexVectors
from fxad.testing.applications import ANY, Spec, Specs, dtype_of, index_of
from fxad.testing.values import ORDINARY, SPECIAL, shapes


def _draw_index(draw: st.DrawFn, smooth: bool) -> Spec:
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
    x = Aval(shape, dtype_of(draw, ANY, smooth)), ORDINARY if smooth else SPECIAL
    return prim, [x, *[index_of(draw, (), -5, 5) for _ in dynamic]]


def _index_vectors(draw: st.DrawFn, smooth: bool) -> Spec:  # noqa: ARG001  there is nothing to be smooth in
    batch = draw(shapes(3))
    columns = []
    for _ in range(draw(st.integers(1, 3))):
        own = tuple([n if draw(st.booleans()) else 1 for n in batch])
        columns.append(index_of(draw, own[draw(st.integers(0, len(own))) :], -5, 5))
    return IndexVectors(tuple([draw(st.integers(0, 4)) for _ in columns])), columns


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType({Index: _draw_index, IndexVectors: _index_vectors})
