"""Complex elementwise functions and their derivatives against mpmath, close to poles, cuts, overflow and underflow.

An error is one of the larger part, in units of its last place: the smaller part of a result may have lost its digits. A
zero part lies on the side of its sign, so that the true value is that of the limit from this side.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import copysign, isfinite, pi
from typing import Any, Final

import mpmath
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import Array, lax, nn

mp = mpmath.mp
Complex = Any  # mpmath has no types
Function = Callable[[Complex], Complex]
BITS: Final = 600
SIDE: Final = mpmath.mpf(2) ** -300  # beside a zero: far less than each number of the grid
ULPS: Final = 48.0


def _root(z: Complex) -> Complex:
    return mp.sqrt(1 - z) * mp.sqrt(1 + z)


def _along_i(f: Function) -> Function:
    """f(i z)."""
    return lambda z: f(mp.mpc(-z.imag, z.real))


def _sinc_slope(z: Complex) -> Complex:
    return (mp.cos(mp.pi * z) - mp.sin(mp.pi * z) / (mp.pi * z)) / z


# the function, its value and its derivative
FUNCTIONS: Final[dict[str, tuple[Callable[[Any], Array], Function, Function]]] = {
    "exp": (fnp.exp, mp.exp, mp.exp),
    "expm1": (fnp.expm1, mp.expm1, mp.exp),
    "log": (fnp.log, mp.log, lambda z: 1 / z),
    "log1p": (fnp.log1p, lambda z: mp.log(1 + z), lambda z: 1 / (1 + z)),
    "sqrt": (fnp.sqrt, mp.sqrt, lambda z: 1 / (2 * mp.sqrt(z))),
    "rsqrt": (lax.rsqrt, lambda z: 1 / mp.sqrt(z), lambda z: -1 / (2 * mp.sqrt(z) ** 3)),
    "sin": (fnp.sin, mp.sin, mp.cos),
    "cos": (fnp.cos, mp.cos, lambda z: -mp.sin(z)),
    "tan": (fnp.tan, mp.tan, lambda z: 1 / mp.cos(z) ** 2),
    "sinh": (fnp.sinh, mp.sinh, mp.cosh),
    "cosh": (fnp.cosh, mp.cosh, mp.sinh),
    "tanh": (fnp.tanh, mp.tanh, lambda z: 1 / mp.cosh(z) ** 2),
    "arcsin": (fnp.arcsin, mp.asin, lambda z: 1 / _root(z)),
    "arccos": (fnp.arccos, mp.acos, lambda z: -1 / _root(z)),
    "arctan": (fnp.arctan, mp.atan, lambda z: 1 / (1 + z * z)),
    "arcsinh": (fnp.arcsinh, mp.asinh, _along_i(lambda z: 1 / _root(z))),
    "arccosh": (fnp.arccosh, mp.acosh, lambda z: 1 / (mp.sqrt(z - 1) * mp.sqrt(z + 1))),
    "arctanh": (fnp.arctanh, mp.atanh, lambda z: 1 / (1 - z * z)),
    "logistic": (nn.sigmoid, lambda z: 1 / (1 + mp.exp(-z)), lambda z: 1 / (2 + mp.exp(z) + mp.exp(-z))),
    "sinc": (fnp.sinc, lambda z: mp.sin(mp.pi * z) / (mp.pi * z), _sinc_slope),
    "reciprocal": (fnp.reciprocal, lambda z: 1 / z, lambda z: -1 / z**2),
    "square": (fnp.square, lambda z: z * z, lambda z: 2 * z),
    "sign": (fnp.sign, lambda z: z / abs(z) if abs(z) > 1e-80 else z, lambda z: z),
}


def _grid() -> np.ndarray:
    limits = np.finfo(np.float32)
    top, tiny = float(limits.max), float(limits.tiny)
    parts = [0.0, tiny * 1.5, tiny**0.5 / 3, 1e-7, 0.1, 0.5, 1.0, 1 + 2.0**-23, pi / 2, pi, 28.4, 89.3, 1e10, top / 7]
    both = [sign * p for p in parts for sign in (1.0, -1.0)]
    return np.array([complex(a, b) for a, b in product(both, both)], np.complex64)


def _beside(z: complex, distance: Complex) -> Complex:
    """z, moved off the axes to the side that the sign of a zero tells."""
    a, b = [copysign(1, p) * distance if p == 0 else mp.mpf(p) for p in (z.real, z.imag)]
    return mp.mpc(a, b)


def _truth(true: Function, z: complex) -> tuple[Complex, Complex] | None:
    """The parts of the true value, or None where it has no limit from this side."""
    try:
        v, w = [mp.mpc(true(_beside(z, distance))) for distance in (SIDE, 2 * SIDE)]
    except (ZeroDivisionError, OverflowError):
        return None
    return (v.real, v.imag) if abs(v - w) < 1e-12 * abs(v) else None


def _faults(grid: np.ndarray, found: np.ndarray, true: Function, by_parts: bool) -> list[str]:
    """The points where a value is wrong. Where one part overflows, the other is right if `by_parts`."""
    limits = np.finfo(np.float32)
    top, eps, tiny = float(limits.max), float(limits.eps), float(limits.tiny)
    lines = []
    for z, w in zip(grid.tolist(), found.tolist(), strict=True):
        parts = _truth(true, z)
        if parts is None or not 100 * tiny < max(map(abs, parts)):
            continue
        size = max(map(abs, parts))
        for have, want in zip((w.real, w.imag), parts, strict=True):
            if size < top / 8:
                wrong = not isfinite(have) or abs(have - want) > ULPS * eps * size
            elif not by_parts or 0 in (z.real, z.imag):
                continue
            elif abs(want) > top / 8:
                wrong = not have * copysign(1, want) > top / 16
            else:
                wrong = not abs(have - want) <= ULPS * eps * max(abs(want), tiny)
            if wrong:
                lines.append(f"{z}: {w}, by mpmath {mp.nstr(mp.mpc(*parts), 8)}")
    return lines


GRID: Final = _grid()
BY_PARTS: Final = frozenset({"exp", "expm1", "sin", "cos", "sinh", "cosh"})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives(name: str) -> None:
    function, value, derivative = FUNCTIONS[name]
    with mpmath.workprec(BITS), np.errstate(all="ignore"):
        found, slope = fx.jit(lambda z: fx.jvp(function, (z,), (fnp.ones_like(z),)))(GRID)
        assert _faults(GRID, np.asarray(found), value, name in BY_PARTS) == []
        if name != "sign":  # it has no complex derivative
            assert _faults(GRID, np.asarray(slope), derivative, name in BY_PARTS) == []
