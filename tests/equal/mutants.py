"""Programs with one planted algebraic fault."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from fxad.ir import Eqn, HigherOrder, Jaxpr, Lit, distinct_jaxprs
from fxad.primitives import elementwise as ew
from fxad.primitives.cumulative import CumSum
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.shape import Rev

_OTHER: Final = MappingProxyType(
    {
        ew.Add: ew.SUB, ew.Sub: ew.ADD, ew.Mul: ew.ADD, ew.Div: ew.MUL, ew.Max: ew.MIN, ew.Min: ew.MAX,
        ew.Sin: ew.COS, ew.Cos: ew.SIN, ew.Exp: ew.SINH, ew.Tanh: ew.SIN, ew.Logistic: ew.TANH, ew.Log: ew.SQRT,
        ew.Sqrt: ew.RSQRT, ew.Rsqrt: ew.SQRT, ew.Square: ew.NEG, ew.Atan: ew.TANH, ew.Erf: ew.TANH,
    }
)  # fmt: skip


def mutants(program: Jaxpr, relative: float = 1e-12) -> list[tuple[str, Jaxpr]]:
    """Return programs that each have one changed equation, in `program` or in one of its bodies, with what changed."""
    found = []
    for body in distinct_jaxprs(program):
        for k, eqn in enumerate(body.eqns):
            for what, changed in _changes(eqn, relative):
                found.append((f"{what} in equation {k} of {body.name}", _in(program, body, _with(body, k, changed))))
    return found


def _changes(eqn: Eqn, relative: float) -> list[tuple[str, Eqn]]:
    out = []
    prim, ins = eqn.prim, eqn.ins
    other = _OTHER.get(type(prim))
    if other is not None and eqn.outs[0].aval.inexact and eqn.outs[0].aval.dtype.kind != "c":
        out.append((f"{prim.name} became {other.name}", replace(eqn, prim=other)))
    if isinstance(prim, ew.Sub | ew.Div | ew.Atan2 | ew.Pow) and ins[0] != ins[1]:
        out.append((f"operands of {prim.name} swapped", replace(eqn, ins=ins[::-1])))
    if isinstance(prim, ew.SelectN) and len(ins) == 3 and ins[1] != ins[2]:
        out.append(("cases swapped", replace(eqn, ins=(ins[0], ins[2], ins[1]))))
    if isinstance(prim, Rev | ew.Neg) and not any(n == 0 for n in eqn.outs[0].aval.shape):
        out.append((f"{prim.name} dropped", replace(eqn, prim=ew.MUL, ins=(ins[0], Lit.of(1, ins[0].aval)))))
    if isinstance(prim, CumSum):
        out.append(("cumsum reversed", replace(eqn, prim=CumSum(prim.axis, not prim.reverse))))
    if isinstance(prim, ReduceMax):
        out.append(("reduce_max became reduce_min", replace(eqn, prim=ReduceMin(prim.axes))))
    for k, a in enumerate(ins):
        if isinstance(a, Lit) and a.size is None and a.aval.dtype == np.float64 and np.isfinite(a.value) and a.value:
            off = Lit.of(float(a.value) * (1 + relative), a.aval)
            out.append((f"constant {a.value} is off by {relative}", replace(eqn, ins=(*ins[:k], off, *ins[k + 1 :]))))
    return out


def _with(body: Jaxpr, k: int, eqn: Eqn) -> Jaxpr:
    return Jaxpr(body.ins, (*body.eqns[:k], eqn, *body.eqns[k + 1 :]), body.outs, body.name)


def _in(program: Jaxpr, old: Jaxpr, new: Jaxpr) -> Jaxpr:
    """Return the program with one body replaced, wherever it occurs."""
    changed = {old: new}
    for body in distinct_jaxprs(program):
        if body in changed:
            continue
        eqns = []
        for eqn in body.eqns:
            prim = eqn.prim
            if isinstance(prim, HigherOrder):
                bodies = tuple([changed.get(b, b) for b in prim.bodies])
                prim = prim.with_bodies(bodies) if bodies != prim.bodies else prim
            eqns.append(replace(eqn, prim=prim))
        made = Jaxpr(body.ins, tuple(eqns), body.outs, body.name)
        if made is not body:
            changed[body] = made
    return changed.get(program, program)
