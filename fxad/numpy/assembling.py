"""NumPy's further functions that stack, split, repeat and rotate arrays, and products of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias, cast

import opt_einsum

from fxad import dtypes
from fxad.errors import ParameterError, ShapeError, shown
from fxad.ir import as_shape
from fxad.numpy.apply import as_array
from fxad.numpy.composites import jit_composite, promote_arguments
from fxad.numpy.creation import full, ones
from fxad.numpy.indexing import nonzero
from fxad.numpy.linalg.norms import cross as cross_of_three
from fxad.numpy.products import matmul
from fxad.numpy.shapes import (
    array_split,
    broadcast_to,
    concat,
    diag,
    flip,
    matrix_transpose,
    moveaxis,
    split,
    swapaxes,
)
from fxad.numpy.value_dependent import concrete_value
from fxad.operations.arguments import by_numpy, function, plain_ints, text, to_int, to_tuple
from fxad.operations.axes import AxisLike, normalize_axes, normalize_axis_index, normalize_axis_tuple
from fxad.tracing.array import Array, ArrayLike, aval_of

Blocks: TypeAlias = "ArrayLike | Sequence[Blocks]"
SplitPoints: TypeAlias = "int | Sequence[int]"


def atleast_3d(x: ArrayLike) -> Array:
    """Return x with at least three axes. The axis of a vector becomes the middle one; a matrix gets a last axis."""
    array = as_array("atleast_3d", x)
    if array.ndim > 2:
        return array
    return array.reshape(1, -1, 1) if array.ndim < 2 else array[:, :, None]


def dstack(tup: Sequence[ArrayLike], dtype: object = None) -> Array:
    """Concatenate arrays along the third axis, after vectors and matrices are extended to three axes."""
    arrays = [as_array("dstack", a, k) for k, a in enumerate(to_tuple("dstack", "arrays", tup))]
    return concat([atleast_3d(a) for a in arrays], 2, dtype)


def hsplit(ary: ArrayLike, indices_or_sections: SplitPoints) -> list[Array]:
    """Split `ary` along the second axis, or along the only axis of a vector."""
    return _split("hsplit", ary, indices_or_sections, 1 if aval_of(ary, "hsplit: argument 0").ndim > 1 else 0, 1)


def vsplit(ary: ArrayLike, indices_or_sections: SplitPoints) -> list[Array]:
    """Split `ary` along the first axis. It has at least two axes."""
    return _split("vsplit", ary, indices_or_sections, 0, 2)


def dsplit(ary: ArrayLike, indices_or_sections: SplitPoints) -> list[Array]:
    """Split `ary` along the third axis."""
    return _split("dsplit", ary, indices_or_sections, 2, 3)


def _split(name: str, x: ArrayLike, parts: SplitPoints, axis: int, ndim: int) -> list[Array]:
    array, parts = as_array(name, x), plain_ints(parts)
    if array.ndim < ndim:
        raise ShapeError(f"{name}: takes an array with at least {ndim} axes, got {array.aval}")
    return split(array, parts, axis) if isinstance(parts, int) else array_split(array, parts, axis)


def block(arrays: Blocks) -> Array:
    """Assemble an array from nested lists of arrays of equal depth. The innermost lists are concatenated along the last
    axis, the next along the axis before it, and so on."""
    depth = _depth(arrays)
    leaves = [as_array("block", a) for a in _flat(arrays)]
    ndim = max([depth, *[a.ndim for a in leaves]])
    return _blocks(arrays, depth, ndim)


def _depth(arrays: Blocks) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(a) for a in arrays}
    if len(depths) != 1:
        problem = (
            "an empty list" if not depths else f"lists nested {min(depths)} and {max(depths)} deep beside each other"
        )
        raise ParameterError(f"block: {problem}", remedy="nest all lists equally deep; none is empty")
    return 1 + depths.pop()


def _flat(arrays: Blocks) -> list[ArrayLike]:
    return [leaf for a in arrays for leaf in _flat(a)] if isinstance(arrays, list) else [cast("ArrayLike", arrays)]


def _blocks(arrays: Blocks, depth: int, ndim: int) -> Array:
    if not isinstance(arrays, list):
        array = as_array("block", cast("ArrayLike", arrays))
        return array.reshape((1,) * (ndim - array.ndim) + array.shape)
    return concat([_blocks(a, depth - 1, ndim) for a in arrays], ndim - depth)


# ------------------------------------------------------------------------------------------------- turned and moved


def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotate `m` by k right angles in the plane of two axes, from the first axis towards the second."""
    k = to_int("rot90", "k", k)
    array = as_array("rot90", m)
    plane = to_tuple("rot90", "axes", axes)
    if len(plane) != 2:
        raise ParameterError(f"rot90: axes {plane} must be two")
    a, b = normalize_axis_tuple("rot90", plane, array.ndim)
    k %= 4
    if k == 0:
        return array
    if k == 2:
        return flip(array, (a, b))
    return swapaxes(flip(array, b), a, b) if k == 1 else flip(swapaxes(array, a, b), b)


def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Move an axis before axis `start`. Prefer `moveaxis`."""
    start = to_int("rollaxis", "start", start)
    array = as_array("rollaxis", a)
    k = normalize_axis_index("rollaxis", axis, array.ndim)
    to = start + array.ndim if start < 0 else start
    if not 0 <= to <= array.ndim:
        raise ParameterError(f"rollaxis: start {start} is out of range for {array.aval}")
    return moveaxis(array, k, to - 1 if k < to else to)


def resize(a: ArrayLike, new_shape: int | Sequence[int]) -> Array:
    """Return the elements in another shape. They are repeated, or truncated, to fill it."""
    array = as_array("resize", a)
    shape = as_shape((new_shape,) if isinstance(new_shape, int) else new_shape)
    n, size = prod(shape), array.size
    if size == 0:
        return full(shape, 0, array.dtype)
    times = -(-n // size)
    flat = array.reshape(-1)
    return broadcast_to(flat, (times, size)).reshape(-1)[:n].reshape(shape)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: AxisLike = None) -> Array:
    """Return an array without its leading ("f" in `trim`) and trailing ("b") slices of zeros, along some axes; None is
    all of them.

    Rule:   the size depends on the values, so the function cannot be traced.
    """
    trim = text("trim_zeros", "trim", trim)
    array = as_array("trim_zeros", filt)
    if not array.ndim or not set(trim.lower()) <= {"f", "b"}:
        raise ParameterError(
            f"trim_zeros: takes an array with axes, 'f', 'b' or 'fb', got {array.aval} and {shown(trim)}"
        )
    places = concrete_value("trim_zeros", filt, "slice the array where you know it to be zero").nonzero()
    window = [slice(None)] * array.ndim
    for k in normalize_axes("trim_zeros", axis, array.ndim):
        first, last = (int(places[k].min()), int(places[k].max()) + 1) if places[k].size else (array.shape[k], 0)
        window[k] = slice(first if "f" in trim.lower() else 0, last if "b" in trim.lower() else array.shape[k])
    return array[tuple(window)]


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """Return a matrix with the elements of v on diagonal k, zeros elsewhere."""
    k = to_int("diagflat", "k", k)
    return diag(as_array("diagflat", v).reshape(-1), k)


def mask_indices(
    n: int, mask_func: Callable[[Array, int], Array], k: int = 0, *, size: int | None = None
) -> tuple[Array, ...]:
    """Return the indices of the nonzero elements of `mask_func(ones((n, n)), k)`, such as `triu`. `size` is that of
    `nonzero`."""
    k = to_int("mask_indices", "k", k)
    mask_func = function("mask_indices", "mask_func", mask_func)
    return nonzero(mask_func(ones((n, n), dtypes.int32), k), size=size)


# --------------------------------------------------------------------------------------------------------- products


def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Return the Kronecker product: each element of a is replaced by itself times b."""
    return jit_composite(_kron, *promote_arguments("kron", a, b))


def _kron(a: Array, b: Array) -> Array:
    n = max(a.ndim, b.ndim)
    a_shape, b_shape = [(1,) * (n - x.ndim) + x.shape for x in (a, b)]
    a = a.reshape([m for size in a_shape for m in (size, 1)])
    b = b.reshape([m for size in b_shape for m in (1, size)])
    return (a * b).reshape([p * q for p, q in zip(a_shape, b_shape, strict=True)])


def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Return the cross product of vectors of size 2 or 3. A missing third element is 0; for two vectors of size 2 the
    result is the third element alone. `axisa`, `axisb` and `axisc` are the axes of the vectors; `axis` sets all
    three."""
    one, two, out = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    x, y = as_array("cross", a), as_array("cross", b, 1)
    x = moveaxis(x, normalize_axis_index("cross", one, x.ndim), -1)
    y = moveaxis(y, normalize_axis_index("cross", two, y.ndim), -1)
    for k, v in enumerate((x, y)):
        if v.shape[-1] not in (2, 3):
            raise ShapeError(f"cross: vectors must have 2 or 3 elements, those of argument {k} have {v.shape[-1]}")
    if x.shape[-1] == y.shape[-1] == 2:
        return jit_composite(_flat_cross, x, y)
    x, y = [v if v.shape[-1] == 3 else concat([v, full((*v.shape[:-1], 1), 0, v.dtype)], -1) for v in (x, y)]
    return moveaxis(cross_of_three(x, y), -1, out)


def _flat_cross(x: Array, y: Array) -> Array:
    return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiply matrices by vectors, over the last axes; the other axes broadcast."""
    a, b = as_array("matvec", x1), as_array("matvec", x2, 1)
    if a.ndim < 2 or not b.ndim:
        raise ShapeError(f"matvec: takes matrices and vectors, got {a.aval} and {b.aval}")
    return matmul(a, b[..., None]).squeeze(-1)


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiply conjugated vectors by matrices, over the last axes; the other axes broadcast."""
    a, b = as_array("vecmat", x1), as_array("vecmat", x2, 1)
    if not a.ndim or b.ndim < 2:
        raise ShapeError(f"vecmat: takes vectors and matrices, got {a.aval} and {b.aval}")
    return matmul(matrix_transpose(b), a.conj()[..., None]).squeeze(-1)


def einsum_path(subscripts: str, *operands: ArrayLike, optimize: str | bool = "auto") -> tuple[list[object], str]:
    """Return the contraction order of `einsum`, in NumPy's form, and opt_einsum's report of its cost."""
    subscripts = text("einsum_path", "subscripts", subscripts)
    shapes = [aval_of(x, f"einsum_path: argument {k + 1}").shape for k, x in enumerate(operands)]
    how = "auto" if optimize is True else [tuple(range(len(shapes)))] if optimize is False else optimize
    path, account = by_numpy("einsum_path", opt_einsum.contract_path, subscripts, *shapes, shapes=True, optimize=how)
    return ["einsum_path", *path], str(account)


__all__ = [
    "atleast_3d", "block", "cross", "diagflat", "dsplit", "dstack", "einsum_path", "hsplit", "kron", "mask_indices",
    "matvec", "resize", "rollaxis", "rot90", "trim_zeros", "vecmat", "vsplit",
]  # fmt: skip
