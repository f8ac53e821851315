"""How a function of this package becomes equations: traced once per types, then written out wherever it is used.

A function here is Python over arrays, one operation a line, for it to be read. Its program is looked up by the types of
its operands and its other arguments, and its equations are added to the program under construction. So tracing it costs
a copy, and an eager call is one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from fxad.array import Array, ArrayLike, binder
from fxad.builder import Builder
from fxad.ir import Atom, Jaxpr
from fxad.numpy.calls import as_array
from fxad.operations import promotion
from fxad.recent import Recent
from fxad.trace import trace_flat

Written = Callable[..., Array]
_programs: Final[Recent[Hashable, Jaxpr]] = Recent(1024)


def floating(name: str, x: ArrayLike, k: int = 0) -> Array:
    """An argument as a floating array."""
    array = as_array(name, x, k)
    return array.astype(promotion.inexact(array.dtype))


def written(fn: Written, *args: object) -> Array:
    """`fn(*args)`: arrays are operands, all else (hashable) is part of the program."""
    places = tuple([isinstance(a, Array) for a in args])
    operands = tuple([a for a, is_array in zip(args, places, strict=True) if is_array])
    # 0.0 == -0.0 and 1 == True, but they are not the same program: hence the text
    static = tuple([None if is_array else (a, repr(a)) for a, is_array in zip(args, places, strict=True)])
    return binder().apply(_copied, operands, (fn, static))[0]


def _copied(b: Builder, *args: Any) -> tuple[Atom, ...]:
    *atoms, fn, static = args
    avals = tuple([a.aval for a in atoms])
    key = fn, avals, static
    program = _programs.get(key)
    if program is None:

        def applied(arrays: list[Array]) -> list[Array]:
            given = iter(arrays)
            return [fn(*[next(given) if s is None else s[0] for s in static])]

        program, captured = trace_flat(applied, avals, fn.__name__)
        assert not captured, f"{fn.__name__} closes over an array"
        _programs.put(key, program)
    env: dict[Atom, Atom] = dict(zip(program.ins, atoms, strict=True))
    for eqn in program.eqns:  # not copied with its place: that is the user's line now
        env.update(zip(eqn.outs, b(eqn.prim, *[env.get(a, a) for a in eqn.ins]), strict=True))
    return tuple([env.get(a, a) for a in program.outs])
