"""Linear algebra: batches of masked size lane by lane; matrices of masked size only where the identity can pad them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fxad.ir import Atom, Aval, Lit, Primitive
from fxad.primitives.elementwise import AND, EQ, SELECT_N
from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import Expm, ExpmFrechet
from fxad.primitives.linalg.lu import Lu, LuPivotsToPermutation
from fxad.primitives.linalg.qr import Geqrf, HouseholderProduct, Ormqr, Qr
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet, Solve
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linalg.tridiagonal import TridiagonalSolve
from fxad.transforms.mask.contract import Atoms, Avals, MaskCtx, MaskRule, not_masked, row


def with_identity(ctx: MaskCtx, x: Atom, aval: Aval) -> Atom:
    """Square matrices with ones on the diagonal of the padding, and zeros beside it."""
    shape, n = x.aval.shape, aval.ndim
    clear = ctx.neutral(x, aval.shape)
    inside = ctx.inside(aval.shape)
    if inside is None:
        return x
    diagonal = ctx.one(EQ, ctx.line(shape, n - 2), ctx.line(shape, n - 1))
    empty = ctx.one(EQ, inside, Lit.of(False, inside.aval))
    return ctx.one(SELECT_N, ctx.one(AND, diagonal, empty), clear, Lit.of(1, x.aval))


def _batches(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """Lane by lane, where only batch axes have padding."""
    batch = max([aval.ndim for aval in ins]) - 2
    for aval in ins:
        if ctx.ragged(aval.shape[batch:]):
            raise not_masked(prim, f"the size of its matrices {aval} is masked, and padding would change the result")
    return ctx(prim, *[ctx.neutral(x, aval.shape) for x, aval in zip(args, ins, strict=True)])


def _cholesky(ctx: MaskCtx, prim: Cholesky, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return (ctx.cleared(ctx.one(prim, with_identity(ctx, args[0], ins[0])), outs[0].shape),)


def _triangular(ctx: MaskCtx, prim: TriangularSolve, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    a, b = with_identity(ctx, args[0], ins[0]), ctx.neutral(args[1], ins[1].shape)
    return (ctx.cleared(ctx.one(prim, a, b), outs[0].shape),)


def _pivots(ctx: MaskCtx, x: Atom, aval: Aval) -> Atom:
    """Row exchanges that leave the padding in place."""
    inside = ctx.inside(aval.shape)
    return x if inside is None else ctx.one(SELECT_N, inside, ctx.line(x.aval.shape, aval.ndim - 1), x)


def _check_square(prim: Primitive, ctx: MaskCtx, aval: Aval) -> None:
    m, n = aval.shape[-2:]
    if ctx.ragged((m, n)) and m != n:
        raise not_masked(prim, f"its matrix {aval} is not square, and only the identity can pad it")


def _lu(ctx: MaskCtx, prim: Lu, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    _check_square(prim, ctx, ins[0])
    factors, exchanged = ctx(prim, with_identity(ctx, args[0], ins[0]))
    return ctx.cleared(factors, outs[0].shape), exchanged


def _permutation(ctx: MaskCtx, prim: LuPivotsToPermutation, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    if ctx.ragged(ins[0].shape[-1:]) and ins[0].shape[-1] != prim.size:
        raise not_masked(prim, f"its {ins[0].shape[-1]} pivots permute {prim.size} rows")
    return ctx(LuPivotsToPermutation(ctx.room(prim.size), prim.inverse), _pivots(ctx, args[0], ins[0]))


def _factored(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """A matrix, its factors and its row exchanges, and perhaps right-hand sides."""
    (a, factors, pivots, *others), (of_a, of_factors, of_pivots, *rest) = args, ins
    given = [with_identity(ctx, a, of_a), with_identity(ctx, factors, of_factors), _pivots(ctx, pivots, of_pivots)]
    given += [ctx.neutral(x, aval.shape) for x, aval in zip(others, rest, strict=True)]
    return [ctx.cleared(y, aval.shape) for y, aval in zip(ctx(prim, *given), outs, strict=True)]


_BATCHES: Final[tuple[type[Primitive], ...]] = (
    TridiagonalSolve,
    Pinv,
    Geqrf,
    HouseholderProduct,
    Ormqr,
    Qr,
    Eigh,
    Eig,
    Svd,
    Expm,
    ExpmFrechet,
)

_FACTORED: Final[tuple[type[Primitive], ...]] = (Solve, Slogdet, Det)

LINALG: Final[tuple[MaskRule, ...]] = (
    row(Cholesky, _cholesky, "padding is the identity"),
    row(TriangularSolve, _triangular, "padding is the identity"),
    row(Lu, _lu, "padding is the identity"),
    row(LuPivotsToPermutation, _permutation, "padding stays in place"),
    *[row(kind, _factored, "padding is the identity") for kind in _FACTORED],
    *[row(kind, _batches, "lane by lane along batch axes; none for matrices of masked size") for kind in _BATCHES],
)

__all__ = ["LINALG", "with_identity"]
