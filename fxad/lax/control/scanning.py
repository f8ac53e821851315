"""Loops with a known number of steps: `scan`, `map`, `fori_loop`. Reverse mode works for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, overload

import numpy as np

from fxad.core.builder import Builder
from fxad.core.sizes.size import Size, dimension, maximum, minimum
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.dtypes import int32, int64, is_integer
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError, shown
from fxad.ir import Aval, Jaxpr, Lit
from fxad.lax.control.host_values import HostLeaf, HostTree
from fxad.lax.control.traced_functions import TracedLoop, traced_body, traced_loop
from fxad.lax.creation import splat
from fxad.lax.shapes import concatenate, reshape, slice_in_dim
from fxad.operations import promotion
from fxad.operations.arguments import flag, to_count
from fxad.operations.number_types import INT
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.logic import LT
from fxad.tracing.array import Array, ArrayLike, aval_of
from fxad.tracing.program import function_name
from fxad.tracing.traced_numbers import TracedNumber
from fxad.tracing.tracer import bind
from fxad.transforms.vmap import vmap

C = TypeVar("C")
X = TypeVar("X")
Y = TypeVar("Y")


# A slice has the type of `xs`. A number or an array of NumPy is an Array inside of `f`, also in a container.
# fmt: off
@overload
def scan(f: Callable[[Array, None], tuple[ArrayLike, Y]], init: HostLeaf, xs: None = None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[Array, Y]: ...
@overload
def scan(f: Callable[[C, None], tuple[C, Y]], init: C, xs: None = None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[C, Y]: ...
@overload
def scan(f: Callable[[Array, Array], tuple[ArrayLike, Y]], init: HostLeaf, xs: HostLeaf, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[Array, Y]: ...
@overload
def scan(f: Callable[[Array, X], tuple[ArrayLike, Y]], init: HostLeaf, xs: X, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[Array, Y]: ...
@overload
def scan(f: Callable[[C, Array], tuple[C, Y]], init: C, xs: HostLeaf, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[C, Y]: ...
@overload
def scan(f: Callable[[C, X], tuple[C, Y]], init: C, xs: X, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[C, Y]: ...
@overload
def scan(f: Callable[[C, X], tuple[C, Y]], init: HostTree, xs: object = None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[C, Y]: ...
@overload
def scan(f: Callable[[C, X], tuple[C, Y]], init: C, xs: HostTree, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False) -> tuple[C, Y]: ...
# fmt: on
def scan(
    f: Callable[[Any, Any], tuple[object, object]],
    init: object,
    xs: object = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Apply `f(carry, x) -> (carry, y)` to each slice of `xs` along axis 0; return the last carry and all `y` stacked.

    `init`, `xs` and the results of `f` are any pytrees of arrays. The carry keeps its structure, shapes and dtypes. A
    bare Python number in `init` takes the dtype that `f` returns for it, if the number fits its kind. Without `xs`, `f`
    gets None, `length` times. `reverse` runs from the last slice to the first; each `y` keeps the place of its slice.
    `unroll` steps form one iteration of the loop, `True` or 0 unrolls it completely; this changes no value.

    Cost:   `f` is traced once for every length (again if a number in `init` changed its dtype). Slices are read and
            written in place. Reverse mode stores the residuals that vary from step to step; it does not store loop
            invariants, slices of `xs` and `y` again.
    Raises: ShapeError when leaves of `xs` differ in length, or from `length`; TreeError when `f` does not return a
            pair; TreeError, ShapeError, DTypeError naming the leaf of the carry that changes, and both types.
    """
    if flag("scan", "_split_transpose", _split_transpose):
        raise ParameterError(
            "scan: _split_transpose is not supported",
            remedy="leave it out: reverse mode stores no slices that it can read again",
        )
    reverse = flag("scan", "reverse", reverse)
    leaves, xs_tree = tree.flatten(xs)
    n, slices = slice_types("scan", leaves, xs_tree, length)
    rest = tree.tuple_structure(xs_tree)
    loop = traced_loop("scan", f, init, rest, slices, role="f", start="init", pair=True)
    captured = loop.body.captured
    prim = Scan(loop.body.jaxpr, n, reverse, _unrolled("scan", unroll, n), len(captured), len(loop.init))
    return loop.results(bind(prim, *captured, *loop.init, *leaves))


@overload
def map(f: Callable[[Array], Y], xs: HostLeaf, batch_size: int | None = None) -> Y: ...
@overload
def map(f: Callable[[X], Y], xs: X, batch_size: int | None = None) -> Y: ...
@overload
def map(f: Callable[[X], Y], xs: HostTree, batch_size: int | None = None) -> Y: ...
def map(f: Callable[[Any], object], xs: object, batch_size: int | None = None) -> Any:
    """Apply `f` to each slice of `xs` along axis 0 in a loop; return the results stacked.

    With `batch_size`, each step maps over that many slices, as under vmap: a compromise between the speed of vmap and
    the memory of a loop. The remainder is one smaller batch. 0 maps over all slices at once.

    Raises: ShapeError when leaves of `xs` differ in length.
    """
    leaves, xs_tree = tree.flatten(xs)
    n, slices = slice_types("map", leaves, xs_tree, None)
    body = traced_body("map: f", f, tree.tuple_structure(xs_tree), slices)
    n_consts = len(body.captured)
    if batch_size is None:
        outs = bind(Scan(body.jaxpr, n, False, 1, n_consts, 0), *body.captured, *leaves)
        return body.out_tree.unflatten(outs)
    size = to_count("map", "batch_size", batch_size, 0) or max(n, 1)
    dims, to = (None,) * n_consts + (0,) * len(leaves), (0,) * len(body.jaxpr.outs)
    parts: list[Sequence[Array]] = []

    def run(start: int, steps: int, width: int) -> None:
        """Map over the slices from `start`, in steps of `width` slices."""
        batched, _ = vmap(body.jaxpr, width, dims, to)
        count = steps * width
        blocks = [_slice_rows(x, start, start + count, (steps, width)) for x in leaves]
        outs = bind(Scan(batched, steps, False, 1, n_consts, 0), *body.captured, *blocks)
        parts.append([reshape(y, (count, *y.shape[2:])) for y in outs])

    trips, left = divmod(n, size)
    if trips or n == 0:
        run(0, trips, size)
    if left:
        run(n - left, 1, left)
    whole = parts[0] if len(parts) == 1 else [concatenate(pair, 0) for pair in zip(*parts, strict=True)]
    return body.out_tree.unflatten(whole)


def _slice_rows(x: ArrayLike, start: int, stop: int, lead: tuple[int, int]) -> Array:
    rows = slice_in_dim(x, start, stop)
    return reshape(rows, (*lead, *rows.shape[1:]))


def slice_types(what: str, leaves: Sequence[object], xs_tree: Structure, length: int | None) -> tuple[int, list[Aval]]:
    """Return the number of steps, and the types of the slices of `xs`. Raises: ShapeError, ArgumentError,
    ParameterError."""
    paths = tree.paths(xs_tree, "xs")
    avals = [aval_of(x, f"{what}: {p}") for x, p in zip(leaves, paths, strict=True)]
    for path, a in zip(paths, avals, strict=True):
        if not a.shape:
            raise ShapeError(
                f"{what}: {path} is {a}, without an axis to run over",
                remedy="f may close over what is the same for all steps",
            )
        if a.shape[0] != avals[0].shape[0]:
            raise ShapeError(
                f"{what}: leaves of xs differ in length: {paths[0]} is {avals[0]}, {path} is {a}",
                remedy="all leaves are run over together, along axis 0",
            )
    if length is not None:
        n = to_count(what, "length", length, 0)
        if avals and avals[0].shape[0] != n:
            raise ShapeError(f"{what}: length is {n}, {paths[0]} is {avals[0]}", remedy="leave out length")
    elif avals:
        n = avals[0].shape[0]
    else:
        remedy = "give arrays to run over" if what == "map" else "give length"
        raise ArgumentError(f"{what}: xs has no leaves to tell the number of steps", remedy=remedy)
    return n, [a.with_shape(a.shape[1:]) for a in avals]


def _unrolled(what: str, unroll: int | bool, length: int) -> int:
    if isinstance(unroll, bool):
        return maximum(length, 1) if unroll else 1
    whole, steps = maximum(length, 1), to_count(what, "unroll", unroll, 0)
    return minimum(steps, whole) if steps != 0 else whole


# --------------------------------------------------------------------------------------------------------- fori_loop


# fmt: off
@overload
def fori_loop(lower: ArrayLike, upper: ArrayLike, body_fun: Callable[[Array, Array], ArrayLike], init_val: HostLeaf, *, unroll: int | bool | None = None) -> Array: ...
@overload
def fori_loop(lower: ArrayLike, upper: ArrayLike, body_fun: Callable[[Array, C], C], init_val: C, *, unroll: int | bool | None = None) -> C: ...
@overload
def fori_loop(lower: ArrayLike, upper: ArrayLike, body_fun: Callable[[Array, C], C], init_val: HostTree, *, unroll: int | bool | None = None) -> C: ...
# fmt: on
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], object],
    init_val: object,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Compute `val = body_fun(i, val)` for i from `lower` to `upper`, exclusive; return the last `val`.

    `init_val` is any pytree of arrays, which keeps its structure, shapes and dtypes. A bare Python number in it takes
    the dtype that `body_fun` returns for it. i is int32 if both bounds fit, or has the dtype of a bound that is an
    array.

    Rule:   with Python ints as bounds this is a `scan`: reverse mode works, and `unroll` is allowed. A bound that is an
            array is known only at run time, so the loop is a `while_loop`: forward mode only.
    Cost:   reverse mode does not store i.
    Raises: as `scan`; ParameterError for `unroll` with bounds that are not static.
    """
    bounds = {"lower": _bound_beside(lower, upper), "upper": _bound_beside(upper, lower)}
    static = {k: v for k, v in bounds.items() if not isinstance(v, Array | np.ndarray)}
    for name, v in static.items():
        bound = to_count("fori_loop", name, v, -(1 << 63))
        if type(bound) is int and bound >= 1 << 63:
            raise ParameterError(
                f"fori_loop: {name} does not fit int64: {shown(bound)}",
                remedy="the index of a loop is an int64 at most",
            )
    index = _index_type(bounds)

    @wraps(body_fun)
    def step(val: object, i: object) -> object:
        return body_fun(i, val)

    step.__name__ = function_name(body_fun)
    one = tree.structure((0,))
    loop = traced_loop("fori_loop", step if callable(body_fun) else body_fun, init_val, one, (index,))
    if len(static) == 2:
        first, last = dimension(lower), dimension(upper)
        outs = _static_fori(loop, first, maximum(last - first, 0), index, 1 if unroll is None else unroll)
    elif (
        unroll is not None
        and unroll is not False
        and (unroll is True or to_count("fori_loop", "unroll", unroll, 0) != 1)
    ):
        raise ParameterError(
            f"fori_loop: unroll is {shown(unroll)}, but the bounds are arrays",
            remedy="give the bounds as Python ints, or leave out unroll",
        )
    else:
        first_last = [splat(Lit.of(v, index)) if k in static else v for k, v in bounds.items()]
        outs = _dynamic_fori(loop, first_last[0], first_last[1], index)
    return loop.carry_tree.unflatten(outs)


def _bound_beside(bound: ArrayLike, other: ArrayLike) -> ArrayLike:
    """Return a bound: a traced number takes the dtype of an array that is the other bound, as a number does."""
    if type(bound) is not TracedNumber or type(other) is TracedNumber or bound.number_type is not INT:
        return bound
    return bound.beside(other.dtype) if isinstance(other, Array | np.ndarray) and is_integer(other.dtype) else bound


def _index_type(bounds: dict[str, ArrayLike]) -> Aval:
    """Return the type of the index of a loop between bounds. Raises: ShapeError, DTypeError."""
    arrays = {k: aval_of(v, f"fori_loop: {k}") for k, v in bounds.items() if isinstance(v, Array | np.ndarray)}
    for name, a in arrays.items():
        if a.shape:
            raise ShapeError(
                f"fori_loop: {name} is {a}, not a single number",
                remedy="a bound is the same for all: reduce it, or use vmap",
            )
        if not is_integer(a.dtype):
            raise DTypeError(f"fori_loop: {name} is {a}, not an integer", remedy="convert it with astype('int32')")
    array_avals = list(arrays.values())
    if len(array_avals) == 2 and array_avals[0] is not array_avals[1]:
        raise DTypeError(
            f"fori_loop: lower is {array_avals[0]}, upper is {array_avals[1]}",
            remedy="convert one bound to the dtype of the other",
        )
    static_bounds = [dimension(v) for k, v in bounds.items() if k not in arrays]
    if array_avals:
        for value in static_bounds:
            promotion.scalar_dtype(value, array_avals[0].dtype, "fori_loop: a bound")  # raises if it does not fit
        return array_avals[0]
    return Aval((), int32 if all([type(v) is Size or -(1 << 31) <= v < 1 << 31 for v in static_bounds]) else int64)


def _counting_body(loop: TracedLoop, index: Aval) -> Jaxpr:
    """Return (captured, i, carry) -> (i + 1, carry)."""
    body, n_consts = loop.body.jaxpr, len(loop.body.captured)
    b = Builder()
    consts, i, carry = b.inputs(body.in_avals[:n_consts]), b.input(index), b.inputs(loop.carry_avals)
    outs = b.inline(body, (*consts, *carry, i))
    return b.build((b.one(ADD, i, Lit.of(1, index)), *outs), body.name)


def _static_fori(loop: TracedLoop, first: int, n: int, index: Aval, unroll: int | bool) -> tuple[Array, ...]:
    """Return a loop between static bounds: a scan whose carry counts."""
    captured = loop.body.captured
    steps = _unrolled("fori_loop", unroll, n)
    prim = Scan(_counting_body(loop, index), n, False, steps, len(captured), 1 + len(loop.init))
    return bind(prim, *captured, splat(Lit.of(first, index)), *loop.init)[1:]


def _dynamic_fori(loop: TracedLoop, first: ArrayLike, last: ArrayLike, index: Aval) -> tuple[Array, ...]:
    """Return a loop between bounds known at run time: a while loop whose carry counts."""
    captured = loop.body.captured
    b = Builder()
    end, i = b.inputs((index, index))
    b.inputs(loop.carry_avals)
    more = b.build((b.one(LT, i, end),), f"more_{loop.body.name}")
    return bind(While(more, _counting_body(loop, index), 1, len(captured)), last, *captured, first, *loop.init)[1:]
