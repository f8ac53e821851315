"""The laws of gather and the scatters in every mode, and their messages."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.errors import DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray, Primitive
from fxad.primitives.dimension_numbers import MODES, GatherScatterMode
from fxad.primitives.gather_scatter import Gather, Scatter, ScatterAdd
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program

Axes = tuple[int, ...]


def gather(mode: GatherScatterMode, numbers: tuple[Axes, Axes, Axes, Axes, Axes], sizes: Axes) -> Gather:
    return Gather(*numbers, sizes, mode, False, False)


def places(mode: GatherScatterMode, *shape: int, dtype: dtypes.DType = dtypes.int32) -> NDArray:
    """Returns indices for axes of size 3 or more. Some are out of range, where the mode defines that."""
    lo, hi = (0, 2) if mode == "promise_in_bounds" else (0, 6) if dtype in dtypes.UNSIGNED else (-2, 6)
    return np.random.default_rng(sum(shape)).integers(lo, hi, shape).astype(dtype)


# offset, collapsed, batched, indices batched, index map
ROWS = ((1,), (0,), (), (), (0,))
WINDOWS = ((0, 2), (1,), (), (), (1, 0))
POINTS: tuple[Axes, Axes, Axes, Axes, Axes] = ((), (0, 1), (), (), (0, 1))
PAIRED = ((1,), (), (0,), (0,), (1,))
VECTOR: tuple[Axes, Axes, Axes, Axes, Axes] = ((), (0,), (), (), (0,))
NOWHERE: tuple[Axes, Axes, Axes, Axes, Axes] = ((), (), (), (), ())


@pytest.mark.parametrize("mode", MODES)
def test_gather(mode: GatherScatterMode) -> None:
    check(gather(mode, ROWS, (1, 3)), floats(4, 3), places(mode, 5, 1))
    check(gather(mode, ROWS, (1, 3)), floats(4, 3), places(mode, 5, 1, dtype=dtypes.int8))
    check(gather(mode, WINDOWS, (2, 1, 2)), floats(4, 3, 3), places(mode, 5, 2))
    check(gather(mode, POINTS, (1, 1)), floats(4, 3), places(mode, 2, 2, 2, dtype=dtypes.int64))
    check(gather(mode, PAIRED, (1, 2)), floats(4, 3), places(mode, 4, 1))
    check(gather(mode, VECTOR, (1,)), floats(4) > 0, places(mode, 3, 1, dtype=dtypes.uint8))


@pytest.mark.parametrize("mode", MODES)
def test_gather_without_elements(mode: GatherScatterMode) -> None:
    empty = np.zeros((3, 0), np.int32)
    check(gather(mode, ((0,), (), (), (), ()), (2,)), floats(2), empty)
    check(gather(mode, NOWHERE, ()), floats(), empty)
    check(gather(mode, VECTOR, (1,)), floats(4), np.zeros((0, 1), np.int32))
    check(gather(mode, VECTOR, (0,)), floats(0), np.zeros((3, 1), np.int32))
    check(gather(mode, ROWS, (1, 0)), floats(3, 0), np.zeros((3, 1), np.int32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [ScatterAdd, Scatter])
def test_scatters(kind: type[ScatterAdd | Scatter], mode: GatherScatterMode) -> None:
    """Indices repeat, so a plain scatter must find out which update remains."""
    check(kind(*ROWS, mode, False, False), floats(4, 3), places(mode, 5, 1), floats(5, 3))
    check(kind(*WINDOWS, mode, False, False), floats(4, 3, 3), places(mode, 5, 2), floats(2, 5, 2))
    check(kind(*PAIRED, mode, False, False), floats(4, 3), places(mode, 4, 1), floats(4, 2))
    check(kind((0,), (), (), (), (0,), mode, False, False), floats(4), places(mode, 3, 1), floats(2, 3))


@pytest.mark.parametrize("mode", MODES)
def test_scatters_without_elements(mode: GatherScatterMode) -> None:
    check(ScatterAdd(*NOWHERE, mode, False, False), floats(), np.zeros((3, 0), np.int32), floats(3))
    check(ScatterAdd(*VECTOR, mode, False, False), floats(4), np.zeros((0, 1), np.int32), floats(0))
    check(ScatterAdd(*VECTOR, mode, False, False), floats(0), np.zeros((3, 1), np.int32), floats(3))


def test_scatter_with_unique_indices_is_linear() -> None:
    prim = Scatter(*VECTOR, "drop", False, True)
    assert prim.linear_in((True, False, True))
    assert not prim.linear_in((False, False, True))
    check(prim, floats(4), np.array([[2], [0], [9]], np.int32), floats(3))


def test_scatter_add_of_low_precision_rounds_once() -> None:
    ones = np.ones(300, dtypes.bfloat16)
    (out,) = ScatterAdd(*VECTOR, "drop", False, False).impl(ones[:1], np.zeros((300, 1), np.int32), ones)
    assert float(out[0]) == 300.0  # a sum in bfloat16 would stop at 256


def test_modes() -> None:
    x, i = np.arange(1.0, 4.0), np.array([[-1], [1], [7]])
    np.testing.assert_array_equal(gather("clip", VECTOR, (1,)).impl(x, i)[0], [1, 2, 3])
    np.testing.assert_array_equal(gather("drop", VECTOR, (1,)).impl(x, i)[0], [0, 2, 0])
    np.testing.assert_array_equal(ScatterAdd(*VECTOR, "clip", False, False).impl(x, i, x)[0], [2, 4, 6])
    np.testing.assert_array_equal(ScatterAdd(*VECTOR, "drop", False, False).impl(x, i, x)[0], [1, 4, 3])


def test_batching_is_one_gather() -> None:
    p = program(gather("clip", ROWS, (1, 3)), Aval((4, 3), "float32"), Aval((5, 1), "int32"))
    for dims in [(0, 0), (None, 0), (1, None), (2, None)]:
        assert eqns(vmap(p, 4, dims)[0]) == ["gather"]


F, I = Aval((4, 3), "float32"), Aval((5, 1), "int32")

ERRORS: list[tuple[Primitive, tuple[Aval, ...], type[FxadError], str]] = [
    (
        gather("wrap", ROWS, (1, 3)),  # type: ignore[arg-type]  # no word that it takes
        (F, I),
        ParameterError,
        "gather: mode 'wrap' is not one of clip, drop, promise_in_bounds",
    ),
    (gather("clip", ROWS, (1, 3)), (F, F), DTypeError, "gather: indices must be integers, got f32[4,3]"),
    (
        gather("clip", ROWS, (1, 4)),
        (F, I),
        ShapeError,
        "gather: a window of size 4 does not lie in axis 1 of f32[4,3], of size 3",
    ),
    (
        gather("clip", ROWS, (2, 3)),
        (F, I),
        ShapeError,
        "gather: axis 0 is collapsed or batched, its window has size 2, not 1",
    ),
    (
        gather("clip", POINTS, (1, 1)),
        (F, I),
        ShapeError,
        "gather: index vectors name 2 operand axes (0, 1), the last axis of the indices i32[5,1] must have that size",
    ),
    (
        gather("clip", ((1,), (0,), (0,), (0,), (1,)), (1, 3)),
        (F, I),
        ParameterError,
        "gather: an operand axis has two roles: collapsed (0,), batched (0,), indexed (1,)",
    ),
    (
        gather("clip", ((1,), (), (0,), (0,), (1,)), (1, 3)),
        (F, I),
        ShapeError,
        "gather: batched sizes differ: operand dim 0 has 4, indices dim 0 has 5",
    ),
    (
        gather("clip", ((), (0,), (), (), (0,)), (1, 3)),
        (F, I),
        ParameterError,
        "gather: 0 offset axes () for a window of 1 axes",
    ),
    (
        ScatterAdd(*ROWS, "drop", False, False),
        (F, I, Aval((4, 3), "float32")),
        ShapeError,
        "scatter_add: shapes differ: updates f32[4,3], indices i32[5,1] ask for (5, 3)",
    ),
    (
        ScatterAdd(*ROWS, "drop", False, False),
        (F, I, Aval((5, 3), "float64")),
        DTypeError,
        "scatter_add: dtypes differ: operand f32[4,3], updates f64[5,3]",
    ),
    (
        ScatterAdd(*VECTOR, "drop", False, False),
        (Aval((3,), bool), I, Aval((5,), bool)),
        DTypeError,
        "scatter_add: is not defined for bool[3]",
    ),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
