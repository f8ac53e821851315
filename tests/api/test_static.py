"""Static arguments of `jit` and `trace`: values that a program is made for."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import tree
from fxad.errors import ArgumentError, FxadError, ParameterError, TracerError
from tests.api.refusals import X

TRACES: list[object] = []


def power(x: Any, n: int, negate: bool = False) -> Any:
    TRACES.append(n)
    y = x**n
    return -y if negate else y


def traced(call: Any) -> int:
    TRACES.clear()
    call()
    return len(TRACES)


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1, 2)},
        {"static_argnums": (-1, -2)},
        {"static_argnames": ("n", "negate")},
        {"static_argnums": 1, "static_argnames": "negate"},
    ],
    ids=str,
)
def test_by_number_or_by_name(options: Any) -> None:
    f = fx.jit(power, **options)
    np.testing.assert_array_equal(f(X, 2), X**2)
    np.testing.assert_array_equal(f(X, n=3), X**3)
    np.testing.assert_array_equal(f(X, 2, True), -(X**2))
    np.testing.assert_array_equal(f(x=X, n=2, negate=True), -(X**2))
    np.testing.assert_array_equal(f(fnp.asarray(X), 2, negate=True), -(X**2))


def test_traced_once_per_value() -> None:
    f = fx.jit(power, static_argnames=("n", "negate"))
    assert traced(lambda: [f(X, n) for n in (2, 3, 2, 3, 2)]) == 2
    assert traced(lambda: [f(X[:2], 2), f(X[:1], 2), f(X[:2], 2)]) == 2


def test_equal_values_of_other_types_are_others() -> None:
    f = fx.jit(lambda x, k: x * 0 + (2 if isinstance(k, bool) else 1 if isinstance(k, int) else 0), static_argnums=1)
    assert [f(1.0, k).item() for k in (True, 1, 1.0, True)] == [2, 1, 0, 2]
    g = fx.jit(lambda x, pair: x * 0 + float(np.copysign(1.0, pair[0])), static_argnames="pair")
    assert [g(1.0, pair=(zero,)).item() for zero in (0.0, -0.0, 0.0)] == [1, -1, 1]


def test_any_hashable_value() -> None:
    f = fx.jit(lambda activation, x: activation(x), static_argnums=0)
    np.testing.assert_array_equal(f(fnp.negative, X), -X)
    np.testing.assert_array_equal(f(fnp.square, X), X**2)
    g = fx.jit(lambda x, shape, mode=None: fnp.broadcast_to(x, shape), static_argnames=["shape", "mode"])
    assert g(1.0, shape=(2, 3), mode=None).shape == (2, 3)


def test_functions_that_take_anything() -> None:
    f = fx.jit(lambda *args, **kwargs: args[0] * args[1] + kwargs["k"], static_argnums=1, static_argnames="k")
    np.testing.assert_array_equal(f(X, 2, k=3), 2 * X + 3)


def test_in_programs_and_transformations() -> None:
    f = fx.jit(power, static_argnames="n")
    np.testing.assert_array_equal(fx.grad(lambda x: f(x, 3).sum())(X), 3 * X**2)
    np.testing.assert_array_equal(fx.vmap(lambda x: f(x, n=2))(X), X**2)
    np.testing.assert_array_equal(fx.jit(lambda x: f(x, 2) + f(x, 2))(X), 2 * X**2)
    assert f.trace(X, 2).jaxpr is fx.jit(power, static_argnums=1).trace(X, n=2).jaxpr
    assert "stablehlo.multiply" in f.lower(fx.Spec((3,)), 2).text()


def test_trace() -> None:
    program = fx.trace(power, X, n=2, negate=True, static_argnames=("n", "negate"))
    assert program.jaxpr is fx.trace(lambda x: -(x**2), X).jaxpr
    assert program.names == ("x",)
    np.testing.assert_array_equal(program(X), -(X**2))
    assert fx.trace(power, X, 2, static_argnames="n").jaxpr is fx.trace(lambda x: x**2, X).jaxpr


def test_decorator_and_methods() -> None:
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = by

        @functools.partial(cast("Any", fx.jit), static_argnames="n")
        def power(self, x: Any, n: int) -> Any:
            return self.by * x**n

        @fx.jit(static_argnums=0)
        def scale(self, x: Any) -> Any:
            return self.by * x

    @tree.dataclass
    class Line:
        slope: Any

        @fx.jit(static_argnums=2)
        def at(self, x: Any, n: int) -> Any:
            return self.slope * x**n

    np.testing.assert_array_equal(Scaled(2.0).power(X, 2), 2 * X**2)
    np.testing.assert_array_equal(Scaled(2.0).power(X, n=3), 2 * X**3)
    np.testing.assert_array_equal(Scaled(3.0).scale(X), 3 * X)
    np.testing.assert_array_equal(Line(np.float32(2)).at(X, 2), 2 * X**2)


def test_errors_name_the_arguments_as_the_function_does() -> None:
    with pytest.raises(ArgumentError, match=r"^jit of f: argument y: a str is not"):
        fx.jit(lambda_named_f, static_argnames="n")(X, 2, "y")


def lambda_named_f(x: Any, n: int, y: Any) -> Any:
    return x


lambda_named_f.__name__ = "f"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: fx.jit(power, static_argnames="n")(X, [1]),  # type: ignore[arg-type]
            ArgumentError,
            "jit of power: static argument n is a list, which is not hashable: [1]",
        ),
        (
            lambda: fx.jit(power, static_argnums=0)(fnp.asarray(1.0), 2),
            ArgumentError,
            "jit of power: static argument x is an Array, which is not hashable: Array(1., dtype=float32)",
        ),
        (
            lambda: fx.trace(power, X, n={}, static_argnames="n"),
            ArgumentError,
            "trace of power: static argument n is a dict, which is not hashable: {}",
        ),
        (
            lambda: fx.jit(power, static_argnames=("n", "m")),
            ParameterError,
            "jit of power: static_argnames has 'm', which is no parameter of the function",
        ),
        (
            lambda: fx.jit(power, static_argnums=3),
            ParameterError,
            "jit of power: static_argnums has 3, the function takes 3 positional arguments",
        ),
        (
            lambda: fx.jit(lambda *xs: xs[0], static_argnums=-1),
            ParameterError,
            "jit of <lambda>: static_argnums has -1, and the function takes any number of arguments",
        ),
        (
            lambda: fx.jit(power, static_argnums="n"),  # type: ignore[arg-type]
            ParameterError,
            "jit of power: static_argnums is 'n', not an int or a sequence of them",
        ),
        (
            lambda: fx.jit(power, static_argnames=1),  # type: ignore[call-overload]
            ParameterError,
            "jit of power: static_argnames is 1, not a name or a sequence of them",
        ),
        (
            lambda: fx.jit(fx.trace(lambda x: x, X), static_argnums=0),
            ArgumentError,
            "jit: <lambda> is a Program, which has no static arguments",
        ),
    ],
)
def test_messages(call: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        call()
    assert e.value.message == message


def test_an_if_on_a_flag_says_how_to_make_it_static() -> None:
    def f(x: Any, flag: Any) -> Any:
        return x if flag else -x

    with pytest.raises(TracerError) as e:
        fx.jit(f)(X, flag=True)
    assert e.value.remedy == (
        "use fxad.numpy.where or fxad.lax.cond in place of if, while, and, or;"
        " a flag that is no data can be made static: jit(f, static_argnames=...)"
    )
    np.testing.assert_array_equal(fx.jit(f, static_argnames="flag")(X, flag=False), -X)
