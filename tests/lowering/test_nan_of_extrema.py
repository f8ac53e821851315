"""`nan_of_extrema`: extrema written as those of integers are extrema of floats, with nan kept, for each width."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.lowering.nan_of_extrema import with_nan_kept

DTYPES = ["float16", "bfloat16", "float32", "float64"]
VALUES = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, -2.0, 2.0**-14]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", [lax.reduce_max, lax.reduce_min])
def test_reductions(f: Callable[..., Any], dtype: str) -> None:
    rows = np.array(list(permutations(VALUES, 3)))
    x = np.asarray(fx.numpy.asarray(rows, dtype=dtype))
    program = fx.trace(lambda x: f(x, (1,)), fx.Spec(x.shape, dtype)).jaxpr
    written = with_nan_kept(program)
    typecheck(written)
    assert written is not program
    want = np.max(rows, 1) if f is lax.reduce_max else np.min(rows, 1)  # nan of a row with nan
    np.testing.assert_array_equal(run(written, [x])[0].astype(float), want)


@pytest.mark.parametrize("name", ["max", "min"])
def test_scatters(name: str) -> None:
    at, x = np.array([0, 1, 1, 2], np.int32), np.array([1.0, -2.0, np.inf, -1.0], np.float32)
    values = np.array([np.nan, -1.0, -3.0, -2.0], np.float32)
    update = lambda x, v, at: getattr(x.at[at], name)(v)  # noqa: E731
    program = fx.trace(update, *[fx.Spec(a.shape, a.dtype) for a in (x, values, at)]).jaxpr
    written = with_nan_kept(program)
    assert written is not program
    np.testing.assert_array_equal(run(written, [x, values, at])[0], run(program, [x, values, at])[0])
    assert np.isnan(run(written, [x, values, at])[0][0])


def test_other_programs_are_not_written_anew() -> None:
    for f in (lambda x: x.sum(), lambda x: fx.numpy.asarray(x, dtype="int32").max()):
        program = fx.trace(f, fx.Spec((3,))).jaxpr
        assert with_nan_kept(program) is program
