"""Shorter rules of a few primitives: a coefficient of the result from lower ones.

A row pays where the derived rule leads from one equation to another of the same kind, once per order, or to several
products of series. The quotient z = x / y is of the first kind: its tangent is a quotient again, with another
numerator. From x = y z follows z_k = (x_k - y_1 z_{k-1} - ... - y_k z_0) / y_0.

The others are of the second kind. With (y^2)_k = 2 y_0 y_k + 2 y_1 y_{k-1} + ..., half of a product:

- y = x^2, and y = sqrt(x), where x_k = (y^2)_k;
- y = tanh(x), where y' = (1 - y^2) x', and y = 1 / (1 + exp(-x)) - 1/2, where y' = (1/4 - y^2) x'. The factor at
  t = 0 is computed from x, because 1 - y^2 has no digit left where y is close to 1. Its coefficients have all digits:
  each term has a factor y_k, which is small there.

Up to order 2 these rows are no shorter, and the derived ones are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Aval, Flags, Primitive, Var
from fxad.primitives.elementwise.arithmetic import DIV, MUL, NEG, SUB
from fxad.primitives.elementwise.family import literal_like
from fxad.primitives.elementwise.powers import IntegerPow, Sqrt, Square
from fxad.primitives.elementwise.sigmoid import SECH2, TANH, Logistic, Tanh

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

    def scaled(self, a: Atom, factor: int) -> Atom:
        """Return a multiple of a value."""

    def divided(self, a: Atom, divisor: int) -> Atom:
        """Return a fraction of a value."""


@final
@dataclass(frozen=True, slots=True)
class SeriesRow:
    """`series(emitter, k, operands, lower)` is coefficient k > 0 of the result; `lower` are the coefficients before it.
    `applies` says for which equations with which varying operands the row is, `least` from which order on it pays."""

    series: Callable[[Emitter, int, Sequence[CoefficientOf], Sequence[Atom | None]], Atom | None]
    applies: Callable[[Primitive, Sequence[Aval], Flags], bool]
    least: int = 1


def _present(coefficient: Atom | None) -> Atom:
    """Return a coefficient that is not a symbolic zero, as the first one of every series."""
    assert coefficient is not None
    return coefficient


def _product(e: Emitter, a: Atom | None, b: Atom | None) -> Atom | None:
    return None if a is None or b is None else e.emit(MUL, a, b)[0]


def _difference(e: Emitter, a: Atom | None, b: Atom | None) -> Atom | None:
    """Return a - b; None is zero."""
    if b is None:
        return a
    return e.emit(NEG, b)[0] if a is None else e.emit(SUB, a, b)[0]


def _sum(e: Emitter, terms: Sequence[Atom | None]) -> Atom | None:
    return e.sum([t for t in terms if t is not None])


def _squared(e: Emitter, values: Sequence[Atom | None], k: int, start: int = 0) -> Atom | None:
    """Return coefficient k of the square of a series, of the products of coefficients from `start` on."""
    half = _sum(e, [_product(e, values[j], values[k - j]) for j in range(start, (k + 1) // 2)])
    middle = _product(e, values[k // 2], values[k // 2]) if k % 2 == 0 and k // 2 >= start else None
    return _sum(e, [None if half is None else e.scaled(half, 2), middle])


def _quotient(e: Emitter, k: int, operands: Sequence[CoefficientOf], lower: Sequence[Atom | None]) -> Atom | None:
    x, y = operands
    divisor = _present(y(0))
    numerator = _difference(e, x(k), _sum(e, [_product(e, y(j), lower[k - j]) for j in range(1, k + 1)]))
    return None if numerator is None else e.emit(DIV, numerator, divisor)[0]


def _square(e: Emitter, k: int, operands: Sequence[CoefficientOf], _: Sequence[Atom | None]) -> Atom | None:
    (x,) = operands
    return _squared(e, [x(j) for j in range(k + 1)], k)


def _root(e: Emitter, k: int, operands: Sequence[CoefficientOf], lower: Sequence[Atom | None]) -> Atom | None:
    (x,) = operands
    numerator = _difference(e, x(k), _squared(e, lower, k, 1))
    return None if numerator is None else e.emit(DIV, numerator, e.scaled(_present(lower[0]), 2))[0]


def _tanh(e: Emitter, k: int, operands: Sequence[CoefficientOf], lower: Sequence[Atom | None]) -> Atom | None:
    (x,) = operands
    return _sigmoid(e, k, x, e.emit(SECH2, _present(x(0)))[0], lower)


def _logistic(e: Emitter, k: int, operands: Sequence[CoefficientOf], lower: Sequence[Atom | None]) -> Atom | None:
    (x,) = operands
    x_0 = _present(x(0))
    (half,) = e.emit(MUL, x_0, literal_like(0.5, x_0))
    slope, centre = [
        e.emit(MUL, e.emit(of, half)[0], literal_like(factor, x_0))[0] for of, factor in ((SECH2, 0.25), (TANH, 0.5))
    ]
    return _sigmoid(e, k, x, slope, [centre, *lower[1:]])


def _sigmoid(e: Emitter, k: int, x: CoefficientOf, slope: Atom, y: Sequence[Atom | None]) -> Atom | None:
    """Return coefficient k of y where y' = (c - y^2) x' for some constant c, and `slope` is c - y^2 at t = 0."""
    rates = [_scaled(e, x(j), j) for j in range(1, k + 1)]
    others = _sum(e, [_product(e, rates[j - 1], _squared(e, y, k - j)) for j in range(1, k)])
    total = _difference(e, _product(e, rates[k - 1], slope), others)
    return None if total is None else e.divided(total, k)


def _scaled(e: Emitter, a: Atom | None, factor: int) -> Atom | None:
    return None if a is None else e.scaled(a, factor)


def _of_reals(_: Primitive, avals: Sequence[Aval], __: Flags) -> bool:
    return avals[0].dtype in dtypes.FLOATING


def _of_inexact(prim: Primitive, avals: Sequence[Aval], _: Flags) -> bool:
    return avals[0].inexact and (not isinstance(prim, IntegerPow) or prim.n == 2)


def _varying_divisor(_: Primitive, __: Sequence[Aval], varies: Flags) -> bool:
    return varies[1]


ROWS: Final[Mapping[type[Primitive], SeriesRow]] = MappingProxyType(
    {
        type(DIV): SeriesRow(_quotient, _varying_divisor),
        Square: SeriesRow(_square, _of_inexact, 3),
        IntegerPow: SeriesRow(_square, _of_inexact, 3),
        Sqrt: SeriesRow(_root, _of_inexact, 3),
        Tanh: SeriesRow(_tanh, _of_reals, 3),
        Logistic: SeriesRow(_logistic, _of_reals, 3),
    }
)
