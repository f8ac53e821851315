"""`shard_map`: a program for each index of named axes, on parts of arrays. Devices run the indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm, prod
from typing import ClassVar, TypeAlias, TypeVar, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder, rebind_operands
from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.core.layout import Body, Constant, Group, InParallel, Layout, Part, Sliced, Value
from fxad.core.lockstep import run_mapped
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, AxisNameError
from fxad.ir import (
    INT32_SCALAR,
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Flags,
    FreeAxes,
    HigherOrder,
    Hlo,
    HloValues,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizeCtx,
    LinearizedBody,
    Lit,
    NDArray,
    Operands,
    Tangent,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.axes import replace_entry
from fxad.primitives.collectives import AllGather, Psum, flat_index
from fxad.primitives.control.bodies import insert_zeros, split_fused_results
from fxad.primitives.dynamic_slicing import DynamicSlice
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.linearity import is_linear, is_zero
from fxad.primitives.meshes import (
    STACK,
    DimensionAxes,
    Ids,
    MapSpec,
    MeshAxes,
    OnMesh,
    check_ids,
    check_mesh,
    check_spec,
    global_shape,
    mesh_within,
    names_in,
    shard_slices,
)
from fxad.primitives.operand_checks import MATCH_BODIES, type_mismatch
from fxad.primitives.shape import emit_broadcast, emit_reshape, move_axis

R = TypeVar("R")

# The results of one index, from its parts of the operands.
PartRun: TypeAlias = Callable[[tuple[int, ...], Sequence[NDArray]], Sequence[NDArray]]


@final
@primitive
class ShardMap(HigherOrder, Linear, OnMesh):
    """`body` for each index of the axes of `mesh`, on its parts of the operands; the results are put together.

    Type: operands: `n_consts` whole arrays; arrays divided as `ins` says; arrays with one slice along axis 0 for each
          index. Results: divided as `outs` says, or the same for all indices if that is `()`; then stacks of slices
          along axis 0. `body`: (parts of the operands) -> (parts of the results).
    Rule: the cotangent of an operand is summed over the axes that do not divide it. The indices that
          have the same part of a result have equal shares in its cotangent; in float16 and float8 one has it all.
    Source: sdy.manual_computation
    """

    name: ClassVar[str] = "shard_map"
    body: Jaxpr
    mesh: MeshAxes
    n_consts: int
    ins: tuple[DimensionAxes, ...]
    outs: tuple[DimensionAxes, ...]
    devices: Ids = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The axes."""
        return tuple([name for name, _ in self.mesh])

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    @property
    def free_axes(self) -> FreeAxes:
        return self.body.free_axes - frozenset(self.mesh)

    @property
    def in_specs(self) -> tuple[MapSpec, ...]:
        """How each operand is divided."""
        whole_and_divided = (*[()] * self.n_consts, *self.ins)
        return (*whole_and_divided, *[STACK] * (len(self.body.ins) - len(whole_and_divided)))

    @property
    def out_specs(self) -> tuple[MapSpec, ...]:
        """How each result is divided."""
        return (*self.outs, *[STACK] * (len(self.body.outs) - len(self.outs)))

    def _part_by(self, spec: DimensionAxes) -> Part:
        return Part(self.mesh, spec)

    @property
    def layout(self) -> Layout:
        n_stacks_in = len(self.body.ins) - self.n_consts - len(self.ins)
        n_stacks_out = len(self.body.outs) - len(self.outs)
        operands = (Group(Constant(), self.n_consts), *[Group(self._part_by(s), 1) for s in self.ins])
        results = [Group(self._part_by(s) if s else Value(), 1) for s in self.outs]
        body = Body(
            self.body,
            tuple(range(len(operands) + 1)),
            tuple(range(len(results) + 1)),
            InParallel(self.count, self.mesh, self.devices),
            stores=True,
        )
        return Layout((*operands, Group(Sliced(), n_stacks_in)), (*results, Group(Sliced(), n_stacks_out)), (body,))

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> ShardMap:
        return ShardMap(bodies[0], self.mesh, self.n_consts, self.ins, self.outs, self.devices)

    def rebuild(self, bodies: tuple[Jaxpr, ...], operands: tuple[int, ...], results: tuple[int, ...]) -> ShardMap:
        ins = tuple([s for s, n in zip(self.ins, operands[1:], strict=False) for _ in range(n)])
        outs = tuple([s for s, n in zip(self.outs, results, strict=False) for _ in range(n)])
        return ShardMap(bodies[0], self.mesh, operands[0], ins, outs, self.devices)

    def global_aval(self, spec: MapSpec, aval: Aval) -> Aval:
        """Return the type of the whole array. Each index has a part of type `aval`."""
        shape = (self.count, *aval.shape) if spec is STACK else global_shape(self.mesh, spec, aval.shape)
        return aval.with_shape(shape)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_mesh(self.name, self.mesh)
        check_ids(self.name, self.mesh, self.devices)
        if len(avals) != len(self.body.ins):
            raise ArgumentError(
                f"shard_map: {self.body.name} takes {len(self.body.ins)} operands, got {len(avals)}",
                remedy=MATCH_BODIES,
            )
        sizes = dict(self.mesh)
        for name, size in self.body.free_axes:
            if sizes.get(name, size) != size:
                raise AxisNameError(
                    f"shard_map: axis {name!r} has size {sizes[name]}, {self.body.name} was traced with {size}",
                    remedy="trace the program again for this size",
                )
        for name, size in mesh_of_maps(self.body):
            if sizes.get(name, size) != size:
                raise AxisNameError(
                    f"shard_map: axis {name!r} has size {sizes[name]}, and size {size} in a map inside",
                    remedy="give nested maps one mesh, or axes of other names",
                )
        specs = [*zip(self.in_specs, self.body.ins, strict=True), *zip(self.out_specs, self.body.outs, strict=True)]
        for spec, v in specs:
            if spec is not STACK:
                check_spec("shard_map", self.mesh, spec, v.aval)
        for k, (have, v, spec) in enumerate(zip(avals, self.body.ins, self.in_specs, strict=True)):
            want = self.global_aval(spec, v.aval)
            if have is not want:
                message = f"shard_map: operand {k} is {have}, {self.body.name} takes parts {v.aval} of {want}"
                raise type_mismatch(message, have, want)
        return tuple([self.global_aval(s, a) for s, a in zip(self.out_specs, self.body.out_avals, strict=True)])

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return self.run_parts(args, lambda _, parts: run(self.body, parts))

    def run_parts(self, args: Sequence[NDArray], part: PartRun) -> tuple[NDArray, ...]:
        """Return the results of `part(index, parts of the operands)` for all indices, put together. It runs for all
        indices at the same time, and may exchange values."""
        sizes = [n for _, n in self.mesh]
        outs = [
            np.zeros(self.global_aval(s, a).shape, a.dtype)
            for s, a in zip(self.out_specs, self.body.out_avals, strict=True)
        ]

        def run_index(index: tuple[int, ...]) -> None:
            flat = int(np.ravel_multi_index(index, sizes)) if sizes else 0
            parts = [
                a[flat] if s is STACK else a[shard_slices(self.mesh, s, a.shape, index)]
                for a, s in zip(args, self.in_specs, strict=True)
            ]
            for out, s, x in zip(outs, self.out_specs, part(index, parts), strict=True):
                out[flat if s is STACK else shard_slices(self.mesh, s, out.shape, index)] = x

        run_mapped(self.names, sizes, run_index)
        return tuple(outs)

    # ----------------------------------------------------------------------------------------------------- lowering

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        stacked: DimensionAxes = (self.names,)
        in_specs = [stacked if s is STACK else s for s in self.in_specs]
        out_specs = [stacked if s is STACK else s for s in self.out_specs]
        if not hlo.mesh:
            return hlo.on_devices(_with_stacks_of_one(self), self.mesh, in_specs, out_specs, args, outs)
        # devices run this program already: each takes its parts, and the results are gathered
        return hlo.call(with_whole_operands(self), args, self.mesh)

    # ----------------------------------------------------------------------------------------------------- batching

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        if ctx.axis in self.names:
            raise AxisNameError(
                f"shard_map: axis name {ctx.axis!r} is in use by a map around it",
                remedy="give each of nested maps its own name",
            )
        if ctx.spmd:
            names, mesh = ", ".join(map(repr, ctx.spmd)), dict(self.mesh)
            raise AxisNameError(
                f"vmap: spmd_axis_name {names} cannot divide the new axis of a map over the devices of {mesh}",
                remedy="map inside of shard_map, and name the axis in its specs; or leave spmd_axis_name out",
            )
        # the mapped axis is the last one, which no spec divides
        args = tuple([
            a if d is None else move_axis(ctx, a, d, a.aval.ndim - 1) for a, d in zip(args, dims, strict=True)
        ])  # fmt: skip
        body_dims: Dims = tuple([None if d is None else v.aval.ndim for d, v in zip(dims, self.body.ins, strict=True)])
        some_dims = ctx.recur(self.body, body_dims)[1]
        body_out_dims = tuple([
            None if d is None else a.ndim for d, a in zip(some_dims, self.body.out_avals, strict=True)
        ])  # fmt: skip
        body, _ = ctx.recur(self.body, body_dims, body_out_dims)
        outs = ctx(self.with_bodies((body,)), *args)
        # a stack has one more axis than the body's result, in front
        out_dims = [None if d is None else d + (s is STACK) for d, s in zip(body_out_dims, self.out_specs, strict=True)]
        return outs, tuple(out_dims)

    # ---------------------------------------------------------------------------------------------- differentiation

    def apply(
        self,
        emit: Callable[..., Sequence[R]],
        body: Jaxpr,
        operands: Sequence[tuple[object, MapSpec]],
        out_specs: Sequence[MapSpec],
    ) -> list[R]:
        """Apply another body over the same mesh. Return its results, in its order.

        `operands` are those of the body, with their specs; `out_specs` are the specs of its results. A map takes whole
        operands first, then divided ones, then stacks, and returns stacks last. So operands [(a, STACK), (b, ()),
        (c, (("x",),))] are taken in the order b, c, a.
        """

        def rank(spec: MapSpec) -> int:
            return 2 if spec is STACK else int(spec != ())

        takes = sorted(range(len(operands)), key=lambda k: rank(operands[k][1]))  # stable
        returns = sorted(range(len(out_specs)), key=lambda k: out_specs[k] is STACK)
        specs = [operands[k][1] for k in takes]
        divided = tuple([s for s in specs if s is not STACK and s != ()])
        prim = ShardMap(
            rebind_operands(body, takes, outs=[body.outs[k] for k in returns]),
            self.mesh,
            specs.count(()),
            divided,
            tuple([s for s in out_specs if s is not STACK]),
            self.devices,
        )
        results = emit(prim, *[operands[k][0] for k in takes])
        return [results[returns.index(k)] for k in range(len(out_specs))]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        nonzero = tuple([isinstance(t, Lin) for t in tangents])
        primals_and_specs = list(zip(primals, self.in_specs, strict=True))
        lins_and_specs = [(t, s) for t, s in zip(tangents, self.in_specs, strict=True) if isinstance(t, Lin)]
        if ctx.separate:
            return self._linearize(ctx, primals_and_specs, lins_and_specs, ctx.recur(self.body, nonzero))
        fused, out_nonzero = ctx.recur_fused(self.body, nonzero)
        operands = [*primals_and_specs, *[(t.var, s) for t, s in lins_and_specs]]
        out_specs = (*self.out_specs, *select_by_flags(self.out_specs, out_nonzero))
        results = tuple(self.apply(ctx, fused, operands, out_specs))
        return split_fused_results(results, out_nonzero, [v.aval for v in results[: len(self.body.outs)]])

    def _linearize(
        self,
        ctx: LinearizeCtx,
        primals_and_specs: Sequence[tuple[Atom, MapSpec]],
        lins_and_specs: Sequence[tuple[Lin, MapSpec]],
        linearized: LinearizedBody,
    ) -> tuple[Atoms, Tangents]:
        n_out, out_nonzero = len(self.body.outs), linearized.out_nonzero
        residuals = linearized.primal.outs[n_out:]
        # a residual that is an operand of the body is read from there; any other is stored for each index
        sources: dict[Atom, tuple[Atom, MapSpec]] = dict(zip(linearized.primal.ins, primals_and_specs, strict=True))
        stored = [a for a in dict.fromkeys(residuals) if a not in sources and not isinstance(a, Lit)]
        primal = linearized.primal.with_outs((*linearized.primal.outs[:n_out], *stored))
        results = ctx(self.with_bodies((primal,)), *[a for a, _ in primals_and_specs])
        outs = results[:n_out]
        sources.update({a: (v, STACK) for a, v in zip(stored, results[n_out:], strict=True)})
        distinct = [a for a in dict.fromkeys(residuals) if a in sources]
        linear = _with_distinct_residuals(linearized.linear, len(lins_and_specs), residuals, distinct)
        out_tangents: Sequence[Tangent] = ()
        if any(out_nonzero):
            operands = [*lins_and_specs, *[sources[a] for a in distinct]]
            out_tangents = self.apply(ctx.lin, linear, operands, select_by_flags(self.out_specs, out_nonzero))
        return outs, insert_zeros(out_tangents, out_nonzero, [v.aval for v in outs])

    def linear_in(self, flags: Flags) -> bool:
        return is_linear(self.body, flags)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        is_hole = tuple([isinstance(a, Hole) for a in args])
        nonzero = [not isinstance(ct, Zero) for ct in cts]
        adjoint = ctx.recur(self.body.with_outs(select_by_flags(self.body.outs, nonzero)), is_hole)
        cts_and_specs = [(ct, s) for ct, s in zip(cts, self.out_specs, strict=True) if not isinstance(ct, Zero)]
        residuals_and_specs = [(a, s) for a, s in zip(args, self.in_specs, strict=True) if not isinstance(a, Hole)]
        hole_specs = select_by_flags(self.in_specs, is_hole)
        b = Builder()
        shares = [
            self._share_of_cotangent(b, b.input(a), spec)
            for a, (_, spec) in zip(adjoint.in_avals, cts_and_specs, strict=False)
        ]
        bars_of_parts = b.inline(adjoint, [*shares, *b.inputs(adjoint.in_avals[len(shares) :])])
        sums = [self._sum_over_indices(b, a, spec) for a, spec in zip(bars_of_parts, hole_specs, strict=True)]
        back = b.build(sums, adjoint.name)
        bars = iter(self.apply(ctx, back, [*cts_and_specs, *residuals_and_specs], hole_specs))
        return tuple([next(bars) if hole else None for hole in is_hole])

    def _share_of_cotangent(self, b: Builder, ct: Atom, spec: MapSpec) -> Atom:
        """Return the share of an index in the cotangent of a result: the shares of the indices that have the same part
        of the result add up to it."""
        names, sizes = self._axes_of_equal_parts(spec)
        n_indices = prod(sizes)
        if n_indices == 1:
            return ct
        if ct.aval.dtype in dtypes.NARROW_RANGE:  # a share may be zero: one of the indices has it all
            index = flat_index(b, names, sizes)
            is_first = emit_broadcast(b, b.one(EQ, index, Lit.of(0, INT32_SCALAR)), ct.aval.shape, ())
            return emit_where(b, is_first, ct, Lit.zero(ct.aval))
        return b.one(MUL, ct, Lit.of(1 / n_indices, ct.aval))

    def _sum_over_indices(self, b: Builder, bar: Atom, spec: MapSpec) -> Atom:
        """Return the cotangent of an operand, summed over the axes along which all indices have the same part."""
        names, sizes = self._axes_of_equal_parts(spec)
        return bar if not names or is_zero(bar) else b.one(Psum(names, sizes), bar)

    def _axes_of_equal_parts(self, spec: MapSpec) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the axes along which all indices have the same part of an array, and their sizes."""
        equal_axes = [(a, n) for a, n in self.mesh if spec is not STACK and a not in names_in(spec)]
        return tuple([a for a, _ in equal_axes]), tuple([n for _, n in equal_axes])


def _with_distinct_residuals(
    linear: Jaxpr, n_tangents: int, residuals: Sequence[Atom], distinct: Sequence[Atom]
) -> Jaxpr:
    """Return the linear half of a body, which takes each distinct residual once, and no literal."""
    b = Builder()
    tangents = b.inputs(linear.in_avals[:n_tangents])
    operands: dict[Atom, Atom] = dict(zip(distinct, b.inputs([a.aval for a in distinct]), strict=True))
    return b.build(b.inline(linear, [*tangents, *[operands.get(a, a) for a in residuals]]), linear.name)


@by_value
def _stacks_of_one_body(body: Jaxpr, stacks_in: Flags, stacks_out: Flags) -> Jaxpr:
    b = Builder()
    ins = [
        emit_reshape(b, b.input(a.with_shape((1, *a.shape)) if s else a), a.shape)
        for a, s in zip(body.in_avals, stacks_in, strict=True)
    ]
    outs = b.inline(body, ins)
    return b.build(
        [emit_reshape(b, v, (1, *v.aval.shape)) if s else v for v, s in zip(outs, stacks_out, strict=True)], body.name
    )


def _with_stacks_of_one(prim: ShardMap) -> Jaxpr:
    """Return the body with an axis of size 1 in front of each slice of a stack."""
    return _stacks_of_one_body(
        prim.body, tuple([s is STACK for s in prim.in_specs]), tuple([s is STACK for s in prim.out_specs])
    )


def with_whole_operands(prim: ShardMap) -> Jaxpr:
    """Return the map for devices that have whole operands: they take their parts, and gather the results."""
    return _body_on_whole_operands(prim.body, prim.mesh, prim.in_specs, prim.out_specs)


@by_value
def _body_on_whole_operands(
    body: Jaxpr, mesh: MeshAxes, in_specs: tuple[MapSpec, ...], out_specs: tuple[MapSpec, ...]
) -> Jaxpr:
    b, sizes = Builder(), dict(mesh)
    names, counts = tuple([a for a, _ in mesh]), tuple([n for _, n in mesh])
    args: list[Atom] = []
    for a, spec in zip(body.in_avals, in_specs, strict=True):
        shape = (prod(counts), *a.shape) if spec is STACK else global_shape(mesh, spec, a.shape)
        x: Atom = b.input(a.with_shape(shape))
        part_shape = (1, *a.shape) if spec is STACK else a.shape
        for axis, over_axes in enumerate((names,) if spec is STACK else spec):
            if over_axes:
                index = flat_index(b, over_axes, tuple([sizes[name] for name in over_axes]))
                starts: list[Atom] = [Lit.of(0, INT32_SCALAR)] * x.aval.ndim
                starts[axis] = b.one(MUL, index, Lit.of(part_shape[axis], INT32_SCALAR))
                x = b.one(DynamicSlice(replace_entry(x.aval.shape, axis, part_shape[axis])), x, *starts)
        args.append(emit_reshape(b, x, a.shape))
    outs: list[Atom] = []
    for y, spec in zip(b.inline(body, args), out_specs, strict=True):
        if spec is STACK:
            y = emit_reshape(b, y, (1, *y.aval.shape))
        for axis, over_axes in enumerate((names,) if spec is STACK else spec):
            if over_axes:
                y = b.one(AllGather(over_axes, tuple([sizes[name] for name in over_axes]), axis), y)
        outs.append(y)
    return b.build(outs, body.name)


@by_value
def mesh_of_maps(jaxpr: Jaxpr) -> MeshAxes:
    """Return the axes of the maps over devices in a program and its bodies."""
    axes: dict[tuple[str, int], None] = {}
    for prim in jaxpr.prims:
        if isinstance(prim, ShardMap):
            axes.update(dict.fromkeys(prim.mesh))
        if isinstance(prim, HigherOrder):
            axes.update(dict.fromkeys([axis for body in prim.bodies for axis in mesh_of_maps(body)]))
    return tuple(axes)


@by_value
def runs_on_devices(jaxpr: Jaxpr) -> bool:
    """Return True if the program, or one of its bodies, names a mesh of devices."""
    return any([
        isinstance(prim, OnMesh) or (isinstance(prim, HigherOrder) and any(map(runs_on_devices, prim.bodies)))
        for prim in jaxpr.prims
    ])  # fmt: skip


@by_value
def devices_needed(jaxpr: Jaxpr, around: MeshAxes = ()) -> int:
    """Return the number of devices that run a program, for each index of the maps `around` it: 1 without a mesh. In a
    map, only maps need more."""
    if not runs_on_devices(jaxpr):
        return 1
    n_devices = 1
    for prim in jaxpr.prims:
        if isinstance(prim, ShardMap):
            inside = mesh_within(around, prim.mesh)
            n_indices = prod([size for _, size in inside[len(around) :]])
            n_devices = lcm(n_devices, n_indices * devices_needed(prim.body, inside))
        elif isinstance(prim, OnMesh):
            n_devices = n_devices if around else lcm(n_devices, prim.count)
        elif isinstance(prim, HigherOrder):
            n_devices = lcm(n_devices, *[devices_needed(body, around) for body in prim.bodies])
    return n_devices


@by_value
def device_ids(jaxpr: Jaxpr, in_map: bool = False) -> tuple[Ids, ...]:
    """Return the distinct ids of devices that meshes of a program give, in order. A program that can run has one at
    most. In a map, only those of maps count."""
    distinct: dict[Ids, None] = {}
    for prim in jaxpr.prims:
        is_map = isinstance(prim, ShardMap)
        if isinstance(prim, OnMesh) and prim.devices and (is_map or not in_map):
            distinct[prim.devices] = None
        if isinstance(prim, HigherOrder):
            distinct.update(dict.fromkeys([ids for body in prim.bodies for ids in device_ids(body, in_map or is_map)]))
    return tuple(distinct)
