"""Bounds of loops: an unbounded `while` gets the number of steps that it takes for some operands, so that it has a
reverse mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fxad.core.builder import Builder, rewrite
from fxad.core.interpreter import run_by_layout
from fxad.core.layout import PREDICATE
from fxad.core.stack import with_enough_stack
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Lit, NDArray, Primitive, all_prims
from fxad.primitives.control.while_ import While
from fxad.transforms.precision.rounding import applied_body


def with_bounds(jaxpr: Jaxpr, operands: Sequence[NDArray]) -> Jaxpr:
    """Return the program in which each unbounded loop has the largest number of steps that it takes when the program
    runs on the operands.

    Law:  the same results for these operands; a program without unbounded loops is unchanged, and does not run.
    Cost: one interpretation of a program with unbounded loops.
    """
    if not any([_unbounded(prim) for prim in all_prims(jaxpr)]):
        return jaxpr
    steps: dict[Primitive, int] = {}
    with np.errstate(all="ignore"):
        _count(jaxpr, operands, steps)
    return _bounded(jaxpr, steps)


def _unbounded(prim: Primitive) -> bool:
    return isinstance(prim, While) and prim.max_steps is None


@with_enough_stack
def _count(jaxpr: Jaxpr, operands: Sequence[NDArray], steps: dict[Primitive, int]) -> Sequence[NDArray]:
    """Return the results of a program, and enter the number of steps of each unbounded loop."""
    env: dict[Atom, NDArray] = dict(zip(jaxpr.ins, operands, strict=True))
    for eqn in jaxpr.eqns:
        ins = [a.array if isinstance(a, Lit) else env[a] for a in eqn.ins]
        env.update(zip(eqn.outs, _results(eqn, ins, steps), strict=True))
    return [a.array if isinstance(a, Lit) else env[a] for a in jaxpr.outs]


def _results(eqn: Eqn, ins: list[NDArray], steps: dict[Primitive, int]) -> Sequence[NDArray]:
    """Return the results of an equation, and enter the steps of the loops in it. Without an unbounded loop inside it is
    computed as a whole, otherwise body by body; a loop that runs several times keeps its largest number of steps."""
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not any(
        [_unbounded(p) for p in (prim, *[p for b in prim.bodies for p in all_prims(b)])]
    ):
        return [np.asarray(x) for x in prim.impl(*ins)]
    if (body := applied_body(prim)) is not None:
        return _count(body, ins, steps)
    layout = prim.layout
    if not layout.states_results:
        return [np.asarray(x) for x in prim.impl(*ins)]
    n_steps = 0

    def run_body(number: int, step: int | None, args: list[NDArray]) -> Sequence[NDArray]:
        nonlocal n_steps
        body = layout.bodies[number]
        if step is not None and body.results != (PREDICATE,):
            n_steps += 1
        return _count(body.jaxpr, args, steps)

    outs = run_by_layout(layout, ins, [v.aval for v in eqn.outs], run_body)
    assert outs is not None, "no body stops the run"
    if _unbounded(prim):
        steps[prim] = max(n_steps, steps.get(prim, 1))
    return outs


@with_enough_stack
def _bounded(jaxpr: Jaxpr, steps: Mapping[Primitive, int]) -> Jaxpr:
    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if not isinstance(prim, HigherOrder):
            return None
        inner = prim.with_bodies(tuple([_bounded(body, steps) for body in prim.bodies]))
        # a loop that did not run keeps one step: its derivative is not needed, and must exist
        if isinstance(inner, While) and inner.max_steps is None:
            inner = replace(inner, max_steps=steps.get(prim, 1))
        return b.copy(eqn, ins, inner)

    return rewrite(jaxpr, rule)
