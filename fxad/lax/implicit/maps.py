"""Traces the functions of implicit problems: equations, solvers, and the linear maps that solvers call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

from fxad.core.dataclasses import dataclass
from fxad.core.flags import leading, select_by_flags
from fxad.core.memo import by_value
from fxad.core.trees import parts as tree_parts, tree
from fxad.core.trees.tree import Structure
from fxad.errors import DTypeError, NotDifferentiableError, TreeError, mismatch
from fxad.ir import Aval, HigherOrder, Jaxpr, Lit
from fxad.lax.control.traced_functions import TracedFunction, traced_body
from fxad.lax.creation import splat
from fxad.operations import promotion
from fxad.primitives.control.bodies import rotate_operands
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise.complex_parts import CONJ
from fxad.primitives.linearity import is_linear
from fxad.tracing.array import aval_of, is_scalar
from fxad.tracing.program import function_name
from fxad.tracing.tracer import bind
from fxad.transforms import dce, transpose
from fxad.transforms.ad.linear_rule import linear_form


@final
@dataclass(frozen=True, slots=True, eq=False)
class TreeType:
    """The type of a tree of arrays: its structure, and the types and paths of its leaves. The unknown of a problem and
    the right-hand side of a linear system have such a type. Only inexact leaves have tangents."""

    structure: Structure
    avals: tuple[Aval, ...]
    paths: tuple[str, ...]

    @property
    def inexact(self) -> tuple[bool, ...]:
        """A mask of the leaves with tangents."""
        return tuple([a.inexact for a in self.avals])

    @property
    def direction(self) -> TreeType:
        """The type of tangents: the same tree, with None for a leaf without a tangent."""
        if all(self.inexact):
            return self
        kept = [x for x in zip(self.avals, self.paths, strict=True) if x[0].inexact]
        leaf, none = tree.LEAF, tree.structure(None)
        structure = tree_parts.with_subtrees(self.structure, [leaf if a.inexact else none for a in self.avals])
        return TreeType(structure, tuple([a for a, _ in kept]), tuple([p for _, p in kept]))

    @property
    def argument(self) -> Structure:
        """The structure of the arguments of a function of the unknown."""
        return tree.tuple_structure(self.structure)


def type_and_leaves(op: str, what: str, value: object) -> tuple[TreeType, list[object]]:
    """Return the type of a value, and its leaves as arrays.

    Raises: ArgumentError for a leaf that is not an array; TreeError without a leaf; DTypeError without an inexact one.
    """
    leaves, structure = tree.flatten(value)
    paths = tuple(tree.paths(structure, what))
    avals = tuple([aval_of(x, f"{op}: {p}") for x, p in zip(leaves, paths, strict=True)])
    if not leaves:
        raise TreeError(f"{op}: {what} has no leaf", remedy="there is nothing to solve for: give arrays")
    if not any([a.inexact for a in avals]):
        types = ", ".join(map(str, avals))
        raise DTypeError(
            f"{op}: {what} has no floating or complex leaf ({types}), so there is no derivative",
            remedy="convert with astype('float32'), or, where you give the solver, call it by itself",
        )
    arrays = [splat(Lit.of(x, a)) if is_scalar(x) else x for x, a in zip(leaves, avals, strict=True)]
    return TreeType(structure, avals, paths), arrays


def right_hand_side(what: str, b: object) -> tuple[TreeType, list[object]]:
    """Return the type of the right-hand side of a linear system, and its leaves as arrays.

    Raises: as `type_and_leaves`; DTypeError for a leaf that is not floating or complex.
    """
    x_type, leaves = type_and_leaves(what, "b", b)
    for path, aval in zip(x_type.paths, x_type.avals, strict=True):
        if not aval.inexact:
            raise DTypeError(f"{what}: {path} is {aval}, which no solution has", remedy="convert it: astype('float32')")
    return x_type, leaves


# ------------------------------------------------------------------------------------------------------------- bodies


def check_result_type(
    what: str, fn: str, body: TracedFunction, x_type: TreeType, name: str, n_aux: int = 0
) -> TracedFunction:
    """Return the body of the function called `fn`, checked: its first results (all but `n_aux`) must have the type of
    the unknown, called `name`. Bare numbers are converted to it.

    Raises: ShapeError, DTypeError naming function, leaf and both types.
    """
    body = body.typed([*x_type.avals, *[None] * n_aux])
    for path, want, have in zip(x_type.paths, x_type.avals, body.jaxpr.out_avals, strict=False):
        if have is not want:
            error = mismatch(have, want)
            raise error(
                f"{what}: {fn} returns {have} for {path}, which is {want}",
                remedy=f"return what {name} is, leaf by leaf; nothing is converted silently",
            )
    return body


def check_same_tree(what: str, fn: str, found: Structure, x_type: TreeType, name: str, aux: bool = False) -> None:
    """Raise TreeError naming the function and both structures."""
    if found != x_type.structure:
        pair = aux and found.type is tuple and found.num_children == 2 and found.children()[0] == x_type.structure
        raise TreeError(
            f"{what}: {fn} returns {tree.shape_text(found)}, {name} is {tree.shape_text(x_type.structure)}",
            remedy="return the solution without its report, or give has_aux=True"
            if pair
            else f"return what {name} is, with new values",
        )


def trace_function(what: str, role: str, fn: Callable[..., object], x_type: TreeType, name: str) -> TracedFunction:
    """Trace a function from the unknown to its own type. Raises: TreeError, ShapeError, DTypeError."""
    body = traced_body(f"{what}: {role}", fn, x_type.argument, x_type.avals)
    called = f"{role} {function_name(fn)}"
    check_same_tree(what, called, body.out_tree, x_type, name)
    return check_result_type(what, called, body, x_type, name)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Solver:
    """A traced solver: the body returns the leaves of the solution, then those of the auxiliary result."""

    body: TracedFunction
    aux_tree: Structure | None

    def result(self, x_type: TreeType, outs: Sequence[object]) -> Any:
        """Return the user's result from the results of the body."""
        n = len(x_type.avals)
        x = tree.unflatten(x_type.structure, outs[:n])
        return x if self.aux_tree is None else (x, tree.unflatten(self.aux_tree, outs[n:]))

    @property
    def solution(self) -> TracedFunction:
        """Return the body without auxiliary results."""
        n = len(self.body.numbers) - (self.aux_tree.num_leaves if self.aux_tree else 0)
        jaxpr = self.body.jaxpr.with_outs(self.body.jaxpr.outs[:n])
        return replace(self.body, jaxpr=jaxpr, numbers=self.body.numbers[:n])


def trace_solver(
    what: str,
    role: str,
    fn: Callable[..., object],
    solve: Callable[[Any], object],
    x_type: TreeType,
    name: str,
    aux: bool,
) -> Solver:
    """Trace `solve`, which runs the user's solver `fn`, on a value of the type of the unknown.

    Raises: TreeError, ShapeError, DTypeError when it returns another type; ArgumentError for a value that is not a
            function.
    """

    def run(value: object) -> object:
        return solve(value)

    run.__name__ = function_name(fn)
    body = traced_body(f"{what}: {role}", run if callable(fn) else fn, x_type.argument, x_type.avals)
    called = f"{role} {function_name(fn)}"
    solution_tree, aux_tree = body.out_tree, None
    if aux:
        if solution_tree.type is not tuple or solution_tree.num_children != 2:
            raise TreeError(
                f"{what}: {called} returns {tree.shape_text(solution_tree)}, not a pair (solution, auxiliary)",
                remedy="has_aux=True is for a solver that returns such a pair",
            )
        solution_tree, aux_tree = solution_tree.children()
    check_same_tree(what, called, solution_tree, x_type, name, aux=True)
    return Solver(check_result_type(what, called, body, x_type, name, aux_tree.num_leaves if aux_tree else 0), aux_tree)


# --------------------------------------------------------------------------------------------------------------- maps


@final
class TracedMap:
    """A program as a function that solvers call: from a tree of the type of the unknown to such a tree.

    `jaxpr`: (leaves, then the `captured` values) -> leaves. `was_called` is True after a call. Most are linear maps.
    """

    def __init__(self, name: str, jaxpr: Jaxpr, captured: Sequence[object], x_type: TreeType) -> None:
        self.__name__ = name
        self.jaxpr = jaxpr
        self.captured = tuple(captured)
        self.x_type = x_type
        self.was_called = False

    @classmethod
    def of(cls, role: str, fn: Callable[..., object], body: TracedFunction, x_type: TreeType) -> TracedMap:
        """Return the map of a function that was traced. Its name in messages is `role` and that of the function."""
        jaxpr = rotate_operands(body.jaxpr, len(body.captured))
        return cls(f"{role} {function_name(fn)}".strip(), jaxpr, body.captured, x_type)

    def __call__(self, x: object) -> Any:
        """Apply the map. Raises: TreeError, ShapeError, DTypeError for a value of another type."""
        self.was_called = True
        leaves, structure = tree.flatten(x)
        x_type = self.x_type
        if structure != x_type.structure:
            raise TreeError(
                f"{self.__name__}: takes {tree.shape_text(x_type.structure)}, was given {tree.shape_text(structure)}",
                remedy="give what is solved for: its tree, with None for integers and bools",
            )
        for k, (value, want, path) in enumerate(zip(leaves, x_type.avals, x_type.paths, strict=True)):
            if is_scalar(value) and want.shape == () and promotion.scalar_dtype(value, want.dtype) is want.dtype:
                leaves[k] = splat(Lit.of(value, want))
                continue
            have = aval_of(value, f"{self.__name__}: {path}")
            if have is not want:
                error = mismatch(have, want)
                raise error(
                    f"{self.__name__}: takes {want} for {path}, was given {have}",
                    remedy="for a stack of vectors use vmap of it" if have.shape != want.shape else "convert it",
                )
        outs = bind(Call(self.jaxpr), *leaves, *self.captured)
        return tree.unflatten(structure, outs)

    @property
    def over_complex(self) -> bool:
        """Return True if the map is known to be linear, over the complex numbers and not only over the reals."""
        n = len(self.x_type.avals)
        return complex_linear(self.jaxpr, leading(n, len(self.jaxpr.ins)))

    def transposed(self, jaxpr: Jaxpr) -> TracedMap:
        """Return the transpose, whose program is given."""
        return TracedMap(f"transpose of {self.__name__}", jaxpr, self.captured, self.x_type)


def trace_linear_map(what: str, role: str, fn: Callable[..., object], x_type: TreeType, name: str) -> TracedFunction:
    """Trace a linear function of the unknown into a program in which each equation is linear.

    Raises: NotLinearError naming the equation; as `trace_function`.
    """
    body = trace_function(what, role, fn, x_type, name)
    n = len(body.captured)
    problem = f"{what}: {role} {function_name(fn)} is not linear in its argument"
    form = linear_form(rotate_operands(body.jaxpr, n), len(x_type.avals), problem)
    return replace(body, jaxpr=rotate_operands(form, len(x_type.avals)))


@by_value
def complex_linear(jaxpr: Jaxpr, flags: tuple[bool, ...]) -> bool:
    """Return True if a program that is linear in the marked operands is known to be linear over the complex numbers:
    all values that depend on them are complex, and nothing is conjugated. Any other is linear over the reals."""
    linear = {v for v, m in zip(jaxpr.ins, flags, strict=True) if m}
    for eqn in jaxpr.eqns:
        moves = tuple([a in linear for a in eqn.ins])
        if not any(moves):
            continue
        linear.update(eqn.outs)
        prim = eqn.prim
        if prim == CONJ or any([a.aval.dtype.kind != "c" for a in (*select_by_flags(eqn.ins, moves), *eqn.outs)]):
            return False
        for body in prim.bodies if isinstance(prim, HigherOrder) else ():
            # a call is linear in some operands if its body is; of other bodies all operands must be
            inside = moves if isinstance(prim, Call) else (True,) * len(body.ins)
            if not complex_linear(body, inside):
                return False
    return True


def transposed_program(jaxpr: Jaxpr, n: int) -> Jaxpr | None:
    """Return the transpose of a program with respect to its first `n` operands, or None if an equation is not linear in
    them or has no transpose."""
    slim = dce(jaxpr)
    flags = leading(n, len(jaxpr.ins))
    if not is_linear(slim, flags):
        return None
    try:
        return dce(transpose(slim, flags))
    except NotDifferentiableError:  # it contains a system whose solver has no transpose
        return None
