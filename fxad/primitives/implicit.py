"""Values defined by an equation that they satisfy: `linear_solve` and `root`.

The implicit function theorem gives their derivatives, independent of the program that computes them. The tangent of a
solution is the solution of a linear system whose matrix is the derivative of the equation. So these primitives have two
bodies: the equation, and its solver. Their rules emit the same primitives, so they hold at any order.

In the example, x(c) is the root of `x * x - c`. The linear program first applies the derivative of the equation in c to
the tangent of c. Then a `linear_solve` solves `2 x x_dot = -(-c_dot)`; its operand %arg1 is 2 x.

>>> import fxad as fx
>>> from fxad.transforms import linearize
>>> def root(c):
...     def equation(x):
...         return x * x - c
...     def newton(f, x):
...         return fx.lax.fori_loop(0, 5, lambda _, x: x - f(x) / (2.0 * x), x)
...     def divide(matvec, y):
...         return y / matvec(1.0)
...     return fx.lax.custom_root(equation, 1.0, newton, divide)
>>> linear = linearize(fx.trace(root, fx.Spec((), "float32")).jaxpr, (True,)).linear
>>> for eqn in linear.eqns:
...     print(eqn.outs, eqn.prim.name, eqn.ins)
(%0:f32[],) call (%arg0:f32[],)
(%1:f32[],) neg (%0:f32[],)
(%2:f32[],) linear_solve (%1:f32[], %arg1:f32[])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from fxad.core.flags import select_by_flags
from fxad.core.layout import Layout
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.ir import (
    Atoms,
    Aval,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Flags,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    Operands,
    Primitive,
    Tangent,
    Tangents,
    TransposeCtx,
    Zero,
    instantiated,
    known_operands,
    primitive,
)
from fxad.primitives.control.bodies import insert_zeros
from fxad.primitives.control.call import Applied, Call, call_primal, check_body_type, check_operands, layout_with_rules
from fxad.primitives.elementwise.arithmetic import NEG
from fxad.primitives.linear_call import drop_unused_residuals
from fxad.primitives.shape import align_batch_axes


@final
@primitive
class LinearSolve(Applied, Linear):
    """The x for which `matvec(x)` equals b (the first operands), computed by `solve`.

    Type: (b, then others) -> (x, then auxiliary results of `solve`); `matvec`: (x, others) -> b, of the types of x;
          `adjoint`, (transpose of `matvec`, its solver) or nothing: (cotangents of x, others) -> cotangents of b.
    Rule: linear in b: the tangent solves the same system with the tangent of b, and the transpose solves the adjoint
          system. With respect to the others, A x = b gives A x_dot = b_dot - A_dot x. `solve` itself is not
          differentiated; its auxiliary results have no derivative.
    """

    name: ClassVar[str] = "linear_solve"
    matvec: Jaxpr
    solve: Jaxpr
    adjoint: tuple[Jaxpr, ...]  # () or (the transpose of matvec, its solver)

    @property
    def applied(self) -> Jaxpr:
        return self.solve

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return self.matvec, self.solve, *self.adjoint

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> LinearSolve:
        return _linear_solve(bodies)

    @property
    def size(self) -> int:
        """The number of operands in b, and of results in x."""
        return len(self.matvec.outs)

    @property
    def without_aux(self) -> LinearSolve:
        """Return the same solve without auxiliary results."""
        return self.with_bodies((self.matvec, self.solve.with_outs(self.solve.outs[: self.size]), *self.adjoint))

    @property
    def layout(self) -> Layout:
        return layout_with_rules(self.bodies, 1, n_extra=len(self.solve.outs) - self.size)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        n, ins = self.size, self.matvec.in_avals
        x_avals = ins[:n]
        if len(self.adjoint) not in (0, 2):
            raise ParameterError(
                f"{self.name}: adjoint has {len(self.adjoint)} programs, it is (transpose of matvec, its solver)",
                remedy="give both, or none",
            )
        for k, aval in enumerate(x_avals):
            if not aval.inexact:
                raise ParameterError(
                    f"{self.name}: operand {k} of {self.matvec.name} is {aval}, which has no tangent",
                    remedy="what is solved for is floating or complex",
                )
        # the maps of a transpose are optional, and come last
        for role, body in zip(("matvec", "transpose of matvec", "transpose_solve"), self._maps, strict=False):
            check_body_type(self.name, role, body, ins, x_avals)
        check_body_type(self.name, "solve", self.solve, ins, (*x_avals, *self.solve.out_avals[n:]))
        check_operands(self.name, self.solve, avals)
        return self.solve.out_avals

    @property
    def _maps(self) -> tuple[Jaxpr, ...]:
        return self.matvec, *self.adjoint

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        n = self.size
        b = align_batch_axes(ctx, args[:n], dims[:n])
        x_dims = (0,) * n
        bodies, aux_dims = _batched_system(ctx, self.bodies, x_dims, dims[n:])
        return ctx(_linear_solve(bodies), *b, *args[n:]), (*x_dims, *aux_dims)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        n = self.size
        outs = ctx(self, *primals)
        rhs = tangents[:n]
        if any([isinstance(t, Lin) for t in tangents[n:]]):
            # the right-hand side is b_dot - A_dot x
            no_x_tangents = tuple([Zero(v.aval) for v in outs[:n]])
            _, product_tangents = Call(self.matvec).jvp(ctx, (*outs[:n], *primals[n:]), (*no_x_tangents, *tangents[n:]))
            rhs = tuple([ctx.add(b, _negative(ctx, p)) for b, p in zip(rhs, product_tangents, strict=True)])
        out_tangents = ctx.lin(self.without_aux, *rhs, *primals[n:])
        return outs, (*out_tangents, *[Zero(v.aval) for v in outs[n:]])

    def linear_in(self, flags: Flags) -> bool:
        # not linear with auxiliary results; unused ones are removed before
        no_aux = len(self.solve.outs) == self.size
        return no_aux and all(flags[: self.size]) and not any(flags[self.size :])

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        if not self.adjoint:
            raise NotDifferentiableError(
                f"{self.name}: {self.solve.name} has no transpose, which reverse mode needs",
                remedy="give custom_linear_solve a transpose_solve, or symmetric=True where matvec is its own "
                "transpose; let a tangent_solve(g, y) solve with the g that it is given",
            )
        residuals = known_operands(args)
        transpose, transpose_solve = self.adjoint
        bars = ctx(LinearSolve(transpose, transpose_solve, (self.matvec, self.solve)), *instantiated(cts), *residuals)
        return (*bars, *[None] * len(residuals))


@final
@primitive
class Root(Applied):
    """The x for which `equation` of the captured operands and x is zero, computed by `solve` from an initial guess.

    Type: (captured, guess) -> (x, of the types of the guess, then auxiliary results of `solve`). `equation`: (captured,
          x) -> values of the types of the inexact ones of x, zero at the solution. `at`: (captured, x) -> the values
          that the linear system of the tangents needs; `system`: the bodies of its `linear_solve`: matvec, solve, and
          optionally those of the adjoint, over (right-hand side, results of `at`, captured).
    Rule: f(c, x(c)) = 0 gives f_x x_dot = -f_c c_dot, which this `linear_solve` solves. `solve`, its auxiliary results
          and the guess are not differentiated.
    """

    name: ClassVar[str] = "root"
    equation: Jaxpr
    solve: Jaxpr
    at: Jaxpr
    system: tuple[Jaxpr, ...]
    captured: int

    @property
    def applied(self) -> Jaxpr:
        return self.solve

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return self.equation, self.solve, self.at, *self.system

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Root:
        equation, solve, at, *system = bodies
        return Root(equation, solve, at, tuple(system), self.captured)

    @property
    def size(self) -> int:
        """The number of operands in the guess, and of results in x."""
        return len(self.equation.ins) - self.captured

    @property
    def layout(self) -> Layout:
        return layout_with_rules(self.bodies, 1, n_extra=len(self.solve.outs) - self.size)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        ins = self.equation.in_avals
        if not 0 <= self.captured < len(ins):
            raise ParameterError(
                f"{self.name}: captured is {self.captured}, {self.equation.name} has {len(ins)} operands",
                remedy="captured operands come first in the equation",
            )
        if len(self.system) not in (2, 4):
            raise ParameterError(
                f"{self.name}: system has {len(self.system)} programs, it is (matvec, solve), then perhaps adjoints",
                remedy="give two programs, or four",
            )
        guess, captured = ins[self.captured :], ins[: self.captured]
        inexact = tuple([a for a in guess if a.inexact])
        check_body_type(self.name, "equation", self.equation, ins, inexact)
        check_body_type(self.name, "solve", self.solve, ins, (*guess, *self.solve.out_avals[len(guess) :]))
        check_body_type(self.name, "at", self.at, ins, self.at.out_avals)
        system_ins = (*inexact, *self.at.out_avals, *captured)
        roles = ("matvec", "tangent_solve", "transpose of matvec", "transpose of tangent_solve")
        for role, body in zip(roles, self.system, strict=False):  # those of the transpose are optional
            check_body_type(self.name, role, body, system_ins, inexact)
        check_operands(self.name, self.solve, avals)
        return self.solve.out_avals

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        c, n = self.captured, self.size
        guess = align_batch_axes(ctx, args[c:], dims[c:])
        captured_dims, x_dims = dims[:c], (0,) * n
        operand_dims = (*captured_dims, *x_dims)
        equation_dims = (0,) * len(self.equation.outs)
        equation, _ = ctx.recur(self.equation, operand_dims, equation_dims)
        solve, out_dims = _batched_solve(ctx, self.solve, operand_dims, x_dims)
        at, residual_dims = ctx.recur(self.at, operand_dims)
        system, _ = _batched_system(ctx, self.system, equation_dims, (*residual_dims, *captured_dims))
        return ctx(Root(equation, solve, at, system, c), *args[:c], *guess), out_dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        c, n = self.captured, self.size
        outs = ctx(self, *primals)
        solution = (*primals[:c], *outs[:n])
        zeros = tuple([Zero(v.aval) for v in outs])
        equation_tangents: tuple[Tangent, ...] = ()  # f_c c_dot
        if any([isinstance(t, Lin) for t in tangents[:c]]):
            _, equation_tangents = Call(self.equation).jvp(ctx, solution, (*tangents[:c], *zeros[:n]))
        if not any([isinstance(t, Lin) for t in equation_tangents]):
            return outs, zeros
        system, is_read = drop_unused_residuals(self.system, (len(equation_tangents),) * len(self.system))
        n_at = len(self.at.outs)
        at = self.at.with_outs(select_by_flags(self.at.outs, is_read[:n_at]))
        _, at_solution = call_primal(ctx, at, 0, solution)
        residuals = (*at_solution, *select_by_flags(primals[:c], is_read[n_at:]))
        out_tangents = ctx.lin(_linear_solve(system), *[_negative(ctx, t) for t in equation_tangents], *residuals)
        nonzero = [k < n and v.aval.inexact for k, v in enumerate(outs)]
        return outs, insert_zeros(out_tangents, nonzero, [v.aval for v in outs])


def _linear_solve(bodies: Sequence[Jaxpr]) -> LinearSolve:
    """Return the `linear_solve` with these bodies: `matvec`, `solve`, then those of the adjoint if there are any."""
    matvec, solve, *adjoint = bodies
    return LinearSolve(matvec, solve, tuple(adjoint))


def _negative(ctx: JvpCtx, t: Tangent) -> Tangent:
    return ctx.lin_one(NEG, t) if isinstance(t, Lin) else t


def _batched_solve(ctx: BatchCtx, solve: Jaxpr, dims: Dims, x_dims: Dims) -> tuple[Jaxpr, Dims]:
    """Batch a solver, with the mapped axes `x_dims` in the solution. Also return the mapped axis of each result: of the
    solution, then of auxiliary results."""
    out_dims = (*x_dims, *ctx.recur(solve, dims)[1][len(x_dims) :])
    return ctx.recur(solve, dims, out_dims)[0], out_dims


def _batched_system(
    ctx: BatchCtx, bodies: tuple[Jaxpr, ...], x_dims: Dims, other_dims: Dims
) -> tuple[tuple[Jaxpr, ...], Dims]:
    """Batch the bodies of a `linear_solve`, and return the mapped axes of its auxiliary results. `x_dims` are those of
    the solution and of the right-hand side."""
    dims = (*x_dims, *other_dims)
    matvec, solve, *adjoint = bodies
    solve, out_dims = _batched_solve(ctx, solve, dims, x_dims)
    matvec, *adjoint = [ctx.recur(body, dims, x_dims)[0] for body in (matvec, *adjoint)]
    return (matvec, solve, *adjoint), out_dims[len(x_dims) :]


IMPLICIT: Final[tuple[type[Primitive], ...]] = (LinearSolve, Root)
