"""Inaccurate reconstructions are detected when the program runs, and make derivatives nan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import ArgumentError
from fxad.ir import Aval
from fxad.testing import Inversion, check_invertible, check_stack
from fxad.transforms import jvp
from fxad.transforms.inversion.invertible import invertible
from fxad.transforms.inversion.reconstruction_check import agree, sketch, sketched, tolerated

X = np.linspace(-1.5, 1.5, 6)


def absorbed(x: Any, by: Any) -> Any:
    """A large sum absorbs the digits of x, and the gradient needs x."""
    return fnp.sinh(x) + by


def slope(f: Any, **options: Any) -> Any:
    lean = fx.invertible(f, keep=1, **options)
    return fx.grad(lambda x, by: fnp.sum(lean(x, by).astype("float32")))


@pytest.mark.parametrize(("dtype", "by"), [("float16", 512), ("bfloat16", 512), ("float32", 1e7), ("float64", 1e15)])
def test_lost_digits_make_the_gradient_nan(dtype: str, by: float) -> None:
    x, much, small = fnp.asarray(X, dtype), fnp.asarray(by, dtype), fnp.asarray(0.5, dtype)
    want = np.cosh(X)
    wrong = np.asarray(slope(absorbed, tolerance=np.inf)(x, much), np.float64)
    assert np.isfinite(wrong).all()
    assert np.max(np.abs(wrong - want)) > 0.01
    assert np.isnan(np.asarray(slope(absorbed)(x, much), np.float64)[0])
    right = np.asarray(slope(absorbed)(x, small), np.float64)
    assert np.max(np.abs(right - want)) < 0.1
    loose = np.asarray(slope(absorbed, tolerance=1)(x, much), np.float64)
    np.testing.assert_array_equal(loose, wrong)


def test_lost_digits_make_every_derivative_nan() -> None:
    """Also with respect to kept operands, in the linear program from results, and of second order."""
    x, w = fnp.asarray(X, "float32"), fnp.asarray(X + 2, "float32")
    far = fnp.asarray(1e7, "float32")  # an operand: XLA would simplify a literal away before it absorbs digits

    def scaled(x: Any, w: Any) -> Any:
        return absorbed(fnp.sinh(x) * w, far)

    lean = fx.invertible(scaled, keep="w")

    def loss(x: Any, w: Any) -> Any:
        return fnp.sum(lean(x, w))

    slopes: list[Any] = [fx.grad(loss, 0), fx.grad(loss, 1), fx.jit(fx.grad(loss, 1))]
    for f in slopes:
        assert np.isnan(np.asarray(f(x, w))[0])
    assert np.isnan(np.asarray(fx.linearize(lean, x, w)[1](x, w))[0])
    second = fx.grad(lambda x: fnp.sum(slopes[1](x, w)))(x)
    assert np.isnan(np.asarray(second)).any()
    assert np.isfinite(np.asarray(fx.jvp(lean, (x, w), (x, w))[1])).all()  # forward mode reconstructs nothing


def test_each_example_and_each_step_is_checked_separately() -> None:
    by = fnp.asarray([0.5, 1e6, 0.25], "float32")
    x = fnp.asarray(np.stack([X] * 3), "float32")
    found = np.asarray(fx.vmap(slope(absorbed))(x, by))
    assert np.isnan(found[:, 0]).tolist() == [False, True, False]
    lean = fx.invertible(lambda x, by: absorbed(x, by), keep=1)
    total = fx.grad(lambda by: fnp.sum(lax.scan(lambda c, b: (lean(c, b) - b, None), x[0], by)[0]))
    assert np.isnan(np.asarray(total(by))).any()
    assert not np.isnan(np.asarray(total(by[::2]))).any()


def test_accurate_reconstructions_pass() -> None:
    lean = fx.invertible(lambda x, w: fnp.tanh(x * 3.0 + w) * 0.5, keep="w")
    for x in (np.zeros(4), np.array([0.0, -0.0, 1e-3, 5e-1]), np.zeros((0, 2)), np.array(0.25)):
        for dtype in ("float32", "float64"):
            given = fnp.asarray(x, dtype)
            found = fx.grad(lambda x: fnp.sum(lean(x, given * 0 + 0.125)))(given)
            assert np.isfinite(np.asarray(found)).all()
    # values that are not finite are not compared
    cut = fnp.asarray([0.5, -np.inf, np.inf, 1.0])
    masked = fx.grad(lambda x: fnp.sum(fnp.exp(-fnp.abs(fx.invertible(lambda x: fnp.sinh(x + 1.0)[::-1])(x)))))
    assert np.isfinite(np.asarray(masked(cut))[[0, 3]]).all()


def test_complex_numbers() -> None:
    z = fnp.asarray(X[:3] + 1j * X[3:], "complex64")
    for by, lost in ((1e7, True), (0.5, False)):
        far = fnp.asarray(by * 1j, "complex64")
        lean = fx.invertible(lambda z, far: fnp.arcsinh(z) + far, keep="far")
        _, back = fx.vjp(lambda z, lean=lean, far=far: lean(z, far), z)
        assert np.isnan(np.asarray(back(z)[0])).any() == lost


@given(
    st.sampled_from([1, 3, 64, 65, 1000, (7, 90)]),
    st.sampled_from(["float32", "float64", "float16", "complex64", "complex128"]),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_a_sketch_detects_errors(shape: Any, dtype: str, alone: bool, seed: int) -> None:
    """Errors of ten times the tolerance are detected, in one element or in all. Errors of a tenth pass."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    x = x / np.max(np.abs(x))
    aval = Aval(x.shape, dtype)
    allowed = tolerated(aval.dtype)
    b = Builder()
    was, found = b.inputs((aval, aval))
    drawn = sketch(b, was)
    assert drawn.aval is sketched(aval)
    program = b.build([agree(b, [drawn], [found], [], 0.0)])
    off = rng.choice([-1.0, 1.0], x.shape)
    if alone:
        off *= np.arange(x.size).reshape(x.shape) == rng.integers(x.size)
        off *= np.sqrt(max(x.size / 64, 1.0))
    for factor, passes in ((10.0, False), (0.1, True)):
        given = [np.asarray(v, aval.dtype) for v in (x, x + factor * allowed * off)]
        assert bool(run(program, given)[0]) is passes


@pytest.mark.parametrize("tolerance", [0, -1.0, np.nan, True, "small"])
def test_wrong_tolerances(tolerance: Any) -> None:
    with pytest.raises(ArgumentError) as e:
        fx.invertible(absorbed, tolerance=tolerance)
    assert e.value.message == f"invertible: tolerance must be a positive number, got {tolerance!r}"
    assert e.value.remedy == (
        "give the relative error that gradients may be made from; infinity, and none is looked for"
    )


@pytest.mark.parametrize(
    "other",
    [lambda k: fnp.sin(k.astype("complex128")), lambda k: k.astype("float64"), lambda k: fnp.ones(()), lambda k: 1.5j],
)
def test_results_without_a_derivative_have_none_in_either_mode(other: Any) -> None:
    """A result that depends on an integer only, or on nothing, needs no reconstruction and no check."""

    def f(x: Any, k: Any) -> Any:
        return fnp.sinh(x), k + 1, fnp.asarray(other(k))

    case = Inversion.of(f, X, np.arange(6))
    lean = invertible(case.program, case.kept)
    check_stack(("linearize", "transpose"), case.over(lean, case.args))
    assert jvp(lean, (True, False))[1] == (True, False, False)
    check_invertible(case)
