"""Ordinary differential equations, under the name and with the arguments of `jax.experimental.ode`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from fxad.scipy import integrate
from fxad.tracing.array import ArrayLike

T = TypeVar("T")


def odeint(
    func: Callable[..., object],
    y0: T,
    t: ArrayLike,
    *args: object,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = math.inf,
    hmax: float = math.inf,
) -> T:
    """Return the solution of dy/dt = func(y, t, *args) at the times t: see `fxad.scipy.integrate.odeint`."""
    steps = 0 if mxstep == math.inf else int(mxstep)
    size = 0.0 if hmax == math.inf else hmax
    return integrate.odeint(func, y0, t, args, rtol=rtol, atol=atol, mxstep=steps, hmax=size)


__all__ = ["odeint"]
