"""Draws applications of sorts and cumulative operations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad.ir import Aval, Primitive
from fxad.primitives.cumulative import (
    CumLogSumExp,
    CumMax,
    CumMin,
    CumProd,
    CumSum,
    LinearRecurrence,
)
from fxad.primitives.sort import Sort
from fxad.testing.applications import ANY, Spec, Specs, dtype_of
from fxad.testing.values import ORDINARY, SPECIAL, shapes, with_long_axis


def _sort(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes(min_rank=1))
    count = draw(st.integers(1, 3))
    prim = Sort(draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, count)))
    return prim, [(Aval(shape, dtype_of(draw, ANY, smooth)), ORDINARY if smooth else SPECIAL) for _ in range(count)]


def _along(kind: type[CumSum | CumProd | CumMax | CumMin | CumLogSumExp | LinearRecurrence]) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        shape = draw(shapes(min_rank=1))
        axis = draw(st.integers(0, len(shape) - 1))
        shape = draw(with_long_axis(shape, axis, 20))
        aval = Aval(shape, dtype_of(draw, kind.takes, smooth))
        prim = kind(axis, draw(st.booleans()))
        exact = kind in (CumMax, CumMin) and not smooth
        return prim, [(aval, SPECIAL if exact else ORDINARY)] * (2 if kind is LinearRecurrence else 1)

    return specs


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        Sort: _sort,
        **{kind: _along(kind) for kind in (CumSum, CumProd, CumMax, CumMin, CumLogSumExp, LinearRecurrence)},
    }
)
