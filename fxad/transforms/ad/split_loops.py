"""Partial evaluation of a loop: a loop over known values, and a loop over the others.

For example, w and x are known and y is unknown, in

    c, d, zs = scan[(w, c, d, x) -> let e = exp(c), c' = e * w, d' = d * x + e in (c', d', e)] w c0 y xs

The carry c is known, because each step computes it from known values; the carry d is not. The unknown step reads the
residual e, which is stacked, and x, which is a slice of an operand:

    c, zs, es = scan[(w, c, x) -> let e = exp(c), c' = e * w in (c', e, e)] w c0 xs
    d         = scan[(d, x, e) -> d * x + e] y xs es

The operands w, c0, y, xs have the numbers 0 to 3. So the `SplitEqn` has `known_operands` (0, 1, 3), `unknown_operands`
(2, 3, KnownResult(2)), because es is result 2 of the known scan, `out_known` (True, False, True) and `known_results`
(0, 1).

Numbers of this file:

    p, operands           operands of the equation that is split
    q, results            results of it
    KnownResult(k)        results of the known equation
    step_at               the body of the layout of the equation that takes a step
    g                     groups of operands or of results of the layout
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import rebind_operands
from fxad.core.flags import split_by_flags
from fxad.core.layout import Carry, Count, Layout, Sliced
from fxad.ir import Atom, Flags, HigherOrder, Var
from fxad.transforms.ad.halves import Halves, KnownResult, OperandOrigin, SplitBody, SplitEqn


def split_loop(prim: HigherOrder, layout: Layout, in_known: Flags, split_body: SplitBody) -> SplitEqn | None:
    """Split a loop with one body. A carry is known if every step computes a known value for it. A residual that is a
    constant or a slice is read from the operand. The other residuals are stacked along the first axis, in the last
    groups of operands and results.

    For the scan at the top of this file, over the operands 0 to 3 and the stack es, which is the known result 2:

        operand_known  (True, True, False, True)
        residuals      [3, KnownResult(2)]          x and e
        known_groups   [[0], [1], [3]]              constants, carries, slices
        unknown_groups [[], [2], [3, KnownResult(2)]]
    """
    (step_at,) = layout.running
    body = layout.bodies[step_at]
    last_operands, last_results = len(layout.operands) - 1, len(layout.results) - 1
    if body.operands[-1:] != (last_operands,) or body.results[-1:] != (last_results,):
        return None
    if layout.operands[-1].role != Sliced(0) or layout.results[-1].role != Sliced(0):
        return None
    operand_known, step = _split_step(layout, step_at, in_known, split_body)
    if step.nothing_known:
        return None
    step_operands = layout.operand_indices(step_at)
    known_ins, unknown_ins = split_by_flags(step_operands, [operand_known[p] for p in step_operands])
    residuals, stacked = _residual_operands(layout, step, known_ins)
    known_groups: list[list[int]] = []
    unknown_groups: list[list[OperandOrigin]] = []
    for g, group in enumerate(layout.operands):
        members = layout.operands_of(g)
        read = [p for p in residuals if (p in members if isinstance(p, int) else g == last_operands)]
        unknown = [p for p in members if not operand_known[p] or isinstance(group.role, Count)]  # both halves take it
        known_groups.append([p for p in members if operand_known[p]])
        unknown_groups.append([*read, *unknown])
    n_known = sum(step.out_known)
    known_outs = (*step.known.outs[:n_known], *stacked)
    known_body = rebind_operands(step.known, body.operands_in(known_groups), has=known_ins, outs=known_outs)
    unknown_body = rebind_operands(step.unknown, body.operands_in(unknown_groups), has=(*residuals, *unknown_ins))
    marks = dict(zip(layout.result_indices(step_at), step.out_known, strict=True))
    out_known = tuple([marks[q] for q in range(len(marks))])
    by_group = [[out_known[q] for q in layout.results_of(g)] for g in range(len(layout.results))]
    known_sizes, unknown_sizes = [m.count(True) for m in by_group], [m.count(False) for m in by_group]
    known_sizes[-1] += len(stacked)
    return SplitEqn(
        prim.rebuild((known_body,), tuple(map(len, known_groups)), tuple(known_sizes)),
        prim.rebuild((unknown_body,), tuple(map(len, unknown_groups)), tuple(unknown_sizes)),
        tuple([p for group in known_groups for p in group]),
        tuple([p for group in unknown_groups for p in group]),
        out_known,
        tuple(range(n_known)),
    )


def _split_step(layout: Layout, step_at: int, in_known: Flags, split_body: SplitBody) -> tuple[list[bool], Halves]:
    """Split the step of a loop, body `step_at`. Return flags for the operands of the loop whose value is known in every
    step, and the two halves of the step, of which the known one returns exactly the known carries and rows."""
    step_operands, step_results = layout.operand_indices(step_at), layout.result_indices(step_at)
    operand_known = list(in_known)
    while True:
        step = split_body(layout.bodies[step_at].jaxpr, tuple([operand_known[p] for p in step_operands]))
        result_known = dict(zip(step_results, step.out_known, strict=True))
        no_longer_known = [p for p, q in layout.carries.items() if operand_known[p] and not result_known[q]]
        if not no_longer_known:
            break
        for p in no_longer_known:
            operand_known[p] = False
    # a carry whose initial value is unknown is unknown, even if each step computes a known value for it
    result_known.update({q: operand_known[p] for p, q in layout.carries.items()})
    return operand_known, step.with_out_known(tuple([result_known[q] for q in step_results]))


def _residual_operands(
    layout: Layout, step: Halves, known_ins: Sequence[int]
) -> tuple[list[OperandOrigin], list[Atom]]:
    """Return, for each residual of a step, the operand of the loop that it is, or the known result that is its stack;
    and the values that are stacked. The known half returns the stacks after its other results. A residual that is a
    carry is stacked, because it has another value in each step."""
    operands = dict(zip(step.known.ins, known_ins, strict=True))
    roles = layout.operand_roles
    n_known = sum(step.out_known)
    residuals: list[OperandOrigin] = []
    stacked: list[Atom] = []
    for a in step.residual_atoms:
        operand = operands.get(a) if isinstance(a, Var) else None
        if operand is None or isinstance(roles[operand], Carry):
            residuals.append(KnownResult(n_known + len(stacked)))
            stacked.append(a)
        else:
            residuals.append(operand)
    return residuals, stacked
