"""Arrays outside of a trace behave like arrays of Python and NumPy."""

from __future__ import annotations

import copy
import enum
import gc
import math
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError
from tests.api.refusals import X, refused

A = fx.asarray(X)
S = fx.asarray(np.float32(2))


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "@"])
def test_operators_stay_on_the_device_in_either_order(op: str) -> None:
    y = np.array([2, 3, 4], np.float32)
    want = eval(f"x {op} y", {"x": X, "y": y})
    for x, z in ((A, fx.asarray(y)), (A, y), (X, fx.asarray(y))):
        got = eval(f"x {op} y", {"x": x, "y": z})
        assert isinstance(got, fx.Array)
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)
    got = fx.jit(lambda v: eval(f"x {op} y", {"x": X, "y": v}))(y)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


def test_operators_with_scalars_of_numpy_and_python() -> None:
    assert (np.float64(2) * A).dtype == np.float64
    assert (2 * A).dtype == (A * 2.5).dtype == (A + True).dtype == np.float32
    assert (A + 1j).dtype == np.complex64
    color = enum.IntEnum("color", "RED GREEN").RED  # type: ignore[attr-defined]
    assert (A + color).dtype == fx.jit(lambda x: x + color)(X).dtype == np.float32
    assert [x.tolist() for x in divmod(5, fx.asarray(np.int32(3)))] == [1, 2]


def test_functions_of_numpy_return_numpy_arrays() -> None:
    calls: list[Callable[[Any], Any]] = [np.sin, np.sum, np.mean, np.max, np.isnan, np.round, np.add.reduce, np.argmax]
    calls += [lambda x: np.concatenate([x, X]), lambda x: np.stack([x, x]), lambda x: np.where(x > 1, x, 0)]
    calls += [
        lambda x: np.add(x, 1),
        lambda x: np.clip(x, 0, 1),
        np.linalg.norm,
        np.asarray,
        np.shape,
        np.ndim,
        np.size,
    ]
    for f in calls:
        got, want = f(A), f(X)
        assert type(got) is type(want)
        np.testing.assert_array_equal(got, want)
    y = X.copy()
    y += A
    assert type(y) is np.ndarray
    assert y.tolist() == [0, 2, 4]


def test_numbers() -> None:
    assert (bool(S), int(S), float(S), complex(S), S.item(), math.sqrt(S * 2)) == (True, 2, 2.0, 2 + 0j, 2.0, 2.0)
    assert [10, 20, 30][fx.asarray(np.int32(1))] == 20
    assert list(range(fx.asarray(np.int64(3)))) == [0, 1, 2]
    assert (len(A), [float(x) for x in A], 2.0 in A, 7.0 in A) == (3, [0, 1, 2], True, False)
    assert (A == None, A != None, A == "s") == (False, True, False)  # noqa: E711


REFUSED: list[tuple[type[FxadError], str, Callable[[], Any]]] = [
    (ShapeError, "bool: the truth value of an array with 3 elements is ambiguous: f32[3]", lambda: bool(A)),
    (ShapeError, "item: the array has 3 elements, not one: f32[3]", lambda: A.item()),
    (ArgumentError, "float: only an array without axes is a number, got f32[3]", lambda: float(A)),
    (ArgumentError, "int: only an array without axes is a number, got f32[1]", lambda: int(A[:1])),
    (DTypeError, "float: the array is complex: c64[]", lambda: float(S * 1j)),
    (ArgumentError, "setitem: an array is immutable: f32[3]", lambda: A.__setitem__(0, 1)),
    (ArgumentError, "add.at: an array is immutable: f32[3]", lambda: np.add.at(A, 0, 1)),
    (ArgumentError, "format: '.3f' is for a number, got f32[3]", lambda: f"{A:.3f}"),
    (ArgumentError, "index: an index must be an integer without axes, got f32[]", lambda: [1][S]),
    (ArgumentError, "len: an array without axes has no length", lambda: len(S)),
    (ArgumentError, "iter: an array without axes cannot be iterated over", lambda: list(S)),
    (ParameterError, "numpy: float32 does not become int8 without a copy", lambda: np.asarray(A, "int8", copy=False)),
]


@pytest.mark.parametrize(("error", "message", "fn"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(error: type[FxadError], message: str, fn: Callable[[], Any]) -> None:
    refused(fn, error, message)


def test_text() -> None:
    assert f"{S:.3f} {A} {S} {A!r}" == "2.000 [0. 1. 2.] 2.0 Array([0., 1., 2.], dtype=float32)"
    assert repr(fnp.ones((2, 2))) == "Array([[1., 1.],\n       [1., 1.]], dtype=float32)"
    assert repr(fnp.ones((0, 2))) == "Array([], shape=(0, 2), dtype=float32)"
    assert repr(fnp.ones(0)) == "Array([], dtype=float32)"


def test_no_hash_and_no_change() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'Array'"):
        hash(A)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(A)[0] = 1
    mine = X.copy()
    theirs = fx.asarray(mine)
    mine[0] = 99
    assert theirs.tolist() == [0, 1, 2]


def test_copies_and_pickles() -> None:
    for made in (copy.copy(A), copy.deepcopy([A])[0]):  # memory of their own: see test_donation
        assert (made is A, made.tolist()) == (False, A.tolist())
    again = pickle.loads(pickle.dumps({"a": A.astype("bfloat16")}))["a"]
    assert (again.dtype.name, again.tolist()) == ("bfloat16", [0, 1, 2])
    assert fx.asarray(A) is A
    assert fx.asarray(A, "int32").tolist() == [0, 1, 2]


def test_dlpack_both_ways() -> None:
    np.testing.assert_array_equal(np.from_dlpack(A), X)

    class Foreign:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return X.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return X.__dlpack_device__()

    assert fx.asarray(Foreign()).tolist() == fx.jit(lambda x: x)(Foreign()).tolist() == [0, 1, 2]


def test_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    assert fx.jit(lambda x: x * 2)(torch.arange(3.0)).tolist() == [0, 2, 4]
    assert torch.from_dlpack(A).tolist() == [0, 1, 2]


def test_an_array_is_freed_with_its_last_reference() -> None:
    gc.disable()
    try:
        x = A + 1
        gone = weakref.ref(x)
        del x
        assert gone() is None
    finally:
        gc.enable()
