"""Functions of two operands at edge values: zeros of both signs, infinities, nan, the largest and the least number.

The value is that of NumPy or SciPy, and the slope in each operand, forward and reverse, is no nan where the value is
none. Tables say where a slope does not exist, and where SciPy is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import scipy.special

import fxad as fx
import fxad.numpy as fnp
import fxad.scipy.special as special
from fxad import Array, nn

Values = npt.NDArray[Any]
Domain = Callable[[Values, Values], Values]

OF_NUMPY: Final = (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "arctan2", "hypot",
    "logaddexp", "logaddexp2", "maximum", "minimum", "fmax", "fmin", "copysign", "nextafter", "heaviside", "equal",
    "less", "less_equal", "greater", "greater_equal", "not_equal", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip
OF_SCIPY: Final = ("xlogy", "xlog1py", "rel_entr", "kl_div", "gammainc", "gammaincc", "boxcox", "boxcox1p", "owens_t")
NO_SLOPE: Final = {"nextafter", "equal", "less", "less_equal", "greater", "greater_equal", "not_equal"} | {
    name for name in OF_NUMPY if name.startswith("logical")
}
# where the value of SciPy is not the limit, overflows, or has few digits
WRONG_IN_SCIPY: Final[dict[str, Domain]] = {
    "rel_entr": lambda x, y: np.isinf(x) & np.isinf(y),
    "kl_div": lambda x, y: (
        (np.isinf(x) & np.isinf(y)) | (abs(x - y) < 1e-6 * abs(x)) | (x / y > 1e300) | (y / x > 1e300)
    ),
    "gammainc": lambda x, _: x > 1e300,
    "gammaincc": lambda x, _: (x > 1e300) | (x < 1e-30),
    "boxcox": lambda x, y: ((abs(y) < 1e-30) & (y != 0)) | (x == np.finfo(x.dtype).max),  # an exponential overflows
    "boxcox1p": lambda x, y: ((abs(y) < 1e-30) & (y != 0)) | (x == np.finfo(x.dtype).max),  # an exponential overflows
    "owens_t": lambda _, y: abs(y) < 1e-15,
}
# where the slope in the first and in the second operand does not exist, or is that of a power of infinite exponent
SLOPELESS: Final[dict[tuple[str, int], Domain]] = {
    ("power", 0): lambda _, y: np.isinf(y),
    ("power", 1): lambda x, y: (x < 0) | np.isinf(y),
    ("gammainc", 0): lambda x, y: (x == 0) | (y < 1e-300),  # the function jumps to 1 at 0
    ("gammaincc", 0): lambda x, y: (x == 0) | (y < 1e-300),
    ("arctan2", 0): lambda x, y: (x == 0) & (y == 0),
    ("arctan2", 1): lambda x, y: (x == 0) & (y == 0),
    ("xlogy", 0): lambda _, y: y < 0,
    ("xlog1py", 0): lambda _, y: y < -1,
    ("boxcox", 0): lambda _, y: abs(y) >= 1e300,
    ("boxcox", 1): lambda _, y: abs(y) >= 1e300,
    ("boxcox1p", 0): lambda _, y: abs(y) >= 1e300,
    ("boxcox1p", 1): lambda _, y: abs(y) >= 1e300,
}
# whose slopes may be nan where the value is infinite
FINITE_ONLY: Final = ("power", "xlogy", "xlog1py", "rel_entr", "kl_div", "boxcox", "boxcox1p")


def function(name: str) -> Callable[[Any, Any], Array]:
    found: Callable[[Any, Any], Array] = getattr(fnp if name in OF_NUMPY else special, name)
    return found


def pairs(dtype: str) -> tuple[Values, Values]:
    info = np.finfo(dtype)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -2.5, 3, info.max, -info.max, info.tiny, -info.tiny]
    more = [1 + info.eps, 1 - info.epsneg, 88, -110, 0.1, 1e-3]
    values = np.array([*edges, *more], dtype)
    x, y = np.meshgrid(values, values, indexing="ij")
    return x.ravel(), y.ravel()


def expected(name: str, x: Values, y: Values) -> Values:
    if name in OF_NUMPY:
        return np.asarray(getattr(np, name)(x, y))
    return np.asarray(getattr(scipy.special, name)(x.astype(np.float64), y.astype(np.float64))).astype(x.dtype)


def differing(name: str, found: Values, x: Values, y: Values) -> list[str]:
    """Returns the pairs whose value is another. Zeros have signs, but for the greater of two; subnormals may be 0."""
    wanted = expected(name, x, y)
    assert found.dtype == wanted.dtype
    if wanted.dtype == np.bool_:
        same = found == wanted
    else:
        info = np.finfo(x.dtype)
        either_sign = name in ("maximum", "minimum", "fmax", "fmin")
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        same = (a == b) & (either_sign | (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
        same |= (abs(a) <= 2 * info.tiny) & (abs(b) <= 2 * info.tiny) & (b != 0)
        ulps = 1000 if name.startswith("gamma") else 100  # SciPy loses digits of gammainc(0.5, 1)
        same |= np.isfinite(b) & (abs(a - b) <= ulps * float(info.eps) * abs(b))
    if name in WRONG_IN_SCIPY:
        same |= WRONG_IN_SCIPY[name](x, y)
    return [f"{p!r}, {q!r}: {f!r}, not {w!r}" for p, q, f, w, s in zip(x, y, found, wanted, same, strict=True) if not s]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*OF_NUMPY, *OF_SCIPY])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_interpreted_value(name: str, dtype: str) -> None:
    x, y = pairs(dtype)
    program = fx.trace(function(name), x, y)
    assert differing(name, np.asarray(fx.interpret(program, x, y)), x, y) == []


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compiled_values(dtype: str) -> None:
    x, y = pairs(dtype)
    found = fx.jit(lambda x, y: {name: function(name)(x, y) for name in (*OF_NUMPY, *OF_SCIPY)})(x, y)
    assert {name: missed for name, z in found.items() if (missed := differing(name, np.asarray(z), x, y))} == {}


def without_slope(name: str, place: int, run: Callable[..., Any]) -> list[str]:
    x, y = pairs("float64")
    kept = ~(np.isnan(x) | np.isnan(y))
    x, y = x[kept], y[kept]
    f = function(name)

    def slopes(x: Array, y: Array) -> tuple[Array, Array, Array]:
        operand = (x, y)[place]

        def of_one(v: Array) -> Array:
            return f(v, y) if place == 0 else f(x, v)

        value, forward = fx.jvp(of_one, (operand,), (fnp.ones_like(operand),))
        return value, forward, fx.grad(lambda v: fnp.sum(of_one(v)))(operand)

    value, forward, reverse = [np.asarray(z) for z in run(slopes, x, y)]
    bad = np.isnan(forward) | np.isnan(reverse)
    bad &= np.isfinite(value) if name in FINITE_ONLY else ~np.isnan(value)
    if (name, place) in SLOPELESS:
        bad &= ~SLOPELESS[name, place](x, y)
    return [f"{p}, {q}: {v}" for p, q, v in zip(x[bad], y[bad], value[bad], strict=True)]


def interpreted(f: Callable[..., Any], *args: Values) -> Any:
    return fx.interpret(fx.trace(f, *args), *args)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", [name for name in (*OF_NUMPY, *OF_SCIPY) if name not in NO_SLOPE])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_interpreted_slope(name: str, place: int) -> None:
    assert without_slope(name, place, interpreted) == []


@pytest.mark.deep
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", OF_SCIPY)
def test_compiled_slope(name: str, place: int) -> None:
    assert without_slope(name, place, lambda f, *args: fx.jit(f)(*args)) == []


# ----------------------------------------------------------------------------------------- values of these slopes


def root_cases() -> dict[str, tuple[Callable[[Array], Array], list[float]]]:
    ones = [1.0, 1.0, 1.0]
    return {
        "norm": (lambda x: fnp.linalg.norm(x), [0.0, 0.0, 0.0]),
        "norm of order 3": (lambda x: fnp.linalg.norm(x, 3), [0.0, 0.0, 0.0]),
        "complex norm": (lambda x: fnp.linalg.norm(x + 0j), [0.0, 0.0, 0.0]),
        "Frobenius": (lambda x: fnp.linalg.matrix_norm(x[None]), [0.0, 0.0, 0.0]),
        "std": (fnp.std, ones),
        "std about a mean": (lambda x: fnp.std(x, mean=np.float64(1)), ones),
        "masked std": (lambda x: fnp.std(x, where=np.array([True, True, False])), ones),
        "nanstd": (fnp.nanstd, [np.nan, 1.0, 1.0]),
    }


@pytest.mark.parametrize("name", root_cases())
def test_the_derivative_of_a_norm_at_zero_is_the_least_subgradient(name: str) -> None:
    f, at = root_cases()[name]
    x = np.array(at)
    np.testing.assert_array_equal(np.asarray(interpreted(fx.grad(f), x)), np.zeros(3))


@pytest.mark.parametrize(
    ("f", "at", "wanted"),
    [
        (lambda x: special.gammainc(2.0, x), np.inf, 0.0),
        (lambda x: special.gammaincc(2.0, x), np.inf, 0.0),
        (lambda a: special.gammainc(a, 3.0), np.inf, 0.0),
        (lambda x: special.boxcox(x, 0.5), 0.0, np.inf),
        (lambda x: special.boxcox(x, 1.0), 0.0, 1.0),
        (lambda x: special.boxcox(x, 2.0), 0.0, 0.0),
        (lambda x: special.boxcox1p(x, 1.0), -1.0, 1.0),
        (lambda power: special.boxcox(np.float64(0), power), 2.0, 0.25),
        (lambda power: special.boxcox(np.float64(np.inf), power), -2.0, 0.25),
        (lambda y: fnp.power(np.float64(np.inf), y), -1.0, 0.0),
        (lambda h: special.owens_t(h, 0.0), np.inf, 0.0),
        # second and third derivatives at an end, of x^(a-1) e^-x / gamma(a) and x^(a-1) (1-x)^(b-1) / B(a, b)
        (fx.grad(lambda x: special.gammainc(2.0, x)), 0.0, 1.0),
        (fx.grad(lambda x: special.gammaincc(1.5, x)), 0.0, -np.inf),
        (fx.grad(fx.grad(lambda x: special.gammainc(3.0, x))), 0.0, 1.0),
        (fx.grad(lambda x: special.betainc(2.0, 3.0, x)), 0.0, 12.0),
        (fx.grad(lambda x: special.betainc(3.0, 2.0, x)), 1.0, -12.0),
        (lambda a: special.beta(a, 2.5), 0.0, -np.inf),
        (lambda b: special.betaln(2.5, b), 0.0, -np.inf),
        (lambda y: fnp.floor_divide(np.float64(1e100), y), 1e-150, 0.0),
        (lambda y: fnp.remainder(np.float64(1e300), y), 1e-300, -np.inf),
        (lambda x: fnp.logaddexp(x, np.float64(np.inf)), np.inf, 0.5),
        (lambda x: fnp.logaddexp2(x, np.float64(-np.inf)), -np.inf, 0.0),
        # Owen's T at infinity is half of the normal distribution function
        (fx.grad(lambda h: special.owens_t(h, np.float64(np.inf))), 0.5, 0.25 * np.exp(-0.125) / np.sqrt(2 * np.pi)),
    ],
)
def test_slope_at_an_edge(f: Callable[[Array], Array], at: float, wanted: float) -> None:
    found = interpreted(fx.grad(f), np.asarray(at, np.float64))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        ([-np.inf, -np.inf, -np.inf], [0.0, 0.0, 0.0]),
        ([-np.inf, 3.0, -np.inf], [0.0, 1.0, 0.0]),
    ],
)
def test_slopes_of_logsumexp_at_minus_infinity(x: list[float], wanted: list[float]) -> None:
    at = np.array(x)
    for f in (fx.grad(nn.logsumexp), fx.jacfwd(nn.logsumexp)):
        np.testing.assert_array_equal(np.asarray(interpreted(f, at)), wanted)
    np.testing.assert_array_equal(np.asarray(interpreted(fx.hessian(nn.logsumexp), at)), np.zeros((3, 3)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nextafter_of_16_bits(dtype: Any) -> None:
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    edges = [0, -0.0, 1, -1, 0.1, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, info.smallest_subnormal]
    x, y = [v.ravel() for v in np.meshgrid(np.array(edges, dtype), np.array([*edges, -1e-7], dtype))]
    wanted = np.where(x == y, y, np.nextafter(x, y))
    for found in (np.asarray(fnp.nextafter(x, y)), np.asarray(interpreted(fnp.nextafter, x, y))):
        same = (found.view(np.int16) == wanted.view(np.int16)) | (np.isnan(found) & np.isnan(wanted))
        assert list(zip(x[~same], y[~same], found[~same], strict=True)) == []


@pytest.mark.parametrize("method", ["scan", "sort", "compare_all"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_across_signed_and_uint64(side: str, method: str) -> None:
    signed = np.array([-(2**62), -3, 0, 5, 2**62, 2**62 + 1, 2**63 - 1])
    unsigned = np.array([0, 1, 2**62, 2**62 + 1, 2**63, 2**64 - 1], np.uint64)
    for a, v in ((signed, unsigned), (unsigned, signed)):
        wanted = [sum(int(k) < int(w) or (side == "right" and int(k) == int(w)) for k in a) for w in v]
        found = interpreted(lambda a, v: fnp.searchsorted(a, v, side=side, method=method), a, v)
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_sets_across_signed_and_uint64() -> None:
    signed = np.array([-(2**62), 0, 5, 2**62, 2**62 + 1])
    unsigned = np.array([5, 2**62 + 1, 2**64 - 2**62, *range(100, 300)], np.uint64)
    for a, b in ((signed, unsigned), (unsigned, signed)):
        among = {int(v) for v in b}
        wanted = np.array([int(v) in among for v in a])
        for method in ("compare_all", "sort"):
            found = interpreted(lambda a, b, method=method: fnp.isin(a, b, method=method), a, b)
            np.testing.assert_array_equal(np.asarray(found), wanted)
        np.testing.assert_array_equal(np.asarray(fnp.setdiff1d(a, b)), np.unique(a[~wanted]))
        both, *places = [np.asarray(z) for z in fnp.intersect1d(a, b, return_indices=True)]
        np.testing.assert_array_equal(both, np.unique(a[wanted]))
        np.testing.assert_array_equal(a[places[0]], both)
        np.testing.assert_array_equal(b[places[1]], both)
        alone = np.array([v for v in (*a, *b) if int(v) not in {*map(int, both)}], np.float32)
        np.testing.assert_array_equal(np.asarray(fnp.setxor1d(a, b)), np.unique(alone))
    sized = interpreted(lambda a, b: (fnp.intersect1d(a, b, size=4), fnp.setxor1d(a, b, size=206)), unsigned, signed)
    np.testing.assert_array_equal(np.asarray(sized[0]), [5, 2**62 + 1, 5, 5])
    np.testing.assert_array_equal(np.unique(np.asarray(sized[1])), np.asarray(fnp.setxor1d(signed, unsigned)))


@pytest.mark.parametrize(
    ("num", "endpoint", "step"), [(1, True, np.nan), (0, False, np.nan), (1, False, 2.0), (3, True, 1.0)]
)
def test_step_of_linspace(num: int, endpoint: bool, step: float) -> None:
    _, found = fnp.linspace(0.0, 2.0, num, endpoint=endpoint, retstep=True)
    np.testing.assert_array_equal(np.asarray(found), np.float32(step))
