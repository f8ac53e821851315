"""Sorting along an axis.

XLA's CPU backend sorts a single integer operand by a plain `<` five times faster than any other sort (44 ms against 250
for a million). So other sorts are rewritten to this form where possible: floats as integers in the same order, and
several operands as one integer that packs key and place, with a gather of the operands afterwards.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.errors import ArgumentError, ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Emit,
    Hlo,
    HloValue,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lin,
    Lit,
    NDArray,
    Primitive,
    Tangents,
    primitive,
)
from fxad.primitives.axes import axis_after_insert
from fxad.primitives.elementwise.complex_parts import IMAG, REAL
from fxad.primitives.elementwise.convert import BitcastConvertType, emit_convert
from fxad.primitives.elementwise.family import as_accumulated
from fxad.primitives.elementwise.logic import AND, EQ, GE, LT, NE, OR, SHIFT_LEFT, SHIFT_RIGHT_LOGICAL, XOR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.gather_scatter import gather_along_axis, index_vectors
from fxad.primitives.operand_checks import check_axis
from fxad.primitives.reduce import extreme_value
from fxad.primitives.shape import Iota, align_to_first
from fxad.primitives.stablehlo import bool_attribute, i64_attribute
from fxad.support.constants import RADIX_SORT_SIZE

# ------------------------------------------------------------------------------------------------ floats as integers


def _key_bits(dtype: DType) -> int:
    """Return the number of bits of an unsigned integer with the order of this dtype: 32, 64, or 128 for complex128."""
    return max(32, 8 * dtype.itemsize)


def order_preserving_bits(emit: Emit, x: Atom, ties: bool) -> Atom:
    """Return x, real, as an unsigned integer of 32 or 64 bits in the same order; nans last. `ties`: -0.0 and 0.0 are
    equal."""
    unsigned = dtypes.uint64 if x.aval.dtype.itemsize == 8 else dtypes.uint32
    if x.aval.dtype in dtypes.UNSIGNED or x.aval.dtype == dtypes.bool_:
        return emit_convert(emit, x, unsigned)
    top = Lit.of(1 << (8 * unsigned.itemsize - 1), x.aval.with_dtype(unsigned))
    if x.aval.dtype in dtypes.SIGNED:
        wide = emit_convert(emit, x, dtypes.int64 if unsigned == dtypes.uint64 else dtypes.int32)
        return emit.one(XOR, emit.one(BitcastConvertType(unsigned), wide), top)
    x = emit_convert(emit, x, dtypes.float64 if unsigned == dtypes.uint64 else dtypes.float32)
    if ties:
        x = emit_where(emit, emit.one(EQ, x, Lit.of(0.0, x.aval)), Lit.of(0.0, x.aval), x)
    x = emit_where(emit, emit.one(NE, x, x), Lit.of(np.nan, x.aval), x)
    bits = emit.one(BitcastConvertType(unsigned), x)
    # the bits of negative floats are in reverse order
    flip = emit_where(emit, emit.one(GE, bits, top), Lit.of(-1, bits.aval), top)
    return emit.one(XOR, bits, flip)


def _from_order_preserving_bits(emit: Emit, key: Atom, dtype: DType) -> Atom:
    """Return the inverse of `order_preserving_bits`."""
    if dtype in dtypes.UNSIGNED or dtype == dtypes.bool_:
        return emit_convert(emit, key, dtype)
    double = key.aval.dtype == dtypes.uint64
    top = Lit.of(1 << (8 * key.aval.dtype.itemsize - 1), key.aval)
    if dtype in dtypes.SIGNED:
        signed = BitcastConvertType(dtypes.int64 if double else dtypes.int32)
        return emit_convert(emit, emit.one(signed, emit.one(XOR, key, top)), dtype)
    flip = emit_where(emit, emit.one(GE, key, top), top, Lit.of(-1, key.aval))
    bits = emit.one(XOR, key, flip)
    return emit_convert(emit, emit.one(BitcastConvertType(dtypes.float64 if double else dtypes.float32), bits), dtype)


def _pack_words(emit: Emit, high: Atom, low: Atom) -> Atom:
    """Return two unsigned integers of 32 bits as one of 64."""
    shift = Lit.of(32, high.aval.with_dtype(dtypes.uint64))
    up = emit.one(SHIFT_LEFT, emit_convert(emit, high, dtypes.uint64), shift)
    return emit.one(OR, up, emit_convert(emit, low, dtypes.uint64))


def _unpack_words(emit: Emit, x: Atom) -> tuple[Atom, Atom]:
    """Return the inverse of `_pack_words`."""
    high = emit.one(SHIFT_RIGHT_LOGICAL, x, Lit.of(32, x.aval))
    return emit_convert(emit, high, dtypes.uint32), emit_convert(
        emit, emit.one(AND, x, Lit.of(0xFFFFFFFF, x.aval)), dtypes.uint32
    )


def _nan_parts(emit: Emit, x: Atom) -> Atom:
    """Return 0 for a complex number without nan, 1 if the imaginary part is nan, 2 if the real one is, 3 if both are.
    In this order they are sorted, as in NumPy."""
    real, imag = [emit_convert(emit, emit.one(NE, p, p), dtypes.uint32) for p in (emit.one(REAL, x), emit.one(IMAG, x))]
    return emit.one(OR, emit.one(SHIFT_LEFT, real, Lit.of(1, real.aval)), imag)


# ------------------------------------------------------------------------------------------------------- primitives


class SortLike(Primitive):
    """A primitive that orders elements along an axis. All results have as many axes as the operands, and depend on the
    order of the elements along this one."""

    __slots__ = ()

    @abstractmethod
    def ordered_axis(self, ndim: int) -> int:
        """Return the axis, of operands with `ndim` axes."""

    @abstractmethod
    def last_value(self, dtype: DType) -> Lit:
        """Return the value that comes last in the order, as a 0-d literal. It may be equal to others, and then comes
        after those in front of it."""


@final
@primitive
class Sort(SortLike):
    """Sort all operands along `axis` by the first `num_keys` of them, in lexicographic order.

    Ascending and stable. nans come last and are equal, -0.0 equals 0.0, complex numbers are compared by real part, then
    by imaginary part; those with a nan are last, first those whose real part is a number. A sort of one real operand
    does not keep the signs of zeros and the bits of nans in their order: -0.0 comes before 0.0, and all nans get the
    same bits.

    Type:   operands of one shape, any dtypes.
    Rule:   the tangents in the same order, by a gather.
    Cost:   a sort by one key of at most 32 bits, or of one operand of 64 bits, is five times faster than others.
    Source: stablehlo.sort
    """

    name: ClassVar[str] = "sort"
    axis: int
    num_keys: int

    def ordered_axis(self, ndim: int) -> int:
        return self.axis

    def last_value(self, dtype: DType) -> Lit:
        nan = complex(np.nan, np.nan) if dtype in dtypes.COMPLEX else np.nan
        return Lit.of(nan, Aval((), dtype)) if dtype in dtypes.INEXACT else extreme_value(dtype, 1)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if not avals:
            raise ArgumentError("sort: takes at least one operand")
        check_axis("sort", self.axis, avals[0].ndim)
        for k, x in enumerate(avals):
            if x.shape != avals[0].shape:
                raise ShapeError(f"sort: shapes differ: operand 0 {avals[0]}, operand {k} {x}")
        if not 1 <= self.num_keys <= len(avals):
            raise ParameterError(f"sort: {self.num_keys} keys of {len(avals)} operand{'s' * (len(avals) != 1)}")
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        keys = [part for key in args[: self.num_keys] for part in _real_parts(key)]
        order = np.lexsort(keys[::-1], self.axis)
        return tuple([np.take_along_axis(x, order, self.axis) for x in args])

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        x = ins[0]
        if x.size == 0 or x.shape[self.axis] == 1:
            return args
        bits = _key_bits(x.dtype)
        # integers are compared as they are; keys of complex numbers would order those with real parts 0.0 and -0.0 by
        # the sign, and not by imaginary parts
        without_keys = len(ins) == 1 and x.dtype not in dtypes.FLOATING
        if self.num_keys > 1 or x.size < RADIX_SORT_SIZE or without_keys or (len(ins) > 1 and bits > 32):
            return _lower_sort(hlo, args, outs, self.axis, _less(tuple([a.with_shape(()) for a in ins]), self.num_keys))
        if len(ins) == 1:
            key = self._by_integer(hlo, hlo.call(_to_sort_key_program(x), args), x)
            return hlo.call(_from_sort_key_program(x), key)
        take = take_along_axis_program(tuple(ins), self.axis, x.with_dtype(dtypes.int32))
        return hlo.call(take, (*args, *self._places(hlo, args[0], x)))

    def _by_integer(self, hlo: Hlo, key: HloValues, x: Aval) -> HloValues:
        unsigned = x.with_dtype(dtypes.uint32 if _key_bits(x.dtype) == 32 else dtypes.uint64)
        return _lower_sort(hlo, key, (unsigned,), self.axis, _less((unsigned.with_shape(()),), 1))

    def _places(self, hlo: Hlo, key: HloValue, x: Aval) -> HloValues:
        """Return the permutation, by sorting a key and place packed together."""
        b = Builder()
        ordered = order_preserving_bits(b, b.input(x), True)
        pack = b.build((_pack_words(b, ordered, b.one(Iota(x.shape, dtypes.uint32, self.axis))),), "pack_key_and_place")
        wide = x.with_dtype(dtypes.uint64)
        sorted_words = self._by_integer(hlo, hlo.call(pack, (key,)), wide)
        b = Builder()
        low = _unpack_words(b, b.input(wide))[1]
        return hlo.call(b.build((emit_convert(b, low, dtypes.int32),), "unpack_place"), sorted_words)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args, at = align_to_first(ctx, args, dims)
        return ctx(Sort(axis_after_insert(self.axis, at), self.num_keys), *args), (at,) * len(args)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        x = primals[0].aval
        if x.size == 0:
            return ctx(self, *primals), tangents
        *outs, places = ctx(self, *primals, ctx.one(Iota(x.shape, dtypes.int32, self.axis)))
        gather, vectors = gather_along_axis(x.shape, self.axis, unique_indices=True), index_vectors(ctx, places)
        return tuple(outs), tuple([ctx.lin_one(gather, t, vectors) if isinstance(t, Lin) else t for t in tangents])


def _real_parts(x: NDArray) -> tuple[NDArray, ...]:
    if x.dtype not in dtypes.COMPLEX:
        return (as_accumulated(x),)
    return (2 * np.isnan(x.real) + np.isnan(x.imag), x.real, x.imag)


def _lower_sort(hlo: Hlo, args: HloValues, avals: Avals, axis: int, less: Jaxpr) -> tuple[HloValue, ...]:
    return hlo.op(
        "stablehlo.sort", args, avals, {"dimension": i64_attribute(axis), "is_stable": bool_attribute(True)}, (less,)
    )


def _to_sort_key_program(x: Aval) -> Jaxpr:
    """Return the program from an operand to integers in the same order."""
    b = Builder()
    return b.build((order_preserving_bits(b, b.input(x), False),), "to_sort_key")


def _from_sort_key_program(x: Aval) -> Jaxpr:
    """Return the program from these integers back to the operand."""
    b = Builder()
    (key,) = b.inputs((x.with_dtype(dtypes.uint32 if _key_bits(x.dtype) == 32 else dtypes.uint64),))
    return b.build((_from_order_preserving_bits(b, key, x.dtype),), "from_sort_key")


def take_along_axis_program(avals: tuple[Aval, ...], axis: int, places: Aval) -> Jaxpr:
    """Return the program (operands of one shape, distinct places along an axis) -> operands at these places."""
    b = Builder()
    *args, at = b.inputs((*avals, places))
    gather, vectors = gather_along_axis(avals[0].shape, axis, unique_indices=True), index_vectors(b, at)
    return b.build([b.one(gather, x, vectors) for x in args], "take_along_axis")


def _less(avals: tuple[Aval, ...], num_keys: int) -> Jaxpr:
    """Return the comparison of two elements, each one 0-d value per operand: x0, y0, x1, y1, ..."""
    b = Builder()
    elements = b.inputs([a for a in avals for _ in range(2)])
    keys: list[tuple[Atom, Atom]] = []
    for x, y in zip(elements[: 2 * num_keys : 2], elements[1 : 2 * num_keys : 2], strict=True):
        if x.aval.dtype in dtypes.COMPLEX:
            keys.append((_nan_parts(b, x), _nan_parts(b, y)))
            keys += [(b.one(part, x), b.one(part, y)) for part in (REAL, IMAG)]
        else:
            keys.append((x, y))

    def comparable(key: Atom) -> Atom:
        # integers are compared directly: XLA recognizes this form
        return order_preserving_bits(b, key, True) if key.aval.dtype in dtypes.INEXACT else key

    *first, last = [(comparable(left), comparable(right)) for left, right in keys]
    less: Atom = b.one(LT, *last)
    for left, right in reversed(first):
        less = b.one(OR, b.one(LT, left, right), b.one(AND, b.one(EQ, left, right), less))
    return b.build((less,), "less")


SORT: Final = (Sort,)
