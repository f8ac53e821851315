"""Estimates the time that kernels lose if XLA compiles them without fusion emitters, because they write in place.

XLA tells LLVM that the operands and the result of a kernel do not overlap, except for an operand in whose memory the
result is written. LLVM then checks at run time if they overlap, and runs its scalar loop. These kernels write in place:

- the last kernel that reads a temporary value of the size of its result, element by element; a carry of a loop, and a
  donated operand, are such values too;
- one whose result is written into a slice of an array, as the results that a loop stacks.

Decision: docs/adr/0076.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from fxad.core.constants import (
    IN_PLACE_CUMULATIVE_NS,
    IN_PLACE_DIVISION_NS,
    IN_PLACE_FUNCTION_NS,
    IN_PLACE_NS,
    IN_PLACE_OPERATION_NS,
    VECTOR_ELEMENTS,
)
from fxad.ir import Primitive
from fxad.primitives.cumulative import Cumulative, LinearRecurrence
from fxad.primitives.dynamic_slicing import DynamicUpdateSlice
from fxad.primitives.elementwise.arithmetic import Div, Rem
from fxad.primitives.elementwise.logic import Clz, PopulationCount, ShiftLeft, ShiftRightArithmetic, ShiftRightLogical
from fxad.primitives.elementwise.powers import Cbrt, Pow, Rsqrt, Sqrt
from fxad.primitives.elementwise.trigonometric import Atan2, Cos, Sin, Tan
from fxad.primitives.fusion import Kinds
from fxad.transforms.costs import REARRANGEMENTS, Fusion, compile_cost, elements
from fxad.units.kernels import Inlined, Kernels

# functions that XLA computes element by element in any kernel, and single instructions
_SCALAR: Final[Kinds] = (
    Sin, Cos, Tan, Pow, Atan2, Cbrt, Rem, ShiftLeft, ShiftRightLogical, ShiftRightArithmetic, Clz, PopulationCount,
)  # fmt: skip
_CUMULATIVE: Final[Kinds] = (Cumulative, LinearRecurrence)  # computed by loops


def microseconds_lost(program: Inlined, kernels: Kernels, donate: Sequence[int] = ()) -> float:
    """The estimated time that a run of the program loses. `donate` are the operands that results may overwrite.

    For example, `2.0 * x` is fused into the kernel of the `tanh`, the last kernel that reads x. If x is donated, the
    kernel writes its result in the place of x. Then each of the 4,096 elements takes 0.1 ns longer for the product, 4.0
    for `tanh`, and 0.2 to be read and written (`fxad.core.constants`):

    >>> import fxad as fx, fxad.numpy as fnp
    >>> program = Inlined(fx.trace(lambda x: fnp.tanh(2.0 * x), fx.Spec((4096,))).jaxpr, at_most=100)
    >>> round(microseconds_lost(program, Kernels(program), donate=(0,)), 1)
    17.6
    >>> microseconds_lost(program, Kernels(program))
    0.0

    Cost: linear in the operands of its equations.
    """
    avals = program.avals
    fusions = {kind: compile_cost(kind)[0] for kind in {type(prim) for prim, _, _ in program.ops}}
    own_ns = {kind: _nanoseconds(kind, fusion) for kind, fusion in fusions.items()}
    last_kernels = _last_kernels(program, kernels, fusions)
    into_slices = program.stacked.union(
        [ins[1] for prim, ins, _ in program.ops if isinstance(prim, DynamicUpdateSlice)]
    )
    nbytes = [aval.nbytes for aval in avals]
    # The operation at which the memory of a value is free: the kernel of the last operation that reads it may write
    # there. Infinite for memory of the caller. A value that is fused into its readers has no memory: they read the
    # values that it is computed from. It stands for those of its size, and for the first of these that is free: in the
    # example, `2.0 * x` stands for x.
    free_at: list[float] = [inf] * len(avals)
    for v in program.carries.union([program.operands[k] for k in donate]):
        free_at[v] = last_kernels[v]
    # The nanoseconds that an element of a value takes longer in each kernel into which the value is fused.
    fused_ns = [0.0] * len(avals)
    lost_ns = 0.0
    for at, (prim, ins, outs) in enumerate(program.ops):
        if fusions[type(prim)] in (Fusion.KERNEL, Fusion.REDUCTION):
            for v in outs:
                free_at[v] = last_kernels[v]
            if isinstance(prim, _CUMULATIVE) and (count := elements(avals[outs[0]])) >= VECTOR_ELEMENTS:
                lost_ns += program.runs[at] * count * IN_PLACE_CUMULATIVE_NS
            continue
        out = outs[0]  # all results have its size
        same_size = [a for a in set(ins) if nbytes[a] == nbytes[out]]
        element_ns = own_ns[type(prim)] + sum([fused_ns[a] for a in same_size])
        is_elementwise = not isinstance(prim, REARRANGEMENTS)
        operand_free_at = min([free_at[a] for a in same_size], default=inf) if is_elementwise else inf
        if out in kernels.written:
            is_in_place = operand_free_at <= at or out in into_slices
            if is_in_place and element_ns and (count := elements(avals[out])) >= VECTOR_ELEMENTS:
                lost_ns += program.runs[at] * count * (element_ns + IN_PLACE_NS)
            for v in outs:
                free_at[v] = last_kernels[v]
        if out not in kernels.written or out in kernels.recomputed:  # fused into its readers
            free_at[out], fused_ns[out] = operand_free_at, element_ns
    return lost_ns / 1e3


def _last_kernels(program: Inlined, kernels: Kernels, fusions: Mapping[type[Primitive], Fusion]) -> list[float]:
    """For each value, the last operation whose kernel reads it; infinite for results. If a value is fused into a
    kernel, the kernel reads its operands."""
    last: list[float] = [-1] * len(program.avals)
    fused_into: list[float] = [-1] * len(program.avals)  # the last kernel into which the value is fused
    for v in program.results:
        last[v] = inf
    for at in reversed(range(len(program.ops))):
        prim, ins, outs = program.ops[at]
        elementwise = fusions[type(prim)] not in (Fusion.KERNEL, Fusion.REDUCTION)
        read_at: float = at
        if elementwise and (outs[0] not in kernels.written or outs[0] in kernels.recomputed):
            read_at = max([at, *[fused_into[v] for v in outs]])
        for a in ins:
            last[a] = max(last[a], read_at)
            if elementwise or a not in kernels.written:
                fused_into[a] = max(fused_into[a], read_at)
    return last


def _nanoseconds(kind: type[Primitive], fusion: Fusion) -> float:
    """The nanoseconds that an element takes longer in a scalar loop."""
    if issubclass(kind, (Div, Sqrt, Rsqrt)):
        return IN_PLACE_DIVISION_NS
    if fusion is Fusion.EXPENSIVE and not issubclass(kind, _SCALAR):
        return IN_PLACE_FUNCTION_NS
    return 0.0 if fusion is Fusion.VIEW or issubclass(kind, REARRANGEMENTS) else IN_PLACE_OPERATION_NS
