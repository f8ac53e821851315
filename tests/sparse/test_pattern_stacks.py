"""Patterns of programs under stacks of transformations, to depth 4. Deeply: `FXAD_PROFILE=deep`."""

from __future__ import annotations

from hypothesis import given

from fxad.testing import Case, cases, stacks
from fxad.testing.sparse_laws import check_pattern_covers, check_pattern_is_exact
from tests.laws.budget import share
from tests.sparse.stacked import programs_of

_LARGEST = 60  # elements of all operands: one product for each


@share(4)
@given(cases(differentiable=True, size=5, depth=1), stacks())
def test_no_nonzero_is_missed_after_a_stack(case: Case, stack: tuple[str, ...]) -> None:
    """The pattern of what a stack of transformations returns covers its Jacobian; so do those on the way. It has no
    entry without a path, if its primitives have exact rules."""
    for drawn in programs_of(case, stack):
        wrt = tuple([a.inexact for a in drawn.program.in_avals])
        if not any(wrt) or sum([a.size for a in drawn.program.in_avals if a.inexact]) > _LARGEST:
            return
        check_pattern_covers(drawn.program, wrt, drawn.args)
        check_pattern_is_exact(drawn.program, wrt, drawn.args)
