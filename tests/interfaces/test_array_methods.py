"""Methods that arrays share with NumPy and JAX: eager, traced, and refused where they need a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, AxisError, FxadError, ParameterError, ShapeError, TracerError

N = np.array([[3.26, 1.5], [2.5, 4.0]], np.float32)
METHODS: list[Callable[[Any], Any]] = [
    lambda x: x.cumsum(), lambda x: x.cumsum(1), lambda x: x.cumprod(0), lambda x: x.cumsum(dtype="float64"),
    lambda x: x.argsort(), lambda x: x.argsort(0), lambda x: x.diagonal(), lambda x: x.diagonal(1), lambda x: x.trace(),
    lambda x: x.trace(-1), lambda x: x.conjugate(), lambda x: x.round(1), lambda x: x.sum(0, "float64", None, True),
    lambda x: x.prod(1, None, None, True), lambda x: x.mean(0, "float64", None, True),
    lambda x: x.std(0, None, None, 1),
    lambda x: x.var(1, None, None, 1, True), lambda x: x.max(0, None, True), lambda x: x.min(None, None, True, 2.0),
    lambda x: x.any(0, keepdims=True), lambda x: x.all(1, keepdims=True), lambda x: x.argmax(0, None),
    lambda x: x.argmin(1, keepdims=True), lambda x: x.reshape(4, 1, order="F"), lambda x: x.reshape((-1,), order="F"),
    lambda x: x.ravel("F"), lambda x: x.flatten("F"), lambda x: x.astype("float64", copy=False),
    lambda x: x.ravel().searchsorted(2.0),
    lambda x: x.ravel().searchsorted(x, "right", np.array([1, 2, 0, 3])),
    lambda x: x.compress([False, True], 1), lambda x: x.compress([True, False, True]),
    lambda x: x.view("int32"), lambda x: x.view("int8"), lambda x: x.view("int8").view("float32"), lambda x: x.view(),
    lambda x: (x > 3).choose([x, 9]), lambda x: x.astype("int32").choose((x, -x), mode="wrap"),
    lambda x: x.repeat([1, 2], 0), lambda x: x.repeat(np.array([0, 3, 1, 2])), lambda x: x.repeat((2,), 1),
    lambda x: x.clip(min=2, max=3), lambda x: x.clip(max=2), lambda x: np.float32(1) * x.clip(3),
]  # fmt: skip


@pytest.mark.parametrize("to", ["bool", "int8", "float32", "int64", "complex64", "complex128"])
@pytest.mark.parametrize("have", ["bool", "uint8", "float16", "int32", "complex64", "complex128"])
def test_views_are_those_of_numpy(have: str, to: str) -> None:
    x = np.array([[0, 1, 0, 1, 1, 1, 0, 1] * 4, [1, 0] * 16]).astype(have)
    want = x.view(to)
    for out in (fnp.asarray(x).view(to), fx.jit(lambda v: v.view(to))(x)):
        assert np.asarray(out).dtype == to
        found, wanted = (a.view("uint8") if to != "bool" else a != 0 for a in (np.array(out), want))
        np.testing.assert_array_equal(found, wanted)
    assert fnp.asarray(x)[0, 0].view(have).shape == ()


def test_a_view_of_the_parts_of_complex_numbers_is_differentiated() -> None:
    z = np.array([1 + 2j, 3 - 1j], np.complex64)
    gradient = fx.grad(lambda z: fnp.sum(z.view("float32") ** 2))(z)
    np.testing.assert_array_equal(gradient, 2 * z.conj())


@pytest.mark.parametrize("k", range(len(METHODS)))
def test_methods(k: int) -> None:
    want = METHODS[k](N)
    for out in (METHODS[k](fnp.asarray(N)), fx.jit(METHODS[k])(N)):
        np.testing.assert_allclose(np.asarray(out), want, rtol=1e-6)
        assert out.dtype == want.dtype or want.dtype == np.int64  # indices are int32


def test_methods_that_jit_needs_a_size_for() -> None:
    x = fnp.asarray(N)
    assert [a.tolist() for a in (x > 3).nonzero()] == [a.tolist() for a in (N > 3).nonzero()]
    rows, columns = fx.jit(lambda x: (x > 2).nonzero(size=4, fill_value=-1))(x)
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 1, -1], [0, 0, 1, -1])
    assert sorted(x.argpartition(1, None).tolist()) == [0, 1, 2, 3]
    with pytest.raises(TracerError, match="has no value while the function is traced"):
        fx.jit(lambda x: x.nonzero())(x)


def test_a_number_chooses() -> None:
    assert fnp.choose(1, [N, 2 * N]).tolist() == (2 * N).tolist()
    assert fnp.asarray([0, 1]).choose([2.5, 1]).tolist() == [2.5, 1]
    chooses: tuple[Any, ...] = (fnp.choose, fx.Array.choose)
    for choose in chooses:
        with pytest.raises(ArgumentError) as e:
            choose(fnp.asarray([0, 1]), [1, [2]])
        assert e.value.message == "choose: argument 2: a list is not an array: [2]"


def test_ptp() -> None:
    np.testing.assert_allclose(np.asarray(fnp.asarray(N).ptp(0, None, True)), np.ptp(N, 0, keepdims=True))


UNHONOURED: list[tuple[Callable[[Any], Any], str, str]] = [
    (lambda x: x.sum(out=x), "sum: out is given, and arrays are immutable", "use the result"),
    (lambda x: fnp.median(x, overwrite_input=True), "median: overwrite_input is True, and arrays are immutable",
     "leave it out"),
    (lambda x: x.reshape(-1, order="A"), "reshape: order 'A'; arrays have no layout", 'use "C" or "F"'),
    (lambda x: fnp.asarray(x, order="F"), "asarray: order 'F'; arrays have no layout", "leave it out"),
    (lambda x: fx.jit(lambda y: y).lower(x).as_text("mhlo"), "as_text of <lambda>: dialect 'mhlo'",
     'use "stablehlo" or "hlo"; compile().as_text() is the HLO that XLA has optimised'),
    (lambda x: fx.jit(lambda y: y).lower(x).as_text(debug_info=True),
     "as_text of <lambda>: debug_info is True, and the text has no locations",
     "leave it out; errors and profiles name the lines"),
    (lambda x: x[:, :1].astype("int8").view("int16"), "view: i8[2,1] has no last axis of whole elements of i16",
     "lax.bitcast_convert_type adds an axis"),
    (lambda x: x.nonzero(fill_value=(1, 2, 3)), "nonzero: fill_value has 3 numbers for 2 axes",
     "give one, or one for each axis"),
    (lambda x: x.choose([]), "choose: there is no choice", "give at least one array"),
    (lambda x: x.choose([x], mode="fill"), "choose: mode 'fill' is not one of raise, clip, wrap", "choose one of them"),
    (lambda x: fx.jit(lambda i: i.choose([x], mode="raise"))(0),
     "choose: mode 'raise' checks indices, and index array 0 is traced",
     "a traced program cannot raise: choose 'clip' or 'wrap'"),
    (lambda x: fnp.asarray([0, 1]).choose([x]), "choose: index 1 of index array 0 is out of range for size 1",
     "choose mode='clip' or 'wrap'"),
    (lambda x: fnp.asarray(1).nonzero(), "nonzero: takes an array with at least one axis", "use x != 0"),
    (lambda x: fnp.unique(x[:0], axis=0, size=2), "unique: takes slices along axis 0 of f32[0,2]",
     "give slices that are not empty"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(UNHONOURED)))
def test_arguments_without_support_are_refused(k: int) -> None:
    call, message, remedy = UNHONOURED[k]
    with pytest.raises((AxisError, ParameterError, ShapeError)) as e:
        call(fnp.asarray(N))
    assert (e.value.message, e.value.remedy) == (message, remedy)


FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    lambda m, x: m.sum(a=x, axis=0, keepdims=True), lambda m, x: m.max(x, 0, None, True),
    lambda m, x: m.reshape(x, (1, 4), order="F"), lambda m, x: m.ravel(x, "F"),
    lambda m, x: m.linspace(0.0, 1.0, 5, False, True)[1], lambda m, x: m.angle(x + 1j * x, True),
    lambda m, x: m.meshgrid(x[0], x[1], sparse=True)[0], lambda m, x: m.array(x, None, ndmin=3),
    lambda m, x: m.vstack(tup=(x, x), dtype="float64"), lambda m, x: m.hstack((x, x), dtype="float64"),
    lambda m, x: m.trace(x, 0, 0, 1, "float64"), lambda m, x: m.nan_to_num(x, True, 1.0),
    lambda m, x: m.tensordot(a=x, b=x, axes=1), lambda m, x: m.inner(x, x), lambda m, x: m.outer(a=x, b=x),
    lambda m, x: m.average(a=x, axis=0, weights=x), lambda m, x: m.pad(array=x, pad_width=1),
    lambda m, x: m.take(x, np.array([1]), 0, None, "clip"), lambda m, x: m.isin(x, x[0], False, True),
    lambda m, x: m.median(x, 0, None, False, True), lambda m, x: m.quantile(x, 0.5, 0, None, False, "lower", True),
    lambda m, x: m.unique(m.stack([x[0], x[1], x[0]]), True, True, True, 0)[0],
    lambda m, x: m.unique(m.stack([x[0], x[1], x[0]]), True, True, True, 0)[1].astype("int32"),
    lambda m, x: m.unique(m.stack([x[0], x[1], x[0]], 1), True, True, True, axis=1)[2].reshape(-1).astype("int32"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(FUNCTIONS)))
def test_functions_take_the_arguments_of_numpy(k: int) -> None:
    np.testing.assert_allclose(np.asarray(FUNCTIONS[k](fnp, fnp.asarray(N))), FUNCTIONS[k](np, N), rtol=1e-6)


def test_slices_of_a_known_number() -> None:
    x = fnp.asarray([[1.0, 2.0], [0.0, 3.0], [1.0, 2.0], [np.nan, 0.0], [np.nan, 0.0]])
    rows, first, inverse, counts = fx.jit(lambda x: fnp.unique(x, True, True, True, 0, size=4, fill_value=-1))(x)
    np.testing.assert_array_equal(np.asarray(rows), [[0, 3], [1, 2], [np.nan, 0], [-1, -1]])
    assert [np.asarray(v).tolist() for v in (first, inverse, counts)] == [[1, 0, 3, 1], [1, 0, 1, 2, 2], [1, 2, 2, 0]]
    columns = fnp.unique(x.T, axis=-1, size=4, fill_value=-1)
    np.testing.assert_array_equal(np.asarray(columns), np.asarray(rows).T)


def test_sort_gives_a_new_array() -> None:
    x = fnp.asarray(N)
    assert np.array_equal(np.asarray(x.sort()), np.sort(N))
    assert np.array_equal(np.asarray(x.sort(None, descending=True)), np.sort(N, None)[::-1])
    assert np.array_equal(np.asarray(x), N)


def test_round() -> None:
    x = fnp.asarray(N)
    assert np.array_equal(np.asarray(round(x)), np.round(N))
    assert np.array_equal(np.asarray(fx.jit(lambda x: round(x, 1))(x)), np.asarray(x.round(1)))


def test_memory() -> None:
    x = fnp.asarray(N) + 0
    assert x.tobytes() == N.tobytes()
    assert x.tobytes("F") == N.tobytes("F")
    assert x.devices() == {x.device}
    assert x.block_until_ready().is_ready()
    assert not x.is_deleted()
    x.delete()
    assert x.is_deleted()


REFUSED = {
    "tobytes": "return the array and call tobytes() on the result",
    "devices": "look at the devices of the arguments, before the function is traced",
    "is_ready": "ask the result of the program",
    "delete": "delete the argument after the call, or donate it",
}


@pytest.mark.parametrize("name", [*REFUSED, "sharding"])
def test_a_tracer_has_no_value(name: str) -> None:
    def f(x: Any) -> Any:
        assert not x.is_deleted()
        found = getattr(x, name)
        return found if name == "sharding" else found()

    with pytest.raises(TracerError) as e:
        fx.trace(f, fx.Spec((2,)))
    assert e.value.message == f"{name}: Tracer<f32[2]> of f has no value while the function is traced"
    remedy = "look at the sharding of the arguments, before the function is traced"
    assert e.value.remedy == REFUSED.get(name, remedy)


def test_a_tracer_has_no_property_of_values() -> None:
    """Code that asks whether an array is divided over devices runs under a transformation too."""
    found: list[Any] = []

    def f(x: Any) -> Any:
        found.extend([hasattr(x, "sharding"), getattr(x, "sharding", None), hasattr(x, "addressable_shards")])
        return x

    fx.trace(f, fx.Spec((2,)))
    assert found == [False, None, False]


def test_a_number_has_no_axes_where_axes_have_a_meaning() -> None:
    """In a traced program too, where a number is a literal with the shape of the other operand."""
    x, m = np.arange(1, 4, dtype=np.float32), np.eye(3, dtype=np.float32)
    functions: list[Any] = [
        lambda x: fnp.dot(x, 2),
        lambda x: fnp.dot(2.5, x, precision="highest"),
        lambda x: x.dot(2),
        lambda x: fnp.einsum("i,->i", x, 2),
        lambda x: x.searchsorted(2.5),
        lambda x: fnp.searchsorted(x, 2),
    ]
    for f in functions:
        wanted = f(fnp.asarray(x))
        for y in (fx.jit(f)(x), fx.vmap(f)(x[None])[0]):
            assert (y.shape, y.tolist()) == (wanted.shape, wanted.tolist())
    refused: list[Any] = [
        lambda m: m @ 2,
        lambda m: fnp.vecdot(2, m),
        lambda m: fnp.linalg.solve(m, 2),
        lambda m: fnp.linalg.solve(2, m),
        lambda m: fnp.cross(m, 2),
        lambda m: fx.scipy.linalg.solve_triangular(m, 2),
        lambda m: fx.scipy.linalg.cho_solve((m, True), 2),
        lambda m: lax.dynamic_update_slice(m, 2.0, (0, 0)),
    ]
    for f in refused:
        with pytest.raises(FxadError):
            f(fnp.asarray(m))
        with pytest.raises(FxadError):
            fx.trace(f, m)


def test_choices_conditions_and_places_that_are_none() -> None:
    x = fnp.arange(3)
    cases: list[tuple[Any, str]] = [
        (lambda: x.choose(cast("Any", 5)), "choose: choices must be a sequence, got an int: 5"),
        (lambda: x.compress(cast("Any", "ab")), "compress: 'ab' is not a condition with one axis"),
        (
            lambda: x.compress(np.ones((1, 2), bool)),
            "compress: array([[ True,  True]]) is not a condition with one axis",
        ),
    ]
    for case, message in cases:
        with pytest.raises(FxadError) as e:
            case()
        assert e.value.message == message
    assert x.argpartition(cast("Any", np.array([0, 2]))).tolist() == [0, 1, 2]
