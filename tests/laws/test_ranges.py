"""Elementwise functions and their derivatives against mpmath, over the whole range of each dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import Array, lax, nn
from fxad.scipy import special
from tests.laws.budget import quick
from tests.laws.ranges import (
    BINARY,
    DTYPES,
    NAMES,
    ORDER,
    PARTIALS,
    PRECISION,
    UNARY,
    Law,
    derivatives,
    faults,
    info,
    is_subnormal,
    moderate,
    mp,
    pairs,
    partials,
    points,
    truth,
    ulps_of,
)

COUNT = 6 if quick() else 60
# functions that take most of the time of the compiler
SLOW = frozenset(
    {
        "i0",
        "i1",
        "i0e",
        "i1e",
        "exp1",
        "expi",
        "lgamma",
        "digamma",
        "gamma",
        "log_ndtr",
        "ndtri",
        "erf_inv",
        "erfcx",
        "erfcinv",
        "betainc(2, 2**-7, x)",
        "betainc(2**-10, 0.5, x)",
    }
)


def check(
    name: str, law: Law, dtype: str, operands: list[np.ndarray], results: list[Array], derived: bool
) -> list[str]:
    """The lines that tell where a function does not keep the law."""
    eps = float(info(dtype).eps)
    xs = [x.astype(np.float64) for x in operands]
    wants = [truth(f, xs, eps) for f in law.true]
    subnormal = np.any([is_subnormal(x, dtype) for x in xs], axis=0)
    lines = []
    for k, result in enumerate(results):
        order = ORDER[k] if derived else k
        have = np.asarray(result).astype(np.float64)
        bad = faults(have, wants[order], dtype, ulps_of(law, order if derived else PARTIALS[k])) & ~subnormal
        if not derived and PARTIALS[k] == 2:
            bad &= moderate(xs, dtype)
        label = (NAMES if derived else ("value", "d/dx", "d/dy", "d2/dx2", "d2/dxdy", "d2/dy2"))[k]
        lines += [
            f"{name} of {[float(x[i]) for x in xs]} in {dtype}, {label}: {have[i]}, by mpmath {wants[order].high[i]}"
            for i in np.flatnonzero(bad)[:3]
        ]
    return lines


def check_laws(laws: dict[str, Law], dtype: str, compiled: bool) -> None:
    """All functions in one program, so that one compilation is enough."""
    single = laws is UNARY
    chosen = {n: law for n, law in laws.items() if dtype in law.only and not (compiled and quick() and n in SLOW)}
    operands = {n: [points(v, dtype, COUNT)] if single else pairs(v, dtype, COUNT) for n, v in chosen.items()}
    functions = [(derivatives if single else partials)(law.function) for law in chosen.values()]

    def together(*args: Any) -> list[tuple[Array, ...]]:
        return [f(*xs) for f, xs in zip(functions, args, strict=True)]

    program = fx.trace(together, *operands.values())
    run: Any = fx.lower(program).compile() if compiled else lambda *xs: fx.interpret(program, *xs)
    found = run(*operands.values())
    lines = [
        line
        for (name, law), results in zip(chosen.items(), found, strict=True)
        for line in check(name, law, dtype, operands[name], list(results), single)
    ]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_one_number(dtype: str) -> None:
    check_laws(UNARY, dtype, compiled=False)


@pytest.mark.parametrize("dtype", ["float32", "float64"] if quick() else DTYPES)
def test_functions_of_one_number_compiled(dtype: str) -> None:
    check_laws(UNARY, dtype, compiled=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_two_numbers(dtype: str) -> None:
    check_laws(BINARY, dtype, compiled=False)


@pytest.mark.parametrize("dtype", ["float32"] if quick() else DTYPES)
def test_functions_of_two_numbers_compiled(dtype: str) -> None:
    check_laws(BINARY, dtype, compiled=True)


# ---------------------------------------------------------------------------------------------------- exact results


@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e5m2"])
def test_logarithms_of_powers_are_exact(dtype: str) -> None:
    kind = fx.dtypes.as_dtype(dtype)
    limits = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    exponents = np.arange(int(np.log2(float(limits.smallest_subnormal))), int(limits.maxexp))
    powers = np.array([2.0 ** int(k) for k in exponents]).astype(kind)
    tens = np.array([k for k in range(23) if 10.0**k <= float(limits.max) and float(kind.type(10.0**k)) == 10.0**k])
    for run in (fx.jit, lambda f: lambda x: fx.interpret(fx.trace(f, x), x)):
        found = np.asarray(run(fnp.log2)(powers)).astype(np.float64)
        np.testing.assert_array_equal(found, exponents.astype(kind).astype(np.float64))
        found = np.asarray(run(fnp.log10)((10.0**tens).astype(kind))).astype(np.float64)
        np.testing.assert_array_equal(found, tens)
    for log in (fnp.log2, fnp.log10):
        edges = np.asarray(
            fx.jit(log)(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -limits.smallest_subnormal], kind))
        )
        np.testing.assert_array_equal(
            edges.astype(np.float64), [-np.inf, -np.inf, kind.type(np.inf).astype(np.float64), *[np.nan] * 4]
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_hypotenuses_of_pythagorean_triples_are_exact(dtype: str) -> None:
    kind = fx.dtypes.as_dtype(dtype)
    triples = np.array([(a * a - b * b, 2 * a * b, a * a + b * b) for a in range(2, 40) for b in range(1, a)], float)
    with np.errstate(over="ignore"):
        a, b, c = triples[np.all(triples.astype(kind).astype(float) == triples, axis=1)].T.astype(kind)
    for scale in (1, 2.0**-9 if dtype == "float16" else 2.0**-90, 2.0**3 if dtype == "float16" else 2.0**90):
        x, y, z = [(v.astype(float) * scale).astype(kind) for v in (a, b, c)]
        finite = np.isfinite(z.astype(float))
        for f in (fx.jit(fnp.hypot), lambda x, y: fx.interpret(fx.trace(fnp.hypot, x, y), x, y)):
            np.testing.assert_array_equal(np.asarray(f(x, y))[finite], z[finite])
        if dtype in ("float32", "float64"):
            np.testing.assert_array_equal(np.asarray(fx.jit(lambda x, y: fnp.abs(lax.complex(x, y)))(x, y)), z)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roots_of_cubes_are_exact(dtype: str) -> None:
    kind = fx.dtypes.as_dtype(dtype)
    roots = np.arange(-255 if dtype == "float32" else -200_000, 256 if dtype == "float32" else 200_001).astype(kind)
    for scale in np.array([1, 2.0**-20, 2.0**20], kind):
        cubes = (roots * scale) ** 3
        np.testing.assert_array_equal(np.asarray(fx.jit(fnp.cbrt)(cubes)), roots * scale)


def test_hypot_of_complex_operands_is_refused() -> None:
    z: Any = np.complex64(3 + 4j)
    for pair in ((z, np.float32(1)), (np.float32(1), z), (z, z)):
        with pytest.raises(fx.errors.DTypeError, match=r"^hypot: takes float operands, got c64\[\]"):
            fnp.hypot(*pair)


def test_log_softmax_keeps_small_components() -> None:
    x: Any = np.array([40.0, 0.0, -3.0])
    small = np.exp(-40.0) + np.exp(-43.0)
    for f in (nn.log_softmax, fx.jit(nn.log_softmax)):
        np.testing.assert_allclose(np.asarray(f(x)), [-small, -40, -43], rtol=1e-15)
    p = np.array([1.0, np.exp(-40.0), np.exp(-43.0)])
    want = np.eye(3) - p
    want[0, 0] = small
    for jacobian in (fx.jacfwd, fx.jacrev):
        np.testing.assert_allclose(np.asarray(fx.jit(jacobian(nn.log_softmax))(x)), want, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(fx.hessian(lambda x: nn.log_softmax(x)[0])(x))[0, 0], -small, rtol=1e-14)
    tied = np.asarray(nn.log_softmax(np.zeros(70_000, np.float16)))
    np.testing.assert_allclose(tied.astype(float), -np.log(70_000), rtol=1e-3)


def test_third_derivatives_of_bessel_functions_at_0() -> None:
    def third(f: Any, x: float) -> float:
        return float(fx.grad(fx.grad(fx.grad(f)))(np.float64(x)))

    for x in (0.0, 1e-200, 1e-8):
        assert third(lax.i0, x) == pytest.approx(0.375 * x, rel=1e-12, abs=1e-300)
        assert third(lax.i1, x) == pytest.approx(3 / 8, rel=1e-12)


def test_entropies_at_0() -> None:
    zero, one, inf = np.float64(0), np.float64(1), np.inf
    grad: Any = fx.grad
    assert float(grad(lax.entr)(zero)) == inf
    assert float(grad(grad(lax.entr))(zero)) == -inf
    for f in (lax.xlogy, special.rel_entr, special.kl_div):
        assert float(grad(f)(zero, np.float64(0.5))) == pytest.approx(np.log(0.5) if f is lax.xlogy else -inf)
    assert float(grad(lax.xlogy)(zero, zero)) == -inf
    assert float(grad(lax.xlogy, 1)(zero, zero)) == 0
    assert float(grad(grad(lax.xlogy), 1)(zero, np.float64(0.5))) == 2
    assert float(grad(special.rel_entr, 1)(zero, one)) == 0
    assert float(grad(special.kl_div, 1)(zero, one)) == 1
    assert float(grad(lax.xlog1py)(zero, np.float64(-1))) == -inf
    assert float(grad(lax.xlog1py, 1)(zero, np.float64(-1))) == 0


def test_complex_functions_close_to_their_poles() -> None:
    z = np.array([-1 + 1e-200j, -1 - 1e-160j, -1 + 1e-10j, 1e-200 + 1j, 1e-160 + 1j, 1e-10 + 1.0000001j, -1e-9 - 1j])
    one = np.log(np.hypot(1 + z.real, z.imag)) + 1j * np.arctan2(z.imag, 1 + z.real)
    np.testing.assert_allclose(np.asarray(fx.jit(fnp.log1p)(z[:3])), one[:3], rtol=1e-14)
    # atan z: half of log(|i + z| / |i - z|) is its imaginary part
    w = z[3:]
    far, near = np.hypot(w.real, 1 + abs(w.imag)), np.hypot(w.real, 1 - abs(w.imag))
    want = np.sign(w.imag) * (np.log(far) - np.log(near)) / 2
    np.testing.assert_allclose(np.asarray(fx.jit(fnp.arctan)(w)).imag, want, rtol=1e-7)
    np.testing.assert_allclose(np.asarray(fx.jit(fnp.arctanh)(-1j * w)).real, want, rtol=1e-7)


# a function, by mpmath, and a zero of it that is no zero of the operand
ZEROS: dict[str, tuple[Any, Any, float]] = {
    "digamma": (lax.digamma, mp.digamma, 1.4616321449683622),
    "lgamma, 1": (lax.lgamma, mp.loggamma, 1.0),
    "lgamma, 2": (lax.lgamma, mp.loggamma, 2.0),
    "log": (lax.log, mp.log, 1.0),
    "log2": (fnp.log2, lambda x: mp.log(x, 2), 1.0),
    "log10": (fnp.log10, mp.log10, 1.0),
    "acos": (lax.acos, lambda x: mp.acos(x).real, 1.0),
    "acosh": (lax.acosh, lambda x: mp.acosh(x).real, 1.0),
    "logit": (lax.logit, lambda x: mp.log(x / (1 - x)), 0.5),
    "ndtri": (lax.ndtri, lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), 0.5),
    "erfcinv": (special.erfcinv, lambda x: mp.erfinv(1 - x), 1.0),
    "expi": (special.expi, mp.ei, 0.37250741078136663),
    "spence": (special.spence, lambda x: mp.polylog(2, 1 - x), 1.0),
    "sin": (lax.sin, mp.sin, float(np.pi)),
    "cos": (lax.cos, mp.cos, float(np.pi) / 2),
    "tan": (lax.tan, mp.tan, float(np.pi)),
    "entr": (lax.entr, lambda x: -x * mp.log(x), 1.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_close_to_a_zero_keep_their_digits(dtype: str) -> None:
    """Relative to the value itself: the laws above also allow the change that a rounded operand makes, which is all of
    the value at a zero."""
    steps = np.array([s * 2.0**-k for k in (2, 4, 7, 10, 14, 18, 21) for s in (1, -1)])
    operands: list[Any] = [(zero + steps).astype(dtype) for _, _, zero in ZEROS.values()]

    def together(*xs: Array) -> list[Array]:
        return [f(x) for (f, _, _), x in zip(ZEROS.values(), xs, strict=True)]

    program = fx.trace(together, *operands)
    eps = float(np.finfo(dtype).eps)
    lines = []
    with mp.workprec(PRECISION):
        runs = [fx.interpret(program, *operands)]
        if dtype == "float64" or not quick():
            runs.append(fx.lower(program).compile()(*operands))
        for found in runs:
            for (name, (_, true, _)), xs, results in zip(ZEROS.items(), operands, found, strict=True):
                for x, have in zip(xs, np.asarray(results), strict=True):
                    want = true(mp.mpf(float(x)))
                    if not np.isnan(have) and abs(mp.mpf(float(have)) - want) > 16 * eps * abs(want):
                        lines.append(f"{name} of {x!r}: {have!r}, by mpmath {float(want)!r}")
    assert not lines, "\n".join(lines)
