"""`remat`, `dce`, `cse`, `simplify`, `inline`, `apply_passes`: rewrites of a program with the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from fxad import transforms
from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.lift import before_differentiation, check_no_statics, check_program, lift
from fxad.core.trees import tree
from fxad.errors import ArgumentError, described, shown
from fxad.operations.arguments import parse_bytes
from fxad.passes import Passes, check_passes, run_passes
from fxad.primitives.marks import with_budget
from fxad.tracing.program import Program
from fxad.tracing.static_args import Argnames, Argnums
from fxad.transforms.memory.policies import Policy, check_policy, nothing
from fxad.transforms.memory.residuals import Residuals
from fxad.transforms.specialize import check_sizes, size_names, specialize as specialize_jaxpr

P = ParamSpec("P")
R = TypeVar("R")


@overload
def remat(f: NoFunction, **options: Any) -> Callable[..., Any]: ...
@overload
def remat(
    f: Program[P, R],
    *,
    policy: Policy | Callable[..., bool] | None = None,
    plan: Residuals | None = None,
    budget: int | str | None = None,
) -> Program[P, R]: ...
@overload
def remat(
    f: Callable[P, R],
    *,
    policy: Policy | Callable[..., bool] | None = None,
    budget: int | str | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    prevent_cse: bool | Sequence[object] = True,
) -> Callable[P, R]: ...
@overload
def remat(
    *,
    policy: Policy | Callable[..., bool] | None = None,
    budget: int | str | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    prevent_cse: bool | Sequence[object] = True,
) -> Rewrite: ...
@decorator_form
def remat(
    f: Any,
    *,
    policy: Policy | Callable[..., bool] | None = None,
    plan: Residuals | None = None,
    budget: int | str | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    prevent_cse: bool | Sequence[object] = True,
) -> object:
    """Return the same function. Reverse mode stores its arguments and the values that `policy` selects, and recomputes
    others.

    `remat` of a function that another function calls makes the call a segment; segments may be nested. `remat(policy=...)`
    alone is a decorator. Policies are values, in `fxad.policies`, or functions `(prim, *avals, **params)` as in JAX; None
    stores nothing. `prevent_cse` is JAX's option, a bool or a tree of bools: a recompute is real for all of them. `plan`
    is the result of `residuals(program)` for this program, edited. Static arguments, by number or by name, are hashable
    values that are passed to `f` unchanged; so are those that `f` declares static.

    `budget` is a number of bytes, or a text such as "64 MiB". The executable that the function becomes part of, in a
    derivative or a larger step, has at most so many bytes of temporaries: values are computed again until it fits
    (`Lowered.compile`). `plan_memory` shows the plan of a program.

    Law:    same value and, bitwise up to the sign of a zero, the same gradient, even if segments share values; the
            compiled program stores the residuals of the program (CPU). The last bits of a compiled program may differ if XLA contracts `a * b + c`
            within a fusion and chooses other fusions.
    Cost:   the backward program recomputes the part of the forward computation that is not stored.
    Raises: ArgumentError for an invalid policy or budget, and for a plan of another program; BudgetError, when the
            executable is compiled, for a budget into which nothing fits, with the least bytes that were reached.
    """
    wrong = [x for x in tree.leaves(prevent_cse) if not isinstance(x, bool)]
    if wrong:
        raise ArgumentError(
            f"remat: prevent_cse is {described(wrong[0])}, not a bool: {shown(wrong[0])}",
            remedy="leave it out: a recompute is always real",
        )
    policy = check_policy("remat", nothing if policy is None else policy)
    if plan is not None:
        _check_plan(f, policy, plan)
        if budget is not None:
            raise ArgumentError("remat: both a plan and a budget are given", remedy="give one; a budget chooses a plan")
    if plan is not None:
        check_no_statics("remat", f, static_argnums, static_argnames)
        return f.replace(transforms.with_planned_residuals(before_differentiation(f).jaxpr, plan))
    limit = None if budget is None else parse_bytes("remat", budget)
    if limit is not None and policy != nothing:
        raise ArgumentError(
            f"remat: both a budget and the policy {policy} are given", remedy="give one; a budget chooses the policies"
        )

    def transform(p: Program[..., object]) -> Program[..., object]:
        return p.replace(transforms.remat(p.jaxpr, policy) if limit is None else with_budget(p.jaxpr, limit))

    return lift(
        "remat",
        f,
        transform,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
    )


def _check_plan(f: object, policy: Policy, plan: object) -> None:
    if not isinstance(plan, Residuals):
        raise ArgumentError(
            f"remat: plan is {described(plan)}, not what residuals(program) gives: {shown(plan)}",
            remedy="plan=residuals(program).without(k)",
        )
    if not isinstance(f, Program):
        raise ArgumentError(
            f"remat: a plan is for a Program, got {shown(f)}",
            remedy="trace the function: remat(trace(f, *examples), ...)",
        )
    if policy != nothing:
        raise ArgumentError(
            f"remat: both a plan and the policy {policy} are given", remedy="give one; a plan says of each value what"
        )


@overload
def dce(f: Program[P, R]) -> Program[P, R]: ...
@overload
def dce(f: Callable[P, R]) -> Callable[P, R]: ...
def dce(f: Callable[..., object]) -> object:
    """Return the same function without unused equations, including those in bodies of calls."""
    return lift("dce", f, lambda p: p.replace(transforms.dce(p.jaxpr)))


@overload
def cse(f: Program[P, R]) -> Program[P, R]: ...
@overload
def cse(f: Callable[P, R]) -> Callable[P, R]: ...
def cse(f: Callable[..., object]) -> object:
    """Return the same function with equal equations computed once."""
    return lift("cse", f, lambda p: p.replace(transforms.cse(p.jaxpr)))


@overload
def simplify(f: Program[P, R]) -> Program[P, R]: ...
@overload
def simplify(f: Callable[P, R]) -> Callable[P, R]: ...
def simplify(f: Callable[..., object]) -> object:
    """Return the same function with constants folded and identities removed; never changes a floating result."""
    return lift("simplify", f, lambda p: p.replace(transforms.simplify(p.jaxpr)))


def specialize(program: Program[P, R], /, **sizes: int) -> Program[P, R]:
    """Return the program of symbolic shape with named sizes replaced by ints: `specialize(program, n=32)`.

    Law:    the same object as the program that is traced at those sizes, where the function uses its sizes in shapes
            and as values; no Python code of the function runs. At sizes 0 and 1 some functions trace less, as a slice
            without elements: then the results are equal.
    Cost:   one pass over the program, once.
    Raises: ArgumentError for a name that the program does not have; ShapeError for a size below its assumption.
    """
    check_program("specialize", program, ", n=...")
    values = check_sizes("specialize", size_names(program.jaxpr), dict(sizes))
    return program.replace(specialize_jaxpr(program.jaxpr, values))


@overload
def inline(f: Program[P, R]) -> Program[P, R]: ...
@overload
def inline(f: Callable[P, R]) -> Callable[P, R]: ...
def inline(f: Callable[..., object]) -> object:
    """Return the same function without `call` equations, at any depth."""
    return lift("inline", f, lambda p: p.replace(transforms.inline(p.jaxpr)))


@overload
def apply_passes(f: NoFunction, **options: Any) -> Callable[..., Any]: ...
@overload
def apply_passes(f: Program[P, R], passes: Passes) -> Program[P, R]: ...
@overload
def apply_passes(f: Callable[P, R], passes: Passes) -> Callable[P, R]: ...
@overload
def apply_passes(*, passes: Passes) -> Rewrite: ...
@decorator_form
def apply_passes(f: Callable[..., object], passes: Passes) -> object:
    """Return the same function after all passes of a tuple, in order: those of the default pipeline, or others.

    A program or a function that is differentiated goes through `fxad.passes.BEFORE_DIFFERENTIATION` first. So
    `apply_passes(program, BEFORE_DIFFERENTIATION)` is the program that `grad(program)` differentiates.

    Raises: ParameterError for a value that is not a tuple of passes; ArgumentError for a pass that does not keep the
            types.
    """
    check_passes("apply_passes", passes, optional=False)
    return lift("apply_passes", f, lambda p: p.replace(run_passes(p.jaxpr, passes)))
