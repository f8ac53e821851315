"""Steps that grow programs with collectives over the axes of `draw_collectives.AXES`, which a map has to bind."""

from __future__ import annotations

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
from fxad.testing.draw_collectives import AXES, axes, perm
from fxad.testing.growth import UNKNOWN, Fact, Growth
from fxad.testing.steps import STEPS, Step


def communicate(g: Growth, x: Atom) -> None:
    """A collective of a value."""
    names, sizes, groups = axes(g.draw)
    width = Psum(names, sizes, groups).width
    kind = g.draw(st.sampled_from(["sum", "extremum", "gather", "scatter", "to_all", "permute", "index"]))
    aval, fits = x.aval, [k for k, n in enumerate(x.aval.shape) if n % width == 0]
    if kind == "index":
        g.emit(UNKNOWN, AxisIndex(*g.draw(st.sampled_from(AXES))))
    elif kind == "permute":
        fact = g.facts[x]
        around = Fact(min(0.0, fact.low), max(0.0, fact.high), fact.exact)
        g.emit(around, Ppermute(names, sizes, perm(g.draw, Psum(names, sizes).count)), x)
    elif kind == "gather" and aval.ndim and aval.size <= 64:
        g.emit(g.facts[x], AllGather(names, sizes, g.draw(st.integers(0, aval.ndim - 1)), groups), x)
    elif kind == "to_all" and fits:
        concat = g.draw(st.integers(0, aval.ndim - 1))
        g.emit(g.facts[x], AllToAll(names, sizes, g.draw(st.sampled_from(fits)), concat, groups), x)
    elif aval.dtype == dtypes.bool_ or (kind == "extremum" and not g.smooth and aval.dtype not in dtypes.COMPLEX):
        g.emit(g.facts[x], g.draw(st.sampled_from([Pmax, Pmin]))(names, sizes, groups), x)
    elif kind in ("sum", "scatter"):
        x = g.within(x, 2.0 / width)
        dim = g.draw(st.sampled_from(fits)) if fits and kind == "scatter" else None
        prim = Psum(names, sizes, groups) if dim is None else PsumScatter(names, sizes, dim, groups)
        g.emit(Fact(-2.0, 2.0, False), prim, x)


# as often as all other steps together
COLLECTIVE_STEPS: Final[tuple[Step, ...]] = (*STEPS, *[communicate] * len(STEPS))
