"""Maxima and minima over several devices, which are nan if one value is nan.

The collectives of XLA's CPU runtime drop nan: the maximum of nan and 1 is 1. So values that devices exchange are
compared as integers. The bits of a float, read as an integer, are in the order of floats if those below the sign are
inverted for negative ones. A nan becomes the greatest integer for a maximum, and the least one for a minimum; both are
the bits of a nan. Outside of maps over devices, XLA decides which values are divided, so all reductions and scatters
are written in this way. For example, the maximum of these numbers of float32 is that of their keys, read back:

    number      bits          key (int32)
    nan         0x7FC00000    0x7FFFFFFF     the greatest integer, whose bits are those of a nan
    1.0         0x3F800000    0x3F800000
    -1.0        0xBF800000    0xC07FFFFF     a negative integer
    -2.0        0xC0000000    0xBFFFFFFF     a smaller one
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
    """Return the program whose extrema of floats over several devices are extrema of integers. In a map over devices
    these are the collectives, outside of maps reductions and scatters."""
    if not _has_extremum(jaxpr):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if _is_exchange(prim, ins, in_map):
            return (_as_integers(b, prim, ins),)
        if isinstance(prim, HigherOrder) and any(map(_has_extremum, prim.bodies)):
            # in the body of a `shard_map`, only collectives exchange values between devices
            inside = in_map or isinstance(prim, ShardMap)
            return b(prim.with_bodies(tuple([with_nan_kept(body, inside) for body in prim.bodies])), *ins)
        return None

    return rewrite(jaxpr, rule)


@by_value
def _has_extremum(jaxpr: Jaxpr) -> bool:
    return any([isinstance(prim, Extremum | ExtremumReduction | ScatterExtremum) for prim in all_prims(jaxpr)])


def _is_exchange(prim: Primitive, ins: Atoms, in_map: bool) -> bool:
    """Return True for an extremum of floats that devices may compute together."""
    if ins and ins[0].aval.dtype not in dtypes.FLOATING:
        return False
    if isinstance(prim, Extremum):
        return True
    if in_map:  # a device has all elements that it reduces
        return False
    if isinstance(prim, ExtremumReduction):  # the extremum of no elements is an infinity, and never nan
        return 0 not in [ins[0].aval.shape[k] for k in prim.axes]
    return isinstance(prim, ScatterExtremum)


def _as_integers(b: Builder, prim: Primitive, ins: Atoms) -> Atom:
    """Return an extremum of floats, computed from their keys. The indices of a scatter stay as they are."""
    dtype = ins[0].aval.dtype
    wide = dtype if dtype.itemsize in _INTEGERS else dtypes.float32
    integer = _INTEGERS[wide.itemsize]
    end = dtypes.RANGES[integer][isinstance(prim, Pmax | ReduceMax | ScatterMax)]

    def key(x: Atom) -> Atom:
        if x.aval.dtype is not dtype:
            return x
        x = x if wide is dtype else b.one(ConvertElementType(wide), x)
        bits = b.one(BitcastConvertType(integer), x)
        return b.one(SELECT_N, b.one(NE, x, x), _keys_or_bits(b, bits), Lit.of(end, bits.aval))

    y = b.one(BitcastConvertType(wide), _keys_or_bits(b, b.one(prim, *map(key, ins))))
    return y if wide is dtype else b.one(ConvertElementType(dtype), y)


def _keys_or_bits(b: Builder, bits: Atom) -> Atom:
    """Return the keys of floats, given their bits as integers; and the bits, given the keys. Both are the same
    operation: it inverts the bits below the sign if the sign is set."""
    width = 8 * bits.aval.dtype.itemsize
    below_sign = Lit.of(dtypes.RANGES[bits.aval.dtype][1], bits.aval)
    negative = b.one(SHIFT_RIGHT_ARITHMETIC, bits, Lit.of(width - 1, bits.aval))
    return b.one(XOR, bits, b.one(AND, negative, below_sign))
