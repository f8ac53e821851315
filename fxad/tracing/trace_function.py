"""From a Python function to a jaxpr: `trace_flat` runs a function on tracers and returns the program that they record.

A function traced inside another may use the outer function's tracers: they become operands of the inner program
(closure conversion), as do arrays that are closed over.

    def f(x, zs):
        return lax.scan(lambda c, z: (c + x * z, None), x, zs)[0]

The trace of `f` has the operands x and zs. `scan` traces the lambda, with the operands c and z. It meets x, a tracer of
the trace of `f`, and captures it: the body has the operands (x, c, z), and the `scan` takes x as a constant.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from fxad.core.builder import Builder
from fxad.errors import DepthError, FxadError, is_rule
from fxad.ir import Atom, Aval, Jaxpr, Source, Zero, source_text
from fxad.tracing.array import Array, _binder
from fxad.tracing.traced_numbers import ArgumentType, DifferentiatedNumber, NumberOperands, TracedNumber
from fxad.tracing.tracer import Trace, Tracer, active_trace, is_internal


def trace_flat(
    fn: Callable[[list[Array]], Sequence[object]], avals: Sequence[ArgumentType], name: str
) -> tuple[Jaxpr, tuple[object, ...]]:
    """Trace a function of flat arguments. Return the program, with captured operands first, and their values.
    An argument of a `NumberType` is a number; the program decides the dtype of its operand.
    The values are copies of the arrays that others can write to, made when `fn` uses them.

    Law:    the same function on the same types gives the same object.
    Cost:   one run of `fn` on tracers.
    Raises: what `fn` raises; ArgumentError when it returns something that is not an array; DepthError when so many
            functions are traced inside of each other that Python has no frame left.
    """
    trace = Trace(name, sys._getframe(), active_trace())
    before = _binder.set(trace)
    try:
        args = [_argument(trace, a) for a in avals]
        results = fn(list(args))
        outs = [trace.lift(name, k, r, "result") for k, r in enumerate(results)]
        return _finished(trace, outs, args, avals)
    except FxadError as e:  # without an equation: an error of an argument, an axis or an index
        raise e.located(where=line_of_traceback(e.__traceback__))
    except RecursionError as e:
        depth, first = _traces_in(e.__traceback__)
        if trace.outer is not None or depth < _MIN_NESTED_TRACES:  # the recursion is the user's own
            raise
        raise DepthError(
            f"trace of {name}: {depth} functions are traced inside of each other, and Python allows"
            f" {sys.getrecursionlimit()} frames",
            remedy="trace the inner functions first: fx.trace(f, x) is a program, and programs call each other at any"
            " depth; or loop over one function with lax.scan",
        ).located(where=source_text(first)) from None
    finally:  # an asynchronous exception may prevent this; then the trace ends with this frame
        trace.frames.end()
        _binder.reset(before)


def _argument(trace: Trace, aval: ArgumentType) -> Tracer:
    """Return a new argument of the traced function."""
    if isinstance(aval, Aval):
        return Tracer(trace, trace.builder.input(aval))
    kind = aval.number_type if isinstance(aval, DifferentiatedNumber) else aval
    return TracedNumber(trace, trace.builder.input(kind.base), kind)


def _finished(
    trace: Trace, outs: Sequence[Atom], args: Sequence[Tracer], avals: Sequence[ArgumentType]
) -> tuple[Jaxpr, tuple[object, ...]]:
    """Return the program, with its captured operands first, and the captured values. A captured value that nothing
    reads, because the operation that captured it failed, is left out of both. Operands that are numbers have the
    dtypes in which they are used."""
    jaxpr = trace.builder.build(outs, trace.name)
    traced_numbers = [x for x in args if type(x) is TracedNumber]
    if not trace.captured and not traced_numbers:
        return jaxpr, ()
    values_read = {x for eqn in jaxpr.eqns for x in eqn.ins}.union(jaxpr.outs)
    differentiated = {x._var: a for x, a in zip(args, avals, strict=True) if isinstance(a, DifferentiatedNumber)}
    b, numbers = Builder(), NumberOperands(traced_numbers, differentiated, jaxpr)
    # `inline` takes an atom for each operand: for one that nothing reads, any will do
    captured = [b.input(v.aval) if v in values_read else Zero(v.aval).instantiate() for v in jaxpr.ins[len(args) :]]
    operands = numbers.add_operands(b, jaxpr.ins[: len(args)])
    outs = b.inline(jaxpr, [*operands, *captured], numbers.convert if traced_numbers else None)
    captured_first = b.build(outs, trace.name)
    values = [value for value, var in trace.captured.values() if var in values_read]
    return captured_first, (*values, *numbers.rests.values())


_MIN_NESTED_TRACES: Final = 20  # fewer do not exhaust Python's frames


def _traces_in(traceback: TracebackType | None) -> tuple[int, Source]:
    """Return the number of traces that were in progress when an exception was raised, and the line in the first
    function."""
    n = 0
    first: Source = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        n += code is trace_flat.__code__
        if n and first is None and not is_internal[code.co_filename]:
            first = code, traceback.tb_lasti
        traceback = traceback.tb_next
    return n, first


def line_of_traceback(traceback: TracebackType | None) -> str:
    """Return the user's line in a traceback: the innermost that is not fxad's own; empty when there is none."""
    source: Source = None
    called_by_fxad = False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        is_of_fxad = is_internal[code.co_filename]
        if called_by_fxad and not is_of_fxad and is_rule(traceback.tb_frame):
            break
        if not is_of_fxad:
            source = code, traceback.tb_lasti
        called_by_fxad = is_of_fxad
        traceback = traceback.tb_next
    return source_text(source)
