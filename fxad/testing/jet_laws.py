"""The laws of Taylor series. See `fxad.testing.transform_laws`."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial

import numpy as np

from fxad.core.flags import select_by_flags
from fxad.core.interpreter import run
from fxad.ir import Aval, Jaxpr, NDArray, Zero
from fxad.testing.compare import HostArrays, differ, fail, program_tolerance, random_tangents
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.transform_laws import check_transform
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.jet.body_series import CoefficientFlags
from fxad.transforms.jet.jet import jet

_ORDER = 3


@law
def check_jet(case: Case) -> None:
    """Check that the coefficients are those of nested forward mode, along a curve of degree 3, along a straight line,
    and along a curve some of whose coefficients are zero, also by compositions. Of order 1, the program is that of
    `jvp`."""
    program, args, flags = case.program, case.args, differentiable_flags(case)
    if not any(flags):
        return
    if jet(program, tuple([(m,) for m in flags]))[0] is not jvp(program, flags)[0]:
        fail("jet of order 1 is not jvp", program)
    some = np.random.default_rng(case.seed).random((len(flags), _ORDER)) < 0.5
    for given, composed in (
        (np.ones_like(some), False), (np.arange(_ORDER) < np.ones_like(some), False), (some, False), (some, True),
    ):  # fmt: skip
        pattern = tuple([tuple([m and bool(g) for g in row]) for m, row in zip(flags, given, strict=True)])
        check_series(program, args, pattern, case.seed, composed)


def check_series(
    program: Jaxpr, args: HostArrays, pattern: CoefficientFlags, seed: int = 0, composed: bool = False
) -> None:
    """Check that coefficients of order 0 to 3 are those of nested forward mode. `pattern`, `composed`: see `jet`."""
    series = check_transform(lambda f: jet(f, pattern, composed)[0], program)
    rows = _random_series(program.in_avals, pattern, seed)
    given = [c for row, marks in zip(rows, pattern, strict=True) for c in select_by_flags(row, marks)]
    outs = iter(run(series, [*args, *given]))
    values = [next(outs) for _ in program.outs]
    if problem := differ(values, run(program, args), slack=program_tolerance(program, args)):
        fail(f"jet changed the results: {problem}", program, args, series)
    has = jet(program, pattern, composed)[1]
    have = [[next(outs) if m else np.zeros_like(v) for m in marks] for v, marks in zip(values, has, strict=True)]
    want = nested(program, args, rows, [any(marks) for marks in pattern])
    tolerance = 1e2 * program_tolerance(program, args)
    for k in range(_ORDER):
        mine = [row[k] for row, a in zip(have, program.out_avals, strict=True) if a.inexact]
        theirs = [row for row, a in zip(want[k], program.out_avals, strict=True) if a.inexact]
        if problem := differ(mine, theirs, slack=tolerance):
            fail(f"coefficient {k + 1} differs from nested jvp: {problem}", program, args, series)


def _random_series(avals: Sequence[Aval], pattern: CoefficientFlags, seed: int) -> list[list[NDArray]]:
    """Return coefficients 1 to 3 of the operands; zeros where the pattern has none."""
    drawn = [random_tangents(avals, seed + 7 * k) for k in range(_ORDER)]
    return [
        [drawn[k][i] if m else np.zeros(a.shape, a.dtype) for k, m in enumerate(marks)]
        for i, (a, marks) in enumerate(zip(avals, pattern, strict=True))
    ]


def nested(
    program: Jaxpr, args: HostArrays, rows: Sequence[Sequence[NDArray]], moves: Sequence[bool]
) -> list[HostArrays]:
    """Return coefficients 1 to 3 of the results by nested forward mode. `rows` are those of the operands; `moves` marks
    the operands that vary.

    The derivative in t of a program of x and its derivatives is forward mode along their derivatives.
    """
    n, outs = len(program.outs), program.out_avals
    derivatives = [
        [x, *[_times(c, factorial(k)) for k, c in enumerate(row, 1)]] for x, row in zip(args, rows, strict=True)
    ]
    operands = [(i, 0) for i in range(len(args))]  # derivative 0 of operand i
    found: list[HostArrays] = []
    current = program
    for k in range(1, _ORDER + 1):
        mask = tuple([moves[i] for i, _ in operands])
        fused, has = jvp(current, mask)
        operands += [(i, d + 1) for (i, d), m in zip(operands, mask, strict=True) if m]
        # the last results are the derivative of order k - 1 of those of the program
        tangents = iter(fused.outs[len(current.outs) :])
        dots = [next(tangents) if m else None for m in has][-n:]
        slopes = [Zero(a).instantiate() if dot is None else dot for dot, a in zip(dots, outs, strict=True)]
        current = fused.with_outs(slopes)
        values = run(current, [derivatives[i][d] for i, d in operands])
        found.append([_times(x, 1 / factorial(k)) for x in values])
    return found


def _times(x: NDArray, factor: float) -> NDArray:
    return np.multiply(x, factor).astype(x.dtype)
