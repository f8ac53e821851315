"""Cumulative operations as functions; all keep the dtype."""

from __future__ import annotations

from fxad.operations.arguments import flag
from fxad.operations.axes import normalize_axis_index
from fxad.primitives.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum, LinearRecurrence
from fxad.tracing.array import Array, ArrayLike, aval_of, binder


def _axis(name: str, operand: ArrayLike, axis: int) -> int:
    return normalize_axis_index(name, axis, aval_of(operand, f"{name}: argument 0").ndim)


def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the sum of the elements up to each along an axis; from the end with `reverse`."""
    reverse = flag("cumsum", "reverse", reverse)
    return binder().bind(CumSum(_axis("cumsum", operand, axis), reverse), (operand,))[0]


def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the product of the elements up to each along an axis; from the end with `reverse`."""
    reverse = flag("cumprod", "reverse", reverse)
    return binder().bind(CumProd(_axis("cumprod", operand, axis), reverse), (operand,))[0]


def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the greatest element up to each along an axis; from the end with `reverse`."""
    reverse = flag("cummax", "reverse", reverse)
    return binder().bind(CumMax(_axis("cummax", operand, axis), reverse), (operand,))[0]


def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the least element up to each along an axis; from the end with `reverse`."""
    reverse = flag("cummin", "reverse", reverse)
    return binder().bind(CumMin(_axis("cummin", operand, axis), reverse), (operand,))[0]


def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return log of the sum of exp of the elements up to each along an axis; from the end with `reverse`."""
    reverse = flag("cumlogsumexp", "reverse", reverse)
    return binder().bind(CumLogSumExp(_axis("cumlogsumexp", operand, axis), reverse), (operand,))[0]


def linear_recurrence(a: ArrayLike, b: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return y[0] = b[0], then y[i] = a[i] y[i - 1] + b[i] along an axis; from the end with `reverse`."""
    reverse = flag("linear_recurrence", "reverse", reverse)
    return binder().bind(LinearRecurrence(_axis("linear_recurrence", a, axis), reverse), (a, b))[0]
