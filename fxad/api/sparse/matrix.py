"""`Sparse`: a sparse matrix with the pattern of a derivative."""

from __future__ import annotations

from importlib import import_module
from math import prod
from typing import Any, Final, final

import numpy as np

from fxad import numpy as fnp
from fxad.core.trees import classes as tree_classes
from fxad.errors import ArgumentError, ShapeError, described, shown
from fxad.lax.implicit.sparse import product_of_entries
from fxad.tracing.array import Array, asarray
from fxad.transforms.sparse.pattern import Pattern

_DENSE: Final = "make an array of it with to_dense(), or a matrix of SciPy with to_scipy()"


@final
class Sparse:
    """A sparse matrix: the data of its entries in CSR order, and their pattern.

    It is a pytree: `data` is its leaf, of shape (*batch, nnz), and the pattern is static.
    """

    __slots__ = ("data", "pattern")
    __array_priority__ = 1000

    data: Any
    pattern: Pattern

    def __init__(self, data: Any, pattern: Pattern) -> None:
        if not isinstance(pattern, Pattern):
            raise ArgumentError(f"Sparse: pattern is {described(pattern)}: {shown(pattern)}", remedy="give a Pattern")
        data = asarray(data, what="Sparse: data")
        if not data.shape or data.shape[-1] != pattern.nnz:
            raise ShapeError(
                f"Sparse: data has shape {data.shape}, the pattern has {pattern.nnz} entries",
                remedy="give one element for each entry, in CSR order, on the last axis",
            )
        self.data, self.pattern = data, pattern

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, after that of a batch."""
        return (*self.data.shape[:-1], *self.pattern.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the data."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return self.pattern.nnz

    @property
    def T(self) -> Sparse:  # noqa: N802
        """The transposed matrix."""
        rows, columns = self.pattern.rows, self.pattern.indices
        return unchecked_sparse(self.data[..., np.lexsort((rows, columns))], self.pattern.T)

    def block(self, result: int, argument: int) -> Sparse:
        """Return the block of one leaf of the results with respect to one leaf of the arguments, by their numbers."""
        pattern, block = self.pattern, self.pattern.block(result, argument)
        first_row = sum([prod(s) for s in pattern.row_shapes[:result]])
        first_column = sum([prod(s) for s in pattern.column_shapes[:argument]])
        rows, columns = pattern.rows - first_row, pattern.indices - first_column
        in_block = (rows >= 0) & (rows < block.shape[0]) & (columns >= 0) & (columns < block.shape[1])
        entries = np.flatnonzero(in_block).astype(np.int32)
        return unchecked_sparse(self.data[..., entries], block)

    def to_scipy(self) -> Any:
        """Return a `scipy.sparse.csr_array`. Raises: ShapeError for a batch."""
        if self.data.ndim != 1:
            raise ShapeError(f"to_scipy: takes one matrix, got shape {self.shape}", remedy="take one of the batch")
        sparse, p = import_module("scipy.sparse"), self.pattern
        return sparse.csr_array((np.asarray(self.data), p.indices, p.indptr), shape=p.shape)

    def to_dense(self) -> Array:
        """Return the matrix as an array."""
        m, n = self.pattern.shape
        flat = fnp.zeros((*self.data.shape[:-1], m * n), self.dtype)
        places = self.pattern.rows * n + self.pattern.indices
        return flat.at[..., places].set(self.data).reshape((*self.data.shape[:-1], m, n))

    def __matmul__(self, other: Any) -> Any:
        """The product with a vector or a matrix."""
        if isinstance(other, Sparse):
            raise ArgumentError(
                f"Sparse @ Sparse: shapes {self.shape} and {other.shape}: the right operand is not an array",
                remedy="take other.to_dense(), or multiply matrices of SciPy: to_scipy()",
            )
        x = asarray(other, what="Sparse @ array: the array")
        m, n = self.pattern.shape
        if self.data.ndim != 1 or x.ndim not in (1, 2) or x.shape[0] != n:
            raise ShapeError(
                f"Sparse @ array: shapes {self.shape} and {x.shape} do not fit",
                remedy="the first axis of a vector or matrix is that of the columns; use vmap for batches",
            )
        return product_of_entries(self.data, self.pattern.rows, self.pattern.indices, m, x)

    def __rmatmul__(self, other: Any) -> Any:
        """The product of a vector, or of the rows of a matrix, with this matrix."""
        x = asarray(other, what="array @ Sparse: the array")
        if self.data.ndim != 1 or x.ndim not in (1, 2) or x.shape[-1] != self.pattern.shape[0]:
            raise ShapeError(
                f"array @ Sparse: shapes {x.shape} and {self.shape} do not fit",
                remedy="the last axis of a vector or matrix is that of the rows; use vmap for batches",
            )
        return (self.T @ x.T).T

    def __mul__(self, factor: Any) -> Sparse:
        """The matrix times a scalar."""
        if fnp.ndim(factor):
            raise ShapeError(
                f"Sparse * array: the factor has shape {fnp.shape(factor)}, not ()", remedy="use @ for a product"
            )
        return unchecked_sparse(self.data * factor, self.pattern)

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> Sparse:
        """The matrix divided by a scalar."""
        if fnp.ndim(factor):
            raise ShapeError(
                f"Sparse / array: the divisor has shape {fnp.shape(factor)}, not ()",
                remedy="divide by a scalar, or divide the data",
            )
        return unchecked_sparse(self.data / factor, self.pattern)

    def __neg__(self) -> Sparse:
        return unchecked_sparse(-self.data, self.pattern)

    def sum(self, axis: int | None = None) -> Array:
        """Return the sum of all entries, of each column (axis 0) or of each row (axis 1)."""
        if axis is None:
            return fnp.sum(self.data, -1)
        if axis not in (0, 1, -1, -2):
            raise ArgumentError(f"Sparse.sum: axis is {shown(axis)}", remedy="0 or 1")
        m, n = self.pattern.shape
        places, size = (self.pattern.indices, n) if axis in (0, -2) else (self.pattern.rows, m)
        return fnp.zeros((*self.data.shape[:-1], size), self.dtype).at[..., places].add(self.data)

    def __array__(self, *_args: object, **_kwargs: object) -> Any:
        raise ArgumentError(f"numpy.asarray: a Sparse of shape {self.shape} is not an array", remedy=_DENSE)

    def __repr__(self) -> str:
        return f"Sparse({self.data!r}, {self.pattern!r})"


def unchecked_sparse(data: Any, pattern: Pattern) -> Sparse:
    """Return the matrix of an array that fits the pattern, or of what a transformation puts in its place."""
    matrix = object.__new__(Sparse)
    matrix.data, matrix.pattern = data, pattern
    return matrix


tree_classes.register(
    Sparse,
    lambda s: ((s.data,), (s.pattern.key,), ("data",)),
    lambda data, children: unchecked_sparse(next(iter(children)), Pattern.of_key(data[0])),
)

tree_classes.register(
    Pattern,
    lambda p: ((), (p.key, p.notes), ()),
    lambda data, _: Pattern.of_key(*data),
)
