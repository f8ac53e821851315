"""`interpret` and `diff`: the reference interpreter, and two programs side by side."""

from __future__ import annotations

from typing import Any, ParamSpec

from fxad.api.lift import check_program
from fxad.core.diff import Diff, Difference, side_by_side
from fxad.core.interpreter import Observe, run
from fxad.core.trees import tree
from fxad.errors import ArgumentError, shown
from fxad.ir import Jaxpr
from fxad.operations.arguments import function
from fxad.tracing.program import Program, numpy_operands

# A parameter `Program[..., object]` would be the context of a lambda in `f(trace(lambda ...))`, which mypy cannot infer.
P = ParamSpec("P")
Q = ParamSpec("Q")


def interpret(program: Program[P, object], /, *args: object, observe: Observe | None = None, **kwargs: object) -> Any:
    """Run a program equation by equation in NumPy: the reference semantics, without XLA.

    Results have the program's tree, with NumPy arrays for leaves. `observe(number, equation, results)` is called after
    every equation.

    Raises: what a call of the program raises for arguments that do not fit; ArgumentError for what is not a Program, and
            for an `observe` that is not a function.
    """
    check_program("interpret", program, ", ...")
    if observe is not None:
        function("interpret", "observe", observe)
    jaxpr, operands = numpy_operands(program, args, kwargs)
    return program.out_tree.unflatten(run(jaxpr, operands, observe))


def diff(a: Program[P, object] | Jaxpr, b: Program[Q, object] | Jaxpr) -> Diff | None:
    """Return the difference of two programs; None if they are equal.

    It prints as the path of the first difference and the equations of both programs side by side, with + and -, the
    user's lines and the bodies that differ. Programs are compared by their jaxprs, then by the trees of arguments and
    results. Values of bound constants are not compared (docs/adr/0003).

    Raises: ArgumentError for what is neither a Program nor a Jaxpr.
    """
    difference = side_by_side(_jaxpr(a), _jaxpr(b))
    if difference is not None or not (isinstance(a, Program) and isinstance(b, Program)):
        return difference
    for what, left, right in (("arguments", a.in_tree, b.in_tree), ("results", a.out_tree, b.out_tree)):
        if left != right:
            return Diff(Difference((what,), tree.shape_text(left), tree.shape_text(right)), ())
    return None


def _jaxpr(program: Program[..., object] | Jaxpr) -> Jaxpr:
    if isinstance(program, Program):
        return program.jaxpr
    if isinstance(program, Jaxpr):
        return program
    raise ArgumentError(f"diff: takes Programs or Jaxprs, got {shown(program)}", remedy="trace the function first")
