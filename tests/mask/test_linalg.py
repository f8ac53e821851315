"""Matrices of masked size: every decomposition, its derivative before and after mask, and singular matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.scipy import linalg as scipy
from fxad.transforms.mask.mask import mask
from fxad.transforms.specialize import size_names, specialize
from tests.mask.law import BAD, check, check_gradients, operand, padded
from tests.mask.test_mask import traced

Function = Callable[..., Any]
PADDING = {"n": 4, "m": 3}
SIZES = ({"n": 4, "m": 3}, {"n": 2, "m": 3}, {"n": 0, "m": 0}, {"n": 3, "m": 1})
L = fnp.linalg


def _eigh(a: Any) -> Any:
    w, v = L.eigh(a + a.T)
    return w, (v * fnp.sin(w)) @ v.T


def _one_triangle(a: Any) -> Any:
    w, v = lax.linalg.eigh(fnp.tril(a) + 3, lower=False, symmetrize_input=False)
    return (v * fnp.sin(w)) @ v.T, w


def _eig(a: Any) -> Any:
    w, v = L.eig(a + 4 * fnp.diag(fnp.arange(a.shape[0])))
    return fnp.real((v * fnp.sin(w)) @ L.inv(v))


def _qr(a: Any) -> Any:
    q, r = L.qr(a)
    return q @ r, abs(q), abs(r)


def _full_qr(a: Any) -> Any:
    return [abs(x) for x in L.qr(a, mode="complete")]


def _svd(a: Any) -> Any:
    u, s, vh = L.svd(a, full_matrices=False)
    return (u * fnp.sin(s)) @ vh


def _full_svd(a: Any) -> Any:
    u, s, vh = L.svd(a, full_matrices=True)
    return s, u @ u.T, vh @ vh.T


def _complex(a: Any) -> Any:
    z = a + 1j * a[::-1]
    u, s, vh = L.svd(z, full_matrices=False)
    q, r = L.qr(z)
    return abs((u * fnp.sin(s)) @ vh), abs(q @ r), L.eigvalsh(z + fnp.conj(z.T))


MATRICES: dict[str, tuple[Function, tuple[str, ...]]] = {
    "eigh": (_eigh, ("(n, n)", "(n*m, n*m)")),
    "eigh of one triangle": (_one_triangle, ("(n, n)",)),
    "eigenvalues of many": (lambda a: L.eigvalsh(a + fnp.swapaxes(a, 1, 2)), ("(m, n, n)",)),
    "eig": (_eig, ("(n, n)",)),
    "qr": (_qr, ("(n, n)", "(n+2, n)", "(n, n+2)", "(3, n)", "(n, 3)", "(n, m)")),
    "svd": (_svd, ("(n, n)", "(n+2, n)", "(n, n+2)", "(3, n)", "(n, 3)", "(n, m)")),
    "singular values": (lambda a: L.svdvals(a), ("(n, n)", "(n, m)")),
    "lu": (lambda a: lax.linalg.lu(a), ("(n, n)", "(n+2, n)", "(n, n+2)", "(n, m)", "(3, n)")),
    "pinv": (lambda a: L.pinv(a), ("(n>0, n+2)", "(n+2, n)")),
    "expm": (lambda a: scipy.expm(a * 0.5), ("(n, n)",)),
    "complex": (_complex, ("(n, n)",)),
    "full qr": (_full_qr, ("(n, n)", "(n+2, n)", "(n, n+2)", "(n, m)")),
    "full svd": (_full_svd, ("(n, n)", "(n+2, n)", "(n, n+2)", "(n, m)")),
    "eigenvalues": (lambda a: L.eigvals(a), ("(n, n)",)),
    "rank": (lambda a: L.matrix_rank(a), ("(n, m)",)),
}
VALUES_ONLY = {"full qr", "full svd", "eigenvalues", "rank", "complex"}


@pytest.mark.parametrize(("name", "shape"), [(k, s) for k, (_, shapes) in MATRICES.items() for s in shapes])
def test_decompositions(name: str, shape: str) -> None:
    program = traced(MATRICES[name][0], (shape,))
    least = {n.name: n.at_least for n in size_names(program.jaxpr)}
    for k, values in enumerate(SIZES):
        at = {n: max(v, least.get(n, 0)) for n, v in values.items()}
        check(program.jaxpr, PADDING, at, operand, BAD[k % len(BAD)], rtol=1e-3)
        if name not in VALUES_ONLY and (k < 2 or "min" not in str(program.jaxpr)):
            check_gradients(program.jaxpr, PADDING, at, operand, BAD[(k + 1) % len(BAD)])


def test_tridiagonal_systems() -> None:
    program = traced(lambda dl, d, du, b: lax.linalg.tridiagonal_solve(dl, d + 4, du, b), ("n", "n", "n", "(n, 2)"))
    for k, at in enumerate(SIZES):
        check(program.jaxpr, PADDING, at, operand, BAD[k])
        check_gradients(program.jaxpr, PADDING, at, operand, BAD[k])


@pytest.mark.parametrize("shape", ["(n, n)", "(n+2, n)", "(n, n+2)", "(n, m)"])
def test_vectors_of_singular_matrices_have_no_element_in_the_padding(shape: str) -> None:
    """The singular vectors of zero singular values have no elements in the padding."""
    program = traced(lambda a: L.svd(a, full_matrices=False), (shape,)).jaxpr
    own = sorted({n.name for n in size_names(program)})
    masked = mask(program, tuple([(n, PADDING[n]) for n in own]))
    at = {"n": 3, "m": 2}
    fixed = specialize(program, tuple([(n, at[n]) for n in own]))
    (aval,) = fixed.in_avals
    a = np.zeros(aval.shape, "float32")
    a[0] = 1
    actual = run(masked, [padded(a, masked.in_avals[0].shape, np.nan), *[np.asarray(at[n], "int32") for n in own]])
    u, s, vh = [np.asarray(x, "float64") for x in actual]
    k = min(a.shape)
    u, s, vh = u[: a.shape[0], :k], s[:k], vh[:k, : a.shape[1]]
    np.testing.assert_allclose((u * s) @ vh, a, atol=1e-5)
    np.testing.assert_allclose(u.T @ u, np.eye(k), atol=1e-5)
    np.testing.assert_allclose(vh @ vh.T, np.eye(k), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1.0, 1e8, 1e30])
def test_eigenvalues_of_any_size_stay_before_those_of_the_padding(scale: float) -> None:
    program = traced(lambda a: (L.eigvalsh(a + a.T), L.svdvals(a)), ("(n, n)",)).jaxpr
    masked, a = mask(program, (("n", 4),)), np.asarray(np.multiply(operand(0, (3, 3), "float32"), scale), "float32")
    have = run(masked, [padded(a, (4, 4), np.inf), np.asarray(3, "int32")])
    want = run(specialize(program, (("n", 3),)), [a])
    for x, y in zip(have, want, strict=True):
        np.testing.assert_allclose(np.asarray(x[:3], "float64"), np.asarray(y, "float64"), rtol=1e-4, atol=1e-5 * scale)


def test_matrices_of_zeros() -> None:
    """Their eigenvalues equal those of the padding."""
    program = traced(lambda a: (L.eigvalsh(a), L.svdvals(a), L.eigvals(a)), ("(n, n)",)).jaxpr
    masked = mask(program, (("n", 4),))
    for x in run(masked, [np.zeros((4, 4), "float32"), np.asarray(2, "int32")]):
        assert not np.asarray(x).any()


def test_an_order_that_is_not_decided_names_the_expression_the_line_and_the_assumption() -> None:
    program = traced(lambda a: L.qr(a, mode="complete")[1], ("(n, m)",))
    with pytest.raises(fx.errors.SizeError) as caught:
        fx.grad(fx.trace(lambda a: fnp.sum(program(a)), fx.Spec("(n, m)")))
    assert caught.value.message == "size: n > m is not decided by m >= 0, n >= 0"
    assert (
        caught.value.remedy
        == "name one size by the other, as in 'n+k' for m, or use fxad.numpy on the value of the size"
    )
    assert "test_linalg.py" in caught.value.where
