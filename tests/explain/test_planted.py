"""Seven problems, planted in a training step: the page names each, with its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, optim, scipy
from tests.explain import planted

VERDICT = ("memory", "time", "again", "waste", "digits")


def line_of_verdict(page: Any, kind: str) -> str:
    line: str = page.verdict[VERDICT.index(kind)]
    assert line.startswith(f"{kind}: ")
    text = " ".join(page.text().split())  # which wraps the findings
    for found in page.findings[VERDICT.index(kind)].found:
        assert found in text
    return line


def at(problem: str) -> str:
    return f"planted.py:{planted.line_of(problem)} "


def worst(page: Any, *parts: str) -> None:
    """The worst problem of a page has these parts, and a cost and a remedy, and is first in its text."""
    problem = page.problems[0]
    assert all(part in problem.sentence for part in parts), str(problem)
    assert problem.cost
    assert problem.remedy
    assert list(page.problems) == sorted(page.problems, key=lambda p: -p.severity)
    first = " ".join(page.text().split())
    assert f"worst first: 1. {problem.sentence} cost: {problem.cost} remedy: {problem.remedy}" in first


def test_a_retrace_at_each_step() -> None:
    with fx.cache.private():
        page = fx.explain(planted.retrace())
    worst(page, "decayed was compiled 2 times", at("retrace"))
    line = line_of_verdict(page, "again")
    assert "decayed was compiled 2 times" in line
    assert "0.05:f32[8,32] vs 0.1:f32[8,32]" in line
    assert at("retrace") in line
    assert "pass what changes as an array argument" in line


def test_a_float64_leak() -> None:
    page = fx.explain(planted.float64_leak())
    worst(page, f"{at('float64')}in leaking makes a value 64-bit")
    line = line_of_verdict(page, "waste")
    assert f"{at('float64')}in leaking makes a value 64-bit: f64[4,16,32]" in line
    assert "closed-over array 1 is f64[32]" in line


def test_a_missed_donation() -> None:
    page = fx.explain(planted.missed_donation())
    worst(page, "params['layers'][0]['down']", "as that of planted.py:", "they can be donated")
    line = line_of_verdict(page, "waste")
    assert "params['layers'][0]['down'], params['layers'][0]['up']" in line
    assert "can be donated: results have their types, and reuse" in line
    remedy = "(jit(f, donate=(0, 1)), or compile(donate=(0, 1)), if nothing reads them after the call)"
    assert remedy in fx.explain(fx.jit(lambda *xs: [x + 1 for x in xs]).lower(*np.ones((2, 64)))).verdict[3]
    assert "can be donated" not in fx.explain(planted.lower_step()).verdict[3]


def test_a_remat_inside_another() -> None:
    page = fx.explain(planted.nested_remat())
    worst(page, "in feed_forward runs 3 times (a remat inside another)")
    line = line_of_verdict(page, "again")
    assert "in feed_forward runs 3 times (a remat inside another): dot_general is computed again" in line
    assert at("outer remat") in line
    assert at("inner remat") in line


def test_a_residual_that_is_half_of_the_memory() -> None:
    page = fx.explain(planted.large_residual())
    worst(page, f"{at('residual')}in iteration, called from planted.py:", f"stores f32[{4 * planted.STEPS},4,16,32]")
    line = line_of_verdict(page, "memory")
    first = line.split("; ")[0]
    assert f"temporaries: {at('residual')}in iteration" in first
    assert f" such as f32[{4 * planted.STEPS},4,16,32], a residual: stored until the derivative of" in first
    of_line = sum(r.bytes for r in page.memory if r.line and r.line.line == planted.line_of("residual"))
    assert 2 * of_line >= sum(r.bytes for r in page.memory)
    assert page.memory[0].line is not None
    assert page.memory[0].line.line == planted.line_of("residual")


def test_a_host_call_in_a_loop() -> None:
    page = fx.explain(planted.host_call())
    worst(page, f"{at('host call')}in one", "calls the host 10 times in the loop of planted.py")
    line = line_of_verdict(page, "time")
    assert f"{at('host call')}in one calls the host 10 times in the loop of planted.py" in line


def test_catastrophic_cancellation() -> None:
    """The error is one of the sums before; the difference is what makes it large."""
    lowered = planted.cancellation()
    page = fx.explain(lowered, digits=fx.rounding_errors(lowered.program, planted.far_from_zero()))
    worst(page, f"{at('cancellation')}in variance: cancellation of 4 digits")
    line = line_of_verdict(page, "digits")
    assert "of their digits, about " in line
    assert f"; {at('cancellation')}in variance: cancellation of 4 digits; " in line
    assert "Digits lost by line" in page.text()
    assert "not measured" in fx.explain(lowered).verdict[4]


def test_digits_without_a_cause() -> None:
    program = fx.trace(lambda x: fnp.sum(fnp.exp(x)), fx.Spec((8,), np.float32))
    x = np.linspace(0, 1, 8).astype(np.float32)
    line = fx.explain(program, digits=fx.rounding_errors(program, x)).verdict[4]
    assert line.startswith("digits: the results have a relative error of ")
    assert "cancellation" not in line
    exact = fx.trace(lambda x: fnp.sum(x), fx.Spec((2,), np.float32))
    zeros = np.zeros(2, np.float32)
    assert fx.explain(exact, digits=fx.rounding_errors(exact, zeros)).verdict[4] == "digits: no rounding errors"
    large = fx.trace(lambda x: fnp.sum(fnp.exp(100 * x)), fx.Spec((8,), np.float32))
    line = fx.explain(large, digits=fx.rounding_errors(large, x)).verdict[4]
    assert "of their digits, none are right" in line
    assert ": overflow" in line
    assert "nan" not in line


def test_a_harmless_cancellation_is_not_in_the_verdict() -> None:
    """The largest element minus the maximum is 0, and right."""
    program = fx.trace(scipy.special.logsumexp, fx.Spec((20,), np.float32))
    table = fx.rounding_errors(program, 30 * np.random.default_rng(0).normal(size=20).astype(np.float32))
    assert [r for r in table if r.causes]
    page = fx.explain(program, digits=table)
    assert "cancellation of" not in page.verdict[4]
    assert "cancellation of" in page.text()


def test_digits_of_another_program_are_named() -> None:
    table = fx.rounding_errors(planted.cancellation().program, planted.far_from_zero())
    assert "the results of variance have a relative error" in fx.explain(planted.lower_step(), digits=table).verdict[4]


def test_only_derivatives_have_residuals() -> None:
    def iterated(x: Any) -> Any:
        def iteration(h: Any, _: Any) -> Any:
            h = fnp.tanh(h @ x)
            return h, fnp.sum(h)

        return lax.scan(iteration, x, None, length=5)[1]

    spec = fx.Spec((32, 32), np.float32)
    page = fx.explain(fx.trace(iterated, spec))
    assert not [r.reason for r in page.memory if "residual" in r.reason]
    page = fx.explain(fx.trace(fx.grad(lambda x: fnp.sum(iterated(x))), spec))
    assert [r.reason for r in page.memory if "residual" in r.reason]


def test_a_loop_of_unknown_length_is_named() -> None:
    def printing(x: Any) -> Any:
        def body(c: Any) -> Any:
            fx.debug_print("{}", c[0])  # planted: print
            return 2 * c

        return lax.while_loop(lambda c: c[0] < 10, body, x)

    line = fx.explain(fx.trace(printing, fx.Spec((3,), np.float32))).verdict[1]
    first = printing.__code__.co_firstlineno
    assert f"the steps of the loop of test_planted.py:{first + 5} in printing are not known: it counts as one" in line
    assert f"test_planted.py:{first + 2} in body calls the host in each step in the loop of" in line


@pytest.mark.parametrize("layers", [2, 3])
def test_one_remat_does_not_run_three_times(layers: int) -> None:
    """The gradient needs no last value of the forward pass, so its equations run once."""

    def deep(w: Any, x: Any) -> Any:
        for _ in range(layers):
            x = fnp.sin(fnp.tanh(x @ w))
        return fnp.sum(x)

    w = fx.Spec((8, 8), np.float32)
    with fx.cache.private():
        line = fx.explain(fx.trace(fx.grad(fx.remat(deep, policy=fx.policies.dots)), w, w)).verdict[2]
    assert " runs twice: " in line
    assert "inside another" not in line


def test_a_remat_in_a_loop_runs_again() -> None:
    def scanned(w: Any, x: Any) -> Any:
        def layer(h: Any) -> Any:
            return fnp.tanh(h @ w)

        return fnp.sum(lax.scan(lambda h, _: (fx.remat(layer)(h), None), x, None, length=5)[0])

    w = fx.Spec((8, 8), np.float32)
    line = fx.explain(fx.trace(fx.value_and_grad(scanned), w, w)).verdict[2]
    first = scanned.__code__.co_firstlineno
    assert f"test_planted.py:{first + 2} in layer runs twice: dot_general is computed again, by remat of" in line


def test_functions_of_one_name_are_not_traces_of_one_function() -> None:
    x = fx.Spec((3,), np.float32)
    with fx.cache.private():
        for f in (
            lambda x: fnp.sin(x) * 2,
            lambda x: fnp.sin(x) * 3,
            lambda x: x,
            lambda x: fnp.zeros(3),
        ):
            page = fx.explain(fx.trace(f, x))
            assert page.verdict[2] == "again: nothing is computed or compiled again"


def test_two_programs_that_are_compared_are_no_retrace() -> None:
    x = fx.Spec((3,), np.float32)
    with fx.cache.private():
        factors = (2.171, 3.171, 4.171)  # of no other test: equal programs are one, with the lines of the first
        before, after, third = [fx.trace(lambda x, k=k: fnp.sin(x) * k, x) for k in factors]
        assert fx.explain(before, after).verdict[3] == "again: nothing is computed or compiled again"
        assert "was compiled 2 times" in fx.explain(third, after).verdict[3]  # after and before


def test_values_of_an_optimiser_are_no_residuals() -> None:
    """All equations of a call of a library have one line of the user, which reads its own values again."""
    optimiser = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-3))

    def stepped(params: Any, state: Any, tokens: Any, targets: Any) -> Any:
        gradient = fx.grad(planted.loss)(params, tokens, targets)
        return optimiser.update(gradient, state, params)

    params = planted.all_params()
    page = fx.explain(fx.jit(stepped).lower(params, optimiser.init(params), *planted.batch()))
    here = f"test_planted.py:{stepped.__code__.co_firstlineno + 2} "
    assert not [r.reason for r in page.memory if f"a residual: stored until the derivative of {here}" in r.reason]
    assert [r.reason for r in page.memory if f"until {here}reads it" in r.reason]
    assert [r.reason for r in page.memory if "a residual: stored until the derivative of planted.py" in r.reason]


def test_a_program_and_its_cast_are_not_traces_of_one_function() -> None:
    def f(x: Any) -> Any:
        for _ in range(10):
            x = fnp.sin(x) * x
        return x

    program = fx.trace(f, fx.Spec((8, 8), np.float32))
    with fx.cache.private():
        pages = [fx.explain(p) for p in (program, fx.cast(program, "bfloat16"))]
    assert [page.verdict[2] for page in pages] == ["again: nothing is computed or compiled again"] * 2


def test_results_have_their_paths() -> None:
    program = fx.trace(lambda x: {"sum": fnp.sum(x), "parts": [x, x * 2]}, fx.Spec((3,), np.float32))
    text = fx.explain(program).text()
    assert "result['sum']" in text
    assert "result['parts'][1]" in text
    assert "1 unit, 1 step;" in text


PROBLEMS: tuple[Callable[[], Any], ...] = (planted.missed_donation,)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda f: f.__name__)
def test_a_page_is_a_function_of_the_program(problem: Callable[[], Any]) -> None:
    first, second = fx.explain(problem()), fx.explain(problem())
    assert first.html() == second.html()
    assert first.text() == second.text()
