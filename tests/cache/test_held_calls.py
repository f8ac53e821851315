"""Jitted functions keep no executable beyond the budget of the cache."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad.support.constants import CALL_BYTES, EXECUTABLE_BYTES

FEW = 8 * EXECUTABLE_BYTES  # room for a few executables


def executables_of(f: Any) -> list[Any]:
    """The executables that a jitted function holds."""
    return [held.executable for held in f._by_types.executables.values()]


def _alive(f: Any, refs: list[weakref.ref[Any]]) -> int:
    """The executables of XLA of a function that are alive; adds those that are new to `refs`."""
    known = {r() for r in refs}
    refs += [weakref.ref(e._loaded) for e in executables_of(f) if e._loaded not in known]
    del known
    gc.collect()
    return sum(r() is not None for r in refs)


def test_new_shapes() -> None:
    with fx.cache.private(max_bytes=FEW) as mine:
        f, refs = fx.jit(lambda x: x * 2), list[weakref.ref[Any]]()
        for n in range(1, 40):
            np.testing.assert_array_equal(f(np.ones(n)), 2 * np.ones(n))
            assert _alive(f, refs) <= 9
        stats = mine.stats()
        assert stats.compilations == 39
        assert stats.evictions >= 30
        assert stats.entries == len(executables_of(f)) <= 8
        assert stats.bytes <= FEW + FEW // 4
        assert stats.calls * CALL_BYTES <= FEW // 4


def _called_with_a_new_factory(f: Any, x: Any) -> weakref.ref[Any]:
    def factory() -> int:
        return 0

    f(defaultdict(factory, a=x))
    return weakref.ref(factory)


def test_new_structures_of_one_program() -> None:
    with fx.cache.private(max_bytes=FEW) as mine:
        f, x, factories = fx.jit(lambda d: d["a"] + 1), fnp.ones(2), []
        for _ in range(150):
            factories.append(_called_with_a_new_factory(f, x))
        gc.collect()
        assert mine.stats().compilations == 1
        assert mine.stats().calls * CALL_BYTES <= FEW // 4
        assert sum(r() is not None for r in factories) <= FEW // 4 // CALL_BYTES


def test_new_static_values() -> None:
    with fx.cache.private(max_bytes=FEW) as mine:
        f = fx.jit(lambda x, n: x * n, static_argnums=1)
        refs: list[weakref.ref[Any]] = []
        for n in range(2, 40):
            f(np.ones(3), n)
            refs += [weakref.ref(e._loaded) for j in [*f._jitted._young.values()] for e in executables_of(j)]
        gc.collect()
        assert len({id(e) for r in refs if (e := r()) is not None}) <= 9
        assert mine.stats().bytes <= FEW + FEW // 4


def test_new_shapes_inside_of_a_trace() -> None:
    with fx.cache.private(max_bytes=FEW) as mine:
        f = fx.jit(lambda x: x * 2)
        for n in range(1, 300):
            fx.trace(f, fx.Spec((n,)))
        assert len(f._by_types.programs) * CALL_BYTES <= FEW // 4
        assert mine.stats().calls * CALL_BYTES <= FEW // 4


def _run_beside_many(run: Callable[[], object]) -> None:
    many = fx.jit(lambda x: x * 2)
    for n in range(1, 60):
        many(np.ones(n))
        run()


def test_what_is_used_stays() -> None:
    runs: list[int] = []
    x, y, z = fnp.ones(2), fnp.ones(3), np.ones(4)

    def f(x: Any) -> Any:
        runs.append(1)
        return x - 1

    with fx.cache.private(max_bytes=FEW):
        alternating, fast, converted = fx.jit(f), fx.jit(f), fx.jit(f)
        _run_beside_many(lambda: (alternating(x), alternating(y), fast(x), converted(z)))
    assert len(runs) == 4


def test_a_dropped_program_is_made_again() -> None:
    with fx.cache.private(max_bytes=FEW):
        f = fx.jit(lambda d: d["a"] + d["b"])
        first = {"a": fnp.ones(2), "b": fnp.ones(2)}
        f(first)
        for n in range(3, 40):
            f({"a": fnp.ones(n), "b": fnp.ones(n)})
        np.testing.assert_array_equal(f(first), 2 * np.ones(2))
        np.testing.assert_array_equal(f({"b": np.ones(2), "a": np.ones(2)}), 2 * np.ones(2))


def test_a_cache_of_no_bytes() -> None:
    with fx.cache.private(max_bytes=0) as mine:
        f = fx.jit(lambda x: x * 2)
        for _ in range(3):
            for n in (1, 2):
                np.testing.assert_array_equal(f(np.ones(n)), 2 * np.ones(n))
        assert mine.stats().entries == 0


def _closing_over(closed: Any) -> tuple[Any, weakref.ref[Any]]:
    return fx.jit(lambda x: x * closed.factor), weakref.ref(closed)


def test_a_function_is_freed_at_once() -> None:
    class Closed:
        factor = 2

    f, alive = _closing_over(Closed())
    f(np.ones(2))
    f(np.ones(3))
    calls = fx.cache.stats().calls
    gc.disable()
    try:
        del f
        assert alive() is None
        assert fx.cache.stats().calls == calls - 4
    finally:
        gc.enable()
