"""A small attention model, trained on sentences of different lengths, with one compilation for each padded length.

The task: does a sentence contain a word twice? A sentence is a row of word numbers. Batches contain sentences of
similar length (`ragged_batches`). `mask` makes the loss of a sentence that of a padded one, and `vmap` that of a ragged
batch. The gradient equals that of a loop over the sentences.

    python examples/sentences.py --steps 400

The picture. Left: the sentences of eight batches, a line for each, with the padding that completes its batch in grey.
Right: the loss of each step, in the colour of the length that the batch was padded to. Batches of one padded length
share one executable.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from pictures import BLUE, COLORS, INK, add_option, drawing

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, random

WORDS, WIDTH = 24, 32


class Params(TypedDict):
    """The trained arrays."""

    words: fx.Array
    query: fx.Array
    key: fx.Array
    out: fx.Array


def init(key: fx.Array) -> Params:
    a, b, c, d = random.split(key, 4)
    return {
        "words": random.normal(a, (WORDS, WIDTH)),
        "query": random.normal(b, (WIDTH, WIDTH)) / WIDTH,
        "key": random.normal(c, (WIDTH, WIDTH)) / WIDTH,
        "out": random.normal(d, (WIDTH, 2)) / WIDTH,
    }


def loss(params: Params, sentence: fx.Array, label: fx.Array) -> fx.Array:
    """Return the cross entropy of one sentence."""
    x = params["words"][sentence]
    scores = (x @ params["query"]) @ (x @ params["key"]).T
    mixed = fnp.tanh(nn.softmax(scores, axis=-1) @ x - x).max(0)
    return -nn.log_softmax(mixed @ params["out"])[label]


def sentences(count: int, seed: int) -> list[tuple[np.ndarray, np.int32]]:
    """Return sentences of 2 to 20 words, and True if a word occurs twice."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        n = int(rng.integers(2, 21))
        words = rng.permutation(WORDS)[:n] if rng.integers(2) else rng.integers(0, WORDS, n)
        made.append((words.astype(np.int32), np.int32(len(set(words.tolist())) < n)))
    return made


masked = fx.mask(loss, (None, "n>=1", None))


def batch_loss(params: Params, words: fx.Array, labels: fx.Array, lengths: fx.Array) -> fx.Array:
    """Return the mean loss of a ragged batch."""

    def one(sentence: fx.Array, label: fx.Array, n: fx.Array) -> fx.Array:
        found: fx.Array = masked(params, sentence, label, sizes={"n": n})
        return found

    return fx.vmap(one)(words, labels, lengths).mean()


@fx.jit
def step(params: Params, words: fx.Array, labels: fx.Array, lengths: fx.Array) -> tuple[fx.Array, Params]:
    value, slope = fx.value_and_grad(batch_loss)(params, words, labels, lengths)
    return value, fx.tree.map(lambda p, g: p - 0.3 * g, params, slope)


def difference(params: Params, seed: int = 1) -> float:
    """Return the largest difference between the gradient of a ragged batch and that of a loop over its sentences."""
    some = [s for s in sentences(40, seed) if len(s[0]) <= 8][:4]
    ((words, labels), lengths), *_ = fx.ragged_batches(some, len(some), length=lambda s: len(s[0]))
    words = np.where(np.arange(words.shape[1]) < lengths[:, None], words, -(2**31))  # for any padding
    ragged = fx.grad(batch_loss)(params, fnp.asarray(words), fnp.asarray(labels), fnp.asarray(lengths))

    def loop(p: Params) -> fx.Array:
        losses = [loss(p, fnp.asarray(w), fnp.asarray(label)) for w, label in some]
        return fnp.stack(losses).mean()

    return max(
        [float(abs(a - b).max()) for a, b in zip(*map(fx.tree.leaves, (ragged, fx.grad(loop)(params))), strict=True)]
    )


def plot(file: str, losses: list[float], padded: list[int]) -> None:
    """Draws the lengths of the sentences of some batches, and the loss of each step by the padded length."""
    with drawing(file) as (ragged, curve):
        row = 0
        for (words, _), lengths in fx.ragged_batches(sentences(256, 0), 32, length=lambda s: len(s[0])):
            rows = range(row, row := row + len(lengths))
            ragged.barh(rows, words.shape[1], color=INK, alpha=0.25, height=1)
            ragged.barh(rows, lengths, color=BLUE, height=1)
        ragged.set(xlabel="words, and padding in grey", ylabel="sentences", title="eight batches of similar lengths")
        steps, sizes = np.arange(len(losses)), np.asarray(padded)
        for size, color in zip(sorted(set(padded)), COLORS, strict=False):
            chosen = sizes == size
            some = np.asarray(losses)[chosen]
            curve.plot(steps[chosen], some, ".", color=color, markersize=3, label=f"padded to {size}")
        curve.set(xlabel="step", ylabel="loss", title="one compilation for each padded length")
        curve.legend()


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    add_option(parser)
    options = parser.parse_args(argv)
    steps: int = options.steps
    params = init(random.key(0))
    gap = difference(params)
    print(f"gradient of a ragged batch against a loop over its sentences: {gap:.1e}")
    losses: list[float] = []
    padded: list[int] = []
    while len(losses) < steps:
        for (words, labels), lengths in fx.ragged_batches(
            sentences(1024, len(losses)), 32, length=lambda s: len(s[0]), drop_last=True
        ):
            value, params = step(params, fnp.asarray(words), fnp.asarray(labels), fnp.asarray(lengths))
            losses.append(float(value))
            padded.append(words.shape[1])
            if len(losses) == steps:
                break
    first, last = float(np.mean(losses[:20])), float(np.mean(losses[-20:]))
    print(f"loss {first:.3f} -> {last:.3f} in {steps} steps, {len(set(padded))} compilations for 19 lengths")
    if options.plot:
        plot(options.plot, losses, padded)
    return {"difference": gap, "first": first, "last": last, "compilations": len(set(padded))}


if __name__ == "__main__":
    main()
