"""An exception between any two instructions, as that of Ctrl-C, leaves no trace active, no lock taken and no thread
blocked.

Each test repeats a piece of work. An exception ends the k-th run before its k-th instruction. Afterwards everything
must work, in other threads too. Each piece is small, so that every instruction is interrupted once.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.core.single_flight import FLIGHTS
from fxad.errors import ExecutionError
from fxad.tracing.array import current_binder
from fxad.tracing.context import enclosing_transforms
from fxad.tracing.tracer import active_trace
from fxad.xla.interruptible import interruptible

X = np.arange(3, dtype=np.float32)
# `3/20`: the soak interrupts the instructions 3, 23, 43, ... One such part takes 7 minutes on a busy core (rules 4.5,
# the disk 1.4, compile 0.8), and all parts two hours and a half. Parts may run at the same time in processes of their
# own.
PART, PARTS = map(int, os.environ.get("FXAD_SWEEP", "1/1").split("/"))
_fresh = itertools.count(1)


class Interrupt(BaseException):
    """The exception that a signal handler raises."""


class Injector:
    """A trace function that counts the instructions of Python, and raises before the k-th."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.n = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.n += 1
            if self.n == self.at:
                raise Interrupt
        return self

    def run(self, work: Callable[[], object]) -> bool:
        """Returns True if the work was interrupted."""
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # 3.12 looks for one such frame when it starts tracing
        try:
            sys.settrace(self)
            try:
                work()
            finally:
                sys.settrace(before)
        except Interrupt:
            return True
        except ExecutionError as e:
            # before the first `try` of a callback, XLA catches the exception and reports it with its own message
            if "Interrupt" not in str(e):
                raise
            return True
        return False


def in_thread(work: Callable[[], object]) -> None:
    """Runs work in a thread, which must end."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert len(done) == 1, "a thread waits for ever, or failed"


def scaled() -> Any:
    """A program that was not traced before."""
    c = float(next(_fresh))
    return lambda x: x * c


def check() -> None:
    assert current_binder() is None or active_trace() is None
    assert enclosing_transforms() == ((), 0, None)
    assert gc.isenabled()
    assert FLIGHTS.threads() == set()
    assert (fx.asarray(X) + 1.0).tolist() == [1, 2, 3]
    assert len(fx.trace(lambda x: x * 2.0 + 1.0, X).jaxpr.eqns) == 2


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python reports an exception in a finaliser to this hook and continues."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    yield
    check()


Scenario = Callable[[], tuple[Callable[[], object], Callable[[], object]]]


def sweep(scenario: Scenario, most: int | None) -> None:
    """Interrupts work at the instructions of the part, or at about `most` random ones. A scenario returns work that was
    not done before, and a check that must pass after it."""
    work, after = scenario()
    work()
    after()
    work, after = scenario()
    counter = Injector(None)
    assert not counter.run(work)
    after()
    ks = range(PART, counter.n + 1, PARTS)
    if most is not None:
        ks = range(1 + random.randrange(1 + counter.n // most), counter.n + 1, 1 + counter.n // most)
    interrupted = 0
    for k in ks:
        work, after = scenario()
        interrupted += Injector(k).run(work)
        check()
        after()
    assert interrupted > 0.7 * len(ks)  # an exception in a finaliser does not interrupt the work


def _trace() -> Any:
    f = scaled()

    def nested(x: Any) -> Any:
        return fx.trace(f, x)(x) + x

    def after() -> None:
        assert fx.trace(nested, X).jaxpr is fx.trace(nested, X).jaxpr

    return lambda: fx.trace(nested, X), after


def _vmap() -> Any:
    f = fx.vmap(scaled())
    return lambda: fx.trace(f, X), lambda: fx.trace(f, X)


def _grad() -> Any:
    f = scaled()
    program = fx.trace(lambda x: fnp.sin(f(x)).sum(), X)

    def after() -> None:
        assert fx.grad(program).jaxpr is fx.grad(program).jaxpr

    return lambda: fx.grad(program), after


def _rules() -> Any:
    f = fx.custom_jvp(scaled())
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 2.0))
    g = fx.grad(lambda x: f(x).sum())
    return lambda: fx.trace(g, X), lambda: fx.trace(g, X)


def _compile() -> Any:
    jaxpr = fx.trace(scaled(), X).jaxpr

    def compiled() -> object:
        return fx.cache(jaxpr, fx.devices()[0])

    return compiled, lambda: in_thread(compiled)


_known = fx.jit(lambda x: x * 0.5)


def _call() -> Any:
    return lambda: _known(X), lambda: in_thread(lambda: _known(X).tolist())


def _eager() -> Any:
    y = fx.asarray(X)
    return lambda: y[1:] + y[0], lambda: in_thread(lambda: (y[1:] + y[0]).tolist())


def _host() -> Any:
    def on_host(x: Any) -> Any:
        return x + 1

    called: Any = fx.jit(lambda x: fx.pure_callback(on_host, fx.Spec((3,)), x))
    called(X)
    return lambda: called(X), lambda: in_thread(lambda: called(X).tolist())


def _beside() -> Any:
    start: Any = interruptible(lambda buffers: len(buffers))  # type: ignore[arg-type,return-value]

    def three() -> list[int]:
        return [start([]) for _ in range(3)]

    return three, three


def _text() -> Any:
    options = fx.CompileOptions()

    def after() -> None:
        assert repr(options) == repr(fx.CompileOptions()) != "..."  # a part of the key of the disk tier

    return lambda: repr(options), after


SCENARIOS: dict[str, Scenario] = {
    "trace": _trace, "vmap": _vmap, "grad": _grad, "rules": _rules, "compile": _compile, "call": _call, "eager": _eager,
    "host": _host, "beside": _beside, "text": _text,
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_work_succeeds_after_an_interruption(name: str) -> None:
    sweep(SCENARIOS[name], 40)


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
def test_work_succeeds_after_an_interruption_at_any_instruction(name: str) -> None:
    sweep(SCENARIOS[name], None)


def _stored(home: Path) -> Any:
    mine = fx.Cache(dir=home)
    jaxpr = fx.trace(scaled(), X).jaxpr

    def stored() -> object:
        return mine(jaxpr, fx.devices()[0])

    def after() -> None:
        in_thread(stored)
        mine.clear()
        in_thread(stored)
        assert (mine.stats().compilations, mine.stats().disk_hits) == (0, 1)

    return stored, after


@pytest.mark.parametrize("most", [20, pytest.param(None, marks=pytest.mark.soak)])
def test_an_interrupted_save_leaves_no_file_or_descriptor(tmp_path: Path, most: int | None) -> None:
    files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    sweep(lambda: _stored(tmp_path), most)
    if files:
        assert len(os.listdir("/proc/self/fd")) <= files + 2
    assert [p for p in tmp_path.iterdir() if p.name.endswith(".unfinished")] == []


# -------------------------------------------------------------------------------------------------- loops without end

ENDLESS = """
import os, signal, sys, threading, time
import numpy as np
import fxad as fx
import fxad.lax as lax

SIZE, WAY = int(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests behind itself ignores it

def loop(x):
    def goes_on(s):
        if WAY == "printed":
            fx.debug_print("a step of {}", s[0])
        return s.sum() > -1.0
    return lax.while_loop(goes_on, lambda s: s * 0.5 + 0.1, x)

run = fx.lower(fx.trace(loop, fx.Spec((SIZE,), "float32"))).compile(donate="x" if WAY == "donated" else None)
x = fx.asarray(np.ones(SIZE, np.float32))
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
signal.alarm(60)  # also where the test that waits for it was killed
try:
    y = run(x)
    if WAY == "read later":
        time.sleep(60)
    if WAY != "dropped":
        np.asarray(y + 1)
    del y
    time.sleep(60)
except KeyboardInterrupt:
    if WAY == "caught":
        sys.exit(3)
    raise
"""


@pytest.mark.parametrize(
    ("size", "way"),
    [
        (2, "read"),  # runs in the calling thread
        (2, "donated"),
        (2, "printed"),
        (2, "caught"),
        (4096, "read later"),  # runs in a thread of XLA
        (4096, "dropped"),
        (4096, "caught"),
    ],
)
def test_an_interrupt_of_an_endless_loop_ends_the_process(size: int, way: str) -> None:
    """It ends as Python ends after an interrupt, and does not wait for the loop."""
    command = [sys.executable, "-c", ENDLESS, str(size), way]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if way == "caught":
        assert (done.returncode, done.stderr) == (3, "")
    else:
        assert done.returncode == -signal.SIGINT
        assert done.stderr.startswith("Traceback")
        assert done.stderr.endswith("\nKeyboardInterrupt\n")


def test_a_short_loop_is_soon_called_without_a_thread() -> None:
    run = fx.jit(lambda x, n: fx.lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 2.0, s[1] + 1), (x, 0))[0])
    threads: set[int] = set()

    def started(frame: FrameType, event: str, arg: object) -> None:
        threads.add(threading.get_ident())

    run(1.0, 3)
    for _ in range(20):
        assert float(run(1.0, 3)) == 8.0
    threading.setprofile(started)
    try:
        for _ in range(5):
            assert float(run(1.0, 3)) == 8.0
    finally:
        threading.setprofile(None)
    assert not threads


def test_an_error_of_a_loop_is_raised_by_its_call() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("no")

    def goes_on(s: Any) -> Any:
        return fx.pure_callback(fails, fx.Spec((), "bool"), s)

    with pytest.raises(ExecutionError, match="no"):
        fx.jit(lambda x: fx.lax.while_loop(goes_on, lambda s: s + 1.0, x))(1.0).block_until_ready()
