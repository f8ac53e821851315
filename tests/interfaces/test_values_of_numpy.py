"""Values of which NumPy and SciPy are the measure: dtypes of convolutions, integers divided by zero, mixed signs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import DTypeError
from fxad.scipy import ndimage, signal

np_: Any = np
fnp_: Any = fnp
signal_: Any = signal
theirs_: Any = scipy.signal
images_: Any = scipy.ndimage
INTEGERS: Final = [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64]


def both(f: Callable[..., Any], *args: Any) -> list[Any]:
    """The result compiled, and by the interpreter."""
    return [np.asarray(fx.jit(f)(*args)), np.asarray(fx.interpret(fx.trace(f, *args), *args))]


# ------------------------------------------------------------------------------------------------------ convolutions

DTYPES: Final = ["bool", "uint8", "int32", "float16", "float32", "float64", "complex64"]


def _values(shape: Any, dtype: str, seed: int) -> Any:
    draw = np.random.default_rng(seed)
    if dtype == "bool":
        return draw.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("u", "i")):
        return draw.integers(0, 60, shape).astype(dtype)
    x = draw.normal(size=shape)
    return (x + 1j * draw.normal(size=shape)).astype(dtype) if dtype == "complex64" else x.astype(dtype)


def _wide(x: Any) -> Any:
    return x.astype(complex if x.dtype.kind == "c" else float if x.dtype.kind == "f" else np.int64)


def _in_dtype(want: Any, dtype: Any) -> Any:
    if np.dtype(dtype).kind == "b":
        return want != 0
    return want.astype(dtype) if np.dtype(dtype).kind in "iu" else want


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("a", "b"), [*product(DTYPES, DTYPES)])
def test_convolutions_are_computed_in_the_dtype_of_the_product(a: str, b: str) -> None:
    x, y, p, q = _values(9, a, 0), _values(4, b, 1), _values((5, 6), a, 2), _values((2, 3), b, 3)
    dtype = fnp.result_type(fnp.asarray(x), fnp.asarray(y))
    coarse = 2e-2 if "float16" in (a, b) else 1e-4
    kinds = [(name, ours, "direct") for name in ("convolve", "correlate") for ours in (signal_, fnp_)]
    kinds.append(("convolve", signal_, "fft"))
    for name, ours, method in kinds:
        options = {"method": method} if ours is signal_ else {}
        have = getattr(ours, name)(x, y, "same", **options)
        # NumPy's "same" has as many elements as the longer one, in another place than SciPy's
        want = getattr(theirs_ if ours is signal_ else np_, name)(_wide(x), _wide(y), "same")
        assert have.dtype == dtype
        np.testing.assert_allclose(np.asarray(have), _in_dtype(want, dtype), rtol=coarse, atol=10 * coarse)
    for name, (mode, boundary) in product(
        ("convolve2d", "correlate2d"), [("full", "fill"), ("same", "symm"), ("valid", "fill")]
    ):
        have = getattr(signal_, name)(p, q, mode, boundary)
        want = getattr(theirs_, name)(_wide(p), _wide(q), mode, boundary)
        assert have.dtype == dtype
        np.testing.assert_allclose(np.asarray(have), _in_dtype(want, dtype), rtol=coarse, atol=10 * coarse)


def test_the_issue_s_convolutions() -> None:
    kernel = np.array([0.5, 0.25], np.float32)
    np.testing.assert_array_equal(
        np.asarray(signal.convolve(np.array([1, 2, 3], np.int32), kernel)), [0.5, 1.25, 2, 0.75]
    )
    assert signal.convolve(kernel, kernel.astype(np.float64)).dtype == np.float64
    image = np.full((3, 3), 200, np.uint8)
    np.testing.assert_allclose(np.asarray(signal.convolve2d(image, kernel[None], "valid")), 150)


# ---------------------------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["remainder", "floor_divide", "fmod", "divmod"])
def test_integers_divided_by_zero_are_zero(name: str, dtype: Any) -> None:
    x, y = np.array([7, 100, 0, 5], dtype), np.array([0, 0, 0, 3], dtype)
    with np.errstate(all="ignore"):
        want = np.stack([getattr(np_, name)(x, y)])
    for have in both(
        lambda x, y: fnp.stack([*fnp.divmod(x, y)] if name == "divmod" else [getattr(fnp_, name)(x, y)]), x, y
    ):
        np.testing.assert_array_equal(have.reshape(want.shape), want)
    np.testing.assert_array_equal(np.asarray(fnp.asarray(x) % 0), 0)
    assert len(fx.trace(lambda x: x % 3, x.astype(np.uint8)).jaxpr.eqns) == 1  # no select for a divisor that is known


COMPARISONS: Final = ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
def test_signed_integers_are_compared_with_uint64_exactly(name: str, dtype: Any) -> None:
    i = np.array([2**53, 2**53 + 1, -1, 2**62, 0, 2**63 - 1, -(2**63)], np.int64).astype(dtype)
    u = np.array([2**53 + 1, 2**53, 2**64 - 1, 2**62 + 1, 0, 2**63, 2**63], np.uint64)
    for x, y in ((i, u), (u, i), (i[:, None], u), (u[:, None], i)):
        for have in both(getattr(fnp_, name), x, y):
            np.testing.assert_array_equal(have, getattr(np_, name)(x, y))
    np.testing.assert_array_equal(np.asarray(fnp.asarray(i) < fnp.asarray(u)), i < u)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("bounds", [(5, 0, -1), (5, -1, -1), (9, 0, -2), (200, 100, -7), (0, 5, 1)])
def test_arange_of_unsigned_integers_goes_downwards(dtype: Any, bounds: tuple[int, int, int]) -> None:
    np.testing.assert_array_equal(np.asarray(fnp.arange(*bounds, dtype=dtype)), np.arange(*bounds, dtype=dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, np.int16])
def test_trapezoid_of_integers(dtype: Any) -> None:
    """Their differences need not fit in the dtype."""
    info = np.iinfo(dtype)
    y, x = np.array([1.0, 2, 3, 4]), np.array([5, 3, 1, 2], dtype)
    assert float(fnp.trapezoid(y, x)) == float(np.trapezoid(y, x.astype(float)))
    if info.bits < 64:
        ends = np.array([info.min, info.max], dtype)
        assert float(fnp.trapezoid(np.array([1.0, 1.0]), ends)) == float(info.max) - float(info.min)
    rows = np.stack([x, x[::-1]])
    np.testing.assert_array_equal(
        np.asarray(fnp.trapezoid(rows, rows)), np.trapezoid(rows.astype(float), rows.astype(float))
    )


def test_ediff1d_does_not_truncate() -> None:
    x = np.array([1, 2, 4], np.int32)
    for end in (np.array([1.5]), 2.7, 1j):
        with pytest.raises(DTypeError, match=r"to_end is .*, and the differences are int32"):
            fnp.ediff1d(x, to_end=end)
    with pytest.raises(DTypeError, match="to_begin"):
        fnp.ediff1d(x, to_begin=2.5)
    np.testing.assert_array_equal(np.asarray(fnp.ediff1d(x, to_end=np.array([7], np.int64), to_begin=3)), [3, 1, 2, 7])
    np.testing.assert_array_equal(np.asarray(fnp.ediff1d(x.astype(np.float32), to_end=2.5)), [1, 2, 2.5])


# -------------------------------------------------------------------------------------------- infinities, nans, images

_INF: Final = np.inf


@pytest.mark.parametrize(
    "fp",
    [
        [_INF, 1, 2, 3], [1, _INF, 2, 3], [1, 2, _INF, _INF], [-_INF, -_INF, 1, _INF], [1, -_INF, _INF, 2],
        [1, 2, 3, np.nan], [np.nan, 1, np.nan, 2],
    ],
)  # fmt: skip
def test_interp_beside_infinities(fp: list[float]) -> None:
    x = np.array([-1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4.0])
    for have in both(lambda x, fp: fnp.interp(x, np.arange(4.0), fp), x, np.array(fp)):
        np.testing.assert_array_equal(have, np.interp(x, np.arange(4.0), fp))


def test_slopes_of_interp_beside_an_infinity() -> None:
    points, values = np.arange(4.0), np.array([0, 2, 3, _INF])
    slopes = fx.vmap(fx.grad(lambda x, fp: fnp.interp(x, points, fp)), in_axes=(0, None))(
        np.array([0.5, 1, 1.5]), values
    )
    np.testing.assert_array_equal(np.asarray(slopes), [2, 1, 1])
    in_values = fx.grad(lambda fp: fnp.sum(fnp.interp(np.array([0.5, 1.5]), points, fp)))(values)
    np.testing.assert_array_equal(np.asarray(in_values), [0.5, 1, 0.5, 0])
    assert float(fnp.interp(0.5, np.array([0.0, 1]), np.array([1e308, -1e308]))) == 0


@pytest.mark.parametrize("size", [1, 400])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_with_a_nan_are_sorted_as_in_numpy(dtype: Any, size: int) -> None:
    parts = [0.0, -0.0, 1.0, -1.0, np.nan, _INF, -_INF]
    x = np.array([complex(a, b) for a, b in product(parts, parts)] * size, dtype)
    np.random.default_rng(0).shuffle(x)

    def without_signs_of_zero(z: Any) -> Any:
        return np.stack([z.real + 0.0, z.imag + 0.0])

    for have in both(fnp.sort, x):
        np.testing.assert_array_equal(without_signs_of_zero(have), without_signs_of_zero(np.sort(x)))
    for have in both(fnp.argsort, x):
        np.testing.assert_array_equal(have, np.argsort(x, stable=True))
    for have in both(lambda x: lax.sort((x, fnp.arange(x.size)))[1], x):
        np.testing.assert_array_equal(have, np.argsort(x, stable=True))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int8, np.int64, np.uint16])
def test_map_coordinates_of_integers_rounds_as_in_scipy(dtype: Any) -> None:
    image = np.array([[0, 1, 2], [3, 5, 8], [100, 101, 104]], np.int64)
    image = (image if dtype in (np.uint8, np.uint16) else image - 3).astype(dtype)
    at = np.mgrid[0:2:9j, 0:2:9j]
    for order, mode in product((0, 1), ("nearest", "grid-constant", "mirror")):
        want = images_.map_coordinates(image, at, order=order, mode=mode)
        for have in both(lambda image, at: ndimage.map_coordinates(image, [*at], order, mode), image, at):
            np.testing.assert_array_equal(have, want)
    outside = [np.array([5.0]), np.array([0.5])]
    for cval in (2.5, 3.4):
        have = ndimage.map_coordinates(image, outside, 1, "constant", cval)
        assert int(have[0]) == scipy.ndimage.map_coordinates(image, outside, order=1, cval=cval)[0]


def test_map_coordinates_keeps_the_digits_of_elements() -> None:
    x = np.array([2**30 + 1, 2**30 + 3, 7], np.int32)
    np.testing.assert_array_equal(np.asarray(ndimage.map_coordinates(x, [np.array([0, 1, 2], np.float32)], 0)), x)
    np.testing.assert_array_equal(np.asarray(ndimage.map_coordinates(x, [np.array([2, 0])], 1)), x[[2, 0]])
    mixed = ndimage.map_coordinates(x.reshape(3, 1), [np.array([0, 2]), np.array([0.0, 0.0])], 1)
    np.testing.assert_array_equal(np.asarray(mixed), x[[0, 2]])
