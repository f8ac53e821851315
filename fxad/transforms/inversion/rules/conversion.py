"""Inverses of conversions, of operations on complex numbers, and of identities."""

from __future__ import annotations

from typing import Final

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Hole, Primitive
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.check import Check
from fxad.primitives.elementwise.complex_parts import COMPLEX, CONJ, IMAG, REAL, Complex, Conj, Imag, Real
from fxad.primitives.elementwise.convert import BitcastConvertType, ConvertElementType, StopGradient, emit_convert
from fxad.primitives.marks import Budget, Keep, Name
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.transforms.inversion.rules.contract import (
    VOLUME,
    Args,
    InverseCtx,
    InverseRow,
    Outs,
    Refused,
    SharePart,
    Solved,
    for_unknown,
    row,
)
from fxad.transforms.inversion.rules.totals import significand_bits

# ---------------------------------------------------------------------------------------------------------- dtypes


def holds(wide: DType, narrow: DType) -> bool:
    """Return True if `wide` represents all values of `narrow` by different values, and converting back restores
    them."""
    if wide == narrow:
        return True
    if wide == dtypes.bool_:
        return False
    if narrow == dtypes.bool_:
        return True
    if narrow in dtypes.INTEGER:
        # conversions between integers are modulo 2**bits: a narrower integer is restored whatever its sign
        bits = 8 * narrow.itemsize - (narrow in dtypes.SIGNED)
        return wide.itemsize >= narrow.itemsize if wide in dtypes.INTEGER else bits <= significand_bits(wide, 0)
    if narrow in dtypes.COMPLEX:
        return wide in dtypes.COMPLEX and wide.itemsize >= narrow.itemsize
    if narrow in dtypes.FLOAT8:
        return wide in dtypes.INEXACT - dtypes.FLOAT8
    if wide in dtypes.COMPLEX and dtypes.real_part(wide) == narrow:
        return True
    return wide in dtypes.INEXACT and dtypes.real_part(wide).itemsize > narrow.itemsize


LOSS_NOT_SHOWN: Final = Refused(
    "an integer or a bool cannot say that the number it comes back from is lost, as nan does",
    "return the integer or the bool too",
)


def _convert(ctx: InverseCtx, prim: ConvertElementType, args: Args, outs: Outs) -> Solved | Refused:
    (y,), to = outs, args[0].aval.dtype
    if not holds(y.aval.dtype, to):
        return Refused(f"{y.aval.dtype} does not hold every value of {to}: different ones become the same")
    if y.aval.inexact and to not in dtypes.INEXACT:
        return LOSS_NOT_SHOWN
    return (emit_convert(ctx, y, to),)


def _bitcast(ctx: InverseCtx, prim: BitcastConvertType, args: Args, outs: Outs) -> Solved:
    return (ctx.one(BitcastConvertType(args[0].aval.dtype), outs[0]),)


# ----------------------------------------------------------------------------------------------------------- parts


def _conj(ctx: InverseCtx, prim: Conj, args: Args, outs: Outs) -> Solved:
    return (ctx.one(CONJ, outs[0]),)


def _complex(ctx: InverseCtx, prim: Complex, args: Args, outs: Outs) -> Solved:
    return tuple(
        [ctx.one(p, outs[0]) if isinstance(a, Hole) else None for p, a in zip((REAL, IMAG), args, strict=True)]
    )


def _real(ctx: InverseCtx, prim: Real, args: Args, outs: Outs) -> Solved:
    (y,) = outs
    return (SharePart(y, lambda emit, base: emit.one(COMPLEX, y, emit.one(IMAG, base)), PAIR, 0, 2),)


def _imag(ctx: InverseCtx, prim: Imag, args: Args, outs: Outs) -> Solved:
    (y,) = outs
    return (SharePart(y, lambda emit, base: emit.one(COMPLEX, emit.one(REAL, base), y), PAIR, 1, 2),)


PAIR: Final = "real and imaginary part"

# ---------------------------------------------------------------------------------------------------------- identities


def _identity(ctx: InverseCtx, prim: Primitive, args: Args, outs: Outs) -> Solved:
    """Return the results as the operands."""
    return for_unknown(outs, args)


def _check(ctx: InverseCtx, prim: Check, args: Args, outs: Outs) -> Solved:
    """Return the results as the operands. They do not determine the operands that only the check reads."""
    n = 1 + prim.n_fields
    return (*[None] * n, *_identity(ctx, prim, args[n:], outs))


CONVERSION: Final[tuple[InverseRow, ...]] = (
    row(ConvertElementType, _convert, VOLUME),
    row(BitcastConvertType, _bitcast),
    row(Conj, _conj, VOLUME),
    row(Complex, _complex, VOLUME),
    row(Real, _real, VOLUME),
    row(Imag, _imag, VOLUME),
    row(StopGradient, _identity, VOLUME),
    row(OptimizationBarrier, _identity, VOLUME),
    row(ShardingConstraint, _identity, VOLUME),
    row(Name, _identity, VOLUME),
    row(Check, _check, VOLUME),
    row(Keep, _identity, VOLUME),
    row(Budget, _identity, VOLUME),
)
