"""Reductions by a traced body, and windows as features.

A body that is a single addition, maximum, ... of its two operands has a primitive of its own, which is selected here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Final

from fxad.errors import ParameterError
from fxad.ir import Atom, Atoms, Aval, Emit, Jaxpr, Lit, Primitive, Zero
from fxad.operations.arguments import with_atoms
from fxad.primitives import elementwise as ew
from fxad.primitives.axes import replace_entry
from fxad.primitives.fold import Reduce, ReduceWindow
from fxad.primitives.reduce import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceXor, extreme_value
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.reduce_window import ReduceWindowMax, ReduceWindowMin, ReduceWindowProd, ReduceWindowSum
from fxad.primitives.shape import ExpandDims, ReduceSum, Transpose, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Concatenate, Slice
from fxad.primitives.sliding import SlidingWindow, dilated_size

MAX_PATCH: Final = 1 << 16  # places of a window: one slice for each

_AXES: Final[Mapping[Primitive, Callable[[tuple[int, ...]], Primitive]]] = MappingProxyType(
    {
        ew.ADD: ReduceSum,
        ew.MUL: ReduceProd,
        ew.MAX: ReduceMax,
        ew.MIN: ReduceMin,
        ew.AND: ReduceAnd,
        ew.OR: ReduceOr,
        ew.XOR: ReduceXor,
    }
)
_WINDOWS: Final[Mapping[Primitive, type[ReduceWindowSum | ReduceWindowProd | ReduceWindowMax | ReduceWindowMin]]] = (
    MappingProxyType(
        {ew.ADD: ReduceWindowSum, ew.MUL: ReduceWindowProd, ew.MAX: ReduceWindowMax, ew.MIN: ReduceWindowMin}
    )
)


def _single_primitive(body: Jaxpr) -> Primitive | None:
    """Return the primitive of a body that is one primitive of its two operands, in either order."""
    if len(body.ins) != 2 or len(body.eqns) != 1:
        return None
    (eqn,) = body.eqns
    return eqn.prim if {*eqn.ins} == {*body.ins} and body.outs == eqn.outs else None


def _identity_element(prim: Primitive, x: Aval) -> Lit | None:
    """Return the identity element of a sum, product, maximum or minimum."""
    scalar = x.with_shape(())
    match prim:
        case ew.Add():
            return Zero(scalar).instantiate()
        case ew.Mul():
            return Lit.of(1, scalar)
        case ew.Max() | ew.Min():
            return extreme_value(x.dtype, -1 if prim is ew.MAX else 1)
        case _:
            return None


def _combine_initial(emit: Emit, prim: Primitive, y: Atom, init: Atom) -> Atom:
    """Return `y` combined with an initial value, if that can change it."""
    if init is _identity_element(prim, y.aval):
        return y
    return emit.one(prim, emit_broadcast(emit, init, y.aval.shape, ()), y)


def _initial_values(atoms: list[Atom], lits: tuple[Lit | None, ...]) -> tuple[list[Atom], list[Atom]]:
    """Return the operands and their initial values: static ones, or the operands that follow."""
    n = len(lits)
    return atoms[:n], with_atoms(lits, atoms[n:])


def reduce(emit: Emit, *args: *tuple[*tuple[Atom, ...], Jaxpr, tuple[int, ...], tuple[Lit | None, ...]]) -> Atoms:
    """Reduce by a body. Arguments: operands, dynamic initial values, body, axes, static initial values (or None)."""
    *operands, body, axes, static_inits = args
    xs, inits = _initial_values(operands, static_inits)
    prim = _single_primitive(body)
    if prim is None or prim not in _AXES:
        return emit(Reduce(body, axes), *xs, *inits)
    y = emit.one(_AXES[prim](axes), xs[0]) if axes else xs[0]
    return (_combine_initial(emit, prim, y, inits[0]),)


def reduce_window(emit: Emit, *args: *tuple[*tuple[Atom, ...], Jaxpr, SlidingWindow, tuple[Lit | None, ...]]) -> Atoms:
    """Reduce windows. Arguments: operands, dynamic initial values, body, windows, static initial values (or None)."""
    *operands, body, sliding, static_inits = args
    xs, inits = _initial_values(operands, static_inits)
    prim = _single_primitive(body)
    # a hole that holds the initial value counts in a sum, and not in a maximum
    if (
        prim is not None
        and prim in _WINDOWS
        and (prim in (ew.MAX, ew.MIN) or inits[0] is _identity_element(prim, xs[0].aval))
    ):
        y = emit.one(_WINDOWS[prim](*sliding.values), xs[0])
        return (_combine_initial(emit, prim, y, inits[0]),)
    return emit(ReduceWindow(body, *sliding.values), *xs, *inits)


def patches(
    emit: Emit,
    x: Atom,
    sliding: SlidingWindow,
    lhs_spec: tuple[int, ...],
    out_spec: tuple[int, ...],
    order: tuple[int, ...],
) -> Atoms:
    """Return the elements of each window as features: feature by feature, and in a window by axes in `order`.

    Composed of slices, without arithmetic: an infinity at one place of a window does not affect the others.
    """
    counts = sliding.result_shape("conv_general_dilated_patches: lhs", x.aval)
    padded = emit.one(sliding.pad(), x, Zero(x.aval.with_shape(())).instantiate())
    f = lhs_spec[1]
    n = math.prod([sliding.window[a] for a in order])
    if n > MAX_PATCH:
        raise ParameterError(
            f"conv_general_dilated_patches: a window has {n:,} places", remedy=f"give one of at most {MAX_PATCH:,}"
        )
    rows = []
    for place in product(*[range(sliding.window[a]) for a in order]):
        place_of = dict(zip(order, place, strict=True))
        offset = [place_of.get(a, 0) for a in range(len(counts))]
        first = [k * r if m else 0 for k, r, m in zip(offset, sliding.window_dilation, counts, strict=True)]
        limits = [a + dilated_size(m, s) for a, m, s in zip(first, counts, sliding.strides, strict=True)]
        piece = emit.one(Slice(tuple(first), tuple(limits), sliding.strides), padded)
        rows.append(emit.one(ExpandDims((f + 1,)), piece))
    features = rows[0] if len(rows) == 1 else emit.one(Concatenate(f + 1), *rows)
    y = emit_reshape(emit, features, replace_entry(counts, f, counts[f] * len(rows)))
    perm = tuple([lhs_spec[out_spec.index(a)] for a in range(len(out_spec))])
    return (y if perm == tuple(range(len(perm))) else emit.one(Transpose(perm), y),)
