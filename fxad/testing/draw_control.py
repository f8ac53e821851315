"""Draws applications of calls, branches and loops, and of marks on values, which return their operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import INT32_SCALAR, Atom, Aval, Jaxpr, Lit, Primitive, Var
from fxad.primitives import elementwise as ew
from fxad.primitives.barrier import OptimizationBarrier
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import LOOP, SELECT, Batching, Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.marks import Budget, Keep, Name
from fxad.testing.applications import ANY, Spec, Specs, dtype_of
from fxad.testing.values import ORDINARY, Domain, any_values, shapes


def _draw_aval(draw: st.DrawFn, smooth: bool) -> Aval:
    dtype = dtype_of(draw, frozenset({dtypes.float64, dtypes.int32}), smooth)
    return Aval(draw(shapes(2)), dtype)


def _draw_body(draw: st.DrawFn, smooth: bool) -> tuple[Jaxpr, Sequence[tuple[Aval, Domain]]]:
    """Draw a body that uses its operands and returns a computed value, an operand and a literal."""
    aval = _draw_aval(draw, smooth)
    b = Builder()
    x, y = b.inputs((aval, aval))
    z = b.one(ew.MUL, x, b.one(ew.SIN, y) if aval.inexact else y)
    others: list[Var | Lit] = [y, z, Lit.of(2, aval)]
    outs = [z, *draw(st.lists(st.sampled_from(others), max_size=2))]
    return b.build(outs, "body"), [(aval, ORDINARY), (aval, ORDINARY)]


def _call(draw: st.DrawFn, smooth: bool) -> Spec:
    body, operands = _draw_body(draw, smooth)
    return Call(body), operands


def _remat(draw: st.DrawFn, smooth: bool) -> Spec:
    body, operands = _draw_body(draw, smooth)
    return Remat(body, draw(st.booleans())), operands


_BATCHED: Final[tuple[Batching, ...]] = (SELECT, LOOP)


def _cond(draw: st.DrawFn, smooth: bool) -> Spec:
    """Draw branches over two arrays and an integer, any of which may be unused."""
    aval, linear = _draw_aval(draw, smooth), draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(range(4)), min_size=1, max_size=3))
    branches = tuple([_branch(aval, kind, linear=linear) for kind in kinds])
    index = (INT32_SCALAR, Domain(whole=(-1, 3)))
    return Cond(branches, draw(st.sampled_from(_BATCHED))), [index, (aval, ORDINARY), (aval, ORDINARY), index]


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
        nonlinear = b.one(ew.SIN, x) if aval.inexact else b.one(ew.NEG, x)
        choices = [
            (b.one(ew.MUL, nonlinear, y), x),
            (b.one(ew.MUL, x, x), b.one(ew.MUL, nonlinear, nonlinear)),
            (Lit.of(2, aval), y),
            (b.one(ew.MUL, nonlinear, half), Lit.of(0, aval)),
        ]
    # an integer result is linear in nothing
    outs = choices[kind] if linear else (*choices[kind], n if kind else Lit.of(7, INT32_SCALAR))
    return b.build(outs, f"branch{kind}")


def _while(draw: st.DrawFn, smooth: bool) -> Spec:
    """Draw a loop that counts to a limit, over a constant and two carries, one of which may be dead or unchanged."""
    aval = _draw_aval(draw, smooth)
    b = Builder()
    limit, step, *_ = b.inputs((INT32_SCALAR, INT32_SCALAR, aval, aval))
    more = b.build((b.one(ew.LT, step, limit),), "more")
    b = Builder()
    w, step, x, y = b.inputs((aval, INT32_SCALAR, aval, aval))
    nonlinear = b.one(ew.SIN, x) if aval.inexact else b.one(ew.NEG, x)
    same = b.one(ew.COS, w) if aval.inexact else b.one(ew.NEG, w)
    values: list[Atom] = [
        b.one(ew.MUL, nonlinear, same),
        b.one(ew.SUB, x, y),
        b.one(ew.ADD, nonlinear, w),
        x,
        y,
        Lit.of(2, aval),
    ]
    value = st.sampled_from(values)
    outs = [b.one(ew.ADD, step, Lit.of(1, INT32_SCALAR)), draw(value), draw(value)]
    # without a bound there is no reverse mode, and without one there are no rows
    bound = draw(st.sampled_from([3, 2, 5, 1, 0])) if smooth or draw(st.booleans()) else None
    rows = draw(st.lists(st.sampled_from([*values, step]), max_size=2)) if bound is not None else []
    body = b.build((*outs, *rows), "step")
    count = (INT32_SCALAR, Domain(whole=(0, 4)))
    arrays = [(aval, ORDINARY)] * 3
    return While(more, body, 1, 1, bound), [count, arrays[0], (INT32_SCALAR, Domain(whole=(0, 1))), *arrays[1:]]


def _scan(draw: st.DrawFn, smooth: bool) -> Spec:
    """Draw a body over a constant, a carry, optionally a counter, and a slice, with a loop-invariant equation."""
    aval, index = _draw_aval(draw, smooth), INT32_SCALAR
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
        nonlinear = b.one(ew.SIN, h) if counts and aval.inexact else h
        carry = b.one(ew.MUL, b.one(ew.MUL, same, nonlinear), b.one(ew.ADD, x, half))
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


# ----------------------------------------------------------------------------------------------------- marks on values


_LABELS: Final = st.sampled_from(["a", "b"])


def _name(draw: st.DrawFn, smooth: bool) -> Spec:
    aval = Aval(draw(shapes()), dtype_of(draw, ANY, smooth))
    return Name(draw(_LABELS)), [(aval, any_values(smooth))]


def _keep(draw: st.DrawFn, smooth: bool) -> Spec:
    outer = tuple(draw(st.lists(_LABELS, max_size=2)))
    return Keep(draw(_LABELS), outer), _name(draw, smooth)[1]


def _budget(draw: st.DrawFn, smooth: bool) -> Spec:
    return Budget(1 << 40), _name(draw, smooth)[1]  # every example fits


def _optimization_barrier(draw: st.DrawFn, smooth: bool) -> Spec:
    dtypes_of = [dtype_of(draw, ANY, smooth) for _ in range(draw(st.integers(0, 3)))]
    return OptimizationBarrier(), [(Aval(draw(shapes(2)), d), any_values(smooth)) for d in dtypes_of]


OWN: Final[Mapping[type[Primitive], Specs]] = MappingProxyType(
    {
        Call: _call,
        Remat: _remat,
        Cond: _cond,
        While: _while,
        Scan: _scan,
        Name: _name,
        Keep: _keep,
        Budget: _budget,
        OptimizationBarrier: _optimization_barrier,
    }
)
