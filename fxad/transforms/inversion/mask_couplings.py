"""Couplings by masks of 0 and 1: `m * x + (1 - m) * (x * exp(s) + t)`, which is `where(m, x, x * exp(s) + t)`.

A sum of what one mask lets through and what its complement lets through is a choice. Read as one, it is run backwards
like any other (`fxad.transforms.inversion.solver`). That the mask has nothing but 0 and 1 is seen when the program runs: where
it does not, what is reconstructed is nan. How what is reconstructed changes with a mask is not known: a derivative in
that direction is refused.

The form is that of Dinh, Sohl-Dickstein and Bengio, Density estimation using Real NVP (2017), eq. 9.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Aval, Eqn, Lit, Primitive, Var, Zero
from fxad.primitives.custom import CustomCall
from fxad.primitives.elementwise import EQ, MUL, SELECT_N, Add, ConvertElementType, Mul, Neg, Not, Sub
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Reshape, Squeeze
from fxad.transforms.inversion.plans import Graph

# How a mask was made: what it was made from, by which equations. Its complement has the same.
Key: TypeAlias = tuple[Atom, tuple[Primitive, ...]]

MOVES: Final[tuple[type[Primitive], ...]] = (BroadcastInDim, Reshape, ExpandDims, Squeeze, ConvertElementType)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Mask:
    """Where a mask is 1; zeros, and ones, both nan where it is neither 0 nor 1.

    Those ones are also where the mask is 1 and nobody reads what they are multiplied with: in reverse mode a cotangent
    of 0 comes from there, and 0 * nan would be nan.
    """

    one: Atom
    nothing: Atom
    sure: Atom


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """A sum of what a mask lets through (`one`) and what its complement does (`zero`)."""

    key: Key
    mask: Atom
    zero: Atom
    one: Atom
    eqn: Eqn


def with_choices(graph: Graph, known: Container[Atom]) -> Graph | None:
    """The program with sums of complementary masked values as choices; None where there are none.

    Masks are `known`, what they are multiplied with is not. Values that the program had are still its values.
    """
    return _Rewriting(graph, known).run()


@final
class _Rewriting:
    """One pass over the equations of a program."""

    def __init__(self, graph: Graph, known: Container[Atom]) -> None:
        self.graph, self.known = graph, known
        self.b = Builder()
        self.b.n = graph.n
        self.masks: dict[Key, _Mask] = {}
        # of values that are not known, the masks outside of which they are 0
        self.support: dict[Atom, dict[tuple[Key, bool], Atom]] = {}

    def run(self) -> Graph | None:
        sums: dict[Atom, _Sum] = {}
        for eqn in self.graph.eqns:
            if isinstance(eqn.prim, Add | Sub | Mul | Neg):
                if isinstance(eqn.prim, Add) and (found := self._sum(eqn)):
                    sums[eqn.outs[0]] = found
                self.support[eqn.outs[0]] = self._support(eqn)
        if not sums:
            return None
        origins = dict(self.graph.origins)
        eqns: list[Eqn] = []
        choices: dict[Atom, Eqn] = {}
        for out, found in sums.items():
            self.b.source = found.eqn.source
            self._make(found.key, found.mask)
            start = len(eqns)
            zero, one = self._bare(found.zero, (found.key, True)), self._bare(found.one, (found.key, False))
            mask = self.masks[found.key]
            guarded = self.b.one(MUL, zero, mask.sure)
            eqns += self.b.eqns
            self.b.eqns.clear()
            if origins:
                origins.update({v: origins[out] for e in eqns[start:] for v in e.outs})
            choices[out] = Eqn(SELECT_N, (mask.one, guarded, one), found.eqn.outs, found.eqn.source)
        eqns += [choices[e.outs[0]] if e.outs and e.outs[0] in choices else self._masked(e) for e in self.graph.eqns]
        return Graph.over(self.graph.ins, tuple(eqns), self.b.n, origins)

    # --------------------------------------------------------------------------------------------- what is recognised

    def _key(self, a: Atom) -> tuple[Key, bool] | None:
        """How a known factor was made, and whether it is the complement of that."""
        if a not in self.known or a.aval.dtype not in dtypes.FLOATING:
            return None
        moves: list[Primitive] = []
        flipped = False
        while (eqn := self.graph.maker.get(a)) is not None:
            if isinstance(eqn.prim, MOVES):
                moves.append(eqn.prim)
                a = eqn.ins[0]
            elif isinstance(eqn.prim, Sub) and _ones(eqn.ins[0]):
                flipped, a = not flipped, eqn.ins[1]
            elif isinstance(eqn.prim, Not) and a.aval.dtype == dtypes.bool_:
                flipped, a = not flipped, eqn.ins[0]
            else:
                break
        return ((a, tuple(moves)), flipped) if isinstance(a, Var) else None

    def _factor(self, eqn: Eqn) -> tuple[Key, bool, Atom, Atom] | None:
        """Of a product of a known factor and something else: how the factor was made, the factor and the other."""
        if not isinstance(eqn.prim, Mul):
            return None
        for mask, other in (eqn.ins, eqn.ins[::-1]):
            found = self._key(mask)
            if found is not None and isinstance(other, Var) and other not in self.known:
                return *found, mask, other
        return None

    def _support(self, eqn: Eqn) -> dict[tuple[Key, bool], Atom]:
        """The masks outside of which the result of an equation is 0."""
        found = self._factor(eqn)
        if found:
            key, flipped, mask, other = found
            return {**self.support.get(other, {}), (key, flipped): mask}
        each = [self.support.get(a, {}) for a in eqn.ins]
        if isinstance(eqn.prim, Mul | Neg):
            return {of: mask for given in each for of, mask in given.items()}
        return {of: mask for of, mask in each[0].items() if of in each[1]}

    def _sum(self, eqn: Eqn) -> _Sum | None:
        """A sum of what a mask and its complement let through, both not known."""
        if any([a in self.known or not isinstance(a, Var) for a in eqn.ins]):
            return None
        first, second = [self.support.get(a, {}) for a in eqn.ins]
        for (key, flipped), mask in first.items():
            if (key, not flipped) in second:
                zero, one = eqn.ins if flipped else eqn.ins[::-1]
                return _Sum(key, second[key, False] if flipped else mask, zero, one, eqn)
        return None

    # ------------------------------------------------------------------------------------------------- what is written

    def _masked(self, eqn: Eqn) -> Eqn:
        """What a mask lets through reads only where it is 1."""
        found = self._factor(eqn)
        if found is None or found[0] not in self.masks:
            return eqn
        key, flipped, _, other = found
        mask = self.masks[key]
        cases = (other, mask.nothing) if flipped else (mask.nothing, other)
        return Eqn(SELECT_N, (mask.one, *cases), eqn.outs, eqn.source)

    def _make(self, key: Key, mask: Atom) -> None:
        if key not in self.masks:
            aval, one = mask.aval, self.b.one
            mask = one(still(aval), mask)
            ones, zeros = one(EQ, mask, Lit.of(1.0, aval)), one(EQ, mask, Lit.of(0.0, aval))
            nan = Lit.of(math.nan, aval)
            each = [
                one(SELECT_N, ones, one(SELECT_N, zeros, nan, v), v) for v in (Lit.of(0.0, aval), Lit.of(1.0, aval))
            ]
            self.masks[key] = _Mask(ones, *each)

    def _bare(self, a: Atom, of: tuple[Key, bool]) -> Atom:
        """A value without the mask, which is the value where the mask is 1."""
        eqn = self.graph.maker[a]
        found = self._factor(eqn)
        if found and found[:2] == of:
            return found[3]
        ins = [self._bare(x, of) if of in self.support.get(x, {}) else x for x in eqn.ins]
        return self.b.one(eqn.prim, *ins)


def still(aval: Aval) -> CustomCall:
    """A value that is no operand of a derivative: of what is chosen by it none is known, and none is made up."""
    b = Builder()
    same = b.build(b.inputs([aval]), "coupling_by_a_mask")
    nothing = Builder().build([Zero(aval).instantiate()], "no_derivative")
    return CustomCall(same, 1, (same, nothing), (), ())


def _ones(a: Atom) -> bool:
    return isinstance(a, Lit) and a.aval.size > 0 and bool((a.array == 1).all())
