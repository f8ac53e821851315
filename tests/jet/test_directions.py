"""Sparse directions: derivatives that are zero, as a value depends on some elements alone, are not carried.

The pass replaces an operand that holds all unit vectors. So the law is that of any rewrite: the same value as that of
the program with this operand.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
from fxad import lax, numpy as fnp
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.ir import Jaxpr
from fxad.primitives.shape import ReduceSum
from fxad.testing import Case, cases
from fxad.testing.compare import differ, program_tolerance
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.values import PRECISE
from fxad.transforms.jet.collapse.collapse import collapse
from fxad.transforms.jet.directions.directions import sparse_directions
from fxad.transforms.jet.jet import jet
from fxad.transforms.vmap import over_stack
from tests.laws.budget import share

RNG = np.random.default_rng(7)
N, C, F = 4, 3, 5
W, V, SQUARE = [fnp.asarray(RNG.normal(size=s) / 2) for s in ((C, F), (F, N), (F, F))]
ROWS, PAIRS = fnp.asarray(RNG.normal(size=(N, 2))), fnp.asarray(RNG.normal(size=(N, N)))


def hidden(x: Any) -> Any:
    return fnp.tanh(x @ W)


def distances(x: Any) -> Any:
    apart = x[:, None] - x[None]
    return fnp.sqrt((apart * apart).sum(-1) + fnp.eye(N))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "electrons alone": lambda x: fnp.exp(-fnp.sqrt((x * x).sum(-1))).sum(),
    "orbitals": lambda x: fnp.linalg.slogdet(hidden(x) @ V)[1],
    "distances": lambda x: fnp.triu(distances(x) / (1 + distances(x)), 1).sum(),
    "products of pairs": lambda x: (fnp.sin(distances(x)) * hidden(x).sum(-1)[:, None] * hidden(x).sum(-1)[None]).sum(),
    "attention": lambda x: (fx.nn.softmax(hidden(x) @ hidden(x).T) @ hidden(x)).sum(),
    "a sum over electrons": lambda x: fnp.tanh(hidden(x).sum(0)).sum(),
    "a product over electrons": lambda x: fnp.cos(ROWS.T @ hidden(x)).sum(),
    "electrons on the last axis": lambda x: fnp.cos(hidden(x).T @ ROWS).sum(),
    "pairs, then electrons": lambda x: fnp.tanh((PAIRS * distances(x)) @ hidden(x)).sum(),
    "batched products": lambda x: fnp.sin(fnp.einsum("ia,ab,ib->i", hidden(x), SQUARE, hidden(x))).sum(),
    "one coordinate": lambda x: (fnp.sin(x[:, 0]) * x[:, 1] ** 3).sum(),
    "one electron": lambda x: fnp.sin(x[1]).sum() * fnp.cos(x[2] @ W).sum(),
    "some electrons": lambda x: fnp.tanh(x[1:] @ W).sum() * fnp.sin(x[::-1] @ W).sum(),
    "concatenated": lambda x: fnp.sin(fnp.concatenate([x, hidden(x), x * x], -1) ** 2).sum(),
    "stacked electrons": lambda x: fnp.sin(fnp.concatenate([x, x[::2]], 0)).prod(),
    "piecewise": lambda x: (fnp.where(hidden(x) > 0, hidden(x) ** 2, 0.0) * fx.nn.relu(hidden(x))).sum(),
    "padded": lambda x: (fnp.pad(hidden(x), ((0, 0), (1, 2))) ** 3).sum(),
    "reshaped": lambda x: fnp.sin(fnp.sin(x).reshape(-1)).sum() * fnp.cos(x.reshape(2, -1).sum(1)).sum(),
    "transposed": lambda x: (fnp.sin(x.T)[:, None, ::-1] ** 2).sum(),
    "not a number": lambda x: hidden(x),
    "several results": lambda x: {"a": fnp.sin(x), "b": (x**3).sum(0), "c": distances(x)},
    "a loop": lambda x: lax.scan(lambda c, w: (fnp.tanh(c @ w), None), hidden(x), fnp.stack([SQUARE, SQUARE]))[0].sum(),
    "a branch": lambda x: lax.cond(x[0, 0] > 0, lambda x: (x**3).sum(), lambda x: fnp.sin(x @ W).sum(), x),
    "solved": lambda x: fnp.linalg.solve(fnp.eye(N) * 3 + PAIRS, fnp.sin(x)).sum(),
    "solved with a matrix of electrons": lambda x: fnp.linalg.solve(fnp.eye(N) * 9 + distances(x), ROWS).sum(),
    "sorted": lambda x: (fnp.sort(hidden(x), -1) * fnp.arange(F)).sum(),
    "the highest": lambda x: hidden(x).max(-1).sum() * hidden(x).max(),
    "linear": lambda x: x @ W,
    "constant": lambda x: x * 0 + 1.0,
}


def forms(f: Callable[[Any], Any], shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return the Laplacian as a program of all unit vectors, the same without them, and an argument."""

    def along(unit: Any, x: Any) -> Any:
        run = fx.jet(lambda x: f(x.reshape(N, C)), order=2)
        second = fx.vmap(lambda v: run((x,), ((v,),))[1][1])(unit)
        return fx.tree.map(lambda y: 2 * y.sum(0), second)

    dense = fx.collapse(fx.trace(along, fx.Spec((N * C, *shape), "float64"), fx.Spec(shape, "float64")))
    x = RNG.normal(size=shape)
    return dense, sparse_directions(dense.jaxpr, len(dense.bound), shape), x


@pytest.mark.parametrize("shape", [(N, C), (N * C,)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_value(name: str, shape: tuple[int, ...]) -> None:
    dense, sparse, x = forms(FUNCTIONS[name], shape)
    bound = [np.asarray(a) for a in dense.bound]
    want = run(dense.jaxpr, [*bound, np.eye(N * C).reshape(N * C, *shape), x])
    found = run(sparse, [*bound, x])
    assert len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-9, atol=1e-11)


@pytest.mark.law
def test_generated_programs() -> None:
    @share(2)
    @given(cases(differentiable=True))
    def law(case: Case) -> None:
        program, flags = case.program, differentiable_flags(case)
        real = [a.dtype in PRECISE and a.dtype.kind == "f" and 2 <= a.size <= 16 for a in program.in_avals]
        operand = next((k for k, (m, r) in enumerate(zip(flags, real, strict=True)) if m and r), None)
        if operand is None:
            return
        series, has = jet(program, tuple([(k == operand, False) for k in range(len(flags))]))
        n, x = len(program.ins), case.args[operand]
        orders = [k for marks in has for k, m in enumerate(marks, 1) if m]
        outs = [a for a, k in zip(series.outs[len(program.outs) :], orders, strict=True) if k == 2]
        one = Jaxpr(series.ins, series.eqns, tuple(outs), "second")
        stacked = over_stack(one, x.size, (*[None] * n, 0), (0,) * len(outs))
        b = Builder()
        ins = b.inputs(stacked.in_avals)
        dense = collapse(b.build([b.one(ReduceSum((0,)), a) for a in b.inline(stacked, ins)]))
        want = run(dense, [*case.args, np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)])
        found = run(sparse_directions(dense, n, x.shape), case.args)
        if all([np.isfinite(v).all() for v in want]):
            assert not differ(found, want, slack=1e2 * program_tolerance(program, case.args))

    law()


def values(program: fx.Program[..., object]) -> list[tuple[int, ...]]:
    return [v.aval.shape for e in fx.inline(program).jaxpr.eqns for v in e.outs]


def test_electrons_that_do_not_interact_have_their_own_directions() -> None:
    n = 50

    def alone(x: Any) -> Any:
        return fnp.tanh(fnp.tanh(x @ W) @ SQUARE).sum()

    found = values(fx.laplacian(fx.trace(alone, fx.Spec((n, C), "float64"))))
    assert max(map(prod, found)) == C * n * F


def test_pairs_have_the_directions_of_two() -> None:
    n = 50
    program = fx.laplacian(fx.trace(lambda x: fnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)).sum(), fx.Spec((n, C))))
    assert max(map(prod, values(program))) == C * n * n


def test_a_determinant_takes_its_inverse_once() -> None:
    """A row of orbitals depends on one electron: no linear system has right-hand sides for each direction."""
    program = fx.laplacian(fx.trace(lambda x: fnp.linalg.slogdet(hidden(x) @ V)[1], fx.Spec((N, C), "float64")))
    systems = [e.outs[0].aval.shape for e in fx.inline(program).jaxpr.eqns if e.prim.name == "solve"]
    assert set(systems) == {(N, N)}


def test_a_separable_network_has_one_direction_for_each_part() -> None:
    """A product of networks of one coordinate each."""
    n = 6
    w = fnp.asarray(RNG.normal(size=(n, 32)))
    program = fx.laplacian(fx.trace(lambda x: (fnp.tanh(x[:, None] * w)).sum(1).prod(), fx.Spec((n,), "float64")))
    assert max(map(prod, values(program))) == n * 32


def test_zeros_are_not_multiplied() -> None:
    """An element without a derivative does not reach the results of others."""

    def f(x: Any) -> Any:
        return fnp.sqrt(x)

    found = np.asarray(fx.laplacian(f)(np.array([0.0, 1.0])))
    assert not np.isfinite(found[0])
    assert found[1] == -0.25


def wave(x: Any) -> Any:
    return fnp.linalg.slogdet(hidden(x) @ V)[1] + fnp.exp(-distances(x)).sum()


def test_other_transformations() -> None:
    """A Laplacian without zeros is a program like others."""
    xs = RNG.normal(size=(2, N, C))
    laplacian = fx.laplacian(fx.trace(wave, xs[0]))
    want = [fx.interpret(laplacian, x) for x in xs]
    np.testing.assert_allclose(fx.interpret(fx.trace(fx.vmap(laplacian), xs), xs), want, rtol=1e-10)
    np.testing.assert_allclose(fx.interpret(fx.remat(laplacian), xs[0]), want[0], rtol=1e-12)
    gradient, step = fx.interpret(fx.grad(laplacian), xs[0]), 1e-5 * np.eye(N * C)[4].reshape(N, C)
    difference = (fx.interpret(laplacian, xs[0] + step) - fx.interpret(laplacian, xs[0] - step)) / 2e-5
    np.testing.assert_allclose(np.asarray(gradient)[1, 1], difference, rtol=1e-6)
    slope = fx.interpret(fx.jvp(laplacian), (xs[0],), (step,))[1]
    np.testing.assert_allclose(slope, difference * 1e-5, rtol=1e-6)
    second = fx.interpret(fx.jet(laplacian, order=2, given=1), (xs[0],), ((step * 1e5,),))[1][0]
    np.testing.assert_allclose(second, difference, rtol=1e-6)


def test_series_under_other_transformations() -> None:
    """Sparse derivatives, padded arguments, a budget and a file take a series as they take any program."""
    x = RNG.normal(size=6)
    series = fx.jet(lambda x: fnp.sin(x) * x, order=3)

    def third(x: Any) -> Any:
        return series((x,), ((fnp.ones_like(x),),))[1][2]

    jacobian = fx.sparse_jacobian(third)(x)
    assert jacobian.nnz == 6
    # third(x) = (x sin x)''' / 6 = -(3 sin x + x cos x) / 6
    np.testing.assert_allclose(third(x), -(3 * np.sin(x) + x * np.cos(x)) / 6, rtol=1e-12)
    np.testing.assert_allclose(jacobian.data, -(4 * np.cos(x) - x * np.sin(x)) / 6, rtol=1e-12)
    padded = np.concatenate([x, [np.nan, np.inf]])
    total = fx.mask(lambda x: third(x).sum(), in_shapes=["n"], out_shapes="")(padded, sizes={"n": 6})
    np.testing.assert_allclose(total, third(x).sum(), rtol=1e-12)
    program = fx.trace(fx.grad(lambda x: third(x).sum()), x)
    bounded = fx.lower(program).compile(budget=10_000)
    assert bounded.memory().temp_bytes <= 10_000
    np.testing.assert_allclose(bounded(x), jacobian.data, rtol=1e-12)


def test_a_factor_has_directions_too() -> None:
    """The derivatives of the sum are a number for each direction. The program that carries them has this value."""

    def f(x: Any) -> Any:
        return fnp.cumsum(x.sum(0, keepdims=True) * x, 0)

    x = RNG.normal(size=(N, 1))
    laplacian = fx.laplacian(fx.trace(f, x))
    np.testing.assert_allclose(fx.interpret(laplacian, x)[:, 0], 2.0 * np.arange(1, N + 1))
