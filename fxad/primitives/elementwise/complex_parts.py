"""Complex numbers and their parts. Transposes do not conjugate: <a, b> is sum(a * b)."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Emit,
    Hlo,
    HloValues,
    Hole,
    LinearMap,
    Lit,
    NDArray,
    Operands,
    TransposeCtx,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import NEG
from fxad.primitives.elementwise.family import (
    FLOAT32_OR_64,
    LinearUnary,
    Unary,
    batch_elementwise,
    from_ufunc,
    operand_error,
)
from fxad.primitives.families import only_cotangent
from fxad.primitives.operand_checks import check_count


@final
@primitive
class Real(LinearUnary):
    """The real part of x.

    Type:   complex operand; the result has the dtype of its parts.
    Rule:   linear over the reals; the cotangent is complex(ct, 0).
    Source: stablehlo.real
    """

    name: ClassVar[str] = "real"
    hlo_name: ClassVar[str] = "stablehlo.real"
    takes: ClassVar[frozenset[DType]] = dtypes.COMPLEX

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = Unary.abstract_eval(self, *avals)
        return (x.with_dtype(dtypes.real_part(x.dtype)),)

    def compute(self, x: NDArray) -> object:
        return np.real(x)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(COMPLEX, ct, Lit.zero(ct.aval))


@final
@primitive
class Imag(LinearUnary):
    """The imaginary part of x.

    Type:   complex operand; the result has the dtype of its parts.
    Rule:   linear over the reals; the cotangent is complex(0, -ct).
    Source: stablehlo.imag
    """

    name: ClassVar[str] = "imag"
    hlo_name: ClassVar[str] = "stablehlo.imag"
    takes: ClassVar[frozenset[DType]] = dtypes.COMPLEX

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = Unary.abstract_eval(self, *avals)
        return (x.with_dtype(dtypes.real_part(x.dtype)),)

    def compute(self, x: NDArray) -> object:
        return np.imag(x)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(COMPLEX, Lit.zero(ct.aval), emit.one(NEG, ct))


@final
@primitive
class Conj(LinearUnary):
    """The complex conjugate of x.

    Type:   complex operand and result.
    Rule:   linear over the reals; the cotangent is conjugated.
    Source: stablehlo.complex of the real and the negated imaginary part.
    """

    name: ClassVar[str] = "conj"
    takes: ClassVar[frozenset[DType]] = dtypes.COMPLEX
    compute = from_ufunc(np.conjugate)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        part = (ins[0].with_dtype(dtypes.real_part(ins[0].dtype)),)
        (re,), (im,) = hlo.op("stablehlo.real", args, part), hlo.op("stablehlo.imag", args, part)
        return hlo.op("stablehlo.complex", (re, *hlo.op("stablehlo.negate", (im,), part)), outs)

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(CONJ, ct)


@final
@primitive
class Complex(LinearMap):
    """x + i y.

    Type:   two float32 or float64 operands of one type; result complex64 or complex128.
    Rule:   linear over the reals in both; the cotangents are real(ct) and -imag(ct).
    Source: stablehlo.complex
    """

    name: ClassVar[str] = "complex"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) != 2 or avals[0] is not avals[1] or avals[0].dtype not in FLOAT32_OR_64:
            raise operand_error(self, FLOAT32_OR_64, *check_count(self, avals, 2))
        return (avals[0].with_dtype(dtypes.complex_of(avals[0].dtype)),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, y = args
        # part by part: x + 1j * y would lose -0.0, and nan where y is inf
        out = np.empty(x.shape, dtypes.complex_of(x.dtype))
        out.real, out.imag = x, y
        return (out,)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.complex", args, outs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return batch_elementwise(self, ctx, args, dims)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        ct, (x, y) = only_cotangent(cts), args
        return (
            ctx.one(REAL, ct) if isinstance(x, Hole) else None,
            ctx.one(NEG, ctx.one(IMAG, ct)) if isinstance(y, Hole) else None,
        )


REAL: Final = Real()
IMAG: Final = Imag()
CONJ: Final = Conj()
COMPLEX: Final = Complex()
