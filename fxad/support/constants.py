"""Constants that were measured on one machine: run time, compile time, and the cost rules that rest on them.

    python -m benchmarks.constants      measures them again, and prints each beside its value here

Measured on 2 CPU cores (x86_64) of 2026 with jaxlib 0.10.2. The rules compare estimates with thresholds, so a factor of
two in a constant seldom changes a decision. Limits of caches and of searches, which are choices, are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# ------------------------------------------------------------------------------------------------------------ run time

FLOPS_PER_MICROSECOND: Final = 5e4
BYTES_PER_MICROSECOND: Final = 4e3  # written
HOST_MICROSECONDS: Final = 100.0  # a call of the host: a step of a loop with `io_callback`, less one without

# --------------------------------------------------------------- compile time of XLA, in milliseconds of processor time

PROGRAM_MS: Final = 10.0  # an empty program
EQUATION_MS: Final = 0.15  # any equation, also a call
KERNEL_MS: Final = 25.0  # a distinct kernel
LIBRARY_MS: Final = 8.0  # a product or a plain reduction: a call of a library function
OPERATION_MS: Final = 0.5  # an operation in a kernel
FUNCTION_MS: Final = 1.2  # a function that is evaluated as a polynomial
# in addition to `KERNEL_MS`: primitives that are expanded into many operations or into loops, by class or
# by family
EXPANDED_MS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "Lgamma": 22.0, "Digamma": 22.0, "Erfc": 16.0, "ErfInv": 16.0, "BesselI0e": 24.0, "BesselI1e": 24.0,
        "Polygamma": 150.0, "Zeta": 300.0, "Threefry2x32": 12.0, "Incomplete": 500.0,
        "RegularizedIncompleteBeta": 1200.0, "SortLike": 50.0, "TopK": 20.0, "Cumulative": 170.0, "ScatterFamily": 0.0,
        "Softmax": 12.0, "LogSoftmax": 12.0,
    }
)  # fmt: skip

MAX_FUSED: Final = 512  # operations of a kernel, each counted as often as it is computed
REDUCED_WITH: Final = 4  # operations that are fused into a reduction of their result

# XLA's time for connected fusible operations grows faster than their number. More than `UNFUSED_OPERATIONS` of them, on
# arrays of `SMALL_BYTES`, are compiled without fusion: their kernels are equal then, and take at most twice as long. A
# program with more than `STRETCH_OPERATIONS` is cut into units, of at most `PIECE_OPERATIONS` if its arrays are larger.
# Both if fusion would leave a kernel for each `FEW_IN_KERNEL` operations. `python -m benchmarks.planning stretches` and
# docs/adr/0092.
UNFUSED_OPERATIONS: Final = 500
FEW_IN_KERNEL: Final = 32
STRETCH_OPERATIONS: Final = 2000
PIECE_OPERATIONS: Final = 500
MOST_INLINED: Final = 1 << 18  # equations of a program that is cut
SMALL_BYTES: Final = 1 << 13

# ----------------------------------------------------------------------- compile costs of outlining, in equations

PROGRAM_EQUATIONS: Final = 10  # of a compilation
BODY_EQUATIONS: Final = 5.0  # of a body
CALL_EQUATIONS: Final = 1.0  # of a call
VALUE_EQUATIONS: Final = 0.1  # of a value that a call takes or returns
VALUE_BYTES: Final = 4096.0  # bytes that take as long to move as one more operand or result of a call

# ------------------------------------------------------------------------------------------- thresholds of outlining

WASTE: Final = 0.02  # the part of the run time that may compute unused values
OVERLAP: Final = 0.6  # the part of the equations of a body that an incomplete use must contain
LONG_PROGRAM: Final = 160  # equations; a shorter program is differentiated faster than it is outlined

# ------------------------------------------------------------------------------------------------- thresholds of units

UNIT_MICROSECONDS: Final = 400.0  # a call of a unit costs 8 at most, and estimates are up to 3 times too high
GROUP_MICROSECONDS: Final = 700.0  # a group of steps: a chain of short units costs more than its calls
BORDER_TIMES: Final = 8.0  # the least run time, relative to the time to read operands and write results
SAVED_EQUATIONS: Final = 24
SAVED_MS: Final = 500.0
CERTAIN_MS: Final = 2000.0  # a saving that is certain, whatever part of the equations is compiled
COMPILED_PART: Final = 0.6  # of the equations of a program, at most, in its units
MAX_FORMULA: Final = 24  # equations by which a unit recomputes a value
MAX_READERS: Final = 2  # units that recompute a value
MAX_CONSTANT_BYTES: Final = 1 << 12  # of a literal that a plan stores; a unit computes a larger one

# ------------------------------------------------------------------------------------------------------------- memory

# A segment computes at most `SEGMENT_TIMES` the bytes that are live where it begins, or `SEGMENT_BYTES` if that is
# more. Smaller segments need less memory, but add conditionals and prevent some fusion. See docs/adr/0042.
SEGMENT_TIMES: Final = 4
SEGMENT_BYTES: Final = 1 << 16
WAITING_BYTES: Final = 1 << 16  # equations between units run at once if that frees so many bytes
EXECUTABLE_BYTES: Final = 112 * 2**10  # resident memory of an executable on the CPU, however small
CHARACTER_BYTES: Final = 12  # resident memory of an executable on the CPU, for each character of its StableHLO
CALL_BYTES: Final = 6 * 2**10  # what a jitted function has for types of arguments, beside the executable
PLANNED_EQUATION_BYTES: Final = 4 * 2**10  # an equation with its memo: the outlined program and the plan

# ------------------------------------------------------------------------------------------------- forms of primitives

RADIX_SORT_SIZE: Final = 4096  # from this size on, a faster sort is worth 30 ms of compile time
WINDOW_SIZE: Final = 16  # XLA's window reduction is fastest up to this size; XLA decomposes longer ones slowly
ROW_SIZE: Final = 256  # a row with fewer elements does not pay for the overhead of a step of a loop
UNSPLIT_STEPS: Final = 64  # an axis with fewer steps is not split
UNROLLED_WINDOW: Final = 64  # for larger windows, an adjoint scatters element by element
# up to so many elements for each element of the updates, a scatter of bfloat16 and float8_e4m3 is as fast in float32;
# one of float16 takes up to 1.3 times, of float8_e5m2 up to twice as long
ELEMENTS_PER_UPDATE: Final = 16
