"""The series of f(x) for a function f of one real number, composed of the derivatives of f (Faa di Bruno's formula).

f(x) = sum of a_m (x_1 t + x_2 t^2 + ...)^m, where a_m are the coefficients of f(x_0 + t). So coefficient k of f(x) is a
sum over the partitions of k, the ways to write k as a sum of parts: that of (2, 1, 1), of k = 4, is 3 a_3 x_2 x_1^2, as
its parts have 3 orders.

A partition is divided into two halves with similar sums, and partitions with a common half share a product: (2, 2) and
(2, 1, 1) have the half (2,) in common, and give x_2 (a_2 x_2 + 3 a_3 x_1^2).

Source: Johnson, The curious history of Faa di Bruno's formula (2002), for the sum over partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from math import factorial, prod
from typing import Final, TypeAlias, final

from fxad.dtypes import FLOATING
from fxad.ir import Atom, Lit, Primitive, Source
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.family import Unary
from fxad.transforms.jet.nodes import Compute, SeriesAtom, SeriesAtoms, SeriesGraph, SeriesNode, SeriesValue
from fxad.transforms.jet.rows import OneOrder

# The parts of a number, in decreasing order.
Partition: TypeAlias = tuple[int, ...]


@final
class Compositions:
    """The functions of one real number in a graph. `apply` adds an equation to it."""

    def __init__(self, graph: SeriesGraph, apply: Callable[[Primitive, SeriesAtoms, Source], SeriesAtoms]) -> None:
        self.graph: Final = graph
        self.apply: Final = apply
        self._lines: dict[Atom, SeriesValue] = {}  # x_0 + t, by x_0

    def concern(self, prim: Primitive, operands: SeriesAtoms) -> bool:
        """Return True for a function of one real number at a series that is not x_0 + t. `abs` of a complex number has
        no derivative in it."""
        (x, *_) = operands
        return isinstance(prim, Unary) and x.aval.dtype in FLOATING and x not in self._lines.values()

    def compute(self, prim: Primitive, x: SeriesAtom, source: Source) -> Compute:
        """Return the function that computes the coefficients of f(x)."""
        graph = self.graph

        def power(partition: Partition) -> Atom:
            """Return the product of the coefficients x_p of the parts p."""
            if len(partition) == 1:
                c = graph.coefficient(x, partition[0])
                assert c is not None
                return c
            smaller, larger = halves(partition)
            return graph.emit(MUL, power(smaller), power(larger))[0]

        def compute(_: SeriesNode, k: int) -> OneOrder:
            x_0 = graph.at_zero(x)
            if k == 0:
                return graph.emit(prim, x_0)
            (f,) = self.apply(prim, (self._line(x_0),), source)  # its coefficient m is a_m
            # the partitions of k with their factors a_m times the number of orders, by their smaller half
            by_half: dict[Partition, list[tuple[Atom, Partition]]] = {}
            for partition in partitions(k, k):
                a_m = graph.coefficient(f, len(partition))
                if a_m is not None and all([graph.coefficient(x, p) is not None for p in partition]):
                    factor = graph.scaled(a_m, orders_of(partition))
                    by_half.setdefault(halves(partition)[0], []).append((factor, partition))
            terms: list[Atom] = []
            for half, members in by_half.items():
                if len(members) == 1:
                    ((factor, partition),) = members
                    terms.append(graph.emit(MUL, power(partition), factor)[0])
                    continue
                others = [graph.emit(MUL, power(halves(partition)[1]), factor)[0] for factor, partition in members]
                inner = graph.sum(others)
                assert inner is not None
                terms.append(graph.emit(MUL, power(half), inner)[0])
            return (graph.sum(terms),)

        return compute

    def _line(self, x_0: Atom) -> SeriesValue:
        """Return the series x_0 + t."""
        line = self._lines.get(x_0)
        if line is None:
            coefficients = [x_0, Lit.of(1, x_0.aval), *[None] * (self.graph.order - 1)]
            line = self._lines[x_0] = self.graph.leaf(x_0.aval, coefficients)
        return line


def partitions(k: int, most: int) -> list[Partition]:
    """Return the partitions of k into parts that are at most `most`."""
    if k == 0:
        return [()]
    return [(part, *rest) for part in range(min(k, most), 0, -1) for rest in partitions(k - part, part)]


def orders_of(partition: Partition) -> int:
    """Return the number of different orders of the parts."""
    return factorial(len(partition)) // prod([factorial(partition.count(p)) for p in set(partition)])


def halves(partition: Partition) -> tuple[Partition, Partition]:
    """Return the parts as two groups. The first has the greatest sum up to one half, then the fewest parts."""
    counts = Counter(partition)
    groups = [Counter(dict(zip(counts, n, strict=True))) for n in product(*[range(c + 1) for c in counts.values()])]
    smaller = min([c for c in groups if 2 * _sum_of(c) <= sum(partition)], key=lambda c: (-_sum_of(c), c.total()))
    return _decreasing(smaller), _decreasing(counts - smaller)


def _sum_of(parts: Counter[int]) -> int:
    return sum([p * n for p, n in parts.items()])


def _decreasing(parts: Counter[int]) -> Partition:
    return tuple(sorted(parts.elements(), reverse=True))
