"""Inverses of linear systems in their right-hand side."""

from __future__ import annotations

from typing import Final

from fxad.ir import Atom, Atoms, Flags
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.linalg.family import LinearSystem
from fxad.primitives.linalg.matrices import (
    diagonal,
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


def _system(ctx: InverseCtx, prim: LinearSystem, args: Args, outs: Outs) -> Solved | Refused:
    """Return the right-hand side."""
    matrix = all_known(args[:-1])
    if matrix is None:
        return Refused(MATRIX_UNKNOWN)
    return *[None] * len(matrix), prim.right_hand_side(ctx, tuple(matrix), outs[0])


def _triangular_log_det(ctx: InverseCtx, prim: TriangularSolve, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
    a, (x,) = args[0], outs
    if prim.unit_diagonal:
        return constant(0.0, x)
    return _minus_log_det(ctx, diagonal(ctx, ctx.one, a), x, x.aval.shape[-1 if prim.left_side else -2])


def _minus_log_det(ctx: InverseCtx, line: Atom, x: Atom, count: int) -> Atom:
    """Return minus log|det| of triangular matrices with this diagonal, `count` times."""
    return ctx.one(MUL, total(ctx, log_sizes(ctx, line)), constant(-float(count), x))


def _solve_log_det(ctx: InverseCtx, prim: Solve, args: Atoms, unknown: Flags, outs: Outs) -> Atom:
    """Use |det A| = |det U|."""
    return _minus_log_det(ctx, diagonal(ctx, ctx.one, args[1]), outs[0], outs[0].aval.shape[-1])


SYSTEMS: Final[tuple[InverseRow, ...]] = (
    row(LinearSystem, _system),
    row(TriangularSolve, _system, _triangular_log_det),
    row(Solve, _system, _solve_log_det),
)
