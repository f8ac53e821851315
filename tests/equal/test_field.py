"""Arithmetic in finite fields, beside Python's integers and fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fxad.diagnosis.equality.field import BITS, MOST, PrimeFields, Residues


def drawn(field: PrimeFields, shape: tuple[int, ...], seed: int) -> Residues:
    source = np.random.default_rng(seed)
    x = source.integers(0, field.p, (*shape, field.points))
    edges = np.array([0, 1, 2, -1, -2], np.int64)[source.integers(0, 5, x.shape)] % field.p
    return np.where(source.integers(0, 4, x.shape) == 0, edges, x)


@pytest.mark.parametrize("points", [1, 3, 8])
def test_arithmetic_is_that_of_integers_modulo_each_prime(points: int) -> None:
    field = PrimeFields(points, 0)
    a, b = drawn(field, (500,), 1), drawn(field, (500,), 2)
    results: dict[str, tuple[Residues, Callable[[int, int, int], int]]] = {
        "add": (field.add(a, b), lambda x, y, p: (x + y) % p),
        "sub": (field.sub(a, b), lambda x, y, p: (x - y) % p),
        "mul": (field.mul(a, b), lambda x, y, p: x * y % p),
        "neg": (field.neg(a), lambda x, _, p: -x % p),
        "power": (field.power(a, 13), lambda x, _, p: pow(x, 13, p)),
        "inverse": (field.inverse(a), lambda x, _, p: pow(x, -1, p) if x else 0),
    }
    for name, (have, rule) in results.items():
        rows = zip(a.tolist(), b.tolist(), strict=True)
        want = [[rule(x, y, p) for x, y, p in zip(*row, field.primes, strict=True)] for row in rows]
        assert have.tolist() == want, name


def test_the_primes_are_prime_of_the_stated_size_and_minus_one_is_no_square() -> None:
    primes = [p for seed in range(40) for p in PrimeFields(MOST, seed).primes]
    assert len(set(primes)) == len(primes)
    assert PrimeFields(3, 7).primes == PrimeFields(MOST, 7).primes[:3]
    for p in primes:
        assert 2**BITS < p < 2**50
        assert p % 4 == 3
        assert all(pow(a, p - 1, p) == 1 for a in (2, 3, 5, 7, 11, 13, 17, 19, 23))
        d = (p - 1) // 2  # odd: the strong test of Miller and Rabin needs no squarings
        assert all(pow(a, d, p) in (1, p - 1) for a in (2, 3, 5, 7, 11, 13, 17, 19, 23))
    # no power of two that occurs in float64 is 1, or another one, modulo a prime
    assert all(len({pow(2, e, p) for e in range(-1200, 1200)}) == 2400 for p in primes[:MOST])


def test_floats_are_the_residues_of_their_exact_values() -> None:
    field = PrimeFields(4, 0)
    x = np.array([0.0, -0.0, 0.1, -1e-12, 5e-324, 1.7976931348623157e308, 3.0, -(2.0**61)])
    want = []
    for value in x.tolist():
        exact = Fraction(value)
        want.append([exact.numerator * pow(exact.denominator, -1, p) % p for p in field.primes])
    assert field.of_floats(x).tolist() == want


def test_integers_of_every_width_keep_their_values() -> None:
    field = PrimeFields(2, 0)
    for x in (np.array([0, 2**64 - 1], np.uint64), np.array([-(2**63), -1], np.int64), np.array([-128, 127], np.int8)):
        assert field.of_integers(x).tolist() == [[int(v) % p for p in field.primes] for v in x]


@pytest.mark.parametrize("n", [0, 1, 5, 10_000])
def test_matrix_products_and_sums_are_exact(n: int) -> None:
    field = PrimeFields(3, 0)
    x, y = drawn(field, (2, n), 3), drawn(field, (n, 2), 4)
    p = np.array(field.primes, object)
    want = np.array(
        [[sum(x.astype(object)[i] * y.astype(object)[:, j], p * 0) % p for j in range(2)] for i in range(2)]
    )
    assert (field.matmul(x, y) == want).all()
    assert (field.total(x, (1,)) == np.sum(x.astype(object), 1) % p).all()
    bilinear = field.bilinear(np.matmul, x, y)
    assert bilinear is not None
    assert (bilinear == want).all()


def test_linear_maps_with_coefficients_that_are_no_integers_are_not_taken_for_exact() -> None:
    field = PrimeFields(3, 0)
    x = drawn(field, (4,), 5)

    def combined(xs: Any) -> Any:
        return [3 * xs[0] - xs[0][::-1]]

    def scaled(factor: float) -> Any:
        return lambda xs: [xs[0] * factor]

    thrice = field.linear(combined, [x])
    assert thrice is not None
    assert (thrice[0] == field.sub(field.mul(x, np.full_like(x, 3)), x[::-1])).all()
    assert field.linear(scaled(1 / 3), [x]) is None
    assert field.linear(scaled(2.0**40), [x]) is None


def test_random_functions_are_functions_and_depend_on_every_residue() -> None:
    field = PrimeFields(3, 7)
    x = drawn(field, (50, 2), 6).reshape(50, 6)
    y = field.random("f", x)
    assert (field.random("f", x.copy()) == y).all()
    assert not (field.random("g", x) == y).any()
    assert not (PrimeFields(3, 8).random("f", x) == y).any()
    for k in range(6):
        changed = x.copy()
        changed[:, k] ^= 1
        assert not (field.random("f", changed) == y).any(), k


def test_encoding_is_a_bijection() -> None:
    field = PrimeFields(3, 0)
    x = drawn(field, (100,), 8)
    y = field.encode("max", x)
    assert (field.encode("max", y, back=True) == x).all()
    assert not (y == x).all(-1).any()
