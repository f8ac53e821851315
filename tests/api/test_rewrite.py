"""`remat`, `dce`, `cse`, `simplify`, `inline`, `outline`, `reroll` on programs and callables keep results and
derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.core.interpreter import run
from fxad.testing import differ
from fxad.transforms import vjp_fused
from tests.api.refusals import X

REWRITES: dict[str, Callable[[Any], Any]] = {
    "remat": fx.remat,
    "dce": fx.dce,
    "cse": fx.cse,
    "simplify": fx.simplify,
    "inline": fx.inline,
    "outline": fx.outline,
    "reroll": fx.reroll,
}
W = np.full(3, 2, np.float32)


def f(p: Any, *, k: Any = 2.0) -> Any:
    @fx.jit
    def block(x: Any) -> Any:
        return fnp.sin(x) * W + fnp.sin(x)

    unused = fnp.exp(p["x"])  # noqa: F841
    return {"y": block(p["x"]) * k + 0, "z": (block(p["x"]), p["x"])}


def values(t: Any) -> list[Any]:
    return [np.asarray(x).tolist() for x in fx.tree.leaves(t)]


@pytest.mark.parametrize("name", REWRITES)
def test_the_same_function(name: str) -> None:
    rewrite = REWRITES[name]
    p = {"x": X}
    program = fx.trace(f, p, k=3.0)
    want = values(program(p, k=3.0))
    assert values(rewrite(f)(p, k=3.0)) == want
    made: Any = rewrite(program)
    compiled: Any = fx.lower(made).compile()
    assert made.in_tree == program.in_tree
    assert made.out_tree == program.out_tree
    assert made.name == "f"
    assert made.bound == program.bound
    assert values(made(p, k=3.0)) == want
    assert values(compiled(p, k=3.0)) == want
    assert values(fx.interpret(made, p, k=3.0)) == values(fx.interpret(program, p, k=3.0))
    fx.typecheck(made.jaxpr)
    assert rewrite(fx.trace(f, p, k=3.0)).jaxpr is made.jaxpr
    if name != "remat":
        assert rewrite(made).jaxpr is made.jaxpr
        assert len(made.jaxpr.eqns) <= len(fx.inline(program).jaxpr.eqns)


@pytest.mark.parametrize("name", REWRITES)
@pytest.mark.parametrize("other", REWRITES)
def test_they_compose_with_each_other_and_with_derivatives(name: str, other: str) -> None:
    def loss(x: Any) -> Any:
        return (f({"x": x})["y"] ** 2).sum()

    want = values(fx.grad(loss)(X))
    a, b = REWRITES[name], REWRITES[other]
    for g in (
        fx.grad(a(b(loss))),
        a(fx.grad(b(loss))),
        a(b(fx.grad(loss))),
        fx.vmap(a(fx.grad(b(loss))), None, None, axis_size=2),
    ):
        np.testing.assert_allclose(values(g(X)), want, rtol=1e-6)


def test_the_effect_of_each_pass() -> None:
    program = fx.trace(f, {"x": X})
    assert [e.prim.name for e in fx.remat(program).jaxpr.eqns] == ["remat"]
    assert "exp" in str(program.jaxpr)
    assert "exp" not in str(fx.dce(program).jaxpr)
    assert "call" not in {e.prim.name for e in fx.inline(program).jaxpr.eqns}
    assert [e.prim.name for e in fx.cse(fx.inline(program)).jaxpr.eqns].count("sin") == 1


def test_remat_saves_memory_in_compiled_code() -> None:
    """64 layers in 8 segments need at most 18 arrays of temporaries instead of 64; the gradient is the same, bit for
    bit."""
    n = 128
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, n)).astype(np.float32)
    ws = [(rng.normal(size=(n, n)) / np.sqrt(n)).astype(np.float32) for _ in range(64)]

    def segment(x: Any, ws: Any) -> Any:
        for w in ws:
            x = fnp.tanh(x @ w)
        return x

    def gradient(call: Any) -> Any:
        def loss(x: Any, ws: Any) -> Any:
            for k in range(0, 64, 8):
                x = call(x, ws[k : k + 8])
            return fnp.sum(x)

        return fx.lower(fx.grad(fx.trace(loss, x, ws))).compile()

    plain, lean = gradient(segment), gradient(fx.remat(segment))
    assert plain.memory().temp_bytes >= 60 * x.nbytes
    assert lean.memory().temp_bytes <= 18 * x.nbytes
    np.testing.assert_array_equal(lean(x, ws), plain(x, ws))


def test_a_segment_of_values_with_one_tangent() -> None:
    """x + 1 and x + 2 have the same tangent. Their contributions to the cotangent of x are added in one order."""

    def pair(a: Any, b: Any) -> Any:
        return fnp.sin(a), fnp.sin(b)

    def model(inner: Any) -> Any:
        return lambda x: (x, *inner(x + 1.0, x + 2.0))

    rng = np.random.default_rng(0)
    x, *cts = [rng.standard_normal(100) for _ in range(4)]
    plain, lean = [vjp_fused(fx.trace(model(f), x).jaxpr, (True,)) for f in (pair, fx.remat(pair))]
    have, want = run(lean, [x, *cts])[-1], run(plain, [x, *cts])[-1]
    assert not differ([have], [want], exact=True)
