"""Large arrays are not stored. Their statistics and a seed are, from which an array of the same kind is made.

A stand-in has the shape and the dtype of the array, and about its mean, deviation, range, and numbers of nan and
infinities. Integers stay inside the range, so indices stay valid. It has other elements, so results differ.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.ir import Aval, NDArray

_COUNTS: Final = (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf))


@final
@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the finite elements of real numbers, and the shares of nan, inf and -inf."""

    mean: float
    deviation: float
    least: float
    greatest: float
    special: tuple[float, float, float]

    def __str__(self) -> str:
        shares = [
            f", {share:.2g} of the elements {name}"
            for (name, _), share in zip(_COUNTS, self.special, strict=True)
            if share
        ]
        text = f"mean {self.mean:.4g}, deviation {self.deviation:.4g}, from {self.least:.4g} to {self.greatest:.4g}"
        return text + "".join(shares)


def statistics_of(x: NDArray) -> tuple[Statistics, ...]:
    """Return the statistics of an array; of the real and the imaginary parts of a complex one."""
    return tuple([_statistics(part) for part in _parts(x)])


def stand_in(aval: Aval, statistics: tuple[Statistics, ...], seed: int) -> NDArray:
    """Return an array of a type with these statistics, the same for the same seed."""
    random = np.random.Generator(np.random.PCG64(seed))
    parts = [_sample(random, aval, s).reshape(aval.shape) for s in statistics]
    if dtypes.is_complex(aval.dtype):
        made: NDArray = np.empty(aval.shape, aval.dtype)
        made.real, made.imag = parts
        return made
    return parts[0].astype(aval.dtype)


def _parts(x: NDArray) -> list[NDArray]:
    return [x.real, x.imag] if dtypes.is_complex(x.dtype) else [x]


def _statistics(x: NDArray) -> Statistics:
    if x.dtype.kind in "biu":
        return Statistics(float(x.mean()), float(x.std()), int(x.min()), int(x.max()), (0.0, 0.0, 0.0))
    values = x.astype(np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    special = (float(np.isnan(values).mean()), float((values == np.inf).mean()), float((values == -np.inf).mean()))
    if not finite.size:
        return Statistics(0.0, 0.0, 0.0, 0.0, special)
    scale = float(np.abs(finite).max()) or 1.0  # squares of large elements would overflow
    return Statistics(
        float((finite / scale).mean()) * scale,
        float((finite / scale).std()) * scale,
        float(finite.min()),
        float(finite.max()),
        special,
    )


def _sample(random: np.random.Generator, aval: Aval, s: Statistics) -> NDArray:
    """Return the elements of an array, as a vector."""
    kind, n = aval.dtype.kind, aval.size  # a vector: for no axes, NumPy gives scalars
    if kind == "b":
        return random.random(n) < s.mean
    if kind in "iu":
        least, greatest = int(s.least), int(s.greatest)
        return random.integers(least, greatest, n, aval.dtype, endpoint=True)
    with np.errstate(over="ignore"):
        values = np.clip(random.normal(0.0, 1.0, n) * s.deviation + s.mean, s.least, s.greatest)
    drawn, begin = random.random(n), 0.0
    for (_, value), share in zip(_COUNTS, s.special, strict=True):
        values[(drawn >= begin) & (drawn < begin + share)] = value
        begin += share
    return values
