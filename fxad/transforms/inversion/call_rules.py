"""The rules of inversion that a call with rules carries, as `TransformRule` records, and what reads them.

- `INVERSE`: the inverse that a user gave (`custom_inverse`, `custom_ivjp`), or that of a call of `invertible`. Its
  program `inverse` takes the results and kept operands, and gives the other operands. `ivjp` also takes the cotangents
  of the inexact results, and also gives those of the perturbed operands.
- `_INVERTIBLE`: a call that `invertible` made. Its setting is the tolerated error of reconstructed operands.
"""

from __future__ import annotations

from typing import Final, final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.flags import select_by_flags, split_by_flags
from fxad.ir import Aval, Flags, Jaxpr, Lit, Primitive
from fxad.primitives.custom import CallWithRules, rules_of
from fxad.primitives.custom_rules import DeclaredProgram, TransformRule

INVERSE: Final = "fxad.inverse"
_INVERTIBLE: Final = "fxad.invertible"


@final
@dataclass(frozen=True, slots=True)
class InverseOfCall:
    """The inverse of a call with rules. `inverse`: results, then the operands marked in `kept` -> the other operands.
    `ivjp`: results, kept operands, cotangents of the inexact results -> the other operands, then cotangents of the
    perturbed ones."""

    kept: Flags
    inverse: Jaxpr
    ivjp: Jaxpr | None


def inverse_rule(
    body: Jaxpr, kept: Flags, inverse: Jaxpr, ivjp: Jaxpr | None = None, perturbed: Flags = ()
) -> TransformRule:
    """Return the rule of a call of `body`. `perturbed` marks the operands whose cotangents `ivjp` gives."""
    operands, n = range(len(body.ins)), len(body.ins)
    results = range(n, n + len(body.outs))
    known, others = split_by_flags(operands, kept)
    takes = (*results, *known)
    programs = [DeclaredProgram("inverse", inverse, takes, tuple(others))]
    if ivjp is not None:
        cotangents = select_by_flags(results, [a.inexact for a in body.out_avals])
        gives = (*others, *select_by_flags(operands, perturbed))
        programs.append(DeclaredProgram("ivjp", ivjp, (*takes, *cotangents), gives, sum(perturbed)))
    return TransformRule(INVERSE, tuple(programs), whole=True)


def inverse_of_call(prim: Primitive) -> InverseOfCall | None:
    """Return the inverse that an equation carries; None if it has none, or if the rule of the user raised an error."""
    rule = rules_of(prim).rule_for(INVERSE)
    inverse = rule.program("inverse") if rule else None
    if rule is None or inverse is None:
        return None
    assert isinstance(prim, CallWithRules)
    ivjp = rule.program("ivjp")
    kept = tuple([k not in inverse.gives for k in range(len(prim.body.ins))])
    return InverseOfCall(kept, inverse.jaxpr, None if ivjp is None else ivjp.jaxpr)


def error_of_inverse(prim: Primitive) -> str:
    """Return the message of the error that a user's inverse raised while it was traced; empty if there is none."""
    rule = rules_of(prim).rule_for(INVERSE)
    return rule.error if rule else ""


def invertible_rule(tolerance: float) -> TransformRule:
    """Return the rule that marks a call of `invertible`."""
    return TransformRule(_INVERTIBLE, settings=(Lit.of(tolerance, Aval((), dtypes.float64)),))


def tolerance_of(prim: Primitive) -> float | None:
    """Return the tolerance of a call that `invertible` made; None for every other equation."""
    rule = rules_of(prim).rule_for(_INVERTIBLE)
    if rule is None:
        return None
    (tolerance,) = rule.settings
    assert isinstance(tolerance, Lit)
    return float(tolerance.array)
