"""`from_jax`: control flow, calls, segments, rules, keys, collectives; and what is refused."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from tests.interop.jax_laws import agree, close, jax

interop = pytest.importorskip("fxad.interop.jax")
from_jax = interop.from_jax
checkpoint_name = pytest.importorskip("jax.ad_checkpoint").checkpoint_name
jnp, lax = jax.numpy, jax.lax
draw = np.random.default_rng(0)
X = draw.uniform(-2, 2, (3, 4)).astype(np.float32)
V = draw.uniform(-2, 2, 4).astype(np.float32)
SQUARE = (draw.uniform(-1, 1, (4, 4)) + 4 * np.eye(4)).astype(np.float32)


# ---------------------------------------------------------------------------------------------------- control flow


def scanned(x: Any, v: Any) -> Any:
    return lax.scan(lambda c, r: (jnp.tanh(c + r * v), c * r), v, x)


def backwards(x: Any) -> Any:
    return lax.scan(lambda c, r: (c * r, (c, r.sum())), jnp.ones(4), x, reverse=True, unroll=2)


def looped(x: Any, v: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * v + x[i], v)


def nested(x: Any, v: Any) -> Any:
    def row(c: Any, r: Any) -> Any:
        return lax.scan(lambda d, s: (d + s * c, d), jnp.cos(c), r)[0] * c, c

    return lax.scan(row, v, x)


def branched(x: Any, v: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda a, b: a @ b, lambda a, b: a[:, 0] * b[0], x, v)


def switched(x: Any, v: Any) -> Any:
    return lax.switch(jnp.argmax(v), [jnp.sin, jnp.cos, lambda y: y**2, lambda y: y * v], x)


def mapped(x: Any, v: Any) -> Any:
    return lax.map(lambda r: jnp.tanh(r) @ v, x) + lax.associative_scan(jnp.multiply, x).sum(1)


def by_platform(x: Any) -> Any:
    return lax.platform_dependent(x, cpu=lambda y: y**2, default=lambda y: y**3)


@pytest.mark.parametrize("f", [scanned, looped, nested, branched, switched, mapped], ids=lambda f: f.__name__)
def test_control_flow_of_two_arguments(f: Any) -> None:
    agree(from_jax(f, X, V), f, (X, V))


@pytest.mark.parametrize("f", [backwards, by_platform], ids=lambda f: f.__name__)
def test_control_flow_of_one_argument(f: Any) -> None:
    agree(from_jax(f, X), f, (X,))


def test_a_loop_without_a_bound() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: (c[0] * c[0]).sum() < 100, lambda c: (c[0] * 1.5 + x, c[1] + 1), (x, 0))

    agree(from_jax(f, V), f, (V,), orders=0)
    tangents = (np.ones_like(V),)
    theirs = jax.jvp(lambda x: f(x)[0], (V,), tangents)
    close(fx.jvp(lambda x: from_jax(f, V)(x)[0], (V,), tangents), theirs, "jvp")


# ----------------------------------------------------------------------------------------------- calls and segments


def test_a_function_that_is_called_twice_is_translated_once() -> None:
    @jax.jit
    def block(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w) + x

    def f(w: Any, x: Any) -> Any:
        return block(w, block(w, x))

    program = from_jax(f, SQUARE, X)
    calls = [e.prim for e in program.jaxpr.eqns if isinstance(e.prim, Call)]
    assert len(calls) == 2
    assert calls[0].body is calls[1].body
    agree(program, f, (SQUARE, X))


@pytest.mark.parametrize(
    "policy", [None, *("everything_saveable", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable")]
)
def test_checkpoint_becomes_remat(policy: str | None) -> None:
    chosen = policy and getattr(jax.checkpoint_policies, policy)

    def f(w: Any, x: Any) -> Any:
        return jax.checkpoint(lambda a: jnp.sin(jnp.sin(a) @ w), policy=chosen)(x * 2)

    program = from_jax(f, SQUARE, X)
    assert any(isinstance(e.prim, Remat) for e in program.jaxpr.eqns)
    agree(program, f, (SQUARE, X))


def test_policies_by_name() -> None:
    policies = jax.checkpoint_policies
    only = policies.save_only_these_names("h")

    def f(x: Any, policy: Any = only) -> Any:
        @functools.partial(jax.checkpoint, policy=policy)
        def g(y: Any) -> Any:
            return jnp.sin(checkpoint_name(jnp.sin(y), "h")) * y

        return g(x) + 1

    agree(from_jax(f, X), f, (X,))
    assert "name" in from_jax(f, X).text()
    both = policies.save_from_both_policies(only, policies.dots_saveable)
    for policy in (both, policies.save_any_names_but_these("k")):
        g = functools.partial(f, policy=policy)
        agree(from_jax(g, X), g, (X,))


def test_a_segment_that_jax_has_differentiated_is_translated_too() -> None:
    def f(x: Any) -> Any:
        return jax.grad(lambda y: jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)).sum())(y * 2))(x)

    agree(from_jax(f, X), f, (X,), orders=1)


@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd, jax.hessian, jax.jacrev], ids=lambda t: t.__name__)
def test_what_jax_transforms_comes_in(transform: Any) -> None:
    def f(v: Any) -> Any:
        return transform(lambda y: jnp.tanh(y * jnp.cumsum(y)).sum())(v)

    agree(from_jax(f, V), f, (V,), orders=1)


# ----------------------------------------------------------------------------------------------------------- rules


@jax.custom_jvp
def log1pexp(x: Any) -> Any:
    return jnp.log1p(jnp.exp(x))


@log1pexp.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return log1pexp(x), (1 - jax.nn.sigmoid(-x)) * t * 3  # 3: this rule, and no other


@jax.custom_jvp
def scaled_by_count(x: Any, n: Any) -> Any:
    return x * n


scaled_by_count.defjvp(lambda primals, tangents: (scaled_by_count(*primals), tangents[0] * 7), symbolic_zeros=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scaled(k: float, x: Any, n: Any) -> Any:
    return jnp.sin(x) * k * n


scaled.defvjp(lambda k, x, n: (scaled(k, x, n), (x, n)), lambda k, res, ct: (ct * jnp.cos(res[0]) * k * 5, None))


@jax.custom_vjp
def pair(x: Any, y: Any) -> Any:
    return x * y, jnp.argmax(x)


pair.defvjp(lambda x, y: (pair(x, y), (x, y)), lambda res, cts: (cts[0] * res[1], cts[0] * res[0] * 2))


@pytest.mark.parametrize(
    "f",
    [
        log1pexp,
        lambda x: log1pexp(log1pexp(x) * x),
        lambda x: scaled_by_count(x, jnp.int32(3)),
        lambda x: scaled(2.0, x, jnp.int32(2)) + scaled(3.0, x, jnp.int32(2)),
        lambda x: pair(x, jnp.sin(x))[0],
        lambda x: jax.vmap(log1pexp)(x),
        lambda x: jax.nn.logsumexp(x) * jax.nn.relu(x),
    ],
)
def test_rules_are_kept(f: Any) -> None:
    program = from_jax(f, X)
    assert "custom_call" in program.text() or "vmap" in str(f)
    agree(program, f, (X,))


def test_rules_are_kept_in_loops() -> None:
    """The first derivative: of rules that are not the derivative, JAX forgets some in the second one of a loop."""

    def f(x: Any) -> Any:
        return lax.scan(lambda c, r: (log1pexp(c * r), scaled(2.0, c, jnp.int32(1))), x[0], x)

    agree(from_jax(f, X), f, (X,), orders=1)

    def g(x: Any) -> Any:
        return lax.scan(lambda c, r: (jax.nn.silu(c * r) + jax.nn.relu(c), jax.nn.logsumexp(c)), x[0], x)

    agree(from_jax(g, X), g, (X,))


def test_a_rule_that_gives_nothing() -> None:
    @jax.custom_vjp
    def frozen(x: Any) -> Any:
        return x * 2

    frozen.defvjp(lambda x: (x * 2, None), lambda _, ct: (jnp.zeros_like(ct),))
    agree(from_jax(lambda x: frozen(x) + x, X), lambda x: frozen(x) + x, (X,))


def test_linear_solves() -> None:
    def f(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(
            lambda x: a @ x, b, lambda mv, r: jnp.linalg.solve(a, r), lambda vm, r: jnp.linalg.solve(a.T, r)
        )

    agree(from_jax(f, SQUARE, V), f, (SQUARE, V))

    def cg(a: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda x: a @ (a.T @ x), b, tol=1e-6)[0] * 10

    close(from_jax(cg, SQUARE, V)(SQUARE, V), jax.jit(cg)(SQUARE, V), "cg")


def test_linear_calls() -> None:
    def f(r: Any, x: Any) -> Any:
        return jax.custom_derivatives.linear_call(lambda r, x: x / r, lambda r, t: t / r, r, x)

    agree(from_jax(f, V + 3, V), f, (V + 3, V), orders=1, wrt=(1,), stack=False)


def test_functions_of_the_host() -> None:
    def f(x: Any) -> Any:
        jax.debug.print("x is {}", x[0])
        jax.debug.callback(lambda y: None, x)
        spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda y: np.sin(y), spec, x) + jax.experimental.io_callback(np.cos, spec, x)

    close(from_jax(f, V)(V), np.sin(V) + np.cos(V), "value")


# ------------------------------------------------------------------------------------------------------------ keys


def samples(key: Any) -> Any:
    a, b, c = jax.random.split(key, 3)
    k = jax.random.fold_in(c, 7)
    return (
        jax.random.normal(a, (5,)),
        jax.random.uniform(b, (2, 3)),
        jax.random.randint(k, (4,), 0, 100),
        jax.random.permutation(a, 6),
        jax.random.categorical(b, jnp.zeros(4), shape=(3,)),
        jax.random.bits(c, (3,), "uint8"),
        jax.random.key_data(k) if jnp.issubdtype(k.dtype, jax.dtypes.prng_key) else k,
    )


def test_keys_of_both_kinds_give_the_same_bits() -> None:
    program = from_jax(samples, jax.random.PRNGKey(1))
    close(program(np.array([0, 1], np.uint32)), samples(jax.random.key(1)), "draws")
    typed = from_jax(samples, jax.random.key(1))
    assert typed.jaxpr is program.jaxpr or str(typed.in_avals[0]) == "u32[2]"
    close(typed(fx.random.key(1)), samples(jax.random.key(1)), "draws")


def test_arrays_of_keys_move_like_arrays() -> None:
    def f(key: Any) -> Any:
        keys = jax.random.split(key, (2, 3))
        chosen = jnp.where(jnp.arange(3) > 1, keys[1], keys[0][::-1])
        moved = jnp.concatenate([chosen[None], keys.T[:2].reshape(4)[1:][None]], 0).reshape(-1)
        draws = jax.vmap(lambda k: jax.random.normal(k, (2,)))(moved)
        return draws, lax.scan(lambda k, _: (jax.random.split(k)[0], jax.random.uniform(k)), key, None, length=3)[1]

    close(from_jax(f, jax.random.key(3))(fx.random.key(3)), f(jax.random.key(3)), "draws")


def test_seeds_inside_a_program() -> None:
    def f(seed: Any) -> Any:
        return jax.random.normal(jax.random.key(seed), (3,)) + jax.random.normal(jax.random.PRNGKey(4), (3,))

    close(from_jax(f, np.int32(2))(np.int32(2)), f(2), "draws")


def test_draws_of_the_gamma_distribution_have_a_derivative() -> None:
    def f(a: Any) -> Any:
        return jax.random.gamma(jax.random.key(0), a)

    a = np.array([0.5, 1.5, 3.0], np.float32)
    agree(from_jax(f, a), f, (a,), orders=1, stack=False)


def test_a_dropout_layer() -> None:
    def f(key: Any, x: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.7, x.shape), x / 0.7, 0.0) ** 2

    key = jax.random.PRNGKey(0)
    agree(from_jax(f, key, X), f, (key, X), stack=False, wrt=(1,))


# ----------------------------------------------------------------------------------------------------- collectives


def test_collectives_under_shard_map() -> None:
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")

    def f(x: Any) -> Any:
        def part(y: Any) -> Any:
            whole = lax.psum(y, "i") + lax.pmax(y, "i") + lax.axis_index("i")
            return whole + lax.all_gather(y, "i", axis=0, tiled=True) + lax.ppermute(y, "i", [(0, 0)])

        return jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)

    close(from_jax(f, X)(X), f(X), "value")


def test_axes_that_vmap_binds_are_gone() -> None:
    def f(x: Any) -> Any:
        return jax.vmap(lambda r: r / lax.psum(r, "i"), axis_name="i")(x)

    agree(from_jax(f, X), f, (X,))


# -------------------------------------------------------------------------------------------------------- refusals


def test_every_primitive_of_jax_has_a_row_or_a_reason() -> None:
    translation = sys.modules["fxad.interop.jax.translation"]
    for module in ("scipy.special", "scipy.linalg", "random", "nn", "experimental", "export"):
        pytest.importorskip(f"jax.{module}")
    modules = [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "jax" and m is not None]
    primitive = jax.extend.core.Primitive
    found = {v.name for m in modules for v in list(vars(m).values()) if isinstance(v, primitive)}
    rows, refused = set(translation.ROWS), set(translation.REFUSED)
    assert found - rows - refused == set()
    assert rows & refused == set()
    assert len(found) > 200


def test_what_fxad_does_not_have_is_refused_by_name_and_line() -> None:
    def f(x: Any) -> Any:
        return jnp.sin(lax.linalg.schur(x)[0])

    with pytest.raises(fx.errors.TranslationError) as caught:
        from_jax(f, SQUARE)
    assert isinstance(caught.value, NotImplementedError)
    assert caught.value.message == "from_jax: schur: fxad has no such decomposition"
    assert ".f" in caught.value.where
    assert __file__ in caught.value.where
    assert caught.value.remedy == "write this part with other functions, or give it to fxad as a primitive of your own"
