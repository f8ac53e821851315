"""Passed-through arguments: those that a transformation only passes on, which a function gets as they are.

A function is differentiated by some arguments, mapped over some, compiled for some: these are traced. Of the others,
arrays are traced too, so that a program does not contain them. Python numbers and everything that is not an array pass
through: the function can ask for their values, and its program is made for them. A number that the function only
computes with is an operand (`fxad.core.numbers`), so one program serves all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

import numpy as np

from fxad import dtypes
from fxad.core.numbers import number_argument
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.runtime import SupportsDLPack
from fxad.tracing.array import Array, is_scalar
from fxad.tracing.spec import Spec
from fxad.tracing.static_args import FunctionCall
from fxad.tracing.traced_numbers import TracedNumber
from fxad.tracing.tracer import active_trace

T = TypeVar("T")


def passes_through(x: object) -> bool:
    """Return True for a leaf that a transformation passes on as it is: a Python number, and what is not an array."""
    if isinstance(x, Array):
        return type(x) is TracedNumber
    if is_scalar(x):
        return True
    if isinstance(x, np.ndarray | np.generic | Spec):
        return False
    is_array = isinstance(x, SupportsDLPack) and not isinstance(x, type)
    return not is_array and not type(x).__module__.startswith("jax.")  # `aval_of` names a tracer of JAX


def may_pass_through(x: object) -> bool:
    """Return `passes_through`, or True for integers and bools of NumPy, which may be a condition, a shape or an
    index."""
    return x.dtype.kind in "iub" if isinstance(x, np.ndarray | np.generic) else passes_through(x)


def has_tangent(x: object) -> bool:
    """Return True for a floating or complex number or array."""
    if isinstance(x, Array | np.ndarray | np.generic):
        return x.dtype in dtypes.INEXACT
    return isinstance(x, float | complex)


def with_passed_values(
    f: Callable[..., T],
    leaves: Sequence[object],
    structure: Structure,
    passed: Sequence[bool],
    as_literals: bool = False,
) -> Callable[..., T]:
    """Return a function with the values of the leaves that `passed` marks, of (positional, keyword) arguments of a
    structure. It takes None in place of them. `as_literals`: its program contains the numbers.

    A number of Python says by its class that it is an operand: see `number_argument`. A scalar of NumPy has no such
    class. It is a literal of a program unless the trace knows it, by its id, as one of its `scalar_operands`.
    """
    values = [x if as_literals or not marked else number_argument(x) for x, marked in zip(leaves, passed, strict=True)]
    scalars = {id(x): x for x in values if isinstance(x, np.generic)}

    @wraps(f, updated=())
    def with_values(*args: object, **kwargs: object) -> T:
        trace = active_trace()
        if trace is not None:
            trace.scalar_operands.update(scalars)
        others = tree.flatten_up_to(structure, (args, kwargs)) or ()
        args, kwargs = tree.unflatten(
            structure, [x if marked else y for marked, x, y in zip(passed, values, others, strict=True)]
        )
        return f(*args, **kwargs)

    return with_values


def with_passed_leaves(
    f: Callable[..., object], leaves: Sequence[object], structure: Structure, passed: Sequence[bool]
) -> FunctionCall:
    """Return `with_passed_values`, and the arguments, with None in place of the passed leaves."""
    args, kwargs = tree.unflatten(structure, [None if marked else x for marked, x in zip(passed, leaves, strict=True)])
    return with_passed_values(f, leaves, structure, passed) if any(passed) else f, args, kwargs
