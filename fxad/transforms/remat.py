"""`remat`: a program that stores nothing but its operands for the backward pass."""

from __future__ import annotations

from fxad.builder import Builder
from fxad.ir import Jaxpr
from fxad.memo import by_value
from fxad.primitives.control.remat import Remat


@by_value
def remat(jaxpr: Jaxpr) -> Jaxpr:
    """The same program as one `remat` equation: differentiating it saves its operands, and the backward program
    computes everything else again. Nestable.

    Law:  same value; the same gradient, bitwise (what several segments share is summed segment by segment, so there
          only up to the order of the sum); the residuals of `linearize` are among the operands.
    Cost: none forward; one more forward computation in the backward program.
    """
    b = Builder.like(jaxpr)
    return b.build(b(Remat(jaxpr), *jaxpr.ins), f"remat_{jaxpr.name}")
