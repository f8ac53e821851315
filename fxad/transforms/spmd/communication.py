"""Counts the bytes that the collectives of a program communicate, from the program alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.layout import OneOf, Times, Unknown, UpTo
from fxad.core.memo import by_value
from fxad.core.sizes.size import maximum
from fxad.ir import Aval, HigherOrder, Jaxpr
from fxad.primitives.collectives import Collective
from fxad.primitives.control.shard_map import ShardMap, with_whole_operands
from fxad.support.tables import Shown, Table

# A collective: its name, its axes and their sizes.
_Key: TypeAlias = tuple[str, tuple[str, ...], tuple[int, ...]]


@final
@dataclass(frozen=True, slots=True)
class _Total:
    """Runs of a collective and the bytes of its operands. `known`: both are exact."""

    runs: int = 0
    bytes: int = 0
    known: bool = True

    def __add__(self, other: _Total) -> _Total:
        return _Total(self.runs + other.runs, self.bytes + other.bytes, self.known and other.known)

    def times(self, count: int, known: bool) -> _Total:
        """Return the total of a loop, of which this is one run."""
        return _Total(count * self.runs, count * self.bytes, known and self.known)


_Totals: TypeAlias = dict[_Key, _Total]


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
class Communication(Shown):
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

    def _shown(self) -> tuple[str, Sequence[Table]]:
        return "", [self._table]


def communication(jaxpr: Jaxpr) -> Communication:
    """Return the collectives of a program, with their bytes on one device. A map over devices inside of another one
    gathers its results. Collectives that the partitioner adds for shardings of whole arrays are not in the program, and
    not counted."""
    totals = sorted(_totals(jaxpr, False), key=lambda row: row[0])
    return Communication(tuple([Traffic(*key, total.runs, total.bytes, total.known) for key, total in totals]))


@by_value
def _totals(jaxpr: Jaxpr, in_map: bool) -> tuple[tuple[_Key, _Total], ...]:
    """Return the collectives of a program, which the devices of a map run if `in_map`: there a map gathers its
    results."""
    totals: _Totals = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, Collective):
            _add(totals, (prim.name, prim.names, prim.sizes), _Total(1, _bytes(eqn.ins[0].aval)))
        elif isinstance(prim, HigherOrder):
            for key, total in _in_bodies(prim, in_map).items():
                _add(totals, key, total)
    return tuple(totals.items())


def _bytes(x: Aval) -> int:
    """Return the bytes of an array; for a symbolic shape an expression, unlike `nbytes`, which is an estimate."""
    return x.size * x.dtype.itemsize


def _add(totals: _Totals, key: _Key, total: _Total) -> None:
    totals[key] = totals.get(key, _Total()) + total


def _in_bodies(prim: HigherOrder, in_map: bool) -> _Totals:
    """Return the collectives of one run of an equation with bodies."""
    # a layout does not say what a map gathers to give its body whole operands
    if isinstance(prim, ShardMap):
        return dict(_totals(with_whole_operands(prim) if in_map else prim.body, True))
    layout = prim.layout
    totals: _Totals = {}
    branches: list[_Totals] = []
    for k in layout.running:
        body, of_body = layout.bodies[k], dict(_totals(layout.bodies[k].jaxpr, in_map))
        match body.runs:
            case OneOf():
                branches.append(of_body)
                continue
            case Times(count):
                runs, known = count, True
            case UpTo(most) | Unknown(int(most)):
                runs, known = most, False
            case Unknown():
                runs, known = 1, False
            case _:
                runs, known = 1, True
        for key, total in of_body.items():
            _add(totals, key, total.times(runs, known))
    for key in dict.fromkeys([key for branch in branches for key in branch]):
        each = [branch.get(key, _Total()) for branch in branches]
        equal = len(set(each)) == 1 and each[0].known
        runs, nbytes = reduce(maximum, [t.runs for t in each]), reduce(maximum, [t.bytes for t in each])
        _add(totals, key, _Total(runs, nbytes, equal))
    return totals
