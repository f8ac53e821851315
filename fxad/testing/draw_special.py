"""Draws applications of special functions that XLA lacks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad.ir import Aval, Primitive
from fxad.primitives.elementwise.bessel import BesselI0e, BesselI1e, Zeta
from fxad.primitives.elementwise.beta import RegularizedIncompleteBeta
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.elementwise.gamma import Igamma, Igammac, IgammaGradA, RandomGammaGrad
from fxad.testing.applications import Spec, Specs, dtype_of
from fxad.testing.values import Domain, shapes


def _of(kind: type[Unary | Binary | RegularizedIncompleteBeta], *domains: Domain) -> Specs:
    def specs(draw: st.DrawFn, smooth: bool) -> Spec:
        aval = Aval(draw(shapes()), dtype_of(draw, kind.takes, smooth))
        return kind(), [(aval, d) for d in domains]

    return specs


_SHAPE: Final = Domain(0.3, 8.0)
OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        **{kind: _of(kind, _SHAPE, _SHAPE) for kind in (Igamma, Igammac, IgammaGradA, RandomGammaGrad)},
        **{kind: _of(kind, Domain(0.2, 12.0, signs=True)) for kind in (BesselI0e, BesselI1e)},
        Zeta: _of(Zeta, Domain(1.5, 6.0), _SHAPE),
        RegularizedIncompleteBeta: _of(RegularizedIncompleteBeta, _SHAPE, _SHAPE, Domain(0.05, 0.95)),
    }
)
