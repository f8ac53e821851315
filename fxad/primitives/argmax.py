"""The index of the greatest or least element."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Final, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import (
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Hlo,
    HloValues,
    Jaxpr,
    Lit,
    NDArray,
    primitive,
    primitive_family,
)
from fxad.primitives.axes import axis_after_insert, axis_after_remove, remove_axes
from fxad.primitives.elementwise.family import ORDERED, as_accumulated
from fxad.primitives.elementwise.logic import AND, EQ, GT, LT, NE, OR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.families import WithoutTangent
from fxad.primitives.operand_checks import check_axis, check_count
from fxad.primitives.reduce import extreme_value
from fxad.primitives.stablehlo import i64_array, i64_attribute


@primitive_family
class ArgExtremum(WithoutTangent):
    """The index of an extremum along one axis, which is removed: that of the first extremum, or of the first nan if
    there is one."""

    __slots__ = ()

    sign: ClassVar[int]  # +1 for the greatest element, -1 for the least
    axis: int
    index_dtype: DType

    @abstractmethod
    def compute(self, x: NDArray) -> npt.NDArray[np.intp]:
        """Compute the result in NumPy, for floats of at least 32 bits."""

    @final
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_axis(self.name, self.axis, x.ndim)
        if x.dtype not in ORDERED:
            raise DTypeError(f"{self.name}: {x} has no order")
        n = x.shape[self.axis]
        if n == 0:
            raise ShapeError(f"{self.name}: axis {self.axis} of {x} is empty")
        if self.index_dtype not in dtypes.INTEGER or n - 1 > int(extreme_value(self.index_dtype, 1).value):
            raise DTypeError(f"{self.name}: {dtypes.short(self.index_dtype)} cannot index axis {self.axis} of {x}")
        return (Aval(remove_axes(x.shape, (self.axis,)), self.index_dtype),)

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (np.asarray(self.compute(as_accumulated(args[0]))).astype(self.index_dtype),)

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), (index,) = ins, outs
        places = Aval(x.shape, self.index_dtype)
        indices = hlo.op("stablehlo.iota", (), (places,), {"iota_dimension": i64_attribute(self.axis)})
        init = [hlo.constant(extreme_value(x.dtype, -self.sign)), hlo.constant(Lit.of(0, index.with_shape(())))]
        body = select_extreme(x.with_shape(()), index.with_shape(()), self.sign)
        types = (x.with_shape(index.shape), index)
        attrs = {"dimensions": i64_array((self.axis,))}
        return hlo.op("stablehlo.reduce", (*args, *indices, *init), types, attrs, (body,))[1:]

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (dim,) = dims
        if dim is None:
            return ctx(self, *args), (None,)
        axis = axis_after_insert(self.axis, dim)
        return ctx(replace(self, axis=axis), *args), (axis_after_remove(dim, (axis,)),)


def select_extreme(value: Aval, index: Aval, sign: int, *carried: Aval) -> Jaxpr:
    """Return the program that selects one of two (value, index, ...) tuples: that of the greater value (`sign` 1) or of
    the lesser one (-1), a nan before any number, and of equal values that of the lower index. It is commutative and
    associative, so every order of reduction gives the same result."""
    b = Builder()
    left, right = b.inputs((value, index, *carried)), b.inputs((value, index, *carried))
    (x, i, *_), (y, j, *_) = left, right
    wins, ties = b.one(GT if sign > 0 else LT, x, y), b.one(EQ, x, y)
    if value.inexact:
        x_nan = b.one(NE, x, x)
        wins = b.one(OR, wins, b.one(AND, x_nan, b.one(EQ, y, y)))
        ties = b.one(OR, ties, b.one(AND, x_nan, b.one(NE, y, y)))
    x_is_first = b.one(OR, wins, b.one(AND, ties, b.one(LT, i, j)))
    return b.build(
        [emit_where(b, x_is_first, one, other) for one, other in zip(left, right, strict=True)], "select_extreme"
    )


@final
@primitive
class ArgMax(ArgExtremum):
    """The index of the greatest element along `axis`: that of the first one, or of the first nan if there is one.

    Type: x integer, float or bool, not empty along `axis`; the result has dtype `index_dtype`.
    Source: stablehlo.reduce over pairs of an element and its index.
    """

    name: ClassVar[str] = "argmax"
    sign: ClassVar[int] = 1

    def compute(self, x: NDArray) -> npt.NDArray[np.intp]:
        return np.asarray(np.argmax(x, self.axis))


@final
@primitive
class ArgMin(ArgExtremum):
    """The index of the least element along `axis`: that of the first one, or of the first nan if there is one.

    Type: x integer, float or bool, not empty along `axis`; the result has dtype `index_dtype`.
    Source: stablehlo.reduce over pairs of an element and its index.
    """

    name: ClassVar[str] = "argmin"
    sign: ClassVar[int] = -1

    def compute(self, x: NDArray) -> npt.NDArray[np.intp]:
        return np.asarray(np.argmin(x, self.axis))


ARGMAX: Final = (ArgMax, ArgMin)
