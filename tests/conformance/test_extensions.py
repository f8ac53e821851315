"""The standard's extensions `linalg` and `fft`: values, dtypes, shapes, names of results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.tracing.array import Array
from tests.conformance.standard import COMPLEX, FLOATING, FUNCTIONS, REAL_FLOATING
from tests.interfaces.oracle import close

Values = npt.NDArray[Any]
Case = Callable[..., Any]
REAL_PART = {"complex64": "float32", "complex128": "float64"}
COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}


def matrices(dtype: str, shape: tuple[int, ...] = (2, 3, 3), seed: int = 0) -> Values:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if dtype in COMPLEX:
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def hermitian(dtype: str) -> Values:
    x = matrices(dtype)
    return x + np.conj(np.swapaxes(x, -1, -2))


def definite(dtype: str) -> Values:
    x = matrices(dtype)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(3, dtype=dtype)


def near(ours: Any, theirs: Any) -> None:
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.shape == b.shape
    single = a.dtype.itemsize <= (8 if a.dtype.kind == "c" else 4)
    np.testing.assert_allclose(a, b, rtol=2e-4 if single else 1e-9, atol=2e-4 if single else 1e-9)


def both(fn: Case, *args: Values) -> list[Any]:
    """Returns the results of an eager call and of a compiled program."""
    return [fn(*map(fnp.asarray, args)), fx.jit(fn)(*args)]


L, R = fnp.linalg, np.linalg
# name: the functions of fxad and NumPy, and the kind of matrix that they take (None: any)
SAME: dict[str, list[tuple[Case, Case, Callable[[str], Values]]]] = {
    "cholesky": [
        (L.cholesky, R.cholesky, definite),
        (lambda x: L.cholesky(x, upper=True), lambda x: R.cholesky(x, upper=True), definite),
    ],
    "det": [(L.det, R.det, matrices)],
    "diagonal": [
        (L.diagonal, R.diagonal, matrices),
        (lambda x: L.diagonal(x, offset=-1), lambda x: R.diagonal(x, offset=-1), matrices),
    ],
    "eigvalsh": [(L.eigvalsh, R.eigvalsh, hermitian)],
    "inv": [(L.inv, R.inv, definite)],
    "matrix_norm": [
        (
            lambda x, o=o, k=k: L.matrix_norm(x, ord=o, keepdims=k),
            lambda x, o=o, k=k: R.matrix_norm(x, ord=o, keepdims=k),
            matrices,
        )
        for o, k in [("fro", False), ("nuc", True), (1, False), (-1, True), (2, False), (-2, True), (math.inf, False)]
    ],
    "matrix_power": [
        (lambda x, n=n: L.matrix_power(x, n), lambda x, n=n: R.matrix_power(x, n), definite)
        for n in (0, 1, 2, 3, 5, -2)
    ],
    "matrix_rank": [
        (L.matrix_rank, R.matrix_rank, matrices),
        (lambda x: L.matrix_rank(x @ x[..., :1] * x), lambda x: R.matrix_rank(x @ x[..., :1] * x), definite),
        (lambda x: L.matrix_rank(x, rtol=10.0), lambda x: R.matrix_rank(x, rtol=10.0), matrices),
    ],
    "pinv": [
        (lambda x: L.pinv(x, rtol=0.1), lambda x: R.pinv(x, rtol=0.1), matrices),
        (L.pinv, R.pinv, matrices), (lambda x: L.pinv(x[..., :2]), lambda x: R.pinv(x[..., :2]), definite)],
    "slogdet": [(L.slogdet, R.slogdet, matrices)],
    "svdvals": [(L.svdvals, R.svdvals, matrices)],
    "trace": [
        (L.trace, R.trace, matrices),
        (lambda x: L.trace(x, offset=1), lambda x: R.trace(x, offset=1), matrices),
    ],
    "vector_norm": [
        (
            lambda x, a=a, o=o, k=k: L.vector_norm(x, axis=a, ord=o, keepdims=k),
            lambda x, a=a, o=o, k=k: R.vector_norm(x, axis=a, ord=o, keepdims=k),
            matrices,
        )
        for a, o, k in [
            (None, 2, False), (1, 1, True), (-1, math.inf, False), (0, -math.inf, False), ((0, 1), 3, True),
            (2, 0, False),
        ]
    ],
    "cross": [
        (lambda x: L.cross(x, x + 1), lambda x: R.cross(x, x + 1), matrices),
        (lambda x: L.cross(x, x[:1] * 2, axis=-2), lambda x: np.cross(x, x[:1] * 2, axis=-2), matrices),
    ],
    "outer": [(lambda x: L.outer(x[0, 0], x[0, 1]), lambda x: R.outer(x[0, 0], x[0, 1]), matrices)],
    "solve": [
        (lambda x: L.solve(x, x[..., :2]), lambda x: R.solve(x, x[..., :2]), definite),
        (lambda x: L.solve(x[0], x[0, 0]), lambda x: R.solve(x[0], x[0, 0]), definite),
        (lambda x: L.solve(x, x[0]), lambda x: R.solve(x, x[0]), definite),
    ],
}  # fmt: skip
DECOMPOSITIONS = {"eig", "eigh", "eigvals", "qr", "svd"}
OF_THE_NAMESPACE = {"matmul", "matrix_transpose", "tensordot", "vecdot"}


def test_every_function_has_a_case() -> None:
    assert {f.name for f in FUNCTIONS if f.extension == "linalg"} == set(SAME) | DECOMPOSITIONS | OF_THE_NAMESPACE
    assert {f.name for f in FUNCTIONS if f.extension == "fft"} == set(TRANSFORMS) | FREQUENCIES
    for name in OF_THE_NAMESPACE:
        assert getattr(L, name) is getattr(fnp, name)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", SAME)
def test_linear_algebra(name: str, dtype: str) -> None:
    for ours, theirs, make in SAME[name]:
        x = make(dtype)
        with np.errstate(all="ignore"):
            want = theirs(x)
        wanted = list(want) if isinstance(want, tuple) else [want]
        for out in both(ours, x):
            for got, w in zip(list(out) if isinstance(out, tuple) else [out], wanted, strict=True):
                near(got, w)
                if w.dtype.kind in "fc":
                    assert got.dtype == w.dtype
                else:
                    assert got.dtype == fnp.int32


@pytest.mark.parametrize("dtype", FLOATING)
def test_eigh(dtype: str) -> None:
    x = hermitian(dtype)
    for out in both(L.eigh, x):
        assert out.eigenvalues.dtype == REAL_PART.get(dtype, dtype)
        assert out.eigenvectors.dtype == dtype
        w, v = np.asarray(out.eigenvalues), np.asarray(out.eigenvectors)
        near((v * w[:, None, :]) @ np.conj(np.swapaxes(v, -1, -2)), x)
        near(np.conj(np.swapaxes(v, -1, -2)) @ v, np.broadcast_to(np.eye(3), x.shape))


@pytest.mark.parametrize("dtype", FLOATING)
def test_eig(dtype: str) -> None:
    x = matrices(dtype)
    for out, values in zip(both(L.eig, x), both(L.eigvals, x), strict=True):
        assert out.eigenvalues.dtype == out.eigenvectors.dtype == values.dtype == COMPLEX_OF.get(dtype, dtype)
        w, v = np.asarray(out.eigenvalues), np.asarray(out.eigenvectors)
        near(x @ v, v * w[:, None, :])
        near(np.sort_complex(np.asarray(values)), np.sort_complex(w))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5)])
def test_qr_and_svd(shape: tuple[int, ...], dtype: str) -> None:
    x = matrices(dtype, shape)
    m, n = shape[-2:]
    k = min(m, n)
    for mode, inner in (("reduced", k), ("complete", m)):
        for out in both(lambda x, mode=mode: L.qr(x, mode=mode), x):
            assert (out.Q.shape[-2:], out.R.shape[-2:]) == ((m, inner), (inner, n))
            near(np.asarray(out.Q) @ np.asarray(out.R), x)
            near(np.triu(np.asarray(out.R)), out.R)
    for full in (True, False):
        for out in both(lambda x, full=full: L.svd(x, full_matrices=full), x):
            assert out.S.dtype == REAL_PART.get(dtype, dtype)
            assert (out.U.shape[-2:], out.S.shape[-1:], out.Vh.shape[-2:]) == (
                (m, m if full else k),
                (k,),
                (n if full else k, n),
            )
            u, s, vh = (np.asarray(p) for p in out)
            near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)


def test_names_of_results() -> None:
    x = fnp.asarray(definite("float32"))
    pair = ("eigenvalues", "eigenvectors")
    fields: dict[str, tuple[str, ...]] = {"eigh": pair, "eig": pair, "qr": ("Q", "R")}
    fields |= {"svd": ("U", "S", "Vh"), "slogdet": ("sign", "logabsdet")}
    for name, want in fields.items():
        assert getattr(L, name)(x)._fields == want


# --------------------------------------------------------------------------------------------------- Fourier transforms

TRANSFORMS: dict[str, list[dict[str, Any]]] = {
    **{
        name: [{}, {"n": 4}, {"n": 9}, {"axis": 0}, {"norm": "ortho"}, {"norm": "forward"}, {"norm": "backward"}]
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    },
    **{
        name: [{}, {"s": (4, 4), "axes": (1, 2)}, {"axes": (0, -1)}, {"norm": "ortho"}, {"norm": "forward"}]
        for name in ("fftn", "ifftn", "rfftn", "irfftn")
    },
    **{name: [{}, {"axes": 0}, {"axes": (0, 2)}, {"axes": -1}] for name in ("fftshift", "ifftshift")},
}
FREQUENCIES = {"fftfreq", "rfftfreq"}
OF_REAL = {"rfft", "ihfft", "rfftn"}
TO_REAL = {"irfft", "hfft", "irfftn"}


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_fft(name: str, dtype: str) -> None:
    """Complex transforms take real arrays too. The precision of the operand is that of the result."""
    if name in OF_REAL and dtype in COMPLEX:
        with pytest.raises(TypeError, match=name):
            getattr(fnp.fft, name)(fnp.asarray(matrices(dtype)))
        return
    x = matrices(dtype, (3, 5, 6))
    for arguments in TRANSFORMS[name]:
        want = getattr(np.fft, name)(x.astype("complex128" if dtype in COMPLEX else "float64"), **arguments)
        real = name in TO_REAL or (name.endswith("shift") and dtype in REAL_FLOATING)
        result = REAL_PART.get(dtype, dtype) if real else COMPLEX_OF.get(dtype, dtype)
        for got in both(lambda x, a=arguments: getattr(fnp.fft, name)(x, **a), x):
            assert isinstance(got, Array)
            assert got.dtype == result
            near(got, want)


@pytest.mark.parametrize("name", sorted(FREQUENCIES))
def test_frequencies(name: str) -> None:
    ours, theirs = getattr(fnp.fft, name), getattr(np.fft, name)
    for n, d in ((1, 1.0), (4, 1.0), (7, 0.25), (8, 2.0)):
        assert ours(n, d=d).dtype == fnp.float32
        close(ours(n, d=d), theirs(n, d=d).astype(np.float32))
        close(ours(n, d=d, dtype=fnp.float64), theirs(n, d=d))


def test_inverses() -> None:
    x = matrices("complex128", (4, 6))
    near(fnp.fft.ifft(fnp.fft.fft(x)), x)
    near(fnp.fft.ifftn(fnp.fft.fftn(x)), x)
    near(fnp.fft.irfft(fnp.fft.rfft(x.real), n=6), x.real)
    near(fnp.fft.ifftshift(fnp.fft.fftshift(x)), x)
