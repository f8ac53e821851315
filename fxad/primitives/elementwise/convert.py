"""Conversions between dtypes, by value and by bits; rounding to fewer bits; `stop_gradient`."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    Hlo,
    HloValues,
    JvpCtx,
    Lit,
    NDArray,
    Tangent,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.family import ANY, FLOAT_ABOVE_8, INTEGER_OR_FLOAT, PiecewiseConstantUnary, Unary
from fxad.primitives.families import LinearInOne, WithoutTangent
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import move_axis
from fxad.primitives.stablehlo import nonzero_flags


@final
@primitive
class ConvertElementType(Unary, LinearInOne):
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
        (x,) = check_count(self, avals, 1)
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

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,) = ins
        if self.dtype == dtypes.bool_:
            return (nonzero_flags(hlo, args[0], x),)
        if x.dtype in dtypes.COMPLEX and self.dtype not in dtypes.COMPLEX:
            args = hlo.op("stablehlo.real", args, (x.with_dtype(dtypes.real_part(x.dtype)),))
        if x.dtype == dtypes.bool_ and self.dtype in dtypes.INEXACT:
            # XLA writes a converted bool times y as a select of y or 0, which loses nan * 0, inf * 0 and 0 / 0
            (out,) = outs
            ends = [hlo.constant(Lit.of(v, out)) for v in (1, 0)]
            return hlo.op("stablehlo.select", (*args, *ends), outs)
        return hlo.op("stablehlo.convert", args, outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(self, t) if y.aval.inexact else Zero(y.aval)

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        return flags == (True,) and self.dtype in dtypes.INEXACT

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(ConvertElementType(x.dtype), ct) if x.inexact else Zero(x)  # an integer has no cotangent


def emit_convert(emit: Emit, x: Atom, dtype: DType) -> Atom:
    """Return `x` in another dtype; no equation if it has that dtype."""
    return x if x.aval.dtype == dtype else emit.one(ConvertElementType(dtype), x)


def convert_tangent(ctx: JvpCtx, t: Tangent, dtype: DType) -> Tangent:
    """Return a tangent in another dtype; no equation if it has that dtype."""
    return t if t.aval.dtype == dtype else ctx.lin_one(ConvertElementType(dtype), t)


def emit_in_float32(emit: Emit, formula: Callable[[Atom], Atom], x: Atom) -> Atom:
    """Return `formula` of x, in the dtype of x. Floats below 32 bits are computed in float32.

    In float16 1 / (1 + x^2) would be 0 at x = 300, because the square is infinite; it is 1.11e-5.
    """
    dtype = x.aval.dtype
    return emit_convert(emit, formula(emit_convert(emit, x, dtypes.accumulated(dtype))), dtype)


def _saturated(x: NDArray, to: DType) -> NDArray:
    """Float to integer: towards zero, out of range to the nearest end, nan to 0."""
    bits = 8 * to.itemsize
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to in dtypes.SIGNED else (0, (1 << bits) - 1)
    wide = x.astype(np.float64)
    # of the ends of 64-bit integers, the high ones are not floats: float(high) is the first value too large
    above, below = wide >= float(high), wide < float(low)
    whole = np.where(above | below | np.isnan(wide), 0.0, wide).astype(to)
    return np.where(above, np.array(high, to), np.where(below, np.array(low, to), whole))


@final
@primitive
class BitcastConvertType(WithoutTangent):
    """The same bits read as another dtype.

    Type:   x of any dtype but bool and complex; result of `dtype`, which is neither. A narrower dtype adds a last axis
            (f32[3] to u8[3,4], least significant first), a wider one removes the last axis.
    Rule:   no tangent.
    Source: stablehlo.bitcast_convert
    """

    name: ClassVar[str] = "bitcast_convert_type"
    dtype: DType

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        for dtype in (x.dtype, self.dtype):
            if dtype not in INTEGER_OR_FLOAT:
                raise DTypeError(f"bitcast_convert_type: takes integers and floats, got {x} to {dtypes.short(dtype)}")
        have, want = x.dtype.itemsize, self.dtype.itemsize
        if have == want:
            return (x.with_dtype(self.dtype),)
        if have > want:
            return (Aval((*x.shape, have // want), self.dtype),)
        if x.shape[-1:] != (want // have,):
            raise ShapeError(
                f"bitcast_convert_type: {x} to {dtypes.short(self.dtype)} needs a last axis of size {want // have}"
            )
        return (Aval(x.shape[:-1], self.dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        (out,) = self.abstract_eval(Aval(x.shape, x.dtype))
        return (np.frombuffer(x.tobytes(), self.dtype).reshape(out.shape),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.bitcast_convert", args, outs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x,), (dim,) = args, dims
        if dim is not None and dim == x.aval.ndim - 1 and x.aval.dtype.itemsize < self.dtype.itemsize:
            x, dim = move_axis(ctx, x, dim, 0), 0  # the conversion removes the last axis
        return ctx(self, x), (dim,)


_MANTISSA_BITS: Final = MappingProxyType(
    {dtypes.float16: 10, dtypes.bfloat16: 7, dtypes.float32: 23, dtypes.float64: 52}
)


@final
@primitive
class ReducePrecision(Unary):
    """x rounded to fewer exponent and mantissa bits, to nearest even; the dtype is kept.

    Type:   floating, of 16 bits or more; too large becomes inf, too small becomes 0.
    Rule:   the tangent passes as it is, not rounded.
    Source: stablehlo.reduce_precision
    """

    name: ClassVar[str] = "reduce_precision"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8
    reads_bits: ClassVar[bool] = True
    exponent_bits: int
    mantissa_bits: int

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = Unary.abstract_eval(self, *avals)
        if self.exponent_bits < 1 or self.mantissa_bits < 0:
            raise ParameterError(
                f"reduce_precision: needs exponent_bits >= 1 and mantissa_bits >= 0, "
                f"got {self.exponent_bits} and {self.mantissa_bits}"
            )
        return (x,)

    def compute(self, x: NDArray) -> object:
        bits = 8 * x.dtype.itemsize
        word, mantissa = np.dtype(f"u{x.dtype.itemsize}"), _MANTISSA_BITS[dtypes.as_dtype(x.dtype)]
        u = x.view(word)
        drop = mantissa - self.mantissa_bits
        if drop > 0:
            last = np.bitwise_and(np.right_shift(u, drop), word.type(1))
            u = np.bitwise_and(u + last + word.type((1 << drop - 1) - 1), word.type((1 << bits) - (1 << drop)))
        y = np.where(np.isnan(x), x, u.view(x.dtype))
        if self.exponent_bits >= bits - 1 - mantissa:
            return y
        # the largest and smallest normal exponents of the smaller format
        bias = (1 << self.exponent_bits - 1) - 1
        y = np.where(np.abs(y) >= math.ldexp(1.0, bias + 1), np.copysign(x.dtype.type(np.inf), x), y)
        return np.where(np.abs(y) < math.ldexp(1.0, 1 - bias), np.copysign(x.dtype.type(0), x), y)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        attrs = {"exponent_bits": f"{self.exponent_bits} : i32", "mantissa_bits": f"{self.mantissa_bits} : i32"}
        return hlo.op("stablehlo.reduce_precision", args, outs, attrs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return t


@final
@primitive
class StopGradient(PiecewiseConstantUnary):
    """x, held constant by differentiation.

    Type:   any operand.
    Rule:   the tangent is `Zero`.
    """

    name: ClassVar[str] = "stop_gradient"
    takes: ClassVar[frozenset[DType]] = ANY

    def compute(self, x: NDArray) -> object:
        return x

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return args


STOP_GRADIENT: Final = StopGradient()
