"""Consecutive equations of a program or a body, as a program of their own that begins with recorded values."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from fxad import dtypes
from fxad.core.builder import Builder, live_ins, producing_eqns, subprogram
from fxad.core.dce import live_eqns
from fxad.diagnosis.reduce.candidate import Candidate
from fxad.diagnosis.reduce.recorded import ValuesOfRun
from fxad.ir import Atom, Eqn, Jaxpr, Lit, NDArray
from fxad.primitives import elementwise as ew
from fxad.primitives.shape import ReduceSum


def candidate_of(
    jaxpr: Jaxpr, eqns: Sequence[Eqn], outs: Sequence[Atom], run: ValuesOfRun | None, *, scalar: bool = False
) -> Candidate | None:
    """Return the program of some equations, over the values that they read. `run` has the values of these: None if no
    values are known. None if a value is missing. `scalar`: the program returns the sum of its first real floating
    result, for a predicate that takes a gradient."""
    free = live_ins(eqns, outs)
    # a predicate may differentiate in the first argument
    free.sort(key=lambda v: not v.aval.inexact)
    values: list[NDArray | None] = [None] * len(free)
    if run is not None:
        if any([v not in run for v in free]):
            return None
        values = [run[v] for v in free]
    made = subprogram(eqns, free, outs, jaxpr.name)
    if scalar and not is_scalar(made):
        summed = with_scalar_result(made)
        if summed is None:
            return None
        made = summed
    return Candidate(made, tuple(values), 0, run is not None)


def is_scalar(jaxpr: Jaxpr) -> bool:
    """Return True if a program returns one real floating scalar."""
    return len(jaxpr.outs) == 1 and jaxpr.outs[0].aval.shape == () and jaxpr.outs[0].aval.dtype in dtypes.FLOATING


def with_scalar_result(jaxpr: Jaxpr) -> Jaxpr | None:
    """Return the program that returns the sum of its first floating or complex result; None if it has none."""
    out = next((a for a in jaxpr.outs if a.aval.inexact and not a.aval.symbolic), None)
    if out is None:
        return None
    b = Builder.resume(jaxpr)
    if out.aval.dtype in dtypes.COMPLEX:
        out = b.one(ew.REAL, out)
    if out.aval.ndim:
        out = b.one(ReduceSum(tuple(range(out.aval.ndim))), out)
    return b.build([out], jaxpr.name)


def window(jaxpr: Jaxpr, first: int, end: int, run: ValuesOfRun | None, *, scalar: bool = False) -> Candidate | None:
    """Return equations `first` to `end` as a program. Its results are the values that the rest of the program reads;
    if it reads none, those of the last equation."""
    eqns = jaxpr.eqns[first:end]
    later = {a for eqn in jaxpr.eqns[end:] for a in eqn.ins} | set(jaxpr.outs)
    outs: list[Atom] = [v for eqn in eqns for v in eqn.outs if v in later]
    if not outs and eqns:
        outs = list(eqns[-1].outs)
    return candidate_of(jaxpr, eqns, outs, run, scalar=scalar) if outs else None


def whole(jaxpr: Jaxpr, run: ValuesOfRun | None, *, scalar: bool = False) -> Candidate | None:
    """Return a body as the program."""
    return candidate_of(jaxpr, jaxpr.eqns, jaxpr.outs, run, scalar=scalar)


def cones(jaxpr: Jaxpr, depth: int) -> Iterator[tuple[Hashable, list[Eqn]]]:
    """Yield for each equation, last first, the equations from which it is computed, up to `depth` before it, with a key
    that two such programs share if they have the same operations over operands of the same types."""
    producers = producing_eqns(jaxpr.eqns)
    place = {id(eqn): k for k, eqn in enumerate(jaxpr.eqns)}
    keys: dict[tuple[int, int], Hashable] = {}

    def key(eqn: Eqn, level: int) -> Hashable:
        at = (id(eqn), level)
        if at not in keys:
            parts = [
                key(producers[a], level - 1) if level and a in producers else (a if isinstance(a, Lit) else a.aval)
                for a in eqn.ins
            ]
            keys[at] = hash((eqn.prim, *parts))
        return keys[at]

    for eqn in reversed(jaxpr.eqns):
        members = [eqn]
        front = [eqn]
        for _ in range(depth):
            front = [producers[a] for e in front for a in e.ins if a in producers]
            members += front
        distinct = {id(e): e for e in members}
        yield key(eqn, depth), sorted(distinct.values(), key=lambda e: place[id(e)])


def ancestors(jaxpr: Jaxpr, outs: Sequence[Atom]) -> list[Eqn]:
    """Return the equations from which values are computed."""
    return live_eqns(jaxpr.eqns, outs, effects=False)
