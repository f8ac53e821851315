"""The decisions of `collapse`: a walk from the last equation to the first, which notes in which forms values are used.

A `reduce_sum` of a value that nothing else reads demands the sum of the value, and so asks the equation that computes
it: does the sum move before you (`sums`)? If it does, the operands are demanded as sums, or as one slice, and so on.

An equation with bodies moves behind the sum if its bodies can compute the sum. The same walk decides that in each body,
from the forms in which the results of the body are demanded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Final, NamedTuple, final

from fxad.core.builder import producers, producing_eqns
from fxad.core.dataclasses import dataclass
from fxad.core.layout import PREDICATE, BranchIndex, Carry, Constant, Count, Layout, Role, Sliced, Value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, Var, operand_var
from fxad.primitives.shape import ReduceSum
from fxad.transforms.jet.along import along
from fxad.transforms.jet.collapse.sums import (
    UNSUMMED,
    EquationOnSums,
    Form,
    OneSlice,
    SumOverAxis,
    Unsummed,
    sum_before,
)

# The roles of operands and results in equations whose bodies compute sums.
_ROLES: Final = (Constant, Carry, Sliced, Value, BranchIndex, Count)


@final
@dataclass(frozen=True, slots=True)
class BodiesOnSums:
    """An equation whose bodies compute sums.

    operands, results: by place, the operands that are summed before it and the results that are sums.
    bodies:            the running bodies, by place.
    weights:           the weights of these sums. They are further operands of the equation, at the end of `group`, and
                       the last operands of each body that returns values.
    """

    operands: Mapping[int, SumOverAxis]
    results: Mapping[int, SumOverAxis]
    bodies: Mapping[int, SumDecisions]
    group: int | None
    weights: tuple[Atom, ...]

    def inside(self, k: int, form: Form, role: Role) -> Form:
        """Return the form in body k of an operand or result that has this form at the equation.

        Example: xs: f32[T, n, m] is sliced along axis 0. A sum of xs over axis 2 is one of each slice over axis 1.
        """
        if isinstance(form, Unsummed):
            return form
        axis = form.axis - (isinstance(role, Sliced) and role.axis < form.axis)
        inner = self.weights_in_body(k)
        # a body without weights does not read this operand
        weights = inner[self.weights.index(form.weights)] if form.weights is not None and inner else None
        return replace(form, axis=axis, weights=weights)

    def outside(self, k: int, form: Form, role: Role) -> Form:
        """Return the form at the equation of an operand that has this form in body k: the inverse of `inside`. An
        operand is needed as it is if the weights of its sum are computed in the body."""
        if isinstance(form, Unsummed):
            return form
        axis = form.axis + (isinstance(role, Sliced) and role.axis <= form.axis)
        inner = self.weights_in_body(k)
        if form.weights is None:
            return replace(form, axis=axis)
        if form.weights not in inner:
            return UNSUMMED
        return replace(form, axis=axis, weights=self.weights[inner.index(form.weights)])

    def weights_in_body(self, k: int) -> tuple[Atom, ...]:
        """Return the weights as operands of a body: they are its last ones."""
        ins = self.bodies[k].jaxpr.ins
        return ins[len(ins) - len(self.weights) :] if self.bodies[k].returns_values else ()


@final
class SumDecisions:
    """Decides which sums of one program move. `demanded` are the forms in which each value is used.

    The equations are visited from the last to the first. So at an equation all uses of its results are known. Those of
    its operands are not: equations between this one and the one that computes an operand may use it too.

        e1:  y = x * c           third: y is demanded as it is
        e2:  s = reduce_sum y    second: y is used by e3 too, so its sum does not move
        e3:  z = sin y           first: demands y as it is

    In the order e1, e3, e2, the sum of y is demanded before its other use is seen. At e1, y is then demanded in two
    forms, so it is computed as it is, and summed.
    """

    def __init__(self, jaxpr: Jaxpr, weights: Sequence[Atom] | None = ()) -> None:
        """`weights`: values that become operands, after the others; None: the program returns a predicate."""
        self.returns_values = weights is not None
        n = len(jaxpr.ins)
        weight_ins = [operand_var(n + k, a.aval) for k, a in enumerate(weights or ())]
        self.jaxpr = Jaxpr((*jaxpr.ins, *weight_ins), jaxpr.eqns, jaxpr.outs, jaxpr.name) if weight_ins else jaxpr
        self.forms: tuple[Form, ...] = ()  # of the results
        self.defs = producing_eqns(jaxpr.eqns)
        self.eqn_number = producers(jaxpr.eqns)  # of the equation that computes a value
        self.demanded: dict[Atom, set[Form]] = {}
        self.on_sums: dict[Atom, EquationOnSums] = {}  # by result
        self.early_axis: dict[Atom, int] = {}  # the axis of a `reduce_sum` whose sum moves, by result
        self.bodies_on_sums: dict[Atom, BodiesOnSums] = {}  # by first result

    def decide(self, forms: Sequence[Form], used: Sequence[bool]) -> None:
        """Decide which sums move if results are needed in these forms, those that are used."""
        self.forms = tuple(forms)
        for a, form in compress(zip(self.jaxpr.outs, forms, strict=True), used):
            self._demand(a, form)
        for eqn in reversed(self.jaxpr.eqns):
            self._visit(eqn)

    def _demand(self, a: Atom, form: Form) -> None:
        """Note that a value is used in a form, and the weights of a sum as they are."""
        if isinstance(a, Var):
            self.demanded.setdefault(a, set()).add(form)
        if isinstance(form, SumOverAxis) and form.weights is not None:
            self._demand(form.weights, UNSUMMED)

    def _visit(self, eqn: Eqn) -> None:
        """Decide how an equation is computed, from the forms in which its results are needed, and note the forms in
        which it needs its operands."""
        forms = [self.demanded.get(v, set()) for v in eqn.outs]
        if (summing := self._move_inside(eqn, forms)) is not None:
            self.bodies_on_sums[eqn.outs[0]] = summing
            for k, a in enumerate(eqn.ins):
                self._demand(a, summing.operands.get(k, UNSUMMED))
            for weights in summing.weights:
                self._demand(weights, UNSUMMED)
            return
        if len(eqn.outs) == 1 and not eqn.prim.effects:
            if not forms[0]:
                return  # it is dead
            form = _only(forms[0])
            if isinstance(form, SumOverAxis) and (on_sums := sum_before(self.defs, eqn, form)) is not None:
                self.on_sums[eqn.outs[0]] = on_sums
                self._demand_operands(eqn, on_sums)
                return
        if isinstance(eqn.prim, ReduceSum) and (axis := self._axis_to_move(eqn)) is not None:
            self.early_axis[eqn.outs[0]] = axis
            self._demand(eqn.ins[0], SumOverAxis(axis))
            return
        for a in eqn.ins:
            self._demand(a, UNSUMMED)

    def _demand_operands(self, eqn: Eqn, on_sums: EquationOnSums) -> None:
        for a, form in zip(eqn.ins, on_sums.operands, strict=True):
            if isinstance(form, OneSlice):
                self._demand_source(a, form.axis)
            elif isinstance(form, SumOverAxis) or on_sums.prim is not None:
                self._demand(a, form)

    def _demand_source(self, a: Atom, axis: int) -> None:
        """Note that `slice_of` reads the value from which a value of equal slices is broadcast."""
        while not isinstance(a, Lit):
            eqn = self.defs[a]
            slice_map = along(eqn.prim, [x.aval for x in eqn.ins], axis)
            assert slice_map is not None
            (a,) = eqn.ins
            if slice_map.axes[0] is None:
                self._demand(a, UNSUMMED)
                return
            axis = slice_map.axes[0]

    def _axis_to_move(self, eqn: Eqn) -> int | None:
        """Return the axis of a `reduce_sum` whose sum moves before the equation that computes its operand."""
        assert isinstance(eqn.prim, ReduceSum)
        (a,) = eqn.ins
        x = self.defs.get(a)
        if x is None or not a.aval.inexact or self.demanded.get(a):
            return None
        if isinstance(x.prim, HigherOrder):
            # the uses of the other results are not all known: equations between x and this one are not visited yet
            forms, position = [self.demanded.get(v, set()) for v in x.outs], x.outs.index(a)
            for axis in eqn.prim.axes:
                forms[position] = {SumOverAxis(axis)}
                trial = self._try_inside(x, forms)
                if trial is not None and position in trial.results:
                    return trial.results[position].axis
            return None
        if len(x.outs) != 1 or x.prim.effects:
            return None
        return next((axis for axis in eqn.prim.axes if sum_before(self.defs, x, SumOverAxis(axis)) is not None), None)

    def _try_inside(self, eqn: Eqn, forms: Sequence[set[Form]]) -> BodiesOnSums | None:
        """Return what `_move_inside` would, as a trial before all uses of the results are known: a result without a
        form may still be used, in any form. So no body has to compute it."""
        if not isinstance(eqn.prim, HigherOrder) or not _may_sum_inside(eqn.prim.layout):
            return None
        layout, bodies = eqn.prim.layout, _WeightedBodies.of(eqn.prim.layout)
        sums = self._sums_inside(eqn, forms, bodies)
        return _without_refuted(layout, sums, [q for q, form in enumerate(forms) if not form], bodies)

    def _move_inside(self, eqn: Eqn, forms: Sequence[set[Form]]) -> BodiesOnSums | None:
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
        layout, bodies = eqn.prim.layout, _WeightedBodies.of(eqn.prim.layout)
        sums = self._sums_inside(eqn, forms, bodies)
        # a carry whose result nothing reads may be a sum or not: it is one if the steps read it for that sum alone
        unread = {q for q in layout.carries.values() if not forms[q]}
        if sums and unread:
            _, needed = _summing_equation(layout, sums, unread, bodies)
            for p, q in layout.carries.items():
                if q in unread and isinstance(only := _only(needed.get(p, set())), SumOverAxis):
                    sums[q] = only
        return _without_refuted(layout, sums, (), bodies)

    def _sums_inside(self, eqn: Eqn, forms: Sequence[set[Form]], bodies: _WeightedBodies) -> dict[int, SumOverAxis]:
        """Return the sums of results that the bodies of an equation may compute, by result."""
        assert isinstance(eqn.prim, HigherOrder)
        sums = [self._sum_inside(eqn, forms[q], role, bodies) for q, role in enumerate(eqn.prim.layout.result_roles)]
        return {q: form for q, form in enumerate(sums) if form is not None}

    def _sum_inside(self, eqn: Eqn, forms: set[Form], role: Role, bodies: _WeightedBodies) -> SumOverAxis | None:
        """Return the sum of a result of some role that the bodies of an equation may compute. A sum over the axis along
        which they give slices is none. Weights must be known before the equation, to be its operands."""
        form = _only(forms)
        if not isinstance(form, SumOverAxis) or (isinstance(role, Sliced) and role.axis == form.axis):
            return None
        if form.weights is not None and (bodies.group is None or not self._is_before(form.weights, eqn)):
            return None
        return form

    def _is_before(self, a: Atom, eqn: Eqn) -> bool:
        return a not in self.eqn_number or self.eqn_number[a] < self.eqn_number[eqn.outs[0]]


# -------------------------------------------------------------------------------------------------- sums in bodies


def _only(forms: set[Form]) -> Form | None:
    """Return the form in which a value is needed everywhere; None if there are several, or none."""
    return next(iter(forms)) if len(forms) == 1 else None


def _may_sum_inside(layout: Layout) -> bool:
    """Return True if the bodies of an equation are its meaning, and may compute other results."""
    groups = *layout.operands, *layout.results
    if layout.has_rules or any([g.fixed or type(g.role) not in _ROLES for g in groups]):
        return False
    return not any([body.linear for body in layout.bodies])


class _WeightedBodies(NamedTuple):
    """The bodies that take the weights of sums, which are those that return values (others return a predicate), and the
    group of constants that all of them read, at whose end the weights stand; None if there is none."""

    places: tuple[int, ...]
    group: int | None

    @classmethod
    def of(cls, layout: Layout) -> _WeightedBodies:
        places = tuple([k for k in layout.running if layout.bodies[k].results != (PREDICATE,)])
        constants = [g for g, x in enumerate(layout.operands) if type(x.role) is Constant]
        return cls(places, next((g for g in constants if all([g in layout.bodies[k].operands for k in places])), None))


def _summing_equation(
    layout: Layout, sums: Mapping[int, SumOverAxis], unused: Collection[int], with_weights: _WeightedBodies
) -> tuple[BodiesOnSums, dict[int, set[Form]]]:
    """Return an equation with some results as sums, others unused, and the forms in which its bodies need each
    operand."""
    weights = tuple(dict.fromkeys([f.weights for f in sums.values() if f.weights is not None]))
    bodies = {
        k: SumDecisions(layout.bodies[k].jaxpr, weights if k in with_weights.places else None) for k in layout.running
    }
    summing = BodiesOnSums({}, sums, bodies, with_weights.group, weights)
    needed: dict[int, set[Form]] = {}
    for k, body in bodies.items():
        places = layout.result_indices(k)
        forms = [
            UNSUMMED if q is None else summing.inside(k, sums.get(q, UNSUMMED), layout.result_roles[q]) for q in places
        ]
        body.decide(forms, [q not in unused for q in places])
        for p, v in zip(layout.operand_indices(k), body.jaxpr.ins, strict=False):
            for form in body.demanded.get(v, ()):
                needed.setdefault(p, set()).add(summing.outside(k, form, layout.operand_roles[p]))
    carries = layout.carries
    operands = {p: sums[q] for p, q in carries.items() if q in sums}
    for p, operand_forms in needed.items():
        if p not in carries and isinstance(only := _only(operand_forms), SumOverAxis):
            operands[p] = only
    return replace(summing, operands=operands), needed


def _without_refuted(
    layout: Layout, sums: dict[int, SumOverAxis], unused: Collection[int], bodies: _WeightedBodies
) -> BodiesOnSums | None:
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
