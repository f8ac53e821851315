"""The interface of mask rules: a rule writes one equation of symbolic shape over padded arrays.

A value of shape (n, 3) becomes an array of the padded shape, and its elements beyond n are the padding. Padding may
hold anything, nan included. A rule must give results whose valid elements depend on valid elements only, in the
derivatives of every order too. Therefore:

- A lane is an index along an axis of symbolic size. A primitive whose results in a lane depend on the operands in that
  lane only is applied as it is (`lanewise`).
- Where lanes meet (a sum over them, a product of matrices), a rule fills the padding of the operands with the neutral
  element, by a select and not by a product, because 0 * nan is nan. The transposed program then drops the cotangents of
  padding.
- Where a value goes to several lanes (a broadcast), or a lane of padding reads a valid element (a slice), a rule clears
  the padding of a result: the transposed program then adds zeros for these lanes.

A result whose padding is finite need not be cleared at once: its padding does not reach valid elements, so the
cotangents there are zero as long as no derivative multiplies them by an infinite slope. It is cleared before the first
equation that might (`cleared_later`, `clear_pending`). Most equations of a model never do. Of others the operand is
filled with a number at which they are finite (`lanewise`), and what follows need not be cleared.

The words, for x of the symbolic shape (n, m), padded to (4, 5), with the true sizes 2 and 3:

    ragged             the axes of masked size: (0, 1)
    count(n)           the value of a size at run time: i32[], here 2
    inside(shape)      True at the valid elements: the block [:2, :3] of bool[4,5]
    filled(x, s, v)    x inside, v outside
    cleared            filled with 0, if x can have a tangent: for the derivatives
    zero_filled        filled with 0, of any dtype: for the values
    pending            the axes along which x is finite, and not yet cleared (`cleared_later`)
    clear_pending      x, cleared along these axes
    lanewise           the rule that applies a primitive as it is

Example of pending padding: y = x @ w, z = sqrt y. The padding of y is finite, because x is cleared at the start. It is
read by nothing, so its cotangents are zero. But the derivative of sqrt multiplies them by 1 / (2 sqrt y), which is
infinite where y is 0, and 0 * inf is nan. So the padding of y is filled before the sqrt (with 1, where sqrt is smooth).
If z is tanh y, the slope is finite, nothing is filled, and the padding of z is pending in its turn.

Decisions: docs/adr/0050, docs/adr/0079.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Protocol, TypeAlias, TypeVar, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.sizes import Name, Size, lower_bound, names_of, size_of, upper_bound
from fxad.errors import SizeError
from fxad.ir import Atom, Atoms, Aval, Avals, Eqn, Jaxpr, Lit, Primitive, Shape, Var
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, SUB
from fxad.primitives.elementwise.convert import ConvertElementType, emit_convert
from fxad.primitives.elementwise.logic import AND, CLZ, LT
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.shape import Iota, emit_broadcast
from fxad.transforms.mask.knowledge import (
    NO_AXES,
    NOTHING,
    Knowledge,
    PaddedAxes,
    filled_with_one,
    finite_axes,
    is_zero_literal,
    keeps_finite,
    knowledge_of_literal,
    least_value,
    moved_axes,
    row_zero_axes,
    zero_axes,
)
from fxad.transforms.specialize import size_names

P = TypeVar("P", bound=Primitive)
Q = TypeVar("Q", bound=Primitive, contravariant=True)
Padding: TypeAlias = tuple[tuple[str, int], ...]  # names of sizes and their largest values, in order

INT: Final = Aval((), dtypes.int32)
LONG: Final = Aval((), dtypes.int64)
INT32_MAX: Final = 2**31 - 1


def int_literal(value: int) -> Lit:
    """Returns a literal i32[]."""
    return Lit.of(value, INT)


@final
class MaskCtx(Builder):
    """The context of mask rules: the builder of the padded program.

    `padding` gives the largest value of each size that is masked. Other sizes stay symbolic.
    """

    __slots__ = (
        *("_counts", "_filled", "_inside", "_knowledge", "_mask_body", "_mask_call", "_masked", "_rows_below"),
        *("bounds", "padding", "sizes"),
    )

    def __init__(
        self,
        padding: Padding,
        mask_body: Callable[[Jaxpr, Padding], Jaxpr],
        mask_call: Callable[[Jaxpr, Padding, tuple[Knowledge, ...]], tuple[Jaxpr, tuple[Knowledge, ...]]],
    ) -> None:
        super().__init__()
        self.padding = padding
        self.bounds = dict(padding)
        self.sizes: dict[str, Atom] = {}
        self._masked: dict[Size, bool] = {}  # the answers of `masked`
        self._mask_body = mask_body
        self._mask_call = mask_call
        self._knowledge: dict[Atom, Knowledge] = {}
        # values that were emitted before, by the arguments of the methods that emit them
        self._counts: dict[tuple[int, Aval], Atom] = {}
        self._rows_below: dict[tuple[int, Atom], Atom] = {}
        self._inside: dict[tuple[Shape, tuple[tuple[int, int], ...]], Atom] = {}
        self._filled: dict[tuple[Atom, Atom, tuple[tuple[int, int], ...]], Atom] = {}

    # ------------------------------------------------------------------------------------------------------- shapes

    def masked(self, size: int) -> bool:
        """Returns True if a dimension depends on a size that is masked."""
        if not isinstance(size, Size):
            return False
        known = self._masked.get(size)
        if known is None:
            known = self._masked[size] = any([n.name in self.bounds for n in names_of(size)])
        return known

    def padded_size(self, size: int) -> int:
        """The padded dimension: at least as large as every value of `size`."""
        return upper_bound(size, self.bounds) if self.masked(size) else size

    def padded(self, shape: Shape) -> Shape:
        """The padded shape."""
        return tuple([self.padded_size(n) for n in shape])

    def type(self, aval: Aval) -> Aval:
        """The padded type."""
        return aval if not aval.symbolic else Aval(self.padded(aval.shape), aval.dtype)

    def ragged(self, shape: Shape) -> tuple[int, ...]:
        """The axes of masked size."""
        return tuple([a for a, n in enumerate(shape) if type(n) is Size and self.masked(n)])

    def padded_axes(self, shape: Shape, axes: Container[int] | None = None) -> PaddedAxes:
        """The axes of masked size among `axes` (default: all), with their sizes."""
        return frozenset([(a, shape[a]) for a in self.ragged(shape) if axes is None or a in axes])

    # ------------------------------------------------------------------------------------------------------- values

    def count(self, size: int) -> Atom:
        """The value of a dimension: i32[]."""
        return emit_convert(self, self._count(size, self._kind(size)), dtypes.int32)

    def counts(self, size: int, shape: Shape) -> Atom:
        """The value of a dimension as all elements of an array of a padded shape: i32."""
        return emit_broadcast(self, self.count(size), shape, ())

    def _kind(self, size: int) -> Aval:
        """i64[] if the value of a dimension, or of what is divided in it, may not fit in 32 bits."""
        most = self.padded_size(size)
        wide = type(most) is int and most > INT32_MAX
        parts = [part for mono, _ in size.terms for part, _ in mono] if type(size) is Size else []
        inner = [n for part in parts if not isinstance(part, Name) for n in (part.a, part.b)]
        return LONG if wide or any([self._kind(n) is LONG for n in inner]) else INT

    def _count(self, size: int, kind: Aval) -> Atom:
        known = self._counts.get((size, kind))
        if known is None:
            known = self._counts[size, kind] = self._counted(size, kind)
            self.learn(known, Knowledge(least=lower_bound(size)))
        return known

    def _counted(self, size: int, kind: Aval) -> Atom:
        if not isinstance(size, Size) or not self.masked(size):
            return Lit.of(size, kind)
        total: Atom | None = None
        for mono, c in size.terms:
            term: Atom | None = None if c == 1 and mono else Lit.of(c, kind)
            for part, power in mono:
                if not isinstance(part, Name):
                    factor = self._applied(part.function, self._count(part.a, kind), self._count(part.b, kind))
                elif part.name not in self.bounds:
                    factor = Lit.of(size_of(part), kind)
                else:
                    factor = emit_convert(self, self.sizes[part.name], kind.dtype)
                for _ in range(power):
                    term = factor if term is None else self.one(MUL, term, factor)
            assert term is not None
            total = term if total is None else self.one(ADD, total, term)
        assert total is not None
        return total

    def _applied(self, function: str, a: Atom, b: Atom) -> Atom:
        kind = a.aval
        if function == "max":
            return self.one(MAX, a, b)
        if function == "min":
            return self.one(MIN, a, b)
        zero = Lit.of(0, kind)
        if function == "bits":
            return self.one(SUB, Lit.of(8 * kind.dtype.itemsize, kind), self.one(CLZ, self.one(MAX, a, zero)))
        quotient = self.one(DIV, a, b)  # towards zero; // rounds down
        below = self.one(LT, self.one(SUB, a, self.one(MUL, quotient, b)), zero)
        return self.one(SUB, quotient, self.one(ConvertElementType(kind.dtype), below))

    def literal(self, a: Lit) -> Atom:
        """A literal over padded arrays."""
        shape = self.padded(a.aval.shape)
        if a.size is None or not self.masked(a.size):
            return a if shape == a.aval.shape else a.with_shape(shape)
        value = emit_convert(self, self._count(a.size, self._kind(a.size)), a.aval.dtype)
        return emit_broadcast(self, value, shape, ())

    # ------------------------------------------------------------------------------------------------------ padding

    def iota(self, shape: Shape, axis: int) -> Atom:
        """0, 1, 2, ... along an axis of a padded shape: i32."""
        return self.one(Iota(shape, dtypes.int32, axis))

    def below(self, shape: Shape, axis: int, count: Atom) -> Atom:
        """True at the indices less than `count` along an axis of a padded shape: bool."""
        n = shape[axis]
        row = self._rows_below.get((n, count))
        if row is None:
            row = self._rows_below[n, count] = self.one(LT, self.iota((n,), 0), emit_broadcast(self, count, (n,), ()))
        return row if len(shape) == 1 else emit_broadcast(self, row, shape, (axis,))

    def inside(self, shape: Shape, axes: Sequence[int] | None = None) -> Atom | None:
        """True at the valid elements of an array, along `axes` (default: all). None if there is no padding."""
        ragged = self.padded_axes(shape, axes)
        return self._all_inside(self.padded(shape), tuple(sorted(ragged))) if ragged else None

    def _all_inside(self, padded: Shape, ragged: tuple[tuple[int, int], ...]) -> Atom:
        inside = self._inside.get((padded, ragged))
        if inside is None:
            rows = [self.below(padded, a, self.count(n)) for a, n in ragged]
            inside = self._inside[padded, ragged] = self.every(rows)
        return inside

    def every(self, conditions: Sequence[Atom]) -> Atom:
        """True where all conditions (at least one) are."""
        first, *others = conditions
        for condition in others:
            first = self.one(AND, first, condition)
        return first

    def filled(self, x: Atom, shape: Shape, value: object, axes: Sequence[int] | None = None) -> Atom:
        """`x`, of the symbolic `shape`, with the padding along `axes` replaced by a value: a number, or a 0-d atom."""
        ragged = self.padded_axes(shape, axes)
        if not ragged:
            return x
        fill = value if isinstance(value, Atom) else Lit.of(value, Aval((), x.aval.dtype))
        if is_zero_literal(fill) and ragged <= self.zeros(x):
            return x
        if isinstance(x, Lit) and isinstance(fill, Lit) and x.with_shape(()) is fill:
            return x
        return self._selected(x, fill, tuple(sorted(ragged)))

    def _selected(self, x: Atom, fill: Atom, ragged: tuple[tuple[int, int], ...]) -> Atom:
        known = self._filled.get((x, fill, ragged))
        if known is None:
            inside = self._all_inside(x.aval.shape, ragged)
            known = self.one(SELECT_N, inside, emit_broadcast(self, fill, x.aval.shape, ()), x)
            self._filled[x, fill, ragged] = known
            axes = frozenset(ragged)
            zeros = self.zeros(x) | axes if is_zero_literal(fill) else NO_AXES
            finite = self.finite_axes(x) | axes if self.finite(fill) else NO_AXES
            self.learn(known, Knowledge(finite_axes=finite, zeros=zeros, pending=self.pending(x) - axes))
        return known

    def excluded(self, x: Atom, shape: Shape, axes: Sequence[int]) -> Atom:
        """`x`, of `shape`, with -inf in the padding along `axes`, which is zero before, by sums with rows of -0.0 and
        -inf. XLA computes them together with the products before and the exponentials after."""
        for a in self.ragged(shape):
            if a in axes:
                n, kind = x.aval.shape[a], x.aval.with_shape((x.aval.shape[a],))
                inside = self.below((n,), 0, self.count(shape[a]))
                row = self.one(SELECT_N, inside, Lit.of(-np.inf, kind), Lit.of(-0.0, kind))
                x = self.one(ADD, x, emit_broadcast(self, row, x.aval.shape, (a,)))
        return x

    def zeros(self, x: Atom) -> PaddedAxes:
        """The axes along which the padding of a value is known to be zero, with their sizes."""
        return self.knowledge(x).zeros

    def row_zeros(self, x: Atom) -> PaddedAxes:
        """The axes along which the padding of a value is zero, or no valid element of its row is finite."""
        known = self.knowledge(x)
        return known.zeros | known.row_zeros

    def finite(self, x: Atom, axes: PaddedAxes | None = None) -> bool:
        """Returns True if all elements are finite, padding included, where the operands of the program are; if `axes`
        are given, the padding along these."""
        if not x.aval.inexact or (axes is not None and axes <= self.finite_axes(x)):
            return True
        return self.knowledge(x).finite

    def finite_axes(self, x: Atom) -> PaddedAxes:
        """Axes along which the padding of a value is finite. It may be finite everywhere: `finite`."""
        return self.knowledge(x).finite_axes

    def least(self, x: Atom) -> float | None:
        """A number that no element of a value is less than, padding included; None if none is known."""
        return self.knowledge(x).least

    def pending(self, x: Atom) -> PaddedAxes:
        """The axes along which a value is to be cleared before an equation that may have an infinite slope there."""
        return self.knowledge(x).pending

    def knowledge(self, x: Atom) -> Knowledge:
        """The facts that are known about a value."""
        known = self._knowledge.get(x)
        if known is None:
            known = self._knowledge[x] = knowledge_of_literal(x) if isinstance(x, Lit) else NOTHING
        return known

    def learn(self, x: Atom, more: Knowledge) -> None:
        """Records facts about a value, beside those that are known. That it is finite is not recorded of a value whose
        dtype has a narrow range, because a product of it may overflow."""
        if isinstance(x, Lit):
            return
        if (more.finite or more.finite_axes) and x.aval.dtype in dtypes.NARROW_RANGE:
            more = replace(more, finite=False, finite_axes=NO_AXES)
        known = self._knowledge.get(x)
        self._knowledge[x] = more if known is None else known | more

    def clear_pending(self, x: Atom, value: object = 0) -> Atom:
        """`x`, with the padding replaced by `value` along the axes that are to be cleared."""
        return self.filled_along(x, value, self.pending(x))

    def clear_unless_finite(self, x: Atom) -> Atom:
        """`x`, cleared along the pending axes if the padding there may be infinite or nan."""
        return x if self.finite(x, self.pending(x)) else self.clear_pending(x)

    def filled_along(self, x: Atom, value: object, axes: PaddedAxes) -> Atom:
        """`x`, with the padding along `axes` replaced by `value`."""
        return self._selected(x, Lit.of(value, x.aval.with_shape(())), tuple(sorted(axes))) if axes else x

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        outs = super().__call__(prim, *args)
        self._learn(prim, args, outs)
        return outs

    def copy(self, eqn: Eqn, ins: Atoms, prim: Primitive | None = None) -> tuple[Var, ...]:
        outs = super().copy(eqn, ins, prim)
        self._learn(prim or eqn.prim, ins, outs)
        return outs

    def _learn(self, prim: Primitive, args: Atoms, outs: tuple[Var, ...]) -> None:
        """Records what follows about the result of an equation that has one."""
        if len(outs) != 1:
            return
        keeps = keeps_finite(prim, args, self.least)
        finite = keeps and all([self.finite(a) for a in args])
        self.learn(
            outs[0],
            Knowledge(
                finite=finite,
                finite_axes=NO_AXES if finite else finite_axes(prim, args, keeps, self._finite_parts, self.zeros),
                zeros=zero_axes(prim, args, self.zeros),
                row_zeros=row_zero_axes(prim, args, self.row_zeros),
                least=least_value(prim, args, self.least),
            ),
        )

    def _finite_parts(self, x: Atom) -> PaddedAxes | None:
        return None if self.finite(x) else self.finite_axes(x)

    def cleared(self, x: Atom, shape: Shape, axes: Sequence[int] | None = None) -> Atom:
        """`x` with zeros in the padding along `axes`, if it can have a tangent: cotangents there are then zero."""
        return self.filled(x, shape, 0, axes) if x.aval.inexact else x

    def cleared_later(self, x: Atom, shape: Shape, axes: Sequence[int] | None = None) -> Atom:
        """`x`, a result of a rule, which is cleared now or before the first equation that needs it."""
        if isinstance(x, Lit):
            return x
        later = self.padded_axes(shape, axes)
        if not self.finite(x, later):
            return self.cleared(x, shape, axes)
        if x.aval.inexact:
            self.learn(x, Knowledge(pending=later))
        return x

    def zero_filled(self, x: Atom, shape: Shape, axes: Sequence[int] | None = None) -> Atom:
        """`x` with zeros in the padding along `axes`, of any dtype."""
        return self.filled(x, shape, 0, axes)

    # -------------------------------------------------------------------------------------------------------- bodies

    def recur(self, body: Jaxpr) -> Jaxpr:
        """A body over padded arrays. It takes its operands, then the sizes: `size_operands`."""
        return self._mask_body(body, self.padding)

    def recur_once(self, body: Jaxpr, args: Atoms) -> tuple[Jaxpr, tuple[Knowledge, ...]]:
        """A body that runs once, on these operands and then the sizes, and what is known about its results."""
        return self._mask_call(body, self.padding, tuple([self.knowledge(a) for a in args]))

    def uses_sizes(self, body: Jaxpr) -> bool:
        """Returns True if a body depends on a size that is masked."""
        return any([n.name in self.bounds for n in size_names(body)])

    @property
    def size_operands(self) -> Atoms:
        """The sizes, in order: i32[]."""
        return tuple([self.sizes[name] for name, _ in self.padding])


class Write(Protocol[Q]):
    """Emits an equation over padded arrays. `ins` and `outs` are the symbolic types. The results have the padded types;
    their padding may hold anything."""

    def __call__(self, ctx: MaskCtx, prim: Q, args: Atoms, ins: Avals, outs: Avals, /) -> Sequence[Atom]: ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class MaskRow:
    """A row of the table, made by `row` or `refused`. `summary` describes the rule in the rule matrix.
    `clears_operands`: pending operands are cleared before the rule runs; a rule that clears them itself has False."""

    kind: type[Primitive]
    write: Write[Primitive]
    summary: str
    clears_operands: bool = True


class HasMask(Primitive):
    """A primitive from outside fxad that has a rule of `mask`. Those of fxad have rows in a table."""

    __slots__ = ()

    @abstractmethod
    def mask(self, ctx: MaskCtx, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
        """As in `Write`. If a lane of the results depends on that lane of the operands only: `ctx(self, *args)`."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class MaskTable:
    """An immutable table of rules; two tables are different values."""

    rows: Mapping[type[Primitive], MaskRow] = field(repr=False)

    def of(self, prim: Primitive) -> MaskRow | None:
        """The rule of a primitive: its row, or what it states itself."""
        rule = self.rows.get(type(prim))
        return row(type(prim), _own, "own") if rule is None and isinstance(prim, HasMask) else rule


def _own(ctx: MaskCtx, prim: HasMask, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    return prim.mask(ctx, args, ins, outs)


def row(kind: type[P], write: Write[P], summary: str, *, clears_operands: bool = True) -> MaskRow:
    """The rule of the primitives of one class."""

    def writing(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
        assert isinstance(prim, kind)
        return write(ctx, prim, args, ins, outs)

    return MaskRow(kind, writing, summary, clears_operands)


def refused(kind: type[Primitive], reason: str) -> MaskRow:
    """The row of a primitive that cannot be masked. `reason` completes the sentence "fft is not masked: ..."."""

    def refusing(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
        raise not_masked(prim, reason)

    return MaskRow(kind, refusing, f"none: {reason}")


def not_masked(
    prim: Primitive, reason: str, remedy: str = "mask the functions around it, or specialize the program to each size"
) -> SizeError:
    """The error for an equation that has no padded form."""
    return SizeError(f"mask: {prim.name} is not masked: {reason}", remedy=remedy)


def lanewise(ctx: MaskCtx, prim: Primitive, args: Atoms, ins: Avals, outs: Avals) -> Sequence[Atom]:
    """The same equation over padded arrays: each lane of the results depends on that lane of the operands only."""
    axes = NO_AXES.union(*[ctx.pending(a) for a in args])
    if not axes or not any([v.inexact for v in outs]):
        return ctx(prim, *args)  # a result that has no tangent has no slope
    finite = [ctx.finite(a, axes) for a in args]
    if keeps_finite(prim, args, ctx.least) and all(finite):
        return _passed_on(ctx, prim, args)
    filled = filled_with_one(prim)
    if filled is not None and all([k == filled or known for k, known in enumerate(finite)]):
        args = tuple([ctx.filled_along(a, 1, axes) if k == filled else a for k, a in enumerate(args)])
        out = _passed_on(ctx, prim, args)
        ctx.learn(out[0], Knowledge(finite_axes=axes))
        return out
    return ctx(prim, *[ctx.clear_pending(a) for a in args])


def _passed_on(ctx: MaskCtx, prim: Primitive, args: Atoms) -> Sequence[Atom]:
    """An equation whose result is cleared later where the operands are."""
    (out,) = ctx(prim, *args)
    pending = [moved_axes(prim, a.aval, ctx.pending(a)) for a in args]
    ctx.learn(out, Knowledge(pending=NO_AXES.union(*pending)))
    return (out,)


__all__ = [
    "HasMask",
    "MaskCtx",
    "MaskRow",
    "MaskTable",
    "Padding",
    "int_literal",
    "lanewise",
    "not_masked",
    "refused",
    "row",
]
