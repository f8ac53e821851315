"""What differentiation does to the steps of a scan: pure functions from steps to steps, which the scan puts to use.

A tangent of the carry that is zero at first may not stay so, and neither may a cotangent: which of them vanish in all
steps is a fixpoint over the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from fxad.core.builder import Builder, renamed
from fxad.core.dataclasses import dataclass
from fxad.core.liveness import narrow, sweep
from fxad.core.memo import by_value
from fxad.ir import Atom, Emit, Jaxpr, LinearizedBody, Lit, Var
from fxad.primitives.control.bodies import filled_linear, filled_outs, select_by_mask, with_outs
from fxad.primitives.control.remat import in_the_open, is_opaque
from fxad.primitives.control.scan_parts import Marks, Steps, rearranged, where
from fxad.primitives.control.scan_residuals import Unchanging, counters, thrifty, unchanging
from fxad.primitives.elementwise import ADD, MUL, SUB
from fxad.primitives.linearity import is_linear, is_zero
from fxad.primitives.shape import Iota, spread


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
    computed outside and is a constant; a counter is computed outside; a slice of an operand or of a result is that
    operand or result; only what is left is stacked.

    `primal` takes `hoisted` as further constants, and stacks further results. `linear`: tangents of constants and
    `invariant`, tangents of the carry, tangents of slices and what `stacked` names, by place among the arrays that
    `primal` runs over, then `counts`, then the arrays it stacks. `ins` and `outs` mark what has a tangent, as in
    `Fused`.
    """

    primal: Steps
    hoisted: tuple[Atom, ...]
    linear: Steps
    invariant: tuple[Atom, ...]
    counts: tuple[Atom, ...]
    stacked: tuple[int, ...]
    ins: Marks
    outs: Marks


@final
@dataclass(frozen=True, slots=True)
class Outside:
    """Where a loop stands: how to compute something outside it, its operands, length and direction. `loops`: its halves
    will be loops, and so apart from each other in compiled code. `upto`: only as many steps as the program says when it
    runs."""

    emit: Emit
    operands: tuple[Atom, ...]
    length: int
    reverse: bool
    loops: bool
    upto: bool = False


def halves(outside: Outside, steps: Steps, recur: Callable[[Jaxpr, Marks], LinearizedBody], nonzero: Marks) -> Halves:
    """Split steps in two, with respect to the operands marked."""
    consts, carry, xs = steps.split(nonzero)
    while True:
        split = recur(steps.body, (*consts, *carry, *xs))
        wider = _either(carry, split.out_nonzero)
        if wider == carry:
            break
        carry = wider
    ins, outs = (*consts, *carry, *xs), (*carry, *split.out_nonzero[steps.n_carry :])
    n_out, n_dots = len(outs), sum(ins)
    results = split.primal.outs[:n_out]
    whole = Steps(with_outs(split.primal, results), steps.n_consts, steps.n_carry)
    runs, ys = whole.split(whole.body.ins)[2], results[steps.n_carry :]
    same = unchanging(whole)
    # backward from a step that is not known, a counter starts where nobody knows
    counting = {} if outside.upto and outside.reverse else counters(whole)
    split = thrifty(split, n_out, {a for a in (*same.values, *counting, *runs, *ys) if isinstance(a, Var)})
    residuals = split.primal.outs[n_out:]

    known = _outside(outside, whole, same, residuals)
    counts = [v for v in counting if v in residuals]
    there = {*known, *runs, *counts, *ys}
    extra = [r for r in residuals if r not in there]
    place: dict[Atom, int] = {}
    for k, a in enumerate((*runs, *counts, *ys, *extra)):
        place.setdefault(a, k)
    constant = {k: known[r] for k, r in enumerate(residuals, n_dots) if r in known}
    fixed = {k: a for k, a in constant.items() if isinstance(a, Lit)}
    varying = {k: place[r] for k, r in enumerate(residuals, n_dots) if r not in known}
    invariant = [k for k in constant if k not in fixed]
    primal, hoisted = _without(whole, known, (*results, *extra))
    of_consts, of_carry, of_xs = Steps(whole.body, sum(consts), sum(carry)).split(range(n_dots))
    order = (*of_consts, *invariant, *of_carry, *of_xs, *varying)
    linear = rearranged(split.linear, order, filled_linear(split, outs).outs, fixed)
    if outside.loops and not is_opaque(primal.body):
        linear = in_the_open(linear)
    return Halves(
        primal,
        hoisted,
        Steps(linear, sum(consts) + len(invariant), sum(carry)),
        tuple([constant[k] for k in invariant]),
        tuple([_count(outside, whole, v, counting[v]) for v in counts]),
        tuple(varying.values()),
        ins,
        outs,
    )


def _outside(outside: Outside, steps: Steps, same: Unchanging, wanted: Sequence[Atom]) -> dict[Atom, Atom]:
    """Compute outside those of the `wanted` values that are the same in all steps, and what they need.

    Returns what is known outside by now: for a variable of the body, the value outside."""
    known: dict[Atom, Atom] = {v: a for v, a in zip(steps.body.ins, outside.operands, strict=True) if v in same.values}
    _, _, runs = steps.split(steps.body.ins)
    for v, a in zip(runs, steps.split(outside.operands)[2], strict=True):
        if isinstance(a, Lit):  # a slice of a literal
            known[v] = a.with_aval(v.aval.shape)
    needed = set(wanted)
    eqns = []
    for eqn in reversed(same.eqns):
        if not needed.isdisjoint(eqn.outs):
            needed.update(eqn.ins)
            eqns.append(eqn)
    for eqn in reversed(eqns):
        known.update(zip(eqn.outs, outside.emit(eqn.prim, *[known.get(a, a) for a in eqn.ins]), strict=True))
    return known


def _count(outside: Outside, steps: Steps, v: Var, step: Lit) -> Atom:
    """What a counter is before each step, stacked."""
    emit, index = outside.emit, v.aval.with_shape((outside.length,))
    count: Atom = emit.one(Iota(index.shape, index.dtype, 0))
    if outside.reverse:
        count = emit.one(SUB, Lit.of(outside.length - 1, index), count)
    count = emit.one(MUL, count, step.with_aval(index.shape))
    first = outside.operands[steps.body.ins.index(v)]
    return emit.one(ADD, spread(emit, first, index.shape, ()), count)


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
    b.extend(rest, env)
    made = b.build(renamed(outs, env), body.name)
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
    found: set[Atom] = set(select_by_mask(body.ins, mask))
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
    added = [b.one(ADD, s, d) for s, d in zip(sums, select_by_mask(bars[:at], consts), strict=True)]
    made = b.build(
        (*added, *select_by_mask(bars[at : at + n_carry], carry), *select_by_mask(bars[at + n_carry :], xs)), back.name
    )
    return Adjoint(Steps(made, n_known, len(sums) + len(cts)), consts, carry, xs)
