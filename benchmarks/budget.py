"""Budgets: the bytes that `remat(f, budget=...)` reaches and the time of a step, beside `jax.checkpoint`.

    python -m benchmarks.budget                 measure everything, write docs/memory.json and docs/memory.md
    python -m benchmarks.budget mlp             measure some networks; earlier results of the others stay
    python docs/plots.py                        the plot, from docs/memory.json

The networks are those of `benchmarks.memory`. A budget is a share of the bytes of fxad's plain gradient. If no plan
fits, the row is that of the least budget that the error names. A time is the processor time of a step over all threads:
the best of turns that all contestants take one by one, in one process.
"""

from __future__ import annotations

import argparse
import gc
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import jax

import fxad as fx
from benchmarks.bench_models import agree
from benchmarks.memory import DOCS, POLICIES, Variant, theirs
from benchmarks.memory_page import read, write
from benchmarks.models.blocks import NETWORKS, Network, Way
from benchmarks.models.library import OURS
from benchmarks.page import taken
from fxad.errors import ParameterError
from fxad.transforms.memory_plans.flat_program import flat_program
from fxad.transforms.memory_plans.plan import MemoryPlan
from fxad.transforms.memory_plans.search import recomputations

SHARES: Final = (1.0, 0.75, 0.5, 0.25, 0.12, 0.06)


def chosen(gradient: Any, budget: int) -> tuple[MemoryPlan, int]:
    """Returns the plan for a budget, or for the least possible one; and that budget."""
    try:
        return fx.plan_memory(gradient, budget=budget), budget
    except ParameterError as e:
        found = re.search(r"reached is ([\d,]+) bytes", str(e))
        assert found is not None
        budget = int(found[1].replace(",", ""))
        return fx.plan_memory(gradient, budget=budget), budget


def described(plan: MemoryPlan) -> str:
    """Describes a plan in a few words."""
    r = plan.recomputation
    parts = [f"loops in segments of {', '.join(map(str, r.loops))}"] if r.loops else []
    parts += ["bodies compute values again"] if r.bodies is not None else []
    if r.schedule is not None:
        again = sum([not row.stored for row in plan.rows])
        parts.append(f"{again} of {len(plan.rows)} values computed again")
    return "; ".join(parts) or "plain"


def turns(steps: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Returns seconds of processor time of each contestant, which other work on the machine disturbs less than
    wall-clock time."""
    best = [float("inf")] * len(steps)
    end = time.perf_counter() + seconds
    gc.disable()
    while time.perf_counter() < end or float("inf") in best:
        for k, step in enumerate(steps):
            start = time.process_time()
            step()
            best[k] = min(best[k], time.process_time() - start)
    gc.enable()
    return best


def measure(network: Network, seconds: float) -> dict[str, Any]:
    """Returns the rows of a network: name, budget, bytes, time relative to jax's plain gradient, and the plan."""
    args = [fx.tree.map(fx.asarray, a) for a in (network.layers, network.start, network.xs)]
    program = fx.trace(lambda layers, start, xs: network.loss(OURS, Way(), layers, start, xs), *args)
    start = time.process_time()
    gradient = fx.grad(program)
    run: fx.Executable[..., Any] = fx.lower(gradient).compile()
    compiling = time.process_time() - start
    start = time.process_time()
    flat = flat_program(gradient.jaxpr)
    planned = [(r.program(flat), (time.process_time() - start) / compiling) for r in recomputations(flat)]
    plain, value = run.memory().temp_bytes, run(*args)
    rows: list[dict[str, Any]] = []
    steps: list[Callable[[], object]] = []
    made: dict[MemoryPlan, Any] = {}

    def step(run: Any) -> None:
        for a in fx.tree.leaves(run(*args)):
            a.block_until_ready()

    for share in SHARES:
        plan, budget = chosen(gradient, int(share * plain))
        if plan not in made:
            made[plan] = fx.lower(gradient, passes=plan.passes).compile()
            agree(value, made[plan](*args))
            steps.append(partial(step, made[plan]))
        lean = made[plan]
        rows.append(
            {
                "name": f"{100 * share:.0f} %",
                "fits": budget == int(share * plain),
                "budget": int(share * plain),
                "bytes": lean.memory().temp_bytes,
                "plan": described(plan),
                "contestant": list(made).index(plan),
            }
        )
    ways = {"jax, plain": Way()}
    ways |= {
        f"jax.checkpoint: {name}": Way(partial(jax_checkpoint, policy=peer)) for name, (_, peer) in POLICIES.items()
    }
    for name, way in ways.items():
        contestant = theirs(network, Variant(name, Way(), way))
        agree(value, contestant.value)
        rows.append({"name": name, "bytes": contestant.temp_bytes, "contestant": len(steps)})
        steps.append(contestant.step)
    times = turns(steps, seconds)
    unit = times[next(row["contestant"] for row in rows if row["name"] == "jax, plain")]
    for row in rows:
        row["time"] = round(times[row.pop("contestant")] / unit, 3)
    return {
        "name": network.name,
        "plain": plain,
        "rows": rows,
        "search": [round(planned[k][1], 2) for k in (0, -1)],
        "plans": len(planned),
        "taken": taken(),
    }


def jax_checkpoint(f: Callable[..., Any], policy: Any) -> Callable[..., Any]:
    """`jax.checkpoint` with a policy."""
    lean: Callable[..., Any] = jax.checkpoint(f, policy=policy)
    return lean


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and writes after each network."""
    makers = {make.__name__: make for make in NETWORKS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(makers)}; all by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the times of each network")
    options = parser.parse_args(argv)
    for name in options.networks or makers:
        found = measure(makers[name](), options.seconds)
        data = read(DOCS)
        budgets = {n["name"]: n for n in data.get("budgets", [])}
        write(DOCS, {**data, "budgets": list({**budgets, found["name"]: found}.values())})
        print(name, f"search / compilation: first plan {found['search'][0]}, all {found['search'][1]}")
        for row in found["rows"]:
            part = row["bytes"] / found["plain"]
            print(f"  {row['name']:32} {row['bytes']:>12,} {part:6.2f} {row['time']:6.2f}  {row.get('plan', '')}")


if __name__ == "__main__":
    main()
