"""The basic growth steps: each adds one or a few equations that start from a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.size import maximum
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.argmax import ArgMax
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.dimension_numbers import GatherScatterMode
from fxad.primitives.dot import DotGeneral
from fxad.primitives.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.gather_scatter import Gather, ScatterAdd
from fxad.primitives.reduce import ReduceMax
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import (
    BroadcastInDim,
    ExpandDims,
    Iota,
    ReduceSum,
    Reshape,
    Rev,
    Squeeze,
    Transpose,
)
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.testing.applied_steps import kernel_step, primitive_step, random_numbers
from fxad.testing.control_steps import RESULT, branch_step, draw_body, draw_fitting_operand, scan_step, while_step
from fxad.testing.draw_custom import call_with_rule
from fxad.testing.growth import BOUND, UNKNOWN, Fact, Growth, up_to
from fxad.testing.matrix_steps import decomposition

# Adds one or a few equations that start from a value; adds none if the value does not suit.
GrowthStep: TypeAlias = Callable[[Growth, Atom], None]

_MODES: Final[tuple[GatherScatterMode, ...]] = ("clip", "drop")

_BOUNDED: Final = MappingProxyType[Unary, tuple[float, float]](
    {ew.SIN: (-1, 1), ew.COS: (-1, 1), ew.TANH: (-1, 1), ew.LOGISTIC: (0.002, 1), ew.ATAN: (-1.6, 1.6), ew.ERF: (-1, 1)}
)
# functions that grow slowly enough over [-2, 2], and their bounds there
_MODERATE: Final = MappingProxyType[Unary, tuple[float, float]](
    {
        ew.EXP: (0.13, 7.4),
        ew.EXP2: (0.25, 4),
        ew.EXPM1: (-0.9, 6.4),
        ew.SINH: (-3.7, 3.7),
        ew.ASINH: (-1.5, 1.5),
        ew.SQUARE: (0, 4),
        ew.ERFC: (0, 2),
    }
)
# functions of values that keep away from 0
_POSITIVE: Final = (ew.LOG, ew.SQRT, ew.RSQRT, ew.CBRT)


def _unary(g: Growth, x: Atom) -> None:
    if not x.aval.inexact:
        if x.aval.dtype == dtypes.bool_:
            g.emit(UNKNOWN, ew.NOT, x)
        else:
            prims = [ew.NEG, ew.SQUARE, ew.NOT, ew.SIGN, ew.POPULATION_COUNT, ew.CLZ]
            g.emit(UNKNOWN, g.draw(st.sampled_from(prims)), x)
        return
    fact = g.facts[x]
    if x.aval.dtype in dtypes.COMPLEX:
        _complex_unary(g, x, fact)
        return
    bounds = {**_BOUNDED, **(_MODERATE if fact.size <= 2 else {})}
    choices: list[tuple[Unary, Fact]] = [(p, Fact(lo, hi, False)) for p, (lo, hi) in bounds.items()]
    if fact.low >= 0.1:
        choices += [(p, Fact(min(0.1, fact.low) if p is not ew.LOG else -2.4, 3.2, False)) for p in _POSITIVE]
    choices.append((ew.NEG, Fact(-fact.high, -fact.low, fact.exact)))
    choices.append((ew.STOP_GRADIENT, fact) if not g.smooth else (ew.NEG, Fact(-fact.high, -fact.low, fact.exact)))
    if not g.smooth and fact.exact:
        choices.append((ew.FLOOR, Fact(fact.low - 1, fact.high, True)))
        choices.append((ew.ABS, Fact(0, fact.size, True)))
    prim, out = g.draw(st.sampled_from(choices))
    g.emit(out, prim, x)


def _complex_unary(g: Growth, x: Atom, fact: Fact) -> None:
    prim = g.draw(st.sampled_from([ew.REAL, ew.IMAG, ew.CONJ, ew.NEG, ew.SIN, ew.EXP]))
    if prim in (ew.SIN, ew.EXP):
        if fact.size <= 1.5:
            g.emit(up_to(4.5), prim, x)
    else:
        g.emit(up_to(fact.size, fact.exact), prim, x)


def _binary(g: Growth, x: Atom) -> None:
    aval = x.aval
    if not aval.inexact:
        logical = [ew.AND, ew.OR, ew.XOR, ew.MAX, ew.MIN]
        arithmetic = [ew.ADD, ew.SUB, ew.MUL, ew.DIV, ew.REM, ew.SHIFT_LEFT, ew.SHIFT_RIGHT_LOGICAL]
        prims = logical if aval.dtype == dtypes.bool_ else logical + arithmetic
        g.emit(UNKNOWN, g.draw(st.sampled_from(prims)), x, g.like(aval))
        return
    prim: Binary = g.draw(st.sampled_from([ew.ADD, ew.MUL, ew.SUB, ew.DIV, ew.MAX, ew.MIN, ew.ATAN2, ew.POW]))
    x, y = g.within(x, 2.0), g.within(g.like(aval), 1.5)
    a, b = g.facts[x], g.facts[y]
    of_complex = aval.dtype in dtypes.COMPLEX
    if prim in (ew.ADD, ew.SUB):
        g.emit(up_to(a.size + b.size), prim, x, y)
    elif prim is ew.MUL:
        corners = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high]
        product = up_to(2 * a.size * b.size) if of_complex else Fact(min(corners), max(corners), False)
        g.emit(product, prim, x, y)
    elif of_complex:
        return
    elif prim is ew.DIV and b.low >= 0.1 and a.size / b.low <= BOUND:
        g.emit(up_to(a.size / b.low), prim, x, y)
    elif prim in (ew.MAX, ew.MIN):
        g.emit(a | b, prim, x, y)
    elif prim is ew.ATAN2 and b.low >= 0.1:
        g.emit(up_to(1.6), prim, x, y)
    elif prim is ew.POW and a.low >= 0.3 and a.size <= 2 and b.size <= 2:
        g.emit(Fact(0.05, 11, False), prim, x, y)


def _compare(g: Growth, x: Atom) -> None:
    if not g.facts[x].exact or (g.smooth and x.aval.inexact):
        return
    prims = [ew.EQ, ew.NE]
    if x.aval.dtype not in dtypes.COMPLEX:
        prims += [ew.LT, ew.GE]
    g.emit(UNKNOWN, g.draw(st.sampled_from(prims)), x, g.like(x.aval, lambda f: f.exact))


def _select(g: Growth, x: Atom) -> None:
    predicate = g.like(x.aval.with_dtype(dtypes.bool_))
    y = g.like(x.aval)
    g.emit(g.facts[x] | g.facts[y], ew.SELECT_N, predicate, x, y)


def _clamp(g: Growth, x: Atom) -> None:
    if x.aval.dtype in dtypes.COMPLEX | {dtypes.bool_}:
        return
    low, high = Lit.of(0, x.aval), Lit.of(1, x.aval)
    g.emit(Fact(0, 1, g.facts[x].exact), ew.CLAMP, low, x, high)


def _convert(g: Growth, x: Atom) -> None:
    fact = g.facts[x]
    to: DType = g.draw(st.sampled_from(g.dtypes))
    if x.aval.inexact and to not in dtypes.INEXACT and not fact.exact:
        return
    if x.aval.inexact and to not in dtypes.INEXACT and g.smooth:
        return
    if not x.aval.inexact and to in dtypes.INEXACT:
        # an integer may be large: take its sign, so that what follows stays small
        if x.aval.dtype != dtypes.bool_:
            x = g.emit(UNKNOWN, ew.SIGN, x)
        fact = up_to(1, exact=True)
    g.emit(replace(fact, exact=not x.aval.inexact or (fact.exact and to is x.aval.dtype)), ew.ConvertElementType(to), x)


def _to_complex(g: Growth, x: Atom) -> None:
    if x.aval.dtype in (dtypes.float32, dtypes.float64) and dtypes.complex_of(x.aval.dtype) in g.dtypes:
        y = g.like(x.aval)
        both = g.facts[x] | g.facts[y]
        g.emit(up_to(both.size, both.exact), ew.COMPLEX, x, y)


def _rearrange(g: Growth, x: Atom) -> None:
    """Rearrange elements."""
    shape, n = x.aval.shape, x.aval.ndim
    axis = g.draw(st.integers(0, n - 1)) if n else 0
    prims: list[Primitive] = [
        Transpose(tuple(range(n))[::-1]),
        Reshape((x.aval.size,)),
        ExpandDims((axis,)),
        BroadcastInDim((*shape, 2), tuple(range(n))),
        BroadcastInDim((2, *shape), tuple(range(1, n + 1))),
    ]
    if n:
        ones = tuple([a for a, m in enumerate(shape) if m == 1])
        prims += [Rev((axis,)), Squeeze(ones)]
        prims.append(Slice((0,) * n, tuple([maximum(m - 1, 0) for m in shape]), (1,) * n))
        prims.append(Slice(tuple([m // 2 for m in shape]), shape, (2,) * n))
    prim = g.draw(st.sampled_from(prims))
    if n < 4 or isinstance(prim, Squeeze | Slice | Rev | Reshape | Transpose):
        g.emit(g.facts[x], prim, x)


def _reduce(g: Growth, x: Atom) -> None:
    n, fact = x.aval.ndim, g.facts[x]
    if not n or x.aval.dtype == dtypes.bool_:
        return
    axes = tuple(sorted(g.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=2))))
    elements: int = 1
    for a in axes:
        elements = elements * x.aval.shape[a]
    count = g.most(elements)
    kind = g.draw(st.sampled_from(["sum", "max", "prod", "argmax"]))
    if kind == "sum":
        g.emit(up_to(BOUND), ReduceSum(axes), g.within(x, BOUND / max(count, 1)))
    elif kind == "prod" and x.aval.dtype not in dtypes.COMPLEX:
        g.emit(
            up_to(BOUND),
            ReduceProd(axes),
            g.within(x, BOUND ** (1 / max(count, 1))),
        )
    elif kind == "max" and x.aval.dtype not in dtypes.COMPLEX and at_least(elements, 1):
        g.emit(fact, ReduceMax(axes), x)
    elif (
        kind == "argmax"
        and fact.exact
        and x.aval.dtype not in dtypes.COMPLEX
        and at_least(elements, 1)
        and not g.smooth
    ):
        g.emit(UNKNOWN, ArgMax(axes[0], dtypes.int32), x)


def _dot(g: Growth, x: Atom) -> None:
    n = x.aval.ndim
    if not n or x.aval.dtype == dtypes.bool_:
        return
    axis = g.draw(st.integers(0, n - 1))
    batch = g.draw(st.booleans()) and n > 1
    other = (axis + 1) % n
    m = x.aval.shape[axis]
    x = g.within(x, 1.0)
    y = g.within(g.like(x.aval.with_shape((x.aval.shape[other], m) if batch else (m, 2))), 1.0)
    size = 2 * g.most(m) * g.facts[x].size * g.facts[y].size
    prim = DotGeneral((axis,), (1,), (other,), (0,), None) if batch else DotGeneral((axis,), (0,), (), (), None)
    g.emit(up_to(size), prim, x, y)


def _concatenate(g: Growth, x: Atom) -> None:
    if not x.aval.ndim:
        return
    y = g.like(x.aval)
    g.emit(g.facts[x] | g.facts[y], Concatenate(g.draw(st.integers(0, x.aval.ndim - 1))), x, y)


def _pad(g: Growth, x: Atom) -> None:
    n = x.aval.ndim
    value = g.like(x.aval.with_shape(()))
    low = tuple([g.draw(st.sampled_from([0, 1, -1])) if m != 0 else 0 for m in x.aval.shape])
    prim = Pad(low, (1,) * n, (g.draw(st.integers(0, 1)),) * n)
    g.emit(g.facts[x] | g.facts[value], prim, x, value)


def _gather_scatter(g: Growth, x: Atom) -> None:
    """Gather rows, and scatter-add rows at indices that may be out of range."""
    if not x.aval.ndim or x.aval.dtype == dtypes.bool_ or not at_least(x.aval.size, 1):
        return
    n, rest = x.aval.shape[0], x.aval.shape[1:]
    mode = g.draw(st.sampled_from(_MODES))
    places = g.like(Aval((2, 1), dtypes.int32))
    offset = tuple(range(1, x.aval.ndim))
    x = g.within(x, BOUND / 3)
    fact = g.facts[x]
    wide = Fact(min(fact.low, 0), max(fact.high, 0), fact.exact)
    rows = g.emit(wide, Gather(offset, (0,), (), (), (0,), (1, *rest), mode, False, False), x, places)
    scatter = ScatterAdd(offset, (0,), (), (), (0,), mode, False, False)
    base = x if g.draw(st.booleans()) else Lit.of(0, Aval((n, *rest), x.aval.dtype))
    g.emit(up_to(3 * fact.size), scatter, base, places, rows)


def _dynamic_slice(g: Growth, x: Atom) -> None:
    starts = [g.like(Aval((), dtypes.int32)) for _ in x.aval.shape]
    sizes = tuple([maximum(m - 1, 0) for m in x.aval.shape])
    part = g.emit(g.facts[x], DynamicSlice(sizes), x, *starts)
    if g.draw(st.booleans()):
        y = g.like(part.aval)
        g.emit(g.facts[x] | g.facts[y], DynamicUpdateSlice(), x, y, *starts)


def _iota(g: Growth, _: Atom) -> None:
    shape = g.shape()
    if shape and max([g.most(n) for n in shape]) <= 4:
        dtype = g.draw(st.sampled_from([d for d in g.dtypes if d != dtypes.bool_]))
        g.emit(Fact(0, 3, True), Iota(shape, dtype, len(shape) - 1))


def _repeat_equation(g: Growth, _: Atom) -> None:
    """Repeat an existing equation with the same operands."""
    if g.builder.eqns:
        eqn = g.builder.eqns[-1 - g.draw(st.integers(0, len(g.builder.eqns) - 1))]
        for old, new in zip(eqn.outs, g.builder(eqn.prim, *eqn.ins), strict=True):
            g.add(new, g.facts.get(old, up_to(1e6)))


def _neutral_operand(g: Growth, x: Atom) -> None:
    """Apply an operation with a neutral or nearly neutral operand, which `simplify` looks for."""
    aval, fact = x.aval, g.facts[x]
    if aval.dtype == dtypes.bool_:
        prims: list[Binary] = [ew.AND, ew.OR, ew.XOR]
    else:
        prims = [ew.ADD, ew.SUB, ew.MUL]
        prims += [ew.DIV] if aval.inexact else [ew.AND, ew.OR, ew.XOR]
    prim = g.draw(st.sampled_from(prims))
    values = [1.0, -1.0] if prim is ew.DIV else [0.0, -0.0, 1.0, -1.0]
    unit = Lit.of(g.draw(st.sampled_from(values)), aval)
    size = fact.size + 1
    if size <= 2 * BOUND:
        g.emit(up_to(size), prim, *((x, unit) if prim is ew.DIV or g.draw(st.booleans()) else (unit, x)))


def _inverse_pair(g: Growth, x: Atom) -> None:
    """Apply an operation and its inverse."""
    n, fact = x.aval.ndim, g.facts[x]
    perm = tuple(g.draw(st.permutations(range(n))))
    pairs: list[tuple[Primitive, Primitive]] = [
        (Transpose(perm), Transpose(tuple(g.draw(st.permutations(range(n)))))),
        (Reshape((1, x.aval.size)), Reshape(x.aval.shape)),
        (ExpandDims((0,)), Squeeze((0,))),
    ]
    pairs += [(ew.NEG, ew.NEG)] if x.aval.dtype != dtypes.bool_ else [(ew.NOT, ew.NOT)]
    pairs += [(Rev((0,)), Rev((n - 1,)))] if n else []
    first, second = g.draw(st.sampled_from(pairs))
    both = up_to(fact.size, fact.exact)
    g.emit(both, second, g.emit(both, first, x))


def _call(g: Growth, _: Atom) -> None:
    """Call an existing body on values of its types within the bounds it was grown for."""
    body = draw_body(g)
    if body is None:
        return
    args = [draw_fitting_operand(g, v.aval) for v in body.ins]
    kind = g.draw(st.sampled_from(["call", "remat", "opaque", "jvp", "vjp"]))
    prim: Primitive = Call(body) if kind == "call" else Remat(body, kind == "opaque")
    if kind in ("jvp", "vjp"):
        prim = call_with_rule(body, kind)
    for v in g.builder(prim, *args):
        g.add(v, RESULT)


def _no_step(_g: Growth, _: Atom) -> None:
    """Add nothing. Steps shrink to this one."""


GROWTH_STEPS: Final[tuple[GrowthStep, ...]] = (
    _no_step,
    _binary,
    _unary,
    _rearrange,
    _reduce,
    _call,
    branch_step,
    scan_step,
    while_step,
    decomposition,
    kernel_step,
    random_numbers,
    _dot,
    _select,
    _convert,
    _concatenate,
    _to_complex,
    _pad,
    _gather_scatter,
    _dynamic_slice,
    _clamp,
    _compare,
    _iota,
    _repeat_equation,
    _neutral_operand,
    _inverse_pair,
    primitive_step,
)
