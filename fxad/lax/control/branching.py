"""`cond` and `switch`: apply one of several functions, selected at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar, TypeVarTuple, Unpack, cast, overload

import numpy as np

from fxad import dtypes
from fxad.core.trees import tree
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError, TreeError, described, shown
from fxad.ir import INT32_SCALAR, Aval, Lit
from fxad.lax.control.host_values import HostLeaf, HostValue
from fxad.lax.control.traced_functions import TracedFunction, common_operands, traced_body
from fxad.operations import elementwise, promotion
from fxad.primitives.control.cond import LOOP, SELECT, Batching, Cond
from fxad.runtime import default_platform
from fxad.tracing.array import Array, asarray, aval_of, binder, is_scalar
from fxad.tracing.context import sharing_copies
from fxad.tracing.pass_through import with_passed_values
from fxad.tracing.traced_numbers import is_number
from fxad.tracing.tracer import active_trace, bind

NOT_GIVEN: Final = object()
_GPUS: Final = ("cuda", "rocm")
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


# A number or an array of NumPy is an Array inside the functions, also in a container. No overload but one takes a lambda
# with operands that are Arrays: of several, mypy would take none.
# fmt: off
@overload
def cond(pred: object, true_fun: Callable[[Array], R], false_fun: Callable[[Array], R], operands: HostLeaf, /, *, batched: str = ...) -> R: ...
@overload
def cond(pred: object, true_fun: Callable[[Unpack[Ts]], R], false_fun: Callable[[Unpack[Ts]], R], *operands: *Ts, batched: str = ...) -> R: ...
@overload
def cond(pred: object, true_fun: Callable[[T], R], false_fun: Callable[[T], R], *, operand: T, batched: str = ...) -> R: ...
@overload
def cond(pred: object, true_fun: Callable[P, R], false_fun: Callable[Q, R], first: HostValue, /, *operands: object, batched: str = ...) -> R: ...
@overload
def cond(pred: object, true_fun: Callable[P, R], false_fun: Callable[Q, R], first: object, second: HostValue, /, *operands: object, batched: str = ...) -> R: ...
@overload
def cond(pred: object, true_fun: Callable[P, R], false_fun: Callable[Q, R], *, operand: HostValue, batched: str = ...) -> R: ...
# fmt: on
def cond(
    pred: object,
    true_fun: Callable[..., R],
    false_fun: Callable[..., R],
    *operands: object,
    operand: object = NOT_GIVEN,
    batched: str = SELECT,
) -> R:
    """Return `true_fun(*operands)` if `pred` else `false_fun(*operands)`, decided at run time.

    `pred` is a bool, or a real number, which is true if it is not 0. Both functions are always traced, also if it is a
    Python bool. Their results must have the same structure and types; a bare Python number takes the dtype of the other
    function's result. They may close over arrays and tracers. If dicts differ in the order of their keys, the result has
    the order of `true_fun`.
    Operands and results are any pytrees of arrays; `operand=` is a single one by keyword, as in JAX.

    `batched` selects the vmap rule for a `pred` that varies: with "select" both functions run for all examples and
    results are selected; with "loop" a loop over the examples runs one function for each.

    Rule:   jvp, grad: the derivative of the function that runs. Only its residuals are stored, in slots that the
            functions share. Under vmap with "select" both functions run for all examples, and a derivative that is not
            finite in an example that does not select the function does not reach the mapped operands. A result that
            both functions take from one operand is that operand: it varies only if the operand does.
    Raises: DTypeError, ShapeError for a `pred` that is not one bool or real number; TreeError, DTypeError, ShapeError
            when the results differ, naming both functions, the path and both types.
    """
    operands = _with_operand("cond", operand, operands)
    aval = aval_of(pred, "cond: pred")
    if aval.dtype in dtypes.COMPLEX:
        raise DTypeError(f"cond: pred is {aval}, not a bool", remedy="compare: x != 0")
    if aval.shape:
        raise ShapeError(
            f"cond: pred has shape {aval.shape}, it must have no axes",
            remedy="reduce it with any() or all(); to choose element by element use fxad.numpy.where",
        )
    if is_scalar(pred) or isinstance(pred, np.generic):
        index: object = np.int32(bool(pred))
    else:
        array = asarray(cast("Array", pred))
        index = _to_index(array if aval.dtype is dtypes.bool_ else array != 0)
    return _bind_cond("cond", index, (false_fun, true_fun), ("false_fun", "true_fun"), operands, batched, first=1)


def _with_operand(what: str, operand: object, operands: tuple[object, ...]) -> tuple[object, ...]:
    """Return the operands, one of which may be given by keyword. Raises: ArgumentError for both."""
    if operand is NOT_GIVEN:
        return operands
    if operands:
        raise ArgumentError(
            f"{what}: operand is given by keyword beside {len(operands)} by position", remedy="give all by position"
        )
    return (operand,)


# fmt: off
@overload
def switch(index: object, branches: Sequence[Callable[[Array], R]], operands: HostLeaf, /, *, batched: str = ...) -> R: ...
@overload
def switch(index: object, branches: Sequence[Callable[[Unpack[Ts]], R]], *operands: *Ts, batched: str = ...) -> R: ...
@overload
def switch(index: object, branches: Sequence[Callable[[T], R]], *, operand: T, batched: str = ...) -> R: ...
@overload
def switch(index: object, branches: Sequence[Callable[..., R]], *operands: object, operand: object = ..., batched: str = ...) -> R: ...
# fmt: on
def switch(
    index: object,
    branches: Sequence[Callable[..., R]],
    *operands: object,
    operand: object = NOT_GIVEN,
    batched: str = SELECT,
) -> R:
    """Return `branches[index](*operands)`, decided at run time; an index out of range is clamped.

    `index` is one integer of any integer dtype. The result has the dicts of the first branch. For the rest see `cond`.

    Raises: ParameterError without branches; DTypeError, ShapeError for an `index` that is not one integer; the errors
            of `cond`.
    """
    operands = _with_operand("switch", operand, operands)
    if not isinstance(branches, Sequence):
        raise ArgumentError(
            f"switch: branches is {described(branches)}, not a sequence of functions", remedy="give a list or a tuple"
        )
    if not branches:
        raise ParameterError("switch: there is no branch", remedy="give at least one function")
    aval = aval_of(index, "switch: index")
    if not dtypes.is_integer(aval.dtype):
        raise DTypeError(f"switch: index is {aval}, not an integer", remedy="convert it with astype('int32')")
    if aval.shape:
        raise ShapeError(
            f"switch: index has shape {aval.shape}, it must have no axes", remedy="to choose for each example use vmap"
        )
    roles = tuple([f"branch {k}" for k in range(len(branches))])
    return _bind_cond("switch", _clamp_index(index, aval, len(branches)), branches, roles, operands, batched)


def platform_dependent(
    *args: *Ts, default: Callable[[Unpack[Ts]], R] | None = None, **per_platform: Callable[[Unpack[Ts]], R]
) -> R:
    """Return `f(*args)` for the function f of the platform: `platform_dependent(x, cpu=f, cuda=g, default=h)`.

    Rule:   the platform is that of `fxad.default_backend()`, when the function is called or traced. The program contains
            only that function, which is all that is called: the others may use what this platform does not have.
            "gpu" stands for "cuda" and "rocm".
    Raises: ParameterError for a platform without a function and without `default`; ArgumentError for what is no
            function.
    """
    for name, function in [("default", default), *per_platform.items()]:
        if not callable(function) and (function is not None or name != "default"):
            raise ArgumentError(
                f"platform_dependent: {name} is {described(function)}, not a function", remedy="give a function"
            )
    platform = default_platform()
    chosen = per_platform.get(platform)
    if chosen is None and platform in _GPUS:
        chosen = per_platform.get("gpu")
    if chosen is None:
        chosen = default
    if chosen is None:
        raise ParameterError(
            f"platform_dependent: there is no function for {platform}, only for {', '.join(per_platform) or 'none'}",
            remedy="give default=, or a function with the name of the platform",
        )
    return chosen(*args)


def _to_index(x: Array) -> Array:
    return binder().apply(elementwise.astype, (x,), (dtypes.int32,))[0]


def _clamp_index(index: object, aval: Aval, count: int) -> object:
    """Return a clamped index as int32."""
    if is_scalar(index) or isinstance(index, np.integer):
        return np.int32(min(max(int(cast("int", index)), 0), count - 1))
    if aval is INT32_SCALAR:
        return index
    last = Lit.of(min(count - 1, dtypes.RANGES[aval.dtype][1]), aval).value
    return _to_index(binder().apply(elementwise.clip, (index, np.zeros((), aval.dtype)[()], last), ())[0])


def _bind_cond(
    what: str,
    index: object,
    functions: Sequence[Callable[..., R]],
    roles: Sequence[str],
    operands: tuple[object, ...],
    batched: str,
    first: int = 0,
) -> R:
    """Bind the functions, in the order of their indices. The dicts of the results have their keys in the order of those
    of function `first`."""
    if not isinstance(batched, str) or batched not in (SELECT, LOOP):
        raise ParameterError(f"{what}: batched is {shown(batched)}", remedy=f"use {SELECT!r} or {LOOP!r}")
    leaves, in_tree = tree.flatten(operands)
    numbers = [is_number(x) for x in leaves]
    if any(numbers):  # a branch gets a number as if it were called
        call = tree.call_structure(in_tree)
        in_trace = active_trace() is not None
        functions = [with_passed_values(f, leaves, call, numbers, in_trace) if callable(f) else f for f in functions]
        operands = tree.unflatten(in_tree, [None if n else x for n, x in zip(numbers, leaves, strict=True)])
        leaves, in_tree = tree.flatten(operands)
    avals = [aval_of(x, f"{what}: {p}") for x, p in zip(leaves, tree.paths(in_tree, "operands"), strict=True)]
    with sharing_copies():
        bodies = [traced_body(f"{what}: {r}", f, in_tree, avals) for r, f in zip(roles, functions, strict=True)]
    named = [f"{r} {b.name}" for r, b in zip(roles, bodies, strict=True)]
    jaxprs, captured = common_operands(_unify_results(what, bodies, named))
    outs = bind(Cond(jaxprs, cast("Batching", batched)), index, *captured, *leaves)
    return cast("R", bodies[first].out_tree.unflatten(outs))


def _unify_results(what: str, bodies: Sequence[TracedFunction], named: Sequence[str]) -> list[TracedFunction]:
    """Return the bodies with results of the same types. Raises: TreeError, ShapeError, DTypeError."""
    first = bodies[0]
    for body, name in zip(bodies, named, strict=True):
        if body.out_tree != first.out_tree:
            raise TreeError(
                f"{what}: results differ in structure: {named[0]} returns {tree.shape_text(first.out_tree)}, "
                f"{name} returns {tree.shape_text(body.out_tree)}",
                remedy="return pytrees of the same structure from all branches",
            )
    wants = [_result_type(bodies, k) for k in range(len(first.numbers))]
    typed = [body.typed(wants) for body in bodies]
    for k, path in enumerate(tree.paths(first.out_tree, "result")):
        for body, name in zip(typed, named, strict=True):
            have, want = body.jaxpr.out_avals[k], typed[0].jaxpr.out_avals[k]
            if have is not want:
                raise _result_error(what, path, named[0], want, name, have)
    return typed


def _result_type(bodies: Sequence[TracedFunction], k: int) -> Aval:
    """Return the type of a result: that of the first body that returns an array, else that of the widest kind of
    number."""
    arrays = [body.jaxpr.out_avals[k] for body in bodies if body.numbers[k] is None]
    return (
        arrays[0]
        if arrays
        else max([b.jaxpr.out_avals[k] for b in bodies], key=lambda a: promotion.dtype_kind(a.dtype))
    )


def _result_error(what: str, path: str, a: str, of_a: Aval, b: str, of_b: Aval) -> FxadError:
    message = f"{what}: results differ in type: {path} is {of_a} in {a}, {of_b} in {b}"
    if of_a.shape != of_b.shape:
        return ShapeError(message, remedy="return one shape from all branches: broadcast, or use full_like")
    return DTypeError(message, remedy=f"convert one of them with astype('{of_a.dtype.name}')")
