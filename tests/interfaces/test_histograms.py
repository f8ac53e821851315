"""Histograms and counts, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, ops
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError, TracerError
from tests.interfaces.oracle import close, same

RNG = np.random.default_rng(0)
K = RNG.integers(0, 7, 20)
V, W = RNG.normal(size=20), RNG.normal(size=20)
P = np.stack([V, W, V * W], 1)


def test_counts() -> None:
    close(fnp.bincount(K), np.bincount(K), dtype=False)
    close(fnp.bincount(K, W, minlength=9), np.bincount(K, W, 9))
    close(fnp.bincount(K, K), np.bincount(K, K), dtype=False)
    assert fnp.bincount(K).dtype == np.int32
    assert fnp.bincount(K, K).dtype == np.float32
    close(fx.jit(lambda k: fnp.bincount(k - 2, length=3))(K), np.bincount(K[K >= 2] - 2)[:3], dtype=False)
    close(fnp.bincount(K, minlength=9, length=3), np.bincount(K)[:3], dtype=False)
    close(fnp.bincount(K[:0]), np.zeros(0), dtype=False)
    close(fnp.bincount(K > 3), np.bincount(K > 3), dtype=False)
    close(fx.grad(lambda w: fnp.bincount(K, w)[3])(fnp.asarray(W)), (K == 3) * 1.0)
    close(
        fx.vmap(lambda k: fnp.bincount(k, length=7))(fnp.asarray(K.reshape(4, 5))),
        [np.bincount(k, minlength=7) for k in K.reshape(4, 5)],
        dtype=False,
    )


def test_bins_of_elements() -> None:
    x = np.array([-2, -1, 0, 0.5, 1, 3, np.nan])
    for bins in ([-1.0, 0, 1], [1.0, 0, -1], [2.0]):
        for right in (False, True):
            same("digitize", x, np.array(bins), right=right, dtype=False)
    close(fnp.digitize(x, []), np.zeros(7), dtype=False)


@pytest.mark.parametrize(
    "kw", [{}, {"bins": 5, "range": (-1, 1)}, {"bins": (-1, 0, 0.5, 1)}, {"bins": 3, "density": True}]
)
def test_histograms(kw: dict[str, Any]) -> None:
    same("histogram", V, **kw, dtype=False)
    same("histogram", V, weights=W, **kw, dtype=False)
    given = {k: v for k, v in kw.items() if k != "density"}
    same("histogram_bin_edges", V, **given)


def test_histograms_of_edge_cases() -> None:
    for x in (V[:0], np.full(3, 2.0), np.arange(5)):
        for ours, theirs in zip(fnp.histogram(x), np.histogram(x), strict=True):
            close(ours, theirs, dtype=False)
    close(fnp.histogram(V, "auto")[0], np.histogram(V, "auto")[0], dtype=False)
    assert fnp.histogram(V)[0].dtype == np.int32
    assert fnp.histogram(np.arange(5))[1].dtype == np.float32
    tenths = (np.arange(10) / 10).astype(np.float32)  # each is an edge
    assert fnp.histogram(tenths, 10, (0, 1))[0].tolist() == [1] * 10
    inside = np.append(V, [np.nan, np.inf])
    close(fnp.histogram(inside, 5, (-1, 1))[0], np.histogram(V, 5, (-1, 1))[0], dtype=False)
    counts = fx.vmap(lambda v: fnp.histogram(v, 5)[0])(fnp.asarray(V.reshape(2, 10)))
    close(counts, [np.histogram(v, 5)[0] for v in V.reshape(2, 10)], dtype=False)
    bins = np.digitize(V, np.histogram_bin_edges(V, 5)[1:-1])
    close(fx.grad(lambda w: fnp.histogram(V, 5, weights=w)[0][2])(fnp.asarray(W)), (bins == 2) * 1.0)


def test_histograms_of_points() -> None:
    for kw in (
        {},
        {"bins": (3, 4)},
        {"bins": np.array([3, 4])},
        {"bins": 5, "range": ((-1, 1), (0, 2)), "density": True},
    ):
        same("histogram2d", V, W, **kw, dtype=False)
    edges = np.array([-1.0, 0, 2])
    same("histogram2d", V, W, bins=edges, dtype=False)
    kinds: tuple[dict[str, Any], ...] = (
        {"bins": 2},
        {"bins": (2, 3, 4), "weights": W},
        {"bins": (2, 3, 4), "density": True},
    )
    for given in kinds:
        ours, theirs = fnp.histogramdd(P, **given), np.histogramdd(P, **given)
        close(ours[0], theirs[0], dtype=False)
        for a, b in zip(ours[1], theirs[1], strict=True):
            close(a, b)
    close(fnp.histogramdd([V, W], 3)[0], np.histogramdd([V, W], 3)[0], dtype=False)


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fx.jit(fnp.bincount)(K), TracerError, "bincount: the size of the result depends on the values of"),
        (lambda: fx.jit(lambda v: fnp.histogram(v, "auto"))(V), TracerError, "say how many bins there are"),
        (lambda: fnp.bincount(V), DTypeError, "bincount: takes a vector of integers, got f64[20]"),
        (lambda: fnp.bincount(K, W[:3]), ShapeError, "bincount: weights f64[3] for i64[20]"),
        (lambda: fnp.bincount(K - 3), ParameterError, "bincount: -3 is below 0"),
        (lambda: fnp.bincount(K, length=-1), ParameterError, "bincount: length -1 is below 0"),
        (lambda: fnp.digitize(V, P), ShapeError, "digitize: bins must have one axis, got f64[20,3]"),
        (lambda: fnp.histogram(V, 0), ParameterError, "histogram: 0 bins; there must be at least 1"),
        (lambda: fnp.histogram(V, 2, (1, 0)), ParameterError, "histogram: range from 1 to 0"),
        (lambda: fnp.histogram(V, range=(0, np.inf)), ParameterError, "range from 0 to inf: both must be finite"),
        (lambda: fnp.histogram(V, P), ArgumentError, "histogram: bins must be an int or a vector of edges"),
        (lambda: fnp.histogram(V, weights=W[:2]), ShapeError, "histogram: weights f64[2] for f64[20]"),
        (lambda: fnp.histogram2d(V, W[:3]), ShapeError, "histogram2d: takes two vectors of one size"),
        (lambda: fnp.histogramdd(P, (1, 2)), ShapeError, "histogramdd: 2 bins and 3 ranges for points of 3"),
    ],
)  # fmt: skip
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_weights_are_added_in_float32(dtype: str) -> None:
    """bfloat16 counts to 256, float16 to 2,048."""
    ones = fnp.ones(6000, dtype)
    halves = np.arange(6000) % 2
    for have in (fnp.bincount(halves, ones), ops.segment_sum(ones, halves, 2)):
        assert have.dtype == dtypes.as_dtype(dtype)
        np.testing.assert_array_equal(np.asarray(have, np.float64), [3000.0, 3000.0] if dtype == "float16" else 3008.0)
    growth = np.full(500, 1.0078125, dtypes.as_dtype(dtype))
    product = ops.segment_prod(growth, np.zeros(500, np.int32), 1)
    np.testing.assert_allclose(np.asarray(product, np.float64), 1.0078125**500, rtol=2**-9)


def test_estimators_of_bins_take_no_weights() -> None:
    for f in (fnp.histogram, fnp.histogram_bin_edges):
        with pytest.raises(ArgumentError, match=r"bins 'auto' with weights: the estimators of NumPy do not") as e:
            f(np.arange(9.0), "auto", weights=np.ones(9))
        assert e.value.remedy == "give the number of bins, or the edges"
