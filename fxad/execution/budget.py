"""Budgets of bytes: the first passes under which the executable of a program fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fxad import runtime
from fxad.errors import BudgetError
from fxad.ir import Jaxpr, source_location
from fxad.passes import WITHIN_BUDGET, Passes, plan_of, run_passes
from fxad.primitives.marks import without_budgets
from fxad.transforms.liveness import peak
from fxad.units.plan import UnitPlan, UnitsChoice


def link_within(
    jaxpr: Jaxpr,
    choice: UnitsChoice,
    donate: tuple[int, ...],
    passes: Passes | None,
    limit: int,
    link: Callable[[UnitPlan], runtime.AnyExecutable],
) -> tuple[runtime.AnyExecutable, Passes | None]:
    """Return the first executable of a program that has at most `limit` bytes of temporaries, and its passes: the given
    ones, or those and one of `fxad.passes.WITHIN_BUDGET`, which are tried in order.

    Law:    a smaller limit never gives more bytes, because the order does not depend on it.
    Raises: BudgetError with the least bytes that were reached, if none fits.
    """
    program = without_budgets(jaxpr)
    least: tuple[int, Passes | None] | None = None
    for tried in _choices(program, passes):
        linked = link(plan_of(program, choice, donate, tried))
        held = linked.memory().temp_bytes
        if held <= limit:
            return linked, tried
        if least is None or held < least[0]:
            least = held, tried
    assert least is not None, jaxpr
    raise BudgetError(
        f"compile of {jaxpr.name}: no plan fits into {limit:,} bytes of temporaries: the least that was reached is"
        f" {least[0]:,} bytes",
        remedy=f"give a larger budget, or make these values smaller: {_largest(run_passes(program, least[1] or ()))}",
        least=least[0],
    )


def _choices(program: Jaxpr, passes: Passes | None) -> Iterator[Passes | None]:
    yield passes
    given_passes = passes or ()
    before = run_passes(program, given_passes)
    for passes_of in WITHIN_BUDGET:
        for p in passes_of(before):
            yield (*given_passes, p)


def _largest(program: Jaxpr) -> str:
    """Describe the largest values at the estimated peak of a program."""
    values = []
    for live in peak(program).values[:3]:
        line = source_location(live.eqn.source)
        values.append(f"{live.eqn.prim.name} {live.aval}{f' ({line})' if line else ''}")
    return ", ".join(values) or "none is known"
