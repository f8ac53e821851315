"""Steps that grow programs with collectives over the axes of a mesh, which a map has to bind."""

from __future__ import annotations

from functools import partial
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Atom
from fxad.primitives.collectives import (
    AllGather,
    AllToAll,
    AxisIndex,
    Pmax,
    Pmin,
    Ppermute,
    Psum,
    PsumScatter,
)
from fxad.primitives.meshes import MeshAxes
from fxad.primitives.shape import broadcast_to_axis
from fxad.testing.draw_collectives import AXES, axes, perm
from fxad.testing.growth import UNKNOWN, Fact, Growth, up_to
from fxad.testing.steps import GROWTH_STEPS, GrowthStep

_KINDS: Final = ("sum", "max", "min", "gather", "scatter", "to_all", "permute", "index")
_LARGEST: Final = 64  # greatest number of elements of a value that collectives make larger


def communicate(mesh: MeshAxes, g: Growth, x: Atom) -> None:
    """Add a collective of a value."""
    names, sizes, groups = axes(g.draw, mesh)
    width = Psum(names, sizes, groups).width
    kind = g.draw(st.sampled_from(_KINDS))
    if kind in ("scatter", "to_all", "gather") and x.aval.size * width <= _LARGEST:
        x = _divisible(g, x, 1 if kind == "gather" else width)
    aval, fits = x.aval, [k for k, n in enumerate(x.aval.shape) if n % width == 0]
    if kind == "index":
        g.emit(UNKNOWN, AxisIndex(*g.draw(st.sampled_from(mesh))))
    elif kind == "permute":
        fact = g.facts[x]
        around = Fact(min(0.0, fact.low), max(0.0, fact.high), fact.exact)
        g.emit(around, Ppermute(names, sizes, perm(g.draw, Psum(names, sizes).count)), x)
    elif kind == "gather" and aval.ndim and aval.size <= _LARGEST:
        g.emit(g.facts[x], AllGather(names, sizes, g.draw(st.integers(0, aval.ndim - 1)), groups), x)
    elif kind == "to_all" and fits:
        concat = g.draw(st.integers(0, aval.ndim - 1))
        g.emit(g.facts[x], AllToAll(names, sizes, g.draw(st.sampled_from(fits)), concat, groups), x)
    elif aval.dtype == dtypes.bool_ or (kind in ("max", "min") and not g.smooth and aval.dtype not in dtypes.COMPLEX):
        g.emit(g.facts[x], (Pmin if kind == "min" else Pmax)(names, sizes, groups), x)
    elif kind in ("sum", "scatter"):
        x = g.within(x, 2.0 / width)
        dim = g.draw(st.sampled_from(fits)) if fits and kind == "scatter" else None
        prim = Psum(names, sizes, groups) if dim is None else PsumScatter(names, sizes, dim, groups)
        g.emit(up_to(2.0), prim, x)


def _divisible(g: Growth, x: Atom, width: int) -> Atom:
    """Return a value with an axis that `width` divides: `x`, or `x` with an axis of that size in front."""
    if any([n % width == 0 for n in x.aval.shape]):
        return x
    return g.add(broadcast_to_axis(g.builder, x, None, width, 0), g.facts[x])


def collective_steps(mesh: MeshAxes) -> tuple[GrowthStep, ...]:
    """Return the steps, with collectives over a mesh as often as all other steps together."""
    return (*GROWTH_STEPS, *[partial(communicate, mesh)] * len(GROWTH_STEPS))


COLLECTIVE_STEPS: Final[tuple[GrowthStep, ...]] = collective_steps(AXES)
