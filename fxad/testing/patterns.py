"""Functions of users as growth steps, so that the equations that a pass rewrites occur in drawn programs."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature

from fxad.errors import FxadError
from fxad.ir import Atom, Jaxpr
from fxad.testing.growth import Growth, up_to
from fxad.tracing.spec import Spec
from fxad.tracing.trace import trace


def pattern_step(pattern: Callable[..., object]) -> Callable[[Growth, Atom], None]:
    """Return the step that adds the equations of a function of arrays of one type: `lambda x, y: x * x + y`.

    The step does nothing for a type that the function refuses. Bounds of the results are not known, so they are taken
    to be large, and further equations scale them down.
    """
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    count = len([p for p in signature(pattern).parameters.values() if p.kind in kinds and p.default is Parameter.empty])

    def step(g: Growth, x: Atom) -> None:
        x = g.within(x, 2.0)
        body = _traced(pattern, x, count)
        if body is None:
            return
        others = [g.within(g.like(x.aval), 2.0) for _ in range(count - 1)]
        for v in g.builder.inline(body, [x, *others]):
            g.add(v, up_to(1e3))

    return step


def _traced(pattern: Callable[..., object], x: Atom, count: int) -> Jaxpr | None:
    """Return the program of a pattern for operands of the type of `x`; None if it refuses the type, or closes over
    arrays."""
    try:
        program = trace(pattern, *[Spec(x.aval.shape, x.aval.dtype)] * count)
    except FxadError:
        return None
    return None if program.bound else program.jaxpr
