"""`linear_call`: a linear function given together with its transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from fxad import tree
from fxad.array import aval_of
from fxad.errors import DTypeError, FxadError, ShapeError, TreeError
from fxad.ir import Aval, Jaxpr
from fxad.lax.control.bodies import Body, common_operands, traced_body
from fxad.primitives.custom import LinearCall
from fxad.trace import bind
from fxad.transforms.reorder import reorder_ins
from fxad.tree import Structure

R = TypeVar("R")


def linear_call(
    fun: Callable[..., R], fun_transpose: Callable[..., object], residual_args: object, linear_args: object
) -> R:
    """`fun(residual_args, linear_args)`, linear in the second, whose transpose is
    `fun_transpose(residual_args, cotangents)`, linear in the second.

    All are pytrees. Transposing puts one function in the place of the other; the derivative with respect to residuals,
    and to what the functions close over, is that of the function that runs. That the two are linear and adjoint is not
    checked here, so that a solver may be given: `fxad.testing.check_adjoint` checks it at a point.

    Raises: DTypeError for a linear argument or a result that has no tangent; TreeError, ShapeError, DTypeError when the
            transpose does not give what `fun` takes, naming the path and both types.
    """
    what = "linear_call"
    linear, linear_tree = tree.flatten(linear_args)
    residuals, residual_tree = tree.flatten(residual_args)
    paths = tree.paths(linear_tree, "linear_args")
    avals = _inexact(what, linear, paths)
    known = [
        aval_of(x, f"{what}: {p}") for x, p in zip(residuals, tree.paths(residual_tree, "residual_args"), strict=True)
    ]
    body = traced_body(f"{what}: fun", fun, _pair(residual_tree, linear_tree), [*known, *avals])
    outs = body.jaxpr.out_avals
    for path, aval in zip(tree.paths(body.out_tree, "result"), outs, strict=True):
        if not aval.inexact:
            raise DTypeError(f"{what}: {path} of {body.name} is {aval}, which has no tangent")
    back = traced_body(f"{what}: fun_transpose", fun_transpose, _pair(residual_tree, body.out_tree), [*known, *outs])
    if back.out_tree != linear_tree:
        raise TreeError(
            f"{what}: {back.name} returns {tree.shape_text(back.out_tree)}, "
            f"linear_args is {tree.shape_text(linear_tree)}"
        )
    back = back.typed(avals)
    for path, want, have in zip(paths, avals, back.jaxpr.out_avals, strict=True):
        if want is not have:
            kind: type[FxadError] = ShapeError if want.shape != have.shape else DTypeError
            raise kind(f"{what}: {back.name} returns {have} as cotangent of {path}, which is {want}")
    return cast("R", tree.unflatten(body.out_tree, _bound(body, back, residuals, linear)))


def _bound(body: Body, back: Body, residuals: Sequence[object], linear: Sequence[object]) -> Sequence[object]:
    if not linear:
        raise TreeError("linear_call: linear_args has no leaf", remedy="call the function itself")
    jaxprs, captured = common_operands((body, back))
    n = len(captured) + len(residuals)
    forward, adjoint = [_linear_first(jaxpr, n) for jaxpr in jaxprs]
    return bind(LinearCall(forward, adjoint, len(linear)), *linear, *captured, *residuals)


def _linear_first(jaxpr: Jaxpr, n: int) -> Jaxpr:
    return reorder_ins(jaxpr, (*range(n, len(jaxpr.ins)), *range(n)))


def _pair(first: Structure, second: Structure) -> Structure:
    return tree.structure((first.unflatten(range(first.num_leaves)), second.unflatten(range(second.num_leaves))))


def _inexact(what: str, leaves: Sequence[object], paths: Sequence[str]) -> list[Aval]:
    avals = []
    for x, path in zip(leaves, paths, strict=True):
        aval = aval_of(x, f"{what}: {path}")
        if not aval.inexact:
            raise DTypeError(
                f"{what}: {path} is {aval}, which has no tangent", remedy="pass it in residual_args, or convert it"
            )
        avals.append(aval)
    return avals
