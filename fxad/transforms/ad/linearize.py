"""Linearization: a program split into a primal program with residuals and a linear program.

One pass applies every equation's `jvp` rule with two builders. Equations that depend on a tangent go to the linear
program, all others to the primal program. A residual is a primal value that the linear program reads.

For example, f(x) = sin(x) * x is split into

    primal(x)              = let s = sin(x), c = cos(x), y = s * x in (y, c, x, s)
    linear(x_dot, c, x, s) = x_dot * c * x + x_dot * s
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from fxad.core.builder import Builder
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError
from fxad.ir import (
    Atom,
    Atoms,
    Eqn,
    Flags,
    Jaxpr,
    Lin,
    LinearizedBody,
    Lit,
    Primitive,
    Resume,
    Tangent,
    Tangents,
    Var,
    Zero,
    as_lin,
)
from fxad.primitives.custom import for_used_results
from fxad.transforms.ad.jvp import JvpBuilder, apply_jvp_rules, as_operand, check_differentiable, zero_tangents

# The largest number of residuals. Nested calls can multiply their number.
MAX_RESIDUALS: Final = 1 << 19


class LinearizeBuilder(JvpBuilder):
    """The `LinearizeCtx`, with two builders: it builds the primal program itself, and `linear` the linear program.

    Residuals are operands of the linear program after its tangents, in order of first use.
    """

    __slots__ = ("_recomputations", "linear", "residuals")
    separate: ClassVar[Literal[True]] = True
    linear: Builder

    def __init__(self) -> None:
        super().__init__()
        self.linear = Builder()
        self.residuals: dict[Atom, Var] = {}
        # for each recomputation: its equation in the linear program, the primal results that it recomputes, and the
        # function from flags for those that are residuals to a shorter recomputation
        self._recomputations: list[tuple[int, Atoms, Resume]] = []

    def lin(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangents:
        if Lin not in map(type, operands):
            return zero_tangents(prim, operands)
        return tuple([as_lin(v) for v in self.linear(prim, *self._operands(operands))])

    def lin_one(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangent:
        if Lin not in map(type, operands):
            return zero_tangents(prim, operands)[0]
        return as_lin(self.linear(prim, *self._operands(operands))[0])

    def lin_remat(self, prim: Primitive, operands: Sequence[Lin | Atom], results: Atoms, resumed: Resume) -> Tangents:
        if not any([isinstance(a, Lin) for a in operands]):
            return zero_tangents(prim, tuple(operands))
        self._recomputations.append((len(self.linear.eqns), results, resumed))
        return self.lin(prim, *operands)

    def use_stored_results(self) -> None:
        """Let recomputations read results that are residuals anyway, in place of computing them.

        With `y = remat(x -> exp(exp(x)))`, the tangent of y is x_dot * exp(x) * exp(exp(x)), and the linear program
        recomputes both factors from x. If a later equation has y as a residual, as `sin(y) * y` does, the recomputation
        takes y in place of exp(exp(x)), and computes exp(x) only. All residuals are known at the end of the program.
        """
        eqns = self.linear.eqns
        for k, results, resumed in self._recomputations:
            stored = tuple([a in self.residuals for a in results])
            prim = resumed(stored) if any(stored) else None
            if prim is not None:
                further = [self.residuals[a] for a in select_by_flags(results, stored)]
                eqns[k] = Eqn(prim, (*eqns[k].ins, *further), eqns[k].outs, eqns[k].source)

    def _operands(self, operands: tuple[Lin | Zero | Var | Lit, ...]) -> list[Atom]:
        ins: list[Atom] = []
        for a in operands:
            if isinstance(a, Var):
                # the operand of the linear program for this primal value
                residual = self.residuals.get(a)
                if residual is None:
                    residual = self.residuals[a] = self.linear.input(a.aval)
                ins.append(residual)
            else:
                ins.append(as_operand(a))
        return ins

    def recur(self, body: Jaxpr, nonzero: Flags) -> LinearizedBody:
        linearized = linearize(body, nonzero)
        n_residuals = len(self.residuals) + linearized.n_res
        if n_residuals > MAX_RESIDUALS:
            raise NotDifferentiableError(
                f"linearize: {body.name} is called so often that more than {MAX_RESIDUALS:,} values would have to be"
                " stored",
                remedy="put remat around what is called, loop over it with scan, or use forward mode (jvp, jacfwd)",
            )
        return linearized


@by_value
def linearize(jaxpr: Jaxpr, nonzero: Flags) -> LinearizedBody:
    """Split a program in two, with respect to the marked operands.

    `primal`: operands -> results, then residuals. `linear`: tangents of the marked operands, then residuals -> nonzero
    tangents of the results (`out_nonzero` marks these results).

    Law:    jvp(x, x_dot) = let (y, res) = primal(x) in (y, linear(x_dot, res)); every equation of `linear` is linear.
    Cost:   one pass; the equations of forward mode, split in two.
    Raises: NotDifferentiableError for a marked operand without a tangent, for an equation without a derivative, or for
            nested calls that would store more than `MAX_RESIDUALS` values.
    """
    check_differentiable(jaxpr, nonzero, "linearize")
    jaxpr = for_used_results(jaxpr)
    ctx = LinearizeBuilder.like(jaxpr)
    linear = ctx.linear
    tangents: dict[Atom, Lin] = {
        v: as_lin(linear.input(v.aval)) for v, nz in zip(jaxpr.ins, nonzero, strict=True) if nz
    }
    outs = apply_jvp_rules(jaxpr, ctx, tangents)
    ctx.use_stored_results()
    out_tangents = [tangents.get(a) for a in jaxpr.outs]
    return LinearizedBody(
        ctx.build([*outs, *ctx.residuals], jaxpr.name),
        linear.build([t.var for t in out_tangents if t], f"linear_{jaxpr.name}"),
        len(ctx.residuals),
        tuple([t is not None for t in out_tangents]),
    )


def operands_without_derivative(jaxpr: Jaxpr, candidates: Flags) -> Flags:
    """Return the operands among `candidates` without a derivative. A function with rules may close over such an
    operand.

    Cost:   one linearization if all have a derivative; else one for each candidate, and one for the others together.
    Raises: NotDifferentiableError if the program has no derivative with respect to the other inexact operands.
    """
    no_marks, inexact = (False,) * len(jaxpr.ins), tuple([a.inexact for a in jaxpr.in_avals])
    try:
        linearize(jaxpr, inexact)
    except NotDifferentiableError:
        without_derivative = list(no_marks)
        for k, (has_tangent, is_candidate) in enumerate(zip(inexact, candidates, strict=True)):
            if has_tangent and is_candidate:
                try:
                    linearize(jaxpr, (*no_marks[:k], True, *no_marks[k + 1 :]))
                except NotDifferentiableError:
                    without_derivative[k] = True
        remaining = tuple([m and not f for m, f in zip(inexact, without_derivative, strict=True)])
        if not any(remaining):
            raise
        linearize(jaxpr, remaining)
        return tuple(without_derivative)
    return no_marks
