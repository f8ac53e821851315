"""How the bodies of an equation stand to its operands and results, and how often they run.

A primitive with bodies declares its `Layout`. Everything that needs no mathematics is written over layouts: dead code,
effects and their order, checks, saved values, partial evaluation, costs, names in messages. Decision: docs/adr/0041.

This stands below `ir`, which it knows as types only.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias, final

from fxad.core.dataclasses import dataclass

if TYPE_CHECKING:
    from fxad.ir import Jaxpr

# ---------------------------------------------------------------- what a body sees of an operand, or gives for a result


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """Each run takes the operand as it is."""


@final
@dataclass(frozen=True, slots=True)
class Carry:
    """The first run takes the operand, each other one what the run before gave; the result is what the last one gave.

    A layout has at most one group of operands and one of results with this role, of one size, in the same order.
    """


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """Run k takes slice k of the operand along `axis`, and gives slice k of the result. Slices of runs that are not
    made are zero."""

    axis: int = 0


@final
@dataclass(frozen=True, slots=True)
class Value:
    """The run gives the result."""


@final
@dataclass(frozen=True, slots=True)
class BranchIndex:
    """One operand, which says which of the bodies runs; no body takes it. Out of range, it names the nearest."""


@final
@dataclass(frozen=True, slots=True)
class Count:
    """One operand, which says how often the body runs; no body takes it."""


@final
@dataclass(frozen=True, slots=True)
class Elements:
    """A run takes elements of the operands, or what runs gave, in an order that is not stated."""


Role: TypeAlias = Constant | Carry | Slice | Value | BranchIndex | Count | Elements

# In `Body.results`, in place of a group: a bool without axes, whether there is a further run; no result of an equation.
PREDICATE: Final = -1

# ------------------------------------------------------------------------------------------------ how often a body runs


@final
@dataclass(frozen=True, slots=True)
class Once:
    """Once. `opaque`: compiled code keeps it apart from what is around it."""

    opaque: bool = False


@final
@dataclass(frozen=True, slots=True)
class OneOf:
    """Once, if the index names it."""


@final
@dataclass(frozen=True, slots=True)
class Times:
    """`count` times, one run after the other; `reverse`: from the last slice to the first."""

    count: int
    reverse: bool = False


@final
@dataclass(frozen=True, slots=True)
class UpTo:
    """As often as the count says, but at most `most` times; `reverse` as in `Times`."""

    most: int
    reverse: bool = False


@final
@dataclass(frozen=True, slots=True)
class Unknown:
    """A number of times that is not known before, at most `most` times: as long as a predicate holds, if there is one.

    The predicate is a result of the body, or of another body: then it is asked before each run.
    """

    most: int | None = None


@final
@dataclass(frozen=True, slots=True)
class InParallel:
    """`count` times, and no run sees what another gave."""

    count: int


@final
@dataclass(frozen=True, slots=True)
class Never:
    """Not where the equation stands: it is a program of a rule."""


Runs: TypeAlias = Once | OneOf | Times | UpTo | Unknown | InParallel | Never

# ---------------------------------------------------------------------------------------------------------- the layout


@final
@dataclass(frozen=True, slots=True)
class Group:
    """Operands of an equation, or results, that stand together and have one role.

    `fixed`: programs of rules have them too, so none is added or removed.
    """

    role: Role
    size: int
    fixed: bool = False


@final
@dataclass(frozen=True, slots=True)
class Body:
    """A body: the groups of operands that it takes and of results that it gives, by their numbers, in its order.

    `stores`: reverse mode may store values of it. `linear`: of how many of its first operands it is a linear map that a
    rule transposes.
    """

    jaxpr: Jaxpr
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    runs: Runs = Once()
    stores: bool = False
    linear: int = 0


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """The groups of operands and of results of an equation, in order, and its bodies in the order of its parameters.

    `segment`: reverse mode stores the operands, and of the values of its bodies those that are marked to be kept.
    `label`: what messages call the equation, where that is not the name of the primitive.
    """

    operands: tuple[Group, ...]
    results: tuple[Group, ...]
    bodies: tuple[Body, ...]
    segment: bool = False
    label: str = ""

    @property
    def running(self) -> tuple[int, ...]:
        """The bodies that run where the equation stands."""
        return tuple([k for k, body in enumerate(self.bodies) if type(body.runs) is not Never])

    @property
    def has_rules(self) -> bool:
        """Whether there are bodies that do not run where the equation stands."""
        return len(self.running) < len(self.bodies)

    def operands_of(self, group: int) -> range:
        """The places of a group among the operands."""
        first = sum([g.size for g in self.operands[:group]])
        return range(first, first + self.operands[group].size)

    def results_of(self, group: int) -> range:
        """The places of a group among the results."""
        first = sum([g.size for g in self.results[:group]])
        return range(first, first + self.results[group].size)

    def takes(self, body: int) -> tuple[int, ...]:
        """For each operand of a body, the operand of the equation that it takes."""
        return tuple(chain(*[self.operands_of(g) for g in self.bodies[body].operands]))

    def gives(self, body: int) -> tuple[int | None, ...]:
        """For each result of a body, the result of the equation that it gives; None for a predicate."""
        groups = self.bodies[body].results
        return tuple(chain(*[(None,) if g == PREDICATE else self.results_of(g) for g in groups]))

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
        """The operands that are carried, and the results that are their last values."""
        at = next((k for k, group in enumerate(self.operands) if type(group.role) is Carry), None)
        if at is None:
            return {}
        to = next(k for k, group in enumerate(self.results) if type(group.role) is Carry)
        return dict(zip(self.operands_of(at), self.results_of(to), strict=True))

    def group_of(self, body: int, role: type[Role]) -> int | None:
        """The first group of operands with a role that a body takes and that may grow."""
        groups = self.bodies[body].operands
        return next((g for g in groups if isinstance(self.operands[g].role, role) and not self.operands[g].fixed), None)

    def taken_by(self, group: int) -> tuple[int, ...]:
        """The bodies that run and take a group of operands."""
        return tuple([k for k in self.running if group in self.bodies[k].operands])

    @property
    def transparent(self) -> bool:
        """Whether the results are values of bodies that run: no rules, and runs in a stated order or in none."""
        return not self.has_rules and not any([type(g.role) is Elements for g in self.operands])

    @property
    def once(self) -> int | None:
        """The body that runs exactly once, where that is all that runs."""
        running = self.running
        return running[0] if len(running) == 1 and type(self.bodies[running[0]].runs) is Once else None

    @property
    def depends(self) -> bool:
        """Whether a predicate decides how often bodies run."""
        return any([PREDICATE in self.bodies[k].results for k in self.running])

    @property
    def unbounded(self) -> bool:
        """Whether a predicate decides how often bodies run, and nothing else ends them."""
        return self.depends and any([self.bodies[k].runs == Unknown() for k in self.running])
