"""Plans of programs that are one map over devices (`fxad.units.maps`): each unit is a map of its own, over the same
devices. The body of the map is planned as any program, and then each unit of that plan is mapped again.

- An operand or a result of the program keeps its spec.
- A value between units that is equal on all devices is whole on each of them.
- A value that varies over some axes is divided by them along its first axis. So the values between layers are divided
  as a batch is, and equal layers are one unit. A value without axes is a stack of the values of all devices.
- If an operand or a result of the same type varies over the same axes, the value is divided as it is. If operands and
  results are mostly stacks, as in `pmap`, all values that vary are stacks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dce import rebind_operands
from fxad.core.memo import by_value
from fxad.errors import AxisNameError
from fxad.ir import Aval, Jaxpr
from fxad.primitives.control.bodies import with_outs
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import DimensionAxes, Ids, MeshAxes, names_in
from fxad.transforms.vmap import vmap_named
from fxad.units.maps import OneMap
from fxad.units.plan import Plan, Step, Unit

# How a value is divided among the indices of the map; None: it is a stack, with one slice for each index.
_MapSpec: TypeAlias = "DimensionAxes | None"


def plan_over_devices(plan: Plan, over: OneMap) -> Plan:
    """The plan of a map, from the plan of its body. Bytes are those of one device."""
    return _Mapped(plan, over).plan()


@final
class _Mapped:
    """Maps the units of `inner`, the plan of the body of the map `over`.

    `divisions` has the division of each slot, and `varies` its axes. `usual` are the divisions of operands and results
    by the axes that divide them and by the types of their parts.
    """

    __slots__ = ("divisions", "inner", "over", "stacks", "usual", "varies")

    def __init__(self, inner: Plan, over: OneMap) -> None:
        self.inner, self.over = inner, over
        ends = (*over.ins, *over.outs)
        self.stacks = sum([s is None for s in ends]) > sum([bool(s) for s in ends])
        self.usual: dict[tuple[frozenset[str], Aval], _MapSpec] = {}
        for s, a in zip(ends, (*over.body.in_avals, *over.body.out_avals), strict=True):
            self.usual.setdefault((self._axes(s), a), s)
        constants: list[_MapSpec] = [()] * len(inner.constants)
        self.divisions: list[_MapSpec] = [*over.ins, *constants]
        self.varies = self._all_varies([self._axes(s) for s in self.divisions])

    def _axes(self, division: _MapSpec) -> frozenset[str]:
        """The axes over which a value varies."""
        return frozenset(self.over.names if division is None else names_in(division))

    def plan(self) -> Plan:
        """The plan of the map."""
        plan, results = self.inner, dict(zip(self.inner.outs, self.over.outs, strict=True))
        signatures: dict[tuple[int, tuple[_MapSpec, ...], tuple[_MapSpec, ...]], int] = {}
        uses: list[int] = []
        steps: list[Step] = []
        for step in plan.steps:
            body = plan.units[step.unit].body
            for v in body.outs:
                slot = len(self.divisions)
                self.divisions.append(results[slot] if slot in results else self._between(self.varies[slot], v.aval))
            outs = tuple(self.divisions[len(self.divisions) - len(body.outs) :])
            key = step.unit, tuple([self.divisions[k] for k in step.ins]), outs
            unit = signatures.setdefault(key, len(signatures))
            uses += [0] * (unit == len(uses))
            uses[unit] += 1
            steps.append(replace(step, unit=unit))
        units = [self._unit(plan.units[k], ins, outs, uses[n]) for (k, ins, outs), n in signatures.items()]
        slots = tuple([whole(self.over.mesh, s, a) for s, a in zip(self.divisions, plan.slots, strict=True)])
        return replace(plan, units=tuple(units), steps=tuple(steps), slots=slots)

    def _all_varies(self, varies: list[frozenset[str]]) -> list[frozenset[str]]:
        """The axes over which each slot varies; `varies` are those of operands and constants. A value between units
        counts as varying over the axes of other values at the same place of its units, so that equal calls stay one
        unit: a cotangent may begin as a constant."""
        units, steps, n_inputs = self.inner.units, self.inner.steps, len(varies)
        axes_of_slots = varies + [frozenset[str]()] * (len(self.inner.slots) - n_inputs)
        while True:
            places: dict[tuple[int, int], frozenset[str]] = {}
            rows: list[tuple[int, list[int]]] = []
            n = n_inputs
            new = list(axes_of_slots)
            for step in steps:
                body = units[step.unit].body
                outs = range(n, n + len(body.outs))
                for slot, axes in zip(outs, self._vary(body, [new[k] for k in step.ins]), strict=True):
                    new[slot] |= axes
                n += len(outs)
                rows.append((step.unit, [*step.ins, *outs]))
            for unit, slots in rows:
                for place, slot in enumerate(slots):
                    places[unit, place] = places.get((unit, place), frozenset()) | new[slot]
            for unit, slots in rows:
                for place, slot in enumerate(slots):
                    new[slot] |= places[unit, place] if slot >= n_inputs else frozenset()
            if new == axes_of_slots:
                return new
            axes_of_slots = new

    def _vary(self, body: Jaxpr, varies: list[frozenset[str]]) -> list[frozenset[str]]:
        """The axes over which each result of a body varies."""
        axes_of_results: list[set[str]] = [set() for _ in body.outs]
        for name, size in self.over.mesh:
            dims = tuple([0 if name in axes else None for axes in varies])
            try:
                out_dims = vmap_named(body, size, name, dims, devices=True)[1]
            except AxisNameError:  # results that are not checked may be equal without a proof
                out_dims = (0,) * len(body.outs)
            for axes, d in zip(axes_of_results, out_dims, strict=True):
                axes.update([name] if d is not None else [])
        return [frozenset(axes) for axes in axes_of_results]

    def _between(self, varies: frozenset[str], part: Aval) -> _MapSpec:
        """The division of a value between units."""
        if not varies:
            return ()
        if (varies, part) in self.usual:
            return self.usual[varies, part]
        if self.stacks or not part.ndim:
            return None
        return (tuple([name for name in self.over.names if name in varies]),)

    def _unit(self, unit: Unit, ins: tuple[_MapSpec, ...], outs: tuple[_MapSpec, ...], uses: int) -> Unit:
        return replace(unit, body=map_of(unit.body, self.over.mesh, self.over.devices, ins, outs), uses=uses)


def whole(mesh: MeshAxes, division: DimensionAxes | None, part: Aval) -> Aval:
    """The type of the whole of a value, from that of a part."""
    return ShardMap(_EMPTY, mesh, 0, (), ()).whole(division, part)


_EMPTY: Final = Builder().build(())


@by_value
def map_of(body: Jaxpr, mesh: MeshAxes, ids: Ids, ins: tuple[_MapSpec, ...], outs: tuple[_MapSpec, ...]) -> Jaxpr:
    """The program that maps a body, with its operands and results in their order."""
    consts = [k for k, s in enumerate(ins) if s == ()]
    parts = [k for k, s in enumerate(ins) if s]
    stacks = [k for k, s in enumerate(ins) if s is None]
    order = [*[k for k, s in enumerate(outs) if s is not None], *[k for k, s in enumerate(outs) if s is None]]
    inside = rebind_operands(body, range(len(ins)), (0, 1, 2), (consts, parts, stacks))
    inside = with_outs(inside, [inside.outs[k] for k in order])
    specs = [[s for s in side if s is not None] for side in ([ins[k] for k in parts], outs)]
    prim = ShardMap(inside, mesh, len(consts), tuple(specs[0]), tuple(specs[1]), ids)
    b = Builder()
    operands = [b.input(prim.whole(s, a)) for s, a in zip(ins, body.in_avals, strict=True)]
    results = dict(zip(order, b(prim, *[operands[k] for k in (*consts, *parts, *stacks)]), strict=True))
    return b.build([results[k] for k in range(len(outs))], body.name)
