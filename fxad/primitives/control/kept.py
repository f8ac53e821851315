"""A body in two, at the values that it keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder, renamed
from fxad.core.memo import by_value
from fxad.ir import Atom, HigherOrder, Jaxpr, Var
from fxad.primitives.naming import Keep, kept, sources


@by_value
def keeps(jaxpr: Jaxpr) -> bool:
    """Whether a program keeps something, its bodies included: what is marked, and what an effect gave."""
    return bool(jaxpr.effects) or any(
        [
            isinstance(e.prim, Keep) or (isinstance(e.prim, HigherOrder) and any([keeps(b) for b in e.prim.bodies]))
            for e in jaxpr.eqns
        ]
    )


@by_value
def cut(jaxpr: Jaxpr, level: int = 0) -> tuple[Jaxpr, Jaxpr]:
    """The program in two, at the values that it keeps: operands -> results, then those values; and operands, then those
    values -> results, without computing them. Twice the program itself when it keeps nothing.

    What is meant is what the `remat` keeps that has `level` others between itself and the program. An effect happens
    once: its results are kept whatever the level, and the second program has none.

    Law:  the second, applied to what the first gives, gives the same results.
    """
    if not keeps(jaxpr):
        return jaxpr, jaxpr
    saving, resuming = Builder.like(jaxpr), Builder.like(jaxpr)
    first: dict[Atom, Atom] = {}
    second: dict[Atom, Atom] = {}
    chosen = {v: mark for v, mark in kept(jaxpr.eqns, level).items() if isinstance(v, Var) and v not in jaxpr.ins}
    saved: list[tuple[bool, Var]] = []  # a value of the new program, or the mark of one of `jaxpr`
    before = sources(jaxpr.eqns)
    for eqn in jaxpr.eqns:
        halves = eqn.prim.cut(cut, level) if isinstance(eqn.prim, HigherOrder) else None
        a = renamed(eqn.ins, first)
        b = renamed(eqn.ins, second)
        if halves is None and eqn.prim.effects:
            outs = saving.copy(eqn, a)
            saved.extend([(True, v) for v in outs])
            first.update(zip(eqn.outs, outs, strict=True))
            second.update(zip(eqn.outs, resuming.inputs([v.aval for v in outs]), strict=True))
            continue
        again: Sequence[Atom]
        if halves is None:
            outs, again = saving.copy(eqn, a), resuming.copy(eqn, b)
        else:
            saving.source = resuming.source = eqn.source
            both = saving(halves[0], *a)
            outs, further = both[: len(eqn.outs)], both[len(eqn.outs) :]
            saved.extend([(True, v) for v in further])
            again = resuming(halves[1], *b, *[resuming.input(v.aval) for v in further])
        first.update(zip(eqn.outs, outs, strict=True))
        for v, w in zip(eqn.outs, again, strict=True):
            if before.get(v) in chosen:
                second[v] = second[before[v]]  # the value that is there: no mark again
            elif v in chosen:
                saved.append((False, chosen[v]))
                second[v] = resuming.input(v.aval)
            else:
                second[v] = w
    if not saved and not jaxpr.effects:
        return jaxpr, jaxpr
    values = [v if new else first[v] for new, v in saved]
    return (
        saving.build([*renamed(jaxpr.outs, first), *values], jaxpr.name),
        resuming.build(renamed(jaxpr.outs, second), jaxpr.name),
    )
