"""Arguments that JAX's functions have, against NumPy and SciPy, and their refusals."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ParameterError
from fxad.scipy import linalg, special

X = np.array([3, 1, 1])


def interpreted(f: Any, *args: Any) -> Any:
    return fx.interpret(fx.trace(f, *args), *args)


@pytest.mark.parametrize("weighted", [False, True])
def test_logsumexp_of_complex_numbers(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    z = 300 * rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
    b = rng.normal(size=(3, 4)) if weighted else None
    choices: list[dict[str, Any]] = [{}, {"axis": 1, "keepdims": True}, {"axis": 0, "return_sign": True}]
    for options in choices:
        want: Any = scipy.special.logsumexp(z, b=b, **options)
        found = interpreted(lambda z, options=options: special.logsumexp(z, b=b, **options), z)
        for x, y in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, want)], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
    slope: Any = fx.grad(special.logsumexp, holomorphic=True)
    row = z[0] / 300
    np.testing.assert_allclose(interpreted(slope, row), np.exp(row) / np.exp(row).sum(), rtol=1e-12)
    assert np.asarray(special.logsumexp(np.full(2, -np.inf + 0j))) == -np.inf


def test_can_cast_by_kinds() -> None:
    names = ["?", "u1", "u8", "i1", "i4", "f2", "f4", "f8", "c8", "c16"]
    for a, b, casting in product(names, names, ["no", "equiv", "same_kind", "unsafe"]):
        assert fnp.can_cast(np.dtype(a), np.dtype(b), casting) == np.can_cast(a, b, casting)  # type: ignore[arg-type]
    assert fnp.can_cast("int32", "float32")
    with pytest.raises(ParameterError, match="can_cast: casting is 'loose'") as e:
        fnp.can_cast("int32", "float32", "loose")
    assert e.value.remedy == "use one of no, equiv, safe, same_kind, unsafe"


def test_products() -> None:
    p, q = np.random.default_rng(0).random((2, 3, 3)) > 0.5
    numbers = (((1,), (0,)), ((), ()))
    np.testing.assert_array_equal(interpreted(lambda p, q: lax.dot_general(p, q, numbers), p, q), p @ q)
    counts = interpreted(lambda p, q: lax.dot_general(p, q, numbers, None, np.float32), p, q)
    np.testing.assert_array_equal(counts, p.astype(np.float32) @ q.astype(np.float32))
    small = np.array([1 + 1j, 2], np.complex64)
    wide = interpreted(lambda x: fnp.vdot(x, x, preferred_element_type=np.complex128), small)
    assert (wide.dtype, complex(wide)) == ("complex128", 6)
    patches = lax.conv_general_dilated_patches(
        np.ones((1, 1, 4), np.float16), (2,), (1,), "VALID", precision="highest", preferred_element_type=np.float32
    )
    assert (patches.dtype.name, patches.shape) == ("float32", (1, 2, 3))


def test_windows_out_of_range() -> None:
    """The default of `mode`, which None is too, and of `fill_value`."""
    x, at = np.arange(5.0), np.array([[1], [9]])
    reads = lax.GatherDimensionNumbers((), (0,), (0,))
    writes = lax.ScatterDimensionNumbers((), (0,), (0,))
    for mode, want in ((None, [1.0, 4.0]), ("clip", [1.0, 4.0]), ("fill", [1.0, np.nan])):
        found = interpreted(lambda x, mode=mode: lax.gather(x, at, reads, (1,), mode=mode), x)
        np.testing.assert_array_equal(found, want)
    assert np.asarray(lax.gather(np.arange(5), at, reads, (1,), mode="fill")).tolist() == [1, np.iinfo(np.int64).min]
    for scatter in (lax.scatter, lax.scatter_add, lax.scatter_sub, lax.scatter_mul, lax.scatter_min, lax.scatter_max):
        found, want = [
            interpreted(lambda x, scatter=scatter, mode=mode: scatter(x, at, 2 * np.ones(2), writes, mode=mode), x)
            for mode in (None, "drop")
        ]
        np.testing.assert_array_equal(found, want)
    doubled = interpreted(lambda x: lax.scatter_apply(x, at, lambda v: 2 * v, writes, update_shape=(2,), mode=None), x)
    np.testing.assert_array_equal(doubled, [0, 2, 2, 3, 4])


def test_sizes_of_sets() -> None:
    """With `size`, the functions can be traced."""
    full = interpreted(lambda x: fnp.unique_all(x, size=3, fill_value=7), X)
    assert [np.asarray(a).tolist() for a in full] == [[1, 3, 7], [1, 0, 1], [1, 0, 0], [2, 1, 0]]
    assert full._fields == ("values", "indices", "inverse_indices", "counts")
    assert np.asarray(interpreted(lambda x: fnp.unique_values(x, size=2), X)).tolist() == [1, 3]
    assert np.asarray(interpreted(lambda x: fnp.unique_counts(x, size=2).counts, X)).tolist() == [2, 1]
    assert np.asarray(interpreted(lambda x: fnp.unique_inverse(x, size=2).inverse_indices, X)).tolist() == [1, 0, 0]
    rows, columns = fnp.mask_indices(3, fnp.triu, size=6)
    np.testing.assert_array_equal((rows, columns), np.mask_indices(3, np.triu))


def test_rules_of_functions_with_keywords_that_have_values() -> None:
    def plain(x: Any, y: Any, a: float) -> Any:
        return x + y * a

    bound = partial(plain, a=0.5)
    by_partial: Any = fx.custom_jvp(bound)
    by_partial.defjvp(lambda primals, dots: fx.jvp(bound, primals, dots))
    assert interpreted(fx.grad(by_partial, argnums=(0, 1)), 1.0, 2.0) == (1.0, 0.5)

    def scaled(x: Any, *, scale: float = 2.0) -> Any:
        return x * scale

    by_default: Any = fx.custom_vjp(scaled)
    by_default.defvjp(lambda x: (scaled(x), None), lambda _, ct: (7 * ct,))
    assert interpreted(fx.value_and_grad(by_default), 1.0) == (2.0, 7.0)


def test_methods_whose_results_are_the_same() -> None:
    a = np.random.default_rng(0).normal(size=(3, 3))
    for found, want in zip(linalg.polar(a, method="qdwh"), scipy.linalg.polar(a), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(linalg.expm(a, upper_triangular=True), scipy.linalg.expm(np.triu(a)), rtol=1e-12)
    x = np.arange(3.0)
    np.testing.assert_array_equal(fx.nn.standardize(x, algorithm="stable"), fx.nn.standardize(x))
    np.testing.assert_array_equal(special.log_ndtr(-x, series_order=5), special.log_ndtr(-x))
    cases: list[tuple[Any, str, str]] = [
        (lambda: linalg.polar(a, method="lu"), "polar: method 'lu'", 'use "svd" or "qdwh"'),
        (lambda: fx.nn.standardize(x, algorithm="slow"), "standardize: algorithm 'slow'", 'use "fast" or "stable"'),
        (lambda: special.log_ndtr(x, 31), "log_ndtr: series_order is 31", "give a number from 0 to 30"),
    ]
    for call, message, remedy in cases:
        with pytest.raises(ParameterError) as e:
            call()
        assert (e.value.message, e.value.remedy) == (message, remedy)
