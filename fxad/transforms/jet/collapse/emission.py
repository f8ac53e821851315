"""The program after the decisions of `collapse`, written from the first equation to the last.

A value may be written as it is, as a sum over an axis, or as both; as what it is used. A sum that moves is written
where its equation stood, from the sums of the operands. Any other is a `reduce_sum`.
"""

from __future__ import annotations

from typing import final

from fxad import dtypes
from fxad.core.builder import Builder, substitute
from fxad.core.layout import Layout
from fxad.core.stack import with_enough_stack
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Lit
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.linearity import is_zero
from fxad.primitives.shape import ReduceSum, emit_broadcast, emit_reshape
from fxad.transforms.jet.along import after_removal, slice_of
from fxad.transforms.jet.collapse.decisions import BodiesOnSums, SumDecisions
from fxad.transforms.jet.collapse.sums import UNSUMMED, EquationOnSums, Form, OneSlice, SumOverAxis, Unsummed


@final
class Emission:
    """Writes the equations of a program after `SumDecisions` has decided which sums move.

    env:  the new atom of each value that is used as it is.
    sums: the new atom of each sum of a value.
    """

    def __init__(self, decisions: SumDecisions, b: Builder) -> None:
        self.decisions, self.b = decisions, b
        self.env: dict[Atom, Atom] = {}
        self.sums: dict[tuple[Atom, SumOverAxis], Atom] = {}

    def run(self) -> list[Atom]:
        """Add the equations, and return the results in the forms in which they are needed."""
        decisions, b = self.decisions, self.b
        inputs = set(decisions.jaxpr.ins)
        for eqn in decisions.jaxpr.eqns:
            b.source = eqn.source
            v = eqn.outs[0] if len(eqn.outs) == 1 else None
            if eqn.outs and eqn.outs[0] in decisions.bodies_on_sums:
                self._emit_summing(eqn, decisions.bodies_on_sums[eqn.outs[0]])
            elif v is not None and v in decisions.on_sums:
                # here, so that the values it reads need not be stored for long; if weights come later, where it is read
                (form,) = decisions.demanded[v]
                assert isinstance(form, SumOverAxis)
                if form.weights is None or form.weights in self.env or form.weights in inputs:
                    self._sum_of(v, form)
            elif v is not None and v in decisions.early_axis:
                axis = decisions.early_axis[v]
                assert isinstance(eqn.prim, ReduceSum)
                other_axes = after_removal(eqn.prim.axes, axis)
                total = self._sum_of(eqn.ins[0], SumOverAxis(axis))
                self.env[v] = b.one(ReduceSum(other_axes), total) if other_axes else total
            elif v is None or v in decisions.demanded or eqn.prim.effects:
                self.env.update(zip(eqn.outs, b.copy(eqn, substitute(eqn.ins, self.env)), strict=True))
        return [self._in_form(a, form) for a, form in zip(decisions.jaxpr.outs, decisions.forms, strict=True)]

    def _value(self, a: Atom) -> Atom:
        return self.env.get(a, a)

    def _in_form(self, a: Atom, form: Form) -> Atom:
        return self._sum_of(a, form) if isinstance(form, SumOverAxis) else self._value(a)

    def _emit_summing(self, eqn: Eqn, summing: BodiesOnSums) -> None:
        """Add an equation with bodies over sums: the operands and results in `summing` are summed, and the weights are
        further operands of one group."""
        assert isinstance(eqn.prim, HigherOrder)
        layout = eqn.prim.layout
        args: list[Atom] = []
        for g in range(len(layout.operands)):
            args += [self._in_form(eqn.ins[p], summing.operands.get(p, UNSUMMED)) for p in layout.operands_of(g)]
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

    def _emit_on_sums(self, eqn: Eqn, on_sums: EquationOnSums, form: SumOverAxis) -> Atom:
        """Return the sum of the result of an equation, from the sums or slices of its operands. Example: with x of
        shape (n, 3), a sum over axis 0 of x * broadcast(y) is (sum of x) * y: of the broadcast one slice is read."""
        self.b.source = eqn.source
        if on_sums.prim is None:
            (total,) = [
                self._sum_of(a, f) for a, f in zip(eqn.ins, on_sums.operands, strict=True) if isinstance(f, SumOverAxis)
            ]
            return total
        args: list[Atom] = []
        for a, how in zip(eqn.ins, on_sums.operands, strict=True):
            if isinstance(how, OneSlice):
                args.append(slice_of(self.b, self.decisions.defs, self._value, a, how.axis))
            else:
                args.append(self._in_form(a, how))
        out: Atom = self.b.one(on_sums.prim, *args)
        return out if on_sums.copies is None else self._copies(out, on_sums.copies, form)

    def _copies(self, a: Atom, count: int, form: SumOverAxis) -> Atom:
        """Return the sum of `count` equal slices."""
        b, dtype = self.b, a.aval.dtype
        x = emit_convert(b, a, dtypes.float32) if dtype is dtypes.float16 else a  # 70,000 is no float16
        if form.weights is not None:
            weights = self._value(form.weights)
            total = b.one(ReduceSum(tuple(range(weights.aval.ndim))), emit_convert(b, weights, x.aval.dtype))
            return emit_convert(b, b.one(MUL, x, emit_broadcast(b, total, a.aval.shape, ())), dtype)
        return a if count == 1 else emit_convert(b, b.one(MUL, x, Lit.of(count, x.aval)), dtype)

    @with_enough_stack
    def _sum_of(self, a: Atom, form: SumOverAxis) -> Atom:
        """Return the sum of a value: computed once, where it moves from the sums of the operands."""
        if isinstance(a, Lit):
            shape = form.shape(a.aval.shape)
            if is_zero(a):
                return a.with_shape(shape)
            return self._copies(a.with_shape(shape), form.size(a.aval.shape), form)
        if (a, form) not in self.sums:
            moves = a in self.decisions.on_sums
            self.sums[a, form] = (
                self._emit_on_sums(self.decisions.defs[a], self.decisions.on_sums[a], form)
                if moves
                else self._emit_sum(a, form)
            )
        return self.sums[a, form]

    def _emit_sum(self, a: Atom, form: SumOverAxis) -> Atom:
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


def _body_of_sums(layout: Layout, k: int, summing: BodiesOnSums) -> Jaxpr:
    """Return a body whose results are sums, with operands for sums and for weights."""
    body, b = summing.bodies[k], Builder()
    emission = Emission(body, b)
    operands = iter(body.jaxpr.ins)
    for g in layout.bodies[k].operands:
        for p, v in zip(layout.operands_of(g), operands, strict=False):
            form = summing.inside(k, summing.operands.get(p, UNSUMMED), layout.operand_roles[p])
            if isinstance(form, Unsummed):
                emission.env[v] = b.input(v.aval)
            else:
                emission.sums[v, form] = b.input(Aval(form.shape(v.aval.shape), v.aval.dtype))
        if g == summing.group:
            emission.env.update({w: b.input(w.aval) for w in summing.weights_in_body(k)})
    return b.build(emission.run(), body.jaxpr.name)
