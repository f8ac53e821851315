"""Lines, bytes, times and digits as texts for people."""

from __future__ import annotations

from math import isfinite, isnan, log10

from fxad.diagnosis.explain.parts import Callers
from fxad.ir import SourceLocation


def line_text(line: SourceLocation | None, nowhere: str = "no line") -> str:
    """Return a line for people: `model.py:12 in loss`; `nowhere` if there is none."""
    return f"{line.short} in {line.function.rpartition('<locals>.')[2]}" if line is not None else nowhere


def amount(n: float) -> str:
    """Return bytes for people."""
    size, unit = float(n), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a time for people."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.1f} {unit}"
    return f"{seconds * 1e9:,.1f} ns"


def called_from(callers: Callers) -> str:
    """Return the lines that call a function, as a part of a sentence."""
    named = [line_text(line) for line, _ in callers[:2]]
    more = f" and {len(callers) - 2} more" if len(callers) > 2 else ""
    return f", called from {', '.join(named)}{more}," if named else ""


def digits_left(relative: float) -> str:
    """Return how many decimal digits of results with a relative error are right, as a text."""
    if not isfinite(relative):
        return "none are right"
    return f"about {max(0.0, -log10(relative)):.1f} are right"


def percent(share: float) -> str:
    """Return a share for people; empty for nan."""
    return "" if isnan(share) else f"{100 * share:.0f} %"
