"""Draws applications of Fourier transforms and of top_k."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Aval, Primitive
from fxad.primitives.elementwise.family import FLOAT32_OR_64, ORDERED
from fxad.primitives.fft import KINDS, Fft
from fxad.primitives.top_k import TopK
from fxad.testing.applications import Spec, Specs, dtype_of
from fxad.testing.values import ORDINARY, SPECIAL, shapes, with_long_axis


def _fft(draw: st.DrawFn, smooth: bool) -> Spec:
    kind = draw(st.sampled_from(KINDS))
    lengths = tuple(draw(st.lists(st.sampled_from((2, 1, 3, 4, 5)), min_size=1, max_size=3)))
    last = lengths[-1] // 2 + 1 if kind == "IRFFT" else lengths[-1]
    shape = (*draw(shapes(2)), *lengths[:-1], last)
    return Fft(kind, lengths), [
        (Aval(shape, dtype_of(draw, FLOAT32_OR_64 if kind == "RFFT" else dtypes.COMPLEX, smooth)), ORDINARY)
    ]


def _top_k(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes(min_rank=1))
    shape = draw(with_long_axis(shape, len(shape) - 1, 40))
    prim = TopK(draw(st.integers(0, min(shape[-1], 4))))
    return prim, [(Aval(shape, dtype_of(draw, ORDERED, smooth)), ORDINARY if smooth else SPECIAL)]


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType({Fft: _fft, TopK: _top_k})
