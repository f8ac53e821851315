"""Strategies for types, literals and operand values.

Values are derived from one drawn seed and not drawn element by element: drawing is cheap, and shrinking changes the
structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Final, final

import numpy as np
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Aval, Lit, NDArray, Shape

_SIZES: Final = (1, 2, 3, 0, 4)  # in the order of shrinking
# In these dtypes finite differences are precise enough to be compared with derivatives.
PRECISE: Final = frozenset({dtypes.float64, dtypes.complex128})
SEEDS: Final = st.integers(0, 2**32 - 1)


@final
@dataclass(frozen=True, slots=True, repr=False)
class Domain:
    """The range of the values of an operand.

    low, high: bounds of floats, and of both parts of complex numbers.
    signs:     floats are negated at random, so that they keep away from 0.
    special:   now and then an infinity, a nan or a -0.0.
    zeros:     now and then a 0.0, a -0.0 or a 1.0.
    whole:     bounds of integers, both included; without, small ones and any ones.
    ridge:     added to the diagonals of matrices (the last two axes), so that they are definite.
    """

    low: float = -2.0
    high: float = 2.0
    signs: bool = False
    special: bool = False
    zeros: bool = False
    whole: tuple[int, int] | None = None
    ridge: float = 0.0

    def __repr__(self) -> str:
        changed = [f.name for f in fields(self)[2:] if getattr(self, f.name) != f.default]
        return f"Domain({', '.join([f'{self.low:g}, {self.high:g}', *[f'{n}={getattr(self, n)}' for n in changed]])})"


ORDINARY: Final = Domain()
SPECIAL: Final = Domain(special=True)


def any_values(smooth: bool) -> Domain:
    """Return the domain of operands that a primitive only moves or compares: special values too, but not where
    derivatives are compared with differences."""
    return ORDINARY if smooth else SPECIAL


def shapes(max_rank: int = 5, sizes: Sequence[int] = _SIZES, min_rank: int = 0) -> st.SearchStrategy[Shape]:
    """Draw shapes of few small axes, including empty ones."""
    return st.lists(st.sampled_from(sizes), min_size=min_rank, max_size=max_rank).map(tuple)


def with_long_axis(shape: Shape, axis: int, size: int) -> st.SearchStrategy[Shape]:
    """Draw the shape, and now and then the one with this size along the axis. No other axis is long: five axes of 40
    are 800 MB."""
    longer = (*shape[:axis], size, *shape[axis:][1:])
    return st.sampled_from([shape, shape, shape, longer])


def avals(of: Iterable[DType] | None = None, max_rank: int = 5) -> st.SearchStrategy[Aval]:
    """Draw types with one of the dtypes `of` (default: all), including scalars and empty arrays."""
    chosen = frozenset(dtypes.ALL if of is None else of)
    return st.builds(Aval, shapes(max_rank), st.sampled_from([d for d in dtypes.ALL if d in chosen]))


@st.composite
def literals(draw: st.DrawFn, aval: Aval) -> Lit:
    """Draw literals of a type: plain numbers and any bits (nans with payloads, -0.0, infinities, subnormals)."""
    if aval.dtype == dtypes.bool_:
        return Lit(draw(st.sampled_from([b"\0", b"\1"])), aval)
    size = aval.dtype.itemsize
    plain = st.sampled_from([0, 1, 2, 3]).map(lambda n: Lit.of(n, aval).bits)
    parts = [0.5, -1.0, -0.0, np.inf, -np.inf, np.nan] if aval.inexact else [-1, 7]
    special = st.sampled_from(parts).map(lambda v: Lit.of(v, aval).bits)
    return Lit(draw(plain | special | st.binary(min_size=size, max_size=size)), aval)


def arrays(aval: Aval, domain: Domain = ORDINARY) -> st.SearchStrategy[NDArray]:
    """Draw operand values of a type."""
    return SEEDS.map(lambda seed: sample(aval, domain, seed, 0))


def sample(aval: Aval, domain: Domain, seed: int, k: int) -> NDArray:
    """Return the values of operand `k` for a seed; equal arguments give equal values."""
    rng = np.random.default_rng((seed, k))
    dtype, shape = aval.dtype, aval.shape
    if dtype == dtypes.bool_:
        known = np.full(shape, domain.whole[0] != 0) if domain.whole else rng.random(shape) < 0.5
        return np.asarray(known)
    if dtype in dtypes.INTEGER:
        return _integers(rng, aval, domain)
    with np.errstate(all="ignore"):
        real = _floats(rng, shape, domain)
        if dtype in dtypes.COMPLEX:
            real = real + 1j * _floats(rng, shape, domain)
        if domain.ridge:
            real = real + domain.ridge * np.eye(shape[-2], shape[-1])
        return real.astype(dtype)


def examples(args: Sequence[NDArray], dims: Sequence[int | None], size: int = 2, shift: int = 1) -> list[list[NDArray]]:
    """Return operands of `size` examples. From one to the next, operands with an axis in `dims` are rolled by `shift`
    elements, so they stay in their domains; the others are equal in all examples."""
    return [[a if d is None else np.roll(a, shift * k) for a, d in zip(args, dims, strict=True)] for k in range(size)]


def stack(rows: Sequence[Sequence[NDArray]], dims: Sequence[int | None]) -> tuple[NDArray, ...]:
    """Return the values of all examples, each stacked along its axis in `dims`; without an axis, that of the first."""
    return tuple([rows[0][k] if d is None else np.stack([row[k] for row in rows], d) for k, d in enumerate(dims)])


def operands_text(avals: Sequence[Aval], args: Sequence[NDArray]) -> str:
    """Return types and values of operands, a line for each."""
    return "\n".join([f"  {a}: {x.tolist()}" for a, x in zip(avals, args, strict=True)])


class ShownByRepr:
    """A drawn case: hypothesis prints its `repr`, and not its fields."""

    __slots__ = ()

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        printer.text(repr(self))


def _integers(rng: np.random.Generator, aval: Aval, domain: Domain) -> NDArray:
    if domain.whole is not None:
        return np.asarray(rng.integers(*domain.whole, aval.shape, endpoint=True)).astype(aval.dtype)
    small = rng.integers(0 if aval.dtype in dtypes.UNSIGNED else -4, 6, aval.shape).astype(aval.dtype)
    bits = rng.integers(0, 256, (*aval.shape, aval.dtype.itemsize), np.uint8)
    every = np.ascontiguousarray(bits).view(aval.dtype).reshape(aval.shape)
    return np.where(rng.random(aval.shape) < 0.6, small, every)


def _floats(
    rng: np.random.Generator, shape: Shape, domain: Domain
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    x = np.asarray(rng.uniform(domain.low, domain.high, shape))
    if domain.signs:
        x = np.where(rng.random(shape) < 0.5, -x, x)
    if domain.special:
        special = rng.choice([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan], shape)
        x = np.where(rng.random(shape) < 0.3, special, x)
    if domain.zeros:
        x = np.where(rng.random(shape) < 0.3, rng.choice([0.0, -0.0, 1.0], shape), x)
    return x
