"""Reductions: one function for each, and `reduce` by a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np

from fxad import dtypes
from fxad.core.trees import tree
from fxad.errors import ArgumentError, ShapeError, TreeError
from fxad.ir import Aval, Jaxpr, Lit
from fxad.lax.control.traced_functions import traced_body
from fxad.operations import promotion, windows
from fxad.operations.arguments import to_ints
from fxad.operations.methods import static_ints
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceXor
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import ReduceSum
from fxad.tracing.array import Array, ArrayLike, aval_of, binder, is_scalar
from fxad.tracing.tracer import Tracer

T = TypeVar("T")


def _reduction_axes(op: str, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(static_ints(op, "axes", (axes,))))


def reduce_sum(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the sum over axes, which are removed; the dtype is kept."""
    return binder().bind(ReduceSum(_reduction_axes("reduce_sum", axes)), (operand,))[0]


def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the product over axes, which are removed; the dtype is kept."""
    return binder().bind(ReduceProd(_reduction_axes("reduce_prod", axes)), (operand,))[0]


def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the greatest element over axes, which are removed."""
    return binder().bind(ReduceMax(_reduction_axes("reduce_max", axes)), (operand,))[0]


def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the least element over axes, which are removed."""
    return binder().bind(ReduceMin(_reduction_axes("reduce_min", axes)), (operand,))[0]


def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise and of all elements over axes, which are removed."""
    return binder().bind(ReduceAnd(_reduction_axes("reduce_and", axes)), (operand,))[0]


def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise or of all elements over axes, which are removed."""
    return binder().bind(ReduceOr(_reduction_axes("reduce_or", axes)), (operand,))[0]


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Return the bitwise exclusive or of all elements over axes, which are removed."""
    return binder().bind(ReduceXor(_reduction_axes("reduce_xor", axes)), (operand,))[0]


def argmax(operand: ArrayLike, axis: int, index_dtype: object) -> Array:
    """Return the index of the greatest element along an axis; of equal ones the first."""
    return binder().bind(ArgMax(axis, dtypes.as_dtype(index_dtype)), (operand,))[0]


def argmin(operand: ArrayLike, axis: int, index_dtype: object) -> Array:
    """Return the index of the least element along an axis; of equal ones the first."""
    return binder().bind(ArgMin(axis, dtypes.as_dtype(index_dtype)), (operand,))[0]


# ------------------------------------------------------------------------------------------- by a function of the user


def reduce(operands: T, init_values: object, computation: Callable[..., object], dimensions: Sequence[int]) -> T:
    """Combine the elements along axes, which are removed.

    Type:   `operands` is an array, or a pytree of arrays of one shape; `init_values` is the same structure of scalars.
            `computation(a, b)` takes two such structures of scalars and returns one. It must be associative, and the
            initial values must be its identity elements.
    Rule:   if `computation` is one addition, product, maximum, minimum or logical operation, this is that reduction,
            with its derivative, for any initial value. Any other reduction has no derivative.
    Raises: TreeError, ArgumentError, ShapeError, DTypeError.
    """
    xs, structure, body, inits, static_inits = reduction_operands("reduce", operands, init_values, computation)
    axes = tuple(sorted(to_ints("reduce", "dimensions", dimensions)))
    return cast(T, structure.unflatten(binder().apply(windows.reduce, (*xs, *inits), (body, axes, static_inits))))


def reduction_operands(
    op: str, operands: object, init_values: object, computation: Callable[..., object]
) -> tuple[list[object], tree.Structure, Jaxpr, list[object], tuple[Lit | None, ...]]:
    """Return the operands of `reduce` or `reduce_window`, their structure, the body, the dynamic initial values, and
    the static ones."""
    xs, structure = tree.flatten(operands)
    inits, other = tree.flatten(init_values)
    if structure != other:
        raise TreeError(
            f"{op}: initial values differ in structure: {tree.shape_text(other)}, operands {tree.shape_text(structure)}"
        )
    if not xs:
        raise ArgumentError(f"{op}: takes at least one operand")
    scalars = [aval_of(x, f"{op}: operand {k}").with_shape(()) for k, x in enumerate(xs)]
    for k, init in enumerate(inits):
        aval = aval_of(init, f"{op}: initial value {k}")
        if aval.shape:
            raise ShapeError(
                f"{op}: initial value {k} is {aval}, not a single number",
                remedy="give the value that the reduction of no elements has",
            )
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
