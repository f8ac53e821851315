"""`compared_extrema`: comparisons of elements with their extremum are computed in a branch, with the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import all_prims
from fxad.lowering.compared_extrema import with_extrema_in_branches
from fxad.primitives.control.remat import Remat

X = np.array([[1.0, 3.0, 3.0], [-0.0, 0.0, -1.0], [np.nan, 1.0, 2.0], [np.inf, 1.0, -np.inf]], np.float32)


def in_a_call(x: Any) -> Any:
    return fx.jit(lambda x: x == x.max(1, keepdims=True))(x * 2)


COMPARING: list[Callable[[Any], Any]] = [
    lambda x: (y := x * 2 + 1) == y.max(1, keepdims=True),
    lambda x: x >= fnp.min(x, axis=0),
    lambda x: ((y := fnp.sin(x)) == y.max(), y < y.max()),
    lambda x: fx.grad(lambda x: (x * 2 + 1).max(1).sum())(x),
    in_a_call,
]


@pytest.mark.parametrize("f", COMPARING)
def test_values_are_the_same(f: Callable[[Any], Any]) -> None:
    program = fx.trace(f, fx.Spec(X.shape, X.dtype)).jaxpr
    written = with_extrema_in_branches(program)
    typecheck(written)
    branches = [p for p in all_prims(written) if isinstance(p, Remat) and p.opaque]
    assert branches
    for have, want in zip(run(written, [X]), run(program, [X]), strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("f", [lambda x: x.max(), lambda x: x > 1, lambda x: x.sum() == x])
def test_programs_without_such_comparisons_stay(f: Callable[[Any], Any]) -> None:
    program = fx.trace(f, fx.Spec(X.shape, X.dtype)).jaxpr
    assert with_extrema_in_branches(program) is program
