"""Laws of patterns: no nonzero of the Jacobian is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from fxad.api.chosen_arguments import ChosenArguments, operand_flags
from fxad.api.sparse.sparsity import program_and_point, sparsity, values_at
from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, NotDifferentiableError
from fxad.ir import Aval, Eqn, Flags, Jaxpr, Lit, NDArray
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.cumulative import CumSum
from fxad.primitives.dot import Contraction
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG, SUB, Add, Div, Mul, Neg, Sub
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterAdd
from fxad.primitives.index import Index
from fxad.primitives.marks import Mark
from fxad.primitives.reduce_window import ReduceWindowSum
from fxad.primitives.shape import BroadcastInDim, ExpandDims, ReduceSum, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.testing.compare import fail
from fxad.tracing.static_args import Argnums
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.sparse.pattern import Pattern, check_pattern, pattern_of, pattern_with_values


def dense_pattern(jaxpr: Jaxpr, wrt: Flags, args: Sequence[NDArray], *, nan: bool = True) -> NDArray:
    """Return where the Jacobian at `args` is not zero, by one product for each element of the operands. `nan`: what is
    no number counts as an entry."""
    split = linearize(jaxpr, wrt)
    return _nonzeros(jaxpr, wrt, split.linear, run(split.primal, args)[len(jaxpr.outs) :], split.out_nonzero, nan=nan)


def _nonzeros(
    jaxpr: Jaxpr, wrt: Flags, linear: Jaxpr, residuals: Sequence[NDArray], out_nonzero: Flags, *, nan: bool
) -> NDArray:
    """Return where the matrix of a linear program of the tangents and of residuals is not zero."""
    avals = select_by_flags(jaxpr.in_avals, wrt)
    columns = []
    with np.errstate(all="ignore"):
        for k, aval in enumerate(avals):
            for j in range(aval.size):
                entries = np.zeros(max(sum([a.size for a in jaxpr.out_avals]), 1), np.bool_)
                for unit in (1, 1j) if aval.dtype.kind == "c" else (1,):
                    tangents = [np.zeros(a.shape, a.dtype) for a in avals]
                    tangents[k].reshape(-1)[j] = unit
                    found = iter(run(linear, [*tangents, *residuals]))
                    start = 0
                    for a, nonzero in zip(jaxpr.out_avals, out_nonzero, strict=True):
                        if nonzero:
                            value = np.asarray(next(found)).ravel()
                            entries[start : start + a.size] |= (value != 0) & (nan | (value == value))
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


# Primitives of linear programs whose rules add no entry, where indices and masks are known.
_EXACT: Final = frozenset(
    {
        Add, Sub, Mul, Neg, Div, SelectN, ConvertElementType, Reshape, Squeeze, ExpandDims, BroadcastInDim, ReduceSum,
        Transpose, Rev, Slice, Pad, Concatenate, Gather, ScatterAdd, DynamicSlice, DynamicUpdateSlice, Index,
        Contraction, CumSum, ReduceWindowSum, Scatter, OptimizationBarrier, Mark,
    }
)  # fmt: skip


def without_cancellation(linear: Jaxpr) -> Jaxpr | None:
    """Return a linear program with sums for its differences and no negative literals; None if it has a primitive whose
    rule may add entries. With positive residuals, its matrix has a nonzero for each path from an element to another."""
    if any([_EXACT.isdisjoint(type(eqn.prim).__mro__) for eqn in linear.eqns]):
        return None
    eqns: list[Eqn] = []
    for eqn in linear.eqns:
        ins = tuple([Lit.of(np.abs(a.value), a.aval) if isinstance(a, Lit) and a.aval.inexact else a for a in eqn.ins])
        if eqn.prim is SUB:
            eqns.append(Eqn(ADD, ins, eqn.outs))
        elif eqn.prim is NEG:
            eqns.append(Eqn(MUL, (*ins, Lit.of(1, eqn.outs[0].aval)), eqn.outs))
        else:
            eqns.append(Eqn(eqn.prim, ins, eqn.outs))
    return Jaxpr(linear.ins, tuple(eqns), linear.outs)


def check_pattern_is_exact(jaxpr: Jaxpr, wrt: Flags, args: Sequence[NDArray]) -> bool:
    """Check that the pattern at `args` has an entry exactly where a path of the linear program leads. Return False for
    a program that is not compared: one without derivative, with complex numbers, or with a rule that may add entries.
    """
    if any([a.dtype.kind == "c" for a in (*jaxpr.in_avals, *jaxpr.out_avals)]):
        return False
    try:
        split = linearize(jaxpr, wrt)
    except NotDifferentiableError:
        return False
    positive = without_cancellation(split.linear)
    if positive is None:
        return False
    generator = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        residuals = [
            generator.uniform(0.5, 1.5, r.shape).astype(r.dtype) if np.issubdtype(r.dtype, np.floating) else r
            for r in map(np.asarray, run(split.primal, args)[len(jaxpr.outs) :])
        ]
    paths = _nonzeros(jaxpr, wrt, positive, residuals, split.out_nonzero, nan=True)
    found = as_mask(pattern_with_values(jaxpr, wrt, [partial(np.asarray, a) for a in args]))
    if (found != paths).any():
        fail(f"the pattern differs from the paths at {np.argwhere(found != paths)[:5].tolist()}", jaxpr, args)
    return True


def check_sparsity(
    f: Callable[..., object],
    pattern: Pattern | None = None,
    *,
    argnums: Argnums = 0,
    at: Sequence[object] | None = None,
    points: int = 3,
    seed: int = 0,
) -> None:
    """Check that a pattern contains every nonzero of the Jacobian of `f` at random points.

    `pattern` is that of the user, for all values of the arguments; without it, it is `sparsity(f)`. The points are
    `at`, and points around it; a Program needs none, and has normal points then. Integers and bools are those of `at`,
    or zeros. Entries that are nan at a point are not compared there.

    Raises: AssertionError with the missed entries; ShapeError for a pattern of another shape.
    Cost:   a product for each element of the arguments at each point, without XLA.
    """
    program, given = program_and_point("check_sparsity", f, at)
    chosen = ChosenArguments.by_number("check_sparsity", program, argnums)
    wrt = operand_flags(program, chosen.leaves)
    found = sparsity(program, argnums) if pattern is None else pattern
    shape = (sum([a.size for a in program.out_avals]), sum([program.in_avals[k].size for k in chosen.leaves]))
    found = check_pattern("check_sparsity", found, shape)
    mask, generator = as_mask(found), np.random.default_rng(seed)
    bound = [np.asarray(v) for v in program.bound]
    leaves = None if given is None else [np.asarray(v) for v in values_at("check_sparsity", program, given)]
    for point in range(points):
        args = [
            _near(a, None if leaves is None else leaves[k], generator if point or leaves is None else None)
            for k, a in enumerate(program.in_avals)
        ]
        check_covers(found, dense_pattern(program.jaxpr, wrt, [*bound, *args], nan=False), mask)


def _near(aval: Aval, value: NDArray | None, generator: np.random.Generator | None) -> NDArray:
    """Return a random value near to a given one, or around zero."""
    center: NDArray = np.zeros(aval.shape, aval.dtype) if value is None else value.astype(aval.dtype)
    if not aval.inexact or generator is None:
        return center
    scale = np.ones(aval.shape) if value is None else np.multiply(0.1, np.add(1, np.abs(center)))
    return np.add(center, np.multiply(scale, generator.standard_normal(aval.shape))).astype(aval.dtype)


def check_covers(pattern: Pattern, nonzeros: object, mask: NDArray | None = None) -> None:
    """Check that a pattern contains every nonzero of an array of the shape of the Jacobian. Raises: AssertionError with
    missed entries; ArgumentError for another shape."""
    dense = np.asarray(nonzeros).reshape(-1, pattern.shape[1]) if pattern.shape[1] else np.zeros(pattern.shape)
    if dense.shape != pattern.shape:
        raise ArgumentError(
            f"check_sparsity: the pattern has shape {pattern.shape}, the Jacobian {dense.shape}",
            remedy="give the Jacobian of the same function",
        )
    covered = as_mask(pattern) if mask is None else mask
    missed = np.argwhere(np.logical_and(dense != 0, np.logical_not(covered)))
    if len(missed):
        raise AssertionError(
            f"check_sparsity: the pattern of shape {pattern.shape} misses {len(missed)} nonzeros of the Jacobian: (row,"
            f" column) {missed[:5].tolist()}"
        )
