"""Strategies that draw maps over devices: over the devices of this process, so that they can be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Atom, Aval, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.collectives import Psum
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.meshes import OPEN, DimensionAxes, MeshAxes
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.runtime import devices
from fxad.testing.applications import Spec, Specs, dtype_of
from fxad.testing.values import ORDINARY

_MESHES: Final[tuple[MeshAxes, ...]] = (
    (("d", 1),),
    (("d", 1), ("e", 1)),
    (("d", 2),),
    (("d", 2), ("e", 2)),
    (("d", 4), ("e", 2)),
)
_SIZE: Final = 2  # size of each axis of a part


def mesh(draw: st.DrawFn) -> MeshAxes:
    """Return a mesh of devices that are there."""
    n_devices = len(devices("cpu"))
    return draw(st.sampled_from([m for m in _MESHES if all([n == 1 for _, n in m]) or (n_devices >= 8)]))


def _division(draw: st.DrawFn, over: MeshAxes) -> DimensionAxes:
    """Draw a division of the two axes of an array."""
    groups: list[list[str]] = [[], []]
    for name, _ in over:
        where = draw(st.integers(0, 2))
        if where < 2:
            groups[where].append(name)
    while groups and not groups[-1]:
        groups.pop()
    return tuple([tuple(g) for g in groups])


def _shard_map(draw: st.DrawFn, smooth: bool) -> Spec:
    """Return a body of a constant, a part and a slice; its results are a part, the same for all, and a slice."""
    over = mesh(draw)
    dtype = dtype_of(draw, frozenset({dtypes.float64, dtypes.float32, dtypes.int32}), smooth)
    aval = Aval((_SIZE, _SIZE), dtype)
    division = _division(draw, over)
    b = Builder()
    c, x, s = b.inputs((aval, aval, aval))
    z = b.one(ew.MUL, c, b.one(ew.SIN, x) if aval.inexact else x)
    names, sizes = tuple([n for n, _ in over]), tuple([k for _, k in over])
    total = b.one(Psum(names, sizes), b.one(ew.ADD, z, s))
    # what an axis that does not divide the result leaves different is summed over
    rest = [(n, k) for n, k in over if n not in [name for group in division for name in group]]
    same: Atom = b.one(Psum(tuple([n for n, _ in rest]), tuple([k for _, k in rest])), z) if rest else z
    body = b.build([same, total, b.one(ew.MUL, s, z)], "part")
    parts = (division,) if division else ()
    prim = ShardMap(body, over, 1 if division else 2, parts, (division, ()))
    return prim, [(prim.global_aval(d, aval), ORDINARY) for d in prim.in_specs]


def _sharding_constraint(draw: st.DrawFn, smooth: bool) -> Spec:
    over = mesh(draw)
    count = prod([n for _, n in over])
    dtype = dtype_of(draw, frozenset({dtypes.float64, dtypes.int32, dtypes.bool_}), smooth)
    division = _division(draw, over)
    if not division and draw(st.booleans()):
        division = ((OPEN,),)
    return ShardingConstraint(over, division), [(Aval((count, count), dtype), ORDINARY)]


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {ShardMap: _shard_map, ShardingConstraint: _sharding_constraint}
)
