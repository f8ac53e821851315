"""Builds the equation of a `root` or `linear_solve` from a user's equation and its solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

from fxad.core.builder import Builder, rebind_operands
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.errors import NotDifferentiableError
from fxad.ir import Jaxpr
from fxad.lax.control.traced_functions import TracedFunction, common_operands, traced_body
from fxad.lax.implicit.maps import (
    TracedMap,
    TreeType,
    check_result_type,
    check_same_tree,
    trace_solver,
    transposed_program,
)
from fxad.operations.arguments import flag
from fxad.primitives.control.bodies import (
    instantiate_linear_outs,
    instantiate_outs,
    rotate_operands,
)
from fxad.primitives.implicit import Root
from fxad.tracing.program import function_name
from fxad.tracing.tracer import bind
from fxad.transforms import dce, jvp, linearize


@final
@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """An equation `equation(captured, x) = 0` for an unknown, with a value for each of its inexact leaves."""

    what: str
    x_type: TreeType
    guess: Sequence[object]
    equation: TracedFunction
    name: str

    def bind_root(
        self,
        fn: Callable[..., object],
        solve: Callable[[Any], object],
        tangent_solve: Callable[..., object],
        has_aux: bool,
    ) -> Any:
        """Bind a `root` equation and return its results. `solve` runs the user's solver `fn`.

        Raises: TreeError, ShapeError, DTypeError for solvers that return another type.
        """
        has_aux = flag(self.what, "has_aux", has_aux)
        forward = trace_solver(self.what, "solve", fn, solve, self.x_type, "initial_guess", has_aux)
        at, matvec = self._linearized()
        system = self._system(at, matvec, tangent_solve)
        bodies = [self.equation, forward.body, at, *[solver for _, solver in system]]
        (equation, run, point, *solvers), captured = common_operands(bodies)
        n = len(captured)
        # `Root` takes the programs of the system over (right-hand side, results of `at`, captured operands). A linear
        # map lacks the captured operands; a solver has them first.
        shared = (*point.out_avals, *[v.aval for v in point.ins[:n]])
        programs: list[Jaxpr] = []
        for (linear, _), solver in zip(system, solvers, strict=True):
            takes = (*linear.out_avals, *shared)
            # `rebind_operands` appends operands that the program does not read: the captured ones
            programs.append(rebind_operands(linear, range(len(takes)), types=dict(enumerate(takes))))
            programs.append(rotate_operands(solver, n))
        outs = bind(Root(equation, run, point, tuple(programs), n), *captured, *self.guess)
        return forward.result(self.x_type, outs)

    def _linearized(self) -> tuple[TracedFunction, Jaxpr]:
        """Linearize the equation with respect to the unknown: (captured, x) -> residuals; (directions, residuals) ->
        the derivative."""
        jaxpr, captured = self.equation.jaxpr, self.equation.captured
        mask = (*[False] * len(captured), *self.x_type.inexact)
        m = len(jaxpr.outs)
        try:
            split = linearize(jaxpr, mask)
        except NotDifferentiableError:  # forward mode may exist: compute the derivative together with the value
            fused, nonzero = jvp(jaxpr, mask)
            b = Builder()
            tangents, primals = b.inputs(self.x_type.direction.avals), b.inputs(jaxpr.in_avals)
            linear = fused.with_outs(instantiate_outs(fused.outs[m:], nonzero, jaxpr.out_avals, (True,) * m))
            matvec = dce(b.build(b.inline(linear, (*primals, *tangents)), f"derivative_{jaxpr.name}"))
            at = jaxpr.with_outs(jaxpr.ins)
        else:
            matvec = instantiate_linear_outs(split, (True,) * m)
            at = split.primal
            at = at.with_outs(at.outs[m:])
        return replace(self.equation, jaxpr=dce(at), numbers=(None,) * len(at.outs)), matvec

    def _system(
        self, at: TracedFunction, matvec: Jaxpr, tangent_solve: Callable[..., object]
    ) -> list[tuple[Jaxpr, TracedFunction]]:
        """Return the linear map of the tangents and its solver; and, if they exist, their transposes.

        matvec            program of the solver    solver reads matvec    solver of the transpose
        no transpose      any                      any                    none: reverse mode is refused
        has a transpose   has a transpose          any                    the transpose of the program
        has a transpose   no transpose             yes                    `tangent_solve` of the transposed map
        has a transpose   no transpose             no                     none: it would solve the same system again
        """
        x_type, avals = self.x_type.direction, at.jaxpr.out_avals
        m = len(x_type.avals)
        called: list[TracedMap] = []
        called_as = f"tangent_solve {function_name(tangent_solve)}"

        def traced(linear: Jaxpr, name: str) -> TracedFunction:
            def run(y: object, residuals: Sequence[object]) -> object:
                called.append(TracedMap(name, linear, residuals, x_type))
                return tangent_solve(called[-1], y)

            run.__name__ = function_name(tangent_solve)
            args = tree.tuple_structure(x_type.structure, tree.structure((0,) * len(avals)))
            fn = run if callable(tangent_solve) else tangent_solve
            body = traced_body(f"{self.what}: tangent_solve", fn, args, (*x_type.avals, *avals))
            check_same_tree(self.what, called_as, body.out_tree, x_type, "y", aux=True)
            return check_result_type(self.what, called_as, body, x_type, "y")

        name = f"derivative of {self.name}"
        solver = traced(matvec, name)
        reads_matvec = called[-1].was_called
        vecmat = transposed_program(matvec, m)
        if vecmat is None:
            return [(matvec, solver)]
        derived = transposed_program(rotate_operands(solver.jaxpr, len(solver.captured)), m)
        if derived is not None:
            transposed_solver = replace(solver, jaxpr=rotate_operands(derived, m + len(avals)))
        elif reads_matvec:
            transposed_solver = traced(vecmat, f"transpose of {name}")
        else:
            return [(matvec, solver)]
        return [(matvec, solver), (vecmat, transposed_solver)]
