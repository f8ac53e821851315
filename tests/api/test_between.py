"""Finalisers that run in the middle of a trace, and the kinds of calls in a traced function."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad.tracing.array import current_binder
from fxad.tracing.tracer import Tracer
from tests.processes import run_python

X = np.arange(3, dtype=np.float32)
TABLE = fx.asarray(X)


def test_code_of_a_finaliser_in_a_trace_is_part_of_the_trace() -> None:
    """Its equations are dead, and its values are tracers. The result, and the next trace, are those without it."""
    found: list[object] = []

    class Computing:
        def __del__(self) -> None:
            found.append(fnp.ones(3) + 1.0)

    def f(x: Any) -> Any:
        y = x * 2.0
        Computing()
        return fnp.sin(y)

    program = fx.trace(f, X)
    assert fx.dce(program).jaxpr is fx.trace(lambda x: fnp.sin(x * 2.0), X).jaxpr
    (value,) = found
    assert isinstance(value, Tracer)
    np.testing.assert_array_equal(np.asarray(fx.jit(f)(X)), np.asarray(fnp.sin(X * 2.0)))


def test_a_finaliser_that_traces() -> None:
    """The trace in a finaliser is independent of the trace that it interrupts."""
    found: list[object] = []

    class Tracing:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            found.append(fx.trace(lambda x: fnp.cos(x) + TABLE, X).jaxpr)

    def f(x: Any) -> Any:
        Tracing()
        gc.collect()
        return x + 1.0

    assert len(fx.trace(f, X).jaxpr.eqns) == 1
    assert found == [fx.trace(lambda x: fnp.cos(x) + TABLE, X).jaxpr]


WHILE_XLA_RUNS = """
import gc, sys
import numpy as np
import fxad as fx
import fxad.numpy as fnp

N = np.ones(8, np.float32)
twice = fx.jit(lambda x: fnp.tanh(x) * 2)
x = fx.asarray(N)
WAYS = [lambda: twice(x), lambda: x + 1, lambda: fnp.sin(x), lambda: fx.asarray(N), lambda: x.copy()]

def deep(n, way):
    return way() if n == 0 else deep(n - 1, way)

class Finalised:
    def __init__(self, way):
        self.me, self.way = self, way

    def __del__(self):
        deep(5, self.way)

def outer(n, way):
    return way() if n == 0 else outer(n - 1, way)

codes = [f.__code__ for f in (deep, outer, Finalised.__del__, *WAYS)]
for way in WAYS:
    outer(9, way), deep(9, way)
fx.asarray(N)  # jaxlib drops what it has recorded
before = list(map(sys.getrefcount, codes))
for k in range(700):
    Finalised(WAYS[k % 5])
    held = []
    while gc.get_count()[0] < 699 - k % 23:  # the next collection starts somewhere in the call
        held.append([])
    outer(9, WAYS[k // 5 % 5])
gc.collect()
fx.asarray(N)
print([b - a for a, b in zip(before, map(sys.getrefcount, codes))])
"""


def test_a_finaliser_that_computes_while_xla_is_called() -> None:
    """No code object loses a reference. On Python 3.11 a garbage collection may start inside jaxlib."""
    assert run_python(WHILE_XLA_RUNS, PYTHONFAULTHANDLER="1") == f"{[0] * 8}\n"


def test_every_kind_of_call_is_a_call() -> None:
    """A function that is called by any syntax is part of the traced program."""

    class Kinds:
        def __init__(self, x: Any) -> None:
            self.x = x + 1.0

        @property
        def value(self) -> Any:
            return self.x + 1.0

        def __getitem__(self, k: int) -> Any:
            return self.x + 1.0

        def __add__(self, y: Any) -> Any:
            return self.x + 1.0

        def __eq__(self, y: object) -> Any:
            return self.x + 1.0

        def __hash__(self) -> int:
            return 0

        def __call__(self, *args: Any) -> Any:
            return self.x + 1.0

        def __iter__(self) -> Iterator[Any]:
            yield self.x + 1.0

        def __enter__(self) -> Any:
            return self.x + 1.0

        def __exit__(self, *_: object) -> None:
            self.x = self.x + 1.0

        def __getattr__(self, name: str) -> Any:
            return self.x + 1.0

        def __setitem__(self, k: int, v: object) -> None:
            self.x = self.x + 1.0

        def __format__(self, spec: str) -> str:
            self.x = self.x + 1.0
            return ""

        def __bool__(self) -> bool:
            self.x = self.x + 1.0
            return True

    def f(x: Any) -> Any:
        k = Kinds(x)
        found = [k.value, k[0], k + 0, k == 0, k(1, 2), *k, k.other]
        for y in k:
            found += [y]
        k[0] = 1
        with k as y:
            found.append(y)
        if k and f"{k}":
            found.extend(map(k, [1]))
        found.extend(v + 1.0 for v in found[:1])
        return sum(found) + max(found[:1], key=lambda v: bool(k) and id(v + 1.0))

    class Counted:
        """An operand whose additions are counted."""

        n = 0

        def __add__(self, _: object) -> Counted:
            Counted.n += 1
            return self

        __radd__ = __add__

    f(Counted())
    assert Counted.n > 20
    eqns = fx.trace(f, X).jaxpr.eqns
    assert [e.prim.name for e in eqns] == ["add"] * Counted.n


def test_no_callback_of_the_garbage_collector_is_installed() -> None:
    """An interrupt that Python raises in a callback of the garbage collector would be lost."""
    assert not [f for f in gc.callbacks if getattr(f, "__module__", "") and "fxad" in str(f.__module__)]
    assert current_binder() is None
