"""`fxad.scipy` against SciPy: optimize, signal, ndimage, fft, interpolate, integrate, cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.special

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, DTypeError, ParameterError, ShapeError
from fxad.scipy import cluster, fft, integrate, interpolate, linalg, ndimage, optimize, signal, special
from fxad.test_util import check_grads
from tests.api.refusals import check_refused

them: Any = scipy  # its types are narrower than the values that it accepts
RNG = np.random.default_rng(12)
loose: Any = fx.scipy


def close(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def all_close(calls: Sequence[tuple[Any, Any]], tolerance: float = 1e-9) -> None:
    """Compares results of fxad's calls, in one program, with expected ones."""
    for ours, (_, theirs) in zip(fx.jit(lambda: [pair[0]() for pair in calls])(), calls, strict=True):
        for a, b in zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]:
            close(a, b, tolerance)


# ------------------------------------------------------------------------------------------------------ convolutions

PAIRS = {
    "vectors": ((9,), (4,)), "short first": ((3,), (8,)), "matrices": ((6, 7), (3, 2)), "even": ((5, 4), (4, 4)),
    "crossed": ((3, 8), (5, 2)), "three axes": ((4, 3, 5), (2, 3, 2)), "inside out": ((2, 2), (4, 5)),
}  # fmt: skip


CONVOLUTIONS = [(p, mode, f) for p in PAIRS for mode in ("full", "same", "valid") for f in ("convolve", "correlate")]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("pair", "mode", "name"), CONVOLUTIONS)
def test_convolutions(pair: str, mode: str, name: str) -> None:
    if pair == "crossed" and mode == "valid":
        return
    ours, theirs = getattr(signal, name), getattr(them.signal, name)
    x, y = [RNG.standard_normal(s) for s in PAIRS[pair]]
    z = x + 1j * x[::-1]
    w = y - 2j * y[..., ::-1]
    i, j = (5 * x).astype(np.int32), (5 * y).astype(np.int32)
    calls: list[tuple[Any, Any]] = [
        (lambda: ours(x, y, mode, "direct"), theirs(x, y, mode)),
        (lambda: ours(x, y, mode, "fft"), theirs(x, y, mode)),
        (lambda: ours(x, y, mode), theirs(x, y, mode)),
        (lambda: ours(z, w, mode), theirs(z, w, mode)),
        (lambda: ours(i, j, mode), theirs(i, j, mode)),
    ]
    if name == "convolve":
        calls += [
            (lambda: signal.fftconvolve(x, y, mode), theirs(x, y, mode)),
            (lambda: signal.fftconvolve(z, w, mode), theirs(z, w, mode)),
        ]
    all_close(calls)
    if pair == "vectors":
        close(ours(x, y, mode), theirs(x, y, mode))
        assert ours(i, j, mode).dtype == np.int32
    if mode == "same":
        check_grads(lambda a, b: ours(a, b, mode), (fnp.asarray(x), fnp.asarray(y)), order=1, modes=("fwd", "rev"))


@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
def test_convolutions_of_matrices(boundary: str, mode: str, name: str) -> None:
    ours, theirs = getattr(signal, name), getattr(them.signal, name)
    calls: list[tuple[Any, Any]] = []
    for shapes in (((6, 7), (3, 2)), ((5, 5), (4, 5)), ((4, 3), (3, 3))):
        x, y = [RNG.standard_normal(s) for s in shapes]
        for given in [(x, y, mode, boundary, fill) for fill in (0, 2.5)]:
            calls.append((lambda g=given: ours(*g), theirs(*given)))
    all_close(calls)


def test_convolutions_along_some_axes() -> None:
    x, y = RNG.standard_normal((3, 6)), RNG.standard_normal((3, 4))
    for mode in ("full", "same", "valid"):
        close(signal.fftconvolve(x, y, mode, axes=1), them.signal.fftconvolve(x, y, mode, axes=1))
    close(signal.fftconvolve(x, y[:1], axes=[-1]), them.signal.fftconvolve(x, y[:1], axes=[-1]))
    half = fnp.asarray(x).astype("float16")
    assert signal.fftconvolve(half, half).dtype == np.float16


# ------------------------------------------------------------------------------------------------------------ spectra

T = np.cumsum(RNG.standard_normal((2, 300)), axis=1)
U = np.cumsum(RNG.standard_normal((2, 280)), axis=1)


def test_trends() -> None:
    for axis in (0, -1):
        for kind in ("linear", "constant"):
            close(signal.detrend(T, axis, kind), them.signal.detrend(T, axis, kind), 1e-8)
    close(signal.detrend(T, bp=[100, 37]), them.signal.detrend(T, bp=[100, 37]), 1e-8)
    close(signal.detrend(T[:, :1]), T[:, :1] * 0)
    check_grads(lambda x: signal.detrend(x, bp=3), (fnp.asarray(T[:, :8]),), order=1, modes=("fwd", "rev"))


SPECTRA: list[dict[str, Any]] = [
    {}, {"fs": 20.0, "nperseg": 64}, {"nperseg": 33, "noverlap": 5, "nfft": 50, "window": "hamming"},
    {"nperseg": 32, "return_onesided": False, "detrend": "linear"}, {"window": np.hanning(40), "detrend": False},
]  # fmt: skip


@pytest.mark.parametrize("given", SPECTRA)
def test_power_spectra(given: dict[str, Any]) -> None:
    calls: list[tuple[Any, Any]] = []
    for scaling in ("density", "spectrum"):
        for average in ("mean", "median"):
            more = {**given, "scaling": scaling, "average": average}
            calls.append((lambda m=more: signal.welch(T, **m), them.signal.welch(T, **more)))
            calls.append((lambda m=more: signal.csd(T, U, **m), them.signal.csd(T, U, **more)))
    z, both = T + 1j * T[::-1], {**given, "return_onesided": False}
    calls.append((lambda: signal.welch(z, **both), them.signal.welch(z, **both)))
    calls.append((lambda: signal.welch(T.T, **given, axis=0), them.signal.welch(T.T, **given, axis=0)))
    all_close(calls, 1e-8)


WINDOWS: list[Any] = [
    "boxcar", "hann", "hamming", "blackman", "blackmanharris", "nuttall", "flattop", "triang", "bartlett", "parzen",
    "bohman", "tukey", "barthann", "cosine", "lanczos", "exponential", ("kaiser", 8.0), ("gaussian", 3), ("tukey", 0.3),
    ("tukey", 0), ("tukey", 2), ("exponential", None, 3.0), ("general_hamming", 0.6),
]  # fmt: skip


@pytest.mark.parametrize("n", [1, 7, 8])
def test_windows_have_the_names_of_scipy(n: int) -> None:
    calls: list[tuple[Any, Any]] = []
    for w in WINDOWS:
        calls.append(
            (
                lambda w=w: signal.stft(T[0, :16], window=w, nperseg=n, noverlap=0)[2],
                them.signal.stft(T[0, :16], window=w, nperseg=n, noverlap=0)[2],
            )
        )
    all_close(calls, 1e-8)


BOUNDARIES = [(given, boundary) for given in SPECTRA[1:4] for boundary in ("zeros", "even", "odd", "constant", None)]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("given", "boundary"), BOUNDARIES)
def test_short_time_transforms(given: dict[str, Any], boundary: str | None) -> None:
    more = {**given, "boundary": boundary}
    calls: list[tuple[Any, Any]] = [
        (lambda: signal.stft(T, **more), them.signal.stft(T, **more)),
        (lambda: signal.stft(T.T, **more, axis=0), them.signal.stft(T.T, **more, axis=0)),
        (lambda: signal.stft(T, **more, scaling="psd"), them.signal.stft(T, **more, scaling="psd")),
    ]
    if boundary is not None and not given.get("detrend"):
        again = {k: v for k, v in given.items() if k != "return_onesided"}
        spectrum = them.signal.stft(T, **more)[2]
        turned, places = np.moveaxis(spectrum, -1, 0), dict[str, Any](time_axis=0, freq_axis=-1)
        calls += [
            (lambda: signal.istft(spectrum, **again)[1], them.signal.istft(spectrum, **again)[1]),
            (lambda: signal.istft(spectrum[0], **again), them.signal.istft(spectrum[0], **again)),
            (
                lambda: signal.istft(spectrum[0], **again, scaling="psd"),
                them.signal.istft(spectrum[0], **again, scaling="psd"),
            ),
            (lambda: signal.istft(spectrum, **again)[1][:, :300], T),  # the inverse
            (lambda: signal.istft(turned, **again, **places)[1], them.signal.istft(turned, **again, **places)[1]),
        ]
    all_close(calls, 1e-8)


def test_gradients_of_spectra() -> None:
    x = fnp.asarray(RNG.standard_normal(24))
    check_grads(lambda x: signal.welch(x, nperseg=8)[1], (x,), order=1, modes=("fwd", "rev"))
    check_grads(lambda x: signal.istft(2 * signal.stft(x, nperseg=8)[2], nperseg=8)[1], (x,), 1, ("fwd", "rev"))


# --------------------------------------------------------------------------------------------------- fft, integration


NORMS = [(n, kind, norm) for n in (1, 2, 5, 8) for kind in (2, 3) for norm in (None, "backward", "ortho", "forward")]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("n", "kind", "norm"), NORMS)
def test_cosine_transforms(n: int, kind: int, norm: str | None) -> None:
    x = RNG.standard_normal((3, n))
    calls: list[tuple[Any, Any]] = [(lambda: fft.idct(fft.dct(x, kind, norm=norm), kind, norm=norm), x)]
    for name in ("dct", "idct"):
        ours, theirs = [[getattr(m, f) for f in (name, f"{name}n")] for m in (fft, them.fft)]
        for many, more in (
            (0, {}), (0, {"n": 4, "axis": 0}), (0, {"n": 2}), (1, {}), (1, {"s": (2, 3), "axes": (1, 0)}),
            (1, {"axes": [-1]}),
        ):  # fmt: skip
            given = {**more, "norm": norm}
            calls.append((lambda f=ours[many], g=given: f(x, kind, **g), theirs[many](x, kind, **given)))
    all_close(calls)
    check_grads(lambda x: fft.dct(x, kind, norm=norm), (fnp.asarray(x),), order=1, modes=("fwd", "rev"))


def test_dtypes() -> None:
    half = fnp.ones((2, 4), "float16")
    assert fft.dct(half).dtype == np.float16
    assert fft.dct(np.arange(4)).dtype == np.float32
    z = RNG.standard_normal((2, 3)) + 1j * RNG.standard_normal((2, 3))
    for name in ("dct", "idct", "dctn", "idctn"):
        close(getattr(fft, name)(z), getattr(them.fft, name)(z), 1e-12)
    assert signal.welch(fnp.ones(300))[1].dtype == np.float32
    assert signal.detrend(np.arange(4)).dtype == np.float32


def test_integrals() -> None:
    x = np.sort(RNG.random(6))
    close(integrate.trapezoid(T[:, :6], x), them.integrate.trapezoid(T[:, :6], x))


# ------------------------------------------------------------------------------------------------------- interpolation

IMAGE = RNG.standard_normal((4, 5))
PLACES = RNG.uniform(-9, 13, (2, 60))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("mode", "theirs"),
    [("constant", "grid-constant"), ("grid-constant", "grid-constant"), ("nearest", "nearest"), ("mirror", "mirror"),
     ("wrap", "grid-wrap"), ("reflect", "reflect")],
)  # fmt: skip
def test_map_coordinates(mode: str, theirs: str, order: int) -> None:
    ours, known = ndimage.map_coordinates, them.ndimage.map_coordinates
    calls: list[tuple[Any, Any]] = []
    for places in (PLACES, PLACES.reshape(2, 5, 12), np.floor(PLACES)):
        inside = np.stack([places[0] % 3, places[1] % 4])  # and SciPy's own mode within the array
        calls += [
            (
                lambda p=places: ours(IMAGE, p, order, mode, -1.5),
                known(IMAGE, places, order=order, mode=theirs, cval=-1.5),
            ),
            (lambda p=inside: ours(IMAGE, p, order, mode), known(IMAGE, inside, order=order, mode=mode)),
        ]
    line, at = np.array([3.0]), [np.array([-1.5, 0.0, 2.0])]
    calls.append((lambda: ours(line, at, order, mode, 0.5), known(line, at, order=order, mode=theirs, cval=0.5)))
    all_close(calls)


def test_images_are_differentiated_and_keep_their_dtype() -> None:
    places = RNG.uniform(0, 3, (2, 6))
    check_grads(
        lambda x, at: ndimage.map_coordinates(x, at, 1), (fnp.asarray(IMAGE), fnp.asarray(places)), 1, ("fwd", "rev")
    )
    counts = (10 * IMAGE).astype(np.int32)
    got = ndimage.map_coordinates(counts, places, 1)
    assert got.dtype == np.int32
    exact = them.ndimage.map_coordinates(counts.astype(float), places, order=1)
    assert (abs(np.asarray(got) - exact) <= 0.5 + 1e-6).all()
    assert ndimage.map_coordinates(fnp.asarray(IMAGE, fnp.float32), places, 1).dtype == np.float32


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, 7.0, None])
def test_grids(fill: float | None, method: str) -> None:
    grid = (np.array([0.0, 0.5, 2.0, 3.0]), np.array([-1.0, 1.0, 1.5]))
    at = RNG.uniform(-1.5, 3.5, (7, 2))
    calls: list[tuple[Any, Any]] = []
    for values in (RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3, 2))):
        mine = interpolate.RegularGridInterpolator(grid, values, method, fill_value=fill)
        theirs = them.interpolate.RegularGridInterpolator(grid, values, method, False, fill)
        calls += [
            (lambda m=mine: m(at), theirs(at)),
            (lambda m=mine: m((at[:, 0], at[:, 1])), theirs((at[:, 0], at[:, 1]))),
            (lambda m=mine: m(at, "nearest"), theirs(at, "nearest")),
        ]
    line, squares = (grid[0],), grid[0] ** 2
    x = at[:3, 0] % 3
    calls.append((
        lambda: interpolate.RegularGridInterpolator(line, squares, method)(x),
        them.interpolate.RegularGridInterpolator(line, squares, method)(x),
    ))  # fmt: skip
    all_close(calls)


def test_gradients_of_grids() -> None:
    grid = (np.array([0.0, 0.5, 2.0]), np.array([-1.0, 1.0]))
    at = fnp.asarray(RNG.uniform(0.1, 0.9, (4, 2)))

    def value(values: Any, at: Any) -> Any:
        return interpolate.RegularGridInterpolator(grid, values)(at)

    check_grads(value, (fnp.asarray(RNG.standard_normal((3, 2))), at), order=1, modes=("fwd", "rev"))


def test_vector_quantization() -> None:
    obs, codes = RNG.standard_normal((9, 3)), RNG.standard_normal((4, 3))
    for x, c in ((obs, codes), (obs[:, 0], codes[:, 0])):
        for a, b in zip(cluster.vq.vq(x, c), them.cluster.vq.vq(x, c), strict=True):
            close(a, b)


# ------------------------------------------------------------------------------------------------------- minimization


def rosenbrock(x: Any, a: float = 100.0) -> Any:
    return a * ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x[:-1]) ** 2).sum()


METHODS = ["BFGS", "L-BFGS-B", "l-bfgs-experimental-do-not-rely-on-this"]


@pytest.mark.parametrize("method", METHODS)
def test_minima(method: str) -> None:
    start = np.array([-1.2, 1.0, 0.5, 2.0])
    options = {"ftol": 0.0} if method != "BFGS" else {}
    near = np.array([0.3, 0.6, 0.5, 0.2])  # from farther away another minimum is found
    result = optimize.minimize(rosenbrock, near, method=method, tol=1e-6, options=options)
    assert bool(result.success)
    assert int(result.status) == 0
    close(result.x, np.ones(4), 1e-5)
    close(result.jac, fx.grad(rosenbrock)(result.x))
    close(result.fun, rosenbrock(result.x))
    assert 5 < int(result.nit) < int(result.nfev) < 500
    assert int(result.njev) == int(result.nit) + 1
    theirs = them.optimize.minimize(lambda x: x @ x + np.cos(x).sum() * 3, start, method="BFGS")
    ours = optimize.minimize(lambda x: x @ x + fnp.cos(x).sum() * 3, start, method=method)
    close(ours.fun, theirs.fun, 1e-6)
    if method == "BFGS":
        assert ours.hess_inv is not None
        hessian = fx.hessian(lambda x: x @ x + fnp.cos(x).sum() * 3)(ours.x)
        close(ours.hess_inv, np.linalg.inv(np.asarray(hessian)), 0.1)
    else:
        assert ours.hess_inv is None


@pytest.mark.parametrize("method", METHODS[:2])
def test_minimization_is_traced_and_batched(method: str) -> None:
    starts = fnp.asarray(np.random.default_rng(3).standard_normal((3, 2)))
    solve = lambda x: optimize.minimize(rosenbrock, x, (10.0,), method=method, tol=1e-7).x  # noqa: E731
    close(fx.jit(fx.vmap(solve))(starts), np.ones((3, 2)), 1e-4)


def test_minimization_that_ends_early() -> None:
    start = np.array([-1.2, 1.0])
    assert optimize.minimize(rosenbrock, start, options={"maxiter": None, "gtol": None}).success
    few = optimize.minimize(rosenbrock, start, options={"maxiter": 3})
    assert (int(few.status), int(few.nit), bool(few.success)) == (1, 3, False)
    none = optimize.minimize(rosenbrock, start, options={"maxiter": 0})
    assert (int(none.status), int(none.nit)) == (1, 0)
    there = optimize.minimize(rosenbrock, np.ones(2))
    assert (int(there.status), int(there.nit)) == (0, 0)
    stuck = optimize.minimize(lambda x: fnp.where(x[0] == 1, 0, fnp.nan) * x[0] + x[0], np.ones(1))
    assert (int(stuck.status), bool(stuck.success)) == (3, False)


# ------------------------------------------------------------------------------------------------- special, matrices


def test_more_special_functions() -> None:
    x, powers = np.array([0.3, 1.0, 2.5, 1e-8]), np.array([0.0, 1e-9, 1e-3, 0.5, -2.0])[:, None]
    close(special.boxcox(x, powers), them.special.boxcox(x, powers))
    close(special.boxcox1p(x, powers), them.special.boxcox1p(x, powers), 1e-12)
    check_grads(special.boxcox, (fnp.asarray(x[:3]), fnp.asarray(powers[:4])), 1, ("fwd", "rev"))
    n, k = np.array([5, 10, 3, -1, 60.0, 4]), np.array([2, 3, 4, 0, 30, -1])
    for repetition in (False, True):
        close(special.comb(n[:3], k[:3], repetition=repetition), them.special.comb(n[:3], k[:3], repetition=repetition))
    np.testing.assert_allclose(np.asarray(special.comb(n, k)), them.special.comb(n, k), rtol=1e-12)
    y = np.array([-1.5, 0.0, 0.25, 2.5])
    close(special.loggamma(y), them.special.loggamma(y))
    assert np.asarray(special.comb(np.float32(5), 2)).dtype == np.float32


C = np.array([2.0, -1.0, 0.5, 3.0])
MATRICES: list[Callable[[Any], Any]] = [
    lambda m: m.circulant(C), lambda m: m.hankel(C), lambda m: m.hankel(C, np.array([3.0, 1, 4, 1, 5])),
    lambda m: m.companion(C), lambda m: m.fiedler(C), lambda m: m.leslie(C, C[1:]), lambda m: m.pascal(5),
    lambda m: m.pascal(4, "lower"), lambda m: m.pascal(4, "upper"), lambda m: m.hadamard(8), lambda m: m.hadamard(1),
    lambda m: m.expm_frechet(np.outer(C, C) / 9, np.diag(C))[1],
    lambda m: m.expm_frechet(np.outer(C, C) / 9, np.diag(C), compute_expm=False),
    *[lambda m, n=n, k=k: m.convolution_matrix(C, n, k) for n in (2, 4, 7) for k in ("full", "same", "valid")],
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(MATRICES)))
def test_matrices(k: int) -> None:
    close(MATRICES[k](linalg), MATRICES[k](them.linalg), 1e-8)


def test_matrices_in_float32() -> None:
    for ours, theirs in (
        (linalg.dft(5), them.linalg.dft(5)), (linalg.dft(4, "sqrtn"), them.linalg.dft(4, "sqrtn")),
        (linalg.helmert(5), them.linalg.helmert(5)), (linalg.helmert(4, True), them.linalg.helmert(4, True)),
    ):  # fmt: skip
        close(ours, theirs, 1e-6)


def test_decompositions() -> None:
    a = RNG.standard_normal((4, 3))
    for side, m in (("right", a), ("left", a), ("left", a.T), ("right", a[:3])):
        for ours, theirs in zip(linalg.polar(m, side), them.linalg.polar(m, side), strict=True):
            close(ours, theirs, 1e-8)
    values, vectors = linalg.eigh_tridiagonal(C, C[1:])
    matrix = np.diag(C) + np.diag(C[1:], 1) + np.diag(C[1:], -1)
    close(values, them.linalg.eigh_tridiagonal(C, C[1:])[0], 1e-8)
    close(matrix @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values), 1e-8)
    close(linalg.eigh_tridiagonal(C, C[1:], eigvals_only=True), values)


def test_coordinates_of_8_bits() -> None:
    x, at = np.arange(100.0), np.array([90, 250], np.uint8)
    wide = scipy.ndimage.map_coordinates(x, [at.astype(int)], order=0, mode="mirror")
    close(ndimage.map_coordinates(x, [at], 0, mode="mirror"), wide)


# ----------------------------------------------------------------------------------------------------------- refusals

V, M = np.ones(5), np.ones((3, 3))
REFUSED: list[tuple[Callable[[], object], type[Exception], str, str]] = [
    (lambda: signal.convolve(V, M), ShapeError,
     "convolve: takes two arrays of the same number of axes, not empty, got f64[5] and f64[3,3]",
     "add axes of size 1: x[None]"),
    (lambda: signal.correlate(V, V, "all"), ParameterError, "correlate: mode 'all'",
     'use "full", "same" or "valid"'),
    (lambda: signal.convolve(V, V, method="loop"), ParameterError, "convolve: method 'loop'",
     'use "auto", "direct" or "fft"'),
    (lambda: signal.convolve(np.ones((3, 8)), np.ones((5, 2)), "valid"), ShapeError,
     "convolve: for the mode 'valid' one array fits into the other along every axis, got f64[3,8] and f64[5,2]",
     'use mode="full"'),
    (lambda: signal.convolve2d(M, M, boundary="edge"), ParameterError, "convolve2d: boundary 'edge'",
     'use "fill", "wrap" or "symm"'),
    (lambda: signal.correlate2d(V, V), ShapeError, "correlate2d: takes matrices, got f64[5] and f64[5]",
     "use convolve or correlate"),
    (lambda: loose.signal.detrend(V, type="cubic"), ParameterError, "detrend: type 'cubic'",
     'use "linear" or "constant"'),
    (lambda: signal.detrend(V, bp=9), ParameterError, "detrend: bp (9,) is not within axis 0 of f64[5]",
     "give places in it"),
    (lambda: signal.welch(V, window="kaiser"), ParameterError, "welch: window 'kaiser'",
     ("give its values, or one of boxcar, hann, hamming, blackman, blackmanharris, nuttall, flattop, triang, bartlett,"
     " parzen, bohman, tukey, barthann, cosine, lanczos, exponential, kaiser, gaussian, general_hamming; with a"
     " parameter: ('kaiser', 8.0)")),
    (lambda: signal.welch(V, window=np.ones(6)), ShapeError,
     "welch: window is f64[6], longer than the 5 elements of the signal", "give a shorter window, or pad the signal"),
    (lambda: signal.welch(V, window=np.ones(3), nperseg=4), ShapeError, "welch: window is f64[3] for segments of 4",
     "give them the same length"),
    (lambda: signal.istft(M, window=np.ones(3)), ShapeError, "istft: window is f64[3] for segments of 4",
     "give them the same length"),
    (lambda: signal.istft(V), ShapeError, "istft: takes an array [..., frequencies, times], got f64[5]",
     "add an axis: x[:, None]"),
    (lambda: signal.stft(V, nperseg=4, noverlap=4), ParameterError, "stft: nperseg is 4, noverlap 4, nfft 4",
     "they satisfy 0 <= noverlap < nperseg <= nfft"),
    (lambda: signal.csd(V, V, scaling="none"), ParameterError, "csd: scaling 'none'",
     'use "density" or "spectrum"'),
    (lambda: signal.stft(V, scaling="density"), ParameterError, "stft: scaling 'density'", 'use "psd" or "spectrum"'),
    (lambda: signal.csd(V, V, average="mode"), ParameterError, "csd: average 'mode'", 'use "mean" or "median"'),
    (lambda: signal.stft(V, boundary="wrap"), ParameterError, "stft: boundary 'wrap'",
     'use "zeros", "even", "odd", "constant" or None'),
    (lambda: loose.signal.stft(V, detrend="cubic"), ParameterError, "stft: detrend 'cubic'",
     'use "constant", "linear" or False'),
    (lambda: fft.dct(V, 1), ParameterError, "dct: type 1", "types 2 and 3 are there"),
    (lambda: fft.idct(V, norm="unit"), ParameterError, "idct: norm 'unit'",
     'use "backward", "ortho", "forward" or None'),
    (lambda: fft.dct(V, n=0), ParameterError, "dct: n is 0", "give a size of 1 or more"),
    (lambda: fft.dctn(M, s=(2,), axes=(0, 1)), ShapeError, "dctn: s has 1 sizes for 2 axes",
     "give one size for each axis"),
    (lambda: ndimage.map_coordinates(M, [V, V], 3), ParameterError, "map_coordinates: order 3",
     "orders 0 and 1 are there"),
    (lambda: ndimage.map_coordinates(M, [V, V], 1, "edge"), ParameterError, "map_coordinates: mode 'edge'",
     'use "constant", "nearest", "mirror", "wrap" or "reflect"'),
    (lambda: ndimage.map_coordinates(M, [V], 1), ShapeError, "map_coordinates: coordinates of 1 axes for f64[3,3]",
     "give one array of coordinates for each axis"),
    (lambda: ndimage.map_coordinates(M[:0], [V, V], 1), ShapeError,
     "map_coordinates: the array is empty: f64[0,3]", "give at least one element"),
    (lambda: interpolate.RegularGridInterpolator((V,), V, bounds_error=True), ParameterError,
     "RegularGridInterpolator: bounds_error is True, and whether a point is outside depends on its value",
     "leave it out: fill_value marks points outside; lax.error_if checks them"),
    (lambda: interpolate.RegularGridInterpolator((V,), V, "cubic"), ParameterError,
     "RegularGridInterpolator: method 'cubic'", 'use "linear" or "nearest"'),
    (lambda: interpolate.RegularGridInterpolator((V[:3],), V), ShapeError,
     "RegularGridInterpolator: points[0] is f64[3], and axis 0 of the values has size 5",
     "give one coordinate for each place along the axis, and at least two"),
    (lambda: interpolate.RegularGridInterpolator((V, V), V), ShapeError,
     "RegularGridInterpolator: 2 vectors of points for values f64[5]",
     "give one vector of points for each axis of the grid"),
    (lambda: interpolate.RegularGridInterpolator((V,), V)(M), ShapeError,
     "RegularGridInterpolator: points of 3 coordinates in a grid of 1 axes",
     "give an array [..., k], or a tuple of k arrays"),
    (lambda: cluster.vq.vq(M, V), ShapeError, "vq: observations f64[3,3] and codes f64[5] are not [m,n] and [k,n]",
     "give a row for each observation and for each code"),
    (lambda: linalg.companion(V[:1]), ShapeError, "companion: takes two coefficients or more, got 1",
     "give a polynomial of degree 1"),
    (lambda: linalg.convolution_matrix(V, 3, "all"), ParameterError, "convolution_matrix: mode 'all'",
     'use "full", "same" or "valid"'),
    (lambda: linalg.convolution_matrix(V, 0), ParameterError, "convolution_matrix: n is 0, and a has 5 elements",
     "both are 1 or more"),
    (lambda: linalg.convolution_matrix(2.0, 3), ShapeError, "convolution_matrix: a is a number",
     "give a vector, such as [a]"),
    (lambda: linalg.dft(3, dtype=np.float32), DTypeError, "dft: dtype float32",
     "the matrix is complex: use complex64 or complex128"),
    (lambda: linalg.dft(3, "unit"), ParameterError, "dft: scale 'unit'", 'use "sqrtn", "n" or None'),
    (lambda: linalg.hadamard(6), ParameterError, "hadamard: n is 6, not a power of 2", "give 1, 2, 4, 8, ..."),
    (lambda: linalg.leslie(V, V), ShapeError, "leslie: 5 fecundities and 5 survival rates",
     "give one rate less than fecundities"),
    (lambda: linalg.pascal(3, "left"), ParameterError, "pascal: kind 'left'",
     'use "symmetric", "lower", "upper" or None'),
    (lambda: linalg.polar(M, "top"), ParameterError, "polar: side 'top'", 'use "right" or "left"'),
    (lambda: linalg.expm_frechet(M, M, method="SPS"), ParameterError, "expm_frechet: method 'SPS'", "leave it out"),
    (lambda: linalg.eigh_tridiagonal(V, V[1:], select="i"), ParameterError,
     'eigh_tridiagonal: select_range goes with select="i"', "give both"),
    *[(lambda r=r: linalg.eigh_tridiagonal(V, V[1:], select="i", select_range=r), ParameterError,
       f"eigh_tridiagonal: select_range {r} of {len(V)} eigenvalues", "give the first number and the last, from 0")
      for r in ((0, 100), (2, 1), (0, -1))],
    (lambda: loose.linalg.eigh_tridiagonal(V, V[1:], select="i", select_range=3), ArgumentError,
     "eigh_tridiagonal: select_range must be a sequence, got an int: 3", "give a tuple or a list"),
    (lambda: loose.linalg.eigh_tridiagonal(V, V[1:], select="i", select_range=(0.5, 2)), ArgumentError,
     "eigh_tridiagonal: select_range[0] must be an integer, got a float: 0.5",
     "it is static: a Python value, which cannot come from a traced array"),
    (lambda: loose.linalg.eigh_tridiagonal(V, V[1:], select="i", select_range=(0, 1, 2)), ParameterError,
     "eigh_tridiagonal: select_range has 3 numbers, not two: (0, 1, 2)", "give the first number and the last, from 0"),
    (lambda: linalg.eigh_tridiagonal(V, V[1:], select="v"), ParameterError, "eigh_tridiagonal: select 'v'",
     'use "a" or "i"'),
    (lambda: linalg.eigh_tridiagonal(V, V), ShapeError,
     "eigh_tridiagonal: 5 elements on the diagonal, 5 beside it", "give one element less beside the diagonal"),
    (lambda: special.comb(5, 2, exact=True), ParameterError, "comb: exact=True has no result of a floating dtype",
     "use math.comb"),
    (lambda: optimize.minimize(rosenbrock, V, method="CG"), ParameterError, "minimize: method 'CG'",
     'use "BFGS" or "L-BFGS-B"'),
    (lambda: optimize.minimize(rosenbrock, M), ShapeError, "minimize: x0 is f64[3,3], not a vector of real numbers",
     "make a vector of a tree with fxad.tree.ravel"),
    (lambda: optimize.minimize(rosenbrock, V, options={"disp": True}), ParameterError,
     "minimize: BFGS has no option 'disp'", "its options are gtol, norm, maxiter, line_search_maxiter"),
    (lambda: optimize.minimize(rosenbrock, V, options={"maxiter": 2.5}), ParameterError,
     "minimize: maxiter is 2.5, not an int", "give a number of steps"),
    (lambda: loose.optimize.minimize(rosenbrock, V, 3.0), ArgumentError, "minimize: args is a float, not a tuple",
     "args=(a,)"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    check_refused(*REFUSED[k])


# ---------------------------------------------------------------------------------------------- exponential integrals


NEGATIVE = [
    (-2, 1), (-2, 2), (-2, 3), (-2, 0.5), (1, -2), (-3, 2), (-1.5, 1.5), (0, 1), (-2.5, 0.5), (-1.5, -0.5), (0, -2),
    (-2, 0), (0.5, -0.5), (2, 3), (-2.5, 1.25), (-2.5, -3.75), (-5, 3), (0, 0),
]  # fmt: skip


def test_beta_functions_at_poles_of_gamma() -> None:
    a, b = np.array(NEGATIVE).T
    np.testing.assert_allclose(np.asarray(special.beta(a, b)), scipy.special.beta(a, b), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(np.asarray(special.betaln(a, b)), scipy.special.betaln(a, b), rtol=1e-12)
    assert fnp.isnan(special.beta(np.array([np.nan, -2]), np.array([-2, np.nan]))).all()
    slope: Any = fx.grad(special.beta)(np.float64(-2), np.float64(1))
    assert float(slope) == pytest.approx(-0.25)  # beta(a, 1) = 1 / a


def test_pochhammer_at_poles_of_gamma() -> None:
    more = [(-2, -1), (-2, -3), (-2.5, 2.5), (3, -3), (3, -5), (3, -2), (-2.5, 2), (-0.5, 1), (0, -1), (2.5, -3),
            (-20, 15), (1e8, -3), (-1e8, 3), (-1.5, 0.7), (-0.5, 3.2), (-3, 0), (3, 0), (np.inf, 0)]  # fmt: skip
    a, b = np.array([*NEGATIVE, *more]).T
    np.testing.assert_allclose(np.asarray(special.poch(a, b)), scipy.special.poch(a, b), rtol=1e-12)
    assert fnp.isnan(special.poch(np.array([np.nan, -2]), np.array([1, np.nan]))).all()
    slopes: Any = [fx.grad(special.poch)(np.float64(x), np.float64(m)) for x, m in ((-2, 1), (-2, 2), (-5, 3))]
    assert [float(s) for s in slopes] == pytest.approx([1, -3, 47])
    # the derivative in m at 0 is digamma(z)
    slope: Any = fx.grad(special.poch, 1)(np.float64(3), np.float64(0))
    assert float(slope) == pytest.approx(float(scipy.special.digamma(3)))


def test_exponential_integrals() -> None:
    x = np.array([-50.0, -3, -1, -1e-3, 0, 1e-3, 0.3, 1, 2, 20, 39.9, 40.1, 300, np.inf, -np.inf, np.nan])
    close(fx.jit(special.expi)(x), scipy.special.expi(x), 1e-11)
    y = np.array([0, 1e-6, 0.5, 1, 1.0001, 2, 30, np.inf, -1])
    orders = np.array([0, 1, 2, 7, 50])[:, None]
    wanted = np.where(y < 0, np.nan, them.special.expn(orders, y))
    close(fx.jit(special.expn)(orders, y), wanted, 1e-11)
    v = np.array([0.4, 1.3, 6.0])
    slope = fx.jit(fx.grad(lambda v: (special.expi(v) + special.expn(3, v) - special.exp1(v)).sum()))(v)
    close(slope, np.exp(v) / v - them.special.expn(2, v) + np.exp(-v) / v, 1e-11)


def test_matrices_of_whole_numbers() -> None:
    close(special.bernoulli(8), scipy.special.bernoulli(8), 1e-6)
    close(linalg.invhilbert(4), scipy.linalg.invhilbert(4))
    for kind in ("symmetric", "lower", "upper"):
        close(linalg.invpascal(5, kind), them.linalg.invpascal(5, kind))
    a, c = RNG.standard_normal((4, 3)), RNG.standard_normal((2, 4))
    for ours, theirs in zip(linalg.qr_multiply(a, c), scipy.linalg.qr_multiply(a, c), strict=True):
        close(abs(ours), abs(theirs), 1e-12)
    q, r = linalg.qr_multiply(a, np.eye(3), "left")
    close(q @ r, a, 1e-12)
    q, r, order = linalg.qr_multiply(a, np.eye(3), "left", pivoting=True)
    close(q @ r, a[:, np.asarray(order)], 1e-12)


def test_limits_of_scaled_and_integral_functions() -> None:
    at = np.array([0.0, np.inf, -np.inf, np.nan])

    def together(x: Any) -> Any:
        return special.erfcx(x), special.spence(x), *special.sici(x), special.erfcinv(x)

    erfcx, spence, si, ci, _ = fx.jit(together)(at)
    np.testing.assert_array_equal(erfcx, [1, 0, np.inf, np.nan])
    np.testing.assert_allclose(spence, [np.pi**2 / 6, -np.inf, np.nan, np.nan], 1e-15)
    np.testing.assert_allclose(si, [0, np.pi / 2, -np.pi / 2, np.nan], 1e-15)
    np.testing.assert_array_equal(ci, [-np.inf, 0, 0, np.nan])
    ends = special.erfcinv(np.array([0, 2, 1, -0.1, 2.1, np.nan]))
    np.testing.assert_array_equal(ends, [np.inf, -np.inf, 0, *[np.nan] * 3])
    # further derivatives of erfcx: E_n' = -2 (n + 1) E_(n + 1), from a table up to the third, then by recurrence
    slope: Any = special.erfcx
    for _ in range(3):
        slope = fx.grad(slope)
    x = 30.0
    wanted = float(mpmath.diff(lambda v: mpmath.exp(v * v) * mpmath.erfc(v), x, 3, h=1e-8, addprec=400))
    np.testing.assert_allclose(slope(x), wanted, 1e-5)
    np.testing.assert_allclose(slope(np.float64(x)), wanted, 1e-14)
    # the least normal numbers, whose halves are subnormal
    for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-15)):
        least = (np.array([1, 1.25, 1.99, 2, 2.5]) * float(np.finfo(dtype).tiny)).astype(dtype)
        np.testing.assert_allclose(special.erfcinv(least), them.special.erfcinv(least.astype(float)), tolerance)


@pytest.mark.parametrize("kind", [np.int64(2), np.int64(3), fnp.asarray(3)])
def test_the_type_of_a_cosine_transform_is_any_integer(kind: Any) -> None:
    """Regression: an integer of NumPy was taken for type 2, and in an inverse for type 3."""
    x = np.arange(4.0)
    close(fft.dct(x, kind), them.fft.dct(x, int(kind)))
    close(fft.idct(x, kind), them.fft.idct(x, int(kind)))


@pytest.mark.filterwarnings("error")
def test_matrices_beyond_the_range_of_float32() -> None:
    """Regression: 0 * inf made nan of numbers that are in range; a cast warned."""
    symmetric: Any = np.asarray(linalg.pascal(150))
    exact: Any = scipy.linalg.pascal(150, exact=True).astype(np.float64)
    inside = exact < 1e38
    np.testing.assert_allclose(symmetric[inside], exact[inside], rtol=1e-6)
    assert np.isinf(symmetric[exact > 1e39]).all()
    inverse = np.asarray(linalg.invpascal(150))
    assert not np.isnan(inverse).any()
    assert (np.sign(inverse[:, 0]) == (-1.0) ** np.arange(150)).all()
    assert np.isinf(np.asarray(linalg.invhilbert(40))).any()


def test_expi_where_the_exponential_alone_overflows() -> None:
    x, scale = np.array([88.0, 89.0, 92.0], np.float32), np.float64(1e-36)
    wide = x.astype(np.float64)
    value: Any = np.asarray(special.expi(x))
    slope: Any = np.asarray(fx.grad(lambda v: special.expi(v).sum())(x))
    close(value * scale, scipy.special.expi(wide) * scale, 1e-6)
    close(slope * scale, np.exp(wide) / wide * scale, 1e-6)


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_a_place_that_is_nan_has_the_value_nan(method: str) -> None:
    for fill in (-1.0, None):
        grid = interpolate.RegularGridInterpolator((np.arange(3.0),), np.arange(3.0), method, fill_value=fill)
        np.testing.assert_array_equal(grid(np.array([np.nan, 1.0])), [np.nan, 1.0])


@pytest.mark.parametrize(
    ("call", "message", "remedy"),
    [
        (lambda: special.bernoulli(-1), "bernoulli: n is -1", "give 0 or more"),
        (lambda: linalg.invpascal(3, "x"), "invpascal: kind 'x'", 'use "symmetric", "lower", "upper" or None'),
        (lambda: linalg.qr_multiply(np.eye(2), np.eye(2), "x"), "qr_multiply: mode 'x'", 'use "right" or "left"'),
    ],
)  # fmt: skip
def test_refusals_of_special_functions(call: Callable[[], object], message: str, remedy: str) -> None:
    with pytest.raises(ParameterError) as caught:
        call()
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


def test_functions_of_hermitian_matrices_read_one_triangle() -> None:
    a = np.array([[4.0, 1, 2], [1, 5, 3], [2, 3, 6]])
    for lower, mask in ((True, np.tril), (False, np.triu)):
        read = np.where(mask(np.ones((3, 3))) == 1, a, np.nan)
        np.testing.assert_allclose(
            linalg.cholesky(read, lower=lower), scipy.linalg.cholesky(a, lower=lower), atol=1e-12
        )
        np.testing.assert_allclose(linalg.eigh(read, lower=lower)[0], scipy.linalg.eigvalsh(a), rtol=1e-12)
        np.testing.assert_allclose(
            linalg.eigh(read, lower=lower, eigvals_only=True), scipy.linalg.eigvalsh(a), rtol=1e-12
        )
        factor = linalg.cho_factor(read, lower=lower)
        np.testing.assert_allclose(linalg.cho_solve(factor, np.ones(3)), np.linalg.solve(a, np.ones(3)), rtol=1e-12)
        gradient = np.asarray(fx.grad(lambda x: linalg.cholesky(x, lower=lower).sum())(read))
        assert np.all(np.isfinite(gradient)), "the other triangle reaches the gradient"
        np.testing.assert_array_equal(gradient, mask(gradient))


def test_zeta_at_its_poles() -> None:
    x = np.array([1.0, 1.0, 2.0, 2.0, 2.5, 3.0, 0.5, 2.0, 3.0, 2.0, np.inf])
    q = np.array([1.0, 2.0, 0.0, -1.0, -1.5, -2.0, 1.0, -0.5, -0.5, -3.0, 1.0])
    for f in (special.zeta, fx.jit(special.zeta)):
        np.testing.assert_allclose(np.asarray(f(x, q)), scipy.special.zeta(x, q), rtol=1e-13)


def test_std_takes_one_correction() -> None:
    for name, f in (("std", fnp.std), ("var", fnp.var), ("nanstd", fnp.nanstd), ("nanvar", fnp.nanvar)):
        check_refused(
            lambda: f(np.arange(4.0), ddof=1, correction=0),
            ParameterError,
            f"{name}: correction 0 and ddof 1 are two names of one argument",
            "give one of them",
        )


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4, 1e8])
def test_minimization_at_any_scale(method: str, scale: float) -> None:
    """The first step is not longer than 1: 20 halvings of a step by the gradient do not reach 1e-8."""
    start = np.array([1.0, 2.0])
    found = optimize.minimize(lambda x: scale * fnp.mean(x**2), start, method=method, tol=1e-9 * scale)
    assert bool(found.success)
    np.testing.assert_allclose(found.x, [0, 0], atol=1e-7)


def test_a_hermitian_tridiagonal_matrix_has_e_above_its_diagonal() -> None:
    d, e = RNG.standard_normal(4), RNG.standard_normal(3) + 1j * RNG.standard_normal(3)
    values, vectors = linalg.eigh_tridiagonal(d, e)
    matrix = np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
    close(matrix @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values))
    for first, last in ((0, 0), (1, 2), (2, 3)):
        some, columns = linalg.eigh_tridiagonal(d, e, select="i", select_range=(first, last))
        close(some, np.asarray(values)[first : last + 1])
        close(columns, np.asarray(vectors)[:, first : last + 1])
        close(linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(first, last)), some)
