"""Counts the bytes that the collectives of a program communicate, from the program alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.layout import OneOf, Times, Unknown, UpTo
from fxad.core.memo import by_value
from fxad.core.tables import Table
from fxad.ir import HigherOrder, Jaxpr
from fxad.primitives.collectives import Collective
from fxad.primitives.control.shard_map import ShardMap, with_whole_operands

# The collective and its axes; the runs and the bytes, and whether both are exact.
_Key: TypeAlias = tuple[str, tuple[str, ...], tuple[int, ...]]
_Entry: TypeAlias = tuple[int, int, bool]


@final
@dataclass(frozen=True, slots=True)
class Traffic:
    """A collective over named axes: how often a device runs it, and the bytes of its operands on that device, over all
    runs. `known` is False if a loop or a branch that contains it runs a number of times that the program does not
    tell: then the figures are for one run of a loop without a bound, all runs of one with a bound, and the largest
    branch."""

    collective: str
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    runs: int
    bytes: int
    known: bool


@final
@dataclass(frozen=True, slots=True)
class Communication:
    """The collectives of a program. Its `str` is a table."""

    rows: tuple[Traffic, ...]

    @property
    def bytes(self) -> int:
        """The bytes of the operands of all collectives, on one device."""
        return sum([row.bytes for row in self.rows])

    @property
    def known(self) -> bool:
        """True if all figures are exact."""
        return all([row.known for row in self.rows])

    def __iter__(self) -> Iterator[Traffic]:
        return iter(self.rows)

    @property
    def _table(self) -> Table:
        cells = []
        for r in self.rows:
            axes = " ".join([f"{name}={size}" for name, size in zip(r.axes, r.sizes, strict=True)])
            cells.append((r.collective, axes, f"{r.runs:,}", f"{r.bytes:,}", "" if r.known else "runs not known"))
        cells.append(("in all", "", "", f"{self.bytes:,}", "" if self.known else "runs not known"))
        return Table(("collective", "axes", "runs", "bytes per device", ""), tuple(cells), right=(2, 3))

    def __str__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.html()


def communication(jaxpr: Jaxpr) -> Communication:
    """Returns the collectives of a program, with their bytes on one device. A map over devices inside of another one
    gathers its results. Collectives that the partitioner adds for shardings of whole arrays are not in the program, and
    not counted."""
    rows = [Traffic(*key, *entry) for key, entry in sorted(dict(_counted(jaxpr, False)).items())]
    return Communication(tuple(rows))


@by_value
def _counted(jaxpr: Jaxpr, in_map: bool) -> tuple[tuple[_Key, _Entry], ...]:
    """The collectives of a program, which the devices of a map run if `in_map`: there a map gathers its results."""
    totals: dict[_Key, _Entry] = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, Collective):
            add(totals, (prim.name, prim.names, prim.sizes), (1, eqn.ins[0].aval.nbytes, True))
        elif isinstance(prim, HigherOrder):
            for key, entry in _inside(prim, in_map).items():
                add(totals, key, entry)
    return tuple(totals.items())


def add(totals: dict[_Key, _Entry], key: _Key, entry: _Entry) -> None:
    """Add runs and bytes to those of an equal collective."""
    runs, size, known = totals.get(key, (0, 0, True))
    totals[key] = runs + entry[0], size + entry[1], known and entry[2]


def _inside(prim: HigherOrder, in_map: bool) -> dict[_Key, _Entry]:
    """The collectives of one run of an equation with bodies."""
    if isinstance(prim, ShardMap):
        return dict(_counted(with_whole_operands(prim) if in_map else prim.body, True))
    layout = prim.layout
    totals: dict[_Key, _Entry] = {}
    branches: list[dict[_Key, _Entry]] = []
    for k in layout.running:
        body, rows = layout.bodies[k], dict(_counted(layout.bodies[k].jaxpr, in_map))
        match body.runs:
            case OneOf():
                branches.append(rows)
                continue
            case Times(count):
                times, known = count, True
            case UpTo(most):
                times, known = most, False
            case Unknown():
                times, known = 1, False
            case _:
                times, known = 1, True
        for key, (runs, size, sure) in rows.items():
            add(totals, key, (times * runs, times * size, known and sure))
    for key in dict.fromkeys([key for rows in branches for key in rows]):
        entries = [rows.get(key, (0, 0, True)) for rows in branches]
        runs, size = max([e[0] for e in entries]), max([e[1] for e in entries])
        add(totals, key, (runs, size, len(set(entries)) == 1 and entries[0][2]))
    return totals
