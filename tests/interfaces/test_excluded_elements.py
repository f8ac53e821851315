"""What a mask excludes has no part in values and derivatives, be it nan, an infinity, 0 or negative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, ops
from fxad.scipy import special

KEPT = np.array([True, False, True, False])
INSIDE = np.array([0.5, 1, 2, 1], np.float32)
EXCLUDED = (0.3, 0.0, -1.0, 1e30, np.inf, -np.inf, np.nan)
COLUMN = KEPT[:, None]
SEGMENTS = np.array([0, 5, 1, -1])
HALF = np.array([2])  # a sequence of two, and two of padding
HEADS = np.random.default_rng(0).standard_normal((3, 1, 4, 1, 2)).astype(np.float32)


def batch(x: Any, training: bool) -> Any:
    y, stats = nn.batch_norm(
        x[:, None], nn.BatchStats.init(1), fnp.ones(1), fnp.ones(1), training=training, where=COLUMN
    )
    return y[KEPT] * stats.mean + stats.var


def attention(x: Any) -> Any:
    padded = x[np.array([0, 2, 1, 3])][:, None, None]
    return nn.dot_product_attention(*HEADS * padded, query_seq_lengths=HALF, key_value_seq_lengths=HALF)


def masked_attention(x: Any) -> Any:
    query, key, value = HEADS * x[:, None, None]
    out = nn.dot_product_attention(query, key, value, mask=KEPT & COLUMN, local_window_size=3)
    return out[:, KEPT]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: nn.softmax(x, where=KEPT),
    "log_softmax": lambda x: nn.log_softmax(x, where=KEPT)[KEPT],
    "standardize": lambda x: nn.standardize(x, where=KEPT)[KEPT],
    "standardize, given": lambda x: nn.standardize(x, mean=x[0], variance=x[2], where=KEPT)[KEPT],
    "layer_norm": lambda x: nn.layer_norm(x, x[0] + fnp.ones(4), x[2], where=KEPT)[KEPT],
    "rms_norm": lambda x: nn.rms_norm(x, x[0] + fnp.ones(4), where=KEPT)[KEPT],
    "batch_norm": lambda x: batch(x, True),
    "batch_norm, running": lambda x: batch(x, False),
    "logsumexp": lambda x: special.logsumexp(x, where=KEPT),
    "logsumexp of weight 0": lambda x: special.logsumexp(x, b=KEPT.astype(np.float32)),
    "attention": attention,
    "attention with a mask": masked_attention,
    "segment_sum": lambda x: ops.segment_sum(x, SEGMENTS, 2),
    "bincount": lambda x: fnp.bincount(np.array([0, 7, 1, 7]), x, length=2),
    "select": lambda x: fnp.select([KEPT], [fnp.sqrt(fnp.where(KEPT, x, 1))], 0.0),
    "place": lambda x: fnp.place(x, ~KEPT, np.array([2.0, 3.0]), inplace=False),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    def weighted(x: Any) -> Any:
        y = FUNCTIONS[name](x)
        return (y * fnp.arange(1.0, y.size + 1).reshape(y.shape)).sum()

    both = fx.jit(fx.value_and_grad(weighted))
    results = [both(np.where(KEPT, INSIDE, np.float32(bad))) for bad in EXCLUDED]
    for value, gradient in results:
        np.testing.assert_allclose(value, results[0][0], rtol=1e-5)
        np.testing.assert_allclose(gradient, results[0][1], rtol=1e-4, atol=1e-6)
        assert not np.asarray(gradient)[~KEPT].any()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["set", "add", "subtract", "multiply", "divide", "power", "min", "max"])
def test_updates_of_a_mask(name: str) -> None:
    """An element outside passes through, with the derivative 1, and has no part in the derivative in the value."""

    @fx.jit
    def gradients(x: Any, mask: Any, value: Any) -> Any:
        def at_all(x: Any, value: Any) -> Any:
            new: Any = getattr(x.at[mask], name)(value)
            return new.sum()

        both: Any = fx.grad(at_all, (0, 1))
        return both(x, value)

    for bad in EXCLUDED:
        for value in np.array([1.5, 0, np.inf], np.float32):
            x = np.where(KEPT, INSIDE, np.float32(bad))
            of_x, _ = gradients(x, KEPT, value)
            assert (np.asarray(of_x)[~KEPT] == 1).all()
            of_x, of_value = gradients(x, np.zeros(4, bool), value)
            assert (np.asarray(of_x) == 1).all()
            assert of_value == 0
