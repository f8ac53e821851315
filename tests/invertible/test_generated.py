"""Laws of `inverse` and `invertible` over chains of drawn steps, plain, in a loop and batched."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

STEPS: tuple[Any, ...] = (
    lambda a, b, w: (a + fnp.sin(b * w), b),
    lambda a, b, w: (a, b * fnp.exp(fnp.tanh(a))),
    lambda a, b, w: (b, a),
    lambda a, b, w: (fnp.flip(a), b - w),
    lambda a, b, w: (fnp.arcsinh(a), b),
    lambda a, b, w: (a, fnp.concatenate([b[1:], b[:1] * 2])),
    lambda a, b, w: fx.jit(lambda a, b: (a - fnp.cos(b), b * 0.5))(a, b),
    lambda a, b, w: lax.cond(w[0] > 0, lambda a, b: (a * 2, b), lambda a, b: (b, a + 1), a, b),
)
X = (np.array([0.5, -1.25, 0.75]), np.array([0.25, 1.0, -0.5]))
W = np.array([0.25, -0.5, 1.5])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=5), st.booleans())
def test_a_chain_comes_back_and_has_its_gradient(which: list[int], looped: bool) -> None:
    def once(x: Any, w: Any) -> Any:
        for k in which:
            x = STEPS[k](*x, w)
        return x

    def f(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, r: (once(c, r), None), x, fnp.stack([w, -w, w * 2]))[0] if looped else once(x, w)

    program = fx.trace(f, X, W)
    for a, b in zip(fx.inverse(program)(program(X, W), W), X, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-7, atol=1e-9)
    both = [
        fx.grad(fx.trace(lambda x, w, p=p: fnp.sum(fnp.sin(fnp.stack(p(x, w)))), X, W), (0, 1))(X, W)
        for p in (program, fx.invertible(program, keep="w"))
    ]
    for a, b in zip(fx.tree.leaves(both[0]), fx.tree.leaves(both[1]), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-7, atol=1e-9)
