"""Cotangents of parts of an array are joined, and have the values that padded arrays add up to.

The law: reverse mode with pieces and without them give equal numbers, not only close ones, also if parts overlap, if
other equations read the array too, and if a part is read in a `remat`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fxad as fx
import fxad.numpy as fnp
from fxad.core.interpreter import run
from fxad.ir import Jaxpr
from fxad.transforms.ad import cotangent_pieces, transpose as module

SHAPE = (5, 4)
Part = Callable[[Any], Any]
PARTS: list[Part] = [
    lambda x: x[0].sum(),
    lambda x: x[1:3] * 3.0,
    lambda x: x[2:4] * 0.7,
    lambda x: x[:, 1] * 0.1,
    lambda x: x[:, 2:] * 1.3,
    lambda x: x[::2] * 1.7,
    lambda x: x[1:3] * 0.9,
    lambda x: x * 0.3,
    lambda x: x[4, 1] * 2.1,
    lambda x: fx.remat(lambda y: y[0] * 1.9 + y[1] * 0.3 + y[0] * 0.7)(x),
    lambda x: fnp.concatenate([x[3:], x[:1]]) * 0.6,
]


def pulled(jaxpr: Jaxpr, cts: list[Any], parts: tuple[type, ...]) -> tuple[Jaxpr, Any]:
    """The adjoint of a linear program, with these primitives as parts, and its value."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PARTS", parts)
        back = module.transpose.__wrapped__(jaxpr, (True,))  # type: ignore[attr-defined]  # not the remembered one
    return back, np.asarray(run(back, cts)[0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(range(len(PARTS))), min_size=1, max_size=8))
def test_pieces_give_equal_numbers(chosen: list[int]) -> None:
    jaxpr = fx.trace(lambda x: [PARTS[k](x) for k in chosen], fx.Spec(SHAPE, "float32")).jaxpr
    rng = np.random.default_rng(len(chosen))
    cts = [rng.standard_normal(a.shape).astype(np.float32) for a in jaxpr.out_avals]
    joined, value = pulled(jaxpr, cts, cotangent_pieces.PARTS)
    padded, expected = pulled(jaxpr, cts, ())
    np.testing.assert_array_equal(value, expected)
    assert len(joined.eqns) <= len(padded.eqns)


def names(f: Callable[[Any], Any], *shape: int) -> list[str]:
    gradient = fx.grad(fx.trace(lambda x: fnp.sum(f(x)), fx.Spec(shape, "float32")))
    return [eqn.prim.name for eqn in fx.inline(gradient).jaxpr.eqns]


def test_components_are_joined_by_one_equation() -> None:
    found = names(lambda x: x[0] * x[1] + x[1] * x[2] + x[2] * x[0], 3)
    assert found.count("concatenate") == 1
    assert "pad" not in found


def test_one_part_is_padded() -> None:
    found = names(lambda x: fnp.sin(x[1:3]), 5)
    assert found.count("pad") == 1
    assert "concatenate" not in found


def test_gaps_are_zeros() -> None:
    gradient = fx.grad(lambda x: x[1] * x[4] + fnp.sum(x[6:8] ** 2))
    x = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(gradient(x), [0, 4, 0, 0, 1, 0, 12, 14, 0, 0])
