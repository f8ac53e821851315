"""`custom_linear_solve`: the solution of a linear system, differentiated as a solution and not through its solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar, overload

from fxad.lax.control.host_values import HostLeaf, HostTree
from fxad.lax.control.traced_functions import TracedFunction, common_operands
from fxad.lax.implicit.maps import (
    TracedMap,
    TreeType,
    right_hand_side,
    trace_linear_map,
    trace_solver,
    transposed_program,
)
from fxad.operations.arguments import flag
from fxad.primitives.control.bodies import rotate_operands
from fxad.primitives.implicit import LinearSolve
from fxad.tracing.array import Array
from fxad.tracing.tracer import bind

T = TypeVar("T")
X = TypeVar("X")


# A right-hand side that is a number or an array of NumPy is an Array inside the functions, also in a container.
# fmt: off
@overload
def custom_linear_solve(matvec: Callable[[Array], object], b: HostLeaf, solve: Callable[..., Array], transpose_solve: Callable[..., object] | None = None, symmetric: bool = False, has_aux: Literal[False] = False) -> Array: ...
@overload
def custom_linear_solve(matvec: Callable[[T], T], b: T, solve: Callable[..., T], transpose_solve: Callable[..., object] | None = None, symmetric: bool = False, has_aux: Literal[False] = False) -> T: ...
@overload
def custom_linear_solve(matvec: Callable[[T], T], b: HostTree, solve: Callable[..., T], transpose_solve: Callable[..., object] | None = None, symmetric: bool = False, has_aux: Literal[False] = False) -> T: ...
@overload
def custom_linear_solve(matvec: Callable[[Array], object], b: HostLeaf, solve: Callable[..., tuple[Array, X]], transpose_solve: Callable[..., object] | None = None, *, symmetric: bool = False, has_aux: Literal[True]) -> tuple[Array, X]: ...
@overload
def custom_linear_solve(matvec: Callable[[T], T], b: T, solve: Callable[..., tuple[T, X]], transpose_solve: Callable[..., object] | None = None, *, symmetric: bool = False, has_aux: Literal[True]) -> tuple[T, X]: ...
@overload
def custom_linear_solve(matvec: Callable[[T], T], b: HostTree, solve: Callable[..., tuple[T, X]], transpose_solve: Callable[..., object] | None = None, *, symmetric: bool = False, has_aux: Literal[True]) -> tuple[T, X]: ...
# fmt: on
def custom_linear_solve(
    matvec: Callable[[Any], object],
    b: object,
    solve: Callable[..., object],
    transpose_solve: Callable[..., object] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return the x for which `matvec(x) = b`, computed by `solve(matvec, b)`; `matvec` is linear, b any pytree of
    arrays.

    `solve` is any function: a loop, a factorisation, a call of a library. It is not differentiated. Derivatives are
    those of the solution. In forward mode, for tangents of b and of values that `matvec` closes over, `solve` is called
    for `b_dot - A_dot x`. In reverse mode `transpose_solve(vecmat, c)` solves the transposed system, where `vecmat` is
    the transpose of `matvec`. It may be omitted if each equation of `solve` is linear in b: `solve` is then transposed.
    It may also be omitted with `symmetric`, which declares `matvec` to be its own transpose (complex: not conjugated).
    With `has_aux`, solvers return (x, auxiliary), and so does the call; the auxiliary is any pytree and has no
    derivative.

    Type:   x, b and the result of `matvec` are of one type; solvers return it. All functions may close over tracers.
    Law:    linear in b; derivatives of any order, in both modes, under vmap of b, of closed-over values, and of both.
    Cost:   each derivative is one more solve.
    Raises: DTypeError for a leaf of b that is not floating or complex; TreeError, ShapeError, DTypeError for a result
            of another type, naming function, leaf and both types; NotLinearError for a `matvec` that is not linear. In
            reverse mode: NotDifferentiableError if there is no transpose.
    Source: Bai, Kolter, Koltun, Deep Equilibrium Models (2019), theorem 1; `jax.lax.custom_linear_solve`
    """
    return linear_solve("custom_linear_solve", "matvec", matvec, b, solve, transpose_solve, symmetric, has_aux)


def linear_solve(
    what: str,
    role: str,
    matvec: Callable[[Any], object],
    b: object,
    solve: Callable[..., object],
    transpose_solve: Callable[..., object] | None,
    symmetric: bool,
    has_aux: bool,
) -> Any:
    """Return `custom_linear_solve` with other names in messages: `what` for the function, `role` for its argument `matvec`."""
    symmetric, has_aux = flag(what, "symmetric", symmetric), flag(what, "has_aux", has_aux)
    x_type, leaves = right_hand_side(what, b)
    matvec_body = trace_linear_map(what, role, matvec, x_type, "b")
    apply = TracedMap.of(role, matvec, matvec_body, x_type)
    forward = trace_solver(what, "solve", solve, lambda value: solve(apply, value), x_type, "b", has_aux)
    adjoint = _adjoint(what, apply, matvec_body, forward.solution, transpose_solve, symmetric, has_aux, x_type)
    jaxprs, operands = common_operands([matvec_body, forward.body, *adjoint])
    bodies = [rotate_operands(jaxpr, len(operands)) for jaxpr in jaxprs]
    outs = bind(LinearSolve(bodies[0], bodies[1], tuple(bodies[2:])), *leaves, *operands)
    return forward.result(x_type, outs)


def _adjoint(
    what: str,
    apply: TracedMap,
    matvec_body: TracedFunction,
    forward: TracedFunction,
    transpose_solve: Callable[..., object] | None,
    symmetric: bool,
    has_aux: bool,
    x_type: TreeType,
) -> tuple[TracedFunction, ...]:
    """Return the transpose of the matrix and its solver; nothing if there is none."""
    n = len(x_type.avals)
    transposed = apply.jaxpr if symmetric else transposed_program(apply.jaxpr, n)
    if transposed is None:
        return ()
    vecmat = replace(matvec_body, jaxpr=rotate_operands(transposed, n))
    if transpose_solve is not None:
        turned = apply.transposed(transposed)
        solve_transposed = transpose_solve
        solve = trace_solver(
            what,
            "transpose_solve",
            solve_transposed,
            lambda value: solve_transposed(turned, value),
            x_type,
            "b",
            has_aux,
        ).solution
        return vecmat, solve
    if symmetric:
        return vecmat, forward
    derived = transposed_program(rotate_operands(forward.jaxpr, len(forward.captured)), n)
    return () if derived is None else (vecmat, replace(forward, jaxpr=rotate_operands(derived, n)))
