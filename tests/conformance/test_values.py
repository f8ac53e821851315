"""Every function of the standard computes the result of NumPy, eagerly and in a compiled program.

A case is a function of a namespace (NumPy's or fxad's) and of arrays. One program evaluates all elementwise functions
of a dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.tracing.array import Array
from tests.conformance.standard import FUNCTIONS, KINDS, Function, group
from tests.interfaces.oracle import close

Values = npt.NDArray[Any]
Case = Callable[..., Any]


def numbers(dtype: str, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> Values:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(0 if dtype.startswith("u") else -9, 10, shape).astype(dtype)
    x = rng.normal(size=shape) * 2
    return (x + 1j * rng.normal(size=shape) if dtype.startswith("c") else x).astype(dtype)


# -------------------------------------------------------------------------------------------------------- elementwise

# Maps numbers into the domain of functions that are not defined everywhere.
_INTO: dict[str, Callable[[Values], Any]] = {
    "acos": lambda x: x / 10,
    "asin": lambda x: x / 10,
    "atanh": lambda x: x / 10,
    "acosh": lambda x: x if x.dtype.kind == "c" else 1 + abs(x),
    "log": lambda x: x if x.dtype.kind == "c" else abs(x) + x.dtype.type(0.1),
    "sqrt": lambda x: x if x.dtype.kind == "c" else abs(x),
}
_INTO |= {"log1p": _INTO["log"], "log2": _INTO["log"], "log10": _INTO["log"]}


def operands(f: Function, dtype: str, shape: tuple[int, ...] = (3, 4)) -> list[Values]:
    if f.group == "unary":
        x = numbers(dtype, shape)
        return [_INTO[f.name](x) if f.name in _INTO else x]
    x, y = numbers(dtype, shape), numbers(dtype, shape, 1)
    if f.name in {"floor_divide", "remainder"}:
        y = np.where(y == 0, np.ones_like(y), y)
    if "shift" in f.name:
        y = abs(y) % 7
    if f.name == "pow":
        y = abs(y) % 4 if "int" in dtype else y
        x = x if "int" in dtype or x.dtype.kind == "c" else abs(x)
    return [x, y]


ELEMENTWISE = {f.name: f for f in group("unary", "binary")}
EACH = [(name, dtype) for name, f in ELEMENTWISE.items() for dtype in KINDS[f.kind]]


@cache
def results(dtype: str) -> dict[str, tuple[Values, Values]]:
    """Returns, for each function, its results in a program, and in a program with the function mapped over the first
    axis."""
    inputs: dict[str, Any] = {name: operands(f, dtype) for name, f in ELEMENTWISE.items() if dtype in KINDS[f.kind]}

    def program(columns: dict[str, list[Array]]) -> dict[str, tuple[Array, Array]]:
        functions = {name: getattr(fnp, name) for name in columns}
        return {name: (f(*columns[name]), fx.vmap(f)(*columns[name])) for name, f in functions.items()}

    return {n: (np.asarray(y), np.asarray(z)) for n, (y, z) in fx.jit(program)(inputs).items()}


@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_elementwise(name: str, dtype: str) -> None:
    f = ELEMENTWISE[name]
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*operands(f, dtype))
    plain, mapped = results(dtype)[name]
    close(plain, want.astype(plain.dtype))
    np.testing.assert_array_equal(mapped, plain)


@pytest.mark.parametrize("f", ELEMENTWISE.values(), ids=lambda f: f.id)
def test_broadcasting(f: Function) -> None:
    """Eagerly, on arrays without axes, without elements, and of shapes that broadcast."""
    dtype = "float32" if "float32" in KINDS[f.kind] else KINDS[f.kind][-1]
    fn, theirs = getattr(fnp, f.name), getattr(np, f.name)
    for shapes in ([(), ()], [(2, 0), (2, 0)], [(3, 1), (4,)], [(2, 1, 3), ()]):
        args = [a.reshape(-1)[: int(np.prod(s))].reshape(s) for a, s in zip(operands(f, dtype), shapes, strict=False)]
        got = fn(*map(fnp.asarray, args))
        want = theirs(*args)
        assert got.shape == want.shape
        close(got, want.astype(np.asarray(got).dtype))


def test_sizes_that_do_not_broadcast() -> None:
    for f in group("binary"):
        dtype = KINDS[f.kind][-1]
        with pytest.raises(ValueError, match="axis -1 has sizes 2 and 3"):
            getattr(fnp, f.name)(fnp.zeros(2, dtype=dtype), fnp.zeros(3, dtype=dtype))


# ------------------------------------------------------------------------------------------------------ other functions

X = numbers("float32")
I = numbers("int32", seed=2)
B = numbers("bool", seed=3)
C = numbers("complex64", seed=4)
V = numbers("float32", (5,), 5)
W = numbers("float32", (2, 3, 4), 6)
Z = numbers("complex64", (2, 6), 7)
EMPTY = np.zeros((0, 3), np.float32)
NANS = np.array([1.0, np.nan, -2.0, np.nan], np.float32)
SORTED = np.sort(V)
SQUARE = numbers("float64", (2, 3, 3), 8) + 4 * np.eye(3)
DEFINITE = SQUARE @ np.swapaxes(SQUARE, -1, -2)
AXES: list[Any] = [None, 0, 1, -1]
PLACES = np.array([[0], [2], [-1]], np.int32)


def over(name: str, *arrays: Values, axes: Sequence[Any] = AXES, **more: Any) -> list[tuple[Case, tuple[Values, ...]]]:
    """Cases of a reduction over each axis, with and without `keepdims`."""
    cases: list[tuple[Case, tuple[Values, ...]]] = []
    for x in arrays:
        for axis in axes:
            cases.append((lambda m, x, a=axis: getattr(m, name)(x, axis=a, **more), (x,)))
            cases.append((lambda m, x, a=axis: getattr(m, name)(x, axis=a, keepdims=True, **more), (x,)))
    return cases


def of(*arrays: Values, cases: Sequence[Case]) -> list[tuple[Case, tuple[Values, ...]]]:
    return [(c, arrays) for c in cases]


TUPLES: list[Any] = [*AXES, (0, 1), ()]

VALUES: dict[str, list[tuple[Case, tuple[Values, ...]]]] = {
    "arange": of(
        cases=[
            lambda m: m.arange(5),
            lambda m: m.arange(2, 9, 3),
            lambda m: m.arange(5, stop=0, step=-2),
            lambda m: m.arange(0.5, 3.0, 0.5, dtype=m.float32),
            lambda m: m.arange(3, 3),
            lambda m: m.arange(4, dtype=m.uint8),
        ]
    ),
    "asarray": of(
        X,
        cases=[
            lambda m, x: m.asarray(x),
            lambda m, x: m.asarray(x, dtype=m.float64),
            lambda m, x: m.asarray([[1, 2], [3, 4]]),
            lambda m, x: m.asarray([True, False]),
            lambda m, x: m.asarray(3.5),
            lambda m, x: m.asarray([], dtype=m.float32),
            lambda m, x: m.asarray([1, 2.5]),
            lambda m, x: m.asarray([1, 2j]),
            lambda m, x: m.asarray(x, copy=True),
        ],
    ),
    "empty": of(cases=[lambda m: m.empty((2, 3)) * 0, lambda m: m.empty(4, dtype=m.int8) * 0]),
    "empty_like": of(I, cases=[lambda m, x: m.empty_like(x) * 0, lambda m, x: m.empty_like(x, dtype=m.float32) * 0]),
    "eye": of(
        cases=[
            lambda m: m.eye(3),
            lambda m: m.eye(2, 4, k=1, dtype=m.int32),
            lambda m: m.eye(3, 2, k=-1),
            lambda m: m.eye(0),
        ]
    ),
    "full": of(
        cases=[
            lambda m: m.full((2, 3), 7),
            lambda m: m.full(3, 1.5, dtype=m.float64),
            lambda m: m.full((), True),
            lambda m: m.full((0,), 1j),
        ]
    ),
    "full_like": of(I, cases=[lambda m, x: m.full_like(x, 7), lambda m, x: m.full_like(x, 2.5, dtype=m.float32)]),
    "linspace": of(
        cases=[
            lambda m: m.linspace(0, 1, 5),
            lambda m: m.linspace(2.0, -3.0, 7, endpoint=False),
            lambda m: m.linspace(0.0, 0.1, 11, dtype=m.float64),
            lambda m: m.linspace(1.0, 2.0, 1),
            lambda m: m.linspace(1.0, 2.0, 0),
            lambda m: m.linspace(1j, 2.0, 4),
            lambda m: m.linspace(1, -1, 7, dtype=m.int32),  # a rounded step was rounded down
            lambda m: m.linspace(1, -6, 8, dtype=m.int32),
            lambda m: m.linspace(-99999999, 7, 15, dtype=m.int32),
        ]
    ),
    "meshgrid": of(
        V,
        SORTED[:2],
        cases=[
            lambda m, x, y: m.meshgrid(x, y),
            lambda m, x, y: m.meshgrid(x, y, indexing="ij"),
            lambda m, x, y: m.meshgrid(x, y, x),
            lambda m, x, y: m.meshgrid(x),
        ],
    ),
    "ones": of(cases=[lambda m: m.ones((2, 0)), lambda m: m.ones(3, dtype=m.bool)]),
    "ones_like": of(I, cases=[lambda m, x: m.ones_like(x), lambda m, x: m.ones_like(x, dtype=m.complex64)]),
    "tril": of(W, cases=[lambda m, x: m.tril(x), lambda m, x: m.tril(x, k=-1), lambda m, x: m.tril(x, k=2)]),
    "triu": of(W, cases=[lambda m, x: m.triu(x), lambda m, x: m.triu(x, k=-1), lambda m, x: m.triu(x, k=2)]),
    "zeros": of(cases=[lambda m: m.zeros((2, 3)), lambda m: m.zeros(3, dtype=m.int64), lambda m: m.zeros(())]),
    "zeros_like": of(C, cases=[lambda m, x: m.zeros_like(x), lambda m, x: m.zeros_like(x, dtype=m.int8)]),
    "clip": of(
        X,
        V[:4],
        cases=[
            lambda m, x, y: m.clip(x, -1, 1),
            lambda m, x, y: m.clip(x, min=0.5),
            lambda m, x, y: m.clip(x, max=y),
            lambda m, x, y: m.clip(x, y - 1, y + 1),
            lambda m, x, y: m.clip(x),
        ],
    ),
    "take": of(
        W,
        cases=[
            lambda m, x: m.take(x, m.asarray([1, 0, 1]), axis=0),
            lambda m, x: m.take(x, m.asarray([-1, 0]), axis=-1),
            lambda m, x: m.take(x[0, 0], m.asarray([3, 1])),
        ],
    ),
    "take_along_axis": of(
        X,
        PLACES,
        cases=[
            lambda m, x, i: m.take_along_axis(x, i, axis=1),
            lambda m, x, i: m.take_along_axis(x, i),
            lambda m, x, i: m.take_along_axis(x, i[:, :1] * 0, axis=0),
        ],
    ),
    "matmul": [
        *of(X, X.T, cases=[lambda m, x, y: m.matmul(x, y), lambda m, x, y: x @ y]),
        *of(W, X.T, cases=[lambda m, x, y: m.matmul(x, y)]),
        *of(X, X[0], cases=[lambda m, x, y: m.matmul(x, y), lambda m, x, y: m.matmul(y, y)]),
        *of(I, I.T, cases=[lambda m, x, y: m.matmul(x, y)]),
        *of(C, C.T, cases=[lambda m, x, y: m.matmul(x, y)]),
        *of(EMPTY, EMPTY.T, cases=[lambda m, x, y: m.matmul(x, y), lambda m, x, y: m.matmul(y, x)]),
    ],
    "matrix_transpose": of(W, cases=[lambda m, x: m.matrix_transpose(x), lambda m, x: x.mT]),
    "tensordot": of(
        W,
        W + 1,
        cases=[
            lambda m, x, y: m.tensordot(x, y, axes=3),
            lambda m, x, y: m.tensordot(x, y, axes=((0, 2), (0, 2))),
            lambda m, x, y: m.tensordot(x, y, axes=((-1,), (-1,))),
            lambda m, x, y: m.tensordot(x, y, axes=0),
        ],
    ),
    "vecdot": of(
        C,
        C[0] + 1,
        cases=[lambda m, x, y: m.vecdot(x, y), lambda m, x, y: m.vecdot(x, x, axis=-2)],
    ),
    "broadcast_arrays": of(
        X, V[:4], cases=[lambda m, x, y: m.broadcast_arrays(x, y), lambda m, x, y: m.broadcast_arrays(x)]
    ),
    "broadcast_to": of(V, cases=[lambda m, x: m.broadcast_to(x, (2, 3, 5)), lambda m, x: m.broadcast_to(x, (5,))]),
    "concat": [
        *of(
            X,
            X + 1,
            cases=[
                lambda m, x, y: m.concat([x, y]),
                lambda m, x, y: m.concat((x, y), axis=1),
                lambda m, x, y: m.concat([x, y[0]], axis=None),
                lambda m, x, y: m.concat([x, y, x], axis=-2),
            ],
        ),
        *of(X[:, :3], EMPTY, cases=[lambda m, x, y: m.concat([x, y])]),
    ],
    "expand_dims": of(
        X,
        cases=[
            lambda m, x: m.expand_dims(x, axis=0),
            lambda m, x: m.expand_dims(x, axis=-1),
            lambda m, x: m.expand_dims(x, axis=(0, -1)),
            lambda m, x: m.expand_dims(x, axis=(1, 2)),
        ],
    ),
    "flip": of(W, cases=[lambda m, x, a=a: m.flip(x, axis=a) for a in (None, 0, -1, (0, 2))]),
    "moveaxis": of(W, cases=[lambda m, x: m.moveaxis(x, 0, 2), lambda m, x: m.moveaxis(x, (0, 1), (-1, 0))]),
    "permute_dims": of(
        W, cases=[lambda m, x: m.permute_dims(x, (2, 0, 1)), lambda m, x: m.permute_dims(x, axes=(-1, 0, -2))]
    ),
    "repeat": of(
        X,
        cases=[
            lambda m, x: m.repeat(x, 2),
            lambda m, x: m.repeat(x, 3, axis=1),
            lambda m, x: m.repeat(x, 0, axis=0),
            lambda m, x: m.repeat(x, np.asarray([1, 0, 2]), axis=0),
            lambda m, x: m.repeat(x, np.asarray([2]), axis=1),
            lambda m, x: m.repeat(x[0], np.asarray([0, 1, 2, 3])),
        ],
    ),
    "reshape": of(
        X,
        cases=[
            lambda m, x: m.reshape(x, (4, 3)),
            lambda m, x: m.reshape(x, (2, -1), copy=True),
            lambda m, x: m.reshape(x, (-1,), copy=False),
            lambda m, x: m.reshape(x[:0], (0, 5)),
        ],
    ),
    "roll": of(
        W,
        cases=[
            lambda m, x: m.roll(x, 1),
            lambda m, x: m.roll(x, -2, axis=1),
            lambda m, x: m.roll(x, (1, 5), axis=(0, 2)),
            lambda m, x: m.roll(x, 2, axis=(0, 1)),
        ],
    ),
    "squeeze": of(
        X[None, :, None],
        cases=[
            lambda m, x: m.squeeze(x, axis=0),
            lambda m, x: m.squeeze(x, axis=(0, -2)),
            lambda m, x: m.squeeze(x, axis=()),
        ],
    ),
    "stack": of(X, X + 1, cases=[lambda m, x, y, a=a: m.stack([x, y], axis=a) for a in (0, 1, 2, -1)]),
    "tile": of(X, cases=[lambda m, x, r=r: m.tile(x, r) for r in ((2,), (1, 2), (2, 1, 3), (0, 1), ())]),
    "unstack": of(W, cases=[lambda m, x: m.unstack(x), lambda m, x: m.unstack(x, axis=-1)]),
    "argmax": over("argmax", I, W, axes=[None, 0, -1]),
    "argmin": over("argmin", I, NANS, axes=[None, 0, -1]),
    "count_nonzero": [*over("count_nonzero", I, C, axes=TUPLES), *over("count_nonzero", B, axes=[None])],
    "nonzero": [*of(I, cases=[lambda m, x: m.nonzero(x)]), *of(B, cases=[lambda m, x: m.nonzero(x)])],
    "searchsorted": of(
        SORTED,
        X,
        cases=[
            lambda m, x, v: m.searchsorted(x, v),
            lambda m, x, v: m.searchsorted(x, x, side="right"),
            lambda m, x, v: m.searchsorted(x, x, side="left"),
            lambda m, x, v: m.searchsorted(m.flip(x), v, sorter=m.asarray([4, 3, 2, 1, 0])),
            lambda m, x, v: m.searchsorted(x[:0], v),
        ],
    ),
    "where": of(
        B,
        X,
        V[:4],
        cases=[
            lambda m, c, x, y: m.where(c, x, y),
            lambda m, c, x, y: m.where(c, x, m.float32(0) if m is np else 0),
            lambda m, c, x, y: m.where(c[:, :1], m.float32(1.5) if m is np else 1.5, x),
        ],
    ),
    "isin": of(
        I,
        I[0],
        cases=[
            lambda m, x, y: m.isin(x, y),
            lambda m, x, y: m.isin(x, y[:2], invert=True),
            lambda m, x, y: m.isin(x, 3),
            lambda m, x, y: m.isin(3, x),
            lambda m, x, y: m.isin(x, y[:0]),
        ],
    ),
    **{
        name: [
            *of(I, cases=[lambda m, x, n=name: getattr(m, n)(x)]),
            *of(NANS, cases=[lambda m, x, n=name: getattr(m, n)(x)]),
            *of(EMPTY, cases=[lambda m, x, n=name: getattr(m, n)(x)]),
        ]
        for name in ("unique_all", "unique_counts", "unique_inverse")
    },
    "unique_values": of(I, cases=[lambda m, x: m.sort(m.unique_values(x))]),
    "sort": [
        *of(W, cases=[lambda m, x: m.sort(x), lambda m, x: m.sort(x, axis=0), lambda m, x: m.sort(x, stable=False)]),
        *of(NANS, cases=[lambda m, x: m.sort(x)]),
        *of(X, cases=[lambda m, x: -m.sort(-x) if m is np else m.sort(x, descending=True)]),
        *of(I, cases=[lambda m, x: -m.sort(-x, axis=0) if m is np else m.sort(x, axis=0, descending=True)]),
    ],
    "argsort": [
        *of(W, cases=[lambda m, x: m.argsort(x), lambda m, x: m.argsort(x, axis=0)]),
        *of(I, cases=[lambda m, x: m.argsort(x, stable=True)]),
        *of(I, cases=[lambda m, x: m.argsort(-x, stable=True) if m is np else m.argsort(x, descending=True)]),
    ],
    **{
        name: [
            *of(V, cases=[lambda m, x, n=name: getattr(m, n)(x)]),
            *of(
                W,
                cases=[
                    lambda m, x, n=name: getattr(m, n)(x, axis=1),
                    lambda m, x, n=name: getattr(m, n)(x, axis=-1, include_initial=True),
                    lambda m, x, n=name: getattr(m, n)(x, axis=0, dtype=m.float64),
                ],
            ),
            *of(I, cases=[lambda m, x, n=name: getattr(m, n)(x, axis=1)]),
            *of(C, cases=[lambda m, x, n=name: getattr(m, n)(x, axis=0)]),
        ]
        for name in ("cumulative_sum", "cumulative_prod")
    },
    "max": [*over("max", X, I, axes=TUPLES[:5]), *over("max", NANS, axes=[None])],
    "min": [*over("min", X, I, axes=TUPLES[:5]), *over("min", NANS, axes=[None])],
    "mean": [*over("mean", X, C, W, axes=TUPLES), *over("mean", NANS, axes=[None])],
    "prod": [*over("prod", X, C, axes=TUPLES), *over("prod", EMPTY, axes=AXES), *over("prod", X, dtype=np.float64)],
    "std": [*over("std", X, axes=TUPLES), *over("std", X, correction=1), *over("std", NANS, axes=[None])],
    "sum": [*over("sum", X, C, axes=TUPLES), *over("sum", EMPTY, axes=AXES), *over("sum", I, dtype=np.float32)],
    "var": [*over("var", X, axes=TUPLES), *over("var", X, correction=1.5), *over("var", NANS, axes=[None])],
    "all": [*over("all", B, I, X, axes=TUPLES), *over("all", EMPTY, axes=AXES)],
    "any": [*over("any", B, I, X, axes=TUPLES), *over("any", EMPTY, axes=AXES)],
    "diff": of(
        W,
        cases=[
            lambda m, x: m.diff(x),
            lambda m, x: m.diff(x, axis=0),
            lambda m, x: m.diff(x, n=2, axis=1),
            lambda m, x: m.diff(x, n=0),
            lambda m, x: m.diff(x, prepend=x[..., :2], append=x[..., :1]),
            lambda m, x: m.diff(x, n=5, axis=-1),
        ],
    ),
    "astype": of(
        X,
        cases=[
            lambda m, x: m.astype(x, m.float64),
            lambda m, x: m.astype(x, m.int32),
            lambda m, x: m.astype(x, m.bool),
            lambda m, x: m.astype(x, m.complex64, copy=False),
        ],
    ),
    "from_dlpack": of(X, cases=[lambda m, x: m.from_dlpack(x), lambda m, x: m.from_dlpack(x, copy=True)]),
}

# These have their own tests, here or in test_names and test_dtypes.
ELSEWHERE = {"broadcast_shapes", "can_cast", "finfo", "iinfo", "isdtype", "result_type"}
# These cannot be traced, because a size depends on values.
EAGER_ONLY = {"nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values", "from_dlpack"}


def test_every_function_has_a_case() -> None:
    here = {f.name for f in FUNCTIONS if not f.extension}
    assert here == set(VALUES) | set(ELEMENTWISE) | ELSEWHERE


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def agree(name: str, fn: Case, args: tuple[Values, ...]) -> None:
    with np.errstate(all="ignore"):
        wanted = [np.asarray(w) for w in listed(fn(np, *args))]
    outs = [("at once", fn(fnp, *map(fnp.asarray, args)))]
    if name not in EAGER_ONLY:
        outs.append(("compiled", fx.jit(lambda xs: fn(fnp, *xs))(args)))
    for _, out in outs:
        for got, want in zip(listed(out), wanted, strict=True):
            assert isinstance(got, Array)
            assert got.shape == want.shape
            close(got, want.astype(np.asarray(got).dtype))


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    for fn, args in VALUES[name]:
        agree(name, fn, args)


def test_broadcast_shapes() -> None:
    assert fnp.broadcast_shapes() == ()
    assert fnp.broadcast_shapes((3, 1), (4,), ()) == (3, 4)
    assert fnp.broadcast_shapes((0, 1), (1, 5)) == (0, 5)
    with pytest.raises(ValueError, match="axis -1 has sizes 2 and 3"):
        fnp.broadcast_shapes((2,), (3,))


def test_where_zero_minus_correction_is_nan() -> None:
    """NumPy returns infinity. The standard requires nan where count - correction <= 0."""
    for fn in (fnp.var, fnp.std):
        assert np.isnan(np.asarray(fn(fnp.asarray([1.0, 2.0]), correction=2)))
        assert np.isnan(np.asarray(fn(fnp.asarray([1.0, 2.0]), correction=3)))
        assert np.isnan(np.asarray(fn(fnp.zeros((0,)))))
    assert np.isnan(np.asarray(fnp.mean(fnp.zeros((0,)))))


def test_named_results() -> None:
    x = fnp.asarray([3, 1, 3])
    assert fnp.unique_all(x)._fields == ("values", "indices", "inverse_indices", "counts")
    assert fnp.unique_counts(x)._fields == ("values", "counts")
    assert fnp.unique_inverse(x)._fields == ("values", "inverse_indices")
    assert all(i.dtype == fnp.int32 for i in fnp.unique_all(x)[1:])
    assert fnp.nonzero(x)[0].dtype == fnp.int32
    assert fnp.unique_inverse(fnp.asarray([[3, 1], [1, 1]])).inverse_indices.shape == (2, 2)
    assert np.asarray(fnp.unique_counts(fnp.asarray([np.nan, np.nan, -0.0, 0.0])).counts).tolist() == [2, 1, 1]


@pytest.mark.parametrize("name", ["meshgrid", "broadcast_arrays", "unstack", "nonzero"])
def test_tuples(name: str) -> None:
    assert type(getattr(fnp, name)(fnp.ones(2))) is tuple


def test_numbers_that_need_a_wide_dtype() -> None:
    """A Python int is checked against the dtype that is given, and not against its default dtype."""
    makers: list[Case] = [
        lambda v, d: fnp.asarray(v, dtype=d),
        lambda v, d: fnp.asarray([v], dtype=d)[0],
        lambda v, d: fnp.full(2, v, dtype=d)[1],
        lambda v, d: fnp.full_like(fnp.zeros(2, dtype=d), v)[0],
    ]
    for make in makers:
        assert int(make(2**40, fnp.int64)) == 2**40
        assert int(make(2**64 - 1, fnp.uint64)) == 2**64 - 1
        assert float(make(2**70, fnp.float32)) == 2.0**70
        for value, dtype in ((300, fnp.int8), (-1, fnp.uint8), (2**31, fnp.int32)):
            with pytest.raises(TypeError, match=r"does not fit in u?int|out of bounds for u?int"):
                make(value, dtype)
    with pytest.raises(TypeError, match="2147483648 does not fit in int32"):
        fnp.asarray(2**31)
    close(fnp.asarray([1.0, 2**40]), np.array([1, 2**40], np.float32))
    close(fnp.linspace(0, 2**40, 3, dtype=fnp.float64), np.linspace(0, 2**40, 3))
    close(fnp.linspace(0.1, 1, 4, dtype=fnp.float64), np.linspace(0.1, 1, 4))
    close(fnp.arange(2**40, 2**40 + 3, dtype=fnp.int64), np.arange(2**40, 2**40 + 3))
    assert int((fnp.asarray([1], dtype=fnp.int64) + 2**40)[0]) == 2**40 + 1
