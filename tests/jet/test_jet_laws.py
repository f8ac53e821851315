"""Taylor series of generated programs, and of every primitive."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given

from fxad.errors import NotDifferentiableError
from fxad.ir import Primitive
from fxad.primitives import ALL
from fxad.primitives.collectives import COLLECTIVES
from fxad.testing import Application, Case, calls, cases, check_linearize, check_program_jvp, check_vmap
from fxad.testing.control_steps import branch_step, scan_step, while_step
from fxad.testing.derivative_laws import differentiable_flags, random_directions
from fxad.testing.jet_laws import check_jet
from fxad.testing.steps import GROWTH_STEPS
from fxad.testing.values import PRECISE
from fxad.transforms.jet.jet import jet
from tests.laws.budget import share
from tests.laws.own_bodies import OWN


@pytest.mark.law
def test_differentiable_programs() -> None:
    @share(2)
    @given(cases(differentiable=True))
    def law(case: Case) -> None:
        check_jet(case)

    law()


# tests/spmd has the laws of collectives: a map has to bind their axes
@pytest.mark.parametrize("kind", [k for k in ALL if k not in COLLECTIVES], ids=lambda kind: kind.name)
def test_every_primitive(kind: type[Primitive]) -> None:
    """Beside nested forward mode, in float64. Narrow types are those of the operands throughout, in both."""

    @share(10)
    @given(calls(kind, smooth=True))
    def law(application: Application) -> None:
        if any(a.inexact and a.dtype not in PRECISE for a in application.avals):
            return
        with suppress(NotDifferentiableError):
            check_jet(Case(application.program, application.args, 1, application.smooth))

    law()


@pytest.mark.law
def test_loops_and_branches() -> None:
    @share(4)
    @given(cases(differentiable=True, unbounded=True, steps=(*GROWTH_STEPS, *[while_step, scan_step, branch_step] * 4)))
    def law(case: Case) -> None:
        check_jet(case)

    law()


@pytest.mark.law
def test_primitives_with_bodies_from_outside() -> None:
    """Their layout is enough."""

    @share(2)
    @given(cases(differentiable=True, steps=OWN, size=5))
    def law(case: Case) -> None:
        check_jet(case)

    law()


@pytest.mark.law
def test_any_transformation_of_a_series() -> None:
    """The series of a program is a program: its derivatives, batches and lowering obey their laws."""

    @share(4)
    @given(cases(differentiable=True))
    def law(case: Case) -> None:
        flags = differentiable_flags(case)
        series, _ = jet(case.program, tuple([(m, False) for m in flags]))
        args = (*case.args, *random_directions(case))
        grown = Case(series, args, case.seed, case.smooth)
        check_program_jvp(grown)
        check_vmap(grown)
        check_linearize(grown)

    law()
