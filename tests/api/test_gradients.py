"""`grad`, `value_and_grad`, `jacfwd`, `jacrev`, `hessian` on trees, argument numbers, error messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import tree
from fxad.errors import ArgumentError, NotDifferentiableError, ShapeError
from tests.api.refusals import X, refused

Y = np.float32(2)


def product(a: Any, b: Any, c: Any) -> Any:
    return (a * b * c).sum()


def shapes(t: Any) -> Any:
    return tree.map(lambda x: x.shape, t)


def close(a: Any, b: Any) -> None:
    assert tree.structure(a) == tree.structure(b)
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ argnums


@pytest.mark.parametrize("argnums", [0, 1, -1, (0, 2), (2, 0), [1, -1], (), (1,)], ids=str)
def test_argnums(argnums: Any) -> None:
    parts = [2 * X, np.float32(5), 2 * X]
    expected = parts[argnums] if isinstance(argnums, int) else tuple([parts[k] for k in argnums])
    program = fx.trace(product, X, Y, X)
    functions: list[Any] = [product, program]
    for f in functions:
        close(fx.grad(f, argnums=argnums)(X, Y, X), expected)
        close(fx.value_and_grad(f, argnums=argnums)(X, Y, X), (np.float32(10), expected))
        close(fx.jacfwd(f, argnums=argnums)(X, Y, X), expected)
        close(fx.jacrev(f, argnums=argnums)(X, Y, X), expected)


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacfwd", "jacrev", "hessian"])
@pytest.mark.parametrize(
    ("argnums", "message"),
    [
        (3, "argnums 3 does not fit product, which was given 3 positional arguments"),
        (-4, "argnums -4 does not fit product, which was given 3 positional arguments"),
        ((0, 5), "argnums (0, 5) does not fit product, which was given 3 positional arguments"),
        ((0, 0), "argnums (0, 0) names an argument twice"),
        ((0, -3), "argnums (0, -3) names an argument twice"),
        ("a", "argnums is 'a', not an int or a sequence of ints"),
        (None, "argnums is None, not an int or a sequence of ints"),
        (1.0, "argnums is 1.0, not an int or a sequence of ints"),
        (True, "argnums is True, not an int or a sequence of ints"),
        ((0, (1,)), "argnums is (0, (1,)), not an int or a sequence of ints"),
    ],
)
def test_wrong_argnums(name: str, argnums: Any, message: str) -> None:
    refused(lambda: getattr(fx, name)(product, argnums=argnums)(X, Y, X), ArgumentError, f"{name}: {message}")


def test_a_keyword_argument_has_no_number() -> None:
    e = refused(
        lambda: fx.grad(product)(a=X, b=Y, c=X),  # type: ignore[call-arg]
        ArgumentError,
        "grad: argnums 0 does not fit product, which was given 0 positional arguments",
    )
    assert e.remedy == "pass what is to be chosen by position: keyword arguments have no number"


# ------------------------------------------------------------------------------------------------------------- has_aux


def test_auxiliary_results() -> None:
    def f(a: Any, i: Any) -> Any:
        return (a**3).sum(), {"next": i + 1, "a": a}

    aux = {"next": np.int32(4), "a": X}
    program = fx.trace(f, X, 3)
    for g in (f, program):
        close(fx.grad(g, has_aux=True)(X, 3), (3 * X**2, aux))
        close(fx.value_and_grad(g, has_aux=True)(X, 3), ((np.float32(9), aux), 3 * X**2))
        close(fx.jacfwd(g, has_aux=True)(X, 3), (3 * X**2, aux))
        close(fx.jacrev(g, has_aux=True)(X, 3), (3 * X**2, aux))
        close(fx.hessian(g, has_aux=True)(X, 3), (np.diag(6 * X), aux))


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacfwd", "jacrev"])
@pytest.mark.parametrize(
    ("f", "returns"),
    [(lambda x: x.sum(), "*"), (lambda x: [x.sum(), x], "[*, *]"), (lambda x: (x.sum(), x, x), "(*, *, *)")],
)
def test_has_aux_wants_a_pair(name: str, f: Callable[[Any], Any], returns: str) -> None:
    message = f"{name}: has_aux=True, but <lambda> returns {returns}"
    refused(lambda: getattr(fx, name)(f, has_aux=True)(X), ArgumentError, message)


# ---------------------------------------------------------------------------------------- what cannot be differentiated


REFUSED: list[tuple[Callable[[Any], Any], Any, type[Any], str]] = [
    (lambda x: x * 2, X, ShapeError, "grad: <lambda> returns f32[3], not a scalar"),
    (lambda x: (x.sum(), x), X, ShapeError, "grad: <lambda> returns (*, *), not a single scalar"),
    (lambda x: None, X, ShapeError, "grad: <lambda> returns None, not a single scalar"),
    (lambda x: [x.sum()], X, ShapeError, "grad: <lambda> returns [*], not a single scalar"),
    (
        lambda x: x.sum().astype("int32"),
        X,
        NotDifferentiableError,
        "grad: <lambda> returns i32[], not a real floating scalar",
    ),
    (lambda x: x.sum() > 0, X, NotDifferentiableError, "grad: <lambda> returns bool[], not a real floating scalar"),
    (lambda x: (x * 1j).sum(), X, NotDifferentiableError, "grad: <lambda> returns c64[], not a real floating scalar"),
    (lambda x: x * 1.5, 3, NotDifferentiableError, "grad: argument x of <lambda> has type i32[], not real floating"),
    (
        lambda x: x["i"] * 1.5,
        {"i": True},
        NotDifferentiableError,
        "grad: argument x['i'] of <lambda> has type bool[], not real floating",
    ),
]


@pytest.mark.parametrize(("f", "x", "error", "message"), REFUSED, ids=range(len(REFUSED)))
def test_functions_without_a_gradient(f: Callable[[Any], Any], x: Any, error: type[Any], message: str) -> None:
    refused(lambda: fx.grad(f)(x), error, message)
    refused(lambda: fx.grad(fx.trace(f, x)), error, message)


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
def test_functions_without_a_jacobian(name: str) -> None:
    refused(
        lambda: getattr(fx, name)(lambda x: {"a": x, "n": 3})(X),
        NotDifferentiableError,
        f"{name}: result['n'] of <lambda> has type i32[], not real floating",
    )


def test_constants_have_zero_derivatives() -> None:
    assert fx.grad(lambda x: fx.asarray(3.0))(X).tolist() == [0, 0, 0]
    close(fx.jacfwd(lambda x: (3.0, x))(X), (0 * X, np.eye(3, dtype=np.float32)))
    close(fx.jacrev(lambda x: (3.0, x))(X), (0 * X, np.eye(3, dtype=np.float32)))
    close(fx.jacrev(lambda a, b: a, argnums=1)(X, X), np.zeros((3, 3), np.float32))


# ------------------------------------------------------------------------------------------------------------ trees


PARAMS: dict[str, Any] = {"w": X, "b": Y}


def model(p: Any) -> Any:
    return {"u": fnp.sin(p["w"]) * p["b"], "v": (p["b"] * 2, p["w"].sum())}


def test_jacobians_of_trees_of_trees() -> None:
    block = {"b": (), "w": (3,)}
    found = fx.jacfwd(model)(PARAMS)
    assert shapes(found) == {"u": {"b": (3,), "w": (3, 3)}, "v": (block, block)}
    close(found, fx.jacrev(model)(PARAMS))
    close(found["u"]["w"], np.diag(np.cos(X) * 2))
    close(fx.jit(fx.jacfwd(model))(PARAMS), found)
    close(fx.jacrev(fx.trace(model, PARAMS))(PARAMS), found)


def test_hessians_of_trees() -> None:
    found = fx.hessian(lambda p: (p["w"] ** 3).sum() * p["b"])(PARAMS)
    close(found["w"]["w"], np.diag(12 * X))
    close(found["w"]["b"], 3 * X**2)
    close(found["b"], {"b": np.float32(0), "w": 3 * X**2})
    assert shapes(fx.hessian(lambda a, b: (a * b).sum(), argnums=(0, 1))(X, X)) == (((3, 3), (3, 3)),) * 2


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
def test_jacobians_of_nothing_and_of_other_dtypes(name: str) -> None:
    jac = getattr(fx, name)
    assert jac(lambda x: x * 2)(np.zeros((0,), np.float32)).shape == (0, 0)
    assert jac(lambda x: x * 2)(X.astype(np.float16)).dtype == np.float16
    mixed = jac(lambda a, b: a.astype("float64") * b, argnums=(0, 1))(X, X.astype(np.float64))
    for part in mixed:
        np.testing.assert_array_equal(part, np.diag(X))


# ------------------------------------------------------------------------------------------------------------- stacks


def third(x: Any) -> Any:
    return (x**3).sum()


def compiled(program: Any) -> Any:
    return fx.lower(program).compile()


STACKS: dict[str, Callable[[], Any]] = {
    "jit of grad": lambda: fx.jit(fx.grad(third))(X),
    "grad of jit": lambda: fx.grad(fx.jit(third))(X),
    "grad of remat": lambda: fx.grad(fx.remat(third))(X),
    "remat of grad": lambda: fx.remat(fx.grad(third))(X),
    "grad of remat of jit of remat": lambda: fx.grad(fx.remat(fx.jit(fx.remat(third))))(X),
    "vmap of grad": lambda: fx.vmap(fx.grad(third), in_axes=None, out_axes=None, axis_size=2)(X),
    "grad of vmap": lambda: fx.grad(lambda x: fx.vmap(lambda y: y**3)(x).sum())(X),
    "program": lambda: fx.grad(fx.remat(fx.trace(third, X)))(X),
    "compiled": lambda: compiled(fx.grad(fx.remat(fx.trace(third, X))))(X),
    "dce cse simplify inline": lambda: fx.dce(fx.cse(fx.simplify(fx.inline(fx.grad(fx.jit(third))))))(X),
    "jacfwd": lambda: fx.jacfwd(third)(X),
    "jacrev of grad's integral": lambda: fx.jacrev(lambda x: fx.grad(lambda s: third(s * x))(np.float32(1)) / 3)(X),
    "jvp": lambda: fx.vmap(lambda e: fx.jvp(third, (X,), (e,))[1])(np.eye(3, dtype=np.float32)),
    "vjp": lambda: fx.vjp(third, X)[1](np.float32(1))[0],
    "diagonal of a hessian": lambda: (
        fx.grad(lambda x: (fx.hessian(third)(x) * np.eye(3, dtype=np.float32)).sum())(X) * X**2 / 2
    ),
}


@pytest.mark.parametrize("stack", STACKS)
def test_stacks(stack: str) -> None:
    np.testing.assert_allclose(STACKS[stack](), 3 * X**2, rtol=1e-5)


def test_grad_of_grad_of_vmap_of_remat_of_jit() -> None:
    f = fx.grad(fx.grad(lambda s: fx.vmap(fx.remat(fx.jit(lambda t: fnp.sin(t) * t)))(s * X).sum()))
    expected = sum([2 * k * k * np.cos(2 * k) - 2 * k**3 * np.sin(2 * k) for k in (0.0, 1.0, 2.0)])
    np.testing.assert_allclose(f(Y), expected, rtol=1e-5)
    np.testing.assert_allclose(fx.jit(f)(Y), expected, rtol=1e-5)


def test_a_program_is_transformed_once_by_value() -> None:
    one, other = fx.trace(third, X), fx.trace(lambda x: (x**3).sum(), X)
    assert fx.grad(one).jaxpr is fx.grad(other).jaxpr
    names: Sequence[str] = [fx.grad(one).name, fx.hessian(one).name, fx.vmap(one, axis_size=2).name]
    assert names == ["grad_third", "jacfwd_jacrev_third", "vmap_third"]
