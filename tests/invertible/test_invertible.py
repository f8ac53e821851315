"""`invertible`: the same function; its backward pass reconstructs the values that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, NotDifferentiableError, NotInvertibleError
from fxad.testing.compare import differ
from fxad.transforms.cleanup.derivative_rules import drop_derivative_rules
from fxad.transforms.costs import weight_of_nested

X = np.array([0.5, -1.25, 2.0])
W = np.array([0.25, -0.5, 1.5])
ROWS = np.stack([W, W / 2, -W])


def close(found: object, want: object, rtol: float = 1e-9) -> None:
    a, b = fx.tree.leaves(found), fx.tree.leaves(want)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=1e-12)


def at(f: Callable[..., Any], *given: Any) -> Any:
    """Interprets a function, without a compilation."""
    return fx.interpret(fx.trace(f, *given), *given)


def block(x: Any, w: Any) -> Any:
    a, b = x
    a = a + fnp.sin(b * w)
    return a, b * fnp.exp(fnp.tanh(a)) + w


def unrolled(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = block(x, w)
    return x


def called(x: Any, w: Any) -> Any:
    inner = fx.jit(block)
    return inner(inner(x, w), -w)


def looped(x: Any, w: Any) -> Any:
    x, ys = lax.scan(lambda c, r: (block(c, r), c[0]), block(x, w), fnp.asarray(ROWS) * w)
    a = lax.fori_loop(0, 3, lambda i, c: c * 1.5 + i.astype("float64"), x[0])
    return (a, x[1]), ys


def branched(x: Any, w: Any) -> Any:
    return lax.cond(w[0] > 0, lambda x: block(x, w), lambda x: (x[1] * 2, x[0] + w), block(x, w))


def nested(x: Any, w: Any) -> Any:
    inner = fx.invertible(block, keep="w")
    return inner(inner(x, w), w)


def closing(x: Any, w: Any) -> Any:
    return fx.invertible(lambda y: block(y, w))(x)


FUNCTIONS: tuple[Callable[..., Any], ...] = (unrolled, called, looped, branched, nested, closing)


def total(f: Any) -> Any:
    return lambda x, w: fnp.sum(fnp.stack([fnp.sum(fnp.sin(y)) for y in fx.tree.leaves(f(x, w))]))


def args(sign: float = 1.0) -> tuple[Any, Any]:
    return (fnp.asarray(X), fnp.asarray(X + 1)), fnp.asarray(W) * sign


@pytest.mark.parametrize("f", FUNCTIONS)
def test_same_value_and_same_gradient(f: Callable[..., Any]) -> None:
    lean = fx.invertible(f, keep="w")
    for sign in (1.0, -1.0):
        close(at(lean, *args(sign)), at(f, *args(sign)))
        for argnums in (0, 1, (0, 1)):
            close(at(fx.grad(total(lean), argnums), *args(sign)), at(fx.grad(total(f), argnums), *args(sign)))
    close(fx.jit(fx.grad(total(lean)))(*args()), at(fx.grad(total(f)), *args()))


@pytest.mark.parametrize("f", FUNCTIONS)
def test_forward_mode_and_second_order(f: Callable[..., Any]) -> None:
    lean = fx.invertible(f, keep="w")
    dots = fx.tree.map(lambda a: fnp.cos(a * 3), args())

    def moved(g: Any) -> Any:
        return at(lambda x, w, *dots: fx.jvp(g, (x, w), dots), *args(), *dots)

    def linear(g: Any) -> Any:
        return at(lambda x, w, *dots: fx.linearize(g, x, w)[1](*dots), *args(), *dots)

    close(moved(lean), moved(f))
    close(linear(lean), linear(f))

    def slope(g: Any) -> Any:
        return total(fx.grad(total(g), (0, 1)))

    close(at(fx.grad(slope(lean), (0, 1)), *args()), at(fx.grad(slope(f), (0, 1)), *args()), 1e-7)
    close(moved(fx.grad(total(lean))), moved(fx.grad(total(f))), 1e-7)


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
def test_batched(f: Callable[..., Any], in_axes: Any) -> None:
    lean = fx.invertible(f, keep="w")
    given = tuple([
        fx.tree.map(lambda x: fnp.stack([x, x / 2]), a) if d == 0 else a for a, d in zip(args(), in_axes, strict=True)
    ])  # fmt: skip
    close(
        at(fx.vmap(fx.grad(total(lean), (0, 1)), in_axes=in_axes), *given),
        at(fx.vmap(fx.grad(total(f), (0, 1)), in_axes=in_axes), *given),
    )

    def whole(g: Any) -> Any:
        return lambda x, w: fnp.sum(fx.vmap(total(g), in_axes=in_axes)(x, w))

    close(at(fx.grad(whole(lean), (0, 1)), *given), at(fx.grad(whole(f), (0, 1)), *given))


def test_inside_a_loop_and_a_branch() -> None:
    def f(g: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            return lax.cond(r[0] > 0, lambda c: g(c, r), lambda c: c, c), None

        return lambda x, w: lax.scan(step, x, fnp.asarray(ROWS) * w)[0]

    lean = f(fx.invertible(block, keep=1))
    close(fx.grad(total(lean), (0, 1))(*args()), fx.grad(total(f(block)), (0, 1))(*args()))


def test_integers_are_kept_without_keep() -> None:
    def f(x: Any, n: Any) -> Any:
        return x * n.astype("float64")

    lean = fx.invertible(f)
    close(fx.grad(lambda x: fnp.sum(lean(x, np.arange(1, 4)) ** 2))(X), 2 * X * np.arange(1, 4) ** 2)


def test_a_custom_derivative_is_used() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return x * 2.0

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return f(*primals), tangents[0] * 5.0

    close(fx.grad(lambda x: fnp.sum(fx.invertible(lambda x: fnp.exp(f(x)))(x)))(X), np.exp(2 * X) * 5)


def test_values_that_the_gradient_does_not_need_are_not_reconstructed() -> None:
    lean = fx.invertible(lambda x: x[0] + x[1])  # its derivative does not need the operands
    close(fx.grad(lambda x: fnp.sum(lean(x)))((X, X)), (np.ones(3), np.ones(3)))


def test_the_error_of_a_reconstruction_is_measured() -> None:
    assert fx.reconstruction_error(block, *args(), keep="w") < 1e-14
    lost = fx.reconstruction_error(lambda x: fnp.tanh(x), fnp.asarray([5.0, 5.5, 6.0, 6.5], "float32"))
    assert 1e-5 < lost < 0.1  # tanh(6) is nearly 1: few bits are left
    assert np.isnan(fx.reconstruction_error(lambda x: fnp.tanh(x), fnp.asarray([20.0], "float32")))


def test_the_error_of_an_argument_is_relative_to_that_argument() -> None:
    def steps(x: Any, y: Any) -> Any:
        return x + 1, fnp.tanh(y * 9)

    y = fnp.asarray([0.1, 0.5, 0.3], "float32")
    alone = fx.reconstruction_error(lambda y: fnp.tanh(y * 9), y)
    assert 1e-6 < alone < 1e-3
    for x in ([1e9, 2e9], [0.0], []):
        assert fx.reconstruction_error(steps, fnp.asarray(x, "float32"), y) == pytest.approx(alone)
    assert np.isnan(fx.reconstruction_error(steps, fnp.asarray([1e9], "float32"), fnp.asarray([20.0], "float32")))


# -------------------------------------------------------------------------------------------------------------- memory


def temp_bytes(loss: Callable[..., Any], *given: Any) -> int:
    return fx.lower(fx.trace(fx.grad(loss), *given)).compile().memory().temp_bytes


def layer(x: Any, w: Any) -> Any:
    a, b = x
    a = a + fnp.tanh(b @ w)
    return a, b + fnp.tanh(a @ w)


POINTERS = 1024  # bytes for each layer: XLA stores a table of pointers for each segment
STATE = (np.ones((64, 16), np.float32), np.ones((64, 16), np.float32))


def energy(x: Any) -> Any:
    return fnp.sum(x[0] * x[1])


@fx.custom_jvp
def squashed(x: Any) -> Any:
    return fnp.tanh(x)


squashed.defjvp(lambda primals, tangents: (squashed(*primals), tangents[0] * (1.0 - 0.5 * squashed(*primals) ** 2)))


def bent(x: Any, w: Any) -> Any:
    """A layer with a rule that differs from the derivative. Second derivatives store more than first ones."""
    a, b = x
    a = a + squashed(b @ w)
    return a, b + squashed(a @ w)


@pytest.mark.parametrize("depth", [24, pytest.param(64, marks=pytest.mark.deep)])
@pytest.mark.parametrize(("wrapped", "layer"), [(False, layer), (True, layer), (False, bent), (True, bent)])
def test_memory_does_not_grow_with_unrolled_blocks(wrapped: bool, layer: Callable[..., Any], depth: int) -> None:
    one = fx.invertible(layer, keep="w") if wrapped else layer

    def chain(x: Any, ws: Any) -> Any:
        for w in ws:
            x = one(x, w)
        return x

    def needs(f: Callable[..., Any], depth: int) -> int:
        ws = [np.eye(16, dtype=np.float32)] * depth
        return temp_bytes(lambda ws, x: energy(f(x, ws)), ws, STATE)

    lean = fx.invertible(chain, keep="ws")
    # from some depth on, XLA keeps copies of some arrays of a state, whatever the depth
    once = 2 * STATE[0].nbytes
    assert needs(lean, depth) <= needs(lean, 8) + (depth - 8) * POINTERS + once
    grown = needs(chain, 16) - needs(chain, 8)
    # blocks that are wrapped one by one form one chain
    assert grown < 2 * STATE[0].nbytes + 8 * POINTERS if wrapped else grown > 8 * 2 * STATE[0].nbytes * 0.9


def test_memory_does_not_grow_with_the_steps_of_a_loop() -> None:
    def chain(x: Any, ws: Any) -> Any:
        return lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0]

    def needs(f: Callable[..., Any], depth: int) -> int:
        return temp_bytes(lambda ws, x: energy(f(x, ws)), np.ones((depth, 16, 16), np.float32), STATE)

    lean = fx.invertible(chain, keep="ws")
    assert needs(lean, 8) == needs(lean, 256)
    assert needs(chain, 256) > needs(chain, 8) + 240 * 2 * STATE[0].nbytes


def test_operands_for_second_derivatives_are_not_stored_for_first_ones() -> None:
    def chain(layer: Callable[..., Any]) -> Callable[..., Any]:
        one = fx.invertible(layer, keep="w")
        return lambda x, ws: energy(lax.scan(lambda c, w: (one(c, w), None), one(x, ws[0]), ws)[0])

    ws = np.ones((4, 16, 16), np.float32)
    plain, own = [fx.trace(chain(f), STATE, ws) for f in (layer, bent)]
    assert [r.aval for r in fx.residuals(own)] == [r.aval for r in fx.residuals(plain)]
    back = fx.grad(own).jaxpr
    runs = drop_derivative_rules(back)
    assert drop_derivative_rules(runs) is runs
    assert weight_of_nested(runs).equations < weight_of_nested(back).equations
    values = [*fx.tree.leaves(STATE), ws]
    assert not differ(run(runs, values), run(back, values), exact=True)
    assert drop_derivative_rules(plain.jaxpr) is plain.jaxpr


def test_second_derivatives_by_an_operand_of_a_branch_that_is_not_selected() -> None:
    """The branch that an example does not select would give nan, which must not reach the derivative with respect to
    w."""

    def f(x: Any, w: Any, flag: Any) -> Any:
        return lax.cond(flag, lambda x: x * (2 + fnp.sin(w)), lambda x: fnp.arctan(x * fnp.cos(w / 9)) - w, x)

    def twice(g: Callable[..., Any]) -> Any:
        def once(w: Any) -> Any:
            return fnp.sum(fx.vmap(g, in_axes=(0, None, 0))(np.stack([X, X / 2]), w, np.array([True, False])) ** 3)

        def slope(w: Any) -> Any:
            return fnp.sum(fnp.sin(fx.grad(once)(w)))

        return at(fx.grad(slope), np.full(3, 3.0))

    plain = twice(f)
    assert np.isfinite(plain).all()
    close(twice(fx.invertible(f, keep=(1, 2))), plain, 1e-7)


def test_a_rule_without_a_derivative() -> None:
    """The rule calls the host. First derivatives run it, and only second ones need its derivative."""

    def outside(x: Any) -> Any:
        return fx.pure_callback(np.exp, fx.Spec((3,), "float64"), x)

    forwards, backwards = fx.custom_jvp(fnp.exp), fx.custom_vjp(fnp.exp)
    forwards.defjvp(lambda primals, tangents: (fnp.exp(*primals), tangents[0] * outside(*primals)))
    backwards.defvjp(lambda x: (fnp.exp(x), x), lambda x, ct: (ct * outside(x),))
    for f in (forwards, backwards):
        once = fx.grad(lambda x, f=f: fnp.sum(fx.invertible(f)(x) ** 2))
        close(at(once, X), 2 * np.exp(2 * X))
        with pytest.raises(NotDifferentiableError, match=r"^host_call: exp has no derivative"):
            fx.trace(fx.grad(lambda x, g=once: fnp.sum(g(x))), X)


def test_a_rule_that_is_zero_everywhere() -> None:
    """The rule has no inverse; the function has one."""

    @fx.custom_jvp
    def still(x: Any) -> Any:
        return fnp.sinh(x)

    still.defjvp(lambda primals, tangents: (still(*primals), 0.0 * tangents[0]))

    def f(x: Any) -> Any:
        return still(2.0 * x) * 3.0

    def next_order(g: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: fnp.sum(fx.grad(g)(x) ** 2)

    plain, lean = [lambda x, g=g: fnp.sum(g(x) * x**2) for g in (f, fx.invertible(f))]
    for _ in range(3):
        close(at(fx.grad(lean), X), at(fx.grad(plain), X))
        plain, lean = next_order(plain), next_order(lean)


@fx.custom_inverse
def searched(x: Any) -> Any:
    return fnp.sinh(x) + x


def by_newton(y: Any) -> Any:
    """The number of steps is unknown, so there is no derivative in reverse mode."""

    def step(state: Any) -> Any:
        x, _ = state
        moved = (fnp.sinh(x) + x - y) / (fnp.cosh(x) + 1.0)
        return x - moved, fnp.max(fnp.abs(moved))

    start = fnp.zeros_like(y), fnp.ones((), y.dtype)
    return lax.while_loop(lambda state: state[1] > 1e-13, step, start)[0]


searched.definverse(by_newton)


def reversed_in_gradients(x: Any) -> Any:
    return lax.linear_call(lambda _, t: 2.0 * t, lambda _, ct: -3.0 * ct, (), x)


@pytest.mark.parametrize(
    "inner", [fx.stop_gradient, reversed_in_gradients, searched], ids=["stopped", "adjoint", "inverse"]
)
def test_custom_derivatives_of_reconstructed_values(inner: Callable[..., Any]) -> None:
    """The inner functions are a stopped gradient, a custom adjoint, and an inverse whose own derivative is not used."""

    def f(x: Any, w: Any) -> Any:
        return 2.0 * inner(x), w * fnp.sin(x)

    def loss(g: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w: sum([fnp.sum(r**3) for r in g(x, w)])

    def along(g: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w: fx.jvp(g, (x, w), (w, x))[1]

    def next_order(g: Callable[..., Any]) -> Callable[..., Any]:
        slope: Callable[..., Any] = fx.grad(g, argnums=(0, 1))
        return lambda x, w: sum([fnp.sum(d**2) for d in slope(x, w)])

    plain, lean = loss(f), loss(fx.invertible(f))
    for _ in range(3):
        plain, lean = next_order(plain), next_order(lean)
        close(at(lean, X, W), at(plain, X, W))
        close(at(along(lean), X, W), at(along(plain), X, W))


def test_forward_mode_takes_the_rule_for_tangents() -> None:
    """The function has two rules, which differ here. Forward mode takes the rule for tangents in calls and loops
    too."""

    @fx.custom_jvp
    def two(x: Any) -> Any:
        return fnp.sinh(x)

    two.defjvp(lambda primals, tangents: (two(*primals), 3.0 * primals[0] * tangents[0]))
    two.defvjp(lambda x: (two(x), x), lambda x, ct: (5.0 * x * ct,))

    def looped(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, _: ((two(c[0]), c[1] * c[0]), None), (x, w), None, length=2)[0]

    for f in (lambda x, w: (two(x), w * x), looped):
        lean = fx.invertible(f)
        for g in (lean, fx.invertible(lambda x, w, lean=lean: lean(x, w))):
            for h in (
                lambda f: lambda x, w: fx.jvp(f, (x, w), (w, x))[1],
                lambda f: lambda x, w: fx.linearize(f, x, w)[1](w, x),
                lambda f: lambda x, w: fx.vjp(f, x, w)[1]((w, x)),
                lambda f: lambda x, w: fx.jvp(lambda x, w: fx.vjp(f, x, w)[1]((w, x)), (x, w), (w, x))[1],
                lambda f: lambda x, w: fx.vjp(lambda x, w: fx.jvp(f, (x, w), (w, x))[1], x, w)[1]((w, x)),
                lambda f: lambda x, w: fx.vmap(lambda x, w: fx.jvp(f, (x, w), (w, x))[1], (0, None))(x, w[0]),
            ):
                close(at(h(g), X, W), at(h(f), X, W), rtol=1e-7)


def test_a_stopped_gradient_of_a_kept_value_stores_nothing() -> None:
    def f(x: Any) -> Any:
        a, b = x
        return a + fnp.sinh(fx.stop_gradient(b)), b

    back = fx.trace(fx.grad(lambda x: energy(fx.invertible(f)(x))), (X, W)).jaxpr
    assert drop_derivative_rules(back) is back


def test_memory_of_a_leapfrog_integrator() -> None:
    def orbit(x: Any, v: Any, steps: int) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, v = state
            v = v - 0.01 * fnp.sin(x)
            return x + 0.01 * v, v

        return lax.fori_loop(0, steps, step, (x, v))

    def needs(steps: int) -> int:
        lean = fx.invertible(lambda x, v: orbit(x, v, steps))
        return temp_bytes(lambda x, v: energy(lean(x, v)), *STATE)

    assert needs(8) == needs(256)


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.usefixtures("nothing_remembered")
def test_an_argument_that_cannot_be_reconstructed_is_refused() -> None:
    def f(x: Any, w: Any) -> Any:
        return fnp.tanh(x) * w

    with pytest.raises(NotInvertibleError) as e:
        fx.invertible(f)(X, W)
    assert e.value.message == (
        "invertible: argument x of f is not determined by its results: mul is not inverted: both operands are unknown"
    )
    assert e.value.equation.endswith(" = mul %0:f64[3] %arg1:f64[3]")
    assert e.value.where.endswith("in test_an_argument_that_cannot_be_reconstructed_is_refused.<locals>.f")
    assert e.value.remedy == ("name the argument in keep, close over the value, or give the function a custom_inverse")
    fx.invertible(f, keep="w")(X, W)


@pytest.mark.usefixtures("nothing_remembered")
def test_a_loop_with_an_unknown_number_of_steps_is_refused() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: fnp.sum(c) < 10, lambda c: c * fnp.exp(c), x, max_steps=20)

    with pytest.raises(NotInvertibleError) as e:
        fx.invertible(f)(X)
    assert e.value.message == (
        "invertible: argument x of f is not determined by its results: "
        "while is not inverted: how many steps were taken is not known from its results"
    )


@pytest.mark.usefixtures("nothing_remembered")
def test_a_predicate_that_depends_on_a_reconstructed_value_is_refused() -> None:
    with pytest.raises(NotInvertibleError) as e:
        fx.inverse(lambda x: lax.cond(fnp.sum(x) > 0, lambda x: x * 2, lambda x: x + 1, x))(X)
    assert "which branch was taken depends on what is to be reconstructed" in e.value.message


def test_keep_names_an_argument() -> None:
    with pytest.raises(ArgumentError) as e:
        fx.invertible(block, keep="v")(*args())
    assert e.value.message == "invertible: keep has 'v', which is no argument of block"
    assert e.value.remedy == "its arguments are x, w"
