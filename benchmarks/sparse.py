"""Sparse derivatives beside asdex and CasADi: `python -m benchmarks.sparse [PROBLEM ...] [--write docs/benchmarks.md]`.

Each measurement runs in a process of its own. The peers are in an environment of their own, whose interpreter is
named by FXAD_SPARSE_PEERS (`pip install asdex casadi`). For each problem: seconds to the pattern and its colouring, to
the first derivative, and for a repeated one; and the number of products.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Function = Callable[[Any, Any], Any]  # of the array library, and x


def rosenbrock(xp: Any, x: Any) -> Any:
    """The chained Rosenbrock function: its Hessian is tridiagonal."""
    return xp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def luksan_vlcek_5(xp: Any, x: Any) -> Any:
    """The generalised Broyden tridiagonal function. Source: Luksan, Vlcek, Sparse and partially separable test
    problems for unconstrained and equality constrained optimization (1999), problem 5."""
    y = xp.concatenate([xp.zeros(1), x, xp.zeros(1)])
    return xp.sum(abs((3 - 2 * x) * x - y[:-2] - y[2:] + 1) ** (7 / 3))


def luksan_vlcek_7(xp: Any, x: Any) -> Any:
    """The seven-diagonal generalisation of the Broyden tridiagonal function. Source: as above, problem 7."""
    half = x.shape[0] // 2
    return luksan_vlcek_5(xp, x) + xp.sum(abs(x[:half] + x[half:]) ** (7 / 3))


def brusselator(xp: Any, x: Any) -> Any:
    """The right-hand side of the Brusselator on a periodic grid: two species, five points."""
    n = int(np.sqrt(x.shape[0] // 2))
    u, v = x.reshape(2, n, n)

    def laplacian(w: Any) -> Any:
        return sum([xp.roll(w, s, a) for s in (1, -1) for a in (0, 1)]) - 4 * w

    du = 1 + u**2 * v - 4.4 * u + laplacian(u)
    dv = 3.4 * u - u**2 * v + laplacian(v)
    return xp.stack([du, dv]).reshape(-1)


def neural(xp: Any, x: Any) -> Any:
    """The residual of a neural differential equation by the midpoint rule: blocks of 8 x 16."""
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32) / 3
    states = x.reshape(-1, 8)
    middle = (states[1:] + states[:-1]) / 2
    return (states[1:] - states[:-1] - 0.1 * xp.tanh(middle @ weights)).reshape(-1)


def bundle(xp: Any, x: Any) -> Any:
    """The residual of bundle adjustment: each of 60 cameras sees some points, each point is seen by six cameras."""
    cameras, seen = 60, 6
    points = (x.shape[0] - 6 * cameras) // 3
    rng = np.random.default_rng(0)
    camera = np.argsort(rng.random((points, cameras)), axis=1)[:, :seen].reshape(-1).astype(np.int32)
    point = np.repeat(np.arange(points, dtype=np.int32), seen)
    pose = x[: 6 * cameras].reshape(cameras, 6)[camera]
    place = x[6 * cameras :].reshape(-1, 3)[point]
    angle = xp.sqrt(xp.sum(pose[:, :3] ** 2, axis=1, keepdims=True) + 1e-12)
    axis = pose[:, :3] / angle
    along = xp.sum(axis * place, axis=1, keepdims=True)
    turned = place * xp.cos(angle) + xp.cross(axis, place) * xp.sin(angle) + axis * along * (1 - xp.cos(angle))
    turned = turned + pose[:, 3:]
    return (turned[:, :2] / (8 + turned[:, 2:])).reshape(-1)


@cache
def triangles(points: int) -> Any:
    """The corners of a triangulation of random points. It is made before a measurement."""
    spatial = __import__("scipy.spatial").spatial
    return spatial.Delaunay(np.random.default_rng(0).random((points, 2))).simplices.astype(np.int32)


def mesh(xp: Any, x: Any) -> Any:
    """The energy of springs between the points of a triangulation that is given by indices."""
    corners = triangles(x.shape[0])
    return sum([xp.sum((x[corners[:, i]] - x[corners[:, i - 1]]) ** 4) for i in range(3)])


# function, whether it has a Hessian, and sizes
PROBLEMS: dict[str, tuple[Function, bool, tuple[int, ...]]] = {
    "rosenbrock": (rosenbrock, True, (10_000, 100_000, 1_000_000)),
    "luksan_vlcek_5": (luksan_vlcek_5, True, (100_000,)),
    "luksan_vlcek_7": (luksan_vlcek_7, True, (100_000,)),
    "brusselator": (brusselator, False, (2 * 64**2, 2 * 512**2)),
    "neural": (neural, False, (80_000,)),
    "bundle": (bundle, False, (9_360,)),
    "mesh": (mesh, True, (10_000, 100_000)),
}


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def with_fxad(f: Function, scalar: bool, x: Any) -> dict[str, float]:
    import fxad as fx
    import fxad.numpy as fnp

    x = fnp.asarray(x)
    found: dict[str, Any] = {}

    def analyse() -> None:
        found["program"] = fx.trace(lambda x: f(fnp, x), x)
        pattern = fx.sparsity(fx.grad(found["program"]) if scalar else found["program"])
        found["coloring"] = pattern.color(symmetric=scalar)

    seconds = timed(analyse)
    transformation: Any = fx.sparse_hessian if scalar else fx.sparse_jacobian

    @cache
    def derivative() -> Any:
        return fx.jit(transformation(found["program"]))

    def run() -> object:
        return np.asarray(derivative()(x).data)

    return {"pattern": seconds, "products": found["coloring"].products, **first_and_repeated(run)}


def with_asdex(f: Function, scalar: bool, x: Any) -> dict[str, float]:
    import asdex
    import jax
    import jax.numpy as jnp

    x, g = jnp.asarray(x), lambda x: f(jnp, x)
    found: dict[str, Any] = {}

    def analyse() -> None:
        found["coloring"] = (asdex.hessian_coloring if scalar else asdex.jacobian_coloring)(g, x)

    seconds = timed(analyse)
    from_coloring = asdex.hessian_from_coloring if scalar else asdex.jacobian_from_coloring
    derivative = jax.jit(from_coloring(g, found["coloring"]))

    def run() -> object:
        return np.asarray(derivative(x).data)

    return {"pattern": seconds, "products": found["coloring"].num_colors, **first_and_repeated(run)}


def with_casadi(_f: Function, _scalar: bool, x: Any) -> dict[str, float]:
    """Only the chained Rosenbrock function, whose text CasADi's symbols accept."""
    import casadi

    found: dict[str, Any] = {}

    def analyse() -> None:
        v = casadi.MX.sym("x", len(x))
        value = casadi.sum1(100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2)
        found["hessian"] = casadi.Function("h", [v], [casadi.hessian(value, v)[0]])

    seconds = timed(analyse)
    return {"pattern": seconds, "products": 0, **first_and_repeated(lambda: found["hessian"](x))}


def first_and_repeated(run: Callable[[], object]) -> dict[str, float]:
    first = timed(run)
    return {"first": first, "repeated": min([timed(run) for _ in range(20)])}


LIBRARIES = {"fxad": with_fxad, "asdex": with_asdex, "casadi": with_casadi}


_LIMIT = 60  # seconds for one library on one problem


def measure(library: str, problem: str, size: int) -> dict[str, float] | str:
    """Runs one library on one problem in a process of its own; why there is no result otherwise."""
    python = sys.executable if library == "fxad" else os.environ.get("FXAD_SPARSE_PEERS", sys.executable)
    command = [python, "-P", __file__, library, problem, str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        return f"more than {_LIMIT} s"
    except subprocess.CalledProcessError as e:
        return str(e.stderr).strip().splitlines()[-1][:60]
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(problems: Sequence[str]) -> list[str]:
    """Returns the lines of the table, and prints each when it is measured."""
    lines = ["| problem | unknowns | library | pattern and colours | first | repeated | products |",
             "|---|---:|---|---:|---:|---:|---:|"]  # fmt: skip
    for problem in problems:
        for size in PROBLEMS[problem][2]:
            for library in LIBRARIES:
                if library == "casadi" and problem != "rosenbrock":
                    continue
                row = measure(library, problem, size)
                cells = [row, "", "", ""] if isinstance(row, str) else [
                    f"{row['pattern']:.3f} s", f"{row['first']:.3f} s", f"{1e3 * row['repeated']:.2f} ms",
                    f"{row['products']:.0f}" if row["products"] else "",
                ]  # fmt: skip
                lines.append(f"| {problem} | {size:,} | {library} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    return lines


NOTE = (
    "Seconds to the pattern and its colouring, to the first derivative with its compilation, and for a repeated one.",
    f"Each row is a process of its own, stopped after {_LIMIT} seconds. A repeated derivative is the fastest of 20.",
    "Each library chooses its colouring.",
    "CasADi has no figure for colours. The triangulation of `mesh` is made before.",
)


def versions() -> str:
    """The versions of the peers, as a sentence."""
    names = ["asdex", "jax", "casadi"]
    code = f"from importlib.metadata import version; print(*[n + ' ' + version(n) for n in {names}], sep=', ')"
    python = os.environ.get("FXAD_SPARSE_PEERS", sys.executable)
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return f"Peers: {done.stdout.strip()}." if done.returncode == 0 else "No peers were installed."


def main(argv: Sequence[str]) -> None:
    from benchmarks.page import page, save, sections, taken
    from benchmarks.run import ORDER

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args(argv)
    when = taken()
    lines = table(options.problems)
    if options.write:
        body = "\n".join([f"Measured on {when}.", "", *lines, "", *NOTE, versions()])
        before = sections(options.write.read_text(encoding="utf-8"))
        save(options.write, page({**before, "sparse": body}, ORDER))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] in LIBRARIES:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        function, scalar, _ = PROBLEMS[sys.argv[2]]
        if sys.argv[2] == "mesh":
            triangles(int(sys.argv[3]))
        start = np.random.default_rng(0).normal(size=int(sys.argv[3])).astype(np.float32)
        print(json.dumps(LIBRARIES[sys.argv[1]](function, scalar, start)))
    else:
        main(sys.argv[1:])
