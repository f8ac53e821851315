"""Log-determinants of inverted equations.

The solver determines one operand after the other, so the Jacobian of the program is triangular after a permutation.
Each equation is used once: to compute its results, or to solve for its operands. So log|det| of the program is a sum
over the inverted equations. Each term is log|det| of the results in the solved operands, with the others constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Emit, Eqn, Lit, Var, Zero
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.elementwise.logic import AND, EQ, NE
from fxad.primitives.elementwise.select import SELECT_N
from fxad.transforms.inversion.rules.assembling import may_lack_elements, where_chosen, with_part
from fxad.transforms.inversion.rules.contract import (
    ChosenPart,
    InverseCtx,
    InverseRow,
    PartialValue,
    Refused,
    VolumePreserving,
)
from fxad.transforms.inversion.rules.totals import not_square, real_numbers, total as sum_of

UNMEASURED: Final = Refused("its log-determinant is not known")


def log_det_of(
    ctx: InverseCtx,
    eqn: Eqn,
    rule: InverseRow,
    operands: Sequence[Atom | PartialValue | None],
    part: ChosenPart | None = None,
) -> Atom | Refused | None:
    """Return the log-determinant of an equation; of the elements in `part` only, if given. Return None if it is 0.
    `operands` is what the rule of the equation returned."""
    for x in operands if len(operands) == 1 else ():
        sizes = real_numbers([v.aval for v in eqn.outs]), real_numbers([x.aval] if isinstance(x, Var | Lit) else ())
        if isinstance(x, Var | Lit) and sizes[0] != sizes[1] and part is None:
            return Refused(not_square(*sizes))
    if isinstance(rule.log_det, VolumePreserving):
        return None
    if rule.log_det is None or any([isinstance(x, PartialValue) for x in operands]):
        return UNMEASURED
    unknown = tuple([x is not None for x in operands])
    args = tuple([
        x or (where_chosen(ctx, a, part) if part else a)
        for a, x in zip(eqn.ins, operands, strict=True)
        if not isinstance(x, PartialValue)
    ])  # fmt: skip
    measured = rule.log_det(ctx, eqn.prim, args, unknown, (part.value,) if part else eqn.outs)
    if measured is None or not isinstance(eqn.prim, Unary | Binary):
        return UNMEASURED if measured is None else measured
    if part:
        measured = with_part(ctx, replace(part, value=measured), Zero(measured.aval).instantiate())
    return sum_of(ctx, measured)


def log_det_of_parts(emit: Emit, operand: Atom, parts: Sequence[PartialValue]) -> Atom | None:
    """Return the log-determinant of the equations that gave the parts of an operand: -inf if no part has one of its
    elements, because then several parts read the same one. Return None if it is 0: the parts have all elements."""
    if not may_lack_elements(parts):
        return None
    of_zeros: Atom = Lit.zero(operand.aval)
    for part in parts:
        of_zeros = with_part(emit, part, of_zeros)
    # a missing element is nan in the operand. A part may also have a nan: then it is nan in both
    is_missing = emit.one(AND, emit.one(NE, operand, operand), emit.one(EQ, of_zeros, of_zeros))
    real = operand.aval.with_dtype(dtypes.real_part(operand.aval.dtype))
    return sum_of(emit, emit.one(SELECT_N, is_missing, Lit.zero(real), Lit.of(-math.inf, real)))


def total_log_det(b: Builder, measures: Sequence[Atom], avals: Sequence[Aval]) -> Atom:
    """Return the sum of log-determinants, in the widest dtype of the solved operands."""
    dtype = widest([a.dtype for a in avals])
    out: Atom = Zero(Aval((), dtype)).instantiate()
    for k, a in enumerate(measures):
        same = a if a.aval.dtype == dtype else b.one(ConvertElementType(dtype), a)
        out = b.one(ADD, out, same) if k else same
    return out


def widest(types: Sequence[DType]) -> DType:
    """Return the widest real floating dtype (of complex dtypes, that of their parts); float32 if there is none."""
    floating = [dtypes.real_part(d) for d in types if d in dtypes.FLOATING or d in dtypes.COMPLEX]
    return max(floating, key=lambda d: d.itemsize) if floating else dtypes.float32
