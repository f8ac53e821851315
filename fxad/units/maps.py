"""Programs that are one map over devices. The calls of such a program are in the body of its map, so units are too.

Several maps in sequence are one map if each value goes from one to the next with one spec. Equations between maps on
values that are whole on each device run in the map, where each device computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import remove_dead_eqns
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Lit, Var, all_prims, distinct_jaxprs
from fxad.primitives.check import prim_calls_host
from fxad.primitives.control.shard_map import ShardMap, runs_on_devices
from fxad.primitives.meshes import OPEN, STACK, DimensionAxes, Ids, MapSpec, MeshAxes, OnMesh, local_shape
from fxad.primitives.shape import ExpandDims, Squeeze
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.units.pieces import inline_calls

# From the part of a stack that a device has, which has one slice, to the slice; and back.
_TO_SLICE: Final = Squeeze((0,))
_TO_STACK: Final = ExpandDims((0,))


@final
class NotOneMap(Enum):
    """The reason why a program on devices is not one map. Such a program is one unit."""

    DIVIDED_BY_XLA = "XLA decides how its arrays are divided among devices"
    CALLS_HOST = "it calls the host outside of its maps"
    RECOMPUTED = "it recomputes a map over devices"
    NESTED = "it has a map over devices in the body of a map"
    SEVERAL = "its maps over devices have different meshes, or divide one value in different ways"


@final
@dataclass(frozen=True, slots=True)
class OneMap:
    """A program that is a map of `body` over the axes of `mesh`. `ins` and `outs` say how operands and results are
    divided."""

    body: Jaxpr
    mesh: MeshAxes
    devices: Ids
    ins: tuple[MapSpec, ...]
    outs: tuple[MapSpec, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The axes."""
        return tuple([name for name, _ in self.mesh])


@by_value
def one_map(jaxpr: Jaxpr) -> OneMap | NotOneMap:
    """The map that a program on devices is, or the reason why it is none.

    Law: the map of the body has the results of the program.
    """
    # only a `shard_map` says how its operands are divided
    maps = [prim for prim in all_prims(jaxpr) if isinstance(prim, ShardMap)]
    if not maps:
        return NotOneMap.DIVIDED_BY_XLA
    if any([runs_on_devices(prim.body) for prim in maps]):
        return NotOneMap.NESTED
    if any([prim.mesh != maps[0].mesh for prim in maps]):
        return NotOneMap.SEVERAL
    program, recomputed = inline_calls(jaxpr, {b for b in distinct_jaxprs(jaxpr) if runs_on_devices(b)})
    if recomputed:  # in one program with the first computation, XLA would merge the two
        return NotOneMap.RECOMPUTED
    ids = {prim.devices for prim in program.prims if isinstance(prim, OnMesh) and prim.devices}
    specs = _specs(program, maps[0].mesh)
    if isinstance(specs, NotOneMap):
        return specs
    if len(ids) > 1:
        return NotOneMap.SEVERAL
    return _with_stacks(_merged_maps(program, maps[0].mesh, ids.pop() if ids else (), specs))


def _without_empty_end(spec: DimensionAxes) -> DimensionAxes:
    """A spec without the empty entries at its end, so that equal divisions have equal specs."""
    while spec and not spec[-1]:
        spec = spec[:-1]
    return spec


def _specs(program: Jaxpr, mesh: MeshAxes) -> dict[Atom, DimensionAxes] | NotOneMap:
    """How each value of a program outside of its maps is divided; or the reason why it is not known."""
    stacked: DimensionAxes = (tuple([name for name, _ in mesh]),)
    specs: dict[Atom, DimensionAxes] = {}
    # First the operands: the first map or constraint that reads one divides it. `reads` has, for each of these
    # equations, the values that it reads and how it divides them.
    reads: dict[int, list[tuple[Atom, DimensionAxes]]] = {}
    operands = set(program.ins)
    for k, eqn in enumerate(program.eqns):
        prim = eqn.prim
        if isinstance(prim, ShardMap):
            divisions = [_without_empty_end(stacked if s is STACK else s) for s in prim.in_specs]
        elif isinstance(prim, ShardingConstraint):
            if prim.mesh != mesh or (OPEN,) in prim.spec:
                return NotOneMap.DIVIDED_BY_XLA
            divisions = [_without_empty_end(prim.spec)]
        else:
            continue
        reads[k] = [(a, s) for a, s in zip(eqn.ins, divisions, strict=True) if isinstance(a, Var)]
        for a, s in reads[k]:
            if a in operands:
                specs.setdefault(a, s)
    specs.update({v: () for v in program.ins if v not in specs})
    # Then all other values, in order.
    for k, eqn in enumerate(program.eqns):
        prim = eqn.prim
        if k in reads:
            if any([specs[a] != s for a, s in reads[k]]):
                return NotOneMap.SEVERAL
            if isinstance(prim, ShardMap):
                outs = [_without_empty_end(stacked if s is STACK else s) for s in prim.out_specs]
            else:
                outs = [s for _, s in reads[k]] or [()]
            specs.update(zip(eqn.outs, outs, strict=True))
        elif eqn.prim.effects or prim_calls_host(eqn.prim):  # in the map, each device would call it
            return NotOneMap.CALLS_HOST
        elif any([specs.get(a) for a in eqn.ins]) or _has_map(eqn):
            return NotOneMap.DIVIDED_BY_XLA
        else:
            specs.update(dict.fromkeys(eqn.outs, ()))
    return specs


def _has_map(eqn: Eqn) -> bool:
    """Returns True if an equation, such as a loop, has a body with a map."""
    return isinstance(eqn.prim, HigherOrder) and any(map(runs_on_devices, eqn.prim.bodies))


def _merged_maps(program: Jaxpr, mesh: MeshAxes, devices: Ids, specs: Mapping[Atom, DimensionAxes]) -> OneMap:
    """The one map, whose body takes and returns the parts of stacks."""
    b = Builder()

    def part(a: Atom) -> Aval:
        return a.aval.with_shape(local_shape(mesh, specs.get(a, ()), a.aval.shape))

    env: dict[Atom, Atom] = {v: b.input(part(v)) for v in program.ins}
    slices: dict[Atom, Atom] = {}  # of stacks
    for eqn in program.eqns:
        prim = eqn.prim
        b.source = eqn.source
        if isinstance(prim, ShardMap):
            args: list[Atom] = []
            for a, spec, v in zip(eqn.ins, prim.in_specs, prim.body.ins, strict=True):
                if isinstance(a, Lit):
                    args.append(Lit(a.bits, v.aval))
                elif spec is not STACK:
                    args.append(env[a])
                else:
                    if env[a] not in slices:
                        slices[env[a]] = b.one(_TO_SLICE, env[a])
                    args.append(slices[env[a]])
            results = list(b.inline(prim.body, args))
            for k, spec in enumerate(prim.out_specs):
                if spec is STACK:
                    b.source = eqn.source
                    stack = b.one(_TO_STACK, results[k])
                    slices[stack] = results[k]
                    results[k] = stack
            env.update(zip(eqn.outs, results, strict=True))
        elif isinstance(prim, ShardingConstraint):
            env[eqn.outs[0]] = env.get(eqn.ins[0], eqn.ins[0])
        else:
            env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    outs = [env.get(a, a) for a in program.outs]
    body = remove_dead_eqns(b.build(outs, program.name))
    of_ins, of_outs = [specs[v] for v in program.ins], [specs.get(a, ()) for a in program.outs]
    return OneMap(body, mesh, devices, tuple(of_ins), tuple(of_outs))


def _with_stacks(merged: OneMap) -> OneMap:
    """The map whose body takes and returns slices of stacks, where it only unstacks an operand or stacks a result.

    Over 8 devices, with an operand f32[8,3] and a result f32[8,3] that are stacks for all maps of the program:

        (f32[1,3]) -> (f32[1,3]), specs (("i",),)     y = stack(sin(slice(x)))     from `_merged_maps`
        (f32[3])   -> (f32[3]),   specs STACK         y = sin(x)                   this map
    """
    body, ins, outs = merged.body, merged.ins, merged.outs
    all_axes: DimensionAxes = (merged.names,)
    read_whole = {a for e in body.eqns if e.prim != _TO_SLICE for a in e.ins} | {*body.outs}
    read = {a for e in body.eqns for a in e.ins}
    takes_slice = [
        s == all_axes and v.aval.shape[0] == 1 and v in read - read_whole for v, s in zip(body.ins, ins, strict=True)
    ]
    slice_of: dict[Atom, Atom] = {e.outs[0]: e.ins[0] for e in body.eqns if e.prim == _TO_STACK}
    returns_slice = [s == all_axes and a in slice_of and a not in read for a, s in zip(body.outs, outs, strict=True)]
    b = Builder()
    env: dict[Atom, Atom] = {}
    slices: dict[Atom, Atom] = {}  # of stacks
    for v, is_slice in zip(body.ins, takes_slice, strict=True):
        env[v] = b.input(v.aval.with_shape(v.aval.shape[1:]) if is_slice else v.aval)
        if is_slice:
            slices[v] = env[v]
    for eqn in body.eqns:
        if eqn.prim == _TO_STACK:
            slices[eqn.outs[0]] = env.get(eqn.ins[0], eqn.ins[0])
        if eqn.prim == _TO_SLICE and eqn.ins[0] in slices:
            env[eqn.outs[0]] = slices[eqn.ins[0]]
        else:
            b.extend((eqn,), env)
    results = [slice_of[a] if is_slice else a for a, is_slice in zip(body.outs, returns_slice, strict=True)]
    parts = remove_dead_eqns(b.build([env.get(a, a) for a in results], body.name))
    of_ins = [STACK if is_slice else spec for is_slice, spec in zip(takes_slice, ins, strict=True)]
    of_outs = [STACK if is_slice else spec for is_slice, spec in zip(returns_slice, outs, strict=True)]
    return OneMap(parts, merged.mesh, merged.devices, tuple(of_ins), tuple(of_outs))


def program_with_calls(jaxpr: Jaxpr) -> Jaxpr:
    """The program whose calls may be units: the body of a map over devices, or else the program itself."""
    map_or_reason = one_map(jaxpr) if runs_on_devices(jaxpr) else None
    return map_or_reason.body if isinstance(map_or_reason, OneMap) else jaxpr
