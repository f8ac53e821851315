"""Rules with symbolic zeros: a rule is traced for the set of arguments with nonzero tangents, under all
transformations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import DTypeError, NotDifferentiableError, NotLinearError, ParameterError, TreeError
from fxad.ir import Aval
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, Rules
from fxad.testing import Case, check_rule, check_stack, differ, stacks
from tests.custom.test_rule_laws import LAYERS, SHAPES, X, Y, plain
from tests.laws.budget import share

Fun = Callable[..., Any]


def with_symbolic_zeros(*kinds: str) -> Fun:
    """`plain` with rules that check for symbolic zeros."""
    f: Any = fx.custom_vjp(plain)

    def tangents(primals: Any, dots: Any) -> Any:
        (x, y), (dx, dy) = primals, dots
        first: Any = fx.SymbolicZero(x.aval)
        second: Any = fx.SymbolicZero(x.aval)
        if not isinstance(dx, fx.SymbolicZero):
            first, second = (fnp.cos(x) * y + 1) * dx, dx
        if not isinstance(dy, fx.SymbolicZero):
            known = isinstance(first, fx.SymbolicZero)
            first = fnp.sin(x) * dy if known else first + fnp.sin(x) * dy
            second = -2 * dy if known else second - 2 * dy
        return f(x, y), (first, second)

    def forward(x: Any, y: Any) -> Any:
        stored = y.value if x.perturbed else None
        return f(x.value, y.value), (x.value, stored, x.perturbed, y.perturbed)

    def backward(residuals: Any, cts: Any) -> Any:
        (x, y, wants_x, wants_y), (a, b) = residuals, cts
        zero = fx.SymbolicZero(x.aval)
        given = [(ct, k) for k, ct in enumerate((a, b)) if not isinstance(ct, fx.SymbolicZero)]
        by_x = sum([(ct * (fnp.cos(x) * y + 1), ct)[k] for ct, k in given]) if wants_x else None
        return by_x, sum([(ct * fnp.sin(x), -2 * ct)[k] for ct, k in given]) if wants_y else zero

    if "jvp" in kinds:
        f.defjvp(tangents, symbolic_zeros=True)
    if "vjp" in kinds:
        f.defvjp(forward, backward, symbolic_zeros=True)
    found: Fun = f
    return found


rule_sets = st.sampled_from([("jvp",), ("vjp",), ("jvp", "vjp")])


@share(2)
@given(st.sampled_from(SHAPES), rule_sets, stacks(3), st.integers(0, 3))
def test_stacks(shape: Callable[[Fun], Fun], kinds: tuple[str, ...], stack: tuple[str, ...], seed: int) -> None:
    program = fx.trace(shape(with_symbolic_zeros(*kinds)), X, Y)
    check_stack(stack, Case(program.jaxpr, (*[np.asarray(b) for b in program.bound], X, Y), seed, True))


@share(1)
@given(st.sampled_from(SHAPES), rule_sets, st.lists(st.sampled_from(LAYERS), max_size=3), st.integers(0, 1))
def test_values_with_and_without_rules_agree(
    shape: Callable[[Fun], Fun], kinds: tuple[str, ...], layers: list[Callable[[Fun], Fun]], moving: int
) -> None:
    f, g = shape(with_symbolic_zeros(*kinds)), shape(plain)
    for layer in layers:
        f, g = layer(f), layer(g)

    def along(h: Fun) -> Fun:
        """Returns the tangent along one argument."""
        return lambda x, y: fx.jvp(lambda z: h(*((z, y), (x, z))[moving]), ((x, y)[moving],), (fnp.ones_like(X),))

    have, want = fx.trace(along(f), X, Y), fx.trace(along(g), X, Y)
    assert fx.text.parse(str(have.jaxpr)) is have.jaxpr
    found = run(have.jaxpr, [*[np.asarray(b) for b in have.bound], X, Y])
    wanted = run(want.jaxpr, [*[np.asarray(b) for b in want.bound], X, Y])
    assert not differ(found, wanted, slack=1e-6)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_the_rule_is_traced_for_each_set_of_arguments(kind: str) -> None:
    """The rule multiplies the derivative by another factor for each set of arguments."""
    seen: list[tuple[bool, ...]] = []

    def factor(live: tuple[bool, ...]) -> float:
        seen.append(live)
        return 10.0 ** (live[0] + 2 * live[1])

    f: Any = fx.custom_jvp(lambda x, n, y: x * y * n)

    def tangents(primals: Any, dots: Any) -> Any:
        (x, n, y), (dx, dn, dy) = primals, dots
        assert dn is None
        live = tuple([not isinstance(d, fx.SymbolicZero) for d in (dx, dy)])
        parts = [w * d for w, d, m in zip((y, x), (dx, dy), live, strict=True) if m]
        return f(x, n, y), factor(live) * n * sum(parts)

    def forward(x: Any, n: Any, y: Any) -> Any:
        assert not n.perturbed
        return f(x.value, n.value, y.value), (x.value, n.value, y.value, factor((x.perturbed, y.perturbed)))

    def backward(residuals: Any, ct: Any) -> Any:
        x, n, y, scale = residuals
        return scale * n * y * ct, None, scale * n * x * ct

    if kind == "jvp":
        f.defjvp(tangents, symbolic_zeros=True)
    else:
        f.defvjp(forward, backward, symbolic_zeros=True)
    x, y = np.float64(3), np.float64(5)
    for wrap in (
        lambda g: g,
        fx.jit,
        fx.remat,
        fx.dce,
        lambda g: lambda x, n, y: fx.vmap(g)(*[a[None] for a in (x, n, y)])[0],
    ):
        wrapped: Any = wrap(f)
        one, two = fnp.asarray(2), fnp.asarray(x)
        other = fnp.asarray(y)

        def of_x(x: Any, wrapped: Any = wrapped, one: Any = one, other: Any = other) -> Any:
            return wrapped(x, one, other)

        def of_y(y: Any, wrapped: Any = wrapped, one: Any = one, two: Any = two) -> Any:
            return wrapped(two, one, y)

        def of_both(x: Any, y: Any, wrapped: Any = wrapped, one: Any = one) -> Any:
            return wrapped(x, one, y)

        assert float(fx.grad(of_x)(x)) == 10 * 2 * 5
        assert float(fx.grad(of_y)(y)) == 100 * 2 * 3
        both: Any = fx.grad(of_both, argnums=(0, 1))
        assert [float(g) for g in both(x, y)] == [1000 * 2 * 5, 1000 * 2 * 3]
    assert set(seen) == {(True, True), (True, False), (False, True)}


def test_unneeded_parts_of_a_rule_are_not_in_the_program() -> None:
    program = fx.trace(with_symbolic_zeros("vjp"), X, Y)
    (prim,) = [e.prim for e in program.jaxpr.eqns if isinstance(e.prim, CallWithRules)]
    assert [(rule.moving, rule.results) for rule in prim.rules.vjp] == [
        (moving, results)
        for moving in ((True, True), (True, False), (False, True))
        for results in ((True, False), (False, True), None)
    ]
    by_y = fx.linearize(program, argnums=1)
    assert [str(r) for r in by_y.residuals] == ["f64[3]"]
    assert "cosine" not in fx.lower(by_y.primal).text()
    ruled: Any = with_symbolic_zeros("jvp", "vjp")
    check_rule(ruled, X, Y)


WAYS: list[Callable[[Fun], Fun]] = [
    lambda f: f,
    fx.jit,
    fx.remat,
    lambda f: lambda x, y: f(x, y)[:2] + (0,),
    lambda f: lambda x, y: lax.cond(x > 0, f, f, x, y),
    lambda f: lambda x, y: tuple([a[0] for a in fx.vmap(f)(x[None], y[None])]),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("result", [0, 1])
def test_the_cotangent_of_a_result_that_is_not_used_is_a_symbolic_zero(way: Callable[[Fun], Fun], result: int) -> None:
    """The rule has a derivative of each result alone, and multiplies it by another factor, and none of both."""
    f: Any = fx.custom_vjp(lambda x, y: (x * y, fnp.sin(x) + y, 3))

    def backward(held: Any, cts: Any) -> Any:
        x, y = held
        a, b, none = cts
        assert none is None
        unused = [isinstance(ct, fx.SymbolicZero) for ct in (a, b)]
        assert sum(unused) == 1
        assert (a if unused[0] else b).shape == ()
        return (100 * b * fnp.cos(x), 100 * b) if unused[0] else (10 * a * y, 10 * a * x)

    f.defvjp(
        lambda x, y: ((x.value * y.value, fnp.sin(x.value) + y.value, 3), (x.value, y.value)),
        backward,
        symbolic_zeros=True,
    )
    g = way(f)
    x, y = np.float64(0.5), np.float64(2)
    program = fx.trace(lambda x, y: g(x, y)[result], x, y)
    assert fx.text.parse(str(program.jaxpr)) is program.jaxpr
    want = [(10 * y, 10 * x), (100 * np.cos(x), np.float64(100))][result]
    np.testing.assert_allclose(fx.interpret(fx.grad(program, argnums=(0, 1)), x, y), want, rtol=1e-12)
    dot = fx.jvp(program, (x, y), (np.float64(1), np.float64(0)))[1]
    np.testing.assert_allclose(dot, want[0], rtol=1e-12)
    stacks = [np.stack([a, a]) for a in (x, y)]
    stacked: Any = fx.vmap(fx.grad(program))(*stacks)
    np.testing.assert_allclose(stacked, [want[0]] * 2, rtol=1e-12)
    mapped: Any = fx.vmap(program, in_axes=(0, None))

    def total(xs: Any) -> Any:
        return fnp.sum(mapped(xs, y))

    np.testing.assert_allclose(fx.grad(total)(stacks[0]), [want[0]] * 2, rtol=1e-12)
    both = fx.trace(lambda x, y: g(x, y)[0] + g(x, y)[1] * f(x, y)[1] + sum(f(x, y)[:2]), x, y)
    with pytest.raises(NotDifferentiableError, match="call_with_rules: defvjp of <lambda>: backward raised Assertion"):
        fx.grad(both)


def test_derivatives_by_each_of_many_arguments() -> None:
    seen: list[tuple[bool, ...]] = []
    f: Any = fx.custom_jvp(lambda *xs: sum(xs))

    def tangents(primals: Any, dots: Any) -> Any:
        seen.append(tuple([not isinstance(d, fx.SymbolicZero) for d in dots]))
        return f(*primals), sum([d for d in dots if not isinstance(d, fx.SymbolicZero)])

    f.defjvp(tangents, symbolic_zeros=True)
    args = [np.float64(k) for k in range(4)]
    got: Any = fx.grad(f, argnums=(1, 2))
    assert [float(g) for g in got(*args)] == [1.0, 1.0]
    assert sorted(map(sum, seen)) == [1, 1, 1, 1, 4]


def test_only_arguments_that_depend_on_a_differentiated_one_are_perturbed() -> None:
    """The rule rejects any set except the arguments that depend on a differentiated one."""
    f: Any = fx.custom_vjp(lambda *xs: xs[0] * xs[2] + xs[1] * xs[3] + xs[4])

    def forward(*xs: Any) -> Any:
        assert [x.perturbed for x in xs] == [True, False, True, False, False]
        return f(*[x.value for x in xs]), (xs[0].value, xs[2].value)

    f.defvjp(forward, lambda held, ct: (held[1] * ct, None, held[0] * ct, None, None), symbolic_zeros=True)
    barrier: Any = fx.custom_jvp(lambda x: x)

    @barrier.defjvp  # type: ignore[untyped-decorator]
    def refuse(primals: Any, tangents: Any) -> Any:
        raise RuntimeError

    def total(x: Any, y: Any, z: Any) -> Any:
        inner = fx.jit(lambda x: (fnp.sin(x), lax.stop_gradient(x)))
        first, still = inner(x)
        return fnp.sum(f(first, still, lax.cond(True, fnp.exp, fnp.cos, y), barrier(z), fnp.asarray(X)))

    got: Any = fx.grad(fx.trace(total, X, Y, Y), argnums=(0, 1))
    by_x, by_y = got(X, Y, Y)
    np.testing.assert_allclose(by_x, np.cos(X) * np.exp(Y), rtol=1e-12)
    np.testing.assert_allclose(by_y, np.sin(X) * np.exp(Y), rtol=1e-12)


def test_symbolic_zeros_have_a_type_and_no_elements() -> None:
    zero = fx.SymbolicZero(Aval((2, 3), "float32"))
    assert (zero.shape, zero.dtype.name) == ((2, 3), "float32")
    np.testing.assert_array_equal(np.asarray(zero.instantiate()), np.zeros((2, 3), np.float32))
    assert zero == fx.SymbolicZero(Aval((2, 3), "float32"))


@pytest.mark.usefixtures("nothing_remembered")
def test_messages() -> None:
    f: Any = fx.custom_vjp(lambda x: x)
    calls: list[Any] = [
        lambda: f.defvjp(lambda x: (x, None), lambda _, ct: (ct,), symbolic_zeros=1),
        lambda: f.defjvp(lambda p, t: (p, t), symbolic_zeros=1),
    ]
    for call in calls:
        with pytest.raises(ParameterError, match="of <lambda>: symbolic_zeros is an int, not a bool: 1"):
            call()
    assert f.rules == ()
    b = Builder()
    one = b.build(b.inputs([Aval((), "float32")]), "one")
    captured = CallWithRules(Function(one, 1, Rules(jvp=(Derivative((True,), one, one),))))
    with pytest.raises(ParameterError, match="call_with_rules: a rule is about tangents of operands that have none"):
        captured.abstract_eval(*one.in_avals)
    marked = CallWithRules(Function(one, rules=Rules(vjp=(Derivative((True,), one, one, one, (True, False)),))))
    with pytest.raises(ParameterError, match="call_with_rules: a rule has 2 marks for 1 results") as e:
        marked.abstract_eval(*one.in_avals)
    remedy = "mark the results whose cotangents do not vanish, or None for all of them"
    assert e.value.remedy == remedy
    g: Any = fx.custom_jvp(lambda x, n: n)
    g.defjvp(lambda p, t: (p[1], t[0]), symbolic_zeros=True)
    with pytest.raises(DTypeError, match="returns a tangent of result, which is i32"):
        fx.trace(g, np.float64(1), 2)


def zeros_of(x: Any) -> dict[str, Any]:
    """Zeros, and values that are not zero, each with True if it is zero."""
    z = fnp.zeros_like(x)
    first = z.at[0].set(x[0])
    return {
        "scaled": (2.0 * z, True),
        "product": (0.0 * x, True),
        "joined": (fnp.concatenate([z, z])[: len(x)], True),
        "loop without a bound": (
            lax.while_loop(lambda s: s[0] < x[0], lambda s: (s[0] + 2, 2.0 * s[1] + z), (0.0, z))[1],
            True,
        ),
        "loop that adds": (lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 2, s[1] + x), (0.0, z))[1], False),
        "loop": (lax.scan(lambda c, _: (2.0 * c, None), z, None, length=2)[0], True),
        "sum": (z + x, False),
        "chosen": (fnp.where(x > 0, z, x), False),
        "written": (first, False),
        "looped": (lax.scan(lambda c, _: (c + x, None), z, None, length=2)[0], False),
    }


@pytest.mark.parametrize("name", zeros_of(np.ones(3)))
@pytest.mark.parametrize("added", [False, True])
def test_arrays_of_zeros_that_a_rule_makes_are_linear(name: str, added: bool) -> None:
    """The idiom `if t is zero: t = zeros_like(x)` makes an array of a symbolic zero. The rule is linear all the
    same."""

    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x), fnp.cos(x)

    def rule(primals: Any, tangents: Any) -> Any:
        zero, _ = zeros_of(primals[0])[name]
        return f(*primals), (tangents[0], 3.0 * tangents[0] + zero if added else zero)

    f.defjvp(rule)
    x = np.array([0.5, -1.0, 2.0])
    if not zeros_of(x)[name][1]:
        with pytest.raises(NotLinearError):
            fx.jvp(f, (x,), (x,))
        return
    program = fx.trace(lambda x: fx.jvp(f, (x,), (x,))[1], x)
    np.testing.assert_array_equal(fx.interpret(program, x), [x, 3.0 * x if added else 0.0 * x])
    back = fx.trace(lambda x: fx.vjp(f, x)[1]((x, x)), x)
    np.testing.assert_array_equal(fx.interpret(back, x)[0], 4.0 * x if added else x)


def ruled_functions() -> dict[str, Fun]:
    """Linear functions with rules of each kind."""
    own: Any = fx.custom_jvp(lambda t: 2.0 * t)
    own.defjvp(lambda primals, dots: (own(*primals), own(*dots)))
    back: Any = fx.custom_vjp(lambda t: 2.0 * t)
    back.defvjp(lambda t: (back(t), ()), lambda _, ct: (2.0 * ct,))
    sine: Any = fx.custom_jvp(lambda t: 2.0 * fnp.sin(t))
    sine.defjvp(lambda primals, dots: (sine(*primals), 2.0 * fnp.cos(primals[0]) * dots[0]))
    return {
        "tangents": own,
        "cotangents": back,
        "jit": fx.jit(own),
        "derivative": lambda t: fx.jvp(sine, (fnp.zeros_like(t),), (t,))[1],
        "nested": lambda t: fx.jit(lambda t: 0.5 * own(back(t)))(t),
    }


@pytest.mark.parametrize("name", ruled_functions())
@pytest.mark.parametrize("added", [False, True])
def test_zeros_in_functions_with_rules_are_linear(name: str, added: bool) -> None:
    g = ruled_functions()[name]
    f: Any = fx.custom_jvp(lambda x, y: (x * y, y))

    def rule(primals: Any, tangents: Any) -> Any:
        x, y = primals
        dx, dy = [t.instantiate() if isinstance(t, fx.SymbolicZero) else t for t in tangents]
        first = g(dx) * y / 2 + x * g(dy) / 2 if added else dx * y + x * dy
        return f(x, y), (first, g(dy) / 2)

    f.defjvp(rule, symbolic_zeros=True)

    def second(y: Any) -> Any:
        return f(X, y)[1]

    by_x, by_y = fx.trace(lambda x, y: fx.vjp(f, x, y)[1]((x, y)), X, Y), fx.trace(fx.jacfwd(second), Y)
    np.testing.assert_allclose(fx.interpret(by_x, X, Y)[0], X * Y, rtol=1e-12)
    np.testing.assert_allclose(fx.interpret(by_y, Y), np.eye(3), rtol=1e-12)


def test_a_function_with_rules_of_a_zero_is_not_assumed_to_be_zero() -> None:
    cosine: Any = fx.custom_jvp(lambda t: fnp.cos(t))
    cosine.defjvp(lambda primals, dots: (cosine(*primals), -fnp.sin(primals[0]) * dots[0]))
    f: Any = fx.custom_jvp(lambda x, y: (x, y))

    def rule(primals: Any, tangents: Any) -> Any:
        dx, dy = [t.instantiate() if isinstance(t, fx.SymbolicZero) else t for t in tangents]
        return f(*primals), (dx, cosine(dy))

    f.defjvp(rule, symbolic_zeros=True)
    with pytest.raises(NotLinearError):
        fx.trace(fx.grad(lambda x: fnp.sum(f(x, Y)[0])), X)


ZEROS: dict[str, Callable[[Any], Any]] = {
    "a number": lambda x: lax.convert_element_type(0, "float64"),
    "a bool": lambda x: lax.convert_element_type(False, "float64"),
    "an array": lambda x: lax.convert_element_type(fnp.zeros_like(x, dtype="int32"), "float64"),
    "a product": lambda x: lax.convert_element_type(2 * fnp.zeros_like(x, dtype="int32"), "float64"),
    "a cotangent": lambda x: 2 * fx.vjp(fnp.sign, x)[1](x)[0],
    "a result of a function": lambda x: 2 * fx.jit(fnp.zeros_like)(x),
    "a result of a branch": lambda x: -lax.cond(x[0] > 0, fnp.zeros_like, lambda x: fnp.zeros_like(x) + 0, x),
}


@pytest.mark.parametrize("name", ZEROS)
def test_a_zero_that_is_computed_is_linear(name: str) -> None:
    f: Any = fx.custom_jvp(lambda x: fnp.where(x > 0, x, 0))
    f.defjvp(lambda p, t: (f(*p), fnp.where(p[0] > 0, t[0], ZEROS[name](p[0]))))
    program = fx.trace(fx.grad(lambda x: fnp.sum(f(x))), X)
    np.testing.assert_array_equal(fx.interpret(program, X), X > 0)
    g: Any = fx.custom_jvp(lambda x: fnp.where(x > 0, x, 0))
    g.defjvp(lambda p, t: (g(*p), fnp.where(p[0] > 0, t[0], ZEROS[name](p[0]) + 1)))
    with pytest.raises(NotLinearError):
        fx.trace(fx.grad(lambda x: fnp.sum(g(x))), X)


def test_the_cotangent_of_an_argument_with_one_leaf_needs_no_structure() -> None:
    @fx.custom_vjp
    def f(box: Any, y: Any) -> Any:
        return box["x"][0] * y

    def forward(box: Any, y: Any) -> Any:
        box, y = map(fx.custom_derivatives.custom_vjp_primal_tree_values, (box, y))
        return f(box, y), (box, y)

    f.defvjp(forward, lambda res, g: (res[1] * g, res[0]["x"][0] * g), symbolic_zeros=True)
    box, y = {"x": [np.float32(72)]}, np.float32(73)
    by_first: Fun = fx.grad(f)
    assert by_first(box, y) == {"x": [73]}
    by_second: Fun = fx.grad(f, argnums=1)
    assert by_second(box, y) == 72
    f.defvjp(lambda box, y: (f(box, y), None), lambda _, g: ({"z": g}, g))
    with pytest.raises(TreeError) as e:
        fx.grad(f)(box, y)
    assert "returns the cotangent {'z': *}, it must be {'x': [*]} as the argument" in e.value.message
