"""Threads and tasks beside a trace: programs are added to by the thread that traces, and by nobody else."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import LeakedTracerError
from fxad.trace import active

X = np.arange(3, dtype=np.float32)


def problem_in_thread(work: Callable[[Any], object], copied: bool) -> LeakedTracerError:
    """What a thread that is started in a trace, and touches its tracer, is told."""
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
    """It is then like the one around that trace: eager, or the outer trace."""
    kept: list[contextvars.Context] = []

    def f(x: Any) -> Any:
        kept.append(contextvars.copy_context())
        return x * 2.0

    program = fx.trace(f, X)
    assert kept[0].run(active) is None
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
    """Each its own functions, all the same library: the same programs as one thread makes, and the same bits."""

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
