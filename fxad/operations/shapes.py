"""Shape functions in equations: normalized axes and shapes, then as few primitives as possible.

A literal takes any shape, so these functions emit no equation for a literal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Final, TypeVar

from fxad import dtypes
from fxad.core.sizes.size import assumption_of_equality, maximum, minimum
from fxad.dtypes import DType
from fxad.errors import ArgumentError, ParameterError, ShapeError
from fxad.ir import Atom, Atoms, Aval, Emit, Lit, Primitive, Shape, Var
from fxad.operations.arguments import to_int
from fxad.operations.axes import AxisLike, normalize_axes, normalize_axis_index, normalize_axis_tuple
from fxad.operations.promotion import broadcast, convert, promote_dtypes
from fxad.primitives.axes import other_axes, replace_entry
from fxad.primitives.elementwise.arithmetic import ADD, MAX, MIN
from fxad.primitives.elementwise.complex_parts import COMPLEX, IMAG, REAL
from fxad.primitives.elementwise.convert import BitcastConvertType
from fxad.primitives.elementwise.logic import EQ, GE, NE
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.index import index_dtype
from fxad.primitives.shape import ExpandDims, Iota, Reshape, Rev, Squeeze, Transpose, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Concatenate, Pad, emit_slice

T = TypeVar("T")
_FAR: Final = 2**62  # the number of a diagonal outside of every array


def emit_rearrange(emit: Emit, prim: Primitive, x: Atom) -> Atom:
    """Apply `prim`, which only moves elements; a literal becomes the literal of the new shape."""
    if isinstance(prim, Reshape):
        return emit_reshape(emit, x, prim.shape)
    if isinstance(x, Lit):
        (aval,) = prim.abstract_eval(x.aval)
        return x.with_shape(aval.shape)
    return emit.one(prim, x)


# ------------------------------------------------------------------------------------------------ shapes and axes


def reshape(emit: Emit, x: Atom, shape: Shape) -> Atoms:
    """Return x in row-major order in another shape; one size may be -1, which is inferred."""
    return (emit_reshape(emit, x, infer_shape("reshape", shape, x.aval)),)


def infer_shape(op: str, shape: Shape, x: Aval) -> Shape:
    """Return `shape` with -1 filled in, for the elements of x. Raises: ShapeError when they do not fit."""
    product = prod([n for n in shape if n != -1])
    n_unknown = shape.count(-1)
    if n_unknown > 1 or any([n < -1 for n in shape]):
        raise ShapeError(
            f"{op}: shape {shape} must have sizes >= 0 and at most one -1",
            remedy="-1 stands for the size that is left; it can be found for one axis only",
        )
    if n_unknown and product != 0 and x.size % product == 0:
        return tuple([x.size // product if n == -1 else n for n in shape])
    if n_unknown or product != x.size:
        assumption = "" if n_unknown else assumption_of_equality(product, x.size)
        raise ShapeError(
            f"{op}: {x} has {x.size} elements, which do not fill shape {shape}",
            remedy=f"name the size as a multiple, as in '2*n'{assumption}"
            if x.symbolic
            else "the sizes must have the same product; -1 stands for the size that is left",
        )
    return shape


def transpose(emit: Emit, x: Atom, axes: tuple[int, ...] | None) -> Atoms:
    """Return the axes in another order; reversed for None."""
    if axes is None:
        perm = tuple(reversed(range(x.aval.ndim)))
    else:
        perm = normalize_axis_tuple("transpose", axes, x.aval.ndim)
        if len(perm) != x.aval.ndim:
            raise ShapeError(f"transpose: axes {axes} has {len(perm)} entries for the {x.aval.ndim} axes of {x.aval}")
    return (emit_transpose(emit, x, perm),)


def emit_transpose(emit: Emit, x: Atom, perm: tuple[int, ...]) -> Atom:
    """Permute axes: axis k of the result is axis `perm[k]` of x; no equation for the identity."""
    return x if perm == tuple(range(len(perm))) else emit_rearrange(emit, Transpose(perm), x)


def matrix_transpose(emit: Emit, x: Atom) -> Atoms:
    """Return the last two axes exchanged."""
    if x.aval.ndim < 2:
        raise ShapeError(f"matrix_transpose: takes an array with at least two axes, got {x.aval}")
    return swapaxes(emit, x, -1, -2)


def swapaxes(emit: Emit, x: Atom, a: int, b: int) -> Atoms:
    """Return two axes exchanged."""
    perm = list(range(x.aval.ndim))
    i, j = normalize_axis_index("swapaxes", a, len(perm)), normalize_axis_index("swapaxes", b, len(perm))
    perm[i], perm[j] = j, i
    return (emit_transpose(emit, x, tuple(perm)),)


def moveaxis(emit: Emit, x: Atom, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Atoms:
    """Move axes to other places; the others keep their order."""
    ndim = x.aval.ndim
    src, dst = normalize_axis_tuple("moveaxis", source, ndim), normalize_axis_tuple("moveaxis", destination, ndim)
    if len(src) != len(dst):
        raise ShapeError(f"moveaxis: source {source} and destination {destination} differ in length")
    perm = [a for a in range(ndim) if a not in src]
    for to, a in sorted(zip(dst, src, strict=True)):
        perm.insert(to, a)
    return (emit_transpose(emit, x, tuple(perm)),)


def is_one(n: int) -> bool:
    """Return True for the size 1. Raises: UnknownSizeError for a symbolic size that may be 1."""
    return n == 1 if type(n) is int else not (n > 1 or n < 1)


def squeeze(emit: Emit, x: Atom, axis: AxisLike) -> Atoms:
    """Without the axes of size 1: all of them for None. Raises: ShapeError for an axis of another size."""
    shape = x.aval.shape
    axes = (
        tuple([a for a, n in enumerate(shape) if is_one(n)])
        if axis is None
        else normalize_axes("squeeze", axis, len(shape))
    )
    return (emit_rearrange(emit, Squeeze(axes), x) if axes else x,)


def expand_dims(emit: Emit, x: Atom, axis: int | tuple[int, ...]) -> Atoms:
    """Return x with new axes of size 1, at `axis` of the result."""
    count = len(axis) if isinstance(axis, tuple) else 1
    axes = normalize_axes("expand_dims", axis, x.aval.ndim + count)
    return (emit_rearrange(emit, ExpandDims(axes), x) if axes else x,)


def broadcast_to(emit: Emit, x: Atom, shape: Shape) -> Atoms:
    """Return x broadcast to a shape."""
    x_shape = x.aval.shape
    fits = len(x_shape) <= len(shape) and all(
        [n in (1, m) for n, m in zip(x_shape, shape[len(shape) - len(x_shape) :], strict=True)]
    )
    if not fits:
        raise ShapeError(
            f"broadcast_to: {x.aval} does not broadcast to {shape}",
            remedy="sizes must be equal, or 1 in the array, counted from the last axis",
        )
    return (broadcast(emit, x, shape),)


def flip(emit: Emit, x: Atom, axis: AxisLike) -> Atoms:
    """Return the elements in reverse order along axes."""
    axes = tuple([k for k in normalize_axes("flip", axis, x.aval.ndim) if x.aval.shape[k] != 1])
    return (emit_rearrange(emit, Rev(axes), x) if axes else x,)


def roll(emit: Emit, x: Atom, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None) -> Atoms:
    """Shift elements cyclically along axes; flattened for axis None. Shifts and axes broadcast, and the shifts of one
    axis add up."""
    if axis is None:
        (flat,) = reshape(emit, x, (-1,))
        (rolled,) = roll(emit, flat, shift, 0)
        return reshape(emit, rolled, x.aval.shape)
    for s, a in shifts_along_axes(shift if isinstance(shift, tuple) else (shift,), axis):
        x = _roll_axis(emit, x, s, normalize_axis_index("roll", a, x.aval.ndim))
    return (x,)


def shifts_along_axes(shifts: tuple[T, ...], axis: int | tuple[int, ...]) -> list[tuple[T, int]]:
    """Return the shifts of `roll`, each with its axis. Raises: ParameterError if there are more of one than of the
    other, unless there is only one."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        raise ParameterError(
            f"roll: {len(shifts)} shifts {shifts} for {len(axes)} axes {axes}",
            remedy="give one shift, one axis, or as many of both",
        )
    count = max(len(shifts), len(axes)) if shifts and axes else 0
    return [(shifts[k % len(shifts)], axes[k % len(axes)]) for k in range(count)]


def _roll_axis(emit: Emit, x: Atom, shift: int, axis: int) -> Atom:
    n = x.aval.shape[axis]
    cut = -to_int("roll", "shift", shift) % n if n != 0 else 0
    if cut == 0 or isinstance(x, Lit):
        return x
    return emit.one(Concatenate(axis), emit_slice(emit, x, axis, cut, n), emit_slice(emit, x, axis, 0, cut))


def slice_axis(emit: Emit, x: Atom, axis: int, start: int, limit: int) -> Atom:
    """Return `x[start:limit]` along an axis; no equation for the whole axis."""
    return x if (start, limit) == (0, x.aval.shape[axis]) else emit_slice(emit, x, axis, start, limit)


# ----------------------------------------------------------------------------------------- putting arrays together


def _promote_arrays(op: str, emit: Emit, xs: Sequence[Atom]) -> list[Atom]:
    if not xs:
        raise ArgumentError(f"{op}: takes at least one array, got none")
    dtype = xs[0].aval.dtype
    for x in xs[1:]:
        dtype = promote_dtypes(op, dtype, x.aval.dtype)
    return [convert(emit, x, dtype) for x in xs]


def concatenate(emit: Emit, *args: *tuple[*tuple[Atom, ...], int | None]) -> Atoms:
    """Join arrays along an axis, the last argument; flattened first for None."""
    *arrays, axis = args
    xs = _promote_arrays("concatenate", emit, arrays)
    if axis is None:
        xs, axis = [emit_reshape(emit, x, (x.aval.size,)) for x in xs], 0
    for k, x in enumerate(xs):
        if x.aval.ndim != xs[0].aval.ndim or not x.aval.ndim:
            raise ShapeError(
                f"concatenate: ranks must be equal and not 0: array 0 {xs[0].aval}, array {k} {x.aval}",
                remedy="give a list of arrays, with as many axes each; stack joins them along a new axis",
            )
    axis_index = normalize_axis_index("concatenate", axis, xs[0].aval.ndim)
    return (xs[0],) if len(xs) == 1 else emit(Concatenate(axis_index), *xs)


def stack(emit: Emit, *args: *tuple[*tuple[Atom, ...], int]) -> Atoms:
    """Return arrays of one shape along a new axis, which is the last argument."""
    *arrays, axis = args
    xs = _promote_arrays("stack", emit, arrays)
    for k, x in enumerate(xs):
        if x.aval.shape != xs[0].aval.shape:
            raise ShapeError(
                f"stack: shapes differ: array 0 {xs[0].aval}, array {k} {x.aval}",
                remedy="give arrays of one shape; concatenate joins arrays along an axis that they have",
            )
    axis_index = normalize_axis_index("stack", axis, xs[0].aval.ndim + 1)
    rows = [emit_rearrange(emit, ExpandDims((axis_index,)), x) for x in xs]
    return (rows[0],) if len(rows) == 1 else emit(Concatenate(axis_index), *rows)


def split(emit: Emit, x: Atom, at: tuple[int, ...], axis: int) -> Atoms:
    """Return the parts of x between the positions `at` along an axis."""
    k = normalize_axis_index("split", axis, x.aval.ndim)
    n = x.aval.shape[k]
    ends = [0, *[minimum(maximum(i + n if i < 0 else i, 0), n) for i in at], n]
    return tuple([slice_axis(emit, x, k, a, maximum(a, b)) for a, b in pairwise(ends)])


def repeat(emit: Emit, x: Atom, count: int, axis: int | None) -> Atoms:
    """Return each element `count` times in a row along an axis; flattened first for None."""
    if count < 0:
        raise ParameterError(f"repeat: {count} repetitions")
    if axis is None:
        x, axis = emit_reshape(emit, x, (x.aval.size,)), 0
    k = normalize_axis_index("repeat", axis, x.aval.ndim)
    shape = x.aval.shape
    wide = (*shape[: k + 1], count, *shape[k + 1 :])
    rows = emit_broadcast(emit, x, wide, other_axes((k + 1,), len(wide)))
    return (emit_reshape(emit, rows, replace_entry(shape, k, shape[k] * count)),)


def tile(emit: Emit, x: Atom, reps: tuple[int, ...]) -> Atoms:
    """Return the whole array `reps` times along each axis."""
    lead = max(len(reps) - x.aval.ndim, 0)
    counts = (1,) * (x.aval.ndim - len(reps)) + reps
    shape = (1,) * lead + x.aval.shape
    wide = tuple([m for pair in zip(counts, shape, strict=True) for m in pair])
    copies = emit_broadcast(emit, x, wide, tuple([2 * (a + lead) + 1 for a in range(x.aval.ndim)]))
    return (emit_reshape(emit, copies, tuple([c * n for c, n in zip(counts, shape, strict=True)])),)


def pad(emit: Emit, x: Atom, value: Atom, widths: tuple[tuple[int, int], ...]) -> Atoms:
    """Insert `value` before and after the elements of each axis."""
    if len(widths) != x.aval.ndim or any([n < 0 for w in widths for n in w]):
        raise ShapeError(f"pad: widths {widths} must be a pair of sizes >= 0 for each of the axes of {x.aval}")
    low, high = tuple([a for a, _ in widths]), tuple([b for _, b in widths])
    return emit_pad(emit, x, convert(emit, value, x.aval.dtype), Pad(low, high, (0,) * len(widths)))


def emit_pad(emit: Emit, x: Atom, value: Atom, prim: Pad) -> Atoms:
    """Return `prim` with a value that may be a literal of any shape."""
    return emit(prim, x, value.with_shape(()) if isinstance(value, Lit) else value)


# ------------------------------------------------------------------------------------------ diagonals and triangles


def diagonal_mask(emit: Emit, shape: Shape, a: int, b: int, offset: int | Atom) -> Atom:
    """Return a mask that is True where the index along axis `b` equals that along `a` plus `offset`."""
    rows, columns = _row_and_column(emit, shape, a, b, offset)
    return emit.one(EQ, rows, columns)


def _row_and_column(emit: Emit, shape: Shape, a: int, b: int, offset: int | Atom) -> tuple[Atom, Atom]:
    if type(offset) is int:  # not a symbolic size
        offset = max(min(offset, _FAR), -_FAR)
    known = 0 if isinstance(offset, Var | Lit) else offset
    dtype = index_dtype((shape[a] + abs(known), shape[b]))
    rows, columns = emit.one(Iota(shape, dtype, a)), emit.one(Iota(shape, dtype, b))
    if isinstance(offset, Var | Lit):
        return (emit.one(ADD, rows, broadcast(emit, _bounded_offset(emit, offset, dtype), shape)), columns)
    return (add_offset(emit, rows, offset), columns)


def _bounded_offset(emit: Emit, offset: Atom, dtype: DType) -> Atom:
    """Return the number of a diagonal that the program computes, in the dtype of positions. All diagonals far outside
    are alike."""
    like, far = offset.aval, _FAR if dtype is dtypes.int64 else 2**30
    if like.dtype.itemsize >= dtype.itemsize:
        offset = emit.one(MIN, offset, Lit.of(far, like))
        offset = offset if like.dtype in dtypes.UNSIGNED else emit.one(MAX, offset, Lit.of(-far, like))
    return convert(emit, offset, dtype)


def add_offset(emit: Emit, x: Atom, offset: int) -> Atom:
    """Return x plus a static offset; no equation for 0."""
    return emit.one(ADD, x, Lit.of(offset, x.aval)) if offset else x


def triangle(emit: Emit, x: Atom, *args: *tuple[*tuple[Atom, ...], int | None, bool]) -> Atoms:
    """Return x with zeros above diagonal `k` (`lower`), or below it. `k` None is the second argument, an atom."""
    *traced, k, lower = args
    if x.aval.ndim < 2:
        raise ShapeError(f"{'tril' if lower else 'triu'}: takes an array with at least two axes, got {x.aval}")
    offset = traced[0] if k is None else k
    rows, columns = _row_and_column(emit, x.aval.shape, x.aval.ndim - 2, x.aval.ndim - 1, offset)
    mask = emit.one(GE, rows, columns) if lower else emit.one(GE, columns, rows)
    return (emit_where(emit, mask, x, Lit.of(0, x.aval)),)


def eye(emit: Emit, *args: *tuple[*tuple[Atom, ...], int, int, int | None, DType]) -> Atoms:
    """Return ones on diagonal `k` of an n by m array of zeros. `k` None is the first argument, an atom."""
    *traced, n, m, k, dtype = args
    return (convert(emit, diagonal_mask(emit, (n, m), 0, 1, traced[0] if k is None else k), dtype),)


def diagonal_matrix(emit: Emit, x: Atom, k: int) -> Atoms:
    """Return a matrix with a vector on diagonal k, zeros elsewhere."""
    n = x.aval.size + abs(k)
    low, high = (max(-k, 0), max(k, 0))  # rows above and below the vector's
    rows = emit.one(Pad((low,), (high,), (0,)), x, Lit.zero(x.aval.with_shape(())))
    wide = emit_broadcast(emit, rows, (n, n), (0,))
    return (emit_where(emit, diagonal_mask(emit, (n, n), 0, 1, k), wide, Lit.of(0, wide.aval)),)


def view(emit: Emit, x: Atom, dtype: DType) -> Atoms:
    """Return the bits of x read as another dtype; the size of the last axis changes with the size of an element. A
    complex number is two real ones, and a bool a byte: every value but 0 is True."""
    old_size, new_size, shape = x.aval.dtype.itemsize, dtype.itemsize, x.aval.shape
    if x.aval.dtype == dtype:
        return (x,)
    if old_size != new_size and (not shape or shape[-1] * old_size % new_size != 0):
        raise ShapeError(
            f"view: {x.aval} has no last axis of whole elements of {dtypes.short(dtype)}",
            remedy="lax.bitcast_convert_type adds an axis",
        )
    n = shape[-1] * old_size // new_size if shape else 1
    if x.aval.dtype == dtypes.bool_:
        x = convert(emit, x, dtypes.uint8)
    elif x.aval.dtype in dtypes.COMPLEX:
        real_and_imag = [emit_reshape(emit, emit.one(part, x), (*shape, 1)) for part in (REAL, IMAG)]
        x = emit.one(Concatenate(len(shape)), *real_and_imag)
        x = emit_reshape(emit, x, (*shape[:-1], 2 * shape[-1])) if shape else x
    if dtype == dtypes.bool_:
        bits = _bitcast(emit, x, dtypes.uint8)
        out: Atom = emit.one(NE, bits, Lit.of(0, bits.aval))
    elif dtype in dtypes.COMPLEX:
        bits = _bitcast(emit, x, dtypes.real_part(dtype))
        pairs = emit_reshape(emit, bits, (*shape[:-1], n, 2))
        out = emit.one(COMPLEX, *[_element(emit, pairs, k) for k in range(2)])
    else:
        out = _bitcast(emit, x, dtype)
    return (emit_reshape(emit, out, (*shape[:-1], n) if shape else ()),)


def _element(emit: Emit, x: Atom, k: int) -> Atom:
    """Return x[..., k]."""
    return emit_reshape(emit, emit_slice(emit, x, x.aval.ndim - 1, k, k + 1), x.aval.shape[:-1])


def _bitcast(emit: Emit, x: Atom, dtype: DType) -> Atom:
    """Return the bits of real numbers as other real ones, which fill the last axis."""
    old_size, new_size, shape = x.aval.dtype.itemsize, dtype.itemsize, x.aval.shape
    if x.aval.dtype == dtype:
        return x
    if old_size == new_size:
        return emit.one(BitcastConvertType(dtype), x)
    n = shape[-1] * old_size // new_size if shape else old_size // new_size
    grouped = emit_reshape(emit, x, (*shape[:-1], n, new_size // old_size)) if old_size < new_size else x
    return emit_reshape(emit, emit.one(BitcastConvertType(dtype), grouped), (*shape[:-1], n))
