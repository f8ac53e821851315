"""`linear_call`: a linear function with a given transpose, or declared linear as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, overload

from fxad.core.dce import dce
from fxad.core.trees import tree
from fxad.errors import DTypeError, TreeError, mismatch
from fxad.ir import Aval, Jaxpr
from fxad.lax.control.host_values import HostValue
from fxad.lax.control.traced_functions import TracedFunction, common_operands, traced_body
from fxad.operations.arguments import flag
from fxad.primitives.control.bodies import rotate_operands
from fxad.primitives.control.effects import without_checks, without_effects
from fxad.primitives.linear_call import LinearCall
from fxad.tracing.array import aval_of
from fxad.tracing.program import function_name
from fxad.tracing.tracer import bind
from fxad.transforms.ad.linear_rule import cotangent_maps, refuse_nonlinear
from fxad.transforms.ad.transpose_by_basis import transpose_by_unit_vectors

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")


# A number or an array of NumPy is an Array inside the functions, also in a container.
# fmt: off
@overload
def linear_call(fun: Callable[[A, B], R], fun_transpose: Callable[..., object] | None, residual_args: A, linear_args: B, *, as_whole: bool = False) -> R: ...
@overload
def linear_call(fun: Callable[[A, B], R], fun_transpose: Callable[..., object] | None, residual_args: HostValue, linear_args: object, *, as_whole: bool = False) -> R: ...
@overload
def linear_call(fun: Callable[[A, B], R], fun_transpose: Callable[..., object] | None, residual_args: object, linear_args: HostValue, *, as_whole: bool = False) -> R: ...
# fmt: on
def linear_call(
    fun: Callable[..., object],
    fun_transpose: Callable[..., object] | None,
    residual_args: object,
    linear_args: object,
    *,
    as_whole: bool = False,
) -> object:
    """Call `fun(residual_args, linear_args)`, which is linear in the second argument. Its transpose is
    `fun_transpose(residual_args, cotangents)`, linear in the second argument.

    All arguments and results are pytrees. Transposing exchanges the two functions. The derivative with respect to
    residuals, and to captured values, is that of the function that runs.

    If `fun_transpose` is None, the equations of `fun` are transposed. If they have no transpose (a loop without a
    bound, a host function) or with `as_whole`, `fun` is applied to unit vectors.

    Both functions must be linear, equation by equation. A function with a loop, a branch or a host call on its linear
    arguments may be linear only as a whole, as a solver is; this is not checked, and neither is any function with
    `as_whole`. That the two are adjoint is not checked either: use `fxad.testing.check_adjoint`.

    Raises: DTypeError for a linear argument or a result that has no tangent; TreeError, ShapeError, DTypeError when the
            transpose does not return the type of the linear arguments, naming the path and both types; NotLinearError
            naming the function and its equation.
    """
    what = "linear_call"
    as_whole = flag(what, "as_whole", as_whole)
    linear, linear_tree = tree.flatten(linear_args)
    residuals, residual_tree = tree.flatten(residual_args)
    paths = tree.paths(linear_tree, "linear_args")
    avals = _inexact_avals(what, linear, paths)
    residual_avals = [
        aval_of(x, f"{what}: {p}") for x, p in zip(residuals, tree.paths(residual_tree, "residual_args"), strict=True)
    ]
    body = traced_body(f"{what}: fun", fun, tree.tuple_structure(residual_tree, linear_tree), [*residual_avals, *avals])
    outs = body.jaxpr.out_avals
    for path, aval in zip(tree.paths(body.out_tree, "result"), outs, strict=True):
        if not aval.inexact:
            raise DTypeError(
                f"{what}: {path} of {body.name} is {aval}, which has no tangent",
                remedy="return floating or complex arrays; compute the others outside of the linear function",
            )
    if not linear:
        raise TreeError("linear_call: linear_args has no leaf", remedy="call the function itself")
    if fun_transpose is None:
        (jaxpr,), captured = common_operands((body,))
        forward = rotate_operands(jaxpr, len(captured) + len(residuals))
        prim = LinearCall(
            forward, _transpose_linear(forward, len(linear), f"{what}: fun {function_name(fun)}", as_whole), len(linear)
        )
        return tree.unflatten(body.out_tree, bind(prim, *linear, *captured, *residuals))
    transposed = traced_body(
        f"{what}: fun_transpose",
        fun_transpose,
        tree.tuple_structure(residual_tree, body.out_tree),
        [*residual_avals, *outs],
    )
    if transposed.out_tree != linear_tree:
        raise TreeError(
            f"{what}: {transposed.name} returns {tree.shape_text(transposed.out_tree)}, "
            f"linear_args is {tree.shape_text(linear_tree)}",
            remedy="the transpose gives a cotangent for each linear argument, in the tree of linear_args",
        )
    transposed = transposed.typed(avals)
    for path, want, have in zip(paths, avals, transposed.jaxpr.out_avals, strict=True):
        if want is not have:
            error = mismatch(have, want)
            raise error(
                f"{what}: {transposed.name} returns {have} as cotangent of {path}, which is {want}",
                remedy="a cotangent has the type of its argument; nothing is converted silently",
            )
    called = () if as_whole else (f"fun {function_name(fun)}", f"fun_transpose {function_name(fun_transpose)}")
    return tree.unflatten(body.out_tree, _bind_operands(body, transposed, residuals, linear, called))


def _bind_operands(
    body: TracedFunction,
    transposed: TracedFunction,
    residuals: Sequence[object],
    linear: Sequence[object],
    checked: Sequence[str],
) -> Sequence[object]:
    jaxprs, captured = common_operands((body, transposed))
    n = len(captured) + len(residuals)
    forward, adjoint = [rotate_operands(jaxpr, n) for jaxpr in jaxprs]
    remedy = "for a map that is linear only as a whole give as_whole=True"
    for role, jaxpr, k in zip(checked, (forward, adjoint), (len(linear), len(body.jaxpr.outs)), strict=False):
        refuse_nonlinear(jaxpr, k, f"linear_call: {role} is not linear in its linear arguments", remedy)
    return bind(LinearCall(forward, adjoint, len(linear)), *linear, *captured, *residuals)


def _transpose_linear(forward: Jaxpr, n: int, what: str, as_whole: bool) -> Jaxpr:
    """Return the transpose of a program that is linear in its first `n` operands. Raises: NotLinearError."""
    if as_whole:
        return transpose_by_unit_vectors(dce(without_checks(without_effects(forward))), n)
    return cotangent_maps(forward, n, what, "its linear arguments")[0]


def _inexact_avals(what: str, leaves: Sequence[object], paths: Sequence[str]) -> list[Aval]:
    avals = []
    for x, path in zip(leaves, paths, strict=True):
        aval = aval_of(x, f"{what}: {path}")
        if not aval.inexact:
            raise DTypeError(
                f"{what}: {path} is {aval}, which has no tangent", remedy="pass it in residual_args, or convert it"
            )
        avals.append(aval)
    return avals
