"""Concrete values of a program, which exist before it runs: closed-over arrays, literals, and what is made of them.

A value is computed when a rule asks for it: the indices of a gather, the mask of a select.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, final

import numpy as np

from fxad.core.builder import producing_eqns
from fxad.core.dce import dce
from fxad.core.interpreter import run
from fxad.core.layout import Layout, Sliced, Times
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, NDArray, Var, operand_var
from fxad.primitives.elementwise.arithmetic import Add
from fxad.primitives.index import index_dtype
from fxad.transforms.vmap import vmap

ComputeConcrete: TypeAlias = Callable[[], NDArray | None]

_MOST_STEPS: Final = 1 << 12  # of a loop that is interpreted step by step, about half a second


def not_concrete() -> None:
    """Return None: a value that is not concrete."""
    return


@final
class ConcreteValues:
    """The concrete values of a program, for operands that may be concrete."""

    __slots__ = ("_eqns", "_jaxpr", "_numbers", "_operands", "_values")

    def __init__(self, jaxpr: Jaxpr, operands: Sequence[ComputeConcrete]) -> None:
        self._jaxpr = jaxpr
        self._operands: dict[Atom, ComputeConcrete] = dict(zip(jaxpr.ins, operands, strict=True))
        self._eqns: dict[Var, tuple[Eqn, int]] | None = None
        self._values: dict[Atom, NDArray | None] = {}
        self._numbers: dict[int, NDArray] = {}

    def get(self, a: Atom) -> NDArray | None:
        """Return the value of an atom, or None."""
        if isinstance(a, Lit):
            return None if a.aval.symbolic or a.size is not None else a.array
        if a in self._values:
            return self._values[a]
        value = self._operands[a]() if a in self._operands else self._computed(a)
        self._values[a] = value
        return value

    def numbers(self, count: int) -> NDArray:
        """Return 0, 1, ..., count - 1: one array for all tables of a program."""
        if count not in self._numbers:
            self._numbers[count] = np.arange(count, dtype=index_dtype((count,)))
        return self._numbers[count]

    def _computed(self, a: Var) -> NDArray | None:
        """Evaluate the equation of a value: by its operands, by the body that runs once, or pruned to this result. None
        if an operand is not concrete, or the equation has effects."""
        if self._eqns is None:
            self._eqns = {v: (e, k) for e in self._jaxpr.eqns for k, v in enumerate(e.outs)}
        eqn, k = self._eqns[a]
        prim = eqn.prim
        if prim.effects or prim.free_axes:
            return None
        if isinstance(prim, HigherOrder):
            layout = prim.layout
            once = layout.once
            if once is not None:
                body, places = layout.bodies[once].jaxpr, layout.operand_indices(once)
                results = layout.result_indices(once)
                if k in results and all(
                    [t.aval is b.aval for t, b in zip([eqn.ins[p] for p in places], body.ins, strict=True)]
                ):
                    inner = ConcreteValues(body, [partial(self.get, eqn.ins[p]) for p in places])
                    return inner.get(body.outs[results.index(k)])
            return self._pruned(eqn, k)
        args = [self.get(x) for x in eqn.ins]
        if any([x is None for x in args]):
            return None
        return np.asarray(prim.impl(*[x for x in args if x is not None])[k])

    def _pruned(self, eqn: Eqn, k: int) -> NDArray | None:
        """Evaluate one result of an equation with bodies; it may not need all of the operands."""
        variables = tuple(dict.fromkeys([a for a in eqn.ins if isinstance(a, Var)]))
        from_operands = {v: operand_var(n, v.aval) for n, v in enumerate(variables)}
        ins = tuple([from_operands[a] if isinstance(a, Var) else a for a in eqn.ins])
        outs = tuple([Var(n, v.aval) for n, v in enumerate(eqn.outs)])
        single = dce(Jaxpr(tuple(from_operands.values()), (Eqn(eqn.prim, ins, outs),), (outs[k],)))
        read = {a for e in single.eqns for a in e.ins} | set(single.outs)
        args = [
            self.get(v) if new in read else np.zeros(v.aval.shape, v.aval.dtype)
            for v, new in zip(variables, single.ins, strict=True)
        ]
        if any([x is None for x in args]):
            return None
        return _evaluated(single, [x for x in args if x is not None])


def _evaluated(jaxpr: Jaxpr, args: Sequence[NDArray]) -> NDArray | None:
    """Return the result of a program of at most one equation. A loop whose carries are counters takes all of its steps
    at once; the result of a loop of very many other steps is None."""
    eqn = jaxpr.eqns[0] if jaxpr.eqns else None
    layout = eqn.prim.layout if eqn is not None and isinstance(eqn.prim, HigherOrder) else None
    if eqn is None or layout is None or len(layout.running) != 1:
        return run(jaxpr, args)[0]
    (k,) = layout.running
    runs, body, places = layout.bodies[k].runs, layout.bodies[k].jaxpr, layout.operand_indices(k)
    role = layout.result_roles[eqn.outs.index(jaxpr.outs[0])] if jaxpr.outs[0] in eqn.outs else None
    if not isinstance(runs, Times):
        return run(jaxpr, args)[0]
    counters = _counters(layout, k)
    if counters is None or not isinstance(role, Sliced):
        return run(jaxpr, args)[0] if runs.count <= _MOST_STEPS else None
    env = dict(zip(jaxpr.ins, args, strict=True))
    operands = [env[a] if isinstance(a, Var) else a.array for a in eqn.ins]
    steps = np.arange(runs.count)[:: -1 if runs.reverse else 1]
    axes = [r.axis if isinstance(r, Sliced) else None for r in layout.operand_roles]
    for p, by in counters.items():
        counts = operands[p] + np.multiply.outer(steps, by).reshape((-1,) + (1,) * operands[p].ndim)
        operands[p], axes[p] = counts.astype(operands[p].dtype), 0
    one_result = body.with_outs([body.outs[layout.result_indices(k).index(eqn.outs.index(jaxpr.outs[0]))]])
    stacked, _ = vmap(one_result, runs.count, tuple([axes[p] for p in places]), (role.axis,))
    return run(stacked, [operands[p] for p in places])[0]


def _counters(layout: Layout, k: int) -> dict[int, int] | None:
    """Return what each step of a loop adds to its carries, by operand; None if one is no integer to which a literal is
    added."""
    body, places, results = layout.bodies[k].jaxpr, layout.operand_indices(k), layout.result_indices(k)
    producer = producing_eqns(body.eqns)
    added: dict[int, int] = {}
    for p, r in layout.carries.items():
        carry_in, carry_out = body.ins[places.index(p)], body.outs[results.index(r)]
        eqn = producer.get(carry_out) if isinstance(carry_out, Var) else None
        increment = 0 if carry_out is carry_in else None
        if eqn is not None and isinstance(eqn.prim, Add) and carry_in in eqn.ins and carry_in.aval.dtype.kind in "iu":
            (addend,) = [a for a in eqn.ins if a is not carry_in] or (None,)
            increment = int(addend.value) if isinstance(addend, Lit) and addend.size is None else None
        if increment is None:
            return None
        added[p] = increment
    return added
