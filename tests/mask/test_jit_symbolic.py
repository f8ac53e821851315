"""`jit(symbolic=)` and `bucketed`: one trace for all sizes, with every option of `jit`, with other transformations, in
threads, on disk; and programs that are exported for all sizes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.errors import ArgumentError, FxadError, ShapeError

W = np.random.default_rng(0).normal(size=(3, 3)).astype("float32") * 0.5


def rows(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed + n).normal(size=(n, 3)).astype("float32")


class Counted:
    """A function that counts its traces."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, x: Any, w: Any, scale: Any = 2) -> Any:
        self.shapes.append(x.shape)
        return (x @ w).sum(0) / x.shape[0] * scale


def expected(x: Any, scale: float = 2) -> Any:
    return (x @ W).mean(0) * scale


OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "static": {"static_argnames": "scale"},
    "one program": {"units": "none"},
    "every call a unit": {"units": lambda body: True},
    "passes": {"passes": (fx.passes.BEFORE_COMPILATION[0],)},
    "no passes": {"passes": ()},
    "donated": {"donate": "w"},
    "donated by jax's name": {"donate_argnums": 1},
    "kept": {"keep_unused": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_goes_with_one_trace(name: str) -> None:
    f = Counted()
    run = fx.jit(f, symbolic=("(n>=1, _)", None), **OPTIONS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fx.errors.DonationWarning)
        for n in (2, 5, 3, 5, 2):
            scale = {"scale": 3} if name == "static" else {}
            actual = run(fnp.asarray(rows(n)), fnp.asarray(W), **scale)
            np.testing.assert_allclose(actual, expected(rows(n), scale.get("scale", 2)), rtol=1e-4, atol=1e-6)
    assert len(f.shapes) == 1
    assert type(f.shapes[0][0]) is not int


def test_the_program_and_the_executable_of_a_size() -> None:
    run = fx.jit(Counted(), symbolic=("(n>=1, _)", None))
    program = run.trace(rows(4), W)
    assert program.jaxpr is fx.trace(Counted(), rows(4), W).jaxpr
    assert run.lower(rows(4), W).compile()(rows(4), W).shape == (3,)
    assert run.eval_shape(rows(6), W).shape == (3,)


def test_a_donated_array_is_deleted() -> None:
    step = fx.jit(lambda x: x * 2 + x.shape[0], symbolic="n", donate=0)
    for n in (3, 4):
        x = fnp.arange(n, dtype="float32")
        np.testing.assert_array_equal(step(x), np.arange(n) * 2 + n)
        with pytest.raises(FxadError, match="donated"):
            np.asarray(x)


def test_static_arguments_have_no_entry_in_symbolic() -> None:
    traces: list[Any] = []

    def f(mode: str, x: Any) -> Any:
        traces.append(mode)
        return x.sum() if mode == "sum" else x.max()

    run = fx.jit(f, static_argnums=0, symbolic=("n>=1",))
    for n in (2, 3, 4):
        x = np.arange(n, dtype="float32")
        assert float(run("sum", x)) == x.sum()
        assert float(run("max", x)) == x.max()
    assert traces == ["sum", "max"]


def test_decorator_and_method() -> None:
    traces = []

    class Model:
        @fx.jit(symbolic=("n>=1",))
        def __call__(self, x: Any) -> Any:
            traces.append(x.shape)
            return x[1:] - x[:-1]

    np.testing.assert_array_equal(Model()(np.arange(3, dtype="float32")), [1, 1])
    assert len(traces) == 1
    assert type(traces[0][0]) is not int


def test_under_transformations_and_in_traces() -> None:
    f = Counted()
    run = fx.jit(f, symbolic=("(n>=1, _)", None))
    plain = Counted()
    for n in (3, 4):
        have, want = [fx.grad(lambda w, x, g=g: g(x, w).sum())(W, rows(n)) for g in (run, plain)]
        np.testing.assert_allclose(have, want, rtol=1e-4)
        both = fx.vmap(run, in_axes=(0, None))(np.stack([rows(n), rows(n, 1)]), W)
        np.testing.assert_allclose(both, [expected(rows(n)), expected(rows(n, 1))], rtol=1e-4, atol=1e-6)
    assert len(f.shapes) == 1
    outer = fx.trace(lambda y: run(y, W), fx.Spec("(k>=1, 3)"))
    fixed = fx.trace(lambda y: run(y, W), fx.Spec((5, 3)))
    assert fx.specialize(outer, k=5).jaxpr is fixed.jaxpr


def test_a_function_that_closes_over_a_tracer_is_traced_again() -> None:
    scale: Any = None
    run = fx.jit(lambda x: x * scale, symbolic="n")

    def total(c: Any) -> Any:
        nonlocal scale
        scale = c
        return run(np.ones(3, "float32")).sum()

    assert float(fx.jit(total)(np.float32(2))) == 6
    assert float(fx.grad(total)(np.float32(3))) == 3


def test_a_second_process_finds_the_program_of_a_size(tmp_path: Path) -> None:
    for compilations in (2, 0):
        run = fx.jit(lambda x: fnp.sin(x).sum() / x.shape[0] * 1.375, symbolic="n>=1")
        with fx.cache.private(dir=tmp_path / "cache") as mine:
            for n in (3, 5):
                run(np.ones(n, "float32"))
            assert mine.stats().compilations == compilations


def layers(w: Any, x: Any) -> Any:
    for k in range(3):
        x = fnp.tanh(x @ w[k] + x.mean(0))
    return x.sum()


@pytest.mark.parametrize("units", ["auto", "none", lambda body: True])
def test_units_of_masked_and_symbolic_programs(units: Any) -> None:
    w = np.random.default_rng(1).normal(size=(3, 3, 3)).astype("float32") * 0.3
    masked = fx.mask(layers, (None, "(n>=1, _)"))
    step = fx.jit(fx.value_and_grad(lambda w, x, n: masked(w, x, sizes={"n": n})), units=units)
    every = fx.jit(fx.value_and_grad(layers), symbolic=(None, "(n>=1, _)"), units=units)
    for n in (2, 5):
        x = np.full((6, 3), np.nan, "float32")
        x[:n] = rows(n)
        value, slope = fx.value_and_grad(layers)(w, rows(n))
        for have, have_slope in (step(w, x, np.int32(n)), every(w, rows(n))):
            np.testing.assert_allclose(np.asarray(have), np.asarray(value), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(np.asarray(have_slope), np.asarray(slope), rtol=1e-3, atol=1e-4)


def test_a_masked_program_is_found_on_disk(tmp_path: Path) -> None:
    program = fx.trace(lambda x: fnp.sin(x).sum() * 1.625, fx.Spec("n"))
    x = np.array([1, 2, np.nan], "float32")
    for compilations in (1, 0):
        with fx.cache.private(dir=tmp_path / "cache") as mine:
            for n in (1, 2):
                actual = fx.mask(program, padding={"n": 3})(x, sizes={"n": n})
                np.testing.assert_allclose(np.asarray(actual), np.sin(x[:n]).sum() * 1.625, rtol=1e-5)
            assert mine.stats().compilations == compilations


# ------------------------------------------------------------------------------------------------------------- export


def attention(w: Any, x: Any) -> Any:
    return (nn.softmax((x @ w) @ x.T, axis=-1) @ x).mean()


def test_exports_of_masked_gradients_and_of_ragged_batches() -> None:
    masked = fx.mask(fx.trace(attention, fx.Spec((3, 3)), fx.Spec("(n>=1, 3)")), padding={"n": 5})
    gradient = fx.load_exported(fx.lower(fx.grad(masked)).export())
    batch = fx.load_exported(fx.lower(fx.vmap(masked, (None, 0), axis_size=2)).export())
    xs = np.full((2, 5, 3), np.nan, "float32")
    ns = np.array([2, 4], np.int32)
    for x, n in zip(xs, ns, strict=True):
        x[:n] = rows(int(n))
    for x, n in zip(xs, ns, strict=True):
        want = fx.grad(attention)(W, x[:n])
        np.testing.assert_allclose(gradient(W, x, sizes={"n": n}), want, rtol=1e-3, atol=1e-5)
    actual = batch(W, xs, sizes={"n": ns})
    np.testing.assert_allclose(actual, [attention(W, x[:n]) for x, n in zip(xs, ns, strict=True)], rtol=1e-4, atol=1e-6)


def test_a_gradient_is_masked_and_exported() -> None:
    program = fx.grad(fx.trace(attention, fx.Spec((3, 3)), fx.Spec("(n>=1, 3)")))
    run = fx.load_exported(fx.lower(fx.mask(program, padding={"n": 4})).export())
    x = np.full((4, 3), np.inf, "float32")
    x[:3] = rows(3)
    want = fx.grad(attention)(W, rows(3))
    np.testing.assert_allclose(run(W, x, sizes={"n": np.int32(3)}), want, rtol=1e-3, atol=1e-5)


# ----------------------------------------------------------------------------------------------------------- bucketed


def test_bucketed_traces_once_and_compiles_for_each_padded_size() -> None:
    f = Counted()
    run = fx.bucketed(f, ("(n>=1, _)", None))
    lengths = range(1, 65)
    before = fx.cache.stats().compilations
    for n in lengths:
        np.testing.assert_allclose(run(rows(n), W), expected(rows(n)), rtol=1e-3, atol=1e-5)
    assert len(f.shapes) == 1
    assert fx.cache.stats().compilations - before <= len({fx.padded_size(n) for n in lengths}) == 4


def test_bucketed_in_threads() -> None:
    run = fx.bucketed(lambda x: (x.sum(), x * 2), ("n",))
    actual: dict[tuple[int, int], Any] = {}

    def work(k: int) -> None:
        for n in range(12):
            total, twice = run(np.ones(n, "float32"))
            actual[k, n] = float(total), twice.shape

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert actual == {(k, n): (n, (n,)) for k in range(4) for n in range(12)}


def test_bucketed_takes_scalars_and_keywords_and_is_the_function_in_a_trace() -> None:
    f = Counted()
    run = fx.bucketed(f, ("(n>=1, _)", None))
    np.testing.assert_allclose(run(rows(3), W, scale=1.5), expected(rows(3), 1.5), rtol=1e-4)
    assert run(rows(3), W, scale=1.5).dtype == "float32"
    slope = fx.grad(lambda w: run(rows(3), w).sum())(W)
    np.testing.assert_allclose(slope, fx.grad(lambda w: Counted()(rows(3), w).sum())(W), rtol=1e-4)


def test_arguments_of_bucketed_have_any_names() -> None:
    def scaled(x: Any, sizes: Any = 2.0, *, tree: Any = (), zeros: Any = 0.0) -> Any:
        return x * sizes + sum(tree) + zeros

    x = np.arange(3, dtype="float32")
    run = fx.bucketed(scaled, "n")
    calls: list[dict[str, Any]] = [
        {},
        {"sizes": 3.0},
        {"tree": (1.0, 2.0), "zeros": 4.0},
        {"sizes": np.float32(5), "tree": [6]},
    ]
    for keywords in calls:
        np.testing.assert_array_equal(run(x, **keywords), scaled(x, **keywords))
    np.testing.assert_array_equal(fx.bucketed(scaled, ("n", None))(x, 3.0, zeros=1.0), 3 * x + 1)


@pytest.mark.parametrize(
    ("use", "error", "message", "remedy"),
    [
        (
            lambda: fx.bucketed(Counted(), ("(n>=1, _)", None))(rows(0), W),
            ShapeError,
            "bucketed Counted: size 0 of argument x is 0, which is not n for any n >= 1",
            "a name stands for one number: give arrays, or padding, whose sizes agree",
        ),
        (
            lambda: fx.bucketed(lambda x, y: x + y, ("n", "n"))(np.ones(3), np.ones(4)),
            ShapeError,
            "bucketed <lambda>: size 0 of argument y is 4, but n is 3: n = 3 by size 0 of argument x",
            "a name stands for one number: give arrays, or padding, whose sizes agree",
        ),
        (
            lambda: fx.bucketed(lambda x: x[1:], ("n>=1",), "n")(np.ones(3)),
            ShapeError,
            "bucketed <lambda>: Output shapes should be (n,) but are (n - 1,)",
            "correct out_shapes, or leave it out",
        ),
        (
            lambda: fx.jit(Counted(), symbolic=("n",))(rows(2), W),
            ArgumentError,
            "jit of Counted: symbolic has 1 entry for 2 positional arguments",
            "give one entry per positional argument; None for an array without named sizes",
        ),
        (
            lambda: fx.jit(Counted(), symbolic=("(n, 4)", None))(rows(2), W),
            ShapeError,
            "jit of Counted: symbolic says 4 for size 1 of argument x, which is 3",
            "one size for each axis; _ is the size that the array has",
        ),
        (
            lambda: fx.jit(lambda x, n: x * n, symbolic=("n", "m"))(np.ones(3), 2.5),
            ShapeError,
            "jit of <lambda>: symbolic says (m,) for argument n, which is a Python float",
            "one size for each axis; _ is the size that the array has",
        ),
        (
            lambda: fx.jit(Counted(), symbolic=("(n>=3, _)", None))(rows(2), W),
            ShapeError,
            "Counted: size 0 of argument x is 2, which is not n for any n >= 3",
            "a name stands for one number: give arrays, or padding, whose sizes agree",
        ),
        (
            lambda: fx.jit(lambda x: lax.cond(x.shape[0] > 3, fnp.sin, fnp.cos, x), symbolic="n")(np.ones(3)),
            fx.errors.SizeError,
            "size: n > 3 is not decided by n >= 0",
            "state an assumption where the size is named, as in 'n>=4', or use fxad.numpy on the value of the size",
        ),
    ],
)
def test_refusals(use: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        use()
    assert caught.value.message == message
    assert caught.value.remedy == remedy
