"""The special cases of the standard, as data: arguments and results.

A case of real numbers is `(arguments, result)`, one of complex numbers `(a, b, re, im)` for the argument a + bi. If the
standard names a range of numbers ("greater than 1", "finite"), samples of it are listed. `Either(v)` is v with either
sign. Zeros have exact signs; values such as pi/2 are approximate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import cos, inf, nan, pi, sin
from typing import TypeAlias

POSITIVE = (0.5, 1.0, 2.5, 1e30)  # the standard's "positive finite"
NEGATIVE = tuple(-v for v in POSITIVE)
NONZERO = (*POSITIVE, *NEGATIVE)
ZEROS = (0.0, -0.0)
FINITE = (*NONZERO, *ZEROS)
INFINITIES = (inf, -inf)
NUMBERS = (*FINITE, *INFINITIES)  # all except nan
EVERYTHING = (*NUMBERS, nan)


@dataclass(frozen=True)
class Either:
    """A value of either sign."""

    value: float


Expected: TypeAlias = "float | bool | Either"
Real: TypeAlias = tuple[tuple[float, ...], Expected]
Complex: TypeAlias = tuple[float, float, Expected, Expected]


def same(*values: float) -> list[Real]:
    """The function returns its argument."""
    return [((v,), v) for v in values]


def each(values: tuple[float, ...], result: Expected) -> list[Real]:
    return [((v,), result) for v in values]


def pairs(xs: tuple[float, ...], ys: tuple[float, ...], result: Expected) -> list[Real]:
    return [((x, y), result) for x, y in product(xs, ys)]


def both_ways(xs: tuple[float, ...], ys: tuple[float, ...], result: Expected) -> list[Real]:
    return pairs(xs, ys, result) + pairs(ys, xs, result)


_NAN = (nan,)
_NANS = both_ways(_NAN, EVERYTHING, nan)
_ROUND = same(inf, -inf, 0.0, -0.0, nan, 3.0, -7.0, 1e30)
_ODD = same(nan, 0.0, -0.0)  # special cases of every odd function

UNARY: dict[str, list[Real]] = {
    "abs": [((nan,), nan), ((-0.0,), 0.0), ((-inf,), inf)],
    "acos": [((nan,), nan), *each((1.5, 2.0, inf, -1.5, -2.0, -inf), nan), ((1.0,), 0.0)],
    "acosh": [((nan,), nan), *each((0.5, 0.0, -1.0, -inf), nan), ((1.0,), 0.0), ((inf,), inf)],
    "asin": [*_ODD, *each((1.5, 2.0, inf, -1.5, -2.0, -inf), nan)],
    "asinh": [*_ODD, *same(inf, -inf)],
    "atan": [*_ODD, ((inf,), pi / 2), ((-inf,), -pi / 2)],
    "atanh": [*_ODD, *each((-1.5, -inf, 1.5, inf), nan), ((-1.0,), -inf), ((1.0,), inf)],
    "ceil": [*_ROUND, ((-0.5,), -0.0), ((0.5,), 1.0)],
    "cos": [((nan,), nan), *each(ZEROS, 1.0), *each(INFINITIES, nan)],
    "cosh": [((nan,), nan), *each(ZEROS, 1.0), *each(INFINITIES, inf)],
    "exp": [((nan,), nan), *each(ZEROS, 1.0), ((inf,), inf), ((-inf,), 0.0)],
    "expm1": [*_ODD, ((inf,), inf), ((-inf,), -1.0)],
    "floor": [*_ROUND, ((-0.5,), -1.0), ((0.5,), 0.0)],
    "isfinite": [*each((*INFINITIES, nan), False), *each(FINITE, True)],
    "isinf": [*each(INFINITIES, True), *each((*FINITE, nan), False)],
    "isnan": [((nan,), True), *each(NUMBERS, False)],
    "log": [((nan,), nan), *each((*NEGATIVE, -inf), nan), *each(ZEROS, -inf), ((1.0,), 0.0), ((inf,), inf)],
    "log1p": [*_ODD, *each((-1.5, -inf), nan), ((-1.0,), -inf), ((inf,), inf)],
    "log2": [((nan,), nan), *each((*NEGATIVE, -inf), nan), *each(ZEROS, -inf), ((1.0,), 0.0), ((inf,), inf)],
    "log10": [((nan,), nan), *each((*NEGATIVE, -inf), nan), *each(ZEROS, -inf), ((1.0,), 0.0), ((inf,), inf)],
    "reciprocal": [((nan,), nan), ((0.0,), inf), ((-0.0,), -inf), ((inf,), 0.0), ((-inf,), -0.0)],
    "round": [*_ROUND, ((0.5,), 0.0), ((-0.5,), -0.0), ((1.5,), 2.0), ((2.5,), 2.0), ((-1.5,), -2.0)],
    "sign": [*each((*NEGATIVE, -inf), -1.0), *each((*POSITIVE, inf), 1.0), *each(ZEROS, Either(0.0)), ((nan,), nan)],
    "signbit": [((0.0,), False), ((-0.0,), True), *each((*POSITIVE, inf), False), *each((*NEGATIVE, -inf), True)]
    + [((nan,), False), ((-nan,), True)],
    "sin": [*_ODD, *each(INFINITIES, nan)],
    "sinh": [*_ODD, *same(inf, -inf)],
    "sqrt": [((nan,), nan), *each((*NEGATIVE, -inf), nan), *same(0.0, -0.0, inf)],
    "square": [((nan,), nan), *each(ZEROS, 0.0), *each(INFINITIES, inf)],
    "tan": [*_ODD, *each(INFINITIES, nan)],
    "tanh": [*_ODD, ((inf,), 1.0), ((-inf,), -1.0)],
    "trunc": [*_ROUND, ((-0.5,), -0.0), ((0.5,), 0.0)],
}

_SIGNED_QUOTIENTS: list[Real] = [
    *_NANS,
    *pairs(INFINITIES, INFINITIES, nan),
    *pairs(ZEROS, ZEROS, nan),
    *pairs((0.0,), (*POSITIVE, inf), 0.0),
    *pairs((-0.0,), (*POSITIVE, inf), -0.0),
    *pairs((0.0,), (*NEGATIVE, -inf), -0.0),
    *pairs((-0.0,), (*NEGATIVE, -inf), 0.0),
    *pairs((*POSITIVE, inf), (0.0,), inf),
    *pairs((*POSITIVE, inf), (-0.0,), -inf),
    *pairs((*NEGATIVE, -inf), (0.0,), -inf),
    *pairs((*NEGATIVE, -inf), (-0.0,), inf),
    *pairs(POSITIVE, (inf,), 0.0),
    *pairs(NEGATIVE, (-inf,), 0.0),
]

_ODD_INTEGERS = (1.0, 3.0, 5.0)
_NOT_ODD = (0.5, 2.0, 2.5, 4.0)
_BIG = (1.5, -1.5, 2.0, -3.0, inf, -inf)  # magnitudes above 1
_SMALL = (0.5, -0.5, 0.0, -0.0)

BINARY: dict[str, list[Real]] = {
    "add": [
        *_NANS,
        *both_ways((inf,), (-inf,), nan),
        *both_ways((inf,), (*FINITE, inf), inf),
        *both_ways((-inf,), (*FINITE, -inf), -inf),
        ((-0.0, -0.0), -0.0),
        *both_ways((-0.0,), (0.0,), 0.0),
        ((0.0, 0.0), 0.0),
        *[((z, v), v) for z, v in product(ZEROS, NONZERO)],
        *[((v, z), v) for z, v in product(ZEROS, NONZERO)],
        *[((v, -v), 0.0) for v in NONZERO],
    ],
    "subtract": [
        *_NANS,
        ((inf, inf), nan),
        ((-inf, -inf), nan),
        ((inf, -inf), inf),
        ((-inf, inf), -inf),
        ((-0.0, 0.0), -0.0),
        ((0.0, 0.0), 0.0),
        ((-0.0, -0.0), 0.0),
        *[((v, v), 0.0) for v in NONZERO],
    ],
    "atan2": [
        *_NANS,
        *pairs(POSITIVE, ZEROS, pi / 2),
        *pairs((0.0,), (*POSITIVE, 0.0, inf), 0.0),
        *pairs((0.0,), (*NEGATIVE, -0.0, -inf), pi),
        *pairs((-0.0,), (*POSITIVE, 0.0, inf), -0.0),
        *pairs((-0.0,), (*NEGATIVE, -0.0, -inf), -pi),
        *pairs(NEGATIVE, ZEROS, -pi / 2),
        *pairs(POSITIVE, (inf,), 0.0),
        *pairs(POSITIVE, (-inf,), pi),
        *pairs(NEGATIVE, (inf,), -0.0),
        *pairs(NEGATIVE, (-inf,), -pi),
        *pairs((inf,), FINITE, pi / 2),
        *pairs((-inf,), FINITE, -pi / 2),
        ((inf, inf), pi / 4),
        ((inf, -inf), 3 * pi / 4),
        ((-inf, inf), -pi / 4),
        ((-inf, -inf), -3 * pi / 4),
    ],
    "copysign": [
        *[((x, y), -abs(x)) for x, y in product(NUMBERS, (*NEGATIVE, -0.0, -inf, -nan))],
        *[((x, y), abs(x)) for x, y in product(NUMBERS, (*POSITIVE, 0.0, inf, nan))],
        *pairs((nan, -nan), EVERYTHING, nan),
    ],
    "divide": [
        *_SIGNED_QUOTIENTS,
        *pairs(POSITIVE, (-inf,), -0.0),
        *pairs(NEGATIVE, (inf,), -0.0),
        *pairs((inf,), POSITIVE, inf),
        *pairs((inf,), NEGATIVE, -inf),
        *pairs((-inf,), POSITIVE, -inf),
        *pairs((-inf,), NEGATIVE, inf),
    ],
    "floor_divide": [  # if the standard gives a choice, the case is Python's: `%` has the sign of the divisor
        *_SIGNED_QUOTIENTS,
        *pairs(POSITIVE, (-inf,), -1.0),
        *pairs(NEGATIVE, (inf,), -1.0),
        *pairs(INFINITIES, NONZERO, nan),
    ],
    "remainder": [
        *_NANS,
        *pairs(INFINITIES, INFINITIES, nan),
        *pairs(ZEROS, ZEROS, nan),
        *pairs(ZEROS, (*POSITIVE, inf), 0.0),
        *pairs(ZEROS, (*NEGATIVE, -inf), -0.0),
        *pairs((*NONZERO, *INFINITIES), ZEROS, nan),
        *pairs(INFINITIES, NONZERO, nan),
        *[((x, inf), x) for x in POSITIVE],
        *pairs(POSITIVE, (-inf,), -inf),
        *pairs(NEGATIVE, (inf,), inf),
        *[((x, -inf), x) for x in NEGATIVE],
        *[((x, y), x % y) for x, y in product((0.5, 2.5, 7.0, -7.0, 6.0, -6.0), (0.5, 2.0, -2.0, 3.0, -3.0))],
    ],
    "equal": [
        *both_ways(_NAN, EVERYTHING, False),
        *[((x, x), True) for x in NUMBERS],
        *pairs(ZEROS, ZEROS, True),
        *both_ways((inf,), (*FINITE, -inf), False),
    ],
    "not_equal": [
        *both_ways(_NAN, EVERYTHING, True),
        *[((x, x), False) for x in NUMBERS],
        *pairs(ZEROS, ZEROS, False),
        *both_ways((inf,), (*FINITE, -inf), True),
    ],
    "hypot": [
        *both_ways(INFINITIES, EVERYTHING, inf),
        *[((z, v), abs(v)) for z, v in product(ZEROS, FINITE)],
        *[((v, z), abs(v)) for z, v in product(ZEROS, FINITE)],
        *both_ways(_NAN, (*FINITE, nan), nan),
    ],
    "logaddexp": [*_NANS, *both_ways((inf,), NUMBERS, inf), ((-inf, -inf), -inf)],
    "maximum": [*_NANS, *both_ways((inf,), NUMBERS, inf)],
    "minimum": [*_NANS, *both_ways((-inf,), NUMBERS, -inf)],
    "multiply": [
        *_NANS,
        *both_ways(INFINITIES, ZEROS, nan),
        *both_ways((inf,), (*POSITIVE, inf), inf),
        *both_ways((-inf,), (*NEGATIVE, -inf), inf),
        *both_ways((inf,), (*NEGATIVE, -inf), -inf),
        *both_ways((-inf,), (*POSITIVE, inf), -inf),
        *both_ways((0.0,), (*POSITIVE, 0.0), 0.0),
        *both_ways((0.0,), (*NEGATIVE, -0.0), -0.0),
        ((-0.0, -0.0), 0.0),
    ],
    "nextafter": [*_NANS, ((-0.0, 0.0), 0.0), ((0.0, -0.0), -0.0), *[((x, x), x) for x in NUMBERS]],
    "pow": [
        *pairs(tuple(x for x in EVERYTHING if x != 1), _NAN, nan),
        *pairs(EVERYTHING, ZEROS, 1.0),
        *pairs(_NAN, (*NONZERO, *INFINITIES, nan), nan),
        *pairs(_BIG, (inf,), inf),
        *pairs(_BIG, (-inf,), 0.0),
        *pairs((1.0, -1.0), INFINITIES, 1.0),
        *pairs((1.0,), NUMBERS, 1.0),
        *pairs(_SMALL, (inf,), 0.0),
        *pairs(_SMALL, (-inf,), inf),
        *pairs((inf,), (*POSITIVE, inf), inf),
        *pairs((inf,), (*NEGATIVE, -inf), 0.0),
        *pairs((-inf,), _ODD_INTEGERS, -inf),
        *pairs((-inf,), _NOT_ODD, inf),
        *pairs((-inf,), tuple(-y for y in _ODD_INTEGERS), -0.0),
        *pairs((-inf,), tuple(-y for y in _NOT_ODD), 0.0),
        *pairs((0.0,), POSITIVE, 0.0),
        *pairs((0.0,), NEGATIVE, inf),
        *pairs((-0.0,), _ODD_INTEGERS, -0.0),
        *pairs((-0.0,), _NOT_ODD, 0.0),
        *pairs((-0.0,), tuple(-y for y in _ODD_INTEGERS), -inf),
        *pairs((-0.0,), tuple(-y for y in _NOT_ODD), inf),
        *pairs(NEGATIVE[:3], (0.5, -0.5, 2.5), nan),
    ],
}

# ---------------------------------------------------------------------------------------------------- complex numbers

_ANY_ZERO, _ANY_INF, _ANY_NAN = Either(0.0), Either(inf), nan
_SOME = (0.5, 1.0, 2.0, 3.0)
_SOME_NONZERO = (*_SOME, *[-v for v in _SOME])
_SOME_FINITE = (*_SOME_NONZERO, *ZEROS)


def grid(xs: tuple[float, ...], ys: tuple[float, ...], re: Expected, im: Expected) -> list[Complex]:
    return [(a, b, re, im) for a, b in product(xs, ys)]


_ALL_NAN = (nan, nan, nan, nan)

# The conjugate law f(conj(z)) = conj(f(z)) holds for each function. The cases state b >= 0, and the test adds the
# others.
COMPLEX: dict[str, list[Complex]] = {
    "acos": [
        *grid(ZEROS, (0.0,), pi / 2, -0.0),
        *grid(ZEROS, (nan,), pi / 2, nan),
        *grid(_SOME_FINITE, (inf,), pi / 2, -inf),
        *grid(_SOME_NONZERO, (nan,), nan, nan),
        *grid((-inf,), _SOME, pi, -inf),
        *grid((inf,), _SOME, 0.0, -inf),
        (-inf, inf, 3 * pi / 4, -inf),
        (inf, inf, pi / 4, -inf),
        *grid(INFINITIES, (nan,), nan, _ANY_INF),
        *grid((nan,), _SOME_FINITE, nan, nan),
        (nan, inf, nan, -inf),
        _ALL_NAN,
    ],
    "acosh": [
        *grid(ZEROS, (0.0,), 0.0, pi / 2),
        *grid(_SOME_FINITE, (inf,), inf, pi / 2),
        *grid(_SOME_NONZERO, (nan,), nan, nan),
        (0.0, nan, nan, Either(pi / 2)),
        *grid((-inf,), _SOME, inf, pi),
        *grid((inf,), _SOME, inf, 0.0),
        (-inf, inf, inf, 3 * pi / 4),
        (inf, inf, inf, pi / 4),
        *grid(INFINITIES, (nan,), inf, nan),
        *grid((nan,), _SOME_FINITE, nan, nan),
        (nan, inf, inf, nan),
        _ALL_NAN,
    ],
    "asinh": [
        (0.0, 0.0, 0.0, 0.0),
        *grid(_SOME, (inf,), inf, pi / 2),
        *grid(_SOME_FINITE, (nan,), nan, nan),
        *grid((inf,), _SOME, inf, 0.0),
        (inf, inf, inf, pi / 4),
        (nan, 0.0, nan, 0.0),
        *grid((nan,), _SOME_NONZERO, nan, nan),
        (nan, inf, _ANY_INF, nan),
        _ALL_NAN,
    ],
    "atanh": [
        (0.0, 0.0, 0.0, 0.0),
        (0.0, nan, 0.0, nan),
        (1.0, 0.0, inf, 0.0),
        *grid(_SOME, (inf,), 0.0, pi / 2),
        *grid(_SOME_NONZERO, (nan,), nan, nan),
        *grid((inf,), (*_SOME, inf), 0.0, pi / 2),
        (inf, nan, 0.0, nan),
        *grid((nan,), _SOME_FINITE, nan, nan),
        (nan, inf, _ANY_ZERO, pi / 2),
        _ALL_NAN,
    ],
    "cosh": [
        (0.0, 0.0, 1.0, 0.0),
        (0.0, inf, nan, _ANY_ZERO),
        (0.0, nan, nan, _ANY_ZERO),
        *grid(_SOME_NONZERO, (inf, nan), nan, nan),
        (inf, 0.0, inf, 0.0),
        *[(inf, b, inf * cos(b), inf * sin(b)) for b in _SOME],
        (inf, inf, _ANY_INF, nan),
        (inf, nan, inf, nan),
        *grid((nan,), ZEROS, nan, _ANY_ZERO),
        *grid((nan,), _SOME_NONZERO, nan, nan),
        _ALL_NAN,
    ],
    "exp": [
        *grid(ZEROS, (0.0,), 1.0, 0.0),
        *grid(_SOME_FINITE, (inf, nan), nan, nan),
        (inf, 0.0, inf, 0.0),
        *[(-inf, b, 0.0 * cos(b), 0.0 * sin(b)) for b in (*_SOME, 0.0)],
        *[(inf, b, inf * cos(b), inf * sin(b)) for b in _SOME],
        *grid((-inf,), (inf, nan), _ANY_ZERO, _ANY_ZERO),
        *grid((inf,), (inf, nan), _ANY_INF, nan),
        (nan, 0.0, nan, 0.0),
        *grid((nan,), (*_SOME_NONZERO, inf), nan, nan),
        _ALL_NAN,
    ],
    "expm1": [
        *grid(ZEROS, (0.0,), _ANY_ZERO, 0.0),
        *grid(_SOME_FINITE, (inf, nan), nan, nan),
        (inf, 0.0, inf, 0.0),
        *[(-inf, b, -1.0, 0.0 * sin(b)) for b in (*_SOME, 0.0)],
        *[(inf, b, inf * cos(b), inf * sin(b)) for b in _SOME],
        *grid((-inf,), (inf, nan), -1.0, _ANY_ZERO),
        *grid((inf,), (inf, nan), _ANY_INF, nan),
        (nan, 0.0, nan, 0.0),
        *grid((nan,), (*_SOME_NONZERO, inf), nan, nan),
        _ALL_NAN,
    ],
    "log": [
        (-0.0, 0.0, -inf, pi),
        (0.0, 0.0, -inf, 0.0),
        *grid(_SOME_FINITE, (inf,), inf, pi / 2),
        *grid(_SOME_FINITE, (nan,), nan, nan),
        *grid((-inf,), _SOME, inf, pi),
        *grid((inf,), _SOME, inf, 0.0),
        (-inf, inf, inf, 3 * pi / 4),
        (inf, inf, inf, pi / 4),
        *grid(INFINITIES, (nan,), inf, nan),
        *grid((nan,), _SOME_FINITE, nan, nan),
        (nan, inf, inf, nan),
        _ALL_NAN,
    ],
    "log1p": [
        (-1.0, 0.0, -inf, 0.0),
        *grid(_SOME_FINITE, (inf,), inf, pi / 2),
        *grid(_SOME_FINITE, (nan,), nan, nan),
        *grid((-inf,), _SOME, inf, pi),
        *grid((inf,), _SOME, inf, 0.0),
        (-inf, inf, inf, 3 * pi / 4),
        (inf, inf, inf, pi / 4),
        *grid(INFINITIES, (nan,), inf, nan),
        *grid((nan,), _SOME_FINITE, nan, nan),
        (nan, inf, inf, nan),
        _ALL_NAN,
    ],
    "sinh": [
        (0.0, 0.0, 0.0, 0.0),
        (0.0, inf, _ANY_ZERO, nan),
        (0.0, nan, _ANY_ZERO, nan),
        *grid(_SOME, (inf, nan), nan, nan),
        (inf, 0.0, inf, 0.0),
        *[(inf, b, inf * cos(b), inf * sin(b)) for b in _SOME],
        (inf, inf, _ANY_INF, nan),
        (inf, nan, _ANY_INF, nan),
        (nan, 0.0, nan, 0.0),
        *grid((nan,), _SOME_NONZERO, nan, nan),
        _ALL_NAN,
    ],
    "sqrt": [
        *grid(ZEROS, (0.0,), 0.0, 0.0),
        *grid((*_SOME_FINITE, *INFINITIES, nan), (inf,), inf, inf),
        *grid(_SOME_FINITE, (nan,), nan, nan),
        *grid((-inf,), _SOME, 0.0, inf),
        *grid((inf,), _SOME, inf, 0.0),
        (-inf, nan, nan, _ANY_INF),
        (inf, nan, inf, nan),
        *grid((nan,), _SOME_FINITE, nan, nan),
        _ALL_NAN,
    ],
    "tanh": [
        (0.0, 0.0, 0.0, 0.0),
        *grid(_SOME_NONZERO, (inf, nan), nan, nan),
        (0.0, inf, 0.0, nan),
        (0.0, nan, 0.0, nan),
        *[(inf, b, 1.0, 0.0) for b in _SOME],
        (inf, inf, 1.0, _ANY_ZERO),
        (inf, nan, 1.0, _ANY_ZERO),
        (nan, 0.0, nan, 0.0),
        *grid((nan,), _SOME_NONZERO, nan, nan),
        _ALL_NAN,
    ],
}
# f(-z) = -f(z), or f(z) for cosh.
ODD = ("asinh", "atanh", "sinh", "tanh")
EVEN = ("cosh",)
# f(z) = -i g(iz); cos(z) = cosh(iz).
ROTATED = {"asin": "asinh", "atan": "atanh", "sin": "sinh", "tan": "tanh", "cos": "cosh"}

COMPLEX_TO_REAL: dict[str, list[tuple[float, float, Expected]]] = {
    "abs": [
        *[(a, b, inf) for a, b in product(INFINITIES, EVERYTHING)],
        *[(a, b, inf) for a, b in product(EVERYTHING, INFINITIES)],
        *[(a, b, abs(b)) for a, b in product(ZEROS, FINITE)],
        *[(a, b, abs(a)) for a, b in product(FINITE, ZEROS)],
        *[(nan, b, nan) for b in (*FINITE, nan)],
        *[(a, nan, nan) for a in (*FINITE, nan)],
    ],
    "isfinite": [(a, b, a in FINITE and b in FINITE) for a, b in product(EVERYTHING, EVERYTHING)],
    "isinf": [(a, b, a in INFINITIES or b in INFINITIES) for a, b in product(EVERYTHING, EVERYTHING)],
    "isnan": [(a, b, a != a or b != b) for a, b in product(EVERYTHING, EVERYTHING)],
}
