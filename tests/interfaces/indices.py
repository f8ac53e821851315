"""A strategy for indices: any combination that NumPy accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.interfaces.oracle import Value

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def entries(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Draws an index for an array of `shape`: any combination that NumPy accepts."""
    batch = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    index: list[Any] = []
    axis = 0
    while axis < len(shape):
        n = shape[axis]
        kinds = ["slice", "slice", "none", "stop"] + (["int", "array", "array"] if n else []) + ["mask", "flag"]
        kind = draw(st.sampled_from(kinds))
        if kind == "stop":
            break
        if kind == "none":
            index.append(None)
            if len(index) > 6:
                break
        elif kind == "flag":
            index.append(True)
            if len(index) > 6:
                break
        elif kind == "slice":
            index.append(draw(st.slices(n)))
            axis += 1
        elif kind == "int":
            index.append(draw(st.integers(-n, n - 1)))
            axis += 1
        elif kind == "array":
            dims = draw(st.sampled_from([batch, batch[-1:], (1,) * len(batch), ()]))
            dtype = draw(st.sampled_from([np.int8, np.int32, np.int64]))
            index.append(draw(hnp.arrays(dtype, dims, elements=st.integers(-n, n - 1))))
            axis += 1
        else:
            size = batch[-1] if batch else 1
            picked = draw(st.permutations(range(n)))[:size] if n >= size else []
            mask = np.zeros(n, bool)
            mask[picked] = True
            if len(picked) != size and index:
                continue
            index.append(mask if draw(st.integers(0, 9)) else np.zeros(0, bool))
            axis += 1
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), Ellipsis)
    return tuple(index)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Value, tuple[Any, ...]]:
    shape = draw(SHAPES)
    index = draw(entries(shape))
    return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape), index
