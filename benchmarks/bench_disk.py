"""A second process with a warm disk cache, from the first import to the first gradient.

`python -m benchmarks.bench_disk`.

Both libraries run the same source in fresh interpreters. Bytecode is compiled and executables are stored by an earlier
process (jax's persistent cache stores all of them). Each run reports its compilations, which must be none.

Beside each program stands its lower bound: a process that only imports NumPy and jaxlib and makes a client, as both
libraries must.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Row, show

_OURS = """
import time
start = time.perf_counter()
import numpy as np, fxad as fx, fxad.nn as nn, fxad.numpy as N
value_and_grad, jit, tree = fx.value_and_grad, fx.jit, fx.tree
def compiled():
    return fx.cache.stats().compilations
"""
_THEIRS = """
import time
start = time.perf_counter()
import os, numpy as np, jax, jax.nn as nn, jax.numpy as N
from jax import value_and_grad, jit, tree
from jax._src import monitoring
misses = []
monitoring.register_event_listener(lambda name, **_: misses.append(name) if name.endswith("cache_misses") else None)
jax.config.update("jax_compilation_cache_dir", os.environ["FXAD_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
def compiled():
    return len(misses)
"""
_TRANSFORMER = """
d, heads, length, batch, layers = 256, 4, 32, 1, 12
def norm(x, scale):
    mean = N.mean(x, axis=-1, keepdims=True)
    var = N.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / N.sqrt(var + 1e-5) * scale
def split(x):
    return N.transpose(x.reshape(batch, length, heads, d // heads), (0, 2, 1, 3))
def block(p, x):
    h = norm(x, p["s"])
    q, k, v = (split(h @ p[n]) for n in "qkv")
    a = nn.softmax(q @ N.transpose(k, (0, 1, 3, 2)) / (d // heads) ** 0.5, axis=-1) @ v
    x = x + N.transpose(a, (0, 2, 1, 3)).reshape(batch, length, d) @ p["o"]
    return x + nn.gelu(norm(x, p["t"]) @ p["up"]) @ p["down"]
def loss(params, x):
    for p in params:
        x = block(p, x)
    return N.mean(x * x)
def full(*shape):
    return np.full(shape, 1 / shape[0], np.float32)
layer = {**{n: full(d, d) for n in "qkvo"}, "up": full(d, 4 * d), "down": full(4 * d, d), "s": full(d), "t": full(d)}
args = [layer] * layers, full(batch, length, d)
"""
_MLP = """
def loss(params, x):
    for w, b in params:
        x = N.tanh(x @ w + b)
    return N.mean(x * x)
args = [(np.full((64, 64), 0.01, np.float32), np.zeros(64, np.float32))] * 3, np.ones((8, 64), np.float32)
"""
_RUN = """
value, gradient = jit(value_and_grad(loss))(*args)
tree.map(np.asarray, (value, gradient))
print(time.perf_counter() - start, compiled())
"""
_SAVE = """
fx.save(value_and_grad(fx.trace(loss, *args)), {!r})
"""
_LOAD = """
value, gradient = fx.lower(fx.load({!r})).compile()(*args)
tree.map(np.asarray, (value, gradient))
print(time.perf_counter() - start, compiled())
"""


_FLOOR = """
import time
start = time.perf_counter()
import numpy as np, jaxlib.xla_client
jaxlib.xla_client.make_cpu_client()
print(time.perf_counter() - start, 0)
"""


def seconds(code: str, home: str) -> tuple[float, int]:
    """Returns the time of a fresh process by its own clock, and its number of compilations."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"FXAD_CACHE_DIR": home, "PYTHONPYCACHEPREFIX": os.path.join(home, "bytecode")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    took, compiled = done.stdout.split()
    return float(took), int(compiled)


def second(name: str, ours: str, theirs: str, rounds: int, before: str = "", budget: float | None = 0.2) -> Row:
    """Returns the best of interleaved rounds in milliseconds, after one that fills the directories."""
    with tempfile.TemporaryDirectory() as ours_home, tempfile.TemporaryDirectory() as theirs_home:
        os.chmod(ours_home, 0o700)
        if before:
            path = str(Path(ours_home) / "program.fxad")
            subprocess.run([sys.executable, "-c", before.format(path)], check=True)
            ours = ours.format(path)
        best = [float("inf")] * 2
        for k in range(-1, rounds):
            for n, (code, home) in enumerate(((ours, ours_home), (theirs, theirs_home))):
                took, compiled = seconds(code, home)
                if k >= 0:
                    assert compiled == 0, f"{name}: {compiled} compilations with a warm cache"
                    best[n] = min(best[n], 1e3 * took)
    return Row(name, best[0], best[1], budget, unit="ms")


def rows(rounds: int = 7) -> list[Row]:
    """All measurements."""
    out = []
    for name, model in (("transformer, 12 layers", _TRANSFORMER), ("MLP, 3 layers", _MLP)):
        ours, theirs = _OURS + model, _THEIRS + model + _RUN
        out.append(second(f"second process: {name}", ours + _RUN, theirs, rounds))
        out.append(second(f"floor: importing jaxlib, a client; jax's {name}", _FLOOR, theirs, rounds, budget=None))
        # doubled braces belong to the model
        saved = (ours + _SAVE).replace("{", "{{").replace("}", "}}").replace("{{!r}}", "{!r}")
        loaded = (ours + _LOAD).replace("{", "{{").replace("}", "}}").replace("{{!r}}", "{!r}")
        out.append(second(f"second process, program loaded: {name}", loaded, theirs, rounds, saved))
    return out


if __name__ == "__main__":
    show("A second process", rows())
