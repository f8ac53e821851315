"""Problems with an implicit solution, and a reference that is an ordinary differentiable program.

The reference is two Newton steps from the solution as a constant. Each step doubles the number of exact derivatives, so
it is exact up to third order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np
from hypothesis import strategies as st

import fxad.numpy as fnp
from fxad import lax
from fxad.api.gradients import grad, jacfwd
from fxad.api.jit import jit
from fxad.api.vmap import vmap
from fxad.core.dataclasses import dataclass
from fxad.ir import Aval, Jaxpr, NDArray
from fxad.testing.programs import Case
from fxad.testing.values import SEEDS, Domain, ShownByRepr, sample
from fxad.tracing.array import Array
from fxad.tracing.trace import trace

SolverOfArrays: TypeAlias = Callable[[Array, Array], Array]
UnknownTree: TypeAlias = Array | tuple[Array, Array]
MapOfTree: TypeAlias = Callable[[UnknownTree], UnknownTree]

_ROUNDS: Final = 32  # a contraction by 0.3 or less is at rest after these


@final
@dataclass(frozen=True, slots=True, eq=False)
class Solution(ShownByRepr):
    """A program with a solution, the same program with the reference, and operands for both."""

    program: Jaxpr
    reference: Jaxpr
    args: tuple[NDArray, ...]
    seed: int = 0
    drawn: tuple[object, ...] = ()

    @property
    def case(self) -> Case:
        """Return the program and its operands, for the other laws."""
        return Case(self.program, self.args, self.seed, True)

    def __repr__(self) -> str:
        return f"{self.drawn} at {[x.tolist() for x in self.args]}"


@final
@dataclass(frozen=True, slots=True)
class ProblemForm:
    """The choices of a problem: a function with slope at most 1, the solver of tangents, and pytrees for arrays."""

    bend: str
    tangents: str
    tree: bool

    def wrap(self, x: Array) -> UnknownTree:
        """Return the unknown as the pytree of the problem."""
        return (x[:1], x[1:]) if self.tree else x

    def flat(self, x: UnknownTree) -> Array:
        """Return the unknown as one array."""
        return fnp.concatenate(x) if isinstance(x, tuple) else x

    def over(self, f: Callable[[Array], Array]) -> MapOfTree:
        """Return a function of arrays as a function of unknowns."""
        return lambda x: self.wrap(f(self.flat(x)))

    def matrix(self, g: MapOfTree, n: int) -> Array:
        """Return the matrix of a linear function."""
        jacobian: Array = jacfwd(lambda v: self.flat(g(self.wrap(v))))(fnp.zeros(n, dtype="float64"))
        return jacobian

    def solve_linear(self, g: MapOfTree, y: UnknownTree) -> UnknownTree:
        """Return the x with g(x) = y, for g close to the identity."""
        right = self.flat(y)
        if self.tangents == "dense":
            return self.wrap(fnp.linalg.solve(self.matrix(g, right.shape[0]), right))

        def step(_: Array, x: Array) -> Array:
            return x + (right - self.flat(g(self.wrap(x))))

        return self.wrap(lax.fori_loop(0, _ROUNDS, step, fnp.zeros_like(right)))


BENDS: Final[Mapping[str, Callable[[Array], Array]]] = MappingProxyType(
    {"sin": fnp.sin, "tanh": fnp.tanh, "atan": fnp.arctan}
)
TANGENTS: Final = ("dense", "loop")


def _weights(m: Array) -> Array:
    """Return a contraction matrix: the absolute values of each row sum to at most 0.3."""
    return fnp.tanh(m) * (0.3 / m.shape[-1])


def _at_rest(f: Callable[[Array], Array], x: Array) -> Array:
    """Return the fixed point, after many iterations."""
    fixed_point: Array = lax.fori_loop(0, _ROUNDS, lambda _, x: f(x), x)
    return fixed_point


def _refined(left: Callable[[Array], Array], x: Array) -> Array:
    x = lax.stop_gradient(x)
    for _ in range(2):
        x = x - fnp.linalg.solve(jacfwd(left)(x), left(x))
    return x


# ----------------------------------------------------------------------------------------------- a solver, a reference


def _system(choices: ProblemForm, m: Array, c: Array) -> Array:
    a = _weights(m) + fnp.eye(m.shape[-1], dtype="float64")
    solve = choices.solve_linear
    adjoint = None if choices.tangents == "dense" else solve
    return choices.flat(lax.custom_linear_solve(choices.over(lambda x: a @ x), choices.wrap(c), solve, adjoint))


def _system_reference(_: ProblemForm, m: Array, c: Array) -> Array:
    return fnp.linalg.solve(_weights(m) + fnp.eye(m.shape[-1], dtype="float64"), c)


def _symmetric(choices: ProblemForm, m: Array, c: Array) -> Array:
    a = _weights(m) @ _weights(m).T + fnp.eye(m.shape[-1], dtype="float64")
    return choices.flat(
        lax.custom_linear_solve(choices.over(lambda x: a @ x), choices.wrap(c), choices.solve_linear, symmetric=True)
    )


def _symmetric_reference(_: ProblemForm, m: Array, c: Array) -> Array:
    return fnp.linalg.solve(_weights(m) @ _weights(m).T + fnp.eye(m.shape[-1], dtype="float64"), c)


def _step(choices: ProblemForm, m: Array, c: Array) -> Callable[[Array], Array]:
    return lambda x: c - _weights(m) @ BENDS[choices.bend](x)


def _root_problem(choices: ProblemForm, m: Array, c: Array) -> Array:
    step = _step(choices, m, c)

    def solve(f: MapOfTree, x: UnknownTree) -> UnknownTree:
        return choices.wrap(_at_rest(lambda v: v - choices.flat(f(choices.wrap(v))), choices.flat(x)))

    start = choices.wrap(fnp.zeros_like(c))
    return choices.flat(lax.custom_root(choices.over(lambda x: x - step(x)), start, solve, choices.solve_linear))


def _fixed_point(choices: ProblemForm, m: Array, c: Array) -> Array:
    def solve(f: MapOfTree, x: UnknownTree) -> UnknownTree:
        return choices.wrap(_at_rest(lambda v: choices.flat(f(choices.wrap(v))), choices.flat(x)))

    start = choices.wrap(fnp.zeros_like(c))
    return choices.flat(lax.custom_fixed_point(choices.over(_step(choices, m, c)), start, solve, choices.solve_linear))


def _step_reference(choices: ProblemForm, m: Array, c: Array) -> Array:
    step = _step(choices, m, c)
    return _refined(lambda x: x - step(x), _at_rest(step, fnp.zeros_like(c)))


def _energy(m: Array, c: Array) -> Callable[[Array], Array]:
    """Return |x - c|^2 / 2 + sum log cosh(w x): its second derivative is between 1 and 1.09."""
    return lambda x: fnp.sum((x - c) ** 2) * 0.5 + fnp.sum(fnp.log(fnp.cosh(_weights(m) @ x)))


def _descent(f: Callable[[Array], Array], x: Array) -> Array:
    return _at_rest(lambda x: x - grad(f)(x), x)


def _minimum(choices: ProblemForm, m: Array, c: Array) -> Array:
    energy, start = _energy(m, c), choices.wrap(fnp.zeros_like(c))

    def solve(f: Callable[[UnknownTree], Array], x: UnknownTree) -> UnknownTree:
        return choices.wrap(_descent(lambda v: f(choices.wrap(v)), choices.flat(x)))

    return choices.flat(lax.custom_minimize(lambda x: energy(choices.flat(x)), start, solve, choices.solve_linear))


def _minimum_reference(_: ProblemForm, m: Array, c: Array) -> Array:
    energy = _energy(m, c)
    return _refined(grad(energy), _descent(energy, fnp.zeros_like(c)))


DrawnProblem: TypeAlias = Callable[[ProblemForm, Array, Array], Array]
PROBLEMS: Final[Mapping[str, tuple[DrawnProblem, DrawnProblem]]] = MappingProxyType(
    {
        "system": (_system, _system_reference),
        "symmetric system": (_symmetric, _symmetric_reference),
        "root": (_root_problem, _step_reference),
        "fixed point": (_fixed_point, _step_reference),
        "minimum": (_minimum, _minimum_reference),
    }
)
CONTEXTS: Final[Mapping[str, Callable[[SolverOfArrays], SolverOfArrays]]] = MappingProxyType(
    {
        "nothing": lambda f: f,
        "call": jit,
        "cond": lambda f: lambda m, c: lax.cond(c[0] < 0, f, lambda m, c: f(m, -c) * 2.0, m, c),
        "scan": lambda f: lambda m, c: lax.scan(lambda x, s: (f(m * s, x), x), c, fnp.asarray([1.0, -0.5]))[0],
        "vmap": lambda f: lambda m, c: vmap(f, in_axes=(None, 0))(m, fnp.stack([c, c * c])),
        "twice": lambda f: lambda m, c: f(m.T, f(m, c) + fnp.sin(c)),
    }
)


@st.composite
def solutions(draw: st.DrawFn) -> Solution:
    """Draw linear systems, roots, fixed points and minima of 1 to 3 numbers that depend on a matrix and a vector.

    They are well conditioned and solved by contractions; tangents by a factorization or by a loop. They occur in
    pytrees, calls, branches, loops and batches, and in the equation of another solution.
    """
    kind, context = draw(st.sampled_from(sorted(PROBLEMS))), draw(st.sampled_from(sorted(CONTEXTS)))
    choices = ProblemForm(draw(st.sampled_from(sorted(BENDS))), draw(st.sampled_from(TANGENTS)), draw(st.booleans()))
    n, seed = draw(st.integers(1, 3)), draw(SEEDS)
    domain = Domain(-1.5, 1.5)
    args = tuple([sample(Aval(s, "float64"), domain, seed, k) for k, s in enumerate([(n, n), (n,)])])
    cases: list[tuple[Jaxpr, tuple[NDArray, ...]]] = []
    for f in PROBLEMS[kind]:
        program = trace(CONTEXTS[context](partial(f, choices)), *args)
        cases.append((program.jaxpr, tuple([np.asarray(x) for x in program.bound])))
    (program_jaxpr, bound), (reference_jaxpr, reference_bound) = cases
    assert len(bound) == len(reference_bound)
    return Solution(program_jaxpr, reference_jaxpr, (*bound, *args), seed, (kind, context, choices))
