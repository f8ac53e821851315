"""Comparisons of elements with their own extremum, which XLA would compute from two roundings of the elements.

XLA's fusions compute cheap values again in each loop that reads them. LLVM contracts `x * c + b` to one operation in
some of these loops and not in others, so the two values differ in a bit. If one loop finds the maximum and another
compares the elements with it, none is equal to it, and a derivative is lost:

    %2: f32[64,3] = add %0, %1
    %3: f32[64] = reduce_max[axes=(1,)] %2
    %4: f32[64,3] = broadcast_in_dim[shape=(64, 3), dims=(0,)] %3
    %5: bool[64,3] = eq %2, %4

So `fxad.lower` computes `%3` to `%5` from `%2` in a branch of its own: XLA stores the operand of a branch, and fuses
nothing with it. Versions of jaxlib: `docs/known-faults.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Var, all_prims
from fxad.primitives.control.remat import Remat
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.gather_scatter import Gather, ScatterExtremum
from fxad.primitives.reduce import ExtremumReduction
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Reshape, Squeeze

_READS: Final = (BroadcastInDim, ExpandDims, Gather, Reshape, Squeeze)  # of the extremum, by what compares with it
_EXTREMA: Final = (ExtremumReduction, ScatterExtremum)


@by_value
def with_extrema_compared_apart(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program that computes each comparison of floats with their own extremum in a branch."""
    if not _compares_extrema(jaxpr):
        return jaxpr
    producers = {v: eqn for eqn in jaxpr.eqns for v in eqn.outs}
    written: dict[Atom, Atom] = {}  # the operands of the equations so far, in the new program

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        written.update(zip(eqn.ins, ins, strict=True))
        prim = eqn.prim
        if isinstance(prim, Compare):
            chain = _from_extremum(producers, eqn)
            if chain is None:
                return None
            body, operands = _apart((*chain, eqn))
            return b(Remat(body, opaque=True), *[written[a] for a in operands])
        if isinstance(prim, HigherOrder) and any(map(_compares_extrema, prim.bodies)):
            return b(prim.with_bodies(tuple(map(with_extrema_compared_apart, prim.bodies))), *ins)
        return None

    return rewrite(jaxpr, rule)


@by_value
def _compares_extrema(jaxpr: Jaxpr) -> bool:
    prims = all_prims(jaxpr)
    return any([isinstance(p, _EXTREMA) for p in prims]) and any([isinstance(p, Compare) for p in prims])


def _from_extremum(producers: dict[Var, Eqn], comparison: Eqn) -> list[Eqn] | None:
    """Return the equations from the extremum of one operand to the other operand of a comparison, if there are any."""
    x, y = comparison.ins
    for elements, extremum in ((x, y), (y, x)):
        if not isinstance(elements, Var) or elements.aval.dtype not in dtypes.FLOATING:
            continue
        chain: list[Eqn] = []
        while isinstance(extremum, Var) and (eqn := producers.get(extremum)) is not None:
            chain.insert(0, eqn)
            if isinstance(eqn.prim, _EXTREMA):
                if elements in eqn.ins:
                    return chain
                break
            if not isinstance(eqn.prim, _READS):
                break
            extremum = eqn.ins[0]
    return None


def _apart(eqns: Sequence[Eqn]) -> tuple[Jaxpr, list[Atom]]:
    """Return equations, of which the last one has the result, as a program, and its operands."""
    made = {v for eqn in eqns for v in eqn.outs}
    operands = list(dict.fromkeys([a for eqn in eqns for a in eqn.ins if isinstance(a, Var) and a not in made]))
    b = Builder()
    env: dict[Atom, Atom] = dict(zip(operands, b.inputs([v.aval for v in operands]), strict=True))
    for eqn in eqns:
        env.update(zip(eqn.outs, b(eqn.prim, *[env.get(a, a) for a in eqn.ins]), strict=True))
    return b.build([env[v] for v in eqns[-1].outs], "compared"), list(operands)
