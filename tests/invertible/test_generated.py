"""Laws of `inverse` and `invertible` on generated invertible programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.testing import Inversion, check_inverse, check_invertible, check_stack, inversions, stacks
from fxad.testing.inverse_laws import dense_log_det
from fxad.transforms.inversion.inverse import inverse
from fxad.transforms.inversion.invertible import invertible
from tests.laws.budget import share


@given(inversions())
def test_inverse(case: Inversion) -> None:
    check_inverse(case)


@share(2)
@given(inversions(measured=True))
def test_log_det(case: Inversion) -> None:
    check_inverse(case)


@share(2)
@given(inversions(size=3, depth=1))
def test_invertible(case: Inversion) -> None:
    check_invertible(case)


@share(2)
@given(inversions(size=3, depth=1, bent=True))
def test_invertible_with_rules_that_differ_from_the_derivative(case: Inversion) -> None:
    check_invertible(case)


@share(4)
@given(inversions(size=3, depth=1), stacks(2))
def test_stacks_over_invertible(case: Inversion, stack: tuple[str, ...]) -> None:
    check_stack(stack, case.over(invertible(case.program, case.kept), case.args))


@share(4)
@given(inversions(size=3, depth=1), stacks(2))
def test_stacks_over_inverse(case: Inversion, stack: tuple[str, ...]) -> None:
    wanted = tuple([not k for k in case.kept])
    held = [a for a, k in zip(case.args, case.kept, strict=True) if k]
    back = inverse(case.program, wanted)
    check_stack(stack, case.over(back, (*run(case.program, case.args), *held)))


X = np.array([0.5, -1.25, 0.75])
W = np.array([0.25, -0.5, 1.5])


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64"])
def test_arrays_without_elements(shape: tuple[int, ...], dtype: str) -> None:
    """They are reconstructed, whether or not an equation reads them."""

    def halves(x: Any, w: Any) -> Any:
        first, second = fnp.split(x, [shape[-1] // 2], axis=-1)
        return fnp.concatenate([first, fnp.sinh(second) + fnp.sum(first) * w[..., :1]], axis=-1)

    for f in (halves, lambda x, w: fnp.arcsinh(x) * 2.0, lambda x, w: w):
        program = fx.trace(f, fnp.zeros(shape, dtype), fnp.zeros(shape, dtype))
        results = fx.interpret(program, *[np.zeros(shape, a.dtype) for a in program.in_avals])
        back = fx.interpret(fx.inverse(program), results, np.zeros(shape, program.in_avals[1].dtype))
        assert (back.shape, back.dtype) == (shape, program.in_avals[0].dtype)
        fx.invertible(program, keep="w")


def test_a_wrong_inverse_is_found() -> None:
    def scaled(x: Any, w: Any) -> Any:
        return x * (w * w)

    for back, law in [(lambda y, w: y / w**2, ""), (lambda y, w: y / w, r"inverse\(f\)\(f\(x\)\) is not x")]:
        case = Inversion.of(fx.custom_inverse(scaled, back, keep="w"), X, W, keep="w")
        assert case.kept == (False, True)
        if not law:
            check_inverse(case)
            check_invertible(case)
            continue
        with pytest.raises(AssertionError, match=law):
            check_inverse(case)
        with pytest.raises(AssertionError, match="another gradient"):
            check_invertible(case)


def test_the_dense_log_determinant() -> None:
    case = Inversion.of(lambda x: fnp.sinh(x) * 2.0, X, measured=True)
    check_inverse(case)
    assert float(dense_log_det(case)) == pytest.approx(np.sum(np.log(2 * np.cosh(X))))


def test_a_triangular_matrix_that_a_loop_reads() -> None:
    """Linearization moves the mask that makes the matrix triangular out of the loop."""

    def g(x: Any, a: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, x: x @ (0.3 * fnp.tril(a, -1) + fnp.eye(3, dtype="float64")), x)

    check_invertible(Inversion.of(g, X, np.outer(W, X), keep="a"))
