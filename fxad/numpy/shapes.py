"""Functions that change shapes and move elements, and functions that read by index arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import numpy as np

from fxad import dtypes, lax
from fxad.core.sizes.size import Size, maximum, minimum
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError, shown
from fxad.ir import as_shape
from fxad.lax.shapes import broadcast_shapes as broadcast_shapes
from fxad.numpy.apply import apply_op, apply_op_all, as_array, as_scalars, contains_array
from fxad.operations import arithmetic, contractions, elementwise, indexing, shapes
from fxad.operations.arguments import by_numpy, column_major, flag, no_out, one_or_more, to_int
from fxad.operations.at import default_fill
from fxad.operations.axes import AxisLike, hashable_axis, normalize_axis_index
from fxad.operations.methods import static_ints
from fxad.primitives.elementwise.logic import GE, LT
from fxad.primitives.index import INT32_MAX, index_dtype
from fxad.tracing.array import Array, ArrayLike, aval_of

Arrays = Sequence[ArrayLike]


def reshape(a: ArrayLike, shape: int | Sequence[int], order: str = "C", *, copy: bool | None = None) -> Array:
    """Return the elements in another shape, in row-major order, or column-major with `order="F"`. One size may be -1,
    which is inferred.

    Rule:   arrays are immutable, so `copy` has no visible effect.
    """
    copy = None if copy is None else flag("reshape", "copy", copy)
    sizes = static_ints("reshape", "shape", (shape,))
    if not column_major("reshape", order):
        return apply_op("reshape", shapes.reshape, (a,), sizes)
    return permute_dims(reshape(permute_dims(a), sizes[::-1]))


def ravel(a: ArrayLike, order: str = "C") -> Array:
    """Return all elements as a vector, in row-major order, or column-major with `order="F"`."""
    return apply_op("ravel", shapes.reshape, (permute_dims(a) if column_major("ravel", order) else a,), (-1,))


def permute_dims(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permute the axes; reverse them for None."""
    return apply_op(
        "permute_dims", shapes.transpose, (a,), None if axes is None else static_ints("permute_dims", "axes", (axes,))
    )


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Exchange the last two axes."""
    return apply_op("matrix_transpose", shapes.matrix_transpose, (x,))


def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Exchange two axes."""
    return apply_op("swapaxes", shapes.swapaxes, (a,), axis1, axis2)


def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Move axes to other positions; the others keep their order."""
    return apply_op("moveaxis", shapes.moveaxis, (a,), hashable_axis(source), hashable_axis(destination))


def squeeze(a: ArrayLike, axis: AxisLike = None) -> Array:
    """Remove axes of size 1: all of them for None."""
    return apply_op("squeeze", shapes.squeeze, (a,), hashable_axis(axis))


def expand_dims(a: ArrayLike, axis: int | Sequence[int]) -> Array:
    """Insert axes of size 1, at `axis` of the result."""
    return apply_op("expand_dims", shapes.expand_dims, (a,), hashable_axis(axis))


def broadcast_to(array: ArrayLike, shape: int | Sequence[int]) -> Array:
    """Return `array` broadcast to a shape."""
    return apply_op(
        "broadcast_to", shapes.broadcast_to, (array,), as_shape((shape,) if isinstance(shape, int) else shape)
    )


def broadcast_arrays(*arrays: ArrayLike) -> tuple[Array, ...]:
    """Return arrays broadcast to their common shape."""
    shape = broadcast_shapes(*[aval_of(a, f"broadcast_arrays: argument {k}").shape for k, a in enumerate(arrays)])
    return tuple([broadcast_to(a, shape) for a in arrays])


def flip(m: ArrayLike, axis: AxisLike = None) -> Array:
    """Reverse the order of the elements along axes."""
    return apply_op("flip", shapes.flip, (m,), hashable_axis(axis))


def fliplr(m: ArrayLike) -> Array:
    """Reverse the order of the columns."""
    return flip(m, 1)


def flipud(m: ArrayLike) -> Array:
    """Reverse the order of the rows."""
    return flip(m, 0)


def roll(a: ArrayLike, shift: ArrayLike | Sequence[ArrayLike], axis: AxisLike = None) -> Array:
    """Shift elements cyclically along axes; None flattens the array. Shifts and axes broadcast, the shifts of one axis
    add up, and shifts may be traced."""
    if not contains_array(shift):
        return apply_op("roll", shapes.roll, (a,), hashable_axis(cast("AxisLike", shift)), hashable_axis(axis))
    array = as_array("roll", a)
    if axis is None:
        return roll(array.ravel(), shift, 0).reshape(array.shape)
    shifts: tuple[ArrayLike, ...] = as_scalars(shift)
    for places, k in shapes.shifts_along_axes(shifts, cast("int | tuple[int, ...]", hashable_axis(axis))):
        array = _roll_traced(array, as_array("roll", places, 1), normalize_axis_index("roll", k, array.ndim))
    return array


def _as_wide(places: Array, n: int) -> Array:
    """Return places in an integer dtype that also holds n: int8 has no 200, and int32 no 2**31."""
    dtype = index_dtype((n,))
    narrow = places.dtype in dtypes.INTEGER and places.dtype.itemsize < dtype.itemsize
    return places.astype(dtype) if narrow else places


def _roll_traced(x: Array, shift: Array, axis: int) -> Array:
    """Return x, shifted by a number of places that the program computes: a window of x twice."""
    n = x.shape[axis]
    if shift.dtype is dtypes.bool_:
        shift = shift.astype(dtypes.int32)  # NumPy's True is 1
    if shift.dtype not in dtypes.INTEGER or shift.ndim:
        raise DTypeError(f"roll: a shift must be one integer, got {shift.aval}", remedy="shift.astype('int32')")
    wide = _as_wide(shift, 2 * n)
    places = apply_op("roll", arithmetic.remainder, (wide, maximum(n, 1)))
    return lax.dynamic_slice_in_dim(concat([x, x], axis), n - places, n, axis)


def atleast_1d(x: ArrayLike) -> Array:
    """Return x with at least one axis."""
    return _at_least("atleast_1d", x, 1)


def atleast_2d(x: ArrayLike) -> Array:
    """Return x with at least two axes; new axes are in front."""
    return _at_least("atleast_2d", x, 2)


def _at_least(name: str, x: ArrayLike, n: int) -> Array:
    missing = max(n - aval_of(x, f"{name}: argument 0").ndim, 0)
    return apply_op(name, shapes.expand_dims, (x,), tuple(range(missing)))


# ----------------------------------------------------------------------------------------------- together and apart


def concat(arrays: Arrays, axis: int | None = 0, dtype: object = None) -> Array:
    """Concatenate arrays along an axis; None flattens them. With a `dtype`, they are converted first."""
    return apply_op("concat", shapes.concatenate, _converted(_as_sequence("concat", arrays), dtype), axis)


def stack(arrays: Arrays, axis: int = 0, out: None = None, dtype: object = None) -> Array:
    """Stack arrays of one shape along a new axis. With a `dtype`, they are converted first. `out` must be None."""
    no_out("stack", out)
    return apply_op("stack", shapes.stack, _converted(_as_sequence("stack", arrays), dtype), axis)


def _converted(arrays: tuple[ArrayLike, ...], dtype: object) -> tuple[ArrayLike, ...]:
    if dtype is None:
        return arrays
    return tuple([as_array("concat", a).astype(dtypes.as_dtype(dtype)) for a in arrays])


def _as_sequence(name: str, arrays: object) -> tuple[ArrayLike, ...]:
    if isinstance(arrays, Array | np.ndarray) and arrays.ndim:
        return tuple([arrays[k] for k in range(arrays.shape[0])])
    if not isinstance(arrays, Sequence):
        raise ArgumentError(f"{name}: argument 0 must be a sequence of arrays, got {type(arrays).__qualname__}")
    # scalars among arrays would be literals of any shape; alone they are arrays without axes
    return tuple([as_array(name, a, k) for k, a in enumerate(arrays)])


def vstack(tup: Arrays, dtype: object = None) -> Array:
    """Concatenate arrays as rows."""
    return concat([atleast_2d(a) for a in _as_sequence("vstack", tup)], 0, dtype)


def hstack(tup: Arrays, dtype: object = None) -> Array:
    """Concatenate arrays as columns; vectors along their only axis."""
    flat = [atleast_1d(a) for a in _as_sequence("hstack", tup)]
    return concat(flat, 0 if flat and flat[0].ndim == 1 else 1, dtype)


def column_stack(tup: Arrays) -> Array:
    """Concatenate arrays as columns; a vector is one column."""
    columns = [as_array("column_stack", a, k) for k, a in enumerate(_as_sequence("column_stack", tup))]
    return concat([c.reshape(-1, 1) if c.ndim < 2 else c for c in columns], 1)


def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Array, ...]:
    """Return the slices of an array along an axis."""
    array = as_array("unstack", x)
    k = normalize_axis_index("unstack", axis, array.ndim)
    return tuple([array[(*[slice(None)] * k, i)] for i in range(array.shape[k])])


def split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Split `ary` along an axis into equal parts, or at positions."""
    shape = aval_of(ary, "split: argument 0").shape
    n = shape[normalize_axis_index("split", axis, len(shape))]
    positions = one_or_more("split", "indices_or_sections", indices_or_sections)
    if isinstance(positions, int) and (positions <= 0 or n % positions != 0):
        raise ShapeError(
            f"split: axis {axis} of size {n} does not divide into {positions} equal parts",
            remedy=f"name the size as a multiple, as in '{positions}*n'" if type(n) is Size else "use array_split",
        )
    return array_split(ary, positions, axis)


_MOST: Final = 1 << 16  # greatest number of parts: most of so many would be empty


def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Return `split`, except that the last parts may be smaller by one element."""
    shape = aval_of(ary, "array_split: argument 0").shape
    n = shape[normalize_axis_index("array_split", axis, len(shape))]
    positions = one_or_more("array_split", "indices_or_sections", indices_or_sections)
    if isinstance(positions, int):
        if positions <= 0:
            raise ParameterError(f"array_split: {positions} parts")
        if positions > _MOST and type(n) is int and positions > n:
            raise ParameterError(f"array_split: {positions} parts of an axis of size {n}", remedy="ask for fewer parts")
        size, more = divmod(n, positions)
        at = [k * size + minimum(k, more) for k in range(1, positions)]
    else:
        at = list(positions)
    return list(apply_op_all("split", shapes.split, (ary,), tuple(at), axis))


def tile(A: ArrayLike, reps: int | Sequence[int]) -> Array:
    """Repeat the whole array `reps` times along each axis."""
    return apply_op("tile", shapes.tile, (A,), static_ints("tile", "reps", (reps,)))


# -------------------------------------------------------------------------------------------------------- diagonals


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return the diagonal of two axes, as a last axis."""
    offset = to_int("diagonal", "offset", offset)
    return apply_op("diagonal", contractions.diagonal, (a,), offset, axis1, axis2)


def trace(
    a: ArrayLike, offset: int | Array = 0, axis1: int = 0, axis2: int = 1, dtype: object = None, out: None = None
) -> Array:
    """Return the sum of the diagonal of two axes. `offset` may be traced."""
    no_out("trace", out)
    return as_array("trace", a).trace(offset, axis1, axis2, dtype)


def diag(v: ArrayLike, k: int = 0) -> Array:
    """Return the diagonal of a matrix, or a matrix with a vector on its diagonal."""
    k = to_int("diag", "k", k)
    array = as_array("diag", v)
    if array.ndim == 2:
        return diagonal(array, k)
    if array.ndim != 1:
        raise ShapeError(f"diag: takes a vector or a matrix, got {array.aval}")
    return apply_op("diag", shapes.diagonal_matrix, (array,), k)


# ----------------------------------------------------------------------------------------------------------- places


def take(
    a: ArrayLike,
    indices: ArrayLike | Sequence[int],
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Return the elements at `indices` along an axis; None flattens the array. `unique_indices` and
    `indices_are_sorted` are promises that change nothing.

    `mode` says what an index out of range gives: "fill", the default, the `fill_value` (nan, or the least number of an
    integer dtype, the greatest of an unsigned one, True), "clip" the nearest element (the first one for a negative
    index), "wrap" the index modulo the size; "promise_in_bounds" says that there is none. With "fill", negative indices
    count from the end. Without a mode, indices that are known while the program is traced are checked.
    """
    no_out("take", out)
    flag("take", "unique_indices", unique_indices), flag("take", "indices_are_sorted", indices_are_sorted)
    array = as_array("take", a)
    # NumPy's int64 holds an int that is no i32
    plain = isinstance(indices, list | tuple) or (type(indices) is int and abs(indices) > INT32_MAX)
    places = by_numpy("take", np.asarray, indices) if plain else indices
    aval = aval_of(places, "take: argument 1")
    if aval.dtype not in dtypes.INTEGER and aval.size != 0:
        raise DTypeError(f"take: indices must be integers, got {aval}", remedy="index with x[mask] for a mask")
    # an empty list is float64 to NumPy
    at = cast("ArrayLike", places) if aval.size != 0 else np.zeros(aval.shape, np.int32)
    if axis is None:
        array, axis = array.ravel(), 0
    k = normalize_axis_index("take", axis, array.ndim)
    if mode is None and fill_value is None and not isinstance(at, Array):
        mode = "promise_in_bounds"  # indexing checks them
    return _taken("take", array, at, k, mode, fill_value, lambda x, i: x[(*[slice(None)] * k, i)], k)


def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
    *,
    wrap_negative_indices: bool = True,
) -> Array:
    """Return the elements at `indices` along an axis; the other axes are batch axes. None flattens both.

    Negative indices count from the end; with False for `wrap_negative_indices` they are out of range. `mode` says what
    an index out of range gives: as in `take`, and 0 with "one_hot".
    """
    if isinstance(mode, str) and mode == "one_hot" and fill_value is None:
        mode, fill_value = "fill", 0
    array, at = as_array("take_along_axis", arr), indices
    if axis is None:
        array, at, axis = array.ravel(), as_array("take_along_axis", at, 1).ravel(), 0
    k = normalize_axis_index("take_along_axis", axis, array.ndim)
    wraps = flag("take_along_axis", "wrap_negative_indices", wrap_negative_indices)
    n = array.shape[k]
    named = mode if isinstance(mode, str) else None
    if wraps == (named == "clip") and named != "wrap":
        places = _as_wide(as_array("take_along_axis", at, 1), n)
        if places.dtype in dtypes.INTEGER - dtypes.UNSIGNED:
            inside = apply_op("take_along_axis", arithmetic.binary, (places, 0), GE)
            other = places + n if wraps else -n - 1  # of this, `clip` makes the first element
            at = apply_op("take_along_axis", elementwise.where, (places, other, inside))
    return _taken("take_along_axis", array, at, k, mode, fill_value, partial(_along_axis, axis=k), None)


def _along_axis(x: Array, indices: ArrayLike, axis: int) -> Array:
    return apply_op("take_along_axis", indexing.take_along_axis, (x, indices), axis)


def _taken(
    name: str,
    x: Array,
    at: ArrayLike,
    axis: int,
    mode: str | None,
    fill_value: ArrayLike | None,
    pick: Callable[[Array, ArrayLike], Array],
    places_axis: int | None,
) -> Array:
    """Return the elements that `pick` gives for indices, by the rule of `mode` for indices out of range.

    `places_axis` is where the axes of the indices stand in the result; None: they have its shape.
    """
    mode = "fill" if mode is None else mode
    if not (isinstance(mode, str) and mode in ("clip", "wrap", "fill", "promise_in_bounds")):
        raise ParameterError(f"{name}: mode {shown(mode)}", remedy='use "fill", "clip", "wrap" or "promise_in_bounds"')
    if fill_value is not None and mode != "fill":
        raise ParameterError(f'{name}: fill_value goes with mode="fill", got mode {shown(mode)}', remedy='mode="fill"')
    if mode == "promise_in_bounds":
        return pick(x, at)
    n = x.shape[axis]
    places = _as_wide(as_array(name, at, 1), n)
    if mode == "clip":
        return pick(x, apply_op(name, elementwise.clip, (places, 0, n - 1)))
    if mode == "wrap":
        return pick(x, apply_op(name, arithmetic.remainder, (places, n)))
    inside = apply_op(name, arithmetic.binary, (places, n), LT)
    if places.dtype not in dtypes.UNSIGNED:
        inside = inside & apply_op(name, arithmetic.binary, (places, -n), GE)
    picked = pick(x, apply_op(name, elementwise.where, (places, 0, inside)))
    if places_axis is not None:
        inside = inside.reshape(*inside.shape, *[1] * (x.ndim - 1 - places_axis))
    fill = default_fill(x.dtype) if fill_value is None else as_array(name, fill_value).astype(x.dtype)
    return apply_op(name, elementwise.where, (picked, fill, inside))


def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """Return the n-th differences of adjacent elements along an axis, of `a` between `prepend` and
    `append`."""
    n = to_int("diff", "n", n)
    if n < 0:
        raise ParameterError(f"diff: order {n} is below 0")
    array = as_array("diff", a)
    k = normalize_axis_index("diff", axis, array.ndim)
    parts = [_one_past_end("diff", prepend, array, k), array, _one_past_end("diff", append, array, k)]
    if n != 0:
        array = concat([p for p in parts if p is not None], k)
    lead = [slice(None)] * k
    size = array.shape[k]
    for _ in range(min(n, size + 1) if type(size) is int else n):  # no element is left after so many
        after, before = array[(*lead, slice(1, None))], array[(*lead, slice(None, -1))]
        array = after != before if array.dtype is dtypes.bool_ else after - before
    return array


def _one_past_end(name: str, value: ArrayLike | None, x: Array, axis: int) -> Array | None:
    """Return a value to concatenate before or after x along an axis: a scalar is broadcast over the other axes."""
    if value is None:
        return None
    end = as_array(name, value)
    return end if end.ndim else broadcast_to(end, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))


# NumPy's other names.
concatenate = concat
transpose = permute_dims
