"""Functions that return indices, and functions that read and write by indices.

Arrays are immutable: functions that modify an array in NumPy (`place`, `put`, `put_along_axis`, `fill_diagonal`) return
a new array. Functions whose result has one element per True of a condition take a `size` in a traced function: missing
elements are filled, further ones are dropped.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.sizes.size import Size, maximum
from fxad.dtypes import bool_
from fxad.errors import ArgumentError, AxisError, DTypeError, ParameterError, ShapeError, SizeError, TracerError, shown
from fxad.ir import NDArray, as_shape
from fxad.lax import broadcasted_iota, full, stop_gradient
from fxad.numpy import binary, reductions, value_dependent
from fxad.numpy.apply import apply_op, apply_op_all, as_array, as_scalars, check_operand, contains_array
from fxad.numpy.creation import full_like
from fxad.numpy.cumulative import cumsum
from fxad.numpy.shapes import broadcast_to, concat, moveaxis, take
from fxad.numpy.sorting import argsort
from fxad.operations import index_arrays
from fxad.operations.arguments import by_numpy, column_major, flag, no_out, not_in_place, to_int, to_tuple
from fxad.operations.at import as_0d_scalar
from fxad.operations.axes import normalize_axis_index
from fxad.operations.promotion import Scalar, dtype_kind
from fxad.operations.updates import checked_mode
from fxad.primitives.index import index_dtype
from fxad.tracing.array import Array, ArrayLike, asarray, aval_of
from fxad.tracing.tracer import Tracer

ConstantIndex: TypeAlias = "int | slice | Sequence[int] | Sequence[bool] | NDArray | Array"

_SIZED: Final = "give `size`: how many elements the result has"


# ------------------------------------------------------------------------- indices of elements that satisfy a condition


def nonzero(
    a: ArrayLike, *, size: int | None = None, fill_value: int | Array | Sequence[int | Array] | None = None
) -> tuple[Array, ...]:
    """Return the indices of the nonzero elements in row-major order: one int32 array for each axis.

    `size` is the number of elements to return. Missing ones are `fill_value`: one value (0 for None) or one for each
    axis.
    """
    if size is None:
        return value_dependent.nonzero(a)
    array = as_array("nonzero", a)
    if not array.ndim:
        raise ShapeError("nonzero: takes an array with at least one axis", remedy="use x != 0")
    if fill_value is not None and contains_array(fill_value):
        return _filled_nonzero(array, as_shape((size,))[0], fill_value)
    fills = index_arrays.fills("nonzero", fill_value, array.ndim)
    return apply_op_all("nonzero", index_arrays.nonzero, (array,), as_shape((size,))[0], fills)


def _filled_nonzero(x: Array, size: int, fill_value: int | Array | Sequence[int | Array]) -> tuple[Array, ...]:
    """Return `nonzero` with fill values that the program computes."""
    fills = [as_array("nonzero", v, 2) for v in as_scalars(fill_value)]
    if len(fills) not in (1, x.ndim) or not all([v.ndim == 0 and v.dtype in dtypes.INTEGER for v in fills]):
        raise ParameterError(
            f"nonzero: fill_value {shown(fill_value)} for {x.ndim} axes",
            remedy="give one integer, or one for each axis",
        )
    is_element = broadcasted_iota("int32", (size,), 0) < reductions.count_nonzero(x)
    columns = nonzero(x, size=size)
    return tuple([
        binary.where(is_element, index, fills[k % len(fills)].astype(index.dtype)) for k, index in enumerate(columns)
    ])  # fmt: skip


def argwhere(
    a: ArrayLike, *, size: int | None = None, fill_value: int | Array | Sequence[int | Array] | None = None
) -> Array:
    """Return the indices of the nonzero elements: one row for each."""
    array = as_array("argwhere", a)
    if not array.ndim:
        count = int(bool(array)) if size is None else size
        return full((count, 0), 0, "int32")
    columns = nonzero(array, size=size, fill_value=fill_value)
    return concat([c[:, None] for c in columns], 1)


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: int | Array | None = None) -> Array:
    """Return the indices of the nonzero elements of the flattened array."""
    array = a if isinstance(a, np.ndarray) else as_array("flatnonzero", a)
    return nonzero(array.ravel(), size=size, fill_value=fill_value)[0]


@overload
def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Array: ...
@overload
def where(
    condition: ArrayLike, /, *, size: int | None = None, fill_value: int | Array | Sequence[int | Array] | None = None
) -> tuple[Array, ...]: ...
def where(
    condition: ArrayLike,
    x1: ArrayLike | None = None,
    x2: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: int | Array | Sequence[int | Array] | None = None,
) -> Array | tuple[Array, ...]:
    """Return x1 where the condition holds, else x2; all three broadcast. With the condition alone: `nonzero`."""
    if x1 is not None and x2 is not None:
        if size is not None or fill_value is not None:
            raise ArgumentError("where: size and fill_value are for the condition alone", remedy="leave them out")
        return binary.where(condition, x1, x2)
    if x1 is not None or x2 is not None:
        raise ArgumentError("where: takes the condition alone, or both x1 and x2", remedy="give both")
    return nonzero(condition, size=size, fill_value=fill_value)


def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: Scalar = 0) -> Array:
    """Return the elements of the flattened `arr` where the flattened condition holds."""
    flat = condition.ravel() if isinstance(condition, Array | np.ndarray) else condition
    return compress(flat, arr, size=size, fill_value=fill_value)


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Scalar = 0,
    out: None = None,
) -> Array:
    """Return the slices of `a` along an axis where a one-dimensional condition holds; of the flattened `a` for None."""
    no_out("compress", out)
    array, shape = as_array("compress", a, 1), aval_of(condition, "compress: argument 0").shape
    if len(shape) != 1:
        raise ShapeError(f"compress: the condition must have one axis, got shape {shape}", remedy="use extract")
    if axis is None:
        array, axis = array.ravel(), 0
    k = normalize_axis_index("compress", axis, array.ndim)
    n = array.shape[k]
    if shape[0] > n:
        raise ShapeError(f"compress: a condition of size {shape[0]} is longer than axis {k} of {array.aval}")
    if size is None:
        return take(array, np.flatnonzero(value_dependent.concrete_value("compress", condition, _SIZED)), axis=k)
    return take(array, flatnonzero(condition, size=size, fill_value=n), k, mode="fill", fill_value=fill_value)


# --------------------------------------------------------------------------------------------------------- index arrays


def unravel_index(indices: ArrayLike, shape: int | Sequence[int], order: str = "C") -> tuple[Array, ...]:
    """Return the index along each axis for indices into the flattened array.

    The array is flattened in row-major order, or column-major with `order="F"`.

    Rule:   negative indices count from the end; indices out of range are clamped.
    """
    sizes = as_shape((shape,) if isinstance(shape, int) else shape)
    if column_major("unravel_index", order):
        return apply_op_all("unravel_index", index_arrays.unravel_index, (indices,), sizes[::-1])[::-1]
    return apply_op_all("unravel_index", index_arrays.unravel_index, (indices,), sizes)


def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: Sequence[int],
    mode: str | None = None,
    order: str = "C",
    *,
    dtype: object = None,
) -> Array:
    """Return indices into the flattened array, from an index along each axis. Indices out of range are an error
    ("raise"), clamped ("clip") or wrapped ("wrap"). Without a mode, known indices are checked, and traced ones clamped.
    The array is flattened in row-major order, or column-major with `order="F"`. `dtype` is that of the result, by
    default int32, or int64 for more elements than it can count."""
    shape = as_shape(dims)
    arrays = to_tuple("ravel_multi_index", "multi_index", multi_index)
    if len(arrays) != len(shape):
        raise ParameterError(f"ravel_multi_index: {len(arrays)} index arrays for the shape {shape}")
    mode = index_arrays.resolved_mode("ravel_multi_index", arrays, shape, mode)
    if column_major("ravel_multi_index", order):
        arrays, shape = arrays[::-1], shape[::-1]
    places = apply_op("ravel_multi_index", index_arrays.ravel_multi_index, arrays, shape, mode)
    return places if dtype is None else places.astype(dtype)


def indices(dimensions: Sequence[int], dtype: object = "int32", sparse: bool = False) -> Array | tuple[Array, ...]:
    """Return the index arrays of a shape: stacked, or in shapes that broadcast together if `sparse`."""
    sparse = flag("indices", "sparse", sparse)
    shape = as_shape(dimensions)
    if sparse:
        shapes = [[n if k == a else 1 for k in range(len(shape))] for a, n in enumerate(shape)]
        return tuple([broadcasted_iota(dtype, s, a) for a, s in enumerate(shapes)])
    if not shape:
        return full((0,), 0, dtype)
    return concat([broadcasted_iota(dtype, (1, *shape), a + 1) for a in range(len(shape))])


def ix_(*args: ArrayLike | Sequence[int] | Sequence[bool]) -> tuple[Array, ...]:
    """Return vectors in shapes that broadcast together, so that indexing selects all combinations. A bool vector
    selects its True places."""
    out = []
    for k, a in enumerate(args):
        vector = np.asarray(a) if isinstance(a, list | tuple) else cast("ArrayLike", a)
        aval = aval_of(vector, f"ix_: argument {k}")
        if aval.ndim != 1:
            raise ShapeError(f"ix_: argument {k} must have one axis, got {aval}")
        array = nonzero(vector)[0] if aval.dtype == np.bool_ else as_array("ix_", vector, k)
        out.append(array[tuple([slice(None) if j == k else None for j in range(len(args))])])
    return tuple(out)


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Return the indices of the diagonal of an array with `ndim` axes of size n."""
    ndim = to_int("diag_indices", "ndim", ndim)
    if not 0 <= ndim <= 64:
        raise ParameterError(f"diag_indices: ndim is {ndim}", remedy="arrays have 0 to 64 axes")
    shape = as_shape((n,))
    return (broadcasted_iota(index_dtype(shape), shape, 0),) * ndim


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """Return the indices of the diagonal of `arr`, whose axes have equal sizes."""
    shape = _cube("diag_indices_from", arr)
    return diag_indices(shape[0], len(shape))


def _cube(name: str, x: ArrayLike) -> tuple[int, ...]:
    shape = aval_of(x, f"{name}: argument 0").shape
    if len(shape) < 2 or len({*shape}) != 1:
        raise ShapeError(f"{name}: takes two axes or more, of one size, got shape {shape}")
    return shape


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Return the indices of the elements on and below diagonal k of an n by m matrix."""
    rows, columns = np.tril_indices(*_matrix_sizes("tril_indices", n, k, m))
    return asarray(rows.astype(np.int32)), asarray(columns.astype(np.int32))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Return the indices of the elements on and above diagonal k of an n by m matrix."""
    rows, columns = np.triu_indices(*_matrix_sizes("triu_indices", n, k, m))
    return asarray(rows.astype(np.int32)), asarray(columns.astype(np.int32))


def _matrix_sizes(name: str, n: int, k: int, m: int | None) -> tuple[int, int, int]:
    rows = operator.index(to_int(name, "n", n))
    return rows, to_int(name, "k", k), rows if m is None else operator.index(to_int(name, "m", m))


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Return the indices of the elements on and below diagonal k of a matrix."""
    return tril_indices(*_matrix("tril_indices_from", arr, k))


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Return the indices of the elements on and above diagonal k of a matrix."""
    return triu_indices(*_matrix("triu_indices_from", arr, k))


def _matrix(name: str, x: ArrayLike, k: int) -> tuple[int, int, int]:
    aval = aval_of(x, f"{name}: argument 0")
    if aval.ndim != 2:
        raise ShapeError(f"{name}: takes a matrix, got {aval}")
    return aval.shape[0], k, aval.shape[1]


# -------------------------------------------------------------------------------------------------------------- choices


def choose(a: ArrayLike, choices: Sequence[ArrayLike] | Array, out: None = None, mode: str | None = None) -> Array:
    """Select for each element one of `choices` by the number in `a`. Numbers out of range are an error ("raise"),
    clamped ("clip") or wrapped ("wrap"). Without a mode, known numbers are checked, and traced ones clamped."""
    no_out("choose", out)
    numbers = as_array("choose", a)  # a number of Python would take the dtype of the choices
    options = to_tuple("choose", "choices", choices)
    return apply_op("choose", index_arrays.choose, (numbers, *options), index_arrays.resolved_choice(a, options, mode))


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    """Select for each element the choice of the first condition that holds; `default` if none holds."""
    conditions, choices = to_tuple("select", "condlist", condlist), to_tuple("select", "choicelist", choicelist)
    if len(conditions) != len(choices) or not conditions:
        raise ParameterError(f"select: {len(conditions)} conditions for {len(choices)} choices")
    out: ArrayLike = default
    for k in reversed(range(len(choices))):
        check_operand("select", f"condlist[{k}]", conditions[k])
        check_operand("select", f"choicelist[{k}]", choices[k], out)
        check_operand("select", "default", default, choices[k])
        out = binary.where(conditions[k], choices[k], out)
    return as_array("select", out)


def piecewise(
    x: ArrayLike,
    condlist: Sequence[ArrayLike] | ArrayLike,
    funclist: Sequence[Callable[..., ArrayLike] | Scalar],
    *args: object,
    **kw: object,
) -> Array:
    """Apply each function (or scalar) where its condition holds, and a further last one, or 0, elsewhere. The result
    has the dtype of x. If several conditions hold, the last one counts, as in NumPy.

    Cost:   every function is applied to all of x.
    Rule:   x has no derivative in a function where another one counts. What a function closes over has.
    """
    array = as_array("piecewise", x)
    condition_arrays = cast("Sequence[ArrayLike]", condlist if isinstance(condlist, list | tuple) else [condlist])
    conditions = [as_array("piecewise", c, 1) for c in condition_arrays]
    functions = list(to_tuple("piecewise", "funclist", funclist))
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ParameterError(f"piecewise: {len(functions)} functions for {len(conditions)} conditions")
    none_later: Array | None = None  # where no later condition holds
    pieces: list[tuple[Array | None, Callable[..., ArrayLike] | Scalar]] = []
    for k in reversed(range(len(conditions))):
        holds = conditions[k].astype(bool_)
        pieces.append((holds if none_later is None else holds & none_later, functions[k]))
        none_later = ~holds if none_later is None else ~holds & none_later
    if len(functions) > len(conditions):
        pieces.append((none_later, functions[-1]))
    out: Array = full_like(array, 0)
    for mask, fn in reversed(pieces):
        if mask is None:
            out = _piece(array, fn, args, kw)
        else:
            x_chosen = binary.where(mask, array, stop_gradient(array)) if callable(fn) else array
            out = binary.where(mask, _piece(x_chosen, fn, args, kw), out)
    return out


def _piece(x: Array, fn: Callable[..., ArrayLike] | Scalar, args: tuple[object, ...], kw: dict[str, object]) -> Array:
    value = fn(x, *args, **kw) if callable(fn) else fn
    return broadcast_to(as_array("piecewise", value).astype(x.dtype), x.shape)


# --------------------------------------------------------------------------------------------------------------- writes


def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = False) -> Array:
    """Return `a` with the values `v`, repeated as needed, at the indices `ind` of the flattened array; `a` if there are
    no values. `inplace` is False.

    Rule:   indices out of range are left out; with `mode` "clip" they are moved to the nearest element (a negative one
            to the first), with "wrap" taken modulo the size.
    """
    not_in_place("put", inplace)
    array, places = as_array("put", a), as_array("put", ind, 1).ravel()
    if mode is not None:
        if not isinstance(mode, str) or mode not in ("clip", "wrap"):
            remedy = "a traced program cannot raise: choose 'clip' or 'wrap'"
            raise ParameterError(f"put: mode {shown(mode)} is not one of clip, wrap", remedy=remedy)
        places = apply_op("put", index_arrays.ravel_multi_index, (places,), (array.size,), mode)
    flat_values = as_array("put", v, 2).ravel()
    if not flat_values.size:  # NumPy puts nothing then
        return array
    if flat_values.size != places.size:
        flat_values = take(flat_values, np.arange(places.size) % flat_values.size)
    return array.ravel().at[places].set(flat_values).reshape(array.shape)


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = False) -> Array:
    """Return `arr` with `vals`, in their order and repeated as needed, where `mask` is True. `inplace` is False.

    Type:   an array; a mask with as many elements; values, taken in the dtype of `arr` -> the shape and dtype of `arr`.
    Raises: ParameterError for a true `inplace`; ShapeError for a mask of another size, or no values.
    """
    not_in_place("place", inplace)
    array, is_replaced = as_array("place", arr), as_array("place", mask, 1).ravel().astype(bool_)
    values = as_array("place", vals, 2).ravel()
    if dtype_kind(values.dtype) > dtype_kind(array.dtype):
        raise DTypeError(
            f"place: a value of {values.dtype.name} does not go into {array.aval} without loss",
            remedy=f"convert the value with astype({array.dtype.name}), or the array",
        )
    if is_replaced.size != array.size:
        raise ShapeError(f"place: the mask has {is_replaced.size} elements, the array {array.size}")
    if array.size == 0:
        return array
    if not values.size:
        raise ShapeError("place: there are no values", remedy="give at least one")
    numbers = cumsum(is_replaced.astype(index_dtype((array.size,)))) - 1
    replacements = take(values.astype(array.dtype), numbers % values.size, mode="wrap")
    return where(is_replaced, replacements, array.ravel()).reshape(array.shape)


def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None = -1,
    inplace: bool = False,
    *,
    mode: str | None = None,
) -> Array:
    """Return `arr` with `values` at `indices` along an axis; the other axes are batch axes. None flattens `arr`.
    `inplace` is False. An index out of range is dropped, or treated as `mode` says: "clip", "drop" or
    "promise_in_bounds", as in `x.at`."""
    not_in_place("put_along_axis", inplace)
    if axis is None:
        array = as_array("put_along_axis", arr)
        return put_along_axis(array.ravel(), indices, values, 0, mode=mode).reshape(array.shape)
    values = asarray(values) if type(values) is Size else values
    scalar = as_0d_scalar(values, aval_of(arr, "put_along_axis: argument 0"))
    checked = checked_mode("put_along_axis", mode, "drop")
    return apply_op("put_along_axis", index_arrays.put_along_axis, (arr, indices, scalar), axis, checked)


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = False) -> Array:
    """Return `a` with its diagonal replaced by a value, or by the elements of an array, repeated as needed. With `wrap`
    the diagonal of a tall matrix starts again below its end. `inplace` is False."""
    not_in_place("fill_diagonal", inplace)
    wrap = flag("fill_diagonal", "wrap", wrap)
    array = as_array("fill_diagonal", a)
    shape = array.shape
    if len(shape) != 2:
        _cube("fill_diagonal", array)
    step = 1 + sum(np.cumprod((1, *shape[:0:-1]))[1:].tolist())
    end = array.size if wrap or len(shape) != 2 else min(array.size, shape[1] * shape[1])
    indices_of_diagonal = np.arange(0, operator.index(end), operator.index(step))
    values = as_array("fill_diagonal", val, 1)
    if values.ndim and values.size:
        values = take(values.ravel(), np.arange(indices_of_diagonal.size) % values.size)
    return array.ravel().at[indices_of_diagonal].set(values).reshape(shape)


def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Concatenate `arr` and `values` along an axis; None flattens both."""
    return concat([as_array("append", arr), as_array("append", values, 1)], axis)


def delete(
    arr: ArrayLike, obj: ConstantIndex, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Array:
    """Return `arr` without the slices that an int, a slice or an array of ints or bools selects along an axis; of the
    flattened `arr` for None.

    Rule:   one int may be traced. An array of ints may be traced with `assume_unique_indices`, the promise that no
            place occurs twice, because the size of the result depends on it. A place that is known only when the
            program runs and is out of range is moved to the nearest one.
    """
    unique = flag("delete", "assume_unique_indices", assume_unique_indices)
    array = as_array("delete", arr)
    if axis is None:
        array, axis = array.ravel(), 0
    k = normalize_axis_index("delete", axis, array.ndim)
    if isinstance(obj, Tracer) and (unique or obj.size == 1) and obj.dtype in dtypes.INTEGER:
        n, places = array.shape[k], _traced_places(obj, array.shape[k], 0)
        is_kept = full((n,), True).at[places].set(False)
        return take(array, nonzero(is_kept, size=maximum(n - places.size, 0))[0], axis=k, mode="promise_in_bounds")
    deleted_places = _concrete_indices("delete", obj, array.shape[k], 0)
    if deleted_places.size == 1:
        place = int(deleted_places.flat[0]) + array.shape[k] * (int(deleted_places.flat[0]) < 0)
        before, behind = [(*[slice(None)] * k, s) for s in (slice(None, place), slice(place + 1, None))]
        return concat([array[before], array[behind]], k)
    return take(array, np.delete(np.arange(array.shape[k]), deleted_places), axis=k)


def _traced_places(index: Array, n: int, more: int) -> Array:
    """Return indices that the program computes into an axis of size n, or up to `more` beyond it, as a vector. They are
    counted from the start, and those out of range are moved to the nearest one."""
    wide = index_dtype((2 * n + 1,))
    places = index.ravel().astype(wide) if index.dtype.itemsize < wide.itemsize else index.ravel()
    return binary.clip(binary.where(places < 0, places + n, places), 0, maximum(n - 1 + more, 0))


def _concrete_indices(name: str, obj: ConstantIndex, n: int, more: int) -> npt.NDArray[np.int64]:
    """Return concrete indices into an axis of size n, or up to `more` beyond it. Raises: TracerError, AxisError,
    DTypeError, SizeError."""
    if type(n) is Size:
        raise SizeError(
            f"{name}: the axis has {n} elements, and which of them remain where is found from the number",
            remedy="concatenate slices, as in concatenate([x[:i], x[i + 1 :]]), or specialize the program first",
        )
    if isinstance(obj, slice):
        return np.arange(n)[obj]
    if isinstance(obj, Tracer):
        raise TracerError(
            f"{name}: the shape of the result depends on {obj!r}, which has no value in a traced function",
            remedy="use where or .at[...], which keep the shape, or a value from outside"
            + ("; delete takes assume_unique_indices=True with an array of ints" if name == "delete" else ""),
        )
    index = by_numpy(name, np.asarray, obj)
    if index.dtype == np.bool_ and index.shape == (n,):
        return np.flatnonzero(index)
    if index.size and index.dtype.kind not in "iu":
        raise DTypeError(f"{name}: takes an int, a slice, an array of ints or {n} bools, got {shown(obj)}")
    out_of_range = index[(index < -n) | (index >= n + more)]
    if out_of_range.size:
        raise AxisError(f"{name}: index {out_of_range.flat[0]} is out of range for an axis of size {n}")
    return index.astype(np.int64)


def insert(arr: ArrayLike, obj: ConstantIndex, values: ArrayLike, axis: int | None = None) -> Array:
    """Return `arr` with `values` inserted before the slices that an int, a slice or an array of ints selects along an
    axis; None flattens `arr`.

    Rule:   ints may be traced. A place that is known only when the program runs and is out of range is moved to the
            nearest one.
    """
    array, slices = as_array("insert", arr), as_array("insert", values, 2)
    if axis is None:
        array, axis = array.ravel(), 0
    k = normalize_axis_index("insert", axis, array.ndim)
    n = array.shape[k]
    traced = isinstance(obj, Tracer) and obj.ndim < 2 and obj.dtype in dtypes.INTEGER
    positions = cast("Tracer", obj) if traced else _concrete_indices("insert", obj, n, 1)
    slices = slices.reshape((1,) * (array.ndim - slices.ndim) + slices.shape)
    if not positions.ndim:  # one place, as in x[:, 0] = values: the axes of the values go on behind it
        slices = moveaxis(slices, 0, k)
    count = slices.shape[k] if positions.size == 1 else positions.size
    values = broadcast_to(slices, (*array.shape[:k], count, *array.shape[k + 1 :]))
    if isinstance(positions, Array):
        # sorted by twice the place: the slices of `arr` are odd, those before them even
        places = broadcast_to(_traced_places(positions, n, 1), (count,))
        by_place = argsort(concat([broadcasted_iota(places.dtype, (n,), 0) * 2 + 1, places * 2]), stable=True)
        return take(concat([array, values.astype(array.dtype)], k), by_place, axis=k, mode="promise_in_bounds")
    if not positions.ndim:
        place = int(positions) + n * (int(positions) < 0)
        before, behind = [(*[slice(None)] * k, s) for s in (slice(None, place), slice(place, None))]
        return concat([array[before], values.astype(array.dtype), array[behind]], k)
    order: NDArray = by_numpy("insert", np.insert, np.arange(n), positions, np.arange(n, n + count))
    return take(concat([array, values.astype(array.dtype)], k), order, axis=k, mode="promise_in_bounds")
