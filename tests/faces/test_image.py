"""`fxad.image` against `jax.image`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import image
from fxad.errors import ArgumentError, ParameterError, ShapeError

IMAGE = np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32)
METHODS = ("nearest", "linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch", "area")


@pytest.mark.parametrize("method", METHODS)
def test_an_image_of_another_shape(method: str) -> None:
    jax_image = pytest.importorskip("jax.image")

    def of(module: Any) -> Any:
        return lambda x: [module.resize(x, (2, 9, 2), method), module.resize(x, (2, 4, 11), method, antialias=False)]

    jax = pytest.importorskip("jax")
    for found, wanted in zip(fx.jit(of(image))(IMAGE), jax.jit(of(jax_image))(IMAGE), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["linear", "area"])
def test_an_image_moved(method: str) -> None:
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
        (lambda: fx.lax.ragged_dot(np.ones((3, 2)), np.ones((1, 2, 2)), np.ones((1, 1), np.int32)), ShapeError,
         "ragged_dot: group_sizes has shape (1, 1), with 0 batch axes",
         "give a size for each group, after the batch axes"),
        (lambda: fx.lax.ragged_dot_general(np.ones((3, 2)), np.ones((1, 2, 2)), np.ones(1, np.int32), NO),
         ArgumentError, "ragged_dot: ragged_dot_dimension_numbers is a str: 'no'", NUMBERS),
        (lambda: fx.lax.ragged_dot(np.ones((3, 2)), np.ones((1, 2, 2)), np.ones(1, np.int32), group_offset=LOOSE),
         ParameterError, "ragged_dot: group_offset is not there", "slice rhs and group_sizes"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[fx.errors.FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


LOOSE: Any = np.zeros(1, np.int32)
