"""`linear_call`: a linear map, usually with a given adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from fxad.core.builder import Builder, rebind_operands
from fxad.core.dce import read_operands, remove_dead_eqns
from fxad.core.flags import flags_or, select_by_flags
from fxad.core.layout import Body, Constant, Group, Layout, Value
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError, ParameterError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Flags,
    HigherOrder,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    Lit,
    Operands,
    Tangents,
    TransposeCtx,
    Zero,
    all_prims,
    instantiated,
    known_operands,
    primitive,
)
from fxad.primitives.control.call import Applied, Call, check_body_type, check_operands, layout_with_rules
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.linearity import is_zero, with_zero_operands
from fxad.primitives.shape import ReduceSum, emit_expand_dims
from fxad.primitives.slicing import pad_along_axis, slice_along_axis


@final
@primitive
class LinearCall(Applied, Linear):
    """Apply `body`, which is linear in its first `n_linear` operands. `adjoint` is its transpose in these operands.

    Type:   (linear operands, other operands) -> results of `body`. `adjoint`: (cotangents of the results, other
            operands) -> cotangents of the linear operands; None for the tangents of a loop without a bound, which
            has no transpose. Messages then name the loop.
    Rule:   the transpose exchanges `body` and `adjoint`. The derivative in the other operands is that of `body`.
            Effects happen for primal values, and not again for tangents.
    """

    name: ClassVar[str] = "linear_call"
    body: Jaxpr
    adjoint: Jaxpr | None
    n_linear: int

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,) if self.adjoint is None else (self.body, self.adjoint)

    @property
    def linear_bodies(self) -> tuple[int, ...]:
        """For each body, the number of its first operands in which it is linear."""
        return (self.n_linear, len(self.body.outs))[: len(self.bodies)]

    @property
    def layout(self) -> Layout:
        if self.adjoint is not None:
            return layout_with_rules(self.bodies, 0, linear=self.linear_bodies)
        other_operands = Group(Constant(), len(self.body.ins) - self.n_linear)
        results = Group(Value(), len(self.body.outs))
        body = Body(self.body, (0, 1), (0,), linear=self.n_linear)
        linear = Group(Constant(), self.n_linear, fixed=True)
        return Layout((linear, other_operands), (results,), (body,), label=self._loop_without_bound)

    @property
    def _loop_without_bound(self) -> str:
        """The name of the loop in `body` because of which there is no adjoint; empty without such a loop."""
        higher_order = [p for p in all_prims(self.body) if isinstance(p, HigherOrder)]
        return next((p.name for p in higher_order if p.layout.unbounded), "")

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> LinearCall:
        body, *adjoint = bodies
        return LinearCall(body, adjoint[0] if adjoint else None, self.n_linear)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        n, outs = self.n_linear, self.body.out_avals
        if not 0 < n <= len(self.body.ins):
            raise ParameterError(
                f"{self.name}: n_linear is {n}, {self.body.name} has {len(self.body.ins)} operands",
                remedy="at least one operand is linear, and linear ones come first",
            )
        linear_types, other_types = self.body.in_avals[:n], self.body.in_avals[n:]
        if self.adjoint is not None:
            check_body_type(self.name, "adjoint", self.adjoint, (*outs, *other_types), linear_types)
        for what, avals_of_role in (("linear operand", linear_types), ("result", outs)):
            for k, aval in enumerate(avals_of_role):
                if not aval.inexact:
                    raise ParameterError(
                        f"{self.name}: {what} {k} of {self.body.name} is {aval}, which has no tangent",
                        remedy="linear operands and results are floating or complex",
                    )
        check_operands(self.name, self.body, avals)
        return outs

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        linear_dims, other_dims = dims[: self.n_linear], dims[self.n_linear :]
        body, out_dims = ctx.recur(self.body, dims)
        adjoint = None if self.adjoint is None else batch_adjoint(ctx, self.adjoint, out_dims, other_dims, linear_dims)
        return ctx(LinearCall(body, adjoint, self.n_linear), *args), out_dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        n, pure_body = self.n_linear, without_checks(without_effects(self.body))
        outs, other_primals = ctx(self, *primals), primals[n:]
        out_tangents = ctx.lin(LinearCall(pure_body, self.adjoint, n), *tangents[:n], *other_primals)
        if any([isinstance(t, Lin) for t in tangents[n:]]):
            no_tangents = tuple([Zero(a) for a in self.body.in_avals[:n]])
            _, other_tangents = Call(pure_body).jvp(ctx, primals, (*no_tangents, *tangents[n:]))
            out_tangents = tuple([ctx.add(a, b) for a, b in zip(out_tangents, other_tangents, strict=True)])
        return outs, out_tangents

    def linear_in(self, flags: Flags) -> bool:
        return all(flags[: self.n_linear]) and not any(flags[self.n_linear :])

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        if self.adjoint is None:
            if not (loop := self._loop_without_bound):
                raise NotDifferentiableError(
                    f"{self.name}: {self.body.name} is given without an adjoint",
                    remedy="give its transpose as the adjoint; lax.linear_call derives it",
                )
            raise NotDifferentiableError(
                f"{loop}: reverse mode goes backward through the steps, and the number of steps has no bound that is "
                "known before the loop runs",
                remedy="give while_loop max_steps, or fori_loop bounds that are Python ints, or use scan "
                "or forward mode (jvp, jacfwd, linearize)",
            )
        other_operands = known_operands(args)
        bars = ctx(LinearCall(self.adjoint, self.body, len(cts)), *instantiated(cts), *other_operands)
        return (*bars, *[None] * len(other_operands))


@by_value
def has_adjoint(jaxpr: Jaxpr) -> bool:
    """Return True if no `linear_call` in the program, or in one of its bodies, lacks an adjoint."""
    return not any([isinstance(p, LinearCall) and p.adjoint is None for p in all_prims(jaxpr)])


# ------------------------------------------------------------------------------------- programs of linear maps

# Programs (tangents or cotangents, residuals) -> tangents or cotangents, in derivative rules.


def drop_unused_residuals(maps: Sequence[Jaxpr], counts: Sequence[int]) -> tuple[list[Jaxpr], Flags]:
    """Return linear maps over the same residuals without the residuals that no map reads, and flags for the remaining
    residuals. `counts` are the numbers of linear operands of the maps."""
    reads_of_maps = [read_operands(m)[n:] for m, n in zip(maps, counts, strict=True)]
    is_read = flags_or(*reads_of_maps)
    operands_of_maps = [select_by_flags(range(n + len(is_read)), ((True,) * n + is_read)) for n in counts]
    return [rebind_operands(m, operands) for m, operands in zip(maps, operands_of_maps, strict=True)], is_read


def batch_adjoint(ctx: BatchCtx, adjoint: Jaxpr, ct_dims: Dims, other_dims: Dims, linear_dims: Dims) -> Jaxpr:
    """Return a batched map from cotangents (its first operands) to cotangents. The cotangent of an operand that is not
    batched is summed over the examples. The contribution of a result that is not batched is counted once.

    For x and y -> (x * y, sin(y)), `adjoint` is (a, b, x, y) -> (a * y, a * x + b * cos(y)). If x is batched and y is
    not, then a is batched and b is not, and the cotangent of y is sum(a * x) + b * cos(y). So the map is applied to a
    alone, and summed, and to b alone, and not summed. A map of the user may read x for b too, as b * cos(y) + 0 * x * b
    does. Then its rows are equal all the same, as sin(y) does not depend on x, and the first row is taken.

    A map that exchanges values of the examples gets the cotangent of such a result for the first example, and zeros for
    the others. The same cotangent of all examples, such as a sum over them, is then counted for each."""
    exchanges = bool(ct_dims) and any([name == ctx.axis for name, _ in adjoint.free_axes])
    if exchanges and None in ct_dims:
        return _batch_adjoint_of_stacks(ctx, adjoint, ct_dims, other_dims, linear_dims)
    own_dims = ctx.recur(adjoint, (*ct_dims, *other_dims))[1]
    # the cotangents that differ between the examples, of operands that do not: they are at axis 0 until they are summed
    summed = [
        k
        for k, (d, wanted) in enumerate(zip(own_dims, linear_dims, strict=True))
        if wanted is None and (exchanges or d is not None)
    ]
    out_dims = tuple([0 if k in summed else wanted for k, wanted in enumerate(linear_dims)])
    jaxpr, _ = ctx.recur(adjoint, (*ct_dims, *other_dims), out_dims)
    if not summed:
        return jaxpr
    b = Builder()
    ins = b.inputs(jaxpr.in_avals)
    outs = list(b.inline(jaxpr, ins))
    batched = tuple([d is not None for d in ct_dims])
    if all(batched):
        for k in summed:
            outs[k] = _sum_stack(b, outs[k], 0)
        return remove_dead_eqns(b.build(outs, jaxpr.name))
    # some cotangents are those of all examples: a * x + b * cos(y) is applied to a alone, and to b alone
    batched_cts, shared_cts = [
        _batch_some_cotangents(ctx, b, adjoint, flags, ct_dims, other_dims, ins)
        for flags in (batched, tuple([not m for m in batched]))
    ]
    for k in summed:
        outs[k] = _sum_of_two(b, _sum_stack(b, *batched_cts[k]), _counted_once(b, *shared_cts[k]))
    return remove_dead_eqns(b.build(outs, jaxpr.name))


def _counted_once(b: Builder, ct: Atom, dim: int | None) -> Atom:
    """Return a cotangent whose rows, one for each example, are equal. Of no examples it is 0."""
    if dim is None:
        return ct
    n_rows = min(1, ct.aval.shape[0])
    return _sum_stack(b, b.one(slice_along_axis(ct.aval.shape, 0, 0, n_rows), ct), 0)


def _batch_adjoint_of_stacks(
    ctx: BatchCtx, adjoint: Jaxpr, ct_dims: Dims, other_dims: Dims, linear_dims: Dims
) -> Jaxpr:
    """Return the batched map in which each cotangent that is not batched is that of the first example."""
    of_stacks = batch_adjoint(ctx, adjoint, tuple([0 if d is None else d for d in ct_dims]), other_dims, linear_dims)
    b = Builder()
    dims = (*ct_dims, *[0] * len(other_dims))
    operands = [
        b.input(own if d is None else a) for d, own, a in zip(dims, adjoint.in_avals, of_stacks.in_avals, strict=True)
    ]
    stacked = [_stack_with_zeros(b, x, ctx.size) if d is None else x for d, x in zip(dims, operands, strict=True)]
    return b.build(b.inline(of_stacks, stacked), of_stacks.name)


def _stack_with_zeros(b: Builder, x: Atom, size: int) -> Atom:
    """Return a stack along axis 0 of `size` values: the first is `x`, the others are zeros. Equal shares `x / size`
    have the same sum, but in float16 and float8 they are rounded to few bits or to zero."""
    pad = pad_along_axis(x.aval.ndim + 1, 0, high=size - 1)
    return b.one(pad, emit_expand_dims(b, x, (0,)), Lit.zero(x.aval.with_shape(())))


def _batch_some_cotangents(
    ctx: BatchCtx, b: Builder, adjoint: Jaxpr, nonzero: Flags, ct_dims: Dims, other_dims: Dims, ins: Sequence[Atom]
) -> list[tuple[Atom, int | None]]:
    """Return the results of a batched map of cotangents, applied to the cotangents marked in `nonzero` alone, and the
    batch axes of these results."""
    n = len(nonzero)
    alone, _ = with_zero_operands(adjoint, nonzero)
    dims = (*select_by_flags(ct_dims, nonzero), *other_dims)
    out_dims = tuple([None if d is None else 0 for d in ctx.recur(alone, dims)[1]])
    batched, _ = ctx.recur(alone, dims, out_dims)
    return list(zip(b.inline(batched, (*select_by_flags(ins[:n], nonzero), *ins[n:])), out_dims, strict=True))


def _sum_of_two(b: Builder, x: Atom, y: Atom) -> Atom:
    """Return x + y; no equation if one of them is the literal zero."""
    if is_zero(x):
        return y
    return x if is_zero(y) else b.one(ADD, x, y)


def _sum_stack(b: Builder, a: Atom, dim: int | None) -> Atom:
    """Return the sum of a stack along its first axis. If `dim` is None, `a` is zero and is returned unchanged."""
    if dim is None:
        return a
    return Lit.zero(a.aval.with_shape(a.aval.shape[1:])) if is_zero(a) else b.one(ReduceSum((0,)), a)
