"""Reductions that ignore nan, against NumPy, and their derivatives, which are 0 at nans."""

from __future__ import annotations

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from tests.interfaces.oracle import close, same

X = np.random.default_rng(0).normal(size=(3, 4))
X[0, 1], X[1, 0], X[2] = np.nan, np.inf, np.nan
SUMS = ("nansum", "nanprod", "nancumsum", "nancumprod")
MOMENTS = ("nanmean", "nanvar", "nanstd")
EXTREMA = ("nanmax", "nanmin")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("name", [*SUMS, *MOMENTS, *EXTREMA])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_against_numpy(name: str, axis: int | None) -> None:
    same(name, X, axis=axis)
    same(name, X.astype(np.float32), axis=axis, eager=axis == 0)
    same(name, np.arange(6, dtype=np.int32).reshape(2, 3), axis=axis, dtype=False)
    if name not in EXTREMA:
        same(name, X[:2, 1:] + 1j, axis=axis)
    if "cum" not in name:
        same(name, X, axis=axis, keepdims=True)
    if name in ("nanvar", "nanstd"):
        same(name, X, axis=axis, ddof=1)
        same(name, X, axis=axis, mean=np.float64(0.5), keepdims=True)
        same(name, X, axis=axis, mean=np.nanmean(X, 1, keepdims=True), where=X[:1] > 0)


def test_places() -> None:
    for name in ("nanargmax", "nanargmin"):
        for axis in (None, 0, 1):
            same(name, X[:2], axis=axis, dtype=False)
        same(name, np.arange(6).reshape(2, 3), axis=1, dtype=False)
    endless = np.array([np.nan, -np.inf, np.nan, -np.inf])
    close(fnp.nanargmax(endless), 1, dtype=False)  # NumPy gives the index 0 of the nan
    close(fnp.nanargmin(-endless), 1, dtype=False)
    close(fnp.nanargmax(X, 1), [0 if X[0, 0] >= np.nanmax(X[0]) else np.nanargmax(X[0]), 0, -1], dtype=False)


@pytest.mark.parametrize("name", ["nansum", "nanprod", *MOMENTS, *EXTREMA])
def test_derivative_is_zero_at_nans(name: str) -> None:
    x = np.array([[1.0, np.nan, 3.0], [np.nan] * 3])
    want = {
        "nansum": [1, 0, 1], "nanprod": [3, 0, 1], "nanmean": [0.5, 0, 0.5], "nanvar": [-1, 0, 1],
        "nanstd": [-0.5, 0, 0.5], "nanmax": [0, 0, 1], "nanmin": [1, 0, 0],
    }[name]  # fmt: skip
    got = fx.grad(lambda a: fnp.nansum(getattr(fnp, name)(a, axis=1)))(fnp.asarray(x))
    close(got, [want, [0, 0, 0]], dtype=False)


def test_dtypes() -> None:
    assert fnp.nansum(X, dtype="float32").dtype == np.float32
    assert fnp.nanmean(np.arange(3)).dtype == np.float32
    assert fnp.nanmean(X.astype(np.float16)).dtype == np.float16
    assert fnp.nanvar(X + 1j).dtype == np.float64
    close(fx.vmap(fnp.nanmax)(fnp.asarray(X)), np.nanmax(X, 1))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz"])
def test_extrema_of_dtypes_with_and_without_infinities(dtype: str) -> None:
    x = fnp.asarray([1.0, np.nan, 2.0, -3.0]).astype(dtype)
    assert float(fnp.nanmax(x)) == 2
    assert float(fnp.nanmin(x)) == -3
    assert int(fnp.nanargmax(x)) == 2
    assert int(fnp.nanargmin(x)) == 3
    least = fnp.asarray([np.nan, float(fnp.finfo(dtype).min)]).astype(dtype)
    assert int(fnp.nanargmax(least)) == 1


def test_segments_of_infinities_and_without_rows() -> None:
    """A dtype of 8 bits with infinities starts from them, as wider dtypes do."""
    for dtype in ("float8_e5m2", "float16", "float32"):
        x = fnp.asarray([-np.inf, 1.0]).astype(dtype)
        got = fx.ops.segment_max(x, np.array([0, 2]), 3)
        np.testing.assert_array_equal(np.asarray(got.astype("float32")), [-np.inf, -np.inf, 1])
        got = fx.ops.segment_min(-x, np.array([0, 2]), 3)
        np.testing.assert_array_equal(np.asarray(got.astype("float32")), [np.inf, np.inf, -1])
