"""The laws of maps over named axes, at one program with collectives and operands for it."""

from __future__ import annotations

from math import prod

import numpy as np

from fxad.core.builder import Builder, single_equation
from fxad.core.interpreter import run
from fxad.core.lockstep import run_mapped
from fxad.core.typecheck import typecheck
from fxad.errors import AxisNameError
from fxad.ir import Jaxpr, NDArray
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import STACK, DimensionAxes, MeshAxes
from fxad.primitives.shape import emit_reshape
from fxad.testing.compare import HostArrays, differ, fail, largest_magnitude, random_cotangents, tolerance, xla
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.draw_collectives import AXES
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.values import examples, stack
from fxad.transforms import vjp_fused
from fxad.transforms.spmd.split import split_axis
from fxad.transforms.vmap import vmap_named


def mesh_of(program: Jaxpr) -> MeshAxes:
    """Return the axes that a program needs, or the usual ones."""
    return tuple(sorted(program.free_axes)) or AXES


def stacked_operands(case: Case, mesh: MeshAxes | None = None) -> list[NDArray]:
    """Other operands for each index of the axes."""
    sizes, ins = [n for _, n in mesh or mesh_of(case.program)], (0,) * len(case.args)
    stacks = stack(examples(case.args, ins, prod(sizes)), ins)
    return [x.reshape((*sizes, *a.shape)) for x, a in zip(stacks, case.args, strict=True)]


def over_axes(program: Jaxpr, mesh: MeshAxes | None = None) -> Jaxpr:
    """Return a program mapped over the axes, along the leading axes of all operands and results. Raises:
    AxisNameError."""
    for name, size in reversed(mesh or mesh_of(program)):
        program, _ = vmap_named(program, size, name, (0,) * len(program.ins), (0,) * len(program.outs))
    return program


def in_lockstep(program: Jaxpr, args: HostArrays, mesh: MeshAxes | None = None) -> list[NDArray]:
    """Return the results for all indices, of runs that exchange values."""
    mesh = mesh or mesh_of(program)
    names, sizes = [n for n, _ in mesh], [n for _, n in mesh]
    rows = run_mapped(names, sizes, lambda index: run(program, [a[index] for a in args]))
    return [np.stack([row[k] for row in rows]).reshape((*sizes, *a.shape)) for k, a in enumerate(program.out_avals)]


@law
def check_collectives(case: Case, mesh: MeshAxes | None = None) -> bool:
    """Check that vmap = runs in lockstep; no axis is left. Return False for a program that vmap refuses."""
    program, args = case.program, stacked_operands(case, mesh)
    try:
        batched = over_axes(program, mesh)
    except AxisNameError:
        return False
    typecheck(batched)
    if batched.free_axes:
        fail("vmap left a collective", program, (), batched)
    want = in_lockstep(program, args, mesh)
    if problem := differ(run(batched, args), want, slack=_tolerance_of_results(program, want)):
        fail(f"vmap over named axes differs from the runs: {problem}", program, args[:0], batched)
    return True


@law
def check_collective_gradients(case: Case, mesh: MeshAxes | None = None) -> bool:
    """Check that vmap(vjp f) = vjp(vmap f). Return False for a program that vmap refuses."""
    mesh = mesh or mesh_of(case.program)
    program, flags, args = case.program, differentiable_flags(case), stacked_operands(case, mesh)
    if not any(flags):
        return False
    backward = vjp_fused(program, flags)
    typecheck(backward)
    try:
        batched, inner = over_axes(program, mesh), over_axes(backward, mesh)
    except AxisNameError:
        return False
    outer = vjp_fused(batched, flags)
    cts = random_cotangents(batched, case.seed)
    have, want = run(inner, [*args, *cts]), run(outer, [*args, *cts])
    if problem := differ(have, want, slack=_tolerance_of_results(program, want)):
        fail(f"vmap of vjp differs from vjp of vmap: {problem}", program, (), inner)
    return True


def reached_by_all(program: Jaxpr, mesh: MeshAxes) -> bool:
    """Return False if some devices may not reach a collective in which others wait. `shard_map` refuses it."""
    try:
        for name, size in mesh:
            vmap_named(program, size, name, (0,) * len(program.ins), devices=True)
    except AxisNameError:
        return False
    return True


def on_devices(program: Jaxpr, mesh: MeshAxes) -> Jaxpr:
    """Return a program over stacks of operands of all indices, along one axis, which devices run."""
    prim = ShardMap(program, mesh, 0, (), ())
    return single_equation(prim, [prim.global_aval(STACK, a) for a in program.in_avals], program.name)


def on_nested_devices(program: Jaxpr, mesh: MeshAxes, *, of_whole_mesh: bool) -> Jaxpr:
    """Return a program over stacks along each of the axes, which devices run: a map for each axis, one in the other. If
    `of_whole_mesh`, the outer map is over all axes: its devices have equal values along those of the inner ones."""
    outer, *inner = mesh
    for axis in reversed(inner):
        program = on_devices(program, (axis,))
    if not of_whole_mesh:
        return on_devices(program, (outer,))
    b = Builder()
    args = [emit_reshape(b, b.input(a.stacked(1)), a.shape) for a in program.in_avals]
    rows = [emit_reshape(b, y, (1, *y.aval.shape)) for y in b.inline(program, args)]
    first: DimensionAxes = ((outer[0],),)
    mapped = ShardMap(b.build(rows, program.name), mesh, 0, (first,) * len(args), (first,) * len(rows))
    b = Builder()
    whole = [b.input(mapped.global_aval(first, a)) for a in mapped.body.in_avals]
    return b.build(b(mapped, *whole), program.name)


def flat(values: HostArrays, mesh: MeshAxes) -> list[NDArray]:
    """Return stacks along one axis, of stacks along each of the axes."""
    count = prod([n for _, n in mesh])
    return [x.reshape((count, *x.shape[len(mesh) :])) for x in values]


@law
def check_devices(case: Case, mesh: MeshAxes | None = None, *, compiled: bool = False) -> bool:
    """Check that devices = vmap, for values and gradients: one map of all axes, or one for each of several axes, in
    each other. Return False for a program that vmap or `shard_map` refuses.

    `compiled` needs as many devices as the axes have indices.
    """
    mesh = mesh or mesh_of(case.program)
    program, flags, args = case.program, differentiable_flags(case), stacked_operands(case, mesh)
    try:
        batched = over_axes(program, mesh)
    except AxisNameError:
        return False
    if not reached_by_all(program, mesh):
        return False
    execute = xla if compiled else run
    nested = len(mesh) > 1 and case.seed % 2 == 1
    whole = case.seed % 4 == 3
    divided = on_nested_devices(program, mesh, of_whole_mesh=whole) if nested else on_devices(program, mesh)

    def stacks(values: HostArrays) -> HostArrays:
        return values if nested else flat(values, mesh)

    typecheck(divided)
    want = run(batched, args)
    if problem := differ(execute(divided, stacks(args)), stacks(want), slack=_tolerance_of_results(program, want)):
        fail(f"devices differ from vmap: {problem}", program, (), divided)
    if case.smooth and any(flags):
        mapped_back, divided_back = vjp_fused(batched, flags), vjp_fused(divided, flags)
        typecheck(divided_back)
        cts = random_cotangents(batched, case.seed)
        bars = run(mapped_back, [*args, *cts])
        have = execute(divided_back, stacks([*args, *cts]))
        if problem := differ(have, stacks(bars), slack=_tolerance_of_results(program, bars)):
            fail(f"gradients on devices differ from those of vmap: {problem}", program, (), divided_back)
    return True


@law
def check_split_axis(case: Case, *, compiled: bool = False) -> bool:
    """Return an axis split in two = the axis. Return False for a program that vmap refuses. `compiled` needs 4 devices,
    which have the first half of the split axis, and the other axis."""
    program, args = case.program, stacked_operands(case, AXES)
    try:
        want = run(over_axes(program, AXES), args)
        ((first, size), (second, n)) = AXES
        split = split_axis(program, first, (2, size // 2), "lane")
        typecheck(split)
        one = (0,) * len(split.ins), (0,) * len(split.outs)
        lanes, _ = vmap_named(split, size // 2, "lane", *one)  # which vmap refuses depends on the order of axes
    except AxisNameError:
        return False
    # (first, lane, second, ...) -> (first, second, lane, ...)
    ordered = [np.moveaxis(a.reshape((2, size // 2, *a.shape[1:])), 1, 2) for a in args]
    if compiled:
        divided = on_devices(lanes, ((first, 2), (second, n)))
        results = xla(divided, [a.reshape((2 * n, *a.shape[2:])) for a in ordered])
    else:
        divided = lanes
        for name, count in ((second, n), (first, 2)):
            divided, _ = vmap_named(divided, count, name, *one)
        results = run(divided, ordered)
    have = [np.moveaxis(x.reshape((2, n, size // 2, *w.shape[2:])), 2, 1) for x, w in zip(results, want, strict=True)]
    rows = [x.reshape(w.shape) for x, w in zip(have, want, strict=True)]
    if problem := differ(rows, want, slack=_tolerance_of_results(program, want)):
        fail(f"an axis split in two differs from the axis: {problem}", program, (), divided)
    return True


def _tolerance_of_results(program: Jaxpr, values: HostArrays) -> float:
    """Return the allowed difference of two ways to compute `values`: by the coarsest dtype of the program and their
    largest finite magnitude."""
    coarsest = max([tolerance(v.aval.dtype) for e in program.eqns for v in e.outs if v.aval.inexact], default=1e-9)
    return 10 * coarsest * max(1.0, largest_magnitude(values))
