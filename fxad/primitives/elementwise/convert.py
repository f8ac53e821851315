"""From one dtype to another: by value, by bits, and between complex numbers and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    Hlo,
    HloValue,
    Hole,
    JvpCtx,
    Linear,
    NDArray,
    Primitive,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.checks import operands
from fxad.primitives.elementwise.arithmetic import NEG
from fxad.primitives.elementwise.family import ANY, WIDE, Unary, batched, compared, refused
from fxad.primitives.shape import move_axis


@final
@primitive
class ConvertElementType(Unary, Linear):
    """The same values in another dtype, rounded to nearest.

    Type: x of any dtype; result of `dtype`. Float to integer drops the fraction and saturates, nan becomes 0; anything
          to bool is x != 0; complex to real drops the imaginary part; integers wrap.
    Rule: linear between floating and complex dtypes, the cotangent is converted back; otherwise without tangent.
    Source: stablehlo.convert
    """

    name: ClassVar[str] = "convert_element_type"
    takes: ClassVar[frozenset[DType]] = ANY
    dtype: DType

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = operands(self, avals, 1)
        return (Aval(x.shape, self.dtype),)

    def compute(self, x: NDArray) -> object:
        to = self.dtype
        if to == dtypes.bool_:
            return x != 0
        if x.dtype in dtypes.COMPLEX and to not in dtypes.COMPLEX:
            x = np.real(x)
        if x.dtype in dtypes.FLOATING and to in dtypes.INTEGER:
            return _saturated(x, to)
        return x.astype(to)

    def lower(self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]) -> Sequence[HloValue]:
        (x,) = ins
        if self.dtype == dtypes.bool_:
            return compared(hlo, "NE", (*args, hlo.constant(Zero(x).instantiate())), x)
        if x.dtype in dtypes.COMPLEX and self.dtype not in dtypes.COMPLEX:
            args = hlo.op("stablehlo.real", args, (x.with_dtype(dtypes.real_part(x.dtype)),))
        return hlo.op("stablehlo.convert", args, outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(self, t) if y.aval.inexact else Zero(y.aval)

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return mask == (True,) and self.dtype in dtypes.INEXACT

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        (ct,), (x,) = cts, args
        return (Zero(x.aval) if isinstance(ct, Zero) else ctx.one(ConvertElementType(x.aval.dtype), ct),)


def _saturated(x: NDArray, to: DType) -> NDArray:
    """Float to integer: towards zero, out of range to the nearest end, nan to 0."""
    ends = np.iinfo(to)
    wide = x.astype(np.float64)
    # the ends of 64-bit integers are not floats: -2.0**63 is, 2.0**63 is the first that is too large
    inside = (wide >= float(ends.min)) & (wide < float(ends.max) + 1)
    whole = np.where(inside, wide, 0.0).astype(to)
    return np.where(wide >= float(ends.max), to.type(ends.max), np.where(wide < float(ends.min), to.type(ends.min), whole))
