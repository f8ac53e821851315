"""Draws the plots of the memory tutorial from `docs/memory.json`, which `python -m benchmarks.memory` writes.

python docs/plots.py        write docs/images/*.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

HERE: Final = Path(__file__).parent
INK: Final = ("#222222", "#1f77b4", "#2ca02c", "#d62728", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
MARKERS: Final = "o^svDPXd*"


def ways(data: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each way to store, the same in all panels."""
    names = dict.fromkeys([name for network in data["networks"] for name in network["rows"]])
    return dict(zip(names, zip(INK, MARKERS, strict=True), strict=False))


def memory_and_time(data: dict[str, Any]) -> Any:
    """Bytes against time for each network, both relative to fxad's plain gradient."""
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    axes = figure.subplots(2, 3)
    styles = ways(data)
    for ax, network in zip(axes.flat, data["networks"], strict=False):
        rows = network["rows"]
        base_bytes, base_time = rows["plain"]["bytes"][0], rows["plain"]["time"][0]
        for name, row in rows.items():
            colour, marker = styles[name]
            for k, (held, took) in enumerate(zip(row["bytes"], row.get("time", ()), strict=False)):
                point = {"marker": marker, "s": 60 - 15 * k, "linewidths": 1.3, "zorder": 3 - k}
                filled = "none" if k else colour
                ax.scatter(took / base_time, held / base_bytes, edgecolors=colour, facecolors=filled, **point)
        ax.axhline(1, color="#cccccc", linewidth=0.8, zorder=0)
        ax.axvline(1, color="#cccccc", linewidth=0.8, zorder=0)
        ax.set_title(network["name"], fontsize=10)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("time of a step / plain", fontsize=9)
        ax.set_ylabel("temporaries / plain", fontsize=9)
        ax.tick_params(labelsize=8)
    last = axes.flat[len(data["networks"])]
    last.axis("off")
    marks = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=name)
        for name, (colour, marker) in styles.items()
    ]
    marks.append(Line2D([], [], color="#222222", marker="o", markerfacecolor="none", linestyle="", label="hollow: jax"))
    last.legend(handles=marks, loc="center left", fontsize=8.5, frameon=False)
    return figure


def budgets(data: dict[str, Any]) -> Any:
    """Bytes of budgets against the time of a step for each network, and those of jax's policies."""
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    axes = figure.subplots(2, 3)
    marks: dict[str, Line2D] = {}
    for ax, network in zip(axes.flat, data["budgets"], strict=False):
        rows = network["rows"]
        groups = {
            "fxad: budgets": [r for r in rows if "plan" in r and "reconstruct" not in r["name"]],
            "jax, plain": [r for r in rows if r["name"] == "jax, plain"],
            "jax.checkpoint, its policies": [r for r in rows if r["name"].startswith("jax.checkpoint")],
        }
        for (name, group), colour, marker in zip(groups.items(), ("#1f77b4", "#222222", "#d62728"), "oXd", strict=True):
            line = "-" if name.startswith("fxad") else ""
            points = sorted({(r["bytes"] / network["plain"], r["time"]) for r in group}, reverse=True)
            if points:
                held, took = zip(*points, strict=True)
                (marks[name],) = ax.plot(took, held, marker=marker, color=colour, linestyle=line, label=name)
        for share in (0.75, 0.5, 0.25, 0.12, 0.06):
            ax.axhline(share, color="#dddddd", linewidth=0.7, zorder=0)
        ax.set_yscale("log")
        ax.set_yticks([1, 0.75, 0.5, 0.25, 0.12, 0.06], ["1", "0.75", "0.5", "0.25", "0.12", "0.06"])
        ax.minorticks_off()
        ax.set_title(network["name"], fontsize=10)
        ax.set_xlabel("time of a step / jax's plain", fontsize=9)
        ax.set_ylabel("temporaries / fxad's plain", fontsize=9)
        ax.tick_params(labelsize=8)
    for ax in axes.flat[len(data["budgets"]) :]:
        ax.axis("off")
    last = axes.flat[len(data["budgets"])]
    last.legend(handles=list(marks.values()), loc="center left", fontsize=8.5, frameon=False)
    return figure


def growth(data: dict[str, Any], along: str, title: str) -> Any:
    """Return stored states against the length or depth of a program."""
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    ax = figure.subplots()
    at = data[along]
    for (name, states), colour, marker in zip(data["states"].items(), INK, MARKERS, strict=False):
        ax.plot(at, states, marker=marker, color=colour, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(at, [str(n) for n in at])
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    ax.set_xlabel(along, fontsize=9)
    ax.set_ylabel("temporaries, in states", fontsize=9)
    ax.set_title(title, fontsize=10)
    ax.grid(True, color="#e5e5e5", linewidth=0.6)
    ax.legend(fontsize=8.5, frameon=False)
    return figure


def main() -> None:
    """Draws all plots."""
    data = json.loads((HERE / "memory.json").read_text(encoding="utf-8"))
    images = HERE / "images"
    images.mkdir(exist_ok=True)
    figures = {
        "memory-time": memory_and_time(data),
        "memory-budget": budgets(data),
        "memory-loops": growth(data["loops"], "steps", "Gradient through a loop"),
        "memory-depth": growth(data["depths"], "blocks", "Gradient of reversible couplings"),
    }
    for name, figure in figures.items():
        # without the version of matplotlib and the date, the same data give the same file
        figure.savefig(images / f"{name}.png", dpi=80, metadata={"Software": None})


if __name__ == "__main__":
    main()
