"""mask with other transformations, compiled: ragged batches, loops, nesting, one program for all lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn
from fxad.testing.mask_laws import check_mask
from fxad.testing.ragged_cases import RaggedCase
from fxad.text import parse

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 3)).astype("float32") * 0.5
LENGTHS = np.array([5, 2, 0, 4], np.int32)
XS = RNG.normal(size=(4, 5, 3)).astype("float32")
for row, k in zip(XS, LENGTHS, strict=True):
    row[k:] = np.nan


def rnn(w: Any, x: Any) -> Any:
    return lax.scan(lambda c, a: (fnp.tanh(w @ c + a), None), fnp.zeros(3), x)[0].sum()


def attention(w: Any, x: Any) -> Any:
    scores = nn.softmax((x @ w) @ x.T, axis=-1)
    return (scores @ x).sum() / (x.shape[0] + 1)


def batched(f: Any) -> Any:
    masked = fx.mask(f, (None, "(n, _)"))

    def one(w: Any, x: Any, n: Any) -> Any:
        return masked(w, x, sizes={"n": n})

    return fx.vmap(one, in_axes=(None, 0, 0))


def example_by_example(f: Any, w: Any) -> Any:
    return fnp.stack([f(w, x[:n]) for x, n in zip(XS, LENGTHS, strict=True)])


@pytest.mark.parametrize("f", [rnn, attention])
def test_a_ragged_batch_equals_its_examples(f: Any) -> None:
    run = fx.jit(batched(f))
    np.testing.assert_allclose(run(W, XS, LENGTHS), example_by_example(f, W), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("f", [rnn, attention])
def test_gradients_of_a_ragged_batch(f: Any) -> None:
    def total(w: Any, xs: Any) -> Any:
        return batched(f)(w, xs, LENGTHS).sum()

    run = fx.jit(fx.grad(total, argnums=(0, 1)))
    have_w, have_x = run(W, XS)
    want = fx.grad(lambda w: example_by_example(f, w).sum())(W)
    np.testing.assert_allclose(have_w, want, rtol=1e-3, atol=1e-4)
    for k, n in enumerate(LENGTHS):
        assert not np.asarray(have_x)[k, n:].any()
        if n:
            one = fx.grad(lambda x: f(W, x))(XS[k, :n])
            np.testing.assert_allclose(np.asarray(have_x)[k, :n], one, rtol=1e-3, atol=1e-4)


def test_per_example_gradients_of_a_ragged_batch() -> None:
    masked = fx.mask(attention, (None, "(n, _)"))
    each = fx.vmap(fx.grad(lambda w, x, n: masked(w, x, sizes={"n": n})), in_axes=(None, 0, 0))
    have = np.asarray(fx.jit(each)(W, XS, LENGTHS))
    for k, n in enumerate(LENGTHS):
        np.testing.assert_allclose(have[k], fx.grad(attention)(W, XS[k, :n]), rtol=1e-3, atol=1e-4)


def test_second_derivatives() -> None:
    masked = fx.mask(attention, (None, "(n, _)"))
    have = fx.hessian(lambda w: masked(w, XS[0], sizes={"n": 3}))(W)
    np.testing.assert_allclose(have, fx.hessian(lambda w: attention(w, XS[0, :3]))(W), rtol=1e-3, atol=1e-4)


def test_in_a_loop_and_under_remat() -> None:
    masked = fx.mask(attention, (None, "(n, _)"))

    def total(w: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            x, n = row
            return c + fx.remat(lambda u: masked(u, x, sizes={"n": n}))(w), None

        return lax.scan(step, 0.0, (fnp.asarray(XS), fnp.asarray(LENGTHS)))[0]

    have = fx.jit(fx.grad(total))(W)
    want = fx.grad(lambda w: example_by_example(attention, w).sum())(W)
    np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)


def test_one_compilation_for_every_length() -> None:
    run = fx.jit(lambda x, n: fx.mask(lambda a: fnp.log(a * a).sum() + a.mean(), ("n",))(x, sizes={"n": n}))
    x = np.full(9, np.nan, "float32")
    x[:7] = np.arange(1, 8)
    run(x, np.int32(1))
    before = fx.cache.stats().misses
    for n in range(1, 8):
        valid = np.arange(1, n + 1).astype("float32")
        np.testing.assert_allclose(run(x, np.int32(n)), np.log(valid * valid).sum() + valid.mean(), rtol=1e-5)
    assert fx.cache.stats().misses == before


def test_nested() -> None:
    def outer(x: Any, y: Any) -> Any:
        inner = fx.mask(lambda a: a.sum() / a.shape[0], ("n",))
        head = inner(x, sizes={"n": x.shape[0] // 2})
        return head + fx.mask(lambda a, b: a @ b, ("n", "n"))(x, x, sizes={"n": 1}) + y.sum()

    x, y = np.array([3, 1, 4, 1, 5, np.nan], "float32"), np.array([2, 7, np.nan], "float32")
    have = fx.mask(outer, ("n", "m"))(x, y, sizes={"n": 5, "m": 2})
    np.testing.assert_allclose(have, (3 + 1) / 2 + 9 + 9)


@pytest.mark.parametrize("names", [("n", "m"), ("m", "n")])
def test_programs_masked_one_size_after_the_other(names: tuple[str, str]) -> None:
    program = fx.trace(lambda x, y: (x - x.mean(0)) @ y, fx.Spec("n>=1, m"), fx.Spec("m, 2"))
    padding, rng = {"n": 4, "m": 5}, np.random.default_rng(1)
    first, second = names
    both = fx.mask(fx.mask(program, padding={first: padding[first]}), padding={second: padding[second]})
    assert both.in_tree == fx.mask(program, padding=padding).in_tree
    for n, m in ((1, 0), (3, 2), (4, 5)):
        x, y = np.full((4, 5), np.nan, "float32"), np.full((5, 2), -np.inf, "float32")
        x[:n, :m], y[:m] = rng.normal(size=(n, m)), rng.normal(size=(m, 2))
        have: Any = both(x, y, sizes={"n": np.int32(n), "m": np.int32(m)})
        np.testing.assert_allclose(have[:n], program(x[:n, :m], y[:m]), rtol=1e-4, atol=1e-6)
        assert not np.asarray(have[n:]).any()


def test_sizes_beside_other_arguments() -> None:
    """Keyword arguments are in alphabetical order. A function may have `sizes` by position, or with a default."""

    def f(x: Any, *, zoom: Any, a: Any) -> Any:
        return x * zoom + a.sum()

    a = np.array([5, 1, np.nan], "float32")
    program = fx.trace(f, fx.Spec("n, m"), zoom=2.0, a=fx.Spec("m"))
    masked = fx.mask(program, padding={"n": 2})
    assert masked.kwargs_tree.entries() == ["a", "sizes", "zoom"]
    twice = fx.mask(masked, padding={"m": 3})
    x = np.ones((2, 3), "float32")
    have = twice(x, zoom=np.float32(3), sizes={"m": np.int32(2), "n": np.int32(1)}, a=a)
    np.testing.assert_allclose(have, [[9, 9, 0], [0, 0, 0]])

    def by_position(x: Any, sizes: Any) -> Any:
        return x * sizes

    def with_default(x: Any, *, sizes: Any = 2) -> Any:
        return x * sizes

    np.testing.assert_allclose(fx.mask(by_position, ("n", None))(a, 2.0, sizes={"n": 2}), [10, 2, 0])
    np.testing.assert_allclose(fx.mask(with_default, ("n",))(a, sizes={"n": 2}), [10, 2, 0])


def test_the_gradient_of_a_masked_program_is_masked() -> None:
    program = fx.trace(lambda x, y: (fnp.sin(x) @ y).sum(), fx.Spec("n, m"), fx.Spec("m"))
    gradient = fx.mask(fx.grad(fx.mask(program, padding={"n": 3})), padding={"m": 4})
    x, y = np.full((3, 4), np.nan, "float32"), np.full(4, np.nan, "float32")
    x[:2, :3], y[:3] = np.arange(6).reshape(2, 3), [1, 2, 3]
    have: Any = gradient(x, y, sizes={"n": np.int32(2), "m": np.int32(3)})
    np.testing.assert_allclose(have[:2, :3], np.cos(x[:2, :3]) * y[:3], rtol=1e-5)
    assert not np.asarray(have[2:]).any()
    assert not np.asarray(have[:, 3:]).any()


def test_trees_keep_their_structure() -> None:
    def f(batch: Any, scale: Any) -> Any:
        return {"mean": batch["x"].mean(0) * scale, "rows": [batch["x"][1:], batch["y"].sum()]}

    masked = fx.mask(f, ({"x": "(n>=1, _)", "y": "m"}, None), {"mean": None, "rows": ["(n - 1, _)", ""]})
    x = np.arange(12, dtype="float32").reshape(4, 3)
    out = masked({"x": x, "y": np.array([1, np.nan], "float32")}, 2.0, sizes={"n": 3, "m": 1})
    np.testing.assert_allclose(out["mean"], x[:3].mean(0) * 2)
    np.testing.assert_allclose(out["rows"][0], np.concatenate([x[1:3], np.zeros((1, 3))]))
    np.testing.assert_allclose(out["rows"][1], 1)


def test_a_masked_program_is_a_program(tmp_path: Path) -> None:
    program = fx.trace(lambda x: (x[1:], x.sum()), fx.Spec("(n>=1, 3)"))
    masked = fx.mask(program, padding={"n": 4})
    assert masked.in_avals == (fx.Spec((4, 3)).aval, fx.Spec((), "int32").aval)
    assert masked is not program
    x = XS[0, :4]
    rest, total = masked(x, sizes={"n": 3})
    np.testing.assert_allclose(rest, np.concatenate([x[1:3], np.zeros((1, 3))]), rtol=1e-6)
    np.testing.assert_allclose(total, x[:3].sum(), rtol=1e-5)
    fx.save(masked, tmp_path / "masked")
    np.testing.assert_allclose(fx.load(tmp_path / "masked")(x, sizes={"n": 2})[1], x[:2].sum(), rtol=1e-5)
    assert fx.mask(program, padding={"n": 4}).jaxpr is masked.jaxpr


def test_grad_before_and_after() -> None:
    program = fx.trace(lambda x: fnp.log(x * x + 1).sum(), fx.Spec("n"))
    x = np.array([1, 2, np.nan], "float32")
    first = fx.mask(fx.grad(program), padding={"n": 3})(x, sizes={"n": 2})
    then = fx.grad(lambda v: fx.mask(program)(v, sizes={"n": 2}))(x)
    np.testing.assert_allclose(first, np.array([1, 4 / 5, 0]), rtol=1e-6)
    np.testing.assert_allclose(then, first, rtol=1e-6)


@pytest.mark.parametrize("growth", [2.0, 1.3])
def test_bucketed_takes_any_length(growth: float) -> None:
    run = fx.bucketed(lambda w, x: ((x @ w)[1:], x.sum()), (None, "(n>=1, _)"), growth=growth)
    padded = {fx.padded_size(n, growth=growth) for n in range(1, 60)}
    assert len(padded) <= np.log(60 / 8) / np.log(growth) + 3
    for n in (1, 7, 8, 9, 13, 16):
        x = RNG.normal(size=(n, 3)).astype("float32")
        rest, total = run(W, x)
        assert rest.shape == (n - 1, 3)
        np.testing.assert_allclose(rest, (x @ W)[1:], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(total, x.sum(), rtol=1e-4, atol=1e-5)


def test_an_argument_whose_size_is_a_difference() -> None:
    """Its padding is its own largest value, which it has when the other sizes are not the largest."""

    def rest(x: Any, y: Any, z: Any) -> Any:
        return fnp.concatenate([y, z * 2]) + x[0] if y.shape[0] + z.shape[0] == x.shape[0] else None

    shapes = ("n>=1", "m", "n-m")
    run, masked = fx.bucketed(rest, shapes), fx.mask(rest, shapes)
    for n, m in ((1, 0), (3, 3), (5, 2), (9, 1)):
        x, y, z = np.arange(n, dtype="float32") + 1, np.ones(m, "float32"), np.arange(n - m, dtype="float32")
        want = np.concatenate([y, z * 2]) + 1
        np.testing.assert_array_equal(run(x, y, z), want)
        args = [np.concatenate([a, np.full(9 - len(a), np.nan, "float32")]) for a in (x, y, z)]
        np.testing.assert_array_equal(masked(*args, sizes={"n": n, "m": m})[:n], want)


def test_ragged_batches_hold_every_example_once() -> None:
    examples: list[Any] = [{"x": np.full((n, 2), n, "float32"), "label": np.int32(n)} for n in (3, 9, 8, 2, 17, 5, 10)]
    seen = []
    for batch, lengths in fx.ragged_batches(examples, 2):
        assert batch["x"].shape[0] == len(lengths) <= 2
        for x, n, label in zip(batch["x"], lengths, batch["label"], strict=True):
            assert n == label
            assert (x[:n] == n).all()
            assert not x[n:].any()
            seen.append(int(n))
    assert sorted(seen) == [2, 3, 5, 8, 9, 10, 17]
    assert all([len(lengths) == 2 for _, lengths in fx.ragged_batches(examples, 2, drop_last=True)])


def test_python_numbers_in_ragged_batches_have_the_dtypes_of_fxad() -> None:
    examples: list[Any] = [
        {"x": np.ones(n, "float16"), "weight": 0.5, "label": n, "wide": np.float64(n)} for n in (2, 3)
    ]
    ((batch, _),) = fx.ragged_batches(examples, 2)
    dtypes = fx.tree.map(lambda x: x.dtype.name, batch)
    assert dtypes == {"x": "float16", "weight": "float32", "label": "int32", "wide": "float64"}


@pytest.mark.parametrize("lengths", [[3, 3], [3, 5], [5, 3], [8, 8]])
def test_arrays_that_are_not_ragged_are_stacked_for_any_lengths(lengths: list[int]) -> None:
    examples: list[Any] = [
        {"w": np.ones(3, "float32"), "x": [np.full((n, 2), n, "float32")], "k": np.int32(n)} for n in lengths
    ]
    ((batch, ns),) = fx.ragged_batches(examples, 2, ragged={"w": False, "x": True, "k": False})
    assert ns.tolist() == lengths
    assert fx.tree.map(np.shape, [batch["w"], *batch["x"], batch["k"]]) == [(2, 3), (2, 8, 2), (2,)]
    for x, n in zip(batch["x"][0], lengths, strict=True):
        assert (x[:n] == n).all()
        assert not x[n:].any()
    ((batch, _),) = fx.ragged_batches(examples, 3, length=lambda e: len(e["x"][0]))  # found for each batch
    assert batch["w"].shape == ((2, 8) if lengths == [3, 3] else (2, 3))


def test_custom_rules() -> None:
    @fx.custom_vjp
    def clipped(x: Any) -> Any:
        return x * x

    clipped.defvjp(lambda x: (x * x, x), lambda x, ct: (3 * x * ct,))
    program = fx.trace(lambda x: clipped(x).sum(), fx.Spec("n"))
    x = np.array([0.25, 3, np.nan], "float32")
    np.testing.assert_allclose(fx.mask(program)(x, sizes={"n": 2}), 9.0625)
    first = fx.mask(fx.grad(program))(x, sizes={"n": 2})
    np.testing.assert_allclose(first, np.array([0.75, 9, 0]))
    np.testing.assert_allclose(fx.grad(lambda v: fx.mask(program)(v, sizes={"n": 2}))(x), first)


def _sine_of(g: Any) -> Any:
    return lambda v: fnp.sin(g(v)).sum()


def _ragged_gradient(f: Any, x: Any, n: int, order: int = 1) -> None:
    """Compares derivatives of the masked function with those of the function at the size, up to an order."""
    masked = fx.mask(f, ("n",))

    def total(v: Any) -> Any:
        return (masked(v, sizes={"n": n}) * fnp.arange(1, 1 + x.shape[0])).sum()

    def plain(v: Any) -> Any:
        return (f(v) * fnp.arange(1, 1 + n)).sum()

    for _ in range(order):
        have, want = np.asarray(fx.grad(total)(x)), np.asarray(fx.grad(plain)(x[:n]))
        np.testing.assert_allclose(have[:n], want, rtol=1e-5)
        assert not have[n:].any()
        total, plain = _sine_of(fx.grad(total)), _sine_of(fx.grad(plain))


@pytest.mark.parametrize("n", [0, 1, 3, 5])
def test_derivatives_of_rules_that_call_their_own_function(n: int) -> None:
    @fx.custom_jvp
    def sin(x: Any) -> Any:
        return fnp.sin(x) * x.sum()

    @fx.custom_jvp
    def cos(x: Any) -> Any:
        return fnp.cos(x) * x.sum()

    sin.defjvp(lambda primals, tangents: (sin(*primals), cos(*primals) * tangents[0] * 2))
    cos.defjvp(lambda primals, tangents: (cos(*primals), -sin(*primals) * tangents[0] * 3))
    x = np.array([0.25, 0.5, -1, 2, 0.125], "float32")
    x[n:] = np.nan
    _ragged_gradient(sin, x, n, order=2)


@pytest.mark.parametrize("n", [0, 2, 4])
def test_derivatives_of_rules_with_symbolic_zeros_and_for_stacks(n: int) -> None:
    @fx.custom_vjp
    def weighted(x: Any, w: Any) -> Any:
        return x * w.sum()

    def forward(x: Any, w: Any) -> Any:
        return x.value * w.value.sum(), (x.value, w.value, w.perturbed)

    def backward(kept: Any, ct: Any) -> Any:
        x, w, perturbed = kept
        return 5 * ct * w.sum(), fnp.ones(w.shape) * (ct * x).sum() if perturbed else None

    weighted.defvjp(forward, backward, symbolic_zeros=True)
    x = np.array([1, 2, 3, np.nan], "float32")
    x[n:] = np.nan
    _ragged_gradient(lambda v: weighted(v, fnp.ones(3)), x, n)
    _ragged_gradient(lambda v: weighted(v, v), x, n)

    @fx.custom_vmap
    def shifted(v: Any) -> Any:
        return v - v.mean()

    shifted.def_vmap(lambda size, mapped, v: (2 * (v - v.mean(1, keepdims=True)), True))
    masked = fx.mask(shifted, ("n",))
    both = fx.vmap(lambda v: masked(v, sizes={"n": 3}))(np.array([[1, 2, 6, np.nan]] * 2, "float32"))
    np.testing.assert_allclose(both, [[-4, -2, 6, 0]] * 2)


def test_a_rule_that_cannot_be_masked_raises_when_it_is_used() -> None:
    @fx.custom_vjp
    def filtered(x: Any) -> Any:
        return x * 2

    def on_the_host(x: Any, ct: Any) -> Any:
        return (fx.pure_callback(np.multiply, fx.Spec(x.shape, x.dtype), x, ct),)

    filtered.defvjp(lambda x: (x * 2, x), on_the_host)
    masked = fx.mask(filtered, ("n>=1",))
    x = np.array([1, 2, np.nan], "float32")
    np.testing.assert_allclose(masked(x, sizes={"n": 2}), [2, 4, 0])
    with pytest.raises(fx.errors.NotDifferentiableError) as caught:
        fx.grad(lambda v: masked(v, sizes={"n": 2}).sum())(x)
    assert caught.value.message == (
        "call_with_rules: its rule <lambda> has no padded form: mask: host_call is not masked: the host takes arrays "
        "of the true size, which a padded program does not have"
    )
    assert caught.value.remedy == "mask the functions around it, or specialize the program to each size"


def test_jit_traces_once_for_every_size() -> None:
    traced = []

    def f(x: Any, w: Any) -> Any:
        traced.append(x.shape)
        return (x @ w).mean(0) * x.shape[0]

    run = fx.jit(f, symbolic=("(n, _)", None))
    for n in (2, 5, 3, 5):
        x = RNG.normal(size=(n, 3)).astype("float32")
        np.testing.assert_allclose(run(x, W), (x @ W).mean(0) * n, rtol=1e-4, atol=1e-5)
    assert len(traced) == 1


def test_one_exported_artifact_runs_at_every_size() -> None:
    program = fx.trace(lambda x: fnp.log(x * x + 1).sum() / x.shape[0], fx.Spec("n>=1"))
    exported = fx.load_exported(fx.lower(fx.mask(program, padding={"n": 6})).export())
    x = np.array([1, 2, 3, np.nan, np.inf, np.nan], "float32")
    for n in (1, 2, 3):
        want = np.log(x[:n] ** 2 + 1).sum() / n
        np.testing.assert_allclose(exported(x, sizes={"n": np.int32(n)}), want, rtol=1e-5)


def test_a_window_that_fits_by_the_sizes_in_nested_masks() -> None:
    """The masked size is bounded only by its padding, so only the padding shows that n rows fit in two."""
    program = parse("""main @window(%arg0: bool[2,3]) -> (bool[n,0]) {
      %0: bool[n,0] = index[starts=(0, {m}), sizes=({n}, 0), strides=(1, 1), dropped=(), dynamic=()] %arg0
      return %0
    }""")
    assert check_mask(RaggedCase(program, (("n", 2), ("m", 3)), {"n": 1, "m": 2}))
