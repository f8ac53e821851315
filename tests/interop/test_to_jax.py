"""`to_jax`: a program of fxad as a function of JAX, which JAX calls, compiles, differentiates and maps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad.testing import Case, cases
from tests.interop import test_from_jax as battery
from tests.interop.jax_laws import agree, close, jax, jit_of_jax
from tests.laws.budget import share

interop = pytest.importorskip("fxad.interop.jax")
from_jax, to_jax = interop.from_jax, interop.to_jax
jnp = jax.numpy
draw = np.random.default_rng(0)
X = draw.uniform(-2, 2, (3, 4)).astype(np.float32)
V = draw.uniform(-2, 2, 4).astype(np.float32)
W = (draw.uniform(-1, 1, (4, 4)) + 4 * np.eye(4)).astype(np.float32)

THERE_AND_BACK = (
    ("elementwise", "tanh"), ("elementwise", "power"), ("elementwise", "select"), ("elementwise", "complex"),
    ("elementwise", "igamma"), ("elementwise", "bits"), ("elementwise", "bfloat16"), ("structural", "einsum"),
    ("structural", "take"), ("structural", "at set"), ("structural", "sort"), ("structural", "windows"),
    ("structural", "convolution"), ("structural", "cumulative"), ("structural", "fft"), ("nn", "relu"),
    ("nn", "softmax"), ("nn", "attention"), ("linalg", "cholesky"), ("linalg", "solve"), ("linalg", "eigh"),
    ("linalg", "triangular"),
)  # fmt: skip


@pytest.mark.parametrize(("family", "name"), THERE_AND_BACK, ids=lambda x: x)
def test_from_jax_and_to_jax_give_the_function(family: str, name: str) -> None:
    case = battery.FAMILIES[family][name]
    agree(to_jax(from_jax(case.f, *case.args)), case.f, case.args, orders=case.orders, stack=case.stack, by=jax)


@pytest.mark.law
def test_generated_programs_compute_the_same() -> None:
    @share(4)
    @given(cases())
    def law(case: Case) -> None:
        ins: Any = ((0,) * len(case.args), {})
        outs = (0,) * len(case.program.outs)
        f: Any = fx.Program(case.program, fx.tree.structure(ins), fx.tree.structure(outs))
        run: Any = fx.lower(f).compile()
        with jax.enable_x64(True):
            try:
                theirs = to_jax(f)
            except fx.errors.TranslationError as e:
                if re.search("calls the host|it runs on 1 devices", e.message):
                    return
                raise
            close(theirs(*case.args), run(*case.args), "value")

    law()


def body(c: Any, x: Any) -> Any:
    return fnp.tanh(c * x + fnp.sum(c)), c * x


def loss(w: Any, x: Any) -> Any:
    c, ys = fx.lax.scan(body, w[0], x)
    return fx.lax.cond(fnp.sum(c) > 0, fnp.sin, fnp.cos, c) @ w, fnp.linalg.solve(w, ys[0])


def loss_of_jax(w: Any, x: Any) -> Any:
    c, ys = jax.lax.scan(lambda c, r: (jnp.tanh(c * r + jnp.sum(c)), c * r), w[0], x)
    return jax.lax.cond(jnp.sum(c) > 0, jnp.sin, jnp.cos, c) @ w, jnp.linalg.solve(w, ys[0])


@pytest.mark.smoke
@pytest.mark.parametrize("made", [lambda: to_jax(loss), lambda: to_jax(fx.trace(loss, W, X))])
def test_a_function_and_a_program(made: Any) -> None:
    agree(made(), loss_of_jax, (W, X), by=jax)
    agree(jax.jit(made()), loss_of_jax, (W, X), by=jax)


def test_jax_differentiates_to_any_order_and_in_either_mode() -> None:
    f = to_jax(fx.trace(lambda x: fnp.sum(fnp.sin(x) * x**2), V))

    def g(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) * x**2)

    for transform in (
        jax.jacfwd, jax.jacrev, jax.hessian, lambda h: jax.jacfwd(jax.jacfwd(h)), lambda h: jax.jacrev(jax.jacfwd(h)),
        lambda h: jax.jacrev(jax.jacrev(jax.grad(h))), lambda h: jax.grad(jax.checkpoint(h)),
        lambda h: jax.jit(jax.vmap(jax.grad(lambda k: h(k * V)))),
        lambda h: jax.linearize(h, V)[1], lambda h: lambda x: jax.vjp(h, x)[1](jnp.float32(1)),
    ):  # fmt: skip
        close(jit_of_jax(transform(f))(V), jit_of_jax(transform(g))(V), "derivative")


def test_the_rules_are_fxads() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), 5 * tangents[0]))
    close(jax.grad(lambda x: to_jax(f)(x).sum())(V), np.full_like(V, 5), "gradient")
    close(jax.jacfwd(to_jax(lambda x: fnp.sum(f(x))))(V), np.full_like(V, 5), "gradient")
    close(jax.vmap(jax.grad(to_jax(f)))(V), np.full_like(V, 5), "gradient")


def test_maps_along_any_axis_and_of_some_arguments() -> None:
    f, g = to_jax(lambda w, x: (x @ w, fnp.sum(w))), lambda w, x: (x @ w, jnp.sum(w))
    stack = np.stack([X, 2 * X], -1)
    for axes in ((None, -1), (None, 2)):
        close(jax.vmap(f, axes)(W, stack), jax.vmap(g, axes)(W, stack), "batch")
    close(jax.vmap(f, (None, -1), (1, None))(W, stack), jax.vmap(g, (None, -1), (1, None))(W, stack), "batch")


def test_only_some_arguments_move() -> None:
    f: Any = to_jax(lambda w, x, n: fnp.sum(x @ w) * n.astype("float32"))

    def g(w: Any, x: Any, n: Any) -> Any:
        return jnp.sum(x @ w) * n

    n = np.int32(3)
    close(jax.grad(f, 1)(W, X, n), jax.grad(g, 1)(W, X, n), "gradient")
    close(jax.grad(lambda x: f(W, x, n) ** 2)(X), jax.grad(lambda x: g(W, x, n) ** 2)(X), "gradient")
    transposed = jax.linear_transpose(lambda x: f(W, x, n), X)
    with pytest.raises(Exception, match="fxad_call"):
        transposed(np.float32(1))  # nothing declares the program to be linear


def test_trees_scalars_keys_and_held_arrays() -> None:
    held = fx.asarray(V)

    def f(p: Any, k: Any) -> Any:
        return {"y": p["x"] * held * p["s"], "k": fx.random.split(k)[0]}

    program = fx.trace(f, {"x": V, "s": 1.0}, np.zeros(2, np.uint32))
    found = to_jax(program)({"x": V, "s": 2}, jax.random.key(3))
    close(found, {"y": V * V * 2, "k": jax.random.key_data(jax.random.split(jax.random.key(3))[0])}, "value")
    assert isinstance(found["y"], jax.Array)
    close(jax.jit(to_jax(program))({"x": fx.asarray(V), "s": 2.0}, fx.random.key(3)), found, "value")


def test_from_jax_of_to_jax_is_the_program() -> None:
    program = fx.trace(lambda x: fnp.sin(x) * 2, V)
    back = from_jax(to_jax(program), V)
    assert program.jaxpr in {b for e in back.jaxpr.eqns for b in e.prim.bodies}
    gradient = from_jax(jax.grad(lambda x: to_jax(program)(x).sum()), V)
    close(gradient(V), 2 * np.cos(V), "gradient")


# ---------------------------------------------------------------------------------------------------------- errors


def failing(error: type[Exception], f: Any, *args: Any) -> str:
    with pytest.raises(error) as caught:
        f(*args)
    assert isinstance(caught.value, fx.errors.FxadError)
    return f"{caught.value.message} | {caught.value.remedy}"


def test_programs_that_jax_cannot_run_are_refused() -> None:
    refused = fx.errors.TranslationError
    checked = fx.trace(lambda x: fx.error_if(x, x[0] > 0, "no"), V)
    assert failing(refused, to_jax, checked) == (
        "to_jax of <lambda>: check calls the host, which a module of JAX cannot | "
        "leave callbacks and checks out of what JAX calls"
    )
    summed = fx.trace(lambda x: fx.lax.psum(x, "i"), V, axis_env={"i": 2})
    assert failing(refused, to_jax, summed) == (
        "to_jax of <lambda>: the axes i are bound by nothing | map the program over them in fxad"
    )
    spec = fx.sharding.PartitionSpec("i")
    many = fx.trace(fx.shard_map(lambda x: x, {"i": 1}, spec, spec), V)
    assert failing(refused, to_jax, many) == (
        "to_jax of shard_map_<lambda>: it runs on 1 devices | use jax.shard_map around it"
    )
    assert failing(fx.errors.ArgumentError, to_jax, fx.trace(lambda x: x, fx.Spec("n"))) == (
        "to_jax of <lambda>: it has sizes that are not numbers | specialize the program"
    )
    assert failing(fx.errors.DTypeError, to_jax, fx.trace(lambda x: x, V.astype(np.float64))) == (
        "to_jax of <lambda>: f64[4] has 64 bits, and JAX is set to 32 | "
        'jax.config.update("jax_enable_x64", True), or trace with 32 bits'
    )
    assert failing(fx.errors.ArgumentError, to_jax, 3) == (
        "to_jax: an int is neither a Program nor a function: 3 | to_jax(trace(f, ...))"
    )


def test_arguments_that_do_not_fit_are_named() -> None:
    def scale(x: Any, n: Any) -> Any:
        return x * n

    f = to_jax(fx.trace(scale, V, 1.0))
    assert failing(fx.errors.ShapeError, f, X, 1.0) == (
        "to_jax(scale): argument x has shape (3, 4), it was traced with (4,) | trace again for the other shape"
    )
    assert failing(fx.errors.DTypeError, f, V, jnp.int32(1)) == (
        "to_jax(scale): argument n has dtype int32, it was traced with float32 | "
        "convert it with astype('float32'), or trace again; nothing is converted silently"
    )
    assert failing(fx.errors.ArgumentError, f, V, "1") == (
        "to_jax(scale): argument n is a str, not an array: '1' | pass an array of JAX or fxad, or a number"
    )
    assert re.match("scale: takes 2 positional arguments, 1 was given", failing(fx.errors.ArgumentError, f, V))


def test_a_tracer_of_fxad_is_not_an_array_of_jax() -> None:
    program = fx.trace(lambda x: x * 2, V)
    assert failing(fx.errors.TranslationError, fx.trace, lambda x: to_jax(program)(x), V) == (
        "to_jax: Tracer<f32[4]> has no value while fxad traces the function | "
        "give the function of JAX to from_jax, and call the program"
    )


def test_static_arguments_of_a_function() -> None:
    def power(x: Any, n: Any) -> Any:
        assert isinstance(n, int)
        return x**n

    f = to_jax(fx.jit(power, static_argnums=1))  # regression: refused
    np.testing.assert_allclose(np.asarray(f(V, 2)), V**2, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(jax.jit(f, static_argnums=1)(V, 3)), V**3, rtol=1e-6)
    assert failing(fx.errors.ArgumentError, to_jax(power), V, "a") == (  # regression: an AttributeError
        "trace of power: argument n: a str is not an array: 'a' | "
        "it is static: leave it out and close over it, or name its argument in static_argnames of jit, grad, vmap, ..."
    )
