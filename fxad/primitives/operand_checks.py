"""Checks shared by type rules; each error names the operation and the values."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from fxad.core.sizes.size import may_fit
from fxad.dtypes import DType
from fxad.errors import ArgumentError, AxisError, DTypeError, ParameterError, ShapeError, shown
from fxad.ir import Aval, Primitive, Shape


def check_count(prim: Primitive, avals: tuple[Aval, ...], count: int) -> tuple[Aval, ...]:
    """Return the operand types if there are `count` of them. Raises: ArgumentError."""
    if len(avals) != count:
        raise ArgumentError(f"{prim.name}: takes {count} operand{'s' * (count != 1)}, got {len(avals)}")
    return avals


def check_dtype(name: str, x: Aval, takes: frozenset[DType]) -> None:
    """Check that an operation takes the dtype of an operand. Raises: DTypeError."""
    if x.dtype not in takes:
        raise DTypeError(f"{name}: is not defined for {x}")


MATCH_BODIES: Final = "give what the bodies take, or trace the function again; nothing is converted silently"
TRACE_AGAIN: Final = "the bodies of one equation belong together: trace the function again"


def type_mismatch(message: str, have: Aval, want: Aval) -> DTypeError | ShapeError:
    """Return the error for an operand whose type differs from the required one."""
    return (DTypeError if have.dtype != want.dtype else ShapeError)(message, remedy=MATCH_BODIES)


def check_axes(name: str, axes: tuple[int, ...], ndim: int) -> None:
    """Check that `axes` are increasing axes of an array of `ndim` axes. Raises: AxisError, ParameterError."""
    last = -1
    for a in axes:
        if a <= last:
            if a < 0:
                raise AxisError(f"{name}: axis {a} is negative", remedy=f"count from the front: axis {a + ndim}")
            raise ParameterError(f"{name}: axes {axes} are not increasing", remedy="sort them and drop repetitions")
        last = a
    if last >= ndim:
        raise AxisError(f"{name}: axis {last} is out of range for an operand with {ndim} axes")


def check_axis(name: str, axis: int, ndim: int) -> None:
    """Check that `axis` is an axis of an array of `ndim` axes. Raises: AxisError."""
    if not 0 <= axis < ndim:
        raise AxisError(f"{name}: axis {axis} is out of range for an operand with {ndim} axes")


def check_ranks(name: str, x: Aval, **fields: tuple[int, ...]) -> None:
    """Check that per-axis parameters have one entry per axis of `x`. Raises: ShapeError."""
    for field, values in fields.items():
        if len(values) != len(x.shape):
            raise ShapeError(f"{name}: {field} {values} has {len(values)} entries for the {x.ndim} axes of {x}")


def check_window(name: str, x: Aval, sizes: Shape) -> None:
    """Check that a window of `sizes`, one for each axis of `x`, may lie in `x`. Raises: ShapeError."""
    for a, (size, n) in enumerate(zip(sizes, x.shape, strict=True)):
        if not may_fit(size, n):
            raise ShapeError(f"{name}: a window of size {size} does not lie in axis {a} of {x}, of size {n}")


def check_precision(name: str, precision: str, others: Container[str] = ()) -> None:
    """Raise ParameterError for a precision of products that is not one, nor among `others`."""
    if precision not in ("", "high", "highest") and precision not in others:
        raise ParameterError(
            f"{name}: precision {shown(precision)}", remedy='use "high", "highest", or "" for the fastest'
        )
