"""Reductions by a function, over axes and over windows; and selections in windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np

from fxad.core import tree
from fxad.errors import ArgumentError, ShapeError, TreeError
from fxad.ir import Aval, Jaxpr, Lit, Shape
from fxad.lax.control.traced_functions import traced_body
from fxad.lax.convolution import Pairs, ints_per_axis, padding_pairs, padtype_to_pads
from fxad.operations import promotion, windows
from fxad.operations.arguments import to_ints
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from fxad.primitives.sliding import SlidingWindow, dilated_size
from fxad.tracing.array import Array, ArrayLike, aval_of, binder, is_scalar
from fxad.tracing.tracer import Tracer

T = TypeVar("T")


def reduce(operands: T, init_values: object, computation: Callable[..., object], dimensions: Sequence[int]) -> T:
    """Combine the elements along axes, which are removed.

    Type:   `operands` is an array, or a pytree of arrays of one shape; `init_values` is the same structure of scalars.
            `computation(a, b)` takes two such structures of scalars and returns one. It must be associative, and the
            initial values must be its identity elements.
    Rule:   if `computation` is one addition, product, maximum, minimum or logical operation, this is that reduction,
            with its derivative, for any initial value. Any other reduction has no derivative.
    Raises: TreeError, ArgumentError, ShapeError, DTypeError.
    """
    xs, structure, body, values, known = _reduction_operands("reduce", operands, init_values, computation)
    axes = tuple(sorted(to_ints("reduce", "dimensions", dimensions)))
    return cast(T, structure.unflatten(binder().apply(windows.reduce, (*xs, *values), (body, axes, known))))


def reduce_window(
    operand: T,
    init_value: object,
    computation: Callable[..., object],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: Pairs,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> T:
    """Combine the elements of each window. Padding and the holes of dilation hold the initial value.

    Type:   as `reduce`; the window has one size per axis. `padding` is `SAME`, `SAME_LOWER`, `VALID` or one pair per
            axis.
    Rule:   if `computation` is one maximum or minimum, or one addition or product whose initial value is 0 or 1, this
            is that reduction, with its derivative. Any other reduction has no derivative.
    Raises: TreeError, ArgumentError, ParameterError, ShapeError, DTypeError.
    """
    op = "reduce_window"
    xs, structure, body, values, known = _reduction_operands(op, operand, init_value, computation)
    shape = aval_of(xs[0], f"{op}: operand").shape
    sliding = sliding_window(op, shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    return cast(T, structure.unflatten(binder().apply(windows.reduce_window, (*xs, *values), (body, sliding, known))))


def sliding_window(
    op: str,
    shape: Shape,
    window: Sequence[int],
    strides: Sequence[int] | None,
    padding: Pairs,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> SlidingWindow:
    """Return the windows over an array of `shape` from the user's arguments. Raises: ArgumentError, ParameterError,
    ShapeError."""
    n, dims = len(shape), to_ints(op, "window_dimensions", window)
    if len(dims) != n:
        raise ShapeError(f"{op}: window_dimensions {dims} has {len(dims)} entries for {n} axes")
    fields = (("window_strides", strides), ("base_dilation", base_dilation), ("window_dilation", window_dilation))
    steps, base, dilation = [ints_per_axis(op, what, values, n) for what, values in fields]
    pads = padding_pairs(op, padding, n)
    if pads is None:
        full = [dilated_size(m, b) for m, b in zip(shape, base, strict=True)]
        reach = [dilated_size(w, d) for w, d in zip(dims, dilation, strict=True)]
        pads = tuple(padtype_to_pads(full, reach, steps, str(padding)))
    return SlidingWindow(dims, steps, pads, base, dilation)


def _reduction_operands(
    op: str, operands: object, init_values: object, computation: Callable[..., object]
) -> tuple[list[object], tree.Structure, Jaxpr, list[object], tuple[Lit | None, ...]]:
    """Return the operands, their structure, the body, the dynamic initial values, and the static ones."""
    xs, structure = tree.flatten(operands)
    inits, other = tree.flatten(init_values)
    if structure != other:
        raise TreeError(
            f"{op}: initial values differ in structure: {tree.shape_text(other)}, operands {tree.shape_text(structure)}"
        )
    if not xs:
        raise ArgumentError(f"{op}: takes at least one operand")
    scalars = [aval_of(x, f"{op}: operand {k}").with_shape(()) for k, x in enumerate(xs)]
    static = tuple([_static_initial_value(init, aval) for init, aval in zip(inits, scalars, strict=True)])
    pair = tree.tuple_structure(structure, structure)
    body = traced_body(f"{op}: computation", computation, pair, [*scalars, *scalars])
    if body.out_tree.num_leaves != len(xs):
        raise TreeError(
            f"{op}: computation {body.name} returns {tree.shape_text(body.out_tree)}, and the operands are"
            f" {tree.shape_text(structure)}",
            remedy="return one scalar for each operand",
        )
    body = body.typed(scalars)
    if body.captured:
        raise ArgumentError(
            f"{op}: computation {body.name} closes over {len(body.captured)} arrays",
            remedy="a reduction combines elements alone: apply what else there is before or after it",
        )
    return list(xs), structure, body.jaxpr, [i for i, k in zip(inits, static, strict=True) if k is None], static


def _static_initial_value(init: object, aval: Aval) -> Lit | None:
    """Return an initial value as a literal, if it is known and has the operand's dtype; else None."""
    if is_scalar(init):
        scalar = init
        return (
            Lit.of(scalar, aval)
            if promotion.scalar_dtype(scalar, aval.dtype, "reduce: initial value") is aval.dtype
            else None
        )
    concrete = isinstance(init, np.generic | np.ndarray | Array) and not isinstance(init, Tracer)
    if not concrete or aval_of(init, "reduce: initial value") is not aval:
        return None
    return Lit.of(np.asarray(init)[()], aval)


def select_and_scatter_add(
    source: ArrayLike,
    operand: ArrayLike,
    select: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Pairs,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Array:
    """Return zeros like `operand`, plus each source value at the greatest (`select` "ge") or least ("le") element of
    its window: the first one, or the first nan if there is one."""
    shape = aval_of(operand, "select_and_scatter_add: operand").shape
    sliding = sliding_window(
        "select_and_scatter_add", shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    return binder().bind(SelectAndScatterAdd(select, *sliding.values), (source, operand))[0]


def select_and_gather_add(
    values: ArrayLike,
    operand: ArrayLike,
    select: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Pairs,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Array:
    """Return for each window the element of `values` at the greatest (`select` "ge") or least ("le") element of
    `operand`: the first one, or the first nan if there is one."""
    shape = aval_of(operand, "select_and_gather_add: operand").shape
    sliding = sliding_window(
        "select_and_gather_add", shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    return binder().bind(SelectAndGatherAdd(select, *sliding.values), (values, operand))[0]
