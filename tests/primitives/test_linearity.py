"""`with_zero_operands`: the results of a linear program that are zero if some of its operands are zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.ir import Atom, Aval, Jaxpr, Lit, Var
from fxad.primitives.control.call import Call
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise import ADD, MUL, NEG
from fxad.primitives.index import Index
from fxad.primitives.linearity import is_linear, with_zero_operands
from fxad.primitives.shape import Reshape
from fxad.primitives.slicing import Concatenate, Pad

V = Aval((2,), "float64")
S = Aval((), "float64")
ZERO = Lit.of(0, V)
DX, DY, K = np.array([0.5, -2.0]), np.array([1.5, 0.25]), np.array([3.0, -0.7])

Made = Callable[[Builder, Var, Var, Var], list[Atom]]


def linear(make: Made) -> Jaxpr:
    """A program of two tangents and a known value."""
    b = Builder()
    dx, dy, k = b.inputs((V, V, V))
    return b.build(make(b, dx, dy, k), "linear")


def check(jaxpr: Jaxpr, live: tuple[bool, bool], nonzero: tuple[bool, ...]) -> Jaxpr:
    """The program without the zero operands has the same results."""
    slim, moves = with_zero_operands(jaxpr, live)
    assert moves == nonzero
    dots = [x if m else np.zeros(2) for x, m in zip((DX, DY), live, strict=True)]
    left = [x for x, m in zip(dots, live, strict=True) if m]
    for have, want in zip(run(slim, [*left, K]), run(jaxpr, [*dots, K]), strict=True):
        np.testing.assert_array_equal(have, want)
    return slim


def test_equations_on_zeros_are_removed() -> None:
    def make(b: Builder, dx: Var, dy: Var, k: Var) -> list[Atom]:
        both = b.one(Concatenate(0), b.one(NEG, dy), b.one(MUL, dy, k))
        return [b.one(ADD, b.one(MUL, dx, k), dy), both, b.one(Concatenate(0), dy, ZERO)]

    slim = check(linear(make), (True, False), (True, False, False))
    assert [e.prim for e in slim.eqns] == [MUL, ADD]


def _row(b: Builder, stack: Atom, k: int) -> Atom:
    return b.one(Index((2 * k,), (2,), (1,), (), ()), stack)


def stacked(b: Builder, dx: Var, dy: Var, k: Var) -> list[Atom]:
    """A stack of a zero tangent and a known value, as `reroll` makes it of a chain of products."""
    stack = b.one(Concatenate(0), dx, k)
    return [b.one(MUL, _row(b, stack, 1), dy), b.one(MUL, _row(b, stack, 0), k)]


def padded(b: Builder, dx: Var, dy: Var, k: Var) -> list[Atom]:
    wide = b.one(Pad((2,), (0,), (0,)), dx, b.one(Index((0,), (1,), (1,), (0,), ()), k))
    return [b.one(MUL, _row(b, wide, 0), dy), b.one(MUL, _row(b, wide, 1), k)]


def called(b: Builder, dx: Var, dy: Var, k: Var) -> list[Atom]:
    """A body that also computes a known value."""
    body = Builder()
    t, s = body.inputs((V, V))
    both = body.build((body.one(MUL, t, s), body.one(MUL, s, s)), "both")
    t, s = b(Call(both), dx, k)
    return [b.one(MUL, s, dy), t]


def looped(b: Builder, dx: Var, dy: Var, k: Var) -> list[Atom]:
    """One loop computes k, k * k, k * k * dx."""
    body = Builder()
    c, s = body.inputs((V, V))
    scan = Scan(body.build((body.one(MUL, c, s), c), "times"), 2, False, 1, 0, 1)
    stack = b.one(Concatenate(0), k, dx)
    t, every = b(scan, k, b.one(Reshape((2, 2)), stack))
    square = b.one(Index((1, 0), (1, 2), (1, 1), (0,), ()), every)
    return [b.one(MUL, square, dy), t]


@pytest.mark.parametrize("make", [stacked, padded, called, looped])
def test_known_values_are_computed_beside_zeros(make: Made) -> None:
    jaxpr = linear(make)
    assert not is_linear(jaxpr, (True, True, False))
    assert np.all(run(jaxpr, [0 * DX, DY, K])[0])
    check(jaxpr, (False, True), (True, True))
    check(jaxpr, (True, True), (True, True))
