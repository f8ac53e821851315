"""Applies operations for the functions of `fxad.numpy`. Errors name the function that the user called."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeVar, cast
from weakref import ref

import numpy as np

from fxad import dtypes
from fxad.core.lru import LRUCache
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.core.sizes.size import Size
from fxad.errors import DTypeError, ShapeError
from fxad.ir import Primitive
from fxad.lax import full
from fxad.lax.placement import committed_to
from fxad.operations.arguments import contained_array, number, to_int
from fxad.operations.operators import Operation
from fxad.operations.promotion import scalar_dtype, to_inexact_dtype
from fxad.runtime import Device, XlaExecutable, launch, process_state
from fxad.tracing.array import (
    EAGER,
    Array,
    ArrayLike,
    apply_operation,
    argument_number,
    asarray as put,
    aval_of,
    binder,
    current_binder,
    is_scalar,
)
from fxad.tracing.placement import check_device
from fxad.tracing.tracer import Tracer, active_trace

T = TypeVar("T")

_OPERANDS: Final = (Array, np.ndarray, np.generic, bool, int, float, complex)


# Executables of one array and one primitive. The key has the `id` of the primitive: its hash is computed in Python.
# The entry holds the primitive, so that no other one gets this `id`.
_single_operand_runs: Final[LRUCache[Hashable, tuple[ref[XlaExecutable], Hashable]]] = LRUCache(512)


def apply_op(name: str, op: Operation, args: tuple[object, ...], *static: Hashable) -> Array:
    """Return the single result of an operation. Raises: ArgumentError naming function, position and type."""
    if len(args) == 1 and type(x := args[0]) is Array and current_binder() is None:  # the shortest way, spelled out
        cached = _single_operand_runs.peek((op, x._aval, id(static[0]))) if len(static) == 1 else None
        loaded = None if cached is None or process_state.any_committed else cached[0]()
        if loaded is None:
            return _run_and_remember(op, x, static)
        (out,) = launch(loaded.start, [x._buffer], loaded.handlers, loaded.producer)
        result = Array()
        result._aval, result._buffer = loaded.out_avals[0], out
        return result
    for a in args:
        if type(a) is not Array and not isinstance(a, _OPERANDS):
            _check_arguments(name, op, args)
    return apply_operation(op, args, static)


def _run_and_remember(op: Operation, x: Array, static: tuple[Hashable, ...]) -> Array:
    """Run an operation of one array on the general path. Remember the executable for the fast path of `apply_op`."""
    (out,) = EAGER.apply_to_arrays(op, (x,), static)
    if len(static) == 1 and isinstance(prim := static[0], Primitive):
        loaded = EAGER.cached(op, x._aval, prim)
        if loaded is not None:
            _single_operand_runs.put((op, x._aval, id(prim)), (ref(loaded), prim))
    return out


def apply_op_all(name: str, op: Operation, args: tuple[object, ...], *static: Hashable) -> tuple[Array, ...]:
    """Return all results of an operation. Raises: ArgumentError naming function, position and type."""
    for a in args:
        if type(a) is not Array and not isinstance(a, _OPERANDS):
            _check_arguments(name, op, args)
    return binder().apply(op, args, static)


def _check_arguments(name: str, op: Operation, args: tuple[object, ...]) -> None:
    for k, a in enumerate(args):
        aval_of(contained_array(a), f"{name}: argument {argument_number(op, k)}")


def check_operand(name: str, what: str, x: object, beside: object = None) -> None:
    """Raise ArgumentError for an operand that is not an array, and DTypeError for an int that does not fit in the dtype
    of the array beside it. For functions that call others with their arguments: the error names theirs."""
    if not is_scalar(x):
        aval_of(contained_array(x), f"{name}: {what}")
    elif isinstance(beside, Array | np.ndarray | np.generic):
        scalar_dtype(x, np.dtype(beside.dtype), f"{name}: {what}")


def as_array(name: str, x: ArrayLike, k: int = 0) -> Array:
    """Return an argument as an Array: a tracer inside a traced function, otherwise an array on the device. Raises:
    ArgumentError."""
    if isinstance(x, Array):
        if type(x) is not Array and cast("Tracer", x)._trace is not current_binder():
            x.check_usable(f"{name}: argument {k}")
        return cast("Array", x.settled())
    if x is not (inner := contained_array(x)):
        return as_array(name, cast("ArrayLike", inner), k)
    aval_of(x, f"{name}: argument {k}")
    if isinstance(x, bool | int | float | complex) and type(x) not in NUMBER_ARGUMENTS:
        return full((), x)
    trace = active_trace()
    return put(x) if trace is None else Tracer(trace, trace.lift(name, k, x))


def diagonal_number(name: str, what: str, k: int | Array) -> tuple[tuple[Array, ...], int | None]:
    """Return the number of a diagonal, as operands and a static argument: an array is an operand, and None is static.

    Raises: ArgumentError for what is neither an integer nor an array; DTypeError for an array of other numbers;
            ShapeError for one with axes.
    """
    if not isinstance(k, Array):
        return (), to_int(name, what, k)
    if k.dtype not in dtypes.INTEGER:
        raise DTypeError(f"{name}: {what} must be an integer, got {k.aval}", remedy=f"{what}.astype('int32')")
    if k.ndim:
        raise ShapeError(f"{name}: {what} must be one integer, got {k.aval}", remedy="map the function with vmap")
    return (k,), None


def contains_array(value: object) -> bool:
    """Return True for an array, and for a list or tuple with one: it may be traced."""
    return isinstance(value, Array) or (isinstance(value, list | tuple) and any([isinstance(v, Array) for v in value]))


def as_scalars(values: T | Array | Sequence[T | Array]) -> tuple[T | Array, ...]:
    """Return one number, or several as a vector or a sequence, as a tuple."""
    if isinstance(values, Array):
        return tuple([values[k] for k in range(values.size)]) if values.ndim == 1 else (values,)
    return tuple(values) if isinstance(values, list | tuple) else (cast("T", values),)


def number_or_array(name: str, what: str, value: float | Array) -> float | Array:
    """Return a number that does not decide a shape: a Python float, or an array without axes, which may be traced.

    Raises: ArgumentError for what is neither; ShapeError for an array with axes; DTypeError for a complex one.
    """
    if type(value) is Size:
        return put(value)
    if not isinstance(value, Array):
        return number(name, what, value)
    if value.ndim:
        raise ShapeError(f"{name}: {what} must be one number, got {value.aval}", remedy="map the function with vmap")
    if value.dtype in dtypes.COMPLEX:
        raise DTypeError(f"{name}: {what} must be real, got {value.aval}", remedy=f"give {what}.real")
    return value


def to_device(name: str, x: Array, device: Device | None) -> Array:
    """Return an array on `device`, committed to it; unchanged if `device` is None."""
    if device is None:
        return x
    check_device(name, device)
    return committed_to(x, device)


def to_inexact(x: Array) -> Array:
    """Return x in the floating dtype that NumPy computes in: itself if it is floating or complex."""
    return x.astype(to_inexact_dtype(x.dtype))


def as_inexact_array(name: str, x: ArrayLike, k: int = 0) -> Array:
    """Return argument `k` of `name` as a floating or complex array. Raises: ArgumentError."""
    return to_inexact(as_array(name, x, k))
