"""Arithmetic modulo several primes at once, and random functions of residues.

An element is a vector of residues, one for each prime, on the last axis of an int64 array. The primes lie between
1.5 * 2^49 and 2^50: a product modulo p then takes a dozen operations of NumPy, because the rounded quotient in float64
is off by at most one. Modulo 2^61 - 1, 2^61 would be 1, and `x * 2.0**61` would be `x`; and `x * p` is 0 modulo p. So
the primes are drawn by a seed, which `equal` makes of all constants of both programs: no program can name its primes.
-1 is no square modulo any of them, so complex numbers are pairs, and only 0 has no inverse.

A random function hashes all residues of its arguments to each residue of its result. So two arguments are taken for one
only if they agree modulo every prime.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fxad.ir import NDArray

Residues: TypeAlias = npt.NDArray[np.int64]
_Bits: TypeAlias = npt.NDArray[np.uint64]

MOST: Final = 8  # greatest number of primes
BITS: Final = 49.5  # number of bits of the smallest prime that may be drawn, rounded down

_LIMB: Final = 17  # three limbs have 51 bits; a product of two has 34, so float64 sums 3 * 2^17 of them exactly
_SUMMED: Final = 1 << 13  # int64 sums so many residues exactly

# of the search for primes
_STARTS: Final = 8  # number of random numbers after each of which a prime is searched
_REACH: Final = 64  # number of integers that are looked at after each: most reaches have a prime
_SMALL: Final = np.array([3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47], np.int64)
_BASES: Final = (2, 325, 9375, 28178, 450775, 9780504, 1795265022)


@final
class PrimeFields:
    """The fields of `points` primes, together. `seed` chooses the primes and the random functions."""

    def __init__(self, points: int, seed: int) -> None:
        self.points, self.seed = points, seed
        self.primes = _primes(points, seed)
        self.p: Residues = np.array(self.primes, np.int64)
        self._inverse_p = 1.0 / self.p.astype(np.float64)
        self._unsigned: _Bits = self.p.astype(np.uint64)
        self._scales = np.array([[pow(2, _LIMB * k, p) for p in self.primes] for k in range(5)], np.int64)
        self._keys: dict[tuple[str, int, int], _Bits] = {}

    # ------------------------------------------------------------------------------------------------ arithmetic

    def add(self, a: Residues, b: Residues) -> Residues:
        """Return a + b."""
        total = a + b
        return _smaller(total, total - self.p)

    def sub(self, a: Residues, b: Residues) -> Residues:
        """Return a - b."""
        difference = a - b
        return _smaller(difference, difference + self.p)

    def neg(self, a: Residues) -> Residues:
        """Return -a."""
        return _smaller(-a, self.p - a)

    def mul(self, a: Residues, b: Residues) -> Residues:
        """Return a * b. The integral quotient is rounded from float64, and off by at most one; int64 wraps."""
        quotient = (a.astype(np.float64) * b * self._inverse_p).astype(np.int64)
        rest = a * b - quotient * self.p
        rest = _smaller(rest, rest + self.p)
        return _smaller(rest, rest - self.p)

    def power(self, a: Residues, n: int) -> Residues:
        """Return a ** n for n >= 0."""
        out = np.broadcast_to(np.int64(1), a.shape)
        while n:
            out = self.mul(out, a) if n & 1 else out
            n >>= 1
            a = self.mul(a, a) if n else a
        return np.array(out)

    def inverse(self, a: Residues) -> Residues:
        """Return 1 / a, and 0 for 0: products by pairs up to one element, its inverse, and back (Montgomery 1987)."""
        zero = a == 0
        rows = np.where(zero, 1, a).reshape(-1, self.points)
        products = [rows]
        while len(products[-1]) > 1:
            x = products[-1]
            x = np.concatenate([x, np.ones((1, self.points), np.int64)]) if len(x) % 2 else x
            products[-1] = x
            products.append(self.mul(x[::2], x[1::2]))
        one = [pow(x, -1, p) for row in products[-1].tolist() for x, p in zip(row, self.primes, strict=True)]
        inverted = np.array(one, np.int64).reshape(-1, self.points)
        for x in products[-2::-1]:
            other = x.reshape(-1, 2, self.points)[:, ::-1].reshape(x.shape)
            inverted = self.mul(np.repeat(inverted, 2, 0)[: len(x)], other)
        return np.where(zero, 0, inverted[: len(rows)].reshape(a.shape))

    def total(self, a: Residues, axes: tuple[int, ...]) -> Residues:
        """Return the sum along axes, none of which is the last one."""
        for axis in sorted(axes, reverse=True):
            while a.shape[axis] > _SUMMED:
                starts = range(0, a.shape[axis], _SUMMED)
                a = np.add.reduceat(a, list(starts), axis) % self.p
            a = np.add.reduce(a, axis) % self.p
        return a

    def product(self, a: Residues, axis: int) -> Residues:
        """Return the product along an axis, by halves."""
        a = np.moveaxis(a, axis, 0)
        while len(a) > 1:
            half = len(a) // 2
            a = np.concatenate([self.mul(a[:half], a[half : 2 * half]), a[2 * half :]])
        return a[0] if len(a) else np.ones(a.shape[1:], np.int64)

    def of_integers(self, x: NDArray) -> Residues:
        """Return the residues of an integer or bool array, on a new last axis."""
        if x.dtype == np.uint64:
            return np.asarray(x[..., None] % self.p.astype(np.uint64)).astype(np.int64)
        return np.asarray(x[..., None].astype(np.int64) % self.p)

    def of_floats(self, x: NDArray) -> Residues:
        """Return the residues of the exact values of floats: a mantissa times a power of two."""
        mantissa, exponent = np.frexp(x.astype(np.float64))
        residues = (mantissa * 2.0**53).astype(np.int64)[..., None] % self.p
        exponents, which = np.unique(exponent, return_inverse=True)
        scales = [[pow(2, e - 53, p) for p in self.primes] for e in exponents.tolist()]
        scale = np.array(scales, np.int64).reshape(-1, self.points)[which.reshape(exponent.shape)]
        return self.mul(residues, scale)

    # ----------------------------------------------------------------------------- linear and bilinear maps of floats

    def linear(self, f: Callable[[list[NDArray]], list[NDArray]], xs: Sequence[Residues]) -> list[Residues] | None:
        """Return the results of a linear map of float64 arrays, applied to residues. None if a coefficient is no
        integer, or a sum is not exact, or a result is complex."""
        levels: list[list[list[NDArray]]] = [[], [], []]  # by limb, prime, result
        for k in range(self.points):
            columns = [_limbs(x[..., k]) for x in xs]
            for level in range(3):
                levels[level].append(f([c[level] for c in columns]))
        if not all([_exact(y) for of_level in levels for of_prime in of_level for y in of_prime]):
            return None
        results = range(len(levels[0][0]))
        return [self._joined(np.stack([np.stack([ys[j] for ys in of], -1) for of in levels])) for j in results]

    def bilinear(self, f: Callable[[NDArray, NDArray], NDArray], x: Residues, y: Residues) -> Residues | None:
        """Return the result of a bilinear map of float64 arrays, applied to residues. None as for `linear`."""
        levels: list[list[NDArray]] = [[] for _ in range(5)]  # by limb, prime
        for k in range(self.points):
            left, right = _limbs(x[..., k]), _limbs(y[..., k])
            for level, terms in enumerate(levels):
                found = [f(left[i], right[level - i]) for i in range(3) if 0 <= level - i < 3]
                if not all(map(_exact, found)):
                    return None
                terms.append(np.asarray(sum(found[1:], found[0])))
        if not all([_exact(z) for terms in levels for z in terms]):
            return None
        return self._joined(np.stack([np.stack(terms, -1) for terms in levels]))

    def matmul(self, x: Residues, y: Residues) -> Residues:
        """Return the product of matrices, whose axes are the last two before that of the residues."""
        n, out = x.shape[-2], None
        for start in range(0, max(n, 1), _SUMMED):
            left = np.stack(_limbs(np.moveaxis(x[..., start : start + _SUMMED, :], -1, 0)))[:, None]
            right = np.stack(_limbs(np.moveaxis(y[..., start : start + _SUMMED, :, :], -1, 0)))[None]
            products = np.matmul(left, right)  # (limb, limb, prime, ...)
            levels = [products[0, 0], products[0, 1] + products[1, 0], products[0, 2] + products[1, 1] + products[2, 0]]
            levels += [products[1, 2] + products[2, 1], products[2, 2]]
            part = self._joined(np.moveaxis(np.stack(levels), 1, -1))
            out = part if out is None else self.add(out, part)
        assert out is not None
        return out

    def _joined(self, levels: NDArray) -> Residues:
        """Return the sum of level k times 2^(17 k). The levels are float64 integers on the first axis."""
        whole = levels.astype(np.int64) % self.p
        terms = self.mul(whole, self._scales[: len(levels)].reshape(-1, *[1] * (levels.ndim - 2), self.points))
        return np.asarray(terms.sum(0) % self.p)

    # ------------------------------------------------------------------------------------------- random functions

    def random(self, name: str, x: Residues, width: int | None = None) -> Residues:
        """Return a random function of the vectors on the last axis of `x`: `width` residues, a multiple of `points`."""
        width = self.points if width is None else width
        keys = self._key(name, x.shape[-1] + 1, width)
        mixed = _mix(x.view(np.uint64) if x.flags.c_contiguous else np.ascontiguousarray(x).view(np.uint64))
        state = _mix(np.matmul(mixed, keys[1:]) + keys[0])
        p = self._unsigned if width == self.points else np.tile(self._unsigned, width // self.points)
        return (state % p).astype(np.int64)

    def _key(self, name: str, rows: int, columns: int) -> _Bits:
        key = name, rows, columns
        if key not in self._keys:
            source = hashlib.shake_128(self.seed.to_bytes(16, "little") + name.encode())
            bits = np.frombuffer(source.digest(8 * rows * columns), "<u8").astype(np.uint64)
            self._keys[key] = bits.reshape(rows, columns) | np.uint64(1)
        return self._keys[key]

    def encode(self, name: str, x: Residues, back: bool = False) -> Residues:
        """Return a random bijection of elements, or its inverse: four rounds of a Feistel network (Luby, Rackoff 1988),
        between the residues of the first half of the primes and those of the others."""
        half = self.points // 2
        parts, primes = [x[..., :half], x[..., half:]], (self.p[:half], self.p[half:])
        for k in range(3, -1, -1) if back else range(4):
            at = k % 2
            shift = self.random(f"{name} {k}", parts[1 - at])[..., slice(half, None) if at else slice(half)]
            parts[at] = (parts[at] - shift if back else parts[at] + shift) % primes[at]
        return np.concatenate(parts, -1)


def _primes(count: int, seed: int) -> tuple[int, ...]:
    """Return primes that are 3 modulo 4. They are strong probable primes to seven bases, and below 2^64 only primes are
    (Sinclair 2011). Half of p - 1 is odd, so no power needs to be squared."""
    found = list[int]()
    for k in itertools.count():
        source = hashlib.shake_128(f"prime {seed} {k}".encode())
        start = np.frombuffer(source.digest(8 * _STARTS), "<u8") % np.uint64(2**48 - 4 * _REACH) + np.uint64(3 * 2**48)
        candidates = (start.astype(np.int64) | 3)[:, None] + 4 * np.arange(_REACH)
        sieved = (candidates[..., None] % _SMALL != 0).all(-1)
        for row, passes in zip(candidates.tolist(), sieved.tolist(), strict=True):
            for n in itertools.compress(row, passes):
                if all(pow(base, n >> 1, n) in (1, n - 1) for base in _BASES):
                    found += [n] if n not in found else []
                    break
            if len(found) == count:
                return tuple(found)
    raise AssertionError("the search has no end")


def _mix(x: _Bits) -> _Bits:
    """Return a bijection of 64 bits, the finalizer of SplitMix64 (Steele, Lea, Flood, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _limbs(x: Residues) -> list[NDArray]:
    mask = (1 << _LIMB) - 1
    return [((x >> (_LIMB * k)) & mask).astype(np.float64) for k in range(3)]


def _exact(y: NDArray) -> bool:
    if y.dtype.kind == "c":
        return False
    if not y.size:
        return True
    return bool(np.abs(y).max() < 2.0**53) and bool((y == np.rint(y)).all())


def _smaller(a: Residues, b: Residues) -> Residues:
    """Return the one of two numbers that is not negative, and the smaller one if both are not."""
    return np.minimum(a.view(np.uint64), b.view(np.uint64)).view(np.int64)
