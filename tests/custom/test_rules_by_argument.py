"""`defjvps`: rules for the tangents of single arguments, of functions with several results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import DTypeError, FxadError, ShapeError, TreeError

X, Y = np.array([0.3, 0.7, -0.2]), np.array([2.0, -1.0, 0.5])


def two(*rules: Callable[..., Any]) -> Any:
    """Returns a function of two arguments with two results, and its rules."""

    def product(x: Any, y: Any) -> Any:
        return {"product": x * y, "first": x, "place": fnp.argmax(x)}

    ruled = fx.custom_jvp(product)
    ruled.defjvps(*rules)
    return ruled


def by_x(t: Any, out: Any, x: Any, y: Any) -> Any:
    return {"product": t * y, "first": t, "place": None}


def test_a_zero_tangent_may_be_none() -> None:
    f = two(by_x, lambda t, out, x, y: {"product": t * x, "first": None, "place": None})
    _, moved = fx.jvp(f, (X, Y), (X, Y))
    np.testing.assert_allclose(moved["product"], 2 * X * Y)
    np.testing.assert_allclose(moved["first"], X)
    nothing = two(by_x, lambda t, out, x, y: None)
    np.testing.assert_allclose(fx.grad(lambda y: fnp.sum(nothing(X, y)["product"]))(Y), 0 * Y)
    np.testing.assert_allclose(fx.jvp(nothing, (X, Y), (X, Y))[1]["product"], X * Y)


def other(value: Callable[[Any], Any]) -> Callable[..., Any]:
    def by_y(t: Any, out: Any, x: Any, y: Any) -> Any:
        return value(t)

    return by_y


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            lambda t: (t, t),
            TreeError,
            (
                "defjvps of product: by_y returns the tangent (*, *), it must be {'first': *, 'place': None, "
                "'product': *} as the results"
            ),
        ),
        (
            lambda t: {"product": fnp.sum(t), "first": None, "place": None},
            ShapeError,
            "defjvps of product: by_y returns f64[] as tangent of result['product'], which is f64[3]",
        ),
        (
            lambda t: {"product": t.astype("float32"), "first": None, "place": None},
            DTypeError,
            "defjvps of product: by_y returns f32[3] as tangent of result['product'], which is f64[3]",
        ),
        (
            lambda t: {"product": t, "first": t, "place": t},
            DTypeError,
            "defjvps of product: by_y returns a tangent of result['place'], which is i32[] and has none",
        ),
    ],
)
def test_tangents_of_a_rule_must_fit_the_results(value: Any, error: type[FxadError], message: str) -> None:
    # Regression: such tangents were broadcast, or tree.map refused them with another error
    with pytest.raises(error) as e:
        fx.jvp(two(by_x, other(value)), (X, Y), (X, Y))
    assert str(e.value).splitlines()[0] == message
    assert e.value.remedy
