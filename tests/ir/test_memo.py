"""Functions memoised by the value of a program, and source locations of equations."""

from __future__ import annotations

from typing import Any

import pytest

import fxad as fx
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
