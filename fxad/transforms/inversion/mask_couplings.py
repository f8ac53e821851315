"""Couplings by masks of 0 and 1: `m * x + (1 - m) * (x * exp(s) + t)`, which is `where(m, x, x * exp(s) + t)`.

A sum of a value times a mask and a value times the complement of the mask is a choice. It is inverted like any other
choice (`fxad.transforms.inversion.solver`). The program checks at run time that the mask contains only 0 and 1;
elsewhere the reconstruction is nan. The derivative of a reconstruction with respect to a mask is not known, and is
refused.

Example: y = m * x + (1 - m) * (x * exp(m * x)). Left, the equations of the program, m known; right, the result of
`sums_as_choices`. `is_one`, `zeros` and `ones` are computed from m (`_MaskArrays`).

    a = mul m x            a = select_n is_one zeros x      0 where the mask is 0, else x
    c = sub 1 m            c = sub 1 m
    e = exp a              e = exp a
    p = mul x e            p = mul x e
    d = mul c p            d = select_n is_one p zeros      c is the complement of m: 0 where the mask is 1
    y = add a d            g = mul p ones                   the term of the complement, without its factor
                           y = select_n is_one g x          p where the mask is 0, x where it is 1

The sum is recognised by its supports. The value `a` is 0 outside of m, the value `d` is 0 outside of its complement.
A `MaskSupport` is the origin of a mask (the variable and the shape operations that lead to the factor), and whether the
factor is the complement. So the supports `(m, False)` and `(m, True)` complete each other. Supports pass through
products, negations, sums and differences: -(m * a) * b + m * c is 0 outside of m.

The form is that of Dinh, Sohl-Dickstein and Bengio, Density estimation using Real NVP (2017), eq. 9.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Eqn, Lit, Primitive, Var, Zero
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, Rules
from fxad.primitives.elementwise.arithmetic import MUL, Add, Mul, Neg, Sub
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import EQ, Not
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.shape import BroadcastInDim, Permutation
from fxad.transforms.inversion.plans import Graph
from fxad.transforms.inversion.rules.conversion import holds

# The origin of a mask: the value it is computed from, and the operations. A mask and its complement have the same key.
MaskOrigin: TypeAlias = tuple[Atom, tuple[Primitive, ...]]

MOVES: Final[tuple[type[Primitive], ...]] = (BroadcastInDim, Permutation, ConvertElementType)


@final
@dataclass(frozen=True, slots=True)
class MaskSupport:
    """A mask, or its complement, outside of which a value is 0."""

    origin: MaskOrigin
    is_complement: bool

    @property
    def other(self) -> MaskSupport:
        """The support that completes this one."""
        return MaskSupport(self.origin, not self.is_complement)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _MaskedProduct:
    """A product of a known mask and an unknown value."""

    support: MaskSupport
    mask: Atom
    value: Var


@final
@dataclass(frozen=True, slots=True, eq=False)
class _MaskArrays:
    """A bool array that is true where the mask is 1; an array of zeros; an array of ones. Both are nan where the mask
    is neither 0 nor 1.

    The term of the complement is multiplied by `ones`, and is chosen where the mask is not 1. `ones` is 1, not nan,
    also where the mask is 1, though that product is not read there: in reverse mode its cotangent there is 0, and
    0 * nan would be nan.
    """

    is_one: Atom
    zeros: Atom
    ones: Atom


@final
@dataclass(frozen=True, slots=True, eq=False)
class _MaskedSum:
    """A sum of a value that is masked by a mask, and a value that is masked by its complement."""

    origin: MaskOrigin
    mask: Atom
    by_complement: Atom
    by_mask: Atom
    eqn: Eqn


def sums_as_choices(graph: Graph, known: Container[Atom]) -> Graph | None:
    """Rewrite sums of complementary masked values as choices; None if there are none.

    The masks must be `known`, the masked values not. All values of the program remain values of the result.
    """
    return _Rewriting(graph, known).run()


@final
class _Rewriting:
    """One pass over the equations of a program."""

    def __init__(self, graph: Graph, known: Container[Atom]) -> None:
        self.graph, self.known = graph, known
        self.b = Builder()
        self.b.n = graph.n
        self.masks: dict[MaskOrigin, _MaskArrays] = {}
        # for each unknown value: the supports outside of which it is 0, and their masks
        self.support: dict[Atom, dict[MaskSupport, Atom]] = {}

    def run(self) -> Graph | None:
        sums = self._masked_sums()
        return self._with_choices(sums) if sums else None

    def _masked_sums(self) -> dict[Atom, _MaskedSum]:
        """Return the sums of masked values, by their results, and record the supports of all values."""
        sums: dict[Atom, _MaskedSum] = {}
        for eqn in self.graph.eqns:
            if isinstance(eqn.prim, Add | Sub | Mul | Neg):
                if isinstance(eqn.prim, Add) and (masked_sum := self._masked_sum(eqn)):
                    sums[eqn.outs[0]] = masked_sum
                self.support[eqn.outs[0]] = self._support(eqn)
        return sums

    def _with_choices(self, sums: dict[Atom, _MaskedSum]) -> Graph:
        """Return the graph with choices in place of the sums and of the masked values in them."""
        origins = dict(self.graph.origins)
        eqns: list[Eqn] = []
        choices: dict[Atom, Eqn] = {}
        for out, masked_sum in sums.items():
            choices[out] = self._choice(masked_sum)
            if origins:
                origins.update({v: origins[out] for e in self.b.eqns for v in e.outs})
            eqns += self.b.eqns
            self.b.eqns.clear()
        eqns += [choices[e.outs[0]] if e.outs and e.outs[0] in choices else self._as_choice(e) for e in self.graph.eqns]
        return Graph.over(self.graph.ins, tuple(eqns), self.b.n, origins)

    # ------------------------------------------------------------------------------ recognising sums of masked values

    def _support_of_factor(self, a: Atom) -> MaskSupport | None:
        """Return the support of a product with a known factor, if this is a mask."""
        if a not in self.known or a.aval.dtype not in dtypes.FLOATING:
            return None
        moves: list[Primitive] = []
        flipped = False
        while (eqn := self.graph.producer.get(a)) is not None:
            if isinstance(eqn.prim, MOVES):
                if not _keeps_masks(a.aval.dtype, eqn.ins[0].aval.dtype):
                    break
                moves.append(eqn.prim)
                a = eqn.ins[0]
            elif isinstance(eqn.prim, Sub) and _is_ones(eqn.ins[0]):
                flipped, a = not flipped, eqn.ins[1]
            elif isinstance(eqn.prim, Not) and a.aval.dtype == dtypes.bool_:
                flipped, a = not flipped, eqn.ins[0]
            else:
                break
        return MaskSupport((a, tuple(moves)), flipped) if isinstance(a, Var) else None

    def _masked_product(self, eqn: Eqn) -> _MaskedProduct | None:
        """Recognise a product of a known mask and an unknown value."""
        if not isinstance(eqn.prim, Mul):
            return None
        for mask, value in (eqn.ins, eqn.ins[::-1]):
            support = self._support_of_factor(mask)
            if support is not None and isinstance(value, Var) and value not in self.known:
                return _MaskedProduct(support, mask, value)
        return None

    def _support(self, eqn: Eqn) -> dict[MaskSupport, Atom]:
        """Return masks such that the result of an equation is 0 outside of each."""
        product = self._masked_product(eqn)
        if product:
            return {**self.support.get(product.value, {}), product.support: product.mask}
        of_operands = [self.support.get(a, {}) for a in eqn.ins]
        if isinstance(eqn.prim, Mul | Neg):
            return {support: mask for masks in of_operands for support, mask in masks.items()}
        first, second = of_operands
        return {support: mask for support, mask in first.items() if support in second}

    def _masked_sum(self, eqn: Eqn) -> _MaskedSum | None:
        """Recognise a sum of two unknown values, one masked by a mask and the other by its complement."""
        if any([a in self.known or not isinstance(a, Var) for a in eqn.ins]):
            return None
        a, b = eqn.ins
        first, second = self.support.get(a, {}), self.support.get(b, {})
        for support, mask in first.items():
            if support.other in second:
                if support.is_complement:
                    return _MaskedSum(support.origin, second[support.other], a, b, eqn)
                return _MaskedSum(support.origin, mask, b, a, eqn)
        return None

    # ------------------------------------------------------------------------------------------------- writing choices

    def _choice(self, masked_sum: _MaskedSum) -> Eqn:
        """Return the choice that equals a sum. Adds the equations that compute its operands to the builder."""
        self.b.source = masked_sum.eqn.source
        mask = self._mask_arrays(masked_sum.origin, masked_sum.mask)
        where_zero = self._unmasked(masked_sum.by_complement, MaskSupport(masked_sum.origin, True))
        where_one = self._unmasked(masked_sum.by_mask, MaskSupport(masked_sum.origin, False))
        guarded = self.b.one(MUL, where_zero, mask.ones)
        return Eqn(SELECT_N, (mask.is_one, guarded, where_one), masked_sum.eqn.outs, masked_sum.eqn.source)

    def _as_choice(self, eqn: Eqn) -> Eqn:
        """Rewrite a masked value as a choice, which reads the value only where the mask is 1."""
        product = self._masked_product(eqn)
        if product is None or product.support.origin not in self.masks:
            return eqn
        mask = self.masks[product.support.origin]
        zeros, value = mask.zeros, product.value
        cases = (value, zeros) if product.support.is_complement else (zeros, value)
        return Eqn(SELECT_N, (mask.is_one, *cases), eqn.outs, eqn.source)

    def _mask_arrays(self, origin: MaskOrigin, mask: Atom) -> _MaskArrays:
        if origin not in self.masks:
            aval, emit = mask.aval, self.b.one
            mask = emit(identity_without_derivative(aval), mask)
            zero, one, nan = Lit.of(0.0, aval), Lit.of(1.0, aval), Lit.of(math.nan, aval)
            is_one, is_zero = emit(EQ, mask, one), emit(EQ, mask, zero)
            zeros, ones = [emit(SELECT_N, is_one, emit(SELECT_N, is_zero, nan, v), v) for v in (zero, one)]
            self.masks[origin] = _MaskArrays(is_one, zeros, ones)
        return self.masks[origin]

    def _unmasked(self, a: Atom, support: MaskSupport) -> Atom:
        """Return a value without the mask of a support. It equals the value where the mask is 1."""
        eqn = self.graph.producer[a]
        product = self._masked_product(eqn)
        if product and product.support == support:
            return product.value
        ins = [self._unmasked(x, support) if support in self.support.get(x, {}) else x for x in eqn.ins]
        return self.b.one(eqn.prim, *ins)


def identity_without_derivative(aval: Aval) -> CallWithRules:
    """Return an identity that refuses to be differentiated: the derivative with respect to a mask is not known.

    Its operand is `captured`, and a function with a derivative rule raises an error for a tangent of a captured value.
    So the rule here is never applied. It must be there: without one, the derivative would be that of the body.
    """
    b = Builder()
    same = b.build(b.inputs([aval]), "coupling_by_a_mask")
    nothing = Builder().build([Zero(aval).instantiate()], "no_derivative")
    return CallWithRules(Function(same, captured=1, rules=Rules(jvp=(Derivative((False,), same, nothing),))))


def _keeps_masks(to: DType, of: DType) -> bool:
    """Return True if a conversion gives 0 and 1 for these numbers only. A conversion of 0.5 to bool gives True, and so
    does that of its complement: the origin of such masks is the result of the conversion."""
    return to in dtypes.INEXACT or holds(to, of)


def _is_ones(a: Atom) -> bool:
    return isinstance(a, Lit) and a.size is None and bool(a.with_shape(()).array == 1)
