"""Functions with rules: each transformation takes its rule, in any order of transformations."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, random
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.ir import Aval, Jaxpr, Lit, distinct_jaxprs
from fxad.primitives.control.call import Call
from fxad.primitives.custom import CallWithRules
from fxad.primitives.elementwise import ADD, MUL
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.linearity import is_linear
from fxad.testing import check_adjoint, check_rule
from fxad.transforms.ad.transpose import transpose

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.4, -0.7])


def names(jaxpr: Jaxpr) -> set[str]:
    return {e.prim.name for body in distinct_jaxprs(jaxpr) for e in body.eqns}


def log1pexp() -> fx.CustomFunction[[Any], Any]:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.log(1 + fnp.exp(x))

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (x_dot,) = primals, tangents
        return f(x), (1 - 1 / (1 + fnp.exp(x))) * x_dot

    return f


def marked(*kinds: str) -> fx.CustomFunction[[Any, Any], Any]:
    """sin(x) * y with rules that return a multiple of the derivative: 10 times the tangent, 100 times the cotangent."""

    @fx.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return fnp.sin(x) * y, 10 * (fnp.cos(x) * y * dx + fnp.sin(x) * dy)

    def fwd(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y, {"x": x, "rest": (y, 100)}

    def bwd(residuals: Any, ct: Any) -> Any:
        x, (y, scale) = residuals["x"], residuals["rest"]
        return scale * fnp.cos(x) * y * ct, scale * fnp.sin(x) * ct

    if "jvp" in kinds:
        f.defjvp(f_jvp)
    if "vjp" in kinds:
        f.defvjp(fwd, bwd)
    return f


@pytest.mark.parametrize(
    ("kinds", "forward", "reverse"),
    [(("jvp",), 10, 10), (("vjp",), 100, 100), (("jvp", "vjp"), 10, 100)],
)
def test_each_transformation_takes_the_rule_it_needs(kinds: tuple[str, ...], forward: int, reverse: int) -> None:
    f = marked(*kinds)
    _, dot = fx.jvp(f, (X, Y), (fnp.ones(3, dtype="float64"), fnp.zeros(3, dtype="float64")))
    np.testing.assert_allclose(np.asarray(dot), forward * np.cos(X) * Y)

    def total(x: Any, y: Any) -> fx.Array:
        return fnp.sum(f(x, y))

    gradient: Callable[..., Any] = fx.grad(total, argnums=(0, 1))
    gx, gy = gradient(X, Y)
    np.testing.assert_allclose(np.asarray(gx), reverse * np.cos(X) * Y)
    np.testing.assert_allclose(np.asarray(gy), reverse * np.sin(X))
    # linearize takes the rule of reverse mode, so that the transpose of its linear map is the vjp
    _, lin = fx.linearize(f, X, Y)
    np.testing.assert_allclose(np.asarray(lin(fnp.ones_like(X), fnp.zeros_like(Y))), reverse * np.cos(X) * Y)


@pytest.mark.parametrize("kinds", [("jvp",), ("vjp",), ("jvp", "vjp")])
def test_rules_survive_transformations_in_any_order(kinds: tuple[str, ...]) -> None:
    f = marked(*kinds)
    reverse = 100 if "vjp" in kinds else 10
    want = reverse * np.cos(X) * Y

    def total(x: Any, y: Any) -> fx.Array:
        return fnp.sum(f(x, y))

    wrapped: dict[str, Callable[[Any, Any], fx.Array]] = {
        "vmap": lambda x, y: fnp.sum(fx.vmap(f)(x, y)),
        "remat": fx.remat(total),
        "jit": fx.jit(total),
        "cond": lambda x, y: lax.cond(True, total, lambda x, y: 0.0 * total(x, y), x, y),
        "scan": lambda x, y: lax.scan(lambda c, xy: (c + f(*xy), None), np.float64(0), (x, y))[0],
        "cse": fx.cse(total),
        "simplify": fx.simplify(total),
        "inline": fx.inline(fx.remat(total)),
        "dce": fx.dce(total),
    }
    for what, g in wrapped.items():
        np.testing.assert_allclose(np.asarray(fx.grad(g)(X, Y)), want, err_msg=what)
    each = fx.vmap(fx.grad(f))(X, Y)
    np.testing.assert_allclose(np.asarray(each), want)
    rows = np.stack([X, X + 1])
    nested = fx.vmap(fx.grad(lambda x: fnp.sum(fx.vmap(f)(x, Y))))(rows)
    np.testing.assert_allclose(np.asarray(nested), reverse * np.cos(rows) * Y)


def test_rules_are_in_the_text_of_the_program() -> None:
    program = fx.trace(marked("jvp", "vjp"), X, Y)
    (eqn,) = program.jaxpr.eqns
    assert isinstance(eqn.prim, CallWithRules)
    assert len(eqn.prim.bodies) == 6
    assert fx.text.parse(program.text()) is program.jaxpr
    assert fx.trace(marked("jvp", "vjp"), X, Y).jaxpr is program.jaxpr
    assert fx.trace(marked("jvp"), X, Y).jaxpr.digest != program.jaxpr.digest
    np.testing.assert_allclose(fx.interpret(program, X, Y), np.sin(X) * Y)


def test_reverse_mode_stores_the_residuals_of_the_rule() -> None:
    forward = fx.linearize(fx.trace(marked("vjp"), X, Y))
    assert [str(a) for a in forward.residuals] == ["f64[3]", "f64[3]"]
    assert "linear_call" in names(forward.linear.jaxpr)


def test_equations_for_zero_tangents_and_cotangents_are_removed() -> None:
    program = fx.trace(marked("jvp", "vjp"), X, Y)
    one = fx.linearize(program, argnums=1)  # d/dy needs x alone
    assert len(one.residuals) == 1
    both = fx.linearize(program)
    assert len(fx.dce(fx.transpose(one.linear, argnums=0)).jaxpr.eqns) <= len(both.linear.jaxpr.eqns) + 1
    adjoint = fx.transpose(one.linear, argnums=0).jaxpr
    (call,) = [e.prim for e in adjoint.eqns if isinstance(e.prim, LinearCall)]
    assert "cos" not in {e.prim.name for e in call.body.eqns}


def test_log1pexp_is_stable_to_the_fourth_order() -> None:
    f = log1pexp()
    assert float(fx.grad(f)(100.0)) == 1.0
    g: Any = f
    s = 1 / (1 + np.exp(-0.7))
    derivatives = [s, s * (1 - s), s * (1 - s) * (1 - 2 * s), s * (1 - s) * (1 - 6 * s + 6 * s * s)]
    for want in derivatives:
        g = fx.grad(g)
        np.testing.assert_allclose(float(g(np.float64(0.7))), want, rtol=1e-9)


def test_forward_mode_of_a_rule_for_cotangents_to_second_order() -> None:
    f = marked("vjp")

    def total(x: Any) -> fx.Array:
        return fnp.sum(f(x, x * x))

    # each derivative of f is 100 times the true one; second derivatives differentiate the rule
    jacobian = fx.jacfwd(fx.grad(total))(X)
    other = fx.jacrev(fx.grad(total))(X)
    np.testing.assert_allclose(np.asarray(jacobian), np.asarray(other))


def test_trees_integers_and_auxiliary_results() -> None:
    @fx.custom_vjp
    def f(params: dict[str, Any], n: Any, flag: Any) -> Any:
        return {"y": params["w"] * n, "count": n + 1}, (flag,)

    def fwd(params: dict[str, Any], n: Any, flag: Any) -> Any:
        return f.fun(params, n, flag), (n,)

    def bwd(residuals: Any, cts: Any) -> Any:
        (n,) = residuals
        ct, rest = cts
        assert ct["count"] is None
        assert rest == (None,)
        return {"w": ct["y"] * n, "unused": None}, None, None

    f.defvjp(fwd, bwd)
    params = {"w": X, "unused": Y}
    check_rule(f, {**params, "unused": 1.0}, 3, True)
    grads = fx.grad(lambda p: fnp.sum(f(p, 3, True)[0]["y"]))(params)
    np.testing.assert_allclose(np.asarray(grads["w"]), [3.0, 3.0, 3.0])
    np.testing.assert_allclose(np.asarray(grads["unused"]), [0.0, 0.0, 0.0])
    (value, aux), dot = fx.jvp(f, (params, 3, True), ({"w": Y, "unused": Y}, None, None))
    np.testing.assert_allclose(np.asarray(dot[0]["y"]), 3 * Y)
    assert dot[0]["count"] is None
    assert int(value["count"]) == 4
    assert bool(aux[0])


def test_residuals_that_are_no_arrays_are_given_back_as_they_are() -> None:
    """Values that are known when `fwd` is traced are passed to `bwd` as they are: a shape, an axis, a name, a
    function, an int that is an argument."""

    @fx.custom_vjp
    def pooled(x: Any, how: Any) -> Any:
        return fnp.sum(x, axis=1) * how

    class Mode(Enum):
        PLAIN = 1

    def fwd(x: Any, how: Any) -> Any:
        axis, scale = 1, 2.0
        return pooled(x, how), (
            x.shape,
            axis,
            "name",
            scale,
            Mode.PLAIN,
            fnp.negative,
            x.dtype,
            None,
            how,
            np.float32(3),
        )

    def bwd(residuals: Any, ct: Any) -> Any:
        shape, axis, name, scale, mode, negative, dtype, none, how, number = residuals
        assert (shape, axis, name, mode, none) == ((3, 2), 1, "name", Mode.PLAIN, None)
        assert type(scale) is float
        assert negative is fnp.negative
        assert how == 2
        assert isinstance(number, fx.Array)
        bar = fnp.broadcast_to(fnp.expand_dims(ct * how, axis), shape)
        return -negative(bar).astype(dtype) * scale / 2.0, None

    pooled.defvjp(fwd, bwd)
    x, weights = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0])

    def total(x: Any) -> Any:
        return fnp.sum(pooled(x, 2) * weights)

    want = np.repeat(2 * weights[:, None], 2, 1)
    np.testing.assert_allclose(np.asarray(fx.grad(total)(x)), want)
    np.testing.assert_allclose(np.asarray(fx.jit(fx.grad(fx.remat(total)))(x)), want)
    rows = fx.vmap(fx.grad(total))(np.stack([x, x]))
    np.testing.assert_allclose(np.asarray(rows), np.stack([want, want]))
    np.testing.assert_allclose(np.asarray(fx.jacfwd(total)(x)), want)


def test_tangents_of_integers_are_none_in_a_rule_for_tangents() -> None:
    @fx.custom_jvp
    def f(x: Any, n: Any) -> Any:
        return x * n, n

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, n), (dx, dn) = primals, tangents
        assert dn is None
        return (x * n, n), (dx * n, None)

    _, (dot, none) = fx.jvp(f, (X, 2), (Y, None))
    np.testing.assert_allclose(np.asarray(dot), 2 * Y)
    assert none is None


def test_arguments_that_are_not_arrays() -> None:
    def apply(fn: Callable[[Any], Any], x: Any, k: int) -> Any:
        return fn(x) ** k

    def jvp(fn: Callable[[Any], Any], k: int, primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents
        return fn(x) ** k, 7 * k * dx

    f = fx.custom_jvp(apply, nondiff_argnums=(0, 2))
    f.defjvp(jvp)
    np.testing.assert_allclose(np.asarray(fx.grad(lambda x: f(fnp.sin, x, k=3))(np.float64(0.5))), 21.0)

    g = fx.custom_vjp(nondiff_argnums=(0, 2))(apply)
    g.defvjp(lambda fn, x, k: (fn(x) ** k, x), lambda fn, k, residual, ct: (11 * k * ct,))
    np.testing.assert_allclose(np.asarray(fx.grad(lambda x: g(fnp.sin, x, 3))(np.float64(0.5))), 33.0)


def test_defjvps_with_rules_for_single_arguments() -> None:
    @fx.custom_jvp
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y * z

    f.defjvps(lambda t, out, x, y, z: 2 * t * out / x, None, lambda t, out, x, y, z: t * x * y)
    gx, gy, gz = fx.grad(f, argnums=(0, 1, 2))(np.float64(2), np.float64(3), np.float64(5))
    assert [float(g) for g in (gx, gy, gz)] == [30.0, 0.0, 6.0]


def test_rules_close_over_tracers_and_arrays() -> None:
    def outer(x: Any, scale: Any) -> fx.Array:
        held = fnp.asarray(Y)

        @fx.custom_vjp
        def f(x: Any) -> Any:
            return x * held

        f.defvjp(lambda x: (x * held, None), lambda _, ct: (ct * held * scale,))
        return fnp.sum(f(x))

    got = fx.grad(outer)(X, np.float64(3))
    np.testing.assert_allclose(np.asarray(got), 3 * Y)
    rows = fx.vmap(fx.grad(outer), in_axes=(None, 0))(X, np.array([1.0, 2.0]))
    np.testing.assert_allclose(np.asarray(rows), [Y, 2 * Y])


def test_a_batch_rule_for_certain_sizes() -> None:
    @fx.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    @f.def_vmap(3, 4)
    def f_vmap(axis_size: int, in_batched: Any, x: Any, y: Any) -> Any:
        assert in_batched == [True, True]
        return fnp.sin(x) * y + 1000, True

    want = np.sin(X) * Y
    np.testing.assert_allclose(np.asarray(fx.vmap(f)(X, Y)), want + 1000)
    np.testing.assert_allclose(np.asarray(fx.vmap(f, in_axes=(0, None))(X, Y[0])), np.sin(X) * Y[0] + 1000)
    np.testing.assert_allclose(np.asarray(fx.vmap(f)(X[:2], Y[:2])), want[:2])  # there is no rule for this size
    rows = fx.vmap(fx.vmap(f), in_axes=(1, None))(np.stack([X, X], 1), Y)  # the inner vmap uses the rule
    np.testing.assert_allclose(np.asarray(rows), np.stack([want, want]) + 1000)
    np.testing.assert_allclose(np.asarray(fx.grad(lambda x: fnp.sum(fx.vmap(f)(x, Y)))(X)), np.cos(X) * Y)


def test_a_batch_rule_that_calls_its_function() -> None:
    f = fx.custom_vmap(lambda x: fnp.sin(x))
    f.def_vmap(3)(lambda size, mapped, x: (f(x), True))
    np.testing.assert_allclose(np.asarray(fx.vmap(fx.grad(f))(X)), np.cos(X))


def test_keys_have_no_tangent() -> None:
    @fx.custom_vjp
    def noisy(key: Any, x: Any) -> Any:
        return x * random.normal(key, x.shape, x.dtype)

    def bwd(residuals: Any, ct: Any) -> Any:
        return None, ct * residuals

    noisy.defvjp(lambda key, x: (noisy(key, x), random.normal(key, x.shape, x.dtype)), bwd)
    key = random.key(0)
    got = fx.grad(lambda x: fnp.sum(noisy(key, x)))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(random.normal(key, (3,), np.float64)))


def test_all_kinds_of_rules_on_one_function() -> None:
    @fx.custom_vmap
    @fx.custom_vjp
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.tanh(x)

    f.defjvp(lambda primals, tangents: (fnp.tanh(*primals), tangents[0] * (1 - fnp.tanh(*primals) ** 2)))
    f.defvjp(lambda x: (fnp.tanh(x), fnp.tanh(x)), lambda y, ct: (ct * (1 - y * y),))
    f.def_vmap(3)(lambda size, mapped, x: (fnp.tanh(x), True))
    assert f.rules == ("jvp", "vjp", "vmap")
    assert repr(f) == "<f with rules for jvp, vjp, vmap>"
    check_rule(f, X)
    check_rule(f, np.float32(0.3))
    hessian = fx.vmap(fx.grad(fx.grad(f)))(X)
    y = np.tanh(X)
    np.testing.assert_allclose(np.asarray(hessian), -2 * y * (1 - y * y))


def test_a_rule_that_calls_jvp_of_the_plain_function() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x) * x

    def plain(x: Any) -> Any:
        return f.fun(x)

    f.defjvp(lambda primals, tangents: fx.jvp(plain, primals, tangents))

    def looped(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: f(c), x)

    check_rule(f, X)
    got = fx.grad(lambda x: fnp.sum(looped(x)))(X)
    want = fx.grad(lambda x: fnp.sum(lax.fori_loop(0, 3, lambda _, c: plain(c), x)))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want))


def test_a_rule_that_runs_a_loop_over_primals_and_tangents() -> None:
    @fx.custom_jvp
    def power(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, y: y * x, fnp.ones_like(x))

    @power.defjvp
    def power_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents

        def step(_: Any, both: Any) -> Any:
            y, dy = both
            return y * x, dy * x + y * dx

        return lax.fori_loop(0, 3, step, (fnp.ones_like(x), fnp.zeros_like(x)))

    check_rule(power, X)
    np.testing.assert_allclose(np.asarray(fx.grad(lambda x: fnp.sum(power(x)))(X)), 3 * X**2)


def test_a_linear_call_of_zeros() -> None:
    """A literal zero among the linear operands is linear. One among the residuals is known."""

    def twice(x: Any, y: Any) -> Any:
        there = lambda r, xs: xs[0] * 2.0 + xs[1] * fnp.cos(r)  # noqa: E731
        return fnp.sum(lax.linear_call(there, lambda r, ct: (2.0 * ct, ct * fnp.cos(r)), 0.0, (x, y)))

    for f in (lambda x: twice(x, X), lambda x: twice(x, fnp.zeros_like(x))):
        np.testing.assert_array_equal(fx.interpret(fx.trace(fx.grad(f), X), X), np.full(3, 2.0))
    # of two equal zeros one is linear: their position in the body decides
    aval = Aval((3,), "float64")
    b = Builder()
    x, y, r = b.inputs((aval,) * 3)
    body = b.build([b.one(ADD, x, b.one(MUL, y, r))], "body")
    b = Builder()
    zero = Lit.of(0.0, aval)
    program = b.build(b(Call(body), b.input(aval), zero, zero), "called")
    assert is_linear(program, (True,))
    assert run(transpose(program, (True,)), [np.ones(3)])[0].tolist() == [1.0] * 3


def test_linear_call() -> None:
    A = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]])

    def solve(a: Any, b: Any) -> Any:
        return fnp.linalg.solve(a, b)

    def solve_transposed(a: Any, ct: Any) -> Any:
        return fnp.linalg.solve(fnp.matrix_transpose(a), ct)

    def f(a: Any, b: Any) -> Any:
        return lax.linear_call(solve, solve_transposed, a, b)

    check_adjoint(solve, solve_transposed, A, X)
    np.testing.assert_allclose(np.asarray(f(A, X)), np.linalg.solve(A, X))
    got = fx.jacrev(f, argnums=1)(A, X)
    np.testing.assert_allclose(np.asarray(got), np.linalg.inv(A), atol=1e-12)
    np.testing.assert_allclose(np.asarray(fx.jacfwd(f, argnums=1)(A, X)), np.linalg.inv(A), atol=1e-12)
    for direct in (fx.jacrev, fx.jacfwd):
        np.testing.assert_allclose(
            np.asarray(direct(f, argnums=0)(A, X)), np.asarray(direct(solve, argnums=0)(A, X)), atol=1e-12
        )
    adjoint = fx.transpose(fx.trace(lambda b: f(A, b), X))
    assert "linear_call" in names(adjoint.jaxpr)
    assert fx.transpose(adjoint).jaxpr is fx.trace(lambda b: f(A, b), X).jaxpr
    rows = fx.vmap(lambda b: fx.grad(lambda b: fnp.sum(f(A, b)))(b))(np.stack([X, Y]))
    np.testing.assert_allclose(np.asarray(rows)[0], np.linalg.solve(A.T, np.ones(3)))
    with pytest.raises(AssertionError, match="solve is not the adjoint of solve"):
        check_adjoint(solve, solve, A, X)


def test_a_solver_in_the_rule_for_cotangents() -> None:
    A = np.array([[4.0, 1.0, 0.0], [0.5, 3.0, 1.0], [1.0, 0.0, 5.0]])

    def jacobi(a: Any, b: Any) -> Any:
        """Linear in b, but only as a whole: the loop ends when it has converged."""
        diagonal = fnp.linalg.diagonal(a)

        def step(state: Any) -> Any:
            x, _ = state
            new = (b - a @ x + diagonal * x) / diagonal
            return new, fnp.max(fnp.abs(new - x))

        return lax.while_loop(lambda s: s[1] > 1e-14, step, (fnp.zeros_like(b), np.float64(1)))[0]

    @fx.custom_vjp
    def solve(a: Any, b: Any) -> Any:
        return jacobi(a, b)

    def fwd(a: Any, b: Any) -> Any:
        x = jacobi(a, b)
        return x, (a, x)

    def bwd(residuals: Any, ct: Any) -> Any:
        a, x = residuals
        b_bar = lax.linear_call(lambda a, c: jacobi(fnp.matrix_transpose(a), c), jacobi, a, ct)
        return -b_bar[:, None] * x[None, :], b_bar

    solve.defvjp(fwd, bwd)
    for derivative in (fx.jacrev, fx.jacfwd):
        got = derivative(solve, argnums=1)(A, X)
        np.testing.assert_allclose(np.asarray(got), np.linalg.inv(A), atol=1e-10)
        got = derivative(solve, argnums=0)(A, X)
        want = fx.jacrev(fnp.linalg.solve, argnums=0)(fnp.asarray(A), X)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), atol=1e-10)
    rows = fx.vmap(fx.grad(lambda b: fnp.sum(solve(A, b))))(np.stack([X, Y]))
    np.testing.assert_allclose(np.asarray(rows)[1], np.linalg.solve(A.T, np.ones(3)))


def test_a_call_outside_a_trace_is_the_plain_function() -> None:
    calls = []

    @fx.custom_jvp
    def f(x: Any, *, scale: float = 2.0) -> Any:
        calls.append(type(x).__name__)
        return x

    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    assert f(2.0, scale=3.0) == 2.0
    assert calls == ["float"]


def test_check_rule_finds_a_wrong_rule() -> None:
    with pytest.raises(AssertionError, match="f: tangent of result differs from what is derived"):
        check_rule(marked("jvp"), X, Y)
    with pytest.raises(AssertionError, match=r"f: cotangent of|f: tangent of"):
        check_rule(marked("vjp"), X, Y)
    f = fx.custom_vmap(fnp.sin)
    f.def_vmap(3)(lambda size, mapped, x: (fnp.cos(x), True))
    with pytest.raises(AssertionError, match="sin: result of a stack of 3 differs from what is derived"):
        check_rule(f, X)
