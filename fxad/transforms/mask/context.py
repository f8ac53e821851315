"""The context of mask rules: it fills and clears padding, records facts about the padding of each value, and the axes
along which padding is still to be cleared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import lower_bound
from fxad.ir import Atom, Atoms, Aval, Eqn, Jaxpr, Lit, Primitive, Shape, Var
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.shape import emit_broadcast
from fxad.transforms.mask.padded_builder import PaddedBuilder, SizeBounds
from fxad.transforms.mask.padding_facts import (
    NO_AXES,
    NO_FACTS,
    WITHOUT_INFINITIES,
    PaddedAxes,
    PaddingFacts,
    facts_of_literal,
    facts_of_result,
    is_zero_literal,
    moved_axes,
)
from fxad.transforms.specialize import size_names

# For each operand or result of a body: the facts about its padding, and its pending axes.
PaddingStates: TypeAlias = tuple[tuple[PaddingFacts, PaddedAxes], ...]


@final
class MaskCtx(PaddedBuilder):
    """The context of mask rules: the builder of the padded program. Its methods, for x of a symbolic `shape`.

    filled(x, shape, v)          x inside, v in the padding
    zero_filled(x, shape)        filled with 0, of any dtype: for the values
    cleared(x, shape)            filled with 0, if x can have a tangent: for the derivatives
    cleared_later(x, shape)      cleared, or pending if the padding of x is finite
    facts(x), learn(x, more)     the facts about the padding of x; records more of them

    To clear a value is to fill its padding with zeros for the sake of derivatives. Only a value that can have a tangent
    is cleared: the zeros stop the cotangents of the padding.

    An axis of a value is pending if the padding along it is to be cleared: before the first equation that may have an
    infinite slope there, or at the end of the program. Until then, the results of equations are pending where their
    operands are.

    pending(x)                   the pending axes of x
    add_pending(x, axes)         adds to them
    clear_pending(x)             x, cleared along the pending axes
    clear_unless_finite(x)       likewise, if the padding along them may be infinite or nan
    with_pending(prim, x)        the result of an equation, pending where x is
    """

    __slots__ = ("_facts", "_filled", "_mask_body", "_mask_call", "_pending")

    def __init__(
        self,
        bounds: SizeBounds,
        mask_body: Callable[[Jaxpr, SizeBounds], Jaxpr],
        mask_call: Callable[[Jaxpr, SizeBounds, PaddingStates], tuple[Jaxpr, PaddingStates]],
    ) -> None:
        super().__init__(bounds)
        self._mask_body, self._mask_call = mask_body, mask_call
        self._facts: dict[Atom, PaddingFacts] = {}
        self._pending: dict[Atom, PaddedAxes] = {}
        self._filled: dict[tuple[Atom, Atom, PaddedAxes], Atom] = {}  # values that were filled before

    # --------------------------------------------------------------------------------------------- filled and cleared

    def filled(self, x: Atom, shape: Shape, value: object, axes: Sequence[int] | None = None) -> Atom:
        """Return `x`, of the symbolic `shape`, with the padding along `axes` replaced by a value: a number, or a 0-d
        atom."""
        padded = self.padded_axes(shape, axes)
        if not padded:
            return x
        fill = value if isinstance(value, Atom) else Lit.of(value, Aval((), x.aval.dtype))
        if is_zero_literal(fill) and padded <= self.facts(x).zeros:
            return x
        if isinstance(x, Lit) and isinstance(fill, Lit) and x.with_shape(()) is fill:
            return x
        return self._select(x, fill, padded)

    def filled_along(self, x: Atom, value: object, axes: PaddedAxes) -> Atom:
        """Return `x`, with the padding along `axes` replaced by `value`."""
        return self._select(x, Lit.of(value, x.aval.with_shape(())), axes) if axes else x

    def _select(self, x: Atom, fill: Atom, axes: PaddedAxes) -> Atom:
        """Add the select of `x` inside and `fill` in the padding along `axes`, once."""
        filled = self._filled.get((x, fill, axes))
        if filled is None:
            inside = self.inside_along(x.aval.shape, tuple(sorted(axes)))
            filled = self.one(SELECT_N, inside, emit_broadcast(self, fill, x.aval.shape, ()), x)
            self._filled[x, fill, axes] = filled
            facts_of_x = self.facts(x)
            self.learn(
                filled,
                PaddingFacts(
                    finite_axes=facts_of_x.finite_axes | axes if self.facts(fill).finite else NO_AXES,
                    zeros=facts_of_x.zeros | axes if is_zero_literal(fill) else NO_AXES,
                ),
            )
            self.add_pending(filled, self.pending(x) - axes)
        return filled

    def zero_filled(self, x: Atom, shape: Shape, axes: Sequence[int] | None = None) -> Atom:
        """Return `x` with zeros in the padding along `axes`, of any dtype."""
        return self.filled(x, shape, 0, axes)

    def cleared(self, x: Atom, shape: Shape, axes: Sequence[int] | None = None) -> Atom:
        """Return `x` with zeros in the padding along `axes`, if it can have a tangent: cotangents there are then
        zero."""
        return self.filled(x, shape, 0, axes) if x.aval.inexact else x

    def cleared_later(self, x: Atom, shape: Shape, axes: Sequence[int] | None = None) -> Atom:
        """Return `x`, a result of a rule: cleared if its padding may be infinite or nan, else pending."""
        if isinstance(x, Lit):
            return x
        padded = self.padded_axes(shape, axes)
        if not self.facts(x).finite_along(padded):
            return self.cleared(x, shape, axes)
        if x.aval.inexact:
            self.add_pending(x, padded)
        return x

    def excluded(self, x: Atom, shape: Shape, axes: Sequence[int]) -> Atom:
        """Return `x`, of `shape`, whose padding along `axes` is zero, with -inf there. A row of -0.0 and -inf is added
        to it: XLA fuses this sum with the product before and the exponential after. The sum of -0.0 and -0.0 is
        -0.0."""
        for a in self.ragged(shape):
            if a in axes:
                n, row_type = x.aval.shape[a], x.aval.with_shape((x.aval.shape[a],))
                inside = self.below((n,), 0, self.count(shape[a]))
                row = self.one(SELECT_N, inside, Lit.of(-np.inf, row_type), Lit.of(-0.0, row_type))
                x = self.one(ADD, x, emit_broadcast(self, row, x.aval.shape, (a,)))
        return x

    # -------------------------------------------------------------------------------------------------------- pending

    def pending(self, x: Atom) -> PaddedAxes:
        """Return the axes along which the padding of `x` is to be cleared."""
        return self._pending.get(x, NO_AXES)

    def add_pending(self, x: Atom, axes: PaddedAxes) -> None:
        """Record axes along which the padding of `x` is to be cleared. A literal has none."""
        if axes and not isinstance(x, Lit):
            self._pending[x] = self.pending(x) | axes

    def clear_pending(self, x: Atom) -> Atom:
        """Return `x`, cleared along the pending axes."""
        return self.filled_along(x, 0, self.pending(x))

    def clear_unless_finite(self, x: Atom) -> Atom:
        """Return `x`, cleared along the pending axes if the padding there may be infinite or nan."""
        return x if self.facts(x).finite_along(self.pending(x)) else self.clear_pending(x)

    def with_pending(self, prim: Primitive, *args: Atom) -> Var:
        """Add an equation with one result, which is pending where the operands are."""
        out = self.one(prim, *args)
        self.add_pending(out, NO_AXES.union(*[moved_axes(prim, a.aval, self.pending(a)) for a in args]))
        return out

    # ---------------------------------------------------------------------------------------------------------- facts

    def facts(self, x: Atom) -> PaddingFacts:
        """Return the facts that are known about the padding of a value."""
        facts = self._facts.get(x)
        if facts is None:
            default = NO_FACTS if x.aval.inexact else WITHOUT_INFINITIES
            facts = self._facts[x] = facts_of_literal(x) if isinstance(x, Lit) else default
        return facts

    def learn(self, x: Atom, more: PaddingFacts) -> None:
        """Add facts about a value. A value of a dtype of narrow range is not recorded as finite, because a product of
        it may overflow."""
        if isinstance(x, Lit):
            return
        if (more.finite or more.finite_axes) and x.aval.dtype in dtypes.NARROW_RANGE:
            more = replace(more, finite=False, finite_axes=NO_AXES)
        self._facts[x] = self.facts(x) | more

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        outs = super().__call__(prim, *args)
        self._learn_result(prim, args, outs)
        return outs

    def copy(self, eqn: Eqn, ins: Atoms, prim: Primitive | None = None) -> tuple[Var, ...]:
        outs = super().copy(eqn, ins, prim)
        self._learn_result(prim or eqn.prim, ins, outs)
        return outs

    def _learn_result(self, prim: Primitive, args: Atoms, outs: tuple[Var, ...]) -> None:
        """Record the facts about the result of an equation, if it has one result."""
        if len(outs) == 1:
            self.learn(outs[0], facts_of_result(prim, args, [self.facts(a) for a in args]))

    def new_count(self, size: int, aval: Aval) -> Atom:
        value = super().new_count(size, aval)
        self.learn(value, PaddingFacts(least=lower_bound(size)))
        return value

    # --------------------------------------------------------------------------------------------------------- bodies

    def recur(self, body: Jaxpr) -> Jaxpr:
        """Return a body over padded arrays. It takes its operands, then the sizes: `size_operands`."""
        return self._mask_body(body, self.size_bounds)

    def recur_once(self, body: Jaxpr, args: Atoms) -> tuple[Jaxpr, PaddingStates]:
        """Return a body that runs once, over these operands and then the sizes; the facts and pending axes of its
        results."""
        return self._mask_call(body, self.size_bounds, self.states(args))

    def states(self, values: Sequence[Atom]) -> PaddingStates:
        """Return the facts and pending axes of values."""
        return tuple([(self.facts(x), self.pending(x)) for x in values])

    def add_states(self, values: Sequence[Atom], states: PaddingStates) -> None:
        """Record facts and pending axes of values."""
        for x, (facts, pending) in zip(values, states, strict=True):
            self.learn(x, facts)
            self.add_pending(x, pending)

    def uses_sizes(self, body: Jaxpr) -> bool:
        """Return True if a body depends on a size that is masked."""
        return any([n.name in self.bounds for n in size_names(body)])


__all__ = ["MaskCtx", "PaddingStates"]
