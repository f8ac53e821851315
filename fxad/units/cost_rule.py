"""Selects the calls of a program that become units: the cost rule, or the user's choice.

The cost rule (`units_by_cost`) makes a body a unit if it is called more than once, counting nested calls, and:

1. Its estimated run time is at least `UNIT_MICROSECONDS`, so that the call costs a few percent at most. If XLA would
   fuse it with the equations around it, its run time must also be at least `BORDER_TIMES` the time to read its operands
   and write its results (60 steps `x = a * x + b` of a million numbers: 9 ms as one unit, 63 ms as 60 units). If steps
   are grouped to form a body, a group takes at least `GROUP_MICROSECONDS`: a chain of short units costs more than its
   calls (an RNN of 200 steps as 15 units mostly takes 0.93 of its time as 24 units, with 1.4 times the equations to
   compile).
2. Compiling it once saves `SAVED_EQUATIONS` equations or more.
3. The units inside it leave more than half of it to compile; otherwise only these are units.

The whole program must also satisfy:

- It takes at least twice `UNIT_MICROSECONDS`; otherwise the search is skipped (`large_enough`).
- Units save at least `SAVED_MS` milliseconds of compile time, by the estimate of `fxad.units.compile_time`
  (`saves_compile_time`). The estimate counts distinct kernels, since XLA compiles equal kernels once. So units save
  nothing if layers are a product and a tanh (50 of them: 0.3 s either way). They save much if each layer is fused with
  operations before it, such as the sums of a residual stream, or reads another slice. Linked units run more slowly if
  blocks are cheap: those 50 layers by a half.
- With units, at most `COMPILED_PART` of the equations are compiled, unless units save `CERTAIN_MS`.

A program that donates operands or recomputes values need not save compile time: units lower its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, TypeAlias

from fxad.core.memo import by_value
from fxad.errors import ParameterError
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.primitives.control.remat import body_of_call_or_remat
from fxad.support.constants import (
    BORDER_TIMES,
    CERTAIN_MS,
    COMPILED_PART,
    PROGRAM_EQUATIONS,
    SAVED_EQUATIONS,
    SAVED_MS,
    UNIT_MICROSECONDS,
)
from fxad.transforms.costs import Weight, weight, weight_of_nested
from fxad.units.compile_time import milliseconds, takes_at_least

MAX_SEARCHED_EQUATIONS: Final = 1 << 24  # equations, with nested calls inlined: the search would visit each
MAX_STEPS: Final = 1 << 20

# Returns True if calls of a body are units.
Predicate: TypeAlias = Callable[[Jaxpr], bool]


def uses(jaxpr: Jaxpr, chosen: Container[Jaxpr] = ()) -> dict[Jaxpr, int]:
    """Return the number of calls of each body, directly or through other calls, but not from within `chosen`. Innermost
    bodies come first."""
    count = dict.fromkeys(distinct_jaxprs(jaxpr), 0)
    count[jaxpr] = 1
    for caller in reversed(count):  # callers before callees
        for eqn in caller.eqns if count[caller] and (caller is jaxpr or caller not in chosen) else ():
            body = body_of_call_or_remat(eqn)
            if body is not None:
                count[body] += count[caller]
    return {body: n for body, n in count.items() if n and body is not jaxpr}


def selected_bodies(jaxpr: Jaxpr, predicate: Predicate) -> tuple[Jaxpr, ...]:
    """Return the bodies for which a predicate is true. It is evaluated once for each called body. If the program
    consists of a single call, as after some transformations, the predicate is not evaluated on that call."""
    while len(jaxpr.eqns) == 1 and (only := body_of_call_or_remat(jaxpr.eqns[0])) is not None:
        jaxpr = only
    return tuple([body for body in uses(jaxpr) if predicate(body)])


@by_value
def units_by_cost(jaxpr: Jaxpr) -> tuple[Jaxpr, ...]:
    """Return the bodies that the cost rule selects as units; see the module. Cost: linear in the distinct equations."""
    weight_of_nested(jaxpr)  # remembers the weights of bodies, so that `weight` does not recur deeply
    chosen: dict[Jaxpr, None] = {}
    for body, n in uses(jaxpr).items():  # innermost first
        if n > 1 and pays(weight(body), n) and 2 * left_to_compile(body, chosen) > weight(body).equations:
            chosen[body] = None
    return tuple(chosen)


def pays(w: Weight, n: int) -> bool:
    """Return True if a body of this weight with `n` calls satisfies conditions 1 and 2 of the cost rule."""
    long = w.microseconds >= max(UNIT_MICROSECONDS, BORDER_TIMES * w.border)
    return long and (n - 1) * w.equations >= SAVED_EQUATIONS


def left_to_compile(jaxpr: Jaxpr, chosen: Container[Jaxpr]) -> int:
    """Return the number of equations to compile if the bodies `chosen` are compiled separately, once each."""
    saved = [(n - 1) * weight(body).equations for body, n in uses(jaxpr, chosen).items() if body in chosen]
    return weight(jaxpr).equations - sum(saved)


def saves_compile_time(units: Iterable[Jaxpr], program: Jaxpr, saves: float = SAVED_MS) -> bool:
    """Return True if compiling these units saves at least `saves` milliseconds, compared to compiling the whole;
    with -inf, they need not save time. If they have more than `COMPILED_PART` of its equations, they must save at least
    `CERTAIN_MS`."""
    bodies = tuple(units)
    compiled = sum([weight_of_nested(body).equations + PROGRAM_EQUATIONS for body in bodies])
    if compiled > COMPILED_PART * (weight_of_nested(program).equations + PROGRAM_EQUATIONS):
        saves = max(saves, CERTAIN_MS)
    return takes_at_least(program, saves + sum([milliseconds(body) for body in bodies]))


def check_steps(jaxpr: Jaxpr, chosen: Container[Jaxpr]) -> None:
    """Check that the chosen bodies are called at most `MAX_STEPS` times. Raises: ParameterError."""
    steps = sum([n for body, n in uses(jaxpr, chosen).items() if body in chosen])
    if steps > MAX_STEPS:
        raise ParameterError(
            f"lower: these units of {jaxpr.name} are called {steps:,} times, and a plan has at most"
            f" {MAX_STEPS:,} steps",
            remedy="choose bodies that are called less often and hold these, or units='auto'",
        )


def large_enough(jaxpr: Jaxpr, saves: float = SAVED_MS) -> bool:
    """Return True if a program is large enough for units to save so many milliseconds. If not, the search for units is
    skipped."""
    w = weight_of_nested(jaxpr)
    size = SAVED_EQUATIONS < w.equations <= MAX_SEARCHED_EQUATIONS
    return w.microseconds >= 2 * UNIT_MICROSECONDS and size and takes_at_least(jaxpr, saves)
