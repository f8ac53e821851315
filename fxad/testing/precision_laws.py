"""Laws of rounding errors and of mixed precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.dtypes import DType
from fxad.errors import NotDifferentiableError
from fxad.ir import Jaxpr, NDArray, distinct_jaxprs
from fxad.testing.compare import fail
from fxad.text import parse
from fxad.transforms.memory.policies import Policy, everything
from fxad.transforms.precision.bounds import with_bounds
from fxad.transforms.precision.cast import cast
from fxad.transforms.precision.retype import unit_roundoff
from fxad.transforms.precision.rounding import is_single, weighted_errors, weights_of, with_accumulators
from fxad.transforms.precision.shadow import shadow
from fxad.transforms.precision.table import RoundingErrors, table_of
from fxad.transforms.precision.taps import ACCUMULATOR, SumRequest


def interpreted_table(jaxpr: Jaxpr, args: Sequence[NDArray]) -> RoundingErrors:
    """Return the table of a program, as `rounding_errors` does, but interpret the pass in NumPy."""
    inexact = [a for a in jaxpr.out_avals if a.inexact]
    single = is_single(inexact)
    wants = SumRequest(squares=not single)
    bounded = with_bounds(jaxpr, args)
    operands = [*args, np.full(ACCUMULATOR.shape, -0.0), *weights_of(inexact)]
    *_, size, sums = run(weighted_errors(bounded, wants), operands)
    return table_of(jaxpr, with_accumulators(bounded, wants).sites, sums, float(size), single, tuple(args))


def check_same_results(jaxpr: Jaxpr, args: Sequence[NDArray]) -> None:
    """Check that the pass and the shadow run give the results of the program, bit for bit, and are well typed."""
    expected = run(jaxpr, args)
    bounded, wants = with_bounds(jaxpr, args), SumRequest(squares=True, sizes=True)
    for x, y in zip(expected, run(bounded, args), strict=True):
        _check_equal("a program with bounds", x, y, jaxpr, args)
    inner = with_accumulators(bounded, wants)
    typecheck(inner.jaxpr)
    if parse(str(inner.jaxpr)) is not inner.jaxpr:
        fail("the program with accumulators is not the one of its text", jaxpr, args)
    zeros = [np.full(site.accumulator.shape, -0.0) for site in inner.sites]
    for x, y in zip(expected, run(inner.jaxpr, [*args, *zeros]), strict=True):
        _check_equal("a program with accumulators", x, y, jaxpr, args)
    found = shadow(jaxpr, args)
    for x, y in zip(
        [x for x, a in zip(expected, jaxpr.out_avals, strict=True) if a.inexact], found.results, strict=True
    ):
        _check_equal("a shadow run", x, y, jaxpr, args)


def check_errors_add_up(jaxpr: Jaxpr, args: Sequence[NDArray], factor: float) -> bool:
    """Check that the table of a program estimates the error that the shadow run finds, up to a factor. Return False
    where there is nothing to compare: values of 64 bits, of which errors are estimates, no derivative, no error, or
    results that are not finite."""
    avals = [a for body in distinct_jaxprs(jaxpr) for e in body.eqns for a in (*e.ins, *e.outs)]
    if any([a.aval.inexact and unit_roundoff(a.aval.dtype) < 1e-9 for a in avals]):
        return False
    try:
        table = interpreted_table(jaxpr, args)
    except NotDifferentiableError:
        return False
    found = shadow(jaxpr, args)
    if not np.isfinite([table.error, found.error, found.size]).all() or found.error == 0:
        return False
    if not found.error / factor <= table.error <= found.error * factor:
        fail(f"the table has the error {table.error:.3g}, the shadow run {found.error:.3g}", jaxpr, args)
    return True


def check_cast(jaxpr: Jaxpr, dtype: DType, policy: Policy, args: Sequence[NDArray]) -> None:
    """Check that a cast program is well typed, has the same operands and results, is its own cast, and is read back
    from its text; and that with all equations kept it computes what the program does."""
    mixed = cast(jaxpr, dtype, policy)
    typecheck(mixed)
    if (mixed.in_avals, mixed.out_avals) != (jaxpr.in_avals, jaxpr.out_avals):
        fail("a cast program has other types", jaxpr, args)
    if cast(mixed, dtype, policy) is not mixed:
        fail("the cast of a cast program is another program", jaxpr, args)
    if parse(str(mixed)) is not mixed:
        fail("a cast program is not the one of its text", jaxpr, args)
    run(mixed, args)
    for x, y in zip(run(jaxpr, args), run(cast(jaxpr, dtype, everything), args), strict=True):
        _check_equal("a program whose equations are all kept", x, y, jaxpr, args)


def _check_equal(what: str, expected: NDArray, found: NDArray, jaxpr: Jaxpr, args: Sequence[NDArray]) -> None:
    if expected.dtype != found.dtype or np.asarray(expected).tobytes() != np.asarray(found).tobytes():
        fail(f"{what} has other results: {found} in place of {expected}", jaxpr, args)
