"""The time of `mask` beside masks that are written by hand, and beside one program for each length.

python -m benchmarks.bench_mask
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.harness import Row, race, show
from fxad import nn

BATCH, ROOM, WIDTH, LENGTHS, ROUNDS = 16, 128, 64, 24, 150


def attention(w: Any, x: Any) -> Any:
    """The loss of one sentence."""
    return (nn.softmax((x @ w) @ x.T * 0.1, axis=-1) @ x).sum(0).mean()


def by_hand(xp: Any, softmax: Any, w: Any, x: Any, n: Any) -> Any:
    """The same for a padded sentence, with masks written by hand."""
    inside = xp.arange(ROOM) < n
    x = xp.where(inside[:, None], x, 0.0)
    scores = xp.where(inside[None, :], (x @ w) @ x.T * 0.1, -xp.inf)
    return xp.where(inside[:, None], softmax(scores, axis=-1) @ x, 0.0).sum(0).mean()


masked = fx.mask(attention, (None, "(n>=1, _)"))


def of_mask(w: Any, xs: Any, ns: Any) -> Any:
    """The mean loss of a ragged batch, by `mask`."""
    return fx.vmap(lambda x, n: masked(w, x, sizes={"n": n}))(xs, ns).mean()


def of_hand(w: Any, xs: Any, ns: Any) -> Any:
    """The same with masks by hand."""
    return fx.vmap(lambda x, n: by_hand(fnp, nn.softmax, w, x, n))(xs, ns).mean()


def of_jax(w: Any, xs: Any, ns: Any) -> Any:
    """The same in jax."""
    return jax.vmap(lambda x, n: by_hand(jnp, jax.nn.softmax, w, x, n))(xs, ns).mean()


def _waiting(run: Callable[..., Any], *args: Any) -> Callable[[], object]:
    return lambda: [v.block_until_ready() for v in jax.tree.leaves(run(*args))]


def _first_calls(run: Callable[..., Any], w: Any, examples: Sequence[Any]) -> float:
    """Microseconds of the first call with each example."""
    start = time.perf_counter()
    for x in examples:
        _waiting(run, w, x)()
    return 1e6 * (time.perf_counter() - start)


def rows() -> list[Row]:
    """The table. The results of the three are compared first."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(WIDTH, WIDTH)).astype("float32")
    xs = rng.normal(size=(BATCH, ROOM, WIDTH)).astype("float32")
    ns = rng.integers(1, ROOM + 1, BATCH).astype(np.int32)
    ours, theirs = [fnp.asarray(v) for v in (w, xs, ns)], [jnp.asarray(v) for v in (w, xs, ns)]
    steps: dict[str, tuple[Any, Any, Any]] = {
        "value": (fx.jit(of_mask), fx.jit(of_hand), jax.jit(of_jax)),
        "value and gradient": (
            fx.jit(fx.value_and_grad(of_mask)),
            fx.jit(fx.value_and_grad(of_hand)),
            jax.jit(jax.value_and_grad(of_jax)),
        ),
    }
    out = []
    for name, (mask, hand, peer) in steps.items():
        for want in (hand(*ours), peer(*theirs)):
            for x, y in zip(fx.tree.leaves(mask(*ours)), jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
        mask_us, hand_us, jax_us = race(
            _waiting(mask, *ours), _waiting(hand, *ours), _waiting(peer, *theirs), rounds=ROUNDS, seconds=0.01
        )
        out.append(Row(f"mask beside masks by hand: {name}", mask_us, hand_us, 1.05))
        out.append(Row(f"mask beside jax's masks by hand: {name}", mask_us, jax_us))
    lengths = rng.permutation(np.arange(1, ROOM + 1))[:LENGTHS]
    examples = [rng.normal(size=(n, WIDTH)).astype("float32") for n in lengths]
    every, each = fx.bucketed(fx.value_and_grad(attention), (None, "(n>=1, _)")), fx.jit(fx.value_and_grad(attention))
    bucketed_us, each_us = [_first_calls(run, w, examples) for run in (every, each)]
    out.append(Row(f"mask: first calls with {LENGTHS} lengths, bucketed", bucketed_us, each_us))
    x = fnp.asarray(examples[0])
    bucketed_us, each_us = race(_waiting(every, w, x), _waiting(each, w, x), rounds=ROUNDS)
    out.append(Row("mask: a call of bucketed", bucketed_us, each_us))
    return out


if __name__ == "__main__":
    show("mask: fxad beside masks by hand", rows())
