"""Interpolation, as in `scipy.interpolate`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import final

import numpy as np

from fxad import dtypes, numpy as fnp
from fxad.errors import ParameterError, ShapeError
from fxad.numpy.apply import as_array, as_inexact_array
from fxad.operations.arguments import flag, to_tuple, word
from fxad.scipy.arguments import floats
from fxad.tracing.array import Array, ArrayLike


@final
class RegularGridInterpolator:
    """Interpolation of values on a grid whose axes need not be evenly spaced.

    Type:   points: a vector of increasing coordinates for each axis; values: one for each point of the grid, with
            further axes at the end. `method` is "linear" or "nearest". Outside the grid the result is `fill_value`, and
            for None it is extrapolated.
    Raises: ShapeError; ParameterError for another method, and for `bounds_error=True`, which would depend on values.
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike | None = np.nan,
    ) -> None:
        if flag("RegularGridInterpolator", "bounds_error", bounds_error):
            raise ParameterError(
                "RegularGridInterpolator: bounds_error is True, and whether a point is outside depends on its value",
                remedy="leave it out: fill_value marks points outside; lax.error_if checks them",
            )
        vectors = to_tuple("RegularGridInterpolator", "points", points)
        self.grid = tuple([as_inexact_array("RegularGridInterpolator", p) for p in vectors])
        self.values = as_inexact_array("RegularGridInterpolator", values, 1)
        self.method = _method(method)
        self.fill_value = fill_value
        if self.values.ndim < len(self.grid):
            raise ShapeError(
                f"RegularGridInterpolator: {len(self.grid)} vectors of points for values {self.values.aval}",
                remedy="give one vector of points for each axis of the grid",
            )
        for k, (axis, n) in enumerate(zip(self.grid, self.values.shape, strict=False)):
            if axis.ndim != 1 or axis.shape[0] != n or n < 2:
                raise ShapeError(
                    f"RegularGridInterpolator: points[{k}] is {axis.aval}, and axis {k} of the values has size {n}",
                    remedy="give one coordinate for each place along the axis, and at least two",
                )

    def __call__(self, xi: ArrayLike | Sequence[ArrayLike], method: str | None = None) -> Array:
        """Return the values at points: [..., k] for k axes, or a tuple of k arrays of coordinates."""
        nearest = _method(self.method if method is None else method) == "nearest"
        if isinstance(xi, tuple):
            places = list(fnp.broadcast_arrays(*floats("RegularGridInterpolator", *xi)))
        else:
            (points,) = floats("RegularGridInterpolator", fnp.asarray(xi))
            points = points[..., None] if points.ndim == 1 and len(self.grid) == 1 else points
            places = [points[..., k] for k in range(points.shape[-1])] if points.ndim else [points]
        if len(places) != len(self.grid):
            raise ShapeError(
                f"RegularGridInterpolator: points of {len(places)} coordinates in a grid of {len(self.grid)} axes",
                remedy="give an array [..., k], or a tuple of k arrays",
            )
        result = self._interpolated(places, nearest)
        shape = places[0].shape + (1,) * (result.ndim - places[0].ndim)
        if nearest:  # by the method linear, nan gives nan anyway
            missing = fnp.isnan(fnp.stack(places)).any(0)
            result = fnp.where(missing.reshape(shape), fnp.nan, result)
        if self.fill_value is None:
            return result
        outside = fnp.zeros(places[0].shape, dtypes.bool_)
        for x, axis in zip(places, self.grid, strict=True):
            outside = outside | (x < axis[0]) | (x > axis[-1])
        fill = as_array("RegularGridInterpolator", self.fill_value).astype(result.dtype)
        return fnp.where(outside.reshape(shape), fill, result)

    def _interpolated(self, places: list[Array], nearest: bool) -> Array:
        lows, shares = [], []
        for x, axis in zip(places, self.grid, strict=True):
            low = fnp.clip(fnp.searchsorted(axis, x, side="right") - 1, 0, axis.shape[0] - 2)
            lows.append(low)
            shares.append((x - axis[low]) / (axis[low + 1] - axis[low]))
        if nearest:
            return self.values[tuple([low + (s > 0.5) for low, s in zip(lows, shares, strict=True)])]
        total: Array | None = None
        further = self.values.ndim - len(self.grid)
        for corner in itertools.product((0, 1), repeat=len(places)):
            weight = fnp.ones((), shares[0].dtype)
            for s, up in zip(shares, corner, strict=True):
                weight = weight * (s if up else 1 - s)
            value = self.values[tuple([low + up for low, up in zip(lows, corner, strict=True)])]
            part = value * weight.reshape(weight.shape + (1,) * further)
            total = part if total is None else total + part
        assert total is not None
        return total


def _method(method: str) -> str:
    word("RegularGridInterpolator", "method", method, ("linear", "nearest"))
    return method


__all__ = ["RegularGridInterpolator"]
