"""Couplings as flows and reversible networks write them: float masks, and updates of every other element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import NotDifferentiableError, NotInvertibleError
from fxad.testing import Inversion, check_inverse, check_invertible
from fxad.testing.derivative_laws import check_same_derivatives
from fxad.transforms.inversion.invertible import invertible
from tests.invertible.rules import near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 6))
A = RNG.normal(size=(6, 6)) * 0.3
H = RNG.normal(size=(3, 3)) * 0.3
M = np.array([1.0, 0, 1, 1, 0, 0])


def s(x: Any) -> Any:
    return fnp.tanh(x @ A)


def t(x: Any) -> Any:
    return x @ A.T


def published(x: Any, m: Any) -> Any:
    """Dinh, Sohl-Dickstein and Bengio, Density estimation using Real NVP (2017), eq. 9."""
    return m * x + (1 - m) * (x * fnp.exp(s(m * x)) + t(m * x))


def backwards(x: Any, m: Any) -> Any:
    return m * x + (1 - m) * ((x - t(m * x)) * fnp.exp(-s(m * x)))


def kept_first(x: Any, m: Any) -> Any:
    kept = x * m
    return (x * fnp.exp(s(kept)) + t(kept)) * (1.0 - m) + kept


def spread_out(x: Any, m: Any) -> Any:
    """The complement of the mask is multiplied into each term."""
    kept = m * x
    return kept + ((1 - m) * x * fnp.exp(s(kept)) + (1 - m) * t(kept))


def of_bools(x: Any, m: Any) -> Any:
    mask = m > 0.5
    return published(x, mask.astype("float64"))


def stacked(x: Any, m: Any) -> Any:
    """A mask and its complement alternate, with invertible activations in between."""
    x = fnp.arcsinh(published(x, m))
    return published(published(x, 1 - m) * 2.0, m)


def looped(x: Any, m: Any) -> Any:
    return lax.scan(lambda c, r: (fx.jit(published)(c, r), None), x, fnp.stack([m, 1 - m, m]))[0]


MASKED: list[Callable[..., Any]] = [published, backwards, kept_first, spread_out, of_bools, stacked, looped]


def at_set(x: Any) -> Any:
    return x.at[:, 1::2].set(x[:, 1::2] * fnp.exp(fnp.tanh(x[:, ::2] @ H)) + x[:, ::2] @ H)


def at_each(x: Any) -> Any:
    x = x.at[..., 1::2].multiply(fnp.exp(fnp.tanh(x[..., ::2] @ H)))
    x = x.at[..., ::2].add(x[..., 1::2] @ H)
    x = x.at[..., 1::2].subtract(fnp.sin(x[..., ::2]))
    return x.at[..., ::-2].divide(2 + fnp.tanh(x[..., ::2] @ H))


def at_thirds(x: Any) -> Any:
    return x.at[:, ::3].add(x[:, 1::3] * x[:, 2::3])


def applied(x: Any) -> Any:
    return x.at[:, 1::2].apply(fnp.sinh).at[:, ::2].power(3)


def put_together(x: Any) -> Any:
    a, b = x[..., ::2], x[..., 1::2]
    return fnp.zeros_like(x).at[..., ::2].set(a * 2).at[..., 1::2].set(b + a @ H)


def swapped(x: Any) -> Any:
    return x.at[:, :3].set(x[:, 3:]).at[:, 3:].set(x[:, :3] * 2)


def checkered(x: Any) -> Any:
    """Steps along two axes: the unchanged elements are no window."""
    return x.at[::2, 1::2].add(fnp.sin(x[1::2, ::2]))


STRIDED: list[Callable[..., Any]] = [at_set, at_each, at_thirds, applied, put_together, swapped, checkered]


def case_of(f: Callable[..., Any]) -> Inversion:
    if f in STRIDED:
        return Inversion.of(f, X, measured=True)
    return Inversion.of(lambda x, m: f(x, m.astype("float64")), X, M > 0, keep="m", measured=True)


@pytest.mark.parametrize("f", [*MASKED, *STRIDED], ids=lambda f: f.__name__)
def test_couplings(f: Callable[..., Any]) -> None:
    """The operand, the log-determinant and the gradients agree."""
    case = case_of(f)
    check_inverse(case)
    check_same_derivatives(case.case, invertible(case.program, case.kept), 1e-6)


@pytest.mark.parametrize("f", [published, at_set])
def test_all_laws(f: Callable[..., Any]) -> None:
    check_invertible(case_of(f))


def test_a_mask_that_is_an_argument() -> None:
    """First derivatives with respect to the mask are those of the function. Second ones are refused."""

    def loss(g: Any) -> Any:
        return lambda x, m: fnp.sum(fnp.sin(g(x, m)))

    def in_x(g: Any) -> Any:
        return lambda x: g(x, M)[0]

    slope, lean = [fx.trace(fx.grad(loss(g), (0, 1)), X, M) for g in (published, fx.invertible(published, keep="m"))]
    for found, want in zip(fx.interpret(lean, X, M), fx.interpret(slope, X, M), strict=True):
        near(np.asarray(found), np.asarray(want), rtol=1e-9, atol=1e-12)
    curved = [fx.trace(fx.jacfwd(in_x(g)), X) for g in (lean, slope)]
    near(np.asarray(fx.interpret(curved[0], X)), np.asarray(fx.interpret(curved[1], X)), rtol=1e-8, atol=1e-10)
    for program in (lean, fx.trace(fx.inverse(fx.trace(published, X, M)), X, M)):
        with pytest.raises(NotDifferentiableError) as e:
            fx.jacfwd(lambda m, p=program: p(X, m))(M)
        assert e.value.message == (
            "call_with_rules: coupling_by_a_mask or its rule closes over a value of type f64[2,6] (operand 0) that "
            "depends on what is differentiated; its rules say nothing about it"
        )
        assert e.value.remedy == "pass the value as an argument, or close over stop_gradient of it"
    fx.jacfwd(lambda m: lean(X, lax.stop_gradient(m)))(M)


@pytest.mark.parametrize("f", [published, kept_first])
def test_reverse_over_reverse_beside_a_float_mask(f: Callable[..., Any]) -> None:
    """Regression: the cotangent of elements that the mask drops is 0, and 0 times a guarding nan was nan."""

    def slope(g: Any) -> Any:
        return lambda x: fnp.sum(fnp.sin(fx.grad(lambda x: fnp.sum(fnp.sin(g(x, M))))(x)))

    plain, lean = [fx.trace(fx.grad(slope(g)), X) for g in (f, fx.invertible(f, keep="m"))]
    near(np.asarray(fx.interpret(lean, X)), np.asarray(fx.interpret(plain, X)), rtol=1e-8, atol=1e-10)


def test_a_mask_that_is_not_of_0_and_1() -> None:
    """It is detected when the program runs: results that depend on it, and the log-determinant, are nan."""
    soft = np.array([1.0, 0, 0.5, 1, 0, 0])
    program = fx.trace(lambda x, m: m * x + (1 - m) * fnp.sinh(x), X, soft)
    back, log_det = fx.inverse(program, log_det=True)(program(X, soft), soft)
    np.testing.assert_array_equal(np.isnan(np.asarray(back)), np.broadcast_to(soft == 0.5, X.shape))
    near(np.asarray(back)[:, soft != 0.5], X[:, soft != 0.5], rtol=1e-12)
    assert np.isnan(np.asarray(log_det))
    program = fx.trace(published, X, soft)
    assert np.isnan(np.asarray(fx.inverse(program)(program(X, soft), soft))[:, soft == 0]).all()


def test_gates_that_are_no_masks() -> None:
    """The factor and its complement are known, but are no mask: nothing is selected by them."""
    gate = np.array([0.25, 0.5, 0.75, 0.5, 0.125, 0.5])
    program = fx.trace(lambda x, z: z * fnp.cos(z) + (1 - z) * x, X, gate)
    near(np.asarray(fx.inverse(program)(program(X, gate), gate)), X, rtol=1e-12)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4), st.data())
def test_generated(steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """A sequence of slices with any start and step, and of masks."""
    n = data.draw(st.integers(1, 7))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    m = (rng.random(n) < 0.5) * 1.0

    def f(x: Any, m: Any) -> Any:
        for start, step, kind in steps:
            here = slice(start % n, None, step)
            rest = [k for k in range(n) if k not in range(n)[here]]
            by = fnp.sum(fnp.sin(x[:, rest[0]])) if rest else 0.5
            match kind:
                case 0:
                    x = x.at[:, here].add(by)
                case 1:
                    x = x.at[:, here].multiply(1.5 + fnp.sin(by))
                case 2:
                    x = x.at[:, here].set(fnp.arcsinh(x[:, here]) - by)
                case _:
                    m = 1 - m
                    x = m * x + (1 - m) * (x * 2.0 - fnp.sin(fnp.sum(m * x)))
        return x

    check_inverse(Inversion.of(f, rng.normal(size=(2, n)), m, keep="m", measured=True))


MASK = "write a coupling by a mask as where(m, x, ...), or m * x + (1 - m) * (...) with m an fxad array"
SLICE = "write to a slice, such as x.at[..., 1::2], or choose by where(m, x, ...)"
I, J = np.array([1, 3, 5]), np.array([0, 2, 4])


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(
    ("f", "equation", "remedy"),
    [
        (lambda x: M * x + (1 - M) * fnp.exp(x), "add %1:f64[2,6] %4:f64[2,6]", MASK),
        (lambda x: x * fnp.exp(s(x * M) * (1 - M)) + t(x * M) * (1 - M), "add %", MASK),
        (lambda x: x.at[:, I].add(fnp.tanh(x[:, J])), "scatter_add %arg2:f64[2,6] %arg1:i32[3,1] %", SLICE),
        (lambda x: x.at[:, I].multiply(fnp.exp(x[:, J])), "scatter_mul %arg2:f64[2,6] %arg1:i32[3,1] %", SLICE),
        (lambda x: x.at[:, I].set(fnp.sinh(x[:, I]) + x[:, J]), "scatter %arg", SLICE),
        (
            lambda x: x.at[:, 1::2].max(0.0),
            "select_n %2:bool[2,6] %arg0:f64[2,6] %3:f64[2,6]",
            "return the other elements too, as they are or changed by what stays",
        ),
    ],
)
def test_couplings_that_are_refused(f: Callable[..., Any], equation: str, remedy: str) -> None:
    """The errors name the equation, and a form that is inverted."""
    program = fx.trace(f, X)
    for transform, other in OTHERWISE:
        with pytest.raises(NotInvertibleError) as e:
            transform(program)
        assert f" = {equation}" in e.value.equation
        assert e.value.remedy == f"{remedy}; or {other} a custom_inverse"


OTHERWISE: tuple[tuple[Any, str], ...] = (
    (fx.inverse, "hold the argument (argnums), or give the function that is not inverted"),
    (fx.invertible, "name the argument in keep, close over the value, or give the function"),
)
