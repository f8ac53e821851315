"""Optimisers: the numbers of optax, typed states that are pytrees, and clear errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import optim
from fxad.errors import ArgumentError, ParameterError, TreeError

Tree = dict[str, Any]

PARAMS: Tree = {"w": np.array([[1.5, -2.0, 0.25]], "f"), "b": [np.array([0.5], "f")]}
GRADIENTS: list[Tree] = [
    {"w": np.array([[0.3, -0.7, 0.0]], "f") * 10**k, "b": [np.array([0.01 * (k - 1)], "f")]} for k in range(3)
]
WARMUP = optim.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)

OPTIMISERS: dict[str, Any] = {
    "sgd": optim.sgd(0.1),
    "momentum": optim.momentum(0.1),
    "nesterov": optim.momentum(0.1, nesterov=True),
    "adam": optim.adam(0.01),
    "nadam": optim.adam(0.01, nesterov=True),
    "adamw": optim.adamw(WARMUP, weight_decay=0.1),
    "lion": optim.lion(0.01),
    "clipped": optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.01)),
    "elementwise": optim.chain(optim.clip(1.0), optim.sgd(0.1)),
    "lbfgs": optim.lbfgs(0.1),
}

# The parameters after GRADIENTS, b and then w, computed with optax 0.2.8 under jax.jit.
OPTAX = {
    "sgd": (0.5, -1.8300002, 5.77, 0.25),
    "momentum": (0.50170994, -2.1513, 6.5197, 0.25),
    "nesterov": (0.50153905, -5.11617, 13.43773, 0.25),
    "adam": (0.5158418, 1.4749495, -1.9749495, 0.25),
    "nadam": (0.5138364, 1.4614599, -1.9614599, 0.25),
    "adamw": (0.51710576, 1.3678279, -1.8603529, 0.2462625),
    "lion": (0.50998473, 1.4699553, -1.9699403, 0.24999249),
    "clipped": (0.5217956, 1.4700066, -1.9700066, 0.25),
    "elementwise": (0.5, 1.27, -1.7299999, 0.25),
    "lbfgs": (0.50089025, 1.4729631, -1.9369136, 0.25),
}


def after(optimiser: Any, params: Any, gradients: list[Any]) -> Any:
    """Returns the parameters and the state after one step for each of the gradients."""

    def step(g: Any, state: Any, p: Any) -> Any:
        updates, following = optimiser.update(g, state, p)
        return optim.apply_updates(p, updates), following

    compiled = fx.jit(step)
    params = fx.tree.map(fnp.asarray, params)
    state = optimiser.init(params)
    for g in gradients:
        params, state = compiled(g, state, params)
    return params, state


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_numbers_are_those_of_optax(name: str) -> None:
    params, _ = after(OPTIMISERS[name], PARAMS, GRADIENTS)
    got = np.concatenate([np.ravel(x) for x in fx.tree.leaves(params)])
    np.testing.assert_array_max_ulp(got, np.array(OPTAX[name], "f"), maxulp=4)


def test_adam_in_float64_has_the_digits_of_float64() -> None:
    """Regression: 5 digits of a parameter were right, because the correction of the bias was that of float32."""
    b1, b2, rate = 0.9, 0.999, 0.1
    for nesterov in (False, True):
        gradients = np.random.default_rng(2).standard_normal((5, 3))
        found, _ = after(optim.adam(rate, nesterov=nesterov), np.ones(3), list(gradients))
        p, m, v = np.ones(3), np.zeros(3), np.zeros(3)
        for k, g in enumerate(gradients, 1):
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            first = m / (1 - b1**k)
            if nesterov:
                first = b1 * m / (1 - b1 ** (k + 1)) + (1 - b1) * g / (1 - b1**k)
            p = p - rate * first / (np.sqrt(v / (1 - b2**k)) + 1e-8)
        np.testing.assert_allclose(found, p, rtol=1e-13)


@pytest.mark.parametrize("bound", [0.0, 1.0])
def test_clipping_a_gradient_of_zeros(bound: float) -> None:
    """Regression: nan. Below the bound the update is the identity, and so is its derivative."""

    def clipped(g: Any) -> Any:
        return optim.clip_by_global_norm(bound).update(g)[0]

    assert not np.asarray(clipped(np.zeros(2, "f"))).any()
    np.testing.assert_array_equal(fx.jacrev(clipped)(np.zeros(2, "f")), np.eye(2) * (bound > 0))
    np.testing.assert_array_equal(fx.grad(fx.tree.global_norm)(np.zeros(2, "f")), np.zeros(2))


# The same optimisers of optax, if it is installed.
PEERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.sgd(0.1, 0.9),
    "nesterov": lambda o: o.sgd(0.1, 0.9, nesterov=True),
    "adam": lambda o: o.adam(0.01),
    "nadam": lambda o: o.adam(0.01, nesterov=True),
    "adamw": lambda o: o.adamw(o.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10), weight_decay=0.1),
    "lion": lambda o: o.lion(0.01),
    "clipped": lambda o: o.chain(o.clip_by_global_norm(1.0), o.adam(0.01)),
    "elementwise": lambda o: o.chain(o.clip(1.0), o.sgd(0.1)),
}


@pytest.mark.parametrize("name", PEERS)
def test_optax_computes_the_same(name: str) -> None:
    """Equal up to the last bits after each of ten steps with random gradients, some of them large."""
    optax: Any = pytest.importorskip("optax")
    jax: Any = pytest.importorskip("jax")
    peer = PEERS[name](optax)
    rng = np.random.default_rng(3)
    theirs = {"w": rng.standard_normal((3, 4)).astype("f"), "b": [rng.standard_normal(4).astype("f")]}
    ours: Any = fx.tree.map(fnp.asarray, theirs)
    state, their_state = OPTIMISERS[name].init(ours), peer.init(theirs)

    def step_of_theirs(g: Any, state: Any, p: Any) -> Any:
        updates, following = peer.update(g, state, p)
        return optax.apply_updates(p, updates), following

    their_step = jax.jit(step_of_theirs)

    @fx.jit
    def step(g: Any, state: Any, p: Any) -> Any:
        updates, following = OPTIMISERS[name].update(g, state, p)
        return optim.apply_updates(p, updates), following

    for k in range(10):
        g = {"w": rng.standard_normal((3, 4)).astype("f") * 10 ** (k % 3), "b": [rng.standard_normal(4).astype("f")]}
        ours, state = step(g, state, ours)
        theirs, their_state = their_step(g, their_state, theirs)
        for a, b in zip(fx.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=3e-6, atol=1e-6)


SCHEDULES: dict[str, tuple[Any, tuple[float, ...]]] = {
    "polynomial": (
        optim.polynomial_schedule(1.0, 0.1, 2, 10, 3),
        (1.0, 1.0, 0.82899994, 0.424, 0.109000005, 0.1),
    ),
    "linear": (optim.linear_schedule(1.0, 0.1, 10), (1.0, 0.90999997, 0.64000005, 0.37, 0.1, 0.1)),
    "exponential": (
        optim.exponential_decay(1.0, 10, 0.5),
        (1.0, 0.933033, 0.7578583, 0.6155722, 0.43527526, 0.125),
    ),
    "staircase": (optim.exponential_decay(1.0, 10, 0.5, 2, True, 0.3), (1.0, 1.0, 1.0, 1.0, 0.5, 0.3)),
    "cosine": (
        optim.cosine_decay_schedule(1.0, 10, 0.1, 2.0),
        (1.0, 0.9564898, 0.4855432, 0.1382322, 0.1, 0.1),
    ),
    "piecewise": (
        optim.piecewise_constant_schedule(1.0, {5: 0.1, 10: 0.5}),
        (1.0, 1.0, 1.0, 0.1, 0.05, 0.05),
    ),
    "warmup": (optim.warmup_constant_schedule(0.0, 1.0, 5), (0.0, 0.19999999, 0.8, 1.0, 1.0, 1.0)),
    "warmup_cosine": (
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 5, 20, 0.1),
        (0.0, 0.19999999, 0.8, 0.9610954, 0.5970378, 0.1),
    ),
    "constant": (optim.constant_schedule(0.5), (0.5,) * 6),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_optax(name: str) -> None:
    schedule, expected = SCHEDULES[name]
    compiled = fx.jit(schedule)
    for count, value in zip((0, 1, 4, 7, 12, 30), expected, strict=True):
        for got in (schedule(count), compiled(np.int32(count))):
            assert (got.shape, got.dtype) == ((), fnp.float32)
            np.testing.assert_allclose(float(got), value, rtol=5e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_leaves_keep_their_dtype_and_states_their_types(name: str, dtype: str) -> None:
    params = {"w": fnp.ones((2, 3), dtype), "empty": fnp.zeros((0,), dtype), "scalar": fnp.ones((), dtype)}
    before = OPTIMISERS[name].init(params)
    following, state = after(OPTIMISERS[name], params, [fx.tree.map(fnp.ones_like, params)] * 2)
    assert [(x.shape, x.dtype) for x in fx.tree.leaves(following)] == [
        (x.shape, x.dtype) for x in fx.tree.leaves(params)
    ]
    assert fx.tree.structure(state) == fx.tree.structure(before)
    for x, y in zip(fx.tree.leaves(state), fx.tree.leaves(before), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
    assert all(np.isfinite(np.asarray(x, np.float64)).all() for x in fx.tree.leaves(following))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"eps_root": 1e-8}, {"nesterov": True}])
def test_small_gradients_of_half_types(options: dict[str, Any], dtype: str) -> None:
    """1e-5 squared is 0 in float16, and so is eps: 0 / 0, and an infinite update."""
    optimiser, params = optim.adam(1e-3, **options), fnp.zeros(3)
    gradient = fnp.asarray([0, 1e-5, 1])
    wide, narrow = optimiser.init(params), optimiser.init(params.astype(dtype))
    for _ in range(3):
        want, wide = optimiser.update(gradient, wide)
        have, narrow = optimiser.update(gradient.astype(dtype), narrow)
        assert have.dtype == dtype
        np.testing.assert_allclose(np.asarray(have, np.float32), np.asarray(want), rtol=0.03)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_variance_of_half_types_decays(dtype: str) -> None:
    """In bfloat16, 0.999 times a number is that number."""
    optimiser = optim.adam(1e-3)
    state = optimiser.init(fnp.zeros((), dtype))
    step = fx.jit(lambda g, state: optimiser.update(g, state)[1])
    for k in range(1000):
        state = step(fnp.asarray(1 if k < 200 else 0, dtype), state)
    np.testing.assert_allclose(np.asarray(state.variance), (1 - 0.999**200) * 0.999**800, rtol=1e-3)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_updates_of_numpy_gradients_are_arrays(name: str) -> None:
    updates, state = OPTIMISERS[name].update(GRADIENTS[0], OPTIMISERS[name].init(PARAMS), PARAMS)
    assert {type(x) for x in fx.tree.leaves((updates, state))} == {fx.Array}
    assert {type(x) for x in fx.tree.leaves(optim.apply_updates(PARAMS, GRADIENTS[0]))} == {fx.Array}


def test_a_rate_may_be_an_array_that_is_differentiated() -> None:
    def loss(rate: fx.Array) -> fx.Array:
        optimiser = optim.adam(rate, eps_root=1e-8)
        params = {"w": fnp.asarray([1.0, 2.0], fnp.float32)}
        updates, _ = optimiser.update({"w": params["w"] * 2}, optimiser.init(params), params)
        return fnp.sum(optim.apply_updates(params, updates)["w"] ** 2)

    slope = fx.grad(loss)(fnp.asarray(0.1, fnp.float32))
    # the first step of Adam is nearly rate * sign(g)
    np.testing.assert_allclose(float(slope), -2 * (0.9 + 1.9), rtol=1e-3)


def test_a_training_loop_is_one_scan() -> None:
    optimiser = optim.chain(optim.clip_by_global_norm(10.0), optim.adamw(0.1, weight_decay=0.0))

    def train(w: fx.Array) -> fx.Array:
        def step(carry: Any, _: None) -> tuple[Any, fx.Array]:
            w, state = carry
            value, g = fx.value_and_grad(lambda w: fnp.sum((w - 3) ** 2))(w)
            updates, state = optimiser.update(g, state, w)
            return (optim.apply_updates(w, updates), state), value

        (w, _), values = fx.lax.scan(step, (w, optimiser.init(w)), None, length=200)
        return fnp.stack([fnp.max(abs(w - 3)), values[-1]])

    assert bool(fnp.all(fx.jit(train)(fnp.zeros(4, fnp.float32)) < 1e-2))
    batch = fx.vmap(train)(fnp.asarray([[0.0, 1.0], [5.0, -5.0]], fnp.float32))
    assert bool(fnp.all(batch < 0.3))


def test_masked_leaves_have_no_weight_decay() -> None:
    params = {"w": fnp.ones(2, fnp.float32), "b": fnp.ones(2, fnp.float32)}
    zero = fx.tree.map(fnp.zeros_like, params)
    for mask in ({"w": True, "b": False}, lambda p: {k: k == "w" for k in p}):
        optimisers: list[Any] = [
            optim.adamw(1.0, weight_decay=0.5, mask=mask),
            optim.lion(1.0, weight_decay=0.5, mask=mask),
        ]
        for optimiser in optimisers:
            updates, _ = optimiser.update(zero, optimiser.init(params), params)
            assert np.array_equal(np.asarray(updates["w"]), [-0.5, -0.5])
            assert np.array_equal(np.asarray(updates["b"]), [0, 0])


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8), st.floats(0.125, 100, width=32))
def test_a_clipped_tree_has_at_most_the_norm(values: list[float], most: float) -> None:
    tree = {"a": np.array(values, "f"), "b": np.array(values[:1], "f")}
    clipped, _ = optim.clip_by_global_norm(most).update(tree)
    norm = float(optim.global_norm(tree))
    np.testing.assert_allclose(
        norm, np.sqrt(sum(np.sum(np.float64(x) ** 2) for x in tree.values())), rtol=1e-5, atol=1e-18
    )
    np.testing.assert_allclose(float(optim.global_norm(clipped)), min(norm, most), rtol=1e-5)
    if norm < most:
        assert all(np.array_equal(np.asarray(clipped[k]), tree[k]) for k in tree)


def test_the_global_norm_of_empty_complex_and_narrow_leaves() -> None:
    assert float(optim.global_norm({})) == 0
    assert float(optim.global_norm({"a": np.zeros((0, 2), "f")})) == 0
    assert float(optim.global_norm([np.array([3 + 4j], "complex64")])) == 5
    wide = optim.global_norm([fnp.full(4, 300, "float16")])  # 300**2 is more than float16 has
    assert float(wide) == 600
    assert wide.dtype == fnp.float32


def rosenbrock(x: fx.Array) -> fx.Array:
    return fnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_lbfgs_finds_the_minimum_of_rosenbrock() -> None:
    optimiser = optim.lbfgs()

    @fx.jit
    def step(x: fx.Array, state: Any) -> Any:
        updates, state = optimiser.update(fx.grad(rosenbrock)(x), state, x, value_fn=rosenbrock)
        return optim.apply_updates(x, updates), state

    x = fnp.zeros(10, fnp.float64)
    state = optimiser.init(x)
    values = [float(rosenbrock(x))]
    for _ in range(80):
        x, state = step(x, state)
        values.append(float(rosenbrock(x)))
    assert values[-1] < 1e-12
    assert all(b <= a for a, b in pairwise(values))  # a line search never increases the value


@given(st.floats(0.125, 8, width=32), st.floats(-4, 4, width=32))
def test_a_line_search_satisfies_the_weak_wolfe_conditions(scale: float, start: float) -> None:
    def value(x: fx.Array) -> fx.Array:
        return scale * (x - 1) ** 2 + fnp.cos(x)

    x = fnp.asarray(start, fnp.float64)
    slope = float(fx.grad(value)(x))
    t = optim.line_search(value, x, fnp.asarray(-slope, fnp.float64), max_steps=60)
    there = x - t * slope
    assert float(value(there)) <= float(value(x)) - 1e-4 * float(t) * slope**2 + 1e-12
    if abs(slope) > 1e-6:
        assert -slope * float(fx.grad(value)(there)) >= -0.9 * slope**2 - 1e-12


def test_an_ascent_direction_and_nan_give_no_step() -> None:
    up = optim.line_search(lambda x: x**2, fnp.asarray(1.0), fnp.asarray(1.0))
    assert float(up) == 0
    nan = optim.line_search(lambda x: fnp.where(x > 0.99, x, fnp.nan), fnp.asarray(1.0), fnp.asarray(-1e9))
    assert float(nan) == 0


ERRORS: dict[str, tuple[Any, str, str]] = {
    "rate": (
        lambda: optim.adam("0.1"),  # type: ignore[arg-type] # a wrong type is what is tested
        "adam: learning_rate is '0.1'",
        "give a number, an array of shape (), or a function from the number of steps to one of these",
    ),
    "nan": (
        lambda: optim.sgd(float("nan")),
        "sgd: learning_rate is nan",
        "give a number, an array of shape (), or a function from the number of steps to one of these",
    ),
    "vector": (
        lambda: optim.momentum(np.ones(2)),  # type: ignore[arg-type] # a wrong type is what is tested
        "momentum: learning_rate is array([1., 1.])",
        "give a number, an array of shape (), or a function from the number of steps to one of these",
    ),
    "decay": (lambda: optim.adam(0.1, b1=1.0), "adam: b1 is 1.0", "give a number x with 0 <= x < 1"),
    "weights": (
        lambda: optim.adamw(0.1, weight_decay=-1.0),
        "adamw: weight_decay is -1.0",
        "give a number x with 0 <= x",
    ),
    "params": (
        lambda: optim.adamw(0.1).update(PARAMS, optim.adamw(0.1).init(PARAMS)),
        "adamw: update needs the parameters",
        "write `update(gradients, state, params)`",
    ),
    "part": (
        lambda: optim.chain(optim.clip(1.0), 3),  # type: ignore[arg-type] # a wrong type is what is tested
        "chain: argument 1 is an int, not a transformation",
        "give optimisers and clippings of fxad.optim, or objects with `init` and `update`",
    ),
    "state": (
        lambda: optim.chain(optim.clip(1.0), optim.sgd(1.0)).update(PARAMS, ()),
        "chain: the state is a tuple, not a tuple of 2 states",
        "give the state that `init` or the last `update` of this chain returned",
    ),
    "memory": (
        lambda: optim.lbfgs(memory_size=0),
        "lbfgs: memory_size is 0, less than 1",
        "give an int from 1 on",
    ),
    "memory, a bool": (
        lambda: optim.lbfgs(memory_size=True),
        "lbfgs: memory_size is a bool, not an int: True",
        "memory_size is static: a Python int",
    ),
    "function": (
        lambda: optim.lbfgs().update(PARAMS, optim.lbfgs().init(PARAMS), PARAMS),
        "lbfgs: the line search needs the function that is minimised",
        "write `update(gradients, state, params, value_fn=loss)`, or give a learning_rate",
    ),
    "steps": (
        lambda: optim.linear_schedule(1.0, 0.0, 0),
        "polynomial_schedule: transition_steps is 0",
        "give a positive number of steps",
    ),
    "boundaries": (
        lambda: optim.join_schedules([optim.constant_schedule(1.0)], [3]),
        "join_schedules: 1 schedules and boundaries [3]",
        "give one boundary between two schedules each, in increasing order",
    ),
    "warmup": (
        lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10),
        "warmup_cosine_decay_schedule: warmup_steps is 10, decay_steps is 10",
        "give 0 < warmup_steps < decay_steps: the decay ends at step decay_steps, warmup included",
    ),
    "nesterov": (
        lambda: optim.adam(0.1, nesterov="no"),  # type: ignore[arg-type]
        "adam: nesterov must be True or False, got a str: 'no'",
        "it is static: a Python value, which cannot come from a traced array",
    ),
    "rate of decay": (
        lambda: optim.exponential_decay(1.0, 10, 0.0),
        "exponential_decay: decay_rate is 0.0",
        "give a positive number",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_messages(name: str) -> None:
    call, message, remedy = ERRORS[name]
    with pytest.raises((ArgumentError, ParameterError)) as caught:
        call()
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


def test_gradients_of_another_structure_are_named() -> None:
    optimiser = optim.adam(0.1)
    with pytest.raises(TreeError, match=r"tree\.map: tree 1 differs from the first: "):
        optimiser.update({"w": PARAMS["w"]}, optimiser.init(PARAMS), PARAMS)
