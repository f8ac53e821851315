"""The laws of dot_general, its dtypes, the equations of its batching, and its messages."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.errors import AxisError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray
from fxad.lower import lower_jaxpr
from fxad.primitives.dot import DotGeneral
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program

MATMUL = DotGeneral((1,), (0,), (), (), None)

CASES: list[tuple[DotGeneral, NDArray, NDArray]] = [
    (MATMUL, floats(2, 3), floats(3, 4)),
    (DotGeneral((2, 1), (0, 2), (0,), (1,), None), floats(2, 3, 4), floats(4, 2, 3)),
    (DotGeneral((), (), (), (), None), floats(), floats(2)),
    (DotGeneral((), (), (), (), None), floats(), floats()),
    (MATMUL, floats(2, 0), floats(0, 3)),
    (MATMUL, floats(0, 2), floats(2, 3)),
    (DotGeneral((0, 1), (1, 2), (2,), (0,), None), floats(2, 3, 2), floats(2, 2, 3)),
    (DotGeneral((0, 1), (0, 1), (), (), None), floats(2, 3, 4), floats(2, 3, 5)),
    (DotGeneral((1, 0), (1, 0), (), (), None), floats(2, 3), floats(2, 3, 5, 2)),
    (DotGeneral((1,), (0,), (0,), (1,), None), floats(2, 3, 4, 2), floats(3, 2, 5)),
    (DotGeneral((), (), (0, 1), (1, 0), None), floats(2, 3, 2), floats(3, 2)),
    (DotGeneral((0, 2), (3, 0), (), (), None), floats(2, 5, 3) + 1j * floats(2, 5, 3), floats(3, 2, 4, 2) + 2j),
    (
        DotGeneral((1,), (0,), (), (), dtypes.int32),
        (100 * floats(2, 3)).astype(np.int8),
        (100 * floats(3, 4)).astype(np.int8),
    ),
    (MATMUL, np.arange(6, dtype=np.uint8).reshape(2, 3) * 50, np.arange(6, dtype=np.uint8).reshape(3, 2) * 40),
    (
        DotGeneral((1,), (0,), (), (), dtypes.float32),
        floats(2, 3).astype(dtypes.bfloat16),
        floats(3, 4).astype(dtypes.bfloat16),
    ),
    (DotGeneral((1,), (0,), (), (), dtypes.float64), floats(2, 3).astype(np.float32), floats(3, 4).astype(np.float32)),
    (MATMUL, floats(2, 3).astype(dtypes.bfloat16), floats(3, 4).astype(dtypes.bfloat16)),
]


@pytest.mark.parametrize(("prim", "lhs", "rhs"), CASES)
def test_laws(prim: DotGeneral, lhs: NDArray, rhs: NDArray) -> None:
    check(prim, lhs, rhs)


def test_values() -> None:
    x, y = floats(2, 3, 4), floats(4, 2, 3)
    (out,) = DotGeneral((2,), (0,), (0,), (1,), None).impl(x, y)
    np.testing.assert_allclose(out.astype(np.float64), np.einsum("bik,kbj->bij", x, y))


def test_an_operand_of_several_axes_is_a_matrix() -> None:
    """XLA's CPU compiler would copy both operands of the gradient of `x @ w` for x of three axes, and copies none of
    two matrices. On GPUs the product is as it stands in the program."""
    p = program(DotGeneral((0, 1), (0, 1), (), (), None), Aval((4, 8, 3), "float32"), Aval((4, 8, 5), "float32"))
    text = lower_jaxpr(p, "cpu").body
    assert "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]" in text
    assert text.count("stablehlo.reshape") == 2
    assert "stablehlo.transpose" not in text
    assert "stablehlo.reshape" not in lower_jaxpr(p, "cuda").body
    # the free axes of lhs lie on both sides of the contracting one: XLA has to copy
    apart = program(DotGeneral((1,), (0,), (), (), None), Aval((4, 8, 3), "float32"), Aval((8, 5), "float32"))
    assert "stablehlo.reshape" not in lower_jaxpr(apart, "cpu").body


@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (2, 2), (0, None), (1, None), (2, None), (None, 0), (None, 2)])
def test_batching_is_one_equation(dims: tuple[int | None, int | None]) -> None:
    """A mapped axis becomes a batch axis or a free axis: no equation moves or repeats it."""
    p = program(MATMUL, Aval((2, 3), "float32"), Aval((3, 5), "float32"))
    assert eqns(vmap(p, 4, dims)[0]) == ["dot_general"]


def test_matmul_transposes_with_one_more_transpose_at_most() -> None:
    p = program(MATMUL, Aval((2, 3), "float32"), Aval((3, 5), "float32"))
    for nonzero, names in [((True, False), ["dot_general"]), ((False, True), ["dot_general", "transpose"])]:
        assert eqns(transpose(linearize(p, nonzero).linear, (True, False))) == names


def test_the_transpose_of_a_wide_result_is_computed_wide() -> None:
    narrow = Aval((2, 3), dtypes.bfloat16)
    p = program(DotGeneral((1,), (1,), (), (), dtypes.float32), narrow, narrow)
    adjoint = transpose(linearize(p, (True, False)).linear, (True, False))
    assert [str(e.prim) for e in adjoint.eqns if e.prim.name == "dot_general"] == [
        "DotGeneral(lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=(), preferred=None, precision='')"
    ]
    assert adjoint.out_avals == (narrow,)


A, B = Aval((3, 4), "float32"), Aval((5, 6), "float32")

ERRORS: list[tuple[DotGeneral, tuple[Aval, ...], type[FxadError], str]] = [
    (MATMUL, (A, B), ShapeError, "dot_general: contracting sizes differ: lhs dim 1 has 4, rhs dim 0 has 5"),
    (
        DotGeneral((), (), (0,), (0,), None),
        (A, B),
        ShapeError,
        "dot_general: batch sizes differ: lhs dim 0 has 3, rhs dim 0 has 5",
    ),
    (
        DotGeneral((1,), (), (), (), None),
        (A, B),
        ParameterError,
        "dot_general: numbers of contracting axes differ: lhs (1,), rhs ()",
    ),
    (
        DotGeneral((1,), (0,), (1,), (1,), None),
        (A, B),
        ParameterError,
        "dot_general: an axis of lhs is used twice: batch (1,), contracting (1,)",
    ),
    (
        DotGeneral((1,), (2,), (), (), None),
        (A, B),
        AxisError,
        "dot_general: rhs: axis 2 is out of range for an operand with 2 axes",
    ),
    (
        MATMUL,
        (A, B.with_dtype("int32")),
        DTypeError,
        "dot_general: dtypes differ: lhs f32[3,4], rhs i32[5,6]",
    ),
    (MATMUL, (A.with_dtype(bool), A.with_dtype(bool)), DTypeError, "dot_general: bool[3,4] is not numeric"),
    (
        DotGeneral((1,), (0,), (), (), dtypes.int32),
        (A, B),
        DTypeError,
        "dot_general: preferred int32 does not hold sums of products of float32",
    ),
    (
        DotGeneral((1,), (0,), (), (), dtypes.bfloat16),
        (A, B),
        DTypeError,
        "dot_general: preferred bfloat16 does not hold sums of products of float32",
    ),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: DotGeneral, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
