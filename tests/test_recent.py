"""The bounded table of the most recently used entries."""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Thread
from types import FrameType
from typing import Any

from hypothesis import given, strategies as st

from fxad.core.lru import LRUCache


@given(st.integers(1, 8), st.lists(st.integers(0, 20)))
def test_the_most_recently_used_keys_are_in_the_table(limit: int, keys: list[int]) -> None:
    table: LRUCache[int, str] = LRUCache(limit)
    for key in keys:
        found = table.get(key)
        assert found in (None, str(key))
        if found is None:
            table.put(key, str(key))
        assert len(table) <= 2 * limit
    last = list(dict.fromkeys(reversed(keys)))[:limit]
    assert all(table.get(key) == str(key) for key in last)


def test_cleared() -> None:
    table: LRUCache[str, int] = LRUCache(3)
    table.put("a", 1)
    table.clear()
    assert (len(table), table.get("a")) == (0, None)


def test_peek_after_an_interruption() -> None:
    """Regression: an exception between two steps of `put` left `peek` with the old generation for ever."""

    class Interrupted(BaseException):
        pass

    steps = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code is LRUCache.put.__code__:
            steps -= 1
            if not steps:
                raise Interrupted
        return trace

    for stop in range(1, 40):
        table: LRUCache[int, int] = LRUCache(2)
        table.put(1, 1)
        table.put(2, 2)
        steps, before = stop, sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # 3.12 looks for one such frame when it starts tracing
        sys.settrace(trace)
        with suppress(Interrupted):
            table.put(3, 3)
        sys.settrace(before)
        table.put(4, 4)
        assert table.peek(4) == 4
        table.clear()
        assert table.peek(4) is None


def test_many_threads() -> None:
    table: LRUCache[int, int] = LRUCache(16)
    wrong: list[tuple[int, int]] = []

    def work(start: int) -> None:
        for k in range(5000):
            key = (start + k * 7) % 40
            found = table.get(key)
            if found is None:
                table.put(key, -key)
            elif found != -key:
                wrong.append((key, found))

    threads = [Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(table) <= 32 + 8  # a thread may swap the two generations while others add entries
