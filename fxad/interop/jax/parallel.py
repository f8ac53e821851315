"""Collectives, and `shard_map`."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from fxad import lax
from fxad.api.shard_map import shard_map
from fxad.interop.jax.equations import EqnTranslation, Equation, JaxValue, Rows, array, arrays, unchanged
from fxad.sharding import PartitionSpec
from fxad.tracing.array import Array


def _axis_names(eqn: Equation, which: Any) -> Any:
    names = tuple(which) if isinstance(which, tuple | list) else (which,)
    if not all([isinstance(n, str) for n in names]):
        raise eqn.refuse(f"its axes are {names}", "name the axes by strings")
    return names[0] if len(names) == 1 else names


def _all_reduce(fn: Callable[..., Array], along: Any) -> EqnTranslation:
    """Return the row of a reduction over named axes, and over axes of the operands by number."""

    def row(eqn: Equation, *xs: JaxValue) -> list[Array]:
        axes, groups = eqn.params["axes"], eqn.params.get("axis_index_groups")
        numbers, names = [a for a in axes if isinstance(a, int)], [a for a in axes if not isinstance(a, int)]
        outs = [along(x, numbers) if numbers else array(x) for x in xs]
        return [fn(y, _axis_names(eqn, names), axis_index_groups=groups) for y in outs] if names else outs

    return row


def _all_gather(eqn: Equation, *xs: JaxValue) -> list[Array]:
    p = eqn.params
    names, groups = _axis_names(eqn, p["axis_name"]), p.get("axis_index_groups")
    dim, tiled = p["all_gather_dimension"], p["tiled"]
    return [lax.all_gather(array(x), names, axis_index_groups=groups, axis=dim, tiled=tiled) for x in xs]


def _reduce_scatter(eqn: Equation, x: JaxValue) -> Array:
    p = eqn.params
    return lax.psum_scatter(
        array(x),
        _axis_names(eqn, p["axis_name"]),
        scatter_dimension=p["scatter_dimension"],
        axis_index_groups=p["axis_index_groups"],
        tiled=p["tiled"],
    )


def _all_to_all(eqn: Equation, x: JaxValue) -> Array:
    p = eqn.params
    return lax.all_to_all(
        array(x),
        _axis_names(eqn, p["axis_name"]),
        p["split_axis"],
        p["concat_axis"],
        axis_index_groups=p["axis_index_groups"],
        tiled=p["tiled"],
    )


def _ppermute(eqn: Equation, x: JaxValue) -> Array:
    names, pairs = _axis_names(eqn, eqn.params["axis_name"]), eqn.params["perm"]
    if not isinstance(names, str) and eqn.translation.manual is not None:
        mesh = eqn.translation.manual[0]
        names = tuple([n for n in mesh.axis_names if n in names])  # JAX counts in the order of the mesh
    count = lax.axis_size(names)
    return lax.ppermute(array(x), names, [(s % count, d % count) for s, d in pairs])  # indices may be negative


def _shard_map(eqn: Equation, *args: JaxValue) -> object:
    p = eqn.params
    mesh = dict(p["mesh"].shape)
    if set(p["newly_manual_axes"]) != set(mesh):
        left = sorted(set(mesh) - set(p["newly_manual_axes"]))
        raise eqn.refuse(f"the compiler divides the axes {left}", "name all axes of the mesh in axis_names")

    def part(*xs: JaxValue) -> tuple[Array, ...]:
        with eqn.translation.within((p["mesh"], bool(p["check_vma"]))):
            return arrays(eqn.run(p["jaxpr"], xs))

    ins, outs = [tuple([PartitionSpec(*s) for s in p[specs]]) for specs in ("in_specs", "out_specs")]
    return shard_map(part, mesh, ins, outs)(*arrays(args))


PARALLEL: Final[Rows] = MappingProxyType({
    "psum": _all_reduce(lax.psum, lax.reduce_sum),
    "psum_invariant": _all_reduce(lax.psum, lax.reduce_sum),
    "pmax": _all_reduce(lax.pmax, lax.reduce_max),
    "pmin": _all_reduce(lax.pmin, lax.reduce_min),
    "all_gather": _all_gather,
    "all_gather_invariant": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "ppermute": _ppermute,
    "axis_index": lambda eqn: lax.axis_index(_axis_names(eqn, eqn.params["axis_name"])),
    "pvary": unchanged,
    "shard_map": _shard_map,
})  # fmt: skip
