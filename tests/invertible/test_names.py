"""Names of arguments in errors of `invertible`; copies without elements; several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError
from fxad.ir import Aval
from fxad.primitives.shape import BroadcastInDim
from tests.api.refusals import check_refused
from tests.invertible.rules import Backward, backward

X = np.array([0.5, -1.25])


def scaled(x: Any, w: Any) -> Any:
    return x * w


@pytest.mark.parametrize(
    ("keep", "message", "remedy"),
    [
        ("v", "invertible: keep has 'v', which is no argument of scaled", "its arguments are x, w"),
        (
            2,
            "invertible: keep has 2, and scaled was given 2 positional arguments",
            "number them from 0; what is given by keyword is chosen by name",
        ),
        (
            1.5,
            "invertible: keep is 1.5, not a number or a name, or a sequence of them",
            "number the positional arguments from 0",
        ),
        ((1, "w"), "invertible: keep (1, 'w') has an argument twice", "name each argument once"),
    ],
)
def test_keep_that_names_no_argument(keep: Any, message: str, remedy: str) -> None:
    check_refused(lambda: fx.invertible(scaled, keep=keep)(X, X), ArgumentError, message, remedy)


@pytest.mark.parametrize(("shape", "dims"), [((0, 0), (0, 1)), ((2, 0, 1), (1, 2))])
def test_broadcasts_without_elements(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    found = backward(BroadcastInDim(shape, dims), (Aval((0, 1), "f64"),), (True,))
    assert isinstance(found, Backward)
    assert found.program.out_avals == (Aval((0, 1), "f64"),)


def test_copies_of_one_element_are_no_triangle() -> None:
    def f(x: Any, a: Any) -> Any:
        return x @ fnp.broadcast_to(fnp.tril(a), (2, 2))

    assert np.isnan(np.asarray(fx.inverse(f)(X, np.ones((1, 1))))).all()


def test_threads() -> None:
    """Threads make and run programs at the same time. Each gets the results that it gets alone."""

    def slope(k: int) -> Any:
        lean = fx.invertible(lambda x, w: fnp.sinh(x * w) * (k % 3 + 1.0), keep="w")
        return np.asarray(fx.grad(lambda x, w: fnp.sum(lean(x, w)))(X, X + 3.0))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(slope, range(12)))
    for k, x in enumerate(found):
        np.testing.assert_allclose(x, (k % 3 + 1) * np.cosh(X * (X + 3)) * (X + 3), rtol=1e-9)
