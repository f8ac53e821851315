"""The comparison of two values."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import final

import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.ir import NDArray


@final
@dataclass(frozen=True, slots=True, eq=False)
class Mismatch:
    """Two values that differ: `at` is the index of the element that differs most, `count` the number of elements that
    differ. `result` numbers the results that were compared."""

    result: int
    expected: NDArray
    actual: NDArray
    at: tuple[int, ...]
    count: int


@final
@dataclass(frozen=True, slots=True)
class Closeness:
    """How close two values must be. `tolerance` is relative to the elements and to their mean; None: the square root of
    the spacing of the dtype at 1. 0: they must have the same bits, or in two dtypes
    the same values. Integers and bools must be equal. Nans and
    infinities must be at the same places.

    `scale` is the largest magnitude of the operands of the program: differences below `tolerance ** 2` of it are the
    rounding of the operands, as where a sum cancels.
    """

    tolerance: float | None = None
    scale: float = 0.0

    def first(self, expected: Sequence[NDArray], actual: Sequence[NDArray]) -> Mismatch | None:
        """Return the first result that differs."""
        for k, (x, y) in enumerate(zip(expected, actual, strict=True)):
            mismatch = self.compare(k, np.asarray(x), np.asarray(y))
            if mismatch is not None:
                return mismatch
        return None

    def compare(self, k: int, expected: NDArray, actual: NDArray) -> Mismatch | None:
        """Return the difference of two values, the results number `k`; None if they are close."""
        if self.tolerance == 0:
            return _different_bits(k, expected, actual)
        if not dtypes.is_inexact(expected.dtype) or not dtypes.is_inexact(actual.dtype):
            excess = (expected != actual).astype(np.float64)
            return _mismatch(k, expected, actual, excess)
        tolerance = max(map(self.of_dtype, (expected.dtype, actual.dtype)))
        wide = np.complex128 if dtypes.is_complex(expected.dtype) else np.float64
        x, y = expected.astype(wide), actual.astype(wide)
        with np.errstate(all="ignore"):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            finite = np.isfinite(x) & np.isfinite(y)
            size = np.where(finite, np.abs(x), 0.0)
            bound = tolerance * (size + (size.mean() if size.size else 0.0)) + tolerance**2 * self.scale
            error = np.where(finite, np.abs(x - y), np.inf)
            excess = np.where(same | (error <= bound), 0.0, error)
        return _mismatch(k, expected, actual, excess)

    def of_dtype(self, dtype: dtypes.DType) -> float:
        """Return the tolerance for a dtype."""
        if self.tolerance is not None:
            return self.tolerance
        if not dtypes.is_inexact(dtype):
            return 0.0
        return sqrt(float(np.spacing(np.ones((), dtypes.real_part(dtype)))))


def differ_in_bits(x: NDArray, y: NDArray) -> bool:
    """Return True for two arrays of one type with different bits."""
    return _different_bits(0, x, y) is not None


def _different_bits(k: int, expected: NDArray, actual: NDArray) -> Mismatch | None:
    if expected.dtype != actual.dtype and dtypes.is_inexact(expected.dtype) and dtypes.is_inexact(actual.dtype):
        x, y = [_wide_parts(z) for z in (expected, actual)]  # a dtype of the reference: its bits are other ones
        same = ((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))
        return _mismatch(k, expected, actual, (~same).any(axis=-1).astype(np.float64))
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return Mismatch(k, expected, actual, (), expected.size)
    size = expected.dtype.itemsize
    bits = [np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8).reshape(-1, size) for x in (expected, actual)]
    excess = (bits[0] != bits[1]).any(axis=1).astype(np.float64).reshape(expected.shape)
    return _mismatch(k, expected, actual, excess)


def _wide_parts(x: NDArray) -> NDArray:
    """Return the real and the imaginary parts in float64, exactly, on a new last axis."""
    wide = np.ascontiguousarray(x).astype(np.complex128)
    return np.stack([wide.real, wide.imag], -1)


def _mismatch(k: int, expected: NDArray, actual: NDArray, excess: NDArray) -> Mismatch | None:
    count = int(np.count_nonzero(excess))
    if not count:
        return None
    at = np.unravel_index(int(np.argmax(excess)), excess.shape)
    return Mismatch(k, expected, actual, tuple(map(int, at)), count)


def largest(values: Sequence[NDArray]) -> float:
    """Return the largest finite magnitude of floating arrays."""
    found = 0.0
    for x in values:
        if dtypes.is_inexact(x.dtype) and x.size:
            size = np.abs(x.astype(np.complex128 if dtypes.is_complex(x.dtype) else np.float64))
            found = max(found, float(np.max(size, initial=0.0, where=np.isfinite(size))))
    return found
