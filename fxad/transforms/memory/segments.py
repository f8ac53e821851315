"""A program in segments that XLA runs one after another, so that it needs the memory that its order of equations says.

XLA computes the equations of a program in an order of its own, and fuses what was computed early into what is computed
late: an array that the program has done with then waits, one of each layer. It does neither across the border of a
recomputation that is kept apart (`Remat.opaque`, see docs/adr/0007). So stretches of equations become such calls, cut
where few bytes wait. See docs/adr/0040.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Var
from fxad.primitives.control.bodies import marked
from fxad.primitives.control.call import Applied, Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.custom import CustomCall

# What a segment computes, beside its results that are results of the program: so many times the bytes that wait where
# it begins, or so many bytes if that is more. Fewer: more conditions to compile and to run, and less is fused. More:
# more memory. Temporaries of gradients in docs/adr/0040.
SHARE: Final = 4
LEAST: Final = 1 << 16

Marks = tuple[bool, ...]


@by_value
def in_segments(jaxpr: Jaxpr, carried: Marks) -> Jaxpr:
    """The program in segments, its loops and branches too; the program itself where it is one segment.

    `carried` are the operands that wait in memory for the equations that read them; the others are there anyway.

    Law:  same value, same derivatives; each segment computes at most `SHARE` times the bytes that wait where it begins
          (or `LEAST`), or is one equation.
    Cost: linear in the equations, calls written out.
    """
    flat = _opened(jaxpr)
    ends = _ends(flat, carried)
    if len(ends) < 2 and all([a is b for a, b in zip(flat.eqns, jaxpr.eqns, strict=False)]):
        return jaxpr
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    last = _last_reads(flat)
    for start, end in pairwise((0, *ends)):
        eqns = flat.eqns[start:end]
        if len(ends) < 2 or any([_apart(e) for e in eqns]):
            for eqn in eqns:
                env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
            continue
        made = {v for e in eqns for v in e.outs}
        read = list(dict.fromkeys([a for e in eqns for a in e.ins if isinstance(a, Var) and a not in made]))
        given = [v for e in eqns for v in e.outs if last.get(v, -1) >= end]
        b.source = eqns[-1].source
        env.update(zip(given, b(Remat(_body(eqns, read, given), True), *[env.get(a, a) for a in read]), strict=True))
    return b.build([env.get(a, a) for a in flat.outs], jaxpr.name)


def _body(eqns: Sequence[Eqn], read: Sequence[Atom], given: Sequence[Atom]) -> Jaxpr:
    b = Builder()
    env: dict[Atom, Atom] = dict(zip(read, b.inputs([a.aval for a in read]), strict=True))
    for eqn in eqns:
        env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    return b.build([env[v] for v in given], "segment")


def _opened(jaxpr: Jaxpr) -> Jaxpr:
    """The program with calls written out, and its other bodies in segments."""
    if not any([isinstance(e.prim, HigherOrder) for e in jaxpr.eqns]):
        return jaxpr
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        ins = tuple([env.get(a, a) for a in eqn.ins])
        outs: Sequence[Atom]
        if type(eqn.prim) is Call:
            outs = b.inline(_opened(eqn.prim.body), ins)
        else:
            outs = b.copy(_inside(eqn), ins)
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


def _inside(eqn: Eqn) -> Eqn:
    """The equation with its bodies in segments; of functions with rules only those that `invertible` made."""
    prim = eqn.prim
    if isinstance(prim, CustomCall) and prim.tolerance is not None:
        prim = replace(prim, body=_whole(prim.body))
    elif isinstance(prim, HigherOrder) and not isinstance(prim, Applied):
        prim = prim.with_bodies(tuple(map(_whole, prim.bodies)))
    return eqn if prim is eqn.prim else Eqn(prim, eqn.ins, eqn.outs, eqn.source)


def _whole(body: Jaxpr) -> Jaxpr:
    return in_segments(body, (True,) * len(body.ins))


# ---------------------------------------------------------------------------------------------------------- where to cut


def _last_reads(jaxpr: Jaxpr) -> dict[Atom, int]:
    """The last equation that reads each value; behind all of them for a result of the program."""
    last: dict[Atom, int] = {a: k for k, e in enumerate(jaxpr.eqns) for a in e.ins}
    last.update(dict.fromkeys(jaxpr.outs, len(jaxpr.eqns)))
    return last


def _ends(jaxpr: Jaxpr, carried: Marks) -> list[int]:
    """Behind which equation each segment ends. From where one begins, it goes on to where fewest bytes wait, as far as
    it may go; what must stand apart is a segment of its own."""
    n = len(jaxpr.eqns)
    dead = _last_reads(Jaxpr(jaxpr.ins, jaxpr.eqns, (), jaxpr.name))  # results of the program have their own memory
    own = set(marked(jaxpr.ins, carried)) | {v for e in jaxpr.eqns for v in e.outs}
    freed = [0] * n
    for a, k in dead.items():
        freed[k] += a.aval.nbytes if a in own else 0
    waiting = [sum([a.aval.nbytes for a in marked(jaxpr.ins, carried) if a in dead])]  # before each equation
    for eqn, less in zip(jaxpr.eqns, freed, strict=True):
        waiting.append(waiting[-1] + sum([v.aval.nbytes for v in eqn.outs if v in dead]) - less)
    results = set(jaxpr.outs)
    ends: list[int] = []
    start = 0
    while start < n:
        most, computed = max(SHARE * waiting[start], LEAST), 0
        best = k = start + 1
        while k <= n and (k == start + 1 or not _apart(jaxpr.eqns[k - 1])):
            computed += _computed(jaxpr.eqns[k - 1], results)
            if computed > most and k > start + 1:
                break
            best = k if waiting[k] <= waiting[best] or k == n else best
            if _apart(jaxpr.eqns[k - 1]):
                break
            k += 1
        ends.append(best)
        start = best
    return ends


def _computed(eqn: Eqn, results: set[Atom]) -> int:
    """Bytes that an equation computes, its bodies included."""
    inner = [sum([_computed(e, set()) for e in body.eqns]) for body in _bodies(eqn)]
    return sum([v.aval.nbytes for v in eqn.outs if v not in results]) + max(inner, default=0)


def _bodies(eqn: Eqn) -> tuple[Jaxpr, ...]:
    """The programs that an equation runs."""
    prim = eqn.prim
    if isinstance(prim, Applied):
        return (prim.value,)
    return prim.bodies if isinstance(prim, HigherOrder) else ()


def _apart(eqn: Eqn) -> bool:
    """Whether an equation is left as it is: it does something besides its results, or has segments itself."""
    return bool(eqn.prim.effects) or any([_segmented(body) for body in _bodies(eqn)])


@by_value
def _segmented(jaxpr: Jaxpr) -> bool:
    return any([isinstance(e.prim, Remat) and e.prim.opaque for e in jaxpr.eqns]) or any(map(_apart, jaxpr.eqns))
