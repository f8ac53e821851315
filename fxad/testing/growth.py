"""A program while it is grown, with facts about its values.

Each value has bounds, so that functions are applied inside their domains and compositions stay bounded. It also has a
flag that every correct implementation computes the same bits. Comparisons, roundings and conversions to integers would
turn a rounding error into a different answer, so they are applied only to such values.

A step (`fxad.testing.steps`) adds equations to a `Growth`, for example:

    x: bounds (-1.5, 1.5), exact          an operand
    y = exp x                             the step `_unary`: the bounds are (0.13, 7.4), and y is not exact
    z = log y                             `_unary` again: y is at least 0.1, so it is in the domain of log
    b = gt y, 1.0                         never: a rounding error of y could change the answer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.polynomials import SizeName
from fxad.core.sizes.size import named_size
from fxad.core.sizes.upper_bounds import upper_bound
from fxad.ir import Atom, Aval, Jaxpr, Lit, Primitive, Shape
from fxad.primitives import elementwise as ew
from fxad.testing.values import literals


@final
@dataclass(frozen=True, slots=True)
class Fact:
    """The bounds of a value's elements (of both parts, if complex), and whether it is exact."""

    low: float
    high: float
    exact: bool

    @property
    def size(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    def __or__(self, other: Fact) -> Fact:
        """Return the fact about a value that has the elements of two others."""
        return Fact(min(self.low, other.low), max(self.high, other.high), self.exact and other.exact)


def up_to(size: float, exact: bool = False) -> Fact:
    """Return the fact about a value of at most this magnitude."""
    return Fact(-size, size, exact)


INPUT: Final = up_to(1.5, exact=True)
UNKNOWN: Final = up_to(1e9, exact=True)  # integers and bools: they wrap, bit for bit
BOUND: Final = 6.0  # no float grows beyond
_ALL: Final = (
    dtypes.float32,
    dtypes.float64,
    dtypes.int32,
    dtypes.bool_,
    dtypes.bfloat16,
    dtypes.complex64,
    dtypes.int8,
    dtypes.uint32,
)
_SMOOTH: Final = (dtypes.float64, dtypes.complex128, dtypes.int32, dtypes.bool_)
_SIZES: Final = (2, 3, 1)


@final
class Growth:
    """A program while it grows. `pool` are the values that further equations may use, and `facts` says what is known of
    each. `bodies` are programs that steps may call. `sizes` are named sizes that shapes may have. `long` is the size of
    one axis of many operands; 0 for none."""

    def __init__(
        self,
        draw: st.DrawFn,
        differentiable: bool,
        bodies: list[Jaxpr],
        unbounded: bool = False,
        sizes: Mapping[SizeName, int] = MappingProxyType({}),
        long: int = 0,
    ) -> None:
        self.draw = draw
        self.long = long
        self.sizes = tuple([named_size(n.name, n.at_least) for n in sizes])
        self._bounds = {n.name: most for n, most in sizes.items()}
        self.smooth = differentiable
        self.unbounded = unbounded
        self.dtypes = _SMOOTH if differentiable else _ALL
        self.bodies = bodies
        self.builder = Builder()
        self.facts: dict[Atom, Fact] = {}
        self.pool: list[Atom] = []
        self.conventions: set[Atom] = set()  # not unique, as signs of vectors: no results of a program

    def add(self, atom: Atom, fact: Fact) -> Atom:
        """Add a value to the pool, with what is known of it."""
        if not atom.aval.inexact:
            fact = UNKNOWN
        self.facts[atom] = fact
        if atom.aval.dtype in self.dtypes:  # others, such as float8, go no further: not every function takes them
            self.pool.append(atom)
        return atom

    def input(self, aval: Aval) -> Atom:
        """Add an operand of the program."""
        return self.add(self.builder.input(aval), INPUT)

    def shape(self) -> Shape:
        """Draw a shape of up to three axes."""
        sizes = (*self.sizes, *(_SIZES if self.draw(st.integers(0, 7)) else (2, 0, 1)))
        if self.long and self.draw(st.integers(0, 2)):
            return self.draw(st.sampled_from([(self.long,), (self.long, 3), (2, self.long)]))
        shape: list[int] = self.draw(st.lists(st.sampled_from(sizes), max_size=3))
        return tuple(shape)

    def most(self, size: int) -> int:
        """Return the largest value of a dimension."""
        return upper_bound(size, self._bounds)

    def constant(self, aval: Aval) -> Atom:
        """Draw a literal; small if floats are computed with it."""
        if not aval.inexact:
            return self.add(self.draw(literals(aval)), UNKNOWN)
        value = self.draw(st.sampled_from([1.0, 0.0, 0.5, -1.5, -0.0, 2.0]))
        return self.add(Lit.of(value, aval), Fact(value, value, True))

    def one_of(self, atoms: Sequence[Atom]) -> Atom:
        """Draw one of several values. The newest is the simplest choice, so that equations build on each other."""
        k: int = self.draw(st.integers(0, len(atoms) - 1))
        return atoms[-1 - k]

    def like(self, aval: Aval, ok: Callable[[Fact], bool] = lambda _: True) -> Atom:
        """Return a value of this type: an existing one, a literal, or a new operand."""
        candidates = [a for a in self.pool if a.aval is aval and ok(self.facts[a])]
        often: int = self.draw(st.integers(0, 5))
        if candidates and often:
            return self.one_of(candidates)
        if self.draw(st.booleans()):
            lit = self.constant(aval)
            if ok(self.facts[lit]):
                return lit
        return self.input(aval)

    def emit(self, fact: Fact, prim: Primitive, *args: Atom) -> Atom:
        """Add an equation with one result, and that to the pool."""
        return self.add(self.builder.one(prim, *args), fact)

    def within(self, x: Atom, limit: float) -> Atom:
        """Return `x`, scaled down if it may be larger than `limit`."""
        fact = self.facts[x]
        if not x.aval.inexact or fact.size <= limit:
            return x
        by = limit / fact.size
        return self.emit(Fact(by * fact.low, by * fact.high, False), ew.MUL, x, Lit.of(by, x.aval))
