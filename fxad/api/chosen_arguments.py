"""The arguments of a program that a user chooses: `argnums` by number, `keep` by number or by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar, final

from fxad.api.lift import tangent_tree
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, shown
from fxad.operations.arguments import argument_keys, plain_ints
from fxad.tracing.program import Argument, Program, count_text
from fxad.tracing.static_args import Argnums, ArgumentNames

T = TypeVar("T")


@final
class ChosenArguments:
    """Arguments of a program, in the order of the choice.

    `alone`: the user chose one argument, and not a sequence of them. A tree about it is then that of the argument, and
    not a tuple of trees.
    """

    __slots__ = ("alone", "arguments", "program")

    def __init__(self, program: Program[..., object], arguments: Sequence[Argument], alone: bool = False) -> None:
        self.program: Final = program
        self.arguments: Final = tuple(arguments)
        self.alone: Final = alone

    @classmethod
    def by_number(cls, what: str, program: Program[..., object], argnums: Argnums) -> ChosenArguments:
        """Positional arguments. Raises: ArgumentError if one does not exist or is chosen twice."""
        argnums, positional = plain_ints(argnums), program.positional_arguments
        numbers, n = argument_keys(argnums, int), len(positional)
        if numbers is None:
            raise ArgumentError(
                f"{what}: argnums is {shown(argnums)}, not an int or a sequence of ints",
                remedy="number the positional arguments from 0; negative numbers count from the last",
            )
        if not all([-n <= k < n for k in numbers]):
            raise ArgumentError(
                f"{what}: argnums {argnums!r} does not fit {program.name}, which was given"
                f" {count_text(n, 'positional argument')}",
                remedy="pass what is to be chosen by position: keyword arguments have no number",
            )
        if len({k % n for k in numbers}) != len(numbers):
            raise ArgumentError(
                f"{what}: argnums {argnums!r} names an argument twice", remedy="name each argument once"
            )
        return cls(program, [positional[k] for k in numbers], isinstance(argnums, int))

    @classmethod
    def by_number_or_name(
        cls, what: str, role: str, program: Program[..., object], choice: ArgumentNames
    ) -> ChosenArguments:
        """Positional and keyword arguments. `role` is the name of `choice` in messages.

        Raises: ArgumentError if one does not exist or is chosen twice.
        """
        choice, positional = plain_ints(choice), program.positional_arguments
        keys, n = argument_keys(choice), len(positional)
        if keys is None:
            raise ArgumentError(
                f"{what}: {role} is {shown(choice)}, not a number or a name, or a sequence of them",
                remedy="number the positional arguments from 0",
            )
        by_name = {a.name: a for a in program.arguments}
        for k in keys:
            if isinstance(k, str) and k not in by_name:
                raise ArgumentError(
                    f"{what}: {role} has {shown(k)}, which is no argument of {program.name}",
                    remedy=f"its arguments are {', '.join(by_name)}",
                )
            if isinstance(k, int) and not -n <= k < n:
                raise ArgumentError(
                    f"{what}: {role} has {k}, and {program.name} was given {count_text(n, 'positional argument')}",
                    remedy="number them from 0; what is given by keyword is chosen by name",
                )
        arguments = [by_name[k] if isinstance(k, str) else positional[k] for k in keys]
        chosen = cls(program, arguments, isinstance(choice, int | str))
        if len(set(chosen.keys)) != len(keys):
            raise ArgumentError(f"{what}: {role} {choice!r} has an argument twice", remedy="name each argument once")
        return chosen

    @property
    def keys(self) -> tuple[int | str, ...]:
        """The positions of positional arguments, the names of keyword arguments."""
        return tuple([a.key for a in self.arguments])

    @property
    def names(self) -> tuple[str, ...]:
        """Their names in messages."""
        return tuple([a.name for a in self.arguments])

    def of_call(self, args: Sequence[T], kwargs: Mapping[str, T]) -> list[T]:
        """Their values among the arguments of a call."""
        return [kwargs[k] if isinstance(k, str) else args[k] for k in self.keys]

    def others_of_call(self, args: Sequence[T], kwargs: Mapping[str, T]) -> tuple[list[T], dict[str, T]]:
        """Return the values of the other arguments of a call."""
        keys = self.keys
        return [a for k, a in enumerate(args) if k not in keys], {k: a for k, a in kwargs.items() if k not in keys}

    def function(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Callable[..., object]:
        """Return the program as a function of these arguments alone: the others are those of a call."""

        def of_chosen(*values: object) -> object:
            chosen = dict(zip(self.keys, values, strict=True))
            return self.program(
                *[chosen.get(k, x) for k, x in enumerate(args)], **{k: chosen.get(k, x) for k, x in kwargs.items()}
            )

        return of_chosen

    @property
    def leaves(self) -> list[int]:
        """The indices of their leaves among all argument leaves."""
        return [k for a in self.arguments for k in a.leaves]

    @property
    def inexact_leaves(self) -> list[int]:
        """The indices of those leaves that have tangents."""
        avals = self.program.in_avals
        return [k for k in self.leaves if avals[k].inexact]

    @property
    def leaf_flags(self) -> tuple[bool, ...]:
        """Marks their leaves among all argument leaves."""
        leaves = set(self.leaves)
        return tuple([k in leaves for k in range(len(self.program.in_avals))])

    @property
    def tree(self) -> Structure:
        """The tree of the argument, or the tuple of the trees of the arguments."""
        return self._as_one_tree([a.tree for a in self.arguments])

    @property
    def tangent_tree(self) -> Structure:
        """The same for tangents: None stands for a leaf without a tangent."""
        avals = self.program.in_avals
        return self._as_one_tree([tangent_tree(a.tree, [avals[k] for k in a.leaves]) for a in self.arguments])

    def _as_one_tree(self, trees: Sequence[Structure]) -> Structure:
        return trees[0] if self.alone else tree.tuple_structure(*trees)


def operand_flags(program: Program[..., object], leaves: Collection[int]) -> tuple[bool, ...]:
    """Mark the operands of the jaxpr (bound ones first) that are these argument leaves."""
    chosen = set(leaves)
    return (False,) * len(program.bound) + tuple([k in chosen for k in range(len(program.in_avals))])


def ranks(leaves: Sequence[int]) -> list[int]:
    """Return for each leaf, its place among these leaves in increasing order, which is the order of results of the
    jaxpr of a derivative."""
    rank = {leaf: k for k, leaf in enumerate(sorted(leaves))}
    return [rank[leaf] for leaf in leaves]
