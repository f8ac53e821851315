"""Bodies that are batched although some examples do not take part: branches that they do not choose, steps after their
last one.

The results of these examples are dropped, and so are the derivatives of their results. That is not enough in reverse
mode: the cotangent 0 of a dropped result, times a slope that is nan or infinite, is nan. So the *operands* of the body
are selected, before a derivative is formed: see `operands_of_others`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fxad import dtypes
from fxad.core.dce import dependent_values
from fxad.core.memo import by_value
from fxad.ir import Atom, Dims, Emit, Eqn, HigherOrder, Jaxpr, Linear, Lit, Mask, all_prims
from fxad.primitives.argmax import ArgMax
from fxad.primitives.control.call import Call
from fxad.primitives.dynamic_slicing import DynamicSlice
from fxad.primitives.elementwise.arithmetic import DIV
from fxad.primitives.elementwise.convert import STOP_GRADIENT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.linearity import affine_operands
from fxad.primitives.shape import emit_broadcast


def operands_of_others(
    emit: Emit, body: Jaxpr, operands: Sequence[Atom], dims: Dims, chosen: Atom, *, linear: bool
) -> list[Atom]:
    """Return the operands of a body that is batched later.

    `dims` are their mapped axes, `chosen` is a mask of the examples that take part. `body` takes one example. In the
    other examples, operands that a slope may depend on are:

        operand                                     its value in the other examples
        shared by all examples                      as it is: a copy for each example may not fit in memory
        mapped                                      as it is, behind `stop_gradient`
        mapped, if `reads_example(...)`             that of the first example that takes part, behind `stop_gradient`
        mapped, inexact, `body` is affine in it     0, with `linear`: it may be a tangent, and this is linear

    Law: the gradient is that of a loop over the examples, if an example takes part.
    """
    (size,) = chosen.aval.shape
    slopes = slope_operands(body)
    by_example = reads_example(body, operands, dims) and size > 0
    affine = affine_operands(body) if linear else (False,) * len(dims)
    read = {a for eqn in body.eqns for a in eqn.ins}
    example = emit.one(ArgMax(0, dtypes.int32 if size < 1 << 31 else dtypes.int64), chosen) if by_example else None
    replaced = list(operands)
    for k, (v, a, d) in enumerate(zip(body.ins, operands, dims, strict=True)):
        if d is None or not (slopes[k] or (by_example and v in read)):
            continue
        other: Atom = a
        if affine[k]:
            other = Lit.zero(a.aval)
        else:
            if example is not None:
                other = _row_of_example(emit, a, d, example)
            if a.aval.inexact:
                other = emit.one(STOP_GRADIENT, other)
            other = (
                emit_broadcast(emit, other, a.aval.shape, tuple(range(a.aval.ndim))) if example is not None else other
            )
        replaced[k] = emit_where(emit, emit_broadcast(emit, chosen, a.aval.shape, (d,)), a, other)
    return replaced


def _row_of_example(emit: Emit, x: Atom, axis: int, example: Atom) -> Atom:
    starts = [Lit.of(0, example.aval)] * x.aval.ndim
    sizes = [*x.aval.shape[:axis], 1, *x.aval.shape[axis + 1 :]]
    return emit.one(DynamicSlice(tuple(sizes)), x, *starts[:axis], example, *starts[axis + 1 :])


def replaces_operands(body: Jaxpr, operands: Sequence[Atom], dims: Dims) -> bool:
    """Return True if `operands_of_others` replaces an operand."""
    slopes = [s and d is not None for s, d in zip(slope_operands(body), dims, strict=True)]
    return any(slopes) or reads_example(body, operands, dims)


def reads_example(body: Jaxpr, operands: Sequence[Atom], dims: Dims) -> bool:
    """Return True if the other examples must take the operands of one that takes part.

    They must if examples share an operand that has a slope: the cotangents of all examples are added there, so the
    slope must be finite in each. And they must if the body contains a loop that may not end for other operands.
    """
    shared = [d is None and not isinstance(a, Lit) for a, d in zip(operands, dims, strict=True)]
    return any([s and slope for s, slope in zip(shared, slope_operands(body), strict=True)]) or may_not_end(body)


@by_value
def may_not_end(body: Jaxpr) -> bool:
    """Return True if a body contains a loop that ends by a predicate."""
    return any([isinstance(p, HigherOrder) and p.layout.has_predicate for p in all_prims(body)])


@by_value
def slope_operands(body: Jaxpr) -> Mask:
    """Return a mask of the inexact operands in which the derivative may depend on values, and so may be nan or
    infinite. For (x, y, z) -> (x * y, 2 * z) it is (True, True, False)."""
    varying = [eqn for eqn in body.eqns if not _has_constant_slope(eqn)]
    reads = {a for eqn in varying for a in eqn.ins if a.aval.inexact}
    return tuple([v.aval.inexact and not reads.isdisjoint(dependent_values(body.eqns, (v,))) for v in body.ins])


def _has_constant_slope(eqn: Eqn) -> bool:
    """Return True if the derivative of an equation in its inexact operands is the same for all values, and is no larger
    than 2. Larger ones could overflow in a chain of equations."""
    prim = eqn.prim
    if isinstance(prim, Call):
        return not any(slope_operands(prim.body))
    if not any([a.aval.inexact for a in eqn.ins]) or not any([v.aval.inexact for v in eqn.outs]):
        return True
    if isinstance(prim, HigherOrder) or not isinstance(prim, Linear):
        return False
    literals = [a for a in eqn.ins if isinstance(a, Lit) and a.aval.inexact]
    if not all([_is_moderate(a, least=0.5 if prim is DIV else 0.0) for a in literals]):
        return False
    every = tuple([a.aval.inexact for a in eqn.ins])
    return prim.linear_in(every) or prim.linear_in(
        tuple([m and not isinstance(a, Lit) for m, a in zip(every, eqn.ins, strict=True)])
    )


def _is_moderate(a: Lit, least: float) -> bool:
    return a.size is None and least <= abs(cast("complex", a.value)) <= 2
