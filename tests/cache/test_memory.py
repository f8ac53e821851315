"""The compile cache in memory: a limit in bytes, no pinned entries, private caches, and the explanation of misses."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import runtime
from fxad.errors import ArgumentError, CompileError, ParameterError
from fxad.passes import plan_of
from fxad.xla import executable

X = np.arange(3, dtype=np.float32)
CPU = runtime.devices("cpu")[0]

# Programs that a test compiles must not be in the cache from another test.
_fresh = itertools.count(30_000)


def fresh() -> float:
    return next(_fresh) + 0.25


def scaled(c: float) -> fx.Program[..., Any]:
    return fx.trace(lambda x: fnp.sin(x) * c, X)


def together(n: int, work: Callable[[int], None]) -> None:
    """Runs `work(k)` in n threads that start at the same time."""
    barrier = threading.Barrier(n)

    def run(k: int) -> None:
        barrier.wait()
        work(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any([t.is_alive() for t in threads])


# ---------------------------------------------------------------------------------------------------------- pinning


def test_a_loop_over_large_results_keeps_only_the_last_one() -> None:
    """Each iteration makes a new function that returns 4 MB. It is compiled once, and only the last result is alive."""
    n = 1_000_000 + next(_fresh)
    client = CPU.client

    def large() -> int:
        return sum([x.aval.shape == (n,) for x in client.live_arrays() if not x.is_deleted()])

    before, compiled = large(), fx.cache.stats().compilations
    out = None
    for _ in range(40):
        out = fx.jit(lambda: 1.0 * fnp.ones((n,)))()
        assert large() - before <= 2
    assert out is not None
    assert large() - before == 1
    assert fx.cache.stats().compilations - compiled == 1
    del out
    assert large() == before


def test_unreferenced_constants_are_collected() -> None:
    table = fx.asarray(np.full((1000,), fresh(), np.float32))
    gone = weakref.ref(table)
    executable = fx.lower(fx.trace(lambda x, t=table: x[0] * t, X)).compile()
    assert executable(X).shape == (1000,)
    del table
    assert gone() is not None  # the executable reads it
    del executable
    gc.collect()
    assert gone() is None


def test_evicted_programs_and_executables_are_collected() -> None:
    with fx.cache.private(max_bytes=1) as mine:
        program = scaled(fresh())
        executable = fx.lower(program).compile()
        loaded = weakref.ref(executable._loaded)
        assert mine.stats().entries == 0
        assert fx.lower(program).compile()._loaded is loaded()  # found, because it is still referenced
        assert (mine.stats().hits, mine.stats().misses) == (1, 1)
        gone = weakref.ref(program.jaxpr)
        del executable, program
        gc.collect()
        assert (loaded(), gone()) == (None, None)


def test_the_least_recently_used_entry_is_evicted() -> None:
    programs = [scaled(fresh()) for _ in range(4)]
    with fx.cache.private() as mine:
        programs[0](X)
        one = mine.stats().bytes
        mine.configure(max_bytes=3 * one + one // 2)
        for p in (programs[1], programs[2], programs[0], programs[3]):
            p(X)
        stats = mine.stats()
        assert (stats.entries, stats.evictions, stats.compilations) == (3, 1, 4)
        assert stats.bytes <= 3 * one + one // 2
        programs[0](X)
        assert mine.stats().compilations == 4
        programs[1](X)
        assert mine.stats().compilations == 5
        mine.configure(max_bytes=0)
        assert (mine.stats().entries, mine.stats().bytes) == (0, 0)


def test_bytes_grow_with_the_program() -> None:
    def deep(n: int) -> fx.Program[..., Any]:
        c = fresh()

        def f(x: Any) -> Any:
            for _ in range(n):
                x = fnp.tanh(x @ x) * c
            return x

        return fx.trace(f, fx.Spec((8, 8)))

    sizes = []
    for n in (1, 30):
        with fx.cache.private() as mine:
            fx.lower(deep(n)).compile()
            sizes.append(mine.stats().bytes)
    assert 65536 < sizes[0] < sizes[1] / 2


# ------------------------------------------------------------------------------------------------------------ stats


def test_stats_count_the_time_saved() -> None:
    program = scaled(fresh())
    with fx.cache.private() as mine:
        for _ in range(5):
            program(X)
        stats = mine.stats()
    assert (stats.hits, stats.misses, stats.compilations, stats.entries) == (4, 1, 1, 1)
    assert stats.seconds > 0
    assert stats.seconds_saved == pytest.approx(4 * stats.seconds)
    assert stats.bytes > 0


@pytest.mark.parametrize("bad", [-1, 1.5, True, "1 GB"])
def test_a_budget_is_a_number_of_bytes(bad: Any) -> None:
    for make in (lambda: fx.Cache(bad), lambda: fx.cache.private(bad), lambda: fx.cache.configure(max_bytes=bad)):
        with pytest.raises(ParameterError) as e:
            make()
        assert e.value.message == f"cache: max_bytes must be a number of bytes, got {bad!r}"


# ------------------------------------------------------------------------------------------------------ one's own cache


def test_a_private_cache_is_in_force_in_its_block() -> None:
    program = scaled(fresh())
    outside = fx.cache.stats()
    with fx.cache.private() as mine:
        program(X)
        assert runtime.active_cache() is mine
        with fx.cache.private() as inner:
            program(X)
        assert (mine.stats().misses, inner.stats().misses) == (1, 1)
        program(X)
        assert mine.stats().hits == 1
    assert runtime.active_cache() is fx.cache
    assert fx.cache.stats() == outside


def test_an_error_leaves_the_block() -> None:
    with pytest.raises(KeyError), fx.cache.private():
        raise KeyError
    assert runtime.active_cache() is fx.cache


def test_a_cache_is_used_again() -> None:
    mine, program = fx.Cache(), scaled(fresh())
    for _ in range(2):
        with mine.use() as same:
            assert same is mine
            program(X)
    assert (mine.stats().misses, mine.stats().hits) == (1, 1)


def test_threads_have_the_cache_of_their_context() -> None:
    program = scaled(fresh())
    with fx.cache.private() as mine, ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, program, X).result()
        assert mine.stats().misses == 1

        async def tasks() -> None:
            await asyncio.gather(*[asyncio.to_thread(program, X) for _ in range(3)])

            async def own() -> int:
                with fx.cache.private() as theirs:
                    await asyncio.sleep(0)
                    program(X)
                    return theirs.stats().misses

            assert list(await asyncio.gather(own(), own())) == [1, 1]
            assert runtime.active_cache() is mine

        asyncio.run(tasks())
        assert (mine.stats().misses, mine.stats().hits) == (1, 3)


# ---------------------------------------------------------------------------------------------------------- threads


def test_32_threads_over_many_keys_compile_each_once() -> None:
    """32 threads trace, transform, compile and call the same eight programs. All get the same bits."""
    constants = [fresh() for _ in range(8)]
    found: list[dict[float, list[float]]] = [{} for _ in range(32)]
    mine = fx.Cache()

    def work(k: int) -> None:
        order = np.random.default_rng(k).permutation(constants)
        with mine.use():
            for c in map(float, order):
                f = lambda x, c=c: (fnp.sin(x) * c).sum()  # noqa: E731
                run: Any = fx.lower(fx.grad(fx.trace(f, X))).compile()
                found[k][c] = run(X).tolist() + fx.grad(f)(X).tolist()

    together(32, work)
    assert all([row == found[0] and len(row) == 8 for row in found])
    assert mine.stats().compilations == 8
    assert mine.stats().hits + mine.stats().misses == 32 * 8 * 2


def test_threads_that_clear_and_evict_do_no_harm() -> None:
    mine = fx.Cache(max_bytes=200_000)  # room for two of them
    constants = [fresh() for _ in range(4)]

    def work(k: int) -> None:
        with mine.use():
            for n in range(12):
                c = constants[(n + k) % 4]
                assert fx.trace(lambda x: x * c, X)(X).tolist() == (X * np.float32(c)).tolist()
                if n % 5 == k % 5:
                    mine.clear()
                mine.stats()
                mine.explain()

    together(8, work)
    assert 0 <= mine.stats().bytes <= 200_000


def test_a_compilation_that_fails_under_threads_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three attempts fail. Each is the error of one caller, and no thread blocks."""
    attempts, real = itertools.count(), runtime.compile_module

    def flaky(*args: Any) -> runtime.XlaExecutable:
        if next(attempts) < 3:
            raise CompileError("compile: not now")
        return real(*args)

    monkeypatch.setattr(executable, "compile_module", flaky)
    mine, program = fx.Cache(), scaled(fresh())
    outcomes: list[runtime.XlaExecutable | str] = []

    def work(_: int) -> None:
        try:
            outcomes.append(mine(program.jaxpr, CPU))
        except CompileError as e:
            outcomes.append(e.message)

    together(16, work)
    assert sum([o == "compile: not now" for o in outcomes]) == 3
    assert len({id(o) for o in outcomes if isinstance(o, runtime.XlaExecutable)}) == 1
    assert (mine.stats().compilations, mine.stats().hits) == (1, 12)


def test_a_compilation_inside_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finaliser that runs during a compilation may compile too, even the same program."""
    real, mine = runtime.compile_module, fx.Cache()
    program, other = scaled(fresh()), scaled(fresh())
    depth = itertools.count()

    def nested(*args: Any) -> runtime.XlaExecutable:
        if next(depth) == 0:
            mine(other.jaxpr, CPU)
            mine(program.jaxpr, CPU)
        return real(*args)

    monkeypatch.setattr(executable, "compile_module", nested)

    def work(_: int) -> None:
        mine(program.jaxpr, CPU)

    together(1, work)
    assert mine(program.jaxpr, CPU) is mine(program.jaxpr, CPU)
    assert mine.stats().entries == 2


# ---------------------------------------------------------------------------------------------------------- explain


def test_explain_gives_the_nearest_program_and_the_first_difference(nothing_remembered: None) -> None:
    def step(x: Any, rate: float) -> Any:
        return fnp.sin(x) * rate + fnp.cos(x)

    with fx.cache.private() as mine:
        fx.trace(lambda x: x[0], np.ones((4, 4)))(np.ones((4, 4)))
        fx.trace(lambda x: step(x, 0.5), X)(X)
        asked = fx.trace(lambda x: step(x, 0.25), X)
        why = mine.explain(asked)
        assert not why.held
        assert why.nearest is fx.trace(lambda x: step(x, 0.5), X).jaxpr
        text, _, where = str(why).partition("\n  traced at     ")
        assert where.startswith(f"{__file__}:")
        assert text == (
            "<Jaxpr <lambda>(f32[3]) -> (f32[3]), 4 equations>: not held\n"
            "  nearest       <Jaxpr <lambda>(f32[3]) -> (f32[3]), 4 equations>\n"
            "  differs at    equation 1 / operand 1: 0.25:f32[3] vs 0.5:f32[3]"
        )
        asked(X)
        assert mine.explain(asked.jaxpr).held
        assert mine.explain(asked).difference == why.difference


def test_explain_finds_other_options_and_devices_first() -> None:
    program = scaled(fresh())
    with fx.cache.private() as mine:
        fx.lower(program).compile()
        why = mine.explain(program, fx.CompileOptions(optimization_level=1))
    assert (why.held, why.nearest) == (False, program.jaxpr)
    assert str(why.difference) == "options / optimization_level: 1 vs None"


def test_explain_sees_into_bodies() -> None:
    def loop(c: float) -> Any:
        return fx.trace(lambda x: fx.lax.scan(lambda s, _: (fnp.sin(s) * c, None), x, None, length=4)[0], X)

    a, b = loop(fresh()), loop(fresh())
    with fx.cache.private() as mine:
        scaled(fresh())(X)
        a(X)
        why = mine.explain(b)
    assert why.nearest is a.jaxpr
    assert why.difference is not None
    assert why.difference.path[:1] == ("equation 0",)
    assert "operand 1" in why.difference.path


def test_explain_of_a_program_that_runs_as_units() -> None:
    def layers(c: float) -> fx.Program[..., Any]:
        @fx.jit
        def layer(x: Any) -> Any:
            for k in range(30):
                x = fnp.sin(x) * (k + c)
            return x

        return fx.trace(lambda x: layer(layer(layer(layer(x)))), fx.Spec((256, 1024), np.float32))

    with fx.cache.private() as mine:
        program, other = layers(0.5), layers(0.25)
        donated = fx.CompileOptions(donate=(0,))
        plan = plan_of(program.jaxpr, "auto", (0,))
        assert (len(plan.units), len(plan.steps)) == (1, 4)
        assert not mine.explain(program, donated).held
        fx.lower(program).compile(donate=0)
        assert (why := mine.explain(program, donated)).held, str(why)
        assert str(why) == f"{program.jaxpr!r}: held"
        why = mine.explain(other, donated)
    assert (why.held, why.nearest) == (False, plan.units[0].body)
    assert str(why.difference).endswith(": 0.25:f32[256,1024] vs 0.5:f32[256,1024]")


def test_explain_of_an_empty_cache() -> None:
    with fx.cache.private() as mine:
        assert mine.explain() == ""
        why = mine.explain(scaled(1.5))
    assert (why.held, why.nearest, why.difference) == (False, None, None)
    assert str(why).endswith(": not held")


def test_explain_takes_programs() -> None:
    with pytest.raises(ArgumentError) as e:
        fx.cache.explain(3)  # type: ignore[call-overload]
    assert e.value.message == "cache.explain: an int is not a program: 3"


def test_only_the_cache_keeps_eager_programs_alive() -> None:
    """Indexing of many shapes makes many programs. Only those that fit into the limit are alive."""
    before = len(_loaded())
    with fx.cache.private(max_bytes=60_000) as cache:
        for n in range(2, 60):
            fnp.asarray(np.ones(n, np.float32))[1:]
        stats = cache.stats()
        assert stats.misses >= 58
        assert stats.bytes <= 60_000
        held = len(_loaded()) - before
        assert held <= stats.entries + 2, "the last ones are in use"
        assert stats.entries < 58
    x = fnp.asarray(np.ones(7, np.float32))
    np.testing.assert_array_equal(x[1:], np.ones(6))
    np.testing.assert_array_equal(fnp.sin(x), fnp.sin(x))


def _loaded() -> list[runtime.XlaExecutable]:
    gc.collect()
    return [x for x in gc.get_objects() if type(x) is runtime.XlaExecutable]
