"""Python's operators on arrays, as operations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Concatenate, Self, TypeAlias

import numpy as np

from fxad.core.builder import Builder
from fxad.core.numbers import IntArgument
from fxad.ir import Atoms, NDArray
from fxad.operations import arithmetic, contractions
from fxad.operations.arithmetic import ordered
from fxad.primitives.elementwise.arithmetic import SUB
from fxad.primitives.elementwise.logic import AND, EQ, GE, GT, LE, LT, NE, OR, SHIFT_LEFT, XOR

# The operands of operators and functions other than arrays.
ArrayLike: TypeAlias = "Operators | NDArray | np.generic | bool | int | float | complex"
# Adds the equations of an operation to a builder. It takes the operands as atoms, then static values, and returns the
# results.
Operation: TypeAlias = Callable[Concatenate[Builder, ...], Atoms]


class Operators:
    """The operators `x + y`, `-x`, ...: arrays promote as in NumPy; a Python scalar takes the dtype of the array
    operand.

    `Array` (in a layer above) inherits them, and its `_apply` and `_binary` run or trace the operation.
    """

    __slots__ = ()

    # Equality is elementwise, so arrays are not hashable, as in NumPy.
    __hash__ = None  # type: ignore[assignment]  # as NumPy: == is elementwise

    @abstractmethod
    def _apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> Self:
        """Return the single result of `op` over this array and `args`."""

    @abstractmethod
    def _binary(self, op: Operation, x: ArrayLike, y: ArrayLike, *static: Hashable) -> Self:
        """Return the result of `op` over two operands, this array one of them; NotImplemented if the other is not a
        valid operand."""

    def __add__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.add, self, other)

    def __radd__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.add, other, self)

    def __sub__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.binary, self, other, SUB)

    def __rsub__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.binary, other, self, SUB)

    def __mul__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.multiply, self, other)

    def __rmul__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.multiply, other, self)

    def __truediv__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.true_divide, self, other)

    def __rtruediv__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.true_divide, other, self)

    def __floordiv__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.floor_divide, self, other)

    def __rfloordiv__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.floor_divide, other, self)

    def __mod__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.remainder, self, other)

    def __rmod__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.remainder, other, self)

    def __divmod__(self, other: ArrayLike) -> tuple[Self, Self]:
        return self // other, self % other

    def __rdivmod__(self, other: ArrayLike) -> tuple[Self, Self]:
        return other // self, other % self

    def __pow__(self, other: ArrayLike) -> Self:
        if type(other) is int or type(other) is IntArgument:
            return self._apply(arithmetic.integer_power, (), (int(other),))
        return self._binary(arithmetic.power, self, other)

    def __rpow__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.power, other, self)

    def __matmul__(self, other: ArrayLike) -> Self:
        return self._binary(contractions.matmul, self, other)

    def __rmatmul__(self, other: ArrayLike) -> Self:
        return self._binary(contractions.matmul, other, self)

    def __neg__(self) -> Self:
        return self._apply(arithmetic.negative, (), ())

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self._apply(arithmetic.absolute, (), ())

    def __invert__(self) -> Self:
        return self._apply(arithmetic.invert, (), ())

    def __and__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, self, other, AND)

    def __rand__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, other, self, AND)

    def __or__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, self, other, OR)

    def __ror__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, other, self, OR)

    def __xor__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, self, other, XOR)

    def __rxor__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, other, self, XOR)

    def __lshift__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, self, other, SHIFT_LEFT)

    def __rlshift__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.bitwise_operator, other, self, SHIFT_LEFT)

    def __rshift__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.shift_right, self, other)

    def __rrshift__(self, other: ArrayLike) -> Self:
        return self._binary(arithmetic.shift_right, other, self)

    def __eq__(self, other: ArrayLike) -> Self:  # type: ignore[override]  # elementwise
        return self._binary(arithmetic.binary, self, other, EQ)

    def __ne__(self, other: ArrayLike) -> Self:  # type: ignore[override]  # elementwise
        return self._binary(arithmetic.binary, self, other, NE)

    def __lt__(self, other: ArrayLike) -> Self:
        return self._binary(ordered, self, other, LT)

    def __le__(self, other: ArrayLike) -> Self:
        return self._binary(ordered, self, other, LE)

    def __gt__(self, other: ArrayLike) -> Self:
        return self._binary(ordered, self, other, GT)

    def __ge__(self, other: ArrayLike) -> Self:
        return self._binary(ordered, self, other, GE)
