"""`failed_checks`: a `while` ends after a failed check, and runs as before if no check fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import Jaxpr, all_prims
from fxad.lowering.failed_checks import _flagged, with_loops_ended
from fxad.primitives.check import Check


def counting(x: Any) -> Any:
    """Count in steps of x up to 10: without an end for x = 0."""
    x = fx.error_if(x, x <= 0, "x is not positive")
    return lax.while_loop(lambda c: c < 10, lambda c: c + x, x)


def checked_in_the_loop(x: Any) -> Any:
    def step(c: Any) -> Any:
        return fx.error_if(c, c > 100, "too large") * x

    return lax.while_loop(lambda c: c < 50, step, x)


def in_a_branch(x: Any) -> Any:
    return lax.cond(x > 3, counting, checked_in_the_loop, x)


FUNCTIONS = [counting, checked_in_the_loop, in_a_branch]


def traced(f: Any) -> Jaxpr:
    return fx.trace(f, fx.Spec((), "int32")).jaxpr


@pytest.mark.parametrize("f", FUNCTIONS)
def test_loops_run_as_before_where_no_check_fails(f: Any) -> None:
    program = traced(f)
    written = with_loops_ended(program)
    typecheck(written)
    assert written is not program
    assert written.in_avals == program.in_avals
    for x in (2, 3, 4, 7):
        assert run(written, [np.array(x, np.int32)]) == run(program, [np.array(x, np.int32)])


@pytest.mark.parametrize("f", FUNCTIONS)
def test_loops_take_no_step_after_a_failed_check(f: Any) -> None:
    """The flag is True from the beginning: also a loop that would not end is over at once."""
    flagged = _flagged(traced(f), ())
    typecheck(flagged)
    failed, result = run(flagged, [np.array(True), np.array(2, np.int32)])
    assert failed
    assert result == 2


def test_programs_without_a_loop_or_without_a_check_stay() -> None:
    def unchecked(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 10, lambda c: c + x, x)

    def without_loop(x: Any) -> Any:
        return fnp.abs(fx.error_if(x, x < 0, "negative"))

    for f in (unchecked, without_loop):
        assert with_loops_ended(traced(f)) is traced(f)
    assert any([isinstance(p, Check) for p in all_prims(traced(without_loop))])
