"""Time of `mask` beside masks that are written by hand, and beside one program for each length.

python -m benchmarks.bench_mask
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks.harness import Row, race, show
from fxad import nn

BATCH, PADDED, WIDTH, LENGTHS, ROUNDS = 16, 128, 64, 24, 100
DEPTH = 2
# parameters of a layer: scale and shift of its norm, and two products with their biases
SHAPES: Final = ((WIDTH,), (WIDTH,), (WIDTH, 2 * WIDTH), (2 * WIDTH,), (2 * WIDTH, WIDTH), (WIDTH,))


def attention(w: Any, x: Any) -> Any:
    """The loss of one sentence."""
    return (nn.softmax((x @ w) @ x.T * 0.1, axis=-1) @ x).sum(0).mean()


def by_hand(xp: Any, softmax: Any, w: Any, x: Any, n: Any) -> Any:
    """The loss of one padded sentence, with masks written by hand."""
    inside = xp.arange(PADDED) < n
    x = xp.where(inside[:, None], x, 0.0)
    scores = xp.where(inside[None, :], (x @ w) @ x.T * 0.1, -xp.inf)
    return xp.where(inside[:, None], softmax(scores, axis=-1) @ x, 0.0).sum(0).mean()


def layers(norm: Any, gelu: Any, params: Any, x: Any) -> Any:
    """Residual layers of a layer norm, products with biases, and gelu."""
    for scale, shift, w, b, back, c in params:
        x = x + gelu(norm(x, scale, shift) @ w + b) @ back + c
    return x


def network(params: Any, x: Any) -> Any:
    """The loss of one example: the mean square of the results of its rows."""
    return (layers(nn.layer_norm, nn.gelu, params, x) ** 2).mean()


def network_by_hand(xp: Any, norm: Any, gelu: Any, params: Any, x: Any, n: Any) -> Any:
    """The loss of one padded example, with masks written by hand: of the operand, and of the result before the mean."""
    inside = (xp.arange(PADDED) < n)[:, None]
    x = xp.where(inside, x, 0.0)
    return xp.where(inside, layers(norm, gelu, params, x) ** 2, 0.0).sum() / (n * WIDTH)


def _norm_of_jax(x: Any, scale: Any, shift: Any) -> Any:
    return jax.nn.standardize(x, epsilon=1e-5) * scale + shift


def batches(model: Any, hand: Any, jaxs: Any) -> tuple[Any, Any, Any]:
    """Returns the mean loss of a ragged batch: by `mask`, with masks by hand, and with masks by hand in jax."""
    masked = fx.mask(model, (None, "(n>=1, _)"))

    def of_mask(w: Any, xs: Any, ns: Any) -> Any:
        return fx.vmap(lambda x, n: masked(w, x, sizes={"n": n}))(xs, ns).mean()

    def of_hand(w: Any, xs: Any, ns: Any) -> Any:
        return fx.vmap(lambda x, n: hand(w, x, n))(xs, ns).mean()

    def of_jax(w: Any, xs: Any, ns: Any) -> Any:
        return jax.vmap(lambda x, n: jaxs(w, x, n))(xs, ns).mean()

    return of_mask, of_hand, of_jax


def _waiting(run: Callable[..., Any], *args: Any) -> Callable[[], object]:
    return lambda: [v.block_until_ready() for v in jax.tree.leaves(run(*args))]


def _first_calls(run: Callable[..., Any], w: Any, examples: Sequence[Any]) -> float:
    """Returns the microseconds of the first call for each example."""
    start = time.perf_counter()
    for x in examples:
        _waiting(run, w, x)()
    return 1e6 * (time.perf_counter() - start)


def _compared(what: str, w: Any, losses: tuple[Any, Any, Any]) -> list[Row]:
    """Returns the rows of one model: the value, and the value and the gradient with respect to `w`."""
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(BATCH, PADDED, WIDTH)).astype("float32")
    ns = rng.integers(1, PADDED + 1, BATCH).astype(np.int32)
    ours, theirs = [fx.tree.map(f, (w, xs, ns)) for f in (fnp.asarray, jnp.asarray)]
    masked, by_hands, of_jax = losses
    steps: dict[str, tuple[Any, Any, Any]] = {
        "value": (fx.jit(masked), fx.jit(by_hands), jax.jit(of_jax)),
        "value and gradient": (
            fx.jit(fx.value_and_grad(masked)),
            fx.jit(fx.value_and_grad(by_hands)),
            jax.jit(jax.value_and_grad(of_jax)),
        ),
    }
    out = []
    for name, (mask, hand, peer) in steps.items():
        for want in (hand(*ours), peer(*theirs)):
            for x, y in zip(fx.tree.leaves(mask(*ours)), jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
        mask_us, hand_us, jax_us = race(
            _waiting(mask, *ours), _waiting(hand, *ours), _waiting(peer, *theirs), rounds=ROUNDS, seconds=0.03
        )
        out.append(Row(f"mask beside masks by hand: {what}{name}", mask_us, hand_us, 1.05))
        out.append(Row(f"mask beside jax's masks by hand: {what}{name}", mask_us, jax_us))
    return out


def rows() -> list[Row]:
    """Returns the table, after comparing the results of the three."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(WIDTH, WIDTH)).astype("float32")
    params = [tuple([rng.normal(size=shape).astype("float32") * 0.1 for shape in SHAPES]) for _ in range(DEPTH)]
    out = _compared("", w, batches(attention, partial(by_hand, fnp, nn.softmax), partial(by_hand, jnp, jax.nn.softmax)))
    hand, jaxs = [
        partial(network_by_hand, *own) for own in ((fnp, nn.layer_norm, nn.gelu), (jnp, _norm_of_jax, jax.nn.gelu))
    ]
    out += _compared("layers with norms and biases, ", params, batches(network, hand, jaxs))
    lengths = rng.permutation(np.arange(1, PADDED + 1))[:LENGTHS]
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
