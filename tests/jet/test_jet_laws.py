"""Taylor series of generated programs, and of every primitive."""

from __future__ import annotations

import pytest
from hypothesis import given

from fxad.testing import Case, cases
from fxad.testing.jet_laws import check_jet


@pytest.mark.law
def test_differentiable_programs() -> None:
    @given(cases(differentiable=True))
    def law(case: Case) -> None:
        check_jet(case)

    law()
