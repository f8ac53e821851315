"""The text of a large gradient beside jax's lowering, as a ratio in one run: `python -m benchmarks.text_of_gradient`.

Each round makes a program that is new to both, of about 6,000 equations. The least time of all rounds counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxad as fx
import fxad.numpy as fnp

ROUNDS = 5
X = np.ones((8, 8), np.float32)


def chain(numpy: Any, n: int) -> Callable[[Any, Any], Any]:
    def f(x: Any, y: Any) -> Any:
        for k in range(n):
            x = numpy.sin(x) * y + float(k)
        return x.sum()

    return f


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    ours, lowering, text = [], [], []
    for n in range(1000, 1000 + ROUNDS):
        program = fx.trace(fx.grad(chain(fnp, n)), X, X)
        ours.append(seconds(lambda p=program: fx.lower(p).text()))  # type: ignore[misc]
        traced = jax.jit(jax.grad(chain(jnp, n))).trace(X, X)
        lowering.append(seconds(traced.lower))
        lowered = traced.lower()
        text.append(seconds(lowered.as_text))
    print(f"fxad, lower(p).text(): {1e3 * min(ours):.0f} ms")
    print(f"jax, lower(): {1e3 * min(lowering):.0f} ms; as_text(): {1e3 * min(text):.0f} ms")
    print(f"ratio to lower(): {min(ours) / min(lowering):.2f}; with as_text(): "
          f"{min(ours) / (min(lowering) + min(text)):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
