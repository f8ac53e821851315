"""Comparisons, logic and the bits of integers. Their results have no tangent."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import NDArray, primitive
from fxad.primitives.elementwise.family import ANY, ORDERED, Compare


@final
@primitive
class Eq(Compare):
    """Whether x equals y; nan equals nothing, -0.0 equals 0.0.

    Type:   two operands of one type; result bool.
    Source: stablehlo.compare EQ
    """

    name: ClassVar[str] = "eq"
    takes: ClassVar[frozenset[DType]] = ANY
    direction: ClassVar[str] = "EQ"

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.equal(x, y)


@final
@primitive
class Ne(Compare):
    """Whether x differs from y; nan differs from everything.

    Type:   two operands of one type; result bool.
    Source: stablehlo.compare NE
    """

    name: ClassVar[str] = "ne"
    takes: ClassVar[frozenset[DType]] = ANY
    direction: ClassVar[str] = "NE"

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.not_equal(x, y)


@final
@primitive
class Lt(Compare):
    """Whether x < y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare LT
    """

    name: ClassVar[str] = "lt"
    takes: ClassVar[frozenset[DType]] = ORDERED
    direction: ClassVar[str] = "LT"

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.less(x, y)


@final
@primitive
class Le(Compare):
    """Whether x <= y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare LE
    """

    name: ClassVar[str] = "le"
    takes: ClassVar[frozenset[DType]] = ORDERED
    direction: ClassVar[str] = "LE"

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.less_equal(x, y)


@final
@primitive
class Gt(Compare):
    """Whether x > y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare GT
    """

    name: ClassVar[str] = "gt"
    takes: ClassVar[frozenset[DType]] = ORDERED
    direction: ClassVar[str] = "GT"

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.greater(x, y)


@final
@primitive
class Ge(Compare):
    """Whether x >= y; False where either is nan.

    Type:   two operands of one type, not complex; result bool.
    Source: stablehlo.compare GE
    """

    name: ClassVar[str] = "ge"
    takes: ClassVar[frozenset[DType]] = ORDERED
    direction: ClassVar[str] = "GE"

    def compute(self, x: NDArray, y: NDArray) -> object:
        return np.greater_equal(x, y)


EQ: Final = Eq()
NE: Final = Ne()
LT: Final = Lt()
LE: Final = Le()
GT: Final = Gt()
GE: Final = Ge()
