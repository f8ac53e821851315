"""The series of an equation with bodies: the same equation over the series of its bodies.

Its operands and results have their coefficients next to them, so a carry c of order 2 becomes the carries c_0, c_1, c_2
of the same loop. Which of them are zero in all steps follows from the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.flags import flags_or
from fxad.core.layout import Layout
from fxad.ir import Atom, Flags, HigherOrder, Jaxpr, Lit, Primitive

# For each operand or result, marks the coefficients 1, 2, ..., order that are not zero.
CoefficientFlags: TypeAlias = tuple[Flags, ...]
# A program, the coefficients of its operands -> its series, the coefficients of its results.
SeriesOf: TypeAlias = Callable[[Jaxpr, CoefficientFlags], tuple[Jaxpr, CoefficientFlags]]


@final
class BodySeries(NamedTuple):
    """An equation over the series of its bodies, and the coefficients that its operands and results have."""

    prim: Primitive
    operands: CoefficientFlags
    results: CoefficientFlags


def series_of_bodies(prim: HigherOrder, operands: Sequence[Flags], series_of: SeriesOf) -> BodySeries:
    """Return the equation over the series of its bodies. `operands` are the coefficients that are not zero."""
    layout = prim.layout
    wide, results, series = _coefficients_of_bodies(layout, operands, series_of)
    bodies = [
        _with_coefficients_beside(layout, k, *series[k], wide, results) if k in series else body.jaxpr
        for k, body in enumerate(layout.bodies)
    ]
    sizes = [
        tuple([sum([1 + sum(marks[p]) for p in members(g)]) for g in range(len(groups))])
        for groups, members, marks in (
            (layout.operands, layout.operands_of, wide),
            (layout.results, layout.results_of, results),
        )
    ]
    return BodySeries(prim.rebuild(tuple(bodies), *sizes), tuple(wide), tuple(results))


def _coefficients_of_bodies(
    layout: Layout, operands: Sequence[Flags], series_of: SeriesOf
) -> tuple[list[Flags], list[Flags], dict[int, tuple[Jaxpr, CoefficientFlags]]]:
    """Return the coefficients that operands and results have, and the series of the bodies.

    It is the least fixed point: a coefficient of a carry that is zero in the first step may be nonzero later.
    """
    zero = (False,) * len(operands[0])
    operands, carries = list(operands), layout.carries
    while True:
        results = [zero] * sum([g.size for g in layout.results])
        series: dict[int, tuple[Jaxpr, CoefficientFlags]] = {}
        for k in layout.running:
            pattern = tuple([operands[p] for p in layout.operand_indices(k)])
            series[k] = series_of(layout.bodies[k].jaxpr, pattern)
            for place, marks in zip(layout.result_indices(k), series[k][1], strict=True):
                if place is not None:
                    results[place] = flags_or(results[place], marks)
        wider = list(operands)
        for p, q in carries.items():
            wider[p] = flags_or(operands[p], results[q])
        if wider == operands:
            for p, q in carries.items():
                results[q] = operands[p]
            return operands, results, series
        operands = wider


def _with_coefficients_beside(
    layout: Layout,
    k: int,
    series: Jaxpr,
    nonzero: CoefficientFlags,
    operands: Sequence[Flags],
    results: Sequence[Flags],
) -> Jaxpr:
    """Return the series of body k with the coefficients of each operand and result next to it."""
    body = layout.bodies[k].jaxpr
    b = Builder()
    values: list[Atom] = []
    higher: list[Atom] = []
    for v, p in zip(body.ins, layout.operand_indices(k), strict=True):
        values.append(b.input(v.aval))
        higher += [b.input(v.aval) for m in operands[p] if m]
    outs = b.inline(series, (*values, *higher))
    coefficients = iter(outs[len(body.outs) :])
    with_coefficients: list[Atom] = []
    for out, q, marks in zip(outs, layout.result_indices(k), nonzero, strict=False):
        with_coefficients.append(out)
        of_out = [next(coefficients) if m else None for m in marks]
        if q is not None:
            with_coefficients += [c or Lit.zero(out.aval) for c, m in zip(of_out, results[q], strict=True) if m]
    return b.build(with_coefficients, series.name)


def union_of_coefficients(patterns: Sequence[CoefficientFlags]) -> CoefficientFlags:
    """Return the coefficients that any of several programs has."""
    return tuple([flags_or(*marks) for marks in zip(*patterns, strict=True)])


def with_coefficients(series: Jaxpr, nonzero: CoefficientFlags, results: CoefficientFlags) -> Jaxpr:
    """Return the series with a result for each coefficient in `results`, which contain those in `nonzero`."""
    n = len(nonzero)
    coefficients = iter(series.outs[n:])
    higher: list[Atom] = []
    for out, marks, wide in zip(series.outs, nonzero, results, strict=False):
        of_out = [next(coefficients) if m else Lit.zero(out.aval) for m in marks]
        higher += [c for c, m in zip(of_out, wide, strict=True) if m]
    return series.with_outs((*series.outs[:n], *higher))
