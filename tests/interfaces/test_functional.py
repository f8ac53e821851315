"""Functions that apply functions, such as vectorize, against NumPy."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, FxadError, ParameterError, ShapeError
from fxad.tracing.array import Array
from tests.interfaces.oracle import check, close

RNG = np.random.default_rng(0)
P, M, A = RNG.normal(size=4), RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3, 4))


def test_vectorize_refuses_what_excludes_nothing() -> None:
    with pytest.raises(ParameterError) as e:
        fnp.vectorize(fnp.sum, excluded={1.5})  # type: ignore[arg-type]
    assert "vectorize: excluded has 1.5" in str(e.value)
    assert e.value.remedy == "give a set of positions from 0 on, and of names of arguments"


def test_vectorize() -> None:
    def chosen(n: Any, a: Any, b: Any) -> Any:
        return n.where(a > b, a - b, a + b)

    check(fnp.vectorize(lambda a, b: chosen(fnp, a, b)), lambda a, b: chosen(np, a, b), M, M[0])
    close(fnp.vectorize(lambda a, n: a**n, excluded={1})(M, 2), M**2)
    close(fnp.vectorize(lambda a, n: a if n is None else a + n)(M, None), M)
    first, second = fnp.vectorize(lambda a, *, k: (a + k, a * k))(M, k=M[0])
    close(first, M + M[0])
    close(second, M * M[0])
    close(fnp.vectorize(lambda a: a * 2)(3), np.int32(6))
    close(fnp.vectorize(lambda a, *, twice: 2 * a if twice else a, excluded={"twice"})(M, twice=True), 2 * M)


def test_vectorize_with_a_signature() -> None:
    ours = fnp.vectorize(lambda m, v: m @ v, signature="(m,n),(n)->(m)")
    theirs = np.vectorize(lambda m, v: m @ v, signature="(m,n),(n)->(m)")
    check(ours, theirs, A, P)
    check(ours, theirs, A[:, None], RNG.normal(size=(1, 5, 4)))
    check(ours, theirs, A[:1], RNG.normal(size=(3, 4)))
    sums = fnp.vectorize(lambda x: (x.sum(), x * 2), signature="(3)->(),(3)")
    check(sums, lambda x: (x.sum(-1), 2 * x), M)
    close(fx.grad(lambda v: fnp.sum(cast("Array", ours(A, v))))(fnp.asarray(P)), A.sum((0, 1)))
    # a closed-over array is the same for all examples
    close(fx.jit(lambda x: fnp.vectorize(lambda a: a * x.sum())(x))(M), M * M.sum())


def test_vectorize_of_an_empty_or_single_axis() -> None:
    ours = fnp.vectorize(lambda v: v.sum(), signature="(n)->()")
    close(ours(A[:0]), np.zeros((0, 3)))
    close(ours(A[:1, :1]), A[:1, :1].sum(-1))
    constant = fnp.vectorize(lambda v: fnp.asarray(7.0), signature="(n)->()")
    close(constant(A), np.full((2, 3), 7, np.float32))


def test_along_an_axis() -> None:
    functions: tuple[Any, ...] = (lambda n, v: v.sum(), lambda n, v: v[:2] * 2, lambda n, v: n.outer(v, v))
    for axis in (0, 1, -1):
        for fn in functions:
            check(
                lambda a, k=axis, fn=fn: fnp.apply_along_axis(lambda v: fn(fnp, v), k, a),
                lambda a, k=axis, fn=fn: np.apply_along_axis(lambda v: fn(np, v), k, a),
                A,
            )
    close(fnp.apply_along_axis(lambda v, k, *, s: v * k + s, 0, M, 3, s=1), M * 3 + 1)


def test_over_axes_and_from_indices() -> None:
    close(fnp.apply_over_axes(fnp.sum, A, [0, -1]), np.apply_over_axes(np.sum, A, [0, -1]))
    close(fnp.apply_over_axes(fnp.cumsum, A, 1), np.cumsum(A, 1))
    close(
        fnp.fromfunction(lambda i, j: i + 2 * j, (2, 3)), np.fromfunction(lambda i, j: i + 2 * j, (2, 3)), dtype=False
    )
    close(fnp.fromfunction(lambda i: i, 3, dtype=int), np.arange(3, dtype=np.int32))


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fnp.vectorize(fnp.sum, signature="n"), ParameterError, "vectorize: signature 'n' does not parse"),
        (lambda: fnp.vectorize(fnp.sum, excluded={-1}), ParameterError, "vectorize: excluded has -1\n"),
        (lambda: fnp.vectorize(fnp.sum, excluded="axis"), ParameterError, "vectorize: excluded has 'axis'\n"),
        (
            lambda: fnp.vectorize(lambda a: a, signature="(n),(n)->()")(P),
            ArgumentError, "vectorize: <lambda> takes 2 arrays by '(n),(n)->()', got 1",
        ),
        (
            lambda: fnp.vectorize(lambda a, b: a, signature="(n),(n)->()")(P, P[:2]),
            ShapeError, "vectorize: axis n of <lambda> has sizes 4 and 2, by argument 1: f64[2]",
        ),
        (
            lambda: fnp.vectorize(lambda a: a, signature="(m,n)->()")(P),
            ShapeError, "vectorize: argument 0 of <lambda> has 1 axes, '(m,n)->()' wants 2",
        ),
        (
            lambda: fnp.vectorize(lambda a: a, signature="(n)->()")(M),
            ShapeError, "vectorize: result 0 of <lambda> has shape (3,), '(n)->()' says ()",
        ),
        (
            lambda: fnp.vectorize(lambda a: (a, a), signature="(n)->(n)")(M),
            ArgumentError, "vectorize: <lambda> gives 2 results, '(n)->(n)' says 1",
        ),
        (lambda: fnp.vectorize(lambda a, b: a)(M, P), ShapeError, "do not broadcast"),
        (lambda: fnp.apply_over_axes(lambda a, k: a[0, 0], A, 0), ShapeError, "the function makes f64[4] of f64"),
        (lambda: fnp.fromfunction(cast("Any", 3), (2,)), ArgumentError, "fromfunction: argument 0 must be a function"),
    ],
)  # fmt: skip
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)
