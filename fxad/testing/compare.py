"""Helpers of the laws: running programs, comparing results, finite differences, and error messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.dtypes import DType
from fxad.ir import Aval, Jaxpr, NDArray, distinct_jaxprs
from fxad.passes import plan_of
from fxad.runtime import devices, link, to_buffer, to_numpy
from fxad.testing.values import PRECISE, operands_text
from fxad.units.plan import UnitPlan, UnitsChoice

HostArrays: TypeAlias = Sequence[NDArray]
Wide: TypeAlias = npt.NDArray[np.complex128]

# Relative to the largest magnitude at hand: some units in the last place of the dtype, and what special functions lose.
TOLERANCE: Final = MappingProxyType(
    {
        dtypes.float64: 1e-9,
        dtypes.complex128: 1e-9,
        dtypes.float32: 1e-4,
        dtypes.complex64: 1e-4,
        dtypes.float16: 1e-2,
        dtypes.bfloat16: 6e-2,
    }
)
_FLOAT8: Final = 0.5


def tolerance(dtype: DType) -> float:
    """Return the allowed difference of two ways to compute a value of this dtype."""
    return TOLERANCE.get(dtype, _FLOAT8)


# The choice of units with which the laws compile programs in this context: none, unless it is set.
units: Final[ContextVar[Callable[[Jaxpr], UnitsChoice]]] = ContextVar("fxad_testing_units", default=lambda _: "none")


def xla(jaxpr: Jaxpr, args: HostArrays, plan: UnitPlan | None = None) -> tuple[NDArray, ...]:
    """Compile and run on the CPU, with the units of a plan, or with those in force."""
    (device, *_) = devices("cpu")
    loaded = link(plan or plan_of(jaxpr, units.get()(jaxpr)), device)
    buffers = [to_buffer(np.asarray(a, order="C"), v, device) for a, v in zip(args, jaxpr.in_avals, strict=True)]
    return tuple([to_numpy(b) for b in loaded.execute(buffers)])


def fail(law: str, jaxpr: Jaxpr, args: HostArrays = (), also: Jaxpr | None = None) -> NoReturn:
    """Raise an AssertionError with the law, the program that violates it, and the operands."""
    lines = [law, f"program: {jaxpr}"]
    if args:
        lines.append("at:")
        lines.append(operands_text(jaxpr.in_avals, args))
    if also is not None:
        lines.append(f"became: {also}")
    raise AssertionError("\n".join(lines))


def differ(
    actual: HostArrays, expected: HostArrays, *, slack: float = 0.0, exact: bool = False, signs: bool = True
) -> str:
    """Describe the difference of two lists of results in number, type or value; "" if they are equal.

    `exact` compares bits, except payloads of nans. Otherwise floats are compared within the tolerance of their dtype,
    or `slack`. `signs` compares the signs of zeros too. The sign of a zero cotangent is not determined: 0.0 + -0.0 is
    0.0, and a sum of one term leaves -0.0.
    """
    if len(actual) != len(expected):
        return f"{len(actual)} results, expected {len(expected)}"
    for k, (a, b) in enumerate(zip(actual, expected, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"result {k} is {Aval(a.shape, a.dtype)}, expected {Aval(b.shape, b.dtype)}"
        exactly = exact or a.dtype not in dtypes.INEXACT
        same = _same_bits(a, b, signs) if exactly else close(a, b, max(tolerance(a.dtype), slack))
        if not same:
            return f"result {k}: got {a.tolist()}, expected {b.tolist()}"
    return ""


def _same_bits(a: NDArray, b: NDArray, signs: bool) -> bool:
    if a.dtype in dtypes.COMPLEX:
        return _same_bits(np.real(a), np.real(b), signs) and _same_bits(np.imag(a), np.imag(b), signs)
    if a.dtype not in dtypes.FLOATING:
        return bool(np.array_equal(a, b))
    bits = f"u{a.dtype.itemsize}"
    bits_a, bits_b = np.ascontiguousarray(a).view(bits), np.ascontiguousarray(b).view(bits)
    equal = (bits_a == bits_b) | (np.isnan(a) & np.isnan(b))
    return bool(np.all(equal if signs else equal | ((a == 0) & (b == 0))))


def close(a: NDArray, b: NDArray, tol: float) -> bool:
    """Return True if values are equal within `tol`, relative to 1 and to the largest finite magnitude, with infinities
    and nans at equal places."""
    x, y = to_widest_dtype(a), to_widest_dtype(b)
    return _parts_close(x.real, y.real, tol) and _parts_close(x.imag, y.imag, tol)


def _parts_close(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], tol: float) -> bool:
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.all(np.isfinite(x[finite])):
        return False
    size = max(1.0, float(np.max(np.abs(y[finite]), initial=0.0)))
    return bool(np.all(np.abs(x[finite] - y[finite]) <= tol * size))


def program_tolerance(jaxpr: Jaxpr, args: HostArrays) -> float:
    """Return the allowed difference of two ways to run a program: by its coarsest dtype and the largest finite
    magnitude of its values."""
    sizes = [1.0, largest_magnitude(args)]
    run(jaxpr, args, lambda _i, _eqn, outs: sizes.append(largest_magnitude(outs)))
    avals = [*jaxpr.in_avals, *[v.aval for body in distinct_jaxprs(jaxpr) for e in body.eqns for v in e.outs]]
    return max([tolerance(a.dtype) for a in avals if a.inexact], default=tolerance(dtypes.float64)) * max(sizes)


def largest_magnitude(values: HostArrays) -> float:
    """Return the largest finite magnitude of floating and complex values; 0.0 without any."""
    sizes = [np.abs(to_widest_dtype(x)) for x in values if x.dtype in dtypes.INEXACT]
    return max([float(np.max(size, initial=0.0, where=np.isfinite(size))) for size in sizes], default=0.0)


# ------------------------------------------------------------------------------------------------------- derivatives


def to_widest_dtype(a: NDArray) -> Wide:
    """Return the values in the dtype that holds all others."""
    with np.errstate(invalid="ignore"):  # a signalling nan, as bit patterns may be, is a nan there too
        return a.astype(np.complex128)


def to_dtype(a: Wide, dtype: DType) -> NDArray:
    """Return the values in `dtype`; for a real `dtype`, the real parts."""
    return a.astype(dtype) if dtype in dtypes.COMPLEX else a.real.astype(dtype)


def random_tangents(avals: Sequence[Aval], seed: int) -> tuple[NDArray, ...]:
    """Return random tangents or cotangents of these types."""
    rng = np.random.default_rng((seed, 7))
    draws = [rng.standard_normal(a.shape) + 1j * rng.standard_normal(a.shape) for a in avals]
    return tuple([to_dtype(np.asarray(x, np.complex128), a.dtype) for x, a in zip(draws, avals, strict=True)])


def random_cotangents(program: Jaxpr, seed: int) -> tuple[NDArray, ...]:
    """Return random cotangents of the results of a program that have one."""
    return random_tangents([a for a in program.out_avals if a.inexact], seed)


def slopes(f: Callable[[float], HostArrays], h: float) -> list[Wide]:
    """Return the derivative of `f` at 0, by central differences of fourth order."""
    values = [[to_widest_dtype(y) for y in f(k * h)] for k in (1, -1, 2, -2)]
    with np.errstate(all="ignore"):
        return [(8 * (a - b) - (c - d)) / (12 * h) for a, b, c, d in zip(*values, strict=True)]


def instantiate_tangents(tangents: HostArrays, nonzero: Sequence[bool], avals: Sequence[Aval]) -> list[NDArray]:
    """Return tangents of all results, with zeros for those that have none."""
    remaining = iter(tangents)
    return [next(remaining) if nz else np.zeros(a.shape, a.dtype) for nz, a in zip(nonzero, avals, strict=True)]


def step_along(args: HostArrays, directions: HostArrays, flags: Sequence[bool], t: float) -> list[NDArray]:
    """Return the operands, with those in `mask` moved by `t` along their tangents."""
    remaining = iter(directions)
    return [
        to_dtype(to_widest_dtype(a) + t * to_widest_dtype(next(remaining)), a.dtype) if m else a
        for a, m in zip(args, flags, strict=True)
    ]


# Small steps see less of what bends, large ones less of what rounds.
_STEPS: Final = (1e-4, 1e-5, 1e-6)


def tangent_error(f: Callable[[float], HostArrays], tangents: HostArrays, tol: float = 1e-5) -> str:
    """Describe the difference of `tangents` from the derivative of `f` at 0; "" if some step size confirms each of
    them.

    At a kink, or closer to one than the smallest step, the derivative must lie between the slopes on both sides.
    """
    unconfirmed = [*range(len(tangents))]
    estimates: list[Wide] = []
    for h in _STEPS:
        estimates = slopes(f, h)
        unconfirmed = [k for k in unconfirmed if not _lies_between_slopes(tangents[k], estimates[k], estimates[k], tol)]
        if not unconfirmed:
            return ""
    # the slopes of what bends differ by the step times the curvature: at the smallest step that is next to nothing
    left, right = one_sided(f, _STEPS[-1])
    for k in unconfirmed:
        if not _lies_between_slopes(tangents[k], left[k], right[k], tol):
            slope, *sides = [to_dtype(x[k], tangents[k].dtype).tolist() for x in (estimates, left, right)]
            return f"tangent {k}: got {tangents[k].tolist()}, central difference {slope}, on the two sides {sides}"
    return ""


def program_tangent_error(
    program: Jaxpr,
    args: HostArrays,
    flags: Sequence[bool],
    directions: HostArrays,
    tangents: HostArrays,
    tol: float = 1e-5,
) -> str:
    """Return `tangent_error` of the tangents of all results along `directions`, for the results of a precise dtype."""
    compared = [k for k, a in enumerate(program.out_avals) if a.dtype in PRECISE]

    def results_at(t: float) -> list[NDArray]:
        outs = run(program, step_along(args, directions, flags, t))
        return [outs[k] for k in compared]

    return tangent_error(results_at, [tangents[k] for k in compared], tol)


def one_sided(f: Callable[[float], HostArrays], h: float) -> tuple[list[Wide], list[Wide]]:
    """Return the slopes of `f` on the left and on the right of 0."""
    values = [[to_widest_dtype(y) for y in f(k * h)] for k in (-1, 0, 1)]
    with np.errstate(all="ignore"):
        pairs = [((y - a) / h, (b - y) / h) for a, y, b in zip(*values, strict=True)]
    return [left for left, _ in pairs], [right for _, right in pairs]


def _lies_between_slopes(t: NDArray, left: Wide, right: Wide, tol: float) -> bool:
    """Return True if a derivative lies between two slopes, within `tol` relative to 1 and to the largest of them.
    Infinite values, such as the maximum of no elements, are not compared."""
    x = to_widest_dtype(t)
    return all([
        _part_lies_between(x.real, left.real, right.real, tol),
        _part_lies_between(x.imag, left.imag, right.imag, tol),
    ])  # fmt: skip


def _part_lies_between(
    x: npt.NDArray[np.float64], left: npt.NDArray[np.float64], right: npt.NDArray[np.float64], tol: float
) -> bool:
    finite = np.isfinite(left) & np.isfinite(right)
    low, high = np.minimum(left, right)[finite], np.maximum(left, right)[finite]
    margin = tol * max(1.0, float(np.max(np.abs([low, high]), initial=0.0)))
    return bool(np.all((low - margin <= x[finite]) & (x[finite] <= high + margin)))


def real_inner_product(xs: HostArrays, ys: HostArrays) -> float:
    """Return the real part of the sum of products, not conjugated: `real` and `conj` are linear over the reals only."""
    return float(np.real(sum([np.sum(to_widest_dtype(x) * to_widest_dtype(y)) for x, y in zip(xs, ys, strict=True)])))


def inner_product_error(xs: HostArrays, ys: HostArrays, us: HostArrays, vs: HostArrays, tol: float = 1e-8) -> str:
    """Describe the difference of <xs, ys> and <us, vs>; "" if it is small relative to the sum of the magnitudes of the
    products."""
    left, right = real_inner_product(xs, ys), real_inner_product(us, vs)
    pairs = [*zip(xs, ys, strict=True), *zip(us, vs, strict=True)]
    size = max(
        sum([float(np.sum(np.abs(to_widest_dtype(x) * to_widest_dtype(y)))) for x, y in pairs]), 1.0
    )  # in this order nan is kept
    # where a value is infinite or nan, both sides are
    return "" if not np.isfinite(size) or abs(left - right) <= tol * size else f"{left} differs from {right}"
