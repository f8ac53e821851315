"""Reductions and cumulative operations in equations: normalized axes, NumPy's reduction dtype, then one primitive.

Integers narrower than 32 bits, and bools, are summed and multiplied in int32 (uint32 for unsigned ones), on every
platform; wider ones in their own dtype. Moments of integers are float32, the default dtype, computed in float64.
Moments of floats below 32 bits are computed in float32: a sum or a count may overflow where the moment does not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan, prod as product

from fxad import dtypes
from fxad.core.sizes import Size, maximum
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import Atom, Atoms, Emit, Lit, Primitive
from fxad.operations.arguments import flag
from fxad.operations.axes import Axes, normalize_axes, normalize_axis_index
from fxad.operations.promotion import convert, to_inexact_dtype
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.cumulative import CumProd, CumSum
from fxad.primitives.elementwise.arithmetic import DIV, MUL, SUB
from fxad.primitives.elementwise.complex_parts import CONJ, REAL
from fxad.primitives.elementwise.powers import SQRT, SQUARE
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Pad


def accumulation_dtype(dtype: DType) -> DType:
    """Return the dtype in which sums and products of a dtype are computed."""
    if dtype is dtypes.bool_ or (dtype in dtypes.SIGNED and dtype.itemsize < 4):
        return dtypes.int32
    return dtypes.uint32 if dtype in dtypes.UNSIGNED and dtype.itemsize < 4 else dtype


def reduce_axes(emit: Emit, x: Atom, prim: Callable[[tuple[int, ...]], Primitive], axes: tuple[int, ...]) -> Atom:
    """Return x reduced over the axes; x itself if there are none."""
    return emit.one(prim(axes), x) if axes else x


def restore_axes(op: str, emit: Emit, y: Atom, x: Atom, axes: tuple[int, ...], keepdims: bool) -> Atoms:
    """Return the result `y` of a reduction of `x`, with axes of size 1 in place of the reduced ones for `keepdims`."""
    if not flag(op, "keepdims", keepdims):
        return (y,)
    return (emit_reshape(emit, y, tuple([1 if a in axes else n for a, n in enumerate(x.aval.shape)])),)


# The signature every reduction below has: x, then axis, keepdims and the rest as static values.


def sum(emit: Emit, x: Atom, axis: Axes = None, keepdims: bool = False, dtype: DType | None = None) -> Atoms:
    """Sum over axes."""
    axes = normalize_axes("sum", axis, x.aval.ndim)
    total = reduce_axes(emit, convert(emit, x, dtype or accumulation_dtype(x.aval.dtype)), ReduceSum, axes)
    return restore_axes("sum", emit, total, x, axes, keepdims)


def prod(emit: Emit, x: Atom, axis: Axes, keepdims: bool, dtype: DType | None) -> Atoms:
    """Product over axes."""
    axes = normalize_axes("prod", axis, x.aval.ndim)
    total = reduce_axes(emit, convert(emit, x, dtype or accumulation_dtype(x.aval.dtype)), ReduceProd, axes)
    return restore_axes("prod", emit, total, x, axes, keepdims)


def _extremum(
    op: str, emit: Emit, x: Atom, prim: Callable[[tuple[int, ...]], Primitive], axis: Axes, keepdims: bool
) -> Atoms:
    axes = normalize_axes(op, axis, x.aval.ndim)
    for a in axes:
        if x.aval.shape[a] == 0:
            raise ShapeError(f"{op}: axis {a} of {x.aval} is empty and has no {op}")
    return restore_axes(op, emit, reduce_axes(emit, x, prim, axes), x, axes, keepdims)


def max(emit: Emit, x: Atom, axis: Axes, keepdims: bool) -> Atoms:
    """Greatest element over axes; nan if any element is nan."""
    return _extremum("max", emit, x, ReduceMax, axis, keepdims)


def min(emit: Emit, x: Atom, axis: Axes, keepdims: bool) -> Atoms:
    """Least element over axes; nan if any element is nan."""
    return _extremum("min", emit, x, ReduceMin, axis, keepdims)


def any(emit: Emit, x: Atom, axis: Axes, keepdims: bool) -> Atoms:
    """True if an element is not zero."""
    axes = normalize_axes("any", axis, x.aval.ndim)
    return restore_axes(
        "any", emit, reduce_axes(emit, convert(emit, x, dtypes.bool_), ReduceOr, axes), x, axes, keepdims
    )


def all(emit: Emit, x: Atom, axis: Axes, keepdims: bool) -> Atoms:
    """True if no element is zero."""
    axes = normalize_axes("all", axis, x.aval.ndim)
    return restore_axes(
        "all", emit, reduce_axes(emit, convert(emit, x, dtypes.bool_), ReduceAnd, axes), x, axes, keepdims
    )


def count_nonzero(emit: Emit, x: Atom, axis: Axes, keepdims: bool) -> Atoms:
    """The number of nonzero elements, as int32."""
    axes = normalize_axes("count_nonzero", axis, x.aval.ndim)
    ones = convert(emit, convert(emit, x, dtypes.bool_), dtypes.int32)
    return restore_axes("count_nonzero", emit, reduce_axes(emit, ones, ReduceSum, axes), x, axes, keepdims)


# -------------------------------------------------------------------------------------------------------- moments


def to_moment_dtype(emit: Emit, x: Atom, asked: DType | None) -> tuple[Atom, DType]:
    """Return x in the dtype in which its moments are computed, and the dtype of the moments."""
    if asked is None and x.aval.dtype not in dtypes.INEXACT:
        return convert(emit, x, dtypes.float64), dtypes.float32
    dtype = to_inexact_dtype(asked or x.aval.dtype)
    return convert(emit, x, dtypes.accumulated(dtype)), dtype


def mean(emit: Emit, x: Atom, axis: Axes, keepdims: bool, dtype: DType | None) -> Atoms:
    """Mean over axes."""
    axes = normalize_axes("mean", axis, x.aval.ndim)
    own, dtype = to_moment_dtype(emit, x, dtype)
    return restore_axes("mean", emit, convert(emit, _mean(emit, own, axes), dtype), x, axes, keepdims)


def _mean(emit: Emit, x: Atom, axes: tuple[int, ...], less: float = 0) -> Atom:
    """Sum over axes, divided by the number of elements minus `less`; nan if that is not positive."""
    total = reduce_axes(emit, x, ReduceSum, axes)
    count = product([x.aval.shape[a] for a in axes])
    if type(count) is Size:
        if float(less).is_integer():  # 0 / 0 is nan
            return emit.one(DIV, total, Lit.of(maximum(count - int(less), 0), total.aval))
        n = Lit.of(count, total.aval)
        return emit.one(DIV, total, emit.one(SUB, n, Lit.of(less, n.aval)))
    left = count - less
    return emit.one(DIV, total, Lit.of(left if left > 0 else nan, total.aval))


def var(emit: Emit, x: Atom, axis: Axes, keepdims: bool, dtype: DType | None, correction: float) -> Atoms:
    """Variance over axes: mean squared distance from the mean, divided by the count less `correction`."""
    axes = normalize_axes("var", axis, x.aval.ndim)
    own, dtype = to_moment_dtype(emit, x, dtype)
    y = _var(emit, own, axes, correction)
    return restore_axes("var", emit, convert(emit, y, dtypes.real_part(dtype)), x, axes, keepdims)


def std(emit: Emit, x: Atom, axis: Axes, keepdims: bool, dtype: DType | None, correction: float) -> Atoms:
    """Standard deviation over axes: the root of the variance."""
    axes = normalize_axes("std", axis, x.aval.ndim)
    own, dtype = to_moment_dtype(emit, x, dtype)
    y = emit.one(SQRT, _var(emit, own, axes, correction))
    return restore_axes("std", emit, convert(emit, y, dtypes.real_part(dtype)), x, axes, keepdims)


def _var(emit: Emit, x: Atom, axes: tuple[int, ...], correction: float) -> Atom:
    off = subtract_reduced(emit, x, _mean(emit, x, axes), axes)
    return _mean(emit, squared_magnitude(emit, off), axes, correction)


def subtract_reduced(emit: Emit, x: Atom, reduced: Atom, axes: tuple[int, ...]) -> Atom:
    """Return x minus a reduction of it over axes, which is repeated along them."""
    if axes:
        stay = tuple([a for a in range(x.aval.ndim) if a not in axes])
        reduced = emit_broadcast(emit, reduced, x.aval.shape, stay)
    return emit.one(SUB, x, reduced)


def squared_magnitude(emit: Emit, x: Atom) -> Atom:
    """Return |x|^2, which is real."""
    if x.aval.dtype in dtypes.COMPLEX:
        return emit.one(REAL, emit.one(MUL, x, emit.one(CONJ, x)))
    return emit.one(SQUARE, x)


# ----------------------------------------------------------------------------------------------- indices of extrema


def argmax(emit: Emit, x: Atom, axis: int | None, keepdims: bool) -> Atoms:
    """The index of the greatest element, as int32; of equal ones the first; in the flattened array for axis None."""
    return _arg_extremum("argmax", emit, x, ArgMax, axis, keepdims)


def argmin(emit: Emit, x: Atom, axis: int | None, keepdims: bool) -> Atoms:
    """The index of the least element, as int32; of equal ones the first; in the flattened array for axis None."""
    return _arg_extremum("argmin", emit, x, ArgMin, axis, keepdims)


def _arg_extremum(
    op: str, emit: Emit, x: Atom, prim: Callable[[int, DType], Primitive], axis: int | None, keepdims: bool
) -> Atoms:
    if x.aval.dtype in dtypes.COMPLEX:
        raise DTypeError(f"{op}: complex numbers have no order, got {x.aval}")
    if axis is None:
        axes = tuple(range(x.aval.ndim))
        flat = emit_reshape(emit, x, (x.aval.size,))
        k = 0
    else:
        k = normalize_axis_index(op, axis, x.aval.ndim)
        flat, axes = x, (k,)
    if flat.aval.shape[k] == 0:
        raise ShapeError(f"{op}: axis {k} of {x.aval} is empty")
    return restore_axes(op, emit, emit.one(prim(k, dtypes.int32), flat), x, axes, keepdims)


# ----------------------------------------------------------------------------------------------------- cumulative


def cumulate_flat(emit: Emit, x: Atom, product: bool, axis: int | None, dtype: DType | None) -> Atoms:
    """NumPy's rule: for axis None the array is flattened."""
    if axis is None:
        x, axis = emit_reshape(emit, x, (x.aval.size,)), 0
    return _cumulate(emit, x, product, axis, dtype)


def _cumulate(emit: Emit, x: Atom, product: bool, axis: int, dtype: DType | None) -> Atoms:
    k = normalize_axis_index("cumprod" if product else "cumsum", axis, x.aval.ndim)
    return emit((CumProd if product else CumSum)(k, False), convert(emit, x, dtype or accumulation_dtype(x.aval.dtype)))


def cumulate_array_api(
    emit: Emit, x: Atom, product: bool, axis: int | None, dtype: DType | None, include: bool
) -> Atoms:
    """The array API's rule: axis None is for 1-d arrays only; `include` prepends the identity element."""
    name, unit = ("cumulative_prod", 1) if product else ("cumulative_sum", 0)
    if axis is None and x.aval.ndim != 1:
        raise ShapeError(f"{name}: an array with {x.aval.ndim} axes needs an axis", remedy="pass axis=")
    k = normalize_axis_index(name, 0 if axis is None else axis, x.aval.ndim)
    (y,) = _cumulate(emit, x, product, k, dtype)
    if not include:
        return (y,)
    none = (0,) * x.aval.ndim
    return emit(Pad((*none[:k], 1, *none[k + 1 :]), none, none), y, Lit.of(unit, y.aval.with_shape(())))
