"""Functions memoised by the value of a program, and source locations of equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.core.atoms import Lit
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.core.source_info import source_location
from fxad.errors import ArgumentError
from fxad.ir import Jaxpr


def test_arguments_that_are_no_jaxpr_or_source_are_refused() -> None:
    @by_value
    def n_eqns(jaxpr: Jaxpr) -> int:
        return len(jaxpr.eqns)

    program: Any = fx.trace(fx.numpy.sin, fx.Spec(()))
    with pytest.raises(ArgumentError) as e:
        n_eqns(program)
    assert e.value.message == "n_eqns: takes a Jaxpr, got a Program"
    assert e.value.remedy == "give the jaxpr of a program: program.jaxpr"
    with pytest.raises(ArgumentError) as e:
        source_location(program.jaxpr.eqns[0])
    assert e.value.message == "source_location: takes the source of an equation, got an Eqn"
    assert e.value.remedy == "eqn.source"


def test_an_argument_is_the_same_by_position_by_keyword_and_by_default() -> None:
    calls = []

    @by_value
    def scaled(jaxpr: Jaxpr, by: int, plus: int = 0, *, name: str = "scaled") -> str:
        calls.append((by, plus, name))
        return f"{name} {len(jaxpr.eqns) * by + plus}"

    program = fx.trace(fx.numpy.sin, fx.Spec(())).jaxpr
    untyped: Any = scaled
    first = scaled(program, 3)
    assert scaled(program, 3, 0) is scaled(program, plus=0, by=3) is scaled(program, 3, name="scaled") is first
    assert calls == [(3, 0, "scaled")]
    assert scaled(program, 3, 1) == scaled(program, by=3, plus=1) == "scaled 4"
    assert len(calls) == 2
    with pytest.raises(TypeError, match="by"):
        untyped(program)


NUMBERS: list[Any] = [0, False, 0.0, -0.0, 0j, complex(0, -0.0), 1, True, 1.0, np.float32(1), np.float64(1)]
FORMS: list[Any] = [lambda x: x, lambda x: (x, 2), lambda x: ((x,), "a"), lambda x: frozenset([x])]


@pytest.mark.parametrize("form", FORMS)
def test_arguments_that_python_takes_for_equal_have_their_own_results(form: Any) -> None:
    """The law of `by_value`: the memo gives what the function gives. Each number is given by position, by keyword, and
    after all others."""

    @by_value
    def text_of(jaxpr: Jaxpr, x: object, other: object = 0) -> str:
        return repr((x, other))

    program = fx.trace(fx.numpy.sin, fx.Spec(())).jaxpr
    for number in NUMBERS * 2:
        x = form(number)
        assert text_of(program, x) == text_of(program, x=x) == repr((x, 0))
        assert text_of(program, 0, x) == text_of(program, other=x, x=0) == repr((0, x))


def test_a_literal_of_minus_zero_is_not_that_of_zero() -> None:
    @by_value
    def constant(jaxpr: Jaxpr, number: float) -> Jaxpr:
        return Builder().build([Lit.of(number, jaxpr.in_avals[0])])

    program = fx.trace(fx.numpy.sin, fx.Spec(())).jaxpr
    assert constant(program, 0.0) is not constant(program, -0.0)
    assert constant(program, -0.0) is constant(program, -0.0)
