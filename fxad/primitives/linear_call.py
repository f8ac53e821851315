"""`linear_call`: a linear map, usually with a given adjoint."""

from __future__ import annotations

from typing import ClassVar, final

from fxad.core.layout import Body, Constant, Group, Layout, Value
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.ir import (
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
    Operands,
    Tangents,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.control.call import Applied, Call, check_body_type, check_operands, layout_with_rules
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.linear_maps import batch_adjoint


@final
@primitive
class LinearCall(Applied, Linear):
    """Apply `body`, which is linear in its first `n_linear` operands. `adjoint` is its transpose in these operands.

    Type:   (linear operands, other operands) -> results of `body`. `adjoint`: (cotangents of the results, other
            operands) -> cotangents of the linear operands; None for the tangents of a `while` without a bound, which
            has no transpose.
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
        if self.adjoint is None:  # only `while` emits such an equation
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
