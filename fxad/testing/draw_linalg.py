"""Draws applications of products, Fourier transforms and decompositions.

Matrices are random, so they are almost surely invertible, with distinct eigenvalues and distinct singular values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Aval, Primitive, Shape
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.family import FLOAT32_OR_64
from fxad.primitives.fft import KINDS, Fft
from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eig import Eig
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import Expm, ExpmFrechet
from fxad.primitives.linalg.family import TAKES
from fxad.primitives.linalg.lu import Lu, LuPivotsToPermutation
from fxad.primitives.linalg.qr import Geqrf, HouseholderProduct, Ormqr, Qr
from fxad.primitives.linalg.reduction import ColumnPivots, Tridiagonalize
from fxad.primitives.linalg.schur import Schur
from fxad.primitives.linalg.solve import Det, Pinv, Slogdet, Solve
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linalg.tridiagonal import TridiagonalSolve
from fxad.testing.applications import DrawnOperands, DrawOperands, dtype_of, dtypes_of_product
from fxad.testing.values import ORDINARY, Domain, shapes

_REAL: Final = TAKES & dtypes.FLOATING
_SIZES: Final = st.sampled_from([2, 1, 3, 0])
# Away from 0, so that systems are well conditioned: pivots, diagonals.
_APART: Final = Domain(0.5, 2.0, signs=True)


def _constant(prim: Primitive) -> Callable[..., Primitive]:
    return lambda *_: prim


def _batch(draw: st.DrawFn) -> Shape:
    return draw(shapes(1, sizes=(2, 1, 0)))


def _square_matrices(
    prim: Callable[[st.DrawFn], Primitive], domain: Domain = ORDINARY, smooth_in: frozenset[DType] = TAKES
) -> DrawOperands:
    """Draw square matrices. `smooth_in` are the dtypes with unique results, for which finite differences give the
    derivative."""

    def specs(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
        n = draw(_SIZES)
        dtype = dtype_of(draw, smooth_in if smooth else TAKES, smooth)
        return prim(draw), [(Aval((*_batch(draw), n, n), dtype), domain)]

    return specs


def _any_matrices(
    prim: Callable[[st.DrawFn, int, int, bool], Primitive], smooth_in: frozenset[DType] = TAKES
) -> DrawOperands:
    """Draw matrices of any number of rows and columns."""

    def specs(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
        m, n = draw(_SIZES), draw(_SIZES)
        dtype = dtype_of(draw, smooth_in if smooth else TAKES, smooth)
        return prim(draw, m, n, smooth), [(Aval((*_batch(draw), m, n), dtype), ORDINARY)]

    return specs


def _triangular_solve(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    flags = [draw(st.booleans()) for _ in range(5)]
    batch, n, m, dtype = _batch(draw), draw(_SIZES), draw(_SIZES), dtype_of(draw, TAKES, smooth)
    b = (n, m) if flags[0] else (m, n)
    return TriangularSolve(*flags), [
        (Aval((*batch, n, n), dtype), _APART),
        (Aval((*batch, *b), dtype), ORDINARY),
    ]


def _tridiagonal_solve(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    batch, n, m, dtype = _batch(draw), draw(_SIZES), draw(_SIZES), dtype_of(draw, TAKES, smooth)
    small, large = Domain(-0.5, 0.5), Domain(2.0, 3.0, signs=True)
    line = Aval((*batch, n), dtype)
    return TridiagonalSolve(), [(line, small), (line, large), (line, small), (Aval((*batch, n, m), dtype), ORDINARY)]


def _lu_pivots_to_permutation(draw: st.DrawFn, _: bool) -> DrawnOperands:
    size = draw(st.integers(0, 4))
    k = draw(st.integers(0, size))
    pivots = Aval((*_batch(draw), k), dtypes.int32)
    return LuPivotsToPermutation(size, draw(st.booleans())), [(pivots, Domain(whole=(0, max(size - 1, 0))))]


def _factors(draw: st.DrawFn, dtype: DType) -> tuple[Shape, int, list[tuple[Aval, Domain]]]:
    """Draw a matrix and factors that need not be its own: values depend on the factors, derivatives on the matrix."""
    batch, n = _batch(draw), draw(_SIZES)
    a = Aval((*batch, n, n), dtype)
    pivots = Aval((*batch, n), dtypes.int32), Domain(whole=(0, max(n - 1, 0)))
    return batch, n, [(a, ORDINARY), (a, _APART), pivots]


def _solve(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    dtype = dtype_of(draw, TAKES, smooth)
    batch, n, known = _factors(draw, dtype)
    return Solve(draw(st.booleans())), [*known, (Aval((*batch, n, draw(_SIZES)), dtype), ORDINARY)]


def _determinant(kind: type[Slogdet | Det]) -> DrawOperands:
    def specs(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
        return kind(), _factors(draw, dtype_of(draw, TAKES, smooth))[2]

    return specs


def _pinv(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    batch, m, n, dtype = _batch(draw), draw(_SIZES), draw(_SIZES), dtype_of(draw, TAKES, smooth)
    return Pinv(), [(Aval((*batch, m, n), dtype), ORDINARY), (Aval((*batch, n, m), dtype), ORDINARY)]


def _householder_product(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    batch, n = _batch(draw), draw(_SIZES)
    m, k, dtype = n + draw(st.integers(0, 2)), draw(st.integers(0, n)), dtype_of(draw, TAKES, smooth)
    return HouseholderProduct(), [(Aval((*batch, m, n), dtype), ORDINARY), (Aval((*batch, k), dtype), ORDINARY)]


def _ormqr(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    batch, m, n, p = _batch(draw), draw(_SIZES), draw(_SIZES), draw(_SIZES)
    k, dtype, left = draw(st.integers(0, min(m, n))), dtype_of(draw, TAKES, smooth), draw(st.booleans())
    shapes = (*batch, m, n), (*batch, k), (*batch, *((m, p) if left else (p, m)))
    return Ormqr(left, draw(st.booleans())), [(Aval(s, dtype), ORDINARY) for s in shapes]


def _qr(draw: st.DrawFn, m: int, n: int, smooth: bool) -> Primitive:
    return Qr(draw(st.booleans()) and not (smooth and m > n))


def _svd(draw: st.DrawFn, m: int, n: int, smooth: bool) -> Primitive:
    vectors = draw(st.booleans())
    return Svd(vectors, vectors and draw(st.booleans()) and not (smooth and m != n))


def _expm_frechet(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    n, dtype = draw(_SIZES), dtype_of(draw, TAKES, smooth)
    a = Aval((*_batch(draw), n, n), dtype)
    return ExpmFrechet(), [(a, ORDINARY), (a, ORDINARY)]


def _dot_general(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    sizes = st.sampled_from([2, 1, 3, 0])
    batch, contract = draw(st.lists(sizes, max_size=2)), draw(st.lists(sizes, max_size=2))
    sides = []
    for _ in range(2):
        free = draw(st.lists(sizes, max_size=2))
        parts = [*batch, *contract, *free]
        order = draw(st.permutations(range(len(parts))))
        at = [order.index(k) for k in range(len(parts))]
        sides.append((tuple([parts[k] for k in order]), at))
    (left, i), (right, j) = sides
    n, m = len(batch), len(batch) + len(contract)
    dtype, preferred = dtypes_of_product(draw, smooth)
    precision = draw(st.sampled_from(["", "highest"]))
    prim = DotGeneral(tuple(i[n:m]), tuple(j[n:m]), tuple(i[:n]), tuple(j[:n]), preferred, precision)
    return prim, [(Aval(left, dtype), ORDINARY), (Aval(right, dtype), ORDINARY)]


def _fft(draw: st.DrawFn, smooth: bool) -> DrawnOperands:
    kind = draw(st.sampled_from(KINDS))
    lengths = tuple(draw(st.lists(st.sampled_from((2, 1, 3, 4, 5)), min_size=1, max_size=3)))
    last = lengths[-1] // 2 + 1 if kind == "IRFFT" else lengths[-1]
    shape = (*draw(shapes(2)), *lengths[:-1], last)
    return Fft(kind, lengths), [
        (Aval(shape, dtype_of(draw, FLOAT32_OR_64 if kind == "RFFT" else dtypes.COMPLEX, smooth)), ORDINARY)
    ]


OWN: Final[Mapping[type[Primitive], DrawOperands]] = MappingProxyType(
    {
        DotGeneral: _dot_general,
        Fft: _fft,
        Cholesky: _square_matrices(_constant(Cholesky()), Domain(ridge=20.0)),
        TriangularSolve: _triangular_solve,
        TridiagonalSolve: _tridiagonal_solve,
        Lu: _any_matrices(_constant(Lu())),
        LuPivotsToPermutation: _lu_pivots_to_permutation,
        Solve: _solve,
        Slogdet: _determinant(Slogdet),
        Det: _determinant(Det),
        Pinv: _pinv,
        Geqrf: _any_matrices(_constant(Geqrf())),
        HouseholderProduct: _householder_product,
        Ormqr: _ormqr,
        Qr: _any_matrices(_qr),
        ColumnPivots: _any_matrices(_constant(ColumnPivots())),
        Tridiagonalize: _square_matrices(lambda draw: Tridiagonalize(draw(st.booleans()))),
        Eigh: _square_matrices(lambda draw: Eigh(draw(st.booleans()), draw(st.booleans())), smooth_in=_REAL),
        # vectors of LAPACK and of NumPy differ in signs, and those of tangents in phases: tests/primitives
        Eig: _square_matrices(_constant(Eig(False, False))),
        Schur: _square_matrices(lambda draw: Schur(draw(st.booleans()))),
        Svd: _any_matrices(_svd, _REAL),
        Expm: _square_matrices(_constant(Expm()), Domain(-4.0, 4.0)),
        ExpmFrechet: _expm_frechet,
    }
)
