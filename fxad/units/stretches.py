"""Cuts long stretches of fusible equations into bodies of bounded size, which become units.

XLA fuses an elementwise equation into each kernel that reads its result, and the kernel computes it again. A long
stretch of such equations, such as the Hessian of a Python loop, is then compiled as kernels that each compute most of
it: the time and the memory of the compilation grow with the square of its length, and at some lengths far faster
(a gradient of 1,500 irregular steps does not compile in a minute). So a stretch of operations on small arrays is
compiled without XLA's fusion (`is_compiled_without_fusion`), which takes a time that is linear up to a few thousand
equations. A longer stretch is cut. Values between units are in memory, so no kernel reaches beyond its unit.

For example, with at most 3 equations in a body:

>>> import fxad as fx, fxad.numpy as fnp
>>> program = fx.trace(lambda x: fnp.sin(fnp.cos(fnp.tanh(fnp.exp(x * 2.0)))), fx.Spec((1 << 20,))).jaxpr
>>> cut, bodies = cut_stretches(program, (), stretch=4, piece=3)
>>> for body in bodies:
...     print(*[eqn.prim.name for eqn in body.eqns])
mul exp tanh
cos sin

Decision: docs/adr/0092.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from fxad.core.builder import Builder, last_readers, live_ins, subprogram, substitute
from fxad.ir import Atom, Jaxpr, distinct_jaxprs
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import body_of_call_or_remat
from fxad.support.constants import MOST_INLINED, PIECE_OPERATIONS, STRETCH_OPERATIONS, VALUE_BYTES
from fxad.transforms.costs import compile_cost, weight_of_nested
from fxad.transforms.fusion import Inlined
from fxad.units.kernels import FUSIBLE, Kernels, longest_stretch
from fxad.units.pieces import inline_bodies


def cut_stretches(
    jaxpr: Jaxpr, chosen: tuple[Jaxpr, ...], stretch: int = STRETCH_OPERATIONS, piece: int = PIECE_OPERATIONS
) -> tuple[Jaxpr, tuple[Jaxpr, ...]]:
    """Return the program with its equations between the calls of `chosen` as calls of new bodies, and `chosen` with
    these bodies; both unchanged if at most `stretch` fusible equations are connected, if they are compiled to few
    kernels, or if there are more than `MOST_INLINED` equations, with calls inlined: nested calls may be 2^40.

    Calls of other bodies are inlined. A body has at most `stretch` fusible equations if they compute small arrays, and
    `piece` otherwise. The cuts are where the fewest bytes are live.

    Law:  same value; the same equations in the same order.
    Cost: linear in the equations, with calls inlined.
    """
    if not stretch < weight_of_nested(jaxpr).equations <= MOST_INLINED:
        return jaxpr, chosen
    flat, _ = inline_bodies(jaxpr, {body for body in distinct_jaxprs(jaxpr) if body not in chosen})
    kinds = {kind: compile_cost(kind)[0] for kind in {type(eqn.prim) for eqn in flat.eqns}}
    is_fusible = [kinds[type(eqn.prim)] in FUSIBLE for eqn in flat.eqns]
    program = Inlined(flat, len(flat.eqns))
    longest = longest_stretch(program)
    if longest.operations <= stretch or not longest.has_many_kernels(Kernels(program)):
        return jaxpr, chosen
    at_most = stretch if longest.is_small else piece
    b, env, bodies = Builder.like(flat), dict[Atom, Atom](), dict[Jaxpr, None]()
    live_bytes, last_use = _liveness(flat)
    is_unit = [body_of_call_or_remat(eqn) in chosen for eqn in flat.eqns]
    units = [*[k for k, unit in enumerate(is_unit) if unit], len(flat.eqns)]
    start = 0
    while start < len(flat.eqns):
        if is_unit[start]:
            b.extend(flat.eqns[start : start + 1], env)
            start += 1
            continue
        stop = _end_of_body(is_fusible, live_bytes, start, units[bisect_left(units, start)], at_most)
        eqns = flat.eqns[start:stop]
        ins = live_ins(eqns)
        outs = tuple([v for e in eqns for v in e.outs if last_use.get(v, -1) >= stop])
        body = subprogram(eqns, ins, outs, "stretch")
        bodies[body] = None
        b.source = eqns[0].source
        env.update(zip(outs, b(Call(body), *substitute(ins, env)), strict=True))
        start = stop
    return b.build(substitute(flat.outs, env), jaxpr.name), (*chosen, *bodies)


def _end_of_body(
    is_fusible: Sequence[bool], live_bytes: Sequence[float], start: int, next_unit: int, at_most: int
) -> int:
    """Return the end of the body that begins with equation `start`: the next unit, if there are fewer than `at_most`
    fusible equations before it; else the place with the fewest live bytes, the last of several, among those after at
    least half as many."""
    count, ends = 0, []
    for k in range(start, next_unit):
        count += is_fusible[k]
        if 2 * count >= at_most:
            ends.append(k + 1)
        if count >= at_most and k + 1 < next_unit:
            return min(reversed(ends), key=lambda end: live_bytes[end])
    return next_unit


def _liveness(jaxpr: Jaxpr) -> tuple[list[float], dict[Atom, int]]:
    """Return the bytes of the computed values that are live before each equation, with `VALUE_BYTES` more for each
    value; and the last equation that reads each value, or the number of equations for results."""
    n = len(jaxpr.eqns)
    last_use = last_readers(jaxpr.eqns)
    last_use.update(dict.fromkeys(jaxpr.outs, n))
    change = [0.0] * (n + 2)
    for k, eqn in enumerate(jaxpr.eqns):
        for v in eqn.outs:
            if v in last_use:
                change[k + 1] += VALUE_BYTES + v.aval.nbytes
                change[last_use[v] + 1] -= VALUE_BYTES + v.aval.nbytes
    return list(accumulate(change)), last_use
