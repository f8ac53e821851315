"""Rules of maxima and minima.

max is a sum, behind a random bijection g: max(x, y) = g^-1(g(x) + g(y)). So it is commutative and associative, as a
reduction in any order must be, and -inf is its identity. An operand that occurs twice in nested maxima is taken once.
The least float is minus the largest of the negated ones; integers wrap, so their minimum has a bijection of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, final

import numpy as np

from fxad import dtypes
from fxad.diagnosis.equality.bits import both, either, reduce_bits, wrapping
from fxad.diagnosis.equality.domain import EvaluationRule, ExactValue, ProofDomain, Symbolic
from fxad.diagnosis.equality.field import Residues
from fxad.ir import Aval, Avals, NDArray, Primitive
from fxad.primitives.cumulative import CumMin
from fxad.primitives.elementwise import Clamp
from fxad.primitives.reduce import ReduceMin, Reduction


def extremum(sign: int) -> EvaluationRule:
    """Return the rule of the larger (1) or the smaller (-1) of two values."""

    def rule(domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals) -> list[ExactValue]:
        x, y = map(domain.lift, args)
        if ins[0].dtype == dtypes.bool_:
            return [either(domain, x, y) if sign > 0 else both(domain, x, y)]
        return [_larger(domain, _Order(domain, sign, ins[0]), x, y)]

    return rule


@final
class _Order:
    """The bijection of an extremum: `encode` to summands, `decode` from a sum."""

    def __init__(self, domain: ProofDomain, sign: int, aval: Aval) -> None:
        self.domain = domain
        self.negate = sign < 0 and aval.inexact
        self.name = "max" if aval.inexact else ("max" if sign > 0 else "min") + wrapping(aval.dtype)
        self.identity = domain.field.neg(domain.infinity)

    @property
    def key(self) -> tuple[str, bool]:
        """The name of the order and its sign: equal for equal orders."""
        return self.name, self.negate

    def encode(self, x: Symbolic) -> Residues:
        residues = self.domain.field.neg(x.residues) if self.negate else x.residues
        lowest = (residues == self.identity).all(-1, keepdims=True)
        return np.where(lowest, 0, self.domain.field.encode(self.name, residues))

    def decode(self, total: Residues, *args: Symbolic) -> Symbolic:
        made = self.domain.field.encode(self.name, total, back=True)
        made = np.where((total == 0).all(-1, keepdims=True), self.identity, made)
        made = self.domain.field.neg(made) if self.negate else made
        self.domain.calls["extremum"] += prod(made.shape[:-1])
        degree, level = max([1.0, *[a.degree for a in args]]), max([a.level for a in args])
        return self.domain.made(made, False, degree, level)


def _larger(domain: ProofDomain, order: _Order, x: Symbolic, y: Symbolic) -> Symbolic:
    """Return the extremum of two values. What both are extrema of is taken once: max(max(x, y), x) is max(x, y)."""
    ours, theirs = _joined(order, x), _joined(order, y)
    total = domain.field.add(order.encode(x), order.encode(y))
    if len(ours) * len(theirs) <= _MOST_JOINED:
        for k, leaf in enumerate(theirs):
            twice = np.logical_and(
                _among(leaf, ours), np.logical_not(_among(leaf, theirs[:k]))
            )  # the first time among those of y
            if twice.any():
                total = np.where(twice, domain.field.sub(total, order.encode(y.like(leaf))), total)
    larger = order.decode(total, x, y)
    larger.joined = order.key, (*ours, *theirs)
    return larger


def _joined(order: _Order, x: Symbolic) -> tuple[Residues, ...]:
    """Return the values of which a value is the extremum."""
    return x.joined[1] if x.joined is not None and x.joined[0] == order.key else (x.residues,)


def _among(x: Residues, others: Sequence[Residues]) -> NDArray:
    """Return where elements are those of one of the others."""
    return np.asarray(sum([(x == y).all(-1, keepdims=True) for y in others], np.False_), np.bool_)


_MOST_JOINED: Final = 64  # greatest number of pairs of values that are compared


def clamp(domain: ProofDomain, prim: Clamp, args: list[ExactValue], ins: Avals, outs: Avals) -> list[ExactValue] | None:
    """Return x between two bounds."""
    if ins[1].dtype == dtypes.bool_:
        return None
    low, x, high = map(domain.lift, args)
    low, high = [a.like(np.broadcast_to(a.residues, x.residues.shape)) for a in (low, high)]
    above = _larger(domain, _Order(domain, 1, ins[1]), low, x)
    return [_larger(domain, _Order(domain, -1, ins[1]), above, high)]


def reduce_extremum(
    domain: ProofDomain, prim: Reduction, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return the extremum along axes."""
    if ins[0].dtype == dtypes.bool_:
        return reduce_bits(domain, prim, args, ins, outs)
    x, order = domain.lift(args[0]), _Order(domain, -1 if isinstance(prim, ReduceMin) else 1, ins[0])
    return [order.decode(domain.field.total(order.encode(x), prim.axes), x)]


def cumulative_extremum(
    domain: ProofDomain, prim: Any, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue] | None:
    """Return the running extremum along an axis."""
    x = domain.lift(args[0])
    if ins[0].dtype == dtypes.bool_:
        return None
    order = _Order(domain, -1 if isinstance(prim, CumMin) else 1, ins[0])
    rows = running(domain.field.add, order.encode(x), prim.axis, prim.reverse)
    return [order.decode(rows, x)]


def running(f: Callable[[Residues, Residues], Residues], x: Residues, axis: int, reverse: bool) -> Residues:
    """Return the running total along an axis."""
    rows = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
    done = [rows[0]]
    for row in rows[1:]:
        done.append(f(done[-1], row))
    return np.moveaxis(np.stack(done[:: -1 if reverse else 1]), 0, axis)
