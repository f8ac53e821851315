"""Lower bounds of sizes, from the assumptions: each name is at least some number. They decide the order of sizes.

`at_least` decides an order: m <= n if n - m is at least 0. A bound is true for all values of the names, but it need not
be the greatest; where none is found, the order is not decided.

- A size of one name that is a line with bends has its least value at its beginning or at a bend.
- In any other size, each name is replaced by its least value plus a number >= 0 (`_constant_after_shift`).
- If that gives no bound, quotients, `max` and `min` are replaced by bounds of their own, a few of them, in any order
  (`_bound_by_search`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from fxad.core.sizes.bent_lines import least_of_line
from fxad.core.sizes.polynomials import (
    Monomial,
    Polynomial,
    SizeFunction,
    SizeName,
    Terms,
    interned,
    line_of_name,
    line_of_size,
    names_of,
    only_function,
    ordered_function,
    terms_of,
    without_term,
)

_set: Final = object.__setattr__


def lower_bound(size: int) -> int | None:
    """Return the greatest known lower bound of a size under the assumptions; None if none is known. It is computed
    once."""
    if not isinstance(size, Polynomial):
        return size
    if not hasattr(size, "least"):
        _set(size, "least", _search_lower_bound(size))
    return size.least


def at_least(size: int, bound: int) -> bool:
    """Return True if the assumptions imply that a size is at least `bound`."""
    low = lower_bound(size)
    return low is not None and low >= bound


def _search_lower_bound(size: Polynomial) -> int | None:
    known = line_of_size(size)
    if known is not None:
        return least_of_line(known[1], known[0].at_least)
    bounds = [_bound_by_search(size, 4, {})]
    names = names_of(size)
    if len(names) == 1:
        (name,) = names
        below = [line_of_name(form, name, -1) for form in (size, *_other_forms(size))]
        bounds += [least_of_line(line, name.at_least) for line in below if line is not None]
    return max([bound for bound in bounds if bound is not None], default=None)


def _other_forms(size: Polynomial) -> list[int]:
    """Return the same size with max(a, b) as a + b - min(a, b), and the other way round. Bounds of quotients in it may
    cancel in one form only."""
    forms = []
    for function, other in (("max", "min"), ("min", "max")):
        terms: Terms = {}
        for mono, c in terms_of(size).items():
            f = only_function(mono, function)
            replaced: Terms = {mono: c}
            if f is not None:
                replaced = {m: d * c for m, d in terms_of(f.a + f.b).items()}
                opposite: Monomial = ((ordered_function(other, f.a, f.b), 1),)
                replaced[opposite] = replaced.get(opposite, 0) - c
            for m, d in replaced.items():
                terms[m] = terms.get(m, 0) + d
        forms.append(interned(type(size), terms))
    return forms


# The bounds found in one search, where the same functions are replaced in any order.
_FoundBounds: TypeAlias = dict[tuple[int, int], int | None]  # by depth and size
_LONGEST_SEARCH: Final = 32


def _bound_by_search(size: int, depth: int, found: _FoundBounds) -> int | None:
    """Return a lower bound of a polynomial. Bounds replace products and functions in it, at most `depth` of them. A
    search looks at `_LONGEST_SEARCH` polynomials at most.

    Of n - max(n, 4) + 8, for n >= 0: max(n, 4) is n or 4, so the bound is the lesser of those of 8 and of n + 4: 4.
    """
    if depth == 0 or len(found) >= _LONGEST_SEARCH:
        return None
    key = depth, size
    if key not in found:
        found[key] = _bound_by_replacing(size, depth, found)
    return found[key]


def _bound_by_replacing(size: int, depth: int, found: _FoundBounds) -> int | None:
    """Return the first bound that a replacement gives. Any bound is true, and a search looks at few polynomials, so no
    further replacement is tried for a greater one.

    n - m*(n//m), for m >= 1, is at least n - n, and has no bound by `_constant_after_shift`, which takes m*(n//m) for
    independent of n. So such products come first, also where that bound is known: the greater one counts. Functions by
    themselves, such as max(n, m) or n//4, are replaced only in a size that has no bound yet.
    """
    direct = _constant_after_shift(size)
    for mono, c in terms_of(size).items():
        if (rounded := rounded_to_multiple(mono)) is not None:
            a, b = rounded
            rest = without_term(size, mono)
            low = _bound_by_search(rest + (a if c < 0 else a - b + 1) * c, depth - 1, found)
            if low is not None:
                return low if direct is None else max(low, direct)
    if direct is not None:
        return direct
    for mono, c in terms_of(size).items():
        if len(mono) == 1 and mono[0][1] == 1 and isinstance(mono[0][0], SizeFunction):
            rest = without_term(size, mono)
            low = _bound_with_function(rest, c, mono[0][0], depth - 1, found)
            if low is not None:
                return low
    return None


def _bound_with_function(rest: int, c: int, function: SizeFunction, depth: int, found: _FoundBounds) -> int | None:
    """Return a lower bound of `rest + c * function`: bounds of the function, in terms of its operands, replace it."""
    a, b = function.a, function.b

    def lower(size: int) -> int | None:
        return _bound_by_search(size, depth, found)

    if function.function in ("max", "min"):
        known = [low for low in (lower(rest + a * c), lower(rest + b * c)) if low is not None]
        if (function.function == "max") == (c > 0):  # c times the function is at least c * a and at least c * b
            return max(known, default=None)
        return min(known) if len(known) == 2 else None  # it is one of them, and it is not known which
    if function.function == "bits":
        return lower(rest + a * c) if c < 0 and at_least(a, 0) else None  # bits(a) <= a
    if type(b) is int and b > 0:
        # of b times the whole: b * (a // b) is between a - b + 1 and a
        low = lower(rest * b + (a if c < 0 else a - b + 1) * c)
        return None if low is None else -(-low // b)
    if at_least(b, 1) and at_least(a if c < 0 else a * -1, 0):
        return lower(rest + a * c)  # a // b <= a for a >= 0, and a <= a // b for a <= 0
    if at_least(b, 1) and c < 0 and at_least(a * -1, 0):
        return lower(rest)  # a // b <= 0
    return None


def rounded_to_multiple(mono: Monomial) -> tuple[int, int] | None:
    """Return a and b of b * (a // b), for a product b >= 1 of named sizes: between a - b + 1 and a. Of n * (m // n),
    for n >= 1, it is (m, n)."""
    for k, (whole, power) in enumerate(mono):
        if power == 1 and isinstance(whole, SizeFunction) and whole.function == "//" and len(mono) > 1:
            others = mono[:k] + mono[k + 1 :]
            named = all([isinstance(n, SizeName) and n.at_least >= 1 for n, _ in others])
            if named and terms_of(whole.b) == {others: 1}:
                return whole.a, whole.b
    return None


_Powers: TypeAlias = tuple[tuple[str, int], ...]  # a monomial: the texts of factors with their powers, in order


def _constant_after_shift(size: int) -> int | None:
    """Return a lower bound: each factor is replaced by its lower bound plus a number >= 0. If all coefficients are then
    >= 0, this is the constant term; else None. Of n*m - m + 3, for n >= 1 and m >= 0: with n = 1 + n' it is n'*m + 3,
    so at least 3."""
    total: dict[_Powers, int] = {}
    for mono, c in terms_of(size).items():
        expanded: dict[_Powers, int] = {(): c}
        for factor, power in mono:
            low = factor.at_least if isinstance(factor, SizeName) else _bound_of_function(factor)
            if low is None:
                return None
            for _ in range(power):
                shifted: dict[_Powers, int] = {}
                for m, d in expanded.items():
                    shifted[m] = shifted.get(m, 0) + d * low
                    powers = dict(m)
                    powers[factor.text] = powers.get(factor.text, 0) + 1
                    key = tuple(sorted(powers.items()))
                    shifted[key] = shifted.get(key, 0) + d
                expanded = shifted
        for m, d in expanded.items():
            total[m] = total.get(m, 0) + d
    return total.pop((), 0) if all([c >= 0 for m, c in total.items() if m]) else None


def _bound_of_function(function: SizeFunction) -> int | None:
    a, b = lower_bound(function.a), lower_bound(function.b)
    if function.function == "bits":
        return max(a or 0, 0).bit_length()
    if function.function == "max":
        bounds = [x for x in (a, b) if x is not None]
        return max(bounds) if bounds else None
    if function.function == "min":
        return None if a is None or b is None else min(a, b)
    if b is None or b <= 0 or a is None:
        return None
    if type(function.b) is int:
        return a // function.b
    return 0 if a >= 0 else None
