"""Strategies that draw applications of collectives. These have free axes, which a map must bind before they can run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad.dtypes import DType
from fxad.ir import Aval, Primitive, Shape
from fxad.primitives.collectives import (
    AllGather,
    AllToAll,
    AxisIndex,
    AxisNames,
    Groups,
    Pmax,
    Pmin,
    Ppermute,
    Psum,
    PsumScatter,
    Sizes,
)
from fxad.primitives.meshes import MeshAxes
from fxad.testing.applications import ANY, Spec, Specs, dtype_of, shape_and_axis
from fxad.testing.values import ORDINARY, shapes

AXES: Final[MeshAxes] = (("i", 4), ("j", 2))
MESHES: Final[tuple[MeshAxes, ...]] = (
    AXES,
    (("i", 1),),
    (("i", 2),),
    (("i", 4),),
    (("i", 8),),
    (("i", 3),),
    (("i", 2), ("j", 3)),
    (("i", 1), ("j", 8)),
    (("i", 2), ("j", 2), ("k", 2)),
)


def axes(draw: st.DrawFn, mesh: MeshAxes | None = None) -> tuple[AxisNames, Sizes, Groups]:
    """Return axes of a mesh, in any order; sometimes groups of one. Without a mesh, those of any one."""
    mesh = mesh or draw(st.sampled_from(MESHES))
    chosen = draw(st.lists(st.sampled_from(mesh), min_size=1, max_size=len(mesh), unique=True))
    names, sizes = tuple([n for n, _ in chosen]), tuple([s for _, s in chosen])
    if len(chosen) > 1 or draw(st.booleans()):
        return names, sizes, ()
    (n,) = sizes
    width = draw(st.sampled_from([w for w in range(1, n + 1) if n % w == 0]))
    order = draw(st.permutations(range(n)))
    return names, sizes, tuple([tuple(order[k : k + width]) for k in range(0, n, width)])


def perm(draw: st.DrawFn, count: int) -> tuple[tuple[int, int], ...]:
    """Return pairs of sources and targets; some indices are neither."""
    targets = draw(st.permutations(range(count)))
    return tuple([(s, d) for s, d in enumerate(targets) if draw(st.integers(0, 4))])


def _operand(draw: st.DrawFn, smooth: bool, takes: frozenset[DType], shape: Shape) -> Aval:
    return Aval(shape, dtype_of(draw, takes, smooth))


def _reduction(kind: type[Psum | Pmax | Pmin], draw: st.DrawFn, smooth: bool) -> Spec:
    return kind(*axes(draw)), [(_operand(draw, smooth, kind.takes, draw(shapes(2))), ORDINARY)]


def _ppermute(draw: st.DrawFn, smooth: bool) -> Spec:
    names, sizes, _ = axes(draw)
    prim = Ppermute(names, sizes, perm(draw, Psum(names, sizes).count))
    return prim, [(_operand(draw, smooth, ANY, draw(shapes(2))), ORDINARY)]


def _all_gather(draw: st.DrawFn, smooth: bool) -> Spec:
    names, sizes, groups = axes(draw)
    shape, dim = shape_and_axis(draw, 2)
    return AllGather(names, sizes, dim, groups), [(_operand(draw, smooth, ANY, shape), ORDINARY)]


def _parts(draw: st.DrawFn) -> tuple[tuple[AxisNames, Sizes, Groups], int, Shape]:
    """Return axes, and a shape one of whose axes they divide."""
    names, sizes, groups = axes(draw)
    shape, dim = shape_and_axis(draw, 2)
    width = Psum(names, sizes, groups).width
    return (names, sizes, groups), dim, (*shape[:dim], shape[dim] * width, *shape[dim + 1 :])


def _psum_scatter(draw: st.DrawFn, smooth: bool) -> Spec:
    (names, sizes, groups), dim, shape = _parts(draw)
    return PsumScatter(names, sizes, dim, groups), [(_operand(draw, smooth, Psum.takes, shape), ORDINARY)]


def _all_to_all(draw: st.DrawFn, smooth: bool) -> Spec:
    (names, sizes, groups), dim, shape = _parts(draw)
    concat = draw(st.integers(0, len(shape) - 1))
    return AllToAll(names, sizes, dim, concat, groups), [(_operand(draw, smooth, ANY, shape), ORDINARY)]


def _axis_index(draw: st.DrawFn, smooth: bool) -> Spec:  # noqa: ARG001  no operands
    return AxisIndex(*draw(st.sampled_from(draw(st.sampled_from(MESHES))))), []


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        Psum: partial(_reduction, Psum),
        Pmax: partial(_reduction, Pmax),
        Pmin: partial(_reduction, Pmin),
        AllGather: _all_gather,
        PsumScatter: _psum_scatter,
        AllToAll: _all_to_all,
        Ppermute: _ppermute,
        AxisIndex: _axis_index,
    }
)
