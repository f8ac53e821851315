"""The laws of fxad, also for your own primitives and transformations: strategies that draw programs, and checkers.

Needs the `testing` extra: `pip install 'fxad[testing]'`.

A checker is a function that raises an AssertionError with the law, the program and its operands. A strategy is one of
hypothesis. Together they are a property test:

    from hypothesis import given, settings
    from fxad.testing import SETTINGS, calls, cases, check_primitive, check_vmap

    @settings(SETTINGS)
    @given(calls(Sin, smooth=True))
    def test_sin(application):
        check_primitive(application)

    @settings(SETTINGS)
    @given(cases(differentiable=True))
    def test_vmap(case):
        check_vmap(case)

A primitive of your own: give an application of it, or a strategy that draws parameters, operand types and domains.

    >>> import numpy as np
    >>> from fxad.ir import Aval
    >>> from fxad.primitives.elementwise import SIN
    >>> from fxad.testing import Application, Domain, applications, cases, check_primitive
    >>> check_primitive(Application(SIN, (np.array([0.1, 0.2, 0.3]),), smooth=True))
    >>> def specs(draw, smooth):
    ...     return SIN, [(Aval((3,), "float64"), Domain(-1.0, 1.0))]
    >>> strategy = applications(specs, smooth=True)  # for @given
    >>> programs_with_it = cases(primitives=[specs])  # likewise, for the laws of transformations

A transformation of your own that keeps the meaning of programs: `check_rewrite(transform, case)`,
`check_rewrite_under_vmap` and `check_rewrite_keeps_gradients`; any other: `check_transform(transform, program)`.

If a law fails at a `Case` in a test of hypothesis, its error has a note with the smallest program that violates the
law; `reproduce(text, law)` runs the law at it. `compiled_differs` and `gives_nan` are predicates for
`fx.reduce_program`; `in_child(fails, seconds)` makes one that runs in a process of its own.
"""

from __future__ import annotations

try:
    from hypothesis import HealthCheck as _HealthCheck, settings as _settings
except ImportError as e:  # pragma: no cover
    raise ImportError("fxad.testing draws programs with hypothesis: pip install 'fxad[testing]'") from e

from fxad.diagnosis.reduce.child import in_child
from fxad.diagnosis.reduce.reading import read_reduced
from fxad.testing.applications import Application, DrawnOperands, DrawOperands, applications
from fxad.testing.batching_laws import check_vmap, check_vmap_commutes, check_vmap_identity, check_vmap_nested
from fxad.testing.budget_laws import check_budgets, check_recomputations
from fxad.testing.calls import SPECS, calls
from fxad.testing.compare import close, differ, tolerance, xla
from fxad.testing.custom_laws import check_adjoint, check_rule
from fxad.testing.derivative_laws import (
    check_grad,
    check_jacobian,
    check_linearize,
    check_program_jvp,
    check_program_transpose,
    check_remat,
    check_second_order,
    check_tangents_transpose,
    check_vjp,
)
from fxad.testing.equality_laws import check_equal
from fxad.testing.equality_pairs import EQUAL_PAIRS, check_equal_pairs
from fxad.testing.implicit_laws import check_implicit
from fxad.testing.inverse_laws import check_inverse, check_invertible
from fxad.testing.inversions import Inversion, inversions
from fxad.testing.mask_applications import ragged_applications
from fxad.testing.mask_laws import check_mask
from fxad.testing.mask_stacks import MASK_STEPS, check_mask_stack, mask_stacks
from fxad.testing.memory_laws import (
    check_partial_eval,
    check_plan,
    check_policy,
    check_segments,
    some_policies,
)
from fxad.testing.outline_laws import check_outline, check_outline_before_ad, check_reroll
from fxad.testing.primitive_laws import (
    check_batch,
    check_batched_linear,
    check_jvp,
    check_layout,
    check_lowering,
    check_primitive,
    check_text,
    check_transpose,
    check_types,
)
from fxad.testing.programs import Case, case, cases, programs
from fxad.testing.ragged_cases import RaggedCase, ragged_cases
from fxad.testing.reduced_laws import reproduce
from fxad.testing.reduced_predicates import compiled_differs, gives_nan
from fxad.testing.repeated import repeated, repeated_cases
from fxad.testing.rewrite_laws import check_rewrite_keeps_gradients, check_rewrite_under_vmap
from fxad.testing.solutions import Solution, solutions
from fxad.testing.sparse_laws import check_sparsity
from fxad.testing.stacks import STEPS, Step, check_stack, stacks
from fxad.testing.transform_laws import (
    check_cse,
    check_dce,
    check_inline,
    check_lower,
    check_rewrite,
    check_simplify,
    check_transform,
)
from fxad.testing.unit_laws import check_units
from fxad.testing.values import Domain, arrays, avals, literals, shapes

# Drawing a program takes longer than hypothesis expects: `@settings(SETTINGS, max_examples=50)`.
SETTINGS = _settings(
    deadline=None,
    suppress_health_check=[_HealthCheck.too_slow, _HealthCheck.data_too_large, _HealthCheck.filter_too_much],
)

__all__ = [
    "Application",
    "Case",
    "Domain",
    "EQUAL_PAIRS",
    "Inversion",
    "MASK_STEPS",
    "RaggedCase",
    "SETTINGS",
    "SPECS",
    "STEPS",
    "Solution",
    "DrawnOperands",
    "DrawOperands",
    "Step",
    "applications",
    "arrays",
    "avals",
    "calls",
    "case",
    "cases",
    "check_adjoint",
    "check_batch",
    "check_batched_linear",
    "check_cse",
    "check_dce",
    "check_equal",
    "check_equal_pairs",
    "check_grad",
    "check_implicit",
    "check_inline",
    "check_inverse",
    "check_invertible",
    "check_jacobian",
    "check_jvp",
    "check_layout",
    "check_linearize",
    "check_lower",
    "check_lowering",
    "check_mask",
    "check_mask_stack",
    "check_outline",
    "check_partial_eval",
    "check_budgets",
    "check_plan",
    "check_policy",
    "check_recomputations",
    "check_segments",
    "check_primitive",
    "check_program_jvp",
    "check_program_transpose",
    "check_remat",
    "check_outline_before_ad",
    "check_reroll",
    "check_rewrite",
    "check_rewrite_keeps_gradients",
    "check_rewrite_under_vmap",
    "check_rule",
    "check_second_order",
    "check_simplify",
    "check_sparsity",
    "check_stack",
    "check_tangents_transpose",
    "check_text",
    "check_transform",
    "check_transpose",
    "check_types",
    "check_units",
    "check_vjp",
    "check_vmap",
    "check_vmap_commutes",
    "check_vmap_identity",
    "check_vmap_nested",
    "close",
    "compiled_differs",
    "differ",
    "gives_nan",
    "in_child",
    "inversions",
    "literals",
    "mask_stacks",
    "programs",
    "ragged_applications",
    "ragged_cases",
    "read_reduced",
    "repeated",
    "repeated_cases",
    "reproduce",
    "shapes",
    "solutions",
    "some_policies",
    "stacks",
    "tolerance",
    "xla",
]


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
