"""Inverses of implicit functions: the defining equation determines the operands from the solution.

The operands are as accurate as the solution of the equation.
"""

from __future__ import annotations

from typing import Final

from fxad.ir import Zero
from fxad.primitives.control.call import Call
from fxad.primitives.implicit import LinearSolve, Root
from fxad.transforms.inversion.rules.contract import (
    Args,
    BodyCtx,
    InverseRow,
    Refused,
    Solved,
    at_positions,
    body_row,
    for_unknown,
    known_atoms,
    known_mask,
)

MATVEC_UNKNOWN: Final = "what its matvec needs to know is unknown"


def _linear_solve(ctx: BodyCtx, prim: LinearSolve, args: Args, outs: Args) -> Solved | Refused:
    """Return A x: the right-hand side of the system with the solution x."""
    n = prim.size
    others = args[n:]
    if not all(known_mask(others)):
        return Refused(MATVEC_UNKNOWN)
    rhs = ctx(Call(prim.matvec), *known_atoms(outs[:n]), *known_atoms(others))
    return *for_unknown(rhs, args[:n]), *[None for _ in others]


def _root(ctx: BodyCtx, prim: Root, args: Args, outs: Args) -> Solved | Refused:
    """Run the equation backwards, from zero results and the solution. The solution does not determine the initial
    guess."""
    captured, n = args[: prim.captured], prim.size
    ins = (*known_mask(captured), *[True] * n)
    backward = ctx.recur(prim.equation, ins, (True,) * len(prim.equation.outs))
    solved = backward.solved[: prim.captured]
    if not any(solved) and not all(known_mask(captured)):
        return backward.refused or Refused("its equation says nothing of the operands that are not known")
    zeros = [Zero(a).instantiate() for a in prim.equation.out_avals]
    values = ctx(Call(backward.program), *zeros, *known_atoms(captured), *known_atoms(outs[:n])) if any(solved) else ()
    return *at_positions(values[: sum(solved)], solved), *[None] * n


IMPLICIT: Final[tuple[InverseRow, ...]] = (
    body_row(LinearSolve, _linear_solve, partial=False),
    body_row(Root, _root, partial=False),
)
