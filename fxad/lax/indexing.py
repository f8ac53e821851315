"""Gather and the scatters: reads and writes at the places of index vectors.

`fxad.numpy` indexing and `x.at[...]` do the same without dimension numbers. Index vectors are on the last axis of the
indices. `mode` defines windows out of range: "clip" clamps them; "drop" (or "fill") leaves an update out, and reads
`fill_value`; "promise_in_bounds" asserts that there are none; None is the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, ShapeError, described, shown
from fxad.ir import as_shape
from fxad.lax.documented import named
from fxad.lax.elementwise import neg
from fxad.operations import indexing
from fxad.operations.arguments import function, text
from fxad.operations.at import fill_literal
from fxad.operations.updates import checked_mode
from fxad.primitives.gather_scatter import (
    Gather,
    Scatter,
    ScatterAdd,
    ScatterFamily,
    ScatterMax,
    ScatterMin,
    ScatterMul,
)
from fxad.tracing.array import Array, ArrayLike, aval_of, binder

F = TypeVar("F", bound=Callable[..., object])
_Kind: TypeAlias = "type[Scatter | ScatterAdd | ScatterMul | ScatterMin | ScatterMax]"


@final
@dataclass(frozen=True, slots=True)
class GatherDimensionNumbers:
    """The dimension numbers of a gather; the index vectors are on the last axis of the indices."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ScatterDimensionNumbers:
    """The dimension numbers of a scatter; the index vectors are on the last axis of the indices."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()

    @property
    def gather(self) -> GatherDimensionNumbers:
        """Return the numbers of the gather that reads the windows of a scatter."""
        return GatherDimensionNumbers(
            self.update_window_dims,
            self.inserted_window_dims,
            self.scatter_dims_to_operand_dims,
            self.operand_batching_dims,
            self.scatter_indices_batching_dims,
        )


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | None = "clip",
    fill_value: bool | complex | np.generic | None = None,
) -> Array:
    """Return windows at the places of index vectors. `fill_value` None: nan for inexact dtypes, the least signed
    integer, the greatest unsigned one, True."""
    mode = None if mode is None else text("gather", "mode", mode)
    d, how = dimension_numbers, checked_mode("gather", mode, "clip")
    _check_numbers("gather", d, GatherDimensionNumbers)
    prim = Gather(
        d.offset_dims,
        d.collapsed_slice_dims,
        d.operand_batching_dims,
        d.start_indices_batching_dims,
        d.start_index_map,
        as_shape(slice_sizes),
        how,
        indices_are_sorted,
        unique_indices,
    )
    fill = fill_literal("gather", aval_of(operand, "gather: argument 0"), fill_value)
    if how == "drop" and any(fill.bits):
        return binder().apply(indexing.gather, (operand, start_indices), (prim, fill))[0]
    return binder().bind(prim, (operand, start_indices))[0]


def scatter(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | None = "drop",
) -> Array:
    """Return the operand with the windows at the index vectors replaced; of several updates of one element, one is
    stored."""
    return _scattered(
        Scatter, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices, mode
    )


def _scatter_function(signature: F, kind: _Kind, doc: str) -> F:
    """Return the function of another primitive that takes the arguments of `scatter`."""

    def of_kind(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = "drop",
    ) -> Array:
        return _scattered(
            kind, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted, unique_indices, mode
        )

    return named(of_kind, signature, kind.name, doc)


scatter_add = _scatter_function(
    scatter,
    ScatterAdd,
    "Return the operand with updates added to the windows at the index vectors; updates of one element are summed.",
)
scatter_mul = _scatter_function(
    scatter,
    ScatterMul,
    "Return the operand with the windows at the index vectors multiplied by updates; updates of one element are\n"
    "multiplied.",
)
scatter_min = _scatter_function(
    scatter, ScatterMin, "Return the minimum of the operand's windows at the index vectors and all updates."
)
scatter_max = _scatter_function(
    scatter, ScatterMax, "Return the maximum of the operand's windows at the index vectors and all updates."
)


def scatter_sub(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | None = "drop",
) -> Array:
    """Return the operand with updates subtracted from the windows at the index vectors."""
    mode = None if mode is None else text("scatter_sub", "mode", mode)
    numbers, flags = dimension_numbers, (indices_are_sorted, unique_indices, mode)
    return _scattered(ScatterAdd, operand, scatter_indices, neg(updates), numbers, *flags)


def scatter_apply(
    operand: Array,
    scatter_indices: ArrayLike,
    func: Callable[[Array], ArrayLike],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | None = "drop",
) -> Array:
    """Return the operand with `func` applied to the windows at the index vectors: once per window, even if it is
    repeated.

    `update_shape` is the shape that updates would have; `func` takes all windows in that shape.
    """
    func = function("scatter_apply", "func", func)
    mode = "drop" if mode is None else text("scatter_apply", "mode", mode)
    d, ndim = dimension_numbers, aval_of(operand, "scatter_apply: argument 0").ndim
    _check_numbers("scatter_apply", d, ScatterDimensionNumbers)
    gone = {*d.inserted_window_dims, *d.operand_batching_dims}
    shape = as_shape(update_shape)
    window = [shape[a] for a in d.update_window_dims if a < len(shape)]
    if len(window) + len(gone) != ndim:
        raise ShapeError(f"scatter_apply: update_shape {shape} and {d} do not make windows of {ndim} axes")
    rest = iter(window)
    sizes = [1 if a in gone else next(rest) for a in range(ndim)]
    flags = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
    windows = gather(operand, scatter_indices, d.gather, sizes, mode=mode, fill_value=0, **flags)
    return scatter(operand, scatter_indices, func(windows), d, mode=mode, **flags)


def _check_numbers(name: str, numbers: object, kind: type[GatherDimensionNumbers | ScatterDimensionNumbers]) -> None:
    if not isinstance(numbers, kind):
        raise ArgumentError(
            f"{name}: dimension_numbers must be {kind.__name__}, got {described(numbers)}: {shown(numbers)}"
        )


def _scattered(
    kind: _Kind,
    operand: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    d: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: str | None,
) -> Array:
    mode = None if mode is None else text(kind.name, "mode", mode)
    _check_numbers(kind.name, d, ScatterDimensionNumbers)
    prim: ScatterFamily = kind(
        d.update_window_dims,
        d.inserted_window_dims,
        d.operand_batching_dims,
        d.scatter_indices_batching_dims,
        d.scatter_dims_to_operand_dims,
        checked_mode(kind.name, mode, "drop"),
        indices_are_sorted,
        unique_indices,
    )
    return binder().bind(prim, (operand, indices, updates))[0]
