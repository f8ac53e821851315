"""Reductions and cumulative operations in equations: normalized axes, NumPy's reduction dtype, then one primitive.

Integers narrower than 32 bits, and bools, are summed and multiplied in int32 (uint32 for unsigned ones), on every
platform; wider ones in their own dtype. Moments of integers are float32, the default dtype, computed in float64.
Moments of floats below 32 bits are computed in float32: a sum or a count may overflow where the moment does not.

Here `sum`, `prod`, `max`, `min`, `any` and `all` are these reductions; that of numbers is `math.prod`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fxad import dtypes
from fxad.core.sizes.size import Size, maximum
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import Atom, Atoms, Aval, Emit, Lit, Primitive
from fxad.operations.arguments import check_real, flag
from fxad.operations.axes import AxisLike, normalize_axes, normalize_axis_index
from fxad.operations.promotion import convert
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.axes import other_axes
from fxad.primitives.cumulative import CumProd, CumSum
from fxad.primitives.elementwise.arithmetic import DIV, MUL, SUB
from fxad.primitives.elementwise.complex_parts import COMPLEX, CONJ, IMAG, REAL
from fxad.primitives.elementwise.logic import AND, EQ, NE
from fxad.primitives.elementwise.powers import SQRT, SQUARE
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.index import index_dtype
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, extreme_value
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum, emit_broadcast, emit_reshape
from fxad.primitives.slicing import pad_along_axis


def accumulation_dtype(dtype: DType) -> DType:
    """Return the dtype in which sums and products of a dtype are computed."""
    if dtype is dtypes.bool_ or (dtype in dtypes.SIGNED and dtype.itemsize < 4):
        return dtypes.int32
    return dtypes.uint32 if dtype in dtypes.UNSIGNED and dtype.itemsize < 4 else dtype


def count_dtype(x: Aval, axes: tuple[int, ...]) -> DType:
    """Return the dtype of a number of elements along axes: int32, or int64 if the number may not fit."""
    return index_dtype((math.prod([x.shape[a] for a in axes]),))


def reduce_axes(emit: Emit, x: Atom, prim: Callable[[tuple[int, ...]], Primitive], axes: tuple[int, ...]) -> Atom:
    """Return x reduced over the axes; x itself if there are none."""
    if x.aval.dtype in dtypes.COMPLEX and axes and prim in (ReduceMax, ReduceMin):
        return _reduce_complex_extremum(emit, x, prim, axes)
    return emit.one(prim(axes), x) if axes else x


def _reduce_complex_extremum(
    emit: Emit, x: Atom, reducer: Callable[[tuple[int, ...]], Primitive], axes: tuple[int, ...]
) -> Atom:
    """Return the greatest or least of complex numbers over axes; one with a nan if any number has one.

    Rule:   that of real numbers: the mean of the tangents of the elements that are the result.
    """
    stay = other_axes(axes, x.aval.ndim)
    real, imag = emit.one(REAL, x), emit.one(IMAG, x)
    worst = extreme_value(real.aval.dtype, -1 if reducer is ReduceMax else 1).with_shape(x.aval.shape)

    def kept(mask: Atom, part: Atom) -> Atom:
        return emit_where(emit, mask, part, worst)

    def is_extreme(elements: Atom) -> Atom:  # a bool, so no derivative passes through the search of the result
        return emit.one(EQ, elements, emit_broadcast(emit, emit.one(reducer(axes), elements), x.aval.shape, stay))

    has_nan = emit.one(NE, x, x)
    is_best = is_extreme(real)
    is_best = emit.one(AND, is_best, is_extreme(kept(is_best, imag)))
    any_nan = emit_broadcast(emit, emit.one(ReduceOr(axes), has_nan), x.aval.shape, stay)
    is_result = emit_where(emit, any_nan, has_nan, is_best)
    return emit.one(COMPLEX, *[emit.one(reducer(axes), kept(is_result, part)) for part in (real, imag)])


def restore_axes(op: str, emit: Emit, y: Atom, x: Atom, axes: tuple[int, ...], keepdims: bool) -> Atoms:
    """Return the result `y` of a reduction of `x`, with axes of size 1 in place of the reduced ones for `keepdims`."""
    if not flag(op, "keepdims", keepdims):
        return (y,)
    return (emit_reshape(emit, y, tuple([1 if a in axes else n for a, n in enumerate(x.aval.shape)])),)


# The signature every reduction below has: x, then axis, keepdims and the rest as static values.


def sum(emit: Emit, x: Atom, axis: AxisLike = None, keepdims: bool = False, dtype: DType | None = None) -> Atoms:
    """Return the sum over axes."""
    if dtype is None:
        is_count = x.aval.dtype is dtypes.bool_
        axes = normalize_axes("sum", axis, x.aval.ndim)
        dtype = count_dtype(x.aval, axes) if is_count else accumulation_dtype(x.aval.dtype)
    return _reduce("sum", emit, x, ReduceSum, axis, keepdims, dtype)


def prod(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool, dtype: DType | None) -> Atoms:
    """Return the product over axes."""
    return _reduce("prod", emit, x, ReduceProd, axis, keepdims, dtype or accumulation_dtype(x.aval.dtype))


def _extremum(
    op: str, emit: Emit, x: Atom, prim: Callable[[tuple[int, ...]], Primitive], axis: AxisLike, keepdims: bool
) -> Atoms:
    for a in normalize_axes(op, axis, x.aval.ndim):
        if x.aval.shape[a] == 0:
            raise ShapeError(
                f"{op}: axis {a} of {x.aval} is empty and has no {op}",
                remedy="give initial=, which is the result of none",
            )
    return _reduce(op, emit, x, prim, axis, keepdims, x.aval.dtype)


def max(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool) -> Atoms:
    """Return the greatest element over axes; nan if any element is nan."""
    return _extremum("max", emit, x, ReduceMax, axis, keepdims)


def min(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool) -> Atoms:
    """Return the least element over axes; nan if any element is nan."""
    return _extremum("min", emit, x, ReduceMin, axis, keepdims)


def any(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool) -> Atoms:
    """Return True if an element is not zero."""
    return _reduce("any", emit, x, ReduceOr, axis, keepdims, dtypes.bool_)


def all(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool) -> Atoms:
    """Return True if no element is zero."""
    return _reduce("all", emit, x, ReduceAnd, axis, keepdims, dtypes.bool_)


def count_nonzero(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool) -> Atoms:
    """Return the number of nonzero elements, as int32, or as int64 if it may not fit."""
    dtype = count_dtype(x.aval, normalize_axes("count_nonzero", axis, x.aval.ndim))
    return _reduce("count_nonzero", emit, convert(emit, x, dtypes.bool_), ReduceSum, axis, keepdims, dtype)


def _reduce(
    op: str,
    emit: Emit,
    x: Atom,
    prim: Callable[[tuple[int, ...]], Primitive],
    axis: AxisLike,
    keepdims: bool,
    dtype: DType,
) -> Atoms:
    """Return x, converted to `dtype`, reduced by a primitive over the axes of the user's function `op`."""
    axes = normalize_axes(op, axis, x.aval.ndim)
    return restore_axes(op, emit, reduce_axes(emit, convert(emit, x, dtype), prim, axes), x, axes, keepdims)


# -------------------------------------------------------------------------------------------------------- moments


def moment_dtypes(dtype: DType) -> tuple[DType, DType]:
    """Return the dtype in which moments of an array of this dtype are computed, at least float32, and the dtype of the
    moments. Those of integers and bools are computed in float64, and are float32."""
    return (dtypes.accumulated(dtype), dtype) if dtype in dtypes.INEXACT else (dtypes.float64, dtypes.float32)


def to_moment_dtype(name: str, emit: Emit, x: Atom, requested: DType | None) -> tuple[Atom, DType]:
    """Return x in the dtype in which its moments are computed, and the dtype of the moments.

    A mean may be an integer, that of x in the requested dtype. Raises: DTypeError for another moment.
    """
    if requested is not None and requested not in dtypes.INEXACT:
        check_moment_dtype(name, requested)
        return convert(emit, convert(emit, x, requested), dtypes.float64), requested
    computed, dtype = moment_dtypes(requested or x.aval.dtype)
    return convert(emit, x, computed), dtype


def check_moment_dtype(name: str, requested: DType) -> None:
    """Raise DTypeError for integers as the dtype of a moment that is not the mean."""
    if requested not in dtypes.INEXACT and name not in ("mean", "nanmean"):
        raise DTypeError(
            f"{name}: dtype must be floating or complex, got {requested.name}", remedy="convert the result with astype"
        )


def mean(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool, dtype: DType | None) -> Atoms:
    """Return the mean over axes."""
    axes = normalize_axes("mean", axis, x.aval.ndim)
    wide, dtype = to_moment_dtype("mean", emit, x, dtype)
    return restore_axes("mean", emit, convert(emit, _mean(emit, wide, axes), dtype), x, axes, keepdims)


def _mean(emit: Emit, x: Atom, axes: tuple[int, ...], correction: float = 0) -> Atom:
    """Return the sum over axes, divided by the number of elements minus `correction`; nan if that is not positive."""
    total = reduce_axes(emit, x, ReduceSum, axes)
    count = math.prod([x.aval.shape[a] for a in axes])
    if type(count) is Size:
        if float(correction).is_integer():  # 0 / 0 is nan
            return emit.one(DIV, total, Lit.of(maximum(count - int(correction), 0), total.aval))
        n = Lit.of(count, total.aval)
        return emit.one(DIV, total, emit.one(SUB, n, Lit.of(correction, n.aval)))
    divisor = count - correction
    return emit.one(DIV, total, Lit.of(divisor if divisor > 0 else math.nan, total.aval))


def var(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool, dtype: DType | None, correction: float) -> Atoms:
    """Return the variance over axes: the sum of squared distances from the mean, divided by count - `correction`."""
    return _spread("var", emit, x, axis, keepdims, dtype, correction)


def std(emit: Emit, x: Atom, axis: AxisLike, keepdims: bool, dtype: DType | None, correction: float) -> Atoms:
    """Return the standard deviation over axes: the root of the variance."""
    return _spread("std", emit, x, axis, keepdims, dtype, correction)


def root_of_squares(emit: Emit, total: Atom) -> Atoms:
    """Return the square root of a sum of squares.

    Rule:   the derivative at 0 is 0, of all subgradients the least, as that of `abs` and `hypot`: a norm is convex.
    """
    zero = Lit.of(0, total.aval)
    at_zero = emit.one(EQ, total, zero)
    root = emit.one(SQRT, emit_where(emit, at_zero, Lit.of(1, total.aval), total))
    return (emit_where(emit, at_zero, zero, root),)


def _spread(
    op: str, emit: Emit, x: Atom, axis: AxisLike, keepdims: bool, dtype: DType | None, correction: float
) -> Atoms:
    """Return the variance, or its root for the `op` "std"."""
    axes = normalize_axes(op, axis, x.aval.ndim)
    wide, dtype = to_moment_dtype(op, emit, x, dtype)
    deviation = subtract_reduced(emit, wide, _mean(emit, wide, axes), axes)
    y = _mean(emit, squared_magnitude(emit, deviation), axes, correction)
    if op == "std":
        y = root_of_squares(emit, y)[0]
    return restore_axes(op, emit, convert(emit, y, dtypes.real_part(dtype)), x, axes, keepdims)


def subtract_reduced(emit: Emit, x: Atom, reduced: Atom, axes: tuple[int, ...]) -> Atom:
    """Return x minus a reduction of it over axes, which is repeated along them."""
    if axes:
        stay = other_axes(axes, x.aval.ndim)
        reduced = emit_broadcast(emit, reduced, x.aval.shape, stay)
    return emit.one(SUB, x, reduced)


def squared_magnitude(emit: Emit, x: Atom) -> Atom:
    """Return |x|^2, which is real."""
    if x.aval.dtype in dtypes.COMPLEX:
        return emit.one(REAL, emit.one(MUL, x, emit.one(CONJ, x)))
    return emit.one(SQUARE, x)


# ----------------------------------------------------------------------------------------------- indices of extrema


def argmax(emit: Emit, x: Atom, axis: int | None, keepdims: bool) -> Atoms:
    """Return the index of the greatest element, as int32 (int64 if it may not fit); the first of equal ones."""
    return _arg_extremum("argmax", emit, x, ArgMax, axis, keepdims)


def argmin(emit: Emit, x: Atom, axis: int | None, keepdims: bool) -> Atoms:
    """Return the index of the least element, as int32 (int64 if it may not fit); the first of equal ones."""
    return _arg_extremum("argmin", emit, x, ArgMin, axis, keepdims)


def _arg_extremum(
    op: str, emit: Emit, x: Atom, prim: Callable[[int, DType], Primitive], axis: int | None, keepdims: bool
) -> Atoms:
    check_real(op, x.aval)
    if axis is None:
        axes = tuple(range(x.aval.ndim))
        flat = emit_reshape(emit, x, (x.aval.size,))
        k = 0
    else:
        k = normalize_axis_index(op, axis, x.aval.ndim)
        flat, axes = x, (k,)
    if flat.aval.shape[k] == 0:
        raise ShapeError(f"{op}: axis {k} of {x.aval} is empty")
    dtype = index_dtype((flat.aval.shape[k],))
    return restore_axes(op, emit, emit.one(prim(k, dtype), flat), x, axes, keepdims)


# ----------------------------------------------------------------------------------------------------- cumulative


def cumulate_flat(emit: Emit, x: Atom, product: bool, axis: int | None, dtype: DType | None) -> Atoms:
    """Return sums or products by NumPy's rule: for axis None the array is flattened."""
    if axis is None:
        x, axis = emit_reshape(emit, x, (x.aval.size,)), 0
    return _cumulate(emit, x, product, axis, dtype)


def _cumulate(emit: Emit, x: Atom, product: bool, axis: int, dtype: DType | None) -> Atoms:
    k = normalize_axis_index("cumprod" if product else "cumsum", axis, x.aval.ndim)
    if dtype is None:
        is_count = x.aval.dtype is dtypes.bool_ and not product
        dtype = index_dtype((x.aval.shape[k],)) if is_count else accumulation_dtype(x.aval.dtype)
    prim = (CumProd if product else CumSum)(k, False)
    if dtype is dtypes.bool_:  # logical or, logical and: of counts
        counts = convert(emit, convert(emit, x, dtype), index_dtype((x.aval.shape[k],)))
        return (convert(emit, emit.one(prim, counts), dtype),)
    return emit(prim, convert(emit, x, dtype))


def cumulate_array_api(
    emit: Emit, x: Atom, product: bool, axis: int | None, dtype: DType | None, include: bool
) -> Atoms:
    """Return sums or products by the array API's rule: axis None is for vectors only; `include` prepends 0 or 1."""
    name, unit = ("cumulative_prod", 1) if product else ("cumulative_sum", 0)
    if axis is None and x.aval.ndim != 1:
        raise ShapeError(f"{name}: an array with {x.aval.ndim} axes needs an axis", remedy="pass axis=")
    k = normalize_axis_index(name, 0 if axis is None else axis, x.aval.ndim)
    (y,) = _cumulate(emit, x, product, k, dtype)
    if not include:
        return (y,)
    return emit(pad_along_axis(x.aval.ndim, k, low=1), y, Lit.of(unit, y.aval.with_shape(())))
