"""The laws of the shape primitives, the equations of their rules, and their messages."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, Lit, NDArray, Primitive
from fxad.primitives.shape import (
    BroadcastInDim,
    ExpandDims,
    Iota,
    ReduceSum,
    Reshape,
    Rev,
    Squeeze,
    Transpose,
    broadcast_to_axis,
    move_axis,
)
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program

F32 = dtypes.float32

CASES: list[tuple[Primitive, NDArray]] = [
    (BroadcastInDim((7, 2, 3, 4), (1, 2, 3)), floats(2, 3, 1)),
    (BroadcastInDim((4,), (0,)), floats(4)),
    (BroadcastInDim((2, 0), (1,)), floats(0)),
    (BroadcastInDim((2,), ()), floats()),
    (ReduceSum((0, 2)), floats(2, 3, 4)),
    (ReduceSum(()), floats(2)),
    (ReduceSum((0,)), floats(0, 3)),
    (ReduceSum((0, 1)), floats(2, 2) + 1j * floats(2, 2)),
    (ReduceSum((0,)), np.arange(6, dtype=np.int8).reshape(2, 3) * 60),
    (ReduceSum((0,)), floats(20, 3).astype(dtypes.bfloat16)),
    (Reshape((6, 2)), floats(3, 2, 2)),
    (Reshape(()), floats(1, 1)),
    (Reshape((0, 5)), floats(2, 0)),
    (Transpose((2, 0, 1)), floats(2, 3, 4)),
    (Transpose(()), floats()),
    (Squeeze((0, 2)), floats(1, 3, 1)),
    (Squeeze(()), floats()),
    (ExpandDims((0, 3)), floats(3, 2)),
    (ExpandDims((0,)), floats()),
    (Rev((0, 1)), floats(2, 3, 2)),
    (Rev(()), floats()),
]


@pytest.mark.parametrize(("prim", "x"), CASES, ids=lambda v: str(v) if isinstance(v, Primitive) else "")
def test_laws(prim: Primitive, x: NDArray) -> None:
    check(prim, x)


def test_iota() -> None:
    check(Iota((2, 3), dtypes.int32, 1))
    check(Iota((300,), dtypes.uint8, 0))  # wraps, as in XLA
    np.testing.assert_array_equal(Iota((2, 3), dtypes.int32, 0).impl()[0], [[0, 0, 0], [1, 1, 1]])


def test_values() -> None:
    x = floats(2, 3, 4)
    np.testing.assert_array_equal(Transpose((2, 0, 1)).impl(x)[0], np.transpose(x, (2, 0, 1)))
    np.testing.assert_array_equal(ReduceSum((1,)).impl(x)[0], x.sum(1))
    np.testing.assert_array_equal(Rev((1,)).impl(x)[0], x[:, ::-1])
    np.testing.assert_array_equal(BroadcastInDim((2, 5, 3), (0, 2)).impl(x[..., 0])[0][:, 4], x[..., 0])


@pytest.mark.parametrize("dim", range(4))
def test_batching_moves_nothing(dim: int) -> None:
    """Each rule keeps the mapped axis where it is: one equation, no transpose before it."""
    for prim, shape in [
        (BroadcastInDim((5, 2, 3, 1), (1, 2, 3)), (2, 3, 1)),
        (ReduceSum((1,)), (2, 3, 1)),
        (Transpose((2, 0, 1)), (2, 3, 1)),
        (Squeeze((2,)), (2, 3, 1)),
        (ExpandDims((0, 2)), (2, 3, 1)),
        (Rev((0,)), (2, 3, 1)),
        (Reshape((2, 1, 3)), (2, 3, 1)),
    ]:
        batched, _ = vmap(program(prim, Aval(shape, F32)), 4, (dim,))
        assert eqns(batched) == [prim.name]


def test_placing_an_axis() -> None:
    b = Builder()
    x = b.input(Aval((2, 3), F32))
    assert move_axis(b, x, 1, 1) is x
    assert move_axis(b, x, 0, 1).aval.shape == (3, 2)
    assert broadcast_to_axis(b, x, 0, 2, 0) is x
    assert broadcast_to_axis(b, x, None, 5, 1).aval.shape == (2, 5, 3)
    n = len(b.eqns)
    one = Lit.of(1.0, Aval((2, 3), F32))
    assert broadcast_to_axis(b, one, None, 5, 1) is one.with_shape((2, 5, 3))
    assert move_axis(b, one, 0, 1) is one.with_shape((3, 2))
    assert len(b.eqns) == n


ERRORS: list[tuple[Primitive, tuple[Aval, ...], type[FxadError], str]] = [
    (
        BroadcastInDim((4, 3), (0,)),
        (Aval((2,), F32),),
        ShapeError,
        "broadcast_in_dim: sizes differ: operand dim 0 has 2, result dim 0 has 4",
    ),
    (
        BroadcastInDim((4, 3), (0,)),
        (Aval((4, 3), F32),),
        ShapeError,
        "broadcast_in_dim: dims (0,) has 1 entries for the axes of f32[4,3]",
    ),
    (
        BroadcastInDim((4, 3), (1, 0)),
        (Aval((3, 4), F32),),
        ParameterError,
        "broadcast_in_dim: axes (1, 0) are not increasing",
    ),
    (
        BroadcastInDim((4,), (1,)),
        (Aval((4,), F32),),
        AxisError,
        "broadcast_in_dim: axis 1 is out of range for an operand with 1 axes",
    ),
    (ReduceSum((0,)), (Aval((2,), bool),), DTypeError, "reduce_sum: bool[2] is not numeric"),
    (ReduceSum((-1,)), (Aval((2,), F32),), AxisError, "reduce_sum: axis -1 is negative"),
    (
        Reshape((5,)),
        (Aval((2, 3), F32),),
        ShapeError,
        "reshape: sizes differ: f32[2,3] has 6 elements, (5,) has 5",
    ),
    (
        Transpose((0, 0)),
        (Aval((2, 3), F32),),
        ParameterError,
        "transpose: perm (0, 0) is not a permutation of the 2 axes of f32[2,3]",
    ),
    (Squeeze((1,)), (Aval((2, 3), F32),), ShapeError, "squeeze: axis 1 of f32[2,3] has size 3, not 1"),
    (Rev((2,)), (Aval((2,), F32),), AxisError, "rev: axis 2 is out of range for an operand with 1 axes"),
    (Iota((2,), dtypes.bool_, 0), (), DTypeError, "iota: bool cannot count"),
    (Iota((), F32, 0), (), AxisError, "iota: axis 0 is out of range for an operand with 0 axes"),
    (Rev(()), (), ArgumentError, "rev: takes 1 operand, got 0"),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
