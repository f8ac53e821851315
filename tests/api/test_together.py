"""32 threads use all features at once, in one cache and in private ones, without disturbing each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ExecutionError

X = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
W = [np.full((4, 4), 0.1 * k, np.float32) for k in range(4)]
THREADS = 32


@fx.jit
def layer(w: Any, x: Any) -> Any:
    return fnp.tanh(x @ w) + x


def loss(ws: Any, x: Any) -> Any:
    for w in ws:
        x = layer(w, x)
    return (x * x).sum()


def linked() -> Any:
    return fx.jit(fx.grad(lambda ws, x: loss(ws, x)), units=lambda _: True)


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in fx.tree.leaves(tree)]


def pieces_of_work(folder: Path) -> list[Callable[[int], None]]:
    """Returns pieces of work for a thread. Each checks its results."""
    plain, with_units, shared = bits(fx.grad(loss)(W, X)), bits(linked()(W, X)), linked()
    give_up = fx.jit(lambda s, g: s - g, donate="s")
    exported = fx.lower(fx.trace(lambda x: fnp.sin(x) * 2.0, X)).export()

    def transform(_: int) -> None:
        assert bits(fx.grad(loss)(W, X)) == plain

    def call(_: int) -> None:
        assert bits(shared(W, X)) == with_units

    def save_and_load(k: int) -> None:
        program = fx.trace(fx.vmap(lambda x: fnp.sin(x).sum()), X)
        path = folder / f"{k % 3}.fxad"  # all threads write the same three files
        fx.save(program, path)
        assert fx.load(path).jaxpr is program.jaxpr

    def clear(_: int) -> None:
        fx.cache.clear()

    def private(_: int) -> None:
        with fx.cache.private() as mine:
            assert bits(linked()(W, X)) == with_units
        assert mine.stats().compilations == mine.stats().misses > 1

    def on_disk(_: int) -> None:
        with fx.cache.private(dir=folder / "cache") as mine:
            np.testing.assert_allclose(np.asarray(fx.jit(lambda x: fnp.cos(x) * 3.0)(X)), np.cos(X) * 3, rtol=1e-6)
        assert mine.stats().compilations + mine.stats().disk_hits == mine.stats().misses > 0

    def donate(_: int) -> None:
        x = fx.asarray(X)
        assert not np.asarray(give_up(x, fx.asarray(X))).any()
        with pytest.raises(ExecutionError, match="was donated to"):
            np.asarray(x)

    def foreign(_: int) -> None:
        np.testing.assert_allclose(fx.load_exported(exported)(X), np.sin(X) * 2, rtol=1e-6)

    def look(_: int) -> None:
        fx.interpret(fx.trace(fx.grad(fx.remat(loss)), W, X), W, X)
        fx.cache.explain()
        assert fx.cache.stats().bytes >= 0

    return [transform, call, save_and_load, clear, private, on_disk, donate, foreign, look]


def test_32_threads_do_everything_at_once(tmp_path: Path) -> None:
    todo, barrier, failed = pieces_of_work(tmp_path), threading.Barrier(THREADS), list[BaseException]()

    def run(k: int) -> None:
        order = np.random.default_rng(k).integers(0, len(todo), 3)
        barrier.wait()
        try:
            for n in order:
                todo[n](k)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not any(t.is_alive() for t in threads), "a thread waits for ever"
    if failed:
        raise failed[0]
