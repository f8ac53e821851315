"""Pictures of the examples, drawn by matplotlib: `--plot FILE` writes one as SVG. Examples run without matplotlib."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

INK = "#7f8790"  # of text and axes: it is read on white and on black
BLUE, ORANGE, GREEN, RED, VIOLET = COLORS = ("#3b8ed0", "#e8862e", "#3aa65b", "#d9534f", "#9467bd")
STYLE = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fxad",  # the same picture is the same file
}


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--plot FILE`."""
    parser.add_argument("--plot", metavar="FILE", help="write a picture here, as SVG (pip install 'fxad[examples]')")


@contextmanager
def drawing(file: str, *, rows: int = 1, columns: int = 2, height: float = 3.0) -> Iterator[Any]:
    """Give axes to draw on, and write the picture at the end."""
    try:
        matplotlib, figures = import_module("matplotlib"), import_module("matplotlib.figure")
    except ImportError:
        raise SystemExit("--plot draws with matplotlib: pip install 'fxad[examples]'") from None
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(8, height), layout="constrained")
        axes = figure.subplots(rows, columns)
        yield axes
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
