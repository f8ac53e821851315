"""`residuals`, `partial_eval`: what a program stores for later, as values to read and to edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from fxad import transforms, tree
from fxad.api.lift import args_tree, compose, leaf_ranges, mask_of, normalise, positional
from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, NotDifferentiableError
from fxad.tracing.program import Program, counted
from fxad.tracing.static_args import Argnums
from fxad.transforms.inversion.second_order import without_derivative
from fxad.transforms.memory.partial_eval import Halves, Passed
from fxad.transforms.memory.residuals import Residuals
from fxad.tree import Structure


def residuals(program: Program[..., Any], argnums: Argnums | None = None) -> Residuals:
    """What reverse mode stores of a program, between its forward and its backward pass: a table to print and to edit.

    Each row has the type and bytes of a value, the operation and the user's line that give it, the operation of the
    backward pass that asks for it, and which policy decided that it is stored. Without `argnums` the derivative is with
    respect to everything floating, arrays that the program closes over included, where it has one by them.

    Law:    `remat(program, plan=residuals(program).without(k))` has the same gradients and does not store row k.
    Raises: ArgumentError for what is not a Program, and for argnums that do not fit it; NotDifferentiableError for an
            argument without anything floating in it.
    """
    _check_program("residuals", program)
    if argnums is None:
        avals, n = program.jaxpr.in_avals, len(program.bound)
        fixed = without_derivative(program.jaxpr, tuple([k < n for k in range(len(avals))]))
        return transforms.residuals(
            program.jaxpr, tuple([a.inexact and not f for a, f in zip(avals, fixed, strict=True)])
        )
    ranges, avals, chosen = leaf_ranges(program), program.in_avals, set[int]()
    for n in normalise("residuals", program, argnums):
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
    """A program in two. `known` takes the known arguments and gives (results, residuals), with None for results that
    it does not know; `unknown` takes (residuals, *the other arguments) and gives the other results, None for those known.
    `residuals` names what goes from one to the other."""

    known: Program[..., Any]
    unknown: Program[..., Any]
    residuals: tuple[Passed, ...]


def partial_eval(program: Program[..., Any], known: Sequence[bool]) -> Partial:
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

    An equation is known when all its operands are: arguments marked in `known`, what the program closes over, literals,
    and results of known equations. Equations with bodies are split: calls, `remat`, a `cond` whose index is known, and a
    `scan`, of which the known part is a scan of its own, here over the exponentials:

    >>> from fxad import lax
    >>> def blend(a, b):
    ...     return lax.scan(lambda c, x: (0.5 * c + fnp.exp(x), None), b, a)[0]
    >>> halves = fx.partial_eval(fx.trace(blend, x, fx.Spec((), "float32")), known=(True, False))
    >>> [(r.name, str(r.aval)) for r in halves.residuals]
    [('scan %0', 'f32[3]')]

    A carry is known when each step makes a known one of it; what a step hands over is stacked, but for constants and
    slices, which are there. A `while`, a `cond` on what is not known, a function with rules, and whatever has an effect
    is known as a whole or not at all.

    Law:    both halves together give the results of the program, bit for bit; no equation is in both; what the first
            knows is given by the first. Effects stay in order: one that follows an effect of the second is in the second.
    Raises: ArgumentError for what is not a Program, and for a mask that is none, or of another length.
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
            f"partial_eval: known has {len(known)} entries, {program.name} takes {counted(n, 'positional argument')}",
            remedy="one bool for each positional argument; keyword arguments are not known",
        )
    others = [not k for k in known]
    chosen = {k for r, marked in zip(leaf_ranges(program), known, strict=True) if marked for k in r}
    mask = (True,) * len(program.bound) + tuple([k in chosen for k in range(len(program.in_avals))])
    halves = transforms.partial_eval(program.jaxpr, mask)
    first, second = _trees(program, halves, known)
    return Partial(
        Program(halves.known, *first, program.bound, _names(program, known), f"known_{program.name}"),
        Program(halves.unknown, *second, (), ("residuals", *_names(program, others)), f"unknown_{program.name}"),
        halves.residuals,
    )


def _trees(
    program: Program[..., Any], halves: Halves, known: Sequence[bool]
) -> tuple[tuple[Structure, Structure], tuple[Structure, Structure]]:
    """Trees of arguments and results of both halves."""
    args = positional(program)
    handed = tuple(range(len(halves.residuals)))
    mine = program.out_tree.unflatten([0 if k else None for k in halves.out_known])
    theirs = program.out_tree.unflatten([None if k else 0 for k in halves.out_known])
    passed = tree.structure(handed)
    first = compose(*[a for a, k in zip(args, known, strict=True) if k])
    second = compose(passed, *[a for a, k in zip(args, known, strict=True) if not k])
    keywords = program.in_tree.children()[1]
    return (
        (args_tree(first), tree.structure((mine, handed))),
        (args_tree(second, keywords), tree.structure(theirs)),
    )


def _names(program: Program[..., Any], marked: Sequence[bool]) -> tuple[str, ...]:
    """Names of the positional arguments that are marked."""
    names = (*program.names, *[f"args[{k}]" for k in range(len(program.names), len(marked))])
    return tuple([name for name, m in zip(names, marked, strict=False) if m])


def _check_program(what: str, program: object) -> None:
    if not isinstance(program, Program):
        raise ArgumentError(
            f"{what}: takes a Program, got {program!r:.60}",
            remedy=f"trace the function first: {what}(trace(f, *examples))",
        )
