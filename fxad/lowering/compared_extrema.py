"""Comparisons of elements with their own extremum, which XLA would compute from two roundings of the elements.

XLA's fusions compute cheap values again in each loop that reads them. LLVM contracts `x * c + b` to one operation in
some of these loops and not in others, so the two values differ in a bit. If one loop finds the maximum and another
compares the elements with it, none is equal to it, and a derivative is lost:

    %2: f32[64,3] = add %0, %1
    %3: f32[64] = reduce_max[axes=(1,)] %2
    %4: f32[64,3] = broadcast_in_dim[shape=(64, 3), dims=(0,)] %3
    %5: bool[64,3] = eq %2, %4

So `fxad.lower` computes `%3` and `%5` from `%2` in a branch of its own: XLA stores the operand of a branch, and fuses
nothing with it. Versions of jaxlib: `docs/known-faults.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder, producing_eqns, rewrite
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
def with_extrema_in_branches(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program that computes each comparison of floats with their own extremum in a branch."""
    if not _compares_extrema(jaxpr):
        return jaxpr
    chains = _chains(jaxpr)
    masks: dict[Var, Atom] = {}  # the results of comparisons that are written with their extremum

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if chain := chains.get(eqn.outs[0]) if eqn.outs else None:
            body = _comparing_extremum(eqn, chain)
            extremum, *compared = b(Remat(body, opaque=True), *ins)
            masks.update(zip([c[-1].outs[0] for c in chain], compared, strict=True))
            return (extremum,)
        if eqn.outs and eqn.outs[0] in masks:
            return (masks[eqn.outs[0]],)
        if isinstance(prim, HigherOrder) and any(map(_compares_extrema, prim.bodies)):
            return b(prim.with_bodies(tuple(map(with_extrema_in_branches, prim.bodies))), *ins)
        return None

    return rewrite(jaxpr, rule)


@by_value
def _compares_extrema(jaxpr: Jaxpr) -> bool:
    prims = all_prims(jaxpr)
    return any([isinstance(p, _EXTREMA) for p in prims]) and any([isinstance(p, Compare) for p in prims])


def _chains(jaxpr: Jaxpr) -> dict[Var, list[list[Eqn]]]:
    """Return, for each extremum, the equations that follow it up to each comparison of its elements with it."""
    producers = producing_eqns(jaxpr.eqns)
    chains: dict[Var, list[list[Eqn]]] = {}
    for eqn in jaxpr.eqns:
        if isinstance(eqn.prim, Compare):
            x, y = eqn.ins
            for elements, extremum in ((x, y), (y, x)):
                if steps := _from_extremum(producers, elements, extremum):
                    first, *rest = steps
                    chains.setdefault(first.outs[0], []).append([*rest, eqn])
                    break
    return chains


def _from_extremum(producers: Mapping[Atom, Eqn], elements: Atom, value: Atom) -> list[Eqn]:
    """Return the equations from an extremum of the elements to a value that reads it. There are none for another
    value."""
    if not isinstance(elements, Var) or elements.aval.dtype not in dtypes.FLOATING:
        return []
    chain: list[Eqn] = []
    while isinstance(value, Var) and (eqn := producers.get(value)) is not None:
        chain.insert(0, eqn)
        if isinstance(eqn.prim, _EXTREMA):
            # One function is emitted for the chain, with the operands of the extremum as its only ones. So the further
            # operands of what reads it must be among them: the indices of a gather are those of the scatter.
            further = [a for e in chain[1:] for a in e.ins[1:]]
            return chain if elements in eqn.ins and all([a in eqn.ins for a in further]) else []
        if not isinstance(eqn.prim, _READS):
            break
        value = eqn.ins[0]
    return []


def _comparing_extremum(extremum: Eqn, chains: Sequence[Sequence[Eqn]]) -> Jaxpr:
    """Return the program of the operands of an extremum that computes it, and each comparison with it."""
    b = Builder()
    env: dict[Atom, Atom] = dict(zip(extremum.ins, b.inputs([a.aval for a in extremum.ins]), strict=True))
    for eqn in dict.fromkeys([extremum, *[eqn for chain in chains for eqn in chain]]):
        env.update(zip(eqn.outs, b(eqn.prim, *[env.get(a, a) for a in eqn.ins]), strict=True))
    return b.build([env[extremum.outs[0]], *[env[chain[-1].outs[0]] for chain in chains]], "compared")
