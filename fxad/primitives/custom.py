"""`call_with_rules`: a function with custom rules, applied.

`custom_rules` has the records of the rules, and `named_calls` the calls in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final, TypeAlias, TypeGuard, final

from fxad.core.builder import Builder, single_equation
from fxad.core.dce import dce, remove_dead_eqns
from fxad.core.flags import flags_or, select_by_flags
from fxad.core.layout import Layout
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, NotDifferentiableError
from fxad.ir import (
    Atoms,
    Aval,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Eqn,
    Flags,
    FreeAxes,
    HigherOrder,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    LinearizedBody,
    Operands,
    Primitive,
    Prune,
    Tangents,
    TransposeCtx,
    Zero,
    jaxprs_in_params,
    once_from_bodies,
    primitive,
    subjaxprs,
)
from fxad.primitives.control.bodies import (
    fuse_alike,
    insert_zeros,
    instantiate_linear_outs,
    reorder_operands,
    split_fused_results,
)
from fxad.primitives.control.call import Call, adjoint_of, check_operands, cotangents_of_operands, layout_with_rules
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.custom_rules import VMAP, Function, Refusal, Rules, with_programs
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.linearity import is_linear
from fxad.primitives.named_calls import (
    BatchChange,
    NamedCall,
    WithModule,
    axes_of,
    functions_called_by,
    reachable,
    renumbered,
    replace_named_calls,
    with_numbers_by,
    with_reads_and_axes,
)
from fxad.primitives.shape import broadcast_to_axis, emit_reshape
from fxad.primitives.slicing import emit_slice

# `vmap` of a program: `batch(program, size, in_dims, out_dims, axis)`. It is an argument because primitives do not
# import transformations. It is a function of a module, so that what is memoised with it is found again.
Batch: TypeAlias = Callable[[Jaxpr, int, Dims, Dims, str | None], Jaxpr]


def module_call(functions: Mapping[int, Function], entry: int, batch: Batch) -> CallWithRules:
    """Return the call of function number `entry`. Named calls refer to `functions` by their keys."""
    module = renumbered(functions, reachable([entry], functions))
    return _call_of(with_reads_and_axes(module), 0, batch)


def _call_of(module: tuple[Function, ...], k: int, batch: Batch) -> CallWithRules:
    """Return the call of function k of a module, for use outside of the module."""
    function = module[k]
    body = _complete(function.body, module, batch)
    return in_module(Function(body, function.captured, function.rules), module)


def in_module(function: Function, module: tuple[Function, ...]) -> CallWithRules:
    """Return the call of a function whose rules refer to a module, of which only the functions remain that they lead
    to."""
    if not module:
        return CallWithRules(function)
    functions = dict(enumerate(module))
    order = reachable(functions_called_by(function), functions)
    return CallWithRules(with_numbers_by(function, order), renumbered(functions, order))


@by_value
def _complete(jaxpr: Jaxpr, module: tuple[Function, ...], batch: Batch) -> Jaxpr:
    """Return the program with its named calls replaced by calls of the functions, changed as the named calls were."""

    def by(call: NamedCall) -> Jaxpr:
        function_call = _call_of(module, call.function, batch)
        program = single_equation(function_call, function_call.body.in_avals, function_call.body.name)
        for change in call.changes:
            program = _apply_change(program, change, batch)
        return program

    completed = replace_named_calls(jaxpr, by) if module else jaxpr
    return completed if completed is jaxpr else dce(completed)  # calls lose the results that a named call keeps


def _apply_change(program: Jaxpr, change: BatchChange, batch: Batch) -> Jaxpr:
    """Return the program over a stack. A result that must not be mapped is taken from the first example, because a
    batch rule may stack results that are the same for all examples."""
    stacked = batch(program, change.size, change.in_dims, (0,) * len(change.out_dims), change.axis)
    if None not in change.out_dims:
        return stacked
    b = Builder()
    outs = b.inline(stacked, b.inputs(stacked.in_avals))
    alike = [
        emit_reshape(b, emit_slice(b, x, 0, 0, 1), x.aval.shape[1:]) if d is None else x
        for x, d in zip(outs, change.out_dims, strict=True)
    ]
    return b.build(alike, stacked.name)


@final
@primitive
class CallWithRules(WithModule, Linear):
    """`function` applied to the operands, with its rules for the transformations for which it has rules.

    Type: (operands of its body) -> (results of its body).
    Rule: derivatives and batching are those of the rules, if there are such, else those of the body.
          Captured operands have no derivative by rules: a tangent of one is refused. With batch rules alone, the
          derivative has batch rules, which are the derivatives of those, and the equation is linear if all these
          programs are. `module` are the functions that named calls in the rules refer to. Rules of transformations that
          this package does not know are batched and pruned with the function. Batched, all operands that such a rule
          computes are batched.
    """

    name: ClassVar[str] = "call_with_rules"
    function: Function
    module: tuple[Function, ...] = ()

    @property
    def applied(self) -> Jaxpr:
        return self.body

    @property
    def body(self) -> Jaxpr:
        """The program of the function."""
        return self.function.body

    @property
    def rules(self) -> Rules:
        """The rules of the function."""
        return self.function.rules

    @property
    def captured(self) -> int:
        """The number of captured operands."""
        return self.function.captured

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return jaxprs_in_params(self)

    @property
    def free_axes(self) -> FreeAxes:
        return frozenset(axes_of(self.function))  # named calls know those of the module

    @property
    def layout(self) -> Layout:
        programs = [program for function in (self.function, *self.module) for program in function.programs]
        stores, linear = [p.stores for p in programs], [p.linear for p in programs]
        return layout_with_rules([p.jaxpr for p in programs], 0, stores=stores, linear=linear, label="call")

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> CallWithRules:
        remaining = iter(bodies)
        function = with_programs(self.function, remaining)
        return CallWithRules(function, tuple([with_programs(f, remaining) for f in self.module]))

    def without_results(self, eqn: Eqn, used: Flags, prune: Prune) -> Eqn:
        function, is_needed = self.function.pruned(used)
        if function == self.function:
            return eqn
        prim = in_module(function, self.module)
        return Eqn(prim, select_by_flags(eqn.ins, is_needed), select_by_flags(eqn.outs, used), eqn.source)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        for function in (self.function, *self.module):
            function.check(self.name)
        check_operands(self.name, self.body, avals)
        return self.body.out_avals

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        n, computed = self.captured, self.rules.computed
        # a device runs the function, and not the rule
        rule = self._batch_rule(ctx) if dims[:n] == (None,) * n and not ctx.devices else None
        # operands that must be stacked along axis 0: those of a batch rule, and those that a further rule computes,
        # because the value that it computes has the mapped axis also where the given operand has none
        stacked = [(rule is not None and k >= n) or (d is None and k in computed) for k, d in enumerate(dims)]
        operands = zip(args, dims, stacked, strict=True)
        args = tuple([broadcast_to_axis(ctx, a, d, ctx.size, 0) if s else a for a, d, s in operands])
        dims = tuple([0 if s else d for d, s in zip(dims, stacked, strict=True)])
        body = None if rule is None else self.complete(rule, ctx.batched)
        function, out_dims = self.function.batched(ctx, dims, body)
        return ctx(in_module(function, self.module), *args), out_dims

    def _batch_rule(self, ctx: BatchCtx) -> Jaxpr | None:
        """Return the rule for the size of the mapped axis: the one that is for it alone, or the one that is for any
        size, of which there is at most one. None: the function is batched.

        Raises: ArgumentError if the rule for any size raised an error while it was traced.
        """
        by_size = {rule.size: rule.body for rule in self.rules.batch if not rule.any_size}
        if ctx.size in by_size:
            return by_size[ctx.size]
        general = next((rule for rule in self.rules.batch if rule.any_size), None)
        if general is not None:
            return ctx.rule_of_size(general.body, general.size)
        if failed := self.rules.rule_for(VMAP):
            raise ArgumentError(f"{self.name}: a stack of {ctx.size}: {failed.error}", remedy=failed.remedy)
        return None

    def complete(self, rule: Jaxpr, batch: Batch) -> Jaxpr:
        """Return a program of a rule, for use outside of this equation: named calls in it are calls of the
        functions."""
        return _complete(rule, self.module, batch)

    # ----------------------------------------------------------------------------------------------- differentiation

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        nonzero = [isinstance(t, Lin) for t in tangents]
        moves_captured = any(nonzero[: self.captured])
        if not self.rules.has_derivative:
            if self.rules.concern_stacks and not moves_captured:
                return self._jvp_over_stacks(ctx, primals, tangents)
            return Call(self.body).jvp(ctx, primals, tangents)
        if self.rules.of_body and moves_captured:
            return Call(self.body).jvp(ctx, primals, tangents)
        self._check_captured(tangents)
        if self.rules.derivative_of is not None:
            return Call(self.complete(self.rules.derivative_of, ctx.batched)).jvp(ctx, primals, tangents)
        rule = self.rules.derivative(nonzero, ctx.separate)
        if isinstance(rule, Refusal):
            raise NotDifferentiableError(f"{self.name}: {rule.message}", remedy=rule.remedy)
        avals = self.body.out_avals
        outs_and_tangents = rule.jvp(ctx, primals, tangents, avals, lambda jaxpr: self.complete(jaxpr, ctx.batched))
        return outs_and_tangents or (ctx(self, *primals), tuple([Zero(a) for a in avals]))

    def _check_captured(self, tangents: Tangents) -> None:
        """Raise NotDifferentiableError for a tangent of a captured value."""
        for k, t in enumerate(tangents[: self.captured]):
            if isinstance(t, Lin):
                raise NotDifferentiableError(
                    f"{self.name}: {self.body.name} or its rule closes over a value of type {t.aval} (operand {k}) "
                    "that depends on what is differentiated; its rules say nothing about it",
                    remedy="pass the value as an argument, or close over stop_gradient of it",
                )

    def _jvp_over_stacks(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        """Return the derivative of a function with batch rules alone: it has batch rules, which are the derivatives of
        those.

        Rule: a function that is linear in the operands with tangents is its own derivative. In reverse mode the linear
              map of another one has the operands as residuals. The values of a batch rule have no parts
              that belong to one example, so there is nothing else to be stored for an example.
        """
        nonzero = tuple([isinstance(t, Lin) for t in tangents])
        if self.linear_in(nonzero):
            operands = [t if isinstance(t, Lin) else x for x, t in zip(primals, tangents, strict=True)]
            return ctx(self, *primals), ctx.lin(self, *operands)
        n, lins = self.captured, [t for t in tangents if isinstance(t, Lin)]
        programs = [self.body, *[self._differentiable(rule.body, ctx.batched) for rule in self.rules.batch]]
        if not ctx.separate:
            fused, out_nonzero = fuse_alike(ctx, programs, nonzero)
            results = ctx(self._over_stacks(fused), *primals, *[t.var for t in lins])
            return split_fused_results(results, out_nonzero, self.body.out_avals)
        halves = [ctx.recur(without_checks(without_effects(j)), nonzero) for j in programs]
        out_nonzero = flags_or(*[half.out_nonzero for half in halves])
        linear = self._over_stacks([_map_of_operands(half, n, out_nonzero) for half in halves])
        outs = ctx(self, *primals)
        out_tangents = ctx.lin(linear, *primals[:n], *lins, *primals[n:]) if any(out_nonzero) else ()
        return outs, insert_zeros(out_tangents, out_nonzero, self.body.out_avals)

    def _differentiable(self, rule: Jaxpr, batch: Batch) -> Jaxpr:
        """Return a batch rule, to be differentiated. Named calls of functions without derivative rules become the plain
        functions, because otherwise the derivative of this rule would contain itself."""

        def by(call: NamedCall) -> Jaxpr | Primitive:
            if not self.module[call.function].rules.has_derivative:
                return Call(call.body)
            return self.complete(single_equation(call, call.body.in_avals, call.body.name), batch)

        return replace_named_calls(rule, by) if self.module else rule

    def _over_stacks(self, programs: Sequence[Jaxpr]) -> CallWithRules:
        """Return another function with batch rules of the same sizes: its body, then the bodies of the rules."""
        batch = [replace(r, body=body) for r, body in zip(self.rules.batch, programs[1:], strict=True)]
        rules = replace(self.rules.of_stacks, batch=tuple(batch))
        return CallWithRules(Function(programs[0], self.captured, rules))

    def linear_in(self, flags: Flags) -> bool:
        rules = self.rules
        if not rules.concern_stacks or any(flags[: self.captured]) or rules != rules.of_stacks:
            return False
        return all([is_linear(j, flags) for j in self._linear_programs])

    @property
    def _linear_programs(self) -> tuple[Jaxpr, ...]:
        """The programs of a function with batch rules alone, which is linear if all of them are: its body, and the
        bodies of the rules."""
        return self.body, *[rule.body for rule in self.rules.batch]

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        pairs = [adjoint_of(ctx, j, cts, args) for j in self._linear_programs]
        adjoints, operands = [j for j, _ in pairs], pairs[0][1]  # cotangents, captured operands, other operands
        n, n_cts = self.captured, sum([not isinstance(ct, Zero) for ct in cts])
        order = (*range(n_cts, n_cts + n), *range(n_cts), *range(n_cts + n, len(operands)))  # captured ones first
        adjoint = self._over_stacks([reorder_operands(j, order) for j in adjoints])
        return cotangents_of_operands(adjoints, ctx(adjoint, *[operands[p] for p in order]), args)


def _map_of_operands(half: LinearizedBody, captured: int, out_nonzero: Sequence[bool]) -> Jaxpr:
    """Return a linear half as a program of captured operands, tangents, and the other operands, which are its
    residuals."""
    b = Builder()
    primal, n_dots = half.primal, half.n_tangents
    first = b.inputs(primal.in_avals[:captured])
    dots = b.inputs(half.linear.in_avals[:n_dots])
    values = b.inline(primal, (*first, *b.inputs(primal.in_avals[captured:])))
    outs = b.inline(instantiate_linear_outs(half, out_nonzero), (*dots, *values[len(values) - half.n_res :]))
    return remove_dead_eqns(b.build(outs, half.linear.name))


def rules_of(prim: Primitive) -> Rules:
    """Return the rules of a function with rules; none for other primitives."""
    return prim.rules if isinstance(prim, CallWithRules) else _NO_RULES


# The three functions on reversible equations stand here and not in inversion: the pipeline asks them of each program
# that is differentiated, and imports the pass that merges such equations only if there are any. No rule of a core
# transformation reads them.


def reversible(prim: Primitive) -> bool:
    """Return True if a rule of the equation computes operands and their cotangents from the results: reverse mode then
    stores results, and no operands."""
    return rules_of(prim).gives_cotangents


@by_value
def has_reversible(jaxpr: Jaxpr) -> bool:
    """Return True if a program, or one of its bodies, contains reversible equations."""
    return any([reversible(p) or (isinstance(p, HigherOrder) and has_reversible_in_bodies(p)) for p in jaxpr.prims])


def has_reversible_in_bodies(prim: HigherOrder) -> bool:
    """Return True if bodies of an equation contain reversible equations. Bodies of functions with custom rules are not
    searched: their programs have the operands of the function."""
    return not isinstance(prim, CallWithRules) and any(map(has_reversible, prim.bodies))


def _has_rules_by_results(jaxpr: Jaxpr) -> bool:
    """Return True if a function with rules, in the program or in one of its bodies, has a derivative for some of its
    results alone."""

    def here_or_in_bodies(jaxpr: Jaxpr) -> bool:
        has_own = any([rule.results is not None for prim in jaxpr.prims for rule in rules_of(prim).vjp])
        return has_own or any(map(_has_rules_by_results, subjaxprs(jaxpr)))

    return once_from_bodies(jaxpr, "rules_by_results", here_or_in_bodies)


def for_used_results(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program to be differentiated. A function whose derivative depends on the results that are used has
    only those."""
    return dce(jaxpr) if _has_rules_by_results(jaxpr) else jaxpr


def has_derived_rules(prim: Primitive) -> TypeGuard[CallWithRules]:
    """Return True if a transformation made the rules of a function from its body."""
    return isinstance(prim, CallWithRules) and prim.rules.of_body


_NO_RULES: Final = Rules()

CUSTOM: Final[tuple[type[Primitive], ...]] = (CallWithRules, NamedCall, LinearCall)
