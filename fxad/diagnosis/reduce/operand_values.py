"""Plainer values of operands: zeros, ones, small integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fxad import dtypes
from fxad.diagnosis.reduce.candidate import Candidate
from fxad.ir import NDArray

_EACH: int = 32  # elements of an array that are changed one by one


def plainer_values(c: Candidate) -> Iterator[Candidate]:
    """Yield the candidate with plainer values: of all operands, then of each, then of single elements."""
    if all([x is None for x in c.values]):
        return
    for change in (_zeros, _ones, _rounded):
        yield _with(c, [None if x is None else change(x) for x in c.values])
    for k, x in enumerate(c.values):
        if x is None or not x.size:
            continue
        for y in _plainer(x):
            yield _with(c, [*c.values[:k], y, *c.values[k + 1 :]])
    for k, x in enumerate(c.values):
        if x is None or not 1 < x.size <= _EACH:
            continue
        for at in np.ndindex(x.shape):
            for element in (0, 1, 2):
                y = np.array(x)
                y[at] = element
                yield _with(c, [*c.values[:k], y, *c.values[k + 1 :]])


def _with(c: Candidate, values: list[NDArray | None]) -> Candidate:
    return c.replace(c.jaxpr, values)


def _plainer(x: NDArray) -> Iterator[NDArray]:
    yield _zeros(x)
    yield _ones(x)
    if x.dtype != dtypes.bool_:
        yield np.full_like(x, 2)
        if x.dtype in dtypes.INEXACT or x.dtype not in dtypes.UNSIGNED:
            yield np.full_like(x, -1)
    if x.size > 1:
        for element in dict.fromkeys([x.flat[0].item(), x.flat[-1].item()]) if x.dtype in dtypes.NUMERIC else []:
            yield np.full_like(x, element)
        if x.dtype != dtypes.bool_:
            yield (np.arange(x.size) % 5).reshape(x.shape).astype(x.dtype)
            yield np.ones(x.shape, x.dtype) + (np.arange(x.size) % 3).reshape(x.shape).astype(x.dtype)
    if x.dtype in dtypes.INEXACT:
        yield _rounded(x)
        with np.errstate(all="ignore"):
            wide = x.astype(np.complex128 if x.dtype in dtypes.COMPLEX else np.float64)
            yield np.round(wide, 1).astype(x.dtype)


def _zeros(x: NDArray) -> NDArray:
    return np.zeros_like(x)


def _ones(x: NDArray) -> NDArray:
    return np.ones_like(x)


def _rounded(x: NDArray) -> NDArray:
    if x.dtype not in dtypes.INEXACT:
        return x
    with np.errstate(all="ignore"):
        wide = x.astype(np.complex128 if x.dtype in dtypes.COMPLEX else np.float64)
        return np.round(wide).astype(x.dtype)
