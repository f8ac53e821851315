"""`pad` against NumPy's, its derivative, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, AxisError, FxadError, ParameterError, ShapeError
from tests.interfaces.oracle import check, close

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
N = np.random.default_rng(1).integers(-9, 9, (3, 4)).astype(np.int32)
numpys: Any = np.pad  # its types list the modes
WIDTHS: tuple[Any, ...] = (2, (1, 3), ((0, 1), (5, 9)))
MODES = ("constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap")


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    kinds: list[dict[str, Any]] = [{}, {"reflect_type": "odd"}] if mode in ("reflect", "symmetric") else [{}]
    for width in WIDTHS:
        for kw in kinds:
            for x in (X, N, X[:1]):
                check(
                    lambda a, w=width, kw=kw: fnp.pad(a, w, mode, **kw),
                    lambda a, w=width, kw=kw: numpys(a, w, mode, **kw),
                    x,
                    eager=width == 2,
                )


def test_values_for_each_side() -> None:
    pairs = ((1, 2), (3, 4))
    check(lambda x: fnp.pad(x, 1, constant_values=pairs), lambda x: np.pad(x, 1, constant_values=pairs), X)
    check(lambda x: fnp.pad(x, 1, constant_values=(1, 2)), lambda x: np.pad(x, 1, constant_values=(1, 2)), N)
    check(lambda x: fnp.pad(x, 2, constant_values=x[0, 0]), lambda x: np.pad(x, 2, constant_values=x[0, 0]), X)
    for width in ((1, 2), 3):
        check(
            lambda x, w=width: fnp.pad(x, w, "linear_ramp", end_values=pairs),
            lambda x, w=width: np.pad(x, w, "linear_ramp", end_values=pairs),
            X,
        )
        check(
            lambda x, w=width: fnp.pad(x, w, "mean", stat_length=((1, 2), (3, 9))),
            lambda x, w=width: np.pad(x, w, "mean", stat_length=((1, 2), (3, 9))),
            X,
        )
    check(lambda x: fnp.pad(x, {-1: (1, 2)}, "edge"), lambda x: np.pad(x, ((0, 0), (1, 2)), "edge"), X)
    close(fnp.pad(X, 1, "empty"), np.pad(X, 1))
    close(fnp.pad(X[:0], ((0, 0), (1, 1)), "constant"), np.pad(X[:0], ((0, 0), (1, 1))))
    close(fnp.pad(np.float32(3), ()), np.float32(3))
    for mode in ("reflect", "mean", "edge"):
        close(fnp.pad(X[:0], ((0, 0), (1, 1)), mode), numpys(X[:0], ((0, 0), (1, 1)), mode))


def test_a_function_as_the_mode() -> None:
    def row(x: Any, width: Any, axis: int, kwargs: Any) -> Any:
        return x.at[: width[0]].set(kwargs["value"] + axis).at[x.size - width[1] :].set(kwargs["value"])

    def row_in_place(x: Any, width: Any, axis: int, kwargs: Any) -> None:
        x[: width[0]], x[x.size - width[1] :] = kwargs["value"] + axis, kwargs["value"]

    widths = ((1, 2), (0, 3))
    want = np.pad(X, widths, row_in_place, value=7)
    check(lambda x: fnp.pad(x, widths, row, value=7), lambda _: want, X)


@pytest.mark.parametrize("mode", [m for m in MODES if m not in ("maximum", "minimum", "median")])
def test_derivative_is_the_adjoint(mode: str) -> None:
    """The gradient of linear padding is the transpose of its matrix."""
    x = X.astype(np.float64)
    w = np.random.default_rng(2).normal(size=np.pad(x, (2, 5)).shape)
    got = fx.grad(lambda a: (fnp.pad(a, (2, 5), mode) * w).sum())(fnp.asarray(x))
    none = numpys(0 * x, (2, 5), mode)
    basis = np.eye(12).reshape(12, 3, 4)
    want = [((numpys(e, (2, 5), mode) - none) * w).sum() for e in basis]
    close(got, np.reshape(want, (3, 4)))


def test_under_transformations() -> None:
    rows = fx.vmap(lambda r: fnp.pad(r, 2, "reflect"))(fnp.asarray(X))
    close(rows, np.pad(X, ((0, 0), (2, 2)), "reflect"))
    close(fx.jit(lambda a: fnp.pad(a, 2, "wrap"))(fnp.asarray(X)), np.pad(X, 2, "wrap"))


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fnp.pad(X, 1, "mirror"), ParameterError, "pad: mode 'mirror' is not one of fxad's"),
        (lambda: fnp.pad(X, 1, "reflect", reflect_type="x"), ParameterError, "pad: reflect_type 'x' is not"),
        (lambda: fnp.pad(X, ((1, 2),) * 3), ShapeError, "pad: widths ((1, 2), (1, 2), (1, 2)) are not one pair"),
        (lambda: fnp.pad(X, -1), ShapeError, "pad: widths -1 must not be below 0"),
        (lambda: fnp.pad(X, 1.5), ParameterError, "pad: widths 1.5 must be ints"),  # type: ignore[arg-type]
        (lambda: fnp.pad(X, fnp.asarray(1)), ArgumentError, "pad: widths must be ints, got"),  # type: ignore[arg-type]
        (
            lambda: fnp.pad(X, {0: (1, 2, 3)}),
            ShapeError,
            "pad: widths of axis 0 (1, 2, 3) are not one int, or one pair",
        ),
        (lambda: fnp.pad(X, {0: 1.5}), ParameterError, "pad: widths of axis 0 1.5 must be ints"),  # type: ignore[dict-item]
        (lambda: fnp.pad(X, 1, value=7), ParameterError, "pad: takes no value"),
        (lambda: fnp.pad(X, {2: 1}), AxisError, "pad: axis 2 is out of range"),
        (lambda: fnp.pad(X[:0], 1, "edge"), ShapeError, "pad: axis 0 of f32[0,4] is empty"),
        (lambda: fnp.pad(X, 1, "mean", stat_length=0), ParameterError, "pad: stat_length 0 must be at least 1"),
        (
            lambda: fnp.pad(X, 1, "mean", stat_length=(1, 2, 3)),
            ShapeError,
            "pad: stat_length (1, 2, 3) are not one pair, or one for each of the axes of f32[3,4]",
        ),
        (lambda: fnp.pad(X, 1, "mean", stat_length=1.5), ParameterError, "pad: stat_length 1.5 must be ints"),  # type: ignore[arg-type]
        (lambda: fnp.pad(X, 1, "mean", stat_length="a"), ParameterError, "pad: stat_length a must be ints"),  # type: ignore[arg-type]
        (lambda: fnp.pad(X, 1, constant_values=(1, 2, 3)), ShapeError, "pad: constant_values of shape (3,)"),
    ],
)
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)


def test_a_mode_that_is_no_text() -> None:
    with pytest.raises(ArgumentError) as e:
        fnp.pad(fnp.ones(3), 1, mode=3)  # type: ignore[arg-type]
    assert e.value.message == "pad: mode must be a str, got an int: 3"
    assert e.value.remedy == "it is static: a Python value, which cannot come from a traced array"
