"""`odeint` against closed forms, SciPy, and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.integrate

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, ParameterError, ShapeError, TreeError
from fxad.experimental import ode
from fxad.scipy.integrate import odeint
from fxad.test_util import check_grads
from tests.api.refusals import check_refused

TIMES = np.linspace(0, 2, 9)
START = np.array([np.pi - 0.1, 0.0])
loose: Any = odeint
START_AT_1: Any = np.float64(1.0)


def pendulum(y: Any, t: Any, friction: Any, gravity: Any) -> Any:
    return fnp.stack([y[1], -friction * y[1] - gravity * fnp.sin(y[0]) + 0.1 * t])


def test_against_scipy() -> None:
    def theirs(t: Any, y: Any) -> Any:
        return [y[1], -0.25 * y[1] - 9.8 * np.sin(y[0]) + 0.1 * t]

    wanted = scipy.integrate.solve_ivp(theirs, (0, 2), START, t_eval=TIMES, rtol=1e-12, atol=1e-12, method="DOP853")
    np.testing.assert_allclose(odeint(pendulum, START, TIMES, (0.25, 9.8)), wanted.y.T, rtol=2e-6, atol=2e-6)
    choices: tuple[dict[str, Any], ...] = ({"rtol": 1e-4, "atol": 1e-4}, {"hmax": 0.01})
    for options in choices:
        np.testing.assert_allclose(
            odeint(pendulum, START, TIMES, (0.25, 9.8), **options), wanted.y.T, rtol=5e-3, atol=5e-3
        )


def test_derivatives() -> None:
    """In the start, the times, and arguments. `test_closed_values_in_every_mode` has the second order."""

    def end(y: Any, t: Any, friction: Any, gravity: Any) -> Any:
        return odeint(pendulum, y, t, (friction, gravity), rtol=1e-10, atol=1e-10)

    check_grads(end, (START, TIMES[:3], 0.25, 9.8), order=1, modes=["rev"], rtol=1e-5, atol=1e-5)


def test_closed_values_in_every_mode() -> None:
    """y' = -k y with a k that func closes over."""
    rates = np.linspace(0.0, 1.0, 4)

    def end(k: Any) -> Any:
        return odeint(lambda y, t: -k * y, START_AT_1, np.linspace(0.0, 1.0, 3))[-1]

    np.testing.assert_allclose(fx.jit(fx.vmap(end))(rates), np.exp(-rates), rtol=1e-7)
    np.testing.assert_allclose(fx.jit(fx.vmap(fx.grad(end)))(rates), -np.exp(-rates), rtol=1e-6)
    np.testing.assert_allclose(fx.jvp(end, (np.float64(0.5),), (np.float64(1.0),))[1], -np.exp(-0.5), rtol=1e-6)
    np.testing.assert_allclose(fx.grad(fx.grad(end))(np.float64(0.5)), np.exp(-0.5), rtol=1e-6)


def test_a_later_start() -> None:
    """The derivative in t[0]: the solution exp(-(t - t0)) grows with t0."""
    slope = fx.grad(lambda t: odeint(lambda y, t: -y, START_AT_1, t)[-1])(np.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(slope, np.array([1, 0, -1]) * np.exp(-1), rtol=1e-6, atol=1e-12)


def test_trees_complex_and_integers() -> None:
    start = {"a": np.array(-0.1), "b": np.array([[[0.1]]])}
    found = odeint(lambda y, t: fx.tree.map(lambda x: -x, y), start, TIMES)
    np.testing.assert_allclose(found["b"], (0.1 * np.exp(-TIMES))[:, None, None, None], rtol=1e-6)
    np.testing.assert_allclose(found["a"], -0.1 * np.exp(-TIMES), rtol=1e-6)

    def wave(rate: Any) -> Any:
        return odeint(lambda y, t, a, n: a * n * y, np.complex128(1 + 2j), TIMES, (rate, np.int32(2)))

    np.testing.assert_allclose(wave(1j), (1 + 2j) * np.exp(2j * TIMES), rtol=1e-6)
    slope = fx.grad(lambda w: fnp.real(wave(1j * w)[-1]))(np.float64(1.0))
    check_grads(lambda r: fnp.real(wave(r)[-1]), (np.complex128(0.3 + 1j),), order=1, modes=["rev"], rtol=1e-5)
    np.testing.assert_allclose(slope, np.real((1 + 2j) * 4j * np.exp(4j)), rtol=1e-5)
    whole: Any = 1
    assert odeint(lambda y, t: -y, whole, TIMES.astype(np.float32)).dtype.name == "float32"


def test_a_solution_that_is_not_reached_is_nan() -> None:
    """1 / (1 - t) has no value from 1 on; with few steps, the last times are not reached."""
    times = np.array([0.0, 0.5, 0.9, 1.5])
    found = np.asarray(odeint(lambda y, t: y * y, np.float64(1.0), times, mxstep=400))
    np.testing.assert_allclose(found[:3], 1 / (1 - times[:3]), rtol=1e-5)
    assert np.isnan(found[3])
    few = np.asarray(odeint(pendulum, START, TIMES, (0.25, 9.8), mxstep=2))
    assert not np.isnan(few[0]).any()
    assert np.isnan(few[-1]).all()


def test_a_bound_of_steps_sees_a_late_change() -> None:
    def pulse(y: Any, t: Any) -> Any:
        return fnp.where(t <= 2, 1.0, fnp.where((t >= 5) & (t <= 7), -1.0, 0.0)).astype(y.dtype)

    found = ode.odeint(pulse, np.float64(0), np.array([0.0, 5.0, 10.0]), hmax=1.0)
    np.testing.assert_allclose(found, [0, 2, 0], atol=1e-4)


def test_one_time_and_swapped_arguments() -> None:
    np.testing.assert_allclose(odeint(lambda y, t: y, START, TIMES[:1]), START[None])
    slope = fx.grad(lambda y: odeint(lambda y, t: y, y, TIMES[:1]).sum())(START)
    np.testing.assert_allclose(slope, [1, 1])
    found = odeint(lambda t, y: t * y, np.float64(1), TIMES, tfirst=True)
    np.testing.assert_allclose(found, np.exp(TIMES**2 / 2), rtol=1e-6)


def test_refusals() -> None:
    check_refused(
        lambda: loose(3, START, TIMES),
        ArgumentError,
        "odeint: func must be a function, got an int: 3",
        "give something that can be called",
    )
    check_refused(
        lambda: odeint(pendulum, START, np.float64(1.0), (1, 2)),
        ShapeError,
        "odeint: t must be a vector that is not empty, got f64[]",
        "give the times",
    )
    check_refused(
        lambda: odeint(lambda y, t: (y, y), START, TIMES),
        TreeError,
        "odeint: func returns PyTreeSpec((*, *)), y0 is PyTreeSpec(*)",
        "return the derivative of y",
    )
    check_refused(
        lambda: odeint(lambda y, t: y[0], START, TIMES),
        ShapeError,
        "odeint: func returns f64[], y0 has f64[2]",
        "return the derivative of y",
    )
    check_refused(
        lambda: odeint(pendulum, START, TIMES, (1, 2), rtol=-1),
        ParameterError,
        "odeint: rtol is -1.0",
        "give 0 or more",
    )
