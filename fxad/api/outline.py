"""`outline` and `reroll`: repeated stretches of a program as calls, and chains of calls as loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from fxad import transforms
from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.lift import lift
from fxad.errors import ArgumentError, shown
from fxad.tracing.program import Program

P = ParamSpec("P")
R = TypeVar("R")


@overload
def outline(f: NoFunction, **options: Any) -> Callable[..., Any]: ...
@overload
def outline(f: Program[P, R], *, min_cost: float = 0.0, waste: float = 0.02) -> Program[P, R]: ...
@overload
def outline(f: Callable[P, R], *, min_cost: float = 0.0, waste: float = 0.02) -> Callable[P, R]: ...
@overload
def outline(*, min_cost: float = 0.0, waste: float = 0.02) -> Rewrite: ...
@decorator_form
def outline(f: Callable[..., object], *, min_cost: float = 0.0, waste: float = 0.02) -> object:
    """Return the same function with repeated stretches of equations, such as the layers of a Python loop, as calls.

    Stretches share a body if they differ only in their operands: also in parameters, literals or places in an array,
    which become operands. `min_cost` is the minimum estimated time of a call, in microseconds: shorter repetitions are
    grouped into one body. A stretch that lacks some equations of a body can also be called; the surplus equations of
    all such calls take at most the fraction `waste` of the run time.

    Law:    same value, bit for bit; `dce(inline(outline(f)))` has the equations of `dce(inline(f))`; idempotent.
    Raises: ArgumentError for a `min_cost` or `waste` that is no number >= 0.
    """
    _check_not_negative("min_cost", min_cost, "the microseconds that a call is to take at least; 0 groups nothing")
    _check_not_negative("waste", waste, "the part of the run that may be computed for nothing; 0 allows none")
    return lift("outline", f, lambda p: p.replace(transforms.outline(p.jaxpr, float(min_cost), float(waste))))


def _check_not_negative(name: str, value: object, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ArgumentError(f"outline: {name} is {shown(value)}, not a number >= 0", remedy=f"give {remedy}")


@overload
def reroll(f: Program[P, R]) -> Program[P, R]: ...
@overload
def reroll(f: Callable[P, R]) -> Callable[P, R]: ...
def reroll(f: Callable[..., object]) -> object:
    """Return the same function with a chain of equal calls, or of repeated stretches, as one `scan`.

    Values passed from one call to the next become the carry. Operands that differ, such as the parameters of layers,
    are stacked, and so are results that are used elsewhere. A chain with other dependencies between its calls is
    unchanged.

    Law:  same value, bit for bit; the length of the program does not depend on the length of the chain, except for the
          equations that stack and unstack values.
    Cost: stacked values are copied.
    """
    return lift("reroll", f, lambda p: p.replace(transforms.reroll(p.jaxpr)))
