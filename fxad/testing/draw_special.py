"""How to draw applications of special functions that XLA lacks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad.ir import Aval, Primitive
from fxad.primitives.elementwise.family import Binary
from fxad.primitives.elementwise.gamma import Igamma, Igammac, IgammaGradA, RandomGammaGrad
from fxad.testing.applications import Spec, Specs, dtype_of
from fxad.testing.values import Domain, shapes


def _of(kind: type[Binary], first: Domain, second: Domain) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        aval = Aval(draw(shapes()), dtype_of(draw, kind.takes, smooth))
        return kind(), [(aval, first), (aval, second)]

    return specs


_SHAPE: Final = Domain(0.3, 8.0)
OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {kind: _of(kind, _SHAPE, _SHAPE) for kind in (Igamma, Igammac, IgammaGradA, RandomGammaGrad)}
)
