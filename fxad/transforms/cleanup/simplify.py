"""Simplification: constant folding, and identities that hold bit for bit.

No rule changes a floating result. `x * 1`, `x / 1`, `x - 0` and `x + (-0.0)` are `x` for every x. `x + 0.0` is not `x`
for x = -0.0, and `x * 0` is not 0 for nan, infinities and negative numbers. Sums are not reassociated. Floating
constants are folded only by operations that do not round, because NumPy and XLA may round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from fxad import dtypes
from fxad.core.builder import Builder, rewrite
from fxad.core.dce import remove_dead_eqns
from fxad.core.layout import BranchIndex, InParallel, Layout, OneOf, Times
from fxad.core.memo import by_value
from fxad.core.sizes.lower_bounds import at_least
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Lit, Primitive, Var
from fxad.primitives.control.bodies import results_without_steps
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, NEG, SUB
from fxad.primitives.elementwise.convert import BitcastConvertType, ConvertElementType
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.logic import AND, NOT, OR, XOR
from fxad.primitives.elementwise.powers import ABS, IntegerPow
from fxad.primitives.elementwise.select import SELECT_N, SelectN
from fxad.primitives.index import Index
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Permutation, ReduceSum, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.slicing import Concatenate, Pad, Slice

# The equation that computes each variable of the program under construction.
_Defs: TypeAlias = dict[Atom, Eqn]
_Replacement: TypeAlias = "Atom | tuple[Primitive, tuple[Atom, ...]] | None"
_Rule: TypeAlias = Callable[[_Defs, Eqn], _Replacement]

# Operations on floating constants whose result is exact, so that NumPy and XLA compute the same bits. The modulus of a
# complex number is not.
_EXACT: Final = frozenset({NEG, ABS, SELECT_N})
_MOVES: Final = (BroadcastInDim, Permutation, Slice, Index)


@by_value
def simplify(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with constants folded and identities removed, also in bodies, and without dead equations.

    Law:  same value, bit for bit; idempotent; never more equations.
    Cost: one pass, and a sweep.
    """
    defs: _Defs = {}

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        if isinstance(eqn.prim, HigherOrder):
            return _simplify_bodies(b, eqn.prim, eqn, ins)
        return (_emit(b, defs, eqn, ins),) if len(eqn.outs) == 1 else None

    return remove_dead_eqns(rewrite(jaxpr, rule))


def _emit(b: Builder, defs: _Defs, eqn: Eqn, ins: tuple[Atom, ...]) -> Atom:
    """Return the result of an equation: an existing atom, a literal, or the result of a new equation."""
    prim = eqn.prim
    for _ in range(8):  # a rewritten equation may be simplified again; chains are short
        current = Eqn(prim, ins, eqn.outs, eqn.source)
        replacement = _fold(current) or _by_identity(defs, current)
        if replacement is None:
            break
        if isinstance(replacement, Var | Lit):
            return replacement
        prim, ins = replacement
    (v,) = b.copy(eqn, ins, prim)
    defs[v] = b.eqns[-1]
    return v


# ------------------------------------------------------------------------------------------------------ control flow


def _simplify_bodies(b: Builder, prim: HigherOrder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
    """Simplify the bodies of an equation, then the equation. Return its results."""
    simplified = prim.with_bodies(tuple([simplify(body) for body in prim.bodies]))
    assert isinstance(simplified, HigherOrder), "bodies of the same types make the same primitive"
    layout = simplified.layout
    if not layout.transparent or layout.once is not None:
        return b.copy(eqn, ins, simplified)
    branches = [k for k in layout.running if isinstance(layout.bodies[k].runs, OneOf)]
    if branches:
        k = _taken_branch(layout, branches, ins)
        if k is None:
            return b.copy(eqn, ins, simplified)
        return _call_of_branch(b, layout, k, ins)
    if layout.takes_no_step:
        return results_without_steps(layout, ins, [v.aval for v in eqn.outs])
    without_run = _results_without_run(layout, ins, eqn.outs)
    return [without_run.get(q, v) for q, v in enumerate(b.copy(eqn, ins, simplified))]


def _taken_branch(layout: Layout, branches: Sequence[int], ins: tuple[Atom, ...]) -> int | None:
    """Return the number of the branch that runs, if the index is a literal or all branches are the same."""
    if len({(body.jaxpr, body.operands, body.results) for body in [layout.bodies[k] for k in branches]}) == 1:
        return branches[0]
    index = next(a for a, role in zip(ins, layout.operand_roles, strict=True) if isinstance(role, BranchIndex))
    if not isinstance(index, Lit) or index.size is not None:
        return None
    return branches[min(max(int(index.value), 0), len(branches) - 1)]


def _call_of_branch(b: Builder, layout: Layout, k: int, ins: tuple[Atom, ...]) -> list[Atom]:
    """Add a call of branch k. Return the results of the equation."""
    values = b(Call(layout.bodies[k].jaxpr), *[ins[p] for p in layout.operand_indices(k)])
    by_result = dict(zip(layout.result_indices(k), values, strict=True))
    return [by_result[q] for q in range(len(by_result))]


def _results_without_run(layout: Layout, ins: tuple[Atom, ...], outs: Sequence[Var]) -> dict[int, Atom]:
    """Return the results of a loop that it has without a run: carries that no step changes and, if all steps
    run, stacks of literals and stacks of the slices of an operand."""
    of_carry = {q: p for p, q in layout.carries.items()}
    roles, result_roles, without_run = layout.operand_roles, layout.result_roles, dict[int, Atom]()
    for k in layout.running:
        body = layout.bodies[k]
        operands = dict(zip(body.jaxpr.ins, layout.operand_indices(k), strict=True))
        every = isinstance(body.runs, Times | InParallel)
        for q, a in zip(layout.result_indices(k), body.jaxpr.outs, strict=True):
            if q is None:
                continue
            p = operands.get(a) if isinstance(a, Var) else None
            if q in of_carry:
                without_run.update({q: ins[p]} if p == of_carry[q] else {})
            elif isinstance(a, Lit) and every:
                without_run[q] = a.with_shape(outs[q].aval.shape)
            elif p is not None and every and roles[p] == result_roles[q]:
                without_run[q] = ins[p]
    return without_run


# --------------------------------------------------------------------------------------------------------- constants


def _fold(eqn: Eqn) -> Lit | None:
    """Return the literal result of an equation over literals, if it is exact."""
    if not eqn.ins or not all([isinstance(a, Lit) for a in eqn.ins]):
        return None
    out = eqn.outs[0].aval
    lits = [a for a in eqn.ins if isinstance(a, Lit)]
    if any([a.size is not None for a in lits]) and not isinstance(eqn.prim, _MOVES):
        return None
    if isinstance(eqn.prim, _MOVES):
        return lits[0].with_shape(out.shape)
    if not isinstance(eqn.prim, Unary | Binary | Compare | SelectN) or not _is_exact(eqn.prim, lits, out):
        return None
    (value,) = eqn.prim.impl(*[a.with_shape(()).array for a in lits])
    return Lit.of(value, out)


def _is_exact(prim: Primitive, lits: list[Lit], out: Aval) -> bool:
    if isinstance(prim, ConvertElementType):
        return _converts_exactly(lits[0].aval.dtype, out.dtype)
    if isinstance(prim, BitcastConvertType) or (prim == ABS and lits[0].aval.dtype in dtypes.COMPLEX):
        return False
    rounds = any([aval.inexact for aval in (*[a.aval for a in lits], out)])
    return prim in _EXACT or not rounds


def _converts_exactly(a: dtypes.DType, b: dtypes.DType) -> bool:
    """Return True if NumPy and XLA convert every value of `a` to the same bits of `b`: integers to integers, which
    wrap in both, and integers to floating dtypes that have all of them. Floating `a` is excluded: the payload of a nan
    may change."""
    integers = {dtypes.bool_, *dtypes.INTEGER}
    return a in integers and (
        b in integers or (b is dtypes.float64 and a.itemsize < 8) or (a.itemsize <= 2 and b.itemsize >= 4)
    )


# -------------------------------------------------------------------------------------------------------- identities


def _is_literal(a: Atom, value: int) -> bool:
    """Return True if an atom is the literal `value` (for zero: +0.0)."""
    return isinstance(a, Lit) and a is Lit.of(value, a.aval)


def _by_identity(defs: _Defs, eqn: Eqn) -> _Replacement:
    rule = _RULES.get(type(eqn.prim))
    return rule(defs, eqn) if rule is not None else None


def _defined_by(defs: _Defs, a: Atom, kind: type[Primitive]) -> Eqn | None:
    eqn = defs.get(a)
    return eqn if eqn is not None and isinstance(eqn.prim, kind) else None


def _add(defs: _Defs, eqn: Eqn) -> Atom | None:
    x, y = eqn.ins
    for a, b in ((x, y), (y, x)):
        if isinstance(b, Lit) and b is _neutral(b.aval):
            return a
    return None


def _neutral(aval: Aval) -> Lit:
    """Return the neutral element of addition: -0.0 (in both parts of a complex number), or 0 for integers."""
    if aval.dtype in dtypes.COMPLEX:
        return Lit.of(complex(-0.0, -0.0), aval)
    return Lit.of(-0.0 if aval.dtype in dtypes.FLOATING else 0, aval)


def _mul(defs: _Defs, eqn: Eqn) -> Atom | None:
    x, y = eqn.ins
    for a, b in ((x, y), (y, x)):
        # each part of (a + bi)(1 + 0i) is a sum, which turns -0.0 into 0.0
        if _is_literal(b, 1) and b.aval.dtype not in dtypes.COMPLEX:
            return a
        if _is_literal(b, 0) and b.aval.dtype not in dtypes.INEXACT:
            return b
    return None


def _sub_or_div(defs: _Defs, eqn: Eqn) -> Atom | None:
    """Replace x - 0 and x / 1 by x."""
    neutral = 0 if eqn.prim is SUB else 1
    return eqn.ins[0] if _is_literal(eqn.ins[1], neutral) and eqn.ins[0].aval.dtype not in dtypes.COMPLEX else None


def _neg(defs: _Defs, eqn: Eqn) -> Atom | None:
    """Replace -(-x) and ~(~x) by x."""
    inner = _defined_by(defs, eqn.ins[0], type(eqn.prim))
    return inner.ins[0] if inner else None


def _bitwise(defs: _Defs, eqn: Eqn) -> Atom | None:
    x, y = eqn.ins
    ones = Lit.of(True if x.aval.dtype is dtypes.bool_ else -1, x.aval)
    zero = Lit.zero(x.aval)
    absorbing, neutral = (zero, ones) if eqn.prim is AND else (ones, zero)
    for a, b in ((x, y), (y, x)):
        if b is neutral:
            return a
        if b is absorbing and eqn.prim is not XOR:
            return b
    return x if x is y and eqn.prim is not XOR else None


def _max_or_min_of_same(defs: _Defs, eqn: Eqn) -> Atom | None:
    """Replace max(x, x) and min(x, x) by x."""
    return eqn.ins[0] if eqn.ins[0] is eqn.ins[1] else None


def _select(defs: _Defs, eqn: Eqn) -> Atom | None:
    which, *cases = eqn.ins
    if all([c is cases[0] for c in cases]):
        return cases[0]
    if isinstance(which, Lit) and which.size is None:
        k = int(which.value)
        return cases[min(max(k, 0), len(cases) - 1)]
    return None


def _power(defs: _Defs, eqn: Eqn) -> Atom | None:
    assert isinstance(eqn.prim, IntegerPow)
    return eqn.ins[0] if eqn.prim.n == 1 else None


def _noop(defs: _Defs, eqn: Eqn) -> Atom | None:
    """Return the operand if the result has its type: the operation does nothing then."""
    return eqn.ins[0] if eqn.ins[0].aval is eqn.outs[0].aval else None


def _reshape(defs: _Defs, eqn: Eqn) -> _Replacement:
    if eqn.ins[0].aval is eqn.outs[0].aval:
        return eqn.ins[0]
    inner = defs.get(eqn.ins[0])
    if inner is not None and isinstance(inner.prim, Reshape | Squeeze | ExpandDims):
        return Reshape(eqn.outs[0].aval.shape), inner.ins
    return None


def _broadcast(defs: _Defs, eqn: Eqn) -> Atom | None:
    assert isinstance(eqn.prim, BroadcastInDim)
    ordered = eqn.prim.dims == tuple(range(len(eqn.prim.dims)))
    return eqn.ins[0] if ordered and eqn.ins[0].aval is eqn.outs[0].aval else None


def _transpose(defs: _Defs, eqn: Eqn) -> _Replacement:
    assert isinstance(eqn.prim, Transpose)
    perm = eqn.prim.perm
    if perm == tuple(range(len(perm))):
        return eqn.ins[0]
    inner = _defined_by(defs, eqn.ins[0], Transpose)
    if inner is None:
        return None
    assert isinstance(inner.prim, Transpose)
    return Transpose(tuple([inner.prim.perm[k] for k in perm])), inner.ins


def _rev(defs: _Defs, eqn: Eqn) -> Atom | None:
    assert isinstance(eqn.prim, Rev)
    if all([at_least(1 - eqn.ins[0].aval.shape[k], 0) for k in eqn.prim.axes]):
        return eqn.ins[0]
    inner = defs.get(eqn.ins[0])
    return inner.ins[0] if inner is not None and inner.prim == eqn.prim else None


def _pad(defs: _Defs, eqn: Eqn) -> Atom | None:
    assert isinstance(eqn.prim, Pad)
    return eqn.ins[0] if not any((*eqn.prim.low, *eqn.prim.high, *eqn.prim.interior)) else None


def _concatenate(defs: _Defs, eqn: Eqn) -> _Replacement:
    assert isinstance(eqn.prim, Concatenate)
    full = tuple([a for a in eqn.ins if a.aval.shape[eqn.prim.axis] != 0])
    if len(full) == 1:
        return full[0]
    return (eqn.prim, full) if 0 < len(full) < len(eqn.ins) else None


_RULES: Final = MappingProxyType[type[Primitive], _Rule](
    {
        type(ADD): _add,
        type(SUB): _sub_or_div,
        type(MUL): _mul,
        type(DIV): _sub_or_div,
        type(NEG): _neg,
        type(NOT): _neg,
        type(AND): _bitwise,
        type(OR): _bitwise,
        type(XOR): _bitwise,
        type(MAX): _max_or_min_of_same,
        type(MIN): _max_or_min_of_same,
        type(SELECT_N): _select,
        IntegerPow: _power,
        ConvertElementType: _noop,
        ReduceSum: _noop,
        Reshape: _reshape,
        Squeeze: _reshape,
        ExpandDims: _reshape,
        BroadcastInDim: _broadcast,
        Transpose: _transpose,
        Rev: _rev,
        Slice: _noop,  # of full size: it starts at 0 with stride 1
        Index: _noop,
        Pad: _pad,
        Concatenate: _concatenate,
    }
)
