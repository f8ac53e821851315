"""`outline` takes near-linear work. The test counts calls of functions, also in C, and elements of NumPy arrays, and
takes no times. The programs repeat in hard ways, or do not repeat, or are an unrolled recurrence."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.ir import Jaxpr
from fxad.testing.transform_laws import eqns_to_compile
from fxad.transforms import outline
from tests.laws.words import WORDS, program

# Limits for each equation and each doubling of the number of equations.
CALLS = 40
NUMBERS = 100


class Counted(np.ndarray[Any, Any]):
    """An array that counts the elements of all arrays that NumPy makes of it."""

    numbers: ClassVar[int] = 0

    def __array_finalize__(self, _of: object) -> None:
        Counted.numbers += self.size


class Counting:
    """NumPy with functions that return `Counted` arrays."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        return self.counted(value) if callable(value) and not isinstance(value, type) else value

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            if isinstance(made, tuple):
                return tuple([a.view(Counted) for a in made])
            return made.view(Counted) if isinstance(made, np.ndarray) else made

        return call


@contextmanager
def numbers_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        for name in ("outline", "repeats", "shared_body"):
            patched.setattr(sys.modules[f"fxad.transforms.outlining.{name}"], "np", Counting())
        Counted.numbers = 0
        yield


def work(jaxpr: Jaxpr, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Returns the calls and array elements that `outline` takes for a program without memo."""
    calls = 0

    def called(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with numbers_counted(monkeypatch):
        sys.setprofile(called)
        try:
            outline(jaxpr)
        finally:
            sys.setprofile(None)
    return calls, Counted.numbers


def check(jaxpr: Jaxpr, monkeypatch: pytest.MonkeyPatch) -> None:
    n = len(jaxpr.eqns)
    calls, numbers = work(jaxpr, monkeypatch)
    assert calls > n  # the counters work
    assert numbers > n
    assert calls <= CALLS * n * math.log2(n)
    assert numbers <= NUMBERS * n * math.log2(n)


@pytest.mark.parametrize("n", [500, 5000])
@pytest.mark.parametrize("word", WORDS)
def test_any_word(word: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(program(WORDS[word](n)), monkeypatch)


@pytest.mark.deep
@pytest.mark.parametrize("word", WORDS)
def test_a_hundred_thousand_equations(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(program(WORDS[word](100_000)), monkeypatch)


@pytest.mark.parametrize("steps", [50, 500])
def test_an_unrolled_recurrence_and_its_gradient(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(fx.value_and_grad(fx.trace(recurrence, *specs(steps))).jaxpr, monkeypatch)


def recurrence(w: Any, u: Any, xs: Any) -> Any:
    h = fnp.zeros((2, 8), "float32")
    for t in range(xs.shape[0]):
        h = fnp.tanh(xs[t] @ w + h @ u)
    return fnp.mean(h**2)


def specs(steps: int) -> tuple[Any, ...]:
    return *[fx.Spec((8, 8), "float32")] * 2, fx.Spec((steps, 2, 8), "float32")


@pytest.mark.parametrize(
    ("word", "left"),
    [
        ("layers", 20),
        ("one letter", 20),
        ("everything twice", 2500),
        ("nested", 40),
        ("growing", 400),
        ("fibonacci", 200),
        ("thue morse", 650),
    ],
)
def test_equations_to_compile_after_outlining_5000(word: str, left: int) -> None:
    """Repetitions of repetitions are found, because bodies are outlined too. Repetitions that are not adjacent are not
    looked for: "growing" and "thue morse" have many."""
    assert eqns_to_compile(outline(program(WORDS[word](5000)))) <= left
