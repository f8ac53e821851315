"""`sharding_constraint`: how the partitioner divides a value among devices."""

from __future__ import annotations

from typing import ClassVar, Final, final

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    Hlo,
    HloValues,
    Jaxpr,
    LinearMap,
    NDArray,
    primitive,
)
from fxad.primitives.families import LinearInOne
from fxad.primitives.meshes import (
    OPEN,
    DimensionAxes,
    Ids,
    MeshAxes,
    OnMesh,
    check_divides,
    check_ids,
    check_mesh,
    check_spec,
)
from fxad.primitives.operand_checks import check_count


@final
@primitive
class ShardingConstraint(LinearMap, LinearInOne, OnMesh):
    """Return the operand, divided among the devices of a mesh. `"?"` in a spec leaves an axis to the partitioner.
    Inside a map over devices, which have their parts already, it has no effect.

    Type: x of any type; the spec divides its axes. `devices` are ids, or () for those of the program.
    Rule: tangents and cotangents are divided in the same way.
    Source: sdy.sharding_constraint
    """

    name: ClassVar[str] = "sharding_constraint"
    mesh: MeshAxes
    spec: DimensionAxes
    devices: Ids = ()

    @property
    def closed(self) -> DimensionAxes:
        """The spec, with axes that the partitioner divides left whole."""
        return tuple([() if group == (OPEN,) else group for group in self.spec])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_count(self, avals, 1)
        check_mesh(self.name, self.mesh)
        check_ids(self.name, self.mesh, self.devices)
        check_spec(self.name, self.mesh, self.closed, avals[0])
        check_divides(self.name, self.mesh, self.closed, avals[0])
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return args

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if hlo.mesh:
            return args
        attrs = {"sharding": hlo.sharding(self.mesh, self.spec, outs[0])}  # the module runs on the devices of the mesh
        if not outs[0].size:  # XLA does not divide an array without elements
            return args
        return hlo.op("sdy.sharding_constraint", args, outs, attrs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (d,) = dims
        if d is None:
            return ctx(self, *args), dims
        before = (*self.spec[:d], *[()] * (d - len(self.spec)))
        spec = (*before, ctx.spmd or (OPEN,), *self.spec[d:])
        return ctx(ShardingConstraint(self.mesh, spec, self.devices), *args), dims

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(self, ct)


@by_value
def with_shardings(
    jaxpr: Jaxpr, ins: tuple[ShardingConstraint | None, ...], outs: tuple[ShardingConstraint | None, ...]
) -> Jaxpr:
    """Return the program with these sharding constraints on its operands and results; None: XLA decides.

    Law: the same values. Nothing is added for None.
    """
    b = Builder()

    def constrained(a: Atom, sharding: ShardingConstraint | None) -> Atom:
        return a if sharding is None else b.one(sharding, a)

    args = [constrained(b.input(a), sharding) for a, sharding in zip(jaxpr.in_avals, ins, strict=True)]
    results = b.inline(jaxpr, args)
    return b.build([constrained(a, sharding) for a, sharding in zip(results, outs, strict=True)], jaxpr.name)


SHARDING_CONSTRAINT: Final = (ShardingConstraint,)
