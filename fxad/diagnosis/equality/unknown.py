"""Primitives of which nothing is known, on symbolic values: random functions of what they depend on.

Equal operands give equal results, so two programs that apply the same function to equal values are found equal. The
less a function depends on (an element, a row, a matrix), the more programs are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from fxad import dtypes
from fxad.diagnosis.equality.assumptions import READS_BITS
from fxad.diagnosis.equality.bits import of_bit
from fxad.diagnosis.equality.domain import ExactValue, ProofDomain, Symbolic, kind_of
from fxad.diagnosis.in_dtype import OF_DTYPES
from fxad.dtypes import DType
from fxad.ir import Avals, Primitive
from fxad.primitives.argmax import ArgMax, ArgMin
from fxad.primitives.cumulative import Cumulative
from fxad.primitives.elementwise import ELEMENTWISE
from fxad.primitives.elementwise.bessel import BESSEL
from fxad.primitives.elementwise.beta import BETA
from fxad.primitives.elementwise.family import Binary, Compare, Unary
from fxad.primitives.elementwise.gamma import GAMMA
from fxad.primitives.families import of_family
from fxad.primitives.fft import Fft
from fxad.primitives.linalg.family import LinearSystem, Matrixwise
from fxad.primitives.random import Threefry2x32
from fxad.primitives.reduce import Reduction
from fxad.primitives.shape import ReduceSum
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK


def unknown_results(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue]:
    """Return random functions of the operands: of elements, of rows or matrices, or of all operands together. Equal
    names are equal functions, so the name has what the function depends on beside its operands."""
    if domain.interpreted and type(prim) in OF_DTYPES and any([a.inexact for a in ins]):
        domain.assumptions.add(READS_BITS)
    if is_elementwise(prim, ins, outs):
        return _unknown_of_elements(domain, prim, args, ins, outs)
    axes_of = of_family(ROWS, type(prim))
    axes = None if axes_of is None else axes_of(prim, ins)
    lifted = [domain.lift(x) for x in args]
    if axes is None or not all([a.ndim >= ins[0].ndim - len(axes) for a in outs]):
        return _unknown_of_all(domain, prim, lifted, ins, outs)
    return _unknown_of_rows(domain, prim, lifted, ins, outs, axes)


def _unknown_of_elements(
    domain: ProofDomain, prim: Primitive, args: list[ExactValue], ins: Avals, outs: Avals
) -> list[ExactValue]:
    """Return a function for each result, which is applied to the elements at one place of all operands."""
    if domain.interpreted and len(outs) == 1 and not ins[0].inexact:
        known = of_bit(domain, prim, args, ins)
        if known is not None:
            return [known]
    name = domain.named(prim) + _types_in_name(domain, prim, ins)
    lifted = [domain.lift(x) for x in args]
    made = [domain.function(f"{name} {k}", lifted, *kind_of(a.dtype)) for k, a in enumerate(outs)]
    if domain.interpreted and len(lifted) == len(made) == 1:
        return [_with_value_at_zero(domain, prim, lifted[0], made[0], ins[0].dtype)]
    return [*made]


def _unknown_of_all(
    domain: ProofDomain, prim: Primitive, lifted: list[Symbolic], ins: Avals, outs: Avals
) -> list[ExactValue]:
    """Return a function for each result, of all elements of all operands."""
    name = domain.named(prim) + _types_in_name(domain, prim, ins) + str([a.shape for a in ins])
    elements = np.concatenate([np.zeros(0, np.int64), *[x.residues.reshape(-1) for x in lifted]])
    return [domain.function_of_rows(f"{name} {k}", elements, a.shape, *kind_of(a.dtype)) for k, a in enumerate(outs)]


def _unknown_of_rows(
    domain: ProofDomain, prim: Primitive, lifted: list[Symbolic], ins: Avals, outs: Avals, axes: tuple[int, ...]
) -> list[ExactValue]:
    """Return a function for each result, which is applied to one row, or array along `axes`, of each operand. The
    other axes of the first operand are the leading axes of rows and results. An operand with fewer axes than the first
    has rows along all but those.

    The last axis of residues, r, is no axis of the operand. For a sort of x[a, b] along axis 0:

        residues of x    [a, b, r]
        moved            [b, a, r]    rows: [b, a * r]
        of_rows          [b, a, r]    results of each row: [a]
        the result       [a, b, r]    with the axis where x has it
    """
    lead = [n for a, n in enumerate(ins[0].shape) if a not in axes]
    types = _types_in_name(domain, prim, ins)
    if domain.interpreted:
        name = domain.named(prim, ("axis", "axes")) + types  # rows do not know where they lie
    else:
        # a sum takes its terms in an order that depends on the shape
        name = domain.named(prim) + types + str([a.shape for a in ins])
    parts = []
    for x in lifted:
        along = axes if len(x.shape) == len(lifted[0].shape) else tuple(range(len(lead), len(x.shape)))
        name += str([x.shape[a] for a in along])
        moved = np.moveaxis(x.residues, along, range(-1 - len(along), -1))
        parts.append(moved.reshape(*lead, prod(moved.shape[len(lead) :])))
    rows = np.concatenate(parts, -1)
    results: list[ExactValue] = []
    for k, aval in enumerate(outs):
        inner = aval.ndim - len(lead)
        # a result with as many axes of its own has them where the operand has them, another one behind the leading ones
        at = axes if inner == len(axes) else tuple(range(len(lead), aval.ndim))
        of_rows = domain.function_of_rows(f"{name} {k}", rows, [aval.shape[a] for a in at], *kind_of(aval.dtype))
        results.append(of_rows.like(np.moveaxis(of_rows.residues, range(-1 - inner, -1), at), of_rows.bit))
    return results


def _types_in_name(domain: ProofDomain, prim: Primitive, ins: Avals) -> str:
    """Return the dtypes of operands that a function depends on, beyond their values: integers have a width, and some
    functions are about the floats of a dtype."""
    every = type(prim) in OF_DTYPES or not domain.interpreted
    return "".join([f" {a.dtype}" for a in ins if every or not a.inexact])


def is_elementwise(prim: Primitive, ins: Avals, outs: Avals) -> bool:
    """Return True if each element of a result depends on those of the operands at its place only."""
    known = isinstance(prim, Unary | Binary | Compare) or type(prim) in _ELEMENTWISE
    return known and len({a.shape for a in (*ins, *outs)}) == 1


_ELEMENTWISE: Final = frozenset((*ELEMENTWISE, *GAMMA, *BESSEL, *BETA, Threefry2x32))


def _one_axis(prim: Any, ins: Avals) -> tuple[int, ...]:
    return (prim.axis % ins[0].ndim,)


def _matrices(prim: Any, ins: Avals) -> tuple[int, ...] | None:
    """Return the axes of the first operand, a matrix. Other operands may be vectors: of pivots, of right-hand sides."""
    lead = ins[0].shape[:-2]
    if ins[0].ndim < 2:  # the diagonals of one matrix
        return None
    return (ins[0].ndim - 2, ins[0].ndim - 1) if all([a.shape[: len(lead)] == lead for a in ins]) else None


# the axes of a primitive that is a function of rows, or of arrays along several axes; all other axes are batch axes
ROWS: Final[Mapping[type[Primitive], Callable[[Any, Avals], tuple[int, ...] | None]]] = MappingProxyType(
    {
        Sort: _one_axis,
        ArgMax: _one_axis,
        ArgMin: _one_axis,
        Cumulative: _one_axis,
        TopK: lambda _, ins: (ins[0].ndim - 1,),
        Reduction: lambda prim, _: prim.axes,
        ReduceSum: lambda prim, _: prim.axes,
        Matrixwise: _matrices,
        LinearSystem: _matrices,
        Fft: lambda prim, ins: tuple(range(ins[0].ndim - len(prim.lengths), ins[0].ndim)),
    }
)


def function_with_value_at_zero(domain: ProofDomain, prim: Primitive, x: Symbolic) -> Symbolic:
    """Return a function of inexact values of which nothing is known but its value at 0."""
    y = domain.function(f"{domain.named(prim)} 0", [x], x.is_complex)
    return _with_value_at_zero(domain, prim, x, y, dtypes.complex128 if x.is_complex else dtypes.float64)


def _with_value_at_zero(domain: ProofDomain, prim: Primitive, x: Symbolic, y: Symbolic, dtype: DType) -> Symbolic:
    """Return `y`, with the value of the function at 0 where `x` is 0 whatever the operands are: padding holds zeros."""
    zero = (x.residues == 0).all(-1, keepdims=True)
    if not zero.any():
        return y
    value = domain.lift(np.asarray(prim.impl(np.zeros((), dtype))[0]))
    if value.is_complex != y.is_complex:
        value = domain.complex(*domain.parts(value))
    return y.like(np.where(zero, value.residues, y.residues), y.bit)
