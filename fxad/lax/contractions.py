"""Contractions as functions: sums of products over axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxad import dtypes
from fxad.errors import ParameterError, shown
from fxad.ir import Atom, Atoms, Emit
from fxad.operations import contractions
from fxad.operations.arguments import to_ints, to_tuple
from fxad.operations.precision import (
    ALGORITHMS,
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
    Precision as Precision,
    PrecisionLike as PrecisionLike,
    precise,
    to_precision,
)
from fxad.operations.promotion import optional_dtype
from fxad.primitives.dot import DotGeneral
from fxad.tracing.array import Array, ArrayLike, aval_of, binder

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the sum of products over contracting axes, for each index of the batch axes.

    Type: `dimension_numbers` is ((lhs contracting, rhs contracting), (lhs batch, rhs batch)). The result has the batch
          axes, then the free axes of lhs, then those of rhs. Of bools the sum is their disjunction.
    """
    op, what = "dot_general", "dimension_numbers"
    pairs = [to_tuple(op, what, p) for p in to_tuple(op, what, dimension_numbers)]
    if [len(p) for p in pairs] != [2, 2]:
        raise ParameterError(
            f"dot_general: dimension_numbers {shown(dimension_numbers)} is not a pair of pairs",
            remedy="write ((lhs contracting, rhs contracting), (lhs batch, rhs batch))",
        )
    axes = [to_ints(op, what, a) for pair in pairs for a in pair]
    preferred = optional_dtype(preferred_element_type)
    prim = DotGeneral(axes[0], axes[1], axes[2], axes[3], preferred)
    how = to_precision(op, precision, algorithms=True)
    if {aval_of(x).dtype for x in (lhs, rhs)} == {dtypes.bool_}:
        return binder().apply(contractions.dot_of_bools, (lhs, rhs), (replace(prim, preferred=None), preferred))[0]
    if how in ALGORITHMS:
        return binder().apply(precise, (lhs, rhs), (prim, _dot_general, how))[0]
    return binder().bind(replace(prim, precision=how), (lhs, rhs))[0]


def _dot_general(emit: Emit, lhs: Atom, rhs: Atom, prim: DotGeneral) -> Atoms:
    return emit(prim, lhs, rhs)


def dot(
    lhs: ArrayLike, rhs: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: object = None
) -> Array:
    """Return the product of vectors or matrices: the sum over the last axis of lhs and the first of rhs."""
    return _matmul("dot", lhs, rhs, precision, optional_dtype(preferred_element_type))


def _matmul(op: str, lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike, preferred: dtypes.DType | None) -> Array:
    how = to_precision(op, precision, algorithms=True)
    if not how:
        return binder().apply(contractions.matmul, (lhs, rhs), (preferred,))[0]
    return binder().apply(precise, (lhs, rhs), (preferred, contractions.matmul, how))[0]


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Return the matrix product over the last two axes; all axes before them are batch axes. Operands promote, and
    batch axes broadcast."""
    return _matmul("batch_matmul", lhs, rhs, precision, None)
