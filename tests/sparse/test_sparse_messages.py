"""What sparse derivatives, systems and colourings refuse, with the remedies that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import FxadError
from fxad.scipy import stats
from fxad.transforms.sparse.coloring import color
from fxad.transforms.sparse.decompression import decompression

X = fnp.asarray(np.linspace(0.3, 1.7, 6))
EYE = fx.Pattern.from_scipy(np.eye(6))
S = fx.Sparse(X, EYE)
TALL = fx.Sparse(fnp.ones(2), fx.Pattern.from_scipy(np.eye(3, 2)))
SIN: Any = fx.trace(fnp.sin, X)
TURN: Any = fx.trace(lambda x: x * 1j, X)
anything: Any = fx


def anything_of(value: object) -> Any:
    return value


@pytest.mark.parametrize(
    ("call", "pieces"),
    [
        (lambda: anything.sparsity(fnp.sin, at=X), ["sparsity: at is", "give all arguments: at=(x, y"]),
        (lambda: fx.sparsity(fnp.sin), ["trace(f, *specs)), or give at=(x"]),
        (
            lambda: fx.sparsity(fx.trace(lambda x, y: x * y, X, X), (1, 0)),
            [" are not in increasing order", "sort them"],
        ),
        (lambda: fx.sparsity(SIN, at=()), ["at has 0 leaves", "give all arguments of the program"]),
        (lambda: fx.sparsity(SIN, at=(X[1:],)), ["argument x has shape (5,), it was traced with (6,)"]),
        (lambda: fx.sparsity(SIN, at=(S,)), ["argument x is Sparse(data=*), it was traced as *"]),
        (
            lambda: fx.sparsity(fx.trace(fnp.sin, fx.Spec("n"))),
            [" is of symbolic shape: a pattern has numbers of rows and columns", "specialize(program, n="],
        ),
        (
            lambda: fx.sparse_jacobian(TURN, EYE, EYE.color("rows")),
            [
                "is complex and its arguments are real: Coloring('rows', 6x6: 1 vjps)",
                " has products of rows, which are real",
                'give a coloring of columns: pattern.color("columns',
            ],
        ),
        (lambda: fx.sparse_jacobian(abs)(X + 1j), ["has type c128[6], not real floating", "holomorphic=True"]),
        (
            lambda: fx.sparse_jacobian(abs, holomorphic=True)(X + 1j),
            ["result of abs has type f64[6], not complex", "leave out holomorphic=True, or return complex numbers"],
        ),
        (
            lambda: fx.sparse_jacobian(SIN, coloring=fx.Pattern.from_scipy(np.eye(4)).color()),
            ["give a coloring of this pattern: pattern.color"],
        ),
        (lambda: anything.Sparse(X, 1), ["Sparse: pattern is", "give a Pattern"]),
        (
            lambda: fx.Sparse(X[1:], EYE),
            ["Sparse: data has shape", "give one element for each entry, in CSR order, on the last axis"],
        ),
        (
            lambda: fx.Sparse(fnp.ones((2, 6)), EYE).to_scipy(),
            ["to_scipy: takes one matrix, got shape", "take one of the batch"],
        ),
        (
            lambda: S / X,
            ["Sparse / array: the divisor has shape (6,), not ()", "divide by a scalar, or divide the data"],
        ),
        (
            lambda: X[1:] @ S,
            [
                "array @ Sparse: shapes (5,) and (6, 6) do not fit",
                "the last axis of a vector or matrix is that of the rows; use vmap for batches",
            ],
        ),
        (
            lambda: S @ X[1:],
            [
                "Sparse @ array: shapes",
                "the first axis of a vector or matrix is that of the columns; use vmap for batches",
            ],
        ),
        (
            lambda: fnp.sin(anything_of(S)),
            ["sin: argument 0: a Sparse is not an array", "make an array of it with to_dense()"],
        ),
        (lambda: lax.add(X, anything_of(S)), ["add: argument 1: a Sparse", "to_dense()"]),
        (
            lambda: S @ S,
            [
                "Sparse @ Sparse: shapes (6, 6) and (6, 6): the right operand is not an array",
                "take other.to_dense(), or multiply matrices of SciPy: to_scipy(",
            ],
        ),
        (
            lambda: np.asarray(S),
            [
                "numpy.asarray: a Sparse of shape (6, 6) is not an array",
                "make an array of it with to_dense(), or a matrix of SciPy with to_scipy(",
            ],
        ),
        (
            lambda: fx.sparse_jacobian(fnp.cumsum, coloring=EYE.color())(X),
            ["does not determine the entry (1, 0) of this pattern", "color the pattern that is decompressed"],
        ),
        (
            lambda: fx.sparse_jacobian(fnp.cumsum, coloring=EYE.color("star"))(X),
            ["a star colouring is one of a symmetric pattern", 'columns", "rows" or "both'],
        ),
        (lambda: S * X, ["Sparse * array: the factor has shape", "use @ for a product"]),
        (
            lambda: fx.sparsity(SIN).block(1, 0),
            ["Pattern.block: result 1 of a pattern with 1 leaves of results", "give a number from 0 to 0"],
        ),
        (lambda: S.sum(3), ["Sparse.sum: axis is", "0 or 1"]),
        (lambda: fx.sparsity(fx.trace(lambda x: x * 1.0, fx.Spec((2,), "int32"))), [", not floating"]),
        (
            lambda: fx.sparsity(fx.trace(lambda x: x.astype("int32"), X)),
            [", which has no derivative", "return floating results only"],
        ),
        (
            lambda: lax.newton(lambda x: x, fnp.ones(2, "float16"), fx.jacfwd(lambda x: x)),
            ["convert it to float32 or float64 with astype"],
        ),
        (lambda: anything.lax.newton(lambda _: None, X, lambda x: fnp.diag(x)), ["return a vector of residuals"]),
        (lambda: lax.newton(lambda x: x[1:], X, lambda x: fnp.diag(x)), ["return a vector of residuals"]),
        (
            lambda: lax.levenberg_marquardt(lambda x: x, fnp.ones(2), jac=lambda _: TALL),
            [
                "jac returned a sparse matrix of shape (3, 2)",
                "jac has a row for each residual and a column for each unknown",
            ],
        ),
        *[
            (
                lambda method=method: method(lambda x: x * x - 2, X, jac=lambda _: np.eye(len(X), dtype=np.float32)),
                [
                    "jac returned an ndarray, neither an Array nor a sparse matrix",
                    "return fxad.numpy.asarray(...) of a matrix, or what sparse_jacobian returns",
                ],
            )
            for method in (anything.lax.newton, anything.lax.levenberg_marquardt)
        ],
        (lambda: anything.lax.sparse_solve(S, [1.0]), ["sparse_solve: b: a list is not an array: [1.0]"]),
        (lambda: S @ [1.0], ["Sparse @ array: the array: a list is not an array: [1.0]"]),
        (lambda: [1.0] @ S, ["array @ Sparse: the array: a list is not an array: [1.0]"]),
        (lambda: fx.Sparse([1.0], EYE), ["Sparse: data: a list is not an array: [1.0]"]),
        (lambda: anything.lax.sparse_solve(X, X), ["not a sparse one", "give what sparse_jacobian returns"]),
        (
            lambda: lax.sparse_solve(fx.Sparse(fnp.ones((2, 6)), EYE), X),
            ["give one element for each entry; use vmap for a batch"],
        ),
        (
            lambda: lax.sparse_solve(fx.Sparse(X.astype("float16"), EYE), X),
            ["convert it to float32, float64, complex64 or complex128 with astype"],
        ),
        (lambda: lax.sparse_solve(TALL, fnp.ones(3)), ["is not square", "least squares: A^T A"]),
        (
            lambda: fx.jit(lambda x: lax.factorize(fx.Sparse(x, EYE)).solve(x))(X),
            ["call sparse_solve, with the right-hand sides as columns of one array"],
        ),
        (
            lambda: decompression(fx.Pattern.from_scipy(np.eye(4)).color("columns"), EYE.indptr, EYE.indices),
            ["color the pattern that is decompressed"],
        ),
        (
            lambda: color(EYE.indptr[1:], EYE.indices, (6, 6)),
            ["color: indptr has 6 elements", "give the row pointers of a CSR matrix of this shape"],
        ),
        (lambda: color(*TALL.pattern._csr(), (3, 2), "star"), ['columns", "rows" or "both']),
        (
            lambda: fx.sparse_jacobian(SIN, fx.Pattern.from_scipy(np.eye(4))),
            ["give the pattern of this function: sparsity(f"],
        ),
        (
            lambda: anything.sparse_jacobian(SIN, 1),
            ["give what sparsity returns, or a matrix of scipy.sparse"],
        ),
        (
            lambda: fx.Pattern.from_scipy(np.ones(3)),
            ["Pattern.from_scipy: takes a matrix, got shape", "give an array of two axes"],
        ),
        (
            lambda: fx.sparsity(fx.trace(lambda x: fnp.fft.fft(x), fx.Spec((2**15,), "complex64"))).nnz,
            [
                "entries is too large to be listed",
                "the matrix is nearly dense: use jvp or vjp products in place of its entries",
            ],
        ),
        (
            lambda: lax.platform_dependent(nowhere=lambda: 1),
            ["give default=, or a function with the name of the platform"],
        ),
        (lambda: stats.sem(X, nan_policy="raise"), ['use "propagate" or "omit']),
    ],
)
def test_what_is_refused(call: Callable[[], object], pieces: list[str]) -> None:
    with pytest.raises(FxadError) as error:
        call()
    for piece in pieces:
        assert piece in str(error.value)
