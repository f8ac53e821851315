"""Estimates XLA's compile time of a program.

XLA's CPU compiler compiles equal kernels once: 30 equal layers of a product and a tanh take 0.08 s, 30 layers of
different widths 1.15 s. Products and plain reductions call a library. Any other kernel takes `KERNEL_MS`, plus a time
for each operation in it. Special functions take most, because they are polynomials and series. XLA's passes over the
whole module take `EQUATION_MS` for each equation, equal or not, including calls. See the table in docs/adr/0024.

`fxad.units.kernels` finds the kernels.
"""

from __future__ import annotations

from typing import Final, final

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Jaxpr
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.support.constants import EQUATION_MS, PROGRAM_MS, UNFUSED_OPERATIONS
from fxad.transforms.fusion import Inlined
from fxad.units.kernels import Kernels, longest_stretch

MAX_READ: Final = 4096  # equations that the estimate reads
FIRST_READ: Final = 1024  # equations that `takes_at_least` reads first


def milliseconds(jaxpr: Jaxpr) -> float:
    """Return the estimated compile time of a program.

    Law:  equal kernels count once; adding different ones never lowers the estimate.
    Cost: linear in its first `MAX_READ` equations, with calls inlined: 5 us each. The other equations are ignored.
    """
    return _estimate(jaxpr, MAX_READ).milliseconds


def takes_at_least(jaxpr: Jaxpr, least: float) -> bool:
    """Return True if the estimate is at least `least` milliseconds. The first layers of a deep network often suffice
    to decide."""
    first = _estimate(jaxpr, FIRST_READ)
    return first.milliseconds >= least or (not first.complete and milliseconds(jaxpr) >= least)


@final
@dataclass(frozen=True, slots=True)
class _CompileTime:
    """Milliseconds to compile the program. `complete`: the program has no equations that were not read. `explodes`: it
    has a long stretch of operations on small arrays, outside of loops, that XLA would fuse into many kernels
    (`fxad.units.stretches`)."""

    milliseconds: float
    complete: bool
    explodes: bool


@by_value
def _estimate(jaxpr: Jaxpr, at_most: int) -> _CompileTime:
    """Return the estimated time to compile a program, from its first `at_most` equations, with calls inlined."""
    program = Inlined(jaxpr, at_most)
    kernels = Kernels(program)
    kernels_ms = sum([k.milliseconds for k in kernels.distinct.values()])
    stretch = longest_stretch(program)
    is_long = stretch.operations > UNFUSED_OPERATIONS and stretch.has_many_kernels(kernels)
    explodes = is_long and stretch.is_small and not program.loops  # a step of a loop would take far longer
    return _CompileTime(PROGRAM_MS + EQUATION_MS * program.seen + kernels_ms, program.seen < at_most, explodes)


def is_compiled_without_fusion(jaxpr: Jaxpr) -> bool:
    """Return True for a program that is compiled for a CPU without fusion. It has a long stretch of operations on
    small arrays, which XLA would fuse into many kernels that each compute most of it. See docs/adr/0092."""
    return _estimate(jaxpr, MAX_READ).explodes and not runs_on_devices(jaxpr)
