"""Taylor series of programs, of any order: from the `jvp` rules, and for a few primitives from shorter ones.

For x(t) = x_0 + x_1 t + x_2 t^2 + ... and y(t) = f(x(t)), the tangent rule of f gives y'(t) from x(t), y(t) and x'(t).
The rule is a program of primitives, so it is evaluated in series too: coefficient k + 1 of y is coefficient k of the
tangent, divided by k + 1. The recursion ends in equations that are linear and in products.

The rule of `sin(x)` is a program of `sin(x)` and `cos(x) * x_dot`, so it computes `sin(x)` again. Therefore equal
equations are one node, which computes each coefficient once, when it is needed (`nodes`). How, is one of these
(`series_rules`):

- results that do not vary are constants, which are atoms of the new program;
- an equation that is affine in its varying operands: its linear part, applied to coefficient k of the operands;
- an equation that is linear in each of two varying operands: the Cauchy product;
- an equation with bodies that run: the same equation over the series of its bodies (`body_series`);
- a few primitives have a shorter recurrence (`rows`);
- any other: the recursion above. For a function of one real number, the formula of Faa di Bruno can take its place
  (`compositions`).

A coefficient that is zero is None, and gives no equation. Decision: docs/adr/0102.

Source: Griewank and Walther, Evaluating Derivatives (2008), chapter 13, for the recurrences.

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

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast, final

from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Flags, HigherOrder, Jaxpr, JvpCtx, Lin, Lit, Primitive, Source, Var, Zero, as_lin
from fxad.primitives.control.call import Call, callee
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Function
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.linear_call import LinearCall
from fxad.transforms.ad.jvp import ForwardBuilder, check_differentiable, jvp
from fxad.transforms.jet.body_series import CoefficientFlags, series_of_bodies, union_of_coefficients, with_coefficients
from fxad.transforms.jet.compositions import Compositions
from fxad.transforms.jet.nodes import Compute, SeriesAtom, SeriesAtoms, SeriesGraph, SeriesNode, SeriesValue
from fxad.transforms.jet.rows import ROWS, OneOrder
from fxad.transforms.jet.series_rules import SeriesRule, has_own_derivative, is_linear, series_rule
from fxad.transforms.locate import locate
from fxad.transforms.vmap import over_stack


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
        program, tangents = jvp(jaxpr, tuple([m for (m,) in nonzero]))
        return program, tuple([(m,) for m in tangents])
    check_differentiable(jaxpr, tuple(map(any, nonzero)), "jet")
    s = _SeriesBuilder(order, composed)
    env: dict[Atom, SeriesAtom] = dict(zip(jaxpr.ins, s.builder.inputs(jaxpr.in_avals), strict=True))
    for v, marks in zip(jaxpr.ins, nonzero, strict=True):
        if any(marks):
            coefficients = [s.builder.input(v.aval) if m else None for m in marks]
            env[v] = s.leaf(v.aval, [s.at_zero(env[v]), *coefficients])
    for eqn in jaxpr.eqns:
        try:
            outs = s.apply(eqn.prim, tuple([env.get(a, a) for a in eqn.ins]), eqn.source, operands_computed=True)
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


@final
class _SeriesBuilder(SeriesGraph):
    """Adds equations to the graph: each becomes a node, with the function that computes its coefficients."""

    def __init__(self, order: int, composed: bool) -> None:
        super().__init__(order)
        self.composed: Final = composed
        self._compositions: Final = Compositions(self, self.apply)
        self._tangent_programs: dict[tuple[object, ...], tuple[Jaxpr, Flags]] = {}

    # ----------------------------------------------------------------------------------------- from equations to nodes

    def apply(
        self, prim: Primitive, operands: SeriesAtoms, source: Source, operands_computed: bool = False
    ) -> SeriesAtoms:
        """Return the results of an equation.

        `operands_computed`: all coefficients of the operands are. In the user's program they are, because its equations
        are evaluated one after the other; in a tangent rule, coefficients are computed when they are needed.
        """
        self.builder.source = source
        atoms = [a for a in operands if not isinstance(a, SeriesValue)]
        if len(atoms) == len(operands):
            return self.emit(prim, *atoms)
        varies = tuple([isinstance(a, SeriesValue) for a in operands])
        if not prim.effects and (node := self.nodes.get((prim, operands))) is not None:
            return node.outs
        if isinstance(prim, CallWithRules) and not has_own_derivative(prim):
            return self._apply_function(prim, operands, source, operands_computed)
        if isinstance(prim, Call) and not operands_computed:
            return self.inline(prim.body, operands, source)
        avals = tuple([a.aval for a in operands])
        rule = series_rule(prim, avals, varies, self.order, in_tangent_rule=not operands_computed)
        if rule is SeriesRule.BODIES:
            assert isinstance(prim, HigherOrder)
            return self.node(prim, operands, self._by_bodies(prim, operands, operands_computed), None, source)
        nonzero = self._tangents_of(prim, avals, varies)[1]
        if not any(nonzero):
            return self.emit(prim, *[self.at_zero(a) for a in operands])
        match rule:
            case SeriesRule.ROW | SeriesRule.TANGENT if self.composed and self._compositions.concern(prim, operands):
                compute = self._compositions.compute(prim, operands[0], source)
            case SeriesRule.ROW:
                compute = self._by_row(prim, operands)
            case SeriesRule.AFFINE:
                compute = self._by_coefficient(prim, operands, varies)
            case SeriesRule.PRODUCT:
                compute = self._product(prim, operands, varies)
            case _:
                compute = self._by_tangent(prim, operands, varies, source)
        return self.node(prim, operands, compute, nonzero, source)

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

    def _by_coefficient(self, prim: Primitive, operands: SeriesAtoms, varies: Flags) -> Compute:
        """The linear part of an affine equation, applied to each coefficient. Coefficient 0 is the equation itself."""

        def compute(_: SeriesNode, k: int) -> OneOrder:
            coefficients = [self.coefficient(a, k) for a in operands]
            if k > 0:
                return self._linear_part(prim, operands, coefficients)
            if None not in coefficients or not is_linear(prim, varies):
                return self.emit(prim, *[self.at_zero(a) for a in operands])
            # of a linear equation of tangents, those that are zero at t = 0 are left out
            varying = [c if v else None for c, v in zip(coefficients, varies, strict=True)]
            return self._linear_part(prim, operands, varying)

        return compute

    def _linear_part(self, prim: Primitive, operands: SeriesAtoms, coefficients: Sequence[Atom | None]) -> OneOrder:
        """Return the linear part of an equation, applied to one coefficient of each operand; None is zero."""
        avals = tuple([a.aval for a in operands])
        present = tuple([c is not None for c in coefficients])
        n_outs = len(prim.abstract_eval(*avals))
        if not any(present):
            return (None,) * n_outs
        if is_linear(prim, present):
            return self.emit(
                prim, *[self.at_zero(a) if c is None else c for a, c in zip(operands, coefficients, strict=True)]
            )
        program, nonzero = self._tangents_of(prim, avals, present)
        args = [self.at_zero(a) for a in operands]
        outs = self._emit_program(program, (*args, *[c for c in coefficients if c is not None]))
        tangents = iter(outs[n_outs:])
        return tuple([next(tangents) if n else None for n in nonzero])

    def _emit_program(self, jaxpr: Jaxpr, args: Sequence[Atom]) -> tuple[Atom, ...]:
        env: dict[Atom, Atom] = dict(zip(jaxpr.ins, args, strict=True))
        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outs, self.emit(eqn.prim, *[env.get(a, a) for a in eqn.ins]), strict=True))
        return tuple([env.get(a, a) for a in jaxpr.outs])

    def _product(self, prim: Primitive, operands: SeriesAtoms, varies: Flags) -> Compute:
        """The Cauchy product: coefficient k of u v is the sum of u_p v_q over p + q = k. Of a square, u_p u_q stands
        for two products: coefficient 4 is 2 (u_0 u_4 + u_1 u_3) + u_2 u_2."""
        i, j = [k for k, v in enumerate(varies) if v]
        squared = prim == MUL and operands[i] is operands[j]

        def term(p: int, q: int) -> Atom | None:
            a, b = self.coefficient(operands[i], p), self.coefficient(operands[j], q)
            if a is None or b is None:
                return None
            args = [self.at_zero(o) if k not in (i, j) else a if k == i else b for k, o in enumerate(operands)]
            return self.emit(prim, *args)[0]

        def compute(_: SeriesNode, k: int) -> OneOrder:
            pairs = [(p, k - p) for p in range(k + 1)]
            if not squared:
                return (self.sum([t for p, q in pairs if (t := term(p, q)) is not None]),)
            below = self.sum([t for p, q in pairs if p < q and (t := term(p, q)) is not None])
            twice = None if below is None else self.scaled(below, 2)
            middle = term(k // 2, k // 2) if k % 2 == 0 else None
            return (self.sum([t for t in (twice, middle) if t is not None]),)

        return compute

    def _by_row(self, prim: Primitive, operands: SeriesAtoms) -> Compute:
        """The recurrence of a row: a coefficient from those of the operands, and from those before it."""
        series = ROWS[type(prim)].series
        getters = [lambda k, a=a: self.coefficient(a, k) if k else self.at_zero(a) for a in operands]
        coefficients: list[Atom | None] = []

        def compute(_: SeriesNode, k: int) -> OneOrder:
            if not coefficients:
                coefficients.extend(self.emit(prim, *[self.at_zero(a) for a in operands]))
            while len(coefficients) <= k:
                coefficients.append(series(self, len(coefficients), getters, coefficients))
            return (coefficients[k],)

        return compute

    # --------------------------------------------------------------------------------------------- the tangent rule

    def _by_tangent(self, prim: Primitive, operands: SeriesAtoms, varies: Flags, source: Source) -> Compute:
        """The recursion of the module: y' is the tangent rule at x and x', and y_k is (y')_(k-1) / k."""
        applied: tuple[SeriesAtoms, list[SeriesAtom | None]] | None = None

        def results_and_tangents() -> tuple[SeriesAtoms, list[SeriesAtom | None]]:
            """Apply the rule once."""
            nonlocal applied
            if applied is None:
                if isinstance(prim, LinearCall):  # its tangent is that of its body
                    body = without_checks(without_effects(prim.body))
                    program, nonzero = jvp(body, varies)
                else:
                    program, nonzero = self._tangents_of(prim, [a.aval for a in operands], varies)
                derivatives = [self.derivative(a) for a in operands if isinstance(a, SeriesValue)]
                outs = self.inline(program, (*operands, *derivatives), source)
                tangents = iter(outs[len(nonzero) :])
                applied = outs[: len(nonzero)], [next(tangents) if m else None for m in nonzero]
            return applied

        # A user's rule computes the results too. If it calls its own function of the same operands for them, it asks
        # this node for coefficient 0 again, and the second request is answered by the function itself.
        ask_rule = isinstance(prim, CallWithRules)

        def compute(_: SeriesNode, k: int) -> OneOrder:
            nonlocal ask_rule
            if k == 0 and ask_rule:
                ask_rule = False
                return tuple([self.at_zero(out) for out in results_and_tangents()[0]])
            if k == 0:
                return self.emit(prim, *[self.at_zero(a) for a in operands])
            series: list[Atom | None] = []
            for tangent in results_and_tangents()[1]:
                c = None if tangent is None else self.coefficient(tangent, k - 1)
                series.append(None if c is None else self.divided(c, k))
            return tuple(series)

        return compute

    # ---------------------------------------------------------------------------------------- functions with rules

    def _apply_function(
        self, prim: CallWithRules, operands: SeriesAtoms, source: Source, operands_computed: bool
    ) -> SeriesAtoms:
        """Apply a function whose derivatives are those of a program."""
        rules, varies = prim.rules, [isinstance(a, SeriesValue) for a in operands]
        moves_captured = any(varies[: prim.captured])
        if rules.has_derivative and rules.derivative_of is not None:
            self._tangents_of(prim, [a.aval for a in operands], tuple(varies))  # refuses tangents of captured values
            return self.apply(Call(prim.complete(rules.derivative_of, over_stack)), operands, source, operands_computed)
        if rules.has_derivative or not rules.concern_stacks or moves_captured or not operands_computed:
            return self.apply(Call(prim.body), operands, source, operands_computed)
        return self.node(prim, operands, self._over_stacks(prim, operands), None, source)

    def _over_stacks(self, prim: CallWithRules, operands: SeriesAtoms) -> Compute:
        """A function with batch rules alone: its series has batch rules, which are the series of those."""

        def compute(node: SeriesNode, k: int) -> OneOrder:
            coefficients = self.up_to(self.order, operands)
            pattern = tuple([tuple([c is not None for c in higher]) for _, higher in coefficients])
            programs = [prim.body, *[prim.complete(rule.body, over_stack) for rule in prim.rules.batch]]
            jets = [jet(program, pattern, self.composed) for program in programs]
            union = union_of_coefficients([nonzero for _, nonzero in jets])
            bodies = [with_coefficients(series, nonzero, union) for series, nonzero in jets]
            batch = [replace(r, body=body) for r, body in zip(prim.rules.batch, bodies[1:], strict=True)]
            rules = replace(prim.rules.of_stacks, batch=tuple(batch))
            series_of_function = CallWithRules(Function(bodies[0], prim.captured, rules))
            higher = [c for _, cs in coefficients for c in cs if c is not None]
            outs = self.emit(series_of_function, *[c for c, _ in coefficients], *higher)
            n = len(union)
            out_higher = iter(outs[n:])
            series = [
                [out, *[next(out_higher) if m else None for m in marks]]
                for out, marks in zip(outs[:n], union, strict=True)
            ]
            node.computed.update({j: tuple([s[j] for s in series]) for j in range(self.order + 1)})
            return node.computed[k]

        return compute

    # ------------------------------------------------------------------------------------------------------- bodies

    def _by_bodies(self, prim: HigherOrder, operands: SeriesAtoms, operands_computed: bool) -> Compute:
        """The same equation over the series of its bodies, of the highest order that the operands have. In the tangent
        rule of y, a loop over y is emitted anew for each order: coefficient k of y needs the one before it."""

        def compute(node: SeriesNode, k: int) -> OneOrder:
            # The operands can be computed up to order k now: coefficient k of the node waits for no others, by the
            # invariant in the docstring of `order_in_reach` (nodes.py), which gives the higher order that they have.
            order = self.order if operands_computed else max(k, self.order_in_reach(operands, {}))
            if order == 0:
                return self.emit(prim, *[self.at_zero(a) for a in operands])
            series = self._emit_bodies(prim, self.up_to(order, operands))
            node.computed.update({
                j: tuple([s[j] for s in series]) for j in range(order + 1) if j not in node.computed
            })  # fmt: skip
            return node.computed[k]

        return compute

    def _emit_bodies(
        self, prim: HigherOrder, values: Sequence[tuple[Atom, list[Atom | None]]]
    ) -> list[list[Atom | None]]:
        """Return the coefficients of each result, from those of each operand."""
        present = [tuple([c is not None for c in higher]) for _, higher in values]
        series = series_of_bodies(prim, present, lambda body, nonzero: jet(body, nonzero, self.composed))
        args: list[Atom] = []
        for (value, higher), marks in zip(values, series.operands, strict=True):
            args += [value, *[c or Lit.zero(value.aval) for c, m in zip(higher, marks, strict=True) if m]]
        outs = iter(self.emit(series.prim, *args))
        return [[next(outs), *[next(outs) if m else None for m in marks]] for marks in series.results]


def _tangent_program(prim: Primitive, avals: Sequence[Aval], varies: Flags) -> tuple[Jaxpr, Flags]:
    """Return `jvp` of the program of one equation. An error names the equation of the user's program, not this one."""
    b = ForwardBuilder()
    primals = b.inputs(avals)
    tangents = tuple([as_lin(b.input(a)) if v else Zero(a) for a, v in zip(avals, varies, strict=True)])
    outs, out_tangents = prim.jvp(cast(JvpCtx, b), primals, tangents)
    nonzero = tuple([isinstance(t, Lin) for t in out_tangents])
    return b.build([*outs, *[t.var for t in out_tangents if isinstance(t, Lin)]], prim.name), nonzero
