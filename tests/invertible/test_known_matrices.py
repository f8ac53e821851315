"""Inverses of products with matrices that the program shows to be invertible: triangular, orthogonal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.ir import Hole, Jaxpr, NDArray
from fxad.primitives.dot import DotGeneral
from fxad.tracing.array import Array
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.rules.contract import PartialValue, Refused
from tests.invertible.rules import Backwards, jacobian, near

Matrix = Callable[[Array], Array]


def inverse_of_the_product(program: Jaxpr) -> tuple[Jaxpr, Jaxpr] | Refused:
    """Takes a program of a matrix and an operand, whose last equation is a product. Returns the program from (matrix,
    operand, result) to the operand, and the program of the log-determinant."""
    *before, last = program.eqns
    (x,) = program.ins[1:]
    found: list[Jaxpr] = []
    for measured in (False, True):
        b = Backwards.like(program)
        y = b.input(last.outs[0].aval)
        for eqn in before:
            for v in b.copy(eqn, eqn.ins):
                b.makers[v] = b.eqns[-1]
        assert isinstance(last.prim, DotGeneral)
        rule = INVERSE_RULES.rows[DotGeneral]
        solved = rule.solve(b, last.prim, tuple([Hole(a.aval) if a is x else a for a in last.ins]), (y,))
        if isinstance(solved, Refused):
            return solved
        (back,) = [v for v in solved if v is not None]
        assert not isinstance(back, PartialValue)
        assert back.aval is x.aval
        if measured:
            assert callable(rule.log_det)
            determinant = rule.log_det(b, last.prim, last.ins, tuple([a is x for a in last.ins]), (y,))
            assert determinant is not None
            back = determinant
        found.append(b.build([back]))
    return found[0], found[1]


MATRICES: dict[str, Matrix] = {
    "tril": fnp.tril,
    "triu": fnp.triu,
    "lower with ones": lambda w: fnp.tril(w, -1) + fnp.eye(3, dtype=w.dtype),
    "transposed": lambda w: fnp.swapaxes(fnp.tril(w), -1, -2),
    "scaled": lambda w: -fnp.triu(w) * (w * w + 1) / 2,
    "sum": lambda w: fnp.tril(w) + fnp.tril(w * w, -1),
    "band": lambda w: fnp.tril(w) - fnp.tril(w, -2),
    "with a stack of one": lambda w: fnp.tril(w, -1) + fnp.broadcast_to(2.5 * fnp.eye(3, dtype=w.dtype), w.shape),
    "marked": lambda w: fx.checkpoint_name(fnp.tril(w), "w"),
}
PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "w @ x": lambda w, x: w @ x,
    "x @ w": lambda w, x: x @ w,
    "w.T": lambda w, x: lax.dot_general(w, x, (((0,), (0,)), ((), ()))),
    "x w.T": lambda w, x: lax.dot_general(x, w, (((1,), (1,)), ((), ()))),
}


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> NDArray:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.3, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
    if dtype == "complex128":
        x = x + 1j * rng.uniform(-1, 1, shape)
    return np.asarray(x, fx.Spec((), dtype).dtype)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("matrix", MATRICES)
def test_products_are_inverted(matrix: str, product: str) -> None:
    for dtype in ("float64", "complex128"):
        w, x = drawn((3, 3), dtype, 0), drawn((3, 3), dtype, 1)
        program = fx.trace(lambda w, x: PRODUCTS[product](MATRICES[matrix](w), x), w, x).jaxpr
        found = inverse_of_the_product(program)
        assert not isinstance(found, Refused), found.reason
        (y,) = run(program, [w, x])
        near(run(found[0], [w, x, y])[0], x, rtol=1e-9, atol=1e-9)
        want = np.linalg.slogdet(jacobian(program, [w, x], (False, True)))[1]
        near(run(found[1], [w, x, y])[0], want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("matrix", ["tril", "transposed"])
def test_batches_and_other_axes(matrix: str) -> None:
    """Batch axes before the matrix, and an operand whose contracted axis is at any place."""
    w, x = drawn((2, 3, 3), "float64", 0), drawn((4, 2, 3, 5), "float64", 1)
    for side in (0, 1):

        def contracted(w: Array, x: Array, side: int = side) -> Array:
            if side:
                return lax.dot_general(x, MATRICES[matrix](w), (((2,), (1,)), ((1,), (0,))))
            return lax.dot_general(MATRICES[matrix](w), x, (((2,), (2,)), ((0,), (1,))))

        program = fx.trace(contracted, w, x).jaxpr
        found = inverse_of_the_product(program)
        assert not isinstance(found, Refused), found.reason
        (y,) = run(program, [w, x])
        near(run(found[0], [w, x, y])[0], x, rtol=1e-9, atol=1e-9)
        want = np.linalg.slogdet(jacobian(program, [w, x], (False, True)))[1]
        near(run(found[1], [w, x, y])[0], want, rtol=1e-9, atol=1e-9)


def test_a_zero_on_the_diagonal_gives_nan() -> None:
    w, x = drawn((3, 3), "float32", 0), drawn((3,), "float32", 1)
    w[1, 1] = 0
    program = fx.trace(lambda w, x: fnp.tril(w) @ x, w, x).jaxpr
    found = inverse_of_the_product(program)
    assert not isinstance(found, Refused)
    back = run(found[0], [w, x, *run(program, [w, x])])[0]
    near(back[0], x[0], rtol=1e-6)
    assert np.isnan(back[1:]).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_dtypes(dtype: str) -> None:
    w, x = drawn((3, 3), dtype, 0), drawn((3, 2), dtype, 1)
    program = fx.trace(lambda w, x: fnp.tril(w) @ x, w, x).jaxpr
    found = inverse_of_the_product(program)
    assert not isinstance(found, Refused)
    back = run(found[0], [w, x, *run(program, [w, x])])[0]
    near(back, x, rtol=0.1, atol=0.1)


NOT_KNOWN: dict[str, Matrix] = {
    "any": lambda w: w,
    "tril k=1": lambda w: fnp.tril(w, 1),
    "sum of both": lambda w: fnp.tril(w) + fnp.triu(w),
    "exp of a triangle": lambda w: fnp.exp(fnp.tril(w)),
    "shifted": lambda w: fnp.tril(w) + 1,
    "divided by a triangle": lambda w: w / (fnp.tril(w) + 2),
    "a mask of values": lambda w: fnp.where(w > 0, w, 0),
    "inverse triangle of a mask": lambda w: fnp.where(fnp.tril(fnp.ones((3, 3), bool)), 1.0, w),
    "q": lambda w: fnp.linalg.qr(w)[0],
    "exponential": fnp.linalg.expm,
    "rolled": lambda w: fnp.flip(fnp.tril(w), 0),
}


@pytest.mark.parametrize("matrix", NOT_KNOWN)
def test_other_matrices_are_factored(matrix: str) -> None:
    """Such a matrix is not taken for a triangular one. If it is singular, the operand is nan."""
    w, x = drawn((3, 3), "float32", 0), drawn((3, 3), "float32", 1)
    program = fx.trace(lambda w, x: NOT_KNOWN[matrix](w) @ x, w, x).jaxpr
    found = inverse_of_the_product(program)
    assert not isinstance(found, Refused)
    assert "lu" in {e.prim.name for e in found[0].eqns}
    back = run(found[0], [w, x, *run(program, [w, x])])[0]
    if matrix == "tril k=1" or not np.isnan(back).all():
        near(back, x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
def test_any_square_matrix(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    turn = 1j if dtype.startswith("complex") else 0.0
    a, x = [np.asarray(rng.normal(size=s) + turn * rng.normal(size=s), dtype) for s in ((4, 4), shape)]
    tolerance = {"float16": 0.1, "float32": 1e-4, "complex64": 1e-4}.get(dtype, 1e-12)
    for f in (lambda x, a: x @ a, lambda x, a: fnp.einsum("ij,...j->...i", a, x)):
        program = fx.trace(f, x, a)
        y = fx.interpret(program, x, a)
        back, log_det = fx.interpret(fx.inverse(program, log_det=True), y, a)
        near(np.asarray(back), x, rtol=tolerance, atol=tolerance)
        want = np.linalg.slogdet(a.astype("complex128"))[1] * (x.size / 4) * (2 if turn else 1)
        near(np.asarray(log_det), want, rtol=10 * tolerance, atol=tolerance)


def test_singular_matrices_of_a_batch_give_nan() -> None:
    a = np.random.default_rng(2).normal(size=(3, 4, 4))
    a[1, 3] = a[1, 0] + a[1, 1]
    a[2] *= 1e-200
    program = fx.trace(lambda x, a: a @ x, a[..., :2], a)
    back = np.asarray(fx.inverse(program)(program(a[..., :2], a), a))
    assert np.isnan(back[1]).all()
    near(back[[0, 2]], a[[0, 2], :, :2], rtol=1e-9, atol=1e-12)
    hilbert = 1 / (1 + np.add.outer(np.arange(12.0), np.arange(12.0)))  # condition 1e16
    assert np.isnan(np.asarray(fx.inverse(lambda x, h: x @ h)(np.ones(12), hilbert))).all()


def test_a_matrix_of_symbolic_shape_with_a_triangle() -> None:
    """The mask of `tril` has no value, so the matrix is factored as any other."""
    program = fx.trace(lambda x, a: fnp.tril(a) @ x, fx.Spec("n", "float64"), fx.Spec("n, n", "float64"))
    x, a = np.arange(1.0, 5.0), np.random.default_rng(3).normal(size=(4, 4)) + 3 * np.eye(4)
    near(np.asarray(fx.inverse(program)(program(x, a), a)), x, rtol=1e-9)
