"""Splits a program at the values that it keeps for the backward pass, so that a recomputation does not compute them.

A program keeps the values that a policy marked with `keep`, and the results of its effects. The kept values of a body
are kept values of the program. `Body.stores` of a layout says for which bodies an equation can return them.

`remat` uses the split as follows.

1. `split_at_kept(body)` returns two programs. The *storing* one is operands -> (results, kept values). The *resuming*
   one is (operands, kept values) -> results: it computes what lies between the kept values.
2. The forward pass runs the storing program. Its kept values are residuals, beside the operands.
3. The backward pass runs the resuming program instead of the body.

An equation with bodies is split by splitting its bodies (`split_bodies_at_kept`). The kept values of a call are further
results of the storing call and further operands of the resuming one. Branches share slots. The kept values of a loop
are stacked: the resuming loop runs over the stacks, or indexes them if it is a loop without slices.

>>> import fxad as fx, fxad.numpy as fnp
>>> from fxad.core.dce import dce
>>> def f(x):
...     return fnp.sin(fx.checkpoint_name(fnp.exp(x), "e") * 4.5)
>>> (eqn,) = fx.trace(fx.remat(f, policy=fx.policies.names("e")), fx.Spec((), "float32")).jaxpr.eqns
>>> storing, resuming = split_at_kept(eqn.prim.bodies[0])
>>> print(storing)
main @f(%arg0: f32[]) -> (f32[], f32[]) {
  %0: f32[] = exp %arg0
  %1: f32[] = name[label="e"] %0
  %2: f32[] = keep[by="names('e')", also_kept_by=()] %1
  %3: f32[] = mul %2, 4.5:f32[]
  %4: f32[] = sin %3
  return %4, %2
}
<BLANKLINE>
>>> print(dce(resuming))
main @f(%arg0: f32[], %arg1: f32[]) -> (f32[]) {
  %0: f32[] = mul %arg1, 4.5:f32[]
  %1: f32[] = sin %0
  return %1
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, substitute
from fxad.core.layout import Carry, Constant, Group, Layout, Once, OneOf, Role, Sliced, Unknown
from fxad.core.memo import by_value
from fxad.ir import INT32_SCALAR, Atom, Aval, HigherOrder, Jaxpr, Lit, Primitive, Var
from fxad.primitives.control.bodies import (
    assign_slots,
    shared_slots,
    with_operands,
    with_slot_operands,
    with_slot_results,
)
from fxad.primitives.control.call import Call
from fxad.primitives.dynamic_slicing import read_row
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.marks import Keep, Mark, kept_values, unmarked_values

_STACKS = Sliced(0)  # the role of stacked values of any rank


@by_value
def has_kept_values(jaxpr: Jaxpr) -> bool:
    """Return True if the program or one of its bodies keeps a value: a value marked with `keep`, or a result of an
    effect."""
    return bool(jaxpr.effects) or any(
        [
            isinstance(e.prim, Keep)
            or (isinstance(e.prim, HigherOrder) and any([has_kept_values(b) for b in e.prim.bodies]))
            for e in jaxpr.eqns
        ]
    )


@by_value
def split_at_kept(jaxpr: Jaxpr, level: int = 0) -> tuple[Jaxpr, Jaxpr]:
    """Split the program at the values that it keeps.

    The first program is operands -> (results, kept values). The second is (operands, kept values) -> results. Of
    a kept value it reads the operand; the equation that computes the value is copied all the same, and is dead until
    `dce` removes it. Both are the program itself if it keeps nothing.

    | equation | first program | second program | `stored`, for the operands of the second |
    |---|---|---|---|
    | with an effect | a copy | an operand for each result | the results of the copy |
    | the first mark of a kept value | a copy | the operand of the value | the result of the copy, the mark |
    | a further mark of one | a copy | the operand of the value | - |
    | another one | a copy | a copy; an operand for each kept result | none yet: its first mark follows |

    An equation whose bodies keep values is like the last one, with `split_bodies_at_kept` in place of copies.

    `level` is the number of `remat` equations between the program and the `remat` that keeps the values. An effect
    happens once: its results are kept at every level, and the second program has no effects.

    Law:  the second program, applied to the results of the first, gives the same results.
    """
    if not has_kept_values(jaxpr):
        return jaxpr, jaxpr
    storing, resuming = Builder.like(jaxpr), Builder.like(jaxpr)
    storing_env: dict[Atom, Atom] = {}
    resuming_env: dict[Atom, Atom] = {}
    unmarked = unmarked_values(jaxpr.eqns)
    first_marks: dict[Atom, Var] = {  # of the kept values that are not operands
        v: mark for v, mark in kept_values(jaxpr.eqns, level).items() if isinstance(v, Var) and v not in jaxpr.ins
    }
    stored: dict[Atom, Atom] = {}  # for each further operand of `resuming`, the value of `storing` that it takes

    def operands_for(values: Sequence[Var]) -> tuple[Var, ...]:
        """Return further operands of the second program, which take these values of the first one."""
        operands = resuming.inputs([v.aval for v in values])
        stored.update(zip(operands, values, strict=True))
        return operands

    def operands_for_kept(values: Sequence[Var], recomputed: Sequence[Atom]) -> list[Atom]:
        """Return the recomputed values, but for a kept one a further operand. It takes the first mark of the value,
        which is a later equation: the mark tells an outer `remat` that the value is kept."""
        return [resuming.input(v.aval) if v in first_marks else a for v, a in zip(values, recomputed, strict=True)]

    resumed: Sequence[Atom]  # the results of an equation in the second program
    for eqn in jaxpr.eqns:
        halves = split_bodies_at_kept(eqn.prim, level) if isinstance(eqn.prim, HigherOrder) else None
        storing_ins, resuming_ins = substitute(eqn.ins, storing_env), substitute(eqn.ins, resuming_env)
        if halves is not None:  # its bodies keep values: the first half returns them, the second takes them
            storing.source = resuming.source = eqn.source
            results = storing(halves[0], *storing_ins)
            outs, kept_of_bodies = results[: len(eqn.outs)], results[len(eqn.outs) :]
            recomputed = resuming(halves[1], *resuming_ins, *operands_for(kept_of_bodies))
            resumed = operands_for_kept(eqn.outs, recomputed)
        elif eqn.prim.effects:  # it happens in the first program; the second takes its results
            outs = storing.copy(eqn, storing_ins)
            resumed = operands_for(outs)
        elif isinstance(eqn.prim, Mark) and (value := unmarked[eqn.outs[0]]) in first_marks:
            outs = storing.copy(eqn, storing_ins)
            operand = resuming_env[value]
            if eqn.outs[0] == first_marks[value]:
                stored.setdefault(operand, outs[0])  # the operand for a result of an effect takes that result
            resumed = (operand,)
        else:
            outs = storing.copy(eqn, storing_ins)
            resumed = operands_for_kept(eqn.outs, resuming.copy(eqn, resuming_ins))
        storing_env.update(zip(eqn.outs, outs, strict=True))
        resuming_env.update(zip(eqn.outs, resumed, strict=True))
    if not stored and not jaxpr.effects:
        return jaxpr, jaxpr
    kept_operands = [stored[v] for v in resuming.ins[len(jaxpr.ins) :]]
    return (
        storing.build([*substitute(jaxpr.outs, storing_env), *kept_operands], jaxpr.name),
        resuming.build(substitute(jaxpr.outs, resuming_env), jaxpr.name),
    )


def split_bodies_at_kept(prim: HigherOrder, level: int) -> tuple[Primitive, Primitive] | None:
    """Split an equation at the kept values of its bodies, at this `level` of nested `remat` equations.

    The first equation returns the kept values as its last results. The second takes them as its last operands and does
    not compute them. Return None if no value is kept, or if the layout has no group for them.

    Branches share slots: storage is the maximum over the branches. The kept values of a loop are stacked.
    """
    layout = prim.layout
    if layout.has_rules:
        return None
    stores = [k for k in layout.running if layout.bodies[k].stores]
    halves = [split_at_kept(layout.bodies[k].jaxpr, level + layout.remat) for k in stores]
    if all([resuming is layout.bodies[k].jaxpr for k, (_, resuming) in zip(stores, halves, strict=True)]):
        return None
    if any([layout.bodies[k].jaxpr.effects for k in layout.running if k not in stores]):
        return None  # the effects would happen twice
    if all([type(layout.bodies[k].runs) is OneOf for k in stores]):
        return _split_branches(prim, layout, halves)
    if len(stores) > 1:
        return None
    return _split_single_body(prim, layout, stores[0], *halves[0])


def _split_branches(
    prim: HigherOrder, layout: Layout, halves: Sequence[tuple[Jaxpr, Jaxpr]]
) -> tuple[Primitive, Primitive] | None:
    body = layout.bodies[0]
    if not _can_grow(layout.operands, body.operands, Constant()) or not _can_grow(layout.results, body.results):
        return None
    n_in, n_out = len(body.jaxpr.ins), len(body.jaxpr.outs)
    slots = shared_slots([storing.out_avals[n_out:] for storing, _ in halves])
    storing = [with_slot_results(s, n_out, assign_slots(s.outs[n_out:], slots), slots) for s, _ in halves]
    resuming = [with_slot_operands(r, n_in, slots) for _, r in halves]
    operands, results = _group_sizes(layout)
    more_operands, more_results = _group_sizes(layout, len(slots))
    return prim.rebuild(tuple(storing), operands, more_results), prim.rebuild(tuple(resuming), more_operands, results)


def _split_single_body(
    prim: HigherOrder, layout: Layout, body_index: int, storing: Jaxpr, resuming: Jaxpr
) -> tuple[Primitive, Primitive] | None:
    """Split an equation with a single body that stores a value."""
    body = layout.bodies[body_index]
    once = type(body.runs) is Once
    if not _can_grow(layout.results, body.results, None if once else _STACKS):
        return None
    bodies = [b.jaxpr for b in layout.bodies]
    operands, results = _group_sizes(layout)
    more_operands, more_results = _group_sizes(layout, len(storing.outs) - len(body.jaxpr.outs))
    first = prim.rebuild((*bodies[:body_index], storing, *bodies[body_index + 1 :]), operands, more_results)
    if _can_grow(layout.operands, body.operands, Constant() if once else _STACKS):
        return first, prim.rebuild((*bodies[:body_index], resuming, *bodies[body_index + 1 :]), more_operands, results)
    second = _resumed_by_count(prim, layout, body_index, resuming)
    return None if second is None else (first, second)


def _can_grow(groups: Sequence[Group], body_groups: Sequence[int], role: Role | None = None) -> bool:
    """Return True if a body can take, or return, further values of a role (None: of any) in the last of the groups.
    `body_groups` are the indices of the groups that it takes or returns."""
    last = groups[-1]
    return not last.fixed and (role is None or last.role == role) and body_groups[-1:] == (len(groups) - 1,)


def _group_sizes(layout: Layout, n_more: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of the groups of operands and results, with `n_more` values added to the last group of each."""
    operands, results = [g.size for g in layout.operands], [g.size for g in layout.results]
    return (*operands[:-1], operands[-1] + n_more), (*results[:-1], results[-1] + n_more)


# ------------------------------------------------------------------------------- loops that run over no slices


def _resumed_by_count(prim: HigherOrder, layout: Layout, body_index: int, resuming: Jaxpr) -> Primitive | None:
    """Return the second loop for a body that takes no slices: (operands, stacks) -> results. It takes the whole stacks
    as constants and counts its steps to index them.

    A `while` over the body c -> c', with `resuming` = (c, kept) -> c', becomes a call of a program that applies a
    `while` over the body (stack, step, c) -> (step + 1, c') to (stack, 0, c). This body is `resuming` of c and
    `stack[step]`. The call drops the last `step`.
    """
    body, old_operands = layout.bodies[body_index], layout.operand_indices(body_index)
    constants, carry = layout.growable_group(body_index, Constant), layout.growable_group(body_index, Carry)
    runs = body.runs
    if constants is None or carry is None or not isinstance(runs, Unknown) or not runs.most:
        return None  # also for a loop that never runs: its stacks have no rows to read
    carry_results = next(g for g, group in enumerate(layout.results) if type(group.role) is Carry)
    rows = resuming.in_avals[len(body.jaxpr.ins) :]
    # the operands of the loop have the numbers that they have in the equation; the stacks and the step have the next
    n_ins = layout.n_operands
    step = n_ins + len(rows)
    stacks = range(n_ins, step)
    types = {k: a.with_shape((runs.most, *a.shape)) for k, a in zip(stacks, rows, strict=True)} | {step: INT32_SCALAR}
    types.update(_whole_operand_types(layout))
    groups = layout.operand_groups
    groups[constants] += stacks
    groups[carry].insert(0, step)
    # the body that reads the stacks and counts
    b = Builder()
    new_operands = (*old_operands, *stacks, step)
    ins: dict[int, Atom] = {p: b.input(types[p]) for p in new_operands}
    rows_of_step = [read_row(b, ins[k], ins[step]) for k in stacks]
    outs = list(b.inline(resuming, (*[ins[p] for p in old_operands], *rows_of_step)))
    outs.insert(layout.first_result(body_index, carry_results), b.one(ADD, ins[step], Lit.of(1, INT32_SCALAR)))
    counting = b.build(outs, body.jaxpr.name)
    loop = with_operands(prim, groups, types, {body_index: (counting, new_operands)}, {carry_results: 1})
    # the call, which starts at step 0
    b = Builder()
    loop_ins: dict[int, Atom] = {p: b.input(types[p]) for p in (*range(n_ins), *stacks)}
    loop_ins[step] = Lit.of(0, INT32_SCALAR)
    results = list(b(loop, *[loop_ins[p] for group in groups for p in group]))
    del results[layout.results_of(carry_results).start]
    return Call(b.build(results, body.jaxpr.name))


def _whole_operand_types(layout: Layout) -> dict[int, Aval]:
    """Return the types of the operands that bodies take whole."""
    return {
        p: v.aval
        for k in layout.running
        for p, v in zip(layout.operand_indices(k), layout.bodies[k].jaxpr.ins, strict=True)
        if isinstance(layout.operand_roles[p], Constant | Carry)
    }
