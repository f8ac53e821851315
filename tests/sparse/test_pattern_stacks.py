"""Patterns of programs under stacks of transformations, to depth 4. Deeply: `FXAD_PROFILE=deep`."""

from __future__ import annotations

from hypothesis import given

from fxad.errors import NotDifferentiableError, NotLinearError
from fxad.testing import STEPS, Case, cases, stacks
from fxad.testing.sparse_laws import check_pattern_covers, check_pattern_is_exact
from tests.laws.budget import share

_LARGEST = 60  # elements of all operands: one product for each


@share(4)
@given(cases(differentiable=True, size=5, depth=1), stacks())
def test_no_nonzero_is_missed_after_a_stack(case: Case, stack: tuple[str, ...]) -> None:
    """The pattern of what a stack of transformations returns covers its Jacobian; so do those on the way. It has no
    entry without a path, if its primitives have exact rules."""
    for name in (*stack, None):
        wrt = tuple([a.inexact for a in case.program.in_avals])
        if not any(wrt) or sum([a.size for a in case.program.in_avals if a.inexact]) > _LARGEST:
            return
        check_pattern_covers(case.program, wrt, case.args)
        check_pattern_is_exact(case.program, wrt, case.args)
        if name is None:
            return
        try:
            after = STEPS[name].apply(case)
        except (NotDifferentiableError, NotLinearError):
            return
        if after is None:
            return
        case = after
