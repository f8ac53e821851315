"""`invertible`: a program whose backward pass reconstructs values from the results instead of storing them.

The result is one `call_with_rules`. Its rules are made in `_with_rules`:

    forward mode       the plain linearized program (`second_order.forward_rule`)
    reverse, forward   operands -> results, residuals       `_forward`: residuals are results, kept operands, sketches
    reverse, pull      cotangents, residuals -> cotangents  `ivjp`
    reverse, push      tangents, residuals -> tangents      `push_from_results`; its transpose is the pull
    inverse            results, kept -> other operands      `solver.partial_inverse`, for an `invertible` around it
    inverse, ivjp      the same with cotangents             `ivjp` with `returns_operands`

The docstring of the package has an example of a pull. It transposes the linear program, and reads its residuals as it
reaches them. Each value is computed at its first read (`fxad.transforms.inversion.solver`), so reconstruction and
gradient proceed together. The body of a call, branch or loop becomes one program that does both: results and their
cotangents -> operands and their cotangents (`fxad.transforms.inversion.reversible_adjoint`). The forward program and
the pull are split into segments, so that XLA keeps this order (`fxad.transforms.memory.segments`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar, final

from fxad import dtypes
from fxad.core.builder import Builder, rebind_operands, single_equation, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.masks import select_by_mask
from fxad.core.memo import by_value
from fxad.errors import FxadError, NotDifferentiableError, NotInvertibleError
from fxad.ir import Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Lin, Lit, Mask, Tangent, Var, Zero, as_lin
from fxad.primitives.check import has_check
from fxad.primitives.control.bodies import reorder_operands
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative, Function, InverseRule, Rules
from fxad.transforms.ad.linearize import LinearizeBuilder, linearize, operands_without_derivative
from fxad.transforms.ad.transpose import TransposeBuilder, accumulate, backward_eqn, instantiate
from fxad.transforms.inversion.normal_form import backward_form, normal_form
from fxad.transforms.inversion.plans import InversionPlan, LazyValues
from fxad.transforms.inversion.reconstruction_check import after_checks, agree, compared, sketch, sketched, where_right
from fxad.transforms.inversion.reversible_adjoint import Ivjp, IvjpEqn, eqns_with_ivjp
from fxad.transforms.inversion.rules import INVERSE_RULES
from fxad.transforms.inversion.rules.contract import InverseTable
from fxad.transforms.inversion.second_order import (
    forward_rule,
    has_custom_derivatives,
    may_move_differently,
    with_derivatives_of,
)
from fxad.transforms.inversion.solver import find_plan, partial_inverse
from fxad.transforms.locate import EqnOrigin, bodies_around, locate
from fxad.transforms.memory.segments import in_segments

T = TypeVar("T")
REMEDY: Final = "name the argument in keep, close over the value, or give the function a custom_inverse"


@by_value
def invertible(
    jaxpr: Jaxpr,
    kept: Mask,
    labels: tuple[str, ...] = (),
    tolerance: float = 0.0,
    rules: InverseTable = INVERSE_RULES,
) -> Jaxpr:
    """Returns the program as one `call_with_rules`. Its residuals are its results and the operands marked in `kept`.

    Integers and bools that the results do not determine are kept too. `labels` are the names of the operands in
    messages. Sketches of the values that are reconstructed last are further residuals. Derivatives are nan if the error
    of such a value, relative to its largest magnitude, exceeds `tolerance`. The tolerance 0 means the default of
    `reconstruction_check.tolerated`; infinity means no sketches.

    Law:    same value; the gradient of the plain program, within the error of the reconstruction.
    Raises: NotInvertibleError that names the equation, for a value that the gradient needs and the results do not
            determine; NotDifferentiableError that names the equation, for an equation without a derivative.
    """
    names = labels or tuple([f"operand {k}" for k in range(len(jaxpr.ins))])
    try:
        captured = operands_without_derivative(jaxpr, kept)
    except NotDifferentiableError as e:
        e.inside = bodies_around(e)
        raise
    order = tuple(sorted(range(len(captured)), key=lambda k: not captured[k]))
    first = reorder_operands(jaxpr, order)  # operands without a derivative come first: rules capture them
    try:
        call = _with_rules(first, sum(captured), _permuted(kept, order), _permuted(names, order), tolerance, rules)
    except (NotDifferentiableError, NotInvertibleError) as e:
        raise _located_error(e, jaxpr, captured, kept, names, tolerance, rules) from None
    return reorder_operands(call, tuple([order.index(k) for k in range(len(order))]))


def _located_error(
    e: FxadError,
    jaxpr: Jaxpr,
    captured: Mask,
    kept: Mask,
    names: tuple[str, ...],
    tolerance: float,
    rules: InverseTable,
) -> FxadError:
    """Returns the error of a program that is not inverted, about an equation of the program itself. Inverts it once
    more, in a form in which the origin of each equation is known."""
    moving = tuple([a.inexact and not c for a, c in zip(jaxpr.in_avals, captured, strict=True)])
    try:
        _backward_programs(jaxpr, with_integers(jaxpr, kept, rules), moving, names, tolerance, rules, located=True)
    except (NotDifferentiableError, NotInvertibleError) as located:
        return located
    return e


def _permuted(values: tuple[T, ...], order: tuple[int, ...]) -> tuple[T, ...]:
    return tuple([values[k] for k in order])


def _with_rules(
    jaxpr: Jaxpr, n_captured: int, kept: Mask, names: tuple[str, ...], tolerance: float, rules: InverseTable
) -> Jaxpr:
    """Applies `invertible` to a program that has no derivative with respect to the first `n_captured` operands."""
    every, n = (True,) * len(jaxpr.outs), len(jaxpr.outs)
    kept = with_integers(jaxpr, kept, rules)
    moving = tuple([a.inexact and k >= n_captured for k, a in enumerate(jaxpr.in_avals)])
    linearized = linearize(jaxpr, moving)
    pulled, pushed = _backward_programs(jaxpr, kept, moving, names, tolerance, rules, located=False)
    # both programs take the sketches of the values that either of them watches
    watched = tuple(sorted({*pulled.watched, *pushed.watched}, key=attrgetter("index")))
    push = _with_sketches_of(pushed.program, pushed.watched, watched)
    pull = _with_sketches_of(_cotangents_first(pulled, n + sum(kept)), pulled.watched, watched)
    inverse = partial_inverse(jaxpr, kept, every, rules)
    inverse_rule: InverseRule | None = None
    if all([k or s for k, s in zip(kept, inverse.solved, strict=True)]):
        of_all_operands = ivjp(jaxpr, kept, every, moving, True, names, math.inf, rules, False)
        inverse_rule = InverseRule(kept, inverse.program, of_all_operands.program)
    rule = _forward(jaxpr, kept, watched), push, pull
    rule = after_checks(rule, n) if has_check(jaxpr) else rule
    if has_custom_derivatives(jaxpr) or pushed.moves_differently or pulled.moves_differently:
        rule = with_derivatives_of(jaxpr, linearized, rule)
    rules_of_call = Rules(
        jvp=(Derivative(moving, *forward_rule(jaxpr, moving, linearized)),),
        vjp=(Derivative(moving, *rule),),
        inverse=inverse_rule,
    )
    function = Function(jaxpr, n_captured, rules_of_call)
    prim = CallWithRules(function, tolerance=Lit.of(tolerance, Aval((), dtypes.float64)))
    return single_equation(prim, jaxpr.in_avals, f"invertible_{jaxpr.name}")


def _backward_programs(
    jaxpr: Jaxpr,
    kept: Mask,
    moving: Mask,
    names: tuple[str, ...],
    tolerance: float,
    rules: InverseTable,
    located: bool,
) -> tuple[CheckedProgram, CheckedProgram]:
    """Returns reverse mode and forward mode from the results."""
    pulled = ivjp(jaxpr, kept, (True,) * len(jaxpr.outs), moving, False, names, tolerance, rules, located)
    return pulled, push_from_results(jaxpr, kept, moving, names, tolerance, rules, located)


@final
@dataclass(frozen=True, slots=True, eq=False)
class CheckedProgram:
    """A program whose last operands are sketches of the values `watched` in the forward program.

    `moves_differently` is True if the derivatives of reconstructed values may differ from those of the original values.
    """

    program: Jaxpr
    watched: tuple[Var, ...] = ()
    moves_differently: bool = False


def _cotangents_first(pulled: CheckedProgram, n_known: int) -> Jaxpr:
    """Reorders the operands of an `ivjp` for a rule of reverse mode: (results and kept operands, cotangents, sketches)
    become (cotangents, results and kept operands, sketches). `n_known` counts the results and kept operands."""
    n = len(pulled.program.ins)
    sketches = n - len(pulled.watched)
    return reorder_operands(pulled.program, (*range(n_known, sketches), *range(n_known), *range(sketches, n)))


def _forward(jaxpr: Jaxpr, kept: Mask, watched: Atoms) -> Jaxpr:
    """Returns the forward program: results, then residuals, which are the results again, kept operands and sketches."""
    n, normal = len(jaxpr.outs), normal_form(jaxpr) if watched else jaxpr
    all_results = Jaxpr(normal.ins, normal.eqns, (*normal.outs, *watched), jaxpr.name)
    segments = in_segments(all_results, tuple([not k for k in kept]))
    b = Builder.resume(segments)
    sketches = [sketch(b, a) for a in segments.outs[n:]]
    return b.build([*segments.outs[:n], *segments.outs[:n], *select_by_mask(segments.ins, kept), *sketches], jaxpr.name)


def _with_sketches_of(program: Jaxpr, old: Sequence[Atom], new: Sequence[Atom]) -> Jaxpr:
    """Adds operands to a program, which it does not read: its last operands are sketches of the values in `old`, and
    become sketches of the values in `new`, which contain them."""
    n = len(program.ins) - len(old)
    types: dict[int | Atom, Aval] = {a: sketched(a.aval) for a in new}
    return rebind_operands(program, (*range(n), *new), has=(*range(n), *old), types=types)


def with_integers(jaxpr: Jaxpr, kept: Mask, rules: InverseTable) -> Mask:
    """Marks the operands to keep: those marked in `kept`, and integers and bools that the results do not determine."""
    solved = partial_inverse(jaxpr, kept, (True,) * len(jaxpr.outs), rules).solved
    return tuple([k or not (s or a.inexact) for k, s, a in zip(kept, solved, jaxpr.in_avals, strict=True)])


# ---------------------------------------------------------------------------------------------------------- on demand


@final
class _PrimalValues:
    """The values of a primal program, emitted into a builder at their first read.

    A residual of the linear program is looked up as its primal value. `name` and `labels` are the names of the program
    and of its operands, for messages.
    """

    __slots__ = ("_labels", "_name", "_plan", "_residuals", "lazy")

    def __init__(
        self, b: Builder, plan: InversionPlan, residuals: Mapping[Atom, Atom], name: str, labels: tuple[str, ...]
    ) -> None:
        self.lazy = LazyValues(b, plan, {})
        self._plan, self._residuals, self._name, self._labels = plan, residuals, name, labels

    def give(self, atoms: Sequence[Atom], values: Sequence[Atom]) -> None:
        """Adds values that are known from the start."""
        for a, value in zip(atoms, values, strict=True):
            self.lazy.env.setdefault(a, value)

    def add_inverted(self, eqn: Eqn, known: Mask, operands: Mapping[Atom, Atom]) -> None:
        """Adds the values of an equation that was inverted together with its gradient, from its results and the
        operands marked in `known`."""
        self.give(list(operands), list(operands.values()))
        self.lazy.inverted.append((tuple(operands), (*eqn.outs, *select_by_mask(eqn.ins, known))))

    def get(self, a: Atom, default: Atom, /) -> Atom:
        return self.value(self._residuals[a]) if a in self._residuals else default

    def value(self, a: Atom) -> Atom:
        """Returns a value of the primal program. Raises: NotInvertibleError if the results do not determine it."""
        if isinstance(a, Var) and not self._plan.determines(a):
            raise self._undetermined(a)
        return self.lazy.get(a)

    def _undetermined(self, v: Var) -> NotInvertibleError:
        operand = self._plan.needed(v)
        k = self._plan.graph.ins.index(operand)
        label = self._labels[k] if k < len(self._labels) else f"operand {k}"
        # a value that only the gradient computes, such as the cosine for a sine, is read by no equation of the function
        why = self._plan.why_not(v if v in self._plan.graph.readers else operand)
        return why.error("invertible", f"{label} of {self._name} is not determined by its results", REMEDY)


def _plan_from(
    primal: Jaxpr, ins: Mask, n_out: int, outs: Mask, rules: InverseTable, origins: Mapping[Atom, EqnOrigin]
) -> InversionPlan:
    given = (*select_by_mask(primal.ins, ins), *select_by_mask(primal.outs[:n_out], outs))
    return find_plan(primal, given, rules, False, origins)


def _compared_values(ctx: _StepwiseSplit, values: _PrimalValues, tolerance: float) -> list[tuple[Var, Atom]]:
    """Returns the values of the function that are reconstructed last, each with its atom in the primal program."""
    if math.isinf(tolerance):
        return []
    forward = {a: v for v, a in ctx.env.items() if isinstance(v, Var) and compared(a.aval)}
    last = [(forward[a], a) for a in values.lazy.last_reconstructed() if a in forward]
    return sorted(last, key=lambda pair: pair[0].index)


def _with_check(program: Jaxpr, n: int, start: slice, pairs: Sequence[tuple[Var, Atom]], tolerance: float) -> Jaxpr:
    """Returns the first `n` results of a program, and nan if its other results, which are reconstructions, are
    inaccurate. The sketches to compare with are further operands. The operands in `start` were known from the start."""
    if not n or not pairs:
        return Jaxpr(program.ins, program.eqns, program.outs[:n], program.name)
    b = Builder.resume(program)
    sketches = b.inputs([sketched(a.aval) for _, a in pairs])
    right = agree(b, sketches, program.outs[n:], program.ins[start], tolerance)
    return b.build(where_right(b, right, program.outs[:n]), program.name)


def _values_from_results(
    b: Builder,
    ctx: _StepwiseSplit,
    primal: Jaxpr,
    ins: Mask,
    outs: Mask,
    labels: tuple[str, ...],
    rules: InverseTable,
) -> _PrimalValues:
    """Adds operands to a builder: the results marked in `outs` and the operands marked in `ins` of a primal program.
    Returns the values of the primal program that they determine."""
    plan = _plan_from(primal, ins, len(outs), outs, rules, ctx.origins)
    values = _PrimalValues(b, plan, {v: a for a, v in ctx.residuals.items()}, primal.name, labels)
    for given in (select_by_mask(primal.outs, outs), select_by_mask(primal.ins, ins)):
        values.give(given, b.inputs([a.aval for a in given]))
    return values


@by_value
def push_from_results(
    jaxpr: Jaxpr,
    kept: Mask,
    moving: Mask,
    labels: tuple[str, ...],
    tolerance: float,
    rules: InverseTable,
    located: bool,
) -> CheckedProgram:
    """Returns forward mode from the results: (tangents of the marked operands, results, kept operands, sketches) ->
    tangents of the inexact results. `located`: see `ivjp`."""
    n, every = len(jaxpr.outs), (True,) * len(jaxpr.outs)
    form, origins = backward_form(jaxpr, located)
    ctx, normal = _StepwiseSplit.like(jaxpr), _without_inner_checks(form)
    # a split body may determine less than the whole one (a mask is computed outside the loop): these run forward
    copied = frozenset(eqns_with_ivjp(normal, _plan_from(normal, kept, n, every, rules, origins), rules))
    results = ctx.run(normal, moving, {}, origins, copied)
    inexact = [a for a in normal.outs if a.aval.inexact]
    dots = [ctx.tangents[a].var if a in ctx.tangents else Zero(a.aval).instantiate() for a in inexact]
    linear = ctx.linear.build(dots, f"linear_{jaxpr.name}")
    b = Builder()
    dots_in = b.inputs(linear.in_avals[: sum(moving)])
    values = _values_from_results(b, ctx, ctx.build(results, jaxpr.name), kept, every, labels, rules)
    residuals = [values.value(a) for a in ctx.residuals]
    pushed = b.inline(linear, [*dots_in, *residuals])
    pairs = _compared_values(ctx, values, tolerance) if pushed else []
    all_results = b.build([*pushed, *[values.value(a) for _, a in pairs]], f"push_{jaxpr.name}")
    program = _with_check(all_results, len(pushed), slice(len(dots_in), len(dots_in) + n), pairs, tolerance)
    return CheckedProgram(dce(program), tuple([v for v, _ in pairs]), _reconstruction_moves_differently(values))


@by_value
def _without_inner_checks(jaxpr: Jaxpr) -> Jaxpr:
    """Replaces calls of `invertible` by calls with the plain derivatives of their functions, in the same variables.

    Otherwise such a call, at a reconstructed value, would sketch this value and compare it with its own reconstruction.
    If the original value is 0, both are rounding errors, and their relative difference may be large. The outer check
    knows the original value.
    """
    eqns = []
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, CallWithRules):  # other functions with rules keep them
            if prim.tolerance is not None:
                prim = replace(
                    prim,
                    function=replace(
                        prim.function, body=_without_inner_checks(prim.body), rules=Rules(inverse=prim.rules.inverse)
                    ),
                )
        elif isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple(map(_without_inner_checks, prim.bodies)))
        eqns.append(eqn if prim == eqn.prim else Eqn(prim, eqn.ins, eqn.outs, eqn.source))
    return Jaxpr(jaxpr.ins, tuple(eqns), jaxpr.outs, jaxpr.name)


# ------------------------------------------------------------------------------- reconstruction and gradient together


@final
@dataclass(frozen=True, slots=True, eq=False)
class _IvjpStep:
    """An equation of the primal program that has an ivjp, and its place among the equations of the linear program."""

    place: int
    ivjp: IvjpEqn
    eqn: Eqn
    tangents_in: tuple[Tangent, ...]
    tangents_out: tuple[Tangent, ...]


@final
class _StepwiseSplit(LinearizeBuilder):
    """Linearizes a program equation by equation. The tangents of the results of equations with an ivjp are operands of
    the linear program. `steps` records these equations, and `origins` the origins of the values of the primal
    program."""

    __slots__ = ("copied", "env", "origins", "steps", "tangents")

    def run(
        self,
        jaxpr: Jaxpr,
        moving: Mask,
        fused: Mapping[Var, IvjpEqn],
        origins: Mapping[Atom, EqnOrigin],
        copied: AbstractSet[Var] = frozenset(),
    ) -> Atoms:
        """Walks the program and returns the atoms of its results. For an equation in `copied`, given by its first
        result, the results are those of a copy of the equation, which can be run backwards. `origins`, if any, are
        those of the values of the program."""
        self.copied = copied
        self.origins: dict[Atom, EqnOrigin] = {}
        self.tangents: dict[Atom, Lin] = {
            v: as_lin(self.linear.input(v.aval)) for v, m in zip(jaxpr.ins, moving, strict=True) if m
        }
        self.steps: list[_IvjpStep] = []
        env: dict[Atom, Atom] = {v: v for v in jaxpr.ins}
        for eqn in jaxpr.eqns:
            ins = substitute(eqn.ins, env)
            dots_in = [self.tangents.get(a) for a in eqn.ins]
            self.source = self.linear.source = eqn.source
            start = len(self.eqns)
            outs: Atoms
            if not any(dots_in):
                outs = self.copy(eqn, ins)
            else:
                tangents_in: tuple[Tangent, ...] = tuple([t or Zero(a.aval) for t, a in zip(dots_in, ins, strict=True)])
                origin = origins.get(eqn.outs[0], EqnOrigin(eqn))
                outs, dots = self._linearized(eqn, ins, tangents_in, fused.get(eqn.outs[0]), origin)
                self.tangents.update({v: t for v, t in zip(eqn.outs, dots, strict=True) if isinstance(t, Lin)})
            env.update(zip(eqn.outs, outs, strict=True))
            if origins:
                for e in self.eqns[start:]:
                    named = replace(origins[eqn.outs[0]], name=e.prim.name)
                    self.origins.update(dict.fromkeys(e.outs, named))
        self.env = env
        return substitute(jaxpr.outs, env)

    def _linearized(
        self, eqn: Eqn, ins: Atoms, tangents: tuple[Tangent, ...], ivjp_eqn: IvjpEqn | None, origin: EqnOrigin
    ) -> tuple[Atoms, tuple[Tangent, ...]]:
        # a tangent of a captured value: the rules of the function do not cover it, and its jvp rule raises the error
        moves = isinstance(eqn.prim, CallWithRules) and any([isinstance(t, Lin) for t in tangents[: eqn.prim.captured]])
        if ivjp_eqn is None or moves:
            try:
                outs, dots_out = eqn.prim.jvp(self, ins, tangents)
            except Exception as e:
                locate(e, origin.eqn)
                if isinstance(e, FxadError):
                    e.inside = (*origin.inside, *bodies_around(e))
                raise
            # a custom derivative may use another program than the function, and the function itself is run backwards
            itself = isinstance(eqn.prim, CallWithRules) or eqn.outs[0] in self.copied
            return (self.copy(eqn, ins) if itself else outs), dots_out
        outs = self.copy(eqn, ins)
        dots: tuple[Tangent, ...] = tuple(
            [as_lin(self.linear.input(v.aval)) if v.aval.inexact else Zero(v.aval) for v in outs]
        )
        self.steps.append(_IvjpStep(len(self.linear.eqns), ivjp_eqn, self.eqns[-1], tangents, dots))
        return outs, dots


@by_value
def ivjp(
    jaxpr: Jaxpr,
    ins: Mask,
    outs: Mask,
    moving: Mask,
    returns_operands: bool,
    labels: tuple[str, ...],
    tolerance: float,
    rules: InverseTable,
    located: bool,
) -> CheckedProgram:
    """Returns the program that inverts a program and propagates cotangents.

    (results marked in `outs`, operands marked in `ins`, cotangents of the inexact results, sketches) -> (if
    `returns_operands`, the other operands; cotangents of the operands marked in `moving`). `located`: errors name
    equations of the program itself, not of its normal form, and the bodies that contain them.

    Raises: NotInvertibleError that names the equation.
    """
    (normal, origins), n = backward_form(jaxpr, located), len(jaxpr.outs)
    fused = eqns_with_ivjp(normal, _plan_from(normal, ins, n, outs, rules, origins), rules)
    ctx = _StepwiseSplit.like(normal)
    results = ctx.run(normal, moving, fused, origins)
    primal = ctx.build(results, jaxpr.name)
    b = TransposeBuilder()
    values = _values_from_results(b, ctx, primal, ins, outs, labels, rules)
    bars: dict[Atom, Atom] = {}
    for a in normal.outs:
        if a.aval.inexact:
            ct = b.input(a.aval)
            if a in ctx.tangents:
                accumulate(b, bars, ctx.tangents[a].var, ct)
    inner: list[bool] = []
    _walk_back(b, ctx, values, bars, partial(_ivjp_of_body, rules, located, inner), rules)
    others = [values.value(v) for v, known in zip(primal.ins, ins, strict=True) if returns_operands and not known]
    tangents = [ctx.tangents[v].var for v in select_by_mask(normal.ins, moving)]
    cotangents = instantiate([bars.get(t) or Zero(t.aval) for t in tangents])
    pairs = _compared_values(ctx, values, tolerance) if any([t in bars for t in tangents]) else []
    backward = dce(b.build([*others, *cotangents, *[values.value(a) for _, a in pairs]], f"ivjp_{jaxpr.name}"))
    if not returns_operands:
        kept_operands = range(sum(outs), sum(outs) + sum(ins))
        freed_after_use = tuple([k not in kept_operands for k in range(len(backward.ins))])
        backward = in_segments(backward, freed_after_use)
    n_results = len(others) + len(cotangents)
    program = _with_check(backward, n_results, slice(sum(outs)), pairs, tolerance)
    with_rules = [step.eqn for step in ctx.steps if isinstance(step.eqn.prim, CallWithRules)]
    differs = any(inner) or any(map(may_move_differently, with_rules)) or _reconstruction_moves_differently(values)
    return CheckedProgram(program, tuple([v for v, _ in pairs]), differs)


def _reconstruction_moves_differently(values: _PrimalValues) -> bool:
    return any([may_move_differently(eqn) for step in values.lazy.steps for eqn in step.inverts])


def _ivjp_of_body(
    rules: InverseTable, located: bool, inner: list[bool], body: Jaxpr, ins: Mask, outs: Mask, moving: Mask
) -> Jaxpr:
    """Returns the ivjp of a body. Appends its `moves_differently` to `inner`."""
    backward = ivjp(body, ins, outs, moving, True, (), math.inf, rules, located)
    inner.append(backward.moves_differently)
    return backward.program


def _walk_back(
    b: TransposeBuilder,
    ctx: _StepwiseSplit,
    values: _PrimalValues,
    bars: dict[Atom, Atom],
    recur: Ivjp,
    rules: InverseTable,
) -> None:
    """Emits the adjoint of the linear program, and the ivjp of equations at their places in it."""
    linear = ctx.linear.eqns
    residuals = set(ctx.residuals.values())
    reached: set[Atom] = {v for v in ctx.linear.ins if v not in residuals}
    reached.update([v for e in linear for v in e.outs])
    steps = list(ctx.steps)
    for k in range(len(linear), -1, -1):
        while steps and steps[-1].place == k:
            step = steps.pop()
            eqn = step.eqn
            cts = [bars.pop(t.var, None) if isinstance(t, Lin) else None for t in step.tangents_out]
            if any(cts):
                b.source = eqn.source
                inexact_cts = [
                    ct or Zero(v.aval).instantiate() for ct, v in zip(cts, eqn.outs, strict=True) if v.aval.inexact
                ]
                moving = tuple([isinstance(t, Lin) for t in step.tangents_in])
                operands, operand_bars = step.ivjp.emit(b, eqn, values.value, inexact_cts, moving, recur, rules)
                values.add_inverted(eqn, step.ivjp.known, operands)
                for t, bar in zip([t for t in step.tangents_in if isinstance(t, Lin)], operand_bars, strict=True):
                    accumulate(b, bars, t.var, bar)
        if k:
            backward_eqn(b, linear[k - 1], reached, values, bars)
