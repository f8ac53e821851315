"""The program that a memory plan is about: flat, in an order that needs less memory.

Calls are inlined. Then two rewrites move equations:

    updates            run early       the step of an optimiser runs as soon as its gradient is there
    expanded values    run late        a broadcast value is computed just before it is read first
"""

from __future__ import annotations

from typing import Final

from fxad.core.builder import Builder, producers, substitute
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Var
from fxad.primitives.control.call import Applied
from fxad.primitives.control.remat import Remat
from fxad.transforms.costs import FUSED, compile_cost

EXPANDED: Final = 2  # a value that is so many times larger than its operands is computed late


@by_value
def flat_program(jaxpr: Jaxpr) -> Jaxpr:
    """Return a program that is not differentiated any more without calls, in an order that needs less memory: updates
    run early, and broadcast values are computed late.

    Law: same value, same effects in the same order.
    """

    def opens(eqn: Eqn, _ins: Atoms) -> Jaxpr | None:
        prim = eqn.prim  # the rules of a function have done their work, so it is opened as a call
        if isinstance(prim, Remat):
            return None if prim.opaque else prim.body
        return prim.applied if isinstance(prim, Applied) else None

    b = Builder.like(jaxpr)
    return _expand_late(_update_early(b.build(b.inline_calls(jaxpr, jaxpr.ins, opens), jaxpr.name)))


def _update_early(flat: Jaxpr) -> Jaxpr:
    """Return the program in which an update runs as soon as its operands are known. An update is a fusible equation
    that only results of the program need. So the step of an optimiser does not wait until all gradients are there, and
    holds one of them at a time. An update that reads operands of the program only runs just before its first reader.

    For example, 2 and 3 are updates, for the results u and h:

        0  g = dot x d
        1  h = dot d x
        2  v = mul p 0.9        reads an operand of the program only: runs before equation 3
        3  u = sub v g          runs after equation 0

    The order is 0, 2, 3, 1.
    """
    updates = _updates(flat)
    eqn_number = producers(flat.eqns)
    after = [*range(len(flat.eqns))]  # the equation after which each update runs; itself for any other
    for k in sorted(updates):
        after[k] = max([after[eqn_number[a]] for a in flat.eqns[k].ins if a in eqn_number], default=-1)
    # of an update that reads operands of the program only: that of its first reader, which is an update
    reader_after: dict[Atom, int] = {}
    for k in sorted(updates, reverse=True):
        eqn = flat.eqns[k]
        if after[k] < 0:
            after[k] = min([reader_after[v] for v in eqn.outs if v in reader_after], default=k)
        for a in eqn.ins:
            reader_after[a] = min(reader_after.get(a, after[k]), after[k])
    # an equation, then the updates that run after it
    order = sorted(range(len(after)), key=lambda k: (after[k], k in updates, k))
    b, env = Builder.like(flat), dict[Atom, Atom]()
    b.extend([flat.eqns[k] for k in order], env)
    return b.build(substitute(flat.outs, env), flat.name)


def _updates(flat: Jaxpr) -> set[int]:
    """Return the fusible equations that only results of the program need: no other equation reads their results, but
    for further updates."""
    read_by_others: set[Atom] = set()
    updates = set[int]()
    for k in reversed(range(len(flat.eqns))):
        eqn = flat.eqns[k]
        fusible = compile_cost(type(eqn.prim))[0] in FUSED and not eqn.prim.effects
        if fusible and read_by_others.isdisjoint(eqn.outs):
            updates.add(k)
        else:
            read_by_others.update(eqn.ins)
    return updates


def _expand_late(flat: Jaxpr) -> Jaxpr:
    """Return the program in which a value that is larger than its operands, as a broadcast one, is computed just
    before it is read first."""
    b = Builder.like(flat)
    env: dict[Atom, Atom] = {}
    late: dict[Atom, Eqn] = {}

    def emit(eqn: Eqn) -> None:
        for a in eqn.ins:
            if a in late:
                emit(late.pop(a))
        b.extend((eqn,), env)

    for eqn in flat.eqns:
        if expands(eqn):
            late[eqn.outs[0]] = eqn
        else:
            emit(eqn)
    for a in flat.outs:
        if a in late:
            emit(late.pop(a))
    return b.build(substitute(flat.outs, env), flat.name)


def expands(eqn: Eqn) -> bool:
    """Return True if the result is larger than the operands, as a broadcast one."""
    if len(eqn.outs) != 1 or isinstance(eqn.prim, HigherOrder) or eqn.prim.effects:
        return False
    return eqn.outs[0].aval.nbytes > EXPANDED * sum([a.aval.nbytes for a in eqn.ins if isinstance(a, Var)])
