"""Rules of comparisons, of bits, and of choices by them: a bit is a number that is 0 or 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from fxad import dtypes
from fxad.diagnosis.equality.domain import EvaluationRule, ExactValue, ProofDomain, Symbolic
from fxad.dtypes import DType
from fxad.ir import Avals, Primitive
from fxad.primitives.elementwise import (
    Eq,
    Ne,
    SelectN,
)
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, Reduction


def wrapping(dtype: DType) -> str:
    """Return what the name of a function needs that reads integers: equal sums of two widths may wrap to others."""
    return "" if dtype in dtypes.INEXACT else f" {dtype}"


def equal(domain: ProofDomain, x: Symbolic, y: Symbolic, dtype: DType) -> Symbolic:
    """Return x == y: a function of the difference, the same for both signs; 1 if it is zero."""
    difference = domain.sub(x, y)
    canonical = difference if difference.is_complex else domain.sign(difference)[0]
    bit = domain.function("zero" + wrapping(dtype), [canonical], bit=True)
    return bit.like(np.where((difference.residues == 0).all(-1, keepdims=True), 1, bit.residues), bit=True)


def less(domain: ProofDomain, x: Symbolic, y: Symbolic, dtype: DType) -> Symbolic:
    """Return x < y. One of x < y, y < x and x == y is 1. Integers wrap, so there the difference does not decide."""
    difference = domain.sub(y, x)
    canonical, flipped = domain.sign(difference)
    if dtype not in dtypes.INEXACT:
        both = [x.residues, y.residues]
        swapped = [np.where(flipped[..., None], a, b) for a, b in (both[::-1], both)]
        bit = domain.function("less" + wrapping(dtype), [Symbolic(r) for r in swapped], bit=True)
    else:
        bit = domain.function("positive", [canonical], bit=True)
    other = domain.sub(domain.negated(equal(domain, x, y, dtype)), bit)
    residues = np.where(flipped[..., None], other.residues, bit.residues)
    same = (difference.residues == 0).all(-1, keepdims=True)
    return bit.like(np.where(same, 0, residues), bit=True)


def compare(f: Callable[[ProofDomain, Symbolic, Symbolic, DType], Symbolic]) -> EvaluationRule:
    """Return the rule of a comparison, from that for numbers."""

    def rule(
        domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
    ) -> list[ExactValue] | None:
        x, y = map(domain.lift, args)
        if ins[0].dtype == dtypes.bool_:
            if type(prim) in (Eq, Ne):
                different = xor(domain, x, y)
                return [different if type(prim) is Ne else domain.negated(different)]
            return None
        if (known := of_bit(domain, prim, args, ins)) is not None:
            return [known]
        return [f(domain, x, y, ins[0].dtype)]

    return rule


def of_bit(domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals) -> Symbolic | None:
    """Return a function of a bit and of constants, by its values for 0 and 1."""
    symbolic = [k for k, x in enumerate(args) if isinstance(x, Symbolic)]
    if len(symbolic) != 1:
        return None
    (k,) = symbolic
    bit = domain.lift(args[k])
    if not bit.bit or bit.is_complex:
        return None
    cases = []
    for value in (0, 1):
        known: list[Any] = list(args)
        known[k] = np.full(ins[k].shape, value, ins[k].dtype)
        cases.append(domain.lift(np.asarray(prim.impl(*known)[0])))
    return domain.choose(bit, *cases)


def both(domain: ProofDomain, x: Symbolic, y: Symbolic) -> Symbolic:
    """Return x and y, of bits: their product."""
    product = domain.mul(x, y)
    residues = np.where((x.residues == y.residues).all(-1, keepdims=True), x.residues, product.residues)
    opposite = (domain.negated(x).residues == y.residues).all(-1, keepdims=True)
    return product.like(np.where(opposite, 0, residues), bit=True)


def either(domain: ProofDomain, x: Symbolic, y: Symbolic) -> Symbolic:
    """Return x or y, of bits."""
    return domain.negated(both(domain, domain.negated(x), domain.negated(y)))


def xor(domain: ProofDomain, x: Symbolic, y: Symbolic) -> Symbolic:
    """Return where two bits differ."""
    one = domain.sub(domain.add(x, y), domain.mul(domain.constant(2), domain.mul(x, y)))
    one = one.like(np.where((x.residues == y.residues).all(-1, keepdims=True), 0, one.residues), bit=True)
    opposite = (domain.negated(x).residues == y.residues).all(-1, keepdims=True)
    return one.like(np.where(opposite, 1, one.residues), bit=True)


def of_bits(f: Callable[..., Symbolic]) -> EvaluationRule:
    """Return the rule that holds for bits alone; integers have none."""
    return lambda domain, prim, args, ins, outs: (
        [f(domain, *map(domain.lift, args))] if ins[0].dtype == dtypes.bool_ else None
    )


def reduce_bits(
    domain: ProofDomain, prim: Reduction, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return whether all bits along axes are 1, or any is."""
    if ins[0].dtype != dtypes.bool_:
        return None
    x = domain.lift(args[0])
    any_of = isinstance(prim, ReduceOr | ReduceMax)
    x = domain.negated(x) if any_of else x
    if not isinstance(prim, ReduceOr | ReduceMax | ReduceAnd | ReduceMin):
        return None
    residues = x.residues
    for axis in sorted(prim.axes, reverse=True):
        residues = domain.field.product(residues, axis)
    count = prod([ins[0].shape[a] for a in prim.axes])
    product = domain.made(residues, False, max(x.degree * count, 0.0), x.level)
    product.bit = True
    return [domain.negated(product) if any_of else product]


def select(
    domain: ProofDomain, prim: SelectN, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return the cases that integers or bits select, element by element."""
    which, *cases = args
    if not isinstance(which, Symbolic):
        return None
    return [case_of(domain, which, [domain.lift(c) for c in cases], ins[0].dtype)]


def case_of(domain: ProofDomain, which: Symbolic, cases: Sequence[Symbolic], dtype: DType) -> Symbolic:
    """Return the case that an integer selects, which is clamped to their number."""
    out = cases[0]
    for k, case in enumerate(cases[1:], 1):
        if which.bit and k == 1:
            here = which
        elif which.bit:  # a bit selects none of the other cases
            break
        else:
            here = domain.function(f"case {k} of {len(cases)}{wrapping(dtype)}", [which], bit=True)
        if np.array_equal(case.residues, cases[0].residues):
            continue
        out = domain.add(out, domain.mul(here, domain.sub(case, cases[0])))
    return out.like(out.residues, all([c.bit for c in cases]))
