"""Integrates the outer solar system by Taylor series of order 12, beside a Runge-Kutta method of order 4.

    python examples/planets_taylor.py

The solution of y' = f(y) is a series y_0 + y_1 t + y_2 t^2 + ..., and coefficient k of f(y(t)) is (k + 1) y_{k+1}. So
`jet` of f gives each coefficient from those before it. The calls of `jet` share equations, which `cse` merges: the
coefficients up to order K need a number of equations that grows with the square of K.

The Sun and five planets are followed for 200 years. A step of order 12 is fifty times as long as one of order 4, and
the error is smaller. The error is the distance from a run with steps of a quarter of the size; the energy is a check
that needs no other run.

Source: initial values and masses from Hairer, Lubich, Wanner, Geometric Numerical Integration, I.2.4;
        Jorba and Zou, A software package for the numerical integration of ODEs by means of high-order Taylor methods,
        Experimental Mathematics 14, 2005.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax

# Astronomical units, days, solar masses. The mass of the Sun is with that of the inner planets.
GRAVITY = 2.95912208286e-4
NAMES = ("Sun", "Jupiter", "Saturn", "Uranus", "Neptune", "Pluto")
MASS = np.array(
    [1.00000597682, 0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 1 / 1.3e8]
)
POSITION = np.array([
    [0.0, 0.0, 0.0],
    [-3.5023653, -3.8169847, -1.5507963],
    [9.0755314, -3.0458353, -1.6483708],
    [8.3101420, -16.2901086, -7.2521278],
    [11.4707666, -25.7294829, -10.8169456],
    [-15.5387357, -25.2225594, -3.1902382],
])  # fmt: skip
VELOCITY = np.array([
    [0.0, 0.0, 0.0],
    [0.00565429, -0.00412490, -0.00190589],
    [0.00168318, 0.00483525, 0.00192462],
    [0.00354178, 0.00137102, 0.00055029],
    [0.00288930, 0.00114527, 0.00039677],
    [0.00276725, -0.00170702, -0.00136504],
])  # fmt: skip
DAYS_PER_YEAR = 365.25

Field = Callable[[fx.Array], fx.Array]
Step = Callable[[fx.Array, fx.Array], fx.Array]


def field(state: fx.Array) -> fx.Array:
    """Return the derivative in time of positions and velocities, [2, bodies, 3]: velocities, and Newton's law."""
    position, velocity = state
    apart = position[None] - position[:, None]
    # a distance of 1 instead of 0 to itself, so that the power has a derivative
    squared = fnp.sum(apart * apart, axis=-1) + fnp.eye(len(MASS), dtype=np.float64)
    pull = GRAVITY * fnp.asarray(MASS) * squared**-1.5
    return fnp.stack([velocity, fnp.sum(pull[:, :, None] * apart, axis=1)])


def taylor_coefficients(f: Field, y: fx.Array, order: int) -> list[fx.Array]:
    """Return y_1, ..., y_order of the solution of y' = f(y)."""
    coefficients = [f(y)]
    while (k := len(coefficients)) < order:
        _, series = fx.jet(f, (y,), tuple([(c,) for c in coefficients]))
        coefficients.append(series[k - 1] / (k + 1))
    return coefficients


def taylor(f: Field, order: int) -> Step:
    """Return a step of the Taylor series method."""

    def step(y: fx.Array, h: fx.Array) -> fx.Array:
        total = fnp.zeros_like(y)
        for c in reversed(taylor_coefficients(f, y, order)):  # Horner's rule
            total = h * (c + total)
        return y + total

    return step


def runge_kutta(f: Field) -> Step:
    """Return a step of the classical method of order 4."""

    def step(y: fx.Array, h: fx.Array) -> fx.Array:
        a = f(y)
        b = f(y + h / 2 * a)
        c = f(y + h / 2 * b)
        d = f(y + h * c)
        return y + h / 6 * (a + 2 * b + 2 * c + d)

    return step


def energy(state: fx.Array) -> fx.Array:
    """Kinetic and potential energy of all bodies."""
    position, velocity = state
    apart = position[None] - position[:, None]
    distance = fnp.sqrt(fnp.sum(apart * apart, axis=-1) + fnp.eye(len(MASS), dtype=np.float64))
    pairs = fnp.triu(MASS[:, None] * MASS / distance, 1)
    return fnp.sum(MASS[:, None] * velocity**2) / 2 - GRAVITY * fnp.sum(pairs)


def start() -> fx.Array:
    """Return the positions and velocities on 5 September 1994, with the centre of mass at rest."""
    position = POSITION - MASS @ POSITION / MASS.sum()
    velocity = VELOCITY - MASS @ VELOCITY / MASS.sum()
    return fnp.asarray(np.stack([position, velocity]))


def equations(f: Field, order: int) -> int:
    """Return the number of equations for the coefficients up to an order."""
    traced = fx.trace(lambda y: tuple(taylor_coefficients(f, y, order)), start())
    return len(fx.cse(fx.inline(traced)).jaxpr.eqns)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Integrates, and returns the errors of positions in astronomical units, and the relative errors of the energy."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--years", type=int, default=200)
    parser.add_argument("--order", type=int, default=12)
    options = parser.parse_args(argv)
    days, order = options.years * DAYS_PER_YEAR, options.order

    counts = {k: equations(field, k) for k in (order // 4, order // 2, order)}
    print("equations of the coefficients: " + ", ".join([f"{n} up to order {k}" for k, n in counts.items()]))
    y0 = start()

    def compiled(step: Step) -> fx.Executable[[fx.Array, fx.Array, fx.Array], fx.Array]:
        def integrate(y: fx.Array, h: fx.Array, steps: fx.Array) -> fx.Array:
            return lax.fori_loop(0, steps, lambda _, y: step(y, h), y)

        return fx.lower(fx.trace(integrate, y0, fx.Spec((), "float64"), fx.Spec((), "int32"))).compile()

    def run(method: fx.Executable[[fx.Array, fx.Array, fx.Array], fx.Array], h: float) -> fx.Array:
        steps = round(days / h)
        return method(y0, fnp.asarray(np.float64(days / steps)), fnp.asarray(np.int32(steps))).block_until_ready()

    series = compiled(taylor(field, order))
    methods = {f"Taylor {order}": (series, 200.0), "Runge-Kutta 4": (compiled(runge_kutta(field)), 4.0)}
    reference = run(series, 50.0)
    print("method          days per step   seconds   error of a position (au)   relative error of the energy")
    figures: dict[str, float] = {f"equations {k}": n for k, n in counts.items()}
    for name, (method, h) in methods.items():
        begun = time.perf_counter()
        y = run(method, h)
        seconds = time.perf_counter() - begun
        error = float(fnp.max(fnp.abs(y[0] - reference[0])))
        drift = abs(float(energy(y) / energy(y0)) - 1)
        print(f"{name:13s}   {h:13.0f}   {seconds:7.3f}   {error:24.1e}   {drift:28.1e}")
        figures |= {f"{name}: error": error, f"{name}: energy": drift}
    return figures


if __name__ == "__main__":
    main()
