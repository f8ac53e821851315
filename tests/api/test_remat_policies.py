"""`remat` with policies: the values that are stored, the number of recomputations, and the memory of the compiled
program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, policies
from fxad.core.interpreter import run
from fxad.ir import Eqn
from fxad.testing.memory_laws import work
from fxad.transforms import linearize

RNG = np.random.default_rng(0)
X, W = [RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]


def block(x: Any, w: Any = W) -> Any:
    h = fx.checkpoint_name(fnp.sin(x @ w), "pre")
    h = fx.checkpoint_name(fnp.cbrt(fnp.exp(0.1 * h) @ w), "post")
    return fnp.cos(h) + x


def layers(f: Callable[..., Any], n: int = 3) -> Callable[..., Any]:
    def run_layers(x: Any) -> Any:
        for _ in range(n):
            x = f(x)
        return fnp.sum(x)

    return run_layers


def gradient(f: Any, *args: Any) -> Any:
    program = fx.trace(f, *args)
    return fx.interpret(fx.grad(program), *args)


def stored(f: Any, *args: Any) -> list[str]:
    return [f"{r.made_by}: {r.decided_by}" for r in fx.residuals(fx.trace(f, *args)) if not r.is_argument]


def everywhere(eqn: Eqn) -> bool:
    return eqn.prim.name == "exp"


POLICIES = {
    str(p): p
    for p in (
        policies.nothing,
        policies.everything,
        policies.dots,
        policies.dots_without_batch_dims,
        policies.names("pre"),
        policies.names("pre", "post"),
        policies.names_except("pre"),
        policies.dots | policies.names("post"),
        policies.everything & ~policies.dots,
        policies.where(everywhere),
    )
}


# --------------------------------------------------------------------------------------------------------- policies


def test_policies_are_values() -> None:
    assert policies.names("a", "b") == policies.names("b", "a")
    assert len({policies.dots, policies.Dots(), policies.dots | policies.nothing}) == 2
    assert policies.where(everywhere) == policies.where(everywhere)
    assert str((policies.dots | policies.names("a")) & ~(policies.nothing | policies.everything)) == (
        "(dots | names('a')) & ~(nothing | everything)"
    )
    assert str(~policies.names_except("b", "a")) == "~names_except('a', 'b')"
    assert str(policies.where(everywhere)) == "where(everywhere)"
    program = fx.trace(layers(block), X)
    assert fx.remat(program, policy=policies.dots) == fx.remat(program, policy=policies.Dots())


def test_objects_that_are_no_policies_are_refused() -> None:
    refused: list[tuple[Any, str, str]] = [
        (everywhere, "remat: a function is not a policy", "policies.where"),
        ("pre", "remat: a str is not a policy: 'pre'", "policies.names"),
        (3, "remat: an int is not a policy: 3", "fxad.policies"),
    ]
    for policy, message, remedy in refused:
        with pytest.raises(fx.errors.ArgumentError) as caught:
            fx.remat(block, policy=policy)
        assert message in caught.value.message
        assert remedy in caught.value.remedy
    untyped: Any = policies
    for make, message in (
        (lambda: policies.dots | untyped.names, "|: a function is not a policy"),
        (lambda: untyped.names(3), "names: an int is not a name: 3"),
        (lambda: untyped.names_except(None), "names_except: a NoneType is not a name: None"),
        (lambda: untyped.where(3), "where: an int is not a function: 3"),
        (lambda: fx.checkpoint_name(X, untyped), "checkpoint_name: the name is a module, not a str"),
    ):
        with pytest.raises(fx.errors.ArgumentError) as caught:
            make()
        assert message in caught.value.message


@dataclass(frozen=True)
class WithoutAnswer(policies.Policy):
    def keeps(self, eqn: Eqn) -> Any:
        return None


@pytest.mark.parametrize(
    "policy", [~WithoutAnswer(), WithoutAnswer() | policies.everything, policies.everything & WithoutAnswer()], ids=str
)
def test_a_policy_in_another_one_must_answer(policy: policies.Policy) -> None:
    with pytest.raises(fx.errors.ArgumentError) as caught:
        fx.remat(fx.trace(fnp.sin, X), policy=policy)
    assert caught.value.message == "remat: the policy WithoutAnswer() answers a NoneType, not a bool: None"


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_are_the_same_bit_for_bit(name: str) -> None:
    lean = fx.remat(policy=POLICIES[name])
    want = gradient(layers(block), X)
    for f in (
        layers(lean(block)),
        lean(layers(block)),
        lean(layers(lean(block))),
        lean(layers(fx.jit(block))),
        layers(fx.remat(fx.jit(lean(block)))),
    ):
        np.testing.assert_array_equal(gradient(f, X), want)
    np.testing.assert_allclose(fx.jit(fx.grad(layers(lean(block))))(X), fx.jit(fx.grad(layers(block)))(X), rtol=1e-5)


@pytest.mark.parametrize("name", POLICIES)
def test_in_loops_branches_and_batches(name: str) -> None:
    lean = fx.remat(policy=POLICIES[name])

    def scanned(wrap: Any) -> Any:
        return lambda x: fnp.sum(lax.scan(lambda h, _: (wrap(block)(h), fnp.sum(h)), x, None, length=3)[0])

    def branching(wrap: Any) -> Any:
        return lambda x: fnp.sum(lax.cond(fnp.sum(x) > -1e3, wrap(block), lambda x: x, x))

    def batched(wrap: Any) -> Any:
        return lambda x: fnp.sum(fx.vmap(wrap(lambda row: fnp.sum(block(row[None]))))(x))

    for loss in (scanned, branching, batched):
        want = gradient(loss(lambda f: f), X)
        np.testing.assert_array_equal(gradient(loss(lean), X), want)
        np.testing.assert_array_equal(gradient(lean(loss(lambda f: f)), X), want)


def test_higher_orders() -> None:
    lean = fx.remat(policy=policies.names("post") | policies.dots)

    def third(f: Any) -> Any:
        g = fx.grad(layers(f, 2))
        h = fx.grad(lambda x: fnp.sum(g(x) ** 2))
        return fx.jvp(h, (X,), (W,))[1]

    want = third(block)
    np.testing.assert_allclose(third(lean(block)), want, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(
        fx.jit(fx.hessian(layers(lean(block), 1)))(X), fx.hessian(layers(block, 1))(X), atol=1e-5
    )


# ----------------------------------------------------------------------------------------------- stored values and work


def test_what_is_stored() -> None:
    def of(policy: policies.Policy) -> list[str]:
        return stored(layers(fx.remat(block, policy=policy), 1), X)

    assert of(policies.nothing) == []
    assert of(policies.names("post")) == ["name 'post': names('post')"]
    assert of(policies.dots) == ["dot_general: dots", "dot_general: dots"]
    assert of(policies.dots & ~policies.dots) == []
    assert of(policies.where(everywhere, "exponentials")) == ["exp: where(exponentials)"]
    assert of(policies.names("nobody")) == []


def test_nested_segments_store_a_value_that_both_policies_keep() -> None:
    """A value is stored if the policies of the inner and of the outer segment both keep it. Recomputation of the outer
    segment starts from it."""

    def nested(inner: policies.Policy, outer: policies.Policy) -> Any:
        lean: Any = fx.remat(block, policy=inner)

        def twice(x: Any) -> Any:
            return lean(lean(x))

        return layers(fx.remat(twice, policy=outer), 1)

    post, dots = policies.names("post"), policies.dots
    for inner, outer, kept in (
        (post, policies.nothing, []),
        (policies.nothing, post, []),
        (post, post | dots, ["name 'post': names('post') | dots"] * 2),
        (post | dots, dots, ["dot_general: dots"] * 4),
        (dots, post, []),
    ):
        f = nested(inner, outer)
        assert stored(f, X) == kept
        np.testing.assert_array_equal(gradient(f, X), gradient(layers(block, 2), X))
        np.testing.assert_array_equal(gradient(fx.remat(f, policy=outer), X), gradient(layers(block, 2), X))
        assert stored(fx.remat(f, policy=outer), X) == kept
        assert stored(fx.remat(f), X) == []

    done = work(fx.value_and_grad(fx.trace(nested(dots, dots), X)).jaxpr)
    assert done["dot_general"] == 4 + 4, "forward and backward; none is done again, in either segment"
    done = work(fx.value_and_grad(fx.trace(nested(dots, policies.nothing), X)).jaxpr)
    assert done["dot_general"] == 4 + 4 + 4, "done again in the outer segment, not in the inner ones"

    def looped(policy: policies.Policy) -> Any:
        lean = fx.remat(fx.jit(block), policy=dots)
        return fx.remat(lambda x: fnp.sum(lax.scan(lambda h, _: (lean(h), None), x, None, length=3)[0]), policy=policy)

    table = fx.residuals(fx.trace(looped(dots), X))
    assert [(r.aval.shape, r.decided_by) for r in table if not r.is_argument] == [((3, 4, 4), "dots")] * 2
    np.testing.assert_array_equal(gradient(looped(dots), X), gradient(looped(policies.nothing), X))


def test_a_policy_keeps_the_same_values_under_vmap() -> None:
    """vmap adds a batch dimension to the product, but `dots` still keeps it."""
    x = np.stack([X, X + 1])
    lean = fx.remat(lambda x, w: fnp.sum(fnp.sin(x @ w)), policy=policies.dots_without_batch_dims)
    assert stored(lambda w: fnp.sum(fx.vmap(lambda row, m: lean(row, m))(x, w)), x) == [
        "dot_general: dots_without_batch_dims"
    ]
    late = fx.remat(fx.vmap(lambda x, w: fnp.sum(fnp.sin(x @ w))), policy=policies.dots_without_batch_dims)
    assert stored(lambda w: fnp.sum(late(x, w)), x) == []


def test_each_equation_runs_once_and_is_recomputed_once() -> None:
    """The forward pass runs each equation once. The backward pass runs it once more if its value is not stored and is
    needed."""

    def counts(policy: policies.Policy) -> list[int]:
        lean = layers(fx.remat(block, policy=policy))
        done = work(fx.value_and_grad(fx.trace(lean, X)).jaxpr)
        return [done[name] for name in ("exp", "cbrt", "dot_general")]

    # three layers of two products; the backward pass of each product has two products
    assert counts(policies.nothing) == [3 + 3, 3 + 3, 6 + 6 + 6]
    assert counts(policies.dots) == [3 + 3, 3 + 3, 6 + 0 + 6]
    assert counts(policies.names("post")) == [3 + 3, 3, 6 + 3 + 6]
    assert counts(policies.everything) == [3, 3, 6 + 0 + 6]


def test_forward_work_that_only_the_recomputation_needs_is_dropped() -> None:
    """The gradient of a sum does not need its value, so the last layer does not run forward."""
    lean = layers(fx.remat(block))
    grad = work(fx.grad(fx.trace(lean, X)).jaxpr)
    both = work(fx.value_and_grad(fx.trace(lean, X)).jaxpr)
    assert both["exp"] == 6
    assert grad["exp"] == 5


def test_integers_and_known_operands() -> None:
    @fx.remat(policy=policies.everything)
    def picked(x: Any, k: Any, n: int) -> Any:
        j = fx.checkpoint_name(k * 2 - k, "index")
        return fnp.sin(x[j]) * fnp.exp(x[j + n]), j

    got = gradient(lambda x, k: fnp.sum(picked(x, k, 1)[0]), X, np.int32(2))
    want = gradient(lambda x, k: fnp.sum(fnp.sin(x[k]) * fnp.exp(x[k + 1])), X, np.int32(2))
    np.testing.assert_array_equal(got, want)


def test_names_reach_trees() -> None:
    tree: Any = {"a": X, "b": (W, 2 * W)}
    named = fx.checkpoint_name(tree, "all")
    assert fx.tree.structure(named) == fx.tree.structure(tree)
    np.testing.assert_array_equal(named["b"][1], 2 * W)
    text = fx.trace(lambda x: fx.checkpoint_name(x, "a b"), X).text()
    assert 'name[label="a b"]' in text
    assert str(fx.text.parse(text)) == text


def test_a_stored_value_is_not_stored_twice() -> None:
    """A loop stacks a value once, although it has a name and is read without it."""

    def loss(x: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            h = fx.checkpoint_name(fnp.exp(-h), "h")
            return fnp.sin(h) * h, None

        return fnp.sum(lax.scan(step, x, None, length=5)[0])

    plain = linearize(fx.trace(loss, X).jaxpr, (True,)).primal
    stacks = [a for a in plain.out_avals[1:] if a.shape == (5, 4, 4)]
    assert len(stacks) <= 3
    program = fx.trace(fx.remat(loss, policy=policies.names("h")), X)
    primal = linearize(program.jaxpr, (True,)).primal
    assert [a.shape for a in primal.out_avals[1:]] == [(5, 4, 4)]
    np.testing.assert_array_equal(run(primal, [X])[0], run(plain, [X])[0])


# ------------------------------------------------------------------------------------------------------ compiled code

BIG = RNG.standard_normal((64, 64)).astype(np.float32)
SIZE = BIG.nbytes


def temps(f: Any) -> float:
    """Returns the temporaries of the compiled gradient, in arrays."""
    return fx.lower(fx.grad(fx.trace(f, BIG))).compile().memory().temp_bytes / SIZE


def test_unrolled_layers_store_the_values_that_the_policy_keeps() -> None:
    big = lambda x: block(x, BIG)  # noqa: E731
    plain = temps(layers(big, 12))
    nothing, post = temps(layers(fx.remat(big), 12)), temps(layers(fx.remat(big, policy=policies.names("post")), 12))
    assert plain > 2.5 * 12
    assert nothing < 12 + 6
    assert nothing + 8 < post < 2 * 12 + 6


def test_a_scan_stores_the_values_that_the_policy_keeps() -> None:
    def loss(wrap: Any) -> Any:
        step = wrap(lambda x: block(x, BIG))
        return lambda x: fnp.sum(lax.scan(lambda h, _: (step(h), None), x, None, length=32)[0])

    plain, nothing = temps(loss(lambda f: f)), temps(loss(fx.remat))
    post = temps(loss(fx.remat(policy=policies.names("post"))))
    assert plain > 3.5 * 32
    assert nothing < 32 + 6
    assert 2 * 32 <= post < 2 * 32 + 6


def test_nested_segments_store_a_state_for_each_level() -> None:
    def nest(f: Any) -> Any:
        return lambda x: f(f(f(f(x))))

    big = lambda x: block(x, BIG)  # noqa: E731
    plain = nest(nest(nest(big)))
    nested = nest(fx.remat(nest(fx.remat(nest(fx.remat(big))))))
    assert temps(lambda x: fnp.sum(plain(x))) > 150
    assert temps(lambda x: fnp.sum(nested(x))) < 3 * 4 + 6


@pytest.mark.parametrize("policy", [policies.nothing, policies.everything, policies.dots])
def test_remat_around_invertible_functions(policy: policies.Policy) -> None:
    """An inverse stores nothing, so policies find nothing to keep in it."""
    double = fx.custom_inverse(lambda x: 2 * x, lambda y: y / 2)
    x = np.array([0.3, -0.2])

    def loss(inner: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: fnp.sum(fx.remat(lambda x: inner(fnp.sin(x)), policy=policy)(x) ** 2)

    for inner in (fx.invertible(fnp.exp), double):
        plain = fnp.exp if inner is not double else double.fun
        np.testing.assert_allclose(fx.grad(loss(inner))(x), fx.grad(loss(plain))(x))
        np.testing.assert_allclose(fx.hessian(loss(inner))(x), fx.hessian(loss(plain))(x))


@pytest.mark.parametrize("policy", list(POLICIES.values()), ids=str)
def test_a_policy_does_not_change_the_order_of_sums_in_calls(policy: policies.Policy) -> None:
    """A call with a kept value is not inlined: its two uses of x are added first, as in the plain gradient. A loop that
    passes x on through a call stays a loop, and its contribution keeps its place in the sum."""
    shared = fx.jit(lambda x: fnp.sin(x) * fnp.exp(x @ W))

    def f(n: Any, x: Any) -> Any:
        def step(state: Any) -> Any:
            k, same, y = state
            return k + 1, fx.jit(lambda s: (s, fnp.sin(s))[0])(same), shared(y)

        _, same, y = lax.while_loop(lambda s: s[0] < n, step, (0, x, x), max_steps=3)
        return fnp.sum(same * same + shared(x) + fnp.tanh(x) + fnp.cos(x) * y)

    n = np.int32(2)
    for k in range(8):
        x = X + np.float32(0.37 * k)
        lean = fx.trace(fx.remat(f, policy=policy), n, x)
        want = fx.interpret(fx.grad(fx.trace(f, n, x), argnums=1), n, x)
        np.testing.assert_array_equal(fx.interpret(fx.grad(lean, argnums=1), n, x), want)


def test_segments_do_not_change_the_order_of_sums() -> None:
    """Shared weights of all layers, x around and inside a segment, an operand twice, an operand as result, a result
    twice: contributions are added in the order of the plain program."""

    def attend(q: Any, k: Any, w: Any) -> Any:
        h = fnp.tanh(q @ w) * fnp.exp(0.1 * (k @ w)) + k
        return h, q, h, fnp.sin(q)

    def f(wrap: Any, x: Any, w: Any) -> Any:
        for _ in range(3):
            a, same, b, c = wrap(attend)(x, x, w)
            x = x + fnp.cos(a) * same + b * c + wrap(block)(same, w) * x
        return fnp.sum(x * x)

    def nested(g: Any) -> Any:
        return fx.remat(lambda *args: fx.remat(g)(*args))

    for k in range(8):
        x, w = X + np.float32(0.17 * k), W * np.float32(0.3)
        want = fx.interpret(fx.grad(fx.trace(lambda x, w: f(lambda g: g, x, w), x, w), argnums=(0, 1)), x, w)
        for wrap in (fx.remat, nested, fx.remat(policy=policies.dots)):
            got = fx.interpret(fx.grad(fx.trace(lambda x, w: f(wrap, x, w), x, w), argnums=(0, 1)), x, w)
            for g, v in zip(got, want, strict=True):
                np.testing.assert_array_equal(g, v)


def products_in_jax(prim: Any, *_: Any, **params: Any) -> bool:
    return bool(prim.name == "dot_general" and params["dimension_numbers"] == (((1,), (0,)), ((), ())))


def named_pre(prim: Any, *avals: Any, **params: Any) -> bool:
    return bool(prim.name == "name" and params["name"] == "pre" and avals[0].shape == (4, 4))


def test_policies_are_functions_as_in_jax() -> None:
    jax_s = fx.checkpoint_policies
    for function, policy in (
        (products_in_jax, policies.dots_without_batch_dims),
        (named_pre, policies.names("pre")),
        (lambda *_, **__: True, policies.everything),
        (lambda *args, **params: policies.dots(*args, **params), policies.dots),
        (lambda *args, **params: policies.names("pre")(*args, **params), policies.names("pre")),
        (jax_s.save_from_both_policies(products_in_jax, named_pre), policies.dots | policies.names("pre")),
        (jax_s.save_anything_except_these_names("pre"), ~policies.names("pre")),
        (jax_s.save_any_names_but_these("pre"), policies.names("post")),
    ):
        ours, theirs = [stored(layers(fx.remat(block, policy=p)), X) for p in (function, policy)]
        assert [row.partition(":")[0] for row in ours] == [row.partition(":")[0] for row in theirs]
        np.testing.assert_array_equal(gradient(layers(fx.remat(block, policy=function)), X), gradient(layers(block), X))
    assert stored(fx.remat(block, policy=named_pre), X) == stored(fx.checkpoint(block, policy=named_pre), X)
    assert "named_pre" in "".join(stored(fx.remat(block, policy=named_pre), X))


def test_a_function_as_in_jax_that_raises_or_does_not_answer() -> None:
    silent: Any = lambda *_, **__: None  # noqa: E731
    angry: Any = lambda *_, **__: 1 / 0  # noqa: E731
    with pytest.raises(fx.errors.ArgumentError, match="the policy <lambda> answers a NoneType, not a bool"):
        fx.grad(fx.remat(lambda x: fnp.sum(fnp.sin(x)), policy=silent))(X)
    with pytest.raises(ZeroDivisionError) as caught:
        fx.grad(fx.remat(lambda x: fnp.sum(fnp.sin(x)), policy=angry))(X)
    assert "raised by the policy <lambda> of remat, asked about the equation" in caught.value.__notes__[0]
