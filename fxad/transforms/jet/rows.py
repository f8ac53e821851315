"""Shorter rules of a few primitives: a coefficient of the result from lower ones.

A row pays where the derived rule leads from one equation to another of the same kind, once per order. The quotient
z = x / y is such a one: its tangent is a quotient again, with another numerator. From x = y z follows
z_k = (x_k - y_1 z_{k-1} - ... - y_k z_0) / y_0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Flags, Primitive, Var
from fxad.primitives.elementwise.arithmetic import DIV, MUL, NEG, SUB

# The coefficients of one order, of all results; None is zero.
OneOrder: TypeAlias = tuple[Atom | None, ...]
# Coefficient k of an operand.
CoefficientOf: TypeAlias = Callable[[int], Atom | None]


class Emitter(Protocol):
    """The interface of the builder of series in a row."""

    def emit(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        """Add an equation, or return the results of an equal one."""

    def sum(self, terms: Sequence[Atom]) -> Atom | None:
        """Return the sum of terms; None if there are none."""


@final
@dataclass(frozen=True, slots=True)
class SeriesRow:
    """`series(emitter, k, operands, known)` is coefficient k of the result; `known` are the coefficients before it.
    `applies` says for which varying operands the row is."""

    series: Callable[[Emitter, int, Sequence[CoefficientOf], Sequence[Atom | None]], Atom | None]
    applies: Callable[[Flags], bool]


def _quotient(e: Emitter, k: int, operands: Sequence[CoefficientOf], known: Sequence[Atom | None]) -> Atom | None:
    x, y = operands
    first = y(0)
    assert first is not None
    products: list[Atom] = []
    for j in range(1, k + 1):
        a, b = y(j), known[k - j]
        if a is not None and b is not None:
            products.append(e.emit(MUL, a, b)[0])
    numerator, total = x(k), e.sum(products)
    if total is not None:
        numerator = e.emit(NEG, total)[0] if numerator is None else e.emit(SUB, numerator, total)[0]
    return None if numerator is None else e.emit(DIV, numerator, first)[0]


ROWS: Final[Mapping[type[Primitive], SeriesRow]] = MappingProxyType(
    {type(DIV): SeriesRow(_quotient, lambda varies: varies[1])}
)
