"""Finalisers, callbacks and signal handlers that run in the middle of a trace add nothing to it."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.tracing.array import current_binder
from fxad.tracing.tracer import active_trace
from tests.processes import run_python

X = np.arange(3, dtype=np.float32)
TABLE = fx.asarray(X)
ran: list[list[float]] = []


def compute(*_: object) -> None:
    """Runs operations of all kinds on values."""
    assert active_trace() is None
    y = (TABLE + 1.0) * fnp.ones(3) + fx.jit(lambda x: x * 2.0)(TABLE)
    ran.append((y + fx.grad(lambda x: (x * x).sum())(TABLE) + fx.vmap(lambda v: v * 0.0)(TABLE)).tolist())


class Finalised:
    """An object that computes when it is freed: at once, or by the garbage collector if it is in a cycle."""

    def __init__(self, cycle: bool) -> None:
        self.me = self if cycle else None

    def __del__(self) -> None:
        compute()


class Held:
    def __init__(self, cycle: bool) -> None:
        self.me = self if cycle else None


def deleted(cycle: bool) -> None:
    gone = Finalised(cycle)
    del gone


def replaced(cycle: bool) -> None:
    gone: object = Finalised(cycle)
    gone = None  # noqa: F841


def returned(cycle: bool) -> None:
    gone = Finalised(cycle)  # noqa: F841


def with_callback(cycle: bool) -> None:
    gone = Held(cycle)
    refs.append(weakref.ref(gone, compute))
    del gone


def with_finalize(cycle: bool) -> None:
    gone = Held(cycle)
    weakref.finalize(gone, compute)
    del gone


def generator(cycle: bool) -> None:
    def run(held: list[object]) -> Iterator[None]:
        try:
            yield
        finally:
            compute()

    held: list[object] = []
    gone = run(held)
    next(gone)
    if cycle:
        held.append(gone)
    del gone, held


refs: list[object] = []
WAYS: list[Callable[[bool], None]] = [deleted, replaced, returned, with_callback, with_finalize, generator]


@pytest.mark.parametrize("cycle", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_finalisers_add_nothing(way: Callable[[bool], None], cycle: bool) -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        way(cycle)
        gc.collect()
        return fnp.sin(y)

    ran.clear()
    assert fx.trace(f, X).jaxpr is fx.trace(lambda x: fnp.sin(x * 2.0), X).jaxpr
    assert ran == [[1.0, 6.0, 11.0]]


def test_a_collection_at_any_allocation_adds_nothing() -> None:
    def f(x: Any) -> Any:
        for _ in range(50):
            Finalised(True)
            x = fnp.sin(x) * x
        return x

    def plain(x: Any) -> Any:
        for _ in range(50):
            x = fnp.sin(x) * x
        return x

    before = gc.get_threshold()
    try:
        gc.set_threshold(40)
        ran.clear()
        found = fx.trace(f, X).jaxpr
    finally:
        gc.set_threshold(*before)
    assert found is fx.trace(plain, X).jaxpr
    assert len(ran) > 0


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


class Handler:
    def of_instance(self, signum: int, frame: object) -> None:
        handled(signum, frame)


def handled(*_: object) -> None:
    compute()
    signal.setitimer(signal.ITIMER_REAL, 0.001)


def by_name(signum: int, frame: object = None) -> None:
    handled()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of timers")
@pytest.mark.parametrize("handler", [handled, by_name, Handler().of_instance, lambda *a: handled()])
def test_signal_handlers_add_nothing(handler: Callable[..., None]) -> None:
    assert threading.current_thread() is threading.main_thread()
    compute()
    ran.clear()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)

        def f(x: Any) -> Any:
            for _ in range(1000):
                x = fnp.sin(x) * x
            return x

        program = fx.trace(f, X)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # a run of the handler starts the timer again
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(program.jaxpr.eqns) == 2000
    assert len(ran) > 0


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
