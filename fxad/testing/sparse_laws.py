"""Laws of patterns: no nonzero of the Jacobian is missed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, NotDifferentiableError
from fxad.ir import Flags, Jaxpr, NDArray
from fxad.testing.compare import fail
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.sparse.pattern import Pattern, pattern_of


def dense_pattern(jaxpr: Jaxpr, wrt: Flags, args: Sequence[NDArray]) -> NDArray:
    """Return where the Jacobian at `args` is not zero, by one product for each element of the operands."""
    split = linearize(jaxpr, wrt)
    residuals = run(split.primal, args)[len(jaxpr.outs) :]
    avals = select_by_flags(jaxpr.in_avals, wrt)
    columns = []
    with np.errstate(all="ignore"):
        for k, aval in enumerate(avals):
            for j in range(aval.size):
                entries = np.zeros(max(sum([a.size for a in jaxpr.out_avals]), 1), np.bool_)
                for unit in (1, 1j) if aval.dtype.kind == "c" else (1,):
                    tangents = [np.zeros(a.shape, a.dtype) for a in avals]
                    tangents[k].reshape(-1)[j] = unit
                    found = iter(run(split.linear, [*tangents, *residuals]))
                    start = 0
                    for a, nonzero in zip(jaxpr.out_avals, split.out_nonzero, strict=True):
                        if nonzero:
                            value = np.asarray(next(found)).ravel()
                            entries[start : start + a.size] |= value != 0
                        start += a.size
                columns.append(entries[: sum([a.size for a in jaxpr.out_avals])])
    rows = sum([a.size for a in jaxpr.out_avals])
    return np.stack(columns, 1) if columns else np.zeros((rows, 0), np.bool_)


def as_mask(pattern: Pattern) -> NDArray:
    """Return a pattern as an array of bools."""
    mask = np.zeros(pattern.shape, np.bool_)
    mask[pattern.rows, pattern.indices] = True
    return mask


def check_pattern_covers(jaxpr: Jaxpr, wrt: Flags, args: Sequence[NDArray]) -> bool:
    """Check that the pattern contains every nonzero of the Jacobian at `args`. Return True if it has no other entry;
    a program without derivative is not checked, and gives True."""
    try:
        dense = dense_pattern(jaxpr, wrt, args)
    except NotDifferentiableError:
        return True
    found = as_mask(pattern_of(jaxpr, wrt))
    missed = np.logical_and(dense, np.logical_not(found))
    if missed.any():
        where = np.argwhere(missed)[:5].tolist()
        fail(f"the pattern misses nonzeros at (row, column) {where}", jaxpr, args)
    return bool((found == dense).all())


def check_sparsity(pattern: Pattern, jacobian: object) -> None:
    """Check that a pattern contains every nonzero of a dense Jacobian. Raises: AssertionError with missed entries;
    ArgumentError for another shape."""
    dense = np.asarray(jacobian).reshape(-1, pattern.shape[1]) if pattern.shape[1] else np.zeros(pattern.shape)
    if dense.shape != pattern.shape:
        raise ArgumentError(
            f"check_sparsity: the pattern has shape {pattern.shape}, the Jacobian {dense.shape}",
            remedy="give the Jacobian of the same function",
        )
    missed = np.argwhere(np.logical_and(dense != 0, np.logical_not(as_mask(pattern))))
    if len(missed):
        raise AssertionError(
            f"check_sparsity: the pattern misses {len(missed)} nonzeros: (row, column) {missed[:5].tolist()}"
        )
