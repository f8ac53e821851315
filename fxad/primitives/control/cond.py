"""`cond`: applies one of several bodies, chosen by an index at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.flags import flags_or, select_by_flags
from fxad.core.interpreter import run
from fxad.core.layout import Body, BranchIndex, Constant, Group, Layout, OneOf, Value
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, ParameterError, ShapeError, mismatch
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
    Flags,
    HigherOrder,
    Hlo,
    HloValues,
    Hole,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizedBody,
    Lit,
    NDArray,
    Operands,
    Region,
    Tangents,
    TransposeCtx,
    Var,
    primitive,
)
from fxad.primitives.check import has_check
from fxad.primitives.collectives import check_uniform
from fxad.primitives.control.bodies import (
    assign_slots,
    batch_alike,
    fuse_alike,
    insert_zeros,
    instantiate_linear_outs,
    is_zero_in_all,
    shared_slots,
    split_fused_results,
    with_slot_results,
)
from fxad.primitives.control.call import Call, adjoint_of
from fxad.primitives.control.effects import guard_checks
from fxad.primitives.control.idle_examples import must_not_run, replace_idle_operands, replaces_idle_operands
from fxad.primitives.control.scan import scan_over_examples
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import CLAMP, SELECT_N, emit_where
from fxad.primitives.linearity import is_linear
from fxad.primitives.operand_checks import MATCH_BODIES, TRACE_AGAIN
from fxad.primitives.reduce import ReduceOr
from fxad.primitives.shape import broadcast_to_axis, emit_broadcast

# The form that `vmap` gives the equation if the index varies: see `Cond`.
Batching: TypeAlias = Literal["select", "loop", "apart"]
SELECT: Final = "select"
LOOP: Final = "loop"
APART: Final = "apart"
_WORDS: Final[tuple[str, ...]] = (SELECT, LOOP, APART)

_PLACEHOLDER: Final = 0.5  # a number at which most functions are finite


@final
@primitive
class Cond(HigherOrder, Linear):
    """Apply the branch at the index to the other operands. An index out of range is clamped.

    Type: (index i32[], operands of every branch) -> results of every branch.
    Rule: linear where every branch is. The equation runs one branch. After linearization the branches share slots for
          their residuals: for each type, storage is the maximum over the branches, not the sum. `batched` says what
          `vmap` makes of the equation if the index varies. A result that all branches take from one operand is that
          operand, in any case.
          "loop": a loop over the examples runs one branch for each.
          "select": every branch runs for all examples, and results are selected. An example that does not choose a
                    branch has no derivative there, so that no nan reaches its operands: see `replace_idle_operands`. A
                    branch that may not end, or has a slope in a shared matrix, runs only if an example chooses
                    it.
          "apart": as "select", but every inexact operand, shared ones too, is 0.5 in examples that do not choose the
                    branch. It is for branches that compute operands from results, which the other examples may not
                    have. The equation is linear where its branches are; what `vmap` makes of it is not, as 0.5 is not
                    0. So derivatives of it are "select" ones.
    Source: stablehlo.case
    """

    name: ClassVar[str] = "cond"
    branches: tuple[Jaxpr, ...]
    batched: Batching = SELECT

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return self.branches

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Cond:
        return Cond(bodies, self.batched)

    # here and not in inversion: how a branch is batched is decided by this class alone
    def with_inverted_branches(self, branches: tuple[Jaxpr, ...]) -> Cond:
        """Return the equation with inverted branches. In examples that do not choose a branch, its operand may have no
        preimage, so `vmap` puts a placeholder there."""
        return Cond(branches, LOOP if self.batched == LOOP else APART)

    def branch_at(self, index: int) -> Jaxpr:
        """Return the branch at an index, clamped."""
        return self.branches[min(max(index, 0), len(self.branches) - 1)]

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        if not self.branches:
            raise ParameterError("cond: has no branch", remedy="give at least one")
        if self.batched not in _WORDS:
            raise ParameterError(f"cond: batched is {self.batched!r}", remedy=f"use {SELECT!r}, {LOOP!r} or {APART!r}")
        first = self.branches[0]
        for k, branch in enumerate(self.branches):
            _check_same(k, "takes", branch.in_avals, first.in_avals)
            _check_same(k, "returns", branch.out_avals, first.out_avals)
        wants = (INT32_SCALAR, *first.in_avals)
        if avals != wants:
            if len(avals) != len(wants):
                raise ArgumentError(
                    f"cond: takes an index and {len(first.ins)} operands, got {len(avals)} in all", remedy=MATCH_BODIES
                )
            k, have, want = next((k, a, w) for k, (a, w) in enumerate(zip(avals, wants, strict=True)) if a is not w)
            what = f"operand {k - 1} is {have}, its branches take {want}"
            if k == 0:
                what = f"the index must be {want}, got {have}"
            error = mismatch(have, want)
            raise error(f"cond: {what}", remedy=MATCH_BODIES)
        return first.out_avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return run(self.branch_at(int(args[0])), args[1:])

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if len(self.branches) == 1:
            return hlo.call(self.branches[0], args[1:])
        # StableHLO runs the last branch for every index out of range, also below 0
        index = hlo.op("stablehlo.maximum", (args[0], hlo.constant(Lit.of(0, INT32_SCALAR))), (INT32_SCALAR,))
        regions = [Region(branch, tuple(args[1:])) for branch in self.branches]
        return hlo.op("stablehlo.case", index, outs, regions=regions)

    @property
    def layout(self) -> Layout:
        first = self.branches[0]
        operands, results = Group(Constant(), len(first.ins)), Group(Value(), len(first.outs))
        bodies = [Body(branch, (1,), (0,), OneOf(), stores=True) for branch in self.branches]
        return Layout((Group(BranchIndex(), 1), operands), (results,), tuple(bodies))

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (_, *operands), (index_dim, *operand_dims) = args, dims
        if index_dim is None:
            branches, branch_out_dims = batch_alike(ctx, self.branches, tuple(operand_dims))
            return ctx(self.with_bodies(branches), *args), branch_out_dims
        check_uniform(ctx, self)
        shared_results = self._shared_results(operands)
        if not shared_results:
            return self._batch_varying(ctx, args, dims)
        selected_results = [k for k in range(len(self.branches[0].outs)) if k not in shared_results]
        smaller = [body.with_outs([body.outs[k] for k in selected_results]) for body in self.branches]
        prim = self.with_bodies(tuple(smaller))
        other_outs, other_dims = prim._batch_varying(ctx, args, dims) if selected_results or self.effects else ((), ())
        outs: dict[int, Atom] = {k: a for k, (a, _) in shared_results.items()}
        out_dims: dict[int, int | None] = {
            k: None if j is None else operand_dims[j] for k, (_, j) in shared_results.items()
        }
        outs.update(zip(selected_results, other_outs, strict=True))
        out_dims.update(zip(selected_results, other_dims, strict=True))
        return tuple([outs[k] for k in range(len(outs))]), tuple([out_dims[k] for k in range(len(outs))])

    def _shared_results(self, operands: Sequence[Atom]) -> dict[int, tuple[Atom, int | None]]:
        """Return the results that all branches take from one operand, or that are one literal: by the number of the
        result, its value and the number of that operand; None for a literal.

        Result 1 of the branches (x, y) -> (sin(x), y) and (x, y) -> (x, y) gives {1: (y, 1)}.
        """
        shared: dict[int, tuple[Atom, int | None]] = {}
        numbers = [{v: j for j, v in enumerate(body.ins)} for body in self.branches]
        for k, outs in enumerate(zip(*[body.outs for body in self.branches], strict=True)):
            first, j = outs[0], numbers[0].get(outs[0])
            if j is not None and all([places.get(out) == j for places, out in zip(numbers, outs, strict=True)]):
                shared[k] = operands[j], j
            elif isinstance(first, Lit) and all([out is first for out in outs]):
                shared[k] = first, None
        return shared

    def _batch_varying(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (index, *operands), (_, *operand_dims) = args, dims
        if self.batched == LOOP or self.effects:  # effects of a branch that is not chosen must not happen
            return scan_over_examples(ctx, self, args, dims)
        results: list[Sequence[Var]] = []
        for k in range(len(self.branches)):
            result = self._batched_branch(ctx, index, k, operands, tuple(operand_dims))
            if result is None:
                return scan_over_examples(ctx, self, args, dims)
            results.append(result)
        shapes = dict.fromkeys([x.aval.shape for x in results[0]])
        selectors = {shape: emit_broadcast(ctx, index, shape, (0,)) for shape in shapes}
        picked = [ctx.one(SELECT_N, selectors[xs[0].aval.shape], *xs) for xs in zip(*results, strict=True)]
        return tuple(picked), (0,) * len(picked)

    def _batched_branch(
        self, ctx: BatchCtx, index: Atom, k: int, operands: Sequence[Atom], dims: Dims
    ) -> Sequence[Var] | None:
        """Return the results of a branch for all examples, whichever branch they choose. Return None for a branch with
        checks that cannot be limited to the examples that choose it.

            the branch                           operands in other examples     it runs
            none of its operands is replaced     as they are                    always
            of "apart"                           placeholders                   always
            `must_not_run(...)`                  replaced                       if an example chooses it
            any other                            replaced                       always

        The checks of a branch, if it has any, read a mask of the examples that choose it.
        """
        branch, out_dims = self.branches[k], (0,) * len(self.branches[k].outs)
        guard = guard_checks(branch) if has_check(branch) else None
        if guard is None and has_check(branch):
            return None
        is_apart = self.batched == APART
        if guard is None and not is_apart and not replaces_idle_operands(branch, operands, dims):
            return ctx(Call(ctx.recur(branch, dims, out_dims)[0]), *operands)
        active = self._mask_of_branch(ctx, index, k)
        conditional = not is_apart and must_not_run(branch, operands, dims)
        if is_apart:
            operands, dims = self._with_placeholders(ctx, active, operands, dims)
        else:
            operands = replace_idle_operands(
                ctx, branch, operands, dims, active, zero_affine_operands=True, some_active=conditional
            )
        if guard is None:
            body = ctx.recur(branch, dims, out_dims)[0]
        else:
            body, operands = ctx.recur(guard, (0, *dims), out_dims)[0], (active, *operands)
        if not conditional:
            return ctx(Call(body), *operands)
        any_active = ctx.one(ConvertElementType(dtypes.int32), ctx.one(ReduceOr((0,)), active))
        return ctx(Cond((_zeros_like(body), body)), any_active, *operands)

    def _mask_of_branch(self, ctx: BatchCtx, index: Atom, k: int) -> Var:
        """Return a mask of the examples that choose the branch."""
        first, last, this = [Lit.of(n, index.aval) for n in (0, len(self.branches) - 1, k)]
        return ctx.one(EQ, ctx.one(CLAMP, first, index, last), this)

    def _with_placeholders(
        self, ctx: BatchCtx, active: Atom, operands: Sequence[Atom], dims: Dims
    ) -> tuple[Sequence[Atom], Dims]:
        """Return the operands of a branch and their mapped axes. In examples that do not choose the branch, the
        operands are `_PLACEHOLDER`. Operands that all examples share are replaced too: otherwise nan from any example
        would reach their derivative."""
        replaced, new_dims = list(operands), list(dims)
        for j, (a, d) in enumerate(zip(operands, dims, strict=True)):
            if a.aval.inexact and not isinstance(a, Lit):
                stack, axis = (broadcast_to_axis(ctx, a, None, ctx.size, 0), 0) if d is None else (a, d)
                mask = emit_broadcast(ctx, active, stack.aval.shape, (axis,))
                replaced[j], new_dims[j] = emit_where(ctx, mask, stack, Lit.of(_PLACEHOLDER, stack.aval)), axis
        return replaced, tuple(new_dims)

    # ----------------------------------------------------------------------------------------------- differentiation

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        nonzero = tuple([isinstance(t, Lin) for t in tangents[1:]])
        lins = [t for t in tangents if isinstance(t, Lin)]
        avals = self.branches[0].out_avals
        if ctx.separate:
            return self._linearize(ctx, primals, lins, [ctx.recur(branch, nonzero) for branch in self.branches])
        branches, out_nonzero = fuse_alike(ctx, self.branches, nonzero)
        results = ctx(self.with_bodies(tuple(branches)), *primals, *[t.var for t in lins])
        return split_fused_results(results, out_nonzero, avals)

    def _linearize(
        self, ctx: JvpCtx, primals: Atoms, lins: Sequence[Lin], linearized: Sequence[LinearizedBody]
    ) -> tuple[Atoms, Tangents]:
        avals = self.branches[0].out_avals
        out_nonzero = flags_or(*[split.out_nonzero for split in linearized])
        if not any(out_nonzero):
            return ctx(self, *primals), insert_zeros((), out_nonzero, avals)
        n = len(avals)
        shared = _SharedResiduals(linearized, n)
        primal_outs = ctx(self.with_bodies(tuple([shared.primal(split) for split in linearized])), *primals)
        operands, results = [primals[1 + k] for k in shared.operands], [primal_outs[k] for k in shared.results]
        residuals = [*operands, *results, *primal_outs[n:]]
        branches = tuple([shared.linear(split, out_nonzero) for split in linearized])
        linear = Cond(branches, LOOP if self.batched == LOOP else SELECT)  # "apart" would not be linear under `vmap`
        return primal_outs[:n], insert_zeros(ctx.lin(linear, primals[0], *lins, *residuals), out_nonzero, avals)

    def linear_in(self, flags: Flags) -> bool:
        # `batched` does not matter: it decides the equation that `vmap` makes, and that equation is asked in its turn
        return not flags[0] and all([is_linear(branch, flags[1:]) for branch in self.branches])

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        index, *operands = args
        assert not isinstance(index, Hole), "cond is not linear in its index"
        holes = [a.aval for a in operands if isinstance(a, Hole)]
        pairs = [adjoint_of(ctx, branch, cts, tuple(operands)) for branch in self.branches]
        adjoints, adjoint_operands = [adjoint for adjoint, _ in pairs], pairs[0][1]
        nonzero = [not is_zero_in_all(adjoints, k) for k in range(len(holes))]
        prim = self.with_bodies(tuple([j.with_outs(select_by_flags(j.outs, nonzero)) for j in adjoints]))
        bars = insert_zeros(ctx(prim, index, *adjoint_operands) if any(nonzero) else (), nonzero, holes)
        remaining = iter(bars)
        return (None, *[next(remaining) if isinstance(a, Hole) else None for a in operands])


@by_value
def _zeros_like(body: Jaxpr) -> Jaxpr:
    """Return a program of the same type that returns zeros."""
    b = Builder()
    b.inputs(body.in_avals)
    return b.build([Lit.of(0, a) for a in body.out_avals], "zeros")


def _check_same(k: int, verb: str, have: tuple[Aval, ...], want: tuple[Aval, ...]) -> None:
    if have != want:
        takes, first = ", ".join(map(str, have)), ", ".join(map(str, want))
        raise ShapeError(f"cond: branch {k} {verb} ({takes}), branch 0 {verb} ({first})", remedy=TRACE_AGAIN)


class _BranchResiduals(NamedTuple):
    """The residuals of a branch: operands and results of the branch with their places, and `own`, all others."""

    operands: dict[Var, int]
    results: dict[Var, int]
    own: tuple[Var, ...]


def _residuals_of(split: LinearizedBody, n_out: int) -> _BranchResiduals:
    body = split.primal
    residuals = [a for a in dict.fromkeys(body.outs[n_out:]) if isinstance(a, Var)]
    places_in = {v: k for k, v in enumerate(body.ins)}
    places_out = {a: k for k, a in enumerate(body.outs[:n_out])}
    operands = {v: places_in[v] for v in residuals if v in places_in}
    results = {v: places_out[v] for v in residuals if v in places_out and v not in operands}
    return _BranchResiduals(operands, results, tuple([v for v in residuals if v not in operands and v not in results]))


@final
class _SharedResiduals:
    """The places from which the linear halves of branches read their residuals.

    A residual that is an operand or a result of its branch is read from there: `operands` and `results` are their
    places. The others use `slots`: for each type, the maximum number that a branch needs.
    """

    def __init__(self, linearized: Sequence[LinearizedBody], n_out: int) -> None:
        self.n_out = n_out
        by_branch = [_residuals_of(split, n_out) for split in linearized]
        self.operands = sorted({k for residuals in by_branch for k in residuals.operands.values()})
        self.results = sorted({k for residuals in by_branch for k in residuals.results.values()})
        self.slots = shared_slots([[v.aval for v in residuals.own] for residuals in by_branch])

    def primal(self, split: LinearizedBody) -> Jaxpr:
        """Return the program operands -> results, then slots."""
        in_slots = assign_slots(_residuals_of(split, self.n_out).own, self.slots)
        return with_slot_results(split.primal, self.n_out, in_slots, self.slots)

    def linear(self, split: LinearizedBody, out_nonzero: Flags) -> Jaxpr:
        """Return the program (tangents, then the operands, results and slots that hold residuals) -> tangents of the
        results marked in `out_nonzero`."""
        body, residuals = split.primal, _residuals_of(split, self.n_out)
        linear = instantiate_linear_outs(split, out_nonzero)
        b = Builder()
        tangents = b.inputs(linear.in_avals[: split.n_tangents])
        operands = {k: b.input(body.ins[k].aval) for k in self.operands}
        results = {k: b.input(body.outs[k].aval) for k in self.results}
        slots = dict(zip(assign_slots(residuals.own, self.slots), b.inputs(self.slots), strict=True))
        values: dict[Atom, Var] = {v: operands[k] for v, k in residuals.operands.items()}
        values.update({v: results[k] for v, k in residuals.results.items()})
        values.update({v: slots[v] for v in residuals.own})
        return b.build(b.inline(linear, (*tangents, *[values[a] for a in body.outs[self.n_out :]])), linear.name)
