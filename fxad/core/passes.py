"""Passes: named functions from program to program. The pipelines are in `fxad.passes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Aval, Jaxpr


@final
@dataclass(frozen=True, slots=True)
class Pass:
    """A named pure function from jaxpr to jaxpr. It returns its argument if there is nothing to do.

    `units`, if it is given, selects the bodies of the result that are units, in place of the cost rule. Plans of memory
    give it (`transforms.memory_plans`), because the memory that they save depends on the units. It is read of the last
    pass only.
    """

    name: str
    function: Callable[[Jaxpr], Jaxpr] = field(repr=False)
    units: Callable[[Jaxpr], tuple[Jaxpr, ...]] | None = field(default=None, repr=False)

    def __call__(self, jaxpr: Jaxpr) -> Jaxpr:
        """Return the program after the pass.

        Raises: ArgumentError for a function that does not give a program with the operands and results of its argument.
        """
        out: object = self.function(jaxpr)
        if not isinstance(out, Jaxpr):
            raise ArgumentError(
                f"pass {self.name}: its function gives {described(out)}, not a Jaxpr: {shown(out)}",
                remedy="return a Jaxpr, the given one where there is nothing to do; an analysis is no pass",
            )
        if (out.in_avals, out.out_avals) != (jaxpr.in_avals, jaxpr.out_avals):
            raise ArgumentError(
                f"pass {self.name}: it gives a program of the type {_signature(out)}, {jaxpr.name} has the type"
                f" {_signature(jaxpr)}",
                remedy="a pass keeps all operands and results, in their order",
            )
        return out


Passes: TypeAlias = tuple[Pass, ...]


def _signature(jaxpr: Jaxpr) -> str:
    return f"{_types(jaxpr.in_avals)} -> {_types(jaxpr.out_avals)}"


def _types(avals: tuple[Aval, ...]) -> str:
    return f"({', '.join(map(str, avals))})"
