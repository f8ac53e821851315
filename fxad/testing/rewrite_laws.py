"""Further laws of rewrites: they commute with vmap, and keep derivatives."""

from __future__ import annotations

from typing import Final

from fxad.core.interpreter import run
from fxad.testing.compare import differ, fail, program_tolerance, random_cotangents
from fxad.testing.derivative_laws import check_same_derivatives, differentiable_flags
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.transform_laws import Transform, differ_by
from fxad.testing.values import examples, stack
from fxad.transforms import vjp_fused
from fxad.transforms.vmap import vmap

_EXAMPLES: Final = 2


@law
def check_rewrite_under_vmap(transform: Transform, case: Case, *, rtol: float = 0.0) -> None:
    """Check that a rewrite commutes with vmap: the rewritten program of a batch, and the batch of the rewritten
    program, have the results of the batch. `rtol` is that of `check_rewrite`."""
    program, ins, outs = case.program, (0,) * len(case.args), (0,) * len(case.program.outs)
    args = stack(examples(case.args, ins), ins)
    batched = vmap(program, _EXAMPLES, ins, outs)[0]
    expected = run(batched, args)
    for what, other in (
        ("the rewritten batch", transform(batched)),
        ("the batch of the rewritten program", vmap(transform(program), _EXAMPLES, ins, outs)[0]),
    ):
        if problem := differ_by(run(other, args), expected, rtol):
            fail(f"{what} differs: {problem}", program, case.args, other)


@law
def check_rewrite_keeps_gradients(transform: Transform, case: Case, *, rtol: float = 1e-9) -> None:
    """Check that the rewritten program has the derivatives of the program, forward and reverse, of first and second
    order; and the rewritten derivative has them too. For cases that are drawn with `differentiable=True`.

    `rtol` is that of `check_rewrite`; second derivatives may differ by 100 times as much.
    """
    flags = differentiable_flags(case)
    if not any(flags):
        return
    check_same_derivatives(case, transform(case.program), rtol)
    backward, operands = vjp_fused(case.program, flags), [*case.args, *random_cotangents(case.program, case.seed)]
    tolerance = max(rtol, 1e3 * program_tolerance(backward, operands))
    if problem := differ(run(transform(backward), operands), run(backward, operands), slack=tolerance):
        fail(f"the rewritten gradient differs: {problem}", case.program, case.args, transform(backward))
