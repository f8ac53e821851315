"""`while`: a loop that applies a body to a carry while a predicate holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar, final

import numpy as np

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.core.layout import PREDICATE, Body, Carry, Constant, Group, Layout, Slice, Unknown
from fxad.errors import ArgumentError, DTypeError, FxadError, NotDifferentiableError, ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    HigherOrder,
    Hlo,
    HloValue,
    Jaxpr,
    JvpCtx,
    Lin,
    Lit,
    NDArray,
    Region,
    Tangent,
    Zero,
    distinct,
    primitive,
)
from fxad.primitives.checking import checks
from fxad.primitives.checks import FITTING, TOGETHER
from fxad.primitives.collectives import check_uniform
from fxad.primitives.control.bodies import either, over, select_by_mask, spread_tangents
from fxad.primitives.control.call import Call
from fxad.primitives.control.effects import guarded
from fxad.primitives.control.scan import COUNT, Scan, one_by_one
from fxad.primitives.control.scan_derivative import Outside, fused, halves
from fxad.primitives.control.scan_parts import Marks, Steps, passing
from fxad.primitives.control.while_steps import (
    STEP,
    any_live,
    bounded,
    counting,
    per_example,
    stack_of,
    storing,
    with_constants,
)
from fxad.primitives.shape import broadcast_to_axis

T = TypeVar("T")

_BOOL: Final = Aval((), dtypes.bool_)


@final
@primitive
class While(HigherOrder):
    """Apply `body` to the carry while `cond` of the carry is true, at most `max_steps` times.

    Type: (constants of `cond`, constants of `body`, carry) -> (carry, stacked rows). `cond`: (its constants, carry) ->
          bool; `body`: (its constants, carry) -> (carry, rows). With `max_steps` a step may return rows besides the
          carry. Each is stacked along an axis of size `max_steps`; rows of steps that do not run are zero.
    Rule: batched, each example stops when its own predicate is false; its carry then stays unchanged bit for bit.
          Forward mode adds tangents to the carry. Reverse mode needs `max_steps`: the residuals of each step are rows,
          and the linear half is a `scan` over the rows of the steps that ran.
    Source: stablehlo.while
    """

    name: ClassVar[str] = "while"
    cond: Jaxpr
    body: Jaxpr
    n_cond: int
    n_body: int
    max_steps: int | None = None

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.cond, self.body)

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> While:
        cond, body = bodies
        return While(cond, body, self.n_cond, self.n_body, self.max_steps)

    @property
    def carry(self) -> tuple[Aval, ...]:
        """Types of the carry."""
        return self.body.in_avals[self.n_body :]

    @property
    def rows(self) -> tuple[Aval, ...]:
        """Types of the rows."""
        return self.body.out_avals[len(self.carry) :]

    @property
    def steps(self) -> Steps:
        """The body as the steps of a scan."""
        return Steps(self.body, self.n_body, len(self.carry))

    def parts(self, xs: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """Split values for the operands into those for the constants of `cond`, the constants of `body` and the
        carry."""
        n = self.n_cond + self.n_body
        return tuple(xs[: self.n_cond]), tuple(xs[self.n_cond : n]), tuple(xs[n:])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        self._check_bodies()
        wants = (*self.cond.in_avals[: self.n_cond], *self.body.in_avals)
        if avals != wants:
            raise self._operand_error(avals, wants)
        return self.carry + tuple([stack_of(a, self.max_steps or 0) for a in self.rows])

    def _operand_error(self, avals: tuple[Aval, ...], wants: tuple[Aval, ...]) -> FxadError:
        if len(avals) != len(wants):
            return ArgumentError(f"while: takes {len(wants)} operands, got {len(avals)}", remedy=FITTING)
        k, have, want = next((k, a, w) for k, (a, w) in enumerate(zip(avals, wants, strict=True)) if a is not w)
        groups = self.parts(range(len(wants)))
        roles = ("constant {} of cond", "constant {} of body", "carry {}")
        role = next(r.format(k - g[0]) for r, g in zip(roles, groups, strict=True) if k in g)
        error = ShapeError if have.shape != want.shape else DTypeError
        return error(f"while: operand {k} ({role}) is {have}, its bodies take {want}", remedy=FITTING)

    def _check_bodies(self) -> None:
        if not 0 <= self.n_cond <= len(self.cond.ins) or not 0 <= self.n_body <= len(self.body.ins):
            raise ParameterError(
                f"while: {self.n_cond} constants of {len(self.cond.ins)} operands of cond, "
                f"{self.n_body} constants of {len(self.body.ins)} operands of body",
                remedy=TOGETHER,
            )
        if self.max_steps is not None and self.max_steps < 0:
            raise ParameterError(f"while: max_steps is {self.max_steps}", remedy="give a number of steps >= 0")
        carry = self.carry
        if self.body.out_avals[: len(carry)] != carry:
            raise ShapeError(
                f"while: body takes the carry ({_types(carry)}) and returns ({_types(self.body.out_avals)})",
                remedy=TOGETHER,
            )
        if self.rows and self.max_steps is None:
            raise ParameterError(
                f"while: body returns {len(self.rows)} rows beside the carry, so max_steps must be given",
                remedy="give max_steps, or return the carry alone",
            )
        if self.cond.in_avals[self.n_cond :] != carry:
            raise ShapeError(
                f"while: cond takes the carry ({_types(self.cond.in_avals[self.n_cond :])}), body ({_types(carry)})",
                remedy=TOGETHER,
            )
        if self.cond.out_avals != (_BOOL,):
            raise DTypeError(
                f"while: cond returns ({_types(self.cond.out_avals)}), not a bool without axes",
                remedy="let cond return one comparison",
            )

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        of_cond, of_body, carry = self.parts(args)
        stacks = [np.zeros((self.max_steps or 0, *a.shape), a.dtype) for a in self.rows]
        n, step = len(carry), 0
        while step != self.max_steps and np.all(run(self.cond, (*of_cond, *carry))[0]):
            outs = run(self.body, (*of_body, *carry))
            carry = outs[:n]
            for stack, row in zip(stacks, outs[n:], strict=True):
                stack[step] = row
            step += 1
        return *carry, *stacks

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        of_cond, of_body, carry = self.parts(args)
        if self.max_steps is None:
            regions = (Region(self.cond, of_cond), Region(self.body, of_body))
            return hlo.op("stablehlo.while", carry, outs, regions=regions)
        if self.max_steps == 0:
            return *carry, *[hlo.constant(Zero(a).instantiate()) for a in outs[len(carry) :]]
        state = (
            hlo.constant(Lit.of(0, STEP)),
            *carry,
            *[hlo.constant(Zero(a).instantiate()) for a in outs[len(carry) :]],
        )
        cond = bounded(self.cond, self.n_cond, self.max_steps, self.rows)
        body = storing(self.body, self.n_body, len(carry), self.max_steps)
        regions = (Region(cond, of_cond), Region(body, of_body))
        return hlo.op("stablehlo.while", state, (STEP, *outs), regions=regions)[1:]

    @property
    def layout(self) -> Layout:
        n = len(self.carry)
        operands = Group(Constant(), self.n_cond), Group(Constant(), self.n_body), Group(Carry(), n)
        results = Group(Carry(), n), Group(Slice(), len(self.rows))
        cond = Body(self.cond, (0, 2), (PREDICATE,), Unknown(self.max_steps))
        # without a bound there is no reverse mode, so the body stores nothing
        body = Body(self.body, (1, 2), (0, 1), Unknown(self.max_steps), stores=bool(self.max_steps))
        return Layout(operands, results, (cond, body))

    def rebuild(self, bodies: tuple[Jaxpr, ...], operands: tuple[int, ...], results: tuple[int, ...]) -> While:
        return While(bodies[0], bodies[1], operands[0], operands[1], self.max_steps)

    def with_constants(self, still: Marks) -> tuple[While, list[int]]:
        """Return the loop with the marked carries, which no step changes, as constants of both bodies; and the places
        of its operands among the operands of this loop."""
        n, at, count = len(self.carry), self.n_cond + self.n_body, sum(still)
        fixed = [at + k for k, s in enumerate(still) if s]
        moving = [k for k, s in enumerate(still) if not s]
        loop = While(
            with_constants(self.cond, self.n_cond, still, (0,)),
            with_constants(self.body, self.n_body, still, [*moving, *range(n, len(self.body.outs))]),
            self.n_cond + count,
            self.n_body + count,
            self.max_steps,
        )
        return loop, [*range(self.n_cond), *fixed, *range(self.n_cond, at), *fixed, *[at + k for k in moving]]

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        args = tuple(
            [a if d is None else broadcast_to_axis(ctx, a, d, ctx.size, 0) for a, d in zip(args, dims, strict=True)]
        )
        of_cond, of_body, first = self.parts([d is not None for d in dims])
        carry, rows, varies = self._varying(ctx, of_cond, of_body, first)
        body, _ = ctx.recur(self.body, _dims((*of_body, *carry)), _dims((*carry, *rows)))
        cond, _ = ctx.recur(self.cond, _dims((*of_cond, *carry)), _dims((varies,)))
        n = self.n_cond + self.n_body
        inits = [
            broadcast_to_axis(ctx, a, None, ctx.size, 0) if c and not m else a
            for a, c, m in zip(args[n:], carry, first, strict=True)
        ]
        out_dims = (*_dims(carry), *[1 if r else None for r in rows])
        if not varies:
            loop = While(cond, body, self.n_cond, self.n_body, self.max_steps)
            return ctx(loop, *args[:n], *inits), out_dims
        check_uniform(ctx, self)
        guard = guarded(self.body) if checks(self.body) else None
        if self.effects or (guard is None and checks(self.body)):  # an example that has stopped must have no effects
            return one_by_one(ctx, self, args, tuple([None if d is None else 0 for d in dims]))
        if guard is not None:
            body, _ = ctx.recur(guard, (0, *_dims((*of_body, *carry))), _dims((*carry, *rows)))
        endless = any(
            [isinstance(e.prim, HigherOrder) and e.prim.layout.depends for j in distinct(self.body) for e in j.eqns]
        )
        mapped = (*of_body, *carry)
        step = per_example(
            body, cond, self.n_body, self.n_cond, mapped, ctx.size, endless=endless, guarded=guard is not None
        )
        loop = While(any_live(step, n), step, 0, n, self.max_steps)
        (live,) = ctx(Call(cond), *args[: self.n_cond], *inits)
        return ctx(loop, *args[:n], live, *inits)[1:], out_dims

    def _varying(self, ctx: BatchCtx, of_cond: Marks, of_body: Marks, carry: Marks) -> tuple[Marks, Marks, bool]:
        """Return masks of the carries and rows that differ between examples, and whether the predicate differs."""
        still = passing(self.steps)
        while True:
            found = ctx.recur(self.body, _dims((*of_body, *carry)))[1]
            varies = ctx.recur(self.cond, _dims((*of_cond, *carry)))[1][0] is not None
            # if examples stop at different steps, every carry that changes differs between them
            moved = [d is not None or (varies and not s) for d, s in zip(found, still, strict=False)]
            wider = either(carry, moved)
            if wider == carry:
                return carry, tuple([d is not None or varies for d in found[len(carry) :]]), varies
            carry = wider

    # ----------------------------------------------------------------------------------------------- differentiation

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        still = passing(self.steps)
        if any(still):
            return self._jvp_of_moving(ctx, primals, tangents, still)
        _, *groups = self.parts([isinstance(t, Lin) for t in tangents])
        outs = self.abstract_eval(*[a.aval for a in primals])
        reached = self._reached(ctx, *groups)
        if not any(reached):
            return ctx(self, *primals), spread_tangents((), reached, outs)
        return (self._split if ctx.split else self._fused)(ctx, primals, tangents, (*groups[0], *groups[1]))

    def _jvp_of_moving(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...], still: Marks
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        """Differentiate a loop with some unchanged carries: they become constants, and so do their tangents."""
        at = self.n_cond + self.n_body
        loop, order = self.with_constants(still)
        outs, dots = loop.jvp(ctx, tuple([primals[k] for k in order]), tuple([tangents[k] for k in order]))
        moved, moved_dots = iter(outs), iter(dots)
        return (
            (*[primals[at + k] if s else next(moved) for k, s in enumerate(still)], *moved),
            (*[tangents[at + k] if s else next(moved_dots) for k, s in enumerate(still)], *moved_dots),
        )

    def _reached(self, ctx: JvpCtx, consts: Marks, carry: Marks) -> Marks:
        """Return a mask of the results that have a tangent after any number of steps."""
        rows: Marks = (False,) * len(self.rows)
        while any((*consts, *carry)):
            nonzero = (*consts, *carry)
            found = ctx.recur(self.body, nonzero).out_nonzero if ctx.split else ctx.recur_fused(self.body, nonzero)[1]
            wider, rows = either(carry, found[: len(carry)]), found[len(carry) :]
            if wider == carry:
                break
            carry = wider
        return (*carry, *rows)

    def _fused(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...], nonzero: Marks
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        both = fused(self.steps, ctx.recur_fused, nonzero)
        of_cond, of_body, carry = self.parts(primals)
        _, const_dots, carry_dots = self.parts([t.var if isinstance(t, Lin) else t.instantiate() for t in tangents])
        n, n_dots = len(carry), both.steps.n_carry - len(carry)
        loop = While(self._over_more(both.steps), both.steps.body, self.n_cond, both.steps.n_consts, self.max_steps)
        of_consts, of_carry, _ = self.steps.split(both.ins)
        outs = ctx(
            loop,
            *of_cond,
            *of_body,
            *select_by_mask(const_dots, of_consts),
            *carry,
            *select_by_mask(carry_dots, of_carry),
        )
        rows = n + n_dots + len(self.rows)
        results = (*outs[:n], *outs[n + n_dots : rows])
        found = [Lin(v) for v in (*outs[n : n + n_dots], *outs[rows:])]
        return results, spread_tangents(found, both.outs, [v.aval for v in results])

    def _over_more(self, steps: Steps) -> Jaxpr:
        """Return the predicate over this carry followed by further values."""
        avals = (*self.cond.in_avals[: self.n_cond], *steps.split(steps.body.in_avals)[1])
        has = (True,) * len(self.cond.ins) + (False,) * (len(avals) - len(self.cond.ins))
        return over(self.cond, has, avals, (True,) * len(avals))

    def _split(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...], nonzero: Marks
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        if self.max_steps is None:
            raise NotDifferentiableError(
                f"while: reverse mode goes backward through the steps, and how many steps {self.body.name} takes has "
                "no bound that is known before it runs",
                remedy="give while_loop max_steps, or fori_loop bounds that are Python ints, or use scan "
                "or forward mode (jvp, jacfwd)",
            )
        of_cond, of_body, carry = self.parts(primals)
        _, const_dots, carry_dots = self.parts(tangents)
        around = Outside(ctx, (*of_body, *carry), self.max_steps, False, self.max_steps > 0)
        both = halves(around, self.steps, ctx.recur, nonzero)
        cond, body = counting(self.cond, self.n_cond), counting(both.primal.body, both.primal.n_consts, adding=True)
        loop = While(cond, body, self.n_cond, both.primal.n_consts, self.max_steps)
        count, *outs = ctx(loop, *of_cond, *of_body, *both.hoisted, Lit.of(0, COUNT), *carry)
        results, stacks = tuple(outs[: len(self.body.outs)]), (*both.counts, *outs[len(carry) :])
        of_consts, of_carry, _ = self.steps.split(both.ins)
        linear = both.linear
        dots = ctx.lin(
            Scan(linear.body, self.max_steps, False, 1, linear.n_consts, linear.n_carry, True),
            count,
            *select_by_mask(const_dots, of_consts),
            *both.invariant,
            *select_by_mask(carry_dots, of_carry),
            *[stacks[k] for k in both.stacked],
        )
        return results, spread_tangents(dots, both.outs, [v.aval for v in results])


def _dims(mapped: Sequence[bool]) -> tuple[int | None, ...]:
    return tuple([0 if m else None for m in mapped])


def _types(avals: Sequence[Aval]) -> str:
    return ", ".join(map(str, avals))
