"""What rounding errors, casts, plans and loss scales refuse, with the remedies that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import optim
from fxad.errors import FxadError

X = np.linspace(0.1, 1.0, 4, dtype=np.float32)
SINE: Any = fx.trace(lambda x: fnp.sum(fnp.sin(x)), fx.Spec((4,), "float32"))
COSINE: Any = fx.trace(lambda x: fnp.sum(fnp.cos(x)), fx.Spec((4,), "float32"))
INTEGERS: Any = fx.trace(lambda n: n + 1, fx.Spec((), "int32"))
PLAN = fx.plan_precision(SINE, X, tolerance=1.0)
anything: Any = fx

CASES: list[tuple[Callable[[], object], list[str]]] = [
    (
        lambda: anything.rounding_errors(fnp.sin, X),
        ["rounding_errors: takes a Program, got", "rounding_errors(trace(f, *examples))"],
    ),
    (
        lambda: fx.rounding_errors(INTEGERS, 1),
        [
            "rounding_errors: <lambda> has no floating result: (i32[])",
            "return the floating values whose errors matter; integers and bools are exact",
        ],
    ),
    (
        lambda: fx.rounding_errors(SINE, X[1:]),
        ["argument x has shape (3,), it was traced with (4,)", "trace again for the other shape"],
    ),
    (lambda: fx.rounding_errors(SINE), ["argument"]),
    (lambda: anything.shadow(fnp.sin, X), ["shadow: takes a Program, got", "shadow(trace(f, *examples))"]),
    (
        lambda: fx.shadow(SINE, X[1:]),
        ["argument x has shape (3,), it was traced with (4,)", "trace again for the other shape"],
    ),
    (
        lambda: fx.cast(SINE, "int32"),
        ["cast: int32 is not a floating dtype", 'give "bfloat16", "float16" or "float32"'],
    ),
    (lambda: fx.cast(SINE, "float33"), ["float33"]),
    (
        lambda: fx.cast(SINE, "float64"),
        [
            "cast: <lambda> has no floating value of more digits than float64",
            "cast a program of a wider dtype; integers and bools are not cast",
        ],
    ),
    (lambda: fx.cast(INTEGERS, "bfloat16"), ["cast: <lambda> has no floating value of more digits than bfloat16"]),
    (
        lambda: anything.cast(3, "bfloat16"),
        ["cast: ", "is neither a Program nor a function", "pass the function itself"],
    ),
    (lambda: anything.cast(SINE, "bfloat16", keep="sin"), ["cast: ", "is not a policy: 'sin'", "policies.names(...)"]),
    (
        lambda: fx.cast(COSINE, "bfloat16", keep=PLAN),
        [
            "cast: the plan is for another program",
            "make it with plan_precision(program, *args, tolerance=...) of this very program",
        ],
    ),
    (
        lambda: fx.cast(SINE, "float16", keep=PLAN),
        ["cast: the plan is for bfloat16, and the dtype is float16", "cast(program, plan.dtype, keep=plan)"],
    ),
    (
        lambda: anything.plan_precision(fnp.sin, X, tolerance=0.1),
        ["plan_precision: takes a Program", "plan_precision(trace(f, *examples), tolerance=...)"],
    ),
    *[
        (
            lambda bad=bad: anything.plan_precision(SINE, X, tolerance=bad),
            [
                "plan_precision: the tolerance is ",
                "not a positive number",
                "give the largest relative error of the results, as in tolerance=1e-2",
            ],
        )
        for bad in (0, -1.0, float("nan"), float("inf"), True, "1e-2", None)
    ],
    (lambda: fx.plan_precision(SINE, X, tolerance=0.1, dtype="int8"), ["plan_precision: int8 is not a floating dtype"]),
    (
        lambda: fx.plan_precision(INTEGERS, 1, tolerance=0.1),
        ["plan_precision: <lambda> has no floating value of more digits than bfloat16"],
    ),
    (lambda: fx.plan_precision(SINE, X[1:], tolerance=0.1), ["argument x has shape (3,), it was traced with (4,)"]),
    (
        lambda: fx.plan_precision(COSINE, X, tolerance=0.1, plan=PLAN),
        ["plan_precision: the plan is for another program", "edit a plan of this very program"],
    ),
    (
        lambda: anything.plan_precision(SINE, X, tolerance=0.1, plan=3),
        ["plan_precision: the plan is an int: 3", "give a plan that plan_precision returned, or leave it out"],
    ),
    (
        lambda: fx.plan_precision(SINE, X, tolerance=1e-9, plan=PLAN),
        [
            "plan_precision: the plan gives a relative error of ",
            "more than 1e-09",
            "keep more rows, or give a larger tolerance",
        ],
    ),
    (
        lambda: PLAN.keep(9),
        ["plan_precision: keep: 9 is not the number of one of ", "rows are numbered from 0, as print(plan) shows them"],
    ),
    (lambda: PLAN.keep(-1), ["plan_precision: keep: -1 is not the number of one of "]),
    (lambda: PLAN.cast(True), ["plan_precision: cast: True is not the number of one of "]),
    (
        lambda: optim.loss_scale(0.0),
        [
            "loss_scale: initial is 0.0, not a finite number above 0",
            "powers of two change no digit of a gradient: loss_scale(2.0**15, factor=2.0)",
        ],
    ),
    (lambda: optim.loss_scale(factor=1.0), ["loss_scale: factor is 1.0, not a finite number above 1"]),
    (
        lambda: optim.loss_scale(growth_interval=0),
        [
            "loss_scale: growth_interval is 0, neither an int >= 1 nor None",
            "give the number of steps with finite gradients after which the scale grows, or None for a constant",
        ],
    ),
]


@pytest.mark.parametrize(("call", "pieces"), CASES, ids=[pieces[0][:60] for _, pieces in CASES])
def test_a_message_names_operation_values_and_remedy(call: Callable[[], object], pieces: list[str]) -> None:
    with pytest.raises(FxadError) as caught:
        call()
    for piece in pieces:
        assert piece in str(caught.value), str(caught.value)


def test_values_are_needed() -> None:
    """A table is of a run: arguments that are traced have no values."""
    with pytest.raises(FxadError) as caught:
        fx.trace(lambda x: fx.rounding_errors(SINE, x).error, fx.Spec((4,), "float32"))
    assert "value" in str(caught.value)


def test_an_equation_without_a_derivative_is_named() -> None:
    program = fx.trace(lambda x: fnp.sum(fnp.nextafter(x * 1.1, x)), fx.Spec((4,), "float32"))
    with pytest.raises(FxadError) as caught:
        fx.rounding_errors(program, X)
    assert "nextafter" in str(caught.value)
