"""Rules that call their own function: derivatives of any order, after any transformation."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, transforms
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.errors import NotDifferentiableError
from fxad.ir import distinct_jaxprs
from fxad.primitives.custom import CallWithRules
from fxad.primitives.named_calls import called_functions
from fxad.testing import Case, check_stack, differ, stacks
from tests.custom.test_rule_laws import LAYERS, SHAPES
from tests.laws.budget import share

Fun = Callable[..., Any]
X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.4, -0.7])


def exponential(kind: str) -> Fun:
    """exp, whose derivative is itself."""
    f: Any = fx.custom_jvp(lambda x: fnp.exp(x))
    if kind == "jvp":
        f.defjvp(lambda primals, dots: (f(*primals), f(*primals) * dots[0]))
    else:
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * f(x),))
    found: Fun = f
    return found


def circular() -> tuple[Fun, Fun]:
    """Returns sin and cos. The rule of each calls the other."""
    sin: Any = fx.custom_jvp(lambda x: fnp.sin(x))
    cos: Any = fx.custom_vjp(lambda x: fnp.cos(x))
    sin.defjvp(lambda primals, dots: (sin(*primals), cos(*primals) * dots[0]))
    cos.defvjp(lambda x: (cos(x), x), lambda x, ct: (-sin(x) * ct,))
    return sin, cos


def plain(x: Any, y: Any) -> Any:
    return fnp.exp(0.5 * fnp.sin(x)) * y, fnp.sin(x * y)


def ruled(kind: str) -> Fun:
    """Returns `plain` with a rule that calls its own first result and other functions with rules."""
    _, cos = circular()
    f: Any = fx.custom_vjp(plain)

    def tangents(primals: Any, dots: Any) -> Any:
        (x, y), (dx, dy) = primals, dots
        first, second = f(x, y)
        return (first, second), (0.5 * cos(x) * first * dx + f(x, dy)[0], cos(x * y) * (x * dy + y * dx))

    def backward(residuals: Any, cts: Any) -> Any:
        (x, y), (a, b) = residuals, cts
        of_one = f(x, fnp.ones_like(y))[0]
        return a * 0.5 * cos(x) * of_one * y + b * cos(x * y) * y, a * of_one + b * cos(x * y) * x

    if kind == "jvp":
        f.defjvp(tangents)
    else:
        f.defvjp(lambda x, y: (f(x, y), (x, y)), backward)
    found: Fun = f
    return found


def along_ones(f: Fun) -> Fun:
    return lambda x: fx.jvp(f, (x,), (fnp.ones_like(x),))[1]


def summed(f: Fun) -> Fun:
    return fx.grad(lambda x: fnp.sum(f(x)))


ORDERS: dict[str, Callable[[Fun], Fun]] = {
    "forward": along_ones,
    "reverse": summed,
    "jit": lambda f: fx.jit(summed(f)),
    "remat": lambda f: fx.remat(along_ones(f)),
    "vmap": lambda f: fx.vmap(fx.grad(lambda y: fnp.sum(f(y[None])))),
    "linearize": lambda f: lambda x: fx.linearize(f, x)[1](fnp.ones_like(x)),
}


@share(2)
@given(st.sampled_from(["jvp", "vjp"]), st.lists(st.sampled_from(sorted(ORDERS)), min_size=1, max_size=6))
def test_exp_is_its_own_derivative(kind: str, orders: list[str]) -> None:
    f = exponential(kind)
    for name in orders:
        f = ORDERS[name](f)
    np.testing.assert_allclose(np.asarray(f(X)), np.exp(X), rtol=1e-12)


@share(2)
@given(st.integers(0, 1), st.lists(st.sampled_from(sorted(ORDERS)), min_size=1, max_size=6))
def test_functions_in_each_others_rules(start: int, orders: list[str]) -> None:
    f = circular()[start]
    for name in orders:
        f = ORDERS[name](f)
    want = [np.sin(X), np.cos(X), -np.sin(X), -np.cos(X)][(start + len(orders)) % 4]
    np.testing.assert_allclose(np.asarray(f(X)), want, rtol=1e-12)


@share(2)
@given(st.sampled_from(SHAPES), st.sampled_from(["jvp", "vjp"]), stacks(3), st.integers(0, 3))
def test_stacks(shape: Callable[[Fun], Fun], kind: str, stack: tuple[str, ...], seed: int) -> None:
    program = fx.trace(shape(ruled(kind)), X, Y)
    check_stack(stack, Case(program.jaxpr, (*[np.asarray(b) for b in program.bound], X, Y), seed, True))


@share(2)
@given(st.sampled_from(SHAPES), st.sampled_from(["jvp", "vjp"]), st.lists(st.sampled_from(LAYERS), max_size=4))
def test_values_with_and_without_rules_agree(
    shape: Callable[[Fun], Fun], kind: str, layers: list[Callable[[Fun], Fun]]
) -> None:
    f, g = shape(ruled(kind)), shape(plain)
    for layer in layers:
        f, g = layer(f), layer(g)
    have, want = fx.trace(f, X, Y), fx.trace(g, X, Y)
    assert have.out_tree == want.out_tree
    assert called_functions(have.jaxpr) == ()
    typecheck(have.jaxpr)
    found = run(have.jaxpr, [*[np.asarray(b) for b in have.bound], X, Y])
    wanted = run(want.jaxpr, [*[np.asarray(b) for b in want.bound], X, Y])
    assert not differ(found, wanted, slack=1e-6)
    assert fx.text.parse(str(have.jaxpr)) is have.jaxpr


# ------------------------------------------------------------------------------------------------------ it is a value


def test_a_program_is_differentiated_to_any_order(tmp_path: Path) -> None:
    f = exponential("jvp")
    program = fx.trace(f, np.float64(0.5))
    assert len(distinct_jaxprs(program.jaxpr)) == 4, "the rule is there once"
    assert fx.trace(exponential("jvp"), np.float64(0.5)).jaxpr is program.jaxpr
    assert fx.text.parse(program.text()).digest == program.jaxpr.digest
    fx.save(program, tmp_path / "exp.fxad")
    again: Any = fx.load(tmp_path / "exp.fxad")
    for _ in range(7):
        again = fx.dce(fx.simplify(fx.cse(fx.grad(again))))
    np.testing.assert_allclose(float(again(np.float64(0.5))), np.exp(0.5), rtol=1e-14)


def test_a_program_of_a_straight_through_rounding_keeps_its_rule_at_each_order() -> None:
    """Nobody has asked for an order when it is traced, and its body has other derivatives: docs/adr/0048."""
    rounded: Any = fx.custom_jvp(lambda x: fnp.round(x))
    rounded.defjvp(lambda primals, dots: (rounded(*primals), dots[0] * rounded(primals[0])))
    program: Any = fx.trace(rounded, np.float32(2.3))
    for _ in range(5):
        program = fx.grad(program)
        assert float(program(np.float32(2.3))) == 2.0


def test_transformed_before_it_is_differentiated() -> None:
    """After batching and dce the rules still call the function itself."""
    f = ruled("vjp")
    program = fx.trace(lambda x, y: f(x, y)[0], X[0], Y[0])
    slim = fx.dce(program)
    (prim,) = [e.prim for e in slim.jaxpr.eqns if isinstance(e.prim, CallWithRules)]
    assert [len(f.body.outs) for f in (prim.function, *prim.module)] == [1, 2], "rules call the whole function"
    assert transforms.dce(slim.jaxpr) is slim.jaxpr
    stack = fx.vmap(fx.vmap(slim, axis_size=3), axis_size=2, in_axes=(None, 0))
    got: Any = stack
    want: Any = fx.vmap(fx.vmap(fx.trace(lambda x, y: plain(x, y)[0], X[0], Y[0]), axis_size=3), (None, 0), axis_size=2)
    rows = np.stack([Y, 2 * Y])

    def total(f: Any) -> Any:
        return lambda x, y: fnp.sum(fnp.sin(f(x, y)))

    got, want = total(got), total(want)
    for _ in range(4):
        got, want = [fx.grad(lambda x, y, f=f: fnp.sum(f(x, y))) for f in (got, want)]
        have, expected = [fx.interpret(fx.trace(g, X, rows), X, rows) for g in (got, want)]
        np.testing.assert_allclose(have, expected, rtol=1e-9, atol=1e-9)


def test_a_dropped_program_is_collected() -> None:
    program = fx.trace(fx.grad(exponential("vjp")), np.float64(0.25))
    held = weakref.ref(program.jaxpr)
    float(fx.grad(program)(np.float64(0.25)))
    del program
    fx.cache.clear()
    gc.collect()
    assert held() is None


def test_a_rule_is_traced_once_for_each_type() -> None:
    traced: list[str] = []
    f: Any = fx.custom_jvp(lambda x: fnp.exp(x))

    @f.defjvp  # type: ignore[untyped-decorator]
    def f_jvp(primals: Any, dots: Any) -> Any:
        traced.append(str(primals[0].aval))
        return f(*primals), f(*primals) * fnp.sum(f(fnp.stack([primals[0]] * 2))) * dots[0]

    fx.trace(f, np.float64(0.5))
    assert len(traced) == len(set(traced)) == 3, "and for each that it calls itself with, as deep as that goes"
    traced.clear()
    g = exponential("jvp")
    fx.trace(lambda x: g(g(x)), X)
    assert traced == []


# -------------------------------------------------------------------------------------------- what rules close over


def test_rules_that_close_over_arrays_and_tracers() -> None:
    held = fnp.asarray(Y)

    def outer(x: Any, scale: Any) -> Any:
        f: Any = fx.custom_jvp(lambda x: fnp.exp(x * held))

        @f.defjvp  # type: ignore[untyped-decorator]
        def f_jvp(primals: Any, dots: Any) -> Any:
            made = np.array([1.0, 1.0, 1.0])  # a new object in each trace of the rule
            return f(*primals), f(*primals) * held * dots[0] * made * scale

        def total(x: Any) -> Any:
            return fnp.sum(f(x))

        g: Fun = total
        for _ in range(4):
            g = along_ones(g)
        return g(x)

    want = np.sum(np.exp(X * Y) * (3 * Y) ** 4)
    np.testing.assert_allclose(float(outer(X, np.float64(3))), want, rtol=1e-12)
    np.testing.assert_allclose(float(fx.jit(outer)(X, np.float64(3))), want, rtol=1e-12)
    rows = fx.vmap(outer, in_axes=(None, 0))(X, np.array([3.0, 0.0]))
    np.testing.assert_allclose(np.asarray(rows), [want, 0.0], rtol=1e-12)
    by_scale: Any = fx.grad(outer, argnums=1)
    with pytest.raises(NotDifferentiableError, match="closes over a value of type f64"):
        by_scale(X, np.float64(3))


def test_a_rule_that_calls_its_function_in_control_flow_and_jit() -> None:
    f: Any = fx.custom_jvp(lambda x: fnp.exp(x))
    again = fx.jit(lambda x: f(x))

    @f.defjvp  # type: ignore[untyped-decorator]
    def f_jvp(primals: Any, dots: Any) -> Any:
        (x,), (dx,) = primals, dots
        value = lax.cond(True, again, lambda x: f(x) * 2.0, x)
        first = lax.scan(lambda c, _: (again(x), None), x, None, length=2)[0]
        return value, first * dx

    for name in ("forward", "reverse", "jit", "vmap"):
        g: Any = f
        for _ in range(4):
            g = ORDERS[name](g)
            np.testing.assert_allclose(fx.interpret(fx.trace(g, X), X), np.exp(X), rtol=1e-12)
    # the trace that jit caches in the rule does not leak
    np.testing.assert_allclose(np.asarray(fx.vmap(fx.grad(fx.grad(again)))(X)), np.exp(X), rtol=1e-12)


def test_a_batch_rule_and_a_rule_for_tangents() -> None:
    f: Any = fx.custom_vmap(lambda x: fnp.exp(x))
    f.defjvp(lambda primals, dots: (f(*primals), f(*primals) * dots[0]))
    f.def_vmap(3)(lambda size, mapped, x: (lax.map(f, x), True))
    for stack in (fx.vmap(fx.grad(fx.grad(fx.grad(f)))), summed(summed(summed(fx.vmap(f))))):
        np.testing.assert_allclose(np.asarray(stack(X)), np.exp(X), rtol=1e-12)


# ------------------------------------------------------------------------------- one function for each static argument


def power(x: Any, n: int) -> Any:
    return fnp.ones_like(x) if n == 0 else x**n


def powers() -> Fun:
    f: Any = fx.custom_jvp(power, nondiff_argnums=(1,))
    f.defjvp(lambda n, primals, dots: (f(*primals, n), n * f(*primals, n - 1) * dots[0]))
    found: Fun = f
    return found


def test_a_rule_with_another_static_argument_is_traced_as_deep_as_derivatives_are_taken() -> None:
    f = powers()

    def g(x: Any) -> Any:
        return f(x, 9)

    factor = 1.0
    for k in range(7):
        g = along_ones(g) if k % 2 else summed(g)
        factor *= 9 - k
        np.testing.assert_allclose(np.asarray(g(X)), factor * X ** (8 - k), rtol=1e-9)
    compiled = fx.jit(f, static_argnames="n")
    inner: Any = functools.partial(compiled, n=9)
    np.testing.assert_allclose(np.asarray(inner(X)), X**9)
    for _ in range(5):
        inner = along_ones(inner)
    np.testing.assert_allclose(np.asarray(inner(X)), 9 * 8 * 7 * 6 * 5 * X**4, rtol=1e-9)


def test_a_program_whose_rules_change_with_the_order_has_no_further_derivatives() -> None:
    f = powers()
    program: Any = fx.trace(lambda x: f(x, 9), np.float64(0.5))
    for _ in range(3):
        program = fx.grad(program)
    with pytest.raises(NotDifferentiableError) as e:
        fx.grad(program)
    assert e.value.message == (
        "call_with_rules: the rule of power calls functions with rules that are others in each derivative, and those "
        "of this order were not traced"
    )
    assert e.value.remedy == (
        "differentiate the function, not a program of it: it is traced as deep as derivatives are taken"
    )


def test_a_function_that_is_made_anew_in_its_own_rule() -> None:
    def exp(x: Any) -> Any:
        f: Any = fx.custom_jvp(lambda x: fnp.exp(x))
        f.defjvp(lambda primals, dots: (exp(*primals), exp(*primals) * dots[0]))
        return f(x)

    g: Any = exp
    for _ in range(5):
        g = along_ones(g)
    np.testing.assert_allclose(np.asarray(g(X)), np.exp(X), rtol=1e-12)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_a_result_that_depends_on_no_mapped_argument_is_not_mapped(kind: str) -> None:
    """The rule calls the function itself."""
    f: Any
    if kind == "jvp":
        f = fx.custom_jvp(lambda x, y: (x * 2, y * 3))
        f.defjvp(lambda primals, tangents: (f(*primals), (tangents[0] * 2, tangents[1] * 3)))
    else:
        f = fx.custom_vjp(lambda x, y: (x * 2, y * 3))
        f.defvjp(lambda x, y: (f(x, y), None), lambda _, cts: (cts[0] * 2, cts[1] * 3))
    x, y = np.arange(3, dtype=np.float32), np.float32(2)
    both = fx.vmap(f, (0, None), (0, None))
    np.testing.assert_array_equal(np.asarray(both(x, y)[0]), 2 * x)
    assert float(both(x, y)[1]) == 6

    def second(x: Any, y: Any) -> Any:
        return f(x, y)[1]

    assert float(fx.grad(lambda y: fx.vmap(second, (0, None), None)(x, y))(y)) == 3
    assert float(fx.vmap(fx.grad(second, argnums=1), (0, None), None)(x, y)) == 3


# ------------------------------------------------------------------------------------- functions with rules, nested


def _with_jvp(f: Any) -> Any:
    g: Any = fx.custom_jvp(lambda x: f(x))
    g.defjvp(lambda primals, tangents: (f(*primals), fx.jvp(f, primals, tangents)[1]))
    return g


def _with_vjp(f: Any) -> Any:
    g: Any = fx.custom_vjp(lambda x: f(x))
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (fx.vjp(f, x)[1](ct)[0],))
    return g


def _with_vmap(f: Any) -> Any:
    g: Any = fx.custom_vmap(lambda x: f(x))
    g.def_vmap(lambda size, batched, x: (fx.vmap(f)(x), True))
    return g


KINDS: Final[dict[str, Any]] = {"j": _with_jvp, "v": _with_vjp, "m": _with_vmap}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kinds", ["".join(k) for n in (1, 2, 3) for k in product("jvm", repeat=n)])
def test_rules_that_differentiate_functions_with_other_rules(kinds: str) -> None:
    """Regression: a rule for tangents was refused as not linear if it differentiates a function with a batch rule."""
    f: Any = fnp.sin
    for kind in kinds:
        f = KINDS[kind](f)
    x = np.linspace(0.1, 1, 6, dtype=np.float32).reshape(2, 3)
    v = x[0]

    def total(x: Any) -> Any:
        return f(x).sum()

    pairs: list[tuple[Any, Any]] = [
        (fx.grad(total)(v), np.cos(v)),
        (fx.vmap(fx.grad(total))(x), np.cos(x)),
        (fx.jacfwd(fx.grad(total))(v), np.diag(-np.sin(v))),
        (fx.vmap(f)(x), np.sin(x)),
        (fx.jvp(f, (v,), (v,))[1], np.cos(v) * v),
        (fx.grad(lambda x: fx.vmap(f)(x).sum())(x), np.cos(x)),
    ]
    for have, want in pairs:
        np.testing.assert_allclose(have, want, atol=1e-5)


@pytest.mark.parametrize("depth", [6, 9])
def test_nested_batch_rules(depth: int) -> None:
    """Regression: from a depth of 5 on, tracing the rules lost a function that a body calls, with a KeyError."""
    f: Any = fnp.sin
    for _ in range(depth):
        f = _with_vmap(f)
    x = np.linspace(0.1, 1, 3, dtype=np.float32)
    np.testing.assert_allclose(fx.vmap(f)(x), np.sin(x), atol=1e-6)
    np.testing.assert_allclose(fx.grad(fx.trace(f, x[0]))(x[0]), np.cos(x[0]), atol=1e-6)


def test_a_rule_that_calls_its_function_for_its_effect_alone() -> None:
    log: list[float] = []

    def sine(x: fx.Array) -> fx.Array:
        fx.debug.callback(lambda v: log.append(float(v)), x)
        return fnp.sin(x)

    forward = fx.custom_jvp(sine)

    @forward.defjvp
    def jvp(primals: tuple[fx.Array], tangents: tuple[fx.Array]) -> tuple[fx.Array, fx.Array]:
        (x,), (t,) = primals, tangents
        forward(x)
        return fnp.sin(x), t * fnp.cos(x)

    reverse = fx.custom_vjp(sine)

    def fwd(x: fx.Array) -> tuple[fx.Array, fx.Array]:
        reverse(x)
        return fnp.sin(x), x

    reverse.defvjp(fwd, lambda x, ct: (ct * fnp.cos(x),))
    for f in (forward, reverse):
        log.clear()
        np.testing.assert_allclose(np.asarray(fx.grad(f)(fnp.array(1.5))), np.cos(1.5), rtol=1e-6)
        fx.effects_barrier()
        assert log == [1.5]
        log.clear()
        slopes = fx.vmap(fx.grad(f))(fnp.array([1.5, 2.5]))
        np.testing.assert_allclose(np.asarray(slopes), np.cos([1.5, 2.5]), rtol=1e-6)
        fx.effects_barrier()
        assert sorted(log) == [1.5, 2.5]
