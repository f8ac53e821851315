"""Solutions of sparse systems on the host, by SuperLU of SciPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias, final

import numpy as np

from fxad.ir import NDArray
from fxad.lax.implicit.sparse_structure import SparseStructure


@final
class HostSolve:
    """The function of the host that solves with the factors of a matrix, or of its transpose.

    Equal for equal patterns, so that a rule that is traced again finds the function that it has called before.
    """

    __name__ = "sparse_solve"
    __slots__ = ("_factors", "_transposed")

    def __init__(self, factors: Factors, transposed: bool) -> None:
        self._factors, self._transposed = factors, transposed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostSolve) and (self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[bytes, bool]:
        return self._factors.structure.digest, self._transposed

    def __call__(self, data: NDArray, b: NDArray) -> NDArray:
        """Return the solutions for stacks of matrices (..., nnz) and right-hand sides (..., n) or (..., n, k)."""
        batch = data.shape[:-1]
        columns = b.reshape(*batch, self._factors.structure.shape[0], prod(b.shape[len(batch) + 1 :]))
        if prod(batch) > 1 and not any(data.strides[:-1]):  # one matrix for the whole stack
            count, n, k = prod(batch), *columns.shape[-2:]
            side_by_side = columns.reshape(count, n, k).transpose(1, 0, 2).reshape(n, count * k)
            x = self._factors.of(data[(0,) * len(batch)])(side_by_side, self._transposed)
            return np.ascontiguousarray(x.reshape(n, count, k).transpose(1, 0, 2)).reshape(b.shape)
        out = np.empty(columns.shape, b.dtype)
        for at in np.ndindex(*batch):
            out[at] = self._factors.of(data[at])(columns[at], self._transposed)
        return out.reshape(b.shape)


FactorSolve: TypeAlias = Callable[[NDArray, bool], NDArray]


@final
class Factors:
    """The factors of the last matrix of a pattern. A solve, its derivatives, and a next call with equal entries share
    them."""

    __slots__ = ("_last", "structure")

    def __init__(self, structure: SparseStructure) -> None:
        self.structure = structure
        self._last: tuple[NDArray, FactorSolve] | None = None

    def of(self, data: NDArray) -> FactorSolve:
        """Return the function that solves with a matrix; of the transpose, where its second argument is True."""
        if not self.structure.shape[0]:
            return lambda b, _transposed: np.array(b)
        last = self._last
        if last is not None and last[0].dtype == data.dtype and np.array_equal(last[0], data):
            return last[1]
        solve = self._factorized(data)
        self._last = (np.array(data), solve)  # one assignment: other threads see either pair
        return solve

    def _order(self, transpose: Any) -> str:
        """Return an order of columns: for a symmetric pattern that of minimum degree, with half the fill of COLAMD."""
        other = transpose.tocsr()
        same = np.array_equal(other.indptr, transpose.indptr) and np.array_equal(other.indices, transpose.indices)
        return "MMD_AT_PLUS_A" if same else "COLAMD"

    def _factorized(self, data: NDArray) -> FactorSolve:
        def singular(b: NDArray, _transposed: bool) -> NDArray:
            return np.full_like(b, np.nan)

        if not np.all(np.isfinite(data)):
            return singular
        n = self.structure.shape[0]
        indices, indptr = [x.astype(np.intc) for x in (self.structure.indices, self.structure.indptr)]
        # the CSR arrays of A are the CSC arrays of its transpose
        transpose = importlib.import_module("scipy.sparse").csc_array((data, indices, indptr), shape=(n, n))
        order = "NATURAL" if self.structure.is_band() else self._order(transpose)
        try:
            lu = importlib.import_module("scipy.sparse.linalg").splu(transpose, permc_spec=order)
        except RuntimeError:  # "Factor is exactly singular"
            return singular

        def solve(b: NDArray, transposed: bool) -> NDArray:
            x: NDArray = lu.solve(b, "N" if transposed else "T")
            return x

        return solve
