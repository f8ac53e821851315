"""Products of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.ir import Atom, Atoms, Avals, Shape
from fxad.primitives.dot import Contraction, free_axes
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.padding_facts import NO_AXES, PaddedAxes, PaddingFacts


def _dot(ctx: MaskCtx, prim: Contraction, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a product.

    For one axis of an operand x, where y is the other operand:

        axis of x     padding of x     y                x gets there           the result is
        contracted    any              any              0                      without this axis
        free          may be inf       finite           0                      pending
        free          may be inf       may be inf       0                      cleared
        free          finite           finite           what it has            pending
        free          finite           may be inf       0 where x is pending   cleared
        batch         finite           finite there     what it has            pending where x or y is
        batch         one of x and y may be inf there   0 where x is pending   not pending

    "Pending" is cleared later: only finite padding can wait. In a lane of padding of a batch axis, the result depends
    on this lane of x and y alone. So if it may be infinite there, only what is pending has to be cleared, and the
    result has the padding that comes of it.

    Example: x[n, k] y[k, 3], of symbolic n and k. The padding of x along k is 0 in any case. If x is finite along n,
    what it has there stays, and the product of it is pending along n; but if y may be infinite, it is cleared at once.

    Along a contracted axis both operands get 0, because 0 times an infinity is nan. A derivative contracts the free
    axes too: there x is finite or 0. With an infinite y, the cotangents of pending padding may be nan.
    """
    (left, right), shape, n = ins, outs[0].shape, len(prim.lhs_batch)
    lhs_free = free_axes(left.ndim, prim.lhs_batch, prim.lhs_contract)
    rhs_free = free_axes(right.ndim, prim.rhs_batch, prim.rhs_contract)
    lhs_places, rhs_places = range(n, n + len(lhs_free)), range(n + len(lhs_free), len(shape))
    # what the operands get: first along the batch axes, then along the others
    finite_lhs, finite_rhs = [ctx.facts(a).finite for a in args]
    lhs, rhs, finite_lanes = _same_lanes(ctx, prim, args, shape)
    lhs = _operand(ctx, lhs, left.shape, prim.lhs_contract, lhs_free, finite_rhs)
    rhs = _operand(ctx, rhs, right.shape, prim.rhs_contract, rhs_free, finite_lhs)
    out: Atom = ctx.one(prim, lhs, rhs)
    # what is known of the padding of the result, which decides below what is cleared
    # an element of the other operand that is infinite makes all products with it infinite or nan
    zeros = _renumbered(ctx.facts(lhs).zeros, lhs_free, lhs_places) | _renumbered(
        ctx.facts(rhs).zeros, rhs_free, rhs_places
    )
    # the operands were made finite along their free axes: there the result is finite if the other operand is
    later_axes = [*(lhs_places if finite_rhs else ()), *(rhs_places if finite_lhs else ())]
    finite_free = ctx.padded_axes(shape, later_axes)
    ctx.learn(out, PaddingFacts(finite_axes=finite_lanes | finite_free, zeros_unless_infinite=zeros))
    # `cleared` returns a new value, so pending axes are added after it
    out = ctx.cleared(out, shape, [a for a in (*lhs_places, *rhs_places) if a not in later_axes])
    for a, batch in ((lhs, prim.lhs_batch), (rhs, prim.rhs_batch)):
        ctx.add_pending(out, _renumbered(ctx.pending(a), batch, range(n)))
    return (ctx.cleared_later(out, shape, later_axes),)


def _same_lanes(ctx: MaskCtx, prim: Contraction, args: Atoms, shape: Shape) -> tuple[Atom, Atom, PaddedAxes]:
    """Return the operands, cleared along pending batch axes whose padding may be infinite; and the batch axes of the
    result whose padding is finite."""
    lhs, rhs = args
    finite: set[tuple[int, int]] = set()
    for k, (a, b) in enumerate(zip(prim.lhs_batch, prim.rhs_batch, strict=True)):
        lhs_lanes, rhs_lanes = frozenset([(a, shape[k])]), frozenset([(b, shape[k])])
        if ctx.facts(lhs).finite_along(lhs_lanes) and ctx.facts(rhs).finite_along(rhs_lanes):
            finite.update([(k, shape[k])] if ctx.ragged((shape[k],)) else ())
        else:
            lhs = ctx.filled_along(lhs, 0, lhs_lanes & ctx.pending(lhs))
            rhs = ctx.filled_along(rhs, 0, rhs_lanes & ctx.pending(rhs))
    return lhs, rhs, frozenset(finite)


def _operand(
    ctx: MaskCtx, x: Atom, shape: Shape, contracted: Sequence[int], free: Sequence[int], other_finite: bool
) -> Atom:
    """Return an operand with zeros in the padding along the contracted axes, and along free axes whose padding may be
    infinite. If the other operand may be infinite, pending free axes are cleared too, because cotangents there may be
    nan."""
    facts = ctx.facts(x)
    ragged = ctx.padded_axes(shape, free) if x.aval.inexact else NO_AXES
    infinite = [a for a, n in ragged if not facts.finite_along(frozenset([(a, n)]))]
    # a row of a softmax that is nan may have nan in its padding: the product with this row is nan in any case
    zero = [*[a for a in contracted if (a, shape[a]) not in facts.zeros_unless_nan], *infinite]
    if not other_finite and (pending := ragged & ctx.pending(x)):
        return ctx.filled_along(x, 0, pending | (ctx.padded_axes(shape, zero) - facts.zeros))
    return ctx.zero_filled(x, shape, zero)


def _renumbered(axes: PaddedAxes, old: Sequence[int], new: Sequence[int]) -> PaddedAxes:
    """Return the axes among `old` in their `new` places."""
    return frozenset([(new[old.index(a)], n) for a, n in axes if a in old])


PRODUCTS: Final[tuple[MaskRow, ...]] = (row(Contraction, _dot, "padding is 0", clears_operands=False),)
