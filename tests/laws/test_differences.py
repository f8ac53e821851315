"""The central differences that the laws compare with: they find a wrong derivative and accept a right one, near a kink
too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fxad.testing.compare import differ, tangent_error

Fun = Callable[[Any], Any]


def relu(x: Any) -> Any:
    return np.maximum(x, 0.0)


def error(f: Fun, at: object, tangent: object) -> str:
    """Compares a derivative of f at a point, along ones, with differences. Returns the error as text, "" if there is
    none."""
    x = np.asarray(at)
    return tangent_error(lambda t: [np.asarray(f(x + t))], [np.asarray(tangent, x.dtype)])


SMOOTH: list[tuple[Fun, float, float]] = [
    (np.sin, 0.3, np.cos(0.3)),
    (np.exp, 5.0, np.exp(5.0)),
    (lambda x: 1e3 * x * x, 0.0, 0.0),
    (lambda x: x**3, 0.0, 0.0),
    (np.sqrt, 1e-2, 5.0),
]


@pytest.mark.parametrize(("f", "at", "slope"), SMOOTH)
def test_a_derivative_is_the_slope(f: Fun, at: float, slope: float) -> None:
    assert not error(f, at, slope)
    size = max(1.0, abs(slope))
    for wrong in (slope + 1e-2 * size, slope - 1e-2 * size, -slope or 1.0, np.nan, np.inf):
        assert f"tangent 0: got {wrong}, central difference" in error(f, at, wrong)


NEAR = [0.0, 1e-3, 1e-5, 1e-6, 1.5e-6, 3e-7, 1e-9, -1e-3, -1e-5, -1e-6, -1.5e-6, -3e-7, -1e-9]


@pytest.mark.parametrize("at", NEAR)
def test_a_derivative_next_to_a_kink(at: float) -> None:
    assert not error(np.abs, at, np.sign(at))
    assert not error(relu, at, float(at > 0))
    for wrong in (2.0, -2.0, 1.01, -1.01, np.nan):
        assert "on the two sides" in error(np.abs, at, wrong)
    for wrong in (3.0, 1.01, -0.01, -1.0, np.inf):
        assert "on the two sides" in error(relu, at, wrong)


def test_at_a_kink_all_slopes_between_the_two_are_right() -> None:
    for slope in (-1.0, -0.5, 0.0, 0.5, 1.0):
        assert not error(np.abs, 0.0, slope)
        assert bool(error(relu, 0.0, slope)) == (slope < 0)


@pytest.mark.parametrize("at", [1e-3, -1e-3, 1e-5, -1e-5])
def test_away_from_a_kink_there_is_one_slope(at: float) -> None:
    for slope in (0.0, 0.5, -np.sign(at)):
        assert error(np.abs, at, slope)


def test_a_kink_excuses_no_other_element() -> None:
    at = np.array([0.0, 0.5, -1e-8])
    assert not error(np.abs, at, [0.3, 1.0, -1.0])
    assert error(np.abs, at, [0.3, 0.9, -1.0])
    assert error(np.abs, at, [1.1, 1.0, -1.0])
    assert "tangent 1: " in tangent_error(lambda t: [np.abs(t + 0 * at), np.sin(at + t)], [0 * at, np.cos(at) + 0.1])


def test_both_parts_of_complex_numbers() -> None:
    def f(x: Any) -> Any:
        return np.abs(x.real) + 1j * relu(x.real)

    assert not error(f, 0j, 0.5 + 0.5j)
    assert error(f, 0j, 0.5 - 0.5j)
    assert error(f, 0j, 1.5 + 0.5j)


def test_any_derivative_is_accepted_where_a_function_is_infinite() -> None:
    assert not error(lambda x: x - np.inf, 0.0, 7.0)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_sign_of_zero(dtype: str) -> None:
    have, want = np.zeros(2, dtype), -np.zeros(2, dtype)
    assert not differ([have], [want])
    assert differ([have], [want], exact=True)
    assert not differ([have], [want], exact=True, signs=False)
    assert differ([have + np.asarray(1e-30, dtype)], [want], exact=True, signs=False)
