"""`idle_examples`: an example that takes no part in a body adds nothing to a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import BOOL_SCALAR
from fxad.primitives.control.idle_examples import replace_idle_operands, slope_operands

X = np.array([4.0, 0.0, -1.0, 9.0], np.float32)  # the slope of sqrt is infinite at 0, and nan at -1


def branch(w: Any, x: Any) -> Any:
    return lax.cond(x > 0, lambda w, x: fnp.sqrt(x * w) / x, lambda w, x: w * x, w, x)


def loop(w: Any, x: Any) -> Any:
    steps = lambda c: (c[0] - 1, fnp.sqrt(c[1]) * w)  # noqa: E731
    return lax.while_loop(lambda c: c[0] > 0, steps, (x, x), max_steps=12)[1]


def scanned(w: Any, x: Any) -> Any:
    return lax.fori_loop(0, fnp.asarray(x, dtype="int32"), lambda i, c: fnp.sqrt(c) * w, x)


@pytest.mark.parametrize("f", [branch, loop])
@pytest.mark.parametrize("shared", [True, False])
def test_the_gradient_is_that_of_a_loop_over_the_examples(f: Any, shared: bool) -> None:
    w: Any = np.float32(1.5) if shared else np.array([1.5, 0.5, 2.0, 1.0], np.float32)
    total: Any = lambda w, x: fx.vmap(f, in_axes=(None if shared else 0, 0))(w, x).sum()  # noqa: E731
    have_w, have_x = fx.grad(total, argnums=(0, 1))(w, X)
    each = [fx.grad(f, argnums=(0, 1))(w if shared else w[k], X[k]) for k in range(len(X))]
    slopes_w = np.array([float(a) for a, _ in each])
    np.testing.assert_allclose(have_w, slopes_w.sum() if shared else slopes_w, rtol=1e-5)
    np.testing.assert_allclose(have_x, [float(b) for _, b in each], rtol=1e-5)


@pytest.mark.parametrize("zero_affine_operands", [True, False])
def test_operands_of_active_examples_stay(zero_affine_operands: bool) -> None:
    body = fx.trace(lambda w, x, s: fnp.sqrt(x) * w + s, *[fx.Spec((), "float32")] * 3).jaxpr
    assert slope_operands(body)[1]
    size, dims = 4, (None, 0, 0)
    b = Builder()
    active = b.input(BOOL_SCALAR.with_shape((size,)))
    ins = [b.input(v.aval if d is None else v.aval.with_shape((size,))) for v, d in zip(body.ins, dims, strict=True)]
    replaced = replace_idle_operands(
        b, body, ins, dims, active, zero_affine_operands=zero_affine_operands, some_active=True
    )
    program = b.build(replaced)
    typecheck(program)
    flags = np.array([True, False, True, False])
    values = [np.array(2, np.float32), X, X + 1]
    w, x, s = run(program, [flags, *values])
    assert w == 2
    np.testing.assert_array_equal(x[flags], X[flags])
    np.testing.assert_array_equal(s[flags], X[flags] + 1)
    if zero_affine_operands:  # the body is affine in s
        assert not s[~flags].any()
