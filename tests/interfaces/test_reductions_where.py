"""`where=` and `initial=` of reductions: NumPy's results, derivatives that no masked element reaches, messages."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import DTypeError, FxadError

X = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(np.float32)
MASK = np.random.default_rng(1).random((3, 4, 2)) < 0.6
STARTED = ("sum", "prod", "max", "min", "nansum", "nanprod", "nanmax", "nanmin")
MOMENTS = ("mean", "var", "std", "nanmean", "nanvar", "nanstd")
NUMBERS = ("sum", "prod", "mean", "var", "std")
METHODS = ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all")


def begun(name: str) -> dict[str, Any]:
    """Returns the `initial` argument that a reduction with a mask requires."""
    return {"initial": 0.25} if name.removeprefix("nan") in ("max", "min") else {}


def oracle(name: str, *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(np, name)(*args, **kwargs)


def close(found: Any, want: Any) -> None:
    assert found.shape == np.shape(want)
    np.testing.assert_allclose(np.asarray(found), want, rtol=2e-5, atol=1e-6)


MASKS = (MASK, MASK[:, :1], MASK[0], MASK[0, :, :1], True, False)
AXES = ((None, False), (1, True), ((0, -1), False), ((), False))


# every mask over one axis, and one mask that broadcasts for every set of axes
@pytest.mark.parametrize(("mask", "axes"), [(MASKS[1], AXES), *[(m, AXES[1:2]) for m in MASKS]], ids=str)
@pytest.mark.parametrize("name", [*STARTED, *MOMENTS, "any", "all"])
def test_masks_that_broadcast(name: str, mask: Any, axes: tuple[tuple[Any, bool], ...]) -> None:
    x = X > 0.5 if name in ("any", "all") else np.where(X > 1.5, np.nan, X) if name.startswith("nan") else X
    for axis, keepdims in axes:
        kwargs = {"axis": axis, "keepdims": keepdims, **begun(name)}
        # NumPy broadcasts a mask for some functions, and requires all axes for others
        full = np.broadcast_to(mask, x.shape)
        close(getattr(fnp, name)(x, where=mask, **kwargs), oracle(name, x, where=full, **kwargs))


@pytest.mark.parametrize("name", STARTED)
def test_initial(name: str) -> None:
    for initial in (0.5, np.float32(-2), 7, np.array(1.5), fnp.asarray(-0.5)):
        for axis in (None, 0, (1, 2)):
            want = oracle(name, X, axis, initial=float(initial))
            close(getattr(fnp, name)(X, axis, initial=initial), want)
            want = oracle(name, X, axis, initial=float(initial), where=MASK)
            close(getattr(fnp, name)(X, axis, initial=initial, where=MASK), want)


@pytest.mark.parametrize("name", STARTED)
def test_reductions_of_no_elements(name: str) -> None:
    close(getattr(fnp, name)(X[:0], 0, initial=3), oracle(name, X[:0], 0, initial=3))
    close(getattr(fnp, name)(X, initial=3, where=False), oracle(name, X, initial=3, where=False))


@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_moments_of_no_elements_are_nan(name: str) -> None:
    mask = np.array([[True], [False]])
    x = np.arange(6.0).reshape(2, 3)
    found = getattr(fnp, name)(x, 1, where=mask)
    assert not np.isnan(found[0])
    assert np.isnan(found[1])


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integers(dtype: Any) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    mask = MASK[..., 0]
    for name in ("sum", "prod", "mean", "var"):
        found = getattr(fnp, name)(x, 1, where=mask)
        np.testing.assert_allclose(np.asarray(found), oracle(name, x, 1, where=mask), rtol=1e-6)
        assert found.dtype == getattr(fnp, name)(x, 1).dtype
    for name in ("max", "min"):
        initial = dtype(1)
        found = getattr(fnp, name)(x, 1, where=mask, initial=initial)
        np.testing.assert_array_equal(found, oracle(name, x, 1, where=mask, initial=initial))
        assert found.dtype == dtype


def test_initial_is_in_the_dtype_of_the_result() -> None:
    assert int(fnp.sum(np.array([1, 2], np.int8), initial=1000)) == 1003
    assert float(fnp.sum(np.array([1], np.float32), initial=0.1, dtype=np.float64)) == 1.1
    assert fnp.max(np.array([0.0], np.float64), initial=0.1).item() == 0.1
    assert fnp.sum(np.array([1], np.int8), initial=0.5, dtype=np.float32).item() == 1.5
    assert fnp.sum(X.astype(np.complex64), initial=1j, where=MASK).dtype == np.complex64


def test_complex_moments() -> None:
    z = (X + 1j * X[::-1]).astype(np.complex64)
    for name in ("sum", "prod", "mean", "var", "std"):
        close(getattr(fnp, name)(z, 1, where=MASK), oracle(name, z, 1, where=MASK))


def test_correction() -> None:
    close(fnp.var(X, 1, where=MASK, correction=0.5), oracle("var", X, 1, where=MASK, correction=0.5))
    few = np.array([True, False, False])
    assert np.isnan(fnp.var(np.arange(3.0), where=few, ddof=1))


@pytest.mark.parametrize("axis", [1.0, (1.0,), "1", {}])
def test_an_axis_is_judged_alike_before_and_after_an_equal_one(axis: Any) -> None:
    for _ in range(2):
        with pytest.raises(FxadError, match=r"^sum: axis must be an integer, got "):
            fnp.sum(X, axis, where=MASK)
        fnp.sum(X, 1, where=MASK)
        fnp.sum(X, (1,), where=MASK)


# ------------------------------------------------------------------------------------------------------ transforms


@pytest.mark.parametrize("name", [*STARTED, *MOMENTS])
def test_masked_elements_have_no_gradient(name: str) -> None:
    bad = np.where(MASK, X, np.float32(np.nan))
    bad[~MASK] = np.resize(np.array([np.nan, np.inf, -np.inf], np.float32), (~MASK).sum())
    kwargs = begun(name)

    def f(x: Any) -> Any:
        return getattr(fnp, name)(x, (1, 2), where=MASK, **kwargs).sum()

    found = np.asarray(fx.grad(f)(bad))
    assert np.isfinite(found).all()
    assert (found[~MASK] == 0).all()
    np.testing.assert_allclose(found, fx.grad(f)(X), rtol=1e-6)
    forward = fx.jvp(f, (bad,), (np.ones_like(bad),))[1]
    np.testing.assert_allclose(forward, found.sum(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_gradient_is_that_of_the_selected_elements(name: str) -> None:
    def over_mask(x: Any) -> Any:
        return getattr(fnp, name)(x, where=MASK)

    def picked(x: Any) -> Any:
        return getattr(fnp, name)(x[MASK])

    np.testing.assert_allclose(fx.grad(over_mask)(X), fx.grad(picked)(X), rtol=1e-4, atol=1e-5)
    second = fx.grad(lambda x: (fx.grad(over_mask)(x) ** 2).sum())(X)
    want = fx.grad(lambda x: (fx.grad(picked)(x) ** 2).sum())(X)
    np.testing.assert_allclose(second, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [*NUMBERS, "nanmean", "nanvar"])
def test_a_completely_masked_row_has_no_gradient(name: str) -> None:
    mask = np.array([[True, True], [False, False]])
    x = np.array([[1.0, 3.0], [np.nan, np.inf]])
    out = fx.grad(lambda x: getattr(fnp, name)(x, 1, where=mask)[0])(x)
    assert np.isfinite(out).all()
    assert (np.asarray(out)[1] == 0).all()


@pytest.mark.parametrize(("name", "want"), [("sum", 1.0), ("prod", 6.0), ("max", 0.0), ("min", 1.0)])
def test_gradient_by_initial(name: str, want: float) -> None:
    x = np.array([2.0, 3.0])
    assert fx.grad(lambda start: getattr(fnp, name)(x, initial=start))(np.float64(1)).item() == want


@pytest.mark.parametrize("name", [*STARTED, *MOMENTS, "any", "all"])
def test_vmap_and_jit(name: str) -> None:
    kwargs = begun(name)

    def f(x: Any, mask: Any) -> Any:
        return getattr(fnp, name)(x, 0, where=mask, **kwargs)

    want = np.stack([oracle(name, x, 0, where=m, **kwargs) for x, m in zip(X, MASK, strict=True)])
    close(fx.vmap(fx.jit(f))(X, MASK), want)
    close(fx.vmap(f, in_axes=(None, 0))(X[0], MASK), np.stack([oracle(name, X[0], 0, where=m, **kwargs) for m in MASK]))
    close(fx.jit(f)(X, MASK), oracle(name, X, 0, where=MASK, **kwargs))


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    x = fnp.asarray(X)
    kwargs = {"axis": 1, "keepdims": True, **begun(name)}
    function = getattr(fnp, name)(x, where=MASK, **kwargs)
    np.testing.assert_array_equal(getattr(x, name)(where=MASK, **kwargs), function)
    np.testing.assert_array_equal(fx.jit(lambda x, m: getattr(x, name)(where=m, **kwargs))(x, MASK), function)
    np.testing.assert_array_equal(getattr(x, name)(where=True), getattr(x, name)())


def test_a_mask_of_true_or_none_gives_the_program_without_a_mask() -> None:
    plain = fx.trace(fnp.nanmax, X).jaxpr
    assert fx.trace(lambda x: fnp.nanmax(x, where=True), X).jaxpr is plain
    assert fx.trace(lambda x: fnp.nanmax(x, where=None, initial=None), X).jaxpr is plain
    assert fx.trace(lambda x: x.max(where=True), X).jaxpr is fx.trace(fnp.max, X).jaxpr


# -------------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fnp.max(X, where=MASK),
            "max: where needs an initial value: there is no max where the mask leaves nothing",
        ),
        (
            lambda: fnp.asarray(X).min(where=MASK),
            "min: where needs an initial value: there is no min where the mask leaves nothing",
        ),
        (lambda: fnp.nanmin(X, where=MASK), "nanmin: where needs an initial value: there is no min where the mask"),
        (lambda: fnp.sum(X, where=MASK.astype(int)), "sum: where must be bool, got i64[3,4,2]"),
        (lambda: fnp.mean(X, where=1), "mean: where must be bool, got f32[]"),
        (
            lambda: fnp.sum(X[0], where=MASK),
            "sum: where has shape (3, 4, 2), which does not fit into (4, 2), the shape of x",
        ),
        (
            lambda: fnp.sum(X, where=np.ones(5, bool)),
            "sum: where: shapes (3, 4, 2) and (5,) do not broadcast: axis -1 has sizes 2 and 5",
        ),
        (lambda: fnp.sum(X, where=cast("Any", [True, False])), "sum: where: a list is not an array"),
        (lambda: fnp.sum(X, initial=cast("Any", "0")), "sum: initial: a str is not an array"),
        (lambda: fnp.max(np.arange(3), initial=0.5), "max: initial is float32, the result int64"),
        (lambda: fnp.prod(X, initial=1j), "prod: initial is complex64, the result float32"),
        (lambda: fnp.sum(X, 0, initial=np.ones(4)), "sum: initial must be one number, got f64[4]"),
        (lambda: fnp.sum(X, 3, where=MASK), "sum: axis 3 is out of range for an array with 3 axes"),
        (lambda: fnp.max(X[:0]), "max: axis 0 of f32[0,4,2] is empty and has no max"),
    ],
)
def test_messages(call: Any, message: str) -> None:
    with pytest.raises(FxadError) as e:
        call()
    assert e.value.message.startswith(message)


def test_bools_take_0_and_1_as_initial_values() -> None:
    for x in (np.array([[True, False], [False, False]]), np.zeros((0, 2), bool)):
        for name, initial in (("max", 0), ("max", 1), ("min", 0), ("min", 1)):
            found = getattr(fnp, name)(x, 0, initial=initial)
            assert found.dtype == fnp.bool_
            assert np.array_equal(found, getattr(np, name)(x, 0, initial=initial))
    with pytest.raises(DTypeError, match="max: initial is int32, the result bool"):
        fnp.max(np.array([True]), initial=2)
