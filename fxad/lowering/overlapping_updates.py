"""Updates of an array by its own elements at other places, which XLA would write while it reads them.

XLA writes a `dynamic_update_slice` in place, and fuses what computes the update into the loop that writes it. It fuses
none that reads the array itself at another place. But it does not notice if the array is reshaped before, or after, to
where XLA moves the reshape. In this program, each element that is written is read again for the next one, and the
result is [1, 1, 1, 1] for [1, 2, 3, 4]:

    %0: f32[3] = slice[starts=(0,), limits=(3,), strides=(1,)] %arg0
    %1: f32[4] = dynamic_update_slice %arg0, %0, 1
    %2: f32[4,1] = reshape[shape=(4, 1)] %1

So `fxad.lower` computes such an update in a branch of its own, with which XLA fuses nothing. XLA's barriers do not
suffice: it removes them before it fuses. Versions of jaxlib: `docs/known-faults.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Var, all_prims
from fxad.primitives.control.call import Applied
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise.convert import StopGradient
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.gather_scatter import Gather
from fxad.primitives.marks import Mark
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Reshape, Squeeze, Transpose
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.primitives.slicing import Slice

# The update, by the program that it stands in and its result there.
Update: TypeAlias = tuple[Jaxpr, Var]

_VIEWS: Final = (Reshape, ExpandDims, Squeeze, Transpose, BroadcastInDim)
_IDENTITIES: Final = (StopGradient, Mark, ShardingConstraint)
# XLA moves no reshape from these to their operands
_WITHOUT_RESHAPE: Final = (Unary, Binary, Compare, SelectN, Slice, DynamicSlice, Gather)
_DEPTH: Final = 40  # of calls that are followed


@final
@dataclass(frozen=True, slots=True)
class _NumberedValue:
    """A value of the program that XLA sees, after it has inlined all calls. Equal computations have one number."""

    number: int
    buffer: int  # the number of the array that it is a view of
    viewed: bool  # it has another shape than that array
    written_by: tuple[Update, ...] = ()  # the update whose result it is


@final
@dataclass(frozen=True, slots=True)
class _UpdateSite:
    update: Update
    buffer: int
    written: int
    viewed: bool


@by_value
def overlapping_updates(jaxpr: Jaxpr) -> frozenset[Update]:
    """Return the `dynamic_update_slice` whose update reads the array that it is written to, if that array or the result
    is reshaped.

    Cost: none without a `dynamic_update_slice`; else a dictionary entry for each equation, calls inlined, and a bit of
          each value for each update.
    """
    if not _has_update(jaxpr):
        return frozenset()
    flow = _ValueNumbering()
    flow.follow(jaxpr, [flow.value(("in", k), ()) for k in range(len(jaxpr.ins))], 0)
    return flow.overlapping()


@by_value
def _has_update(jaxpr: Jaxpr) -> bool:
    return any([isinstance(prim, DynamicUpdateSlice) for prim in all_prims(jaxpr)])


@final
class _ValueNumbering:
    """Where the values of a program come from."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._operands: list[tuple[int, ...]] = []  # of each number
        self._sites: list[_UpdateSite] = []
        self._reshaped: set[Update] = set()  # their results are

    def value(self, key: Hashable, operands: tuple[int, ...], *, written_by: tuple[Update, ...] = ()) -> _NumberedValue:
        number = self._numbers.setdefault((key, operands), len(self._operands))
        if number == len(self._operands):
            self._operands.append(operands)
        return _NumberedValue(number, number, False, written_by)

    def follow(self, jaxpr: Jaxpr, ins: Sequence[_NumberedValue], depth: int) -> list[_NumberedValue]:
        env: dict[Atom, _NumberedValue] = dict(zip(jaxpr.ins, ins, strict=True))

        def read(atom: Atom) -> _NumberedValue:
            return env[atom] if isinstance(atom, Var) else self.value(atom, ())

        for eqn in jaxpr.eqns:
            outs = self._results(jaxpr, eqn, [read(a) for a in eqn.ins], depth)
            env.update(zip(eqn.outs, outs, strict=True))
        return [read(a) for a in jaxpr.outs]

    def _results(self, jaxpr: Jaxpr, eqn: Eqn, ins: list[_NumberedValue], depth: int) -> list[_NumberedValue]:
        prim = eqn.prim
        numbers = tuple([v.number for v in ins])
        if isinstance(prim, DynamicUpdateSlice):
            update, array = (jaxpr, eqn.outs[0]), ins[0]
            self._sites.append(_UpdateSite(update, array.buffer, ins[1].number, array.viewed))
            return [self.value(prim, numbers, written_by=(update,))]
        if isinstance(prim, _IDENTITIES):
            return ins[:1]
        if isinstance(prim, Applied) and depth < _DEPTH:
            return self.follow(prim.applied, ins, depth + 1)
        if isinstance(prim, HigherOrder):
            for body in prim.bodies:
                if _has_update(body):  # the arrays of a loop or a branch are its own
                    self.follow(body, [self.value(("in", body, k), ()) for k in range(len(body.ins))], depth + 1)
        # A guess on the safe side: XLA may move a reshape past any other equation, or make one of it, such as a `while`
        # whose body reshapes the array. A branch too many costs a little time, one too few is a wrong result.
        if not isinstance(prim, _WITHOUT_RESHAPE):
            self._reshaped.update([update for v in ins for update in v.written_by])
        if isinstance(prim, _VIEWS) and eqn.outs[0].aval.size == eqn.ins[0].aval.size:
            (x,) = ins
            return [_NumberedValue(self.value(prim, numbers).number, x.buffer, True, x.written_by)]
        return [self.value((prim, k), numbers) for k in range(len(eqn.outs))]

    def overlapping(self) -> frozenset[Update]:
        """Return the updates that read their array."""
        bits = {buffer: 1 << k for k, buffer in enumerate({site.buffer for site in self._sites})}
        reads: list[int] = []  # of each number: the arrays that it is computed from, as bits
        for number, operands in enumerate(self._operands):
            arrays = bits.get(number, 0)
            for operand in operands:
                arrays |= reads[operand]
            reads.append(arrays)
        return frozenset(
            [
                site.update
                for site in self._sites
                if reads[site.written] & bits[site.buffer] and (site.viewed or site.update in self._reshaped)
            ]
        )
