"""Taylor series of programs, of any order, from the `jvp` rules.

For x(t) = x_0 + x_1 t + x_2 t^2 + ... and y(t) = f(x(t)), the tangent rule of f gives y'(t) from x(t), y(t) and x'(t).
The rule is a program of primitives, so it is evaluated in series too: coefficient k + 1 of y is coefficient k of the
tangent, divided by k + 1. The recursion ends in equations that are linear and in products.

A value that varies with t is a result of a node: a primitive with operands. Equal nodes are one node, so the tangent
program of `sin(x)`, which is `sin(x)` and `cos(x) * x_dot`, meets the node of `sin(x)` again. A node computes each
coefficient once, when it is needed:

- results that do not vary are constants, which are atoms of the new program;
- an equation that is affine in its varying operands: its linear part, applied to coefficient k of the operands;
- an equation that is linear in each of two varying operands: the Cauchy product;
- an equation with bodies that run: the same equation over the series of its bodies;
- any other: the recursion above.

A coefficient that is zero is None, and gives no equation. Decision: docs/adr/0102.

In the example, coefficient 3 of sin(x0 + t) is -cos(x0) / 6.

>>> import fxad as fx, fxad.numpy as fnp
>>> sine = fx.trace(fnp.sin, fx.Spec((), "float32")).jaxpr
>>> series, nonzero = jet(sine, ((True, False, False),))
>>> print(series)
main @jet_sin(%arg0: f32[], %arg1: f32[]) -> (f32[], f32[], f32[], f32[]) {
  %0: f32[] = sin %arg0
  %1: f32[] = cos %arg0
  %2: f32[] = mul %arg1, %1
  %3: f32[] = neg %0
  %4: f32[] = mul %arg1, %3
  %5: f32[] = mul %arg1, %4
  %6: f32[] = div %5, 2.0:f32[]
  %7: f32[] = neg %2
  %8: f32[] = mul %arg1, %7
  %9: f32[] = div %8, 2.0:f32[]
  %10: f32[] = mul %arg1, %9
  %11: f32[] = div %10, 3.0:f32[]
  return %0, %2, %6, %11
}
<BLANKLINE>
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import product
from math import factorial, prod
from typing import Final, TypeAlias, cast, final

from fxad.core.builder import Builder
from fxad.core.dce import dce
from fxad.core.flags import flags_or
from fxad.core.layout import Layout
from fxad.core.memo import by_value
from fxad.core.stack import with_enough_stack
from fxad.dtypes import FLOATING
from fxad.ir import (
    Atom,
    Aval,
    Flags,
    HigherOrder,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    Lit,
    Primitive,
    Source,
    Var,
    Zero,
    as_lin,
)
from fxad.primitives.control.call import Call, callee
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Function
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL
from fxad.primitives.elementwise.family import Unary
from fxad.primitives.linear_call import LinearCall
from fxad.transforms.ad.jvp import ForwardBuilder, check_differentiable, jvp
from fxad.transforms.jet.rows import ROWS, Emitter, OneOrder
from fxad.transforms.locate import locate
from fxad.transforms.vmap import over_stack

HIGH_ORDER: Final = 8  # each primitive has the rule of high orders
# For each operand or result, marks the coefficients 1, 2, ..., order that are not zero.
CoefficientFlags: TypeAlias = tuple[Flags, ...]
SeriesAtom: TypeAlias = "Var | Lit | SeriesValue"
SeriesAtoms: TypeAlias = "tuple[SeriesAtom, ...]"


@by_value
def jet(jaxpr: Jaxpr, nonzero: CoefficientFlags, composed: bool = False) -> tuple[Jaxpr, CoefficientFlags]:
    """Return the Taylor coefficients of the results: (operands, coefficients of operands) -> (results, coefficients of
    results).

    `nonzero` marks for each operand the coefficients 1 to K that are operands; the others are zero. K, the order, is
    the length of each mask. The coefficients of an operand are adjacent, after all operands. The second value marks the
    coefficients of the results alike. `composed`: the series of a function of one real number is composed of its
    derivatives: fewer products of coefficients, and more of values.

    Law:    coefficient k is the k-th derivative in t at 0, divided by k!; of order 1 it is `jvp`, the same object.
    Cost:   at most quadratic in K for each equation of the program and of its tangent rules, where these rules lead to
            finitely many equations.
    Raises: NotDifferentiableError as `jvp` does.
    """
    order = len(nonzero[0]) if nonzero else 1
    if order == 1:
        fused, has = jvp(jaxpr, tuple([m for (m,) in nonzero]))
        return fused, tuple([(m,) for m in has])
    check_differentiable(jaxpr, tuple(map(any, nonzero)), "jet")
    s = _SeriesBuilder(order, composed)
    env: dict[Atom, SeriesAtom] = dict(zip(jaxpr.ins, s.builder.inputs(jaxpr.in_avals), strict=True))
    for v, marks in zip(jaxpr.ins, nonzero, strict=True):
        if any(marks):
            coefficients = [s.builder.input(v.aval) if m else None for m in marks]
            env[v] = s.leaf(v.aval, [s.at_zero(env[v]), *coefficients])
    for eqn in jaxpr.eqns:
        try:
            outs = s.apply(eqn.prim, tuple([env.get(a, a) for a in eqn.ins]), eqn.source, operands_known=True)
            for out in outs:
                s.evaluate(out)
        except Exception as e:
            locate(e, eqn)
            raise
        env.update(zip(eqn.outs, outs, strict=True))
    values = [[s.coefficient(env.get(a, a), k) for k in range(order + 1)] for a in jaxpr.outs]
    results = [s.at_zero(env.get(a, a)) for a in jaxpr.outs]
    higher = [c for value in values for c in value[1:] if c is not None]
    program = s.builder.build((*results, *higher), f"jet_{jaxpr.name}")
    return dce(program), tuple([tuple([c is not None for c in value[1:]]) for value in values])


# ------------------------------------------------------------------------------------------------------------- nodes


@final
class SeriesValue:
    """Result `index` of a node: a value that varies with t. It is compared by identity."""

    __slots__ = ("aval", "index", "node")

    def __init__(self, node: _SeriesNode, index: int, aval: Aval) -> None:
        self.node, self.index, self.aval = node, index, aval


class _SeriesNode:
    """An equation over series.

    compute:        returns the coefficients of order k of its results, None where they are zero. It may add those of
                    other orders to `at`.
    operands:       coefficient k needs those of the operands up to k + `lead`. The lead is 1 for a derivative in t,
                    whose coefficient k is made of coefficient k + 1, and else 0.
    at:             the coefficients so far, by order.
    being_computed: `compute` has been called and has not returned.
    """

    __slots__ = ("at", "being_computed", "compute", "lead", "operands", "outs", "source")

    def __init__(self, compute: _Compute, source: Source, operands: SeriesAtoms = (), lead: int = 0) -> None:
        self.compute, self.source, self.operands, self.lead = compute, source, operands, lead
        self.at: dict[int, OneOrder] = {}
        self.outs: SeriesAtoms = ()
        self.being_computed = False


_Compute: TypeAlias = Callable[[_SeriesNode, int], OneOrder]


@final
class _SeriesBuilder(Emitter):
    """Builds the program of the coefficients."""

    def __init__(self, order: int, composed: bool) -> None:
        self.builder: Final = Builder()
        self.order: Final = order
        self.composed: Final = composed
        self._equations: dict[tuple[object, ...], tuple[Var, ...]] = {}
        self._nodes: dict[tuple[Primitive, SeriesAtoms], _SeriesNode] = {}
        self._derivatives: dict[SeriesValue, SeriesValue] = {}
        self._tangent_programs: dict[tuple[object, ...], tuple[Jaxpr, Flags]] = {}
        self._lines: dict[Atom, SeriesValue] = {}  # x_0 + t, by x_0

    # ------------------------------------------------------------------------------------------ atoms of the program

    def emit(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        key = (prim, args)
        outs = None if prim.effects else self._equations.get(key)
        if outs is None:
            outs = self._equations[key] = self.builder(prim, *args)
        return outs

    def sum(self, terms: Sequence[Atom]) -> Atom | None:
        """Return the sum of terms; None if there are none."""
        total: Atom | None = None
        for term in terms:
            total = term if total is None else self.emit(ADD, total, term)[0]
        return total

    def scaled(self, a: Atom, factor: int) -> Atom:
        return a if factor == 1 else self.emit(MUL, a, Lit.of(factor, a.aval))[0]

    def divided(self, a: Atom, divisor: int) -> Atom:
        return a if divisor == 1 else self.emit(DIV, a, Lit.of(divisor, a.aval))[0]

    def at_zero(self, a: SeriesAtom) -> Atom:
        """Return coefficient 0. That of a tangent may be zero."""
        c = self.coefficient(a, 0)
        return Lit.zero(a.aval) if c is None else c

    # ------------------------------------------------------------------------------------------------- coefficients

    def leaf(self, aval: Aval, coefficients: Sequence[Atom | None]) -> SeriesValue:
        """Return the value with given coefficients."""
        node = _SeriesNode(lambda _, k: (coefficients[k],), None)  # not called: all orders are known
        node.at = {k: (c,) for k, c in enumerate(coefficients)}
        value = SeriesValue(node, 0, aval)
        node.outs = (value,)
        return value

    def coefficient(self, a: SeriesAtom, k: int) -> Atom | None:
        """Return coefficient k; None if it is zero."""
        if not isinstance(a, SeriesValue):
            return a if k == 0 else None
        return self._coefficients(a.node, k)[a.index]

    def evaluate(self, a: SeriesAtom) -> None:
        """Compute all coefficients, in order."""
        for k in range(self.order + 1):
            self.coefficient(a, k)

    @with_enough_stack
    def _coefficients(self, node: _SeriesNode, k: int) -> OneOrder:
        found = node.at.get(k)
        if found is None:
            source, self.builder.source = self.builder.source, node.source
            # Coefficient k may need a lower one of the same node, after which it is still being computed. A user's rule
            # may ask for coefficient 0 again, which `_by_tangent` then gives without the rule.
            outer, node.being_computed = node.being_computed, True
            found = node.compute(node, k)
            node.being_computed = outer
            self.builder.source = source
            node.at[k] = found
        return found

    @with_enough_stack
    def _order_in_reach(self, operands: SeriesAtoms, by_node: dict[_SeriesNode, int]) -> int:
        """Return the highest order K such that coefficients 0 to K of all operands are known or can be computed now.
        `by_node` has the orders that were found already.

        While coefficient k of a node is computed, only lower ones of this node are needed, so no coefficient waits for
        itself. An equation that computes one coefficient at a time asks for nothing else. A loop is emitted for several
        orders at once, so it could ask for more: of a node that is being computed, only what is known is in reach.

        Example: the tangent rule of y = f(x) gives d = z x', so y_k is d_(k-1) / k. A loop over y computes z. Then y is
        being computed, and

            requests               known of y     the loop is emitted for
            y_1 -> d_0 -> z_0      y_0            order 0
            y_2 -> d_1 -> z_1      y_0, y_1       order 1

        Example: z is g(y) in place of a loop, with a tangent rule that gives e = w, where a loop over y and y' computes
        w. The derivative y' has lead 1, so its order in reach is one less than that of y:

            requests                              known of y        the loop is emitted for
            y_1 -> d_0 -> z_0                     y_0               nothing: z_0 is g itself
            y_2 -> d_1 -> z_1 -> e_0 = w_0        y_0, y_1          order 0
            y_3 -> d_2 -> z_2 -> e_1 = w_1        y_0, y_1, y_2     order 1
        """
        in_reach = self.order
        for a in operands:
            if not isinstance(a, SeriesValue):
                continue
            node = a.node
            if node not in by_node:
                order = next(k for k in range(self.order + 2) if k not in node.at) - 1  # of those that are known
                if order < self.order and node.operands and not node.being_computed:
                    order = max(order, self._order_in_reach(node.operands, by_node) - node.lead)
                by_node[node] = order
            in_reach = min(in_reach, by_node[node])
        return in_reach

    # ----------------------------------------------------------------------------------------- from equations to nodes

    def apply(
        self, prim: Primitive, operands: SeriesAtoms, source: Source, operands_known: bool = False
    ) -> SeriesAtoms:
        """Return the results of an equation.

        `operands_known`: all coefficients of the operands are. In the user's program they are, because its equations
        are evaluated one after the other; in a tangent rule, coefficients are computed when they are needed.
        """
        self.builder.source = source
        atoms = [a for a in operands if not isinstance(a, SeriesValue)]
        if len(atoms) == len(operands):
            return self.emit(prim, *atoms)
        varies = tuple([isinstance(a, SeriesValue) for a in operands])
        if not prim.effects and (node := self._nodes.get((prim, operands))) is not None:
            return node.outs
        if isinstance(prim, CallWithRules) and not _has_own_derivative(prim):
            return self._apply_function(prim, operands, source, operands_known)
        if isinstance(prim, Call) and not operands_known:
            return self.inline(prim.body, operands, source)
        avals = tuple([a.aval for a in operands])
        rule = series_rule(prim, avals, varies, self.order)
        if rule is SeriesRule.BODIES and not operands_known and _is_linear(prim, varies):
            rule = SeriesRule.AFFINE  # it needs one coefficient at a time; the series of its bodies would need all
        if rule is SeriesRule.BODIES:
            assert isinstance(prim, HigherOrder)
            return self._node(prim, operands, self._by_bodies(prim, operands, operands_known), None, source)
        has = self._tangents_of(prim, avals, varies)[1]
        if not any(has):
            return self.emit(prim, *[self.at_zero(a) for a in operands])
        match rule:
            case SeriesRule.ROW | SeriesRule.TANGENT if self.composed and self._is_curve(prim, operands):
                compute = self._by_composition(prim, operands, source)
            case SeriesRule.ROW:
                compute = self._by_row(partial(ROWS[type(prim)].series, self, prim), operands)
            case SeriesRule.AFFINE:
                compute = self._by_coefficient(prim, operands, varies)
            case SeriesRule.PRODUCT:
                compute = self._product(prim, operands, varies)
            case _:
                compute = self._by_tangent(prim, operands, varies, source)
        return self._node(prim, operands, compute, has, source)

    def _node(
        self,
        prim: Primitive,
        operands: SeriesAtoms,
        compute: _Compute,
        has: Flags | None,
        source: Source,
    ) -> SeriesAtoms:
        """Return the results of a new node. Those that do not vary are atoms. `has` marks those that vary; None: all of
        an inexact type."""
        node = _SeriesNode(compute, source, operands)
        avals = prim.abstract_eval(*[a.aval for a in operands])
        self._nodes[prim, operands] = node
        node.outs = tuple([SeriesValue(node, k, a) for k, a in enumerate(avals)])
        varies = [a.inexact for a in avals] if has is None else has
        if not all(varies) or prim.effects:
            first = self._coefficients(node, 0)
            node.outs = tuple([
                out if v or c is None else c for out, v, c in zip(node.outs, varies, first, strict=True)
            ])  # fmt: skip
        return node.outs

    def inline(self, jaxpr: Jaxpr, operands: SeriesAtoms, source: Source) -> SeriesAtoms:
        """Apply the equations of a program."""
        env: dict[Atom, SeriesAtom] = dict(zip(jaxpr.ins, operands, strict=True))
        for eqn in jaxpr.eqns:
            args = tuple([env[a] if isinstance(a, Var) else a for a in eqn.ins])
            body = callee(eqn)
            outs = self.apply(eqn.prim, args, source) if body is None else self.inline(body, args, source)
            env.update(zip(eqn.outs, outs, strict=True))
        return tuple([env[a] if isinstance(a, Var) else a for a in jaxpr.outs])

    def _tangents_of(self, prim: Primitive, avals: Sequence[Aval], varies: Flags) -> tuple[Jaxpr, Flags]:
        """Return forward mode of one equation."""
        key = (prim, *avals, varies)
        if key not in self._tangent_programs:
            self._tangent_programs[key] = _tangent_program(prim, avals, varies)
        return self._tangent_programs[key]

    # ------------------------------------------------------------------------------------------- affine and products

    def _by_coefficient(self, prim: Primitive, operands: SeriesAtoms, varies: Flags) -> _Compute:
        """The linear part of an affine equation, applied to each coefficient. Coefficient 0 is the equation itself."""

        def compute(_: _SeriesNode, k: int) -> OneOrder:
            coefficients = [self.coefficient(a, k) for a in operands]
            if k > 0:
                return self._linear_part(prim, operands, coefficients)
            if None not in coefficients or not _is_linear(prim, varies):
                return self.emit(prim, *[self.at_zero(a) for a in operands])
            # of a linear equation of tangents, those that are zero at t = 0 are left out
            varying = [c if v else None for c, v in zip(coefficients, varies, strict=True)]
            return self._linear_part(prim, operands, varying)

        return compute

    def _linear_part(self, prim: Primitive, operands: SeriesAtoms, coefficients: Sequence[Atom | None]) -> OneOrder:
        """Return the linear part of an equation, applied to one coefficient of each operand; None is zero."""
        avals = tuple([a.aval for a in operands])
        has = tuple([c is not None for c in coefficients])
        n_outs = len(prim.abstract_eval(*avals))
        if not any(has):
            return (None,) * n_outs
        if _is_linear(prim, has):
            return self.emit(
                prim, *[self.at_zero(a) if c is None else c for a, c in zip(operands, coefficients, strict=True)]
            )
        program, nonzero = self._tangents_of(prim, avals, has)
        args = [self.at_zero(a) for a in operands]
        outs = self._emit_program(program, (*args, *[c for c in coefficients if c is not None]))
        tangents = iter(outs[n_outs:])
        return tuple([next(tangents) if n else None for n in nonzero])

    def _emit_program(self, jaxpr: Jaxpr, args: Sequence[Atom]) -> tuple[Atom, ...]:
        env: dict[Atom, Atom] = dict(zip(jaxpr.ins, args, strict=True))
        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outs, self.emit(eqn.prim, *[env.get(a, a) for a in eqn.ins]), strict=True))
        return tuple([env.get(a, a) for a in jaxpr.outs])

    def _product(self, prim: Primitive, operands: SeriesAtoms, varies: Flags) -> _Compute:
        i, j = [k for k, v in enumerate(varies) if v]
        squared = prim == MUL and operands[i] is operands[j]

        def term(p: int, q: int) -> Atom | None:
            a, b = self.coefficient(operands[i], p), self.coefficient(operands[j], q)
            if a is None or b is None:
                return None
            args = [self.at_zero(o) if k not in (i, j) else a if k == i else b for k, o in enumerate(operands)]
            return self.emit(prim, *args)[0]

        def compute(_: _SeriesNode, k: int) -> OneOrder:
            pairs = [(p, k - p) for p in range(k + 1)]
            if not squared:
                return (self.sum([t for p, q in pairs if (t := term(p, q)) is not None]),)
            twice = self.sum([t for p, q in pairs if p < q and (t := term(p, q)) is not None])
            middle = term(k // 2, k // 2) if k % 2 == 0 else None
            return (self.sum([t for t in (None if twice is None else self.scaled(twice, 2), middle) if t is not None]),)

        return compute

    def _by_row(self, series: Callable[..., Atom | None], operands: SeriesAtoms) -> _Compute:
        getters = [lambda k, a=a: self.coefficient(a, k) if k else self.at_zero(a) for a in operands]
        known: list[Atom | None] = []

        def compute(_: _SeriesNode, k: int) -> OneOrder:
            while len(known) <= k:
                known.append(series(len(known), getters, known))
            return (known[k],)

        return compute

    # ------------------------------------------------------------------------------------------------- compositions

    def _is_curve(self, prim: Primitive, operands: SeriesAtoms) -> bool:
        """Return True for a function of one real number at a series that is not x_0 + t. `abs` of a complex number has
        no derivative in it."""
        (x, *_) = operands
        return isinstance(prim, Unary) and x.aval.dtype in FLOATING and x not in self._lines.values()

    def _by_composition(self, prim: Primitive, operands: SeriesAtoms, source: Source) -> _Compute:
        """f(x) = sum of a_m (x_1 t + x_2 t^2 + ...)^m, where a_m are the coefficients of f(x_0 + t).

        So coefficient k is a sum over the partitions of k: for (2, 1, 1), it is 3 a_3 x_2 x_1^2. A partition is divided
        into two parts of similar sums, so that those with a common one share a product: x_2 (a_2 x_2 + 3 a_3 x_1^2).
        """
        (x,) = operands

        def power(partition: _Partition) -> Atom:
            if len(partition) == 1:
                c = self.coefficient(x, partition[0])
                assert c is not None
                return c
            left, right = _halves(partition)
            return self.emit(MUL, power(left), power(right))[0]

        def compute(_: _SeriesNode, k: int) -> OneOrder:
            first = self.at_zero(x)
            if k == 0:
                return self.emit(prim, first)
            line = self._lines.get(first)
            if line is None:
                one = Lit.of(1, first.aval)
                line = self._lines[first] = self.leaf(first.aval, [first, one, *[None] * (self.order - 1)])
            (f,) = self.apply(prim, (line,), source)
            groups: dict[_Partition, list[tuple[Atom, _Partition]]] = {}
            for partition in _partitions(k, k):
                slope = self.coefficient(f, len(partition))
                if slope is not None and all([self.coefficient(x, p) is not None for p in partition]):
                    groups.setdefault(_halves(partition)[0], []).append(
                        (self.scaled(slope, _orders_of(partition)), partition)
                    )
            terms: list[Atom] = []
            for left, members in groups.items():
                if len(members) == 1:
                    ((slope, partition),) = members
                    terms.append(self.emit(MUL, power(partition), slope)[0])
                    continue
                inner = self.sum(
                    [self.emit(MUL, power(_halves(partition)[1]), slope)[0] for slope, partition in members]
                )
                assert inner is not None
                terms.append(self.emit(MUL, power(left), inner)[0])
            return (self.sum(terms),)

        return compute

    # --------------------------------------------------------------------------------------------- the tangent rule

    def _by_tangent(self, prim: Primitive, operands: SeriesAtoms, varies: Flags, source: Source) -> _Compute:
        """The recursion of the module: y' is the tangent rule at x and x', and y_k is (y')_(k-1) / k."""
        found: tuple[SeriesAtoms, list[SeriesAtom | None]] | None = None

        def results_and_tangents() -> tuple[SeriesAtoms, list[SeriesAtom | None]]:
            nonlocal found
            if found is None:
                if isinstance(prim, LinearCall):  # its tangent is that of its body
                    body = without_checks(without_effects(prim.body))
                    program, has = jvp(body, varies)
                else:
                    program, has = self._tangents_of(prim, [a.aval for a in operands], varies)
                dots = [self.derivative(a) for a in operands if isinstance(a, SeriesValue)]
                outs = self.inline(program, (*operands, *dots), source)
                tangents = iter(outs[len(has) :])
                found = outs[: len(has)], [next(tangents) if m else None for m in has]
            return found

        # A user's rule computes the results too. If it calls its own function of the same operands for them, it asks
        # this node for coefficient 0 again, and the second request is answered by the function itself.
        ask_rule = isinstance(prim, CallWithRules)

        def compute(_: _SeriesNode, k: int) -> OneOrder:
            nonlocal ask_rule
            if k == 0 and ask_rule:
                ask_rule = False
                return tuple([self.at_zero(out) for out in results_and_tangents()[0]])
            if k == 0:
                return self.emit(prim, *[self.at_zero(a) for a in operands])
            series: list[Atom | None] = []
            for dot in results_and_tangents()[1]:
                c = None if dot is None else self.coefficient(dot, k - 1)
                series.append(None if c is None else self.divided(c, k))
            return tuple(series)

        return compute

    def derivative(self, a: SeriesAtom) -> SeriesAtom:
        """Return the derivative in t: coefficient k is k + 1 times coefficient k + 1."""
        assert isinstance(a, SeriesValue)
        known = [a.node.at.get(k) for k in range(self.order + 1)]
        if all([cs is not None and (k < 2 or cs[a.index] is None) for k, cs in enumerate(known)]):
            slope = self.coefficient(a, 1)  # x(t) is x_0 + x_1 t
            return Lit.zero(a.aval) if slope is None else slope
        if a not in self._derivatives:

            def compute(_: _SeriesNode, k: int) -> OneOrder:
                c = self.coefficient(a, k + 1)
                return (None if c is None else self.scaled(c, k + 1),)

            node = _SeriesNode(compute, a.node.source, (a,), lead=1)
            self._derivatives[a] = SeriesValue(node, 0, a.aval)
            node.outs = (self._derivatives[a],)
        return self._derivatives[a]

    # ---------------------------------------------------------------------------------------- functions with rules

    def _apply_function(
        self, prim: CallWithRules, operands: SeriesAtoms, source: Source, operands_known: bool
    ) -> SeriesAtoms:
        """Apply a function whose derivatives are those of a program."""
        rules, varies = prim.rules, [isinstance(a, SeriesValue) for a in operands]
        moves_captured = any(varies[: prim.captured])
        if rules.has_derivative and rules.derivative_of is not None:
            self._tangents_of(prim, [a.aval for a in operands], tuple(varies))  # refuses tangents of captured values
            return self.apply(Call(prim.complete(rules.derivative_of, over_stack)), operands, source, operands_known)
        if rules.has_derivative or not rules.concern_stacks or moves_captured or not operands_known:
            return self.apply(Call(prim.body), operands, source, operands_known)
        return self._node(prim, operands, self._over_stacks(prim, operands), None, source)

    def _over_stacks(self, prim: CallWithRules, operands: SeriesAtoms) -> _Compute:
        """A function with batch rules alone: its series has batch rules, which are the series of those."""

        def compute(node: _SeriesNode, k: int) -> OneOrder:
            cs = self._up_to(self.order, operands)
            pattern = tuple([tuple([c is not None for c in higher]) for _, higher in cs])
            programs = [prim.body, *[prim.complete(rule.body, over_stack) for rule in prim.rules.batch]]
            jets = [jet(program, pattern, self.composed) for program in programs]
            union = _union([has for _, has in jets])
            bodies = [_with_pattern(program, has, union) for program, has in jets]
            batch = [replace(r, body=body) for r, body in zip(prim.rules.batch, bodies[1:], strict=True)]
            rules = replace(prim.rules.of_stacks, batch=tuple(batch))
            both = CallWithRules(Function(bodies[0], prim.captured, rules))
            outs = self.emit(both, *[c for c, _ in cs], *[c for _, higher in cs for c in higher if c is not None])
            n = len(union)
            higher = iter(outs[n:])
            series = [[outs[q], *[next(higher) if m else None for m in union[q]]] for q in range(n)]
            node.at.update({j: tuple([s[j] for s in series]) for j in range(self.order + 1)})
            return node.at[k]

        return compute

    # ------------------------------------------------------------------------------------------------------- bodies

    def _up_to(self, order: int, operands: SeriesAtoms) -> list[tuple[Atom, list[Atom | None]]]:
        """Return for each operand its coefficient 0, and its coefficients 1 to `order`."""
        return [(self.at_zero(a), [self.coefficient(a, k) for k in range(1, order + 1)]) for a in operands]

    def _by_bodies(self, prim: HigherOrder, operands: SeriesAtoms, operands_known: bool) -> _Compute:
        """The same equation over the series of its bodies, of the highest order that the operands have. In the tangent
        rule of y, a loop over y is emitted anew for each order: coefficient k of y needs the one before it."""

        def compute(node: _SeriesNode, k: int) -> OneOrder:
            # Only orders that can be computed are requested (see `_order_in_reach`), so k is one, even if its operands
            # are not all known yet. A higher order can be computed only if that method says so.
            order = self.order if operands_known else max(k, self._order_in_reach(operands, {}))
            if order == 0:
                return self.emit(prim, *[self.at_zero(a) for a in operands])
            series = self._emit_bodies(prim, self._up_to(order, operands), order)
            node.at.update({j: tuple([s[j] for s in series]) for j in range(order + 1) if j not in node.at})
            return node.at[k]

        return compute

    def _emit_bodies(
        self, prim: HigherOrder, values: Sequence[tuple[Atom, list[Atom | None]]], order: int
    ) -> list[list[Atom | None]]:
        layout = prim.layout
        operands = [tuple([c is not None for c in higher]) for _, higher in values]
        operands, results, jets = _series_of_bodies(layout, operands, order, self.composed)
        bodies = [
            _expanded_body(layout, k, *jets[k], operands, results) if k in jets else body.jaxpr
            for k, body in enumerate(layout.bodies)
        ]
        sizes = [
            tuple([sum([1 + sum(marks[p]) for p in members(g)]) for g in range(len(groups))])
            for groups, members, marks in (
                (layout.operands, layout.operands_of, operands),
                (layout.results, layout.results_of, results),
            )
        ]
        rebuilt = prim.rebuild(tuple(bodies), *sizes)
        args: list[Atom] = []
        for (value, higher), marks in zip(values, operands, strict=True):
            args += [value, *[c or Lit.zero(value.aval) for c, m in zip(higher, marks, strict=True) if m]]
        outs = iter(self.emit(rebuilt, *args))
        return [[next(outs), *[next(outs) if m else None for m in marks]] for marks in results]


def _series_of_bodies(
    layout: Layout, operands: list[Flags], order: int, composed: bool
) -> tuple[list[Flags], list[Flags], dict[int, tuple[Jaxpr, CoefficientFlags]]]:
    """Return the coefficients that operands and results have, and the series of the bodies.

    It is the least fixed point: a coefficient of a carry that is zero in the first step may be nonzero later.
    """
    zero = (False,) * order
    carries = layout.carries
    while True:
        results = [zero] * sum([g.size for g in layout.results])
        jets: dict[int, tuple[Jaxpr, CoefficientFlags]] = {}
        for k in layout.running:
            pattern = tuple([operands[p] for p in layout.operand_indices(k)])
            jets[k] = jet(layout.bodies[k].jaxpr, pattern, composed)
            for place, marks in zip(layout.result_indices(k), jets[k][1], strict=True):
                if place is not None:
                    results[place] = flags_or(results[place], marks)
        wider = list(operands)
        for p, q in carries.items():
            wider[p] = flags_or(operands[p], results[q])
        if wider == operands:
            for p, q in carries.items():
                results[q] = operands[p]
            return operands, results, jets
        operands = wider


def _expanded_body(
    layout: Layout, k: int, series: Jaxpr, has: CoefficientFlags, operands: Sequence[Flags], results: Sequence[Flags]
) -> Jaxpr:
    """Return the series of a body with the coefficients of each operand and result next to it."""
    body = layout.bodies[k].jaxpr
    b = Builder()
    values: list[Atom] = []
    higher: list[Atom] = []
    for v, p in zip(body.ins, layout.operand_indices(k), strict=True):
        values.append(b.input(v.aval))
        higher += [b.input(v.aval) for m in operands[p] if m]
    outs = b.inline(series, (*values, *higher))
    coefficients = iter(outs[len(body.outs) :])
    expanded: list[Atom] = []
    for out, q, marks in zip(outs, layout.result_indices(k), has, strict=False):
        expanded.append(out)
        own = [next(coefficients) if m else None for m in marks]
        if q is not None:
            expanded += [c or Lit.zero(out.aval) for c, m in zip(own, results[q], strict=True) if m]
    return b.build(expanded, series.name)


def _union(patterns: Sequence[CoefficientFlags]) -> CoefficientFlags:
    return tuple([flags_or(*marks) for marks in zip(*patterns, strict=True)])


def _with_pattern(series: Jaxpr, has: CoefficientFlags, wants: CoefficientFlags) -> Jaxpr:
    """Return the program with a result for each coefficient in `wants`."""
    n = len(has)
    given = iter(series.outs[n:])
    higher: list[Atom] = []
    for out, own, marks in zip(series.outs, has, wants, strict=False):
        coefficients = [next(given) if m else Lit.zero(out.aval) for m in own]
        higher += [c for c, m in zip(coefficients, marks, strict=True) if m]
    return series.with_outs((*series.outs[:n], *higher))


# --------------------------------------------------------------------------------------------------------- partitions

# The parts of a number, in decreasing order.
_Partition: TypeAlias = tuple[int, ...]


def _partitions(k: int, most: int) -> list[_Partition]:
    """Return the partitions of k into parts that are at most `most`."""
    if k == 0:
        return [()]
    return [(part, *rest) for part in range(min(k, most), 0, -1) for rest in _partitions(k - part, part)]


def _orders_of(partition: _Partition) -> int:
    """Return the number of different orders of the parts."""
    return factorial(len(partition)) // prod([factorial(partition.count(p)) for p in set(partition)])


def _halves(partition: _Partition) -> tuple[_Partition, _Partition]:
    """Return the parts as two groups. The first has the greatest sum up to one half, then the fewest parts."""
    counts = Counter(partition)
    chosen = [Counter(dict(zip(counts, n, strict=True))) for n in product(*[range(c + 1) for c in counts.values()])]
    least = min([c for c in chosen if 2 * _sum_of(c) <= sum(partition)], key=lambda c: (-_sum_of(c), c.total()))
    return _decreasing(least), _decreasing(counts - least)


def _sum_of(parts: Counter[int]) -> int:
    return sum([p * n for p, n in parts.items()])


def _decreasing(parts: Counter[int]) -> _Partition:
    return tuple(sorted(parts.elements(), reverse=True))


# ------------------------------------------------------------------------------------------------- kinds of equations


def _tangent_program(prim: Primitive, avals: Sequence[Aval], varies: Flags) -> tuple[Jaxpr, Flags]:
    """Return `jvp` of the program of one equation. An error names the equation of the user's program, not this one."""
    b = ForwardBuilder()
    primals = b.inputs(avals)
    tangents = tuple([as_lin(b.input(a)) if v else Zero(a) for a, v in zip(avals, varies, strict=True)])
    outs, dots = prim.jvp(cast(JvpCtx, b), primals, tangents)
    has = tuple([isinstance(dot, Lin) for dot in dots])
    return b.build([*outs, *[dot.var for dot in dots if isinstance(dot, Lin)]], prim.name), has


def _has_own_derivative(prim: CallWithRules) -> bool:
    """Return True if the derivative is a rule that a user gave, and not that of a program."""
    return prim.rules.has_derivative and not prim.rules.of_body and prim.rules.derivative_of is None


def _is_linear(prim: Primitive, varies: Flags) -> bool:
    """Return True if the equation is linear in the marked operands together, the others held fixed."""
    return isinstance(prim, Linear) and prim.linear_in(varies)


@final
class SeriesRule(Enum):
    """How the series of an equation is computed. The values are the words of `docs/rule-matrix.md`."""

    BODIES = "bodies"  # the same equation, over the series of its bodies
    ROW = "row"
    AFFINE = "linear"  # its linear part, applied to each coefficient
    PRODUCT = "product"  # the Cauchy product
    TANGENT = "tangent rule"


def series_rule(prim: Primitive, avals: Sequence[Aval], varies: Flags, order: int = HIGH_ORDER) -> SeriesRule:
    """Return how the series of an equation is computed when the marked operands vary."""
    by_rule = isinstance(prim, CallWithRules) and _has_own_derivative(prim)  # even if the rule raised an error
    if isinstance(prim, HigherOrder) and prim.layout.transparent and not by_rule:
        return SeriesRule.BODIES
    row = ROWS.get(type(prim))
    if row is not None and order >= row.least and row.applies(prim, avals, varies):
        return SeriesRule.ROW
    if _is_affine(prim, avals, varies):
        return SeriesRule.AFFINE
    return SeriesRule.PRODUCT if _is_bilinear(prim, varies) else SeriesRule.TANGENT


def _is_affine(prim: Primitive, avals: Sequence[Aval], varies: Flags) -> bool:
    """Return True if the equation is affine in the varying operands: it is linear in them, as a product with a constant
    is, or in them together with the constants, as a sum with a constant is."""
    if not isinstance(prim, Linear):
        return False
    if prim.linear_in(varies):
        return True
    return not isinstance(prim, HigherOrder) and prim.linear_in(tuple([a.inexact for a in avals]))


def _is_bilinear(prim: Primitive, varies: Flags) -> bool:
    """Return True if the equation is linear in each of two varying operands, the other held fixed."""
    if not isinstance(prim, Linear) or isinstance(prim, HigherOrder) or sum(varies) != 2:
        return False
    alone = [tuple([k == j for k in range(len(varies))]) for j, v in enumerate(varies) if v]
    return all([prim.linear_in(mask) for mask in alone])
