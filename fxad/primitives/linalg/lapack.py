"""Calls of LAPACK's routines, on each platform.

A primitive calls a routine by its name in LAPACK, with its operands, results and options. On GPUs a row of `ON_CUDA`
computes the same results with cuSOLVER, cuSPARSE or XLA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxad.ir import Avals, Hlo, HloValue, HloValues
from fxad.primitives.linalg.calls import NO_OPTIONS, library_call
from fxad.primitives.linalg.cusolver import ON_CUDA


def char_option(letter: str) -> str:
    """Return an option of LAPACK: a letter, as `ui8`."""
    return f"{ord(letter)} : ui8"


def lapack_call(
    hlo: Hlo,
    routine: str,
    args: HloValues,
    ins: Avals,
    outs: Avals,
    options: Mapping[str, str] = NO_OPTIONS,
    *,
    overwrite: Sequence[tuple[int, int]] = (),
) -> tuple[HloValue, ...]:
    """Call `routine` for the dtype of the first operand, for a whole batch at once; see `library_call`.

    A routine that a platform does not have is refused when the module is compiled.
    """
    if hlo.platform == "cuda" and (row := ON_CUDA.get(routine)):
        return row(hlo, args, ins, outs, options)
    return library_call(hlo, routine, args, ins, outs, options, overwrite=overwrite)
