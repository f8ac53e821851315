"""`comm`: what the devices of a program communicate."""

from __future__ import annotations

from fxad.errors import ArgumentError, described
from fxad.tracing.program import Program
from fxad.transforms.spmd.communication import Communication, communication


def comm(program: Program[..., object]) -> Communication:
    """Return the collectives of a program: for each kind and its axes, the runs and the bytes of its operands on one
    device. Loops multiply; figures that depend on values are marked as not known. Its `str` is a table.

    Raises: ArgumentError for a value that is not a Program.
    """
    if not isinstance(program, Program):
        raise ArgumentError(
            f"comm: takes a Program, got {described(program)}: {program!r:.60}",
            remedy="trace the function first: comm(trace(f, *examples))",
        )
    return communication(program.jaxpr)
