"""`error_if`: raises an error at run time if a predicate holds."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from fxad import dtypes
from fxad.core.trees import tree
from fxad.errors import ArgumentError, CheckError, DTypeError, described, shown
from fxad.ir import source_text
from fxad.lax.control.host import format_values, numbered_format, try_format
from fxad.primitives.check import Check
from fxad.tracing.array import Array, asarray, aval_of, binder
from fxad.tracing.tracer import Tracer, user_source

R = TypeVar("R")


def error_if(x: R, pred: object, message: str, /, *args: object, **kwargs: object) -> R:
    """Return `x`, unless an element of `pred` is true when the program runs: then the call raises, with the message, your line
    and, under vmap, the first example.

    `x` is any tree of arrays. Use the returned value: a check whose value nothing reads runs with the program as it was
    traced, but it is dead code, which `dce`, `simplify` and `grad` drop.
    With further arguments `message` is a format string for them, as in `debug_print`; their values are fetched if the
    check fails. A `pred` that is known while tracing raises at once; the message then has the types of values that are
    not known.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> def root(x):
    ...     x = fx.error_if(x, x < 0, "negative: {}", x.min())
    ...     return fnp.sqrt(x)
    >>> try:
    ...     fx.jit(root)(fnp.asarray([4.0, -1.0]))
    ... except fx.errors.CheckError as e:
    ...     print(e.message)
    error_if: negative: -1.0

    Rule:   gradients are checked too. A branch that is not taken and a step after the last one check nothing, also
            under vmap. A program with checks runs on the CPU, and its call is synchronous: it raises the error.
    Raises: CheckError, if `pred` holds; DTypeError for a `pred` that is no bool; ArgumentError for an `x` without
            arrays, and if `message` or its fields do not fit the arguments.
    """
    if not isinstance(message, str):
        raise ArgumentError(
            f"error_if: the message is {described(message)}, not a str: {shown(message)}",
            remedy='error_if(x, x < 0, "negative: {}", x)',
        )
    fields = (*args, *kwargs.values())
    text = numbered_format("error_if", message, len(args), kwargs) if fields else message
    avals = [aval_of(v, f"error_if: value {k}") for k, v in enumerate(fields)]
    if avals:
        try_format("error_if", message, text, fields)
    aval = aval_of(pred, "error_if: pred")
    if aval.dtype is not dtypes.bool_:
        raise DTypeError(f"error_if: pred is {aval}, not a bool", remedy="compare: x != 0; for nan, isnan(x)")
    leaves, structure = tree.flatten(x)
    if not leaves:
        raise ArgumentError(f"error_if: {shown(x)} has no arrays", remedy="give what the program goes on with")
    text = f"error_if: {text}"
    types = ", ".join(map(str, [aval_of(v, "error_if: x") for v in leaves]))
    # the user's line: the search begins 2 frames up, at the caller
    prim = Check(text, f"error_if({types}; {aval})", source_text(user_source(2)), len(avals))
    if not isinstance(pred, Tracer):
        value = np.asarray(pred)
        if not value.any():
            return x
        if not any([isinstance(v, Tracer) for v in fields]):
            raise prim.failure(np.asarray(True), [np.asarray(asarray(v)) for v in fields])
        known = [v if isinstance(v, Tracer) else np.asarray(asarray(v)) for v in fields]
        failed = format_values(text, known) + " (types of values that are not known while tracing)"
        raise CheckError(failed, equation=prim.equation, where=prim.where)
    wrong: Array = pred.any() if aval.shape else pred
    out: R = tree.unflatten(structure, binder().bind(prim, (wrong, *fields, *leaves)))
    return out
