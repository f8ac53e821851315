"""Stacks of transforms: each step of a stack is a transformation, its law, and the program it leads to.

@given(cases(differentiable=True), stacks())
def test_stacks(case, stack):
    check_stack(stack, case)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np
from hypothesis import strategies as st

from fxad.core.dataclasses import dataclass
from fxad.core.flags import leading
from fxad.core.interpreter import run
from fxad.ir import Jaxpr, NDArray, distinct_jaxprs
from fxad.primitives.custom import rules_of
from fxad.testing import batching_laws, derivative_laws, outline_laws, transform_laws as laws
from fxad.testing.compare import differ, fail, program_tolerance, random_cotangents, random_tangents
from fxad.testing.law import law
from fxad.testing.programs import Case
from fxad.testing.values import examples, stack
from fxad.transforms import (
    cse,
    dce,
    grad,
    inline,
    jvp,
    linearize,
    outline,
    remat,
    reroll,
    simplify,
    transpose,
    value_and_grad,
    vjp_fused,
)
from fxad.transforms.vmap import vmap

Law: TypeAlias = Callable[[Case], None]


@final
@dataclass(frozen=True, slots=True)
class Step:
    """A step of a stack: a transformation of programs with operands.

    `apply` returns the next program and its operands, or None if it does not apply. `law` must hold for it. `rewrites`:
    the results do not change. The steps that lengthen a program are `fxad.testing.steps.GrowthStep`.
    """

    name: str
    apply: Callable[[Case], Case | None]
    law: Law
    rewrites: bool = False

    def __str__(self) -> str:
        return self.name


def _rewrite_case(transform: laws.Transform) -> Callable[[Case], Case | None]:
    return lambda case: replace(case, program=transform(case.program))


def _next_case(case: Case, program: Jaxpr, args: Sequence[NDArray]) -> Case:
    """Return `case` with the transformed program, its operands and the next seed: laws draw directions from the
    seed."""
    return replace(case, program=program, args=tuple(args), seed=case.seed + 1)


def _jvp(case: Case) -> Case | None:
    flags = derivative_laws.differentiable_flags(case)
    return _next_case(case, jvp(case.program, flags)[0], (*case.args, *derivative_laws.random_directions(case)))


def _linear(case: Case) -> Case | None:
    """Return the linear program with a tangent and the residuals as operands."""
    flags = derivative_laws.differentiable_flags(case)
    split = linearize(case.program, flags)
    directions = derivative_laws.random_directions(case)
    residuals = run(split.primal, case.args)[len(case.program.outs) :]
    # a stated derivative is right if the residuals change together, and not if one of them changes alone
    smooth = case.smooth and not _has_stated_derivative(split.linear)
    return replace(_next_case(case, split.linear, (*directions, *residuals)), smooth=smooth)


def _has_stated_derivative(program: Jaxpr) -> bool:
    every = [rules_of(eqn.prim) for body in distinct_jaxprs(program) for eqn in body.eqns]
    return any([rules.derivative_of is not None for rules in every])


def _adjoint(case: Case) -> Case | None:
    linear = _linear(case)
    assert linear is not None
    n = sum(derivative_laws.differentiable_flags(case))
    adjoint = transpose(linear.program, leading(n, len(linear.args)))
    cts = random_tangents(linear.program.out_avals, case.seed + 6)
    return replace(linear, program=adjoint, args=(*cts, *linear.args[n:]))


def _vjp(case: Case) -> Case | None:
    cts = random_cotangents(case.program, case.seed + 7)
    return _next_case(case, vjp_fused(case.program, derivative_laws.differentiable_flags(case)), (*case.args, *cts))


def _gradient(transform: Callable[[Jaxpr, tuple[bool, ...]], Jaxpr]) -> Callable[[Case], Case | None]:
    def apply(case: Case) -> Case | None:
        program, flags = derivative_laws.scalarized(case.program), derivative_laws.differentiable_flags(case)
        if not derivative_laws.has_gradient(program, flags):
            return None
        return _next_case(case, transform(program, flags), case.args)

    return apply


def _vmap_step(case: Case) -> Case | None:
    """Return vmap over two examples: the operands, and the same rolled. Rolled residuals may be none of the program,
    such as a singular factor; then both examples are the same."""
    at = batching_laws.mapped_dims(case)
    mapped = vmap(case.program, 2, at, (0,) * len(case.program.outs))[0]
    args = stack(examples(case.args, at), at)
    with np.errstate(all="ignore"):
        outs = run(mapped, args)
    if not all([np.isfinite(x).all() for x in outs if x.dtype.kind in "fc"]):
        args = stack(examples(case.args, at, shift=0), at)
    return _next_case(case, mapped, args)


def _no_law(case: Case) -> None:
    """Check nothing, for a step without a law of its own: `check_stack` compares results."""


def _rewrite(name: str, transform: laws.Transform, law: Law) -> Step:
    return Step(name, _rewrite_case(transform), law, rewrites=True)


STEPS: Final = MappingProxyType(
    {
        step.name: step
        for step in (
            Step("jvp", _jvp, derivative_laws.check_program_jvp),
            Step("vmap", _vmap_step, batching_laws.check_vmap),
            Step("linearize", _linear, derivative_laws.check_linearize),
            Step("transpose", _adjoint, derivative_laws.check_program_transpose),
            Step("vjp", _vjp, derivative_laws.check_vjp),
            Step("grad", _gradient(grad), derivative_laws.check_grad),
            Step("value_and_grad", _gradient(value_and_grad), derivative_laws.check_grad),
            _rewrite("remat", remat, derivative_laws.check_remat),
            _rewrite("call", laws.as_one_call, _no_law),
            _rewrite("dce", dce, laws.check_dce),
            _rewrite("cse", cse, laws.check_cse),
            _rewrite("simplify", simplify, laws.check_simplify),
            _rewrite("inline", inline, laws.check_inline),
            _rewrite("outline", outline, outline_laws.check_outline),
            _rewrite("reroll", reroll, outline_laws.check_reroll),
        )
    }
)


def stacks(depth: int = 4) -> st.SearchStrategy[tuple[str, ...]]:
    """Draw names of up to `depth` steps; most stacks have that depth."""
    return names_up_to(depth, STEPS)


def names_up_to(depth: int, names: Iterable[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Draw up to `depth` names, most often so many."""
    name = st.sampled_from([None, *names])
    return st.tuples(*[name] * depth).map(lambda drawn: tuple([n for n in drawn if n]))


@law
def check_stack(stack: Sequence[str], case: Case, *, compiled: bool = False) -> Case:
    """Check the law of every step for the program that the previous steps lead to. The final results equal those
    without the rewriting steps. `compiled`: compare in XLA too. Return the last program."""
    plain: Case | None = case
    for k, name in enumerate(stack):
        step = STEPS[name]
        try:
            step.law(case)
            after = step.apply(case)
        except Exception as e:
            e.add_note(f"in step {k} of {' > '.join(stack)}")
            raise
        if after is None:
            break
        case = after
        if plain is not None and not step.rewrites:
            plain = step.apply(plain) if name not in _OWN_OPERANDS else None
    laws.check_transform(lambda f: f, case.program)
    if plain is not None:
        actual, expected = run(case.program, case.args), run(plain.program, plain.args)
        if len(actual) == len(expected):  # which tangents vanish may differ
            problem = differ(actual, expected, slack=program_tolerance(plain.program, plain.args))
            if problem:
                fail(f"{' > '.join(stack)} differs from the stack without rewritings: {problem}", case.program)
    if compiled:
        laws.check_lower(case)
    return case


# Steps after which operands (residuals) depend on how the program was written.
_OWN_OPERANDS: Final = frozenset({"linearize", "transpose"})
