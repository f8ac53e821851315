"""The laws of scatter_mul, scatter_min and scatter_max in every mode, their values at the edges, and their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.errors import DTypeError, FxadError, NotDifferentiableError, ParameterError, ShapeError
from fxad.ir import Aval, NDArray, Primitive
from fxad.primitives.dimension_numbers import MODES, GatherScatterMode
from fxad.primitives.gather_scatter import Scatter, ScatterMax, ScatterMin, ScatterMul
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.vmap import vmap
from tests.primitives.harness import avals_of, check, eqns, floats, program, same, xla

Axes = tuple[int, ...]
Kind = type[ScatterMul | ScatterMin | ScatterMax]

ROWS = ((1,), (0,), (), (), (0,))
WINDOWS = ((0, 2), (1,), (), (), (1, 0))
PAIRED = ((1,), (), (0,), (0,), (1,))
VECTOR: tuple[Axes, Axes, Axes, Axes, Axes] = ((), (0,), (), (), (0,))
NOWHERE: tuple[Axes, Axes, Axes, Axes, Axes] = ((), (), (), (), ())

kinds = pytest.mark.parametrize("kind", [ScatterMul, ScatterMin, ScatterMax])


def places(mode: GatherScatterMode, *shape: int) -> NDArray:
    """Returns indices for axes of size 3 or more. Some are out of range, where the mode defines that."""
    lo, hi = (0, 2) if mode == "promise_in_bounds" else (-2, 6)
    return np.random.default_rng(sum(shape)).integers(lo, hi, shape).astype(np.int32)


@pytest.mark.parametrize(
    ("mode", "numbers", "x", "at", "u"),
    [
        ("drop", ROWS, (4, 3), (5, 1), (5, 3)),
        ("clip", WINDOWS, (4, 3, 3), (5, 2), (2, 5, 2)),
        ("promise_in_bounds", PAIRED, (4, 3), (4, 1), (4, 2)),
    ],
    ids=MODES,
)
@kinds
def test_laws(
    kind: Kind, mode: GatherScatterMode, numbers: tuple[Axes, Axes, Axes, Axes, Axes], x: Axes, at: Axes, u: Axes
) -> None:
    """Indices repeat. The product then has no derivative with respect to the updates."""
    smooth = kind is not ScatterMul
    check(kind(*numbers, mode, False, False), floats(*x), places(mode, *at), floats(*u), differentiate=smooth)


@kinds
def test_unique_indices(kind: Kind) -> None:
    at = np.array([[2], [0], [9]], np.int32)
    check(kind(*VECTOR, "drop", False, True), floats(4), at, floats(3))


@kinds
def test_updates_without_elements(kind: Kind) -> None:
    check(kind(*NOWHERE, "clip", False, True), floats(), np.zeros(0, np.int32), floats(1)[0], batching=False)
    check(kind(*VECTOR, "drop", False, True), floats(4), np.zeros((0, 1), np.int32), floats(0), batching=False)
    check(kind(*VECTOR, "drop", False, True), floats(0), np.zeros((3, 1), np.int32), floats(3), batching=False)


AT = np.array([[0], [0], [2]], np.int32)


@pytest.mark.parametrize(
    ("kind", "x", "updates", "want"),
    [
        (ScatterMax, [-0.0, 1.0, np.nan], [np.nan, 3.0, 5.0], [np.nan, 1.0, np.nan]),
        (ScatterMin, [np.inf, 1.0, -np.inf], [2.0, 3.0, np.nan], [2.0, 1.0, np.nan]),
        (ScatterMul, [2.0, 1.0, np.inf], [-0.0, 3.0, 0.0], [-0.0, 1.0, np.nan]),
    ],
)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
def test_special_values(kind: Kind, x: Any, updates: Any, want: Any, dtype: dtypes.DType) -> None:
    args = np.asarray(x, dtype), AT, np.asarray(updates, dtype)
    p = program(kind(*VECTOR, "drop", False, False), *[Aval(a.shape, a.dtype) for a in args])
    for (found,) in (run(p, args), xla(p, *args)):
        np.testing.assert_array_equal(found.astype(np.float64), want)


@kinds
def test_integers_and_bools(kind: Kind) -> None:
    prim, ufunc = kind(*VECTOR, "drop", True, False), {ScatterMul: np.multiply, ScatterMin: np.minimum}
    for dtype in (np.int8, np.uint8, np.int64, np.bool_):
        if dtype is np.bool_ and kind is ScatterMul:
            continue
        x, u = np.array([100, 0, 1]).astype(dtype), np.array([2, 1, 0]).astype(dtype)
        want = x.copy()
        ufunc.get(kind, np.maximum).at(want, AT[:, 0], u)
        check(prim, x, AT, u, batching=False)
        np.testing.assert_array_equal(prim.impl(x, AT, u)[0], want)


def test_low_precision_rounds_once() -> None:
    x, u = np.ones(1, dtypes.bfloat16), np.full(100, 1.0078125, dtypes.bfloat16)
    (out,) = ScatterMul(*VECTOR, "drop", False, False).impl(x, np.zeros((100, 1), np.int32), u)
    assert out[0] == np.asarray(1.0078125**100, dtypes.bfloat16)


def test_ties_share_the_tangent() -> None:
    """As in JAX: all elements that equal the extremum share the tangent equally, the original element included."""
    jax = pytest.importorskip("jax")
    x, u = np.array([1.0, 5, 7], np.float32), np.array([1.0, 1, 7, 2], np.float32)
    at = np.array([[0], [0], [2], [1]], np.int32)
    for kind, name in ((ScatterMax, "max"), (ScatterMin, "min")):
        p = program(kind(*VECTOR, "drop", False, False), *[Aval(a.shape, a.dtype) for a in (x, at, u)])
        forward, _ = jvp(p, (True, False, True))
        dx, du = np.array([1.0, 10, 100], np.float32), np.array([2.0, 4, 8, 16], np.float32)
        theirs = jax.jvp(lambda x, u, n=name: getattr(x.at[at[:, 0]], n)(u), (x, u), (dx, du))[1]
        same((run(forward, [x, at, u, dx, du])[1],), (np.asarray(theirs),))


@pytest.mark.parametrize("kind", [ScatterMax, ScatterMin])
def test_ties_are_counted_beyond_the_dtype(kind: Kind) -> None:
    """Regression: bfloat16 counts to 256, so the tangents of 3,000 equal updates summed to 12 times their mean."""
    u = np.zeros(3000, dtypes.bfloat16)
    x, at = np.full(1, -1 if kind is ScatterMax else 1, u.dtype), np.zeros((3000, 1), np.int32)
    p = program(kind(*VECTOR, "drop", False, False), *avals_of(x, at, u))
    forward, _ = jvp(p, (False, False, True))
    for result in (run(forward, (x, at, u, u + 1)), xla(forward, x, at, u, u + 1)):
        np.testing.assert_allclose(np.float64(result[1]), 1.0, rtol=2e-2)


def test_batching_is_one_scatter() -> None:
    avals = Aval((4, 3), "float32"), Aval((5, 1), "int32"), Aval((5, 3), "float32")
    for kind in (ScatterMul, ScatterMin, ScatterMax, Scatter):
        p = program(kind(*ROWS, "drop", False, False), *avals)
        assert eqns(vmap(p, 4, (0, 0, 0))[0]) == [kind.name]


def test_second_order() -> None:
    """The product of the original element and an update has a mixed second derivative."""
    prim = ScatterMul(*VECTOR, "drop", False, True)
    x, at, u = floats(3), np.array([[1]], np.int32), floats(1)
    p = program(prim, *[Aval(a.shape, a.dtype) for a in (x, at, u)])
    first, _ = jvp(p, (True, False, True))
    second, _ = jvp(first, (True, False, True, False, False))
    dx, du = np.array([0.0, 1, 0]), np.ones(1)
    found = run(second, [x, at, u, dx, 0 * du, 0 * dx, du])[-1]
    same((found,), (np.array([0.0, 1, 0]),))


def test_a_product_of_updates_with_repeated_indices_has_no_derivative() -> None:
    p = program(ScatterMul(*VECTOR, "drop", False, False), F, I, F)
    with pytest.raises(NotDifferentiableError) as e:
        jvp(p, (False, False, True))
    assert e.value.message == (
        "scatter_mul: updates may meet in one place, where the derivative in one is the product of the others"
    )
    assert e.value.remedy == "say unique_indices=True if no two updates meet"
    assert jvp(p, (True, False, False))[1] == (True,)


F, I = Aval((3,), "float32"), Aval((3, 1), "int32")

ERRORS: list[tuple[Primitive, tuple[Aval, ...], type[FxadError], str]] = [
    (
        ScatterMul(*VECTOR, "drop", False, False),
        (F, F, F),
        DTypeError,
        "scatter_mul: indices must be integers, got f32[3]",
    ),
    (
        ScatterMul(*VECTOR, "fill", False, False),  # type: ignore[arg-type]  # no word that it takes
        (F, I, F),
        ParameterError,
        "scatter_mul: mode 'fill' is not one of clip, drop, promise_in_bounds",
    ),
    (
        ScatterMin(*VECTOR, "drop", False, False),
        (F.with_dtype("complex64"), I, F.with_dtype("complex64")),
        DTypeError,
        "scatter_min: is not defined for c64[3]",
    ),
    (
        ScatterMul(*VECTOR, "drop", False, False),
        (F.with_dtype("bool"), I, F.with_dtype("bool")),
        DTypeError,
        "scatter_mul: is not defined for bool[3]",
    ),
    (
        ScatterMax(*VECTOR, "drop", False, False),
        (F, I, F.with_dtype("int32")),
        DTypeError,
        "scatter_max: dtypes differ: operand f32[3], updates i32[3]",
    ),
    (
        ScatterMax(*VECTOR, "drop", False, False),
        (F, I, Aval((2,), "float32")),
        ShapeError,
        "scatter_max: shapes differ: updates f32[2], indices i32[3,1] ask for (3,)",
    ),
]


@pytest.mark.parametrize(("prim", "avals", "kind", "message"), ERRORS)
def test_messages(prim: Primitive, avals: tuple[Aval, ...], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        prim.abstract_eval(*avals)
    assert e.value.message == message
