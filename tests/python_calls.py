"""Counts calls of Python functions, and lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def python_calls(work: Callable[[], object]) -> list[str]:
    """Returns the names of the Python functions that `work` enters, its own first."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return names


def python_lines(work: Callable[[], object]) -> int:
    """Returns the number of lines of Python that `work` runs. Each round of a loop or comprehension counts."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> object:
        nonlocal count
        count += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)  # type: ignore[arg-type]  # typeshed: a function that returns itself
    try:
        work()
    finally:
        sys.settrace(before)
    return count
