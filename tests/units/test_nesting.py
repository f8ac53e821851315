"""Bodies nested so deeply that XLA would end the process are refused before they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import CompileError

X = np.ones(4, np.float32)
REMEDY = "fxad.inline opens calls; let segments, branches and loops follow each other, or loop over one body"

remat: Any = fx.remat
Level = Callable[[Any], Callable[[Any], Any]]
# For each kind: the deepest nesting that is compiled, the number of bodies in one level, and a level.
LEVELS: dict[str, tuple[int, int, Level]] = {
    "call": (150, 1, lambda inner: lambda x: inner(fnp.sin(x))),
    "remat": (150, 1, lambda inner: lambda x: remat(inner)(fnp.sin(x))),
    "scan": (50, 2, lambda inner: lambda x: lax.scan(lambda h, _: (inner(fnp.sin(h)), None), x, None, 2)[0]),
    "cond": (75, 2, lambda inner: lambda x: lax.cond(x[0] > 0, lambda x: inner(fnp.sin(x)), lambda x: x, x)),
    "while": (75, 2, lambda inner: lambda x: lax.while_loop(lambda h: h[0] > 0.5, lambda h: inner(fnp.sin(h)), x)),
}


def nest(level: Level, depth: int) -> fx.Program[..., Any]:
    program: fx.Program[..., Any] = fx.trace(fnp.cos, X)
    for _ in range(depth):
        program = fx.trace(level(program), X)
    return program


@pytest.mark.parametrize("kind", LEVELS)
def test_bodies_that_are_nested_too_deeply_are_refused(kind: str) -> None:
    limit, bodies, level = LEVELS[kind]
    program = nest(level, limit + 1)
    with pytest.raises(CompileError) as caught:
        fx.lower(program, units="none").compile()
    assert caught.value.message == (
        f"compile: bodies are nested {(limit + 1) * bodies} deep in <lambda>, and XLA has stack for {limit * bodies} of"
        " this kind"
    )
    assert caught.value.remedy == REMEDY
    assert caught.value.equation.startswith(f"{kind} of ")
    assert caught.value.where.startswith(__file__)
    assert fx.lower(program).text(), "it can be looked at"


@pytest.mark.parametrize("kind", LEVELS)
def test_the_deepest_nesting_that_is_not_refused_is_compiled(kind: str) -> None:
    limit, _, level = LEVELS[kind]
    program = nest(level, limit)
    assert fx.lower(program, units="none").compile().memory().argument_bytes == X.nbytes


def test_programs_that_are_nested_too_deeply_are_not_exported() -> None:
    """Regression: the process that loaded such a program crashed."""
    limit, _, level = LEVELS["call"]
    with pytest.raises(
        CompileError, match=rf"^export: bodies are nested {limit + 1} deep in <lambda>, and XLA has"
    ) as e:
        fx.lower(nest(level, limit + 1)).export()
    assert e.value.remedy == REMEDY
    program = nest(level, limit)
    run: Any = fx.load_exported(fx.lower(program).export())
    np.testing.assert_allclose(run(X), fx.interpret(program, X), rtol=1e-5)


def test_inlined_calls_are_not_nested() -> None:
    program = fx.inline(nest(LEVELS["call"][2], 300))
    run: Any = fx.lower(program, units="none").compile()
    np.testing.assert_allclose(run(X), fx.interpret(program, X), rtol=1e-5)


def test_shared_bodies_are_walked_once() -> None:
    """2**200 calls in all."""
    twice: Level = lambda inner: lambda x: inner(inner(x))  # noqa: E731
    with pytest.raises(CompileError, match="nested 200 deep"):
        fx.lower(nest(twice, 200), units="none").compile()
