"""Second derivatives of what runs backwards, where functions have derivatives of their own.

A reconstruction undoes the function itself. So it moves as the function does, and a derivative that is not the
function's own (a straight-through or a scaled one, say) would be undone by another: the reconstructed operand would not
move as the operand does. There the derivatives of a reconstructing program are stated: they are those of the plain
one, over the operands. These are residuals that only such a derivative reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fxad.core.builder import Builder, rewrite
from fxad.core.dce import dce, prune
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, LinearizedBody, Primitive, Zero, distinct_jaxprs
from fxad.primitives.control.bodies import instantiate_linear_outs, select_by_mask, with_operands
from fxad.primitives.control.effects import without_effects
from fxad.primitives.custom import CustomCall
from fxad.primitives.custom_rules import Function, InverseRule, Rules
from fxad.primitives.elementwise.convert import StopGradient
from fxad.primitives.linear_call import LinearCall, drop_unused_residuals
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.ad.transpose_by_basis import as_linear_call

Rule: TypeAlias = tuple[Jaxpr, Jaxpr, Jaxpr]


def has_own_rules(jaxpr: Jaxpr) -> bool:
    """Whether a program uses a function whose derivatives may be others than its own, its bodies included. Those that
    `invertible` states are the function's own.

    Where it is differentiated, the forward program of the rule takes its place: results move as that does.
    """
    return _inside(jaxpr, _own_rule)


def bends(eqn: Eqn) -> bool:
    """Whether what an equation gives that is run backwards may move otherwise than its operand: its derivative may be
    another than that of the function, or its inverse be a program of the user's."""
    return _has(eqn, _own_inverse)


def _has(eqn: Eqn, such: Callable[[Primitive], bool]) -> bool:
    prim = eqn.prim
    if isinstance(prim, CustomCall) and prim.tolerance is not None:
        return _inside(prim.body, such)
    return such(prim) or (isinstance(prim, HigherOrder) and any([_inside(body, such) for body in prim.bodies]))


@by_value
def _inside(jaxpr: Jaxpr, such: Callable[[Primitive], bool]) -> bool:
    return any([_has(eqn, such) for eqn in jaxpr.eqns])


def _own_rule(prim: Primitive) -> bool:
    # only functions with rules have a derivative of the user's
    return isinstance(prim, CustomCall) and prim.rules.has_derivative


def _own_inverse(prim: Primitive) -> bool:
    given = isinstance(prim, CustomCall) and isinstance(prim.rules.inverse, InverseRule)
    return given or _own_rule(prim) or isinstance(prim, LinearCall | StopGradient)


def without_derivative(jaxpr: Jaxpr, kept: tuple[bool, ...]) -> tuple[bool, ...]:
    """The operands among those marked that the program has no derivative with respect to, where it has one with respect
    to others: a function with rules inside closes over them, say.

    Raises: NotDifferentiableError where others have none.
    """
    none, moving = (False,) * len(jaxpr.ins), tuple([a.inexact for a in jaxpr.in_avals])
    try:
        linearize(jaxpr, moving)
    except NotDifferentiableError:
        fixed = list(none)
        for k, of in enumerate(zip(moving, kept, strict=True)):
            if all(of):
                try:
                    linearize(jaxpr, (*none[:k], True, *none[k + 1 :]))
                except NotDifferentiableError:
                    fixed[k] = True
        rest = tuple([m and not f for m, f in zip(moving, fixed, strict=True)])
        if not any(rest):
            raise
        linearize(jaxpr, rest)
        return tuple(fixed)
    return none


def forward_rule(jaxpr: Jaxpr, moving: tuple[bool, ...], through: LinearizedBody) -> tuple[Jaxpr, Jaxpr]:
    """The rule (forward, push) of forward mode: that of the program as it is linearized in the operands marked.

    Where a function has a rule for tangents beside one for cotangents, forward mode takes that, as it does elsewhere:
    the operands are residuals, and the compiler merges what both programs compute.
    """
    inexact = tuple([a.inexact for a in jaxpr.out_avals])
    if not _inside(jaxpr, _two_rules):
        return through.primal, instantiate_linear_outs(through, inexact)
    n, ins = len(jaxpr.outs), jaxpr.in_avals
    both, nonzero = jvp(without_effects(jaxpr), moving)
    b = Builder()
    dots, given = b.inputs(select_by_mask(ins, moving)), b.inputs(ins)
    found = iter(b.inline(both, [*given, *dots])[n:])
    moved = [next(found) if nz else Zero(a).instantiate() for nz, a in zip(nonzero, jaxpr.out_avals, strict=True)]
    push = dce(b.build(select_by_mask(moved, inexact), f"push_{jaxpr.name}"))
    return Jaxpr(jaxpr.ins, jaxpr.eqns, (*jaxpr.outs, *jaxpr.ins), jaxpr.name), push


def _two_rules(prim: Primitive) -> bool:
    return isinstance(prim, CustomCall) and bool(prim.rules.jvp and prim.rules.vjp)


def moving_as(jaxpr: Jaxpr, through: LinearizedBody, rule: Rule) -> Rule:
    """A rule (forward, push, pull) of a program, whose own derivatives are those of the program as it is linearized.

    Rule: the operands are further residuals. Values are those of the rule given; only derivatives read the operands:
          `drop_derivative_rules` leaves them out again.
    """
    forward, push, pull = rule
    n, ins = len(jaxpr.outs), jaxpr.in_avals
    inexact = tuple([a.inexact for a in jaxpr.out_avals])
    known = forward.out_avals[n:]  # the results once more come first
    b = Builder()
    given = b.inputs(ins)
    found = b.inline(forward, given)
    outs = b(_results(through, found[:n], ins), *found[:n], *given)
    ahead = b.build([*outs, *outs, *found[2 * n :], *given], forward.name)
    linear = instantiate_linear_outs(through, inexact)
    n_dots = len(linear.ins) - through.n_res
    adjoint = transpose(linear, (True,) * n_dots + (False,) * through.n_res)
    primal = without_effects(through.primal)
    both = [_moved(program, _plain(of, primal, n, known), ins) for program, of in ((push, linear), (pull, adjoint))]
    return ahead, as_linear_call(both[0], both[1], n_dots), as_linear_call(both[1], both[0], sum(inexact))


def _results(through: LinearizedBody, outs: Sequence[Atom], ins: tuple[Aval, ...]) -> CustomCall:
    """(results, operands) -> the results. They move with the operands, as those of the linearized program do."""
    n, primal = len(outs), without_effects(through.primal)
    b = Builder()
    same = b.build([*b.inputs([a.aval for a in outs]), *b.inputs(ins)][:n], primal.name)
    inner = Jaxpr(primal.ins, primal.eqns, primal.outs[:n], primal.name)
    plain = with_operands(inner, (False,) * n + (True,) * len(ins), same.in_avals, (True,) * len(same.ins))
    return _moving(same, plain)


def _plain(of: Jaxpr, primal: Jaxpr, n: int, known: tuple[Aval, ...]) -> Jaxpr:
    """(tangents or cotangents, what is stored, operands) -> what a linear program makes of them at the operands."""
    b = Builder()
    lins = b.inputs(of.in_avals[: len(of.ins) - len(primal.outs) + n])
    b.inputs(known)
    residuals = b.inline(primal, b.inputs(primal.in_avals))[n:]
    return b.build(b.inline(of, [*lins, *residuals]), of.name)


def _moved(program: Jaxpr, plain: Jaxpr, ins: tuple[Aval, ...]) -> Jaxpr:
    """A program of tangents or cotangents and of what is stored, over the operands too, which moves as `plain` does."""
    every = len(plain.ins)
    has = (True,) * (every - len(ins)) + (False,) * len(ins)
    b = Builder()
    prim = _moving(with_operands(program, has, plain.in_avals, (True,) * every), plain)
    return b.build(b(prim, *b.inputs(plain.in_avals)), program.name)


def _moving(body: Jaxpr, plain: Jaxpr) -> CustomCall:
    """A program with the derivatives of another, which need not have any."""
    return CustomCall(Function(body, rules=Rules(derivative_of=plain)))


# ------------------------------------------------------------------------------------------------------- as they run


@by_value
def drop_derivative_rules(jaxpr: Jaxpr, turned: bool = False) -> Jaxpr:
    """The program without what only derivatives of it read: for one that is not differentiated any more. One that is
    linear may still be `turned`: transposed.

    Rule: an equation whose value needs fewer operands than its rules has no rules any more.
    """
    if not any([_shadowed(e) for body in distinct_jaxprs(jaxpr) for e in body.eqns]):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        prim = eqn.prim
        # a linear function keeps its maps, which a transpose reads; without their derivative rules
        if turned and isinstance(prim, LinearCall):
            maps, needed = drop_unused_residuals(
                [drop_derivative_rules(body) for body in prim.bodies], prim.linear_bodies
            )
            prim, ins = (
                prim.with_bodies(tuple(maps)),
                (*ins[: prim.n_linear], *select_by_mask(ins[prim.n_linear :], needed)),
            )
        # functions with rules: only these have a value that needs fewer operands than the rules
        elif isinstance(prim, CustomCall | LinearCall):
            value, needed = prune(drop_derivative_rules(prim.value), (True,) * len(eqn.outs))
            if not all(needed) or value != prim.value:
                prim, ins = CustomCall(Function(value)), select_by_mask(ins, needed)
        elif isinstance(prim, HigherOrder):
            prim = prim.with_bodies(tuple([drop_derivative_rules(body, turned) for body in prim.bodies]))
        return b.copy(eqn, ins, prim)

    return dce(rewrite(jaxpr, rule))


def _shadowed(eqn: Eqn) -> bool:
    prim = eqn.prim
    # not isinstance: this is asked of every equation
    if type(prim) is not CustomCall and type(prim) is not LinearCall:
        return False
    return not all(prune(prim.value, (True,) * len(eqn.outs))[1])
