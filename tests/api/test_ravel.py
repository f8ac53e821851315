"""`tree.ravel`: a tree of arrays as one vector, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import tree
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError

W = np.arange(6, dtype=np.float32).reshape(2, 3)
PARAMS: dict[str, Any] = {"w": W, "layers": [np.float32(7), (None, np.zeros((0, 2), np.float32))], "b": fnp.ones(2)}


def test_there_and_back() -> None:
    flat, unravel = tree.ravel(PARAMS)
    assert isinstance(flat, fx.Array)
    assert flat.dtype == np.float32
    assert flat.tolist() == [1, 1, 7, 0, 1, 2, 3, 4, 5]
    back = unravel(flat)
    assert tree.structure(back) == tree.structure(PARAMS)
    for a, b in zip(tree.leaves(back), tree.leaves(PARAMS), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    np.testing.assert_array_equal(unravel(np.asarray(flat) + 1)["w"], W + 1)


def test_leaves_keep_their_dtypes() -> None:
    mixed: dict[str, Any] = {
        "a": np.array([3, -4], np.int32),
        "b": np.float32(0.5),
        "c": np.array([True, False]),
        "d": np.float16(2),
    }
    flat, unravel = tree.ravel(mixed)
    assert flat.dtype == np.float32
    for name, leaf in unravel(flat).items():
        assert leaf.dtype == mixed[name].dtype
        np.testing.assert_array_equal(leaf, mixed[name])


def test_python_numbers_take_the_dtype_of_the_arrays() -> None:
    some: Any = (W, 2.5, 3)
    flat, unravel = tree.ravel(some)
    assert flat.dtype == np.float32
    assert [x.dtype for x in unravel(flat)] == [np.float32, np.float32, np.int32]
    assert tree.ravel((1, 2))[0].dtype == np.int32
    assert tree.ravel((1, 2.0))[0].dtype == fnp.result_type(1, 2.0)


@pytest.mark.parametrize("empty", [(), None, {"a": [], "b": None}])
def test_no_leaves(empty: Any) -> None:
    flat, unravel = tree.ravel(empty)
    assert flat.shape == (0,)
    assert unravel(flat) == empty


def test_in_programs() -> None:
    flat, unravel = tree.ravel(PARAMS)

    def loss(params: Any) -> Any:
        return (params["w"] ** 2).sum() * params["b"].sum()

    gradient = fx.grad(lambda v: loss(unravel(v)))(flat)
    np.testing.assert_array_equal(gradient, tree.ravel(fx.grad(loss)(PARAMS))[0])
    np.testing.assert_array_equal(fx.jit(lambda p: tree.ravel(p)[0])(PARAMS), flat)
    rows = fx.vmap(unravel)(fnp.stack([flat, 2 * flat]))
    assert rows["w"].shape == (2, 2, 3)
    inside = fx.jit(lambda p: tree.ravel(p)[1](tree.ravel(p)[0] * 2))(PARAMS)
    np.testing.assert_array_equal(inside["w"], 2 * W)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: tree.ravel({"a": W, "b": ["x"]}),
            ArgumentError,
            "tree.ravel: tree['b'][0] is a str, not an array: 'x'",
        ),
        (lambda: tree.ravel(W)[1](W), ShapeError, "unravel: the vector has shape (2, 3), the tree needs (6,)"),
        (
            lambda: tree.ravel(W)[1](fnp.arange(6)),
            DTypeError,
            "unravel: the vector has dtype int32, that of the tree has float32",
        ),
        (lambda: tree.ravel(W)[1]([1.0]), ArgumentError, "unravel: a list is not a vector: [1.0]"),
    ],
)
def test_messages(call: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as e:
        call()
    assert e.value.message == message
