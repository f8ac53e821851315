"""The laws of slices, pads and concatenations, static and dynamic, and their messages."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray, Primitive
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program

F32 = dtypes.float32


def at(value: int, dtype: dtypes.DType = dtypes.int32) -> NDArray:
    """A start index."""
    return np.asarray(value, dtype)


CASES: list[tuple[Primitive, tuple[NDArray, ...]]] = [
    (Slice((0, 1), (3, 4), (1, 2)), (floats(4, 5),)),
    (Slice((0,), (0,), (3,)), (floats(4),)),
    (Slice((), (), ()), (floats(),)),
    (Slice((1,), (7,), (4,)), (floats(9),)),
    (Pad((1, -1), (2, 3), (0, 2)), (floats(2, 3), floats())),
    (Pad((-1,), (-1,), (1,)), (floats(4), floats())),
    (Pad((3,), (-1,), (2,)), (floats(0), floats())),
    (Pad((), (), ()), (floats(), floats())),
    (Pad((0,), (2,), (0,)), (floats(2) > 0, np.asarray(True))),
    (Concatenate(1), (floats(2, 1), floats(2, 3), floats(2, 0))),
    (Concatenate(0), (floats(3),)),
    (DynamicSlice((2, 3)), (floats(4, 5), at(1), at(4))),
    (DynamicSlice(()), (floats(),)),
    (DynamicSlice((2,)), (floats(3), at(-1, dtypes.int64))),
    (DynamicSlice((0,)), (floats(3), at(1))),
    (DynamicSlice((2,)), (floats(300), at(120, dtypes.int8))),
    (DYNAMIC_UPDATE_SLICE, (floats(4, 5), floats(2, 3), at(1), at(4))),
    (DYNAMIC_UPDATE_SLICE, (floats(), floats())),
    (DYNAMIC_UPDATE_SLICE, (floats(3), floats(0), at(1))),
    (DYNAMIC_UPDATE_SLICE, (floats(3), floats(2), at(-2))),
]


@pytest.mark.parametrize(("prim", "args"), CASES, ids=lambda v: str(v) if isinstance(v, Primitive) else "")
def test_laws(prim: Primitive, args: tuple[NDArray, ...]) -> None:
    check(prim, *args)


def test_a_window_out_of_range_is_clamped() -> None:
    x = np.arange(5)
    np.testing.assert_array_equal(DynamicSlice((3,)).impl(x, at(4))[0], [2, 3, 4])
    np.testing.assert_array_equal(DynamicSlice((3,)).impl(x, at(-9))[0], [0, 1, 2])
    np.testing.assert_array_equal(DYNAMIC_UPDATE_SLICE.impl(x, x[:2] * 0, at(9))[0], [0, 1, 2, 0, 0])


def test_pad_between_and_dropping() -> None:
    (out,) = Pad((1,), (-1,), (1,)).impl(np.array([1, 2, 3]), np.asarray(9))
    np.testing.assert_array_equal(out, [9, 1, 9, 2, 9])


def test_pad_with_one_value_for_all_is_one_equation() -> None:
    p = program(Pad((1,), (0,), (0,)), Aval((3,), F32), Aval((), F32))
    assert eqns(vmap(p, 4, (1, None))[0]) == ["pad"]


def test_dynamic_slice_with_a_start_for_each_example_is_one_gather() -> None:
    p = program(DynamicSlice((2, 3)), Aval((4, 5), F32), Aval((), "int32"), Aval((), "int32"))
    assert "gather" in eqns(vmap(p, 4, (None, 0, None))[0])
    assert eqns(vmap(p, 4, (2, None, None))[0]) == ["dynamic_slice"]


I32 = Aval((), "int32")

ERRORS: list[tuple[Primitive, tuple[Aval, ...], type[FxadError], str]] = [
    (
        Slice((0,), (5,), (1,)),
        (Aval((4,), F32),),
        ShapeError,
        "slice: 0:5 does not lie in axis 0 of f32[4], of size 4",
    ),
    (Slice((0,), (4,), (0,)), (Aval((4,), F32),), ParameterError, "slice: stride 0 of axis 0 is not positive"),
    (
        Slice((0, 0), (4, 4), (1, 1)),
        (Aval((4,), F32),),
        ShapeError,
        "slice: starts (0, 0) has 2 entries for the 1 axes of f32[4]",
    ),
    (
        Pad((0,), (0,), (-1,)),
        (Aval((4,), F32), Aval((), F32)),
        ParameterError,
        "pad: interior -1 of axis 0 is negative",
    ),
    (
        Pad((-3,), (-3,), (0,)),
        (Aval((4,), F32), Aval((), F32)),
        ShapeError,
        "pad: low -3 and high -3 drop more than axis 0 of f32[4] has",
    ),
    (Pad((0,), (0,), (0,)), (Aval((4,), F32), Aval((1,), F32)), ShapeError, "pad: the value must be 0-d, got f32[1]"),
    (Pad((0,), (0,), (0,)), (Aval((4,), F32), I32), DTypeError, "pad: dtypes differ: operand f32[4], value i32[]"),
    (Concatenate(0), (), ArgumentError, "concatenate: takes at least one operand"),
    (
        Concatenate(0),
        (Aval((2, 3), F32), Aval((2, 4), F32)),
        ShapeError,
        "concatenate: shapes differ beside axis 0: operand 0 f32[2,3], operand 1 f32[2,4]",
    ),
    (
        Concatenate(0),
        (Aval((2,), F32), Aval((2,), "int32")),
        DTypeError,
        "concatenate: dtypes differ: operand 0 f32[2], operand 1 i32[2]",
    ),
    (Concatenate(1), (Aval((2,), F32),), AxisError, "concatenate: axis 1 is out of range for an operand with 1 axes"),
    (
        DynamicSlice((5,)),
        (Aval((4,), F32), I32),
        ShapeError,
        "dynamic_slice: a window of size 5 does not lie in axis 0 of f32[4], of size 4",
    ),
    (
        DynamicSlice((2,)),
        (Aval((4,), F32),),
        ArgumentError,
        "dynamic_slice: takes one start index per axis: f32[4] has 1, got 0",
    ),
    (
        DynamicSlice((2,)),
        (Aval((4,), F32), Aval((), F32)),
        DTypeError,
        "dynamic_slice: start index 0 must be an integer, got f32[]",
    ),
    (
        DYNAMIC_UPDATE_SLICE,
        (Aval((4,), F32), Aval((2,), "float64"), I32),
        DTypeError,
        "dynamic_update_slice: dtypes differ: operand f32[4], update f64[2]",
    ),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
