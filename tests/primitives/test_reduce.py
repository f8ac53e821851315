"""The laws of reductions, argmax and argmin; ties, nan, messages."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.errors import AxisError, DTypeError, FxadError, ShapeError
from fxad.ir import Aval, NDArray, Primitive
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceXor
from fxad.primitives.reduce_prod import ReduceProd
from fxad.transforms.ad.jvp import jvp
from tests.primitives.harness import check, floats, program, second_order, xla

NAN, INF = np.nan, np.inf

CASES: list[tuple[Primitive, NDArray]] = [
    (ReduceMax((0,)), floats(3, 2)),
    (ReduceMin((0, 1)), floats(3, 2)),
    (ReduceMax(()), floats(2)),
    (ReduceMax((0,)), floats(0, 2).astype(np.float32)),
    (ReduceMin((0,)), floats(0, 2) > 0),
    (ReduceMax((0,)), floats(0, 2).astype(dtypes.float8_e4m3fn)),
    (ReduceMax((1,)), floats(2, 4).astype(dtypes.bfloat16)),
    (ReduceMin((0,)), floats(0, 2).astype(np.int8)),
    (ReduceProd((0, 2)), floats(3, 2, 5)),
    (ReduceProd((0,)), floats(1)),
    (ReduceProd((0,)), floats(0, 2)),
    (ReduceProd(()), floats(3)),
    (ReduceProd((0,)), np.array([0.0, 1.0, 0.0])),
    (ReduceProd((0,)), np.array([0.0, 3.0, 2.0])),
    (ReduceProd((1,)), floats(2, 3) + 1j * floats(2, 3)),
    (ReduceProd((0,)), np.array([[7, 90], [200, 3]], np.uint8)),
    (ReduceAnd((0,)), floats(3, 2) > 0),
    (ReduceOr((1,)), floats(3, 2) > 0),
    (ReduceXor((0, 1)), floats(3, 2) > 0),
    (ReduceAnd((0,)), np.array([[7, -2], [12, 3]], np.int32)),
    (ReduceXor((0,)), np.zeros((0, 2), np.int32)),
    (ReduceAnd((0,)), np.zeros((0, 2), np.uint8)),
    (ArgMax(0, dtypes.int32), floats(3, 2)),
    (ArgMin(1, dtypes.int64), floats(3, 2, 2)),
    (ArgMax(1, dtypes.int32), floats(0, 2)),
    (ArgMax(0, dtypes.int32), floats(5).astype(dtypes.bfloat16)),
    (ArgMax(0, dtypes.int32), np.array([False, True, True])),
]


@pytest.mark.parametrize(("prim", "x"), CASES, ids=lambda v: str(v) if isinstance(v, Primitive) else "")
def test_laws(prim: Primitive, x: NDArray) -> None:
    check(prim, x)


@pytest.mark.parametrize(
    "x",
    [
        [1.0, 3.0, 3.0],
        [1.0, NAN, 9.0, NAN],
        [INF, INF],
        [-INF, -INF, -INF],
        [*[0.0] * 500, *[NAN] * 500],
        [*range(40), *range(40)],
        [*[-INF] * 700, 1.0, *[-INF] * 300],
    ],
    ids=lambda x: str(len(x)),
)
@pytest.mark.parametrize("prim", [ArgMax(0, dtypes.int32), ArgMin(0, dtypes.int32)])
def test_the_first_one_and_nan_first(prim: ArgMax | ArgMin, x: list[float]) -> None:
    """Also in XLA, which reduces in another order."""
    array = np.asarray(x, np.float32)
    want = (np.argmax if prim.sign > 0 else np.argmin)(array)
    p = program(prim, Aval(array.shape, array.dtype))
    assert run(p, (array,))[0] == want
    assert xla(p, array)[0] == want


def test_nan_is_the_extremum() -> None:
    x = np.array([1.0, NAN, 2.0])
    for prim in (ReduceMax((0,)), ReduceMin((0,))):
        p = program(prim, Aval((3,), "float64"))
        assert np.isnan(run(p, (x,))[0])
        assert np.isnan(xla(p, x)[0])


def test_ties_share_the_tangent() -> None:
    forward, _ = jvp(program(ReduceMax((0,)), Aval((4,), "float64")), (True,))
    x, t = np.array([3.0, 1.0, 3.0, 2.0]), np.array([1.0, 10.0, 5.0, 100.0])
    assert run(forward, (x, t))[1] == 3.0


@pytest.mark.parametrize("x", [[2.0, 3.0, 4.0, 5.0, 6.0], [0.0, 3.0, 4.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
def test_second_derivative_of_a_product(x: list[float]) -> None:
    """The Hessian's entry (i, j) is the product of all other elements, also if some are zero."""
    n, array = len(x), np.asarray(x)
    p = program(ReduceProd((0,)), Aval((n,), "float64"))
    want = [[0.0 if i == j else float(np.prod(np.delete(array, [i, j]))) for j in range(n)] for i in range(n)]
    np.testing.assert_allclose(second_order(p, array), np.asarray(want, np.complex128))


ERRORS: list[tuple[Primitive, tuple[Aval, ...], type[FxadError], str]] = [
    (ReduceMax((0,)), (Aval((2,), "complex64"),), DTypeError, "reduce_max: is not defined for c64[2]"),
    (ReduceOr((0,)), (Aval((2,), "float32"),), DTypeError, "reduce_or: is not defined for f32[2]"),
    (
        ReduceProd((1,)),
        (Aval((2,), "float32"),),
        AxisError,
        "reduce_prod: axis 1 is out of range for an operand with 1 axes",
    ),
    (ArgMax(0, dtypes.int32), (Aval((0, 2), "float32"),), ShapeError, "argmax: axis 0 of f32[0,2] is empty"),
    (ArgMin(0, dtypes.int8), (Aval((200,), "float32"),), DTypeError, "argmin: i8 cannot index axis 0 of f32[200]"),
    (ArgMin(0, dtypes.float32), (Aval((2,), "float32"),), DTypeError, "argmin: f32 cannot index axis 0 of f32[2]"),
    (ArgMin(0, dtypes.int32), (Aval((2,), "complex64"),), DTypeError, "argmin: c64[2] has no order"),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
