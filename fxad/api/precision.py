"""`rounding_errors`, `shadow`, `cast`, `plan_precision`: the digits that a program loses, and programs in mixed precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, isnan, sqrt
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar, overload

import numpy as np

from fxad import dtypes
from fxad.api.lift import check_program, lift
from fxad.core.trees import tree
from fxad.dtypes import DType
from fxad.errors import ArgumentError, DTypeError, NotDifferentiableError, ParameterError, described, shown
from fxad.execution.executable import Executable, lower
from fxad.ir import Aval, Jaxpr, NDArray, all_prims, distinct_jaxprs
from fxad.primitives.elementwise.convert import StopGradient
from fxad.runtime import CompileOptions
from fxad.tracing.program import Program, numpy_operands
from fxad.transforms.memory.policies import Policy, check_policy
from fxad.transforms.precision.bounds import with_bounds
from fxad.transforms.precision.cast import cast as cast_of_jaxpr, sensitive_operations
from fxad.transforms.precision.plan import PrecisionPlan, planned
from fxad.transforms.precision.retype import unit_roundoff
from fxad.transforms.precision.rounding import is_single, weighted_errors, weights_of, with_accumulators
from fxad.transforms.precision.shadow import Shadow, shadow as shadow_of_jaxpr, with_causes_of
from fxad.transforms.precision.table import RoundingErrors, relative_to, table_of
from fxad.transforms.precision.taps import ACCUMULATOR, SumRequest

P = ParamSpec("P")
R = TypeVar("R")

_WIDE: Final[Mapping[str, str]] = MappingProxyType({"c": "complex128", "f": "float64", "V": "float64"})

_HARMLESS: Final = 10.0  # the factor within which the estimated error is that of a shadow run

# without it, XLA may compute in float32 what a program computes in bfloat16
_AS_WRITTEN: Final = CompileOptions(flags=(("xla_allow_excess_precision", False),))


def rounding_errors(program: Program[..., object], /, *args: object, **kwargs: object) -> RoundingErrors:
    """Return the rounding errors of a program for some arguments: a table with a row for each equation that rounds.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> def root(b):
    ...     return fnp.sqrt(b * b - 4) - b
    >>> table = fx.rounding_errors(fx.trace(root, fx.Spec((), "float32")), 1000.0)
    >>> worst = table.worst[0]
    >>> worst.primitive, worst.line.line
    ('sqrt', 2)
    >>> [row.causes for row in table if row.causes]
    [('cancellation of 6 digits',)]

    The error of an equation is the difference between its result and that of the same equation in a wider dtype, over
    the same operands. Its effect on the results is that difference times the adjoint: the derivative of the results by
    the result of the equation, all of which one reverse pass computes. Arguments and literals count as exact. The
    equations are those of the program, also those in the bodies of calls, loops, branches and functions with custom
    rules, each rounded as `interpret` does: a compiler that fuses a product with a sum rounds less often. Errors
    of values behind `stop_gradient` count too, unless one has no derivative: then `table.stopped` is True.

    For one real result, `table.error` is the size of its error to first order. For several, or arrays, it is an
    estimate of their Euclidean norm, with the results weighted by random numbers. An unbounded `while` counts with the
    steps that it takes for these arguments.

    An equation of 64 bits has no wider dtype. The errors of sums, products, quotients and square roots are computed by
    error-free transformations, others count as half a unit roundoff of the result.

    Raises: ArgumentError for a value that is not a Program, and what a call of it raises for arguments that do not fit;
            NotDifferentiableError for a program without a floating result, and for an equation without a derivative.
    Cost:   one gradient by nothing but intermediate values, each equation once more in the wider dtype, and one reading
            of each result; `benchmarks/precision.py` measures it. If the error is not finite, one shadow run too.
    Source: Langlois, Automatic linear correction of rounding errors (2001); Vassiliadis, Chassin, Menon, Towards
            automatic significance analysis (2016), for errors by adjoints.
    """
    check_program("rounding_errors", program)
    jaxpr, operands = numpy_operands(program, args, kwargs)
    inexact = [a for a in jaxpr.out_avals if a.inexact]
    if not inexact:
        raise NotDifferentiableError(
            f"rounding_errors: {program.name} has no floating result: ({', '.join([str(a) for a in jaxpr.out_avals])})",
            remedy="return the floating values whose errors matter; integers and bools are exact",
        )
    request = SumRequest(squares=not is_single(inexact), overflows=True)
    table = _table(jaxpr, operands, request)
    if isfinite(table.error):
        return table
    # where an infinite value ends in a finite one, or meets a derivative of 0, the adjoint does not lead to its origin
    beside = shadow_of_jaxpr(jaxpr, operands)
    if isfinite(beside.error):
        plain = _table(jaxpr, operands, replace(request, overflows=False))
        if isfinite(plain.error) and beside.error <= _HARMLESS * (plain.error + plain.unit_roundoff * plain.size):
            return plain  # a `where` discards what overflows
    return with_causes_of(table, beside)


def shadow(program: Program[..., object], /, *args: object, **kwargs: object) -> Shadow:
    """Run a program beside one in higher precision, equation by equation, and return how far they are apart.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> program = fx.trace(lambda b: fnp.sqrt(b * b - 4) - b, fx.Spec((), "float32"))
    >>> [row.causes for row in fx.shadow(program, 1000.0) if row.causes]
    [('cancellation of 5 digits',)]

    The higher precision is float64 for programs of 32 bits and less, and pairs of float64 (106 bits) for programs in
    float64. Both runs are interpreted in NumPy, and take the same steps and branches. This is what `rounding_errors`
    estimates without a second run.

    Raises: ArgumentError for a value that is not a Program, and what a call of it raises for arguments that do not fit.
    Cost:   that of `interpret`, in both precisions.
    """
    check_program("shadow", program)
    jaxpr, operands = numpy_operands(program, args, kwargs)
    return shadow_of_jaxpr(jaxpr, operands)


@overload
def cast(f: Program[P, R], /, dtype: Any, *, keep: Policy | PrecisionPlan | None = None) -> Program[P, R]: ...
@overload
def cast(f: Callable[P, R], /, dtype: Any, *, keep: Policy | None = None) -> Callable[P, R]: ...
def cast(f: Callable[..., object], /, dtype: Any, *, keep: Policy | PrecisionPlan | None = None) -> object:
    """Return a program in mixed precision: equations over wider floating values compute in `dtype`, except those that
    `keep` selects. Arguments and results keep their types.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> def layer(w, x):
    ...     return fnp.tanh(x @ w).sum()
    >>> program = fx.trace(layer, fx.Spec((8, 8), "float32"), fx.Spec((4, 8), "float32"))
    >>> [str(v.aval) for eqn in fx.cast(program, "bfloat16").jaxpr.eqns for v in eqn.outs][2:]
    ['bf16[4,8]', 'bf16[4,8]', 'f32[4,8]', 'f32[]']

    `keep` is a policy, as for `remat`: `~policies.dots` casts matrix products and convolutions and nothing else,
    `policies.names("logits")` keeps what `checkpoint_name` labels, `sensitive_operations | policies.where(f)` keeps more
    than the default. The default, `fx.sensitive_operations`, keeps sums of many terms, softmax, exponentials, logarithms,
    powers, and single numbers. A plan of `plan_precision` is a policy too: what it does not
    decide has no rounding error, and computes in the dtype of its operands. Equations that have no meaning in `dtype`, such
    as decompositions of matrices in 16 bits, stay as they are, and so do those with a literal that would become infinite
    or zero.

    Operations that copy elements take the dtype of what they copy. Carries of loops, and the operands and results of
    branches and of functions with custom rules, keep their types; their bodies compute in `dtype`. So cast before `grad`:
    the values that the backward pass reads are then stored in `dtype`.

    Law:    `cast(f, dtype, keep=policies.everything)` computes what f does; `cast(cast(f, dtype), dtype)` is `cast(f,
            dtype)`.
    Raises: DTypeError for a dtype that is not floating; ParameterError for a program without a floating value of more
            digits; ArgumentError for what is neither a policy nor a plan, and for the plan of another program.
    Cost:   linear in the distinct equations.
    Source: Micikevicius et al., Mixed precision training (2018).
    """
    target_dtype = _floating("cast", dtype)
    policy = sensitive_operations if keep is None else keep
    if not isinstance(policy, PrecisionPlan):
        policy = check_policy("cast", policy)

    def transform(program: Program[..., object]) -> Program[..., object]:
        _check_wider("cast", program, target_dtype)
        if not isinstance(policy, PrecisionPlan):
            return program.replace(cast_of_jaxpr(program.jaxpr, target_dtype, policy))
        if policy.jaxpr is not program.jaxpr:
            raise ArgumentError(
                f"cast: the plan is for another program: {policy.jaxpr!r}, this is {program.jaxpr!r}",
                remedy="make it with plan_precision(program, *args, tolerance=...) of this very program",
            )
        if policy.dtype != target_dtype:
            raise ArgumentError(
                f"cast: the plan is for {policy.dtype}, and the dtype is {target_dtype}",
                remedy="cast(program, plan.dtype, keep=plan)",
            )
        return program.replace(cast_of_jaxpr(program.jaxpr, target_dtype, policy.decisions))

    return lift("cast", f, transform)


def plan_precision(
    program: Program[..., object],
    /,
    *args: object,
    tolerance: float,
    dtype: Any = "bfloat16",
    plan: PrecisionPlan | None = None,
    **kwargs: object,
) -> PrecisionPlan:
    """Return a plan of mixed precision whose compiled program is within a tolerance of the program, for some arguments.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> def f(x):
    ...     return fnp.sum(fnp.sin(x) * x)
    >>> x = fnp.linspace(0.0, 1.0, 64)
    >>> program = fx.trace(f, x)
    >>> plan = fx.plan_precision(program, x, tolerance=1e-2)
    >>> plan.error <= 1e-2, [row.cast for row in plan]
    (True, [True, True, True])
    >>> mixed = fx.cast(program, plan.dtype, keep=plan)

    The table of `rounding_errors` says how much an error of each equation changes the results. Equations whose errors in
    `dtype` fit into the tolerance together are cast, first those that take the most time for the error that they add. The
    program is then compiled, run on the arguments, and compared with the program in its own precision: the Euclidean norm
    of the difference of all floating results, divided by that of the results, is at most `tolerance`. If it is not, fewer
    equations are cast. With `plan`, an edited plan, nothing is chosen: it is measured.

    Raises: ArgumentError for a value that is not a Program, for a plan of another program, and what a call of the program
            raises for arguments that do not fit; ParameterError for a tolerance that is not a positive number, for a
            program without a floating value of more digits, for a plan that does not hold, and for a program whose
            results differ from run to run; DTypeError for a dtype that is not floating; NotDifferentiableError, as
            `rounding_errors`.
    Cost:   one table, and a compilation for each plan that is tried: one, as a rule.
    """
    check_program("plan_precision", program, ", tolerance=...")
    if plan is not None and not isinstance(plan, PrecisionPlan):
        raise ArgumentError(
            f"plan_precision: the plan is {described(plan)}: {shown(plan)}",
            remedy="give a plan that plan_precision returned, or leave it out",
        )
    target_dtype = _floating("plan_precision", plan.dtype if plan is not None else dtype)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < inf:
        raise ParameterError(
            f"plan_precision: the tolerance is {shown(tolerance)}, not a positive number",
            remedy="give the largest relative error of the results, as in tolerance=1e-2",
        )
    _check_wider("plan_precision", program, target_dtype)
    jaxpr, operands = numpy_operands(program, args, kwargs)
    if plan is not None:
        return _edited_plan(plan, jaxpr, operands, float(tolerance))
    return _first_plan_that_holds(jaxpr, operands, target_dtype, float(tolerance), program.name)


def _edited_plan(plan: PrecisionPlan, jaxpr: Jaxpr, operands: Sequence[NDArray], tolerance: float) -> PrecisionPlan:
    """Return a plan with its measured error. Raises: ArgumentError for another program; ParameterError if it does not
    hold."""
    if plan.jaxpr is not jaxpr:
        raise ArgumentError(
            f"plan_precision: the plan is for another program: {plan.jaxpr!r}, this is {jaxpr!r}",
            remedy="edit a plan of this very program",
        )
    error = _error_of(plan, operands, _run_compiled(jaxpr, operands))
    if not error <= tolerance:
        raise ParameterError(
            f"plan_precision: the plan gives a relative error of {error:.2g}, more than {tolerance:g}",
            remedy="keep more rows, or give a larger tolerance",
        )
    return replace(plan, error=error, tolerance=tolerance)


def _first_plan_that_holds(
    jaxpr: Jaxpr, operands: Sequence[NDArray], dtype: DType, tolerance: float, name: str
) -> PrecisionPlan:
    """Return the first plan, of those that cast less and less, whose measured error is within the tolerance."""
    expected = _run_compiled(jaxpr, operands)
    table = _table(jaxpr, operands, SumRequest(squares=True, sizes=True))
    error = inf
    for share in _SHARES:
        plan = planned(jaxpr, table, dtype, tolerance, share)
        error = _error_of(plan, operands, expected)
        if error <= tolerance:
            return replace(plan, error=error)
    raise ParameterError(  # the last plan is the program itself
        f"plan_precision: two runs of {name} for the same arguments differ by {error:.2g}",
        remedy="leave out functions of the host that return other values in each call",
    )


def _error_of(plan: PrecisionPlan, operands: Sequence[NDArray], expected: Sequence[NDArray]) -> float:
    """Return the error of the results of a plan, compiled and run."""
    return _distance(expected, _run_compiled(cast_of_jaxpr(plan.jaxpr, plan.dtype, plan.decisions), operands))


# of the tolerance, for the plans that are compiled, in their order; the last plan casts nothing
_SHARES: Final = (*[4.0**-k for k in range(6)], 0.0)


def _floating(what: str, dtype: Any) -> DType:
    floating_dtype = dtypes.as_dtype(dtype)
    if floating_dtype not in dtypes.FLOATING:
        raise DTypeError(
            f"{what}: {floating_dtype} is not a floating dtype", remedy='give "bfloat16", "float16" or "float32"'
        )
    return floating_dtype


def _check_wider(what: str, program: Program[..., object], dtype: DType) -> None:
    wider_dtypes = {d for d in dtypes.FLOATING if unit_roundoff(d) < unit_roundoff(dtype)}
    for body in distinct_jaxprs(program.jaxpr):
        if any([a.dtype in wider_dtypes for a in body.in_avals]) or any(
            [v.aval.dtype in wider_dtypes for e in body.eqns for v in e.outs]
        ):
            return
    raise ParameterError(
        f"{what}: {program.name} has no floating value of more digits than {dtype}",
        remedy="cast a program of a wider dtype; integers and bools are not cast",
    )


def _run_compiled(jaxpr: Jaxpr, operands: Sequence[NDArray]) -> list[NDArray]:
    """Return the floating results of a program, compiled as for users."""
    run = lower(_flat(jaxpr)).compile()
    return [np.asarray(x) for x, a in zip(run(*operands), jaxpr.out_avals, strict=True) if a.inexact]


def _distance(exact: Sequence[NDArray], results: Sequence[NDArray]) -> float:
    """Return the Euclidean norm of the difference, relative to that of the exact results; inf if it is not finite. Two
    nan are equal."""
    with np.errstate(all="ignore"):
        pairs = [
            (np.asarray(x, _WIDE[x.dtype.kind]), np.asarray(y, _WIDE[x.dtype.kind]))
            for x, y in zip(exact, results, strict=True)
        ]
        error = sqrt(
            sum(
                [
                    float((np.abs(np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, x - y)) ** 2).sum())
                    for x, y in pairs
                ]
            )
        )
        size = sqrt(sum([float((np.abs(x) ** 2).sum()) for x, _ in pairs]))
    return inf if isnan(error) else relative_to(error, size)


def _table(jaxpr: Jaxpr, operands: Sequence[NDArray], request: SumRequest) -> RoundingErrors:
    try:
        return _table_of(jaxpr, operands, request)
    except NotDifferentiableError:
        if not any([isinstance(prim, StopGradient) for prim in all_prims(jaxpr)]):
            raise
        return replace(_table_of(jaxpr, operands, replace(request, stops=True)), stopped=True)


def _table_of(jaxpr: Jaxpr, operands: Sequence[NDArray], request: SumRequest) -> RoundingErrors:
    bounded = with_bounds(jaxpr, operands)
    run, weighted = weighted_executable(bounded, operands, request)
    *_, size, sums = run(*weighted)
    sites = with_accumulators(bounded, request).sites
    single = is_single([a for a in jaxpr.out_avals if a.inexact])
    return table_of(jaxpr, sites, np.asarray(sums), float(np.asarray(size)), single, tuple(operands))


def weighted_executable(
    bounded: Jaxpr, operands: Sequence[NDArray], request: SumRequest
) -> tuple[Executable[..., tuple[Any, ...]], list[NDArray]]:
    """Return the executable of the pass of `rounding_errors` over a program with bounds, and its operands."""
    inexact = [a for a in bounded.out_avals if a.inexact]
    return _as_written(weighted_errors(bounded, request)), [*operands, *_weights(inexact)]


def _flat(jaxpr: Jaxpr) -> Program[..., tuple[Any, ...]]:
    """Return a program over flat operands."""
    ins, outs = tree.structure(((0,) * len(jaxpr.ins), {})), tree.structure((0,) * len(jaxpr.outs))
    return Program(jaxpr, ins, outs, (), tuple([f"operand_{k}" for k in range(len(jaxpr.ins))]), jaxpr.name)


def _as_written(jaxpr: Jaxpr) -> Executable[..., tuple[Any, ...]]:
    """Return a program, compiled so that each equation rounds to its dtype."""
    return lower(_flat(jaxpr)).compile(_AS_WRITTEN)


def _weights(results: Sequence[Aval]) -> list[NDArray]:
    """Return the accumulator, and the weights of the floating results. It is -0.0, to which a sum adds without a
    change: 0.0 + -0.0 would be 0.0."""
    return [np.full(ACCUMULATOR.shape, -0.0), *weights_of(results)]
