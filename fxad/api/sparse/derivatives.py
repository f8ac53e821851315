"""`sparse_jacobian`, `sparse_hessian`: derivatives as sparse matrices, from a pattern and a coloring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, overload

from fxad import numpy as fnp
from fxad.api.decorator_form import check_options
from fxad.api.differentiated_arguments import check_types_for_forward_mode
from fxad.api.gradients import grad
from fxad.api.lift import before_differentiation, bind_static_arguments, check_function, lift, trace_for_transform
from fxad.api.sparse.matrix import Sparse
from fxad.api.sparse.products import derivative_by_products
from fxad.api.sparse.sparsity import arguments_of_jacobian, check_is_tuple, pattern_of_jacobian
from fxad.dtypes import COMPLEX
from fxad.errors import ArgumentError, NotDifferentiableError, described
from fxad.ir import distinct_jaxprs
from fxad.primitives.custom import rules_of
from fxad.tracing.program import Program, function_name
from fxad.tracing.static_args import Argnums, static_arguments
from fxad.tracing.trace import trace_for_call
from fxad.transforms.sparse.decompression import SYMMETRIC, Coloring
from fxad.transforms.sparse.pattern import Pattern, check_pattern
from fxad.transforms.sparse.records import keep_alive_with, last_derivative

P = ParamSpec("P")


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
    return _lifted(
        "sparse_jacobian", f, _jacobian_program, _Options(pattern, coloring, argnums, at, check, holomorphic)
    )


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
    check_is_tuple(what, options.at)
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
    gradient: Any = grad(f, options.argnums, holomorphic=options.holomorphic)
    return _jacobian_program(what, before_differentiation(gradient), options, symmetric)


def _jacobian_program(
    what: str, program: Program[..., object], options: _Options, symmetric: bool = False
) -> Program[..., Any]:
    """Return the program of the Jacobian of a program, which may be known to be symmetric."""
    chosen = arguments_of_jacobian(what, program, options.argnums)
    check_types_for_forward_mode(what, program, chosen.leaves, options.holomorphic)
    shape = (sum([a.size for a in program.out_avals]), sum([program.in_avals[k].size for k in chosen.leaves]))
    if options.pattern is None:
        pattern = pattern_of_jacobian(what, program, options.argnums, options.at)
    else:
        pattern = check_pattern(what, options.pattern, shape)
    coloring = _coloring_for(what, program, pattern, options, symmetric)
    check = options.check or (coloring.kind in SYMMETRIC and not symmetric)
    last = last_derivative(program.jaxpr, (program.in_tree, program.out_tree, tuple(chosen.leaves), check))
    # The derivative of a program that closes over arrays is not recorded: the arrays, and tracers among them, would
    # live as long as the record.
    derivative: Any = None if program.bound else last.of(pattern, coloring)
    if derivative is None:
        args, kwargs = program.args_info
        dtype = fnp.result_type(*[a.dtype for a in program.out_avals or program.in_avals])
        derivative = trace_for_call(derivative_by_products(chosen, pattern, coloring, check, dtype), args, kwargs)
        if not program.bound:
            last.set(pattern, coloring, derivative)
    keep_alive_with(derivative.jaxpr, program.jaxpr, pattern)
    return Program(
        derivative.jaxpr, derivative.in_tree, derivative.out_tree, derivative.bound, program.names,
        f"sparse_{program.name}",
    )  # fmt: skip


def _coloring_for(
    what: str, program: Program[..., object], pattern: Pattern, options: _Options, symmetric: bool
) -> Coloring:
    """Return the coloring of a pattern: that of the options, or the one of fewest products."""
    # the vjps of a function from real to complex numbers are real: they give the real part of the entries
    jvps_only = not options.holomorphic and any([a.dtype in COMPLEX for a in program.out_avals])
    if options.coloring is not None:
        coloring = options.coloring
    else:
        coloring = pattern.color("columns") if jvps_only else pattern.color(symmetric=symmetric and pattern.symmetric)
    _check_coloring(what, coloring, pattern)
    if jvps_only and coloring.vjps:
        raise NotDifferentiableError(
            f"{what}: a result of {program.name} is complex and its arguments are real: {coloring!r} has products of"
            " rows, which are real",
            remedy='give a coloring of columns: pattern.color("columns")',
        )
    return coloring


def _check_coloring(what: str, coloring: object, pattern: Pattern) -> None:
    """Raise ArgumentError for what is not a coloring of a pattern."""
    if not isinstance(coloring, Coloring) or coloring.shape != pattern.shape:
        of_what = coloring.shape if isinstance(coloring, Coloring) else described(coloring)
        raise ArgumentError(
            f"{what}: the coloring is of {of_what}, the pattern has shape {pattern.shape}",
            remedy="give a coloring of this pattern: pattern.color()",
        )
