"""`remat` and policies across branches, loops that end by a predicate, and functions with custom rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, policies
from fxad.ir import distinct_jaxprs
from fxad.testing.memory_laws import work
from tests.api.test_remat_policies import W, X, block, gradient, stored

POST = policies.names("post")


def other(x: Any) -> Any:
    return fnp.cos(fnp.tanh(x))


def branching(wrap: Any, policy: policies.Policy) -> Any:
    lean: Any = wrap(policy=policy)
    return lean(lambda x: fnp.sum(lax.cond(fnp.sum(x) < -1e3, other, block, x)))


def test_branches_store_the_values_that_a_policy_keeps() -> None:
    """Each branch stores the values that the policy keeps in it. Branches share the places of residuals."""
    f = branching(fx.remat, POST)
    assert stored(f, X) == ["name 'post': names('post')"]
    assert stored(branching(fx.remat, policies.nothing), X) == []
    assert stored(branching(fx.remat, policies.dots), X) == ["dot_general: dots"] * 2
    for policy in (POST, policies.dots, policies.everything):
        want = gradient(branching(fx.remat, policies.nothing), X)
        np.testing.assert_array_equal(gradient(branching(fx.remat, policy), X), want)
        compiled = fx.jit(fx.grad(branching(fx.remat, policy)))
        np.testing.assert_allclose(compiled(X), want, rtol=1e-5)
        np.testing.assert_allclose(compiled(X - 1000), fx.grad(lambda x: fnp.sum(other(x)))(X - 1000))


@pytest.mark.parametrize(
    ("policy", "again"),
    [(policies.nothing, (1, 1, 2)), (policies.dots, (1, 1, 0)), (POST, (1, 0, 1)), (policies.everything, (0, 0, 0))],
    ids=str,
)
def test_values_that_a_branch_stores_are_not_recomputed(policy: policies.Policy, again: tuple[int, int, int]) -> None:
    done = work(fx.value_and_grad(fx.trace(branching(fx.remat, policy), X)).jaxpr)
    found = tuple([done[name] - n for name, n in (("exp", 1), ("cbrt", 1), ("dot_general", 4))])
    assert found == again


def stepping(policy: policies.Policy, max_steps: int | None = 5) -> Any:
    """Three steps of a loop with a bound of five."""

    def f(x: Any) -> Any:
        def step(state: Any) -> Any:
            k, h = state
            return k + 1, block(h)

        return fnp.sum(lax.while_loop(lambda s: s[0] < 3, step, (np.int32(0), x), max_steps=max_steps)[1])

    return fx.remat(f, policy=policy)


@pytest.mark.parametrize(
    ("policy", "again"),
    [(policies.nothing, (5, 5, 10)), (policies.dots, (5, 5, 0)), (POST, (5, 0, 5)), (policies.everything, (0, 0, 0))],
    ids=str,
)
def test_a_loop_with_a_bound_stores_rows(policy: policies.Policy, again: tuple[int, int, int]) -> None:
    f = stepping(policy)
    want = gradient(stepping(policies.nothing), X)
    np.testing.assert_array_equal(gradient(f, X), want)
    np.testing.assert_allclose(fx.jit(fx.grad(f))(X), want, rtol=1e-5)
    # `work` counts the forward and the backward loop by their bound: five steps each
    done = work(fx.value_and_grad(fx.trace(f, X)).jaxpr)
    found = tuple([done[name] - n for name, n in (("exp", 5), ("cbrt", 5), ("dot_general", 5 * 2 + 5 * 2))])
    assert found == again
    if policy is POST:
        assert stored(f, X) == ["name 'post': names('post')"]
        assert [r.aval.shape for r in fx.residuals(fx.trace(f, X)) if not r.is_argument] == [(5, 4, 4)]


def test_a_policy_changes_nothing_for_a_loop_without_a_bound() -> None:
    """Such a loop has no reverse mode. In forward mode and without derivatives a policy changes nothing."""
    f = stepping(policies.everything, None)
    kept = [e.outs[0] for j in distinct_jaxprs(fx.trace(f, X).jaxpr) for e in j.eqns if e.prim.name == "keep"]
    assert len(kept) == 2 + 1, "the results of the loop and of the sum: nothing of a step"
    np.testing.assert_array_equal(fx.jvp(f, (X,), (W,))[1], fx.jvp(stepping(policies.nothing, None), (X,), (W,))[1])
    with pytest.raises(fx.errors.NotDifferentiableError, match="no bound"):
        fx.grad(f)(X)


def test_a_loop_of_no_steps() -> None:
    f = fx.remat(lambda x: fnp.sum(lax.while_loop(lambda h: True, block, x, max_steps=0)), policy=policies.everything)
    np.testing.assert_array_equal(gradient(f, X), np.ones((4, 4), np.float32))


@fx.custom_vjp
def special(x: Any) -> Any:
    return fnp.sin(fnp.exp(x))


def special_fwd(x: Any) -> Any:
    e = fx.checkpoint_name(fnp.exp(x), "e")
    return fnp.sin(e), e


special.defvjp(special_fwd, lambda e, ct: (fnp.cos(e) * e * ct,))


def test_the_forward_program_of_a_rule_stores_the_values_that_a_policy_keeps() -> None:
    def f(policy: policies.Policy) -> Any:
        return fx.remat(lambda x: fnp.sum(fnp.tanh(special(x))), policy=policy)

    assert stored(f(policies.names("e")), X) == ["name 'e': names('e')"]
    assert stored(f(policies.nothing), X) == []
    for policy, exps in ((policies.nothing, 2), (policies.names("e"), 1)):
        done = work(fx.value_and_grad(fx.trace(f(policy), X)).jaxpr)
        assert (done["exp"], done["sin"]) == (exps, 2)
        np.testing.assert_array_equal(gradient(f(policy), X), gradient(lambda x: fnp.sum(fnp.tanh(special(x))), X))


@fx.custom_vjp
def clipped(x: Any) -> Any:
    return fnp.sin(x)


clipped.defvjp(lambda x: (fnp.sin(x) + 1, fnp.cos(x)), lambda c, ct: (3 * c * ct,))


@fx.custom_jvp
def doubled(x: Any) -> Any:
    return fnp.exp(x)


doubled.defjvp(lambda p, t: (fnp.exp(p[0]), 2 * t[0] * fnp.exp(p[0])))


@pytest.mark.parametrize("policy", [policies.nothing, policies.everything], ids=str)
@pytest.mark.parametrize("rule", [clipped, doubled])
def test_second_derivatives_differentiate_the_rule(rule: Any, policy: Any) -> None:
    """The first derivative takes the rule. The second one differentiates the rule, within a segment too."""

    def twice(f: Any) -> tuple[Any, Any]:
        once = fx.trace(lambda x: fnp.sum(f(x) ** 2), X)
        again = fx.grad(fx.trace(lambda x: fnp.sum(fx.grad(once)(x) ** 2), X))
        both = fx.trace(fx.value_and_grad(once), X)
        return fx.interpret(both, X)[0], fx.interpret(again, X)

    for got, want in zip(twice(fx.remat(rule, policy=policy)), twice(rule), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_an_unused_result_of_a_segment_is_not_recomputed() -> None:
    lean = fx.remat(lambda x: (fnp.sin(x), fnp.tanh(x)))
    done = work(fx.value_and_grad(fx.trace(lambda x: fnp.sum(lean(x)[0] * x), X)).jaxpr)
    assert (done["sin"], done["cos"], done["tanh"]) == (1, 1, 0)


NESTS: dict[str, Any] = {
    "cond in scan": lambda wrap: (
        lambda x: fnp.sum(
            lax.scan(lambda h, k: (lax.cond(k % 2 == 0, wrap(block), other, h), None), x, np.arange(4))[0]
        )
    ),
    "switch under vmap": lambda wrap: (
        lambda x: fnp.sum(
            fx.vmap(lambda k, row: lax.switch(k, [wrap(fnp.tanh), wrap(other), fnp.cos], row))(np.arange(4), x)
        )
    ),
    "while in cond": lambda wrap: (
        lambda x: fnp.sum(
            lax.cond(
                fnp.sum(x) < 1e3,
                wrap(lambda x: lax.while_loop(lambda h: fnp.sum(h) < 20, block, x, max_steps=3)),
                other,
                x,
            )
        )
    ),
    "while under vmap": lambda wrap: (
        lambda x: fnp.sum(
            fx.vmap(
                lambda row: lax.while_loop(lambda h: fnp.sum(h) < 3, wrap(lambda h: fnp.exp(h) + 1), row, max_steps=4)
            )(x)
        )
    ),
    "rule in cond": lambda wrap: lambda x: fnp.sum(lax.cond(fnp.sum(x) < 1e3, wrap(special), other, x)),
}


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("policy", [policies.nothing, POST | policies.dots, policies.everything], ids=str)
def test_loops_branches_and_rules_in_any_order(nest: str, policy: policies.Policy) -> None:
    lean: Any = fx.remat(policy=policy)
    make = NESTS[nest]
    plain = make(lambda f: f)
    want = gradient(plain, X)
    for f in (make(lean), lean(plain), lean(make(lean)), fx.remat(lean(plain)), lean(lean(make(lean)))):
        np.testing.assert_array_equal(gradient(f, X), want)
    np.testing.assert_allclose(fx.jit(fx.grad(lean(make(lean))))(X), want, rtol=2e-5, atol=1e-6)

    def second(f: Any) -> Any:
        def along(x: Any) -> Any:
            return fx.jvp(fx.grad(f), (x,), (W,))[1]

        return fx.interpret(fx.trace(along, X), X)

    np.testing.assert_allclose(second(lean(make(lean))), second(plain), rtol=2e-4, atol=1e-4)
    rows = np.stack([X, -X])
    batched, wanted = [fx.interpret(fx.trace(fx.vmap(fx.grad(f)), rows), rows) for f in (lean(plain), plain)]
    np.testing.assert_allclose(batched, wanted, rtol=2e-5, atol=1e-6)


def test_nested_segments_in_branches_store_a_value_that_both_policies_keep() -> None:
    post: Any = fx.remat(policy=POST)

    def f(outer: policies.Policy) -> Any:
        inner = post(lambda x: lax.cond(fnp.sum(x) < -1e3, other, block, x))
        return fx.remat(lambda x: fnp.sum(inner(inner(x))), policy=outer)

    assert stored(f(POST), X) == ["name 'post': names('post')"] * 2
    assert stored(f(policies.nothing), X) == []
    # without a policy both segments are recomputed; the outer recomputation starts from values that the inner ones keep
    assert work(fx.value_and_grad(fx.trace(f(POST), X)).jaxpr)["cbrt"] == 2


# -------------------------------------------------------------------------------- total number of runs of each equation

COUNTED = ("exp", "cbrt", "sin")


def counts_of(f: Any) -> tuple[int, ...]:
    counts = work(fx.value_and_grad(fx.trace(f, X)).jaxpr)
    return tuple([counts[name] for name in COUNTED])


def test_each_equation_in_a_scan_runs_once_and_is_recomputed_once() -> None:
    def looped(wrap: Any) -> Any:
        step = wrap(block)
        return lambda x: fnp.sum(lax.scan(lambda h, _: (step(h), None), x, None, length=5)[0])

    # the derivative of `cos h` contains another sine, which runs once in each pass
    plain, lean = counts_of(looped(lambda f: f)), counts_of(looped(fx.remat))
    assert plain == (5, 5, 5 + 5)
    assert lean == (5 + 5, 5 + 5, 5 + 5 + 5)


def test_each_equation_is_recomputed_once_for_each_segment_around_it() -> None:
    def two(f: Any) -> Any:
        return lambda x: f(f(x))

    inner = fx.remat(block)
    flat = two(two(inner))
    nested = fx.remat(two(inner))
    total = counts_of(lambda x: fnp.sum(two(nested)(x)))
    once = counts_of(lambda x: fnp.sum(flat(x)))
    assert once[:2] == (8, 8), "four blocks, forward and again"
    # the outer segment recomputes its blocks except the last, whose value is not needed; each block is recomputed by
    # itself
    assert total[:2] == (4 + 2 + 4, 4 + 2 + 4)


def test_each_equation_in_a_branch_runs_once_and_is_recomputed_once() -> None:
    def f(wrap: Any) -> Any:
        return lambda x: fnp.sum(lax.cond(fnp.sum(x) < -1e3, other, wrap(block), x))

    assert counts_of(f(lambda f: f))[:2] == (1, 1)
    assert counts_of(f(fx.remat))[:2] == (2, 2)


def test_a_recomputation_starts_from_stored_results() -> None:
    w = np.full((4, 4), 0.1, np.float32)

    def segment(x: fx.Array) -> fx.Array:
        for _ in range(5):
            x = fnp.cbrt(x @ w)
        return x

    def network(x: fx.Array, wrap: Any) -> fx.Array:
        for _ in range(4):
            x = wrap(segment)(x)
        return fnp.sum(x)

    program: Any = fx.trace(lambda x: network(x, fx.remat), w)
    runs = work(fx.grad(program).jaxpr)
    # 4 products of each segment are run again, because the next one stores its result; the last segment is run once,
    # backward
    assert runs["dot_general"] == 20 + 20 + 3 * 4
    assert runs["cbrt"] == 20 + 3 * 4
    plain: Any = fx.trace(lambda x: network(x, lambda f: f), w)
    assert (fx.interpret(fx.grad(program), w) == fx.interpret(fx.grad(plain), w)).all()
