"""Structure of the matrices that a program computes: triangular, unitary, or an exponential.

Only structure that holds for every value counts. A matrix is triangular if a mask that depends only on indices (`tril`,
`eye`) makes it so, if a decomposition returns it, or if it is composed of triangular matrices. For example, tril(a) +
eye(n) * d is lower triangular: `tril` chooses by a mask of indices, a product with the matrix `eye(n)` is triangular,
and so is a sum of two lower triangular matrices.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Eqn, Lit, NDArray, Primitive, Var
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.elementwise.arithmetic import Add, Div, Mul, Neg, Sub
from fxad.primitives.elementwise.complex_parts import Conj
from fxad.primitives.elementwise.convert import ConvertElementType, StopGradient
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.linalg.cholesky import Cholesky
from fxad.primitives.linalg.eigh import Eigh
from fxad.primitives.linalg.expm import Expm
from fxad.primitives.linalg.qr import Qr
from fxad.primitives.linalg.svd import Svd
from fxad.primitives.marks import MARKS
from fxad.primitives.shape import BroadcastInDim, Iota, Transpose
from fxad.primitives.sharding_constraint import ShardingConstraint
from fxad.transforms.inversion.rules.contract import InverseCtx

LOWER: Final = "lower"
UPPER: Final = "upper"
UNITARY: Final = "unitary"

_LARGEST: Final = 1 << 22  # elements of the largest mask that is evaluated
_DEPTH: Final = 8  # the number of equations that are followed back

_SAME: Final = (*MARKS, StopGradient, OptimizationBarrier, ShardingConstraint)  # their results are their operands
_ENTRYWISE: Final = (Add, Sub, Mul, Div, Neg, ConvertElementType)
# evaluated while the program is inverted, if their operands are constants
_EVALUATED: Final = (Iota, Compare, Add, Sub, BroadcastInDim, ConvertElementType, SelectN, Transpose)


@final
@dataclass(frozen=True, slots=True)
class MatrixStructure:
    """The known structure of the matrices on the last two axes of an array."""

    kinds: frozenset[str] = frozenset()
    exponent: Atom | None = None  # the matrix is the exponential of this one

    @property
    def transposed(self) -> MatrixStructure:
        """The structure of the transposes."""
        other = {LOWER: UPPER, UPPER: LOWER}
        return MatrixStructure(frozenset([other.get(k, k) for k in self.kinds]))


NO_STRUCTURE: Final = MatrixStructure()


def structure_of(ctx: InverseCtx, a: Atom, depth: int = _DEPTH) -> MatrixStructure:
    """Return the structure of the square matrices on the last two axes of a known operand."""
    n = a.aval.ndim
    if n < 2 or a.aval.shape[-1] != a.aval.shape[-2]:
        return NO_STRUCTURE
    if isinstance(a, Lit):
        return MatrixStructure(frozenset({LOWER, UPPER})) if not any(a.bits) else NO_STRUCTURE
    eqn = ctx.producer(a)
    return NO_STRUCTURE if eqn is None or not depth else _structure_of_result(ctx, a, eqn, depth - 1)


def _structure_of_result(ctx: InverseCtx, a: Var, eqn: Eqn, depth: int) -> MatrixStructure:
    prim = eqn.prim
    if isinstance(prim, _SAME):
        return structure_of(ctx, eqn.ins[eqn.outs.index(a)], depth)
    if isinstance(prim, _ENTRYWISE):
        return MatrixStructure(frozenset([k for k in (LOWER, UPPER) if _keeps_triangle(ctx, eqn, k, depth)]))
    if isinstance(prim, SelectN):
        return MatrixStructure(_triangles_of_choice(ctx, eqn, depth))
    if isinstance(prim, Transpose):
        n = a.aval.ndim
        swapped = prim.perm == (*range(n - 2), n - 1, n - 2)
        return structure_of(ctx, eqn.ins[0], depth).transposed if swapped else NO_STRUCTURE
    if isinstance(prim, Conj):
        return MatrixStructure(structure_of(ctx, eqn.ins[0], depth).kinds)
    if isinstance(prim, BroadcastInDim):
        (x,), last = eqn.ins, (a.aval.ndim - 2, a.aval.ndim - 1)
        stacked = prim.dims[-2:] == last and x.aval.shape[-2:] == a.aval.shape[-2:]  # the matrix axes are not broadcast
        return MatrixStructure(structure_of(ctx, x, depth).kinds) if stacked else NO_STRUCTURE
    return _decomposed(a, eqn, prim)


def _decomposed(a: Var, eqn: Eqn, prim: Primitive) -> MatrixStructure:
    """Return the structure of the factors of decompositions. The matrix is square, so Q, U and V are unitary."""
    at = eqn.outs.index(a)
    match prim:
        case Cholesky():
            return MatrixStructure(frozenset({LOWER}))
        case Qr():
            return MatrixStructure(frozenset({UPPER if at else UNITARY}))
        case Eigh() | Svd() if at:
            return MatrixStructure(frozenset({UNITARY}))
        case Expm():
            return MatrixStructure(exponent=eqn.ins[0])
        case _:
            return NO_STRUCTURE


# --------------------------------------------------------------------------------------------------------- triangles


def _keeps_triangle(ctx: InverseCtx, eqn: Eqn, kind: str, depth: int) -> bool:
    """Return True if the result is triangular: a sum of triangular matrices, a product of one with any array
    elementwise, or one divided by any array."""
    triangles = [_is_triangle(ctx, x, kind, depth) for x in eqn.ins]
    if isinstance(eqn.prim, Div):
        return triangles[0]
    return any(triangles) if isinstance(eqn.prim, Mul) else all(triangles)


def _is_triangle(ctx: InverseCtx, a: Atom, kind: str, depth: int) -> bool:
    """Return True if all elements on the other side of the diagonal are zero."""
    if kind in structure_of(ctx, a, depth).kinds:
        return True
    value = static(ctx, a)
    return value is not None and not _beyond_diagonal(value, kind).any()


def _beyond_diagonal(x: NDArray, kind: str) -> NDArray:
    return np.triu(x, 1) if kind == LOWER else np.tril(x, -1)


def _triangles_of_choice(ctx: InverseCtx, eqn: Eqn, depth: int) -> frozenset[str]:
    """Return the kinds of triangle that a choice by a mask makes: all cases that it can choose on the other side of
    the diagonal are zero there."""
    selector, *cases = eqn.ins
    mask = static(ctx, selector)
    if mask is None:
        return frozenset([k for k in (LOWER, UPPER) if all([_is_triangle(ctx, c, k, depth) for c in cases])])
    chosen = np.clip(mask.astype(np.int64), 0, len(cases) - 1)
    return frozenset(
        [
            kind
            for kind in (LOWER, UPPER)
            if all([_is_triangle(ctx, c, kind, depth) for c in [cases[j] for j in _cases_beyond(chosen, kind)]])
        ]
    )


def _cases_beyond(chosen: NDArray, kind: str) -> list[int]:
    """Return the cases that are chosen on the other side of the diagonal."""
    n = chosen.shape[-1]
    side = np.broadcast_to(_beyond_diagonal(np.ones((n, n), np.bool_), kind), chosen.shape)
    return [int(k) for k in np.unique(chosen[side])]


def static(ctx: InverseCtx, a: Atom, depth: int = _DEPTH) -> NDArray | None:
    """Return the value of an array that depends only on indices and constants; None for others, and for arrays of
    symbolic shape."""
    if a.aval.symbolic:
        return None
    if isinstance(a, Lit):
        return a.array
    eqn = ctx.producer(a)
    if eqn is None or not depth or a.aval.size > _LARGEST or not isinstance(eqn.prim, _EVALUATED):
        return None
    operands = [static(ctx, x, depth - 1) for x in eqn.ins]
    values = [x for x in operands if x is not None]
    if len(values) < len(operands):
        return None
    return np.asarray(eqn.prim.impl(*values)[eqn.outs.index(a)])
