"""Checks of users' rules against the functions that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

import numpy as np

from fxad import transforms
from fxad.api.custom_function import CustomFunction
from fxad.core.interpreter import run
from fxad.core.trees import tree
from fxad.errors import ArgumentError, described
from fxad.ir import NDArray
from fxad.lax.linear import linear_call
from fxad.testing.compare import differ, inner_product_error, random_cotangents, random_tangents
from fxad.testing.values import examples, stack
from fxad.tracing.array import aval_of
from fxad.tracing.context import MappedAxis, mapped_over
from fxad.tracing.program import Program, function_name
from fxad.tracing.trace import trace
from fxad.transforms.vmap import vmap as vmap_jaxpr

P = ParamSpec("P")
R = TypeVar("R")
_SIZE: Final = 3  # size of the stack on which a rule for any size is tried


def check_rule(function: CustomFunction[P, R], *args: object, seed: int = 0, rtol: float = 0.0) -> None:
    """Check that the rules of a function agree, at `args` and along random directions, with the derivatives of the
    function itself.

    Compares results, tangents, cotangents and, for each size of `def_vmap` (3 for a rule for any size), batches.
    Arguments in `nondiff_argnums` are passed unchanged. `rtol` is the allowed difference beyond the tolerance of the
    dtype, relative to the largest magnitude.
    Raises: AssertionError naming the difference, its path and both values; ArgumentError for a function without rules.
    """
    if not isinstance(function, CustomFunction) or not function.rules:
        raise ArgumentError(
            f"check_rule: {described(function)} has no rules", remedy="give it one: defjvp, defvjp, def_vmap"
        )
    static = {k: a for k, a in enumerate(args) if k in function.nondiff_argnums}
    dynamic = [a for k, a in enumerate(args) if k not in static]

    def over(f: Callable[..., object]) -> Callable[..., object]:
        def whole(*dynamic_args: object) -> object:
            rest = iter(dynamic_args)
            return f(*[static[k] if k in static else next(rest) for k in range(len(args))])

        return whole

    sizes = (_SIZE,) if function.axis_sizes is None else function.axis_sizes
    with mapped_over(MappedAxis(_SIZE)):
        programs = [trace(over(f), *dynamic) for f in (function, function.fun)]
    ruled, plain = [_values_by_name(program, dynamic, function.rules, sizes, seed) for program in programs]
    for what, expected in plain.items():
        if problem := differ([ruled[what]], [expected], slack=rtol):
            raise AssertionError(f"{function_name(function.fun)}: {what} differs from what is derived: {problem}")


def _values_by_name(
    program: Program[..., object], args: Sequence[object], rules: Sequence[str], sizes: Sequence[int], seed: int
) -> dict[str, NDArray]:
    """Return results, tangents, cotangents and batches of a program."""
    jaxpr, n = program.jaxpr, len(program.out_avals)
    values = (*program.bound, *tree.leaves(args))
    operands = [np.asarray(x, a.dtype) for x, a in zip(values, jaxpr.in_avals, strict=True)]
    paths = tree.paths(program.out_tree, "result")
    named_values: dict[str, NDArray] = dict(zip(paths, run(jaxpr, operands), strict=True))
    perturbed = tuple([a.inexact for a in program.in_avals])
    if "jvp" in rules or "vjp" in rules:
        mask = (False,) * len(program.bound) + perturbed
        directions = random_tangents([a for a in program.in_avals if a.inexact], seed)
        cts = random_cotangents(jaxpr, seed + 1)
        fused, nonzero = transforms.jvp(jaxpr, mask)
        pushed = iter(run(fused, [*operands, *directions])[n:])
        for path, aval, moves in zip(paths, program.out_avals, nonzero, strict=True):
            named_values[f"tangent of {path}"] = next(pushed) if moves else np.zeros(aval.shape, aval.dtype)
        both = run(transforms.vjp_fused(jaxpr, mask), [*operands, *cts])
        named_values |= {f"{p}, with residuals": x for p, x in zip(paths, both, strict=False)}
        named = [p for p, m in zip(program.paths, perturbed, strict=True) if m]
        named_values |= {f"cotangent of {p}": x for p, x in zip(named, both[n:], strict=True)}
    for size in sizes:
        dims = (None,) * len(program.bound) + (0,) * len(program.in_avals)
        stacks = stack(examples(operands, dims, size), dims)
        batched, _ = vmap_jaxpr(jaxpr, size, dims, (0,) * n)
        named_values |= {f"{p} of a stack of {size}": x for p, x in zip(paths, run(batched, stacks), strict=True)}
    return named_values


def check_adjoint(
    fun: Callable[..., object],
    fun_transpose: Callable[..., object],
    residual_args: object,
    linear_args: object,
    seed: int = 0,
) -> None:
    """Check that the two functions of a `linear_call` are adjoint, along random directions: `<y_bar, A x> = <A^T y_bar,
    x>`.

    Raises: AssertionError with both values; the errors of `linear_call`.
    """

    def both(linear: object) -> object:
        return linear_call(fun, fun_transpose, residual_args, linear)

    program = trace(both, linear_args)
    bound = [np.asarray(x) for x in program.bound]
    xs = random_tangents([aval_of(x) for x in tree.leaves(linear_args)], seed)
    ys = random_tangents(program.out_avals, seed + 1)
    mask = (False,) * len(bound) + (True,) * len(xs)
    bars = run(transforms.transpose(program.jaxpr, mask), [*ys, *bound])
    tolerance = 1e-8 if all([x.dtype.itemsize in (8, 16) for x in xs]) else 1e-3
    if problem := inner_product_error(ys, run(program.jaxpr, [*bound, *xs]), bars, xs, tolerance):
        raise AssertionError(
            f"linear_call: {function_name(fun_transpose)} is not the adjoint of {function_name(fun)}: {problem}"
        )
