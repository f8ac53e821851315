"""Growth steps that apply decompositions to well-conditioned matrices made from any values.

A square x with bounded elements becomes D + x / scale with a diagonal D. It is diagonally dominant, so it is
invertible. The entries of D are far apart, so a symmetric matrix has distinct eigenvalues (Gershgorin's circles are
disjoint). Only unique results are used: not the signs of eigenvectors. They are computed nevertheless: the derivative
needs them, and LAPACK's values differ in the last bit without them.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.ir import Atom, Aval, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import Expm
from fxad.primitives.linalg.lu import Lu
from fxad.primitives.linalg.qr import Qr
from fxad.primitives.linalg.solve import Det, Slogdet, Solve
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.shape import Iota, Transpose
from fxad.testing.growth import Fact, Growth, up_to

_DTYPES: Final = frozenset({dtypes.float64, dtypes.float32})
_SMOOTH: Final = ("cholesky", "eigh", "qr", "svd", "triangular", "expm")
# these are functions of a matrix that take its factor too: their linear programs are not functions of the factor
_ALL: Final = ("solve", "det", "slogdet", *_SMOOTH)


def decomposition(g: Growth, x: Atom) -> None:
    """Decompose a matrix made from an existing value or a new one, and use the results."""
    dtype = x.aval.dtype if x.aval.dtype in _DTYPES else g.dtypes[0]
    n: int = g.draw(st.sampled_from([2, *g.sizes, 3, 1, 0]))
    square = Aval((n, n), dtype)
    a = _matrix(g, g.within(g.like(square), 1.5), symmetric=False)
    unknown = up_to(100)
    match g.draw(st.sampled_from(_SMOOTH if g.smooth else _ALL)):
        case "solve":
            b = g.within(g.like(Aval((n, 2), dtype)), 2.0)
            lu, pivots = g.builder(Lu(), g.builder.one(ew.STOP_GRADIENT, a))
            g.emit(up_to(8), Solve(g.draw(st.booleans())), a, lu, pivots, b)
        case "triangular":
            b = g.within(g.like(Aval((n, n), dtype)), 2.0)
            left, lower, transposed, unit = [bool(g.draw(st.booleans())) for _ in range(4)]
            g.emit(up_to(20), TriangularSolve(left, lower, transposed, False, unit), a, b)
        case "det" | "slogdet" as kind:
            lu, pivots = g.builder(Lu(), g.builder.one(ew.STOP_GRADIENT, a))
            for v in g.builder(Det() if kind == "det" else Slogdet(), a, lu, pivots):
                g.add(v, unknown)
        case "cholesky":
            g.emit(up_to(3), Cholesky(), _matrix(g, a, symmetric=True))
        case "eigh":
            _use_values(g, Eigh(True, True), a)
        case "qr":
            for v in g.builder(Qr(False), a):
                g.add(v, unknown)
        case "svd":
            _use_values(g, Svd(True, False), a)
        case _:
            g.emit(unknown, Expm(), _scaled(g, a, 0.2))


def _use_values(g: Growth, prim: Primitive, a: Atom) -> None:
    """Add the eigenvalues or singular values. Vectors are computed but unused: their signs differ between libraries."""
    values, *vectors = g.builder(prim, _matrix(g, a, symmetric=True))
    g.add(values, up_to(100))
    g.conventions.update(vectors)


def _scaled(g: Growth, x: Atom, by: float) -> Atom:
    fact = g.facts[x]
    return g.emit(Fact(by * fact.low, by * fact.high, False), ew.MUL, x, Lit.of(by, x.aval))


def _matrix(g: Growth, x: Atom, *, symmetric: bool) -> Atom:
    """Return D + x / scale, symmetric on request."""
    emit, aval = g.builder.one, x.aval
    n = aval.shape[0]
    rows, columns = [emit(Iota(aval.shape, dtypes.int32, k)) for k in (0, 1)]
    on = emit(ew.EQ, rows, columns)
    levels = emit(ew.ADD, emit(ew.ConvertElementType(aval.dtype), rows), Lit.of(1, aval))
    diagonal = emit(ew.SELECT_N, on, Lit.of(0, aval), levels)
    if symmetric:
        x = emit(ew.ADD, x, emit(Transpose((1, 0)), x))
        size = 2 * max(1.0, g.facts.get(x, up_to(5)).size)
    else:
        size = max(1.0, g.facts[x].size)
    small = emit(ew.MUL, x, Lit.of(0.3 / (size * max(g.most(n), 1)), aval))
    return g.emit(up_to(4), ew.ADD, diagonal, small)
