"""`linear_call`: a linear map, usually with its adjoint; and operations of derivative rules on linear maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.dce import drop_unread_operands, remove_dead_eqns
from fxad.core.layout import Body, Constant, Group, Layout, Value
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    HigherOrder,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.control.bodies import select_by_mask, with_operands
from fxad.primitives.control.call import Applied, Call, check_operands, layout_with_rules
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.elementwise import ADD
from fxad.primitives.linearity import is_zero, with_zero_operands
from fxad.primitives.operand_checks import TRACE_AGAIN
from fxad.primitives.shape import ReduceSum
from fxad.primitives.slicing import Slice

Dims: TypeAlias = tuple[int | None, ...]


@final
@primitive
class LinearCall(Applied, Linear):
    """`body` applied to the operands, of which it is linear in the first `n_linear`; `adjoint` is its transpose there.

    Type: (linear operands, then others) -> results of `body`, where
          `adjoint`: (cotangents of the results, then the others) -> cotangents of the linear operands; None for the
          tangents of a loop without a bound, which is not transposed.
    Rule: transposed, the two change places. With respect to the other operands, the derivative is that of `body`.
          Effects happen where the operands are values, and not once more where they are tangents.
    """

    name: ClassVar[str] = "linear_call"
    body: Jaxpr
    adjoint: Jaxpr | None
    n_linear: int

    @property
    def value(self) -> Jaxpr:
        return self.body

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
        for what, found in (("linear operand", linear), ("result", outs)):
            for k, aval in enumerate(found):
                if not aval.inexact:
                    raise ParameterError(
                        f"{self.name}: {what} {k} of {self.body.name} is {aval}, which has no tangent",
                        remedy="linear operands and results are floating or complex",
                    )
        check_operands(self.name, self.body, avals)
        return outs

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        linear, known = dims[: self.n_linear], dims[self.n_linear :]
        body, out_dims = ctx.recur(self.body, dims)
        adjoint = None if self.adjoint is None else batch_adjoint(ctx, self.adjoint, out_dims, known, linear)
        return ctx(LinearCall(body, adjoint, self.n_linear), *args), out_dims

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
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

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        if self.adjoint is None:
            raise NotDifferentiableError(
                "while: reverse mode goes backward through the steps, and the number of steps has no bound that is "
                "known before the loop runs",
                remedy="give while_loop max_steps, or fori_loop bounds that are Python ints, or use scan "
                "or forward mode (jvp, jacfwd, linearize)",
            )
        given = [ct.instantiate() if isinstance(ct, Zero) else ct for ct in cts]
        known = [a for a in args if not isinstance(a, Hole)]
        bars = ctx(LinearCall(self.adjoint, self.body, len(given)), *given, *known)
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
    """Linear maps over the same residuals without those that none of them reads; and which residuals are left. `counts`
    are the numbers of their linear operands."""
    slim = [drop_unread_operands(m) for m in maps]
    masks = [mask[n:] for (_, mask), n in zip(slim, counts, strict=True)]
    needed = tuple([any(ms) for ms in zip(*masks, strict=True)])
    return [
        with_operands(m, mask, whole.in_avals, ((True,) * n + needed))
        for whole, (m, mask), n in zip(maps, slim, counts, strict=True)
    ], needed


def batch_adjoint(ctx: BatchCtx, pull: Jaxpr, cts: Dims, known: Dims, wants: Dims) -> Jaxpr:
    """A map of cotangents, which are its first operands, to cotangents, batched: those of operands that are the same
    for all examples are summed. What a result that is the same for all contributes to them is counted once."""
    found = ctx.recur(pull, (*cts, *known))[1]
    at = tuple([(None if d is None else 0) if w is None else w for d, w in zip(found, wants, strict=True)])
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
            if dim is not None:  # the rule reads what is mapped for a result that does not
                one = _sum_stack(b, b.one(_first_row(one.aval), one), 0)
            outs[k] = one if is_zero(total) else total if is_zero(one) else b.one(ADD, total, one)
    else:
        for k in sums:
            outs[k] = _sum_stack(b, outs[k], 0)
    return remove_dead_eqns(b.build(outs, jaxpr.name))


def _batch_some_cotangents(
    ctx: BatchCtx, b: Builder, pull: Jaxpr, live: tuple[bool, ...], cts: Dims, known: Dims, ins: Sequence[Atom]
) -> list[tuple[Atom, int | None]]:
    """What a map of cotangents, batched, makes of some of them alone; and which results are stacks."""
    n = len(live)
    alone, _ = with_zero_operands(pull, live)
    dims = (*select_by_mask(cts, live), *known)
    at = tuple([None if d is None else 0 for d in ctx.recur(alone, dims)[1]])
    return list(
        zip(b.inline(ctx.recur(alone, dims, at)[0], (*select_by_mask(ins[:n], live), *ins[n:])), at, strict=True)
    )


def _sum_stack(b: Builder, a: Atom, dim: int | None) -> Atom:
    """The sum of a stack along its first axis. What is none is zero, as no stack went in."""
    if dim is None:
        return a
    return Zero(a.aval.with_shape(a.aval.shape[1:])).instantiate() if is_zero(a) else b.one(ReduceSum((0,)), a)


def _first_row(stack: Aval) -> Slice:
    ones = (1,) * stack.ndim
    return Slice((0,) * stack.ndim, (min(1, stack.shape[0]), *stack.shape[1:]), ones)


def check_body_type(name: str, role: str, jaxpr: Jaxpr, ins: tuple[Aval, ...], outs: tuple[Aval, ...]) -> None:
    """Check the type of a body of an equation. Raises: ParameterError."""
    for verb, have, want in (("takes", jaxpr.in_avals, ins), ("returns", jaxpr.out_avals, outs)):
        if have != want:
            found, wanted = ", ".join(map(str, have)), ", ".join(map(str, want))
            raise ParameterError(
                f"{name}: {role} {jaxpr.name} {verb} ({found}), expected ({wanted})",
                remedy=TRACE_AGAIN,
            )
