"""The laws of index and index_vectors, their batching and transposes, and their messages."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, Primitive
from fxad.primitives.index import Index, IndexVectors
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program


def place(i: int, dtype: str = "int32") -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return np.asarray(i, dtype)


def test_static() -> None:
    check(Index((1, 0), (1, 3), (1, 1), (0,), ()), floats(4, 3))
    check(Index((1, 0), (2, 2), (2, 2), (), ()), floats(4, 3))
    check(Index((3, 2), (1, 1), (1, 1), (0, 1), ()), floats(4, 3))
    check(Index((4, 0), (0, 3), (1, 1), (), ()), floats(4, 3))
    check(Index((), (), (), (), ()), floats())
    check(Index((1,), (1,), (1,), (0,), ()), floats(4) > 0)


@pytest.mark.parametrize("i", [2, -1, 7, -9])
def test_dynamic(i: int) -> None:
    """A negative index counts from the end. An index out of range is clamped."""
    check(Index((0, 0), (1, 3), (1, 1), (0,), (0,)), floats(4, 3), place(i))
    (found,) = Index((0,), (1,), (1,), (0,), (0,)).impl(np.arange(4), place(i))
    assert found == np.arange(4)[max(min(i + 4 * (i < 0), 3), 0)]


def test_dynamic_windows() -> None:
    check(Index((0, 1), (2, 1), (1, 1), (1,), (0,)), floats(4, 3), place(-1, "int8"))
    check(Index((0, 0), (1, 2), (1, 2), (0,), (0,)), floats(4, 3), place(2, "int64"))
    check(Index((0, 0), (1, 1), (1, 1), (0, 1), (0, 1)), floats(4, 3), place(1), place(-1, "int16"))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64", "int64"])
def test_indices_beyond_int32(dtype: str) -> None:
    i = place(np.iinfo(dtype).max, dtype)
    check(Index((0,), (1,), (1,), (0,), (0,)), floats(4), i, batching=False, differentiate=False)
    check(IndexVectors((4,)), i, batching=False)
    assert Index((0,), (1,), (1,), (0,), (0,)).impl(np.arange(4), i)[0] == 3


def test_index_vectors() -> None:
    rows, columns = np.array([[0, -1], [5, -7]], np.int8), np.array([1, 7], np.uint8)
    check(IndexVectors((4,)), rows)
    check(IndexVectors((4, 3)), rows, columns)
    check(IndexVectors((4, 3)), columns, place(-1))
    check(IndexVectors((4, 3)), rows[:, :1], columns)
    check(IndexVectors((0,)), rows[:0])
    found = IndexVectors((4, 3)).impl(rows, np.array([1, -2]))[0]
    np.testing.assert_array_equal(found, [[[0, 1], [3, 1]], [[5, 1], [-3, 1]]])


def test_batching_and_transpose() -> None:
    x, i = Aval((4, 3), "float32"), Aval((), "int32")
    p = program(Index((0, 0), (1, 3), (1, 1), (0,), (0,)), x, i)
    assert eqns(vmap(p, 2, (0, None))[0]) == ["index"]
    assert eqns(vmap(p, 2, (None, 0))[0]) == ["index_vectors", "gather"]
    assert eqns(vmap(p, 2, (1, 0))[0]) == ["index_vectors", "gather"]
    back = ["expand_dims", "lt", "add", "select_n", "dynamic_update_slice"]
    assert eqns(transpose(p, (True, False))) == back
    static = program(Index((1, 0), (1, 3), (1, 1), (0,), ()), x)
    assert eqns(transpose(static, (True,))) == ["expand_dims", "pad"]


X, I = Aval((4, 3), "float32"), Aval((), "int32")

ERRORS: list[tuple[Primitive, tuple[Aval, ...], type[FxadError], str]] = [
    (
        Index((0, 0), (1, 3), (1, 1), (0,), (0,)),
        (X,),
        ArgumentError,
        "index: takes an operand and a place for each of the axes (0,), got 1 operands",
    ),
    (
        Index((0,), (1,), (1,), (0,), ()),
        (X,),
        ShapeError,
        "index: starts (0,) has 1 entries for the 2 axes of f32[4,3]",
    ),
    (
        Index((4, 0), (1, 3), (1, 1), (0,), ()),
        (X,),
        ShapeError,
        "index: 1 elements from 4 on do not lie in axis 0 of f32[4,3], of size 4",
    ),
    (
        Index((0, 0), (2, 3), (-1, 1), (), ()),
        (X,),
        ParameterError,
        "index: stride -1 of axis 0 is not positive",
    ),
    (
        Index((0, 0), (2, 3), (1, 1), (0,), ()),
        (X,),
        ParameterError,
        "index: axis 0 is dropped, its window has size 2, not 1",
    ),
    (
        Index((0, 0), (1, 3), (1, 1), (2,), ()),
        (X,),
        AxisError,
        "index: axis 2 is out of range for an operand with 2 axes",
    ),
    (
        Index((0, 0), (1, 3), (1, 1), (0,), (0,)),
        (X, Aval((1,), "int32")),
        ShapeError,
        "index: place 0 must be 0-d, got i32[1]",
    ),
    (
        Index((0, 0), (1, 3), (1, 1), (0,), (0,)),
        (X, Aval((), "float32")),
        DTypeError,
        "index: place 0 must be an integer, got f32[]",
    ),
    (
        Index((1, 0), (1, 3), (1, 1), (0,), (0,)),
        (X, I),
        ParameterError,
        "index: axis 0 starts where operand 1 says: its start is 0 and its stride 1, got 1 and 1",
    ),
    (
        IndexVectors((4, 3)),
        (I,),
        ArgumentError,
        "index_vectors: takes one operand for each of sizes (4, 3), got 1",
    ),
    (IndexVectors((4,)), (X,), DTypeError, "index_vectors: operand 0 must be an integer array, got f32[4,3]"),
    (IndexVectors((-4,)), (I,), ParameterError, "index_vectors: sizes (-4,) of axes are not negative"),
    (
        IndexVectors((4, 3)),
        (Aval((2,), "int32"), Aval((3,), "int32")),
        ShapeError,
        "index_vectors: shapes do not broadcast: i32[2], i32[3]",
    ),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message


def test_dtype_of_indices() -> None:
    (vectors,) = IndexVectors((2**31,)).abstract_eval(Aval((), "int8"))
    assert vectors.dtype == dtypes.int64
    (vectors,) = IndexVectors((2**31 - 1,)).abstract_eval(Aval((), "int64"))
    assert vectors.dtype == dtypes.int32
