"""Equations whose floating values have another dtype than in their program, such as float64 as a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Eqn, NDArray, Primitive, map_parameter, params
from fxad.primitives.elementwise import BitcastConvertType, Nextafter, ReducePrecision
from fxad.primitives.host_call import HostCall

# The dtypes of the program define what these compute: they read the bits of their operands, or call a function.
OF_DTYPES: Final = frozenset({BitcastConvertType, HostCall, Nextafter, ReducePrecision})


def dtype_in(dtype: DType | None, of: DType) -> DType:
    """Return `dtype`, or its complex dtype, in place of an inexact dtype; another dtype, and all for None, as it is."""
    if dtype is None or not dtypes.is_inexact(of):
        return of
    return dtypes.complex_of(dtype) if dtypes.is_complex(of) else dtype


def prim_in(dtype: DType | None, prim: Primitive) -> Primitive:
    """Return a primitive with `dtype` in place of the inexact dtypes among its parameters."""

    def mapped(value: object) -> object:
        return dtype_in(dtype, value) if isinstance(value, np.dtype) else value

    changed = {n: new for n, v in params(prim) if (new := map_parameter(v, mapped)) is not v and new != v}
    return replace(prim, **changed) if changed else prim


def apply_in(dtype: DType | None, eqn: Eqn, operands: Sequence[NDArray]) -> Sequence[NDArray]:
    """Return the results of an equation for operands whose floating dtype is `dtype`. What dtypes define is computed in
    those of the program."""
    if type(eqn.prim) in OF_DTYPES:
        return eqn.prim.impl(*[x.astype(a.aval.dtype) for x, a in zip(operands, eqn.ins, strict=True)])
    return prim_in(dtype, eqn.prim).impl(*operands)
