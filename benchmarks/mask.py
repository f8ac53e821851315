"""The time of a masked step beside hand-written masking, and beside one program for each length.

python benchmarks/mask.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import nn

BATCH, ROOM, WIDTH, REPEATS = 16, 128, 64, 100


def attention(w: Any, x: Any) -> Any:
    """The loss of one sentence."""
    return (nn.softmax((x @ w) @ x.T * 0.1, axis=-1) @ x).sum(0).mean()


def by_hand(w: Any, x: Any, n: Any) -> Any:
    """The same for a padded sentence, with masks written by hand."""
    inside = fnp.arange(ROOM) < n
    x = fnp.where(inside[:, None], x, 0.0)
    scores = fnp.where(inside[None, :], (x @ w) @ x.T * 0.1, -fnp.inf)
    return fnp.where(inside[:, None], nn.softmax(scores, axis=-1) @ x, 0.0).sum(0).mean()


def fastest(runs: Mapping[str, Callable[..., Any]], *args: Any) -> dict[str, float]:
    """The fastest of several calls of each function, in turn, in ms."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(REPEATS):
        for how, run in runs.items():
            start = time.perf_counter()
            fx.tree.map(lambda v: v.block_until_ready(), run(*args))
            best[how] = min(best[how], time.perf_counter() - start)
    return {how: seconds * 1e3 for how, seconds in best.items()}


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    w = fnp.asarray(rng.normal(size=(WIDTH, WIDTH)).astype("float32"))
    xs = fnp.asarray(rng.normal(size=(BATCH, ROOM, WIDTH)).astype("float32"))
    lengths = rng.integers(1, ROOM + 1, BATCH).astype(np.int32)
    ns = fnp.asarray(lengths)
    masked = fx.mask(attention, (None, "(n>=1, _)"))

    def of_mask(w: Any, xs: Any, ns: Any) -> Any:
        return fx.vmap(lambda x, n: masked(w, x, sizes={"n": n}))(xs, ns).mean()

    def of_hand(w: Any, xs: Any, ns: Any) -> Any:
        return fx.vmap(lambda x, n: by_hand(w, x, n))(xs, ns).mean()

    for name, step in (("value", lambda f: f), ("value and gradient", fx.value_and_grad)):
        runs = {"mask": fx.jit(step(of_mask)), "by hand": fx.jit(step(of_hand))}
        first: dict[str, float] = {}
        for how, run in runs.items():
            start = time.perf_counter()
            run(w, xs, ns)
            first[how] = time.perf_counter() - start
        times = fastest(runs, w, xs, ns)
        for how, spent in times.items():
            print(f"{name:20s} {how:12s} {spent:8.2f} ms, the first call {first[how] * 1e3:6.0f} ms")
        print(f"{name:20s} mask / by hand {times['mask'] / times['by hand']:.3f}")
        one = fx.jit(step(attention))
        start = time.perf_counter()
        for x, n in zip(np.asarray(xs), lengths, strict=True):
            one(w, x[:n])
        spent = time.perf_counter() - start
        print(f"{name:20s} one program a length: {len(set(lengths))} lengths, first calls {spent:.1f} s")


if __name__ == "__main__":
    main()
