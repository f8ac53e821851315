"""Element indices as values: nonzero, ravelled and unravelled indices, and selection and writes by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import AxisError, DTypeError, ParameterError, ShapeError, TracerError, shown
from fxad.ir import Atom, Atoms, Aval, Emit, Lit, Shape
from fxad.operations.arguments import one_or_more
from fxad.operations.arithmetic import remainder
from fxad.operations.axes import normalize_axis_index
from fxad.operations.elementwise import is_nonzero
from fxad.operations.promotion import broadcast, common_shape, convert, promote_all
from fxad.operations.updates import fit_update
from fxad.primitives.axes import replace_entry
from fxad.primitives.cumulative import CumSum
from fxad.primitives.dimension_numbers import GatherScatterMode
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, REM, SUB
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import SELECT_N, emit_where
from fxad.primitives.gather_scatter import Scatter, scatter_along_axis
from fxad.primitives.index import IndexVectors, index_dtype, normalize_index
from fxad.primitives.shape import Iota, emit_reshape


def _element_count(shape: Shape) -> int:
    return Aval(shape, dtypes.bool_).size


def nonzero(emit: Emit, x: Atom, size: int, fills: tuple[int, ...]) -> Atoms:
    """Return the first `size` indices of nonzero elements, one array per axis; padded with `fills`."""
    shape, n = x.aval.shape, x.aval.size
    flat = first_nonzero(emit, x, size)
    missing = emit.one(EQ, flat, Lit.of(n, flat.aval))
    return tuple(
        [
            emit_where(emit, missing, Lit.of(fill, flat.aval), convert(emit, axis, flat.aval.dtype))
            for axis, fill in zip(unravel_index(emit, flat, shape), fills, strict=True)
        ]
    )


def nonzero_along(emit: Emit, x: Atom, axis: int, size: int, fills: tuple[int, ...]) -> Atoms:
    """Return the result of `nonzero` for one axis."""
    return (nonzero(emit, x, size, fills)[axis],)


def fills(op: str, fill_value: object, ndim: int) -> tuple[int, ...]:
    """Return the index that stands for a missing element, for each axis. Raises: ArgumentError, ShapeError."""
    values = one_or_more(op, "fill_value", 0 if fill_value is None else cast("int | Sequence[int]", fill_value))
    if isinstance(values, int):
        values = (values,)
    out = values * ndim if len(values) == 1 else values
    if len(out) != ndim:
        raise ShapeError(
            f"{op}: fill_value has {len(out)} numbers for {ndim} axes", remedy="give one, or one for each axis"
        )
    return out


def first_nonzero(emit: Emit, x: Atom, size: int) -> Atom:
    """Return the first `size` flat indices of nonzero elements; padded with the size of x.

    Cost: one cumulative sum and one scatter over all elements.
    """
    n = x.aval.size
    dtype = index_dtype((n + 1, size))
    (mask,) = is_nonzero(emit, x)
    mask = emit_reshape(emit, mask, (n,))
    missing = Lit.of(n, Aval((size,), dtype))
    if n == 0 or size == 0:
        return missing
    rank = emit.one(CumSum(0, False), convert(emit, mask, dtype))
    places = emit_where(emit, mask, emit.one(SUB, rank, Lit.of(1, rank.aval)), Lit.of(size, rank.aval))
    scatter = scatter_along_axis(Scatter, 1, 0, "drop")
    return emit.one(scatter, missing, emit_reshape(emit, places, (n, 1)), emit.one(Iota((n,), dtype, 0)))


def unravel_index(emit: Emit, x: Atom, shape: Shape) -> Atoms:
    """Return the index along each axis of `shape` for flat indices, which are clamped to the range."""
    if x.aval.dtype not in dtypes.INTEGER:
        raise DTypeError(f"unravel_index: takes integers, got {x.aval}")
    n = _element_count(shape)
    flat_index = normalize_index(emit, x, n, index_dtype((n,)))
    least, most = Lit.of(0, flat_index.aval), Lit.of(max(n - 1, 0), flat_index.aval)
    flat_index = emit.one(MIN, emit.one(MAX, flat_index, least), most)
    out: list[Atom] = []
    for m in reversed(shape):
        by = Lit.of(max(m, 1), flat_index.aval)
        out.append(emit.one(REM, flat_index, by))
        flat_index = emit.one(DIV, flat_index, by)
    return tuple(reversed(out))


def resolved_mode(op: str, places: Sequence[object], sizes: Sequence[int], mode: str | None) -> str:
    """Return "clip" or "wrap" for the mode of indices along axes of these sizes.

    "raise" checks the indices. Without a mode, those whose values are known are checked, and traced ones are clamped.

    Raises: AxisError for an index out of range; ParameterError for another mode, and for "raise" with a traced index.
    """
    if mode is not None and not (isinstance(mode, str) and mode in ("raise", "clip", "wrap")):
        raise ParameterError(f"{op}: mode {shown(mode)} is not one of raise, clip, wrap", remedy="choose one of them")
    if mode in ("clip", "wrap"):
        return mode
    for k, (place, n) in enumerate(zip(places, sizes, strict=True)):
        try:
            values = np.asarray(place)
        except TracerError:
            if mode is None:
                continue
            raise ParameterError(
                f"{op}: mode 'raise' checks indices, and index array {k} is traced",
                remedy="a traced program cannot raise: choose 'clip' or 'wrap'",
            ) from None
        if values.dtype.kind not in "iu":  # the operation refuses it
            continue
        outside = values[(values < 0) | (values >= n)]
        if outside.size:
            raise AxisError(
                f"{op}: index {outside.flat[0]} of index array {k} is out of range for size {n}",
                remedy="choose mode='clip' or 'wrap'",
            )
    return "clip"


def ravel_multi_index(emit: Emit, *args: *tuple[*tuple[Atom, ...], Shape, str]) -> Atoms:
    """Return the flat index for indices along each axis; the last two arguments are the shape and the mode."""
    *places, shape, mode = args
    for k, p in enumerate(places):
        if p.aval.dtype not in dtypes.INTEGER:
            raise DTypeError(f"ravel_multi_index: array {k} must be integers, got {p.aval}")
    dtype, out = index_dtype((_element_count(shape),)), None
    promoted = promote_all("ravel_multi_index", emit, tuple(places)) if places else ()
    for p, n in zip(promoted, shape, strict=True):
        index = _apply_index_mode(emit, p, n, mode, dtype)
        out = index if out is None else emit.one(ADD, emit.one(MUL, out, Lit.of(n, out.aval)), index)
    return (out,) if out is not None else (Lit.of(0, Aval((), dtype)),)


def _apply_index_mode(emit: Emit, index: Atom, n: int, mode: str, dtype: DType) -> Atom:
    """Return indices into an axis of size n, clamped ("clip") or taken modulo n ("wrap"), in `dtype`."""
    if index.aval.dtype.itemsize < dtype.itemsize:
        index = convert(emit, index, dtype)  # int8 has no 200
    if mode == "wrap":
        (index,) = remainder(emit, index, Lit.of(n, index.aval))
        return convert(emit, index, dtype)
    index = emit.one(MAX, index, Lit.of(0, index.aval))
    return convert(emit, emit.one(MIN, index, Lit.of(max(n - 1, 0), index.aval)), dtype)


def resolved_choice(which: object, choices: Sequence[object], mode: str | None) -> str:
    """Return the mode of `choose`. Raises: as `resolved_mode`; ParameterError without a choice."""
    if not choices:
        raise ParameterError("choose: there is no choice", remedy="give at least one array")
    return resolved_mode("choose", (which,), (len(choices),), mode)


def choose(emit: Emit, index_of_case: Atom, *args: *tuple[*tuple[Atom, ...], str]) -> Atoms:
    """Select, element by element, one of several cases. The last argument is the mode for numbers out of range."""
    *choices, mode = args
    cases = promote_all("choose", emit, tuple(choices))
    if index_of_case.aval.dtype not in dtypes.INTEGER | {dtypes.bool_}:
        raise DTypeError(f"choose: the selector must be integers, got {index_of_case.aval}")
    shape = common_shape("choose", index_of_case.aval.shape, cases[0].aval.shape)
    index = convert(emit, index_of_case, dtypes.int32) if index_of_case.aval.dtype == dtypes.bool_ else index_of_case
    index = _apply_index_mode(emit, index, len(cases), mode, dtypes.int32)
    return emit(SELECT_N, broadcast(emit, index, shape), *[broadcast(emit, c, shape) for c in cases])


def put_along_axis(emit: Emit, x: Atom, indices: Atom, values: Atom, axis: int, mode: GatherScatterMode) -> Atoms:
    """Return x with `values` at `indices` along an axis; the other axes are batch axes."""
    k = normalize_axis_index("put_along_axis", axis, x.aval.ndim)
    if indices.aval.dtype not in dtypes.INTEGER or indices.aval.ndim != x.aval.ndim:
        raise DTypeError(f"put_along_axis: indices must be integers with {x.aval.ndim} axes, got {indices.aval}")
    shape = replace_entry(x.aval.shape, k, indices.aval.shape[k])
    if common_shape("put_along_axis", indices.aval.shape, shape) != shape:
        raise ShapeError(f"put_along_axis: indices {indices.aval} do not fit {x.aval} along axis {k}")
    indices, value = broadcast(emit, indices, shape), fit_update("put_along_axis", emit, values, x.aval, shape)
    if 0 in shape:
        return (x,)
    scatter = scatter_along_axis(Scatter, len(shape), k, mode)
    return emit(scatter, x, emit.one(IndexVectors((x.aval.shape[k],)), indices), value)
