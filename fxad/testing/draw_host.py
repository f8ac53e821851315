"""Draws calls of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.host_functions import HOST
from fxad.ir import Aval, NDArray, Primitive
from fxad.primitives.check import Check
from fxad.primitives.host_call import NUMBER, PURE, HostCall
from fxad.testing.applications import ANY, DrawnOperands, DrawOperands, dtype_of
from fxad.testing.values import ORDINARY, Domain, any_values, shapes

_WHOLE: Final = Aval((), dtypes.int32)


def _doubled(x: NDArray, y: NDArray) -> Sequence[NDArray]:
    return np.add(x, x), np.asarray(y.sum(dtype=y.dtype))


def _host_call(draw: st.DrawFn, smooth: bool) -> DrawnOperands:  # noqa: ARG001  integers only: there is no derivative
    x, y = _WHOLE.with_shape(draw(shapes())), _WHOLE.with_shape(draw(shapes()))
    number = HOST.number()
    HOST.add(number, _doubled, _doubled)
    return HostCall("doubled", (x, _WHOLE), PURE), [
        (NUMBER, Domain(whole=(number, number))),
        (x, ORDINARY),
        (y, ORDINARY),
    ]


def _check(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    """Draw a check that does not fail."""
    dtype = dtype_of(draw, ANY, smooth)
    xs = [Aval(draw(shapes()), dtype) for _ in range(draw(st.integers(1, 2)))]
    field = Aval((), dtypes.float64)
    n = draw(st.integers(0, 1))
    prim = Check("wrong: {}" if n else "wrong", "an equation", "model.py:3 in f", n)
    domain = any_values(smooth)
    return prim, [(Aval((), dtypes.bool_), Domain(whole=(0, 0))), *[(field, domain)] * n, *[(x, domain) for x in xs]]


OWN: Final[Mapping[type[Primitive], DrawOperands]] = MappingProxyType({HostCall: _host_call, Check: _check})
