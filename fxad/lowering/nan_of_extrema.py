"""Maxima and minima over several devices, which are nan if one value is nan.

The collectives of XLA's CPU runtime drop nan: the maximum of nan and 1 is 1. So values that devices exchange are
compared as integers. The bits of a float, read as an integer, are in the order of floats if those below the sign are
inverted for negative ones. A nan becomes the greatest integer for a maximum, and the least one for a minimum; both are
the bits of a nan. Outside of maps over devices, XLA decides which values are divided, so all reductions and scatters
are written in this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.dtypes import DType
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Lit, Primitive, all_prims
from fxad.primitives.collectives import Extremum, Pmax
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.elementwise.convert import BitcastConvertType, ConvertElementType
from fxad.primitives.elementwise.logic import AND, NE, SHIFT_RIGHT_ARITHMETIC, XOR
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.gather_scatter import ScatterExtremum, ScatterMax
from fxad.primitives.reduce import ExtremumReduction, ReduceMax

# Integers of the width of a float. A float of 8 bits is compared as one of 32.
_INTEGERS: Final[Mapping[int, DType]] = MappingProxyType({2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64})


@by_value
def with_nan_kept(jaxpr: Jaxpr, in_map: bool = False) -> Jaxpr:
    """The program whose extrema of floats over several devices are extrema of integers. In a map over devices these are
    the collectives, outside of maps reductions and scatters."""
    if not _has_extremum(jaxpr):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if _is_exchange(prim, ins, in_map):
            return (_as_integers(b, prim, ins),)
        if isinstance(prim, HigherOrder) and any(map(_has_extremum, prim.bodies)):
            inside = in_map or isinstance(prim, ShardMap)
            return b(prim.with_bodies(tuple([with_nan_kept(body, inside) for body in prim.bodies])), *ins)
        return None

    return rewrite(jaxpr, rule)


@by_value
def _has_extremum(jaxpr: Jaxpr) -> bool:
    return any([isinstance(prim, Extremum | ExtremumReduction | ScatterExtremum) for prim in all_prims(jaxpr)])


def _is_exchange(prim: Primitive, ins: Atoms, in_map: bool) -> bool:
    """Returns True for an extremum of floats that devices may compute together. One of no elements is an infinity."""
    if not isinstance(prim, Extremum) and (in_map or not isinstance(prim, ExtremumReduction | ScatterExtremum)):
        return False
    x = ins[0].aval
    return x.dtype in dtypes.FLOATING and not (
        isinstance(prim, ExtremumReduction) and 0 in [x.shape[k] for k in prim.axes]
    )


def _as_integers(b: Builder, prim: Primitive, ins: Atoms) -> Atom:
    """An extremum of floats, which has floats and indices as operands."""
    dtype = ins[0].aval.dtype
    wide = dtype if dtype.itemsize in _INTEGERS else dtypes.float32
    integer = _INTEGERS[wide.itemsize]
    end = dtypes.RANGES[integer][isinstance(prim, Pmax | ReduceMax | ScatterMax)]

    def key(x: Atom) -> Atom:
        if x.aval.dtype is not dtype:
            return x
        x = x if wide is dtype else b.one(ConvertElementType(wide), x)
        bits = b.one(BitcastConvertType(integer), x)
        return b.one(SELECT_N, b.one(NE, x, x), _in_order(b, bits), Lit.of(end, bits.aval))

    y = b.one(BitcastConvertType(wide), _in_order(b, b.one(prim, *map(key, ins))))
    return y if wide is dtype else b.one(ConvertElementType(dtype), y)


def _in_order(b: Builder, bits: Atom) -> Atom:
    """The bits of floats as integers in their order; of these integers, the bits."""
    width = 8 * bits.aval.dtype.itemsize
    below = Lit.of(dtypes.RANGES[bits.aval.dtype][1], bits.aval)
    negative = b.one(SHIFT_RIGHT_ARITHMETIC, bits, Lit.of(width - 1, bits.aval))
    return b.one(XOR, bits, b.one(AND, negative, below))
