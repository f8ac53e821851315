"""`from_jax`: control flow, calls, remat, custom rules, keys, collectives, error messages."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from tests.interop.jax_laws import agree, close, jax, jit_of_jax

pytestmark = pytest.mark.smoke  # versions of JAX write these equations differently
interop = pytest.importorskip("fxad.interop.jax")
from_jax = interop.from_jax
grad: Any = fx.grad  # of lambdas, whose types mypy does not know
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
    block = jax.jit(lambda w, x: jnp.tanh(x @ w) + x)

    def f(w: Any, x: Any) -> Any:
        return block(w, block(w, x))

    program = from_jax(f, SQUARE, X)
    calls = [e.prim for e in program.jaxpr.eqns if isinstance(e.prim, Call)]
    assert len(calls) == 2
    assert calls[0].body is calls[1].body
    agree(program, f, (SQUARE, X))


@pytest.mark.parametrize(
    "inline", [True, *[how for how in getattr(jax, "Inline", ()) if how.name.startswith("JAX")]], ids=str
)
def test_calls_that_jax_inlines_are_inlined(inline: Any) -> None:
    """From 0.11 on, JAX has further options beside `True`."""

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, y: jax.jit(lambda z: jnp.sin(z) * z, inline=inline)(y), x)

    program = from_jax(f, X)
    assert "call" not in program.text()
    agree(program, f, (X,))


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
        return jax.checkpoint(lambda y: jnp.sin(checkpoint_name(jnp.sin(y), "h")) * y, policy=policy)(x) + 1

    agree(from_jax(f, X), f, (X,))
    assert "name" in from_jax(f, X).text()
    both = policies.save_from_both_policies(only, policies.dots_saveable)
    for policy in (both, policies.save_any_names_but_these("k")):
        g = functools.partial(f, policy=policy)
        agree(from_jax(g, X), g, (X,))


def test_a_checkpoint_that_jax_has_differentiated_is_translated() -> None:
    def f(x: Any) -> Any:
        return jax.grad(lambda y: jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)).sum())(y * 2))(x)

    agree(from_jax(f, X), f, (X,), orders=1)


@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd, jax.hessian, jax.jacrev], ids=lambda t: t.__name__)
def test_functions_that_jax_transforms_are_translated(transform: Any) -> None:
    def f(v: Any) -> Any:
        return transform(lambda y: jnp.tanh(y * jnp.cumsum(y)).sum())(v)

    agree(from_jax(f, V), f, (V,), orders=1)


# ----------------------------------------------------------------------------------------------------------- rules


log1pexp = jax.custom_jvp(lambda x: jnp.log1p(jnp.exp(x)))
log1pexp.defjvp(  # the factor 3 shows that this rule is taken
    lambda primals, tangents: (log1pexp(*primals), (1 - jax.nn.sigmoid(-primals[0])) * tangents[0] * 3)
)
scaled_by_count = jax.custom_jvp(lambda x, n: x * n)
scaled_by_count.defjvp(lambda primals, tangents: (scaled_by_count(*primals), tangents[0] * 7), symbolic_zeros=True)
scaled = jax.custom_vjp(lambda k, x, n: jnp.sin(x) * k * n, nondiff_argnums=(0,))
scaled.defvjp(lambda k, x, n: (scaled(k, x, n), (x, n)), lambda k, res, ct: (ct * jnp.cos(res[0]) * k * 5, None))


pair = jax.custom_vjp(lambda x, y: (x * y, jnp.argmax(x)))
pair.defvjp(lambda x, y: (pair(x, y), (x, y)), lambda res, cts: (cts[0] * res[1], cts[0] * res[0] * 2))


# Rules that close over arrays: from JAX 0.11 on, their jaxprs have these constants as operands
WEIGHTS, OTHERS = jnp.linspace(0.5, 2, X.shape[-1]), jnp.linspace(2, 3, X.shape[-1])
weighted = jax.custom_vjp(lambda x, y: x * y * WEIGHTS)
weighted.defvjp(
    lambda x, y: (x * y * WEIGHTS * jnp.sin(OTHERS), (x, jnp.cos(OTHERS) * y)),
    lambda res, ct: (ct * res[1] * OTHERS, ct * res[0] * WEIGHTS),
)
weighted_forward = jax.custom_jvp(lambda x: x * WEIGHTS)
weighted_forward.defjvp(lambda primals, tangents: (primals[0] * WEIGHTS, tangents[0] * OTHERS * WEIGHTS))


@pytest.mark.parametrize(
    "f",
    [
        log1pexp,
        lambda x: weighted(x, x),
        weighted_forward,
        jax.jit(lambda x: weighted(weighted_forward(x), x)),
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
    assert "call_with_rules" in program.text() or "vmap" in str(f)
    agree(program, f, (X,))


def test_rules_are_kept_in_loops() -> None:
    """The first derivative only: if a rule differs from the derivative, JAX drops it in the second derivative of a
    loop."""

    def f(x: Any) -> Any:
        return lax.scan(lambda c, r: (log1pexp(c * r), scaled(2.0, c, jnp.int32(1))), x[0], x)

    agree(from_jax(f, X), f, (X,), orders=1)

    def weights(x: Any) -> Any:
        return lax.scan(lambda c, r: (weighted(c, weighted_forward(r)), None), x[0], x)[0]

    agree(from_jax(weights, X), weights, (X,), orders=1)

    def g(x: Any) -> Any:
        return lax.scan(lambda c, r: (jax.nn.silu(c * r) + jax.nn.relu(c), jax.nn.logsumexp(c)), x[0], x)

    agree(from_jax(g, X), g, (X,))


def test_a_rule_that_returns_zeros() -> None:
    frozen = jax.custom_vjp(lambda x: x * 2)
    frozen.defvjp(lambda x: (x * 2, None), lambda _, ct: (jnp.zeros_like(ct),))
    agree(from_jax(lambda x: frozen(x) + x, X), lambda x: frozen(x) + x, (X,))


def test_logs_of_a_backward_pass_are_dropped() -> None:
    """As in JAX, where only a vjp `with_logs` returns them."""
    logging = jax.custom_vjp(lambda x: jnp.sin(x))
    if not hasattr(logging, "defvjp_with_logs"):
        pytest.skip("this JAX has no logs of backward passes")
    logging.defvjp_with_logs(lambda x: (logging(x), x), lambda x, ct: ((ct * jnp.cos(x) * 3,), {"norm": ct.sum()}))
    agree(from_jax(logging, X), logging, (X,), orders=1)


def test_program_order_has_no_effect() -> None:
    overlap = pytest.importorskip("jax.experimental.overlap", reason="from JAX 0.11 on")

    def f(x: Any) -> Any:
        ordered = overlap.program_order(lambda a: jnp.cos(jnp.sin(a) * a) + V, enforce=True)
        return overlap.program_order(lambda a: ordered(a) * a, enforce=False)(x)

    agree(from_jax(f, X), f, (X,))


def test_linear_solves() -> None:
    def f(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(
            lambda x: a @ x, b, lambda mv, r: jnp.linalg.solve(a, r), lambda vm, r: jnp.linalg.solve(a.T, r)
        )

    agree(from_jax(f, SQUARE, V), f, (SQUARE, V))

    def cg(a: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda x: a @ (a.T @ x), b, tol=1e-6)[0] * 10

    close(from_jax(cg, SQUARE, V)(SQUARE, V), jax.jit(cg)(SQUARE, V), "cg")


def test_roots() -> None:
    def f(a: Any, b: Any) -> Any:
        def solve(g: Any, x: Any) -> Any:
            return lax.fori_loop(0, 40, lambda _, y: y - 0.1 * g(y), x)

        def root(scale: float) -> Any:  # of y + y^3 = scale * a; another function with the same steps
            return lax.custom_root(lambda y: y + y**3 - scale * a, b, solve, lambda g, y: y / g(jnp.ones_like(y)))

        return root(1.0) + root(2.0) * a

    close(from_jax(f, V / 4, 0 * V)(V / 4, 0 * V), jax.jit(f)(V / 4, 0 * V), "value")
    agree(from_jax(f, V / 4, 0 * V), f, (V / 4, 0 * V), orders=1, wrt=(0,))


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
    draws = jit_of_jax(samples)(jax.random.key(1))
    close(program(np.array([0, 1], np.uint32)), draws, "draws")
    typed = from_jax(samples, jax.random.key(1))
    assert typed.jaxpr is program.jaxpr or str(typed.in_avals[0]) == "u32[2]"
    close(typed(fx.random.key(1)), draws, "draws")


def test_arrays_of_keys_are_indexed_like_arrays() -> None:
    def f(key: Any) -> Any:
        keys = jax.random.split(key, (2, 3))
        chosen = jnp.where(jnp.arange(3) > 1, keys[1], keys[0][::-1])
        moved = jnp.concatenate([chosen[None], keys.T[:2].reshape(4)[1:][None]], 0).reshape(-1)
        draws = jax.vmap(lambda k: jax.random.normal(k, (2,)))(moved)
        return draws, lax.scan(lambda k, _: (jax.random.split(k)[0], jax.random.uniform(k)), key, None, length=3)[1]

    close(from_jax(f, jax.random.key(3))(fx.random.key(3)), jit_of_jax(f)(jax.random.key(3)), "draws")


def test_seeds_inside_a_program() -> None:
    def f(seed: Any) -> Any:
        return jax.random.normal(jax.random.key(seed), (3,)) + jax.random.normal(jax.random.PRNGKey(4), (3,))

    close(from_jax(f, np.int32(2))(np.int32(2)), jit_of_jax(f)(2), "draws")


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


def test_axes_that_vmap_binds_are_not_in_the_program() -> None:
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


def test_schur_decompositions() -> None:
    for with_vectors in (True, False):
        theirs = lax.linalg.schur(SQUARE, compute_schur_vectors=with_vectors)
        ours = from_jax(lambda x, v=with_vectors: lax.linalg.schur(x, compute_schur_vectors=v), SQUARE)(SQUARE)
        for found, wanted in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_primitive_that_fxad_lacks_is_refused_with_its_name_and_line() -> None:
    def f(x: Any) -> Any:
        return jnp.sin(lax.linalg.hessenberg(x)[0])

    with pytest.raises(fx.errors.TranslationError) as caught:
        from_jax(f, SQUARE)
    assert isinstance(caught.value, NotImplementedError)
    assert caught.value.message == "from_jax: hessenberg: fxad has no such decomposition"
    assert ".f" in caught.value.where
    assert __file__ in caught.value.where
    assert caught.value.remedy == "write this part with other functions, or give it to fxad as a primitive of your own"


def failing(error: type[Exception], f: Any, *args: Any) -> str:
    with pytest.raises(error) as caught:
        f(*args)
    assert isinstance(caught.value, fx.errors.FxadError)
    return f"{caught.value.message} | {caught.value.remedy}"


def test_programs_that_cannot_be_translated_are_refused() -> None:
    refused, argument = fx.errors.TranslationError, fx.errors.ArgumentError
    assert failing(argument, from_jax, 3) == "from_jax: an int is not a function: 3 | from_jax(f, *examples)"
    assert failing(argument, from_jax, jnp.sin, fx.Spec("n")) == (
        "from_jax: f32[n] has sizes that are not numbers | translate for the sizes that are needed"
    )
    assert failing(refused, jax.jit(lambda v: from_jax(lambda x: x * v, X)), V) == (
        "from_jax: the function closes over JitTracer(float32[4]), which a transformation of JAX is tracing | "
        "pass it as an argument, or call from_jax outside jit, grad and vmap of JAX"
    )
    assert failing(refused, from_jax, lambda x: lax.exp(x, accuracy=lax.AccuracyMode.HIGHEST), X) == (
        "from_jax: exp: accuracy is AccuracyMode.HIGHEST | leave accuracy out"
    )
    ref = jax.new_ref(jnp.zeros(3))
    assert failing(refused, from_jax, lambda x: x + ref[...], X[0, :3]) == (
        "from_jax: the function closes over Ref([0., 0., 0.], dtype=float32), which changes in place | "
        "a program of fxad is pure: pass the array, and return the new one"
    )
    assert failing(refused, from_jax, lambda x: jax.new_ref(x)[...], V).startswith(
        "from_jax: new_ref: it changes an array in place; a program of fxad is pure"
    )


def primitive_of_a_package(name: str, impl: Any) -> Any:
    found = jax.extend.core.Primitive(name)
    found.def_abstract_eval(lambda x: x)
    if impl is not None:
        found.def_impl(impl)
    return found


def test_primitives_of_other_packages_are_their_implementation_with_jaxs_derivative() -> None:
    twice = primitive_of_a_package("twice", lambda x: x * 2)
    interpreters = pytest.importorskip("jax.interpreters")
    interpreters.ad.primitive_jvps[twice] = lambda xs, ts: (twice.bind(*xs), jnp.cos(xs[0]) * ts[0])
    program = from_jax(lambda x: twice.bind(x) * x, V)
    close(program(V), 2 * V * V, "value")
    agree(lambda x: grad(lambda y: fx.numpy.sum(program(y)))(x), lambda x: jnp.cos(x) * x + 2 * x, (V,), orders=0)
    unknown = primitive_of_a_package("unknown", None)
    message = "from_jax: unknown: fxad does not know this primitive, and its implementation cannot be traced"
    assert failing(fx.errors.TranslationError, from_jax, unknown.bind, V).startswith(message)
    itself = primitive_of_a_package("itself", None)
    itself.def_impl(jax.jit(itself.bind))
    message = "from_jax: itself: fxad does not know this primitive | "
    assert failing(fx.errors.TranslationError, from_jax, itself.bind, V).startswith(message)


def test_a_solver_with_more_results_runs_once() -> None:
    """Regression: it ran once for the solution, and once for the other results."""

    def solve(_: Any, b: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, x: x, b), jnp.int32(3)

    def f(b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: x, b, solve, solve, has_aux=True)

    (eqn,) = from_jax(f, V).jaxpr.eqns
    loops = [e for body in fx.extend.distinct_jaxprs(eqn.prim.solve) for e in body.eqns if e.prim.name == "scan"]
    assert len(loops) == 1


class Scale:
    """A parameter whose text is not its value, of a package whose name begins as that of JAX."""

    __module__ = "jaxopt.scale"

    def __init__(self, value: float) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Scale"


SCALED = jax.extend.core.Primitive("scaled")
SCALED.def_abstract_eval(lambda x, **_: x)
SCALED.def_impl(lambda x, by, sign: x * (by["scale"].value if isinstance(by, dict) else by.value) / sign)


def test_parameters_of_one_text_are_not_one() -> None:
    """Regression: all equations were the first one."""

    def f(x: Any) -> Any:
        in_dict = [({"scale": Scale(value)}, 1) for value in (2.0, 4.0)]  # JAX takes it, though it is not hashable
        parameters: list[Any] = [(Scale(3.0), 1), (Scale(5.0), 0.0), (Scale(5.0), -0.0), *in_dict]
        return tuple([SCALED.bind(x, by=by, sign=sign) for by, sign in parameters])

    for y, factor in zip(from_jax(f, V)(V), (3, np.inf, -np.inf, 2, 4), strict=True):
        close(y, V * factor, "value")


def _in_jit(w: Any) -> Any:
    constant = np.full(V.shape, w, np.float32)
    return lambda x: jax.jit(lambda y: y * constant)(x)


def _on_host(w: Any) -> Any:
    return lambda x: jax.pure_callback(lambda y: np.asarray(y) * w, jax.ShapeDtypeStruct(V.shape, V.dtype), x)


def _of_a_class(w: Any) -> Any:
    return lambda x: SCALED.bind(x, by=Scale(w), sign=1)


@pytest.mark.parametrize("make", [_in_jit, _on_host, _of_a_class])
def test_functions_of_one_text_and_one_rule_are_not_one(make: Any) -> None:
    """Regression: each function was the first one."""

    def rule(primals: Any, tangents: Any) -> Any:
        return primals[0] * 2, tangents[0] * 2

    def f(x: Any) -> Any:
        functions = [jax.custom_jvp(make(w)) for w in (np.float32(3), np.float32(5))]
        for function in functions:
            function.defjvp(rule)
        return tuple([function(x) for function in functions])

    for y, factor in zip(from_jax(f, V)(V), (3, 5), strict=True):
        close(y, V * factor, "value")


hijax = pytest.importorskip("jax.experimental.hijax")
HiType: Any = hijax.HiType
HiPrim: Any = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive  # calls before 0.11


class OfClass(HiPrim):  # type: ignore[misc]
    """A primitive that is an instance of a class, with one operand."""

    def __init__(self, into: Any, out_of: Any, expand: Any) -> None:
        self.in_avals, self.out_aval, self.params = (into,), out_of, {"expand": expand}
        super().__init__()

    def jvp(self, primals: Any, tangents: Any) -> Any:
        return self(*primals), jnp.cos(primals[0]) * tangents[0] * 5  # the factor 5 shows that this rule is taken


def test_primitives_of_classes_are_their_implementation_with_their_derivative() -> None:
    def f(x: Any) -> Any:
        return OfClass(jax.typeof(x), jax.typeof(x), jnp.tan)(OfClass(jax.typeof(x), jax.typeof(x), jnp.sin)(x)) * x

    agree(from_jax(f, V), f, (V,), orders=0, stack=False)
    wanted = jax.jvp(f, (V,), (np.ones_like(V),))[1]
    close(fx.jvp(from_jax(f, V), (V,), (np.ones_like(V),))[1], wanted, "tangent")
    close(grad(lambda x: fx.numpy.sum(from_jax(f, V)(x)))(V), wanted, "gradient")


@dataclass(frozen=True)
class PairType(HiType):  # type: ignore[misc]
    """The type of a value that JAX lowers to two arrays."""

    part: Any

    def lo_ty(self) -> Any:
        return [self.part, self.part]


def test_values_of_types_of_the_user_are_refused() -> None:
    def f(x: Any) -> Any:
        pair, plain = PairType(jax.typeof(x)), jax.typeof(x)
        return OfClass(pair, plain, None)(OfClass(plain, pair, None)(x))

    assert failing(fx.errors.TranslationError, from_jax, f, V) == (
        "from_jax: call_hi_primitive: it has values of a type of the user | "
        "write this part with other functions, or give it to fxad as a primitive of your own"
    )


REMEDY = "install a version of JAX with which fxad is tested: pip install 'fxad[jax]'"


def test_an_equation_with_other_parameters_names_the_version_of_jax() -> None:
    other = primitive_of_a_package("rev", lambda x: x)  # JAX's has `dimensions`
    with pytest.raises(fx.errors.TranslationError) as caught:
        from_jax(lambda x: jnp.sin(other.bind(x)), V)
    assert caught.value.message == (
        f"from_jax: rev: JAX {jax.__version__} writes it otherwise than fxad reads it: KeyError: 'dimensions'"
    )
    assert caught.value.remedy == REMEDY
    assert f"{__file__}:" in caught.value.where
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_rule_with_other_parameters_names_the_version_of_jax() -> None:
    other = jax.extend.core.Primitive("custom_vjp_call")
    other.def_abstract_eval(lambda x, **_: x)
    params = {"call_jaxpr": jax.make_jaxpr(jnp.sin)(V), "num_consts": 0, "symbolic_zeros": False}
    program = from_jax(lambda x: other.bind(x, bwd=jnp.sin, **params).sum(), V)  # JAX's has `fwd_jaxpr_thunk`
    assert failing(fx.errors.NotDifferentiableError, lambda: grad(program)(V)) == (
        "call_with_rules: defvjp of sin: sin_fwd raised TranslationError: from_jax: custom_vjp_call: "
        f"JAX {jax.__version__} writes it otherwise than fxad reads it: KeyError: 'fwd_jaxpr_thunk' | {REMEDY}"
    )


def test_errors_of_a_users_rule_do_not_mention_the_version() -> None:
    def bwd(_: Any, ct: Any) -> Any:
        raise KeyError("of the user")

    for rule, raised in (
        (bwd, "KeyError: 'of the user'"),
        (lambda _, ct: (ct, ct), "TypeError: Custom VJP bwd rule must produce an output with the same container"),
    ):
        twice = jax.custom_vjp(lambda x: x * 2)
        twice.defvjp(lambda x: (x * 2, None), rule)
        program = from_jax(lambda x, f=twice: f(x).sum(), V)
        message = failing(fx.errors.NotDifferentiableError, lambda p=program: grad(p)(V))
        assert f"bwd raised {raised}" in message


def test_a_linear_program_is_transposed_in_its_linear_operands_only() -> None:
    call = sys.modules["fxad.interop.jax.to_jax"].LINEAR_CALL
    body = fx.trace(lambda t, r: t * r, V, V).jaxpr
    message = failing(
        fx.errors.TranslationError,
        jax.linear_transpose(lambda r: call.bind(V, r, jaxpr=body, n_linear=1), V),
        [V],
    )
    assert message == (
        "to_jax: a linear program is transposed in an operand in which it is not linear | "
        "differentiate the function itself, in reverse mode"
    )
