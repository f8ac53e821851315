"""Equations and programs in a wider floating dtype.

A value keeps its dtype if it is an integer or a bool. An equation that has no meaning in the wider dtype, such as
a bitcast, is evaluated in its own dtype, and its results are converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.dtypes import DType
from fxad.errors import FxadError
from fxad.ir import Atom, Atoms, Aval, HigherOrder, Jaxpr, Lit, Primitive, all_prims, map_parameter, params
from fxad.primitives.elementwise.convert import ConvertElementType, ReducePrecision, emit_convert
from fxad.primitives.host_call import HostCall
from fxad.primitives.random import GammaSample

# (dtype, wider dtype) for each dtype that changes. A tuple, because it is part of a memo's key.
Types: TypeAlias = tuple[tuple[DType, DType], ...]

_SIXTEEN_BITS: Final = tuple(sorted([*dtypes.FLOAT8, dtypes.float16, dtypes.bfloat16], key=str))
TO_FLOAT32: Final[Types] = tuple([(d, dtypes.float32) for d in _SIXTEEN_BITS])
TO_FLOAT64: Final[Types] = (
    *[(d, dtypes.float64) for d in (*_SIXTEEN_BITS, dtypes.float32)],
    (dtypes.complex64, dtypes.complex128),
)
_WIDEST: Final = frozenset({dtypes.float64, dtypes.complex128})

# Rounding is all that these operations do, so their exact result is their operand.
ROUNDS: Final = (ConvertElementType, ReducePrecision)
# Operations whose result in another dtype is another draw, or is unknown.
_UNKNOWN_IN_OTHERS: Final = (HostCall, GammaSample)


def wider(avals: Sequence[Aval]) -> Types | None:
    """Return the dtypes in which an equation over values of these types has a smaller rounding error: float32 for 16
    bits and less, float64 otherwise. None if a value has 64 bits already."""
    kinds = {a.dtype for a in avals if a.inexact}
    if not kinds.isdisjoint(_WIDEST):
        return None
    return TO_FLOAT32 if kinds.issubset(_SIXTEEN_BITS) else TO_FLOAT64


def with_types(aval: Aval, types: Mapping[DType, DType]) -> Aval:
    """Return the type of a value in the wider dtype."""
    return Aval(aval.shape, types[aval.dtype]) if aval.dtype in types else aval


def converted(b: Builder, a: Atom, dtype: DType) -> Atom:
    """Return a value in a dtype, a literal as a literal."""
    if a.aval.dtype == dtype:
        return a
    if isinstance(a, Lit) and a.size is None:
        value = a.value if dtype in dtypes.COMPLEX else np.real(a.value)
        return Lit.of(value, Aval(a.aval.shape, dtype))
    return emit_convert(b, a, dtype)


def evaluated(b: Builder, prim: Primitive, ins: Atoms, outs: Sequence[Aval], types: Types) -> Atoms | None:
    """Add an equation in the wider dtype, over operands of the wider dtype. `outs` are the types of its results in its
    own dtype. None if it has no meaning in the wider dtype."""
    mapping = dict(types)
    if isinstance(prim, ROUNDS) and outs[0].inexact:
        return (converted(b, ins[0], mapping.get(outs[0].dtype, outs[0].dtype)),)
    if any([isinstance(p, _UNKNOWN_IN_OTHERS) for p in _that_run(prim)]):
        return None
    wide = _in_types(prim, types)
    try:
        avals = wide.abstract_eval(*[a.aval for a in ins])
    except FxadError:
        return None
    return b(wide, *ins) if avals == tuple([with_types(a, mapping) for a in outs]) else None


def _that_run(prim: Primitive) -> list[Primitive]:
    """Return a primitive and those in the bodies that run with it."""
    if not isinstance(prim, HigherOrder):
        return [prim]
    layout = prim.layout
    return [prim, *[p for k in layout.running for p in all_prims(layout.bodies[k].jaxpr)]]


def _in_types(prim: Primitive, types: Types) -> Primitive:
    """Return a primitive with the wider dtype in its parameters, and in its bodies."""
    mapping = dict(types)

    def changed(value: object) -> object:
        if isinstance(value, Jaxpr):
            return retyped(value, types)
        if isinstance(value, Aval):
            return with_types(value, mapping)
        return mapping.get(value, value) if isinstance(value, np.dtype) else value

    before = [value for _, value in params(prim)]
    after = [map_parameter(value, changed) for value in before]
    return prim if before == after else type(prim)(*after)


@by_value
@with_enough_stack
def retyped(jaxpr: Jaxpr, types: Types) -> Jaxpr:
    """Return the program in wider dtypes: operands, results, literals and all values between.

    Law: integers and bools keep their dtypes; a program without the dtypes of `types` is unchanged.
    """
    mapping: Mapping[DType, DType] = MappingProxyType(dict(types))
    b = Builder()
    env: dict[Atom, Atom] = {v: b.input(with_types(v.aval, mapping)) for v in jaxpr.ins}

    def wide(a: Atom) -> Atom:
        return env[a] if a in env else converted(b, a, mapping.get(a.aval.dtype, a.aval.dtype))

    for eqn in jaxpr.eqns:
        b.source = eqn.source
        ins, avals = tuple([wide(a) for a in eqn.ins]), [v.aval for v in eqn.outs]
        outs = evaluated(b, eqn.prim, ins, avals, types)
        if outs is None:
            args = tuple([converted(b, a, was.aval.dtype) for a, was in zip(ins, eqn.ins, strict=True)])
            copies = b.copy(eqn, args)
            outs = tuple([converted(b, v, mapping.get(v.aval.dtype, v.aval.dtype)) for v in copies])
        env.update(zip(eqn.outs, outs, strict=True))
    return b.build([wide(a) for a in jaxpr.outs], jaxpr.name)


def unit_roundoff(dtype: DType) -> float:
    """Return half the distance from 1 to the next number of a dtype."""
    return 2.0 ** -dtypes.SIGNIFICAND_BITS[dtype]
