"""Seven problems, planted in a training step: the page names each, with its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import fxad as fx
from fxad.ir import SourceLocation
from tests.explain import planted

VERDICT = ("memory", "time", "again", "waste", "digits")


def line_of_verdict(page: Any, kind: str) -> str:
    line: str = page.verdict[VERDICT.index(kind)]
    assert line.startswith(f"{kind}: ")
    assert line in page.text()
    return line


def at(problem: str) -> str:
    return f"planted.py:{planted.line_of(problem)} "


def test_a_retrace_at_each_step() -> None:
    with fx.cache.private():
        line = line_of_verdict(fx.explain(planted.retrace()), "again")
    assert "decayed was compiled 2 times" in line
    assert "0.05:f32[8,32] vs 0.1:f32[8,32]" in line
    assert at("retrace") in line
    assert "pass what changes as an array argument" in line


def test_a_float64_leak() -> None:
    line = line_of_verdict(fx.explain(planted.float64_leak()), "waste")
    assert f"{at('float64')}in leaking makes a value 64-bit: f64[4,16,32]" in line
    assert "closed-over array 1 is f64[32]" in line


def test_a_missed_donation() -> None:
    line = line_of_verdict(fx.explain(planted.missed_donation()), "waste")
    assert "params['layers'][0]['down'], params['layers'][0]['up']" in line
    assert "can be donated" in line
    assert "can be donated" not in fx.explain(planted.lower_step()).verdict[3]


def test_a_remat_inside_another() -> None:
    line = line_of_verdict(fx.explain(planted.nested_remat()), "again")
    assert "in feed_forward runs 3 times (a remat inside another): dot_general is computed again" in line
    assert at("outer remat") in line
    assert at("inner remat") in line


def test_a_residual_that_is_half_of_the_memory() -> None:
    page = fx.explain(planted.large_residual())
    line = line_of_verdict(page, "memory")
    first = line.split("; ")[0]
    assert f"temporaries: {at('residual')}in iteration" in first
    assert f" such as f32[{4 * planted.STEPS},4,16,32], a residual: stored until the derivative of" in first
    of_line = sum(r.bytes for r in page.memory if r.line and r.line.line == planted.line_of("residual"))
    assert 2 * of_line >= sum(r.bytes for r in page.memory)
    assert page.memory[0].line is not None
    assert page.memory[0].line.line == planted.line_of("residual")


def test_a_host_call_in_a_loop() -> None:
    line = line_of_verdict(fx.explain(planted.host_call()), "time")
    assert f"{at('host call')}in one calls the host 10 times in the loop of planted.py" in line


@dataclass(frozen=True)
class Error:
    """A row of a table of rounding errors."""

    error: float
    line: SourceLocation | None
    equation: str = "%2: f32[] = sub %0, %1"
    causes: tuple[str, ...] = ()


def test_catastrophic_cancellation() -> None:
    """The table of rounding errors is an argument of the page."""
    lowered = planted.cancellation()
    eqns = lowered.program.jaxpr.eqns
    lines = [fx.ir.source_location(e.source) for e in eqns]
    of_sub = next(k for k, e in enumerate(eqns) if e.prim.name == "sub")
    digits = [Error(1e-8, line) for line in lines]
    digits[of_sub] = Error(1e-3, lines[of_sub], causes=("cancellation of 5 digits",))
    page = fx.explain(lowered, digits=digits)
    line = line_of_verdict(page, "digits")
    assert f"{at('cancellation')}in variance adds an error of 1.0e-03 (100 %), cancellation of 5 digits" in line
    assert "Digits" in page.text()
    assert "not measured" in fx.explain(lowered).verdict[4]


PROBLEMS: tuple[Callable[[], Any], ...] = (planted.missed_donation,)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda f: f.__name__)
def test_a_page_is_a_function_of_the_program(problem: Callable[[], Any]) -> None:
    first, second = fx.explain(problem()), fx.explain(problem())
    assert first.html() == second.html()
    assert first.text() == second.text()
