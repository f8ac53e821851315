"""`call`: apply a sub-program. Calls are kept, so each distinct body is transformed and lowered once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, final

from fxad.core.builder import substitute
from fxad.core.interpreter import run
from fxad.core.layout import Body, Constant, Group, Layout, Never, Once, Value
from fxad.errors import ArgumentError, ParameterError
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
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    NDArray,
    Operands,
    Tangents,
    TransposeCtx,
    Var,
    Zero,
    known_operands,
    primitive,
)
from fxad.primitives.control.bodies import insert_zeros, is_zero_in_all, split_fused_results
from fxad.primitives.linearity import is_linear
from fxad.primitives.operand_checks import MATCH_BODIES, TRACE_AGAIN, type_mismatch

ONCE: Final = Once()


class Applied(HigherOrder):
    """An equation that applies a program to its operands: its first body, by default. The others belong to rules."""

    __slots__ = ()

    @property
    def applied(self) -> Jaxpr:
        """The program that the equation applies: operands -> results."""
        return self.bodies[0]

    @property
    def effects(self) -> frozenset[str]:
        return self.applied.effects  # a rule's effects happen where the rule runs

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self.applied, args)

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.call(self.applied, args)


@final
@primitive
class Call(Applied, Linear):
    """`body` applied to the operands.

    Type: (operands of `body`) -> (results of `body`).
    Rule: each rule transforms the body and calls the result. The call is linear where the body is.
    Cost: one StableHLO function per distinct body.
    """

    name: ClassVar[str] = "call"
    body: Jaxpr

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Call:
        return Call(*bodies)

    @property
    def layout(self) -> Layout:
        return layout_of_call(self.body)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_operands("call", self.body, avals)
        return self.body.out_avals

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        body, out_dims = ctx.recur(self.body, dims)
        return ctx(Call(body), *args), out_dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        nonzero = tuple([isinstance(t, Lin) for t in tangents])
        lins = [t for t in tangents if isinstance(t, Lin)]
        if not ctx.separate:
            fused, out_nonzero = ctx.recur_fused(self.body, nonzero)
            results = ctx(Call(fused), *primals, *[t.var for t in lins])
            return split_fused_results(results, out_nonzero, self.body.out_avals)
        linearized = ctx.recur(self.body, nonzero)
        outs, residuals = call_primal(ctx, linearized.primal, len(self.body.outs), primals)
        out_tangents = ctx.lin(Call(linearized.linear), *lins, *residuals) if any(linearized.out_nonzero) else ()
        return outs, insert_zeros(out_tangents, linearized.out_nonzero, self.body.out_avals)

    def linear_in(self, flags: Flags) -> bool:
        return is_linear(self.body, flags)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        adjoint, operands = adjoint_of(ctx, self.body, cts, args)
        return cotangents_of_operands([adjoint], ctx(Call(adjoint), *operands), args)


def adjoint_of(ctx: TransposeCtx, body: Jaxpr, cts: Cotangents, args: Operands) -> tuple[Jaxpr, list[Atom]]:
    """Return the adjoint of a body in its `Hole` operands, and the operands of the adjoint."""
    is_linear = tuple([isinstance(a, Hole) for a in args])
    residuals = known_operands(args)
    nonzero_cts = [ct for ct in cts if not isinstance(ct, Zero)]
    # the adjoint takes no cotangents that are zero
    outs = tuple([a for a, ct in zip(body.outs, cts, strict=True) if not isinstance(ct, Zero)])
    return ctx.recur(body.with_outs(outs), is_linear), [*nonzero_cts, *residuals]


def cotangents_of_operands(
    adjoints: Sequence[Jaxpr], results: Sequence[Atom], args: Operands
) -> tuple[Cotangent | None, ...]:
    """Return the results of an equation over adjoints as cotangents of the operands. A result that is the literal zero
    in all of them becomes a `Zero`."""
    bars: Iterator[Cotangent] = iter(
        [Zero(v.aval) if is_zero_in_all(adjoints, k) else v for k, v in enumerate(results)]
    )
    return tuple([next(bars) if isinstance(a, Hole) else None for a in args])


def call_primal(ctx: JvpCtx, body: Jaxpr, n_out: int, primals: Atoms) -> tuple[Atoms, list[Atom]]:
    """Call the primal half of a body. Return its `n_out` results and its residuals.

    The call does not return a residual that the caller already has: an operand, a constant or another result.
    """
    results, residuals = body.outs[:n_out], body.outs[n_out:]
    known_to_caller = {*body.ins, *results}
    returned_residuals = [a for a in dict.fromkeys(residuals) if isinstance(a, Var) and a not in known_to_caller]
    outs = ctx(Call(body.with_outs((*results, *returned_residuals))), *primals)
    env: dict[Atom, Atom] = dict(zip((*results, *returned_residuals), outs, strict=True))
    env.update(zip(body.ins, primals, strict=True))
    return outs[:n_out], list(substitute(residuals, env))


def callee(eqn: Eqn) -> Jaxpr | None:
    """Return the body of a plain call; None for every other equation.

    Only a plain call is equal to its body, so only its body can be inlined, or shared with other calls. After
    differentiation a `remat` is a call too: see `body_of_call_or_remat`.
    """
    return eqn.prim.body if isinstance(eqn.prim, Call) else None


def layout_of_call(body: Jaxpr, runs: Once = ONCE, *, remat: bool = False) -> Layout:
    """Return the layout of an equation that applies a body to its operands."""
    operands, results = Group(Constant(), len(body.ins)), Group(Value(), len(body.outs))
    return Layout((operands,), (results,), (Body(body, (0,), (0,), runs, stores=True),), remat)


def layout_with_rules(
    bodies: Sequence[Jaxpr],
    applied: int,
    *,
    n_extra: int = 0,
    stores: Sequence[bool] = (),
    linear: Sequence[int] = (),
    label: str = "",
) -> Layout:
    """Return the layout of an equation that applies body number `applied` to its operands, and whose other bodies are
    rules.

    The rules take and return the operands and the results, except the last `n_extra` results. `stores` and `linear` are
    the fields of `Body`, one for each body; by default a body stores nothing and is not linear. `label` is the field of
    `Layout`.
    """
    n_in, n_out = len(bodies[applied].ins), len(bodies[applied].outs)
    operands = Group(Constant(), n_in, fixed=True)
    results, extra = Group(Value(), n_out - n_extra, fixed=True), Group(Value(), n_extra)
    layouts = [
        Body(
            jaxpr,
            (0,) if k == applied else (),
            (0, 1) if k == applied else (),
            Once() if k == applied else Never(),
            bool(stores and stores[k]),
            linear[k] if linear else 0,
        )
        for k, jaxpr in enumerate(bodies)
    ]
    return Layout((operands,), (results, extra), tuple(layouts), label=label)


def check_operands(name: str, body: Jaxpr, avals: tuple[Aval, ...]) -> None:
    """Check that operands have the types that `body` takes. Raises: ArgumentError, DTypeError, ShapeError."""
    if avals == body.in_avals:
        return
    if len(avals) != len(body.ins):
        raise ArgumentError(
            f"{name}: {body.name} takes {len(body.ins)} operands, got {len(avals)}", remedy=MATCH_BODIES
        )
    for k, (have, want) in enumerate(zip(avals, body.in_avals, strict=True)):
        if have is not want:
            raise type_mismatch(f"{name}: operand {k} of {body.name} is {have}, its body takes {want}", have, want)


def check_body_type(name: str, role: str, jaxpr: Jaxpr, ins: tuple[Aval, ...], outs: tuple[Aval, ...]) -> None:
    """Check the type of a body of an equation. Raises: ParameterError."""
    for verb, have, want in (("takes", jaxpr.in_avals, ins), ("returns", jaxpr.out_avals, outs)):
        if have != want:
            actual, expected = ", ".join(map(str, have)), ", ".join(map(str, want))
            raise ParameterError(
                f"{name}: {role} {jaxpr.name} {verb} ({actual}), expected ({expected})",
                remedy=TRACE_AGAIN,
            )
