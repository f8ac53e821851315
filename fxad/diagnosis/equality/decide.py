"""The decision whether two programs are equal: by one normal form, or in finite fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from fxad import dtypes
from fxad.core.memo import by_value
from fxad.diagnosis.equality.differences import MOVES, difference, difference_in_bits
from fxad.diagnosis.equality.domain import ExactValue, ProofDomain, Symbolic
from fxad.diagnosis.equality.evaluate import UndecidedError, evaluate, values_and_effects
from fxad.diagnosis.equality.field import MOST
from fxad.diagnosis.equality.verdict import (
    OperandArrays,
    Proof,
    Question,
    Unknown,
    Verdict,
    bytes_differ,
)
from fxad.ir import Eqn, Jaxpr, distinct_jaxprs, source_text
from fxad.primitives.check import Check
from fxad.support.progress import Progress
from fxad.transforms import cse, dce, inline, simplify

ERROR_BITS: Final = 60  # a proof errs with probability at most 2^-60
_POINTS: Final = 4


@by_value
def bitwise_normal_form(jaxpr: Jaxpr) -> Jaxpr:
    """Return a program with the same bits, without calls, common subexpressions, dead equations."""
    return dce(cse(simplify(inline(jaxpr))))


def decide(question: Question, *, bits: bool = False) -> Verdict:
    """Decide whether two programs with operands and results of the same types are equal."""
    of = "bits" if bits else "real functions"
    left, right = question.programs
    if _same_values(*question.bound) and (left is right or _have_one_form(left, right)):
        return Proof("identity", of, float("inf"))
    same = _same_expressions(question, bits, exact_constants=False)
    if isinstance(same, Unknown) and not bits:
        # `x * (3 * 0.1)` and `x * 3 * 0.1` are equal if constants are combined exactly, and not as they are rounded
        exactly = _same_expressions(question, bits, exact_constants=True)
        same = exactly if isinstance(exactly, Proof) else same
    if isinstance(same, Proof):
        return same
    different = difference_in_bits(question) if bits else difference(question)
    return same if different is None else different


def _have_one_form(left: Jaxpr, right: Jaxpr) -> bool:
    """Return True if two programs have one normal form. That of a program with a check that nothing reads does not
    have the check, which fails where the program runs."""
    if bitwise_normal_form(left) is not bitwise_normal_form(right):
        return False
    return all([_checks(cse(inline(p))) == _checks(bitwise_normal_form(p)) for p in (left, right)])


def _checks(jaxpr: Jaxpr) -> int:
    return len([None for body in distinct_jaxprs(jaxpr) for eqn in body.eqns if isinstance(eqn.prim, Check)])


def _same_values(left: OperandArrays, right: OperandArrays) -> bool:
    return len(left) == len(right) and all(
        [
            x.dtype == y.dtype and x.shape == y.shape and not bytes_differ(x, y).any()
            for x, y in zip(left, right, strict=True)
        ]
    )


def _same_expressions(question: Question, bits: bool, exact_constants: bool) -> Proof | Unknown:
    """Evaluate both programs in finite fields."""
    left, right = question.programs
    given = tuple([k for k, x in enumerate(question.known) if x is not None])
    points = _POINTS
    while True:
        domain = ProofDomain(points, question.field_seed, interpreted=not bits, exact_constants=exact_constants)
        pairs = enumerate(zip(question.avals, question.known, strict=True))
        args: list[ExactValue] = [domain.variable(k, a) if x is None else x for k, (a, x) in pairs]
        operands = question.operands(args)
        try:
            with Progress("comparing programs", len(left.eqns) + len(right.eqns), " equations") as bar:
                ours, our_effects = values_and_effects(domain, left, operands[0], lambda *_: bar.step())
                theirs, their_effects = values_and_effects(domain, right, operands[1], lambda *_: bar.step())
        except UndecidedError as e:
            return Unknown(e.equation, e.reason, "" if e.source is None else source_text(e.source))
        if our_effects != their_effects:
            count, other = len(our_effects), len(their_effects)
            return Unknown("", f"the effects differ: {count} and {other} calls of the host or checks")
        unequal = [k for k, (x, y) in enumerate(zip(ours, theirs, strict=True)) if not _same(domain, x, y)]
        if unequal:
            return _first_new_value(domain, question, args, unequal[0])
        error = domain.bits_of_error(sum([a.size for a in left.out_avals]))
        if error >= ERROR_BITS:
            of = "bits" if bits else "real functions"
            return Proof("evaluation", of, error, given, tuple(sorted(domain.assumptions)))
        if points == MOST:
            return Unknown("", f"the degree of the expressions is too high: the bound of the error is 2^{-int(error)}")
        needed = points + 1
        while needed < MOST and error * needed / points < ERROR_BITS:
            needed += 1
        points = needed if error > 0 else MOST


def _same(domain: ProofDomain, x: ExactValue, y: ExactValue) -> bool:
    if not isinstance(x, Symbolic) and not isinstance(y, Symbolic):
        if not domain.interpreted or x.dtype not in dtypes.INEXACT:
            return not bytes_differ(x, y).any()
        return bool(np.array_equal(x.astype(np.complex128), y.astype(np.complex128), equal_nan=True))
    a, b = domain.lift(x), domain.lift(y)
    if a.is_complex != b.is_complex:
        a, b = [domain.complex(*domain.parts(z)) for z in (a, b)]
    return np.array_equal(a.residues, b.residues)


def _first_new_value(domain: ProofDomain, question: Question, args: Sequence[ExactValue], result: int) -> Unknown:
    """Name the first equation of the second program, among those that the result reads, whose value the first program
    does not have."""
    left, right = question.programs
    ours, theirs = question.operands(args)
    values = set[bytes]()

    def key(x: ExactValue) -> bytes:
        symbol = domain.lift(x)
        return domain.digest("value", symbol.residues.reshape(1, -1)).tobytes()

    evaluate(domain, left, ours, lambda _, outs: values.update(map(key, outs)))
    needed = dce(right.with_outs(right.outs[result : result + 1]))
    new_equations: list[Eqn] = []

    def visit(eqn: Eqn, outs: Sequence[ExactValue]) -> None:
        if not new_equations and not isinstance(eqn.prim, MOVES) and not all([key(x) in values for x in outs]):
            new_equations.append(eqn)

    evaluate(domain, needed, theirs, visit)
    reason = f"the expressions of result {result} differ, and no difference was found in float64"
    if not new_equations:
        return Unknown("", reason)
    eqn = new_equations[0]
    number = next((k for k, e in enumerate(right.eqns) if e.prim == eqn.prim and e.source is eqn.source), None)
    label = f"equation {number} " if number is not None else ""
    return Unknown(f"{label}({eqn.prim.name}) of {right.name}", reason, source_text(eqn.source))
