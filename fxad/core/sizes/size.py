"""`Size`: a symbolic size, its arithmetic and its order.

    >>> from fxad.core.sizes.lower_bounds import lower_bound
    >>> from fxad.core.sizes.equations import solve_sizes
    >>> from fxad.core.sizes.polynomials import exact_text
    >>> from fxad.core.sizes.text import read_size
    >>> from fxad.core.sizes.upper_bounds import upper_bound
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

An order, or a truth value, that the assumptions do not decide is a SizeError, and so is each place where Python needs
the number.

For a type checker and for `isinstance` a `Size` is an int: code about shapes has one form. It is not a subclass of int,
so no C code reads a number from it. Decision: docs/adr/0049.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

import numpy as np

from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.polynomials import (
    Factor,
    Polynomial,
    SizeFunction,
    SizeName,
    Terms,
    factor_order,
    is_size,
    names_of,
    normal_form,
    of_factor,
    only_function,
    refuse_operand,
    size_of_terms,
    term_order,
    terms_of,
)
from fxad.errors import ArgumentError, SizeError, UnknownSizeError

if TYPE_CHECKING:

    class Size(Polynomial):
        """A dimension that is not a number: a polynomial in named sizes."""

else:

    @final
    class Size(Polynomial):
        """A dimension that is not a number: a polynomial in named sizes.

        Law:    equal polynomials are one object; a size equals no int; `==` compares expressions and never raises.
                The truth of a size is that of its number.
        Raises: SizeError for an order or a truth that the assumptions do not decide, and wherever Python needs the
                number.
        """

        __slots__ = ()

        # --------------------------------------------------------------------------- division, and functions of ints

        def __floordiv__(self, other):
            return _floor_divide(self, other) if is_size(other) else refuse_operand(self, "//", other)

        def __rfloordiv__(self, other):
            return _floor_divide(other, self) if is_size(other) else refuse_operand(other, "//", self)

        def __mod__(self, other):
            return self - self // other * other if is_size(other) else refuse_operand(self, "%", other)

        def __rmod__(self, other):
            return other - other // self * self if is_size(other) else refuse_operand(other, "%", self)

        def __divmod__(self, other):
            return self // other, self % other

        def __rdivmod__(self, other):
            return other // self, other % self

        def bit_length(self):
            """Return the number of bits, which is a size too: `bits(n)`."""
            return bit_length(self)

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

        def __bool__(self):
            if at_least(self, 1) or at_least(-self, 1):
                return True
            raise _undecided(f"whether {self} is 0", self, 1)

        # --------------------------------------------------------------------------------------------- no number

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

        def __index__(self):
            raise SizeError(
                f"size: {self} has no value while the program is of symbolic shape",
                remedy="use it in shapes and arithmetic; specialize the program, or mask it, to give it a value",
            )

        __int__ = __float__ = __complex__ = __index__


def size_of(factor: Factor) -> int:
    """Return the size that is one factor."""
    return of_factor(Size, factor)


def named_size(name: str, at_least: int = 0) -> int:
    """Return the size with a name, which is assumed to be at least `at_least`.

    Raises: ArgumentError for a name that is not an identifier.
    """
    if not NAME.fullmatch(name) or name in RESERVED:
        raise ArgumentError(
            f"size: {name!r} is not a name of a size",
            remedy=f"give an identifier that begins with a letter, and not {', '.join(sorted(RESERVED))}",
        )
    return size_of(SizeName(name, at_least))


def bound_size(k: int, at_least: int = 0) -> int:
    """Size number k of those that rules bind, with a name that no user can give."""
    return size_of(SizeName(f"_axis{k}", at_least))


NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
RESERVED: Final = frozenset({"bits", "div", "max", "min", "none", "true", "false", "complex"})


# ------------------------------------------------------------------------------------------------------ division


def _floor_divide(a: int, b: int) -> int:
    """Return a // b: exact where the polynomial is divisible, else a `SizeFunction`."""
    if type(b) is int:
        if b == 0:
            raise ZeroDivisionError(f"{a} // 0")
        if b == 1:
            return a
        if b < 0:  # the usual ceil division, -(n // -4), is (n + 3) // 4
            return -((a - b - 1) // -b)
        divisible: Terms = {m: c // b for m, c in terms_of(a).items() if c % b == 0}
        indivisible: Terms = {m: c for m, c in terms_of(a).items() if c % b}
        if indivisible and divisible:
            return size_of_terms(Size, divisible) + _floor_divide(size_of_terms(Size, indivisible), b)
        if not indivisible:
            return size_of_terms(Size, divisible)
        if indivisible.keys() == {()}:
            return indivisible[()] // b
        if _leads_with_minus(indivisible):  # the other usual ceil division, -(-n // 4)
            return -((b - 1 - size_of_terms(Size, indivisible)) // b)
        nonconstant = [(m, c) for m, c in indivisible.items() if m]
        if len(nonconstant) == 1 and nonconstant[0][1] == 1:
            constant = indivisible.get((), 0)
            inner = only_function(nonconstant[0][0], "//")
            if inner is not None and type(inner.b) is int and inner.b > 0:  # (a // k + c) // b
                return (inner.a + constant * inner.b) // (inner.b * b)
            for function, choice in (("max", 1), ("min", 0)):
                inner = only_function(nonconstant[0][0], function)
                if inner is not None:  # max(1, 2*n) // 2 is max(1 // 2, 2*n // 2), which is n
                    known = _in_order((inner.a + constant) // b, (inner.b + constant) // b)
                    if known is not None:
                        return known[choice]
    else:
        if a == 0 or (at_least(a, 0) and at_least(b - a, 1)):
            return 0
        if at_least(-a, 1) and at_least(a + b, 0):
            return -1
        quotient = _bounded_quotient(a, b)
        if quotient is not None:
            return quotient
    return size_of(SizeFunction("//", a, b))


def _leads_with_minus(terms: Terms) -> bool:
    """Return True if the first term of a polynomial in names alone, which is no number, has a negative coefficient."""
    if any([type(factor) is not SizeName for mono in terms for factor, _ in mono]):
        return False
    ordered = sorted(terms.items(), key=term_order)
    return bool(ordered) and ordered[0][0] != () and ordered[0][1] < 0


def _bounded_quotient(a: int, b: int) -> int | None:
    """Return the polynomial a // b if the remainder of a division of polynomials, or that plus b, is known to be from 0
    to b - 1.

    (2*n - 1) // n is 1 for n >= 1: the division gives 2, with the remainder -1, so the quotient is 2 - 1, with the
    remainder n - 1. A remainder has a smaller first term than b. So it is usually between -b and b, and no other
    multiple of b is tried.
    """
    quotient: int = 0
    remainder = a
    (lead, lead_c), *_ = sorted(terms_of(b).items(), key=term_order)
    # Each step removes the first term of `remainder`, so there is an end; n**20 // (n - 1) stays a quotient rather than
    # become twenty terms.
    for _ in range(len(terms_of(a)) * 4 + 4):
        terms = sorted(terms_of(remainder).items(), key=term_order)
        if not terms:
            return quotient
        mono, c = terms[0]
        powers = dict(mono)
        for factor, power in lead:
            powers[factor] = powers.get(factor, 0) - power
        if c % lead_c or any([p < 0 for p in powers.values()]):
            break
        ordered = sorted(powers.items(), key=lambda item: factor_order(item[0]))
        q = size_of_terms(Size, {tuple([(factor, power) for factor, power in ordered if power]): c // lead_c})
        quotient, remainder = quotient + q, remainder - q * b
    for k in (0, 1):
        shifted = remainder + k * b
        if at_least(shifted, 0) and at_least(b - shifted, 1):
            return quotient - k
    return None


def bit_length(a: int, _: int = 0) -> int:
    """Return the number of binary digits of a size; 0 of a negative one. Functions of sizes take two operands, as in
    `FUNCTIONS`; the second one of this is always 0."""
    return max(a, 0).bit_length() if type(a) is int else size_of(SizeFunction("bits", a, 0))


# ------------------------------------------------------------------------------------------------------------ order


def maximum(a: int, b: int) -> int:
    """Return the larger of two sizes; a `SizeFunction` if the assumptions do not decide."""
    known = _in_order(a, b)
    return known[1] if known else normal_form(Size, a, [(b - a, 1)])  # a + max(0, b - a)


def minimum(a: int, b: int) -> int:
    """Return the smaller of two sizes; a `SizeFunction` if the assumptions do not decide."""
    known = _in_order(a, b)
    return known[0] if known else normal_form(Size, b, [(b - a, -1)])  # b - max(0, b - a)


def _in_order(a: int, b: int) -> tuple[int, int] | None:
    """Return the smaller and the larger of two sizes; None if the assumptions do not decide."""
    if type(a) is int and type(b) is int:
        return (a, b) if a <= b else (b, a)
    if at_least(b - a, 0):
        return a, b
    return (b, a) if at_least(a - b, 0) else None


def may_fit(m: int, n: int) -> bool:
    """Return True unless it is known that m is negative or larger than n."""
    if type(m) is int and type(n) is int:
        return 0 <= m <= n
    return not at_least(-m, 1) and not at_least(m - n, 1)


def differ_somewhere(m: int, n: int) -> bool:
    """Return True if some values of the names show that two sizes differ. They may differ at values that are not
    tried."""
    names = sorted({name for size in (m, n) for name in names_of(size)}, key=lambda name: name.name)
    return any(
        [
            substitute_sizes(m, values) != substitute_sizes(n, values)
            for k in range(16)
            for values in [{name.name: name.at_least + k * (1 + j) for j, name in enumerate(names)}]
        ]
    )


# No dimension of a program of symbolic shape is larger: `specialize` and `mask` refuse such sizes. So a comparison with
# it is decided, as if the size that is compared were a dimension.
LARGEST_SIZE: Final = 2**31 - 1


def _compare(a: int, sign: str, b: object, margin: int) -> bool:
    """Return True if a - b >= margin, which is 0 for `>=` and `<`, and 1 for `>` and `<=`. `sign` is the user's
    operator, for messages. Raises: UnknownSizeError if the assumptions do not decide it."""
    if not is_size(b):
        if isinstance(b, float):  # an infinity, as in a comparison with a bound
            if b == float("inf"):
                return False
            if b == float("-inf"):
                return True
        raise SizeError(f"size: {a} {sign} {b!r} cannot be decided", remedy="compare sizes with ints and sizes")
    difference: int = a - b  # type: ignore[operator]  # `b` is an int or a size
    if at_least(difference, margin):
        return True
    if at_least(-difference, 1 - margin) or (type(b) is int and b >= LARGEST_SIZE):
        return False
    raise _undecided(f"{a} {sign} {b}", difference, margin)


def _undecided(question: str, difference: int, margin: int) -> UnknownSizeError:
    """Return the error of a question that is decided once it is known if a difference is at least `margin`."""
    names = {n.name: n for n in names_of(difference)}
    return UnknownSizeError(
        f"size: {question} is not decided by {_assumptions_text(names.values())}",
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
        high = next((k for k in (low + 64, LARGEST_SIZE) if decides(k, chosen)), None)
        if high is not None:  # the least one, by bisection
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if decides(middle, chosen) else (middle, high)
            stated = ", ".join([f"{n.name}>={high}" for n in chosen])
            return f"state an assumption where the size is named, as in '{stated}'"
    first, *others = names
    if others:
        return f"name one size by the other, as in '{others[0].name}+k' for {first.name}"
    return f"no assumption decides it: specialize the program, or mask it, to give {first.name} a value"


def _assumptions_text(names: Iterable[SizeName]) -> str:
    return ", ".join([f"{n.name} >= {n.at_least}" for n in names])


# ------------------------------------------------------------------------------------------------------- dimensions


def dimension(value: object) -> int:
    """Return a user's dimension: a size as it is, anything else as an int. Raises: AttributeError, TypeError."""
    return value if type(value) is Size else value.__index__()  # type: ignore[attr-defined]  # callers catch AttributeError


def is_symbolic(shape: Iterable[object]) -> bool:
    """Return True if some dimension is not a number."""
    return any([type(n) is Size for n in shape])


def substitute_sizes(size: int, values: Mapping[str, int]) -> int:
    """Return a dimension with the named sizes replaced by ints or sizes. Names without a value stay."""
    return evaluate(size, lambda n: values[n.name] if n.name in values else size_of(n))


FUNCTIONS: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType(
    {"//": lambda a, b: a // b, "max": maximum, "min": minimum, "bits": bit_length}
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
                factor = FUNCTIONS[base.function](evaluate(base.a, value), evaluate(base.b, value))
            term = term * (factor**power if power > 1 else factor)
        total = total + term
    return total
