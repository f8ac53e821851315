"""Draws applications of the random primitives."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Aval, Primitive
from fxad.primitives.random import GammaSample, Threefry2x32
from fxad.testing.applications import Spec, Specs, dtype_of
from fxad.testing.values import Domain, shapes

_WORD: Final = Domain(whole=(0, 2**32 - 1))


def _threefry2x32(draw: st.DrawFn, smooth: bool) -> Spec:  # noqa: ARG001  integers only
    aval = Aval(draw(shapes()), dtypes.uint32)
    return Threefry2x32(draw(st.booleans())), [(aval, _WORD)] * 4


def _gamma_sample(draw: st.DrawFn, smooth: bool) -> Spec:
    aval = Aval(draw(shapes()), dtype_of(draw, GammaSample.takes, smooth))
    log = draw(st.booleans())
    return GammaSample(log), [(aval, Domain(0.5, 3.0)), (aval, Domain(-3.0, 1.0) if log else Domain(0.1, 3.0))]


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {Threefry2x32: _threefry2x32, GammaSample: _gamma_sample}
)
