"""`cg`, `bicgstab`, `gmres`: iterative solvers of linear systems, with JAX's names and SciPy's tolerances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, final, overload

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.errors import ArgumentError, ShapeError, TreeError, described, mismatch
from fxad.ir import Aval, Lit
from fxad.lax.binary import sub
from fxad.lax.control.host_values import HostLeaf
from fxad.lax.creation import convert, splat
from fxad.lax.implicit.convergence import Convergence
from fxad.lax.implicit.maps import (
    TracedMap,
    TreeType,
    right_hand_side,
    trace_function,
    trace_linear_map,
    transposed_program,
    type_and_leaves,
)
from fxad.lax.implicit.methods import Method, bicgstab as _bicgstab, conjugate_gradients, gmres_cycle
from fxad.lax.implicit.problem import Problem
from fxad.lax.implicit.restarts import Limits, solve_with_restarts
from fxad.lax.implicit.systems import linear_solve
from fxad.lax.implicit.vectors import Space, VectorMap, epsilon, norm, select_value, vector_space_of
from fxad.operations.arguments import to_count
from fxad.tracing.array import Array, ArrayLike, asarray, aval_of, is_scalar
from fxad.tracing.program import function_name

T = TypeVar("T")
Operator: TypeAlias = "Callable[[Any], object] | ArrayLike"


# fmt: off
@overload
def cg(A: Operator, b: HostLeaf, x0: object = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, maxiter: int | None = None, M: Operator | None = None) -> tuple[Array, Convergence]: ...
@overload
def cg(A: Operator, b: T, x0: object = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, maxiter: int | None = None, M: Operator | None = None) -> tuple[T, Convergence]: ...
# fmt: on
def cg(
    A: Operator,
    b: object,
    x0: object = None,
    *,
    tol: ArrayLike = 1e-5,
    atol: ArrayLike = 0.0,
    maxiter: int | None = None,
    M: Operator | None = None,
) -> tuple[Any, Convergence]:
    """Solve A x = b by conjugate gradients, for a Hermitian positive definite A; return (x, `Convergence`).

    A is a square matrix or a linear function, and b any pytree of arrays. x0 is an initial guess of b's type (default
    0). M approximates the inverse of A, as a matrix or a function, and must be Hermitian positive definite too. This is
    not checked: for a real A that is not symmetric, or any indefinite A, use `gmres` or `bicgstab`.

    The solver stops when |b - A x| <= max(tol |b|, atol), with the Euclidean norm over all leaves, as in SciPy, or
    after `maxiter` steps (default: 10 times the size of b). The residual is recomputed from x at the end, and the
    report describes this residual: `iterations`, `residual_norm`, `converged`, and the reason of a failure
    (`Breakdown`).

    Rule:   derivatives with respect to b and the values that A closes over are those of the solution: each is one more
            solve, by the same method. x0, M, tolerances and the report have no derivatives.
    Law:    for b = 0, x is 0; if a nan or infinity occurs, x is nan. Vectors have the common dtype of the leaves of b,
            at least float32. Tiny and huge b are scaled, so squares do not overflow. An A that conjugates or takes real
            parts is linear only over the reals: then vectors are real, of twice the size. The same holds if b has both
            real and complex leaves.
    Cost:   one product with A and one with M per step; one more product for each check of the true residual.
    Raises: as `custom_linear_solve`; ShapeError for a matrix that is not square or does not fit b.
    Source: Hestenes, Stiefel (1952); `scipy.sparse.linalg.cg`
    """
    return _cg(_setup("cg", A, b, x0, tol, atol, M), maxiter)


# fmt: off
@overload
def bicgstab(A: Operator, b: HostLeaf, x0: object = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, maxiter: int | None = None, M: Operator | None = None) -> tuple[Array, Convergence]: ...
@overload
def bicgstab(A: Operator, b: T, x0: object = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, maxiter: int | None = None, M: Operator | None = None) -> tuple[T, Convergence]: ...
# fmt: on
def bicgstab(
    A: Operator,
    b: object,
    x0: object = None,
    *,
    tol: ArrayLike = 1e-5,
    atol: ArrayLike = 0.0,
    maxiter: int | None = None,
    M: Operator | None = None,
) -> tuple[Any, Convergence]:
    """Solve A x = b by the stabilised biconjugate gradient method, for any A; return (x, `Convergence`).

    Arguments, tolerances and derivatives as in `cg`; transposed systems are solved with the transpose of M.

    Cost:   two products with A and with M per step, eight vectors. It may break down where `gmres` does not; after a
            breakdown with progress, it restarts from the residual.
    Raises: as `cg`.
    Source: van der Vorst (1992); `scipy.sparse.linalg.bicgstab`
    """
    setup = _setup("bicgstab", A, b, x0, tol, atol, M)
    limits = _limits_of_steps("bicgstab", maxiter, setup.space)
    return setup.solved(_bicgstab, limits, hermitian=False)


# fmt: off
@overload
def gmres(A: Operator, b: HostLeaf, x0: object = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, restart: int = 20, maxiter: int | None = None, M: Operator | None = None) -> tuple[Array, Convergence]: ...
@overload
def gmres(A: Operator, b: T, x0: object = None, *, tol: ArrayLike = 1e-5, atol: ArrayLike = 0.0, restart: int = 20, maxiter: int | None = None, M: Operator | None = None) -> tuple[T, Convergence]: ...
# fmt: on
def gmres(
    A: Operator,
    b: object,
    x0: object = None,
    *,
    tol: ArrayLike = 1e-5,
    atol: ArrayLike = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Operator | None = None,
) -> tuple[Any, Convergence]:
    """Solve A x = b by the generalised minimal residual method, for any A; return (x, `Convergence`).

    Arguments, tolerances and derivatives as in `cg`; transposed systems are solved with the transpose of M. It restarts
    after every `restart` steps, `maxiter` times at most (default: 10 times the size of b); `iterations` counts the
    steps. Within a cycle each step computes its residual norm, and the cycle ends when it is small enough (JAX's
    solve_method='incremental'; there is no other method here). M is a right preconditioner: it does not change the
    minimised norm.

    Cost:   one product with A and one with M per step, `restart` + 1 vectors, four passes over them per step.
    Raises: as `cg`.
    Source: Saad, Schultz (1986); `scipy.sparse.linalg.gmres`
    """
    return _gmres(_setup("gmres", A, b, x0, tol, atol, M), restart, maxiter)


def attainable_tolerance(avals: Sequence[Aval]) -> float:
    """Return a tolerance that is attainable in these dtypes for well-conditioned systems: eps^(3/4)."""
    return float(max([epsilon(a.dtype) for a in avals if a.inexact]) ** 0.75)


# ----------------------------------------------------------------------------------- derivatives of implicit functions


def solve_by_cg(g: Callable[[Any], object], y: object) -> Any:
    """Return the x with g(x) = y for a positive definite g, at the precision of the dtype. It is nan if the residual
    exceeds eps^(1/4) of y: no derivative rather than a wrong one."""
    return _cg(_tangent_setup("cg", g, y), None)[0]


def solve_by_gmres(g: Callable[[Any], object], y: object) -> Any:
    """Return the x with g(x) = y for any g, with the precision and failures of `solve_by_cg`."""
    return _gmres(_tangent_setup("gmres", g, y), 20, None)[0]


def _tangent_setup(what: str, g: Callable[[Any], object], y: object) -> _Setup:
    tol = attainable_tolerance(type_and_leaves(what, "b", y)[0].avals)
    return replace(_setup(what, g, y, None, tol, 0.0, None), nan_above=tol ** (1 / 3))


def _cg(setup: _Setup, maxiter: int | None) -> tuple[Any, Convergence]:
    limits = _limits_of_steps("cg", maxiter, setup.space)
    return setup.solved(conjugate_gradients, limits, hermitian=True)


def _gmres(setup: _Setup, restart: int, maxiter: int | None) -> tuple[Any, Convergence]:
    length = to_count("gmres", "restart", restart, 1)
    rounds = _step_limit("gmres", maxiter, setup.space)
    # `maxiter` counts rounds, which are cycles here, as in SciPy. A round that shortens the residual a little is not
    # the last one: GMRES never lengthens it, and after a restart it may be slow for a while.
    return setup.solved(gmres_cycle(length), Limits(_MOST_STEPS - length, rounds, 0.999), hermitian=False)


# --------------------------------------------------------------------------------------------------------- one solve


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Setup:
    """A linear system of the user, checked."""

    what: str
    matvec: Callable[[Any], object]
    b: object
    x0: object
    x_type: TreeType
    space: Space
    tol: Array
    atol: Array
    precondition: TracedMap | None
    nan_above: float | None = None  # the solution is nan if the residual, relative to b, exceeds this

    def solved(self, method: Method, limits: Limits, hermitian: bool) -> tuple[Any, Convergence]:
        """Solve the system by a method."""

        def run(m: TracedMap | None, x0: object, matvec: TracedMap, b: object) -> tuple[Any, Convergence]:
            over_complex = all([f.over_complex for f in (matvec, m) if f is not None])
            space = self.space if over_complex else self.space.over_reals
            start = None if x0 is None else space.vector(x0)
            precondition: VectorMap = (lambda v: v) if m is None else space.lifted(m)
            right = space.vector(b)
            x, report = solve_with_restarts(
                method,
                space.lifted(matvec),
                precondition,
                right,
                start,
                self.tol,
                self.atol,
                limits,
            )
            if self.nan_above is not None:
                x = select_value(report.residual_norm <= self.nan_above * norm(right), x, float("nan"))
            return space.tree(x), report

        symmetric = hermitian and not any([a.dtype.kind == "c" for a in self.x_type.avals])
        m = self.precondition
        m_transposed = m if m is None or symmetric else _transpose_map(m)
        run.__name__ = self.what
        solve, transposed = partial(run, m, None), partial(run, m_transposed, None)
        solution: tuple[object, Convergence]
        if self.x0 is None:
            solution = linear_solve(self.what, "A", self.matvec, self.b, solve, transposed, symmetric, True)
            return solution
        # the guess is for this right-hand side; the systems of derivatives start from 0
        matvec_body = trace_linear_map(self.what, "A", self.matvec, self.x_type, "b")
        apply = TracedMap.of("A", self.matvec, matvec_body, self.x_type)

        def residual(x: object) -> object:
            return tree.map(sub, apply(x), self.b)

        def tangent_solve(g: Callable[[Any], object], y: object) -> object:
            return linear_solve(self.what, "A", g, y, solve, transposed, symmetric, True)[0]

        residual.__name__ = function_name(self.matvec)
        guess, equation = tree.leaves(self.x0), trace_function(self.what, "A", residual, self.x_type, "b")
        problem = Problem(self.what, self.x_type, guess, equation, function_name(self.matvec))
        solution = problem.bind_root(run, lambda x0: run(m, x0, apply, self.b), tangent_solve, True)
        return solution


def _transpose_map(m: TracedMap) -> TracedMap | None:
    jaxpr = transposed_program(m.jaxpr, len(m.x_type.avals))
    return None if jaxpr is None else m.transposed(jaxpr)


def _setup(
    what: str, A: Operator, b: object, x0: object, tol: ArrayLike, atol: ArrayLike, M: Operator | None
) -> _Setup:
    x_type, leaves = right_hand_side(what, b)
    space = vector_space_of(what, x_type)
    real = dtypes.real_part(space.dtype) if space.dtype.kind == "c" else space.dtype
    if x0 is not None:
        x0 = _initial_guess(what, x_type, x0)
    precondition = None
    if M is not None:
        inverse = _matvec_function(what, "M", M, x_type)
        precondition = TracedMap.of("M", inverse, trace_linear_map(what, "M", inverse, x_type, "b"), x_type)
    relative, absolute = tolerance(what, "tol", tol, real), tolerance(what, "atol", atol, real)
    matvec, b_tree = _matvec_function(what, "A", A, x_type), tree.unflatten(x_type.structure, leaves)
    return _Setup(what, matvec, b_tree, x0, x_type, space, relative, absolute, precondition)


def _matvec_function(op: str, what: str, operator: Operator, x_type: TreeType) -> Callable[[Any], object]:
    """Return a linear map given as a function or as a matrix. Raises: ArgumentError, ShapeError."""
    if callable(operator):
        return operator
    matrix = asarray(operator, what=f"{op}: {what}")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(
            f"{op}: {what} is {matrix.aval}, not a square matrix", remedy="give a square matrix, or a linear function"
        )
    if x_type.structure.type is not None or x_type.avals[0].shape[:1] != matrix.shape[:1]:
        leaves = ", ".join([f"{p} is {a}" for p, a in zip(x_type.paths, x_type.avals, strict=True)])
        raise ShapeError(
            f"{op}: {what} is the matrix {matrix.aval}, and {leaves}",
            remedy="a matrix is applied to one array, along its first axis; for trees give a function",
        )

    def product(x: Array) -> Array:
        return matrix @ x

    product.__name__ = f"matrix {what}"
    return product


def _initial_guess(what: str, x_type: TreeType, x0: object) -> object:
    guess_type, leaves = type_and_leaves(what, "x0", x0)
    if guess_type.structure != x_type.structure:
        raise TreeError(
            f"{what}: x0 is {tree.shape_text(guess_type.structure)}, b is {tree.shape_text(x_type.structure)}",
            remedy="a first guess has the type of b",
        )
    for path, actual, expected in zip(guess_type.paths, guess_type.avals, x_type.avals, strict=True):
        if actual is not expected:
            error = mismatch(actual, expected)
            raise error(f"{what}: {path} is {actual}, for b it is {expected}", remedy="a first guess has the type of b")
    return tree.unflatten(x_type.structure, leaves)


def tolerance(op: str, what: str, value: object, dtype: dtypes.DType) -> Array:
    """Return a tolerance as a number of the dtype. Raises: ArgumentError for a value that is not a real number."""
    aval = aval_of(value, f"{op}: {what}")
    if aval.shape or aval.dtype.kind == "c" or not (aval.inexact or isinstance(value, int)):
        raise ArgumentError(
            f"{op}: {what} is {described(value)} of type {aval}, not a real number",
            remedy=f"a tolerance is one number for the whole system: {what}=1e-5",
        )
    return splat(Lit.of(value, Aval((), dtype))) if is_scalar(value) else convert(asarray(value), dtype)


_MOST_STEPS: Final = (1 << 31) - 1  # steps are counted in int32


def _limits_of_steps(what: str, maxiter: int | None, space: Space) -> Limits:
    """Return the limits of a method that ends a round when it converges or breaks down: the number of rounds is
    unlimited."""
    # `maxiter` counts steps here. A round ends where the method stops by itself: one that did not halve the residual is
    # the last.
    return Limits(_step_limit(what, maxiter, space), rounds=1 << 30, progress=0.5)


def _step_limit(what: str, maxiter: int | None, space: Space) -> int:
    return max(10 * space.size, 1) if maxiter is None else to_count(what, "maxiter", maxiter, 0)
