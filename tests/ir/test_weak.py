"""Weak tables and single flight: what runs when an object dies is in C, so that no signal handler runs in it."""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.core.host_functions import HostFunctions
from fxad.core.single_flight import SingleFlight, _RunningCall
from fxad.core.weak import WeakKeyTable, WeakTable
from fxad.ir import Aval
from tests.python_calls import python_calls


class Thing:
    pass


def test_an_entry_of_a_weak_table_dies_in_c() -> None:
    """Python ignores the exception of a signal handler that runs in a callback of a weak reference."""
    table: WeakTable[int, Thing] = WeakTable()
    things = [Thing() for _ in range(3)]
    for k, thing in enumerate(things):
        assert table.put(k, thing) is thing
    assert table.put(0, Thing()) is things[0]
    del thing
    assert python_calls(things.clear) == []
    assert len(table) == 0


def test_a_dead_entry_does_not_remove_the_one_that_replaced_it() -> None:
    table: WeakTable[str, Thing] = WeakTable()
    first, second = Thing(), Thing()
    table.put("key", first)
    cleanup = table._refs["key"].cleanup
    del first
    table.put("key", second)
    cleanup()
    assert table.get("key") is second


def test_values_of_keys_and_host_functions_die_in_c() -> None:
    table: WeakKeyTable[Thing, str] = WeakKeyTable()
    functions = HostFunctions()
    things = [Thing() for _ in range(3)]
    for k, thing in enumerate(things):
        assert table.setdefault(thing, f"value {k}") == table.setdefault(thing, "another") == f"value {k}"
        functions.add(k, lambda *args: args, thing)
    assert table.get(things[1]) == "value 1"
    assert table.get(Thing()) is None
    assert functions.call(1, "f", ["x"]) == ("x",)  # type: ignore[list-item]
    del thing
    assert python_calls(things.clear) == []
    assert len(table) == len(functions) == 0


def test_the_parts_of_an_operand_die_with_it_in_c() -> None:
    """Regression: a callback in Python dropped them, and lost Ctrl-C."""
    where = fx.NamedSharding(fx.make_mesh((1,), ("i",)), fx.P("i"))
    twice = fx.jit(lambda x: x * 2, in_shardings=where)
    operands = [fx.asarray(np.ones(4, np.float32))]
    assert twice(operands[0]).tolist() == twice(operands[0]).tolist() == [2, 2, 2, 2]
    assert weakref.getweakrefcount(operands[0]._buffer) == 1
    twice(fx.asarray(np.ones(4, np.float32)).block_until_ready())
    assert weakref.getweakrefcount(operands[0]._buffer) == 0
    twice(operands[0])
    assert python_calls(operands.clear) == []


def test_a_running_call_ends_in_c() -> None:
    flights = SingleFlight()

    names = python_calls(lambda: flights.run(Thing))
    assert names == ["<lambda>", "run", "__new__", "_call_with_marker", "_enter"]
    assert flights._running == {}


def test_a_waiting_thread_does_not_prolong_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a thread that looked if a call runs kept it alive for a moment. If the call ended then, its thread
    took its next call for one inside of it, and two threads did the work of one key."""

    def called(_: object) -> None:
        raise AssertionError("it would return the call")

    monkeypatch.setattr(_RunningCall, "__call__", called)
    flights, begun, end = SingleFlight(), threading.Event(), threading.Event()
    results: dict[str, str] = {}

    def make() -> str:
        begun.set()
        assert end.wait(60)
        return results.setdefault("key", "value")

    def find() -> str | None:
        return results.get("key")

    first = threading.Thread(target=flights.do, args=("key", find, make))
    first.start()
    assert begun.wait(60)
    assert flights.threads() == {first.ident}
    flights.wait_for_one(flights.threads())
    threading.Timer(0.2, end.set).start()
    assert flights.do("key", find, lambda: "made twice") == "value"
    first.join()
    assert flights.threads() == set()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers")
def test_a_signal_while_values_are_dropped_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: Ctrl-C while a program was dropped was printed, and the program of the user went on."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before: Any = signal.signal(signal.SIGALRM, interrupt)
    try:
        for n in range(10):
            avals = [Aval((k, n, 7), "float32") for k in range(5000)]
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the signal may arrive in any of them
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                del avals
                for _ in range(1000):
                    time.sleep(0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert lost == []
