"""Integrals of samples, and ordinary differential equations, as in `scipy.integrate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar, final

from fxad import dtypes, lax, numpy as fnp
from fxad.api import staging
from fxad.api.custom_function import custom_vjp
from fxad.api.directional import vjp
from fxad.api.trees import ravel
from fxad.api.vmap import vmap
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import maximum
from fxad.core.trees import tree
from fxad.errors import ParameterError, ShapeError, TreeError
from fxad.numpy import trapezoid
from fxad.operations.arguments import flag, function, number, to_int
from fxad.operations.promotion import to_inexact_dtype
from fxad.scipy.arguments import reals
from fxad.tracing.array import Array, ArrayLike

T = TypeVar("T")

# Dormand and Prince, A family of embedded Runge-Kutta formulae (1980), table 2: nodes, and weights of the stages. The
# last stage is the solution of order 5, and its slope is the first stage of the next step.
_NODES: Final = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_WEIGHTS: Final = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# The solution of order 5 less that of order 4.
_ERROR: Final = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# The solution in the middle of a step. Shampine, Some practical Runge-Kutta formulas (1986)
_MIDDLE: Final = (
    6025192743 / 60171106304,
    0.0,
    51252292925 / 130801643196,
    -2691868925 / 90256659456,
    187940372067 / 3189068634112,
    -1776094331 / 39487288512,
    11237099 / 470086768,
)


def odeint(
    func: Callable[..., object],
    y0: T,
    t: ArrayLike,
    args: Sequence[object] = (),
    *,
    rtol: float = 1.49012e-8,
    atol: float = 1.49012e-8,
    hmax: float = 0.0,
    mxstep: int = 0,
    tfirst: bool = False,
) -> T:
    """Return the solution of dy/dt = func(y, t, *args) at the times t, from y0 at t[0].

    Each step adapts its size: its estimated error is at most `atol` + `rtol` |y|, in the root mean square; `rtol` is
    not below ten times the precision of the dtype. `hmax` bounds the size of a step, and `mxstep` the number of steps
    between two times; 0 is no bound. The solution is nan from the time that is not reached.

    Type:   t (n,), not decreasing. y0 is a pytree of real or complex arrays, integers become float32; func returns a
            tree of the same shapes. The result has an axis of n before those of y0. `args` is any pytree. func(t, y,
            *args) with `tfirst`.
    Rule:   reverse mode solves the adjoint equation backwards, with the same tolerances: derivatives in y0, t, args and
            values that func closes over, of any order. Forward mode applies it to unit vectors.
    Raises: ArgumentError, ShapeError for t, TreeError and ShapeError for another result of func; ParameterError.
    Source: Dormand and Prince (1980); Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section II.4;
            Pontryagin; Chen et al., Neural Ordinary Differential Equations (2018)
    """
    function("odeint", "func", func)
    (times,) = reals("odeint", t)
    if times.ndim != 1 or times.shape[0] == 0:
        raise ShapeError(f"odeint: t must be a vector that is not empty, got {times.aval}", remedy="give the times")
    leaves = [fnp.asarray(x) for x in tree.leaves(y0)]
    start, unravel = ravel(
        tree.unflatten(tree.structure(y0), [x.astype(to_inexact_dtype(fnp.result_type(x, times))) for x in leaves])
    )
    structure, swapped = tree.structure(y0), flag("odeint", "tfirst", tfirst)
    arguments, argument_structure = tree.flatten(tuple(args))

    def slope(y: Array, t: Array, arguments: list[Array]) -> Array:
        first = (t, unravel(y)) if swapped else (unravel(y), t)
        value = func(*first, *tree.unflatten(argument_structure, arguments))
        return _checked_slope(value, structure, leaves, y.dtype)

    times = times.astype(dtypes.real_part(start.dtype))
    arrays = [fnp.asarray(x) for x in arguments]
    closed, captured = staging.closure_convert(slope, start, times[0], arrays)
    inexact = [x.dtype in dtypes.INEXACT for x in (*arrays, *captured)]
    problem = _InitialValueProblem(
        closed,
        tuple(inexact),
        len(arrays),
        max(_tolerance("rtol", rtol), 10 * float(fnp.finfo(start.dtype).eps)),
        _tolerance("atol", atol),
        _tolerance("hmax", hmax),
        to_int("odeint", "mxstep", mxstep),
    )
    operands = list(zip((*arrays, *captured), inexact, strict=True))
    parameters, constants = [x for x, m in operands if m], [x for x, m in operands if not m]
    values = _solution(problem, start, times, parameters, constants)
    result: T = vmap(unravel)(values)
    return result


def _tolerance(name: str, value: float) -> float:
    found = number("odeint", name, value)
    if not found >= 0:
        raise ParameterError(f"odeint: {name} is {found}", remedy="give 0 or more")
    return found


def _checked_slope(value: object, structure: tree.Structure, leaves: list[Array], dtype: dtypes.DType) -> Array:
    """Return the result of func as a vector. Raises: TreeError, ShapeError."""
    found = tree.structure(value)
    if found != structure:
        raise TreeError(f"odeint: func returns {found}, y0 is {structure}", remedy="return the derivative of y")
    parts = [fnp.asarray(x) for x in tree.leaves(value)]
    for x, y in zip(parts, leaves, strict=True):
        if x.shape != y.shape:
            raise ShapeError(f"odeint: func returns {x.aval}, y0 has {y.aval}", remedy="return the derivative of y")
    return fnp.concatenate([x.astype(dtype).ravel() for x in parts])


@final
@dataclass(frozen=True, slots=True, eq=False)
class _InitialValueProblem:
    """An equation, without the arrays in it, and the options of the solver."""

    func: Callable[..., Array]  # of y, t, arguments and the arrays that the user's function closes over
    inexact: tuple[bool, ...]  # which of these are floating or complex
    arguments: int
    rtol: float
    atol: float
    hmax: float
    mxstep: int

    def slope(self, y: Array, t: Array, parameters: Sequence[Array], constants: Sequence[Array]) -> Array:
        """Return the derivative of y, from the arrays that may have derivatives, and the others."""
        rest = iter(parameters), iter(constants)
        arrays = [next(rest[0] if m else rest[1]) for m in self.inexact]
        return self.func(y, t, arrays[: self.arguments], *arrays[self.arguments :])


# ----------------------------------------------------------------------------------------------------------- the solver


class _Reached(NamedTuple):
    """How far the solver is: y and its slope at t, the next step dt, and the quartic of the step from `last` to t."""

    y: Array
    slope: Array
    t: Array
    dt: Array
    last: Array
    curve: tuple[Array, ...]


@partial(custom_vjp, nondiff_argnums=(0,))
def _solution(
    problem: _InitialValueProblem, y0: Array, ts: Array, parameters: list[Array], constants: list[Array]
) -> Array:
    def f(y: Array, t: Array) -> Array:
        return problem.slope(y, t, parameters, constants)

    def limited(dt: Array) -> Array:
        return fnp.minimum(dt, problem.hmax) if problem.hmax else dt

    def reach(start: _Reached, target: Array) -> tuple[_Reached, Array]:
        """Step to a time or beyond it, and interpolate in the last step."""

        def unfinished(state: tuple[Array, _Reached]) -> Array:
            steps, s = state
            more = (s.t < target) & (s.t + s.dt > s.t)
            return more & (steps < problem.mxstep) if problem.mxstep else more

        def step(state: tuple[Array, _Reached]) -> tuple[Array, _Reached]:
            steps, old = state
            y, slope, t, dt, *_ = old
            y1, slopes = _stages(f, y, slope, t, dt)
            error = dt * _weighted(_ERROR, slopes)
            ratio = _size(error / (problem.atol + problem.rtol * fnp.maximum(fnp.abs(y), fnp.abs(y1))))
            fitted = _quartic(y, y1, y + dt * _weighted(_MIDDLE, slopes), dt * slope, dt * slopes[-1])
            kept = ratio <= 1
            following = limited(dt * _growth(ratio))
            new = _Reached(y1, slopes[-1], t + dt, following, t, tuple(fitted))
            same = old._replace(dt=following)
            return steps + 1, tree.map(lambda a, b: fnp.where(kept, a, b), new, same)

        _, end = lax.while_loop(unfinished, step, (fnp.asarray(0), start))
        share = (target - end.last) / fnp.where(end.t > end.last, end.t - end.last, 1)
        value = end.curve[0]
        for coefficient in end.curve[1:]:
            value = value * share + coefficient
        return end, fnp.where(end.t >= target, value, fnp.nan)

    slope = f(y0, ts[0])
    dt = limited(_first_step(f, y0, slope, ts[0], problem))
    _, values = lax.scan(reach, _Reached(y0, slope, ts[0], dt, ts[0], (y0,) * 5), ts[1:])
    return fnp.concatenate([y0[None], values])


def _stages(
    f: Callable[[Array, Array], Array], y: Array, slope: Array, t: Array, dt: Array
) -> tuple[Array, list[Array]]:
    """Return the solution after a step, and the slopes of its stages."""
    slopes, y1 = [slope], y
    for node, weights in zip(_NODES, _WEIGHTS, strict=True):
        y1 = y + dt * _weighted(weights, slopes)
        slopes.append(f(y1, t + node * dt))
    return y1, slopes


def _weighted(weights: Sequence[float], slopes: Sequence[Array]) -> Array:
    terms = [w * k for w, k in zip(weights, slopes, strict=True) if w]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _size(x: Array) -> Array:
    """Return the root mean square; 0 of an empty array."""
    squares = fnp.abs(x) ** 2
    return fnp.sqrt(squares.mean() if at_least(x.size, 1) else squares.sum() / maximum(x.size, 1))


def _growth(ratio: Array) -> Array:
    """Return the factor of the next step: the error is of order 5; smaller steps after a failure, at most ten times
    larger."""
    least = fnp.where(ratio <= 1, 1.0, 0.2)
    factor = 0.9 * fnp.where(ratio == 0, 1, ratio) ** -0.2
    return fnp.where(ratio == 0, 10.0, fnp.clip(factor, least, 10.0))


def _quartic(y0: Array, y1: Array, middle: Array, d0: Array, d1: Array) -> tuple[Array, ...]:
    """Return the polynomial on [0, 1] with these values at 0, 1 and 1/2, and slopes at 0 and 1; the highest degree
    first."""
    return (
        2 * (d1 - d0) - 8 * (y0 + y1) + 16 * middle,
        5 * d0 - 3 * d1 + 18 * y0 + 14 * y1 - 32 * middle,
        d1 - 4 * d0 - 11 * y0 - 5 * y1 + 16 * middle,
        d0,
        y0,
    )


def _first_step(
    f: Callable[[Array, Array], Array], y0: Array, slope: Array, t0: Array, problem: _InitialValueProblem
) -> Array:
    """Return the step for which an Euler step changes y by a hundredth, made smaller if the slope changes."""
    scale = problem.atol + problem.rtol * fnp.abs(y0)
    scale = fnp.where(scale == 0, 1, scale)
    d0, d1 = _size(y0 / scale), _size(slope / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = fnp.where(small, 1e-6, 0.01 * d0 / fnp.where(small, 1, d1))
    d2 = _size((f(y0 + h0 * slope, t0 + h0) - slope) / scale) / h0
    greatest = fnp.maximum(d1, d2)
    flat = greatest <= 1e-15
    h1 = fnp.where(flat, fnp.maximum(1e-6, h0 * 1e-3), (0.01 / fnp.where(flat, 1, greatest)) ** 0.2)
    return fnp.minimum(100 * h0, h1)


# ---------------------------------------------------------------------------------------------------------- the adjoint

_Residuals = tuple[Array, Array, list[Array], list[Array]]


def _forward(
    problem: _InitialValueProblem, y0: Array, ts: Array, parameters: list[Array], constants: list[Array]
) -> tuple[Array, _Residuals]:
    ys = _solution(problem, y0, ts, parameters, constants)
    return ys, (ys, ts, parameters, constants)


def _backward(
    problem: _InitialValueProblem, residuals: _Residuals, ct: Array
) -> tuple[Array, Array, list[Array], None]:
    """Solve the adjoint equation a' = -(df/dy)^T a from the last time to the first; the cotangent of the parameters is
    the integral of (df/dp)^T a."""
    ys, ts, parameters, constants = residuals
    if ts.shape[0] == 1:  # the start alone
        return ct[0], fnp.zeros_like(ts), [fnp.zeros_like(p) for p in parameters], None
    start: tuple[Array, Array, list[Array]] = (ys[0], ct[0], [fnp.zeros_like(p) for p in parameters])
    _, unravel = ravel(start)

    def reversed_slope(z: Array, s: Array, arrays: list[Array]) -> Array:
        y, a, _ = unravel(z)
        p, c = arrays[: len(parameters)], arrays[len(parameters) :]
        value, back = vjp(lambda y, p: problem.slope(y, -s, p, c), y, p)
        return ravel((-value, *back(a)))[0].astype(z.dtype)

    inexact = (True,) * len(parameters) + (False,) * len(constants)
    adjoint = _InitialValueProblem(
        reversed_slope, inexact, len(inexact), problem.rtol, problem.atol, problem.hmax, problem.mxstep
    )

    def over_interval(
        carry: tuple[Array, list[Array]], x: tuple[Array, Array, Array, Array]
    ) -> tuple[tuple[Array, list[Array]], None]:
        (a, sums), (y, end, begin, ct) = carry, x
        z = _solution(adjoint, ravel((y, a, sums))[0], fnp.stack([-end, -begin]), parameters, constants)[1]
        _, a, sums = unravel(z)
        return (a + ct, sums), None

    on_arrival = fnp.concatenate([fnp.zeros_like(ct[:1]), ct[1:-1]])
    (a, sums), _ = lax.scan(over_interval, (ct[-1], start[2]), (ys[1:], ts[1:], ts[:-1], on_arrival), reverse=True)
    slopes = vmap(lambda y, t: problem.slope(y, t, parameters, constants))(ys, ts)
    # y(t[k]) moves with t[k]; a later start is that of the solution that passes there
    products = fnp.concatenate([-a[None], ct[1:]]) * slopes
    return a + ct[0], fnp.sum(fnp.real(products), -1), sums, None


_solution.defvjp(_forward, _backward)


__all__ = ["odeint", "trapezoid"]
