"""Reads the times of instructions from a folder that `fx.profile` has written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from fxad.errors import ArgumentError


def read_profile(folder: str) -> tuple[dict[str, tuple[float, int]], int]:
    """Return the seconds and runs of each instruction of XLA by its name, and the number of calls of the program. The
    last profile of the folder is read.

    Raises: ArgumentError for a folder without a profile, and for a profile without instructions.
    """
    traces = sorted(Path(folder).glob("plugins/profile/*/*.trace.json.gz"))
    if not traces:
        raise ArgumentError(
            f"explain: {folder} has no profile", remedy="with fx.profile(folder): call the program, and wait for it"
        )
    with gzip.open(traces[-1]) as file:
        events: list[Any] = json.load(file)["traceEvents"]
    times: dict[str, tuple[float, int]] = {}
    calls: set[str] = set()
    for event in events:
        arguments = event.get("args") or {}
        name = arguments.get("hlo_op")
        if event.get("ph") == "X" and name:
            seconds, runs = times.get(name, (0.0, 0))
            times[name] = seconds + 1e-6 * event["dur"], runs + 1
            calls.add(str(arguments.get("run_id", "")))
    if not times:
        raise ArgumentError(
            f"explain: the profile in {folder} has no instructions of XLA",
            remedy="call the compiled program inside `with fx.profile(folder)`, and wait for its results there",
        )
    return times, len(calls)
