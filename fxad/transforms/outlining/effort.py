"""Cost model of outlining: estimated costs of compiling and of running equations."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from fxad.core.layout import InParallel, OneOf, Runs, Times, UpTo
from fxad.core.memo import by_value
from fxad.ir import Eqn, HigherOrder, Jaxpr, Primitive
from fxad.primitives.control.call import Call
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.dot import DotGeneral

FLOPS: Final = 5e4  # per microsecond, on a few cores
BYTES: Final = 4e3  # written per microsecond


def equations(eqn: Eqn) -> float:
    """Returns the equations to compile: one, or those of the bodies. A call counts as none, because its body is
    compiled once anyway."""
    prim = eqn.prim
    if isinstance(prim, Call):
        return 0
    return sum([_equations(body) for body in prim.bodies]) if isinstance(prim, HigherOrder) else 1


def microseconds(eqn: Eqn) -> float:
    """Returns the estimated time of one run: the arithmetic of products and convolutions, and the bytes that are
    written."""
    prim = eqn.prim
    if isinstance(prim, HigherOrder):
        layout = prim.layout
        chosen, others = [0.0], 0.0
        for k in layout.running:
            body, runs = layout.bodies[k], layout.bodies[k].runs
            if isinstance(runs, OneOf):
                chosen.append(time_of(body.jaxpr))
            else:
                others += time_of(body.jaxpr) * _often(runs)
        return max(chosen) + others
    return _flops(eqn) / FLOPS + sum([v.aval.nbytes for v in eqn.outs]) / BYTES


def _often(runs: Runs) -> int:
    """Returns how often a body runs; 1 if that is not known."""
    match runs:
        case Times(count) | InParallel(count) | UpTo(count):
            return count
        case _:
            return 1


@by_value
def _equations(jaxpr: Jaxpr) -> float:
    return sum([equations(e) for e in jaxpr.eqns])


@by_value
def time_of(jaxpr: Jaxpr) -> float:
    """Returns the sum of `microseconds` over a program."""
    return together(jaxpr.eqns)


def together(eqns: Iterable[Eqn]) -> float:
    """Returns the sum of `microseconds` over equations. Cost: 0.2 us each; for most equations only the bytes written
    count."""
    plain: dict[type[Primitive], bool] = {}
    time, written = 0.0, 0
    for eqn in eqns:
        kind = type(eqn.prim)
        known = plain.get(kind)
        if known is None:
            known = plain[kind] = not issubclass(kind, _COMPUTE)
        if known:
            for v in eqn.outs:
                written += v.aval.nbytes
        else:
            time += microseconds(eqn)
    return time + written / BYTES


_COMPUTE: Final[tuple[type[Primitive], ...]] = (HigherOrder, DotGeneral, ConvGeneralDilated)


def _flops(eqn: Eqn) -> float:
    prim = eqn.prim
    if isinstance(prim, DotGeneral):
        shape = eqn.ins[0].aval.shape
        return 2.0 * eqn.outs[0].aval.size * prod([shape[d] for d in prim.lhs_contract])
    if isinstance(prim, ConvGeneralDilated):
        kernel = eqn.ins[1].aval
        return 2.0 * eqn.outs[0].aval.size * kernel.size / max(1, kernel.shape[prim.rhs_spec[0]])
    return 0.0
