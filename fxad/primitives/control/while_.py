"""`while`: a loop that applies a body to a carry while a predicate holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder, rebind_operands
from fxad.core.interpreter import run
from fxad.core.layout import PREDICATE, Body, Carry, Constant, Group, Layout, Sliced, Unknown
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError, mismatch
from fxad.ir import (
    BOOL_SCALAR,
    INT32_SCALAR,
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Flags,
    HigherOrder,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lin,
    LinearizeCtx,
    Lit,
    NDArray,
    Region,
    Tangents,
    primitive,
)
from fxad.primitives.check import has_check
from fxad.primitives.collectives import check_uniform
from fxad.primitives.control.bodies import insert_zeros
from fxad.primitives.control.call import Call
from fxad.primitives.control.effects import guard_checks, without_checks, without_effects
from fxad.primitives.control.idle_examples import replace_idle_operands
from fxad.primitives.control.loop_derivatives import LoopContext, fuse_tangents, linearize_steps
from fxad.primitives.control.loop_steps import Steps, carry_fixpoint, unchanged_carries
from fxad.primitives.control.scan import Scan, scan_over_examples
from fxad.primitives.dynamic_slicing import write_row
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.logic import AND, LT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.operand_checks import MATCH_BODIES, TRACE_AGAIN
from fxad.primitives.reduce import ReduceOr
from fxad.primitives.shape import broadcast_to_axis, emit_broadcast
from fxad.primitives.stablehlo import zeros_constant

T = TypeVar("T")


@final
@primitive
class While(HigherOrder):
    """Apply `body` to the carry while `cond` of the carry is true, at most `max_steps` times.

    Type: (constants of `cond`, constants of `body`, carry) -> (carry, stacked rows). `cond`: (its constants, carry) ->
          bool; `body`: (its constants, carry) -> (carry, rows). With `max_steps` a step may return rows besides the
          carry. Each is stacked along an axis of size `max_steps`; rows of steps that do not run are zero.
    Rule: batched, each example stops when its own predicate is false; its carry then stays unchanged bit for bit.
          Forward mode adds tangents to the carry. After linearization with `max_steps`, the residuals of each step are
          rows, and the linear half is a `scan` over the rows of the steps that ran. Without `max_steps`, the linear
          half runs the loop of forward mode, from the operands. It has no transpose, so there is no reverse mode.
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

    def split_operands(self, xs: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """Split values for the operands into those for the constants of `cond`, the constants of `body` and the
        carry."""
        n = self.n_cond + self.n_body
        return tuple(xs[: self.n_cond]), tuple(xs[self.n_cond : n]), tuple(xs[n:])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        self._check_bodies()
        wants = (*self.cond.in_avals[: self.n_cond], *self.body.in_avals)
        if avals != wants:
            raise self._operand_error(avals, wants)
        return self.carry + tuple([a.stacked(self.max_steps or 0) for a in self.rows])

    def _operand_error(self, avals: tuple[Aval, ...], wants: tuple[Aval, ...]) -> FxadError:
        if len(avals) != len(wants):
            return ArgumentError(f"while: takes {len(wants)} operands, got {len(avals)}", remedy=MATCH_BODIES)
        k, have, want = next((k, a, w) for k, (a, w) in enumerate(zip(avals, wants, strict=True)) if a is not w)
        groups = self.split_operands(range(len(wants)))
        roles = ("constant {} of cond", "constant {} of body", "carry {}")
        role = next(r.format(k - g[0]) for r, g in zip(roles, groups, strict=True) if k in g)
        error = mismatch(have, want)
        return error(f"while: operand {k} ({role}) is {have}, its bodies take {want}", remedy=MATCH_BODIES)

    def _check_bodies(self) -> None:
        if not 0 <= self.n_cond <= len(self.cond.ins) or not 0 <= self.n_body <= len(self.body.ins):
            raise ParameterError(
                f"while: {self.n_cond} constants of {len(self.cond.ins)} operands of cond, "
                f"{self.n_body} constants of {len(self.body.ins)} operands of body",
                remedy=TRACE_AGAIN,
            )
        if self.max_steps is not None and self.max_steps < 0:
            raise ParameterError(f"while: max_steps is {self.max_steps}", remedy="give a number of steps >= 0")
        carry = self.carry
        if self.body.out_avals[: len(carry)] != carry:
            raise ShapeError(
                f"while: body takes the carry ({_listed(carry)}) and returns ({_listed(self.body.out_avals)})",
                remedy=TRACE_AGAIN,
            )
        if self.rows and self.max_steps is None:
            raise ParameterError(
                f"while: body returns {len(self.rows)} rows beside the carry, so max_steps must be given",
                remedy="give max_steps, or return the carry alone",
            )
        if self.cond.in_avals[self.n_cond :] != carry:
            raise ShapeError(
                f"while: cond takes the carry ({_listed(self.cond.in_avals[self.n_cond :])}), body ({_listed(carry)})",
                remedy=TRACE_AGAIN,
            )
        if self.cond.out_avals != (BOOL_SCALAR,):
            raise DTypeError(
                f"while: cond returns ({_listed(self.cond.out_avals)}), not a bool without axes",
                remedy="let cond return one comparison",
            )

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        cond_consts, body_consts, carry = self.split_operands(args)
        stacks = [np.zeros((self.max_steps or 0, *a.shape), a.dtype) for a in self.rows]
        n, step = len(carry), 0
        # as compiled, the predicate runs after the last step too: it may have checks
        while self.max_steps != 0 and np.all(run(self.cond, (*cond_consts, *carry))[0]) and step != self.max_steps:
            outs = run(self.body, (*body_consts, *carry))
            carry = outs[:n]
            for stack, row in zip(stacks, outs[n:], strict=True):
                stack[step] = row
            step += 1
        return *carry, *stacks

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        cond_consts, body_consts, carry = self.split_operands(args)
        if self.max_steps is None:
            regions = (Region(self.cond, cond_consts), Region(self.body, body_consts))
            return hlo.op("stablehlo.while", carry, outs, regions=regions)
        if self.max_steps == 0:
            return *carry, *[zeros_constant(hlo, a) for a in outs[len(carry) :]]
        state = (
            hlo.constant(Lit.of(0, INT32_SCALAR)),
            *carry,
            *[zeros_constant(hlo, a) for a in outs[len(carry) :]],
        )
        cond = bounded_predicate(self.cond, self.n_cond, self.max_steps, self.rows)
        body = body_storing_rows(self.body, self.n_body, len(carry), self.max_steps)
        regions = (Region(cond, cond_consts), Region(body, body_consts))
        return hlo.op("stablehlo.while", state, (INT32_SCALAR, *outs), regions=regions)[1:]

    @property
    def layout(self) -> Layout:
        n = len(self.carry)
        operands = Group(Constant(), self.n_cond), Group(Constant(), self.n_body), Group(Carry(), n)
        results = Group(Carry(), n), Group(Sliced(), len(self.rows))
        cond = Body(self.cond, (0, 2), (PREDICATE,), Unknown(self.max_steps))
        # without a bound there is no reverse mode, so the body stores nothing
        body = Body(self.body, (1, 2), (0, 1), Unknown(self.max_steps), stores=bool(self.max_steps))
        return Layout(operands, results, (cond, body))

    def rebuild(self, bodies: tuple[Jaxpr, ...], operands: tuple[int, ...], results: tuple[int, ...]) -> While:
        return While(bodies[0], bodies[1], operands[0], operands[1], self.max_steps)

    def with_constants(self, unchanged: Flags) -> tuple[While, list[int]]:
        """Return the loop with the marked carries, which no step changes, as constants of both bodies; and, for each of
        its operands, the number of the operand of this loop.

        A loop over (constant of cond, constant of body, carry c, unchanged carry u) becomes one over the operands
        [0, 3, 1, 3, 2]: its constants of cond are 0 and u, those of body 1 and u, its carry is c.
        """
        unchanged_numbers = [k for k, marked in enumerate(unchanged) if marked]
        changing_numbers = [k for k, marked in enumerate(unchanged) if not marked]

        def unchanged_first(n_consts: int) -> list[int]:
            return [*range(n_consts), *[n_consts + k for k in (*unchanged_numbers, *changing_numbers)]]

        outs = [*[self.body.outs[k] for k in changing_numbers], *self.body.outs[len(self.carry) :]]
        loop = While(
            rebind_operands(self.cond, unchanged_first(self.n_cond)),
            rebind_operands(self.body, unchanged_first(self.n_body), outs=outs),
            self.n_cond + len(unchanged_numbers),
            self.n_body + len(unchanged_numbers),
            self.max_steps,
        )
        first_carry = self.n_cond + self.n_body
        cond_operands = [*range(self.n_cond), *[first_carry + k for k in unchanged_numbers]]
        return loop, [
            *cond_operands,
            *range(self.n_cond, first_carry),
            *[first_carry + k for k in (*unchanged_numbers, *changing_numbers)],
        ]

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args = tuple(
            [a if d is None else broadcast_to_axis(ctx, a, d, ctx.size, 0) for a, d in zip(args, dims, strict=True)]
        )
        cond_mapped, body_mapped, inits_mapped = self.split_operands([d is not None for d in dims])
        carry_mapped, rows_mapped, predicate_varies = self._mapped_results(ctx, cond_mapped, body_mapped, inits_mapped)
        body, _ = ctx.recur(self.body, _dims((*body_mapped, *carry_mapped)), _dims((*carry_mapped, *rows_mapped)))
        cond, _ = ctx.recur(self.cond, _dims((*cond_mapped, *carry_mapped)), _dims((predicate_varies,)))
        n = self.n_cond + self.n_body
        inits = [
            broadcast_to_axis(ctx, a, None, ctx.size, 0) if mapped and not init_mapped else a
            for a, mapped, init_mapped in zip(args[n:], carry_mapped, inits_mapped, strict=True)
        ]
        out_dims = (*_dims(carry_mapped), *[1 if r else None for r in rows_mapped])
        if not predicate_varies:
            loop = While(cond, body, self.n_cond, self.n_body, self.max_steps)
            return ctx(loop, *args[:n], *inits), out_dims
        # from here on, examples stop at different steps
        check_uniform(ctx, self)
        guard = guard_checks(self.body) if has_check(self.body) else None
        if self.effects or (guard is None and has_check(self.body)):  # an example that has stopped must have no effects
            return scan_over_examples(ctx, self, args, tuple([None if d is None else 0 for d in dims]))
        if guard is not None:
            body, _ = ctx.recur(guard, (0, *_dims((*body_mapped, *carry_mapped))), _dims((*carry_mapped, *rows_mapped)))
        marks = (*body_mapped, *carry_mapped)
        step = batched_step(self, body, cond, marks, ctx.size, guarded=guard is not None)
        loop = While(any_is_live(step, n), step, 0, n, self.max_steps)
        live: Atom = Lit.of(False, BOOL_SCALAR).with_shape((ctx.size,))
        if self.max_steps != 0:  # no steps: the predicate, which may have checks, does not run
            (live,) = ctx(Call(cond), *args[: self.n_cond], *inits)
        return ctx(loop, *args[:n], live, *inits)[1:], out_dims

    def _mapped_results(
        self, ctx: BatchCtx, cond_mapped: Flags, body_mapped: Flags, carry: Flags
    ) -> tuple[Flags, Flags, bool]:
        """Return flags that mark the carries and rows that differ between examples, and whether the predicate differs.
        The arguments mark the mapped operands."""
        unchanged = (*unchanged_carries(self.steps), *[False] * len(self.rows))

        def step(marks: Flags) -> tuple[bool, Flags]:
            out_dims = ctx.recur(self.body, _dims((*body_mapped, *marks)))[1]
            predicate_varies = ctx.recur(self.cond, _dims((*cond_mapped, *marks)))[1][0] is not None
            # if examples stop at different steps, every result that changes differs between them
            pairs = zip(out_dims, unchanged, strict=True)
            return predicate_varies, tuple([d is not None or (predicate_varies and not same) for d, same in pairs])

        predicate_varies, differs, mapped = carry_fixpoint(carry, step)
        return mapped, differs[len(carry) :], predicate_varies

    # ----------------------------------------------------------------------------------------------- differentiation

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        unchanged = unchanged_carries(self.steps)
        if any(unchanged):
            return self._jvp_of_changing_carries(ctx, primals, tangents, unchanged)
        _, consts, carry = self.split_operands([isinstance(t, Lin) for t in tangents])
        outs = self.abstract_eval(*[a.aval for a in primals])
        out_nonzero = self._nonzero_results(ctx, consts, carry)
        if not any(out_nonzero):
            return ctx(self, *primals), insert_zeros((), out_nonzero, outs)
        if ctx.separate and self.max_steps is None:
            return ctx(self, *primals), self._linearize_by_rerunning(ctx, primals, tangents)
        nonzero = (*consts, *carry)
        if ctx.separate:
            return self._linearize(ctx, primals, tangents, nonzero)
        return self._jvp_fused(ctx, primals, tangents, nonzero)

    def _jvp_of_changing_carries(
        self, ctx: JvpCtx, primals: Atoms, tangents: Tangents, unchanged: Flags
    ) -> tuple[Atoms, Tangents]:
        """Differentiate a loop with some unchanged carries: they become constants, and so do their tangents."""
        loop, order = self.with_constants(unchanged)
        outs, out_tangents = loop.jvp(ctx, tuple([primals[k] for k in order]), tuple([tangents[k] for k in order]))
        _, _, inits = self.split_operands(primals)
        _, _, init_tangents = self.split_operands(tangents)
        remaining, remaining_tangents = iter(outs), iter(out_tangents)  # the changing carries, then the rows
        return (
            (*[x if u else next(remaining) for x, u in zip(inits, unchanged, strict=True)], *remaining),
            (
                *[t if u else next(remaining_tangents) for t, u in zip(init_tangents, unchanged, strict=True)],
                *remaining_tangents,
            ),
        )

    def _nonzero_results(self, ctx: JvpCtx, consts: Flags, carry: Flags) -> Flags:
        """Return flags that mark the results that have a tangent after any number of steps.

        A caller emits nothing if no result has a tangent. Otherwise it finds the same fixpoint again, by the same
        recursion, whose results are memoised.
        """
        if not any((*consts, *carry)):
            return (False,) * len(self.body.outs)

        def step(marks: Flags) -> tuple[object, Flags]:
            if ctx.separate and self.max_steps is not None:
                split = ctx.recur(self.body, (*consts, *marks))
                return split, split.out_nonzero
            return ctx.recur_fused(self.body, (*consts, *marks))

        _, out_nonzero, at_end = carry_fixpoint(carry, step)
        return (*at_end, *out_nonzero[len(carry) :])

    def _jvp_fused(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents, nonzero: Flags) -> tuple[Atoms, Tangents]:
        fused = fuse_tangents(self.steps, ctx.recur_fused, nonzero)
        cond_consts, body_consts, carry = self.split_operands(primals)
        body_tangents = [t.var if isinstance(t, Lin) else t.instantiate() for t in tangents[self.n_cond :]]
        const_tangents, carry_tangents, _ = self.steps.split_marked(body_tangents, fused.in_nonzero)
        predicate, n_consts = self._predicate_over(fused.steps), fused.steps.n_consts
        loop = While(predicate, fused.steps.body, self.n_cond, n_consts, self.max_steps)
        outs = ctx(loop, *cond_consts, *body_consts, *const_tangents, *carry, *carry_tangents)
        results, result_tangents = fused.split_results(outs, len(carry))
        return results, insert_zeros([Lin(v) for v in result_tangents], fused.out_nonzero, [v.aval for v in results])

    def _linearize_by_rerunning(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> Tangents:
        """Return the tangents of a loop without a bound: the residuals are its operands, and the linear program runs
        the loop of forward mode. The number of steps is not known, so the values of the steps are not stored."""
        b = Builder()
        program = b.build(b(self, *b.inputs([a.aval for a in primals])), self.body.name)
        program = without_checks(without_effects(program))
        body_tangents = tangents[self.n_cond :]  # of the constants of the body, and the carry
        nonzero = tuple([isinstance(t, Lin) for t in body_tangents])
        forward, out_nonzero = ctx.recur_fused(program, (*[False] * self.n_cond, *nonzero))
        n, lins = len(primals), [t for t in body_tangents if isinstance(t, Lin)]
        order = (*range(n, len(forward.ins)), *range(n))
        rerun = rebind_operands(forward, order, outs=forward.outs[len(program.outs) :])
        result_tangents = ctx.lin(LinearCall(rerun, None, len(lins)), *lins, *primals)
        return insert_zeros(result_tangents, out_nonzero, program.out_avals)

    def _predicate_over(self, steps: Steps) -> Jaxpr:
        """Return the predicate over this carry followed by further values."""
        avals = (*self.cond.in_avals[: self.n_cond], *steps.split(steps.body.in_avals)[1])
        return rebind_operands(self.cond, range(len(avals)), types=dict(enumerate(avals)))

    def _linearize(
        self, ctx: LinearizeCtx, primals: Atoms, tangents: Tangents, nonzero: Flags
    ) -> tuple[Atoms, Tangents]:
        assert self.max_steps is not None, "the values of the steps are stacked"
        cond_consts, body_consts, carry = self.split_operands(primals)
        outside = LoopContext(
            ctx,
            (*body_consts, *carry),
            self.max_steps,
            reverse=False,
            is_loop=self.max_steps > 0,
            is_start_known=True,
        )
        halves = linearize_steps(outside, self.steps, ctx.recur, nonzero)
        added = len(self.cond.ins)  # the number of the new operand, the count
        with_count = (*range(self.n_cond), added, *range(self.n_cond, added))
        loop = While(
            rebind_operands(self.cond, with_count, types={added: INT32_SCALAR}),
            counting_steps(halves.primal),
            self.n_cond,
            halves.primal.n_consts,
            self.max_steps,
        )
        count, *outs = ctx(loop, *cond_consts, *body_consts, *halves.hoisted, Lit.of(0, INT32_SCALAR), *carry)
        results = tuple(outs[: len(self.body.outs)])
        tangent_groups = self.steps.split_marked(tangents[self.n_cond :], halves.in_nonzero)
        operands = halves.linear_operands(tangent_groups, (), outs[len(carry) :])
        linear = halves.linear
        scan = Scan(linear.body, self.max_steps, False, 1, linear.n_consts, linear.n_carry, True)
        out_tangents = ctx.lin(scan, count, *operands)
        return results, insert_zeros(out_tangents, halves.out_nonzero, [v.aval for v in results])


def _dims(mapped: Sequence[bool]) -> Dims:
    return tuple([0 if m else None for m in mapped])


def _listed(avals: Sequence[Aval]) -> str:
    return ", ".join(map(str, avals))


# ---------------------------------------------------------------------------------------------------------- lowering


@by_value
def bounded_predicate(cond: Jaxpr, n_cond: int, max_steps: int, rows: tuple[Aval, ...]) -> Jaxpr:
    """Return the predicate over (constants, step, carry, stacks of rows) that is false after `max_steps`."""
    b = Builder()
    consts = b.inputs(cond.in_avals[:n_cond])
    step = b.input(INT32_SCALAR)
    (predicate,) = b.inline(cond, (*consts, *b.inputs(cond.in_avals[n_cond:])))
    b.inputs([a.stacked(max_steps) for a in rows])
    return b.build((b.one(AND, predicate, b.one(LT, step, Lit.of(max_steps, INT32_SCALAR))),), cond.name)


@by_value
def body_storing_rows(body: Jaxpr, n_consts: int, n_carry: int, max_steps: int) -> Jaxpr:
    """Return (constants, step, carry, stacks) -> (next step, carry, stacks), which writes the rows of this step into
    the stacks."""
    b = Builder()
    consts = b.inputs(body.in_avals[:n_consts])
    step = b.input(INT32_SCALAR)
    outs = b.inline(body, (*consts, *b.inputs(body.in_avals[n_consts:])))
    rows = outs[n_carry:]
    stacks = b.inputs([a.aval.stacked(max_steps) for a in rows])
    stored = [write_row(b, stack, step, row) for stack, row in zip(stacks, rows, strict=True)]
    return b.build((b.one(ADD, step, Lit.of(1, INT32_SCALAR)), *outs[:n_carry], *stored), body.name)


# ---------------------------------------------------------------------------------------------------------- batching


def batched_step(loop: While, body: Jaxpr, cond: Jaxpr, mapped: Flags, size: int, *, guarded: bool) -> Jaxpr:
    """Return one step of a batched loop: (constants of cond, constants of body, live, carry) -> (live, carry, rows).

    `body` and `cond` are those of `loop`, batched; `mapped` marks the mapped operands of `body`. The carry of an
    example that is not live is unchanged bit for bit, and its rows are zero. `guarded`: the first operand of `body`
    marks the live examples, for its checks.
    """
    n_body = loop.n_body
    avals = body.in_avals[guarded:]
    n_carry = len(avals) - n_body
    b = Builder()
    cond_consts, body_consts = b.inputs(cond.in_avals[: loop.n_cond]), b.inputs(avals[:n_body])
    live = b.input(Aval((size,), dtypes.bool_))
    carry = b.inputs(avals[n_body:])
    # a `while` is in no linear program, unlike a `cond` or a `scan`, so no operand must stay linear in a tangent
    operands = replace_idle_operands(
        b, loop.body, (*body_consts, *carry), _dims(mapped), live, zero_affine_operands=False, some_active=True
    )
    outs = b.inline(body, (*[live] * guarded, *operands))
    # a carry that no step changes needs no select
    unchanged = unchanged_carries(Steps(body, guarded + n_body, n_carry))
    state = [
        old if same or not is_mapped else _select_live(b, live, new, old)
        for new, old, same, is_mapped in zip(outs[:n_carry], carry, unchanged, mapped[n_body:], strict=True)
    ]
    rows = [_select_live(b, live, row, Lit.zero(row.aval)) for row in outs[n_carry:]]
    (predicate,) = b.inline(cond, (*cond_consts, *state))
    return b.build((b.one(AND, live, predicate), *state, *rows), body.name)


def _select_live(b: Builder, live: Atom, new: Atom, old: Atom) -> Atom:
    return emit_where(b, emit_broadcast(b, live, new.aval.shape, (0,)), new, old)


def any_is_live(step: Jaxpr, n_consts: int) -> Jaxpr:
    """Return the predicate (live, carry) -> bool, True if an example is live."""
    b = Builder()
    live, *_ = b.inputs(step.in_avals[n_consts:])
    return b.build((b.one(ReduceOr((0,)), live),), "any")


# --------------------------------------------------------------------------------------------------- differentiation


def counting_steps(steps: Steps) -> Jaxpr:
    """Return (constants, count, carry) -> (count + 1, results): the carry begins with the number of steps taken."""
    body, n = steps.body, steps.n_consts
    b = Builder()
    consts = b.inputs(body.in_avals[:n])
    count = b.input(INT32_SCALAR)
    outs = b.inline(body, (*consts, *b.inputs(body.in_avals[n:])))
    return b.build((b.one(ADD, count, Lit.of(1, INT32_SCALAR)), *outs), body.name)
