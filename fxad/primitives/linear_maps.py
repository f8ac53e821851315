"""Linear maps in derivative rules: programs of tangents or cotangents, then residuals."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.builder import Builder
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.core.masks import select_by_mask
from fxad.ir import Atom, BatchCtx, Dims, Jaxpr, Lit
from fxad.primitives.control.bodies import with_operands
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.linearity import is_zero, with_zero_operands
from fxad.primitives.shape import ReduceSum, emit_expand_dims
from fxad.primitives.slicing import pad_along_axis, slice_along_axis


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

    For x and y -> (x * y, sin(y)), `pull` is (a, b, x, y) -> (a * y, a * x + b * cos(y)). If x is batched and y is not,
    then a is batched and b is not, and the cotangent of y is sum(a * x) + b * cos(y). So the map is applied to a alone,
    and summed, and to b alone, and not summed.

    A map that exchanges values of the examples gets the cotangent of such a result for the first example, and zeros for
    the others. The same cotangent of all examples, such as a sum over them, is then counted for each."""
    exchanges = bool(cts) and any([name == ctx.axis for name, _ in pull.free_axes])
    if exchanges and None in cts:
        return _batch_adjoint_of_stacks(ctx, pull, cts, known, wants)
    out_dims = tuple(
        [
            (0 if exchanges or d is not None else None) if want is None else want
            for d, want in zip(ctx.recur(pull, (*cts, *known))[1], wants, strict=True)
        ]
    )
    jaxpr, _ = ctx.recur(pull, (*cts, *known), out_dims)
    summed = [k for k, (want, d) in enumerate(zip(wants, out_dims, strict=True)) if want is None and d is not None]
    if not summed:
        return jaxpr
    b = Builder()
    ins = b.inputs(jaxpr.in_avals)
    outs = list(b.inline(jaxpr, ins))
    batched = tuple([d is not None for d in cts])
    if all(batched):
        for k in summed:
            outs[k] = _sum_stack(b, outs[k], 0)
    else:
        shared = tuple([not m for m in batched])
        of_batched, of_shared = [
            _batch_some_cotangents(ctx, b, pull, mask, cts, known, ins) for mask in (batched, shared)
        ]
        for k in summed:
            total, (once, dim) = _sum_stack(b, *of_batched[k]), of_shared[k]
            if dim is not None:  # the adjoint reads a batched operand for an unbatched result
                first = slice_along_axis(once.aval.shape, 0, 0, min(1, once.aval.shape[0]))
                once = _sum_stack(b, b.one(first, once), 0)
            outs[k] = once if is_zero(total) else total if is_zero(once) else b.one(ADD, total, once)
    return remove_dead_eqns(b.build(outs, jaxpr.name))


def _batch_adjoint_of_stacks(ctx: BatchCtx, pull: Jaxpr, cts: Dims, known: Dims, wants: Dims) -> Jaxpr:
    """Return the batched map in which each cotangent that is not batched is that of the first example."""
    of_stacks = batch_adjoint(ctx, pull, tuple([0 if d is None else d for d in cts]), known, wants)
    b = Builder()
    dims = (*cts, *[0] * len(known))
    operands = [
        b.input(own if d is None else a) for d, own, a in zip(dims, pull.in_avals, of_stacks.in_avals, strict=True)
    ]
    stacked = [_stack_with_zeros(b, x, ctx.size) if d is None else x for d, x in zip(dims, operands, strict=True)]
    return b.build(b.inline(of_stacks, stacked), of_stacks.name)


def _stack_with_zeros(b: Builder, x: Atom, size: int) -> Atom:
    """Return a stack along axis 0 of `size` values: the first is `x`, the others are zeros. Equal shares `x / size`
    have the same sum, but in float16 and float8 they are rounded to few bits or to zero."""
    pad = pad_along_axis(x.aval.ndim + 1, 0, high=size - 1)
    return b.one(pad, emit_expand_dims(b, x, (0,)), Lit.zero(x.aval.with_shape(())))


def _batch_some_cotangents(
    ctx: BatchCtx, b: Builder, pull: Jaxpr, nonzero: tuple[bool, ...], cts: Dims, known: Dims, ins: Sequence[Atom]
) -> list[tuple[Atom, int | None]]:
    """Return the results of a batched map of cotangents, applied to the cotangents marked in `nonzero` alone, and the
    batch axes of these results."""
    n = len(nonzero)
    alone, _ = with_zero_operands(pull, nonzero)
    dims = (*select_by_mask(cts, nonzero), *known)
    out_dims = tuple([None if d is None else 0 for d in ctx.recur(alone, dims)[1]])
    batched, _ = ctx.recur(alone, dims, out_dims)
    return list(zip(b.inline(batched, (*select_by_mask(ins[:n], nonzero), *ins[n:])), out_dims, strict=True))


def _sum_stack(b: Builder, a: Atom, dim: int | None) -> Atom:
    """Return the sum of a stack along its first axis. If `dim` is None, `a` is zero and is returned unchanged."""
    if dim is None:
        return a
    return Lit.zero(a.aval.with_shape(a.aval.shape[1:])) if is_zero(a) else b.one(ReduceSum((0,)), a)
