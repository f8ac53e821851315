"""`inverse` and `invertible` give the same equation and reason, those of the user's function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, NotInvertibleError

X = np.array([3.0, 1.0, 2.0])


def loss_of(f: Any) -> Any:
    return lambda *args: sum(fnp.sum(out**3) for out in fx.tree.leaves(fx.invertible(f)(*args)))


def sines(x: Any) -> Any:
    return lax.scan(lambda c, _: (fnp.sin(c), None), x, None, 3)[0]


@pytest.mark.parametrize(
    ("f", "reason", "equation"),
    [
        (
            fnp.sort,
            "sort is not inverted: the order that the elements had is lost",
            "%0:f64[3] = sort %arg0:f64[3]",
        ),
        (
            fnp.sin,
            "sin is not inverted: operands a period apart have the same result",
            "%0:f64[3] = sin %arg0:f64[3]",
        ),
        (
            lambda x: fnp.exp(fnp.sin(x)),
            "sin is not inverted: operands a period apart have the same result",
            "%0:f64[3] = sin %arg0:f64[3]",
        ),
        (
            lambda x: x * x,
            "mul is not inverted: an unknown operand stands in it twice",
            "%0:f64[3] = mul %arg0:f64[3] %arg0:f64[3]",
        ),
        (
            sines,
            "sin is not inverted: operands a period apart have the same result",
            "%0:f64[3] = sin %arg0:f64[3]",
        ),
        (
            lambda x: fnp.linalg.qr(fnp.outer(x, x) + fnp.eye(3))[0],
            "qr is not inverted: it has no inverse rule",
            "%11:f64[3,3], %12:f64[3,3] = qr %10:f64[3,3]",
        ),
        (
            lambda x: fnp.where(fnp.arange(3) > 0, fnp.cumulative_prod(x), 0.0),
            "cumprod is not inverted: its results are known only where a mask chose them, and it mixes elements",
            "%2:f64[3] = cumprod %arg0:f64[3]",
        ),
    ],
)
def test_the_reason_is_the_same_for_a_function_and_its_gradient(f: Any, reason: str, equation: str) -> None:
    programs: tuple[Any, Any] = (fx.inverse, fx.grad)
    for what, transform, g in zip(("inverse", "invertible"), programs, (f, loss_of(f)), strict=True):
        with pytest.raises(NotInvertibleError) as e:
            transform(fx.trace(g, X))
        assert e.value.message.startswith(f"{what}: argument ")
        assert e.value.message.endswith(f" is not determined by its results: {reason}")
        assert e.value.equation == equation


def test_the_argument_that_the_gradient_needs_is_named() -> None:
    """`a` is not determined either, but the gradient does not need it."""

    def f(a: Any, b: Any) -> Any:
        return fnp.round(a), fnp.sin(b)

    with pytest.raises(NotInvertibleError) as e:
        fx.grad(fx.trace(loss_of(f), X, X), 1)
    assert e.value.message == (
        "invertible: argument b of f is not determined by its results: "
        "sin is not inverted: operands a period apart have the same result"
    )


def test_the_branch_that_is_not_inverted_is_named() -> None:
    """The other branch is invertible."""

    def f(rows: Any, x: Any) -> Any:
        def step(c: Any, a: Any) -> Any:
            return lax.cond(a[0] > 0, lambda c: fnp.sin(c), lambda c: c[::-1] - a, c), a

        return lax.scan(step, x, rows)

    with pytest.raises(NotInvertibleError) as e:
        fx.invertible(fx.trace(f, fnp.ones((2, 3)), X))
    assert e.value.message == (
        "invertible: argument x of f is not determined by its results: "
        "sin is not inverted: operands a period apart have the same result"
    )


def test_a_custom_inverse_without_a_log_determinant() -> None:
    sine: Any = fx.custom_inverse(fnp.sin, fnp.arcsin)
    double: Any = fx.custom_inverse(lambda x: 2 * x, lambda y: y / 2)
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(fx.trace(sine, X), log_det=True)
    assert e.value.message == (
        "inverse: argument x of sin is not determined by its results: call_with_rules is not inverted: the inverse it "
        "was given does not say the log-determinant, and in the function itself sin is not inverted: "
        "operands a period apart have the same result"
    )
    _, log_det = fx.inverse(double, log_det=True)(X)
    np.testing.assert_allclose(log_det, 3 * np.log(2))


def test_keep_of_an_argument_that_does_not_exist() -> None:
    double: Any = fx.custom_inverse(lambda x: 2 * x, lambda y: y / 2, keep=3)
    with pytest.raises(ArgumentError) as e:
        fx.inverse(fx.trace(double, X))
    assert e.value.message == "definverse of <lambda>: keep has 3, and its rules are about arguments 0"


@pytest.mark.parametrize("loop", [
    lambda x: lax.scan(lambda c, _: (fnp.maximum(c, 0.0) * 2, None), x, None, 3)[0],
    lambda x: lax.fori_loop(0, 3, lambda i, c: fnp.maximum(c, 0.0) * 2, x),
    lambda x: lax.fori_loop(0, 3, lambda i, c: (c[0] + 1, fnp.maximum(c[1], 0.0) * i), (0, x))[1],
])  # fmt: skip
def test_the_equation_in_a_loop_that_is_not_inverted_is_named(loop: Any) -> None:
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(loop)(X)
    assert e.value.message == (
        "inverse: argument x of <lambda> is not determined by its results: "
        "max is not inverted: it forgets the operand that is not chosen"
    )
    assert " = max %arg" in e.value.equation
    assert e.value.inside[0].startswith("scan of ")


def test_an_overwritten_element() -> None:
    """Regression: the reason was that exp mixes elements, which a mask chose."""
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(lambda x: fnp.exp(x).at[1].set(0.0))(X)
    assert e.value.message.endswith(": exp is not inverted: only some elements of its results are known")
    assert e.value.remedy.startswith("return the other elements too, as they are or changed by what stays; or hold ")
