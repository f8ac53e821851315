"""`mask`: one program for every length. `shapecheck`: the checks of its shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, overload

import numpy as np

from fxad import dtypes
from fxad.api.decorator_form import NoFunction, decorator_form
from fxad.api.lift import check_function
from fxad.api.symbolic_shapes import FITTING, Shapes, is_shape, read_prefix, shown_shape, trace_symbolic
from fxad.core.sizes.equations import solve_sizes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.polynomials import SizeName, names_of
from fxad.core.sizes.size import Size, differ_somewhere, named_size, substitute_sizes
from fxad.core.sizes.text import read_shapes
from fxad.core.sizes.upper_bounds import upper_bound
from fxad.core.trees import tree
from fxad.errors import ArgumentError, DTypeError, ShapeError, TreeError, described, shown
from fxad.ir import INT32_SCALAR, Aval, Jaxpr
from fxad.lax.control.checking import error_if
from fxad.operations.arguments import flag, plain_ints
from fxad.primitives.control.bodies import reorder_operands
from fxad.primitives.index import INT32_MAX
from fxad.tracing.array import Array, asarray, binder
from fxad.tracing.program import Program, function_name, size_constraints
from fxad.tracing.spec import aval_of_example
from fxad.tracing.trace import parameter_names, trace_tree, unify_assumptions
from fxad.tracing.traced_numbers import dtype_of_number, is_number, number_array
from fxad.transforms.mask.mask import mask as mask_jaxpr
from fxad.transforms.mask.padded_builder import SizeBounds
from fxad.transforms.specialize import size_names

R = TypeVar("R")


@overload
def mask(f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]: ...
@overload
def mask(
    f: Program[..., R],
    in_shapes: None = None,
    out_shapes: Shapes = None,
    *,
    padding: Mapping[str, int],
    check: bool = False,
) -> Program[..., R]: ...
@overload
def mask(
    f: Callable[..., R],
    in_shapes: Shapes = None,
    out_shapes: Shapes = None,
    *,
    padding: Mapping[str, int] | None = None,
    check: bool = False,
) -> Callable[..., R]: ...
@overload
def mask(
    *,
    in_shapes: Shapes = None,
    out_shapes: Shapes = None,
    padding: Mapping[str, int] | None = None,
    check: bool = False,
) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
@decorator_form
def mask(
    f: Callable[..., object],
    in_shapes: Shapes = None,
    out_shapes: Shapes = None,
    *,
    padding: Mapping[str, int] | None = None,
    check: bool = False,
) -> object:
    """Return the function on padded arrays, for every length up to the padding: `mask(f, in_shapes)(*padded,
    sizes={"n": n})`.

    `in_shapes` is a tree prefix of the tuple of positional arguments: texts as `"(n, 2*m+1, _)"`, where `_` is the size
    that the array has, or None for an array without named sizes. `n>=1` states an assumption. `out_shapes` is compared
    with the shapes of the results, if it is given. A size is an int, or an i32[] array: under `vmap`, an array of sizes
    makes a ragged batch. With `check` the sizes are compared with the padding when the program runs.

    A `Program` of symbolic shape has its shapes already: `mask(program, padding={"n": 32})` is a program on padded
    arrays and `sizes`; without `padding` it is a function.

    Type:   padded arrays, `sizes` -> padded results, whose padding is zero.
    Law:    the valid part of the results equals `f` on the arrays without padding, whatever the padding holds; so do
            gradients, and the cotangent of padding is zero. Exact where the operations are. A gradient may be nan
            instead of infinite or 0 where `f` itself has an infinite derivative at a valid element or an infinite
            argument, or where differences of more than 1e10 cancel in the valid rows only (docs/adr/0079).
    Cost:   one program for all lengths; the work is that of the padded shapes.
    Raises: ShapeError for shapes that do not fit, with both places; SizeError for an operation without a rule;
            ArgumentError for missing or unknown sizes.
    """
    check = flag("mask", "check", check)
    if isinstance(f, Program):
        if in_shapes is not None:
            raise ArgumentError(
                f"mask: {f.name} is a Program, whose shapes are known",
                remedy="leave out in_shapes, or pass the function",
            )
        check_result_shapes("mask of", f, out_shapes)
        if padding is not None:
            return _masked_program(f, _checked_padding(f, padding))
        if "sizes" in f.kwargs_tree.entries():
            raise _sizes_taken(f.name)
        return _masked_function(f, lambda _args, _kwargs: (f, {}), check)
    check_function("mask", f)
    if in_shapes is None or padding is not None:
        raise ArgumentError(
            f"mask: the shapes of {function_name(f)} are not known",
            remedy="mask(f, in_shapes=...) for a function; padding=... is for a Program",
        )
    if _requires_sizes(f):
        raise _sizes_taken(function_name(f))

    def program_of(
        args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Program[..., object], Mapping[str, str]]:
        program, user_names = trace_symbolic("mask", f, in_shapes, args, kwargs)
        check_result_shapes("mask of", program, out_shapes)
        return program, user_names

    return _masked_function(f, program_of, check)


def shapecheck(f: Callable[..., object], in_shapes: Shapes, out_shapes: Shapes = None) -> Any:
    """Return the shapes of the results of `f` for arguments of symbolic shape, as texts; compared with `out_shapes` if
    given.

    `in_shapes` has one entry for each leaf of the positional arguments: a text, whose dtype is float32, or a `Spec`.

    >>> import fxad as fx
    >>> fx.shapecheck(lambda x, y: (x @ y, x[1:]), ("(n>=1, m)", "(m, 3)"))
    ('(n, 3)', '(n - 1, m)')

    Raises: ShapeError, SizeError, and what `f` raises.
    """
    check_function("shapecheck", f)
    args = tuple(in_shapes) if isinstance(in_shapes, list | tuple) else (in_shapes,)
    leaves, in_tree = tree.flatten((args, {}))
    texts = [x for x in leaves if isinstance(x, str)]
    shapes = iter(read_shapes(texts))
    avals: list[Aval] = []
    for x in leaves:
        if isinstance(x, str):
            shape = next(shapes)
            if None in shape:
                raise ArgumentError(
                    f"shapecheck: {x!r} has a size '_', and there is no array", remedy="give the number"
                )
            avals.append(Aval([n for n in shape if n is not None], "float32"))
        else:
            avals.append(aval_of_example(x, "shapecheck: in_shapes"))
    program = trace_tree(f, in_tree, unify_assumptions(avals), function_name(f), parameter_names(f))
    check_result_shapes("shapecheck of", program, out_shapes)
    return program.out_tree.unflatten([_text(a.shape) for a in program.out_avals])


def _text(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def check_result_shapes(op: str, program: Program[..., object], out_shapes: Shapes) -> None:
    """Raise ShapeError for a result of another shape than `out_shapes` says, with its path."""
    if out_shapes is None:
        return
    entries = tree.broadcast_prefix(out_shapes, program.out_tree, f"{op} {program.name}: out_shapes", is_shape, True)
    sizes = {n.name: named_size(n.name, n.at_least) for n in size_names(program.jaxpr)}
    for k, (shape, aval) in enumerate(zip(read_prefix(entries), program.out_avals, strict=True)):
        if shape is None:
            continue
        expected = [None if n is None else substitute_sizes(n, sizes) for n in shape]
        fits = len(expected) == aval.ndim and all(
            [n is None or n == m for n, m in zip(expected, aval.shape, strict=True)]
        )
        if not fits:
            path = program.out_tree.accessors()[k].codify("")
            where = f", at result{path}" if path else ""
            pairs = list(zip(expected, aval.shape, strict=False))
            if len(expected) == aval.ndim and not any([n is not None and differ_somewhere(n, m) for n, m in pairs]):
                raise ShapeError(
                    f"{op} {program.name}: Output shapes {shown_shape(expected)} could not be shown equal to "
                    f"{_text(aval.shape)}{where}",
                    remedy="write the sizes in this other form, or leave out out_shapes",
                )
            raise ShapeError(
                f"{op} {program.name}: Output shapes should be {shown_shape(expected)} but are {_text(aval.shape)}"
                f"{where}",
                remedy="correct out_shapes, or leave it out",
            )


# -------------------------------------------------------------------------------------------------------------- calls


def _masked_function(
    f: Callable[..., object],
    program_of: Callable[[tuple[object, ...], dict[str, object]], tuple[Program[..., object], Mapping[str, str]]],
    check: bool,
) -> Callable[..., object]:
    name = function_name(f)

    def masked(*args: object, sizes: Mapping[str, object] | None = None, **kwargs: object) -> object:
        program, user_names = program_of(args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))
        if in_tree != program.in_tree:
            raise TreeError(
                f"mask of {name}: the arguments are {tree.shape_text(in_tree)}, the program takes "
                f"{tree.shape_text(program.in_tree)}",
                remedy="a masked program takes the arguments of the program, padded, and sizes",
            )
        arrays = [_operand(x, want) for x, want in zip(leaves, program.in_avals, strict=True)]
        padding = _bounds(program, [x.aval for x in arrays])
        values = _size_operands(f"mask of {name}", program, padding, user_names, sizes)
        _check_dimensions(f"mask of {name}", program, user_names, sizes)
        if check:
            least = _least_sizes(program)
            values = [
                _with_size_check(name, n, least.get(n, 0), bound, x)
                for x, (n, bound) in zip(values, padding, strict=True)
            ]
        values = [_to_int32(x) for x in values]  # after the check, which a number that wraps around would pass
        outs = binder().call(mask_jaxpr(program.jaxpr, padding), [*program.bound, *arrays, *values])
        return program.out_tree.unflatten(outs)

    if not isinstance(f, Program):
        masked = wraps(f, updated=())(masked)
    masked.__name__ = f"mask_{name}"
    return masked


def _operand(x: object, aval: Aval) -> Array:
    """Return an argument as an array. A Python number has the dtype of the operand, if that holds its kind."""
    if is_number(x) and not aval.shape and dtype_of_number(x, aval.dtype) is aval.dtype:
        return asarray(number_array(x, aval.dtype))
    return x if isinstance(x, Array) else asarray(x)


def _bounds(program: Program[..., object], padded: Sequence[Aval]) -> SizeBounds:
    """Return the largest values of the sizes, which the padded arguments have. Raises: ShapeError, DTypeError."""
    what = f"mask of {program.name}"
    for aval, expected, path in zip(padded, program.in_avals, program.paths, strict=True):
        if aval.dtype is not expected.dtype:
            raise DTypeError(
                f"{what}: argument {path} has dtype {aval.dtype.name}, not {expected.dtype.name}",
                remedy="convert it with astype; nothing is converted silently",
            )
        # a size with a name is a `Size`, which is an int too: only a plain int is compared
        if aval.ndim != expected.ndim or any(
            [type(n) is int and n != m for n, m in zip(expected.shape, aval.shape, strict=True)]
        ):
            raise ShapeError(
                f"{what}: argument {path} is {aval}, its shape should be {_text(expected.shape)}", remedy=FITTING
            )
    equations = [
        (n, m, path)
        for n, m, path in size_constraints(padded, program.in_avals, program.paths)
        if type(n) is Size and n != m
    ]
    bounds = solve_sizes(what, [e for e in equations if _is_monotone(e[0])])
    for n, m, path in equations:
        if any([name.name not in bounds for name in names_of(n)]):
            raise ShapeError(
                f"{what}: {path} is {m}, which does not determine the largest sizes in {n}",
                remedy="give each named size alone in some shape, as in 'n'",
            )
        if (largest := upper_bound(n, bounds)) != m:
            bound_texts = ", ".join([f"{name.name} up to {bounds[name.name]}" for name in names_of(n)])
            raise ShapeError(
                f"{what}: {path} is {m}, but {n} is up to {largest}: {bound_texts}",
                remedy="pad each argument to its largest size",
            )
    return tuple(sorted(bounds.items()))


def _is_monotone(size: int) -> bool:
    """Return True for a sum of products of named sizes: it has its largest value where they have theirs."""
    return isinstance(size, Size) and all(
        [c > 0 and all([isinstance(part, SizeName) for part, _ in product]) for product, c in size.terms if product]
    )


def _checked_padding(program: Program[..., object], padding: Mapping[str, int]) -> SizeBounds:
    least = _least_sizes(program)
    if not isinstance(padding, Mapping):
        raise ArgumentError(
            f"mask: the padding is {described(padding)}, not a mapping of names to sizes: {shown(padding)}",
            remedy='padding={"n": 32}',
        )
    padding = {name: plain_ints(bound) for name, bound in padding.items()}
    for name, bound in padding.items():
        if name not in least:
            raise ArgumentError(
                f"mask: {name} is not a size of {program.name}, which has {', '.join(sorted(least)) or 'none'}",
                remedy="give the sizes that its shapes name",
            )
        if not isinstance(bound, int) or isinstance(bound, bool):
            raise ArgumentError(
                f"mask: the padding of {name} is {shown(bound)}, not an int", remedy="give the largest size, as an int"
            )
        # a `Size` is an int too, of a trace around this call, and has no value to compare
        if type(bound) is int and bound < least[name]:
            raise ShapeError(
                f"mask: the padding of {name} is {bound}, and {program.name} assumes {name} >= {least[name]}",
                remedy="give the largest size that is to be padded",
            )
        if type(bound) is int and bound > INT32_MAX:
            raise ShapeError(
                f"mask: the padding of {name} is {bound}, and sizes are i32[]", remedy="give a number less than 2**31"
            )
    return tuple(sorted(padding.items()))


def _masked_program(program: Program[..., object], padding: SizeBounds) -> Program[..., object]:
    """Return the program on padded arrays, with the sizes as a further keyword argument. A program that is masked
    already has some sizes there, and gets more."""
    jaxpr = mask_jaxpr(program.jaxpr, padding)
    n_before_kwargs, kwargs = len(jaxpr.ins) - len(padding) - program.kwargs_tree.num_leaves, program.kwargs_tree
    numbers = range(n_before_kwargs, n_before_kwargs + kwargs.num_leaves)  # of the operands of keyword arguments
    arguments: dict[str, Any] = tree.unflatten(kwargs, numbers)
    earlier_sizes = arguments.pop("sizes", {})
    if not _are_sizes(earlier_sizes, jaxpr) or any([name in earlier_sizes for name, _ in padding]):
        raise _sizes_taken(program.name)
    new_sizes = {name: len(jaxpr.ins) - len(padding) + k for k, (name, _) in enumerate(padding)}
    operands, keywords = tree.flatten({**arguments, "sizes": {**earlier_sizes, **new_sizes}})
    ordered = reorder_operands(jaxpr, (*range(n_before_kwargs), *operands))
    in_tree = tree.call_structure(program.args_tree, keywords)
    return program.replace(ordered, in_tree=in_tree, name=f"mask_{program.name}")


def _are_sizes(argument: object, jaxpr: Jaxpr) -> bool:
    """Return True if an argument, given as the numbers of its operands, is `sizes` of a masked program."""
    return isinstance(argument, dict) and all(
        [isinstance(name, str) and type(k) is int and jaxpr.in_avals[k] is INT32_SCALAR for name, k in argument.items()]
    )


def _requires_sizes(f: Callable[..., object]) -> bool:
    """Return True for a function with a keyword-only parameter `sizes` without a default."""
    try:
        parameter = inspect.signature(f).parameters.get("sizes")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty


def _sizes_taken(name: str) -> ArgumentError:
    """Return the error for a program or a function with an argument `sizes` of its own."""
    return ArgumentError(
        f"mask: {name} takes a keyword argument named sizes, as its masked form does",
        remedy="rename that argument, or pass it by position",
    )


def _least_sizes(program: Program[..., object]) -> dict[str, int]:
    """Return the named sizes of a program, and the least that each may be."""
    return {n.name: n.at_least for n in size_names(program.jaxpr)}


def _size_operands(
    what: str, program: Program[..., object], padding: SizeBounds, user_names: Mapping[str, str], sizes: object
) -> list[Array]:
    """Return the sizes as arrays of one integer each, of any dtype that holds every padding. Raises: ArgumentError,
    ShapeError, DTypeError."""
    if sizes is None:
        names = ", ".join([user_names.get(name, name) for name, _ in padding])
        raise ArgumentError(f"{what}: the sizes are missing: {names}", remedy='sizes={"n": n}')
    if not isinstance(sizes, Mapping):
        raise ArgumentError(
            f"{what}: sizes is {described(sizes)}, not a mapping of names to sizes: {shown(sizes)}",
            remedy='sizes={"n": n}',
        )
    least = _least_sizes(program)
    internal_names = {user_names.get(name, name): name for name, _ in padding}
    for name in sizes:
        if name not in internal_names:
            raise ArgumentError(
                f"{what}: {name} is not a size of its shapes, which have {', '.join(internal_names) or 'none'}",
                remedy="give each size that in_shapes names, and no other",
            )
    bounds, operands = dict(padding), list[Array]()
    for word, name in internal_names.items():
        if word not in sizes:
            raise ArgumentError(f"{what}: the size {word} is missing", remedy=f'sizes={{"{word}": ...}}')
        operands.append(_size_operand(f"{what}: the size {word}", sizes[word], least.get(name, 0), bounds[name]))
    return operands


def _size_operand(what: str, value: object, least: int, bound: int) -> Array:
    """Return a size as an array of one integer, of at least 32 bits. Raises: ArgumentError; ShapeError for one that is
    known and not between `least` and `bound`."""
    if isinstance(value, bool) or (not isinstance(value, int | Array | np.ndarray | np.generic)):
        raise ArgumentError(
            f"{what} is {described(value)}, not an integer: {shown(value)}", remedy=_remedy_for_size(value)
        )
    if not isinstance(value, Array) and type(value) is not Size:
        number = np.asarray(value)
        if number.dtype.kind not in "iu" or number.ndim:
            raise ArgumentError(f"{what} is {shown(value)}, not an integer", remedy=_remedy_for_size(value))
        if type(bound) is int and not least <= int(number) <= bound:
            too_large = int(number) > bound
            raise ShapeError(
                f"{what} is {int(number)}, the padded arguments hold {least} to {bound}",
                remedy="pad the arguments to the largest size" if too_large else f"give a size of {least} or more",
            )
        value = number.astype(np.int32)
    array = value if isinstance(value, Array) else asarray(value)
    if array.aval.shape or array.aval.dtype.kind not in "iu":
        raise ShapeError(f"{what} is {array.aval}, not a single integer", remedy=_remedy_for_size(array))
    return array.astype("int32") if array.aval.dtype.itemsize < 4 else array  # int8 has no number to compare with 200


def _to_int32(size: Array) -> Array:
    """Return a size as an i32[] array. One that int32 does not hold stays out of range on the same side."""
    if size.dtype is dtypes.int32:
        return size
    return size.clip(None if size.dtype in dtypes.UNSIGNED else -1, INT32_MAX).astype("int32")


def _check_dimensions(
    what: str, program: Program[..., object], user_names: Mapping[str, str], sizes: Mapping[str, object] | None
) -> None:
    """Raise ShapeError for sizes for which a dimension of an argument, as n - m, is negative."""
    values: dict[str, int] = {}
    for name in _least_sizes(program):
        x = (sizes or {}).get(user_names.get(name, name))
        if isinstance(x, int | np.ndarray | np.generic) and type(x) is not Size:
            values[name] = int(x)
    for aval, path in zip(program.in_avals, program.paths, strict=True):
        for axis, n in enumerate(aval.shape):
            names = names_of(n)
            if at_least(n, 0) or any([name.name not in values for name in names]):
                continue
            value = substitute_sizes(n, values)
            if value < 0:
                stated = ", ".join([f"{user_names.get(name.name, name.name)} = {values[name.name]}" for name in names])
                raise ShapeError(
                    f"{what}: size {axis} of argument {path} is {n}, which is {value} for {stated}",
                    remedy="give sizes for which each dimension is 0 or more",
                )


def _remedy_for_size(value: object) -> str:
    """Return the remedy for a value that is not a size."""
    if isinstance(value, list | tuple) or (isinstance(value, Array | np.ndarray) and value.ndim):
        return "sizes of a batch are mapped: vmap(lambda x, n: masked(x, sizes={'n': n}))(xs, lengths)"
    return "give an int, or an array of one integer"


def _with_size_check(name: str, size: str, least: int, bound: int, value: Array) -> Array:
    return error_if(
        value,
        (value < least) | (value > bound),
        f"mask of {name}: the size {size} is {{}}, the padded arguments hold {least} to {bound}",
        value,
    )
