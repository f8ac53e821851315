"""The greatest elements and their places."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
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
    HloValues,
    Jaxpr,
    JvpCtx,
    Lin,
    Lit,
    NDArray,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import SUB
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.family import ORDERED, as_accumulated
from fxad.primitives.elementwise.logic import EQ, NE
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.gather_scatter import gather_along_axis, index_vectors
from fxad.primitives.index import INT32_MAX
from fxad.primitives.operand_checks import check_count
from fxad.primitives.reduce import extreme_value
from fxad.primitives.shape import Iota, Rev, move_axis
from fxad.primitives.slicing import emit_slice
from fxad.primitives.sort import Sort, SortLike, take_along_axis_program
from fxad.primitives.stablehlo import i64_attribute, zeros_constant


@final
@primitive
class TopK(SortLike):
    """The k greatest elements along the last axis in descending order, and their places. Of equal elements the first
    comes first.

    nans count as the greatest, and -0.0 equals 0.0.

    Type: x integer, float or bool; results: values of its type, places int32; their last axis has size k.
    Rule: the tangents at the same places.
    Cost: for k of at most 1/16 of the axis, floats of at most 32 bits: about one pass; else a sort.
    Source: chlo.top_k
    """

    name: ClassVar[str] = "top_k"
    k: int

    def ordered_axis(self, ndim: int) -> int:
        return ndim - 1

    def last_value(self, dtype: DType) -> Lit:
        return extreme_value(dtype, -1)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        if not x.ndim:
            raise ShapeError(f"top_k: takes an operand with an axis, got {x}")
        if x.dtype not in ORDERED:
            raise DTypeError(f"top_k: {x} has no order")
        if not 0 <= self.k <= x.shape[-1]:
            raise ParameterError(f"top_k: k = {self.k} is not between 0 and {x.shape[-1]}, the size of the last axis")
        if type(x.shape[-1]) is int and x.shape[-1] > INT32_MAX:
            raise ShapeError(
                f"top_k: places in the {x.shape[-1]} elements of the last axis do not fit in int32",
                remedy="use argsort, whose indices are int64 there",
            )
        values = x.with_shape((*x.shape[:-1], self.k))
        return values, values.with_dtype(dtypes.int32)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        n = x.shape[-1]
        order = n - 1 - np.flip(np.lexsort((np.flip(as_accumulated(x), -1),), -1), -1)[..., : self.k]
        return np.take_along_axis(x, order, -1), order.astype(np.int32)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), (values, places) = ins, outs
        if values.size == 0:
            return [zeros_constant(hlo, a) for a in outs]
        # XLA has a selection algorithm for float32 only; for other dtypes it sorts, slower than `_by_sorting`
        if x.dtype not in dtypes.FLOATING or x.dtype.itemsize > 4 or 16 * self.k > x.shape[-1]:
            return hlo.call(_by_sorting(x, self.k), args)
        top = (values.with_dtype(dtypes.float32), places)
        _, indices = hlo.op("chlo.top_k", hlo.call(_canonical_floats(x), args), top, {"k": i64_attribute(self.k)})
        return *hlo.call(take_along_axis_program((x,), x.ndim - 1, places), (*args, indices)), indices

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x,), (dim,) = args, dims
        if dim is not None and dim == x.aval.ndim - 1:
            x, dim = move_axis(ctx, x, dim, 0), 0
        return ctx(self, x), (dim, dim)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        values, places = ctx(self, x)
        if not isinstance(t, Lin) or values.aval.size == 0:
            return (values, places), (Zero(values.aval), Zero(places.aval))
        gather = gather_along_axis(x.aval.shape, x.aval.ndim - 1, unique_indices=True)
        return (values, places), (ctx.lin_one(gather, t, index_vectors(ctx, places)), Zero(places.aval))


def _canonical_floats(x: Aval) -> Jaxpr:
    """Return the program that makes zeros and nans unique, for XLA's total order."""
    b = Builder()
    f: Atom = b.input(x)
    f = f if x.dtype == dtypes.float32 else b.one(ConvertElementType(dtypes.float32), f)
    f = emit_where(b, b.one(EQ, f, Lit.of(0, f.aval)), Lit.of(0.0, f.aval), f)
    return b.build((emit_where(b, b.one(NE, f, f), Lit.of(np.nan, f.aval), f),), "canonical_floats")


def _by_sorting(x: Aval, k: int) -> Jaxpr:
    """Return the program that sorts the reversed axis, so that the first of equal elements comes last, and reads the
    end backwards."""
    b = Builder()
    axis, n = x.ndim - 1, x.shape[-1]
    from_front = b.one(Iota(x.shape, dtypes.int32, axis))
    from_end = b.one(SUB, Lit.of(n - 1, from_front.aval), from_front)
    ascending = b(Sort(axis, 1), b.one(Rev((axis,)), b.input(x)), from_end)
    return b.build([_last_reversed(b, v, axis, k) for v in ascending], "by_sorting")


def _last_reversed(emit: Emit, x: Atom, axis: int, k: int) -> Atom:
    n = x.aval.shape[axis]
    return emit.one(Rev((axis,)), emit_slice(emit, x, axis, n - k, n))


TOP_K: Final = (TopK,)
