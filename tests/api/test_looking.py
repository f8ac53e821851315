"""Seeing what happens: the log of what is compiled, and traces of what runs."""

from __future__ import annotations

import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.errors import ParameterError

pytestmark = pytest.mark.smoke

X = np.arange(3, dtype=np.float32)


@pytest.mark.usefixtures("nothing_remembered")
def test_the_log_says_what_is_compiled_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fxad")

    def shifted(x: Any) -> Any:
        return x + 4096.25

    run = fx.jit(shifted)
    run(X)
    run(X)
    run(X[:2])
    lines = [r.getMessage() for r in caplog.records]
    patterns = [
        r"jit of shifted: \(f32\[3\]\) are new types, of a function known for 0 others",
        r"compiled shifted for cpu:0 in [\d.]+ ms: 1 equations, \d+ temporary bytes",
        r"jit of shifted: \(f32\[2\]\) are new types, of a function known for 1 others",
        r"compiled shifted for cpu:0 in [\d.]+ ms: 1 equations, \d+ temporary bytes",
    ]
    lines = [line for line in lines if "eager" not in line]
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


def test_a_profile_is_a_trace_that_viewers_open(tmp_path: Path) -> None:
    with fx.profile(tmp_path):
        fx.jit(lambda x: (x @ x).sum())(np.ones((64, 64), np.float32)).block_until_ready()
        with (
            pytest.raises(ParameterError, match=r"^profile: another profile is running in this process\n"),
            fx.profile(tmp_path),
        ):
            pass
    (space,) = tmp_path.rglob("*.xplane.pb")
    assert space.stat().st_size > 0
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert len(events) > 1


def test_an_error_ends_the_profile(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), fx.profile(tmp_path):
        1 / 0  # noqa: B018
    with fx.profile(tmp_path):
        pass
