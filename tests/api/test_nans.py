"""`explain_nan` finds the first equation that makes a nan, in bodies too."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, ExecutionError

X = np.array([1.0, 0.0, -2.0], np.float32)


def explain(f: Any, *args: Any) -> Any:
    return fx.explain_nan(fx.trace(f, *args), *args)


@pytest.mark.usefixtures("nothing_remembered")
def test_it_names_equation_line_values_and_element() -> None:
    def loss(x: Any) -> Any:
        return fnp.sum(fnp.sqrt(x * 2))

    found = explain(loss, X)
    assert (found.nan.what, found.nan.at, found.nan.count, found.inf) == ("nan", (2,), 1, None)
    assert (found.nan.where.file, found.nan.where.function.rpartition(".")[2]) == (__file__, "loss")
    assert re.fullmatch(
        r"explain_nan: nan was made in 1 of 3 elements, and no operand has one\n"
        r"  equation      %1:f32\[3\] = sqrt %0:f32\[3\]\n"
        rf"  traced at     {re.escape(__file__)}:\d+ in .*loss\n"
        r"  nearest       x\n"
        r"  operand 0     -4.0 at \[2\]",
        str(found),
    )


def test_numbers_of_python_are_no_closed_over_arrays() -> None:
    found: Any = fx.explain_nan(lambda x, k: fnp.sqrt(x - 5 * k), 1.0, k=2)
    assert found.nan.nearest == ("the number -9.0",)
    w = np.full(3, -1.0, np.float32)
    found = fx.explain_nan(lambda x: x * fnp.sqrt(w), X)
    assert found.nan.nearest == ("closed-over array 0",)


def test_the_inf_before_it_is_named() -> None:
    found = explain(lambda x: (1 / x) * 0, X)
    assert (found.inf.what, found.inf.at, found.nan.at) == ("inf", (1,), (1,))
    assert "before it, inf was made in 1 of 3 elements" in str(found)


def test_no_nan_and_nans_that_came_in() -> None:
    assert explain(lambda x: x * 2, X) is None
    assert explain(lambda x: x * 2, np.array([np.nan], np.float32)) is None
    assert explain(lambda x: 1 / x, X) is None
    assert explain(lambda n: n + 1, np.arange(3)) is None


def test_a_literal_nan() -> None:
    found = explain(lambda x: fnp.where(x > 0, x, np.nan) * 2, X)
    assert (found.nan.at, found.nan.count) == ((1,), 2)
    assert str(found).startswith(
        "explain_nan: nan was made in 2 of 3 elements, from one that is written in the program\n  equation      %1"
    )
    assert explain(lambda x: fnp.where(x > -9, x, np.nan) * 2, X) is None


def bad(x: Any) -> Any:
    return fnp.log(x)


ruled: Any = fx.custom_jvp(bad)
ruled.defjvp(lambda primals, tangents: (bad(*primals), tangents[0]))
backward: Any = fx.custom_vjp(lambda x: x)
backward.defvjp(lambda x: (x, x), lambda x, ct: (ct * fx.jit(bad)(x),))
INSIDE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a call": (lambda x: fx.jit(bad)(x), ("call of bad",)),
    "remat": (lambda x: fx.remat(bad)(x), ("remat of bad",)),
    "a branch": (lambda x: lax.cond(x[0] > 0, bad, lambda x: x, x), ("branch 1 of cond",)),
    "a step": (lambda x: lax.scan(lambda c, y: (c, bad(y)), 0.0, x), ("step 2 of scan",)),
    "a reversed step": (lambda x: lax.scan(lambda c, y: (c, bad(y)), 0.0, x, reverse=True), ("step 2 of scan",)),
    "a while": (lambda x: lax.while_loop(lambda c: c > -3, lambda c: bad(c) - 1, x[0]), ("step 1 of while",)),
    "a bounded while": (
        lambda x: lax.while_loop(lambda c: c > -3, lambda c: bad(c) - 1, x[0], max_steps=9),
        ("step 1 of while",),
    ),
    "a predicate after the last step": (
        lambda x: lax.while_loop(lambda c: bad(c) < 9, lambda c: c - 1, x[0], max_steps=2),
        ("predicate 2 of while",),
    ),
    "its derivative": (
        lambda x: fx.grad(lambda x: lax.while_loop(lambda c: c > -3, lambda c: bad(c) - 1, x, max_steps=9))(x[0]),
        ("step 1 of while",),
    ),
    "a scan in a call": (
        lambda x: fx.jit(lambda x: lax.scan(lambda c, y: (c, fx.jit(bad)(y)), 0.0, x))(x),
        ("call of <lambda>", "step 2 of scan", "call of bad"),
    ),
    "a rule": (lambda x: ruled(x), ("call of bad",)),
    "a backward rule": (lambda x: fx.grad(lambda x: backward(x))(x[2]), ("linear_call of <lambda>", "call of bad")),
    "a root": (
        lambda x: lax.custom_root(
            lambda y: y * y - x[2], x[2], lambda f, y: fx.jit(bad)(y) - f(y), lambda g, y: y / g(1.0)
        ),
        ("root of <lambda>", "call of bad"),
    ),
}


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize("where", INSIDE)
def test_it_goes_into_bodies(where: str) -> None:
    f, inside = INSIDE[where]
    found = explain(f, X)
    assert found.nan.inside[-len(inside) :] == inside
    assert " = log " in found.nan.equation
    assert found.nan.where.function == "bad"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "float8_e4m3fn"])
def test_every_kind_of_float(dtype: str) -> None:
    zero = fnp.zeros((2,), dtype=dtype)
    found = explain(lambda x: x / x, zero)
    assert found is not None
    assert (found.nan.count, found.nan.at) == (2, (0,))


def test_effects_in_a_loop_happen_once() -> None:
    seen: list[float] = []

    def outer(c: Any, _: None) -> tuple[Any, Any]:
        def inner(c: Any, x: Any) -> tuple[Any, Any]:
            fx.io_callback(lambda p: seen.append(float(p)), None, c, ordered=True)
            return c + x, c * 2

        return lax.scan(inner, c, np.ones(2, np.float32))

    start = np.float32(1)
    program = fx.trace(lambda s: lax.scan(outer, s, None, length=2)[1].sum(), start)
    assert fx.explain_nan(program, start) is None
    assert seen == [1.0, 2.0, 3.0, 4.0]
    found = explain(lambda s: fnp.log(9.5 - lax.scan(outer, s, None, length=2)[1].sum()), start)
    assert found.nan.operands[0] == 9.5 - 2 * (1 + 2 + 3 + 4), "what the steps gave is stacked"


def test_in_a_gradient() -> None:
    """`where` hides the nan of the value, but not that of the gradient."""

    def safe(x: Any) -> Any:
        return fnp.where(x > 0, fnp.sqrt(x), 0.0).sum()

    gradient = fx.grad(fx.trace(safe, X))
    assert np.isnan(np.asarray(gradient(X))).any()
    found = fx.explain_nan(gradient, X)
    assert found is not None
    assert found.nan.where is not None
    assert found.nan.where.function.endswith("safe")


def test_a_host_function_that_raises_is_reported_with_its_line() -> None:
    with pytest.raises(ExecutionError, match=r"^host_call: refusing raised ValueError: no\n") as e:
        explain(lambda x: fx.pure_callback(refusing, fx.Spec((3,)), x + 17.0), X)  # no other test has this program
    assert " = host_call " in e.value.equation
    assert "test_nans.py" in e.value.where


def refusing(x: Any) -> Any:
    raise ValueError("no")


def test_refusals() -> None:
    given: Any = 3
    with pytest.raises(ArgumentError) as e:
        fx.explain_nan(given, X)
    assert e.value.message == "explain_nan: an int is neither a Program nor a function: 3"
    assert e.value.remedy == "pass the function itself, or trace(f, *examples)"


@pytest.mark.usefixtures("nothing_remembered")
def test_a_function_that_is_used_twice_has_the_line_of_the_use_that_fails() -> None:
    def twice(x: Any) -> Any:
        y = lax.scan(lambda c, _: (fnp.sqrt(c), None), x, length=3)[0]
        return lax.scan(lambda c, _: (fnp.sqrt(c), None), y - 1.25, length=3)[0].sum()

    found: Any = fx.explain_nan(twice, X[:1] / 2)
    first = twice.__code__.co_firstlineno + 1
    assert [line.line for line in found.nan.lines] == [first + 1, first], "the use, then the equal body"
    assert found.nan.where == found.nan.lines[-1]
    assert str(found).split("\n")[2:5] == [
        f"  traced at     {__file__}:{first + 1} in {twice.__qualname__}",
        f"  in a body at  {__file__}:{first} in {twice.__qualname__}.<locals>.<lambda>, or in an equal function",
        "  inside        step 0 of scan",
    ]


def test_a_function_is_traced_for_the_arguments() -> None:
    found = fx.explain_nan(bad, X)
    assert str(found) == str(fx.explain_nan(fx.trace(bad, X), X))
    assert fx.explain_nan(lambda x, *, scale: x * scale, X, scale=2.0) is None


def logarithm(x: Any, n: Any, kind: Any = "log", apply: Any = None) -> Any:
    return {"log": apply or fnp.log}[kind](x[:n])


def total(x: Any, n: Any) -> Any:
    return logarithm(x, n).sum()


@pytest.mark.parametrize(
    "call",
    [  # regression: each was refused, and a call of the function is not
        lambda: fx.explain_nan(fx.jit(logarithm, static_argnames=("n", "kind")), X, 3, kind="log"),
        lambda: fx.explain_nan(fx.vmap(logarithm, in_axes=(0, None, None)), X[None], 3, "log"),
        lambda: fx.explain_nan(fx.value_and_grad(total), X, 3),
        lambda: fx.explain_nan(logarithm, X, 3, "log", fnp.log),
        lambda: fx.explain_nan(lambda x, flag: fnp.log(x) if flag else x, X, True),
    ],
)
def test_static_arguments_and_values_that_the_function_needs(call: Any) -> None:
    found = call()
    assert found.nan.equation.split()[2] == "log"


def network(params: Any, x: Any) -> Any:
    for k, p in enumerate(params["layers"]):
        with fx.named_scope(f"layer {k}"):
            x = fnp.sqrt(x @ p["w"] + p["b"])
    return x.sum()


PARAMS: Any = {"layers": [{"w": np.eye(3, dtype=np.float32), "b": np.zeros(3, np.float32)} for _ in range(4)]}
PARAMS["layers"][2]["b"][1] = -9.0


@pytest.mark.parametrize("wrap", [lambda f: f, fx.jit, fx.remat, lambda f: fx.jit(fx.jit(f))])
def test_the_layer_of_an_unrolled_network(wrap: Any) -> None:
    """All layers are on one line: the nearest arguments and the scope tell which it is."""
    found: Any = fx.explain_nan(wrap(network), PARAMS, np.ones((2, 3), np.float32))
    assert {path.partition("['")[2] for path in found.nan.nearest} == {"layers'][2]['w']", "layers'][2]['b']"}
    assert found.nan.where.scope == "layer 2"
    assert str(found).splitlines()[2].endswith(", layer 2") or ", layer 2," in str(found)


def test_no_argument_is_nearest_in_a_step_of_a_loop() -> None:
    """An operand of a step may be a slice of an argument or the result of the step before."""
    found = explain(lambda x: lax.scan(lambda c, _: (fnp.log(c), None), x - 0.5, length=3)[0].sum(), X)
    assert found.nan.nearest == ()
