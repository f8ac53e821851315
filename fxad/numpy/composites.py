"""Composites: functions written as Python over arrays, traced once per argument types.

The program of a composite is cached by the types of its operands and by its other arguments. A short program is
inlined. A longer one becomes a `call`, so it is traced, differentiated and batched once. An eager call runs one
executable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from inspect import signature
from typing import Final, cast

import numpy as np

from fxad.core.exact_key import exact_key
from fxad.core.lru import LRUCache
from fxad.core.numbers import plain_number
from fxad.dtypes import DType
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Jaxpr, new_eqn
from fxad.lax import full
from fxad.numpy.apply import as_array
from fxad.operations import promotion
from fxad.tracing.array import Array, ArrayLike, aval_of, binder
from fxad.tracing.trace_function import trace_flat
from fxad.tracing.traced_numbers import ArgumentType, TracedNumber, dtype_of_number, is_number, number_array
from fxad.tracing.tracer import number_kind

Composite = Callable[..., Array]
_ARRAYS: Final = (Array, np.ndarray, np.generic)
_SHORT: Final = 4
_programs: Final[LRUCache[Hashable, Jaxpr]] = LRUCache(2048)


def jit_composite(fn: Composite, *args: object) -> Array:
    """Apply `fn` to `args`. Arrays are operands; the other arguments are static and hashable."""
    return _run_by_type(fn, args)[0]


def jit_composite_all(fn: Callable[..., tuple[Array, ...]], *args: object) -> tuple[Array, ...]:
    """Return `jit_composite` of a function with several results."""
    return _run_by_type(fn, args)


def call_composite(fn: Composite, operands: Sequence[object], *static: Hashable) -> Array:
    """Apply `fn` to `operands`, which may be arrays of other libraries, then to `static`."""
    return _run(fn, operands, static, None)[0]


def _run_by_type(fn: Callable[..., object], args: tuple[object, ...]) -> tuple[Array, ...]:
    """Apply `fn` to arguments of which the arrays are operands."""
    places = tuple([isinstance(a, _ARRAYS) for a in args])
    operands = [a for a, is_array in zip(args, places, strict=True) if is_array]
    static = tuple([plain_number(a) for a, is_array in zip(args, places, strict=True) if not is_array])
    return _run(fn, operands, static, places)


def _run(
    fn: Callable[..., object], operands: Sequence[object], static: tuple[object, ...], places: tuple[bool, ...] | None
) -> tuple[Array, ...]:
    """Apply `fn` to operands and static arguments. `places` marks the operands; None: they come first."""
    avals = tuple([a.number_type if type(a) is TracedNumber else aval_of(a) for a in operands])
    key = fn, avals, places, exact_key(static)
    try:
        program = _programs.get(key)
    except TypeError:  # a list, a dict
        raise _not_static(fn, _all_arguments(operands, static, places)) from None
    if program is None:
        _check_arrays(fn, _all_arguments(operands, static, places))
        program = _trace_composite(fn, avals, static, places)
        _programs.put(key, program)
    if TracedNumber in map(type, operands):
        operands = tuple([
            number_array(a, aval.dtype) if type(a) is TracedNumber else a
            for a, aval in zip(operands, program.in_avals, strict=True)
        ])  # fmt: skip
    if len(program.eqns) > _SHORT:
        return binder().call(program, operands)
    return binder().paste(fn.__name__.lstrip("_"), program, tuple(operands))


def _all_arguments(
    operands: Iterable[object], static: Iterable[object], places: tuple[bool, ...] | None
) -> tuple[object, ...]:
    """Return the arguments of a composite."""
    if places is None:
        return *operands, *static
    operands, static = iter(operands), iter(static)
    return tuple([next(operands if is_array else static) for is_array in places])


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
    fn: Callable[..., object],
    avals: tuple[ArgumentType, ...],
    static: tuple[object, ...],
    places: tuple[bool, ...] | None,
) -> Jaxpr:
    def applied(arrays: list[Array]) -> list[Array]:
        out = fn(*_all_arguments(arrays, static, places))
        return cast("list[Array]", list(out) if isinstance(out, tuple | list) else [out])

    name = fn.__name__.lstrip("_")
    program, captured = trace_flat(applied, avals, name)
    assert not captured, f"{name} closes over an array"
    # without source lines: all uses share the program, and each has its own line
    eqns = tuple([new_eqn(e.prim, e.ins, e.outs, source=None) for e in program.eqns])
    return Jaxpr(program.ins, eqns, program.outs, name)


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
