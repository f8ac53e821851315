"""Traces Python functions over pytrees, for control flow, implicit solvers and custom rules.

Values that a function closes over (arrays, tracers of the enclosing trace) become leading operands of its program.
There are no weak types. A bare Python number that a branch returns, or that is an initial carry, takes the dtype of the
arrays that it is combined with. This is resolved when functions are traced, so equations have no weak types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, final

from fxad import dtypes
from fxad.core import tree
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.core.source_info import source_text
from fxad.core.tree import Structure
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, TreeError, described, shown
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit
from fxad.lax.creation import splat
from fxad.operations import promotion
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.tracing.array import aval_of, is_scalar
from fxad.tracing.program import function_name
from fxad.tracing.trace import trace_leaves
from fxad.tracing.traced_numbers import ArgumentType, TracedNumber, dtype_of_number, is_number, number_array
from fxad.transforms.locate import describe


@final
@dataclass(frozen=True, slots=True, eq=False)
class TracedFunction:
    """A traced Python function and the values that it closes over. `jaxpr`: (captured operands, then the leaves of the
    arguments) -> the leaves of the results.

    `captured` are the values of the leading operands. `numbers` are the results that are bare Python numbers (None for
    the others): literals of `jaxpr` whose dtype `typed` may still change.
    """

    jaxpr: Jaxpr
    captured: tuple[object, ...]
    out_tree: Structure
    numbers: tuple[promotion.Scalar | None, ...]
    name: str  # the name of this function; `jaxpr` has the name of the first function with an equal program

    def typed(self, likes: Sequence[Aval | None]) -> TracedFunction:
        """Return the function with its bare numbers in the dtypes of the given types (None: unchanged), where they
        fit."""
        outs = list(self.jaxpr.outs)
        for k, (number, aval) in enumerate(zip(self.numbers, likes, strict=True)):
            if number is not None and aval is not None:
                outs[k] = promotion.scalar_literal(number, aval.with_shape(()))
        if all([a is b for a, b in zip(outs, self.jaxpr.outs, strict=True)]):
            return self
        return replace(self, jaxpr=Jaxpr(self.jaxpr.ins, self.jaxpr.eqns, tuple(outs), self.name))


def traced_body(
    what: str, fn: Callable[..., object], in_tree: Structure, avals: Sequence[ArgumentType]
) -> TracedFunction:
    """Trace `fn`, whose positional arguments have the structure `in_tree` (of a tuple) and leaves of types `avals`.

    `what` is the function's role in the call, for messages: `cond: true_fun`. Raises: ArgumentError for a value that is
    not a function, and for a result that is not an array; exceptions of `fn`.
    """
    if not callable(fn):
        raise ArgumentError(
            f"{what} is {described(fn)}, not a function: {shown(fn)}", remedy="pass a function, not what it returns"
        )
    call = tree.call_structure(in_tree)
    jaxpr, captured, out_tree, leaves = trace_leaves(fn, call, avals, function_name(fn), what)
    numbers = tuple([x if is_scalar(x) else None for x in leaves])
    return TracedFunction(jaxpr, captured, out_tree, numbers, function_name(fn))


def common_operands(bodies: Sequence[TracedFunction]) -> tuple[tuple[Jaxpr, ...], tuple[object, ...]]:
    """Return the bodies over the same operands: the union of their captured values, then the arguments.

    Return the jaxprs and the values of the leading operands.
    """
    values: dict[int, object] = {}
    for body in bodies:
        values.update({id(v): v for v in body.captured})
    place = {key: k for k, key in enumerate(values)}
    avals = [aval_of(v) for v in values.values()]
    out = []
    for body in bodies:
        n = len(body.captured)
        if [id(v) for v in body.captured] == list(values):
            out.append(body.jaxpr)
            continue
        b = Builder()
        leading = b.inputs(avals)
        args = b.inputs(body.jaxpr.in_avals[n:])
        out.append(b.build(b.inline(body.jaxpr, [*[leading[place[id(v)]] for v in body.captured], *args]), body.name))
    return tuple(out), tuple(values.values())


# ----------------------------------------------------------------------------------------------------------- carries


@final
@dataclass(frozen=True, slots=True, eq=False)
class TracedLoop:
    """The body of a loop and its initial carry.

    `body.jaxpr`: (captured, carry, then the other arguments) -> (carry, then the other results). `init` are the leaves
    of the carry, of exactly the types of the carry; `carry_tree` is their structure and `rest_tree` that of the other
    results.
    """

    body: TracedFunction
    init: tuple[object, ...]
    carry_tree: Structure
    rest_tree: Structure

    @property
    def carry_avals(self) -> tuple[Aval, ...]:
        """Types of the carry."""
        return tuple([aval_of(x) for x in self.init])

    def results(self, outs: Sequence[object]) -> tuple[Any, Any]:
        """Return the last carry and the other results, as trees."""
        n = len(self.init)
        return self.carry_tree.unflatten(outs[:n]), self.rest_tree.unflatten(outs[n:])


def traced_loop(
    what: str,
    fn: Callable[..., object],
    init: object,
    rest: Structure,
    rest_avals: Sequence[Aval],
    *,
    role: str = "body_fun",
    start: str = "init_val",
    pair: bool = False,
) -> TracedLoop:
    """Trace the body of a loop: `fn(carry, *rest) -> carry`, or with `pair` `fn(carry, *rest) -> (carry, results)`.

    `rest` is the structure of the tuple of the other arguments. The carry has the types of `init`. A bare Python number
    in it starts as int32, float32, ... If the body returns another dtype for it, and the number fits its kind, the
    carry takes the dtype of the arrays that the number is combined with, directly or through other numbers, and the
    body is traced again. `role` and `start` are the user's names of the function and the initial carry.

    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the leaf of the carry that changes, and both types.
    """
    leaves, carry_tree = tree.flatten(init)
    paths = tree.paths(carry_tree, start)
    first = [aval_of(x, f"{what}: {p}") for x, p in zip(leaves, paths, strict=True)]
    args = tree.tuple_structure(carry_tree, *rest.children())

    traced_by_types: dict[tuple[Aval, ...], tuple[TracedFunction, Structure]] = {}

    def traced(avals: Sequence[Aval]) -> tuple[TracedFunction, Structure]:
        key = tuple(avals)
        if key not in traced_by_types:
            traced_by_types[key] = trace_once(avals)
        return traced_by_types[key]

    def trace_once(avals: Sequence[Aval]) -> tuple[TracedFunction, Structure]:
        body = traced_body(f"{what}: {role}", fn, args, [*avals, *rest_avals])
        carry_tree_out, rest_tree = _carry_and_results(what, role, body, pair)
        if carry_tree_out != carry_tree:
            raise TreeError(
                f"{what}: {role} {body.name} returns a carry of another structure than {start}: "
                f"{tree.shape_text(carry_tree_out)}, {start} is {tree.shape_text(carry_tree)}",
                remedy=f"return from {role} what it was given, with new values",
            )
        return body.typed([*avals, *[None] * (len(body.numbers) - len(first))]), rest_tree

    avals = _carry_types(leaves, first, lambda guess: traced(guess)[0].jaxpr.out_avals)
    body, rest_tree = traced(avals)
    for k, (have, want, path) in enumerate(zip(body.jaxpr.out_avals, avals, paths, strict=False)):
        if have is not want:
            error = _carry_error(what, f"{role} {body.name}", path, want, have)
            widening = _widening_equation(body.jaxpr, len(body.captured) + k, body.jaxpr.outs[k])
            if widening is not None and want.dtype is not have.dtype:
                error.located(equation=describe(widening), where=source_text(widening.source))
            raise error
    values = tuple([_as_carry(x, a) for x, a in zip(leaves, avals, strict=True)])
    return TracedLoop(body, values, carry_tree, rest_tree)


# The trial dtype of a number, to find the arrays that it is combined with: every other dtype of its kind promotes it.
# If a literal does not fit in this dtype, the next one is tried.
_YIELDING: Final = (
    (dtypes.bool_, dtypes.int8, dtypes.float16, dtypes.complex64),
    (dtypes.bool_, dtypes.int16, dtypes.float16, dtypes.complex64),
    (dtypes.bool_, dtypes.int32, dtypes.float16, dtypes.complex64),
)


def _carry_types(
    leaves: Sequence[object], first: Sequence[Aval], outs_of: Callable[[Sequence[Aval]], Sequence[Aval]]
) -> list[Aval]:
    """Return the types of the carry: those of its leaves. A bare number whose type the body changes gets the dtype of
    the arrays that it is combined with. An int32 with an int8 would promote to int32, but the number 0 does not.

    A number may reach arrays through another one, steps later: `(a, b) -> (b, a * x)`. So types are propagated to a
    fixpoint. A number that then no longer keeps its type is treated as a changing one too, and the propagation
    restarts.
    """
    outs_of(first)  # errors of the body are reported for the types that the user gave
    for yielding in _YIELDING[:-1]:
        try:
            return _carry_types_from_trials(leaves, first, outs_of, yielding)
        except DTypeError:
            continue
    return _carry_types_from_trials(leaves, first, outs_of, _YIELDING[-1])


def _carry_types_from_trials(
    leaves: Sequence[object],
    first: Sequence[Aval],
    outs_of: Callable[[Sequence[Aval]], Sequence[Aval]],
    yielding: Sequence[DType],
) -> list[Aval]:
    """Return the types of the carry, found with numbers in trial dtypes.

    For the body (a, b) -> (b, a * x) with the carry (0, 0) and x: f64[], and int8 as the trial dtype of an int:

        (a, b)        the body returns
        (i32, i32)    (i32, f64)          b changes: it gets the trial dtype
        (i32, i8)     (i8, f64)           b is f64
        (i32, f64)    (f64, f64)          a changes too: start again, with the trial dtype for both
        (i8, i8)      (i8, f64)           b is f64; a keeps its trial dtype
        (i8, f64)     (f64, f64)          a is f64
        (f64, f64)    (f64, f64)          the types of the carry
    """

    def changing(numbers: Iterable[int], have: Sequence[Aval], outs: Sequence[Aval]) -> list[int]:
        return [k for k in numbers if outs[k] is not have[k] and _can_hold(leaves[k], outs[k])]

    def propagated(start: Sequence[Aval], changed: Sequence[int]) -> list[Aval]:
        """Return the types that the changed numbers take, step by step."""
        avals = list(start)
        for _ in changed:  # a step makes at least one of them known
            outs = outs_of(avals)  # cached: traced once per types
            for k in changing(changed, avals, outs):
                avals[k] = outs[k]
        return avals

    numbers = [k for k, x in enumerate(leaves) if is_number(x)]
    outs = outs_of(first)
    changed = more = changing(numbers, first, outs)
    avals = list(first)
    while more:
        start = list(first)
        for k in changed:
            start[k] = first[k].with_dtype(yielding[promotion.dtype_kind(first[k].dtype)])
        avals = propagated(start, changed)
        more = changing([k for k in numbers if k not in changed], first, outs_of(avals))
        met_no_array = [k for k in (*changed, *more) if avals[k] is start[k]]
        for k in met_no_array:  # it has the type that the body first returned for it
            avals[k] = outs[k] if _can_hold(leaves[k], outs[k]) else first[k]
        changed = [*changed, *more]
    return avals


def _carry_and_results(what: str, role: str, body: TracedFunction, pair: bool) -> tuple[Structure, Structure]:
    """Return the structures of the carry and of the other results."""
    if not pair:
        return body.out_tree, tree.structure(())
    if body.out_tree.type is not tuple or len(body.out_tree.children()) != 2:
        raise TreeError(
            f"{what}: {role} {body.name} returns {tree.shape_text(body.out_tree)}, not a pair (carry, result)",
            remedy="return (carry, None) when there is nothing to collect",
        )
    carry, rest = body.out_tree.children()
    return carry, rest


def _can_hold(number: object, aval: Aval) -> bool:
    """Return True if a Python number may be a value of a type."""
    return aval.shape == () and dtype_of_number(number, aval.dtype) is aval.dtype


def _as_carry(leaf: object, aval: Aval) -> object:
    if type(leaf) in NUMBER_ARGUMENTS or type(leaf) is TracedNumber:
        return number_array(leaf, aval.dtype)
    return splat(Lit.of(leaf, aval)) if is_scalar(leaf) else leaf


def _widening_equation(body: Jaxpr, place: int, out: Atom) -> Eqn | None:
    """Return the equation on the way from an operand of a body to a result that gave the value the dtype of the result.
    None if the result does not depend on the operand.

    An equation that converts for an operation of the same line, which promotes, stands for that operation.
    """
    reached: set[Atom] = {body.ins[place]}
    producers: dict[Atom, Eqn] = {}
    for eqn in body.eqns:
        if any([x in reached for x in eqn.ins]):
            reached.update(eqn.outs)
            producers.update(dict.fromkeys(eqn.outs, eqn))
    producer, reader, value = None, None, out
    while value in producers:
        producer, reader = producers[value], producer
        earlier = [x for x in producer.ins if x in producers and x.aval.dtype is out.aval.dtype]
        if not earlier:
            break
        value = earlier[0]
    if producer is None or reader is None or not isinstance(producer.prim, ConvertElementType):
        return producer
    # a conversion on the line of its reader is a part of it: the reader promotes its operands
    return reader if reader.source == producer.source else producer


def _carry_error(what: str, role: str, path: str, want: Aval, have: Aval) -> FxadError:
    message = f"{what}: the carry changes its type: {path} is {want}, {role} returns {have} for it"
    if want.shape != have.shape:
        return ShapeError(message, remedy="a loop has one shape for all steps: start from, and return, the same")
    return DTypeError(
        message, remedy=f"start from a value of dtype {have.dtype.name}, or return astype('{want.dtype.name}')"
    )
