"""Derivatives of a program, at values that are reconstructed from its results.

    pull   cotangents, results, kept operands, sketches -> cotangents           `pull_from_results`
    push   tangents, results, kept operands, sketches -> tangents               `push_from_results`
    ivjp   results, known operands, cotangents -> other operands, cotangents    `ivjp`

Each is made in three steps:

1. The normal form of the program is split into a primal and a linear program (`CutLinearization`). The linear program
   reads residuals, which are values of the primal program.
2. The solver finds a plan that computes the values of the primal program from the known results and operands.
3. The linear program (push) or its transpose (pull, ivjp) is emitted. Each residual is emitted at its first read, by
   the plan (`_PrimalValues`). So reconstruction and cotangents proceed together.

An equation with a body would be inverted as a whole, and then transposed as a whole. So the linear program is cut at
such an equation (`Cut`), and the pull calls the ivjp of the equation there: one program that does both.

An example: w is known, x is not.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> @fx.jit
    ... def shifted(a, w):
    ...     return a + fnp.sin(w)
    >>> def f(x, w):
    ...     return shifted(fnp.exp(x), w)
    >>> aval = fx.Spec((4,), "float32")
    >>> jaxpr = fx.trace(f, aval, aval).jaxpr
    >>> print(str(jaxpr).partition("main")[2], end="")
     @f(%arg0: f32[4], %arg1: f32[4]) -> (f32[4]) {
      %0: f32[4] = exp %arg0
      %1: f32[4] = call[body=@shifted] %0, %arg1
      return %1
    }

The linear program is `x_dot * %0`, up to the cut at the call. The pull takes the cotangent of the result, the result
and w. It starts at the cut: the ivjp of the call returns `%0` and the cotangents of `%0` and w. Then it transposes the
product, whose residual `%0` is known now.

    >>> from fxad.transforms.inversion.derivatives_from_results import BackwardRequest, pull_from_results
    >>> from fxad.transforms.inversion.rules import INVERSE_RULES
    >>> request = BackwardRequest(
    ...     known_outs=(True,), known_ins=(False, True), perturbed=(True, True), rules=INVERSE_RULES
    ... )
    >>> print(pull_from_results(jaxpr, request).program, end="")
    fn @ivjp_shifted(%arg0: f32[4], %arg1: f32[4], %arg2: f32[4]) -> (f32[4], f32[4], f32[4]) {
      %0: f32[4] = cos %arg1
      %1: f32[4] = mul %arg2, %0
      %2: f32[4] = sin %arg1
      %3: f32[4] = sub %arg0, %2
      return %3, %arg2, %1
    }
    <BLANKLINE>
    main @ivjp_f(%arg0: f32[4], %arg1: f32[4], %arg2: f32[4]) -> (f32[4], f32[4]) {
      %0: f32[4], %1: f32[4], %2: f32[4] = call[body=@ivjp_shifted] %arg1, %arg2, %arg0
      %3: f32[4] = mul %1, %0
      return %3, %2
    }
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.flags import select_by_flags
from fxad.core.memo import by_value
from fxad.errors import NotInvertibleError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Eqn,
    Flags,
    HigherOrder,
    Jaxpr,
    Lin,
    Var,
    Zero,
    instantiated,
)
from fxad.primitives.custom import CallWithRules, has_derived_rules
from fxad.primitives.custom_rules import Rules
from fxad.transforms.ad.transpose import TransposeBuilder, accumulate, backward_eqn
from fxad.transforms.inversion.cut_linearization import Cut, CutLinearization
from fxad.transforms.inversion.normal_form import backward_form
from fxad.transforms.inversion.plans import InversionPlan, LazyValues
from fxad.transforms.inversion.reconstruction_check import agree, compared, nan_unless, sketched
from fxad.transforms.inversion.reversible_adjoint import IvjpCtx, IvjpEqn, eqns_with_ivjp
from fxad.transforms.inversion.rules.contract import InverseTable
from fxad.transforms.inversion.second_order import may_move_differently
from fxad.transforms.inversion.solver import find_plan
from fxad.transforms.locate import EqnOrigin
from fxad.transforms.memory.segments import in_segments

REMEDY: Final = "name the argument in keep, close over the value, or give the function a custom_inverse"


@final
@dataclass(frozen=True, slots=True)
class BackwardRequest:
    """A request to run a program backwards: the values that are known, and the derivatives to compute.

    `known_outs`, `known_ins`: masks of the results and operands from which it starts. `perturbed`: the mask of the
    operands that have tangents and cotangents. `labels`: the names of the operands in messages. `tolerance`: see
    `invertible`; infinity means no sketches. `located`: errors name equations of the program itself, not of its normal
    form, and the bodies that contain them.
    """

    known_outs: Flags
    known_ins: Flags
    perturbed: Flags
    rules: InverseTable
    labels: tuple[str, ...] = ()
    tolerance: float = math.inf
    located: bool = False

    def known_values(self, jaxpr: Jaxpr) -> Atoms:
        """Return the known results and operands of a program."""
        return (*select_by_flags(jaxpr.outs, self.known_outs), *select_by_flags(jaxpr.ins, self.known_ins))

    def known_avals(self, jaxpr: Jaxpr) -> list[Aval]:
        """Return the types of the known results and operands of a program."""
        return [a.aval for a in self.known_values(jaxpr)]

    def plan(self, jaxpr: Jaxpr, origins: Mapping[Atom, EqnOrigin]) -> InversionPlan:
        """Return how to compute the values of a program that the known ones determine."""
        known_ins, known_outs = select_by_flags(jaxpr.ins, self.known_ins), select_by_flags(jaxpr.outs, self.known_outs)
        return find_plan(jaxpr, (*known_ins, *known_outs), self.rules, origins=origins)


@final
@dataclass(frozen=True, slots=True, eq=False)
class BackwardProgram:
    """A program that starts from results. Its last operands are sketches of the values `compared` of the normal form.

    `moves_differently` is True if the derivatives of reconstructed values may differ from those of the original values.
    """

    program: Jaxpr
    compared: tuple[Var, ...] = ()
    moves_differently: bool = False


# ------------------------------------------------------------------------------------------------ the three programs


@by_value
def pull_from_results(jaxpr: Jaxpr, request: BackwardRequest) -> BackwardProgram:
    """Return reverse mode from the results: (cotangents of the inexact results, known results, known operands,
    sketches) -> cotangents of the operands marked in `perturbed`.

    Raises: NotInvertibleError that names the equation.
    """
    b = TransposeBuilder()
    cts = b.inputs([a for a in jaxpr.out_avals if a.inexact])
    transposed = _transpose_from_results(b, jaxpr, request, b.inputs(request.known_avals(jaxpr)), cts)
    pairs = [] if transposed.is_zero else _compared_values(transposed.linearized, transposed.values, request.tolerance)
    reconstructed = [transposed.values.value(a) for _, a in pairs]
    program = dce(b.build([*transposed.cotangents, *reconstructed], f"ivjp_{jaxpr.name}"))
    end_of_results = len(cts) + sum(request.known_outs)
    freed_after_use = tuple([k < end_of_results for k in range(len(program.ins))])  # the known operands are kept
    program = in_segments(program, freed_after_use)
    checked = _with_check(program, program.ins[len(cts) : end_of_results], pairs, request.tolerance)
    return BackwardProgram(checked, tuple([v for v, _ in pairs]), transposed.moves_differently)


@by_value
def push_from_results(jaxpr: Jaxpr, request: BackwardRequest) -> BackwardProgram:
    """Return forward mode from the results: (tangents of the operands marked in `perturbed`, known results, known
    operands, sketches) -> tangents of the inexact results.

    Raises: NotInvertibleError that names the equation.
    """
    form, origins = backward_form(jaxpr, request.located)
    normal = _without_inner_checks(form)
    # Linearization splits bodies. A split body may determine less than the whole one: a mask is no longer recognised if
    # it is computed outside of a loop. So whole equations are inverted. The split ones run forward, for residuals.
    inverted_whole = frozenset(eqns_with_ivjp(normal, request.plan(normal, origins), request.rules))
    linearized = CutLinearization.of(normal, request.perturbed, origins, inverted_whole=inverted_whole)
    inexact = [a for a in normal.outs if a.aval.inexact]
    out_tangents = [
        linearized.tangents[a].var if a in linearized.tangents else Zero(a.aval).instantiate() for a in inexact
    ]
    linear = linearized.linear.build(out_tangents, f"linear_{jaxpr.name}")
    b = Builder()
    tangents = b.inputs(linear.in_avals[: sum(request.perturbed)])
    known_atoms = b.inputs(request.known_avals(jaxpr))
    values = _PrimalValues.of(b, linearized, request, known_atoms)
    residuals = [values.value(a) for a in linearized.residuals]
    pushed = b.inline(linear, [*tangents, *residuals])
    pairs = _compared_values(linearized, values, request.tolerance) if pushed else []
    program = b.build([*pushed, *[values.value(a) for _, a in pairs]], f"push_{jaxpr.name}")
    checked = dce(_with_check(program, known_atoms[: sum(request.known_outs)], pairs, request.tolerance))
    return BackwardProgram(checked, tuple([v for v, _ in pairs]), values.move_differently)


@by_value
def ivjp(jaxpr: Jaxpr, request: BackwardRequest) -> BackwardProgram:
    """Return the program that inverts a program and propagates cotangents: (known results, known operands, cotangents
    of the inexact results) -> (other operands, cotangents of the operands marked in `perturbed`).

    It has no sketches: the program around it compares what it reconstructs.

    Raises: NotInvertibleError that names the equation.
    """
    b = TransposeBuilder()
    known_atoms = b.inputs(request.known_avals(jaxpr))
    cts = b.inputs([a for a in jaxpr.out_avals if a.inexact])
    transposed = _transpose_from_results(b, jaxpr, request, known_atoms, cts)
    operands = zip(transposed.linearized.primal.ins, request.known_ins, strict=True)
    others = [transposed.values.value(v) for v, is_known in operands if not is_known]
    program = dce(b.build([*others, *transposed.cotangents], f"ivjp_{jaxpr.name}"))
    return BackwardProgram(program, moves_differently=transposed.moves_differently)


# --------------------------------------------------------------------------------------------------- the normal form


@by_value
def _without_inner_checks(jaxpr: Jaxpr) -> Jaxpr:
    """Replace calls of `invertible` by calls with the plain derivatives of their functions, in the same variables.

    Otherwise such a call, at a reconstructed value, would sketch this value and compare it with its own reconstruction.
    If the original value is 0, both are rounding errors, and their relative difference may be large. The outer check
    knows the original value.
    """
    eqns = []
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, CallWithRules):  # other functions with rules keep them
            if has_derived_rules(prim):
                rules = Rules(of_body=True, further=prim.rules.further)
                body = _without_inner_checks(prim.body)
                prim = replace(prim, function=replace(prim.function, body=body, rules=rules))
        elif isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple(map(_without_inner_checks, prim.bodies)))
        eqns.append(eqn if prim == eqn.prim else Eqn(prim, eqn.ins, eqn.outs, eqn.source))
    return Jaxpr(jaxpr.ins, tuple(eqns), jaxpr.outs, jaxpr.name)


# ----------------------------------------------------------------------------------------- values of the primal program


@final
class _PrimalValues:
    """The values of a primal program, emitted into a builder at their first read.

    A residual of the linear program is looked up as its primal value. `labels` are the names of the operands of the
    program, for messages.
    """

    __slots__ = ("_labels", "_plan", "_residuals", "lazy")

    def __init__(self, b: Builder, plan: InversionPlan, linearized: CutLinearization, labels: tuple[str, ...]) -> None:
        self.lazy = LazyValues(b, plan, {})
        operands = range(len(labels), len(linearized.primal.ins))
        self._plan, self._labels = plan, (*labels, *[f"operand {k} of {linearized.primal.name}" for k in operands])
        self._residuals: dict[Atom, Atom] = {v: a for a, v in linearized.residuals.items()}

    @staticmethod
    def of(
        b: Builder, linearized: CutLinearization, request: BackwardRequest, known_atoms: Sequence[Atom]
    ) -> _PrimalValues:
        """Return the values that the known results and operands determine. These have the atoms `known_atoms` in
        `b`."""
        values = _PrimalValues(b, request.plan(linearized.primal, linearized.origins), linearized, request.labels)
        values.add(request.known_values(linearized.primal), known_atoms)
        return values

    def add(self, values: Sequence[Atom], atoms: Sequence[Atom]) -> None:
        """Add values of the program that are known, with their atoms in the builder."""
        for a, atom in zip(values, atoms, strict=True):
            self.lazy.env.setdefault(a, atom)

    def add_inverted(self, inverted: IvjpEqn, operands: Mapping[Atom, Atom]) -> None:
        """Add the operands that the ivjp of an equation reconstructed."""
        eqn = inverted.eqn
        self.add(list(operands), list(operands.values()))
        self.lazy.inverted.append((tuple(operands), (*eqn.outs, *select_by_flags(eqn.ins, inverted.known_ins))))

    def get(self, a: Atom, default: Atom, /) -> Atom:
        return self.value(self._residuals[a]) if a in self._residuals else default

    def value(self, a: Atom) -> Atom:
        """Return a value of the primal program. Raises: NotInvertibleError if the results do not determine it."""
        if isinstance(a, Var) and not self._plan.determines(a):
            raise self._undetermined(a)
        return self.lazy.get(a)

    def _undetermined(self, v: Var) -> NotInvertibleError:
        operand = self._plan.undetermined_operand(v)
        label = self._labels[self._plan.graph.ins.index(operand)]
        # a value that only the gradient computes, such as the cosine for a sine, is read by no equation of the function
        why = self._plan.why_not(v if v in self._plan.graph.readers else operand)
        return why.error("invertible", f"{label} is not determined by its results", REMEDY)

    @property
    def move_differently(self) -> bool:
        """Is True if the derivatives of reconstructed values may differ from those of the original values."""
        return any([may_move_differently(eqn) for step in self.lazy.steps for eqn in step.inverts])


# ----------------------------------------------------------------------------------- the transpose of a linear program


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Transposed:
    """The transpose of a linear program in a builder. `cotangents` are those of the operands; `is_zero` is True if all
    of them are zero. `bodies` are the ivjp of bodies that it calls."""

    linearized: CutLinearization
    values: _PrimalValues
    bodies: Sequence[BackwardProgram]
    cotangents: Sequence[Atom]
    is_zero: bool

    @property
    def moves_differently(self) -> bool:
        """Is True if the derivatives of reconstructed values may differ from those of the original values."""
        with_rules = [
            cut.ivjp_eqn.eqn for cut in self.linearized.cuts if isinstance(cut.ivjp_eqn.eqn.prim, CallWithRules)
        ]
        return (
            any([body.moves_differently for body in self.bodies])
            or any(map(may_move_differently, with_rules))
            or self.values.move_differently
        )


def _transpose_from_results(
    b: TransposeBuilder, jaxpr: Jaxpr, request: BackwardRequest, known_atoms: Sequence[Atom], cts: Sequence[Atom]
) -> _Transposed:
    """Emit the transpose of the linear program of a program. `known_atoms` are those of its known results and
    operands, `cts` the cotangents of its inexact results."""
    normal, origins = backward_form(jaxpr, request.located)
    with_ivjp = eqns_with_ivjp(normal, request.plan(normal, origins), request.rules)
    linearized = CutLinearization.of(normal, request.perturbed, origins, with_ivjp=with_ivjp)
    values = _PrimalValues.of(b, linearized, request, known_atoms)
    bodies: list[BackwardProgram] = []

    def ivjp_of_body(body: Jaxpr, known_ins: Flags, known_outs: Flags, perturbed: Flags) -> Jaxpr:
        bodies.append(
            ivjp(body, BackwardRequest(known_outs, known_ins, perturbed, request.rules, located=request.located))
        )
        return bodies[-1].program

    ct_env: dict[Atom, Atom] = {}
    for a, ct in zip([a for a in normal.outs if a.aval.inexact], cts, strict=True):
        if a in linearized.tangents:
            accumulate(b, ct_env, linearized.tangents[a].var, ct)
    _transpose_cut(b, linearized, values, ct_env, IvjpCtx(b, values.value, ivjp_of_body, request.rules))
    tangents = [linearized.tangents[v].var for v in select_by_flags(normal.ins, request.perturbed)]
    cotangents = instantiated([ct_env.get(t) or Zero(t.aval) for t in tangents])
    return _Transposed(linearized, values, bodies, cotangents, not any([t in ct_env for t in tangents]))


def _transpose_cut(
    b: TransposeBuilder, linearized: CutLinearization, values: _PrimalValues, ct_env: dict[Atom, Atom], ctx: IvjpCtx
) -> None:
    """Emit the adjoint of the linear program from its last equation to the first, and the ivjp of equations at the
    cuts."""
    linear = linearized.linear.eqns
    residuals = set(linearized.residuals.values())
    linear_values: set[Atom] = {v for v in linearized.linear.ins if v not in residuals}
    linear_values.update([v for e in linear for v in e.outs])
    cuts = list(linearized.cuts)
    for k in range(len(linear), -1, -1):
        while cuts and cuts[-1].place == k:
            _emit_ivjp(b, cuts.pop(), values, ct_env, ctx)
        if k:
            backward_eqn(b, linear[k - 1], linear_values, values, ct_env)


def _emit_ivjp(b: TransposeBuilder, cut: Cut, values: _PrimalValues, ct_env: dict[Atom, Atom], ctx: IvjpCtx) -> None:
    """Emit the ivjp of an equation, if its results have cotangents. Add the operands that it reconstructs to the
    values, and the cotangents of its operands to `ct_env`."""
    eqn = cut.ivjp_eqn.eqn
    popped = [ct_env.pop(t.var, None) if isinstance(t, Lin) else None for t in cut.tangents_out]
    if not any(popped):
        return
    b.source = eqn.source
    cts = [ct or Zero(v.aval).instantiate() for ct, v in zip(popped, eqn.outs, strict=True) if v.aval.inexact]
    results = ctx.emit(cut.ivjp_eqn, cts)
    values.add_inverted(cut.ivjp_eqn, results.operands)
    for t, ct in zip([t for t in cut.tangents_in if isinstance(t, Lin)], results.cotangents, strict=True):
        accumulate(b, ct_env, t.var, ct)


# ------------------------------------------------------------------------------------------- checks of reconstructions


def _compared_values(linearized: CutLinearization, values: _PrimalValues, tolerance: float) -> list[tuple[Var, Atom]]:
    """Return the values of the function that are reconstructed last, each with its atom in the primal program."""
    if math.isinf(tolerance):
        return []
    of_function = {a: v for v, a in linearized.atoms.items() if isinstance(v, Var) and compared(a.aval)}
    reconstructed_last = [(of_function[a], a) for a in values.lazy.last_reconstructed() if a in of_function]
    return sorted(reconstructed_last, key=lambda pair: pair[0].index)


def _with_check(program: Jaxpr, results: Atoms, pairs: Sequence[tuple[Var, Atom]], tolerance: float) -> Jaxpr:
    """Return a program that checks its last results, which are reconstructions of the values `pairs`. The others are
    nan if these are inaccurate. Further operands are the sketches to compare with. `results` are the operands of the
    program that are results of the function."""
    n = len(program.outs) - len(pairs)
    if not n or not pairs:
        return program.with_outs(program.outs[:n])
    b = Builder.resume(program)
    sketches = b.inputs([sketched(a.aval) for _, a in pairs])
    accurate = agree(b, sketches, program.outs[n:], results, tolerance)
    return b.build(nan_unless(b, accurate, program.outs[:n]), program.name)
