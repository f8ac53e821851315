"""How a function that is a few others put together becomes equations: traced once per types.

Such a function is Python over arrays, one operation a line, for it to be read. Its program is looked up by the types of
its operands and its other arguments. A short one is copied, equation by equation; a longer one is called, so that it is
traced, differentiated and batched once however often it is used. An eager call is one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, cast

import numpy as np

from fxad.core.lru import LRUCache
from fxad.dtypes import DType
from fxad.ir import Aval, Jaxpr, new_eqn
from fxad.lax import full
from fxad.numpy.apply import as_array
from fxad.operations import promotion
from fxad.operations.indexing import inline_program
from fxad.tracing.array import Array, ArrayLike, aval_of, binder, is_scalar
from fxad.tracing.tracer import trace_flat

Composite = Callable[..., Array]
_ARRAYS: Final = (Array, np.ndarray, np.generic)
_SHORT: Final = 4
_programs: Final[LRUCache[Hashable, Jaxpr]] = LRUCache(2048)


def jit_composite(fn: Composite, *args: object) -> Array:
    """`fn(*args)`: arrays are operands, all else (hashable) is part of the program."""
    return _call_composite(fn, args)[0]


def jit_composite_all(fn: Callable[..., tuple[Array, ...]], *args: object) -> tuple[Array, ...]:
    """`fn(*args)` for a function with several results."""
    return _call_composite(fn, args)


def _call_composite(fn: Callable[..., object], args: tuple[object, ...]) -> tuple[Array, ...]:
    places = tuple([isinstance(a, _ARRAYS) for a in args])
    operands = tuple([a for a, is_array in zip(args, places, strict=True) if is_array])
    avals = tuple([aval_of(a) for a in operands])
    # 0.0 == -0.0 and 1 == True, but they are not the same program: hence the text
    static = tuple([None if is_array else (a, repr(a)) for a, is_array in zip(args, places, strict=True)])
    key = fn, avals, static
    program = _programs.get(key)
    if program is None:
        program = _trace_composite(fn, avals, static)
        _programs.put(key, program)
    if len(program.eqns) > _SHORT:
        return binder().call(program, operands)
    return binder().apply(inline_program, operands, (program,))


def _trace_composite(
    fn: Callable[..., object], avals: tuple[Aval, ...], static: tuple[tuple[object, str] | None, ...]
) -> Jaxpr:
    def applied(arrays: list[Array]) -> list[Array]:
        given = iter(arrays)
        out = fn(*[next(given) if s is None else s[0] for s in static])
        return cast("list[Array]", list(out) if isinstance(out, tuple | list) else [out])

    name = fn.__name__.lstrip("_")
    program, captured = trace_flat(applied, avals, name)
    assert not captured, f"{name} closes over an array"
    # where it was used first is not where it is used next
    return Jaxpr(program.ins, tuple([new_eqn(e.prim, e.ins, e.outs, None) for e in program.eqns]), program.outs, name)


def promote_arguments(name: str, *args: object, first: int = 0, dtype: DType | None = None) -> tuple[Array, ...]:
    """Arguments as arrays, the first of them number `first`: Python numbers in the dtype they take beside the arrays,
    or beside `dtype`."""
    kept = [a if is_scalar(a) else as_array(name, cast("ArrayLike", a), first + k) for k, a in enumerate(args)]
    for a in kept:
        if isinstance(a, Array):
            dtype = a.dtype if dtype is None else promotion.promote_dtypes(name, dtype, a.dtype)
    if dtype is None:
        dtype = promotion.dtype_of_scalars(args)
    return tuple(
        [
            a
            if isinstance(a, Array)
            else full((), cast("ArrayLike", a), promotion.scalar_dtype(cast("promotion.Scalar", a), dtype))
            for a in kept
        ]
    )
