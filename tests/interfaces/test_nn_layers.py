"""Layers of networks: normalization, dropout, embedding: formulas in float64, transformations, edges, errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import nn, random
from fxad.errors import ArgumentError, AxisNameError, DTypeError, ParameterError, ShapeError
from fxad.test_util import check_grads
from tests.api.refusals import check_refused

RNG = np.random.default_rng(8)
X = RNG.standard_normal((4, 3, 6)) * 2 + 1
SCALE, BIAS = RNG.standard_normal(6) + 1, RNG.standard_normal(6)
STATS = nn.BatchStats(fnp.asarray(RNG.standard_normal(6)), fnp.asarray(RNG.random(6) + 0.5))
grad: Any = fx.grad  # of lambdas, whose types mypy does not know
loose: Any = nn


def close(found: Any, wanted: Any, rtol: float = 1e-12, atol: float = 0.0) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=rtol, atol=atol)


def equal(found: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def moments_norm(x: Any, axes: tuple[int, ...], scale: Any = 1.0, bias: Any = 0.0, epsilon: float = 1e-5) -> Any:
    """The textbook formula in float64."""
    x = np.asarray(x, np.float64)
    off = x - x.mean(axes, keepdims=True)
    return off / np.sqrt((off**2).mean(axes, keepdims=True) + epsilon) * scale + bias


def batch(x: Any, training: bool = True) -> Any:
    return nn.batch_norm(x, STATS, SCALE, BIAS, training=training)[0]


# Each layer with its formula.
LAYERS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "layer": (partial(nn.layer_norm, scale=SCALE, bias=BIAS), lambda x: moments_norm(x, (2,), SCALE, BIAS)),
    "layer, two axes": (
        partial(nn.layer_norm, axis=(-1, 1), scale=np.outer(SCALE[:3], SCALE)),
        lambda x: moments_norm(x, (1, 2), np.outer(SCALE[:3], SCALE)),
    ),
    "layer, the first axis": (
        partial(nn.layer_norm, axis=0, bias=BIAS[:4], epsilon=0.1),
        lambda x: moments_norm(x, (0,), 1.0, BIAS[:4, None, None], 0.1),
    ),
    "rms": (
        partial(nn.rms_norm, scale=SCALE),
        lambda x: x / np.sqrt((np.square(x)).mean(2, keepdims=True) + 1e-6) * SCALE,
    ),
    "group": (
        lambda x: nn.group_norm(x, 2, SCALE, BIAS),
        lambda x: moments_norm(x.reshape(4, 3, 2, 3), (1, 3)).reshape(x.shape) * SCALE + BIAS,
    ),
    "group, channels in front": (
        lambda x: nn.group_norm(x, 3, SCALE[:3], channel_axis=1),
        lambda x: moments_norm(x, (2,), SCALE[:3, None]),
    ),
    "group, one example": (
        lambda x: nn.group_norm(x, 1, batch_axes=()), lambda x: moments_norm(x, (0, 1, 2)),
    ),
    "batch": (batch, lambda x: moments_norm(x, (0, 1), SCALE, BIAS)),
    "batch, running": (
        partial(batch, training=False),
        lambda x: (x - np.asarray(STATS.mean)) / np.sqrt(np.asarray(STATS.var, np.float64) + 1e-5) * SCALE + BIAS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_their_formulas(name: str) -> None:
    layer, formula = LAYERS[name]
    for fn in (layer, fx.jit(layer), fx.remat(layer)):
        close(np.asarray(fn(fnp.asarray(X))), formula(X), rtol=1e-12, atol=1e-13)
    check_grads(layer, (fnp.asarray(X),), order=2, modes=("fwd", "rev"))


@pytest.mark.parametrize("name", [n for n in LAYERS if not n.startswith("batch")])
def test_batches_are_loops(name: str) -> None:
    layer, _ = LAYERS[name]
    xs = fnp.stack([X, 3 * X, X - 5])
    close(fx.vmap(layer)(xs), np.stack([layer(x) for x in xs]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in LAYERS if n != "group, one example"])
def test_narrow_inputs_are_computed_in_float32(name: str, dtype: str) -> None:
    """The result is rounded once. Squares of 300 overflow in float16."""
    layer, formula = LAYERS[name]
    x = fnp.asarray(X * 300).astype(dtype)
    exact = formula(np.asarray(x, np.float64))
    y = layer(x)
    assert y.dtype == np.float64  # the scale is float64
    close(np.asarray(y), exact, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "layer", [nn.layer_norm, nn.rms_norm, nn.standardize, lambda x: nn.group_norm(x, 2),
              lambda x: nn.batch_norm(x, nn.BatchStats.init(6), training=True)[0]]
)  # fmt: skip
def test_the_dtype_is_kept_and_nothing_overflows(layer: Callable[[Any], Any], dtype: str) -> None:
    x = fnp.asarray(X * 1000).astype(dtype)
    y, exact = layer(x), layer(x.astype("float64"))
    assert y.dtype == x.dtype
    equal(np.asarray(y), np.asarray(exact.astype("float32")).astype(np.dtype(getattr(ml_dtypes, dtype, dtype))))


def test_promotion() -> None:
    half, single = fnp.asarray(X).astype("float16"), fnp.ones(6)
    assert nn.layer_norm(half, single).dtype == np.float32
    assert nn.layer_norm(half, 2.0, 1).dtype == np.float16  # a number takes the dtype of the input
    assert nn.rms_norm(np.arange(6)).dtype == np.float32
    stats = nn.BatchStats.init(6, "float16")
    y, after = nn.batch_norm(fnp.asarray(X, fnp.float32), stats, training=True)
    assert [a.dtype.name for a in (y, after.mean, after.var)] == ["float32", "float16", "float16"]
    z = X[..., :3] + 1j * X[..., 3:]
    off = z - z.mean(-1, keepdims=True)
    close(nn.layer_norm(z), off / np.sqrt((abs(off) ** 2).mean(-1, keepdims=True) + 1e-5), rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 5.0, 1e4])
def test_constant_rows_have_finite_derivatives(value: float) -> None:
    x = fnp.full((2, 6), value, "float32")
    for layer in (nn.layer_norm, nn.rms_norm, lambda x: nn.group_norm(x, 2),
                  lambda x: nn.batch_norm(x, nn.BatchStats.init(6), training=True)[0]):  # fmt: skip
        first = grad(lambda x, f=layer: (f(x) * fnp.arange(6.0)).sum())
        assert np.isfinite(np.asarray(first(x))).all()
        assert np.isfinite(np.asarray(grad(lambda x, g=first: g(x).sum())(x))).all()


def test_elements_outside_where_are_ignored() -> None:
    mask = RNG.random(X.shape) < 0.6
    mask[0, 0] = False
    dirty = np.where(mask, X, np.nan)
    for layer in (nn.layer_norm, nn.rms_norm, nn.standardize,
                  lambda x, where: nn.batch_norm(x, STATS, training=True, where=where)[0]):  # fmt: skip
        clean, soiled = layer(np.where(mask, X, 7.0), where=mask), layer(dirty, where=mask)
        equal(np.where(mask, clean, 0), np.where(mask, soiled, 0))
    row = X[1, 0][mask[1, 0]]
    close(np.asarray(nn.layer_norm(X, where=mask))[1, 0][mask[1, 0]], moments_norm(row, (0,)), rtol=1e-10)
    none = np.zeros(6, bool)
    assert np.isfinite(np.asarray(grad(lambda x: nn.layer_norm(x, where=none).sum())(fnp.asarray(X)))).all()


@pytest.mark.parametrize(
    "layer",
    [nn.layer_norm, partial(nn.layer_norm, axis=0), partial(nn.rms_norm, axis=(0, 1)),
     lambda x: nn.group_norm(x[None], 2)[0], lambda x: nn.batch_norm(x, STATS, training=True)[0]],
)  # fmt: skip
def test_ragged_sizes(layer: Callable[[Any], Any]) -> None:
    masked = fx.mask(layer, in_shapes=("(n, _)",))
    padded = np.concatenate([X[:, 0], np.full((3, 6), np.nan)])
    close(masked(padded, sizes={"n": 4})[:4], layer(fnp.asarray(X[:, 0])), rtol=1e-12, atol=1e-13)
    weights = np.arange(7.0)[:, None]
    slope = grad(lambda x: (masked(x, sizes={"n": 4}) * weights).sum())(fnp.asarray(padded))
    exact = grad(lambda x: (layer(x) * weights[:4]).sum())(fnp.asarray(X[:, 0]))
    close(slope[:4], exact, rtol=1e-10, atol=1e-12)


# -------------------------------------------------------------------------------------------------------- batch norm


def test_running_statistics() -> None:
    _, after = nn.batch_norm(X, STATS, training=True, momentum=0.75)
    close(after.mean, 0.75 * STATS.mean + 0.25 * X.mean((0, 1)), rtol=1e-12)
    close(after.var, 0.75 * STATS.var + 0.25 * X.var((0, 1)), rtol=1e-12)
    assert nn.batch_norm(X, STATS, training=False)[1] is STATS
    leaves, structure = fx.tree.flatten(after)
    assert [x.shape for x in leaves] == [(6,), (6,)]
    assert fx.tree.structure(nn.BatchStats.init(6)) == structure
    step = fx.jit(lambda x, s: nn.batch_norm(x, s, training=True))
    close(step(X, after)[1].mean, nn.batch_norm(X, after, training=True)[1].mean, rtol=1e-12)


@pytest.mark.parametrize("where", [None, RNG.random(X.shape) < 0.5])
def test_statistics_over_a_mapped_axis_are_those_of_the_whole_batch(where: Any) -> None:
    def shard(x: Any, w: Any) -> Any:
        return nn.batch_norm(x, STATS, training=True, axis_name="i", where=w)

    y, after = fx.vmap(shard, (0, None if where is None else 0), axis_name="i")(X, where)
    whole, wanted = nn.batch_norm(X, STATS, training=True, where=where)
    close(y, whole, rtol=1e-10, atol=1e-12)
    for k in range(4):
        close(after.mean[k], wanted.mean, rtol=1e-10)
        close(after.var[k], wanted.var, rtol=1e-10)


def test_mapped_axes_of_one_name_and_several_sizes() -> None:
    def mean(x: Any) -> Any:
        return nn.batch_norm(x, STATS, training=True, axis_name="rows", momentum=0)[1].mean

    for size in (2, 4, 1):
        close(fx.vmap(mean, axis_name="rows")(X[:size])[0], X[:size].mean((0, 1)), rtol=1e-12)
    with pytest.raises(AxisNameError) as e:  # the statistics are those before the calls above
        mean(X)
    assert e.value.message == "batch_norm: no map around binds axis 'rows'; axes in scope: none"
    close(nn.batch_norm(X, STATS, training=True, axis_name=(), momentum=0)[1].mean, X.mean((0, 1)), rtol=1e-12)


# ------------------------------------------------------------------------------------------------ dropout, embedding

KEY = random.key(3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout(rate: float, dtype: str) -> None:
    x = fnp.ones((40, 50), dtype)
    y = nn.dropout(x, rate, KEY)
    kept = random.bernoulli(KEY, 1 - rate, (40, 50))
    equal(np.asarray(y), np.asarray(fnp.where(kept, x / (1 - rate), 0)))
    assert y.dtype == x.dtype
    equal(nn.dropout(x, np.float64(rate), KEY), y)
    given = nn.dropout(x, fnp.float32(rate), KEY)
    assert given.dtype == x.dtype
    close(given.astype("float64"), y.astype("float64"), rtol=1e-2 if x.itemsize < 4 else 1e-6)
    # the share of zeros is the rate, within 5 standard deviations
    assert abs(1 - float(kept.mean(dtype="float64")) - rate) < 5 * (rate * (1 - rate) / 2000) ** 0.5


def test_dropout_at_rates_0_and_1() -> None:
    x = fnp.asarray(X)
    equal(nn.dropout(x, 0.0), x)
    equal(nn.dropout(x, 0.5, deterministic=True), x)
    assert not np.asarray(nn.dropout(x, 1.0, KEY)).any()
    assert not np.asarray(nn.dropout(x, fnp.float32(1), KEY)).any()
    equal(nn.dropout(x, fnp.float32(0), KEY), x)
    for rate in (0.0, 1.0, 0.25):
        slopes = grad(lambda x, r: nn.dropout(x, r, KEY).sum(), (0, 1))(x, fnp.float32(rate))
        assert all(np.isfinite(np.asarray(s)).all() for s in slopes)


def test_dropout_is_transformed() -> None:
    x = fnp.asarray(X)
    y = nn.dropout(x, 0.5, KEY)
    slope = grad(lambda x: nn.dropout(x, 0.5, KEY).sum())(x)
    equal(slope, np.where(np.asarray(y) == 0, 0, 2))
    again = grad(fx.remat(lambda x: nn.dropout(x, 0.5, KEY).sum()))(x)
    equal(again, slope)
    keys = random.split(KEY, 4)
    rows = fx.vmap(lambda x, k: nn.dropout(x, 0.5, k))(x, keys)
    equal(rows, np.stack([nn.dropout(a, 0.5, k) for a, k in zip(x, keys, strict=True)]))
    shared = np.asarray(nn.dropout(fnp.ones((5, 7, 30)), 0.5, KEY, broadcast_axes=(0, -2)))
    assert (shared == shared[:1, :1]).all()
    assert len(np.unique(shared)) == 2


def test_embedding() -> None:
    table = fnp.asarray(X[:, 0])
    at = np.array([[1, 3], [0, 1]], np.int8)
    equal(nn.embedding(table, at), X[:, 0][at])
    slope = grad(lambda t: nn.embedding(t, at).sum())(table)
    equal(slope[:, 0], [1, 2, 0, 1])
    equal(fx.vmap(lambda i: nn.embedding(table, i))(at), X[:, 0][at])
    assert np.asarray(nn.embedding(table, np.array([9]), mode="fill", fill_value=0)).tolist() == [[0.0] * 6]


# ------------------------------------------------------------------------------------------------------ against flax


def test_flax_computes_the_same() -> None:
    linen: Any = pytest.importorskip("flax.linen")
    jax: Any = pytest.importorskip("jax")
    x, scale, bias = [a.astype("float32") for a in (X, SCALE, BIAS)]
    params = {"params": {"scale": scale, "bias": bias}}
    stats = {"mean": np.asarray(STATS.mean, "f"), "var": np.asarray(STATS.var, "f")}
    norm = linen.BatchNorm(use_running_average=False, momentum=0.9)
    y, state = norm.apply({**params, "batch_stats": stats}, x, mutable=["batch_stats"])
    ours, after = nn.batch_norm(x, nn.BatchStats(*map(fnp.asarray, stats.values())), scale, bias, training=True)
    pairs = [
        (nn.layer_norm(x, scale, bias, epsilon=1e-6), linen.LayerNorm().apply(params, x)),
        (nn.rms_norm(x, scale), linen.RMSNorm().apply({"params": {"scale": scale}}, x)),
        (nn.group_norm(x, 3, scale, bias, epsilon=1e-6), linen.GroupNorm(3).apply(params, x)),
        (ours, y),
        (after.mean, state["batch_stats"]["mean"]),
        (after.var, state["batch_stats"]["var"]),
        (
            nn.embedding(x[0], np.array([2, 0])),
            linen.Embed(3, 6).apply({"params": {"embedding": x[0]}}, np.array([2, 0])),
        ),
    ]
    for found, wanted in pairs:
        close(np.asarray(found), np.asarray(wanted), rtol=2e-5, atol=2e-6)
    key = jax.random.key(5)
    wanted = linen.Dropout(0.3, deterministic=False).apply({}, x, rngs={"dropout": key})
    drawn = jax.random.bernoulli(key, 0.7, x.shape)
    mine = nn.dropout(x, 0.3, random.key(5))
    equal(np.asarray(mine) != 0, np.asarray(drawn))
    close(np.asarray(mine)[np.asarray(mine) != 0], x[np.asarray(drawn)] / np.float32(0.7), rtol=1e-6)
    assert (np.asarray(wanted) != 0).sum() > 0


# ----------------------------------------------------------------------------------------------------------- refusals

REFUSED: list[tuple[Callable[[], object], type[Exception], str, str | None]] = [
    (lambda: nn.layer_norm(X, BIAS[:3]), ShapeError,
     "layer_norm: scale has the shape (3,); axes (2,) of f64[4,3,6] have the shape (6,)",
     "give scale one element for each element of these axes"),
    (lambda: nn.layer_norm(X, where=X), ParameterError, "layer_norm: where is f64[4,3,6], not an array of bools",
     "compare: where=weights > 0"),
    (lambda: nn.group_norm(X, 4), ParameterError,
     "group_norm: num_groups 4 does not divide the 6 channels of f64[4,3,6]",
     "give a divisor of the number of channels"),
    (lambda: nn.group_norm(X[0, 0], 2), ParameterError, "group_norm: axis 0 is the channel axis and a batch axis",
     "pass batch_axes=() for one example without a batch axis"),
    (lambda: loose.batch_norm(X, (BIAS, BIAS), training=True), ParameterError,
     "batch_norm: stats is a tuple, not the running statistics",
     "make them with nn.BatchStats.init(channels), and pass what the last step returned"),
    (lambda: nn.batch_norm(X, nn.BatchStats.init(3), training=True), ShapeError,
     "batch_norm: stats.mean has the shape (3,); axes (2,) of f64[4,3,6] have the shape (6,)",
     "give stats.mean one element for each element of these axes"),
    (lambda: loose.batch_norm(X, STATS, training=True, axis_name=3), ArgumentError,
     "batch_norm: axis_name must be a sequence, got an int: 3", "give a tuple or a list"),
    (lambda: loose.batch_norm(X, STATS, training=True, axis_name=[[1]]), ArgumentError,
     "batch_norm: an axis name is a string, got a list: [1]", "give a name, or a tuple of names"),
    (lambda: nn.dropout(X, 1.5, KEY), ParameterError, "dropout: rate is 1.5", "give a probability: 0 <= rate <= 1"),
    (lambda: nn.dropout(X, np.ones(2), KEY), ParameterError, "dropout: rate is f64[2], not one floating number",
     "give a float, or an array of shape ()"),
    (lambda: nn.dropout(X, 0.5), ArgumentError, "dropout: there is no key",
     "pass a key of fxad.random, or deterministic=True to keep all elements"),
    (lambda: nn.embedding(np.array([1, 2]), X), DTypeError,
     "embedding: indices must be integers, got f64[4,3,6]",
     "the table is the first argument, the indices are the second"),
    (lambda: nn.embedding(3.0, np.array([1])), ShapeError, "embedding: the table is f32[]",
     "a table has a row for each index: f[n, d]"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    check_refused(*REFUSED[k])
