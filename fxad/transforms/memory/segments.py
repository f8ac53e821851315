"""Splits a program into segments that XLA runs one after another, so that memory follows the order of the equations.

XLA schedules the equations of a program anew, and fuses early equations into late ones. Then values of each layer stay
live although no later equation reads them. XLA does neither across the boundary of a recomputation (`Remat.opaque`,
docs/adr/0007). So consecutive equations are grouped into such calls. The cuts are at places where few bytes are live.
See docs/adr/0042.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from fxad.core.builder import Builder, last_readers, live_ins, subprogram, substitute
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, Flags, HigherOrder, Jaxpr, Var
from fxad.primitives.control.call import Applied, callee
from fxad.primitives.control.remat import Remat
from fxad.primitives.custom import has_derived_rules
from fxad.support.constants import SEGMENT_BYTES, SEGMENT_TIMES


@by_value
def in_segments(jaxpr: Jaxpr, freed_after_use: Flags, least: int = SEGMENT_BYTES) -> Jaxpr:
    """Return the program in segments, also in the bodies of loops and branches; the same program if it is one segment.

    Operands marked in `freed_after_use` are live until the last equation that reads them. The others (weights) stay in
    memory during the whole program, and are not counted.

    Law:  same value, same derivatives. A segment is one equation, or it computes at most `SEGMENT_TIMES` times the
          bytes that are live where it begins, or at most `least` bytes.
    Cost: linear in the equations; calls are inlined.
    """
    flat = _inlined(jaxpr, least)
    ends = _segment_ends(flat, freed_after_use, least)
    if len(ends) < 2:
        return flat if _segmented(flat) else jaxpr
    last_read = last_reads(flat)
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    for start, end in pairwise((0, *ends)):
        eqns = flat.eqns[start:end]
        if _stands_alone(eqns[0]):
            b.extend(eqns, env)
            continue
        b.source = eqns[-1].source
        live_in, results = live_ins_and_outs(flat.eqns, start, end, last_read)
        segment = Remat(subprogram(eqns, live_in, results, "segment"), True)
        env.update(zip(results, b(segment, *substitute(live_in, env)), strict=True))
    return b.build(substitute(flat.outs, env), jaxpr.name)


def last_reads(jaxpr: Jaxpr) -> dict[Atom, int]:
    """Return the last equation that reads each value; for a result of the program, the number of equations."""
    last = last_readers(jaxpr.eqns)
    last.update(dict.fromkeys(jaxpr.outs, len(jaxpr.eqns)))
    return last


def live_ins_and_outs(
    eqns: Sequence[Eqn], start: int, stop: int, last_read: Mapping[Atom, int]
) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
    """Return the values that the equations from `start` to before `stop` read from outside (their live-ins), and those
    of their results that are read after them (their live-outs). `last_read` has the `last_reads` of the program."""
    inner_eqns = eqns[start:stop]
    return tuple(live_ins(inner_eqns)), tuple([v for e in inner_eqns for v in e.outs if last_read.get(v, -1) >= stop])


@by_value
def _inlined(jaxpr: Jaxpr, least: int) -> Jaxpr:
    """Inline the calls of a program, and split its other bodies into segments."""
    if not any([isinstance(prim, HigherOrder) for prim in jaxpr.prims]):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        return b.copy(_with_bodies(eqn, least), ins)

    b = Builder.like(jaxpr)
    return b.build(b.inline_calls(jaxpr, jaxpr.ins, lambda eqn, _: callee(eqn), rule), jaxpr.name)


def _with_bodies(eqn: Eqn, least: int) -> Eqn:
    """Split the bodies of an equation into segments. Of the functions with custom rules, only those are split whose
    rules a transformation made from the body."""
    prim = eqn.prim
    if has_derived_rules(prim):
        prim = replace(prim, function=replace(prim.function, body=_body_in_segments(prim.function.body, least)))
    # the programs of rules have the operands of the function: they are not split
    elif isinstance(prim, HigherOrder) and not isinstance(prim, Applied):
        prim = prim.with_bodies(tuple([_body_in_segments(body, least) for body in prim.bodies]))
    return Eqn(prim, eqn.ins, eqn.outs, eqn.source)


def _body_in_segments(body: Jaxpr, least: int) -> Jaxpr:
    return in_segments(body, (True,) * len(body.ins), least)


# ---------------------------------------------------------------------------------------------------- choosing the cuts


def _segment_ends(jaxpr: Jaxpr, freed_after_use: Flags, least: int) -> list[int]:
    """Return the end of each segment: the end of the program if the rest is one segment, otherwise the end with the
    fewest live bytes among those that are permitted, the last of several."""
    n, live = len(jaxpr.eqns), live_bytes(jaxpr, freed_after_use)
    results = frozenset(jaxpr.outs)
    ends: list[int] = []
    start = 0
    while start < n:
        most, computed, end = max(SEGMENT_TIMES * live[start], least), 0, start + 1
        for k in range(start, n):
            stands_alone = _stands_alone(jaxpr.eqns[k])
            computed += _computed(jaxpr.eqns[k], results)
            if k > start and (stands_alone or computed > most):
                break
            if live[k + 1] <= live[end] or k + 1 == n:
                end = k + 1
            if stands_alone:
                break
        ends.append(end)
        start = end
    return ends


def live_bytes(jaxpr: Jaxpr, freed_after_use: Flags) -> list[int]:
    """Return the bytes of the values that later equations read, before each equation and at the end.

    A result of the program has its own memory: it is counted only up to the last equation that reads it. For x:f32[10],
    not `freed_after_use`, and `a = sin x; b = cos a; c = mul a b` with the result c, the bytes are 0, 40, 80, 0.
    """
    last = last_readers(jaxpr.eqns)
    operands = select_by_flags(jaxpr.ins, freed_after_use)
    counted = {v for e in jaxpr.eqns for v in e.outs}.union(operands)
    born = [sum([v.aval.nbytes for v in e.outs if v in last]) for e in jaxpr.eqns]
    dead = [0] * len(jaxpr.eqns)
    for a, k in last.items():
        dead[k] += a.aval.nbytes if a in counted else 0
    live = [sum([v.aval.nbytes for v in operands if v in last])]
    for more, less in zip(born, dead, strict=True):
        live.append(live[-1] + more - less)
    return live


def _computed(eqn: Eqn, results: frozenset[Atom] = frozenset()) -> int:
    """Return the bytes that an equation computes, including those of its largest body, except the `results` of the
    program."""
    return sum([v.aval.nbytes for v in eqn.outs if v not in results]) + max(map(_computed_in, _bodies(eqn)), default=0)


@by_value
def _computed_in(body: Jaxpr) -> int:
    """Return the bytes that the equations of a body compute."""
    return sum(map(_computed, body.eqns))


def _bodies(eqn: Eqn) -> tuple[Jaxpr, ...]:
    """Return the bodies of an equation, including the program that an `Applied` runs."""
    prim = eqn.prim
    # the program that runs, with what its rules complete
    if isinstance(prim, Applied):
        return (prim.applied,)
    return prim.bodies if isinstance(prim, HigherOrder) else ()


def _stands_alone(eqn: Eqn) -> bool:
    """Return True if an equation cannot be part of a segment: it has an effect, or its bodies contain segments."""
    return bool(eqn.prim.effects) or any([_segmented(body) for body in _bodies(eqn)])


@by_value
def _segmented(jaxpr: Jaxpr) -> bool:
    """Return True if a program or one of its bodies contains segments."""
    # a segment is an opaque `remat`
    has_segments = any([isinstance(prim, Remat) and prim.opaque for prim in jaxpr.prims])
    return has_segments or any([_segmented(body) for e in jaxpr.eqns for body in _bodies(e)])
