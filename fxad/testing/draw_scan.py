"""Draws applications of `scan`: linear and other bodies, counters, and results of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import Atom, Aval, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.control.scan import Scan
from fxad.testing.applications import Spec, Specs
from fxad.testing.values import ORDINARY, Domain, shapes


def _scan(draw: st.DrawFn, smooth: bool) -> Spec:
    """Draw a body over a constant, a carry, optionally a counter, and a slice, with a loop-invariant equation."""
    dtype = dtypes.float64 if smooth else draw(st.sampled_from([dtypes.float64, dtypes.int32]))
    aval, index = Aval(draw(shapes(2)), dtype), Aval((), dtypes.int32)
    linear = draw(st.booleans())
    counts = not linear and draw(st.booleans())
    b = Builder()
    w, h = b.inputs((aval, aval))
    count = [b.input(index)] if counts else []
    x = b.input(aval)
    half = Lit.of(0.5 if aval.inexact else 2, aval)
    if linear:
        carry: Atom = b.one(ew.SUB, b.one(ew.MUL, half, h), b.one(ew.ADD, w, x))
        others: list[Atom] = [h, x, w, carry, b.one(ew.NEG, h), Lit.of(0, aval)]
    else:
        same = b.one(ew.SIN, w) if aval.inexact else b.one(ew.NEG, w)
        # a counter is linear in nothing, so the rest may not be either
        bent = b.one(ew.SIN, h) if counts and aval.inexact else h
        carry = b.one(ew.MUL, b.one(ew.MUL, same, bent), b.one(ew.ADD, x, half))
        others = [h, x, w, same, carry, b.one(ew.MUL, h, x), Lit.of(2, aval), *count]
    counted = [b.one(ew.ADD, c, Lit.of(1, index)) for c in count]
    last = carry if counts else draw(st.sampled_from([carry, carry, carry, h]))
    body = b.build([last, *counted, *draw(st.lists(st.sampled_from(others), max_size=2))], "step")
    length = draw(st.sampled_from([2, 3, 1, 0]))
    unroll = draw(st.sampled_from([1, 2, 4]))
    upto = unroll == 1 and draw(st.booleans())
    prim = Scan(body, length, draw(st.booleans()), unroll, 1, 1 + len(count), upto)
    bound = [(index, Domain(whole=(-1, 4)))] * upto
    start = [(index, Domain(whole=(-2, 2)))] * len(count)
    xs = aval.stacked(length)
    return prim, [*bound, (aval, ORDINARY), (aval, ORDINARY), *start, (xs, ORDINARY)]


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType({Scan: _scan})
