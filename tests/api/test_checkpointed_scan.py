"""`checkpointed_scan`: a loop whose reverse mode stores a given number of carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.lax.control.checkpoints import segments
from fxad.transforms.memory.nested_scan import carries_stored

RNG = np.random.default_rng(2)
X, W = [RNG.standard_normal((3, 3)) for _ in range(2)]


def step(h: Any, x: Any) -> Any:
    h = {"h": fnp.sin(h["h"] @ W) + x, "n": h["n"] + 1}
    return h, fnp.sum(h["h"])


def total(scan: Any) -> Any:
    def run(x: Any, xs: Any) -> Any:
        h, ys = scan(step, {"h": x, "n": np.int32(0)}, xs)
        return fnp.sum(h["h"]) + fnp.sum(ys * ys), (h["n"], ys)

    return run


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 13, 16, 31])
def test_any_length_and_budget(n: int) -> None:
    xs = RNG.standard_normal((n, 3, 3))
    want = fx.interpret(fx.value_and_grad(fx.trace(total(lax.scan), X, xs), argnums=(0, 1), has_aux=True), X, xs)
    seen = set()
    for budget in range(1, max(n, 1) + 1):
        try:
            sizes = segments(n, budget)
        except fx.errors.ParameterError:
            continue
        if sizes in seen:
            continue
        seen.add(sizes)

        def scan(f: Any, init: Any, xs: Any, budget: int = budget) -> Any:
            return lax.checkpointed_scan(f, init, xs, budget=budget)

        program = fx.trace(total(scan), X, xs)
        got = fx.interpret(fx.value_and_grad(program, argnums=(0, 1), has_aux=True), X, xs)
        for a, b in zip(fx.tree.leaves(got), fx.tree.leaves(want), strict=True):
            np.testing.assert_array_equal(a, b)


def test_segments_are_few_enough_and_grow_with_the_logarithm() -> None:
    for n in range(1, 200):
        for budget in (n, 2 * int(np.ceil(np.sqrt(n))), 2 * n.bit_length() + 2):
            sizes = segments(n, budget)
            assert carries_stored(n, sizes) <= budget
            assert list(sizes) == sorted(set(sizes), reverse=True)
    least = [carries_stored(2**k, segments(2**k, 2 * k)) for k in range(2, 21)]
    assert least == sorted(least)
    assert least[-1] <= 40, "a million steps"
    assert segments(1_000_000, 2000) == (1000,)


def test_what_is_refused() -> None:
    untyped: Any = lax
    with pytest.raises(fx.errors.ParameterError) as caught:
        lax.checkpointed_scan(lambda h, _: (h, None), X, None, 100, budget=5)
    assert caught.value.message == "checkpointed_scan: a budget of 5 carries is too small for 100 steps"
    assert caught.value.remedy == "at least 13 are needed; a step is computed again for each level of segments"
    with pytest.raises(fx.errors.ArgumentError) as wrong:
        untyped.checkpointed_scan(lambda h, _: (h, None), X, None, 100, budget=2.5)
    assert wrong.value.message == "checkpointed_scan: budget is a float, not an int: 2.5"
    with pytest.raises(fx.errors.ArgumentError, match="checkpointed_scan: xs has no leaves"):
        lax.checkpointed_scan(lambda h, _: (h, None), X, budget=5)


def test_compiled_memory_follows_the_budget() -> None:
    big = RNG.standard_normal((32, 32)).astype(np.float32)

    def arrays(n: int, budget: int | None) -> float:
        def loss(x: Any) -> Any:
            def body(h: Any, _: Any) -> Any:
                return fnp.sin(fnp.exp(0.1 * fnp.sin(h @ big)) @ big), None

            if budget is None:
                return fnp.sum(lax.scan(body, x, None, length=n)[0])
            return fnp.sum(lax.checkpointed_scan(body, x, None, length=n, budget=budget)[0])

        return fx.lower(fx.grad(fx.trace(loss, big))).compile().memory().temp_bytes / big.nbytes

    assert arrays(256, None) > 3 * 256
    assert arrays(256, 256) < 256 + 6
    assert arrays(256, 32) < 32 + 6
    assert arrays(256, 16) < 16 + 8
    assert arrays(251, 32) < 32 + 8, "a prime"
    assert arrays(4096, 24) < 24 + 10, "16 times the steps, 8 carries more"
