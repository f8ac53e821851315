"""The builder of a program on padded arrays: padded shapes, the values of sizes, and the valid elements of an array."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import reduce
from typing import Final, TypeAlias

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.sizes.polynomials import SizeName, names_of
from fxad.core.sizes.size import Size, size_of
from fxad.core.sizes.upper_bounds import upper_bound
from fxad.ir import INT32_SCALAR, Atom, Atoms, Aval, Avals, Lit, Shape, Var
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, SUB
from fxad.primitives.elementwise.convert import ConvertElementType, emit_convert
from fxad.primitives.elementwise.logic import AND, CLZ, LT
from fxad.primitives.index import INT32_MAX
from fxad.primitives.shape import Iota, emit_broadcast
from fxad.transforms.mask.padding_facts import PaddedAxes

# The names of the sizes that are masked and their largest values, in order.
SizeBounds: TypeAlias = tuple[tuple[str, int], ...]

INT64_SCALAR: Final = Aval((), dtypes.int64)


def int_literal(value: int) -> Lit:
    """Return a literal i32[]."""
    return Lit.of(value, INT32_SCALAR)


class PaddedBuilder(Builder):
    """Builds a program whose sizes are operands. `bounds` gives the largest value of each size that is masked. Other
    sizes stay symbolic.

    For x of the symbolic shape (n, m), padded to (4, 5), with the true sizes 2 and 3:

        padded(shape)   the padded shape: (4, 5)
        ragged(shape)   the axes of masked size: (0, 1)
        count(n)        the value of a size at run time: i32[], here 2
        inside(shape)   True at the valid elements: the block [:2, :3] of bool[4,5]
    """

    __slots__ = ("_counts", "_inside", "_masked", "_rows_below", "bounds", "sizes")

    def __init__(self, bounds: SizeBounds) -> None:
        super().__init__()
        self.bounds = dict(bounds)
        self.sizes: dict[str, Atom] = {}
        self._masked: dict[Size, bool] = {}  # the answers of `masked`
        # values that were added before, by the arguments of the methods that add them
        self._counts: dict[tuple[int, Aval], Atom] = {}
        self._rows_below: dict[tuple[int, Atom], Atom] = {}
        self._inside: dict[tuple[Shape, tuple[tuple[int, int], ...]], Atom] = {}

    def operands(self, avals: Avals) -> tuple[Var, ...]:
        """Add the operands of these symbolic types, padded, and then the sizes. Return the former."""
        args = self.inputs([self.type(a) for a in avals])
        self.sizes.update(zip(self.bounds, self.inputs([INT32_SCALAR] * len(self.bounds)), strict=True))
        return args

    @property
    def size_bounds(self) -> SizeBounds:
        """The bounds, as a value."""
        return tuple(self.bounds.items())

    @property
    def size_operands(self) -> Atoms:
        """The operands that are sizes, in the order of `bounds`: i32[]."""
        return tuple(self.sizes.values())

    # ------------------------------------------------------------------------------------------------------- shapes

    def masked(self, size: int) -> bool:
        """Return True if a dimension depends on a size that is masked."""
        if not isinstance(size, Size):
            return False
        masked = self._masked.get(size)
        if masked is None:
            masked = self._masked[size] = any([n.name in self.bounds for n in names_of(size)])
        return masked

    def padded_size(self, size: int) -> int:
        """Return the padded dimension: at least as large as every value of `size`."""
        return upper_bound(size, self.bounds) if self.masked(size) else size

    def padded(self, shape: Shape) -> Shape:
        """Return the padded shape."""
        return tuple([self.padded_size(n) for n in shape])

    def type(self, aval: Aval) -> Aval:
        """Return the padded type."""
        return aval if not aval.symbolic else Aval(self.padded(aval.shape), aval.dtype)

    def ragged(self, shape: Shape) -> tuple[int, ...]:
        """Return the axes of masked size."""
        return tuple([a for a, n in enumerate(shape) if type(n) is Size and self.masked(n)])

    def padded_axes(self, shape: Shape, axes: Container[int] | None = None) -> PaddedAxes:
        """Return the axes of masked size among `axes` (default: all), with their sizes."""
        return frozenset([(a, shape[a]) for a in self.ragged(shape) if axes is None or a in axes])

    # ----------------------------------------------------------------------------------------------- values of sizes

    def count(self, size: int) -> Atom:
        """Return the value of a dimension: i32[]."""
        return emit_convert(self, self._count(size, self._type_of_count(size)), dtypes.int32)

    def counts(self, size: int, shape: Shape) -> Atom:
        """Return the value of a dimension as all elements of an array of a padded shape: i32."""
        return emit_broadcast(self, self.count(size), shape, ())

    def literal(self, a: Lit) -> Atom:
        """Return a literal over padded arrays."""
        shape = self.padded(a.aval.shape)
        if a.size is None or not self.masked(a.size):
            return a if shape == a.aval.shape else a.with_shape(shape)
        value = emit_convert(self, self._count(a.size, self._type_of_count(a.size)), a.aval.dtype)
        return emit_broadcast(self, value, shape, ())

    def _type_of_count(self, size: int) -> Aval:
        """Return i64[] if the value of a dimension, or of an operand of a size function in it, may not fit in 32 bits;
        i32[] otherwise."""
        most = self.padded_size(size)
        wide = type(most) is int and most > INT32_MAX
        factors = [factor for monomial, _ in size.terms for factor, _ in monomial] if type(size) is Size else []
        inner = [n for factor in factors if not isinstance(factor, SizeName) for n in (factor.a, factor.b)]
        return INT64_SCALAR if wide or any([self._type_of_count(n) is INT64_SCALAR for n in inner]) else INT32_SCALAR

    def _count(self, size: int, aval: Aval) -> Atom:
        count = self._counts.get((size, aval))
        if count is None:
            count = self._counts[size, aval] = self.new_count(size, aval)
        return count

    def new_count(self, size: int, aval: Aval) -> Atom:
        """Add the equations that compute the value of a dimension, of type `aval`. `_count` calls it once for each
        dimension."""
        if not isinstance(size, Size) or not self.masked(size):
            return Lit.of(size, aval)
        total: Atom | None = None
        for monomial, coefficient in size.terms:
            term: Atom | None = None if coefficient == 1 and monomial else Lit.of(coefficient, aval)
            for base, power in monomial:
                if not isinstance(base, SizeName):
                    factor = self._applied(base.function, self._count(base.a, aval), self._count(base.b, aval))
                elif base.name not in self.bounds:
                    factor = Lit.of(size_of(base), aval)
                else:
                    factor = emit_convert(self, self.sizes[base.name], aval.dtype)
                for _ in range(power):
                    term = factor if term is None else self.one(MUL, term, factor)
            assert term is not None
            total = term if total is None else self.one(ADD, total, term)
        assert total is not None
        return total

    def _applied(self, function: str, a: Atom, b: Atom) -> Atom:
        """Return the value of a `SizeFunction`, given those of its operands."""
        aval = a.aval
        if function == "max":
            return self.one(MAX, a, b)
        if function == "min":
            return self.one(MIN, a, b)
        zero = Lit.of(0, aval)
        if function == "bits":
            return self.one(SUB, Lit.of(8 * aval.dtype.itemsize, aval), self.one(CLZ, self.one(MAX, a, zero)))
        quotient = self.one(DIV, a, b)  # towards zero; // rounds down
        below = self.one(LT, self.one(SUB, a, self.one(MUL, quotient, b)), zero)
        return self.one(SUB, quotient, self.one(ConvertElementType(aval.dtype), below))

    # ------------------------------------------------------------------------------------------------ valid elements

    def iota(self, shape: Shape, axis: int) -> Atom:
        """Return 0, 1, 2, ... along an axis of a padded shape: i32."""
        return self.one(Iota(shape, dtypes.int32, axis))

    def below(self, shape: Shape, axis: int, count: Atom) -> Atom:
        """Return True at the indices less than `count` along an axis of a padded shape: bool."""
        n = shape[axis]
        row = self._rows_below.get((n, count))
        if row is None:
            row = self._rows_below[n, count] = self.one(LT, self.iota((n,), 0), emit_broadcast(self, count, (n,), ()))
        return row if len(shape) == 1 else emit_broadcast(self, row, shape, (axis,))

    def inside(self, shape: Shape, axes: Sequence[int] | None = None) -> Atom | None:
        """Return True at the valid elements of an array, along `axes` (default: all). None if there is no padding."""
        ragged = self.padded_axes(shape, axes)
        return self.inside_along(self.padded(shape), tuple(sorted(ragged))) if ragged else None

    def inside_along(self, padded: Shape, axes: tuple[tuple[int, int], ...]) -> Atom:
        """Return True at the valid elements of an array of a padded shape, along axes with these sizes."""
        inside = self._inside.get((padded, axes))
        if inside is None:
            rows = [self.below(padded, a, self.count(n)) for a, n in axes]
            inside = self._inside[padded, axes] = self.every(rows)
        return inside

    def every(self, conditions: Sequence[Atom]) -> Atom:
        """Return True where all conditions (at least one) are."""
        return reduce(lambda a, b: self.one(AND, a, b), conditions)


__all__ = ["PaddedBuilder", "SizeBounds", "int_literal"]
