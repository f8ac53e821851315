"""Forwarding: calls of a program whose results are operands return the buffers of their arguments, and run nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from fxad import runtime
from fxad.ir import Atom, Eqn, Jaxpr
from fxad.runtime import Results
from fxad.units.cost_rule import called_body


@final
class ForwardingStart:
    """The execution of a program whose results are operands: it returns their buffers."""

    __slots__ = ("_operands",)

    def __init__(self, operands: tuple[int, ...]) -> None:
        self._operands = operands

    def __call__(self, buffers: Sequence[runtime.Buffer]) -> Results:
        for b in buffers:
            if b.is_deleted():
                raise runtime.XlaRuntimeError(runtime.OPERAND_DELETED)
        return _ForwardedResults([buffers[k] for k in self._operands])


@final
class _ForwardedResults:
    """Results that are arrays already."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: list[runtime.Buffer]) -> None:
        self._arrays = arrays

    def consume_with_handlers(self, _handlers: Sequence[runtime.ResultHandler], /) -> list[runtime.Buffer]:
        return self._arrays


def forwarded_operands(jaxpr: Jaxpr, bound: int) -> tuple[int, ...] | None:
    """The operands that are the results of a trivial program, if all results are distinct arguments; None for any other
    program. Its `bound` leading operands are closed-over arrays, which are never returned themselves."""
    if jaxpr.effects:
        return None
    operands: dict[int, None] = {}
    for a in jaxpr.outs:
        k = _operand(jaxpr, a)
        if k < bound or k in operands:
            return None  # stop at the first: searching for each of a thousand gradients takes longer than planning them
        operands[k] = None
    return tuple(operands)


def _operand(jaxpr: Jaxpr, a: Atom) -> int:
    """The index of the operand that a value is, also through calls; -1 for a computed value.

    The search goes into the body of the call that returns the value, and back to the caller at an operand of the body.
    """
    callers: list[tuple[Jaxpr, Eqn]] = []  # programs around `jaxpr`, and the calls in them
    while True:
        if a in jaxpr.ins:
            k = jaxpr.ins.index(a)
            if not callers:
                return k
            jaxpr, eqn = callers.pop()
            a = eqn.ins[k]
            continue
        producer = next((e for e in reversed(jaxpr.eqns) if a in e.outs), None)
        body = None if producer is None else called_body(producer)
        if producer is None or body is None:
            return -1
        callers.append((jaxpr, producer))
        jaxpr, a = body, body.outs[producer.outs.index(a)]
