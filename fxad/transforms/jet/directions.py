"""`sparse_directions`: derivatives along unit vectors are carried without the entries that are zero.

Directions of derivatives in x are unit vectors, so a direction d is an index (d_1, ..., d_m) of x. Where element a of
a value depends on the elements of x alone whose index d_1 is the index a_1, its derivatives T[d, a] are zero for other
d_1:

    T[d_1, d_2, a_1, a_2] = delta(d_1, a_1) S[d_2, a_1, a_2].

The program carries S. For electrons x[i, c] that do not interact yet, it has 3 directions in place of 3 N. T may be a
sum of several summands: that of the distance of electrons a_1 and a_2 has a summand with delta(d_1, a_1), and one with
delta(d_1, a_2). In the first value, x, each index of d is an index of x, and S is 1.

Equations that treat all slices along the axis a_1 alike apply to S. Others are these:

- a sum over a_1, and a product that contracts a_1, leave one nonzero term: a_1 becomes d_1, and nothing is summed;
- a sum over d leaves one term for each index that is one of a value;
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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Final, NamedTuple, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Linear, Lit, Primitive, Shape
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import ADD, MUL, NEG, SUB
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.linalg.solve import Solve
from fxad.primitives.linearity import is_linear_eqn
from fxad.primitives.shape import Iota, ReduceSum, Reshape, Transpose, emit_broadcast, emit_reshape
from fxad.transforms.jet.along import Along, along, is_constant, slice_of, weights_along, without
from fxad.transforms.vmap import over_stack

# For each index of a direction: the axis of the value whose index it is, or None if it has an axis of its own. The
# summand delta(d_1, a_1) S[d_2, a_1, a_2] of the module is (0, None).
_At: TypeAlias = tuple[int | None, ...]


@final
@dataclass(frozen=True, slots=True)
class _Derivatives:
    """The derivatives of a value along all directions, as a sum of summands. `axis`: that of directions in the dense
    form. `dims`: the sizes of the indices of a direction. `shape`: that of the value. The array of a summand has the
    axes of the indices with an axis of their own, then those of the value."""

    axis: int
    dims: tuple[int, ...]
    shape: Shape
    summands: Mapping[_At, Atom]

    @property
    def ndim(self) -> int:
        return len(self.shape)


def _own(at: _At) -> list[int]:
    """Return the indices of a direction that have an axis of their own."""
    return [k for k, a in enumerate(at) if a is None]


def _takes_in(wide: _At, at: _At) -> bool:
    """Return True if a summand has an axis of its own for each index which is another one than in `at`."""
    return all([p is None or p == q for p, q in zip(wide, at, strict=True)])


@final
class _DirectionSplitter:
    """Builds the program. `derivatives` has the values with directions, `env` has all others and those that were
    expanded. `columns` are right-hand sides and solutions: matrices whose last axis is several axes of a value."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.b: Final = Builder()
        self.jaxpr: Final = jaxpr
        self.defs: Final[dict[Atom, Eqn]] = {v: e for e in jaxpr.eqns for v in e.outs}
        self.readers: Final[dict[Atom, set[type[Primitive]]]] = {}
        for eqn in jaxpr.eqns:
            for a in eqn.ins:
                self.readers.setdefault(a, set()).add(type(eqn.prim))
        self.env: Final[dict[Atom, Atom]] = {}
        self.derivatives: Final[dict[Atom, _Derivatives]] = {}
        self.columns: Final[dict[Atom, _Derivatives]] = {}

    def run(self, operand: int, shape: tuple[int, ...]) -> Jaxpr:
        for k, v in enumerate(self.jaxpr.ins):
            if k != operand:
                self.env[v] = self.b.input(v.aval)
        unit = self.jaxpr.ins[operand]
        ones = Lit.of(1, Aval(shape, unit.aval.dtype))
        self.derivatives[unit] = _Derivatives(0, shape, shape, {tuple(range(len(shape))): ones})
        for eqn in self.jaxpr.eqns:
            self.b.source = eqn.source
            columns = self.as_columns(eqn) or self.solutions(eqn)
            if columns is not None:
                self.columns[eqn.outs[0]] = columns
                continue
            out = self.apply(eqn)
            if isinstance(out, _Derivatives):
                out = self.with_fewer_summands(out)
            if isinstance(out, _Derivatives):
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

    def apply(self, eqn: Eqn) -> _Derivatives | Atom | None:
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
            return self.dot_general(eqn, prim, operands)
        if prim == MUL and len(with_directions) == 2:
            return self.product(*with_directions)
        if prim == MUL and (weighted := self.weighted(eqn, operands)) is not None:
            return weighted
        if isinstance(prim, Reshape) and (divided := self.divided(prim, with_directions[0])) is not None:
            return divided
        return self.alike(eqn, operands)

    def alike(self, eqn: Eqn, operands: Sequence[_Derivatives | None]) -> _Derivatives | None:
        """Return the result of an equation that treats all directions alike; None for others.

        The equation for one direction maps the array of a summand, for each of its own indices. In a summand, an index
        of the direction may be an axis a of the operand. It is then the axis of the result to which a goes, if the
        equation treats all slices along a alike. Else the index gets an axis of its own first. For example, the summand
        (0, 1) of x becomes the summand (None, 1) of the slice `x[1:]`."""
        varies = tuple([x is not None for x in operands])
        if not is_linear_eqn(eqn, varies):
            return None
        axis, to = self.along_directions(eqn, operands)
        if to is None:
            return None
        # The operands of the equation for one direction. In `x / y`, where x has directions and y: f32[7, 3] has equal
        # slices for the 7 of them, they are a zero, for the type of a summand of x, and the slice y[0].
        fixed: list[Atom] = []
        for a, x, at in zip(eqn.ins, operands, to.axes, strict=True):
            if x is not None:
                fixed.append(Lit.zero(Aval(x.shape, a.aval.dtype)))
            else:
                fixed.append(self.dense(a) if at is None else slice_of(self.b, self.defs, self.dense, a, at))
        (out,) = to.prim.abstract_eval(*[a.aval for a in fixed])
        to_result = [along(to.prim, [a.aval for a in fixed], o) for o in range(out.ndim)]
        # for each summand of the result, the arrays of the operands from which it comes
        arrays: dict[_At, dict[int, Atom]] = {}
        for p, x in enumerate(operands):
            if x is None:
                continue
            result_axes = [
                [o for o, m in enumerate(to_result) if m is not None and m.axes[p] == a] for a in range(x.ndim)
            ]
            for summand, c in x.summands.items():
                lost = [k for k, a in enumerate(summand) if a is not None and not result_axes[a]]
                wide, array = self.with_own(x, summand, c, lost)
                moved = tuple([None if a is None else result_axes[a][0] for a in wide])  # an axis goes to one axis
                by_operand = arrays.setdefault(moved, {})
                by_operand[p] = self.sum(by_operand.get(p), array)
        dims = next(x.dims for x in operands if x is not None)
        summands = {at: self.mapped(to.prim, at, dims, fixed, varying) for at, varying in arrays.items()}
        return _Derivatives(axis, dims, out.shape, summands)

    def along_directions(self, eqn: Eqn, operands: Sequence[_Derivatives | None]) -> tuple[int, Along | None]:
        """Return the axis of the result that has the directions, and the equation for one of them; None if it is not
        the same for all."""
        avals = [a.aval for a in eqn.ins]
        for axis in range(eqn.outs[0].aval.ndim):
            to = along(eqn.prim, avals, axis)
            if to is not None and all(
                [
                    at == x.axis if x is not None else at is None or is_constant(self.defs, a, at)
                    for a, x, at in zip(eqn.ins, operands, to.axes, strict=True)
                ]
            ):
                return axis, to
        return 0, None

    def mapped(
        self, prim: Primitive, at: _At, dims: Sequence[int], fixed: Sequence[Atom], varying: Mapping[int, Atom]
    ) -> Atom:
        """Return the result of an equation for the directions of a summand. Operands that are not `varying` are
        fixed."""
        if prim in (ADD, SUB) and len(varying) == 1:
            ((p, c),) = varying.items()
            return self.b.one(NEG, c) if prim == SUB and p == 1 else c
        sizes = tuple([dims[k] for k in _own(at)])
        if not sizes:
            return self.b.one(prim, *[varying.get(p, a) for p, a in enumerate(fixed)])
        inner = Builder()
        slices: list[Atom] = [
            a if isinstance(a, Lit) and p not in varying else inner.input(a.aval) for p, a in enumerate(fixed)
        ]
        body = inner.build(inner(prim, *slices), prim.name)
        where = [p for p, a in enumerate(slices) if not isinstance(a, Lit)]
        stacked = over_stack(body, prod(sizes), tuple([0 if p in varying else None for p in where]), (0,))
        args = [
            emit_reshape(self.b, varying[p], (prod(sizes), *fixed[p].aval.shape)) if p in varying else fixed[p]
            for p in where
        ]
        (out,) = self.b.inline(stacked, args)
        return emit_reshape(self.b, out, (*sizes, *out.aval.shape[1:]))

    def reduce_sum(self, prim: ReduceSum, x: _Derivatives) -> _Derivatives | Atom:
        """Return a sum over axes of a value, or over its directions too.

        Over an axis that has the index d, one term is left: sum_a delta(d, a) S[a, b] = S[d, b]. So this axis of the
        array becomes that of d.
        """
        over_directions = x.axis in prim.axes
        axes = [a - (a > x.axis) for a in prim.axes if a != x.axis]
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = tuple([x.shape[a] for a in kept])
        total: Atom | None = None
        summands: dict[_At, Atom] = {}
        for at, c in x.summands.items():
            own = _own(at)
            if over_directions:
                removed = (*range(len(own)), *[len(own) + a for a in axes])
                total = self.sum(total, self.b.one(ReduceSum(removed), c) if removed else c)
                continue
            freed = {a: k for k, a in enumerate(at) if a is not None and a in axes}  # axes that become those of indices
            removed = tuple([len(own) + a for a in axes if a not in freed])
            # label k is index k of the direction, and label len(at) + a is axis a of the value
            labels = [*own, *[freed.get(a, len(at) + a) for a in range(x.ndim) if a not in axes or a in freed]]
            new = tuple([None if a is None or a in freed else kept.index(a) for a in at])
            order = [*_own(new), *[len(at) + a for a in kept]]
            moved = self.transposed(self.b.one(ReduceSum(removed), c) if removed else c, labels, order)
            summands[new] = self.sum(summands.get(new), moved)
        if over_directions:
            assert total is not None
            return total
        return _Derivatives(x.axis - sum([a < x.axis for a in prim.axes]), x.dims, shape, summands)

    def product(self, x: _Derivatives, y: _Derivatives) -> _Derivatives | None:
        """Return the product of two values, element by element."""
        if x.axis != y.axis:
            return None
        summands: dict[_At, Atom] = {}
        for at, c in x.summands.items():
            for other, d in y.summands.items():
                mixed = [k for k, (p, q) in enumerate(zip(at, other, strict=True)) if (p is None) != (q is None)]
                left, a = self.with_own(x, at, c, [k for k in mixed if at[k] is not None])
                right, b = self.with_own(y, other, d, [k for k in mixed if other[k] is not None])
                z: Atom = self.b.one(MUL, a, b)
                for p, q in zip(left, right, strict=True):
                    if p is not None and q is not None and p != q:
                        n = len(_own(left))
                        z = self.masked(z, n + p, n + q)
                summands[left] = self.sum(summands.get(left), z)
        return replace(x, summands=summands)

    def weighted(self, eqn: Eqn, operands: Sequence[_Derivatives | None]) -> _Derivatives | None:
        """Return the product with a number for each direction."""
        p = 0 if operands[0] is not None else 1
        x = operands[p]
        assert x is not None
        numbers = weights_along(self.defs, eqn.ins[1 - p], x.axis)
        if numbers is None or prod(x.dims) == 1:
            return None
        weights = emit_reshape(self.b, self.dense(numbers), x.dims)
        summands: dict[_At, Atom] = {}
        for at, c in x.summands.items():
            own = _own(at)
            places = [own.index(k) if a is None else len(own) + a for k, a in enumerate(at)]
            order = sorted(range(len(places)), key=places.__getitem__)
            factors = self.transposed(weights, range(len(places)), order)
            summands[at] = self.b.one(MUL, c, emit_broadcast(self.b, factors, c.aval.shape, tuple(sorted(places))))
        return replace(x, summands=summands)

    def divided(self, prim: Reshape, x: _Derivatives) -> _Derivatives | None:
        """Return the result of a reshape that divides axes of the value; None if there are others."""
        new = prim.shape
        if not all([isinstance(n, int) for n in new]) or not x.summands:
            return None
        before, n = prod(x.shape[: x.axis]), prod(x.dims)
        axis = next((o for o, s in enumerate(new) if s == n and prod(new[:o]) == before), None)
        if axis is None:
            return None
        shape = without(new, axis)
        groups = _groups(x.shape, shape)
        if groups is None or len(groups) == len(shape):
            return None
        sizes: list[tuple[int, ...]] = []
        for k, size in enumerate(x.dims):
            found = {tuple([shape[g] for g in groups[a]]) for at in x.summands if (a := at[k]) is not None}
            if len(found) > 1:
                return None
            sizes.append(next(iter(found), (size,)))
        summands: dict[_At, Atom] = {}
        for at, c in x.summands.items():
            divided: list[int | None] = []
            for k, a in enumerate(at):
                divided += [None] * len(sizes[k]) if a is None else groups[a]
            own = [s for k in _own(at) for s in sizes[k]]
            summands[tuple(divided)] = emit_reshape(self.b, c, (*own, *shape))
        return _Derivatives(axis, tuple([s for group in sizes for s in group]), shape, summands)

    def as_columns(self, eqn: Eqn) -> _Derivatives | None:
        """Return the value with directions that a reshape makes a matrix of, for linear systems only; None for other
        equations. `vmap` makes this matrix: x[i, d, j] becomes the column (d, j) of row i."""
        prim, x = eqn.prim, self.derivatives.get(eqn.ins[-1]) if eqn.ins else None
        if not isinstance(prim, Reshape) or x is None or x.axis != 1 or self.readers.get(eqn.outs[0]) != {Solve}:
            return None
        return x if prim.shape == (x.shape[0], prod(x.dims) * prod(x.shape[1:])) else None

    def solutions(self, eqn: Eqn) -> _Derivatives | None:
        """Return the solutions of a linear system whose right-hand sides are nonzero in one row each; None for others.

        With B[i, d] = delta(i, d) S[d], the solution of A X = B is X[:, d] = inv(A)[:, d] S[d]. In summands: an index d
        that is the row gets an axis of its own.
        """
        prim, x = eqn.prim, self.columns.get(eqn.ins[-1]) if eqn.ins else None
        if not isinstance(prim, Solve) or x is None or any([0 not in at for at in x.summands]):
            return None
        rows = x.shape[0]
        matrix = [self.dense(a) for a in eqn.ins[:-1]]
        unit = self.masked(Lit.of(1, Aval((rows, rows), eqn.outs[0].aval.dtype)), 0, 1)
        inverse = self.b.one(prim, *matrix, unit)
        outer = DotGeneral((), (), (), (), None, "highest")
        summands: dict[_At, Atom] = {}
        for at, c in x.summands.items():
            row = at.index(0)  # the index of the direction that is the row
            new = (*at[:row], None, *at[row + 1 :])
            row_of_x, *others = [(_LEFT, a) for a in range(x.ndim)]
            labels = [*[(_DIRECTION, k) for k in _own(at)], (_DIRECTION, row), *others]
            order = [*[(_DIRECTION, k) for k in _own(new)], row_of_x, *others]
            z = self.contraction(outer, inverse, [row_of_x, (_DIRECTION, row)], c, labels, order)
            summands[new] = self.sum(summands.get(new), z)
        return replace(x, summands=summands)

    def dot_general(
        self, eqn: Eqn, prim: DotGeneral, operands: Sequence[_Derivatives | None]
    ) -> _Derivatives | Atom | None:
        """Return a product. None if it is one for each direction, or takes a diagonal of an operand.

        The product of two summands is an einsum in which an index of the direction and the axis whose index it is have
        one label. For the product z of a matrix B[b, a] and a value x of the summand delta(d, a) S[a],

            T_z[d, b] = sum_a B[b, a] delta(d, a) S[a] = B[b, d] S[d]

        is `bd,d->db`: the result has the label of a, which is d, so nothing is summed.

        Axis a of an operand of the equation has the label La or Ra, and index k of a direction the label Dk. Labels of
        one index are united (`_Same`), and all get one name. With a batch, z[i, b] = sum_a B[i, b, a] x[i, a]: the
        operands are B: f32[5, 4, 3] and x: f32[15, 5, 3], whose axis R0 is that of the 15 directions, of the dims
        (5, 3). The summand (0, 1) of x says that R1 is D0 and R2 is D1. As the batch unites L0 and R1, and the sum
        unites L2 and R2, the names are

            B                     L0 L1 R2
            the summand of x      L0 R2
            the direction         L0 R2
            the result            L0 L1

        So D0 is axis 0 of the result, D1 has an axis of its own, and the summand (0, None) of z is `iba,ia->aib`.

        If the product sums over the directions, both factors have them, and the result has none: no index is
        left, and it is an array. A dense factor becomes one summand whose directions have an axis of their own. For
        z[i, a] = sum_d C[i, d] x[d, a], with C: f32[2, 3] and the summand delta(d, a) S[a] of x: f32[3, 3], it is C
        transposed, C^T[d, i]. R1 is D0, so d has the name of a, and z is `ai,a->ia`: z[i, a] = C[i, a] S[a].
        """
        pairs = [
            *zip(prim.lhs_batch, prim.rhs_batch, strict=True),
            *zip(prim.lhs_contract, prim.rhs_contract, strict=True),
        ]
        n_batch = len(prim.lhs_batch)
        ends_at_direction = [
            any([x is not None and x.axis == a for x, a in zip(operands, pair, strict=True)]) for pair in pairs
        ]
        summed = ends_at_direction.index(True) if any(ends_at_direction) else None  # the pair that sums over directions
        if summed is not None and summed < n_batch:
            return None  # the pair sums over nothing: the directions are a batch, with a product for each
        if summed is None:
            factors = self._factors(eqn, operands)
        else:
            factors = self._factors_summed_over(eqn, operands, pairs[summed])
        if factors is None:
            return None
        labels = [[(side, a) for a in range(x.aval.ndim)] for side, x in enumerate(eqn.ins)]
        free = [[label for label in labels[side] if label[1] not in [p[side] for p in pairs]] for side in _SIDES]
        dense_target = [(_LEFT, a) for a, _ in pairs[:n_batch]] + free[_LEFT] + free[_RIGHT]
        directions = [(side, x.axis) for side, x in zip(_SIDES, factors, strict=True) if x.axis is not None]
        target = [label for label in dense_target if label not in directions]
        united_pairs = [pair for n, pair in enumerate(pairs) if n != summed]
        dims = factors[_LEFT].dims or factors[_RIGHT].dims
        summands: dict[_At, Atom] = {}
        for (left, c), (right, d) in product(*[x.summands.items() for x in factors]):
            same = _Same(target)
            for one, other in united_pairs:
                same.unite((_LEFT, one), (_RIGHT, other))
            names = _names_of_axes(same, zip(labels, factors, (left, right), strict=True))
            if any([len(set(array)) < len(array) for array in names]):
                return None
            wanted = [same.of(label) for label in target]
            indices = [same.of((_DIRECTION, k)) for k in range(len(dims) if summed is None else 0)]
            new = tuple([wanted.index(name) if name in wanted else None for name in indices])
            order = list(dict.fromkeys([*[indices[k] for k in _own(new)], *wanted]))
            term = self.contraction(prim, c, names[_LEFT], d, names[_RIGHT], order)
            term = self.repeated(term, [*order[: len(_own(new))], *wanted])
            summands[new] = self.sum(summands.get(new), term)
        if summed is not None:
            return summands.get(())
        shape = tuple([eqn.ins[side].aval.shape[a] for side, a in target])
        return _Derivatives(dense_target.index(directions[0]), dims, shape, summands)

    def _factors(self, eqn: Eqn, operands: Sequence[_Derivatives | None]) -> tuple[_Factor, _Factor] | None:
        """Return the factors of a product for each direction. None if both have directions."""
        if operands.count(None) == 0:
            return None
        x, y = [
            _Factor(None, (), {(): self.dense(a)}) if z is None else _Factor.of(z)
            for a, z in zip(eqn.ins, operands, strict=True)
        ]
        return x, y

    def _factors_summed_over(
        self, eqn: Eqn, operands: Sequence[_Derivatives | None], pair: tuple[int, int]
    ) -> tuple[_Factor, _Factor] | None:
        """Return the factors of a product that sums over directions, which are the axes `pair`, with the same indices.
        None if they are other axes of a factor."""
        x, y = [
            self.as_one_summand(a, axis) if z is None else z for a, z, axis in zip(eqn.ins, operands, pair, strict=True)
        ]
        if (x.axis, y.axis) != pair:
            return None
        given = operands[0] or operands[1]
        assert given is not None
        x, y = [z if z.dims == given.dims else _with_dims(self.b, z, given.dims) for z in (x, y)]
        return _Factor.of(x), _Factor.of(y)

    def as_one_summand(self, a: Atom, axis: int) -> _Derivatives:
        """Return a dense value as one summand, whose directions have one axis of their own."""
        x = self.dense(a)
        shape = without(x.aval.shape, axis)
        order = (axis, *[k for k in range(x.aval.ndim) if k != axis])
        front = x if axis == 0 or isinstance(x, Lit) else self.b.one(Transpose(order), x)
        return _Derivatives(
            axis, (x.aval.shape[axis],), shape, {(None,): emit_reshape(self.b, front, (x.aval.shape[axis], *shape))}
        )

    # ------------------------------------------------------------------------------------------------------- arrays

    def sum(self, a: Atom | None, b: Atom) -> Atom:
        return b if a is None else self.b.one(ADD, a, b)

    def expanded(self, x: _Derivatives) -> Atom:
        """Return the dense form."""
        n, total = prod(x.dims), None
        for at, c in x.summands.items():
            _, wide = self.with_own(x, at, c, [k for k, a in enumerate(at) if a is not None])
            total = self.sum(total, wide)
        assert total is not None
        flat = emit_reshape(self.b, total, (n, *x.shape))
        order = [*range(1, x.axis + 1), 0, *range(x.axis + 1, x.ndim + 1)]
        return flat if x.axis == 0 or isinstance(flat, Lit) else self.b.one(Transpose(tuple(order)), flat)

    def with_fewer_summands(self, x: _Derivatives) -> _Derivatives | Atom:
        """Return the value with fewer summands: one that has more axes of its own takes in another. If it has all, the
        value is dense."""
        summands = dict(x.summands)
        for at in sorted(x.summands, key=lambda at: len(_own(at))):
            wider = next((to for to in summands if to != at and _takes_in(to, at)), None)
            if wider is not None:
                more = [k for k, (p, q) in enumerate(zip(at, wider, strict=True)) if p != q]
                summands[wider] = self.sum(summands[wider], self.with_own(x, at, summands.pop(at), more)[1])
        fewer = replace(x, summands=summands)
        return self.expanded(fewer) if (None,) * len(x.dims) in summands else fewer

    def with_own(self, x: _Derivatives, at: _At, c: Atom, indices: Sequence[int]) -> tuple[_At, Atom]:
        """Return a summand in which some indices of the direction have axes of their own, and its place."""
        for k in indices:
            a = at[k]
            assert a is not None
            at = (*at[:k], None, *at[k + 1 :])
            own = _own(at)
            place = own.index(k)
            shape = (*c.aval.shape[:place], x.dims[k], *c.aval.shape[place:])
            wide = emit_broadcast(self.b, c, shape, tuple([i for i in range(len(shape)) if i != place]))
            c = self.masked(wide, place, len(own) + a)
        return at, c

    def masked(self, a: Atom, p: int, q: int) -> Atom:
        """Return a value with zeros where the indices of two axes differ."""
        shape = a.aval.shape
        first, second = [self.b.one(Iota(shape, dtypes.int32, axis)) for axis in (p, q)]
        return self.b.one(SelectN(), self.b.one(EQ, first, second), Lit.zero(a.aval), a)

    def transposed(self, a: Atom, labels: Sequence[object], order: Sequence[object]) -> Atom:
        perm = tuple([labels.index(label) for label in order])
        if perm == tuple(range(len(perm))):
            return a
        return (
            a.with_shape(tuple([a.aval.shape[k] for k in perm]))
            if isinstance(a, Lit)
            else self.b.one(Transpose(perm), a)
        )

    def contraction(
        self,
        prim: DotGeneral,
        x: Atom,
        of_x: Sequence[_Label],
        y: Atom,
        of_y: Sequence[_Label],
        order: Sequence[_Label],
    ) -> Atom:
        """Return the sum of products of two arrays over the axes that the result lacks. Axes with one label are one."""
        both = [label for label in of_x if label in of_y]
        # ones, such as the first value, when nothing is summed: the other array is copied along their axes
        if x == Lit.of(1, x.aval) and set(order) == {*of_x, *of_y} and prim.preferred in (None, x.aval.dtype):
            sizes = dict(zip((*of_x, *of_y), (*x.aval.shape, *y.aval.shape), strict=True))
            kept = [label for label in order if label in of_y]
            copied = self.transposed(y, of_y, kept)
            shape = tuple([sizes[label] for label in order])
            return emit_broadcast(self.b, copied, shape, tuple([order.index(label) for label in kept]))
        batch, contract = [label for label in both if label in order], [label for label in both if label not in order]
        x, of_x = self.without_axes(x, of_x, [label for label in of_x if label not in both and label not in order])
        y, of_y = self.without_axes(y, of_y, [label for label in of_y if label not in both and label not in order])
        product = replace(
            prim,
            lhs_contract=tuple([of_x.index(label) for label in contract]),
            rhs_contract=tuple([of_y.index(label) for label in contract]),
            lhs_batch=tuple([of_x.index(label) for label in batch]),
            rhs_batch=tuple([of_y.index(label) for label in batch]),
        )
        rest = [label for label in (*of_x, *of_y) if label not in both]
        return self.transposed(self.b.one(product, x, y), [*batch, *rest], order)

    def without_axes(
        self, a: Atom, labels: Sequence[_Label], summed: Sequence[_Label]
    ) -> tuple[Atom, Sequence[_Label]]:
        if not summed:
            return a, labels
        total = self.b.one(ReduceSum(tuple([labels.index(label) for label in summed])), a)
        return total, [label for label in labels if label not in summed]

    def repeated(self, a: Atom, order: Sequence[_Label]) -> Atom:
        """Return an array with an axis for each label in `order`, and zeros where indices with one label differ."""
        for k, label in enumerate(order):
            first = order.index(label)
            if first < k:
                size = a.aval.shape[first]
                shape = (*a.aval.shape[:k], size, *a.aval.shape[k:])
                wide = emit_broadcast(self.b, a, shape, tuple([i for i in range(len(shape)) if i != k]))
                a = self.masked(wide, first, k)
        return a


# An axis of the first or second operand of a product, or an index of the direction: (one of these, its number).
_Label: TypeAlias = tuple[int, int]
_LEFT, _RIGHT, _DIRECTION = 0, 1, 2
_SIDES: Final = (_LEFT, _RIGHT)


@final
class _Factor(NamedTuple):
    """A factor of a product, as summands. One without directions has no axis of them, and is one summand."""

    axis: int | None
    dims: tuple[int, ...]
    summands: Mapping[_At, Atom]

    @classmethod
    def of(cls, x: _Derivatives) -> _Factor:
        return cls(x.axis, x.dims, x.summands)


@final
class _Same:
    """Which axes have one index: a union-find. The name of such axes is that of an axis of the result (`preferred`), if
    there is one."""

    __slots__ = ("names", "preferred")

    def __init__(self, preferred: Sequence[_Label]) -> None:
        self.preferred, self.names = preferred, dict[_Label, _Label]()

    def of(self, label: _Label) -> _Label:
        while label in self.names:
            label = self.names[label]
        return label

    def unite(self, a: _Label, b: _Label) -> None:
        a, b = self.of(a), self.of(b)
        if a != b:
            if a in self.preferred:
                a, b = b, a
            self.names[a] = b


def _names_of_axes(same: _Same, factors: Iterable[tuple[Sequence[_Label], _Factor, _At]]) -> list[list[_Label]]:
    """Return the names of the axes of the arrays of two summands. An axis of a value whose index is one of the
    direction has the name of this index. Given are, for each factor, the labels of its axes, the factor, and its
    summand."""
    arrays: list[list[_Label]] = []
    for labels, factor, at in factors:
        of_value = [
            label for label in labels if label[1] != factor.axis
        ]  # a summand counts the axes without directions
        for k, place in enumerate(at):
            if place is not None:
                same.unite((_DIRECTION, k), of_value[place])
        arrays.append([*[(_DIRECTION, k) for k in _own(at)], *of_value])
    return [[same.of(label) for label in array] for array in arrays]


def _groups(sizes: Sequence[int], divided: Sequence[int]) -> list[list[int]] | None:
    """Return for each axis the axes into which a reshape divides it; None if it joins axes too."""
    groups: list[list[int]] = []
    o = 0
    for size in sizes:
        group: list[int] = []
        found = 1
        while o < len(divided) and (not group or found < size):
            group.append(o)
            found *= divided[o]
            o += 1
        if not group or found != size:
            return None
        groups.append(group)
    return groups if o == len(divided) else None


def _with_dims(b: Builder, x: _Derivatives, dims: tuple[int, ...]) -> _Derivatives:
    """Return a dense value, which is its only summand, for directions with several indices."""
    ((_, c),) = x.summands.items()
    return _Derivatives(x.axis, dims, x.shape, {(None,) * len(dims): emit_reshape(b, c, (*dims, *x.shape))})


@by_value
def sparse_directions(jaxpr: Jaxpr, operand: int, shape: tuple[int, ...]) -> Jaxpr:
    """Return the program without an operand that holds all unit vectors of a shape: (prod(shape), *shape), or the same
    with the axes of a flat argument. Values that depend on it are carried without entries that are zero.

    Law:  the same value up to rounding, where the derivatives are finite.
    Cost: one pass; at most as many operations as before, and a mask where a value is expanded.
    """
    return _DirectionSplitter(jaxpr).run(operand, shape)
