"""The ivjp of equations with bodies: one backward pass inverts an equation and propagates cotangents.

An ivjp is a program: results, known operands, cotangents of the results -> the other operands, cotangents of operands.
For equations without bodies, `invertible.ivjp` emits reconstruction and cotangents one equation after the other. An
equation with a body would first be inverted as a whole, and then transposed as a whole, and the second pass would need
all values of the body at once. So these equations have an ivjp each, made of the ivjp of their bodies:

- a call or `remat`: a call of the ivjp of the body;
- a branch: a `cond` with the same predicate, which must be known, between the ivjps of the branches;
- a `scan`: one loop from the last step to the first, whose step is the ivjp of the body;
- a function with a rule of the user (`custom_ivjp`), or of an inner `invertible`: a call of this rule.

`eqns_with_ivjp` finds these equations, `IvjpEqn.emit` writes the ivjp.

Example: c, y = scan(step, c0, xs), with step(w, c, x) = (c * exp(w) + x, row). The constant w and the slices x are
known. The backward loop has the carries (c, cotangent of c, sum of the cotangents of w). It starts from the last c, the
given cotangent of it, and 0. It runs over the slices x, and the cotangents of the rows. A step gives the c before the
step, its cotangent, the sum with the share of the step added, and the cotangent of its x, which is stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.masks import mask_or, select_by_mask
from fxad.ir import Atom, Atoms, Eqn, Hole, Jaxpr, Mask, Primitive, Var, Zero
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.loop_steps import Steps
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import InverseRule
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.linearity import is_zero
from fxad.transforms.inversion.plans import BackwardStep, InversionPlan
from fxad.transforms.inversion.rules.contract import Args, InverseTable, PartialInverse, Refused, known_atoms
from fxad.transforms.inversion.rules.loops import backward_loop
from fxad.transforms.inversion.solver import partial_inverse
from fxad.transforms.vmap import over_stack


class Ivjp(Protocol):
    """Returns the ivjp of a body, which gives all operands that are not marked in `ins`.

    See `fxad.transforms.inversion.invertible.ivjp`.
    """

    def __call__(self, body: Jaxpr, ins: Mask, outs: Mask, moving: Mask, /) -> Jaxpr: ...


ValueOf: TypeAlias = Callable[[Atom], Atom]
IvjpResults: TypeAlias = "tuple[dict[Atom, Atom], list[Atom]]"


@final
class _LoopCtx:
    """The `BodyCtx` of a loop that runs backwards: emits equations into a builder. Nothing is measured."""

    __slots__ = ("_b", "_rules", "measured")

    def __init__(self, b: Builder, rules: InverseTable) -> None:
        self._b, self._rules = b, rules
        self.measured = False

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        return self._b(prim, *args)

    def one(self, prim: Primitive, *args: Atom) -> Var:
        return self._b.one(prim, *args)

    def made(self, _a: Atom) -> Eqn | None:
        return None

    def recur(self, body: Jaxpr, ins: Mask, outs: Mask) -> PartialInverse:
        return partial_inverse(body, ins, outs, self._rules)

    def measure(self, _log_det: Atom) -> None:
        raise AssertionError("nothing is measured")


@final
@dataclass(frozen=True, slots=True)
class IvjpEqn:
    """An equation that has an ivjp. `known` marks the operands that are known already; the ivjp gives the others."""

    known: Mask

    def emit(
        self,
        b: Builder,
        eqn: Eqn,
        value: ValueOf,
        cts: Sequence[Atom],
        moving: Mask,
        recur: Ivjp,
        rules: InverseTable,
    ) -> IvjpResults:
        """Emits the ivjp. Returns the operands that it gives, and the cotangents of the operands marked in
        `moving`. `cts` are the cotangents of the inexact results."""
        prim = eqn.prim
        outs = tuple([value(v) for v in eqn.outs])
        # a loop runs backwards step by step, from the last one
        if isinstance(prim, Scan):
            return _loop(b, prim, self.args(eqn, value), eqn, outs, cts, moving, recur, rules)
        # the user's backward program takes the place of the body
        if isinstance(prim, CallWithRules):
            return _custom(b, prim, eqn, outs, cts, moving, value)
        every = (True,) * len(outs)
        known_operands = [value(a) for a in select_by_mask(eqn.ins, self.known)]
        # the predicate is known, and each branch runs backwards on its own
        if isinstance(prim, Cond):
            branches = [recur(body, self.known[1:], every, moving[1:]) for body in prim.branches]
            results = b(
                prim.with_inverted_branches(tuple(branches)), known_operands[0], *outs, *known_operands[1:], *cts
            )
        else:
            # a body that runs once is one program backwards
            assert isinstance(prim, Call | Remat)
            results = b(Call(recur(prim.body, self.known, every, moving)), *outs, *known_operands, *cts)
        reconstructed = [a for a, k in zip(eqn.ins, self.known, strict=True) if not k]
        return dict(zip(reconstructed, results, strict=False)), list(results[len(reconstructed) :])

    def args(self, eqn: Eqn, value: ValueOf) -> Args:
        """Returns the operands, with a hole for each operand that the equation gives."""
        return tuple([value(a) if k else Hole(a.aval) for a, k in zip(eqn.ins, self.known, strict=True)])


def eqns_with_ivjp(jaxpr: Jaxpr, plan: InversionPlan, rules: InverseTable) -> Mapping[Var, IvjpEqn]:
    """Returns the equations of a program that have an ivjp, by their first results."""
    backward = [step for step in plan.computed_by.values() if isinstance(step, BackwardStep)]
    steps = {step.inverts[0].outs[0]: step for step in backward if len(step.inverts) == 1}
    result: dict[Var, IvjpEqn] = {}
    for eqn in jaxpr.eqns:
        step = steps.get(eqn.outs[0]) if eqn.outs else None
        if step is None or not all([plan.determines(a) for a in (*eqn.outs, *eqn.ins)]):
            continue
        known = tuple([plan.computed_by.get(a) is not step for a in eqn.ins])
        if _has_ivjp(eqn, known, rules):
            result[eqn.outs[0]] = IvjpEqn(known)
    return result


def _has_ivjp(eqn: Eqn, known: Mask, rules: InverseTable) -> bool:
    prim = eqn.prim
    # the user's backward program takes the place of the body
    if isinstance(prim, CallWithRules):
        back = prim.rules.inverse
        return isinstance(back, InverseRule) and back.ivjp is not None and all(select_by_mask(known, back.kept))
    # a loop runs backwards step by step, from the last one
    if isinstance(prim, Scan):
        args = tuple([a if k else Hole(a.aval) for a, k in zip(eqn.ins, known, strict=True)])
        loop = backward_loop(_LoopCtx(Builder(), rules), prim, args, eqn.outs)
        return not isinstance(loop, Refused) and all(mask_or(loop[0].solved, loop[0].known_ins))
    # of other bodies (a `while`, a solver) no backward program is known
    if not isinstance(prim, Call | Remat | Cond):
        return False
    unknown = [a for a, k in zip(eqn.ins, known, strict=True) if not k]
    if len(set(unknown)) == len(unknown):
        return True
    # the plan may determine a repeated operand at one position; the ivjp of a body must give it at all positions
    in_body, every = known[len(known) - len(prim.bodies[0].ins) :], (True,) * len(eqn.outs)
    return all([all(mask_or(partial_inverse(body, in_body, every, rules).solved, in_body)) for body in prim.bodies])


def _custom(
    b: Builder, prim: CallWithRules, eqn: Eqn, outs: Sequence[Atom], cts: Sequence[Atom], moving: Mask, value: ValueOf
) -> IvjpResults:
    back = prim.rules.inverse
    assert isinstance(back, InverseRule)
    assert back.ivjp is not None
    kept = [value(a) for a in select_by_mask(eqn.ins, back.kept)]
    results = b(Call(prim.complete(back.ivjp, over_stack)), *outs, *kept, *cts)
    reconstructed = [a for a, k in zip(eqn.ins, back.kept, strict=True) if not k]
    bars, wanted = results[len(reconstructed) :], select_by_mask(moving, prim.function.moving)
    return dict(zip(reconstructed, results, strict=False)), list(select_by_mask(bars, wanted))


def _loop(
    b: Builder,
    prim: Scan,
    args: Args,
    eqn: Eqn,
    outs: Atoms,
    cts: Sequence[Atom],
    moving: Mask,
    recur: Ivjp,
    rules: InverseTable,
) -> IvjpResults:
    """Emits one loop from the last step to the first. Each step reconstructs its operands and propagates cotangents.

    The carries of the backward loop are the reconstructed carries, their cotangents, and the sums of the cotangents of
    the constants. It runs over the slices that the reconstruction reads, and the cotangents of the rows.
    """
    ctx = _LoopCtx(b, rules)
    loop = backward_loop(ctx, prim, args, outs)
    assert not isinstance(loop, Refused), "_has_ivjp"
    backward, steps = loop[0], prim.steps
    count, operands = prim.split_count(args)
    moving_operands = prim.split_count(moving)[1]
    moving_consts, _, moving_xs = steps.split(moving_operands)
    of_consts, of_carry, _ = steps.split(prim.body.in_avals)
    carry_moves = tuple([a.inexact for a in of_carry])
    n_carry_cts = sum(carry_moves)
    moves = (*moving_consts, *carry_moves, *moving_xs)
    program = recur(prim.body, backward.known_ins, backward.known_outs, moves)

    # one step: the operands that it reconstructs, and the cotangents of its operands
    s = Builder()
    of_sums = select_by_mask(of_consts, moving_consts)
    step = backward.inputs(s, [*select_by_mask(of_carry, carry_moves), *of_sums])
    carry_cts, sums = step.extra[:n_carry_cts], step.extra[n_carry_cts:]
    row_cts = s.inputs([a for a in prim.body.out_avals[prim.n_carry :] if a.inexact])
    remaining = iter(s.inline(program, (*step.operands, *carry_cts, *row_cts)))
    consts, carry, xs = steps.split([None if k else next(remaining) for k in backward.known_ins])
    d_consts, d_carry, d_xs = steps.split([next(remaining) if m else None for m in moves])
    assert not any(consts), "an unknown constant is not given by a loop"
    new_sums = [_accumulate(s, a, d) for a, d in zip(sums, [d for d in d_consts if d], strict=True)]
    ends = [*[a for a in carry if a], *[d for d in d_carry if d], *new_sums]
    step_program = s.build([*ends, *[a for a in xs if a], *[d for d in d_xs if d]], program.name)

    # the loop, from the last carries and their cotangents
    backward_scan = prim.with_steps(Steps(step_program, step.n_consts, len(ends)), backward=True)
    results = iter(
        ctx(
            backward_scan,
            *known_atoms(count),
            *backward.constants(args),
            *backward.state(ctx, args, outs),
            *cts[:n_carry_cts],
            *[Zero(a).instantiate() for a in of_sums],
            *backward.slices(ctx, args, outs),
            *cts[n_carry_cts:],
        )
    )
    first = [next(results) if a else None for a in carry]
    ct_carry = [next(results) if d else None for d in d_carry]
    ct_consts = [next(results) if d else None for d in d_consts]
    slices = [next(results) if a else None for a in xs]
    ct_xs = [next(results) if d else None for d in d_xs]
    by_operand = zip(prim.split_count(eqn.ins)[1], operands, [*consts, *first, *slices], strict=True)
    values = {a: v for a, arg, v in by_operand if v is not None and isinstance(arg, Hole)}
    bars = select_by_mask([*ct_consts, *ct_carry, *ct_xs], moving_operands)
    return values, [ct for ct in bars if ct is not None]


def _accumulate(b: Builder, total: Atom, more: Atom) -> Atom:
    return total if is_zero(more) else b.one(ADD, total, more)
