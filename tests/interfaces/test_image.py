"""`fxad.image` against `jax.image`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import image
from fxad.errors import ArgumentError, AxisError, ParameterError, ShapeError

IMAGE = np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32)
METHODS = ("nearest", "linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch", "area")


@pytest.mark.parametrize("method", METHODS)
def test_resize(method: str) -> None:
    jax_image = pytest.importorskip("jax.image")

    def of(module: Any) -> Any:
        return lambda x: [module.resize(x, (2, 9, 2), method), module.resize(x, (2, 4, 11), method, antialias=False)]

    jax = pytest.importorskip("jax")
    for found, wanted in zip(fx.jit(of(image))(IMAGE), jax.jit(of(jax_image))(IMAGE), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["linear", "area"])
def test_scale_and_translate(method: str) -> None:
    jax, jax_image = pytest.importorskip("jax"), pytest.importorskip("jax.image")
    scale, move = np.array([1.4], np.float32), np.array([-1.2], np.float32)

    def read(of: Any, x: Any, s: Any, t: Any) -> Any:
        return of.scale_and_translate(x, (2, 7, 5), (1,), s, t, method)

    def loss(of: Any) -> Any:
        return lambda s: (read(of, IMAGE, s, move) ** 2).sum()

    ours = fx.jit(fx.value_and_grad(loss(image)))(scale)
    theirs = jax.jit(jax.value_and_grad(loss(jax_image)))(scale)
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-3, atol=1e-3)


def test_logarithms_of_means() -> None:
    x = np.array([[0.0, 1000.0], [2.0, -np.inf]], np.float32)
    found = fx.nn.logmeanexp(x, 1, where=np.array([[False, True], [True, True]]))
    np.testing.assert_allclose(np.asarray(found).tolist(), [1000, 2 - np.log(2)], rtol=1e-6)
    assert fx.nn.logmeanexp(x, 0, keepdims=True).shape == (1, 2)


def test_the_nearest_element_is_rounded_as_in_jax() -> None:
    """(x + 0.5) n / m is 1 here. With n / m rounded first it is less than 1."""
    jax_image = pytest.importorskip("jax.image")
    for n, m in ((2, 41), (6, 37), (5, 0)):
        row = np.arange(n)
        found, wanted = image.resize(row, (m,), "nearest"), jax_image.resize(row, (m,), "nearest")
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_dtypes() -> None:
    whole = fx.Spec((6,), np.int32)
    assert fx.eval_shape(lambda x: image.resize(x, (4,), "nearest"), whole).dtype == np.int32
    assert fx.eval_shape(lambda x: image.resize(x, (4,), image.ResizeMethod.LINEAR), whole).dtype == np.float32
    half = fx.Spec((2, 6), np.float16)
    assert fx.eval_shape(lambda x: image.resize(x, (2, 3), "bilinear"), half).dtype == np.float16


NO: Any = "no"
NUMBERS = (
    "give RaggedDotDimensionNumbers(((contracted of lhs, of rhs), (batch of lhs, of rhs)), (ragged axis of lhs,), "
    "(axis of groups of rhs,))"
)


@pytest.mark.parametrize(
    ("call", "error", "message", "remedy"),
    [
        (lambda: image.resize(IMAGE, (2, 3, 3), "box"), ParameterError, "ResizeMethod: 'box' is no method",
         "use one of nearest linear lanczos3 lanczos5 cubic cubic-pytorch area"),
        (lambda: image.resize(IMAGE, (3, 3), "linear"), ShapeError,
         "resize: shape (3, 3) has 2 axes, the image has 3",
         "give the size of each axis; those of batches and channels stay"),
        (lambda: image.scale_and_translate(IMAGE, (2, 3, 5), (1,), np.ones(1), np.zeros(1), "nearest"), ParameterError,
         "scale_and_translate: the method is nearest", "use resize, or the method linear"),
        (lambda: image.scale_and_translate(IMAGE, (2, 3, 4), (1,), np.ones(1), np.zeros(1), "linear"), ShapeError,
         "scale_and_translate: axis 2 of 5 elements shall have 4, and is not in spatial_dims",
         "give spatial_dims all axes that change"),
        (lambda: image.resize(IMAGE, (2, -3, 5), "nearest"), ShapeError, "resize: shape (2, -3, 5) has a negative size",
         "give sizes >= 0"),
        (lambda: image.resize(IMAGE[:, :0], (2, 3, 5), "linear"), ShapeError,
         "resize: axis 1 of the image is empty, and shall have 3 elements",
         "an element of the result is read from elements of the image"),
        (lambda: image.resize(IMAGE, (2, 3, 3), LOOSE), ParameterError,
         "resize: method is an ndarray: array([0], dtype=int32)", "give a ResizeMethod or its name"),
        (lambda: image.scale_and_translate(IMAGE, (2, 3, 5), (4,), np.ones(1), np.zeros(1), "linear"), AxisError,
         "scale_and_translate: axis 4 is out of range for an array with 3 axes",
         "axes are counted from 0, or from -1 backwards"),
        (lambda: image.scale_and_translate(IMAGE, (2, 3, 4), (1, 2), np.ones(1), np.zeros(2), "linear"), ShapeError,
         "scale_and_translate: scale has shape (1,), translation (2,), with 2 spatial_dims",
         "give each a number for each of spatial_dims"),
        (lambda: fx.lax.ragged_dot(np.ones((3, 2)), np.ones((1, 2, 2)), np.ones((1, 1), np.int32)), ShapeError,
         "ragged_dot: group_sizes has shape (1, 1), with 0 batch axes",
         "give a size for each group, after the batch axes"),
        (lambda: fx.lax.ragged_dot_general(np.ones((3, 2)), np.ones((1, 2, 2)), np.ones(1, np.int32), NO),
         ArgumentError, "ragged_dot: ragged_dot_dimension_numbers is a str: 'no'", NUMBERS),
        (lambda: fx.lax.ragged_dot(np.ones((3, 2)), np.ones((1, 2, 2)), np.ones(1, np.int32), group_offset=LOOSE),
         ParameterError, "ragged_dot: group_offset is not supported", "slice rhs and group_sizes"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[fx.errors.FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


LOOSE: Any = np.zeros(1, np.int32)
