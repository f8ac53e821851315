"""Reductions of windows by a function, and selections in windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, cast

from fxad.errors import ShapeError
from fxad.ir import Shape
from fxad.lax.convolution import ConvPadding, ints_per_axis, padding_pairs, padtype_to_pads
from fxad.lax.reductions import reduction_operands
from fxad.operations import windows
from fxad.operations.arguments import to_ints
from fxad.primitives.select_and_scatter import SelectAndGatherAdd, SelectAndScatterAdd
from fxad.primitives.sliding import SlidingWindow, dilated_size
from fxad.tracing.array import Array, ArrayLike, aval_of, binder

T = TypeVar("T")

# Windows as the user gives them: sizes, strides, padding, base_dilation, window_dilation.
_WindowArguments: TypeAlias = (
    "tuple[Sequence[int], Sequence[int] | None, ConvPadding, Sequence[int] | None, Sequence[int] | None]"
)


def reduce_window(
    operand: T,
    init_value: object,
    computation: Callable[..., object],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: ConvPadding,
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
    xs, structure, body, inits, static_inits = reduction_operands(op, operand, init_value, computation)
    shape = aval_of(xs[0], f"{op}: operand").shape
    sliding = sliding_window(op, shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    return cast(
        T, structure.unflatten(binder().apply(windows.reduce_window, (*xs, *inits), (body, sliding, static_inits)))
    )


def sliding_window(
    op: str,
    shape: Shape,
    window: Sequence[int],
    strides: Sequence[int] | None,
    padding: ConvPadding,
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


def select_and_scatter_add(
    source: ArrayLike,
    operand: ArrayLike,
    select: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: ConvPadding,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Array:
    """Return zeros like `operand`, plus each source value at the greatest (`select` "ge") or least ("le") element of
    its window: the first one, or the first nan if there is one."""
    arguments = window_dimensions, window_strides, padding, base_dilation, window_dilation
    return _bind_selection(SelectAndScatterAdd, source, operand, select, arguments)


def select_and_gather_add(
    values: ArrayLike,
    operand: ArrayLike,
    select: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: ConvPadding,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Array:
    """Return for each window the element of `values` at the greatest (`select` "ge") or least ("le") element of
    `operand`: the first one, or the first nan if there is one."""
    arguments = window_dimensions, window_strides, padding, base_dilation, window_dilation
    return _bind_selection(SelectAndGatherAdd, values, operand, select, arguments)


def _bind_selection(
    kind: type[SelectAndScatterAdd | SelectAndGatherAdd],
    values: ArrayLike,
    operand: ArrayLike,
    select: str,
    arguments: _WindowArguments,
) -> Array:
    """Bind `kind` for the windows over `operand`. The values belong to the windows, or to the elements of `operand`."""
    sliding = sliding_window(kind.name, aval_of(operand, f"{kind.name}: operand").shape, *arguments)
    return binder().bind(kind(select, *sliding.values), (values, operand))[0]
