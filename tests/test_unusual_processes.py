"""Processes without a standard output, and exit handlers that run after fxad's."""

from __future__ import annotations

import subprocess
import sys

_WITHOUT_OUTPUT = """
import sys
sys.stdout = sys.stderr = None
import fxad as fx, numpy as np
fx.debug.print("{}", 3)
fx.jit(lambda x: fx.debug.print("{}", x))(np.ones(2))
fx.jit(lambda x: x * 2)(np.ones(3))
"""
_EXIT = """
import atexit
state = {}

def at_exit():
    print(state["f"](state["x"]))  # what is compiled runs
    try:
        fx.jit(lambda x: x * 3)(state["x"])
    except fx.errors.ExecutionError as e:
        print(e.message, "|", e.remedy)

atexit.register(at_exit)
import fxad as fx
state["x"] = fx.numpy.ones(3)
state["f"] = fx.jit(lambda x: x * 2)
state["f"](state["x"])
"""


def _run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_a_process_without_a_standard_output() -> None:
    assert _run(_WITHOUT_OUTPUT) == ""


def test_an_exit_handler_that_was_registered_before_fxad() -> None:
    said = (
        "tree: Python is exiting, and containers are no trees any more",
        "Python calls exit handlers in the reverse order: call atexit.register after `import fxad`",
    )
    assert _run(_EXIT).splitlines() == ["[2. 2. 2.]", " | ".join(said)]
