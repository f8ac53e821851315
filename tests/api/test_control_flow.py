"""cond, switch and while_loop as users write them: pytrees, closures, numbers, transformations, error messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.lax
import fxad.numpy as fnp
from fxad.errors import (
    ArgumentError,
    DTypeError,
    FxadError,
    NotDifferentiableError,
    ParameterError,
    ShapeError,
    TreeError,
)
from fxad.ir import distinct_jaxprs
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.while_ import While
from tests.laws.budget import share

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

lax: Any = fxad.lax  # these tests run the code; tests/typing checks its types

close: Any = np.testing.assert_allclose
equal: Any = np.testing.assert_array_equal

# ------------------------------------------------------------------------------------------------------ cond, switch


def test_second_derivatives_of_a_selected_branch() -> None:
    """Under vmap, a branch that is not selected gets placeholders for its residuals. It must not divide by them."""
    x, p = np.array([2.0, 0.5]), np.array([False, True])

    def slope(x: Any, p: Any) -> Any:
        return fx.grad(lambda x: lax.cond(p, fnp.arctan, lambda x: x * 3.0, x) ** 2)(x)

    second = fx.trace(fx.grad(lambda x: fnp.sum(fx.vmap(slope)(x, p))), x)
    close(fx.interpret(second, x), [18.0, (2 - 4 * 0.5 * np.arctan(0.5)) / (1 + 0.5**2) ** 2], rtol=1e-12)


@pytest.mark.parametrize("pred", [True, np.True_, np.array(True), fnp.asarray(True)])
def test_cond_takes_any_bool(pred: object) -> None:
    assert lax.cond(pred, lambda x: x + 1, lambda x: x * 2, 3.0).item() == 4.0
    assert fx.jit(lambda p: lax.cond(p, lambda x: x + 1, lambda x: x * 2, 3.0))(pred).item() == 4.0


@pytest.mark.parametrize("index", [-7, 0, 1, 2, 9, np.uint8(1), np.int64(2**40), np.array(200, "uint8"), True + 1])
def test_switch_takes_any_integer_and_the_nearest_branch(index: int) -> None:
    branches = [lambda x, k=k: x + k for k in (10, 20, 30)]
    want = 1 + (10, 20, 30)[min(max(int(index), 0), 2)]
    assert lax.switch(index, branches, 1).item() == want
    assert fx.jit(lambda i: lax.switch(i, branches, 1))(index).item() == want


def test_both_functions_are_staged_for_a_python_bool() -> None:
    seen: list[str] = []

    def branch(name: str) -> Any:
        seen.append(name)
        return 1.0

    program = fx.trace(lambda: lax.cond(True, lambda: branch("a"), lambda: branch("b")))
    assert sorted(seen) == ["a", "b"]
    assert [e.prim.name for e in program.jaxpr.eqns] == ["cond"]
    assert [e.prim.name for e in fx.inline(fx.simplify(program)).jaxpr.eqns] == []


def test_trees_of_operands_and_results() -> None:
    @fx.tree.dataclass
    class State:
        x: Any
        n: Any

    def swapped(s: State, d: dict[str, Any]) -> tuple[State, None]:
        return State(d["y"], s.n + 1), None

    state = State(fnp.ones(2), fnp.asarray(1))
    out, nothing = lax.cond(False, lambda s, _: (s, None), swapped, state, {"y": fnp.zeros(2)})
    assert nothing is None
    assert isinstance(out, State)
    assert (out.x.tolist(), out.n.item()) == ([0.0, 0.0], 2)


def test_numbers_take_the_dtype_of_the_other_branch() -> None:
    half = np.float16(2)
    assert lax.cond(True, lambda: 1, lambda: half).dtype == "float16"
    assert lax.cond(False, lambda: half, lambda: 1.5).dtype == "float16"
    assert lax.cond(True, lambda: 1, lambda: 2.5).dtype == "float32"
    assert lax.cond(True, lambda: True, lambda: 7).dtype == "int32"
    assert [x.dtype.name for x in lax.switch(0, [lambda: (1, True), lambda: (2, half), lambda: (half, 3)])] == [
        "float16"
    ] * 2


def test_a_value_that_two_branches_close_over_is_one_operand() -> None:
    table = np.arange(1000.0)

    def f(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda: fnp.sum(fnp.asarray(table)) * x, lambda: x + fnp.max(fnp.asarray(table)))

    program = fx.trace(f, True, 1.0)
    (eqn,) = [e for e in program.jaxpr.eqns if isinstance(e.prim, Cond)]
    assert len(eqn.ins) == 3
    assert len(program.bound) == 1
    assert (f(fnp.asarray(True), fnp.asarray(2.0)).item(), f(fnp.asarray(False), fnp.asarray(2.0)).item()) == (
        999000,
        1001,
    )


def test_programs_differ_by_their_branches_only() -> None:
    def f(k: float) -> Any:
        return fx.trace(lambda x: lax.cond(x > 0, lambda: x * k, lambda: x), fnp.asarray(1.0))

    assert f(2.0).jaxpr is f(2.0).jaxpr
    assert f(2.0).jaxpr.digest == f(2.0).jaxpr.digest != f(3.0).jaxpr.digest


def test_per_example_policies() -> None:
    def f(batched: str) -> Callable[[Any, Any], Any]:
        return lambda p, x: lax.cond(p, lambda x: fnp.sin(x), lambda x: x * 2, x, batched=batched)

    p, x = np.array([True, False, True]), np.array([1.0, 2.0, 3.0])
    want = np.where(p, np.sin(x), 2 * x)
    for batched in ("select", "loop"):
        close(fx.vmap(f(batched))(p, x), want)
        slopes = fx.grad(lambda x, g=batched: fnp.sum(fx.vmap(f(g))(p, x)))(x)
        close(slopes, np.where(p, np.cos(x), 2.0))


def test_only_the_selected_branch_is_differentiated() -> None:
    """The square root has an infinite derivative at 0, and none below. It does not reach the result, also where select
    runs both branches."""

    def f(x: Any, batched: str = "select") -> Any:
        return lax.cond(x > 0, fnp.sqrt, lambda x: x, x, batched=batched)

    assert fx.grad(f)(0.0).item() == 1.0
    xs: Any = np.array([0.0, 4.0])
    equal(fx.vmap(fx.grad(f))(xs), [1.0, 0.25])
    equal(fx.grad(lambda xs: fnp.sum(fx.vmap(lambda x: f(x, "loop"))(xs)))(xs), [1.0, 0.25])
    xs = np.array([0.0, 4.0, -1.0])
    equal(fx.grad(lambda xs: fnp.sum(fx.vmap(f)(xs)))(xs), [1.0, 0.25, 1.0])
    total = fx.trace(lambda xs: fnp.sum(fx.vmap(f)(xs)), xs)
    equal(fx.hessian(total)(xs), np.diag([0.0, -1 / 32, 0.0]))
    grid = np.array([[0.0, 4.0], [-1.0, 1.0]])
    equal(fx.grad(lambda xs: fnp.sum(fx.vmap(fx.vmap(f))(xs)))(grid), [[1.0, 0.25], [1.0, 0.5]])


def test_an_operand_that_all_examples_share_gets_no_nan_from_those_that_do_not_select() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.cond(x > 0, lambda x, w: fnp.log(x * w), lambda x, w: x, x, w)

    xs = np.array([0.0, 4.0, -1.0])
    equal(fx.grad(lambda w: fnp.sum(fx.vmap(f, (0, None))(xs, w)))(2.0), 0.5)


def test_an_operand_that_all_branches_return_is_not_mapped() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.cond(x > 0, lambda x, w: (x, w), lambda x, w: (-x, w), x, w)

    xs, w = np.array([0.0, 4.0, -1.0]), np.array([1.0, 2.0])
    out, same = fx.vmap(f, (0, None), out_axes=(0, None))(xs, w)
    equal(out, [0.0, 4.0, 1.0])
    equal(same, w)


def test_the_linear_program_of_branches_is_linear_batched() -> None:
    """Tangents of examples that do not select a branch are zero in it."""
    xs, ts = np.array([0.0, 4.0, -1.0]), np.array([1.0, 2.0, 3.0])

    def push(ts: Any) -> Any:
        f = lambda x: lax.cond(x > 0, fnp.sqrt, lambda x: 3 * x, x)  # noqa: E731
        return fx.vmap(lambda x, t: fx.jvp(f, (x,), (t,))[1])(xs, ts)

    equal(push(ts), [3.0, 0.5, 9.0])
    equal(fx.transpose(push, ts)(ts)[0], [3.0, 0.5, 9.0])


def test_branches_that_add_tangents_are_linear_batched() -> None:
    """A branch that adds two tangents is linear in both together, but not in each alone."""
    xs, ts = np.array([0.0, 4.0, -1.0]), np.array([1.0, 2.0, 3.0])

    def push(ts: Any, us: Any) -> Any:
        f = lambda x, t, u: lax.cond(x > 0, lambda t, u: t - u, lambda t, u: 3 * t + u, t, u)  # noqa: E731
        return fx.vmap(f)(xs, ts, us)

    ts_bar, us_bar = fx.transpose(push, ts, ts)(ts)
    equal(ts_bar, [3.0, 2.0, 9.0])
    equal(us_bar, [1.0, -2.0, 3.0])


def test_results_that_all_branches_take_from_one_operand_do_not_vary() -> None:
    def f(i: Any, y: Any, batched: str) -> Any:
        first, second = lambda y, z: (y, z, 1.0, y * z), lambda y, z: (y, z * 2, 1.0, y)
        return lax.cond(i > 0, first, second, y, i, batched=batched)

    for batched in ("select", "loop"):
        g = fx.vmap(partial(f, batched=batched), in_axes=(0, None), out_axes=(None, 0, None, 0))
        y, z, one, product = g(np.array([1.0, -1.0]), np.float64(2))
        assert (y.item(), one.item()) == (2.0, 1.0), batched
        equal(z, [1.0, -2.0])
        equal(product, [2.0, 2.0])


# --------------------------------------------------------------------------------------------------------- while_loop


def test_a_loop_outside_and_inside_a_trace() -> None:
    def collatz(n: Any) -> Any:
        def step(c: tuple[Any, Any]) -> tuple[Any, Any]:
            n, k = c
            return lax.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), k + 1

        return lax.while_loop(lambda c: c[0] != 1, step, (n, 0))[1]

    want = [0, 1, 7, 2, 5, 8, 16, 3, 19]
    assert [collatz(n).item() for n in range(1, 10)] == want
    assert fx.vmap(collatz)(np.arange(1, 10)).tolist() == want
    assert fx.jit(collatz)(27).item() == 111


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: fx.grad(lambda x: f(x).sum()),
    "vjp": lambda f: lambda x: fx.vjp(f, x)[1](x)[0],
    "jvp": lambda f: lambda x: fx.jvp(f, (x,), (fnp.cos(x),))[1],
    "linearize": lambda f: lambda x: fx.linearize(f, x)[1](x),
    "transpose": lambda f: lambda x: fx.transpose(lambda t: fx.jvp(f, (x,), (t,))[1], x)(x)[0],
    "jacrev": lambda f: lambda x: fx.jacrev(f)(x).sum(0),
    "remat": fx.remat,
    "jit": fx.jit,
}


@pytest.mark.parametrize("outer", DERIVATIVES)
@pytest.mark.parametrize("inner", DERIVATIVES)
def test_derivatives_of_derivatives_of_a_loop_with_a_bound(inner: str, outer: str) -> None:
    """The number of steps depends on `x`. The derivatives are those of the steps that run."""
    x = np.array([0.3, 0.7])

    def step(s: Any) -> Any:
        return s[0] * 1.5 + fnp.cos(s[1]), s[1] * s[0]

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda s: s[0].sum() < 9.0, step, (x, x), max_steps=7)[1]

    def steps(x: Any) -> Any:
        return step(step(step((x, x))))[1]

    have, want = [fx.trace(DERIVATIVES[outer](DERIVATIVES[inner](f)), x) for f in (loop, steps)]
    close(fx.interpret(have, x), fx.interpret(want, x), rtol=1e-9)


def test_numbers_in_the_carry_take_the_dtype_the_body_gives() -> None:
    half = np.float16(0.5)
    n, x, flag = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + half, c[2]), (0, 1, True))
    assert [a.dtype.name for a in (n, x, flag)] == ["int32", "float16", "bool"]
    assert x.item() == 2.5
    total, _ = lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + fnp.ones(()), c[1] + 1), (0, 0))
    assert (total.dtype, total.item()) == ("float32", 3)
    swapped = lax.while_loop(lambda c: c[2] < 3, lambda c: (c[1], c[0], c[2] + 1), (0, 0.5, 0))
    assert [a.dtype.name for a in swapped] == ["float32", "float32", "int32"]
    # a number that the body returns takes the dtype of the carry
    assert lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 2), (0, half))[1].dtype == "float16"


def test_the_bound_ends_the_loop_in_all_modes() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda _: True, lambda x: x * x, x, max_steps=3)

    assert f(fnp.asarray(1.5)).item() == 1.5**8
    assert fx.grad(f)(1.5).item() == pytest.approx(8 * 1.5**7)
    assert fx.jvp(f, (1.5,), (1.0,))[1].item() == pytest.approx(8 * 1.5**7)
    close(fx.vmap(f)(np.array([1.0, 2.0])), [1.0, 256.0])


def test_loops_without_a_bound_have_forward_mode() -> None:
    def root(a: Any) -> Any:
        def step(x: Any) -> Any:
            return (x + a / x) / 2

        return lax.while_loop(lambda x: fnp.abs(x * x - a) > 1e-12, step, a)

    at: Any = np.float64(2)
    assert fx.jacfwd(root)(at).item() == pytest.approx(0.5 / np.sqrt(2))
    assert fx.jacfwd(fx.jacfwd(root))(at).item() == pytest.approx(-0.25 * 2**-1.5)
    with pytest.raises(NotDifferentiableError, match=r"(?s)while: reverse mode.*traced at.*root\n.*max_steps"):
        fx.grad(root)(np.float64(2))


def test_a_loop_over_integers_is_no_obstacle_to_reverse_mode() -> None:
    def f(x: Any, n: Any) -> Any:
        bits = lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] // 2, c[1] + 1), (n, 0))[1]
        return x * x * bits

    assert fx.grad(f)(3.0, 1000).item() == 60.0


def test_reverse_mode_stores_rows_and_constants_once() -> None:
    def f(x: Any, w: Any) -> Any:
        return fnp.sum(
            lax.while_loop(lambda x: fnp.sum(x) < 50, lambda x: fnp.sin(x) * fnp.exp(w) + 1, x, max_steps=20)
        )

    program = fx.trace(f, fnp.ones(8), fnp.ones(8))
    grads = fx.grad(program, argnums=(0, 1))
    (loop,) = [e.prim for j in distinct_jaxprs(grads.jaxpr) for e in j.eqns if isinstance(e.prim, While)]
    # the rows are those of the derivative of sin and of sin; exp(w) is computed once, outside of the loop
    assert sorted(map(str, loop.rows)) == ["f32[8]", "f32[8]"]
    assert "exp" not in [e.prim.name for e in loop.body.eqns]


def test_memory_of_reverse_mode_is_what_the_docstring_says() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(lax.while_loop(lambda x: x[0] < 9, fnp.sin, x, max_steps=50))

    run: Any = fx.lower(fx.grad(fx.trace(f, fnp.ones(1000)))).compile()
    assert run.memory().temp_bytes < 1.3 * 50 * 1000 * 4


# --------------------------------------------------------------------------------------------------------------- laws


def nested(x: Any, n: Any) -> Any:
    """A cond in a while_loop in a switch."""

    def body(c: tuple[Any, Any]) -> tuple[Any, Any]:
        i, y = c
        return i + 1, lax.cond(i % 2 == 0, lambda y: fnp.sin(y) * x, lambda y: fnp.cos(y) + y, y)

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, body, (0, x), max_steps=6)[1]

    return lax.switch(n, [lambda x: x * x, loop, loop, lambda x: lax.cond(x > 0, loop, lambda x: -x, x)], x)


def slope(f: Callable[[Any], Any], x: float) -> float:
    h = 1e-5
    up, down = (np.float64(f(np.float64(x + k * h))) for k in (1, -1))
    return float((up - down) / (2 * h))


@share(3)
@given(st.floats(-2, 2).filter(lambda x: abs(x) > 1e-3), st.integers(-1, 9))
def test_derivatives_of_nested_control_flow(x: float, n: int) -> None:
    limit = fnp.asarray(np.int32(n))  # as an operand, so that all examples share one program

    def f(x: Any) -> Any:
        return nested(x, limit)

    g = fx.grad(f)
    at: Any = np.float64(x)
    forward = fx.jvp(f, (at,), (np.float64(1),))[1].item()
    assert forward == pytest.approx(slope(f, x), rel=1e-6, abs=1e-6)
    assert g(at).item() == pytest.approx(forward, rel=1e-12)
    assert fx.grad(fx.remat(f))(at).item() == pytest.approx(forward, rel=1e-12)
    second = slope(g, x)
    for h in (fx.jacfwd(g), fx.jacrev(g), fx.jacfwd(fx.jacfwd(f)), fx.jacrev(fx.jacfwd(f))):
        assert h(at).item() == pytest.approx(second, rel=1e-5, abs=1e-5)


def test_vmap_of_nested_control_flow_is_the_loop() -> None:
    xs, ns = np.linspace(-2, 2, 7), np.array([3, 0, 2, 9, 1, 4, -1], np.int32)
    grads = fx.grad(nested)
    close(fx.vmap(nested)(xs, ns), [nested(x, n).item() for x, n in zip(xs, ns, strict=True)])
    want = [grads(x, n).item() for x, n in zip(xs, ns, strict=True)]
    close(fx.vmap(grads)(xs, ns), want)
    close(fx.grad(lambda xs: fnp.sum(fx.vmap(nested)(xs, ns)))(xs), want)
    many = fx.vmap(fx.vmap(nested, in_axes=(0, None)), in_axes=(None, 0), out_axes=1)(xs, ns)
    close(np.diagonal(np.asarray(many)), fx.vmap(nested)(xs, ns))


def test_interpreted_simplified_and_inlined_programs_agree() -> None:
    program = fx.trace(nested, np.float64(1.2), np.int32(3))
    for p in (program, fx.grad(program), fx.vmap(fx.grad(program), axis_size=2)):
        args = (
            [np.float64(1.2), np.int32(3)]
            if p.in_avals[0].shape == ()
            else [np.array([1.2, -1.0]), np.array([3, 2], "i4")]
        )
        want = np.asarray(p(*args))
        for q in (p, fx.dce(p), fx.cse(p), fx.simplify(p), fx.inline(p)):
            close(np.asarray(fx.interpret(q, *args)), want, rtol=1e-12)
            close(np.asarray(q(*args)), want, rtol=1e-12)


def test_remat_inside_and_around() -> None:
    @fx.remat
    def body(x: Any) -> Any:
        return fnp.sin(fnp.exp(fnp.cos(x)))

    def f(x: Any) -> Any:
        return fnp.sum(lax.while_loop(lambda x: fnp.sum(x) < 9, body, x, max_steps=4))

    def plain(x: Any) -> Any:
        return fnp.sum(lax.while_loop(lambda x: fnp.sum(x) < 9, lambda x: fnp.sin(fnp.exp(fnp.cos(x))), x, max_steps=4))

    x = np.arange(3.0) / 3
    program = fx.grad(fx.trace(f, x))
    (loop,) = [e.prim for j in distinct_jaxprs(program.jaxpr) for e in j.eqns if isinstance(e.prim, While)]
    assert sorted(map(str, loop.rows)) == ["f64[3]"]  # the carry is the only row
    want = fx.grad(plain)(x)
    close(program(x), want, rtol=1e-12)
    close(fx.grad(fx.remat(plain))(x), want, rtol=1e-12)

    def branchy(x: Any) -> Any:
        return lax.cond(fnp.sum(x) > 0, fx.remat(plain), lambda x: fnp.sum(x), x)

    close(fx.grad(branchy)(x), want, rtol=1e-12)


def test_transformations_inside_bodies() -> None:
    """Newton's method, with the derivative inside of the loop, is differentiated as a whole."""

    def root(a: Any) -> Any:
        def f(x: Any) -> Any:
            return x**3 - a

        return lax.while_loop(lambda x: fnp.abs(f(x)) > 1e-13, lambda x: x - f(x) / fx.grad(f)(x), a, max_steps=60)

    assert root(fnp.asarray(np.float64(8))).item() == pytest.approx(2)
    assert fx.grad(root)(np.float64(8)).item() == pytest.approx(1 / 12)
    # at 1 the method takes no step, so the derivative is that of the start
    close(fx.vmap(fx.grad(root))(np.array([1.0, 8.0, 27.0])), [1, 1 / 12, 1 / 27])


# ----------------------------------------------------------------------------------------------------------- refusals

F = fnp.zeros(3)


@pytest.mark.parametrize(
    ("call", "error", "message", "remedy"),
    [
        (lambda: lax.cond(1j, int, int), DTypeError, "cond: pred is c64[], not a bool", "compare: x != 0"),
        (
            lambda: lax.cond(F > 0, lambda: 1, lambda: 2),
            ShapeError,
            "cond: pred has shape (3,), it must have no axes",
            "reduce it with any() or all(); to choose element by element use fxad.numpy.where",
        ),
        (
            lambda: lax.cond(True, 1, int),
            ArgumentError,
            "cond: true_fun is an int, not a function: 1",
            "pass a function, not what it returns",
        ),
        (
            lambda: lax.cond("yes", int, int),
            ArgumentError,
            "cond: pred: a str is not an array: 'yes'",
            "pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__",
        ),
        (
            lambda: lax.cond(True, abs, abs, {"x": "no"}),
            ArgumentError,
            "cond: operands[0]['x']: a str is not an array: 'no'",
            "pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__",
        ),
        (
            lambda: lax.cond(True, lambda x: (x, x), lambda x: {"a": x}, F),
            TreeError,
            "cond: results differ in structure: false_fun <lambda> returns {'a': *}, true_fun <lambda> returns (*, *)",
            "return pytrees of the same structure from all branches",
        ),
        (
            lambda: lax.cond(True, lambda x: {"a": x}, lambda x: {"a": x[0]}, F),
            ShapeError,
            "cond: results differ in type: result['a'] is f32[] in false_fun <lambda>, f32[3] in true_fun <lambda>",
            "return one shape from all branches: broadcast, or use full_like",
        ),
        (
            lambda: lax.switch(0, [lambda x: x, lambda x: x.astype("int8")], F),
            DTypeError,
            "switch: results differ in type: result is f32[3] in branch 0 <lambda>, i8[3] in branch 1 <lambda>",
            "convert one of them with astype('float32')",
        ),
        (
            lambda: lax.cond(True, lambda: 1.5, lambda: np.int8(1)),
            DTypeError,
            "cond: results differ in type: result is i8[] in false_fun <lambda>, f32[] in true_fun <lambda>",
            "convert one of them with astype('int8')",
        ),
        (lambda: lax.switch(0, []), ParameterError, "switch: there is no branch", "give at least one function"),
        (
            lambda: lax.switch(0, {"a": abs}),
            ArgumentError,
            "switch: branches is a dict, not a sequence of functions",
            "give a list or a tuple",
        ),
        (
            lambda: lax.switch(0.5, [abs]),
            DTypeError,
            "switch: index is f32[], not an integer",
            "convert it with astype('int32')",
        ),
        (
            lambda: lax.switch(F.astype("int32"), [abs]),
            ShapeError,
            "switch: index has shape (3,), it must have no axes",
            "to choose for each example use vmap",
        ),
        (
            lambda: lax.cond(True, abs, abs, 1, batched="both"),
            ParameterError,
            "cond: batched is 'both'",
            "use 'select' or 'loop'",
        ),
        (
            lambda: lax.while_loop(lambda x: x, lambda x: x, F),
            DTypeError,
            "while_loop: cond_fun <lambda> returns f32[3], not a bool",
            "compare: x != 0",
        ),
        (
            lambda: lax.while_loop(lambda x: x > 0, lambda x: x, F),
            ShapeError,
            "while_loop: cond_fun <lambda> returns bool[3], a bool for each element",
            "reduce it with any() or all()",
        ),
        (
            lambda: lax.while_loop(lambda x: (True, True), lambda x: x, F),
            TreeError,
            "while_loop: cond_fun <lambda> returns (*, *), not one bool",
            "return a single predicate",
        ),
        (
            lambda: lax.while_loop(lambda _: True, lambda c: {"x": c["x"], "y": 1.0}, {"x": F}),
            TreeError,
            (
                "while_loop: body_fun <lambda> returns a carry of another structure than init_val: {'x': *, 'y': *}, "
                "init_val is {'x': *}"
            ),
            "return from body_fun what it was given, with new values",
        ),
        (
            lambda: lax.while_loop(lambda _: True, lambda c: {"x": c["x"][1:]}, {"x": F}),
            ShapeError,
            "while_loop: the carry changes its type: init_val['x'] is f32[3], body_fun <lambda> returns f32[2] for it",
            "a loop has one shape for all steps: start from, and return, the same",
        ),
        (
            lambda: lax.while_loop(lambda _: True, lambda x: x * 0.5, np.arange(3)),
            DTypeError,
            "while_loop: the carry changes its type: init_val is i64[3], body_fun <lambda> returns f32[3] for it",
            "start from a value of dtype float32, or return astype('int64')",
        ),
        (
            lambda: lax.while_loop(lambda _: True, lambda x: x, F, max_steps=2.5),
            ParameterError,
            "while_loop: max_steps is 2.5, not an int",
            "the bound is static: a Python int",
        ),
        (
            lambda: lax.while_loop(lambda _: True, lambda x: x, F, max_steps=-1),
            ParameterError,
            "while_loop: max_steps is -1",
            "give a number of steps from 0 to 2**31 - 1",
        ),
        (
            lambda: lax.while_loop(lambda _: True, lambda a, b: a, F),
            ArgumentError,
            "while_loop: body_fun <lambda>: missing a required argument: 'b'",
            "its signature is <lambda>(a, b)",
        ),
    ],
)
def test_refusals(call: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.message == message
    assert caught.value.remedy == remedy
    with pytest.raises(error) as inside:
        fx.trace(call)
    assert inside.value.message == message


def test_a_mistake_in_a_branch_names_the_users_line() -> None:
    def bad(x: Any) -> Any:
        return x + fnp.zeros(4)

    with pytest.raises(ShapeError, match=r"(?s)do not broadcast.*test_control_flow.py:\d+ in .*bad"):
        lax.cond(True, bad, lambda x: x, F)


def test_dce_moves_a_literal_through_a_branch_into_its_loop() -> None:
    def f(p: fx.Array) -> Any:
        def repeated(a: fx.Array) -> Any:
            return lax.scan(lambda carry, _: (carry, a + a), 0.0, None, length=2)[1]

        return lax.cond(p, repeated, lambda a: fnp.full((2,), 3.0), 1.0)

    out = fx.dce(fx.trace(f, fx.Spec((), "bool")))
    assert fx.dce(out).jaxpr is out.jaxpr
    (eqn,) = [e for e in out.jaxpr.eqns if e.prim.name == "cond"]
    assert len(eqn.ins) == 1
