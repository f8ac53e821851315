"""Splits a named axis in two: one for devices, and one for the indices of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxad.core.builder import Builder, rewrite, single_equation
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr
from fxad.primitives.collectives import AllGather, AxisIndex, Collective, Grouped, flat_index
from fxad.primitives.dynamic_slicing import read_row
from fxad.primitives.named_calls import NamedCall
from fxad.primitives.shape import emit_reshape
from fxad.transforms.vmap import has_axis, vmap_named


@by_value
def split_axis(jaxpr: Jaxpr, name: str, sizes: tuple[int, int], inner: str) -> Jaxpr:
    """Return the program over axes `name` and `inner` of these sizes, in place of a free axis `name` of all indices.

    Index k of the axis is index `divmod(k, sizes[1])` of the two.

    Law:    the same values for each index.
    """

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        return _over_two(b, eqn, ins, name, sizes, inner) if has_axis(eqn.prim.free_axes, name) else None

    return rewrite(jaxpr, rule)


def _over_two(b: Builder, eqn: Eqn, args: Atoms, name: str, sizes: tuple[int, int], inner: str) -> Atoms:
    """Add an equation over the axes `name` and `inner` in place of one over `name`. Example: with sizes (2, 4),
    `psum` over ("i",) of 8 becomes `psum` over ("i", inner) of (2, 4), and `axis_index` becomes 4 i + j."""
    prim, axes = eqn.prim, (name, inner)
    if isinstance(prim, HigherOrder):
        new = prim.with_bodies(tuple([split_axis(body, name, sizes, inner) for body in prim.bodies]))
        if isinstance(new, NamedCall):  # it has the axes of a function that is not among its bodies
            both = tuple(zip(axes, sizes, strict=True))
            split = [a for axis in new.axes for a in (both if axis[0] == name else (axis,))]
            new = replace(new, axes=tuple(sorted(split)))
        return b(new, *args)
    if isinstance(prim, AxisIndex):
        return (flat_index(b, axes, sizes),)
    if isinstance(prim, Grouped) and prim.groups:
        return (_gathered(b, prim, args[0], name, sizes, inner),)
    if isinstance(prim, Collective):
        k = prim.names.index(name)
        names = (*prim.names[:k], *axes, *prim.names[k + 1 :])
        return b(replace(prim, names=names, sizes=(*prim.sizes[:k], *sizes, *prim.sizes[k + 1 :])), *args)
    return b.copy(eqn, args)  # a user's: it keeps the axis, whose size a map then refuses


def _gathered(b: Builder, prim: Grouped, x: Atom, name: str, sizes: tuple[int, int], inner: str) -> Atom:
    """Return a collective of groups, which may cross devices: each index computes the results of all, and takes its
    own."""
    stacked, _ = vmap_named(single_equation(prim, [x.aval]), sizes[0] * sizes[1], name, (0,), (0,))
    every = b.one(AllGather((name, inner), sizes, 0), emit_reshape(b, x, (1, *x.aval.shape)))
    (rows,) = b.inline(stacked, [every])
    return read_row(b, rows, flat_index(b, (name, inner), sizes))
