"""How the operands and results of a module are divided among devices, as values and as text of Shardy (`sdy`).

The text of a `f32[8,4]` whose first axis the axis "i" of mesh 0 divides is `#sdy.sharding<@mesh0, [{"i"}, {}]>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import OPEN, DimensionAxes, Ids, MeshAxes, local_shape, without_replica_axis
from fxad.primitives.sharding_constraint import ShardingConstraint

# The sharding of a value; None if nothing says it.
ValueSharding: TypeAlias = "tuple[MeshAxes, DimensionAxes] | None"


@final
@dataclass(frozen=True, slots=True)
class ModuleSharding:
    """The sharding of a module: for each operand and result the number of its mesh, and the axes that divide it.

    Each mesh has an index for each of the `devices`: one that needs fewer devices has a replica axis, along which
    devices compute the same.
    """

    devices: int
    meshes: tuple[MeshAxes, ...]
    ins: tuple[tuple[int, DimensionAxes], ...]
    outs: tuple[tuple[int, DimensionAxes] | None, ...]  # None: XLA decides how the result is divided
    ids: Ids = ()  # of the devices; () are the first ones

    @property
    def devices_of_maps(self) -> tuple[int, ...]:
        """The distinct numbers of devices that the maps of the program need, without replicas: for the message that
        there are too few devices."""
        counts = [prod([n for _, n in without_replica_axis(mesh)]) for mesh in self.meshes]
        return tuple(sorted({n for n in counts if n > 1}))

    def attribute(self, where: tuple[int, DimensionAxes], aval: Aval) -> str:
        """The attribute of an operand or a result."""
        return sharding_attribute(*where, aval)

    def parts(self, where: Sequence[tuple[int, DimensionAxes] | None], avals: Sequence[Aval]) -> list[Aval | None]:
        """The types of the parts of operands or results; None where XLA decides."""
        return [
            None if w is None else a.with_shape(local_shape(self.meshes[w[0]], w[1], a.shape))
            for w, a in zip(where, avals, strict=True)
        ]


@by_value
def interface_shardings(jaxpr: Jaxpr) -> tuple[tuple[ValueSharding, ...], tuple[ValueSharding, ...]]:
    """The sharding of each operand and result, which is that of the map over devices or of the constraint that reads or
    computes it; None if there is none."""
    ins: dict[Atom, ValueSharding] = {}
    outs: dict[Atom, ValueSharding] = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        of_ins: tuple[ValueSharding, ...] = ()
        of_outs: tuple[ValueSharding, ...] = ()
        if isinstance(prim, ShardMap):
            stacked: DimensionAxes = (prim.names,)
            of_ins = tuple([(prim.mesh, stacked if s is None else s) for s in prim.in_specs])
            of_outs = tuple([(prim.mesh, stacked if s is None else s) for s in prim.out_specs])
        elif isinstance(prim, ShardingConstraint) and (OPEN,) not in prim.spec:
            of_ins = of_outs = ((prim.mesh, prim.spec),)
        elif isinstance(prim, Call):  # the function that it calls has no shardings of its own
            of_ins, of_outs = interface_shardings(prim.body)
        for a, sharding in zip(eqn.ins, of_ins, strict=False):
            if sharding is not None:
                ins.setdefault(a, sharding)
        outs.update(zip(eqn.outs, of_outs, strict=False))
    return tuple([ins.get(v) for v in jaxpr.ins]), tuple([outs.get(a) for a in jaxpr.outs])


# ----------------------------------------------------------------------------------------------------------------- text


def sharding_attribute(mesh: int, spec: DimensionAxes, aval: Aval) -> str:
    """The attribute of a value that the axes of a mesh divide. Meshes are numbered."""
    return f"#sdy.sharding<@mesh{mesh}, {dimension_shardings(spec, aval)}>"


def dimension_shardings(spec: DimensionAxes, aval: Aval) -> str:
    """The axes that divide each axis of an array, as MLIR text."""
    groups = [*spec, *[()] * (aval.ndim - len(spec))]
    return f"[{', '.join(['{?}' if group == (OPEN,) else axis_names_text(group) for group in groups])}]"


def axis_names_text(names: Sequence[str]) -> str:
    """Names of axes, as MLIR text."""
    return f"{{{', '.join(map(_axis_name_text, names))}}}"


def _axis_name_text(name: str) -> str:
    """A name as a string of printable ASCII, with % and a number for each other character: XLA ends the process at an
    escape in it. Names have no meaning outside of the text."""
    return '"' + "".join([c if " " <= c <= "~" and c not in '"\\%' else f"%{ord(c):X}." for c in name]) + '"'


def mesh_text(mesh: MeshAxes) -> str:
    """A mesh, as MLIR text."""
    return f"<[{', '.join([f'{_axis_name_text(name)}={size}' for name, size in mesh])}]>"
