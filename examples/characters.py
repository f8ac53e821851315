"""A transformer that writes sonnets, character by character.

    python examples/characters.py

Two dozen of Shakespeare's sonnets. A causal transformer learns the next character on all of them except the last three,
on which it is tested. The baseline is the entropy of single characters: the loss of a guesser who knows only their
frequencies. In a few seconds the model learns common words, lines and the indented couplet.

Layers are stacked and run by one `lax.scan`, whose body is rematerialised; this script prints the memory that this
saves. Keys are values: the draw of a batch is a function of a key and the number of the step, so each run gives the
same poem.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, random

TEXT = (Path(__file__).parent / "data" / "sonnets.txt").read_text(encoding="utf-8")
ALPHABET = "".join(sorted(set(TEXT)))
HELD_OUT = 3  # sonnets

CONTEXT = 64  # number of earlier characters that a prediction reads
WIDTH, HEADS, LAYERS = 64, 4, 2
BATCH = 8
QUIET = 0.3  # initial scale of what a layer adds to its input
RATE, DECAY, BETA_1, BETA_2 = 1e-2, 0.1, 0.9, 0.95


@fx.tree.dataclass
class Block:
    """A layer: attention, then a network at each position. Normalisations have no gain, because a matrix follows."""

    query_key_value: fx.Array
    near: fx.Array  # [HEADS, CONTEXT]: the preference of a head for the character so many places back
    out: fx.Array
    up: fx.Array
    down: fx.Array


@fx.tree.dataclass
class Params:
    """The model. The leaves of `blocks` have the layers along axis 0."""

    characters: fx.Array
    blocks: Block
    head: fx.Array


@fx.tree.dataclass
class State:
    """Parameters, Adam's averages of their gradients, and the number of steps."""

    params: Params
    mean: Params
    square: Params
    steps: fx.Array


def initial(key: fx.Array, layers: int = LAYERS) -> Params:
    """Return random parameters, a function of the key."""
    normal = nn.initializers.lecun_normal()
    at_characters, at_blocks = random.split(key)

    def block(key: fx.Array) -> Block:
        k = random.split(key, 4)
        return Block(
            query_key_value=normal(k[0], (WIDTH, 3 * WIDTH)),
            # head k starts with a preference for the last k characters, which the next one depends on most
            near=-0.5 * fnp.abs(fnp.arange(CONTEXT) - fnp.arange(HEADS)[:, None]).astype(np.float32),
            out=normal(k[1], (WIDTH, WIDTH)) * QUIET,
            up=normal(k[2], (WIDTH, 4 * WIDTH)),
            down=normal(k[3], (4 * WIDTH, WIDTH)) * QUIET,
        )

    return Params(
        characters=random.normal(at_characters, (len(ALPHABET), WIDTH)),
        blocks=fx.vmap(block)(random.split(at_blocks, layers)),
        head=fnp.zeros((WIDTH, len(ALPHABET))),
    )


def layer(x: fx.Array, block: Block) -> tuple[fx.Array, None]:
    """One layer, as a step of a scan: x is [batch, position, WIDTH]."""
    heads = (nn.standardize(x) @ block.query_key_value).reshape(*x.shape[:2], 3 * HEADS, -1)
    query, key, value = fnp.split(heads, 3, axis=2)
    here = fnp.arange(x.shape[1])
    bias = block.near[:, fnp.abs(here[:, None] - here)]
    attended = nn.dot_product_attention(query, key, value, bias, is_causal=True)
    x = x + attended.reshape(*x.shape) @ block.out
    return x + nn.gelu(nn.standardize(x) @ block.up) @ block.down, None


def logits(params: Params, text: fx.Array, *, lean: bool = True) -> fx.Array:
    """Return scores of the next character for each position of texts [batch, position]."""
    x = params.characters[text]
    x, _ = lax.scan(fx.remat(layer) if lean else layer, x, params.blocks)
    return nn.standardize(x) @ params.head


def loss(params: Params, text: fx.Array, *, lean: bool = True) -> fx.Array:
    """Mean cross entropy of the next character, in nats."""
    scores = nn.log_softmax(logits(params, text[:, :-1], lean=lean))
    return -fnp.mean(fnp.take_along_axis(scores, text[:, 1:, None], axis=-1))


def windows(text: fx.Array, starts: fx.Array) -> fx.Array:
    """Return pieces of a text that are one character longer than the context."""
    return text[starts[:, None] + fnp.arange(CONTEXT + 1)]


def step(state: State, key: fx.Array, text: fx.Array, rate: fx.Array, *, lean: bool = True) -> tuple[State, fx.Array]:
    """One step of Adam with weight decay, on random pieces of the text."""
    starts = random.randint(random.fold_in(key, state.steps), (BATCH,), 0, text.shape[0] - CONTEXT)
    value, grads = fx.value_and_grad(partial(loss, lean=lean))(state.params, windows(text, starts))
    steps = state.steps + 1
    mean = fx.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, state.mean, grads)
    square = fx.tree.map(lambda s, g: BETA_2 * s + (1 - BETA_2) * g * g, state.square, grads)
    # both averages started at zero
    fix_mean, fix_square = 1 - BETA_1 ** steps.astype(np.float32), 1 - BETA_2 ** steps.astype(np.float32)

    def moved(p: fx.Array, m: fx.Array, s: fx.Array) -> fx.Array:
        return p - rate * (m / fix_mean / (fnp.sqrt(s / fix_square) + 1e-8) + DECAY * p)

    return State(fx.tree.map(moved, state.params, mean, square), mean, square, steps), value


def write(params: Params, key: fx.Array, prompt: fx.Array, length: int, temperature: float = 0.7) -> fx.Array:
    """Continues a prompt of CONTEXT characters. Each character is drawn, and then part of the context."""

    def draw(window: fx.Array, key: fx.Array) -> tuple[fx.Array, fx.Array]:
        character = random.categorical(key, logits(params, window[None])[0, -1] / temperature)
        return fnp.concat([window[1:], character[None]]), character

    return lax.scan(draw, prompt, random.split(key, length))[1]


def entropy(text: str) -> float:
    """Return nats for each character if only their frequencies are known."""
    p = np.unique(list(text), return_counts=True)[1] / len(text)
    return float(-np.sum(p * np.log(p)))


def encode(text: str) -> fx.Array:
    """Return a text as numbers of characters."""
    return fnp.asarray(np.array([ALPHABET.index(c) for c in text], np.int32))


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Train and write; returns the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=300, help="characters to write")
    options = parser.parse_args(argv)
    start = time.perf_counter()

    poems = TEXT.split("\n\n")
    known, unseen = ["\n\n".join(part) for part in (poems[:-HELD_OUT], poems[-HELD_OUT:])]
    text = encode(known)
    at_params, at_batches, at_poem = random.split(random.key(options.seed), 3)
    params = fx.jit(initial)(at_params)
    zeros = fx.tree.map(fnp.zeros_like, params)
    state = State(params, zeros, zeros, fnp.asarray(0))
    count = sum(leaf.size for leaf in fx.tree.leaves(params))
    print(f"{len(TEXT):,} characters, {len(ALPHABET)} distinct; {LAYERS} layers of {WIDTH}, {count:,} parameters")

    train, plain = [
        fx.jit(fx.trace(partial(step, lean=lean), state, at_batches, text, fx.Spec(()))) for lean in (True, False)
    ]
    kib, kib_plain = [run.memory().temp_bytes / 1024 for run in (train, plain)]
    print(f"temporaries of a step: {kib:,.0f} KiB; if the layers were not rematerialised, {kib_plain:,.0f} KiB")

    value = fnp.asarray(fnp.nan)
    for k in range(options.steps):
        rate = RATE * min(1, (k + 1) / 20) * (1 + np.cos(np.pi * k / options.steps)) / 2
        state, value = train(state, at_batches, text, fnp.asarray(rate, dtype=np.float32))
        if k % 50 == 0 or k == options.steps - 1:
            print(f"step {k:4d}   loss {float(value):.3f}   {time.perf_counter() - start:5.1f} s")

    whole = encode(unseen)
    pieces = windows(whole, fnp.arange(0, len(unseen) - CONTEXT, CONTEXT))
    held_out = float(fx.jit(loss)(state.params, pieces))
    print(f"nats a character: {float(value):.2f} on the last batch, {held_out:.2f} on the sonnets it never saw")
    print(f"their unigram entropy: {entropy(unseen):.2f}")

    poem = fx.jit(lambda params, key, prompt: write(params, key, prompt, options.length))
    drawn = poem(state.params, at_poem, whole[:CONTEXT])
    print(unseen[:CONTEXT] + "|" + "".join(ALPHABET[c] for c in np.asarray(drawn)))
    print(f"{time.perf_counter() - start:.1f} s in all")
    return {
        "unigram": entropy(unseen),
        "held out": held_out,
        "trained": float(value),
        "remat": kib,
        "plain": kib_plain,
    }


if __name__ == "__main__":
    main()
