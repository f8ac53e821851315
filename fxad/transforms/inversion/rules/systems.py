"""Inverses of linear systems in their right-hand side, and of decompositions: products of the factors."""

from __future__ import annotations

from typing import Final

from fxad.ir import Atom, Hole, Lit, Mask
from fxad.primitives.cumulative import predecessors
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.lu import Lu, LuPivotsToPermutation
from fxad.primitives.linalg.matrices import (
    as_complex,
    column,
    columns,
    conj,
    conjugate_transpose,
    diagonal,
    dot,
    identity,
    lower_mask,
    on_diagonal,
    permuted,
    plus,
    repeat_as_columns,
    repeat_as_rows,
    rows,
    times,
    transposed,
    zero_unless,
    zero_where,
)
from fxad.primitives.linalg.qr import Qr
from fxad.primitives.linalg.schur import Schur
from fxad.primitives.linalg.solve import Solve
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linalg.tridiagonal import TridiagonalSolve
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
NO_VECTORS: Final = "it gives the values alone, not the vectors"


# ----------------------------------------------------------------------------------------------------------- systems


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


def _tridiagonal_solve(ctx: InverseCtx, prim: TridiagonalSolve, args: Args, outs: Outs) -> Solved | Refused:
    """Return dl[i] x[i - 1] + d[i] x[i] + du[i] x[i + 1]."""
    (x,), diagonals = outs, all_known(args[:3])
    if diagonals is None:
        return Refused(MATRIX_UNKNOWN)
    axis, zero = x.aval.ndim - 2, Lit.zero(x.aval.with_shape(()))
    around = predecessors(ctx, x, axis, False, zero), x, predecessors(ctx, x, axis, True, zero)
    parts = [
        times(ctx.one, repeat_as_columns(ctx.one, v, x.aval.shape), r) for v, r in zip(diagonals, around, strict=True)
    ]
    return None, None, None, plus(ctx.one, plus(ctx.one, parts[0], parts[1]), parts[2])


# ---------------------------------------------------------------------------------------------------- decompositions


def _cholesky(ctx: InverseCtx, prim: Cholesky, args: Args, outs: Outs) -> Solved:
    """Return L L^H: the Hermitian matrix. The decomposition read its lower triangle."""
    return (dot(ctx.one, outs[0], conjugate_transpose(ctx.one, outs[0])),)


def _lu(ctx: InverseCtx, prim: Lu, args: Args, outs: Outs) -> Solved:
    """Return L U with the row exchanges undone."""
    (lu, pivots), one = outs, ctx.one
    order = column(one, one(LuPivotsToPermutation(lu.aval.shape[-2], True), pivots))
    return (permuted(one, dot(one, *_triangles(ctx, lu)), order),)


def _triangles(ctx: InverseCtx, lu: Atom) -> tuple[Atom, Atom]:
    """Return L and U from the matrix that stores both."""
    one, k = ctx.one, min(lu.aval.shape[-2:])
    left, right = columns(one, lu, 0, k), rows(one, lu, 0, k)
    unit = plus(one, zero_unless(one, lower_mask(ctx, left.aval.shape, -1), left), identity(ctx, left.aval))
    return unit, zero_where(one, lower_mask(ctx, right.aval.shape, -1), right)


def _qr(ctx: InverseCtx, prim: Qr, args: Args, outs: Outs) -> Solved:
    return (dot(ctx.one, *outs),)


def _eigh(ctx: InverseCtx, prim: Eigh, args: Args, outs: Outs) -> Solved | Refused:
    """Return V diag(w) V^H: the Hermitian matrix. The decomposition read one of its triangles."""
    if not prim.vectors:
        return Refused(NO_VECTORS)
    w, v = outs
    scaled = times(ctx.one, v, as_complex(ctx.one, repeat_as_rows(ctx.one, w, v.aval.shape), v.aval))
    return (dot(ctx.one, scaled, conjugate_transpose(ctx.one, v)),)


def _schur(ctx: InverseCtx, prim: Schur, args: Args, outs: Outs) -> Solved | Refused:
    """Return Z T Z^H."""
    if not prim.vectors:
        return Refused("it gives the triangular factor alone, not the vectors")
    t, z = outs
    return (dot(ctx.one, dot(ctx.one, z, t), conjugate_transpose(ctx.one, z)),)


def _svd(ctx: InverseCtx, prim: Svd, args: Args, outs: Outs) -> Solved | Refused:
    """Return U diag(s) V^H."""
    if not prim.vectors:
        return Refused(NO_VECTORS)
    (s, u, vh), one = outs, ctx.one
    k = s.aval.shape[-1]
    u, vh = columns(one, u, 0, k), rows(one, vh, 0, k)
    return (dot(one, times(one, u, as_complex(one, repeat_as_rows(one, s, u.aval.shape), u.aval)), vh),)


SYSTEMS: Final[tuple[InverseRow, ...]] = (
    row(TriangularSolve, _triangular_solve, _triangular_log_det),
    row(Solve, _solve, _solve_log_det),
    row(TridiagonalSolve, _tridiagonal_solve),
    row(Cholesky, _cholesky),
    row(Lu, _lu),
    row(Qr, _qr),
    row(Eigh, _eigh),
    row(Schur, _schur),
    row(Svd, _svd),
)
