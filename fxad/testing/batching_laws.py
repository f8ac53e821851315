"""The laws of batching, for one program and its operands. See `fxad.testing.transform_laws`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.ir import Avals, Jaxpr, Lit
from fxad.testing.compare import (
    differ,
    fail,
    program_tolerance,
    random_cotangents,
    random_tangents,
)
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.transform_laws import check_same_function, check_transform
from fxad.testing.values import examples, stack
from fxad.transforms import jvp, vjp_fused
from fxad.transforms.vmap import vmap


@law
def check_vmap(case: Case, dims: tuple[int | None, ...] | None = None, size: int = 2) -> None:
    """Check that vmap equals the stacked loop, for operands mapped at `dims` (by default drawn from the case's seed). A
    result without a mapped axis is equal for all examples. `out_dims` are respected."""
    program, args = case.program, case.args
    at = dims if dims is not None else mapped_dims(case)
    if all([d is None for d in at]):
        return
    rows = examples(args, at, size)
    stacked = stack(rows, at)
    batched = check_transform(lambda f: vmap(f, size, at)[0], program)
    out_dims = vmap(program, size, at)[1]
    tolerance = max([program_tolerance(program, r) for r in rows])
    wants = [run(program, r) for r in rows]
    batched_outs = run(batched, stacked)
    for k, (actual, d) in enumerate(zip(batched_outs, out_dims, strict=True)):
        for i, expected in enumerate(wants):
            row = actual if d is None else np.take(actual, i, d)
            if problem := differ([row], [expected[k]], slack=tolerance):
                fail(f"vmap over {at} differs from the loop in row {i}, result {k}: {problem}", program, args, batched)
    front = (0,) * len(program.outs)
    fronted = check_transform(lambda f: vmap(f, size, at, front)[0], program)
    if problem := differ(run(fronted, stacked), stack(wants, front), slack=tolerance):
        fail(f"vmap over {at} to axis 0 differs from the stacked loop: {problem}", program, args, fronted)


def mapped_dims(case: Case) -> tuple[int | None, ...]:
    """Return the mapped axis of each operand, or None, drawn from the seed of the case."""
    rng = np.random.default_rng((case.seed, 11))
    return tuple([int(rng.integers(0, a.ndim + 1)) if rng.random() < 0.75 else None for a in case.args])


@law
def check_vmap_identity(case: Case) -> None:
    """Check that with nothing mapped, vmap returns the program itself. Mapped over one example, the results have one
    more axis."""
    program, args = case.program, case.args
    if vmap(program, 3, (None,) * len(args))[0] is not program:
        fail("vmap over no operand is not the program", program, (), vmap(program, 3, (None,) * len(args))[0])
    one, _ = vmap(program, 1, (0,) * len(args), (0,) * len(program.outs))
    actual, expected = run(one, [a[None] for a in args]), run(program, args)
    if problem := differ([y[0] for y in actual], expected, slack=program_tolerance(program, args)):
        fail(f"vmap over one example: {problem}", program, args, one)


@law
def check_vmap_nested(case: Case) -> None:
    """Check that nested vmap with exchanged axes equals nested vmap, with exchanged axes in the results."""
    program, args = case.program, case.args
    ins, outs = (0,) * len(args), (0,) * len(program.outs)
    grid = tuple([np.stack([np.stack([np.roll(a, i + 2 * j) for j in range(3)]) for i in range(2)]) for a in args])
    rows, _ = vmap(vmap(program, 3, ins, outs)[0], 2, ins, outs)
    columns, _ = vmap(vmap(program, 2, ins, outs)[0], 3, (1,) * len(args), (1,) * len(program.outs))
    check_same_function("nested vmap", columns, rows, grid)


def with_tangents(program: Jaxpr, n: int, nonzero: Sequence[bool], avals: Avals) -> Jaxpr:
    """Return a program of `n` results and tangents with zeros for the results, of types `avals`, that have none."""
    remaining = iter(program.outs[n:])
    tangents = [next(remaining) if nz else Lit.zero(a) for nz, a in zip(nonzero, avals, strict=True)]
    return program.with_outs((*program.outs[:n], *tangents))


@law
def check_vmap_commutes(case: Case) -> None:
    """Check that `vmap(jvp f) = jvp(vmap f)` and `vmap(vjp f) = vjp(vmap f)`, with all operands mapped."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    if not any(flags):
        return
    size, ins, outs = 2, (0,) * len(args), (0,) * len(program.outs)
    stacked = stack(examples(args, ins), ins)
    batched, _ = vmap(program, size, ins, outs)
    directions = random_tangents(select_by_flags(batched.in_avals, flags), 0)
    forward, inner_nonzero = jvp(program, flags)
    inner, _ = vmap(forward, size, (0,) * len(forward.ins), (0,) * len(forward.outs))
    outer, nonzero = jvp(batched, flags)
    n = len(program.outs)
    check_same_function(
        "vmap of jvp differs from jvp of vmap",
        with_tangents(inner, n, inner_nonzero, batched.out_avals),
        with_tangents(outer, n, nonzero, batched.out_avals),
        (*stacked, *directions),
    )
    backward = vjp_fused(program, flags)
    cts = random_cotangents(batched, 1)
    inner, _ = vmap(backward, size, (0,) * len(backward.ins), (0,) * len(backward.outs))
    check_same_function("vmap of vjp differs from vjp of vmap", inner, vjp_fused(batched, flags), (*stacked, *cts))
