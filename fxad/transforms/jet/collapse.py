"""`collapse`: a sum over an axis moves through linear equations towards the operands.

The sum over a batch of a linear map is the map of the sum: sum_i A x_i = A sum_i x_i. So `reduce_sum` of a value that
is used for nothing else is moved before the equation that computes it, if this equation maps each slice along the axis
alike and is linear in the slices. The equation then runs once, and not once for each slice.

In a vmapped Taylor series of order K, coefficient K enters every equation linearly. Their sum over directions, such as
a Laplacian, is therefore carried as one value: with K = 2, this is the forward Laplacian.

The sum of a product over a batch axis of both factors is a product over this axis: sum_i A_i B_i. So a sum of gradients
over examples is the gradient of the batch. The sum of a result of a loop, of branches or of a `remat` is computed
inside: a carry is summed if each step needs its sum alone.

Rounding: terms are added in another order, and before they are multiplied, so a sum may leave the range of float16.

In the example, the products of all examples with `w` become one product.

>>> import fxad as fx, fxad.numpy as fnp
>>> def total(w, xs):
...     return fx.vmap(lambda x: x @ w)(xs).sum(0)
>>> program = fx.inline(fx.trace(total, fx.Spec((3, 2)), fx.Spec((7, 3))))
>>> print(collapse(program.jaxpr))
main @total(%arg0: f32[3,2], %arg1: f32[7,3]) -> (f32[2]) {
  %0: f32[3] = reduce_sum[axes=(0,)] %arg1
  %1: f32[2] = dot_general[lhs_contract=(0,), rhs_contract=(0,), lhs_batch=(), rhs_batch=(), preferred=none] %0, %arg0
  return %1
}
<BLANKLINE>
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from math import prod
from typing import Final, NamedTuple, TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder, producers, rewrite, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.layout import PREDICATE, BranchIndex, Carry, Constant, Count, Layout, Role, Sliced, Value
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Eqn, Flags, HigherOrder, Jaxpr, Linear, Lit, Primitive, Var
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.complex_parts import Conj, Imag, Real
from fxad.primitives.elementwise.convert import ConvertElementType, emit_convert
from fxad.primitives.linalg.family import LinearSystem
from fxad.primitives.linalg.triangular import TriangularSolve
from fxad.primitives.linearity import is_linear_eqn, is_zero
from fxad.primitives.shape import (
    BroadcastInDim,
    ReduceSum,
    Reshape,
    emit_broadcast,
    emit_reshape,
)
from fxad.transforms.jet.along import after_removal, along, is_constant, slice_of, weights_along, without
from fxad.transforms.map_bodies import map_bodies

# ---------------------------------------------------------------------------------------------------------- requests


def _column_axis(eqn: Eqn) -> int:
    """Return the axis of the right-hand sides of a linear system, in its result and in its last operand."""
    right = isinstance(eqn.prim, TriangularSolve) and not eqn.prim.left_side
    return eqn.ins[-1].aval.ndim - (2 if right else 1)


def _with_contracted_batch(prim: DotGeneral, axis: int) -> DotGeneral:
    """Return the product that is summed over a batch axis: sum_i A_i B_i is a product of A and B over i too."""
    return replace(
        prim,
        lhs_batch=without(prim.lhs_batch, axis),
        rhs_batch=without(prim.rhs_batch, axis),
        lhs_contract=(*prim.lhs_contract, prim.lhs_batch[axis]),
        rhs_contract=(*prim.rhs_contract, prim.rhs_batch[axis]),
    )


@final
@dataclass(frozen=True, slots=True)
class _SumOverAxis:
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
class _OneSlice:
    """One slice of a value whose slices along an axis are equal."""

    axis: int


@final
@dataclass(frozen=True, slots=True)
class _Unsummed:
    """A value as it is, not as a sum."""


_UNSUMMED: Final = _Unsummed()
_Form: TypeAlias = _SumOverAxis | _Unsummed  # in which a value is used


@final
@dataclass(frozen=True, slots=True)
class _Moved:
    """An equation after its sum: `prim` of these forms of its operands. `copies`: no operand has the axis, so the sum
    is a multiple of the result. Without `prim`, the sum is that of the only operand which is summed."""

    prim: Primitive | None
    operands: tuple[_SumOverAxis | _OneSlice | _Unsummed, ...]
    copies: int | None = None


# The roles of operands and results in equations whose bodies compute sums.
_ROLES: Final = (Constant, Carry, Sliced, Value, BranchIndex, Count)


@final
@dataclass(frozen=True, slots=True)
class _SummingEquation:
    """An equation whose bodies compute sums.

    operands, results: by place, the operands that are summed before it and the results that are sums.
    bodies:            the running bodies, by place.
    weights:           the weights of these sums. They are further operands of the equation, at the end of `group`, and
                       the last operands of each body that returns values.
    """

    operands: Mapping[int, _SumOverAxis]
    results: Mapping[int, _SumOverAxis]
    bodies: Mapping[int, _Collapse]
    group: int | None
    weights: tuple[Atom, ...]

    def inside(self, k: int, form: _Form, role: Role) -> _Form:
        """Return the form in body k of an operand or result that has this form at the equation.

        Example: xs: f32[T, n, m] is sliced along axis 0. A sum of xs over axis 2 is one of each slice over axis 1.
        """
        if isinstance(form, _Unsummed):
            return form
        axis = form.axis - (isinstance(role, Sliced) and role.axis < form.axis)
        own = self.own_weights(k)
        # without weights, the body does not read it
        weights = own[self.weights.index(form.weights)] if form.weights is not None and own else None
        return replace(form, axis=axis, weights=weights)

    def outside(self, k: int, form: _Form, role: Role) -> _Form:
        """Return the form at the equation of an operand that has this form in body k: the inverse of `inside`. An
        operand is needed as it is if the weights of its sum are computed in the body."""
        if isinstance(form, _Unsummed):
            return form
        axis = form.axis + (isinstance(role, Sliced) and role.axis <= form.axis)
        own = self.own_weights(k)
        if form.weights is None:
            return replace(form, axis=axis)
        if form.weights not in own:
            return _UNSUMMED
        return replace(form, axis=axis, weights=self.weights[own.index(form.weights)])

    def own_weights(self, k: int) -> tuple[Atom, ...]:
        """Return the weights as operands of a body: they are its last ones."""
        ins = self.bodies[k].jaxpr.ins
        return ins[len(ins) - len(self.weights) :] if self.bodies[k].returns_values else ()


@final
class _Collapse:
    """Decides which sums of one program move. `wants` are the forms in which each value is used.

    The equations are visited from the last to the first. So at an equation all uses of its results are known. Those of
    its operands are not: equations between this one and the one that computes an operand may use it too.
    """

    def __init__(self, jaxpr: Jaxpr, weights: Sequence[Atom] | None = ()) -> None:
        """`weights`: values that become operands, after the others; None: the program returns a predicate."""
        self.returns_values = weights is not None
        n = len(jaxpr.ins)
        new = [Var(~(n + k), a.aval) for k, a in enumerate(weights or ())]  # operand j of a program is the variable ~j
        self.jaxpr = Jaxpr((*jaxpr.ins, *new), jaxpr.eqns, jaxpr.outs, jaxpr.name) if new else jaxpr
        self.forms: tuple[_Form, ...] = ()  # of the results
        self.defs: dict[Atom, Eqn] = {v: e for e in jaxpr.eqns for v in e.outs}
        self.places = producers(jaxpr.eqns)
        self.wants: dict[Atom, set[_Form]] = {}
        self.moved: dict[Atom, _Moved] = {}  # by result
        self.moved_axis: dict[Atom, int] = {}  # the axis of a `reduce_sum` over which the sum moves, by result
        self.summing: dict[Atom, _SummingEquation] = {}  # by first result

    def run(self) -> Jaxpr:
        self.demand((_UNSUMMED,) * len(self.jaxpr.outs), (True,) * len(self.jaxpr.outs))
        if not self.moved_axis:
            return self.jaxpr
        b = Builder.like(self.jaxpr)
        return b.build(_Emission(self, b).run(), self.jaxpr.name)

    def demand(self, forms: Sequence[_Form], used: Sequence[bool]) -> None:
        """Decide which sums move if results are needed in these forms, those that are used."""
        self.forms = tuple(forms)
        for a, form in compress(zip(self.jaxpr.outs, forms, strict=True), used):
            self._want(a, form)
        for eqn in reversed(self.jaxpr.eqns):
            self._visit(eqn)

    def _want(self, a: Atom, form: _Form) -> None:
        """Note that a value is used in a form, and the weights of a sum as they are."""
        if isinstance(a, Var):
            self.wants.setdefault(a, set()).add(form)
        if isinstance(form, _SumOverAxis) and form.weights is not None:
            self._want(form.weights, _UNSUMMED)

    # ------------------------------------------------------------------------------------------- backward: what moves

    def _visit(self, eqn: Eqn) -> None:
        """Decide how an equation is computed, from the forms in which its results are needed, and note the forms in
        which it needs its operands."""
        wanted = [self.wants.get(v, set()) for v in eqn.outs]
        if (summing := self._move_inside(eqn, wanted)) is not None:
            self.summing[eqn.outs[0]] = summing
            for k, a in enumerate(eqn.ins):
                self._want(a, summing.operands.get(k, _UNSUMMED))
            for weights in summing.weights:
                self._want(weights, _UNSUMMED)
            return
        if len(eqn.outs) == 1 and not eqn.prim.effects:
            if not wanted[0]:
                return  # it is dead
            form = _only(wanted[0])
            if isinstance(form, _SumOverAxis) and (moved := self._move(eqn, form)) is not None:
                self.moved[eqn.outs[0]] = moved
                self._want_operands(eqn, moved)
                return
        if isinstance(eqn.prim, ReduceSum) and (axis := self._axis_to_move(eqn)) is not None:
            self.moved_axis[eqn.outs[0]] = axis
            self._want(eqn.ins[0], _SumOverAxis(axis))
            return
        for a in eqn.ins:
            self._want(a, _UNSUMMED)

    def _want_operands(self, eqn: Eqn, moved: _Moved) -> None:
        for a, form in zip(eqn.ins, moved.operands, strict=True):
            if isinstance(form, _OneSlice):
                self._want_source(a, form.axis)
            elif isinstance(form, _SumOverAxis) or moved.prim is not None:
                self._want(a, form)

    def _want_source(self, a: Atom, axis: int) -> None:
        """Note that `slice_of` reads the value from which a value of equal slices is broadcast."""
        while not isinstance(a, Lit):
            eqn = self.defs[a]
            to = along(eqn.prim, [x.aval for x in eqn.ins], axis)
            assert to is not None
            (a,) = eqn.ins
            if to.axes[0] is None:
                self._want(a, _UNSUMMED)
                return
            axis = to.axes[0]

    def _axis_to_move(self, eqn: Eqn) -> int | None:
        """Return the axis of a `reduce_sum` whose sum moves before the equation that computes its operand."""
        assert isinstance(eqn.prim, ReduceSum)
        (a,) = eqn.ins
        x = self.defs.get(a)
        if x is None or not a.aval.inexact or self.wants.get(a):
            return None
        if isinstance(x.prim, HigherOrder):
            # the uses of the other results are not all known: equations between x and this one are not visited yet
            wanted, at = [self.wants.get(v, set()) for v in x.outs], x.outs.index(a)
            for axis in eqn.prim.axes:
                wanted[at] = {_SumOverAxis(axis)}
                moved = self._try_inside(x, wanted)
                if moved is not None and at in moved.results:
                    return moved.results[at].axis
            return None
        if len(x.outs) != 1 or x.prim.effects:
            return None
        return next((axis for axis in eqn.prim.axes if self._move(x, _SumOverAxis(axis)) is not None), None)

    def _try_inside(self, eqn: Eqn, forms: Sequence[set[_Form]]) -> _SummingEquation | None:
        """Return what `_move_inside` would, as a trial before all uses of the results are known: a result without a
        form may still be used, in any form. So no body has to compute it."""
        if not isinstance(eqn.prim, HigherOrder) or not _may_sum_inside(eqn.prim.layout):
            return None
        layout, bodies = eqn.prim.layout, _BodiesWithWeights.of(eqn.prim.layout)
        sums = self._sums_inside(eqn, forms, bodies)
        return _without_refuted(layout, sums, [q for q, form in enumerate(forms) if not form], bodies)

    def _move_inside(self, eqn: Eqn, forms: Sequence[set[_Form]]) -> _SummingEquation | None:
        """Return an equation with bodies that compute sums of its results in place of these, where the results are
        needed in such forms, which are all uses; None if no sum moves inside.

        A carry is summed if its result is, and each step needs its sum alone. Example: c -> A c + x summed over a batch
        axis is c -> A c + sum x. In c -> sin c + x, a step needs the whole c, so it is not summed.

        Example: the loop (c, d), x -> (c + A d + x, A d), 2 c gives the carries c and d and the rows 2 c. The sums of c
        and of the rows are needed, and d is not. At the sum of c, the uses of d and of the rows are not known, and
        `_try_inside` says that the sum of c moves. At the loop, nothing reads d, and the bodies without d show that the
        steps need d as a sum alone. So d is one too.
        """
        if not isinstance(eqn.prim, HigherOrder) or not _may_sum_inside(eqn.prim.layout):
            return None
        layout, bodies = eqn.prim.layout, _BodiesWithWeights.of(eqn.prim.layout)
        sums = self._sums_inside(eqn, forms, bodies)
        # a carry whose result nothing reads may be a sum or not: it is one if the steps read it for that sum alone
        unread = {q for q in layout.carries.values() if not forms[q]}
        if sums and unread:
            _, needed = _summing_equation(layout, sums, unread, bodies)
            for p, q in layout.carries.items():
                if q in unread and isinstance(only := _only(needed.get(p, set())), _SumOverAxis):
                    sums[q] = only
        return _without_refuted(layout, sums, (), bodies)

    def _sums_inside(
        self, eqn: Eqn, forms: Sequence[set[_Form]], bodies: _BodiesWithWeights
    ) -> dict[int, _SumOverAxis]:
        """Return the sums of results that the bodies of an equation may compute, by result."""
        assert isinstance(eqn.prim, HigherOrder)
        found = [self._sum_inside(eqn, forms[q], role, bodies) for q, role in enumerate(eqn.prim.layout.result_roles)]
        return {q: form for q, form in enumerate(found) if form is not None}

    def _sum_inside(self, eqn: Eqn, wanted: set[_Form], role: Role, bodies: _BodiesWithWeights) -> _SumOverAxis | None:
        """Return the sum of a result of some role that the bodies of an equation may compute. A sum over the axis along
        which they give slices is none. Weights must be known before the equation, to be its operands."""
        form = _only(wanted)
        if not isinstance(form, _SumOverAxis) or (isinstance(role, Sliced) and role.axis == form.axis):
            return None
        if form.weights is not None and (bodies.group is None or not self._is_before(form.weights, eqn)):
            return None
        return form

    def _is_before(self, a: Atom, eqn: Eqn) -> bool:
        return a not in self.places or self.places[a] < self.places[eqn.outs[0]]

    def _move(self, eqn: Eqn, form: _SumOverAxis) -> _Moved | None:
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
            return self._move_part(eqn, form)
        to = along(prim, [a.aval for a in eqn.ins], form.axis)
        if to is None:
            return self._move_into_columns(eqn, form) if isinstance(prim, Reshape) else None
        if form.weights is not None and not _keeps_factors(eqn, form.weights.aval.dtype):
            return None
        if not any([a is not None for a in to.axes]):
            if not isinstance(eqn.outs[0].aval.shape[form.axis], int):
                return None
            return _Moved(to.prim, (_UNSUMMED,) * len(eqn.ins), eqn.outs[0].aval.shape[form.axis])
        fixed = [at is None or is_constant(self.defs, a, at) for a, at in zip(eqn.ins, to.axes, strict=True)]
        if prim == MUL and form.weights is None and eqn.ins[0] is not eqn.ins[1] and not any(fixed):
            for k in (1, 0):
                weights = weights_along(self.defs, eqn.ins[k], form.axis)
                if weights is not None:
                    weighted = _SumOverAxis(form.axis, weights)
                    return _Moved(None, (weighted, _UNSUMMED) if k else (_UNSUMMED, weighted))
        summed = _summed_operands(eqn, prim, to.axes, fixed)
        if summed is not None:
            operands = [
                _UNSUMMED if at is None else replace(form, axis=at) if c else _OneSlice(at)
                for c, at in zip(summed, to.axes, strict=True)
            ]
            return _Moved(to.prim, tuple(operands))
        if isinstance(prim, DotGeneral) and form.axis < len(prim.lhs_batch) and form.weights is None:
            return _Moved(_with_contracted_batch(prim, form.axis), (_UNSUMMED, _UNSUMMED))
        return None

    def _move_into_columns(self, eqn: Eqn, form: _SumOverAxis) -> _Moved | None:
        """Return a reshape after the sum over an axis that is a part of an axis of the operand, where this holds the
        right-hand sides of a linear system: `vmap` puts those of all examples into one matrix.

        Example: the solutions x: f32[n, 2 B] of 2 right-hand sides for each of B examples, reshaped to f32[n, 2, B] and
        summed over the examples. The sum is one of x over axis 1, `around` (2, 1).
        """
        prim, (a,) = eqn.prim, eqn.ins
        assert isinstance(prim, Reshape)
        source = self.defs.get(a)
        if source is None or not isinstance(source.prim, LinearSystem) or a.aval.symbolic:
            return None
        at = _column_axis(source)
        shape, size = a.aval.shape, prim.shape[form.axis]
        before, rest = divmod(prod(prim.shape[: form.axis]), prod(shape[:at]) or 1)
        after, left = divmod(prod(prim.shape[form.axis + 1 :]), prod(shape[at + 1 :]) or 1)
        if rest or left or before * size * after != shape[at] or not size:
            return None
        return _Moved(Reshape(without(prim.shape, form.axis)), (_SumOverAxis(at, form.weights, (before, after)),))

    def _move_part(self, eqn: Eqn, form: _SumOverAxis) -> _Moved | None:
        """Return an equation after the sum over a part of an axis of its result."""
        prim = eqn.prim
        if isinstance(prim, LinearSystem) and form.axis == _column_axis(eqn):
            return _Moved(prim, (*[_UNSUMMED] * (len(eqn.ins) - 1), form))
        if not isinstance(prim, Reshape) or eqn.ins[0].aval.symbolic:
            return None
        assert form.around is not None
        shape, size = eqn.ins[0].aval.shape, form.size(prim.shape)
        before = prod(prim.shape[: form.axis]) * form.around[0]
        at = next((k for k, n in enumerate(shape) if n == size and prod(shape[:k]) == before), None)
        return None if at is None else _Moved(Reshape(form.shape(prim.shape)), (_SumOverAxis(at, form.weights),))


# -------------------------------------------------------------------------------------------------- sums in bodies


def _only(forms: set[_Form]) -> _Form | None:
    """Return the form in which a value is needed everywhere; None if there are several, or none."""
    return next(iter(forms)) if len(forms) == 1 else None


def _may_sum_inside(layout: Layout) -> bool:
    """Return True if the bodies of an equation are its meaning, and may compute other results."""
    groups = *layout.operands, *layout.results
    if layout.has_rules or any([g.fixed or type(g.role) not in _ROLES for g in groups]):
        return False
    return not any([body.linear for body in layout.bodies])


class _BodiesWithWeights(NamedTuple):
    """The bodies that take the weights of sums, which are those that return values (others return a predicate), and the
    group of constants that all of them read, at whose end the weights stand; None if there is none."""

    places: tuple[int, ...]
    group: int | None

    @classmethod
    def of(cls, layout: Layout) -> _BodiesWithWeights:
        places = tuple([k for k in layout.running if layout.bodies[k].results != (PREDICATE,)])
        constants = [g for g, x in enumerate(layout.operands) if type(x.role) is Constant]
        return cls(places, next((g for g in constants if all([g in layout.bodies[k].operands for k in places])), None))


def _summing_equation(
    layout: Layout, sums: Mapping[int, _SumOverAxis], unused: Collection[int], with_weights: _BodiesWithWeights
) -> tuple[_SummingEquation, dict[int, set[_Form]]]:
    """Return an equation with some results as sums, others unused, and the forms in which its bodies need each
    operand."""
    weights = tuple(dict.fromkeys([f.weights for f in sums.values() if f.weights is not None]))
    bodies = {
        k: _Collapse(layout.bodies[k].jaxpr, weights if k in with_weights.places else None) for k in layout.running
    }
    summing = _SummingEquation({}, sums, bodies, with_weights.group, weights)
    needed: dict[int, set[_Form]] = {}
    for k, body in bodies.items():
        places = layout.result_indices(k)
        forms = [
            _UNSUMMED if q is None else summing.inside(k, sums.get(q, _UNSUMMED), layout.result_roles[q])
            for q in places
        ]
        body.demand(forms, [q not in unused for q in places])
        for p, v in zip(layout.operand_indices(k), body.jaxpr.ins, strict=False):
            for form in body.wants.get(v, ()):
                needed.setdefault(p, set()).add(summing.outside(k, form, layout.operand_roles[p]))
    carries = layout.carries
    operands = {p: sums[q] for p, q in carries.items() if q in sums}
    for p, found in needed.items():
        if p not in carries and isinstance(only := _only(found), _SumOverAxis):
            operands[p] = only
    return replace(summing, operands=operands), needed


def _without_refuted(
    layout: Layout, sums: dict[int, _SumOverAxis], unused: Collection[int], bodies: _BodiesWithWeights
) -> _SummingEquation | None:
    """Return an equation with these results as sums, but for carries that a step needs in another form; None if no sum
    is left.

    With a carry as a sum in the step before, the bodies need its operand as the same sum. A carry that is no sum can
    refute another one, of whose step it is a part. So this is a fixpoint, from above: it begins with all sums, and
    those that are refuted are removed until none is.
    """
    while sums:
        summing, needed = _summing_equation(layout, sums, unused, bodies)
        refuted = [q for p, q in layout.carries.items() if q in sums and not needed.get(p, set()) <= {sums[q]}]
        if not refuted:
            return summing
        for q in refuted:
            del sums[q]
    return None


# -------------------------------------------------------------------------------------------- forward: the program


@final
class _Emission:
    """Writes the equations of a program after `_Collapse` has decided which sums move.

    env:  the new atom of each value that is used as it is.
    sums: the new atom of each sum of a value.
    """

    def __init__(self, decisions: _Collapse, b: Builder) -> None:
        self.decisions, self.b = decisions, b
        self.env: dict[Atom, Atom] = {}
        self.sums: dict[tuple[Atom, _SumOverAxis], Atom] = {}

    def run(self) -> list[Atom]:
        """Add the equations, and return the results in the forms in which they are needed."""
        decisions, b = self.decisions, self.b
        inputs = set(decisions.jaxpr.ins)
        for eqn in decisions.jaxpr.eqns:
            b.source = eqn.source
            v = eqn.outs[0] if len(eqn.outs) == 1 else None
            if eqn.outs and eqn.outs[0] in decisions.summing:
                self._emit_summing(eqn, decisions.summing[eqn.outs[0]])
            elif v is not None and v in decisions.moved:
                # here, so that the values it reads need not be stored for long; if weights come later, where it is read
                (form,) = decisions.wants[v]
                assert isinstance(form, _SumOverAxis)
                if form.weights is None or form.weights in self.env or form.weights in inputs:
                    self._sum_of(v, form)
            elif v is not None and v in decisions.moved_axis:
                axis = decisions.moved_axis[v]
                assert isinstance(eqn.prim, ReduceSum)
                rest = after_removal(eqn.prim.axes, axis)
                total = self._sum_of(eqn.ins[0], _SumOverAxis(axis))
                self.env[v] = b.one(ReduceSum(rest), total) if rest else total
            elif v is None or v in decisions.wants or eqn.prim.effects:
                self.env.update(zip(eqn.outs, b.copy(eqn, substitute(eqn.ins, self.env)), strict=True))
        return [self._in_form(a, form) for a, form in zip(decisions.jaxpr.outs, decisions.forms, strict=True)]

    def _value(self, a: Atom) -> Atom:
        return self.env.get(a, a)

    def _in_form(self, a: Atom, form: _Form) -> Atom:
        return self._sum_of(a, form) if isinstance(form, _SumOverAxis) else self._value(a)

    def _emit_summing(self, eqn: Eqn, summing: _SummingEquation) -> None:
        assert isinstance(eqn.prim, HigherOrder)
        layout = eqn.prim.layout
        args: list[Atom] = []
        for g in range(len(layout.operands)):
            args += [self._in_form(eqn.ins[p], summing.operands.get(p, _UNSUMMED)) for p in layout.operands_of(g)]
            if g == summing.group:
                args += map(self._value, summing.weights)
        bodies = [_body_of_sums(layout, k, summing) for k in summing.bodies]
        n_weights = len(summing.weights)
        sizes = [x.size + (n_weights if g == summing.group else 0) for g, x in enumerate(layout.operands)]
        self.b.source = eqn.source
        outs = self.b(eqn.prim.rebuild(tuple(bodies), tuple(sizes), tuple([x.size for x in layout.results])), *args)
        for q, (v, out) in enumerate(zip(eqn.outs, outs, strict=True)):
            if q in summing.results:
                self.sums[v, summing.results[q]] = out
            else:
                self.env[v] = out

    def _emit_moved(self, eqn: Eqn, moved: _Moved, form: _SumOverAxis) -> Atom:
        self.b.source = eqn.source
        if moved.prim is None:
            (total,) = [
                self._sum_of(a, f) for a, f in zip(eqn.ins, moved.operands, strict=True) if isinstance(f, _SumOverAxis)
            ]
            return total
        args: list[Atom] = []
        for a, how in zip(eqn.ins, moved.operands, strict=True):
            if isinstance(how, _OneSlice):
                args.append(slice_of(self.b, self.decisions.defs, self._value, a, how.axis))
            else:
                args.append(self._in_form(a, how))
        out: Atom = self.b.one(moved.prim, *args)
        return out if moved.copies is None else self._copies(out, moved.copies, form)

    def _copies(self, a: Atom, count: int, form: _SumOverAxis) -> Atom:
        """Return the sum of `count` equal slices."""
        b, dtype = self.b, a.aval.dtype
        x = emit_convert(b, a, dtypes.float32) if dtype is dtypes.float16 else a  # 70,000 is no float16
        if form.weights is not None:
            weights = self._value(form.weights)
            total = b.one(ReduceSum(tuple(range(weights.aval.ndim))), emit_convert(b, weights, x.aval.dtype))
            return emit_convert(b, b.one(MUL, x, emit_broadcast(b, total, a.aval.shape, ())), dtype)
        return a if count == 1 else emit_convert(b, b.one(MUL, x, Lit.of(count, x.aval)), dtype)

    @with_enough_stack
    def _sum_of(self, a: Atom, form: _SumOverAxis) -> Atom:
        """Return the sum of a value: computed once, where it moves from the sums of the operands."""
        if isinstance(a, Lit):
            shape = form.shape(a.aval.shape)
            if is_zero(a):
                return a.with_shape(shape)
            return self._copies(a.with_shape(shape), form.size(a.aval.shape), form)
        if (a, form) not in self.sums:
            moves = a in self.decisions.moved
            self.sums[a, form] = (
                self._emit_moved(self.decisions.defs[a], self.decisions.moved[a], form)
                if moves
                else self._emit_sum(a, form)
            )
        return self.sums[a, form]

    def _emit_sum(self, a: Atom, form: _SumOverAxis) -> Atom:
        """Add the sum of a value as it is."""
        b, x, axis = self.b, self._value(a), form.axis
        shape, size = form.shape(x.aval.shape), form.size(x.aval.shape)
        if form.around is not None:
            before, after = form.around
            x = emit_reshape(b, x, (*x.aval.shape[:axis], before, size, after, *x.aval.shape[axis + 1 :]))
            axis += 1
        if form.weights is not None:
            weights = emit_convert(b, self._value(form.weights), x.aval.dtype)
            weights = emit_reshape(b, weights, (size,))
            x = b.one(MUL, x, emit_broadcast(b, weights, x.aval.shape, (axis,)))
        return emit_reshape(b, b.one(ReduceSum((axis,)), x), shape)


def _summed_operands(eqn: Eqn, prim: Linear, axes: Sequence[int | None], fixed: Sequence[bool]) -> Flags | None:
    """Return the operands whose sums a linear equation takes in place of slices; None if there is no choice of them.
    `axes` are those of the operands, and operands that are `fixed` have equal slices.

    In w_i * c, the sum of w and one slice of c. In w_i + c, linear in both together, the sum of c too: n times a slice.
    """
    varying = [not f for f in fixed]
    if not any(varying):  # the whole equation is constant along the axis
        varying = [at is not None for at in axes]
        if varying.count(True) > 1 and not prim.linear_in(tuple(varying)):
            varying = [k == varying.index(True) for k in range(len(varying))]
    with_axis = tuple([v or at is not None for v, at in zip(varying, axes, strict=True)])
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


def _body_of_sums(layout: Layout, k: int, summing: _SummingEquation) -> Jaxpr:
    """Return a body whose results are sums, with operands for sums and for weights."""
    body, b = summing.bodies[k], Builder()
    emission = _Emission(body, b)
    operands = iter(body.jaxpr.ins)
    for g in layout.bodies[k].operands:
        for p, v in zip(layout.operands_of(g), operands, strict=False):
            form = summing.inside(k, summing.operands.get(p, _UNSUMMED), layout.operand_roles[p])
            if isinstance(form, _Unsummed):
                emission.env[v] = b.input(v.aval)
            else:
                emission.sums[v, form] = b.input(Aval(form.shape(v.aval.shape), v.aval.dtype))
        if g == summing.group:
            emission.env.update({w: b.input(w.aval) for w in summing.own_weights(k)})
    return b.build(emission.run(), body.jaxpr.name)


@by_value
def collapse(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program in which sums over an axis are taken as early as linear equations allow, also in bodies.

    A sum moves before an equation if the value is used for nothing else, and the equation is linear in the operands
    that vary along the axis, and treats all slices alike.

    Law:  the same value up to rounding: terms are added in another order.
    Cost: one pass backward, one forward.
    """
    return dce(_Collapse(_with_outer_factors(map_bodies(jaxpr, collapse))).run())


def _with_outer_factors(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with `c * (x * y)` in place of `x * (c * y)`, for factors c that are broadcast: a sum over the
    new axes moves past these only. A product is changed if it is used once, or `c * y` is."""
    uses = Counter([a for e in jaxpr.eqns for a in e.ins] + list(jaxpr.outs))
    defs: dict[Atom, Eqn] = {}

    def is_broadcast(a: Atom) -> bool:
        return a in defs and isinstance(defs[a].prim, BroadcastInDim)

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        if eqn.prim == MUL and eqn.outs[0].aval.inexact:
            for k in (1, 0):
                inner, x = defs.get(ins[k]), ins[1 - k]
                if (
                    inner is None
                    or inner.prim != MUL
                    or (uses[eqn.ins[k]] != 1 and uses[eqn.outs[0]] != 1)
                    or is_broadcast(x)
                ):
                    continue
                c, y = inner.ins if is_broadcast(inner.ins[0]) else inner.ins[::-1]
                if is_broadcast(c) and not is_broadcast(y):
                    product = b.one(MUL, x, y)
                    defs[product] = b.eqns[-1]
                    outs = b(MUL, product, c)
                    defs[outs[0]] = b.eqns[-1]
                    return outs
        if eqn.prim == MUL or isinstance(eqn.prim, BroadcastInDim):
            outs = b.copy(eqn, ins)
            defs[outs[0]] = b.eqns[-1]
            return outs
        return None

    return rewrite(jaxpr, rule)
