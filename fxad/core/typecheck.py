"""Checks that a program is well formed and well typed. Every transform must return such a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from fxad import dtypes
from fxad.core.layout import (
    BranchIndex,
    Carry,
    Count,
    Elements,
    InParallel,
    Layout,
    Never,
    Once,
    OneOf,
    Part,
    Role,
    Runs,
    Sliced,
    Times,
    Unknown,
    UpTo,
    Value,
)
from fxad.core.sizes.size import Size
from fxad.errors import ArgumentError, TypecheckError, described, shown
from fxad.ir import (
    BOOL_SCALAR,
    Atom,
    Aval,
    Eqn,
    HigherOrder,
    Jaxpr,
    Lit,
    Record,
    Var,
    once_from_bodies,
    params,
    source_text,
)


def typecheck(jaxpr: Jaxpr) -> None:
    """Check that a jaxpr is well formed and well typed, bodies included.

    Law: the check passes for the result of every transform.
    Raises: TypecheckError that names the function and the equation.
    Cost: each distinct body is checked once, ever.
    """
    if not isinstance(jaxpr, Jaxpr):
        raise ArgumentError(
            f"typecheck: {described(jaxpr)} is not a jaxpr: {shown(jaxpr)}", remedy="give program.jaxpr"
        )
    once_from_bodies(jaxpr, "well typed", _check_jaxpr)


def _check_jaxpr(jaxpr: Jaxpr) -> None:
    for k, v in enumerate(jaxpr.ins):
        if v.index != ~k:
            raise TypecheckError(f"typecheck: {jaxpr.name}: operand {k} is numbered {v.index}, not {~k}")
    bound: set[Atom] = set(jaxpr.ins)
    n = 0
    for i, eqn in enumerate(jaxpr.eqns):
        avals = _check_equation(jaxpr, i, eqn, bound)
        for v, aval in zip(eqn.outs, avals, strict=True):
            if v.index != n or v.aval is not aval:
                raise _error(jaxpr, i, eqn, f"result {v!r} should be %{n}:{aval}")
            bound.add(v)
            n += 1
    for k, a in enumerate(jaxpr.outs):
        if isinstance(a, Var) and a not in bound:
            raise TypecheckError(f"typecheck: {jaxpr.name}: result {k}, {a!r}, is not bound")


def _check_equation(jaxpr: Jaxpr, i: int, eqn: Eqn, bound: set[Atom]) -> tuple[Aval, ...]:
    for a in eqn.ins:
        if isinstance(a, Var) and a not in bound:
            raise _error(jaxpr, i, eqn, f"{a!r} is used and not bound before")
    for name, value in params(eqn.prim):
        if not _storable(value):
            raise _error(jaxpr, i, eqn, f"parameter {name} is {value!r}, which a program cannot hold")
    try:
        avals = eqn.prim.abstract_eval(*[a.aval for a in eqn.ins])
    except Exception as e:
        raise _error(jaxpr, i, eqn, f"{type(e).__name__}: {e}") from e
    if len(avals) != len(eqn.outs):
        raise _error(jaxpr, i, eqn, f"{len(eqn.outs)} results are bound, the primitive has {len(avals)}")
    if isinstance(eqn.prim, HigherOrder):
        problem = layout_problem(eqn.prim, [a.aval for a in eqn.ins], avals)
        if problem:
            raise _error(jaxpr, i, eqn, f"its layout does not fit: {problem}")
    return avals


def _storable(value: object) -> bool:
    """Return True if a parameter has exactly a type of `Param`. NumPy's ints equal ints but print differently."""
    if type(value) is tuple:
        return all(map(_storable, value))
    if isinstance(value, Record):
        return all([_storable(v) for _, v in params(value)])
    return type(value) in _STORABLE or (isinstance(value, np.dtype) and value in dtypes.ALL)


_STORABLE: Final = frozenset({type(None), bool, int, Size, str, Aval, Lit, Jaxpr})


def _error(jaxpr: Jaxpr, i: int, eqn: Eqn, problem: str) -> TypecheckError:
    return TypecheckError(
        f"typecheck: {jaxpr.name}: equation {i} ({eqn.prim.name}): {problem}",
        equation=f"{', '.join(map(repr, eqn.outs))} = {eqn.prim.name} {' '.join(map(repr, eqn.ins))}",
        where=source_text(eqn.source),
    )


# --------------------------------------------------------------------------------------------------------- layouts


def layout_problem(prim: HigherOrder, ins: Sequence[Aval], outs: Sequence[Aval]) -> str | None:
    """Return the reason, as text, why the layout of a primitive does not fit operands and results of these types; None
    if it fits."""
    layout = prim.layout
    if tuple([body.jaxpr for body in layout.bodies]) != prim.bodies:
        return "the bodies of the layout are not `bodies`, in order"
    for what, groups, avals in (("operands", layout.operands, ins), ("results", layout.results, outs)):
        if (total := sum([g.size for g in groups])) != len(avals):
            return f"the groups have {total} {what}, the equation has {len(avals)}"
    return _problem_of_groups(layout, ins, outs) or next(_problems_of_bodies(layout, ins, outs), None)


def _problem_of_groups(layout: Layout, ins: Sequence[Aval], outs: Sequence[Aval]) -> str | None:
    """Return what is wrong with the roles that stand alone or in pairs (carries, the index of a branch, the number of
    runs); None if nothing is."""
    before = [g.size for g in layout.operands if type(g.role) is Carry]
    after = [g.size for g in layout.results if type(g.role) is Carry]
    if before != after or len(before) > 1:
        return f"groups of operands that are a Carry have the sizes {before}, those of results {after}"
    for p, q in layout.carries.items():
        if ins[p] is not outs[q]:
            return f"operand {p} is a Carry of type {ins[p]}, and its result {q} is {outs[q]}"
    runs = [type(layout.bodies[k].runs) for k in layout.running]
    for role, needed in ((BranchIndex, OneOf), (Count, UpTo)):
        scalars = [r for r in layout.operand_roles if type(r) is role]
        if len(scalars) != (needed in runs):
            how = ", ".join([kind.__name__ for kind in runs])
            return f"there are {len(scalars)} operands that are a {role.__name__}, for bodies that run {how}"
    return None


def _problems_of_bodies(layout: Layout, ins: Sequence[Aval], outs: Sequence[Aval]) -> Iterator[str]:
    for k, body in enumerate(layout.bodies):
        n_operands, n_results = len(layout.operands), len(layout.results)
        if max(body.operands, default=-1) >= n_operands or max(body.results, default=-1) >= n_results:
            yield f"body {k} names groups {body.operands} and {body.results}; there are {n_operands} and {n_results}"
            return
        if type(body.runs) is Never:  # a rule, which may have operands and results of its own
            continue
        takes, gives = layout.operand_indices(k), layout.result_indices(k)
        if (len(takes), len(gives)) != (len(body.jaxpr.ins), len(body.jaxpr.outs)):
            yield (
                f"body {k}, {body.jaxpr.name}, takes {len(body.jaxpr.ins)} and returns {len(body.jaxpr.outs)} values;"
                f" its groups have {len(takes)} and {len(gives)}"
            )
            return
        for p, aval in zip(takes, body.jaxpr.in_avals, strict=True):
            if not _fits(layout.operand_roles[p], body.runs, ins[p], aval):
                yield f"operand {p} is {ins[p]}, {layout.operand_roles[p]}; body {k} takes {aval}"
        for q, aval in zip(gives, body.jaxpr.out_avals, strict=True):
            if q is None and aval is not BOOL_SCALAR:
                yield f"body {k} returns {aval} as the predicate: it must be bool[]"
            if q is not None and not _fits(layout.result_roles[q], body.runs, outs[q], aval):
                yield f"result {q} is {outs[q]}, {layout.result_roles[q]}; body {k} returns {aval}"
        if type(body.runs) is OneOf and sorted(q for q in gives if q is not None) != list(range(len(outs))):
            yield f"body {k} is a branch, and must return each of the {len(outs)} results once"
        if type(body.runs) is Unknown and layout.carries and not layout.has_predicate:
            yield "a loop of an unknown number of runs has no predicate: name PREDICATE among the results of a body"


def _fits(role: Role, runs: Runs, full_type: Aval, run_type: Aval) -> bool:
    """Return True if an operand or result of type `full_type` has the type `run_type` in each run."""
    match role:
        case Sliced(axis):
            return axis <= run_type.ndim and full_type is _stack(run_type, axis, runs)
        case Elements() | Part():
            return True
        case Value() if not isinstance(runs, Once | OneOf):  # an element of it
            return True
        case _:
            return full_type is run_type


def _stack(run_type: Aval, axis: int, runs: Runs) -> Aval | None:
    """Return the type of the slices of all runs; None if their number has no bound."""
    match runs:
        case Times(count) | InParallel(count) | UpTo(count) | Unknown(int(count)):
            return run_type.stacked(count, axis)
        case _:
            return None
