"""Linearization: a program split into a primal program with residuals and a linear program.

One pass: every equation's `jvp` rule runs over two builders. What depends on a tangent is emitted into the linear one,
the rest into the primal one; a primal value that the linear program needs is a residual.
"""

from __future__ import annotations

from fxad.builder import Builder
from fxad.ir import Atom, Jaxpr, Lin, LinearizedBody, Lit, Primitive, Tangent, Var, Zero
from fxad.memo import by_value
from fxad.primitives.elementwise import ADD
from fxad.transforms.jvp import check_differentiable, walk, zeros


class SplitCtx:
    """The `JvpCtx` with two builders. Residuals enter the linear program behind its tangents, in order of first use."""

    __slots__ = ("linear", "primal", "residuals")

    def __init__(self, primal: Builder, linear: Builder) -> None:
        self.primal = primal
        self.linear = linear
        self.residuals: dict[Var, Var] = {}

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        return self.primal(prim, *args)

    def one(self, prim: Primitive, *args: Atom) -> Var:
        return self.primal(prim, *args)[0]

    @property
    def split(self) -> bool:
        return True

    def residual(self, v: Var) -> Var:
        """The operand of the linear program that stands for the primal value `v`."""
        known = self.residuals.get(v)
        if known is None:
            known = self.residuals[v] = self.linear.input(v.aval)
        return known

    def lin(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> tuple[Tangent, ...]:
        if Lin not in map(type, operands):
            return zeros(prim, operands)
        return tuple([Lin(v) for v in self.linear(prim, *self._operands(operands))])

    def lin_one(self, prim: Primitive, *operands: Lin | Zero | Var | Lit) -> Tangent:
        if Lin not in map(type, operands):
            return zeros(prim, operands)[0]
        return Lin(self.linear(prim, *self._operands(operands))[0])

    def _operands(self, operands: tuple[Lin | Zero | Var | Lit, ...]) -> list[Atom]:
        ins: list[Atom] = []
        for a in operands:
            if isinstance(a, Lin):
                ins.append(a.var)
            elif isinstance(a, Var):
                ins.append(self.residual(a))
            else:
                ins.append(a.instantiate() if isinstance(a, Zero) else a)
        return ins

    def add(self, a: Tangent, b: Tangent) -> Tangent:
        if type(a) is Zero:
            return b
        if type(b) is Zero:
            return a
        return self.lin(ADD, a, b)[0]

    def recur(self, body: Jaxpr, nonzero: tuple[bool, ...]) -> LinearizedBody:
        return linearize(body, nonzero)

    def recur_fused(self, body: Jaxpr, nonzero: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...]]:
        raise AssertionError("linearize asks for recur")


@by_value
def linearize(jaxpr: Jaxpr, nonzero: tuple[bool, ...]) -> LinearizedBody:
    """Split a program in two, with respect to the marked operands.

    `primal`: operands -> results, then residuals. `linear`: tangents of the marked operands, then residuals -> tangents
    of those results that do not vanish (`out_nonzero`).

    Law:    jvp(x, x_dot) = let (y, res) = primal(x) in (y, linear(x_dot, res)); every equation of `linear` is linear.
    Cost:   one pass; the equations of forward mode, split in two.
    Raises: NotDifferentiableError for a marked operand without a tangent, or an equation without a derivative.
    """
    check_differentiable(jaxpr, nonzero, "linearize")
    primal, linear = Builder.like(jaxpr), Builder()
    tangents: dict[Atom, Lin] = {v: Lin(linear.input(v.aval)) for v, nz in zip(jaxpr.ins, nonzero, strict=True) if nz}
    ctx = SplitCtx(primal, linear)
    outs = walk(jaxpr, ctx, primal, linear, tangents)
    dots = [tangents.get(a) for a in jaxpr.outs]
    return LinearizedBody(
        primal.build([*outs, *ctx.residuals], jaxpr.name),
        linear.build([t.var for t in dots if t], f"linear_{jaxpr.name}"),
        len(ctx.residuals),
        tuple([t is not None for t in dots]),
    )
