"""Functions of layers that are not one formula of their input: dropout and embedding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import fxad.numpy as fnp
from fxad import dtypes, random
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError
from fxad.ir import Shape
from fxad.numpy.apply import as_array, as_inexact_array
from fxad.numpy.composites import jit_composite
from fxad.operations.arguments import flag, number
from fxad.operations.axes import normalize_axes
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar


def dropout(
    x: ArrayLike,
    rate: ArrayLike,
    key: ArrayLike | None = None,
    *,
    deterministic: bool = False,
    broadcast_axes: int | Sequence[int] = (),
) -> Array:
    """Return x with a share `rate` of its elements replaced by 0, and the others divided by 1 - rate.

    Type:   `rate` is a number in [0, 1], or a floating array of shape (). `deterministic` returns x itself; then, and
            for the number 0, the key may be left out. Elements that differ only along `broadcast_axes` are kept or
            replaced together.
    Rule:   an element is kept where `random.bernoulli(key, 1 - rate)` is True. A rate of 1 gives zeros, and the
            derivative is 0.
    Raises: ParameterError for a rate outside [0, 1]; ArgumentError without a key; AxisError.
    Source: Srivastava et al., Dropout: a simple way to prevent neural networks from overfitting (2014)
    """
    array = as_inexact_array("dropout", x)
    axes = normalize_axes("dropout", broadcast_axes, array.ndim)
    if is_scalar(rate) or isinstance(rate, np.generic):
        rate = number("dropout", "rate", rate)
        if not 0 <= rate <= 1:
            raise ParameterError(f"dropout: rate is {rate}", remedy="give a probability: 0 <= rate <= 1")
    else:
        aval = aval_of(rate, "dropout: rate")
        if aval.shape or aval.dtype not in dtypes.FLOATING:
            raise ParameterError(
                f"dropout: rate is {aval}, not one floating number", remedy="give a float, or an array of shape ()"
            )
    if flag("dropout", "deterministic", deterministic) or (isinstance(rate, float) and rate == 0):
        return array
    if key is None:
        raise ArgumentError(
            "dropout: there is no key", remedy="pass a key of fxad.random, or deterministic=True to keep all elements"
        )
    if isinstance(rate, float) and rate == 1:
        return fnp.zeros_like(array)
    kept = 1 - (rate if isinstance(rate, float) else as_array("dropout", rate, 1).astype(dtypes.float32))
    shape = tuple([1 if k in axes else n for k, n in enumerate(array.shape)])
    return jit_composite(_dropout, array, as_array("dropout", key, 2), kept, shape)


def _dropout(x: Array, key: Array, kept: ArrayLike, shape: Shape) -> Array:
    mask = random.bernoulli(key, kept, shape)
    if isinstance(kept, Array):  # 1 where nothing is kept, so that no derivative is 0 / 0
        kept = fnp.where(kept > 0, kept, 1).astype(x.dtype)
    return fnp.where(mask, x / kept, 0)


def embedding(
    table: ArrayLike, indices: ArrayLike, *, mode: str | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """Return the rows of a table at integer indices: `take(table, indices, axis=0)`.

    Type:   f[n, ...], i[...] -> f[*indices.shape, ...]. `mode` and `fill_value` say what an index out of range gives,
            as in `fxad.numpy.take`.
    Raises: ShapeError for a table without rows; DTypeError for indices that are not integers; ParameterError.
    """
    rows, at = as_array("embedding", table), as_array("embedding", indices, 1)
    if rows.ndim < 1:
        raise ShapeError(f"embedding: the table is {rows.aval}", remedy="a table has a row for each index: f[n, d]")
    if at.dtype not in dtypes.INTEGER:
        raise DTypeError(
            f"embedding: indices must be integers, got {at.aval}",
            remedy="the table is the first argument, the indices are the second",
        )
    return fnp.take(rows, at, 0, mode=mode, fill_value=fill_value)
