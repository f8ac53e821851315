"""`residuals`, `partial_eval`: the values that a program stores, as values to print and edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from fxad import transforms
from fxad.api.lift import args_tree, argument_numbers, leaf_ranges, mask_of, positional, tuple_structure
from fxad.core import tree
from fxad.core.dataclasses import dataclass
from fxad.core.tree import Structure
from fxad.errors import ArgumentError, NotDifferentiableError
from fxad.tracing.array import Array
from fxad.tracing.program import Program, count_text
from fxad.tracing.static_args import Argnums
from fxad.transforms.inversion.second_order import without_derivative
from fxad.transforms.memory.partial_eval import Halves, PassedValue
from fxad.transforms.memory.residuals import Residuals


def residuals(program: Program[..., object], argnums: Argnums | None = None) -> Residuals:
    """Return the residuals of reverse mode: a table to print and to edit.

    Each row has the type and bytes of a value, the operation and user's line that compute it, the operation of the
    backward pass that reads it, and the policy that stores it. Without `argnums` the derivative is with respect to all
    floating arguments and bound arrays for which it is defined.

    Law:    `remat(program, plan=residuals(program).without(k))` has the same gradients and does not store row k.
    Raises: ArgumentError for a value that is not a Program, and for argnums that do not fit it; NotDifferentiableError
            for an argument without floating leaves.
    """
    _check_program("residuals", program)
    if argnums is None:
        avals, n = program.jaxpr.in_avals, len(program.bound)
        fixed = without_derivative(program.jaxpr, tuple([k < n for k in range(len(avals))]))
        return transforms.residuals(
            program.jaxpr, tuple([a.inexact and not f for a, f in zip(avals, fixed, strict=True)])
        )
    ranges, avals, chosen = leaf_ranges(program), program.in_avals, set[int]()
    for n in argument_numbers("residuals", program, argnums):
        floating = [k for k in ranges[n] if avals[k].inexact]
        if ranges[n] and not floating:
            k = ranges[n][0]
            raise NotDifferentiableError(
                f"residuals: argument {program.paths[k]} of {program.name} has type {avals[k]}, which has no tangent",
                remedy="choose other argnums, or convert the argument to a floating dtype",
            )
        chosen.update(floating)
    return transforms.residuals(program.jaxpr, mask_of(program, chosen))


@final
@dataclass(frozen=True, slots=True)
class Partial:
    """The two halves of a program. `known` takes the known arguments and returns (results, residuals), with None for
    unknown results. `unknown` takes (residuals, *the other arguments) and returns the other results, with None for
    known ones. `residuals` describes the values passed from `known` to `unknown`."""

    known: Program[..., tuple[Any, tuple[Array, ...]]]
    unknown: Program[..., Any]
    residuals: tuple[PassedValue, ...]


def partial_eval(program: Program[..., object], known: Sequence[bool]) -> Partial:
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
    _check_program("partial_eval", program)
    n = len(positional(program))
    if not isinstance(known, Sequence) or not all([isinstance(k, bool) for k in known]):
        raise ArgumentError(
            f"partial_eval: known is {known!r:.60}, not a sequence of bools",
            remedy="one bool for each positional argument",
        )
    if len(known) != n:
        raise ArgumentError(
            f"partial_eval: known has {len(known)} entries, {program.name} takes {count_text(n, 'positional argument')}",
            remedy="one bool for each positional argument; keyword arguments are not known",
        )
    others = [not k for k in known]
    known_leaves = {k for r, marked in zip(leaf_ranges(program), known, strict=True) if marked for k in r}
    mask = (True,) * len(program.bound) + tuple([k in known_leaves for k in range(len(program.in_avals))])
    halves = transforms.partial_eval(program.jaxpr, mask)
    known_trees, unknown_trees = _trees(program, halves, known)
    return Partial(
        Program(halves.known, *known_trees, program.bound, _names_of_marked(program, known), f"known_{program.name}"),
        Program(
            halves.unknown,
            *unknown_trees,
            (),
            ("residuals", *_names_of_marked(program, others)),
            f"unknown_{program.name}",
        ),
        halves.residuals,
    )


def _trees(
    program: Program[..., object], halves: Halves, known: Sequence[bool]
) -> tuple[tuple[Structure, Structure], tuple[Structure, Structure]]:
    """Return the trees of arguments and results of both halves."""
    args = positional(program)
    residuals = tuple(range(len(halves.residuals)))
    known_results = program.out_tree.unflatten([0 if k else None for k in halves.out_known])
    unknown_results = program.out_tree.unflatten([None if k else 0 for k in halves.out_known])
    known_args = tuple_structure(*[a for a, k in zip(args, known, strict=True) if k])
    unknown_args = tuple_structure(tree.structure(residuals), *[a for a, k in zip(args, known, strict=True) if not k])
    keywords = program.in_tree.children()[1]
    return (
        (args_tree(known_args), tree.structure((known_results, residuals))),
        (args_tree(unknown_args, keywords), tree.structure(unknown_results)),
    )


def _names_of_marked(program: Program[..., object], marked: Sequence[bool]) -> tuple[str, ...]:
    """Return the names of the marked positional arguments."""
    names = (*program.names, *[f"args[{k}]" for k in range(len(program.names), len(marked))])
    return tuple([name for name, m in zip(names, marked, strict=False) if m])


def _check_program(what: str, program: object) -> None:
    if not isinstance(program, Program):
        raise ArgumentError(
            f"{what}: takes a Program, got {program!r:.60}",
            remedy=f"trace the function first: {what}(trace(f, *examples))",
        )
