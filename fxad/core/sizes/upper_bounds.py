"""Upper bounds of sizes whose names are bounded: the sizes of padding, by interval arithmetic.

The ends of an interval are ints, or sizes where a name has no bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from fxad.core.sizes.bent_lines import value_of_line
from fxad.core.sizes.lower_bounds import at_least, rounded_to_multiple
from fxad.core.sizes.polynomials import Factor, Monomial, SizeFunction, SizeName, line_of_size, size_of_terms
from fxad.core.sizes.size import FUNCTIONS, Size, maximum, minimum, size_of


def upper_bound(size: int, bounds: Mapping[str, int]) -> int:
    """Return an upper bound of a dimension whose names are at most `bounds`: the size of its padding.

    Law: `upper_bound(n, {"n": k}) == k`; exact where the size grows with every name.
    """
    if not isinstance(size, Size):
        return size
    return maximum(_interval(size, bounds, 4)[1], 0)


def _interval(size: int, bounds: Mapping[str, int], depth: int) -> tuple[int, int]:
    """Return a lower and an upper bound, by intervals of terms: -1 and 8 of 2*n - m, for n in [1, 4] and m in [0, 3].
    If a term is a rounded number, as in n // 2 * 2, bounds of that number replace it: n - n // 2 * 2 is at most 1. At
    most `depth` terms are replaced."""
    if not isinstance(size, Size):
        return size, size
    known = line_of_size(size)
    if known is not None and type(bound := bounds.get(known[0].name)) is int:
        name, line = known
        least = name.at_least
        values = [
            value_of_line(line, least, k) for k in {least, max(bound, least), *line.bends} if k <= max(bound, least)
        ]
        return min(values), max(values)
    depth -= depth > 0
    low, high = _interval_of_terms(size.terms, bounds, depth)
    for mono, c in sorted(size.terms, key=_longest_factor, reverse=True) if depth else ():  # outer quotients first
        rounded, scale = rounded_to_multiple(mono), 1
        if rounded is None and len(mono) == 1 and mono[0][1] == 1 and isinstance(mono[0][0], SizeFunction):
            whole = mono[0][0]
            if whole.function == "//" and type(whole.b) is int and whole.b > 0:
                rounded, scale = (whole.a, whole.b), whole.b
        if rounded is not None:  # the bounds of `scale` times the size
            a, b = rounded
            rest = (size - size_of_terms(Size, {mono: c})) * scale
            least, most = (rest + (a - b + 1) * c, rest + a * c)[:: 1 if c > 0 else -1]
            below = -(-_interval(least, bounds, depth)[0] // scale)
            above = _interval(most, bounds, depth)[1] // scale
            return below if at_least(below - low, 0) else low, above if at_least(high - above, 0) else high
    return low, high


def _longest_factor(term: tuple[Monomial, int]) -> int:
    return max([len(factor.text) for factor, _ in term[0]], default=0)


def _interval_of_terms(terms: Iterable[tuple[Monomial, int]], bounds: Mapping[str, int], depth: int) -> tuple[int, int]:
    total: tuple[int, int] = (0, 0)
    for mono, c in terms:
        term: tuple[int, int] = (1, 1)
        for base, power in mono:
            factor = _interval_of_factor(base, bounds, depth)
            for _ in range(power):
                term = _interval_product(term, factor)
        low, high = term if c > 0 else (term[1], term[0])
        total = total[0] + c * low, total[1] + c * high
    return total


def _interval_of_factor(base: Factor, bounds: Mapping[str, int], depth: int) -> tuple[int, int]:
    if isinstance(base, SizeName):
        n = size_of(base)
        return (base.at_least, bounds[base.name]) if base.name in bounds else (n, n)
    (a, b), (c, d) = _interval(base.a, bounds, depth), _interval(base.b, bounds, depth)
    if base.function != "//":
        apply = FUNCTIONS[base.function]
        return apply(a, c), apply(b, d)
    quotients = []
    if not at_least(-d, 0):
        quotients.append(_interval_quotient((a, b), (maximum(c, 1), maximum(d, 1))))
    if not at_least(c, 0):  # a // b is -a // -b
        quotients.append(_interval_quotient((b * -1, a * -1), (maximum(d * -1, 1), maximum(c * -1, 1))))
    lows, highs = zip(*quotients, strict=True) if quotients else ((0,), (0,))  # a divisor of 0
    return reduce(minimum, lows), reduce(maximum, highs)


def _interval_quotient(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    """Return bounds of a quotient, for a divisor of at least 1."""
    (a, b), (c, d) = x, y
    # a negative quotient grows with the divisor
    low = a // d if at_least(a, 0) else minimum(a // c, a // d)
    high = b // c if at_least(b, 0) else maximum(b // c, b // d)
    return low, high


def _interval_product(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    (a, b), (c, d) = x, y
    if at_least(a, 0) and (a == b or at_least(c, 0)):
        return a * c, b * d
    ends = a * c, a * d, b * c, b * d
    return reduce(minimum, ends), reduce(maximum, ends)
