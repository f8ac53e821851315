"""Sums over an axis of the result of one equation, from sums of its operands.

`sum_before(defs, eqn, form)` says how an equation is computed if its sum is taken before it: which operands are
summed, of which one slice is enough, and what the primitive becomes for values without the axis. The axis is a batch
axis: the equation maps each slice of its operands to a slice of its result (`along`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias, final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType
from fxad.ir import Atom, Eqn, Flags, Linear, Primitive
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.complex_parts import Conj, Imag, Real
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.linalg.family import LinearSystem
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linearity import is_linear_eqn
from fxad.primitives.shape import Reshape
from fxad.transforms.jet.along import along, is_constant, weights_along, without

# ------------------------------------------------------------------------------------------------ forms of a value


@final
@dataclass(frozen=True, slots=True)
class SumOverAxis:
    """The sum of a value over an axis.

    weights: the slices are multiplied by the elements of this value first.
    around:  the axis is three axes as one, and the sum is over the middle one; these are the sizes of the outer two.
             The sum of x: f32[4, 30] over axis 1 with `around` (2, 3) is x.reshape(4, 2, 5, 3).sum(2).reshape(4, 6).
    """

    axis: int
    weights: Atom | None = None
    around: tuple[int, int] | None = None

    def size(self, shape: Sequence[int]) -> int:
        """Return the number of slices."""
        return shape[self.axis] if self.around is None else shape[self.axis] // prod(self.around)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the sum of a value of some shape."""
        if self.around is None:
            return without(shape, self.axis)
        return (*shape[: self.axis], prod(self.around), *shape[self.axis + 1 :])


@final
@dataclass(frozen=True, slots=True)
class OneSlice:
    """One slice of a value whose slices along an axis are equal."""

    axis: int


@final
@dataclass(frozen=True, slots=True)
class Unsummed:
    """A value as it is, not as a sum."""


UNSUMMED: Final = Unsummed()
Form: TypeAlias = SumOverAxis | Unsummed  # in which a value is used


@final
@dataclass(frozen=True, slots=True)
class EquationOnSums:
    """An equation after its sum: `prim` of these forms of its operands. `copies`: no operand has the axis, so the sum
    is a multiple of the result. Without `prim`, the sum is that of the only operand which is summed."""

    prim: Primitive | None
    operands: tuple[SumOverAxis | OneSlice | Unsummed, ...]
    copies: int | None = None


# ------------------------------------------------------------------------------------------- one equation


def sum_before(defs: Mapping[Atom, Eqn], eqn: Eqn, form: SumOverAxis) -> EquationOnSums | None:
    """Return an equation after the sum of its result; None if the sum does not move.

    The sum over i of y_i, where the equation gives the slice y_i from slices of its operands, is

    - n y_0, if no operand has the axis;
    - the sum of x_i with weights w_i, if y_i = w_i x_i for numbers w_i;
    - f(sum x_i, c), if y_i = f(x_i, c) is linear in x_i, and the slices of c are equal along the axis;
    - A B summed over i, if y_i = A_i B_i: a product that contracts i.
    """
    prim = eqn.prim
    if not isinstance(prim, Linear) or not eqn.outs[0].aval.inexact:
        return None
    if form.around is not None:
        return _sum_before_part(eqn, form)
    slice_map = along(prim, [a.aval for a in eqn.ins], form.axis)
    if slice_map is None:
        return _sum_of_columns(defs, eqn, form) if isinstance(prim, Reshape) else None
    if form.weights is not None and not _keeps_factors(eqn, form.weights.aval.dtype):
        return None
    if not any([a is not None for a in slice_map.axes]):
        if not isinstance(eqn.outs[0].aval.shape[form.axis], int):
            return None
        return EquationOnSums(slice_map.prim, (UNSUMMED,) * len(eqn.ins), eqn.outs[0].aval.shape[form.axis])
    constant = [x is None or is_constant(defs, a, x) for a, x in zip(eqn.ins, slice_map.axes, strict=True)]
    if prim == MUL and form.weights is None and eqn.ins[0] is not eqn.ins[1] and not any(constant):
        for k in (1, 0):
            weights = weights_along(defs, eqn.ins[k], form.axis)
            if weights is not None:
                weighted = SumOverAxis(form.axis, weights)
                return EquationOnSums(None, (weighted, UNSUMMED) if k else (UNSUMMED, weighted))
    summed = _summed_operands(eqn, prim, slice_map.axes, constant)
    if summed is not None:
        operands = [
            UNSUMMED if axis is None else replace(form, axis=axis) if is_summed else OneSlice(axis)
            for is_summed, axis in zip(summed, slice_map.axes, strict=True)
        ]
        return EquationOnSums(slice_map.prim, tuple(operands))
    if isinstance(prim, DotGeneral) and form.axis < len(prim.lhs_batch) and form.weights is None:
        return EquationOnSums(_with_contracted_batch(prim, form.axis), (UNSUMMED, UNSUMMED))
    return None


def _summed_operands(eqn: Eqn, prim: Linear, axes: Sequence[int | None], constant: Sequence[bool]) -> Flags | None:
    """Return the operands whose sums a linear equation takes in place of slices; None if there is no choice of them.
    `axes` are those of the operands, and operands that are `constant` have equal slices.

    In w_i * c, the sum of w and one slice of c. In w_i + c, linear in both together, the sum of c too: n times a slice.
    """
    varying = [not c for c in constant]
    if not any(varying):  # all slices of the result are equal: one operand, or all together, are summed
        varying = [axis is not None for axis in axes]
        if varying.count(True) > 1 and not prim.linear_in(tuple(varying)):
            varying = [k == varying.index(True) for k in range(len(varying))]
    with_axis = tuple([v or axis is not None for v, axis in zip(varying, axes, strict=True)])
    for summed in (tuple(varying), with_axis):
        if is_linear_eqn(eqn, summed):
            return summed
    return None


def _keeps_factors(eqn: Eqn, dtype: DType) -> bool:
    """Return True if f(w x) = w f(x) for factors w of a type, which are converted to the type of x."""
    if isinstance(eqn.prim, Real | Imag | Conj):
        return dtype not in dtypes.COMPLEX
    if isinstance(eqn.prim, ConvertElementType):
        (x,) = eqn.ins
        return x.aval.dtype == eqn.prim.dtype or x.aval.dtype.itemsize > eqn.prim.dtype.itemsize
    return True


def _with_contracted_batch(prim: DotGeneral, axis: int) -> DotGeneral:
    """Return the product that is summed over a batch axis: sum_i A_i B_i is a product of A and B over i too."""
    return replace(
        prim,
        lhs_batch=without(prim.lhs_batch, axis),
        rhs_batch=without(prim.rhs_batch, axis),
        lhs_contract=(*prim.lhs_contract, prim.lhs_batch[axis]),
        rhs_contract=(*prim.rhs_contract, prim.rhs_batch[axis]),
    )


# ------------------------------------------------------------------------------------------- parts of an axis


def _sum_of_columns(defs: Mapping[Atom, Eqn], eqn: Eqn, form: SumOverAxis) -> EquationOnSums | None:
    """Return a reshape after the sum over an axis that is a part of an axis of the operand, where this holds the
    right-hand sides of a linear system: `vmap` puts those of all examples into one matrix.

    Example: the solutions x: f32[n, 2 B] of 2 right-hand sides for each of B examples, reshaped to f32[n, 2, B] and
    summed over the examples. The sum is one of x over axis 1, `around` (2, 1).
    """
    prim, (a,) = eqn.prim, eqn.ins
    assert isinstance(prim, Reshape)
    source = defs.get(a)
    if source is None or not isinstance(source.prim, LinearSystem) or a.aval.symbolic:
        return None
    column_axis = _column_axis(source)
    shape, size = a.aval.shape, prim.shape[form.axis]
    before, rest_before = divmod(prod(prim.shape[: form.axis]), prod(shape[:column_axis]) or 1)
    after, rest_after = divmod(prod(prim.shape[form.axis + 1 :]), prod(shape[column_axis + 1 :]) or 1)
    if rest_before or rest_after or before * size * after != shape[column_axis] or size == 0:
        return None
    return EquationOnSums(
        Reshape(without(prim.shape, form.axis)), (SumOverAxis(column_axis, form.weights, (before, after)),)
    )


def _sum_before_part(eqn: Eqn, form: SumOverAxis) -> EquationOnSums | None:
    """Return an equation after the sum over a part of an axis of its result."""
    prim = eqn.prim
    if isinstance(prim, LinearSystem) and form.axis == _column_axis(eqn):
        return EquationOnSums(prim, (*[UNSUMMED] * (len(eqn.ins) - 1), form))
    if not isinstance(prim, Reshape) or eqn.ins[0].aval.symbolic:
        return None
    assert form.around is not None
    shape, size = eqn.ins[0].aval.shape, form.size(prim.shape)
    before = prod(prim.shape[: form.axis]) * form.around[0]
    axis = next((k for k, n in enumerate(shape) if n == size and prod(shape[:k]) == before), None)
    return None if axis is None else EquationOnSums(Reshape(form.shape(prim.shape)), (SumOverAxis(axis, form.weights),))


def _column_axis(eqn: Eqn) -> int:
    """Return the axis of the right-hand sides of a linear system, in its result and in its last operand."""
    right = isinstance(eqn.prim, TriangularSolve) and not eqn.prim.left_side
    return eqn.ins[-1].aval.ndim - (2 if right else 1)
