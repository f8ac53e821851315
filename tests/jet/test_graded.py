"""Operators by rows for monomials: products of rows, the values that are carried, derivatives beside nested ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement, product
from math import prod
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import lax, numpy as fnp
from fxad.api import operator_programs
from fxad.transforms.jet.graded import Grading, Monomial, _RowSum, _squared, divisors, factorials, product_of

RNG = np.random.default_rng(8)


def monomials(n: int, degree: int) -> list[Monomial]:
    return list(combinations_with_replacement(range(n), degree))


def biharmonic(n: int) -> list[Monomial]:
    return [(i, i, j, j) for i in range(n) for j in range(i, n)]


# The terms of operators, and the rows of each degree from 1 on.
OPERATORS: dict[str, tuple[list[Monomial], list[int]]] = {
    "Laplacian": ([(i, i) for i in range(4)], [4, 1]),
    "of second order": (monomials(4, 2), [4, 1]),
    "one mixed derivative": ([(0, 1)], [2, 1]),
    "of third order": (monomials(3, 3), [3, 3, 1]),
    "biharmonic, 5": (biharmonic(5), [5, 15, 5, 1]),
    "biharmonic, 2": (biharmonic(2), [2, 3, 2, 1]),
    "of fourth order": (monomials(3, 4), [3, 6, 3, 1]),
    "of fifth order": (monomials(2, 5), [2, 3, 3, 2, 1]),
    "one term": ([(0, 0, 1, 2)], [3, 4, 3, 1]),
    "of several orders": ([(0, 0, 1, 1), (0, 0, 0, 0), (1, 1), (0,)], [2, 3, 2, 1]),
    "odd and even": ([(0, 0, 1, 1), (0, 1, 1), (1, 1, 1)], [2, 3, 3, 1]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_rows_that_are_carried(name: str) -> None:
    """With coefficients in general position, as many as there are independent derivatives of the polynomial."""
    terms, rows = OPERATORS[name]
    grading = Grading.least(terms)
    assert [grading.size(k) for k in range(1, grading.order + 1)] == rows
    assert grading.n_rows == 1 + sum(rows)
    if len({len(t) for t in terms}) > 1:
        return
    number = {t: float(RNG.normal()) * factorials(t) for t in terms}
    for k in range(1, grading.order):
        variables = range(1 + max(v for t in terms for v in t))
        lower, higher = monomials(len(variables), k), monomials(len(variables), grading.order - k)
        matrix = [[number.get(product_of(a, b), 0.0) for b in lower] for a in higher]
        assert np.linalg.matrix_rank(np.array(matrix)) == rows[k - 1]


Polynomial = dict[Monomial, int]


def rows_of(grading: Grading, number: Mapping[Monomial, int], u: Polynomial, degree: int) -> list[int]:
    """The rows of a polynomial of a degree, by their definition."""
    if degree <= grading.low:
        return [u.get(b, 0) for b in grading._divisors[degree]]
    found = []
    for order, a in grading._high[degree]:
        rests = [(t, rest) for t in number if len(t) == order for b, rest in divisors(t, len(a)) if b == a]
        found.append(sum([number[t] * u.get(rest, 0) for t, rest in rests]))
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_of_products_of_polynomials(name: str) -> None:
    """Exactly, in integers, of all degrees and of squares; the last row of highest degree is the operator itself."""
    terms, _ = OPERATORS[name]
    grading = Grading.least(terms)
    number = {t: int(RNG.integers(-5, 6)) * factorials(t) for t in terms}
    n = 1 + max([v for t in terms for v in t])

    def drawn(degree: int) -> Polynomial:
        return {m: int(RNG.integers(-9, 10)) for m in monomials(n, degree)}

    def value(row: _RowSum, of: Sequence[int]) -> int:
        return sum([of[k] * factor * (1 if term is None else number[terms[term]]) for k, term, factor in row])

    for q in range(1, grading.order):
        for p in range(1, min(q, grading.order - q) + 1):
            u, v = drawn(p), drawn(q)
            for w, squared in ((v, False), (u, True)) if p == q else ((v, False),):
                uv: Polynomial = {}
                for (a, x), (b, y) in product(u.items(), w.items()):
                    uv[product_of(a, b)] = uv.get(product_of(a, b), 0) + x * y
                left, right = rows_of(grading, number, u, p), rows_of(grading, number, w, q)
                products = grading.product(p, q)
                found = [
                    sum([left[k] * value(s, right) for k, s in row])
                    for row in (_squared(products) if squared else products)
                ]
                assert found == rows_of(grading, number, uv, p + q)
    u = drawn(grading.order)
    total = grading.total(grading.order)
    assert total is not None
    want = sum([number[t] * u[t] for t in terms if len(t) == grading.order])
    assert value(total, rows_of(grading, number, u, grading.order)) == want


def dot_rows(program: fx.Program[..., object], width: int) -> int:
    """The number of rows of all products with a matrix of a width."""
    shapes = [e.outs[0].aval.shape for e in fx.inline(program).jaxpr.eqns if e.prim.name == "dot_general"]
    return sum([prod(shape[:-1]) for shape in shapes if shape[-1:] == (width,)])


@pytest.mark.parametrize("n", [2, 5, 8])
def test_a_layer_multiplies_each_row_once(n: int) -> None:
    """Of a biharmonic: (n + 1) (n + 4) / 2 rows, where two Laplacians have (n + 2)^2. And the first layer, of x."""
    w = fnp.asarray(RNG.normal(size=(n, 9)))
    v = fnp.asarray(RNG.normal(size=(9, 11)))
    f = fx.trace(lambda x: fnp.tanh(fnp.tanh(x @ w) @ v), fx.Spec((n,), "float64"))
    assert dot_rows(fx.biharmonic(f), 11) == (n + 1) * (n + 4) // 2
    dense = {tuple([m.count(v) for v in range(n)]): 1.0 for m in monomials(n, 2)}
    assert dot_rows(fx.operator(f, dense), 11) == n + 2


def test_multiplications_of_a_layer() -> None:
    """Elementwise ones of the second layer, by all numbers too. Two Laplacians have 164."""
    w, v = fnp.asarray(RNG.normal(size=(5, 9))), fnp.asarray(RNG.normal(size=(9, 11)))
    f = fx.trace(lambda x: fnp.tanh(fnp.tanh(x @ w) @ v), fx.Spec((5,), "float64"))
    eqns = fx.inline(fx.biharmonic(f)).jaxpr.eqns
    shapes = [e.outs[0].aval.shape for e in eqns if e.prim.name == "mul"]
    assert sum([prod(shape[:-1]) for shape in shapes if shape[-1:] == (11,)]) <= 136


W1, W2 = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 4))


def attention(x: Any) -> Any:
    h = fnp.outer(x, x @ W1)
    return (fx.nn.softmax(h @ h.T) @ h).sum()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "network": lambda x: fnp.tanh(fnp.sin(x @ W1) @ W2).sum(),
    "quotient": lambda x: (fnp.exp(x @ W1) / (2 + fnp.cos(x @ W1))).sum(),
    "attention": attention,
    "powers": lambda x: ((2 + fnp.sin(x @ W1)) ** (x @ W1)).sum() + fnp.arctan2(x[0], x[2] + 3),
    "determinant": lambda x: fnp.sqrt(1 + x @ x) + fnp.linalg.slogdet(fnp.outer(x, x) + 2 * fnp.eye(3))[1],
    "linear": lambda x: x.sum(),
    "loop": lambda x: lax.fori_loop(0, 2, lambda _, c: fnp.tanh(c) * c.sum(), x).sum(),
}
TERMS: dict[str, dict[tuple[int, ...], Any]] = {
    "second": {(2, 0, 0): 1.0, (1, 1, 0): -2.0, (0, 1, 1): 0.5},
    "third": {(1, 1, 1): 2.0, (0, 1, 2): 1.0, (0, 1, 0): 3.0},
    "varying": {(2, 1, 1): lambda x: fnp.cos(x[0]), (0, 2, 2): 0.3, (1, 1, 0): lambda x: x[2], (0, 0, 0): 2.0},
}


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_beside_directions(name: str, terms: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of functions with loops there are directions only."""
    x = np.array([0.4, -0.7, 1.1])
    program = fx.trace(FUNCTIONS[name], x)
    found = fx.interpret(fx.value_and_operator(program, TERMS[terms]), x)
    monkeypatch.setattr(operator_programs, "_MOST_PRODUCTS", 0)
    want = fx.interpret(fx.value_and_operator(program, TERMS[terms]), x)
    np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-11)


def test_several_leaves_batches_and_gradients() -> None:
    def f(parts: dict[str, Any], s: Any) -> Any:
        return fnp.sin(parts["a"] @ parts["b"]) * s + (parts["b"] ** 3).sum() * fnp.exp(s)

    program = fx.trace(f, {"a": RNG.normal(size=2), "b": RNG.normal(size=2)}, RNG.normal(size=()))
    both = fx.biharmonic(program, (0, 1))
    twice = fx.laplacian(fx.laplacian(program, (0, 1)), (0, 1))
    parts, s = {"a": RNG.normal(size=(2, 2)), "b": RNG.normal(size=(2, 2))}, RNG.normal(size=2)
    found, want = [fx.interpret(fx.trace(fx.vmap(g), parts, s), parts, s) for g in (both, twice)]
    np.testing.assert_allclose(found, want, rtol=1e-11)
    point = fx.tree.map(lambda x: x[0], parts), s[0]
    gradients = [fx.tree.leaves(fx.interpret(fx.grad(g, (0, 1)), *point)) for g in (both, twice)]
    for found, want in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-10)


def test_the_adjoint_of_rows_is_their_stack() -> None:
    """Not a sum of padded rows."""
    w = fnp.asarray(RNG.normal(size=(4, 4)))

    def total(x: Any, w: Any) -> Any:
        return fx.biharmonic(lambda x: fnp.tanh(fnp.tanh(x @ w) @ w).sum())(x)

    gradient = fx.inline(fx.trace(fx.grad(total, 1), RNG.normal(size=4), w))
    assert "pad" not in [e.prim.name for e in gradient.jaxpr.eqns]


def test_numbers_that_a_type_has_not() -> None:
    """3! * 15000 is no float16; series along directions have no factorials."""

    def f(x: Any) -> Any:
        x = x / 8
        return x[0] ** 3 * x[1]

    x = np.array([1.0, 2.0], np.float16)
    np.testing.assert_allclose(fx.operator(f, {(3, 1): 15000.0})(x), 6 * 15000 / 8**4, rtol=1e-2)


def test_symbolic_sizes() -> None:
    f = fx.biharmonic(lambda x: fnp.sin(x).sum() * x.sum())
    x = RNG.normal(size=3)
    np.testing.assert_allclose(fx.jit(f, symbolic="(n,)")(x), f(x), rtol=1e-11)
