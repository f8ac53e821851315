"""Couplings by masks: a known mask selects the elements that are solved for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import NotInvertibleError
from fxad.testing import Inversion, check_inverse
from fxad.testing.derivative_laws import check_same_derivatives
from fxad.transforms.inversion.invertible import invertible
from fxad.transforms.vmap import vmap
from tests.invertible.rules import near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 6))
MASK = np.array([True, False, True, True, False, False])
A = RNG.normal(size=(6, 6))


def masked(x: Any, m: Any) -> Any:
    """Real NVP with a mask: Dinh, Sohl-Dickstein and Bengio, Density estimation using Real NVP (2017), eq. 9."""
    kept = fnp.where(m, x, 0.0)
    s, t = fnp.tanh(kept @ A), kept @ A.T
    return fnp.where(m, x, x * fnp.exp(s) + t)


def twice(x: Any, m: Any) -> Any:
    return masked(masked(x, m), ~m)


def shifted(x: Any, m: Any) -> Any:
    return fnp.where(m, fnp.sinh(x), (2.0 - x) / 3.0)


def doubled(x: Any, m: Any) -> Any:
    """Two couplings: each changes the elements that the other leaves."""
    x = fnp.where(m, x + fnp.cos(fnp.where(m, 0.0, x)[:, ::-1]), x)
    return fnp.where(m, x, fnp.arcsinh(x) - fnp.where(m, x, 1.0))


@pytest.mark.parametrize("f", [masked, twice, shifted, doubled])
@pytest.mark.parametrize("mask", [MASK, ~MASK, np.zeros(6, np.bool_), X > 0])
def test_masked_couplings(f: Callable[..., Any], mask: Any) -> None:
    program = fx.trace(f, X, mask)
    y = fx.interpret(program, X, mask)
    back, log_det = fx.interpret(fx.inverse(program, log_det=True), y, mask)
    near(np.asarray(back), X, rtol=1e-9, atol=1e-9)
    dense = np.asarray(fx.interpret(fx.jacfwd(program), X, mask)).reshape(X.size, X.size)
    near(np.asarray(log_det), np.linalg.slogdet(dense)[1], rtol=1e-8, atol=1e-9)
    slopes = [
        fx.trace(fx.grad(lambda x, m, g=g: fnp.sum(fnp.sin(g(x, m)))), X, mask) for g in (fx.invertible(f, keep="m"), f)
    ]
    have, want = [fx.interpret(slope, X, mask) for slope in slopes]
    near(np.asarray(have), np.asarray(want), rtol=1e-7, atol=1e-9)


@given(
    st.lists(st.sampled_from(["where", "add", "scale", "sinh", "flip"]), min_size=1, max_size=5), st.integers(0, 999)
)
def test_generated_masks(steps: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, m = rng.normal(size=5), rng.random(5) < 0.5

    def f(x: Any, m: Any) -> Any:
        for k, name in enumerate(steps):
            other = fnp.where(m, x, 0.5)
            by = fnp.sin(other[::-1] + fnp.sum(other)) + k
            match name:
                case "where":
                    x = fnp.where(m, x, x * (2.0 + fnp.sin(by)) - by)
                case "add":
                    x = fnp.where(m, x, by - x)
                case "scale":
                    x = x * (1.5 if k else -0.5)
                case "sinh":
                    x = fnp.where(m, x, fnp.arcsinh(x + by))
                case _:
                    m = ~m
        return x

    program = fx.trace(f, x, m)
    back, log_det = fx.interpret(fx.inverse(program, log_det=True), fx.interpret(program, x, m), m)
    near(np.asarray(back), x, rtol=1e-6, atol=1e-6)
    dense = np.asarray(fx.interpret(fx.jacfwd(program), x, m))
    near(np.asarray(log_det), np.linalg.slogdet(dense)[1], rtol=1e-6, atol=1e-6)


def test_branches_of_each_example() -> None:
    """vmap over predicates makes a selection of a branch. Its elementwise branches are inverted."""

    def f(x: Any, p: Any) -> Any:
        return fx.lax.cond(p, lambda x: fnp.sinh(x), lambda x: x * 2 + 1, x)

    p = np.array([True, False, True])
    mapped = fx.vmap(f)
    near(np.asarray(fx.inverse(fx.trace(mapped, X, p))(mapped(X, p), p)), X, rtol=1e-12)
    have = fx.grad(lambda x: fnp.sum(fnp.sin(fx.invertible(mapped, keep=1)(x, p))))(X)
    near(np.asarray(have), np.asarray(fx.grad(lambda x: fnp.sum(fnp.sin(mapped(x, p))))(X)), rtol=1e-9)


def test_elements_that_a_mask_drops_are_refused() -> None:
    for f in (
        lambda x, m: fnp.where(m, x, 0.0),
        lambda x, m: fnp.where(m, x, fnp.sin(x)),
        lambda x, m: fnp.where(m, x, x[:, ::-1] + 0.0),
        lambda x, m: fnp.where(m, x, x * x),
        lambda x, m: fnp.where(m, x, x + fnp.sum(x)),
    ):
        with pytest.raises(NotInvertibleError):
            fx.inverse(fx.trace(f, X, MASK))


def test_an_inverse_of_an_inverse() -> None:
    """The first inverse selects nan for lost values; the inverse of this selection is the value."""
    for g in (lambda x: fnp.exp(x) * 2, fnp.tanh, lambda x: 3 / fnp.arcsinh(x)):
        x = np.abs(X[0]) + 0.25
        there = fx.trace(g, x)
        back = fx.inverse(there)
        again = fx.inverse(fx.trace(back, there(x)))
        near(np.asarray(again(x)), np.asarray(there(x)), rtol=1e-9)
    with pytest.raises(NotInvertibleError, match="the result does not say which case was chosen"):
        fx.inverse(fx.trace(lambda x: fnp.where(x > 0, x, 0.0), X))


def test_elements_that_a_mask_does_not_select_reach_no_derivative() -> None:
    """The reconstruction of elements that the mask does not select divides by w = 0. Reverse mode must not multiply it
    by 0."""
    w, m = np.array([0.3, 0.0, 0.7]), np.array([True, False, True])
    x = np.array([0.5, -1.25, 0.75])

    def f(x: Any, w: Any, m: Any) -> Any:
        return fnp.where(m, fnp.arctan(x * w), x * 2.0)

    case = Inversion.of(f, x, w, m, keep=("w", "m"), measured=True)
    check_inverse(case)
    check_same_derivatives(case.case, invertible(case.program, case.kept), 1e-6)
    back = fx.inverse(fx.trace(f, x, w, m), log_det=True)

    def log_det(w: Any) -> Any:
        return back(f(x, w, m), w, m)[1]

    slope = fx.interpret(fx.trace(fx.grad(log_det), w), w)
    assert np.isfinite(np.asarray(slope)).all()


@pytest.mark.parametrize("slope", [0.5, 0.0])
@pytest.mark.parametrize("chosen", [False, True])
def test_a_branch_that_is_not_selected_is_not_reconstructed(chosen: bool, slope: float) -> None:
    """Results of the first branch are outside of the range of arctan. For w = 0 the other branch is not invertible at
    all."""

    def f(x: Any, w: Any, p: Any) -> Any:
        return lax.cond(p, lambda x: fnp.arctan((x + fnp.sin(w)) * 0.5), lambda x: x + 2.0 * w, x + fnp.sin(w))

    def g(x: Any, w: Any, p: Any) -> Any:
        return lax.cond(p, lambda x: x * w, lambda x: x + 2.0 * w, x + fnp.sin(w))

    x, w = np.array([[0.5, 2.0, 0.7], [1.5, 0.25, 1.0]]), np.array([[1.1, slope, 0.9], [0.5, 1.5, 0.25]])
    for h, p in ((f, chosen), (g, False)):
        one = Inversion.of(h, x[0], w[0], np.array(p), keep=("w", "p"))
        both = Inversion.of(fx.vmap(h), x, w, np.array([p, True]), keep=("w", "p"))
        lean = vmap(invertible(one.program, one.kept), 2, (0, 0, 0), (0,))[0]
        check_same_derivatives(both.case, lean, 1e-6)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32])
def test_a_mask_and_its_complement_that_are_converted_to_another_dtype_are_not_a_choice(dtype: Any) -> None:
    """For m = 0.5 both factors are True, or both are 0. So they are no complements."""

    def f(x: Any, m: Any) -> Any:
        return m.astype(dtype).astype(x.dtype) * x + (1 - m).astype(dtype).astype(x.dtype) * (x * 2.0)

    def g(x: Any, m: Any) -> Any:
        m = m.astype(dtype).astype(x.dtype)
        return m * x + (1 - m) * (x * 2.0)

    x, m = np.arange(1.0, 5.0), np.full(4, 0.5)
    with pytest.raises(NotInvertibleError, match="add is not inverted: both operands are unknown"):
        fx.inverse(f)(fx.trace(f, x, m)(x, m), m)
    near(np.asarray(fx.inverse(g)(fx.trace(g, x, m)(x, m), m)), x)


@pytest.mark.parametrize("stopped_first", [False, True])
@pytest.mark.parametrize("behind", [lambda x: x, lambda x: x * 2.0 + 1.0, fnp.sinh])
def test_elements_whose_derivative_is_stopped(behind: Any, stopped_first: bool) -> None:
    """A choice between x and x behind `stop_gradient` has the value of x, and not its derivative."""
    chosen, x = np.array([True, False, True]), np.array([1.0, 1.5, 0.25])

    def f(x: Any) -> Any:
        cases = x, fx.stop_gradient(x)
        return behind(fnp.where(chosen, *cases[:: -1 if stopped_first else 1]))

    def slope(f: Any) -> Any:
        return fx.grad(lambda x: fnp.sum(f(x) ** 3))

    np.testing.assert_allclose(slope(fx.invertible(f))(x), slope(f)(x))
    np.testing.assert_allclose(fx.jacrev(slope(fx.invertible(f)))(x), fx.jacrev(slope(f))(x))
    np.testing.assert_allclose(fx.inverse(f)(f(x)), x)
