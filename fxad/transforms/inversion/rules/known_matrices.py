"""Triangular matrices that a program computes.

Only a triangle that is there for every value counts. A matrix is triangular if a mask that depends only on indices
(`tril`, `eye`) makes it so, or if it is composed of triangular matrices. For example, tril(a) +
eye(n) * d is lower triangular: `tril` chooses by a mask of indices, a product with the matrix `eye(n)` is triangular,
and so is a sum of two lower triangular matrices.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fxad.ir import Atom, Eqn, Lit, NDArray, Var
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.elementwise.arithmetic import Add, Div, Mul, Neg, Sub
from fxad.primitives.elementwise.complex_parts import Conj
from fxad.primitives.elementwise.convert import ConvertElementType, StopGradient
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.marks import MARKS
from fxad.primitives.shape import BroadcastInDim, Iota, Transpose
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.transforms.inversion.rules.contract import InverseCtx

LOWER: Final = "lower"
UPPER: Final = "upper"

_LARGEST: Final = 1 << 22  # elements of the largest mask that is evaluated
_DEPTH: Final = 8  # the number of equations that are followed back

_SAME: Final = (*MARKS, StopGradient, OptimizationBarrier, ShardingConstraint)  # their results are their operands
_ENTRYWISE: Final = (Add, Sub, Mul, Div, Neg, Conj, ConvertElementType)
# evaluated while the program is inverted, if their operands are constants
_EVALUATED: Final = (Iota, Compare, Add, Sub, BroadcastInDim, ConvertElementType, SelectN, Transpose)


def triangles_of(ctx: InverseCtx, a: Atom, depth: int = _DEPTH) -> frozenset[str]:
    """Return the kinds of triangle (`LOWER`, `UPPER`) of the matrices on the last two axes of a known operand."""
    n = a.aval.ndim
    if n < 2 or a.aval.shape[-1] != a.aval.shape[-2]:
        return frozenset()
    if isinstance(a, Lit):
        return frozenset() if any(a.bits) else frozenset({LOWER, UPPER})
    eqn = ctx.producer(a)
    return frozenset() if eqn is None or not depth else _triangles_of_result(ctx, a, eqn, depth - 1)


def _triangles_of_result(ctx: InverseCtx, a: Var, eqn: Eqn, depth: int) -> frozenset[str]:
    prim, last = eqn.prim, (a.aval.ndim - 2, a.aval.ndim - 1)
    if isinstance(prim, _SAME):
        return triangles_of(ctx, eqn.ins[eqn.outs.index(a)], depth)
    if isinstance(prim, _ENTRYWISE):
        return frozenset([k for k in (LOWER, UPPER) if _keeps_triangle(ctx, eqn, k, depth)])
    if isinstance(prim, SelectN):
        return _triangles_of_choice(ctx, eqn, depth)
    if isinstance(prim, Transpose) and prim.perm == (*range(last[0]), *last[::-1]):
        return frozenset([LOWER if k == UPPER else UPPER for k in triangles_of(ctx, eqn.ins[0], depth)])
    if isinstance(prim, BroadcastInDim) and prim.dims[-2:] == last and eqn.ins[0].aval.shape[-2:] == a.aval.shape[-2:]:
        return triangles_of(ctx, eqn.ins[0], depth)  # the matrix axes are not broadcast
    return frozenset()


def _keeps_triangle(ctx: InverseCtx, eqn: Eqn, kind: str, depth: int) -> bool:
    """Return True if the result is triangular: a sum of triangular matrices, a product of one with any array
    elementwise, or one divided by any array."""
    triangles = [_is_triangle(ctx, x, kind, depth) for x in eqn.ins]
    if isinstance(eqn.prim, Div):
        return triangles[0]
    return any(triangles) if isinstance(eqn.prim, Mul) else all(triangles)


def _is_triangle(ctx: InverseCtx, a: Atom, kind: str, depth: int) -> bool:
    """Return True if all elements on the other side of the diagonal are zero."""
    if kind in triangles_of(ctx, a, depth):
        return True
    value = static(ctx, a)
    return value is not None and not _beyond_diagonal(value, kind).any()


def _beyond_diagonal(x: NDArray, kind: str) -> NDArray:
    return np.triu(x, 1) if kind == LOWER else np.tril(x, -1)


def _triangles_of_choice(ctx: InverseCtx, eqn: Eqn, depth: int) -> frozenset[str]:
    """Return the kinds of triangle that a choice by a mask makes: all cases that it can choose on the other side of
    the diagonal are zero there."""
    selector, *cases = eqn.ins
    mask = static(ctx, selector)
    if mask is None:
        return frozenset([k for k in (LOWER, UPPER) if all([_is_triangle(ctx, c, k, depth) for c in cases])])
    chosen = np.clip(mask.astype(np.int64), 0, len(cases) - 1)
    return frozenset(
        [
            kind
            for kind in (LOWER, UPPER)
            if all([_is_triangle(ctx, c, kind, depth) for c in [cases[j] for j in _cases_beyond(chosen, kind)]])
        ]
    )


def _cases_beyond(chosen: NDArray, kind: str) -> list[int]:
    """Return the cases that are chosen on the other side of the diagonal."""
    n = chosen.shape[-1]
    side = np.broadcast_to(_beyond_diagonal(np.ones((n, n), np.bool_), kind), chosen.shape)
    return [int(k) for k in np.unique(chosen[side])]


def static(ctx: InverseCtx, a: Atom, depth: int = _DEPTH) -> NDArray | None:
    """Return the value of an array that depends only on indices and constants; None for others, and for arrays of
    symbolic shape."""
    if a.aval.symbolic:
        return None
    if isinstance(a, Lit):
        return a.array if a.size is None else None
    eqn = ctx.producer(a)
    if eqn is None or not depth or a.aval.size > _LARGEST or not isinstance(eqn.prim, _EVALUATED):
        return None
    operands = [static(ctx, x, depth - 1) for x in eqn.ins]
    values = [x for x in operands if x is not None]
    if len(values) < len(operands):
        return None
    return np.asarray(eqn.prim.impl(*values)[eqn.outs.index(a)])
