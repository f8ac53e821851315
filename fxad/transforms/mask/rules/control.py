"""Primitives with bodies: one rule over layouts; a scan over a symbolic length stops at the true one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fxad.core.layout import Constant
from fxad.errors import SizeError
from fxad.ir import Atom, Atoms, Avals, HigherOrder, Jaxpr
from fxad.primitives.check import Check
from fxad.primitives.control.bodies import reorder_operands
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.loop_steps import Steps
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import BatchRule, Derivative, Function, Refusal, Rules
from fxad.primitives.elementwise.arithmetic import MIN
from fxad.primitives.implicit import LinearSolve, Root
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.named_calls import BatchChange, NamedCall
from fxad.transforms.mask.context import MaskCtx
from fxad.transforms.mask.contract import MaskRow, not_masked, row


def through_bodies(ctx: MaskCtx, prim: HigherOrder, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask an equation by its layout: the sizes become constants of every body."""
    layout, extra = prim.layout, ctx.size_operands
    groups: list[int] = []
    bodies: list[Jaxpr] = []
    for k, body in enumerate(layout.bodies):
        constants = layout.growable_group(k, Constant)
        if constants is None:
            raise not_masked(prim, f"its body {body.jaxpr.name} takes no constants, and the sizes would be some")
        groups.append(constants)
        position = sum([layout.operands[g].size for g in body.operands[: body.operands.index(constants) + 1]])
        bodies.append(_with_sizes_at(ctx, body.jaxpr, position))
    operands: list[Atom] = []
    sizes: list[int] = []
    for g, group in enumerate(layout.operands):
        operands += [*[args[k] for k in layout.operands_of(g)], *(extra if g in groups else ())]
        sizes.append(group.size + (len(extra) if g in groups else 0))
    masked = prim.rebuild(tuple(bodies), tuple(sizes), tuple([group.size for group in layout.results]))
    return ctx(masked, *operands)


def _once(ctx: MaskCtx, prim: Call | Remat, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a body that runs once. The facts and pending axes of the operands hold in it; those of its results hold
    outside."""
    body, states = ctx.recur_once(prim.body, args)
    operands = (*args, *ctx.size_operands)
    results = ctx(prim.rebuild((body,), (len(operands),), (len(outs),)), *operands)
    ctx.add_states(results, states)
    return results


def _with_sizes_at(ctx: MaskCtx, body: Jaxpr, position: int) -> Jaxpr:
    """Return a body over padded arrays, which takes the sizes at `position` among its operands."""
    n = len(body.ins)
    sizes = range(n, n + len(ctx.size_operands))
    return reorder_operands(ctx.recur(body), (*range(position), *sizes, *range(position, n)))


def _scan(ctx: MaskCtx, prim: Scan, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a scan over a symbolic length: it runs up to the true length, and further steps do not run."""
    if not ctx.masked(prim.length):
        return through_bodies(ctx, prim, args, ins, outs)
    extra = ctx.size_operands
    count_operand, body_operands = prim.split_count(args)
    length = ctx.count(prim.length)
    count = ctx.one(MIN, *count_operand, length) if count_operand else length
    consts, carry, xs = prim.steps.split(body_operands)
    body = _with_sizes_at(ctx, prim.body, prim.n_consts)
    steps = Steps(body, prim.n_consts + len(extra), prim.n_carry)
    padded = ctx.padded_size(prim.length)
    masked = Scan(
        steps.body, padded, reverse=prim.reverse, unroll=1, n_consts=steps.n_consts, n_carry=steps.n_carry, upto=True
    )
    return ctx(masked, count, *consts, *extra, *carry, *xs)


def _custom(ctx: MaskCtx, prim: CallWithRules, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a function and its rules, which are programs. The sizes become captured operands."""
    module = tuple([_masked_function(ctx, function) for function in prim.module])
    function = _masked_function(ctx, prim.function)
    operands = (*ctx.size_operands, *args)
    plain = function.rules == Rules()
    return ctx(Call(function.body) if plain else CallWithRules(function, module), *operands)


def _masked_function(ctx: MaskCtx, function: Function) -> Function:
    """Return a function with rules over padded arrays. It has no inverse: the padding cannot be reconstructed."""
    rules = function.rules
    jvp, vjp = [tuple([_derivative(ctx, rule) for rule in kind]) for kind in (rules.jvp, rules.vjp)]
    batch = [masked for rule in rules.batch for masked in _for_stacks(ctx, rule)]
    plain = None if rules.derivative_of is None else _with_sizes_at(ctx, rules.derivative_of, 0)
    masked_rules = Rules(jvp, vjp, tuple(batch), derivative_of=plain, further=rules.of_stacks.further)
    return Function(_with_sizes_at(ctx, function.body, 0), len(ctx.size_operands) + function.captured, masked_rules)


def _for_stacks(ctx: MaskCtx, rule: BatchRule) -> list[BatchRule]:
    """Return the batching rule over padded arrays. Without one, the batched function is derived from its body."""
    if ctx.masked(rule.size):
        return []
    try:
        return [replace(rule, body=_with_sizes_at(ctx, rule.body, 0))]
    except SizeError:
        if rule.any_size:  # it was traced in advance: no map may need it
            return []
        raise


def _derivative(ctx: MaskCtx, rule: Derivative | Refusal) -> Derivative | Refusal:
    """Return the rule over padded arrays; the sizes are residuals too. A rule that cannot be masked refuses its
    uses."""
    n = len(ctx.size_operands)
    perturbed = (*(False,) * n, *rule.moving)
    if isinstance(rule, Refusal):
        return replace(rule, moving=perturbed)
    try:
        masked = _with_sizes_at(ctx, rule.forward, 0)
        push, pull = ctx.recur(rule.push), None if rule.pull is None else ctx.recur(rule.pull)
    except SizeError as e:
        return Refusal(
            perturbed, f"its rule {rule.forward.name} has no padded form: {e.message}", e.remedy, rule.results
        )
    forward = masked.with_outs((*masked.outs, *masked.ins[:n]))
    return Derivative(perturbed, forward, push, pull, rule.results)


def _named_call(ctx: MaskCtx, prim: NamedCall, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Return the same call, of the masked function."""
    sizes = ctx.size_operands
    changes = [
        BatchChange(ctx.padded_size(c.size), (*(None,) * len(sizes), *c.in_dims), c.out_dims) for c in prim.changes
    ]
    reads = tuple([(*(True,) * len(sizes), *row) for row in prim.reads])
    body = _with_sizes_at(ctx, prim.body, 0)
    return ctx(NamedCall(body, prim.function, tuple(changes), reads), *sizes, *args)


def _sizes_last(ctx: MaskCtx, prim: HigherOrder, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a branch: each body takes the sizes last. A masked solver is such a program too: it iterates as for the true
    size."""
    masked = prim.with_bodies(tuple([ctx.recur(body) for body in prim.bodies]))
    return ctx(masked, *args, *ctx.size_operands)


def _root(ctx: MaskCtx, prim: Root, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Mask a root: the sizes are captured. Captured operands come first in the equation and last in its linear
    system."""
    sizes = ctx.size_operands
    first = [_with_sizes_at(ctx, body, 0) for body in (prim.equation, prim.solve, prim.at)]
    before = len(prim.equation.outs) + len(prim.at.outs)
    system = [_with_sizes_at(ctx, body, before) for body in prim.system]
    masked = Root(first[0], first[1], first[2], tuple(system), len(sizes) + prim.captured)
    return ctx(masked, *sizes, *args)


def _check(ctx: MaskCtx, prim: Check, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    pred = ctx.filled(args[0], ins[0].shape, False)
    padded = Check(prim.message, prim.equation, prim.where, prim.n_fields, ctx.padded(prim.sizes), prim.reports)
    return ctx(padded, pred, *args[1:])


_THROUGH: Final = "through its bodies"

CONTROL: Final[tuple[MaskRow, ...]] = (
    row(Call, _once, _THROUGH, clears_operands=False),
    row(Remat, _once, _THROUGH, clears_operands=False),
    *[row(kind, through_bodies, _THROUGH) for kind in (Cond, While)],
    row(Scan, _scan, "through its body; up to the true length"),
    row(CallWithRules, _custom, "through its body and its rules; there is no inverse"),
    row(NamedCall, _named_call, _THROUGH),
    *[row(kind, _sizes_last, _THROUGH) for kind in (LinearCall, LinearSolve)],
    row(Root, _root, _THROUGH),
    row(Check, _check, "padding passes the check"),
)
