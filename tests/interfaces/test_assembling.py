"""Functions that join, split and rearrange arrays, against NumPy; sets; grids; files."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError, TracerError
from tests.interfaces.oracle import Value, check, close, same, traced

RNG = np.random.default_rng(0)
P, M, A = RNG.normal(size=4), RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3, 4))


# ----------------------------------------------------------------------------------------------- together and apart


def test_joining() -> None:
    for x in (np.array(3.0), P, M, A):
        same("atleast_3d", x)
        check(lambda x: fnp.dstack([x, x]), lambda x: np.dstack([x, x]), x)
    check(lambda m: fnp.block([[m, m], [m * 2, m]]), lambda m: np.block([[m, m], [m * 2, m]]), M)
    check(lambda p: fnp.block([p, 1.0]), lambda p: np.block([p, 1.0]), P)
    check(lambda a: fnp.block([[a, a]]), lambda a: np.block([[a, a]]), A)
    same("block", P)
    check(lambda x, y: fnp.block([[x], [y]]), lambda x, y: np.block([[x], [y]]), M, M[:1])


def test_splitting() -> None:
    same("hsplit", A, indices_or_sections=3)
    same("hsplit", P, indices_or_sections=2)
    same("vsplit", M, indices_or_sections=(1,))
    same("dsplit", A, indices_or_sections=(1, 3))
    for trim in ("fb", "f", "b"):
        for x in (np.array([0, 0, 1, 0, 2, 0]), np.zeros(3)):
            close(fnp.trim_zeros(x, trim), np.trim_zeros(x, trim))


def test_turned_and_moved() -> None:
    for k in range(-2, 6):
        same("rot90", A, k=k)
        same("rot90", A, k=k, axes=(2, 0))
    for axis in range(3):
        for start in range(-3, 4):
            same("rollaxis", A, axis=axis, start=start)
    for shape in ((3, 5), 4, 0, (2, 0)):
        same("resize", M, new_shape=shape)
    same("resize", M[:0], new_shape=(2, 2))
    same("diagflat", M, k=1)
    for ours, theirs in zip(fnp.mask_indices(3, fnp.triu, 1), np.mask_indices(3, np.triu, 1), strict=True):
        close(ours, theirs, dtype=False)


def test_products() -> None:
    for a, b in ((M, A), (P, M), (np.array(2.0), M)):
        same("kron", a, b)
    close(fx.grad(lambda p: fnp.kron(p, P).sum())(fnp.asarray(P)), np.full(4, P.sum()))
    same("cross", M, M[::-1].copy())
    same("cross", M[0], M)
    same("cross", A, A[:, ::-1].copy(), axis=1)
    same("cross", A, A, axisa=1, axisb=1, axisc=0)
    check(lambda a, b: fnp.cross(a, b), lambda a, b: a[0] * b[1] - a[1] * b[0], P[:2], P[2:])
    check(lambda a, b: fnp.cross(a, b), lambda a, b: np.cross(np.append(a, 0), b), P[:2], M[0])
    same("matvec", A, P)
    same("vecmat", M[:, 0] + 1j, A[0, :2])
    path, account = fnp.einsum_path("ij,jk,kl->il", M, A[0], A[0].T)
    assert path[0] == "einsum_path"
    assert len(path) == 3
    assert "scaling" in account


# ------------------------------------------------------------------------------------------------------------- sets

SETS = hnp.arrays(np.int32, st.integers(1, 8), elements=st.integers(0, 5))


@given(st.sampled_from(["union1d", "intersect1d", "setdiff1d", "setxor1d"]), SETS, SETS)
def test_sets(name: str, x: Value, y: Value) -> None:
    want = getattr(np, name)(x, y)
    close(getattr(fnp, name)(x, y), want, dtype=False)
    for size in (0, 2, len(want) + 2):
        filled = np.concatenate([want, np.full(9, 99)])[:size]
        close(
            traced(lambda a, b, n=size: getattr(fnp, name)(a, b, size=n, fill_value=99), x, y)[1][0],
            filled,
            dtype=False,
        )
        again = np.concatenate([want, np.full(9, want[0] if want.size else 0)])[:size]
        close(traced(lambda a, b, n=size: getattr(fnp, name)(a, b, size=n), x, y)[1][0], again, dtype=False)


def test_sets_with_indices() -> None:
    x, y = np.array([3, 1, 1, 5]), np.array([5, 3, 5])
    for ours, theirs in zip(
        fnp.intersect1d(x, y, return_indices=True), np.intersect1d(x, y, return_indices=True), strict=True
    ):
        close(ours, theirs, dtype=False)
    found = fx.jit(lambda a, b: fnp.intersect1d(a, b, return_indices=True, size=3))(x, y)
    for ours, want in zip(found, ([3, 5, 3], [0, 3, 4], [1, 0, 3]), strict=True):
        close(ours, want, dtype=False)
    nans = np.array([np.nan, 1, np.nan])
    close(fnp.union1d(nans, nans, size=3, fill_value=-1), [1, np.nan, -1])


# ------------------------------------------------------------------------------------------------------------ grids


@pytest.mark.parametrize(
    "written",
    [
        lambda n: n.mgrid[0:2, 1:4],
        lambda n: n.mgrid[0:1:3j, 0:3],
        lambda n: n.mgrid[0:5:2],
        lambda n: n.ogrid[0:2, 1:4:2],
        lambda n: n.mgrid[:],
        lambda n: n.r_[:, 1:3],
        lambda n: n.r_[P, 0, 3:6],
        lambda n: n.r_[0:1:5j],
        lambda n: n.r_["0,2", P, P],
        lambda n: n.r_["0,2,0", P, P],
        lambda n: n.r_["1,2,0", P, P],
        lambda n: n.r_["-1", M, M],
        lambda n: n.r_["0,3", M, M],
        lambda n: n.r_["1,3,1", M, M],
        lambda n: n.r_["r", P, 0],
        lambda n: n.r_["c", P, 0],
        lambda n: n.r_["c", M, M],
        lambda n: n.c_[P, P],
        lambda n: n.c_[M, M[:, :1]],
        lambda n: n.c_[P, np.ones((4, 2))],
    ],
)
def test_grids(written: Callable[[Any], Any]) -> None:
    ours, theirs = written(fnp), written(np)
    for a, b in zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]:
        close(a, b, dtype=False)


def test_index_expressions() -> None:
    assert fnp.s_[1:, None] == (slice(1, None), None)
    assert fnp.index_exp[2:3] == (slice(2, 3),)
    assert repr(fnp.mgrid) == "fxad.numpy.mgrid"
    assert repr(fnp.s_) == "fxad.numpy.s_"
    assert fnp.r_[np.ones(1, np.float32), 2.5].dtype == np.float32
    close(fx.jit(lambda p: fnp.r_[p, 0.0, p])(P), np.r_[P, 0, P])


def test_equal_factors() -> None:
    ends = np.array([1.0, 2])
    check(lambda b: fnp.logspace(np.float64(0), b, 5), lambda b: np.logspace(0.0, b, 5), ends)
    check(
        lambda b: fnp.logspace(np.float64(0), b, 4, base=2.0, endpoint=False, axis=1),
        lambda b: np.logspace(0.0, b, 4, base=2.0, endpoint=False, axis=1),
        ends,
    )
    for num in (0, 1, 2, 5):
        for endpoint in (False, True):
            check(
                lambda b, n=num, e=endpoint: fnp.geomspace(np.float64(-1), b, n, endpoint=e, axis=-1),
                lambda b, n=num, e=endpoint: np.geomspace(-1.0, b, n, endpoint=e, axis=-1),
                np.array([-1000.0, -8]),
            )
    check(lambda b: fnp.geomspace(1 + 0j, b, 5), lambda b: np.geomspace(1 + 0j, b, 5), np.array(16j))
    assert fnp.logspace(0, 2, 3, dtype=int).tolist() == [1, 10, 100]
    slope = fx.grad(lambda b: fnp.geomspace(np.float64(1), b, 3)[1])(fnp.asarray(4.0, "float64"))
    close(slope, np.float64(0.25))


# ------------------------------------------------------------------------------------------------------------ files


def test_files(tmp_path: Path) -> None:
    file = io.BytesIO()
    fnp.savez(file, M, p=fnp.asarray(P))
    file.seek(0)
    found = fnp.load(file)
    close(found["arr_0"], M)
    close(found["p"], P)
    fnp.save(tmp_path / "x.npy", fnp.asarray(A))
    close(fnp.load(tmp_path / "x.npy", allow_pickle=False), A)
    (tmp_path / "bytes").write_bytes(b"abcd")
    close(fnp.fromfile(tmp_path / "bytes", "uint8"), np.frombuffer(b"abcd", np.uint8))
    close(fnp.frombuffer(b"abcd", "uint8", 2, 1), np.frombuffer(b"bc", np.uint8))
    close(fnp.fromiter(range(3), int), np.arange(3, dtype=np.int32))
    close(fnp.fromstring("1 2.5", sep=" "), np.array([1, 2.5], np.float32))


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda: fnp.block([[M], M]), ParameterError, "block: lists nested 0 and 1 deep beside each other"),
        (lambda: fnp.block([]), ParameterError, "block: an empty list"),
        (lambda: fnp.vsplit(P, 2), ShapeError, "vsplit: takes an array with at least 2 axes, got f64[4]"),
        (lambda: fnp.hsplit(P, 3), ShapeError, "split: axis 0 of size 4 does not divide into 3 equal parts"),
        (lambda: fnp.rot90(A, 1, cast("Any", (0, 1, 2))), ParameterError, "rot90: axes (0, 1, 2) must be two"),
        (lambda: fnp.rollaxis(A, 0, 4), ParameterError, "rollaxis: start 4 is out of range for f64[2,3,4]"),
        (lambda: fx.jit(fnp.trim_zeros)(P), TracerError, "slice the array where you know it to be zero"),
        (lambda: fnp.trim_zeros(np.float32(3)), ParameterError, "trim_zeros: takes an array with axes"),
        (lambda: fnp.cross(P, P), ShapeError, "cross: vectors must have 2 or 3 elements, those of argument 0 have 4"),
        (lambda: fnp.matvec(P, P), ShapeError, "matvec: takes matrices and vectors, got f64[4] and f64[4]"),
        (lambda: fx.jit(fnp.union1d)(P, P), TracerError, "say size=: the result then has so many elements"),
        (lambda: fnp.mgrid[cast("Any", 1)], ArgumentError, "mgrid: takes slices, got"),
        (lambda: fnp.ogrid[1:], ParameterError, "ogrid: slice(1, None, None) has no end"),
        (lambda: fnp.r_["x", P], ParameterError, "r_: 'x' does not say an axis"),
        (lambda: fnp.geomspace(0, 1), ParameterError, "geomspace: argument 0 is 0"),
        (lambda: fnp.load("x", allow_pickle=True), ParameterError, "load: allow_pickle is True, and pickles run code"),
        (lambda: fnp.save("x", fnp.ones(2, "bfloat16")), DTypeError, "save: .npy files have no name for bfloat16"),
        (lambda: fx.jit(lambda x: fnp.save(io.BytesIO(), x))(P), TracerError, "save what the traced function returns"),
    ],
)  # fmt: skip
def test_refusals(fn: Any, error: type[FxadError], message: str) -> None:
    with pytest.raises(error) as caught:
        fn()
    assert message in str(caught.value)
