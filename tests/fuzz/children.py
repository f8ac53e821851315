"""Runs random programs of `tests.fuzz.forms` in processes of their own, because XLA may end the process.

    python -m tests.fuzz.children FIRST COUNT        programs of these seeds, one line for each fault
    python -m tests.fuzz.children show SEED          the program of a seed, its results compiled and interpreted

A fault is a process that ended, a program that does not compile within `LIMIT` seconds, an exception of XLA, or a
result that differs from that of the interpreter.
"""

from __future__ import annotations

import math
import os
import queue
import subprocess
import sys
from collections.abc import Callable
from threading import Thread
from typing import IO, Any, Final

import ml_dtypes
import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import FxadError
from fxad.ir import NDArray
from fxad.testing.compare import differ, largest_magnitude
from tests.fuzz.forms import case, program

LIMIT: Final = 300.0  # seconds without a result
AT_A_TIME: Final = 200  # programs of one process, so that none keeps many executables


def fault(seed: int) -> str:
    """What is wrong with the program of a seed; "" if nothing is."""
    of = case(seed)
    try:
        with np.errstate(all="ignore"):
            traced, x = program(of)
    except FxadError:
        return ""  # parameters that fxad refuses, in one line of its own
    try:
        compiled = fx.lower(traced).compile()(x)
    except Exception as error:
        return f"{of}: {type(error).__name__}: {str(error)[:200]}"
    with np.errstate(all="ignore"):
        want = np.asarray(fx.interpret(traced, x))
        have = np.asarray(compiled)
        if _same(have, want, 0.0) or _same(have, want, 100 * _sensitivity(traced, x, want)):
            return ""
    return f"{of}: {_brief(have, want)}"


def _same(have: NDArray, want: NDArray, slack: float) -> bool:
    coarse = 1e-4 if want.dtype == np.float32 else 1e-9 if want.dtype == np.float64 else 0.03
    exact = not np.issubdtype(want.dtype, np.floating) and want.dtype != ml_dtypes.bfloat16
    size = largest_magnitude([want])
    return not differ([have], [want], slack=0 if exact else coarse * size + slack, signs=False)


def _sensitivity(traced: fx.Program[..., Any], x: Any, want: NDArray) -> float:
    """How far a result moves if the operand moves by some units in the last place: programs may be ill conditioned."""
    if not x.size or np.issubdtype(x.dtype, np.integer) or np.issubdtype(want.dtype, np.integer):
        return 0.0
    step = 8 * fnp.finfo(x.dtype).eps
    moved = 0.0
    for k in range(3):
        signs = np.random.default_rng(k).integers(0, 2, x.shape) * 2 - 1
        near = np.asarray(fx.interpret(traced, np.asarray(x * (1 + step * signs), x.dtype)))
        apart = np.abs(near.astype(float) - want.astype(float))
        if not np.array_equal(np.isfinite(near), np.isfinite(want)):
            return math.inf
        moved = max(moved, float(np.max(apart, initial=0.0, where=np.isfinite(apart))))
    return moved


def _brief(have: NDArray, want: NDArray) -> str:
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"{have.dtype}{have.shape}, and not {want.dtype}{want.shape}"
    with np.errstate(all="ignore"):
        wrong = np.flatnonzero(~np.isclose(have.astype(float), want.astype(float), rtol=1e-3, equal_nan=True))[:3]
    return f"elements {wrong.tolist()} are {have.ravel()[wrong].tolist()}, and not {want.ravel()[wrong].tolist()}"


def _child(first: int, count: int) -> None:
    for seed in range(first, first + count):
        print(seed, flush=True)
        if os.environ.get("FXAD_FUZZ_ABORT") == str(seed):  # for the test of this module
            os.abort()
        if found := fault(seed):
            print(f"fault {found}", flush=True)
    print("end", flush=True)


def _run(first: int, count: int) -> tuple[list[str], int]:
    """The faults of seeds from the first one on, and the seed after the last one that was tried."""
    command = [sys.executable, "-m", "tests.fuzz.children", "child", str(first), str(count)]
    settings = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **settings}
    )
    with child:
        return _watch(child, first, count)


def _watch(child: subprocess.Popen[str], first: int, count: int) -> tuple[list[str], int]:
    """The lines of a process, until it ends or is silent for too long."""
    assert child.stdout is not None
    assert child.stderr is not None
    lines: queue.Queue[str] = queue.Queue()
    errors: list[str] = []

    def read(stream: IO[str], to: Callable[[str], object]) -> None:
        for line in stream:
            to(line)
        to("")

    readers = [Thread(target=read, args=args) for args in ((child.stdout, lines.put), (child.stderr, errors.append))]
    for reader in readers:
        reader.start()
    faults: list[str] = []
    seed, ended = first, "the process ended"
    while True:
        try:
            line = lines.get(timeout=LIMIT).strip()
        except queue.Empty:
            child.kill()
            ended = f"no result in {LIMIT:g} seconds"
            break
        if line == "end" or not line:
            break
        if line.startswith("fault "):
            faults.append(f"seed {seed}: {line.removeprefix('fault ')}")
        else:
            seed = int(line)
    code = child.wait()
    for reader in readers:
        reader.join()
    if line == "end":
        return faults, first + count
    last = "".join([text for text in errors if text.strip()][-3:]).strip()
    return [*faults, f"seed {seed}: {ended} ({code}): {case(seed)}: {last[-500:]}"], seed + 1


def survey(first: int, count: int) -> list[str]:
    """The faults of the programs of these seeds."""
    faults, seed = [], first
    while seed < first + count:
        more, seed = _run(seed, min(AT_A_TIME, first + count - seed))
        faults += more
        for found in more:
            print(found, flush=True)
    return faults


def _show(seed: int) -> None:
    of = case(seed)
    traced, x = program(of)
    print(of)
    print(traced.jaxpr)
    print(fx.interpret(traced, x), flush=True)
    print(fx.lower(traced).compile()(x))


if __name__ == "__main__":
    if sys.argv[1] == "child":
        _child(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "show":
        _show(int(sys.argv[2]))
    else:
        survey(int(sys.argv[1]), int(sys.argv[2]))
