"""wofz, dawsn, fresnel, owens_t, bessel_jn and sph_harm_y against mpmath and SciPy, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import DTypeError, FxadError, ParameterError, TracerError
from fxad.scipy import special

mp: Any = mpmath.mp
RNG = np.random.default_rng(0)
MAGNITUDES = np.concatenate([10 ** RNG.uniform(-5, 4, 24), [0.999, 1.001, 1.39, 1.41, 4.99, 5.01, 9.99, 10.01]])


def first_two(f: Callable[..., Any]) -> Callable[[Any], list[Any]]:
    """The value, the derivative and the second derivative, by forward mode."""

    def along(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: fx.jvp(f, (x,), (fnp.ones_like(x),))[1]

    return lambda x: [f(x), along(f)(x), along(along(f))(x)]


def both(f: Callable[..., Any], *operands: np.ndarray, compiled: bool) -> list[np.ndarray]:
    program = fx.trace(f, *operands)
    out: Any = fx.lower(program).compile()(*operands) if compiled else fx.interpret(program, *operands)
    return [np.asarray(v) for v in out]


def assert_close(found: Any, want: list[Any], rtol: float, scale: Any = 0.0) -> None:
    """Relative to the true value, or to `scale` where that is greater."""
    for i, (have, true) in enumerate(zip(np.ravel(found).tolist(), want, strict=True)):
        limit = rtol * max(abs(true), float(np.ravel(scale)[i] if np.ndim(scale) else scale))
        assert abs(have - true) <= limit, f"at {i}: {have}, by mpmath {mpmath.nstr(true, 17)}"


def dawson(x: Any) -> Any:
    if abs(x) > 60:
        return mp.fsum([mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(12)]) / (2 * x)
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dawson_and_fresnel(dtype: str) -> None:
    x = np.concatenate([MAGNITUDES, -MAGNITUDES[:4]]).astype(dtype)
    eps = float(np.finfo(dtype).eps)
    functions = [special.dawsn, lambda x: special.fresnel(x)[0], lambda x: special.fresnel(x)[1]]
    flat = both(lambda x: [v for f in functions for v in first_two(f)(x)], x, compiled=dtype == "float64")
    with mp.workprec(200):
        points = [mp.mpf(float(v)) for v in x]
        waves = [(mp.sin(mp.pi * v * v / 2), mp.cos(mp.pi * v * v / 2)) for v in points]
        values = [dawson(v) for v in points]
        slopes = [1 - 2 * v * f for v, f in zip(points, values, strict=True)]
        bends = [-2 * f - 2 * v * g for v, f, g in zip(points, values, slopes, strict=True)]
        tiny = float(np.finfo(dtype).tiny) / eps
        assert_close(flat[0], values, 4 * eps, tiny)
        assert_close(flat[1], slopes, 500 * eps, tiny)
        assert_close(flat[2], bends, 20_000 * eps, tiny)
        speed = np.abs(x.astype(float)) * np.pi
        assert_close(flat[3], [mp.fresnels(v) for v in points], 4 * eps, tiny)
        assert_close(flat[4], [s for s, _ in waves], 4 * eps, np.minimum(1, x.astype(float) ** 2))
        assert_close(flat[5], [mp.pi * v * c for v, (_, c) in zip(points, waves, strict=True)], 8 * eps, speed)
        assert_close(flat[6], [mp.fresnelc(v) for v in points], 4 * eps, tiny)
        assert_close(flat[7], [c for _, c in waves], 4 * eps, 1)
        assert_close(flat[8], [-mp.pi * v * s for v, (s, _) in zip(points, waves, strict=True)], 8 * eps, speed)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_faddeeva(dtype: str) -> None:
    angle = RNG.uniform(0, np.pi, len(MAGNITUDES))
    upper = np.clip(MAGNITUDES, 0, 500) * np.exp(1j * angle)
    lower = RNG.standard_normal(12) * 2 - 1j * np.abs(RNG.standard_normal(12))
    z = np.concatenate([upper, [0, 0.1, 3, 7.99, 4.49, 1j, 5 + 1e-10j], lower]).astype(dtype)
    eps = float(np.finfo(dtype).eps)

    def of(z: Any) -> list[Any]:
        return [special.wofz(z), fx.jvp(special.wofz, (z,), (fnp.ones_like(z),))[1]]

    value, slope = both(of, z, compiled=dtype == "complex128")
    with mp.workprec(250):
        points = [mp.mpc(complex(v)) for v in z]
        true = [mp.exp(-v * v) * mp.erfc(-1j * v) for v in points]
        slopes = [2j / mp.sqrt(mp.pi) - 2 * v * w for v, w in zip(points, true, strict=True)]
        assert_close(value, true, 16 * eps)
        assert_close(slope, slopes, 600 * eps)
    np.testing.assert_array_equal(np.asarray(special.wofz(np.array([np.inf, complex(0, np.inf)]))), [0, 0])
    assert special.wofz(np.float32(1)).dtype == "complex64"


def owen(h: float, a: float) -> Any:
    size, bound = abs(mp.mpf(h)), abs(mp.mpf(a))
    end = min(bound, 40 / size) if h else bound
    cuts = {
        mp.mpf(0),
        end,
        *[k / max(size, 0.1) for k in (0.5, 1, 2, 4, 8, 16)],
        *[mp.mpf(10) ** k for k in range(-1, 5)],
    }
    grid = sorted([c for c in cuts if c <= end])
    integral = mp.quad(lambda x: mp.exp(-size * size * (1 + x * x) / 2) / (1 + x * x), grid)
    return mp.sign(a) * integral / (2 * mp.pi)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_owens_t(dtype: str) -> None:
    h = np.concatenate([RNG.uniform(-6, 6, 8), 10 ** RNG.uniform(-3, 1, 8), [0, 0, 0, 1]]).astype(dtype)
    a = np.concatenate([RNG.uniform(-3, 3, 8), 10 ** RNG.uniform(-4, 4, 8), [0, 1, 1e4, 1]]).astype(dtype)

    def total(h: Any, a: Any) -> Any:
        return special.owens_t(h, a).sum()

    def of(h: Any, a: Any) -> list[Any]:
        slopes: Any = fx.grad(total, argnums=(0, 1))
        return [special.owens_t(h, a), *slopes(h, a)]

    value, along_h, along_a = both(of, h, a, compiled=dtype == "float64")
    pairs = [(mp.mpf(float(p)), mp.mpf(float(q))) for p, q in zip(h, a, strict=True)]
    rtol = 1e-5 if dtype == "float32" else 1e-13
    assert_close(value, [owen(p, q) for p, q in pairs], rtol, 1e-30)
    of_h = [-mp.exp(-p * p / 2) * mp.erf(p * q / mp.sqrt(2)) / mp.sqrt(8 * mp.pi) for p, q in pairs]
    assert_close(along_h, of_h, rtol, 1e-30)
    of_a = [mp.exp(-p * p * (1 + q * q) / 2) / (2 * mp.pi * (1 + q * q)) for p, q in pairs]
    assert_close(along_a, of_a, rtol, 1e-30)
    edges = [0, 1, np.inf, np.nan, 1], [np.inf, -np.inf, 1, 1, np.nan]
    np.testing.assert_allclose(np.asarray(special.owens_t(*map(np.array, edges))), scipy.special.owens_t(*edges))


@pytest.mark.parametrize(("dtype", "v"), [("float32", 3), ("float64", 0), ("float64", 40)])
def test_bessel_functions_of_many_orders(dtype: str, v: int) -> None:
    z = np.concatenate([10 ** RNG.uniform(-3, 3.5, 20), [0, 25, 25.001, 24.999, 40, -40, -3, 2.404825557695773]])
    z = z.astype(dtype)

    def of(z: Any) -> list[Any]:
        def f(z: Any) -> Any:
            return special.bessel_jn(z, v=v)

        return [f(z), fx.jvp(f, (z,), (fnp.ones_like(z),))[1]]

    if v == 3:  # the derivative is made of the same loops
        ((value,), slope) = both(lambda z: of(z)[:1], z, compiled=True), None
    else:
        value, slope = both(of, z, compiled=False)
    true = [[mp.besselj(k, mp.mpf(float(x))) for x in z] for k in range(-1, v + 2)]
    amplitude = np.sqrt(1 / np.maximum(np.abs(z.astype(float)), 1))
    rtol = 1e-6 if dtype == "float32" else 1e-14
    for k in range(v + 1):
        oscillates = np.abs(z) > k
        least = np.maximum(np.where(oscillates, amplitude, 0), float(np.finfo(dtype).tiny) / rtol)
        assert_close(value[k], true[k + 1], rtol, least)
        slopes = [(p - q) / 2 for p, q in zip(true[k], true[k + 2], strict=True)]
        if slope is not None:
            assert_close(slope[k], slopes, rtol, least)
    np.testing.assert_array_equal(np.asarray(special.bessel_jn(np.array([np.inf]), v=1)), [[0], [0]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_spherical_harmonics(dtype: str) -> None:
    n = np.array([0, 1, 1, 1, 2, 3, 5, 5, 10, 40, 40, 3, 2, -1])
    m = np.array([0, 0, 1, -1, 2, -3, 0, 5, -7, 40, 3, 4, -1, 0])
    theta, phi = [RNG.uniform(low, high, n.shape).astype(dtype) for low, high in ((-0.5, 3), (-7, 7))]

    def of(theta: Any, phi: Any) -> list[Any]:
        def f(theta: Any, phi: Any) -> Any:
            return special.sph_harm_y(n, m, theta, phi)

        one, zero = fnp.ones_like(theta), fnp.zeros_like(theta)
        return [f(theta, phi), *[fx.jvp(f, (theta, phi), dots)[1] for dots in ((one, zero), (zero, one))]]

    angles = [v.astype(float) for v in (theta, phi)]
    want = scipy.special.sph_harm_y(n, m, *angles)
    step = 1e-5
    around = [scipy.special.sph_harm_y(n, m, *[a + s * d for a, d in zip(angles, way, strict=True)])
              for way in ((1, 0), (0, 1)) for s in (step, -step)]  # fmt: skip
    along = [(around[0] - around[1]) / (2 * step), (around[2] - around[3]) / (2 * step)]
    value, along_theta, along_phi = both(of, theta, phi, compiled=False)
    rtol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(value, want, rtol, 1e-30)
    np.testing.assert_allclose(along_theta, along[0], 1e-4 if dtype == "float32" else 1e-6, 1e-6)
    np.testing.assert_allclose(along_phi, along[1], 1e-4 if dtype == "float32" else 1e-6, 1e-6)
    at_pole = fx.jvp(lambda t: special.sph_harm_y(1, 1, t, np.float64(0)), (np.float64(0),), (np.float64(1),))[1]
    np.testing.assert_allclose(np.asarray(at_pole), -np.sqrt(3 / (8 * np.pi)))  # sin has a slope there, |sin| has none
    traced = fx.jit(lambda n: special.sph_harm_y(n, 0, np.float64(0.3), 0.0, n_max=2))(np.array([1, 2, 3]))
    np.testing.assert_allclose(np.asarray(traced)[:2], scipy.special.sph_harm_y([1, 2], 0, 0.3, 0))
    assert np.isnan(np.asarray(traced)[2])


MESSAGES: list[tuple[Callable[[], object], type[FxadError], str, str]] = [
    (lambda: special.bessel_jn(1.0, v=-1), ParameterError, "bessel_jn: v is -1", "give an order from 0 to 4096"),
    (
        lambda: special.bessel_jn(1.0, v=1, n_iter=-2),
        ParameterError,
        "bessel_jn: n_iter is -2",
        "give a number from 0 to 4096",
    ),
    (
        lambda: special.sph_harm_y(1.0, 0, 0.1, 0.2),
        DTypeError,
        "sph_harm_y: n must be integers, got float32",
        "convert them first",
    ),
    (
        lambda: special.sph_harm_y(1, 0, 0.1, 0.2, 1),
        ParameterError,
        "sph_harm_y: diff_n is 1",
        "use grad or jvp for derivatives in the angles",
    ),
    (
        lambda: fx.jit(lambda n: special.sph_harm_y(n, 0, 0.1, 0.2))(np.int32(1)),
        TracerError,
        "sph_harm_y: n is traced",
        "give n_max=, the greatest degree",
    ),
    (
        lambda: special.dawsn(1j),
        DTypeError,
        "dawsn: takes real numbers, got complex64",
        "pass the real part",
    ),
]


@pytest.mark.parametrize(("call", "error", "message", "remedy"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages(call: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as e:
        call()
    assert (e.value.message, e.value.remedy) == (message, remedy)


def test_half_types_and_maps() -> None:
    def of(x: Any) -> list[Any]:
        return [special.dawsn(x), special.owens_t(x, x), special.fresnel(x)[0], special.bessel_jn(x, v=1)]

    half, wide = np.array([0.5, 2.0], np.float16), np.array([0.5, 2.0])
    for found, want in zip(both(of, half, compiled=False), both(of, wide, compiled=False), strict=True):
        assert found.dtype == np.float16
        np.testing.assert_allclose(found.astype(float), want, rtol=2e-3)
    for found, want in zip(both(fx.vmap(of), wide, compiled=False), both(of, wide, compiled=False), strict=True):
        np.testing.assert_allclose(found, want.T, 1e-14)


@pytest.mark.parametrize("z", [complex(np.inf, -1), complex(-np.inf, -2), complex(1e308, -3), complex(np.inf, -1e308)])
def test_faddeeva_vanishes_far_from_the_imaginary_axis(z: complex) -> None:
    """exp(-z^2) is 0 there; its angle is infinite."""
    wide = np.complex128(z)
    found = fx.interpret(fx.trace(special.wofz, wide), wide)
    np.testing.assert_allclose(found, 0, atol=1e-300)


def test_faddeeva_on_the_lower_imaginary_axis() -> None:
    for y in (-np.inf, -1e308):
        z = np.complex128(complex(0, y))
        assert fx.interpret(fx.trace(special.wofz, z), z) == complex(np.inf, 0)
    # w' = -2 z w + 2 i / sqrt(pi)
    slope = fx.interpret(fx.trace(fx.grad(lambda x: special.wofz(lax.complex(x, -1.0 + 0 * x)).imag), 0.0), 0.0)
    np.testing.assert_allclose(slope, 2 * scipy.special.wofz(-1j).real + 2 / np.sqrt(np.pi), rtol=1e-6)


def test_owens_t_at_opposite_infinities() -> None:
    h, a = np.array([-np.inf, np.inf, np.nan, 1.0]), np.array([np.inf, -np.inf, 1.0, np.nan])
    np.testing.assert_array_equal(fx.interpret(fx.trace(special.owens_t, h, a), h, a), [0, 0, np.nan, np.nan])


def test_spherical_harmonics_of_narrow_orders() -> None:
    """int8 has no absolute value of -128."""
    m = np.array([-128, -1], np.int8)
    found = fx.interpret(fx.trace(lambda m: special.sph_harm_y(np.array([2, 2]), m, 0.5, 0.3), m), m)
    want = np.array([0, complex(scipy.special.sph_harm_y(2, -1, 0.5, 0.3))])
    np.testing.assert_allclose(found, want, rtol=1e-6)
