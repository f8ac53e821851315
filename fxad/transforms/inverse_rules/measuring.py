"""Log-determinants of equations run backwards.

A program that is solved one operand after the other has a triangular Jacobian, up to order: each equation is used once,
to compute its results or to be solved for operands. So log|det| of the whole is the sum, over the equations run
backwards, of log|det| of their results in the operands solved, the others held fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad import dtypes
from fxad.builder import Builder
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Eqn, Lit, Var, Zero
from fxad.primitives.elementwise import ABS, ADD, LOG, ConvertElementType
from fxad.primitives.shape import ReduceSum
from fxad.transforms.inverse_rules.contract import VOLUME, Constant, InverseCtx, InverseRule, Part, Refused
from fxad.transforms.jvp import jvp

UNMEASURED = Refused("its log-determinant is not known")


def log_det_of(
    ctx: InverseCtx, eqn: Eqn, rule: InverseRule, found: Sequence[Atom | Part | None]
) -> Atom | Refused | None:
    """The log-determinant of an equation whose rule gave `found` for its operands; None where it is 0."""
    if rule.log_det == VOLUME:
        return None
    if rule.log_det is None or any([isinstance(x, Part) for x in found]):
        return UNMEASURED
    unknown = tuple([x is not None for x in found])
    args = tuple([a if x is None else x for a, x in zip(eqn.ins, found, strict=True) if not isinstance(x, Part)])
    if isinstance(rule.log_det, Constant):
        return elementwise(ctx, eqn, args, unknown)
    return rule.log_det(ctx, eqn.prim, args, unknown, eqn.outs)


def elementwise(ctx: InverseCtx, eqn: Eqn, args: Sequence[Atom], unknown: tuple[bool, ...]) -> Atom | Refused:
    """The sum of log|slope|, with the slope that the derivative of the primitive has."""
    (out,) = eqn.outs
    if out.aval.dtype not in dtypes.FLOATING:
        return Refused(f"log-determinants are those of real programs, and its result is {out.aval}")
    b = Builder()
    single = b.build(b(eqn.prim, *b.inputs([a.aval for a in args])), eqn.prim.name)
    both, moves = jvp(single, unknown)
    if not any(moves):
        return Refused("its derivative vanishes")
    ones = [Lit.of(1, a.aval) for a, u in zip(args, unknown, strict=True) if u]
    slope = inlined(ctx, both.ins, both.eqns, [*args, *ones]).get(both.outs[-1], both.outs[-1])
    size = ctx.one(LOG, ctx.one(ABS, slope))
    return ctx.one(ReduceSum(tuple(range(size.aval.ndim))), size) if size.aval.ndim else size


def inlined(ctx: InverseCtx, ins: Sequence[Var], eqns: Sequence[Eqn], args: Sequence[Atom]) -> dict[Atom, Atom]:
    """Emit equations over `args`; what stands for each of their atoms."""
    env: dict[Atom, Atom] = dict(zip(ins, args, strict=True))
    for eqn in eqns:
        env.update(zip(eqn.outs, ctx(eqn.prim, *[env.get(a, a) for a in eqn.ins]), strict=True))
    return env


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
