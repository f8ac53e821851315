"""The base classes of elementwise primitives: one shape, one type rule, one batching rule, NumPy with XLA's semantics.

A subclass defines its dtypes, its meaning over NumPy arrays (`compute`), its StableHLO operation (`hlo_name`) and its
tangent. Operands have one shape and, unless the operation requires otherwise, one dtype; `fxad.numpy` broadcasts and
promotes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from types import MappingProxyType
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError, FxadError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Hlo,
    HloValues,
    JvpCtx,
    Lit,
    NDArray,
    Primitive,
    Tangent,
    Tangents,
    Zero,
)
from fxad.primitives.families import LinearInOne, WithoutTangent
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import align_to_first
from fxad.primitives.stablehlo import lower_compare

# -------------------------------------------------------------------------------------------------- dtypes by kind

BOOL: Final = frozenset({dtypes.bool_})
ANY: Final = frozenset(dtypes.ALL)
BITS: Final = dtypes.INTEGER | BOOL
INTEGER_OR_FLOAT: Final = dtypes.INTEGER | dtypes.FLOATING
ORDERED: Final = INTEGER_OR_FLOAT | BOOL
SIGNED_OR_INEXACT: Final = dtypes.SIGNED | dtypes.INEXACT
FLOAT_ABOVE_8: Final = dtypes.FLOATING - dtypes.FLOAT8
FLOAT32_OR_64: Final = frozenset({dtypes.float32, dtypes.float64})

_KIND: Final = MappingProxyType(
    {
        dtypes.FLOATING: "float",
        dtypes.INTEGER: "integer",
        dtypes.COMPLEX: "complex",
        dtypes.INEXACT: "float or complex",
        dtypes.NUMERIC: "numeric",
        BITS: "integer or bool",
        INTEGER_OR_FLOAT: "integer or float",
        ORDERED: "integer, float or bool",
        SIGNED_OR_INEXACT: "signed integer, float or complex",
        FLOAT_ABOVE_8: "float (not float8)",
        FLOAT32_OR_64: "float32 or float64",
        ANY: "any",
    }
)


def operand_error(prim: Primitive, takes: frozenset[DType], *avals: Aval) -> FxadError:
    """Return the error for operands of another kind, another shape or unequal dtypes."""
    for a in avals:
        if a.dtype not in takes:
            return DTypeError(
                f"{prim.name}: takes {_KIND[takes]} operands, got {a}", remedy="convert the operand first"
            )
    names = ("lhs", "rhs") if len(avals) == 2 else tuple([f"operand {k}" for k in range(len(avals))])
    values = ", ".join([f"{n} {a}" for n, a in zip(names, avals, strict=True)])
    if len({a.shape for a in avals}) > 1:
        return ShapeError(f"{prim.name}: shapes differ: {values}", remedy="broadcast the operands to one shape first")
    return DTypeError(f"{prim.name}: dtypes differ: {values}", remedy="convert the operands to one dtype first")


# --------------------------------------------------------------------------------------------------- shared pieces


def literal_like(value: object, like: Atom) -> Lit:
    """Return the literal of `value` with the type of `like`."""
    return Lit.of(value, like.aval)


def batch_elementwise(prim: Primitive, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
    """Batch an elementwise primitive: all operands get the mapped axis at the place of the first mapped one."""
    args, at = align_to_first(ctx, args, dims)
    return ctx(prim, *args), (at,)


def as_accumulated(x: NDArray) -> NDArray:
    """Return floats below 32 bits as float32, in which NumPy computes them; others unchanged."""
    return x.astype(dtypes.accumulated(x.dtype), copy=False)


def from_ufunc(f: np.ufunc) -> Callable[..., object]:
    """Return the `compute` of a primitive whose meaning is a universal function of NumPy."""
    return lambda _, *args: f(*args)


class Unary(Primitive):
    """One operand; the result has its shape and, by default, its dtype."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]]
    hlo_name: ClassVar[str] = ""  # empty: XLA has no such operation, and the class has its own `lower`
    reads_bits: ClassVar[bool] = False  # floats below 32 bits are not computed in float32

    @abstractmethod
    def compute(self, x: NDArray) -> object:
        """Return the meaning in NumPy; floats below 32 bits arrive as float32 (but for `reads_bits`), warnings are
        off."""

    @abstractmethod
    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        """Return the tangent of the result `y`, for a tangent `t` of `x` that is not `Zero`."""

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) == 1 and avals[0].dtype in self.takes:
            return avals
        raise operand_error(self, self.takes, *check_count(self, avals, 1))

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        (out,) = self.abstract_eval(Aval(x.shape, x.dtype))
        with np.errstate(all="ignore"):
            wide = x if self.reads_bits else as_accumulated(x)
            return (np.asarray(self.compute(wide)).astype(out.dtype, copy=False),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op(self.hlo_name, args, outs)

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return ctx(self, *args), dims

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        outs = ctx(self, *primals)
        return outs, (self.tangent(ctx, primals[0], outs[0], tangents[0]),)


class LinearUnary(Unary, LinearInOne):
    """A linear function of one operand."""

    __slots__ = ()

    @final
    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return ctx.lin_one(self, t)


class PiecewiseConstantUnary(Unary):
    """A piecewise constant function of one operand: its tangent is `Zero`."""

    __slots__ = ()

    @final
    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return Zero(y.aval)


class Binary(Primitive):
    """Two operands of one type; the result has that type. Subclasses call the operands as their formulas do."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]]
    hlo_name: ClassVar[str] = ""  # empty: XLA has no such operation, and the class has its own `lower`

    @abstractmethod
    def compute(self, x: NDArray, y: NDArray, /) -> object:
        """Return the meaning in NumPy; floats below 32 bits arrive as float32, warnings are off."""

    @abstractmethod
    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent, /) -> Tangent:
        """Return the tangent of the result `z`; not both of `tx` and `ty` are `Zero`."""

    @final
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) == 2 and avals[0] is avals[1] and avals[0].dtype in self.takes:
            return avals[:1]
        raise operand_error(self, self.takes, *check_count(self, avals, 2))

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        x, y = args
        with np.errstate(all="ignore"):
            return (np.asarray(self.compute(as_accumulated(x), as_accumulated(y))).astype(x.dtype, copy=False),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op(self.hlo_name, args, outs)

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return batch_elementwise(self, ctx, args, dims)

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x, y), (tx, ty) = primals, tangents
        outs = ctx(self, x, y)
        return outs, (self.tangent(ctx, x, y, outs[0], tx, ty),)


class PiecewiseConstantBinary(Binary):
    """A piecewise constant function of two operands: its tangent is `Zero`."""

    __slots__ = ()

    @final
    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, z: Atom, tx: Tangent, ty: Tangent) -> Tangent:
        return Zero(z.aval)


class Compare(WithoutTangent):
    """Two operands of one type; the result is bool, so its tangent is `Zero`."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]]

    @abstractmethod
    def compute(self, x: NDArray, y: NDArray) -> object:
        """Return the meaning in NumPy."""

    @final
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if len(avals) == 2 and avals[0] is avals[1] and avals[0].dtype in self.takes:
            return (avals[0].with_dtype(dtypes.bool_),)
        raise operand_error(self, self.takes, *check_count(self, avals, 2))

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(self.compute(*args)),)

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return lower_compare(hlo, self.name.upper(), args, ins[0])

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        return batch_elementwise(self, ctx, args, dims)
