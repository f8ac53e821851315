"""`sparsity`, `sparse_jacobian`, `sparse_hessian`: patterns of derivatives, and derivatives by few products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from math import prod
from typing import Any, Final, NamedTuple, ParamSpec, final, overload

import numpy as np

from fxad import numpy as fnp
from fxad.api.chosen_arguments import ChosenArguments, check_types_for_forward_mode, operand_flags
from fxad.api.decorator_form import check_options
from fxad.api.directional import linearize, vjp
from fxad.api.gradients import grad
from fxad.api.lift import (
    before_differentiation,
    bind_static_arguments,
    check_function,
    lift,
    trace_for_transform,
)  # fmt: skip
from fxad.api.vmap import vmap
from fxad.core.trees import classes as tree_classes, tree
from fxad.dtypes import COMPLEX
from fxad.errors import ArgumentError, NotDifferentiableError, ShapeError, SizeError, TracerError, described, shown
from fxad.ir import distinct_jaxprs
from fxad.lax.barrier import optimization_barrier
from fxad.lax.binary import rem
from fxad.lax.implicit.sparse import product_of_entries
from fxad.primitives.custom import rules_of
from fxad.tracing.array import Array, asarray
from fxad.tracing.program import Program, fit_leaves, function_name, leaves_of_call
from fxad.tracing.static_args import Argnums, static_arguments
from fxad.tracing.trace import trace_for_call
from fxad.tracing.tracer import Tracer
from fxad.transforms.sparse.decompression import SYMMETRIC, Coloring, Decompression
from fxad.transforms.sparse.pattern import (
    Pattern,
    check_pattern,
    keep_alive_with,
    last_derivative,
    last_pattern,
    pattern_of,
    pattern_with_values,
    places_in_products,
)

P = ParamSpec("P")


_DENSE: Final = "make an array of it with to_dense(), or a matrix of SciPy with to_scipy()"


@final
class Sparse:
    """A sparse matrix: the data of its entries in CSR order, and their pattern.

    It is a pytree: `data` is its leaf, of shape (*batch, nnz), and the pattern is static.
    """

    __slots__ = ("data", "pattern")
    __array_priority__ = 1000

    data: Any
    pattern: Pattern

    def __init__(self, data: Any, pattern: Pattern) -> None:
        if not isinstance(pattern, Pattern):
            raise ArgumentError(f"Sparse: pattern is {described(pattern)}: {shown(pattern)}", remedy="give a Pattern")
        data = asarray(data)
        if not data.shape or data.shape[-1] != pattern.nnz:
            raise ShapeError(
                f"Sparse: data has shape {data.shape}, the pattern has {pattern.nnz} entries",
                remedy="give one element for each entry, in CSR order, on the last axis",
            )
        self.data, self.pattern = data, pattern

    @classmethod
    def _of(cls, data: Any, pattern: Pattern) -> Sparse:
        made = object.__new__(cls)
        made.data, made.pattern = data, pattern
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, after that of a batch."""
        return (*self.data.shape[:-1], *self.pattern.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the data."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return self.pattern.nnz

    @property
    def T(self) -> Sparse:  # noqa: N802
        """The transposed matrix."""
        rows, columns = self.pattern.rows, self.pattern.indices
        return Sparse._of(self.data[..., np.lexsort((rows, columns))], self.pattern.T)

    def block(self, result: int, argument: int) -> Sparse:
        """Return the block of one leaf of the results with respect to one leaf of the arguments, by their numbers."""
        part, p = self.pattern.block(result, argument), self.pattern
        top = sum([prod(s) for s in p.row_shapes[:result]])
        left = sum([prod(s) for s in p.column_shapes[:argument]])
        columns = (p.indices >= left) & (p.indices < left + part.shape[1])
        chosen = np.flatnonzero(columns & (p.rows >= top) & (p.rows < top + part.shape[0]))
        return Sparse._of(self.data[..., chosen.astype(np.int32)], part)

    def to_scipy(self) -> Any:
        """Return a `scipy.sparse.csr_array`. Raises: ShapeError for a batch."""
        if self.data.ndim != 1:
            raise ShapeError(f"to_scipy: takes one matrix, got shape {self.shape}", remedy="take one of the batch")
        sparse, p = import_module("scipy.sparse"), self.pattern
        return sparse.csr_array((np.asarray(self.data), p.indices, p.indptr), shape=p.shape)

    def to_dense(self) -> Array:
        """Return the matrix as an array."""
        m, n = self.pattern.shape
        flat = fnp.zeros((*self.data.shape[:-1], m * n), self.dtype)
        places = self.pattern.rows * n + self.pattern.indices
        return flat.at[..., places].set(self.data).reshape((*self.data.shape[:-1], m, n))

    def __matmul__(self, other: Any) -> Any:
        """The product with a vector or a matrix."""
        if isinstance(other, Sparse):
            raise ArgumentError(
                f"Sparse @ Sparse: shapes {self.shape} and {other.shape}: the right operand is not an array",
                remedy="take other.to_dense(), or multiply matrices of SciPy: to_scipy()",
            )
        x = asarray(other)
        m, n = self.pattern.shape
        if self.data.ndim != 1 or x.ndim not in (1, 2) or x.shape[0] != n:
            raise ShapeError(
                f"Sparse @ array: shapes {self.shape} and {x.shape} do not fit",
                remedy="the first axis of a vector or matrix is that of the columns; use vmap for batches",
            )
        return product_of_entries(self.data, self.pattern.rows, self.pattern.indices, m, x)

    def __rmatmul__(self, other: Any) -> Any:
        """The product of a vector, or of the rows of a matrix, with this matrix."""
        x = asarray(other)
        if self.data.ndim != 1 or x.ndim not in (1, 2) or x.shape[-1] != self.pattern.shape[0]:
            raise ShapeError(
                f"array @ Sparse: shapes {x.shape} and {self.shape} do not fit",
                remedy="the last axis of a vector or matrix is that of the rows; use vmap for batches",
            )
        return (self.T @ x.T).T

    def __mul__(self, factor: Any) -> Sparse:
        """The matrix times a scalar."""
        if fnp.ndim(factor):
            raise ShapeError(
                f"Sparse * array: the factor has shape {fnp.shape(factor)}, not ()", remedy="use @ for a product"
            )
        return Sparse._of(self.data * factor, self.pattern)

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> Sparse:
        """The matrix divided by a scalar."""
        if fnp.ndim(factor):
            raise ShapeError(
                f"Sparse / array: the divisor has shape {fnp.shape(factor)}, not ()",
                remedy="divide by a scalar, or divide the data",
            )
        return Sparse._of(self.data / factor, self.pattern)

    def __neg__(self) -> Sparse:
        return Sparse._of(-self.data, self.pattern)

    def sum(self, axis: int | None = None) -> Array:
        """Return the sum of all entries, of each column (axis 0) or of each row (axis 1)."""
        if axis is None:
            return fnp.sum(self.data, -1)
        if axis not in (0, 1, -1, -2):
            raise ArgumentError(f"Sparse.sum: axis is {shown(axis)}", remedy="0 or 1")
        m, n = self.pattern.shape
        places, size = (self.pattern.indices, n) if axis in (0, -2) else (self.pattern.rows, m)
        return fnp.zeros((*self.data.shape[:-1], size), self.dtype).at[..., places].add(self.data)

    def __array__(self, *_args: object, **_kwargs: object) -> Any:
        raise ArgumentError(f"numpy.asarray: a Sparse of shape {self.shape} is not an array", remedy=_DENSE)

    def __repr__(self) -> str:
        return f"Sparse({self.data!r}, {self.pattern!r})"


tree_classes.register(
    Sparse,
    lambda s: ((s.data,), (s.pattern.key,), ("data",)),
    lambda data, children: Sparse._of(next(iter(children)), Pattern.of_key(data[0])),
)

tree_classes.register(
    Pattern,
    lambda p: ((), (p.key, p.notes), ()),
    lambda data, _: Pattern.of_key(*data),
)

# ---------------------------------------------------------------------------------------------------------- patterns


def sparsity(f: Callable[..., object], argnums: Argnums = 0, *, at: Sequence[object] | None = None) -> Pattern:
    """Return the pattern of the Jacobian of a program: which of its entries may differ from zero.

    The pattern holds for all values of the arguments; closed-over indices and masks are read as values. With `at`, a
    tuple of the arguments, indices, masks and branches are those at these values. In a loop, indices that are known are
    read for each step. A function that is no program needs `at`, for the types of its arguments; `trace(f, *specs)` does
    without. Rows are the elements of all results, columns those of the chosen arguments; `pattern.block(i, j)` is that of
    two leaves.

    Law:    every nonzero of the Jacobian is in the pattern.
    Rule:   the pattern of the linear program of `linearize`; so `sparsity(grad(program))` is that of the Hessian.
    Raises: NotDifferentiableError for integer results and arguments; ArgumentError.
    """
    program, args = program_and_point("sparsity", f, at)
    return _pattern("sparsity", program, argnums, args)


def program_and_point(
    what: str, f: Callable[..., object], at: Sequence[object] | None
) -> tuple[Program[..., object], Any]:
    """Return a function or program as a program, and the values of its arguments, if they are given."""
    if at is not None:
        _check_tuple(what, at)
    if isinstance(f, Program):
        return before_differentiation(f), at
    check_function(what, f)
    if at is None:
        raise ArgumentError(
            f"{what}: a function has no types of arguments", remedy=f"{what}(trace(f, *specs)), or give at=(x, ...)"
        )
    g, at, _ = bind_static_arguments(what, f, static_arguments(f"{what} of {function_name(f)}", f), tuple(at), {})
    return trace_for_transform(g, at, {}), at


def _check_tuple(what: str, at: object) -> None:
    if not isinstance(at, tuple | list):
        raise ArgumentError(f"{what}: at is {described(at)}, not a tuple", remedy="give all arguments: at=(x, y)")


def values_at(what: str, program: Program[..., object], at: Sequence[object]) -> list[Any]:
    """Return the leaves of `at`, all arguments of a program, its keyword arguments after the positional ones.

    Raises: ArgumentError for another number of leaves, TreeError, ShapeError, DTypeError for other types.
    """
    _check_tuple(what, at)
    leaves = tree.leaves((tuple(at), {}))
    if len(leaves) != len(program.in_avals):
        raise ArgumentError(
            f"{what}: at has {len(leaves)} leaves, {program.name} takes {len(program.in_avals)}",
            remedy="give all arguments of the program",
        )
    return fit_leaves(program, leaves if program.kwargs_tree.num_leaves else leaves_of_call(program, tuple(at), {}))


def _arguments_of_jacobian(what: str, program: Program[..., object], argnums: Argnums) -> ChosenArguments:
    """Return the arguments of a Jacobian. Raises: NotDifferentiableError for integers among them or
    the results, SizeError for symbolic sizes."""
    if program.jaxpr.symbolic:
        raise SizeError(
            f"{what}: {program.name} is of symbolic shape: a pattern has numbers of rows and columns",
            remedy="give its sizes: specialize(program, n=...)",
        )
    chosen = ChosenArguments.by_number(what, program, argnums)
    for k in chosen.leaves:
        if not program.in_avals[k].inexact:
            raise NotDifferentiableError(
                f"{what}: argument {program.paths[k]} of {program.name} has type {program.in_avals[k]}, not floating",
                remedy="choose other argnums, or convert the argument to a floating dtype",
            )
    for k, aval in enumerate(program.out_avals):
        if not aval.inexact:
            raise NotDifferentiableError(
                f"{what}: result {k} of {program.name} has type {aval}, which has no derivative",
                remedy="return floating results only",
            )
    if chosen.leaves != sorted(chosen.leaves):
        raise ArgumentError(f"{what}: argnums {argnums!r} are not in increasing order", remedy="sort them")
    return chosen


def _pattern(what: str, program: Program[..., object], argnums: Argnums, at: Sequence[object] | None) -> Pattern:
    chosen = _arguments_of_jacobian(what, program, argnums)
    flags = operand_flags(program, chosen.leaves)
    values = [*program.bound, *([None] * len(program.in_avals) if at is None else values_at(what, program, at))]
    if all([v is None for v in values]):
        return pattern_of(program.jaxpr, flags)
    last = last_pattern(program.jaxpr, flags)
    if (cached := last.of(values)) is not None:
        return cached
    known = [(lambda v=v: None if v is None else _concrete(v)) for v in values]
    pattern = pattern_with_values(program.jaxpr, flags, known)
    if all(
        [v is None or isinstance(v, np.ndarray) or (isinstance(v, Array) and not isinstance(v, Tracer)) for v in values]
    ):
        last.set(values, pattern)
    return pattern


def _concrete(value: object) -> Any:
    """Return the value of an argument, or None for that of an enclosing trace."""
    try:
        return np.asarray(value)
    except TracerError:
        return None


# ------------------------------------------------------------------------------------------------------- derivatives


@overload
def sparse_jacobian(
    f: Program[P, object],
    pattern: Pattern | None = None,
    coloring: Coloring | None = None,
    argnums: Argnums = 0,
    *,
    at: Sequence[object] | None = None,
    check: bool = False,
    holomorphic: bool = False,
) -> Program[P, Sparse]: ...


@overload
def sparse_jacobian(
    f: Callable[P, object],
    pattern: Pattern | None = None,
    coloring: Coloring | None = None,
    argnums: Argnums = 0,
    *,
    at: Sequence[object] | None = None,
    check: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Sparse]: ...


def sparse_jacobian(
    f: Callable[..., object],
    pattern: Pattern | None = None,
    coloring: Coloring | None = None,
    argnums: Argnums = 0,
    *,
    at: Sequence[object] | None = None,
    check: bool = False,
    holomorphic: bool = False,
) -> object:
    """Return the function or program of the Jacobian as a `Sparse` matrix, by one product for each color.

    Without `pattern` it is `sparsity(f)`, and without `coloring` it is `pattern.color()`. With `at`, indices and masks
    are those at these values. With `check`, one random product is compared when it runs, and the data are nan if it
    differs.

    Results may be complex; for complex arguments, `holomorphic` says that `f` is a holomorphic function. A coloring of the
    kind "star" or "acyclic" is for a matrix with symmetric values, whose entries it reads from either triangle: it has
    the check unless the matrix is known to be symmetric, as that of `sparse_hessian` without custom rules.

    Law:    `to_dense` is `jacfwd`, its leaves as one matrix.
    Raises: ShapeError for a pattern of another shape, ArgumentError for a coloring of another pattern;
            NotDifferentiableError for integers, and for complex arguments of a function that is not `holomorphic`.
    """
    return _lifted("sparse_jacobian", f, _sparse_program, _Options(pattern, coloring, argnums, at, check, holomorphic))


@overload
def sparse_hessian(
    f: Program[P, object],
    pattern: Pattern | None = None,
    coloring: Coloring | None = None,
    argnums: Argnums = 0,
    *,
    at: Sequence[object] | None = None,
    check: bool = False,
    holomorphic: bool = False,
) -> Program[P, Sparse]: ...


@overload
def sparse_hessian(
    f: Callable[P, object],
    pattern: Pattern | None = None,
    coloring: Coloring | None = None,
    argnums: Argnums = 0,
    *,
    at: Sequence[object] | None = None,
    check: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Sparse]: ...


def sparse_hessian(
    f: Callable[..., object],
    pattern: Pattern | None = None,
    coloring: Coloring | None = None,
    argnums: Argnums = 0,
    *,
    at: Sequence[object] | None = None,
    check: bool = False,
    holomorphic: bool = False,
) -> object:
    """Return the function or program of the Hessian as a `Sparse` matrix: `sparse_jacobian` of the gradient.

    Without `coloring`, a symmetric pattern may have a star coloring: an entry is read from the product of its column, or
    of its row. A function with custom derivative rules gets a coloring of columns or rows: its derivatives need not be
    symmetric.

    Law:    `to_dense` is `hessian`, its leaves as one matrix.
    Raises: as `sparse_jacobian`; ArgumentError for a result that is not a scalar.
    """
    options = _Options(pattern, coloring, argnums, at, check, holomorphic)
    return _lifted("sparse_hessian", f, _hessian_program, options, 2)


class _Options(NamedTuple):
    """The arguments of `sparse_jacobian` and `sparse_hessian` after the function."""

    pattern: Pattern | None
    coloring: Coloring | None
    argnums: Argnums
    at: Sequence[object] | None
    check: bool
    holomorphic: bool


def _lifted(
    what: str, f: Callable[..., object], transform: Callable[..., Program[..., Any]], options: _Options, orders: int = 1
) -> object:
    """Return `lift` of a transformation; with `at`, of a function whose numbers are operands, as those of `at` are."""
    check_options(what, (options.pattern, options.coloring, options.argnums))
    if options.at is None or isinstance(f, Program):
        return lift(what, f, lambda p: transform(what, p, options), orders, options.argnums)
    check_function(what, f)
    _check_tuple(what, options.at)
    statics = static_arguments(f"{what} of {function_name(f)}", f)

    @wraps(f, updated=())
    def derivative(*args: object, **kwargs: object) -> object:
        g, args, kwargs = bind_static_arguments(what, f, statics, args, kwargs, options.argnums)
        at = tuple(options.at or ())
        if statics is not None:
            _, at, _ = statics.with_placeholders(at, {})
        program = trace_for_transform(g, args, kwargs, orders)
        return transform(what, program, options._replace(at=at))(*args, **kwargs)

    return derivative


def _hessian_program(what: str, f: Program[..., Any], options: _Options) -> Program[..., Any]:
    symmetric = not any(
        [rules_of(eqn.prim).has_derivative for body in distinct_jaxprs(f.jaxpr) for eqn in body.eqns]
    )  # fmt: skip
    of_program: Any = grad(f, options.argnums, holomorphic=options.holomorphic)
    return _sparse_program(what, before_differentiation(of_program), options, symmetric)


def _sparse_program(
    what: str, program: Program[..., object], options: _Options, symmetric: bool = False
) -> Program[..., Any]:
    """Return the program of the Jacobian of a program, which may be known to be symmetric."""
    chosen = _arguments_of_jacobian(what, program, options.argnums)
    check_types_for_forward_mode(what, program, chosen.leaves, options.holomorphic)
    shape = (sum([a.size for a in program.out_avals]), sum([program.in_avals[k].size for k in chosen.leaves]))
    if options.pattern is None:
        pattern = _pattern(what, program, options.argnums, options.at)
    else:
        pattern = check_pattern(what, options.pattern, shape)
    colors = _coloring_for(what, program, pattern, options, symmetric)
    check = options.check or (colors.kind in SYMMETRIC and not symmetric)
    last = last_derivative(program.jaxpr, (program.in_tree, program.out_tree, tuple(chosen.leaves), check))
    # Of a program that closes over arrays it is not kept: the arrays, and tracers among them, would live as long.
    made: Any = None if program.bound else last.of(pattern, colors)
    if made is None:
        args, kwargs = program.args_info
        dtype = fnp.result_type(*[a.dtype for a in program.out_avals or program.in_avals])
        made = trace_for_call(_derivative_by_products(chosen, pattern, colors, check, dtype), args, kwargs)
        if not program.bound:
            last.set(pattern, colors, made)
    keep_alive_with(made.jaxpr, program.jaxpr, pattern)
    return Program(made.jaxpr, made.in_tree, made.out_tree, made.bound, program.names, f"sparse_{program.name}")


def _coloring_for(
    what: str, program: Program[..., object], pattern: Pattern, options: _Options, symmetric: bool
) -> Coloring:
    """Return the coloring of a pattern: the given one, or that of fewest products."""
    # the vjps of a function from real to complex numbers are real: they give a part of the entries
    jvps_only = not options.holomorphic and any([a.dtype in COMPLEX for a in program.out_avals])
    if options.coloring is not None:
        colors = options.coloring
    else:
        colors = pattern.color("columns") if jvps_only else pattern.color(symmetric=symmetric and pattern.symmetric)
    _check_coloring(what, colors, pattern)
    if jvps_only and colors.vjps:
        raise NotDifferentiableError(
            f"{what}: a result of {program.name} is complex and its arguments are real: {colors!r} has products of rows,"
            " which are real",
            remedy='give a coloring of columns: pattern.color("columns")',
        )
    return colors


def _derivative_by_products(
    chosen: ChosenArguments, pattern: Pattern, colors: Coloring, check: bool, dtype: Any
) -> Callable[..., Sparse]:
    """Return the function of the Jacobian: a jvp for each color of columns and a vjp for each color of rows, of which
    each entry is read. `dtype` is that of a matrix without entries."""
    jvps, vjps = colors.jvps, colors.vjps
    places, where = places_in_products(pattern, colors)

    def derivative(*args: object, **kwargs: object) -> Sparse:
        of_chosen, values = chosen.function(args, kwargs), chosen.of_call(args, kwargs)
        leaves, structure = tree.flatten(tuple(values))
        products: list[Array] = []
        push: Any = None
        if jvps or check:
            _, push = linearize(of_chosen, *values)
        if jvps:
            products += _products(
                lambda *t: push(*tree.unflatten(structure, t)), colors.columns, leaves, _stacked(push, jvps)
            )
        if vjps:
            out, pull = vjp(of_chosen, *values)
            outs, out_tree = tree.flatten(out)
            products += _products(lambda *c: pull(tree.unflatten(out_tree, c)), colors.rows, outs, _stacked(pull, vjps))
        data = _entries(products, places, where) if pattern.nnz else fnp.zeros(0, dtype)
        result = Sparse._of(data, pattern)
        return Sparse._of(_data_or_nan(result, push, structure, leaves), pattern) if check else result

    return derivative


def _check_coloring(what: str, colors: object, pattern: Pattern) -> None:
    """Raise ArgumentError for what is not a coloring of a pattern."""
    if not isinstance(colors, Coloring) or colors.shape != pattern.shape:
        found = colors.shape if isinstance(colors, Coloring) else described(colors)
        raise ArgumentError(
            f"{what}: the coloring is of {found}, the pattern has shape {pattern.shape}",
            remedy="give a coloring of this pattern: pattern.color()",
        )


def _entries(products: Sequence[Array], places: Any, how: Decompression) -> Array:
    """Return the entries of a matrix, read from its products at `places`, each less those found before it."""
    whole = products[0] if len(products) == 1 else fnp.concatenate(products)
    data = whole[places]  # places are known: no index is compared while the program runs
    for target, source in how.levels:
        data = data.at[target].add(-data[source])
    return data if how.final is None else data[how.final]


_FEW_COLORS: Final = 16
_FEW_EQUATIONS: Final = 1024


def _stacked(linear: Any, count: int) -> bool:
    """Return True if the products of a linear program are computed as one stack.

    A few are computed apart: XLA runs the loops of a vector faster than those of a stack. Two shared cores, milliseconds
    apart and in a stack: chained Rosenbrock of 10^6 unknowns, 3 colors, 14 and 34; Brusselator of 131,072, 10 colors,
    3.7 and 5.2; a neural residual, 16 colors, 4.1 and 4.0 (`python -m benchmarks.sparse`).
    """
    equations = sum([len(body.eqns) for body in distinct_jaxprs(linear.jaxpr)])
    return count > _FEW_COLORS or count * equations > _FEW_EQUATIONS


def _products(apply: Callable[..., object], colors: Any, leaves: Sequence[Any], stacked: bool) -> list[Array]:
    """Return the products of a linear function with the indicators of the colors, as vectors in order."""
    count = int(colors.max()) + 1
    of_leaves = _colors_of_elements(colors, leaves)
    if stacked:
        stacks = vmap(apply)(*_seeds(of_leaves, leaves, np.arange(count, dtype=np.int32)))
        return [_ravel(stacks, batch=True).reshape(-1)]
    single = [_ravel(apply(*_seeds(of_leaves, leaves, k))) for k in range(count)]
    # Without the barrier XLA computes a product again for each entry that is read from it. Of the products as one vector
    # it makes one kernel; of single ones it looks for the product of each entry.
    return [optimization_barrier(fnp.concatenate(single))]


def _colors_of_elements(colors: Any, leaves: Sequence[Any]) -> list[Array]:
    """Return for each leaf the colors of its elements."""
    parts: list[Array] = []
    start = 0
    for x in leaves:
        part: Any = colors[start : start + x.size]
        modulus = int(part.max(initial=0)) + 1
        if np.array_equal(part, np.arange(len(part)) % modulus):  # of a band: no constant of its size
            numbers = fnp.arange(x.size, dtype=np.int32)
            # computed once: a division for each element of each product takes as long as the product
            parts.append(optimization_barrier(rem(numbers, fnp.full_like(numbers, modulus))))
        else:
            parts.append(asarray(part))
        start += x.size
    return parts


def _seeds(of_leaves: Sequence[Array], leaves: Sequence[Any], color: Any) -> list[Array]:
    """Return for each leaf the indicator of a color, or a stack of those of several colors."""
    stack: tuple[int, ...] = np.shape(color)
    chosen = np.reshape(color, (*stack, 1)).astype(np.int32)
    return [
        (colors == chosen).astype(x.dtype).reshape((*stack, *x.shape))
        for colors, x in zip(of_leaves, leaves, strict=True)
    ]


def _ravel(values: object, batch: bool = False) -> Array:
    """Return the leaves as one vector, or the leaves of stacks as one array (stack, elements)."""
    parts = [x.reshape((x.shape[0], -1) if batch else (-1,)) for x in tree.leaves(values)]
    return parts[0] if len(parts) == 1 else fnp.concatenate(parts, -1)


def _data_or_nan(matrix: Sparse, push: Any, structure: Any, leaves: Sequence[Any]) -> Array:
    """Return the data of a matrix, or nan if its product with one vector differs from the tangent."""
    generator = np.random.default_rng(20240131)
    directions = [asarray(generator.standard_normal(x.shape).astype(x.dtype)) for x in leaves]
    want = _ravel(push(*tree.unflatten(structure, directions)))
    vector = _ravel(directions)
    got = matrix @ vector
    size = fnp.abs(Sparse._of(fnp.abs(matrix.data), matrix.pattern) @ fnp.abs(vector)) + fnp.abs(want)
    # a product in half precision is compared with fewer units, so that a missed entry is not below them
    tolerance = min(1e3 * float(fnp.finfo(want.dtype).eps), 0.125)
    close = fnp.abs(got - want) <= tolerance * size
    return fnp.where(fnp.all(close), matrix.data, fnp.full((), np.nan, matrix.dtype))
