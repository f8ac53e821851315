"""Checks that a program is well formed and well typed. Every transform must return such a program."""

from __future__ import annotations

from typing import Final

import numpy as np

from fxad import dtypes
from fxad.core.sizes import Size
from fxad.errors import ArgumentError, TypecheckError, described
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, Record, Var, jaxprs_without_memo, params, source_text


def typecheck(jaxpr: Jaxpr) -> None:
    """Check that a jaxpr is well formed and well typed, bodies included.

    Law: the check passes for the result of every transform.
    Raises: TypecheckError that names the function and the equation.
    Cost: each distinct body is checked once, ever.
    """
    if not isinstance(jaxpr, Jaxpr):
        raise ArgumentError(f"typecheck: {described(jaxpr)} is not a jaxpr: {jaxpr!r:.60}", remedy="give program.jaxpr")
    if "well typed" not in jaxpr._memo:
        for function in jaxprs_without_memo(jaxpr, "well typed"):
            _check_jaxpr(function)
            function._memo["well typed"] = True


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
    return avals


def _storable(value: object) -> bool:
    """Returns True if a parameter has exactly a type of `Param`. NumPy's ints equal ints but print differently."""
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
