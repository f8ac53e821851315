"""Contraction of two arrays. The derivative and the transposes are contractions too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.errors import DTypeError, ParameterError, ShapeError
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
    Lit,
    NDArray,
    primitive,
    primitive_family,
)
from fxad.primitives.axes import axes_after_insert, other_axes
from fxad.primitives.elementwise.convert import ReducePrecision, emit_convert
from fxad.primitives.families import Bilinear
from fxad.primitives.operand_checks import check_axis, check_count, check_precision
from fxad.primitives.shape import Transpose
from fxad.primitives.stablehlo import int_list, lower_compare, precision_attribute

_KINDS: Final = (dtypes.FLOATING, dtypes.COMPLEX, dtypes.INTEGER)


def product_dtype(name: str, lhs: Aval, rhs: Aval, preferred: DType | None) -> DType:
    """Return the dtype of sums of products. Raises: DTypeError if the operands differ, or if `preferred` cannot hold
    the sums."""
    dtype = lhs.dtype
    if dtype != rhs.dtype:
        raise DTypeError(f"{name}: dtypes differ: lhs {lhs}, rhs {rhs}", remedy="convert one operand first")
    if dtype == dtypes.bool_:
        raise DTypeError(f"{name}: {lhs} is not numeric", remedy="convert to an integer first")
    if preferred is None or preferred == dtype:
        return dtype
    one_kind = any([dtype in kind and preferred in kind for kind in _KINDS])
    if not one_kind or preferred.itemsize < dtype.itemsize:
        raise DTypeError(
            f"{name}: preferred {preferred.name} does not hold sums of products of {dtype.name}",
            remedy="prefer a dtype of the same kind that is no narrower, and convert the result",
        )
    return preferred


@primitive_family
class Contraction(Bilinear):
    """Sums of products over pairs of contracted axes, for each index of the pairs of batch axes.

    The result has the batch axes, then the free axes of lhs, then those of rhs.
    """

    __slots__ = ()

    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]


@final
@primitive
class DotGeneral(Contraction):
    """Sum of products over the contracting axes, for each index of the batch axes.

    The result has the batch axes, then the free axes of lhs, then those of rhs.

    `precision` is that of the products on an accelerator: "high", "highest", or "" for the fastest. For float32, it may
    also be the name of a `SplitProduct`, which is computed alike on all devices.

    Type:   lhs and rhs of one dtype but bool; paired axes have equal sizes. The result has the dtype `preferred` (of
            the same kind and no narrower), or theirs when it is None; integers wrap.
    Rule:   linear in each operand; each transpose is a dot_general of the cotangent and the other operand, computed in
            the dtype of the cotangent.
    Source: stablehlo.dot_general; `impl` sums floats below 32 bits in float32 and rounds once.
    """

    name: ClassVar[str] = "dot_general"
    preferred: DType | None
    precision: str = ""

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        lhs, rhs = check_count(self, avals, 2)
        check_precision(self.name, self.precision, SPLIT_PRODUCTS)
        dtype = lhs.dtype
        if self.precision in SPLIT_PRODUCTS and not dtype == rhs.dtype == (self.preferred or dtype) == dtypes.float32:
            raise DTypeError(
                f"dot_general: precision {self.precision!r} is for float32, got {lhs} and {rhs}",
                remedy="convert both operands, and prefer no other dtype",
            )
        # the common case, without a call
        if dtype is not rhs.dtype or self.preferred is not None or dtype is dtypes.bool_:
            dtype = product_dtype(self.name, lhs, rhs, self.preferred)
        lhs_shape, rhs_shape = lhs.shape, rhs.shape
        lhs_paired, rhs_paired = self.lhs_batch + self.lhs_contract, self.rhs_batch + self.rhs_contract
        _check_axes("lhs", len(lhs_shape), self.lhs_batch, self.lhs_contract)
        _check_axes("rhs", len(rhs_shape), self.rhs_batch, self.rhs_contract)
        if [lhs_shape[a] for a in lhs_paired] != [rhs_shape[b] for b in rhs_paired] or len(self.lhs_batch) != len(
            self.rhs_batch
        ):
            _check_pairs("batch", lhs_shape, rhs_shape, self.lhs_batch, self.rhs_batch)
            _check_pairs("contracting", lhs_shape, rhs_shape, self.lhs_contract, self.rhs_contract)
        shape = [lhs_shape[a] for a in self.lhs_batch]
        shape += [size for a, size in enumerate(lhs_shape) if a not in lhs_paired]
        shape += [size for b, size in enumerate(rhs_shape) if b not in rhs_paired]
        return (Aval(tuple(shape), dtype),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        lhs, rhs = args
        split = SPLIT_PRODUCTS.get(self.precision)
        if split is not None:
            left, right = split.parts(lhs), split.parts(rhs)
            plain = replace(self, precision="")
            *small, largest = [plain.impl(left[i], right[j])[0] for i, j in split.pairs]
            return (np.add(split.without_nan(reduce(np.add, small)), largest) if small else largest,)
        dtype = self.preferred or lhs.dtype
        wide = dtypes.accumulated(dtype)
        lhs_free = free_axes(lhs.ndim, self.lhs_batch, self.lhs_contract)
        rhs_free = free_axes(rhs.ndim, self.rhs_batch, self.rhs_contract)
        batch = [lhs.shape[a] for a in self.lhs_batch]
        rows, columns = [lhs.shape[a] for a in lhs_free], [rhs.shape[a] for a in rhs_free]
        n = prod([lhs.shape[a] for a in self.lhs_contract])
        lhs = lhs.astype(wide).transpose([*self.lhs_batch, *lhs_free, *self.lhs_contract])
        rhs = rhs.astype(wide).transpose([*self.rhs_batch, *self.rhs_contract, *rhs_free])
        matrices = lhs.reshape([*batch, prod(rows), n]), rhs.reshape([*batch, n, prod(columns)])
        return (np.matmul(*matrices).reshape([*batch, *rows, *columns]).astype(dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if hlo.platform == "cpu" and hlo.devices == 1:
            matrices = Matrices.of(self, *ins)
            if matrices is not None:
                return matrices.lower(hlo, args, ins, outs)
        return self._product(hlo, args, ins, outs)

    def _product(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        split = SPLIT_PRODUCTS.get(self.precision)
        if split is not None:
            plain = replace(self, precision="")
            left, right = [split.lower_parts(hlo, x, aval) for x, aval in zip(args, ins, strict=True)]
            *small, largest = [plain._product(hlo, (left[i], right[j]), ins, outs) for i, j in split.pairs]
            if not small:
                return largest
            small_sum = reduce(lambda a, b: hlo.op("stablehlo.add", (*a, *b), outs), small)
            return hlo.op("stablehlo.add", (*split.lower_without_nan(hlo, small_sum[0], outs[0]), *largest), outs)
        fields = {
            "lhs_batching_dimensions": self.lhs_batch,
            "rhs_batching_dimensions": self.rhs_batch,
            "lhs_contracting_dimensions": self.lhs_contract,
            "rhs_contracting_dimensions": self.rhs_contract,
        }
        text = ", ".join([f"{name} = {int_list(axes)}" for name, axes in fields.items()])
        attributes = {"dot_dimension_numbers": f"#stablehlo.dot<{text}>", **precision_attribute(self.precision)}
        return hlo.op("stablehlo.dot_general", args, outs, attributes)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        lhs_dim, rhs_dim = dims
        lhs_contract, lhs_batch, rhs_contract, rhs_batch = (
            self.lhs_contract,
            self.lhs_batch,
            self.rhs_contract,
            self.rhs_batch,
        )
        if lhs_dim is not None:
            lhs_contract, lhs_batch = axes_after_insert(lhs_contract, lhs_dim), axes_after_insert(lhs_batch, lhs_dim)
        if rhs_dim is not None:
            rhs_contract, rhs_batch = axes_after_insert(rhs_contract, rhs_dim), axes_after_insert(rhs_batch, rhs_dim)
        out_dim = 0
        if lhs_dim is not None and rhs_dim is not None:
            lhs_batch, rhs_batch = (lhs_dim, *lhs_batch), (rhs_dim, *rhs_batch)
        elif lhs_dim is not None:  # the mapped axis becomes a free axis, without broadcasting
            out_dim = len(lhs_batch) + free_axes(args[0].aval.ndim, lhs_batch, lhs_contract).index(lhs_dim)
        elif rhs_dim is not None:
            rows = args[0].aval.ndim - len(lhs_contract)
            out_dim = rows + free_axes(args[1].aval.ndim, rhs_batch, rhs_contract).index(rhs_dim)
        return ctx(
            DotGeneral(lhs_contract, rhs_contract, lhs_batch, rhs_batch, self.preferred, self.precision), *args
        ), (out_dim,)

    def lhs_cotangent(self, emit: Emit, ct: Atom, lhs: Aval, rhs: Atom) -> Atom:
        # ct has axes (batch, lhs free, rhs free): contracting rhs free leaves (batch, lhs free, rhs contract)
        rows = free_axes(lhs.ndim, self.lhs_batch, self.lhs_contract)
        columns = free_axes(rhs.aval.ndim, self.rhs_batch, self.rhs_contract)
        n, m = len(self.lhs_batch), len(self.lhs_batch) + len(rows)
        dot = DotGeneral(
            tuple(range(m, m + len(columns))), columns, tuple(range(n)), self.rhs_batch, None, self.precision
        )
        bar = emit.one(dot, ct, emit_convert(emit, rhs, ct.aval.dtype))
        return _arranged(emit, bar, (*self.lhs_batch, *rows, *_paired(self.lhs_contract, self.rhs_contract)), lhs)

    def rhs_cotangent(self, emit: Emit, ct: Atom, lhs: Atom, rhs: Aval) -> Atom:
        # contracting lhs free leaves (batch, rhs free, lhs contract)
        rows = free_axes(lhs.aval.ndim, self.lhs_batch, self.lhs_contract)
        columns = free_axes(rhs.ndim, self.rhs_batch, self.rhs_contract)
        n, m = len(self.lhs_batch), len(self.lhs_batch) + len(rows)
        dot = DotGeneral(tuple(range(n, m)), rows, tuple(range(n)), self.lhs_batch, None, self.precision)
        bar = emit.one(dot, ct, emit_convert(emit, lhs, ct.aval.dtype))
        return _arranged(emit, bar, (*self.rhs_batch, *columns, *_paired(self.rhs_contract, self.lhs_contract)), rhs)


@final
@dataclass(frozen=True, slots=True)
class SplitProduct:
    """A product of float32 numbers by products of their parts, which have fewer bits: each part is what the parts
    before it leave of the number, rounded. An accelerator multiplies such numbers fast, and adds in float32.

    `mantissa_bits` are those of a part, which is a bfloat16 if they are 7. `pairs` are the parts that are multiplied,
    the smallest products first.
    """

    mantissa_bits: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def _rounding(self) -> ReducePrecision:
        return ReducePrecision(8, self.mantissa_bits)

    @property
    def _count(self) -> int:
        return 1 + max([i for i, _ in self.pairs])

    def parts(self, x: NDArray) -> list[NDArray]:
        """Return the parts. An infinite number has one part that is not 0."""
        parts: list[NDArray] = []
        for _ in range(self._count):
            (part,) = self._rounding.impl(x)
            parts.append(part)
            with np.errstate(invalid="ignore"):
                x = np.where(np.isfinite(part), np.subtract(x, part), np.float32(0))
        return parts

    def without_nan(self, rest: NDArray) -> NDArray:
        """Return the sum of the small products, without those of an infinity and a part that is 0."""
        return np.where(np.isnan(rest), np.float32(0), rest)

    def lower_without_nan(self, hlo: Hlo, rest: HloValue, aval: Aval) -> HloValues:
        """Return what `without_nan` does."""
        (known,) = lower_compare(hlo, "EQ", (rest, rest), aval)
        return hlo.op("stablehlo.select", (known, rest, hlo.constant(Lit.zero(aval))), (aval,))

    def lower_parts(self, hlo: Hlo, x: HloValue, aval: Aval) -> list[HloValue]:
        """Return the parts, of float32 or bfloat16. Only `reduce_precision` surely rounds: XLA may drop a conversion to
        bfloat16 and back."""
        half, flags = Aval(aval.shape, dtypes.bfloat16), Aval(aval.shape, dtypes.bool_)
        parts: list[HloValue] = []
        for _ in range(self._count):
            (part,) = self._rounding.lower(hlo, (x,), (aval,), (aval,))
            parts += hlo.op("stablehlo.convert", (part,), (half,)) if self.mantissa_bits == 7 else (part,)
            (rest,) = hlo.op("stablehlo.subtract", (x, part), (aval,))
            (finite,) = hlo.op("stablehlo.is_finite", (part,), (flags,))
            (x,) = hlo.op("stablehlo.select", (finite, rest, hlo.constant(Lit.zero(aval))), (aval,))
        return parts


_HALF: Final = ((0, 1), (1, 0), (0, 0))
_SIX: Final = ((1, 1), (0, 2), (2, 0), *_HALF)
SPLIT_PRODUCTS: Final[Mapping[str, SplitProduct]] = MappingProxyType(
    {
        "bf16": SplitProduct(7, ((0, 0),)),
        "bf16_x3": SplitProduct(7, _HALF),
        "bf16_x6": SplitProduct(7, _SIX),
        "bf16_x9": SplitProduct(7, ((2, 2), (1, 2), (2, 1), *_SIX)),
        "tf32": SplitProduct(10, ((0, 0),)),
        "tf32_x3": SplitProduct(10, _HALF),
    }
)


@final
@dataclass(frozen=True, slots=True)
class Matrices:
    """The operands of a `DotGeneral` as matrices: `perms` put the batch axes of each first, `shapes` have one
    contracting axis and at most one free axis after them, and `product` multiplies those.

    XLA's CPU compiler multiplies matrices with either axis contracted, but copies both operands of any other product
    to lhs (batch, free, contracting) and rhs (batch, contracting, free): a kernel to compile, and a pass over the
    operand. The gradient of `x @ w` with respect to w, for x of three axes, contracts the first two axes of x and of
    the cotangent. See docs/adr/0116.
    """

    perms: tuple[tuple[int, ...], tuple[int, ...]]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    product: DotGeneral

    @staticmethod
    def of(dot: DotGeneral, lhs: Aval, rhs: Aval) -> Matrices | None:
        """Return the matrices of a product that XLA would copy; None if it copies nothing, or if a transposition of an
        operand is needed to make one axis of its contracting axes or of its free axes."""
        n, contract = len(dot.lhs_batch), sorted(zip(dot.lhs_contract, dot.rhs_contract, strict=True))
        left, right = [a for a, _ in contract], [b for _, b in contract]
        rows = free_axes(lhs.ndim, dot.lhs_batch, dot.lhs_contract)
        columns = free_axes(rhs.ndim, dot.rhs_batch, dot.rhs_contract)
        copied = (*dot.lhs_batch, *rows, *left) != (*range(lhs.ndim),)
        if not left or not (copied or (*dot.rhs_batch, *right, *columns) != (*range(rhs.ndim),)):
            return None
        perms, shapes, axes = [], [], []
        sides = (lhs, dot.lhs_batch, left, rows), (rhs, dot.rhs_batch, right, columns)
        for operand, batch, contracted, free in sides:
            unbatched = other_axes(batch, operand.ndim)
            first = unbatched[0] in contracted
            if unbatched != ((*contracted, *free) if first else (*free, *contracted)):
                return None
            groups = [contracted, free] if first else [free, contracted]
            sizes = [prod([operand.shape[a] for a in group]) for group in groups if group]
            perms.append((*batch, *unbatched))
            shapes.append((*[operand.shape[a] for a in batch], *sizes))
            axes.append((n if first else n + len(sizes) - 1,))
        each = tuple(range(n))
        product = DotGeneral(axes[0], axes[1], each, each, dot.preferred, dot.precision)
        return Matrices((perms[0], perms[1]), (shapes[0], shapes[1]), product)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        """Return the product of the operands, with the axes of `outs`."""
        operands: list[HloValue] = []
        avals: list[Aval] = []
        for value, aval, perm, shape in zip(args, ins, self.perms, self.shapes, strict=True):
            ordered = aval.with_shape(tuple([aval.shape[a] for a in perm]))
            (moved,) = (
                (value,)
                if perm == tuple(range(aval.ndim))
                else Transpose(perm).lower(hlo, (value,), (aval,), (ordered,))
            )
            matrix = aval.with_shape(shape)
            operands += (moved,) if shape == ordered.shape else hlo.op("stablehlo.reshape", (moved,), (matrix,))
            avals.append(matrix)
        results = self.product.abstract_eval(*avals)
        product = self.product._product(hlo, operands, avals, results)
        return product if results == tuple(outs) else hlo.op("stablehlo.reshape", product, outs)


def free_axes(ndim: int, batch: tuple[int, ...], contract: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of an operand that are neither batch nor contracting."""
    return other_axes((*batch, *contract), ndim)


def _paired(mine: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    """Return this operand's contracting axes, in the order in which a dot_general returns the free axes of the other
    operand."""
    return [a for _, a in sorted(zip(other, mine, strict=True))]


def _arranged(emit: Emit, bar: Atom, axes: tuple[int, ...], like: Aval) -> Atom:
    """Return a cotangent with the axes and dtype of the operand. Axis k of `bar` belongs to axis `axes[k]` of the
    operand."""
    perm = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    if perm != tuple(range(len(axes))):
        bar = emit.one(Transpose(perm), bar)
    return emit_convert(emit, bar, like.dtype)


def _check_axes(side: str, ndim: int, batch: tuple[int, ...], contract: tuple[int, ...]) -> None:
    axes = batch + contract
    for a in axes:
        if not 0 <= a < ndim:
            check_axis(f"dot_general: {side}", a, ndim)
    if len(axes) > 1 and len({*axes}) != len(axes):
        raise ParameterError(f"dot_general: an axis of {side} is used twice: batch {batch}, contracting {contract}")


def _check_pairs(
    role: str,
    lhs_shape: tuple[int, ...],
    rhs_shape: tuple[int, ...],
    lhs_axes: tuple[int, ...],
    rhs_axes: tuple[int, ...],
) -> None:
    """Check that the axes pair axes of equal sizes of arrays of these shapes."""
    if len(lhs_axes) != len(rhs_axes):
        raise ParameterError(f"dot_general: numbers of {role} axes differ: lhs {lhs_axes}, rhs {rhs_axes}")
    for a, b in zip(lhs_axes, rhs_axes, strict=True):
        if lhs_shape[a] != rhs_shape[b]:
            raise ShapeError(
                f"dot_general: {role} sizes differ: lhs dim {a} has {lhs_shape[a]}, rhs dim {b} has {rhs_shape[b]}"
            )


DOT: Final = (DotGeneral,)
