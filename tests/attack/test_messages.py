"""What wrong programs around loops and branches are told: the operation, the values, the user's line, the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fxad import lax
from fxad.errors import ArgumentError, LeakedTracerError
from tests.api.refusals import refused

X = np.ones(4, np.float32)


def test_an_index_that_ran_before_does_not_hide_a_leaked_tracer() -> None:
    kept: list[Any] = []

    def leaking(c: Any, _: Any) -> tuple[Any, None]:
        kept.append(c * 2)
        return c, None

    lax.scan(leaking, X, X)
    _ = lax.add(X, X)[0]  # the plan of [0] of an array of this shape is known now
    e = refused(
        lambda: kept[0][0],
        LeakedTracerError,
        f"getitem: argument 0 is Tracer<f32[4]>, {kept[0].origin}, whose trace has ended; "
        "no function is being traced here",
    )
    assert "made at" in e.message


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
