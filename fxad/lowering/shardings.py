"""The shardings that a program states for its operands and results, and the ids of its devices.

It is apart from `fxad.sharding`, because lowering knows ids of devices and no devices.

A map over devices states the shardings of its own operands and results, and so does a constraint. An operand or result
of the program has the sharding of the equation that reads or computes it.
"""

from __future__ import annotations

from fxad.core.memo import by_value
from fxad.errors import PlacementError
from fxad.ir import Atom, Jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.shard_map import ShardMap, device_ids
from fxad.primitives.meshes import OPEN, STACK, DimensionAxes, Division, Ids
from fxad.primitives.sharding_constraint import ShardingConstraint


@by_value
def of_operands_and_results(jaxpr: Jaxpr) -> tuple[tuple[Division | None, ...], tuple[Division | None, ...]]:
    """Return the sharding of each operand and result, which is that of the map over devices or of the constraint that
    reads or computes it; None if there is none."""
    ins: dict[Atom, Division | None] = {}
    outs: dict[Atom, Division | None] = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        in_divisions: tuple[Division | None, ...] = ()
        out_divisions: tuple[Division | None, ...] = ()
        # only a `shard_map` and a constraint say how values are divided
        if isinstance(prim, ShardMap):
            stacked: DimensionAxes = (prim.names,)
            in_divisions = tuple([(prim.mesh, stacked if s is STACK else s) for s in prim.in_specs])
            out_divisions = tuple([(prim.mesh, stacked if s is STACK else s) for s in prim.out_specs])
        elif isinstance(prim, ShardingConstraint) and (OPEN,) not in prim.spec:
            in_divisions = out_divisions = ((prim.mesh, prim.spec),)
        elif isinstance(prim, Call):  # only `@main` has shardings: a function in the module has none
            in_divisions, out_divisions = of_operands_and_results(prim.body)
        for a, sharding in zip(eqn.ins, in_divisions, strict=False):
            if sharding is not None:
                ins.setdefault(a, sharding)
        outs.update(zip(eqn.outs, out_divisions, strict=False))
    return tuple([ins.get(v) for v in jaxpr.ins]), tuple([outs.get(a) for a in jaxpr.outs])


def ids_of_devices(jaxpr: Jaxpr, devices: int) -> Ids:
    """Return the ids of the devices that the program names; () if it names none. Raises: PlacementError if its meshes
    have different devices, or others than the number that it needs."""
    ids = device_ids(jaxpr)
    if len(ids) > 1 or (ids and len(ids[0]) != devices):
        named = " and ".join([f"on devices {', '.join(map(str, of))}" for of in ids])
        raise PlacementError(
            f"lower: {jaxpr.name} runs {named}" + ("" if len(ids) > 1 else f", and needs {devices} devices"),
            remedy="give all meshes of a program the same devices, in one order",
        )
    return ids[0] if ids else ()
