"""Sizes: polynomials with integer coefficients in named sizes, the dimensions of programs of symbolic shape.

A dimension is an int or a `Size`. A polynomial without names is an int, so a `Size` is never equal to an int. Each name
has an assumption, the least number that it may be.

    >>> n, m = named_size("n", at_least=1), named_size("m")
    >>> size = (n + 2) * m - m  # arithmetic gives the expanded polynomial
    >>> size
    n*m + m
    >>> (4 * n + 2) // 2, (n + 3) // 2, maximum(n, m)  # a `SizeFunction` where the result is no polynomial
    (2*n + 1, (n + 3)//2, max(n, m))
    >>> size == m * n + m, n + m > m  # equality compares expressions; the assumptions decide the order
    (True, True)
    >>> lower_bound(n * m - m + 3)
    3
    >>> substitute_sizes(size, {"n": 4, "m": 5})
    25
    >>> upper_bound(2 * n - m, {"n": 4, "m": 3})  # the padding of `mask`
    8
    >>> solve_sizes("f", [(2 * n + 1, 7, "axis 0 of x")])  # from the shapes of arguments
    {'n': 3}
    >>> read_size("(n>=1) + 2*m") == n + 2 * m, exact_text(n)  # the language of shapes, for users and in program text
    (True, '(n>0)')

An order that the assumptions do not decide is a SizeError, and so is each place where Python needs the number.

For a type checker and for `isinstance` a `Size` is an int: code about shapes has one form. It is not a subclass of int,
so no C code reads a number from it. Decision: docs/adr/0049.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self, TypeAlias, TypeVar, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.core.weak import WeakTable
from fxad.errors import ArgumentError, ShapeError, SizeError, UnknownSizeError, described, shown

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BOUND: Final = re.compile(r"_axis[0-9]{1,3}")
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


def _parenthesized(size: int) -> str:
    text = str(size)
    return f"({text})" if " " in text or text[0] == "-" else text


if TYPE_CHECKING:

    class Size(int):
        """A dimension that is not a number: a polynomial in named sizes."""

        terms: tuple[tuple[Monomial, int], ...]
        text: str
        least: int | None  # its `lower_bound`, from the first question on

        def __new__(cls, terms: tuple[tuple[Monomial, int], ...]) -> Self: ...

        @property
        def names(self) -> tuple[SizeName, ...]: ...

else:

    @final
    class Size:
        """A dimension that is not a number: a polynomial in named sizes.

        Law:    equal polynomials are one object; a size equals no int; `==` compares expressions and never raises.
        Raises: SizeError for an order that the assumptions do not decide, and wherever Python needs the number.
        """

        __slots__ = ("__weakref__", "least", "terms", "text")

        def __new__(cls, terms):
            """Return the size of ordered terms. At least one of them is not constant."""
            text = _terms_text(terms, "text", "+")
            interned = _sizes.get(text)
            if interned is not None:
                return interned
            self = object.__new__(cls)
            _set(self, "terms", terms)
            _set(self, "text", text)
            return _sizes.put(text, self)

        def __setattr__(self, name, value):
            raise AttributeError(f"cannot assign to {name!r}: a size is a value")

        def __delattr__(self, name):
            raise AttributeError(f"cannot delete {name!r}: a size is a value")

        def __reduce__(self):
            return read_size, (self.text,)

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

        # ------------------------------------------------------------------------------------------- arithmetic

        def __add__(self, other):
            if not _is_size(other):
                return _refuse_operand(self, "+", other)
            terms = dict(self.terms)
            for mono, c in _terms(other).items():
                terms[mono] = terms.get(mono, 0) + c
            return _size_of_terms(terms)

        __radd__ = __add__

        def __neg__(self):
            return self * -1

        def __pos__(self):
            return self

        def __sub__(self, other):
            return self + other * -1 if _is_size(other) else _refuse_operand(self, "-", other)

        def __rsub__(self, other):
            return self * -1 + other if _is_size(other) else _refuse_operand(other, "-", self)

        def __mul__(self, other):
            if not _is_size(other):
                return _refuse_operand(self, "*", other)
            terms = {}
            theirs = _terms(other)
            for mono, c in self.terms:
                for m, d in theirs.items():
                    product = _multiply_monomials(mono, m)
                    terms[product] = terms.get(product, 0) + c * d
            return _size_of_terms(terms)

        __rmul__ = __mul__

        def __pow__(self, other):
            if type(other) is not int or other < 0:
                return _refuse_operand(self, "**", other)
            out = 1
            for _ in range(other):
                out = out * self
            return out

        def __floordiv__(self, other):
            return _floor_divide(self, other) if _is_size(other) else _refuse_operand(self, "//", other)

        def __rfloordiv__(self, other):
            return _floor_divide(other, self) if _is_size(other) else _refuse_operand(other, "//", self)

        def __mod__(self, other):
            return self - self // other * other if _is_size(other) else _refuse_operand(self, "%", other)

        def __rmod__(self, other):
            return other - other // self * self if _is_size(other) else _refuse_operand(other, "%", self)

        def __divmod__(self, other):
            return self // other, self % other

        def __rdivmod__(self, other):
            return other // self, other % self

        def __truediv__(self, other):
            return _refuse_operand(self, "/", other)

        def __rtruediv__(self, other):
            return _refuse_operand(other, "/", self)

        def __rpow__(self, other):
            return _refuse_operand(other, "**", self)

        def __array_ufunc__(self, ufunc, method, *operands, **options):
            arrays = [np.array(x, dtype=object) if type(x) is Size else x for x in operands]
            try:
                return getattr(ufunc, method)(*arrays, **options)
            except SizeError:
                raise
            except TypeError:
                raise SizeError(
                    f"numpy.{ufunc.__name__}: the size {self} has no value while the program is of symbolic shape",
                    remedy="use the function of fxad.numpy, on fxad.numpy.asarray of the size",
                ) from None

        def bit_length(self):
            """Return the number of bits, which is a size too: `bits(n)`."""
            return _bit_length(self)

        def __abs__(self):
            return self if self >= 0 else -self

        def __round__(self, digits=None):
            return self

        __trunc__ = __floor__ = __ceil__ = __round__

        # ------------------------------------------------------------------------------------------- comparison

        def __ge__(self, other):
            return _compare(self, ">=", other, 0)

        def __gt__(self, other):
            return _compare(self, ">", other, 1)

        def __le__(self, other):
            return not _compare(self, "<=", other, 1)

        def __lt__(self, other):
            return not _compare(self, "<", other, 0)

        # --------------------------------------------------------------------------------------------- no number

        def __index__(self):
            raise SizeError(
                f"size: {self} has no value while the program is of symbolic shape",
                remedy="use it in shapes and arithmetic; specialize the program, or mask it, to give it a value",
            )

        __int__ = __float__ = __complex__ = __index__


_LARGEST_SIZE: Final = 2**31 - 1  # no dimension is larger
_sizes: Final[WeakTable[str, Size]] = WeakTable()


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


def _is_size(value: object) -> bool:
    return type(value) is int or type(value) is Size


def _terms(size: int) -> Terms:
    if type(size) is Size:
        return dict(size.terms)
    return {(): size} if size else {}


def _size_of_terms(terms: Terms) -> int:
    """Return the size of terms in any order, in normal form: an int if it is constant."""
    parts = _positive_parts(terms)
    return _interned(terms) if parts is None else _normal_form(*parts)


def _interned(terms: Terms) -> int:
    """Return the size of terms in normal form."""
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Size(tuple(sorted(kept, key=_term_order)))


def _factor_order(factor: Factor) -> tuple[bool, str]:
    return isinstance(factor, SizeFunction), factor.text


def _term_order(term: tuple[Monomial, int]) -> tuple[int, tuple[tuple[tuple[bool, str], int], ...]]:
    """Return the order of terms: by degree from the highest, then names before functions, then by text."""
    mono, _ = term
    return -sum([power for _, power in mono]), tuple([(_factor_order(factor), power) for factor, power in mono])


def _multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: _factor_order(item[0])))


def size_of(factor: Factor) -> int:
    """Return the size that is one factor."""
    return Size(((((factor, 1),), 1),))


def named_size(name: str, at_least: int = 0) -> int:
    """Return the size with a name, which is assumed to be at least `at_least`.

    Raises: ArgumentError for a name that is not an identifier.
    """
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise ArgumentError(
            f"size: {name!r} is not a name of a size",
            remedy=f"give an identifier that begins with a letter, and not {', '.join(sorted(_RESERVED))}",
        )
    return size_of(SizeName(name, at_least))


def bound_size(k: int, at_least: int = 0) -> int:
    """Size number k of those that rules bind, with a name that no user can give."""
    return size_of(SizeName(f"_axis{k}", at_least))


_RESERVED: Final = frozenset({"bits", "div", "max", "min", "none", "true", "false", "complex"})


def _floor_divide(a: int, b: int) -> int:
    """Return a // b: exact where the polynomial is divisible, else a `SizeFunction`."""
    if type(b) is int:
        if b == 0:
            raise ZeroDivisionError(f"{a} // 0")
        if b == 1:
            return a
        whole: Terms = {m: c // b for m, c in _terms(a).items() if c % b == 0}
        rest: Terms = {m: c for m, c in _terms(a).items() if c % b}
        if rest and whole:
            return _size_of_terms(whole) + _floor_divide(_size_of_terms(rest), b)
        if not rest:
            return _size_of_terms(whole)
        if rest.keys() == {()}:
            return rest[()] // b
        inner = [(m, c) for m, c in rest.items() if m]
        once = _only_function(inner[0][0], "//") if len(inner) == 1 and inner[0][1] == 1 else None
        if b > 0 and once is not None and type(once.b) is int and once.b > 0:  # (a // k + c) // b
            return (once.a + rest.get((), 0) * once.b) // (once.b * b)
    else:
        if a == 0 or (at_least(a, 0) and at_least(b - a, 1)):
            return 0
        if at_least(-a, 1) and at_least(a + b, 0):
            return -1
        quotient = _bounded_quotient(a, b)
        if quotient is not None:
            return quotient
    return size_of(SizeFunction("//", a, b))


def _bounded_quotient(a: int, b: int) -> int | None:
    """Return the polynomial a // b if the remainder of a division of polynomials, or that plus b, is known to be from 0
    to b - 1. (2*n - 1) // n is 1 for n >= 1."""
    out: int = 0
    left = a
    (lead, lead_c), *_ = sorted(_terms(b).items(), key=_term_order)
    for _ in range(len(_terms(a)) * 4 + 4):
        terms = sorted(_terms(left).items(), key=_term_order)
        if not terms:
            return out
        mono, c = terms[0]
        powers = dict(mono)
        for factor, power in lead:
            powers[factor] = powers.get(factor, 0) - power
        if c % lead_c or any([p < 0 for p in powers.values()]):
            break
        ordered = sorted(powers.items(), key=lambda item: _factor_order(item[0]))
        q = _size_of_terms({tuple([(factor, power) for factor, power in ordered if power]): c // lead_c})
        out, left = out + q, left - q * b
    for below in (0, 1):
        rest = left + below * b
        if at_least(rest, 0) and at_least(b - rest, 1):
            return out - below
    return None


def maximum(a: int, b: int) -> int:
    """Return the larger of two sizes; a `SizeFunction` if the assumptions do not decide."""
    known = _in_order(a, b)
    return known[1] if known else _normal_form(a, [(b - a, 1)])  # a + max(0, b - a)


def minimum(a: int, b: int) -> int:
    """Return the smaller of two sizes; a `SizeFunction` if the assumptions do not decide."""
    known = _in_order(a, b)
    return known[0] if known else _normal_form(b, [(b - a, -1)])  # b - max(0, b - a)


def _only_function(mono: Monomial, *functions: str) -> SizeFunction | None:
    """Return the function that is the only factor of a monomial, if it is one of these."""
    if len(mono) == 1 and mono[0][1] == 1:
        factor = mono[0][0]
        if isinstance(factor, SizeFunction) and factor.function in functions:
            return factor
    return None


def _normal_form(rest: int, parts: Sequence[tuple[int, int]]) -> int:
    """Return the size `rest + sum(c * max(0, d) for d, c in parts)`. Equal sums of this form are one size.

    max(0, -d) is max(0, d) - d, so each d is taken with the sign for which it grows with its first term. Then a part
    grows too: `c * max(0, d)`, or, for c < 0, `c * d - c * min(0, d)`. A single part with c = 1 or -1 may be written as
    the `max` or `min` of two sizes; the shorter text counts. In one named size, every sum of this form is a line with
    bends, which are listed by their places: max(0, max(0, n - 1) - min(1, n)) is max(0, n - 2).
    """
    lines = _lines_of_one_size(rest, parts)
    if lines is not None:
        rest, parts = lines
    coefficients: dict[int, int] = {}
    for d, c in parts:
        (_, first), *_ = sorted(_terms(d).items(), key=_term_order)
        if first < 0:
            d, rest = -d, rest + d * c
        coefficients[d] = coefficients.get(d, 0) + c
    kept = {d: c for d, c in coefficients.items() if c}
    rest = rest + reduce(lambda total, part: total + part[0] * part[1], [p for p in kept.items() if p[1] < 0], 0)
    functions = {d: _ordered_function("max" if c > 0 else "min", 0, d) for d, c in kept.items()}
    terms = dict(_terms(rest))
    terms.update({((functions[d], 1),): abs(c) for d, c in kept.items()})
    split = _interned(terms)
    if len(kept) == 1 and rest:
        ((d, c),) = kept.items()
        if abs(c) == 1:
            joined = size_of(_ordered_function("max" if c > 0 else "min", rest, rest + d))
            return joined if len(exact_text(joined)) <= len(exact_text(split)) else split
    return split


def _ordered_function(function: str, a: int, b: int) -> SizeFunction:
    return SizeFunction(function, *sorted((a, b), key=exact_text))


def _positive_parts(terms: Terms) -> tuple[int, list[tuple[int, int]]] | None:
    """Return terms as a rest and parts for `_normal_form`; None if no term is a multiple of `max` or `min`."""
    parts: list[tuple[int, int]] = []
    rest: int = 0
    others: Terms = {}
    for mono, c in terms.items():
        function = _only_function(mono, "max", "min")
        if function is None:
            others[mono] = c
        elif function.function == "max":
            parts.append((function.b - function.a, c))
            rest = rest + function.a * c
        else:
            parts.append((function.b - function.a, -c))
            rest = rest + function.b * c
    return (rest + _interned(others), parts) if parts else None


@final
class _BentLine(NamedTuple):
    """A line with bends, as a function of a named size: the value at the least size, the slope there, and the change of
    the slope at each bend."""

    value: int
    slope: int
    bends: Mapping[int, int]


_MOST_BENDS: Final = 16


def _lines_of_one_size(rest: int, parts: Sequence[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the same sum with a part `max(0, n - k)` for each bend, if it is in one named size and piecewise
    linear."""
    names = {n for size in (rest, *[d for d, _ in parts]) for n in names_of(size)}
    if len(names) != 1:
        return None
    (name,) = names
    line = _line(rest, name)
    for d, c in parts:
        inner = _line(d, name)
        if line is None or inner is None:
            return None
        line = _add_lines(line, _positive_line(inner, name.at_least), c)
    if line is None or len(line.bends) > _MOST_BENDS:
        return None
    value, slope, bends = line
    n = size_of(name)
    return (n - name.at_least) * slope + value, [(n - k, c) for k, c in sorted(bends.items())]


def _line(size: int, name: SizeName, side: int = 0) -> _BentLine | None:
    """Return a size as a line with bends; None if it is none: a product of names, or a quotient. With `side` 1 a line
    that is not below the size, with -1 one that is not above: there b * (a // b) is between a - b + 1 and a."""
    out = _BentLine(0, 0, {})
    for mono, c in _terms(size).items():
        inner = side if c > 0 else -side
        function = _only_function(mono, "max", "min", "//")
        term: _BentLine | None = None
        if not mono:
            term = _BentLine(1, 0, {})
        elif mono == ((name, 1),):
            term = _BentLine(name.at_least, 1, {})
        elif function is not None and function.function == "//":
            if side and type(function.b) is int and function.b > 0 and c % function.b == 0:
                c = c // function.b
                term = _line(function.a if inner > 0 else function.a - function.b + 1, name, inner)
        elif function is not None:
            x, y = _line(function.a, name, inner), _line(function.b, name, inner)
            if x is not None and y is not None:
                above = _positive_line(_add_lines(y, x, -1), name.at_least)
                term = _add_lines(x, above, 1) if function.function == "max" else _add_lines(y, above, -1)
        if term is None:
            return None
        out = _add_lines(out, term, c)
        if len(out.bends) > _MOST_BENDS:
            return None
    return out


def _add_lines(a: _BentLine, b: _BentLine, c: int) -> _BentLine:
    """Return a + c * b."""
    bends = dict(a.bends)
    for k, change in b.bends.items():
        bends[k] = bends.get(k, 0) + c * change
    changes = {k: change for k, change in bends.items() if change}
    return _BentLine(a.value + c * b.value, a.slope + c * b.slope, changes)


def _positive_line(line: _BentLine, least: int) -> _BentLine:
    """Return max(0, line), exact at whole numbers from `least` on."""
    value, slope, bends = line
    starts = [least, *[k for k in sorted(bends) if k > least]]
    points: set[int] = {least, least + 1}
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        if start > least:
            slope = slope + bends[start]
        points.update((start, start + 1))
        if slope and (value < 0) != (slope < 0):  # it crosses 0 at `start + steps`, or just before
            steps = -(-abs(value) // abs(slope))
            if end is None or start + steps <= end:
                points.update((start + steps - 1, start + steps, start + steps + 1))
        if end is not None:
            value = value + slope * (end - start)

    def at(n: int) -> int:
        return max(0, _value_of_line(line, least, n))

    first = at(least + 1) - at(least)
    changes = {k: at(k + 1) - 2 * at(k) + at(k - 1) for k in points if k > least}
    return _BentLine(at(least), first, {k: change for k, change in changes.items() if change})


def _value_of_line(line: _BentLine, least: int, n: int) -> int:
    value, slope, bends = line
    return value + slope * (n - least) + sum([change * max(0, n - k) for k, change in bends.items()])


def _in_order(a: int, b: int) -> tuple[int, int] | None:
    """Return the smaller and the larger of two sizes; None if the assumptions do not decide."""
    if type(a) is int and type(b) is int:
        return (a, b) if a <= b else (b, a)
    if at_least(b - a, 0):
        return a, b
    return (b, a) if at_least(a - b, 0) else None


def _bit_length(a: int, _: int = 0) -> int:
    """Return the number of binary digits of a size; 0 of a negative one."""
    return max(a, 0).bit_length() if type(a) is int else size_of(SizeFunction("bits", a, 0))


def _refuse_operand(a: object, sign: str, b: object) -> object:
    """Refuse an operation of a size and another operand, on either side. Return NotImplemented for an operand whose
    class may know the operation. Raises: SizeError."""
    reflected = type(b) is Size
    other = a if reflected else b
    if type(other) in NUMBER_ARGUMENTS:  # it asks again, with the plain number
        return NotImplemented
    if type(other) in (float, complex, bool) or (sign in ("/", "**") and isinstance(b, int | Size)):
        raise SizeError(
            f"size: {a} {sign} {b} is not a size",
            remedy="convert the size to an array first, with fxad.numpy.asarray, and compute with that",
        )
    if isinstance(other, int) or (hasattr(other, "__index__") and not hasattr(other, "shape")):
        operation = f"{described(a)} {sign} {b}" if reflected else f"{a} {sign} {described(b)}"
        raise SizeError(f"size: {operation} is not a size", remedy="use ints and sizes")
    return NotImplemented


# ----------------------------------------------------------------------------------- lower bounds, from assumptions


def lower_bound(size: int) -> int | None:
    """Return the greatest known lower bound of a size under the assumptions; None if none is known. It is computed
    once."""
    if type(size) is not Size:
        return size
    if not hasattr(size, "least"):
        _set(size, "least", _search_lower_bound(size))
    return size.least


def _search_lower_bound(size: int) -> int | None:
    known = _line_of(size)
    if known is not None:
        return _least_of_line(known[1], known[0].at_least)
    low = _lower_bound_of_terms(_terms(size), 4, {})
    names = names_of(size)
    for form in (size, *_other_forms(size)) if len(names) == 1 else ():
        below = _line(form, names[0], -1)
        other = None if below is None else _least_of_line(below, names[0].at_least)
        low = other if low is None else low if other is None else max(low, other)
    return low


def _other_forms(size: int) -> list[int]:
    """Return the same size with max(a, b) as a + b - min(a, b), and the other way round. Bounds of quotients in it may
    cancel in one form only."""
    forms = []
    for function, other in (("max", "min"), ("min", "max")):
        terms: Terms = {}
        for mono, c in _terms(size).items():
            f = _only_function(mono, function)
            replaced: Terms = {mono: c}
            if f is not None:
                replaced = {m: d * c for m, d in _terms(f.a + f.b).items()}
                opposite: Monomial = ((_ordered_function(other, f.a, f.b), 1),)
                replaced[opposite] = replaced.get(opposite, 0) - c
            for m, d in replaced.items():
                terms[m] = terms.get(m, 0) + d
        forms.append(_interned(terms))
    return forms


def _least_of_line(line: _BentLine, least: int) -> int | None:
    """Return the least value of a line from `least` on; None if there is none."""
    value, slope, bends = line
    if slope + sum(bends.values()) < 0:
        return None
    return min([value, *[_value_of_line(line, least, k) for k in bends]])


def _line_of(size: int) -> tuple[SizeName, _BentLine] | None:
    """Return the line with bends that a size is, and its name; None for one of two names, or one that is no line."""
    names = names_of(size)
    line = _line(size, names[0]) if len(names) == 1 else None
    return None if line is None else (names[0], line)


# The bounds found in one search, where the same functions are replaced in any order.
_FoundBounds: TypeAlias = dict[tuple[int, frozenset[tuple[Monomial, int]]], int | None]
_LONGEST_SEARCH: Final = 32


def _lower_bound_of_terms(terms: Terms, depth: int, found: _FoundBounds) -> int | None:
    """Return a lower bound of a polynomial. Bounds replace products and functions in it, at most `depth` of them. A
    search looks at `_LONGEST_SEARCH` polynomials at most.

    Of n - max(n, 4) + 8, for n >= 0: max(n, 4) is n or 4, so the bound is the lesser of those of 8 and of n + 4: 4.
    """
    if depth == 0 or len(found) >= _LONGEST_SEARCH:
        return None
    key = depth, frozenset(terms.items())
    if key not in found:
        found[key] = _lower_bound_by_replacing(terms, depth, found)
    return found[key]


def _lower_bound_by_replacing(terms: Terms, depth: int, found: _FoundBounds) -> int | None:
    direct = _constant_after_shift(terms)
    for mono, c in terms.items():
        if (rounded := _rounded_to_multiple(mono)) is not None:
            a, b = rounded
            rest = _size_of_terms({m: d for m, d in terms.items() if m != mono})
            low = _lower_bound_of_terms(_terms(rest + (a if c < 0 else a - b + 1) * c), depth - 1, found)
            if low is not None:
                return low if direct is None else max(low, direct)
    if direct is not None:
        return direct
    for mono, c in terms.items():
        if len(mono) == 1 and mono[0][1] == 1 and isinstance(mono[0][0], SizeFunction):
            rest = _size_of_terms({m: d for m, d in terms.items() if m != mono})
            low = _lower_bound_with_function(rest, c, mono[0][0], depth - 1, found)
            if low is not None:
                return low
    return None


def _lower_bound_with_function(
    rest: int, c: int, function: SizeFunction, depth: int, found: _FoundBounds
) -> int | None:
    """Return a lower bound of `rest + c * function`: bounds of the function, in terms of its operands, replace it."""
    a, b = function.a, function.b

    def lower(size: int) -> int | None:
        return _lower_bound_of_terms(_terms(size), depth, found)

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
    if c < 0 and at_least(a, 0) and at_least(b, 1):
        return lower(rest + a * c)  # a // b <= a
    return None


def _rounded_to_multiple(mono: Monomial) -> tuple[int, int] | None:
    """Return a and b of b * (a // b), for a product b >= 1 of named sizes: between a - b + 1 and a. Of n * (m // n),
    for n >= 1, it is (m, n)."""
    for k, (whole, power) in enumerate(mono):
        if power == 1 and isinstance(whole, SizeFunction) and whole.function == "//" and len(mono) > 1:
            others = mono[:k] + mono[k + 1 :]
            named = all([isinstance(n, SizeName) and n.at_least >= 1 for n, _ in others])
            if named and whole.b == _size_of_terms({others: 1}):
                return whole.a, whole.b
    return None


_Powers: TypeAlias = tuple[tuple[str, int], ...]  # a monomial: the texts of factors with their powers, in order


def _constant_after_shift(terms: Terms) -> int | None:
    """Return a lower bound: each factor is replaced by its lower bound plus a number >= 0. If all coefficients are then
    >= 0, this is the constant term; else None. Of n*m - m + 3, for n >= 1 and m >= 0: with n = 1 + n' it is n'*m + 3,
    so at least 3."""
    total: dict[_Powers, int] = {}
    for mono, c in terms.items():
        expanded: dict[_Powers, int] = {(): c}
        for factor, power in mono:
            low = factor.at_least if isinstance(factor, SizeName) else _lower_bound_of_function(factor)
            if low is None:
                return None
            for _ in range(power):
                more: dict[_Powers, int] = {}
                for m, d in expanded.items():
                    more[m] = more.get(m, 0) + d * low
                    powers = dict(m)
                    powers[factor.text] = powers.get(factor.text, 0) + 1
                    key = tuple(sorted(powers.items()))
                    more[key] = more.get(key, 0) + d
                expanded = more
        for m, d in expanded.items():
            total[m] = total.get(m, 0) + d
    return total.pop((), 0) if all([c >= 0 for m, c in total.items() if m]) else None


def _lower_bound_of_function(function: SizeFunction) -> int | None:
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


def at_least(size: int, bound: int) -> bool:
    """Return True if the assumptions imply that a size is at least `bound`."""
    low = lower_bound(size)
    return low is not None and low >= bound


def may_fit(m: int, n: int) -> bool:
    """Return True unless it is known that m is negative or larger than n."""
    if type(m) is int and type(n) is int:
        return 0 <= m <= n
    return not at_least(-m, 1) and not at_least(m - n, 1)


def _compare(a: int, sign: str, b: object, margin: int) -> bool:
    """Return True if a - b >= margin, which is 0 for `>=` and `<`, and 1 for `>` and `<=`. `sign` is the user's
    operator, for messages. Raises: UnknownSizeError if the assumptions do not decide it."""
    if not _is_size(b):
        if isinstance(b, float):  # an infinity, as in a comparison with a bound
            if b == float("inf"):
                return False
            if b == float("-inf"):
                return True
        raise SizeError(f"size: {a} {sign} {b!r} cannot be decided", remedy="compare sizes with ints and sizes")
    difference: int = a - b  # type: ignore[operator]  # `b` is an int or a size
    if at_least(difference, margin):
        return True
    if at_least(-difference, 1 - margin) or (type(b) is int and b >= _LARGEST_SIZE):
        return False
    names = {n.name: n for n in names_of(difference)}
    raise UnknownSizeError(
        f"size: {a} {sign} {b} is not decided by {_assumptions_text(names.values())}",
        remedy=f"{_deciding(difference, margin)}, or use fxad.numpy on the value of the size",
    )


def assumption_of_equality(a: int, b: int) -> str:
    """Return a remedy for two sizes that differ: the least assumption under which they are equal, or nothing."""
    names = sorted({n for size in (a, b) for n in names_of(size)}, key=lambda n: n.name)
    for k in range(1, 17):
        stronger = {n.name: size_of(SizeName(n.name, max(k, n.at_least))) for n in names}
        if names and substitute_sizes(a, stronger) == substitute_sizes(b, stronger):
            stated = ", ".join([f"{n.name}>={k}" for n in names])
            return f"; they are equal if '{stated}' is stated where the size is named"
    return ""


def _deciding(difference: int, margin: int) -> str:
    """Return a remedy: the assumption that decides if a difference is at least `margin`."""
    names = list(names_of(difference))

    def decides(k: int, chosen: Sequence[SizeName]) -> bool:
        stronger = substitute_sizes(difference, {n.name: size_of(SizeName(n.name, k)) for n in chosen})
        return at_least(stronger, margin) or at_least(-stronger, 1 - margin)

    for chosen in (names[:1], names):
        low = max([n.at_least for n in chosen])
        high = low + 64
        if decides(high, chosen):  # the least one, by bisection
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if decides(middle, chosen) else (middle, high)
            stated = ", ".join([f"{n.name}>={high}" for n in chosen])
            return f"state an assumption where the size is named, as in '{stated}'"
    first, *others = names
    if others:
        return f"name one size by the other, as in '{others[0].name}+k' for {first.name}"
    return f"state an assumption where the size is named, as in '{first.name}>={first.at_least + 1}'"


def _assumptions_text(names: Iterable[SizeName]) -> str:
    return ", ".join([f"{n.name} >= {n.at_least}" for n in names])


# --------------------------------------------------------------------------------------------------------- evaluation


def dimension(value: object) -> int:
    """Return a user's dimension: a size as it is, anything else as an int. Raises: AttributeError, TypeError."""
    return value if type(value) is Size else value.__index__()  # type: ignore[attr-defined]  # callers catch AttributeError


def is_symbolic(shape: Iterable[object]) -> bool:
    """Return True if some dimension is not a number."""
    return any([type(n) is Size for n in shape])


def names_of(size: object) -> tuple[SizeName, ...]:
    """Return the named sizes in a dimension."""
    return size.names if isinstance(size, Size) else ()


def exact_text(size: int) -> str:
    """Return the text of a dimension, with assumptions; `read_size` reads it."""
    return size.text if isinstance(size, Size) else str(size)


def substitute_sizes(size: int, values: Mapping[str, int]) -> int:
    """Return a dimension with the named sizes replaced by ints or sizes. Names without a value stay."""
    return evaluate(size, lambda n: values[n.name] if n.name in values else size_of(n))


_FUNCTIONS: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType(
    {"//": lambda a, b: a // b, "max": maximum, "min": minimum, "bits": _bit_length}
)


def evaluate(size: int, value: Callable[[SizeName], int]) -> int:
    """Return a dimension with `value(name)`, an int or a size, in place of each name."""
    if not isinstance(size, Size):
        return size
    total: int = 0
    for mono, c in size.terms:
        term: int = c
        for base, power in mono:
            if isinstance(base, SizeName):
                factor = value(base)
            else:
                factor = _FUNCTIONS[base.function](evaluate(base.a, value), evaluate(base.b, value))
            term = term * (factor**power if power > 1 else factor)
        total = total + term
    return total


# ------------------------------------------------------------------------------------------------------- upper bounds


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
    known = _line_of(size)
    if known is not None and type(bound := bounds.get(known[0].name)) is int:
        name, line = known
        least = name.at_least
        values = [
            _value_of_line(line, least, k) for k in {least, max(bound, least), *line.bends} if k <= max(bound, least)
        ]
        return min(values), max(values)
    depth -= depth > 0
    low, high = _interval_of_terms(size.terms, bounds, depth)
    for mono, c in sorted(size.terms, key=_longest_factor, reverse=True) if depth else ():  # outer quotients first
        rounded, scale = _rounded_to_multiple(mono), 1
        if rounded is None and len(mono) == 1 and mono[0][1] == 1 and isinstance(mono[0][0], SizeFunction):
            whole = mono[0][0]
            if whole.function == "//" and type(whole.b) is int and whole.b > 0:
                rounded, scale = (whole.a, whole.b), whole.b
        if rounded is not None:  # the bounds of `scale` times the size
            a, b = rounded
            rest = (size - _size_of_terms({mono: c})) * scale
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
        apply = _FUNCTIONS[base.function]
        return apply(a, c), apply(b, d)
    c, d = maximum(c, 1), maximum(d, 1)
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


# --------------------------------------------------------------------------------- sizes from the shapes of arguments


Constraint: TypeAlias = tuple[int, int, str]  # a dimension, its actual value, and its path, for messages


def solve_sizes(what: str, constraints: Iterable[Constraint]) -> dict[str, int]:
    """Return the values of the named sizes for which each dimension has its actual value. A value may be a size of
    another program.

    Raises: ShapeError that names two constraints for a name with two values, a dimension that differs, or a name that
            no dimension determines.
    """
    values: dict[str, int] = {}
    origin: dict[str, str] = {}
    unsolved = [constraint for constraint in constraints if type(constraint[0]) is Size]
    while unsolved:
        postponed: list[Constraint] = []
        for size, actual, path in unsolved:
            name = _first_unsolved(size, values)
            if name is None:
                expected = substitute_sizes(size, values)
                if expected == actual:
                    continue
                reasons = ", ".join([f"{n.name} = {values[n.name]} by {origin[n.name]}" for n in names_of(size)])
                raise ShapeError(f"{what}: {path} is {actual}, but {size} is {expected}: {reasons}", remedy=_AGREEING)
            linear = _as_linear(size, name, values)
            if linear is None:
                postponed.append((size, actual, path))
                continue
            coefficient, rest = linear
            value = (actual - rest) // coefficient
            if value * coefficient != actual - rest or (type(value) is int and not at_least(value, name.at_least)):
                raise ShapeError(
                    f"{what}: {path} is {actual}, which is not {size} for any {name.name} >= {name.at_least}",
                    remedy=_AGREEING,
                )
            values[name.name], origin[name.name] = value, path
        if len(postponed) == len(unsolved):
            size, actual, path = postponed[0]
            raise ShapeError(
                f"{what}: {path} is {actual}, which does not determine the sizes in {size}",
                remedy="give each named size alone in some shape, as in 'n'",
            )
        unsolved = postponed
    return values


_AGREEING: Final = "a name stands for one number: give arrays, or padding, whose sizes agree"


def _first_unsolved(size: int, values: Mapping[str, int]) -> SizeName | None:
    """Return the first name without a value."""
    return next((n for n in names_of(size) if n.name not in values), None)


def _as_linear(size: int, name: SizeName, values: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the coefficient of a name in a size, and the rest of the size, in which all names have values. None for a
    size of another form."""
    terms = _terms(substitute_sizes(size, values))
    alone: Monomial = ((name, 1),)
    rest = _size_of_terms({m: c for m, c in terms.items() if m != alone})
    if alone not in terms or any([n.name == name.name for n in names_of(rest)]) or _first_unsolved(rest, values):
        return None
    return terms[alone], rest


# ------------------------------------------------------------------------------------------------------- the language


_TOKENS: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]+|>=|//|\*\*|[-+*^(),>%]|.)")


_MOST_FACTORS: Final = 200  # of all terms of a size in a text


def _is_number(token: str) -> bool:
    return token.isascii() and token.isdigit()  # `isdigit` admits other digits, such as a superscript two


@final
class Reader:
    """Reads the language of shapes: `(n, 2*m+1, _)`.

    A scope holds the assumptions of one set of shapes: if one of them states `n>=1`, this holds for n in all of them.
    Without a scope each mention of a name states its own assumption, as in exact text.
    """

    __slots__ = ("at", "scope", "text", "tokens")

    def __init__(self, text: str, scope: dict[str, int] | None = None) -> None:
        self.text = text
        self.tokens = _TOKENS.findall(text.strip()) + [""]
        self.at = 0
        self.scope = scope

    def fail(self, problem: str) -> NoReturn:
        raise ArgumentError(
            f"shape: {shown(self.text, 200)}: {problem}",
            remedy="write sizes as polynomials, separated by commas: '(n, 2*m+1, 3)', 'n>=1', '_' for a fixed size",
        )

    def accept(self, token: str) -> bool:
        matches: bool = self.tokens[self.at] == token
        self.at += matches
        return matches

    def take(self, token: str) -> None:
        if not self.accept(token):
            got = self.tokens[self.at]
            self.fail(f"expected {token!r}, got {repr(got) if got else 'the end'}")

    def shape(self) -> tuple[int | None, ...]:
        """Return a whole text: `(n, _)`, `n, 3`, `n`, ``. None stands for `_`."""
        return self._whole(self._sizes)

    def single_size(self) -> int:
        """Return a whole text that is one size."""
        return self._whole(self.sum)

    def _whole(self, read: Callable[[], T]) -> T:
        """Return the result of `read`, which must take the whole text."""
        try:
            out = read()
        except RecursionError:
            self.fail("a size is nested too deeply")
        if self.tokens[self.at]:
            self.fail(f"{self.tokens[self.at]!r} is not part of a size")
        return out

    def _sizes(self) -> tuple[int | None, ...]:
        if not self.tokens[0]:
            return ()
        closing = self.accept("(") if self.tokens[0] == "(" and self._outer() else False
        out: list[int | None] = []
        end = ")" if closing else ""
        while self.tokens[self.at] != end:
            out.append(None if self.accept("_") else self.sum())
            if not self.accept(","):
                break
        if closing:
            self.take(")")
        return tuple(out)

    def _outer(self) -> bool:
        """Return True if the first parenthesis closes at the end of the text."""
        depth = 0
        for k, token in enumerate(self.tokens):
            depth += (token == "(") - (token == ")")
            if depth == 0:
                return self.tokens[k + 1 :] == [""]
        return False

    def sum(self) -> int:
        out = -self.product() if self.accept("-") else self.product()
        while self.tokens[self.at] in ("+", "-"):
            out = self._checked(out + self.product() if self.accept("+") else self._minus(out))
        return out

    def _checked(self, size: int) -> int:
        """Return a short size with coefficients of 64 bits: the time to read a text must be linear in it."""
        terms = _terms(size)
        if sum([max(len(mono), 1) for mono in terms]) > _MOST_FACTORS:
            self.fail(f"a size has more than {_MOST_FACTORS} factors")
        if any([c.bit_length() > 63 for c in terms.values()]):
            self.fail("a size is too large")
        return size

    def _times(self, a: int, b: int) -> int:
        if len(_terms(a)) * len(_terms(b)) > _MOST_FACTORS:
            self.fail(f"a size has more than {_MOST_FACTORS} factors")
        return self._checked(a * b)

    def _minus(self, out: int) -> int:
        self.take("-")
        return out - self.product()

    def product(self) -> int:
        out = self.power()
        while self.tokens[self.at] in ("*", "//", "%"):
            token = self.tokens[self.at]
            self.at += 1
            by = self.power()
            if token != "*" and by == 0:
                self.fail("division by 0")
            out = self._times(out, by) if token == "*" else self._checked(out // by if token == "//" else out % by)
        return out

    def power(self) -> int:
        if self.accept("-"):
            return -self.power()
        out = self.atom()
        if self.accept("^") or self.accept("**"):
            token = self.tokens[self.at]
            if not _is_number(token) or int(token) > 64:
                self.fail("a power is a small number")
            self.at += 1
            base, out = out, 1
            for _ in range(int(token)):
                out = self._times(out, base)
        return out

    def atom(self) -> int:
        token = self.tokens[self.at]
        if self.accept("("):
            out = self.sum()
            self.take(")")
            return out
        if _is_number(token):
            if len(token) > 19:
                self.fail("a size is too large")
            self.at += 1
            return int(token)
        return self._function() if token in ("bits", "div", "max", "min") else self._named()

    def _function(self) -> int:
        """Return `div(n,2)`."""
        function = self.tokens[self.at]
        self.at += 1
        self.take("(")
        a = self.sum()
        if function == "bits":
            self.take(")")
            return a.bit_length()
        self.take(",")
        b = self.sum()
        self.take(")")
        if function == "div" and b == 0:
            self.fail("division by 0")
        return a // b if function == "div" else maximum(a, b) if function == "max" else minimum(a, b)

    def _named(self) -> int:
        """Return `n`, `n>=1`."""
        token = self.tokens[self.at]
        bound = self.scope is None and _BOUND.fullmatch(token)
        if not (bound or _NAME.fullmatch(token)) or token in _RESERVED:
            self.fail(f"expected a size, got {repr(token) if token else 'the end'}")
        self.at += 1
        low = self.scope.get(token, 0) if self.scope is not None else 0
        sign = self.tokens[self.at]
        if sign in (">", ">="):
            number = self.tokens[self.at + 1]
            if not _is_number(number) or len(number) > 18:
                self.fail(f"{token} {sign} is followed by a number")
            self.at += 2
            low = max(low, int(number) + (sign == ">"))
            if self.scope is not None:
                self.scope[token] = low
        return size_of(SizeName(token, low)) if bound else named_size(token, low)


def read_size(text: str) -> int:
    """Return the size of an exact text. Raises: ArgumentError."""
    return Reader(text).single_size()


def read_shapes(texts: Sequence[str]) -> list[tuple[int | None, ...]]:
    """Return the shapes of texts that share their assumptions."""
    scope: dict[str, int] = {}
    for text in texts:
        Reader(text, scope).shape()
    return [Reader(text, scope).shape() for text in texts]
