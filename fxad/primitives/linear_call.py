"""`linear_call`: a linear map, usually with a given adjoint. Also helpers for linear maps in derivative rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from fxad.core.builder import Builder
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.core.layout import Body, Constant, Group, Layout, Value
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    HigherOrder,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    Lit,
    Operands,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.control.bodies import select_by_mask, with_operands
from fxad.primitives.control.call import Applied, Call, check_operands, layout_with_rules
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.elementwise.arithmetic import ADD, DIV
from fxad.primitives.linearity import is_zero, with_zero_operands
from fxad.primitives.operand_checks import TRACE_AGAIN
from fxad.primitives.shape import ReduceSum, broadcast_to_axis
from fxad.primitives.slicing import Slice


@final
@primitive
class LinearCall(Applied, Linear):
    """Apply `body`, which is linear in its first `n_linear` operands. `adjoint` is its transpose in these operands.

    Type:   (linear operands, other operands) -> results of `body`. `adjoint`: (cotangents of the results, other
            operands) -> cotangents of the linear operands; None for the tangents of a loop without a bound, which has
            no transpose.
    Rule:   the transpose exchanges `body` and `adjoint`. The derivative in the other operands is that of `body`.
            Effects happen for primal values, and not again for tangents.
    """

    name: ClassVar[str] = "linear_call"
    body: Jaxpr
    adjoint: Jaxpr | None
    n_linear: int

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,) if self.adjoint is None else (self.body, self.adjoint)

    @property
    def linear_bodies(self) -> tuple[int, ...]:
        """For each body, the number of its first operands in which it is linear."""
        return (self.n_linear, len(self.body.outs))[: len(self.bodies)]

    @property
    def layout(self) -> Layout:
        if self.adjoint is not None:
            return layout_with_rules(self.bodies, 0, linear=self.linear_bodies)
        known = Group(Constant(), len(self.body.ins) - self.n_linear)
        results = Group(Value(), len(self.body.outs))
        body = Body(self.body, (0, 1), (0,), linear=self.n_linear)
        return Layout((Group(Constant(), self.n_linear, fixed=True), known), (results,), (body,))

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> LinearCall:
        body, *adjoint = bodies
        return LinearCall(body, adjoint[0] if adjoint else None, self.n_linear)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        n, outs = self.n_linear, self.body.out_avals
        if not 0 < n <= len(self.body.ins):
            raise ParameterError(
                f"{self.name}: n_linear is {n}, {self.body.name} has {len(self.body.ins)} operands",
                remedy="at least one operand is linear, and linear ones come first",
            )
        linear, known = self.body.in_avals[:n], self.body.in_avals[n:]
        if self.adjoint is not None:
            check_body_type(self.name, "adjoint", self.adjoint, (*outs, *known), linear)
        for what, avals_of_role in (("linear operand", linear), ("result", outs)):
            for k, aval in enumerate(avals_of_role):
                if not aval.inexact:
                    raise ParameterError(
                        f"{self.name}: {what} {k} of {self.body.name} is {aval}, which has no tangent",
                        remedy="linear operands and results are floating or complex",
                    )
        check_operands(self.name, self.body, avals)
        return outs

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        linear, known = dims[: self.n_linear], dims[self.n_linear :]
        body, out_dims = ctx.recur(self.body, dims)
        adjoint = None if self.adjoint is None else batch_adjoint(ctx, self.adjoint, out_dims, known, linear)
        return ctx(LinearCall(body, adjoint, self.n_linear), *args), out_dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        n, quiet = self.n_linear, without_checks(without_effects(self.body))
        outs, known = ctx(self, *primals), primals[n:]
        dots = ctx.lin(LinearCall(quiet, self.adjoint, n), *tangents[:n], *known)
        if any([isinstance(t, Lin) for t in tangents[n:]]):
            fixed = tuple([Zero(a) for a in self.body.in_avals[:n]])
            _, more = Call(quiet).jvp(ctx, primals, (*fixed, *tangents[n:]))
            dots = tuple([ctx.add(a, b) for a, b in zip(dots, more, strict=True)])
        return outs, dots

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return all(mask[: self.n_linear]) and not any(mask[self.n_linear :])

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        if self.adjoint is None:
            raise NotDifferentiableError(
                "while: reverse mode goes backward through the steps, and the number of steps has no bound that is "
                "known before the loop runs",
                remedy="give while_loop max_steps, or fori_loop bounds that are Python ints, or use scan "
                "or forward mode (jvp, jacfwd, linearize)",
            )
        nonzero_cts = [ct.instantiate() if isinstance(ct, Zero) else ct for ct in cts]
        known = [a for a in args if not isinstance(a, Hole)]
        bars = ctx(LinearCall(self.adjoint, self.body, len(nonzero_cts)), *nonzero_cts, *known)
        return (*bars, *[None] * len(known))


@by_value
def has_adjoint(jaxpr: Jaxpr) -> bool:
    """Return True if no `linear_call` in the program, or in one of its bodies, lacks an adjoint."""
    return all([
        (not isinstance(e.prim, LinearCall) or e.prim.adjoint is not None) and all(map(has_adjoint, e.prim.bodies))
        for e in jaxpr.eqns
        if isinstance(e.prim, HigherOrder)
    ])  # fmt: skip


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
            broadcast_to_axis(b, b.one(DIV, x, Lit.of(ctx.size, x.aval)), None, ctx.size, 0) if d is None else x
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
                one = _sum_stack(b, b.one(_first_row(one.aval), one), 0)
            outs[k] = one if is_zero(total) else total if is_zero(one) else b.one(ADD, total, one)
    else:
        for k in sums:
            outs[k] = _sum_stack(b, outs[k], 0)
    return remove_dead_eqns(b.build(outs, jaxpr.name))


def _batch_some_cotangents(
    ctx: BatchCtx, b: Builder, pull: Jaxpr, live: tuple[bool, ...], cts: Dims, known: Dims, ins: Sequence[Atom]
) -> list[tuple[Atom, int | None]]:
    """Return the results of a batched map of cotangents, applied to the cotangents in `live` alone, and the batch axes
    of these results."""
    n = len(live)
    alone, _ = with_zero_operands(pull, live)
    dims = (*select_by_mask(cts, live), *known)
    at = tuple([None if d is None else 0 for d in ctx.recur(alone, dims)[1]])
    return list(
        zip(b.inline(ctx.recur(alone, dims, at)[0], (*select_by_mask(ins[:n], live), *ins[n:])), at, strict=True)
    )


def _sum_stack(b: Builder, a: Atom, dim: int | None) -> Atom:
    """Return the sum of a stack along its first axis. If `dim` is None, `a` is zero and is returned unchanged."""
    if dim is None:
        return a
    return Zero(a.aval.with_shape(a.aval.shape[1:])).instantiate() if is_zero(a) else b.one(ReduceSum((0,)), a)


def _first_row(stack: Aval) -> Slice:
    """Return the slice of the first row of a stack."""
    ones = (1,) * stack.ndim
    return Slice((0,) * stack.ndim, (min(1, stack.shape[0]), *stack.shape[1:]), ones)


def check_body_type(name: str, role: str, jaxpr: Jaxpr, ins: tuple[Aval, ...], outs: tuple[Aval, ...]) -> None:
    """Check the type of a body of an equation. Raises: ParameterError."""
    for verb, have, want in (("takes", jaxpr.in_avals, ins), ("returns", jaxpr.out_avals, outs)):
        if have != want:
            actual, wanted = ", ".join(map(str, have)), ", ".join(map(str, want))
            raise ParameterError(
                f"{name}: {role} {jaxpr.name} {verb} ({actual}), expected ({wanted})",
                remedy=TRACE_AGAIN,
            )
