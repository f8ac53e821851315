"""Which calls of a program become units of their own: the cost rule, or the user's choice.

The rule (`repeated`), for the body of a call that is reached more than once when calls are followed:

1. it takes `DISPATCH` microseconds or more by its weight, so that calling it costs a few percent of it at most; and
   `FUSES` times what it takes to hand over its operands and results, where it is arithmetic that XLA would fuse with
   what is around it (60 steps `x = a * x + b` of a million numbers: 9 ms in one piece, 63 as 60 units);
   Where steps are grouped to make a body, as many are taken as take `GROUPED`: a chain of short units costs more than
   its calls (an RNN of 200 steps as 15 units: mostly 0.93 of its time as 24, for 1.4 of the equations to compile);
2. compiling it once saves `WORTH` equations or more;
3. unless the units inside it leave no more than half of it to compile: then they are the units;

and for all of it: it takes twice that time, or there is no use in looking (`large_enough`); and with units XLA compiles
for `SAVES` milliseconds less, by the estimate of `fxad.units.kernels` (`pays`). That counts distinct kernels. XLA
compiles equal ones once by itself, so units save nothing where layers are a product and a tanh (50 of them: 0.3 s
either way), and much where each layer is fused with what is before it, as sums of a residual stream are, or reads
another slice. And steps of linked units are slower where blocks are cheap: those 50 layers by a half. What is compiled
with units is at most `AT_MOST` of the equations without them, too, unless it saves `CERTAIN`. A program that gives
operands up, or computes values again, need not save time: as units it holds less.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from math import inf
from typing import Final, TypeAlias

from fxad.core.memo import by_value
from fxad.errors import ParameterError
from fxad.ir import Eqn, Jaxpr, distinct
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.units.kernels import milliseconds, takes
from fxad.units.weight import FIXED, Weight, weigh, weight

DISPATCH: Final = 400.0  # microseconds; a call of a unit costs 8 at most, and estimates are up to 3 times too high
GROUPED: Final = 700.0
FUSES: Final = 8.0
WORTH: Final = 24  # equations
AT_MOST: Final = 0.6
SAVES: Final = 500.0  # milliseconds
CERTAIN: Final = 2000.0
LARGEST: Final = 1 << 24  # equations; calls of calls can be any number of them, and each would be looked at
STEPS: Final = 1 << 20

# Decides whether calls of a body are a unit.
Predicate: TypeAlias = Callable[[Jaxpr], bool]


def called(eqn: Eqn) -> Jaxpr | None:
    """The body of an equation that is a call and no more: `call`, and `remat`, which is one when nothing is derived."""
    prim = eqn.prim
    # not isinstance: this is asked of every equation, often
    return prim.body if type(prim) is Call or type(prim) is Remat else None


def uses(jaxpr: Jaxpr, units: Container[Jaxpr] = ()) -> dict[Jaxpr, int]:
    """How often each body is reached when calls are followed from `jaxpr`, and not into `units`; innermost first."""
    count = dict.fromkeys(distinct(jaxpr), 0)
    count[jaxpr] = 1
    for caller in reversed(count):  # callers before what they call
        for eqn in caller.eqns if count[caller] and (caller is jaxpr or caller not in units) else ():
            body = called(eqn)
            if body is not None:
                count[body] += count[caller]
    return {body: n for body, n in count.items() if n and body is not jaxpr}


def chosen(jaxpr: Jaxpr, predicate: Predicate) -> tuple[Jaxpr, ...]:
    """The bodies that a predicate wants as units. It is asked once about each body that is called, but for a call that
    is all there is of the program, as a transformation may leave it."""
    while len(jaxpr.eqns) == 1 and (only := called(jaxpr.eqns[0])) is not None:
        jaxpr = only
    return tuple([body for body in uses(jaxpr) if predicate(body)])


@by_value
def repeated(jaxpr: Jaxpr) -> tuple[Jaxpr, ...]:
    """The bodies that the cost rule makes units; see the module. Cost: linear in the distinct equations."""
    weigh(jaxpr)
    found: dict[Jaxpr, None] = {}
    for body, n in uses(jaxpr).items():  # innermost first
        if n > 1 and worth(weight(body), n) and 2 * left_to_compile(body, found) > weight(body).equations:
            found[body] = None
    return tuple(found)


def worth(w: Weight, n: int) -> bool:
    """Whether `n` calls of a body of this weight are worth a unit, for themselves."""
    return w.microseconds >= max(DISPATCH, FUSES * w.border) and (n - 1) * w.equations >= WORTH


def left_to_compile(jaxpr: Jaxpr, units: Container[Jaxpr]) -> int:
    """Equations to compile when calls of `units` are compiled apart, once each."""
    again = [(n - 1) * weight(body).equations for body, n in uses(jaxpr, units).items() if body in units]
    return weight(jaxpr).equations - sum(again)


def pays(units: Iterable[Jaxpr], whole: Jaxpr, saves: float = SAVES) -> bool:
    """Whether compiling these units is enough cheaper than compiling the whole: by `saves` milliseconds, and in
    proportion where it is not `CERTAIN`."""
    bodies = tuple(units)
    if sum([weigh(body).equations + FIXED for body in bodies]) > AT_MOST * (weigh(whole).equations + FIXED):
        saves = max(saves, CERTAIN)
    return saves == -inf or takes(whole, saves + sum([milliseconds(body) for body in bodies]))


def check_steps(jaxpr: Jaxpr, units: Container[Jaxpr]) -> None:
    """Raises: ParameterError for units that are reached more than `STEPS` times."""
    steps = sum([n for body, n in uses(jaxpr, units).items() if body in units])
    if steps > STEPS:
        raise ParameterError(
            f"lower: these units of {jaxpr.name} are called {steps:,} times, and a plan has at most {STEPS:,} steps",
            remedy="choose bodies that are called less often and hold these, or units='auto'",
        )


def large_enough(jaxpr: Jaxpr, saves: float = SAVES) -> bool:
    """Whether a program can have units that pay at all: nothing else is looked at otherwise."""
    w = weigh(jaxpr)
    size = WORTH < w.equations <= LARGEST
    return w.microseconds >= 2 * DISPATCH and size and (saves == -inf or takes(jaxpr, saves))
