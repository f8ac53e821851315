"""The base class and checks of linear algebra primitives: matrices on the last two axes, all other axes are batch axes.

Operands of one primitive have one dtype, float32, float64, complex64 or complex128, and the same batch axes. So one
batching rule serves all: it moves the mapped axis to the front.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import Atom, Atoms, Aval, BatchCtx, Dims, Emit, NDArray, Primitive, Shape
from fxad.primitives.families import LinearInOne
from fxad.primitives.shape import align_batch_axes

TAKES: Final = frozenset({dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128})
_HALVES: Final = dtypes.FLOATING - TAKES


class Matrixwise(Primitive):
    """A primitive that acts on each matrix of a batch."""

    __slots__ = ()

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        outs = ctx(self, *align_batch_axes(ctx, args, dims))
        return outs, (0,) * len(outs)


class LinearSystem(LinearInOne):
    """The X with A X = B, as a function of operands that determine A, and of B, which is the last one."""

    __slots__ = ()

    @abstractmethod
    def right_hand_side(self, emit: Emit, matrix: Atoms, x: Atom) -> Atom:
        """Return B = A X. `matrix` are the operands before B."""


# ------------------------------------------------------------------------------------------------------------ types


def check_lapack_dtype(name: str, *avals: Aval) -> None:
    """Check that the operands have one dtype, which LAPACK supports. Raises: DTypeError."""
    for k, a in enumerate(avals):
        if a.dtype not in TAKES:
            remedy = "convert it with astype first"
            if a.dtype in _HALVES:
                remedy = "compute in float32: convert with astype('float32'), and the result back"
            raise DTypeError(
                f"{name}: takes float32, float64, complex64 or complex128, operand {k} is {a}", remedy=remedy
            )
        if a.dtype != avals[0].dtype:
            raise DTypeError(
                f"{name}: dtypes differ: operand 0 {avals[0]}, operand {k} {a}",
                remedy="convert the operands to one dtype first",
            )


def matrix_shape(name: str, x: Aval, what: str = "operand 0") -> tuple[Shape, int, int]:
    """Batch axes, rows and columns of an operand of a primitive, or of an argument of a function (`what`).

    Raises: ShapeError when it has fewer than two axes.
    """
    if x.ndim < 2:
        raise ShapeError(f"{name}: {what} must be a matrix or a batch of matrices, got {x}")
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def square_shape(name: str, x: Aval, what: str = "operand 0") -> tuple[Shape, int]:
    """Batch axes and size of square matrices. Raises: ShapeError."""
    batch, m, n = matrix_shape(name, x, what)
    if m != n:
        raise ShapeError(
            f"{name}: {what} must be square matrices, got {m} by {n} in {x}",
            remedy="numpy.linalg has lstsq, pinv and svd for matrices that are not square",
        )
    return batch, n


def check_same_batch(name: str, a: Aval, b: Aval, batch_a: Shape, batch_b: Shape) -> None:
    """Check that two operands have the same batch axes. Raises: ShapeError."""
    if batch_a != batch_b:
        raise ShapeError(
            f"{name}: batch axes differ: operand 0 {a}, operand 1 {b}", remedy="broadcast the operands first"
        )


def real_dtype(x: Aval) -> DType:
    """Return the dtype of norms, eigenvalues of Hermitian matrices and singular values."""
    return dtypes.real_part(x.dtype)


# --------------------------------------------------------------------------------------------------- the reference


# NumPy types arithmetic and its linear algebra by dtype; for mypy all matrices are of the widest one.
Entries: TypeAlias = npt.NDArray[np.complex128]


def as_entries(x: NDArray) -> Entries:
    """Return an array of any of the four dtypes, to compute with."""
    return cast(Entries, x)


def _placeholder(a: Aval) -> complex:
    """Return the placeholder of a result that does not exist."""
    if not a.inexact:
        return 0
    return complex(np.nan, np.nan) if a.dtype in dtypes.COMPLEX else np.nan


def apply_to_each(f: Callable[..., Sequence[NDArray]], outs: tuple[Aval, ...], *args: NDArray) -> tuple[NDArray, ...]:
    """Return `f` of each matrix of a batch, all operands of the rank of the first; nan where it raises LinAlgError."""
    batch = args[0].shape[:-2]
    results = tuple([np.full(a.shape, _placeholder(a), a.dtype) for a in outs])
    for at in np.ndindex(batch):
        try:
            for out, value in zip(results, f(*[as_entries(a)[at] for a in args]), strict=True):
                out[at] = value
        except np.linalg.LinAlgError:
            pass
    return results


def check_finite(a: Entries) -> None:
    """Check that a matrix is finite. Raises: LinAlgError, which `apply_to_each` takes for a failure."""
    if not np.all(np.isfinite(a)):
        raise np.linalg.LinAlgError
