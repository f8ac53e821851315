"""Windows, padding and solvers whose parameters are sizes: the law of mask, with gradients before and after mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.errors import SizeError
from fxad.ir import NDArray
from fxad.scipy.sparse import linalg as sparse
from fxad.transforms.specialize import size_names, specialize
from tests.mask.law import BAD, check, check_gradients, operand, padded, part, shape_at
from tests.mask.test_mask import traced

Function = Callable[..., Any]
PADDING = {"n": 4, "m": 3}
SIZES = ({"n": 4, "m": 3}, {"n": 2, "m": 3}, {"n": 0, "m": 0}, {"n": 3, "m": 2})
conv = lax.conv_general_dilated


def two() -> Any:
    return fnp.asarray(2.0, "float32")


def _solved(a: Any, b: Any) -> Any:
    matrix = a @ a.T + 2 * fnp.eye(a.shape[0])

    def solve(matvec: Any, b: Any) -> Any:
        return sparse.cg(matvec, b, tol=1e-6, maxiter=8)[0]

    return lax.custom_linear_solve(lambda x: matrix @ x, b, solve, symmetric=True)


def _root(a: Any) -> Any:
    def solve(f: Any, x: Any) -> Any:
        return lax.fori_loop(0, 30, lambda _, x: x - f(x) / (3 + x * x), x)

    def tangent_solve(g: Any, y: Any) -> Any:
        return y / g(fnp.ones_like(y))

    return lax.custom_root(lambda x: x**3 / 3 + 2 * x - a, a * 0, solve, tangent_solve)


CASES: dict[str, tuple[Function, tuple[str, ...]]] = {
    "same, stride 2": (lambda x, w: conv(x, w, (2,), "SAME"), ("(1, 2, n)", "(4, 2, 3)")),
    "same, stride 3": (lambda x, w: conv(x, w, (3,), "SAME"), ("(2, 2, n>0)", "(4, 2, 4)")),
    "same, a kernel of any size": (lambda x, w: conv(x, w, (2,), "SAME"), ("(1, 2, n)", "(4, 2, m>0)")),
    "valid, stride 2": (lambda x, w: conv(x, w, (2,), "VALID"), ("(1, 2, n)", "(4, 2, 3)")),
    "dilated": (
        lambda x, w: conv(x, w, (2,), [(1, 2)], lhs_dilation=(2,), rhs_dilation=(2,)),
        ("(1, 2, n)", "(4, 2, 3)"),
    ),
    "groups of any size": (
        lambda x, w: conv(x, w, (1,), "SAME", feature_group_count=2),
        ("(1, 2*n, 4)", "(2*m, n, 3)"),
    ),
    "any number of groups": (
        lambda x, w: conv(x, w, (1,), "VALID", feature_group_count=x.shape[1]),
        ("(1, n>0, 4)", "(n, 1, 3)"),
    ),
    "groups of examples": (
        lambda x, w: conv(x, w, (1,), "VALID", batch_group_count=2),
        ("(2*n, 3, 4)", "(2*m, 3, 3)"),
    ),
    "a stride that is a size": (
        lambda x, w, y: conv(x, w, (y.shape[0],), [(1, 1)]),
        ("(1, 2, m+3)", "(4, 2, 3)", "n>0"),
    ),
    "a dilation that is a size": (
        lambda x, w, y: conv(x, w, (1,), [(3, 9)], rhs_dilation=(y.shape[0],)),
        ("(1, 2, m+3)", "(4, 2, 3)", "n>0"),
    ),
    "a base dilation that is a size": (
        lambda x, w, y: conv(x, w, (2,), [(3, 3)], lhs_dilation=(y.shape[0],)),
        ("(1, 2, m+3)", "(4, 2, 3)", "n>0"),
    ),
    "sums, same, stride 2": (lambda x: lax.reduce_window(x, 0.0, lax.add, (3,), (2,), "SAME"), ("n",)),
    "greatest, same, stride 2": (
        lambda x: lax.reduce_window(x, -fnp.inf, lax.max, (3, 2), (2, 2), "SAME"),
        ("(n, m)",),
    ),
    "least, same, stride 2": (lambda x: lax.reduce_window(x, fnp.inf, lax.min, (3,), (2,), "SAME"), ("n",)),
    "sums of all": (lambda x: lax.reduce_window(x, 0.0, lax.add, (x.shape[0], 1), (1, 1), "VALID"), ("(n>0, m)",)),
    "windows of any size": (
        lambda x, y: lax.reduce_window(x, 0.0, lax.add, (y.shape[0],), (2,), "SAME"),
        ("m", "n>0"),
    ),
    "windows, a stride that is a size": (
        lambda x, y: lax.reduce_window(x, 0.0, lax.add, (2,), (y.shape[0],), [(1, 1)]),
        ("m", "n>0"),
    ),
    "pad by sizes": (lambda x: fnp.pad(x, ((x.shape[0], 1), (0, x.shape[1]))), ("(n, m)",)),
    "elements between": (lambda x, y: lax.pad(x, two(), [(1, 2, y.shape[0])]), ("m>0", "n")),
    "elements cut off": (lambda x, y: lax.pad(x, two(), [(-y.shape[0], 0, 1)]), ("n+m", "n")),
    "cut off, between and behind": (
        lambda x, y: lax.pad(x, two(), [(-y.shape[0], y.shape[0], y.shape[0])]),
        ("n+m+1", "n"),
    ),
    "every so many": (lambda x, y: lax.slice(x, (1,), x.shape, (y.shape[0],)), ("m+1", "n>0")),
    "product": (lambda x: fnp.prod(x, (0, 1)), ("(n, 3, m)",)),
    "associative": (lambda x: lax.associative_scan(fnp.add, x), ("(n, 3)",)),
    "associative of pairs": (
        lambda x: lax.associative_scan(
            lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1), axis=1, reverse=True
        ),
        ("(3, n)",),
    ),
    "linear solve": (_solved, ("(n, n)", "n")),
    "root": (_root, ("n",)),
}


def checked(name: str, f: Function, shapes: tuple[str, ...], *, gradients: bool = True) -> None:
    program = traced(f, shapes)
    least = {n.name: n.at_least for n in size_names(program.jaxpr)}
    for k, values in enumerate(SIZES):
        at = {n: max(v, least.get(n, 0)) for n, v in values.items()}
        check(program.jaxpr, PADDING, at, operand, BAD[k % len(BAD)], rtol=1e-3)
        if gradients:
            check_gradients(program.jaxpr, PADDING, at, operand, BAD[(k + 1) % len(BAD)])


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    checked(name, *CASES[name])


BODIES: dict[str, tuple[Function, tuple[str, ...]]] = {
    "one array": (lambda x: lax.reduce(x, 0.0, lambda a, b: a + b + 0 * a * b, (0,)), ("(n, 3)",)),
    "two arrays": (
        lambda x: lax.reduce((x, x * 2), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)),
        ("(n, m)",),
    ),
    "windows": (
        lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b + 0 * a * b, (2, 2), (1, 2), "SAME"),
        ("(n, m)",),
    ),
    "windows of all": (
        lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b + 0 * a * b, (x.shape[0], 1), (1, 1), "VALID"),
        ("(n>0, m)",),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_reductions_by_a_body(name: str) -> None:
    """The initial value must be the identity of the body."""
    checked(name, *BODIES[name], gradients=False)


def test_the_maximum_of_a_window_of_least_values_is_a_valid_element() -> None:
    def f(x: Any) -> Any:
        return fx.grad(lambda x: lax.reduce_window(x, -fnp.inf, lax.max, (3,), (2,), "SAME").sum())(x)

    program = traced(f, ("n>0",)).jaxpr
    for n in (1, 2, 3, 4):
        check(program, {"n": 5}, {"n": n}, lambda _, shape, dtype: np.full(shape, -np.inf, dtype), np.inf)


BEFORE: dict[str, tuple[Function, tuple[str, ...]]] = {
    "same": (lambda x: lax.reduce_window(x, -fnp.inf, lax.max, (3, 2), (2, 2), "SAME"), ("(n>0, m>0)",)),
    "few": (lambda x, y: lax.reduce_window(x, -fnp.inf, lax.max, (3,), (2,), [(y.shape[0], 1)]), ("n+1", "m")),
    "many": (
        lambda x, y: lax.reduce_window(x, -fnp.inf, lax.max, (2, 3), (1, 2), [(2 * y.shape[0], 1), (1, 1)]),
        ("(n+1, 3)", "m"),
    ),
}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", BEFORE)
def test_padding_is_not_selected_before_an_element(name: str, share: float) -> None:
    """Some elements equal the padding value of the window, which is the least value."""
    f, shapes = BEFORE[name]
    program = traced(f, shapes)
    own = [n.name for n in size_names(program.jaxpr)]
    masked: Any = fx.mask(program, padding={n: PADDING[n] for n in own})

    def tangent(f: Function, xs: tuple[Any, ...]) -> Any:
        return fx.jvp(f, xs, tuple([fnp.cos(fnp.maximum(x, -9)) for x in xs]))[1]

    def make(k: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
        x: NDArray = np.asarray(operand(k, shape, dtype).round())
        x[np.random.default_rng(k).random(shape) < share] = -np.inf
        return x

    before = traced(lambda *xs: tangent(f, xs), shapes).jaxpr
    for k, values in enumerate(({"n": 4, "m": 3}, {"n": 1, "m": 1}, {"n": 3, "m": 2})):
        at = {n: values[n] for n in own}
        check(before, PADDING, values, make, BAD[k])
        args = [make(j, shape_at(a, at), a.dtype) for j, a in enumerate(program.in_avals)]
        given = [padded(x, v.shape, np.nan) for x, v in zip(args, masked.in_avals, strict=False)]
        after = fx.trace(lambda *xs, at=at: tangent(lambda *v: masked(*v, sizes=at), xs), *given)
        (want,) = run(specialize(before, tuple(sorted(at.items()))), args)
        np.testing.assert_array_equal(part(fx.interpret(after, *given), want.shape), want)


GREATEST: dict[str, tuple[Function, tuple[str, ...]]] = {
    "a window that is a size": (
        lambda x, y: lax.reduce_window(x, -fnp.inf, lax.max, (y.shape[0],), (2,), "SAME"),
        ("m", "n>0"),
    ),
    "the least of a window of all": (
        lambda x: lax.reduce_window(x, fnp.inf, lax.min, (x.shape[0], 2), (1, 2), "SAME"),
        ("(n>0, m)",),
    ),
    "window and stride": (
        lambda x, y: lax.reduce_window(x, -fnp.inf, lax.max, (y.shape[0], 2), (y.shape[0], 1), "SAME"),
        ("(m+2, 3)", "n>0"),
    ),
    "a dilation": (
        lambda x, y: lax.reduce_window(x, -fnp.inf, lax.max, (2,), (1,), [(1, 6)], window_dilation=(y.shape[0],)),
        ("m", "n>0"),
    ),
    "a stride beside fixed padding": (
        lambda x, y: lax.reduce_window(x, -fnp.inf, lax.max, (2, 2), (1, y.shape[0]), [(0, 0), (0, 2)]),
        ("(m+2, 1)", "n>1"),
    ),
    "a base dilation, and windows without elements": (
        lambda x, y: lax.reduce_window(
            x, -fnp.inf, lax.max, (2, 1), (2, 1), [(y.shape[0], 5), (0, 0)], base_dilation=(y.shape[0], 1)
        ),
        ("(m, 2)", "n>0"),
    ),
}


@pytest.mark.parametrize("made", ["normal", "ties", "nan"])
@pytest.mark.parametrize("name", GREATEST)
def test_the_gradient_of_greatest_elements_of_windows_that_are_sizes(name: str, made: str) -> None:
    """mask of each derivative, and grad(mask(f)), agree with the program at the size."""
    f, shapes = GREATEST[name]
    program = traced(f, shapes).jaxpr
    tangent = traced(lambda *xs: fx.jvp(f, xs, tuple([fnp.cos(x) for x in xs]))[1], shapes).jaxpr
    assert "select_and_gather_add" in str(tangent)

    def make(k: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
        x: Any = operand(k, shape, dtype)
        x = np.round(x) if made == "ties" else x
        return np.where(np.arange(x.size).reshape(shape) % 3 == 1, np.nan, x).astype(dtype) if made == "nan" else x

    least = {n.name: n.at_least for n in size_names(program)}
    for k, values in enumerate((*SIZES, {"n": 3, "m": 0}, {"n": 4, "m": 1})):
        at = {n: max(v, least.get(n, 0)) for n, v in values.items()}
        check(tangent, PADDING, at, make, BAD[k % len(BAD)])
        check_gradients(program, PADDING, at, make, BAD[k % len(BAD)])


@pytest.mark.parametrize("select", ["ge", "le"])
def test_selection_by_integers_in_windows_that_are_sizes(select: str) -> None:
    """Elements that equal the padding value of the window are selected before it."""

    def f(values: Any, x: Any, y: Any) -> Any:
        windows = ((y.shape[0], 2), (1, 2), ((1, 1), (1, 0)))
        gathered = lax.select_and_gather_add(values, x, select, *windows)
        return gathered, lax.select_and_scatter_add(gathered, x, select, *windows)

    xs, y = traced(lambda x, y: (x, y), ("(m+2, 3)", "n>0")).in_avals
    whole = fx.Spec(xs.shape, "int8")
    program = fx.trace(f, whole, whole, fx.Spec(y.shape)).jaxpr

    def make(k: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
        if k == 1:
            return np.random.default_rng(sum(shape)).choice(np.array([-128, 127], dtype), shape)
        return np.arange(100, 100 + np.prod(shape)).astype(dtype).reshape(shape)

    for k, at in enumerate(({"n": 4, "m": 3}, {"n": 1, "m": 0}, {"n": 3, "m": 1})):
        check(program, PADDING, at, make, BAD[k])


def test_the_derivative_of_products_of_windows_of_any_size() -> None:
    program = traced(lambda x: lax.reduce_window(x, 1.0, lax.mul, (x.shape[0],), (1,), "VALID").sum(), ("n>0",))
    with pytest.raises(SizeError) as caught:
        fx.grad(program)
    assert caught.value.message == (
        "reduce_window_prod: the derivative stacks the elements of windows, and (n,) has no value"
    )
    assert caught.value.remedy == "differentiate the masked program, or specialize the program first"
    x = np.array([2, 3, 4, np.nan], "float32")
    gradient = fx.grad(lambda x: fx.mask(program)(x, sizes={"n": 3}))(x)
    np.testing.assert_allclose(gradient, [12, 8, 6, 0])


def test_the_gradient_of_a_convolution_by_an_empty_kernel() -> None:
    def total(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (2,), [(2, 0)], lhs_dilation=(2,), rhs_dilation=(3,))
        return fnp.sin(y).sum()

    specs = [fx.Spec("(3, 2, n)"), fx.Spec("(2, 2, n)")]
    gradient = fx.trace(fx.grad(total, argnums=(0, 1)), *specs)
    x, w = np.ones((3, 2, 0), "float32"), np.ones((2, 2, 0), "float32")
    assert [g.shape for g in fx.specialize(gradient, n=0)(x, w)] == [(3, 2, 0), (2, 2, 0)]
