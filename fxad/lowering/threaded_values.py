"""Threads a value through the equations of a program that change it: a token of ordered effects, or a flag.

The value becomes an operand and a result of each such equation, and of the bodies that contain such equations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.layout import PREDICATE, Carry, Constant, InParallel, Layout, Once, OneOf, Role, Value
from fxad.ir import BOOL_SCALAR, Atom, Aval, HigherOrder, Jaxpr, Primitive
from fxad.primitives.control.bodies import with_operands
from fxad.primitives.control.call import Call
from fxad.primitives.control.while_ import While


@final
@dataclass(frozen=True, slots=True)
class Threaded:
    """A primitive with the threaded value as a further operand and result, and the places of that value among them."""

    prim: Primitive
    operand: int
    result: int

    def bind(self, b: Builder, value: Atom, ins: Sequence[Atom]) -> tuple[Atom, tuple[Atom, ...]]:
        """Add the equation. Return the value after it, and the other results."""
        outs = b(self.prim, *ins[: self.operand], value, *ins[self.operand :])
        return outs[self.result], (*outs[: self.result], *outs[self.result + 1 :])


def with_threaded(
    prim: HigherOrder, aval: Aval, thread: Callable[[Jaxpr], Jaxpr], changes: Callable[[Jaxpr], bool]
) -> Threaded | None:
    """Thread a value through an equation with bodies that change it: as a carry of a loop, or as an operand and a
    result of a body that runs once. `thread` turns a body into (value, operands) -> (value, results). `changes` is True
    for bodies that change the value. None if there is no order: parallel runs, or the predicate of a loop with a bound
    changes the value.

    For example, a token t goes through a scan with a constant k, a carry c and slices x and y, and through a branch:

            c1, ys =     scan[(k, c, x) -> (c, y)]                    k, c0, xs
        t1, c1, ys =     scan[(k, t, c, x) -> (t, c, y)]              k, t0, c0, xs

            y =          cond[(x) -> (y), (x) -> (y)]                 i, x
        t1, y =          cond[(t, x) -> (t, y), (t, x) -> (t, y)]     i, t0, x

    Of a loop, the bodies that change the value take it. Of a `cond`, all branches do.
    """
    layout = prim.layout
    changing = [k for k in layout.running if changes(layout.bodies[k].jaxpr)]
    once = layout.once
    if layout.has_rules and once is not None:  # rules are not needed any more
        return Threaded(Call(thread(layout.bodies[once].jaxpr)), 0, 0)
    # only a `while` has a body that returns a predicate and nothing else
    if isinstance(prim, While) and changes(prim.cond) and prim.max_steps is None:
        return Threaded(Call(thread(with_predicate_in_body(prim))), 0, 0)
    if any([isinstance(layout.bodies[k].runs, InParallel) for k in changing]):
        return None
    are_branches = all([isinstance(layout.bodies[k].runs, Once | OneOf) for k in layout.running])
    taking = layout.running if are_branches else changing
    operand_role, result_role = (Constant, Value) if are_branches else (Carry, Carry)
    operand_groups = {layout.growable_group(k, operand_role) for k in taking}
    result_groups = {_result_group(layout, k, result_role) for k in taking}
    if len(operand_groups) != 1 or len(result_groups) != 1:
        return None
    (group,), (result,) = operand_groups, result_groups
    if group is None or result is None or (not are_branches and len(changing) > 1):
        return None
    groups, threaded = layout.operand_groups, layout.n_operands
    groups[group].insert(0, threaded)  # the value is the first of its group
    bodies = {
        k: (
            _move_first_result(thread(layout.bodies[k].jaxpr), layout.first_result(k, result)),
            (threaded, *layout.operand_indices(k)),
        )
        for k in taking
    }
    rebuilt = with_operands(prim, groups, {threaded: aval}, bodies, {result: 1})
    return Threaded(rebuilt, layout.operands_of(group).start, layout.results_of(result).start)


def _result_group(layout: Layout, body: int, role: type[Role]) -> int | None:
    """Return the first group of results with the role that a body returns."""
    groups = [g for g in layout.bodies[body].results if g != PREDICATE]
    return next((g for g in groups if isinstance(layout.results[g].role, role)), None)


def _move_first_result(body: Jaxpr, to: int) -> Jaxpr:
    """Return a body with its first result at another place."""
    first, *outs = body.outs
    return body.with_outs((*outs[:to], first, *outs[to:]))


def with_predicate_in_body(loop: While) -> Jaxpr:
    """Rewrite a loop whose predicate changes a threaded value: the predicate moves to the end of the body, and its
    value becomes a carry. It runs as often as before: after the last step too, also if there is a bound."""
    n, m, n_carry = loop.n_cond, loop.n_cond + loop.n_body, len(loop.carry)
    avals = (*loop.cond.in_avals[:n], *loop.body.in_avals)
    b = Builder()
    consts = b.inputs(avals[:m])
    b.input(BOOL_SCALAR)
    after = b.inline(loop.body, (*consts[n:], *b.inputs(avals[m:])))
    step = b.build((*b.inline(loop.cond, (*consts[:n], *after[:n_carry])), *after), loop.body.name)
    b = Builder()
    live, *_ = b.inputs((BOOL_SCALAR, *avals[m:]))
    predicate = b.build((live,), loop.cond.name)
    b = Builder()
    ins = b.inputs(avals)
    first = b.inline(loop.cond, (*ins[:n], *ins[m:]))
    return b.build(b(While(predicate, step, 0, m, loop.max_steps), *ins[:m], *first, *ins[m:])[1:], loop.body.name)
