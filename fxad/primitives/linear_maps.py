"""Linear maps in derivative rules: programs of tangents or cotangents, then residuals."""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.ir import Atom, BatchCtx, Dims, Jaxpr, Lit
from fxad.primitives.control.bodies import select_by_mask, with_operands
from fxad.primitives.elementwise.arithmetic import ADD, DIV
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.linearity import is_zero, with_zero_operands
from fxad.primitives.shape import ReduceSum, broadcast_to_axis
from fxad.primitives.slicing import slice_along_axis


def drop_unused_residuals(maps: Sequence[Jaxpr], counts: Sequence[int]) -> tuple[list[Jaxpr], tuple[bool, ...]]:
    """Return linear maps over the same residuals without the residuals that no map reads, and a mask of the remaining
    residuals. `counts` are the numbers of linear operands of the maps."""
    slim = [drop_unread_operands(m) for m in maps]
    masks = [mask[n:] for (_, mask), n in zip(slim, counts, strict=True)]
    needed = tuple([any(ms) for ms in zip(*masks, strict=True)])
    return [
        with_operands(m, mask, whole.in_avals, ((True,) * n + needed))
        for whole, (m, mask), n in zip(maps, slim, counts, strict=True)
    ], needed


def batch_adjoint(ctx: BatchCtx, pull: Jaxpr, cts: Dims, known: Dims, wants: Dims) -> Jaxpr:
    """Return a batched map from cotangents (its first operands) to cotangents. The cotangent of an operand that is not
    batched is summed over the examples. The contribution of a result that is not batched is counted once.

    A map that exchanges values of the examples gets a share of the cotangent of such a result in each of them. The same
    cotangent of all examples, such as a sum over them, is then counted for each."""
    exchanges = bool(cts) and any([name == ctx.axis for name, _ in pull.free_axes])
    if exchanges and None in cts:
        shared = batch_adjoint(ctx, pull, tuple([0 if d is None else d for d in cts]), known, wants)
        b = Builder()
        dims = (*cts, *[0] * len(known))
        operands = [
            b.input(own if d is None else a) for d, own, a in zip(dims, pull.in_avals, shared.in_avals, strict=True)
        ]
        shares = [
            broadcast_to_axis(b, _share(b, x, ctx.size), None, ctx.size, 0) if d is None else x
            for d, x in zip(dims, operands, strict=True)
        ]
        return b.build(b.inline(shared, shares), shared.name)
    out_dims = ctx.recur(pull, (*cts, *known))[1]
    at = tuple(
        [(0 if exchanges or d is not None else None) if w is None else w for d, w in zip(out_dims, wants, strict=True)]
    )
    jaxpr, _ = ctx.recur(pull, (*cts, *known), at)
    sums = [k for k, (w, d) in enumerate(zip(wants, at, strict=True)) if w is None and d is not None]
    if not sums:
        return jaxpr
    b = Builder()
    ins = b.inputs(jaxpr.in_avals)
    outs = list(b.inline(jaxpr, ins))
    once = tuple([d is None for d in cts])
    if any(once):
        stacks = [
            _batch_some_cotangents(ctx, b, pull, mask, cts, known, ins) for mask in (tuple([not o for o in once]), once)
        ]
        for k in sums:
            total, (one, dim) = _sum_stack(b, *stacks[0][k]), stacks[1][k]
            if dim is not None:  # the adjoint reads a batched operand for an unbatched result
                first = slice_along_axis(one.aval.shape, 0, 0, min(1, one.aval.shape[0]))
                one = _sum_stack(b, b.one(first, one), 0)
            outs[k] = one if is_zero(total) else total if is_zero(one) else b.one(ADD, total, one)
    else:
        for k in sums:
            outs[k] = _sum_stack(b, outs[k], 0)
    return remove_dead_eqns(b.build(outs, jaxpr.name))


def _share(b: Builder, ct: Atom, size: int) -> Atom:
    """Return a cotangent divided by the number of examples, in float32 for floats below 32 bits: float16 has no
    100,000."""
    dtype = ct.aval.dtype
    wide = emit_convert(b, ct, dtypes.accumulated(dtype))
    return emit_convert(b, b.one(DIV, wide, Lit.of(size, wide.aval)), dtype)


def _batch_some_cotangents(
    ctx: BatchCtx, b: Builder, pull: Jaxpr, nonzero: tuple[bool, ...], cts: Dims, known: Dims, ins: Sequence[Atom]
) -> list[tuple[Atom, int | None]]:
    """Return the results of a batched map of cotangents, applied to the cotangents marked in `nonzero` alone, and the
    batch axes of these results."""
    n = len(nonzero)
    alone, _ = with_zero_operands(pull, nonzero)
    dims = (*select_by_mask(cts, nonzero), *known)
    at = tuple([None if d is None else 0 for d in ctx.recur(alone, dims)[1]])
    return list(
        zip(b.inline(ctx.recur(alone, dims, at)[0], (*select_by_mask(ins[:n], nonzero), *ins[n:])), at, strict=True)
    )


def _sum_stack(b: Builder, a: Atom, dim: int | None) -> Atom:
    """Return the sum of a stack along its first axis. If `dim` is None, `a` is zero and is returned unchanged."""
    if dim is None:
        return a
    return Lit.zero(a.aval.with_shape(a.aval.shape[1:])) if is_zero(a) else b.one(ReduceSum((0,)), a)
