"""Collectives of generated programs: vmap over a named axis is what the runs of all indices, in lockstep, exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import Linear, Primitive
from fxad.primitives.collectives import COLLECTIVES
from fxad.testing import Application, Case, calls, cases, check_text
from fxad.testing.collective_steps import COLLECTIVE_STEPS
from fxad.testing.compare import differ, inner_product_error, random_tangents, step_along, tangent_error
from fxad.testing.spmd_laws import (
    check_collective_gradients,
    check_collectives,
    in_lockstep,
    over_axes,
    stacked_operands,
)
from fxad.transforms import jvp, transpose, vmap
from tests.laws.budget import share

every = pytest.mark.parametrize("kind", COLLECTIVES, ids=lambda kind: kind.name)
linear = pytest.mark.parametrize("kind", [k for k in COLLECTIVES if issubclass(k, Linear)], ids=lambda kind: kind.name)


def case_of(application: Application, seed: int = 0) -> Case:
    return Case(application.program, application.args, seed, application.smooth)


@every
def test_vmap(kind: type[Primitive]) -> None:
    @given(calls(kind))
    def law(application: Application) -> None:
        typecheck(application.program)
        check_text(application)
        assert check_collectives(case_of(application))

    law()


@every
def test_beside_another_axis(kind: type[Primitive]) -> None:
    """A batch axis at any place, which the collective does not run over."""

    @share(2)
    @given(calls(kind), st.integers(0, 2))
    def law(application: Application, dim: int) -> None:
        program = application.program
        if not program.ins:
            return
        at = min(dim, program.ins[0].aval.ndim)
        batched, (to,) = vmap(program, 2, (at,))
        args = stacked_operands(case_of(application))
        twice = [np.stack([a, a[::-1]], at + 2) for a in args]
        (found,) = in_lockstep(batched, twice)
        for k in range(2):
            (want,) = in_lockstep(program, [np.take(a, k, at + 2) for a in twice])
            assert to is not None
            assert not differ([np.take(found, k, to + 2)], [want])

    law()


@linear
def test_transpose(kind: type[Primitive]) -> None:
    """<y_bar, A x_dot> = <A^T y_bar, x_dot> over the stacks of all indices; transposing twice is the identity."""

    @given(calls(kind, smooth=True), st.integers(0, 9))
    def law(application: Application, seed: int) -> None:
        program = application.program
        adjoint = transpose(program, (True,))
        assert transpose(adjoint, (True,)) is program
        whole, back = over_axes(program), over_axes(adjoint)
        dots, cts = random_tangents(whole.in_avals, seed), random_tangents(whole.out_avals, seed + 1)
        assert not inner_product_error(cts, run(whole, dots), run(back, cts), dots)

    law()


@every
def test_jvp(kind: type[Primitive]) -> None:
    @share(2)
    @given(calls(kind, smooth=True), st.integers(0, 9))
    def law(application: Application, seed: int) -> None:
        program = application.program
        if not any(a.inexact for a in program.in_avals):
            return
        args = stacked_operands(case_of(application))
        whole, forward = over_axes(program), over_axes(jvp(program, (True,))[0])
        dots = random_tangents(whole.in_avals, seed)
        found = run(forward, [*args, *dots])
        every = (True,) * len(dots)
        assert not tangent_error(lambda t: run(whole, step_along(args, dots, every, t)), found[1:])

    law()


@given(cases(steps=COLLECTIVE_STEPS, size=6))
def test_generated_programs(case: Case) -> None:
    check_collectives(case)


@given(cases(differentiable=True, steps=COLLECTIVE_STEPS, size=6))
def test_gradients_of_generated_programs(case: Case) -> None:
    check_collective_gradients(case)


def test_few_generated_programs_are_refused() -> None:
    """Most programs have collectives, in bodies too, and vmap refuses few of them."""
    seen: list[tuple[bool, bool]] = []

    @settings(max_examples=40, derandomize=True, database=None, phases=[Phase.generate])
    @given(cases(steps=COLLECTIVE_STEPS, size=6))
    def look(case: Case) -> None:
        seen.append((check_collectives(case), bool(case.program.free_axes)))

    look()
    assert sum([done for done, _ in seen]) > 0.7 * len(seen)
    assert sum([done and free for done, free in seen]) > 0.4 * len(seen)
