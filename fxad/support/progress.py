"""Bars of progress on terminals, for work that takes long: compilations, searches."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import TracebackType
from typing import Final, Protocol, final

BAR_SECONDS: Final = 1.5  # without a bar


class _Bar(Protocol):
    """A bar of `tqdm`."""

    def set_description(self, desc: str, refresh: bool) -> None: ...

    def update(self) -> object: ...

    def close(self) -> None: ...


@final
class Progress:
    """A bar of progress on standard error, if that is a terminal, once the work takes `BAR_SECONDS`. It disappears at
    the end.

    what:  a text beside the bar, which may change. total: the number of steps, or None if it is not known.
    """

    __slots__ = ("_bar", "_is_terminal", "_n", "_start", "_total", "_unit", "what")

    def __init__(self, what: str, total: int | None = None, unit: str = "unit") -> None:
        self.what, self._total, self._unit = what, total, unit
        self._start, self._n = time.perf_counter(), 0
        self._bar: _Bar | None = None
        try:
            self._is_terminal = sys.stderr.isatty()
        except (AttributeError, ValueError):  # there is no standard error, or it is closed
            self._is_terminal = False

    def step(self) -> None:
        """Count a step."""
        if not self._is_terminal:
            return
        self._n += 1
        if self._bar is not None:
            self._bar.set_description(self.what, refresh=False)
            self._bar.update()
        elif self._n != self._total and time.perf_counter() - self._start > BAR_SECONDS:
            # importing it takes 40 ms, a quarter of what importing fxad takes
            self._bar = import_module("tqdm").tqdm(
                desc=self.what, total=self._total, initial=self._n, unit=self._unit, leave=False
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
