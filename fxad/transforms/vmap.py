"""Batching: a program over one example becomes a program over a stack of examples, without a loop.

vmap         the transformation
vmap_named   the same for an axis with a name, or with devices
over_stack   its program alone, where all batch axes are given; for rules
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.core.sizes.polynomials import names_of
from fxad.errors import AxisNameError, ShapeError
from fxad.ir import Atom, Dims, Eqn, FreeAxes, Jaxpr
from fxad.primitives.collectives import exchanged_axes, has_ppermute
from fxad.primitives.control.shard_map import mesh_of_maps, runs_on_devices
from fxad.primitives.shape import broadcast_to_axis
from fxad.transforms.locate import check_counts, locate
from fxad.transforms.specialize import rule_of_size, with_fresh_size


class BatchBuilder(Builder):
    """The `BatchCtx`: the builder of the batched program. It batches bodies by value."""

    __slots__ = ("axis", "devices", "size", "spmd")

    def __init__(self, size: int, axis: str | None, spmd: tuple[str, ...], devices: bool) -> None:
        super().__init__()
        self.size, self.axis, self.spmd, self.devices = size, axis, spmd, devices

    def recur(self, body: Jaxpr, in_dims: Dims, out_dims: Dims | None = None) -> tuple[Jaxpr, Dims]:
        return vmap_named(body, self.size, self.axis, in_dims, out_dims, self.spmd, self.devices)

    @staticmethod  # so that results can be memoised by it
    def batched(body: Jaxpr, size: int, in_dims: Dims, out_dims: Dims, axis: str | None = None) -> Jaxpr:
        return over_stack(body, size, in_dims, out_dims, axis)

    def rule_of_size(self, rule: Jaxpr, declared: int) -> Jaxpr | None:
        return rule_of_size(rule, declared, self.size)

    def with_fresh_size(self, rule: Jaxpr, declared: int) -> tuple[int, Jaxpr]:
        return with_fresh_size(rule, declared, names_of(self.size))


def vmap_named(
    jaxpr: Jaxpr,
    size: int,
    axis: str | None,
    in_dims: Dims,
    out_dims: Dims | None = None,
    spmd: tuple[str, ...] = (),
    devices: bool = False,
) -> tuple[Jaxpr, Dims]:
    """Return `vmap` over an axis that may have a name: collectives over it become operations on the stack. `spmd` are
    the axes of a mesh that divide it. With `devices`, the indices are devices, which wait for one another.

    `vmap` is memoised by its arguments, so this function leaves out those that do not change the result. The name is
    kept only if there is a collective over it, or, with `devices`, a `ppermute` or a map inside with an axis of this
    name. `spmd` is kept only if an equation runs on devices. No branch below passes both `spmd` and `devices`: a caller
    gives one of them, `fx.vmap` the axes of a mesh and `fx.shard_map` devices, so nothing is lost.

    Law:    the result does not contain the name; with `devices`, an `axis_index` over it may stay.
    Raises: AxisNameError for another size, and for bodies with collectives over the axis that run for some indices
            only.
    """
    if devices and axis is not None and (has_ppermute(jaxpr) or axis in dict(mesh_of_maps(jaxpr))):
        return vmap(jaxpr, size, in_dims, out_dims, axis, devices=True)
    named = axis if axis is not None and has_axis(jaxpr.free_axes, axis) else None
    if spmd and runs_on_devices(jaxpr):
        return vmap(jaxpr, size, in_dims, out_dims, named, spmd)
    return vmap(jaxpr, size, in_dims, out_dims, named, devices=devices)


def has_axis(axes: FreeAxes, name: str) -> bool:
    """Return True if a named axis is among free ones."""
    return any([name == free for free, _ in axes])


@by_value
def vmap(
    jaxpr: Jaxpr,
    size: int,
    in_dims: Dims,
    out_dims: Dims | None = None,
    axis: str | None = None,
    spmd: tuple[str, ...] = (),
    devices: bool = False,
) -> tuple[Jaxpr, Dims]:
    """Map a program over a new axis of length `size`. Return the program and the batch axis of each result.

    `in_dims[i]` is the batch axis of operand i; None means that the operand is not mapped. `out_dims` gives the batch
    axis of each result. Without `out_dims` the batching rules choose the axis, and a result that depends on no mapped
    operand has none. `axis` names the axis for collectives of the program, and `spmd` the axes of a mesh that divide
    it; with `devices`, its indices are devices. Use `vmap_named` for them.

    Law:    equals the stack of the results for each index; vmap of vmap commutes up to the order of axes.
    Cost:   one pass; an equation that depends on no mapped operand is not batched.
    Raises: ShapeError when `out_dims` is None for a result that depends on a mapped operand.
    """
    b = BatchBuilder(size, axis, spmd, devices)
    dims: dict[Atom, int] = {}
    env: dict[Atom, Atom] = {}
    for v, d in zip(jaxpr.ins, in_dims, strict=True):
        env[v] = b.input(v.aval if d is None else v.aval.stacked(size, d))
        if d is not None:
            dims[v] = d
    get, dim = env.get, dims.get
    for eqn in jaxpr.eqns:
        args = tuple([get(a, a) for a in eqn.ins])
        operand_dims = tuple([dim(a) for a in eqn.ins])
        if operand_dims.count(None) == len(operand_dims) and (axis is None or not has_axis(eqn.prim.free_axes, axis)):
            env.update(zip(eqn.outs, b.copy(eqn, args), strict=True))
            continue
        b.source = eqn.source
        start = len(b.eqns)
        try:
            outs, result_dims = eqn.prim.batch(b, args, operand_dims)
            if not len(outs) == len(result_dims) == len(eqn.outs):
                check_counts(eqn, "batch", len(eqn.outs), results=len(outs), dims=len(result_dims))
            if axis is not None:
                _check_bound(b.eqns[start:], axis, eqn, devices)
        except Exception as e:
            locate(e, eqn)
            raise
        for v, out, d in zip(eqn.outs, outs, result_dims, strict=True):
            env[v] = out
            if d is not None:
                dims[v] = d
    actual_dims = tuple([dim(a) for a in jaxpr.outs])
    outs = tuple([get(a, a) for a in jaxpr.outs])
    if out_dims is not None:
        outs = tuple(
            [_move(b, k, a, d, to, size) for k, (a, d, to) in enumerate(zip(outs, actual_dims, out_dims, strict=True))]
        )
        actual_dims = out_dims
    return b.build(outs, f"vmap_{jaxpr.name}"), actual_dims


def _check_bound(eqns: Sequence[Eqn], axis: str, eqn: Eqn, devices: bool) -> None:
    """Check that a batching rule left no collective over the axis. Where devices run the indices, an `axis_index` may
    stay. Raises: AxisNameError."""
    exchanged = any([axis in exchanged_axes(e.prim) for e in eqns])
    if not (exchanged or devices) and any([has_axis(e.prim.free_axes, axis) for e in eqns]):
        raise AxisNameError(
            f"vmap: {eqn.prim.name} applies its bodies to one example after the other, and they read"
            f" axis_index({axis!r})",
            remedy="call lax.axis_index outside of the body, and use its value there",
        )
    if exchanged:
        raise AxisNameError(
            f"vmap: {eqn.prim.name} applies its bodies to one example after the other, and they have collectives over"
            f" axis {axis!r}, which need all examples at once",
            remedy="move the collective out of the body, or make what the body depends on the same for all examples",
        )


def _move(b: Builder, k: int, a: Atom, dim: int | None, to: int | None, size: int) -> Atom:
    """Return result k, with its batch axis moved from `dim` to `to`. Raises: ShapeError."""
    if to is None:
        if dim is not None:
            raise ShapeError(
                f"vmap: result {k} depends on a mapped operand, but its out_axes is None",
                remedy="give the axis at which the results are to be stacked",
            )
        return a
    return broadcast_to_axis(b, a, dim, size, to)


def over_stack(jaxpr: Jaxpr, size: int, in_dims: Dims, out_dims: Dims, axis: str | None = None) -> Jaxpr:
    """Return the program of `vmap` with all batch axes given. `axis` names the mapped axis."""
    return vmap_named(jaxpr, size, axis, in_dims, out_dims)[0]
