"""Polynomials with integer coefficients in named sizes, and their normal form: what is true of sizes without an order.

A polynomial is a sum of monomials. A monomial is a product of factors with powers. A factor is a named size, or a
function of sizes that is no polynomial: `n//2`, `max(n, m)`. Equal polynomials are one object. Sums with `max` and
`min` have a normal form too: see `_SumOfParts`.

Addition, subtraction and multiplication compare no sizes, so this file needs no bounds. `lower_bounds` computes bounds
with these three operations. Division, `max`, `min` and comparison need bounds, so they stand in `sizes`, which imports
both files. Every polynomial is a `Size`, the subclass that `sizes` declares: functions that make one take the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.core.sizes.bent_lines import MOST_BENDS, BentLine, add_lines, positive_line
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
            known = _polynomials.get(text)
            if known is not None:
                return known
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
            # read from the left, 2*max(a, b)*max(c, d) would be max(2*a, 2*b)*max(c, d), which is another size
            distributes = len(mono) > 1 and isinstance(mono[0][0], SizeFunction)
            factors.insert(len(factors) if distributes else 0, str(abs(c)))
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
    return {(): size} if size != 0 else {}


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
    if not any([c and only_function(mono, "max", "min") is not None for mono, c in terms.items()]):
        return interned(make, terms)
    total = _SumOfParts(make)
    for mono, c in terms.items():
        total.add_term(mono, c)
    return total.size()


def interned(make: Make, terms: Terms) -> int:
    """Return the size of terms that are in normal form, in any order."""
    nonzero = [(m, c) for m, c in terms.items() if c]
    if not nonzero:
        return 0
    if len(nonzero) == 1 and not nonzero[0][0]:
        return nonzero[0][1]
    return make(tuple(sorted(nonzero, key=term_order)))


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
    """Return the size `rest + sum(c * max(0, d) for d, c in parts)` in normal form: see `_SumOfParts`."""
    total = _SumOfParts(make)
    total.add(rest, 1)
    for d, c in parts:
        total.add_positive(d, c)
    return total.size()


@final
class _SumOfParts:
    """A sum `rest + sum(c * max(0, d) for d, c in parts)`, where no term of the rest is a multiple of `max` or `min`.

    - Each sum of sizes is one such sum: max(a, b) is a + max(0, b - a), min(a, b) is b - max(0, b - a).
    - max(0, -d) is max(0, d) - d, so each d is taken with the sign for which it grows with its first term.
    - A d of one named size is often a line with bends. Its part becomes one part max(0, n - k) for each bend: max(0,
      2*n - 1) is n + max(0, n - 1) for n >= 0, also in a sum with other names.

    Law: the sum is that of its size, so equal sums are one size, and the text of a size is read as that size. A
         product of two functions has no normal form: 2*(a*b) and (2*a)*b are two sizes.
    """

    __slots__ = ("_make", "_parts", "_rest")

    def __init__(self, make: Make) -> None:
        self._make = make
        self._rest: Terms = {}
        self._parts: dict[int, int] = {}  # d -> c

    def add(self, size: int, c: int) -> None:
        """Add c * size."""
        for mono, d in terms_of(size).items():
            self.add_term(mono, d * c)

    def add_term(self, mono: Monomial, c: int) -> None:
        """Add a monomial with a coefficient."""
        function = only_function(mono, "max", "min")
        if function is None:
            self._rest[mono] = self._rest.get(mono, 0) + c
        elif c:
            grows = function.function == "max"
            self.add(function.a if grows else function.b, c)
            self.add_positive(function.b - function.a, c if grows else -c)

    def add_positive(self, d: int, c: int) -> None:
        """Add c * max(0, d)."""
        known = line_of_size(d)
        if known is not None:
            name, line = known
            value, slope, bends = positive_line(line, name.at_least)
            n = of_factor(self._make, name)
            self.add((n - name.at_least) * slope + value, c)
            for k, change in bends.items():
                self._parts[n - k] = self._parts.get(n - k, 0) + change * c
            return
        if self._falls(d):
            self.add(d, c)
            d = -d
        self._parts[d] = self._parts.get(d, 0) + c

    def _falls(self, d: int) -> bool:
        """Return True if the coefficient of the first term of d is negative; that of the first part if the rest is
        constant. Of d and -d it is True for one."""
        total = _SumOfParts(self._make)
        total.add(d, 1)
        terms = sorted([(mono, c) for mono, c in total._rest.items() if mono and c], key=term_order)
        if terms:
            return terms[0][1] < 0
        parts = sorted([(exact_text(e), c) for e, c in total._parts.items() if c])
        return bool(parts) and parts[0][1] < 0

    def size(self) -> int:
        """Return the size. Each of its functions grows: c * max(0, d), or, for c < 0, c * d - c * min(0, d). A single
        part with c = 1 or -1 may be written as the `max` or `min` of two sizes; the shorter text counts.

        For example, 3*n - 2*max(m, n) is 3*n - 2*n - 2*max(0, m - n):

            _rest          _parts           kept_parts
            n              {m - n: -2}      {}
            3*n - 2*m      {}               {m - n: -2}          n - 2*(m - n), and 2*min(0, m - n)

        The size is always _rest, and c * max(0, d) for each of _parts, and for each that is kept c * max(0, d) if
        c > 0 and -c * min(0, d) if c < 0. A step moves a part to those that are kept; for c < 0 it adds c * d to _rest.

        The part whose d has functions inside of functions comes first: c * d changes only parts that stand inside of
        d, which are nested less deeply. So each part is taken once, with its final c, and the loop ends.
        """
        kept_parts: dict[int, int] = {}
        while self._parts:
            d = max(self._parts, key=_nesting)
            c = self._parts.pop(d)
            if c:
                kept_parts[d] = c
            if c < 0:
                self.add(d, c)
        terms = dict(self._rest)
        terms.update({((ordered_function("max" if c > 0 else "min", 0, d), 1),): abs(c) for d, c in kept_parts.items()})
        sum_of_parts = interned(self._make, terms)
        rest_size = interned(self._make, self._rest)
        if len(kept_parts) == 1 and rest_size != 0:
            ((d, c),) = kept_parts.items()
            if abs(c) == 1:
                joined = of_factor(self._make, ordered_function("max" if c > 0 else "min", rest_size, rest_size + d))
                return joined if len(exact_text(joined)) <= len(exact_text(sum_of_parts)) else sum_of_parts
        return sum_of_parts


def _nesting(size: int) -> int:
    """Return how deeply functions `max` and `min` are nested in a size, as terms of terms."""
    functions = [f for mono in terms_of(size) if (f := only_function(mono, "max", "min")) is not None]
    return 1 + max([_nesting(x) for f in functions for x in (f.a, f.b)]) if functions else 0


def ordered_function(function: str, a: int, b: int) -> SizeFunction:
    """Return `max` or `min` of two sizes, which are ordered by their texts."""
    return SizeFunction(function, *sorted((a, b), key=exact_text))


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
            # max(a, b) is a + max(0, b - a), and min(a, b) is b - max(0, b - a)
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
