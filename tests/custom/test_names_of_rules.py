"""Error messages name the function that was passed, also if an equal program with another name was traced before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import FxadError

X = np.array([0.3, 0.7, -0.2])


def squared(residuals: Any, ct: Any) -> Any:
    return (ct * ct,)


def with_bwd(bwd: Callable[..., Any]) -> Any:
    def same(x: Any) -> Any:
        return fnp.sin(x)

    ruled = fx.custom_vjp(same)
    ruled.defvjp(lambda x: (same(x), None), bwd)
    return fx.grad(lambda x: fnp.sum(ruled(x)))(X)


def test_messages_name_the_function_that_was_passed() -> None:
    def before(c: Any, ct: Any) -> Any:
        return fnp.sum(ct), None

    def mine(c: Any, ct: Any) -> Any:
        return fnp.sum(ct), None

    def halves(r: Any, v: Any) -> Any:
        return v[:2]

    def other(r: Any, ct: Any) -> Any:
        return ct * 2

    def another(r: Any, ct: Any) -> Any:
        return ct * 2

    def curved(residuals: Any, ct: Any) -> Any:
        return (ct * ct,)

    def asked(run: Callable[[], object], message: str) -> None:
        with pytest.raises(FxadError) as e:
            run()
        assert str(e.value).splitlines()[0] == message

    kept = [fx.trace(f, *args) for f, args in ((before, (X, X)), (other, (None, X[:2])))]
    asked(
        lambda: lax.scan(mine, X, np.stack([X, X])),
        "scan: the carry changes its type: init is f64[3], f mine returns f64[] for it",
    )
    asked(
        lambda: lax.linear_call(halves, another, None, X),
        "linear_call: another returns f64[2] as cotangent of linear_args, which is f64[3]",
    )
    for bwd in (squared, curved):
        asked(
            lambda: with_bwd(bwd),
            f"defvjp of same: {bwd.__name__} is not linear in the cotangents",
        )
    assert kept
