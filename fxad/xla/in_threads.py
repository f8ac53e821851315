"""Runs a function on several items at once, in threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def completed(run: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """Yield the results of a function on each item, in order of completion. The first items are started first, each in
    a copy of the caller's context. After an error, or if the caller stops, items that have not started are not run."""
    with ThreadPoolExecutor(threads, "fxad-compile") as pool:
        waiting = [pool.submit(copy_context().run, run, item) for item in items]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            for job in waiting:
                job.cancel()
