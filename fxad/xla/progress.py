"""A progress bar on a terminal, for long compilations."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 1.5  # seconds without a bar


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items; with a bar on standard error, if that is a terminal, once they have taken `PATIENCE` seconds."""
    if not sys.stderr.isatty():
        yield from items
        return
    start, bar, n = time.perf_counter(), None, 0
    try:
        for item in items:
            n += 1
            if bar is not None:
                bar.update()
            elif n < total and time.perf_counter() - start > PATIENCE:
                # importing it takes 40 ms, a quarter of what importing fxad takes
                bar = import_module("tqdm").tqdm(desc=what, total=total, initial=n, unit="unit", leave=False)
            yield item
    finally:
        if bar is not None:
            bar.close()
