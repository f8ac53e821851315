"""Threads and tasks beside a trace: only the thread that traces adds equations. Donation and the end of a process with
threads."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ExecutionError, LeakedTracerError
from fxad.execution.donation import DonatingStart
from fxad.tracing.tracer import active_trace
from tests.processes import run_python

X = np.arange(3, dtype=np.float32)


def problem_in_thread(work: Callable[[Any], object], copied: bool) -> LeakedTracerError:
    """Returns the error of a thread that was started in a trace and touches its tracer."""
    found: list[BaseException | None] = []

    def f(x: Any) -> Any:
        y = x * 2.0
        with ThreadPoolExecutor(1) as pool:
            run = contextvars.copy_context().run if copied else lambda g, *args: g(*args)
            found.append(pool.submit(run, work, y).exception())
        return y + 1.0

    program = fx.trace(f, X)
    assert program.jaxpr is fx.trace(lambda x: x * 2.0 + 1.0, X).jaxpr  # the thread has added nothing
    assert isinstance(found[0], LeakedTracerError), found[0]
    return found[0]


TOUCH: dict[str, tuple[Callable[[Any], object], str]] = {
    "operator": (lambda y: y + 1.0, "add: argument 0"),
    "function": (lambda y: fnp.sin(y), "sin: argument 0"),
    "index": (lambda y: y[0], "getitem: argument 0"),
    "trace": (lambda y: fx.trace(lambda z: z + y, X), "add: argument 1"),
}


@pytest.mark.parametrize("touch", TOUCH)
def test_a_thread_that_touches_a_tracer(touch: str) -> None:
    work, expected = TOUCH[touch]
    e = problem_in_thread(work, copied=False)
    here = f"{__file__}:{problem_in_thread.__code__.co_firstlineno + 5} in {problem_in_thread.__name__}.<locals>.f"
    before, _, _ = e.message.partition(";")
    assert before == f"{expected} is Tracer<f32[3]>, made at {here}, which is being traced elsewhere"
    assert e.remedy == ("return values from traced functions; do not keep them in globals, attributes or other threads")


@pytest.mark.parametrize("touch", ["operator", "function"])
def test_a_thread_that_has_the_context_of_a_trace(touch: str) -> None:
    e = problem_in_thread(TOUCH[touch][0], copied=True)
    op = {"operator": "add", "function": "sin"}[touch]
    assert e.message == f"{op}: f is being traced by another thread, whose context this one has"
    assert e.remedy == "compute in the thread that traces, or start this one with an empty context"


def test_a_thread_that_touches_no_tracer_computes() -> None:
    def f(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            table = pool.submit(lambda: fnp.sin(fx.asarray(X)) + 1.0).result()
        return x * table

    assert fx.trace(f, X)(X).tolist() == pytest.approx((X * (np.sin(X) + 1)).tolist())


def test_a_context_outlives_the_trace_it_was_copied_in() -> None:
    """It is then like the context around that trace: eager, or that of the outer trace."""
    kept: list[contextvars.Context] = []

    def f(x: Any) -> Any:
        kept.append(contextvars.copy_context())
        return x * 2.0

    program = fx.trace(f, X)
    assert kept[0].run(active_trace) is None
    assert kept[0].run(lambda: (fx.asarray(X) * 3.0).tolist()) == [0, 3, 6]
    assert kept[0].run(lambda: fnp.sum(fx.asarray(X)).tolist()) == 3
    assert kept[0].run(lambda: fx.jit(lambda x: x + 1.0)(X).tolist()) == [1, 2, 3]
    assert kept[0].run(lambda: fx.trace(f, X)) == program

    def outer(x: Any) -> Any:
        fx.trace(f, X)
        return kept[-1].run(lambda: x + 1.0)

    assert fx.trace(outer, X).jaxpr is fx.trace(lambda x: x + 1.0, X).jaxpr


def test_tasks_trace_side_by_side() -> None:
    async def one(k: int) -> list[float]:
        program = fx.trace(lambda x: fnp.sin(x) * float(k), X)
        await asyncio.sleep(0)
        out: list[float] = (await asyncio.to_thread(fx.grad(lambda x: program(x).sum()), X)).tolist()
        return out

    async def main() -> list[list[float]]:
        return await asyncio.gather(*[one(k) for k in range(8)])

    for k, row in enumerate(asyncio.run(main())):
        assert row == pytest.approx((k * np.cos(X)).tolist(), rel=1e-5)


def test_a_task_made_in_a_trace_runs_after_it() -> None:
    async def main() -> list[float]:
        tasks: list[asyncio.Task[list[float]]] = []

        async def later() -> list[float]:
            out: list[float] = (fx.asarray(X) + 1.0).tolist()
            return out

        def f(x: Any) -> Any:
            tasks.append(asyncio.get_running_loop().create_task(later()))
            return x

        fx.trace(f, X)
        return await tasks[0]

    assert asyncio.run(main()) == [1, 2, 3]


def test_many_threads_trace_transform_and_call() -> None:
    """Each thread has its own functions and uses the same library. The programs and bits are those of one thread."""

    def work(k: int) -> list[Any]:
        f = lambda p, x: fnp.tanh(x @ p["w"] + float(k % 4)).sum()  # noqa: E731
        p, x = {"w": np.full((3, 3), 0.1, np.float32)}, np.ones((2, 3), np.float32)
        program: Any = fx.grad(fx.remat(fx.trace(f, p, x)))
        batched: Any = fx.vmap(f, in_axes=(None, 0))(p, np.stack([x, x]))
        return [program.jaxpr.digest, program(p, x)["w"].tolist(), batched.tolist()]

    expected = [work(k) for k in range(4)]
    found: list[list[Any]] = [[] for _ in range(16)]
    barrier = threading.Barrier(16)

    def run(k: int) -> None:
        barrier.wait()
        found[k] = work(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert found == [expected[k % 4] for k in range(16)]


# --------------------------------------------------------------------------------------------- arrays and donation


def racing(text: str) -> str:
    """Runs a program in a process of its own and returns its output. The program has `race(arrays, *work)`: threads
    that do their work on each array at the same time and switch as often as possible. A result is None if the thread's
    error says that the array was donated. A crash of the process is a failure."""
    start = """
import sys, threading, time, warnings
import numpy as np, fxad as fx, fxad.numpy as fnp
from fxad.errors import DonationWarning, ExecutionError
from fxad.xla.dlpack import copy_out
warnings.simplefilter("ignore", DonationWarning)
X = fx.Spec((64,), "float32")
donate = fx.lower(fx.trace(lambda x: x + 1, X)).compile(donate="x")
of_no_use = fx.jit(lambda x: x.astype("int32"), donate="x")
call = fx.lower(fx.trace(lambda x: x * 2, X)).compile()
def made(n, dtype="float32"):
    return [fnp.ones((64,), dtype=dtype) + 0 for _ in range(n)]
def race(arrays, *work):
    found = [[] for _ in work]
    def do(f, out):
        for k, x in enumerate(arrays):
            while min(map(len, found)) < k:
                time.sleep(0)
            try:
                out.append(f(x))
            except ExecutionError as e:
                assert " was donated to <lambda> at " in e.message, e
                out.append(None)
            except BaseException as e:
                out.append(e)
    threads = [threading.Thread(target=do, args=pair) for pair in zip(work, found)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found
sys.setswitchinterval(1e-6)
"""
    return run_python(start + text, TF_CPP_MIN_LOG_LEVEL="3")  # otherwise XLA logs calls that it rejects


@pytest.mark.parametrize("times", [60, pytest.param(300, marks=pytest.mark.soak)])
def test_one_thread_reads_what_another_donates(times: int) -> None:
    """Regression: a read gets the value, or an error that the array was donated. The process crashed, or NumPy made an
    array of dtype object."""
    text = """
reads = {
    "asarray": np.asarray, "from_dlpack": np.from_dlpack, "tolist": lambda x: np.asarray(x.tolist()),
    "call": call, "eager": lambda x: x * 2, "index": lambda x: x[3:5], "item": lambda x: x[0].item(),
    "copy": fx.Array.copy, "lend": lambda x: copy_out(fx.runtime.lend(x._buffer)),
    "block": fx.Array.block_until_ready, "print": lambda x: len(repr(x)) * 0 + 1,
}
expected = {"call": 2, "eager": 2}
for kind, read in reads.items():
    for give_up in (donate, of_no_use):
        seen, given = race(made(TIMES), read, give_up)
        for x, y in zip(seen, given):
            assert y is not None and (np.asarray(y) == (2 if give_up is donate else 1)).all(), (kind, y)
            if kind == "block":
                continue
            same = x is None or (np.asarray(x) == expected.get(kind, 1)).all() and np.asarray(x).dtype != object
            assert same, (kind, x)
print("done")
"""
    assert racing(text.replace("TIMES", str(times))) == "done\n"


@pytest.mark.parametrize("times", [400, pytest.param(2000, marks=pytest.mark.soak)])
def test_two_threads_donate_one_array(times: int) -> None:
    """Regression: exactly one of them donates it. The process crashed, or both did where no result could use the
    memory."""
    text = """
for give_up in (donate, of_no_use):
    for a, b in zip(*race(made(TIMES), give_up, give_up)):
        assert (a is None) != (b is None), (a, b)
        assert (np.asarray(b if a is None else a) == (2 if give_up is donate else 1)).all()
print("done")
"""
    assert racing(text.replace("TIMES", str(times))) == "done\n"


def test_a_donation_that_fails_keeps_the_arrays() -> None:
    """Arrays that the call did not use can be donated again."""

    x, y, gone = (fx.asarray(X) for _ in range(3))
    add = fx.jit(lambda x, y: (x + y, x - y), donate=("x", "y"))
    add(gone, gone.copy())
    with pytest.raises(ExecutionError, match=r"^<lambda>: argument y was donated to <lambda> at "):
        add(x, gone)
    assert x.tolist() == [0, 1, 2]
    assert "donated" not in repr(x)
    assert add(x, y)[0].tolist() == [0, 2, 4]


def test_a_second_interruption_releases_donated_arrays() -> None:
    """Regression: an interruption of the release of the arrays of a call that fails left them taken."""
    x, y, gone = (fx.asarray(X) for _ in range(3))
    add = fx.jit(lambda x, y: (x + y, x - y), donate=("x", "y"))
    add(gone, gone.copy())
    failed: list[object] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is DonatingStart.__call__.__code__:
            if event == "exception":
                failed.append(frame)
        elif failed and event == "call":
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            add(x, gone)
    finally:
        sys.settrace(before)
    assert failed
    assert add(x, y)[0].tolist() == [0, 2, 4]


# ------------------------------------------------------------------------------------------------- the end of a process


def in_a_process(text: str) -> str:
    """Returns what a program prints in a process of its own."""
    return run_python(START + text, ignore="This process")  # Python 3.12 warns of every fork in a process with threads


START = """
import os, signal, threading, time
import numpy as np, fxad as fx, fxad.numpy as fnp
X = np.ones((64, 64), np.float32)
def slow(c):
    def f(x):
        for k in range(24):
            x = fnp.tanh(x @ x + c * k)
        return x
    return fx.lower(fx.trace(f, X), units="none")
def until(condition):
    while not condition():
        time.sleep(0.002)
from fxad.core.single_flight import FLIGHTS
"""


def test_the_end_of_the_interpreter_waits_for_compilations() -> None:
    """Daemon threads compile: two are in XLA, and one waits for the same program."""
    text = """
lowered = [slow(0.01), slow(0.02)]
threads = [threading.Thread(target=lowered[k % 2].compile, daemon=True) for k in range(3)]
for t in threads:
    t.start()
until(lambda: len(FLIGHTS.threads()) == 2)
print(sum(t.is_alive() for t in threads))
"""
    assert in_a_process(text) == "3\n"


def test_the_end_of_the_interpreter_waits_for_computations() -> None:
    """XLA's threads would run code that was freed."""
    text = """
x = np.full((600, 600), 0.01, np.float32)
@fx.jit
@fx.value_and_grad
def work(x, ws):
    for w in ws:
        x = fnp.tanh(x @ w) * 1.01
    return fnp.sum(x)
work(x, [x] * 12)
held = work(x, [x] * 12)
print("asked for")
"""
    for _ in range(2):
        assert in_a_process(text) == "asked for\n"


def test_host_functions_that_run_programs_do_not_wait_for_each_other() -> None:
    """Regression: operands are in memory before an execution starts, so a program that a host function calls runs in
    its own thread. Unaligned large arrays were copied by other threads, which all waited for each other."""
    text = """
X = np.ones((400, 400), np.float32)
def nested(depth):
    if not depth:
        return fx.jit(lambda x: x @ x * 1e-3)
    inner = nested(depth - 1)
    def on_host(v):
        return np.asarray(inner(v))
    return fx.jit(lambda x: fx.pure_callback(on_host, fx.Spec((400, 400)), x @ x * 1e-3) @ x * 1e-3)
signal.alarm(100)
run = nested(8)
for _ in range(3):
    run(X).block_until_ready()
print("done")
"""
    assert in_a_process(text) == "done\n"


def test_host_functions_exist_until_the_last_exit_handler() -> None:
    """Regression: exit handlers that the user registered first run after fxad's, which had removed the host functions,
    so a print was an error."""
    text = """
import atexit
atexit.register(lambda: run(X[0, :2]))
run = fx.jit(lambda x: (fx.debug_print("x is {}", x), x + 1)[1])
run(X[0, :1])
"""
    assert in_a_process(text) == "x is [1.]\nx is [1. 1.]\n"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_threads_of_xla_end_before_the_process() -> None:
    """The process pauses after the end of the interpreter. XLA's threads must have ended by then, also those that
    compute a result without references: a thread that goes on uses freed memory, and 1 of 3 such processes crashed."""
    text = """
import ctypes
ctypes.pythonapi.Py_AtExit(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))
x = np.full((400, 400), 0.01, np.float32)
step = fx.jit(fx.grad(lambda x: fnp.sum(fnp.tanh(x @ x))))
held, own = step(x), [fx.asarray(X)]
own.append(own)
step(held * 2.0)
print(len(os.listdir("/proc/self/task")), flush=True)
"""
    command = [sys.executable, "-W", "error", "-c", START + text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            at_work, end = int(process.stdout.readline()), time.monotonic() + 60
            while (left := len(os.listdir(f"/proc/{process.pid}/task"))) >= at_work and time.monotonic() < end:
                time.sleep(0.01)
        finally:
            process.kill()
    assert left < at_work


@pytest.mark.parametrize("device", [0, 1])
def test_a_computation_without_references_ends_before_the_interpreter(device: int) -> None:
    """Also if a reference to the client is never dropped, here by a handler for forked children."""
    early = """
import atexit, time
@atexit.register  # before fxad's own, so called after it
def end():
    before = time.process_time()
    time.sleep(0.3)
    print("idle" if time.process_time() - before < 0.1 else "at work", flush=True)
"""
    text = """
x = fx.device_put(np.full((700, 700), 0.01, np.float32), fx.devices()[DEVICE])
os.register_at_fork(after_in_child=lambda: x)
step = fx.jit(lambda x: fx.lax.fori_loop(0, 100, lambda _, x: fnp.tanh(x @ x), x))
step(x)
step(x)
print("asked for")
"""
    text = early + "import os; os.environ['FXAD_CPU_DEVICES'] = '2'" + START + text.replace("DEVICE", str(device))
    assert run_python(text) == "asked for\nidle\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the status is that of an aborted process")
@pytest.mark.parametrize("way", ["Ctrl-C, result dropped", "SIGTERM at exit"])
def test_exit_does_not_wait_after_a_signal(way: str) -> None:
    """Regression: it waited for a computation whose result was dropped, and for the rest of the computations after the
    exception of a signal handler at exit."""
    text = """
way = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
step = fx.jit(lambda x: fx.lax.fori_loop(0, 10**7, lambda _, x: fnp.tanh(x @ x), x))
def main():
    y = step(np.full((300, 300), 0.01, np.float32))
    print("at work", flush=True)
    number = signal.SIGTERM if way == "SIGTERM at exit" else signal.SIGINT
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), number))
    timer.daemon = True  # another one ends before the exit handlers run
    timer.start()
    if number == signal.SIGTERM:
        return y
    try:
        np.asarray(y)
    except KeyboardInterrupt:
        print("caught", flush=True)
    sys.exit(3)
y = main()
"""
    command = [sys.executable, "-c", "import sys\n" + START + text, way]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if way == "SIGTERM at exit":
        assert (done.returncode, done.stdout) == (0, "at work\n")
        assert done.stderr.endswith("\nSystemExit: 5\n")
    else:
        assert (done.returncode, done.stdout, done.stderr) == (3, "at work\ncaught\n", "")


def test_a_forked_child_says_that_it_cannot_compute() -> None:
    """A computation would wait for threads that the child does not have. Computed values and tracing work."""
    text = """
x = fx.asarray(X) + 1.0
np.asarray(x)
pid = os.fork()
if pid == 0:
    signal.alarm(100)
    print(float(np.asarray(x.copy())[0, 0]), len(fx.trace(lambda x: x * 2, X).jaxpr.eqns), x.device)
    for call in (lambda: x * 2.5, lambda: fx.jit(lambda x: x @ x)(x), lambda: fx.asarray(X), fx.devices,
                 lambda: fx.device_put(x, x.device) * 3.5):
        try:
            call()
        except fx.errors.ExecutionError as e:
            print(e.message, "|", e.remedy, flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
np.asarray(x * 2.5)
"""
    why = "this process was forked from one that had begun to compute, and has none of XLA's threads"
    assert in_a_process(text).splitlines() == [
        "2.0 1 cpu:0",
        *[f"devices: {why} | start processes with 'spawn' or 'forkserver' of multiprocessing, or fork before computing"]
        * 5,
    ]


def test_a_forked_child_reads_an_array_on_several_devices() -> None:
    """Regression: it waited for a lock that a thread of the parent held."""
    text = """
from fxad.xla import compat
x = fx.device_put(X, fx.NamedSharding(fx.make_mesh((1,), ("i",)), fx.P("i")))
held = threading.Event()
def hold():
    with compat._making_parts:
        held.set()
        time.sleep(3600)
threading.Thread(target=hold, daemon=True).start()
held.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    print(float(np.asarray(x)[0, 0]), flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1], flush=True)
os._exit(0)
"""
    assert in_a_process(text) == "1.0\n0\n"


@pytest.mark.parametrize("held", [False, True])
def test_a_forked_child_ends_by_itself(held: bool) -> None:
    """It does not wait for XLA's threads, which exist only in the parent."""
    text = f"""
step = fx.jit(lambda x: fnp.tanh(x @ x))
y = step(X)
{"" if held else "del y"}
pid = os.fork()
if pid == 0:
    raise SystemExit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert in_a_process(text) == "3\n"


def test_a_child_forked_before_anything_is_computed_computes() -> None:
    text = """
program = fx.trace(lambda x: x * 2, X)
pid = os.fork()
if pid == 0:
    print(float(program(X).sum()), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(float(program(X).sum()))
"""
    assert in_a_process(text) == "8192.0\n8192.0\n"


HOSTS = {
    "short": ("time.sleep(0.002)", 3),
    "longer": ("time.sleep(0.3)", 1),
    "without end": ("while True: sum(range(1000))", 1),
    "blocked": ("threading.Event().wait()", 1),
}


@pytest.mark.parametrize("kind", HOSTS)
def test_daemon_threads_inside_host_functions_at_the_end(kind: str) -> None:
    """Regression: the interpreter ends daemon threads at any point, also in a host function that XLA called, and the
    process aborted."""
    body, times = HOSTS[kind]
    text = f"""
inside = threading.Event()
def host(x):
    inside.set()
    {body}
    return x
run = fx.jit(lambda x: fx.pure_callback(host, fx.Spec((64, 64)), x @ x) @ x)
def work():
    while True:
        run(X)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
inside.wait()
time.sleep(0.02)
"""
    for _ in range(times):
        assert in_a_process(text) == ""


@pytest.mark.parametrize("call", ["run(x)", "x + 1.0", "np.asarray(long(x))", "long(x).block_until_ready()"])
def test_daemon_threads_that_compute_at_the_end(call: str) -> None:
    text = f"""
run = fx.jit(lambda x: fnp.tanh(x @ x))
long = fx.jit(lambda x: fx.lax.fori_loop(0, 20, lambda _, x: fnp.tanh(x @ x), x))
x = fx.asarray(X)
begun = threading.Event()
def work():
    while True:
        {call}
        begun.set()
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.02)
"""
    assert in_a_process(text) == ""


@pytest.mark.parametrize("times", [60, pytest.param(600, marks=pytest.mark.soak)])
def test_children_forked_while_others_trace(times: int) -> None:
    """The child never inherits a lock that a thread of the parent holds."""
    text = f"""
def f(x):
    for k in range(20):
        x = fnp.sin(x) * (k + next(fresh))
    return x
import itertools
fresh = itertools.count()
def work():
    while not over:
        fx.grad(lambda x: f(x).sum()) and fx.trace(lambda x: f(x), X)
fx.trace(f, X)  # imports what it needs: a child waits for what another thread was importing
over = False
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads:
    t.start()
for _ in range({times}):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        fx.trace(f, X)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print("a child waits for ever")
        break
over = True
"""
    assert in_a_process(text) == ""


def test_an_interrupted_compilation_locks_nothing() -> None:
    """Ctrl-C in the thread that compiles: one of the threads that wait for the same program compiles it."""
    text = """
lowered, found = slow(0.01), []
waiting = [threading.Thread(target=lambda: found.append(lowered.compile())) for _ in range(3)]
def interrupt():
    until(lambda: len(FLIGHTS.threads()) == 1)
    for t in waiting:
        t.start()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    lowered.compile()
    until(lambda: len(found) == 3)
except KeyboardInterrupt:
    print("interrupted")
until(lambda: len(found) == 3)
print(len({id(e._loaded) for e in found}), lowered.compile()._loaded is found[0]._loaded)
"""
    assert in_a_process(text).splitlines()[-1] == "1 True"
