"""Log-determinants of equations run backwards.

A program that is solved one operand after the other has a triangular Jacobian, up to order: each equation is used once,
to compute its results or to be solved for operands. So log|det| of the whole is the sum, over the equations run
backwards, of log|det| of their results in the operands solved, the others held fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Eqn, Lit, Var, Zero
from fxad.primitives.elementwise import ADD, ConvertElementType
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.transforms.inversion.rules.assembling import chosen_part, where_chosen, written
from fxad.transforms.inversion.rules.contract import VOLUME, Constant, InverseCtx, InverseRule, Part, Refused
from fxad.transforms.inversion.rules.totals import not_square, numbers
from fxad.transforms.inversion.rules.totals import total as sum_of

UNMEASURED = Refused("its log-determinant is not known")


def log_det_of(
    ctx: InverseCtx, eqn: Eqn, rule: InverseRule, found: Sequence[Atom | Part | None], part: Part | None = None
) -> Atom | Refused | None:
    """The log-determinant of an equation whose rule gave `found` for its operands, of the elements in `part` alone if
    there is one; None where it is 0."""
    for x in found if len(found) == 1 else ():
        sizes = numbers([v.aval for v in eqn.outs]), numbers([x.aval] if isinstance(x, Var | Lit) else ())
        if isinstance(x, Var | Lit) and sizes[0] != sizes[1] and part is None:
            return Refused(not_square(*sizes))
    if rule.log_det == VOLUME:
        return None
    if rule.log_det is None or any([isinstance(x, Part) for x in found]):
        return UNMEASURED
    unknown = tuple([x is not None for x in found])
    chosen = part.chosen if part else None
    args = tuple([
        x or (where_chosen(ctx, a, chosen) if chosen else a)
        for a, x in zip(eqn.ins, found, strict=True)
        if not isinstance(x, Part)
    ])  # fmt: skip
    assert not isinstance(rule.log_det, Constant), "VOLUME is the only one"
    measured = rule.log_det(ctx, eqn.prim, args, unknown, (part.value,) if part else eqn.outs)
    if not isinstance(eqn.prim, Unary | Binary):
        return measured
    if chosen:
        measured = written(ctx, chosen_part(measured, chosen), Zero(measured.aval).instantiate())
    return sum_of(ctx, measured)


def total(b: Builder, measures: Sequence[Atom], avals: Sequence[Aval]) -> Atom:
    """The sum of log-determinants, in the widest of the dtypes of the operands solved."""
    dtype = widest([a.dtype for a in avals])
    out: Atom = Zero(Aval((), dtype)).instantiate()
    for k, a in enumerate(measures):
        same = a if a.aval.dtype == dtype else b.one(ConvertElementType(dtype), a)
        out = b.one(ADD, out, same) if k else same
    return out


def widest(found: Sequence[DType]) -> DType:
    """The real floating dtype that holds the others, of complex ones their parts; float32 where there is none."""
    floating = [dtypes.real_part(d) for d in found if d in dtypes.FLOATING or d in dtypes.COMPLEX]
    return max(floating, key=lambda d: d.itemsize) if floating else dtypes.float32
