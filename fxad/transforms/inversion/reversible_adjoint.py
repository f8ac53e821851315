"""The ivjp of equations with bodies: one backward pass inverts an equation and propagates cotangents.

An ivjp is a program: results, known operands, cotangents of the results -> the other operands, cotangents of operands.
For equations without bodies, `derivatives_from_results.ivjp` emits reconstruction and cotangents one equation after the
other. An equation with a body would first be inverted as a whole, and then transposed as a whole, and the second pass
would need all values of the body at once. So these equations have an ivjp each, made of the ivjp of their bodies:

- a call or `remat`: a call of the ivjp of the body;
- a branch: a `cond` with the same predicate, which must be known, between the ivjps of the branches;
- a `scan`: one loop from the last step to the first, whose step is the ivjp of the body;
- a function with a rule of the user (`custom_ivjp`), or of an inner `invertible`: a call of this rule.

`eqns_with_ivjp` finds these equations, `IvjpCtx.emit` writes the ivjp of one.

Example: c, y = scan(step, c0, xs), with step(w, c, x) = (c * exp(w) + x, row). The constant w and the slices x are
known. The backward loop has the carries (c, cotangent of c, sum of the cotangents of w). It starts from the last c, the
cotangent of the last c, and 0. It runs over the slices x, and the cotangents of the rows. A step returns the c before
the step, its cotangent, the sum with the share of the step added, and the cotangent of its x, which is stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.flags import flags_or, select_by_flags
from fxad.ir import Atom, Atoms, Eqn, Flags, Hole, Jaxpr, Primitive, Var, Zero
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.loop_steps import Steps
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.custom import CallWithRules
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.linearity import is_zero
from fxad.transforms.inversion.call_rules import inverse_of_call
from fxad.transforms.inversion.plans import BackwardStep, InversionPlan
from fxad.transforms.inversion.rules.contract import InverseTable, PartialInverse, Refused, known_atoms
from fxad.transforms.inversion.rules.loops import BackwardLoop, backward_loop
from fxad.transforms.inversion.solver import partial_inverse
from fxad.transforms.vmap import over_stack


class IvjpOfBody(Protocol):
    """Return the ivjp of a body, from its operands marked in `known_ins` and its results marked in `known_outs`. See
    `derivatives_from_results.ivjp`."""

    def __call__(self, body: Jaxpr, known_ins: Flags, known_outs: Flags, perturbed: Flags, /) -> Jaxpr: ...


# ---------------------------------------------------------------------------------------------- equations with an ivjp


@final
@dataclass(frozen=True, slots=True, eq=False)
class IvjpEqn:
    """An equation that has an ivjp, which reconstructs the operands that are not marked in `known_ins`. `perturbed`
    marks the operands that have cotangents."""

    eqn: Eqn
    known_ins: Flags
    perturbed: Flags


def eqns_with_ivjp(jaxpr: Jaxpr, plan: InversionPlan, rules: InverseTable) -> Mapping[Var, Flags]:
    """Return the equations of a program that have an ivjp, by their first results: for each, the mask of its known
    operands."""
    backward = [step for step in plan.computed_by.values() if isinstance(step, BackwardStep)]
    steps = {step.inverts[0].outs[0]: step for step in backward if len(step.inverts) == 1}
    result: dict[Var, Flags] = {}
    for eqn in jaxpr.eqns:
        step = steps.get(eqn.outs[0]) if eqn.outs else None
        if step is None or not all([plan.determines(a) for a in (*eqn.outs, *eqn.ins)]):
            continue
        known_ins = tuple([plan.computed_by.get(a) is not step for a in eqn.ins])
        if _has_ivjp(eqn, known_ins, rules):
            result[eqn.outs[0]] = known_ins
    return result


def _has_ivjp(eqn: Eqn, known_ins: Flags, rules: InverseTable) -> bool:
    """Return True if an equation with bodies can be run backwards as a whole, together with its cotangents."""
    prim = eqn.prim
    # the user's backward program takes the place of the body
    if isinstance(prim, CallWithRules):
        rule = inverse_of_call(prim)
        return rule is not None and rule.ivjp is not None and all(select_by_flags(known_ins, rule.kept))
    # a loop runs backwards step by step, from the last one
    if isinstance(prim, Scan):
        args = tuple([a if k else Hole(a.aval) for a, k in zip(eqn.ins, known_ins, strict=True)])
        loop = backward_loop(_LoopCtx(Builder(), rules), prim, args, eqn.outs)
        return not isinstance(loop, Refused) and all(flags_or(loop[0].solved, loop[0].known_ins))
    # of other bodies (a `while`, a solver) no backward program is known
    if not isinstance(prim, Call | Remat | Cond):
        return False
    unknown = [a for a, k in zip(eqn.ins, known_ins, strict=True) if not k]
    if len(set(unknown)) == len(unknown):
        return True
    # the plan may determine a repeated operand at one position; the ivjp of a body must reconstruct it at all positions
    in_body, every = known_ins[len(known_ins) - len(prim.bodies[0].ins) :], (True,) * len(eqn.outs)
    return all([all(flags_or(partial_inverse(body, in_body, every, rules).solved, in_body)) for body in prim.bodies])


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

    def producer(self, _a: Atom) -> Eqn | None:
        return None

    def recur(self, body: Jaxpr, known_ins: Flags, known_outs: Flags) -> PartialInverse:
        return partial_inverse(body, known_ins, known_outs, self._rules)

    def measure(self, _log_det: Atom) -> None:
        raise AssertionError("nothing is measured")


# ------------------------------------------------------------------------------------------------ emission of an ivjp


@final
@dataclass(frozen=True, slots=True, eq=False)
class IvjpResults:
    """The values of an ivjp: the reconstructed operands, and the cotangents of the operands marked in `perturbed`."""

    operands: Mapping[Atom, Atom]
    cotangents: Sequence[Atom]


@final
@dataclass(frozen=True, slots=True, eq=False)
class IvjpCtx:
    """Emits the ivjp of equations into a builder. `value` returns the atom of a known value there."""

    b: Builder
    value: Callable[[Atom], Atom]
    ivjp_of_body: IvjpOfBody
    rules: InverseTable

    def emit(self, ivjp_eqn: IvjpEqn, cts: Sequence[Atom]) -> IvjpResults:
        """Emit the ivjp of an equation. `cts` are the cotangents of its inexact results."""
        prim = ivjp_eqn.eqn.prim
        outs = tuple([self.value(v) for v in ivjp_eqn.eqn.outs])
        match prim:
            case Scan():
                return self._scan(prim, ivjp_eqn, outs, cts)
            case CallWithRules():
                return self._call_with_rules(prim, ivjp_eqn, outs, cts)
            case Cond():
                return self._cond(prim, ivjp_eqn, outs, cts)
            case _:
                assert isinstance(prim, Call | Remat)
                return self._call(prim, ivjp_eqn, outs, cts)

    def _call(self, prim: Call | Remat, ivjp_eqn: IvjpEqn, outs: Atoms, cts: Sequence[Atom]) -> IvjpResults:
        program = self.ivjp_of_body(prim.body, ivjp_eqn.known_ins, (True,) * len(outs), ivjp_eqn.perturbed)
        operands = [self.value(a) for a in select_by_flags(ivjp_eqn.eqn.ins, ivjp_eqn.known_ins)]
        return _results_of(ivjp_eqn.eqn, ivjp_eqn.known_ins, self.b(Call(program), *outs, *operands, *cts))

    def _cond(self, prim: Cond, ivjp_eqn: IvjpEqn, outs: Atoms, cts: Sequence[Atom]) -> IvjpResults:
        every = (True,) * len(outs)
        known_ins, perturbed = ivjp_eqn.known_ins[1:], ivjp_eqn.perturbed[1:]
        branches = [self.ivjp_of_body(body, known_ins, every, perturbed) for body in prim.branches]
        index, *operands = [self.value(a) for a in select_by_flags(ivjp_eqn.eqn.ins, ivjp_eqn.known_ins)]
        inverted = prim.with_inverted_branches(tuple(branches))
        return _results_of(ivjp_eqn.eqn, ivjp_eqn.known_ins, self.b(inverted, index, *outs, *operands, *cts))

    def _call_with_rules(self, prim: CallWithRules, ivjp_eqn: IvjpEqn, outs: Atoms, cts: Sequence[Atom]) -> IvjpResults:
        rule = inverse_of_call(prim)
        assert rule is not None
        assert rule.ivjp is not None
        kept = [self.value(a) for a in select_by_flags(ivjp_eqn.eqn.ins, rule.kept)]
        call = Call(prim.complete(rule.ivjp, over_stack))
        results = _results_of(ivjp_eqn.eqn, rule.kept, self.b(call, *outs, *kept, *cts))
        # the rule returns the cotangents of all operands that may be perturbed
        perturbed = select_by_flags(ivjp_eqn.perturbed, prim.function.perturbed)
        return IvjpResults(results.operands, select_by_flags(results.cotangents, perturbed))

    def _scan(self, prim: Scan, ivjp_eqn: IvjpEqn, outs: Atoms, cts: Sequence[Atom]) -> IvjpResults:
        """Emit one loop from the last step to the first. Each step reconstructs its operands and propagates
        cotangents.

        The carries of the backward loop are the reconstructed carries, their cotangents, and the sums of the cotangents
        of the constants. It runs over the slices that the reconstruction reads, and the cotangents of the rows.
        """
        eqn = ivjp_eqn.eqn
        args = tuple([self.value(a) if k else Hole(a.aval) for a, k in zip(eqn.ins, ivjp_eqn.known_ins, strict=True)])
        ctx = _LoopCtx(self.b, self.rules)
        backward = backward_loop(ctx, prim, args, outs)
        assert not isinstance(backward, Refused), "_has_ivjp"
        loop, _ = backward
        of_consts, of_carry, _ = prim.steps.split(prim.body.in_avals)
        perturbed_consts, _, perturbed_xs = prim.steps.split(prim.split_count(ivjp_eqn.perturbed)[1])
        perturbed_carries = tuple([a.inexact for a in of_carry])  # in a step, all of these have cotangents
        perturbed = (*perturbed_consts, *perturbed_carries, *perturbed_xs)
        step = _backward_step(loop, self.ivjp_of_body(prim.body, loop.known_ins, loop.known_outs, perturbed), perturbed)
        n_carry_cts = sum(perturbed_carries)
        results = ctx(
            prim.with_steps(step, backward=True),
            *known_atoms(prim.split_count(args)[0]),
            *loop.constants(args),
            *loop.state(ctx, args, outs),
            *cts[:n_carry_cts],
            *[Zero(a).instantiate() for a in select_by_flags(of_consts, perturbed_consts)],
            *loop.slices(ctx, args, outs),
            *cts[n_carry_cts:],
        )
        return _results_of_loop(loop, ivjp_eqn, perturbed, results)


def _results_of(eqn: Eqn, known_ins: Flags, results: Sequence[Atom]) -> IvjpResults:
    """Return the results of the ivjp of an equation: first its unknown operands, then cotangents."""
    reconstructed = [a for a, k in zip(eqn.ins, known_ins, strict=True) if not k]
    return IvjpResults(dict(zip(reconstructed, results, strict=False)), results[len(reconstructed) :])


def _results_of_loop(
    loop: BackwardLoop, ivjp_eqn: IvjpEqn, perturbed_in_step: Flags, results: Sequence[Atom]
) -> IvjpResults:
    """Return the results of a backward loop: carries, their cotangents, sums of cotangents, and stacked slices and
    their cotangents. `perturbed_in_step` marks the operands of the body that have cotangents."""
    prim, split = loop.prim, loop.prim.steps.split
    perturbed_consts, perturbed_carries, perturbed_xs = split(perturbed_in_step)
    unknown_consts, unknown_carries, unknown_xs = split([not k for k in loop.known_ins])
    remaining = iter(results)
    carries, ct_carries = _take(remaining, unknown_carries), _take(remaining, perturbed_carries)
    ct_consts = _take(remaining, perturbed_consts)
    xs, ct_xs = _take(remaining, unknown_xs), _take(remaining, perturbed_xs)
    values = [*[None] * len(unknown_consts), *carries, *xs]
    _, operands = prim.split_count(ivjp_eqn.eqn.ins)
    _, known_ins = prim.split_count(ivjp_eqn.known_ins)
    _, perturbed = prim.split_count(ivjp_eqn.perturbed)
    by_operand = zip(operands, known_ins, values, strict=True)
    cts = select_by_flags([*ct_consts, *ct_carries, *ct_xs], perturbed)
    return IvjpResults(
        {a: value for a, is_known, value in by_operand if value is not None and not is_known},
        [ct for ct in cts if ct is not None],
    )


def _backward_step(loop: BackwardLoop, ivjp_of_body: Jaxpr, perturbed: Flags) -> Steps:
    """Return one step of a backward loop: it reconstructs the operands of the body, and propagates cotangents to those
    marked in `perturbed`."""
    prim, split = loop.prim, loop.prim.steps.split
    of_consts, of_carry, _ = split(prim.body.in_avals)
    perturbed_consts, perturbed_carries, _ = split(perturbed)
    n_carry_cts = sum(perturbed_carries)
    b = Builder()
    step = loop.inputs(
        b, [*select_by_flags(of_carry, perturbed_carries), *select_by_flags(of_consts, perturbed_consts)]
    )
    carry_cts, sums = step.extra[:n_carry_cts], step.extra[n_carry_cts:]
    row_cts = b.inputs([a for a in prim.body.out_avals[prim.n_carry :] if a.inexact])
    results = iter(b.inline(ivjp_of_body, (*step.operands, *carry_cts, *row_cts)))
    consts, carries, xs = split(_take(results, [not k for k in loop.known_ins]))
    assert not any(consts), "a loop does not reconstruct constants"
    ct_consts, ct_carries, ct_xs = split(_take(results, perturbed))
    new_sums = [_plus(b, total, ct) for total, ct in zip(sums, [ct for ct in ct_consts if ct], strict=True)]
    new_carries = [*[a for a in carries if a], *[ct for ct in ct_carries if ct], *new_sums]
    stacked = [*[a for a in xs if a], *[ct for ct in ct_xs if ct]]
    return Steps(b.build([*new_carries, *stacked], ivjp_of_body.name), step.n_consts, len(new_carries))


def _take(values: Iterator[Atom], flags: Sequence[bool]) -> list[Atom | None]:
    """Take the next values, for the marked positions; None at the others."""
    return [next(values) if m else None for m in flags]


def _plus(b: Builder, total: Atom, ct: Atom) -> Atom:
    return total if is_zero(ct) else b.one(ADD, total, ct)
