"""Computes elementwise results again, late in a program that is compiled as a whole, instead of storing them.

The backward pass of `y = tanh(z)` followed by a product reads `z`, for the derivative of `tanh`, and `y`, for the
gradient of the matrix. XLA stores both. But `y` can be computed from `z`, which is stored anyway. `recompute_idle`
rewrites a program so that XLA stores only `z`. It reads the estimate of `peak.py`:

- A value is idle if it is in memory at the peak, and is computed and read before it, and read again after it.
- An idle value is recomputed if elementwise equations compute it from values that are in memory anyway, as long as it
  is: operands and results of the program, and values with a later reader. At most one of the equations is a function
  that takes more than a few instructions.
- The readers after the peak read the result of a `remat` equation, which applies these equations.

The `remat` is opaque: XLA cannot merge it with the first computation. Its last operand is a value that its first reader
reads too. So XLA cannot compute it before this value, which is a cotangent.

>>> import fxad as fx, fxad.numpy as fnp
>>> def loss(ws, x):
...     for w in ws:
...         x = fnp.tanh(x @ w)
...     return fnp.sum(x)
>>> square = fx.Spec((256, 256))
>>> program = fx.grad(fx.trace(loss, [square] * 6, square)).jaxpr
>>> recomputing = recompute_idle(program)
>>> [eqn.prim.name for eqn in recomputing.eqns if eqn not in program.eqns].count("remat")
5

Source: the idea of recomputing what the operand determines: Chen et al., Training Deep Nets with Sublinear Memory Cost
        (2016), section 4; and Bulo et al., In-Place Activated BatchNorm (2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from fxad.core.builder import Builder, subprogram
from fxad.core.constants import MAX_FORMULA
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Eqn, HigherOrder, Jaxpr, Lit, Var
from fxad.primitives.control.remat import Remat
from fxad.transforms.costs import CHEAP_TO_RECOMPUTE, Fusion, compile_cost, weight_of_nested
from fxad.transforms.memory_plans.peak import bytes_in_memory, flat_program, spans
import os
LEAST_BYTES: Final = int(os.environ.get("LB",1 << 14))  # of a value that is recomputed
LEAST_PART: Final = 1 / 16  # of the estimated temporaries that is saved
MOST_EQUATIONS: Final = 1 << 16
EXP=int(os.environ.get("EXPS","1"))


@by_value
def recompute_idle(jaxpr: Jaxpr) -> Jaxpr | None:
    if os.environ.get("NOREC"): return None
    if weight_of_nested(jaxpr).equations > MOST_EQUATIONS:
        return None
    flat = flat_program(jaxpr)
    no = (False,) * len(flat.ins), (False,) * len(flat.outs)
    begin, end = spans(flat, *no)
    live = bytes_in_memory(flat, begin, end)
    if not live:
        return None
    at = max(range(len(live)), key=live.__getitem__)
    chosen = _Choice(flat, begin, end, at).chosen
    if sum([v.aval.nbytes for v in chosen]) < max(LEAST_PART * live[at], 1):
        return None
    return _rewritten(flat, chosen, at, begin)


def _kind(eqn: Eqn) -> int:
    """0 for an equation that is cheap to compute again, 1 for a function, 2 for another equation."""
    prim = eqn.prim
    if isinstance(prim, HigherOrder) or len(eqn.outs) != 1 or prim.effects: return 2
    if isinstance(prim, CHEAP_TO_RECOMPUTE): return 0
    fusion, ms = compile_cost(type(prim))
    return 1 if fusion is Fusion.EXPENSIVE and ms < 2 else 2


class _Choice:
    def __init__(self, flat, begin, end, at):
        self.flat, self.begin, self.end = flat, begin, end
        self.producer = {e.outs[0]: e for e in flat.eqns if len(e.outs) == 1}
        self.always = {*flat.ins, *[a for a in flat.outs]}
        self.chosen = {}  # value -> (equations, leaves)
        reads = {}
        for k, e in enumerate(flat.eqns):
            for a in e.ins: reads.setdefault(a, []).append(k)
        for k, e in enumerate(flat.eqns[:at]):
            for v in e.outs:
                if v in begin and v.aval.nbytes >= LEAST_BYTES and end[v] > at and at not in reads[v]:
                    f = self.formula(v)
                    if f: self.chosen[v] = f

    def formula(self, y):
        needed, leaves, stack = {}, {}, [y]
        functions = 0
        while stack:
            u = stack.pop()
            if isinstance(u, Lit) or u in needed or u in leaves: continue
            if u is not y and u not in self.chosen and (u in self.always or (u in self.begin and self.end[u] >= self.end[y])):
                leaves[u] = None
                continue
            if u is not y and u in self.begin and u not in self.chosen: return None
            e = self.producer.get(u)
            if e is None: return None
            k = _kind(e)
            if k == 2: return None
            functions += k
            needed[u] = e
            if functions > EXP or len(needed) > MAX_FORMULA: return None
            stack += e.ins
        if not leaves: return None
        return sorted(needed.values(), key=lambda e: e.outs[0].index), tuple(leaves)


def _rewritten(flat, chosen, at, begin):
    b = Builder.like(flat)
    env = {v: v for v in flat.ins}
    index = {v: k for k, e in enumerate(flat.eqns) for v in e.outs}
    producer = {e.outs[0]: e for e in flat.eqns if len(e.outs) == 1}
    late = {}
    depends = {}

    def on_chosen(a):
        """early value in no memory whose expression reads a chosen one"""
        if isinstance(a, Lit) or a in chosen: return a in chosen
        if a not in index or index[a] > at or a in begin: return False
        if a not in depends: depends[a] = a in producer and any([on_chosen(x) for x in producer[a].ins])
        return depends[a]

    def again(a, guard):
        if not on_chosen(a): return env.get(a, a)
        if a in late: return late[a]
        if a in chosen:
            eqns, leaves = chosen[a]
            body = subprogram(eqns, (*leaves, guard_var(guard)), (a,), "again")
            (out,) = b(Remat(body, True), *[env[x] for x in leaves], env[guard])
        else:
            e = producer[a]
            (out,) = b.copy(e, tuple([again(x, guard) for x in e.ins]))
        late[a] = out
        return out

    def guard_var(g): return g
    latest = None
    for k, e in enumerate(flat.eqns):
        ins = tuple([env.get(a, a) for a in e.ins])
        if k > at:
            if any([on_chosen(a) for a in e.ins]):
                guard = next((a for a in e.ins if a in index and index[a] > at), latest)
                if guard is not None:
                    ins = tuple([again(a, guard) for a in e.ins])
        outs = b.copy(e, ins)
        env.update(zip(e.outs, outs))
        if k >= at and outs and e.outs[0].aval.size: latest = e.outs[0]
    return b.build([env.get(a, a) for a in flat.outs], flat.name)
