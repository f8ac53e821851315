"""A few figures by commit: docs/benchmarks/history.csv, a line for each commit that was measured.

    python -m benchmarks.history                       measure the working tree, and append a line for its commit
    python -m benchmarks.history COMMIT ...            measure other commits, in folders of their own
    python -m benchmarks.history --plot FILE           draw the history as SVG

`make history` is the first. Times are CPU times of one process, the best of several turns, so that other processes
change them little; the others are counts, which do not depend on the machine. The measured programs use public names
only, so that old commits can be measured by the same program.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
HISTORY: Final = ROOT / "docs" / "benchmarks" / "history.csv"
# The columns of figures, with what they mean.
FIGURES: Final = {
    "import_ms": "CPU time of `import fxad`, ms",
    "trace_us": "tracing, us an equation",
    "grad_us": "tracing and `value_and_grad`, us an equation",
    "lower_us": "lowering, us an equation",
    "call_us": "a call of a compiled function, us",
    "modules": "modules that `import fxad` loads",
    "equations": "equations of the gradient of a network of eight layers",
    "temp_kib": "temporaries of that gradient, KiB",
}
_EQUATIONS: Final = 400


def best(run: Callable[[], object], turns: int, calls: int = 1) -> float:
    """Return the CPU time of a call in microseconds, the best of some turns."""
    found = float("inf")
    for _ in range(turns):
        start = time.process_time()
        for _ in range(calls):
            run()
        found = min(found, (time.process_time() - start) / calls)
    return 1e6 * found


def figures() -> dict[str, float]:
    """Return the figures of the fxad that Python imports."""
    before, start = len(sys.modules), time.process_time()
    fx: Any = import_module("fxad")
    imported, modules = time.process_time() - start, len(sys.modules) - before
    np: Any = import_module("numpy")
    fnp: Any = import_module("fxad.numpy")
    x, turn = np.ones(3, np.float32), iter(range(10**9))

    def chain(k: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            for _ in range(_EQUATIONS // 2):
                x = fnp.sin(x) * (1.0 + k)  # another program for each turn: equal ones are known already
            return x.sum()

        return f

    def network(layers: Any, x: Any) -> Any:
        for w in layers:
            x = fnp.tanh(x @ w)
        return (x * x).sum()

    layers = [np.full((64, 64), 0.1, np.float32)] * 8
    gradient = fx.grad(fx.trace(network, layers, np.ones((32, 64), np.float32)))
    call, held = fx.jit(lambda x: fnp.sin(x) * 2), fnp.asarray(x)
    programs = iter([fx.trace(chain(1000 + k), x) for k in range(6)])
    call(held)
    return {
        "import_ms": round(1e3 * imported, 1),
        "trace_us": round(best(lambda: fx.trace(chain(next(turn)), x), 6) / _EQUATIONS, 2),
        "grad_us": round(best(lambda: fx.value_and_grad(fx.trace(chain(next(turn)), x)), 6) / _EQUATIONS, 2),
        "lower_us": round(best(lambda: fx.lower(next(programs)).text(), 6) / _EQUATIONS, 2),
        "call_us": round(best(lambda: call(held), 10, 2000), 2),
        "modules": modules,
        "equations": len(gradient.jaxpr.eqns),
        "temp_kib": fx.lower(gradient).compile().memory().temp_bytes / 1024,
    }


def measured(tree: Path) -> dict[str, float]:
    """Return the figures of a tree, from a process of its own, whose modules are compiled already."""
    with tempfile.TemporaryDirectory() as cache:
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env = {**kept, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": cache, "FXAD_CACHE_DIR": cache}
        command = [sys.executable, "-P", __file__, "--figures"]
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=tree, env=env)  # compiles the modules
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tree, env=env)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


def line(commit: str, found: dict[str, float]) -> dict[str, object]:
    """Return the line of a commit."""
    platform = {"python": sys.version.split()[0], "jaxlib": metadata.version("jaxlib"), "measured": date.today()}
    return {"commit": commit, "date": git("show", "-s", "--format=%cs", commit), **platform, **found}


def history() -> list[dict[str, str]]:
    """Return the lines of the history, in the order of the commits' dates."""
    if not HISTORY.exists():
        return []
    with HISTORY.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def append(lines: Sequence[dict[str, object]]) -> None:
    """Write the history with these lines, which replace those of the same commits."""
    new = {str(row["commit"]): row for row in lines}
    rows: list[Mapping[str, object]] = [*[row for row in history() if row["commit"] not in new], *lines]
    rows.sort(key=lambda row: int(git("show", "-s", "--format=%ct", str(row["commit"]))))
    HISTORY.parent.mkdir(exist_ok=True)
    with HISTORY.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def plot(file: str) -> None:
    """Draws each figure against the commits."""
    sys.path.insert(0, str(ROOT / "examples"))
    pictures: Any = import_module("pictures")
    rows = history()
    with pictures.drawing(file, rows=2, columns=4, height=4) as axes:
        for ax, name, color in zip(axes.flat, FIGURES, (*pictures.COLORS, *pictures.COLORS), strict=False):
            ax.plot([float(row[name]) for row in rows], "o-", color=color, markersize=3)
            ax.set(title=name, ylim=(0, None), xticks=[0, len(rows) - 1])
            ax.set_xticklabels([rows[0]["commit"], rows[-1]["commit"]])


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, appends, or draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--figures", action="store_true", help="print the figures of the fxad that Python imports")
    options = parser.parse_args(argv)
    if options.figures:
        json.dump(figures(), sys.stdout)
        return 0
    if options.plot:
        plot(options.plot)
        return 0
    for commit in options.commits or ["HEAD"]:
        short = git("rev-parse", "--short=8", commit)
        if not options.commits:
            append([line(short, measured(ROOT))])
            continue
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run(["git", "archive", short, "fxad"], capture_output=True, check=True, cwd=ROOT).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
            append([line(short, measured(Path(folder)))])
    print(HISTORY.read_text("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
