"""Sorting and searching in equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.errors import AxisError, ParameterError, ShapeError, shown
from fxad.ir import Atom, Atoms, Aval, Emit, Jaxpr, Lit
from fxad.operations.arguments import one_or_more
from fxad.operations.axes import normalize_axis_index
from fxad.operations.promotion import promote_dtypes
from fxad.operations.shapes import moveaxis, slice_axis
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise.arithmetic import ADD, MAX, SUB
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.logic import LE, LT, SHIFT_RIGHT_LOGICAL
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.gather_scatter import gather_along_axis, index_vectors
from fxad.primitives.index import index_dtype
from fxad.primitives.shape import Iota, ReduceSum, Rev, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Concatenate
from fxad.primitives.sort import Sort, order_preserving_bits
from fxad.primitives.top_k import TopK

METHODS: Final = ("scan", "scan_unrolled", "sort", "compare_all")


def _flatten_for_axis(op: str, emit: Emit, x: Atom, axis: int | None) -> tuple[Atom, int]:
    """Return the operand and the axis; for None the flattened operand."""
    if axis is None:
        return emit_reshape(emit, x, (x.aval.size,)), 0
    return x, normalize_axis_index(op, axis, x.aval.ndim)


def sort(emit: Emit, x: Atom, axis: int | None, descending: bool) -> Atoms:
    """Return the elements sorted; nans last, or first when descending."""
    x, k = _flatten_for_axis("sort", emit, x, axis)
    y = emit.one(Sort(k, 1), x)
    return emit(Rev((k,)), y) if descending else (y,)


def argsort(emit: Emit, x: Atom, axis: int | None, descending: bool) -> Atoms:
    """Return the indices that sort the elements; equal elements keep their order, also when descending."""
    x, k = _flatten_for_axis("argsort", emit, x, axis)
    places: Atom = emit.one(Iota(x.aval.shape, index_dtype(x.aval.shape), k))
    if not descending:
        return emit(Sort(k, 1), x, places)[1:]
    back = Rev((k,))
    return emit(back, emit(Sort(k, 1), emit.one(back, x), emit.one(back, places))[1])


def lexsort(emit: Emit, *args: *tuple[*tuple[Atom, ...], int]) -> Atoms:
    """Return the indices that sort by the last key, ties by the one before, and so on; the last argument is the
    axis."""
    *keys, axis = args
    for j, key in enumerate(keys):
        if key.aval.shape != keys[0].aval.shape or not key.aval.ndim:
            raise ShapeError(f"lexsort: keys must have one shape, with axes: key 0 {keys[0].aval}, key {j} {key.aval}")
    shape = keys[0].aval.shape
    k = normalize_axis_index("lexsort", axis, len(shape))
    places = emit.one(Iota(shape, index_dtype(shape), k))
    return emit(Sort(k, len(keys)), *keys[::-1], places)[-1:]


def top_k(emit: Emit, x: Atom, k: int, axis: int) -> Atoms:
    """Return the k greatest elements along an axis and their places."""
    axis_index = normalize_axis_index("top_k", axis, x.aval.ndim)
    (moved,) = moveaxis(emit, x, axis_index, -1)
    return tuple([moveaxis(emit, part, -1, axis_index)[0] for part in emit(TopK(k), moved)])


# -------------------------------------------------------------------------------------------------------- searching


def check_places(op: str, x: Aval, kth: int | Sequence[int], axis: int | None) -> None:
    """Check the places of a partition along an axis. Raises: AxisError, ArgumentError."""
    n = x.size if axis is None else x.shape[normalize_axis_index(op, axis, x.ndim)]
    places = one_or_more(op, "kth", kth)
    for k in (places,) if isinstance(places, int) else places:
        if not -n <= k < n:
            raise AxisError(f"{op}: place {k} is out of range for an axis of {n} elements")


def searchsorted(emit: Emit, a: Atom, v: Atom, side: str, method: str) -> Atoms:
    """Return for each v, the index at which its insertion keeps the sorted vector a sorted: before equal elements, or
    after them."""
    dtype = promote_dtypes("searchsorted", a.aval.dtype, v.aval.dtype)
    if a.aval.ndim != 1:
        raise ShapeError(f"searchsorted: the array that is searched must have one axis, got {a.aval}")
    if side not in ("left", "right"):
        raise ParameterError(f"searchsorted: side is {shown(side)}, not 'left' or 'right'")
    if method not in METHODS:
        raise ParameterError(f"searchsorted: method {shown(method)} is not one of {' '.join(METHODS)}")
    index = index_dtype(a.aval.shape)
    if a.aval.size == 0 or v.aval.size == 0:
        return (Lit.of(0, v.aval.with_dtype(index)),)
    if dtypes.uint64 in (a.aval.dtype, v.aval.dtype) and dtype not in dtypes.INTEGER and _both_integers(a, v):
        return (_search_across_signs(emit, a, v, side, method, index),)
    if dtype in dtypes.COMPLEX:  # a sort has their order
        return (_search_by_sort(emit, emit_convert(emit, a, dtype), emit_convert(emit, v, dtype), side, index),)
    # as unsigned integers, in which nan is an ordinary greatest element
    keys, sought = [order_preserving_bits(emit, emit_convert(emit, x, dtype), True) for x in (a, v)]
    return (_search(emit, keys, sought, side, method, index),)


def _both_integers(a: Atom, v: Atom) -> bool:
    return a.aval.dtype in dtypes.INTEGER and v.aval.dtype in dtypes.INTEGER


def _search_across_signs(emit: Emit, a: Atom, v: Atom, side: str, method: str, index: DType) -> Atom:
    """Search signed integers among those of uint64, or the reverse. No dtype holds both: negative numbers are replaced
    by 0, whose place is known: before all of uint64, and after all that are negative."""
    replaced = [emit.one(MAX, x, Lit.of(0, x.aval)) if x.aval.dtype in dtypes.SIGNED else x for x in (a, v)]
    keys, sought = [emit_convert(emit, x, dtypes.uint64) for x in replaced]
    place = _search(emit, keys, sought, side, method, index)
    if v.aval.dtype in dtypes.SIGNED:
        return emit_where(emit, emit.one(LT, v, Lit.of(0, v.aval)), Lit.of(0, place.aval), place)
    below = emit.one(ReduceSum((0,)), emit_convert(emit, emit.one(LT, a, Lit.of(0, a.aval)), index))
    return emit.one(MAX, place, emit_broadcast(emit, below, place.aval.shape, ()))


def _search(emit: Emit, keys: Atom, wanted: Atom, side: str, method: str, index: DType) -> Atom:
    if method == "sort":
        return _search_by_sort(emit, keys, wanted, side, index)
    if method == "compare_all":
        return _search_by_comparison(emit, keys, wanted, side, index)
    return _binary_search(emit, keys, wanted, side, index, method == "scan_unrolled")


def _search_by_comparison(emit: Emit, keys: Atom, wanted: Atom, side: str, index: DType) -> Atom:
    """Count the preceding keys by comparing with all of them."""
    shape = (*wanted.aval.shape, keys.aval.size)
    key = emit_broadcast(emit, keys, shape, (len(shape) - 1,))
    v = emit_broadcast(emit, wanted, shape, tuple(range(len(shape) - 1)))
    before = emit.one(LT if side == "left" else LE, key, v)
    return emit.one(ReduceSum((len(shape) - 1,)), emit_convert(emit, before, index))


def _binary_search(emit: Emit, keys: Atom, wanted: Atom, side: str, index: DType, unrolled: bool) -> Atom:
    """Search each place in a window of the keys, whose first half is skipped if its last key qualifies."""
    n = keys.aval.size
    rounds = n.bit_length()
    places = wanted.aval.with_dtype(index)
    body = _binary_search_step(keys.aval, wanted.aval, places, side)
    scan = Scan(body, rounds, reverse=False, unroll=rounds if unrolled else 1, n_consts=2, n_carry=2)
    return emit(scan, keys, wanted, Lit.of(0, places), Lit.of(n, places))[0]


def _binary_search_step(keys: Aval, wanted: Aval, places: Aval, side: str) -> Jaxpr:
    b = Builder()
    a, v, place, width = b.inputs((keys, wanted, places, places))
    half = b.one(SHIFT_RIGHT_LOGICAL, b.one(ADD, width, Lit.of(1, places)), Lit.of(1, places))
    end = b.one(ADD, place, half)
    last = b.one(SUB, end, Lit.of(1, places))
    key = b.one(gather_along_axis(keys.shape, 0, mode="clip"), a, index_vectors(b, last))
    before = b.one(LT if side == "left" else LE, key, v)
    return b.build((emit_where(b, before, end, place), b.one(SUB, width, half)), "halving")


def _search_by_sort(emit: Emit, keys: Atom, wanted: Atom, side: str, index: DType) -> Atom:
    """Sort keys and wanted values together: the rank among all, minus the rank among the wanted ones."""
    n, m = keys.aval.size, wanted.aval.size
    flat = emit_reshape(emit, wanted, (m,))
    # the sort is stable
    joined = emit.one(Concatenate(0), *((flat, keys) if side == "left" else (keys, flat)))
    start = 0 if side == "left" else n
    place = emit.one(SUB, slice_axis(emit, _ranks(emit, joined, index), 0, start, start + m), _ranks(emit, flat, index))
    return emit_reshape(emit, place, wanted.aval.shape)


def _ranks(emit: Emit, x: Atom, index: DType) -> Atom:
    """Return the rank of each element of a vector."""
    count = emit.one(Iota(x.aval.shape, index, 0))
    order = emit(Sort(0, 1), x, count)[1]
    return emit(Sort(0, 1), order, count)[1]
