"""Window reductions: sum, maximum, minimum, product. The sum is linear, and its transpose is a window sum. The extrema
select elements, and their derivative is the pair of `select_and_scatter`. `reduce` has a table of all reductions."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import ClassVar, Final, final

from fxad import dtypes
from fxad.core.sizes.size import is_symbolic
from fxad.dtypes import DType
from fxad.errors import UnknownSizeError
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
    LinearMap,
    NDArray,
    Shape,
    Tangents,
    Zero,
    primitive,
    primitive_family,
)
from fxad.primitives.axes import Axes
from fxad.primitives.elementwise.family import ORDERED
from fxad.primitives.families import LinearInOne
from fxad.primitives.operand_checks import check_count, check_dtype
from fxad.primitives.reduce import MAXIMUM, MINIMUM, PRODUCT, SUM, Monoid, ReduceMax, ReduceMin, Reduction
from fxad.primitives.reduce_prod import ReduceProd, product_tangent
from fxad.primitives.select_and_scatter import SelectAndGatherAdd
from fxad.primitives.shape import ReduceSum, Reshape
from fxad.primitives.slicing import Concatenate, Slice, tight_slice
from fxad.primitives.sliding import Padding, SlidingWindow, Windowed, dilated_size
from fxad.primitives.stablehlo import lower_reduce


@primitive_family
class WindowReduction(Windowed):
    """Combine the elements of each window by an associative and commutative operation; holes do not count."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]]
    monoid: ClassVar[Monoid]
    reduction: ClassVar[type[Reduction | ReduceSum]]  # along whole axes, by the same operation
    rounds: ClassVar[bool] = False  # the operation rounds, so floats below 32 bits are combined in float32
    window: Shape
    strides: Axes
    padding: Padding
    base_dilation: Axes
    window_dilation: Axes

    @final
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        check_dtype(self.name, x, self.takes)
        return (Aval(self.sliding.result_shape(self.name, x), x.dtype),)

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        windows = self.sliding.windows(x, self.monoid.identity(x.dtype).array)
        return (self.monoid.reduce(windows, tuple(range(x.ndim, 2 * x.ndim))),)

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        (x,), (out,) = ins, outs
        if x.size == 0 or out.size == 0:
            return (hlo.constant(self.monoid.identity(x.dtype).with_shape(out.shape)),)
        hole = hlo.constant(self.monoid.identity(x.dtype))
        args, (x,), windows = self.sliding.lower_single(hlo, args, ins, (hole,))
        if prod(self.window) == 1:
            return args
        start = self.monoid.identity(dtypes.accumulated(x.dtype) if self.rounds else x.dtype)
        attributes, operation = windows.attributes(), self.monoid.prim.hlo_name
        return lower_reduce(hlo, "stablehlo.reduce_window", attributes, operation, start, args, x, outs)

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (dim,) = dims
        return ctx(self if dim is None else self.with_sliding(self.sliding.mapped(dim)), *args), (dim,)


@final
@primitive
class ReduceWindowSum(WindowReduction, LinearMap, LinearInOne):
    """The sum of each window.

    Type: x of any dtype but bool; one entry of each parameter per axis; the dtype is kept (integers wrap).
    Rule: transpose is reduce_window_sum with strides and base dilation swapped.
    Source: stablehlo.reduce_window with stablehlo.add; floats below 32 bits are summed in float32 and rounded once.
    """

    name: ClassVar[str] = "reduce_window_sum"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    monoid: ClassVar[Monoid] = SUM
    reduction: ClassVar[type[Reduction | ReduceSum]] = ReduceSum
    rounds: ClassVar[bool] = True

    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        if ct.aval.size == 0 or x.size == 0:
            return Zero(x)
        return emit.one(ReduceWindowSum(*self.sliding.adjoint(x.shape, ct.aval.shape).values), ct)


class WindowExtremum(WindowReduction):
    """The greatest (`select` "ge") or least ("le") element of each window."""

    __slots__ = ()

    takes: ClassVar[frozenset[DType]] = ORDERED
    select: ClassVar[str]

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        select = SelectAndGatherAdd(self.select, *self.sliding.values)
        return ctx(self, *primals), ctx.lin(select, *tangents, *primals)


@final
@primitive
class ReduceWindowMax(WindowExtremum):
    """The greatest element of each window; nan where there is one, the least value of the dtype in an empty window.

    Type: x integer, float or bool; one entry of each parameter per axis; the dtype is kept.
    Rule: the tangent is that of the first element that is the greatest.
    Source: stablehlo.reduce_window with stablehlo.maximum
    """

    name: ClassVar[str] = "reduce_window_max"
    select: ClassVar[str] = "ge"
    monoid: ClassVar[Monoid] = MAXIMUM
    reduction: ClassVar[type[Reduction | ReduceSum]] = ReduceMax


@final
@primitive
class ReduceWindowMin(WindowExtremum):
    """The least element of each window; nan where there is one, the greatest value of the dtype in an empty window.

    Type: x integer, float or bool; one entry of each parameter per axis; the dtype is kept.
    Rule: the tangent is that of the first element that is the least.
    Source: stablehlo.reduce_window with stablehlo.minimum
    """

    name: ClassVar[str] = "reduce_window_min"
    select: ClassVar[str] = "le"
    monoid: ClassVar[Monoid] = MINIMUM
    reduction: ClassVar[type[Reduction | ReduceSum]] = ReduceMin


@final
@primitive
class ReduceWindowProd(WindowReduction):
    """The product of each window, 1 for an empty window.

    Type: x of any dtype but bool; one entry of each parameter per axis; the dtype is kept (integers wrap).
    Rule: the tangent stacks the windows and is computed by a binary tree of products: there is no division.
    Cost: the tangent stores all windows.
    Source: stablehlo.reduce_window with stablehlo.multiply; floats below 32 bits are multiplied in float32 and rounded
            once.
    """

    name: ClassVar[str] = "reduce_window_prod"
    takes: ClassVar[frozenset[DType]] = dtypes.NUMERIC
    monoid: ClassVar[Monoid] = PRODUCT
    reduction: ClassVar[type[Reduction | ReduceSum]] = ReduceProd
    rounds: ClassVar[bool] = True

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        steps = list(zip(y.aval.shape, self.strides, strict=True))
        inexact = [m for m, s in steps if (dilated_size(m, s) + s - 1) // s != m]  # the number of strided places
        if is_symbolic(self.window) or inexact:
            what = self.window if is_symbolic(self.window) else tuple(inexact)
            raise UnknownSizeError(
                f"reduce_window_prod: the derivative stacks the elements of windows, and {what} has no value",
                remedy="differentiate the masked program, or specialize the program first",
            )
        pad, slices, row = (
            self.sliding.pad(),
            _slices_of_windows(self.sliding, y.aval.shape),
            Reshape((1, *y.aval.shape)),
        )
        padded = ctx.one(pad, x, self.monoid.identity(x.aval.dtype))
        padded_t = ctx.lin_one(pad, t, Zero(x.aval.with_shape(())))
        xs = ctx.one(Concatenate(0), *[ctx.one(row, ctx.one(s, padded)) for s in slices])
        ts = ctx.lin_one(Concatenate(0), *[ctx.lin_one(row, ctx.lin_one(s, padded_t)) for s in slices])
        return (y,), (product_tangent(ctx, (0,), xs, ts, y.aval),)


def _slices_of_windows(sliding: SlidingWindow, positions: Shape) -> list[Slice]:
    """Return one slice of the padded array for each place in the window: the elements at that place of all windows.

    Windows of 2 of the elements [a, b, c, d], with stride 1, are [a, b], [b, c], [c, d]. The slices are [a, b, c], the
    first elements of the three windows, and [b, c, d], the second ones.
    """
    strides, slices = sliding.strides, []
    for offset in product(*map(range, sliding.window)):
        starts = [k * r for k, r in zip(offset, sliding.window_dilation, strict=True)]
        limits = [a + dilated_size(m, s) for a, m, s in zip(starts, positions, strides, strict=True)]
        # without window positions each slice is empty
        first = tuple([a if m != 0 else 0 for a, m in zip(starts, positions, strict=True)])
        part = Slice(first, tuple([b if m != 0 else 0 for b, m in zip(limits, positions, strict=True)]), strides)
        slices.append(tight_slice(part, [k for k, m in enumerate(positions) if m == 1]))
    return slices


REDUCE_WINDOW: Final = (ReduceWindowSum, ReduceWindowMax, ReduceWindowMin, ReduceWindowProd)
