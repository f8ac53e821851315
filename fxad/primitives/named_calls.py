"""`named_call`: a call, in a rule, of a function with rules by its number in a module.

A rule may call its own function, or functions whose rules call it in turn. These functions form a *module*: a tuple of
functions, in which a call refers to a function by its number. So a module is a value, and rules of any recursion are
finite. Outside of the module there are no named calls: when a rule leaves its equation (`CallWithRules.complete`), a
named call in it becomes a `call_with_rules` of the function, with the module. Decision: docs/adr/0048.

In the example, the rule of `sin` calls `cos`, and the rule of `cos` calls `sin`. Both also call their own function.

>>> import fxad as fx, fxad.numpy as fnp
>>> from fxad.transforms.vmap import over_stack
>>> @fx.custom_jvp
... def sin(x):
...     return fnp.sin(x)
>>> @fx.custom_jvp
... def cos(x):
...     return fnp.cos(x)
>>> @sin.defjvp
... def sin_jvp(primals, tangents):
...     return sin(*primals), tangents[0] * cos(*primals)
>>> @cos.defjvp
... def cos_jvp(primals, tangents):
...     return cos(*primals), -tangents[0] * sin(*primals)
>>> (eqn,) = fx.trace(sin, fx.Spec((), "float32")).jaxpr.eqns
>>> def name(function):
...     return function.body.eqns[0].prim.name
>>> [name(function) for function in eqn.prim.module]
['sin', 'cos']
>>> [called_functions(function.rules.jvp[0].forward) for function in eqn.prim.module]
[(0, 1), (1, 0)]
>>> outside = eqn.prim.complete(eqn.prim.rules.jvp[0].forward, over_stack)
>>> [(e.prim.name, [name(function) for function in e.prim.module]) for e in outside.eqns]
[('call_with_rules', ['sin', 'cos']), ('call_with_rules', ['cos', 'sin'])]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final, TypeAlias, final

from fxad.core.builder import Builder, rewrite
from fxad.core.dce import prune
from fxad.core.flags import flags_or, select_by_flags
from fxad.core.layout import Layout
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    BatchCtx,
    Dims,
    Eqn,
    Flags,
    FreeAxes,
    HigherOrder,
    Jaxpr,
    JvpCtx,
    Lit,
    Primitive,
    Prune,
    Record,
    Tangents,
    jaxprs_in_params,
    primitive,
    record,
)
from fxad.primitives.control.call import Applied, Call, check_operands, layout_with_rules
from fxad.primitives.custom_rules import Function, with_programs

NamedAxes: TypeAlias = tuple[tuple[str, int], ...]  # names with their sizes

_MAX_RESULTS: Final = 32  # results of a function for which the operands of each result are computed


@final
@record
class BatchChange(Record):
    """A named call was batched. `axis` names the mapped axis, if the function or its rules communicate over it."""

    name: ClassVar[str] = "batched"
    size: int
    in_dims: Dims
    out_dims: Dims
    axis: str | None = None


@final
@primitive
class NamedCall(Applied):
    """A call, in a rule, of function number `function` of the module that the rule belongs to.

    Type: (operands of `body`) -> (results of `body`).
    Rule: `body` is that of the function, batched by each of `changes`. Differentiated with the rule that it is in, the
          call is the plain function, which is `body`; `changes` repeat `vmap` on the function with its rules, which are
          not known while the module is made. `reads` marks, for each result, the operands that the function or one of
          its rules needs for it; it is empty if this is unknown. An operand that no used result needs becomes zero.
          `axes` are the named axes of collectives in the function or its rules which no change has bound.
    """

    name: ClassVar[str] = "named_call"
    body: Jaxpr
    function: int
    changes: tuple[BatchChange, ...] = ()
    reads: tuple[Flags, ...] = ()
    axes: NamedAxes = ()

    @property
    def free_axes(self) -> FreeAxes:
        return self.body.free_axes | frozenset(self.axes)

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    @property
    def layout(self) -> Layout:
        return layout_with_rules(self.bodies, 0, stores=(True,), label="call")

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> NamedCall:
        return replace(self, body=bodies[0])

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_operands(self.name, self.body, avals)
        return self.body.out_avals

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        # a result is mapped if the body or a rule reads a mapped operand for it
        mapped = tuple([d is not None for d in dims])
        over_axis = ctx.axis in dict(self.free_axes)  # then each example may read the operands of all
        mapped_by_body = [d is not None for d in ctx.recur(self.body, dims)[1]]
        mapped_by_rules = (
            [any(select_by_flags(mapped, read)) for read in self.reads]
            if self.reads and not over_axis
            else [any(mapped)] * len(self.body.outs)
        )
        wants = tuple([0 if b or r else None for b, r in zip(mapped_by_body, mapped_by_rules, strict=True)])
        body, out_dims = ctx.recur(self.body, dims, wants)
        changes = (*self.changes, BatchChange(ctx.size, dims, out_dims, ctx.axis))
        axes = _unbound(self.axes, changes)
        return ctx(NamedCall(body, self.function, changes, self.reads, axes), *args), out_dims

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        # The call stands in a rule of its own function, so it is differentiated only with that rule. There the function
        # is the plain one: a rule that called itself for its own derivative would have no end. See ADR 48,
        # docs/adr/0048-functions-with-rules-form-modules.md.
        return Call(self.body).jvp(ctx, primals, tangents)

    def without_results(self, eqn: Eqn, used: Flags, prune: Prune) -> Eqn:
        if not self.reads or not any(used):  # a call without used results is there for its effects
            return eqn
        is_read = flags_or(*select_by_flags(self.reads, used))
        ins = tuple([a if n else Lit.zero(a.aval) for a, n in zip(eqn.ins, is_read, strict=True)])
        return eqn if ins == eqn.ins else Eqn(self, ins, eqn.outs, eqn.source)


class WithModule(Applied):
    """A call of a function whose rules refer to the functions of `module`, if there are any: it binds the named calls
    in its programs."""

    __slots__ = ()
    module: tuple[Function, ...]


def _binds_names(prim: Primitive) -> bool:
    return isinstance(prim, WithModule) and bool(prim.module)


@by_value
def called_functions(jaxpr: Jaxpr) -> tuple[int, ...]:
    """Return the functions that named calls in a program refer to, in order of first reference. A `call_with_rules`
    with a module binds the names in its programs."""
    numbers: dict[int, None] = {}
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, NamedCall):
            numbers[prim.function] = None
        if isinstance(prim, HigherOrder) and not _binds_names(prim):
            numbers.update(dict.fromkeys([k for body in prim.bodies for k in called_functions(body)]))
    return tuple(numbers)


@with_enough_stack
def replace_named_calls(jaxpr: Jaxpr, by: Callable[[NamedCall], Jaxpr | Primitive]) -> Jaxpr:
    """Return the program with `by(call)` in place of each named call: a program, or another primitive."""
    if not called_functions(jaxpr):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if isinstance(prim, NamedCall):
            replacement = by(replace(prim, body=replace_named_calls(prim.body, by)))
            return b.inline(replacement, ins) if isinstance(replacement, Jaxpr) else b.copy(eqn, ins, replacement)
        if not isinstance(prim, HigherOrder) or _binds_names(prim):
            return None
        return b.copy(eqn, ins, prim.with_bodies(tuple([replace_named_calls(body, by) for body in prim.bodies])))

    return rewrite(jaxpr, rule)


def functions_called_by(function: Function) -> tuple[int, ...]:
    """Return the functions that named calls in the programs of a function refer to, in order of first reference."""
    return tuple(dict.fromkeys([k for jaxpr in jaxprs_in_params(function) for k in called_functions(jaxpr)]))


def reachable(start: Sequence[int], functions: Mapping[int, Function]) -> list[int]:
    """Return the functions that named calls lead to, in order of first reference."""
    order = list(start)
    for k in order:  # the loop also visits the functions that it appends
        order += [n for n in functions_called_by(functions[k]) if n not in order]
    return order


def renumbered(functions: Mapping[int, Function], order: Sequence[int]) -> tuple[Function, ...]:
    """Return the functions in `order` as a module: named calls in them refer to places in it."""
    return tuple([with_numbers_by(functions[k], order) for k in order])


def with_numbers_by(function: Function, order: Sequence[int]) -> Function:
    """Return the function with calls by their places in `order`, in all its programs."""
    if order == list(range(len(order))):
        return function
    return _map_named_calls(function, lambda call: replace(call, function=order.index(call.function)))


def with_reads_and_axes(module: tuple[Function, ...]) -> tuple[Function, ...]:
    """Return the functions, with `reads` and `axes` in each named call.

    Both depend on those of other functions: a rule reads an operand if it passes it to a function that reads it. So
    this is a least fixed point, which starts from the operands that the bodies read, and from no axes.
    """
    if not any(map(functions_called_by, module)):
        return module
    reads = [_reads_of(f, lambda function, used: prune(function.body, used)[1]) for f in module]
    axes: list[NamedAxes] = [()] * len(module)

    def with_both(call: NamedCall) -> NamedCall:
        return replace(call, reads=reads[call.function], axes=_unbound(axes[call.function], call.changes))

    while True:
        result = tuple([_map_named_calls(f, with_both) for f in module])
        reads_now = [_reads_of(f, lambda function, used: function.needed_for(used)[1]) for f in result]
        now = reads_now, [axes_of(f) for f in result]
        if now == (reads, axes):
            return result
        reads, axes = now


def _reads_of(function: Function, needed: Callable[[Function, Flags], Flags]) -> tuple[Flags, ...]:
    """Return for each result of a function, the operands that are `needed` for this result alone; empty for many
    results."""
    n = len(function.body.outs)
    if n > _MAX_RESULTS:
        return ()
    return tuple([needed(function, tuple([k == j for k in range(n)])) for j in range(n)])


def _unbound(axes: NamedAxes, changes: Sequence[BatchChange]) -> NamedAxes:
    """Return the axes that no change binds."""
    bound = [change.axis for change in changes]
    return tuple([axis for axis in axes if axis[0] not in bound])


def axes_of(function: Function) -> NamedAxes:
    """Return the named axes of collectives in a function or its rules, in order."""
    return tuple(sorted(frozenset().union(*[jaxpr.free_axes for jaxpr in jaxprs_in_params(function)])))


def _map_named_calls(function: Function, by: Callable[[NamedCall], NamedCall]) -> Function:
    """Return the function with each named call in its programs replaced."""
    return with_programs(function, [replace_named_calls(jaxpr, by) for jaxpr in jaxprs_in_params(function)])
