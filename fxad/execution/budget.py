"""Budgets of bytes: the first program under a schedule of recomputation whose executable fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fxad import runtime
from fxad.errors import ParameterError
from fxad.ir import Jaxpr, source_location
from fxad.passes import Passes, plan_of, run_passes
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.primitives.marks import without_budgets
from fxad.transforms.memory_plans.peak import peak
from fxad.transforms.memory_plans.rematerialize import block_bodies, flat_program, recomputations
from fxad.units.plan import UnitPlan, UnitsChoice


def link_within(
    jaxpr: Jaxpr,
    choice: UnitsChoice,
    donate: tuple[int, ...],
    passes: Passes | None,
    limit: int,
    link: Callable[[UnitPlan], runtime.AnyExecutable],
) -> runtime.AnyExecutable:
    """Return the first executable of a program that has at most `limit` bytes of temporaries: that of the program
    itself, then those with the recomputations of `fxad.transforms.memory_plans.rematerialize`, in order.

    Law:    a smaller limit never gives more bytes, because the order does not depend on it.
    Raises: ParameterError with the least bytes that were reached, if none fits.
    """
    least: tuple[int, Jaxpr] | None = None
    for program, plan in _plans(without_budgets(jaxpr), choice, donate, passes):
        linked = link(plan)
        held = linked.memory().temp_bytes
        if held <= limit:
            return linked
        if least is None or held < least[0]:
            least = held, program
    assert least is not None, jaxpr
    raise ParameterError(
        f"compile of {jaxpr.name}: no plan fits into {limit:,} bytes of temporaries: the least that was reached is"
        f" {least[0]:,} bytes",
        remedy=f"give a larger budget, or make these values smaller: {_largest(least[1])}",
    )


def _plans(
    jaxpr: Jaxpr, choice: UnitsChoice, donate: tuple[int, ...], passes: Passes | None
) -> Iterator[tuple[Jaxpr, UnitPlan]]:
    yield jaxpr, plan_of(jaxpr, choice, donate, passes)
    flat = flat_program(run_passes(jaxpr, passes or ()))
    for recomputation in recomputations(flat):
        program = recomputation.program(flat)
        # each block is a unit, so that the blocks run in order; programs on devices are one unit
        units: UnitsChoice = "none" if choice == "none" or runs_on_devices(jaxpr) else block_bodies(program)
        yield program, plan_of(program, units, donate, ())


def _largest(program: Jaxpr) -> str:
    """Describe the largest values at the estimated peak of a program."""
    values = []
    for live in peak(program).values[:3]:
        line = source_location(live.eqn.source)
        values.append(f"{live.eqn.prim.name} {live.aval}{f' ({line})' if line else ''}")
    return ", ".join(values) or "none is known"
