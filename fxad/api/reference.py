"""`interpret`: run a program in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.errors import ArgumentError
from fxad.interpret import Observe, run
from fxad.program import Program, flatten_arguments


def interpret(program: Program[..., Any], *args: Any, observe: Observe | None = None, **kwargs: Any) -> Any:
    """Run a program equation by equation in NumPy: the reference semantics, without XLA.

    Results have the program's tree, with NumPy arrays for leaves. `observe(number, equation, results)` is called after
    every equation.

    Raises: what a call of the program raises for arguments that do not fit; ArgumentError for what is not a Program.
    """
    if not isinstance(program, Program):
        raise ArgumentError(f"interpret: takes a Program, got {program!r}", remedy="trace the function first")
    leaves = flatten_arguments(program, args, kwargs)
    outs = run(program.jaxpr, [np.asarray(x) for x in (*program.bound, *leaves)], observe)
    return program.out_tree.unflatten(outs)
