"""How to draw applications of the primitives behind random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Aval, Primitive
from fxad.primitives.random import Threefry2x32
from fxad.testing.applications import Spec, Specs
from fxad.testing.values import Domain, shapes

_WORD: Final = Domain(whole=(0, 2**32 - 1))


def _threefry2x32(draw: st.DrawFn, smooth: bool) -> Spec:  # noqa: ARG001  integers only
    aval = Aval(draw(shapes()), dtypes.uint32)
    return Threefry2x32(), [(aval, _WORD)] * 4


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType({Threefry2x32: _threefry2x32})
