"""Names of arguments and functions in errors of `inverse` and `invertible`, and in what other transformations show;
copies without elements; several threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, FxadError, NotInvertibleError
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


def mine(x: Any) -> Any:
    return fnp.abs(x)


LINE = f"{__file__}:{mine.__code__.co_firstlineno + 1} in mine"
AFTER_AN_OPERATION: dict[str, tuple[bool, Callable[[Any], object]]] = {  # True: shows the line too
    "trace": (False, lambda x: fx.trace(mine, x)),
    "inverse": (True, lambda x: fx.inverse(mine)(x)),
    "inverse of a program": (True, lambda x: fx.inverse(fx.trace(mine, x))),
    "log_det": (True, lambda x: fx.inverse(mine, log_det=True)(x)),
    "invertible": (True, lambda x: fx.invertible(mine)(x)),
    "reconstruction_error": (True, lambda x: fx.reconstruction_error(mine, x)),
    "grad": (False, lambda x: fx.grad(mine)(x)),
    "jacfwd": (False, lambda x: fx.jacfwd(mine)(fnp.abs(x.astype("int32")))),
    "vjp": (False, lambda x: fx.vjp(fx.trace(mine, x))),
    "linearize": (False, lambda x: fx.linearize(fx.trace(mine, x)).primal),
    "transpose": (True, lambda x: fx.transpose(fx.trace(mine, x))),
    "vmap": (False, lambda x: fx.trace(fx.vmap(mine), x)),
    "remat": (False, lambda x: fx.remat(fx.trace(mine, x))),
    "rounding_errors": (False, lambda x: repr(fx.rounding_errors(fx.trace(mine, x), x))),
    "plan_precision": (False, lambda x: repr(fx.plan_precision(fx.trace(mine, x), x, tolerance=0.1))),
    "plan_memory": (False, lambda x: repr(fx.plan_memory(fx.trace(mine, x), budget=1 << 30))),
    "explain": (False, lambda x: fx.explain(fx.trace(mine, x))),
    "mask": (False, lambda x: fx.mask(mine, in_shapes=["(n,)"], out_shapes=["(m,)"])(x, sizes={"n": 2})),
}


@pytest.mark.parametrize("name", AFTER_AN_OPERATION)
def test_an_operation_before_does_not_change_the_name_of_a_function(name: str) -> None:
    """Equal programs are one object. That of an operation gets the name and the lines of a function that is traced
    later."""
    shows_line, apply = AFTER_AN_OPERATION[name]
    x = fnp.abs(np.ones(1000 + list(AFTER_AN_OPERATION).index(name), np.float32))  # a program that no other test makes
    fnp.abs(x)
    try:
        text = str(apply(x))
    except FxadError as e:
        text = str(e)
    assert "eager" not in text, text
    assert "mine" in text, text
    assert not shows_line or LINE in text, text


def test_equal_functions_have_their_own_names() -> None:
    def yours(x: Any) -> Any:
        return fnp.abs(x)

    x = np.ones(999, np.float32)
    for f in (mine, yours):
        for transformed in (fx.inverse(f), fx.inverse(f, log_det=True), fx.invertible(f)):
            with pytest.raises(NotInvertibleError, match=f": argument x of {f.__name__} is not determined"):
                transformed(x)
