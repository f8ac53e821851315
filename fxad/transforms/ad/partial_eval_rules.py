"""Partial evaluation rules of equations with bodies: an equation is split into a known and an unknown one.

A `remat` and branches are split here, loops in `split_loops`, and loops that end by a predicate in
`split_bounded_loops`. For example, x is known and y is unknown, in

    u, v = remat[(x, y) -> let s = sin(x), c = cos(x), z = c * y in (s, z)] x y

which is split into

    u, r = remat[x -> let s = sin(x), c = cos(x) in (s, c)] x
    v    = remat[(c, y) -> c * y] r y

The residual r is result 1 of the known `remat`. So the `SplitEqn` has `known_operands` (0,), `unknown_operands`
(KnownResult(1), 1), `out_known` (True, False) and `known_results` (0,).
"""

from __future__ import annotations

from fxad.core.flags import split_by_flags
from fxad.core.layout import BranchIndex, Constant, Count, Layout, OneOf
from fxad.ir import Flags, HigherOrder, Primitive
from fxad.primitives.control.bodies import (
    assign_slots,
    rotate_operands,
    shared_slots,
    with_slot_operands,
    with_slot_results,
)
from fxad.transforms.ad.halves import KnownResult, SplitBody, SplitEqn
from fxad.transforms.ad.split_bounded_loops import split_bounded_loop
from fxad.transforms.ad.split_loops import split_loop


def split_eqn(prim: Primitive, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split an equation whose marked operands are known. Return None if it is known or unknown as a whole.

    Not split are a loop without a bound or with an unknown predicate, a branch on an unknown index, a function with
    custom rules, and an equation with an effect.
    """
    if prim.effects or all(in_known) or not isinstance(prim, HigherOrder):
        return None
    layout = prim.layout
    roles = zip(in_known, layout.operand_roles, strict=True)
    control_known = all([known for known, role in roles if isinstance(role, BranchIndex | Count)])
    if not layout.transparent or not control_known:
        return None
    runs = [layout.bodies[k].runs for k in layout.running]
    if layout.has_predicate:
        split = split_bounded_loop(prim, layout, in_known, split_body)
    elif layout.once is not None:
        split = _once(prim, layout, in_known, split_body)
    elif all([isinstance(r, OneOf) for r in runs]):
        split = _branches(prim, layout, in_known, split_body)
    else:
        split = split_loop(prim, layout, in_known, split_body) if len(runs) == 1 else None
    # without a known operand, only known results are worth an equation of their own
    return split if split is None or any(in_known) or any(split.out_known) else None


def _once(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split an equation whose body runs once. Its residuals are the first operands of the unknown half."""
    if len(layout.operands) != 1 or len(layout.results) != 1:
        return None
    body = split_body(layout.bodies[0].jaxpr, in_known)
    if body.nothing_known:
        return None
    n_known = sum(body.out_known)
    residuals = [KnownResult(k) for k in range(n_known, len(body.known.outs))]
    known_ins, unknown_ins = split_by_flags(range(len(in_known)), in_known)
    return SplitEqn(
        prim.rebuild((body.known,), (len(body.known.ins),), (len(body.known.outs),)),
        prim.rebuild((body.unknown,), (len(body.unknown.ins),), (len(body.unknown.outs),)),
        known_ins,
        (*residuals, *unknown_ins),
        body.out_known,
        tuple(range(n_known)),
    )


def _branches(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split each branch. A result is known if it is known in every branch. Residuals are passed in slots, each of
    which holds a residual of whichever branch runs, as in derivatives."""
    if [type(g.role) for g in layout.operands] != [BranchIndex, Constant] or len(layout.results) != 1:
        return None
    if any([(body.operands, body.results) != ((1,), (0,)) for body in layout.bodies]):
        return None
    bodies = [split_body(branch.jaxpr, in_known[1:]) for branch in layout.bodies]
    out_known = tuple([all(marks) for marks in zip(*[body.out_known for body in bodies], strict=True)])
    bodies = [body.with_out_known(out_known) for body in bodies]
    if all([body.nothing_known for body in bodies]):
        return None
    n_known = sum(out_known)
    slots = shared_slots([[r.aval for r in body.residuals] for body in bodies])
    known_branches = [
        with_slot_results(body.known, n_known, assign_slots(body.residual_atoms, slots), slots) for body in bodies
    ]
    known_ins, unknown_ins = split_by_flags(range(len(in_known)), in_known)
    unknown_branches = [
        with_slot_operands(rotate_operands(body.unknown, len(body.residuals)), len(unknown_ins), slots)
        for body in bodies
    ]
    residuals = [KnownResult(n_known + k) for k in range(len(slots))]
    return SplitEqn(
        prim.rebuild(tuple(known_branches), (1, len(known_ins) - 1), (n_known + len(slots),)),
        prim.rebuild(tuple(unknown_branches), (1, len(unknown_ins) + len(slots)), (len(out_known) - n_known,)),
        known_ins,
        (0, *unknown_ins, *residuals),
        out_known,
        tuple(range(n_known)),
    )
