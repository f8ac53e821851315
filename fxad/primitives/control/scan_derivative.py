"""What differentiation does to the steps of a scan: pure functions from steps to steps, which the scan puts to use.

A tangent of the carry that is zero at first may not stay so, and neither may a cotangent: which of them vanish in all
steps is a fixpoint over the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from fxad.builder import Builder
from fxad.ir import Atom, Emit, Jaxpr, LinearizedBody, Lit
from fxad.liveness import narrow, sweep
from fxad.memo import by_value
from fxad.primitives.control.bodies import filled_linear, filled_outs, with_outs
from fxad.primitives.control.scan_parts import Marks, Steps, marked, passing, rearranged, where
from fxad.primitives.elementwise import ADD
from fxad.primitives.linearity import is_linear, is_zero


def _either(a: Marks, b: Marks) -> Marks:
    """What is marked in one of them, as far as the first goes."""
    return tuple([x or y for x, y in zip(a, b, strict=False)])


# ------------------------------------------------------------------------------------------------------ forward mode


@final
@dataclass(frozen=True, slots=True)
class Fused:
    """Steps that compute tangents beside results: each group of operands, and the carry and the stacked results, is
    followed by its tangents. `ins` and `outs` mark what has one, the carry in both as at the fixpoint."""

    steps: Steps
    ins: Marks
    outs: Marks


def fused(steps: Steps, recur: Callable[[Jaxpr, Marks], tuple[Jaxpr, Marks]], nonzero: Marks) -> Fused:
    """Forward mode of steps, for tangents of the operands marked."""
    consts, carry, xs = steps.split(nonzero)
    while True:
        body, out_nonzero = recur(steps.body, (*consts, *carry, *xs))
        wider = _either(carry, out_nonzero)
        if wider == carry:
            break
        carry = wider
    ins, outs = (*consts, *carry, *xs), (*carry, *out_nonzero[steps.n_carry :])
    n, n_out, at = len(ins), len(outs), sum(carry)
    dot = dict(zip(where(ins), range(n, len(body.ins)), strict=True))
    order = [k for group in steps.split(range(n)) for k in (*group, *[dot[j] for j in group if ins[j]])]
    primal = body.outs[:n_out]
    dots = filled_outs(body.outs[n_out:], out_nonzero, steps.body.out_avals, outs)
    results = (*primal[: steps.n_carry], *dots[:at], *primal[steps.n_carry :], *dots[at:])
    made = Steps(rearranged(body, order, results), steps.n_consts + sum(consts), steps.n_carry + at)
    return Fused(made, ins, outs)


# ---------------------------------------------------------------------------------------------------- linearization


@final
@dataclass(frozen=True, slots=True)
class Halves:
    """Steps in two. What the linear half needs of the primal one is kept once: a value that is the same in all steps is
    computed outside and is a constant; a slice of an operand or of a result is that operand or result; only what is
    left is stacked.

    `primal` takes `hoisted` as further constants, and stacks further results. `linear`: tangents of constants and
    `invariant`, tangents of the carry, tangents of slices and what `stacked` names, by place among the arrays that
    `primal` runs over and then those it stacks. `ins` and `outs` mark what has a tangent, as in `Fused`.
    """

    primal: Steps
    hoisted: tuple[Atom, ...]
    linear: Steps
    invariant: tuple[Atom, ...]
    stacked: tuple[int, ...]
    ins: Marks
    outs: Marks


def halves(
    emit: Emit, steps: Steps, recur: Callable[[Jaxpr, Marks], LinearizedBody], nonzero: Marks, operands: Sequence[Atom]
) -> Halves:
    """Split steps in two. `emit` gets what is the same in all steps, over the `operands` of the scan."""
    consts, carry, xs = steps.split(nonzero)
    while True:
        split = recur(steps.body, (*consts, *carry, *xs))
        wider = _either(carry, split.out_nonzero)
        if wider == carry:
            break
        carry = wider
    ins, outs = (*consts, *carry, *xs), (*carry, *split.out_nonzero[steps.n_carry :])
    n_out, n_dots = len(outs), sum(ins)
    results, residuals = split.primal.outs[:n_out], split.primal.outs[n_out:]
    body = with_outs(split.primal, results)
    whole = Steps(body, steps.n_consts, steps.n_carry)
    known = _hoist(emit, whole, residuals, operands)

    runs = body.ins[steps.n_consts + steps.n_carry :]
    place: dict[Atom, int] = {a: len(runs) + k for k, a in enumerate(results[steps.n_carry :])}
    place.update({v: k for k, v in enumerate(runs)})
    extra: list[Atom] = []
    constant, varying, fixed = [], [], {}
    for k, r in enumerate(residuals, n_dots):
        outer = known.get(r)
        if outer is None and r not in place:
            place[r] = len(runs) + n_out - steps.n_carry + len(extra)
            extra.append(r)
        if outer is None and place[r] < len(runs):
            x = operands[steps.n_consts + steps.n_carry + place[r]]
            outer = x.with_aval(r.aval.shape) if isinstance(x, Lit) else None
        if isinstance(outer, Lit):
            fixed[k] = outer
        elif outer is not None:
            constant.append((k, outer))
        else:
            varying.append((k, place[r]))
    primal, hoisted = _without(whole, known, (*results, *extra))
    of_consts, of_carry, of_xs = Steps(body, sum(consts), sum(carry)).split(range(n_dots))
    order = (*of_consts, *[k for k, _ in constant], *of_carry, *of_xs, *[k for k, _ in varying])
    linear = rearranged(split.linear, order, filled_linear(split, outs).outs, fixed)
    return Halves(
        primal,
        hoisted,
        Steps(linear, sum(consts) + len(constant), sum(carry)),
        tuple([a for _, a in constant]),
        tuple([k for _, k in varying]),
        ins,
        outs,
    )


def _hoist(emit: Emit, steps: Steps, wanted: Sequence[Atom], operands: Sequence[Atom]) -> dict[Atom, Atom]:
    """Compute outside those of the `wanted` values of the body that are the same in all steps, and what they need.

    Returns what is known outside by now: for a variable of the body, the value outside."""
    body = steps.body
    still = (*[True] * steps.n_consts, *passing(steps))
    known: dict[Atom, Atom] = {v: a for v, a, s in zip(body.ins, operands, still, strict=False) if s}
    same: set[Atom] = set(known)
    candidates = []
    for eqn in body.eqns:
        if not eqn.prim.effects and all([isinstance(a, Lit) or a in same for a in eqn.ins]):
            same.update(eqn.outs)
            candidates.append(eqn)
    needed = set(wanted)
    hoisted = []
    for eqn in reversed(candidates):
        if not needed.isdisjoint(eqn.outs):
            needed.update(eqn.ins)
            hoisted.append(eqn)
    for eqn in reversed(hoisted):
        known.update(zip(eqn.outs, emit(eqn.prim, *[known.get(a, a) for a in eqn.ins]), strict=True))
    return known


def _without(steps: Steps, known: dict[Atom, Atom], outs: tuple[Atom, ...]) -> tuple[Steps, tuple[Atom, ...]]:
    """The steps with other results, and without the equations whose results are known outside: what the rest reads of
    them are further constants. Returns the steps and the values of those."""
    body = steps.body
    rest = [e for e in body.eqns if known.keys().isdisjoint(e.outs)]
    if len(rest) == len(body.eqns):
        return Steps(with_outs(body, outs), steps.n_consts, steps.n_carry), ()
    read = {*outs, *[a for e in rest for a in e.ins]}
    further = [v for e in body.eqns if not known.keys().isdisjoint(e.outs) for v in e.outs if v in read]
    consts, carry, xs = steps.split(body.ins)
    b = Builder()
    env: dict[Atom, Atom] = {v: b.input(v.aval) for v in (*consts, *further, *carry, *xs)}
    for eqn in rest:
        env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    made = b.build([env.get(a, a) for a in outs], body.name)
    return Steps(made, steps.n_consts + len(further), steps.n_carry), tuple([known[v] for v in further])


# ------------------------------------------------------------------------------------------------------ transposition


@by_value
def linear_body(body: Jaxpr, n_consts: int, n_carry: int, mask: Marks) -> bool:
    """Whether the steps are linear in the marked operands: their carries and what they stack are.

    Carries that are not marked (counters) may not depend on marked operands, and must be of integer or bool type, as
    must stacked results that are not linear: such have no cotangent.
    """
    reached = _reached(body, mask)
    carry = mask[n_consts : n_consts + n_carry]
    for k, (a, r) in enumerate(zip(body.outs, reached, strict=True)):
        if k < n_carry and not carry[k] and (r or a.aval.inexact):
            return False
    linear = [
        a
        for k, (a, r) in enumerate(zip(body.outs, reached, strict=True))
        if (carry[k] if k < n_carry else r or a.aval.inexact)
    ]
    return is_linear(with_outs(body, linear), mask)


def _reached(body: Jaxpr, mask: Marks) -> Marks:
    """Which results depend on the marked operands."""
    found: set[Atom] = set(marked(body.ins, mask))
    for eqn in body.eqns:
        if not found.isdisjoint(eqn.ins):
            found.update(eqn.outs)
    return tuple([a in found for a in body.outs])


@final
@dataclass(frozen=True, slots=True)
class Counted:
    """Steps with carries that depend on nothing linear, in two. `known` computes those alone, from the operands at
    `ins`, and stacks what they are before each step. `linear` takes the operands at `places`, and then those stacks as
    further slices."""

    known: Steps
    ins: tuple[int, ...]
    linear: Steps
    places: tuple[int, ...]


def counted(steps: Steps, mask: Marks) -> Counted:
    """Compute the carries that are not marked first: in the steps left, all carries are linear."""
    body, at = steps.body, steps.n_consts
    consts, carry, xs = steps.split(range(len(body.ins)))
    apart = [k for k in carry if not mask[k]]
    outs = [*[body.outs[k - at] for k in apart], *[body.ins[k] for k in apart]]
    alone = sweep(with_outs(body, outs))
    needed = narrow(alone)[1]
    of_consts, of_xs = [k for k in consts if needed[k]], [k for k in xs if needed[k]]
    ins = (*of_consts, *apart, *of_xs)
    known = Steps(rearranged(alone, ins, alone.outs), len(of_consts), len(apart))
    kept = [k for k in carry if mask[k]]
    results = (*[body.outs[k - at] for k in kept], *body.outs[steps.n_carry :])
    places = (*consts, *kept, *xs)
    return Counted(known, ins, Steps(rearranged(body, (*places, *apart), results), at, len(kept)), places)


@final
@dataclass(frozen=True, slots=True)
class Adjoint:
    """The steps of a transposed scan. Constants: those known. Carry: sums of the cotangents of linear constants, then
    cotangents of the carry. Slices: cotangents of stacked results, then those known. Results: that carry, and the
    cotangents of linear slices. The marks say which of each do not vanish."""

    steps: Steps
    consts: Marks
    carry: Marks
    xs: Marks


def adjoint(steps: Steps, recur: Callable[[Jaxpr, Marks], Jaxpr], mask: Marks, carry: Marks, ys: Marks) -> Adjoint:
    """Transpose steps that are linear in the operands marked in `mask`, all carries among them. `carry` and `ys` mark
    the results whose cotangent does not vanish."""
    body, n_carry = steps.body, steps.n_carry
    of_consts = steps.split(mask)[0]
    at = sum(of_consts)
    while True:
        back = recur(with_outs(body, [a for a, m in zip(body.outs, (*carry, *ys), strict=True) if m]), mask)
        moves = tuple([not is_zero(a) for a in back.outs])
        wider = _either(carry, moves[at : at + n_carry])
        if wider == carry:
            break
        carry = wider
    consts, xs = moves[:at], moves[at + n_carry :]
    b = Builder()
    n_cts, n_known = sum(carry) + sum(ys), of_consts.count(False)
    groups = back.in_avals[: sum(carry)], back.in_avals[sum(carry) : n_cts], back.in_avals[n_cts:]
    known = b.inputs(groups[2][:n_known])
    sums = b.inputs([a.aval for a, m in zip(back.outs[:at], consts, strict=True) if m])
    cts = b.inputs(groups[0])
    rows = b.inputs(groups[1])
    slices = b.inputs(groups[2][n_known:])
    bars = b.inline(back, [*cts, *rows, *known, *slices])
    added = [b.one(ADD, s, d) for s, d in zip(sums, marked(bars[:at], consts), strict=True)]
    made = b.build((*added, *marked(bars[at : at + n_carry], carry), *marked(bars[at + n_carry :], xs)), back.name)
    return Adjoint(Steps(made, n_known, len(sums) + len(cts)), consts, carry, xs)
