"""`comm`: what the devices of a program communicate."""

from __future__ import annotations

from typing import ParamSpec

from fxad.api.lift import check_program
from fxad.tracing.program import Program
from fxad.transforms.spmd.communication import Communication, communication

# A parameter `Program[..., object]` would be the context of a lambda in `f(trace(lambda ...))`, which mypy cannot infer.
P = ParamSpec("P")


def comm(program: Program[P, object]) -> Communication:
    """Return the collectives of a program: for each kind and its axes, the runs and the bytes of its operands on one
    device. Loops multiply; figures that depend on values are marked as not known. Its `str` is a table.

    Raises: ArgumentError for a value that is not a Program.
    """
    check_program("comm", program)
    return communication(program.jaxpr)
