"""Keyword arguments of NumPy and JAX that programs use, and batches of SciPy's structured matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import FxadError, ParameterError, ShapeError
from fxad.scipy import linalg

RNG = np.random.default_rng(7)
C, R = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((3, 5))


def close(got: Any, want: Any, rtol: float = 1e-12) -> None:
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def stacked(f: Any, *args: Any) -> Any:
    """SciPy's function of each vector: its own batches differ from version to version."""
    lead = np.broadcast_shapes(*[a.shape[:-1] for a in args])
    args = tuple([np.broadcast_to(a, (*lead, a.shape[-1])).reshape(-1, a.shape[-1]) for a in args])
    out = np.stack([f(*row) for row in zip(*args, strict=True)])
    return out.reshape(*lead, *out.shape[1:])


@pytest.mark.parametrize("name", ["toeplitz", "circulant", "hankel", "companion", "fiedler", "fiedler_companion"])
def test_structured_matrices_have_batches(name: str) -> None:
    ours, theirs = getattr(linalg, name), getattr(scipy.linalg, name)
    for c in (C, C[0], C[0, 0]):
        close(ours(c), stacked(theirs, c))
    close(fx.vmap(ours)(C), ours(C))
    if name in ("toeplitz", "hankel"):
        close(ours(C, R), stacked(theirs, C, R))
        close(ours(C[0, 0], R), stacked(theirs, C[0, 0], R))
    slope = fx.jacfwd(lambda c: ours(c))(C[0, 0] + 3)
    step = 1e-6 * np.eye(4)[2]
    difference = (theirs(C[0, 0] + 3 + step) - theirs(C[0, 0] + 3 - step)) / 2e-6
    np.testing.assert_allclose(slope[..., 2], difference, atol=1e-6)


def test_the_companion_of_fiedler() -> None:
    for n in (2, 3, 6, 7):
        a = RNG.standard_normal(n)
        close(linalg.fiedler_companion(a), scipy.linalg.fiedler_companion(a))
        roots = np.sort_complex(np.linalg.eigvals(np.asarray(linalg.fiedler_companion(a))))
        np.testing.assert_allclose(roots, np.sort_complex(np.roots(a)), atol=1e-8)
    with pytest.raises(ShapeError, match="fiedler_companion: takes two coefficients or more, got 1"):
        linalg.fiedler_companion(np.ones(1))
    assert linalg.dft(0).shape == (0, 0)
    with pytest.raises(ParameterError, match=r"^helmert: n is 0") as caught:
        linalg.helmert(0)
    assert caught.value.remedy == "give the size of the matrix, 1 or more"


def test_rank_and_pseudo_inverse_of_hermitian_matrices() -> None:
    v = RNG.standard_normal((5, 3))
    a = v @ np.diag([2.0, -1.0, 0.5]) @ v.T
    assert int(fnp.linalg.matrix_rank(a, hermitian=True)) == np.linalg.matrix_rank(a, hermitian=True) == 3
    assert int(fnp.linalg.matrix_rank(np.diag([3.0, -2, 1e-9]), 1e-6, hermitian=True)) == 2
    assert fnp.linalg.matrix_rank(np.stack([a, 0 * a]), hermitian=True).tolist() == [3, 0]
    for rcond in (0.1, 1e-10):
        close(fnp.linalg.pinv(a, rcond=rcond), np.linalg.pinv(a, rcond=rcond), 1e-9)
    with pytest.raises(ParameterError, match="pinv: rtol and rcond are two names of one argument"):
        fnp.linalg.pinv(a, 0.1, rcond=0.1)


def test_powers_of_bool_matrices_are_paths() -> None:
    a = RNG.random((6, 6)) < 0.25
    for n in range(6):
        got = fnp.linalg.matrix_power(a, n)
        assert got.dtype == np.bool_
        np.testing.assert_array_equal(got, np.linalg.matrix_power(a.astype(int), n) != 0)


def test_put_with_a_mode() -> None:
    x, at = np.arange(6.0).reshape(2, 3), np.array([-8, 7, 1])
    for mode in ("clip", "wrap"):
        want = x.copy()
        np.put(want, at, [10.0, 20, 30], mode=mode)
        close(fnp.put(x, at, np.array([10.0, 20, 30]), mode), want)
        close(fx.jit(lambda i, mode=mode: fnp.put(x, i, np.array([10.0, 20, 30]), mode=mode))(at), want)
    close(fnp.put(x, at, np.zeros(0)), x)
    with pytest.raises(ParameterError, match="put: mode 'raise' is not one of clip, wrap"):
        fnp.put(x, at, 1.0, "raise")


def test_indices_of_column_major_arrays() -> None:
    at = (np.array([0, 1, 1]), np.array([2, 0, 3]))
    for order in ("C", "F"):
        got = fnp.ravel_multi_index(at, (2, 4), order=order, dtype="int16")
        assert got.dtype == np.int16
        np.testing.assert_array_equal(got, np.ravel_multi_index(at, (2, 4), order=order))


def test_fits_in_full() -> None:
    x, y = np.arange(7.0), np.stack([np.arange(7.0) ** 2, np.sin(np.arange(7))], 1)
    w = np.arange(1.0, 8)
    for data in (y, y[:, 1]):
        for weights in (None, w):
            ours, theirs = [f(x, data, 2, full=True, w=weights) for f in (fnp.polyfit, np.polyfit)]
            assert len(ours) == len(theirs) == 5
            close(ours[0], theirs[0], 1e-9)
            np.testing.assert_allclose(np.ravel(ours[1]), np.ravel(theirs[1]), atol=1e-9)
            assert int(ours[2]) == int(theirs[2])
            close(ours[3], theirs[3], 1e-9)
            close(ours[4], theirs[4], 1e-6)
    close(fnp.polyfit(x, y, 2, None, False, w), np.polyfit(x, y, 2, None, False, w), 1e-9)  # NumPy's order
    assert len(fnp.polyfit(x, y, 2, full=True, cov=True)) == 5


def test_zeros_are_trimmed_along_axes() -> None:
    x = np.zeros((4, 5, 3))
    x[1:3, 2, 1] = 1
    np.testing.assert_array_equal(fnp.trim_zeros(x), x[1:3, 2:3, 1:2])
    np.testing.assert_array_equal(fnp.trim_zeros(x, "f"), x[1:, 2:, 1:])
    np.testing.assert_array_equal(fnp.trim_zeros(x, axis=1), x[:, 2:3])
    np.testing.assert_array_equal(fnp.trim_zeros(x, "b", (0, -1)), x[:3, :, :2])
    assert fnp.trim_zeros(np.zeros((2, 3))).shape == (0, 0)
    assert fnp.trim_zeros(np.array([0, 1, 0, 2, 0])).tolist() == [1, 0, 2]


def test_options_that_need_memory_are_named() -> None:
    x = np.arange(3.0)
    with pytest.raises(FxadError, match="copy: order 'F'"):
        fnp.copy(x, "F")
    with pytest.raises(FxadError, match="compress: out is given"):
        fnp.compress(x > 0, x, out=x)  # type: ignore[arg-type]
    np.testing.assert_array_equal(fnp.copy(x, "K"), x)


def test_the_size_of_several_axes() -> None:
    x = np.ones((2, 3, 4))
    for axis in (None, 1, -1, (0, 2), (), [1, 2]):
        assert fnp.size(x, axis) == np.size(x, None if axis is None else axis if isinstance(axis, int) else tuple(axis))


def test_trees_of_real_and_complex_arrays_are_ravelled_and_back() -> None:
    tree: dict[str, Any] = {
        "a": np.arange(3, dtype=np.float32),
        "b": np.ones((2, 2), np.complex64) * (1 + 2j),
        "n": np.int32(4),
    }
    flat, unravel = fx.tree.ravel(tree)
    assert flat.dtype == np.complex64
    back = unravel(flat)
    for name, x in tree.items():
        assert back[name].dtype == x.dtype
        np.testing.assert_array_equal(back[name], x)


def test_a_field_is_data_or_static_and_not_both() -> None:
    class Pair:
        pass

    with pytest.raises(
        ParameterError, match=r"register_dataclass: x of .*Pair stands in data_fields and in meta_fields"
    ):
        fx.tree_util.register_dataclass(Pair, ["x", "y"], ["x"])
