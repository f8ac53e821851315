"""Bodies that are batched although some examples do not take part: branches that they do not choose, steps after their
last one.

The results of these examples are dropped, and so are the derivatives of their results. That is not enough in reverse
mode: the cotangent 0 of a dropped result, times a slope that is nan or infinite, is nan. So the *operands* of the body
are selected, before a derivative is formed: see `replace_idle_operands`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from fxad import dtypes
from fxad.core.dce import dependent_values
from fxad.core.memo import by_value
from fxad.ir import Atom, Dims, Emit, Eqn, Flags, HigherOrder, Jaxpr, Linear, Lit, all_prims
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise.arithmetic import DIV, MUL
from fxad.primitives.elementwise.convert import STOP_GRADIENT
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.linearity import affine_operands
from fxad.primitives.reduce import ReduceMin, ReduceOr
from fxad.primitives.shape import Iota, ReduceSum, emit_broadcast


def replace_idle_operands(
    emit: Emit,
    body: Jaxpr,
    operands: Sequence[Atom],
    dims: Dims,
    active: Atom,
    *,
    zero_affine_operands: bool,
    some_active: bool,
) -> list[Atom]:
    """Return the operands of a body that is batched later, with those of idle examples replaced.

    `dims` are their mapped axes, `active` is a mask of the examples that take part; the others are idle. `body` takes
    one example. Operands that a slope may depend on are, in idle examples:

        operand                                     its value in idle examples
        shared by all examples                      as it is: a copy for each example may not fit in memory
        mapped                                      as it is, behind `stop_gradient`
        mapped, if `needs_active_operands(...)`     that of the first active example, behind `stop_gradient`
        mapped, inexact, `body` is affine in it     0, with `zero_affine_operands`: if the equation is part of a linear
                                                    program, it may be a tangent, in which a selection from 0 is linear

    `some_active`: at least one example is active. Otherwise, if none is, a shared operand is behind `stop_gradient`, or
    0.

    Law: the gradient is that of a loop over the examples.
    """
    slopes = slope_operands(body)
    from_active = needs_active_operands(body, operands, dims)
    affine = affine_operands(body) if zero_affine_operands else (False,) * len(dims)
    values_read = {a for eqn in body.eqns for a in eqn.ins}
    first_example = _first_example(emit, active) if from_active else None
    any_active = emit.one(ReduceOr((0,)), active) if from_active and not some_active else None
    replaced = list(operands)
    other: Atom
    for k, (v, a, d) in enumerate(zip(body.ins, operands, dims, strict=True)):
        if not (slopes[k] or (from_active and v in values_read and d is not None)) or isinstance(a, Lit):
            continue
        if d is None:
            if any_active is not None:
                other = Lit.zero(a.aval) if affine[k] else emit.one(STOP_GRADIENT, a)
                replaced[k] = emit_where(emit, emit_broadcast(emit, any_active, a.aval.shape, ()), a, other)
            continue
        if affine[k]:
            other = Lit.zero(a.aval)
        else:
            other = emit.one(STOP_GRADIENT, a) if a.aval.inexact else a
            if first_example is not None:
                other = _repeated_row(emit, other, d, first_example)
        replaced[k] = emit_where(emit, emit_broadcast(emit, active, a.aval.shape, (d,)), a, other)
    return replaced


def _first_example(emit: Emit, active: Atom) -> Atom:
    """Return a mask of the first active example. It is False everywhere if there is none."""
    index = emit.one(Iota(active.aval.shape, dtypes.int64, 0))
    none = Lit.of((1 << 63) - 1, index.aval)
    first = emit.one(ReduceMin((0,)), emit_where(emit, active, index, none))
    return emit.one(EQ, index, emit_broadcast(emit, first, index.aval.shape, ()))


def _repeated_row(emit: Emit, x: Atom, axis: int, marked: Atom) -> Atom:
    """Return an array of the same type in which each row along `axis` is the marked one; zeros if none is marked. A
    reduction does this for any number of rows, 0 too."""
    shape = x.aval.shape
    row = emit_where(emit, emit_broadcast(emit, marked, shape, (axis,)), x, Lit.of(0, x.aval))
    total = emit.one(ReduceSum((axis,)) if x.aval.inexact else ReduceOr((axis,)), row)
    return emit_broadcast(emit, total, shape, tuple([k for k in range(len(shape)) if k != axis]))


def replaces_idle_operands(body: Jaxpr, operands: Sequence[Atom], dims: Dims) -> bool:
    """Return True if `replace_idle_operands` replaces an operand."""
    slopes = [s and d is not None for s, d in zip(slope_operands(body), dims, strict=True)]
    return any(slopes) or needs_active_operands(body, operands, dims)


def must_not_run(body: Jaxpr, operands: Sequence[Atom], dims: Dims) -> bool:
    """Return True if a batched body must not run when no example is active.

        a body                        because without active examples
        that may not end              no operands are known for which it ends
        with a slope in a shared      a selection of the matrix would, under a further `vmap` where an example is
        matrix                        active for some indices only, be a copy for each index

    For a shared number or vector, a selection takes less time than the conditional.
    """
    pairs = zip(operands, dims, slope_operands(body), strict=True)
    return has_predicate_loop(body) or any([d is None and slope and a.aval.ndim > 1 for a, d, slope in pairs])


def needs_active_operands(body: Jaxpr, operands: Sequence[Atom], dims: Dims) -> bool:
    """Return True if idle examples must take the operands of an active one.

    They must if examples share an operand that has a slope: the cotangents of all examples are added there, so the
    slope must be finite in each. And they must if the body contains a loop that may not end for other operands.
    """
    shared = [d is None and not isinstance(a, Lit) for a, d in zip(operands, dims, strict=True)]
    return any([s and slope for s, slope in zip(shared, slope_operands(body), strict=True)]) or has_predicate_loop(body)


@by_value
def has_predicate_loop(body: Jaxpr) -> bool:
    """Return True if a body contains a loop that ends by a predicate."""
    return any([isinstance(p, HigherOrder) and p.layout.has_predicate for p in all_prims(body)])


@by_value
def slope_operands(body: Jaxpr) -> Flags:
    """Return flags that mark the inexact operands in which the derivative may depend on values, and so may be nan or
    infinite. For (x, y, z) -> (x * y, 2 * z) it is (True, True, False)."""
    varying = [eqn for eqn in body.eqns if not _has_constant_slope(eqn)]
    reads = {a for eqn in varying for a in eqn.ins if a.aval.inexact}
    return tuple([v.aval.inexact and not reads.isdisjoint(dependent_values(body.eqns, (v,))) for v in body.ins])


def _has_constant_slope(eqn: Eqn) -> bool:
    """Return True if the derivative of an equation in its inexact operands is the same for all values, and no factor in
    it is larger than 2. Larger ones could overflow in a chain of equations.

    The bound is a heuristic: programs have factors of 2, and no chain of the 128 that overflow float32.
    """
    prim = eqn.prim
    if isinstance(prim, Call):
        return not any(slope_operands(prim.body))
    if not any([a.aval.inexact for a in eqn.ins]) or not any([v.aval.inexact for v in eqn.outs]):
        return True
    if isinstance(prim, HigherOrder) or not isinstance(prim, Linear):
        return False
    literals = [a for a in eqn.ins if isinstance(a, Lit) and a.aval.inexact]
    if (prim is MUL and not all([_magnitude(a) <= 2 for a in literals])) or (
        prim is DIV and not all([_magnitude(a) >= 0.5 for a in literals])
    ):
        return False
    every = tuple([a.aval.inexact for a in eqn.ins])
    return prim.linear_in(every) or prim.linear_in(
        tuple([m and not isinstance(a, Lit) for m, a in zip(every, eqn.ins, strict=True)])
    )


def _magnitude(a: Lit) -> float:
    """Return the magnitude of a literal; nan if it is a size, which has no value yet."""
    return abs(cast("complex", a.value)) if a.size is None else math.nan
