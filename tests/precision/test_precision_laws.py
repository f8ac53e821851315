"""Laws on generated programs: the passes keep results, tables agree with the shadow run, casts keep types.

Deeply: FXAD_PROFILE=deep python -m pytest tests/precision/test_precision_laws.py
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from fxad import dtypes, policies
from fxad.testing import Case, cases
from fxad.testing.precision_laws import check_cast, check_errors_add_up, check_same_results
from fxad.transforms.precision.cast import sensitive_operations
from fxad.transforms.precision.retype import retyped
from tests.laws.budget import share


@share(40)
@given(cases(differentiable=True, unbounded=True))
def test_the_passes_keep_results(case: Case) -> None:
    check_same_results(case.program, [np.asarray(a) for a in case.args])


TO_32_BITS = ((dtypes.float64, dtypes.float32), (dtypes.complex128, dtypes.complex64))


@share(60)
@given(cases(differentiable=True, unbounded=True))
def test_a_table_agrees_with_the_shadow_run(case: Case) -> None:
    """Generated programs are in float64. In float32 the table measures each error. Within three digits: the results are
    arrays, whose error is estimated by one random weight for each element."""
    program, types = retyped(case.program, TO_32_BITS), dict(TO_32_BITS)
    args = [np.asarray(a) for a in case.args]
    if any([a.inexact for a in program.out_avals]):
        check_errors_add_up(program, [a.astype(types.get(a.dtype, a.dtype)) for a in args], 1000.0)


@pytest.mark.parametrize("policy", [policies.nothing, policies.dots, sensitive_operations], ids=str)
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16, dtypes.float32], ids=str)
def test_a_cast_program_keeps_its_types(dtype: dtypes.DType, policy: policies.Policy) -> None:
    @share(12)
    @given(cases(differentiable=True, unbounded=True))
    def law(case: Case) -> None:
        check_cast(case.program, dtype, policy, [np.asarray(a) for a in case.args])

    law()
