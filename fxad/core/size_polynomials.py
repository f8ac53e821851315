"""Polynomials with integer coefficients in named sizes, and their normal form: what is true of sizes without an order.

A polynomial is a sum of monomials. A monomial is a product of factors with powers. A factor is a named size, or a
function of sizes that is no polynomial: `n//2`, `max(n, m)`. Equal polynomials are one object. Sums with `max` and
`min` have a normal form too: see `normal_form`.

Addition, subtraction and multiplication compare no sizes, so this file needs no bounds. `size_bounds` computes bounds
with these three operations. Division, `max`, `min` and comparison need bounds, so they stand in `sizes`, which imports
both files. Every polynomial is a `Size`, the subclass that `sizes` declares: functions that make one take the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeAlias, final

from fxad.core.bent_lines import MOST_BENDS, BentLine, add_lines, positive_line
from fxad.core.dataclasses import dataclass
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.core.weak import WeakTable
from fxad.errors import SizeError, described

_set: Final = object.__setattr__


@final
@dataclass(frozen=True, slots=True)
class SizeName:
    """A named size that is assumed to be at least `at_least`."""

    name: str
    at_least: int = 0

    @property
    def bound(self) -> bool:
        """Return True for a size that a rule binds, which is none of the program's."""
        return self.name.startswith("_")

    @property
    def text(self) -> str:
        """The name, with the assumption if it is not the default: `n`, `(n>0)`."""
        return f"({self.name}>{self.at_least - 1})" if self.at_least else self.name

    @property
    def readable(self) -> str:
        """The name."""
        return self.name


@final
@dataclass(frozen=True, slots=True)
class SizeFunction:
    """A function of two sizes that is not a polynomial: `//`, `max` or `min`; or `bits`, of one: its `b` is 0."""

    function: str
    a: int
    b: int

    @property
    def text(self) -> str:
        """The function with exact operands: `div(n,2)`."""
        if self.function == "bits":
            return f"bits({exact_text(self.a)})"
        return f"{_FUNCTION_NAMES[self.function]}({exact_text(self.a)},{exact_text(self.b)})"

    @property
    def readable(self) -> str:
        """The function for messages: `(n + 1)//2`."""
        if self.function == "//":
            divisor = _parenthesized(self.b)
            return f"{_parenthesized(self.a)}//{f'({divisor})' if '*' in divisor and divisor[0] != '(' else divisor}"
        return f"bits({self.a})" if self.function == "bits" else f"{self.function}({self.a}, {self.b})"


_FUNCTION_NAMES: Final[Mapping[str, str]] = MappingProxyType({"//": "div", "max": "max", "min": "min"})

Factor: TypeAlias = SizeName | SizeFunction
Monomial: TypeAlias = tuple[tuple[Factor, int], ...]  # factors with their powers, in order
Terms: TypeAlias = dict[Monomial, int]  # with their coefficients: {((m, 1), (n, 2)): 3, (): 1} is 3*m*n^2 + 1
# The class `Size`: it makes a polynomial of ordered terms.
Make: TypeAlias = Callable[[tuple[tuple[Monomial, int], ...]], int]


def _parenthesized(size: int) -> str:
    text = str(size)
    return f"({text})" if " " in text or text[0] == "-" else text


if TYPE_CHECKING:

    class Polynomial(int):
        """A polynomial in named sizes: the base of `Size`, which is an int to a type checker."""

        terms: tuple[tuple[Monomial, int], ...]
        text: str
        least: int | None  # its `lower_bound`, from the first question on

        def __new__(cls, terms: tuple[tuple[Monomial, int], ...]) -> Self: ...

        @property
        def names(self) -> tuple[SizeName, ...]: ...

else:

    class Polynomial:
        """A polynomial in named sizes that is not constant.

        It has `+`, `-` and `*`. Every polynomial is of the one subclass, `Size`, which adds what needs an order.

        Law: equal polynomials are one object.
        """

        __slots__ = ("__weakref__", "least", "terms", "text")

        def __new__(cls, terms):
            """Return the size of ordered terms. At least one of them is not constant."""
            text = _terms_text(terms, "text", "+")
            interned = _polynomials.get(text)
            if interned is not None:
                return interned
            self = object.__new__(cls)
            _set(self, "terms", terms)
            _set(self, "text", text)
            return _polynomials.put(text, self)

        def __setattr__(self, name, value):
            raise AttributeError(f"cannot assign to {name!r}: a size is a value")

        def __delattr__(self, name):
            raise AttributeError(f"cannot delete {name!r}: a size is a value")

        def __reduce__(self):
            return type(self), (self.terms,)

        def __copy__(self):
            return self

        def __deepcopy__(self, memo):
            return self

        @property
        def names(self):
            """The named sizes in the expression, in order."""
            names = {}
            for mono, _ in self.terms:
                for factor, _ in mono:
                    inner = (factor,) if isinstance(factor, SizeName) else (*names_of(factor.a), *names_of(factor.b))
                    names.update(dict.fromkeys(inner))
            return tuple(sorted(names, key=lambda n: n.name))

        def __str__(self):
            return _terms_text(self.terms, "readable", " + ").replace("+ -", "- ")

        __repr__ = __str__

        def __format__(self, spec):
            return format(str(self), spec.replace(",", "").removesuffix("d"))  # the formats of ints

        def _repr_pretty_(self, printer, cycle):
            printer.text(str(self))  # IPython and hypothesis would ask whether it is below 1,000,000,000

        @property
        def __class__(self):
            return int  # for isinstance, as for a type checker; `type(n) is Size` tells

        def __bool__(self):
            return True

        def __add__(self, other):
            if not is_size(other):
                return refuse_operand(self, "+", other)
            terms = dict(self.terms)
            for mono, c in terms_of(other).items():
                terms[mono] = terms.get(mono, 0) + c
            return size_of_terms(type(self), terms)

        __radd__ = __add__

        def __neg__(self):
            return self * -1

        def __pos__(self):
            return self

        def __sub__(self, other):
            return self + other * -1 if is_size(other) else refuse_operand(self, "-", other)

        def __rsub__(self, other):
            return self * -1 + other if is_size(other) else refuse_operand(other, "-", self)

        def __mul__(self, other):
            if not is_size(other):
                return refuse_operand(self, "*", other)
            terms = {}
            theirs = terms_of(other)
            for mono, c in self.terms:
                for m, d in theirs.items():
                    product = _multiply_monomials(mono, m)
                    terms[product] = terms.get(product, 0) + c * d
            return size_of_terms(type(self), terms)

        __rmul__ = __mul__

        def __pow__(self, other):
            if type(other) is not int or other < 0:
                return refuse_operand(self, "**", other)
            out = 1
            for _ in range(other):
                out = out * self
            return out

        def __truediv__(self, other):
            return refuse_operand(self, "/", other)

        def __rtruediv__(self, other):
            return refuse_operand(other, "/", self)

        def __rpow__(self, other):
            return refuse_operand(other, "**", self)


_polynomials: Final[WeakTable[str, Polynomial]] = WeakTable()


def _terms_text(terms: Iterable[tuple[Monomial, int]], attribute: str, plus: str) -> str:
    """Return terms as text. `attribute` is that of factors: `text` or `readable`."""
    texts = []
    for mono, c in terms:
        factors = []
        for base, power in mono:
            factor = getattr(base, attribute)
            if "//" in factor and (len(mono) > 1 or power > 1 or c != 1):
                factor = f"({factor})"
            factors.append(f"{factor}^{power}" if power > 1 else factor)
        if not factors or abs(c) != 1:
            factors.insert(0, str(abs(c)))
        texts.append(("-" if c < 0 else "") + "*".join(factors))
    return plus.join(texts) if attribute == "readable" else plus.join(texts).replace("+-", "-")


def names_of(size: object) -> tuple[SizeName, ...]:
    """Return the named sizes in a dimension."""
    return size.names if isinstance(size, Polynomial) else ()


def exact_text(size: int) -> str:
    """Return the text of a dimension, with assumptions; `read_size` reads it."""
    return size.text if isinstance(size, Polynomial) else str(size)


def is_size(value: object) -> bool:
    """Return True for an int and for a polynomial."""
    return type(value) is int or isinstance(value, Polynomial)


def terms_of(size: int) -> Terms:
    """Return the terms of a size, also of an int."""
    if isinstance(size, Polynomial):
        return dict(size.terms)
    return {(): size} if size else {}


def refuse_operand(a: object, sign: str, b: object) -> object:
    """Refuse an operation of a size and another operand, on either side. Return NotImplemented for an operand whose
    class may know the operation. Raises: SizeError."""
    reflected = isinstance(b, Polynomial)
    other = a if reflected else b
    if type(other) in NUMBER_ARGUMENTS:  # it asks again, with the plain number
        return NotImplemented
    if type(other) in (float, complex, bool) or (sign in ("/", "**") and isinstance(b, int | Polynomial)):
        raise SizeError(
            f"size: {a} {sign} {b} is not a size",
            remedy="convert the size to an array first, with fxad.numpy.asarray, and compute with that",
        )
    if isinstance(other, int) or (hasattr(other, "__index__") and not hasattr(other, "shape")):
        operation = f"{described(a)} {sign} {b}" if reflected else f"{a} {sign} {described(b)}"
        raise SizeError(f"size: {operation} is not a size", remedy="use ints and sizes")
    return NotImplemented


def factor_order(factor: Factor) -> tuple[bool, str]:
    """Return the order of factors: names before functions, then by text."""
    return isinstance(factor, SizeFunction), factor.text


def term_order(term: tuple[Monomial, int]) -> tuple[int, tuple[tuple[tuple[bool, str], int], ...]]:
    """Return the order of terms: by degree from the highest, then names before functions, then by text."""
    mono, _ = term
    return -sum([power for _, power in mono]), tuple([(factor_order(factor), power) for factor, power in mono])


def _multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: factor_order(item[0])))


# --------------------------------------------------------------------------------------------------------- normal form


def size_of_terms(make: Make, terms: Terms) -> int:
    """Return the size of terms in any order, in normal form: an int if it is constant."""
    parts = _positive_parts(make, terms)
    return interned(make, terms) if parts is None else normal_form(make, *parts)


def interned(make: Make, terms: Terms) -> int:
    """Return the size of terms that are in normal form, in any order."""
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return make(tuple(sorted(kept, key=term_order)))


def of_factor(make: Make, factor: Factor) -> int:
    """Return the size that is one factor."""
    return make(((((factor, 1),), 1),))


def without_term(size: int, mono: Monomial) -> int:
    """Return a size without one of its terms, which is not the constant one."""
    assert isinstance(size, Polynomial)
    return size_of_terms(type(size), {m: c for m, c in size.terms if m != mono})


def only_function(mono: Monomial, *functions: str) -> SizeFunction | None:
    """Return the function that is the only factor of a monomial, if it is one of these."""
    if len(mono) == 1 and mono[0][1] == 1:
        factor = mono[0][0]
        if isinstance(factor, SizeFunction) and factor.function in functions:
            return factor
    return None


def normal_form(make: Make, rest: int, parts: Sequence[tuple[int, int]]) -> int:
    """Return the size `rest + sum(c * max(0, d) for d, c in parts)`. Equal sums of this form are one size.

    max(0, -d) is max(0, d) - d, so each d is taken with the sign for which it grows with its first term. Then a part
    grows too: `c * max(0, d)`, or, for c < 0, `c * d - c * min(0, d)`. A single part with c = 1 or -1 may be written as
    the `max` or `min` of two sizes; the shorter text counts. In one named size, every sum of this form is a line with
    bends, which are listed by their places: max(0, max(0, n - 1) - min(1, n)) is max(0, n - 2).
    """
    lines = _lines_of_one_size(make, rest, parts)
    if lines is not None:
        rest, parts = lines
    coefficients: dict[int, int] = {}
    for d, c in parts:
        (_, first), *_ = sorted(terms_of(d).items(), key=term_order)
        if first < 0:
            d, rest = -d, rest + d * c
        coefficients[d] = coefficients.get(d, 0) + c
    kept = {d: c for d, c in coefficients.items() if c}
    rest = rest + reduce(lambda total, part: total + part[0] * part[1], [p for p in kept.items() if p[1] < 0], 0)
    functions = {d: ordered_function("max" if c > 0 else "min", 0, d) for d, c in kept.items()}
    terms = dict(terms_of(rest))
    terms.update({((functions[d], 1),): abs(c) for d, c in kept.items()})
    split = interned(make, terms)
    if len(kept) == 1 and rest:
        ((d, c),) = kept.items()
        if abs(c) == 1:
            joined = of_factor(make, ordered_function("max" if c > 0 else "min", rest, rest + d))
            return joined if len(exact_text(joined)) <= len(exact_text(split)) else split
    return split


def ordered_function(function: str, a: int, b: int) -> SizeFunction:
    """Return `max` or `min` of two sizes, which are ordered by their texts."""
    return SizeFunction(function, *sorted((a, b), key=exact_text))


def _positive_parts(make: Make, terms: Terms) -> tuple[int, list[tuple[int, int]]] | None:
    """Return terms as a rest and parts for `normal_form`; None if no term is a multiple of `max` or `min`."""
    parts: list[tuple[int, int]] = []
    rest: int = 0
    others: Terms = {}
    for mono, c in terms.items():
        function = only_function(mono, "max", "min")
        if function is None:
            others[mono] = c
        elif function.function == "max":
            parts.append((function.b - function.a, c))
            rest = rest + function.a * c
        else:
            parts.append((function.b - function.a, -c))
            rest = rest + function.b * c
    return (rest + interned(make, others), parts) if parts else None


def _lines_of_one_size(
    make: Make, rest: int, parts: Sequence[tuple[int, int]]
) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the same sum with a part `max(0, n - k)` for each bend, if it is in one named size and piecewise
    linear."""
    names = {n for size in (rest, *[d for d, _ in parts]) for n in names_of(size)}
    if len(names) != 1:
        return None
    (name,) = names
    line = line_of_name(rest, name)
    for d, c in parts:
        inner = line_of_name(d, name)
        if line is None or inner is None:
            return None
        line = add_lines(line, positive_line(inner, name.at_least), c)
    if line is None or len(line.bends) > MOST_BENDS:
        return None
    value, slope, bends = line
    n = of_factor(make, name)
    return (n - name.at_least) * slope + value, [(n - k, c) for k, c in sorted(bends.items())]


def line_of_name(size: int, name: SizeName, side: int = 0) -> BentLine | None:
    """Return a size as a line with bends; None if it is none: a product of names, or a quotient. With `side` 1 a line
    that is not below the size, with -1 one that is not above: there b * (a // b) is between a - b + 1 and a."""
    out = BentLine(0, 0, {})
    for mono, c in terms_of(size).items():
        inner = side if c > 0 else -side
        function = only_function(mono, "max", "min", "//")
        term: BentLine | None = None
        if not mono:
            term = BentLine(1, 0, {})
        elif mono == ((name, 1),):
            term = BentLine(name.at_least, 1, {})
        elif function is not None and function.function == "//":
            if side and type(function.b) is int and function.b > 0 and c % function.b == 0:
                c = c // function.b
                term = line_of_name(function.a if inner > 0 else function.a - function.b + 1, name, inner)
        elif function is not None:
            x, y = line_of_name(function.a, name, inner), line_of_name(function.b, name, inner)
            if x is not None and y is not None:
                above = positive_line(add_lines(y, x, -1), name.at_least)
                term = add_lines(x, above, 1) if function.function == "max" else add_lines(y, above, -1)
        if term is None:
            return None
        out = add_lines(out, term, c)
        if len(out.bends) > MOST_BENDS:
            return None
    return out


def line_of_size(size: int) -> tuple[SizeName, BentLine] | None:
    """Return the line with bends that a size is, and its name; None for one of two names, or one that is no line."""
    names = names_of(size)
    line = line_of_name(size, names[0]) if len(names) == 1 else None
    return None if line is None else (names[0], line)
