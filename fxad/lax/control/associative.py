"""`associative_scan`: all prefix results of an associative function, in logarithmic depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, overload

from fxad.core.sizes.size import Size
from fxad.core.trees import tree
from fxad.errors import ArgumentError, DTypeError, ShapeError, TreeError, described, shown
from fxad.ir import BOOL_SCALAR, Lit
from fxad.lax.control.branching import cond
from fxad.lax.control.host_values import HostLeaf, HostTree
from fxad.lax.control.scanning import scan
from fxad.lax.creation import splat
from fxad.lax.shapes import concatenate, expand_dims, reshape, rev, slice_in_dim, squeeze, transpose
from fxad.operations.arguments import flag
from fxad.operations.axes import normalize_axis_index
from fxad.primitives.axes import replace_entry
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar
from fxad.tracing.program import function_name

T = TypeVar("T")
_Combine: TypeAlias = Callable[[list[Array], list[Array]], list[Array]]


# A number or an array of NumPy is an Array inside of `fn`, also in a container.
# fmt: off
@overload
def associative_scan(fn: Callable[[Array, Array], ArrayLike], elems: HostLeaf, reverse: bool = False, axis: int = 0) -> Array: ...
@overload
def associative_scan(fn: Callable[[T, T], T], elems: T, reverse: bool = False, axis: int = 0) -> T: ...
@overload
def associative_scan(fn: Callable[[T, T], T], elems: HostTree, reverse: bool = False, axis: int = 0) -> T: ...
# fmt: on
def associative_scan(fn: Callable[[Any, Any], object], elems: object, reverse: bool = False, axis: int = 0) -> Any:
    """Return the prefix results of combining the slices of `elems` along `axis`: `e0, e0*e1, e0*e1*e2, ...`, where
    `a*b` is `fn(a, b)`. With `reverse` they start at the end: the last result is `en`, the one before `en*e(n-1)`.

    `elems` is any pytree of arrays of one length along `axis`. `fn` gets stacks of slices and must combine them slice
    by slice: elementwise functions do, others under vmap. It must be associative.

    Rule:   lengths 0 and 1 return `elems`; `fn` is traced about twice for each doubling of the length. A length that is
            no number does not say how many stages there are: then the slices are combined one after the other.
            The gradient multiplies by slices behind those that are read, with a cotangent of 0, so nan or an infinity
            there makes it nan: put a neutral element in their place. The rule of `fn` would have to be chosen by the
            cotangent, and then it is not linear. `cumprod`, `cumlogsumexp` and `linear_recurrence` need no such care.
    Cost:   combines fewer than 2 n slices, in depth 2 log2(n), or n for a length that is no number.
    Raises: ShapeError when leaves differ in length; TreeError, ShapeError, DTypeError when `fn` returns other types.
    Source: Blelloch, Prefix Sums and Their Applications (1990); `jax.lax.associative_scan`
    """
    reverse = flag("associative_scan", "reverse", reverse)
    if not callable(fn):
        raise ArgumentError(
            f"associative_scan: fn is {described(fn)}, not a function: {shown(fn)}",
            remedy="pass a function, not what it returns",
        )
    leaves, structure = tree.flatten(elems)
    paths = tree.paths(structure, "elems")
    avals = [aval_of(x, f"associative_scan: {p}") for x, p in zip(leaves, paths, strict=True)]
    axes = []
    for path, a in zip(paths, avals, strict=True):
        if not a.shape:
            raise ShapeError(
                f"associative_scan: {path} is {a}, without an axis to run over",
                remedy="all leaves of elems are run over together, along axis",
            )
        axes.append(normalize_axis_index("associative_scan", axis, a.ndim))
        if a.shape[axes[-1]] != avals[0].shape[axes[0]]:
            raise ShapeError(
                f"associative_scan: leaves of elems differ in length along axis {axis}: "
                f"{paths[0]} is {avals[0]}, {path} is {a}",
                remedy="all leaves are run over together",
            )

    def combine(a: list[Array], b: list[Array]) -> list[Array]:
        combined, combined_tree = tree.flatten(fn(tree.unflatten(structure, a), tree.unflatten(structure, b)))
        if combined_tree != structure:
            raise TreeError(
                f"associative_scan: fn {function_name(fn)} returns {tree.shape_text(combined_tree)}, "
                f"elems is {tree.shape_text(structure)}",
                remedy="return from fn what it was given, with new values",
            )
        for path, have, want in zip(paths, combined, a, strict=True):
            _check_combined(f"associative_scan: {path} of {function_name(fn)}", have, want)
        return combined

    symbolic = bool(leaves) and type(avals[0].shape[axes[0]]) is Size
    if not leaves or (not symbolic and avals[0].shape[axes[0]] < 2):
        return elems
    inputs = [rev(x, (k,)) if reverse else x for x, k in zip(leaves, axes, strict=True)]
    partial = (_in_sequence if symbolic else _partial)(combine, inputs, axes)
    return structure.unflatten([rev(x, (k,)) if reverse else x for x, k in zip(partial, axes, strict=True)])


def _check_combined(what: str, have: object, want: Array) -> None:
    """Raise ShapeError, DTypeError when a result is not of the type of its operand."""
    result_type = aval_of(have, what)
    if result_type.shape != want.shape:
        raise ShapeError(
            f"{what} is {result_type}, its operands are {want.aval}",
            remedy="fn combines stacks of slices, one by one: make it elementwise, or use vmap in it",
        )
    if result_type.dtype != want.dtype or is_scalar(have):
        raise DTypeError(
            f"{what} is {result_type}, its operands are {want.aval}", remedy="fn must not change the dtype"
        )


def _in_sequence(combine: _Combine, xs: list[Array], axes: list[int]) -> list[Array]:
    """Return prefix results of any number of slices, 0 too, by a scan."""

    def front(x: Array, k: int, n: int) -> Array:
        return transpose(x, (k, *range(k), *range(k + 1, n))) if k else x

    def back(x: Array, k: int, n: int) -> Array:
        return transpose(x, (*range(1, k + 1), 0, *range(k + 1, n))) if k else x

    def step(carry: tuple[Array, list[Array]], slices: list[Array]) -> tuple[tuple[Array, list[Array]], list[Array]]:
        started, held = carry
        now = [expand_dims(x, (k,)) for x, k in zip(slices, axes, strict=True)]
        new = cond(started, combine, lambda _, now: now, held, now)
        return (splat(Lit.of(True, BOOL_SCALAR)), new), [squeeze(x, (k,)) for x, k in zip(new, axes, strict=True)]

    avals = [aval_of(x) for x in xs]
    ones = [replace_entry(a.shape, k, 1) for a, k in zip(avals, axes, strict=True)]
    first = [splat(Lit.of(0, a.with_shape(shape))) for a, shape in zip(avals, ones, strict=True)]
    rows = [front(x, k, a.ndim) for x, k, a in zip(xs, axes, avals, strict=True)]
    _, partial = scan(step, (splat(Lit.of(False, BOOL_SCALAR)), first), rows)
    return [back(x, k, a.ndim) for x, k, a in zip(partial, axes, avals, strict=True)]


def _partial(combine: _Combine, xs: list[Array], axes: list[int]) -> list[Array]:
    """Return prefix results: combine neighbours, recurse on half as many, then compute every second one."""
    n = aval_of(xs[0]).shape[axes[0]]
    if n < 2:
        return xs

    def part(values: list[Array], start: int, stop: int, stride: int = 1) -> list[Array]:
        return [slice_in_dim(x, start, stop, stride, k) for x, k in zip(values, axes, strict=True)]

    odd = _partial(combine, combine(part(xs, 0, n - 1, 2), part(xs, 1, n, 2)), axes)
    even = part(xs, 0, 1)
    if n > 2:
        rest = combine(part(odd, 0, (n - 1) // 2), part(xs, 2, n, 2))
        even = [concatenate((a, b), k) for a, b, k in zip(even, rest, axes, strict=True)]
    return [_interleaved(a, b, k) for a, b, k in zip(even, odd, axes, strict=True)]


def _interleaved(even: Array, odd: Array, axis: int) -> Array:
    """Return the slices of two arrays in alternation; the first may have one more."""
    n = odd.shape[axis]
    pairs = concatenate(
        (expand_dims(slice_in_dim(even, 0, n, axis=axis), (axis + 1,)), expand_dims(odd, (axis + 1,))), axis + 1
    )
    merged = reshape(pairs, replace_entry(odd.shape, axis, 2 * n))
    return merged if even.shape[axis] == n else concatenate((merged, slice_in_dim(even, n, n + 1, axis=axis)), axis)
