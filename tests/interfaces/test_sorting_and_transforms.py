"""Sorting, searching, cumulative functions, Fourier transforms and special functions, against NumPy and scipy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special as sp

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.tracing.array import Array
from tests.interfaces.oracle import Value, check, close, names

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
Z = X + 1j * RNG.standard_normal((3, 4))
ODD = np.array([3, 1, 2, 1, np.nan, -np.inf, 0.0, -0.0])


@pytest.mark.parametrize("axis", [0, -1, None])
def test_sort(axis: int | None) -> None:
    x = RNG.integers(0, 5, (4, 6))
    check(lambda x: fnp.sort(x, axis), lambda x: np.sort(x, axis), x)
    order = fnp.argsort(x, axis)
    close(order, np.argsort(x, axis, stable=True), dtype=False)
    assert order.dtype == np.int32


def test_sort_of_odd_numbers() -> None:
    check(fnp.sort, np.sort, ODD)
    close(fnp.argsort(ODD), np.array([5, 6, 7, 1, 3, 2, 0, 4], np.int32))
    close(fnp.argsort(ODD, descending=True), np.array([4, 0, 2, 1, 3, 6, 7, 5], np.int32))
    close(fnp.sort(ODD, descending=True), ODD[[4, 0, 2, 1, 3, 6, 7, 5]])
    assert names(fnp.sort, ODD) == ["sort"]
    assert names(fnp.argsort, ODD) == ["iota", "sort"]


def test_lexsort_and_partition() -> None:
    keys = RNG.integers(0, 3, (3, 8))
    for given in (keys, tuple(keys)):
        close(fnp.lexsort(given), np.lexsort(keys), dtype=False)
    close(fnp.partition(X, 2)[:, 2], np.partition(X, 2)[:, 2])
    close(fnp.take_along_axis(X, fnp.argpartition(X, 1), axis=-1)[:, :2], np.sort(X)[:, :2])


@pytest.mark.parametrize("method", ["scan", "scan_unrolled", "sort", "compare_all"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side: str, method: str) -> None:
    a = np.append(np.sort(RNG.integers(0, 20, 33)).astype(np.float32), np.nan)
    v = np.append(RNG.integers(-3, 25, 20).astype(np.float32), [np.nan, -0.0]).reshape(2, 11)
    check(
        lambda a, v: fnp.searchsorted(a, v, side, method=method),
        lambda a, v: np.searchsorted(a, v, "left" if side == "left" else "right"),
        a, v, dtype=False,
    )  # fmt: skip
    close(fnp.searchsorted(a[:0], v, side, method=method), np.zeros((2, 11), np.int32))


def test_searchsorted_by_a_sorter() -> None:
    a, v = np.array([3.0, 1.0, 2.0]), np.array([0.0, 2.5])
    close(fnp.searchsorted(a, v, sorter=np.argsort(a)), np.array([0, 2], np.int32))


def test_lax_sorts() -> None:
    values, order = lax.top_k(X, 2)
    close(values, -np.sort(-X)[:, :2])
    close(order, np.argsort(-X)[:, :2].astype(np.int32))
    close(lax.top_k(X, 2, axis=0)[0], -np.sort(-X, 0)[:2])
    keys, moved = lax.sort_key_val(X, np.broadcast_to(np.arange(4), (3, 4)))
    close(keys, np.sort(X))
    close(moved, np.argsort(X))
    first, second = lax.sort((np.array([1, 0, 1]), np.array([2.0, 1.0, 1.0])), num_keys=2)
    close(first, np.array([0, 1, 1]))
    close(second, np.array([1.0, 1.0, 2.0]))
    assert isinstance(lax.sort(X), Array)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulative_functions(name: str) -> None:
    ours, theirs = getattr(fnp, name), getattr(np, name)
    for axis in (None, 0, -1):
        check(lambda x, a=axis: ours(x, a), lambda x, a=axis: theirs(x, a), X)
    assert ours(np.ones(3, np.int8)).dtype == np.int32
    assert ours(np.ones(3, bool), dtype="float64").dtype == np.float64
    check(lambda x: ours(x > 0, 1, bool), lambda x: theirs(x > 0, 1, bool), X)
    standard = getattr(fnp, "cumulative_sum" if name == "cumsum" else "cumulative_prod")
    start = np.full((3, 1), 0.0 if name == "cumsum" else 1.0)
    close(standard(X, axis=1, include_initial=True), np.concatenate([start, theirs(X, 1)], 1))
    close(standard(X[0]), theirs(X[0]))


def test_other_cumulative_functions() -> None:
    close(lax.cummax(X, 1), np.maximum.accumulate(X, 1))
    close(lax.cummin(X, -1, reverse=True), np.minimum.accumulate(X[:, ::-1], 1)[:, ::-1])
    close(lax.cumlogsumexp(X), np.logaddexp.accumulate(X, 0))
    close(lax.linear_recurrence(np.full(3, 0.5), np.ones(3)), np.array([1.0, 1.5, 1.75]))
    close(fnp.ediff1d(X, np.array([7.0, 8.0]), -1.0), np.ediff1d(X, [7.0, 8.0], [-1.0]))
    close(
        fx.grad(lambda x: fnp.sum(fnp.cumprod(x) * np.array([1.0, 2, 3])))(np.array([2.0, 0, 3])),
        np.array([1.0, 22, 0]),
    )


# ------------------------------------------------------------------------------------------------------------- fft


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward", None])
@pytest.mark.parametrize("n", [None, 2, 5])
def test_transforms_along_an_axis(n: int | None, norm: str | None) -> None:
    for name, x in [("fft", Z), ("ifft", Z), ("rfft", X), ("irfft", Z), ("hfft", Z), ("ihfft", X)]:
        ours, theirs = getattr(fnp.fft, name), getattr(np.fft, name)
        check(lambda x, f=ours: f(x, n, 0, norm), lambda x, f=theirs: f(x, n, 0, norm), x, eager=False)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_transforms_over_axes(name: str) -> None:
    x = RNG.standard_normal((2, 3, 2, 3, 4))
    given: Value = x if name == "rfftn" else x + 1j * x[::-1]
    ours, theirs = getattr(fnp.fft, name), getattr(np.fft, name)
    for s, axes, norm in ((None, None, None), (None, (3, 0), "ortho"), ((4, 7), (4, 1), "forward")):
        check(
            lambda x, s=s, a=axes, n=norm: ours(x, s, a, n), lambda x, s=s, a=axes, n=norm: theirs(x, s, a, n), given,
            eager=False,
        )  # fmt: skip
    two = name.replace("n", "2")
    close(getattr(fnp.fft, two)(given), getattr(np.fft, two)(given))


def test_frequencies_and_dtypes() -> None:
    for n in (1, 5, 6):
        close(fnp.fft.fftfreq(n, d=0.5), np.fft.fftfreq(n, 0.5).astype(np.float32))
        close(fnp.fft.rfftfreq(n, d=0.5, dtype=np.float64), np.fft.rfftfreq(n, 0.5))
    check(fnp.fft.fftshift, np.fft.fftshift, X)
    check(lambda x: fnp.fft.ifftshift(x, axes=1), lambda x: np.fft.ifftshift(x, axes=1), X[:, :3])
    assert fnp.fft.fft(X.astype(np.float32)).dtype == np.complex64
    assert fnp.fft.rfft(X.astype(np.float16)).dtype == np.complex64
    assert fnp.fft.irfft(Z.astype(np.complex64)).dtype == np.float32


# --------------------------------------------------------------------------------------------------------- special


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("ndtr", [np.linspace(-30, 9, 40)]),
        ("log_ndtr", [np.append(np.linspace(-30, 9, 40), [-1e4, np.inf, -np.inf])]),
        ("ndtri", [np.append(np.linspace(0, 1, 41), [1e-300, 1e-9])]),
        ("xlogy", [np.array([0.0, 0, 0, 0, 2]), np.array([0.0, -1, np.inf, 2, 3])]),
        ("xlog1py", [np.array([0.0, 0, 0, 0, 2]), np.array([-1.0, -2, np.inf, 2, 3])]),
        ("entr", [np.array([0.0, -1, 1, 0.5, np.nan])]),
        ("logit", [np.array([0.0, 1, 0.5, 0.2, -1])]),
        ("expit", [X]),
        ("betaln", [np.array([1.0, 2, 0.5]), np.array([3.0, 4, 0.5])]),
        ("i0", [X * 5]),
        ("i1", [X * 5]),
    ],
)
def test_special(name: str, args: list[Value]) -> None:
    with np.errstate(all="ignore"):
        close(getattr(lax, name)(*args), getattr(sp, name)(*args))


def test_special_derivatives() -> None:
    assert float(fx.grad(lambda p: lax.ndtri(p))(np.float64(1e-5))) == pytest.approx(
        np.sqrt(2 * np.pi) * np.exp(sp.ndtri(1e-5) ** 2 / 2), rel=1e-9
    )
    assert float(fx.grad(lambda x: lax.xlogy(x, 2.0))(np.float64(0))) == pytest.approx(np.log(2))
    assert float(fx.grad(fx.grad(lambda x: fnp.sinc(x)))(np.float64(0))) == pytest.approx(-(np.pi**2) / 3)
    assert float(fx.grad(lambda x: lax.log_ndtr(x))(np.float64(-40))) == pytest.approx(40.0249688, rel=1e-7)
    check(fnp.sinc, np.sinc, np.array([0, 1e-9, 0.01, 0.3, 1, -2.5]))
    close(lax.multigammaln(np.array([3.0, 4.5]), 3), sp.multigammaln(np.array([3.0, 4.5]), 3))


# ---------------------------------------------------------------------------------------------------------- errors


def test_messages() -> None:
    cases: tuple[tuple[type[FxadError], str, Callable[[], object]], ...] = (
        (AxisError, "sort: axis 2 is out of range for an array with 2 axes", lambda: fnp.sort(X, 2)),
        (AxisError, "partition: place 4 is out of range for an axis of 4 elements", lambda: fnp.partition(X, 4)),
        (ArgumentError, "lexsort: takes at least one key", lambda: fnp.lexsort(())),
        (ParameterError, "searchsorted: side is 'up', not 'left' or 'right'", lambda: fnp.searchsorted(ODD, 1.0, "up")),
        (
            ShapeError,
            "searchsorted: the array that is searched must have one axis, got f64[3,4]",
            lambda: fnp.searchsorted(X, 1.0),
        ),
        (ShapeError, "cumulative_sum: an array with 2 axes needs an axis", lambda: fnp.cumulative_sum(X)),
        (ParameterError, "fft: norm 'up' is not one of backward ortho forward", lambda: fnp.fft.fft(X, norm="up")),
        (DTypeError, "rfft: takes real numbers, got c128[3,4]", lambda: fnp.fft.rfft(Z)),
        (ShapeError, "fft: cannot transform f64[3,4] to sizes (0,): all must be positive", lambda: fnp.fft.fft(X, 0)),
        (ParameterError, "fftfreq: the number of samples must be positive, got 0", lambda: fnp.fft.fftfreq(0)),
        (ParameterError, "fft: 'DCT' is not one of FFT IFFT RFFT IRFFT", lambda: lax.fft(Z, "dct", (4,))),
        (ParameterError, "multigammaln: the dimension must be positive, got 0", lambda: lax.multigammaln(X, 0)),
    )
    for error, message, call in cases:
        with pytest.raises(error) as e:
            call()
        assert e.value.message == message
