"""A call, branch or loop that takes the same unknown operand twice: either place in its body may determine it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import NotInvertibleError
from fxad.testing import Inversion, check_inverse
from fxad.testing.derivative_laws import check_same_derivatives
from fxad.transforms.inversion.invertible import invertible

X = np.array([0.5, -1.0, 2.0])


def block(a: Any, b: Any) -> Any:
    a = a + fnp.sin(b)
    return a, b * fnp.exp(fnp.tanh(a))


def back(r: Any) -> Any:
    b = r[1] / fnp.exp(fnp.tanh(r[0]))
    return r[0] - fnp.sin(b), b


def one_place(a: Any, b: Any) -> Any:
    """Results determine only the first place."""
    return fnp.sinh(a), fnp.sin(b) * a


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "written out": lambda x: block(x, x),
    "call": lambda x: fx.jit(block)(x, x),
    "remat": lambda x: fx.remat(block)(x, x),
    "invertible": lambda x: fx.invertible(block)(x, x),
    "custom_inverse": lambda x: fx.custom_inverse(block, back)(x, x),
    "scan": lambda x: lax.scan(lambda c, _: (block(*c), None), (x, x), None, length=2)[0],
    "cond": lambda x: lax.cond(fnp.asarray(True), block, lambda a, b: (b, a), x, x),
    "one place": lambda x: fx.jit(one_place)(x, x),
    "one place of a branch": lambda x: lax.cond(fnp.asarray(True), one_place, lambda a, b: (a, fnp.cos(b)), x, x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_operand_is_reconstructed(name: str) -> None:
    case = Inversion.of(FUNCTIONS[name], X)
    check_inverse(case)
    check_same_derivatives(case.case, invertible(case.program, case.kept), 1e-6)


def test_the_log_determinant_is_not_that_of_the_body() -> None:
    def f(x: Any) -> Any:
        return fx.jit(lambda a, b: (a * 2.0, b * 3.0))(x, x)[0], x[:0]

    program = fx.trace(f, X)
    _, log_det = fx.inverse(program, log_det=True)(program(X))  # the second result is unused
    np.testing.assert_allclose(np.asarray(log_det), 3 * np.log(2.0))

    def g(x: Any) -> Any:
        y = fx.jit(lambda a, b: (a * 2.0, fnp.sum(b)))(x, x)
        return y[0][1:], y[1], x[:1] * 0.0

    with pytest.raises(NotInvertibleError):
        fx.inverse(fx.trace(g, X), log_det=True)


def test_an_operand_twice_in_one_operation() -> None:
    for f, name in ((lambda x: x + x, "add"), (lambda x: x * x, "mul")):
        with pytest.raises(NotInvertibleError, match=f"{name} is not inverted: an unknown operand stands in it twice"):
            fx.inverse(fx.trace(f, X))
