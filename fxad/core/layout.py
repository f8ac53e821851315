"""Layouts: the relation of the bodies of an equation to its operands and results, and the number of their runs.

A primitive with bodies declares its `Layout`. Generic code reads layouts: dead code elimination, effects and their
order, checks, kept values, partial evaluation, costs, names in messages. Decision: docs/adr/0041.

The layout of a `scan` of 10 steps over a body `(w, h, x) -> (h, y)`, with a constant w, a carry h and slices x of xs:

    operands: w      h      xs        Group(Constant(), 1), Group(Carry(), 1), Group(Sliced(), 1)
    results:         h      ys        Group(Carry(), 1), Group(Sliced(), 1)
    body:     takes the groups of operands 0, 1, 2 and returns the groups of results 0, 1
              Body(body, operands=(0, 1, 2), results=(0, 1), runs=Times(10))

`ir` imports this module. This module imports `ir` for types only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

from fxad.core.atoms import DimensionAxes, Lit, MeshAxes
from fxad.core.dataclasses import dataclass

if TYPE_CHECKING:
    from fxad.ir import Jaxpr

T = TypeVar("T")

# ---------------------------------------------------------------------------------- the roles of operands and results


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """Each run reads the whole operand."""


@final
@dataclass(frozen=True, slots=True)
class Carry:
    """A loop carry. The first run reads the operand, each later run the value of the run before. The result is the
    value of the last run.

    A layout has at most one group of operands and one of results with this role, of one size, in the same order.
    """


@final
@dataclass(frozen=True, slots=True)
class Sliced:
    """Run k reads slice k of the operand along `axis`, and returns slice k of the result. If fewer runs are made, the
    remaining slices of the result are zero."""

    axis: int = 0


@final
@dataclass(frozen=True, slots=True)
class Part:
    """Each run reads or returns one part of the array. `mesh` are the named axes of the runs with their sizes, the
    first one slowest. `spec` names, for each axis of the array, the axes of the mesh that divide it."""

    mesh: MeshAxes
    spec: DimensionAxes


@final
@dataclass(frozen=True, slots=True)
class Value:
    """The run returns the whole result."""


@final
@dataclass(frozen=True, slots=True)
class BranchIndex:
    """One operand: the index of the body that runs, clamped to the valid range. No body takes it."""


@final
@dataclass(frozen=True, slots=True)
class Count:
    """One operand: the number of runs of the body. No body takes it."""


@final
@dataclass(frozen=True, slots=True)
class Elements:
    """A run reads elements of the operands, or results of other runs, in an unspecified order, as in a reduction."""


Role: TypeAlias = Constant | Carry | Sliced | Part | Value | BranchIndex | Count | Elements

# In `Body.results`, in place of a group: the body returns a scalar bool, True for a further run. The equation has no
# such result.
PREDICATE: Final = -1

# ------------------------------------------------------------------------------------------------ how often a body runs


@final
@dataclass(frozen=True, slots=True)
class Once:
    """Once. `opaque`: the compiler does not merge the body with the code around the call."""

    opaque: bool = False


@final
@dataclass(frozen=True, slots=True)
class OneOf:
    """Once if the index selects it, else not at all."""


@final
@dataclass(frozen=True, slots=True)
class Times:
    """`count` runs in sequence; `reverse`: from the last slice to the first."""

    count: int
    reverse: bool = False


@final
@dataclass(frozen=True, slots=True)
class UpTo:
    """As many runs as the `Count` operand says, but at most `most`; `reverse` as in `Times`."""

    most: int
    reverse: bool = False


@final
@dataclass(frozen=True, slots=True)
class Unknown:
    """A number of runs that is not known before the loop, at most `most`. If there is a predicate, runs continue while
    it holds.

    The predicate is a result of this body, or of another body, which is then evaluated before each run. A predicate of
    this body is known only after a run, so there is at least one, unless `most` is 0.
    """

    most: int | None = None


@final
@dataclass(frozen=True, slots=True)
class InParallel:
    """`count` independent runs. If their axes have names, `mesh` are these with their sizes, the first one slowest.
    `devices` are the numbers of the devices of the runs, if the program chooses them."""

    count: int
    mesh: MeshAxes = ()
    devices: tuple[int, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Never:
    """Evaluating the equation does not run the body: it is a program of a rule, such as a custom derivative."""


Runs: TypeAlias = Once | OneOf | Times | UpTo | Unknown | InParallel | Never

# ---------------------------------------------------------------------------------------------------------- the layout


@final
@dataclass(frozen=True, slots=True)
class Group:
    """Adjacent operands, or adjacent results, of an equation with the same role. A body that names the group takes, or
    returns, one value for each member.

    size:  the number of members.
    fixed: passes neither remove members nor add any. A group is fixed if a body that never runs, such as the program of
           a custom derivative, has operands or results for its members.
    """

    role: Role
    size: int
    fixed: bool = False


@final
@dataclass(frozen=True, slots=True)
class Body:
    """A body, and its relation to the equation.

    operands: the groups of operands that it takes, by index, in its order.
    results:  the groups of results that it returns, by index, in its order; `PREDICATE` for the predicate of a loop.
    runs:     how often it runs.
    stores:   reverse mode may store values of the body.
    linear:   the body is linear in so many of its first operands, and a rule transposes it with respect to these.
    """

    jaxpr: Jaxpr
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    runs: Runs = Once()
    stores: bool = False
    linear: int = 0

    def operands_in(self, groups: Sequence[Sequence[T]]) -> list[T]:
        """Return the members of the groups of operands that the body takes, in its order."""
        return [member for g in self.operands for member in groups[g]]


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """The groups of operands and of results of an equation, in order, and its bodies in the order of its parameters.

    remat: reverse mode stores the operands, and of the values of the bodies only the kept ones (marked with `keep`).
    label: the name of the equation in messages, if it differs from the name of the primitive.
    """

    operands: tuple[Group, ...]
    results: tuple[Group, ...]
    bodies: tuple[Body, ...]
    remat: bool = False
    label: str = ""

    @property
    def running(self) -> tuple[int, ...]:
        """The indices of the bodies that run when the equation is evaluated."""
        return tuple([k for k, body in enumerate(self.bodies) if type(body.runs) is not Never])

    @property
    def has_rules(self) -> bool:
        """Return True if some bodies belong to rules, and do not run when the equation is evaluated."""
        return len(self.running) < len(self.bodies)

    @property
    def n_operands(self) -> int:
        """The number of operands of the equation."""
        return sum([g.size for g in self.operands])

    def operands_of(self, group: int) -> range:
        """Return the indices of the operands of a group."""
        first = sum([g.size for g in self.operands[:group]])
        return range(first, first + self.operands[group].size)

    def results_of(self, group: int) -> range:
        """Return the indices of the results of a group."""
        first = sum([g.size for g in self.results[:group]])
        return range(first, first + self.results[group].size)

    def operand_indices(self, body: int) -> tuple[int, ...]:
        """Return for each operand of a body, the operand of the equation that it takes."""
        return tuple(chain(*[self.operands_of(g) for g in self.bodies[body].operands]))

    def result_indices(self, body: int) -> tuple[int | None, ...]:
        """Return for each result of a body, the result of the equation that it supplies; None for a predicate."""
        groups = self.bodies[body].results
        return tuple(chain(*[(None,) if g == PREDICATE else self.results_of(g) for g in groups]))

    @property
    def operand_groups(self) -> list[list[int]]:
        """The operands of each group, by their indices: lists to which `with_operands` adds further operands."""
        return [list(self.operands_of(g)) for g in range(len(self.operands))]

    def first_result(self, body: int, group: int) -> int:
        """Return the index of the first result of a body that belongs to a group."""
        results = self.bodies[body].results
        before = results[: results.index(group)]
        return sum([1 if g == PREDICATE else self.results[g].size for g in before])

    @property
    def operand_roles(self) -> tuple[Role, ...]:
        """The role of each operand."""
        return tuple([g.role for g in self.operands for _ in range(g.size)])

    @property
    def result_roles(self) -> tuple[Role, ...]:
        """The role of each result."""
        return tuple([g.role for g in self.results for _ in range(g.size)])

    @property
    def carries(self) -> dict[int, int]:
        """A map from the operands that are carries to the results that are their final values."""
        operand_group = next((k for k, group in enumerate(self.operands) if type(group.role) is Carry), None)
        if operand_group is None:
            return {}
        result_group = next(k for k, group in enumerate(self.results) if type(group.role) is Carry)
        return dict(zip(self.operands_of(operand_group), self.results_of(result_group), strict=True))

    def growable_group(self, body: int, role: type[Role]) -> int | None:
        """Return the first group of operands, of those that a body takes, that has the role and is not `fixed`: callers
        add members to it. None if there is none."""
        groups = self.bodies[body].operands
        return next((g for g in groups if isinstance(self.operands[g].role, role) and not self.operands[g].fixed), None)

    def bodies_taking(self, group: int) -> tuple[int, ...]:
        """Return the running bodies that take a group of operands."""
        return tuple([k for k in self.running if group in self.bodies[k].operands])

    @property
    def transparent(self) -> bool:
        """Return True if the results are values of bodies that run: there are no rules and no `Elements`."""
        return not self.has_rules and not any([type(g.role) is Elements for g in self.operands])

    @property
    def states_results(self) -> bool:
        """Return True if the layout determines the results: a body runs, and no operand or result is `Elements` or a
        `Part`."""
        partial = any([isinstance(g.role, Elements | Part) for g in (*self.operands, *self.results)])
        return bool(self.running) and not partial

    @property
    def once(self) -> int | None:
        """The body that runs exactly once, if no other body runs; else None."""
        running = self.running
        return running[0] if len(running) == 1 and type(self.bodies[running[0]].runs) is Once else None

    @property
    def has_predicate(self) -> bool:
        """Return True if a predicate determines the number of runs."""
        return any([PREDICATE in self.bodies[k].results for k in self.running])

    @property
    def unbounded(self) -> bool:
        """Return True if a predicate alone determines the number of runs, without an upper bound."""
        return self.has_predicate and any([self.bodies[k].runs == Unknown() for k in self.running])

    @property
    def takes_no_step(self) -> bool:
        """Return True for a loop whose number of steps is 0, or whose predicate is the literal False."""
        for body in [self.bodies[k] for k in self.running]:
            match body.runs:
                case Times(0) | UpTo(0) | Unknown(0) | InParallel(0):
                    return True
                case _:
                    pass
            if body.results == (PREDICATE,) and isinstance(more := body.jaxpr.outs[0], Lit) and not more.value:
                return True
        return False
