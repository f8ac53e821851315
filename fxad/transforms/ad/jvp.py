"""Forward mode: one program that computes results and their tangents.

`apply_jvp_rules` applies the `jvp` rule of every equation. The rules add equations to a primal and a linear program. In
forward mode (`ForwardBuilder`) these are one program, so tangents are ordinary variables of it. In `linearize`
(`LinearizeBuilder`) they are two.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Literal, cast

from fxad.core.builder import Builder, single_equation
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError
from fxad.ir import (
    Atom,
    Eqn,
    Flags,
    HigherOrder,
    Jaxpr,
    JvpCtx,
    Lin,
    Lit,
    Primitive,
    Tangent,
    Tangents,
    Var,
    Zero,
    as_lin,
)
from fxad.primitives.custom import for_used_results
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.transforms.locate import check_counts, locate
from fxad.transforms.vmap import BatchBuilder


class JvpBuilder(Builder):
    """The builder of the primal program, which is a `JvpCtx`: what forward mode and `linearize` share."""

    __slots__ = ()

    @property
    @abstractmethod
    def linear(self) -> Builder:
        """The builder of the linear program, to which `lin` adds equations."""

    @abstractmethod
    def lin_one(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangent:
        """See `DerivativeCtx`."""

    def add(self, a: Tangent, b: Tangent) -> Tangent:
        if type(a) is Zero:
            return b
        if type(b) is Zero:
            return a
        return self.lin_one(ADD, a, b)

    def recur_fused(self, body: Jaxpr, nonzero: Flags) -> tuple[Jaxpr, Flags]:
        return jvp(body, nonzero)

    batched = staticmethod(BatchBuilder.batched)


class ForwardBuilder(JvpBuilder):
    """The `ForwardCtx`: one builder gets primal and tangent equations, in dependency order."""

    __slots__ = ()
    separate: ClassVar[Literal[False]] = False

    @property
    def linear(self) -> Builder:
        return self

    def lin(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangents:
        if Lin not in map(type, operands):
            return zero_tangents(prim, operands)
        return tuple([as_lin(v) for v in self(prim, *[as_operand(a) for a in operands])])

    def lin_one(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangent:
        return self.lin(prim, *operands)[0]


def as_operand(a: Lin | Zero | Var | Lit) -> Atom:
    """Return the atom of an operand of a linear equation; a symbolic zero becomes a literal."""
    if isinstance(a, Lin):
        return a.var
    return a.instantiate() if isinstance(a, Zero) else a


def zero_tangents(prim: Primitive, operands: tuple[Lin | Zero | Var | Lit, ...]) -> Tangents:
    """Symbolic zeros of the types of the equation's results."""
    return tuple([Zero(a) for a in prim.abstract_eval(*[o.aval for o in operands])])


def apply_jvp_rules(jaxpr: Jaxpr, ctx: JvpBuilder, tangents: dict[Atom, Lin]) -> tuple[Atom, ...]:
    """Apply the jvp rule of every equation that a tangent reaches, and copy the other equations. Return the results of
    the primal program.

    `tangents` holds the nonzero tangents of the operands. This function adds those of all other variables.
    """
    env: dict[Atom, Atom] = {}
    get, tangent = env.get, tangents.get
    rule_ctx = cast(JvpCtx, ctx)  # both subclasses are one
    for eqn in jaxpr.eqns:
        ins = eqn.ins
        primals = tuple([get(a, a) for a in ins])
        operand_tangents = [tangent(a) for a in ins]
        if not any(operand_tangents):
            env.update(zip(eqn.outs, ctx.copy(eqn, primals), strict=True))
            continue
        ctx.source = ctx.linear.source = eqn.source
        tangents_in: Tangents = tuple([t or Zero(a.aval) for t, a in zip(operand_tangents, ins, strict=True)])
        try:
            outs, out_tangents = eqn.prim.jvp(rule_ctx, primals, tangents_in)
            if not len(outs) == len(out_tangents) == len(eqn.outs):
                check_counts(eqn, "jvp", len(eqn.outs), results=len(outs), tangents=len(out_tangents))
        except Exception as e:
            locate(e, eqn)
            raise
        if len(eqn.outs) == 1:  # the common case; this loop is the hot path of differentiation
            env[eqn.outs[0]] = outs[0]
            if type(out_tangents[0]) is Lin:
                tangents[eqn.outs[0]] = out_tangents[0]
            continue
        for v, out, out_tangent in zip(eqn.outs, outs, out_tangents, strict=True):
            env[v] = out
            if type(out_tangent) is Lin:
                tangents[v] = out_tangent
    return tuple([get(a, a) for a in jaxpr.outs])


def add_dependent_values(dependent: set[Atom], eqns: Iterable[Eqn], operands: Iterable[Atom]) -> None:
    """Add to `dependent` the inexact values among `operands`, and the results of `eqns` that then have a tangent. A
    function with rules for `symbolic_zeros` asks for them while it is traced (`api/custom/traced_call`).

    A single equation whose derivative is refused has no such results: a derivative through it is an error. Of an
    equation with bodies, one equation in a body may be refused, and the other results still have tangents. So all of
    its inexact results are added.
    """
    dependent.update([v for v in operands if v.aval.inexact])
    for eqn in eqns:
        flags = tuple([a in dependent for a in eqn.ins])
        if not any(flags):
            continue
        program = single_equation(eqn.prim, [a.aval for a in eqn.ins])
        try:
            out_nonzero = jvp(program, flags)[1]
        except NotDifferentiableError:
            by_bodies = isinstance(eqn.prim, HigherOrder) and eqn.prim.layout.transparent
            out_nonzero = tuple([by_bodies and a.inexact for a in program.out_avals])
        dependent.update(select_by_flags(eqn.outs, out_nonzero))


def check_differentiable(jaxpr: Jaxpr, nonzero: Flags, what: str) -> None:
    """Check the types of the marked operands. Raises: NotDifferentiableError if one has no tangent."""
    for k, (v, nz) in enumerate(zip(jaxpr.ins, nonzero, strict=True)):
        if nz and not v.aval.inexact:
            raise NotDifferentiableError(
                f"{what}: operand {k} of {jaxpr.name} has type {v.aval}, which has no tangent",
                remedy="differentiate with respect to floating or complex operands only, or convert it first",
            )


@by_value
def jvp(jaxpr: Jaxpr, nonzero: Flags) -> tuple[Jaxpr, Flags]:
    """Forward mode: (operands, tangents of the marked operands) -> (results, nonzero tangents of the results).

    The second value marks the results that have a tangent.

    Law:    chain rule; linear in the tangents; the first results are those of `jaxpr`.
    Cost:   the equations of `jaxpr`, and the equations of the jvp rule of each equation that a tangent reaches.
    Raises: NotDifferentiableError for a marked operand without a tangent, or an equation without a derivative.
    """
    check_differentiable(jaxpr, nonzero, "jvp")
    jaxpr = for_used_results(jaxpr)
    b = ForwardBuilder.like(jaxpr)
    tangents: dict[Atom, Lin] = {v: as_lin(b.input(v.aval)) for v, nz in zip(jaxpr.ins, nonzero, strict=True) if nz}
    outs = apply_jvp_rules(jaxpr, b, tangents)
    out_tangents = [tangents.get(a) for a in jaxpr.outs]
    out = b.build([*outs, *[t.var for t in out_tangents if t]], f"jvp_{jaxpr.name}")
    return out, tuple([t is not None for t in out_tangents])
