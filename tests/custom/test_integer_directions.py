"""What stands for the tangent and the cotangent of an integer: None, JAX's array of float0, constant zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import DTypeError, TreeError

N = np.int32(3)
NONE = np.zeros((), fx.float0)

# from the residual n to its cotangent
ABSENT: dict[str, Callable[[Any], Any]] = {
    "None": lambda n: None,
    "float0": lambda n: NONE,
    "zeros": lambda n: fnp.zeros((), "int32"),
    "zeros_like": fnp.zeros_like,
    "NumPy's zeros": lambda n: np.zeros((), np.int32),
    "zeros of another dtype": lambda n: fnp.zeros(()),
    "a number": lambda n: 0,
    "symbolic": lambda n: fx.SymbolicZero(fx.Aval((), np.dtype("int32"))),
}
PRESENT: dict[str, Callable[[Any], Any]] = {
    "one": lambda n: fnp.ones((), "int32"),
    "a value of the program": lambda n: n,
    "float0 of another shape": lambda n: np.zeros((2,), fx.float0),
    "zeros of another shape": lambda n: fnp.zeros((2,), "int32"),
    "a list": lambda n: "zero",
}


def with_vjp(direction: Callable[[Any], Any]) -> Any:
    f = fx.custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (x * n, n), lambda n, bar: (bar * n, direction(n)))
    return f


def with_jvp(direction: Callable[[Any], Any]) -> Any:
    f = fx.custom_jvp(lambda x, n: (x * n, n))
    f.defjvp(lambda p, t: ((p[0] * p[1], p[1]), (t[0] * p[1], direction(p[1]))))
    return f


def with_gradient(direction: Callable[[Any], Any]) -> Any:
    return fx.custom_gradient(lambda x, n: (x * n, lambda bar: (bar * n, direction(n))))


@pytest.mark.parametrize("name", ABSENT)
def test_rules_that_say_that_an_integer_has_none(name: str) -> None:
    for f in (with_vjp(ABSENT[name]), with_gradient(ABSENT[name])):
        assert float(fx.grad(f)(2.0, N)) == 3
        assert float(fx.jit(fx.grad(f))(2.0, N)) == 3
        assert fx.vjp(f, 2.0, N)[1](1.0)[1] is None
        np.testing.assert_array_equal(fx.vmap(fx.grad(f))(np.ones(2, np.float32), np.array([3, 4])), [3, 4])
    f = with_jvp(ABSENT[name])
    assert float(fx.grad(lambda x: f(x, N)[0])(2.0)) == 3
    for tangent in (None, NONE):
        out, dots = fx.jvp(f, (2.0, N), (1.0, tangent))
        assert [float(out[0]), int(out[1]), float(dots[0]), dots[1]] == [6, 3, 3, None]


@pytest.mark.parametrize("name", PRESENT)
def test_rules_that_give_an_integer_a_direction(name: str) -> None:
    message = r"which is i32\[\] and has none"
    for call in (
        lambda: fx.grad(with_vjp(PRESENT[name]))(2.0, N),
        lambda: fx.jvp(with_jvp(PRESENT[name]), (2.0, N), (1.0, None)),
    ):
        with pytest.raises(DTypeError, match=message) as caught:
            call()
        assert caught.value.remedy == "return None for it; an array of float0, or of zeros, is taken too"


@pytest.mark.parametrize("direction", [lambda a: a, lambda a: a + 1, lambda a: a - 7, lambda a: a * 0, lambda a: -a])
def test_a_traced_number_is_no_constant_zero(direction: Any) -> None:
    """Regression: a number computed from an argument was taken for the zero that stood for it."""

    def f(x: Any, a: Any) -> Any:
        g = fx.custom_vjp(lambda x, n: x * n)
        g.defvjp(lambda x, n: (x * n, n), lambda n, bar: (bar * n, direction(a)))
        return fx.grad(lambda x: g(x, a + 0).sum())(x)

    with pytest.raises(DTypeError, match=r"returns a cotangent of n, which is i32\[\] and has none"):
        fx.jit(f)(np.ones(2, np.float32), 7)


def test_callers_may_give_float0() -> None:
    def f(x: Any, tree: Any) -> Any:
        return x * tree["n"], tree["n"] + 1, fnp.argmax(fnp.stack([x, -x]))

    tree, none = {"n": N, "m": np.arange(3)}, {"n": NONE, "m": np.zeros((3,), fx.float0)}
    out, dots = fx.jvp(f, (2.0, tree), (1.0, none))
    assert [float(dots[0]), dots[1], dots[2]] == [3, None, None]
    assert float(out[0]) == 6
    assert float(fx.linearize(lambda x, t: f(x, t)[0], 2.0, tree)[1](1.0, none)) == 3
    for bar in ((1.0, NONE, NONE), (1.0, None, NONE)):
        assert float(fx.vjp(lambda x: f(x, tree), 2.0)[1](bar)[0]) == 3
    program: Any = fx.jvp(fx.trace(f, 2.0, tree))
    assert float(program((2.0, tree), (1.0, none))[1][0]) == 3
    run: Any = fx.lower(program).compile()
    assert float(run((2.0, tree), (1.0, none))[1][0]) == 3
    with pytest.raises(TreeError, match=r"argument tangents is \(\*, \{'m': \*, 'n': \*\}\)"):
        fx.jvp(f, (2.0, tree), (NONE, none))


def test_custom_gradient_with_integer_results() -> None:
    seen: list[Any] = []

    @fx.custom_gradient
    def halves(x: Any) -> Any:
        def pull(bar: Any) -> Any:
            seen.append(bar[1])
            return bar[0] * 5

        return (x / 2, fnp.floor(x).astype("int32")), pull

    assert [float(halves(3.5)[0]), int(halves(3.5)[1])] == [1.75, 3]
    assert float(fx.grad(lambda x: halves(x)[0] * halves(x)[1])(3.5)) == 15
    for none in (None, NONE):
        (bar,) = fx.vjp(halves, 3.5)[1]((1.0, none))
        assert float(bar) == 5
    assert set(seen) == {None}

    @fx.custom_gradient
    def floor(x: Any) -> Any:
        return fnp.floor(x).astype("int32"), lambda bar: fnp.zeros(())

    out, pull = fx.vjp(floor, 2.5)
    assert (int(out), float(pull(None)[0]), float(pull(NONE)[0])) == (2, 0, 0)
    assert float(fx.grad(lambda x: x * floor(x))(2.5)) == 2
    assert fx.vmap(fx.grad(lambda x: x * floor(x)))(np.array([1.5, 2.5], np.float32)).tolist() == [1, 2]


def test_helpers_of_symbolic_zeros() -> None:
    from_primal, values = fx.custom_derivatives.zero_from_primal, fx.custom_derivatives.custom_vjp_primal_tree_values
    assert from_primal(N) is None
    np.testing.assert_array_equal(from_primal(np.ones(3)), np.zeros(3))
    assert from_primal(np.ones(3), symbolic_zeros=True) == fx.SymbolicZero(fx.Aval((3,), np.dtype("float64")))
    primals = {"a": fx.CustomVJPPrimal(2.0, True), "b": (fx.CustomVJPPrimal(N, False),)}
    assert values(primals) == {"a": 2.0, "b": (N,)}

    @fx.custom_vjp
    def f(x: Any, n: Any) -> Any:
        return x * n

    def forward(x: Any, n: Any) -> Any:
        plain = values((x, n))
        return plain[0] * plain[1], plain[1]

    f.defvjp(forward, lambda n, bar: (bar * n, from_primal(n)), symbolic_zeros=True)
    assert float(fx.grad(f)(2.0, N)) == 3


@pytest.mark.parametrize("n", [3, True, np.int32(3)], ids=repr)
@pytest.mark.parametrize("zero", [None, 0, np.zeros((), np.int32), np.zeros((), fx.dtypes.float0)], ids=repr)
def test_a_rule_may_give_zeros_for_a_python_int(n: Any, zero: Any) -> None:
    """The function gets a Python int as it is; its cotangent may be what that of an array of ints may be."""
    f: Any = fx.custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (x * n, n), lambda n, ct: (ct * n, zero))
    assert float(fx.grad(f)(2.0, n)) == float(n)
