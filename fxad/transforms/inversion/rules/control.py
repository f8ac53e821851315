"""Inverses of calls, branches and loops: the same equation with inverted bodies."""

from __future__ import annotations

from typing import Final

from fxad.core.flags import select_by_flags
from fxad.ir import Flags, Hole, Jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.custom import CallWithRules
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.named_calls import NamedCall
from fxad.transforms.inversion.call_rules import error_of_inverse, inverse_of_call
from fxad.transforms.inversion.rules.contract import (
    Args,
    BodyCtx,
    InverseRow,
    PartialInverse,
    Refused,
    Solved,
    at_positions,
    body_row,
    for_unknown,
    known_atoms,
    known_flags,
)
from fxad.transforms.inversion.rules.loops import backward_loop
from fxad.transforms.vmap import over_stack

BRANCH_UNKNOWN: Final = Refused(
    "which branch was taken depends on what is to be reconstructed",
    "compute the predicate from values that are not reconstructed",
)
STEP_COUNT_UNKNOWN: Final = Refused(
    "how many steps were taken is not known from its results",
    "take a number of steps that is known: fori_loop or scan",
)


# -------------------------------------------------------------------------------------------------------------- calls


def _inverted(ctx: BodyCtx, body: Jaxpr, args: Args, outs: Args) -> Solved | Refused:
    """Emit a call of the inverted body."""
    backward = ctx.recur(body, known_flags(args), known_flags(outs))
    if not any(backward.solved):
        return backward.why_not
    results = ctx(Call(backward.program), *known_atoms(outs), *known_atoms(args))
    if ctx.measured:
        ctx.measure(results[-1])
    return at_positions(results, backward.solved)


def _call(ctx: BodyCtx, prim: Call | Remat | LinearCall | NamedCall, args: Args, outs: Args) -> Solved | Refused:
    return _inverted(ctx, prim.body, args, outs)


def _call_with_rules(ctx: BodyCtx, prim: CallWithRules, args: Args, outs: Args) -> Solved | Refused:
    """Use the custom inverse. Uses the body if there is no custom inverse, or if the log-determinant is needed, which
    the custom inverse does not give."""
    if error := error_of_inverse(prim):
        return Refused(error)
    rule = inverse_of_call(prim)
    if rule is None:
        return _inverted(ctx, prim.body, args, outs)
    kept = select_by_flags(args, rule.kept)
    if ctx.measured or not all([*known_flags(kept), *known_flags(outs)]):
        body = _inverted(ctx, prim.body, args, outs)
        return _unmeasured(body) if isinstance(body, Refused) and ctx.measured else body
    values = ctx(Call(prim.complete(rule.inverse, over_stack)), *known_atoms(outs), *known_atoms(kept))
    operands = at_positions(values, tuple([not k for k in rule.kept]))
    return for_unknown(operands, args)


def _unmeasured(body: Refused) -> Refused:
    """Return the reason why a function with a custom inverse has no log-determinant."""
    return Refused(
        f"the inverse it was given does not say the log-determinant, and in the function itself {body.sentence}"
    )


# ----------------------------------------------------------------------------------------------------------- branches


def _cond(ctx: BodyCtx, prim: Cond, args: Args, outs: Args) -> Solved | Refused:
    index, operands = args[0], args[1:]
    if isinstance(index, Hole):
        return BRANCH_UNKNOWN
    inverted = [ctx.recur(branch, known_flags(operands), known_flags(outs)) for branch in prim.branches]
    solved = tuple([all(marks) for marks in zip(*[branch.solved for branch in inverted], strict=True)])
    if not any(solved):
        return next((branch.refused for branch in inverted if branch.refused), inverted[0].why_not)
    branches = tuple([_with_operands(branch, solved, ctx.measured) for branch in inverted])
    results = ctx(prim.with_inverted_branches(branches), index, *known_atoms(outs), *known_atoms(operands))
    if ctx.measured:
        ctx.measure(results[-1])
    return None, *at_positions(results, solved)


def _with_operands(branch: PartialInverse, solved: Flags, measured: bool) -> Jaxpr:
    """Return the program of an inverted branch with only the operands that all branches determine, and its
    log-determinant."""
    program = branch.program
    operands = at_positions(program.outs, branch.solved)
    determined = [a for a, s in zip(operands, solved, strict=True) if s and a is not None]
    return program.with_outs((*determined, *program.outs[-1:]) if measured else tuple(determined))


# -------------------------------------------------------------------------------------------------------------- loops


def _scan(ctx: BodyCtx, prim: Scan, args: Args, outs: Args) -> Solved | Refused:
    """Emit the loop in reverse: from the last carry to the first, over the slices in reverse order."""
    loop = backward_loop(ctx, prim, args, outs)
    if isinstance(loop, Refused):
        return loop
    backward, step = loop
    results = backward.emit(ctx, step, args, outs)
    consts, carries, xs = prim.steps.split(backward.solved)
    n = sum(carries)
    if ctx.measured:
        ctx.measure(results[n])
    values = (*at_positions(results[:n], carries), *at_positions(results[n + ctx.measured :], xs))
    known = [*prim.split_count(args)[0], *consts]
    return *[None] * len(known), *for_unknown(values, args[len(known) :])


def _while(_ctx: BodyCtx, _prim: While, _args: Args, _outs: Args) -> Refused:
    return STEP_COUNT_UNKNOWN


CONTROL: Final[tuple[InverseRow, ...]] = (
    body_row(Call, _call),
    body_row(Remat, _call),
    body_row(LinearCall, _call),
    body_row(NamedCall, _call),
    body_row(CallWithRules, _call_with_rules),
    body_row(Cond, _cond),
    body_row(Scan, _scan),
    body_row(While, _while),
)
