"""The arguments of a program that a user chooses: `argnums` by number, `keep` by number or by name. Those by which it is
differentiated are checked, and so are its results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar, final

from fxad.api.lift import tangent_tree
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.dtypes import COMPLEX, FLOATING
from fxad.errors import ArgumentError, NotDifferentiableError, ShapeError, shown
from fxad.ir import Aval
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
                f"{what}: argnums is {argnums!r}, not an int or a sequence of ints",
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
                    f"{what}: {role} has {k!r}, which is no argument of {program.name}",
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


# -------------------------------------------------------------------------------------------- arguments of a derivative


class DifferentiatedArguments:
    """The arguments by which a program is differentiated: the mask over its operands, the tree of their gradients.

    The jaxpr of a derivative returns gradients in the order of its operands. `order` are their places there, in the
    order of `argnums`.
    """

    def __init__(
        self,
        what: str,
        program: Program[..., object],
        argnums: Argnums,
        allow_int: bool = False,
        holomorphic: bool = False,
        real_arguments: bool = False,
    ) -> None:
        chosen = ChosenArguments.by_number(what, program, argnums)
        self.leaves = chosen.inexact_leaves if allow_int else chosen.leaves
        self.tree = chosen.tangent_tree if allow_int else chosen.tree  # None stands for the gradient of an integer
        if holomorphic:
            check_complex(what, program, self.leaves)
        else:
            # reverse mode takes complex arguments of a real result: its derivative is the vjp of basis vectors
            _check_real(what, program, self.leaves, complex_too=not real_arguments)
        self.mask = operand_flags(program, self.leaves)
        self.order = ranks(self.leaves)


def _check_real(what: str, program: Program[..., object], leaves: Sequence[int], *, complex_too: bool) -> None:
    """Raise NotDifferentiableError naming the first of the argument leaves that is not real floating, nor complex if
    `complex_too`."""
    avals = program.in_avals
    for k in leaves:
        aval = avals[k]
        if aval.dtype not in FLOATING and not (complex_too and aval.dtype in COMPLEX):
            remedy = (
                "give holomorphic=True for a holomorphic function, or use jacrev, vjp or jvp"
                if aval.inexact
                else "choose other argnums, close over the argument, or convert it to a floating dtype"
            )
            raise NotDifferentiableError(
                f"{what}: argument {program.paths[k]} of {program.name} has type {aval}, not real floating",
                remedy=remedy,
            )


def check_complex(what: str, program: Program[..., object], leaves: Sequence[int]) -> None:
    """Raise NotDifferentiableError naming the first of the argument leaves that is not complex."""
    avals = program.in_avals
    for k in leaves:
        if avals[k].dtype not in COMPLEX:
            raise NotDifferentiableError(
                f"{what}: argument {program.paths[k]} of {program.name} has type {avals[k]}, not complex",
                remedy="leave out holomorphic=True, or convert the argument to a complex dtype",
            )


def check_types_for_forward_mode(
    what: str, program: Program[..., object], leaves: Sequence[int], holomorphic: bool
) -> None:
    """Raise NotDifferentiableError for a Jacobian by forward mode: its arguments are real, and its results real or complex;
    of a `holomorphic` function both are complex."""
    if not holomorphic:
        _check_real(what, program, leaves, complex_too=False)
        return
    check_complex(what, program, leaves)
    for aval, path in zip(program.out_avals, tree.paths(program.out_tree, "result"), strict=True):
        check_complex_result(what, program, aval, path)


def check_complex_result(what: str, program: Program[..., object], aval: Aval, path: str) -> None:
    """Raise NotDifferentiableError for a result that is not complex."""
    if aval.dtype not in COMPLEX:
        raise NotDifferentiableError(
            f"{what}: {path} of {program.name} has type {aval}, not complex",
            remedy="leave out holomorphic=True, or return complex numbers",
        )


def check_results(
    what: str, program: Program[..., object], has_aux: bool, holomorphic: bool = False
) -> Structure | None:
    """Return the tree of the auxiliary results, if any. Raises: ArgumentError, ShapeError, NotDifferentiableError."""
    check = _check_complex_scalar if holomorphic else _check_scalar
    out = program.out_tree
    if not has_aux:
        if out.num_nodes != 1 or out.num_leaves != 1:
            raise ShapeError(
                f"{what}: {program.name} returns {tree.shape_text(out)}, not a single scalar",
                remedy="return the scalar alone, or (scalar, auxiliary results) with has_aux=True",
            )
        check(what, program)
        return None
    parts = out.children()
    if out.type is not tuple or len(parts) != 2 or parts[0].num_leaves != 1 or parts[0].num_nodes != 1:
        raise ArgumentError(
            f"{what}: has_aux=True, but {program.name} returns {tree.shape_text(out)}",
            remedy="return a pair (scalar, auxiliary results)",
        )
    check(what, program)
    return parts[1]


def _check_scalar(what: str, program: Program[..., object]) -> None:
    # check here too: equal programs share one jaxpr, and its name may be that of another program
    aval = program.out_avals[0]
    if aval.shape:
        raise ShapeError(
            f"{what}: {program.name} returns {aval}, not a scalar",
            remedy="reduce the result (sum, mean), or use jacrev, jacfwd or vjp",
        )
    if aval.dtype not in FLOATING:
        raise NotDifferentiableError(
            f"{what}: {program.name} returns {aval}, not a real floating scalar",
            remedy="convert the result to a floating dtype (take the real part of a complex one)",
        )


def _check_complex_scalar(what: str, program: Program[..., object]) -> None:
    aval = program.out_avals[0]
    if aval.dtype not in COMPLEX or aval.shape:
        raise NotDifferentiableError(
            f"{what}: {program.name} returns {aval}, not a complex scalar",
            remedy="leave out holomorphic=True, or return one complex number",
        )
