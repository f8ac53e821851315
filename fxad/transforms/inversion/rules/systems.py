"""Inverses of linear systems in their right-hand side."""

from __future__ import annotations

from typing import Final

from fxad.ir import Atom, Hole, Mask
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.linalg.lu import LuPivotsToPermutation
from fxad.primitives.linalg.matrices import (
    column,
    columns,
    conj,
    diagonal,
    dot,
    identity,
    lower_mask,
    on_diagonal,
    permuted,
    plus,
    rows,
    transposed,
    zero_unless,
    zero_where,
)
from fxad.primitives.linalg.solve import Solve
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.transforms.inversion.rules.contract import (
    Args,
    InverseCtx,
    InverseRow,
    Outs,
    Refused,
    Solved,
    all_known,
    row,
)
from fxad.transforms.inversion.rules.totals import constant, log_sizes, total

MATRIX_UNKNOWN: Final = "its matrix is unknown"


def _triangular_solve(ctx: InverseCtx, prim: TriangularSolve, args: Args, outs: Outs) -> Solved | Refused:
    """Return op(A) X, or X op(A)."""
    (x,), a = outs, args[0]
    if isinstance(a, Hole):
        return Refused(MATRIX_UNKNOWN)
    one = ctx.one
    lower = lower_mask(ctx, a.aval.shape, 0 if prim.lower_a else -1)
    m = zero_unless(one, lower, a) if prim.lower_a else zero_where(one, lower, a)
    if prim.unit_diagonal:
        m = plus(one, zero_where(one, on_diagonal(ctx, a.aval.shape), m), identity(ctx, a.aval))
    m = transposed(one, m) if prim.transpose_a else m
    m = conj(one, m) if prim.conjugate_a else m
    return None, (dot(one, m, x) if prim.left_side else dot(one, x, m))


def _triangular_log_det(ctx: InverseCtx, prim: TriangularSolve, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    a, (x,) = args[0], outs
    if prim.unit_diagonal:
        return constant(0.0, x)
    return _less(ctx, diagonal(ctx, ctx.one, a), x, x.aval.shape[-1 if prim.left_side else -2])


def _less(ctx: InverseCtx, line: Atom, x: Atom, count: int) -> Atom:
    """Return minus log|det| of triangular matrices with this diagonal, `count` times."""
    return ctx.one(MUL, total(ctx, log_sizes(ctx, line)), constant(-float(count), x))


def _solve(ctx: InverseCtx, prim: Solve, args: Args, outs: Outs) -> Solved | Refused:
    """Return op(A) X, computed with the factors of A that gave X."""
    matrix = all_known(args[:3])
    if matrix is None:
        return Refused(MATRIX_UNKNOWN)
    (x,), (_, lu, pivots), one = outs, matrix, ctx.one
    lower, upper = _triangles(ctx, lu)
    order = column(one, one(LuPivotsToPermutation(x.aval.shape[-2], not prim.transpose_a), pivots))
    if prim.transpose_a:
        x = dot(one, transposed(one, upper), dot(one, transposed(one, lower), permuted(one, x, order)))
    else:
        x = permuted(one, dot(one, lower, dot(one, upper, x)), order)
    return None, None, None, x


def _solve_log_det(ctx: InverseCtx, prim: Solve, args: Outs, unknown: Mask, outs: Outs) -> Atom:
    """Use |det A| = |det U|."""
    return _less(ctx, diagonal(ctx, ctx.one, args[1]), outs[0], outs[0].aval.shape[-1])


def _triangles(ctx: InverseCtx, lu: Atom) -> tuple[Atom, Atom]:
    """Return L and U from the matrix that stores both."""
    one, k = ctx.one, min(lu.aval.shape[-2:])
    left, right = columns(one, lu, 0, k), rows(one, lu, 0, k)
    unit = plus(one, zero_unless(one, lower_mask(ctx, left.aval.shape, -1), left), identity(ctx, left.aval))
    return unit, zero_where(one, lower_mask(ctx, right.aval.shape, -1), right)


SYSTEMS: Final[tuple[InverseRow, ...]] = (
    row(TriangularSolve, _triangular_solve, _triangular_log_det),
    row(Solve, _solve, _solve_log_det),
)
