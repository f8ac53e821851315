"""Reductions and cumulative operations: the padding holds the neutral element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.core.sizes.lower_bounds import lower_bound
from fxad.ir import Atom, Atoms, Aval, Avals
from fxad.primitives.argmax import ArgExtremum
from fxad.primitives.axes import replace_entry
from fxad.primitives.cumulative import Cumulative, LinearRecurrence
from fxad.primitives.reduce import ExtremumReduction, Reduction, extreme_value
from fxad.primitives.shape import ReduceSum
from fxad.primitives.softmax import LogSoftmax, Softmax
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, row
from fxad.transforms.mask.padding_facts import NO_AXES, PaddingFacts, moved_axes


def _sum(ctx: MaskCtx, prim: ReduceSum, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return (ctx.with_pending(prim, ctx.clear_unless_finite(ctx.zero_filled(args[0], ins[0].shape, prim.axes))),)


def _extremum(ctx: MaskCtx, prim: ExtremumReduction, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    some, facts = _has_elements(ins[0], prim.axes), ctx.facts(args[0])
    x = ctx.clear_unless_finite(args[0]) if some else ctx.clear_pending(args[0])
    out = ctx.with_pending(prim, ctx.filled(x, ins[0].shape, prim.monoid.identity(ins[0].dtype), prim.axes))
    if some:
        ctx.learn(out, PaddingFacts(finite_axes=moved_axes(prim, x.aval, ctx.facts(x).finite_axes)))
    if some and facts.finite:
        ctx.learn(out, PaddingFacts(finite=True, least=facts.least))
    return (out,)


def _has_elements(x: Aval, axes: Sequence[int]) -> bool:
    """Return True if each slice along `axes` has an element."""
    return all([(lower_bound(x.shape[a]) or 0) > 0 for a in axes])


def _reduction(ctx: MaskCtx, prim: Reduction, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return ctx(prim, ctx.filled(args[0], ins[0].shape, prim.monoid.identity(ins[0].dtype), prim.axes))


def _arg_extremum(ctx: MaskCtx, prim: ArgExtremum, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return ctx(prim, ctx.filled(args[0], ins[0].shape, extreme_value(ins[0].dtype, -prim.sign), (prim.axis,)))


def _cumulative(ctx: MaskCtx, prim: Cumulative, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (x,) = ins
    y = ctx.one(prim, ctx.filled(args[0], x.shape, prim.identity(x.dtype), (prim.axis,)))
    return (ctx.cleared(y, x.shape, (prim.axis,)),)


def _recurrence(ctx: MaskCtx, prim: LinearRecurrence, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    (a, b), shape, n = args, ins[0].shape, ins[0].shape[prim.axis]
    # a reversed recurrence begins at the last valid element, whose factor is not used: 0 times an infinity would be nan
    used_shape = replace_entry(shape, prim.axis, n - 1) if prim.reverse else shape
    a = ctx.zero_filled(a, used_shape, (prim.axis,))
    b = ctx.zero_filled(b, shape, (prim.axis,))
    return (ctx.cleared(ctx.one(prim, a, b), outs[0].shape, (prim.axis,)),)


def _softmax(ctx: MaskCtx, prim: Softmax, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a softmax: the padding along its axes is the least number of the dtype, whose exponential is 0, or is
    excluded in another way if it is known to be zero. Along the other axes it stays pending if all lanes are finite."""
    shape, some = ins[0].shape, _has_elements(ins[0], prim.axes)
    facts = ctx.facts(args[0])
    finite = some and facts.finite
    padded = ctx.padded_axes(shape, prim.axes)
    other_axes = ctx.padded_axes(shape) - padded
    finite_lanes = some and facts.finite_along(other_axes | ctx.pending(args[0]))
    x = args[0] if finite_lanes else ctx.clear_pending(args[0])
    if finite and padded <= ctx.facts(x).zeros | ctx.facts(x).zeros_unless_infinite:
        out = ctx.one(prim, ctx.excluded(x, shape, prim.axes))
    else:
        out = ctx.one(prim, ctx.filled(x, shape, extreme_value(ins[0].dtype, -1), prim.axes))
    if not finite_lanes:
        return (ctx.cleared(out, shape),)
    ctx.learn(
        out, PaddingFacts(finite, finite_axes=other_axes, zeros_unless_nan=padded if finite else NO_AXES, least=0.0)
    )
    y = ctx.cleared_later(out, shape, prim.axes)
    ctx.add_pending(y, ctx.pending(x) - padded)
    return (y,)


def _log_softmax(ctx: MaskCtx, prim: LogSoftmax, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    shape = ins[0].shape
    filled = ctx.filled(args[0], shape, extreme_value(ins[0].dtype, -1), prim.axes)
    return (ctx.cleared(ctx.one(prim, filled), shape),)


REDUCTIONS: Final[tuple[MaskRow, ...]] = (
    row(ReduceSum, _sum, "padding is 0", clears_operands=False),
    row(ExtremumReduction, _extremum, "padding is the neutral element", clears_operands=False),
    row(Reduction, _reduction, "padding is the neutral element"),
    row(ArgExtremum, _arg_extremum, "padding is the value that is not chosen"),
    row(Cumulative, _cumulative, "padding is the neutral element"),
    row(LinearRecurrence, _recurrence, "padding is 0"),
    row(LogSoftmax, _log_softmax, "padding is -inf"),
    row(Softmax, _softmax, "padding is -inf", clears_operands=False),
)
