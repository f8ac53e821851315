"""Traces Python functions over pytrees, for control flow, implicit solvers and custom rules.

Values that a function closes over (arrays, tracers of the enclosing trace) become leading operands of its program.
There are no weak types. A bare Python number that a branch returns, or that is an initial carry, takes the dtype of the
arrays that it is combined with. This is resolved when functions are traced, so equations have no weak types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.core.source_info import source_text
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, TreeError, described, shown
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, distinct_jaxprs
from fxad.lax.creation import splat
from fxad.operations import promotion
from fxad.operations.number_types import BOOL, NumberType, number_type
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.tracing.array import aval_of, is_scalar
from fxad.tracing.program import function_name
from fxad.tracing.trace import trace_leaves
from fxad.tracing.traced_numbers import ArgumentType, TracedNumber, dtype_of_number, is_number, number_array
from fxad.transforms.locate import describe

# The type of a result of a traced function: that of a number is not decided.
ResultType: TypeAlias = Aval | NumberType


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
    result_types: tuple[ResultType, ...]  # of the results of the function: also numbers that were computed
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
    types = tuple([_number_type(x) or a for x, a in zip(leaves, jaxpr.out_avals, strict=True)])
    return TracedFunction(jaxpr, captured, out_tree, numbers, types, function_name(fn))


def _number_type(x: object) -> NumberType | None:
    """Return the type of a Python number, also of a traced one; None for what is none."""
    return x.number_type if type(x) is TracedNumber else number_type(x)


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
    in it starts as int32, float32, ... If the body combines it with arrays of another dtype, directly or through other
    numbers, and the number fits their kind, the carry takes that dtype, and the body is traced again. `role` and
    `start` are the user's names of the function and the initial carry.

    Raises: TreeError, ShapeError, DTypeError, ArgumentError naming the leaf of the carry that changes, and both types.
    """
    leaves, carry_tree = tree.flatten(init)
    paths = tree.paths(carry_tree, start)
    first = [aval_of(x, f"{what}: {p}") for x, p in zip(leaves, paths, strict=True)]
    args = tree.tuple_structure(carry_tree, *rest.children())

    traced_by_types: dict[tuple[ResultType, ...], tuple[TracedFunction, Structure]] = {}

    def traced(types: Sequence[ResultType]) -> tuple[TracedFunction, Structure]:
        key = tuple(types)
        if key not in traced_by_types:
            traced_by_types[key] = trace_once(types)
        return traced_by_types[key]

    def trace_once(types: Sequence[ResultType]) -> tuple[TracedFunction, Structure]:
        body = traced_body(f"{what}: {role}", fn, args, [*types, *rest_avals])
        carry_tree_out, rest_tree = _carry_and_results(what, role, body, pair)
        if carry_tree_out != carry_tree:
            raise TreeError(
                f"{what}: {role} {body.name} returns a carry of another structure than {start}: "
                f"{tree.shape_text(carry_tree_out)}, {start} is {tree.shape_text(carry_tree)}",
                remedy=f"return from {role} what it was given, with new values",
            )
        avals = [t if isinstance(t, Aval) else None for t in types]
        return body.typed([*avals, *[None] * (len(body.numbers) - len(first))]), rest_tree

    def returned(types: Sequence[ResultType]) -> Sequence[ResultType]:
        body, _ = traced(types)
        given = zip(types, body.jaxpr.out_avals, body.result_types, strict=False)
        return [out if isinstance(t, Aval) else result for t, out, result in given]

    body, rest_tree = traced(first)  # errors of the body are reported for the types that the user gave
    avals = _carry_types(leaves, first, body.jaxpr, returned)
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


def _carry_types(
    leaves: Sequence[object],
    first: Sequence[Aval],
    body: Jaxpr,
    returned: Callable[[Sequence[ResultType]], Sequence[ResultType]],
) -> list[Aval]:
    """Return the types of the carry: those of its leaves (`first`, for which `body` is the program). A bare number gets
    the dtype of the arrays that it is combined with. An int32 with an int8 promotes to int32, but the number 0 does
    not. So the body is traced with its numbers as numbers, if it changes one of them or has an array of fewer bits.
    """
    numbers = [k for k, x in enumerate(leaves) if is_number(x)]
    if all([body.out_avals[k] is first[k] for k in numbers]) and not (numbers and _has_narrow_values(body)):
        return list(first)
    types = _types_in_steps(
        leaves, numbers, [_type_of_number(x) or a for x, a in zip(leaves, first, strict=True)], returned
    )
    # Again with arrays in place of numbers: the first run changes nothing for a body that raises for numbers. If that
    # body returns i64 for the number 0 as an array, i32, the carry is i64.
    return _as_arrays(_types_in_steps(leaves, numbers, _as_arrays(types), returned))


def _types_in_steps(
    leaves: Sequence[object],
    numbers: Sequence[int],
    types: Sequence[ResultType],
    returned: Callable[[Sequence[ResultType]], Sequence[ResultType]],
) -> list[ResultType]:
    """Return the types of the carry that the body returns for themselves, found from `types` step by step: a number may
    reach an array through another one.

    For the body (a, b) -> (b, a * x) with the carry (0, 0) and x: f64[]:

        (a, b)        the body returns
        (int, int)    (int, f64)          b is f64
        (int, f64)    (f64, f64)          a is f64 too
        (f64, f64)    (f64, f64)          the types of the carry
    """
    found = list(types)
    # each round changes a number or is the last; a number has at most four changes: of a bool to int, float, complex, and
    # of the dtype
    for _ in range(4 * len(numbers)):
        try:
            outs = returned(found)
        except Exception:  # noqa: BLE001  # the user's code, which arrays suited: it does not compute with numbers
            return list(types)
        changed = [k for k in numbers if _takes(leaves[k], found[k], outs[k])]
        for k in changed:
            found[k] = outs[k]
        if not changed:
            break
    return found


def _as_arrays(types: Sequence[ResultType]) -> list[Aval]:
    """Return types with those of numbers as arrays by themselves."""
    return [t.aval if isinstance(t, NumberType) else t for t in types]


def _takes(number: object, have: ResultType, out: ResultType) -> bool:
    """Return True if a number of a carry takes the type that the body returns for it."""
    if isinstance(out, Aval):
        return out is not have and _can_hold(number, out)
    return isinstance(have, NumberType) and isinstance(out, NumberType) and out.kind > have.kind


def _type_of_number(x: object) -> NumberType | None:
    """Return the type of a number whose dtype is not decided; None for arrays and for bools, which promote nothing."""
    kind = _number_type(x)
    return None if kind is BOOL else kind


def _has_narrow_values(jaxpr: Jaxpr) -> bool:
    """Return True if a value of a program, or of its bodies, has a dtype of numbers with fewer than 32 bits."""
    return any(
        [
            x.aval.dtype.itemsize < 4 and x.aval.dtype is not dtypes.bool_
            for body in distinct_jaxprs(jaxpr)
            for x in (*body.ins, *[v for eqn in body.eqns for v in eqn.outs])
        ]
    )


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
