"""`remat`: a call that stores nothing for the backward pass but its operands.

The rule that makes it so is its `jvp`: the primal program gets the call as it is, and the linear program a `remat` of
*recompute the residuals, then apply the linear map*, whose only residuals are the operands of the call. Its transpose
recomputes, then runs backward. Such an equation is `opaque`: XLA would merge the recomputation with the first
computation and so store everything after all; the lowering keeps it apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from fxad.builder import Builder
from fxad.interpret import run
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    Eqn,
    HigherOrder,
    Hlo,
    HloValue,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizedBody,
    NDArray,
    Prune,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.liveness import narrow, sweep
from fxad.memo import by_value
from fxad.primitives.control.call import adjoint_of, check_operands, cotangents, slim_call
from fxad.primitives.linearity import is_linear


@final
@primitive
class Remat(HigherOrder, Linear):
    """`body` applied to the operands; differentiating it stores the operands only.

    Type:  (operands of `body`) -> (results of `body`).
    Rule:  see the module's docstring. `opaque` marks a recomputation.
    Source: Griewank and Walther, Evaluating Derivatives (2008), chapter 12; `jax.checkpoint`.
    """

    name: ClassVar[str] = "remat"
    body: Jaxpr
    opaque: bool = False

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Remat:
        return Remat(bodies[0], self.opaque)

    def slim(self, eqn: Eqn, used: tuple[bool, ...], prune: Prune) -> Eqn:
        return slim_call(self, self.body, eqn, used, prune)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_operands(self.name, self.body, avals)
        return self.body.out_avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self.body, args)

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return hlo.opaque_call(self.body, args) if self.opaque else hlo.call(self.body, args)

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        body, out_dims = ctx.recur(self.body, dims)
        return ctx(Remat(body, self.opaque), *args), out_dims

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        nonzero = tuple([type(t) is Lin for t in tangents])
        lins = [t for t in tangents if isinstance(t, Lin)]
        n_out = len(self.body.outs)
        outs: tuple[Atom, ...]
        if ctx.split:
            outs = ctx(self, *primals)
            split = ctx.recur(self.body, nonzero)
            again, needed = recompute(self.body, split)
            saved = [p for p, n in zip(primals, needed, strict=True) if n]
            dots = iter(ctx.lin(Remat(again, True), *lins, *saved) if again.outs else ())
            out_nonzero = split.out_nonzero
        else:
            fused, out_nonzero = ctx.recur_fused(self.body, nonzero)
            both = ctx(Remat(fused, self.opaque), *primals, *[t.var for t in lins])
            outs, dots = both[:n_out], iter([Lin(v) for v in both[n_out:]])
        return outs, tuple(
            [next(dots) if nz else Zero(a) for nz, a in zip(out_nonzero, self.body.out_avals, strict=True)]
        )

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return is_linear(self.body, mask)

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        adjoint, operands = adjoint_of(ctx, self.body, cts, args)
        return cotangents(adjoint, ctx(Remat(adjoint, self.opaque), *operands), args)


@by_value
def is_opaque(jaxpr: Jaxpr) -> bool:
    """Whether a program recomputes something in a form that is kept apart, other than inside a recomputation."""
    return any(
        [
            e.prim.opaque if isinstance(e.prim, Remat) else any([is_opaque(body) for body in e.prim.bodies])
            for e in jaxpr.eqns
            if isinstance(e.prim, HigherOrder)
        ]
    )


@by_value
def in_the_open(jaxpr: Jaxpr) -> Jaxpr:
    """The same program for a place where what it recomputes was not computed before, so that nothing keeps it apart.

    A branch that is kept apart is not fused with what is around it, and XLA's CPU client runs it in one thread. What is
    recomputed inside a recomputation stays as it is.
    """
    if not is_opaque(jaxpr):
        return jaxpr
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, Remat):
            prim = Remat(prim.body)
        elif isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple([in_the_open(body) for body in prim.bodies]))
        outs = b.copy(Eqn(prim, eqn.ins, eqn.outs, eqn.source), tuple([env.get(a, a) for a in eqn.ins]))
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name)


def recompute(body: Jaxpr, split: LinearizedBody) -> tuple[Jaxpr, tuple[bool, ...]]:
    """(tangents, then those operands of `body` that are needed) -> tangents of the results; and which are needed."""
    n_out, n_dots = len(body.outs), len(split.linear.ins) - split.n_res
    b = Builder()
    dots = b.inputs([v.aval for v in split.linear.ins[:n_dots]])
    primals = b.inputs(body.in_avals)
    residuals = b.inline(split.primal, primals)[n_out:]
    again, needed = narrow(sweep(b.build(b.inline(split.linear, [*dots, *residuals]), f"again_{body.name}")))
    if not all(needed[:n_dots]):
        # a tangent that nothing reads stays an operand, so that operands and tangents keep their order
        b = Builder()
        args: list[Atom] = [
            b.input(v.aval) for v in (*dots, *[p for p, n in zip(primals, needed[n_dots:], strict=True) if n])
        ]
        kept = [a for a, n in zip(args, [*needed[:n_dots], *[True] * (len(args) - n_dots)], strict=True) if n]
        again = b.build(b.inline(again, kept), again.name)
    return again, needed[n_dots:]
