"""Small kernels that lose digits, each in arrays and in mpmath, with the ranges of their arguments.

They are written from the public formulas of FPBench (fpbench.org), of Hamming, Numerical methods for scientists and
engineers (1987), chapter 3, and of Higham, Accuracy and stability of numerical algorithms (2002), chapter 1.

A kernel takes a namespace and numbers. `c` is a constant of the formula, which the namespace rounds to the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import mpmath
import numpy as np

import fxad.numpy as fnp
from fxad import lax


@final
class InArrays:
    """The functions of fxad."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.exp, self.log, self.sin, self.cos, self.tan = fnp.exp, fnp.log, fnp.sin, fnp.cos, fnp.tan
        self.sqrt, self.atan = fnp.sqrt, fnp.arctan

    def c(self, value: float) -> Any:
        return fnp.asarray(value, self.dtype)

    def loop(self, step: Callable[[Any], Any], state: Any, n: int) -> Any:
        return lax.fori_loop(0, n, lambda _, s: step(s), state)

    def until(self, goes_on: Callable[[Any], Any], step: Callable[[Any], Any], state: Any, n: int) -> Any:
        return lax.while_loop(goes_on, step, state)

    def where(self, condition: Any, yes: Callable[[Any], Any], no: Callable[[Any], Any], x: Any) -> Any:
        return lax.cond(condition, yes, no, x)


@final
class InMpmath:
    """The functions of mpmath, for constants of a dtype. `n` steps of a loop are those of the program."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.exp, self.log, self.sin, self.cos, self.tan = mpmath.exp, mpmath.log, mpmath.sin, mpmath.cos, mpmath.tan
        self.sqrt, self.atan = mpmath.sqrt, mpmath.atan

    def c(self, value: float) -> Any:
        return mpmath.mpf(float(np.dtype(self.dtype).type(value)))

    def loop(self, step: Callable[[Any], Any], state: Any, n: int) -> Any:
        for _ in range(n):
            state = step(state)
        return state

    def until(self, goes_on: Callable[[Any], Any], step: Callable[[Any], Any], state: Any, n: int) -> Any:
        return self.loop(step, state, n)

    def where(self, condition: Any, yes: Callable[[Any], Any], no: Callable[[Any], Any], x: Any) -> Any:
        return yes(x) if condition else no(x)


@final
@dataclass(frozen=True)
class Kernel:
    """A kernel and the ranges of its arguments."""

    f: Callable[..., Any]
    ranges: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        return self.f.__name__

    def arguments(self, n: int, dtype: str) -> list[list[Any]]:
        """Return n tuples of arguments, spread over the ranges; evenly in the exponent if a range has one sign and
        spans two decades."""
        generator = np.random.default_rng(len(self.name) + 7 * len(self.ranges))
        out = []
        for _ in range(n):
            at = []
            for low, high in self.ranges:
                u = generator.uniform()
                wide = low * high > 0 and abs(high / low) >= 100
                at.append(np.dtype(dtype).type(low * (high / low) ** u if wide else low + (high - low) * u))
            out.append(at)
        return out


def quadratic_plus(m: Any, a: Any, b: Any, c: Any) -> Any:
    return (-b + m.sqrt(b * b - 4 * a * c)) / (2 * a)


def quadratic_minus(m: Any, a: Any, b: Any, c: Any) -> Any:
    return (-b - m.sqrt(b * b - 4 * a * c)) / (2 * a)


def exp_minus_one(m: Any, x: Any) -> Any:
    return (m.exp(x) - 1) / x


def log_one_plus(m: Any, x: Any) -> Any:
    return m.log(1 + x)


def roots_apart(m: Any, x: Any) -> Any:
    return m.sqrt(x + 1) - m.sqrt(x)


def reciprocals_apart(m: Any, x: Any) -> Any:
    return 1 / (x + 1) - 1 / x


def sines_apart(m: Any, x: Any, e: Any) -> Any:
    return m.sin(x + e) - m.sin(x)


def cosines_apart(m: Any, x: Any, e: Any) -> Any:
    return m.cos(x + e) - m.cos(x)


def tangents_apart(m: Any, x: Any, e: Any) -> Any:
    return m.tan(x + e) - m.tan(x)


def arctangents_apart(m: Any, n: Any) -> Any:
    return m.atan(n + 1) - m.atan(n)


def logarithms_apart(m: Any, n: Any) -> Any:
    return (n + 1) * m.log(n + 1) - n * m.log(n) - 1


def one_minus_cosine(m: Any, x: Any) -> Any:
    return (1 - m.cos(x)) / (x * x)


def half_angle(m: Any, x: Any) -> Any:
    return (1 - m.cos(x)) / m.sin(x)


def sine_minus(m: Any, x: Any) -> Any:
    return (x - m.sin(x)) / (x - m.tan(x))


def second_difference(m: Any, x: Any) -> Any:
    return m.exp(x) - 2 + m.exp(-x)


def exponentials_apart(m: Any, a: Any, x: Any) -> Any:
    return m.exp(a * x) - 1


def doppler(m: Any, u: Any, v: Any, t: Any) -> Any:
    t1 = m.c(331.4) + m.c(0.6) * t
    return (-t1 * v) / ((t1 + u) * (t1 + u))


def rigid_body_1(m: Any, x1: Any, x2: Any, x3: Any) -> Any:
    return -(x1 * x2) - 2 * (x2 * x3) - x1 - x3


def rigid_body_2(m: Any, x1: Any, x2: Any, x3: Any) -> Any:
    return 2 * (x1 * x2 * x3) + 3 * x3 * x3 - x2 * x1 * x2 * x3 + 3 * x3 * x3 - x2


def turbine_1(m: Any, v: Any, w: Any, r: Any) -> Any:
    return 3 + 2 / (r * r) - ((m.c(0.125) * (3 - 2 * v)) * (w * w * r * r)) / (1 - v) - m.c(4.5)


def turbine_2(m: Any, v: Any, w: Any, r: Any) -> Any:
    return 6 * v - (m.c(0.5) * v * (w * w * r * r)) / (1 - v) - m.c(2.5)


def turbine_3(m: Any, v: Any, w: Any, r: Any) -> Any:
    return 3 - 2 / (r * r) - (m.c(0.125) * (1 + 2 * v) * (w * w * r * r)) / (1 - v) - m.c(0.5)


def verhulst(m: Any, x: Any) -> Any:
    return (4 * x) / (1 + x / m.c(1.11))


def predator_prey(m: Any, x: Any) -> Any:
    return (4 * x * x) / (1 + (x / m.c(1.11)) * (x / m.c(1.11)))


def carbon_gas(m: Any, v: Any) -> Any:
    p, a, b, t, n, k = m.c(3.5e7), m.c(0.401), m.c(42.7e-6), 300, 1000, m.c(1.3806503e-23)
    return (p + a * (n / v) * (n / v)) * (v - n * b) - k * n * t


def sine_series(m: Any, x: Any) -> Any:
    return x - (x * x * x) / 6 + (x * x * x * x * x) / 120 - (x * x * x * x * x * x * x) / 5040


def root_series(m: Any, x: Any) -> Any:
    return 1 + m.c(0.5) * x - m.c(0.125) * x * x + m.c(0.0625) * x * x * x - m.c(0.0390625) * x * x * x * x


def sine_cubic(m: Any, x: Any) -> Any:
    return m.c(0.954929658551372) * x - m.c(0.12900613773279798) * (x * x * x)


def jet_engine(m: Any, x1: Any, x2: Any) -> Any:
    t = 3 * x1 * x1 + 2 * x2 - x1
    d = x1 * x1 + 1
    s = t / d
    s2 = (3 * x1 * x1 - 2 * x2 - x1) / d
    return x1 + ((2 * x1 * s) * (s - 3) + x1 * x1 * (4 * s - 6)) * d + 3 * x1 * x1 * s + x1 * x1 * x1 + x1 + 3 * s2


def kepler_0(m: Any, x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, x6: Any) -> Any:
    return x2 * x5 + x3 * x6 - x2 * x3 - x5 * x6 + x1 * (-x1 + x2 + x3 - x4 + x5 + x6)


def kepler_1(m: Any, x1: Any, x2: Any, x3: Any, x4: Any) -> Any:
    return (
        x1 * x4 * (-x1 + x2 + x3 - x4) + x2 * (x1 - x2 + x3 + x4) + x3 * (x1 + x2 - x3 + x4)
        - x2 * x3 * x4 - x1 * x3 - x1 * x2 - x4
    )  # fmt: skip


def himmelblau(m: Any, x1: Any, x2: Any) -> Any:
    a, b = x1 * x1 + x2 - 11, x1 + x2 * x2 - 7
    return a * a + b * b


def no_difference(m: Any, z: Any) -> Any:
    return z / (z + 1)


def product_over_sum(m: Any, x: Any, y: Any) -> Any:
    t = x * y
    return (t * t - 1) / (t * t - 1 + t)


def sum_of_eight(m: Any, *x: Any) -> Any:
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7]


def variance(m: Any, *x: Any) -> Any:
    n = len(x)
    total = sum(x[1:], x[0])
    squares = sum([v * v for v in x[1:]], x[0] * x[0])
    return squares / n - (total / n) * (total / n)


def dot_product(m: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return a * b - c * d + a * d - b * c


def softmax_without_shift(m: Any, x: Any, y: Any, z: Any) -> Any:
    return m.exp(x) / (m.exp(x) + m.exp(y) + m.exp(z))


def log_sum_exp(m: Any, x: Any, y: Any) -> Any:
    return m.log(m.exp(x) + m.exp(y))


def alternating_series(m: Any, x: Any) -> Any:
    total = term = x * 0 + 1
    for k in range(1, 40):
        term = -term * x / k
        total = total + term
    return total


def expanded_power(m: Any, x: Any) -> Any:
    return ((((((x - 7) * x + 21) * x - 35) * x + 35) * x - 21) * x + 7) * x - 1


def heron(m: Any, a: Any, b: Any, c: Any) -> Any:
    s = (a + b + c) / 2
    return m.sqrt(s * (s - a) * (s - b) * (s - c))


def complex_root(m: Any, x: Any, y: Any) -> Any:
    return m.sqrt(2 * (m.sqrt(x * x + y * y) - x)) / 2


def naive_hypotenuse(m: Any, x: Any, y: Any) -> Any:
    return m.sqrt(x * x + y * y)


def cramer(m: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return (d - b) / (a * d - b * c)


def logistic_map(m: Any, x: Any) -> Any:
    return m.loop(lambda x: m.c(3.75) * x * (1 - x), x, 12)


def euler_steps(m: Any, x: Any) -> Any:
    return m.loop(lambda x: x + m.c(0.01) * (1 - x * x), x, 100)


def pendulum(m: Any, angle: Any, speed: Any) -> Any:
    def step(state: Any) -> Any:
        a, v = state
        v = v - m.c(0.05) * m.sin(a)
        return a + m.c(0.05) * v, v

    return m.loop(step, (angle, speed), 40)[0]


def babylonian_root(m: Any, x: Any) -> Any:
    return m.until(lambda s: s[0] < 6, lambda s: (s[0] + 1, (s[1] + x / s[1]) / 2), (0, x), 6)[1]


def harmonic_sum(m: Any, x: Any) -> Any:
    return m.loop(lambda s: (s[0] + x / s[1], s[1] + 1), (x * 0, x * 0 + 1), 200)[0]


def branch(m: Any, x: Any) -> Any:
    return m.where(x > 1, lambda x: m.sqrt(x + 1) - m.sqrt(x - 1), lambda x: m.log(1 - x * x), x)


KERNELS: Final = (
    Kernel(quadratic_plus, ((0.5, 2), (50, 5000), (0.5, 2))),
    Kernel(quadratic_minus, ((0.5, 2), (50, 5000), (0.5, 2))),
    Kernel(exp_minus_one, ((1e-5, 1),)),
    Kernel(log_one_plus, ((1e-5, 1),)),
    Kernel(roots_apart, ((10, 1e5),)),
    Kernel(reciprocals_apart, ((10, 3000),)),
    Kernel(sines_apart, ((0.1, 3), (1e-4, 1e-1))),
    Kernel(cosines_apart, ((0.1, 3), (1e-4, 1e-1))),
    Kernel(tangents_apart, ((0.1, 1.2), (1e-4, 1e-1))),
    Kernel(arctangents_apart, ((1, 1000),)),
    Kernel(logarithms_apart, ((2, 1e4),)),
    Kernel(one_minus_cosine, ((1e-2, 1),)),
    Kernel(half_angle, ((1e-2, 1),)),
    Kernel(sine_minus, ((0.05, 1),)),
    Kernel(second_difference, ((1e-2, 2),)),
    Kernel(exponentials_apart, ((0.5, 2), (1e-5, 1e-1))),
    Kernel(doppler, ((-100, 100), (20, 20000), (-30, 50))),
    Kernel(rigid_body_1, ((-15, 15), (-15, 15), (-15, 15))),
    Kernel(rigid_body_2, ((-15, 15), (-15, 15), (-15, 15))),
    Kernel(turbine_1, ((-4.5, -0.3), (0.4, 0.9), (3.8, 7.8))),
    Kernel(turbine_2, ((-4.5, -0.3), (0.4, 0.9), (3.8, 7.8))),
    Kernel(turbine_3, ((-4.5, -0.3), (0.4, 0.9), (3.8, 7.8))),
    Kernel(verhulst, ((0.1, 0.3),)),
    Kernel(predator_prey, ((0.1, 0.3),)),
    Kernel(carbon_gas, ((0.1, 0.5),)),
    Kernel(sine_series, ((-1.57, 1.57),)),
    Kernel(root_series, ((0, 1),)),
    Kernel(sine_cubic, ((-2, 2),)),
    Kernel(jet_engine, ((-5, 5), (-20, 5))),
    Kernel(kepler_0, ((4, 6.36),) * 6),
    Kernel(kepler_1, ((4, 6.36),) * 4),
    Kernel(himmelblau, ((-5, 5), (-5, 5))),
    Kernel(no_difference, ((0, 999),)),
    Kernel(product_over_sum, ((1.001, 2), (1.001, 2))),
    Kernel(sum_of_eight, ((-1000, 1000),) * 8),
    Kernel(variance, ((99, 101),) * 6),
    Kernel(dot_product, ((-10, 10),) * 4),
    Kernel(softmax_without_shift, ((-20, 20),) * 3),
    Kernel(log_sum_exp, ((-20, 20),) * 2),
    Kernel(alternating_series, ((1, 8),)),
    Kernel(expanded_power, ((1.1, 1.4),)),
    Kernel(heron, ((5, 5.1), (5, 5.1), (0.2, 10))),
    Kernel(complex_root, ((1, 100), (1e-2, 1))),
    Kernel(naive_hypotenuse, ((1, 100), (1, 100))),
    Kernel(cramer, ((1, 1.1), (1, 1.1), (1, 1.1), (1.2, 1.3))),
    Kernel(logistic_map, ((0.1, 0.9),)),
    Kernel(euler_steps, ((0.1, 0.9),)),
    Kernel(pendulum, ((0.1, 1.5), (-1, 1))),
    Kernel(harmonic_sum, ((0.1, 0.9),)),
    Kernel(babylonian_root, ((2, 50),)),
    Kernel(branch, ((1.5, 1000),)),
)
