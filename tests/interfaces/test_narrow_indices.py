"""Indices of 8 and 16 bits for axes that are longer than their dtype can represent: the results are those of int32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, ops

X = np.arange(300.0, dtype=np.float32)
TAKEN = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
ADDED = lax.ScatterDimensionNumbers((), (0,), (0,))

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "ravel_multi_index, clip": lambda i: fnp.ravel_multi_index((i, i), (300, 1000)),
    "ravel_multi_index, wrap": lambda i: fnp.ravel_multi_index((i, i), (300, 1000), "wrap"),
    "unravel_index": lambda i: fnp.unravel_index(i, (30, 10)),
    "take": lambda i: fnp.take(X, i),
    "take, clip": lambda i: fnp.take(X, i, mode="clip"),
    "take, wrap": lambda i: fnp.take(X, i, mode="wrap"),
    "take, fill": lambda i: fnp.take(X, i, mode="fill", fill_value=-1.0),
    "take_along_axis": lambda i: fnp.take_along_axis(X, i, 0),
    "choose": lambda i: fnp.choose(i, [np.full(3, k, np.float32) for k in range(130)], mode="clip"),
    "getitem": lambda i: fnp.asarray(X)[i],
    "at": lambda i: fnp.asarray(X).at[i].add(1.0),
    "gather, fill": lambda i: lax.gather(X, i[:, None], TAKEN, (1,), mode="fill", fill_value=-1.0),
    "gather, clip": lambda i: lax.gather(X, i[:, None], TAKEN, (1,), mode="clip"),
    "scatter_add": lambda i: lax.scatter_add(X, i[:, None], X[:3], ADDED),
    "dynamic_slice": lambda i: lax.dynamic_slice(X, (i[1],), (7,)),
    "one_hot": lambda i: nn.one_hot(i, 300),
    "bincount": lambda i: fnp.bincount(i, length=300),
    "segment_sum": lambda i: ops.segment_sum(X[:3], i, 300),
    "segment_max": lambda i: ops.segment_max(X[:3], i, 300),
    "repeat": lambda i: fnp.repeat(X[:3], i, total_repeat_length=300),
    "ragged_dot": lambda i: lax.ragged_dot(np.outer(X[:225], [1.0, 2.0]), np.ones((3, 2, 2)) * X[:3, None, None], i),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_with_int32(name: str, dtype: str) -> None:
    i = np.array([5, 100, 120])
    have, want = [fx.tree.leaves(FUNCTIONS[name](i.astype(d))) for d in (dtype, "int32")]
    for a, b in zip(have, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
