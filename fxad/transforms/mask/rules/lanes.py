"""Primitives that are applied lane by lane, as they are: each lane of the results depends on that lane of the operands
only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.ir import Atom, Atoms, Avals, Primitive
from fxad.primitives.barrier import BARRIER
from fxad.primitives.elementwise import ELEMENTWISE
from fxad.primitives.elementwise.bessel import BESSEL
from fxad.primitives.elementwise.beta import BETA
from fxad.primitives.elementwise.gamma import GAMMA
from fxad.primitives.marks import MARKS
from fxad.primitives.random import GammaSample, Threefry2x32
from fxad.primitives.shape import AxisMove
from fxad.primitives.sharding_constraint import SHARDING_CONSTRAINT
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.padding_facts import NO_AXES, PaddingFacts, filled_with_one, keeps_finite


def lanewise(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Return the same equation over padded arrays. If it may have an infinite slope in the padding of pending operands,
    they are cleared, or filled with 1; otherwise the result is pending."""
    facts = [ctx.facts(a) for a in args]
    pending = NO_AXES.union(*[ctx.pending(a) for a in args])
    if not pending or not any([v.inexact for v in outs]):
        return ctx(prim, *args)  # a result that has no tangent has no slope
    finite = [f.finite_along(pending) for f in facts]
    if keeps_finite(prim, args, facts) and all(finite):
        return (ctx.with_pending(prim, *args),)
    filled = filled_with_one(prim)
    if filled is not None and all([k == filled or is_finite for k, is_finite in enumerate(finite)]):
        out = ctx.with_pending(
            prim, *[ctx.filled_along(a, 1, pending) if k == filled else a for k, a in enumerate(args)]
        )
        ctx.learn(out, PaddingFacts(finite_axes=pending))
        return (out,)
    return ctx(prim, *[ctx.clear_pending(a) for a in args])


_KINDS: Final[tuple[type[Primitive], ...]] = (
    *ELEMENTWISE,
    *GAMMA,
    *BESSEL,
    *BETA,
    *BARRIER,
    *MARKS,
    *SHARDING_CONSTRAINT,
    Threefry2x32,
    GammaSample,
    AxisMove,
)

LANEWISE: Final[tuple[MaskRow, ...]] = tuple(
    [row(kind, lanewise, "lane by lane", clears_operands=False) for kind in _KINDS]
)

__all__ = ["LANEWISE", "lanewise"]
