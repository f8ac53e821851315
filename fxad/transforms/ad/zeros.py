"""Values of a program that are zero because other values are, such as tangents that vanish.

An equation that is linear in operands that are zero gives zeros. Zeros pass through bodies by their layouts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from fxad.core.layout import Elements
from fxad.core.masks import mask_or, select_by_mask
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Linear, Lit, Mask, Primitive
from fxad.primitives.linearity import is_zero


def zero_values(eqns: Iterable[Eqn], zeros: Iterable[Atom]) -> set[Atom]:
    """The set of `zeros` and of the results of equations that are zero because these are."""
    values = set(zeros)
    for eqn in eqns:
        values.update(select_by_mask(eqn.outs, zero_results(eqn, eqn.ins, values)))
    return values


def zero_results(eqn: Eqn, operands: Sequence[Atom], zeros: Container[Atom]) -> Mask:
    """The mask of the results of an equation that are zero because operands are.

    Integer zeros count only in a second attempt: no integer is a linear operand, so they would make a linear equation
    seem nonlinear; but the operand of a conversion and the index of a branch are integers.
    """
    masks = [zero_mask(operands, zeros, integers) for integers in (False, True)]
    return mask_or(*[_results_of_zeros(eqn.prim, mask, len(eqn.outs)) for mask in masks])


def zero_mask(atoms: Sequence[Atom], zeros: Container[Atom], integers: bool = False) -> Mask:
    """The mask of the atoms that are zero: those in `zeros`, and literals. Integer and bool literals count only
    with `integers`."""
    return tuple([a in zeros or is_zero(a) or (integers and isinstance(a, Lit) and not any(a.bits)) for a in atoms])


def _results_of_zeros(prim: Primitive, zeros: Mask, n: int) -> Mask:
    """The mask of the `n` results that are zero when the marked operands are. Only bodies that run count: a function
    with custom rules computes the values of its plain body."""
    if any(zeros) and isinstance(prim, Linear) and prim.linear_in(zeros):
        return (True,) * n
    layout = prim.layout if isinstance(prim, HigherOrder) else None
    if layout is None or any([type(g.role) is Elements for g in layout.operands]):
        return (False,) * n
    operands, carries = list(zeros), layout.carries
    while True:  # a carry is zero if it is at first, and each run leaves it so
        results: dict[int, bool] = {}
        for k in layout.running:
            marks = zero_outs(layout.bodies[k].jaxpr, tuple([operands[p] for p in layout.operand_indices(k)]))
            for place, mark in zip(layout.result_indices(k), marks, strict=True):
                if place is not None:
                    results[place] = results.get(place, True) and mark
        kept = [z and (p not in carries or results[carries[p]]) for p, z in enumerate(operands)]
        if kept == operands:
            lost = {result for p, result in carries.items() if not operands[p]}
            return tuple([results.get(k, False) and k not in lost for k in range(n)])
        operands = kept


@by_value
def zero_outs(jaxpr: Jaxpr, mask: Mask) -> Mask:
    """The mask of the results of a program that are zero when the marked operands are."""
    zeros = zero_values(jaxpr.eqns, select_by_mask(jaxpr.ins, mask))
    return zero_mask(jaxpr.outs, zeros)
