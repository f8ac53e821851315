"""Python numbers that a function is traced with, and whose values are known: arguments that nobody differentiates, maps
or compiles for.

The function gets an int, a float or a complex number with its value, so it can print, compare and index with it. The
class is a subclass, for one purpose: a trace that meets such a number takes it as an operand, not as a literal, so one
program serves all numbers. Sums, products and the like of such numbers are such numbers again. Every other operation
gives a plain number.

    def step(x, rate):
        rate = rate * 0.5        a FloatArgument: Python has computed it, in full precision
        return x - rate * x      an operand of the program, in the dtype of x

A float beside an IntArgument (`0.9 ** n`) gives a plain float, because Python asks the float first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import MappingProxyType
from typing import Final, TypeVar, cast

T = TypeVar("T")
_NUMBERS: Final = (int, float, complex)


def _forward(op: Callable[..., object]) -> Callable[..., object]:
    def method(self: object, other: object, *modulus: object) -> object:
        if not _is_number(other):
            return NotImplemented
        return number_argument(op(plain_number(self), plain_number(other), *modulus))

    return method


def _reflected(op: Callable[..., object]) -> Callable[..., object]:
    def method(self: object, other: object, *modulus: object) -> object:
        if not _is_number(other):
            return NotImplemented
        return number_argument(op(plain_number(other), plain_number(self), *modulus))

    return method


def _unary(op: Callable[[object], object]) -> Callable[[object], object]:
    def method(self: object) -> object:
        return number_argument(op(plain_number(self)))

    return method


def _is_number(x: object) -> bool:
    return isinstance(x, _NUMBERS)  # an array takes the operator itself


def _number_class(cls: type[T]) -> type[T]:
    """Give a subclass of a number the operators whose results are such numbers again."""
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        op = pow if name == "pow" else getattr(operator, name)  # `pow` may have a third argument
        if hasattr(cls, f"__{name}__"):
            setattr(cls, f"__{name}__", _forward(op))
            setattr(cls, f"__r{name}__", _reflected(op))
    for name in ("neg", "pos", "abs"):
        setattr(cls, f"__{name}__", _unary(getattr(operator, name)))
    return cls


class _Pickled:
    """Copies and pickles are plain numbers."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        value = plain_number(self)
        return type(value), (value,)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return self.__reduce__()


@_number_class
class IntArgument(_Pickled, int):
    """An int that a function is traced with."""

    __slots__ = ()


@_number_class
class FloatArgument(_Pickled, float):
    """A float that a function is traced with."""

    __slots__ = ()


@_number_class
class ComplexArgument(_Pickled, complex):
    """A complex number that a function is traced with."""

    __slots__ = ()


# By class, the type of Python that it stands for.
NUMBER_CLASSES: Final = MappingProxyType[type, type]({IntArgument: int, FloatArgument: float, ComplexArgument: complex})
for _cls, _type in NUMBER_CLASSES.items():
    _cls.__name__ = _type.__name__  # in messages; the repr of the class has its own name

NUMBER_ARGUMENTS: Final = frozenset(NUMBER_CLASSES)
# The types of Python numbers. A number of another subclass is one too; these are told by one comparison.
PYTHON_NUMBERS: Final = frozenset({bool, int, float, complex})
NUMBER_TYPES: Final = NUMBER_ARGUMENTS | PYTHON_NUMBERS


def number_argument(x: object) -> object:
    """Return an int, a float or a complex number as an argument of a traced function. Every other value is returned as
    it is: a bool, a member of an Enum, what is no number."""
    kind = type(x)
    if kind is float:
        return FloatArgument(cast("float", x))
    if kind is int:
        return IntArgument(cast("int", x))
    return ComplexArgument(cast("complex", x)) if kind is complex else x


def plain_number(x: T) -> T:
    """Return the plain number with the value of a number argument. Every other value is returned as it is."""
    kind = type(x)
    if kind is FloatArgument:
        return cast("T", float.__float__(cast("float", x)))
    if kind is IntArgument:
        return cast("T", int.__int__(cast("int", x)))
    return cast("T", complex.__complex__(cast("complex", x))) if kind is ComplexArgument else x
