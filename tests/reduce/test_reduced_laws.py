"""A law that fails in hypothesis shows the smallest program that violates it; `reproduce` runs the law there again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import testing
from fxad.errors import FileFormatError, ParseError
from fxad.primitives import elementwise as ew
from fxad.testing import Case
from fxad.testing.law import law
from tests.reduce.predicates import sines


def long_program(x: Any) -> Any:
    for k in range(6):
        x = fnp.sin(x) * 0.5 + fnp.tanh(fnp.cos(x) * (k + 1))
    return fnp.sum(x)


CASE = Case(fx.trace(long_program, fx.Spec((4,), "float64")).jaxpr, (np.array([0.3, 0.5, 0.7, 0.9]),), 5, smooth=True)


def failing(check: Callable[[Case], object], case: Case = CASE) -> Exception:
    """Returns the error that a test of hypothesis ends with."""

    @settings(testing.SETTINGS, max_examples=1, derandomize=True, database=None, print_blob=False)
    @given(st.just(case))
    def test(case: Case) -> None:
        check(case)

    with pytest.raises(Exception) as e:
        test()
    return e.value


def check_sines(case: Case) -> None:
    testing.check_rewrite(sines, case, shrinks=False, idempotent=False)


def text_of(error: Exception) -> str:
    (note,) = [n for n in getattr(error, "__notes__", []) if "fxad.testing.reproduce" in n]
    assert isinstance(note, str)
    return note.partition("with this text:\n")[2]


def test_a_failing_law_shows_a_smaller_program() -> None:
    error = failing(check_sines)
    (note,) = [n for n in getattr(error, "__notes__", []) if "smaller" in n]
    assert note.startswith(
        "A smaller program fails so too (AssertionError: the results changed): 1 of 37 equations."
        " fxad.testing.reproduce(text, check_rewrite) runs it, with this text:\n"
    )
    text = text_of(error)
    assert text.count(" = tanh ") == 1
    assert text.endswith("# case: seed=5, smooth\n")
    seen: list[Case] = []
    testing.reproduce(text, seen.append)
    assert (seen[0].seed, seen[0].smooth) == (5, True)
    with pytest.raises(AssertionError, match="the results changed"):
        testing.reproduce(text, check_sines)
    testing.reproduce(text, testing.check_dce)  # a law that holds


def test_a_wrong_derivative_is_not_confused_with_a_kink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ew.Tanh, "tangent", lambda self, ctx, x, y, t: t)
    text = text_of(failing(testing.check_program_jvp))
    assert " = tanh " in text
    assert "f64" in text
    assert text.count(" = ") <= 4
    with pytest.raises(AssertionError):
        testing.reproduce(text, testing.check_program_jvp)
    monkeypatch.undo()
    testing.reproduce(text, testing.check_program_jvp)


def test_outside_of_hypothesis_nothing_is_reduced() -> None:
    with pytest.raises(AssertionError) as e:
        check_sines(CASE)
    assert not getattr(e.value, "__notes__", [])


def test_a_law_with_another_message_each_time_is_not_reduced() -> None:
    messages = iter("abcdefghijklmnop")

    @law
    def check(case: Case) -> None:
        raise AssertionError(next(messages))

    (note,) = getattr(failing(check), "__notes__", [])[:1]
    assert note.startswith("It was not reduced: reduce_program: fails is not deterministic: it returned ")


def test_other_texts() -> None:
    with pytest.raises(ParseError):
        testing.reproduce("no program", check_sines)
    text = "main @f(%a: f32[]) -> (f32[]) {\n  return %a\n}\n"
    for line in ("# no arguments\n", "# closed over 0: f32[] = 1.0\n"):
        with pytest.raises(FileFormatError) as e:
            testing.reproduce(text + line, check_sines)
        assert "reproduce: the text has no arguments, or arrays that its program closes over" in str(e.value)
    with pytest.raises(fx.errors.ArgumentError, match="law"):
        testing.reproduce(text, 3)  # type: ignore[arg-type]
