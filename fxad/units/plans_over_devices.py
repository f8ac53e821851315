"""Plans of programs that are one map over devices (`fxad.units.maps`): each unit is a map of its own, over the same
devices. The body of the map is planned as any program, and then each unit of that plan is mapped again.

- An operand or a result of the program keeps its spec.
- A value between units that is equal on all devices is whole on each of them.
- A value that varies over some axes is divided by them along its first axis. So the values between layers are divided
  as a batch is, and equal layers are one unit. A value without axes is a stack of the values of all devices.
- If an operand or a result of the same type varies over the same axes, the value is divided as it is. If operands and
  results are mostly stacks, as in `pmap`, all values that vary are stacks.

For example, `psum(layer(layer(x, w), w).sum(), "i")` over two devices, with x divided along its first axis, is a plan
of two units, `layer` and the rest, and three steps:

    slot        0  x           1  w           2  layer(0, 1)     3  layer(2, 1)     4  rest(3)
    axes        {"i"}          {}             {"i"}              {"i"}              {}
    a part      f32[2,3]       f32[3,3]       f32[2,3]           f32[2,3]           f32[]
    division    (("i",),)      ()             (("i",),)          (("i",),)          ()
    the whole   f32[4,3]       f32[3,3]       f32[4,3]           f32[4,3]           f32[]

Slots 2 and 3 have the type and the axes of x, so they are divided as x is, and both calls of `layer` are one unit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, final

from fxad.core.builder import Builder, rebind_operands
from fxad.core.memo import by_value
from fxad.errors import AxisNameError
from fxad.ir import Aval, Jaxpr
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import STACK, Ids, MapSpec, MeshAxes, names_in
from fxad.transforms.vmap import vmap_named
from fxad.units.maps import OneMap
from fxad.units.plan import Plan, Step, Unit


def plan_over_devices(plan: Plan, one_map: OneMap) -> Plan:
    """The plan of a map, from the plan of its body. Bytes are those of one device."""
    return _MappedPlan(plan, one_map).plan()


@final
class _MappedPlan:
    """Maps the units of `inner`, the plan of the body of `map`.

    `divisions` has the division of each slot, as far as it is known, and `axes` the axes over which the slot varies.
    `of_interface` are the divisions of operands and results, by their axes and the types of their parts.
    `prefers_stacks`: operands and results are mostly stacks.
    """

    __slots__ = ("axes", "divisions", "inner", "map", "of_interface", "prefers_stacks")

    def __init__(self, inner: Plan, one_map: OneMap) -> None:
        self.inner, self.map = inner, one_map
        interface = (*one_map.ins, *one_map.outs)
        self.prefers_stacks = sum([s is STACK for s in interface]) > sum([s not in ((), STACK) for s in interface])
        self.of_interface: dict[tuple[frozenset[str], Aval], MapSpec] = {}
        for s, a in zip(interface, (*one_map.body.in_avals, *one_map.body.out_avals), strict=True):
            self.of_interface.setdefault((self._axes_of(s), a), s)
        constants: list[MapSpec] = [()] * len(inner.constants)
        self.divisions: list[MapSpec] = [*one_map.ins, *constants]
        self.axes = self._axes_of_slots([self._axes_of(s) for s in self.divisions])

    def _axes_of(self, division: MapSpec) -> frozenset[str]:
        """The axes over which a value varies, given its division."""
        return frozenset(self.map.names if division is STACK else names_in(division))

    def plan(self) -> Plan:
        """The plan of the map."""
        plan, division_of_result = self.inner, dict(zip(self.inner.outs, self.map.outs, strict=True))
        # a unit is mapped once for each way in which its operands and results are divided
        mapped_units: dict[tuple[int, tuple[MapSpec, ...], tuple[MapSpec, ...]], int] = {}
        uses: list[int] = []
        steps: list[Step] = []
        for step in plan.steps:
            body = plan.units[step.unit].body
            for v in body.outs:
                slot = len(self.divisions)
                if slot in division_of_result:
                    self.divisions.append(division_of_result[slot])
                else:
                    self.divisions.append(self._between_units(self.axes[slot], v.aval))
            outs = tuple(self.divisions[len(self.divisions) - len(body.outs) :])
            key = step.unit, tuple([self.divisions[k] for k in step.ins]), outs
            unit = mapped_units.setdefault(key, len(mapped_units))
            if unit == len(uses):
                uses.append(0)
            uses[unit] += 1
            steps.append(replace(step, unit=unit))
        units = [self._mapped_unit(plan.units[k], ins, outs, uses[n]) for (k, ins, outs), n in mapped_units.items()]
        slots = tuple([whole(self.map.mesh, s, a) for s, a in zip(self.divisions, plan.slots, strict=True)])
        return replace(plan, units=tuple(units), steps=tuple(steps), slots=slots)

    def _axes_of_slots(self, inputs: list[frozenset[str]]) -> list[frozenset[str]]:
        """The axes over which each slot varies, given those of operands and constants.

        A value between units counts as varying over the axes of the values at the same place of all uses of its unit.
        So equal calls stay one unit, even if a cotangent begins as a constant. This is repeated until nothing changes.
        """
        units, steps, n_inputs = self.inner.units, self.inner.steps, len(inputs)
        axes_of_slots = inputs + [frozenset[str]()] * (len(self.inner.slots) - n_inputs)
        while True:
            new = list(axes_of_slots)
            at_places: dict[tuple[int, int], frozenset[str]] = {}  # by unit, and place among its operands and results
            slots_of_steps: list[tuple[int, list[int]]] = []
            n = n_inputs
            for step in steps:
                body = units[step.unit].body
                outs = range(n, n + len(body.outs))
                for slot, axes in zip(outs, self._axes_of_results(body, [new[k] for k in step.ins]), strict=True):
                    new[slot] |= axes
                n += len(outs)
                slots_of_steps.append((step.unit, [*step.ins, *outs]))
            for unit, slots in slots_of_steps:
                for place, slot in enumerate(slots):
                    at_places[unit, place] = at_places.get((unit, place), frozenset()) | new[slot]
            for unit, slots in slots_of_steps:
                for place, slot in enumerate(slots):
                    if slot >= n_inputs:
                        new[slot] |= at_places[unit, place]
            if new == axes_of_slots:
                return new
            axes_of_slots = new

    def _axes_of_results(self, body: Jaxpr, axes_of_operands: list[frozenset[str]]) -> list[frozenset[str]]:
        """The axes over which each result of a body varies."""
        axes_of_results: list[set[str]] = [set() for _ in body.outs]
        for name, size in self.map.mesh:
            dims = tuple([0 if name in axes else None for axes in axes_of_operands])
            try:
                out_dims = vmap_named(body, size, name, dims, devices=True)[1]
            except AxisNameError:  # results that are not checked may be equal without a proof
                out_dims = (0,) * len(body.outs)
            for axes, d in zip(axes_of_results, out_dims, strict=True):
                if d is not None:
                    axes.add(name)
        return [frozenset(axes) for axes in axes_of_results]

    def _between_units(self, axes: frozenset[str], part: Aval) -> MapSpec:
        """The division of a value between units, given its axes and the type of its parts."""
        if not axes:
            return ()
        if (axes, part) in self.of_interface:
            return self.of_interface[axes, part]
        if self.prefers_stacks or not part.ndim:
            return STACK
        return (tuple([name for name in self.map.names if name in axes]),)

    def _mapped_unit(self, unit: Unit, ins: tuple[MapSpec, ...], outs: tuple[MapSpec, ...], uses: int) -> Unit:
        return replace(unit, body=map_of(unit.body, self.map.mesh, self.map.devices, ins, outs), uses=uses)


def whole(mesh: MeshAxes, division: MapSpec, part: Aval) -> Aval:
    """The type of the whole of a value, from that of a part."""
    return ShardMap(_EMPTY, mesh, 0, (), ()).whole(division, part)


_EMPTY: Final = Builder().build(())


@by_value
def map_of(body: Jaxpr, mesh: MeshAxes, ids: Ids, ins: tuple[MapSpec, ...], outs: tuple[MapSpec, ...]) -> Jaxpr:
    """The program that maps a body, with its operands and results in their order."""
    consts = [k for k, s in enumerate(ins) if s == ()]
    parts = [k for k, s in enumerate(ins) if s not in ((), STACK)]
    stacks = [k for k, s in enumerate(ins) if s is STACK]
    order = [*[k for k, s in enumerate(outs) if s is not STACK], *[k for k, s in enumerate(outs) if s is STACK]]
    inside = rebind_operands(body, (*consts, *parts, *stacks), outs=[body.outs[k] for k in order])
    specs = [[s for s in side if s is not STACK] for side in ([ins[k] for k in parts], outs)]
    prim = ShardMap(inside, mesh, len(consts), tuple(specs[0]), tuple(specs[1]), ids)
    b = Builder()
    operands = [b.input(prim.whole(s, a)) for s, a in zip(ins, body.in_avals, strict=True)]
    results = dict(zip(order, b(prim, *[operands[k] for k in (*consts, *parts, *stacks)]), strict=True))
    return b.build([results[k] for k in range(len(outs))], body.name)
