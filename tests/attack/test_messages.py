"""Errors of wrong programs with loops and branches: the operation, the values, the user's line, the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, FxadError, LeakedTracerError, ParameterError, ShapeError, TreeError
from tests.api.refusals import refused

X = np.ones(4, np.float32)
untyped: Any = lax


def pair(a: Any, b: Any) -> Any:
    return a, b


def test_an_index_that_ran_before_does_not_hide_a_leaked_tracer() -> None:
    kept: list[Any] = []

    def leaking(c: Any, _: Any) -> tuple[Any, None]:
        kept.append(c * 2)
        return c, None

    lax.scan(leaking, X, X)
    _ = lax.add(X, X)[0]  # the plan of the index [0] for this shape is cached now
    e = refused(
        lambda: kept[0][0],
        LeakedTracerError,
        f"getitem: argument 0 is Tracer<f32[4]>, {kept[0].origin}, whose trace has ended; "
        "no function is being traced here",
    )
    assert "made at" in e.message


@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("dynamic_index_in_dim", lambda x: lax.dynamic_index_in_dim(x, 1)),
        ("hypot", lambda x: fnp.hypot(x, X)),
    ],
)
def test_a_leaked_tracer_in_a_function_that_ran_before(function: str, use: Any) -> None:
    """The equations of the function are cached. The error still names the function."""
    kept: list[Any] = []

    def leaking(x: Any) -> Any:
        kept.append(x)
        return x

    fx.trace(leaking, X)
    fx.trace(use, X)
    for leaks in (lambda: use(kept[0]), lambda: fx.trace(lambda: use(kept[0]))):
        with pytest.raises(LeakedTracerError) as e:
            leaks()
        assert e.value.message.startswith(f"{function}: argument 0 is Tracer<f32[4]>")


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda f: lax.scan(f, X, X), "scan: f f: missing a required argument: 'c'"),
        (lambda f: lax.fori_loop(0, 3, f, X), "fori_loop: body_fun f: missing a required argument: 'c'"),
        (lambda f: lax.cond(True, f, f, X), "cond: false_fun f: missing a required argument: 'b'"),
        (lambda f: lax.switch(1, [f, f], X), "switch: branch 0 f: missing a required argument: 'b'"),
        (lambda f: lax.while_loop(f, f, X), "while_loop: body_fun f: missing a required argument: 'b'"),
        (lambda f: lax.map(f, X), "map: f f: missing a required argument: 'b'"),
    ],
)
def test_a_function_of_other_arguments(fn: Callable[[object], object], what: str) -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return a, b, c

    e = refused(lambda: fn(f), ArgumentError, what)
    assert e.remedy == "its signature is f(a: 'Any', b: 'Any', c: 'Any') -> 'Any'"


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: untyped.cond(True, X, X), ArgumentError, f"cond: false_fun is an ndarray, not a function: {X!r}"),
        (
            lambda: untyped.switch(0, iter([pair])),
            ArgumentError,
            "switch: branches is a list_iterator, not a sequence of functions",
        ),
        (lambda: lax.scan(lambda c, x: (c, x), 0.0, X, unroll=-1), ParameterError, "scan: unroll is -1, less than 0"),
        (
            lambda: fx.trace(lambda n: untyped.while_loop(lambda c: c > 0, lambda c: c, 1, max_steps=n), 3),
            ParameterError,
            "while_loop: max_steps is Tracer<i32[]>, not an int",
        ),
        (lambda: lax.map(lambda x: x, X, batch_size=-1), ParameterError, "map: batch_size is -1, less than 0"),
        (
            lambda: lax.associative_scan(lambda a, b: a[:1], X),
            ShapeError,
            "associative_scan: elems of <lambda> is f32[1], its operands are f32[2]",
        ),
        (
            lambda: lax.associative_scan(pair, X),
            TreeError,
            "associative_scan: fn pair returns (*, *), elems is *",
        ),
        (
            lambda: lax.associative_scan(lambda a, b: a, (X, X[:2])),
            ShapeError,
            "associative_scan: leaves of elems differ in length along axis 0: elems[0] is f32[4], elems[1] is f32[2]",
        ),
    ],
)
def test_wrong_calls_of_loops_and_branches_are_refused(
    fn: Callable[[], object], error: type[FxadError], message: str
) -> None:
    refused(fn, error, message)
