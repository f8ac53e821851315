"""Rules that raise an error when they are traced: only a transformation that needs the rule raises it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import NotDifferentiableError, NotInvertibleError
from tests.api.refusals import refused

Fun = Callable[..., Any]
X = np.array([0.5, -1.0, 2.0])
Y = np.array([1.5, 0.4, -0.7])
REMEDY = "give a rule that covers this case"


def product(x: Any, y: Any) -> Any:
    return x * y


def by_tangents(symbolic: bool = False) -> Fun:
    """A product whose rule raises for the derivative by `y`."""
    f: Any = fx.custom_jvp(product)

    def rule(primals: Any, tangents: Any) -> Any:
        if not isinstance(tangents[1], fx.SymbolicZero):
            raise NotImplementedError("no derivative by y")
        return f(*primals), tangents[0] * primals[1]

    f.defjvp(rule, symbolic_zeros=symbolic)
    found: Fun = f
    return found


def by_cotangents(symbolic: bool = False) -> Fun:
    f: Any = fx.custom_vjp(product)

    def rule(x: Any, y: Any) -> Any:
        if y.perturbed:
            raise NotImplementedError("no derivative by y")
        return f(x.value, y.value), y.value

    def cotangents(y: Any, ct: Any) -> Any:
        if not symbolic:
            raise NotImplementedError("no derivative by y")
        return ct * y, None

    f.defvjp(rule if symbolic else lambda x, y: (f(x, y), y), cotangents, symbolic_zeros=symbolic)
    found: Fun = f
    return found


each = pytest.mark.parametrize("make", [by_tangents, by_cotangents])


def total(f: Fun) -> Fun:
    return lambda x, y: fnp.sum(f(x, y))


@each
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_function_runs_and_is_a_value(make: Callable[[bool], Fun], symbolic: bool, tmp_path: Path) -> None:
    f = make(symbolic)
    program = fx.trace(f, X, Y)
    np.testing.assert_array_equal(fx.interpret(program, X, Y), X * Y)
    np.testing.assert_array_equal(np.asarray(fx.jit(f)(X, Y)), X * Y)
    np.testing.assert_array_equal(fx.interpret(fx.trace(fx.vmap(f), X, Y), X, Y), X * Y)
    assert fx.text.parse(str(program.jaxpr)) is program.jaxpr
    fx.save(program, tmp_path / "product.fxad")
    again: Any = fx.load(tmp_path / "product.fxad")
    assert again.jaxpr is program.jaxpr
    scale = fx.trace(fx.grad(lambda s: s * fnp.sum(f(X, Y))), np.float64(2.0))
    np.testing.assert_allclose(fx.interpret(scale, np.float64(2.0)), np.sum(X * Y))


@each
@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit, fx.dce, fx.remat, fx.vmap])
def test_the_derivative_is_refused_where_it_needs_the_rule(make: Callable[[bool], Fun], wrap: Any) -> None:
    f, told = make(False), make(True)
    role, rule = ("defjvp", "rule") if make is by_tangents else ("defvjp", "cotangents")
    raised = f"call_with_rules: {role} of product: {rule} raised NotImplementedError: no derivative by y"
    assert refused(lambda: fx.grad(total(wrap(f)))(X, Y), NotDifferentiableError, raised).remedy == REMEDY
    if wrap is not fx.vmap:  # the order of a series is one more than that of a derivative
        refused(lambda: fx.laplacian(total(wrap(f)))(X, Y), NotDifferentiableError, raised)
    by_x = fx.trace(fx.grad(total(wrap(told))), X, Y)
    np.testing.assert_array_equal(fx.interpret(by_x, X, Y), Y)
    for argnums in (1, (0, 1)):
        with pytest.raises(NotDifferentiableError, match=f"{role} of product: rule raised NotImplementedError"):
            fx.trace(fx.grad(total(wrap(told)), argnums=argnums), X, Y)


def test_one_rule_raises_and_the_other_does_not() -> None:
    f: Any = by_tangents()
    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda held, ct: (held[1] * ct, held[0] * ct))
    np.testing.assert_array_equal(fx.interpret(fx.trace(fx.grad(total(f), argnums=1), X, Y), X, Y), X)
    with pytest.raises(NotDifferentiableError, match="no derivative by y"):
        fx.trace(lambda x: fx.jvp(f, (x, Y), (x, Y)), X)


def test_a_rule_that_raises_in_the_rule_of_another() -> None:
    inner = by_tangents(symbolic=True)
    f: Any = fx.custom_jvp(lambda x, y: fnp.sin(x) * y)
    f.defjvp(lambda p, t: (f(*p), inner(fnp.cos(p[0]), p[1]) * t[0] + fnp.sin(p[0]) * t[1]))
    slope = fx.grad(total(f))
    np.testing.assert_allclose(fx.interpret(fx.trace(slope, X, Y), X, Y), np.cos(X) * Y)
    second = fx.trace(fx.grad(lambda x: fnp.sum(slope(x, Y))), X)
    np.testing.assert_allclose(fx.interpret(second, X), -np.sin(X) * Y)
    with pytest.raises(NotDifferentiableError, match="no derivative by y"):
        fx.trace(fx.grad(lambda y: fnp.sum(slope(X, y))), Y)


def test_an_error_of_an_operation_says_what_it_was() -> None:
    f: Any = fx.custom_jvp(lambda x: x)

    def rule(primals: Any, tangents: Any) -> Any:
        return primals[0], tangents[0] if primals[0][0] > 0 else -tangents[0]

    f.defjvp(rule)
    np.testing.assert_array_equal(np.asarray(fx.jit(f)(X)), X)
    with pytest.raises(NotDifferentiableError) as e:
        fx.trace(fx.grad(lambda x: fnp.sum(f(x))), X)
    assert e.value.message == (
        "call_with_rules: defjvp of <lambda>: rule raised TracerError: bool: Tracer<bool[]> of rule has no value while "
        "the function is traced"
    )
    assert e.value.remedy == "use fxad.numpy.where or fxad.lax.cond in place of if, while, and, or"


def test_an_inverse_that_raises() -> None:
    def inverse(y: Any) -> Any:
        raise RuntimeError

    f: Any = fx.custom_inverse(lambda x: 2.0 * x, inverse)
    np.testing.assert_array_equal(np.asarray(fx.jit(f)(X)), 2 * X)

    def summed(x: Any) -> Any:
        return fnp.sum(f(x))

    np.testing.assert_array_equal(fx.interpret(fx.trace(fx.grad(summed), X), X), np.full(3, 2.0))
    with pytest.raises(NotInvertibleError, match="definverse of <lambda>: inverse raised RuntimeError"):
        fx.trace(fx.inverse(f), X)


# ----------------------------------------------------------------------------------------- rules are traced once


def chain(depth: int, traced: list[int]) -> Fun:
    """A function whose rule calls another function with a rule, and so on. Each has its own code."""
    around: dict[str, Any] = {"fx": fx, "fnp": fnp, "traced": traced, "f0": lambda x, y: x * y}
    for k in range(depth):
        exec(
            f"""
f{k + 1} = fx.custom_jvp(lambda x, y: fnp.sin(x) * y)
def rule{k + 1}(primals, tangents):
    traced.append({k})
    scale = f{k}(*primals)
    return f{k + 1}(*primals), scale * sum([t for t in tangents if not isinstance(t, fx.SymbolicZero)])
f{k + 1}.defjvp(rule{k + 1}, symbolic_zeros=True)
""",
            around,
        )
    found: Fun = around[f"f{depth}"]
    return found


@pytest.mark.usefixtures("nothing_remembered")
def test_rules_in_rules_are_traced_once_for_each_set_of_arguments() -> None:
    traced: list[int] = []
    f = chain(12, traced)
    program = fx.trace(f, X, Y)
    assert sorted(traced) == sorted([*range(12)] * 3), "not 3^12 times"
    slope = fx.trace(fx.grad(total(program)), X, Y)
    np.testing.assert_allclose(fx.interpret(slope, X, Y), np.sin(X) * Y)


def made_by_a_factory(depth: int, traced: list[int]) -> Fun:
    """A function whose rule differentiates another function with a rule, and so on. All have the same code."""
    if not depth:
        return lambda x, y: fnp.sin(x) * y
    inner = made_by_a_factory(depth - 1, traced)
    f: Any = fx.custom_jvp(lambda x, y: 2.0 * inner(x, y))

    def rule(primals: Any, tangents: Any) -> Any:
        traced.append(depth)
        out, dot = fx.jvp(inner, primals, tangents)
        return 2.0 * out, 2.0 * dot

    f.defjvp(rule)
    return f  # type: ignore[no-any-return]


@pytest.mark.usefixtures("nothing_remembered")
def test_rules_that_differentiate_functions_of_a_factory_are_traced_once_for_each_order() -> None:
    traced: list[int] = []
    slope = fx.trace(fx.grad(total(made_by_a_factory(12, traced))), X, Y)
    # level k is differentiated by 13 - k orders
    assert sorted(traced) == [k for k in range(1, 13) for _ in range(13 - k)], "not 2^12 times"
    np.testing.assert_allclose(fx.interpret(slope, X, Y), 2.0**12 * np.cos(X) * Y)


@pytest.mark.usefixtures("nothing_remembered")
def test_traces_of_rules_are_not_shared_between_rules() -> None:
    """A function that closes over a value of the rule, and two functions that refer to each other."""
    free: Any = fx.custom_jvp(lambda x: fnp.cos(x))
    g: Any = fx.custom_jvp(lambda x: fnp.sin(x))
    free.defjvp(lambda p, t: (free(*p), -g(*p) * t[0]))
    g.defjvp(lambda p, t: (g(*p), free(*p) * t[0]))
    f: Any = fx.custom_jvp(lambda x, y: fnp.sin(x) * y)

    def rule(primals: Any, tangents: Any) -> Any:
        x, y = primals
        held: Any = fx.custom_jvp(lambda t: t * y)
        held.defjvp(lambda p, t: (held(*p), held(*t)))
        dx, dy = [t.instantiate() if isinstance(t, fx.SymbolicZero) else t for t in tangents]
        return f(x, y), held(free(x)) * dx + fnp.sin(x) * dy

    f.defjvp(rule, symbolic_zeros=True)

    def along_ones(h: Fun) -> Fun:
        return lambda x: fx.jvp(h, (x,), (fnp.ones_like(x),))[1]

    order: Fun = lambda x: f(x, Y)  # noqa: E731
    for want in (np.cos(X) * Y, -np.sin(X) * Y, -np.cos(X) * Y):
        order = along_ones(order)
        np.testing.assert_allclose(fx.interpret(fx.trace(order, X), X), want, rtol=1e-12)


def test_an_implicit_solver_of_rules_in_rules() -> None:
    """Steps of the implicit Euler method: a root finder whose rule solves a linear system, whose rule solves it
    again."""
    solve: Any = fx.custom_jvp(fnp.linalg.solve)

    def of_system(primals: Any, tangents: Any) -> Any:
        (a, b), (da, db) = primals, tangents
        x = solve(a, b)
        moved = -da @ x if isinstance(db, fx.SymbolicZero) else db
        both = not isinstance(da, fx.SymbolicZero) and not isinstance(db, fx.SymbolicZero)
        return x, solve(a, moved - da @ x if both else moved)

    solve.defjvp(of_system, symbolic_zeros=True)

    def equation(x: Any, y: Any, p: Any) -> Any:
        return x - y - 0.1 * (fnp.sin(x) * p - x)

    def newton(y: Any, p: Any, start: Any) -> Any:
        x = start
        for _ in range(4):
            x = x - solve(fx.jacfwd(equation)(x, y, p), equation(x, y, p))
        return x

    step: Any = fx.custom_jvp(newton)

    def of_root(primals: Any, tangents: Any) -> Any:
        y, p, start = primals
        dy, dp = [t.instantiate() if isinstance(t, fx.SymbolicZero) else t for t in tangents[:2]]
        x = step(y, p, start)
        moved = fx.jvp(lambda y, p: equation(x, y, p), (y, p), (dy, dp))[1]
        return x, -solve(fx.jacfwd(equation)(x, y, p), moved)

    step.defjvp(of_root, symbolic_zeros=True)

    def end(step: Fun) -> Fun:
        def total(y: Any, p: Any) -> Any:
            for _ in range(3):
                y = step(y, p, y)
            return fnp.sum(y)

        return total

    for argnums in (0, 1):
        have, want = [fx.trace(fx.grad(end(f), argnums=argnums), X, Y) for f in (step, newton)]
        np.testing.assert_allclose(fx.interpret(have, X, Y), fx.interpret(want, X, Y), rtol=1e-9)
