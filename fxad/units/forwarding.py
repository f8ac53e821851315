"""Results of a program that are its operands."""

from __future__ import annotations

from fxad.ir import Atom, Eqn, Jaxpr
from fxad.primitives.control.remat import body_of_call_or_remat
from fxad.primitives.host_call import NUMBER


def forwarded_operands(jaxpr: Jaxpr, bound: int) -> tuple[int, ...] | None:
    """Return the operands that are the results of a trivial program, if all results are distinct arguments; None for
    any other program. Its `bound` leading operands are closed-over arrays, which are never returned themselves."""
    if jaxpr.effects:
        return None
    operands: dict[int, None] = {}
    for a in jaxpr.outs:
        k = _operand(jaxpr, a)
        if k is None or k < bound or k in operands:
            return None  # stop at the first: searching for each of a thousand gradients takes longer than planning them
        operands[k] = None
    return tuple(operands)


def forwarded_host_functions(jaxpr: Jaxpr) -> list[tuple[int, int]]:
    """Return the results that are numbers of host functions, each with the operand that it is: a pullback that calls
    the host has such a number. A call lets the result keep the function (`fxad.xla.host_calls`)."""
    if NUMBER not in jaxpr.out_avals:
        return []
    results = [k for k, a in enumerate(jaxpr.outs) if a.aval is NUMBER]
    return [(k, operand) for k in results if (operand := _operand(jaxpr, jaxpr.outs[k])) is not None]


def _operand(jaxpr: Jaxpr, a: Atom) -> int | None:
    """Return the index of the operand that a value is, also through calls; None for a computed value.

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
        body = None if producer is None else body_of_call_or_remat(producer)
        if producer is None or body is None:
            return None
        callers.append((jaxpr, producer))
        jaxpr, a = body, body.outs[producer.outs.index(a)]
