"""The laws of convolution for its parameters, the equations of its batching and transposes, and its messages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.signal

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.core.interpreter import run
from fxad.errors import DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray
from fxad.primitives.conv import ConvGeneralDilated
from fxad.testing import xla
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program

NCHW = ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
NHWC = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def conv(n: int = 2, specs: Any = NCHW, **fields: Any) -> ConvGeneralDilated:
    """A convolution without padding, strides and dilation, except for `fields`."""
    ones, axes = (1,) * n, tuple(range(n + 2))
    lhs, rhs, out = specs if n == 2 else (axes, axes, axes)
    plain = ConvGeneralDilated(ones, ((0, 0),) * n, ones, ones, lhs, rhs, out, 1, 1, None)
    return replace(plain, **fields)


def bf16(*shape: int) -> NDArray:
    return floats(*shape).astype(dtypes.bfloat16)


CASES: list[tuple[ConvGeneralDilated, NDArray, NDArray]] = [
    (conv(), floats(2, 3, 5, 4), floats(2, 3, 2, 3)),
    (conv(specs=NHWC, strides=(2, 1), padding=((1, 1), (2, 0))), floats(2, 5, 4, 3), floats(3, 2, 3, 2)),
    (
        conv(lhs_dilation=(2, 3), rhs_dilation=(1, 2), padding=((-1, 2), (3, -2))),
        floats(1, 2, 3, 3),
        floats(2, 2, 2, 2),
    ),
    (conv(feature_groups=2, strides=(1, 2)), floats(2, 4, 3, 4), floats(6, 2, 2, 2)),
    (conv(batch_groups=2, rhs_dilation=(2, 1)), floats(4, 2, 4, 3), floats(6, 2, 2, 2)),
    (conv(0), floats(2, 3), floats(4, 3)),
    (conv(1, feature_groups=3), floats(2, 3, 4), floats(3, 1, 2)),
    (conv(3), floats(1, 1, 2, 3, 2), floats(2, 1, 1, 2, 2)),
    (conv(1), floats(0, 2, 3), floats(2, 2, 2)),
    (conv(1), floats(2, 0, 3), floats(2, 0, 2)),
    (conv(1), floats(2, 2, 0), floats(2, 2, 1)),
    (conv(1, padding=((2, 2),)), floats(2, 2, 0), floats(3, 2, 2)),
    (conv(1), floats(2, 2, 1), floats(2, 2, 3)),
    (conv(1), floats(2, 2, 3), floats(2, 2, 0)),
    (conv(1), floats(2, 2, 3) + 1j * floats(2, 2, 3), floats(2, 2, 2) + 2j),
    (conv(1), np.arange(6, dtype=np.uint8).reshape(1, 2, 3) * 50, np.arange(4, dtype=np.uint8).reshape(1, 2, 2) * 40),
    (conv(1, preferred=dtypes.int32), (100 * floats(1, 2, 3)).astype(np.int8), (100 * floats(1, 2, 2)).astype(np.int8)),
    (conv(1), bf16(1, 2, 3), bf16(1, 2, 2)),
    (conv(1, preferred=dtypes.float32), bf16(1, 2, 3), bf16(1, 2, 2)),
    (conv(1, preferred=dtypes.float64), floats(1, 2, 3).astype(np.float32), floats(1, 2, 2).astype(np.float32)),
]


@pytest.mark.parametrize(("prim", "lhs", "rhs"), CASES)
def test_laws(prim: ConvGeneralDilated, lhs: NDArray, rhs: NDArray) -> None:
    check(prim, lhs, rhs)


def test_the_kernel_is_not_flipped() -> None:
    x, w = floats(1, 1, 6, 5), floats(1, 1, 3, 2)
    (out,) = conv().impl(x, w)
    np.testing.assert_allclose(out[0, 0].astype(np.float64), scipy.signal.correlate2d(x[0, 0], w[0, 0], "valid"))


def test_nan_and_infinity_reach_only_windows_that_contain_them() -> None:
    x = np.array([[[1.0, np.inf, 2.0, np.nan, 3.0]]])
    (out,) = conv(1, padding=((1, 0),)).impl(x, np.ones((1, 1, 2)))
    np.testing.assert_array_equal(out[0, 0], [1.0, np.inf, np.inf, np.nan, np.nan])


LHS, RHS = Aval((2, 4, 6, 6), "float32"), Aval((6, 4, 3, 3), "float32")
GROUPED = Aval((6, 2, 3, 3), "float32")

BATCHED: list[tuple[ConvGeneralDilated, Aval, tuple[int | None, int | None], list[str]]] = [
    (conv(), RHS, (0, None), ["reshape", "conv_general_dilated", "reshape"]),
    (conv(), RHS, (None, 0), ["reshape", "conv_general_dilated", "reshape"]),
    (conv(), RHS, (1, 0), ["reshape", "reshape", "conv_general_dilated", "reshape"]),
    (conv(feature_groups=2), GROUPED, (0, None), ["reshape", "conv_general_dilated", "reshape"]),
    (conv(feature_groups=2), GROUPED, (1, 0), ["reshape", "reshape", "conv_general_dilated", "reshape"]),
]


@pytest.mark.parametrize(("prim", "rhs", "dims", "names"), BATCHED)
def test_batching_is_one_convolution(
    prim: ConvGeneralDilated, rhs: Aval, dims: tuple[int | None, int | None], names: list[str]
) -> None:
    assert eqns(vmap(program(prim, LHS, rhs), 3, dims)[0]) == names


def test_over_no_examples() -> None:
    batched, dims = vmap(program(conv(), LHS, RHS), 0, (0, None))
    assert (eqns(batched), dims, batched.outs[0].aval.shape) == ([], (0,), (0, 2, 6, 4, 4))


def test_every_convolution_is_lowered_in_the_order_that_is_fast_everywhere() -> None:
    """XLA's CPU backend rearranges only convolutions of the entry computation. In branches and loops other orders are
    slow."""

    def f(x: Any, w: Any) -> Any:
        layout = ("NCHW", "OIHW", "NCHW")
        return fnp.sum(fnp.sin(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)))

    x, w = fx.Spec((2, 3, 8, 8), "float32"), fx.Spec((4, 3, 3, 3), "float32")
    text = fx.lower(fx.grad(fx.trace(fx.remat(f), x, w), argnums=(0, 1))).module.pretty()
    orders = re.findall(r"dim_numbers = (\S+(?:, \S+)*?->\[[^]]*\])", text)
    assert len(orders) == 3
    assert set(orders) == {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"}


def test_the_transposes_are_convolutions() -> None:
    p = program(conv(strides=(2, 2)), LHS, RHS)
    assert eqns(transpose(linearize(p, (True, False)).linear, (True, False))) == ["rev", "conv_general_dilated"]
    assert eqns(transpose(linearize(p, (False, True)).linear, (True, False))) == ["conv_general_dilated"]
    bilinear = linearize(p, (True, True))
    assert eqns(transpose(bilinear.linear, (True, True, False, False))).count("conv_general_dilated") == 2


A, B = Aval((2, 4, 5), "float32"), Aval((6, 4, 3), "float32")

ERRORS: list[tuple[ConvGeneralDilated, tuple[Aval, ...], type[FxadError], str]] = [
    (
        conv(1),
        (A, B.with_shape((6, 3, 3))),
        ShapeError,
        "conv_general_dilated: features differ: lhs dim 1 has 4, rhs dim 1 has 3",
    ),
    (
        conv(1, feature_groups=2),
        (A, B),
        ShapeError,
        "conv_general_dilated: features differ: lhs dim 1 has 4, rhs dim 1 has 4 times 2 groups",
    ),
    (
        conv(1, feature_groups=4),
        (A, B.with_shape((6, 1, 3))),
        ShapeError,
        "conv_general_dilated: feature_groups 4 does not divide the output features: rhs dim 0 has 6",
    ),
    (
        conv(1, batch_groups=3),
        (A, B),
        ShapeError,
        "conv_general_dilated: batch_groups 3 does not divide the examples: lhs dim 0 has 2",
    ),
    (
        conv(1, batch_groups=2, feature_groups=2),
        (A, B),
        ParameterError,
        "conv_general_dilated: feature_groups 2 and batch_groups 2 must be positive, and one of them 1",
    ),
    (
        conv(1),
        (A, B.with_shape((6, 4))),
        ShapeError,
        "conv_general_dilated: lhs f32[2,4,5] and rhs f32[6,4] must have one number of axes, at least 2",
    ),
    (
        conv(1, out_spec=(0, 1, 1)),
        (A, B),
        ParameterError,
        "conv_general_dilated: out_spec (0, 1, 1) is not a permutation of the 3 axes of f32[2,4,5]",
    ),
    (
        conv(1, strides=(0,)),
        (A, B),
        ParameterError,
        "conv_general_dilated: strides (0,) has an entry that is not positive",
    ),
    (
        conv(1, rhs_dilation=(1, 1)),
        (A, B),
        ParameterError,
        "conv_general_dilated: rhs_dilation (1, 1) has 2 entries for 1 axes",
    ),
    (
        conv(1, padding=()),
        (A, B),
        ParameterError,
        "conv_general_dilated: padding () has 0 pairs for 1 axes",
    ),
    (
        conv(1, padding=((-7, 1),)),
        (A, B),
        ShapeError,
        "conv_general_dilated: lhs: padding (-7, 1) drops more than axis 2 has: 5 elements",
    ),
    (
        conv(1, padding=((-11, 0),), lhs_dilation=(2,)),
        (A, B),
        ShapeError,
        "conv_general_dilated: lhs: padding (-11, 0) drops more than axis 2 has: 5 elements spread out to 9",
    ),
    (
        conv(1),
        (A, B.with_dtype("float64")),
        DTypeError,
        "conv_general_dilated: dtypes differ: lhs f32[2,4,5], rhs f64[6,4,3]",
    ),
    (
        conv(1),
        (A.with_dtype(bool), B.with_dtype(bool)),
        DTypeError,
        "conv_general_dilated: bool[2,4,5] is not numeric",
    ),
    (
        conv(1, preferred=dtypes.int32),
        (A, B),
        DTypeError,
        "conv_general_dilated: preferred int32 does not hold sums of products of float32",
    ),
    (conv(1), (A,), FxadError, "conv_general_dilated: takes 2 operands, got 1"),
]


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "int32", "uint32", "int64"])
def test_integers_of_constants_wrap(dtype: str) -> None:
    """XLA folds constants with saturation. Concatenated operands are constants too."""
    most = int(np.iinfo(dtype).max)

    def constants(*xs: int) -> Any:
        return lax.concatenate([lax.full((1,), x, dtype) for x in xs], 0)

    def both() -> list[Any]:
        x = constants(most, most // 2, most // 3).reshape(1, 1, 3)
        return [lax.conv(x, constants(*w).reshape(1, 1, 2), (1,), "VALID") for w in ((most, 5), (most // 3, most))]

    jaxpr = fx.trace(both).jaxpr
    for have, want in zip(xla(jaxpr, ()), run(jaxpr, ()), strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: ConvGeneralDilated, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
