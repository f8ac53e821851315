"""Programs of symbolic shape: `specialize` returns the program that is traced at the size, as the same object."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, random, scipy, text
from fxad.core.sizes.size import maximum, minimum, named_size, substitute_sizes
from fxad.core.sizes.text import Reader
from fxad.errors import ArgumentError, FxadError, ShapeError, SizeError
from fxad.transforms.specialize import size_names

Function = Callable[..., Any]
Given = tuple[str, str]


def spec(shape: str, dtype: str, values: dict[str, int] | None = None) -> fx.Spec:
    sizes = [n for n in Reader(shape).shape() if n is not None]
    return fx.Spec(sizes if values is None else [substitute_sizes(n, values) for n in sizes], dtype)


def total(f: Function) -> Function:
    def summed(*args: Any) -> Any:
        leaves = [x for x in fx.tree.leaves(f(*args)) if x.dtype.kind == "f"]
        return sum([fnp.sum(x * 1.5) for x in leaves]) + 0 * fnp.sum(args[0])

    return fx.grad(summed)


X, V, X1, V1 = "(n, 3)", "(n)", "(n>0, 3)", "(n>0)"
CASES: dict[str, tuple[Function, tuple[str, ...]]] = {
    "sin": (fnp.sin, (X,)),
    "broadcast rows": (lambda x, y: x + y, (X, "3")),
    "broadcast columns": (lambda x, y: x + y[:, None], (X, V)),
    "mean": (lambda x: x.mean(0), (X,)),
    "var": (lambda x: x.var(), (X,)),
    "std": (lambda x: fnp.std(x, axis=0, ddof=1), (X,)),
    "max": (lambda x: x.max(0), (X1,)),
    "argmax": (lambda x: fnp.argmax(x, axis=0), (X1,)),
    "cumsum": (lambda x: fnp.cumsum(x, axis=0), (X,)),
    "cumprod": (lambda x: fnp.cumprod(x, axis=0), (X,)),
    "sort": (lambda x: fnp.sort(x, axis=0), (X,)),
    "argsort": (lambda x: fnp.argsort(x, axis=0), (X,)),
    "concatenate": (lambda x, y: fnp.concatenate([x, y]), (X, "(m, 3)")),
    "stack": (lambda x, y: fnp.stack([x, y]), (X, X)),
    "flat": (lambda x: x.reshape(-1), (X,)),
    "reshape": (lambda x: x.reshape((x.shape[0], 1, 3)), (X,)),
    "rows": (lambda x: x.reshape((3, -1)), ("3*n",)),
    "transpose": (lambda x: x.T @ x, (X,)),
    "matmul": (lambda x, y: x @ y, ("(n, m)", "(m, 4)")),
    "einsum": (lambda x, y: fnp.einsum("ij,kj->ik", x, y), (X, "(m, 3)")),
    "zeros": (lambda x: fnp.zeros(x.shape) + fnp.ones((x.shape[0], 1)), (X,)),
    "arange": (lambda x: fnp.arange(2, x.shape[0] + 2) * 2, (X,)),
    "eye": (lambda x: fnp.eye(x.shape[0]), (X,)),
    "first": (lambda x: x[0], (X1,)),
    "last": (lambda x: x[-1], (X1,)),
    "differences": (lambda x: x[1:] - x[:-1], (X1,)),
    "tail": (lambda x: x[1:], (X,)),
    "reversed": (lambda x: x[::-1], (X,)),
    "every second": (lambda x: x[::2], (X1,)),
    "half": (lambda x: x[: x.shape[0] // 2], (X,)),
    "where": (lambda x: fnp.where(x > 0, x, 0.0), (X,)),
    "pad": (lambda x: fnp.pad(x, ((1, 2), (0, 0))), (X,)),
    "roll": (lambda x: fnp.roll(x, 1, axis=0), (X1,)),
    "softmax": (lambda x: nn.softmax(x, axis=0), (X1,)),
    "layer norm": (lambda x: (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5), (X,)),
    "scan": (lambda x: lax.scan(lambda c, a: (c + a, c * 2), fnp.zeros(3), x), (X,)),
    "reverse scan": (lambda x: lax.scan(lambda c, a: (c * a, c * 2), fnp.zeros(3), x, reverse=True), (X,)),
    "fori_loop": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c * 1.1, x), (X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x), (X,)),
    "inner vmap": (lambda x, w: fx.vmap(lambda r: w @ r)(x), (X, "(4, 3)")),
    "remat": (lambda x: fx.remat(lambda a: fnp.sin(fnp.sin(a)))(x), (X,)),
    "tril": (fnp.tril, ("(n, n)",)),
    "trace": (fnp.trace, ("(n, n)",)),
    "norm": (fnp.linalg.norm, (X,)),
    "cholesky": (fnp.linalg.cholesky, ("(n, n)",)),
    "solve": (fnp.linalg.solve, ("(n, n)", V)),
    "top_k": (lambda x: lax.top_k(x, 2), ("n+2",)),
    "same": (lambda x, w: lax.conv(x, w, (1,), "SAME"), ("(1, 2, n)", "(4, 2, 3)")),
    "valid": (lambda x, w: lax.conv(x, w, (1,), "VALID"), ("(1, 2, n+2)", "(4, 2, 3)")),
    "by sizes": (lambda x: x.sum() / x.shape[0] + fnp.sqrt(x.shape[0]) + x.size, (X,)),
    "searchsorted": (lambda x, y: fnp.searchsorted(fnp.sort(x), y), (V1, "m")),
    "interp": (lambda x, y: fnp.interp(y, fnp.arange(x.shape[0]), x), (V1, "m")),
    "thirds": (lambda x: fnp.array_split(x, 3), (X1,)),
    "shift": (lambda x: fnp.fft.ifftshift(x, axes=0), (X1,)),
    "window at a number": (lambda x: lax.dynamic_slice_in_dim(x, -1, 1, 0), (X1,)),
    "three operands": (lambda x, y: fnp.einsum("ij,kj,kl->il", x, x, y), (X, X)),
    "trapezoid": (lambda x: fnp.trapezoid(x, axis=0), (X1,)),
    "frequencies": (lambda x: fnp.fft.fftfreq(x.shape[0]), (X1,)),
    "repeat": (lambda x: fnp.repeat(x, 2, axis=0), (X,)),
}


@pytest.mark.parametrize("how", ["plain", "grad", "vmap", "remat"])
@pytest.mark.parametrize("name", CASES)
def test_specialize_is_the_trace_at_that_size(name: str, how: str) -> None:
    f, shapes = CASES[name]
    shapes = tuple([f"(5, {s.strip('()') if s.startswith('(') else s})" for s in shapes]) if how == "vmap" else shapes
    made = {"plain": f, "grad": total(f), "vmap": fx.vmap(f), "remat": total(fx.remat(f))}
    g = made[how]
    program = fx.trace(g, *[spec(s, "float32") for s in shapes])
    fx.typecheck(program.jaxpr)
    assert text.parse(program.text()) is program.jaxpr
    for values in ({"n": 4, "m": 7}, {"n": 6, "m": 5}):
        traced = fx.trace(g, *[spec(s, "float32", values) for s in shapes])

        assert fx.specialize(program, **_of(program, values)).jaxpr is traced.jaxpr


def _of(program: fx.Program[..., Any], values: dict[str, int]) -> dict[str, int]:
    return {n.name: values[n.name] for n in size_names(program.jaxpr)}


def test_symbolic_sizes_in_indices_and_samplers() -> None:
    def take(x: Any, i: Any) -> Any:
        return x[i]

    program = fx.trace(take, spec(X1, "float32"), spec("m", "int32"))
    assert fx.specialize(program, n=4, m=7).jaxpr is fx.trace(take, fx.Spec((4, 3)), fx.Spec((7,), "int32")).jaxpr

    def draw(key: Any, x: Any) -> Any:
        return random.normal(key, x.shape)

    drawn = fx.trace(draw, fx.Spec((2,), "uint32"), spec(X, "float32"))
    assert fx.specialize(drawn, n=4).jaxpr is fx.trace(draw, fx.Spec((2,), "uint32"), fx.Spec((4, 3))).jaxpr


def test_factors_of_a_matrix_of_two_sizes() -> None:
    """The smaller size is not decided. A gradient extends every factor to a square, also one that is square."""
    factors = fx.trace(scipy.linalg.lu, fx.Spec("n, m"))
    gradient = fx.trace(total(scipy.linalg.lu), fx.Spec("n, m"))
    for n, m in ((4, 7), (6, 5), (3, 3)):
        x = np.random.default_rng(n).normal(size=(n, m)).astype("float32")
        assert fx.specialize(factors, n=n, m=m).jaxpr is fx.trace(scipy.linalg.lu, fx.Spec((n, m))).jaxpr
        np.testing.assert_array_equal(
            fx.interpret(fx.specialize(gradient, n=n, m=m), x), fx.interpret(fx.trace(total(scipy.linalg.lu), x), x)
        )


def test_a_program_is_called_at_any_size() -> None:
    program = fx.trace(lambda x, w: (x @ w).mean(0) * x.shape[0], fx.Spec("(n, m)"), fx.Spec("(m>=1, 3)"))
    for n, m in ((2, 3), (5, 1), (4, 4)):
        x, w = np.random.default_rng(n).normal(size=(n, m)).astype("float32"), np.ones((m, 3), "float32")
        np.testing.assert_allclose(program(x, w), (x @ w).mean(0) * n, rtol=1e-5)
        np.testing.assert_allclose(fx.interpret(program, x, w), (x @ w).mean(0) * n, rtol=1e-5)
    outer = fx.trace(lambda y: program(y, fnp.ones((4, 3))), fx.Spec("(k, 4)"))
    assert fx.specialize(outer, k=6).out_avals == (fx.Spec((3,)).aval,)


def test_a_program_is_a_value() -> None:
    def tail(x: Any) -> Any:
        return x[1:].sum() * x.shape[0]

    program = fx.trace(tail, fx.Spec("(n>=1, 3)"))
    assert pickle.loads(pickle.dumps(program.jaxpr)) is program.jaxpr
    assert fx.trace(tail, fx.Spec("(n>0, 3)")).jaxpr is program.jaxpr
    assert fx.diff(program, fx.trace(tail, fx.Spec("(k>0, 3)"))) is not None
    assert program.text() == (
        "main @tail(%arg0: f32[(n>0),3]) -> (f32[]) {\n"
        "  %0: f32[(n>0)-1,3] = slice[starts=(1, 0), limits=({(n>0)}, 3), strides=(1, 1)] %arg0\n"
        "  %1: f32[] = reduce_sum[axes=(0, 1)] %0\n"
        "  %2: f32[] = mul %1, {(n>0)}:f32[]\n"
        "  return %2\n"
        "}\n"
    )


def test_a_program_is_saved(tmp_path: Path) -> None:
    program = fx.trace(lambda x: x.mean(), fx.Spec("(n, 3)"))
    fx.save(program, tmp_path / "program")
    assert fx.load(tmp_path / "program").jaxpr is program.jaxpr


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (
            lambda p: p(np.ones((5, 2), "float32"), np.ones((3, 3), "float32")),
            ShapeError,
            "f: size 0 of argument y is 3, but m is 2: m = 2 by size 1 of argument x",
        ),
        (lambda p: fx.lower(p), SizeError, "lower: f is of symbolic shape: it takes f32[n,(m>0)], f32[(m>0),3]"),
        (lambda p: fx.specialize(p, k=3), ArgumentError, "specialize: k is not a size of the program, which has m, n"),
        (lambda p: fx.specialize(p, m=0), ShapeError, "specialize: m is 0, the program assumes m >= 1"),
        (
            lambda p: fx.specialize(p, n=2**31),
            ShapeError,
            "specialize: n is 2147483648, and a program of symbolic shape counts with int32",
        ),
        (
            lambda _: fx.specialize(fx.trace(fnp.count_nonzero, fx.Spec("(n, m)")), n=2**16, m=2**16),
            ShapeError,
            "specialize: m*n is 4294967296, and a program of symbolic shape counts with int32",
        ),
        (lambda p: fx.specialize(p, m=cast("int", 1.5)), ArgumentError, "specialize: m is 1.5, not an int"),
        (
            lambda p: p(np.ones((5, 0), "float32"), np.ones((0, 3), "float32")),
            ShapeError,
            "f: size 1 of argument x is 0, which is not m for any m >= 1",
        ),
        (
            lambda p: fx.Spec("(n, _)"),
            ArgumentError,
            "shape: '(n, _)' has a size '_', and there is no example",
        ),
        (
            lambda p: fx.trace(lambda x: [x for _ in range(x.shape[0])], fx.Spec("n")),
            SizeError,
            "size: n has no value while the program is of symbolic shape",
        ),
        (
            lambda p: fx.trace(lambda x: x if x.shape[0] > 3 else x + 1, fx.Spec("n")),
            SizeError,
            "size: n > 3 is not decided by n >= 0",
        ),
        (
            lambda p: fx.trace(lambda x: x + fnp.ones(3), fx.Spec("n")),
            ShapeError,
            "add: shapes (n,) and (3,) do not broadcast: axis -1 has sizes n and 3",
        ),
    ],
)
def test_refusals(use: Callable[[Any], object], error: type[FxadError], message: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return x @ y

    program = fx.trace(f, fx.Spec("(n, m)"), fx.Spec("(m>=1, 3)"))
    with pytest.raises(error) as caught:
        use(program)
    assert caught.value.message == message


def test_sizes_in_rules_are_specialized() -> None:
    @fx.custom_vjp
    def scaled(x: Any) -> Any:
        return x * x.shape[0]

    scaled.defvjp(lambda x: (scaled(x), ()), lambda _, ct: (ct * 7,))
    program = fx.trace(scaled, fx.Spec("(n, 3)"))
    assert size_names(program.jaxpr)
    fixed = fx.specialize(program, n=4)
    assert not size_names(fixed.jaxpr)
    assert fixed.jaxpr is fx.trace(scaled, fx.Spec((4, 3))).jaxpr


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[x.shape[0] // 2 :: 2],
        lambda x: lax.pad(x, fnp.asarray(2.0, "float32"), [(1, 0, 2)]),
        lambda x: lax.pad(x, fnp.asarray(2.0, "float32"), [(-1, 1, 1)]),
    ],
)
def test_gradients_of_steps_where_an_axis_may_be_empty(f: Function) -> None:
    gradient = fx.trace(total(f), fx.Spec("n"))
    assert gradient.out_avals == gradient.in_avals
    for n in (0, 1, 2, 5):
        x = np.arange(n, dtype="float32")
        np.testing.assert_array_equal(fx.specialize(gradient, n=n)(x), total(f)(x))


def test_every_slice_of_an_axis_of_symbolic_size() -> None:
    """Bounds and steps of every sign. The values are those of Python's slice at each size; the program is the traced
    one, unless the result is empty. A slice with undecided bounds raises SizeError."""
    bounds = (None, -3, -1, 0, 2)
    undecided = 0
    for start, stop, step in itertools.product(bounds, bounds, (None, -2, -1, 2, 3)):
        cut = slice(start, stop, step)
        try:
            program = fx.trace(lambda x, cut=cut: x[cut], fx.Spec("n>=1"))
        except SizeError:
            undecided += 1
            continue
        for n in (1, 2, 3, 6):
            x = np.arange(n, dtype="float32")
            fixed = fx.specialize(program, n=n)
            np.testing.assert_array_equal(fx.interpret(fixed, x), x[cut], strict=True)
            if x[cut].size:
                assert fixed.jaxpr is fx.trace(lambda x, cut=cut: x[cut], x).jaxpr
    assert undecided < 16


def test_a_slice_whose_step_is_a_size() -> None:
    for start, sign in itertools.product((None, 0, 1, -2), (1, -1)):
        program = fx.trace(lambda x, y, a=start, s=sign: x[a :: s * y.shape[0]], fx.Spec("k>=3"), fx.Spec("n>=1"))
        for k, n in ((6, 3), (4, 7)):
            x, y = np.arange(k, dtype="float32"), np.zeros(n, "float32")
            fixed = fx.specialize(program, k=k, n=n)
            np.testing.assert_array_equal(fx.interpret(fixed, x, y), x[start :: sign * n], strict=True)
            assert fixed.jaxpr is fx.trace(lambda x, y, a=start, s=sign * n: x[a::s], x, y).jaxpr
            padded, more = np.full(7, np.nan, "float32"), np.zeros(7, "float32")
            padded[:k] = x
            have = fx.mask(program)(padded, more, sizes={"k": k, "n": n})
            np.testing.assert_array_equal(have[: len(x[start :: sign * n])], x[start :: sign * n])


def test_an_update_whose_step_is_a_size() -> None:
    masked = fx.mask(lambda x, y: x.at[:: y.shape[0]].multiply(10.0), ("k", "n>=1"))
    padded = np.array([1, 2, 3, 4, 5, np.nan, np.nan], "float32")
    for n, want in ((1, [10, 20, 30, 40, 50, 0, 0]), (2, [10, 2, 30, 4, 50, 0, 0]), (7, [10, 2, 3, 4, 5, 0, 0])):
        assert masked(padded, np.zeros(7), sizes={"k": 5, "n": n}).tolist() == want


def test_a_minimum_and_a_maximum_are_decided_case_by_case() -> None:
    n = named_size("n")
    assert n - maximum(n - 1, 0) >= 0
    assert maximum(n - 3, 2) >= n - 3
    assert minimum(n, 5) <= 5
    assert n // 2 * 2 >= n - 1
