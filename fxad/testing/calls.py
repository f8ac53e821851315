"""Strategies for well-typed applications of every primitive: parameters, operand types and operand values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.errors import ArgumentError
from fxad.ir import Aval, Jaxpr, Lit, Primitive, Var
from fxad.primitives import ALL, elementwise as ew
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.marks import Keep, Name
from fxad.testing import (
    draw_arrays,
    draw_branches,
    draw_collectives,
    draw_conv,
    draw_custom,
    draw_elementwise,
    draw_fft,
    draw_host,
    draw_implicit,
    draw_indexing,
    draw_linalg,
    draw_random,
    draw_scan,
    draw_shapes,
    draw_shard_map,
    draw_sort,
    draw_special,
)
from fxad.testing.applications import ANY, Application, Spec, Specs, applications, dtype_of
from fxad.testing.values import ORDINARY, SPECIAL, Domain, shapes


def _draw_body(draw: st.DrawFn, smooth: bool) -> tuple[Jaxpr, Sequence[tuple[Aval, Domain]]]:
    """Draw a body that uses its operands and returns a computed value, an operand and a literal."""
    dtype = dtypes.float64 if smooth else draw(st.sampled_from([dtypes.float64, dtypes.int32]))
    aval = Aval(draw(shapes(2)), dtype)
    b = Builder()
    x, y = b.inputs((aval, aval))
    z = b.one(ew.MUL, x, b.one(ew.SIN, y) if dtype == dtypes.float64 else y)
    others: list[Var | Lit] = [y, z, Lit.of(2, aval)]
    outs = [z, *draw(st.lists(st.sampled_from(others), max_size=2))]
    return b.build(outs, "body"), [(aval, ORDINARY), (aval, ORDINARY)]


def _draw_call(draw: st.DrawFn, smooth: bool) -> Spec:
    body, operands = _draw_body(draw, smooth)
    return Call(body), operands


_LABELS: Final = st.sampled_from(["a", "b"])


def _name(draw: st.DrawFn, smooth: bool) -> Spec:
    aval = Aval(draw(shapes()), dtype_of(draw, ANY, smooth))
    return Name(draw(_LABELS)), [(aval, ORDINARY if smooth else SPECIAL)]


def _keep(draw: st.DrawFn, smooth: bool) -> Spec:
    outer = tuple(draw(st.lists(_LABELS, max_size=2)))
    return Keep(draw(_LABELS), outer), _name(draw, smooth)[1]


def _draw_remat(draw: st.DrawFn, smooth: bool) -> Spec:
    body, operands = _draw_body(draw, smooth)
    return Remat(body, draw(st.booleans())), operands


_OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        **draw_elementwise.OWN,
        **draw_shapes.OWN,
        **draw_linalg.OWN,
        **draw_sort.OWN,
        **draw_fft.OWN,
        **draw_special.OWN,
        **draw_arrays.OWN,
        **draw_branches.OWN,
        **draw_collectives.OWN,
        **draw_conv.OWN,
        **draw_custom.OWN,
        **draw_implicit.OWN,
        **draw_indexing.OWN,
        **draw_host.OWN,
        **draw_random.OWN,
        **draw_scan.OWN,
        **draw_shard_map.OWN,
        Call: _draw_call,
        Remat: _draw_remat,
        Name: _name,
        Keep: _keep,
    }
)


def _specs(kind: type[Primitive]) -> Specs | None:
    if kind in _OWN:
        return _OWN[kind]
    if issubclass(kind, Unary):
        return draw_elementwise.elementwise(kind(), 1, kind.takes)
    if issubclass(kind, Binary | Compare):
        return draw_elementwise.elementwise(kind(), 2, kind.takes)
    return None


# A strategy for applications of each primitive. A primitive that is missing here fails the coverage test.
SPECS: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {kind: specs for kind in ALL if (specs := _specs(kind)) is not None}
)


def calls(primitive: type[Primitive], *, smooth: bool = False) -> st.SearchStrategy[Application]:
    """Applications of a primitive of `fxad.primitives.ALL`. `applications` draws those of your own.

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
