"""Trains a model with the loss of one device and with that of many, and compares. The parallel examples use it."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from characters import BATCH, CONTEXT, TEXT, Params, encode, windows
from pictures import BLUE, INK, ORANGE, drawing

import fxad as fx
from fxad import random

Loss: TypeAlias = Callable[[Params, fx.Array], fx.Array]
RATE = 0.5


def trained(loss: Loss, params: Params, division: Any, steps: int) -> tuple[Params, list[float]]:
    """Return the parameters and losses of some steps of gradient descent. `division` has a sharding for each
    parameter, or is None."""
    key, text = random.key(1), encode(TEXT)

    def step(params: Params, text: fx.Array) -> tuple[Params, fx.Array]:
        value, grads = fx.value_and_grad(loss)(params, text)
        return fx.tree.map(lambda p, g: p - RATE * g, params, grads), value

    # parameters keep their sharding
    run, values = fx.jit(step, out_shardings=(division, None)), []
    if division is not None:
        params = fx.device_put(params, division)
    for k in range(steps):
        starts = random.randint(random.fold_in(key, k), (BATCH,), 0, len(TEXT) - CONTEXT)
        params, value = run(params, windows(text, starts))
        values.append(float(value))
    return params, values


def plot(file: str, values: list[float], alone: list[float], traffic: Any) -> None:
    """Draws both losses, and the bytes that a device sends in a step."""
    with drawing(file) as (curve, bars):
        curve.plot(alone, color=INK, linewidth=5, alpha=0.4, label="on one device")
        curve.plot(values, color=BLUE, label=f"on {fx.device_count()} devices")
        curve.set(xlabel="step", ylabel="loss", title="the same training")
        curve.legend()
        rows = [(f"{row.runs} x {row.collective}", row.bytes / 1024) for row in traffic]
        shown = bars.barh([f"{k}: {name}" for k, (name, _) in enumerate(rows)], [n for _, n in rows], color=ORANGE)
        bars.bar_label(shown, fmt="{:,.0f} KiB", color=INK, padding=3)
        bars.margins(x=0.3)
        bars.set_ylim(-1, len(rows))
        bars.set(xlabel="KiB that a device sends in a step", title="communication, by collective")


def compare(parallel: Loss, plain: Loss, params: Params, division: Any, options: Namespace) -> dict[str, float]:
    """Trains with both losses. Prints the communication of a step, and checks that the parameters agree."""
    steps: int = options.steps
    example = fx.Spec((BATCH, CONTEXT + 1), "int32")
    traffic = fx.comm(fx.trace(fx.value_and_grad(parallel), params, example))
    print(f"a step on {fx.device_count()} devices sends:\n{traffic}\n")
    start = time.perf_counter()
    found, values = trained(parallel, params, division, steps)
    want, alone = trained(plain, params, None, steps)
    off = 0.0
    for a, b in zip(fx.tree.leaves(found), fx.tree.leaves(want), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert np.allclose(a, b, rtol=1e-3, atol=1e-4), np.max(np.abs(a - b))
        off = max(off, float(np.max(np.abs(a - b))))
    print(f"loss, first and last of {steps} steps: {values[0]:.4f}, {values[-1]:.4f}")
    print(f"on one device:                    {alone[0]:.4f}, {alone[-1]:.4f}")
    print(f"the parameters differ by {off:.1e} at most; {time.perf_counter() - start:.1f} s")
    if options.plot:
        plot(options.plot, values, alone, traffic)
    return {"first": values[0], "last": values[-1], "alone": alone[-1], "off": off, "bytes": traffic.bytes}
