"""Padding to few sizes: `bucketed` calls a function with any lengths, and `ragged_batches` makes batches of similar
lengths."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import wraps
from math import ceil, inf
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from fxad.api.decorator_form import decorator_form
from fxad.api.jit import jit
from fxad.api.lift import check_function
from fxad.api.mask import check_result_shapes, mask
from fxad.api.symbolic_shapes import Shapes, symbolic_types
from fxad.core.lru import LRUCache
from fxad.core.sizes.equations import solve_sizes
from fxad.core.sizes.size import substitute_sizes
from fxad.core.sizes.upper_bounds import upper_bound
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, ParameterError, ShapeError, described, shown
from fxad.ir import NDArray
from fxad.operations.arguments import flag, function, number, to_int
from fxad.tracing.array import asarray, aval_of
from fxad.tracing.program import Program, function_name, size_constraints
from fxad.tracing.trace import flatten_call, parameter_names, trace_tree, types_of
from fxad.tracing.tracer import active_trace

T = TypeVar("T")


def padded_size(n: int, least: int = 8, growth: float = 2.0) -> int:
    """Return the smallest of the sizes `least`, `least * growth`, `least * growth**2`, ... (rounded up) that holds n.

    Law:    at most `max(least, growth * n)`, up to rounding; O(log n) different values.
    Raises: ArgumentError, ParameterError.
    """
    least, growth = _check_growth("padded_size", least, growth)
    n = to_int("padded_size", "n", n)
    if n < 0:
        raise ParameterError(f"padded_size: n is {n}", remedy="give a number of elements")
    return _padded_size(n, least, growth)


def _check_growth(op: str, least: int, growth: float) -> tuple[int, float]:
    """Raise ArgumentError for what is not a number; ParameterError for sizes that do not grow."""
    least, growth = to_int(op, "least", least), number(op, "growth", growth)
    if least < 1 or not 1 < growth < inf:
        raise ParameterError(
            f"{op}: least is {least} and growth {growth}", remedy="least is at least 1, growth more than 1, and finite"
        )
    return least, growth


def _padded_size(n: int, least: int, growth: float) -> int:
    size = float(least)
    while ceil(size) < n:
        size *= growth
    return ceil(size)


@overload
def bucketed(
    f: Callable[..., T], in_shapes: Shapes, out_shapes: Shapes = None, *, least: int = 8, growth: float = 2.0
) -> Callable[..., T]: ...
@overload
def bucketed(
    *, in_shapes: Shapes, out_shapes: Shapes = None, least: int = 8, growth: float = 2.0
) -> Callable[[Callable[..., T]], Callable[..., T]]: ...
@decorator_form
def bucketed(
    f: Callable[..., Any], in_shapes: Shapes, out_shapes: Shapes = None, *, least: int = 8, growth: float = 2.0
) -> Any:
    """Return the function, compiled for padded arguments: calls with any lengths take one trace and O(log n)
    compilations.

    A call pads its arguments to sizes `least * growth**k` in host memory, runs `jit(mask(f))`, and cuts the results.
    Inside a trace, where sizes are fixed, it is `f` itself.

    Law:    equals `f`.
    Cost:   each size is at most `growth` times the true one (or `least`). So the work along an axis of symbolic size
            grows by less than `growth`, and by about (1 + growth) / 2 on average over all lengths. Arguments and results
            are copied through host memory.
    Raises: as `mask`.
    """
    check_function("bucketed", f)
    least, growth = _check_growth("bucketed", least, growth)
    name, parameters = function_name(f), parameter_names(f)
    programs: LRUCache[Hashable, tuple[Program[..., Any], Callable[..., object]]] = LRUCache(512)

    @wraps(f, updated=())
    def call(*args: object, **kwargs: object) -> object:
        if active_trace() is not None:
            return f(*args, **kwargs)
        leaves, exact = flatten_call(f"bucketed {name}", f, args, kwargs)
        in_tree = exact.structure
        avals = types_of(f"bucketed {name}", f, leaves, in_tree)
        types, _ = symbolic_types("bucketed", f, in_shapes, avals, in_tree)
        compiled = programs.get((exact, types))
        if compiled is None:
            program = trace_tree(f, in_tree, types, name, parameters)
            check_result_shapes("bucketed", program, out_shapes)
            compiled = program, jit(mask(_of_leaves(program)))
            programs.put((exact, types), compiled)
        program, run = compiled
        sizes = solve_sizes(f"bucketed {name}", size_constraints(avals, types, program.paths))
        padded_sizes = {n: _padded_size(m, least, growth) for n, m in sizes.items()}
        padded_leaves = [
            _padded(np.asarray(x, aval.dtype), tuple([upper_bound(n, padded_sizes) for n in aval.shape]))
            if aval.symbolic
            else x
            for x, aval in zip(leaves, types, strict=True)
        ]
        outs, out_tree = tree.flatten(run(*padded_leaves, sizes={n: np.int32(m) for n, m in sizes.items()}))
        results = [
            asarray(np.asarray(y)[tuple([slice(substitute_sizes(n, sizes)) for n in aval.shape])])
            if aval.symbolic
            else y
            for y, aval in zip(outs, program.out_avals, strict=True)
        ]
        result: object = tree.unflatten(out_tree, results)
        return result

    return call


def _of_leaves(program: Program[..., T]) -> Program[..., T]:
    """Return the program with one positional argument for each leaf: so no keyword of the function is taken for
    `sizes`."""
    in_tree = tree.call_structure(tree.structure((0,) * program.in_tree.num_leaves))
    return Program.of(program, in_tree=in_tree, names=program.paths)


def _padded(x: NDArray, shape: tuple[int, ...]) -> NDArray:
    if x.shape == shape:
        return x
    padded = np.zeros(shape, x.dtype)
    padded[tuple([slice(n) for n in x.shape])] = x
    return padded


def ragged_batches(
    examples: Iterable[T],
    batch_size: int,
    *,
    length: Callable[[T], int] | None = None,
    ragged: object = None,
    least: int = 8,
    growth: float = 2.0,
    drop_last: bool = False,
) -> Iterator[tuple[T, npt.NDArray[np.int32]]]:
    """Return batches of examples of similar length: trees of arrays stacked and padded with zeros, and the lengths, i32.

    The first axis of each ragged array is padded, to one of the sizes of `padded_size`; other arrays are stacked. An
    example waits for others of its padded size; what is left at the end makes smaller batches, unless `drop_last`.
    `length` gives the length of an example; by default it is the first size of its first array, or first ragged array.

    `ragged` is a tree prefix of bools: True for arrays whose first axis has the length of the example. Without it, they
    are those whose first axis has it in all examples of the batch. So give `ragged` if another array has axes: an array
    of shape (3,) is padded too in a batch of examples of length 3.

    Type:   arrays keep their dtypes; Python numbers have those of fxad.
    Raises: ShapeError for arrays that do not fit, with the path; TreeError for a `ragged` that is no prefix;
            ArgumentError, ParameterError.
    Cost:   O(log n) different shapes.
    """
    batch_size = to_int("ragged_batches", "batch_size", batch_size)
    least, growth = _check_growth("ragged_batches", least, growth)
    if batch_size < 1:
        raise ParameterError(f"ragged_batches: batch_size is {batch_size}", remedy="give a number from 1 on")
    if not isinstance(examples, Iterable):
        raise ArgumentError(
            f"ragged_batches: examples is {described(examples)}: {shown(examples)}", remedy="give a sequence of trees"
        )
    if length is not None:
        length = function("ragged_batches", "length", length)
    return _ragged_batches(
        examples, batch_size, length, ragged, least, growth, flag("ragged_batches", "drop_last", drop_last)
    )


def _ragged_batches(
    examples: Iterable[T],
    batch_size: int,
    length: Callable[[T], int] | None,
    ragged: object,
    least: int,
    growth: float,
    drop_last: bool,
) -> Iterator[tuple[T, npt.NDArray[np.int32]]]:
    groups: dict[tuple[int, Structure], list[tuple[int, list[NDArray]]]] = {}
    flags_by_structure: dict[Structure, list[bool] | None] = {}
    for example in examples:
        leaves, structure = tree.flatten(example)
        arrays = [_numpy(x) for x in leaves]
        if structure not in flags_by_structure:
            flags_by_structure[structure] = None if ragged is None else _marks(ragged, structure)
        is_ragged = flags_by_structure[structure]
        n = _length(arrays, example, length, is_ragged)
        key = _padded_size(n, least, growth), structure
        group = groups.setdefault(key, [])
        group.append((n, arrays))
        if len(group) == batch_size:
            yield _batch(groups.pop(key), *key, is_ragged)
    if not drop_last:
        for key, group in groups.items():
            yield _batch(group, *key, flags_by_structure[key[1]])


def _numpy(x: object) -> NDArray:
    """Return a leaf of an example in NumPy. Raises: DTypeError for a Python int that has no dtype in fxad."""
    is_number = isinstance(x, bool | int | float | complex)
    return np.asarray(x, aval_of(x, "ragged_batches: a number of an example").dtype if is_number else None)


def _marks(ragged: object, structure: Structure) -> list[bool]:
    """Return for each array of an example, whether it is ragged."""
    return tree.broadcast_prefix(ragged, structure, "ragged_batches: ragged", lambda x: isinstance(x, bool))


def _length(
    arrays: Sequence[NDArray], example: T, length: Callable[[T], int] | None, is_ragged: Sequence[bool] | None
) -> int:
    if length is not None:
        n = to_int("ragged_batches", "the result of length", length(example))
        if n < 0:
            raise ParameterError(f"ragged_batches: the result of length is {n}", remedy="return a number of elements")
        return n
    candidates = arrays if is_ragged is None else [x for x, ragged in zip(arrays, is_ragged, strict=True) if ragged]
    first = next((x for x in candidates if x.ndim), None)
    if first is None:
        kind = "array" if is_ragged is None else "ragged array"
        raise ArgumentError(f"ragged_batches: an example has no {kind} with axes", remedy="give length=")
    return int(first.shape[0])


def _batch(
    group: Sequence[tuple[int, list[NDArray]]], padded_rows: int, structure: Structure, is_ragged: Sequence[bool] | None
) -> tuple[Any, npt.NDArray[np.int32]]:
    columns = zip(*[arrays for _, arrays in group], strict=True)
    lengths = [n for n, _ in group]
    stacked: list[NDArray] = []
    for column in columns:
        fits = [x.ndim > 0 and x.shape[0] == n for x, n in zip(column, lengths, strict=True)]
        ragged = all(fits) if is_ragged is None else is_ragged[len(stacked)]
        if ragged and not all(fits):
            k = fits.index(False)
            path = structure.accessors()[len(stacked)].codify("")
            raise ShapeError(
                f"ragged_batches: example{path} is {_array_text(column[k])} in an example of length {lengths[k]}",
                remedy="give False in ragged for an array whose first axis does not have the length",
            )
        rows = [_padded(x, (padded_rows, *x.shape[1:])) if ragged else x for x in column]
        for x, row in zip(column, rows, strict=True):
            if (row.shape, row.dtype) != (rows[0].shape, rows[0].dtype):
                path = structure.accessors()[len(stacked)].codify("")
                raise ShapeError(
                    f"ragged_batches: example{path} is {_array_text(column[0])} in one example and {_array_text(x)} in "
                    "another",
                    remedy="examples differ in their length only",
                )
        stacked.append(np.stack(rows))
    return structure.unflatten(stacked), np.asarray(lengths, np.int32)


def _array_text(x: NDArray) -> str:
    return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"
