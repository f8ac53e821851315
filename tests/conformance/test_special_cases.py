"""The special cases of the standard: one compiled program for each dtype evaluates all functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.tracing.array import Array
from tests.conformance import special
from tests.conformance.special import Either, Expected

Values = npt.NDArray[np.generic]


def agree(found: Values, wanted: list[Expected], tolerance: float) -> Any:
    """Compares elements: equal values, signs unless either is allowed, nan with nan; approximately for other values."""
    value = np.array([w.value if isinstance(w, Either) else w for w in wanted])
    either = np.array([isinstance(w, Either) for w in wanted])
    if found.dtype == np.bool_:
        return found == value.astype(bool)
    with np.errstate(all="ignore"):
        mine = np.where(either, np.abs(found), found)
        near = np.abs(mine - value) <= tolerance * np.abs(value)
        both_nan = np.isnan(mine) & np.isnan(value)
        signs = np.signbit(mine) == np.signbit(value)
        return both_nan | (((mine == value) | near) & signs)


def missed(inputs: Any, found: Values, wanted: list[Expected], dtype: str) -> list[str]:
    ok = agree(found, wanted, 1e-5 if "32" in dtype or dtype == "complex64" else 1e-12)
    return [f"{i}: {f!r}, not {w!r}" for i, f, w, o in zip(inputs, found, wanted, ok, strict=True) if not o]


def run(table: dict[str, Any], columns: dict[str, list[Any]]) -> dict[str, Values]:
    """Evaluates every function of a table on its columns, in one program."""

    def program(columns: dict[str, list[Array]]) -> dict[str, Array]:
        return {name: getattr(fnp, name)(*columns[name]) for name in table}

    return {name: np.asarray(y) for name, y in fx.jit(program)(columns).items()}


@cache
def real(dtype: str, arity: int) -> dict[str, Values]:
    table = special.UNARY if arity == 1 else special.BINARY
    columns = {
        name: [np.array([args[k] for args, _ in cases], dtype) for k in range(arity)] for name, cases in table.items()
    }
    return run(table, columns)


DTYPES = ["float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", special.UNARY)
def test_unary(name: str, dtype: str) -> None:
    cases = special.UNARY[name]
    assert missed([a for a, _ in cases], real(dtype, 1)[name], [w for _, w in cases], dtype) == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", special.BINARY)
def test_binary(name: str, dtype: str) -> None:
    cases = special.BINARY[name]
    assert missed([a for a, _ in cases], real(dtype, 2)[name], [w for _, w in cases], dtype) == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_copysign_of_nan(dtype: str) -> None:
    x, y = np.array([np.nan, -np.nan, np.nan], dtype), np.array([-1.0, 0.0, -np.nan], dtype)
    np.testing.assert_array_equal(np.signbit(np.asarray(fnp.copysign(x, y))), [True, False, True])


@pytest.mark.parametrize("y", [2.0, -2.0])
def test_slopes_where_the_remainder_is_zero(y: float) -> None:
    """The signs of zeros are kept, and the derivative is 1 there."""
    for x in (4.0, -4.0, 3.0, -3.0):
        slope = fx.grad(lambda x: fnp.remainder(x, y))(x)
        assert float(slope) == 1.0


# ---------------------------------------------------------------------------------------------------- complex numbers


def complexes(a: npt.ArrayLike, b: npt.ArrayLike, dtype: str) -> Values:
    """Returns a + bi exactly."""
    z = np.empty(np.shape(a), dtype)
    z.real, z.imag = a, b
    return z


def symmetric(name: str, table: list[special.Complex]) -> list[special.Complex]:
    """Adds the cases of the conjugates and, for odd and even functions, of the negatives."""

    def minus(v: Expected) -> Expected:
        return v if isinstance(v, Either) else -v

    cases = [*table, *[(a, -b, re, minus(im)) for a, b, re, im in table]]
    if name in special.ODD:
        cases += [(-a, -b, minus(re), minus(im)) for a, b, re, im in cases]
    if name in special.EVEN:
        cases += [(-a, -b, re, im) for a, b, re, im in cases]
    return cases


CASES = {name: symmetric(name, table) for name, table in special.COMPLEX.items()}
PAIRS = ["complex64", "complex128"]


def rotated(name: str) -> list[special.Complex]:
    """Returns the cases of f from those of g, if f(z) = -i g(iz), or f(z) = g(iz) for the cosine: z = -iw = b - ai."""
    cases = CASES[special.ROTATED[name]]
    if name == "cos":
        return [(b, -a, re, im) for a, b, re, im in cases]
    return [(b, -a, im, v if isinstance(v := re, Either) else -v) for a, b, re, im in cases]


TABLE = {**CASES, **{name: rotated(name) for name in special.ROTATED}}


@cache
def complex_results(dtype: str) -> dict[str, Values]:
    columns = {n: [complexes([c[0] for c in t], [c[1] for c in t], dtype)] for n, t in TABLE.items()}
    return run(TABLE, columns)


@pytest.mark.parametrize("dtype", PAIRS)
@pytest.mark.parametrize("name", TABLE)
def test_complex(name: str, dtype: str) -> None:
    cases, found = TABLE[name], complex_results(dtype)[name]
    places = [(a, b) for a, b, _, _ in cases]
    assert missed(places, found.real, [c[2] for c in cases], dtype) == []
    assert missed(places, found.imag, [c[3] for c in cases], dtype) == []


@pytest.mark.parametrize("dtype", PAIRS)
@pytest.mark.parametrize("name", special.COMPLEX_TO_REAL)
def test_complex_to_real(name: str, dtype: str) -> None:
    cases = special.COMPLEX_TO_REAL[name]
    z = complexes([c[0] for c in cases], [c[1] for c in cases], dtype)
    found = np.asarray(getattr(fnp, name)(z))
    assert missed([c[:2] for c in cases], found, [c[2] for c in cases], dtype) == []


GRID = [g.ravel() for g in np.meshgrid(special.EVERYTHING, special.EVERYTHING, indexing="ij")]


@pytest.mark.parametrize("dtype", PAIRS)
def test_by_parts(dtype: str) -> None:
    """Functions that act on real and imaginary part separately: addition, negation, conjugation, rounding,
    comparison."""
    a, b = GRID
    z, w = complexes(a, b, dtype), complexes(b[::-1], a, dtype)
    part = {"complex64": np.float32, "complex128": np.float64}[dtype]
    x, y, u, v = (p.astype(part) for p in (a, b, b[::-1], a))
    with np.errstate(all="ignore"):
        wanted: dict[str, tuple[Values, Values]] = {
            "add": (x + u, y + v),
            "subtract": (x - u, y - v),
            "negative": (-x, -y),
            "conj": (x, -y),
            "round": (np.round(x), np.round(y)),
            "positive": (x, y),
        }
    for name, (re, im) in wanted.items():
        fn: Callable[..., Array] = getattr(fnp, name)
        found = np.asarray(fn(z, w) if name in {"add", "subtract"} else fn(z))
        assert missed(zip(x, y, strict=True), found.real, list(re), dtype) == []
        assert missed(zip(x, y, strict=True), found.imag, list(im), dtype) == []
    np.testing.assert_array_equal(np.asarray(fnp.equal(z, w)), (x == u) & (y == v))
    np.testing.assert_array_equal(np.asarray(fnp.not_equal(z, w)), (x != u) | (y != v))


@pytest.mark.parametrize("dtype", PAIRS)
@pytest.mark.parametrize(("name", "base"), [("log2", 2.0), ("log10", 10.0)])
def test_logarithms_of_other_bases(name: str, base: float, dtype: str) -> None:
    """The special cases are those of log(z) / log(base)."""
    z = complexes(GRID[0], GRID[1], dtype)
    log, found = np.asarray(fnp.log(z)), np.asarray(getattr(fnp, name)(z))
    for mine, theirs in ((found.real, log.real), (found.imag, log.imag)):
        assert missed(z, mine, list(theirs / np.log(base)), dtype) == []


@pytest.mark.parametrize("dtype", PAIRS)
def test_exponential_in_base_2(dtype: str) -> None:
    """Special cases are those of NumPy; where the size overflows, a part may not."""
    z = complexes([*GRID[0], 1024.25, 128.25, -3.0], [*GRID[1], 2.3e-300, 2.3e-30, 0.0], dtype)
    with np.errstate(all="ignore"):
        want = np.exp2(z)
    meant = np.asarray(fx.interpret(fx.trace(fnp.exp2, z), z))
    for found in (np.asarray(fnp.exp2(z)), meant):
        assert missed(z, found.real, list(want.real), dtype) == []
        assert missed(z, found.imag, list(want.imag), dtype) == []


@pytest.mark.parametrize("dtype", PAIRS)
def test_programs_and_their_meaning_are_equal(dtype: str) -> None:
    """At infinities, zeros and nans, where NumPy has nan in place of C's values."""
    z = complexes(GRID[0], GRID[1], dtype)
    z = z[~np.isfinite(z) | (z == 0)]
    for f in (fnp.expm1, lax.logistic, lax.rsqrt, lambda z: fnp.divide(1 + 2j, z)):
        found, meant = np.asarray(f(z)), np.asarray(fx.interpret(fx.trace(f, z), z))
        np.testing.assert_allclose(found.real, meant.real, rtol=1e-6, err_msg=str(z))
        np.testing.assert_allclose(found.imag, meant.imag, rtol=1e-6, err_msg=str(z))
    at = complexes([np.inf, -np.inf, np.inf], [np.inf, np.inf, np.nan], dtype)
    np.testing.assert_array_equal(np.asarray(lax.logistic(at)), [1, 0, 1])


@pytest.mark.parametrize("dtype", PAIRS)
def test_sign_at_infinity(dtype: str) -> None:
    z = complexes([np.inf, -np.inf, 1.0, -0.0, np.inf, np.inf], [1.0, -0.0, np.inf, -np.inf, -np.inf, np.nan], dtype)
    nan = complex(np.nan, np.nan)
    for found in (np.asarray(fnp.sign(z)), np.asarray(fx.interpret(fx.trace(fnp.sign, z), z))):
        np.testing.assert_array_equal(found, [1, -1, 1j, -1j, nan, nan])
        np.testing.assert_array_equal(np.isnan(found.real), np.isnan(found.imag))
    np.testing.assert_array_equal(np.asarray(fx.jvp(fnp.abs, (z[:1],), (np.full_like(z[:1], 2),))[1]), [2])


@pytest.mark.parametrize("dtype", PAIRS)
def test_sign_and_products(dtype: str) -> None:
    z = complexes([0.0, -0.0, 0.0, np.nan, 1.0, np.nan, 3.0], [0.0, 0.0, -0.0, 1.0, np.nan, np.nan, -4.0], dtype)
    sign = np.asarray(fnp.sign(z))
    assert (sign[:3] == 0).all()
    assert np.isnan(sign[3:6].real).all()
    assert np.isnan(sign[3:6].imag).all()
    np.testing.assert_allclose(sign[6], 0.6 - 0.8j, rtol=1e-6)
    all_nan = z[5:6]
    for name in ("multiply", "divide"):
        out = np.asarray(getattr(fnp, name)(all_nan, all_nan))
        assert np.isnan(out.real).all()
        assert np.isnan(out.imag).all()
