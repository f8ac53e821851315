"""Assumptions of proofs about floats and integers, beside the laws of real numbers. A verdict lists these sentences."""

from __future__ import annotations

from typing import Final

from fxad import dtypes
from fxad.diagnosis.equality.domain import ProofDomain
from fxad.ir import Avals

FINITE: Final = "no operand or computed value is nan or infinite, and -0 is 0"
NO_WRAP: Final = "integers did not wrap before they were converted to floats or wider integers"
READS_BITS: Final = "equal real numbers are equal floats where a program reads their bits"


def assume_finite(domain: ProofDomain, ins: Avals, outs: Avals) -> None:
    """Note that a law of real numbers was used, which floats have if they are finite, and zero has no sign."""
    if any([a.inexact for a in (*ins, *outs)]):
        domain.assumptions.add(FINITE)


def assume_widths(domain: ProofDomain, ins: Avals, outs: Avals) -> None:
    """Note that a primitive whose results are wider than its operands reads integers, as a conversion does."""
    if any([a.dtype in dtypes.INTEGER and a.dtype != b.dtype for a in ins for b in outs]):
        domain.assumptions.add(NO_WRAP)
