"""`jet`: Taylor series of programs and functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import factorial
from typing import Any, Final, ParamSpec, TypeVar, overload

from fxad.api.chosen_arguments import operand_flags
from fxad.api.directional import Primals, as_tuple, inexact_positional, with_number_tangents
from fxad.api.lift import (
    before_differentiation,
    check_function,
    check_no_statics,
    tangent_tree,
    trace_at_values,
)
from fxad.core.trees import tree
from fxad.errors import ArgumentError, shown
from fxad.ir import Lit
from fxad.operations.arguments import flag, plain_ints
from fxad.primitives.control.bodies import reorder_operands
from fxad.tracing.program import Program, SeriesName, function_name
from fxad.tracing.static_args import Argnames, Argnums, static_arguments
from fxad.transforms.jet.jet import jet as series_of_jaxpr

P = ParamSpec("P")
R = TypeVar("R")

# Coefficients 1, 2, ... of arguments, each a tuple with an entry per argument.
Coefficients = Sequence[Any]

_EXAMPLE: Final = "jet(f, (x, y), ((x_1, y_1), (x_2, y_2)))"


@overload
def jet(
    f: Program[P, R], /, *, order: int, given: int | None = None
) -> Program[[Primals, tuple[Primals, ...]], tuple[R, tuple[R, ...]]]: ...
@overload
def jet(
    f: Callable[P, R], /, *, order: int, static_argnums: Argnums = (), static_argnames: Argnames = ()
) -> Callable[..., tuple[R, tuple[R, ...]]]: ...
@overload
def jet(
    f: Callable[P, R],
    /,
    primals: Primals,
    series: Coefficients,
    *,
    order: int | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: Any,
) -> tuple[R, tuple[R, ...]]: ...
def jet(
    f: Callable[..., object],
    /,
    primals: Primals | None = None,
    series: Coefficients | None = None,
    *,
    order: int | None = None,
    given: int | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: Any,
) -> object:
    """Taylor series: a function of (primals, series) that gives (results, series of results).

    `series` is a tuple: entry k - 1 has the tree of the arguments and is the coefficient of t^k of the curve
    x(t) = primals + series[0] t + series[1] t^2 + ...; those that are left out, up to `order`, are zero. The result has
    `order` coefficients of f(x(t)). Coefficients are derivatives divided by factorials: coefficient k is the k-th
    derivative in t at 0, divided by k!. None stands for a leaf without a tangent, as in `jvp`.

    `jet(f, primals, series)` calls it at once, with the order of the series by default. A program takes the first
    `given` coefficients, by default all. `fxad.experimental.jet.jet` is JAX's: it takes derivatives, with an entry of
    `series` for each argument.

    No primitive needs a rule: that of order k follows from its `jvp`. Where a function is smooth in pieces, such as
    `relu`, the derivatives are those of its pieces.

    Law:    of order 1 it is `jvp`, the same program; the coefficients are those of nested `jvp`.
    Cost:   at most quadratic in the order, for each equation.
    Raises: ArgumentError for an order that is no int >= 1, or more coefficients than that; NotDifferentiableError, and
            TreeError, ShapeError, DTypeError when a coefficient does not fit its argument.
    """
    if isinstance(f, Program):
        check_no_statics("jet", f, static_argnums, static_argnames)
        if order is None:
            order = _length(series)
        order = check_order("jet", order)
        given = order if given is None and series is None else _length(series) if given is None else given
        transformed: Callable[..., object] = jet_of_program(
            before_differentiation(f), order, _check_number_of_coefficients(given, order)
        )
        return (
            transformed
            if primals is None and series is None
            else transformed(as_tuple("jet", "primals", primals, _EXAMPLE), _series_tuple(series), **kwargs)
        )
    check_function("jet", f)
    if given is not None:
        raise ArgumentError(
            "jet: `given` is for programs", remedy="a function takes as many coefficients as it is given"
        )
    if primals is None and series is None and not kwargs:
        fixed = check_order("jet", order)
        return lambda primals, series, /, **kwargs: jet(
            f, primals, series, order=fixed, static_argnums=static_argnums, static_argnames=static_argnames, **kwargs
        )
    return _jet_of_function(f, primals, series, order, static_argnums, static_argnames, kwargs)


def _jet_of_function(
    f: Callable[..., object],
    primals: object,
    series: object,
    order: int | None,
    static_argnums: Argnums,
    static_argnames: Argnames,
    kwargs: dict[str, object],
) -> object:
    primals, coefficients = as_tuple("jet", "primals", primals, _EXAMPLE), _series_tuple(series)
    order = check_order("jet", len(coefficients) if order is None else order)
    _check_number_of_coefficients(len(coefficients), order)
    coefficients = tuple([as_tuple("jet", f"series[{k}]", c, _EXAMPLE) for k, c in enumerate(coefficients)])
    statics = static_arguments(f"jet of {function_name(f)}", f, static_argnums, static_argnames)
    program, primals, kwargs = trace_at_values("jet", f, statics, primals, kwargs, orders=order)
    fitted = tuple([with_number_tangents(program, primals, c) for c in coefficients])
    return jet_of_program(program, order, len(fitted))(primals, fitted, **kwargs)


def check_order(what: str, order: object) -> int:
    """Return an order as an int. Raises: ArgumentError."""
    plain = plain_ints(order)
    if isinstance(plain, bool) or not isinstance(plain, int) or plain < 1:
        raise ArgumentError(
            f"{what}: the order is {shown(order)}, not an int >= 1",
            remedy="give the number of coefficients beyond the value; the value itself is that of the function",
        )
    return plain


def _check_number_of_coefficients(given: object, order: int) -> int:
    plain = plain_ints(given)
    if isinstance(plain, bool) or not isinstance(plain, int) or not 1 <= plain <= order:
        raise ArgumentError(
            f"jet: {shown(given)} coefficients are given, and the order is {order}",
            remedy="give at least one coefficient, and at most as many as the order; the others are zero",
        )
    return plain


def _length(series: object) -> int | None:
    return None if series is None else len(_series_tuple(series))


def _series_tuple(series: object) -> tuple[Any, ...]:
    if not isinstance(series, tuple | list):
        raise ArgumentError(
            f"jet: series is {shown(series)}, not a tuple with an entry per order",
            remedy="jet(f, (x, y), ((x_1, y_1), (x_2, y_2)))",
        )
    return tuple(series)


def jet_of_program(
    program: Program[..., object], order: int, n_coefficients: int, composed: bool = False
) -> Program[..., Any]:
    """Return the program of a series, which takes the first `n_coefficients` coefficients of the arguments. `composed`: see
    `transforms.jet`."""
    args, kwargs = program.args_tree, program.kwargs_tree
    flags = operand_flags(program, inexact_positional(program))
    pattern = tuple([tuple([m and k < n_coefficients for k in range(order)]) for m in flags])
    fused, has = series_of_jaxpr(program.jaxpr, pattern, composed)
    n_bound, n_args, n_in, n_inexact = len(program.bound), args.num_leaves, len(program.jaxpr.ins), sum(flags)
    # operands: bound, args, kwargs, coefficients by operand -> bound, args, coefficients by order, kwargs
    by_order = [n_in + i * n_coefficients + k for k in range(n_coefficients) for i in range(n_inexact)]
    first, last = range(n_bound + n_args), range(n_bound + n_args, n_in)
    fused = reorder_operands(fused, (*first, *by_order, *last))
    outs = program.out_avals
    coefficients = iter(fused.outs[len(outs) :])
    rows = [[next(coefficients) if m else Lit.zero(a) for m in marks] for a, marks in zip(outs, has, strict=True)]
    of_orders = [row[k] for k in range(order) for a, row in zip(outs, rows, strict=True) if a.inexact]
    jaxpr = fused.with_outs((*fused.outs[: len(outs)], *of_orders))
    tangents = tangent_tree(args, program.in_avals[:n_args])
    out_tangents = tangent_tree(program.out_tree, outs)
    return Program(
        jaxpr,
        tree.call_structure(tree.tuple_structure(args, tree.tuple_structure(*[tangents] * n_coefficients)), kwargs),
        tree.tuple_structure(program.out_tree, tree.tuple_structure(*[out_tangents] * order)),
        program.bound,
        ("primals", SeriesName("series")),
        f"jet_{program.name}",
    )


# ------------------------------------------------------------------------------------- the convention of JAX


def jet_of_derivatives(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    *,
    factorial_scaled: bool = True,
    **kwargs: object,
) -> tuple[Any, Any]:
    """Return the value of `fun` and the derivatives of `fun(x(t))` in t at 0.

    `series` has an entry for each argument: the list of the derivatives of x(t), of orders 1, 2, ...; all lists have one
    length. The result has such a list in place of each leaf of the value. With `factorial_scaled=False` both are Taylor
    coefficients, as in `fx.jet`: derivatives divided by factorials.

    Raises: ArgumentError for lists of different lengths, or empty ones; as `fx.jet`.
    """
    scaled = flag("jet", "factorial_scaled", factorial_scaled)
    if not isinstance(primals, Sequence) or not isinstance(series, Sequence) or len(primals) != len(series):
        raise ArgumentError(
            f"jet: primals are {shown(primals)} and series are {shown(series)}, not two sequences of one length",
            remedy="give the list of derivatives of each argument: jet(f, (x, y), ((x_1, x_2), (y_1, y_2)))",
        )
    lengths = {len(terms) for terms in series}
    if len(lengths) != 1 or lengths == {0}:
        raise ArgumentError(
            f"jet: the series have the lengths {[len(terms) for terms in series]}",
            remedy="give as many derivatives of each argument, at least one; the order is their number",
        )
    (order,) = lengths

    def divided(term: Any, k: int) -> Any:
        return tree.map(lambda c: c / factorial(k) if k > 1 and scaled else c, term)

    coefficients = tuple([tuple([divided(terms[k - 1], k) for terms in series]) for k in range(1, order + 1)])
    out, higher = jet(partial(fun, **kwargs) if kwargs else fun, tuple(primals), coefficients)
    leaves, structure = tree.flatten(out)
    rows = [tree.flatten_up_to(structure, c) or [] for c in higher]
    terms = [
        [
            None if row[i] is None else row[i] * factorial(k) if k > 1 and scaled else row[i]
            for k, row in enumerate(rows, 1)
        ]
        for i in range(len(leaves))
    ]
    return out, tree.unflatten(structure, terms)
