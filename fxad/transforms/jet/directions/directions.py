"""`sparse_directions`: derivatives along unit vectors are carried without the entries that are zero.

Directions of derivatives in x are unit vectors, so a direction d is an index (d_1, ..., d_m) of x. Where element a of
a value depends on the elements of x alone whose index d_1 is the index a_1, its derivatives T[d, a] are zero for other
d_1:

    T[d_1, d_2, a_1, a_2] = delta(d_1, a_1) S[d_2, a_1, a_2].

The index d_1 is tied to a_1, and d_2 is free (`summands`). The program carries S. For electrons x[i, c] that do not
interact yet, it has 3 directions in place of 3 N. T may be a sum of several summands: that of the distance of electrons
a_1 and a_2 has a summand with delta(d_1, a_1), and one with delta(d_1, a_2). In the first value, x, each index of d is
tied to an axis of x, and S is 1.

Equations that treat all slices along the axis a_1 alike apply to S. Others are these:

- a sum over a_1, and a product that contracts a_1 (`products`), leave one nonzero term: a_1 becomes d_1, which is free,
  and nothing is summed;
- a sum over d leaves one term for each index that is tied;
- the product of two values with delta(d_1, a_1) and delta(d_1, a_2) has delta(d_1, a_1) delta(a_1, a_2);
- a reshape that divides an axis a_1 divides d_1;
- a linear system whose right-hand sides are nonzero in row d_1 alone: their solutions are multiples of columns of the
  inverse. `vmap` puts the right-hand sides of all directions into one matrix.

Before any other equation, S is expanded: a mask gives T. The result is the same up to rounding, where no derivative is
infinite or nan: the dense program multiplies these with zeros.

In the example, x[i] moves tanh(x[i]) alone, so no matrix is made.

>>> import fxad as fx, fxad.numpy as fnp
>>> def squares(v, x):  # sum over directions of the squares of derivatives
...     t = fx.vmap(lambda v: v * fnp.cos(x))(v)
...     return (t * t).sum((0, 1))
>>> program = fx.simplify(fx.inline(fx.trace(squares, fx.Spec((9, 9)), fx.Spec(9))))
>>> print(sparse_directions(program.jaxpr, 0, (9,)))
main @squares(%arg0: f32[9]) -> (f32[]) {
  %0: f32[9] = cos %arg0
  %1: f32[9] = mul 1.0:f32[9], %0
  %2: f32[9] = mul %1, %1
  %3: f32[] = reduce_sum[axes=(0,)] %2
  return %3
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, final

from fxad.core.builder import Builder, producing_eqns
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Linear, Lit, Primitive
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG, SUB
from fxad.primitives.linalg.solve import Solve
from fxad.primitives.linearity import is_linear_eqn
from fxad.primitives.shape import ReduceSum, Reshape, emit_broadcast, emit_reshape
from fxad.transforms.jet.along import Along, along, apply_to_stack, is_constant, slice_of, weights_along, without
from fxad.transforms.jet.directions.products import DIRECTION, LEFT, contraction, dot_general
from fxad.transforms.jet.directions.summands import Derivatives, Placement, SummandBuilder, free_indices


@final
class _DirectionBuilder(SummandBuilder):
    """Builds the program. `derivatives` has the values with directions, `env` has all others and those that were
    expanded. `columns` are right-hand sides and solutions: matrices whose last axis is several axes of a value."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        super().__init__(Builder())
        self.jaxpr: Final = jaxpr
        self.defs: Final = producing_eqns(jaxpr.eqns)
        self.readers: Final[dict[Atom, set[type[Primitive]]]] = {}
        for eqn in jaxpr.eqns:
            for a in eqn.ins:
                self.readers.setdefault(a, set()).add(type(eqn.prim))
        self.env: Final[dict[Atom, Atom]] = {}
        self.derivatives: Final[dict[Atom, Derivatives]] = {}
        self.columns: Final[dict[Atom, Derivatives]] = {}

    def run(self, operand: int, shape: tuple[int, ...]) -> Jaxpr:
        """Return the program in which `operand` is the unit vectors of `shape`. A value that depends on them is carried
        without its zeros (`derivatives`, `columns`) as long as the equations allow it, otherwise as an array."""
        for k, v in enumerate(self.jaxpr.ins):
            if k != operand:
                self.env[v] = self.b.input(v.aval)
        unit = self.jaxpr.ins[operand]
        ones = Lit.of(1, Aval(shape, unit.aval.dtype))
        self.derivatives[unit] = Derivatives(0, shape, shape, {tuple(range(len(shape))): ones})
        for eqn in self.jaxpr.eqns:
            self.b.source = eqn.source
            columns = self.as_columns(eqn) or self.solutions(eqn)
            if columns is not None:
                self.columns[eqn.outs[0]] = columns
                continue
            out = self.apply(eqn)
            if isinstance(out, Derivatives):
                out = self.with_fewer_summands(out)
            if isinstance(out, Derivatives):
                self.derivatives[eqn.outs[0]] = out
            elif out is not None:
                self.env[eqn.outs[0]] = out
            else:
                args = tuple([self.dense(a) for a in eqn.ins])
                self.env.update(zip(eqn.outs, self.b.copy(eqn, args), strict=True))
        return dce(self.b.build([self.dense(a) for a in self.jaxpr.outs], self.jaxpr.name))

    def dense(self, a: Atom) -> Atom:
        """Return a value with all its entries."""
        if a not in self.env and a in self.derivatives:
            self.env[a] = self.expanded(self.derivatives[a])
        if a not in self.env and a in self.columns:
            self.env[a] = emit_reshape(self.b, self.expanded(self.columns[a]), a.aval.shape)
        return self.env.get(a, a)

    # ---------------------------------------------------------------------------------------------------- equations

    def apply(self, eqn: Eqn) -> Derivatives | Atom | None:
        """Return the result of an equation, as summands or without directions; None if it takes dense values."""
        prim = eqn.prim
        if isinstance(prim, Reshape) and (x := self.columns.get(eqn.ins[0])) is not None:
            return x if prim.shape == (*x.shape[: x.axis], prod(x.dims), *x.shape[x.axis :]) else None
        operands = [self.derivatives.get(a) for a in eqn.ins]
        with_directions = [x for x in operands if x is not None]
        if not with_directions or not isinstance(prim, Linear) or len(eqn.outs) != 1 or prim.effects:
            return None
        if len({x.dims for x in with_directions}) > 1 or any([a.aval.symbolic for a in (*eqn.ins, *eqn.outs)]):
            return None
        if isinstance(prim, ReduceSum):
            return self.reduce_sum(prim, with_directions[0])
        if isinstance(prim, DotGeneral):
            return dot_general(self, self.dense, eqn, operands)
        if prim == MUL and len(with_directions) == 2:
            return self.product(*with_directions)
        if prim == MUL and (weighted := self.weighted(eqn, operands)) is not None:
            return weighted
        if isinstance(prim, Reshape) and (divided := self.divided(prim, with_directions[0])) is not None:
            return divided
        return self.alike(eqn, operands)

    def alike(self, eqn: Eqn, operands: Sequence[Derivatives | None]) -> Derivatives | None:
        """Return the result of an equation that treats all directions alike; None for others.

        The equation for one direction maps the array of a summand, for each of its free indices. An index that is tied
        to an axis a of the operand is tied to the axis of the result to which a goes, if the equation treats all slices
        along a alike. Else the index is made free first. For example, the summand (0, 1) of x becomes the summand
        (None, 1) of the slice `x[1:]`."""
        varies = tuple([x is not None for x in operands])
        if not is_linear_eqn(eqn, varies):
            return None
        axis, slice_map = self.along_directions(eqn, operands)
        if slice_map is None:
            return None
        # The operands of the equation for one direction. In `x / y`, where x has directions and y: f32[7, 3] has equal
        # slices for the 7 of them, they are a zero, for the type of a summand of x, and the slice y[0].
        of_one_direction: list[Atom] = []
        for a, x, sliced_axis in zip(eqn.ins, operands, slice_map.axes, strict=True):
            if x is not None:
                of_one_direction.append(Lit.zero(Aval(x.shape, a.aval.dtype)))
            elif sliced_axis is None:
                of_one_direction.append(self.dense(a))
            else:
                of_one_direction.append(slice_of(self.b, self.defs, self.dense, a, sliced_axis))
        avals = [a.aval for a in of_one_direction]
        (out,) = slice_map.prim.abstract_eval(*avals)
        maps_of_axes = [along(slice_map.prim, avals, axis_of_out) for axis_of_out in range(out.ndim)]
        # for each summand of the result, the arrays of the operands from which it comes
        arrays: dict[Placement, dict[int, Atom]] = {}
        for p, x in enumerate(operands):
            if x is None:
                continue
            # Two axes of the result may come from one of size 1: f32[1] reshaped to f32[1, 1]. The first one counts, so
            # it is entered last.
            axis_in_result = {m.axes[p]: k for k, m in reversed([*enumerate(maps_of_axes)]) if m is not None}
            for placement, array in x.summands.items():
                lost = [k for k, a in enumerate(placement) if a is not None and a not in axis_in_result]
                freer, wide = self.freed(x, placement, array, lost)
                out_placement = tuple([None if a is None else axis_in_result[a] for a in freer])
                by_operand = arrays.setdefault(out_placement, {})
                by_operand[p] = self.sum(by_operand.get(p), wide)
        dims = next(x.dims for x in operands if x is not None)
        summands = {
            placement: self.mapped(slice_map.prim, placement, dims, of_one_direction, varying)
            for placement, varying in arrays.items()
        }
        return Derivatives(axis, dims, out.shape, summands)

    def along_directions(self, eqn: Eqn, operands: Sequence[Derivatives | None]) -> tuple[int, Along | None]:
        """Return the axis of the result that has the directions, and the equation for one of them; None if it is not
        the same for all."""
        avals = [a.aval for a in eqn.ins]
        for axis in range(eqn.outs[0].aval.ndim):
            slice_map = along(eqn.prim, avals, axis)
            if slice_map is not None and self._fit(eqn, operands, slice_map):
                return axis, slice_map
        return 0, None

    def _fit(self, eqn: Eqn, operands: Sequence[Derivatives | None], slice_map: Along) -> bool:
        """Return True if each operand with directions is sliced along them, and each other one is the same for all."""
        for a, x, sliced in zip(eqn.ins, operands, slice_map.axes, strict=True):
            if x is not None and sliced != x.axis:
                return False
            if x is None and sliced is not None and not is_constant(self.defs, a, sliced):
                return False
        return True

    def mapped(
        self,
        prim: Primitive,
        placement: Placement,
        dims: Sequence[int],
        of_one_direction: Sequence[Atom],
        varying: Mapping[int, Atom],
    ) -> Atom:
        """Return the result of an equation for the directions of a summand. Operands that are not `varying` are those
        of one direction."""
        if prim in (ADD, SUB) and len(varying) == 1:
            ((p, array),) = varying.items()
            return self.b.one(NEG, array) if prim == SUB and p == 1 else array
        sizes = tuple([dims[k] for k in free_indices(placement)])
        if not sizes:
            return self.b.one(prim, *[varying.get(p, a) for p, a in enumerate(of_one_direction)])
        stacked = tuple([p in varying for p in range(len(of_one_direction))])
        operands = [
            emit_reshape(self.b, varying[p], (prod(sizes), *a.aval.shape)) if p in varying else a
            for p, a in enumerate(of_one_direction)
        ]
        (out,) = apply_to_stack(self.b, prim, operands, stacked, prod(sizes))
        return emit_reshape(self.b, out, (*sizes, *out.aval.shape[1:]))

    def reduce_sum(self, prim: ReduceSum, x: Derivatives) -> Derivatives | Atom:
        """Return a sum over axes of a value, or over its directions too.

        Over an axis to which the index d is tied, one term is left: sum_a delta(d, a) S[a, b] = S[d, b]. So d is free
        in the result, and this axis of the array becomes that of d.
        """
        axes = [a - (a > x.axis) for a in prim.axes if a != x.axis]
        if x.axis in prim.axes:
            return self.sum_over_directions(x, axes)
        left_axes = [a for a in range(x.ndim) if a not in axes]
        summands: dict[Placement, Atom] = {}
        for placement, array in x.summands.items():
            free = free_indices(placement)
            freed = {a: k for k, a in enumerate(placement) if a is not None and a in axes}  # the index tied to an axis
            removed = tuple([len(free) + a for a in axes if a not in freed])
            # label k is index k of the direction, and label len(placement) + a is axis a of the value
            n = len(placement)
            labels = [*free, *[freed.get(a, n + a) for a in range(x.ndim) if a not in axes or a in freed]]
            out_placement = tuple([None if a is None or a in freed else left_axes.index(a) for a in placement])
            order = [*free_indices(out_placement), *[n + a for a in left_axes]]
            term = self.transposed(self.b.one(ReduceSum(removed), array) if removed else array, labels, order)
            summands[out_placement] = self.sum(summands.get(out_placement), term)
        axis = x.axis - sum([a < x.axis for a in prim.axes])
        return Derivatives(axis, x.dims, tuple([x.shape[a] for a in left_axes]), summands)

    def sum_over_directions(self, x: Derivatives, axes: Sequence[int]) -> Atom:
        """Return the sum over the directions and over axes of the value: over a tied index, one term is left."""
        total: Atom | None = None
        for placement, array in x.summands.items():
            n_free = len(free_indices(placement))
            removed = (*range(n_free), *[n_free + a for a in axes])
            total = self.sum(total, self.b.one(ReduceSum(removed), array) if removed else array)
        assert total is not None
        return total

    def product(self, x: Derivatives, y: Derivatives) -> Derivatives | None:
        """Return the product of two values, element by element.

        An index that is tied in one factor only is made free there. One that is tied to two axes p and q is tied to p
        in the product, whose array is zero where the indices of p and q differ.
        """
        if x.axis != y.axis:
            return None
        summands: dict[Placement, Atom] = {}
        for x_placement, x_array in x.summands.items():
            for y_placement, y_array in y.summands.items():
                axes = [*enumerate(zip(x_placement, y_placement, strict=True))]
                tied_in_x = [k for k, (p, q) in axes if p is not None and q is None]
                tied_in_y = [k for k, (p, q) in axes if p is None and q is not None]
                placement, a = self.freed(x, x_placement, x_array, tied_in_x)
                other_placement, b = self.freed(y, y_placement, y_array, tied_in_y)
                z: Atom = self.b.one(MUL, a, b)
                n_free = len(free_indices(placement))
                for p, q in zip(placement, other_placement, strict=True):
                    if p is not None and q is not None and p != q:
                        z = self.masked(z, n_free + p, n_free + q)
                summands[placement] = self.sum(summands.get(placement), z)
        return replace(x, summands=summands)

    def weighted(self, eqn: Eqn, operands: Sequence[Derivatives | None]) -> Derivatives | None:
        """Return the product with a number for each direction; None if the other factor is none."""
        p = 0 if operands[0] is not None else 1
        x = operands[p]
        assert x is not None
        numbers = weights_along(self.defs, eqn.ins[1 - p], x.axis)
        if numbers is None or prod(x.dims) == 1:
            return None
        weights = emit_reshape(self.b, self.dense(numbers), x.dims)
        summands: dict[Placement, Atom] = {}
        for placement, array in x.summands.items():
            free = free_indices(placement)
            # the axis of the array that is index k: its own if k is free, else that of the value to which it is tied
            axes = [free.index(k) if a is None else len(free) + a for k, a in enumerate(placement)]
            order = sorted(range(len(axes)), key=axes.__getitem__)
            factors = self.transposed(weights, range(len(axes)), order)
            wide = emit_broadcast(self.b, factors, array.aval.shape, tuple(sorted(axes)))
            summands[placement] = self.b.one(MUL, array, wide)
        return replace(x, summands=summands)

    def divided(self, prim: Reshape, x: Derivatives) -> Derivatives | None:
        """Return the result of a reshape that divides axes of the value; None if there are others.

        Example: x: f32[12, 12] has the directions at axis 0, of the dims (12,), and the placement (0,). Reshaped to
        f32[12, 4, 3], its directions have the dims (4, 3), and the placement is (0, 1).
        """
        out_shape = prim.shape
        if not all([isinstance(n, int) for n in out_shape]) or not x.summands:
            return None
        before, n = prod(x.shape[: x.axis]), prod(x.dims)
        axis = next((o for o, s in enumerate(out_shape) if s == n and prod(out_shape[:o]) == before), None)
        if axis is None:
            return None
        shape = without(out_shape, axis)
        groups = _groups(x.shape, shape)
        if groups is None or len(groups) == len(shape):
            return None
        sizes: list[tuple[int, ...]] = []  # into which each index of the direction is divided
        for k, size in enumerate(x.dims):
            choices = {
                tuple([shape[g] for g in groups[a]]) for placement in x.summands if (a := placement[k]) is not None
            }
            if len(choices) > 1:
                return None
            sizes.append(next(iter(choices), (size,)))
        summands: dict[Placement, Atom] = {}
        for placement, array in x.summands.items():
            new_placement: list[int | None] = []
            for k, a in enumerate(placement):
                new_placement += [None] * len(sizes[k]) if a is None else groups[a]
            free_sizes = [s for k in free_indices(placement) for s in sizes[k]]
            summands[tuple(new_placement)] = emit_reshape(self.b, array, (*free_sizes, *shape))
        return Derivatives(axis, tuple([s for group in sizes for s in group]), shape, summands)

    def as_columns(self, eqn: Eqn) -> Derivatives | None:
        """Return the value with directions that a reshape makes a matrix of, for linear systems only; None for other
        equations. `vmap` makes this matrix: x[i, d, j] becomes the column (d, j) of row i."""
        prim, x = eqn.prim, self.derivatives.get(eqn.ins[-1]) if eqn.ins else None
        if not isinstance(prim, Reshape) or x is None or x.axis != 1 or self.readers.get(eqn.outs[0]) != {Solve}:
            return None
        return x if prim.shape == (x.shape[0], prod(x.dims) * prod(x.shape[1:])) else None

    def solutions(self, eqn: Eqn) -> Derivatives | None:
        """Return the solutions of a linear system whose right-hand sides are nonzero in one row each; None for others.

        With B[i, d] = delta(i, d) S[d], the solution of A X = B is X[:, d] = inv(A)[:, d] S[d]. In summands: an index d
        that is tied to the row is free in the solution.
        """
        prim, x = eqn.prim, self.columns.get(eqn.ins[-1]) if eqn.ins else None
        if not isinstance(prim, Solve) or x is None or any([0 not in placement for placement in x.summands]):
            return None
        n_rows = x.shape[0]
        matrix = [self.dense(a) for a in eqn.ins[:-1]]
        unit = self.masked(Lit.of(1, Aval((n_rows, n_rows), eqn.outs[0].aval.dtype)), 0, 1)
        inverse = self.b.one(prim, *matrix, unit)
        outer = DotGeneral((), (), (), (), None, "highest")
        summands: dict[Placement, Atom] = {}
        for placement, array in x.summands.items():
            row_index = placement.index(0)  # the index of the direction that is tied to the row
            out_placement = (*placement[:row_index], None, *placement[row_index + 1 :])
            row, *other_axes = [(LEFT, a) for a in range(x.ndim)]
            names = [*[(DIRECTION, k) for k in free_indices(placement)], (DIRECTION, row_index), *other_axes]
            order = [*[(DIRECTION, k) for k in free_indices(out_placement)], row, *other_axes]
            term = contraction(self, outer, (inverse, [row, (DIRECTION, row_index)]), (array, names), order)
            summands[out_placement] = self.sum(summands.get(out_placement), term)
        return replace(x, summands=summands)


def _groups(sizes: Sequence[int], divided: Sequence[int]) -> list[list[int]] | None:
    """Return for each axis the axes into which a reshape divides it; None if it joins axes too."""
    groups: list[list[int]] = []
    o = 0
    for size in sizes:
        group: list[int] = []
        product = 1
        while o < len(divided) and (not group or product < size):
            group.append(o)
            product *= divided[o]
            o += 1
        if not group or product != size:
            return None
        groups.append(group)
    return groups if o == len(divided) else None


@by_value
def sparse_directions(jaxpr: Jaxpr, operand: int, shape: tuple[int, ...]) -> Jaxpr:
    """Return the program without an operand that holds all unit vectors of a shape, (prod(shape), *shape). Values that
    depend on it are carried without entries that are zero.

    Law:  the same value up to rounding, where the derivatives are finite.
    Cost: one pass; at most as many operations as before, and a mask where a value is expanded.
    """
    return _DirectionBuilder(jaxpr).run(operand, shape)
