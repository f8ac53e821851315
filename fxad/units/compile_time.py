"""Estimates XLA's compile time of a program, and chooses XLA's effort.

XLA's CPU compiler compiles equal kernels once: 30 equal layers of a product and a tanh take 0.08 s, 30 layers of
different widths 1.15 s. Products and plain reductions call a library. Any other kernel takes `KERNEL_MS`, plus a time
for each operation in it. Special functions take most, because they are polynomials and series. XLA's passes over the
whole module take `EQUATION_MS` for each equation, equal or not, including calls. See the table in docs/adr/0024.

`fxad.units.kernels` finds the kernels. Decision on the effort: docs/adr/0076.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

from fxad.core.constants import (
    EQUATION_MS,
    KERNEL_MS,
    LIBRARY_MS,
    LOST_IN_PLACE,
    PROGRAM_MS,
    REPEATED_KERNELS,
    UNFUSED_OPERATIONS,
)
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.dtypes import FLOAT8
from fxad.ir import HigherOrder, Jaxpr
from fxad.primitives.collectives import Extremum
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.primitives.cumulative import CumExtremum
from fxad.primitives.dynamic_slicing import DynamicSlice
from fxad.primitives.elementwise.convert import ConvertElementType, StopGradient
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.fusion import Kinds
from fxad.primitives.gather_scatter import Gather, ScatterExtremum
from fxad.primitives.index import Index
from fxad.primitives.reduce import ExtremumReduction
from fxad.primitives.shape import BroadcastInDim, ExpandDims, Reshape, Squeeze, Transpose
from fxad.primitives.slicing import Slice
from fxad.primitives.sort import Sort
from fxad.primitives.top_k import TopK
from fxad.transforms.costs import Fusion, time_of
from fxad.units.in_place import microseconds_lost
from fxad.units.kernels import Inlined, Kernels, Value, longest_stretch

# less: level 1 without fusion emitters; level 1: with them; full: XLA's defaults; unfused: without the fusion pass
XlaEffort: TypeAlias = Literal["less", "level 1", "full", "unfused"]
MAX_READ: Final = 4096  # equations that the estimate reads
FIRST_READ: Final = 1024  # equations that `takes_at_least` reads first

# With less effort, kernels round `a * b + c` in different ways. An element that one kernel computes again need not be
# equal to the maximum that another one has found. A gradient, which compares them, then loses the element.
_EXTREMA: Final[Kinds] = (ExtremumReduction, CumExtremum, ScatterExtremum, Extremum, Sort, TopK)
_REARRANGED: Final[Kinds] = (
    BroadcastInDim, Reshape, Squeeze, ExpandDims, Transpose, Gather, Slice, Index, DynamicSlice, StopGradient,
    ConvertElementType,
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- estimates


def milliseconds(jaxpr: Jaxpr) -> float:
    """The estimated compile time of a program.

    Law:  equal kernels count once; adding different ones never lowers the estimate.
    Cost: linear in its first `MAX_READ` equations, with calls inlined: 5 us each. The other equations are ignored.
    """
    return _estimate(jaxpr, MAX_READ).milliseconds


def takes_at_least(jaxpr: Jaxpr, least: float) -> bool:
    """Returns True if the estimate is at least `least` milliseconds. The first layers of a deep network often suffice
    to decide."""
    first = _estimate(jaxpr, FIRST_READ)
    return first.milliseconds >= least or (not first.complete and milliseconds(jaxpr) >= least)


@final
@dataclass(frozen=True, slots=True)
class _Estimate:
    """Milliseconds to compile the program; those of its distinct kernels; those of all kernels, if each were compiled.
    Plain reductions, which call a library, are in the first figure only. `complete`: the program has no equations that
    were not read. `less_exact`: it would be less exact with less effort (`_is_less_exact`). `open_ended`: it has a loop
    whose number of iterations a predicate determines. `explodes`: it has a long stretch of operations on small arrays,
    outside of loops, that XLA would fuse into many kernels (`fxad.units.stretches`)."""

    milliseconds: float
    distinct_ms: float
    all_ms: float
    complete: bool
    less_exact: bool
    open_ended: bool
    explodes: bool


@by_value
def _estimate(jaxpr: Jaxpr, at_most: int) -> _Estimate:
    """The estimate for the first `at_most` equations."""
    program = Inlined(jaxpr, at_most)
    kernels = Kernels(program)
    own = [
        (KERNEL_MS + k.milliseconds, kernels.uses[n])
        for n, k in kernels.distinct.items()
        if k.fusion is not Fusion.REDUCTION
    ]
    library = sum([LIBRARY_MS + k.milliseconds for k in kernels.distinct.values() if k.fusion is Fusion.REDUCTION])
    distinct = sum([ms for ms, _ in own])
    whole = PROGRAM_MS + EQUATION_MS * program.seen + library + distinct
    open_ended = any([isinstance(prim, HigherOrder) and prim.layout.has_predicate for prim, _, _ in program.ops])
    all_ms = sum([ms * uses for ms, uses in own])
    stretch = longest_stretch(program)
    runs_once = not open_ended and max(program.runs, default=1) <= 1  # a step of a loop would take far longer
    is_long = stretch.operations > UNFUSED_OPERATIONS and stretch.has_many_kernels(kernels)
    explodes = is_long and stretch.is_small and runs_once
    return _Estimate(whole, distinct, all_ms, program.seen < at_most, _is_less_exact(program), open_ended, explodes)


def _is_less_exact(program: Inlined) -> bool:
    """Returns True if less effort makes a program less exact: by its primitives, by its numbers of 8 bits (496 is -0.0
    in float8_e4m3fn, and -1e-6 is nan in the dtypes without a negative zero), or by comparisons with an extremum."""
    if any([prim.needs_full_effort for prim, _, _ in program.ops]):
        return True
    computed = {program.avals[v].dtype for _, _, outs in program.ops for v in outs}
    return not FLOAT8.isdisjoint(computed) or _compares_extrema(program)


def _compares_extrema(program: Inlined) -> bool:
    """Returns True if a program compares values with a maximum or a minimum, as gradients of those do.

    A comparison with a literal does not count. An extremum that arithmetic has changed, or that is an operand of the
    body of a loop, is not found.
    """
    literals = set(program.literals.values())
    extrema: set[Value] = set()
    for prim, ins, outs in program.ops:
        if isinstance(prim, _EXTREMA) or (isinstance(prim, _REARRANGED) and ins[0] in extrema):
            extrema.update(outs)
        elif isinstance(prim, Compare) and not extrema.isdisjoint(ins) and literals.isdisjoint(ins):
            return True
    return False


# ------------------------------------------------------------------------------------------------ the compiler's effort


def less_effort_pays(jaxpr: Jaxpr) -> bool:
    """Returns True if less effort saves compile time, and computes as exactly.

    That is not so for a program

    - with many equal kernels, or so many equations that this is not known;
    - with functions that XLA computes less exactly with less effort, or comparisons with an extremum;
    - with a loop that may run for long: each iteration with few elements takes up to a seventh longer;
    - with a long stretch of operations on small arrays, which is compiled without fusion.
    """
    estimate = _estimate(jaxpr, MAX_READ)
    repeats = estimate.all_ms > REPEATED_KERNELS * estimate.distinct_ms
    return not (repeats or not estimate.complete or estimate.less_exact or estimate.open_ended or estimate.explodes)


def wants_full_effort(jaxpr: Jaxpr, donate: tuple[int, ...] = ()) -> bool:
    """Returns True if less effort does not pay, or if kernels that write in place would lose more than `LOST_IN_PLACE`
    of the run time (`fxad.units.in_place`). `donate` are the operands that results may overwrite."""
    return not less_effort_pays(jaxpr) or _microseconds_lost(jaxpr, donate) > LOST_IN_PLACE * time_of(jaxpr)


@by_value
def _microseconds_lost(jaxpr: Jaxpr, donate: tuple[int, ...]) -> float:
    program = Inlined(jaxpr, MAX_READ)
    return microseconds_lost(program, Kernels(program), donate)


def effort(jaxpr: Jaxpr, donate: tuple[int, ...] = ()) -> XlaEffort:
    """XLA's effort to compile a program for a CPU, if the options leave it to fxad.

    It is "less" unless the program wants full effort. Such a program gets "unfused" if it has a long stretch of
    operations on small arrays, and "level 1" if it runs on several devices and is exact then.
    """
    if not wants_full_effort(jaxpr, donate):
        return "less"
    estimate = _estimate(jaxpr, MAX_READ)
    if estimate.explodes and not runs_on_devices(jaxpr):
        return "unfused"
    exact = estimate.complete and not estimate.less_exact
    return "level 1" if exact and runs_on_devices(jaxpr) else "full"
