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
