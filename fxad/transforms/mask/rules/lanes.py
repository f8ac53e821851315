"""Primitives that are applied lane by lane, as they are."""

from __future__ import annotations

from typing import Final

from fxad.ir import Primitive
from fxad.primitives.barrier import BARRIER
from fxad.primitives.elementwise import ELEMENTWISE
from fxad.primitives.elementwise.bessel import BESSEL
from fxad.primitives.elementwise.beta import BETA
from fxad.primitives.elementwise.gamma import GAMMA
from fxad.primitives.marks import MARKS
from fxad.primitives.random import GammaSample, Threefry2x32
from fxad.primitives.shape import ExpandDims, Squeeze, Transpose
from fxad.primitives.sharding_constraint import SHARDING_CONSTRAINT
from fxad.transforms.mask.contract import MaskRow, lanewise, row

_KINDS: Final[tuple[type[Primitive], ...]] = (
    *ELEMENTWISE,
    *GAMMA,
    *BESSEL,
    *BETA,
    *BARRIER,
    *MARKS,
    *SHARDING_CONSTRAINT,
    Threefry2x32,
    GammaSample,
    Transpose,
    Squeeze,
    ExpandDims,
)

LANEWISE: Final[tuple[MaskRow, ...]] = tuple(
    [row(kind, lanewise, "lane by lane", clears_operands=False) for kind in _KINDS]
)
