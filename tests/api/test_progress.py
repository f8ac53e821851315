"""The progress bar of compilation: it appears on a terminal if units take long to compile, and disappears
afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from io import StringIO

import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.support import progress
from fxad.support.progress import Progress

pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
termios = pytest.importorskip("termios", reason="no pseudo-terminals on this system")

TEXT = """
import sys
import numpy as np, fxad as fx, fxad.numpy as fnp
from fxad.support import progress
progress.BAR_SECONDS = float(sys.argv[1])
@fx.jit
def layer(w, x):
    return fnp.tanh(x @ w)
def loss(ws, x):
    for w in ws:
        x = layer(w, x)
    return x.sum()
fx.jit(fx.grad(loss), units=lambda body: True)([np.ones((3, 3), np.float32)] * 3, np.ones((3, 3), np.float32))
print("tqdm" in sys.modules)
"""


def on_a_terminal(patience: float) -> tuple[str, str]:
    """Returns the output of a program, and the text on the terminal that is its standard error."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
        command = [sys.executable, "-W", "error", "-c", TEXT, str(patience)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.set_blocking(ours, False)
        shown = b""
        with suppress(BlockingIOError):
            while part := os.read(ours, 4096):
                shown += part
    finally:
        os.close(theirs)
        os.close(ours)
    return done.stdout, shown.decode()


def test_a_bar_is_shown_when_it_takes_long() -> None:
    out, shown = on_a_terminal(0.0)
    assert out == "True\n"
    assert shown.startswith("\rcompiling grad_loss:")
    assert "unit/s" in shown
    assert shown.rpartition("\r")[0].endswith(" "), "the line is cleared at the end"


def test_a_quick_compilation_shows_no_bar() -> None:
    assert on_a_terminal(1000.0) == ("False\n", "")


def test_without_a_terminal_no_bar_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with Progress("compiling", 3) as bar:
        for _ in range(3):
            bar.step()
    command = [sys.executable, "-W", "error", "-c", TEXT, "0"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr, capfd.readouterr()) == ("False\n", "", ("", ""))


@pytest.mark.parametrize("closed", [False, True])
def test_without_standard_error_no_bar_is_shown(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: programs of several units did not compile."""
    stream = StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream if closed else None)
    with Progress("compiling", 3) as bar:
        for _ in range(3):
            bar.step()


def test_long_searches_show_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "BAR_SECONDS", -1.0)
    program = fx.trace(lambda x: fnp.sin(fnp.cos(x)) * 2, fx.Spec(()))
    fx.reduce_program(program, lambda program, args: "sin" if "sin" in str(program.jaxpr) else None)
    assert "\rreducing: " in stream.getvalue()
    assert fx.bisect(program, 0.5, tolerance=1e-30, reference="float64") is not None
    assert "\rbisecting <lambda>: " in stream.getvalue()
    assert not fx.equal(program, fx.trace(lambda x: fnp.cos(x), fx.Spec(())))
    assert "\rcomparing programs:" in stream.getvalue()
    assert stream.getvalue().endswith(" \r"), "the line is cleared at the end"
