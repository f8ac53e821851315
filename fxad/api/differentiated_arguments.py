"""The arguments by which a program is differentiated, and the types that these and its results may have.

                     arguments                    results
    grad             real or complex floating     one real floating scalar
    jacrev           real or complex floating     real floating
    jacfwd           real floating                real or complex floating
    holomorphic      complex                      complex

`vjp` and `jvp` take real and complex arguments and results.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.api.chosen_arguments import ChosenArguments, operand_flags, ranks
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.dtypes import COMPLEX, FLOATING
from fxad.errors import ArgumentError, NotDifferentiableError, ShapeError
from fxad.ir import Aval
from fxad.tracing.program import Program
from fxad.tracing.static_args import Argnums


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
