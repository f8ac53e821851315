"""`residuals`, `partial_eval`: the values that a program stores, as values to print and edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ParamSpec, final

from fxad import transforms
from fxad.api.chosen_arguments import ChosenArguments, operand_flags
from fxad.api.lift import before_differentiation, check_program
from fxad.core.dataclasses import dataclass
from fxad.core.trees import parts as tree_parts, tree
from fxad.errors import ArgumentError, NotDifferentiableError, shown
from fxad.ir import Flags
from fxad.tracing.array import Array
from fxad.tracing.program import Program, count_text
from fxad.tracing.static_args import Argnums
from fxad.transforms.ad.halves import PassedValue
from fxad.transforms.ad.linearize import operands_without_derivative
from fxad.transforms.memory.residuals import Residuals

# A parameter `Program[..., object]` would be the context of a lambda in `f(trace(lambda ...))`, which mypy cannot infer.
P = ParamSpec("P")


def residuals(program: Program[P, object], argnums: Argnums | None = None) -> Residuals:
    """Return the residuals of reverse mode: a table to print and to edit.

    Each row has the type and bytes of a value, the operation and user's line that compute it, the operation of the
    backward pass that reads it, and the policy that stores it. Without `argnums` the derivative is with respect to all
    floating arguments and bound arrays for which it is defined.

    Law:    `remat(program, plan=residuals(program).without(k))` has the same gradients and does not store row k.
    Raises: ArgumentError for a value that is not a Program, and for argnums that do not fit it; NotDifferentiableError
            for an argument without floating leaves.
    """
    check_program("residuals", program)
    program = before_differentiation(program)  # as `grad` of it does
    if argnums is None:
        avals, n = program.jaxpr.in_avals, len(program.bound)
        without_derivative = operands_without_derivative(program.jaxpr, tuple([k < n for k in range(len(avals))]))
        return _named(program, tuple([a.inexact and not f for a, f in zip(avals, without_derivative, strict=True)]))
    chosen, avals = ChosenArguments.by_number("residuals", program, argnums), program.in_avals
    for argument in chosen.arguments:
        if argument.leaves and not any([avals[k].inexact for k in argument.leaves]):
            k = argument.leaves[0]
            raise NotDifferentiableError(
                f"residuals: argument {program.paths[k]} of {program.name} has type {avals[k]}, which has no tangent",
                remedy="choose other argnums, or convert the argument to a floating dtype",
            )
    return _named(program, operand_flags(program, chosen.inexact_leaves))


def _named(program: Program[..., object], wrt: Flags) -> Residuals:
    """Return the residuals, with the paths of the arguments."""
    table = transforms.residuals(program.jaxpr, wrt)
    return table.named([program.operand_path(k) for k in range(len(program.jaxpr.ins))])


@final
@dataclass(frozen=True, slots=True)
class Partial:
    """The two halves of a program. `known` takes the known arguments and returns (results, residuals), with None for
    unknown results. `unknown` takes (residuals, *the other arguments) and returns the other results, with None for
    known ones. `residuals` describes the values passed from `known` to `unknown`."""

    known: Program[..., tuple[Any, tuple[Array, ...]]]
    unknown: Program[..., Any]
    residuals: tuple[PassedValue, ...]


def partial_eval(program: Program[P, object], known: Sequence[bool]) -> Partial:
    """Split a program into what the known positional arguments determine, and the rest.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> x = fx.Spec((3,), "float32")
    >>> program = fx.trace(lambda a, b: (fnp.exp(a), fnp.sin(a) * b), x, x)
    >>> halves = fx.partial_eval(program, known=(True, False))
    >>> [r.name for r in halves.residuals]
    ['sin %1']
    >>> a, b = fnp.ones(3), fnp.arange(3, dtype="float32")
    >>> (exp_a, _), residuals = halves.known(a)
    >>> _, product = halves.unknown(residuals, b)
    >>> bool((product == program(a, b)[1]).all() and (exp_a == program(a, b)[0]).all())
    True

    An equation is known if all its operands are: arguments marked in `known`, bound constants, literals, and results of
    known equations. Equations with bodies are split: calls, `remat`, a `cond` whose index is known, and a
    `scan`, whose known part is a scan of its own, here over the exponentials:

    >>> from fxad import lax
    >>> def blend(a, b):
    ...     return lax.scan(lambda c, x: (0.5 * c + fnp.exp(x), None), b, a)[0]
    >>> halves = fx.partial_eval(fx.trace(blend, x, fx.Spec((), "float32")), known=(True, False))
    >>> [(r.name, str(r.aval)) for r in halves.residuals]
    [('scan %0', 'f32[3]')]

    A carry is known if each step computes a known one from it. Residuals of steps are stacked, except for constants and
    slices, which exist already. A `while` with a bound and a known predicate is split too: the known part counts its
    steps, and the unknown part is a scan of as many. Other `while` loops, a `cond` on an unknown index, a function with
    custom rules, and an equation with an effect are known as a whole or not at all.

    Law:    both halves together give the results of the program, bit for bit; no equation is in both; the first
            half returns all known results. Effects stay in order: one that follows an effect of the second is in the second.
    Raises: ArgumentError for a value that is not a Program, and for a mask that is invalid or of another length.
    """
    check_program("partial_eval", program)
    arguments = program.positional_arguments
    if not isinstance(known, Sequence) or not all([isinstance(k, bool) for k in known]):
        raise ArgumentError(
            f"partial_eval: known is {shown(known)}, not a sequence of bools",
            remedy="one bool for each positional argument",
        )
    if len(known) != len(arguments):
        raise ArgumentError(
            f"partial_eval: known has {len(known)} entries, {program.name} takes"
            f" {count_text(len(arguments), 'positional argument')}",
            remedy="one bool for each positional argument; keyword arguments are not known",
        )
    known_args = ChosenArguments(program, [a for a, k in zip(arguments, known, strict=True) if k])
    unknown_args = ChosenArguments(program, [a for a, k in zip(arguments, known, strict=True) if not k])
    halves = transforms.partial_eval(program.jaxpr, (True,) * len(program.bound) + known_args.leaf_flags)
    residuals = tree.structure((0,) * len(halves.residuals))
    leaf, none = tree.LEAF, tree.structure(None)
    known_results = tree_parts.with_subtrees(program.out_tree, [leaf if k else none for k in halves.out_known])
    unknown_results = tree_parts.with_subtrees(program.out_tree, [none if k else leaf for k in halves.out_known])
    return Partial(
        Program(
            halves.known,
            tree.call_structure(known_args.tree),
            tree.tuple_structure(known_results, residuals),
            program.bound,
            known_args.names,
            f"known_{program.name}",
        ),
        Program(
            halves.unknown,
            tree.call_structure(
                tree.tuple_structure(residuals, *[a.tree for a in unknown_args.arguments]), program.kwargs_tree
            ),
            unknown_results,
            (),
            ("residuals", *unknown_args.names),
            f"unknown_{program.name}",
        ),
        halves.residuals,
    )
