"""`fx.jet`: series of functions and programs, bodies, custom rules, cost, bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax, numpy as fnp
from fxad.errors import ArgumentError, NotDifferentiableError, ShapeError, TreeError
from fxad.experimental import jet as experimental
from fxad.testing.transform_laws import total_eqns
from fxad.transforms import jvp
from fxad.transforms.jet.jet import jet

Scalar = Callable[..., Any]


def coefficients(f: Scalar, x: float, order: int = 6, slope: float = 1.0) -> np.ndarray:
    """The coefficients of f(x + slope t), without a compilation."""
    return along(f, np.float64(x), [np.float64(slope)], order)


def along(f: Scalar, x: Any, terms: list[Any], order: int | None = None) -> np.ndarray:
    series = fx.jet(fx.trace(f, x), order=order or len(terms), given=len(terms))
    value, higher = fx.interpret(series, (x,), tuple([(c,) for c in terms]))
    return np.array([value, *higher], np.float64)


# ------------------------------------------------------------------------------------------------------------ values


def test_exponential_series() -> None:
    np.testing.assert_allclose(coefficients(fnp.exp, 0.0, 12), [1 / math.factorial(k) for k in range(13)], rtol=1e-14)
    np.testing.assert_allclose(coefficients(lambda x: 1 / (1 - x), 0.0, 12), np.ones(13), rtol=1e-14)
    want = [0.0, *[(-1) ** (k + 1) / k for k in range(1, 13)]]
    np.testing.assert_allclose(coefficients(fnp.log1p, 0.0, 12), want, rtol=1e-13)
    np.testing.assert_allclose(coefficients(lambda x: (1 + x) ** 0.5, 0.0, 4), [1, 1 / 2, -1 / 8, 1 / 16, -5 / 128])


def test_mixed_arguments_and_trees() -> None:
    def f(p: dict[str, Any], n: int, *, scale: float) -> tuple[Any, Any]:
        return p["x"] * p["y"] * scale, fnp.argmax(p["x"]) + n

    x, y = np.array([1.0, 2.0]), np.array([3.0, -1.0])
    (value, place), series = fx.jet(
        f, ({"x": x, "y": y}, 3), (({"x": y, "y": x}, None), ({"x": x, "y": 0 * x}, None)), scale=2.0
    )
    np.testing.assert_allclose(value, 2 * x * y)
    assert place == 4
    np.testing.assert_allclose([s[0] for s in series], [2 * (y * y + x * x), 2 * (x * y + y * x)])
    assert [s[1] for s in series] == [None, None]


def test_composition() -> None:
    """The series of f(g(x)) is the series of f along that of g."""
    x, slope = np.float64(0.4), np.float64(1.3)
    g, *gs = along(fnp.sin, x, [slope], 6)
    both = along(lambda x: fnp.exp(fnp.sin(x)), x, [slope], 6)
    np.testing.assert_allclose(along(fnp.exp, g, gs), both, rtol=1e-14)


def test_the_series_of_an_inverse() -> None:
    """x = tan(arctan(x)): along the series of arctan, tan gives back x + t."""
    y, *ys = along(fnp.arctan, np.float64(0.8), [np.float64(1.0)], 8)
    np.testing.assert_allclose(along(fnp.tan, y, ys), [0.8, 1.0, *[0.0] * 7], atol=1e-13)


def test_linear_programs() -> None:
    """Coefficient k of a linear map is the map of coefficient k, and the program is a copy of it for each."""
    w = np.random.default_rng(0).normal(size=(3, 4))
    program = fx.trace(lambda x: fnp.concatenate([x @ w, 2 * x])[::-1], fx.Spec((3,), "float64"))
    xs = np.random.default_rng(1).normal(size=(5, 3))
    value, series = fx.jet(program, order=4)((xs[0],), tuple([(x,) for x in xs[1:]]))
    np.testing.assert_allclose([value, *series], [program(x) for x in xs], rtol=1e-14)
    assert total_eqns(fx.jet(program, order=4).jaxpr) == 5 * total_eqns(program.jaxpr)


def test_where_a_function_has_no_derivative() -> None:
    assert np.isnan(coefficients(fnp.log, -1.0, 3)[0])
    assert list(coefficients(fnp.sqrt, 0.0, 1)) == [0.0, np.inf]
    assert not np.isfinite(coefficients(fnp.sqrt, 0.0, 3)[2:]).any()
    np.testing.assert_array_equal(coefficients(lambda x: x**3, 0.0, 4), [0, 0, 0, 1, 0])
    np.testing.assert_array_equal(coefficients(fx.nn.relu, 2.0, 3), [2, 1, 0, 0])
    np.testing.assert_array_equal(coefficients(fx.nn.relu, -2.0, 3), [0, 0, 0, 0])


def test_zero_coefficients_give_no_equations() -> None:
    program = fx.trace(lambda x: x * 2.0 + 1.0, fx.Spec(())).jaxpr
    series, nonzero = jet(program, ((True, False, False),))
    assert nonzero == ((True, False, False),)
    assert [e.prim.name for e in series.eqns] == ["mul", "mul", "add"]
    fixed, nonzero = jet(program, ((False, False, False),))
    assert nonzero == ((False, False, False),)
    assert fixed.eqns == program.eqns


# ------------------------------------------------------------------------------------------------------- order and cost


def test_order_one_is_jvp() -> None:
    program = fx.trace(lambda x, y: fnp.sin(x) * y, fx.Spec((3,)), fx.Spec((3,)))
    assert fx.jet(program, order=1).jaxpr is fx.jvp(program).jaxpr
    assert jet(program.jaxpr, ((True,), (False,)))[0] is jvp(program.jaxpr, (True, False))[0]


def network(x: Any) -> Any:
    for k in range(3):
        x = fnp.tanh(x @ fnp.full((8, 8), 0.1 * (k + 1)) + 0.1)
    return x.sum()


def block(x: Any) -> Any:
    w = fnp.full((8, 8), 0.1)

    def normalised(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / fnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    h = normalised(x)
    x = x + fx.nn.softmax((h @ w) @ (h @ w).T / 3.0) @ h @ w
    return x + fx.nn.gelu(normalised(x) @ w) @ w


@pytest.mark.parametrize(("f", "shape"), [(network, (8,)), (block, (4, 8))])
@pytest.mark.parametrize("given", [1, None])
def test_equations_grow_at_most_with_the_square_of_the_order(
    f: Scalar, shape: tuple[int, ...], given: int | None
) -> None:
    program = fx.trace(f, fx.Spec(shape))
    counts = [total_eqns(fx.jet(program, order=k, given=given).jaxpr) for k in range(2, 10)]
    steps = np.diff(counts)
    growth = np.diff(steps)[1:]  # of a polynomial of degree 2, it is constant; the rows begin at order 3
    assert growth.max() <= 1.2 * growth.min() + 8, counts
    assert counts[7] < 64 * counts[0]


@pytest.mark.parametrize("f", [fnp.log, fnp.sqrt, fnp.arctan, lambda x: x**2.5, lambda x: fnp.linalg.solve(x, x[0])])
def test_each_coefficient_is_computed_once(f: Scalar) -> None:
    """No equation of a series occurs twice."""
    shape = (3, 3) if "solve" in f.__code__.co_names else ()
    series = fx.inline(fx.jet(fx.trace(f, fx.Spec(shape)), order=6)).jaxpr
    assert fx.cse(fx.Program(series, *_trees(series))).jaxpr is series


def _trees(series: fx.Jaxpr) -> tuple[Any, Any]:
    program = fx.trace(lambda *xs: xs, *[fx.Spec(a.shape, a.dtype) for a in series.in_avals])
    out = fx.trace(lambda *xs: xs, *[fx.Spec(a.shape, a.dtype) for a in series.out_avals])
    return program.in_tree, out.out_tree


# ------------------------------------------------------------------------------------------------------------- bodies


def slope_of(program: Any, x: Any, direction: Any) -> Any:
    slope = fx.jvp(program)
    return fx.trace(lambda x: slope((x,), (direction,))[1], x)


def against_nested(f: Scalar, x: float, order: int = 3) -> None:
    """The coefficients beside nested forward mode, without a compilation."""
    at, one = np.float64(x), np.float64(1.0)
    program = fx.trace(f, at)
    value, series = fx.interpret(fx.jet(program, order=order, given=1), (at,), ((one,),))
    for k, found in enumerate((value, *series)):
        want = fx.interpret(program, at) / math.factorial(k)
        np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-12)
        program = slope_of(program, at, one)


BODIES: dict[str, Scalar] = {
    "scan": lambda x: lax.scan(lambda c, k: (fnp.sin(c) * k, c), x, np.arange(1.0, 4.0))[0],
    "stacked": lambda x: lax.scan(lambda c, k: (c * x, fnp.exp(-c) * k), x * 0 + 1.0, np.arange(1.0, 4.0))[1].sum(),
    "map": lambda x: lax.map(lambda k: fnp.tanh(k * x), np.arange(1.0, 4.0)).sum(),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 5.0, lambda c: (c[0] * 1.7, fnp.sin(c[1] * c[0])), (x, x))[1],
    "fori": lambda x: lax.fori_loop(0, 3, lambda k, c: c * fnp.cos(c), x),
    "cond": lambda x: lax.cond(x > 0, lambda x: fnp.sin(x) * x, lambda x: x * 2.0, x),
    "switch": lambda x: lax.switch(1, [lambda x: x, lambda x: x * 0 + 3.0 * x**3, fnp.exp], x),
    "remat": lambda x: fx.remat(lambda x: fnp.exp(fnp.sin(x)))(x),
    "jit": fx.jit(lambda x: fnp.exp(fnp.sin(x))),
    "call of a call": lambda x: fx.jit(lambda x: fx.jit(fnp.sin)(x * x) * x)(x),
    "invertible": lambda x: fx.invertible(lambda x: fnp.exp(x) * 2.0)(x),
    "reduce": lambda x: lax.reduce(x * np.arange(1.0, 4.0), 1.0, lambda a, b: a * b, (0,)),
    "associative_scan": lambda x: lax.associative_scan(lambda a, b: a * b, fnp.sin(x * np.arange(1.0, 4.0))).sum(),
    "root": lambda x: lax.custom_root(
        lambda y: y**3 - x,
        np.float64(1.0),
        lambda f, y: lax.fori_loop(0, 40, lambda _, y: y - f(y) / (3 * y * y), y),
        lambda g, y: y / g(1.0),
    ),
    "linear_solve": lambda x: lax.custom_linear_solve(
        lambda y: fnp.exp(x) * y, fnp.sin(x), lambda _, b: b / fnp.exp(x), symmetric=True
    ),
    "sort": lambda x: (fnp.sort(fnp.stack([x**2, -x, x**3])) * np.arange(3.0)).sum(),
    "max": lambda x: fnp.max(fnp.stack([x**2, -x, x**3])),
    "where": lambda x: fnp.where(x > 0.1, fnp.log(x), x),
    "cholesky": lambda x: fnp.linalg.cholesky(fnp.stack([fnp.stack([2 + x**2, x]), fnp.stack([x, 3 + x])])).sum(),
    "eigh": lambda x: fnp.linalg.eigh(fnp.stack([fnp.stack([2 + x**2, x]), fnp.stack([x, 5 + x])]))[0][0],
    "svd": lambda x: fnp.linalg.svd(fnp.stack([fnp.stack([2 + x**2, x]), fnp.stack([x, 5 + x])]), compute_uv=False)[0],
    "fft": lambda x: fnp.abs(fnp.fft.fft(fnp.stack([x, x**2, x**3])))[1] ** 2,
    "gammaln": lambda x: fx.scipy.special.gammaln(x),
    "grad": lambda x: fx.grad(lambda y: fnp.sin(y) ** 3)(x),
    "vmap": lambda x: fx.vmap(lambda k: fnp.sin(k * x))(np.arange(3.0)).sum(),
    "jet": lambda x: fx.jet(fnp.sin, (x * x,), ((x,), (x,)))[1][1],
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_and_compositions(name: str) -> None:
    against_nested(BODIES[name], 0.7)


def test_a_compiled_series() -> None:
    value, series = fx.jet(lambda x: fnp.exp(fnp.sin(x)), (np.float64(0.4),), ((np.float64(1.3),),), order=6)
    np.testing.assert_allclose([value, *series], coefficients(lambda x: fnp.exp(fnp.sin(x)), 0.4, 6, 1.3), rtol=1e-14)


def test_a_loop_stays_one_loop() -> None:
    """With all coefficients as carry, and no loop for each."""
    program = fx.trace(lambda x: lax.scan(lambda c, _: (fnp.sin(c), None), x, None, length=5)[0], fx.Spec(()))
    series = fx.jet(program, order=4).jaxpr
    assert [e.prim.name for e in series.eqns] == ["scan"]
    assert len(series.eqns[0].ins) == len(series.eqns[0].outs) == 5


def test_layers_stay_calls_of_one_function() -> None:
    layer = fx.jit(lambda x: fnp.tanh(x) * 2.0)
    program = fx.trace(lambda x: layer(layer(layer(x))), fx.Spec((3,)))
    series = fx.jet(program, order=3).jaxpr
    assert len({e.prim for e in series.eqns}) == 1


def test_a_chain_of_many_equations() -> None:
    def f(x: Any) -> Any:
        for _ in range(1500):
            x = fnp.sin(x) + x
        return x

    assert np.isfinite(
        np.asarray(fx.interpret(fx.jet(fx.trace(f, fx.Spec(())), order=2, given=1), (0.1,), ((1e-6,),))[0])
    )


# -------------------------------------------------------------------------------------------------------- custom rules


def test_custom_jvp_gives_the_series() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.floor(x)  # the value; its derivative is that of exp

    @f.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return f(*primals), tangents[0] * fnp.exp(primals[0])

    found = coefficients(f, 1.5, 4)
    np.testing.assert_allclose(found, [1.0, *[np.exp(1.5) / math.factorial(k) for k in range(1, 5)]], rtol=1e-14)
    against_nested(f, 1.5)


def test_a_rule_that_calls_its_function() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.exp(x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * f(*primals)))
    np.testing.assert_allclose(coefficients(f, 0.0, 8), [1 / math.factorial(k) for k in range(9)], rtol=1e-13)
    counts = [total_eqns(fx.jet(fx.trace(f, fx.Spec(())), order=k).jaxpr) for k in (2, 4, 8)]
    assert counts[2] < 8 * counts[1] < 64 * counts[0]


def with_a_loop_in_its_rule(loop_over_result: bool) -> Scalar:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    @f.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        (x,) = primals
        y = f(x)
        slope = lax.fori_loop(0, 3, lambda _, c: fnp.cos(c) * (y if loop_over_result else x), x * x)
        return y, tangents[0] * slope

    return f


@pytest.mark.parametrize("loop_over_result", [False, True])
def test_a_loop_in_a_rule(loop_over_result: bool) -> None:
    """A loop over the argument is one loop over all coefficients. A loop over the result is one for each order, as
    coefficient k of the result needs coefficient k - 1 of the loop."""
    f = with_a_loop_in_its_rule(loop_over_result)
    against_nested(f, 0.7, 4)
    series = fx.inline(fx.jet(fx.trace(f, fx.Spec((), "float64")), order=5)).jaxpr
    assert [e.prim.name for e in series.eqns].count("scan") == (5 if loop_over_result else 1)


def test_custom_vjp() -> None:
    @fx.custom_vjp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.defvjp(lambda x: (f(x), fnp.cos(x)), lambda c, ct: (ct * c,))
    against_nested(f, 0.7)
    g = fx.grad(lambda x: fx.jet(f, (x,), ((np.float64(1.0),),), order=3)[1][2])
    np.testing.assert_allclose(g(np.float64(0.7)), np.sin(0.7) / 6, rtol=1e-13)


def test_custom_vmap() -> None:
    @fx.custom_vmap
    def f(x: Any) -> Any:
        return fnp.sin(x)

    f.def_vmap(lambda size, batched, x: (fnp.sin(x) * 1.0, True))
    against_nested(f, 0.7)
    series = fx.vmap(lambda x: fx.jet(f, (x,), ((np.float64(1.0),),), order=3)[1][2])(np.array([0.7, 0.2]))
    np.testing.assert_allclose(series, -np.cos([0.7, 0.2]) / 6, rtol=1e-13)


# ------------------------------------------------------------------------------------------- other transformations


def test_programs_are_saved(tmp_path: object) -> None:
    program = fx.jet(fx.trace(lambda x: fnp.sin(x) * x, fx.Spec((3,), "float64")), order=3)
    fx.save(program, f"{tmp_path}/series.fx")
    assert fx.load(f"{tmp_path}/series.fx").jaxpr is program.jaxpr


def test_gradient_of_a_series() -> None:
    def third(x: Any) -> Any:
        return fx.jet(lambda x: x**5, (x,), ((np.float64(1.0),),), order=3)[1][2]

    np.testing.assert_allclose(fx.grad(third)(np.float64(2.0)), 10 * 2 * 2.0)


def test_convention_of_jax() -> None:
    def f(x: Any, y: Any) -> dict[str, Any]:
        return {"u": fnp.sin(x) * y}

    xs, ys = (np.float64(0.3), [1.0, 0.5, 0.1]), (np.float64(2.0), [1.0, 2.0, 3.0])
    value, terms = experimental.jet(f, (xs[0], ys[0]), ([np.float64(c) for c in xs[1]], [np.float64(c) for c in ys[1]]))
    scaled = [
        (np.float64(x / math.factorial(k)), np.float64(y / math.factorial(k)))
        for k, (x, y) in enumerate(zip(xs[1], ys[1], strict=True), 1)
    ]
    same, series = fx.jet(f, (xs[0], ys[0]), scaled)
    np.testing.assert_allclose(value["u"], same["u"])
    np.testing.assert_allclose(terms["u"], [math.factorial(k) * c["u"] for k, c in enumerate(series, 1)], rtol=1e-14)
    _, plain = experimental.jet(f, (xs[0], ys[0]), tuple(zip(*scaled, strict=True)), factorial_scaled=False)
    np.testing.assert_allclose(plain["u"], [c["u"] for c in series], rtol=1e-14)


# ----------------------------------------------------------------------------------------------------------- bad input

PROGRAM = fx.trace(lambda x: fnp.sin(x) * 2, fx.Spec((3,)))  # tests of text name the program of sin alone
WRONG: Any = fx.jet  # called with wrong types
ONES = np.ones(3, np.float32)
ORDER = "give the number of coefficients beyond the value; the value itself is that of the function"
GIVEN = "give at least one coefficient, and at most as many as the order; the others are zero"
CALL = "jet(f, (x, y), ((x_1, y_1), (x_2, y_2)))"
Refused = tuple[Callable[[], object], type[Exception], str, str]
REFUSED: dict[str, Refused] = {
    **{
        f"order {order!r}": (
            partial(WRONG, PROGRAM, order=order),
            ArgumentError,
            f"jet: the order is {order!r}, not an int >= 1",
            ORDER,
        )
        for order in (0, -1, 2.0, True, None, "2")
    },
    "order of a function": (
        lambda: fx.jet(fnp.sin, order=0),
        ArgumentError,
        "jet: the order is 0, not an int >= 1",
        ORDER,
    ),
    "no order": (
        lambda: WRONG(fnp.sin, (ONES,), ()),
        ArgumentError,
        "jet: the order is 0, not an int >= 1",
        ORDER,
    ),
    "too many": (
        lambda: fx.jet(fnp.sin, (ONES,), ((ONES,),) * 3, order=2),
        ArgumentError,
        "jet: 3 coefficients are given, and the order is 2",
        GIVEN,
    ),
    "given": (
        lambda: fx.jet(PROGRAM, order=2, given=0),
        ArgumentError,
        "jet: 0 coefficients are given, and the order is 2",
        GIVEN,
    ),
    "given to a function": (
        lambda: WRONG(fnp.sin, order=2, given=1),
        ArgumentError,
        "jet: `given` is for programs",
        "a function takes as many coefficients as it is given",
    ),
    "series": (
        lambda: WRONG(fnp.sin, (ONES,), 1.0),
        ArgumentError,
        "jet: series is 1.0, not a tuple with an entry per order",
        CALL,
    ),
    "coefficient": (
        lambda: WRONG(fnp.sin, (ONES,), (1.0,)),
        ArgumentError,
        "jet: series[0] is a float, not a tuple with an entry per argument",
        CALL,
    ),
    "primals": (
        lambda: WRONG(fnp.sin, 1.0, ((ONES,),)),
        ArgumentError,
        "jet: primals is a float, not a tuple with an entry per argument",
        CALL,
    ),
    "shape": (
        lambda: fx.jet(PROGRAM, order=2)((ONES,), ((ONES,), (ONES[:2],))),
        ShapeError,
        "argument series[1][0] has shape (2,)",
        "series has an entry for each order, with the tree, shapes and dtypes of the arguments",
    ),
    "the convention of JAX": (
        lambda: WRONG(fnp.sin, (ONES,), ([ONES, ONES],)),
        TreeError,
        "argument series is ((*, *),), it was traced as ((*,),)",
        "JAX has an entry for each argument: use fxad.experimental.jet.jet",
    ),
    "integers": (
        lambda: fx.jet(lambda n: n * 2, (1,), ((1,), (1,))),
        TreeError,
        "argument series is ((*,), (*,)), it was traced as ((None,), (None,))",
        "and None for integers and bools",
    ),
    "function": (lambda: WRONG(3, order=2), ArgumentError, "jet: ", "pass the function itself"),
    "lengths": (
        lambda: experimental.jet(fnp.add, (1.0, 2.0), ([1.0], [1.0, 2.0])),
        ArgumentError,
        "jet: the series have the lengths [1, 2]",
        "give as many derivatives of each argument, at least one; the order is their number",
    ),
    "arguments": (
        lambda: experimental.jet(fnp.sin, (1.0,), ()),
        ArgumentError,
        "jet: primals are (1.0,) and series are (), not two sequences of one length",
        "give the list of derivatives of each argument: jet(f, (x, y), ((x_1, x_2), (y_1, y_2)))",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, message, remedy = REFUSED[case]
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert remedy in str(caught.value)


def test_a_primitive_without_a_derivative_is_named_with_its_line() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x)
        return fx.pure_callback(lambda y: y, fx.Spec((), "float64"), y)

    with pytest.raises(NotDifferentiableError) as caught:
        fx.jet(f, (np.float64(1.0),), ((np.float64(1.0),),), order=2)
    message = str(caught.value)
    assert "host_call: <lambda> has no derivative" in message
    assert f"{__file__}:" in message
    assert ".<locals>.f\n" in message
    assert "in a body" not in message


def test_a_marked_integer_operand_is_refused() -> None:
    program = fx.trace(lambda n: n * 2, fx.Spec((), "int32")).jaxpr
    with pytest.raises(NotDifferentiableError, match=r"jet: operand 0 of .* has type i32\[\], which has no tangent"):
        jet(program, ((True, False),))
