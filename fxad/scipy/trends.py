"""`scipy.signal.detrend`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from fxad import numpy as fnp
from fxad.errors import ParameterError
from fxad.numpy.apply import as_inexact_array
from fxad.numpy.composites import jit_composite
from fxad.operations.arguments import check_flags, one_or_more, word
from fxad.operations.axes import normalize_axis_index
from fxad.tracing.array import Array, ArrayLike


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: Literal["linear", "constant"] = "linear",  # noqa: A002 -- SciPy's name
    bp: int | Sequence[int] = 0,
    overwrite_data: bool = False,
) -> Array:
    """Return the data without its mean ("constant"), or without the line that fits best ("linear").

    Type:   `bp` are places where a new line begins. `overwrite_data` changes nothing.
    Raises: ParameterError, AxisError.
    """
    check_flags("detrend", overwrite_data=overwrite_data)
    array = as_inexact_array("detrend", data)
    k = normalize_axis_index("detrend", axis, array.ndim)
    word("detrend", "type", type, ("linear", "constant"))
    numbers = one_or_more("detrend", "bp", bp)
    breaks = (numbers,) if isinstance(numbers, int) else numbers
    n = array.shape[k]
    if any([not 0 <= b <= n for b in breaks]):
        raise ParameterError(f"detrend: bp {breaks} is not within axis {k} of {array.aval}", remedy="give places in it")
    return jit_composite(detrend_pieces, array, k, type, tuple(sorted({0, *breaks, n})))


def detrend_pieces(x: Array, axis: int, kind: str, bounds: tuple[int, ...]) -> Array:
    """Return x without its mean, or without a line in each piece from one of the bounds to the next."""
    if kind == "constant":
        return x - x.mean(axis, keepdims=True)
    x = fnp.moveaxis(x, axis, -1)
    pieces = []
    for start, end in pairwise(bounds):
        piece = x[..., start:end]
        piece = piece - piece.mean(-1, keepdims=True)
        n = end - start
        t = (2 * fnp.arange(n).astype(x.real.dtype) - (n - 1)) / 2
        slope = (piece * t).sum(-1, keepdims=True) / (n * (n**2 - 1) / 12 or 1)  # the sum of t**2; 0 for one element
        pieces.append(piece - slope * t)
    return fnp.moveaxis(fnp.concatenate(pieces, axis=-1) if pieces else x, -1, axis)
