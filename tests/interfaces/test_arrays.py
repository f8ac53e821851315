"""Methods and operators of arrays; errors of `fxad.numpy` name the functions that users call."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, AxisError, DTypeError, FxadError, ParameterError, ShapeError, TracerError
from fxad.tracing.array import Array
from tests.interfaces.oracle import check, close, names, traced

X = np.random.default_rng(5).standard_normal((2, 3, 4)).astype(np.float32)
C = (X[0] + 1j * X[1]).astype(np.complex64)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(),
        lambda x: x.sum(axis=(0, -1), keepdims=True),
        lambda x: x.prod(1),
        lambda x: x.mean(-1),
        lambda x: x.var(0),
        lambda x: x.std(),
        lambda x: x.max(0),
        lambda x: x.min(),
        lambda x: (x > 0).any(0),
        lambda x: (x > -9).all(),
        lambda x: x.reshape(6, 4),
        lambda x: x.reshape((-1, 2)),
        lambda x: x.reshape(-1),
        lambda x: x.ravel(),
        lambda x: x.flatten(),
        lambda x: x[:, :1].squeeze(),
        lambda x: x[:, :1].squeeze(1),
        lambda x: x.transpose(),
        lambda x: x.transpose(1, 0, 2),
        lambda x: x.transpose((1, 2, 0)),
        lambda x: x.T,
        lambda x: x.mT,
        lambda x: x.swapaxes(0, 2),
        lambda x: x.astype("int32"),
        lambda x: x.copy(),
        lambda x: x.real,
        lambda x: x.imag,
        lambda x: x.conj(),
        lambda x: x.round(1),
        lambda x: x.clip(-1, 1),
        lambda x: x.dot(x[0, 0]),
        lambda x: x.repeat(2, 1),
    ],
)
def test_methods(fn: Callable[..., object]) -> None:
    check(fn, fn, X)


def test_complex_methods() -> None:
    for fn in (lambda x: x.real, lambda x: x.imag, lambda x: x.conj(), lambda x: x.mean(0)):
        check(fn, fn, C)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places(name: str) -> None:
    check(lambda x: getattr(x, name)(1), lambda x: getattr(x, name)(1).astype(np.int32), X)


def test_operators() -> None:
    for fn in (
        lambda x, y: x @ y.mT,
        lambda x, y: x / 2 + y**2 - 1,
        lambda x, y: (x > y) & ~(x < 0),
        lambda x, y: abs(-x) % 0.5 // 0.2,
        lambda x, y: 2**x,
        lambda x, y: 1 - x,
    ):
        check(fn, fn, X, X[::-1].copy())
    bits = np.array([1, 200], np.uint8)
    check(lambda x: x >> 1, lambda x: x >> 1, bits)
    check(lambda x: x << 1 ^ 3 | x, lambda x: x << 1 ^ 3 | x, bits)


def test_numpy_arrays_on_the_left() -> None:
    x = fnp.asarray(X)
    out: Any = X + x  # to NumPy's types, an array of NumPy
    assert isinstance(out, Array)
    close(out, X + X)
    close(X[0] @ x.mT[0], X[0] @ X[0].T)


def test_a_mean_is_two_equations() -> None:
    assert names(lambda x: x.mean(0), X) == ["reduce_sum", "div"]
    assert names(lambda x: x - x.mean(-1, keepdims=True), X) == [
        "reduce_sum",
        "div",
        "reshape",
        "broadcast_in_dim",
        "sub",
    ]


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda x: fnp.sum(x, axis=3), AxisError, "sum: axis 3 is out of range for an array with 3 axes"),
        (lambda x: x.max(-4), AxisError, "max: axis -4 is out of range for an array with 3 axes"),
        (
            lambda x: fnp.mean(x, (0, -3)),
            AxisError,
            "mean: axes (0, -3) of an array with 3 axes name one axis twice",
        ),
        (lambda x: fnp.sum(x, axis=1.0), ArgumentError, "sum: axis must be an integer, got float 1.0"),  # type: ignore[arg-type]
        (lambda x: x[:, :0].max(1), ShapeError, "max: axis 1 of f32[2,0,4] is empty and has no max"),
        (lambda x: x.argmax(5), AxisError, "argmax: axis 5 is out of range for an array with 3 axes"),
        (
            lambda x: x.reshape(5, -1),
            ShapeError,
            "reshape: f32[2,3,4] has 24 elements, which do not fill shape (5, -1)",
        ),
        (lambda x: x.reshape("a"), ArgumentError, "reshape: shape 'a' is not made of integers"),
        (lambda x: x.transpose(0, 1.5, 2), ArgumentError, "transpose: axes (0, 1.5, 2) is not made of integers"),
        (
            lambda x: fx.lax.transpose(x, [0, 1.5, 2]),  # type: ignore[list-item]
            ArgumentError,
            "transpose: permutation [0, 1.5, 2] is not made of integers",
        ),
        (lambda x: fnp.fft.fft(x, axis=1.5), ArgumentError, "fft: axis (1.5,) is not made of integers"),  # type: ignore[arg-type]
        (lambda x: fx.lax.reduce_sum(x, "a"), ArgumentError, "reduce_sum: axes 'a' is not made of integers"),  # type: ignore[arg-type]
        (lambda x: x.take(0, axis=3), AxisError, "take: axis 3 is out of range for an array with 3 axes"),
        (
            lambda x: fx.jit(lambda counts: x.repeat(counts, 0))(np.array([1, 2])),
            TracerError,
            "repeat: the size of the result depends on the counts, which a traced function does not have",
        ),
        (lambda _: fnp.eye(3.0), ArgumentError, "eye: N must be an integer, got a float: 3.0"),  # type: ignore[arg-type]
        (
            lambda x: x.repeat([1, -1], 0),
            ParameterError,
            "repeat: counts [1, -1] must be integers that are not negative, one or 2 of them",
        ),
        (
            lambda x: fnp.broadcast_to(x, (3, 4, 2)),
            ShapeError,
            "broadcast_to: f32[2,3,4] does not broadcast to (3, 4, 2)",
        ),
        (lambda x: fnp.squeeze(x, 0), ShapeError, "squeeze: axis 0 of f32[2,3,4] has size 2, not 1"),
        (
            lambda x: x @ x,
            ShapeError,
            "matmul: contracting sizes differ: lhs dim 2 has 4, rhs dim 1 has 3: f32[2,3,4] and f32[2,3,4]",
        ),
        (
            lambda x: fnp.concat([x, x[0]]),
            ShapeError,
            "concatenate: ranks must be equal and not 0: array 0 f32[2,3,4], array 1 f32[3,4]",
        ),
        (
            lambda x: fnp.stack([x, x[:1]]),
            ShapeError,
            "stack: shapes differ: array 0 f32[2,3,4], array 1 f32[1,3,4]",
        ),
        (lambda x: fnp.stack([]), ArgumentError, "stack: takes at least one array, got none"),
        (
            lambda x: fnp.split(x, 3, -1),
            ShapeError,
            "split: axis -1 of size 4 does not divide into 3 equal parts",
        ),
        (lambda x: fnp.pad(x, 1, "side"), ParameterError, "pad: mode 'side' is not one of fxad's"),
        (lambda x: -(x > 0), DTypeError, "negative: takes numbers, got bool"),
        (
            lambda x: fnp.einsum("ij,jk->ik", x),
            ParameterError,
            "einsum: 'ij,jk->ik' is for 2 operands, got 1",
        ),
        (lambda x: fnp.einsum("ij->i", x), ShapeError, "einsum: 'ij' does not fit operand 0 of shape (2, 3, 4)"),
        (
            lambda x: fnp.einsum("ijk->il", x),
            ParameterError,
            "einsum: 'ijk->il': the result has label 'l' and no operand has it",
        ),
        (
            lambda x: fnp.einsum("ijk,ijl->k", x, x[:, :2]),
            ShapeError,
            "einsum: sizes differ: axis 'j' has 2 in operand 1, f32[2,2,4], and 3 in one before",
        ),
        (lambda x: fnp.einsum("i1k->", x), ParameterError, "einsum: 'i1k->' does not parse at 'i1k'"),
        (lambda x: fnp.asarray([[1], [2, 3]]), ArgumentError, "asarray: the rows of nested lists must have one length"),
        # regression: NumPy's error, a number, or the message above
        (
            lambda x: fnp.asarray(cast("Any", [1, object]), "int8"),
            ArgumentError,
            "asarray: an element: a type is not an array: <class 'object'>",
        ),
        (lambda x: fnp.asarray(["1.5"], "float32"), ArgumentError, "asarray: an element: a str is not an array: '1.5'"),
        (
            lambda x: fnp.asarray(cast("Any", [1, None]), "float32"),
            ArgumentError,
            "asarray: an element: a NoneType is not an array: None",
        ),
        (
            lambda x: fnp.asarray([[1.0], [float("nan")]], "int32"),
            DTypeError,
            "asarray: cannot convert float NaN to integer: int32 cannot hold it",
        ),
        (lambda x: fnp.asarray(2**40), DTypeError, "asarray: argument 0: 1099511627776 does not fit in int32"),
        (lambda x: fnp.arange(0, 5, 0), ParameterError, "arange: step is 0"),
        (
            lambda x: fnp.arange(x[0, 0, 0]),
            ArgumentError,
            "arange: argument 1 must be a number, got Tracer",
        ),
        (lambda x: fnp.tril(x[0, 0]), ShapeError, "tril: takes an array with at least two axes, got f32[4]"),
    ],
)
def test_errors(fn: Callable[..., object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as e:
        traced(fn, X)
    assert str(e.value).splitlines()[0] == message


def test_errors_name_the_users_line() -> None:
    """Errors of equations, and errors that are raised before there is an equation."""
    for fn in (
        lambda x: fnp.sum(x, axis=3),
        lambda x: x[5],
        lambda x: fnp.sin("a"),  # type: ignore[arg-type]
        lambda x: fnp.einsum("i1", x),
    ):
        with pytest.raises(FxadError) as e:
            traced(fn, X)
        assert "test_arrays.py" in e.value.where
        assert e.value.where.endswith("in test_errors_name_the_users_line.<locals>.<lambda>")


@pytest.mark.parametrize("wrong", ["a", [1.0], None, object], ids=str)
def test_objects_that_are_no_arrays(wrong: object) -> None:
    kind = type(wrong).__qualname__
    for fn, message in [
        (lambda x: fnp.sin(wrong), f"sin: argument 0: a {kind} is not an array: "),  # type: ignore[arg-type]
        (lambda x: fnp.subtract(x, wrong), f"subtract: argument 1: a {kind} is not an array: "),  # type: ignore[arg-type]
        (lambda x: fnp.sum(wrong), f"sum: argument 0: a {kind} is not an array: "),  # type: ignore[arg-type]
        (lambda x: fnp.einsum("i,i", x[0, 0], wrong), f"einsum: argument 2: a {kind} is not an array: "),  # type: ignore[arg-type]
        (lambda x: fnp.concat([x, wrong]), f"concat: argument 1: a {kind} is not an array: "),  # type: ignore[list-item]
    ]:
        for run in (lambda f=fn: traced(f, X), lambda f=fn: f(fnp.asarray(X))):
            with pytest.raises(ArgumentError) as e:
                run()
            assert str(e.value).startswith(message)


class Converts:
    """A parameter of another library, that stands for an array."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __jax_array__(self) -> Any:
        return self.value


class Exports:
    """An image of another library."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        if self.value is None:
            raise RuntimeError("no image")
        return self.value


def test_objects_that_stand_for_arrays() -> None:
    def f(x: Any) -> Any:
        p = Converts(x)
        return fnp.sum(fnp.sin(p) + x * p + p * x + fnp.asarray(p, "float32") - fnp.concat([p, x[:0]]))  # type: ignore[arg-type,list-item]

    x = np.arange(3, dtype=np.float32)
    for run in (f, fx.jit(f)):
        assert np.allclose(fx.grad(run)(x), np.cos(x) + 4 * x)
    assert fnp.asarray(Converts(fnp.ones(2))).tolist() == [1, 1]  # type: ignore[arg-type]
    made: Any = fnp.asarray
    close(made(Exports(np.arange(3.0))), np.arange(3.0))
    close(made(Exports(np.arange(3.0)), "int8"), np.arange(3, dtype=np.int8))
    close(made(array("h", [1, 2])), np.array([1, 2], np.int16))
    close(made(bytearray(b"ab")), np.array([97, 98], np.uint8))
    with pytest.raises(ArgumentError, match="asarray: the __array__ of an Exports raises RuntimeError: no image"):
        made(Exports(None))
    for text in (b"ab", "ab"):
        with pytest.raises(ArgumentError, match="is not an array"):
            made(text)


def test_lists_and_types_where_numpy_and_jax_take_them() -> None:
    assert fnp.array_equal([1, 2], [1.0, 2.0])
    assert not fnp.array_equal([1, 2], [1])
    assert fnp.array_equiv([1, 1], 1)
    assert fnp.iscomplexobj([1, 1j])
    spec = fx.Spec((2,), "int8")
    close(fnp.zeros_like(spec), np.zeros(2, np.int8))
    close(fnp.full_like(SimpleNamespace(shape=(2,), dtype=np.dtype("int8")), 3), np.full(2, 3, np.int8))  # type: ignore[arg-type]


def test_numpy_of_a_tracer() -> None:
    with pytest.raises(TracerError, match=r"^numpy: Tracer<f32\[2,3,4\]> of f has no value(.|\n)*fxad.numpy"):
        traced(lambda x: np.sin(np.asarray(x)), X)


class Wrapper:
    """An array in an object, by JAX's protocol."""

    def __jax_array__(self) -> fx.Array:
        return fnp.arange(3.0)


def test_objects_that_contain_an_array_by_jax_s_protocol() -> None:
    w: Any = Wrapper()
    one = fnp.ones(3)
    cases: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda x: x + w, [1, 2, 3]),
        (lambda x: w - x, [-1, 0, 1]),
        (lambda x: x @ w, 3),
        (lambda x: w < x, [True, False, False]),
        (lambda x: x == w, [False, True, False]),
        (lambda x: fnp.add(w, x), [1, 2, 3]),
        (lambda x: fnp.sum(w) * x, [3, 3, 3]),
        (lambda x: fx.lax.neg(w) * x, [0, -1, -2]),
        (lambda x: fnp.asarray(w) * x, [0, 1, 2]),
        (lambda x: fnp.asarray([w, x]), [[0, 1, 2], [1, 1, 1]]),
        (lambda x: x.at[:].set(w), [0, 1, 2]),
        (fx.grad(lambda x: (x * w).sum()), [0, 1, 2]),
    ]
    for f, wanted in cases:
        np.testing.assert_array_equal(np.asarray(f(one)), wanted)
        np.testing.assert_array_equal(np.asarray(fx.jit(f)(one)), wanted)
    assert (fnp.shape(w), fnp.ndim(w), fnp.size(w), fnp.result_type(w, 1).name) == ((3,), 1, 3, "float32")
    assert (fnp.isscalar(w), fnp.isscalar(Converts(fnp.ones(()))), fnp.iscomplexobj(w)) == (False, True, False)
