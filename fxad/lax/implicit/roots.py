"""`custom_root`, `custom_fixed_point`, `custom_minimize`: solutions of equations, differentiated by the implicit
function theorem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar, overload

from fxad.core.builder import Builder
from fxad.core.flags import select_by_flags
from fxad.core.trees import tree
from fxad.errors import DTypeError, ShapeError, TreeError
from fxad.ir import Atom, Lit
from fxad.lax.control.host_values import HostLeaf, HostTree
from fxad.lax.control.traced_functions import traced_body
from fxad.lax.implicit.convergence import Convergence
from fxad.lax.implicit.fixed_point import solve_by_iteration
from fxad.lax.implicit.krylov import solve_by_cg, solve_by_gmres
from fxad.lax.implicit.maps import trace_function, type_and_leaves
from fxad.lax.implicit.problem import Problem
from fxad.operations.arguments import function
from fxad.primitives.elementwise.arithmetic import MUL, SUB
from fxad.primitives.elementwise.logic import NE
from fxad.primitives.elementwise.select import emit_where
from fxad.tracing.array import Array
from fxad.tracing.program import function_name
from fxad.transforms import grad

T = TypeVar("T")
X = TypeVar("X")


# A guess that is a number or an array of NumPy is an Array inside the functions, also in a container.
# fmt: off
@overload
def custom_root(f: Callable[[Array], object], initial_guess: HostLeaf, solve: Callable[..., Array], tangent_solve: Callable[..., object], has_aux: Literal[False] = False) -> Array: ...
@overload
def custom_root(f: Callable[[T], object], initial_guess: T, solve: Callable[..., T], tangent_solve: Callable[..., object], has_aux: Literal[False] = False) -> T: ...
@overload
def custom_root(f: Callable[[T], object], initial_guess: HostTree, solve: Callable[..., T], tangent_solve: Callable[..., object], has_aux: Literal[False] = False) -> T: ...
@overload
def custom_root(f: Callable[[Array], object], initial_guess: HostLeaf, solve: Callable[..., tuple[Array, X]], tangent_solve: Callable[..., object], *, has_aux: Literal[True]) -> tuple[Array, X]: ...
@overload
def custom_root(f: Callable[[T], object], initial_guess: T, solve: Callable[..., tuple[T, X]], tangent_solve: Callable[..., object], *, has_aux: Literal[True]) -> tuple[T, X]: ...
@overload
def custom_root(f: Callable[[T], object], initial_guess: HostTree, solve: Callable[..., tuple[T, X]], tangent_solve: Callable[..., object], *, has_aux: Literal[True]) -> tuple[T, X]: ...
# fmt: on
def custom_root(
    f: Callable[[Any], object],
    initial_guess: object,
    solve: Callable[..., object],
    tangent_solve: Callable[..., object],
    has_aux: bool = False,
) -> Any:
    """Return the x for which `f(x) = 0`, computed by `solve(f, initial_guess)`; x is any pytree of arrays.

    `solve` is any function: a loop, Newton's method, a call of a library. It is not differentiated, and neither is the
    guess. Derivatives are those of the root, with respect to all values that `f` closes over: `tangent_solve(g, y)`
    solves f_x x_dot = -f_c c_dot. It returns the x with `g(x) = y`, where g is the derivative of `f` at the root.
    Reverse mode solves the transposed system: by the transpose of `tangent_solve` if each of its equations is linear in
    y, else by `tangent_solve` with the transpose of g. `gmres` and `cg` are suitable: `lambda g, y: gmres(g, y)[0]`.

    Integers and bools in the guess are allowed: `solve` sets them, `f` returns any value of their type, and for `g` and
    y they are None. With `has_aux`, `solve` returns (x, auxiliary), and so does the call; the auxiliary is any pytree
    and has no derivative.

    Type:   x, the guess, and the results of `f` and `solve` are of one type. All functions may close over tracers.
    Law:    exact if `f` is zero at x and g is invertible, at any order, in both modes, under vmap of anything.
    Cost:   `f` is linearized once, at the root; each derivative is one linear solve.
    Raises: TreeError, ShapeError, DTypeError for a result of another type, naming function, leaf and both types;
            DTypeError for a guess without a floating or complex leaf; NotDifferentiableError for an `f` that has no
            derivative.
    Source: `jax.lax.custom_root`; Blondel et al., Efficient and Modular Implicit Differentiation (2022), section 2.1
    """
    what = "custom_root"
    x_type, guess = type_and_leaves(what, "initial_guess", initial_guess)
    residual = trace_function(what, "f", f, x_type, "initial_guess")
    equation = replace(residual, jaxpr=residual.jaxpr.with_outs(select_by_flags(residual.jaxpr.outs, x_type.inexact)))
    problem = Problem(what, x_type, guess, equation, function_name(f))
    return problem.bind_root(solve, lambda x: solve(f, x), tangent_solve, has_aux)


# as for `custom_root`
# fmt: off
@overload
def custom_fixed_point(f: Callable[[Array], object], initial_guess: HostLeaf, solve: Callable[..., Array] | None = None, tangent_solve: Callable[..., object] | None = None, has_aux: Literal[False] = False) -> Array: ...
@overload
def custom_fixed_point(f: Callable[[T], object], initial_guess: T, solve: Callable[..., T] | None = None, tangent_solve: Callable[..., object] | None = None, has_aux: Literal[False] = False) -> T: ...
@overload
def custom_fixed_point(f: Callable[[T], object], initial_guess: HostTree, solve: Callable[..., T] | None = None, tangent_solve: Callable[..., object] | None = None, has_aux: Literal[False] = False) -> T: ...
@overload
def custom_fixed_point(f: Callable[[Array], object], initial_guess: HostLeaf, solve: Callable[..., tuple[Array, X]], tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[Array, X]: ...
@overload
def custom_fixed_point(f: Callable[[T], object], initial_guess: T, solve: Callable[..., tuple[T, X]], tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[T, X]: ...
@overload
def custom_fixed_point(f: Callable[[T], object], initial_guess: HostTree, solve: Callable[..., tuple[T, X]], tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[T, X]: ...
@overload
def custom_fixed_point(f: Callable[[Array], object], initial_guess: HostLeaf, solve: None = None, tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[Array, Convergence]: ...
@overload
def custom_fixed_point(f: Callable[[T], object], initial_guess: T, solve: None = None, tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[T, Convergence]: ...
@overload
def custom_fixed_point(f: Callable[[T], object], initial_guess: HostTree, solve: None = None, tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[T, Convergence]: ...
# fmt: on
def custom_fixed_point(
    f: Callable[[Any], object],
    initial_guess: object,
    solve: Callable[..., object] | None = None,
    tangent_solve: Callable[..., object] | None = None,
    has_aux: bool = False,
) -> Any:
    """Return the x for which `f(x) = x`, computed by `solve(f, initial_guess)`; x is any pytree of arrays.

    Derivatives are those of the fixed point, as in `custom_root` for x - f(x). Without `solve`, `f` is applied until x
    converges: |f(x) - x| <= eps^(3/4) |f(x)|, at most 10,000 times. If it does not converge, x and its derivatives are
    nan; with `has_aux` x is the last iterate, and the auxiliary result is the report (`Convergence`). Without
    `tangent_solve`, linear systems are solved by `gmres`, at the precision of the dtype. A derivative is nan if this
    does not converge: if the system is singular or nearly so.

    Type, Law, Cost, Raises: as `custom_root`.
    """
    tangent_solve = None if tangent_solve is None else function("custom_fixed_point", "tangent_solve", tangent_solve)
    solve = None if solve is None else function("custom_fixed_point", "solve", solve)
    what = "custom_fixed_point"
    x_type, guess = type_and_leaves(what, "initial_guess", initial_guess)
    step = trace_function(what, "f", f, x_type, "initial_guess")
    b = Builder()
    n = len(step.captured)
    ins = b.inputs(step.jaxpr.in_avals)
    pairs = zip(ins[n:], b.inline(step.jaxpr, ins), x_type.inexact, strict=True)
    residuals = [(x, b.one(SUB, x, y)) for x, y, has_tangent in pairs if has_tangent]
    checked = solve is None and not has_aux
    equation = replace(step, jaxpr=b.build([_nan_at_nan(b, x, r) if checked else r for x, r in residuals], step.name))
    problem = Problem(what, x_type, guess, equation, function_name(f))
    solver = solve or partial(solve_by_iteration, has_aux=has_aux)
    return problem.bind_root(solver, lambda x: solver(f, x), tangent_solve or solve_by_gmres, has_aux)


def _nan_at_nan(b: Builder, x: Atom, y: Atom) -> Atom:
    """Return `y`, or nan where x is nan, with nan for all derivatives. The derivatives of a linear function do not
    depend on x, so they would be finite although there is no solution."""
    factor = emit_where(b, b.one(NE, x, x), Lit.of(float("nan"), x.aval), Lit.of(1, x.aval))
    return b.one(MUL, y, factor)


# as for `custom_root`
# fmt: off
@overload
def custom_minimize(f: Callable[[Array], object], initial_guess: HostLeaf, solve: Callable[..., Array], tangent_solve: Callable[..., object] | None = None, has_aux: Literal[False] = False) -> Array: ...
@overload
def custom_minimize(f: Callable[[T], object], initial_guess: T, solve: Callable[..., T], tangent_solve: Callable[..., object] | None = None, has_aux: Literal[False] = False) -> T: ...
@overload
def custom_minimize(f: Callable[[T], object], initial_guess: HostTree, solve: Callable[..., T], tangent_solve: Callable[..., object] | None = None, has_aux: Literal[False] = False) -> T: ...
@overload
def custom_minimize(f: Callable[[Array], object], initial_guess: HostLeaf, solve: Callable[..., tuple[Array, X]], tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[Array, X]: ...
@overload
def custom_minimize(f: Callable[[T], object], initial_guess: T, solve: Callable[..., tuple[T, X]], tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[T, X]: ...
@overload
def custom_minimize(f: Callable[[T], object], initial_guess: HostTree, solve: Callable[..., tuple[T, X]], tangent_solve: Callable[..., object] | None = None, *, has_aux: Literal[True]) -> tuple[T, X]: ...
# fmt: on
def custom_minimize(
    f: Callable[[Any], object],
    initial_guess: object,
    solve: Callable[..., object],
    tangent_solve: Callable[..., object] | None = None,
    has_aux: bool = False,
) -> Any:
    """Return a point at which the gradient of `f` is zero, computed by `solve(f, initial_guess)`; `f` returns a real
    scalar.

    Derivatives are those of the stationary point, as in `custom_root` for the gradient of `f`. Without `tangent_solve`,
    linear systems (with the second derivative of `f`) are solved by `cg`, at the precision of the dtype: at a minimum
    the matrix is positive definite. A derivative is nan if this does not converge. Use another `tangent_solve` for
    saddle points.

    Type, Law, Cost, Raises: as `custom_root`; DTypeError for a guess with complex leaves.
    """
    tangent_solve = None if tangent_solve is None else function("custom_minimize", "tangent_solve", tangent_solve)
    what = "custom_minimize"
    x_type, guess = type_and_leaves(what, "initial_guess", initial_guess)
    for path, aval in zip(x_type.paths, x_type.avals, strict=True):
        if aval.dtype.kind == "c":
            raise DTypeError(
                f"{what}: {path} is {aval}, and a real function has no complex derivative",
                remedy="minimise over the real and the imaginary part",
            )
    objective = traced_body(f"{what}: f", f, x_type.argument, x_type.avals)
    if objective.out_tree.type is not None:
        raise TreeError(
            f"{what}: f {function_name(f)} returns {tree.shape_text(objective.out_tree)}, not a scalar",
            remedy="return the value alone",
        )
    (aval,) = objective.jaxpr.out_avals
    if aval.shape != ():
        raise ShapeError(
            f"{what}: f {function_name(f)} returns {aval}, not a scalar", remedy="reduce the result (sum, mean)"
        )
    if aval.dtype.kind == "c" or not aval.inexact:
        raise DTypeError(
            f"{what}: f {function_name(f)} returns {aval}, not a real floating scalar",
            remedy="return a real number: convert an integer with astype, take abs or the real part of a complex one",
        )
    mask = (*[False] * len(objective.captured), *x_type.inexact)
    stationary = replace(objective, jaxpr=grad(objective.jaxpr, mask))
    problem = Problem(what, x_type, guess, stationary, function_name(f))
    return problem.bind_root(solve, lambda x: solve(f, x), tangent_solve or solve_by_cg, has_aux)
