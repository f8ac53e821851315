"""`scan`: a loop over the slices of arrays, with a carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeVar, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.core.layout import Body, Carry, Constant, Count, Group, Layout, Sliced, Times, UpTo
from fxad.core.memo import by_value
from fxad.core.sizes.size import Size
from fxad.errors import ArgumentError, ParameterError, ShapeError
from fxad.ir import (
    INT32_SCALAR,
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Emit,
    Flags,
    HigherOrder,
    Hlo,
    HloValue,
    HloValues,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizeCtx,
    Lit,
    NDArray,
    Operands,
    Primitive,
    Region,
    Tangents,
    TransposeCtx,
    Zero,
    instantiated,
    known_operands,
    primitive,
)
from fxad.primitives.check import has_check
from fxad.primitives.collectives import check_uniform
from fxad.primitives.control.bodies import insert_zeros
from fxad.primitives.control.call import Call
from fxad.primitives.control.effects import guard_checks
from fxad.primitives.control.idle_examples import replace_idle_operands
from fxad.primitives.control.loop_derivatives import (
    LoopContext,
    fuse_tangents,
    is_linear_body,
    linearize_steps,
    split_known_carries,
    transpose_steps,
)
from fxad.primitives.control.loop_steps import Steps, unchanged_carries
from fxad.primitives.dynamic_slicing import read_row, write_row
from fxad.primitives.elementwise.arithmetic import ADD, SUB
from fxad.primitives.elementwise.logic import LT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.index import INT32_MAX, index_dtype
from fxad.primitives.operand_checks import MATCH_BODIES, TRACE_AGAIN, type_mismatch
from fxad.primitives.reduce import ReduceMax
from fxad.primitives.shape import Iota, broadcast_to_axis, emit_broadcast, emit_reshape, move_axis
from fxad.primitives.slicing import Concatenate, emit_slice
from fxad.primitives.stablehlo import zeros_constant

T = TypeVar("T")


@final
@primitive
class Scan(HigherOrder, Linear):
    """Apply `body` `length` times. All steps share the constants, and each step passes the carry to the next. For each
    other operand a step reads one slice along axis 0; for each other result it writes one slice.

    Type:   operands: constants, initial carry, arrays of `length` slices; body: (constants, carry, slices) -> (carry,
            slices of results); results: final carry, stacked results.
    Rule:   `reverse` runs from the last slice to the first; results keep the place of their slice. `unroll` steps form
            one iteration of the loop; it changes no value. With `upto` there is a further first operand: i32[], the
            number of slices to run over, counted from the first. The stacked results of the remaining slices are zero,
            and those steps do not run.
    Cost:   each step reads and writes its slices in place.
    Source: stablehlo.while
    """

    name: ClassVar[str] = "scan"
    body: Jaxpr
    length: int
    reverse: bool
    unroll: int
    n_consts: int
    n_carry: int
    upto: bool = False

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Scan:
        return self.with_steps(Steps(bodies[0], self.n_consts, self.n_carry))

    @property
    def steps(self) -> Steps:
        """The body with its operands in three groups."""
        return Steps(self.body, self.n_consts, self.n_carry)

    @property
    def form(self) -> ScanForm:
        """The parameters but for the body."""
        return ScanForm(self.length, self.reverse, self.unroll, self.n_consts, self.n_carry, self.upto)

    def with_steps(self, steps: Steps, *, backward: bool = False) -> Scan:
        """Return a scan of the same length over other steps, in the opposite direction if `backward`."""
        reverse = self.reverse != backward
        return Scan(steps.body, self.length, reverse, self.unroll, steps.n_consts, steps.n_carry, self.upto)

    def split_count(self, values: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
        """Split the values for all operands into those for the count, if there is one, and those for the operands of
        the body."""
        return tuple(values[: self.upto]), tuple(values[self.upto :])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        self._check_parameters()
        count, operands = self.split_count(avals)
        if count not in ((), (INT32_SCALAR,)):
            raise type_mismatch(
                f"scan: the count of slices to run over must be {INT32_SCALAR}, got {count[0]}", count[0], INT32_SCALAR
            )
        if len(operands) != len(self.body.ins):
            raise ArgumentError(
                f"scan: {self.body.name} takes {len(self.body.ins)} operands, got {len(operands)}", remedy=MATCH_BODIES
            )
        self._check_operands(operands)
        outs = self.body.out_avals
        return outs[: self.n_carry] + _stacked_types(outs[self.n_carry :], self.length)

    def _check_parameters(self) -> None:
        for field, least in (("length", 0), ("unroll", 1), ("n_consts", 0), ("n_carry", 0)):
            if getattr(self, field) < least:
                raise ParameterError(
                    f"scan: {field} is {getattr(self, field)}, less than {least}", remedy=f"give an int from {least} on"
                )
        if self.upto and (self.unroll != 1 or self.length > INT32_MAX):
            raise ParameterError(
                "scan: up to a count, unroll must be 1 and length less than 2**31, got "
                f"{self.unroll} and {self.length}",
                remedy="leave out unroll, or the count",
            )
        n, n_out = self.n_consts + self.n_carry, len(self.body.outs)
        if n > len(self.body.ins) or self.n_carry > n_out:
            raise ParameterError(
                f"scan: {self.n_consts} constants and {self.n_carry} carries do not fit {self.body.name}, of "
                f"{len(self.body.ins)} operands and {n_out} results",
                remedy=TRACE_AGAIN,
            )
        carry = self.body.in_avals[self.n_consts : n]
        for k, (have, want) in enumerate(zip(self.body.out_avals, carry, strict=False)):
            if have is not want:
                raise ShapeError(
                    f"scan: {self.body.name} takes {want} for carry {k} and gives {have}", remedy=TRACE_AGAIN
                )

    def _check_operands(self, avals: tuple[Aval, ...]) -> None:
        """Check the types of the operands of the body. Raises: DTypeError, ShapeError."""
        # the slices, which are the third group, have other types than the arrays: they are checked below
        groups = zip(("constant", "carry"), self.steps.split(avals), self.steps.split(self.body.in_avals), strict=False)
        for group, group_avals, wants in groups:
            for k, (have, want) in enumerate(zip(group_avals, wants, strict=True)):
                if have is not want:
                    message = f"scan: {group} {k} of {self.body.name} is {have}, its body takes {want}"
                    raise type_mismatch(message, have, want)
        _, _, xs = self.steps.split(avals)
        _, _, slices = self.steps.split(self.body.in_avals)
        for k, (have, want) in enumerate(zip(xs, slices, strict=True)):
            if have is not want.stacked(self.length):
                message = f"scan: xs {k} of {self.body.name} is {have}, its body takes {self.length} slices {want}"
                raise type_mismatch(message, have, want)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        count, operands = self.split_count(args)
        consts, carry, xs = self.steps.split(operands)
        ys = [np.zeros((self.length, *a.shape), a.dtype) for a in self.body.out_avals[self.n_carry :]]
        indices = range(min(int(count[0]), self.length) if count else self.length)
        for i in reversed(indices) if self.reverse else indices:
            outs = run(self.body, (*consts, *carry, *[x[i] for x in xs]))
            carry = outs[: self.n_carry]
            for y, row in zip(ys, outs[self.n_carry :], strict=True):
                y[i] = row
        return *carry, *ys

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        count, operands = self.split_count(args)
        consts, carry, xs = self.steps.split(operands)
        n, form = self.length, self.form
        if n <= self.unroll and not (n != 0 and self.upto):
            if n != 0:
                return hlo.call(unrolled_steps(self.body, form, 0), (*consts, *xs, *carry))
            return *carry, *[zeros_constant(hlo, a) for a in outs[self.n_carry :]]
        zero_stacks = [zeros_constant(hlo, a) for a in outs[self.n_carry :]]
        index = index_aval(n)
        bound: tuple[HloValue, ...] = ()
        if count:
            bound = hlo.op("stablehlo.minimum", (*count, hlo.constant(Lit.of(n, INT32_SCALAR))), (INT32_SCALAR,))
        condition = Region(scan_condition(self.body, form), bound)
        iteration = Region(scan_iteration(self.body, form), (*bound, *consts, *xs))
        start = (zeros_constant(hlo, index), *carry, *zero_stacks)
        _, *state = hlo.op("stablehlo.while", start, (index, *outs), regions=(condition, iteration))
        n_remaining = n % self.unroll
        if not n_remaining:
            return state
        return hlo.call(unrolled_steps(self.body, form, n - n_remaining), (*consts, *xs, *state))

    @property
    def layout(self) -> Layout:
        count = (Group(Count(), 1),) if self.upto else ()
        n_xs = len(self.body.ins) - self.n_consts - self.n_carry
        operands = (*count, Group(Constant(), self.n_consts), Group(Carry(), self.n_carry), Group(Sliced(), n_xs))
        results = Group(Carry(), self.n_carry), Group(Sliced(), len(self.body.outs) - self.n_carry)
        runs = UpTo(self.length, self.reverse) if self.upto else Times(self.length, self.reverse)
        groups = (1, 2, 3) if self.upto else (0, 1, 2)  # without the count
        return Layout(operands, results, (Body(self.body, groups, (0, 1), runs, stores=True),))

    def rebuild(self, bodies: tuple[Jaxpr, ...], operands: tuple[int, ...], results: tuple[int, ...]) -> Scan:
        _, (n_consts, n_carry, _) = self.split_count(operands)
        return self.with_steps(Steps(bodies[0], n_consts, n_carry))

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        if self.upto and dims[0] is not None:
            return self._batch_counted(ctx, args, dims)
        count, args = self.split_count(args)
        consts, carry, xs = self.steps.split(args)
        const_dims, init_dims, xs_dims = self.steps.split(self.split_count(dims)[1])
        xs, slice_dims = _with_leading_slices(ctx, xs, xs_dims)
        carry_dims, row_dims = _carry_and_row_dims(ctx, self.steps, const_dims, init_dims, slice_dims)
        body, _ = ctx.recur(self.body, (*const_dims, *carry_dims, *slice_dims), (*carry_dims, *row_dims))
        carry = _moved_carry(ctx, carry, init_dims, carry_dims)
        outs = ctx(self.with_bodies((body,)), *count, *consts, *carry, *xs)
        return outs, (*carry_dims, *[None if d is None else d + 1 for d in row_dims])

    def _batch_counted(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        """Batch a scan whose count differs between examples. The loop runs to the largest count; steps beyond the count
        of an example do not change its carry."""
        check_uniform(ctx, self)
        (counts, *operands), (_, *operand_dims) = args, dims
        guard = guard_checks(self.body) if has_check(self.body) else None
        if self.effects or (guard is None and has_check(self.body)):  # effects beyond the count must not happen
            return scan_over_examples(ctx, self, args, dims)
        consts, carry, xs = self.steps.split(operands)
        const_dims, init_dims, xs_dims = self.steps.split(operand_dims)
        xs, slice_dims = _with_leading_slices(ctx, xs, xs_dims)
        # a carry that changes differs between the examples
        carry_dims = tuple([d if u else 0 for d, u in zip(init_dims, unchanged_carries(self.steps), strict=True)])
        carry = _moved_carry(ctx, carry, init_dims, carry_dims)
        dims = (*const_dims, *carry_dims, *slice_dims)
        out_dims = (*carry_dims, *[0] * (len(self.body.outs) - self.n_carry))
        body, _ = ctx.recur(self.body if guard is None else guard, ((0,) if guard else ()) + dims, out_dims)
        steps = stop_at_count(self.steps, body, dims, ctx.size, guarded=guard is not None)
        index = ctx.one(Iota((self.length,), dtypes.int32, 0))
        largest_count = ctx.one(ReduceMax((0,)), counts)
        outs = ctx(self.with_steps(steps), largest_count, *consts, counts, *carry, *xs, index)
        return outs, (*carry_dims, *[1] * (len(outs) - self.n_carry))

    # ---------------------------------------------------------------------------------------------- differentiation

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        count, primals = self.split_count(primals)
        tangents = tangents[len(count) :]
        nonzero = tuple([isinstance(t, Lin) for t in tangents])
        if ctx.separate:
            return self._linearize(ctx, count, primals, tangents, nonzero)
        fused = fuse_tangents(self.steps, ctx.recur_fused, nonzero)
        operand_tangents = [t.var if isinstance(t, Lin) else t.instantiate() for t in tangents]
        groups = zip(
            self.steps.split(primals), self.steps.split_marked(operand_tangents, fused.in_nonzero), strict=True
        )
        outs = ctx(self.with_steps(fused.steps), *count, *[a for values, ts in groups for a in (*values, *ts)])
        results, result_tangents = fused.split_results(outs, self.n_carry)
        return results, insert_zeros([Lin(v) for v in result_tangents], fused.out_nonzero, [v.aval for v in results])

    def _linearize(
        self,
        ctx: LinearizeCtx,
        count: Atoms,
        primals: Atoms,
        tangents: Tangents,
        nonzero: Flags,
    ) -> tuple[Atoms, Tangents]:
        is_loop = self.upto or type(self.length) is Size or self.length > self.unroll
        is_start_known = not (self.upto and self.reverse)
        outside = LoopContext(
            ctx, primals, self.length, reverse=self.reverse, is_loop=is_loop, is_start_known=is_start_known
        )
        halves = linearize_steps(outside, self.steps, ctx.recur, nonzero)
        consts, carry, xs = self.steps.split(primals)
        outs = ctx(self.with_steps(halves.primal), *count, *consts, *halves.hoisted, *carry, *xs)
        results = outs[: len(self.body.outs)]
        tangent_groups = self.steps.split_marked(tangents, halves.in_nonzero)
        operands = halves.linear_operands(tangent_groups, xs, outs[self.n_carry :])
        linear = self.with_steps(halves.linear)
        out_tangents = ctx.lin(linear, *count, *operands) if linear.body.outs else ()
        return results, insert_zeros(out_tangents, halves.out_nonzero, [v.aval for v in results])

    def linear_in(self, flags: Flags) -> bool:
        count, operands = self.split_count(flags)
        return not any(count) and is_linear_body(self.body, self.n_consts, self.n_carry, operands)

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        first, args = self.split_count(args)
        count = known_operands(first)  # it is never linear: see `linear_in`
        linear = tuple([isinstance(a, Hole) for a in args])
        linear_carry = self.steps.split(linear)[1]
        if all(linear_carry):
            return *[None for _ in count], *self._transpose_linear_carry(ctx, count, cts, args)
        # of a carry (c, d), of which only d is linear: a scan with the carry c alone gives the stack of c, which a scan
        # with the carry d alone, the one that is transposed, runs over
        split = split_known_carries(self.steps, linear)
        known_outs = ctx(self.with_steps(split.known), *count, *known_operands([args[p] for p in split.known_operands]))
        with_stacks: Operands = (*args, *known_outs[split.known.n_carry :])
        linear_cts = self.with_steps(split.linear)._transpose_linear_carry(
            ctx,
            count,
            (*select_by_flags(cts[: self.n_carry], linear_carry), *cts[self.n_carry :]),
            tuple([with_stacks[p] for p in split.linear_operands]),
        )
        ct_of = dict(zip(split.linear_operands, linear_cts, strict=True))  # by number of the operand
        return *[None for _ in count], *[ct_of.get(p) for p in range(len(args))]

    def _transpose_linear_carry(
        self, ctx: TransposeCtx, count: Sequence[Atom], cts: Cotangents, args: Operands
    ) -> tuple[Cotangent | None, ...]:
        """Transpose a scan whose carry is linear. `args` and the result are without the `count`."""
        nonzero = tuple([not isinstance(ct, Zero) for ct in cts])
        linear = tuple([isinstance(a, Hole) for a in args])
        back = transpose_steps(self.steps, ctx.recur, linear, nonzero[: self.n_carry], nonzero[self.n_carry :])
        consts, _, xs = self.steps.split(args)
        linear_consts = [a for a in consts if isinstance(a, Hole)]
        outs = ctx(
            self.with_steps(back.steps, backward=True),
            *count,
            *known_operands(consts),
            *[Lit.zero(a.aval) for a in select_by_flags(linear_consts, back.consts_nonzero)],
            *instantiated(select_by_flags(cts[: self.n_carry], back.carry_nonzero)),
            *[ct for ct in cts[self.n_carry :] if not isinstance(ct, Zero)],
            *known_operands(xs),
        )
        linear_types = [a.aval for a in args if isinstance(a, Hole)]
        marks = (*back.consts_nonzero, *back.carry_nonzero, *back.xs_nonzero)
        cts_in = iter(insert_zeros(outs, marks, linear_types))
        return tuple([next(cts_in) if isinstance(a, Hole) else None for a in args])


def scan_over_examples(ctx: BatchCtx, prim: Primitive, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
    """Apply an equation to a stack of operands with a scan over the examples."""
    shared_operands = [k for k, d in enumerate(dims) if d is None]
    stacked_operands = [k for k, d in enumerate(dims) if d is not None]
    stacks = {k: broadcast_to_axis(ctx, args[k], dims[k], ctx.size, 0) for k in stacked_operands}
    b = Builder()
    ins: dict[int, Atom] = {k: b.input(args[k].aval) for k in shared_operands}
    ins.update({k: b.input(stacks[k].aval.with_shape(stacks[k].aval.shape[1:])) for k in stacked_operands})
    step = b.build(b(prim, *[ins[k] for k in range(len(args))]), "example")
    loop = Scan(step, ctx.size, False, 1, len(shared_operands), 0)
    outs = ctx(loop, *[args[k] for k in shared_operands], *stacks.values())
    return outs, (0,) * len(outs)


def _with_leading_slices(ctx: BatchCtx, xs: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
    """Return the arrays with the axis of their slices at 0, and the mapped axes of the slices."""
    moved_xs = tuple([move_axis(ctx, x, 0, 1) if d == 0 else x for x, d in zip(xs, dims, strict=True)])
    return moved_xs, tuple([d if d is None else max(d - 1, 0) for d in dims])


def _moved_carry(ctx: BatchCtx, carry: Atoms, dims: Dims, to: Dims) -> Atoms:
    """Return the initial carry with its mapped axes at the places of `to`."""
    return tuple(
        [a if k is None else broadcast_to_axis(ctx, a, d, ctx.size, k) for a, d, k in zip(carry, dims, to, strict=True)]
    )


def stop_at_count(steps: Steps, body: Jaxpr, dims: Dims, size: int, *, guarded: bool) -> Steps:
    """Return batched steps that do nothing beyond the count of an example. The counts are the last constant; the index
    is the last slice. Beyond its count, the carry of an example is unchanged and its results are zero.

    `body` is the body of `steps`, batched: `dims` are the mapped axes of its operands, and those of its results are 0.
    `guarded`: its first operand marks the examples that take the step, for its checks.
    """
    n = steps.n_carry
    consts, carry, xs = steps.split(body.in_avals[guarded:])
    b = Builder()
    const_values = b.inputs(consts)
    counts = b.input(Aval((size,), dtypes.int32))
    state, slices = b.inputs(carry), b.inputs(xs)
    within = b.one(LT, emit_broadcast(b, b.input(INT32_SCALAR), (size,), ()), counts)
    operands = replace_idle_operands(
        b, steps.body, (*const_values, *state, *slices), dims, within, zero_affine_operands=True, some_active=True
    )
    outs = b.inline(body, (*[within] * guarded, *operands))
    values_beyond: list[Atom] = [*state, *[Lit.zero(a.aval) for a in outs[n:]]]
    # no select for an unchanged carry or a zero result: the literal zero is linear in every operand, a select is not
    unchanged = (*unchanged_carries(steps), *[False] * (len(values_beyond) - n))

    def select(a: Atom, other: Atom) -> Atom:
        return emit_where(b, emit_broadcast(b, within, a.aval.shape, (0,)), a, other)

    selected = [
        other if same or a == other else select(a, other)
        for a, other, same in zip(outs, values_beyond, unchanged, strict=True)
    ]
    return Steps(b.build(selected, body.name), steps.n_consts + 1, n)


def _carry_and_row_dims(ctx: BatchCtx, steps: Steps, consts: Dims, carry: Dims, slices: Dims) -> tuple[Dims, Dims]:
    """Return the mapped axis of each carry in all steps, and the mapped axis of each stacked result of the body.

    The carry uses the axis at which the body returns it, so no step moves an axis, unless this iteration does not
    converge.
    """
    _, out_dims = ctx.recur(steps.body, (*consts, *carry, *slices))
    for _ in range(len(carry) + 1):  # each round but the last marks a carry, or moves an axis
        wider = tuple([d if f is None else f for d, f in zip(carry, out_dims, strict=False)])
        if wider == carry:
            break
        carry = wider
        _, out_dims = ctx.recur(steps.body, (*consts, *carry, *slices))
    return carry, out_dims[steps.n_carry :]


# ---------------------------------------------------------------------------------------------------------- lowering


def index_aval(length: int) -> Aval:
    """Return the type of a loop index: 32 bits if the length fits."""
    return Aval((), index_dtype((length,)))


class ScanForm(NamedTuple):
    """The parameters of a scan but for its body: what is computed from both is memoised with the body, and must not
    refer to it."""

    length: int
    reverse: bool
    unroll: int
    n_consts: int
    n_carry: int
    upto: bool

    def steps(self, body: Jaxpr) -> Steps:
        """Return a body with its operands in three groups."""
        return Steps(body, self.n_consts, self.n_carry)

    def slot(self, step: int) -> int:
        """Return the slice that a step reads and writes."""
        return self.length - 1 - step if self.reverse else step


@by_value
def scan_condition(body: Jaxpr, form: ScanForm) -> Jaxpr:
    """Return (index, carry, written arrays) -> whether the loop continues. With `upto` a bound is the first operand."""
    b, length = Builder(), form.length
    index = index_aval(length)
    bound = b.input(index) if form.upto else Lit.of(length - length % form.unroll, index)
    i = b.input(index)
    b.inputs(_state_types(form.steps(body), length))
    return b.build((b.one(LT, i, bound),), f"more_{body.name}")


@by_value
def scan_iteration(body: Jaxpr, form: ScanForm) -> Jaxpr:
    """Return (constants, read arrays, index, carry, written arrays) -> (index, carry, arrays): one iteration of
    `unroll` steps. With `upto` a bound is the first operand."""
    b, length = Builder(), form.length
    steps, index = form.steps(body), index_aval(length)
    bound = b.input(index) if form.upto else None
    consts, _, slices = steps.split(body.in_avals)
    const_values = b.inputs(consts)
    xs = b.inputs(_stacked_types(slices, length))
    i = b.input(index)
    state: tuple[Atom, ...] = b.inputs(_state_types(steps, length))
    last = b.one(SUB, bound, Lit.of(1, index)) if bound and form.reverse else Lit.of(length - 1, index)
    for k in range(form.unroll):
        step = b.one(ADD, i, Lit.of(k, index)) if k else i
        slot = b.one(SUB, last, step) if form.reverse else step
        state = _emit_step(b, steps, const_values, xs, state, slot)
    return b.build((b.one(ADD, i, Lit.of(form.unroll, index)), *state), f"step_{body.name}")


@by_value
def unrolled_steps(body: Jaxpr, form: ScanForm, first: int) -> Jaxpr:
    """Return (constants, read arrays, carry, written arrays) -> (carry, arrays): the steps from `first` on, without a
    loop. If it covers all steps, it does not write in place: it concatenates the rows at the end."""
    b, length, n_carry = Builder(), form.length, form.n_carry
    steps = form.steps(body)
    consts, _, slices = steps.split(body.in_avals)
    const_values = b.inputs(consts)
    xs = b.inputs(_stacked_types(slices, length))
    if first:
        state: tuple[Atom, ...] = b.inputs(_state_types(steps, length))
        for i in range(first, length):
            state = _emit_step(b, steps, const_values, xs, state, Lit.of(form.slot(i), index_aval(length)))
        return b.build(state, f"rest_{body.name}")
    carry: tuple[Atom, ...] = b.inputs(body.out_avals[:n_carry])
    rows: list[tuple[Atom, ...]] = []
    for i in range(length):
        outs = b(Call(body), *const_values, *carry, *[_static_row(b, x, form.slot(i)) for x in xs])
        carry = outs[:n_carry]
        rows.append(tuple([emit_reshape(b, y, (1, *y.aval.shape)) for y in outs[n_carry:]]))
    if form.reverse:
        rows.reverse()
    ys = [column[0] if length == 1 else b.one(Concatenate(0), *column) for column in zip(*rows, strict=True)]
    return b.build((*carry, *ys), f"steps_{body.name}")


def _stacked_types(avals: Sequence[Aval], length: int) -> tuple[Aval, ...]:
    return tuple([a.stacked(length) for a in avals])


def _state_types(steps: Steps, length: int) -> tuple[Aval, ...]:
    """Return the types of the loop state without the index."""
    outs = steps.body.out_avals
    return outs[: steps.n_carry] + _stacked_types(outs[steps.n_carry :], length)


def _static_row(emit: Emit, x: Atom, k: int) -> Atom:
    shape = x.aval.shape
    if shape[0] > 1:
        x = emit_slice(emit, x, 0, k, k + 1)
    return emit_reshape(emit, x, shape[1:])


def _emit_step(
    emit: Emit, steps: Steps, consts: Sequence[Atom], xs: Sequence[Atom], state: Sequence[Atom], slot: Atom
) -> Atoms:
    """Run one step: read slot `slot`, apply the body, write the slot. `state` is the carry and the written arrays."""
    carry, ys = state[: steps.n_carry], state[steps.n_carry :]
    outs = emit(Call(steps.body), *consts, *carry, *[read_row(emit, x, slot) for x in xs])
    written = [write_row(emit, y, slot, new) for y, new in zip(ys, outs[steps.n_carry :], strict=True)]
    return *outs[: steps.n_carry], *written
