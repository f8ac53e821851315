"""Strategies for well-typed applications of every primitive: parameters, operand types and operand values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad.errors import ArgumentError
from fxad.ir import Primitive
from fxad.primitives import ALL
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.testing import (
    draw_collectives,
    draw_control,
    draw_custom,
    draw_elementwise,
    draw_host,
    draw_implicit,
    draw_indexing,
    draw_linalg,
    draw_reductions,
    draw_shapes,
    draw_shard_map,
    draw_windows,
)
from fxad.testing.applications import Application, DrawOperands, applications

_OWN: Final[Mapping[type[Primitive], DrawOperands]] = MappingProxyType(
    {
        **draw_collectives.OWN,
        **draw_control.OWN,
        **draw_custom.OWN,
        **draw_elementwise.OWN,
        **draw_host.OWN,
        **draw_implicit.OWN,
        **draw_indexing.OWN,
        **draw_linalg.OWN,
        **draw_reductions.OWN,
        **draw_shapes.OWN,
        **draw_shard_map.OWN,
        **draw_windows.OWN,
    }
)


def _specs(kind: type[Primitive]) -> DrawOperands | None:
    if kind in _OWN:
        return _OWN[kind]
    if issubclass(kind, Unary):
        return draw_elementwise.elementwise(kind(), 1, kind.takes)
    if issubclass(kind, Binary | Compare):
        return draw_elementwise.elementwise(kind(), 2, kind.takes)
    return None


# A strategy for applications of each primitive. A primitive that is missing here fails the coverage test.
SPECS: Final[Mapping[type[Primitive], DrawOperands]] = MappingProxyType(
    {kind: specs for kind in ALL if (specs := _specs(kind)) is not None}
)


def calls(primitive: type[Primitive], *, smooth: bool = False) -> st.SearchStrategy[Application]:
    """Return applications of a primitive of `fxad.primitives.ALL`. `applications` draws those of your own.

    `smooth`: operands are float64 and complex128 where the primitive takes them, inside the domain of its derivative.
    Raises: ArgumentError for another primitive.
    """
    if primitive not in SPECS:
        raise ArgumentError(
            f"calls: {primitive.__name__} is not a primitive of fxad.primitives.ALL",
            remedy="applications(specs) draws calls of a primitive of your own: specs(draw, smooth) gives the "
            "primitive, and a type and a Domain for each operand",
        )
    return applications(SPECS[primitive], smooth=smooth)
