"""Softmax and its logarithm. They are primitives because their derivatives need only the result, so nothing else is
stored."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.errors import DTypeError
from fxad.ir import (
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    NDArray,
    Primitive,
    Tangents,
    primitive,
)
from fxad.primitives.axes import Axes, axes_after_insert
from fxad.primitives.elementwise.arithmetic import DIV, MUL, NEG, SUB
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.exponential import EXP, EXPM1, LOG, LOG1P
from fxad.primitives.elementwise.family import as_accumulated, literal_like
from fxad.primitives.elementwise.logic import LT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.operand_checks import check_axes, check_count
from fxad.primitives.reduce import ReduceMax, broadcast_along
from fxad.primitives.shape import ReduceSum


@final
@primitive
class Softmax(Primitive):
    """exp(x) / sum(exp(x)) over `axes`, without overflow; nan where the greatest element is infinite.

    Type: x float (not float8); `axes` increasing; type of x.
    Rule: y_dot = y * (x_dot - sum(y * x_dot)).
    Source: the maximum is subtracted first, in stablehlo as in `impl`; both compute below 32 bits in float32.
    """

    name: ClassVar[str] = "softmax"
    axes: Axes

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        if x.dtype not in dtypes.FLOATING or x.dtype in dtypes.FLOAT8:
            raise DTypeError(f"softmax: takes float (not float8) operands, got {x}", remedy="convert the operand first")
        check_axes(self.name, self.axes, x.ndim)
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        wide = as_accumulated(x)
        weights = np.exp(np.subtract(wide, np.max(wide, axis=self.axes, keepdims=True, initial=-np.inf)))
        return ((weights / np.sum(weights, axis=self.axes, keepdims=True)).astype(x.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.call(_softmax_program(ins[0], self.axes), args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (dim,) = dims
        return ctx(self if dim is None else Softmax(axes_after_insert(self.axes, dim)), *args), (dim,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        y = ctx.one(self, *primals)
        weighted = ctx.lin_one(MUL, tangents[0], y)
        total = ctx.lin_one(broadcast_along(y.aval, self.axes), ctx.lin_one(ReduceSum(self.axes), weighted))
        return (y,), (ctx.lin_one(SUB, weighted, ctx.lin_one(MUL, total, y)),)


def _softmax_program(aval: Aval, axes: Axes) -> Jaxpr:
    b, back = Builder(), broadcast_along(aval, axes)
    x = emit_convert(b, b.input(aval), dtypes.accumulated(aval.dtype))
    weights = b.one(EXP, b.one(SUB, x, b.one(back, b.one(ReduceMax(axes), x))))
    out = b.one(DIV, weights, b.one(back, b.one(ReduceSum(axes), weights)))
    return b.build([emit_convert(b, out, aval.dtype)], "softmax")


@final
@primitive
class LogSoftmax(Primitive):
    """log(exp(x) / sum(exp(x))) over `axes`, without overflow; nan where the greatest element is infinite.

    The result is accurate relative to itself, also where it is close to 0: the logarithm of 1 + r, with the sum r over
    all but the greatest element, is that of `log1p`. So is the derivative, which needs only the result.

    Type: x float; `axes` increasing; type of x.
    Rule: with the softmax p = exp(y): y_dot = (1 - p) x_dot - (sum(p x_dot) - p x_dot), where 1 - p is -expm1(y).
    Source: the maximum is subtracted first, in stablehlo as in `impl`; both compute below 32 bits in float32.
    """

    name: ClassVar[str] = "log_softmax"
    axes: Axes

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        if x.dtype not in dtypes.FLOATING:
            raise DTypeError(f"log_softmax: takes float operands, got {x}", remedy="convert the operand first")
        check_axes(self.name, self.axes, x.ndim)
        return (x,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        with np.errstate(all="ignore"):
            wide = as_accumulated(x)
            off = np.subtract(wide, np.max(wide, axis=self.axes, keepdims=True, initial=-np.inf))
            weights = np.exp(off)
            total = np.sum(weights, axis=self.axes, keepdims=True)
            others = np.sum(np.where(np.less(off, 0), weights, 0), axis=self.axes, keepdims=True)
            return (np.subtract(off, np.where(total < 1.5, np.log1p(others), np.log(total))).astype(x.dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.call(_log_softmax_program(ins[0], self.axes), args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (dim,) = dims
        return ctx(self if dim is None else LogSoftmax(axes_after_insert(self.axes, dim)), *args), (dim,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        y, (t,) = ctx.one(self, *primals), tangents
        weighted = ctx.lin_one(MUL, t, ctx.one(EXP, y))
        total = ctx.lin_one(broadcast_along(y.aval, self.axes), ctx.lin_one(ReduceSum(self.axes), weighted))
        own_tangent = ctx.lin_one(MUL, t, ctx.one(NEG, ctx.one(EXPM1, y)))
        return (y,), (ctx.lin_one(SUB, own_tangent, ctx.lin_one(SUB, total, weighted)),)


def _log_softmax_program(aval: Aval, axes: Axes) -> Jaxpr:
    b, back = Builder(), broadcast_along(aval, axes)
    x = emit_convert(b, b.input(aval), dtypes.accumulated(aval.dtype))
    off = b.one(SUB, x, b.one(back, b.one(ReduceMax(axes), x)))
    weights = b.one(EXP, off)
    total = b.one(ReduceSum(axes), weights)
    # the greatest element is 1 of the total. A second one makes the total at least 2
    below = b.one(LT, off, literal_like(0, off))
    others = b.one(ReduceSum(axes), emit_where(b, below, weights, literal_like(0, off)))
    single = b.one(LT, total, literal_like(1.5, total))
    log = emit_where(b, single, b.one(LOG1P, others), b.one(LOG, total))
    return b.build([emit_convert(b, b.one(SUB, off, b.one(back, log)), aval.dtype)], "log_softmax")


SOFTMAX: Final = (Softmax, LogSoftmax)
