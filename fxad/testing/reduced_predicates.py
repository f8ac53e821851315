"""Predicates for `fx.reduce_program`: the common reasons for which a program fails.

They are functions at the top of a module, so `in_child` and `as_test` take them.
"""

from __future__ import annotations

import re

import numpy as np

from fxad import dtypes
from fxad.api.explain_nan import NanOrigin, explain_nan
from fxad.core.interpreter import run
from fxad.core.trees import tree
from fxad.errors import FxadError
from fxad.execution.executable import lower
from fxad.testing.compare import differ, program_tolerance
from fxad.tracing.program import Program, numpy_operands


def compiled_differs(program: Program[..., object], args: tuple[object, ...]) -> str | None:
    """Return "compiled differs" if the compiled program gives other results than the interpreter, beyond what rounding
    explains; "compiled: ExecutionError" or another class if it cannot be compiled or run; None if it is as it should
    be, or the interpreter raises too."""
    jaxpr, operands = numpy_operands(program, args, {})
    try:
        expected = run(jaxpr, operands)
    except Exception:  # noqa: BLE001  the program itself is wrong
        return None
    try:
        results = lower(program).compile()(*args)
    except FxadError as e:
        return f"compiled: {type(e).__name__}"
    actual = [np.asarray(x) for x in tree.leaves(results)]
    slack = program_tolerance(jaxpr, operands)
    return "compiled differs" if differ(actual, expected, slack=slack, signs=False) else None


def gives_nan(program: Program[..., object], args: tuple[object, ...]) -> str | None:
    """Return "nan of log" if a result of the interpreted program has a nan, and an equation `log` made the first one;
    "nan of div after inf of log" if it has an infinite operand, and `log` made the first infinity.
    None without a nan, and for a nan that an argument has.

    The reason names the operations, so that a program with a nan of another origin is not taken for this one.
    """
    jaxpr, operands = numpy_operands(program, args, {})
    results = run(jaxpr, operands)
    if not any([np.isnan(x.astype(np.complex128)).any() for x in results if x.dtype in dtypes.INEXACT]):
        return None
    found = explain_nan(program, *args)
    if found is None:
        return None
    infinite = any([np.isinf(x.astype(np.complex128)).any() for x in found.nan.operands if x.dtype in dtypes.INEXACT])
    after = f" after inf of {_operation(found.inf)}" if found.inf is not None and infinite else ""
    return f"nan of {_operation(found.nan)}{after}"


def _operation(origin: NanOrigin) -> str:
    """Return the name of the primitive of an equation, from its text: `%0:f32[2] = log %arg0:f32[2]`."""
    return re.split(r"[ \[]", origin.equation.partition(" = ")[2])[0]
