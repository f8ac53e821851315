"""The base class of primitives whose results have no tangent: integers, bools, and constants."""

from __future__ import annotations

from typing import final

from fxad.ir import Atoms, JvpCtx, Primitive, Tangents, Zero


class WithoutTangent(Primitive):
    """A primitive whose results have no tangent."""

    __slots__ = ()

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        outs = ctx(self, *primals)
        return outs, tuple([Zero(v.aval) for v in outs])
