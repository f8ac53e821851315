"""Linearity of programs, which decides if an equation with a body can be transposed; values that are zero.

Linear in operands:

    is_linear           program, operands   -> bool: linear in them, taken together
    is_linear_eqn       equation, operands  -> the same of an equation, whose zeros may count as linear
    linear_operands     equation, operands  -> these, with the zeros that must count as linear
    is_linear_in_each   primitive, operands -> bool: linear in each of them, the others held fixed
    affine_operands     program             -> the operands in each of which, taken alone, the program is affine

Zero:

    is_zero             atom                -> bool: the literal 0.0
    vanishes            atom                -> bool: the literal 0.0 or -0.0
    zero_mask           atoms, zeros        -> which of them are zero, given the values that are
    zero_results        equation, zeros     -> which results are zero because operands are
    zero_values         equations, zeros    -> the zeros, and the results that are zero because these are
    zero_outs           program, operands   -> which results are zero if these operands are
    with_zero_operands  program, operands   -> the linear program without the operands that are zero
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain, combinations
from typing import Final

from fxad.core.builder import Builder
from fxad.core.dce import remove_dead_eqns
from fxad.core.flags import flags_or, select_by_flags
from fxad.core.layout import BranchIndex, Count, Elements
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, Flags, HigherOrder, Jaxpr, Linear, Lit, Primitive, literal_number

_FEW_ZEROS: Final = 6  # up to so many zeros, every subset of them is tried


@by_value
def is_linear(jaxpr: Jaxpr, flags: Flags) -> bool:
    """Return True if every result is linear in the marked operands taken together, with the others fixed.

    A zero literal is linear in every operand; no other constant is.
    """
    linear: set[Atom] = set(select_by_flags(jaxpr.ins, flags))
    for eqn in jaxpr.eqns:
        if any([a in linear for a in eqn.ins]):
            if not is_linear_eqn(eqn, tuple([a in linear for a in eqn.ins])):
                return False
            linear.update(eqn.outs)
    return all([a in linear or is_zero(a) for a in jaxpr.outs])


def is_linear_eqn(eqn: Eqn, flags: Flags, zeros: Container[Atom] = ()) -> bool:
    """Return True if an equation is linear in the marked operands, or in these and operands that are zero."""
    return linear_operands(eqn.prim, eqn.ins, flags, zeros) is not None


def linear_operands(
    prim: Primitive, operands: Sequence[Atom], flags: Flags, zeros: Container[Atom] = ()
) -> Flags | None:
    """Return the operands in which an equation is jointly linear: the marked ones, and zeros if it is not linear
    without them. None if it is not linear in any such operands.

    Zeros are literals, and the values in `zeros`. One may count as linear or as fixed. In `concatenate(x_dot, 0)` it is
    linear: the marked operands (True, False) become (True, True), as no `concatenate` is linear in a part of its
    operands. In a map of (x_dot, 0, residual 0) that is linear in the first two operands, the residual is fixed. So
    either all zeros count as linear, or, if there are few, some of them.
    """
    if not isinstance(prim, Linear):
        return None
    if prim.linear_in(flags):
        return flags
    return _jointly_linear(
        prim, flags, [k for k, a in enumerate(operands) if not flags[k] and (is_zero(a) or a in zeros)]
    )


def is_linear_in_each(prim: Primitive, flags: Flags) -> bool:
    """Return True if a primitive is linear in each marked operand, with all others fixed, as a product is."""
    n = len(flags)
    alone = [tuple([j == k for j in range(n)]) for k in range(n) if flags[k]]
    return isinstance(prim, Linear) and all([prim.linear_in(flags) for flags in alone])


@by_value
def affine_operands(jaxpr: Jaxpr) -> Flags:
    """Return flags for the operands in which, taken alone, all results are affine.

    If a program is linear in several operands taken together, it is affine in each: `x - y` is affine in `x`.
    """
    n = len(jaxpr.ins)
    return tuple([_affine_dependents(jaxpr, tuple([j == k for j in range(n)])) is not None for k in range(n)])


@by_value
def _affine_dependents(jaxpr: Jaxpr, flags: Flags) -> Flags | None:
    """Return flags for the results that depend on the marked operands; None if one of them is not affine in these,
    taken together. For x -> (x + 1, 2) it is (True, False), for x -> x * x it is None."""
    dependent: set[Atom] = set(select_by_flags(jaxpr.ins, flags))
    for eqn in jaxpr.eqns:
        if dependent.isdisjoint(eqn.ins):
            continue
        outs = _affine_dependents_of_eqn(eqn, tuple([a in dependent for a in eqn.ins]))
        if outs is None:
            return None
        dependent.update(select_by_flags(eqn.outs, outs))
    return tuple([a in dependent for a in jaxpr.outs])


def _affine_dependents_of_eqn(eqn: Eqn, flags: Flags) -> Flags | None:
    prim = eqn.prim
    if isinstance(prim, HigherOrder) and prim.layout.transparent:
        return _affine_in_bodies(prim, eqn, flags)
    if not isinstance(prim, Linear):
        return None
    # groups of operands in which the primitive may be linear together: all of an inexact type; of a primitive with
    # bodies, also the leading operands of a body in which its layout says that it is linear
    choices = [[k for k, a in enumerate(eqn.ins) if a.aval.inexact]]
    if isinstance(prim, HigherOrder):  # with many residuals, not every choice of operands is tried
        layout = prim.layout
        choices = [*[[*layout.operand_indices(k)[: layout.bodies[k].linear]] for k in layout.running], *choices]
    affine = prim.linear_in(flags) or any([
        _jointly_linear(prim, flags, [k for k in choice if not flags[k]]) is not None for choice in choices
    ])  # fmt: skip
    return (True,) * len(eqn.outs) if affine else None


def _affine_in_bodies(prim: HigherOrder, eqn: Eqn, flags: Flags) -> Flags | None:
    layout = prim.layout
    if any([m and isinstance(role, BranchIndex | Count) for m, role in zip(flags, layout.operand_roles, strict=True)]):
        return None
    marked = {k for k, m in enumerate(flags) if m}
    while True:
        outs: set[int] = set()
        for k in layout.running:
            affine_outs = _affine_dependents(prim.bodies[k], tuple([p in marked for p in layout.operand_indices(k)]))
            if affine_outs is None:
                return None
            for place, out in zip(layout.result_indices(k), affine_outs, strict=True):
                if out and place is None:
                    return None
                if out and place is not None:
                    outs.add(place)
        grown = marked | {p for p, result in layout.carries.items() if result in outs}
        outs |= {result for p, result in layout.carries.items() if p in marked}
        if grown == marked:
            return tuple([k in outs for k in range(len(eqn.outs))])
        marked = grown


def _jointly_linear(prim: Linear, flags: Flags, others: Sequence[int]) -> Flags | None:
    """Return the marked operands together with some of the others, such that the primitive is linear in these."""
    sizes = range(1, len(others)) if len(others) <= _FEW_ZEROS else ()
    for chosen in chain([tuple(others)], *[combinations(others, n) for n in sizes]):
        joint = tuple([m or k in chosen for k, m in enumerate(flags)])
        if prim.linear_in(joint):
            return joint
    return None


def is_zero(a: Atom) -> bool:
    """Return True if an atom is the literal zero of an inexact type (0.0, not -0.0)."""
    return isinstance(a, Lit) and a.aval.inexact and not any(a.bits)


def vanishes(a: Atom) -> bool:
    """Return True if an atom is the literal 0.0 or -0.0 of an inexact type. Unlike `is_zero`, it accepts a tangent or a
    result that is zero, where the sign does not matter."""
    return a.aval.inexact and bool(literal_number(a) == 0)


@by_value
def with_zero_operands(jaxpr: Jaxpr, nonzero: Flags) -> tuple[Jaxpr, Flags]:
    """Return a program that is linear in its first operands, specialized to zeros for those not marked in `nonzero`.
    These are removed from its operands.

    Also returns flags for its results that are not zero; the zero ones are literals. An equation that is linear in its
    zero operands, with the others known, is removed. Any other equation, such as `concatenate` of a zero operand and a
    known one, is computed with zeros: `reroll` stacks operands at the same place of the calls in a chain.
    """
    b = Builder()
    first, known = jaxpr.ins[: len(nonzero)], jaxpr.ins[len(nonzero) :]
    env: dict[Atom, Atom] = {}
    zeros: set[Atom] = set()
    dependent: set[Atom] = set()
    for v, is_nonzero in zip(first, nonzero, strict=True):
        env[v] = b.input(v.aval) if is_nonzero else Lit.zero(v.aval)
        (dependent if is_nonzero else zeros).add(v)
    env.update(zip(known, b.inputs([v.aval for v in known]), strict=True))
    for eqn in jaxpr.eqns:
        zero_operands = tuple([a in zeros for a in eqn.ins])
        if any(zero_operands) and dependent.isdisjoint(eqn.ins) and is_linear_eqn(eqn, zero_operands):
            zeros.update(eqn.outs)
            env.update({v: Lit.zero(v.aval) for v in eqn.outs})
            continue
        if not dependent.isdisjoint(eqn.ins):
            dependent.update(eqn.outs)
        env.update(zip(eqn.outs, b.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
    specialized = remove_dead_eqns(b.build([env.get(a, a) for a in jaxpr.outs], jaxpr.name))
    return specialized, tuple([not is_zero(a) for a in specialized.outs])


# ------------------------------------------------------------------------------------------------- values that are zero

# An equation that is linear in operands that are zero gives zeros, such as a tangent that vanishes. Zeros pass through
# bodies by their layouts.


def zero_values(eqns: Iterable[Eqn], zeros: Iterable[Atom]) -> set[Atom]:
    """Return the set of `zeros` and of the results of equations that are zero because these are."""
    values = set(zeros)
    for eqn in eqns:
        values.update(select_by_flags(eqn.outs, zero_results(eqn, eqn.ins, values)))
    return values


def zero_results(eqn: Eqn, operands: Sequence[Atom], zeros: Container[Atom]) -> Flags:
    """Return flags for the results of an equation that are zero because operands are.

    Integer zeros count only in a second attempt: no integer is a linear operand, so they would make a linear equation
    seem nonlinear; but the operand of a conversion and the index of a branch are integers.
    """
    marked = [zero_mask(operands, zeros, integers) for integers in (False, True)]
    return flags_or(*[_results_of_zeros(eqn.prim, flags, len(eqn.outs)) for flags in marked])


def zero_mask(atoms: Sequence[Atom], zeros: Container[Atom], integers: bool = False) -> Flags:
    """Return flags for the atoms that are zero: those in `zeros`, and literals. Integer and bool literals count only
    with `integers`."""
    return tuple([a in zeros or is_zero(a) or (integers and isinstance(a, Lit) and not any(a.bits)) for a in atoms])


def _results_of_zeros(prim: Primitive, zeros: Flags, n: int) -> Flags:
    """Return flags for the `n` results that are zero when the marked operands are. Only bodies that run count: a
    function with custom rules computes the values of its plain body."""
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
        still_zero = [z and (p not in carries or results[carries[p]]) for p, z in enumerate(operands)]
        if still_zero == operands:
            nonzero_carries = {result for p, result in carries.items() if not operands[p]}
            return tuple([results.get(k, False) and k not in nonzero_carries for k in range(n)])
        operands = still_zero


@by_value
def zero_outs(jaxpr: Jaxpr, flags: Flags) -> Flags:
    """Return flags for the results of a program that are zero when the marked operands are."""
    zeros = zero_values(jaxpr.eqns, select_by_flags(jaxpr.ins, flags))
    return zero_mask(jaxpr.outs, zeros)
