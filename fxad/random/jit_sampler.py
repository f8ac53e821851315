"""Samplers as programs: each sampler is traced once per argument types, and called.

A sampler is a function over arrays. Its program is cached by the types of its operands and its static arguments. An
eager draw runs one executable. In a traced function a draw is one `call` equation, so twenty draws of one shape are
twenty calls of one body.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from fxad.core.lru import LRUCache
from fxad.dtypes import DType
from fxad.ir import Jaxpr
from fxad.random.arguments import ShapeLike, broadcast_shape, check_key, float_dtype, parameter_operand, result_shape
from fxad.tracing.array import Array, ArrayLike, aval_of, binder
from fxad.tracing.tracer import trace_flat

Sampler = Callable[..., Array]
_programs: Final[LRUCache[Hashable, Jaxpr]] = LRUCache(1024)


def jit_sampler(sampler: Sampler, operands: Sequence[object], *static: Hashable) -> Array:
    """Call `sampler(*operands, *static)` as one program.

    Rule:   `static` are shapes, dtypes and strings. Equal values must mean the same program, so floats are not allowed
            (0.0 == -0.0).
    """
    avals = tuple([aval_of(x) for x in operands])
    key = (sampler, avals, static)
    program = _programs.get(key)
    if program is None:
        name = sampler.__name__.lstrip("_")
        program, captured = trace_flat(lambda xs: (sampler(*xs, *static),), avals, name)
        assert not captured, f"{name} closes over an array"
        _programs.put(key, program)
    return binder().call(program, operands)[0]


def draw(
    name: str,
    sampler: Sampler,
    key: ArrayLike,
    shape: ShapeLike | None,
    dtype: object,
    /,
    dtype_rule: Callable[..., DType] = float_dtype,
    **parameters: ArrayLike,
) -> Array:
    """Check the arguments of a sampler with floating results, and call `sampler(key, *parameters, shape, dtype)`.

    Raises: ArgumentError, DTypeError, ShapeError.
    """
    chosen = dtype_rule(name, dtype, **parameters)
    sizes = broadcast_shape(name, shape, **parameters) if parameters else result_shape(name, shape)
    operands = (check_key(name, key), *[parameter_operand(p, chosen) for p in parameters.values()])
    return jit_sampler(sampler, operands, sizes, chosen)
