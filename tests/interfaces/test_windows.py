"""lax: convolutions, patches, reductions by a function, windows; and pooling in nn. Against jax if it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.errors import ArgumentError, FxadError, NotDifferentiableError, ParameterError, ShapeError, TreeError
from fxad.tracing.array import Array

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 7, 6, 4)).astype(np.float32)
W = RNG.standard_normal((3, 2, 4, 6)).astype(np.float32)
NHWC = ("NHWC", "HWIO", "NHWC")


def close(have: object, want: object) -> None:
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lhs", ["NCHW", "NHWC", "NWHC", "CNWH"])
@pytest.mark.parametrize("kernel", ["OIHW", "OIWH", "WHIO", "HOWI"])
def test_patches_are_in_the_order_of_jax(lhs: str, kernel: str) -> None:
    peer = pytest.importorskip("jax").lax
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)
    x = x.transpose(["NCHW".index(c) for c in lhs])
    for out, shape in (("NCHW", (2, 3)), ("NWHC", (2, 2))):
        args = (x, shape, (1, 2), "SAME", None, None, (lhs, kernel, out))
        close(lax.conv_general_dilated_patches(*args), peer.conv_general_dilated_patches(*args))


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER", "VALID", [(1, 2), (-1, 0)]])
def test_convolution_is_jax_s(padding: Any) -> None:
    peer = pytest.importorskip("jax").lax
    for strides, dilation in (((1, 1), (1, 1)), ((2, 3), (1, 2))):
        args = (X, W, strides, padding, None, dilation, NHWC)
        close(lax.conv_general_dilated(*args), peer.conv_general_dilated(*args))
        moved = (X, (3, 2), strides, padding, None, dilation, NHWC)
        close(lax.conv_general_dilated_patches(*moved), peer.conv_general_dilated_patches(*moved))
    if padding != "SAME_LOWER":
        for transposed in (False, True):
            kernel = W.swapaxes(2, 3) if transposed else W
            wide = (X, kernel, (2, 3), padding, (1, 2), NHWC, transposed)
            close(lax.conv_transpose(*wide), peer.conv_transpose(*wide))


def test_abbreviations_of_convolutions() -> None:
    x, w = X.transpose(0, 3, 1, 2), W.transpose(3, 2, 0, 1)
    want = lax.conv_general_dilated(X, W, (1, 2), "SAME", dimension_numbers=NHWC)
    close(lax.conv(x, w, (1, 2), "SAME"), np.transpose(np.asarray(want), (0, 3, 1, 2)))
    close(
        lax.conv_with_general_padding(x, w, (1, 1), [(1, 0), (0, 1)], (2, 1), None),
        lax.conv_general_dilated(x, w, (1, 1), [(1, 0), (0, 1)], (2, 1)),
    )
    specs = lax.conv_dimension_numbers(X.shape, W.shape, NHWC)
    assert specs == lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    close(lax.conv_general_dilated(X, W, (1, 2), "SAME", dimension_numbers=specs), want)
    assert lax.padtype_to_pads((7, 6), (3, 2), (2, 3), "same") == [(1, 1), (0, 0)]
    wide = lax.conv_general_dilated(X, W, (1, 1), "VALID", dimension_numbers=NHWC, preferred_element_type="float64")
    assert wide.dtype == np.float64


def test_the_transpose_of_a_convolution() -> None:
    """`conv_transpose` with `transpose_kernel` and matching padding equals the derivative of the convolution."""
    ct = RNG.standard_normal((2, 7, 6, 6)).astype(np.float32)
    pads = [(1, 1), (0, 1)]

    def forward(x: Array) -> Array:
        return (lax.conv_general_dilated(x, W, (1, 1), pads, dimension_numbers=NHWC) * ct).sum()

    have = lax.conv_transpose(
        ct, W, (1, 1), pads, dimension_numbers=NHWC, transpose_kernel=True, use_consistent_padding=True
    )
    close(have, fx.grad(forward)(fnp.asarray(X)))


MONOIDS: list[tuple[str, float, Callable[..., Any]]] = [
    ("max", -np.inf, np.max),
    ("min", np.inf, np.min),
    ("add", 0.0, np.sum),
    ("mul", 1.0, np.prod),
]


NAMES = {"add": "reduce_sum", "mul": "reduce_prod"}


@pytest.mark.parametrize(("name", "init", "reference"), MONOIDS)
def test_a_body_of_one_operation_becomes_its_reduction(name: str, init: float, reference: Callable[..., Any]) -> None:
    fn = getattr(lax, name)
    small = X[:, :2, :2]
    for computation in (fn, lambda a, b: fn(b, a)):
        for start in (init, np.float32(init), fnp.asarray(np.float32(init))):
            close(lax.reduce(small, start, computation, (2, 1)), reference(small, (1, 2)))
            program = fx.trace(lambda x, c=computation, s=start: lax.reduce(x, s, c, (1,)), small)
            assert [e.prim.name for e in program.jaxpr.eqns] == [NAMES.get(name, f"reduce_{name}")]
            program = fx.trace(lambda x, c=computation, s=start: nn.pool(x, s, c, (2, 2)), small)
            assert len(program.jaxpr.eqns) == 1
    close(lax.reduce(small, 2.0, fn, (1,)), reference(np.concatenate([small, np.full((2, 1, 2, 4), 2)], 1), 1))
    close(lax.reduce(small, 2.0, fn, ()), reference(np.stack([small, np.full_like(small, 2)]), 0))


def test_an_initial_value_that_is_not_the_identity() -> None:
    x = fnp.asarray(np.arange(6, dtype=np.float32))
    close(lax.reduce_window(x, 1.0, lax.max, (3,), (3,), "VALID"), [2, 5])
    close(lax.reduce_window(x, 3.0, lax.max, (3,), (3,), "VALID"), [3, 5])
    close(lax.reduce_window(x, 1.0, lax.add, (3,), (3,), "VALID"), [4, 13])
    close(fx.jit(lambda x, s: lax.reduce_window(x, s, lax.add, (3,), (3,), "VALID"))(x, np.float32(1)), [4, 13])
    close(fx.grad(lambda s: lax.reduce(x, s, lax.add, (0,)))(np.float32(1)), 1)


def test_several_operands() -> None:
    values, places = X[0, :, 0, 0], np.arange(7, dtype=np.int32)

    def later(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        wins = a[0] >= b[0]
        return fnp.where(wins, a[0], b[0]), fnp.where(wins, a[1], b[1])

    best, at = lax.reduce((values, places), (-np.inf, -1), later, (0,))
    assert float(best) == values.max()
    assert int(at) == values.argmax()
    _, at = lax.reduce_window((values, places), (-np.inf, -1), later, (2,), (2,), "VALID")
    np.testing.assert_array_equal(at, values[:6].reshape(3, 2).argmax(1) + np.array([0, 2, 4]))
    stacked = fx.vmap(
        lambda v: lax.reduce({"v": v}, {"v": -9.0}, lambda a, b: {"v": fnp.maximum(a["v"], b["v"] * 1)}, (0,))
    )
    close(stacked(X[:, :, 0, 0])["v"], X[:, :, 0, 0].max(1))


def test_barrier_and_selection() -> None:
    a, b = lax.optimization_barrier((X, np.int32(3)))
    close(a, X)
    assert int(b) == 3
    source = np.ones((2, 3, 3, 4), np.float32)
    picked = lax.select_and_scatter_add(source, X, "ge", (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    want = fx.grad(lambda x: nn.max_pool(x, (2, 2), (2, 2)).sum())(fnp.asarray(X))
    close(picked, want)
    close(lax.select_and_gather_add(X, X, "le", (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), nn.min_pool(X, (2, 2), (2, 2)))


# -------------------------------------------------------------------------------------------------------------- pooling


def test_pooling() -> None:
    blocks = X[:, :6].reshape(2, 3, 2, 3, 2, 4)
    close(nn.max_pool(X, (2, 2), (2, 2)), blocks.max((2, 4)))
    close(nn.min_pool(X, (2, 2), (2, 2)), blocks.min((2, 4)))
    close(nn.avg_pool(X, (2, 2), (2, 2)), blocks.mean((2, 4)))
    close(nn.max_pool(X[0], (7, 6))[0, 0], X[0].max((0, 1)))
    close(nn.avg_pool(np.ones((1, 3, 1)), (3,), padding="SAME"), np.array([[[2 / 3], [1], [2 / 3]]]))
    close(nn.avg_pool(np.ones((1, 3, 1)), (3,), padding="SAME", count_include_pad=False), np.ones((1, 3, 1)))
    assert nn.max_pool(np.arange(4, dtype=np.int8).reshape(1, 4, 1), (2,), (2,)).dtype == np.int8


@pytest.mark.parametrize(("dtype", "value", "n"), [("float16", 3.0, 100_000), ("float8_e4m3fn", 0.5, 300)])
@pytest.mark.parametrize("count_include_pad", [True, False])
def test_the_mean_of_a_window_whose_sum_the_dtype_does_not_hold(
    dtype: str, value: float, n: int, count_include_pad: bool
) -> None:
    x = fnp.full((1, n, 1), value).astype(dtype)
    have = nn.avg_pool(x, (n,), count_include_pad=count_include_pad)
    assert have.dtype == x.dtype
    assert float(have[0, 0, 0]) == value


def test_derivatives_of_pooling() -> None:
    for fn in (nn.max_pool, nn.min_pool, nn.avg_pool):
        wide = fnp.asarray(X[:1, :4, :4, :1].astype(np.float64))

        def loss(x: Array, fn: Callable[..., Array] = fn) -> Array:
            return fnp.square(fn(x, (3, 2), (1, 2), [(1, 1), (0, 0)])).sum()

        got, step = fx.grad(loss)(wide), 1e-6
        for at in np.ndindex(*wide.shape):
            off = np.zeros(wide.shape)
            off[at] = step
            want = (float(loss(wide + off)) - float(loss(wide - off))) / (2 * step)
            np.testing.assert_allclose(float(got[at]), want, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- messages

ERRORS: list[tuple[Callable[[], object], type[FxadError], str]] = [
    (
        lambda: lax.conv(X, W, (1, 1), "HALF"),
        ParameterError,
        "conv: padding 'HALF' is not one of SAME, SAME_LOWER, VALID",
    ),
    (
        lambda: lax.conv_general_dilated(X, W, (1, 1), [(0, 0)]),
        ParameterError,
        "conv_general_dilated: padding [(0, 0)] is not one (low, high) pair for each of 2 axes",
    ),
    (
        lambda: lax.conv_general_dilated(X, W, (1, 1), "SAME", (2, 1), dimension_numbers=NHWC),
        ParameterError,
        "conv_general_dilated: padding 'SAME' has no meaning with lhs_dilation (2, 1)",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2), None),
        ShapeError,
        "conv: lhs (1, 2, 3) and rhs (1, 2) must have one number of axes, at least 2",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), ("NCH", "OIH", "NHH")),
        ParameterError,
        "conv: 'NHH' does not name 3 axes, N and C among them, once each",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), ("NCH", "OIW", "NCH")),
        ParameterError,
        "conv: the spatial axes of 'NCH', 'OIW' and 'NCH' have different names",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), ("NCH", "OIH")),  # type: ignore[arg-type]
        ParameterError,
        "conv: dimension_numbers ('NCH', 'OIH') is not a triple of strings",
    ),
    (
        lambda: lax.conv_transpose(X, W, (2, 2), "FULL"),
        ParameterError,
        "conv_transpose: padding 'FULL' is not one of SAME, VALID",
    ),
    (
        lambda: lax.reduce((X, X), (0.0,), lax.add, (0,)),
        TreeError,
        "reduce: initial values differ in structure: (*,), operands (*, *)",
    ),
    (
        lambda: lax.reduce(X, np.zeros(1, np.float32), lax.add, (0,)),
        ShapeError,
        "reduce: initial value 0 is f32[1], not a single number",
    ),
    (
        lambda: lax.reduce((), (), lax.add, (0,)),
        ArgumentError,
        "reduce: takes at least one operand",
    ),
    (
        lambda: fx.trace(lambda x: lax.reduce(x, 0.0, lambda a, b: a + b * x[0, 0, 0, 0], (0,)), X),
        ArgumentError,
        "reduce: computation <lambda> closes over 1 arrays",
    ),
    (
        lambda: nn.max_pool(X[0, 0], (2, 2)),
        ShapeError,
        "max_pool: window (2, 2) and strides (1, 1) do not fit f32[6,4]",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_messages(call: Callable[[], object], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        call()
    assert e.value.message == message


def test_a_function_of_ones_own_has_no_derivative() -> None:
    def loss(x: Array) -> Array:
        return lax.reduce(x, 0.0, lambda a, b: a + b + 0 * a, (0,))

    with pytest.raises(
        NotDifferentiableError, match=r"^reduce: the derivative of a reduction by <lambda> is not known"
    ):
        fx.grad(loss)(fnp.ones(3))
