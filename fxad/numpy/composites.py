"""Composites: functions written as Python over arrays, traced once per argument types.

The program of a composite is cached by the types of its operands and by its other arguments. A short program is
inlined. A longer one becomes a `call`, so it is traced, differentiated and batched once. An eager call runs one
executable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from inspect import signature
from typing import Final, cast

import numpy as np

from fxad.core.lru import LRUCache
from fxad.core.numbers import plain_number
from fxad.dtypes import DType
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Jaxpr, new_eqn
from fxad.lax import full
from fxad.numpy.apply import as_array
from fxad.operations import promotion
from fxad.tracing.array import Array, ArrayLike, aval_of, binder
from fxad.tracing.tracer import (
    ArgumentType,
    TracedNumber,
    dtype_of_number,
    is_number,
    number_array,
    number_kind,
    trace_flat,
)

Composite = Callable[..., Array]
_ARRAYS: Final = (Array, np.ndarray, np.generic)
_SHORT: Final = 4
_programs: Final[LRUCache[Hashable, Jaxpr]] = LRUCache(2048)


def jit_composite(fn: Composite, *args: object) -> Array:
    """Apply `fn` to `args`. Arrays are operands; the other arguments are static and hashable."""
    return _call_composite(fn, args)[0]


def jit_composite_all(fn: Callable[..., tuple[Array, ...]], *args: object) -> tuple[Array, ...]:
    """Return `jit_composite` of a function with several results."""
    return _call_composite(fn, args)


def _call_composite(fn: Callable[..., object], args: tuple[object, ...]) -> tuple[Array, ...]:
    places = tuple([isinstance(a, _ARRAYS) for a in args])
    operands = tuple([a for a, is_array in zip(args, places, strict=True) if is_array])
    avals = tuple([a.number_type if type(a) is TracedNumber else aval_of(a) for a in operands])
    # 0.0 == -0.0 and 1 == True, but they are not the same program: hence the text
    static = tuple([
        None if is_array else (plain_number(a), repr(a)) for a, is_array in zip(args, places, strict=True)
    ])  # fmt: skip
    key = fn, avals, static
    try:
        program = _programs.get(key)
    except TypeError:  # a list, a dict
        raise _not_static(fn, args) from None
    if program is None:
        _check_arrays(fn, args)
        program = _trace_composite(fn, avals, static)
        _programs.put(key, program)
    if TracedNumber in map(type, operands):
        operands = tuple([
            number_array(a, aval.dtype) if type(a) is TracedNumber else a
            for a, aval in zip(operands, program.in_avals, strict=True)
        ])  # fmt: skip
    if len(program.eqns) > _SHORT:
        return binder().call(program, operands)
    return binder().paste(fn.__name__.lstrip("_"), program, operands)


def _parameters(fn: Callable[..., object], args: tuple[object, ...]) -> Iterator[tuple[str, str, object]]:
    """Return the name of each parameter, its annotation, and its argument."""
    parameters = signature(fn).parameters
    return zip(parameters, [p.annotation for p in parameters.values()], args, strict=False)


def _check_arrays(fn: Callable[..., object], args: tuple[object, ...]) -> None:
    """Check the arguments of parameters that are annotated `Array` or `ArrayLike`, by the text of the annotation.

    Raises: ArgumentError for one that is neither an array nor a number.
    """
    for name, kind, value in _parameters(fn, args):
        if kind in ("Array", "ArrayLike") or (kind in ("Array | None", "ArrayLike | None") and value is not None):
            aval_of(value, f"{fn.__name__.lstrip('_')}: {name}")


def _not_static(fn: Callable[..., object], args: tuple[object, ...]) -> ArgumentError:
    """Return the error for an argument that cannot be a part of a program."""
    name, value = next((n, v) for n, _, v in _parameters(fn, args) if not (isinstance(v, _ARRAYS) or _hashes(v)))
    return ArgumentError(
        f"{fn.__name__.lstrip('_')}: {name} is {described(value)}: {shown(value)}",
        remedy="pass an array, or a static value: a number, a str, a tuple of these",
    )


def _hashes(value: object) -> bool:
    """Return True if a value has a hash. A tuple has one if its items do."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _trace_composite(
    fn: Callable[..., object], avals: tuple[ArgumentType, ...], static: tuple[tuple[object, str] | None, ...]
) -> Jaxpr:
    def applied(arrays: list[Array]) -> list[Array]:
        remaining = iter(arrays)
        out = fn(*[next(remaining) if s is None else s[0] for s in static])
        return cast("list[Array]", list(out) if isinstance(out, tuple | list) else [out])

    name = fn.__name__.lstrip("_")
    program, captured = trace_flat(applied, avals, name)
    assert not captured, f"{name} closes over an array"
    # where it was used first is not where it is used next
    return Jaxpr(program.ins, tuple([new_eqn(e.prim, e.ins, e.outs, None) for e in program.eqns]), program.outs, name)


def promote_arguments(name: str, *args: object, first: int = 0, dtype: DType | None = None) -> tuple[Array, ...]:
    """Return arguments as arrays. A Python number takes the dtype of the arrays among the arguments, or `dtype`.
    `first` is the position of the first argument, for messages."""
    kept = [a if is_number(a) else as_array(name, cast("ArrayLike", a), first + k) for k, a in enumerate(args)]
    for a in kept:
        if not is_number(a):
            a = cast("Array", a)
            dtype = a.dtype if dtype is None else promotion.promote_dtypes(name, dtype, a.dtype)
    if dtype is None:
        dtype = promotion.ALONE[max(map(number_kind, args))]
    return tuple([
        full((), cast("ArrayLike", a), dtype_of_number(a, dtype, f"{name}: argument {k}"))
        if is_number(a)
        else cast("Array", a)
        for k, a in enumerate(kept, first)
    ])  # fmt: skip
