"""Draws applications of `cond` and `while`: any number of branches, linear or not; predicates over constants and the
carry; loops with a bound and rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import INT32_SCALAR, Atom, Aval, Jaxpr, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.control.cond import LOOP, SELECT, Cond
from fxad.primitives.control.while_ import While
from fxad.testing.applications import Spec, Specs
from fxad.testing.values import ORDINARY, Domain, shapes


def _aval(draw: st.DrawFn, smooth: bool) -> Aval:
    dtype = dtypes.float64 if smooth else draw(st.sampled_from([dtypes.float64, dtypes.int32]))
    return Aval(draw(shapes(2)), dtype)


def _cond(draw: st.DrawFn, smooth: bool) -> Spec:
    """Draw branches over two arrays and an integer, any of which may be unused."""
    aval, linear = _aval(draw, smooth), draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(range(4)), min_size=1, max_size=3))
    branches = tuple([_branch(aval, kind, linear=linear) for kind in kinds])
    index = (INT32_SCALAR, Domain(whole=(-1, 3)))
    return Cond(branches, draw(st.sampled_from([SELECT, LOOP]))), [index, (aval, ORDINARY), (aval, ORDINARY), index]


def _branch(aval: Aval, kind: int, *, linear: bool) -> Jaxpr:
    b = Builder()
    x, y, n = b.inputs((aval, aval, INT32_SCALAR))
    half = Lit.of(0.5 if aval.inexact else 2, aval)
    if linear:
        choices: list[tuple[Atom, Atom]] = [
            (x, y),
            (b.one(ew.MUL, half, x), b.one(ew.SUB, x, y)),
            (b.one(ew.NEG, y), Lit.of(0, aval)),
            (y, y),
        ]
    else:
        bent = b.one(ew.SIN, x) if aval.inexact else b.one(ew.NEG, x)
        choices = [
            (b.one(ew.MUL, bent, y), x),
            (b.one(ew.MUL, x, x), b.one(ew.MUL, bent, bent)),
            (Lit.of(2, aval), y),
            (b.one(ew.MUL, bent, half), Lit.of(0, aval)),
        ]
    # an integer result is linear in nothing
    outs = choices[kind] if linear else (*choices[kind], n if kind else Lit.of(7, INT32_SCALAR))
    return b.build(outs, f"branch{kind}")


def _while(draw: st.DrawFn, smooth: bool) -> Spec:
    """Draw a loop that counts to a limit, over a constant and two carries, one of which may be dead or unchanged."""
    aval = _aval(draw, smooth)
    b = Builder()
    limit, step, *_ = b.inputs((INT32_SCALAR, INT32_SCALAR, aval, aval))
    more = b.build((b.one(ew.LT, step, limit),), "more")
    b = Builder()
    w, step, x, y = b.inputs((aval, INT32_SCALAR, aval, aval))
    bent = b.one(ew.SIN, x) if aval.inexact else b.one(ew.NEG, x)
    same = b.one(ew.COS, w) if aval.inexact else b.one(ew.NEG, w)
    values: list[Atom] = [b.one(ew.MUL, bent, same), b.one(ew.SUB, x, y), b.one(ew.ADD, bent, w), x, y, Lit.of(2, aval)]
    value = st.sampled_from(values)
    outs = [b.one(ew.ADD, step, Lit.of(1, INT32_SCALAR)), draw(value), draw(value)]
    # without a bound there is no reverse mode, and without one there are no rows
    bound = draw(st.sampled_from([3, 2, 5, 1, 0])) if smooth or draw(st.booleans()) else None
    rows = draw(st.lists(st.sampled_from([*values, step]), max_size=2)) if bound is not None else []
    body = b.build((*outs, *rows), "step")
    count = (INT32_SCALAR, Domain(whole=(0, 4)))
    arrays = [(aval, ORDINARY)] * 3
    return While(more, body, 1, 1, bound), [count, arrays[0], (INT32_SCALAR, Domain(whole=(0, 1))), *arrays[1:]]


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType({Cond: _cond, While: _while})
