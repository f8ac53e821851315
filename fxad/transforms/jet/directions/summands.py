"""The derivatives of a value along all directions, as a sum of summands, and the equations on their arrays.

The derivatives T[d, a] of a value along the directions d have a direction index d_k for each axis of x, the value in
which derivatives are taken. In a summand, an index of the direction is either

- *tied* to an axis a of the value: the derivatives are zero where d_k is not the index a, so the array has no axis for
  d_k; or
- *free*: the array has an axis for it.

The placement says which. That of T[d_1, d_2, a_1, a_2] = delta(d_1, a_1) S[d_2, a_1, a_2] is (0, None): d_1 is tied to
axis 0 of the value, and d_2 is free. The array S has the axes of the free indices first, then those of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.ir import Atom, Lit, Shape
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.shape import Iota, Transpose, emit_broadcast, emit_reshape

# For each index of a direction: the axis of the value to which it is tied, or None if it is free.
Placement: TypeAlias = tuple[int | None, ...]


@final
@dataclass(frozen=True, slots=True)
class Derivatives:
    """The derivatives of a value along all directions, as a sum of summands: arrays by placement. `axis`: that of
    directions in the dense form. `dims`: the sizes of the indices of a direction. `shape`: that of the value."""

    axis: int
    dims: tuple[int, ...]
    shape: Shape
    summands: Mapping[Placement, Atom]

    @property
    def ndim(self) -> int:
        return len(self.shape)


def free_indices(placement: Placement) -> list[int]:
    """Return the indices of a direction that are free."""
    return [k for k, axis in enumerate(placement) if axis is None]


def _contains(wide: Placement, placement: Placement) -> bool:
    """Return True if each index is free in the wide placement, or tied to the same axis."""
    return all([a is None or a == other for a, other in zip(wide, placement, strict=True)])


class SummandBuilder:
    """Adds equations on the arrays of summands to a program."""

    def __init__(self, b: Builder) -> None:
        self.b: Final = b

    def sum(self, a: Atom | None, b: Atom) -> Atom:
        """Return a + b; None is zero."""
        return b if a is None else self.b.one(ADD, a, b)

    def expanded(self, x: Derivatives) -> Atom:
        """Return the dense form."""
        n, total = prod(x.dims), None
        for placement, array in x.summands.items():
            tied = [k for k, axis in enumerate(placement) if axis is not None]
            total = self.sum(total, self.freed(x, placement, array, tied)[1])
        assert total is not None
        flat = emit_reshape(self.b, total, (n, *x.shape))
        order = [*range(1, x.axis + 1), 0, *range(x.axis + 1, x.ndim + 1)]
        return flat if x.axis == 0 or isinstance(flat, Lit) else self.b.one(Transpose(tuple(order)), flat)

    def with_fewer_summands(self, x: Derivatives) -> Derivatives | Atom:
        """Return the value with fewer summands: one with more free indices takes in another. If all indices of one are
        free, the value is dense."""
        summands = dict(x.summands)
        for placement in sorted(x.summands, key=lambda placement: len(free_indices(placement))):
            wide = next((other for other in summands if other != placement and _contains(other, placement)), None)
            if wide is not None:
                tied = [k for k, (a, other) in enumerate(zip(placement, wide, strict=True)) if a != other]
                array = self.freed(x, placement, summands.pop(placement), tied)[1]
                summands[wide] = self.sum(summands[wide], array)
        fewer = replace(x, summands=summands)
        return self.expanded(fewer) if (None,) * len(x.dims) in summands else fewer

    def freed(
        self, x: Derivatives, placement: Placement, array: Atom, indices: Sequence[int]
    ) -> tuple[Placement, Atom]:
        """Return a summand in which some tied indices are free: its placement, and its array, in which each has an axis
        of its own. The array is zero where this index is not that of the axis to which it was tied."""
        for k in indices:
            tied_axis = placement[k]
            assert tied_axis is not None
            placement = (*placement[:k], None, *placement[k + 1 :])
            free = free_indices(placement)
            axis = free.index(k)
            shape = (*array.aval.shape[:axis], x.dims[k], *array.aval.shape[axis:])
            copies = emit_broadcast(self.b, array, shape, tuple([i for i in range(len(shape)) if i != axis]))
            array = self.masked(copies, axis, len(free) + tied_axis)
        return placement, array

    def masked(self, a: Atom, p: int, q: int) -> Atom:
        """Return a value with zeros where the indices of two axes differ."""
        shape = a.aval.shape
        p_index, q_index = [self.b.one(Iota(shape, dtypes.int32, axis)) for axis in (p, q)]
        return self.b.one(SelectN(), self.b.one(EQ, p_index, q_index), Lit.zero(a.aval), a)

    def transposed(self, a: Atom, labels: Sequence[object], order: Sequence[object]) -> Atom:
        """Return an array whose axes have labels with its axes in another order of the labels."""
        perm = tuple([labels.index(label) for label in order])
        if perm == tuple(range(len(perm))):
            return a
        return (
            a.with_shape(tuple([a.aval.shape[k] for k in perm]))
            if isinstance(a, Lit)
            else self.b.one(Transpose(perm), a)
        )
