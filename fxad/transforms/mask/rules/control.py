"""Primitives with bodies: one rule over layouts; a scan over a symbolic length stops at the true one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.core.builder import Builder
from fxad.core.layout import Constant
from fxad.ir import Atom, HigherOrder, Jaxpr
from fxad.primitives.check import Check
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.loop_steps import Steps
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.custom import CustomCall, NamedCall
from fxad.primitives.custom_rules import Function, Refusal, Rules
from fxad.primitives.elementwise import MIN
from fxad.primitives.linear_call import LinearCall
from fxad.transforms.mask.contract import Atoms, Avals, MaskCtx, MaskRule, not_masked, row


def _bodies(ctx: MaskCtx, prim: HigherOrder, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """The sizes become constants of every body."""
    layout, extra = prim.layout, ctx.size_operands
    groups: list[int] = []
    bodies: list[Jaxpr] = []
    for k, own in enumerate(layout.bodies):
        at = layout.group_of(k, Constant)
        if at is None:
            raise not_masked(prim, f"its body {own.jaxpr.name} takes no constants, and the sizes would be some")
        groups.append(at)
        position = sum([layout.operands[g].size for g in own.operands[: own.operands.index(at) + 1]])
        bodies.append(moved_in(ctx.recur(own.jaxpr), position, len(extra)))
    operands: list[Atom] = []
    sizes: list[int] = []
    for g, group in enumerate(layout.operands):
        mine = [args[k] for k in layout.operands_of(g)]
        operands += [*mine, *(extra if g in groups else ())]
        sizes.append(group.size + (len(extra) if g in groups else 0))
    made = prim.rebuild(tuple(bodies), tuple(sizes), tuple([group.size for group in layout.results]))
    return ctx(made, *operands)


def moved_in(body: Jaxpr, position: int, count: int) -> Jaxpr:
    """A body that takes its last `count` operands at `position`."""
    types = body.in_avals
    own, last = types[: len(types) - count], types[len(types) - count :]
    b = Builder()
    before, moved, after = b.inputs(own[:position]), b.inputs(last), b.inputs(own[position:])
    return b.build(b.inline(body, (*before, *after, *moved)), body.name)


def _scan(ctx: MaskCtx, prim: Scan, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """A scan over a symbolic length runs up to the true length: further steps do not run."""
    if not ctx.masked(prim.length):
        return _bodies(ctx, prim, args, ins, outs)
    extra = ctx.size_operands
    (given,), rest = prim.split_count(args) if prim.upto else ((None,), args)
    length = ctx.count(prim.length)
    count = length if given is None else ctx.one(MIN, given, length)
    consts, carry, xs = prim.steps.split(rest)
    body = moved_in(ctx.recur(prim.body), prim.n_consts, len(extra))
    steps = Steps(body, prim.n_consts + len(extra), prim.n_carry)
    room = ctx.room(prim.length)
    made = Scan(steps.body, room, prim.reverse, 1, steps.n_consts, steps.n_carry, upto=True)
    return ctx(made, count, *consts, *extra, *carry, *xs)


def _custom(ctx: MaskCtx, prim: CustomCall, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """The value of a function with rules. Its derivative rules are about arrays without padding, so a derivative of the
    masked call is refused; the derivative taken first has used them."""
    function = prim.function
    body, operands = ctx.recur(function.body), (*args, *ctx.size_operands)
    if not function.rules.has_derivative:
        return ctx(Call(body), *operands)
    refusal = Refusal(
        tuple([a.aval.inexact for a in operands]),
        f"the derivative rule of {function.body.name} is about arrays without padding",
        "differentiate first: mask(grad(f)), not grad(mask(f))",
    )
    return ctx(CustomCall(Function(body, 0, Rules(jvp=(refusal,), vjp=(refusal,)))), *operands)


def _named(ctx: MaskCtx, prim: NamedCall, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return ctx(Call(ctx.recur(prim.body)), *args, *ctx.size_operands)


def _linear(ctx: MaskCtx, prim: LinearCall, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    adjoint = None if prim.adjoint is None else ctx.recur(prim.adjoint)
    made = LinearCall(ctx.recur(prim.body), adjoint, prim.n_linear)
    return ctx(made, *args, *ctx.size_operands)


def _check(ctx: MaskCtx, prim: Check, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    pred = ctx.filled(args[0], ins[0].shape, False)
    made = Check(prim.message, prim.equation, prim.where, prim.n_fields, ctx.padded(prim.sizes), prim.told)
    return ctx(made, pred, *args[1:])


_THROUGH: Final = "through its bodies"

CONTROL: Final[tuple[MaskRule, ...]] = (
    *[row(kind, _bodies, _THROUGH) for kind in (Call, Remat, Cond, While)],
    row(Scan, _scan, "through its body; up to the true length"),
    row(CustomCall, _custom, "through its body; a derivative taken before mask uses its rules"),
    row(NamedCall, _named, _THROUGH),
    row(LinearCall, _linear, _THROUGH),
    row(Check, _check, "padding passes the check"),
)
