"""`remat`: a call that stores nothing for the backward pass but its operands, and what its body keeps.

The rule that makes it so is its `jvp`: the primal program gets the call as it is, and the linear program a `remat` of
*recompute the residuals, then apply the linear map*, whose only residuals are the operands of the call. Its transpose
recomputes, then runs backward. Such an equation is `opaque`: XLA would merge the recomputation with the first
computation and so store everything after all; the lowering keeps it apart.

Values that the body marks with `keep` are further results of the call where the recomputation needs them, and further
residuals: the recomputation goes on from there. A `remat` around another one keeps of the values of that one what both
keep, and its recomputation goes on from there inside the other one.
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
    Cut,
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
from fxad.liveness import dce, narrow, sweep
from fxad.memo import by_value
from fxad.primitives.control.call import adjoint_of, check_operands, cotangents, slim_call
from fxad.primitives.control.kept import cut
from fxad.primitives.linearity import is_linear


@final
@primitive
class Remat(HigherOrder, Linear):
    """`body` applied to the operands; differentiating it stores the operands, and what the body marks with `keep`.

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

    def cut(self, cut: Cut, level: int) -> tuple[Remat, Remat] | None:
        saving, resuming = cut(self.body, level + 1)
        return None if saving is self.body else (self.with_bodies((saving,)), self.with_bodies((resuming,)))

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
            split = ctx.recur(self.body, nonzero)
            out_nonzero = split.out_nonzero
            again, needed = recompute(split, n_out)
            first = self._keeping(split, needed[len(primals) :])
            both = ctx(first, *primals)
            outs = both[:n_out]
            saved = [*[p for p, n in zip(primals, needed, strict=False) if n], *both[n_out:]]
            dots = iter(ctx.lin(Remat(again, True), *lins, *saved) if again.outs else ())
        else:
            fused, out_nonzero = ctx.recur_fused(self.body, nonzero)
            both = ctx(Remat(fused, self.opaque), *primals, *[t.var for t in lins])
            outs, dots = both[:n_out], iter([Lin(v) for v in both[n_out:]])
        return outs, tuple(
            [next(dots) if nz else Zero(a) for nz, a in zip(out_nonzero, self.body.out_avals, strict=True)]
        )

    def _keeping(self, split: LinearizedBody, needed: tuple[bool, ...]) -> Remat:
        """This call with those values as further results that its body keeps and a recomputation needs."""
        if not any(needed):
            return self
        saving, _ = cut(split.primal)
        n = len(self.body.outs)
        kept = [a for a, k in zip(saving.outs[n + split.n_res :], needed, strict=True) if k]
        return Remat(dce(Jaxpr(saving.ins, saving.eqns, (*saving.outs[:n], *kept), self.body.name)), self.opaque)

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


def recompute(split: LinearizedBody, n_out: int) -> tuple[Jaxpr, tuple[bool, ...]]:
    """(tangents, then those operands and kept values of a body that are needed) -> tangents of its results; and which
    of the operands and kept values are needed."""
    n_dots = len(split.linear.ins) - split.n_res
    # the linear half keeps its form: a carry that became a constant would have its cotangents summed in another order
    linear = sweep(split.linear)
    read = narrow(linear)[1][n_dots:]
    _, resuming = cut(split.primal)
    wanted = [a for a, r in zip(resuming.outs[n_out:], read, strict=True) if r]
    resuming = dce(Jaxpr(resuming.ins, resuming.eqns, tuple(wanted), resuming.name))
    b = Builder()
    dots = b.inputs([v.aval for v in linear.ins[:n_dots]])
    known = b.inputs(resuming.in_avals)
    found = iter(b.inline(resuming, known))
    residuals = [next(found) if r else v for v, r in zip(linear.ins[n_dots:], read, strict=True)]
    again, needed = narrow(b.build(b.inline(linear, [*dots, *residuals]), f"again_{split.primal.name}"))
    if not all(needed[:n_dots]):
        # a tangent that nothing reads stays an operand, so that operands and tangents keep their order
        b = Builder()
        args: list[Atom] = [
            b.input(v.aval) for v in (*dots, *[v for v, n in zip(known, needed[n_dots:], strict=True) if n])
        ]
        kept = [a for a, n in zip(args, [*needed[:n_dots], *[True] * (len(args) - n_dots)], strict=True) if n]
        again = b.build(b.inline(again, kept), again.name)
    return again, needed[n_dots:]
