"""Derivatives of the steps of `scan` and `while`: forward mode, linearization and transposition.

A loop is `Steps`: a body (constants, carry, slices) -> (carry, stacked results). Its derivatives are loops too, and
functions here return their bodies. A tangent of the carry that is zero in the first step can be nonzero later; so can a
cotangent. A fixpoint over the body finds those that are zero in all steps: the body is differentiated, the carries that
it returns with a nonzero tangent are marked as operands with one, and this is repeated until no mark is added.

1. `fuse_tangents`: forward mode. One loop computes results and tangents.
2. `linearize_steps`: two loops. The primal loop computes the results and stacks residuals. The linear loop has the
   tangents as carry and runs over the residuals. A residual is not stacked if the linear loop can read it elsewhere:
   a loop invariant (a constant of the linear loop), a counter (an `iota` outside), or a slice of an operand or result.
3. `transpose_steps`: the linear loop, transposed. It runs in the opposite direction. Its carry is the cotangents of
   the carry, and the sums of the cotangents of the constants, which every step reads. It runs over the cotangents of
   the stacked results, and over the residuals.
4. `split_known_carries`: before 3, the carries that depend on nothing linear go to a loop of their own, which stacks
   their values before each step.

In the example, each step is `sin(w * c)` under `remat`. The linear loop takes the tangent of `w` and `w` as constants,
the tangent of `c` as carry, and the stacked carries `c` as slices. It recomputes `w * c`. The transposed loop runs in
reverse; its carry is the sum of the cotangents of `w`, then the cotangent of `c`.

>>> import fxad as fx, fxad.numpy as fnp
>>> from fxad.transforms import linearize, transpose
>>> def step(w, c):
...     return fnp.sin(w * c * 2.5)
>>> def loop(w, c):
...     return fx.lax.scan(lambda c, _: (fx.remat(step)(w, c), None), c, None, length=4)[0]
>>> x = fx.Spec((3,), "float32")
>>> halves = linearize(fx.trace(loop, x, x).jaxpr, (True, True))
>>> print(halves.linear)  # doctest: +NORMALIZE_WHITESPACE
fn @again_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[3]) -> (f32[3]) {
  %0: f32[3] = mul %arg2, %arg3
  %1: f32[3] = mul %0, 2.5:f32[3]
  %2: f32[3] = cos %1
  %3: f32[3] = mul %arg0, %arg3
  %4: f32[3] = mul %arg1, %arg2
  %5: f32[3] = add %3, %4
  %6: f32[3] = mul %5, 2.5:f32[3]
  %7: f32[3] = mul %6, %2
  return %7
}
<BLANKLINE>
fn @linear_remat_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[3]) -> (f32[3]) {
  %0: f32[3] = remat[body=@again_step, opaque=false] %arg0, %arg2, %arg1, %arg3
  return %0
}
<BLANKLINE>
main @linear_loop(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[4,3]) -> (f32[3]) {
  %0: f32[3] = scan[body=@linear_remat_step, length=4, reverse=false, unroll=1,
                       n_consts=2, n_carry=1, upto=false] %arg0, %arg2, %arg1, %arg3
  return %0
}
<BLANKLINE>
>>> print(transpose(halves.linear, (True, True, False, False)))  # doctest: +NORMALIZE_WHITESPACE
fn @transpose_again_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3]) -> (f32[3], f32[3]) {
  %0: f32[3] = mul %arg1, %arg2
  %1: f32[3] = mul %0, 2.5:f32[3]
  %2: f32[3] = cos %1
  %3: f32[3] = mul %arg0, %2
  %4: f32[3] = mul %3, 2.5:f32[3]
  %5: f32[3] = mul %4, %arg1
  %6: f32[3] = mul %4, %arg2
  return %6, %5
}
<BLANKLINE>
fn @transpose_linear_remat_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[3]) -> (f32[3], f32[3]) {
  %0: f32[3], %1: f32[3] = remat[body=@transpose_again_step, opaque=false] %arg2, %arg0, %arg3
  %2: f32[3] = add %arg1, %0
  return %2, %1
}
<BLANKLINE>
main @transpose_linear_loop(%arg0: f32[3], %arg1: f32[3], %arg2: f32[4,3]) -> (f32[3], f32[3]) {
  %0: f32[3], %1: f32[3] = scan[body=@transpose_linear_remat_step, length=4, reverse=true, unroll=1,
                                  n_consts=1, n_carry=2, upto=false] %arg1, 0.0:f32[3], %arg0, %arg2
  return %0, %1
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from fxad.core.builder import Builder, rebind_operands, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dependent_values, live_eqns, read_operands, remove_dead_eqns
from fxad.core.masks import select_by_mask, split_by_mask
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Emit, Jaxpr, LinearizedBody, Lit, Mask, Var
from fxad.primitives.control.bodies import instantiate_linear_outs, instantiate_outs, with_outs
from fxad.primitives.control.loop_steps import (
    LoopInvariants,
    Steps,
    carry_fixpoint,
    counters,
    drop_cheap_residuals,
    loop_invariants,
)
from fxad.primitives.control.remat import is_opaque, without_opaque
from fxad.primitives.elementwise.arithmetic import ADD, MUL, SUB
from fxad.primitives.linearity import is_linear, is_zero
from fxad.primitives.shape import Iota, emit_broadcast

# ------------------------------------------------------------------------------------------------------ forward mode


@final
@dataclass(frozen=True, slots=True)
class FusedSteps:
    """Steps that compute tangents together with results. Each group of operands, the carry and the stacked results are
    followed by their tangents. `ins` and `outs` mark the values with a tangent; both hold the fixpoint for the
    carry."""

    steps: Steps
    ins: Mask
    outs: Mask


def fuse_tangents(steps: Steps, recur: Callable[[Jaxpr, Mask], tuple[Jaxpr, Mask]], nonzero: Mask) -> FusedSteps:
    """Return the forward mode of the steps, for tangents of the marked operands."""
    consts, first_carry, xs = steps.split(nonzero)
    body, out_nonzero, carry = carry_fixpoint(first_carry, lambda marks: recur(steps.body, (*consts, *marks, *xs)))
    ins, outs = (*consts, *carry, *xs), (*carry, *out_nonzero[steps.n_carry :])
    n, n_out, at = len(ins), len(outs), sum(carry)
    tangent_of = dict(zip([k for k, m in enumerate(ins) if m], range(n, len(body.ins)), strict=True))
    order = [k for group in steps.split(range(n)) for k in (*group, *[tangent_of[j] for j in group if ins[j]])]
    primal = body.outs[:n_out]
    dots = instantiate_outs(body.outs[n_out:], out_nonzero, steps.body.out_avals, outs)
    results = (*primal[: steps.n_carry], *dots[:at], *primal[steps.n_carry :], *dots[at:])
    fused = Steps(rebind_operands(body, order, outs=results), steps.n_consts + sum(consts), steps.n_carry + at)
    return FusedSteps(fused, ins, outs)


# ---------------------------------------------------------------------------------------------------- linearization


@final
@dataclass(frozen=True, slots=True)
class LinearizedSteps:
    """The primal and the linear half of the steps. Each residual is stored once.

    `primal` takes `hoisted` as further constants, and stacks residuals as further results. `linear` takes

    - as constants: the tangents of the constants, then `invariant`, the residuals that are loop invariants;
    - as carry: the tangents of the carry;
    - as slices: the tangents of the slices, then `arrays[k] for k in residual_slices`. Here `arrays` is
      `(*xs, *counter_values, *ys)`: the arrays that `primal` runs over, the values of counters, and the arrays that
      `primal` stacks.

    `ins` and `outs` mark the values with a tangent, as in `FusedSteps`.
    """

    primal: Steps
    hoisted: tuple[Atom, ...]
    linear: Steps
    invariant: tuple[Atom, ...]
    counter_values: tuple[Atom, ...]
    residual_slices: tuple[int, ...]
    ins: Mask
    outs: Mask


@final
@dataclass(frozen=True, slots=True)
class LoopContext:
    """The context of a loop: a way to emit equations outside it, its operands, length and direction. `is_loop`: both
    halves become loops, so the compiled code keeps them separate. `upto`: the number of steps is known only at run
    time."""

    emit: Emit
    operands: tuple[Atom, ...]
    length: int
    reverse: bool
    is_loop: bool
    upto: bool = False


def linearize_steps(
    outside: LoopContext, steps: Steps, recur: Callable[[Jaxpr, Mask], LinearizedBody], nonzero: Mask
) -> LinearizedSteps:
    """Linearize steps with respect to the marked operands.

    Let a step take a constant w, the carries i and c, and a slice x. It returns the carries i + 2 and
    `sin(w) * y * sin(c) * i`, and the result y = exp(c * x) to stack. The linear half reads its residuals here:

        sin(w)           a constant, computed once outside of the loop
        i                a slice of an array computed outside of the loop, iota * 2 + the initial i
        x, y             a slice of the operand of the loop, of its result
        sin(c), cos(c)   a slice of a further result, which the primal half stacks
    """
    consts, first_carry, xs = steps.split(nonzero)

    def linearized(marks: Mask) -> tuple[LinearizedBody, Mask]:
        split = recur(steps.body, (*consts, *marks, *xs))
        return split, split.out_nonzero

    split, out_nonzero, carry = carry_fixpoint(first_carry, linearized)
    ins, outs = (*consts, *carry, *xs), (*carry, *out_nonzero[steps.n_carry :])
    n_out, n_dots = len(outs), sum(ins)
    results = split.primal.outs[:n_out]
    primal_steps = Steps(with_outs(split.primal, results), steps.n_consts, steps.n_carry)
    slices, ys = primal_steps.split(primal_steps.body.ins)[2], results[steps.n_carry :]
    invariants = loop_invariants(primal_steps)
    # with `upto` and `reverse` the first step is not known, so the start of a counter is not known
    increments = {} if outside.upto and outside.reverse else counters(primal_steps)
    free = {a for a in (*invariants.values, *increments, *slices, *ys) if isinstance(a, Var)}
    split = drop_cheap_residuals(split, n_out, free)
    residuals = split.primal.outs[n_out:]

    hoisted = _hoist(outside, primal_steps, invariants, residuals)
    counters_read = [v for v in increments if v in residuals]
    not_stacked = {*hoisted, *slices, *counters_read, *ys}
    stacked = [r for r in residuals if r not in not_stacked]
    array_numbers: dict[Atom, int] = {}
    for k, a in enumerate((*slices, *counters_read, *ys, *stacked)):
        array_numbers.setdefault(a, k)
    literals: dict[int | Atom, Lit] = {r: a for r, a in hoisted.items() if isinstance(a, Lit)}
    invariant = [r for r in residuals if r in hoisted and r not in literals]
    varying = [r for r in residuals if r not in hoisted]
    primal, hoisted_operands = _without_hoisted(primal_steps, hoisted, (*results, *stacked))
    of_consts, of_carry, of_xs = Steps(primal_steps.body, sum(consts), sum(carry)).split(range(n_dots))
    # the operands of the linear half: a number for a tangent, the value itself for a residual
    takes: list[int | Atom] = [*range(n_dots), *residuals]
    wants = [*of_consts, *invariant, *of_carry, *of_xs, *varying]
    linear = rebind_operands(instantiate_linear_outs(split, outs), wants, has=takes, literals=literals)
    if outside.is_loop and not is_opaque(primal.body):
        linear = without_opaque(linear)
    return LinearizedSteps(
        primal,
        hoisted_operands,
        Steps(linear, sum(consts) + len(invariant), sum(carry)),
        tuple([hoisted[r] for r in invariant]),
        tuple([_counter_values(outside, primal_steps, v, increments[v]) for v in counters_read]),
        tuple([array_numbers[r] for r in varying]),
        ins,
        outs,
    )


def _hoist(outside: LoopContext, steps: Steps, invariants: LoopInvariants, wanted: Sequence[Atom]) -> dict[Atom, Atom]:
    """Compute the loop-invariant values among `wanted` outside the loop, with the values that they need.

    Returns a map from variables of the body to the values computed outside.
    """
    hoisted: dict[Atom, Atom] = {
        v: a for v, a in zip(steps.body.ins, outside.operands, strict=True) if v in invariants.values
    }
    _, _, slices = steps.split(steps.body.ins)
    for v, a in zip(slices, steps.split(outside.operands)[2], strict=True):
        if isinstance(a, Lit):  # a slice of a literal
            hoisted[v] = a.with_shape(v.aval.shape)
    for eqn in live_eqns(invariants.eqns, wanted, effects=False):
        hoisted.update(zip(eqn.outs, outside.emit(eqn.prim, *[hoisted.get(a, a) for a in eqn.ins]), strict=True))
    return hoisted


def _counter_values(outside: LoopContext, steps: Steps, v: Var, step: Lit) -> Atom:
    """Return the value of a counter before each step, stacked."""
    emit, index = outside.emit, v.aval.with_shape((outside.length,))
    count: Atom = emit.one(Iota(index.shape, index.dtype, 0))
    if outside.reverse:
        count = emit.one(SUB, Lit.of(outside.length - 1, index), count)
    count = emit.one(MUL, count, step.with_shape(index.shape))
    first = outside.operands[steps.body.ins.index(v)]
    return emit.one(ADD, emit_broadcast(emit, first, index.shape, ()), count)


def _without_hoisted(steps: Steps, hoisted: dict[Atom, Atom], outs: Atoms) -> tuple[Steps, Atoms]:
    """Return the steps with other results and without the equations whose results are in `hoisted`, and the values of
    the further constants: the hoisted values that the remaining equations read."""
    body = steps.body
    rest = [e for e in body.eqns if hoisted.keys().isdisjoint(e.outs)]
    if len(rest) == len(body.eqns):
        return Steps(with_outs(body, outs), steps.n_consts, steps.n_carry), ()
    read = {*outs, *[a for e in rest for a in e.ins]}
    further = [v for e in body.eqns if not hoisted.keys().isdisjoint(e.outs) for v in e.outs if v in read]
    consts, carry, xs = steps.split(body.ins)
    b = Builder()
    env: dict[Atom, Atom] = {v: b.input(v.aval) for v in (*consts, *further, *carry, *xs)}
    b.extend(rest, env)
    rest_body = b.build(substitute(outs, env), body.name)
    return Steps(rest_body, steps.n_consts + len(further), steps.n_carry), tuple([hoisted[v] for v in further])


# ------------------------------------------------------------------------------------------------------ transposition


@by_value
def is_linear_body(body: Jaxpr, n_consts: int, n_carry: int, mask: Mask) -> bool:
    """Return True if the carries and stacked results of the steps are linear in the marked operands.

    Carries that are not marked (known carries) must not depend on marked operands, and must have an integer or bool
    type. The same holds for stacked results that are not linear. These have no cotangent.
    """
    dependent = dependent_values(body.eqns, select_by_mask(body.ins, mask))
    has_cotangent = [a in dependent or a.aval.inexact for a in body.outs]
    carry = mask[n_consts : n_consts + n_carry]
    _, of_known_carries = split_by_mask(has_cotangent[:n_carry], carry)
    linear_outs = select_by_mask(body.outs, (*carry, *has_cotangent[n_carry:]))
    return not any(of_known_carries) and is_linear(with_outs(body, linear_outs), mask)


@final
@dataclass(frozen=True, slots=True)
class SplitKnownCarries:
    """The steps of a scan, split by the carries that depend on nothing linear (the known ones).

    `known` computes only these carries, from the operands numbered `known_operands`, and stacks their values before
    each step. `linear` takes the operands numbered `linear_operands`, then those stacks as further slices.
    """

    known: Steps
    known_operands: tuple[int, ...]
    linear: Steps
    linear_operands: tuple[int, ...]


def split_known_carries(steps: Steps, mask: Mask) -> SplitKnownCarries:
    """Compute the carries that are not marked in a scan of their own. All carries of the remaining steps are linear.

    The step (w, i, c) -> (i + 1, w[i] * c), linear in c, becomes `known`: i -> (i + 1, i), which stacks i, and
    `linear`: (w, c, i) -> w[i] * c, which runs over the stack.
    """
    body, n_consts = steps.body, steps.n_consts
    consts, carry, xs = steps.split(range(len(body.ins)))
    known_carry, linear_carry = [k for k in carry if not mask[k]], [k for k in carry if mask[k]]
    next_values, values = [body.outs[k - n_consts] for k in known_carry], [body.ins[k] for k in known_carry]
    known_body = remove_dead_eqns(with_outs(body, [*next_values, *values]))
    needed = read_operands(known_body)
    known_consts, known_xs = [k for k in consts if needed[k]], [k for k in xs if needed[k]]
    known_operands = (*known_consts, *known_carry, *known_xs)
    known = Steps(rebind_operands(known_body, known_operands), len(known_consts), len(known_carry))
    results = (*[body.outs[k - n_consts] for k in linear_carry], *body.outs[steps.n_carry :])
    linear_operands = (*consts, *linear_carry, *xs)
    linear = Steps(rebind_operands(body, (*linear_operands, *known_carry), outs=results), n_consts, len(linear_carry))
    return SplitKnownCarries(known, known_operands, linear, linear_operands)


@final
@dataclass(frozen=True, slots=True)
class TransposedSteps:
    """The steps of a transposed scan. Constants: the known ones. Carry: sums of the cotangents of linear constants,
    then cotangents of the carry. Slices: cotangents of stacked results, then the known slices. Results: this carry, and
    the cotangents of linear slices. The masks mark the values of each group that are not zero."""

    steps: Steps
    consts: Mask
    carry: Mask
    xs: Mask


def transpose_steps(
    steps: Steps, recur: Callable[[Jaxpr, Mask], Jaxpr], mask: Mask, first_carry: Mask, ys: Mask
) -> TransposedSteps:
    """Transpose steps that are linear in the operands marked in `mask`, which include all carries. `first_carry` and
    `ys` mark the results of the loop whose cotangent is not zero."""
    body, n_carry = steps.body, steps.n_carry
    of_consts = steps.split(mask)[0]
    at = sum(of_consts)

    def transposed(carry: Mask) -> tuple[Jaxpr, Mask]:
        back = recur(with_outs(body, select_by_mask(body.outs, (*carry, *ys))), mask)
        return back, tuple([not is_zero(a) for a in back.outs[at:]])

    back, of_carry_and_xs, carry = carry_fixpoint(first_carry, transposed)
    consts, xs = tuple([not is_zero(a) for a in back.outs[:at]]), of_carry_and_xs[n_carry:]
    b = Builder()
    n_cts, n_known = sum(carry) + sum(ys), of_consts.count(False)
    groups = back.in_avals[: sum(carry)], back.in_avals[sum(carry) : n_cts], back.in_avals[n_cts:]
    known = b.inputs(groups[2][:n_known])
    sums = b.inputs(select_by_mask(back.out_avals[:at], consts))
    cts = b.inputs(groups[0])
    rows = b.inputs(groups[1])
    slices = b.inputs(groups[2][n_known:])
    bars = b.inline(back, [*cts, *rows, *known, *slices])
    added = [b.one(ADD, s, d) for s, d in zip(sums, select_by_mask(bars[:at], consts), strict=True)]
    step = b.build(
        (*added, *select_by_mask(bars[at : at + n_carry], carry), *select_by_mask(bars[at + n_carry :], xs)), back.name
    )
    return TransposedSteps(Steps(step, n_known, len(sums) + len(cts)), consts, carry, xs)
