"""How a draw becomes a program: every sampler is traced once per types, and called.

A sampler is a function over arrays. It is not run equation by equation: its program is looked up by the types of its
operands and its static arguments, and called as a whole. So an eager draw is one compiled program, a draw in a traced
function is one `call` equation, and twenty draws of one shape are twenty calls of one sub-program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from fxad.core.lru import LRUCache
from fxad.ir import Jaxpr
from fxad.tracing.array import Array, aval_of, binder
from fxad.tracing.tracer import trace_flat

Sampler = Callable[..., Array]
_programs: Final[LRUCache[Hashable, Jaxpr]] = LRUCache(1024)


def jit_sampler(sampler: Sampler, operands: Sequence[object], *static: Hashable) -> Array:
    """`sampler(*operands, *static)` as one program, called.

    Rule: `static` are shapes, dtypes and strings: equal ones must mean the same program (so no floats: 0.0 == -0.0).
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
