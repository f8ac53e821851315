"""The meaning of a program in NumPy: the reference semantics, and the oracle of the tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.ir import Atom, Jaxpr, Lit, NDArray, Var


def run(jaxpr: Jaxpr, args: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Results of `jaxpr` for `args`, equation by equation.

    Type: arrays of the types `jaxpr.in_avals` -> arrays of the types `jaxpr.out_avals`.
    Cost: a value is dropped after its last use.
    """
    dying = _last_uses(jaxpr)
    env: dict[Atom, NDArray] = dict(zip(jaxpr.ins, args, strict=True))
    with np.errstate(all="ignore"):  # the values of IEEE 754 are the meaning, not a reason to warn
        for eqn, dead in zip(jaxpr.eqns, dying, strict=True):
            outs = eqn.prim.impl(*[a.array if isinstance(a, Lit) else env[a] for a in eqn.ins])
            env.update(zip(eqn.outs, outs, strict=True))
            for v in dead:
                del env[v]
    return tuple([a.array if isinstance(a, Lit) else env[a] for a in jaxpr.outs])


def _last_uses(jaxpr: Jaxpr) -> list[list[Var]]:
    """For each equation, the variables that nothing after it reads."""
    read = set(jaxpr.outs)
    dying: list[list[Var]] = []
    for eqn in reversed(jaxpr.eqns):
        dead = [v for v in dict.fromkeys((*eqn.ins, *eqn.outs)) if isinstance(v, Var) and v not in read]
        read.update(dead)
        dying.append(dead)
    dying.reverse()
    return dying
