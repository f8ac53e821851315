"""Differential operators: values, cost, estimates, bad input."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import numpy as fnp
from fxad.api.operator_programs import along_directions
from fxad.errors import ArgumentError, NotDifferentiableError, ParameterError, ShapeError, TreeError
from fxad.ir import distinct_jaxprs

WRONG: Any = fx.laplacian  # called with wrong types
WRONG_OPERATOR: Any = fx.operator
RNG = np.random.default_rng(3)
WEIGHTS = [RNG.normal(size=s) / 2 for s in ((3, 6), (6, 6), (6, 2))]
X = RNG.normal(size=3)


def mlp(x: Any) -> Any:
    for w in WEIGHTS[:-1]:
        x = fnp.tanh(x @ w + 0.1)
    return x @ WEIGHTS[-1]


def scalar(x: Any) -> Any:
    return (mlp(x) * fnp.array([1.0, 2.0])).sum()


def squares(x: Any) -> Any:
    return (x["a"] ** 2).sum() + (x["b"] ** 2).sum()


def plain(x: Any) -> Any:
    return fnp.exp(x[0] * x[1]) * fnp.sin(x[2]) + x[0] ** 4


def attention(x: Any) -> Any:
    """A small transformer block over (electrons, 3)."""
    h = x @ fnp.asarray(WEIGHTS[0])
    h = h + fx.nn.softmax(h @ h.T / 3.0) @ h
    h = (h - h.mean(-1, keepdims=True)) / fnp.sqrt(h.var(-1, keepdims=True) + 1e-3)
    return fnp.linalg.slogdet(fx.nn.gelu(h @ fnp.asarray(WEIGHTS[1]))[:, :2] @ fnp.ones((2, 4)) + fnp.eye(4))[1]


def interpreted(transform: Callable[..., Any], f: Callable[..., Any], x: Any) -> Any:
    """The value of a transformed function, without a compilation."""
    return fx.interpret(transform(fx.trace(f, x)), x)


def test_laplacian_is_the_trace_of_the_hessian() -> None:
    hessians = interpreted(fx.hessian, mlp, X)
    want = np.trace(np.asarray(hessians), axis1=1, axis2=2)
    np.testing.assert_allclose(fx.laplacian(mlp)(X), want, rtol=1e-12)
    value, found = interpreted(fx.value_and_laplacian, mlp, X)
    np.testing.assert_allclose(found, want, rtol=1e-12)
    np.testing.assert_allclose(value, mlp(X), rtol=1e-14)


def test_laplacian_of_a_program_is_a_program() -> None:
    program = fx.trace(mlp, fx.Spec((3,), "float64"))
    np.testing.assert_array_equal(fx.laplacian(program)(X), fx.laplacian(mlp)(X))
    assert fx.laplacian(program).jaxpr is fx.laplacian(program).jaxpr


@pytest.mark.parametrize("weights", [np.array([1.0, -2.0, 0.5]), np.array([3.0, 3.0, 3.0])])
def test_weights(weights: np.ndarray) -> None:
    want = np.asarray(interpreted(fx.hessian, mlp, X)).diagonal(axis1=1, axis2=2) @ weights
    np.testing.assert_allclose(interpreted(lambda p: fx.laplacian(p, weights=weights), mlp, X), want, rtol=1e-11)
    np.testing.assert_allclose(fx.jit(lambda x, w: fx.laplacian(mlp, weights=w)(x))(X, weights), want, rtol=1e-11)


def test_several_arguments_and_trees() -> None:
    def f(parts: dict[str, Any], s: Any, n: int = 2) -> Any:
        return fnp.sin(parts["a"] @ parts["b"]) * s**n + (parts["b"] ** 3).sum() * fnp.exp(s)

    parts, s = {"a": X, "b": X[::-1].copy()}, np.float64(0.7)
    program = fx.trace(f, parts, s)
    of_parts, of_both, of_s = [fx.interpret(fx.laplacian(program, k), parts, s) for k in (0, (0, 1), 1)]
    v = np.concatenate([X, X[::-1], [s]])
    h = interpreted(fx.hessian, lambda v: f({"a": v[:3], "b": v[3:6]}, v[6]), v)
    np.testing.assert_allclose(of_parts, np.trace(h[:6, :6]), rtol=1e-12)
    np.testing.assert_allclose(of_both, np.trace(h), rtol=1e-12)
    np.testing.assert_allclose(of_s, h[6, 6], rtol=1e-12)


def test_of_a_matrix_and_of_lists_of_results() -> None:
    x = RNG.normal(size=(4, 3))
    want = np.trace(interpreted(fx.hessian, lambda v: attention(v.reshape(4, 3)), x.reshape(-1)))
    np.testing.assert_allclose(interpreted(fx.laplacian, attention, x), want, rtol=1e-9)
    both = fx.laplacian(lambda x: {"u": scalar(x), "v": [x[0] ** 2, x[1] * 2.0]})(X)
    np.testing.assert_allclose([both["v"][0], both["v"][1]], [2.0, 0.0])


def test_harmonic_polynomials_have_the_laplacian_zero() -> None:
    harmonic: list[Callable[..., Any]] = [
        lambda x: x[0] ** 2 + x[1] ** 2 - 2 * x[2] ** 2,
        lambda x: x[0] * x[1] * x[2],
        lambda x: x[0] ** 3 - 3 * x[0] * x[1] ** 2,
        lambda x: 3.0 * x[0] - x[2],
    ]
    for f in harmonic:
        assert float(fx.laplacian(f)(np.array([1.0, 2.0, -3.0]))) == 0.0


def test_biharmonic() -> None:
    want = interpreted(lambda p: fx.laplacian(fx.laplacian(p)), scalar, X)
    np.testing.assert_allclose(interpreted(fx.biharmonic, scalar, X), want, rtol=1e-11)
    value, found = interpreted(fx.value_and_biharmonic, scalar, X)
    np.testing.assert_allclose((value, found), (scalar(X), want), rtol=1e-11)
    assert float(fx.biharmonic(lambda x: (x**2).sum() * x[0])(X)) == 0.0
    np.testing.assert_allclose(fx.biharmonic(lambda x: (x**2).sum() ** 2)(X), 8 * 3 * 5, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_biharmonic_in_several_dimensions(n: int) -> None:
    """Along directions or as two Laplacians, whichever carries less: beside the operator that it is."""

    def f(x: Any, s: Any) -> dict[str, Any]:
        return {"u": fnp.sin(x["a"] @ w) * s, "v": (x["a"] ** 2).sum() ** 2}

    w = fnp.asarray(RNG.normal(size=(n, 2)))
    x, s = {"a": RNG.normal(size=n)}, np.float64(1.5)
    unit = np.eye(n, dtype=int)
    terms = {tuple(map(int, 2 * (unit[i] + unit[j]))): 1.0 if i == j else 2.0 for j in range(n) for i in range(j + 1)}
    program = fx.trace(f, x, s)
    want = fx.interpret(fx.operator(program, terms), x, s)
    value, found = fx.interpret(fx.value_and_biharmonic(program), x, s)
    alone = fx.interpret(fx.biharmonic(program), x, s)
    for name in ("u", "v"):
        np.testing.assert_allclose(found[name], want[name], rtol=1e-9)
        np.testing.assert_allclose(alone[name], want[name], rtol=1e-9)
        np.testing.assert_allclose(value[name], f(x, s)[name], rtol=1e-12)


def partial_derivative(f: Callable[..., Any], i: int) -> Callable[..., Any]:
    return lambda x: fx.grad(f)(x)[i]


def nested(f: Callable[..., Any], index: tuple[int, ...]) -> Callable[..., Any]:
    for i, power in enumerate(index):
        for _ in range(power):
            f = partial_derivative(f, i)
    return f


@pytest.mark.parametrize("index", [(1, 1, 1), (2, 1, 0), (0, 3, 0), (1, 0, 0), (2, 2, 0), (1, 1, 2)])
def test_mixed_derivatives(index: tuple[int, ...]) -> None:
    found = interpreted(lambda p: fx.operator(p, {index: 1.0}), scalar, X)
    np.testing.assert_allclose(found, fx.interpret(fx.trace(nested(scalar, index), X), X), rtol=1e-10)


def test_operator_with_varying_coefficients() -> None:
    terms: dict[Any, Any] = {
        (2, 0, 0): 1.5,
        (1, 1, 0): lambda x: fnp.sin(x[0]),
        (0, 0, 1): np.float64(2.0),
        (0, 0, 0): lambda x: x[2],
    }
    h, g = interpreted(fx.hessian, scalar, X), interpreted(fx.grad, scalar, X)
    want = 1.5 * h[0, 0] + np.sin(X[0]) * h[0, 1] + 2.0 * g[2] + X[2] * scalar(X)
    value, found = interpreted(lambda p: fx.value_and_operator(p, terms), scalar, X)
    np.testing.assert_allclose((value, found), (scalar(X), want), rtol=1e-12)
    np.testing.assert_allclose(fx.operator(lambda x: x**3, {2: 1.0})(np.float64(2.0)), 12.0)
    np.testing.assert_allclose(fx.operator(scalar, {(0, 0, 0): 3.0})(X), 3 * scalar(X))


@pytest.mark.parametrize("nu", [0.5, np.float64(0.5), np.array([0.5]), fnp.asarray(0.5)])
def test_coefficients_take_the_arguments_as_they_are_given(nu: Any) -> None:
    """Numbers and arrays of NumPy too, which are no operands of the program."""

    def u(x: Any, nu: Any, *, scale: float) -> Any:
        return (x**3).sum() * fnp.sum(nu) * scale

    terms: dict[Any, Any] = {(0, 2, 0): lambda x, nu, scale: fnp.sum(nu) * scale * x[0], (1, 0, 0): 1.0}
    want = 0.5 * 2.0 * X[0] * 6 * X[1] + 3 * X[0] ** 2
    np.testing.assert_allclose(fx.operator(u, terms)(X, nu, scale=2.0), want, rtol=1e-6)
    np.testing.assert_allclose(fx.jit(lambda x: fx.operator(u, terms)(x, nu, scale=2.0))(X), want, rtol=1e-6)


def test_coefficients_of_a_program() -> None:
    terms: dict[Any, Any] = {(2, 0, 0): lambda x: x[1], (0, 0, 1): 2.0}
    program = fx.operator(fx.trace(scalar, X), terms)
    np.testing.assert_allclose(fx.interpret(program, X), fx.operator(scalar, terms)(X), rtol=1e-13)
    gradient, step = fx.interpret(fx.grad(program), X), 1e-5 * np.eye(3)
    differences = [(fx.interpret(program, X + e) - fx.interpret(program, X - e)) / 2e-5 for e in step]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)


def test_the_value_is_computed_once() -> None:
    """By one pass with the derivatives, of whatever orders."""
    terms = {(2, 0, 0): 1.0, (1, 1, 1): 0.5, (0, 4, 0): 2.0}
    operators: list[Callable[..., Any]] = [
        fx.value_and_laplacian,
        fx.value_and_biharmonic,
        lambda f: fx.value_and_operator(f, terms),
    ]
    for operator in operators:
        program = fx.inline(fx.trace(operator(scalar), X))
        assert [e.prim.name for e in program.jaxpr.eqns].count("tanh") == 2


def test_estimates_of_an_operator_have_no_bias() -> None:
    terms: dict[Any, Any] = {(2, 0, 0): lambda x: x[1], (1, 1, 0): 2.0, (0, 0, 1): 1.0, (0, 0, 0): 3.0}
    keys = fx.random.split(fx.random.key(3), 4000)
    exact = float(interpreted(lambda p: fx.operator(p, terms), plain, X))
    estimates = fx.vmap(
        lambda k: (
            fx.operator(plain, terms, samples=2, key=k)(X),
            fx.value_and_operator(plain, terms, samples=2, key=k)(X)[1],
        )
    )(keys)
    for drawn in map(np.asarray, estimates):
        assert abs(drawn.mean() - exact) < 4 * drawn.std() / np.sqrt(len(keys))
        assert drawn.std() > 0


def test_polarisation_is_exact_on_monomials() -> None:
    """The derivative of x^a of multi-index a is a!, and of any other monomial of that degree it is 0."""
    for index in [(3,), (1, 1), (2, 1), (2, 2), (3, 1), (1, 1, 1), (2, 1, 1), (4, 2)]:
        order = sum(index)
        directions = along_directions(tuple(enumerate(index)))
        for monomial in product(range(order + 1), repeat=len(index)):
            if sum(monomial) == order:
                values = [
                    w * np.prod([dict(v).get(i, 0) ** p for i, p in enumerate(monomial)]) for v, w in directions.items()
                ]
                want = np.prod([np.prod(range(1, p + 1)) for p in index]) if monomial == index else 0.0
                assert sum(values) == want, (index, monomial)


def test_composes_with_other_transformations() -> None:
    laplacian = fx.laplacian(plain)
    xs = np.stack([X, 2 * X])
    np.testing.assert_allclose(fx.vmap(laplacian)(xs), [laplacian(x) for x in xs], rtol=1e-12)
    gradient = fx.grad(laplacian)(X)
    step = 1e-5 * np.eye(3)
    differences = [(laplacian(X + e) - laplacian(X - e)) / 2e-5 for e in step]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)
    np.testing.assert_allclose(fx.jit(fx.remat(laplacian))(X), laplacian(X), rtol=1e-12)


def test_gradient_in_parameters_of_a_loss() -> None:
    """As in networks for differential equations: u_xx + u_yy is differentiated in reverse mode."""

    def u(w: Any, x: Any) -> Any:
        return fnp.sin(x @ w).sum()

    def loss(w: Any) -> Any:
        return fx.vmap(lambda x: fx.operator(u, {(2, 0): 1.0, (0, 2): 1.0}, 1)(w, x) ** 2)(points).sum()

    points, w = RNG.normal(size=(5, 2)), RNG.normal(size=(2, 4))

    def exact(w: Any) -> Any:
        return ((-fnp.sin(points @ w) * (w**2).sum(0)).sum(1) ** 2).sum()

    np.testing.assert_allclose(fx.grad(loss)(w), fx.grad(exact)(w), rtol=1e-11)


def sizes(program: fx.Program[..., object], name: str) -> list[tuple[int, ...]]:
    return [e.outs[0].aval.shape for body in distinct_jaxprs(program.jaxpr) for e in body.eqns if e.prim.name == name]


def test_weights_of_nothing() -> None:
    with pytest.raises(ShapeError, match=r"weights is f64\[2\], the argument is f64\[0\]"):
        fx.laplacian(lambda x: x.sum(), weights=np.ones(2))(np.zeros(0))


def test_the_last_coefficient_is_carried_once() -> None:
    """The forward Laplacian: of three products per layer, one has all directions."""
    w = fnp.asarray(RNG.normal(size=(8, 8)))

    def f(x: Any) -> Any:
        for _ in range(3):
            x = fnp.tanh(x @ w)
        return x

    program = fx.laplacian(fx.trace(f, fx.Spec((8,), "float64")))
    shapes = sizes(program, "dot_general")
    # the second derivative of the first product is zero, and its first ones are the matrix
    assert sorted(shapes) == [(8,)] * 5 + [(8, 8)] * 2


def test_temporaries_of_the_forward_laplacian() -> None:
    w = fnp.asarray(RNG.normal(size=(64, 64)) / 8)

    def f(x: Any) -> Any:
        for _ in range(3):
            x = fnp.tanh(x @ w)
        return x.sum()

    def trace(x: Any) -> Any:
        return fnp.trace(fx.hessian(f)(x))

    x = np.zeros((16, 64))
    collapsed, hessian = [
        fx.lower(fx.trace(fx.vmap(g), x)).compile().memory().temp_bytes for g in (fx.laplacian(f), trace)
    ]
    assert collapsed <= hessian


def test_estimates_have_no_bias() -> None:
    keys = fx.random.split(fx.random.PRNGKey(0), 4000)
    second, fourth = [float(interpreted(operator, plain, X)) for operator in (fx.laplacian, fx.biharmonic)]
    estimates = fx.vmap(
        lambda k: (
            fx.laplacian(plain, samples=1, key=k)(X),
            fx.laplacian(plain, weights=np.ones(3), samples=1, key=k)(X),
            fx.biharmonic(plain, samples=3, key=k)(X),
        )
    )(keys)
    for drawn, exact in zip(map(np.asarray, estimates), (second, second, fourth), strict=True):
        assert abs(drawn.mean() - exact) < 4 * drawn.std() / np.sqrt(len(keys)) + 1e-12
        assert drawn.std() > 0
    # as many as there are directions
    assert float(interpreted(lambda p: fx.laplacian(p, samples=3, key=keys[0]), plain, X)) == second


def test_loops_branches_and_unusual_arguments() -> None:
    ws = RNG.normal(size=(3, 3, 3))

    def looped(x: Any) -> Any:
        return fx.lax.scan(lambda c, w: (fnp.tanh(c @ w), None), x, ws)[0].sum()

    def branched(x: Any) -> Any:
        return fx.lax.cond(x[0] > 0, looped, lambda x: (x**2).sum(), x)

    want = np.trace(interpreted(fx.hessian, looped, X))
    for f in (looped, fx.remat(looped), fx.jit(looped)):
        np.testing.assert_allclose(interpreted(fx.laplacian, f, X), want, rtol=1e-11)
    for x in (abs(X), -abs(X)):
        want = np.trace(interpreted(fx.hessian, branched, x))
        np.testing.assert_allclose(interpreted(fx.laplacian, branched, x), want, rtol=1e-11)
    assert float(fx.laplacian(lambda x: x.sum())(np.zeros((0,)))) == 0.0
    assert fx.laplacian(lambda x: x**3)(np.float32(2)).dtype == np.float32
    assert float(fx.laplacian(lambda x: x**3)(2.0)) == 12.0
    assert float(fx.biharmonic(lambda x: x**4)(2.0)) == 24.0
    assert float(fx.biharmonic(lambda x: x.sum())(np.zeros((0,)))) == 0.0
    np.testing.assert_allclose(fx.laplacian(lambda x, *, k: (x**k).sum())(X, k=3), 6 * X.sum())
    np.testing.assert_allclose(fx.laplacian(lambda x, y: (x**2 * y).sum(), -1)(X, X), 0.0)


def test_symbolic_sizes() -> None:
    f = fx.laplacian(lambda x: fnp.sin(x).sum() * x.sum())
    np.testing.assert_allclose(fx.jit(f, symbolic="(n,)")(X), f(X), rtol=1e-12)


def test_relu_has_the_derivatives_of_its_pieces() -> None:
    assert float(fx.laplacian(lambda x: (fx.nn.relu(x) ** 2).sum())(np.array([1.0, -1.0, 2.0]))) == 4.0
    assert float(fx.laplacian(lambda x: fx.nn.relu(x).sum())(np.array([1.0, -1.0, 2.0]))) == 0.0


REAL = "convert it to floating point, or differentiate a part of it: jet takes complex curves"
BY_ELEMENT = "give a weight for each element of the argument, in its tree and shape"
INDEX = "a multi-index is a tuple of ints >= 0, the order of the derivative in each element of the argument"
BOTH = "an estimate takes both: samples=16, key=key"
KEY = fx.random.PRNGKey(0)
Refused = tuple[Callable[[], object], type[Exception], str, str]
REFUSED: dict[str, Refused] = {
    "integers": (
        lambda: fx.laplacian(scalar)(np.arange(3)),
        NotDifferentiableError,
        "laplacian: argument x of scalar has type i64[3], not real floating",
        REAL,
    ),
    "complex": (
        lambda: fx.laplacian(lambda x: (x * x).sum())(X + 1j),
        NotDifferentiableError,
        "has type c128[3], not real floating",
        REAL,
    ),
    "result": (
        lambda: fx.laplacian(fnp.argmax)(X),
        NotDifferentiableError,
        "laplacian: result of argmax has type i32[], not real floating",
        REAL,
    ),
    "weights": (
        lambda: fx.laplacian(scalar, weights=np.ones(2))(X),
        ShapeError,
        "laplacian: weights is f64[2], the argument is f64[3]",
        BY_ELEMENT,
    ),
    "weights of another shape": (  # with as many elements
        lambda: fx.laplacian(squares, weights={"a": X, "b": np.ones((3, 2))})({"a": X, "b": np.ones((2, 3))}),
        ShapeError,
        "laplacian: weights['b'] is f64[3,2], the argument is f64[2,3]",
        BY_ELEMENT,
    ),
    "weights of another tree": (  # with leaves of the same shapes
        lambda: fx.value_and_laplacian(squares, weights=(X, X))({"a": X, "b": X}),
        TreeError,
        "value_and_laplacian: the weights are (*, *), what is differentiated is {'a': *, 'b': *}",
        BY_ELEMENT,
    ),
    "length": (
        lambda: fx.operator(scalar, {(1, 1): 1.0})(X),
        ArgumentError,
        "operator: the multi-index (1, 1) has 2 entries, the argument has 3 elements",
        "give the order of the derivative in each element of the argument",
    ),
    "negative": (
        lambda: fx.operator(scalar, {(1, -1, 0): 1.0})(X),
        ArgumentError,
        "operator: (1, -1, 0) is no multi-index",
        INDEX,
    ),
    "not an int": (
        lambda: fx.operator(scalar, {(1.0, 0, 0): 1.0})(X),
        ArgumentError,
        "operator: (1.0, 0, 0) is no multi-index",
        INDEX,
    ),
    "text": (lambda: fx.operator(scalar, {"xx": 1.0})(X), ArgumentError, "operator: 'xx' is no multi-index", INDEX),
    "twice": (
        lambda: fx.operator(lambda x: x * x, {2: 1.0, (2,): 2.0})(1.5),
        ArgumentError,
        "operator: (2, (2,)) name one derivative twice",
        "give the sum of its coefficients",
    ),
    "no terms": (
        lambda: fx.operator(scalar, {})(X),
        ArgumentError,
        "operator: the terms are {}, not a dict of multi-indices",
        "give the coefficient of each derivative: {(2, 0): 1.0, (0, 2): 1.0} is u_xx + u_yy",
    ),
    "coefficient": (
        lambda: WRONG_OPERATOR(scalar, {(1, 1, 0): "a"})(X),
        ArgumentError,
        "operator: the coefficient of (1, 1, 0) is 'a', not a real number",
        "a coefficient is a number, or a function of the arguments that gives one; vmap the operator over points",
    ),
    "samples": (
        lambda: fx.laplacian(scalar, samples=3)(X),
        ArgumentError,
        "laplacian: samples is given alone",
        BOTH,
    ),
    "key": (lambda: fx.biharmonic(scalar, key=KEY)(X), ArgumentError, "biharmonic: a key is given alone", BOTH),
    "no samples": (
        lambda: fx.laplacian(scalar, samples=0, key=KEY)(X),
        ParameterError,
        "laplacian: samples is 0, less than 1",
        "give an int from 1 on",
    ),
    "argnums": (
        lambda: fx.laplacian(scalar, 1)(X),
        ArgumentError,
        "laplacian: argnums 1 does not fit scalar",
        "pass what is to be chosen by position",
    ),
    "function": (lambda: WRONG(3), ArgumentError, "laplacian: ", "pass the function itself"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, message, remedy = REFUSED[case]
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert remedy in str(caught.value)
