"""`remat`: a call that stores for the backward pass only its operands and the values that its body marks with `keep`.

Its type and layout are those of `call`: the operands of `body` -> the results of `body`, in one group each. The body
runs once. `Layout.remat` tells transformations that values of the body are not stored.

`remat` of a body f, `y = remat[f] x`, is linearized in these steps (`Remat.jvp`).

1. The body is linearized: a primal half `x -> (y, residuals)` and a linear half `(x_dot, residuals) -> y_dot`.
2. The primal program contains the call, with the kept values that step 3 needs as further results. They are residuals.
3. `recompute` composes the halves: `(x_dot, x, kept values) -> y_dot`. It recomputes the other residuals from the
   operands and the kept values (`kept_values.py`), then applies the linear half. Operands that it
   does not read are dropped.
4. The linear program contains a `remat` of this composition. It is linear in `x_dot`, and its residuals are `x` and the
   kept values. It is added by `lin_remat`.
5. When the whole program is linearized, another equation may have stored some results of the call, as the next
   `remat` stores its operands. The linear equation then takes these as further operands and does not compute the last
   values of the body (`resume`).

The linear equation is transposed like a call (`Remat.transpose`): the body becomes `(y_bar, x, kept values) -> x_bar`,
which recomputes, then runs backward.

>>> import fxad as fx, fxad.numpy as fnp
>>> from fxad.transforms import linearize, transpose
>>> def f(x):
...     return fnp.sin(fnp.exp(x) * 3.5)
>>> halves = linearize(fx.trace(fx.remat(f), fx.Spec((3,), "float32")).jaxpr, (True,))
>>> print(halves.linear)  # linear in %arg0, the tangent; %arg1 is the operand of the call
fn @again_f(%arg0: f32[3], %arg1: f32[3]) -> (f32[3]) {
  %0: f32[3] = exp %arg1
  %1: f32[3] = mul %0, 3.5:f32[3]
  %2: f32[3] = cos %1
  %3: f32[3] = mul %arg0, %0
  %4: f32[3] = mul %3, 3.5:f32[3]
  %5: f32[3] = mul %4, %2
  return %5
}
<BLANKLINE>
main @linear_remat_f(%arg0: f32[3], %arg1: f32[3]) -> (f32[3]) {
  %0: f32[3] = remat[body=@again_f, opaque=true] %arg0, %arg1
  return %0
}
<BLANKLINE>
>>> print(transpose(halves.linear, (True, False)))
fn @transpose_again_f(%arg0: f32[3], %arg1: f32[3]) -> (f32[3]) {
  %0: f32[3] = exp %arg1
  %1: f32[3] = mul %0, 3.5:f32[3]
  %2: f32[3] = cos %1
  %3: f32[3] = mul %arg0, %2
  %4: f32[3] = mul %3, 3.5:f32[3]
  %5: f32[3] = mul %4, %0
  return %5
}
<BLANKLINE>
main @transpose_linear_remat_f(%arg0: f32[3], %arg1: f32[3]) -> (f32[3]) {
  %0: f32[3] = remat[body=@transpose_again_f, opaque=true] %arg0, %arg1
  return %0
}
<BLANKLINE>

The linear equation is `opaque`. Otherwise XLA would merge the recomputation with the first computation by common
subexpression elimination, and all residuals would be stored. The lowering puts an opaque body into a branch whose
condition is always true, because XLA merges nothing across a branch (`Hlo.opaque_call`).

A `remat` in the body of a loop is linearized as any equation of the body. Its operands and kept values are residuals of
the loop: those that vary are stacked, one for each step (`loop_derivatives.py` has an example). The linear half is a
loop of its own, so XLA cannot merge its recomputation with the first one. `linearize_steps` removes `opaque` there
(`without_opaque`), except if the primal half contains opaque recomputations itself: a second derivative.

An outer `remat` keeps those values of an inner one that both keep; its recomputation starts from them inside the inner
one.

Gradients are those of the program without `remat`, bit for bit up to the sign of a zero: the cotangents of a value that
several equations read are added in the same order. So a tangent that the body returns unchanged or twice stays outside,
and transposition adds the cotangents of the body to the earlier ones inside (`transforms/ad/transpose.py`). A negation
of a broadcast is transposed in another order if one of the two is in the body.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, final

from fxad.core.builder import Builder, rebind_operands, rewrite, substitute
from fxad.core.dce import dce, drop_unread_operands, read_operands, remove_dead_eqns
from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.core.layout import Layout, Once
from fxad.core.memo import by_value
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Eqn,
    Flags,
    HigherOrder,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizeCtx,
    LinearizedBody,
    NDArray,
    Operands,
    Tangent,
    Tangents,
    TransposeCtx,
    Var,
    all_prims,
    primitive,
)
from fxad.primitives.control.bodies import insert_zeros, split_fused_results
from fxad.primitives.control.call import Call, adjoint_of, check_operands, cotangents_of_operands, layout_of_call
from fxad.primitives.control.kept_values import split_at_kept
from fxad.primitives.custom import CallWithRules
from fxad.primitives.linearity import is_linear


@final
@primitive
class Remat(HigherOrder, Linear):
    """`body` applied to the operands. Its derivative stores the operands and the values that the body marks with
    `keep`.

    Type:  (operands of `body`) -> (results of `body`).
    Rule:  see the module's docstring. `opaque`: XLA does not merge the body with equations outside. For
            recomputations, and for segments, which XLA must run one after another (`transforms/memory/segments.py`).
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

    @property
    def layout(self) -> Layout:
        return layout_of_call(self.body, Once(self.opaque), remat=True)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_operands(self.name, self.body, avals)
        return self.body.out_avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self.body, args)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.opaque_call(self.body, args) if self.opaque else hlo.call(self.body, args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        body, out_dims = ctx.recur(self.body, dims)
        return ctx(Remat(body, self.opaque), *args), out_dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        body, places = deduplicate_operands(self.body, tuple(zip(primals, tangents, strict=True)))
        if len(places) < len(primals):
            prim = Remat(body, self.opaque)
            return prim.jvp(ctx, tuple([primals[k] for k in places]), tuple([tangents[k] for k in places]))
        nonzero = tuple([type(t) is Lin for t in tangents])
        lins = [t for t in tangents if isinstance(t, Lin)]
        if ctx.separate:
            return self._linearize(ctx, primals, lins, ctx.recur(self.body, nonzero))
        fused, out_nonzero = ctx.recur_fused(self.body, nonzero)
        results = ctx(Remat(fused, self.opaque), *primals, *[t.var for t in lins])
        return split_fused_results(results, out_nonzero, self.body.out_avals)

    def _linearize(
        self, ctx: LinearizeCtx, primals: Atoms, lins: Sequence[Lin], linearized: LinearizedBody
    ) -> tuple[Atoms, Tangents]:
        """Apply steps 2 to 5 of the module's docstring. `lins` are the tangents that are not zero."""
        n_out = len(self.body.outs)
        # A tangent that the body returns unchanged, or twice, is not a result of the `remat`. So its cotangents are
        # summed outside of it, in the order of the program without it.
        # The further operands of the linear program are residuals.
        tangents: dict[Atom, Tangent] = dict(zip(linearized.linear.ins, lins, strict=False))
        computed = tuple(dict.fromkeys([a for a in linearized.linear.outs if a not in tangents]))
        recomputation, is_needed = recompute(linearized, computed, n_out)
        # the operands of a recomputation: tangents, operands of the call, then kept values
        lins_and_primals = (*lins, *primals)
        n = len(lins_and_primals)
        results = ctx(self._with_kept_results(linearized, is_needed[n:]), *primals)
        outs, kept_results = results[:n_out], results[n_out:]
        operands: list[Atom | Lin] = [*select_by_flags(lins_and_primals, is_needed[:n]), *kept_results]
        # Different values, such as x and x + 1, may have the same tangent. Its cotangents are summed inside.
        body, distinct = deduplicate_operands(recomputation, operands)

        def resumed(stored: Flags) -> Remat | None:
            """Return the recomputation that takes stored results of the call; None if it would not use them."""
            shorter = resume(linearized, computed, n_out, is_needed, stored)
            if len(shorter.eqns) >= len(recomputation.eqns):
                return None
            return Remat(deduplicate_operands(shorter, [*operands, *select_by_flags(outs, stored)])[0], True)

        if computed:
            recomputed = ctx.lin_remat(Remat(body, True), tuple([operands[k] for k in distinct]), outs, resumed)
            tangents.update(zip(computed, recomputed, strict=True))
        out_tangents = [tangents[a] for a in linearized.linear.outs]
        return outs, insert_zeros(out_tangents, linearized.out_nonzero, self.body.out_avals)

    def _with_kept_results(self, linearized: LinearizedBody, is_needed: Flags) -> Remat:
        """Return this call with further results: of the values that its body keeps, those that a recomputation needs.

            split.primal              operands -> (results, residuals)
            storing                   operands -> (results, residuals, kept values)
            the body of the result    operands -> (results, kept values that `is_needed` marks)

        For the body `y = exp(x); keep(y); sin(y)`, that is x -> (sin(y), y). The residual cos(y) is recomputed from y.

        If nothing is needed, the call stays as it is, with one exception: if the body contains a function with custom
        derivatives, the call contains the linearization by those rules. A second derivative then differentiates the
        rules' results and does not apply the rules again, as without `remat`.
        """
        if not any(is_needed) and not uses_custom_derivative(self.body):
            return self
        storing, _ = split_at_kept(linearized.primal)
        n = len(self.body.outs)
        kept_results = select_by_flags(storing.outs[n + linearized.n_res :], is_needed)
        body = Jaxpr(storing.ins, storing.eqns, (*storing.outs[:n], *kept_results), self.body.name)
        return Remat(dce(body), self.opaque)

    def linear_in(self, flags: Flags) -> bool:
        return is_linear(self.body, flags)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        adjoint, operands = adjoint_of(ctx, self.body, cts, args)
        return cotangents_of_operands([adjoint], ctx(Remat(adjoint, self.opaque), *operands), args)


def body_of_call_or_remat(eqn: Eqn) -> Jaxpr | None:
    """Return the body of a `call` or a `remat`, which is only a call after differentiation; None for other
    equations."""
    prim = eqn.prim
    # not isinstance: this is a hot path, run on every equation
    return prim.body if type(prim) is Call or type(prim) is Remat else None


def deduplicate_operands(body: Jaxpr, ins: Sequence[Hashable]) -> tuple[Jaxpr, tuple[int, ...]]:
    """Return the body with one operand for each distinct value, and the places of the operands that are left."""
    first: dict[Hashable, int] = {}
    for k, a in enumerate(ins):
        first.setdefault(a, k)
    return rebind_operands(body, tuple(first), has=ins), tuple(first.values())


def whole_remat(jaxpr: Jaxpr) -> Remat | None:
    """Return the `remat` if the program is only one."""
    if len(jaxpr.eqns) != 1:
        return None
    (eqn,) = jaxpr.eqns
    prim = eqn.prim
    return prim if isinstance(prim, Remat) and eqn.ins == jaxpr.ins and eqn.outs == jaxpr.outs else None


@by_value
def uses_custom_derivative(jaxpr: Jaxpr) -> bool:
    """Return True if the program or one of its bodies uses a function with custom derivatives."""
    return any([isinstance(p, CallWithRules) and p.rules.has_derivative for p in all_prims(jaxpr)])


@by_value
def is_opaque(jaxpr: Jaxpr) -> bool:
    """Return True if the program contains an opaque recomputation that is not inside another recomputation."""
    return any(
        [
            e.prim.opaque if isinstance(e.prim, Remat) else any([is_opaque(body) for body in e.prim.bodies])
            for e in jaxpr.eqns
            if isinstance(e.prim, HigherOrder)
        ]
    )


@by_value
def without_opaque(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with its recomputations not opaque. Used where the first computation is not in the same
    program, so XLA has nothing to merge.

    XLA does not fuse an opaque branch with other code, and its CPU client runs it in one thread. A recomputation inside
    a recomputation is unchanged.
    """
    if not is_opaque(jaxpr):
        return jaxpr
    return rewrite(jaxpr, _not_opaque)


def _not_opaque(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
    prim = eqn.prim
    if isinstance(prim, Remat):
        return b.copy(eqn, ins, Remat(prim.body))
    if isinstance(prim, HigherOrder):
        return b.copy(eqn, ins, prim.with_bodies(tuple([without_opaque(body) for body in prim.bodies])))
    return None


def recompute(linearized: LinearizedBody, tangents: Atoms, n_out: int) -> tuple[Jaxpr, Flags]:
    """Return (tangents, then operands and kept values of a body) -> `tangents`, results of its linear half, without
    unused operands; and flags that mark the operands that are used."""
    return drop_unread_operands(_recomputing_linear(linearized, tangents, n_out))


def resume(linearized: LinearizedBody, tangents: Atoms, n_out: int, needed: Flags, stored: Flags) -> Jaxpr:
    """Return the program of `recompute`, with the operands `needed`, that takes the marked results of the body as
    further operands instead of computing them."""
    unpruned = _recomputing_linear(linearized, tangents, n_out, stored)
    n = len(needed)
    return rebind_operands(unpruned, (*select_by_flags(range(n), needed), *range(n, len(unpruned.ins))))


def _recomputing_linear(linearized: LinearizedBody, tangents: Atoms, n_out: int, stored: Flags = ()) -> Jaxpr:
    """Return (tangents, operands and kept values, stored results) -> `tangents`, results of the linear half."""
    n_tangents = linearized.n_tangents
    # do not simplify the linear half: if a carry became a constant, its cotangents would be summed in another order
    linear = remove_dead_eqns(linearized.linear.with_outs(tangents))
    residuals_read = read_operands(linear)[n_tangents:]
    resuming = _with_stored_results(split_at_kept(linearized.primal)[1], n_out, stored)
    resuming = dce(resuming.with_outs(select_by_flags(resuming.outs[n_out:], residuals_read)))
    b = Builder()
    in_tangents = b.inputs([v.aval for v in linear.ins[:n_tangents]])
    recomputed = iter(b.inline(resuming, b.inputs(resuming.in_avals)))
    residuals = [next(recomputed) if r else v for v, r in zip(linear.ins[n_tangents:], residuals_read, strict=True)]
    return b.build(b.inline(linear, [*in_tangents, *residuals]), f"again_{linearized.primal.name}")


def _with_stored_results(jaxpr: Jaxpr, n_out: int, stored: Flags) -> Jaxpr:
    """Return the program that takes the marked ones of its first `n_out` results as further operands."""
    if not any(stored):
        return jaxpr
    b = Builder.like(jaxpr)
    stored_operands: dict[Atom, Var] = {}
    for v, s in zip(jaxpr.outs[:n_out], stored, strict=True):
        if s:
            operand = b.input(v.aval)
            stored_operands.setdefault(v, operand)
    env: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        b.extend([eqn], env)
        env.update({v: stored_operands[v] for v in eqn.outs if v in stored_operands})
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)
