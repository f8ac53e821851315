"""Derivatives of extrema of many equal elements, in dtypes that cannot count them: the shares sum to 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, ops


def _of_scatter(x: fx.Array) -> fx.Array:
    return ops.segment_max(x, np.zeros(x.shape, np.int32), num_segments=1)[0]


def _of_collective(x: fx.Array) -> fx.Array:
    of_all: fx.Array = fx.vmap(lambda v: lax.pmax(v, "i"), axis_name="i", out_axes=None)(x)
    return of_all


# a share of 1 / 100,000 has 5 bits in float16
@pytest.mark.parametrize(("dtype", "n", "rtol"), [("bfloat16", 1000, 2**-8), ("float16", 100_000, 2**-5)])
@pytest.mark.parametrize("greatest", [fnp.max, _of_scatter, _of_collective])
def test_many_equal_elements(greatest: Callable[[fx.Array], fx.Array], dtype: str, n: int, rtol: float) -> None:
    shares = np.asarray(fx.grad(greatest)(fnp.ones((n,)).astype(dtype)), np.float64)
    np.testing.assert_allclose(shares, 1 / n, rtol=rtol)
