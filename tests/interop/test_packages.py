"""Models and functions of other packages, translated by `from_jax`. Each test runs if its package is installed."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
from tests.interop.jax_laws import agree, close, jax, package

interop = pytest.importorskip("fxad.interop.jax")
from_jax, to_jax = interop.from_jax, interop.to_jax
jnp = jax.numpy
grad: Any = fx.grad  # of lambdas, whose types mypy does not know
draw = np.random.default_rng(0)
X = draw.normal(size=(2, 6, 8)).astype(np.float32)
IMAGES = draw.normal(size=(2, 8, 8, 3)).astype(np.float32)


def numpied(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def test_a_transformer_of_linen() -> None:
    nn = package("flax.linen")
    attention = nn.MultiHeadDotProductAttention(num_heads=2)
    norm, dense, out = nn.LayerNorm(), nn.Dense(16), nn.Dense(8)
    key = jax.random.key(0)
    params = numpied({
        "attention": attention.init(key, X), "norm": norm.init(key, X), "dense": dense.init(key, X),
        "out": out.init(key, np.ones((2, 6, 16), np.float32)),
    })  # fmt: skip

    def block(p: Any, x: Any) -> Any:
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        y = x + attention.apply(p["attention"], norm.apply(p["norm"], x), mask=mask)
        return y + out.apply(p["out"], nn.gelu(dense.apply(p["dense"], y)))

    agree(from_jax(block, params, X), block, (params, X), stack=False)


def test_a_convolutional_network_of_linen_with_state_and_dropout() -> None:
    nn = package("flax.linen")
    layers = [nn.Conv(4, (3, 3)), nn.BatchNorm(use_running_average=False), nn.Dropout(0.5, deterministic=False)]
    key = jax.random.key(0)
    conv = numpied(layers[0].init(key, IMAGES))
    state = numpied(layers[1].init(key, np.ones((2, 8, 8, 4), np.float32)))

    def net(conv: Any, state: Any, key: Any, x: Any) -> Any:
        y = nn.max_pool(nn.relu(layers[0].apply(conv, x)), (2, 2), (2, 2))
        y, updated = layers[1].apply(state, y, mutable=["batch_stats"])
        return layers[2].apply({}, y, rngs={"dropout": key}).mean((1, 2)), updated

    key = jax.random.PRNGKey(1)
    agree(from_jax(net, conv, state, key, IMAGES), net, (conv, state, key, IMAGES), orders=1, stack=False, wrt=(0, 3))


def test_a_recurrent_network_of_linen() -> None:
    nn = package("flax.linen")
    rnn = nn.RNN(nn.LSTMCell(5))
    params = numpied(rnn.init(jax.random.key(0), X))
    agree(from_jax(rnn.apply, params, X), rnn.apply, (params, X), stack=False)


def test_the_example_of_flax(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is trained in JAX, saved, and run and differentiated in a process that has no JAX."""
    package("flax.linen")
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.syspath_prepend(examples)
    figures = runpy.run_path(str(examples / "flax_model.py"))["main"](["--steps", "1000"])
    assert figures["values"] < 1e-5
    assert figures["slopes"] < 1e-4
    assert figures["misfit"] < 0.05, "the noise is 0.01"


def test_a_model_of_nnx() -> None:
    nnx = package("flax.nnx")
    model = nnx.Sequential(nnx.Linear(8, 16, rngs=nnx.Rngs(0)), nnx.gelu, nnx.LayerNorm(16, rngs=nnx.Rngs(1)))
    graph, state = nnx.split(model)

    def f(state: Any, x: Any) -> Any:
        return nnx.merge(graph, state)(x)

    program = from_jax(f, state, X)
    close(program(state, X), f(state, X), "value")
    gradient = grad(lambda s, x: fx.numpy.sum(program(s, x) ** 2))(state, X)
    wanted = jax.grad(lambda s, x: (f(s, x) ** 2).sum())(state, X)
    close(gradient, wanted, "gradient")
    assert type(gradient) is type(state)


def test_a_model_of_equinox() -> None:
    eqx = package("equinox")
    model = eqx.nn.MLP(8, 4, 16, 2, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)

    def f(arrays: Any, x: Any) -> Any:
        return jax.vmap(jax.vmap(eqx.combine(arrays, static)))(x)

    program = from_jax(f, arrays, X)
    close(program(arrays, X), f(arrays, X), "value")
    gradient = grad(lambda a, x: fx.numpy.sum(program(a, x) ** 2))(arrays, X)
    close(gradient, jax.grad(lambda a, x: (f(a, x) ** 2).sum())(arrays, X), "gradient")


def test_a_model_of_haiku() -> None:
    hk = package("haiku")
    net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([8, 3], activation=jnp.tanh)(x)))
    params = numpied(net.init(jax.random.PRNGKey(0), X))
    agree(from_jax(net.apply, params, X), net.apply, (params, X), stack=False)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lion", "rmsprop", "adafactor", "lamb", "yogi"])
def test_updates_of_optax(name: str) -> None:
    optax = package("optax")
    rule = optax.chain(optax.clip_by_global_norm(1.0), getattr(optax, name)(1e-2))
    params = {"w": X[0], "b": X[0, 0]}
    state = numpied(rule.init(params))

    def step(params: Any, state: Any, gradient: Any) -> Any:
        updates, state = rule.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    agree(from_jax(step, params, state, params), step, (params, state, params), orders=0, stack=False)


def test_losses_and_schedules_of_optax() -> None:
    optax = package("optax")
    labels = np.array([1, 3, 0, 2, 7, 5])

    def f(x: Any) -> Any:
        rate = optax.warmup_cosine_decay_schedule(0.0, 1.0, 5, 20)(jnp.int32(7))
        return optax.softmax_cross_entropy_with_integer_labels(x, labels).mean() * rate + optax.huber_loss(x).sum()

    agree(from_jax(f, X[0]), f, (X[0],), stack=False)


def test_a_solve_of_diffrax() -> None:
    diffrax = package("diffrax")

    def f(y: Any, a: Any, **kwargs: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, a: -a * y + jnp.sin(t))
        save, steps = diffrax.SaveAt(ts=jnp.linspace(0, 1, 3)), diffrax.PIDController(rtol=1e-4, atol=1e-5)
        return diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, a, saveat=save, stepsize_controller=steps, max_steps=64, **kwargs
        ).ys

    y, a = X[0, 0], np.float32(0.7)
    agree(from_jax(f, y, a), f, (y, a), orders=0, stack=False)

    def direct(y: Any, a: Any) -> Any:
        return f(y, a, adjoint=diffrax.DirectAdjoint())

    agree(from_jax(direct, y, a), direct, (y, a), orders=1, stack=False)


@pytest.mark.deep
def test_the_default_adjoint_of_diffrax() -> None:
    """Its rules accept only the set of arguments that depend on a differentiated one."""
    diffrax = pytest.importorskip("diffrax")

    def f(y: Any, a: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, a: -a * y)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.25, y, a).ys.sum()

    y, a = X[0, :2], np.float32(0.7)
    have, want = fx.grad(from_jax(f, y, a), argnums=(0, 1)), jax.grad(f, argnums=(0, 1))
    for x, w in zip(have(y, a), want(y, a), strict=True):
        np.testing.assert_allclose(x, w, rtol=1e-5)


def test_a_log_density_of_numpyro() -> None:
    numpyro = package("numpyro")
    dist, util = numpyro.distributions, package("numpyro.infer.util")

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([8]))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.StudentT(rate + 1, x @ w, scale), obs=y)

    def density(params: Any, x: Any, y: Any) -> Any:
        return util.log_density(model, (x, y), {}, params)[0]

    params = {"w": X[0, 0], "scale": np.float32(0.7), "rate": np.float32(1.3)}
    agree(from_jax(density, params, X[0], X[0, :, 0]), density, (params, X[0], X[0, :, 0]), wrt=(0,), stack=False)


def test_a_step_of_blackjax() -> None:
    blackjax = package("blackjax")

    def f(key: Any, x: Any) -> Any:
        kernel = blackjax.nuts(lambda q: -0.5 * (q**2).sum(), 0.5, jnp.ones(8))
        state, info = kernel.step(key, kernel.init(x))
        return state.position, info.acceptance_rate

    key = jax.random.PRNGKey(3)
    agree(from_jax(f, key, X[0, 0]), f, (key, X[0, 0]), orders=0, stack=False)


def test_a_solver_of_jaxopt() -> None:
    jaxopt = package("jaxopt")

    def f(x: Any, y: Any) -> Any:
        return jaxopt.GradientDescent(lambda w: ((x @ w - y) ** 2).mean(), maxiter=20, tol=0.0).run(jnp.zeros(8)).params

    close(from_jax(f, X[0], X[0, :, 1])(X[0], X[0, :, 1]), f(X[0], X[0, :, 1]), "value")


def test_a_model_through_from_jax_and_to_jax() -> None:
    nn = package("flax.linen")
    dense = nn.Sequential([nn.Dense(8), nn.tanh, nn.LayerNorm()])
    params = numpied(dense.init(jax.random.key(0), X))
    back = to_jax(from_jax(dense.apply, params, X))
    agree(back, dense.apply, (params, X), by=jax, stack=False)
