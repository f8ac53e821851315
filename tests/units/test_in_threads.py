"""`completed` runs work in several threads: it compiles units at the same time."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar

import pytest

from fxad.xla.in_threads import completed

WHERE: ContextVar[str] = ContextVar("where", default="outside")


def test_results_arrive_in_completion_order_in_the_context_of_the_caller() -> None:
    together = threading.Barrier(2, timeout=20)
    token = WHERE.set("here")

    def run(k: int) -> tuple[int, str]:
        together.wait()  # blocks until both run at the same time
        return k, WHERE.get()

    assert sorted(completed(run, [3, 1], 2)) == [(1, "here"), (3, "here")]
    WHERE.reset(token)


def test_an_error_cancels_the_remaining_work() -> None:
    started: list[int] = []

    def run(k: int) -> int:
        started.append(k)
        if k == 1:
            raise ValueError("one")
        time.sleep(0.01)
        return k

    with pytest.raises(ValueError, match="one"):
        list(completed(run, range(1, 200), 1))
    assert len(started) < 199


def test_closing_the_iterator_cancels_the_remaining_work() -> None:
    started: list[int] = []
    go = threading.Event()

    def run(k: int) -> int:
        started.append(k)
        if k:
            assert go.wait(20)
        return k

    results = completed(run, range(100), 1)
    assert next(results) == 0
    threading.Timer(0.05, go.set).start()
    results.close()
    assert len(started) < 100
