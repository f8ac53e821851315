"""`collapse`: a sum over an axis moves through linear equations towards the operands.

The sum over a batch of a linear map is the map of the sum: sum_i A x_i = A sum_i x_i. So `reduce_sum` of a value that
is used for nothing else is moved before the equation that computes it, if this equation maps each slice along the axis
alike and is linear in the slices. The equation then runs once, and not once for each slice.

In a vmapped Taylor series of order K, coefficient K enters every equation linearly. Their sum over directions, such as
a Laplacian, is therefore carried as one value: with K = 2, this is the forward Laplacian.

The sum of a product over a batch axis of both factors is a product over this axis: sum_i A_i B_i. So a sum of gradients
over examples is the gradient of the batch. The sum of a result of a loop, of branches or of a `remat` is computed
inside: a carry is summed if each step needs its sum alone.

Rounding: terms are added in another order, and before they are multiplied, so a sum may leave the range of float16.

In the example, the products of all examples with `w` become one product.

>>> import fxad as fx, fxad.numpy as fnp
>>> def total(w, xs):
...     return fx.vmap(lambda x: x @ w)(xs).sum(0)
>>> program = fx.inline(fx.trace(total, fx.Spec((3, 2)), fx.Spec((7, 3))))
>>> print(collapse(program.jaxpr))
main @total(%arg0: f32[3,2], %arg1: f32[7,3]) -> (f32[2]) {
  %0: f32[3] = reduce_sum[axes=(0,)] %arg1
  %1: f32[2] = dot_general[lhs_contract=(0,), rhs_contract=(0,), lhs_batch=(), rhs_batch=(), preferred=none] %0, %arg0
  return %1
}
<BLANKLINE>
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fxad.core.builder import Builder, rewrite
from fxad.core.dce import dce
from fxad.core.memo import by_value
from fxad.ir import Atom, Eqn, Jaxpr
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.shape import BroadcastInDim
from fxad.transforms.jet.collapse.decisions import SumDecisions
from fxad.transforms.jet.collapse.emission import Emission
from fxad.transforms.jet.collapse.sums import UNSUMMED
from fxad.transforms.map_bodies import map_bodies


@by_value
def collapse(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program in which sums over an axis are taken as early as linear equations allow, also in bodies.

    A sum moves before an equation if the value is used for nothing else, and the equation is linear in the operands
    that vary along the axis, and treats all slices alike.

    Law:  the same value up to rounding: terms are added in another order.
    Cost: one pass backward, one forward.
    """
    jaxpr = _with_outer_factors(map_bodies(jaxpr, collapse))
    decisions = SumDecisions(jaxpr)
    decisions.decide((UNSUMMED,) * len(jaxpr.outs), (True,) * len(jaxpr.outs))
    if not decisions.early_axis:
        return dce(jaxpr)
    b = Builder.like(jaxpr)
    return dce(b.build(Emission(decisions, b).run(), jaxpr.name))


def _with_outer_factors(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with `c * (x * y)` in place of `x * (c * y)`, for factors c that are broadcast: a sum over the
    new axes moves past these only. A product is changed if it is used once, or `c * y` is."""
    uses = Counter([a for e in jaxpr.eqns for a in e.ins] + list(jaxpr.outs))
    defs: dict[Atom, Eqn] = {}

    def is_broadcast(a: Atom) -> bool:
        return a in defs and isinstance(defs[a].prim, BroadcastInDim)

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom] | None:
        if eqn.prim == MUL and eqn.outs[0].aval.inexact:
            for k in (1, 0):
                inner, x = defs.get(ins[k]), ins[1 - k]
                if inner is None or inner.prim != MUL or is_broadcast(x):
                    continue
                if uses[eqn.ins[k]] != 1 and uses[eqn.outs[0]] != 1:
                    continue
                c, y = inner.ins if is_broadcast(inner.ins[0]) else inner.ins[::-1]
                if is_broadcast(c) and not is_broadcast(y):
                    product = b.one(MUL, x, y)
                    defs[product] = b.eqns[-1]
                    outs = b(MUL, product, c)
                    defs[outs[0]] = b.eqns[-1]
                    return outs
        if eqn.prim == MUL or isinstance(eqn.prim, BroadcastInDim):
            outs = b.copy(eqn, ins)
            defs[outs[0]] = b.eqns[-1]
            return outs
        return None

    return rewrite(jaxpr, rule)
