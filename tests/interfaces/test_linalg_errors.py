"""Messages of linear algebra, word for word, and the modules that contain its functions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, CompileError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.numpy import linalg as L
from fxad.xla import custom_calls

lax: Any = fx.lax.linalg
untyped: Any = L


def values_of(x: Any) -> Any:
    return np.asarray(x)


def x(*shape: int, dtype: Any = np.float32) -> Any:
    return np.ones(shape, dtype)


ERRORS: list[tuple[Callable[[], object], type[FxadError], str]] = [
    (lambda: L.inv(x(2, 3)), ShapeError, "inv: argument 0 must be square matrices, got 2 by 3 in f32[2,3]"),
    (lambda: L.inv(x(3)), ShapeError, "inv: argument 0 must be a matrix or a batch of matrices, got f32[3]"),
    (
        lambda: L.solve(x(3, 3), x(2, 2)),
        ShapeError,
        "solve: sizes differ: argument 0 f32[3,3] has 3 columns, argument 1 f32[2,2]",
    ),
    (lambda: L.solve(x(3, 3), 1.0), ShapeError, "solve: argument 1 must be a vector or matrices, got f32[]"),
    (
        lambda: L.cholesky(x(2, 2, dtype=np.float16)),
        DTypeError,
        "cholesky: takes float32, float64, complex64 or complex128, operand 0 is f16[2,2]",
    ),
    (
        lambda: L.solve(x(2, 2, dtype=np.float16), x(2, dtype=np.float16)),
        DTypeError,
        "solve: takes float32, float64, complex64 or complex128, operand 0 is f16[2,2]",
    ),
    (
        lambda: L.det(fnp.ones((2, 2), fnp.bfloat16)),
        DTypeError,
        "det: takes float32, float64, complex64 or complex128, operand 0 is bf16[2,2]",
    ),
    (
        lambda: lax.cholesky(x(2, 2, dtype=np.int32)),
        DTypeError,
        "cholesky: takes float32, float64, complex64 or complex128, operand 0 is i32[2,2]",
    ),
    (lambda: lax.qr(x(3)), ShapeError, "qr: operand 0 must be a matrix or a batch of matrices, got f32[3]"),
    (lambda: lax.eig(x(2, 3)), ShapeError, "eig: operand 0 must be square matrices, got 2 by 3 in f32[2,3]"),
    (lambda: untyped.slogdet(x(2, 2), method="x"), ParameterError, "slogdet: method 'x'"),
    (
        lambda: lax.eigh(x(2, 2), subset_by_index=(1, 3)),
        ParameterError,
        "eigh: subset_by_index (1, 3) of 2",
    ),
    (lambda: untyped.qr(x(2, 2), mode="x"), ParameterError, "qr: mode 'x'"),
    (lambda: L.eigh(x(2, 2), "X"), ParameterError, "eigh: UPLO 'X'"),
    (
        lambda: L.norm(x(2, 2), "z"),
        ParameterError,
        "matrix_norm: ord 'z' is not one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf",
    ),
    (lambda: L.norm(x(2), "fro"), ParameterError, "norm: ord 'fro' is one of matrices, and axis 0 makes vectors"),
    (
        lambda: L.norm(x(2, 2, 2), 1),
        ParameterError,
        "norm: ord 1 takes one axis or two, got axes (0, 1, 2) of f32[2,2,2]",
    ),
    (lambda: L.matrix_norm(x(2)), ShapeError, "matrix_norm: takes an array with at least two axes, got f32[2]"),
    (lambda: untyped.matrix_power(x(2, 2), 1.5), ArgumentError, "matrix_power: n must be an integer, got float 1.5"),
    (lambda: L.multi_dot([x(2, 2)]), ArgumentError, "multi_dot: takes at least two arrays, got 1"),
    (
        lambda: L.multi_dot([x(2, 2, 2), x(2, 2)]),
        ShapeError,
        "multi_dot: array 0 must be a matrix, and may be a vector first and last; got f32[2,2,2]",
    ),
    (lambda: L.cross(x(2), x(2)), ShapeError, "cross: vectors must have 3 elements, axis -1 of f32[2] has 2"),
    (
        lambda: L.tensorsolve(x(2, 3), x(3)),
        ShapeError,
        "tensorsolve: f32[2,3] does not map as many elements as f32[3] has to it",
    ),
    (lambda: L.tensorinv(x(2, 3), 1), ShapeError, "tensorinv: 2 elements before axis 1 of f32[2,3], 3 after"),
    (lambda: L.tensorinv(x(2, 2), 0), ParameterError, "tensorinv: ind must be positive, got 0"),
    (
        lambda: L.lu_solve((x(2, 2), np.zeros(2, np.int32)), x(2), 5),
        ParameterError,
        "lu_solve: trans must be 0, 1 or 2, got 5",
    ),
    (
        lambda: L.solve_triangular(x(2, 2), x(2), 7),
        ParameterError,
        "solve_triangular: trans must be 0, 1 or 2, got 7",
    ),
    (lambda: L.block_diag(), ArgumentError, "block_diag: takes at least one array"),
    (lambda: L.block_diag(x(2, 2, 2)), ShapeError, "block_diag: takes matrices, got f32[2,2,2]"),
    (
        lambda: L.lstsq(x(2, 2, 2), x(2)),
        ShapeError,
        "lstsq: takes a matrix and a vector or matrix with as many rows, got f32[2,2,2] and f32[2]",
    ),
    (
        lambda: lax.triangular_solve(x(2, 2), x(3, 3)),
        ShapeError,
        "triangular_solve: sizes differ: 2 by 2 matrices in f32[2,2], columns of f32[3,3]",
    ),
    (
        lambda: lax.triangular_solve(x(2, 2), x(2, 2, dtype=np.float64)),
        DTypeError,
        "triangular_solve: dtypes differ: operand 0 f32[2,2], operand 1 f64[2,2]",
    ),
    (
        lambda: lax.triangular_solve(x(2, 2, 2), x(3, 2, 2)),
        ShapeError,
        "triangular_solve: batch axes differ: operand 0 f32[2,2,2], operand 1 f32[3,2,2]",
    ),
    (
        lambda: lax.tridiagonal_solve(x(2), x(3), x(3), x(3, 1)),
        ShapeError,
        "tridiagonal_solve: operand 0 must have one element per row of operand 3, shape (3,), got f32[2]",
    ),
    (
        lambda: lax.householder_product(x(2, 3), x(2)),
        ShapeError,
        (
            "householder_product: 2 by 3 matrices in f32[2,3] and 2 reflections in f32[2]: "
            "needs rows >= columns >= reflections"
        ),
    ),
    (lambda: lax.ormqr(x(3, 3), x(), x(3, 3)), ShapeError, "ormqr: operand 1 must be vectors, got f32[]"),
    (
        lambda: lax.ormqr(x(2, 3), x(3), x(2, 2)),
        ShapeError,
        (
            "ormqr: 2 by 3 matrices in f32[2,3] and 3 reflections in f32[3]: "
            "needs rows >= reflections and columns >= reflections"
        ),
    ),
    (
        lambda: lax.ormqr(x(3, 3), x(2), x(2, 3)),
        ShapeError,
        "ormqr: sizes differ: reflections of 3 elements in f32[3,3], rows of f32[2,3]",
    ),
    (
        lambda: lax.ormqr(x(3, 3), x(2), x(2, 2), left=False),
        ShapeError,
        "ormqr: sizes differ: reflections of 3 elements in f32[3,3], columns of f32[2,2]",
    ),
    (
        lambda: lax.ormqr(x(2, 3, 3), x(2, 2), x(3, 3, 3)),
        ShapeError,
        "ormqr: batch axes differ: operand 0 f32[2,3,3], operand 2 f32[3,3,3]",
    ),
    (
        lambda: lax.lu_pivots_to_permutation(np.zeros(3, np.int32), 2),
        ParameterError,
        "lu_pivots_to_permutation: 3 exchanges of 2 rows in i32[3]",
    ),
    (
        lambda: lax.lu_pivots_to_permutation(x(3), 4),
        DTypeError,
        "lu_pivots_to_permutation: pivots must be int32, got f32[3]",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS, ids=[m.split(":")[0] for _, _, m in ERRORS])
def test_messages(call: Callable[[], object], kind: type[FxadError], message: str) -> None:
    with pytest.raises(kind) as e:
        call()
    assert e.value.message == message


def test_halves_say_what_to_do() -> None:
    with pytest.raises(DTypeError) as e:
        L.svdvals(x(2, 2, dtype=np.float16))
    assert e.value.remedy == "compute in float32: convert with astype('float32'), and the result back"


def test_platforms_without_a_function() -> None:
    called = custom_calls.custom_call_targets('stablehlo.custom_call ... call_target_name = "fxad_getrf_f64"')
    with pytest.raises(CompileError) as e:
        custom_calls.register_targets(called, "tpu")
    assert e.value.message == "compile: fxad_getrf_f64 has no implementation on tpu"
    custom_calls.register_targets(["somebody_elses"], "tpu")


_BESIDE = """
import sys
import numpy as np
a = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)
def ours():
    import fxad.numpy as fnp
    assert np.allclose(np.asarray(fnp.linalg.inv(a)) @ a, np.eye(2), atol=1e-5)
    assert np.allclose(np.asarray(fnp.linalg.eigvalsh(a)), np.linalg.eigvalsh(a), atol=1e-5)
def theirs():
    import jax.numpy as jnp
    assert np.allclose(np.asarray(jnp.linalg.inv(a)) @ a, np.eye(2), atol=1e-5)
    assert np.allclose(np.asarray(jnp.linalg.eigvalsh(a)), np.linalg.eigvalsh(a), atol=1e-5)
for turn in (ours, theirs, ours) if sys.argv[1] == "fxad" else (theirs, ours, theirs):
    turn()
"""


@pytest.mark.parametrize("first", ["fxad", "jax"])
def test_beside_jax(first: str) -> None:
    """Both libraries register LAPACK, in either order."""
    pytest.importorskip("jax")
    done = subprocess.run([sys.executable, "-c", _BESIDE, first], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.smoke
def test_every_routine() -> None:
    """Each LAPACK routine that fxad calls exists in the installed jaxlib."""
    a: Any = np.random.default_rng(0).standard_normal((3, 3))
    for dtype in (np.float32, np.float64, np.complex64, np.complex128):
        m: Any = a.astype(dtype)
        h = m @ m.conj().T + 3 * np.eye(3, dtype=dtype)
        line = np.full(3, 4, dtype)
        np.testing.assert_allclose(values_of(L.inv(m)) @ m, np.eye(3), atol=1e-4)
        np.testing.assert_allclose(values_of(L.cholesky(h)), np.linalg.cholesky(h), atol=1e-4)
        np.testing.assert_allclose(values_of(L.eigvalsh(h)), np.linalg.eigvalsh(h), rtol=1e-4)
        np.testing.assert_allclose(values_of(L.svdvals(m)), np.linalg.svdvals(m), rtol=1e-4)
        np.testing.assert_allclose(np.poly(values_of(L.eigvals(m))), np.poly(m), atol=1e-4)
        q, r = L.qr(m)
        np.testing.assert_allclose(values_of(q) @ values_of(r), m, atol=1e-4)
        b = values_of(lax.tridiagonal_solve(line * 0, line, line * 0, h))
        np.testing.assert_allclose(4 * b, h, rtol=1e-4)
