"""The results of `python -m benchmarks.memory` in `docs/memory.json`, replaced part by part, and their page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.page import save

PAGE: Final = """# Memory against time

Written by `python -m benchmarks.memory`. Each network is a stack of equal blocks, written once for both libraries
(`benchmarks/models/blocks.py`); each block is under `fx.remat` and under `jax.checkpoint` with the same policy, and the
gradient of all parameters is compiled for the CPU, by both in one process. All gradients of a network agree. How to
choose among these is in the [tutorial](tutorial-memory.md).

## Bytes

Temporaries of the compiled gradient, in kilobytes, as XLA reports them; they are the same in every run. Up to jaxlib
0.10 XLA merged the recomputation of `jax.checkpoint` with the first computation on CPUs, for unrolled blocks. With the
versions below the two stay apart.

`remat: nothing` stores the values between blocks. The other policies store these and the values that they select;
`everything` also stores values that the gradient does not need. `checkpointed_scan` is a loop over the sequence of the
RNN; for other networks with such rows it is a loop over their stacked parameters. It stores as many carries as its
budget, and the slices (or stacked parameters and their gradients) of its segments. `invertible` stores the last state.

fxad compiles each repeated block once, as a unit (`lower(..., units="auto")`, its default). A value that one unit
passes to another is in memory until its last use. fxad chooses these values so that they take the fewest bytes, and
recomputes cheap ones ([decision 28](adr/0028-what-crosses-between-units.md)).

{bytes}
## Couplings

Temporaries of the gradient of unrolled couplings with 4, 16 and 64 layers, in arrays of the state (128 x 128 numbers).
`invertible` takes as many as with few layers ([decision 42](adr/0042-segments.md)). Stored values grow with the number
of layers, unless XLA fuses a whole network of elementwise operations into one loop. A figure is missing if XLA compiles
64 layers for minutes, because it fuses each layer with all before it.

{couplings}
## Budgets

`fx.plan_memory(grad(f), budget=bytes)` for shares of the bytes of fxad's plain gradient, written by
`python -m benchmarks.budget` ([decision 95](adr/0095-a-budget-holds-for-the-executable.md)). Bytes are those of the
compiled gradient, in kilobytes and as a share of the plain figure. Times are processor times of a step over all
threads, relative to jax's plain gradient: the best of turns that all rows of a table take one by one. If no plan fits,
the row is that of the least budget that the error names. The last rows of each table are `jax.checkpoint` of each block
with its policies.

![Bytes against time](images/memory-budget.png)

{budgets}
## Time

One step, relative to jax's plain gradient of the same network: the best of turns that all contestants take one by one.
Above a load of 1 these times are not reliable.

{times}
"""


def replaced(data: dict[str, Any], network: dict[str, Any]) -> dict[str, Any]:
    """Returns the data with a network in place of the one of that name. If it has no times, the earlier ones stay."""
    networks = {n["name"]: n for n in data.get("networks", [])}
    old = networks.get(network["name"], {"taken": {}, "rows": {}})
    rows = {}
    for name, row in network["rows"].items():
        before = old["rows"].get(name, {})
        keep = {"time": before["time"]} if "time" in before and "time" not in row else {}
        rows[name] = {**row, **keep}
    new = {"name": network["name"], "taken": {**old["taken"], **network["taken"]}, "rows": rows}
    return {**data, "networks": list({**networks, network["name"]: new}.values())}


def tables(data: dict[str, Any], what: str) -> str:
    """Yields a table for each network: when it was measured, fxad's figure, jax's, and their ratio."""
    return "\n".join(["\n".join(_table(network, what)) + "\n" for network in data["networks"]])


def _table(network: dict[str, Any], what: str) -> Iterator[str]:
    yield f"Measured on {network['taken'].get(what, 'no day')}.\n"
    yield f"| {network['name']} | fxad | jax | fxad / jax |"
    yield "|---|---:|---:|---:|"
    for name, row in network["rows"].items():
        figures = row.get(what, [])
        cells = [f"{x / 1024:,.0f}" if what == "bytes" else f"{x:.2f}" for x in figures]
        ratio = f"{figures[0] / figures[1]:.2f}" if len(figures) == 2 else ""
        yield f"| {name} | {' | '.join([*cells, *[''] * (2 - len(cells))])} | {ratio} |"


def curves(data: dict[str, Any]) -> str:
    """A table of couplings: a row for each, and in its cells the figures of all depths."""
    found = data.get("couplings")
    if not found:
        return ""
    ways = list(next(iter(found["arrays"].values())))
    lines = [f"Measured on {found['taken']}.\n", f"| layer | {' | '.join(ways)} |", f"|---|{'---:|' * len(ways)}"]
    for name, row in found["arrays"].items():
        texts = [[f"{x:,.0f}" for x in row[way]] for way in ways]
        cells = [", ".join([*cell, *["-"] * (len(found["layers"]) - len(cell))]) for cell in texts]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def budgets(data: dict[str, Any]) -> str:
    """A table for each network: a row for each budget, and for each policy of jax."""
    return "\n".join(["\n".join(_budget_table(network)) + "\n" for network in data.get("budgets", [])])


def _budget_table(network: dict[str, Any]) -> Iterator[str]:
    yield f"Measured on {network['taken']}."
    first, last = network["search"]
    yield f"The first plan took {first:.2f} of the processor time of a compilation of the plain gradient, all"
    yield f"{network['plans']} plans {last:.2f}.\n"
    yield f"| {network['name']} | KB | part | time | plan |"
    yield "|---|---:|---:|---:|---|"
    for row in network["rows"]:
        part = row["bytes"] / network["plain"]
        name = row["name"] if row.get("fits", True) else f"{row['name']} (least)"
        yield f"| {name} | {row['bytes'] / 1024:,.0f} | {part:.2f} | {row['time']:.2f} | {row.get('plan', '')} |"


def read(docs: Path) -> dict[str, Any]:
    """Returns the earlier results."""
    path = docs / "memory.json"
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return data


def write(docs: Path, data: dict[str, Any]) -> None:
    """Writes the data and the page."""
    save(docs / "memory.json", json.dumps(data, indent=1) + "\n")
    page = PAGE.format(
        bytes=tables(data, "bytes"), times=tables(data, "time"), couplings=curves(data), budgets=budgets(data)
    )
    save(docs / "memory.md", page.rstrip() + "\n")
